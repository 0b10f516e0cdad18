//! What the kernel tells of processes: the files below `/proc` (proc(5)), read with limits and from any root.
//!
//! A process may end between any two reads; that is an ordinary answer here ([`is_gone`]), never a failure of all.

use super::cpu::Cpu;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// More of one file than this is not read: what is sought stands far before.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Threads of one process that are looked at one by one; above it, what only they show is not told.
pub(super) const TASKS_MAX: usize = 65_536;
/// Entries of `/proc`, and of a process's descriptors, that are looked at.
pub(super) const ENTRIES_MAX: usize = 1 << 20;
/// Clock ticks a second and bytes of a page where the kernel does not say (`/proc/self/auxv`).
const TICKS_PER_S: u64 = 100;
const PAGE_BYTES: u64 = 4096;
const AT_PAGESZ: u64 = 6;
const AT_CLKTCK: u64 = 17;

/// A process and its time of start, in ticks since the boot: together never used again, as its number alone may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) pid: u32,
    pub(super) start_ticks: u64,
}

/// `/proc/PID/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stat {
    /// `R`, `S`, `Z`, …
    pub(super) state: u8,
    pub(super) parent: u32,
    pub(super) group: u32,
    /// CPU time of all its threads, ended ones too, in whole ticks.
    pub(super) own: Cpu,
    /// CPU time of its children that have ended and that it has waited for, with theirs.
    pub(super) waited: Cpu,
    pub(super) threads: u32,
    pub(super) start_ticks: u64,
}

impl Stat {
    /// It does not run any more; it is kept only until its parent asks how it ended.
    pub(super) fn has_ended(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x')
    }
}

/// Resident memory of a process, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Resident {
    pub(super) all: u64,
    /// Of that: pages of files and shared memory, which other processes may have too.
    pub(super) shared: u64,
}

/// `/proc`, or a directory that looks like it.
#[derive(Clone, Debug)]
pub(super) struct Proc {
    root: PathBuf,
    ticks_per_s: u64,
    page_bytes: u64,
    /// Whether the size of `PID/fd` is the number of descriptors (Linux 6.2): reading a directory of 100,000 entries
    /// every second would disturb what is measured.
    fd_sizes: bool,
    /// Whether there are `task/TID/children` (a kernel option); otherwise all processes are asked for their parents.
    children_files: bool,
}

/// Whose child is whose, at one moment.
pub(super) enum Kinship<'a> {
    Files(&'a Proc),
    Scanned(BTreeMap<u32, Vec<u32>>),
}

/// Whether a read failed because the process has ended (ESRCH where it was open already).
pub(super) fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(nix::errno::Errno::ESRCH as i32)
}

/// `None` instead of the error that says that the process has ended.
fn unless_gone<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

impl Proc {
    /// The system's.
    pub(super) fn system() -> Proc {
        let root = PathBuf::from("/proc");
        let auxv = read(&root.join("self/auxv")).unwrap_or_default();
        let ticks_per_s = auxiliary(&auxv, AT_CLKTCK).unwrap_or(TICKS_PER_S);
        let page_bytes = auxiliary(&auxv, AT_PAGESZ).unwrap_or(PAGE_BYTES);
        let fd_sizes = fs::metadata(root.join("self/fd")).is_ok_and(|fd| fd.len() > 0);
        let children_files = root.join("thread-self/children").exists();
        Proc { root, ticks_per_s, page_bytes, fd_sizes, children_files }
    }

    /// A directory with the same files, for tests: 100 ticks a second, pages of 4096 bytes.
    #[cfg(test)]
    pub(super) fn at(root: &Path) -> Proc {
        let root = root.to_owned();
        Proc { root, ticks_per_s: 100, page_bytes: 4096, fd_sizes: false, children_files: false }
    }

    fn of(&self, pid: u32) -> PathBuf {
        self.root.join(pid.to_string())
    }

    /// # Errors
    /// No such process, or its `stat` is no such file (`InvalidData`).
    pub(super) fn stat(&self, pid: u32) -> io::Result<Stat> {
        let text = read(&self.of(pid).join("stat"))?;
        parse_stat(&text, self.ticks_per_s).ok_or_else(|| malformed(pid, "stat"))
    }

    /// Who it is, as long as it has not ended.
    pub(super) fn identity(&self, pid: u32) -> Option<Identity> {
        let stat = self.stat(pid).ok().filter(|stat| !stat.has_ended())?;
        Some(Identity { pid, start_ticks: stat.start_ticks })
    }

    /// Whether this very process has not ended.
    pub(super) fn lives(&self, who: Identity) -> bool {
        self.identity(who.pid) == Some(who)
    }

    /// # Errors
    /// As [`Proc::stat`].
    pub(super) fn resident(&self, pid: u32) -> io::Result<Resident> {
        let text = read(&self.of(pid).join("statm"))?;
        let pages: Option<Vec<u64>> = fields(&text).skip(1).take(2).map(number).collect();
        match pages.as_deref() {
            Some(&[all, shared]) => {
                let bytes = |pages: u64| pages.saturating_mul(self.page_bytes);
                Ok(Resident { all: bytes(all), shared: bytes(shared.min(all)) })
            }
            _ => Err(malformed(pid, "statm")),
        }
    }

    /// Its threads, at most [`TASKS_MAX`]; none when it is gone.
    ///
    /// # Errors
    /// As [`Proc::task_cpu_ns`].
    pub(super) fn tasks(&self, pid: u32) -> io::Result<Vec<u32>> {
        let tasks = unless_gone(numeric_entries(&self.of(pid).join("task"), TASKS_MAX))?;
        Ok(tasks.unwrap_or_default())
    }

    fn task_file(&self, pid: u32, task: u32, name: &str) -> io::Result<Vec<u8>> {
        read(&self.root.join(format!("{pid}/task/{task}/{name}")))
    }

    /// CPU time of one thread, nanoseconds; `None` when it has ended or the kernel keeps no scheduler statistics.
    ///
    /// # Errors
    /// It cannot be read now, which says nothing of the thread.
    pub(super) fn task_cpu_ns(&self, pid: u32, task: u32) -> io::Result<Option<u64>> {
        let schedstat = unless_gone(self.task_file(pid, task, "schedstat"))?;
        Ok(schedstat.and_then(|text| number(fields(&text).next()?)))
    }

    /// Context switches of one thread, voluntary and forced.
    ///
    /// # Errors
    /// As [`Proc::task_cpu_ns`].
    pub(super) fn task_switches(&self, pid: u32, task: u32) -> io::Result<Option<u64>> {
        let status = unless_gone(self.task_file(pid, task, "status"))?;
        Ok(status.and_then(|status| {
            let voluntary = number(status_value(&status, b"voluntary_ctxt_switches:")?)?;
            let forced = number(status_value(&status, b"nonvoluntary_ctxt_switches:")?)?;
            Some(voluntary.saturating_add(forced))
        }))
    }

    /// CPUs that its main thread may use, as a list (`0-3`).
    pub(super) fn cpus_allowed(&self, pid: u32) -> Option<String> {
        let status = read(&self.of(pid).join("status")).ok()?;
        Some(String::from_utf8_lossy(status_value(&status, b"Cpus_allowed_list:")?).into_owned())
    }

    /// Its name: the program's, cut to 15 bytes by the kernel.
    pub(super) fn name(&self, pid: u32) -> Option<String> {
        let name = read(&self.of(pid).join("comm")).ok()?;
        Some(String::from_utf8_lossy(name.trim_ascii()).chars().filter(|c| !c.is_control()).collect())
    }

    /// Its open descriptors (at most [`ENTRIES_MAX`] are counted); `None` when it is another user's.
    pub(super) fn descriptors(&self, pid: u32) -> Option<u32> {
        let directory = self.of(pid).join("fd");
        // Listing it is what needs the right; its size alone is told to everybody.
        let mut entries = fs::read_dir(&directory).ok()?;
        if self.fd_sizes {
            return u32::try_from(fs::metadata(&directory).ok()?.len()).ok();
        }
        u32::try_from(entries.by_ref().take(ENTRIES_MAX).count()).ok()
    }

    /// The process that has this socket open; `None` when it is another user's or there is none.
    pub(super) fn socket_holder(&self, inode: u64) -> Option<u32> {
        let link = format!("socket:[{inode}]");
        let holds = |pid: &u32| {
            let Ok(entries) = fs::read_dir(self.of(*pid).join("fd")) else { return false };
            let mut targets =
                entries.take(ENTRIES_MAX).flatten().filter_map(|fd| fs::read_link(fd.path()).ok());
            targets.any(|target| target.as_os_str() == link.as_str())
        };
        self.all().ok()?.into_iter().find(holds)
    }

    /// The UDP tables of the network namespace that the process lives in (`None`: this thread's), IPv4 and IPv6.
    pub(super) fn udp_tables(&self, pid: Option<u32>) -> [PathBuf; 2] {
        let net = pid.map_or_else(|| self.root.join("thread-self"), |pid| self.of(pid)).join("net");
        [net.join("udp"), net.join("udp6")]
    }

    /// The same of TCP.
    pub(super) fn tcp_tables(&self, pid: u32) -> [PathBuf; 2] {
        let net = self.of(pid).join("net");
        [net.join("tcp"), net.join("tcp6")]
    }

    /// A file directly below the root: `self/mounts`, `self/cgroup`.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn file(&self, path: &str) -> io::Result<String> {
        Ok(String::from_utf8_lossy(&read(&self.root.join(path))?).into_owned())
    }

    /// All processes; at most [`ENTRIES_MAX`].
    ///
    /// # Errors
    /// `/proc` is not mounted.
    pub(super) fn all(&self) -> io::Result<Vec<u32>> {
        numeric_entries(&self.root, ENTRIES_MAX)
    }

    /// The living processes of a process group.
    pub(super) fn group(&self, group: u32) -> Vec<u32> {
        let belongs = |pid: &u32| self.stat(*pid).is_ok_and(|stat| stat.group == group && !stat.has_ended());
        self.all().unwrap_or_default().into_iter().filter(belongs).collect()
    }

    /// # Errors
    /// `/proc` is not mounted.
    pub(super) fn kinship(&self) -> io::Result<Kinship<'_>> {
        if self.children_files {
            return Ok(Kinship::Files(self));
        }
        let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for pid in self.all()? {
            if let Ok(stat) = self.stat(pid) {
                children.entry(stat.parent).or_default().push(pid);
            }
        }
        Ok(Kinship::Scanned(children))
    }

    fn children(&self, pid: u32) -> Vec<u32> {
        let mut children = Vec::new();
        for task in self.tasks(pid).unwrap_or_default() {
            let text = self.task_file(pid, task, "children").unwrap_or_default();
            children.extend(fields(&text).filter_map(number).filter_map(|child| u32::try_from(child).ok()));
        }
        children
    }
}

impl Kinship<'_> {
    /// The children of a process. The kernel may leave one out while another ends; it is found at the next look.
    pub(super) fn children(&self, pid: u32) -> Vec<u32> {
        match self {
            Kinship::Files(proc) => proc.children(pid),
            Kinship::Scanned(children) => children.get(&pid).cloned().unwrap_or_default(),
        }
    }
}

/// The file, at most [`FILE_BYTES_MAX`] of it.
pub(super) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(2048);
    File::open(path)?.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn malformed(pid: u32, file: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("/proc/{pid}/{file} has not the form that proc(5) describes"),
    )
}

fn numeric_entries(directory: &Path, max: usize) -> io::Result<Vec<u32>> {
    let names = fs::read_dir(directory)?.take(max).flatten();
    Ok(names.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}

pub(super) fn fields(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty())
}

/// A decimal number and nothing else.
pub(super) fn number(field: &[u8]) -> Option<u64> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

/// The rest of the line of `status` that begins with `key`.
fn status_value<'a>(status: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    status.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(key)).map(<[u8]>::trim_ascii)
}

/// A value of the auxiliary vector (getauxval(3)): pairs of machine words.
fn auxiliary(auxv: &[u8], key: u64) -> Option<u64> {
    const WORD: usize = size_of::<usize>();
    let word = |bytes: &[u8]| Some(usize::from_ne_bytes(bytes.try_into().ok()?) as u64);
    let pair = auxv.chunks_exact(2 * WORD).find(|pair| word(&pair[..WORD]) == Some(key))?;
    word(&pair[WORD..]).filter(|&value| value > 0)
}

/// proc_pid_stat(5). The name, in parentheses, may hold anything but a NUL: blanks, line ends, parentheses; so the
/// fields are counted from the last `)`.
fn parse_stat(text: &[u8], ticks_per_s: u64) -> Option<Stat> {
    let after_name = text.iter().rposition(|&byte| byte == b')')? + 1;
    let field: Vec<&[u8]> = fields(text.get(after_name..)?).take(20).collect();
    // Numbered from 1 in the manual, where the state is the third.
    let at = |manual: usize| field.get(manual - 3).copied();
    let ticks = |manual: usize| number(at(manual)?).map(|ticks| ticks_to_us(ticks, ticks_per_s));
    let small = |manual: usize| u32::try_from(number(at(manual)?)?).ok();
    // Those of children are signed in the kernel's format; a negative one is its fault and worth nothing.
    let child_ticks = |manual: usize| match at(manual)? {
        [b'-', ..] => Some(0),
        _ => ticks(manual),
    };
    Some(Stat {
        state: *at(3)?.first()?,
        parent: small(4)?,
        group: small(5)?,
        own: Cpu::of_user_and_system(ticks(14)?, ticks(15)?),
        waited: Cpu::of_user_and_system(child_ticks(16)?, child_ticks(17)?),
        threads: small(20)?,
        start_ticks: number(at(22)?)?,
    })
}

fn ticks_to_us(ticks: u64, ticks_per_s: u64) -> u64 {
    u64::try_from(u128::from(ticks) * 1_000_000 / u128::from(ticks_per_s.max(1))).unwrap_or(u64::MAX)
}
