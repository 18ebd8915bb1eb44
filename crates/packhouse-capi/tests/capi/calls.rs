//! What calls give when nothing is in the way: through C, and through `extern "C"` from Rust.

use crate::world::{Later, SPECS, World, edit, object_path, open_at, probe_at, run, stage, words};
use packhouse::*;
use packhouse_layout::Layout;
use packhouse_store::object::ObjectTrust;
use std::ffi::{CString, c_void};
use std::path::Path;
use std::process::Command;
use std::ptr;
use std::sync::Arc;

const SAMPLE: (u32, u32) = (1, 0);
const RECEIPT: (u32, u32) = (2, 0);
const DEEP: (u32, u32) = (3, 0);

/// A struct as a C caller has it before a call.
macro_rules! blank {
    ($name:ident) => {{
        // SAFETY: all zeros are a value of every struct of the header.
        let mut value: $name = unsafe { std::mem::zeroed() };
        value.struct_size = u32::try_from(size_of::<$name>()).expect("because it is small");
        value
    }};
}

fn has(lines: &[String], part: &str) {
    assert!(
        lines.iter().any(|line| line.contains(part)),
        "{part}: {lines:#?}"
    );
}

/// Opens the world's set through `extern "C"`; the paths live as long as the call.
fn open(world: &World, trust: u32) -> *mut packhouse_set {
    let text = |path: &Path| CString::new(path.to_str().expect("UTF-8")).expect("no NUL");
    let (store, state) = (text(&world.path("store")), text(&world.path("state")));
    let mut options = blank!(packhouse_open_options);
    (options.trust, options.store, options.state) = (trust, store.as_ptr(), state.as_ptr());
    let (mut set, mut refusal) = (ptr::null_mut(), blank!(packhouse_refusal));
    // SAFETY: all pointers lead to values of this function.
    let status = unsafe { packhouse_set_open(&raw const options, &raw mut set, &raw mut refusal) };
    assert_eq!(status, OK);
    set
}

/// The entry at an index.
fn entry_at(set: *const packhouse_set, index: u64) -> packhouse_entry {
    let mut entry = blank!(packhouse_entry);
    // SAFETY: the set is open and the entry is ours.
    let status = unsafe { packhouse_set_entry_at(set, index, &raw mut entry, ptr::null_mut()) };
    assert_eq!(status, OK);
    entry
}

fn map(set: *const packhouse_set, entry: &packhouse_entry) -> *mut packhouse_mapping {
    let mut mapping = ptr::null_mut();
    // SAFETY: the set is open and the entry is one of it.
    let status = unsafe { packhouse_set_map(set, entry, &raw mut mapping, ptr::null_mut()) };
    assert_eq!(status, OK);
    mapping
}

fn view(mapping: *const packhouse_mapping) -> packhouse_view {
    let mut view = blank!(packhouse_view);
    // SAFETY: the mapping is counted and the view is ours.
    let status = unsafe { packhouse_mapping_view(mapping, &raw mut view, ptr::null_mut()) };
    assert_eq!(status, OK);
    view
}

fn bytes_of(view: &packhouse_view) -> Vec<u8> {
    let length = usize::try_from(view.payload_bytes).expect("because it is mapped");
    // SAFETY: the view is of a mapping that its test still counts.
    unsafe { std::slice::from_raw_parts(view.payload.cast::<u8>(), length) }.to_vec()
}

#[test]
fn a_payload_is_the_objects_bytes_at_one_address_and_outlives_its_set() {
    let world = World::new();
    let set = open(&world, PACKHOUSE_TRUST_RECEIPT);
    let entry = entry_at(set, 0);
    let (first, second) = (map(set, &entry), map(set, &entry));
    let (one, two) = (view(first), view(second));
    assert_eq!(
        (one.payload, one.payload_bytes, one.held),
        (two.payload, two.payload_bytes, PACKHOUSE_HELD_MAPPED)
    );
    assert_eq!(one.payload.addr() % packhouse_sys::map::page_bytes(), 0);
    assert_eq!(one.object, entry.object);
    let object = std::fs::read(world.object(0)).expect("because it is there");
    // SAFETY: each count is given back once.
    unsafe {
        packhouse_set_release(set);
        packhouse_mapping_release(first);
        assert_eq!(bytes_of(&two), object);
        packhouse_mapping_retain(second);
        packhouse_mapping_release(second);
        assert_eq!(bytes_of(&view(second)), object);
        packhouse_mapping_release(second);
    }
}

#[test]
fn entries_tell_what_the_set_and_its_records_have() {
    let world = World::new();
    let expected = [
        "entry index=0 slot=0 tensor=gate layout=q4_0-xe2-dpas-v2/2 type=2 dims=256,128 \
         bytes=18432 rows=128x144/16",
        "entry index=1 slot=1 tensor=joint layout=q4_0-joint-n-v1/1 type=2 dims=64,24 n_tile=8 \
         bytes=864 rows=24x36/8",
        "entry index=2 slot=4 tensor=plain layout=identity-v1/1 type=0 dims=32,40 bytes=5120 \
         rows=40x128/32",
        "entry index=3 slot=5 tensor=twice layout=identity-v1/1 type=1 dims=64,4 bytes=512 \
         rows=4x128/4",
        "entry index=4 slot=6 tensor=twice layout=identity-v1/1 type=1 dims=64,4 bytes=512 \
         rows=4x128/4",
        "entry index=5 slot=9 tensor=repack layout=ggml-cpu-repack/1 type=8 dims=64,32 \
         unit_rows=16 bytes=2176 rows=1x2176/1",
    ];
    for (index, expected) in expected.iter().enumerate() {
        let lines = world.probe(RECEIPT, &["open", "at", &index.to_string()]);
        assert_eq!(lines[2], *expected);
    }
    let lines = world.probe(RECEIPT, &["open", "info", "close"]);
    let key = world.key();
    assert_eq!(
        lines[2],
        format!("staged=0 entries=8 plan=test-plan key={key}")
    );
    // The same set by fewer digits, as the only one, and by its folder.
    let folder = world.path("store/v1/sets").join(&key);
    for name in [&key[..8], "-", folder.to_str().expect("UTF-8")] {
        let lines = world.probe_set(name, RECEIPT, &["open", "info"]);
        has(&lines, &format!("key={key}"));
    }
}

#[test]
fn a_contract_finds_its_pack_by_slot_and_by_name_with_all_it_may_ask_for() {
    let world = World::new();
    for spec in SPECS.iter().filter(|spec| spec.dims.len() < 9) {
        let record = world.store.lookup_pack(&world.entry(spec.slot).pack);
        let identity = record.expect("because it was published").identity;
        let mut contract = world.contract(spec.slot);
        let parameters = identity
            .parameters
            .iter()
            .map(|(name, value)| format!("{name}={value}"));
        let parameters: Vec<String> = parameters.collect();
        if !parameters.is_empty() {
            contract[5] = parameters.join(",");
        }
        contract[6] = identity.source.to_string();
        contract[7] = identity.fingerprint.to_string();
        let slot = spec.slot.to_string();
        let found = ["slot", slot.as_str()];
        let lines = world.probe(RECEIPT, &words(&[&["open".to_owned()], &contract], &found));
        has(&lines, &format!("slot={slot} tensor={}", spec.name));
        if spec.name != "twice" {
            let found = ["tensor", spec.name];
            let lines = world.probe(RECEIPT, &words(&[&["open".to_owned()], &contract], &found));
            has(&lines, &format!("slot={slot} tensor={}", spec.name));
        }
    }
}

/// Records a receipt of an object as a user's process does ten seconds later.
fn record_receipt(world: &World, slot: u64) {
    let store = open_at(world.folder.path(), Arc::new(Later));
    let entry = world.entry(slot);
    store
        .object(&entry.object, entry.length, ObjectTrust::Receipt)
        .expect("because it is intact");
}

#[test]
fn each_trust_asks_for_its_proof_and_the_counters_say_which() {
    let world = World::new();
    let map = &[
        "open", "at", "0", "map", "at", "0", "map", "view", "counters",
    ][..];
    let lines = world.probe(RECEIPT, map);
    has(&lines, "bytes=18432 held=1 proof=3 ");
    has(
        &lines,
        "mapped=1/18432 copied=0/0 deep=0/0 receipt=0/0 reverified=1/18432 ",
    );
    record_receipt(&world, 0);
    let lines = world.probe(RECEIPT, map);
    has(&lines, "held=1 proof=2 ");
    has(
        &lines,
        "mapped=1/18432 copied=0/0 deep=0/0 receipt=1/18432 reverified=0/0 sample=0/0 ",
    );
    let lines = world.probe(DEEP, map);
    has(&lines, "held=1 proof=1 ");
    has(
        &lines,
        "mapped=1/18432 copied=0/0 deep=1/18432 receipt=0/0 ",
    );
    let live = world.path("gate").display().to_string();
    let words = [
        "open", "at", "0", "sample", &live, "0", "5", "map", "view", "counters",
    ];
    let lines = world.probe(SAMPLE, &words);
    has(&lines, "compared=4 of=8 source=9216 payload=9216");
    has(&lines, "held=1 proof=4 ");
    has(&lines, "sample=1/18432 sampled=1/18432 groups=4");
}

#[test]
fn samples_are_of_every_layout_and_of_as_many_groups_as_asked() {
    let world = World::new();
    for (index, name, groups) in [(0, "gate", 8), (1, "joint", 3), (2, "plain", 2)] {
        let (index, live) = (index.to_string(), world.path(name).display().to_string());
        for trust in [RECEIPT, SAMPLE] {
            for (asked, compared) in [
                ("0", groups.min(4)),
                ("1", 1),
                ("18446744073709551615", groups),
            ] {
                let words = ["open", "at", &index, "sample", &live, asked, "3"];
                let lines = world.probe(trust, &words);
                has(&lines, &format!("compared={compared} of={groups} "));
            }
        }
    }
}

/// Whatever bit of the payload flips, samples of all groups find it and say where.
#[test]
fn a_flipped_bit_anywhere_is_found_by_samples_of_all_groups() {
    let world = World::new();
    let live = world.path("gate").display().to_string();
    let words = [
        "open",
        "at",
        "0",
        "sample",
        &live,
        "18446744073709551615",
        "0",
    ];
    for at in [0, 1, 255, 256, 4000, 16_383, 16_384, 16_385, 18_431] {
        edit(&world.object(0), |bytes| bytes[at] ^= 0x40);
        let lines = world.probe(SAMPLE, &words);
        let line = lines.last().expect("because it answers");
        assert!(
            line.starts_with("sample PACKHOUSE_SAMPLE_DIFFERS"),
            "{lines:#?}"
        );
        // The first byte of its group that differs is the one that was flipped.
        assert!(line.contains(&format!(": payload byte {at} is ")), "{line}");
        edit(&world.object(0), |bytes| bytes[at] ^= 0x40);
    }
    has(&world.probe(SAMPLE, &words), "compared=8 of=8");
}

#[test]
fn a_stage_serves_under_every_trust() {
    let world = World::new();
    stage(&world);
    // The store's payload is gone, and nobody asks for it.
    std::fs::remove_file(world.object(0)).expect("because the folder is ours");
    let live = world.path("gate").display().to_string();
    for (trust, proof) in [(SAMPLE, 2), (RECEIPT, 2), (DEEP, 1)] {
        let words = ["open", "at", "0", "map", "view", "sample", &live, "0", "0"];
        let lines = world.probe(trust, &words);
        has(&lines, &format!("held=1 proof={proof} "));
        has(&lines, "compared=4 of=8");
    }
}

#[test]
fn engines_pack_and_unpack_with_the_same_packers() {
    let world = World::new();
    for slot in [0, 1, 4] {
        let entry = world.entry(slot);
        let record = world
            .store
            .lookup_pack(&entry.pack)
            .expect("because it was published");
        let source = world.path(&entry.tensor).display().to_string();
        let target = world.path("packed").display().to_string();
        for threads in ["0", "1", "3"] {
            let asked = ["fingerprint", "lengths", "pack", &source, threads, &target];
            let lines = world.probe(RECEIPT, &words(&[&world.contract(slot)], &asked));
            assert_eq!(lines[1], record.identity.fingerprint.to_string());
            has(&lines, &format!("payload={}", entry.length));
            has(&lines, "inverse equal");
            let packed = std::fs::read(&target).expect("because it was packed");
            let object = std::fs::read(world.object(slot)).expect("because it is there");
            assert!(packed == object, "{}", entry.tensor);
        }
    }
}

#[test]
fn the_layouts_are_told_with_their_parameters() {
    let world = World::new();
    let lines = world.probe(RECEIPT, &["layouts"]);
    let expected = Layout::ALL.iter().map(|layout| {
        let parameters = layout.parameters().iter().map(|one| {
            let (has, default) = (u8::from(one.default.is_some()), one.default.unwrap_or(0));
            format!(" {}={}..{}/{has}/{default}", one.name, one.min, one.max)
        });
        let parameters: String = parameters.collect();
        let invertible = u8::from(layout.is_invertible());
        format!(
            "layout {} {} {invertible}{parameters}",
            layout.id(),
            layout.version()
        )
    });
    assert_eq!(lines, expected.collect::<Vec<_>>());
}

/// A store that another user fills for many. Needs root, to give it to another user.
#[test]
fn a_store_of_another_owner_is_used_when_that_owner_is_trusted() {
    let world = World::new();
    let mut give = Command::new("chown");
    give.args(["-R", "12345:12345"]).arg(world.path("store"));
    if !run(&mut give).status.success() {
        println!("NOT EXERCISED: not root");
        return;
    }
    let lines = world.probe(RECEIPT, &["open"]);
    has(&lines, "open PACKHOUSE_STORE_UNTRUSTED");
    has(&lines, "belongs to uid 12345");
    let lines = world.probe(RECEIPT, &["trust", "12344", "open"]);
    has(&lines, "belongs to uid 12345");
    let lines = world.probe(
        RECEIPT,
        &["trust", "1", "trust", "12345", "open", "at", "0", "map"],
    );
    has(&lines, "open PACKHOUSE_OK");
    has(&lines, "map PACKHOUSE_OK");
}

/// A set that only engines of this kind use would be the first that gc takes, if nobody noted it.
#[test]
fn an_opened_set_is_noted_as_used() {
    let world = World::new();
    let uses = || {
        let log = world.store.use_log().expect("because the state is ours");
        log.read().expect("because it is readable").sets
    };
    assert!(uses().is_empty());
    world.probe(RECEIPT, &["open"]);
    let used: Vec<_> = uses().into_keys().collect();
    assert_eq!(used, [world.manifest.key()]);
}

/// A mounted folder, until it is dropped.
struct Mount<'a>(&'a Path);

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        let unmounted = run(Command::new("umount").arg("-l").arg(self.0));
        assert!(unmounted.status.success(), "{unmounted:?}");
    }
}

/// ramfs stands for every file system that is not known to be safe to map. Needs root, for the
/// mount.
#[test]
fn payloads_on_an_unknown_file_system_are_copied_and_hashed_while_they_are_read() {
    let world = World::new();
    let far = world.path("far");
    std::fs::create_dir(&far).expect("because the folder is ours");
    let mut mount = Command::new("mount");
    mount
        .args(["-t", "ramfs", "-o", "mode=0755", "ramfs"])
        .arg(&far);
    if !run(&mut mount).status.success() {
        println!("NOT EXERCISED: no mount: not root, or not allowed to");
        return;
    }
    let _mount = Mount(&far);
    let mut copy = Command::new("cp");
    copy.arg("-a").arg(world.path("store/.")).arg(&far);
    assert!(run(&mut copy).status.success());
    let places = [far.clone(), world.path("state"), "-".into()];
    let words = ["open", "at", "0", "map", "view", "counters"];
    let lines = probe_at(&places, "-", RECEIPT, &words);
    has(&lines, "bytes=18432 held=2 proof=3 ");
    has(&lines, "mapped=0/0 copied=1/18432 ");
    edit(&object_path(&far, &world.entry(0).object), |bytes| {
        bytes[5] ^= 1
    });
    let lines = probe_at(&places, "-", RECEIPT, &words);
    has(&lines, "map PACKHOUSE_OBJECT_CORRUPT slot 0");
}

/// Gives live weights out of a vector.
unsafe extern "C" fn from_memory(
    context: *mut c_void,
    offset: u64,
    target: *mut c_void,
    bytes: u64,
) -> i32 {
    let lengths = [offset, bytes].map(|value| usize::try_from(value).expect("because it is small"));
    let [start, length] = lengths;
    // SAFETY: the context is a vector of its caller's, and so many bytes are at the target.
    unsafe {
        let source = &(&*context.cast::<Vec<u8>>())[start..start + length];
        std::ptr::copy_nonoverlapping(source.as_ptr(), target.cast(), length);
    }
    0
}

/// Samples prove the object that they were compared with, not one that took its place.
#[test]
fn an_object_that_was_changed_after_its_samples_is_not_mapped_for_them() {
    let world = World::new();
    let set = open(&world, PACKHOUSE_TRUST_SAMPLE);
    let entry = entry_at(set, 0);
    let mut source = std::fs::read(world.path("gate")).expect("because it is there");
    let mut sample = || {
        // SAFETY: everything lives as long as the call.
        unsafe {
            let context = (&raw mut source).cast();
            let none = ptr::null();
            let live = Some(from_memory as unsafe extern "C" fn(_, _, _, _) -> _);
            packhouse_set_sample(
                set,
                &entry,
                live,
                context,
                none,
                ptr::null_mut(),
                ptr::null_mut(),
            )
        }
    };
    assert_eq!(sample(), OK);
    let mapping = map(set, &entry);
    // SAFETY: the count is ours.
    unsafe { packhouse_mapping_release(mapping) };
    edit(&world.object(0), |bytes| bytes[99] ^= 1);
    let (mut mapping, mut refusal) = (ptr::null_mut(), blank!(packhouse_refusal));
    // SAFETY: everything lives as long as the call.
    let status = unsafe { packhouse_set_map(set, &entry, &raw mut mapping, &raw mut refusal) };
    assert_eq!((status, mapping.is_null()), (144, true));
    edit(&world.object(0), |bytes| bytes[99] ^= 1);
    assert_eq!(sample(), OK);
    let mapping = map(set, &entry);
    // SAFETY: the counts are ours.
    unsafe {
        packhouse_mapping_release(mapping);
        packhouse_set_release(set);
    }
}

/// A callback that asks the library while it is asked by it.
#[test]
fn a_callback_may_use_the_set_that_calls_it() {
    struct Context {
        set: *const packhouse_set,
        entry: packhouse_entry,
        source: Vec<u8>,
        asked: u64,
    }
    unsafe extern "C" fn live(context: *mut c_void, at: u64, to: *mut c_void, bytes: u64) -> i32 {
        // SAFETY: the context is the one below, and so many bytes are at the target.
        let (context, target) = unsafe {
            let length = usize::try_from(bytes).expect("because it is small");
            (
                &mut *context.cast::<Context>(),
                std::slice::from_raw_parts_mut(to.cast::<u8>(), length),
            )
        };
        let mapping = map(context.set, &context.entry);
        // SAFETY: the count is ours.
        unsafe { packhouse_mapping_release(mapping) };
        let start = usize::try_from(at).expect("because it is small");
        target.copy_from_slice(&context.source[start..start + target.len()]);
        context.asked += 1;
        0
    }
    let world = World::new();
    let set = open(&world, PACKHOUSE_TRUST_RECEIPT);
    let mut context = Context {
        set,
        entry: entry_at(set, 0),
        source: std::fs::read(world.path("gate")).expect("because it is there"),
        asked: 0,
    };
    let entry = context.entry;
    // SAFETY: the context lives as long as the call.
    let status = unsafe {
        packhouse_set_sample(
            set,
            &raw const entry,
            Some(live),
            (&raw mut context).cast(),
            ptr::null(),
            ptr::null_mut(),
            ptr::null_mut(),
        )
    };
    assert_eq!((status, context.asked), (OK, 4));
    // SAFETY: the count is ours.
    unsafe { packhouse_set_release(set) };
}

/// Counts of refusals are read while other threads make more of them: a place in the list would
/// mean another reason each time.
#[test]
fn each_refusal_is_told_once_while_others_come() {
    let world = World::new();
    let set = open(&world, PACKHOUSE_TRUST_SAMPLE);
    let next = |after: packhouse_status| {
        let mut refused = blank!(packhouse_refused);
        // SAFETY: the set is open and the struct is ours.
        let status =
            unsafe { packhouse_set_refused_after(set, after, &raw mut refused, ptr::null_mut()) };
        assert_eq!(status, OK);
        (refused.status, refused.count.tensors)
    };
    assert_eq!(next(OK), (OK, 0));
    let mut entry = entry_at(set, 0);
    let refuse = |entry: &packhouse_entry| {
        let mut mapping = ptr::null_mut();
        // SAFETY: the set is open and the entry is ours.
        unsafe { packhouse_set_map(set, entry, &raw mut mapping, ptr::null_mut()) }
    };
    let not_sampled = refuse(&entry);
    assert_eq!(next(OK), (not_sampled, 1));
    // A reason with a lower number comes in between.
    entry.slot += 1;
    let other_entry = refuse(&entry);
    assert!(OK < other_entry && other_entry < not_sampled);
    assert_eq!(next(not_sampled), (OK, 0));
    assert_eq!(next(OK), (other_entry, 1));
    assert_eq!(next(other_entry), (not_sampled, 1));
    // SAFETY: the count is ours.
    unsafe { packhouse_set_release(set) };
}
