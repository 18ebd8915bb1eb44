//! The crate's parser against a second one, on mutated files: same verdict, same directory.

use super::build::{BOOL, Build, F32, I32, Q4_0, STRING, U16, rich, shard};
use super::oracle::{Mutant, compare};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// Files that are accepted, small enough to be mutated at each byte.
fn accepted() -> Vec<Vec<u8>> {
    let wide = Build::new(2, 1).alignment(1);
    let wide = wide.tensor(b"a", &[3], 24, 0).tensor(b"b", &[2, 2], 1, 3);
    let old = Build::with_version(2, 1, 1).key(b"k", STRING).text(b"v");
    let old = old.tensor(b"t", &[32, 2, 1, 2], Q4_0, 0).data(32, 72);
    vec![
        old.bytes,
        shard(1, 3, 9, &["x", "y"]),
        shard(0, 0, 1, &["x"]),
        wide.data(1, 11).bytes,
        Build::new(0, 0).bytes,
        rich(),
    ]
}

/// Files that are refused, each for one reason, to mutate too: what is wrong may become right.
fn refused() -> Vec<Vec<u8>> {
    let entry = |dims: &[u64], kind, offset| Build::new(1, 0).tensor(b"t", dims, kind, offset);
    let long = Build::new(1, 0).tensor(&[b'n'; 64], &[8], F32, 0);
    let twice = Build::new(2, 0).tensor(b"t", &[8], F32, 0);
    let keys = |key: &[u8]| {
        Build::new(0, 2)
            .key(b"k", 0)
            .raw(&[1])
            .key(key, 0)
            .raw(&[1])
    };
    vec![
        entry(&[8], F32, 32).data(32, 64).bytes,
        entry(&[31], Q4_0, 0).data(32, 32).bytes,
        entry(&[1 << 62, 4], F32, 0).data(32, 0).bytes,
        entry(&[1, 1, 1, 1, 1], F32, 0).data(32, 32).bytes,
        long.data(32, 32).bytes,
        twice.clone().tensor(b"t", &[8], F32, 32).data(32, 64).bytes,
        twice.clone().tensor(b"u", &[8], F32, 0).data(32, 64).bytes,
        twice.tensor(b"u", &[8], F32, 64).data(32, 96).bytes,
        keys(b"k").bytes,
        keys(b"").bytes,
        keys(b"\0").bytes,
        keys(b"\xff").bytes,
        Build::new(0, 1).array(b"k", 9, 1).u32(0).u64(0).bytes,
        Build::new(0, 1).key(b"k", BOOL).raw(&[2]).bytes,
        Build::new(0, 1).alignment(24).bytes,
        Build::new(0, 1).alignment(0).bytes,
        shard(3, 3, 9, &["x"]),
        shard(0, 1, 0, &["x"]),
        Build::new(0, 1).key(b"split.count", U16).raw(&[2, 0]).bytes,
        Build::new(0, 1).key(b"split.count", I32).u32(0).bytes,
    ]
}

/// Values that broke other parsers.
fn hostile(length: usize) -> Vec<u64> {
    let length = length as u64;
    let near = [
        0, 1, 2, 3, 5, 8, 9, 31, 32, 33, 63, 64, 65, 255, 256, 4096, 65_535, 65_536,
    ];
    let edges = [31, 32, 60, 61, 62, 63].map(|bit| 1u64 << bit);
    let around = edges.iter().flat_map(|edge| [edge - 1, *edge, edge + 1]);
    let own = [
        length - 1,
        length,
        length + 1,
        u64::MAX,
        u64::MAX - 31,
        u64::MAX / 32 * 32,
    ];
    near.into_iter().chain(around).chain(own).collect()
}

fn overwrite(file: &mut [u8], at: usize, width: usize, value: u64) {
    for (target, byte) in file
        .iter_mut()
        .skip(at)
        .take(width)
        .zip(value.to_le_bytes())
    {
        *target = byte;
    }
}

/// Calls `see` with each file, cut at each length, longer, and with each hostile value at each
/// byte.
fn sweep(mut see: impl FnMut(&[u8])) {
    let files: Vec<_> = refused().into_iter().chain(accepted()).collect();
    files.iter().for_each(|file| see(file));
    for file in files {
        (0..=file.len()).for_each(|length| see(&file[..length]));
        let mut longer = file.clone();
        for _ in 0..130 {
            longer.push(0);
            see(&longer);
        }
        // Of the zeros of the data at the end, one is as good as all.
        let data = file.iter().rev().take_while(|byte| **byte == 0).count();
        for at in 0..(file.len() - data + 1).min(file.len()) {
            for (width, values) in [(8, hostile(file.len())), (4, vec![0, 3, 5, 9, 31, 1 << 31])] {
                for value in values {
                    let mut changed = file.clone();
                    overwrite(&mut changed, at, width, value);
                    see(&changed);
                }
            }
            for byte in [0, 1, 2, 0x7f, 0x80, 0xff, file[at] ^ 0x20] {
                let mut changed = file.clone();
                changed[at] = byte;
                see(&changed);
            }
        }
    }
}

#[test]
fn the_unmutated_files_are_what_they_are_meant_to_be() {
    for file in accepted() {
        assert_eq!(compare(&file, None), Ok(true));
    }
    for file in refused() {
        assert_eq!(compare(&file, None), Ok(false));
    }
}

/// The fuzz job starts from the same files; it has them as files, so that it needs no program to
/// make them.
#[test]
fn the_seeds_of_the_fuzz_job_are_the_accepted_files() {
    let seeds = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/gguf");
    for (index, file) in accepted().iter().enumerate() {
        let name = format!("{index}.gguf");
        if std::fs::read(format!("{seeds}/{name}")).ok().as_ref() != Some(file) {
            let fresh = format!("{}/{name}", env!("CARGO_TARGET_TMPDIR"));
            std::fs::write(&fresh, file).expect("because the target folder is ours");
            panic!("{seeds}/{name} is not current: copy {fresh}");
        }
    }
}

#[test]
fn both_parsers_agree_on_each_hostile_value_at_each_byte() {
    let (mut files, mut good) = (0u32, 0u32);
    sweep(|file| {
        files += 1;
        match compare(file, None) {
            Ok(accepted) => good += u32::from(accepted),
            Err(difference) => panic!("{difference}: {file:02x?}"),
        }
    });
    // A sweep whose files are all refused early would see nothing.
    assert!(files > 50_000 && good > 1_000, "{good} of {files} accepted");
}

/// The canary: each way to be wrong is seen by the same sweep that finds no disagreement above.
#[test]
fn each_mutant_of_the_second_parser_is_caught() {
    let mut alive = Mutant::ALL.to_vec();
    sweep(|file| {
        if !alive.is_empty() {
            alive.retain(|mutant| compare(file, Some(*mutant)).is_ok());
        }
    });
    assert!(alive.is_empty(), "not caught: {alive:?}");
}

/// One change of a file.
#[derive(Clone, Debug)]
enum Change {
    Flip(prop::sample::Index, u8),
    Cut(prop::sample::Index),
    Add(Vec<u8>),
    Overwrite(prop::sample::Index, usize, prop::sample::Index),
    Copy(prop::sample::Index, prop::sample::Index, usize),
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    use prop::sample::Index;
    let change = prop_oneof![
        (any::<Index>(), 0..8u8).prop_map(|(at, bit)| Change::Flip(at, bit)),
        any::<Index>().prop_map(Change::Cut),
        prop::collection::vec(any::<u8>(), 1..70).prop_map(Change::Add),
        (
            any::<Index>(),
            prop::sample::select(vec![1, 4, 8]),
            any::<Index>()
        )
            .prop_map(|(at, width, value)| Change::Overwrite(at, width, value)),
        (any::<Index>(), any::<Index>(), 1..40usize)
            .prop_map(|(from, to, count)| Change::Copy(from, to, count)),
    ];
    prop::collection::vec(change, 1..5)
}

fn apply(file: &mut Vec<u8>, change: &Change) {
    if file.is_empty() {
        return;
    }
    let length = file.len();
    match change {
        Change::Flip(at, bit) => file[at.index(length)] ^= 1 << bit,
        Change::Cut(at) => file.truncate(at.index(length)),
        Change::Add(bytes) => file.extend(bytes),
        Change::Overwrite(at, width, value) => {
            let values = hostile(length);
            overwrite(
                file,
                at.index(length),
                *width,
                values[value.index(values.len())],
            );
        }
        Change::Copy(from, to, count) => {
            let from = from.index(length);
            let bytes = file[from..length.min(from + count)].to_vec();
            let to = to.index(length);
            file.splice(to..to, bytes);
        }
    }
}

#[test]
fn both_parsers_agree_on_files_with_several_random_changes() {
    let seed = std::env::var("SEED").map_or(1, |seed| seed.parse().expect("SEED is a number"));
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&u64::to_le_bytes(seed));
    let config = Config {
        cases: 12_000,
        failure_persistence: None,
        ..Config::default()
    };
    let random = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(config, random);
    let files: Vec<_> = accepted().into_iter().chain(refused()).collect();
    let cases = (prop::sample::select(files), changes());
    let outcome = runner.run(&cases, |(mut file, changes)| {
        changes.iter().for_each(|change| apply(&mut file, change));
        prop_assert!(compare(&file, None).is_ok(), "{:?}", compare(&file, None));
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("SEED={seed}: {error}"));
}
