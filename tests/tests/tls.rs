//! TLS (RFC 3261 §26, RFC 5922): versions, resumption, certificates of either side, names, and new certificates under
//! load. What the server shows is judged by OpenSSL, what it accepts is offered by OpenSSL and by phones.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use end_to_end::{
    Authority, Connection, Credentials, Dialog, Ending, Identity, Message, Openssl, PATIENCE, Phone, Scratch,
    Server, Signal, Start, Talk, Transport, Validity, Versions, loopback, only_strowger, tls_configuration,
    unique,
};

/// Within so long a handshake that goes nowhere must have ended.
const SECONDS: Duration = Duration::from_secs(30);

fn server() -> Server {
    Start::configuration("streams").over(&[Transport::Tcp, Transport::Tls]).spawn()
}

/// A server with these lines in the server's part of its `tls.cfg`, made from its authority and its address.
fn server_with(more: impl FnOnce(&Authority, IpAddr) -> String) -> Server {
    let start = Start::configuration("streams").over(&[Transport::Tcp, Transport::Tls]);
    let authority = Authority::new("the authority of a test");
    let ip = start.address().ip();
    let identity = authority.issue(&[&ip.to_string()]);
    let configuration = tls_configuration(&authority, &identity, &more(&authority, ip));
    start.tls(authority, configuration).spawn()
}

fn ca_list(authority: &Authority) -> String {
    format!("ca_list = {}", authority.certificate().display())
}

fn client(server: &Server) -> Openssl {
    Openssl::new(server.address_over(Transport::Tls), server.authority())
}

/// A request that every server answers at once, with 483.
fn question() -> String {
    let (call_id, branch) = (unique(), unique());
    format!(
        "OPTIONS sip:server.invalid SIP/2.0\r\nVia: SIP/2.0/TLS peer.invalid;branch=z9hG4bK{branch}\r\nMax-Forwards: 0\r\n\
         From: <sip:peer@peer.invalid>;tag=1\r\nTo: <sip:server.invalid>\r\nCall-ID: {call_id}\r\nCSeq: 1 OPTIONS\r\n\
         Content-Length: 0\r\n\r\n"
    )
}

fn assert_serves(server: &Server) {
    let mut connection =
        Connection::open(Transport::Tls, server.address_over(Transport::Tls), Some(&server.credentials()));
    connection.send(question());
    connection.expect_response(483);
}

// ---- Versions and sessions

#[test]
fn both_versions_of_tls_are_spoken() {
    let server = server();
    for (option, version) in [("-tls1_2", "TLSv1.2"), ("-tls1_3", "TLSv1.3")] {
        let (talk, said) = client(&server).arguments(&[option]).talk();
        assert_eq!(talk, Talk::Answered, "{said}");
        assert!(said.contains(&format!("New, {version}")), "{said}");
        assert!(said.contains("Verify return code: 0 (ok)"), "{said}");
    }
}

/// RFC 8996.
#[test]
fn versions_that_nobody_may_speak_are_refused() {
    let server = server();
    for option in ["-tls1", "-tls1_1"] {
        // OpenSSL itself needs to be talked into it.
        let (talk, said) = client(&server).arguments(&[option, "-cipher", "ALL:@SECLEVEL=0"]).talk();
        assert_eq!(talk, Talk::Refused, "{said}");
        let reasons = ["alert protocol version", "alert handshake failure", "no protocols available"];
        assert!(reasons.iter().any(|reason| said.contains(reason)), "{said}");
    }
}

#[test]
fn a_session_is_resumed() {
    only_strowger!("Kamailio keeps no sessions unless it is told to");
    let server = server();
    let scratch = Scratch::new("session");
    for (option, version) in [("-tls1_2", "TLSv1.2"), ("-tls1_3", "TLSv1.3")] {
        let file = scratch.file(version);
        let file = file.to_str().expect("the temporary directory's name is UTF-8");
        let (talk, said) = client(&server).arguments(&[option, "-sess_out", file]).talk();
        assert_eq!(talk, Talk::Answered, "{said}");
        assert!(Path::new(file).is_file(), "no ticket came:\n{said}");
        let (talk, said) = client(&server).arguments(&[option, "-sess_in", file]).talk();
        assert_eq!(talk, Talk::Answered, "{said}");
        assert!(said.contains(&format!("Reused, {version}")), "{said}");
    }
}

#[test]
fn a_session_of_another_server_is_not_resumed() {
    let (first, second) = (server(), server());
    let scratch = Scratch::new("session");
    let file = scratch.file("session");
    let file = file.to_str().expect("the temporary directory's name is UTF-8");
    let (_, said) = client(&first).arguments(&["-sess_out", file]).talk();
    assert!(Path::new(file).is_file(), "no ticket came:\n{said}");
    let (talk, said) = client(&second).arguments(&["-sess_in", file]).talk();
    assert_eq!(talk, Talk::Answered, "{said}");
    assert!(said.contains("New, TLSv1.3"), "{said}");
}

#[test]
fn what_is_no_tls_is_closed() {
    let server = server();
    let inputs: [&[u8]; 4] =
        [question_bytes(), b"GET / HTTP/1.1\r\nHost: server.invalid\r\n\r\n", &[0; 100], &[0x16; 100]];
    for bytes in inputs {
        let mut connection = plain(&server);
        connection.send(bytes);
        connection.expect_end(SECONDS);
        assert_serves(&server);
    }
}

fn question_bytes() -> &'static [u8] {
    b"OPTIONS sip:server.invalid SIP/2.0\r\nVia: SIP/2.0/TCP peer.invalid;branch=z9hG4bKclear\r\nContent-Length: 0\r\n\r\n"
}

/// A TCP connection to the port of TLS.
fn plain(server: &Server) -> Connection {
    Connection::open(Transport::Tcp, server.address_over(Transport::Tls), None)
}

#[test]
fn a_handshake_that_goes_nowhere_is_ended() {
    only_strowger!("Kamailio lets it be until the connection's lifetime is over");
    let server = server();
    // Nothing at all, and the beginning of a ClientHello.
    let mut connections = [plain(&server), plain(&server)];
    connections[1].send(b"\x16\x03\x01\x02\x00\x01\x00");
    assert_serves(&server);
    for connection in &mut connections {
        connection.expect_end(SECONDS);
    }
}

// ---- Certificates of clients

fn requiring_certificates() -> Server {
    server_with(|authority, _| {
        format!("verify_certificate = yes\nrequire_certificate = yes\n{}", ca_list(authority))
    })
}

#[test]
fn a_certificate_that_is_required_must_be_good() {
    let server = requiring_certificates();
    let authority = server.authority();
    let stranger = Authority::new("another authority");
    let cases: [(&str, Option<Identity>, Talk); 4] = [
        ("good", Some(authority.issue(&["alice.example"])), Talk::Answered),
        ("absent", None, Talk::Refused),
        ("of another authority", Some(stranger.issue(&["alice.example"])), Talk::Refused),
        ("expired", Some(authority.issue_with(&["alice.example"], Validity::Expired)), Talk::Refused),
    ];
    for version in ["-tls1_2", "-tls1_3"] {
        for (name, identity, expected) in &cases {
            let client = client(&server).arguments(&[version]);
            let client = match identity {
                Some(identity) => client.showing(identity),
                None => client,
            };
            let (talk, said) = client.talk();
            assert_eq!(talk, *expected, "{name}, {version}:\n{said}");
        }
    }
}

/// Kamailio's `verify_certificate` without `require_certificate`: who has none is let in, who has a bad one is not.
#[test]
fn a_certificate_that_is_asked_for_may_be_absent_but_not_bad() {
    let server = server_with(|authority, _| format!("verify_certificate = yes\n{}", ca_list(authority)));
    let (talk, said) = client(&server).talk();
    assert_eq!(talk, Talk::Answered, "{said}");
    let (talk, said) = client(&server).showing(&server.authority().issue(&["alice.example"])).talk();
    assert_eq!(talk, Talk::Answered, "{said}");
    let stranger = Authority::new("another authority");
    let (talk, said) = client(&server).showing(&stranger.issue(&["alice.example"])).talk();
    assert_eq!(talk, Talk::Refused, "{said}");
}

#[test]
fn a_revoked_certificate_is_refused() {
    let start = Start::configuration("streams").over(&[Transport::Tcp, Transport::Tls]);
    let authority = Authority::new("the authority of a test");
    let (good, bad) = (authority.issue(&["good.example"]), authority.issue(&["bad.example"]));
    authority.revoke(&bad);
    let own = authority.issue(&[&start.address().ip().to_string()]);
    let more = format!(
        "verify_certificate = yes\nrequire_certificate = yes\n{}\ncrl = {}",
        ca_list(&authority),
        authority.revocations().display()
    );
    let configuration = tls_configuration(&authority, &own, &more);
    let server = start.tls(authority, configuration).spawn();
    let (talk, said) = client(&server).showing(&good).talk();
    assert_eq!(talk, Talk::Answered, "{said}");
    let (talk, said) = client(&server).showing(&bad).talk();
    assert_eq!(talk, Talk::Refused, "{said}");
}

// ---- Names

#[test]
fn the_name_that_is_asked_for_chooses_the_certificate() {
    let start = Start::configuration("streams").over(&[Transport::Tcp, Transport::Tls]);
    let address = SocketAddr::new(start.address().ip(), 5061);
    let authority = Authority::new("the authority of a test");
    let profile = |name: &str| {
        let identity = authority.issue(&[name]);
        let (certificate, key) = (identity.certificate.display(), identity.key.display());
        format!(
            "\n[server:{address}]\nserver_name = {name}\ncertificate = {certificate}\nprivate_key = {key}\n"
        )
    };
    let default = authority.issue(&[&address.ip().to_string()]);
    let profiles = profile("one.example") + &profile("two.example");
    let configuration = tls_configuration(&authority, &default, "") + &profiles;
    let server = start.tls(authority, configuration).spawn();
    for (asked, shown) in [
        ("one.example", "one.example"),
        ("two.example", "two.example"),
        ("three.example", &address.ip().to_string()),
    ] {
        let (talk, said) = client(&server).arguments(&["-servername", asked]).talk();
        assert_eq!(talk, Talk::Answered, "{said}");
        assert!(said.contains(&format!("subject=CN = {shown}")), "asked for {asked}:\n{said}");
    }
}

/// RFC 5922 §7.3, §7.4: the server proves its next hop. Calls a phone with these credentials at this host.
fn call(server: &Server, host: &str, local: IpAddr, credentials: Credentials) -> Option<u16> {
    let alice = Phone::new(server, "alice");
    let local = SocketAddr::new(local, 0);
    let bob = Phone::over_with(Transport::Tls, server, "bob", local, Some(credentials));
    let invite = alice.request("INVITE", &format!("sip:bob@{host}:{};transport=tls", bob.address().port()));
    alice.send(&invite);
    let deadline = Instant::now() + SECONDS;
    while Instant::now() < deadline {
        if let Some(arrived) = bob.receive(Duration::from_millis(20)) {
            assert_eq!(arrived.method(), "INVITE");
            bob.answer(&arrived, 486, "Busy Here");
        }
        let answer = alice.receive(Duration::from_millis(20)).and_then(|answer| answer.status());
        match answer {
            // RFC 3261 §16.7 item 6: a 503 of its own making a proxy passes on as 500.
            Some(500) => return Some(503),
            Some(status) if status >= 200 => return answer,
            _ => {}
        }
    }
    None
}

#[test]
fn a_next_hop_with_a_good_certificate_is_called() {
    let server = server();
    let ip = IpAddr::from(loopback());
    let identity = server.authority().issue(&[&ip.to_string()]);
    for versions in [Versions::Only12, Versions::Only13] {
        let credentials = Credentials::new(server.authority(), Some(&identity), versions);
        assert_eq!(call(&server, &ip.to_string(), ip, credentials), Some(486), "{versions:?}");
    }
}

#[test]
fn a_next_hop_with_a_bad_certificate_is_not_called() {
    let server = server();
    let ip = IpAddr::from(loopback());
    let authority = server.authority();
    let stranger = Authority::new("another authority");
    let bad = [
        ("expired", authority.issue_with(&[&ip.to_string()], Validity::Expired)),
        ("of another authority", stranger.issue(&[&ip.to_string()])),
    ];
    for (name, identity) in bad {
        let credentials = Credentials::showing(authority, &identity);
        let answer = call(&server, &ip.to_string(), ip, credentials);
        assert!(matches!(answer, Some(408 | 477 | 480 | 500 | 503)), "{name}: {answer:?}");
    }
    assert_serves(&server);
}

#[test]
fn a_next_hop_with_a_certificate_for_another_name_is_not_called() {
    only_strowger!("Kamailio does not look at the names");
    let server = server();
    let ip = IpAddr::from(loopback());
    let authority = server.authority();
    for name in ["127.0.0.1", "bob.example", "sip:bob.example"] {
        let credentials = Credentials::showing(authority, &authority.issue(&[name]));
        assert_eq!(call(&server, &ip.to_string(), ip, credentials), Some(503), "a certificate for {name}");
    }
}

/// `localhost` is a name that every machine resolves to 127.0.0.1.
#[test]
fn a_next_hop_called_by_name_must_prove_that_name() {
    only_strowger!("Kamailio does not look at the names");
    let server = server();
    let authority = server.authority();
    let here = IpAddr::from([127, 0, 0, 1]);
    // RFC 5922 §7.1: a SIP URI counts as the domain in it, a name of the host as itself.
    for (names, expected) in [
        (["localhost"].as_slice(), 486),
        (&["sip:localhost"], 486),
        (&["other.example", "localhost"], 486),
        (&["other.example"], 503),
        // §7.2: an address proves no name.
        (&["127.0.0.1"], 503),
        // §7.1: an identity with a user part is no domain's.
        (&["sip:bob@localhost"], 503),
    ] {
        let credentials = Credentials::showing(authority, &authority.issue(names));
        assert_eq!(call(&server, "localhost", here, credentials), Some(expected), "{names:?}");
    }
}

// ---- New certificates

#[test]
fn new_certificates_count_from_the_next_connection_on() {
    only_strowger!("Kamailio is told by RPC");
    let server = server();
    let (alice, bob) =
        (Phone::over(Transport::Tls, &server, "alice"), Phone::over(Transport::Tls, &server, "bob"));
    let (stop, server) = (&AtomicBool::new(false), &server);
    let old = shown_certificate(server);
    let (alice, bob) = thread::scope(|scope| {
        let calls = scope.spawn(move || calls_until(stop, alice, bob));
        let newcomers = scope.spawn(move || newcomers_until(stop, server));
        for _ in 0..5 {
            let before = shown_certificate(server);
            let ip = server.address().ip().to_string();
            let authority = server.authority();
            server.write_tls(&tls_configuration(authority, &authority.issue(&[&ip]), ""));
            server.signal(Signal::HangUp);
            let deadline = Instant::now() + PATIENCE;
            while shown_certificate(server) == before {
                assert!(Instant::now() < deadline, "the new certificate never shows");
            }
        }
        stop.store(true, Ordering::Relaxed);
        assert!(newcomers.join().expect("every newcomer is served") > 0);
        calls.join().expect("every call completes")
    });
    assert_ne!(shown_certificate(server), old);
    // The phones' own connections have lived through all of it.
    let (callers, _) = Dialog::establish_at(&alice, &bob, &bob.contact());
    callers.exchange(&alice, &bob, "BYE");
}

/// One call after the other, at least one; gives the phones back.
fn calls_until(stop: &AtomicBool, alice: Phone, bob: Phone) -> (Phone, Phone) {
    loop {
        let (callers, _) = Dialog::establish_at(&alice, &bob, &bob.contact());
        callers.exchange(&alice, &bob, "BYE");
        if stop.load(Ordering::Relaxed) {
            return (alice, bob);
        }
    }
}

fn newcomers_until(stop: &AtomicBool, server: &Server) -> usize {
    let mut newcomers = 0;
    while !stop.load(Ordering::Relaxed) {
        assert_serves(server);
        newcomers += 1;
    }
    newcomers
}

/// The certificate that the server shows now.
fn shown_certificate(server: &Server) -> Vec<u8> {
    let connection =
        Connection::open(Transport::Tls, server.address_over(Transport::Tls), Some(&server.credentials()));
    let tls = connection.tls().expect("invariant: it is a connection over TLS");
    let chain = tls.peer_certificates().expect("the server shows a certificate");
    chain[0].to_vec()
}

#[test]
fn certificates_that_cannot_be_read_leave_the_old_ones() {
    only_strowger!("Kamailio is told by RPC");
    let server = server();
    let before = shown_certificate(&server);
    server.write_tls("[server:default]\ncertificate = /nonexistent.pem\nprivate_key = /nonexistent.key\n");
    server.signal(Signal::HangUp);
    server.expect_log("/nonexistent");
    assert_eq!(shown_certificate(&server), before);
    assert_serves(&server);
}

/// A certificate that was good is taken back while the server runs: no new connection with it.
#[test]
fn a_certificate_revoked_while_the_server_runs_is_refused() {
    only_strowger!("Kamailio is told by RPC");
    let start = Start::configuration("streams").over(&[Transport::Tcp, Transport::Tls]);
    let authority = Authority::new("the authority of a test");
    let (own, guest) =
        (authority.issue(&[&start.address().ip().to_string()]), authority.issue(&["guest.example"]));
    let requiring = |authority: &Authority| {
        let (ca, crl) = (ca_list(authority), authority.revocations());
        format!("verify_certificate = yes\nrequire_certificate = yes\n{ca}\ncrl = {}", crl.display())
    };
    let configuration = tls_configuration(&authority, &own, &requiring(&authority));
    let server = start.tls(authority, configuration).spawn();
    let (talk, said) = client(&server).showing(&guest).talk();
    assert_eq!(talk, Talk::Answered, "{said}");
    server.authority().revoke(&guest);
    // In the same file, which a reload reads again.
    server.authority().revocations();
    server.signal(Signal::HangUp);
    let deadline = Instant::now() + PATIENCE;
    while client(&server).showing(&guest).talk().0 == Talk::Answered {
        assert!(Instant::now() < deadline, "the certificate still counts");
    }
    let (talk, said) = client(&server).showing(&server.authority().issue(&["other.example"])).talk();
    assert_eq!(talk, Talk::Answered, "{said}");
}

/// As in a small container: nobody has asked that a next hop be trusted.
#[test]
fn a_system_without_authorities_is_no_reason_not_to_start() {
    only_strowger!("its own default");
    let start = Start::configuration("streams").over(&[Transport::Tcp, Transport::Tls]);
    let authority = Authority::new("the authority of a test");
    let identity = authority.issue(&[&start.address().ip().to_string()]);
    let configuration = tls_configuration(&authority, &identity, "");
    let (server_only, _) = configuration.split_once("[client:default]").expect("a profile for each side");
    let nowhere = "/nonexistent";
    let start = start.environment("SSL_CERT_FILE", nowhere).environment("SSL_CERT_DIR", nowhere);
    let server = start.tls(authority, server_only).spawn();
    server.expect_log("the system has no CA certificates");
    assert_serves(&server);
}

// ---- Ends

#[test]
fn a_tls_connection_is_ended_in_order() {
    let server = server();
    let mut connection =
        Connection::open(Transport::Tls, server.address_over(Transport::Tls), Some(&server.credentials()));
    connection.send(question());
    connection.expect_response(483);
    connection.finish_sending();
    assert_eq!(connection.expect_end(SECONDS), Ending::Closed);
}

#[test]
fn a_large_message_passes_over_tls_whole() {
    let server = server();
    let (alice, bob) =
        (Phone::over(Transport::Tls, &server, "alice"), Phone::over(Transport::Tls, &server, "bob"));
    let body = "x".repeat(40_000);
    let request: Message = alice.request("MESSAGE", &bob.contact()).body("text/plain", body.as_str());
    alice.send(&request);
    let arrived = bob.expect_request("MESSAGE");
    assert_eq!(arrived.body, body);
    bob.answer(&arrived, 200, "OK");
    alice.expect_response(200, &request);
}

/// `strowger cert`: its authority and certificates are good enough for OpenSSL and for phones, on both sides.
#[test]
fn certificates_of_our_own_command_line_serve_server_and_phones() {
    only_strowger!("it is a command of ours");
    let scratch = Scratch::new("cert");
    let start = Start::configuration("streams").over(&[Transport::Tcp, Transport::Tls]);
    let (ip, bobs) = (start.address().ip(), IpAddr::from(loopback()));
    let cert = |arguments: &[&str]| {
        let mut command = Command::new(end_to_end::strowger_binary());
        let output = command.arg("cert").args(arguments).current_dir(scratch.path()).output();
        let output = output.expect("strowger runs");
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    cert(&["ca", "--out", "ca"]);
    cert(&["server", "--ca", "ca", "--name", "proxy.example", "--ip", &ip.to_string(), "--out", "server"]);
    cert(&["server", "--ca", "ca", "--name", "bob.example", "--ip", &bobs.to_string(), "--out", "bob"]);
    let authority = Authority::made_elsewhere(scratch.file("ca/ca.pem"));
    let identities = ["server", "bob"].map(|directory| made_in(&scratch.file(directory)));
    let require = format!("verify_certificate = yes\nrequire_certificate = yes\n{}", ca_list(&authority));
    let configuration = tls_configuration(&authority, &identities[0], &require);
    let server = start.tls(authority, configuration).spawn();
    for name in [["-verify_ip", &ip.to_string()], ["-verify_hostname", "proxy.example"]] {
        let (talk, said) = client(&server).arguments(&name).showing(&identities[1]).talk();
        assert_eq!(talk, Talk::Answered, "{said}");
    }
    let credentials = Credentials::showing(server.authority(), &identities[1]);
    assert_eq!(call(&server, &bobs.to_string(), bobs, credentials), Some(486));
}

/// The one certificate with its key in a directory.
fn made_in(directory: &Path) -> Identity {
    let files = fs::read_dir(directory).expect("the command made the directory");
    let files: Vec<PathBuf> = files.map(|entry| entry.expect("a file").path()).collect();
    let (keys, certificates): (Vec<_>, Vec<_>) =
        files.into_iter().partition(|file| file.to_string_lossy().ends_with("-key.pem"));
    let [key] = &keys[..] else { panic!("one key, not {keys:?}") };
    let [certificate] = &certificates[..] else { panic!("one certificate, not {certificates:?}") };
    Identity { certificate: certificate.clone(), key: key.clone() }
}
