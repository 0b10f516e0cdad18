//! The example configurations: each file in `conf/` runs and does what it says.

use std::fs;
use std::process::Command;
use std::time::Instant;

use end_to_end::{
    Authority, Connection, Credentials, Dialog, PATIENCE, Phone, Scratch, Server, Signal, Transport,
    conf_directory, is_strowger, loopback, only_strowger, signal, strowger_binary, wait_for_exit,
};

/// Where each of the files is run. A new one needs its test first.
const TESTED: [&str; 6] =
    ["default.cfg", "edge.cfg", "redirect.cfg", "registrar.cfg", "ser-2003.cfg", "stateless.cfg"];
/// Profiles of TLS, which configurations name.
const PROFILES: [&str; 2] = ["edge-tls.cfg", "tls.cfg"];

#[test]
fn every_example_is_tested_and_checks() {
    let files =
        fs::read_dir(conf_directory()).expect("the examples").map(|entry| entry.expect("an entry").path());
    let mut names: Vec<String> = Vec::new();
    for file in files.filter(|file| file.extension().is_some_and(|extension| extension == "cfg")) {
        let name = file.file_name().expect("a file has a name").to_string_lossy().into_owned();
        if PROFILES.contains(&name.as_str()) {
            continue;
        }
        names.push(name);
        // It needs certificates: `the_edge_serves_as_its_header_says`.
        if file.ends_with("edge.cfg") {
            continue;
        }
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

/// The commands that the file's header names, to the letter, in a directory of their own.
#[test]
fn the_edge_serves_as_its_header_says() {
    only_strowger!("lines of it are ours");
    let scratch = Scratch::new("edge");
    let ip = loopback();
    for name in ["edge.cfg", "edge-tls.cfg"] {
        let text = fs::read_to_string(conf_directory().join(name)).expect("the example");
        scratch.write(name, &text.replace("127.0.0.1", &ip.to_string()));
    }
    let strowger = |arguments: &[&str]| {
        let output = Command::new(strowger_binary()).args(arguments).current_dir(scratch.path()).output();
        let output = output.expect("the server starts");
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    };
    let ours = ip.to_string();
    strowger(&["cert", "ca", "--out", "ca"]);
    strowger(&[
        "cert",
        "server",
        "--ca",
        "ca",
        "--name",
        "edge.example.com",
        "--name",
        "localhost",
        "--ip",
        &ours,
        "--out",
        ".",
    ]);
    strowger(&["cert", "client", "--ca", "ca", "--name", "edge.example.com", "--out", "."]);
    strowger(&["check", "edge.cfg"]);
    let mut edge = Command::new(strowger_binary());
    edge.env("STATE_DIRECTORY", scratch.file("state"));
    let mut edge =
        edge.args(["run", "edge.cfg"]).current_dir(scratch.path()).spawn().expect("the server starts");
    let phones = Credentials::trusting(&Authority::made_elsewhere(scratch.file("ca/ca.pem")));
    let served = [
        (Transport::Tcp, 5060, None),
        (Transport::Tls, 5061, Some(&phones)),
        (Transport::Wss, 8443, Some(&phones)),
    ];
    for (transport, port, credentials) in served {
        let until = Instant::now() + PATIENCE;
        let mut connection = loop {
            match Connection::attempt(transport, None, (ip, port).into(), credentials) {
                Ok(connection) => break connection,
                Err(error) => assert!(Instant::now() < until, "{transport:?}: {error}"),
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        };
        let request = format!(
            "OPTIONS sip:{ip} SIP/2.0\r\nVia: SIP/2.0/{} phone.invalid;branch=z9hG4bK{port}\r\nMax-Forwards: 70\r\n\
             From: <sip:alice@{ip}>;tag=1\r\nTo: <sip:{ip}>\r\nCall-ID: {port}\r\nCSeq: 1 OPTIONS\r\n\
             Content-Length: 0\r\n\r\n",
            transport.via()
        );
        connection.send_message(request);
        connection.expect_response(200);
    }
    signal(&edge, Signal::Terminate);
    let ended = wait_for_exit(&mut edge, PATIENCE).expect("it ends");
    assert!(ended.success(), "{ended}");
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
