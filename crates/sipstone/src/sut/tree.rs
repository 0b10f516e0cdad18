//! CPU time of a process and all its descendants, none of it lost when one of them ends.
//!
//! Of each process: the sum of its threads' `schedstat` (nanoseconds), raised to what `stat` says (whole ticks, but
//! threads that ended between two looks are in it). User and system are told apart by `stat` only.
//!
//! When a process ends, its last known time passes to its parent; the parent's own count of children it waited for
//! (`cutime`, `cstime` of `stat`) replaces that when it is more, which it is as soon as the parent has waited: it holds
//! the time after the last look and children that lived between two looks too. A parent that ignores its children's end
//! (`SIGCHLD` ignored) has no such count; then only what a child used after the last look is lost.
//!
//! Once in the tree, a process stays in it, even when its parent has ended and another process has adopted it.

use super::cpu::{Cpu, Ledger};
use super::procfs::{Identity, Proc, TASKS_MAX, is_gone};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;

/// Most processes that are watched; a server that has more is an error (watch its cgroup).
const PROCESSES_MAX: usize = 16_384;

/// Why a tree cannot be looked at.
#[derive(Debug)]
pub(super) enum TreeError {
    /// Its first process has ended.
    Ended,
    /// It has more than [`PROCESSES_MAX`] processes.
    TooMany,
    /// `/proc` cannot be read.
    Unreadable(io::Error),
}

/// The tree.
#[derive(Debug)]
pub(super) struct Tree {
    root: Identity,
    /// Parents before their children, so that a child that is waited for during a look is not counted with both.
    members: Vec<Member>,
    /// Time of ended processes that had been adopted by a process outside the tree.
    adrift: Cpu,
    /// The most that was ever told: it never goes back, though the kernel rounds `cutime` down to ticks.
    highest: Cpu,
}

#[derive(Debug)]
struct Member {
    who: Identity,
    parent: u32,
    /// It runs no more, but its parent has not asked for it yet.
    ended: bool,
    threads: Threads,
    own: Cpu,
    waited: Cpu,
    /// `waited` at the first look plus what children had used that ended since, as far as it was seen.
    seen_to_end: Cpu,
}

/// Nanoseconds of a process's threads.
#[derive(Debug, Default)]
struct Threads {
    ledger: Ledger<u32>,
    /// Too many threads once: from then on, `stat` alone.
    ticks_only: bool,
}

impl Threads {
    fn look(&mut self, proc: &Proc, pid: u32, ticks_us: u64) -> u64 {
        match self.times(proc, pid) {
            Ok(times) => {
                if let Some(times) = times {
                    self.ledger.update(times);
                }
                self.ledger.raise_to(ticks_us.saturating_mul(1000));
                self.ledger.total() / 1000
            }
            // A look that failed (no descriptor was free) is left out: threads that it missed have not ended, so what
            // the ticks have more is theirs and must not be counted with them again.
            Err(_) => (self.ledger.total() / 1000).max(ticks_us),
        }
    }

    fn times(&mut self, proc: &Proc, pid: u32) -> io::Result<Option<BTreeMap<u32, u64>>> {
        let tasks = if self.ticks_only { Vec::new() } else { proc.tasks(pid)? };
        self.ticks_only |= tasks.len() >= TASKS_MAX;
        if self.ticks_only {
            return Ok(None);
        }
        let mut times = BTreeMap::new();
        for task in tasks {
            times.extend(proc.task_cpu_ns(pid, task)?.map(|ns| (task, ns)));
        }
        Ok(Some(times))
    }
}

impl Member {
    /// `None` when it has ended meanwhile.
    fn first(proc: &Proc, pid: u32) -> Option<Member> {
        let stat = proc.stat(pid).ok()?;
        let mut member = Member {
            who: Identity { pid, start_ticks: stat.start_ticks },
            parent: stat.parent,
            ended: false,
            threads: Threads::default(),
            own: Cpu::default(),
            waited: Cpu::default(),
            seen_to_end: stat.waited,
        };
        member.look(proc).then_some(member)
    }

    /// False when it is gone. One that has ended but was not waited for yet is still there, with its time.
    fn look(&mut self, proc: &Proc) -> bool {
        let stat = match proc.stat(self.who.pid) {
            Ok(stat) if stat.start_ticks == self.who.start_ticks => stat,
            Ok(_) => return false,
            // What cannot be read now (no descriptor is free) has not ended: it shows what it showed last.
            Err(error) => return !is_gone(&error),
        };
        let all_us = self.threads.look(proc, self.who.pid, stat.own.all_us);
        self.parent = stat.parent;
        self.ended = stat.has_ended();
        self.own = self.own.or_more(Cpu { all_us, user_us: stat.own.user_us });
        self.waited = self.waited.or_more(stat.waited);
        true
    }

    fn cpu(&self) -> Cpu {
        self.own.plus(self.waited.or_more(self.seen_to_end))
    }
}

impl Tree {
    /// # Errors
    /// See [`TreeError`].
    pub(super) fn new(proc: &Proc, pid: u32) -> Result<Tree, TreeError> {
        proc.stat(pid).map_err(TreeError::Unreadable)?;
        let root = Member::first(proc, pid).filter(|root| !root.ended).ok_or(TreeError::Ended)?;
        let (adrift, highest) = (Cpu::default(), Cpu::default());
        let mut tree = Tree { root: root.who, members: vec![root], adrift, highest };
        tree.adopt(proc)?;
        Ok(tree)
    }

    /// CPU time since the start of the processes; never less than at the look before.
    ///
    /// # Errors
    /// See [`TreeError`].
    pub(super) fn look(&mut self, proc: &Proc) -> Result<Cpu, TreeError> {
        let mut gone = Vec::new();
        for mut member in std::mem::take(&mut self.members) {
            let place = if member.look(proc) { &mut self.members } else { &mut gone };
            place.push(member);
        }
        self.settle(&gone);
        if self.members.first().is_none_or(|first| first.who != self.root || first.ended) {
            return Err(TreeError::Ended);
        }
        self.adopt(proc)?;
        let sum = self.members.iter().fold(self.adrift, |sum, member| sum.plus(member.cpu()));
        self.highest = self.highest.or_more(sum);
        Ok(self.highest)
    }

    /// The first process.
    pub(super) fn pid(&self) -> u32 {
        self.root.pid
    }

    /// The processes of the last look.
    pub(super) fn members(&self) -> impl Iterator<Item = Identity> {
        self.members.iter().map(|member| member.who)
    }

    /// Passes the time of each that is gone to its nearest ancestor that is still there.
    fn settle(&mut self, gone: &[Member]) {
        let parents: HashMap<u32, u32> = gone.iter().map(|member| (member.who.pid, member.parent)).collect();
        let places: HashMap<u32, usize> =
            self.members.iter().enumerate().map(|(place, member)| (member.who.pid, place)).collect();
        for member in gone {
            let mut ancestor = member.parent;
            // As many steps as there are ended ones at most: process numbers used again could make a ring.
            for _ in gone {
                match parents.get(&ancestor) {
                    Some(&next) if !places.contains_key(&ancestor) => ancestor = next,
                    _ => break,
                }
            }
            let heir = places.get(&ancestor).and_then(|&place| self.members.get_mut(place));
            let account = heir.map_or(&mut self.adrift, |heir| &mut heir.seen_to_end);
            *account = account.plus(member.cpu());
        }
    }

    /// Finds the children, and theirs, that came since the last look.
    fn adopt(&mut self, proc: &Proc) -> Result<(), TreeError> {
        let kinship = proc.kinship().map_err(TreeError::Unreadable)?;
        let mut known: BTreeSet<u32> = self.members.iter().map(|member| member.who.pid).collect();
        let mut place = 0;
        while let Some(parent) = self.members.get(place).map(|member| member.who.pid) {
            for child in kinship.children(parent) {
                if !known.insert(child) {
                    continue;
                }
                if self.members.len() >= PROCESSES_MAX {
                    return Err(TreeError::TooMany);
                }
                self.members.extend(Member::first(proc, child));
            }
            place += 1;
        }
        Ok(())
    }
}

/// The living descendants of a process, without it, as they are now.
pub(super) fn descendants(proc: &Proc, pid: u32) -> Vec<Identity> {
    let Ok(kinship) = proc.kinship() else { return Vec::new() };
    let mut found: BTreeMap<u32, Option<Identity>> = BTreeMap::from([(pid, None)]);
    let mut open = vec![pid];
    while let Some(parent) = open.pop() {
        for child in kinship.children(parent) {
            if found.len() <= PROCESSES_MAX && !found.contains_key(&child) {
                found.insert(child, proc.identity(child));
                open.push(child);
            }
        }
    }
    found.into_values().flatten().collect()
}

#[cfg(test)]
#[path = "tree_tests.rs"]
mod tests;
