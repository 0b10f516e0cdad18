//! Calls that end before they begin: busy, cancelled, not found (RFC 3261 §9, §16.7, §16.10, §17.2.1).

use end_to_end::{Cut, Message, Phone, Server, Start, Transport, only_strowger};

fn ringing_call(server: &Server) -> (Phone, Phone, Message, Message) {
    let (alice, bob) = (Phone::new(server, "alice"), Phone::new(server, "bob"));
    bob.register();
    let invite = alice.request("INVITE", &bob.address_of_record());
    alice.send(&invite);
    let arrived = bob.expect_request("INVITE");
    bob.answer(&arrived, 180, "Ringing");
    alice.expect_response(180, &invite);
    (alice, bob, invite, arrived)
}

#[test]
fn a_cancel_is_answered_and_passed_on() {
    let server = Server::start("default");
    let (alice, bob, invite, arrived) = ringing_call(&server);
    let cancel = alice.cancel(&invite);
    alice.expect_response(200, &cancel);
    let cancelled = bob.expect_request("CANCEL");
    assert_eq!(cancelled.uri(), arrived.uri(), "§9.1");
    assert_eq!(cancelled.all("Via"), vec![arrived.all("Via")[0]], "one Via, the INVITE's topmost (§9.1)");
    assert_eq!(cancelled.header("CSeq"), "1 CANCEL");
    bob.answer(&cancelled, 200, "OK");
    bob.answer(&arrived, 487, "Request Terminated");
    bob.expect_request("ACK");
    let refused = alice.expect_response(487, &invite);
    alice.acknowledge(&invite, &refused);
    alice.expect_nothing();
    bob.expect_nothing();
}

/// §16.10: whoever does not know the INVITE passes its CANCEL on, without state.
#[test]
fn a_cancel_of_nothing_is_passed_on() {
    let server = Server::start("default");
    let (alice, bob) = (Phone::new(&server, "alice"), Phone::new(&server, "bob"));
    bob.register();
    let cancel = alice.cancel(&alice.request("INVITE", &bob.address_of_record()));
    let arrived = bob.expect_request("CANCEL");
    bob.answer(&arrived, 481, "Call/Transaction Does Not Exist");
    alice.expect_response(481, &cancel);
    bob.expect_nothing();
}

/// RFC 5923 §8.1: where the connection of an INVITE has gone, its CANCEL opens another, and so does the ACK of its failure.
#[test]
fn a_cancel_and_the_ack_of_a_failure_open_a_connection_where_theirs_has_gone() {
    only_strowger!("Kamailio loses what it writes to a connection that has just been reset");
    let transports = [Transport::Tcp, Transport::Tls];
    let server = Start::configuration("streams").over(&transports).spawn();
    for (transport, how) in transports.into_iter().flat_map(|it| [(it, Cut::Close), (it, Cut::Reset)]) {
        let (alice, bob) = (Phone::over(transport, &server, "alice"), Phone::over(transport, &server, "bob"));
        let lose_connections = || {
            bob.cut(how);
            bob.reconnect();
        };
        let invite = alice.request("INVITE", &bob.contact());
        alice.send(&invite);
        let arrived = bob.expect_request("INVITE");
        bob.answer(&arrived, 180, "Ringing");
        alice.expect_response(180, &invite);
        lose_connections();
        let cancel = alice.cancel(&invite);
        alice.expect_response(200, &cancel);
        let cancelled = bob.expect_request("CANCEL");
        assert_eq!(bob.opened_by_server(), 1, "{transport:?} {how:?}: since the cut");
        bob.answer(&cancelled, 200, "OK");
        // The failure comes by a connection of the phone's own, and the one that the CANCEL took goes as well.
        lose_connections();
        bob.answer(&arrived, 487, "Request Terminated");
        bob.expect_request("ACK");
        assert_eq!(bob.opened_by_server(), 1, "{transport:?} {how:?}: since the cut");
        let refused = alice.expect_response(487, &invite);
        alice.acknowledge(&invite, &refused);
    }
}

#[test]
fn a_cancel_after_the_answer_changes_nothing() {
    let server = Server::start("default");
    let (alice, bob, invite, arrived) = ringing_call(&server);
    bob.accept(&arrived);
    alice.expect_response(200, &invite);
    let cancel = alice.cancel(&invite);
    alice.expect_response(200, &cancel);
    bob.expect_nothing();
}

#[test]
fn busy_is_one_final_answer_and_its_acks_are_hop_by_hop() {
    let server = Server::start("default");
    let (alice, bob, invite, arrived) = ringing_call(&server);
    bob.answer(&arrived, 486, "Busy Here");
    let ack = bob.expect_request("ACK");
    assert_eq!(ack.all("Via").len(), 1, "the server's own ACK (§17.1.1.3):\n{ack}");
    let refused = alice.expect_response(486, &invite);
    // Until it is acknowledged it is repeated (Timer G, §17.2.1), and its ACK goes no further.
    alice.expect_again(&refused);
    alice.acknowledge(&invite, &refused);
    alice.expect_nothing();
    bob.expect_nothing();
}

#[test]
fn a_repeated_486_is_acknowledged_again_and_not_passed_on() {
    let server = Server::start("default");
    let (alice, bob, invite, arrived) = ringing_call(&server);
    let busy = bob.answer(&arrived, 486, "Busy Here");
    let ack = bob.expect_request("ACK");
    let refused = alice.expect_response(486, &invite);
    alice.acknowledge(&invite, &refused);
    // As if the ACK had been lost (§17.1.1.2).
    bob.send(&busy);
    bob.expect_again(&ack);
    alice.expect_nothing();
}

#[test]
fn an_unknown_user_is_not_found() {
    for configuration in ["default", "stateless", "redirect"] {
        let server = Server::start(configuration);
        let alice = Phone::new(&server, "alice");
        for method in ["INVITE", "OPTIONS", "MESSAGE", "SUBSCRIBE"] {
            let request = alice.request(method, &server.uri("nobody"));
            alice.send(&request);
            let answer = alice.expect_response(404, &request);
            assert!(answer.parameter("To", "tag").is_some(), "§8.2.6.2:\n{answer}");
            if method == "INVITE" {
                alice.acknowledge(&request, &answer);
            }
        }
        alice.expect_nothing();
    }
}

#[test]
fn a_user_who_logged_out_is_not_found() {
    let server = Server::start("default");
    let (alice, bob) = (Phone::new(&server, "alice"), Phone::new(&server, "bob"));
    bob.register();
    let logout = bob.register_request().set("Expires", 0);
    bob.send(&logout);
    bob.expect_response(200, &logout);
    let invite = alice.request("INVITE", &bob.address_of_record());
    alice.send(&invite);
    alice.expect_response(404, &invite);
    bob.expect_nothing();
}
