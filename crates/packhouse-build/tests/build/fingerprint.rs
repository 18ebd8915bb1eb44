//! Fingerprints of real programs and libraries: what changes them, and what does not.

use crate::fingerprint_world::{Bench, HELD, facts};
use packhouse_base::digest::Digest;
use packhouse_build::fingerprint::{Fingerprint, FingerprintError};
use serde_json::json;
use std::fs::{self, File, FileTimes};
use std::os::unix::fs::symlink;
use std::path::Path;

#[test]
fn a_library_that_was_rebuilt_is_named_and_nothing_else() {
    let bench = Bench::new();
    bench.build("b");
    let before = bench.of("b");
    assert_eq!(facts(&before, &bench.of("b")), Vec::<String>::new());
    bench.library("b", "libplug.so", 3);
    let after = bench.of("b");
    assert_eq!(facts(&before, &after), ["libraries bin/libplug.so sha256"]);
    bench.library("b", "liba.so", 4);
    let linked = bench.of("b");
    let expected = [
        "libraries bin/liba.so sha256",
        "programs bin/prog loads liba.so",
    ];
    assert_eq!(facts(&after, &linked), expected);
    let loads = &linked.facts()["programs"]["bin/prog"]["loads"];
    let own = &linked.facts()["libraries"]["bin/liba.so"]["sha256"];
    assert_eq!(&loads["liba.so"], own);
    assert!(loads["libc.so.6"].is_string(), "{loads}");
}

#[test]
fn the_same_build_elsewhere_is_the_same_whichever_folder_of_it_is_named() {
    let bench = Bench::new();
    bench.build("b");
    bench.write("b/CMakeCache.txt", "CMAKE_BUILD_TYPE:STRING=Release\n");
    bench.write("b/notes.txt", "no program");
    bench.cc(
        "b/CMakeFiles/3.25/a.out",
        "int main(void) { return 0; }",
        &[],
    );
    let before = bench.of("b");
    fs::create_dir(bench.path("far away")).unwrap();
    fs::rename(bench.path("b"), bench.path("far away/b")).unwrap();
    let moved = bench.of("far away/b");
    assert_eq!(facts(&before, &moved), Vec::<String>::new());
    assert_eq!(moved.places()["build"], json!(bench.path("far away/b")));
    assert_eq!(before.digest(), bench.of("far away/b/bin").digest());
    fs::create_dir(bench.path("engine")).unwrap();
    symlink(bench.path("far away/b/bin"), bench.path("engine/bin")).unwrap();
    assert_eq!(before.digest(), bench.of("engine").digest());
    let programs = moved.facts()["programs"].as_object().unwrap();
    assert_eq!(programs.keys().collect::<Vec<_>>(), ["bin/prog"]);
}

#[test]
fn what_the_environment_makes_the_loader_find_is_what_counts() {
    let mut bench = Bench::new();
    bench.build("b");
    let before = bench.of("b");
    bench.library("other", "liba.so", 9);
    // The program's own folder is searched after the environment's.
    let line = "int f(void); int main(void) { return f(); }";
    let arguments = [
        "-Lb/bin",
        "-l:liba.so",
        "-Wl,--enable-new-dtags,-rpath,$ORIGIN",
    ];
    bench.cc("b/bin/prog", line, &arguments);
    let rebuilt = bench.of("b");
    let other = bench.path("other/bin");
    bench.environment = vec![
        ("LD_LIBRARY_PATH".into(), other.clone().into()),
        ("LD_DEBUG".into(), "all".into()),
        ("LD_VERBOSE".into(), "1".into()),
        ("LD_DEBUG_OUTPUT".into(), bench.path("debug").into()),
    ];
    let redirected = bench.of("b");
    let expected = [
        "names LOADER, RUNPATH $ORIGIN in \"bin\" liba.so",
        "programs bin/prog loads liba.so",
    ];
    assert_eq!(facts(&rebuilt, &redirected), expected);
    let file = fs::canonicalize(other.join("liba.so")).unwrap();
    let digest = Digest::of(&fs::read(&file).unwrap());
    assert!(redirected.covers(&file, &digest));
    assert!(
        !rebuilt.covers(&file, &digest),
        "it is not loaded without the variable"
    );
    assert!(!before.covers(&file, &digest));
}

#[test]
fn a_file_is_covered_under_its_own_path_with_its_own_content_only() {
    let bench = Bench::new();
    bench.build("b");
    let seen = bench.of("b");
    let own = fs::canonicalize(bench.path("b/bin/libplug.so")).unwrap();
    let digest = Digest::of(&fs::read(&own).unwrap());
    assert!(seen.covers(&own, &digest));
    assert!(!seen.covers(&own, &Digest::of(b"another")));
    fs::copy(&own, bench.path("copy.so")).unwrap();
    assert!(!seen.covers(&bench.path("copy.so"), &digest));
    let libc = seen.files().keys().find(|path| path.ends_with("libc.so.6"));
    assert!(libc.is_some(), "{:?}", seen.files());
}

#[test]
fn what_cannot_be_loaded_is_a_fact_with_the_loaders_words() {
    let bench = Bench::new();
    bench.build("b");
    let before = bench.of("b");
    fs::remove_file(bench.path("b/bin/liba.so")).unwrap();
    let after = bench.of("b");
    let program = &after.facts()["programs"]["bin/prog"];
    let said = program["refused"].as_str().expect("because it is refused");
    assert_eq!(
        said,
        "error while loading shared libraries: liba.so: cannot open shared object file: \
         No such file or directory"
    );
    let expected = [
        "libraries bin/liba.so",
        "names LOADER, RUNPATH $ORIGIN in \"bin\"",
        "programs bin/prog loads",
        "programs bin/prog refused",
    ];
    assert_eq!(facts(&before, &after), expected);
}

#[test]
fn a_static_program_loads_nothing_and_one_of_another_machine_is_unknown() {
    let bench = Bench::new();
    let line = "void _start(void) { for (;;) {} }";
    bench.cc("b/static", line, &["-nostdlib", "-static", "-no-pie"]);
    bench.cc("b/foreign", "int main(void) { return 0; }", &[]);
    let mut bytes = fs::read(bench.path("b/foreign")).unwrap();
    let at = bytes
        .windows(4)
        .position(|window| window == b"/lib")
        .unwrap();
    bytes[at..at + 4].copy_from_slice(b"/nix");
    fs::write(bench.path("b/foreign"), bytes).unwrap();
    bench.cc("b/alone", line, &["-nostdlib", "-pie"]);
    let seen = bench.of("b");
    let programs = &seen.facts()["programs"];
    assert_eq!(programs["static"]["loads"], json!({}));
    // It needs no library, but the loader that it names is loaded.
    let alone = programs["alone"]["loads"].as_object().unwrap();
    assert!(
        alone.len() == 1 && alone.keys().all(|name| name.contains("/ld-")),
        "{programs}"
    );
    let why = programs["foreign"]["loads_unknown"]
        .as_str()
        .unwrap_or_default();
    assert!(
        why.starts_with("/nix") && why.contains("can't be asked"),
        "{programs}"
    );
}

#[test]
fn links_scripts_and_libraries_of_other_folders_are_facts() {
    let mut bench = Bench::new();
    bench.build("b");
    bench.library("other", "libfar.so", 5);
    symlink("libplug.so", bench.path("b/bin/libplug.so.1")).unwrap();
    bench.write("b/bin/run.sh", "#!/bin/sh\nexec ./prog\n");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(bench.path("b/bin/run.sh"), mode).unwrap();
    let before = bench.of("b");
    assert_eq!(
        before.facts()["links"],
        json!({ "bin/libplug.so.1": "libplug.so" })
    );
    fs::remove_file(bench.path("b/bin/libplug.so.1")).unwrap();
    symlink("liba.so", bench.path("b/bin/libplug.so.1")).unwrap();
    bench.write("b/bin/run.sh", "#!/bin/sh\nexec ./prog -v\n");
    symlink(
        bench.path("other/bin/libfar.so"),
        bench.path("b/bin/libfar.so"),
    )
    .unwrap();
    bench.with = vec![bench.path("b/bin/liba.so")];
    let expected = [
        "libraries bin/libfar.so",
        "links bin/libfar.so",
        "links bin/libplug.so.1",
        "names LOADER, RUNPATH $ORIGIN in \"bin\" libfar.so",
        "scripts bin/run.sh bytes",
        "scripts bin/run.sh sha256",
        "with liba.so",
    ];
    assert_eq!(facts(&before, &bench.of("b")), expected);
}

/// A program may load `current/libk.so` by name, and what `current` says decides which one.
#[test]
fn links_to_folders_and_to_nothing_are_facts_wherever_they_lie() {
    let bench = Bench::new();
    bench.build("b");
    bench.library("b/one", "libk.so", 1);
    bench.library("b/two", "libk.so", 2);
    fs::create_dir_all(bench.path("b/deep")).unwrap();
    symlink("../one", bench.path("b/deep/current")).unwrap();
    symlink("one", bench.path("b/current")).unwrap();
    let before = bench.of("b");
    for (name, says) in [("b/deep/current", "../two"), ("b/current", "two")] {
        fs::remove_file(bench.path(name)).unwrap();
        symlink(says, bench.path(name)).unwrap();
    }
    symlink("nowhere", bench.path("b/later.so")).unwrap();
    assert_eq!(
        facts(&before, &bench.of("b")),
        ["links current", "links deep/current", "links later.so"]
    );
}

#[test]
fn an_edit_shows_though_length_and_time_of_the_file_are_what_they_were() {
    let bench = Bench::new();
    bench.build("b");
    let path = bench.path("b/bin/libplug.so");
    let before = bench.of("b");
    let kept = fs::metadata(&path).unwrap().modified().unwrap();
    let mut bytes = fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&path, bytes).unwrap();
    let file = File::options().write(true).open(&path).unwrap();
    file.set_times(FileTimes::new().set_modified(kept)).unwrap();
    drop(file);
    let after = bench.of("b");
    assert_eq!(facts(&before, &after), ["libraries bin/libplug.so sha256"]);
    assert_eq!(after.digest(), bench.look_with("b", None).unwrap().digest());
}

#[test]
fn no_build_is_named_and_blamed() {
    let bench = Bench::new();
    bench.write("empty/readme", "nothing here");
    let nothing = bench.path("empty");
    let expected = FingerprintError::NoPrograms {
        path: fs::canonicalize(&nothing).unwrap(),
    };
    assert_eq!(bench.look("empty"), Err(expected.clone()));
    assert_eq!(
        expected.to_string(),
        format!(
            "{} holds no program and no shared library",
            nothing.display()
        )
    );
    for name in ["absent", "empty/readme"] {
        let said = bench.look(name).expect_err("because it is no folder");
        let path = bench.path(name);
        assert_eq!(
            said.to_string(),
            format!("{}: no such folder", path.display())
        );
    }
}

#[test]
fn names_of_all_kinds_are_told_apart() {
    let bench = Bench::new();
    bench.build("b");
    let (one, other) = ("b/new\nline \"x\".so", "b/\\x0a.so");
    bench.library("spare", "libx.so", 1);
    fs::copy(bench.path("spare/bin/libx.so"), bench.path(one)).unwrap();
    fs::copy(bench.path("spare/bin/libx.so"), bench.path(other)).unwrap();
    let raw = std::os::unix::ffi::OsStringExt::from_vec(b"\xff.so".to_vec());
    let raw: std::ffi::OsString = raw;
    fs::copy(bench.path("spare/bin/libx.so"), bench.path("b").join(raw)).unwrap();
    let seen = bench.of("b");
    let libraries = seen.facts()["libraries"].as_object().unwrap();
    let names: Vec<&str> = libraries.keys().map(String::as_str).collect();
    let expected = [
        "\\\\x0a.so",
        "\\xff.so",
        "bin/liba.so",
        "bin/libplug.so",
        "new\nline \"x\".so",
    ];
    assert_eq!(names, expected);
}

#[test]
fn drivers_and_firmware_count_and_use_of_the_card_does_not() {
    let mut bench = Bench::new();
    bench.build("b");
    let before = bench.of("b");
    let host = &before.facts()["host"];
    let card = &host["devices"]["nvidia:GPU-d37d23fd-04b3-66dc-dc9c-ef7f2a39b24c"];
    assert_eq!(card["firmware"], "96.00.A5.00.1A");
    assert_eq!(host["drivers"]["nvml"]["driver"], "580.159.04");
    assert_eq!(host["cpu"]["microcode"], json!(["0x2b"]));
    assert_eq!(host["bios"]["bios_version"], "1.2.3");
    let why = host["bios"]["board_name"]["unknown"]
        .as_str()
        .unwrap_or_default();
    assert!(why.contains("there is no"), "{host}");
    let idle = std::mem::replace(&mut bench.nvml, HELD.to_owned());
    let held = bench.of("b");
    assert_eq!(facts(&before, &held), Vec::<String>::new());
    bench.nvml = idle.replace("580.159.04", "590.1");
    bench.write("host/sys/module/nvidia/version", "590.1\n");
    bench.write("host/proc/sys/kernel/osrelease", "6.19.0\n");
    let changed = bench.of("b");
    let expected = [
        "host drivers nvml driver",
        "host drivers nvml nvml",
        "host kernel release",
        "host modules nvidia",
    ];
    assert_eq!(facts(&before, &changed), expected);
    bench.nvml = "{".to_owned();
    let silent = bench.of("b");
    let nvml = &silent.facts()["host"]["drivers"]["nvml"];
    assert!(nvml["unknown"].is_string(), "{nvml}");
}

#[test]
fn a_vendors_runtime_that_programs_would_find_is_a_fact() {
    let mut bench = Bench::new();
    bench.build("b");
    let before = bench.of("b");
    // No host has this one; what it needs is of the runtime too.
    bench.library("vendor", "libhelper.so", 1);
    bench.cc(
        "vendor/bin/libze_intel_vpu.so.1",
        "int f(void); int g(void) { return f(); }",
        &[
            "-shared",
            "-fPIC",
            "-Wl,--no-as-needed",
            "vendor/bin/libhelper.so",
        ],
    );
    let folder = bench.path("vendor/bin");
    bench.environment = vec![("LD_LIBRARY_PATH".into(), folder.clone().into())];
    let with = bench.of("b");
    let expected = ["runtimes libhelper.so", "runtimes libze_intel_vpu.so.1"];
    assert_eq!(facts(&before, &with), expected);
    let runtime = fs::canonicalize(folder.join("libze_intel_vpu.so.1")).unwrap();
    assert!(with.covers(&runtime, &Digest::of(&fs::read(&runtime).unwrap())));
    fs::remove_file(folder.join("libhelper.so")).unwrap();
    let broken = bench.of("b");
    let why = broken.facts()["runtimes"]["unknown"]
        .as_str()
        .unwrap_or_default();
    assert!(
        why.contains("libhelper.so: cannot open shared object file"),
        "{why}"
    );
}

#[test]
fn a_compiler_is_identified_by_its_file_and_its_own_words() {
    let bench = Bench::new();
    bench.build("b");
    let compiler = bench.path("bin/c99");
    let script = |version: &str| format!("#!/bin/sh\necho {version}\n");
    bench.write("bin/c99", &script("one 1.0"));
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&compiler, mode).unwrap();
    let cache = format!(
        "CMAKE_C_COMPILER:FILEPATH={}\nCMAKE_CXX_COMPILER:FILEPATH=/none/c++\n",
        compiler.display()
    );
    bench.write("b/CMakeCache.txt", &cache);
    let before = bench.of("b");
    let compilers = &before.facts()["build_system"]["compilers"];
    assert_eq!(compilers["C"]["version"], "one 1.0");
    let why = compilers["CXX"]["unknown"].as_str().unwrap_or_default();
    assert!(why.contains("/none/c++"), "{compilers}");
    bench.write("bin/c99", &script("two 2.0"));
    let expected = [
        "build_system compilers C sha256",
        "build_system compilers C version",
    ];
    assert_eq!(facts(&before, &bench.of("b")), expected);
}

#[test]
fn a_record_is_read_back_as_it_was_and_an_edited_one_is_refused() {
    let bench = Bench::new();
    bench.build("b");
    let seen = bench.of("b");
    let bytes = seen.render();
    let back = Fingerprint::parse(&bytes).expect("because it was just written");
    assert_eq!((back.digest(), back.facts()), (seen.digest(), seen.facts()));
    assert!(
        !back.covers(Path::new("/x"), &seen.digest()),
        "its files are not known here"
    );
    let text = String::from_utf8(bytes).unwrap();
    let edits = [
        (
            "\"bios_version\":\"1.2.3\"",
            "\"bios_version\":\"1.2.4\"",
            "its facts have",
        ),
        (
            "packhouse/fingerprint/1",
            "packhouse/fingerprint/2",
            "schema: expected",
        ),
        (
            "{\"facts\":",
            "{\"a\":1,\"facts\":",
            "record: expected no other field, found a",
        ),
        ("{\"facts\":", "{ \"facts\":", "not canonical"),
        ("\"sha256\":\"", "\"sha256\":\"x", "expected"),
    ];
    for (find, replace, said) in edits {
        let last = text.rfind(find).expect(find);
        let edited = format!("{}{replace}{}", &text[..last], &text[last + find.len()..]);
        let error = Fingerprint::parse(edited.as_bytes()).expect_err(said);
        assert!(error.to_string().contains(said), "{error}");
    }
}
