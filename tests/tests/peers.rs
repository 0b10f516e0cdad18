//! Programs that others wrote, as they come from Debian: sipsak and baresip.

use end_to_end::{Baresip, Server, sipsak};

/// Runs sipsak, which must be content.
fn content(arguments: &[&str]) -> String {
    let output = sipsak(arguments);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "sipsak {arguments:?}: {}\n{said}", output.status);
    said
}

#[test]
fn sipsak_pings_the_server() {
    let server = Server::start("default");
    let said = content(&["-vv", "-s", &format!("sip:{}", server.address().ip())]);
    assert!(said.contains("SIP/2.0 200"), "{said}");
}

#[test]
fn sipsak_registers_a_contact() {
    let server = Server::start("default");
    let contact = "sip:bob@127.0.0.1:5099";
    content(&["-U", "-C", contact, "-x", "300", "-s", &server.uri("bob")]);
    // Asked with an empty contact, the registrar tells.
    let said = content(&["-U", "-C", "empty", "-vvv", "-s", &server.uri("bob")]);
    assert!(said.contains(contact), "{said}");
}

#[test]
fn sipsak_runs_its_user_location_tests() {
    let server = Server::start("default");
    let said = content(&["-U", "-v", "-s", &server.uri("user")]);
    assert!(said.contains("All usrloc tests completed successful"), "{said}");
}

#[test]
fn sipsak_gives_up_on_an_unknown_user() {
    let server = Server::start("default");
    let output = sipsak(&["-vv", "-s", &server.uri("nobody")]);
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).contains("SIP/2.0 404"), "{output:?}");
}

#[test]
fn two_softphones_talk_to_each_other() {
    for configuration in ["default", "stateless"] {
        let server = Server::start(configuration);
        let bob = Baresip::start(&server, "bob");
        let alice = Baresip::start(&server, "alice");
        for phone in [&bob, &alice] {
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
}
