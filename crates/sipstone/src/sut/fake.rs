//! A directory that looks like `/proc`, for tests.

use super::procfs::Proc;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Its processes; removed when dropped.
pub(super) struct Fake {
    root: PathBuf,
}

/// One process.
pub(super) struct Entry {
    directory: PathBuf,
    pid: u32,
}

/// What `stat` says of one, in ticks.
#[derive(Clone, Copy)]
pub(super) struct FakeStat<'a> {
    pub(super) name: &'a str,
    pub(super) state: char,
    pub(super) parent: u32,
    pub(super) user: u64,
    pub(super) system: u64,
    pub(super) waited_user: i64,
    pub(super) waited_system: i64,
    pub(super) start: u64,
}

impl FakeStat<'_> {
    pub(super) fn of(parent: u32, user: u64, system: u64) -> FakeStat<'static> {
        let (waited_user, waited_system, start) = (0, 0, 1000);
        FakeStat { name: "server", state: 'S', parent, user, system, waited_user, waited_system, start }
    }

    pub(super) fn waited(mut self, user: i64, system: i64) -> Self {
        (self.waited_user, self.waited_system) = (user, system);
        self
    }
}

/// A new, empty directory.
pub(super) fn directory() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("sipstone-test-{}-{number}", std::process::id()));
    fs::create_dir_all(&path).unwrap();
    path
}

impl Fake {
    pub(super) fn new() -> Fake {
        Fake { root: directory() }
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    pub(super) fn proc(&self) -> Proc {
        Proc::at(&self.root)
    }

    pub(super) fn entry(&self, pid: u32) -> Entry {
        Entry { directory: self.root.join(pid.to_string()), pid }
    }

    pub(super) fn process(&self, pid: u32, name: &str, parent: u32) -> Entry {
        self.entry(pid).stat(FakeStat { name, ..FakeStat::of(parent, 0, 0) })
    }

    pub(super) fn remove(&self, pid: u32) {
        fs::remove_dir_all(self.root.join(pid.to_string())).unwrap();
    }

    pub(super) fn remove_file(&self, pid: u32, name: &str) {
        let path = self.root.join(pid.to_string()).join(name);
        if path.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

impl Entry {
    pub(super) fn file(self, name: &str, text: &str) -> Entry {
        let path = self.directory.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    pub(super) fn stat(self, stat: FakeStat<'_>) -> Entry {
        let FakeStat { name, state, parent, user, system, waited_user, waited_system, start } = stat;
        let line = format!(
            "{} ({name}) {state} {parent} {parent} 1 0 -1 4194304 97 0 0 0 \
             {user} {system} {waited_user} {waited_system} 20 0 1 0 {start} 3133440 360 18446744073709551615 0 0\n",
            self.pid
        );
        self.file("stat", &line)
    }

    /// In pages.
    pub(super) fn memory(self, size: u64, resident: u64, shared: u64) -> Entry {
        self.file("statm", &format!("{size} {resident} {shared} 5 0 123 0\n"))
    }

    pub(super) fn cpu_ns(self, task: u32, ns: u64) -> Entry {
        self.file(&format!("task/{task}/schedstat"), &format!("{ns} 391 5\n"))
    }

    pub(super) fn switches(self, task: u32, voluntary: u64, forced: u64) -> Entry {
        let text = format!(
            "Name:\tserver\nState:\tS (sleeping)\nvoluntary_ctxt_switches:\t{voluntary}\n\
             nonvoluntary_ctxt_switches:\t{forced}\n"
        );
        self.file(&format!("task/{task}/status"), &text)
    }

    pub(super) fn descriptors(mut self, count: u32) -> Entry {
        for fd in 0..count {
            self = self.file(&format!("fd/{fd}"), "");
        }
        self
    }
}
