//! The example configurations: each file in `conf/` runs and does what it says.

use std::fs;
use std::process::Command;

use end_to_end::{Dialog, Phone, Server, conf_directory, is_strowger, only_strowger, strowger_binary};

/// Where each of the files is run. A new one needs its test first.
const TESTED: [&str; 5] = ["default.cfg", "redirect.cfg", "registrar.cfg", "ser-2003.cfg", "stateless.cfg"];

#[test]
fn every_example_is_tested_and_checks() {
    let files =
        fs::read_dir(conf_directory()).expect("the examples").map(|entry| entry.expect("an entry").path());
    let mut names: Vec<String> = Vec::new();
    for file in files.filter(|file| file.extension().is_some_and(|extension| extension == "cfg")) {
        names.extend(file.file_name().map(|name| name.to_string_lossy().into_owned()));
        let checked = if is_strowger() {
            Command::new(strowger_binary()).arg("check").arg(&file).output()
        } else if file.ends_with("ser-2003.cfg") {
            continue;
        } else {
            Command::new("kamailio").arg("-c").arg("-f").arg(&file).output()
        };
        let checked = checked.expect("the server starts");
        assert!(checked.status.success(), "{}: {checked:?}", file.display());
    }
    names.sort();
    assert_eq!(names, TESTED);
}

#[test]
fn the_default_relays_only_to_its_own_users() {
    let server = Server::start("default");
    let (alice, stranger) = (Phone::new(&server, "alice"), Phone::new(&server, "stranger"));
    alice.register();
    let foreign = alice.request("MESSAGE", &stranger.contact());
    alice.send(&foreign);
    alice.expect_response(403, &foreign);
    stranger.expect_nothing();
}

#[test]
fn the_default_answers_questions_to_itself() {
    let server = Server::start("default");
    let alice = Phone::new(&server, "alice");
    let domain = format!("sip:{}", server.address().ip());
    for (method, status) in [("OPTIONS", 200), ("MESSAGE", 484)] {
        let request = alice.request(method, &domain);
        alice.send(&request);
        alice.expect_response(status, &request);
    }
}

#[test]
fn the_registrar_takes_registrations_and_nothing_else() {
    let server = Server::start("registrar");
    let (alice, bob) = (Phone::new(&server, "alice"), Phone::new(&server, "bob"));
    bob.register();
    let invite = alice.request("INVITE", &bob.address_of_record());
    alice.send(&invite);
    let refused = alice.expect_response(405, &invite);
    assert_eq!(refused.header("Allow"), "REGISTER", "§8.2.1");
    alice.acknowledge(&invite, &refused);
    alice.expect_nothing();
    bob.expect_nothing();
}

#[test]
fn the_stateless_proxy_answers_nothing_by_itself() {
    let server = Server::start("stateless");
    let (alice, bob) = (Phone::new(&server, "alice"), Phone::new(&server, "bob"));
    bob.register();
    let invite = alice.request("INVITE", &bob.address_of_record());
    alice.send(&invite);
    let first = bob.expect_request("INVITE");
    // No 100, and a retransmission is forwarded like the first copy, with the same branch (§16.11).
    assert_eq!(alice.receive_bytes(end_to_end::QUIET), None);
    alice.send(&invite);
    bob.expect_again(&first);
}

#[test]
fn the_redirect_server_forwards_nothing() {
    let server = Server::start("redirect");
    let (alice, bob) = (Phone::new(&server, "alice"), Phone::new(&server, "bob"));
    bob.register();
    for method in ["INVITE", "MESSAGE"] {
        let request = alice.request(method, &server.uri("bob"));
        alice.send(&request);
        let moved = alice.expect_response(302, &request);
        assert_eq!(moved.uri_of("Contact"), bob.contact());
    }
    bob.expect_nothing();
}

#[test]
fn the_configuration_of_the_thesis_runs_as_it_was_printed() {
    only_strowger!("the configuration is of 2003; Kamailio's language has moved on");
    let server = Server::start("ser-2003");
    let (alice, bob) = (Phone::new(&server, "alice"), Phone::new(&server, "bob"));
    alice.register();
    bob.register();
    let (callers, callees) = Dialog::establish(&alice, &bob);
    callers.exchange(&alice, &bob, "INVITE");
    callees.exchange(&bob, &alice, "INVITE");
    callees.exchange(&bob, &alice, "BYE");

    let invite = alice.request("INVITE", &server.uri("nobody"));
    alice.send(&invite);
    let refused = alice.expect_response(404, &invite);
    alice.acknowledge(&invite, &refused);
    alice.expect_nothing();

    let tired = alice.request("MESSAGE", &server.uri("bob")).set("Max-Forwards", 0);
    alice.send(&tired);
    alice.expect_response(483, &tired);

    // Not for us: relayed where the Request-URI says.
    alice.send(&alice.request("MESSAGE", &bob.contact()));
    bob.expect_request("MESSAGE");
}
