//! Child processes: ending them, and waiting for their end with a limit.

use std::fs::{self, DirEntry};
use std::io;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How often a condition outside this process is looked at.
pub(crate) const POLL: Duration = Duration::from_millis(10);

/// Runs a child to its end.
pub(crate) fn output(command: &mut Command) -> io::Result<Output> {
    command.stdin(Stdio::null()).output()
}

/// The signals that tests send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Asks a server to finish what is in flight and stop.
    Terminate,
    /// What Ctrl-C sends.
    Interrupt,
    /// Asks a server to read its files again.
    HangUp,
}

/// What a process uses of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Memory that is resident, in kB (proc(5), `VmRSS`).
    pub resident_kb: u64,
    /// Open descriptors.
    pub descriptors: usize,
}

impl Usage {
    /// Of the process with this id.
    ///
    /// # Panics
    ///
    /// When there is none.
    pub fn of(id: u32) -> Self {
        let status = fs::read_to_string(format!("/proc/{id}/status")).expect("the process runs");
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let resident_kb = resident.and_then(|text| text.trim().split(' ').next()?.parse().ok());
        let descriptors = fs::read_dir(format!("/proc/{id}/fd")).expect("the process is ours").count();
        Self { resident_kb: resident_kb.expect("Linux tells the resident memory in kB"), descriptors }
    }
}

/// What is behind each descriptor of the process with this id: a path, or a socket with its line of
/// `/proc/net/tcp` (proc(5): local and remote address in hexadecimal, state 01 established, 08 closed by the
/// peer, 0A listening).
///
/// # Panics
///
/// When there is no such process.
pub(crate) fn open_files(id: u32) -> String {
    let tables = ["tcp", "tcp6"].map(|name| fs::read_to_string(format!("/proc/{id}/net/{name}")));
    let tables: String = tables.into_iter().flatten().collect();
    let behind = |entry: DirEntry| {
        let link = fs::read_link(entry.path()).ok()?.display().to_string();
        let inode = link.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']'));
        let line =
            inode.and_then(|inode| tables.lines().find(|line| line.split_whitespace().nth(9) == Some(inode)));
        Some(format!("{} {link} {}\n", entry.file_name().display(), line.unwrap_or_default()))
    };
    let entries = fs::read_dir(format!("/proc/{id}/fd")).expect("the process is ours");
    entries.flatten().filter_map(behind).collect()
}

/// Sends a signal to a child of ours.
///
/// # Panics
///
/// When there is no shell to do it.
pub fn signal(child: &Child, signal: Signal) {
    let name = match signal {
        Signal::Terminate => "TERM",
        Signal::Interrupt => "INT",
        Signal::HangUp => "HUP",
    };
    let line = format!("kill -s {name} {}", child.id());
    // A child that has just ended by itself is no failure of the test.
    let _ = output(Command::new("sh").args(["-c", &line])).expect("sh sends signals");
}

/// Waits until the child ends; `None` when it has not within the limit.
///
/// # Panics
///
/// When the operating system does not know the child.
pub fn wait_for_exit(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let status = || child.try_wait().transpose();
    poll(limit, status)
        .map(|status: io::Result<ExitStatus>| status.expect("a child of ours can be waited for"))
}

/// Asks until there is an answer; `None` when there was none within the limit.
pub(crate) fn poll<T>(limit: Duration, mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(answer) = ask() {
            return Some(answer);
        }
        if Instant::now() >= deadline {
            return None;
        }
        thread::sleep(POLL);
    }
}
