//! A build of little programs, a recorded host, and a private state folder.

use packhouse_build::fingerprint::{
    self, Difference, Fingerprint, FingerprintError, Request, World,
};
use packhouse_proc::devices::{Question, RawReport, Roots, ToolAnswer, Tools};
use packhouse_sys::clock::{Clock, RealClock};
use packhouse_sys::fs::Fs;
use packhouse_sys::real::RealFs;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

/// A host that was recorded, and a folder to build in.
pub(crate) struct Bench {
    folder: tempfile::TempDir,
    fs: Arc<dyn Fs>,
    clock: Arc<dyn Clock>,
    /// What NVML says.
    pub(crate) nvml: String,
    /// Libraries to be identified with the build.
    pub(crate) with: Vec<PathBuf>,
    /// The environment of the build's programs.
    pub(crate) environment: Vec<(OsString, OsString)>,
    /// The user's own environment.
    pub(crate) own: Vec<(OsString, OsString)>,
    /// The source, where it is given.
    pub(crate) source: Option<PathBuf>,
}

/// NVML as it answered on an H200.
pub(crate) const IDLE: &str =
    include_str!("../../../packhouse-proc/tests/data/h200/nvml-idle.json");
/// The same card while programs use it.
pub(crate) const HELD: &str =
    include_str!("../../../packhouse-proc/tests/data/h200/nvml-held.json");
const TREE: &str = include_str!("../../../packhouse-proc/tests/data/h200/tree.txt");

struct Recorded<'a>(&'a str);

impl Tools for Recorded<'_> {
    fn ask(&self, question: &Question) -> ToolAnswer {
        match question {
            Question::Nvml => ToolAnswer::Said(RawReport {
                source: question.source(),
                version: None,
                text: self.0.to_owned(),
                observer: None,
            }),
            Question::NvidiaSmi
            | Question::XpuSmiCards
            | Question::XpuSmiCard { .. }
            | Question::XpuSmiCounters { .. }
            | Question::XpuSmiProcesses => ToolAnswer::Absent,
        }
    }
}

impl Bench {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("because tests have a temporary folder");
        let own = std::env::var_os("PATH").expect("because tests have a PATH");
        let home = folder.path().join("home");
        let bench = Self {
            folder,
            fs: Arc::new(RealFs),
            clock: Arc::new(RealClock),
            nvml: IDLE.to_owned(),
            with: Vec::new(),
            environment: Vec::new(),
            own: vec![("PATH".into(), own), ("HOME".into(), home.into())],
            source: None,
        };
        fs::create_dir_all(bench.path("home")).unwrap();
        bench.host();
        bench
    }

    /// Writes the recorded host's `/proc` and `/sys`.
    fn host(&self) {
        let mut open: Option<PathBuf> = None;
        for line in TREE.lines() {
            if let Some(name) = line.strip_prefix("== ") {
                self.write(&format!("host/{name}"), "");
                open = Some(self.path(&format!("host/{name}")));
            } else if let Some(link) = line.strip_prefix("-> ") {
                let (name, target) = link.split_once(' ').expect("because a link has a target");
                let path = self.path(&format!("host/{name}"));
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                symlink(target, path).unwrap();
            } else if let Some(path) = &open {
                let text = fs::read_to_string(path).unwrap();
                fs::write(path, format!("{text}{line}\n")).unwrap();
            }
        }
        let cpu = "processor: 0\nmodel name : A CPU\nmicrocode : 0x2b\nflags : sse avx2\n";
        self.write("host/proc/cpuinfo", &format!("{cpu}\n{cpu}"));
        self.write("host/proc/sys/kernel/osrelease", "6.18.1\n");
        self.write("host/proc/sys/kernel/version", "#1 SMP\n");
        self.write("host/sys/module/nvidia/version", "580.159.04\n");
        self.write("host/sys/class/dmi/id/bios_version", "1.2.3\n");
    }

    /// A path inside.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file, and makes its folders.
    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Compiles one line of C.
    pub(crate) fn cc(&self, target: &str, line: &str, arguments: &[&str]) {
        let target = self.path(target);
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        let source = self.path("line.c");
        fs::write(&source, line).unwrap();
        // A compiler writes over a file in place, and a process may have it mapped.
        let _ = fs::remove_file(&target);
        let done = Command::new("cc")
            .arg("-o")
            .args([&target, &source])
            .args(arguments)
            .current_dir(self.folder.path())
            .status()
            .expect("because a C compiler is among the basics");
        assert!(done.success(), "cc {}", target.display());
    }

    /// A program that is linked with `liba.so` and may load `libplug.so`.
    pub(crate) fn build(&self, folder: &str) {
        self.library(folder, "liba.so", 1);
        self.library(folder, "libplug.so", 2);
        let line = "int f(void); int main(void) { return f(); }";
        let own = format!("-L{folder}/bin");
        let arguments = [own.as_str(), "-l:liba.so", "-Wl,-rpath,$ORIGIN"];
        self.cc(&format!("{folder}/bin/prog"), line, &arguments);
    }

    /// A library whose one function returns this.
    pub(crate) fn library(&self, folder: &str, name: &str, value: u32) {
        let line = format!("int f(void) {{ return {value}; }}");
        let soname = format!("-Wl,-soname,{name}");
        let arguments = ["-shared", "-fPIC", soname.as_str()];
        self.cc(&format!("{folder}/bin/{name}"), &line, &arguments);
    }

    /// Git in a folder, without the user's own settings.
    pub(crate) fn git(&self, folder: &str, words: &[&str]) -> String {
        fs::create_dir_all(self.path(folder)).unwrap();
        let output = Command::new("git")
            .args([
                "-c",
                "user.name=a",
                "-c",
                "user.email=a@b",
                "-c",
                "commit.gpgsign=false",
            ])
            .args([
                "-c",
                "protocol.file.allow=always",
                "-c",
                "init.defaultBranch=main",
            ])
            .args(words)
            .current_dir(self.path(folder))
            .env("HOME", self.path("home"))
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .stdin(Stdio::null())
            .output()
            .expect("because git is among the basics");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "git {words:?}: {said}");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Identifies a build.
    pub(crate) fn look(&self, build: &str) -> Result<Fingerprint, FingerprintError> {
        self.look_with(build, Some(&self.path("state")))
    }

    /// Identifies a build, with this folder of private state.
    pub(crate) fn look_with(
        &self,
        build: &str,
        state: Option<&Path>,
    ) -> Result<Fingerprint, FingerprintError> {
        let build = self.path(build);
        let request = Request {
            build: &build,
            source: self.source.as_deref(),
            with: &self.with,
            environment: &self.environment,
        };
        let roots = Roots {
            proc: self.path("host/proc"),
            sys: self.path("host/sys"),
            dev: self.path("host/dev"),
        };
        let world = World {
            fs: &self.fs,
            clock: &self.clock,
            state,
            tools: &Recorded(&self.nvml),
            roots: &roots,
            own: &self.own,
        };
        fingerprint::fingerprint(&request, &world)
    }

    /// Identifies a build that can be.
    pub(crate) fn of(&self, build: &str) -> Fingerprint {
        self.look(build).expect("because it can be identified")
    }
}

/// The facts in which two builds differ, as texts, the host's loader as `LOADER`. Their digests
/// differ exactly where any does.
pub(crate) fn facts(one: &Fingerprint, other: &Fingerprint) -> Vec<String> {
    let differences = fingerprint::explain(one, other);
    assert_eq!(differences.is_empty(), one.digest() == other.digest());
    let text = |difference: &Difference| {
        let loaders = ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"];
        let text = difference.fact.join(" ");
        loaders
            .iter()
            .fold(text, |text, loader| text.replace(loader, "LOADER"))
    };
    differences.iter().map(text).collect()
}
