//! What goes through an established session.

use super::*;
use proptest::prelude::*;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use std::sync::Arc;

/// Two sessions without sockets between them.
fn sessions(versions: (TlsVersion, TlsVersion)) -> (Box<Secured>, Box<Secured>) {
    let pki = Pki::new();
    let own = pki.simple("server", "example.org");
    let server = servers(vec![Profile { versions, ..server_profile(&[own]) }]);
    Couple::new(&server, &clients(client_profile(Some(&pki.ca)))).talk(Some("example.org"))
}

#[test]
fn both_versions_carry_data_and_tell_what_they_are() {
    for (versions, version, suite) in [
        (ONLY_1_2, TlsVersion::V1_2, "ECDHE-ECDSA-AES256-GCM-SHA384"),
        (BOTH, TlsVersion::V1_3, "TLS_AES_256_GCM_SHA384"),
    ] {
        let (mut server, mut client) = sessions(versions);
        let large: Vec<u8> = (0..300_000_u32).map(|n| n as u8).collect();
        say(&mut client, &mut server, &large);
        say(&mut server, &mut client, &large);
        for side in [&server, &client] {
            let facts = side.session.facts();
            assert_eq!((facts.version, facts.cipher_suite, facts.resumed), (version, suite, false));
            assert_eq!(facts.server_name.as_deref(), Some("example.org"));
        }
        let facts = client.session.facts();
        assert!(facts.peer_verified);
        assert_eq!(facts.names, ["example.org"]);
        assert_eq!(facts.subject.as_deref(), Some("CN=simple"));
        let facts = server.session.facts();
        assert!(!facts.peer_verified);
        assert_eq!((facts.subject, facts.names), (None, Vec::new()));
    }
}

#[test]
fn any_chunks_of_ciphertext_give_the_same_plaintext() {
    let (mut server, mut client) = sessions(BOTH);
    let data: Vec<u8> = (0..70_000_u32).map(|n| (n % 251) as u8).collect();
    for chunk in [1, 2, 3, 5, 16, 1_000, 16_384, 16_406, 65_536, 100_000] {
        let mut ciphertext = Vec::new();
        client.session.send(&data, &mut ciphertext).unwrap();
        let mut plaintext = Vec::new();
        for piece in ciphertext.chunks_mut(chunk) {
            let received = server.session.receive(piece, &mut plaintext).unwrap();
            assert!(!received.closed);
        }
        assert!(plaintext == data, "chunks of {chunk}");
    }
}

#[test]
fn an_idle_session_keeps_no_bytes_and_a_cut_record_only_itself() {
    let (mut server, mut client) = sessions(BOTH);
    let idle = server.session.memory();
    let mut ciphertext = Vec::new();
    client.session.send(&[1; 10_000], &mut ciphertext).unwrap();
    let mut plaintext = Vec::new();
    let (first, rest) = ciphertext.split_at_mut(4_000);
    server.session.receive(first, &mut plaintext).unwrap();
    assert!(plaintext.is_empty());
    assert!((idle + 4_000..idle + 10_000).contains(&server.session.memory()));
    assert_eq!(server.session.partial_bytes(), 4_000);
    server.session.receive(rest, &mut plaintext).unwrap();
    assert_eq!(plaintext, [1; 10_000]);
    assert_eq!((server.session.memory(), server.session.partial_bytes()), (idle, 0));
}

#[test]
fn a_session_may_write_while_half_a_record_is_there() {
    let (mut server, mut client) = sessions(BOTH);
    let (mut up, mut down, mut heard) = (Vec::new(), Vec::new(), Vec::new());
    client.session.send(b"question", &mut up).unwrap();
    let (first, rest) = up.split_at_mut(9);
    server.session.receive(first, &mut heard).unwrap();
    server.session.send(b"answer", &mut down).unwrap();
    server.session.receive(rest, &mut heard).unwrap();
    assert_eq!(heard, b"question");
    heard.clear();
    client.session.receive(&mut down, &mut heard).unwrap();
    assert_eq!(heard, b"answer");
}

#[test]
fn a_changed_record_ends_the_session_with_an_alert() {
    for versions in [ONLY_1_2, ONLY_1_3] {
        let (mut server, mut client) = sessions(versions);
        let (mut ciphertext, mut plaintext) = (Vec::new(), Vec::new());
        client.session.send(b"good", &mut ciphertext).unwrap();
        let good = ciphertext.len();
        client.session.send(b"bad", &mut ciphertext).unwrap();
        let last = ciphertext.len() - 1;
        ciphertext[last] ^= 1;
        assert!(server.session.receive(&mut ciphertext, &mut plaintext).is_err());
        assert!(good < ciphertext.len());
        assert_eq!(plaintext, b"good", "what came before counts");
        let mut alert = Vec::new();
        server.session.pending(&mut alert);
        assert!(!alert.is_empty());
        let error = client.session.receive(&mut alert, &mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("BadRecordMac"), "{error}");
        assert!(server.session.receive(&mut [], &mut plaintext).is_err(), "it stays broken");
    }
}

#[test]
fn close_notify_is_told_and_nothing_is_sent_after_it() {
    for versions in [ONLY_1_2, ONLY_1_3] {
        let (mut server, mut client) = sessions(versions);
        let (mut up, mut plaintext) = (Vec::new(), Vec::new());
        client.session.send(b"last words", &mut up).unwrap();
        client.session.close(&mut up);
        let length = up.len();
        client.session.close(&mut up);
        assert_eq!(up.len(), length, "it is said once");
        assert!(client.session.send(b"more", &mut up).is_err());
        assert_eq!(up.len(), length);
        let received = server.session.receive(&mut up, &mut plaintext).unwrap();
        assert!(received.closed);
        assert_eq!(plaintext, b"last words");
        assert!(server.session.receive(&mut [], &mut plaintext).unwrap().closed, "it stays so");
        let mut down = Vec::new();
        server.session.send(b"answer", &mut down).unwrap();
        server.session.close(&mut down);
        plaintext.clear();
        assert!(client.session.receive(&mut down, &mut plaintext).unwrap().closed);
        assert_eq!(plaintext, b"answer", "each direction closes for itself (RFC 8446 §6.1)");
    }
}

/// A client of the library itself, which can do what ours does not.
fn library_client(pki: &Pki) -> ClientConnection {
    let mut roots = RootCertStore::empty();
    let bytes = fs::read(&pki.ca).unwrap();
    let ca =
        <rustls::pki_types::CertificateDer<'_> as rustls::pki_types::pem::PemObject>::from_pem_slice(&bytes);
    roots.add(ca.unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    ClientConnection::new(Arc::new(config), ServerName::try_from("example.org").unwrap()).unwrap()
}

#[test]
fn data_that_comes_with_the_last_flight_is_handed_over() {
    let pki = Pki::new();
    let server = servers(vec![server_profile(&[pki.simple("server", "example.org")])]);
    let pool = HandshakePool::start(server, 1).unwrap();
    let (mut desk, listener) = (Desk::new(), listener());
    let (mut socket, accepted) = connection(&listener);
    let at = listener.local_addr().unwrap();
    pool.accept(accepted, at, at, SERVER, &desk.post).unwrap();
    let mut client = library_client(&pki);
    client.writer().write_all(b"first message").unwrap();
    client.write_tls(&mut socket).unwrap();
    while client.is_handshaking() {
        client.read_tls(&mut socket).unwrap();
        client.process_new_packets().unwrap();
    }
    // Finished, the message and close_notify in one write, and half a record more.
    client.send_close_notify();
    let mut flight = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut flight).unwrap();
    }
    socket.write_all(&flight).unwrap();
    let mut secured = desk.outcome(SERVER).unwrap();
    assert_eq!(secured.plaintext, b"first message");
    assert!(secured.session.receive(&mut [], &mut Vec::new()).unwrap().closed);
}

#[test]
fn an_update_of_keys_is_answered() {
    let pki = Pki::new();
    let server = servers(vec![server_profile(&[pki.simple("server", "example.org")])]);
    let pool = HandshakePool::start(server, 1).unwrap();
    let (mut desk, listener) = (Desk::new(), listener());
    let (mut socket, accepted) = connection(&listener);
    let at = listener.local_addr().unwrap();
    pool.accept(accepted, at, at, SERVER, &desk.post).unwrap();
    let mut client = library_client(&pki);
    while client.is_handshaking() {
        client.complete_io(&mut socket).unwrap();
    }
    let mut secured = desk.outcome(SERVER).unwrap();
    let _tickets = client.complete_io(&mut socket);
    for round in 0..5 {
        client.refresh_traffic_keys().unwrap();
        let question = format!("question {round}");
        client.writer().write_all(question.as_bytes()).unwrap();
        let mut up = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut up).unwrap();
        }
        let mut heard = Vec::new();
        secured.session.receive(&mut up, &mut heard).unwrap();
        assert_eq!(heard, question.as_bytes());
        let mut down = Vec::new();
        secured.session.pending(&mut down);
        secured.session.send(b"answer", &mut down).unwrap();
        client.read_tls(&mut &down[..]).unwrap();
        client.process_new_packets().unwrap();
        let mut answer = [0; 6];
        client.reader().read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"answer");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn no_bytes_panic_in_a_session(
            garbage in proptest::collection::vec(any::<u8>(), 1..2_000),
            cut in 0_usize..3_000,
        ) {
        thread_local! {
            static MADE: std::cell::RefCell<Option<Couple>> = const { std::cell::RefCell::new(None) };
        }
        MADE.with_borrow_mut(|couple| {
            let couple = couple.get_or_insert_with(|| {
                let pki = Pki::new();
                let server = servers(vec![server_profile(&[pki.simple("server", "example.org")])]);
                Couple::new(&server, &clients(client_profile(Some(&pki.ca))))
            });
            let (mut server, mut client) = couple.both(Some("example.org"));
            let mut bytes = Vec::new();
            client.session.send(&garbage, &mut bytes).unwrap();
            let cut = cut.min(bytes.len());
            bytes.truncate(cut);
            bytes.extend_from_slice(&garbage);
            let mut plaintext = Vec::new();
            let _ = server.session.receive(&mut bytes, &mut plaintext);
            let _ = server.session.receive(&mut garbage.clone(), &mut plaintext);
            let _ = server.session.send(b"x", &mut bytes);
            server.session.close(&mut bytes);
        });
    }
}
