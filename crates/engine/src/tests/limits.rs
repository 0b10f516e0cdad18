//! What is refused, bounded or dropped.

use super::*;

#[test]
fn hops_extensions_and_schemes_are_checked() {
    let mut rig = Rig::new(relay());
    let target = format!("sip:callee@{CALLEE}");
    let hops = request("OPTIONS", &target, "1", "").replace("Max-Forwards: 70", "Max-Forwards: 0");
    assert_eq!(kinds(&rig.receive(CALLER, &hops)), ["483"]);
    let sent = rig.receive(CALLER, &request("OPTIONS", &target, "2", "Proxy-Require: foo, bar\r\n"));
    assert_eq!((kinds(&sent), sent[0].header("Unsupported")), (alloc::vec!["420".to_string()], "foo, bar"));
    assert_eq!(kinds(&rig.receive(CALLER, &request("OPTIONS", "tel:+1234", "3", ""))), ["416"]);
    // RFC 5630 §5.3: there is no TLS here.
    let sent = rig.receive(CALLER, &request("OPTIONS", "sips:callee@192.0.2.20", "4", ""));
    let warning = "380 192.0.2.1:5060 \"SIPS Not Allowed\"";
    assert_eq!((kinds(&sent), sent[0].header("Warning")), (alloc::vec!["480".to_string()], warning));
    assert_eq!(
        kinds(&rig.receive(CALLER, &request("OPTIONS", "sip:192.0.2.20;transport=tls", "5", ""))),
        ["478"]
    );
    rig.rest();
}

#[test]
fn a_loop_is_found_and_a_spiral_is_not_one() {
    let mut rig = Rig::new(Box::new(|cx| {
        let _ = cx.relay();
        Handled::Done
    }));
    let copy = rig.receive(CALLER, &invite("1"))[1].clone();
    assert_eq!(kinds(&rig.receive(CALLEE, &copy.text)), ["482"]);
    let spiral = copy.text.replace("INVITE sip:callee@", "INVITE sip:other@");
    assert_eq!(kinds(&rig.receive("192.0.2.20:5061", &spiral)), ["100", "INVITE"]);
    assert_eq!(rig.endpoint.counters().loops, 1);
}

#[test]
fn more_branches_than_breadth_are_refused() {
    let mut rig = Rig::new(fork(&[("sip:a@192.0.2.21", 1_000), ("sip:b@192.0.2.22", 1_000)]));
    let text = request("INVITE", &format!("sip:callee@{CALLEE}"), "1", "Max-Breadth: 1\r\n");
    assert_eq!(kinds(&rig.receive(CALLER, &text)), ["440"]);
    let text = request("INVITE", &format!("sip:callee@{CALLEE}"), "2", "Max-Breadth: 3\r\n");
    let sent = rig.receive(CALLER, &text);
    assert_eq!([sent[1].all("Max-Breadth"), sent[2].all("Max-Breadth")], [["2"], ["1"]]);
}

#[test]
fn a_full_table_answers_503_with_retry_after() {
    let mut config = config();
    config.limits.transactions_max = 1;
    let mut rig = Rig::with(config, relay());
    let _ = rig.receive(CALLER, &invite("1"));
    let sent = rig.receive(CALLER, &invite("2"));
    assert_eq!((kinds(&sent), sent[0].header("Retry-After")), (alloc::vec!["503".to_string()], "5"));
    // Its ACK is recognised without state.
    assert!(rig.receive(CALLER, &ack("2", &sent[0])).is_empty());
    assert_eq!((rig.endpoint.transactions(), rig.endpoint.counters().table_full), (1, 1));
    assert_eq!(rig.endpoint.user().requests.len(), 2);
}

#[test]
fn a_script_that_does_nothing_answers_500_if_there_is_a_transaction() {
    let mut rig = Rig::new(Box::new(|cx| {
        cx.create_transaction().unwrap();
        Handled::Done
    }));
    assert_eq!(kinds(&rig.receive(CALLER, &invite("1"))), ["500"]);
    rig.rest();
    let mut rig = Rig::new(Box::new(|_| Handled::Done));
    assert!(rig.receive(CALLER, &invite("1")).is_empty());
    assert_eq!(rig.endpoint.transactions(), 0);
}

#[test]
fn bad_requests_are_answered_and_rubbish_is_not() {
    let mut rig = Rig::new(relay());
    let bad = request("OPTIONS", &format!("sip:{CALLEE}"), "1", "").replace("CSeq: 1 OPTIONS", "CSeq: 1 BYE");
    assert_eq!(kinds(&rig.receive(CALLER, &bad)), ["400"]);
    for rubbish in ["", "\r\n\r\n", "hello", "\0\0\0\0", "INVITE", "INVITE sip:a SIP/2.0\r\n\r\n"] {
        let sent = rig.receive(CALLER, rubbish);
        assert!(sent.is_empty(), "{rubbish:?} got {sent:?}");
    }
    assert!(rig.endpoint.user().requests.is_empty());
}

#[test]
fn a_long_reply_waits_until_its_address_was_heard_twice() {
    let mut rig = Rig::new(Box::new(|cx| {
        cx.reply(302, b"Moved", b"", &[b'x'; 3_000]).unwrap();
        Handled::Done
    }));
    let text = request("OPTIONS", &format!("sip:{CALLEE}"), "1", "");
    assert!(rig.receive(CALLER, &text).is_empty());
    assert_eq!(kinds(&rig.receive(CALLER, &text)), ["302"]);
    assert_eq!(rig.endpoint.counters().held_back, 1);
}

#[test]
fn draining_refuses_what_begins_and_serves_what_ends() {
    let mut rig = Rig::new(relay());
    let copy = rig.receive(CALLER, &invite("1"))[1].clone();
    let _ = rig.input(Input::Drain);
    assert!(!rig.endpoint.is_idle());
    assert_eq!(kinds(&rig.receive(CALLER, &invite("2"))), ["503"]);
    let bye = request("BYE", &format!("sip:callee@{CALLEE}"), "3", "")
        .replace("To: <sip:callee@example.com>", "To: <sip:callee@example.com>;tag=callee");
    let bye = rig.receive(CALLER, &bye);
    assert_eq!(kinds(&bye), ["BYE"]);
    let _ = rig.receive(CALLEE, &response(&bye[0], "200 OK", ""));
    assert_eq!(kinds(&rig.receive(CALLEE, &response(&copy, "200 OK", ""))), ["200"]);
    assert!(rig.endpoint.is_idle());
    rig.rest();
}

#[test]
fn a_finished_transaction_holds_at_most_4_kib() {
    let mut rig = Rig::new(relay());
    let body = "x".repeat(6_000);
    let text =
        invite("1").replace("Content-Length: 0\r\n\r\n", &format!("Content-Length: 6000\r\n\r\n{body}"));
    let copy = rig.receive(CALLER, &text)[1].clone();
    let busy = response(&copy, "486 Busy Here", "");
    let sent = rig.receive(CALLEE, &busy);
    assert_eq!(kinds(&sent), ["ACK", "486"]);
    let core = rig.endpoint.core();
    let id = core.table.ids().next().unwrap();
    let entry = core.table.get(id).unwrap();
    let held = entry.request.capacity()
        + entry.response.capacity()
        + entry.branches.iter().map(|branch| branch.sent.capacity()).sum::<usize>()
        + core::mem::size_of_val(entry);
    assert!(held <= 4_096, "{held}");
    rig.rest();
}

#[test]
fn long_responses_are_kept_within_their_bound() {
    let mut rig = Rig::new(relay());
    let copy = rig.receive(CALLER, &invite("1"))[1].clone();
    let body = "x".repeat(6_000);
    let busy = response(&copy, "486 Busy Here", "")
        .replace("Content-Length: 0\r\n\r\n", &format!("Content-Length: 6000\r\n\r\n{body}"));
    let sent = rig.receive(CALLEE, &busy);
    assert_eq!(rig.endpoint.core().long_bytes, sent[1].text.len());
    assert_eq!(rig.pass(Duration::from_millis(500))[0].1.text, sent[1].text);
    let _ = rig.receive(CALLER, &ack("1", &sent[1]));
    assert_eq!(rig.endpoint.core().long_bytes, 0);
    rig.rest();
}

#[test]
fn no_bytes_panic() {
    let mut rig = Rig::new(relay());
    let copy = rig.receive(CALLER, &invite("1"))[1].clone();
    let seeds = [invite("2"), copy.text.clone(), response(&copy, "180 Ringing", "Route: <sip:a;lr>, b\r\n")];
    let mut random = 7u64;
    for round in 0..20_000 {
        let mut bytes = seeds[round % seeds.len()].clone().into_bytes();
        for _ in 0..=round % 5 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = (random >> 33) as usize % bytes.len();
            match random >> 60 {
                0..=7 => bytes[at] = (random >> 40) as u8,
                8..=10 => bytes.truncate(at.max(1)),
                11..=13 => bytes.insert(at, b";,:\r\n \"<>@="[(random >> 50) as usize % 11]),
                _ => {
                    bytes.remove(at);
                }
            }
            if bytes.is_empty() {
                bytes.push(b'\r');
            }
        }
        let path = Rig::path(CALLER);
        let _ = rig.input(Input::Message { path, bytes: &bytes });
    }
    rig.rest();
}

#[test]
fn a_panic_costs_one_transaction_and_nothing_else() {
    let mut first = true;
    let mut rig = Rig::new(Box::new(move |cx| {
        cx.create_transaction().unwrap();
        assert!(!core::mem::take(&mut first), "on purpose");
        let _ = cx.relay();
        Handled::Done
    }));
    extern crate std;
    let unwind = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| rig.receive(CALLER, &invite("1"))));
    assert!(unwind.is_err());
    assert_eq!(rig.endpoint.transactions(), 1);
    assert_eq!(kinds(&rig.receive(CALLER, &invite("1"))), ["100", "INVITE"]);
    assert_eq!((rig.endpoint.transactions(), rig.endpoint.counters().transactions_lost), (1, 1));
    rig.rest();
}

#[test]
fn a_via_that_does_not_parse_or_name_a_transaction_is_sent_back() {
    let mut rig = Rig::new(relay());
    let good = request("OPTIONS", &format!("sip:{CALLEE}"), "1", "");
    let bad =
        good.replace("Via: SIP/2.0/UDP 192.0.2.10:5060;branch=z9hG4bK1", "Via: SIP/2.0/UDP 192.0.2.15;;,;,,");
    let sent = rig.receive("192.0.2.10:4444", &bad);
    assert_eq!((kinds(&sent), sent[0].to.as_str()), (alloc::vec!["400".to_string()], "192.0.2.10:4444"));
    assert_eq!(kinds(&rig.receive(CALLER, &good.replace("z9hG4bK1", "z9hG4bK"))), ["400"]);
    assert_eq!(rig.endpoint.transactions(), 0);
}
