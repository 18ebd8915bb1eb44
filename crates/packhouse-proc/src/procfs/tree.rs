//! A tree of process files in a folder of its own, for tests: what no test can make real.
//!
//! The forms are those of proc(5), written out from a running Linux 6.18. Integration tests include
//! this file by path.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// A tree with a boot id, a pid namespace, and this process as pid 1000.
pub(crate) struct Tree {
    folder: tempfile::TempDir,
}

/// A process to be written; each part has a plain value.
pub(crate) struct Fake {
    pub(crate) pid: u32,
    pub(crate) start_ticks: u64,
    pub(crate) name: Vec<u8>,
    pub(crate) state: char,
    pub(crate) threads: u32,
    pub(crate) flags: u32,
    pub(crate) parent: u32,
    pub(crate) session: i32,
    pub(crate) uid: u32,
    pub(crate) cores: &'static str,
    pub(crate) command: Vec<u8>,
    pub(crate) environment: Vec<u8>,
    pub(crate) cgroup: &'static str,
    pub(crate) maps: String,
    /// Link targets by descriptor.
    pub(crate) files: Vec<(u32, String)>,
    /// Texts of fdinfo by descriptor.
    pub(crate) fdinfo: Vec<(u32, String)>,
    /// Its pids, from our namespace down, where it is in a container.
    pub(crate) pids_below: &'static str,
    /// Base name of its program, which is made in the tree's `bin` folder.
    pub(crate) program: Option<&'static str>,
}

pub(crate) const BOOT: &str = "11111111-2222-3333-4444-555555555555";
pub(crate) const PID_NAMESPACE: u64 = 4_026_531_836;
/// The process that looks.
pub(crate) const OBSERVER_PID: u32 = 1000;

impl Tree {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("because a folder can be made");
        let tree = Self { folder };
        tree.write("sys/kernel/random/boot_id", format!("{BOOT}\n"));
        tree.write("uptime", "123.45 200.00\n");
        tree.write("net/tcp", TCP_HEADER);
        tree.write("net/tcp6", TCP6_HEADER);
        let observer = Fake::new(OBSERVER_PID, 500);
        tree.put(&observer);
        fs::create_dir(tree.root().join(format!("{OBSERVER_PID}/ns"))).expect("because it is new");
        tree.link(
            &format!("{OBSERVER_PID}/ns/pid"),
            &format!("pid:[{PID_NAMESPACE}]"),
        );
        tree.link("self", &OBSERVER_PID.to_string());
        tree
    }

    pub(crate) fn root(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a file of the tree, and the folders above it.
    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.root().join(name);
        let parent = path.parent().expect("because it is below the root");
        fs::create_dir_all(parent).expect("because the tree is ours");
        fs::write(&path, text).expect("because the tree is ours");
        path
    }

    /// Writes a process, in place of what had its pid.
    pub(crate) fn put(&self, fake: &Fake) {
        self.end(fake.pid);
        let at = |name: &str| format!("{}/{name}", fake.pid);
        self.write(&at("stat"), fake.stat());
        self.write(&at("status"), fake.status());
        self.write(&at("cmdline"), &fake.command);
        self.write(&at("environ"), &fake.environment);
        self.write(&at("cgroup"), fake.cgroup);
        self.write(&at("maps"), &fake.maps);
        fs::create_dir(self.root().join(at("fd"))).expect("because it is new");
        for (fd, target) in &fake.files {
            self.link(&at(&format!("fd/{fd}")), target);
        }
        for (fd, text) in &fake.fdinfo {
            self.write(&at(&format!("fdinfo/{fd}")), text);
        }
        if let Some(program) = fake.program {
            let path = self.write(&format!("bin/{program}"), "program");
            self.link(&at("exe"), &path.to_string_lossy());
        }
    }

    /// Removes a process.
    pub(crate) fn end(&self, pid: u32) {
        // Absent is what is wanted.
        let _ = fs::remove_dir_all(self.root().join(pid.to_string()));
    }

    fn link(&self, name: &str, target: &str) {
        symlink(target, self.root().join(name)).expect("because the tree is ours");
    }
}

impl Fake {
    /// A plain process of user 1000, in a session of its own, with a program.
    pub(crate) fn new(pid: u32, start_ticks: u64) -> Self {
        Self {
            pid,
            start_ticks,
            name: b"server".to_vec(),
            state: 'S',
            threads: 1,
            flags: 0,
            parent: 1,
            session: i32::try_from(pid).expect("because pids are small"),
            uid: 1000,
            cores: "0-1",
            command: b"server\0".to_vec(),
            environment: b"PATH=/bin\0".to_vec(),
            cgroup: "0::/user.slice\n",
            maps: "00400000-00401000 r-xp 00000000 fd:01 77 /bin/server\n".into(),
            files: Vec::new(),
            fdinfo: Vec::new(),
            pids_below: "",
            program: Some("server"),
        }
    }

    fn stat(&self) -> Vec<u8> {
        let mut line = format!("{} (", self.pid).into_bytes();
        line.extend_from_slice(&self.name);
        // Where the words and the environment lie is zero in the middle of an exec.
        let words = if self.command.is_empty() { 0 } else { 140_728 };
        let end = words + self.environment.len();
        let rest = format!(
            ") {} {} {} {} 0 -1 {} 100 0 0 0 1 2 0 0 20 0 {} 0 {} 10000 200 18446744073709551615 \
             1 1 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0 0 0 0 {words} {words} {words} {end} 0\n",
            self.state,
            self.parent,
            self.session,
            self.session,
            self.flags,
            self.threads,
            self.start_ticks,
        );
        line.extend_from_slice(rest.as_bytes());
        line
    }

    fn status(&self) -> String {
        let mut text = String::new();
        let (uid, pid, cores, below) = (self.uid, self.pid, self.cores, self.pids_below);
        writeln!(
            text,
            "Name:\tserver\nState:\t{} (x)\nTgid:\t{pid}",
            self.state
        )
        .and_then(|()| writeln!(text, "Uid:\t{uid}\t{uid}\t{uid}\t{uid}"))
        .and_then(|()| writeln!(text, "NSpid:\t{pid}\t{below}"))
        .and_then(|()| writeln!(text, "RssAnon:\t     100 kB\nVmSwap:\t       4 kB"))
        .and_then(|()| writeln!(text, "Cpus_allowed_list:\t{cores}"))
        .expect("because a text takes what is written");
        text
    }
}

const TCP_HEADER: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when \
    retrnsmt   uid  timeout inode\n";
const TCP6_HEADER: &str = "  sl  local_address                         remote_address          \
    st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";
