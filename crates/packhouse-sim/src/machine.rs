//! The machine: inodes with what is live and what is durable, faults, and what a crash makes of it.

use crate::random::Random;
use packhouse_sys::fs::{FsErrorKind, LockKind};
use packhouse_sys::stat::{FileKind, FsKind};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

/// What happens at the k-th counted operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The process stops before operation `at` (the first is 0).
    Stop {
        /// Which operation.
        at: u64,
    },
    /// Operation `at` fails once.
    Error {
        /// Which operation.
        at: u64,
        /// With which errno.
        kind: FsErrorKind,
    },
    /// From operation `at` on, whatever needs space fails with ENOSPC.
    Full {
        /// Which operation.
        at: u64,
    },
    /// Operation `at`, where it is a write, says that it worked and leaves one bit wrong.
    Flip {
        /// Which operation.
        at: u64,
    },
}

/// What a crash does with pending writes and entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// Nothing pending survives.
    Lost,
    /// Entries survive; writes up to a random one, torn.
    Torn,
    /// Each survives or not by itself.
    Reordered,
    /// Content survives, pending entries don't.
    LostEntries,
    /// Everything survives.
    Kept,
}

/// A sync that lies, so that a test can prove that it would notice a missing one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skip {
    /// Syncs of files do nothing.
    FileSync,
    /// Syncs of folders do nothing.
    DirSync,
}

/// What an operation needs, for the faults that tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    Space,
    Nothing,
}

#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub(crate) nodes: BTreeMap<u64, Node>,
    pub(crate) next_inode: u64,
    pub(crate) random: Random,
    pub(crate) operation_count: u64,
    pub(crate) fault: Option<Fault>,
    pub(crate) skip: Option<Skip>,
    pub(crate) stopped: bool,
    pub(crate) read_only: bool,
    pub(crate) unnamed_files: bool,
    pub(crate) rename_without_replace: bool,
    pub(crate) uid: u32,
    /// Files that another process can write to.
    pub(crate) written: BTreeSet<u64>,
    pub(crate) kind: FsKind,
    pub(crate) device: u64,
    pub(crate) total_bytes: u64,
    pub(crate) locks: Vec<Lock>,
    pub(crate) next_handle: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    /// `None`: the owner's private group, of the owner's number.
    pub(crate) gid: Option<u32>,
    pub(crate) generation: u32,
    pub(crate) mtime_ns: i64,
    pub(crate) ctime_ns: i64,
    pub(crate) content: Content,
}

#[derive(Clone, Debug)]
pub(crate) enum Content {
    File(FileContent),
    Dir(DirContent),
    Link(PathBuf),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct FileContent {
    pub(crate) live: Vec<u8>,
    pub(crate) durable: Vec<u8>,
    pub(crate) pending: Vec<FileChange>,
}

#[derive(Clone, Debug)]
pub(crate) enum FileChange {
    Write { offset: usize, bytes: Vec<u8> },
    SetLength(usize),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct DirContent {
    pub(crate) live: Entries,
    pub(crate) durable: Entries,
    pub(crate) pending: Vec<DirChange>,
}

pub(crate) type Entries = BTreeMap<OsString, u64>;

/// Entries that change together.
pub(crate) type DirChange = Vec<(OsString, Option<u64>)>;

#[derive(Clone, Debug)]
pub(crate) struct Lock {
    pub(crate) inode: u64,
    pub(crate) handle: u64,
    pub(crate) kind: LockKind,
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

pub(crate) const ROOT_INODE: u64 = 1;

impl Machine {
    pub(crate) fn new(seed: u64) -> Self {
        let mut machine = Self {
            nodes: BTreeMap::new(),
            next_inode: ROOT_INODE,
            random: Random::new(seed),
            operation_count: 0,
            fault: None,
            skip: None,
            stopped: false,
            read_only: false,
            unnamed_files: true,
            rename_without_replace: true,
            uid: 1000,
            written: BTreeSet::new(),
            kind: FsKind::Ext,
            device: 0x800,
            total_bytes: 1 << 40,
            locks: Vec::new(),
            next_handle: 0,
        };
        machine.add_node(0o755, 0, 0, Content::Dir(DirContent::default()));
        machine
    }

    pub(crate) fn add_node(&mut self, mode: u32, uid: u32, now_ns: i64, content: Content) -> u64 {
        let inode = self.next_inode;
        self.next_inode += 1;
        let node = Node {
            mode,
            uid,
            gid: None,
            generation: u32::try_from(self.random.next() >> 32).unwrap_or(0),
            mtime_ns: now_ns,
            ctime_ns: now_ns,
            content,
        };
        self.nodes.insert(inode, node);
        inode
    }

    /// Counts an operation and applies the fault that is due.
    pub(crate) fn count(&mut self, need: Need) -> Result<(), FsErrorKind> {
        self.alive()?;
        let now = self.operation_count;
        self.operation_count += 1;
        match self.fault {
            Some(Fault::Stop { at }) if at == now => {
                self.stopped = true;
                return Err(FsErrorKind::Stopped);
            }
            Some(Fault::Error { at, kind }) if at == now => return Err(kind),
            Some(Fault::Full { at }) if at <= now && need == Need::Space => {
                return Err(FsErrorKind::NoSpace);
            }
            Some(
                Fault::Stop { .. } | Fault::Error { .. } | Fault::Full { .. } | Fault::Flip { .. },
            )
            | None => {}
        }
        if self.read_only {
            return Err(FsErrorKind::ReadOnly);
        }
        Ok(())
    }

    /// Whether the operation that was counted last leaves a wrong bit.
    pub(crate) fn flips(&self) -> bool {
        matches!(self.fault, Some(Fault::Flip { at }) if at + 1 == self.operation_count)
    }

    /// Counts a sync, which a read-only file system allows.
    pub(crate) fn count_sync(&mut self) -> Result<(), FsErrorKind> {
        match self.count(Need::Nothing) {
            Err(FsErrorKind::ReadOnly) if self.read_only => Ok(()),
            other => other,
        }
    }

    pub(crate) fn alive(&self) -> Result<(), FsErrorKind> {
        if self.stopped {
            return Err(FsErrorKind::Stopped);
        }
        Ok(())
    }

    pub(crate) fn node(&self, inode: u64) -> Result<&Node, FsErrorKind> {
        self.nodes.get(&inode).ok_or(FsErrorKind::NotFound)
    }

    pub(crate) fn node_mut(&mut self, inode: u64) -> Result<&mut Node, FsErrorKind> {
        self.nodes.get_mut(&inode).ok_or(FsErrorKind::NotFound)
    }

    pub(crate) fn dir(&self, inode: u64) -> Result<&DirContent, FsErrorKind> {
        match &self.node(inode)?.content {
            Content::Dir(dir) => Ok(dir),
            Content::File(_) | Content::Link(_) => Err(FsErrorKind::NotDirectory),
        }
    }

    pub(crate) fn file(&self, inode: u64) -> Result<&FileContent, FsErrorKind> {
        match &self.node(inode)?.content {
            Content::File(file) => Ok(file),
            Content::Dir(_) => Err(FsErrorKind::IsDirectory),
            Content::Link(_) => Err(FsErrorKind::Symlink),
        }
    }

    pub(crate) fn file_mut(&mut self, inode: u64) -> Result<&mut FileContent, FsErrorKind> {
        match &mut self.node_mut(inode)?.content {
            Content::File(file) => Ok(file),
            Content::Dir(_) => Err(FsErrorKind::IsDirectory),
            Content::Link(_) => Err(FsErrorKind::Symlink),
        }
    }

    pub(crate) fn look_up(&self, dir: u64, name: &OsStr) -> Result<u64, FsErrorKind> {
        self.dir(dir)?
            .live
            .get(name)
            .copied()
            .ok_or(FsErrorKind::NotFound)
    }

    /// The folder that has a folder; that of `/` is `/`.
    pub(crate) fn parent_of(&self, inode: u64) -> u64 {
        let has = |node: &Node| match &node.content {
            Content::Dir(dir) => dir.live.values().any(|entry| *entry == inode),
            Content::File(_) | Content::Link(_) => false,
        };
        let parent = self.nodes.iter().find(|(_, node)| has(node));
        parent.map_or(ROOT_INODE, |(parent, _)| *parent)
    }

    /// Changes entries of a folder that will become durable with its next sync.
    pub(crate) fn change_dir(
        &mut self,
        dir: u64,
        change: DirChange,
        now_ns: i64,
    ) -> Result<(), FsErrorKind> {
        let node = self.node_mut(dir)?;
        node.mtime_ns = now_ns;
        node.ctime_ns = now_ns;
        let Content::Dir(content) = &mut node.content else {
            return Err(FsErrorKind::NotDirectory);
        };
        apply_dir(&mut content.live, &change);
        content.pending.push(change);
        Ok(())
    }

    /// Says whether a folder is another one or lies below it.
    pub(crate) fn is_within(&self, dir: u64, other: u64) -> bool {
        let mut todo = vec![other];
        while let Some(inode) = todo.pop() {
            if inode == dir {
                return true;
            }
            if let Ok(content) = self.dir(inode) {
                todo.extend(content.live.values());
            }
        }
        false
    }

    /// Refuses a rename of one kind over another, and over a folder that is not empty.
    pub(crate) fn may_replace(&self, inode: u64, taken: u64) -> Result<(), FsErrorKind> {
        let is_dir = self.dir(inode).is_ok();
        match self.dir(taken) {
            Ok(_) if !is_dir => Err(FsErrorKind::IsDirectory),
            Ok(content) if !content.live.is_empty() => Err(FsErrorKind::NotEmpty),
            Err(_) if is_dir => Err(FsErrorKind::NotDirectory),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    pub(crate) fn touch(&mut self, inode: u64, now_ns: i64) {
        if let Some(node) = self.nodes.get_mut(&inode) {
            node.ctime_ns = now_ns;
        }
    }

    pub(crate) fn link_count(&self, inode: u64) -> u64 {
        let links = self.nodes.values().map(|node| match &node.content {
            Content::Dir(dir) => dir.live.values().filter(|entry| **entry == inode).count(),
            Content::File(_) | Content::Link(_) => 0,
        });
        links.sum::<usize>() as u64
    }

    pub(crate) fn used_bytes(&self) -> u64 {
        let lengths = self.nodes.values().map(|node| match &node.content {
            Content::File(file) => file.live.len() as u64,
            Content::Dir(_) | Content::Link(_) => 0,
        });
        lengths.sum()
    }

    /// What the machine finds on its disk when it starts again.
    pub(crate) fn crashed(&self, crash: Crash, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut after = self.clone();
        after.stopped = false;
        after.fault = None;
        after.skip = None;
        after.operation_count = 0;
        after.locks.clear();
        for node in after.nodes.values_mut() {
            match &mut node.content {
                Content::File(file) => file.crash(crash, &mut random),
                Content::Dir(dir) => dir.crash(crash, &mut random),
                Content::Link(_) => {}
            }
        }
        after.drop_unreachable();
        after.random = Random::new(random.next());
        after
    }

    fn drop_unreachable(&mut self) {
        let mut reached = BTreeMap::new();
        let mut todo = vec![ROOT_INODE];
        while let Some(inode) = todo.pop() {
            if reached.insert(inode, ()).is_some() {
                continue;
            }
            if let Ok(dir) = self.dir(inode) {
                todo.extend(dir.live.values());
            }
        }
        self.nodes.retain(|inode, _| reached.contains_key(inode));
    }
}

impl Node {
    pub(crate) fn kind(&self) -> FileKind {
        match &self.content {
            Content::File(_) => FileKind::Regular,
            Content::Dir(_) => FileKind::Directory,
            Content::Link(_) => FileKind::Symlink,
        }
    }
}

impl FileContent {
    pub(crate) fn change(&mut self, change: FileChange) {
        apply_file(&mut self.live, &change);
        self.pending.push(change);
    }

    pub(crate) fn sync(&mut self) {
        // Not a copy of what is live: what a failed sync lost stays lost.
        for change in self.pending.drain(..) {
            apply_file(&mut self.durable, &change);
        }
    }

    fn crash(&mut self, crash: Crash, random: &mut Random) {
        let mut content = std::mem::take(&mut self.durable);
        let pending = std::mem::take(&mut self.pending);
        match crash {
            Crash::Lost => {}
            Crash::LostEntries | Crash::Kept => {
                pending
                    .iter()
                    .for_each(|change| apply_file(&mut content, change));
            }
            Crash::Torn => {
                let whole = random.below(pending.len());
                pending
                    .iter()
                    .take(whole)
                    .for_each(|change| apply_file(&mut content, change));
                if let Some(FileChange::Write { offset, bytes }) = pending.get(whole) {
                    let kept = random.below(bytes.len());
                    let torn = FileChange::Write {
                        offset: *offset,
                        bytes: bytes[..kept].to_vec(),
                    };
                    apply_file(&mut content, &torn);
                }
            }
            Crash::Reordered => {
                let mut kept: Vec<_> = pending.iter().filter(|_| random.coin()).collect();
                while !kept.is_empty() {
                    let change = kept.swap_remove(random.below(kept.len()));
                    apply_file(&mut content, change);
                }
            }
        }
        self.live = content.clone();
        self.durable = content;
    }
}

impl DirContent {
    pub(crate) fn sync(&mut self) {
        for change in self.pending.drain(..) {
            apply_dir(&mut self.durable, &change);
        }
    }

    fn crash(&mut self, crash: Crash, random: &mut Random) {
        let mut entries = std::mem::take(&mut self.durable);
        for change in std::mem::take(&mut self.pending) {
            let kept = match crash {
                Crash::Lost | Crash::LostEntries => false,
                Crash::Torn | Crash::Kept => true,
                Crash::Reordered => random.coin(),
            };
            if kept {
                apply_dir(&mut entries, &change);
            }
        }
        self.live = entries.clone();
        self.durable = entries;
    }
}

fn apply_file(content: &mut Vec<u8>, change: &FileChange) {
    match change {
        FileChange::Write { offset, bytes } => {
            let end = offset + bytes.len();
            if content.len() < end {
                content.resize(end, 0);
            }
            content[*offset..end].copy_from_slice(bytes);
        }
        FileChange::SetLength(length) => content.resize(*length, 0),
    }
}

fn apply_dir(entries: &mut Entries, change: &DirChange) {
    for (name, inode) in change {
        match inode {
            Some(inode) => entries.insert(name.clone(), *inode),
            None => entries.remove(name),
        };
    }
}
