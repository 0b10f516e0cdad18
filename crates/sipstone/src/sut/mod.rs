//! Watching the server under test: CPU time, memory, descriptors, lost datagrams.
//!
//! CPU time comes from a cgroup (version 2) where there is one of the server's own, else from the process tree; both
//! count since the server's start, so a run takes differences. Looks are meant to be about a second apart.

mod census;
mod cgroup;
mod cpu;
mod exec;
#[cfg(test)]
mod fake;
mod procfs;
mod tree;
mod udp;
mod words;

pub(crate) use udp::UDP_LOOKS_MAX;
pub use udp::{Listener, listening};

use crate::net::cpus;
use crate::report::model::ServerFacts;
use census::Census;
use cgroup::Cgroup;
use cpu::Cpu;
use exec::Running;
use procfs::{Proc, is_gone};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tree::{Tree, TreeError};

/// How the server is found or started.
#[derive(Clone, Debug, PartialEq)]
pub enum Watch {
    /// A running process and its children (`--sut-pid`).
    Pid(u32),
    /// A cgroup v2 directory (`--sut-cgroup`).
    Cgroup(PathBuf),
    /// A command that sipstone starts itself (`--sut-exec`), in a cgroup of its own where that is allowed.
    Exec {
        /// As a shell would split it; no shell runs.
        command: String,
        /// CPUs to pin it to (`--sut-cpu`); empty: not pinned.
        cpus: Vec<u16>,
        /// Longest time until something listens on the target's port.
        ready_within: Duration,
    },
}

/// One look at the server; counters since its start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// When.
    pub at: Instant,
    /// CPU time, user and system.
    pub cpu_us: u64,
    /// Of that in user mode, where the source tells.
    pub cpu_user_us: Option<u64>,
    /// Resident memory of all processes, bytes.
    pub resident_bytes: u64,
    /// Open descriptors of all processes.
    pub descriptors: Option<u32>,
    /// Datagrams that its sockets on the target's port lost.
    pub udp_drops: Option<u64>,
    /// Context switches of all threads.
    pub context_switches: Option<u64>,
    /// Threads of all processes.
    pub threads: u32,
}

/// How long a started server that shows no process any more may take to tell how it ended.
const ENDED_WITHIN: Duration = Duration::from_secs(1);

/// The server under test. One that sipstone started is ended when this is dropped.
#[derive(Debug)]
pub struct Server {
    watch: Watch,
    target: SocketAddr,
    proc: Proc,
    source: Source,
    census: Census,
    drops: udp::Drops,
    facts: ServerFacts,
    running: Option<Running>,
}

/// Where CPU time is read.
#[derive(Debug)]
enum Source {
    Tree(Tree),
    Cgroup(Cgroup),
}

/// Why the server cannot be watched, or went away; the sentence says what to do.
#[derive(Debug)]
pub struct SutError(pub String);

impl std::fmt::Display for SutError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SutError {}

impl Server {
    /// Finds or starts it. `target` is the address whose port the server is expected to have.
    ///
    /// # Errors
    /// No such process, a command that cannot be started, stops at once or never listens.
    pub fn start(watch: &Watch, target: SocketAddr) -> Result<Server, SutError> {
        let proc = Proc::system();
        let (source, running) = match watch {
            Watch::Pid(pid) => (Source::Tree(found(&proc, *pid)?), None),
            Watch::Cgroup(path) => (Source::Cgroup(group(&proc, path)?), None),
            Watch::Exec { command, cpus, ready_within } => {
                let running = Running::start(&proc, command, cpus, target, *ready_within)?;
                let source = match running.cgroup() {
                    Some(cgroup) => Source::Cgroup(cgroup.clone()),
                    None => Source::Tree(found(&proc, running.pid())?),
                };
                (source, Some(running))
            }
        };
        let facts = facts(watch, &proc, &source, running.as_ref());
        let (watch, census, drops) = (watch.clone(), Census::default(), udp::Drops::default());
        Ok(Server { watch, target, proc, source, census, drops, facts, running })
    }

    /// For the report. `same_host` is true: what can be watched here runs here. Where only agents on other hosts make
    /// load, the caller says otherwise.
    #[must_use]
    pub fn facts(&self) -> ServerFacts {
        self.facts.clone()
    }

    /// What the reader of the report should know of the way the server is watched.
    #[must_use]
    pub fn remark(&self) -> Option<String> {
        let why = self.running.as_ref()?.no_cgroup()?;
        Some(format!(
            "The server's CPU time is the sum over its processes: it has no cgroup of its own ({why})."
        ))
    }

    /// Looks at it. Takes about 0.1 ms and 20 µs more for every thread.
    ///
    /// # Errors
    /// It has ended: for one that sipstone started, how, and what it wrote last. A process tree that became too large.
    pub fn sample(&mut self) -> Result<Sample, SutError> {
        let looked = self.look();
        // How it ended and what it wrote says more than that it is not there. It may be about to end: its threads and its
        // place in the cgroup go before its parent is told.
        if let Some(running) = &mut self.running {
            let patience = if looked.is_err() { ENDED_WITHIN } else { Duration::ZERO };
            running.check("while it was watched", patience)?;
        }
        looked
    }

    fn look(&mut self) -> Result<Sample, SutError> {
        let cpu = self.cpu()?;
        let at = Instant::now();
        let pids = self.pids()?;
        if let (Some(running), Source::Tree(tree)) = (&mut self.running, &self.source) {
            running.saw(tree.members());
        }
        let count = self.census.take(&self.proc, &pids);
        let lives_with = self.facts.pid.filter(|pid| pids.contains(pid)).or_else(|| pids.first().copied());
        let udp_drops = lives_with.and_then(|pid| self.drops.look(&self.proc, pid, self.target));
        Ok(Sample {
            at,
            cpu_us: cpu.all_us,
            cpu_user_us: Some(cpu.user_us.min(cpu.all_us)),
            resident_bytes: count.resident_bytes,
            descriptors: count.descriptors,
            udp_drops,
            context_switches: count.context_switches,
            threads: count.threads,
        })
    }

    /// Ends the started server and starts it anew (`--sut-restart`); an error for one that was only found.
    ///
    /// # Errors
    /// As [`Server::start`]; or it does not end.
    pub fn restart(&mut self) -> Result<(), SutError> {
        let Some(running) = &mut self.running else {
            return Err(SutError(
                "sipstone restarts only a server that it started itself: give --sut-exec, or leave out --sut-restart."
                    .to_owned(),
            ));
        };
        running.stop()?;
        *self = Server::start(&self.watch, self.target)?;
        Ok(())
    }

    /// Whether sipstone started it and so may end it.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.running.is_some()
    }

    fn cpu(&mut self) -> Result<Cpu, SutError> {
        match &mut self.source {
            Source::Tree(tree) => tree.look(&self.proc).map_err(|error| tree_error(tree.pid(), &error)),
            Source::Cgroup(cgroup) => cgroup.cpu().map_err(|error| cgroup_error(cgroup, &error)),
        }
    }

    fn pids(&self) -> Result<Vec<u32>, SutError> {
        match &self.source {
            Source::Tree(tree) => Ok(tree.members().map(|who| who.pid).collect()),
            Source::Cgroup(cgroup) => inhabitants(cgroup),
        }
    }
}

fn found(proc: &Proc, pid: u32) -> Result<Tree, SutError> {
    Tree::new(proc, pid).map_err(|error| tree_error(pid, &error))
}

fn group(proc: &Proc, path: &Path) -> Result<Cgroup, SutError> {
    let cgroup =
        Cgroup::open(proc, path).map_err(|why| SutError(format!("The server cannot be watched: {why}.")))?;
    inhabitants(&cgroup)?;
    Ok(cgroup)
}

/// Its processes: at least one.
fn inhabitants(cgroup: &Cgroup) -> Result<Vec<u32>, SutError> {
    let pids = cgroup.pids().map_err(|error| cgroup_error(cgroup, &error))?;
    if pids.is_empty() {
        let path = cgroup.path().display();
        return Err(SutError(format!(
            "No process is in the cgroup {path}: start the server, or see why it ended."
        )));
    }
    Ok(pids)
}

fn tree_error(pid: u32, error: &TreeError) -> SutError {
    SutError(match error {
        TreeError::Ended => format!("The server (process {pid}) has ended."),
        TreeError::TooMany => {
            format!(
                "The process {pid} has too many children to look at each: give its cgroup (--sut-cgroup)."
            )
        }
        TreeError::Unreadable(error) if is_gone(error) => format!(
            "There is no process {pid} to be seen in /proc. Give the pid of the server's first process \
             (pgrep -o NAME); where /proc is mounted with hidepid, run sipstone as the server's user."
        ),
        TreeError::Unreadable(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            format!(
                "The process {pid} may not be looked at ({error}): run sipstone as the server's user or as root."
            )
        }
        TreeError::Unreadable(error) => format!("The process {pid} cannot be looked at: {error}."),
    })
}

fn cgroup_error(cgroup: &Cgroup, error: &io::Error) -> SutError {
    SutError(match is_gone(error) {
        true => format!("The cgroup {} is gone: the server has ended.", cgroup.path().display()),
        false => format!("The cgroup {} cannot be looked at: {error}.", cgroup.path().display()),
    })
}

fn facts(watch: &Watch, proc: &Proc, source: &Source, running: Option<&Running>) -> ServerFacts {
    let (method, first) = match source {
        Source::Tree(tree) => ("process tree", Some(tree.pid())),
        Source::Cgroup(cgroup) => ("cgroup", cgroup.pids().ok().and_then(|pids| pids.first().copied())),
    };
    let (command, pid, cpus) = match watch {
        Watch::Exec { command, cpus, .. } => (Some(command.clone()), running.map(Running::pid), cpus.clone()),
        Watch::Pid(pid) => (None, Some(*pid), first.map_or_else(Vec::new, |pid| pinned(proc, pid))),
        Watch::Cgroup(_) => (None, None, first.map_or_else(Vec::new, |pid| pinned(proc, pid))),
    };
    ServerFacts { method: method.to_owned(), command, pid, cpus, same_host: true }
}

/// The CPUs that a process is held to; none when it may use every one that there is.
fn pinned(proc: &Proc, pid: u32) -> Vec<u16> {
    let listed = |text: String| cpus::parse(text.trim()).ok();
    let allowed = proc.cpus_allowed(pid).and_then(listed).unwrap_or_default();
    let online =
        std::fs::read_to_string("/sys/devices/system/cpu/online").ok().and_then(listed).unwrap_or_default();
    match cpus::without(&online, &allowed).is_empty() {
        true => Vec::new(),
        false => allowed,
    }
}

#[cfg(test)]
mod tests;
