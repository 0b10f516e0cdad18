//! Everything has a limit and an answer when it is reached; and no bytes, in any order, break anything.

mod rig;

use std::net::SocketAddr;
use std::time::Duration;

use rig::prng::Prng;
use rig::{
    ALICE, BOB, BOB_URI, CAROL, CAROL_URI, DAVE, DAVE_URI, MALLORY, Network, Request, Script, Seen, config,
    labels, script, to_bob,
};

/// Past `transactions_max`: 503 with Retry-After, without state; what is in the table goes on; then it recovers.
#[test]
fn a_full_table_refuses_with_503_and_recovers() {
    let mut config = config();
    config.limits.transactions_max = 10;
    let mut network = Network::with(config, Script::reply(200));
    for n in 0..10 {
        network.alice(&Request::options(n));
    }
    assert_eq!(labels(&network.take(ALICE)), vec!["200"; 10]);
    assert_eq!(network.engine.transactions(), 10);
    network.alice(&Request::options(10));
    let refused = network.one(ALICE);
    assert_eq!(refused.status(), Some(503));
    let retry_after = refused.header("Retry-After").expect("RFC 3261 §21.5.4");
    assert!(retry_after.parse::<u32>().is_ok_and(|seconds| seconds > 0));
    assert_eq!(network.engine.transactions(), 10);
    network.alice(&Request::options(3));
    assert_eq!(network.labels(ALICE), ["200"], "a retransmission still gets its answer");
    network.until_ms(33_000);
    network.take(ALICE);
    network.alice(&Request::options(11));
    assert_eq!(network.labels(ALICE), ["200"], "the table has room again");
    network.settle();
}

/// The same for calls that are relayed; a CANCEL of an accepted call still works when the table is full.
#[test]
fn a_full_table_still_lets_calls_end() {
    let mut config = config();
    config.limits.transactions_max = 12;
    let mut network = Network::with(config, to_bob());
    let mut n = 0;
    while !network.take(ALICE).iter().any(|seen| seen.status() == Some(503)) {
        assert!(n < 20, "the limit was never reached");
        network.alice(&Request::invite(n));
        n += 1;
    }
    let received = network.take(BOB);
    assert!(!received.is_empty() && received.len() <= 12);
    assert!(network.engine.transactions() <= 12);
    network.send(BOB, received[0].respond(180, "bob"));
    network.alice(&Request::invite(0).cancel());
    assert_eq!(network.labels(BOB), ["CANCEL"]);
    assert!(network.take(ALICE).iter().any(|seen| seen.status() == Some(200)));
    if let Some(second) = received.get(1) {
        network.send(BOB, second.accept("bob"));
        assert_eq!(network.labels(ALICE), ["200"]);
    }
    network.settle();
}

/// A refused INVITE's ACK is absorbed: no state was kept for it.
#[test]
fn the_ack_of_a_503_is_absorbed() {
    let mut config = config();
    config.limits.transactions_max = 1;
    let mut network = Network::with(config, Script::reply(486));
    network.alice(&Request::invite(0));
    network.take(ALICE);
    let second = Request::invite(1);
    network.alice(&second);
    let refused = network.one(ALICE);
    assert_eq!(refused.status(), Some(503));
    network.alice(&second.ack(&refused));
    assert_eq!(network.engine.user().count("request ACK"), 0);
    network.assert_quiet(ALICE);
    network.settle();
}

/// The same within a dialog, whose To tag is not ours: its branch says what it belongs to (RFC 3261 §17.1.1.3), and the ACK of
/// a 2xx has another one.
#[test]
fn the_ack_of_a_503_within_a_dialog_is_absorbed() {
    let mut config = config();
    config.limits.transactions_max = 1;
    let mut network = Network::with(config, to_bob());
    let invite = Request::invite(0);
    network.alice(&invite);
    let received = network.only(BOB, "INVITE");
    network.send(BOB, received.accept("bob"));
    let accepted = network.only(ALICE, "200");
    let again = invite.in_dialog("INVITE", &accepted);
    for _ in 0..2 {
        network.alice(&again);
        let refused = network.one(ALICE);
        assert_eq!((refused.status(), refused.to_tag()), (Some(503), Some("bob".to_owned())));
        network.alice(&again.ack(&refused));
        network.assert_quiet(BOB);
    }
    assert_eq!(network.engine.user().count("request ACK"), 0);
    network.alice(&invite.ack_2xx(&accepted));
    assert_eq!(network.labels(BOB), ["ACK"]);
    network.settle();
}

/// A copy of what was refused may find room and be accepted before the ACK of the refusal comes.
#[test]
fn the_ack_of_a_503_is_absorbed_though_a_copy_was_accepted() {
    let mut config = config();
    config.limits.transactions_max = 1;
    let mut network = Network::with(config, to_bob());
    network.alice(&Request::options(0));
    let options = network.only(BOB, "OPTIONS");
    let invite = Request::invite(1);
    network.alice(&invite);
    let refused = network.only(ALICE, "503");
    network.send(BOB, options.respond(200, "bob"));
    network.pass(Duration::from_secs(33));
    network.alice(&invite);
    let received = network.only(BOB, "INVITE");
    network.send(BOB, received.accept("bob"));
    network.take(BOB);
    network.alice(&invite.ack(&refused));
    network.assert_quiet(BOB);
    assert_eq!(network.engine.user().count("request ACK"), 0);
    network.settle();
}

/// And when it comes after Timer H.
#[test]
fn the_late_ack_of_a_failure_within_a_dialog_is_absorbed() {
    let mut network = Network::new(to_bob());
    let mut again = Request::invite(0).with_to_tag("bob");
    again.lines.clear();
    network.alice(&again);
    let received = network.only(BOB, "INVITE");
    network.send(BOB, received.respond(486, "bob"));
    let refused = network.only(ALICE, "486");
    network.settle();
    network.take(BOB);
    network.alice(&again.ack(&refused));
    network.assert_quiet(BOB);
    assert_eq!(network.engine.user().count("request ACK"), 0);
}

/// More targets than `branches_max` are refused to the script; those below the limit are tried.
#[test]
fn targets_past_the_limit_are_refused() {
    let mut config = config();
    config.limits.branches_max = 4;
    let script = Script::new(|cx| {
        let mut refused = 0;
        cx.set_request_uri(b"sip:target0@10.0.3.0:5060");
        for n in 1..10 {
            let uri = format!("sip:target{n}@10.0.3.{n}:5060");
            refused += u32::from(cx.append_target(&script::target(&uri, 1000)).is_err());
        }
        assert_eq!(refused, 6);
        let _ = cx.relay();
        rig::done()
    });
    let mut network = Network::with(config, script);
    network.alice(&Request::invite(1));
    let invites =
        network.log.iter().filter(|seen| seen.from == rig::PROXY && seen.label() == "INVITE").count();
    assert_eq!(invites, 4);
    network.settle();
}

/// An endless `on_failure` that always finds another target is stopped by `branches_max`.
#[test]
fn an_endless_serial_search_is_stopped() {
    let mut config = config();
    config.limits.branches_max = 5;
    let mut next = 1;
    let script = Script::fork(&[("sip:t@10.0.3.0:5060", 1000)]).on_failure(move |cx| {
        next += 1;
        let _ = cx.append_target(&script::target(&format!("sip:t@10.0.3.{next}:5060"), 1000));
        let _ = cx.relay();
    });
    let mut network = Network::with(config, script);
    network.alice(&Request::invite(1));
    let mut answered = 0;
    let mut at = 0;
    while at < network.log.len() {
        let seen = network.log[at].clone();
        at += 1;
        if seen.label() == "INVITE" && seen.from == rig::PROXY {
            answered += 1;
            assert!(answered <= 5, "more branches than the limit");
            network.send(seen.to, seen.respond(486, "busy"));
        }
    }
    assert_eq!(answered, 5);
    assert_eq!(network.finals(ALICE, "INVITE").len(), 1);
    network.settle();
}

// --- Max-Breadth (RFC 5393 §5.3.3) ---------------------------------------------------------------------------------

fn max_breadths(script: Script, incoming: Option<&str>) -> Vec<u32> {
    let mut network = Network::new(script);
    let mut invite = Request::invite(1);
    if let Some(value) = incoming {
        invite = invite.line(&format!("Max-Breadth: {value}"));
    }
    network.alice(&invite);
    let out: Vec<Seen> = [BOB, CAROL, DAVE].into_iter().flat_map(|at| network.take(at)).collect();
    let values = out
        .iter()
        .map(|seen| {
            let values = seen.values("Max-Breadth");
            assert_eq!(values.len(), 1, "RFC 5393 §5.3.3: a single Max-Breadth\n{}", seen.text());
            values[0].parse().expect("a number")
        })
        .collect();
    network.settle();
    values
}

fn three() -> Script {
    Script::fork(&[(BOB_URI, 1000), (CAROL_URI, 1000), (DAVE_URI, 1000)])
}

/// RFC 5393 §5.3.3: a request without Max-Breadth gets one of 60.
#[test]
fn a_missing_max_breadth_is_added() {
    assert_eq!(max_breadths(to_bob(), None), [60]);
}

/// RFC 5393 §5.3.3: one branch takes it all; a larger value than our maximum is overwritten.
#[test]
fn max_breadth_is_passed_on_to_a_single_branch() {
    assert_eq!(max_breadths(to_bob(), Some("1")), [1]);
    assert_eq!(max_breadths(to_bob(), Some("7")), [7]);
    assert_eq!(max_breadths(to_bob(), Some("100000")), [60]);
}

/// RFC 5393 §5.3.3: the branches that are pending together have no more than what came in.
#[test]
fn max_breadth_is_shared_by_parallel_branches() {
    for (incoming, total) in
        [(None, 60), (Some("3"), 3), (Some("10"), 10), (Some("60"), 60), (Some("999"), 60)]
    {
        let values = max_breadths(three(), incoming);
        assert_eq!(values.len(), 3, "{incoming:?}");
        assert!(values.iter().all(|&value| value > 0), "{values:?}");
        assert!(values.iter().sum::<u32>() <= total, "{incoming:?}: {values:?}");
    }
}

/// RFC 5393 §5.3.3: not enough for the fork: 440 (or fewer at a time, never more than came in).
#[test]
fn too_little_max_breadth_does_not_fork_in_parallel() {
    for value in ["0", "1", "2"] {
        let mut network = Network::new(three());
        network.alice(&Request::invite(1).line(&format!("Max-Breadth: {value}")));
        let pending = [BOB, CAROL, DAVE].into_iter().filter(|&at| !network.take(at).is_empty()).count();
        assert!(pending <= value.parse().expect("a number"), "{value}: {pending} at once");
        if pending == 0 {
            assert_eq!(network.labels(ALICE), ["440"]);
        }
        network.settle();
    }
}

/// RFC 5393 §5.3.3: what a second relay hands on is what pending branches have left.
#[test]
fn branches_that_are_pending_hold_their_breadth() {
    let mut network = Network::new(Script::new(|cx| {
        cx.set_request_uri(BOB_URI.as_bytes());
        let _ = cx.relay();
        let _ = cx.append_target(&rig::script::target(CAROL_URI, 1000));
        let _ = cx.relay();
        rig::done()
    }));
    network.alice(&Request::invite(1).line("Max-Breadth: 5"));
    assert_eq!(network.only(BOB, "INVITE").values("Max-Breadth"), ["5"]);
    network.assert_quiet(CAROL);
    network.settle();
}

/// RFC 5393 §5.3.3: an ended branch gives its breadth back.
#[test]
fn a_failed_branch_gives_its_breadth_back() {
    let script = Script::fork(&[(BOB_URI, 1000), (CAROL_URI, 500)]);
    let mut network = Network::new(script);
    network.alice(&Request::invite(1).line("Max-Breadth: 1"));
    let first = network.only(BOB, "INVITE");
    network.send(BOB, first.respond(486, "bob"));
    assert_eq!(network.only(CAROL, "INVITE").values("Max-Breadth"), ["1"]);
    network.settle();
}

/// RFC 5393 §5.3.3: without state there is nobody to share with, but no breadth is no breadth.
#[test]
fn no_breadth_is_not_forwarded_without_state() {
    for (breadth, forwarded) in [("0", false), ("1", true)] {
        let mut network = Network::new(Script::new(|cx| {
            let _ = cx.forward(Some(BOB_URI.as_bytes()));
            rig::done()
        }));
        network.alice(&Request::invite(1).line(&format!("Max-Breadth: {breadth}")));
        if forwarded {
            assert_eq!(network.only(BOB, "INVITE").values("Max-Breadth"), ["1"]);
        } else {
            network.assert_quiet(BOB);
            assert_eq!(network.labels(ALICE), ["440"]);
        }
    }
}

// --- amplification -------------------------------------------------------------------------------------------------

/// A response much larger than its request is not sent to an address that may be forged: only to one that was heard
/// from twice.
#[test]
fn a_large_response_waits_until_the_address_is_heard_again() {
    let script = Script::new(|cx| {
        let _ = cx.create_transaction();
        let _ = cx.reply(200, b"OK", b"Content-Type: text/plain\r\n", &[b'x'; 20_000]);
        rig::done()
    });
    let mut network = Network::new(script);
    let options = Request::options(1);
    let allowed = options.bytes().len() + config().limits.amplification_slack;
    network.alice(&options);
    network.until_ms(20_000);
    assert!(network.all(ALICE).iter().all(|seen| seen.bytes.len() <= allowed), "{}", network.ladder());
    network.until_ms(20_500);
    network.alice(&options);
    assert!(
        network.take(ALICE).iter().any(|seen| seen.bytes.len() > 20_000),
        "heard from twice: {:?}",
        network.log[2].bytes.len()
    );
    network.settle();
}

/// Refusals of all kinds stay small.
#[test]
fn refusals_are_not_larger_than_their_requests() {
    let slack = config().limits.amplification_slack;
    for request in [
        Request::invite(1).max_forwards(Some("0")),
        Request::invite(2).uri("unknown:scheme"),
        Request::options(3).line("Proxy-Require: a,b,c,d,e,f,g"),
        Request::options(4).line("Call-ID: twice"),
    ] {
        let mut network = Network::new(to_bob());
        network.send(MALLORY, request.via("SIP/2.0/UDP 10.0.9.9:5060;branch=z9hG4bKm").bytes());
        let sent = network.all(MALLORY);
        assert_eq!(sent.len(), 1);
        assert!(sent[0].bytes.len() <= network.log[0].bytes.len() + slack);
    }
}

// --- garbage -------------------------------------------------------------------------------------------------------

/// A script that does something else for every message.
fn anything_goes() -> Script {
    let mut turn = 0_u64;
    Script::new(move |cx| {
        turn += 1;
        let targets = [(BOB_URI.to_owned(), 1000), (CAROL_URI.to_owned(), 1000), (DAVE_URI.to_owned(), 300)];
        match turn % 8 {
            0 => {
                let _ = cx.forward(None);
            }
            1 => {
                let _ = cx.reply(404, b"Not Found", b"", b"");
            }
            2 => {
                let _ = cx.reply_stateless(500, b"No", b"", b"");
            }
            3 => {
                let ask = engine::Ask::Resolve { host: "x".into() };
                return engine::Handled::Suspend { state: 1, ask, deadline: Duration::from_secs(3) };
            }
            4 => {
                let _ = cx.loose_route();
                cx.record_route(b";x=y");
                let _ = cx.relay();
            }
            5 => {
                let _ = cx.create_transaction();
                let _ = cx.decrement_max_forwards(10);
            }
            _ => {
                let _ = cx.loose_route();
                script::set_targets(cx, &targets);
                let _ = cx.relay();
            }
        }
        rig::done()
    })
    .answer(|cx, _, _| {
        let _ = cx.relay();
        rig::done()
    })
    .on_failure(|cx| {
        cx.state.failures += 1;
        if cx.state.failures <= 3 {
            let uri = format!("sip:last{}@10.0.2.9:5060", cx.state.failures);
            let _ = cx.append_target(&script::target(&uri, 1000));
            let _ = cx.relay();
        }
    })
    .silent()
}

/// A number below `end`, as an index.
fn index(prng: &mut Prng, end: usize) -> usize {
    usize::try_from(prng.below(end.max(1) as u64)).expect("fits")
}

/// Changes some bytes of a message: flips, cuts, repeats, swaps of lines.
fn mutate(prng: &mut Prng, bytes: &mut Vec<u8>) {
    const SPICE: [&[u8]; 12] = [
        b"\r\n",
        b"\0",
        b";",
        b",",
        b"<",
        b"\"",
        b"z9hG4bK",
        b"Via: ",
        b"\xff",
        b"99999999999999999999",
        b"=",
        b"\r\n ",
    ];
    for _ in 0..=prng.below(4) {
        let at = index(prng, bytes.len());
        match prng.below(6) {
            0 if at < bytes.len() => bytes[at] = u8::try_from(prng.below(256)).expect("a byte"),
            1 => bytes.truncate(at),
            2 => {
                let spice = SPICE[index(prng, SPICE.len())];
                bytes.splice(at..at, spice.iter().copied());
            }
            3 => {
                let end = (at + index(prng, 40)).min(bytes.len());
                bytes.drain(at..end);
            }
            4 => {
                let end = (at + index(prng, 200)).min(bytes.len());
                let again = bytes[at..end].to_vec();
                bytes.splice(at..at, again);
            }
            _ => {
                let lines: Vec<Vec<u8>> =
                    bytes.split_inclusive(|&b| b == b'\n').map(<[u8]>::to_vec).collect();
                if lines.len() > 2 {
                    let mut lines = lines;
                    let (a, b) = (index(prng, lines.len()), index(prng, lines.len()));
                    lines.swap(a, b);
                    *bytes = lines.concat();
                }
            }
        }
    }
}

/// A datagram that may come at any time: requests of a few calls, responses to what we sent, and noise.
fn any_datagram(prng: &mut Prng, network: &Network) -> (SocketAddr, Vec<u8>) {
    const METHODS: [&str; 10] =
        ["INVITE", "INVITE", "ACK", "CANCEL", "BYE", "OPTIONS", "REGISTER", "MESSAGE", "PRACK", "XYZ"];
    let from = [ALICE, BOB, CAROL, DAVE, MALLORY][index(prng, 5)];
    let n = u32::try_from(prng.below(6)).expect("small");
    let sent: Vec<&Seen> = network.log.iter().rev().filter(|seen| seen.from == rig::PROXY).take(30).collect();
    let mut bytes = match prng.below(8) {
        0 => (0..prng.below(600)).map(|_| u8::try_from(prng.next() & 255).expect("a byte")).collect(),
        1..=3 if !sent.is_empty() => {
            let seen = sent[index(prng, sent.len())];
            let status = [100, 180, 183, 200, 202, 302, 401, 407, 486, 487, 503, 600, 999][index(prng, 13)];
            seen.respond(status, ["", "a", "b"][index(prng, 3)])
        }
        4 if !sent.is_empty() => sent[index(prng, sent.len())].bytes.clone(),
        _ => {
            let method = METHODS[index(prng, METHODS.len())];
            let mut request = Request::new(method, n).branch(&format!("z9hG4bK-{n}"));
            if prng.chance(20) {
                request = request.via("SIP/2.0/UDP 10.0.1.1");
            }
            if prng.chance(30) {
                let uris = [
                    "sip:x@host.example.net",
                    "tel:+123",
                    "sips:b@10.0.2.1",
                    "sip:[fd00::5]",
                    "*",
                    "sip:10.0.0.1;lr",
                ];
                request = request.uri(uris[index(prng, uris.len())]);
            }
            if prng.chance(30) {
                let lines = [
                    "Route: <sip:10.0.0.1;lr>",
                    "Route: <sip:10.0.2.2>, <sip:10.0.0.1;lr>",
                    "Max-Breadth: 1",
                    "Require: x",
                    "Proxy-Require: y",
                    "Route: garbage",
                    "Via: SIP/2.0/UDP 10.0.0.1;branch=z9hG4bK",
                ];
                request = request.line(lines[index(prng, lines.len())]);
            }
            request.bytes()
        }
    };
    if prng.chance(50) {
        mutate(prng, &mut bytes);
    }
    (from, bytes)
}

fn storm(seed: u64, datagrams: u32) {
    let mut prng = Prng::new(seed);
    let mut config = config();
    config.limits.transactions_max = 50;
    config.limits.suspended_max = 5;
    config.limits.resolves_max = 5;
    let mut network = Network::with(config, anything_goes());
    for _ in 0..datagrams {
        let (from, bytes) = any_datagram(&mut prng, &network);
        network.send(from, &bytes);
        assert!(network.engine.transactions() <= 50, "seed {seed}");
        match prng.below(12) {
            0 => network.pass(Duration::from_millis(prng.below(40_000))),
            1..=3 => network.pass(Duration::from_millis(prng.below(700))),
            4 if !network.asks.is_empty() => network.answer(engine::Answer::Addresses(&[BOB.ip()])),
            5 if !network.asks.is_empty() => network.answer(engine::Answer::Failed),
            6 => network.unreachable([ALICE, BOB, CAROL][index(&mut prng, 3)]),
            _ => {}
        }
        if network.log.len() > 400 {
            network.log.drain(..200);
        }
    }
    network.keep_log = false;
    network.pass(Duration::from_secs(600));
    assert_eq!(network.engine.transactions(), 0, "seed {seed}");
    assert_eq!(network.engine.next_timeout(), None, "seed {seed}");
}

/// Random bytes, mutated messages, foreign and repeated responses, in any order: no panic, nothing left.
#[test]
fn any_bytes_in_any_order_leave_nothing_behind() {
    for seed in 0..150 {
        storm(seed, 300);
    }
}

/// One long run, so that slots and timers are used again many times.
#[test]
fn a_long_storm_leaves_nothing_behind() {
    storm(4711, 20_000);
}

/// Well-formed but hostile: header lines without number, values without end.
#[test]
fn oversized_headers_are_survived() {
    let mut network = Network::new(to_bob());
    for (n, (line, count)) in
        [("X: y", 5000), ("Via: SIP/2.0/UDP a.b;branch=z9hG4bKv", 1200), ("Route: <sip:10.0.0.1;lr>", 1500)]
            .into_iter()
            .enumerate()
    {
        let mut invite = Request::invite(u32::try_from(n).expect("small"));
        invite.lines.extend(std::iter::repeat_n(line.to_owned(), count));
        network.alice(&invite);
    }
    let long = format!("X-Long: {}", "a".repeat(60_000));
    network.alice(&Request::invite(10).line(&long));
    let many = format!("Contact: <sip:a@b>{}", ";p".repeat(20_000));
    network.alice(&Request::invite(11).line(&many));
    let parens = format!("sip:{}@10.0.2.1", "%41".repeat(15_000));
    network.alice(&Request::invite(12).uri(&parens));
    network.settle();
}

/// A drained endpoint refuses new requests, ends the old ones and says when it is done.
#[test]
fn a_drained_endpoint_ends_what_is_in_flight() {
    let mut network = Network::new(to_bob());
    network.alice(&Request::invite(1));
    let received = network.only(BOB, "INVITE");
    network.handle(engine::Input::Drain);
    assert!(!network.engine.is_idle());
    network.take(ALICE);
    network.alice(&Request::invite(2));
    let refused = network.one(ALICE);
    assert_eq!(refused.status(), Some(503));
    network.assert_quiet(BOB);
    network.send(BOB, received.accept("bob"));
    assert_eq!(network.labels(ALICE), ["200"]);
    network.settle();
    assert!(network.engine.is_idle());
}
