//! How many connections a process may have: the limit of open files (`ulimit -n`).

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Files that the process needs besides connections: output, `/proc`, the agents' connections, the threads' own.
const OTHER_FILES: u64 = 128;

/// Raises the limit of open files as far as this process may without privileges; how many connections it allows.
#[must_use]
pub(crate) fn connections_max() -> usize {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return 1024 };
    if soft < hard {
        // Where it is refused the limit stays.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
    let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(soft, |(soft, _)| soft);
    usize::try_from(limit.saturating_sub(OTHER_FILES)).unwrap_or(usize::MAX)
}

/// The sentence for a workload that needs more connections than that.
#[must_use]
pub(crate) fn too_many(needed: usize, allowed: usize) -> String {
    format!(
        "this run keeps {needed} sockets open, and this process may have {allowed} (ulimit -n): raise the limit, or use \
         fewer connections (pool:N), threads or source addresses"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_to_what_is_allowed() {
        let allowed = connections_max();
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        assert_eq!(soft, hard);
        assert!(allowed > 0);
        assert!(too_many(9, 3).contains("ulimit -n"));
    }
}
