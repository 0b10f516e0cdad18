//! A server that sipstone starts itself: in a process group and (where that is allowed) a cgroup of its own, pinned,
//! its output in a file; and its end, which nothing but what was started may feel.
//!
//! Its first process is not waited for until all is over (`WNOWAIT`): until then the kernel gives its number to nobody
//! else, so a signal to it or to its group reaches no stranger.

use super::cgroup::{Cgroup, Scope};
use super::procfs::{Identity, Proc};
use super::{SutError, tree, udp, words};
use crate::net::cpus;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// From SIGTERM to SIGKILL.
const TERM_WITHIN: Duration = Duration::from_secs(5);
/// From SIGKILL until the end is given up: a process that hangs in the kernel.
const KILL_WITHIN: Duration = Duration::from_secs(5);
/// How often it is asked whether it listens, or has ended.
const POLL: Duration = Duration::from_millis(20);
/// Lines of its output that an error quotes, characters of each, and bytes of the file that are looked at for them.
const QUOTED_LINES: usize = 5;
const QUOTED_CHARS: usize = 200;
const QUOTED_BYTES: u64 = 8192;
/// Names of output files that are tried when others exist.
const LOG_NAMES_MAX: u32 = 100;
/// Times that its processes are looked for after the first was moved into the cgroup.
const SWEEPS_MAX: u32 = 10;

/// A started server. Ended when dropped.
#[derive(Debug)]
pub(super) struct Running {
    proc: Proc,
    child: Child,
    group: Pid,
    log: Log,
    scope: Option<Scope>,
    /// Why there is no scope.
    no_scope: Option<String>,
    /// Processes of it that were seen, to be ended though they may have left the process group.
    seen: Vec<Identity>,
    over: bool,
}

impl Running {
    /// Starts it and waits until it listens.
    ///
    /// # Errors
    /// See [`super::Server::start`].
    pub(super) fn start(
        proc: &Proc,
        command: &str,
        cpus: &[u16],
        target: SocketAddr,
        ready_within: Duration,
    ) -> Result<Running, SutError> {
        let words = words::split(command).map_err(|why| {
            SutError(format!("The command of --sut-exec cannot be split into words: {why}."))
        })?;
        if let Some(other) = udp::listening(target) {
            return Err(SutError(format!(
                "{other} listens on UDP {target} already. Stop it, or watch it with --sut-pid instead of \
                 starting another server with --sut-exec."
            )));
        }
        let log = Log::create()?;
        let child = spawn(&words, cpus, &log)?;
        let mut running = Running::new(proc.clone(), child, log);
        running.enclose();
        running.wait_until_ready(target, ready_within)?;
        Ok(running)
    }

    fn new(proc: Proc, child: Child, log: Log) -> Running {
        let pid =
            i32::try_from(child.id()).expect("invariant: process numbers are below 2^22 (PID_MAX_LIMIT)");
        // A group of 0 would be our own, of 1 everybody's.
        assert!(pid > 1, "invariant: a child is neither the scheduler nor init");
        let group = Pid::from_raw(pid);
        Running { proc, child, group, log, scope: None, no_scope: None, seen: Vec::new(), over: false }
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its own cgroup, if it has one.
    pub(super) fn cgroup(&self) -> Option<&Cgroup> {
        self.scope.as_ref().map(Scope::cgroup)
    }

    /// Why it has none.
    pub(super) fn no_cgroup(&self) -> Option<&str> {
        self.no_scope.as_deref()
    }

    /// The processes that a look found to belong to it, all that there are now.
    pub(super) fn saw(&mut self, seen: impl Iterator<Item = Identity>) {
        self.seen.clear();
        self.seen.extend(seen);
    }

    /// Whether it runs; one that is expected to end is given some time to do so.
    ///
    /// # Errors
    /// It has ended: how, and what it said last.
    pub(super) fn check(&mut self, when: &str, patience: Duration) -> Result<(), SutError> {
        let until = Instant::now() + patience;
        let how = loop {
            match ending(self.group) {
                Some(how) => break how,
                None if Instant::now() >= until => return Ok(()),
                None => std::thread::sleep(POLL),
            }
        };
        Err(self.told(&format!("The server that sipstone started has ended ({how}) {when}.")))
    }

    /// Moves it into a cgroup of its own. It has run for some microseconds by then; those are counted nowhere, and a
    /// run counts differences only.
    fn enclose(&mut self) {
        let made = Scope::create(&self.proc).and_then(|scope| {
            let moved = scope.admit(self.pid());
            moved.map(|()| scope).map_err(|error| format!("cannot move a process into a new cgroup: {error}"))
        });
        match made {
            Ok(scope) => {
                // Children that it started before are moved too; later ones are born there.
                for _ in 0..SWEEPS_MAX {
                    let inside = scope.cgroup().pids().unwrap_or_default();
                    let mut outside = tree::descendants(&self.proc, self.pid());
                    outside.retain(|child| !inside.contains(&child.pid));
                    // Failing means that it has ended.
                    let moved = outside.iter().filter(|child| scope.admit(child.pid).is_ok()).count();
                    if moved == 0 {
                        break;
                    }
                }
                self.scope = Some(scope);
            }
            Err(why) => self.no_scope = Some(why),
        }
    }

    fn wait_until_ready(&mut self, target: SocketAddr, within: Duration) -> Result<(), SutError> {
        let until = Instant::now() + within;
        loop {
            self.note_descendants();
            let listens = udp::is_listening(&self.proc, self.pid(), target);
            let background = "If it goes into the background, tell it to stay in the foreground";
            let when = format!("before it was ready on {target}. {background} (kamailio: -DD)");
            self.check(&when, Duration::ZERO)?;
            if listens {
                return Ok(());
            }
            if Instant::now() >= until {
                return Err(self.told(&format!(
                    "The server that sipstone started does not listen on {target} after {within:?}, and was \
                     ended. Let its configuration listen there, or give it more time."
                )));
            }
            std::thread::sleep(POLL);
        }
    }

    /// The sentence, and its last lines; the file with all of them is kept.
    fn told(&mut self, sentence: &str) -> SutError {
        self.log.keep = true;
        let lines = self.log.last_lines();
        let path = self.log.path.display();
        SutError(match lines.is_empty() {
            true => format!("{sentence} It wrote nothing (to {path})."),
            false => format!("{sentence} Its last lines, of {path}:\n  {}", lines.join("\n  ")),
        })
    }

    /// Ends it: SIGTERM to its group, SIGKILL after 5 s to all that is left. Does nothing the second time.
    ///
    /// # Errors
    /// It does not end, even so.
    pub(super) fn stop(&mut self) -> Result<(), SutError> {
        if std::mem::replace(&mut self.over, true) {
            return Ok(());
        }
        self.note_descendants();
        self.signal(Signal::SIGTERM);
        if !self.ends_within(TERM_WITHIN) {
            self.signal(Signal::SIGKILL);
            if !self.ends_within(KILL_WITHIN) {
                return Err(self.told(&format!(
                    "The server that sipstone started (pid {}) does not end, even on SIGKILL. End it by hand.",
                    self.pid()
                )));
            }
        }
        // Only now is its number free again.
        let _ = self.child.try_wait();
        Ok(())
    }

    /// To its process group, and to processes of it that have left the group.
    fn signal(&self, signal: Signal) {
        if is_reserved(self.group) {
            // ESRCH: all of the group has ended.
            let _ = killpg(self.group, signal);
        }
        for who in self.left() {
            let outside = self.proc.stat(who.pid).is_ok_and(|stat| stat.group != self.pid());
            if let (true, Ok(pid)) = (outside, i32::try_from(who.pid)) {
                let _ = kill(Pid::from_raw(pid), signal);
            }
        }
        // At once, so that none can start another meanwhile.
        if let (Signal::SIGKILL, Some(scope)) = (signal, &self.scope) {
            scope.kill();
        }
    }

    fn note_descendants(&mut self) {
        for who in tree::descendants(&self.proc, self.pid()) {
            if !self.seen.contains(&who) {
                self.seen.push(who);
            }
        }
    }

    fn ends_within(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        loop {
            if ending(self.group).is_some() && self.left().is_empty() {
                return true;
            }
            if Instant::now() >= until {
                return false;
            }
            std::thread::sleep(POLL);
        }
    }

    /// Its processes that still run, without the first one.
    fn left(&self) -> Vec<Identity> {
        let in_scope = self.cgroup().and_then(|cgroup| cgroup.pids().ok()).unwrap_or_default();
        let in_group = self.proc.group(self.pid());
        let found = in_scope.into_iter().chain(in_group).filter_map(|pid| self.proc.identity(pid));
        let seen = self.seen.iter().copied().filter(|who| self.proc.lives(*who));
        found.chain(seen).filter(|who| who.pid != self.pid()).collect()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            tracing::warn!("{error}");
        }
    }
}

/// Starts it from a thread of its own, whose CPUs it inherits: so nothing has to be put back.
fn spawn(words: &[String], cpus: &[u16], log: &Log) -> Result<Child, SutError> {
    let (program, arguments) =
        words.split_first().ok_or_else(|| SutError("No command was given.".to_owned()))?;
    let (output, errors) = (log.writer()?, log.writer()?);
    let start = || {
        if !cpus.is_empty() {
            let list = cpus::format(cpus);
            let cannot = |error| {
                format!("It cannot be pinned to the CPUs {list} ({error}); give others to --sut-cpu.")
            };
            cpus::pin(cpus).map_err(cannot)?;
        }
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(output).stderr(errors).process_group(0);
        command.spawn().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => "There is no such program; give its path.".to_owned(),
            _ => format!("The system says: {error}."),
        })
    };
    let started = std::thread::scope(|scope| scope.spawn(start).join());
    let started = started.unwrap_or_else(|_| Err("The thread that starts it panicked.".to_owned()));
    started.map_err(|why| SutError(format!("The server `{program}` cannot be started. {why}")))
}

/// How a child of ours is; if it has ended, it is left to be waited for.
fn state(pid: Pid) -> Result<WaitStatus, Errno> {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    loop {
        match waitid(Id::Pid(pid), flags) {
            Err(Errno::EINTR) => {}
            other => return other,
        }
    }
}

/// Whether the number is still our child's: it runs, or was not waited for yet.
fn is_reserved(pid: Pid) -> bool {
    state(pid) != Err(Errno::ECHILD)
}

/// How a child of ours ended, if it has.
fn ending(pid: Pid) -> Option<String> {
    match state(pid) {
        Ok(WaitStatus::StillAlive) => None,
        Ok(WaitStatus::Exited(_, status)) => Some(format!("exit status {status}")),
        Ok(WaitStatus::Signaled(_, signal, true)) => Some(format!("by {signal}, core dumped")),
        Ok(WaitStatus::Signaled(_, signal, false)) => Some(format!("by {signal}")),
        // A signal that the library has no name for, or somebody else has waited for it.
        Ok(_) | Err(_) => Some("nobody knows how".to_owned()),
    }
}

/// Where its output goes. Removed in the end, unless an error named it.
#[derive(Debug)]
struct Log {
    path: PathBuf,
    keep: bool,
}

impl Log {
    /// A new file, for this user only, in the directory for temporary files.
    fn create() -> Result<Log, SutError> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let directory = std::env::temp_dir();
        let mut last = None;
        for _ in 0..LOG_NAMES_MAX {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = directory.join(format!("sipstone-server-{}-{number}.log", std::process::id()));
            // Never one that exists: in a directory that all may write to it may be somebody's link.
            match OpenOptions::new().append(true).create_new(true).mode(0o600).open(&path) {
                Ok(_) => return Ok(Log { path, keep: false }),
                Err(error) => last = Some(error),
            }
        }
        let why = last.map_or_else(String::new, |error| format!(": {error}"));
        let directory = directory.display();
        Err(SutError(format!("No file for the server's output can be made in {directory}{why}. Set TMPDIR.")))
    }

    fn writer(&self) -> Result<File, SutError> {
        let opened = OpenOptions::new().append(true).open(&self.path);
        opened.map_err(|error| SutError(format!("Cannot write to {}: {error}.", self.path.display())))
    }

    /// At most [`QUOTED_LINES`] of at most [`QUOTED_CHARS`], without control characters.
    fn last_lines(&self) -> Vec<String> {
        let mut bytes = Vec::new();
        if let Ok(mut file) = File::open(&self.path) {
            let length = file.metadata().map_or(0, |data| data.len());
            // What cannot be read cannot be quoted; the error names the file.
            let _ = file.seek(SeekFrom::Start(length.saturating_sub(QUOTED_BYTES)));
            let _ = file.take(QUOTED_BYTES).read_to_end(&mut bytes);
        }
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        let clean = |line: &&str| line.chars().filter(|c| !c.is_control()).take(QUOTED_CHARS).collect();
        lines[lines.len().saturating_sub(QUOTED_LINES)..].iter().map(clean).collect()
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        if !self.keep {
            // One that is gone already is as good.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
#[path = "exec_tests.rs"]
pub(super) mod tests;
