//! The command line of `strowger`: what it says when it cannot start, and how it stops.

use std::net::UdpSocket;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use end_to_end::{
    Dialog, PATIENCE, Phone, Scratch, Server, Signal, Start, loopback, only_strowger, signal,
    strowger_binary, wait_for_exit,
};

/// Runs strowger, which must end by itself.
fn strowger(arguments: &[&str]) -> Output {
    // What it keeps goes there and not where a server of this machine has its own.
    let state = Scratch::new("state");
    let child = spawn(arguments, &state);
    let output = finished(child);
    output.unwrap_or_else(|| panic!("strowger {arguments:?} does not end"))
}

fn spawn(arguments: &[&str], state: &Scratch) -> Child {
    let mut command = Command::new(strowger_binary());
    command
        .args(arguments)
        .env("STATE_DIRECTORY", state.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.spawn().expect("strowger starts")
}

fn finished(mut child: Child) -> Option<Output> {
    let ended = wait_for_exit(&mut child, PATIENCE).is_some();
    if !ended {
        let _ = child.kill();
    }
    let output = child.wait_with_output().expect("a child of ours can be waited for");
    ended.then_some(output)
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// It ended with this exit code and one line on standard error, which mentions these.
fn assert_one_line(output: &Output, code: i32, mentions: &[&str]) {
    let said = errors(output);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert_eq!(said.trim_end().lines().count(), 1, "{said}");
    for mention in mentions {
        assert!(said.contains(mention), "{mention} is not in: {said}");
    }
}

#[test]
fn a_busy_port_is_named() {
    only_strowger!("the command line is ours");
    let address = format!("{}:5060", loopback());
    let _holder = UdpSocket::bind(&address).expect("an address of our own");
    let output = strowger(&["-l", &format!("udp:{address}")]);
    assert_one_line(&output, 1, &[&address, "in use"]);
}

#[test]
fn a_second_server_does_not_share_the_port_of_the_first() {
    only_strowger!("the command line is ours");
    for shards in ["1", "2"] {
        let first = Start::configuration("default").arguments(&["--shards", shards]).spawn();
        let address = first.address().to_string();
        let output = strowger(&["-l", &format!("udp:{address}"), "--shards", shards]);
        assert_one_line(&output, 1, &[&address, "in use"]);
        assert!(first.is_answering());
    }
}

#[test]
fn an_address_of_another_machine_is_named() {
    only_strowger!("the command line is ours");
    let output = strowger(&["-l", "udp:192.0.2.1:5060"]);
    assert_one_line(&output, 1, &["192.0.2.1:5060"]);
}

#[test]
fn an_unknown_option_is_named() {
    only_strowger!("the command line is ours");
    for arguments in
        [["--no-such-option"].as_slice(), &["run", "--no-such-option"], &["check", "--no-such-option"]]
    {
        assert_one_line(&strowger(arguments), 1, &["--no-such-option", "--help"]);
    }
}

#[test]
fn a_value_that_makes_no_sense_is_named() {
    only_strowger!("the command line is ours");
    assert_one_line(&strowger(&["--shards", "many"]), 1, &["many", "--shards"]);
    assert_one_line(&strowger(&["--drain-timeout", "soon"]), 1, &["soon", "--drain-timeout"]);
    assert_one_line(&strowger(&["-l", "sctp:nowhere"]), 1, &["sctp:nowhere"]);
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    only_strowger!("the command line is ours");
    for arguments in
        [["run", "/no/such/file.cfg"], ["-f", "/no/such/file.cfg"], ["check", "/no/such/file.cfg"]]
    {
        assert_one_line(&strowger(&arguments), 1, &["/no/such/file.cfg"]);
    }
    assert_one_line(&strowger(&["run", "/"]), 1, &["/"]);
}

#[test]
fn a_configuration_that_does_not_check_is_explained() {
    only_strowger!("the command line is ours");
    let scratch = Scratch::new("wrong");
    let text = "loadmodule \"tm.so\"\nloadmodule \"sl.so\"\nrequest_route {\n\tt_rely();\n\tsl_send_reply(\"404\");\n}\n";
    let file = scratch.write("wrong.cfg", text).display().to_string();
    for arguments in [["check", file.as_str()], ["run", &file], ["-f", &file]] {
        let output = strowger(&arguments);
        let said = errors(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        for wanted in [&format!("{file}:4:2"), "t_rely", "t_relay", "^", &format!("{file}:5:2")] {
            assert!(said.contains(wanted), "{wanted} is not in:\n{said}");
        }
    }
}

#[test]
fn a_configuration_that_checks_is_silent_about_errors() {
    only_strowger!("the command line is ours");
    let output =
        strowger(&["check", &end_to_end::conf_directory().join("default.cfg").display().to_string()]);
    assert!(output.status.success(), "{}", errors(&output));
    assert!(!errors(&output).contains("error"), "{}", errors(&output));
}

#[test]
fn init_writes_a_configuration_that_checks_and_is_not_overwritten() {
    only_strowger!("the command line is ours");
    let scratch = Scratch::new("init");
    let file = scratch.file("strowger.cfg").display().to_string();
    let written = strowger(&["init", &file]);
    assert!(written.status.success(), "{}", errors(&written));
    let checked = strowger(&["check", &file]);
    assert!(checked.status.success(), "{}", errors(&checked));
    assert_one_line(&strowger(&["init", &file]), 1, &[&file]);
}

#[test]
fn without_a_file_the_embedded_configuration_runs() {
    only_strowger!("the command line is ours");
    let server = Start::configuration("default").embedded().spawn();
    let (alice, bob) = (Phone::new(&server, "alice"), Phone::new(&server, "bob"));
    bob.register();
    let (callers, _) = Dialog::establish(&alice, &bob);
    callers.exchange(&alice, &bob, "BYE");
    let said = server.log();
    assert!(said.contains(&server.address().to_string()), "where it listens:\n{said}");
    assert!(said.contains("strowger init"), "where its configuration is:\n{said}");
}

#[test]
fn an_idle_server_stops_at_once_when_asked() {
    only_strowger!("the command line is ours");
    for with in [Signal::Terminate, Signal::Interrupt] {
        let mut server = Start::configuration("default").arguments(&["--drain-timeout", "60s"]).spawn();
        // The question whether it was ready left a transaction at most, and not one of an INVITE.
        server.stop(with);
        let status = server.wait_for_exit(PATIENCE);
        assert!(status.is_some_and(|status| status.success()), "{status:?}");
    }
}

/// A call that rings at bob when the server is told to stop.
fn told_to_stop(server: &mut Server) -> (Phone, Phone, end_to_end::Message, end_to_end::Message) {
    let (alice, bob) = (Phone::new(server, "alice"), Phone::new(server, "bob"));
    bob.register();
    let invite = alice.request("INVITE", &bob.address_of_record());
    alice.send(&invite);
    let arrived = bob.expect_request("INVITE");
    bob.answer(&arrived, 180, "Ringing");
    alice.expect_response(180, &invite);
    server.stop(Signal::Terminate);
    assert!(
        server.wait_for_exit(Duration::from_millis(500)).is_none(),
        "it must not leave a call unanswered"
    );
    (alice, bob, invite, arrived)
}

#[test]
fn a_draining_server_still_answers_the_call_in_flight() {
    only_strowger!("the command line is ours");
    let mut server = Start::configuration("default").arguments(&["--drain-timeout", "4s"]).spawn();
    let (alice, bob, invite, arrived) = told_to_stop(&mut server);
    bob.accept(&arrived);
    alice.expect_response(200, &invite);
    let status = server.wait_for_exit(Duration::from_secs(4) + PATIENCE);
    assert!(status.is_some_and(|status| status.success()), "{status:?}");
}

#[test]
fn a_drain_ends_after_its_time() {
    only_strowger!("the command line is ours");
    let mut server = Start::configuration("default").arguments(&["--drain-timeout", "1s"]).spawn();
    let _unanswered = told_to_stop(&mut server);
    let status = server.wait_for_exit(PATIENCE);
    assert!(status.is_some_and(|status| status.success()), "{status:?}");
}

#[test]
fn a_second_signal_stops_at_once() {
    only_strowger!("the command line is ours");
    let mut server = Start::configuration("default").arguments(&["--drain-timeout", "60s"]).spawn();
    let _unanswered = told_to_stop(&mut server);
    let asked = Instant::now();
    server.stop(Signal::Terminate);
    let status = server.wait_for_exit(PATIENCE);
    assert!(status.is_some_and(|status| status.success()), "{status:?}");
    assert!(asked.elapsed() < PATIENCE);
}

#[test]
fn the_help_names_every_option() {
    only_strowger!("the command line is ours");
    let help = strowger(&["--help"]);
    assert!(help.status.success());
    let text = String::from_utf8_lossy(&help.stdout).into_owned();
    for option in ["--shards", "--drain-timeout", "--listen", "check", "init"] {
        assert!(text.contains(option), "{option} is not in:\n{text}");
    }
    let version = strowger(&["--version"]);
    assert!(String::from_utf8_lossy(&version.stdout).starts_with("strowger "), "{version:?}");
}

#[test]
fn a_configuration_on_standard_input_runs() {
    only_strowger!("the command line is ours");
    let address = format!("{}:5060", loopback());
    let file = std::fs::File::open(end_to_end::conf_directory().join("default.cfg")).expect("the example");
    let state = Scratch::new("state");
    let mut command = Command::new(strowger_binary());
    command.env("STATE_DIRECTORY", state.path());
    command.args(["run", "-", "-l", &format!("udp:{address}")]).stdin(file);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("strowger starts");
    let alice = Phone::between(address.parse().expect("an address"), (loopback(), 0).into(), "alice");
    let register = alice.register_request();
    let deadline = Instant::now() + PATIENCE;
    let registered = loop {
        alice.send(&register);
        match alice.receive(Duration::from_millis(100)) {
            Some(answer) => break answer.status() == Some(200),
            None if Instant::now() > deadline => break false,
            None => {}
        }
    };
    signal(&child, Signal::Terminate);
    let status = wait_for_exit(&mut child, PATIENCE);
    let _ = child.kill();
    assert!(registered, "no answer at {address}");
    assert!(status.is_some_and(|status| status.success()), "{status:?}");
}
