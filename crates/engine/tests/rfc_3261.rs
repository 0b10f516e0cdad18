//! Requirements of RFC 3261 on proxies and their transactions that no other file shows, each under its section.

mod rig;

use std::net::SocketAddr;
use std::time::Duration;

use engine::Answer;
use rig::{
    ALICE, BOB, BOB_URI, CAROL, CAROL_URI, DAVE, DAVE_URI, MALLORY, Network, PROXY, Request, Script, Seen,
    labels, script, to_bob,
};

/// What Bob receives of a request that is relayed where it says.
fn proxied(request: &Request) -> Seen {
    let mut network = Network::new(Script::proxy());
    network.alice(request);
    network.only(BOB, &request.method)
}

/// A proxy that stays on the path, with state or without, and knows a target of its own or none.
fn recording(with_state: bool, target: Option<&'static str>) -> Script {
    Script::new(move |cx| {
        let _ = cx.loose_route();
        cx.record_route(b"");
        if let Some(uri) = target {
            cx.set_request_uri(uri.as_bytes());
        }
        let _ = if with_state { cx.relay() } else { cx.forward(None) };
        rig::done()
    })
}

/// §8.2.2.3: Require and Proxy-Require in a CANCEL or in the ACK of a failure "MUST be ignored": no 420, and both do
/// their work.
#[test]
fn require_and_proxy_require_are_ignored_in_cancel_and_ack() {
    let demanding = |request: Request| request.line("Require: teleport").line("Proxy-Require: teleport");
    let invite = Request::invite(1).uri(BOB_URI);
    let mut network = Network::new(Script::proxy());
    network.alice(&invite);
    let received = network.only(BOB, "INVITE");
    network.send(BOB, received.respond(180, "bob"));
    network.take(ALICE);
    network.alice(&demanding(invite.cancel()));
    assert_eq!(network.labels(ALICE), ["200"]);
    let cancel = network.only(BOB, "CANCEL");
    network.send(BOB, cancel.respond(200, "bob"));
    network.send(BOB, received.respond(487, "bob"));
    let terminated = network.only(ALICE, "487");
    network.alice(&demanding(invite.ack(&terminated)));
    network.pass(Duration::from_secs(60));
    assert_eq!(network.labels(BOB), ["ACK"]);
    network.assert_quiet(ALICE);

    let mut network = Network::new(Script::stateless());
    network.alice(&invite);
    let received = network.only(BOB, "INVITE");
    network.alice(&demanding(invite.cancel()));
    assert_eq!(network.labels(BOB), ["CANCEL"]);
    network.send(BOB, received.respond(487, "bob"));
    let terminated = network.only(ALICE, "487");
    network.alice(&demanding(invite.ack(&terminated)));
    assert_eq!(network.labels(BOB), ["ACK"]);
    network.assert_quiet(ALICE);
}

/// §9.2: the To tag of the 200 to a CANCEL and that of the response to the INVITE "SHOULD be the same".
#[test]
fn the_200_to_a_cancel_has_the_to_tag_of_the_487() {
    let mut network = Network::new(Script::suspend(Duration::from_secs(10)));
    let invite = Request::invite(1);
    network.alice(&invite);
    network.take(ALICE);
    network.alice(&invite.cancel());
    let answers = network.take(ALICE);
    let tag = |label: &str| answers.iter().find(|seen| seen.label() == label).and_then(Seen::to_tag);
    assert!(tag("200").is_some(), "{}", network.ladder());
    assert_eq!(tag("200"), tag("487"));
}

/// §16.4: a `maddr` of ours, on the port and transport that the request came by, is stripped, and the request goes on as
/// if it had not been there.
#[test]
fn an_own_maddr_is_stripped_and_the_request_goes_on() {
    let received = proxied(&Request::invite(1).uri("sip:bob@10.0.2.1;maddr=10.0.0.1"));
    assert_eq!(received.uri(), "sip:bob@10.0.2.1");
    let spelled_out = Request::invite(1).uri("sip:bob@10.0.2.1:5060;transport=udp;maddr=10.0.0.1;user=phone");
    assert_eq!(proxied(&spelled_out).uri(), "sip:bob@10.0.2.1;user=phone");
}

/// §16.4: that is so only where "the request was received using the port and transport indicated (explicitly or by
/// default) in the Request-URI".
#[test]
fn an_own_maddr_on_another_port_is_not_stripped() {
    let uri = "sip:bob@10.0.2.1:5070;maddr=10.0.0.1";
    let mut config = rig::config();
    let there = SocketAddr::new(PROXY.ip(), 5070);
    config.listeners.push(engine::Listener {
        transport: sip::Transport::Udp,
        address: there,
        advertise: None,
    });
    let mut network = Network::with(config, Script::proxy());
    network.alice(&Request::invite(1).uri(uri));
    assert_eq!(network.only(there, "INVITE").uri(), uri);
}

/// §16.5: a Request-URI of a domain that the proxy is not responsible for is "the only target": those that it has for
/// users of that name are not, at whatever q.
#[test]
fn a_foreign_request_uri_is_the_only_target() {
    let mut network = Network::new(Script::fork(&[(BOB_URI, 1000), (CAROL_URI, 500)]));
    let uri = "sip:bob@10.0.2.3;user=phone";
    network.alice(&Request::invite(1).uri(uri));
    let received = network.only(DAVE, "INVITE");
    assert_eq!(received.uri(), uri);
    network.send(DAVE, received.respond(404, "dave"));
    assert_eq!(network.labels(ALICE), ["100", "404"]);
    assert!(network.all(BOB).is_empty() && network.all(CAROL).is_empty(), "{}", network.ladder());
}

/// §16.5: a Request-URI with a `maddr` that is not ours is the only target, and sent there as it is.
#[test]
fn a_foreign_maddr_is_where_the_request_goes() {
    let uri = "sip:bob@elsewhere.example.net;maddr=10.0.2.1";
    assert_eq!(proxied(&Request::invite(1).uri(uri)).uri(), uri);
}

/// A request with much that a proxy might touch and must not: lists with odd white space, rows of one field apart, folds,
/// and a body that looks like a header.
fn rich() -> String {
    let body = "\0\u{1}\u{e9}\r\n\r\nRoute: <sip:in.the.body>\r\nMax-Forwards: 17\r\n";
    format!(
        "INVITE sip:bob@example.org SIP/2.0\r\n\
        X-Before:1\r\n\
        Via: SIP/2.0/UDP 10.0.1.1:5060;branch=z9hG4bK-rich\r\n\
        Via: SIP/2.0/TCP one.example.net;branch=z9hG4bK-1 , SIP/2.0/UDP two.example.net;branch=z9hG4bK-2\r\n\
        Supported: b, a ,c\r\n\
        Record-Route: <sip:p2.example.com;lr>,<sip:p1.example.com>\r\n\
        X-Folded : one\r\n  two\r\n\
        Route: <sip:10.0.0.1;lr>\r\n\
        Route: <sip:10.0.2.1;lr;x=1> , <sip:last.example.net;lr>\r\n\
        record-route:<sip:p0.example.com;lr>\r\n\
        Max-Forwards: 17\r\n\
        f:  Alice   <sip:alice@example.org>;tag=a\r\n\
        t: <sip:bob@example.org>\r\n\
        i: rich@alice.example.org\r\n\
        CSeq:  0009  INVITE\r\n\
        supported: a\r\n\
        Contact: <sip:alice@10.0.1.1>\r\n\
        l: {}\r\n\r\n{body}",
        body.len()
    )
}

/// §16.6, with state and without (§16.11): the copy is the request with another Request-URI (item 2), one hop less
/// (item 3), a Record-Route with `lr` before the others (item 4), without our own Route (§16.4) and with our Via before
/// the others (item 8). Max-Breadth is RFC 5393's. Everything else is the same, byte for byte, the body too (item 1).
#[test]
fn a_copy_is_its_request_but_for_what_the_steps_name() {
    for with_state in [true, false] {
        let received = rich();
        let mut network = Network::new(recording(with_state, Some("sip:new@10.0.9.9")));
        network.send(ALICE, &received);
        let copy = network.only(BOB, "INVITE");
        let ours = |line: &&str| {
            line.starts_with("Via: SIP/2.0/UDP 10.0.0.1")
                || line.starts_with("Max-Breadth: ")
                || (line.starts_with("Record-Route: ") && line.contains("10.0.0.1"))
        };
        let text = copy.text();
        assert_eq!(text.split("\r\n").filter(ours).count(), 3, "{text}");
        let rest: Vec<&str> = text.split("\r\n").filter(|line| !ours(line)).collect();
        let expected = received
            .replacen("sip:bob@example.org", "sip:new@10.0.9.9", 1)
            .replacen("Max-Forwards: 17", "Max-Forwards: 16", 1)
            .replacen("Route: <sip:10.0.0.1;lr>\r\n", "", 1);
        assert_eq!(rest.join("\r\n"), expected);
        assert!(copy.vias()[0].starts_with("SIP/2.0/UDP 10.0.0.1"), "{text}");
        let recorded = &copy.values("Record-Route")[0];
        assert!(
            recorded.starts_with("<sip:") && recorded.contains("@10.0.0.1") && recorded.contains(";lr"),
            "{text}"
        );
    }
}

/// §16.6 item 5: Routes of the proxy's own are pushed before those that the request has already.
#[test]
fn routes_of_our_own_are_pushed_before_those_that_are_there() {
    for with_state in [true, false] {
        let mut network = Network::new(Script::new(move |cx| {
            let _ = cx.loose_route();
            let path = b"<sip:10.0.2.2;lr>,<sip:10.0.2.3;lr>";
            cx.set_request_target(&engine::Target { path: Some(path), ..script::target(BOB_URI, 1000) });
            let _ = if with_state { cx.relay() } else { cx.forward(None) };
            rig::done()
        }));
        let routes = "Route: <sip:10.0.0.1;lr>, <sip:10.0.2.1;lr>";
        network.alice(&Request::invite(1).line(routes).line("Route: <sip:last.example.net>"));
        let copy = network.only(CAROL, "INVITE");
        assert_eq!(copy.uri(), BOB_URI);
        let expected =
            ["<sip:10.0.2.2;lr>", "<sip:10.0.2.3;lr>", "<sip:10.0.2.1;lr>", "<sip:last.example.net>"];
        assert_eq!(copy.values("Route"), expected);
    }
}

/// §16.7 item 6: to a request that has a To tag, no forwarded response has another one.
#[test]
fn the_to_tag_of_a_request_is_that_of_its_response() {
    let mut network = Network::new(to_bob());
    network.alice(&Request::options(1).with_to_tag("of-the-dialog"));
    let received = network.only(BOB, "OPTIONS");
    assert_eq!(received.to_tag().as_deref(), Some("of-the-dialog"));
    network.send(BOB, received.respond(481, ""));
    assert_eq!(network.only(ALICE, "481").to_tag().as_deref(), Some("of-the-dialog"));
}

/// §16.9: a transport error is a 503 of its branch, which leaves the others alone; one of a response is nothing at all:
/// "The proxy SHOULD NOT cancel any outstanding client transactions associated with this response context due to this
/// notification."
#[test]
fn a_transport_error_cancels_no_other_branch() {
    let mut network = Network::new(Script::fork(&[(BOB_URI, 1000), (CAROL_URI, 1000), (DAVE_URI, 1000)]));
    network.alice(&Request::invite(1));
    let (bob, carol) = (network.only(BOB, "INVITE"), network.only(CAROL, "INVITE"));
    network.send(BOB, bob.respond(180, "bob"));
    network.take(ALICE);
    network.unreachable(DAVE);
    network.unreachable(ALICE);
    network.until_ms(10_000);
    network.assert_quiet(ALICE);
    network.send(CAROL, carol.respond(404, "carol"));
    network.until_ms(20_000);
    network.assert_quiet(ALICE);
    network.send(BOB, bob.accept("bob"));
    assert_eq!(network.labels(ALICE), ["200"]);
    network.settle();
    for at in [BOB, CAROL, DAVE] {
        assert!(network.sent_at(at, "CANCEL").is_empty(), "{}", network.ladder());
    }
    assert_eq!(network.sent_at(DAVE, "INVITE"), [0]);
}

/// §16.9, §16.7 item 6: that 503 is chosen from as if it had been received, and goes upstream as 500.
#[test]
fn a_transport_error_is_chosen_from_as_a_503() {
    for (status, chosen) in [(302, "302"), (404, "404"), (500, "500"), (503, "500"), (603, "603")] {
        for error_first in [true, false] {
            let mut network = Network::new(Script::fork(&[(BOB_URI, 1000), (CAROL_URI, 1000)]));
            network.alice(&Request::invite(1));
            let bob = network.only(BOB, "INVITE");
            network.take(ALICE);
            if error_first {
                network.unreachable(CAROL);
                network.assert_quiet(ALICE);
            }
            network.send(BOB, bob.respond(status, "bob"));
            if !error_first {
                network.unreachable(CAROL);
            }
            assert_eq!(network.labels(ALICE), [chosen], "{status}");
        }
    }
}

/// §16.11: "A stateless proxy MUST choose one and only one target from the target set", the same for each copy of a
/// request, for its CANCEL and for the ACK of its failure.
#[test]
fn without_state_one_target_is_chosen() {
    let mut network = Network::new(Script::new(|cx| {
        let targets = [BOB_URI, CAROL_URI, DAVE_URI].map(|uri| (uri.to_owned(), 1000));
        script::set_targets(cx, &targets);
        let _ = cx.forward(None);
        rig::done()
    }));
    let invite = Request::invite(1);
    network.alice(&invite);
    network.pass(rig::T1);
    network.alice(&invite);
    network.alice(&invite.cancel());
    let seen = network.take(BOB);
    assert_eq!(labels(&seen), ["INVITE", "INVITE", "CANCEL"]);
    network.send(BOB, seen[0].respond(487, "bob"));
    let terminated = network.only(ALICE, "487");
    network.alice(&invite.ack(&terminated));
    assert_eq!(network.labels(BOB), ["ACK"]);
    assert!(network.all(CAROL).is_empty() && network.all(DAVE).is_empty(), "{}", network.ladder());
}

/// §16.11: "MUST result in the same transformation of a retransmitted request", Record-Route and Route among it,
/// whatever has come between; by §16.4 and §16.6 item 6 as with state: our own Route goes, and the strict router behind
/// it gets what it wants. "The same Route header field processing" is for a CANCEL.
#[test]
fn without_state_each_copy_is_the_same_byte_for_byte() {
    let strict = Request::invite(1)
        .uri("sip:caller@10.0.9.9")
        .line("Route: <sip:10.0.0.1;lr>")
        .line("Route: <sip:10.0.2.1>, <sip:p1.example.com;lr>");
    for request in [rich(), strict.text()] {
        let mut network = Network::new(recording(false, None));
        network.send(ALICE, &request);
        let first = network.only(BOB, "INVITE");
        for n in 2..20 {
            network.alice(&Request::options(n).uri(CAROL_URI));
            network.pass(rig::T1);
        }
        network.send(ALICE, &request);
        assert_eq!(network.only(BOB, "INVITE").text(), first.text());
        let recorded = &first.values("Record-Route")[0];
        assert!(recorded.contains("@10.0.0.1") && recorded.contains(";lr"), "{recorded}");
    }
    let mut network = Network::new(recording(false, None));
    network.alice(&strict);
    let seen = network.only(BOB, "INVITE");
    assert_eq!(seen.uri(), "sip:10.0.2.1");
    assert_eq!(seen.values("Route"), ["<sip:p1.example.com;lr>", "<sip:caller@10.0.9.9>"]);
    network.alice(&strict.cancel());
    let cancel = network.only(BOB, "CANCEL");
    assert_eq!((cancel.uri(), cancel.values("Route")), (seen.uri(), seen.values("Route")));
    assert_eq!(cancel.branch(), seen.branch());
}

/// §16.11, as §16.7 has it: our Via goes from a response; the body is not touched, and no other header field removed.
#[test]
fn a_response_without_state_loses_our_via_and_nothing_else() {
    let mut network = Network::new(Script::stateless());
    network.alice(&Request::invite(1).uri(BOB_URI));
    let received = network.only(BOB, "INVITE");
    let ours = format!("Via: {}\r\n", received.vias()[0]);
    let lines =
        ["x-ODD  :  a  value ", "Server: Bob's phone", "Warning: 399 bob \"what, ever\"", "X-Odd: again"];
    for status in [183, 200, 486] {
        let response = received.respond_with(status, "bob", &lines, "\0binary\r\n\r\nVia: in the body\r\n");
        let response = String::from_utf8(response).expect("our own text");
        network.send(BOB, &response);
        assert_eq!(network.one(ALICE).text(), response.replacen(&ours, "", 1));
    }
}

/// §16.11, §17.2.3: without the magic cookie too, the ACK of a failure gets the branch of its INVITE, though it has a To
/// tag and the INVITE has none.
#[test]
fn the_stateless_branch_of_an_ack_without_cookie_is_that_of_its_invite() {
    let mut network = Network::new(Script::stateless());
    let invite = Request::invite(1).uri(BOB_URI).via("SIP/2.0/UDP 10.0.1.1:5060");
    network.alice(&invite);
    let received = network.one(BOB);
    network.send(BOB, received.respond(486, "bob"));
    let busy = network.one(ALICE);
    network.alice(&invite.ack(&busy));
    let ack = network.one(BOB);
    assert_eq!((ack.label().as_str(), ack.branch()), ("ACK", received.branch()));
}

/// §17.2.3: without the magic cookie, an ACK with another To tag than that of our response belongs to something else.
#[test]
fn an_ack_without_cookie_and_with_another_to_tag_does_not_end_the_retransmissions() {
    let mut network = Network::new(Script::reply(486));
    let invite = Request::invite(1).via("SIP/2.0/UDP 10.0.1.1:5060");
    network.alice(&invite);
    let busy = network.only(ALICE, "486");
    let mut ack = invite.ack(&busy);
    ack.to = format!("{};tag=of-another", invite.to);
    network.alice(&ack);
    network.pass(rig::T1);
    assert_eq!(network.only(ALICE, "486").bytes, busy.bytes);
    network.alice(&invite.ack(&busy));
    network.pass(Duration::from_secs(60));
    network.assert_quiet(ALICE);
}

/// §18.2.2: a response goes to the `maddr` of the Via, at the port of sent-by or 5060; never to a group, which would make
/// one request of a stranger's a message to many.
#[test]
fn a_response_goes_to_the_maddr_of_the_via_unless_that_is_a_group() {
    let with = |maddr: &str| format!("SIP/2.0/UDP 10.0.1.1:5060;maddr={maddr};branch=z9hG4bK-maddr");
    let mut network = Network::new(Script::reply(404));
    network.alice(&Request::options(1).via(&with("10.0.9.9")));
    assert_eq!(network.one(MALLORY).label(), "404");
    network.assert_quiet(ALICE);

    let mut network = Network::new(Script::reply(404));
    network.alice(&Request::options(1).via(&with("224.0.1.75")));
    assert_eq!(network.one(ALICE).label(), "404");
}

/// §18.2.2 without state (§16.11).
#[test]
fn a_response_without_state_goes_to_the_maddr_of_the_next_via() {
    let mut network = Network::new(Script::stateless());
    let via = "SIP/2.0/UDP 10.0.1.1:5060;maddr=10.0.9.9;branch=z9hG4bK-maddr";
    network.alice(&Request::options(1).uri(BOB_URI).via(via));
    let received = network.one(BOB);
    network.send(BOB, received.respond(200, "bob"));
    assert_eq!(network.one(MALLORY).label(), "200");
    network.assert_quiet(ALICE);
}

/// §18.3: "If the transport packet ends before the end of the message body, this is considered an error. If the message
/// is a response, it MUST be discarded": nobody hears of it, nothing acknowledges it, and the whole one counts when it
/// comes.
#[test]
fn a_response_that_is_cut_short_is_discarded() {
    for with_state in [true, false] {
        for status in [183, 200, 486] {
            let mut network = Network::new(if with_state { Script::proxy() } else { Script::stateless() });
            network.alice(&Request::invite(1).uri(BOB_URI));
            let received = network.only(BOB, "INVITE");
            network.take(ALICE);
            let whole = received.respond_with(status, "bob", &["Content-Type: text/plain"], "all of it");
            for missing in [1, 9] {
                network.send(BOB, &whole[..whole.len() - missing]);
                network.assert_quiet(ALICE);
                network.assert_quiet(BOB);
            }
            network.send(BOB, &whole);
            assert_eq!(network.only(ALICE, &status.to_string()).body(), "all of it");
        }
    }
}

/// RFC 3263 §4.4: a proxy without state has one order for the addresses of a name, whatever the order of the answer, so
/// that a retransmission goes where its request went.
#[test]
fn without_state_the_order_of_a_names_addresses_does_not_matter() {
    let [low, high]: [SocketAddr; 2] = [BOB, CAROL];
    for answer in [[low.ip(), high.ip()], [high.ip(), low.ip()]] {
        let mut network = Network::new(Script::stateless());
        let options = Request::options(1).uri("sip:bob@two.example.net:5060");
        network.alice(&options);
        network.answer(Answer::Addresses(&answer));
        assert_eq!(network.one(low).label(), "OPTIONS");
        network.alice(&options);
        assert_eq!(network.one(low).label(), "OPTIONS");
        network.assert_quiet(high);
    }
}
