//! Which group does what: rates in proportion to the threads that call, users to the threads that answer.

use crate::spec::{Assignment, Role, Workload};
use std::net::IpAddr;

/// What a group has to work with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupSpec {
    /// What it does.
    pub role: Role,
    /// Worker threads, at least one.
    pub threads: u16,
    /// CPUs to pin them to; empty: not pinned.
    pub cpus: Vec<u16>,
    /// Local addresses to send from; empty: the one of the route to the target.
    pub sources: Vec<IpAddr>,
}

/// The share of each group.
///
/// # Errors
/// A sentence: no group calls, none answers where callees are needed, or a group has no thread.
pub fn assignments(workload: &Workload, groups: &[GroupSpec]) -> Result<Vec<Assignment>, String> {
    if let Some(index) = groups.iter().position(|group| group.threads == 0) {
        return Err(format!("group {index} has no worker thread: give it at least one (--threads)"));
    }
    if groups.len() > usize::from(u16::MAX) {
        return Err(format!("{} groups: no more than {} are possible", groups.len(), u16::MAX));
    }
    let threads =
        |group: &GroupSpec, idle: Role| if group.role == idle { 0 } else { u32::from(group.threads) };
    let calling: u32 = groups.iter().map(|group| threads(group, Role::Handler)).sum();
    let answering: u32 = groups.iter().map(|group| threads(group, Role::Loader)).sum();
    if calling == 0 {
        return Err("no group starts operations: give at least one the role `both` or `loader`".into());
    }
    let callees =
        workload.classes.iter().any(|class| class.scenario.facts().callee || class.scenario.facts().preamble);
    if answering == 0 && callees {
        return Err("no group answers calls: give at least one the role `both` or `handler`".into());
    }
    // The n-th part of the users begins where the threads before it end, so that nobody is left over.
    let user = |before: u32| {
        let users = u64::from(workload.users.count) * u64::from(before) / u64::from(answering.max(1));
        u32::try_from(users).unwrap_or(workload.users.count)
    };
    let mut before = 0;
    Ok((0u16..)
        .zip(groups)
        .map(|(index, group)| {
            let after = before + threads(group, Role::Loader);
            let callees = (user(before), user(after) - user(before));
            before = after;
            Assignment {
                workload: workload.clone(),
                group: index,
                rate_share: f64::from(threads(group, Role::Handler)) / f64::from(calling),
                callees,
                role: group.role,
                threads: group.threads,
                cpus: group.cpus.clone(),
                sources: group.sources.clone(),
            }
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::fake::workload;

    fn spec(role: Role, threads: u16) -> GroupSpec {
        GroupSpec { role, threads, ..GroupSpec::default() }
    }

    #[test]
    fn rates_and_users_follow_the_threads() {
        let groups = [spec(Role::Both, 1), spec(Role::Both, 3)];
        let shares = assignments(&workload(), &groups).unwrap();
        assert_eq!(shares.iter().map(|a| a.rate_share).collect::<Vec<_>>(), [0.25, 0.75]);
        assert_eq!(shares.iter().map(|a| a.callees).collect::<Vec<_>>(), [(0, 250), (250, 750)]);
        assert_eq!(shares.iter().map(|a| a.group).collect::<Vec<_>>(), [0, 1]);
    }

    #[test]
    fn loaders_have_no_users_and_handlers_no_rate() {
        let groups = [spec(Role::Loader, 2), spec(Role::Handler, 2), spec(Role::Handler, 1)];
        let shares = assignments(&workload(), &groups).unwrap();
        assert_eq!(shares.iter().map(|a| a.rate_share).collect::<Vec<_>>(), [1.0, 0.0, 0.0]);
        assert_eq!(shares.iter().map(|a| a.callees).collect::<Vec<_>>(), [(0, 0), (0, 666), (666, 334)]);
    }

    #[test]
    fn work_that_nobody_does_is_an_error() {
        assert!(assignments(&workload(), &[]).unwrap_err().contains("no group starts operations"));
        assert!(assignments(&workload(), &[spec(Role::Loader, 1)]).unwrap_err().contains("no group answers"));
        assert!(assignments(&workload(), &[spec(Role::Both, 0)]).unwrap_err().contains("no worker thread"));
    }
}
