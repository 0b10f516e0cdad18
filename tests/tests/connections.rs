//! Connections: which one a message takes (RFC 3261 §18, RFC 5923), and what happens when they break, stall or bring
//! what no SIP element sends.

use std::io::{ErrorKind, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::thread;
use std::time::{Duration, Instant};

use end_to_end::{
    Connection, Cut, Dialog, Ending, Message, Network, PATIENCE, Phone, QUIET, Received, Server, Start,
    Transport, is_strowger, loopback, only_strowger, unique,
};

/// Within so long every bad peer must have been answered or closed: the limits of `streams.cfg` are 3 s.
const SECONDS: Duration = Duration::from_secs(30);

/// The transports on which a phone can be connected to.
const REACHABLE: [Transport; 2] = [Transport::Tcp, Transport::Tls];

/// A proxy that relays anything to where its Request-URI says.
fn relay() -> Server {
    Start::configuration("streams").over(&REACHABLE).spawn()
}

/// A registrar and proxy that finds phones by the connection that they registered over.
fn registrar() -> Server {
    Start::configuration("transports").over(&Transport::STREAMS).spawn()
}

/// A request that every server answers at once, with 483.
fn question(via: &str) -> Message {
    let (call_id, branch) = (unique(), unique());
    let request = Message {
        start: "OPTIONS sip:server.invalid SIP/2.0".to_owned(),
        headers: Vec::new(),
        body: String::new(),
    };
    request
        .with("Via", format!("SIP/2.0/{via} peer.invalid;branch=z9hG4bK{branch}"))
        .with("Max-Forwards", 0)
        .with("From", "<sip:peer@peer.invalid>;tag=1")
        .with("To", "<sip:server.invalid>")
        .with("Call-ID", call_id)
        .with("CSeq", "1 OPTIONS")
        .with("Content-Length", 0)
}

fn tcp(server: &Server) -> Connection {
    Connection::open(Transport::Tcp, server.address_over(Transport::Tcp), None)
}

/// The server must answer a request on a new connection.
fn assert_serves(server: &Server) {
    let mut connection = tcp(server);
    connection.send(question("TCP").to_string());
    connection.expect_response(483);
}

// ---- Which connection a message takes

#[test]
fn responses_come_by_the_connection_of_their_request() {
    let server = relay();
    for transport in REACHABLE {
        let (alice, bob) = (Phone::over(transport, &server, "alice"), Phone::over(transport, &server, "bob"));
        let invite = alice.request("INVITE", &bob.contact());
        alice.send(&invite);
        let arrived = bob.expect_request("INVITE");
        bob.answer(&arrived, 180, "Ringing");
        alice.expect_response(180, &invite);
        let ok = bob.accept(&arrived);
        let answer = alice.expect_response(200, &invite);
        assert_eq!(alice.opened_by_server(), 0, "§18.2.2: the connection is still open");
        alice.send(&Dialog::of_caller(&invite, &answer).ack(&alice));
        bob.expect_request("ACK");
        // bob's BYE goes to alice's contact, to which nobody has connected yet.
        let bye = Dialog::of_callee(&arrived, &ok).request(&bob, "BYE");
        bob.send(&bye);
        let arrived = alice.expect_request("BYE");
        alice.answer(&arrived, 200, "OK");
        bob.expect_response(200, &bye);
    }
}

#[test]
fn a_connection_that_the_server_opened_is_used_again() {
    let server = relay();
    for transport in REACHABLE {
        let (alice, bob) = (Phone::over(transport, &server, "alice"), Phone::over(transport, &server, "bob"));
        for _ in 0..3 {
            let request = alice.request("MESSAGE", &bob.contact());
            alice.send(&request);
            let arrived = bob.expect_request("MESSAGE");
            bob.answer(&arrived, 200, "OK");
            alice.expect_response(200, &request);
        }
        assert_eq!(bob.opened_by_server(), 1, "one connection serves for all of them");
    }
}

/// RFC 5923 §5: who puts `alias` into its Via lets the server send requests back by the same connection.
#[test]
fn a_connection_with_an_alias_is_used_for_requests_to_its_peer() {
    let server = relay();
    // By TLS it takes a certificate that proves who listens there (§6), too.
    let transports = if is_strowger() { &REACHABLE[..1] } else { &REACHABLE };
    for &transport in transports {
        let (alice, bob) = (Phone::over(transport, &server, "alice"), Phone::over(transport, &server, "bob"));
        // What bob asks first makes the alias; it goes to alice, who answers.
        let hello = bob.request("MESSAGE", &alice.contact());
        let hello = hello.clone().set("Via", format!("{};alias", hello.header("Via")));
        bob.send(&hello);
        let arrived = alice.expect_request("MESSAGE");
        alice.answer(&arrived, 200, "OK");
        bob.expect_response(200, &hello);
        let request = alice.request("MESSAGE", &bob.contact());
        alice.send(&request);
        let arrived = bob.expect_request("MESSAGE");
        bob.answer(&arrived, 200, "OK");
        alice.expect_response(200, &request);
        assert_eq!(bob.opened_by_server(), 0, "{transport:?}: the alias leads there");
    }
}

#[test]
fn without_an_alias_a_request_takes_a_connection_of_its_own() {
    let server = relay();
    let (alice, bob) =
        (Phone::over(Transport::Tcp, &server, "alice"), Phone::over(Transport::Tcp, &server, "bob"));
    let request = alice.request("MESSAGE", &bob.contact());
    alice.send(&request);
    let arrived = bob.expect_request("MESSAGE");
    bob.answer(&arrived, 200, "OK");
    alice.expect_response(200, &request);
    assert_eq!(bob.opened_by_server(), 1);
}

/// Its Via and Contact name an address where nobody is, so only the connection leads to it.
#[test]
fn a_phone_behind_a_nat_is_reached_by_its_connection() {
    let server = registrar();
    for transport in Transport::STREAMS {
        let nowhere = |number: u16| SocketAddr::from((loopback(), number)).to_string();
        let alice = Phone::over(transport, &server, "alice").advertising(&nowhere(5998));
        let bob = Phone::over(transport, &server, "bob").advertising(&nowhere(5999));
        alice.register();
        bob.register();
        let (callers, callees) = Dialog::establish(&alice, &bob);
        callers.exchange(&alice, &bob, "INVITE");
        callees.exchange(&bob, &alice, "INVITE");
        callees.exchange(&bob, &alice, "BYE");
        assert_eq!((alice.opened_by_server(), bob.opened_by_server()), (0, 0));
    }
}

/// As baresip does: its Contact is its own end of the connection, where it takes no other one.
#[test]
fn a_phone_whose_contact_is_its_end_of_a_connection_is_reached_by_that() {
    let server = registrar();
    for transport in REACHABLE {
        let bob = Phone::over(transport, &server, "bob");
        bob.stop_listening();
        let own_end = bob.with_connection(|connection| connection.local_address()).to_string();
        let bob = bob.advertising(&own_end);
        bob.register();
        for caller in Transport::ALL {
            let alice = Phone::over(caller, &server, "alice");
            alice.register();
            let (callers, callees) = Dialog::establish(&alice, &bob);
            callers.exchange(&alice, &bob, "INVITE");
            callees.exchange(&bob, &alice, "INVITE");
            callers.exchange(&alice, &bob, "BYE");
        }
    }
}

/// Two phones of one user over one transport, and one that comes back over a new connection.
#[test]
fn the_latest_connection_of_a_phone_counts() {
    let server = registrar();
    for transport in Transport::STREAMS {
        let nowhere = SocketAddr::from((loopback(), 5999)).to_string();
        let bob = Phone::over(transport, &server, "bob").advertising(&nowhere);
        let alice = Phone::new(&server, "alice");
        bob.register();
        for how in [Cut::Close, Cut::Reset] {
            bob.cut(how);
            bob.reconnect();
            bob.register();
            let (callers, callees) = Dialog::establish(&alice, &bob);
            callees.exchange(&bob, &alice, "INVITE");
            callers.exchange(&alice, &bob, "BYE");
        }
    }
}

/// RFC 3261 §18.1.1: past 1,300 bytes a request takes a transport with congestion control.
#[test]
fn a_large_request_goes_by_tcp() {
    let server = relay();
    let alice = Phone::new(&server, "alice");
    let bob = Phone::over(Transport::Tcp, &server, "bob");
    let over_udp = Phone::between(server.address(), bob.address(), "bob");
    let small = alice.request("MESSAGE", &over_udp.contact());
    alice.send(&small);
    let arrived = over_udp.expect_request("MESSAGE");
    over_udp.answer(&arrived, 200, "OK");
    alice.expect_response(200, &small);
    let large = alice.request("MESSAGE", &over_udp.contact()).body("text/plain", "x".repeat(1_500));
    alice.send(&large);
    let arrived = bob.expect_request("MESSAGE");
    assert!(arrived.header("Via").starts_with("SIP/2.0/TCP "), "{arrived}");
    assert_eq!(arrived.body.len(), 1_500);
    bob.answer(&arrived, 200, "OK");
    alice.expect_response(200, &large);
}

/// RFC 3261 §18.1.1: a reset where TCP was tried for the size alone sends the request by UDP after all.
#[test]
fn a_large_request_to_who_has_no_tcp_goes_by_udp() {
    only_strowger!("Kamailio gives up where TCP is refused");
    let server = relay();
    let (alice, bob) = (Phone::new(&server, "alice"), Phone::new(&server, "bob"));
    let large = alice.request("MESSAGE", &bob.contact()).body("text/plain", "x".repeat(1_500));
    alice.send(&large);
    let arrived = bob.expect_request("MESSAGE");
    assert!(arrived.header("Via").starts_with("SIP/2.0/UDP "), "{arrived}");
    bob.answer(&arrived, 200, "OK");
    alice.expect_response(200, &large);
}

#[test]
fn a_large_response_goes_back_where_its_request_came_from() {
    let server = relay();
    let (alice, bob) = (Phone::new(&server, "alice"), Phone::over(Transport::Tcp, &server, "bob"));
    let request = alice.request("MESSAGE", &bob.contact());
    alice.send(&request);
    let arrived = bob.expect_request("MESSAGE");
    let answer = arrived.response(200, "OK", "large").body("text/plain", "x".repeat(8_000));
    bob.send(&answer);
    assert_eq!(alice.expect_response(200, &request).body.len(), 8_000);
}

#[test]
fn a_phone_that_refuses_connections_is_unavailable() {
    let server = relay();
    for transport in REACHABLE {
        let alice = Phone::over(transport, &server, "alice");
        let bob = Phone::over(transport, &server, "bob");
        bob.stop_listening();
        let gone = alice.request(
            "INVITE",
            &format!("sip:bob@{}:9;transport={}", bob.address().ip(), transport.parameter()),
        );
        alice.send(&gone);
        let answer = final_answer(&alice);
        assert!(matches!(answer.status(), Some(408 | 477 | 480 | 500 | 503)), "{answer}");
    }
}

fn final_answer(phone: &Phone) -> Message {
    loop {
        let answer = phone.receive(SECONDS).expect("an answer");
        if answer.status().is_some_and(|status| status >= 200) {
            return answer;
        }
    }
}

// ---- Connections cut in every state of a call

/// How far a call has come when a connection breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The INVITE has arrived, nothing is answered.
    Calling,
    /// 180 has arrived.
    Ringing,
    /// 200 has arrived, the ACK is not sent.
    Answered,
    /// ACK has arrived.
    Established,
    /// The BYE has arrived, nothing is answered.
    Ending,
}

const STATES: [State; 5] =
    [State::Calling, State::Ringing, State::Answered, State::Established, State::Ending];

/// One call from end to end; `breaks` is called once in every state.
fn call(alice: &Phone, bob: &Phone, breaks: impl Fn(State)) {
    let invite = alice.request("INVITE", &bob.contact());
    alice.send(&invite);
    let arrived = bob.expect_request("INVITE");
    breaks(State::Calling);
    bob.answer(&arrived, 180, "Ringing");
    alice.expect_response(180, &invite);
    breaks(State::Ringing);
    bob.accept(&arrived);
    let answer = alice.expect_response(200, &invite);
    breaks(State::Answered);
    let ours = Dialog::of_caller(&invite, &answer);
    alice.send(&ours.ack(alice));
    bob.expect_request("ACK");
    breaks(State::Established);
    let bye = ours.request(alice, "BYE");
    alice.send(&bye);
    let arrived = bob.expect_request("BYE");
    breaks(State::Ending);
    bob.answer(&arrived, 200, "OK");
    alice.expect_response(200, &bye);
}

/// RFC 3261 §18.2.2 opens a connection to the sent-by for a response whose connection has gone; a request opens one to
/// its target anyway. So phones that can be connected to lose no call with their connections.
fn a_call_survives_cuts(transport: Transport, victim: &str) {
    let server = relay();
    for state in STATES {
        for how in [Cut::Close, Cut::Reset] {
            if !is_survivable(state, how, victim) {
                continue;
            }
            let (alice, bob) =
                (Phone::over(transport, &server, "alice"), Phone::over(transport, &server, "bob"));
            call(&alice, &bob, |reached| {
                if reached == state {
                    let phone = if victim == "caller" { &alice } else { &bob };
                    phone.cut(how);
                    phone.reconnect();
                }
            });
        }
    }
    assert_serves(&server);
}

fn is_survivable(state: State, how: Cut, victim: &str) -> bool {
    let nothing_is_owed = matches!(state, State::Answered | State::Established);
    match (victim, how) {
        // Kamailio loses what it writes before it has looked.
        (_, Cut::Reset) if !is_strowger() => false,
        // Whose request is not answered may have finished sending only: what is owed goes back where it came from.
        ("caller", Cut::Close) => nothing_is_owed,
        ("caller", Cut::Reset) => true,
        // A callee that vanishes before it has said anything is another matter, below.
        _ => nothing_is_owed || state == State::Ringing,
    }
}

#[test]
fn a_call_over_tcp_survives_when_the_caller_loses_its_connections() {
    a_call_survives_cuts(Transport::Tcp, "caller");
}

#[test]
fn a_call_over_tcp_survives_when_the_callee_loses_its_connections() {
    a_call_survives_cuts(Transport::Tcp, "callee");
}

#[test]
fn a_call_over_tls_survives_when_the_caller_loses_its_connections() {
    a_call_survives_cuts(Transport::Tls, "caller");
}

#[test]
fn a_call_over_tls_survives_when_the_callee_loses_its_connections() {
    a_call_survives_cuts(Transport::Tls, "callee");
}

/// A connection lost before anything came back by it says that nothing will: the caller need not wait for Timer B.
#[test]
fn a_callee_that_vanishes_before_it_answers_is_unavailable_at_once() {
    only_strowger!("Kamailio waits for its timer");
    let server = relay();
    for transport in REACHABLE {
        for how in [Cut::Close, Cut::Reset] {
            let (alice, bob) =
                (Phone::over(transport, &server, "alice"), Phone::over(transport, &server, "bob"));
            let invite = alice.request("INVITE", &bob.contact());
            alice.send(&invite);
            bob.expect_request("INVITE");
            bob.stop_listening();
            bob.cut(how);
            let answer = final_answer(&alice);
            // §16.7 item 6: a 503 of its own making a proxy passes on as 500.
            assert!(matches!(answer.status(), Some(500 | 503)), "{answer}");
            alice.acknowledge(&invite, &answer);
        }
    }
}

/// Phones behind NATs lose the call; the server loses nothing, and serves them as soon as they are back.
#[test]
fn phones_that_vanish_in_any_state_of_a_call_are_served_when_they_are_back() {
    let server = registrar();
    for transport in Transport::STREAMS {
        let nowhere = |number: u16| SocketAddr::from((loopback(), number)).to_string();
        let alice = Phone::over(transport, &server, "alice").advertising(&nowhere(5998));
        let bob = Phone::over(transport, &server, "bob").advertising(&nowhere(5999));
        for (state, victim) in STATES.iter().flat_map(|state| [(state, &alice), (state, &bob)]) {
            register_again(&alice);
            register_again(&bob);
            call_until(*state, &alice, &bob);
            victim.cut(Cut::Reset);
            victim.reconnect();
        }
        // What the server still owes to earlier calls may arrive late.
        let late = |phone: &Phone| while phone.receive(QUIET).is_some() {};
        late(&alice);
        late(&bob);
        register_again(&alice);
        register_again(&bob);
        let (callers, _) = Dialog::establish(&alice, &bob);
        callers.exchange(&alice, &bob, "BYE");
    }
}

/// Registers a phone to which something of earlier calls may still come.
fn register_again(phone: &Phone) {
    let register = phone.register_request();
    phone.send(&register);
    let answer = expect_of_call(phone, &register);
    assert_eq!(answer.status(), Some(200), "{answer}");
}

/// A call that goes so far and no further. It is between registered phones.
fn call_until(state: State, alice: &Phone, bob: &Phone) {
    let invite = alice.request("INVITE", &bob.address_of_record());
    alice.send(&invite);
    let arrived = expect_of_call(bob, &invite);
    if state == State::Calling {
        return;
    }
    bob.answer(&arrived, 180, "Ringing");
    expect_of_call(alice, &invite);
    if state == State::Ringing {
        return;
    }
    bob.accept(&arrived);
    let answer = expect_of_call(alice, &invite);
    if state == State::Answered {
        return;
    }
    let ours = Dialog::of_caller(&invite, &answer);
    alice.send(&ours.ack(alice));
    expect_of_call(bob, &invite);
    if state == State::Ending {
        alice.send(&ours.request(alice, "BYE"));
        expect_of_call(bob, &invite);
    }
}

/// The next message of this call; those of earlier ones are skipped.
fn expect_of_call(phone: &Phone, invite: &Message) -> Message {
    let deadline = Instant::now() + PATIENCE;
    while let Some(message) = phone.receive(deadline.saturating_duration_since(Instant::now())) {
        if message.header("Call-ID") == invite.header("Call-ID") {
            return message;
        }
    }
    panic!("nothing more of the call of\n{invite}");
}

// ---- Peers that stall

/// The cable between two hosts is pulled, so nobody hears of the other's end.
#[test]
fn a_connection_whose_peer_is_silently_gone_is_found_dead() {
    only_strowger!("it needs one process whose descriptors can be counted");
    let Some(network) = Network::new() else { return };
    let server = Start::configuration("streams").over(&[Transport::Tcp]).inside(network).spawn();
    let address = server.address_over(Transport::Tcp);
    // Once it has answered, all of it runs.
    let mut first = Connection::on(Transport::Tcp, server.network().dial(address).expect("a connection"));
    first.send(question("TCP").to_string());
    first.expect_response(483);
    let before = server.usage().descriptors;
    let dial = || server.network().dial(address).expect("the server takes connections");
    let mut peers: Vec<_> = (0..20).map(|_| dial()).collect();
    // Half of them have something to be answered, so that the server has sent something, too.
    for peer in peers.iter_mut().step_by(2) {
        peer.write_all(question("TCP").to_string().as_bytes()).expect("the server takes bytes");
    }
    wait_until("all connections are open", || server.usage().descriptors >= before + peers.len());
    server.network().pull_cable();
    wait_until_closed(&server, before);
}

/// Waits until the server has no more descriptors than it had.
fn wait_until_closed(server: &Server, before: usize) {
    let deadline = Instant::now() + 2 * SECONDS;
    while server.usage().descriptors > before {
        assert!(
            Instant::now() < deadline,
            "more than {before} descriptors stay open:\n{}",
            server.open_files()
        );
        thread::sleep(Duration::from_millis(20));
    }
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + 2 * SECONDS;
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// A peer that asks and never reads costs a bounded amount of memory, then its connection, and delays nobody.
#[test]
fn a_peer_that_does_not_read_loses_its_connection() {
    only_strowger!("it needs one process whose memory can be looked at");
    let server = relay();
    let before = server.usage().resident_kb;
    let address = server.address_over(Transport::Tcp);
    let mut deaf = std::net::TcpStream::connect(address).expect("the server takes connections");
    deaf.set_nonblocking(true).expect("invariant: a socket can be told not to block");
    let questions = (0..100).map(|_| question("TCP").to_string()).collect::<String>();
    let deadline = Instant::now() + 2 * SECONDS;
    let (mut sent, mut most) = (0_usize, before);
    // As bytes of a stream, wherever the last write stopped.
    let mut rest = questions.as_bytes();
    loop {
        assert!(Instant::now() < deadline, "still there after {sent} bytes");
        match deaf.write(rest) {
            Ok(length) => {
                sent += length;
                rest = &rest[length..];
                rest = if rest.is_empty() { questions.as_bytes() } else { rest };
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                assert_serves(&server);
                most = most.max(server.usage().resident_kb);
            }
            Err(_) => break,
        }
    }
    assert!(most < before + 65_536, "{before} kB grew to {most} kB");
    assert_serves(&server);
}

#[test]
fn a_message_that_comes_byte_by_byte_is_answered() {
    let server = relay();
    for transport in REACHABLE {
        let credentials = server.credentials();
        let mut connection = Connection::open(transport, server.address_over(transport), Some(&credentials));
        for byte in question(transport.via()).to_string().as_bytes() {
            connection.send([*byte]);
        }
        connection.expect_response(483);
    }
}

#[test]
fn a_message_that_never_ends_costs_its_connection() {
    only_strowger!("Kamailio 5.6 waits as long as the connection lives");
    let server = relay();
    let text = question("TCP").to_string();
    for length in [1, 20, text.len() - 1] {
        let mut slow = tcp(&server);
        slow.send(&text[..length]);
        assert_serves(&server);
        slow.expect_end(SECONDS);
    }
}

#[test]
fn a_peer_that_sends_a_byte_now_and_then_gains_no_time_by_it() {
    only_strowger!("Kamailio 5.6 waits as long as the connection lives");
    let server = relay();
    let mut slow = tcp(&server);
    let deadline = Instant::now() + SECONDS;
    slow.send("OPTIONS sip:server.invalid SIP/2.0\r\nSubject: ");
    while slow.ending().is_none() {
        assert!(Instant::now() < deadline, "the server still waits");
        // It may have gone between the question and this.
        let _ = slow.try_send(b"x");
        thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_connection_that_has_fallen_silent_is_left_open() {
    let server = relay();
    let mut silent = tcp(&server);
    silent.send(question("TCP").to_string());
    silent.expect_response(483);
    // Longer than the limits for a message and for a peer that does not read.
    assert_eq!(silent.receive(Duration::from_secs(4)), None);
    silent.send(question("TCP").to_string());
    silent.expect_response(483);
}

#[test]
fn a_connection_that_never_says_anything_is_closed() {
    only_strowger!("Kamailio waits as long as the connection lives");
    let server = relay();
    for transport in REACHABLE {
        let mut silent =
            Connection::open(transport, server.address_over(transport), Some(&server.credentials()));
        assert_serves(&server);
        silent.expect_end(SECONDS);
    }
}

// ---- Many at once, and one after another

/// Opens and drops connections in every way there is, and gives back how many.
fn come_and_go(server: &Server, rounds: usize) -> usize {
    const AT_ONCE: usize = 250;
    let credentials = server.credentials();
    for round in 0..rounds {
        let transport = if round % 8 == 7 { Transport::Tls } else { Transport::Tcp };
        let address = server.address_over(transport);
        // What is to be said is said at once: who is silent for 3 s is closed, and a busy machine takes longer
        // to open them all.
        let begin = |index: usize| {
            let mut connection = Connection::open(transport, address, Some(&credentials));
            match index % 4 {
                0 => connection.send(question(transport.via()).to_string()),
                1 => connection.send(&question(transport.via()).to_string()[..40]),
                _ => {}
            }
            connection
        };
        let open: Vec<Connection> = (0..AT_ONCE).map(begin).collect();
        for (index, mut connection) in open.into_iter().enumerate() {
            match index % 4 {
                0 => drop(connection.expect_response(483)),
                2 => connection.finish_sending(),
                _ => {}
            }
            // Resets leave no port waiting (RFC 9293 §3.6.1), of which there are fewer than connections.
            connection.reset();
        }
    }
    rounds * AT_ONCE
}

#[test]
fn ten_thousand_connections_leave_nothing_behind() {
    only_strowger!("it needs one process whose memory can be looked at");
    let server = relay();
    let descriptors = server.usage().descriptors;
    let mut count = come_and_go(&server, 8);
    wait_until_closed(&server, descriptors);
    let resident = server.usage().resident_kb;
    count += come_and_go(&server, 32);
    assert!(count >= 10_000);
    wait_until_closed(&server, descriptors);
    let after = server.usage().resident_kb;
    assert!(after <= resident + 4_096, "{resident} kB grew to {after} kB with {count} connections");
    assert_serves(&server);
}

#[test]
fn requests_in_one_packet_are_all_answered_in_order() {
    const REQUESTS: usize = 200;
    let server = relay();
    for transport in REACHABLE {
        let mut connection =
            Connection::open(transport, server.address_over(transport), Some(&server.credentials()));
        let questions: Vec<Message> = (0..REQUESTS).map(|_| question(transport.via())).collect();
        connection.send(questions.iter().map(Message::to_string).collect::<String>());
        let mut answered: Vec<String> =
            (0..REQUESTS).map(|_| connection.expect_response(483).header("Call-ID").to_owned()).collect();
        let mut asked: Vec<String> = questions.iter().map(|q| q.header("Call-ID").to_owned()).collect();
        // Several shards, or workers, may overtake each other.
        answered.sort();
        asked.sort();
        assert_eq!(answered, asked);
    }
}

#[test]
fn who_has_finished_sending_is_answered_all_the_same() {
    let server = relay();
    for transport in REACHABLE {
        let mut connection =
            Connection::open(transport, server.address_over(transport), Some(&server.credentials()));
        connection.send(question(transport.via()).to_string());
        connection.finish_sending();
        connection.expect_response(483);
        assert_eq!(connection.expect_end(SECONDS), Ending::Closed);
    }
}

/// RFC 5626 §3.5.1, §4.4.1.
#[test]
fn a_ping_is_answered_with_a_pong() {
    let server = relay();
    for transport in REACHABLE {
        let mut connection =
            Connection::open(transport, server.address_over(transport), Some(&server.credentials()));
        connection.send("\r\n\r\n");
        assert_eq!(connection.receive(PATIENCE), Some(Received::Pong));
        // A ping right before a request, in one packet with it.
        connection.send(format!("\r\n\r\n{}", question(transport.via())));
        assert_eq!(connection.receive(PATIENCE), Some(Received::Pong));
        connection.expect_response(483);
        // One blank line is no ping, and may stand before a message (RFC 3261 §7.5).
        connection.send(format!("\r\n{}", question(transport.via())));
        assert!(matches!(connection.receive(PATIENCE), Some(Received::Message(_))));
        assert_eq!(connection.receive(QUIET), None);
    }
}

// ---- What is no SIP

/// The server answers these bytes or closes the connection, and serves others meanwhile.
fn is_survived(server: &Server, transport: Transport, bytes: &[u8]) -> Option<Message> {
    let credentials = transport.is_secure().then(|| server.credentials());
    let mut connection = Connection::open(transport, server.address_over(transport), credentials.as_ref());
    // It may be closed before all is written.
    let _ = connection.try_send(bytes);
    assert_serves(server);
    let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(300)]).into_owned();
    let deadline = Instant::now() + SECONDS;
    loop {
        match connection.receive(Duration::from_millis(50)) {
            Some(Received::Message(bytes)) => return Message::parse(&bytes),
            Some(_) => {}
            None if connection.ending().is_some() => return None,
            None => assert!(Instant::now() < deadline, "neither answer nor end to:\n{shown}"),
        }
    }
}

/// The first bytes that OpenSSL sends: a record of a handshake with a ClientHello (RFC 8446 §4.1.2).
const CLIENT_HELLO: &[u8] = b"\x16\x03\x01\x00\xc8\x01\x00\x00\xc4\x03\x03\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\
    \x0a\x0b\x0c\x0d\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f\x00\x00\x02\x13\x01";

#[test]
fn what_is_no_sip_is_answered_or_closed() {
    only_strowger!("Kamailio keeps some of these waiting for more");
    let server = relay();
    let noise: Vec<u8> = (0..2_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let inputs: [&[u8]; 8] = [
        CLIENT_HELLO,
        b"GET / HTTP/1.1\r\nHost: server.invalid\r\n\r\n",
        b"POST /x HTTP/1.1\r\nHost: server.invalid\r\nContent-Length: 3\r\n\r\nabc",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"EHLO client.invalid\r\n",
        &[0; 5_000],
        &noise,
        b"\r\n\r\nnonsense without end \xff\xfe",
    ];
    for transport in REACHABLE {
        for bytes in inputs {
            is_survived(&server, transport, bytes);
        }
    }
}

/// RFC 3261 §18.3, §20.14: without a length that can be believed, no message can be told from the next one.
#[test]
fn an_impossible_content_length_is_answered_or_closed() {
    only_strowger!("Kamailio waits for a body of 2^31 bytes");
    let server = relay();
    let lengths = [
        "-1",
        "2147483648",
        "4294967296",
        "9223372036854775808",
        "18446744073709551616",
        "0x10",
        "",
        "ten",
        "1 1",
    ];
    for transport in REACHABLE {
        for length in lengths {
            let bad = question(transport.via()).set("Content-Length", length);
            if let Some(answer) = is_survived(&server, transport, bad.to_string().as_bytes()) {
                assert!(matches!(answer.status(), Some(400 | 413 | 513)), "{length}:\n{answer}");
            }
        }
        let twice = question(transport.via()).with("Content-Length", 5);
        let answer = is_survived(&server, transport, twice.to_string().as_bytes());
        assert!(answer.is_none_or(|answer| answer.status() == Some(400)), "twice, and different");
        let none = question(transport.via()).without("Content-Length");
        let answer = is_survived(&server, transport, none.to_string().as_bytes());
        assert!(answer.is_none_or(|answer| matches!(answer.status(), Some(400 | 483))), "none");
    }
}

#[test]
fn a_message_past_the_limit_is_answered_or_closed() {
    let server = relay();
    for transport in REACHABLE {
        let large = question(transport.via()).body("text/plain", "x".repeat(200_000));
        if let Some(answer) = is_survived(&server, transport, large.to_string().as_bytes()) {
            assert!(matches!(answer.status(), Some(400 | 413 | 513)), "{answer}");
        }
        let long = question(transport.via()).with("Subject", "x".repeat(200_000));
        if let Some(answer) = is_survived(&server, transport, long.to_string().as_bytes()) {
            assert!(matches!(answer.status(), Some(400 | 413 | 483 | 513)), "{answer}");
        }
    }
}

#[test]
fn a_header_without_end_costs_its_connection() {
    let server = relay();
    for transport in REACHABLE {
        let mut endless =
            Connection::open(transport, server.address_over(transport), Some(&server.credentials()));
        endless.send("OPTIONS sip:server.invalid SIP/2.0\r\nSubject: ");
        let piece = [b'x'; 10_000];
        let mut sent = 0_usize;
        while endless.ending().is_none() && endless.try_send(&piece).is_ok() {
            sent += piece.len();
            assert!(sent < 100_000_000, "the server takes everything");
        }
        assert_serves(&server);
    }
}

/// A next hop that takes connections and says nothing, then one that answers nonsense.
#[test]
fn a_next_hop_that_speaks_no_sip_harms_nobody() {
    let server = relay();
    let alice = Phone::new(&server, "alice");
    let listener = TcpListener::bind((loopback(), 0)).expect("the address is free");
    let address = listener.local_addr().expect("invariant: the socket is bound");
    for transport in REACHABLE {
        let request =
            alice.request("INVITE", &format!("sip:bob@{address};transport={}", transport.parameter()));
        alice.send(&request);
        let (mut next_hop, _) = listener.accept().expect("the server connects");
        next_hop.write_all(b"220 mail.invalid ESMTP\r\n\r\n").expect("the server takes bytes");
        assert_serves(&server);
        drop(next_hop);
        if transport == Transport::Tls {
            let answer = final_answer(&alice);
            assert!(matches!(answer.status(), Some(408 | 477 | 480 | 500 | 503)), "{answer}");
        }
        assert_serves(&server);
    }
}
