//! What a set of processes holds: memory, descriptors, threads, context switches.

use super::cpu::Ledger;
use super::procfs::{Proc, Resident, TASKS_MAX};
use std::collections::BTreeMap;
use std::io;

/// Counts processes; remembers the context switches of threads that have ended.
#[derive(Debug, Default)]
pub(super) struct Census {
    switches: Ledger<(u32, u32)>,
    /// Too many threads once, or the kernel does not tell: no count from then on, rather than one that jumps.
    no_switches: bool,
}

/// What they hold together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Count {
    /// Private pages of all, and the shared ones of the process that has most of them: forked processes share their
    /// program and their shared memory, which plain sums would count once for each.
    pub(super) resident_bytes: u64,
    /// `None` when one of them is another user's.
    pub(super) descriptors: Option<u32>,
    pub(super) threads: u32,
    /// `None` when there are more than [`TASKS_MAX`] threads, or the kernel does not tell.
    pub(super) context_switches: Option<u64>,
}

impl Census {
    /// Processes that have ended since `pids` was made count nothing.
    pub(super) fn take(&mut self, proc: &Proc, pids: &[u32]) -> Count {
        let (mut private, mut shared, mut threads) = (0_u64, 0_u64, 0_u32);
        let mut descriptors = Some(0_u32);
        for &pid in pids {
            let Ok(stat) = proc.stat(pid) else { continue };
            if stat.has_ended() {
                continue;
            }
            threads = threads.saturating_add(stat.threads);
            let resident = proc.resident(pid).unwrap_or(Resident { all: 0, shared: 0 });
            private = private.saturating_add(resident.all.saturating_sub(resident.shared));
            shared = shared.max(resident.shared);
            descriptors = match (descriptors, proc.descriptors(pid)) {
                (Some(sum), Some(more)) => Some(sum.saturating_add(more)),
                // Unreadable because it ended just now is no reason to tell nothing of the others.
                (sum, None) if proc.identity(pid).is_none() => sum,
                _ => None,
            };
        }
        let context_switches = self.switches(proc, pids).unwrap_or_else(|_| self.told());
        Count { resident_bytes: private.saturating_add(shared), descriptors, threads, context_switches }
    }

    /// # Errors
    /// They cannot be read now: threads that this look missed have not ended.
    fn switches(&mut self, proc: &Proc, pids: &[u32]) -> io::Result<Option<u64>> {
        let mut now = BTreeMap::new();
        for &pid in pids {
            if self.no_switches {
                break;
            }
            for task in proc.tasks(pid)? {
                now.extend(proc.task_switches(pid, task)?.map(|switches| ((pid, task), switches)));
            }
            self.no_switches |= now.len() >= TASKS_MAX;
        }
        self.switches.update(now);
        Ok(self.told())
    }

    fn told(&self) -> Option<u64> {
        Some(self.switches.total()).filter(|&total| total > 0 && !self.no_switches)
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake::Fake;
    use super::*;

    fn two_processes() -> Fake {
        let fake = Fake::new();
        fake.process(10, "main", 1).memory(1000, 300, 100).switches(10, 5, 7).descriptors(3);
        fake.process(11, "worker", 10).memory(900, 250, 120).switches(11, 1, 2).descriptors(2);
        fake
    }

    #[test]
    fn shared_pages_count_once_and_private_ones_each() {
        let fake = two_processes();
        let count = Census::default().take(&fake.proc(), &[10, 11]);
        assert_eq!(count.resident_bytes, (200 + 130 + 120) * 4096);
        assert_eq!((count.descriptors, count.threads, count.context_switches), (Some(5), 2, Some(15)));
    }

    #[test]
    fn switches_of_a_process_that_ended_stay_counted() {
        let fake = two_processes();
        let mut census = Census::default();
        census.take(&fake.proc(), &[10, 11]);
        fake.remove(11);
        let count = census.take(&fake.proc(), &[10, 11]);
        assert_eq!((count.context_switches, count.threads, count.descriptors), (Some(15), 1, Some(3)));
    }

    #[test]
    fn descriptors_that_may_not_be_read_are_not_told() {
        let fake = two_processes();
        fake.remove_file(11, "fd");
        let count = Census::default().take(&fake.proc(), &[10, 11]);
        assert_eq!((count.descriptors, count.threads), (None, 2));
    }

    #[test]
    fn a_kernel_that_does_not_count_switches_gives_none() {
        let fake = Fake::new();
        fake.process(10, "main", 1).memory(1, 1, 1);
        assert_eq!(Census::default().take(&fake.proc(), &[10]).context_switches, None);
    }

    #[test]
    fn a_malformed_statm_counts_nothing() {
        let fake = Fake::new();
        fake.process(10, "main", 1).file("statm", "12 x\n");
        assert_eq!(Census::default().take(&fake.proc(), &[10]).resident_bytes, 0);
    }
}
