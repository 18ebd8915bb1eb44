//! The C programs: the example, eight threads, the broken ones that a sanitizer must report, and
//! the ways by which a program finds the library.

use crate::world::{World, library_folder, program, run};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Set by `scripts/capi.sh`.
fn is_instrumented() -> bool {
    std::env::var_os("PACKHOUSE_TEST_ASAN").is_some()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn assert_success(output: &Output) -> String {
    assert!(
        output.status.success(),
        "{:?}: {}{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout)
}

#[test]
fn eight_threads_open_look_up_map_read_and_release_one_set() {
    let world = World::new();
    // Entries past the header's dims are not for this program.
    let entries = world
        .manifest
        .entries()
        .iter()
        .filter(|entry| entry.slot != 12);
    let set = crate::world::publish_set(&world.store, "threads", entries.cloned().collect());
    let rounds = if is_instrumented() { "5" } else { "20" };
    let mut command = Command::new(program("threads", &["threads.c"]));
    command.arg(world.path("store")).arg(world.path("state"));
    command.args([&set.key().to_string(), rounds]);
    let said = assert_success(&run(&mut command));
    assert_eq!(said, format!("threads=8 rounds={rounds} entries=7\n"));
}

/// Runs the example on a world's matrix.
fn dot(program: &Path, world: &World, row: u64, model: Option<(&Path, u64)>) -> Output {
    let mut command = Command::new(program);
    command.arg(world.path("store")).arg(world.path("state"));
    command
        .args([&world.key(), "gate", "256", "128"])
        .arg(row.to_string());
    if let Some((model, offset)) = model {
        command.arg(model).arg(offset.to_string());
    }
    run(&mut command)
}

#[test]
fn the_example_computes_the_same_dot_product_from_the_pack_and_from_the_source() {
    let world = World::new();
    let dot_program = program("dot", &["dot.c"]);
    let model = world.path("model");
    let source = std::fs::read(world.path("gate")).expect("because it is there");
    std::fs::write(&model, [&[0; 96][..], &source].concat()).expect("because it is ours");
    let mut answers = Vec::new();
    for row in [0, 1, 15, 16, 77, 127] {
        let unpacked = assert_success(&dot(&dot_program, &world, row, None));
        let read = assert_success(&dot(&dot_program, &world, row, Some((&model, 96))));
        assert_eq!(unpacked, read);
        assert!(read.ends_with(": equal\n"), "{read}");
        answers.push(read.split("dot ").nth(1).map(str::to_owned));
    }
    answers.dedup();
    assert_eq!(answers.len(), 6, "rows differ: {answers:?}");
    // Another row of the source is noticed, so equal means something.
    let output = dot(&dot_program, &world, 3, Some((&model, 96 + 144)));
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("NOT EQUAL"));
    let output = run(Command::new(&dot_program).arg("x"));
    assert_eq!(output.status.code(), Some(2));
}

/// The plain run tests the library as it is; the instrumented one must see what it is there to see.
#[test]
fn the_sanitizer_reports_use_after_release_and_leaks_inside_the_library() {
    let library = library_folder().join("libpackhouse.so");
    let bytes = std::fs::read(&library).expect("because it was built");
    let wanted = b"__asan_report_load";
    let is_there = bytes.windows(wanted.len()).any(|part| part == wanted);
    assert_eq!(is_there, is_instrumented(), "{}", library.display());
    let world = World::new();
    let broken = program("canary", &["canary.c"]);
    let run_as = |what: &str| {
        let mut command = Command::new(&broken);
        command.arg(world.path("store")).arg(world.path("state"));
        command.args([&world.key(), what]);
        run(&mut command)
    };
    assert_success(&run_as("nothing"));
    if !is_instrumented() {
        return;
    }
    let reported = |what: &str, parts: &[&str]| {
        let output = run_as(what);
        let said = text(&output.stderr);
        assert!(!output.status.success(), "{what} went unnoticed: {said}");
        for part in parts {
            assert!(said.contains(part), "{what}: {part}: {said}");
        }
    };
    let freed = [
        "AddressSanitizer: heap-use-after-free",
        "packhouse_set_summary",
    ];
    reported("use-after-release", &freed);
    reported(
        "read-after-release",
        &["AddressSanitizer: SEGV", "read_after_release"],
    );
    reported(
        "leak",
        &["LeakSanitizer: detected memory leaks", "packhouse_set_open"],
    );
}

fn repository() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.ancestors()
        .nth(2)
        .expect("because it is in crates")
        .to_owned()
}

fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/dot.c")
}

/// Installs the library under test and moves the prefix, which its files must survive.
fn installed(world: &World) -> PathBuf {
    let (first, moved) = (world.path("first prefix"), world.path("prefix"));
    let mut command = Command::new("bash");
    command.arg(repository().join("scripts/install-capi.sh"));
    command
        .arg("--prefix")
        .arg(&first)
        .arg("--from")
        .arg(library_folder());
    let said = assert_success(&run(&mut command));
    assert!(said.starts_with("packhouse 0.1.0, interface 1: "), "{said}");
    std::fs::rename(first, &moved).expect("because both are ours");
    moved
}

/// Runs the installer with words.
fn install(folder: &Path, words: &[&Path]) -> Command {
    let mut command = Command::new("bash");
    command.arg(repository().join("scripts/install-capi.sh"));
    command.args(words).current_dir(folder);
    command
}

/// What programs that link with a shared library ask for.
fn soname(library: &Path) -> String {
    let said = assert_success(&run(Command::new("readelf").arg("-d").arg(library)));
    let line = said.lines().find(|line| line.contains("(SONAME)"));
    let name = line.and_then(|line| line.split_once('[')?.1.split_once(']'));
    name.map(|(name, _)| name.to_owned()).unwrap_or_default()
}

#[test]
fn what_is_installed_bears_the_interfaces_version_and_nothing_else_is_installed() {
    let world = World::new();
    let library = installed(&world).join("lib/libpackhouse.so");
    assert_eq!(soname(&library), "libpackhouse.so.1");
    let (from, prefix) = (world.path("other"), world.path("never"));
    std::fs::create_dir(&from).expect("because the folder is ours");
    let source = world.path("other.c");
    std::fs::write(&source, "int nothing;\n").expect("because it is ours");
    let mut command = compiler("-shared -fPIC");
    command
        .arg(&source)
        .arg("-o")
        .arg(from.join("libpackhouse.so"));
    assert_success(&run(&mut command));
    std::fs::write(from.join("libpackhouse.a"), b"").expect("because it is ours");
    let words = [Path::new("--from"), &from, Path::new("--prefix"), &prefix];
    let output = run(&mut install(&world.path(""), &words));
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(
        said.contains("is called nothing, expected libpackhouse.so.1"),
        "{said}"
    );
    assert!(!prefix.exists());
}

#[test]
fn the_installer_exits_as_it_says() {
    let world = World::new();
    let code = |words: &[&Path]| {
        let output = run(&mut install(&world.path(""), words));
        (output.status.code(), text(&output.stderr))
    };
    let [prefix, from] = [Path::new("--prefix"), Path::new("--from")];
    let target = world.path("to");
    let (code_of_none, said) = code(&[]);
    assert_eq!(code_of_none, Some(2), "{said}");
    assert!(said.contains("--prefix DIR"), "{said}");
    assert_eq!(code(&[prefix]).0, Some(2));
    assert_eq!(code(&[Path::new("--what"), &target]).0, Some(2));
    let (missing, said) = code(&[prefix, &target, from, &world.path("nowhere")]);
    assert_eq!(missing, Some(3), "{said}");
    // A file where the prefix should be.
    let (blocked, said) = code(&[prefix, &world.path("gate"), from, &library_folder()]);
    assert_eq!(blocked, Some(3), "{said}");
}

/// A stand-in for cargo notes which folder it would build into, and lays the library there.
#[test]
fn the_installer_takes_a_relative_target_folder_from_where_it_was_called() {
    let world = World::new();
    let (tools, target) = (world.path("tools"), world.path("to"));
    std::fs::create_dir(&tools).expect("because the folder is ours");
    let stand_in = tools.join("cargo");
    let script = format!(
        "#!/bin/sh\ndir=$CARGO_TARGET_DIR\nwhile [ $# -gt 0 ]; do\n\
         [ \"$1\" = --target-dir ] && dir=$2\nshift\ndone\n\
         case $dir in /*) ;; *) echo \"relative: $dir\" >&2; exit 1 ;; esac\n\
         mkdir -p \"$dir/release\"\ncp '{from}'/libpackhouse.so '{from}'/libpackhouse.a \
         \"$dir/release\"\n",
        from = library_folder().display()
    );
    std::fs::write(&stand_in, script).expect("because it is ours");
    crate::world::set_mode(&stand_in, 0o755);
    let path = std::env::var("PATH").expect("because there is one");
    let mut command = install(&world.path(""), &[Path::new("--prefix"), &target]);
    command.env("PATH", format!("{}:{path}", tools.display()));
    command.env("CARGO_TARGET_DIR", "built/here");
    assert_success(&run(&mut command));
    assert!(world.path("built/here/release/libpackhouse.so").exists());
    assert!(target.join("lib/libpackhouse.so.1").exists());
}

fn compiler(extra: &str) -> Command {
    let mut command = Command::new("gcc");
    command.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic"]);
    command.args(extra.split_whitespace());
    command
}

fn extra_flags() -> String {
    std::env::var("PACKHOUSE_TEST_CFLAGS").unwrap_or_default()
}

#[test]
fn the_example_builds_on_an_installed_prefix_with_plain_flags_shared_and_static() {
    let world = World::new();
    let prefix = installed(&world);
    let shared = world.path("dot-shared");
    let mut command = compiler(&extra_flags());
    command.arg(example()).arg("-I").arg(prefix.join("include"));
    command
        .arg("-L")
        .arg(prefix.join("lib"))
        .arg("-o")
        .arg(&shared);
    assert_success(&run(command.args(["-lpackhouse", "-lm"])));
    assert!(assert_success(&dot(&shared, &world, 5, None)).contains("equal"));
    // rustc links its own sanitizer runtime into nothing but programs.
    if is_instrumented() {
        return;
    }
    let fixed = world.path("dot-static");
    let mut command = compiler("");
    command
        .arg(example())
        .arg("-I")
        .arg(prefix.join("include"))
        .arg("-o")
        .arg(&fixed);
    command.arg(prefix.join("lib/libpackhouse.a"));
    assert_success(&run(
        command.args("-lgcc_s -lutil -lrt -lpthread -lm -ldl -lc".split(' '))
    ));
    assert!(assert_success(&dot(&fixed, &world, 5, None)).contains("equal"));
}

#[test]
fn the_example_builds_through_pkg_config() {
    if Command::new("pkg-config")
        .arg("--version")
        .output()
        .is_err()
    {
        println!("SKIP: no pkg-config here");
        return;
    }
    let world = World::new();
    let prefix = installed(&world);
    let asked = |words: &[&str]| {
        let mut command = Command::new("pkg-config");
        command.args(words).arg("packhouse");
        command.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
        assert_success(&run(&mut command)).trim().to_owned()
    };
    assert_eq!(asked(&["--modversion"]), "0.1.0");
    let flags = asked(&["--cflags", "--libs"]);
    let target = world.path("dot-found");
    let mut command = compiler(&extra_flags());
    command
        .arg(example())
        .arg("-o")
        .arg(&target)
        .args(flags.split_whitespace())
        .arg("-lm");
    assert_success(&run(&mut command));
    assert!(assert_success(&dot(&target, &world, 9, None)).contains("equal"));
    assert!(asked(&["--static", "--libs"]).contains("-lgcc_s"));
}

/// CMake as installed, or as the engine's own build brought it.
fn cmake() -> Option<PathBuf> {
    let engines = std::env::var_os("PACKHOUSE_ENGINES")
        .map_or_else(|| repository().join("target/engines"), PathBuf::from);
    let places = ["cmake".into(), engines.join("venv/bin/cmake")];
    places.into_iter().find(|place| {
        let output = Command::new(place).arg("--version").output();
        output.is_ok_and(|output| output.status.success())
    })
}

#[test]
fn the_example_builds_through_cmake_shared_and_static() {
    let Some(cmake) = cmake() else {
        println!("SKIP: no cmake here");
        return;
    };
    let has = |tool: &str| Command::new(tool).arg("--version").output().is_ok();
    if !has("make") {
        println!("SKIP: no make here");
        return;
    }
    let world = World::new();
    let prefix = installed(&world);
    let project = world.path("project");
    std::fs::create_dir(&project).expect("because the folder is ours");
    let lists = format!(
        "cmake_minimum_required(VERSION 3.16)\nproject(dot C)\n\
         find_package(Packhouse 0.1 CONFIG REQUIRED)\n\
         add_executable(shared {example})\n\
         target_link_libraries(shared PRIVATE Packhouse::packhouse m)\n\
         add_executable(fixed {example})\n\
         target_link_libraries(fixed PRIVATE Packhouse::packhouse_static m)\n",
        example = example().display()
    );
    std::fs::write(project.join("CMakeLists.txt"), lists).expect("because it is ours");
    let mut command = Command::new(&cmake);
    command
        .arg("-S")
        .arg(&project)
        .arg("-B")
        .arg(project.join("build"));
    command.arg(format!("-DCMAKE_PREFIX_PATH={}", prefix.display()));
    command.arg(format!("-DCMAKE_C_FLAGS={}", extra_flags()));
    assert_success(&run(&mut command));
    let targets: &[&str] = if is_instrumented() {
        &["shared"]
    } else {
        &["shared", "fixed"]
    };
    for target in targets {
        let mut command = Command::new(&cmake);
        command
            .arg("--build")
            .arg(project.join("build"))
            .args(["--target", target]);
        assert_success(&run(&mut command));
        let built = project.join("build").join(target);
        assert!(assert_success(&dot(&built, &world, 30, None)).contains("equal"));
    }
    // Another minor version is another interface.
    let lists = "cmake_minimum_required(VERSION 3.16)\nproject(x C)\n\
                 find_package(Packhouse 0.2 CONFIG REQUIRED)\n";
    std::fs::write(project.join("CMakeLists.txt"), lists).expect("because it is ours");
    let mut command = Command::new(&cmake);
    command
        .arg("-S")
        .arg(&project)
        .arg("-B")
        .arg(project.join("other"));
    command.arg(format!("-DCMAKE_PREFIX_PATH={}", prefix.display()));
    let output = run(&mut command);
    assert!(!output.status.success());
    assert!(
        text(&output.stderr).contains("version: 0.1.0"),
        "{}",
        text(&output.stderr)
    );
}
