//! Tests of the local group on loopback, against the null server.

use super::*;
use crate::net::socket::Socket;
use crate::null::{Behaviour, serve};
use crate::report::model::{Second, TrialReport};
use crate::spec::{Class, Connections, Scenario, Tls, Transport, Workload};
use crate::trial::fake::workload;
use crate::trial::{Conductor, GroupSpec, TrialError};
use crate::view::View;

struct Nothing;

impl View for Nothing {
    fn begin(&mut self, _: &str, _: Option<Duration>) {}
    fn registering(&mut self, _: u32, _: u32, _: u32) {}
    fn second(&mut self, _: &Second, _: f64, _: bool) {}
    fn trial(&mut self, _: &TrialReport) {}
    fn note(&mut self, _: &str) {}
    fn end(&mut self) {}
}

fn null() -> serve::Serving {
    let behaviour = Behaviour { redirect: false, trying: true, cap: None };
    serve::start("127.0.0.1:0".parse().unwrap(), behaviour, None).unwrap()
}

/// One second at 200 operations a second towards `address`.
fn short(scenario: Scenario, address: SocketAddr) -> Workload {
    let mut short = workload();
    short.target.address = address;
    short.target.domain = address.to_string();
    short.classes = vec![Class::plain(scenario)];
    short.rate = 200.0;
    short.users.count = 100;
    short.warm_up = Duration::from_millis(100);
    short.measure = Duration::from_secs(1);
    short.drain = Duration::from_secs(33);
    short
}

fn conductor(groups: &[u16]) -> Conductor {
    let group = |threads: &u16| {
        let local: Box<dyn Group> = Box::new(LocalGroup::new());
        (GroupSpec { threads: *threads, ..GroupSpec::default() }, local)
    };
    Conductor::new(groups.iter().map(group).collect(), None, Arc::default())
}

#[test]
fn calls_against_the_null_server_all_succeed() {
    let server = null();
    let raw =
        conductor(&[1]).run(&short(Scenario::Invite, server.address()), "run", None, &mut Nothing).unwrap();
    let class = &raw.measured.classes[0];
    // Poisson: 200 ± 5 standard deviations.
    assert!((130..=270).contains(&class.offered), "{}", class.offered);
    assert_eq!((class.succeeded, class.failed()), (class.offered, 0), "{:?}", class.failures);
    let generator = &raw.measured.generator;
    assert_eq!((generator.send_lag.count(), generator.socket_drops), (class.offered, 0));
    assert_eq!((class.caller_messages_in, class.trying), (3 * class.succeeded, class.succeeded));
    // On a machine that stood still for T1, what was sent twice is answered twice.
    assert!(generator.strays <= 4 * class.retransmissions_sent, "{}", generator.strays);
    assert!(generator.cpu_us > 0 && generator.wall_us > 0, "{} {}", generator.cpu_us, generator.wall_us);
    let sum = |of: fn(&crate::tally::Tally) -> u64| raw.seconds.iter().map(|(_, t)| of(t)).sum::<u64>();
    let (all, sent) = (sum(|tally| tally.classes[0].offered), sum(|tally| tally.generator.datagrams_sent));
    assert!(all >= class.offered && sent >= 6 * all, "{sent} datagrams for {all} calls");
    assert_eq!(raw.seconds.iter().map(|(second, _)| *second).take(2).collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn workers_and_groups_call_each_other() {
    let server = null();
    let mut workload = short(Scenario::Invite, server.address());
    workload.measure = Duration::from_millis(500);
    for groups in [&[2][..], &[2, 1]] {
        let raw = conductor(groups).run(&workload, "run", None, &mut Nothing).unwrap();
        let class = &raw.measured.classes[0];
        assert!(class.offered > 0);
        assert_eq!((class.succeeded, class.failed()), (class.offered, 0), "{:?}", class.failures);
        // Callees know nothing of the window of the group that calls, but over all seconds nothing is lost, except what a
        // group answers after its own calls have ended.
        let sum = |of: fn(&crate::tally::ClassTally) -> u64| {
            raw.seconds.iter().map(|(_, t)| of(&t.classes[0])).sum::<u64>()
        };
        let (ended, succeeded) = (sum(|class| class.callee_ended), sum(|class| class.succeeded));
        assert!(ended == succeeded || groups.len() > 1 && ended < succeeded, "{ended} {succeeded}");
    }
}

#[test]
fn a_loader_calls_the_users_of_a_handler_from_several_sources() {
    let server = null();
    let mut workload = short(Scenario::Invite, server.address());
    workload.measure = Duration::from_millis(500);
    let mut conductor = conductor(&[1, 1]);
    conductor.specs[0].role = Role::Loader;
    conductor.specs[1].role = Role::Handler;
    for spec in &mut conductor.specs {
        spec.sources = vec![[127, 0, 0, 1].into(), [127, 0, 0, 2].into()];
    }
    let raw = conductor.run(&workload, "run", None, &mut Nothing).unwrap();
    let class = &raw.measured.classes[0];
    assert!(class.offered > 0);
    assert_eq!((class.succeeded, class.failed()), (class.offered, 0), "{:?}", class.failures);
}

#[test]
fn sockets_and_registrations_stay_from_trial_to_trial() {
    let server = null();
    let mut conductor = conductor(&[1]);
    let mut workload = short(Scenario::Invite, server.address());
    workload.measure = Duration::from_millis(200);
    for _ in 0..2 {
        let raw = conductor.run(&workload, "run", None, &mut Nothing).unwrap();
        assert_eq!(raw.measured.classes[0].failed(), 0);
    }
    assert_eq!(server.counters().register, 100, "the second trial needs no preamble");
}

#[test]
fn a_port_where_nothing_listens_is_told_in_the_preamble_and_without_one() {
    let nobody = Socket::bind("127.0.0.1:0".parse().unwrap()).unwrap().local();
    for scenario in [Scenario::Invite, Scenario::Options] {
        let error = conductor(&[1]).run(&short(scenario, nobody), "run", None, &mut Nothing).unwrap_err();
        let TrialError::Setup(sentence, _) = *error else { panic!("{error:?}") };
        assert!(sentence.starts_with(&format!("nothing listens on udp:{nobody}")), "{sentence}");
    }
}

#[test]
fn a_stop_without_drain_ends_a_trial_at_once() {
    let server = null();
    let mut workload = short(Scenario::Options, server.address());
    workload.measure = Duration::from_secs(60);
    let begun = Instant::now();
    let enough = |measured: &[(u64, u64, u64)]| measured[0].0 >= 50;
    let raw = conductor(&[2]).run(&workload, "ramp", Some(&enough), &mut Nothing).unwrap();
    assert!(raw.ended_early && begun.elapsed() < Duration::from_secs(20));
    assert!(raw.measured.classes[0].succeeded > 0);
}

#[test]
fn a_thread_that_cannot_work_becomes_a_problem() {
    let mut group = LocalGroup::new();
    let mut prepare = |cpus: Vec<u16>, sources: Vec<IpAddr>, threads| {
        let assignment = Assignment {
            workload: workload(),
            group: 0,
            rate_share: 1.0,
            callees: (0, 10),
            role: Role::Both,
            threads,
            cpus,
            sources,
        };
        group.send(Command::Prepare(Box::new(assignment))).unwrap();
        group.receive(Duration::from_secs(5)).unwrap().unwrap()
    };
    let problem = |event| match event {
        Event::Problem { message } => message,
        other => panic!("{other:?}"),
    };
    assert!(problem(prepare(vec![1000], vec![], 1)).contains("CPU 1000"));
    assert!(problem(prepare(vec![], vec!["203.0.113.1".parse().unwrap()], 1)).contains("--source"));
    assert!(problem(prepare(vec![], vec!["::1".parse().unwrap()], 1)).contains("same family"));
    assert!(problem(prepare(vec![], vec![], 0)).contains("--threads"));
    // After all that it still works.
    assert!(matches!(prepare(vec![], vec![], 2), Event::Prepared { contacts } if contacts.len() == 2));
}

#[test]
fn a_group_without_threads_says_nothing_and_answers_pings() {
    let mut group = LocalGroup::default();
    assert_eq!(group.receive(Duration::from_millis(1)).unwrap(), None);
    group.send(Command::Stop { drain: true }).unwrap();
    group.send(Command::Ping { token: 9 }).unwrap();
    assert!(matches!(group.receive(Duration::ZERO).unwrap(), Some(Event::Pong { token: 9, .. })));
}

#[test]
fn calls_go_over_every_transport_on_shared_connections_and_on_their_own() {
    use Connections::{PerCall, PerTransaction, Pool, Single};
    for (transport, caller, callee) in [
        (Transport::Tcp, Single, Single),
        (Transport::Tcp, PerCall, PerCall),
        (Transport::Tcp, PerTransaction, Pool(3)),
        (Transport::Tls, Pool(2), Single),
        (Transport::Ws, PerCall, Pool(2)),
        (Transport::Wss, Single, Single),
    ] {
        let behaviour = Behaviour { redirect: false, trying: true, cap: None };
        let here = "127.0.0.1:0".parse().unwrap();
        let server = serve::start_over(transport, &Tls::default(), here, behaviour, None).unwrap();
        let mut workload = short(Scenario::Invite, server.address());
        workload.rate = 40.0;
        workload.links = crate::spec::Links::both(transport);
        (workload.links.caller.connections, workload.links.callee.connections) = (caller, callee);
        let raw = conductor(&[1]).run(&workload, "run", None, &mut Nothing).unwrap();
        let (class, name) = (&raw.measured.classes[0], format!("{transport} {caller} {callee}"));
        assert!(class.offered > 10);
        assert_eq!((class.succeeded, class.failed()), (class.offered, 0), "{name}: {:?}", class.failures);
        assert_eq!(class.retransmissions_sent, 0, "{name}");
        // Over all seconds: on a busy machine connections are opened when the window is already over.
        let sum = |of: fn(&crate::tally::Tally) -> u64| raw.seconds.iter().map(|(_, t)| of(t)).sum::<u64>();
        let offered = sum(|tally| tally.classes[0].offered);
        let opened = sum(|tally| tally.connections.as_deref().map_or(0, |connections| connections.opened));
        let accepted =
            sum(|tally| tally.connections.as_deref().map_or(0, |connections| connections.accepted));
        let expected = match caller {
            Single | Pool(_) => 0..=2,
            PerCall => offered..=offered + 2,
            PerTransaction => 2 * offered..=2 * offered + 2,
        };
        assert!(expected.contains(&opened), "{name}: {opened} opened for {offered} calls");
        if callee == PerCall {
            // A callee may still have the one by which it registered.
            assert!(accepted + 4 >= offered, "{name}: {accepted} accepted for {offered} calls");
        }
    }
}

#[test]
fn a_server_that_takes_no_connections_is_told_in_the_preamble() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut workload = short(Scenario::Invite, nobody);
    workload.links = crate::spec::Links::both(Transport::Tcp);
    let error = conductor(&[1]).run(&workload, "run", None, &mut Nothing).unwrap_err();
    let TrialError::Setup(sentence, _) = *error else { panic!("{error:?}") };
    assert!(sentence.contains("does not take TCP connections"), "{sentence}");
}
