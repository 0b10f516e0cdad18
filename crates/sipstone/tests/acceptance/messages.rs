//! The messages of each operation, and proxies that are not what they are said to be.

use crate::rig::{Conditions, Rig, Seen, call_id, judged, workload};
use crate::server::{Front, Kind, Server};
use sipstone::criterion::Criterion;
use sipstone::report::assemble::RawTrial;
use sipstone::report::model::TrialReport;
use sipstone::scenario;
use sipstone::spec::{Auth, Proxy, Role, Scenario, Workload};
use sipstone::validity;
use std::collections::HashSet;
use std::time::Duration;

const KINDS: [(Kind, Proxy); 2] = [(Kind::Stateless, Proxy::Stateless), (Kind::Stateful, Proxy::Stateful)];

fn load(scenario: Scenario) -> Workload {
    let mut load = workload(scenario, 200.0, Duration::from_secs(2));
    load.classes[0].cancel_after = Duration::from_millis(50);
    load
}

/// One trial with two workers, whose users call each other.
fn trial(load: &Workload, kind: Kind, conditions: Conditions) -> (Rig, RawTrial, TrialReport) {
    let redirect = load.classes[0].scenario == Scenario::Redirect;
    let mut rig = Rig::new(load, 2, Server::of_kind(Front::Prompt, kind, redirect)).watch();
    let raw = rig.trial("run", conditions, None);
    let report = judged(&raw, &Criterion::default());
    (rig, raw, report)
}

/// All succeeded, with exactly the messages of the table.
fn exact(report: &TrialReport, scenario: Scenario, proxy: Proxy) {
    let expected = scenario.messages(proxy, Auth::None, false);
    assert!(report.all.offered > 300, "{scenario:?}: {}", report.all.offered);
    assert_eq!(report.all.succeeded, report.all.offered, "{scenario:?} {proxy:?}: {:?}", report.all.failures);
    let off = (report.all.messages_in - f64::from(expected.0)).abs()
        + (report.all.messages_out - f64::from(expected.1)).abs();
    let seen = (report.all.messages_in, report.all.messages_out);
    assert!(off < 1e-9, "{scenario:?} {proxy:?}: {seen:?} instead of {expected:?}");
    let trying = proxy == Proxy::Stateful && scenario.facts().messages.2;
    assert_eq!(report.all.trying, f64::from(u8::from(trying)), "{scenario:?} {proxy:?}");
    assert_eq!(report.invalid, [""; 0], "{scenario:?} {proxy:?}");
}

/// How many datagrams carry a message that had been there before: the same first line, Call-ID and CSeq. (Not byte by
/// byte: a late ACK is written anew, with another branch.)
fn repeats(seen: &[Seen]) -> u64 {
    let mut known = HashSet::new();
    let message = |seen: &Seen| {
        let text = std::str::from_utf8(&seen.bytes).unwrap();
        let field = |name| text.split("\r\n").find(|line| line.starts_with(name)).unwrap();
        [text.split("\r\n").next().unwrap(), field("Call-ID:"), field("CSeq:")].join("\n")
    };
    let again = seen.iter().filter(|seen| !known.insert((seen.local, message(seen))));
    again.count().try_into().unwrap()
}

#[test]
fn every_scenario_has_the_messages_of_the_table_with_both_kinds_of_proxy() {
    for scenario in scenario::ALL {
        for (kind, proxy) in KINDS {
            let load = Workload { proxy, ..load(scenario) };
            let (rig, raw, report) = trial(&load, kind, Conditions::default());
            exact(&report, scenario, proxy);
            // What passed the network, counted without any knowledge of operations, is the same number.
            let offered: u64 = raw.seconds.iter().map(|(_, tally)| tally.classes[0].offered).sum();
            let expected = scenario.messages(proxy, Auth::None, false);
            let passed = [rig.sent.len(), rig.received.len()].map(|count| u64::try_from(count).unwrap());
            assert_eq!(
                passed,
                [expected.0, expected.1].map(|each| u64::from(each) * offered),
                "{scenario:?} {proxy:?}"
            );
            assert_eq!((report.all.retransmissions_sent, report.all.retransmissions_received), (0.0, 0.0));
        }
    }
}

#[test]
fn datagrams_that_come_twice_are_retransmissions_and_no_messages() {
    for scenario in scenario::ALL {
        for (kind, proxy) in KINDS {
            let load = Workload { proxy, ..load(scenario) };
            let (rig, raw, report) =
                trial(&load, kind, Conditions { doubled: 0.05, ..Conditions::default() });
            exact(&report, scenario, proxy);
            let mut counted = (0, 0);
            for (_, tally) in &raw.seconds {
                counted.0 += tally.classes[0].retransmissions_received + tally.generator.strays;
                counted.1 += tally.classes[0].retransmissions_sent;
            }
            let seen = (repeats(&rig.received), repeats(&rig.sent));
            assert!(seen.0 > 20, "{scenario:?}: {seen:?}");
            assert_eq!(counted, seen, "{scenario:?} {proxy:?}: repeats received and sent");
        }
    }
}

#[test]
fn a_proxy_that_is_not_of_the_kind_that_the_run_says_is_caught() {
    let with_calls = scenario::ALL.into_iter().filter(|scenario| scenario.facts().messages.2);
    for scenario in with_calls {
        for (kind, said) in [(Kind::Stateful, Proxy::Stateless), (Kind::Stateless, Proxy::Stateful)] {
            let load = Workload { proxy: said, ..load(scenario) };
            let (_, _, report) = trial(&load, kind, Conditions::default());
            let [problem] = report.invalid.as_slice() else { panic!("{scenario:?}: {:?}", report.invalid) };
            assert!(problem.contains("--proxy"), "{problem}");
            // The same trial is valid where nothing was said.
            assert_eq!(
                validity::check(
                    &report,
                    &Workload { proxy: Proxy::Auto, ..load },
                    validity::Purpose::Latency
                ),
                [""; 0]
            );
        }
    }
}

#[test]
fn a_server_that_treats_calls_in_two_ways_is_caught_whatever_the_run_says() {
    for proxy in [Proxy::Auto, Proxy::Stateless, Proxy::Stateful] {
        let load = Workload { proxy, ..load(Scenario::Invite) };
        let (_, _, report) = trial(&load, Kind::Half, Conditions::default());
        assert_eq!(report.all.success, 1.0);
        assert_eq!(report.invalid.len(), 1, "{proxy:?}: {:?}", report.invalid);
    }
}

#[test]
fn groups_on_several_hosts_exchange_the_messages_of_the_table() {
    let loader_and_handler = [(Role::Loader, 1.0, (0, 0)), (Role::Handler, 0.0, (0, 200))];
    let three_alike = [0, 1, 2].map(|n| (Role::Both, 1.0 / 3.0, (n * 66, 66 + 2 * (n / 2))));
    for groups in [&loader_and_handler[..], &three_alike[..]] {
        for scenario in
            [Scenario::Invite, Scenario::InviteCancel, Scenario::Message, Scenario::RegisterUpdate]
        {
            let load = Workload { proxy: Proxy::Stateless, ..load(scenario) };
            let mut rig = Rig::of_groups(&load, groups, Server::new(Front::Prompt)).watch();
            let raw = rig.trial("run", Conditions::default(), None);
            exact(&judged(&raw, &Criterion::default()), scenario, Proxy::Stateless);
            let first =
                rig.sent.iter().filter(|seen| seen.planned.is_some()).map(|seen| call_id(&seen.bytes));
            let (mut count, mut ids) = (0, HashSet::new());
            first.for_each(|id| (count, _) = (count + 1, ids.insert(id)));
            assert_eq!(ids.len(), count, "{scenario:?}: two operations have one Call-ID");
        }
    }
}
