//! Whoever the children of this process left behind: found, ended, waited for.
//!
//! It needs [`super::take_in_orphans`]: where a program ends, what it started becomes a child of
//! this process, of whatever session, group and environment it is.
//!
//! Invariants:
//! - who gets a signal is a child of this process that it did not start and has not waited for, so
//!   that its number can't be another's, or is in the process group of one that has ended, whose
//!   number is held by that in the same way;
//! - who was a child before the family began is a stranger, and left alone; where such a stranger
//!   lives, or this process is init, an orphan may be anybody's: it is told of, not signalled;
//! - children that this process started itself, and what they started while they live, are not
//!   touched;
//! - it ends when nobody is left, or when its time is over.
//!
//! What forks again and again is met by its dead: each that ended is a child of ours until we have
//! waited for it, names the group that the living one is in, and a group is killed at one blow.

#![expect(
    clippy::disallowed_methods,
    reason = "the kernel's own process files, whose paths no user gives"
)]

use super::own::{is_group_of_ours, own_children, starting};
use crate::clock::{Clock as _, RealClock};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitOptions, getpid, kill_process_group,
    pidfd_open, pidfd_send_signal, waitid, waitpid,
};
use std::collections::BTreeSet;
use std::io;
use std::path::Path;

/// What descends from children that are started after it began.
#[derive(Debug)]
pub struct Family {
    strangers: BTreeSet<Key>,
    /// Whether an orphan may be of somebody else.
    is_mixed: bool,
}

/// A process that outlived the child that started it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Outlived {
    /// Its number.
    pub pid: u32,
    /// Its name, which it may have given itself.
    pub name: String,
}

/// How a family ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ending {
    /// Those that lived and were ended: the first of them.
    pub ended: Vec<Outlived>,
    /// How many they were.
    pub ended_count: u64,
    /// Those that did not end in time.
    pub left: Vec<Outlived>,
    /// Those of whom it can't be told whose they are: nobody signalled them.
    pub untold: Vec<Outlived>,
}

/// A process by its number and the kernel's tick in which it began.
type Key = (i32, u64);

/// What is known of a child.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    name: String,
    parent: i32,
    group: i32,
    session: i32,
    start: u64,
}

impl Seen {
    fn is_of_ours(&self) -> bool {
        is_group_of_ours(self.group, self.start)
    }
}

impl Family {
    /// Begins: who is a child of this process by now, and was not started by it, is a stranger.
    ///
    /// # Errors
    /// When the kernel's process files can't be read, or are of another namespace.
    pub fn begin() -> io::Result<Self> {
        are_own_numbers(&std::fs::read_link("/proc/self")?)?;
        let _starting = starting();
        let mut family = Self {
            strangers: BTreeSet::new(),
            is_mixed: getpid() == Pid::INIT,
        };
        for _ in 0..LOOKS_MAX {
            let known = family.strangers.len();
            let listed = [children()?, all_children()?].concat();
            for (pid, seen) in orphans(&family.strangers, listed) {
                // What is left of a tool that was asked before is dying, or dead.
                if !seen.is_of_ours() {
                    family.is_mixed |= status(pid)?.is_none();
                    family.strangers.insert((pid, seen.start));
                }
            }
            // What one that ended meanwhile left is on the next list.
            if family.strangers.len() == known {
                return Ok(family);
            }
        }
        family.is_mixed = true;
        Ok(family)
    }

    /// Ends all that the children which are over left behind, and waits for it, in `timeout_ns`.
    ///
    /// # Errors
    /// When the kernel's process files can't be read, or children not be waited for.
    pub fn end(&self, timeout_ns: u64) -> io::Result<Ending> {
        let deadline_ns = RealClock.steady_ns().saturating_add(timeout_ns);
        let mut round = Round::default();
        loop {
            let starting = starting();
            let mut found = orphans(&self.strangers, children()?);
            if found.is_empty() {
                // Once more by the other list: nobody is gone after one look alone.
                found = orphans(&self.strangers, all_children()?);
                if found.is_empty() {
                    return Ok(round.ending);
                }
            }
            let mut is_new = false;
            let mut living = Vec::new();
            let mut untold = Vec::new();
            for (pid, seen) in found {
                match status(pid)? {
                    Some(signal) => {
                        round.bury(pid, &seen, signal, self.is_mixed)?;
                        is_new = true;
                    }
                    None if self.is_mixed && !seen.is_of_ours() => {
                        untold.push(outlived(pid, &seen));
                    }
                    None => {
                        is_new |= round.kill(pid, &seen);
                        living.push(outlived(pid, &seen));
                    }
                }
            }
            drop(starting);
            // One that nobody may signal has its time too: it may end by itself.
            if RealClock.steady_ns() >= deadline_ns {
                round.ending.left = living;
                round.ending.untold = untold;
                return Ok(round.ending);
            }
            if !is_new {
                RealClock.sleep_ns(PAUSE_NS);
            }
        }
    }
}

/// What was done so far.
#[derive(Default)]
struct Round {
    ending: Ending,
    told: BTreeSet<Key>,
    groups: BTreeSet<i32>,
}

impl Round {
    /// Kills a child that lives; whether it is a new one.
    fn kill(&mut self, pid: i32, seen: &Seen) -> bool {
        let is_new = self.told.insert((pid, seen.start));
        let held = number(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        // Read again while it is held: it is the one that was seen, and a child of ours.
        let is_same = look(pid)
            .is_some_and(|now| now.start == seen.start && now.parent == number_of(getpid()));
        if let Some(held) = held.filter(|_| is_same) {
            // One that can't be signalled is there afterwards, and told of.
            let _ = pidfd_send_signal(held, Signal::KILL);
            if is_new && !seen.is_of_ours() {
                self.note(pid, seen);
            }
        }
        is_new
    }

    /// Waits for a child that has ended, after it has named its group's living ones.
    fn bury(&mut self, pid: i32, seen: &Seen, signal: i32, is_mixed: bool) -> io::Result<()> {
        let was_told = self.told.remove(&(pid, seen.start));
        let has_lived = self.groups.contains(&seen.group) && signal == Signal::KILL.as_raw();
        if has_lived && !was_told && !seen.is_of_ours() {
            self.note(pid, seen);
        }
        if !is_mixed && is_of_family(seen) {
            // It holds the group's number until it is waited for.
            if let Some(group) = number(seen.group) {
                let _ = kill_process_group(group, Signal::KILL);
                self.groups.insert(seen.group);
            }
        }
        let pid = number(pid);
        match retry_on_intr(|| waitpid(pid, WaitOptions::NOHANG)) {
            Ok(_) | Err(Errno::CHILD) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn note(&mut self, pid: i32, seen: &Seen) {
        self.ending.ended_count += 1;
        if self.ending.ended.len() < TOLD_MAX {
            self.ending.ended.push(outlived(pid, seen));
        }
    }
}

/// Whether the group of a child that ended has nobody in it but what our children started: a child
/// begins a session of its own, and no process enters another's. Of one that lives, the group is
/// left alone.
fn is_of_family(seen: &Seen) -> bool {
    let own = own_children();
    let is_led_by_own = u32::try_from(seen.group).is_ok_and(|group| own.contains(&group));
    // As the process files have them, 0 where it was begun outside of this process namespace.
    let ours = look(number_of(getpid()));
    let is_apart =
        ours.is_some_and(|ours| seen.session != ours.session && seen.group != ours.group);
    is_apart && seen.group > 1 && !is_led_by_own
}

/// Those of some children that are neither our own nor strangers.
fn orphans(strangers: &BTreeSet<Key>, children: Vec<i32>) -> Vec<(i32, Seen)> {
    let own = own_children();
    let is_own = |pid: &i32| u32::try_from(*pid).is_ok_and(|pid| own.contains(&pid));
    let others = children.into_iter().filter(|pid| !is_own(pid));
    others
        .filter_map(|pid| Some((pid, look(pid)?)))
        .filter(|(pid, seen)| !strangers.contains(&(*pid, seen.start)))
        .collect()
}

/// The signal that a child ended by, 0 for none; `None` while it lives. It stays to be waited for.
fn status(pid: i32) -> io::Result<Option<i32>> {
    let Some(pid) = number(pid) else {
        return Ok(None);
    };
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    match retry_on_intr(|| waitid(WaitId::Pid(pid), options)) {
        Ok(status) => Ok(status.map(|status| status.terminating_signal().unwrap_or(0))),
        // Somebody else waited for it.
        Err(Errno::CHILD) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// Whether the process files have this process under its own number. Those of another namespace
/// have other numbers: whom they name could be signalled in the place of somebody else.
fn are_own_numbers(own: &Path) -> io::Result<()> {
    match own == Path::new(&getpid().to_string()) {
        true => Ok(()),
        false => Err(io::Error::other("/proc is of another process namespace")),
    }
}

/// This process' children, by its threads. A child that became ours meanwhile is at the end of a
/// list, and none leaves it before it was waited for.
fn children() -> io::Result<Vec<i32>> {
    let mut found = Vec::new();
    for thread in std::fs::read_dir("/proc/self/task")? {
        let Ok(listed) = std::fs::read_to_string(thread?.path().join("children")) else {
            // A thread that is gone, or a kernel without such lists.
            return all_children();
        };
        let numbers = listed.split_whitespace();
        found.extend(numbers.filter_map(|pid| pid.parse::<i32>().ok()));
    }
    Ok(found)
}

/// The same by a look at every process.
fn all_children() -> io::Result<Vec<i32>> {
    let us = number_of(getpid());
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let pid = entry?
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        if let Some(pid) = pid
            && look(pid).is_some_and(|seen| seen.parent == us)
        {
            found.push(pid);
        }
    }
    Ok(found)
}

fn look(pid: i32) -> Option<Seen> {
    let stat = std::fs::read(Path::new("/proc").join(pid.to_string()).join("stat"));
    parsed(&stat.ok()?)
}

/// Fields 2, 4, 5, 6 and 22 of proc_pid_stat(5); the second, in brackets, may hold anything.
fn parsed(stat: &[u8]) -> Option<Seen> {
    let begin = stat.iter().position(|byte| *byte == b'(')?;
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let text = std::str::from_utf8(&stat[end + 1..]).ok()?;
    let words: Vec<&str> = text.split_whitespace().collect();
    Some(Seen {
        name: String::from_utf8_lossy(stat.get(begin + 1..end)?).into_owned(),
        parent: words.get(1)?.parse().ok()?,
        group: words.get(2)?.parse().ok()?,
        session: words.get(3)?.parse().ok()?,
        start: words.get(19)?.parse().ok()?,
    })
}

fn outlived(pid: i32, seen: &Seen) -> Outlived {
    Outlived {
        pid: pid.unsigned_abs(),
        name: seen.name.clone(),
    }
}

/// A number as the kernel's calls take it: none for 0 and below, which would mean several.
fn number(pid: i32) -> Option<Pid> {
    Pid::from_raw(pid).filter(|_| pid > 0)
}

fn number_of(pid: Pid) -> i32 {
    pid.as_raw_nonzero().get()
}

/// How often strangers are looked for, while there are new ones.
const LOOKS_MAX: usize = 16;
/// How many are told by name.
const TOLD_MAX: usize = 8;
/// How long those that were killed are left to die before the next look.
const PAUSE_NS: u64 = 500_000;

#[cfg(test)]
mod tests;
