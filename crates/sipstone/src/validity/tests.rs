//! Tests of validity: a good trial, and each way to spoil it.

use super::*;
use crate::report::model::LatencyReport;
use crate::scenario::sipstone_mix;
use crate::spec::{Choice, Connections, Links, Scenario, Target, Users};
use std::time::Duration;

fn workload(scenario: Scenario) -> Workload {
    Workload {
        target: Target { address: ([127, 0, 0, 1], 5060).into(), domain: "127.0.0.1".into() },
        links: Links::default(),
        classes: vec![Class::plain(scenario)],
        rate: 1000.0,
        shape: Shape::Poisson,
        users: Users {
            count: 10,
            first: 1,
            name: "user{}".into(),
            password: "password{}".into(),
            listed: Vec::new(),
            choice: Choice::Uniform,
        },
        auth: Auth::None,
        auth_every: false,
        proxy: Proxy::Auto,
        seed: 1,
        warm_up: Duration::from_secs(5),
        measure: Duration::from_secs(120),
        drain: Duration::from_secs(33),
        t1: Duration::from_millis(500),
        t2: Duration::from_secs(4),
        open_operations_max: 1000,
        preamble_window: 10,
        preamble: true,
        expires: 3600,
        trace: false,
    }
}

fn class(name: &str, row: (f64, f64), trying: f64) -> ClassReport {
    ClassReport {
        name: name.into(),
        offered: 120_000,
        succeeded: 120_000,
        success: 1.0,
        latency_sent: LatencyReport { p50_ms: Some(2.0), ..LatencyReport::default() },
        messages_in: row.0,
        messages_out: row.1,
        trying,
        ..ClassReport::default()
    }
}

fn trial(class_report: ClassReport) -> TrialReport {
    let mut trial = TrialReport {
        rate: 1000.0,
        offered_rate: 1001.0,
        throughput: 1000.0,
        warm_up_s: 5.0,
        measure_s: 120.0,
        all: ClassReport { name: "all".into(), ..class_report.clone() },
        classes: vec![class_report],
        ..TrialReport::default()
    };
    trial.generator.utilisation = 0.4;
    trial.generator.send_lag_p99_ms = Some(0.2);
    trial
}

fn good() -> (TrialReport, Workload) {
    (trial(class("invite", (6.0, 7.0), 1.0)), workload(Scenario::Invite))
}

/// The only problem, which must contain all these words.
fn only(trial: &TrialReport, workload: &Workload, words: &[&str]) {
    let problems = check(trial, workload, Purpose::Latency);
    assert_eq!(problems.len(), 1, "{problems:?}");
    for word in words {
        assert!(problems[0].contains(word), "{word:?} is not in {:?}", problems[0]);
    }
}

fn valid(trial: &TrialReport, workload: &Workload) {
    assert_eq!(check(trial, workload, Purpose::Latency), Vec::<String>::new());
}

#[test]
fn a_good_trial_is_valid() {
    let (trial, workload) = good();
    valid(&trial, &workload);
}

#[test]
fn a_late_generator_is_invalid_unless_the_server_is_much_slower() {
    let (mut trial, workload) = good();
    trial.generator.send_lag_p99_ms = Some(1.5);
    only(&trial, &workload, &["1.50 ms", "1.00 ms", "--threads"]);
    trial.all.latency_sent.p50_ms = Some(20.0);
    valid(&trial, &workload);
    trial.generator.send_lag_p99_ms = Some(2.1);
    only(&trial, &workload, &["2.10 ms", "2.00 ms"]);
}

#[test]
fn where_only_cost_is_measured_a_generator_may_be_later() {
    let (mut trial, workload) = good();
    trial.generator.send_lag_p99_ms = Some(49.0);
    assert_eq!(check(&trial, &workload, Purpose::Cost), [""; 0]);
    trial.generator.send_lag_p99_ms = Some(51.0);
    assert!(check(&trial, &workload, Purpose::Cost)[0].contains("50.00 ms"));
    assert_eq!(generator_faults(&trial, &workload, Purpose::Cost).len(), 1);
}

#[test]
fn an_offered_rate_off_by_more_than_chance_is_invalid() {
    let (mut trial, mut workload) = good();
    // 120,000 operations: four deviations are 1.15 %, more than half a percent.
    trial.offered_rate = 1011.0;
    valid(&trial, &workload);
    trial.offered_rate = 985.0;
    only(&trial, &workload, &["985.0/s", "1000.0/s", "1.50 %", "1.15 %"]);
    // Equal gaps have no scatter.
    workload.shape = Shape::Uniform;
    trial.offered_rate = 1004.0;
    valid(&trial, &workload);
    trial.offered_rate = 1006.0;
    only(&trial, &workload, &["0.60 %", "0.50 %"]);
    workload.shape = Shape::Burst { size: 600 };
    valid(&trial, &workload);
}

#[test]
fn a_ramp_is_compared_with_its_mean_over_the_window() {
    let (mut trial, mut workload) = good();
    workload.shape = Shape::Ramp { from: 0.0 };
    // From 0 to 1000/s over 125 s: 520/s in the middle of the window, at 65 s.
    trial.offered_rate = 520.0;
    valid(&trial, &workload);
    trial.offered_rate = 1000.0;
    only(&trial, &workload, &["520.0/s"]);
}

#[test]
fn a_generator_at_its_limits_is_invalid() {
    let (mut trial, workload) = good();
    trial.generator.utilisation = 0.85;
    only(&trial, &workload, &["85 %", "80 %", "--agent"]);
    let (mut trial, _) = good();
    trial.generator.socket_drops = 3;
    only(&trial, &workload, &["3 datagrams", "rmem_max"]);
    let (mut trial, _) = good();
    trial.all.failures.insert("generator-dropped".into(), 7);
    only(&trial, &workload, &["7 operations"]);
}

#[test]
fn auto_accepts_a_stateful_and_a_stateless_proxy() {
    let (_, workload) = good();
    valid(&trial(class("invite", (6.0, 7.0), 1.0)), &workload);
    valid(&trial(class("invite", (6.0, 6.0), 0.0)), &workload);
    valid(&trial(class("invite", (6.0, 6.9995), 0.9995)), &workload);
}

#[test]
fn a_proxy_that_is_both_is_invalid() {
    let (_, workload) = good();
    only(&trial(class("invite", (6.0, 6.7), 0.7)), &workload, &["70.00 %", "neither all nor none"]);
}

#[test]
fn a_stateful_proxy_is_caught_when_the_run_says_stateless_and_the_other_way_round() {
    let (_, mut workload) = good();
    workload.proxy = Proxy::Stateless;
    only(&trial(class("invite", (6.0, 7.0), 1.0)), &workload, &["100.00 %", "none should", "--proxy"]);
    valid(&trial(class("invite", (6.0, 6.0), 0.0)), &workload);
    workload.proxy = Proxy::Stateful;
    only(&trial(class("invite", (6.0, 6.0), 0.0)), &workload, &["0.00 %", "all should"]);
}

#[test]
fn messages_off_the_table_are_invalid() {
    let (_, workload) = good();
    // A B2BUA that sends a 180 of its own.
    only(&trial(class("invite", (6.0, 8.0), 1.0)), &workload, &["6.000", "8.000", "stateful invite is 6+7"]);
    only(&trial(class("invite", (6.01, 7.0), 1.0)), &workload, &["6.010"]);
    let register = super::tests::workload(Scenario::Register);
    valid(&trial(class("register", (1.0, 1.0), 0.0)), &register);
    only(&trial(class("register", (2.0, 2.0), 0.0)), &register, &["register is 1+1"]);
}

#[test]
fn authentication_adds_its_messages() {
    let (_, mut workload) = good();
    workload.auth = Auth::Challenge;
    valid(&trial(class("invite", (8.0, 8.0), 1.0)), &workload);
    only(&trial(class("invite", (6.0, 7.0), 1.0)), &workload, &["8+8"]);
    // Cached: some operations are challenged.
    workload.auth = Auth::Cached;
    valid(&trial(class("invite", (6.2, 7.1), 1.0)), &workload);
    valid(&trial(class("invite", (6.0, 7.0), 1.0)), &workload);
    assert_eq!(check(&trial(class("invite", (9.0, 9.0), 1.0)), &workload, Purpose::Latency).len(), 1);
}

#[test]
fn lost_provisional_responses_are_excused_by_retransmissions_only() {
    let (_, workload) = good();
    let mut lossy = class("invite", (6.0, 6.99), 0.99);
    only(&trial(lossy.clone()), &workload, &["99.00 %"]);
    lossy.retransmissions_sent = 0.015;
    valid(&trial(lossy.clone()), &workload);
    lossy.trying = 0.9;
    only(&trial(lossy.clone()), &workload, &["90.00 %"]);
    // Where more is sent again, the server is overloaded, and its messages say nothing of its kind.
    lossy.retransmissions_sent = 3.0;
    valid(&trial(lossy), &workload);
}

#[test]
fn a_server_in_overload_is_slow_and_not_wrongly_configured() {
    let (_, workload) = good();
    let mut failing = class("invite", (6.0, 6.5), 0.5);
    failing.success = 0.6;
    valid(&trial(failing), &workload);
    let mut nothing = class("invite", (0.0, 0.0), 0.0);
    nothing.succeeded = 0;
    valid(&trial(nothing), &workload);
}

#[test]
fn each_class_of_a_mix_is_checked() {
    let (mut trial, mut workload) = good();
    workload.classes = sipstone_mix();
    trial.classes = vec![class("answered", (6.0, 7.0), 1.0), class("abandoned", (6.0, 9.0), 1.0)];
    only(&trial, &workload, &["abandoned", "9.000"]);
}

#[test]
fn an_empty_trial_has_nothing_to_complain_about_but_its_rate() {
    let (_, workload) = good();
    assert_eq!(check(&TrialReport::default(), &workload, Purpose::Latency), Vec::<String>::new());
    let silent = TrialReport { rate: 1000.0, measure_s: 120.0, ..TrialReport::default() };
    only(&silent, &workload, &["0.0/s instead of 1000.0/s"]);
}

fn with_handshakes(mode: TlsMode, client: (u64, u64), server: (u64, u64)) -> Vec<String> {
    let side = |(full, resumed)| HandshakeReport { full, resumed, ..HandshakeReport::default() };
    let connections =
        ConnectionReport { tls_client: side(client), tls_server: side(server), ..Default::default() };
    let mut workload = workload(Scenario::Invite);
    workload.links.tls.mode = mode;
    handshakes(&connections, &workload)
}

#[test]
fn handshakes_of_the_wrong_kind_make_a_trial_invalid() {
    for mode in [TlsMode::Full, TlsMode::Mutual] {
        assert!(with_handshakes(mode, (1000, 0), (1000, 0)).is_empty());
        let problems = with_handshakes(mode, (1000, 1), (0, 0));
        assert!(problems.len() == 1 && problems[0].contains("as the client"), "{problems:?}");
    }
    assert!(
        with_handshakes(TlsMode::Reuse, (16, 0), (10, 990)).is_empty(),
        "somebody must make the sessions"
    );
    let problems = with_handshakes(TlsMode::Reuse, (20, 980), (500, 500));
    assert_eq!(problems.len(), 2);
    assert!(problems[0].contains("98.0 %") && problems[1].contains("as the server"), "{problems:?}");
}

/// With an address of its own for each callee, as many sessions must be made.
#[test]
fn the_first_handshake_with_each_callee_may_be_full() {
    let side = |(full, resumed)| HandshakeReport { full, resumed, ..HandshakeReport::default() };
    let mut workload = workload(Scenario::Invite);
    workload.links.tls.mode = TlsMode::Reuse;
    workload.links.callee.connections = Connections::PerCall;
    workload.users.count = 100;
    let problems = |callees| {
        let connections = ConnectionReport { tls_server: side(callees), ..Default::default() };
        handshakes(&connections, &workload).len()
    };
    assert_eq!([problems((100, 300)), problems((105, 295)), problems((90, 0))], [0, 1, 1]);
    workload.users.count = 10_000;
    assert_eq!(callee_sessions(&workload), u64::from(CONTACTS_MAX), "users share contacts");
    workload.links.callee.connections = Connections::Pool(3);
    assert_eq!(callee_sessions(&workload), 0, "those connections stay");
}

#[test]
fn connections_that_could_not_be_opened_make_a_trial_invalid() {
    let connections = ConnectionReport { ports_exhausted: 3, files_exhausted: 2, ..Default::default() };
    let problems = exhausted(&connections);
    assert!(problems[0].contains("TIME_WAIT") && problems[0].contains("--source"), "{problems:?}");
    assert!(problems[1].contains("ulimit -n"), "{problems:?}");
}
