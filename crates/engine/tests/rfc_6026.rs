//! Requirements of RFC 6026 on INVITE transactions and stray responses that no other file shows, each under its section.

mod rig;

use engine::{Input, ListenerId, Path, TransportFailure};
use rig::{
    ALICE, BOB, BOB_URI, CAROL, CAROL_URI, MALLORY, Network, PROXY, Request, SIXTY_FOUR_T1, Script, config,
    invited, to_bob,
};

/// A call over TCP on both sides, to Bob; what he received.
fn invited_over_tcp() -> (Network, Request, rig::Seen) {
    let mut config = config();
    config.listeners[0].transport = sip::Transport::Tcp;
    let mut network = Network::with(config, to_bob());
    let invite = Request::invite(1).via("SIP/2.0/TCP 10.0.1.1:5060;branch=z9hG4bK-tcp");
    network.alice(&invite);
    let received = network.only(BOB, "INVITE");
    (network, invite, received)
}

// --- the server transaction (§7.1) --------------------------------------------------------------------------------

/// §6, §7.1: an error of sending a response ends no server transaction: copies of the INVITE are absorbed in every state,
/// not taken for new calls.
#[test]
fn a_transport_error_of_a_response_ends_no_server_transaction() {
    for (status, again) in [(180, Some("180")), (200, None), (486, Some("486"))] {
        let (mut network, invite, received) = invited(to_bob());
        network.send(BOB, received.respond(status, "bob"));
        network.unreachable(ALICE);
        network.take(ALICE);
        network.take(BOB);
        network.alice(&invite);
        assert_eq!(network.labels(ALICE), again.map_or(vec![], |label| vec![label]), "{status}");
        network.assert_quiet(BOB);
        assert_eq!(network.engine.user().count("request INVITE"), 1, "{status}");
        network.settle();
    }
}

/// The same where the connection is gone that the INVITE came by.
#[test]
fn a_lost_connection_ends_no_server_transaction() {
    for status in [180, 200, 486] {
        let (mut network, invite, received) = invited_over_tcp();
        network.send(BOB, received.respond(status, "bob"));
        let path = Path::new(ListenerId(0), Some(PROXY.ip()), ALICE);
        network.handle(Input::TransportError { path, failure: TransportFailure::Broken });
        network.take(BOB);
        network.alice(&invite);
        network.assert_quiet(BOB);
        assert_eq!(network.engine.user().count("request INVITE"), 1, "{status}");
        network.settle();
    }
}

/// §7.1: a 2xx that nobody acknowledges is the callee's to send again.
#[test]
fn a_2xx_is_never_sent_again_by_the_server() {
    let (mut network, _, received) = invited(to_bob());
    network.send(BOB, received.accept("bob"));
    network.until_ms(2 * SIXTY_FOUR_T1);
    assert_eq!(network.sent_at(ALICE, "200"), [0]);
    network.assert_at_rest();
}

/// §7.1, §8.7: Timer L is 64*T1 "for all transports".
#[test]
fn timer_l_is_64_t1_over_tcp_too() {
    let (mut network, invite, received) = invited_over_tcp();
    network.send(BOB, received.accept("bob"));
    network.take(ALICE);
    network.until_ms(SIXTY_FOUR_T1 - 1);
    network.alice(&invite);
    network.assert_quiet(ALICE);
    assert_eq!(network.engine.user().count("request INVITE"), 1);
    network.until_ms(SIXTY_FOUR_T1);
    network.assert_at_rest();
}

/// §6: an ACK without the magic cookie matches the INVITE of its client whatever was answered. After a failure it ends at
/// the transaction; in Accepted it is the user's.
#[test]
fn an_ack_without_cookie_is_the_users_in_accepted_alone() {
    for (status, passed) in [(200, 1), (486, 0)] {
        let mut network = Network::new(to_bob());
        let invite = Request::invite(1).via("SIP/2.0/UDP 10.0.1.1:5060");
        network.alice(&invite);
        let received = network.only(BOB, "INVITE");
        network.send(BOB, received.respond(status, "bob"));
        let answer = network.only(ALICE, &status.to_string());
        network.alice(&invite.ack(&answer));
        assert_eq!(network.engine.user().count("request ACK"), passed, "{status}");
        network.settle();
    }
}

// --- the client transaction (§7.2) --------------------------------------------------------------------------------

/// §7.2: Timer M is 64*T1 over TCP, too, and each 2xx of that time is passed up, of whatever dialog.
#[test]
fn timer_m_is_64_t1_over_tcp_too() {
    let (mut network, _, received) = invited_over_tcp();
    for (at, tag) in [(0, "bob"), (500, "bob"), (1000, "another"), (SIXTY_FOUR_T1 - 1, "bob")] {
        network.until_ms(at);
        network.send(BOB, received.accept(tag));
    }
    assert_eq!(network.sent_at(ALICE, "200"), [0, 500, 1000, SIXTY_FOUR_T1 - 1]);
    assert!(network.sent_at(BOB, "ACK").is_empty(), "a 2xx is acknowledged by the caller");
    network.until_ms(SIXTY_FOUR_T1);
    network.assert_at_rest();
    network.send(BOB, received.accept("bob"));
    assert_eq!(network.sent_at(ALICE, "200").len(), 4);
}

/// §7.2: a callee who answers 20 s after another has sends its 2xx again until the caller acknowledges it. Each passes while
/// its own Timer M runs, though the server transaction's Timer L ran from the first answer (§8.3 would discard it then).
#[test]
fn a_late_callees_2xx_passes_until_its_own_timer_m() {
    let mut network = Network::new(Script::fork(&[(BOB_URI, 1000), (CAROL_URI, 1000)]));
    network.alice(&Request::invite(1));
    let (first, second) = (network.only(BOB, "INVITE"), network.only(CAROL, "INVITE"));
    network.send(CAROL, second.respond(180, "carol"));
    network.send(BOB, first.accept("bob"));
    for at in [20_000, 40_000, 20_000 + SIXTY_FOUR_T1 - 1, 20_000 + SIXTY_FOUR_T1] {
        network.until_ms(at);
        network.send(CAROL, second.accept("carol"));
    }
    assert_eq!(network.sent_at(ALICE, "200"), [0, 20_000, 40_000, 20_000 + SIXTY_FOUR_T1 - 1]);
    network.assert_at_rest();
}

// --- stray responses (§7.3, §8.2, §8.9) ---------------------------------------------------------------------------

/// A response by which Mallory wants the server to send to Alice.
fn stray(branch: &str, below: &str) -> String {
    format!(
        "SIP/2.0 200 OK\r\nVia: SIP/2.0/UDP {PROXY};branch={branch}\r\nVia: SIP/2.0/UDP {ALICE}{below}\r\n\
         From: <sip:a@example.org>;tag=a\r\nTo: <sip:b@example.org>;tag=b\r\nCall-ID: stray\r\n\
         CSeq: 1 INVITE\r\nContent-Length: 0\r\n\r\n"
    )
}

/// §3, §7.3: no branch makes the server send on what is no answer to something that it has sent: not one that looks as if
/// it had forwarded without state, whatever else it does.
#[test]
fn a_made_up_branch_of_either_kind_leads_nowhere() {
    let stateful = format!("z9hG4bK{}.{}", "0".repeat(29), "0".repeat(13));
    let stateless = format!("z9hG4bKs{}.{}", "0".repeat(19), "0".repeat(13));
    let connected = format!("z9hG4bKs{}.{}", "0".repeat(32), "0".repeat(13));
    for script in [Script::proxy, Script::stateless] {
        for branch in [&stateful, &stateless, &connected] {
            for below in [";branch=z9hG4bK-below", ";branch=1", ""] {
                let mut network = Network::new(script());
                network.send(MALLORY, stray(branch, below));
                assert_eq!(network.log.len(), 1, "{}", network.ladder());
                assert_eq!(network.engine.counters().stray_responses, 1);
            }
        }
    }
}

/// §3: who has seen a branch that was written for one request cannot use it for another's Via.
#[test]
fn the_branch_of_another_request_leads_nowhere() {
    let mut network = Network::new(Script::stateless());
    network
        .send(MALLORY, Request::invite(1).uri(BOB_URI).via("SIP/2.0/UDP 10.0.9.9;branch=z9hG4bK-m").bytes());
    let branch = network.one(BOB).branch();
    network.send(MALLORY, stray(&branch, ";branch=z9hG4bK-below"));
    network.assert_quiet(ALICE);
}

/// §10: what a proxy without state has forwarded is answered, also to a client without the magic cookie, and through a
/// proxy that folds its Vias into one line.
#[test]
fn an_answer_without_state_passes_whatever_the_client() {
    for via in [
        "SIP/2.0/UDP 10.0.1.1:5060;branch=z9hG4bK-a",
        "SIP/2.0/UDP 10.0.1.1:5060;branch=1",
        "SIP/2.0/UDP 10.0.1.1:5060",
    ] {
        for join in ["\r\nVia: ", ", "] {
            let mut network = Network::new(Script::stateless());
            network.alice(&Request::invite(1).uri(BOB_URI).via(via));
            let received = network.one(BOB);
            let answer = String::from_utf8(received.respond(200, "bob")).expect("text");
            network.send(
                BOB,
                answer.replacen("\r\nVia: SIP/2.0/UDP 10.0.1.1", &format!("{join}SIP/2.0/UDP 10.0.1.1"), 1),
            );
            assert_eq!(network.labels(ALICE), ["200"], "{via}");
        }
    }
}
