//! What a test does to the disk as somebody else: not counted, durable at once, never refused.

use crate::handles::SimFs;
use crate::machine::{Content, DirContent, FileContent, Machine, ROOT_INODE};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

impl SimFs {
    /// Makes a folder and sets owner and mode, also of one that is there.
    pub fn make_dirs(&self, path: impl AsRef<Path>, uid: u32, mode: u32) {
        let path = path.as_ref();
        let now_ns = self.shared.now_ns();
        let (parent, name) = self.parent(path);
        let mut machine = self.machine();
        let inode = match machine.look_up(parent, &name) {
            Ok(inode) => inode,
            Err(_) => {
                let content = Content::Dir(DirContent::default());
                let inode = machine.add_node(mode, uid, now_ns, content);
                put(&mut machine, parent, &name, Some(inode));
                inode
            }
        };
        let node = machine.node_mut(inode).expect("because it was found");
        node.mode = mode;
        node.uid = uid;
    }

    /// Reads a file.
    pub fn read(&self, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        let inode = self.find(path.as_ref())?;
        let machine = self.machine();
        machine.file(inode).ok().map(|file| file.live.clone())
    }

    /// Edits a file's content in place and restores its mtime; ctime tells.
    pub fn edit(&self, path: impl AsRef<Path>, edit: impl FnOnce(&mut Vec<u8>)) {
        self.rot(&path, edit);
        self.touch(&path);
    }

    /// Changes a file's content as a failing disk does: no time changes.
    pub fn rot(&self, path: impl AsRef<Path>, edit: impl FnOnce(&mut Vec<u8>)) {
        let inode = self.must_find(path.as_ref());
        let mut machine = self.machine();
        let file = machine.file_mut(inode).expect("because it is a file");
        edit(&mut file.live);
        file.durable = file.live.clone();
        file.pending.clear();
    }

    /// Lets another process open a file for writing, or end.
    pub fn set_writer(&self, path: impl AsRef<Path>, has_writer: bool) {
        let inode = self.must_find(path.as_ref());
        let mut machine = self.machine();
        match has_writer {
            true => machine.written.insert(inode),
            false => machine.written.remove(&inode),
        };
    }

    /// Puts a new file of this user in a name's place.
    pub fn replace(&self, path: impl AsRef<Path>, bytes: &[u8], mode: u32) {
        let now_ns = self.shared.now_ns();
        let (parent, name) = self.parent(path.as_ref());
        let mut machine = self.machine();
        let content = Content::File(FileContent {
            live: bytes.to_vec(),
            durable: bytes.to_vec(),
            pending: Vec::new(),
        });
        let uid = machine.uid;
        let inode = machine.add_node(mode, uid, now_ns, content);
        put(&mut machine, parent, &name, Some(inode));
    }

    /// Puts a symlink in a name's place.
    pub fn symlink(&self, path: impl AsRef<Path>, target: impl Into<PathBuf>, uid: u32) {
        let now_ns = self.shared.now_ns();
        let (parent, name) = self.parent(path.as_ref());
        let mut machine = self.machine();
        let inode = machine.add_node(0o777, uid, now_ns, Content::Link(target.into()));
        put(&mut machine, parent, &name, Some(inode));
    }

    /// Gives a file a second name.
    pub fn hard_link(&self, path: impl AsRef<Path>, other: impl AsRef<Path>) {
        let inode = self.must_find(path.as_ref());
        let now_ns = self.shared.now_ns();
        let (parent, name) = self.parent(other.as_ref());
        let mut machine = self.machine();
        put(&mut machine, parent, &name, Some(inode));
        machine.touch(inode, now_ns);
    }

    /// Swaps two names.
    pub fn swap(&self, one: impl AsRef<Path>, other: impl AsRef<Path>) {
        let now_ns = self.shared.now_ns();
        let inodes = (self.must_find(one.as_ref()), self.must_find(other.as_ref()));
        let (one, other) = (self.parent(one.as_ref()), self.parent(other.as_ref()));
        let mut machine = self.machine();
        put(&mut machine, one.0, &one.1, Some(inodes.1));
        put(&mut machine, other.0, &other.1, Some(inodes.0));
        machine.touch(inodes.0, now_ns);
        machine.touch(inodes.1, now_ns);
    }

    /// Removes a name.
    pub fn remove(&self, path: impl AsRef<Path>) {
        let (parent, name) = self.parent(path.as_ref());
        put(&mut self.machine(), parent, &name, None);
    }

    /// Sets the owner of a file or folder.
    pub fn set_owner(&self, path: impl AsRef<Path>, uid: u32) {
        let inode = self.must_find(path.as_ref());
        self.machine()
            .node_mut(inode)
            .expect("because it was found")
            .uid = uid;
        self.touch(path);
    }

    /// Sets the group of a file or folder; until then it is the owner's private group.
    pub fn set_group(&self, path: impl AsRef<Path>, gid: u32) {
        let inode = self.must_find(path.as_ref());
        self.machine()
            .node_mut(inode)
            .expect("because it was found")
            .gid = Some(gid);
        self.touch(path);
    }

    /// Sets the mode of a file or folder.
    pub fn set_mode(&self, path: impl AsRef<Path>, mode: u32) {
        let inode = self.must_find(path.as_ref());
        self.machine()
            .node_mut(inode)
            .expect("because it was found")
            .mode = mode;
        self.touch(path);
    }

    /// Lists all files below a folder, sorted.
    pub fn files(&self, path: impl AsRef<Path>) -> Vec<PathBuf> {
        let mut files = Vec::new();
        let mut todo: Vec<(PathBuf, u64)> = self
            .find(path.as_ref())
            .map(|inode| (path.as_ref().to_owned(), inode))
            .into_iter()
            .collect();
        let machine = self.machine();
        while let Some((path, inode)) = todo.pop() {
            match machine.dir(inode) {
                Ok(dir) => todo.extend(
                    dir.live
                        .iter()
                        .map(|(name, inode)| (path.join(name), *inode)),
                ),
                Err(_) => files.push(path),
            }
        }
        files.sort();
        files
    }

    fn touch(&self, path: impl AsRef<Path>) {
        let inode = self.must_find(path.as_ref());
        let now_ns = self.shared.now_ns();
        self.machine().touch(inode, now_ns);
    }

    fn find(&self, path: &Path) -> Option<u64> {
        let machine = self.machine();
        let names = path.components().skip(1);
        let mut inode = ROOT_INODE;
        for name in names {
            inode = machine.look_up(inode, name.as_os_str()).ok()?;
        }
        Some(inode)
    }

    fn must_find(&self, path: &Path) -> u64 {
        self.find(path)
            .unwrap_or_else(|| panic!("test names {}, which is not there", path.display()))
    }

    fn parent(&self, path: &Path) -> (u64, OsString) {
        let parent = path.parent().expect("because a test names no root");
        let name = path.file_name().expect("because a test names no root");
        (self.must_find(parent), name.to_owned())
    }
}

/// Sets an entry at once and durably.
fn put(machine: &mut Machine, dir: u64, name: &OsStr, inode: Option<u64>) {
    let node = machine.node_mut(dir).expect("because the caller found it");
    let Content::Dir(content) = &mut node.content else {
        panic!("because the caller found a folder");
    };
    for entries in [&mut content.live, &mut content.durable] {
        match inode {
            Some(inode) => entries.insert(name.to_owned(), inode),
            None => entries.remove(name),
        };
    }
}
