//! Against `openssl s_client`, somebody else's TLS; skipped where it is not installed.

use super::*;
use std::process::{Child, Command, Stdio};

/// Runs `openssl s_client` against one handshake of `couple`'s server, speaks with it, and returns what it
/// printed.
fn s_client(couple: &mut Couple, arguments: &[&str]) -> Option<(String, Outcome)> {
    let at = couple.listener.local_addr().unwrap();
    let mut child = start(at.port(), arguments)?;
    let (accepted, from) = couple.listener.accept().unwrap();
    couple.server.accept(accepted, at, from, SERVER, &couple.desk.post).unwrap();
    let mut outcome = couple.desk.outcome(SERVER);
    if let Ok(secured) = &mut outcome {
        child.stdin.as_mut().unwrap().write_all(b"to the server\n").unwrap();
        assert_eq!(hear(secured, 14), b"to the server\n");
        let mut down = Vec::new();
        secured.session.send(b"to the client\n", &mut down).unwrap();
        secured.session.close(&mut down);
        write_all(&secured.socket, &down);
    }
    drop(child.stdin.take());
    let output = child.wait_with_output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    Some((String::from_utf8_lossy(&text).into_owned(), outcome))
}

fn start(port: u16, arguments: &[&str]) -> Option<Child> {
    let to = format!("127.0.0.1:{port}");
    let spawned = Command::new("timeout")
        .args(["20", "openssl", "s_client", "-connect", &to])
        .args(["-servername", "example.org"])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let has_openssl = Command::new("openssl").arg("version").output().is_ok();
    if !has_openssl || spawned.is_err() {
        eprintln!("skipped: no openssl on this machine");
        return None;
    }
    spawned.ok()
}

fn couple(profile: Profile) -> Couple {
    Couple::new(&servers(vec![profile]), &clients(client_profile(None)))
}

#[test]
fn openssl_resumes_its_sessions() {
    let pki = Pki::new();
    let kept = pki.directory.0.join("session.pem");
    let kept = kept.to_str().unwrap();
    let mut couple = couple(server_profile(&[pki.simple("s", "example.org")]));
    for (round, version) in ["-tls1_2", "-tls1_3"].into_iter().enumerate() {
        let Some((text, _)) = s_client(&mut couple, &[version, "-sess_out", kept]) else { return };
        assert!(text.contains("New, TLS") && text.contains("to the client"), "{text}");
        for resumed in 1..=2 {
            let (text, outcome) = s_client(&mut couple, &[version, "-sess_in", kept]).unwrap();
            assert!(text.contains("Reused, TLS"), "{text}");
            assert!(outcome.unwrap().session.facts().resumed);
            let statistics = couple.server.statistics();
            let round = round as u64;
            assert_eq!(statistics.accepted_full, round + 1);
            assert_eq!(statistics.accepted_resumed, round * 2 + resumed);
        }
    }
}

#[test]
fn a_session_of_one_listener_is_no_way_around_the_certificate_that_another_requires() {
    let pki = Pki::new();
    let kept = pki.directory.0.join("session.pem");
    let kept = kept.to_str().unwrap();
    let own = pki.simple("s", "example.org");
    let strict = listener();
    let required = Profile {
        address: Some(strict.local_addr().unwrap()),
        peer: PeerCertificate::Require,
        ca_list: Some(pki.ca.clone()),
        ..server_profile(std::slice::from_ref(&own))
    };
    let tls = servers(vec![server_profile(&[own]), required]);
    let mut couple = Couple::new(&tls, &clients(client_profile(None)));
    let lenient = couple.listener;
    for version in ["-tls1_2", "-tls1_3"] {
        couple.listener = lenient.try_clone().unwrap();
        let Some((_, outcome)) = s_client(&mut couple, &[version, "-sess_out", kept]) else { return };
        outcome.unwrap();
        couple.listener = strict.try_clone().unwrap();
        let (_, outcome) = s_client(&mut couple, &[version, "-sess_in", kept]).unwrap();
        assert!(matches!(outcome, Err(HandshakeError::Certificate(_))), "{outcome:?}");
    }
    assert_eq!(couple.server.statistics().accepted_resumed, 0);
}

#[test]
fn openssl_shows_its_certificate_and_checks_ours() {
    let pki = Pki::new();
    let own = pki.simple("s", "example.org");
    let peer = PeerCertificate::Require;
    let mut couple = couple(Profile { peer, ca_list: Some(pki.ca.clone()), ..server_profile(&[own]) });
    let theirs = pki.issue(Wish::new("c", vec![uri("sip:client.example.org")]));
    let path = |path: &Path| path.to_str().unwrap().to_owned();
    let (chain, key, ca) = (path(&theirs.chain), path(&theirs.key), path(&pki.ca));
    for version in ["-tls1_2", "-tls1_3"] {
        let arguments = [version, "-cert", &chain, "-key", &key, "-CAfile", &ca, "-verify_return_error"];
        let Some((text, outcome)) = s_client(&mut couple, &arguments) else { return };
        assert!(text.contains("Verify return code: 0 (ok)"), "{text}");
        assert!(text.contains("A CA for"), "the CA is named to the client: {text}");
        let facts = outcome.unwrap().session.facts();
        assert!(facts.peer_verified);
        assert_eq!(facts.names, ["client.example.org"]);
        let (_, outcome) = s_client(&mut couple, &[version]).unwrap();
        assert!(matches!(outcome, Err(HandshakeError::Certificate(_))), "{outcome:?}");
    }
}

#[test]
fn openssl_gets_the_kind_of_certificate_that_it_can_verify() {
    let pki = Pki::new();
    let rsa = pki.issue(Wish { rsa: true, ..Wish::new("rsa", vec![dns("example.org")]) });
    let mut couple = couple(server_profile(&[rsa, pki.simple("ecdsa", "example.org")]));
    for (arguments, kind) in [
        (&["-tls1_3", "-sigalgs", "rsa_pss_rsae_sha256"][..], "RSA-PSS"),
        (&["-tls1_3", "-sigalgs", "ecdsa_secp256r1_sha256"], "ECDSA"),
        (&["-tls1_3"], "ECDSA"),
        (&["-tls1_2", "-cipher", "ECDHE-RSA-AES128-GCM-SHA256"], "RSA"),
        (&["-tls1_2", "-sigalgs", "RSA+SHA256:RSA-PSS+SHA256"], "RSA"),
        (&["-tls1_2"], "ECDSA"),
    ] {
        let Some((text, outcome)) = s_client(&mut couple, arguments) else { return };
        assert!(outcome.is_ok(), "{arguments:?}: {text}");
        assert!(text.contains(&format!("Peer signature type: {kind}")), "{arguments:?}: {text}");
    }
}

#[test]
fn a_client_of_tls_1_1_is_refused() {
    let pki = Pki::new();
    let mut couple = couple(server_profile(&[pki.simple("s", "example.org")]));
    // An openssl without TLS 1.1 sends nothing and goes away.
    let Some((text, outcome)) = s_client(&mut couple, &["-tls1_1", "-cipher", "ALL:@SECLEVEL=0"]) else {
        return;
    };
    match outcome {
        Err(HandshakeError::NoCommon(_)) => assert!(text.contains("alert"), "{text}"),
        Err(HandshakeError::Closed) => eprintln!("skipped: this openssl has no TLS 1.1"),
        other => panic!("{other:?}"),
    }
}
