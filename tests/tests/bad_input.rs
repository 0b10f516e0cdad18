//! What a server must survive and how it answers (RFC 3261 §8.2, §16.3, §18.3; RFC 5393).

use std::net::UdpSocket;
use std::time::Duration;

use end_to_end::{Message, PATIENCE, Phone, Server, Start, only_strowger};

/// What a response may be longer than its request: a To tag, `received` and `rport`, Server, Unsupported, Retry-After
/// and the like, and a Warning.
const GROWTH_BYTES_MAX: usize = 400;

/// Sends a request whose transaction the server may or may not keep, and returns the status of the final answer.
fn answer_to(phone: &Phone, request: &Message) -> Message {
    phone.send(request);
    loop {
        let answer = phone.receive(PATIENCE).unwrap_or_else(|| panic!("no answer to:\n{request}"));
        if answer.status().is_some_and(|status| status >= 200) {
            return answer;
        }
    }
}

fn assert_status(answer: &Message, status: u16) {
    assert_eq!(answer.status(), Some(status), "{answer}");
}

#[test]
fn no_more_hops_is_483() {
    for configuration in ["default", "stateless", "redirect", "registrar"] {
        let server = Server::start(configuration);
        let alice = Phone::new(&server, "alice");
        for method in ["OPTIONS", "INVITE", "MESSAGE"] {
            let request = alice.request(method, &server.uri("bob")).set("Max-Forwards", 0);
            assert_status(&answer_to(&alice, &request), 483);
        }
    }
}

#[test]
fn an_extension_that_a_proxy_must_understand_is_420() {
    let server = Server::start("default");
    let (alice, bob) = (Phone::new(&server, "alice"), Phone::new(&server, "bob"));
    bob.register();
    let request = alice.request("MESSAGE", &server.uri("bob")).with("Proxy-Require", "foo, bar");
    let answer = answer_to(&alice, &request);
    assert_status(&answer, 420);
    assert!(answer.all("Unsupported").contains(&"foo"), "§16.3 item 5:\n{answer}");
    bob.expect_nothing();
}

#[test]
fn an_extension_that_only_the_callee_must_understand_passes() {
    let server = Server::start("default");
    let (alice, bob) = (Phone::new(&server, "alice"), Phone::new(&server, "bob"));
    bob.register();
    alice.send(&alice.request("MESSAGE", &server.uri("bob")).with("Require", "foo"));
    let arrived = bob.expect_request("MESSAGE");
    assert_eq!(arrived.header("Require"), "foo");
}

#[test]
fn an_unknown_scheme_is_416() {
    only_strowger!("Kamailio cannot parse such a Request-URI and says 400");
    let server = Server::start("default");
    let alice = Phone::new(&server, "alice");
    assert_status(&answer_to(&alice, &alice.request("OPTIONS", "nobodyKnowsThisScheme:totallyopaque")), 416);
}

#[test]
fn another_version_is_505() {
    only_strowger!("Kamailio's core drops another version");
    let server = Server::start("default");
    let alice = Phone::new(&server, "alice");
    let request = alice.request("OPTIONS", &server.uri("bob"));
    let request = request.clone().start(format!("OPTIONS {} SIP/7.0", server.uri("bob")));
    assert_status(&answer_to(&alice, &request), 505);
}

#[test]
fn a_method_unlike_its_cseq_is_400() {
    let server = Server::start("default");
    let alice = Phone::new(&server, "alice");
    let request = alice.request("OPTIONS", &server.uri("bob")).set("CSeq", "1 INVITE");
    alice.send(&request);
    let answer = alice.receive(PATIENCE).expect("an answer");
    assert_status(&answer, 400);
}

#[test]
fn an_unparsable_request_is_400_where_it_can_be_addressed() {
    only_strowger!("Kamailio's core drops what it cannot parse");
    let server = Server::start("default");
    let alice = Phone::new(&server, "alice");
    let good = alice.request("OPTIONS", &server.uri("bob"));
    let broken = [
        good.clone().set("From", "\"unterminated <sip:a@b>;tag=1"),
        good.clone().set("CSeq", "99999999999 OPTIONS"),
        good.clone().set("Content-Length", "-1"),
        good.clone().set("Content-Length", "10"),
        good.clone().with("Call-ID", "a-second-one"),
        good.clone().start(format!("OPTIONS <{}> SIP/2.0", server.uri("bob"))),
        good.clone().without("To"),
        good.clone().without("Call-ID"),
    ];
    for (index, request) in broken.into_iter().enumerate() {
        // Each its own transaction, so that none is a copy of another.
        let request =
            request.set("Via", format!("SIP/2.0/UDP {};branch=z9hG4bKbroken{index}", alice.address()));
        alice.send(&request);
        let answer = alice.receive(PATIENCE).unwrap_or_else(|| panic!("no answer to:\n{request}"));
        assert_eq!(answer.status(), Some(400), "{request}\nwas answered:\n{answer}");
        assert_eq!(answer.parameter("Via", "branch"), request.parameter("Via", "branch"), "{answer}");
    }
}

#[test]
fn what_cannot_be_addressed_is_dropped() {
    only_strowger!("Kamailio answers some of these");
    let server = Server::start("default");
    let alice = Phone::new(&server, "alice");
    let good = alice.request("OPTIONS", &server.uri("bob"));
    alice.send(&good.clone().without("Via"));
    alice.send(&good.response(999, "Nonsense", "tag"));
    alice.send(&good.response(200, "OK", "stray"));
    alice.send_bytes(b"");
    alice.send_bytes(b"\r\n\r\n\r\n\r\n");
    alice.send_bytes(&[0; 1000]);
    alice.expect_nothing();
    assert!(server.is_answering());
}

#[test]
fn a_via_that_is_none_is_answered_where_the_datagram_came_from() {
    only_strowger!("Kamailio drops it");
    let server = Server::start("default");
    let alice = Phone::new(&server, "alice");
    let bad = alice.request("OPTIONS", &server.uri("bob")).set("Via", "nonsense");
    alice.send(&bad);
    alice.expect_response(400, &bad);
}

#[test]
fn an_ack_is_never_answered() {
    for configuration in ["default", "stateless", "redirect", "registrar"] {
        let server = Server::start(configuration);
        let alice = Phone::new(&server, "alice");
        alice.send(&alice.request("ACK", &server.uri("nobody")).set("To", "<sip:nobody@nowhere>;tag=1"));
        alice.expect_nothing();
    }
}

#[test]
fn a_large_message_passes_whole() {
    let server = Server::start("relay");
    let (alice, bob) = (Phone::new(&server, "alice"), Phone::new(&server, "bob"));
    let body = "x".repeat(20_000);
    alice.send(&alice.request("MESSAGE", &bob.contact()).body("text/plain", body.as_str()));
    assert_eq!(bob.expect_request("MESSAGE").body, body);
}

#[test]
fn a_message_past_the_limit_of_the_script_is_513() {
    let limit = "\tif (msg:len > 2000) { sl_send_reply(\"513\", \"Message Too Large\"); exit; }";
    let server = Start::configuration("relay").inserting("\tif (msg:len > 60000)", limit).spawn();
    let (alice, bob) = (Phone::new(&server, "alice"), Phone::new(&server, "bob"));
    let large = alice.request("MESSAGE", &bob.contact()).body("text/plain", "x".repeat(3_000));
    assert_status(&answer_to(&alice, &large), 513);
    bob.expect_nothing();
}

#[test]
fn a_loop_is_482_or_runs_out_of_hops() {
    let server = Server::start("relay");
    let (alice, mirror) = (Phone::new(&server, "alice"), Phone::new(&server, "mirror"));
    // The mirror sends every request back to where it came from, unchanged but for its own Via, as a proxy would.
    let request = alice.request("MESSAGE", &mirror.contact());
    alice.send(&request);
    let mut hops = 0;
    let answer = loop {
        if let Some(answer) = alice.receive(Duration::from_millis(1)) {
            break answer;
        }
        let Some(arrived) = mirror.receive(Duration::from_millis(100)) else { continue };
        match arrived.status() {
            None => {
                hops += 1;
                assert!(hops < 100, "nobody stops this loop");
                mirror.send(&pushed(&mirror, &arrived, hops));
            }
            Some(_) => mirror.send(&popped(&arrived)),
        }
    };
    assert!(matches!(answer.status(), Some(482 | 483)), "{answer}");
    if end_to_end::is_strowger() {
        assert_status(&answer, 482);
        assert!(hops <= 2, "RFC 5393 §4.2 finds the loop at its first return, not after {hops} hops");
    }
}

/// The request as the next hop of a proxy sees it.
fn pushed(proxy: &Phone, request: &Message, hop: u32) -> Message {
    let hops: u32 = request.header("Max-Forwards").parse().expect("a number");
    let mut forwarded = request.clone().set("Max-Forwards", hops.saturating_sub(1));
    let via = format!("SIP/2.0/UDP {};branch=z9hG4bKmirror{hop}", proxy.address());
    forwarded.headers.insert(0, ("Via".to_owned(), via));
    forwarded
}

/// The response as a proxy passes it back: without its own Via.
fn popped(response: &Message) -> Message {
    let mut passed = response.clone();
    if let Some(own) = passed.headers.iter().position(|(name, _)| name == "Via") {
        passed.headers.remove(own);
    }
    passed
}

#[test]
fn ten_thousand_mutations_leave_the_server_alive() {
    let server = Server::start("default");
    let (alice, bob) = (Phone::new(&server, "alice"), Phone::new(&server, "bob"));
    alice.register();
    bob.register();
    let seeds = [
        alice.request("INVITE", &server.uri("bob")).body("application/sdp", "v=0\r\n").to_string(),
        alice.register_request().to_string(),
        alice
            .request("OPTIONS", &server.uri("bob"))
            .with("Route", format!("<{};lr>", server.uri("x")))
            .to_string(),
        alice.request("INVITE", &server.uri("bob")).response(200, "OK", "t").to_string(),
    ];
    let sender = UdpSocket::bind((end_to_end::loopback(), 0)).expect("a socket");
    sender.connect(server.address()).expect("the server's address");
    let mut dice = Dice(0x5eed);
    for round in 0..10_000_usize {
        let mut bytes = seeds[round % seeds.len()].clone().into_bytes();
        for _ in 0..=dice.below(8) {
            mutate(&mut bytes, &mut dice);
        }
        // A datagram that the kernel refuses (as after an ICMP error) is as good as lost.
        let _ = sender.send(&bytes);
        if round % 500 == 0 {
            assert!(server.is_answering(), "dead after mutation {round}");
        }
    }
    assert!(server.is_answering());
}

/// xorshift: the same mutations in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 16).unwrap_or(0) % limit.max(1)
    }
}

fn mutate(bytes: &mut Vec<u8>, dice: &mut Dice) {
    const SPLICES: [&[u8]; 12] = [
        b"\r\n",
        b"\0",
        b"%00",
        b"\"",
        b"<",
        b">",
        b";",
        b",",
        b"\r\n\t",
        b"[::1]",
        b"4294967296",
        b"\xff\xfe",
    ];
    let at = dice.below(bytes.len());
    match dice.below(5) {
        0 if !bytes.is_empty() => bytes[at] = u8::try_from(dice.below(256)).unwrap_or(0),
        1 => bytes.truncate(at),
        2 => {
            let end = (at + dice.below(20)).min(bytes.len());
            bytes.drain(at..end);
        }
        3 => {
            let end = (at + dice.below(60)).min(bytes.len());
            let copy = bytes[at..end].to_vec();
            bytes.splice(at..at, copy);
        }
        _ => {
            bytes.splice(at..at, SPLICES[dice.below(SPLICES.len())].iter().copied());
        }
    }
}

#[test]
fn nothing_is_amplified() {
    let server = Server::start("default");
    let alice = Phone::new(&server, "alice");
    let via = format!("SIP/2.0/UDP {};branch=z9hG4bK", alice.address());
    let requests = [
        // As short as an answerable request can be.
        format!("X s:a SIP/2.0\r\nv:{via}1\r\n\r\n"),
        format!(
            "OPTIONS sip:a SIP/2.0\r\nv:{via}2\r\nf:<sip:a>;tag=1\r\nt:<sip:a>\r\ni:1\r\nCSeq:1 OPTIONS\r\n\r\n"
        ),
        format!("OPTIONS sip:a SIP/2.0\r\nv:{via}3\r\nProxy-Require:{}\r\n\r\n", "a,".repeat(400)),
    ];
    for request in requests {
        alice.send_bytes(request.as_bytes());
        let mut answered = 0;
        while let Some(answer) = alice.receive_bytes(end_to_end::QUIET) {
            answered += answer.len();
        }
        assert!(
            answered <= request.len() + GROWTH_BYTES_MAX,
            "{answered} bytes for {}:\n{request}",
            request.len()
        );
    }
}
