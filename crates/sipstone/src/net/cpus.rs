//! Which CPUs: lists as the kernel writes them (`0,2-5`, cpuset(7) "List format"), those that this process may use, and
//! pinning a thread.
//!
//! Loopback charges the receive path to the sender, so the generator and a server on one host must not share CPUs
//! ([`without`]).

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use std::io;

/// CPUs are numbered below this: what one affinity mask of the C library holds.
pub const CPUS_MAX: u16 = 1024;

/// Why a list of CPUs cannot be read; the sentence says what to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuListError(pub String);

impl std::fmt::Display for CpuListError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for CpuListError {}

/// Reads `0,2-5`: in ascending order, each once. Blanks around numbers are allowed.
///
/// # Errors
/// Anything else, an empty list, a range that runs backwards, a number of [`CPUS_MAX`] or more.
pub fn parse(list: &str) -> Result<Vec<u16>, CpuListError> {
    let wrong = |why: &str| CpuListError(format!("`{list}` is no list of CPUs ({why}); write it like 0,2-5"));
    let number = |text: &str| match text.trim().parse::<u16>() {
        Ok(cpu) if cpu < CPUS_MAX => Ok(cpu),
        Ok(_) => Err(wrong("CPUs are numbered from 0 to 1023")),
        Err(_) => Err(wrong("a number is missing")),
    };
    let mut cpus = Vec::new();
    for part in list.split(',') {
        let (from, to) = match part.split_once('-') {
            Some((from, to)) => (number(from)?, number(to)?),
            None => (number(part)?, number(part)?),
        };
        if from > to {
            return Err(wrong("a range runs backwards"));
        }
        cpus.extend(from..=to);
        // Sorted at every part, so that a long list of overlapping ranges stays below CPUS_MAX.
        cpus.sort_unstable();
        cpus.dedup();
    }
    Ok(cpus)
}

/// The inverse of [`parse`]: `[0, 2, 3, 4]` is `0,2-4`. The list is in ascending order, each CPU once.
#[must_use]
pub fn format(cpus: &[u16]) -> String {
    let mut ranges: Vec<(u16, u16)> = Vec::new();
    for &cpu in cpus {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(cpu) => *last = cpu,
            _ => ranges.push((cpu, cpu)),
        }
    }
    let text = |&(first, last): &(u16, u16)| match last - first {
        0 => first.to_string(),
        _ => format!("{first}-{last}"),
    };
    ranges.iter().map(text).collect::<Vec<_>>().join(",")
}

/// The CPUs that the current thread may use (which is the process's set as long as it has not been pinned).
///
/// # Errors
/// The system's, which it has no reason to give.
pub fn allowed() -> io::Result<Vec<u16>> {
    let set = sched_getaffinity(Pid::from_raw(0))?;
    Ok((0..CPUS_MAX).filter(|&cpu| set.is_set(usize::from(cpu)).unwrap_or(false)).collect())
}

/// Those of `allowed` that the server does not use: the generator's. Empty when the server has them all; generator and
/// server then share, which the report must say.
#[must_use]
pub fn without(allowed: &[u16], server: &[u16]) -> Vec<u16> {
    allowed.iter().copied().filter(|cpu| !server.contains(cpu)).collect()
}

/// Pins the current thread, and the threads and processes that it starts from now on, to these CPUs.
///
/// # Errors
/// `InvalidInput`: an empty list, a number of [`CPUS_MAX`] or more, none of them exists or is allowed here.
pub fn pin(cpus: &[u16]) -> io::Result<()> {
    let mut set = CpuSet::new();
    for &cpu in cpus {
        set.set(usize::from(cpu))?;
    }
    Ok(sched_setaffinity(Pid::from_raw(0), &set)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_list_has_numbers_and_ranges() {
        assert_eq!(parse("0,2-5").unwrap(), [0, 2, 3, 4, 5]);
        assert_eq!(parse("7").unwrap(), [7]);
        assert_eq!(parse(" 3 , 1 - 2 ").unwrap(), [1, 2, 3]);
        assert_eq!(parse("1023").unwrap(), [1023]);
    }

    #[test]
    fn a_cpu_named_twice_counts_once_in_ascending_order() {
        assert_eq!(parse("4,0-2,1,4").unwrap(), [0, 1, 2, 4]);
    }

    #[test]
    fn anything_else_is_refused_with_an_example() {
        for wrong in ["", ",", "1,", "a", "-1", "1-", "5-2", "1024", "0-1024", "65536", "1-2-3", "0x1", "1;2"]
        {
            let error = parse(wrong).expect_err(wrong).0;
            assert!(error.contains("0,2-5"), "{error}");
        }
    }

    #[test]
    fn a_long_list_of_overlapping_ranges_stays_small() {
        let list = vec!["0-1023"; 2000].join(",");
        assert_eq!(parse(&list).unwrap().len(), usize::from(CPUS_MAX));
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(set in proptest::collection::btree_set(0u16..CPUS_MAX, 1..40)) {
            let cpus: Vec<u16> = set.into_iter().collect();
            prop_assert_eq!(parse(&format(&cpus)).unwrap(), cpus);
        }
    }

    #[test]
    fn the_generator_gets_what_the_server_leaves() {
        assert_eq!(without(&[0, 1, 2, 3], &[1, 9]), [0, 2, 3]);
        assert_eq!(without(&[0, 1], &[]), [0, 1]);
        assert!(without(&[0, 1], &[0, 1]).is_empty());
    }

    #[test]
    fn a_pinned_thread_may_use_its_cpu_only() {
        let before = allowed().unwrap();
        let last = *before.last().expect("this thread runs somewhere");
        std::thread::spawn(move || {
            pin(&[last]).unwrap();
            assert_eq!(allowed().unwrap(), [last]);
        })
        .join()
        .unwrap();
        assert_eq!(allowed().unwrap(), before, "other threads stay as they were");
    }

    #[test]
    fn no_cpu_at_all_is_an_error() {
        assert_eq!(pin(&[]).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(pin(&[u16::MAX]).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
