//! Requirements of RFC 5393 on loops and Max-Breadth that no other file shows, each under its section.

mod rig;

use std::net::SocketAddr;

use engine::{Input, ListenerId, Path};
use rig::{
    ALICE, BOB, BOB_URI, CAROL, CAROL_URI, DAVE_URI, DOMAIN, Network, PROXY, Request, Script, Seen, labels,
    script, to_bob,
};

/// Another element of the network, which sends requests back.
const FAR: SocketAddr = CAROL;

/// A script that sends our domain's requests unchanged to the far element.
fn via_far() -> Script {
    Script::new(|cx| {
        let _ = cx.loose_route();
        cx.set_destination_uri(Some(b"sip:10.0.2.2:5060"));
        let _ = cx.relay();
        rig::done()
    })
}

/// A request as an element sends it on: with these lines on top.
fn with_lines(seen: &Seen, lines: &str) -> String {
    let text = seen.text();
    let (start, rest) = text.split_once("\r\n").expect("a start line");
    format!("{start}\r\n{lines}\r\n{rest}")
}

// --- loops (§4) ---------------------------------------------------------------------------------------------------

/// §3: one account with two contacts that lead back to it: "the number of stimulated messages would be reduced to 10".
#[test]
fn an_account_that_forks_to_itself_costs_ten_requests() {
    let script = Script::new(|cx| {
        for n in ["whack", "thud"] {
            let uri = format!("sip:a@{DOMAIN};unknown-param={n}");
            let target =
                engine::Target { destination: Some(b"sip:10.0.0.1:5060"), ..script::target(&uri, 1000) };
            if n == "whack" {
                cx.set_request_target(&target);
            } else {
                cx.append_target(&target).expect("two are few");
            }
        }
        let _ = cx.relay();
        rig::done()
    });
    let mut network = Network::new(script);
    network.alice(&Request::invite(1).uri(&format!("sip:a@{DOMAIN}")).line("Max-Breadth: 60"));
    let mut requests = 0;
    // What it sends to itself comes in; a loop that is not found would go on for 70 hops.
    for _ in 0..70 {
        for seen in network.take(PROXY) {
            requests += usize::from(seen.label() == "INVITE");
            let path = Path::new(ListenerId(0), Some(PROXY.ip()), PROXY);
            network.handle(Input::Message { path, bytes: &seen.bytes });
        }
        assert!(requests <= 100, "{}", network.ladder());
    }
    assert_eq!(requests, 10, "{}", network.ladder());
    assert_eq!(network.finals(ALICE, "INVITE")[0].status(), Some(482));
}

/// §4.2.1: the second part of the branch depends on the Route values that were used: a request that comes back with
/// another one is a spiral.
#[test]
fn a_request_that_returns_with_another_route_is_a_spiral() {
    let mut network = Network::new(via_far());
    network.alice(&Request::invite(1));
    let out = network.only(FAR, "INVITE");
    let via = "Via: SIP/2.0/UDP 10.0.2.2:5060;branch=z9hG4bK-far-1";
    network.send(FAR, with_lines(&out, &format!("{via}\r\nRoute: <sip:10.0.0.1;lr;leg=2>")));
    assert_eq!(network.labels(FAR), ["100", "INVITE"]);
    network.settle();
}

/// §4.2.1: "MUST NOT vary with the request method"; CANCEL and ACK "MUST have the same branch parameter value". They carry
/// no credentials (RFC 3261 §9.1, §17.1.1.3), and the INVITE may.
#[test]
fn cancel_and_ack_have_the_branch_of_an_invite_with_credentials() {
    let credentials = "Proxy-Authorization: Digest username=\"alice\", realm=\"example.net\", nonce=\"n\", uri=\"sip:x\", \
                       response=\"00000000000000000000000000000000\"";
    let mut network = Network::new(Script::stateless());
    let invite = Request::invite(1).uri(BOB_URI).line(credentials);
    network.alice(&invite);
    let received = network.one(BOB);
    network.alice(&invite.cancel());
    assert_eq!(network.one(BOB).branch(), received.branch());
    network.send(BOB, received.respond(487, "bob"));
    let terminated = network.one(ALICE);
    network.alice(&invite.ack(&terminated));
    assert_eq!(network.one(BOB).branch(), received.branch());
}

/// §4.2.4: the hash is made of something, too, that differs between transactions to the same place: a Via of ours from
/// another one, in a request to the same Request-URI, is no loop; from the same one it is.
#[test]
fn our_via_of_another_transaction_is_no_loop() {
    let first = Request::invite(1);
    let mut network = Network::new(to_bob());
    network.alice(&first);
    let ours = network.only(BOB, "INVITE").vias().remove(0);
    let same = Request { vias: vec![format!("SIP/2.0/UDP {ALICE};branch=z9hG4bK-again"), ours], ..first };
    let of_another_tag = Request { from: same.from.replace("from-1", "from-2"), ..same.clone() };
    let of_another_call = Request { call_id: "another@alice.example.org".into(), ..same.clone() };
    let of_another_cseq = Request { cseq: 2, ..same.clone() };
    for (request, label) in
        [(same, "482"), (of_another_tag, "100"), (of_another_call, "100"), (of_another_cseq, "100")]
    {
        let mut network = Network::new(to_bob());
        network.alice(&request);
        assert_eq!(network.labels(ALICE), [label]);
        assert_eq!(network.labels(BOB).len(), usize::from(label == "100"));
    }
}

/// §4.2.2, §4.2.4: each Via is looked at, in whatever form others write theirs.
#[test]
fn a_loop_is_found_behind_any_vias() {
    let strange =
        "SIP / 2.0 / UDP 192.0.2.7 : 5070 ;branch=z9hG4bK-1;a;b=\"quoted, \\\" and ; more\";c=[::1]";
    for lines in [
        format!("Via: {strange}"),
        format!(
            "v: {strange}\r\nVIA : SIP/2.0/SCTP far.example.net;branch=1\r\nVia: SIP/2.0/TLS [2001:db8::1]:5061;x"
        ),
        format!("Via: {strange},\r\n SIP/2.0/UDP 192.0.2.8;branch=z9hG4bK-2;rport;received=192.0.2.9"),
        "Via: SIP/2.0/UDP 192.0.2.7;branch=z9hG4bK-x\r\n".repeat(40).trim_end().to_owned(),
    ] {
        let mut network = Network::new(via_far());
        network.alice(&Request::invite(1));
        let out = network.only(FAR, "INVITE");
        network.send(FAR, with_lines(&out, &lines));
        let far = network.take(FAR);
        assert!(!labels(&far).contains(&"INVITE".to_owned()), "{}", network.ladder());
        assert_eq!(network.engine.counters().loops, 1, "{lines}");
    }
}

/// §4.2.2: every request that may go on is checked: of other methods, and without state.
#[test]
fn other_requests_loop_too_and_without_state_too() {
    for script in [via_far, || {
        Script::new(|cx| {
            let _ = cx.forward(Some(b"sip:10.0.2.2:5060"));
            rig::done()
        })
    }] {
        let mut network = Network::new(script());
        network.alice(&Request::options(1));
        let out = network.only(FAR, "OPTIONS");
        network.send(FAR, with_lines(&out, "Via: SIP/2.0/UDP 10.0.2.2:5060;branch=z9hG4bK-far-1"));
        assert_eq!(network.labels(FAR), ["482"]);
    }
}

// --- Max-Breadth (§5.3.3) -----------------------------------------------------------------------------------------

/// §5.3.3: "All proxied requests MUST contain a single Max-Breadth header field value", whatever came in.
#[test]
fn there_is_one_max_breadth_in_whatever_is_proxied() {
    for (lines, expected) in [
        (vec![], "60"),
        (vec!["Max-Breadth: 5"], "5"),
        (vec!["max-breadth : 5", "MAX-BREADTH: 7"], "5"),
        (vec!["Max-Breadth: many"], "60"),
        (vec!["Max-Breadth: 18446744073709551617"], "60"),
    ] {
        for method in ["INVITE", "ACK", "CANCEL", "OPTIONS", "REGISTER", "BYE", "FOO"] {
            let mut network = Network::new(to_bob());
            let request =
                lines.iter().fold(Request::new(method, 1).uri(BOB_URI), |request, line| request.line(line));
            network.alice(&request);
            assert_eq!(network.only(BOB, method).values("Max-Breadth"), [expected], "{method} {lines:?}");
        }
    }
}

/// §5.3.3: a proxy that will not fork serially "MUST return a 440", also where the fork is a later one.
#[test]
fn a_later_group_that_is_too_broad_is_a_440() {
    let script = Script::fork(&[(BOB_URI, 1000), (CAROL_URI, 500), (DAVE_URI, 500)]);
    let mut network = Network::new(script);
    network.alice(&Request::invite(1).line("Max-Breadth: 1"));
    let first = network.only(BOB, "INVITE");
    network.send(BOB, first.respond(486, "bob"));
    assert_eq!(network.labels(ALICE), ["100", "440"]);
    network.settle();
}

/// The same where a failure script makes it.
#[test]
fn a_fork_of_a_failure_script_that_is_too_broad_is_a_440() {
    let script = to_bob().on_failure(|cx| {
        cx.append_target(&script::target(CAROL_URI, 1000)).expect("few");
        cx.append_target(&script::target(DAVE_URI, 1000)).expect("few");
        let _ = cx.relay();
    });
    let mut network = Network::new(script);
    network.alice(&Request::invite(1).line("Max-Breadth: 1"));
    let first = network.only(BOB, "INVITE");
    network.send(BOB, first.respond(486, "bob"));
    assert_eq!(network.labels(ALICE), ["100", "440"]);
    network.settle();
}

/// §5.3.3.1: breadth that has come back is shared among the targets that are left.
#[test]
fn what_has_come_back_is_shared_again() {
    let script = Script::fork(&[(BOB_URI, 1000), (CAROL_URI, 500), (DAVE_URI, 500)]);
    let mut network = Network::new(script);
    network.alice(&Request::invite(1).line("Max-Breadth: 5"));
    let first = network.only(BOB, "INVITE");
    assert_eq!(first.values("Max-Breadth"), ["5"]);
    network.send(BOB, first.respond(486, "bob"));
    assert_eq!(network.only(CAROL, "INVITE").values("Max-Breadth"), ["3"]);
    assert_eq!(network.only(rig::DAVE, "INVITE").values("Max-Breadth"), ["2"]);
    network.settle();
}
