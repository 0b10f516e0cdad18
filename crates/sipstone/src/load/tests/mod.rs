//! The engine against a small server on virtual time.

mod rig;
mod speed;
mod streams;

use super::{EXAMPLES_MAX, Worker};
use crate::spec::*;
use crate::tally::{ClassTally, Failure};
use rig::{Challenges, Hop, Loss, Manners, Rig, one, workload};
use std::net::SocketAddr;
use std::time::Duration;

fn run(workload: &Workload, manners: Manners) -> Rig {
    let mut rig = Rig::new(workload);
    if workload.preamble {
        rig.manners.challenge = manners.challenge;
        rig.preamble();
    }
    rig.manners = manners;
    rig.run();
    rig
}

/// Every offered operation ended, one way or the other, and the interval's counts agree.
fn accounts(rig: &mut Rig) -> ClassTally {
    let tally = rig.measured();
    assert!(tally.offered > 0);
    assert_eq!(tally.offered, tally.succeeded + tally.failed());
    let interval = &rig.interval.classes[0];
    assert_eq!((interval.offered, interval.succeeded), (tally.offered, tally.succeeded));
    assert_eq!(interval.failures, tally.failures);
    tally
}

/// All succeed with exactly the messages of the table, as the tally and the server count them.
fn exact(rig: &mut Rig, messages: (u32, u32)) -> ClassTally {
    let tally = accounts(rig);
    assert_eq!(tally.failures, Default::default());
    let (into, out) = rig.at_server();
    let expected = (u64::from(messages.0) * tally.offered, u64::from(messages.1) * tally.offered);
    assert_eq!((into as u64, out as u64), expected, "messages at the server");
    let counted = (
        tally.caller_messages_in + tally.callee_messages_in,
        tally.caller_messages_out + tally.callee_messages_out,
    );
    assert_eq!(counted, expected, "messages in the tally");
    assert_eq!((tally.retransmissions_sent, tally.retransmissions_received), (0, 0));
    tally
}

#[test]
fn every_scenario_exchanges_the_messages_of_the_table_with_a_stateless_server() {
    for scenario in crate::scenario::ALL {
        let mut load = one(scenario);
        load.classes[0].cancel_after = Duration::from_millis(20);
        let manners = Manners { redirect: scenario == Scenario::Redirect, ..Manners::default() };
        let mut rig = run(&load, manners);
        let tally = exact(&mut rig, scenario.messages(Proxy::Stateless, Auth::None, false));
        assert_eq!(tally.latencies.from_planned.count(), tally.succeeded, "{scenario:?}");
        assert_eq!(tally.latencies.from_sent.count(), tally.succeeded, "{scenario:?}");
        assert_eq!(tally.trying, 0);
        assert_eq!(rig.interval.generator.strays, 0, "{scenario:?}");
    }
}

#[test]
fn every_scenario_exchanges_the_messages_of_the_table_with_a_stateful_server() {
    for scenario in crate::scenario::ALL {
        let mut load = one(scenario);
        load.classes[0].cancel_after = Duration::from_millis(20);
        let manners =
            Manners { redirect: scenario == Scenario::Redirect, stateful: true, ..Manners::default() };
        let mut rig = run(&load, manners);
        let tally = exact(&mut rig, scenario.messages(Proxy::Stateful, Auth::None, false));
        let trying = if scenario.facts().messages.2 { tally.succeeded } else { 0 };
        assert_eq!(tally.trying, trying, "{scenario:?}");
    }
}

#[test]
fn every_challenged_scenario_exchanges_the_messages_of_the_table() {
    for scenario in crate::scenario::ALL {
        // The table has no challenge to a request that a redirect server answers itself: it is the same there.
        for all in [false, true] {
            let mut load = one(scenario);
            (load.auth, load.auth_every) = (Auth::Challenge, all);
            load.classes[0].cancel_after = Duration::from_millis(20);
            let challenge = Some(Challenges { all, uses: 1, anew: true, ..Challenges::default() });
            let manners =
                Manners { redirect: scenario == Scenario::Redirect, challenge, ..Manners::default() };
            let mut rig = run(&load, manners);
            let tally = exact(&mut rig, scenario.messages(Proxy::Stateless, Auth::Challenge, all));
            let hangs_up = matches!(scenario, Scenario::Invite | Scenario::Outbound);
            assert_eq!(rig.seen(Hop::Server, Hop::Caller, "407 BYE") > 0, all && hangs_up);
            // From the original request: two round trips to the server, at least.
            let quickest = tally.latencies.from_sent.quantile_us(0.0).unwrap();
            assert!(scenario == Scenario::InviteCancel || quickest >= 400, "{scenario:?} {quickest}");
        }
    }
}

#[test]
fn cached_nonces_are_used_again_until_they_are_stale() {
    for scenario in [Scenario::RegisterUpdate, Scenario::Invite, Scenario::Message] {
        let mut load = one(scenario);
        load.auth = Auth::Cached;
        load.users.count = 2;
        let challenge = Some(Challenges { uses: 5, ..Challenges::default() });
        let mut rig = run(&load, Manners { challenge, ..Manners::default() });
        let tally = accounts(&mut rig);
        assert_eq!((tally.offered, tally.succeeded), (50, 50), "{scenario:?} {:?}", tally.failures);
        let challenges = rig.seen(Hop::Server, Hop::Caller, "407 INVITE")
            + rig.seen(Hop::Server, Hop::Caller, "407 MESSAGE")
            + rig.seen(Hop::Server, Hop::Callee, "401 REGISTER");
        assert!(
            (8..=14).contains(&challenges),
            "{scenario:?}: {challenges} challenges for 50 requests of 2 users"
        );
    }
}

#[test]
fn cached_credentials_go_into_bye_when_every_request_is_challenged() {
    let mut load = one(Scenario::Invite);
    (load.auth, load.auth_every) = (Auth::Cached, true);
    load.users.count = 2;
    let challenge = Some(Challenges { all: true, ..Challenges::default() });
    let mut rig = run(&load, Manners { challenge, ..Manners::default() });
    let tally = accounts(&mut rig);
    assert_eq!(tally.succeeded, 50);
    assert_eq!(rig.seen(Hop::Server, Hop::Caller, "407 INVITE"), 2, "each user's first");
    assert_eq!(rig.seen(Hop::Server, Hop::Caller, "407 BYE"), 0);
}

#[test]
fn credentials_that_are_refused_fail_after_one_try() {
    let mut load = one(Scenario::Invite);
    load.auth = Auth::Challenge;
    load.preamble = false;
    let challenge = Some(Challenges { hopeless: true, ..Challenges::default() });
    let mut rig = run(&load, Manners { challenge, ..Manners::default() });
    let tally = accounts(&mut rig);
    assert_eq!(tally.failures, [(Failure::Authentication, 50)].into());
    assert_eq!(rig.seen(Hop::Caller, Hop::Server, "INVITE"), 100);
    assert_eq!(rig.seen(Hop::Caller, Hop::Server, "ACK"), 100, "each refusal is acknowledged");
}

#[test]
fn without_authentication_a_challenge_is_a_failure() {
    let mut load = one(Scenario::Register);
    load.preamble = false;
    let mut rig = run(&load, Manners { challenge: Some(Challenges::default()), ..Manners::default() });
    assert_eq!(accounts(&mut rig).failures, [(Failure::Status(401), 50)].into());
}

#[test]
fn the_preamble_registers_every_user_and_meets_challenges() {
    let load = one(Scenario::Invite);
    let mut rig = Rig::new(&load);
    rig.manners.challenge = Some(Challenges::default());
    rig.preamble();
    let preamble = rig.worker.preamble();
    assert_eq!((preamble.users, preamble.registered, preamble.failed), (20, 20, 0));
    assert_eq!(rig.bindings.len(), 20);
    assert_eq!(rig.bindings["sip:user7@10.0.0.9:5060"], "sip:user7@10.0.0.1:7000");
    assert_eq!(rig.worker.open(), 0);
}

#[test]
fn the_preamble_tells_of_the_first_user_that_was_refused() {
    let load = one(Scenario::Invite);
    let mut rig = Rig::new(&load);
    rig.manners.refuse = Some("403 Forbidden");
    rig.preamble();
    let preamble = rig.worker.preamble();
    assert_eq!((preamble.registered, preamble.failed), (0, 20));
    let example = preamble.example.unwrap();
    assert_eq!(example.failure.as_deref(), Some("status-403"));
    assert!(
        example.messages[0].text.starts_with("REGISTER")
            && example.messages[1].text.starts_with("SIP/2.0 403")
    );
}

fn with_loss(start: &'static str, cseq: &'static str, to: Hop, stateful: bool) -> Rig {
    let load = one(Scenario::Invite);
    let mut rig = Rig::new(&load);
    rig.preamble();
    rig.manners.stateful = stateful;
    rig.losses.push(Loss { start, cseq, to, left: 1 });
    rig.run();
    rig
}

#[test]
fn a_lost_message_of_a_call_is_made_up_for() {
    use Hop::{Callee, Caller, Server};
    // What is lost, and which message is sent again for it.
    let cases = [
        ("INVITE", "INVITE", Server, Caller, "INVITE", 51),
        ("INVITE", "INVITE", Callee, Caller, "INVITE", 51),
        ("SIP/2.0 180", "INVITE", Server, Callee, "180 INVITE", 50),
        ("SIP/2.0 200", "INVITE", Server, Callee, "200 INVITE", 51),
        ("SIP/2.0 200", "INVITE", Caller, Callee, "200 INVITE", 51),
        ("BYE", "BYE", Server, Caller, "BYE", 51),
        ("BYE", "BYE", Callee, Caller, "BYE", 51),
        ("SIP/2.0 200", "BYE", Server, Callee, "200 BYE", 51),
        ("SIP/2.0 200", "BYE", Caller, Callee, "200 BYE", 51),
    ];
    for (start, cseq, lost_to, from, brief, times) in cases {
        let mut rig = with_loss(start, cseq, lost_to, false);
        let tally = accounts(&mut rig);
        assert_eq!(tally.succeeded, 50, "{start} {cseq} lost on its way to the {lost_to:?}");
        assert_eq!(rig.seen(from, Server, brief), times, "{start} {cseq} lost on its way to the {lost_to:?}");
        // Of the interval: a call that rings for the first time after the window is not the window's for its callee.
        assert_eq!(rig.interval.classes[0].callee_ended, 50);
        // The clock of a call whose INVITE or 200 was lost went on.
        let lost_setup = start == "INVITE" || start == "SIP/2.0 200" && cseq == "INVITE";
        assert_eq!(tally.latencies.from_planned.max_us().unwrap() > 500_000, lost_setup);
        assert_eq!(rig.interval.generator.strays, 0);
    }
}

#[test]
fn a_lost_ack_is_sent_again_for_the_next_200() {
    let mut load = one(Scenario::Invite);
    load.classes[0].hold = Delay::Constant(Duration::from_secs(2));
    let mut rig = Rig::new(&load);
    rig.preamble();
    rig.losses.push(Loss { start: "ACK", cseq: "ACK", to: Hop::Callee, left: 2 });
    rig.run();
    let tally = accounts(&mut rig);
    assert_eq!(tally.succeeded, 50);
    assert_eq!(rig.seen(Hop::Caller, Hop::Server, "ACK"), 52);
    assert_eq!((tally.retransmissions_sent, tally.retransmissions_received), (4, 2));
    let counted = tally.callee_messages_in + tally.callee_messages_out;
    assert_eq!((tally.callee_ended, counted), (50, 50 * 6), "each message once");
}

#[test]
fn a_bye_that_overtakes_the_ack_ends_the_call_and_the_retransmission() {
    let load = one(Scenario::Invite);
    let mut rig = Rig::new(&load);
    rig.preamble();
    rig.losses.push(Loss { start: "ACK", cseq: "ACK", to: Hop::Callee, left: 1 });
    rig.run();
    let tally = accounts(&mut rig);
    assert_eq!(tally.succeeded, 50);
    assert_eq!(rig.seen(Hop::Callee, Hop::Server, "200 INVITE"), 50);
    assert_eq!(tally.callee_ended, 49, "the one without its ACK has not ended well");
}

#[test]
fn answers_that_come_twice_are_counted_as_repeats_only() {
    let mut load = one(Scenario::Invite);
    load.classes[0].hold = Delay::Constant(Duration::from_millis(10));
    let mut rig = Rig::new(&load);
    rig.preamble();
    rig.twice = true;
    rig.manners.stateful = true;
    rig.run();
    let tally = accounts(&mut rig);
    assert_eq!(tally.succeeded, 50);
    let (into, out) = Scenario::Invite.messages(Proxy::Stateful, Auth::None, false);
    assert_eq!(tally.caller_messages_in + tally.callee_messages_in, 50 * u64::from(into));
    assert_eq!(tally.caller_messages_out + tally.callee_messages_out, 50 * u64::from(out));
    assert!(tally.retransmissions_received > 0 && tally.retransmissions_sent > 0);
    assert_eq!(tally.callee_ended, 50);
}

#[test]
fn a_cancelled_call_whose_messages_are_lost_ends_all_the_same() {
    use Hop::{Callee, Caller, Server};
    let cases = [
        ("CANCEL", "CANCEL", Server),
        ("CANCEL", "CANCEL", Callee),
        ("SIP/2.0 200", "CANCEL", Caller),
        ("SIP/2.0 487", "INVITE", Server),
        ("SIP/2.0 487", "INVITE", Caller),
        ("ACK", "ACK", Callee),
    ];
    for (start, cseq, to) in cases {
        let mut load = one(Scenario::InviteCancel);
        load.classes[0].cancel_after = Duration::from_millis(700);
        let mut rig = Rig::new(&load);
        rig.preamble();
        rig.losses.push(Loss { start, cseq, to, left: 1 });
        rig.run();
        rig.linger(Duration::from_secs(2));
        let tally = accounts(&mut rig);
        assert_eq!(tally.succeeded, 50, "{start} {cseq} to {to:?}: {:?}", tally.failures);
        assert_eq!(tally.callee_ended, 50, "{start} {cseq} to {to:?}");
        assert!(rig.seen(Caller, Server, "CANCEL") >= 50);
    }
}

#[test]
fn a_call_is_cancelled_only_after_a_provisional_answer() {
    let mut load = one(Scenario::InviteCancel);
    load.classes[0].cancel_after = Duration::from_millis(1);
    load.rate = 2.0;
    let mut rig = Rig::new(&load);
    rig.preamble();
    rig.losses.push(Loss { start: "INVITE", cseq: "INVITE", to: Hop::Server, left: 1 });
    rig.run();
    let briefs: Vec<_> =
        rig.log.iter().filter(|(from, ..)| *from == Hop::Caller).map(|(_, _, b)| b.as_str()).collect();
    assert_eq!(briefs, ["INVITE", "INVITE", "CANCEL", "ACK"]);
    assert_eq!(accounts(&mut rig).succeeded, 1);
}

#[test]
fn refusals_are_acknowledged_and_counted_with_an_example() {
    for scenario in [Scenario::Invite, Scenario::Message, Scenario::Outbound, Scenario::InviteNotfound] {
        let mut load = one(scenario);
        load.preamble = false;
        let mut rig = run(&load, Manners { refuse: Some("403 Forbidden"), ..Manners::default() });
        let tally = accounts(&mut rig);
        assert_eq!(tally.failures, [(Failure::Status(403), 50)].into());
        let acks = if scenario == Scenario::Message { 0 } else { 50 };
        assert_eq!(rig.seen(Hop::Caller, Hop::Server, "ACK"), acks);
        let examples = rig.worker.examples();
        assert_eq!(examples.len(), 1);
        assert_eq!(examples[0].failure.as_deref(), Some("status-403"));
        assert_eq!(examples[0].messages.len(), 2);
        assert!(examples[0].messages[1].text.starts_with("SIP/2.0 403"));
    }
}

#[test]
fn a_refusal_that_comes_again_after_the_end_is_acknowledged_again() {
    let mut load = one(Scenario::Invite);
    load.preamble = false;
    let mut rig = Rig::new(&load);
    (rig.manners.refuse, rig.twice) = (Some("480 Temporarily Unavailable"), true);
    rig.run();
    let tally = accounts(&mut rig);
    assert_eq!(tally.failures, [(Failure::Status(480), 50)].into());
    assert_eq!(rig.seen(Hop::Caller, Hop::Server, "ACK"), 100);
    assert_eq!(rig.interval.classes[0].retransmissions_received, 50);
    assert_eq!(rig.interval.generator.strays, 0);
}

#[test]
fn a_dead_server_is_a_timeout_after_64_t1_and_seven_requests() {
    for (scenario, requests) in [(Scenario::Invite, 7), (Scenario::Register, 11)] {
        let mut load = one(scenario);
        load.preamble = false;
        let mut rig = run(&load, Manners { dead: true, ..Manners::default() });
        let tally = accounts(&mut rig);
        assert_eq!(tally.failures, [(Failure::Timeout, 50)].into());
        assert_eq!(rig.at_server(), (50 * requests, 0), "RFC 3261 §17.1.1.2, §17.1.2.2");
        assert_eq!(tally.retransmissions_sent, 50 * (requests as u64 - 1));
    }
}

#[test]
fn what_is_open_when_the_drain_is_over_is_unfinished() {
    let mut load = one(Scenario::Invite);
    load.classes[0].hold = Delay::Constant(Duration::from_secs(100));
    load.drain = Duration::from_secs(1);
    let mut rig = run(&load, Manners::default());
    let tally = accounts(&mut rig);
    assert_eq!(tally.failures, [(Failure::Unfinished, 50)].into());
    assert_eq!(rig.worker.open(), 0);
}

#[test]
fn stop_ends_the_arrivals_and_without_drain_everything() {
    for drain in [true, false] {
        let mut load = one(Scenario::Invite);
        load.classes[0].hold = Delay::Constant(Duration::from_millis(100));
        let mut rig = Rig::new(&load);
        rig.preamble();
        rig.start();
        rig.run_until(rig.now + Duration::from_millis(255));
        rig.worker.stop(rig.now, drain);
        assert_eq!(rig.worker.finished(rig.now), !drain);
        rig.run_until(rig.now + Duration::from_secs(50));
        let tally = accounts(&mut rig);
        assert_eq!(tally.offered, 26);
        assert_eq!(tally.failed() == 0, drain);
        assert!(rig.worker.finished(rig.now));
    }
}

#[test]
fn operations_beyond_the_table_are_dropped_and_said_to_be() {
    let mut load = one(Scenario::Invite);
    load.classes[0].hold = Delay::Constant(Duration::from_secs(3));
    load.open_operations_max = 10;
    let mut rig = run(&load, Manners::default());
    let tally = accounts(&mut rig);
    assert_eq!(tally.failures, [(Failure::GeneratorDropped, 40)].into());
    assert_eq!(tally.succeeded, 10);
}

#[test]
fn callees_beyond_their_table_answer_503() {
    let mut load = one(Scenario::Invite);
    load.open_operations_max = 1;
    let mut rig = Rig::new(&load);
    rig.preamble();
    let invite = |n: u32| {
        format!(
            "INVITE sip:user1@10.0.0.1:7000 SIP/2.0\r\nVia: SIP/2.0/UDP 10.0.0.9:5060;branch=z9hG4bKx{n}\r\n\
             Max-Forwards: 70\r\nFrom: <sip:a@b>;tag=1\r\nTo: <sip:user1@b>\r\nCall-ID: {n}\r\nCSeq: 1 INVITE\r\n\
             Content-Length: 0\r\n\r\n"
        )
    };
    for n in 0..6 {
        rig.inject(rig::SERVER.parse().unwrap(), "10.0.0.1:7000".parse().unwrap(), invite(n).as_bytes());
    }
    assert_eq!(rig.seen(Hop::Callee, Hop::Server, "200 INVITE"), 4);
    assert_eq!(rig.seen(Hop::Callee, Hop::Server, "503 INVITE"), 2);
    assert_eq!(rig.worker.counts().interval.generator.callees_refused, 2);
}

#[test]
fn only_operations_planned_in_the_window_are_measured() {
    let mut load = one(Scenario::Invite);
    load.warm_up = Duration::from_millis(200);
    load.classes[0].hold = Delay::Constant(Duration::from_millis(150));
    let mut rig = run(&load, Manners::default());
    let tally = rig.measured();
    assert_eq!((tally.offered, tally.succeeded), (50, 50));
    let interval = &rig.interval.classes[0];
    assert_eq!((interval.offered, interval.succeeded), (70, 70));
}

#[test]
fn nobody_listening_fails_what_is_open_until_something_was_heard() {
    let mut load = one(Scenario::Options);
    load.preamble = false;
    let mut rig = Rig::new(&load);
    rig.manners.dead = true;
    rig.start();
    rig.run_until(rig.now + Duration::from_millis(35));
    rig.refuse();
    let tally = rig.measured();
    assert_eq!(tally.failures, [(Failure::Unreachable, 4)].into());
    rig.manners.dead = false;
    rig.run_until(rig.now + Duration::from_millis(40));
    rig.refuse();
    rig.run_until(rig.now + Duration::from_secs(60));
    let tally = accounts(&mut rig);
    assert_eq!(tally.failures, [(Failure::Unreachable, 4)].into(), "later ones go on by retransmission");
    assert_eq!(rig.interval.generator.icmp_refused, 2);
}

#[test]
fn a_route_set_is_used_in_reverse_and_its_first_hop_is_sent_to() {
    let mut rig = Rig::new(&one(Scenario::Invite));
    rig.preamble();
    rig.manners.record_routes = vec!["<sip:10.0.0.9:5060;lr;n=2>", "<sip:proxy.example.com;lr;n=1>"];
    rig.record();
    rig.run();
    assert_eq!(accounts(&mut rig).succeeded, 50);
    for method in ["ACK", "BYE"] {
        let text = rig.sent(method);
        assert!(text.starts_with(&format!("{method} sip:user")), "the remote target: {text}");
        let routes: Vec<_> = text.split("\r\n").filter(|line| line.starts_with("Route")).collect();
        assert_eq!(routes, ["Route: <sip:proxy.example.com;lr;n=1>", "Route: <sip:10.0.0.9:5060;lr;n=2>"]);
    }
}

#[test]
fn a_strict_router_gets_itself_as_request_uri_and_the_target_as_last_route() {
    let mut rig = Rig::new(&one(Scenario::Invite));
    rig.preamble();
    rig.manners.record_routes = vec!["<sip:10.0.0.9:5060;lr>", "<sip:10.0.0.9:5060;strict>"];
    rig.record();
    rig.run();
    assert_eq!(accounts(&mut rig).succeeded, 50);
    for method in ["ACK", "BYE"] {
        let text = rig.sent(method);
        assert!(text.starts_with(&format!("{method} sip:10.0.0.9:5060;strict SIP/2.0")), "{text}");
        let routes: Vec<_> = text.split("\r\n").filter(|line| line.starts_with("Route")).collect();
        assert_eq!(routes[0], "Route: <sip:10.0.0.9:5060;lr>");
        assert!(
            routes[1].starts_with("Route: <sip:user") && routes[1].ends_with("@10.0.0.1:7000>"),
            "{}",
            routes[1]
        );
    }
}

#[test]
fn the_contact_of_a_registration_or_redirection_must_be_ours() {
    for (scenario, redirect) in [(Scenario::Register, false), (Scenario::RegisterUpdate, false)] {
        let mut rig = Rig::new(&one(scenario));
        rig.preamble();
        (rig.manners.odd_contact, rig.manners.redirect) = (Some("sip:user1@10.0.0.1:70001"), redirect);
        rig.run();
        assert_eq!(accounts(&mut rig).failures, [(Failure::WrongContent, 50)].into(), "{scenario:?}");
    }
    let mut rig = Rig::new(&one(Scenario::Redirect));
    rig.preamble();
    rig.manners.redirect = true;
    rig.bindings.values_mut().for_each(|uri| *uri = uri.replace("7000", "7001"));
    rig.run();
    assert_eq!(accounts(&mut rig).failures, [(Failure::WrongContent, 50)].into());
}

#[test]
fn a_binding_that_stays_after_logout_is_wrong() {
    let mut load = one(Scenario::RegisterLogout);
    load.users.count = 1;
    let mut rig = Rig::new(&load);
    rig.preamble();
    rig.manners.odd_contact = Some("sip:user1@10.0.0.1:7000;transport=udp");
    rig.run();
    assert_eq!(accounts(&mut rig).failures, [(Failure::WrongContent, 50)].into());
}

#[test]
fn a_callee_rings_as_long_as_the_caller_says_and_the_caller_holds_as_long_as_drawn() {
    let mut load = one(Scenario::Invite);
    load.classes[0].ring = Delay::Constant(Duration::from_millis(1300));
    load.classes[0].hold = Delay::Exponential { mean: Duration::from_secs(2), max: Duration::from_secs(9) };
    let mut rig = run(&load, Manners::default());
    let tally = exact(&mut rig, (6, 6));
    let setup = tally.latencies.from_sent.quantile_us(0.5).unwrap();
    assert!((1_300_000..1_303_000).contains(&setup), "{setup}");
    assert!(tally.latencies.first_18x.max_us().unwrap() < 1000);
    assert!(tally.latencies.bye.max_us().unwrap() < 1000);
}

#[test]
fn a_trace_has_all_messages_of_the_first_operation_on_both_sides() {
    let mut load = one(Scenario::Invite);
    load.trace = true;
    let mut rig = run(&load, Manners::default());
    let _ = accounts(&mut rig);
    let examples = rig.worker.examples();
    assert_eq!(examples.len(), 1);
    assert_eq!(examples[0].failure, None);
    assert_eq!(examples[0].messages.len(), 12, "{:#?}", examples[0].messages);
    assert!(examples[0].messages.iter().all(|message| !message.repeated));
    assert!(examples[0].messages.is_sorted_by_key(|message| message.at_us));
    assert!(examples.len() <= EXAMPLES_MAX);
}

#[test]
fn a_mix_draws_its_classes_by_weight_and_counts_them_apart() {
    let mut load = workload(vec![
        Class { weight: 3.0, ..Class::plain(Scenario::Invite) },
        Class {
            weight: 1.0,
            cancel_after: Duration::from_millis(30),
            ..Class::plain(Scenario::InviteCancel)
        },
        Class { weight: 0.0, ..Class::plain(Scenario::Options) },
    ]);
    (load.rate, load.seed) = (2000.0, 3);
    let mut rig = run(&load, Manners::default());
    let classes = rig.worker.counts().measured.classes;
    let offered: Vec<_> = classes.iter().map(|class| class.offered).collect();
    assert_eq!(offered.iter().sum::<u64>(), 1000);
    assert!((700..800).contains(&offered[0]) && offered[2] == 0, "{offered:?}");
    for (class, offered) in classes.iter().zip(offered).take(2) {
        assert_eq!((class.succeeded, class.callee_ended), (offered, offered));
    }
}

#[test]
fn the_same_seed_gives_the_same_messages() {
    let logs: Vec<_> = (0..2)
        .map(|_| {
            let mut load = one(Scenario::Invite);
            load.shape = Shape::Poisson;
            let mut rig = Rig::new(&load);
            rig.preamble();
            rig.record();
            rig.run();
            rig.texts()
        })
        .collect();
    assert!(!logs[0].is_empty());
    assert_eq!(logs[0], logs[1]);
}

#[test]
fn a_late_copy_of_an_invite_makes_no_second_call() {
    let mut rig = Rig::new(&one(Scenario::Invite));
    rig.preamble();
    rig.record();
    rig.run();
    let invite = rig.to_callee("INVITE");
    let before = rig.log.len();
    rig.inject(rig::SERVER.parse().unwrap(), "10.0.0.1:7000".parse().unwrap(), invite.as_bytes());
    assert_eq!(rig.log.len(), before, "RFC 6026 §7.1: it is absorbed");
    let bye = rig.to_callee("BYE");
    rig.inject(rig::SERVER.parse().unwrap(), "10.0.0.1:7000".parse().unwrap(), bye.as_bytes());
    assert_eq!(rig.log.len(), before + 1, "answered as before");
    assert_eq!(rig.log[before].2, "200 BYE");
}

#[test]
fn what_a_callee_cannot_do_is_answered_405_or_481() {
    let mut rig = Rig::new(&one(Scenario::Invite));
    let request = |method: &str, tag: &str| {
        format!(
            "{method} sip:user1@10.0.0.1:7000 SIP/2.0\r\nVia: SIP/2.0/UDP 10.0.0.9:5060;rport;branch=z9hG4bK{method}\r\n\
             Via: SIP/2.0/UDP 10.8.8.8;branch=z9hG4bKq\r\nMax-Forwards: 70\r\nFrom: <sip:a@b>;tag=1\r\n\
             To: <sip:user1@b>{tag}\r\nCall-ID: x\r\nCSeq: 1 {method}\r\nContent-Length: 0\r\n\r\n"
        )
    };
    let cases = [
        ("SUBSCRIBE", "", "405"),
        ("INFO", "", "405"),
        ("BYE", ";tag=9", "481"),
        ("BYE", "", "481"),
        ("CANCEL", "", "481"),
        ("INVITE", ";tag=9", "481"),
        ("INFO", ";tag=9", "481"),
        ("OPTIONS", "", "200"),
    ];
    for (method, tag, status) in cases {
        rig.record();
        rig.inject(
            rig::SERVER.parse().unwrap(),
            "10.0.0.1:7000".parse().unwrap(),
            request(method, tag).as_bytes(),
        );
        let text = rig.texts().pop().unwrap();
        assert_eq!(&text[8..11], status, "{method}");
        let vias: Vec<_> = text.split("\r\n").filter(|line| line.starts_with("Via")).collect();
        assert_eq!(
            vias[0],
            format!("Via: SIP/2.0/UDP 10.0.0.9:5060;branch=z9hG4bK{method};received=10.0.0.9;rport=5060")
        );
        assert_eq!(vias[1], "Via: SIP/2.0/UDP 10.8.8.8;branch=z9hG4bKq");
        rig.clear();
    }
    let before = rig.log.len();
    rig.inject(
        rig::SERVER.parse().unwrap(),
        "10.0.0.1:7000".parse().unwrap(),
        request("ACK", ";tag=9").as_bytes(),
    );
    assert_eq!(rig.log.len(), before, "an ACK is never answered");
}

#[test]
fn an_answer_that_comes_after_its_call_has_failed_is_acknowledged() {
    let mut load = one(Scenario::Invite);
    load.classes[0].ring = Delay::Constant(Duration::from_secs(40));
    load.rate = 2.0;
    let mut rig = Rig::new(&load);
    rig.preamble();
    rig.record();
    rig.run();
    assert_eq!(accounts(&mut rig).failures, [(Failure::Unfinished, 1)].into());
    assert_eq!(rig.seen(Hop::Caller, Hop::Server, "ACK"), 0);
    rig.linger(Duration::from_secs(10));
    assert_eq!(rig.seen(Hop::Callee, Hop::Server, "200 INVITE"), 1, "no second one is needed");
    let ack = rig.sent("ACK");
    assert!(ack.starts_with("ACK sip:user") && ack.contains("@10.0.0.1:7000 SIP/2.0\r\n"), "{ack}");
    assert!(ack.contains("\r\nRoute: <sip:10.0.0.9:5060;lr>\r\n"), "{ack}");
}

#[test]
fn a_second_callees_200_is_acknowledged_with_its_own_tag() {
    let mut load = one(Scenario::Invite);
    load.rate = 2.0;
    load.classes[0].hold = Delay::Constant(Duration::from_secs(1));
    let mut rig = Rig::new(&load);
    rig.preamble();
    rig.record();
    rig.start();
    rig.linger(Duration::from_millis(100));
    let answer = rig.delivered().into_iter().find(|text| text.starts_with("SIP/2.0 200")).unwrap();
    let tag = rig::header(&answer, "To").unwrap().split("tag=").nth(1).unwrap().to_owned();
    let forked = answer.replace(&tag, "another").replace("10.0.0.1:7000", "10.0.0.9:5060");
    rig.inject(rig::SERVER.parse().unwrap(), "10.0.0.1:6000".parse().unwrap(), forked.as_bytes());
    let ack = rig.texts().pop().unwrap();
    assert!(ack.starts_with("ACK ") && ack.contains(";tag=another\r\n") && !ack.contains(&tag), "{ack}");
    rig.inject(rig::SERVER.parse().unwrap(), "10.0.0.1:6000".parse().unwrap(), answer.as_bytes());
    let ack = rig.texts().pop().unwrap();
    assert!(ack.starts_with("ACK ") && ack.contains(&tag), "{ack}");
}

#[test]
fn a_200_that_nobody_acknowledges_is_given_up_after_64_t1() {
    let mut load = one(Scenario::Invite);
    load.rate = 2.0;
    let mut rig = Rig::new(&load);
    rig.preamble();
    rig.losses.push(Loss { start: "ACK", cseq: "ACK", to: Hop::Callee, left: u32::MAX });
    rig.losses.push(Loss { start: "BYE", cseq: "BYE", to: Hop::Callee, left: u32::MAX });
    rig.run();
    rig.linger(Duration::from_secs(40));
    // RFC 3261 §13.3.1.4: after T1, 2·T1, 4·T1 and then every T2.
    assert_eq!(rig.seen(Hop::Callee, Hop::Server, "200 INVITE"), 11);
    assert_eq!(accounts(&mut rig).failures, [(Failure::Timeout, 1)].into());
    assert_eq!(rig.interval.classes[0].callee_ended, 0);
}

#[test]
fn the_callees_own_share_of_the_latency_is_told() {
    let mut rig = run(&one(Scenario::Invite), Manners::default());
    let counts = rig.worker.counts();
    let turnaround = &counts.measured.generator.callee_turnaround;
    assert_eq!((turnaround.count(), turnaround.max_us()), (50, Some(7)));
}

/// Several callee sockets share the users in order, and calls find them.
#[test]
fn users_are_spread_over_the_callee_sockets() {
    let load = one(Scenario::Invite);
    let assignment = Assignment {
        workload: load,
        group: 0,
        rate_share: 1.0,
        callees: (5, 11),
        role: Role::Both,
        threads: 1,
        cpus: Vec::new(),
        sources: Vec::new(),
    };
    let addresses: Vec<SocketAddr> = (0..4).map(|n| SocketAddr::from(([10, 0, 0, 1], 7000 + n))).collect();
    let worker = Worker::new(&assignment, 0, 1, (5, 11), &[], &addresses);
    let ranges: Vec<_> = worker.contacts().iter().map(|range| (range.first, range.count)).collect();
    assert_eq!(ranges, [(5, 3), (8, 3), (11, 3), (14, 2)]);
    let none = Worker::new(&assignment, 0, 1, (0, 0), &[], &addresses);
    assert_eq!(none.contacts(), []);
}

mod garbage {
    use super::*;
    use proptest::prelude::*;

    fn started() -> Rig {
        let mut load = one(Scenario::Invite);
        load.auth = Auth::Cached;
        load.classes[0].hold = Delay::Constant(Duration::from_millis(100));
        let mut rig = Rig::new(&load);
        rig.preamble();
        rig.record();
        rig.start();
        rig.run_until(rig.now + Duration::from_millis(60));
        rig
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600), callee in any::<bool>()) {
            let mut rig = started();
            let to = if callee { "10.0.0.1:7000" } else { "10.0.0.1:6000" };
            rig.feed(to.parse().unwrap(), &bytes);
        }

        #[test]
        fn no_change_of_a_true_message_panics(
            pick in any::<proptest::sample::Index>(),
            cuts in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>(), 0usize..12), 1..6),
            callee in any::<bool>(),
        ) {
            let mut rig = started();
            let texts = rig.delivered();
            let mut bytes = texts[pick.index(texts.len())].clone().into_bytes();
            for (at, byte, cut) in cuts {
                let at = at.index(bytes.len());
                bytes.splice(at..(at + cut).min(bytes.len()), [byte]);
                if bytes.is_empty() { bytes.push(b' '); }
            }
            let to = if callee { "10.0.0.1:7000" } else { "10.0.0.1:6000" };
            for _ in 0..2 {
                rig.feed(to.parse().unwrap(), &bytes);
            }
            rig.run_until(rig.now + Duration::from_secs(100));
            let tally = rig.measured();
            assert_eq!(tally.offered, tally.succeeded + tally.failed());
        }
    }
}
