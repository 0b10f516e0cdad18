//! Requests within a call, from either side, along the recorded route (RFC 3261 §12, §16.12).

use end_to_end::{Dialog, Phone, Server};

/// The configurations whose proxies stay on the path of a call.
const RECORD_ROUTING: [&str; 2] = ["default", "stateless"];

fn phones(server: &Server) -> (Phone, Phone) {
    let (alice, bob) = (Phone::new(server, "alice"), Phone::new(server, "bob"));
    alice.register();
    bob.register();
    (alice, bob)
}

#[test]
fn the_caller_changes_and_ends_the_call() {
    for configuration in RECORD_ROUTING {
        let server = Server::start(configuration);
        let (alice, bob) = phones(&server);
        let (ours, _) = Dialog::establish(&alice, &bob);
        ours.exchange(&alice, &bob, "INVITE");
        ours.exchange(&alice, &bob, "BYE");
    }
}

#[test]
fn the_callee_changes_and_ends_the_call() {
    for configuration in RECORD_ROUTING {
        let server = Server::start(configuration);
        let (alice, bob) = phones(&server);
        let (_, ours) = Dialog::establish(&alice, &bob);
        ours.exchange(&bob, &alice, "INVITE");
        ours.exchange(&bob, &alice, "BYE");
    }
}

#[test]
fn the_server_puts_itself_on_the_path() {
    let server = Server::start("default");
    let (alice, bob) = phones(&server);
    alice.send(&alice.request("INVITE", &bob.address_of_record()));
    let arrived = bob.expect_request("INVITE");
    let recorded = arrived.all("Record-Route");
    assert_eq!(recorded.len(), 1, "{arrived}");
    assert!(recorded[0].contains(&server.address().ip().to_string()), "{arrived}");
    assert!(recorded[0].contains(";lr"), "§16.6 item 4 asks for lr:\n{arrived}");
    assert_eq!(arrived.header("Max-Forwards"), "69");
    assert_eq!(arrived.all("Via").len(), 2, "{arrived}");
}

#[test]
fn a_200_is_repeated_until_the_ack_gets_through() {
    for configuration in RECORD_ROUTING {
        let server = Server::start(configuration);
        let (alice, bob) = phones(&server);
        let invite = alice.request("INVITE", &bob.address_of_record());
        alice.send(&invite);
        let arrived = bob.expect_request("INVITE");
        let ok = bob.accept(&arrived);
        let answer = alice.expect_response(200, &invite);
        let ours = Dialog::of_caller(&invite, &answer);
        // The ACK is lost (here: not sent), so the callee repeats its 200 (§13.3.1.4), twice.
        for _ in 0..2 {
            bob.send(&ok);
            alice.expect_again(&answer);
        }
        alice.send(&ours.ack(&alice));
        bob.expect_request("ACK");
        alice.expect_nothing();
        bob.expect_nothing();
    }
}

#[test]
fn a_retransmitted_invite_is_not_forwarded_twice() {
    let server = Server::start("default");
    let (alice, bob) = phones(&server);
    let invite = alice.request("INVITE", &bob.address_of_record());
    alice.send(&invite);
    let arrived = bob.expect_request("INVITE");
    let ringing = bob.answer(&arrived, 180, "Ringing");
    assert_eq!(ringing.status(), Some(180));
    let heard = alice.expect_response(180, &invite);
    // The server transaction answers a copy with the latest provisional response (§17.2.1).
    alice.send(&invite);
    alice.expect_again(&heard);
    bob.expect_nothing();
}

#[test]
fn a_request_for_an_unknown_dialog_is_refused() {
    let server = Server::start("default");
    let (alice, bob) = phones(&server);
    let stray = alice.request("BYE", &bob.address_of_record());
    let stray = stray.clone().set("To", format!("{};tag=unknown", stray.header("To")));
    alice.send(&stray);
    alice.expect_response(404, &stray);
    bob.expect_nothing();
}
