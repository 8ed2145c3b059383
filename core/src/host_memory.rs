//! How much of the host's memory this process can still have: what the machine
//! has free, and what limits of the process and of its control groups leave.

use std::path::{Path, PathBuf};

use bytemuck::Zeroable;

use crate::backend::MemoryInfo;
use crate::{Error, Result};

/// What is worth asking about before it is taken.
const WORTH_ASKING: u64 = 64 << 20;

/// `len` zeros of the host's memory.
///
/// A system that overcommits hands out what it does not have and ends the process later: much is
/// compared with [`host_memory`] first.
///
/// # Errors
/// [`Error::OutOfMemory`] where the host has not so much.
pub fn host_vec<T: Zeroable>(len: usize) -> Result<Vec<T>> {
    let asked = (len as u64).saturating_mul(size_of::<T>() as u64);
    host_room(asked)?;
    match bytemuck::try_zeroed_slice_box(len) {
        Ok(values) => Ok(Vec::from(values)),
        Err(()) => Err(out_of_memory(asked, host_memory())),
    }
}

/// Fails where the host has not so many bytes; what is small, or unknown, passes.
///
/// # Errors
/// [`Error::OutOfMemory`].
pub fn host_room(asked: u64) -> Result<()> {
    if asked < WORTH_ASKING {
        return Ok(());
    }
    match host_memory() {
        Some(memory) if memory.free < asked => Err(out_of_memory(asked, Some(memory))),
        _ => Ok(()),
    }
}

fn out_of_memory(asked: u64, memory: Option<MemoryInfo>) -> Error {
    let MemoryInfo { free, total } = memory.unwrap_or(MemoryInfo { free: 0, total: 0 });
    Error::OutOfMemory { device: "the host".to_owned(), asked, free, total }
}

/// Free and total memory of this process; none where the system does not say.
///
/// Free is the least of `MemAvailable`, of what each control group above the process (version 1 or
/// 2) leaves of its limit, files that it could give up counted as free, and of what the limits of
/// the address space (`ulimit -v`) and of data (`ulimit -d`) leave. Total is the least of the same limits.
pub fn host_memory() -> Option<MemoryInfo> {
    read(Path::new("/"))
}

/// The same of a system whose files lie below `root`.
fn read(root: &Path) -> Option<MemoryInfo> {
    let meminfo = text(root.join("proc/meminfo"))?;
    let mut least = MemoryInfo {
        free: kilobytes(&meminfo, "MemAvailable:")?,
        total: kilobytes(&meminfo, "MemTotal:")?,
    };
    let groups = control_groups(root);
    let own = [("Max address space", "VmSize:"), ("Max data size", "VmData:")];
    let own = own.into_iter().filter_map(|(limit, used)| process(root, limit, used));
    for limit in groups.into_iter().chain(own) {
        least.free = least.free.min(limit.free);
        least.total = least.total.min(limit.total);
    }
    Some(least)
}

fn text(path: PathBuf) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

/// The field of lines as `MemTotal:  8 kB`, in bytes.
fn kilobytes(text: &str, field: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(field))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// What a limit of the process leaves.
fn process(root: &Path, limit: &str, used: &str) -> Option<MemoryInfo> {
    let limits = text(root.join("proc/self/limits"))?;
    let line = limits.lines().find_map(|line| line.strip_prefix(limit))?;
    // "unlimited" is no number.
    let total = line.split_whitespace().next()?.parse().ok()?;
    let used = kilobytes(&text(root.join("proc/self/status"))?, used)?;
    Some(MemoryInfo { free: u64::saturating_sub(total, used), total })
}

/// What each control group with a limit leaves of it.
fn control_groups(root: &Path) -> Vec<MemoryInfo> {
    let mut found = Vec::new();
    let own = text(root.join("proc/self/cgroup")).unwrap_or_default();
    for line in own.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let (mount, names) = match controllers {
            "" => (root.join("sys/fs/cgroup"), ["memory.max", "memory.current"]),
            _ if controllers.split(',').any(|c| c == "memory") => (
                root.join("sys/fs/cgroup/memory"),
                ["memory.limit_in_bytes", "memory.usage_in_bytes"],
            ),
            _ => continue,
        };
        // The group and all above it: the mount itself is the group in a container, whose path
        // may be another outside.
        let path = path.trim_start_matches('/');
        let folders = Path::new(path).ancestors().map(|above| mount.join(above));
        found.extend(folders.filter_map(|folder| group(&folder, names)));
    }
    found
}

fn group(folder: &Path, [limit, usage]: [&str; 2]) -> Option<MemoryInfo> {
    let number = |name| text(folder.join(name))?.trim().parse::<u64>().ok();
    // "max" is no number; version 1 says it by one near 2^63.
    let total = number(limit).filter(|&bytes| bytes < 1 << 60)?;
    let stat = text(folder.join("memory.stat")).unwrap_or_default();
    let files = |name: &str| {
        let line = stat.lines().find_map(|line| line.strip_prefix(name))?;
        line.strip_prefix(' ')?.trim().parse::<u64>().ok()
    };
    let files = files("total_inactive_file").or_else(|| files("inactive_file")).unwrap_or(0);
    let used = number(usage)?.saturating_sub(files);
    Some(MemoryInfo { free: total.saturating_sub(used), total })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A system of such files, gone with the value.
    struct System(PathBuf);

    impl Drop for System {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    impl System {
        fn new(name: &str, files: &[(&str, &str)]) -> Self {
            let root = format!("strata-host-memory-{}-{name}", std::process::id());
            let root = std::env::temp_dir().join(root);
            for (path, text) in files {
                let path = root.join(path);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, text).unwrap();
            }
            Self(root)
        }

        fn memory(&self) -> Option<(u64, u64)> {
            read(&self.0).map(|m| (m.free, m.total))
        }
    }

    const MEMINFO: (&str, &str) =
        ("proc/meminfo", "MemTotal:  8192 kB\nMemFree: 1 kB\nMemAvailable:   4096 kB\n");

    #[test]
    fn the_machine_itself_or_nothing() {
        assert_eq!(System::new("bare", &[MEMINFO]).memory(), Some((4096 << 10, 8192 << 10)));
        assert_eq!(System::new("none", &[("proc/other", "")]).memory(), None);
        assert_eq!(System::new("odd", &[("proc/meminfo", "MemTotal: 8 MB\n")]).memory(), None);
    }

    #[test]
    fn control_groups_of_both_versions_and_all_above() {
        let second = [
            MEMINFO,
            ("proc/self/cgroup", "0::/a/b\n"),
            ("sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("sys/fs/cgroup/a/b/memory.current", "5\n"),
            ("sys/fs/cgroup/a/memory.max", "1000000\n"),
            ("sys/fs/cgroup/a/memory.current", "600000\n"),
            ("sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 200000\n"),
        ];
        assert_eq!(System::new("v2", &second).memory(), Some((600_000, 1_000_000)));
        let first = [
            MEMINFO,
            ("proc/self/cgroup", "5:cpu,memory:/outside/path\n4:cpuset:/\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "2000000\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "2100000\n"),
        ];
        assert_eq!(System::new("v1", &first).memory(), Some((0, 2_000_000)));
        let unlimited = [
            MEMINFO,
            ("proc/self/cgroup", "5:memory:/\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "1\n"),
        ];
        assert_eq!(System::new("no", &unlimited).memory(), Some((4096 << 10, 8192 << 10)));
    }

    #[test]
    fn limits_of_the_process() {
        let status = "Name:\tx\nVmSize:\t    1000 kB\nVmData:\t    500 kB\n";
        let status = ("proc/self/status", status);
        let limits = "Limit  Soft Limit  Hard Limit  Units\n\
                      Max address space         2048000              unlimited            bytes\n";
        let limited = [MEMINFO, status, ("proc/self/limits", limits)];
        assert_eq!(System::new("as", &limited).memory(), Some((1_024_000, 2_048_000)));
        let limits = "Max data size             1024000              unlimited            bytes\n\
                      Max address space         2048000              unlimited            bytes\n";
        let both = [MEMINFO, status, ("proc/self/limits", limits)];
        assert_eq!(System::new("data", &both).memory(), Some((512_000, 1_024_000)));
        let limits = "Max address space         unlimited            unlimited            bytes\n";
        let free = [MEMINFO, status, ("proc/self/limits", limits)];
        assert_eq!(System::new("free", &free).memory(), Some((4096 << 10, 8192 << 10)));
    }

    #[test]
    fn what_nobody_has_is_an_error_with_figures() {
        for len in [1 << 50, usize::MAX] {
            match host_vec::<u64>(len) {
                Err(Error::OutOfMemory { asked, free, total, .. }) => {
                    assert_eq!(asked, (len as u64).saturating_mul(8));
                    assert!(free <= total);
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(host_vec::<u32>(3).unwrap(), [0; 3]);
        assert!(host_vec::<u32>(0).unwrap().is_empty());
    }
}
