//! How much memory the host could give.
//!
//! Invariants: limits of control groups count where they are found, version 2 and 1, at the
//! process's own group and at each above it; what can't be read limits nothing.

#![expect(
    clippy::disallowed_methods,
    reason = "/proc and /sys are asked by path; they are no stored byte"
)]

/// Memory that files in RAM could still take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryRoom {
    /// Bytes that could be used without pushing others out, by the kernel's estimate.
    pub available_bytes: Option<u64>,
    /// Bytes that the tightest control group of this process leaves, page cache counted as free.
    pub group_bytes: Option<u64>,
}

impl MemoryRoom {
    /// Asks the kernel.
    pub fn now() -> Self {
        Self {
            available_bytes: available_bytes(),
            group_bytes: group_left(&|path| std::fs::read_to_string(path).ok()),
        }
    }
}

/// Bytes that could be used without pushing others out, by the kernel's estimate (`MemAvailable`);
/// `None` where it gives none.
pub fn available_bytes() -> Option<u64> {
    parse(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

/// The files of one version of control groups.
struct Version {
    mount: &'static str,
    /// Hard limits, and those above which the kernel slows the group down.
    limits: &'static [&'static str],
    usage: &'static str,
    /// Lines of `memory.stat` whose pages the kernel gives back under pressure.
    reclaimable: [&'static str; 2],
}

const V2: Version = Version {
    mount: "/sys/fs/cgroup",
    limits: &["memory.max", "memory.high"],
    usage: "memory.current",
    reclaimable: ["inactive_file", "active_file"],
};
const V1: Version = Version {
    mount: "/sys/fs/cgroup/memory",
    limits: &["memory.limit_in_bytes"],
    usage: "memory.usage_in_bytes",
    reclaimable: ["total_inactive_file", "total_active_file"],
};

fn parse(listing: &str) -> Option<u64> {
    let rest = listing
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = rest.trim().strip_suffix(" kB")?.parse().ok()?;
    kib.checked_mul(1024)
}

/// The least that any group of this process leaves, its own and those above. A container that sees
/// no path of its own group sees that group as the root of the mount.
fn group_left(read: &dyn Fn(&str) -> Option<String>) -> Option<u64> {
    let listing = read("/proc/self/cgroup")?;
    let left = listing.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let version = if controllers.is_empty() {
            &V2
        } else if controllers.split(',').any(|name| name == "memory") {
            &V1
        } else {
            return None;
        };
        least_left(version, path, read)
    });
    left.min()
}

fn least_left(version: &Version, path: &str, read: &dyn Fn(&str) -> Option<String>) -> Option<u64> {
    let mut path = path.trim_end_matches('/');
    let mut least: Option<u64> = None;
    loop {
        let folder = format!("{}{path}", version.mount);
        if let Some(left) = left_of(version, &folder, read) {
            least = Some(least.map_or(left, |least| least.min(left)));
        }
        match path.rfind('/') {
            Some(at) => path = &path[..at],
            None => return least,
        }
    }
}

fn left_of(version: &Version, folder: &str, read: &dyn Fn(&str) -> Option<String>) -> Option<u64> {
    let number = |name: &str| {
        read(&format!("{folder}/{name}"))?
            .trim()
            .parse::<u64>()
            .ok()
    };
    let limits = version.limits.iter().filter_map(|name| number(name));
    let limit = limits.min()?;
    let usage = number(version.usage)?;
    let stat = read(&format!("{folder}/memory.stat")).unwrap_or_default();
    let reclaimable = stat.lines().filter_map(|line| {
        let (name, bytes) = line.split_once(' ')?;
        version
            .reclaimable
            .contains(&name)
            .then(|| bytes.parse::<u64>().ok())?
    });
    let held = usage.saturating_sub(reclaimable.sum());
    Some(limit.saturating_sub(held))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(files: &[(&str, &str)]) -> Option<u64> {
        group_left(&|path| {
            let found = files.iter().find(|(name, _)| *name == path);
            found.map(|(_, text)| (*text).to_owned())
        })
    }

    #[test]
    fn the_estimate_is_found_or_absent() {
        let listing = "MemTotal:       24684032 kB\nMemAvailable:   24043020 kB\n";
        assert_eq!(parse(listing), Some(24_043_020 * 1024));
        assert_eq!(parse("MemTotal: 1 kB\n"), None);
        assert_eq!(parse("MemAvailable: many kB\n"), None);
        assert!(available_bytes().is_some_and(|bytes| bytes > 0));
        assert!(MemoryRoom::now().available_bytes.is_some());
    }

    #[test]
    fn the_tightest_group_of_version_2_counts_without_its_page_cache() {
        let files = [
            ("/proc/self/cgroup", "0::/user/app\n"),
            ("/sys/fs/cgroup/user/app/memory.max", "max\n"),
            ("/sys/fs/cgroup/user/app/memory.current", "5\n"),
            ("/sys/fs/cgroup/user/memory.max", "1000\n"),
            ("/sys/fs/cgroup/user/memory.current", "700\n"),
            (
                "/sys/fs/cgroup/user/memory.stat",
                "anon 1\ninactive_file 150\nactive_file 50\nshmem 9\n",
            ),
        ];
        assert_eq!(left(&files), Some(500));
        assert_eq!(left(&files[..3]), None);
        assert_eq!(left(&[]), None);
    }

    #[test]
    fn a_container_that_sees_its_group_as_the_root_has_its_limit() {
        let files = [
            ("/proc/self/cgroup", "0::/\n"),
            ("/sys/fs/cgroup/memory.max", "100"),
            ("/sys/fs/cgroup/memory.current", "170"),
            ("/sys/fs/cgroup/memory.stat", "inactive_file 90\n"),
        ];
        assert_eq!(left(&files), Some(20));
        let over = [files[0], files[1], files[2]];
        assert_eq!(left(&over), Some(0));
        // Above `memory.high` a group is slowed down, so it counts as a limit.
        let high = [files, [("/sys/fs/cgroup/memory.high", "95"); 4]].concat();
        assert_eq!(left(&high), Some(15));
    }

    #[test]
    fn version_1_is_read_by_its_own_names() {
        let files = [
            (
                "/proc/self/cgroup",
                "4:cpu:/x\n3:memory,hugetlb:/docker/7\n",
            ),
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "4096\n"),
            ("/sys/fs/cgroup/memory/memory.usage_in_bytes", "1024\n"),
            (
                "/sys/fs/cgroup/memory/memory.stat",
                "inactive_file 1\ntotal_inactive_file 24\n",
            ),
        ];
        assert_eq!(left(&files), Some(3096));
    }
}
