//! The null server's flows, one by one, on its pure half.

use super::*;
use proptest::prelude::*;

const SERVER: &str = "127.0.0.1:5060";
const CALLER: &str = "127.0.0.1:40001";
const CALLEE: &str = "127.0.0.1:40002";
const PLAIN: Behaviour = Behaviour { redirect: false, trying: false, cap: None };

struct Rig {
    server: NullServer,
    now: Instant,
}

/// What was sent: to whom, and the text.
type Sent = Vec<(String, String)>;

impl Rig {
    fn new(behaviour: Behaviour) -> Rig {
        Rig { server: NullServer::new(address(SERVER), behaviour), now: Instant::ZERO }
    }

    /// With user `bob` registered at [`CALLEE`].
    fn with_bob(behaviour: Behaviour) -> Rig {
        let mut rig = Rig::new(behaviour);
        let sent = rig.take(CALLEE, &register("bob", &format!("Contact: <sip:bob@{CALLEE}>\r\n")));
        assert!(sent[0].1.starts_with("SIP/2.0 200 OK\r\n"));
        rig
    }

    fn take(&mut self, from: &str, text: &str) -> Sent {
        let mut out = Outbox::default();
        self.server.handle(self.now, address(from), text.as_bytes(), &mut out);
        let text = |send: &Send| String::from_utf8(out.datagram(send).to_vec()).expect("UTF-8");
        out.sends.iter().map(|send| (send.to.to_string(), text(send))).collect()
    }
}

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

fn register(user: &str, fields: &str) -> String {
    format!(
        "REGISTER sip:{SERVER} SIP/2.0\r\nVia: SIP/2.0/UDP {CALLEE};rport;branch=z9hG4bKr\r\nMax-Forwards: 70\r\n\
         From: <sip:{user}@{SERVER}>;tag=f\r\nTo: <sip:{user}@{SERVER}>\r\nCall-ID: r\r\nCSeq: 1 REGISTER\r\n\
         {fields}Content-Length: 0\r\n\r\n"
    )
}

fn request(method: &str, uri: &str, to_tag: &str, fields: &str) -> String {
    format!(
        "{method} {uri} SIP/2.0\r\nVia: SIP/2.0/UDP {CALLER};rport;branch=z9hG4bKabc\r\nMax-Forwards: 70\r\n\
         From: <sip:alice@{SERVER}>;tag=f\r\nTo: <sip:bob@{SERVER}>{to_tag}\r\nCall-ID: c\r\nCSeq: 1 {method}\r\n\
         {fields}Content-Length: 3\r\n\r\nabc"
    )
}

fn to_bob(method: &str) -> String {
    request(method, &format!("sip:bob@{SERVER}"), "", "")
}

/// The answer of a callee to a message that it received.
fn response(received: &str, status: &str) -> String {
    let keep =
        |line: &&str| ["Via:", "From:", "To:", "Call-ID:", "CSeq:"].iter().any(|name| line.starts_with(name));
    let lines: Vec<&str> = received.split("\r\n").filter(keep).collect();
    format!("SIP/2.0 {status}\r\n{}\r\nContent-Length: 0\r\n\r\n", lines.join("\r\n"))
}

/// The parser of the server's own crate must understand what we send.
fn parse<T>(text: &str, read: impl FnOnce(&sip::Message<'_>) -> T) -> T {
    let mut index = sip::Index::new();
    read(&sip::Message::parse(text.as_bytes(), &mut index).expect(text))
}

#[test]
fn register_is_answered_with_its_contact() {
    let mut rig = Rig::new(PLAIN);
    let sent =
        rig.take(CALLEE, &register("bob", &format!("Contact: <sip:bob@{CALLEE}>;q=1\r\nExpires: 60\r\n")));
    assert_eq!(
        sent,
        [(
            CALLEE.to_string(),
            format!(
                "SIP/2.0 200 OK\r\nVia: SIP/2.0/UDP {CALLEE};rport=40002;received=127.0.0.1;branch=z9hG4bKr\r\n\
                 From: <sip:bob@{SERVER}>;tag=f\r\nTo: <sip:bob@{SERVER}>;tag=nullserver-r\r\nCall-ID: r\r\n\
                 CSeq: 1 REGISTER\r\nContact: <sip:bob@{CALLEE}>;expires=60\r\nContent-Length: 0\r\n\r\n"
            )
        )]
    );
    assert_eq!((rig.server.counters().register, rig.server.counters().answered), (1, 1));
}

#[test]
fn register_lists_updates_and_removes() {
    let mut rig = Rig::with_bob(PLAIN);
    let mut contacts = |fields: &str| {
        let sent = rig.take(CALLEE, &register("bob", fields));
        let text = &sent[0].1;
        assert!(text.starts_with("SIP/2.0 200"), "{text}");
        text.split("\r\n").filter(|line| line.starts_with("Contact:")).collect::<Vec<_>>().join("|")
    };
    assert_eq!(contacts(""), format!("Contact: <sip:bob@{CALLEE}>;expires=3600"));
    assert_eq!(contacts("m: sip:bob@1.2.3.4;expires=7\r\n"), "Contact: <sip:bob@1.2.3.4>;expires=7");
    assert_eq!(contacts(""), "Contact: <sip:bob@1.2.3.4>;expires=7");
    assert_eq!(
        contacts(
            "Contact: <sip:a@1.1.1.1>;expires=0, <sip:b@2.2.2.2>\r\nContact: \"c,\" <sip:c@3.3.3.3>\r\n"
        ),
        "Contact: <sip:b@2.2.2.2>;expires=3600|Contact: <sip:c@3.3.3.3>;expires=3600"
    );
    assert_eq!(contacts("Contact: <sip:b@2.2.2.2>\r\nExpires: 0\r\n"), "");
    assert_eq!(contacts(""), "");
    assert_eq!(contacts("Contact: *\r\nExpires: 0\r\n"), "");
}

#[test]
fn registrations_that_cannot_be_kept_are_refused() {
    let mut rig = Rig::with_bob(PLAIN);
    rig.server.bindings_max = 1;
    let long = format!("Contact: <sip:{}@1.2.3.4>\r\n", "x".repeat(BINDING_BYTES_MAX));
    let status = |rig: &mut Rig, user: &str, fields: &str| {
        rig.take(CALLEE, &register(user, fields))[0].1[8..11].to_string()
    };
    assert_eq!(status(&mut rig, "carol", "Contact: <sip:carol@1.2.3.4>\r\n"), "503");
    assert_eq!(status(&mut rig, "bob", "Contact: <sip:bob@1.2.3.4>\r\n"), "200");
    for fields in
        ["Contact: *\r\n", "Contact: <tel:1>\r\n", "Contact: <sip:a b@c>\r\n", "Contact: <sip:a\r\n", &long]
    {
        assert_eq!(status(&mut rig, "bob", fields), "400", "{fields}");
    }
    let nobody = register("bob", "").replace("To: <sip:bob@", "To: <sip:");
    assert!(rig.take(CALLEE, &nobody)[0].1.starts_with("SIP/2.0 400"));
}

#[test]
fn options_is_answered() {
    let mut rig = Rig::new(PLAIN);
    for uri in ["sip:127.0.0.1:5060", "sip:127.0.0.1", "sip:example.com", "sip:bob@127.0.0.1:5060"] {
        let sent = rig.take(CALLER, &request("OPTIONS", uri, "", ""));
        assert_eq!(sent[0].0, CALLER);
        assert_eq!(parse(&sent[0].1, |answer| answer.status()), Some(200), "{uri}");
    }
}

#[test]
fn invite_is_forwarded_to_the_contact_with_what_a_proxy_must_change() {
    let mut rig = Rig::with_bob(PLAIN);
    let sent = rig.take(CALLER, &to_bob("INVITE"));
    assert_eq!(
        sent,
        [(
            CALLEE.to_string(),
            format!(
                "INVITE sip:bob@{CALLEE} SIP/2.0\r\nVia: SIP/2.0/UDP {SERVER};branch=z9hG4bKnull-abc\r\n\
                 Via: SIP/2.0/UDP {CALLER};rport=40001;received=127.0.0.1;branch=z9hG4bKabc\r\nMax-Forwards: 69\r\n\
                 From: <sip:alice@{SERVER}>;tag=f\r\nTo: <sip:bob@{SERVER}>\r\nCall-ID: c\r\nCSeq: 1 INVITE\r\n\
                 Content-Length: 3\r\n\r\nabc"
            )
        )]
    );
    assert_eq!(rig.take(CALLER, &to_bob("INVITE")), sent, "a retransmission goes the same way");
}

#[test]
fn responses_go_back_the_way_the_request_came() {
    let mut rig = Rig::with_bob(PLAIN);
    let invite = &rig.take(CALLER, &to_bob("INVITE"))[0].1;
    for status in ["180 Ringing", "200 OK", "487 Request Terminated"] {
        let sent = rig.take(CALLEE, &response(invite, status));
        assert_eq!(sent.len(), 1);
        assert_eq!(sent[0].0, CALLER);
        let expected = format!(
            "SIP/2.0 {status}\r\nVia: SIP/2.0/UDP {CALLER};rport=40001;received=127.0.0.1;branch=z9hG4bKabc\r\nFrom:"
        );
        assert!(sent[0].1.starts_with(&expected), "{}", sent[0].1);
    }
    let joined = response(invite, "200 OK").replacen(
        "\r\nVia: SIP/2.0/UDP 127.0.0.1:40001",
        ", SIP/2.0/UDP 127.0.0.1:40001",
        1,
    );
    let sent = rig.take(CALLEE, &joined);
    assert!(
        sent[0].1.starts_with(&format!("SIP/2.0 200 OK\r\nVia: SIP/2.0/UDP {CALLER};rport=40001")),
        "{}",
        sent[0].1
    );
    assert_eq!((rig.server.counters().responses, rig.server.counters().garbage), (4, 0));
}

#[test]
fn responses_that_are_not_ours_are_dropped() {
    let mut rig = Rig::with_bob(PLAIN);
    let invite = rig.take(CALLER, &to_bob("INVITE"))[0].1.clone();
    for (from, to) in [
        ("z9hG4bKnull-", "z9hG4bKother-"),
        ("UDP 127.0.0.1:5060", "UDP 127.0.0.1:5061"),
        ("UDP 127.0.0.1:5060", "UDP 127.0.0.2:5060"),
    ] {
        assert_eq!(rig.take(CALLEE, &response(&invite.replacen(from, to, 1), "200 OK")), []);
    }
    assert_eq!(rig.take(CALLEE, &response(&to_bob("INVITE"), "200 OK")), []);
    assert_eq!(rig.server.counters().garbage, 4);
}

#[test]
fn cancel_and_the_ack_of_a_refusal_match_their_invite() {
    let mut rig = Rig::with_bob(PLAIN);
    for method in ["INVITE", "CANCEL"] {
        let sent = rig.take(CALLER, &to_bob(method));
        assert_eq!(sent[0].0, CALLEE);
        assert!(sent[0].1.contains("Via: SIP/2.0/UDP 127.0.0.1:5060;branch=z9hG4bKnull-abc\r\n"));
    }
    let ack = rig.take(CALLER, &request("ACK", &format!("sip:bob@{SERVER}"), ";tag=callee", ""));
    assert_eq!(ack[0].0, CALLEE);
    assert!(ack[0].1.contains("branch=z9hG4bKnull-abc\r\n"));
}

#[test]
fn branches_without_the_cookie_still_match() {
    let mut rig = Rig::with_bob(PLAIN);
    let mut branch = |method, from: &str, to: &str, tag| {
        let text = request(method, &format!("sip:bob@{SERVER}"), tag, "").replacen(from, to, 1);
        let sent = rig.take(CALLER, &text)[0].1.clone();
        parse(&sent, |message| {
            String::from_utf8(message.via_top().expect("a Via").branch().expect("a branch").to_vec())
        })
        .expect("ASCII")
    };
    let odd = format!(";branch=z9hG4bK{}", "x".repeat(MARK_BYTES_MAX + 1));
    for replaced in ["", ";branch=1", ";branch=\"z9hG4bK\"", ";branch=z9hG4bK", &odd] {
        let mut of = |method, tag| branch(method, ";branch=z9hG4bKabc", replaced, tag);
        let invite = of("INVITE", "");
        assert!(invite.starts_with("z9hG4bKnull-") && invite.len() <= 28, "{invite}");
        assert_eq!(of("CANCEL", ""), invite);
        assert_eq!(of("ACK", ";tag=x"), invite);
    }
    assert_ne!(
        branch("INVITE", ";branch=z9hG4bKabc", "", ""),
        branch("INVITE", ";branch=z9hG4bKabc", ";x", "")
    );
}

#[test]
fn requests_of_a_dialog_go_to_their_request_uri() {
    let mut rig = Rig::with_bob(PLAIN);
    for method in ["ACK", "BYE", "INFO"] {
        let sent = rig.take(CALLER, &request(method, &format!("sip:bob@{CALLEE};x=y"), ";tag=callee", ""));
        assert_eq!(sent[0].0, CALLEE);
        assert!(
            sent[0].1.starts_with(&format!("{method} sip:bob@{CALLEE};x=y SIP/2.0\r\nVia: ")),
            "{}",
            sent[0].1
        );
        assert!(sent[0].1.contains("\r\nMax-Forwards: 69\r\n"));
    }
}

#[test]
fn our_own_route_is_taken_off_and_the_rest_followed() {
    let mut rig = Rig::new(PLAIN);
    let own = "<sip:127.0.0.1:5060;lr>";
    for (fields, to, left) in [
        (format!("Route: {own}\r\n"), "10.1.1.1:5060", String::new()),
        (
            "Route: <sip:example.com;lr>\r\nRoute: <sip:10.2.2.2:7;lr>\r\n".into(),
            "10.2.2.2:7",
            "Route: <sip:10.2.2.2:7;lr>\r\n".into(),
        ),
        (
            format!("Route: {own} , <sip:10.2.2.2:7;lr>\r\n"),
            "10.2.2.2:7",
            "Route: <sip:10.2.2.2:7;lr>\r\n".into(),
        ),
        ("Route: <sip:10.3.3.3;lr>\r\n".into(), "10.3.3.3:5060", "Route: <sip:10.3.3.3;lr>\r\n".into()),
    ] {
        for (method, tag) in [("INVITE", ""), ("BYE", ";tag=x"), ("ACK", ";tag=x")] {
            let sent = rig.take(CALLER, &request(method, "sip:bob@10.1.1.1", tag, &fields));
            assert_eq!(sent[0].0, to, "{fields}");
            let (_, rest) = sent[0].1.split_once(&format!("CSeq: 1 {method}\r\n")).expect("a CSeq");
            assert_eq!(rest, format!("{left}Content-Length: 3\r\n\r\nabc"));
            assert!(sent[0].1.starts_with(&format!("{method} sip:bob@10.1.1.1 SIP/2.0\r\n")));
        }
    }
    assert!(
        rig.take(CALLER, &request("INVITE", "sip:b@10.1.1.1", "", &format!("Route: {own}, <sip:x;lr>\r\n")))
            [0]
        .1
        .contains(" 400 ")
    );
}

#[test]
fn unknown_users_are_not_found_and_the_ack_is_absorbed() {
    let mut rig = Rig::new(PLAIN);
    let sent = rig.take(CALLER, &to_bob("INVITE"));
    assert!(sent[0].1.starts_with("SIP/2.0 404 Not Found\r\n"));
    assert!(sent[0].1.contains(";tag=nullserver-abc\r\n"));
    assert_eq!(rig.take(CALLER, &to_bob("INVITE")), sent, "the same to a retransmission");
    assert_eq!(
        rig.take(CALLER, &request("ACK", &format!("sip:bob@{SERVER}"), ";tag=nullserver-abc", "")),
        []
    );
    assert_eq!(rig.take(CALLER, &to_bob("ACK")), []);
    assert!(rig.take(CALLER, &to_bob("CANCEL"))[0].1.starts_with("SIP/2.0 481 "));
    assert!(rig.take(CALLER, &to_bob("MESSAGE"))[0].1.starts_with("SIP/2.0 404 "));
    assert!(rig.take(CALLER, &request("INVITE", "tel:123", "", ""))[0].1.starts_with("SIP/2.0 416 "));
    let counters = rig.server.counters();
    assert_eq!((counters.invite, counters.ack, counters.answered, counters.garbage), (3, 2, 5, 0));
}

#[test]
fn redirect_gives_the_contact_and_absorbs_the_ack() {
    let mut rig = Rig::with_bob(Behaviour { redirect: true, trying: true, cap: None });
    let sent = rig.take(CALLER, &to_bob("INVITE"));
    let statuses: Vec<_> = sent.iter().map(|(_, text)| parse(text, |answer| answer.status())).collect();
    assert_eq!(statuses, [Some(100), Some(302)]);
    assert!(sent.iter().all(|(to, _)| to == CALLER));
    assert!(sent[1].1.contains(&format!("\r\nContact: <sip:bob@{CALLEE}>\r\n")));
    assert_eq!(
        rig.take(CALLER, &request("ACK", &format!("sip:bob@{SERVER}"), ";tag=nullserver-abc", "")),
        []
    );
    assert!(rig.take(CALLER, &to_bob("CANCEL"))[0].1.starts_with("SIP/2.0 481 "));
    assert_eq!(rig.take(CALLER, &to_bob("MESSAGE"))[0].0, CALLEE, "only INVITE is redirected");
}

#[test]
fn trying_comes_before_a_forwarded_invite_and_nothing_else() {
    let mut rig = Rig::with_bob(Behaviour { trying: true, ..PLAIN });
    let sent = rig.take(CALLER, &to_bob("INVITE").replacen("CSeq:", "Timestamp: 5\r\nCSeq:", 1));
    assert_eq!(sent.iter().map(|(to, _)| to.as_str()).collect::<Vec<_>>(), [CALLER, CALLEE]);
    assert!(sent[0].1.starts_with("SIP/2.0 100 Trying\r\n") && sent[0].1.contains("Timestamp: 5\r\n"));
    assert!(!sent[0].1.contains("nullserver"), "a 100 needs no tag");
    assert_eq!(rig.take(CALLER, &to_bob("MESSAGE")).len(), 1);
}

#[test]
fn max_forwards_ends_and_is_added_where_it_is_missing() {
    let mut rig = Rig::with_bob(PLAIN);
    let with = |text: &str| to_bob("INVITE").replacen("Max-Forwards: 70\r\n", text, 1);
    assert!(rig.take(CALLER, &with("Max-Forwards: 0\r\n"))[0].1.starts_with("SIP/2.0 483 "));
    assert!(rig.take(CALLER, &with("max-forwards :1\r\n"))[0].1.contains("\r\nmax-forwards : 0\r\n"));
    assert!(rig.take(CALLER, &with(""))[0].1.contains("z9hG4bKnull-abc\r\nMax-Forwards: 70\r\nVia"));
    assert_eq!(rig.take(CALLER, &with("Max-Forwards: x\r\n")), []);
}

#[test]
fn answers_go_where_the_via_says() {
    let mut rig = Rig::new(PLAIN);
    let mut answered = |via: &str| {
        let text = to_bob("INVITE").replacen(&format!("{CALLER};rport"), via, 1);
        let (to, text) = rig.take("127.0.0.9:777", &text).remove(0);
        let line = text.split("\r\n").nth(1).expect("a Via").to_string();
        (to, line.replace("Via: SIP/2.0/UDP ", "").replace(";branch=z9hG4bKabc", ""))
    };
    let is = |to: &str, via: &str| (to.to_string(), via.to_string());
    assert_eq!(answered("127.0.0.9:778"), is("127.0.0.9:778", "127.0.0.9:778"));
    assert_eq!(answered("phone"), is("127.0.0.9:5060", "phone;received=127.0.0.9"));
    assert_eq!(answered("phone;rport"), is("127.0.0.9:777", "phone;rport=777;received=127.0.0.9"));
    let mut rig = Rig { server: NullServer::new(address("[::1]:5060"), PLAIN), now: Instant::ZERO };
    let (to, text) = rig.take("[::1]:777", &request("INVITE", "sip:bob@[::1]:5060", "", "")).remove(0);
    assert_eq!(to, "[::1]:777");
    assert!(text.contains(";rport=777;received=::1;branch"), "{text}");
}

#[test]
fn the_cap_lets_its_rate_pass_and_the_first_burst() {
    for cap in [200.0, 1000.0, 20_000.0] {
        let mut rig = Rig::with_bob(Behaviour { cap: Some(cap), ..PLAIN });
        let offered = 2.0 * cap;
        let mut passed = 0;
        for k in 0..offered as u64 {
            rig.now = Instant::from_micros(1_000_000 + (k as f64 * 1e6 / offered) as u64);
            passed += rig.take(CALLER, &to_bob("INVITE")).len();
        }
        assert!((0.0..=0.05 * cap + 1.0).contains(&(passed as f64 - cap)), "{passed} of {offered} at {cap}");
        let counters = rig.server.counters();
        assert_eq!(counters.dropped_by_cap + counters.forwarded, offered as u64);
    }
}

#[test]
fn the_cap_counts_initial_requests_only_and_lets_a_twentieth_of_a_second_through_at_once() {
    let mut rig = Rig::new(Behaviour { cap: Some(1000.0), ..PLAIN });
    rig.now = Instant::from_micros(5_000_000);
    let burst = |rig: &mut Rig, text: &str| (0..80).filter(|_| !rig.take(CALLER, text).is_empty()).count();
    assert_eq!(burst(&mut rig, &to_bob("INVITE")), 1);
    rig.now = Instant::from_micros(9_000_000);
    assert_eq!(burst(&mut rig, &to_bob("INVITE")), 50);
    let bye = request("BYE", "sip:bob@10.0.0.1", ";tag=x", "");
    assert_eq!(burst(&mut rig, &bye), 80);
    assert_eq!(burst(&mut rig, &to_bob("CANCEL")), 80);
    for odd in [0.0, -5.0, f64::NAN] {
        let mut rig = Rig::new(Behaviour { cap: Some(odd), ..PLAIN });
        assert!(burst(&mut rig, &to_bob("INVITE")) <= 1, "{odd}");
    }
}

#[test]
fn what_is_no_request_is_counted_and_dropped() {
    let mut rig = Rig::with_bob(PLAIN);
    let invite = to_bob("INVITE");
    let without = |name: &str| {
        let lines = invite.split_inclusive("\r\n").filter(|line| !line.starts_with(name));
        lines.collect::<String>()
    };
    let cases = ["Via:", "From:", "To:", "Call-ID:", "CSeq:"].map(without);
    for text in cases.iter().map(String::as_str).chain(["", "\r\n\r\n", "INVITE", &invite[..100]]) {
        assert_eq!(rig.take(CALLER, text), [], "{text}");
    }
    assert_eq!(rig.server.counters().garbage, 9);
}

#[test]
fn counters_are_shown_in_words() {
    let mut rig = Rig::with_bob(PLAIN);
    rig.take(CALLER, &to_bob("INVITE"));
    assert_eq!(
        rig.server.counters().to_string(),
        "requests: 2, INVITE 1, REGISTER 1\nresponses: 0\nanswered: 1, forwarded: 1\n\
         dropped by the cap: 0, not understood: 0, not sent: 0"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Any bytes, and messages with a part replaced: nothing panics, no answer is long, and what is forwarded still
    /// parses when what came did.
    #[test]
    fn no_bytes_panic(
        garbage in proptest::collection::vec(any::<u8>(), 0..300),
        which in 0..4usize,
        (at, len) in (0.0..1.0, 0..40usize),
        splice in "[ -~\r\n\t]{0,20}",
        trying in any::<bool>(),
        redirect in any::<bool>(),
    ) {
        let mut rig = Rig::with_bob(Behaviour { redirect, trying, cap: None });
        let invite = rig.take(CALLER, &to_bob("MESSAGE"))[0].1.clone();
        let texts = [
            to_bob("INVITE"),
            register("bob", "Contact: <sip:a@1.2.3.4>;expires=3, \"x\" <sip:b@c>\r\nExpires: 9\r\n"),
            request("BYE", "sip:bob@10.0.0.1", ";tag=x", "Route: <sip:127.0.0.1:5060;lr>, <sip:1.2.3.4;lr>\r\n"),
            response(&invite, "200 OK"),
        ];
        let mut bytes = texts[which].clone().into_bytes();
        let from = (at * bytes.len() as f64) as usize;
        let to = (from + len).min(bytes.len());
        bytes.splice(from..to, splice.bytes());
        for bytes in [&garbage, &bytes] {
            let mut out = Outbox::default();
            rig.server.handle(Instant::ZERO, address(CALLER), bytes, &mut out);
            prop_assert!(out.sends.len() <= 2);
            prop_assert!(out.bytes.len() <= 4 * bytes.len() + 2000);
            let sound = sip::Message::parse(bytes, &mut sip::Index::new()).is_ok();
            for send in out.sends.iter().filter(|_| sound) {
                prop_assert!(sip::Message::parse(out.datagram(send), &mut sip::Index::new()).is_ok());
            }
        }
    }
}
