//! Control groups, version 2 (the kernel's "Control Group v2"): what the server's has used, and one of its own for a
//! server that sipstone starts.

use super::cpu::Cpu;
use super::procfs::{Proc, fields, number, read};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Groups within the watched one that are looked at for processes. Their CPU time is in its own count in any case.
const GROUPS_MAX: usize = 1024;
/// Most processes of one that are counted (memory, descriptors, threads); CPU time counts all.
const PROCESSES_MAX: usize = 16_384;
/// How long a group may take to become empty after its processes were ended.
const EMPTY_WITHIN: Duration = Duration::from_secs(1);

/// A group to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cgroup {
    directory: PathBuf,
}

impl Cgroup {
    /// `path` as it is, or below the place where version 2 is mounted: `system.slice/kamailio.service`.
    ///
    /// # Errors
    /// A sentence: there is no such group, or it is one of version 1.
    pub(super) fn open(proc: &Proc, path: &Path) -> Result<Cgroup, String> {
        let below_mount = || Some(mount(&proc.file("self/mounts").ok()?)?.join(path));
        let directory = match path.is_absolute() || path.is_dir() {
            true => path.to_owned(),
            false => below_mount().ok_or("no cgroup v2 is mounted here; watch the server by its pid")?,
        };
        let cgroup = Cgroup { directory };
        match cgroup.cpu() {
            Ok(_) => Ok(cgroup),
            Err(error) => Err(format!(
                "{} is not a cgroup v2 directory whose cpu.stat can be read ({error}); \
                 give one below /sys/fs/cgroup, or watch the server by its pid",
                cgroup.directory.display()
            )),
        }
    }

    /// Its CPU time since it was made.
    ///
    /// # Errors
    /// It is gone, or is none.
    pub(super) fn cpu(&self) -> io::Result<Cpu> {
        let text = read(&self.directory.join("cpu.stat"))?;
        parse_cpu_stat(&text)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "it has no usage_usec"))
    }

    /// The processes in it and in the groups within it.
    ///
    /// # Errors
    /// It is gone.
    pub(super) fn pids(&self) -> io::Result<Vec<u32>> {
        let mut pids = procs(&self.directory)?;
        let mut open = subgroups(&self.directory);
        let mut groups = 1;
        while let Some(directory) = open.pop() {
            if groups >= GROUPS_MAX || pids.len() >= PROCESSES_MAX {
                break;
            }
            groups += 1;
            // It may be gone by now; one of threads only (EOPNOTSUPP) has its processes in a group above.
            pids.extend(procs(&directory).unwrap_or_default());
            open.extend(subgroups(&directory));
        }
        pids.truncate(PROCESSES_MAX);
        pids.sort_unstable();
        Ok(pids)
    }

    pub(super) fn path(&self) -> &Path {
        &self.directory
    }
}

/// A group that sipstone made for the server it starts; removed when dropped.
#[derive(Debug)]
pub(super) struct Scope {
    cgroup: Cgroup,
}

impl Scope {
    /// Makes an empty group within this process's own.
    ///
    /// # Errors
    /// Why that is not possible: no version 2 is mounted, or no right to write there.
    pub(super) fn create(proc: &Proc) -> Result<Scope, String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let text = |file: &str| proc.file(file).map_err(|error| format!("/proc/{file}: {error}"));
        let mount = mount(&text("self/mounts")?).ok_or("no cgroup v2 is mounted")?;
        let own = text("self/cgroup")?;
        let own = own_path(&own).ok_or("this process is in no cgroup v2")?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let directory = mount.join(own).join(format!("sipstone-{}-{number}", std::process::id()));
        fs::create_dir(&directory)
            .map_err(|error| format!("cannot make {}: {error}", directory.display()))?;
        let scope = Scope { cgroup: Cgroup { directory } };
        match scope.cgroup.cpu() {
            Ok(_) => Ok(scope),
            Err(error) => Err(format!("{}/cpu.stat: {error}", scope.cgroup.directory.display())),
        }
    }

    /// Moves a process into it; its later children are born there.
    ///
    /// # Errors
    /// The system's: no right, or the process is gone.
    pub(super) fn admit(&self, pid: u32) -> io::Result<()> {
        fs::write(self.cgroup.directory.join("cgroup.procs"), pid.to_string())
    }

    pub(super) fn cgroup(&self) -> &Cgroup {
        &self.cgroup
    }

    /// Ends every process in it at once (`cgroup.kill`, Linux 5.14). They are all the started server's.
    pub(super) fn kill(&self) {
        // Where there is none, the caller ends them one by one.
        let _ = fs::write(self.cgroup.directory.join("cgroup.kill"), "1");
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        let until = Instant::now() + EMPTY_WITHIN;
        while let Err(error) = fs::remove_dir(&self.cgroup.directory) {
            if error.kind() == io::ErrorKind::NotFound {
                return;
            }
            if Instant::now() >= until {
                tracing::warn!(
                    "cannot remove {}: {error}; remove it by hand",
                    self.cgroup.directory.display()
                );
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn procs(directory: &Path) -> io::Result<Vec<u32>> {
    let text = read(&directory.join("cgroup.procs"))?;
    // 0 stands for a process of another pid namespace, which cannot be looked at.
    let pids =
        fields(&text).filter_map(number).filter_map(|pid| u32::try_from(pid).ok()).filter(|&pid| pid > 0);
    Ok(pids.take(PROCESSES_MAX).collect())
}

fn subgroups(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let groups = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    groups.take(GROUPS_MAX).map(|entry| entry.path()).collect()
}

/// `usage_usec` and `user_usec`, which are there whether or not the cpu controller is enabled.
fn parse_cpu_stat(text: &[u8]) -> Option<Cpu> {
    let value = |key: &[u8]| {
        let of = |line: &[u8]| {
            let mut words = fields(line);
            (words.next()? == key).then(|| number(words.next()?))?
        };
        text.split(|&byte| byte == b'\n').find_map(of)
    };
    Some(Cpu { all_us: value(b"usage_usec")?, user_us: value(b"user_usec")? })
}

/// Where version 2 is mounted: `cgroup2 /sys/fs/cgroup cgroup2 rw,… 0 0` (beside version 1, at `unified` below that).
fn mount(mounts: &str) -> Option<PathBuf> {
    let of = |line: &str| {
        let mut words = line.split(' ').skip(1);
        let place = words.next()?;
        // Blanks and the like are written as octal numbers (fstab(5)); nobody mounts cgroups at such a place.
        (words.next()? == "cgroup2" && !place.contains('\\')).then(|| PathBuf::from(place))
    };
    mounts.lines().find_map(of)
}

/// The group of this process, relative to the mount: `0::/user.slice/…`.
fn own_path(cgroups: &str) -> Option<&str> {
    let path = cgroups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    // One outside of what this namespace shows cannot be reached.
    (!path.split('/').any(|part| part == "..")).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::super::fake::{Fake, directory};
    use super::*;

    #[test]
    fn cpu_time_is_read_from_cpu_stat() {
        let text = b"usage_usec 1525429521\nuser_usec 522308783\nsystem_usec 1003120737\nnice_usec 659784\n";
        assert_eq!(parse_cpu_stat(text), Some(Cpu { all_us: 1_525_429_521, user_us: 522_308_783 }));
        for wrong in [
            "",
            "usage_usec 1\n",
            "usage_usec\nuser_usec 1\n",
            "usage_usec x\nuser_usec 1\n",
            "usage_usecs 1\nuser_usec 2",
        ] {
            assert_eq!(parse_cpu_stat(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn processes_of_inner_groups_belong_to_it() {
        let root = directory();
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::write(root.join("cpu.stat"), "usage_usec 5\nuser_usec 2\n").unwrap();
        fs::write(root.join("cgroup.procs"), "12\n3\n0\nx\n").unwrap();
        fs::write(root.join("a/b/cgroup.procs"), "7\n").unwrap();
        let cgroup = Cgroup::open(&Proc::system(), &root).unwrap();
        assert_eq!(cgroup.pids().unwrap(), [3, 7, 12]);
        fs::remove_dir_all(&root).unwrap();
        assert!(cgroup.pids().is_err() && cgroup.cpu().is_err());
    }

    #[test]
    fn a_directory_that_is_no_cgroup_is_refused_with_advice() {
        let root = directory();
        let error = Cgroup::open(&Proc::system(), &root).unwrap_err();
        assert!(error.contains("not a cgroup v2 directory") && error.contains("pid"), "{error}");
        fs::write(root.join("cpu.stat"), "nr_periods 0\n").unwrap();
        assert!(Cgroup::open(&Proc::system(), &root).unwrap_err().contains("usage_usec"));
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn a_relative_path_begins_where_version_2_is_mounted() {
        let fake = Fake::new();
        let mounted = fake.root().join("mnt");
        fs::create_dir_all(mounted.join("x.slice")).unwrap();
        fs::write(mounted.join("x.slice/cpu.stat"), "usage_usec 5\nuser_usec 2\n").unwrap();
        fs::create_dir(fake.root().join("self")).unwrap();
        let open = || Cgroup::open(&fake.proc(), Path::new("x.slice"));
        assert!(open().unwrap_err().contains("no cgroup v2 is mounted"));
        let mounts = format!("cgroup /c cgroup rw,cpu 0 0\ncgroup2 {} cgroup2 rw 0 0\n", mounted.display());
        fs::write(fake.root().join("self/mounts"), mounts).unwrap();
        assert_eq!(open().unwrap().path(), mounted.join("x.slice"));
    }

    #[test]
    fn mounts_and_own_groups_are_found_or_not() {
        let hybrid =
            "cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        assert_eq!(mount(hybrid), Some(PathBuf::from("/sys/fs/cgroup/unified")));
        assert_eq!(mount("cgroup2\ncgroup2 /x\n\nproc /proc proc rw 0 0\n"), None);
        assert_eq!(own_path("4:memory:/m\n0::/user.slice/a b\n"), Some("user.slice/a b"));
        assert_eq!(own_path("0::/\n"), Some(""));
        assert_eq!(own_path("0::/../other\n"), None);
        assert_eq!(own_path("1:cpu:/\n"), None);
    }

    #[test]
    fn where_nothing_is_mounted_no_scope_is_made() {
        let fake = Fake::new();
        assert!(Scope::create(&fake.proc()).is_err());
        fs::create_dir(fake.root().join("self")).unwrap();
        fs::write(fake.root().join("self/mounts"), "").unwrap();
        assert!(Scope::create(&fake.proc()).unwrap_err().contains("no cgroup v2 is mounted"));
    }

    #[test]
    fn a_scope_that_was_made_is_removed() {
        // Whether it can be made depends on the machine; where it can, it must go.
        if let Ok(scope) = Scope::create(&Proc::system()) {
            let path = scope.cgroup().path().to_owned();
            assert!(path.is_dir());
            drop(scope);
            assert!(!path.exists());
        }
    }
}
