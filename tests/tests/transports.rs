//! Calls over every transport (RFC 3261 §18, RFC 7118), between phones of the tests and between programs that others
//! wrote.

use end_to_end::{Baresip, Browser, Dialog, Linphone, Phone, Server, Sipp, Start, Transport, loopback_v6};

/// A registrar and proxy that listens over every transport.
fn everywhere() -> Server {
    Start::configuration("transports").over(&Transport::STREAMS).spawn()
}

/// A registered phone over each transport.
fn one_over_each(server: &Server, name: &str) -> Vec<Phone> {
    let phones = Transport::ALL.map(|transport| {
        let phone = Phone::over(transport, server, &format!("{name}-{}", transport.via().to_lowercase()));
        phone.register();
        phone
    });
    phones.into()
}

#[test]
fn a_call_passes_between_every_two_transports() {
    let server = everywhere();
    let (callers, callees) = (one_over_each(&server, "caller"), one_over_each(&server, "callee"));
    for caller in &callers {
        for callee in &callees {
            let (callers_end, callees_end) = Dialog::establish(caller, callee);
            callers_end.exchange(caller, callee, "INVITE");
            callees_end.exchange(callee, caller, "INVITE");
            callers_end.exchange(caller, callee, "BYE");
        }
    }
}

#[test]
fn a_ringing_call_is_cancelled_over_every_transport() {
    let server = everywhere();
    let (callers, callees) = (one_over_each(&server, "caller"), one_over_each(&server, "callee"));
    for (caller, callee) in callers.iter().zip(callees.iter().rev()) {
        let invite = caller.request("INVITE", &callee.address_of_record());
        caller.send(&invite);
        let arrived = callee.expect_request("INVITE");
        callee.answer(&arrived, 180, "Ringing");
        caller.expect_response(180, &invite);
        let cancel = caller.cancel(&invite);
        caller.expect_response(200, &cancel);
        let cancelled = callee.expect_request("CANCEL");
        callee.answer(&cancelled, 200, "OK");
        callee.answer(&arrived, 487, "Request Terminated");
        callee.expect_request("ACK");
        let refused = caller.expect_response(487, &invite);
        caller.acknowledge(&invite, &refused);
    }
}

/// RFC 3261 §17.1.1.2, §17.2.1: over a reliable transport nothing is sent twice. Phones skip copies, so the server is
/// given a request that nobody answers, and a final response that nobody acknowledges.
#[test]
fn nothing_is_repeated_over_a_reliable_transport() {
    let server = everywhere();
    for transport in Transport::STREAMS {
        let (caller, callee) = (Phone::over(transport, &server, "a"), Phone::over(transport, &server, "b"));
        callee.register();
        let invite = caller.request("INVITE", &callee.address_of_record());
        caller.send(&invite);
        let arrived = callee.expect_request("INVITE");
        assert_eq!(callee.receive_bytes(end_to_end::QUIET), None, "the INVITE came again");
        callee.answer(&arrived, 486, "Busy Here");
        callee.expect_request("ACK");
        caller.expect_response(486, &invite);
        assert_eq!(caller.receive_bytes(end_to_end::QUIET), None, "the 486 came again");
    }
}

/// RFC 3261 §18.1.1, §18.4: Via names the transport that the message goes over, each Record-Route that of its side.
#[test]
fn via_and_record_route_name_the_transport_of_their_side() {
    let server = everywhere();
    let (callers, callees) = (one_over_each(&server, "caller"), one_over_each(&server, "callee"));
    for caller in &callers {
        for callee in &callees {
            let invite = caller.request("INVITE", &callee.address_of_record());
            caller.send(&invite);
            let arrived = callee.expect_request("INVITE");
            let via = arrived.all("Via")[0];
            assert!(via.starts_with(&format!("SIP/2.0/{} ", callee.transport().via())), "{arrived}");
            let recorded = arrived.all("Record-Route");
            // One for both sides will do where nothing tells them apart.
            let crosses = caller.transport() != callee.transport();
            assert!(recorded.len() == 2 || recorded.len() == 1 && !crosses, "{arrived}");
            assert!(recorded.len() == 1 || recorded.iter().all(|route| route.contains("r2=on")), "{arrived}");
            let (first, last) = (recorded[0], recorded[recorded.len() - 1]);
            assert!(is_route_over(first, callee.transport()), "the callee's side first:\n{arrived}");
            assert!(is_route_over(last, caller.transport()), "{arrived}");
            callee.answer(&arrived, 486, "Busy Here");
            callee.expect_request("ACK");
            let refused = caller.expect_response(486, &invite);
            caller.acknowledge(&invite, &refused);
        }
    }
}

/// UDP goes without saying (RFC 3261 §19.1.2), and so does TLS where the scheme is sips.
fn is_route_over(route: &str, transport: Transport) -> bool {
    let named = route.contains(&format!("transport={}", transport.parameter()));
    named || transport == Transport::Udp && !route.contains("transport=")
}

#[test]
fn a_call_passes_between_ipv6_and_ipv4_over_streams() {
    let (tcp, tls) = (loopback_v6(), loopback_v6());
    let server = Start::configuration("transports")
        .over(&[Transport::Tcp, Transport::Tls])
        .over_at(Transport::Tcp, tcp)
        .over_at(Transport::Tls, tls)
        .spawn();
    let local = "[::1]:0".parse().expect("an address");
    for (over_v6, over_v4) in [(Transport::Tcp, Transport::Tls), (Transport::Tls, Transport::Tcp)] {
        let alice = Phone::over_at(over_v6, &server, "alice", local);
        let bob = Phone::over(over_v4, &server, "bob");
        alice.register();
        bob.register();
        let (callers, callees) = Dialog::establish(&alice, &bob);
        callers.exchange(&alice, &bob, "INVITE");
        callees.exchange(&bob, &alice, "BYE");
        let (callers, callees) = Dialog::establish(&bob, &alice);
        callees.exchange(&alice, &bob, "INVITE");
        callers.exchange(&bob, &alice, "BYE");
    }
}

/// Calls between two SIPp over TCP: `t1` has one connection for all calls, `tn` one for each.
fn sipp_over_tcp(mode: &str) {
    const CALLS: u32 = 50;
    let server = everywhere();
    let callee = Sipp::new("callee", CALLS, &server).user("bob").over_tcp("t1");
    let contact = callee.address().to_string();
    Phone::new(&server, "bob").register_contact(format!("<sip:bob@{contact};transport=tcp>"));
    let callee = callee.key("contact", &format!("{contact};transport=tcp")).spawn();
    Sipp::new("caller", CALLS, &server).user("bob").rate(CALLS).over_tcp(mode).run();
    callee.finish();
}

#[test]
fn sipp_calls_sipp_over_one_connection() {
    sipp_over_tcp("t1");
}

#[test]
fn sipp_calls_sipp_over_a_connection_for_each_call() {
    sipp_over_tcp("tn");
}

/// One baresip calls another; they hear each other, and the callee hangs up.
fn baresip_calls_baresip(caller: Transport, callee: Transport) {
    let server = everywhere();
    let (alice, bob) = (Baresip::over(caller, &server, "alice"), Baresip::over(callee, &server, "bob"));
    for phone in [&alice, &bob] {
        phone.expect("200 OK");
    }
    alice.command("dial", &server.uri("bob"));
    for phone in [&alice, &bob] {
        phone.expect("Call established");
    }
    alice.expect("incoming rtp for 'audio' established");
    bob.command("hangup", "");
    alice.expect("session closed");
}

#[test]
fn baresip_over_tcp_calls_baresip_over_udp() {
    baresip_calls_baresip(Transport::Tcp, Transport::Udp);
}

#[test]
fn baresip_over_udp_calls_baresip_over_tls() {
    baresip_calls_baresip(Transport::Udp, Transport::Tls);
}

#[test]
fn baresip_over_tls_calls_baresip_over_tcp() {
    baresip_calls_baresip(Transport::Tls, Transport::Tcp);
}

/// Linphone calls baresip over one transport, and is called by it over another.
fn linphone_and_baresip(linphone: Transport, baresip: Transport) {
    let server = everywhere();
    let mut alice = Linphone::over(linphone, &server, "alice");
    let bob = Baresip::over(baresip, &server, "bob");
    bob.expect("200 OK");
    alice.expect_registered();
    alice.command(&format!("call {}", server.uri("bob")));
    bob.expect("Call established");
    alice.expect("connected.");
    alice.expect("Media streams established");
    alice.command("terminate");
    bob.expect("session closed");
}

#[test]
fn linphone_over_udp_calls_baresip_over_tls() {
    linphone_and_baresip(Transport::Udp, Transport::Tls);
}

#[test]
fn linphone_over_tcp_calls_baresip_over_udp() {
    linphone_and_baresip(Transport::Tcp, Transport::Udp);
}

#[test]
fn linphone_over_tls_calls_baresip_over_tcp() {
    linphone_and_baresip(Transport::Tls, Transport::Tcp);
}

#[test]
fn baresip_calls_linphone_over_tls() {
    let server = everywhere();
    let mut alice = Linphone::over(Transport::Tls, &server, "alice");
    let bob = Baresip::start(&server, "bob");
    bob.expect("200 OK");
    alice.expect_registered();
    bob.command("dial", &server.uri("alice"));
    bob.expect("Call established");
    alice.expect("Media streams established");
    bob.command("hangup", "");
    alice.expect("ended");
}

/// Browsers over secure WebSocket and a softphone over UDP, with encrypted media between them; then each other.
#[test]
fn browsers_call_a_softphone_and_each_other() {
    let server = everywhere();
    let bob = Baresip::for_browsers(&server, "bob");
    bob.expect("200 OK");
    let mut browser = Browser::start(&server);
    for (calls, library, user) in [(1, "sip.js", "alice"), (2, "jssip", "carol")] {
        browser.open(library, user);
        browser.command(&format!("{user} call {}", server.uri("bob")));
        browser.expect(&format!("{user}: established"));
        browser.expect(&format!("{user}: media"));
        bob.expect_times("Call established", calls);
        browser.command(&format!("{user} hangup"));
        browser.expect(&format!("{user}: ended"));
        bob.expect_times("session closed", calls);
    }
    bob.command("dial", &server.uri("carol"));
    browser.expect("carol: ringing");
    browser.expect_times("carol: established", 2);
    browser.expect_times("carol: media", 2);
    bob.command("hangup", "");
    browser.expect_times("carol: ended", 2);
    browser.command(&format!("carol call {}", server.uri("alice")));
    browser.expect("alice: ringing");
    for user in ["alice: media", "carol: media"] {
        browser.expect_times(user, if user.starts_with("alice") { 2 } else { 3 });
    }
    browser.command("alice hangup");
    browser.expect_times("alice: ended", 2);
    browser.expect_times("carol: ended", 3);
}
