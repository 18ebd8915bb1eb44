//! Which files frozen ones were when they were measured: a file that is another one while a program
//! reads it, and the frozen one before and after, has the right content at both measures.
//!
//! Specified in `docs/format/lab.md`, section 4.

use super::{Difference, FreezeError, files};
use crate::packet::Packet;
use crate::prereg::Prereg;
use crate::world::Lab;
use packhouse_sys::fs::FsErrorKind;
use packhouse_sys::stat::Stat;
use std::collections::BTreeMap;

/// What is there under each frozen path: files, and folders that are frozen as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held(BTreeMap<String, Stamp>);

/// What no interface sets back: a rename, another content, mode or name of a file, and another
/// entry of a folder change its last field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    ctime_ns: i64,
}

/// Looks at all that a packet freezes below the lab.
///
/// # Errors
/// When something can't be looked at.
pub fn held(lab: &Lab<'_>, packet: &Packet, prereg: &Prereg) -> Result<Held, FreezeError> {
    let mut held = BTreeMap::new();
    let files = packet.frozen.iter().map(|file| file.path.as_str());
    let programs = prereg.control.iter().chain([&prereg.candidate]);
    let programs = programs.map(|program| program.program.as_str());
    // One without a slash is looked for outside of the lab.
    let programs = programs.filter(|name| name.contains('/'));
    let programs = programs.map(|name| name.strip_prefix("./").unwrap_or(name));
    for path in files.chain(programs) {
        let folders = path.match_indices('/').map(|(at, _)| &path[..at]);
        let is_frozen = |folder: &&str| is_in(folder, &prereg.frozen);
        for path in folders.filter(is_frozen).chain([path]) {
            if held.contains_key(path) {
                continue;
            }
            match files::stat(&lab.root, path) {
                Ok(stat) => {
                    held.insert(path.to_owned(), Stamp::of(&stat));
                }
                // What is not there any more is for who measures content to tell.
                Err(error) if error.kind == FsErrorKind::NotFound => {}
                Err(error) => return Err(FreezeError::Fs(error)),
            }
        }
    }
    Ok(Held(held))
}

impl Held {
    /// All that was touched between.
    pub fn touched(&self, now: &Self) -> Vec<Difference> {
        let shown = |stamp: &Stamp| format!("inode {} of {} ns", stamp.inode, stamp.ctime_ns);
        let all = self.0.iter().filter_map(|(path, before)| {
            let now = now.0.get(path);
            (now != Some(before)).then(|| Difference {
                what: format!("{path}, touched since it was measured"),
                frozen: Some(shown(before)),
                now: now.map(shown),
            })
        });
        all.collect()
    }
}

impl Stamp {
    fn of(stat: &Stat) -> Self {
        Self {
            device: stat.device,
            inode: stat.inode,
            ctime_ns: stat.ctime_ns,
        }
    }
}

/// Whether a path is one of others, or lies below one.
pub(super) fn is_in(path: &str, others: &[String]) -> bool {
    let mut rests = others
        .iter()
        .filter_map(|other| path.strip_prefix(other.as_str()));
    rests.any(|rest| rest.is_empty() || rest.starts_with('/'))
}
