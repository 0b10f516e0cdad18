//! The torture messages of RFC 4475 and RFC 5118, sent to the server: `tests/torture/manifest.tsv` says what it must
//! answer.

use std::collections::BTreeSet;
use std::fs;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use end_to_end::{Message, PATIENCE, QUIET, Server, Start, loopback, only_strowger, via_port};

/// One line of the manifest.
struct Case {
    file: String,
    layer: String,
    status: String,
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("torture")
}

fn manifest() -> Vec<Case> {
    let text = fs::read_to_string(directory().join("manifest.tsv")).expect("the manifest");
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.starts_with("file\t"));
    let cases = lines.filter(|line| !line.is_empty()).map(|line| {
        let columns: Vec<&str> = line.split('\t').collect();
        assert!(columns.len() >= 5, "a line of the manifest has six columns: {line}");
        Case { file: columns[0].to_owned(), layer: columns[3].to_owned(), status: columns[4].to_owned() }
    });
    cases.collect()
}

#[test]
fn every_message_has_its_line_in_the_manifest() {
    let listed: BTreeSet<String> = manifest().into_iter().map(|case| case.file).collect();
    let folders = ["rfc4475", "rfc5118"];
    let present: BTreeSet<String> = folders
        .iter()
        .flat_map(|folder| fs::read_dir(directory().join(folder)).expect("the messages"))
        .map(|entry| entry.expect("an entry").path())
        .map(|path| path.strip_prefix(directory()).expect("invariant: it is below").display().to_string())
        .collect();
    assert_eq!(listed, present);
}

#[test]
fn every_message_is_answered_as_the_manifest_says() {
    only_strowger!("the manifest says what we answer");
    // The REGISTERs are for the registrar of this domain; one of another domain answers none of them (§10.3 step 1).
    let domain = "alias=\"example.com\"";
    let server = Start::configuration("default").inserting("alias=", domain).spawn();
    let mut failures = Vec::new();
    for case in manifest() {
        let bytes = fs::read(directory().join(&case.file)).expect("the message");
        let peer = Peer::of(&bytes);
        peer.sender.send_to(&bytes, server.address()).expect("loopback takes any datagram");
        let answered = match case.status.as_str() {
            // What follows depends on the configuration; that the server lives is seen below.
            "-" => continue,
            "drop" => peer.final_status(QUIET).map_or("drop".to_owned(), |status| status.to_string()),
            _ => peer.final_status(PATIENCE).map_or("drop".to_owned(), |status| status.to_string()),
        };
        if answered != case.status {
            failures.push(format!("{} ({}): {} instead of {}", case.file, case.layer, answered, case.status));
        }
    }
    assert!(server.is_answering(), "the server must live");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn the_server_lives_under_every_configuration() {
    for configuration in ["stateless", "redirect", "registrar", "default"] {
        let server = Server::start(configuration);
        for case in manifest() {
            let bytes = fs::read(directory().join(&case.file)).expect("the message");
            let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
            sender.send_to(&bytes, server.address()).expect("loopback takes any datagram");
        }
        assert!(server.is_answering(), "dead under {configuration}");
    }
}

/// The sockets at which answers to a message can arrive: where it came from (RFC 3581), and the port that its Via
/// names at the address that it came from (RFC 3261 §18.2.2).
struct Peer {
    sender: UdpSocket,
    named: Option<UdpSocket>,
}

impl Peer {
    fn of(message: &[u8]) -> Self {
        let address = loopback();
        let sender = UdpSocket::bind((address, 0)).expect("an address of our own");
        let named = via_port(&String::from_utf8_lossy(message)).map(|port| UdpSocket::bind((address, port)));
        let named = named.map(|socket| socket.expect("an address of our own"));
        for socket in [Some(&sender), named.as_ref()].into_iter().flatten() {
            socket
                .set_read_timeout(Some(Duration::from_millis(5)))
                .expect("invariant: the timeout is not zero");
        }
        Self { sender, named }
    }

    fn final_status(&self, limit: Duration) -> Option<u16> {
        let deadline = Instant::now() + limit;
        let mut buffer = vec![0; usize::from(u16::MAX)];
        while Instant::now() < deadline {
            for socket in [Some(&self.sender), self.named.as_ref()].into_iter().flatten() {
                let Ok(length) = socket.recv(&mut buffer) else { continue };
                let status = Message::parse(&buffer[..length]).and_then(|message| message.status());
                if let Some(status) = status.filter(|status| *status >= 200) {
                    return Some(status);
                }
            }
        }
        None
    }
}
