//! The texts of a process' kernel files as values. Pure; each form is that of proc(5).

use super::process::MappedFile;
use crate::cores::CpuSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;

/// What is taken from `stat`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) pid: u32,
    pub(crate) name: Vec<u8>,
    pub(crate) state: char,
    pub(crate) parent: u32,
    pub(crate) group: i32,
    pub(crate) session: i32,
    pub(crate) flags: u32,
    pub(crate) threads: u64,
    pub(crate) start_ticks: u64,
    /// Whether a program was started in full, with an environment of no bytes: in the middle of an
    /// exec its bounds are zero, then equal, then right, and the code's bounds come after them.
    pub(crate) environment_is_empty: bool,
}

impl Stat {
    /// Parses the one line. A name may hold parentheses and newlines, so it ends at the last one.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let open = bytes.iter().position(|byte| *byte == b'(')?;
        let close = bytes.iter().rposition(|byte| *byte == b')')?;
        let name = bytes.get(open + 1..close)?.to_vec();
        let pid = std::str::from_utf8(&bytes[..open]).ok()?.trim_end();
        let rest = std::str::from_utf8(&bytes[close + 1..]).ok()?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let mut state = fields.first()?.chars();
        let (state, None) = (state.next()?, state.next()) else {
            return None;
        };
        // Fields are numbered from 1 in proc_pid_stat(5); the state is the third.
        let field = |number: usize| fields.get(number - 3).copied();
        // What follows the last field that is read says that this one was not cut.
        field(23)?;
        let is_set = |address: Option<&str>| address.is_some_and(|address| address != "0");
        Some(Self {
            pid: pid.parse().ok()?,
            name,
            state,
            parent: field(4)?.parse().ok()?,
            group: field(5)?.parse().ok()?,
            session: field(6)?.parse().ok()?,
            flags: field(9)?.parse().ok()?,
            threads: field(20)?.parse().ok()?,
            start_ticks: field(22)?.parse().ok()?,
            environment_is_empty: field(50) == field(51) && is_set(field(51)) && is_set(field(27)),
        })
    }

    /// Whether the process has ended: it is a zombie, or dead, and has no thread that runs on after
    /// its first one ended.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x') && self.threads <= 1
    }

    /// Whether its first thread ended while others run on: its own files show nothing by then.
    pub(crate) fn leader_has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x') && self.threads > 1
    }

    /// Whether it is a thread of the kernel.
    pub(crate) fn is_kernel_thread(&self) -> bool {
        self.flags & PF_KTHREAD != 0
    }
}

/// From the kernel's sched.h.
const PF_KTHREAD: u32 = 0x0020_0000;

/// The value of a `Name:` line of `status` and files like it.
pub(crate) fn line_of<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .map(str::trim)
}

/// The effective user id of `status`.
pub(crate) fn user_of(status: &str) -> Option<u32> {
    line_of(status, "Uid")?
        .split_ascii_whitespace()
        .nth(1)?
        .parse()
        .ok()
}

/// The cores of `status` on which it may run.
pub(crate) fn cores_of(status: &str) -> Option<CpuSet> {
    CpuSet::parse(line_of(status, "Cpus_allowed_list")?).ok()
}

/// Whether a process has a pid of its own in a namespace below ours, by `status`: kernels before
/// 4.1 do not tell.
pub(crate) fn is_below(status: &str) -> bool {
    line_of(status, "NSpid").is_some_and(|pids| pids.split_ascii_whitespace().count() > 1)
}

/// Whole clock ticks of `uptime`, which has hundredths of seconds.
pub(crate) fn ticks_of(uptime: &str, ticks_per_second: u64) -> Option<u64> {
    let (seconds, rest) = uptime.split_once('.')?;
    let hundredths = rest.get(..2)?;
    let seconds = seconds.parse::<u64>().ok()?.checked_mul(100)?;
    let hundredths = seconds.checked_add(hundredths.parse().ok()?)?;
    Some(hundredths.checked_mul(ticks_per_second)? / 100)
}

/// Bytes of one line in kB.
pub(crate) fn kilobytes_of(text: &str, name: &str) -> Option<u64> {
    let number = line_of(text, name)?.strip_suffix("kB")?.trim_end();
    number.parse::<u64>().ok()?.checked_mul(1024)
}

/// Private memory by `smaps_rollup`: resident pages that nobody else maps, and what is in swap.
pub(crate) fn private_of_rollup(text: &str) -> Option<u64> {
    // Kernels before 4.19 have no line of huge pages in it.
    let huge = kilobytes_of(text, "Private_Hugetlb").unwrap_or(0);
    kilobytes_of(text, "Private_Clean")?
        .checked_add(kilobytes_of(text, "Private_Dirty")?)?
        .checked_add(kilobytes_of(text, "Swap")?)?
        .checked_add(huge)
}

/// Private memory by `status`, where there is no `smaps_rollup`.
pub(crate) fn private_of_status(text: &str) -> Option<u64> {
    kilobytes_of(text, "RssAnon")?.checked_add(kilobytes_of(text, "VmSwap")?)
}

/// The words of a NUL-separated list.
pub(crate) fn words_of(bytes: &[u8]) -> Vec<OsString> {
    let bytes = bytes.strip_suffix(b"\0").unwrap_or(bytes);
    if bytes.is_empty() {
        return Vec::new();
    }
    bytes
        .split(|byte| *byte == 0)
        .map(|word| OsString::from_vec(word.to_vec()))
        .collect()
}

/// The assignments of an environment; a word without `=` has an empty value.
pub(crate) fn environment_of(bytes: &[u8]) -> Vec<(OsString, OsString)> {
    let owned = |part: &[u8]| OsStr::from_bytes(part).to_owned();
    bytes
        .split(|byte| *byte == 0)
        .filter(|word| !word.is_empty())
        .map(|word| match word.iter().position(|byte| *byte == b'=') {
            Some(equals) => (owned(&word[..equals]), owned(&word[equals + 1..])),
            None => (owned(word), OsString::new()),
        })
        .collect()
}

/// The inode of a link target of the form `socket:[123]` or `pid:[123]`.
pub(crate) fn inode_of(target: &OsStr, kind: &str) -> Option<u64> {
    target
        .to_str()?
        .strip_prefix(kind)?
        .strip_prefix(":[")?
        .strip_suffix(']')?
        .parse()
        .ok()
}

/// The path of a link target or map line, and whether the kernel calls it deleted.
pub(crate) fn path_of(target: &[u8]) -> (PathBuf, bool) {
    let (path, deleted) = match target.strip_suffix(b" (deleted)") {
        Some(path) => (path, true),
        None => (target, false),
    };
    (PathBuf::from(OsStr::from_bytes(path)), deleted)
}

/// The mapped files of `maps`, each inode once with its first range. `None` on a line in no known
/// form.
pub(crate) fn mapped_of(bytes: &[u8]) -> Option<Vec<MappedFile>> {
    let mut files: Vec<MappedFile> = Vec::new();
    for line in bytes.split(|byte| *byte == b'\n') {
        if line.is_empty() {
            continue;
        }
        let Some(file) = mapped_line(line)? else {
            continue;
        };
        let known = |other: &MappedFile| {
            (other.device, other.inode) == (file.device, file.inode) && other.path == file.path
        };
        if !files.iter().any(known) {
            files.push(file);
        }
    }
    Some(files)
}

/// One line: `None` in no known form, `Some(None)` when no file is behind it.
fn mapped_line(line: &[u8]) -> Option<Option<MappedFile>> {
    let mut parts = line.splitn(6, |byte| *byte == b' ');
    let mut text = || std::str::from_utf8(parts.next()?).ok();
    let (start, end) = text()?.split_once('-')?;
    let (start, end) = (hex(start)?, hex(end)?);
    let (_permissions, _offset) = (text()?, text()?);
    let (major, minor) = text()?.split_once(':')?;
    let device = rustix::fs::makedev(
        u32::from_str_radix(major, 16).ok()?,
        u32::from_str_radix(minor, 16).ok()?,
    );
    let inode: u64 = text()?.parse().ok()?;
    let rest = parts.next().unwrap_or_default();
    let first = rest.iter().position(|byte| *byte != b' ');
    let path = first.map_or(&[][..], |first| &rest[first..]);
    if inode == 0 || !path.starts_with(b"/") {
        return Some(None);
    }
    let (path, deleted) = path_of(&unescape(path));
    Some(Some(MappedFile {
        path,
        deleted,
        device,
        inode,
        start,
        end,
    }))
}

fn hex(digits: &str) -> Option<u64> {
    u64::from_str_radix(digits, 16).ok()
}

/// Newlines stand as `\012` in `maps`; nothing else is escaped there.
fn unescape(path: &[u8]) -> Vec<u8> {
    const NEWLINE: &[u8] = b"\\012";
    let mut plain = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some(byte) = rest.first() {
        if let Some(after) = rest.strip_prefix(NEWLINE) {
            plain.push(b'\n');
            rest = after;
        } else {
            plain.push(*byte);
            rest = &rest[1..];
        }
    }
    plain
}

/// The control group of `cgroup`: that of version 2, or of the tree that is systemd's own. `None`
/// when there is neither.
pub(crate) fn cgroup_of(bytes: &[u8]) -> Option<PathBuf> {
    let lines = || bytes.split(|byte| *byte == b'\n');
    let path_after = |prefix: &[u8]| {
        lines().find_map(|line| {
            let (_, rest) = line.split_at(line.iter().position(|byte| *byte == b':')?);
            rest.strip_prefix(prefix)
                .map(|path| PathBuf::from(OsStr::from_bytes(path)))
        })
    };
    let unified = path_after(b"::");
    // In the mixed form every process has a line of version 2, mostly for the root.
    path_after(b":name=systemd:").or(unified)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::procfs::FromRead as _;
    use proptest::prelude::*;

    fn line(name: &[u8], fields: &str) -> Vec<u8> {
        [b"4711 (", name, b") ", fields.as_bytes()].concat()
    }

    /// Of a shell on Linux 6.18.
    const FIELDS: &str = "S 4700 4711 4700 34816 4720 4194304 1047 2281 0 0 1 2 0 3 20 0 1 0 \
        8876555 4780032 951 18446744073709551615 94096 94816 140728 0 0 0 65536 3686404 1266761467 \
        1 0 0 17 1 0 0 0 0 0 94859 94908 95447 140728 140728 140728 140728 0\n";

    #[test]
    fn a_name_may_look_like_the_fields_after_it() {
        for name in [
            &b"sh"[..],
            b"",
            b")",
            b"((",
            b") Z 1 1 1 0 0 0",
            b"a\nb) R 9",
            b"\xff\xfe",
            b"tab\t ) ",
        ] {
            let stat = Stat::parse(&line(name, FIELDS)).expect("because the form is right");
            assert_eq!(stat.name, name);
            assert_eq!((stat.pid, stat.state), (4711, 'S'));
            assert_eq!((stat.parent, stat.group, stat.session), (4700, 4711, 4700));
            assert_eq!((stat.threads, stat.start_ticks), (1, 8_876_555));
            assert!(!stat.is_kernel_thread());
        }
    }

    #[test]
    fn a_line_that_was_cut_gives_no_other_start_time() {
        let whole = line(b"sh", FIELDS);
        let stat = Stat::parse(&whole);
        for end in 0..whole.len() {
            let cut = Stat::parse(&whole[..end]);
            let same = cut.as_ref().zip(stat.as_ref()).is_some_and(|(cut, stat)| {
                (cut.start_ticks, cut.pid, cut.state) == (stat.start_ticks, stat.pid, stat.state)
            });
            assert!(cut.is_none() || same, "cut at {end}: {cut:?}");
        }
    }

    #[test]
    fn an_environment_is_empty_only_where_an_exec_is_over() {
        for (code, start, end, expected) in [
            ("94816", "140728", "140728", true),
            ("94816", "140728", "140729", false),
            ("0", "140728", "140728", false),
            ("0", "0", "0", false),
        ] {
            let (stack, tail) = ("94096 94816 140728", "140728 140728 140728 140728 0\n");
            let fields = FIELDS
                .replace(stack, &format!("94096 {code} 140728"))
                .replace(tail, &format!("140728 140728 {start} {end} 0\n"));
            let stat = Stat::parse(&line(b"sh", &fields)).expect("because the form is right");
            assert_eq!(stat.environment_is_empty, expected, "{code} {start} {end}");
        }
    }

    #[test]
    fn a_process_has_ended_once_its_last_thread_has() {
        for (state, threads, ended, leader) in [
            ('R', 1, false, false),
            ('S', 9, false, false),
            ('T', 1, false, false),
            ('D', 1, false, false),
            ('Z', 1, true, false),
            ('Z', 0, true, false),
            ('Z', 2, false, true),
            ('X', 1, true, false),
            ('x', 1, true, false),
        ] {
            let mut stat = Stat::parse(&line(b"sh", FIELDS)).expect("because the form is right");
            (stat.state, stat.threads) = (state, threads);
            assert_eq!(stat.has_ended(), ended, "{state} {threads}");
            assert_eq!(stat.leader_has_ended(), leader, "{state} {threads}");
        }
    }

    #[test]
    fn a_words_list_keeps_empty_words_and_an_environment_does_not() {
        let shown = |bytes: &[u8]| format!("{:?}", words_of(bytes));
        assert_eq!(shown(b"a\0\0b c\0"), r#"["a", "", "b c"]"#);
        assert_eq!(shown(b"a\0\0"), r#"["a", ""]"#);
        assert_eq!(
            shown(b"a title without an end"),
            r#"["a title without an end"]"#
        );
        assert_eq!(shown(b""), "[]");
        let shown = |bytes: &[u8]| format!("{:?}", environment_of(bytes));
        assert_eq!(
            shown(b"A=1\0B=\0C=x=y\0\0odd\0=z\0L=a\nb\0"),
            concat!(
                r#"[("A", "1"), ("B", ""), ("C", "x=y"), ("odd", ""), ("", "z"), "#,
                r#"("L", "a\nb")]"#
            )
        );
        assert_eq!(shown(b"A=cut"), r#"[("A", "cut")]"#);
    }

    #[test]
    fn each_mapped_file_is_named_once() {
        let maps = b"\
            00400000-0040b000 r--p 00000000 fd:01 77                     /opt/llama server\n\
            0040b000-00500000 r-xp 0000b000 fd:01 77                     /opt/llama server\n\
            01000000-02000000 rw-p 00000000 00:00 0                      [heap]\n\
            7f0000000000-7f0000001000 rw-p 00000000 00:00 0 \n\
            7f0000001000-7f0000002000 r--p 00000000 103:02 5             /lib/a\\012b.so\n\
            7f0000002000-7f0000003000 rw-s 00000000 00:01 9              /dev/zero (deleted)\n\
            7f0000003000-7f0000004000 rw-s 00000000 00:05 331            /dev/nvidia0\n\
            7fff00000000-7fff00001000 r-xp 00000000 00:00 0              [vdso]\n";
        let files = mapped_of(maps).expect("because each line is in the form");
        let shown: Vec<(&str, bool, u64, u64)> = files
            .iter()
            .map(|file| {
                let path = file.path.to_str().expect("because it is ASCII");
                (path, file.deleted, file.device, file.inode)
            })
            .collect();
        let device = rustix::fs::makedev;
        assert_eq!(
            shown,
            [
                ("/opt/llama server", false, device(0xfd, 1), 77),
                ("/lib/a\nb.so", false, device(0x103, 2), 5),
                ("/dev/zero", true, device(0, 1), 9),
                ("/dev/nvidia0", false, device(0, 5), 331),
            ]
        );
        assert_eq!((files[0].start, files[0].end), (0x0040_0000, 0x0040_b000));
        for wrong in [
            "00400000 r--p 0 fd:01 77 /x\n",
            "x\n",
            "1-2 r--p 0 fd01 77 /x\n",
        ] {
            assert_eq!(mapped_of(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn the_control_group_is_that_of_the_manager_of_units() {
        for (text, path) in [
            (
                "0::/user.slice/a b.service\n",
                Some("/user.slice/a b.service"),
            ),
            (
                "2:cpu,cpuacct:/x\n1:name=systemd:/unit\n0::/\n",
                Some("/unit"),
            ),
            ("3:cpu:/x\n0::/only\n", Some("/only")),
            ("0::/a:b\n", Some("/a:b")),
            ("3:cpu:/x\n", None),
            ("", None),
        ] {
            assert_eq!(
                cgroup_of(text.as_bytes()),
                path.map(PathBuf::from),
                "{text}"
            );
        }
    }

    #[test]
    fn private_memory_is_the_sum_of_its_parts_and_unknown_without_one() {
        let rollup = "0-1 ---p 00000000 00:00 0 [rollup]\nRss:  900 kB\nPrivate_Clean:  10 kB\n\
            Private_Dirty:     20 kB\nSwap:   3 kB\nPrivate_Hugetlb: 2048 kB\n";
        assert_eq!(private_of_rollup(rollup), Some((10 + 20 + 3 + 2048) * 1024));
        let before = rollup.replace("Private_Hugetlb: 2048 kB\n", "");
        assert_eq!(private_of_rollup(&before), Some(33 * 1024));
        for line in ["Private_Clean", "Private_Dirty", "Swap"] {
            assert_eq!(private_of_rollup(&rollup.replace(line, "Other")), None);
        }
        assert_eq!(
            private_of_status("RssAnon:\t 7 kB\nVmSwap:\t 1 kB\n"),
            Some(8 * 1024)
        );
        assert_eq!(private_of_status("RssAnon:\t 7 kB\n"), None);
        assert_eq!(kilobytes_of("A: 18446744073709551615 kB", "A"), None);
    }

    #[test]
    fn the_effective_user_and_the_cores_are_read() {
        let status = "Name:\tUid\nUid:\t1\t2\t3\t4\nCpus_allowed:\tff\nCpus_allowed_list:\t0-7\n";
        assert_eq!(user_of(status), Some(2));
        assert_eq!(cores_of(status), CpuSet::parse("0-7").ok());
        assert_eq!(user_of("Uid:\t1\n"), None);
        assert_eq!(cores_of("Cpus_allowed_list:\t\n"), None);
    }

    #[test]
    fn ticks_are_whole_and_never_ahead_of_the_clock() {
        assert_eq!(ticks_of("123.45 99.00\n", 100), Some(12_345));
        assert_eq!(ticks_of("0.05 0.00\n", 100), Some(5));
        assert_eq!(ticks_of("1.99 0.00\n", 10), Some(19));
        for wrong in ["", "12", "12.", "12.3", "x.12", "99999999999999999999.00"] {
            assert_eq!(ticks_of(wrong, 100), None, "{wrong}");
        }
    }

    proptest! {
        /// The second parser is the `procfs` crate's.
        #[test]
        fn two_parsers_read_one_line_alike(
            name in "[ -~\n\t]{0,15}",
            ids in prop::array::uniform3(0i32..4_194_304),
            threads in 0i64..100_000,
            start in any::<u64>(),
        ) {
            let [parent, group, session] = ids;
            let fields = format!(
                "R {parent} {group} {session} 0 -1 2129984 1 2 3 4 5 6 7 8 20 0 {threads} 0 \
                 {start} 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 17 0 0 0 0 0 0 1 2 3 4 5 6 7 0\n"
            );
            let bytes = line(name.as_bytes(), &fields);
            let ours = Stat::parse(&bytes).expect("because the form is right");
            let theirs = ::procfs::process::Stat::from_read(&bytes[..])
                .expect("because the form is right");
            prop_assert_eq!(ours.name, theirs.comm.as_bytes());
            prop_assert_eq!(ours.state, theirs.state);
            prop_assert_eq!(ours.parent, u32::try_from(theirs.ppid).expect("because it is one"));
            prop_assert_eq!((ours.group, ours.session), (theirs.pgrp, theirs.session));
            prop_assert_eq!(ours.start_ticks, theirs.starttime);
            prop_assert_eq!(Ok(ours.threads), u64::try_from(theirs.num_threads));
            prop_assert_eq!(ours.flags, theirs.flags);
            // PF_KTHREAD is in these flags.
            prop_assert!(theirs.flags & 0x0020_0000 != 0);
        }

        #[test]
        fn no_bytes_end_in_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let text = String::from_utf8_lossy(&bytes);
            let _ = Stat::parse(&bytes);
            let _ = mapped_of(&bytes);
            let _ = (words_of(&bytes), environment_of(&bytes), cgroup_of(&bytes));
            let _ = (private_of_rollup(&text), private_of_status(&text));
            let _ = (user_of(&text), cores_of(&text), ticks_of(&text, 100));
        }
    }
}
