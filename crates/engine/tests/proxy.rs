//! The proxy core: what is changed in a forwarded message and what is not, refusals, stateless forwarding (RFC 3261
//! §16, §18, RFC 3581).

mod rig;

use std::net::SocketAddr;

use rig::{ALICE, BOB, BOB_URI, Network, PROXY, Request, Script, Seen, config, labels, param, to_bob};

/// What Bob receives of `request`.
fn forwarded(request: &Request) -> Seen {
    let mut network = Network::new(to_bob());
    network.alice(request);
    network.only(BOB, &request.method)
}

/// The status that Alice gets for `request`, with the whole response.
fn refused(request: &Request) -> Seen {
    let mut network = Network::new(to_bob());
    network.alice(request);
    network.assert_quiet(BOB);
    let response = network.one(ALICE);
    if request.method == "INVITE" {
        network.alice(&request.ack(&response));
        network.assert_quiet(BOB);
        network.assert_quiet(ALICE);
    }
    network.settle();
    response
}

// --- Via (RFC 3261 §16.6 item 8, §18.2, RFC 3581) ------------------------------------------------------------------

/// RFC 3261 §16.6 item 8: our Via goes before the existing ones, which stay as they are.
#[test]
fn our_via_is_pushed_on_top() {
    let mut invite = Request::invite(1);
    invite.vias.push("SIP/2.0/TCP first.example.org:5062;branch=z9hG4bKfirst;received=192.0.2.7".into());
    let seen = forwarded(&invite);
    assert_eq!(seen.vias().len(), 3);
    assert_eq!(seen.vias()[1..], invite.vias[..]);
}

/// RFC 3261 §18.2.1: a sent-by that is not the source address gets `received`.
#[test]
fn received_is_added_where_sent_by_is_not_the_source() {
    let seen = forwarded(&Request::invite(1).via("SIP/2.0/UDP phone.example.org;branch=z9hG4bKx"));
    assert_eq!(param(&seen.vias()[1], "received").as_deref(), Some("10.0.1.1"));
    let seen = forwarded(&Request::invite(1).via("SIP/2.0/UDP 192.168.1.2:5060;branch=z9hG4bKx"));
    assert_eq!(param(&seen.vias()[1], "received").as_deref(), Some("10.0.1.1"));
}

/// A client cannot say where it was received from.
#[test]
fn a_forged_received_is_replaced() {
    let seen = forwarded(
        &Request::invite(1).via("SIP/2.0/UDP phone.example.org;received=192.0.2.1;branch=z9hG4bKx"),
    );
    let via = &seen.vias()[1];
    assert_eq!(via.matches("received").count(), 1, "{via}");
    assert_eq!(param(via, "received").as_deref(), Some("10.0.1.1"));
    assert!(!via.contains("192.0.2.1"), "{via}");
}

/// Nor can one that comes from where its sent-by says.
#[test]
fn a_received_that_the_client_wrote_is_replaced_where_sent_by_is_the_source() {
    let seen =
        forwarded(&Request::invite(1).via("SIP/2.0/UDP 10.0.1.1:5060;received=192.0.2.1;branch=z9hG4bKx"));
    let via = &seen.vias()[1];
    assert_eq!(param(via, "received").as_deref(), Some("10.0.1.1"));
    assert!(!via.contains("192.0.2.1"), "{via}");
}

/// RFC 3581 §4: `rport` is filled with the source port, and `received` is added even where it equals sent-by.
#[test]
fn rport_is_filled_and_received_added() {
    let mut network = Network::new(to_bob());
    let source = SocketAddr::new(ALICE.ip(), 40_000);
    network.send(source, Request::invite(1).via("SIP/2.0/UDP 10.0.1.1:5060;rport;branch=z9hG4bKx").bytes());
    let received = network.only(BOB, "INVITE");
    let via = received.vias()[1].clone();
    assert_eq!(param(&via, "rport").as_deref(), Some("40000"));
    assert_eq!(param(&via, "received").as_deref(), Some("10.0.1.1"));
    network.take(source);
    network.send(BOB, received.respond(180, "bob"));
    let ringing = network.one(source);
    assert_eq!(ringing.vias(), [via], "RFC 3261 §16.7 item 9: our received stays");
    assert!(network.all(ALICE).is_empty());
}

/// RFC 3261 §18.2.2: without `rport` the response goes to the source address and the port of sent-by.
#[test]
fn a_response_goes_to_the_port_of_sent_by_without_rport() {
    let mut network = Network::new(to_bob());
    let source = SocketAddr::new(ALICE.ip(), 40_000);
    network.send(source, Request::invite(1).via("SIP/2.0/UDP 192.168.1.2:5070;branch=z9hG4bKx").bytes());
    let received = network.only(BOB, "INVITE");
    network.send(BOB, received.respond(180, "bob"));
    assert_eq!(network.labels(SocketAddr::new(ALICE.ip(), 5070)), ["100", "180"]);
    assert!(network.all(source).is_empty());
}

/// RFC 3261 §18.2.2: no port in sent-by means 5060.
#[test]
fn a_response_goes_to_port_5060_where_sent_by_has_none() {
    let mut network = Network::new(Script::reply(404));
    network.send(
        SocketAddr::new(ALICE.ip(), 40_000),
        Request::options(1).via("SIP/2.0/UDP 10.0.1.1;branch=z9hG4bKx").bytes(),
    );
    assert_eq!(network.labels(ALICE), ["404"]);
}

/// RFC 3261 §16.7 items 3 and 9: our Via is removed; nothing else of the response changes.
#[test]
fn a_response_loses_our_via_and_nothing_else() {
    let mut network = Network::new(to_bob());
    network.alice(&Request::invite(1));
    let received = network.only(BOB, "INVITE");
    network.take(ALICE);
    let body = "\0binary\r\n\r\nbody \u{e9}";
    let lines =
        ["x-ODD  :  a  value ", "Server: Bob's phone", "Warning: 399 bob \"what, ever\"", "X-Odd: again"];
    let response = String::from_utf8(received.respond_with(183, "bob", &lines, body)).expect("our own text");
    network.send(BOB, &response);
    let seen = network.one(ALICE);
    let ours = format!("Via: {}\r\n", received.vias()[0]);
    assert_eq!(seen.text(), response.replacen(&ours, "", 1));
}

/// The same where both Vias stand in one header line.
#[test]
fn our_via_is_removed_from_a_joined_line() {
    let mut network = Network::new(to_bob());
    network.alice(&Request::invite(1));
    let received = network.only(BOB, "INVITE");
    network.take(ALICE);
    let text = String::from_utf8(received.respond(180, "bob")).expect("our own text");
    let vias = received.vias();
    let scattered = format!("Via: {}\r\nVia: {}\r\n", vias[0], vias[1]);
    assert!(text.contains(&scattered));
    network.send(BOB, text.replacen(&scattered, &format!("v: {},{}\r\n", vias[0], vias[1]), 1));
    let seen = network.one(ALICE);
    let left: Vec<String> = seen.values("Via").into_iter().chain(seen.values("v")).collect();
    assert_eq!(left, vias[1..]);
}

/// RFC 3261 §16.11: a response whose topmost Via is not ours is silently discarded.
#[test]
fn a_response_that_is_not_ours_is_dropped() {
    let mut network = Network::new(to_bob());
    let mut stranger = Request::invite(1);
    stranger.vias.insert(0, "SIP/2.0/UDP 10.9.9.9:5060;branch=z9hG4bKstranger".into());
    let seen = Seen { at: 0, from: PROXY, to: BOB, bytes: stranger.bytes() };
    network.send(BOB, seen.respond(200, "bob"));
    network.send(BOB, seen.respond(180, "bob"));
    assert_eq!(network.log.len(), 2, "{}", network.ladder());
    network.assert_at_rest();
}

// --- Max-Forwards (RFC 3261 §16.3 item 3, §16.6 item 3) ------------------------------------------------------------

/// RFC 3261 §16.6 item 3: decremented by one; added as 70 where it is missing; 0 may be forwarded but not received.
#[test]
fn max_forwards_is_decremented_or_added() {
    for (before, after) in [(Some("70"), "69"), (Some("1"), "0"), (Some("255"), "254"), (None, "70")] {
        let seen = forwarded(&Request::invite(1).max_forwards(before));
        assert_eq!(seen.values("Max-Forwards"), [after], "{before:?}");
    }
}

/// RFC 3261 §16.3 item 3: Max-Forwards 0 must not be forwarded: 483.
#[test]
fn max_forwards_zero_is_answered_483() {
    let response = refused(&Request::invite(1).max_forwards(Some("0")));
    assert_eq!(response.status(), Some(483));
    assert_eq!(refused(&Request::new("MESSAGE", 2).max_forwards(Some("0"))).status(), Some(483));
}

/// RFC 3261 §8.2.6.2: a refusal copies Via, From, To, Call-ID and CSeq, and tags To.
#[test]
fn a_refusal_is_a_well_formed_response() {
    let invite = Request::invite(1).max_forwards(Some("0"));
    let response = refused(&invite);
    assert_eq!(response.vias(), invite.vias);
    assert_eq!(response.header("From"), Some(invite.from.clone()));
    assert_eq!(response.header("Call-ID"), Some(invite.call_id.clone()));
    assert_eq!(response.header("CSeq").as_deref(), Some("1 INVITE"));
    assert!(response.to_tag().is_some());
    assert!(response.header("To").is_some_and(|to| to.starts_with(&invite.to)));
    assert_eq!(response.header("Content-Length").as_deref(), Some("0"));
}

// --- other refusals --------------------------------------------------------------------------------------------

/// RFC 3261 §16.3 item 5: 420 with an Unsupported header that lists what is not understood.
#[test]
fn an_unknown_proxy_require_is_answered_420() {
    let response = refused(&Request::invite(1).line("Proxy-Require: foo, bar").line("Proxy-Require: baz"));
    assert_eq!(response.status(), Some(420));
    let mut unsupported = response.values("Unsupported");
    unsupported.sort();
    assert_eq!(unsupported, ["bar", "baz", "foo"]);
}

/// RFC 3261 §16.3 item 5 speaks of Proxy-Require only: Require is for the callee.
#[test]
fn an_unknown_require_is_forwarded() {
    assert_eq!(forwarded(&Request::invite(1).line("Require: foo")).values("Require"), ["foo"]);
}

/// RFC 3261 §16.3 item 2: an unknown scheme is answered 416.
#[test]
fn an_unknown_scheme_is_answered_416() {
    for uri in [
        "nobodyKnowsThisScheme:totallyopaquecontent",
        "soap.beep://192.0.2.103:3002",
        "mailto:bob@example.net",
    ] {
        assert_eq!(refused(&Request::invite(1).uri(uri)).status(), Some(416), "{uri}");
    }
}

/// RFC 3261 §8.2, §21.5.6: an unknown version of SIP is answered 505.
#[test]
fn another_version_is_answered_505() {
    let mut invite = Request::invite(1);
    invite.version = "SIP/7.0".into();
    assert_eq!(refused(&invite).status(), Some(505));
}

/// RFC 3261 §16.3 item 1: what is not well-formed enough for a transaction is answered 400.
#[test]
fn malformed_requests_are_answered_400() {
    let mut mismatch = Request::invite(1);
    mismatch.cseq_method = "OPTIONS".into();
    assert_eq!(refused(&mismatch).status(), Some(400));
    let doubled = Request::invite(2).line("Call-ID: another@alice.example.org");
    assert_eq!(refused(&doubled).status(), Some(400));
    for name in ["From", "To", "Call-ID", "CSeq"] {
        let text = Request::options(3).text();
        let start = text.find(&format!("\r\n{name}: ")).expect("the header is there");
        let end = start + 2 + text[start + 2..].find("\r\n").expect("its end");
        let without = format!("{}{}", &text[..start], &text[end..]);
        let mut network = Network::new(to_bob());
        network.send(ALICE, without);
        network.assert_quiet(BOB);
        let seen = network.take(ALICE);
        assert!(labels(&seen).iter().all(|label| label == "400"), "{name}: {:?}", labels(&seen));
        network.settle();
    }
}

/// RFC 3261 §18.3: a Content-Length beyond the datagram is an error; bytes beyond Content-Length are discarded.
#[test]
fn content_length_frames_the_body() {
    let good = Request::invite(1).text();
    let mut network = Network::new(to_bob());
    network.send(ALICE, good.replace("Content-Length: ", "Content-Length: 1"));
    network.assert_quiet(BOB);
    assert_eq!(network.labels(ALICE), ["400"]);
    let mut network = Network::new(to_bob());
    network.send(ALICE, format!("{good}trailing"));
    let seen = network.only(BOB, "INVITE");
    assert!(!seen.text().contains("trailing"));
}

/// RFC 3261 §17, §16.3: no error is ever sent for an ACK, nor for a response.
#[test]
fn bad_acks_and_bad_responses_are_never_answered() {
    let mut network = Network::new(to_bob());
    network.alice(&Request::new("ACK", 1).max_forwards(Some("0")));
    network.alice(&Request::new("ACK", 2).line("Proxy-Require: foo"));
    network.alice(&Request::new("ACK", 3).uri("unknown:scheme"));
    network.alice(&Request::new("ACK", 4).line("Call-ID: another"));
    let mut old = Request::new("ACK", 5);
    old.version = "SIP/7.0".into();
    network.alice(&old);
    network.send(BOB, "SIP/2.0 200 OK\r\n\r\n");
    network.send(BOB, "SIP/2.0 99999 What\r\nVia: SIP/2.0/UDP 10.0.0.1\r\n\r\n");
    network.assert_quiet(ALICE);
    network.assert_quiet(BOB);
    network.assert_at_rest();
}

/// The script's own refusal, within a transaction: retransmitted by it.
#[test]
fn a_scripted_404_is_sent_by_a_transaction() {
    let mut network = Network::new(Script::reply(404));
    let invite = Request::invite(1);
    network.alice(&invite);
    let response = network.only(ALICE, "404");
    assert!(response.to_tag().is_some());
    network.until_ms(600);
    assert_eq!(network.sent_at(ALICE, "404"), [0, 500]);
    network.alice(&invite.ack(&response));
    network.settle();
}

/// RFC 3261 §16.3 item 1: unknown methods and header fields are no reason to refuse.
#[test]
fn an_unknown_method_is_proxied_as_a_non_invite() {
    let mut network = Network::new(to_bob());
    network.alice(&Request::new("NEWMETHOD", 1));
    let received = network.only(BOB, "NEWMETHOD");
    network.assert_quiet(ALICE);
    network.until_ms(600);
    network.send(BOB, received.respond(200, "bob"));
    assert_eq!(network.labels(ALICE), ["200"]);
    assert_eq!(network.sent_at(BOB, "NEWMETHOD"), [0, 500]);
    network.settle();
}

// --- what must not change (RFC 3261 §16.6 item 1) ------------------------------------------------------------------

/// RFC 3261 §22.3, RFC 7616 §3.6: a proxy is transparent to the digest of others, in both directions.
#[test]
fn digest_header_fields_of_others_pass_untouched() {
    let credentials = [
        "Authorization: Digest  username=\"a\\\"b\", realm=\"x\" ,nonce=\"n\",uri=\"sip:bob@example.org\",\r\n  response=\"00\"",
        "Proxy-Authorization: digest REALM=other",
    ];
    let answers = [
        "WWW-Authenticate:Digest realm=\"x\",  algorithm=SHA-256, opaque=\"\\\"\", charset=UTF-8",
        "Authentication-Info:  qop=auth ,rspauth=\"00\",nextnonce=\"y\"",
        "Proxy-Authentication-Info: nextnonce=\"z\"",
    ];
    for (status, lines) in [(401, &answers[..1]), (200, &answers[1..])] {
        let mut network = Network::new(to_bob());
        let mut request = Request::invite(1);
        request.lines.extend(credentials.map(str::to_owned));
        network.alice(&request);
        let seen = network.only(BOB, "INVITE");
        for line in credentials {
            assert!(seen.text().contains(&format!("\r\n{line}\r\n")), "{line}\n{}", seen.text());
        }
        let count = |name: &str| seen.header_lines().iter().filter(|(known, _)| known == name).count();
        assert_eq!(
            (count("Authorization"), count("Proxy-Authorization")),
            (1, 1),
            "RFC 3261 §22.3: nothing is added"
        );
        network.take(ALICE);
        network.send(BOB, seen.respond_with(status, "bob", lines, ""));
        let text = network.one(ALICE).text();
        for line in lines {
            assert!(text.contains(&format!("\r\n{line}\r\n")), "{line}\n{text}");
        }
    }
}

/// RFC 3261 §16.6 item 1: header fields keep their bytes and their order; the body is not touched.
#[test]
fn unknown_headers_and_the_body_are_forwarded_byte_for_byte() {
    let head: &[u8] = b"INVITE sip:bob@example.org SIP/2.0\r\n\
        X-First:1\r\n\
        Via: SIP/2.0/UDP 10.0.1.1:5060;branch=z9hG4bKbytes\r\n\
        x-Folded : one\r\n  two\r\n\tthree\r\n\
        f:  Alice   <sip:alice@example.org>;tag=a;odd=\"a;b\"\r\n\
        t: <sip:bob@example.org>\r\n\
        Max-Forwards: 70\r\n\
        i: bytes@alice.example.org\r\n\
        CSeq:  0009  INVITE\r\n\
        Date: not a date at all\r\n\
        X-Bytes: \xff\xfe\x80 \x01\r\n\
        X-First: 2\r\n\
        Subject:\r\n\
        s: again\r\n\
        Contact: <sip:alice@10.0.1.1>\r\n\
        Content-Type: application/octet-stream\r\n";
    let body: &[u8] = b"\x00\x01\xff\r\n\r\nVia: not a header\r\n";
    let mut bytes = head.to_vec();
    bytes.extend_from_slice(format!("l: {}\r\n\r\n", body.len()).as_bytes());
    bytes.extend_from_slice(body);
    let mut network = Network::new(to_bob());
    network.send(ALICE, &bytes);
    let seen = network.take(BOB).remove(0);

    let lines = |bytes: &[u8]| -> Vec<Vec<u8>> { bytes.split(|&b| b == b'\n').map(<[u8]>::to_vec).collect() };
    let (before, after) = (lines(&bytes), lines(&seen.bytes));
    // Two more lines, our Via and Max-Breadth (RFC 5393 §5.3.3), and two that differ (start line, Max-Forwards).
    let mut after = after;
    after.retain(|line| {
        !line.starts_with(b"Via: SIP/2.0/UDP 10.0.0.1;") && !line.starts_with(b"Via: SIP/2.0/UDP 10.0.0.1:")
    });
    after.retain(|line| !line.starts_with(b"Max-Breadth:"));
    assert_eq!(after.len(), before.len(), "{}", seen.text());
    let differing: Vec<usize> = (0..before.len()).filter(|&n| before[n] != after[n]).collect();
    assert_eq!(differing.len(), 2, "{}", seen.text());
    assert_eq!(differing[0], 0);
    assert_eq!(after[differing[1]], b"Max-Forwards: 69\r");
    assert!(seen.bytes.ends_with(body));
}

/// RFC 3261 §16.7: the To tag of a forwarded response is the callee's; a proxy inserts none.
#[test]
fn to_tags_of_responses_are_kept() {
    let mut network = Network::new(to_bob());
    network.alice(&Request::invite(1));
    let received = network.only(BOB, "INVITE");
    network.take(ALICE);
    network.send(BOB, received.respond(180, ""));
    assert_eq!(network.one(ALICE).to_tag(), None);
    network.send(BOB, received.respond(486, "bob-tag"));
    assert_eq!(network.one(ALICE).to_tag().as_deref(), Some("bob-tag"));
}

/// A request that our domain does not own goes on with its Request-URI unchanged (RFC 3261 §16.5).
#[test]
fn a_foreign_request_uri_is_not_changed() {
    let uri = "sip:bob%20b;x=y@10.0.2.1:5060;transport=udp;user=phone;Odd=%41";
    let seen = forwarded(&Request::invite(1).uri(uri));
    assert_eq!(seen.uri(), uri);
}

// --- stateless (RFC 3261 §16.11) -----------------------------------------------------------------------------------

fn stateless() -> Network {
    Network::new(Script::stateless())
}

fn to_bob_directly(request: Request) -> Request {
    request.uri(BOB_URI)
}

/// RFC 3261 §16.11: retransmissions get the same branch and go the same way; no 100, no state.
#[test]
fn a_stateless_proxy_gives_a_retransmission_the_same_branch() {
    let mut network = stateless();
    let invite = to_bob_directly(Request::invite(1));
    network.alice(&invite);
    network.until_ms(500);
    network.alice(&invite);
    let seen = network.take(BOB);
    assert_eq!(labels(&seen), ["INVITE", "INVITE"]);
    assert_eq!(seen[0].bytes, seen[1].bytes, "the same transformation");
    assert!(seen[0].branch().starts_with("z9hG4bK"));
    assert_eq!(seen[0].values("Max-Forwards"), ["69"]);
    network.assert_quiet(ALICE);
    network.assert_at_rest();
}

/// RFC 3261 §16.11: CANCEL and the ACK of a non-2xx get the branch of their INVITE.
#[test]
fn a_stateless_proxy_gives_cancel_and_ack_the_branch_of_their_invite() {
    for via in ["SIP/2.0/UDP 10.0.1.1:5060;branch=z9hG4bKnew", "SIP/2.0/UDP 10.0.1.1:5060"] {
        let mut network = stateless();
        let invite = to_bob_directly(Request::invite(1)).via(via);
        network.alice(&invite);
        let received = network.one(BOB);
        network.alice(&invite.cancel());
        let cancel = network.one(BOB);
        network.send(BOB, received.respond(487, "bob"));
        let terminated = network.one(ALICE);
        network.alice(&invite.ack(&terminated));
        let ack = network.one(BOB);
        assert_eq!(cancel.label(), "CANCEL");
        assert_eq!(cancel.branch(), received.branch(), "{via}");
        assert_eq!(ack.label(), "ACK");
        // A To tag is in the ACK only: RFC 2543 transactions without a cookie are told apart by it.
        if via.contains("branch") {
            assert_eq!(ack.branch(), received.branch(), "{via}");
        }
        network.assert_at_rest();
    }
}

/// RFC 3261 §16.11: branches of different transactions differ.
#[test]
fn a_stateless_proxy_gives_each_transaction_its_branch() {
    let mut network = stateless();
    for n in 0..200 {
        network.alice(&to_bob_directly(Request::invite(n)));
        network.alice(&to_bob_directly(Request::invite(n)).via("SIP/2.0/UDP 10.0.1.1:5060"));
    }
    let branches: std::collections::BTreeSet<String> = network.take(BOB).iter().map(Seen::branch).collect();
    assert_eq!(branches.len(), 400);
}

/// RFC 3261 §16.11: responses go to the next Via, our own removed; every retransmission too.
#[test]
fn a_stateless_proxy_forwards_every_response() {
    let mut network = stateless();
    network.alice(&to_bob_directly(Request::invite(1)));
    let received = network.one(BOB);
    for status in [100, 180, 200, 200] {
        network
            .send(BOB, if status == 200 { received.accept("bob") } else { received.respond(status, "bob") });
        let seen = network.one(ALICE);
        assert_eq!(seen.status(), Some(status));
        assert_eq!(seen.vias(), received.vias()[1..]);
    }
    network.assert_quiet(BOB);
    network.assert_at_rest();
}

/// RFC 3261 §16.11 with RFC 3581: a response goes back to the port the request came from.
#[test]
fn a_stateless_proxy_obeys_rport() {
    let mut network = stateless();
    let source = SocketAddr::new(ALICE.ip(), 40_000);
    network.send(
        source,
        to_bob_directly(Request::invite(1)).via("SIP/2.0/UDP 192.168.0.7;rport;branch=z9hG4bKx").bytes(),
    );
    let received = network.one(BOB);
    network.send(BOB, received.respond(180, "bob"));
    assert_eq!(network.labels(source), ["180"]);
}

/// RFC 3261 §16.11: "A stateless proxy MUST validate a request as described in Section 16.3".
#[test]
fn a_stateless_proxy_validates() {
    for (request, status) in [
        (Request::invite(1).max_forwards(Some("0")), 483),
        (Request::invite(2).line("Proxy-Require: foo"), 420),
        (Request::invite(3).uri("unknown:scheme"), 416),
    ] {
        let mut network = stateless();
        let request = if request.uri.starts_with("unknown") { request } else { to_bob_directly(request) };
        network.alice(&request);
        network.assert_quiet(BOB);
        assert_eq!(network.one(ALICE).status(), Some(status));
        network.assert_at_rest();
    }
}

/// RFC 3261 §16.10: a CANCEL of an unknown transaction is forwarded statelessly.
#[test]
fn an_unknown_cancel_is_forwarded_statelessly() {
    let mut network = Network::new(Script::proxy());
    network.alice(&to_bob_directly(Request::invite(1)).cancel());
    assert_eq!(network.labels(BOB), ["CANCEL"]);
    network.assert_quiet(ALICE);
    network.assert_at_rest();
}

/// RFC 3261 §9.2, §16.10: a CANCEL of a request that is no INVITE is answered 200 and has no effect.
#[test]
fn a_cancel_of_another_request_than_an_invite_is_answered_200_and_changes_nothing() {
    let mut network = Network::new(Script::proxy());
    let request = to_bob_directly(Request::new("MESSAGE", 1));
    network.alice(&request);
    let received = network.only(BOB, "MESSAGE");
    for _ in 0..2 {
        network.alice(&request.cancel());
    }
    assert_eq!(network.labels(ALICE), ["200", "200"]);
    network.assert_quiet(BOB);
    network.send(BOB, received.respond(202, "bob"));
    assert_eq!(network.labels(ALICE), ["202"]);
    network.settle();
    network.assert_at_rest();
}

/// RFC 3261 §20.22 and §16.6: a too large datagram is answered 513, not forwarded.
#[test]
fn a_message_over_the_limit_is_answered_513() {
    let mut config = config();
    config.limits.message_bytes_max = 4096;
    let mut network = Network::with(config, to_bob());
    let mut invite = Request::invite(1);
    invite.body = "x".repeat(5000);
    network.alice(&invite);
    network.assert_quiet(BOB);
    assert_eq!(network.labels(ALICE), ["513"]);
    network.settle();
}
