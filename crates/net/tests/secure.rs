//! TLS and WebSocket connections of a shard, with rustls and tungstenite on the other side.

#![allow(clippy::unwrap_used)]

mod support;

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use net::Settings;
use net::tls::{CertificateFiles, HandshakePool, PeerCertificate, Profile, Tls, TlsSettings, TlsVersion};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SanType};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use sip::Transport;
use support::*;
use tungstenite::{Message, WebSocket};

type Client = StreamOwned<ClientConnection, TcpStream>;

/// A CA, a certificate of it for `a.example` and 127.0.0.1, and a pool that uses both.
struct Keys {
    directory: PathBuf,
    ca: CertificateDer<'static>,
    certificate: CertificateDer<'static>,
    key: Vec<u8>,
    pool: HandshakePool,
}

impl Drop for Keys {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn keys(adjust: impl FnOnce(&mut TlsSettings)) -> Keys {
    static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let directory = std::env::temp_dir().join(format!("net-secure-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca_key = KeyPair::generate().unwrap();
    let ca = params.self_signed(&ca_key).unwrap();
    let issuer = Issuer::new(params, ca_key);
    let mut params = CertificateParams::default();
    params.subject_alt_names = vec![
        SanType::DnsName("a.example".try_into().unwrap()),
        SanType::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST)),
    ];
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap();
    let write = |name: &str, text: String| {
        let path = directory.join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let files = CertificateFiles {
        chain: write("chain.pem", certificate.pem()),
        key: write("key.pem", key.serialize_pem()),
    };
    let ca_list = write("ca.pem", ca.pem());
    let profile = Profile {
        address: None,
        server_name: None,
        certificates: vec![files],
        ca_list: Some(ca_list),
        crl: None,
        peer: PeerCertificate::Request,
        versions: (TlsVersion::V1_2, TlsVersion::V1_3),
        cipher_list: None,
    };
    let client = Profile { peer: PeerCertificate::Require, ..profile.clone() };
    let mut settings =
        TlsSettings { servers: vec![profile], clients: vec![client], ..TlsSettings::default() };
    adjust(&mut settings);
    let pool = HandshakePool::start(Tls::load(settings).unwrap(), 1).unwrap();
    let (ca, certificate) = (ca.der().clone(), certificate.der().clone());
    Keys { directory, ca, certificate, key: key.serialize_der(), pool }
}

impl Keys {
    fn settings(&self) -> Settings {
        Settings { tls: Some(self.pool.clone()), ..settings() }
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.ca.clone()).unwrap();
        roots
    }

    fn own(&self) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        (vec![self.certificate.clone()], PrivateKeyDer::try_from(self.key.clone()).unwrap())
    }

    fn secure(&self, stream: TcpStream, with_certificate: Option<()>) -> Client {
        let builder = ClientConfig::builder().with_root_certificates(self.roots());
        let config = match with_certificate {
            None => builder.with_no_client_auth(),
            Some(()) => {
                let (chain, key) = self.own();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        };
        let name = ServerName::try_from("a.example").unwrap();
        StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), stream)
    }

    /// The other side of a connection that the server opens.
    fn serve(&self, stream: TcpStream) -> StreamOwned<ServerConnection, TcpStream> {
        let (chain, key) = self.own();
        let config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        StreamOwned::new(ServerConnection::new(Arc::new(config)).unwrap(), stream)
    }
}

// --- TLS --------------------------------------------------------------------------------------------------------------

#[test]
fn messages_pass_over_tls_pipelined_and_cut() {
    let keys = keys(|_| {});
    let server = start(1, &[Transport::Tls], &keys.settings());
    let mut client = keys.secure(server.connect(), None);
    ask(&mut client, 1);
    let count = 1_000;
    let text: String = (0..count).map(request).collect();
    for chunk in text.as_bytes().chunks(777) {
        client.write_all(chunk).unwrap();
    }
    client.flush().unwrap();
    for cseq in 0..count {
        expect(&mut client, &answered(cseq));
    }
    let statistics = server.statistics(|s| s.messages_sent == u64::from(count) + 1);
    assert_eq!((statistics.open, statistics.open_tls, statistics.tls_failures), (1, 1, 0));
    server.stop();
}

#[test]
fn a_tls_connection_ends_with_close_notify_on_both_sides() {
    let keys = keys(|_| {});
    let server = start(1, &[Transport::Tls], &keys.settings());
    let mut client = keys.secure(server.connect(), None);
    ask(&mut client, 1);
    client.conn.send_close_notify();
    client.flush().unwrap();
    // An end without close_notify would be an error here.
    assert_eq!(client.read(&mut [0; 10]).unwrap(), 0);
    assert_eq!(server.statistics(|s| s.open == 0).closed_by_peer, 1);
    let mut client = keys.secure(server.connect(), None);
    ask(&mut client, 2);
    server.stop();
    assert_eq!(client.read(&mut [0; 10]).unwrap(), 0);
}

#[test]
fn an_idle_tls_connection_ends_with_close_notify() {
    let keys = keys(|_| {});
    let mut settings = keys.settings();
    settings.streams.lifetime = Duration::from_millis(300);
    let server = start(1, &[Transport::Tls], &settings);
    let mut client = keys.secure(server.connect(), None);
    ask(&mut client, 1);
    assert_eq!(client.read(&mut [0; 10]).unwrap(), 0);
    assert_eq!(server.statistics(|s| s.open == 0).idle, 1);
    server.stop();
}

/// RFC 5923 §8.3: after our closure alert whatever comes is discarded.
#[test]
fn what_comes_behind_our_closure_alert_is_discarded() {
    let keys = keys(|_| {});
    let mut settings = keys.settings();
    settings.streams.lifetime = Duration::from_millis(300);
    let server = start(1, &[Transport::Tls], &settings);
    let mut client = keys.secure(server.connect(), None);
    ask(&mut client, 1);
    assert_eq!(server.next_message().text(), request(1));
    assert_eq!(client.read(&mut [0; 10]).unwrap(), 0, "the alert");
    // Where the connection is gone altogether, this fails.
    for cseq in 2..5 {
        let _ = client.write_all(request(cseq).as_bytes());
        let _ = client.flush();
    }
    server.nothing_comes();
    assert_eq!(server.statistics(|s| s.open == 0).messages_received, 1);
    server.stop();
}

#[test]
fn clear_text_on_a_port_of_tls_is_told_apart_and_closed() {
    let keys = keys(|_| {});
    let server = start(1, &[Transport::Tls], &keys.settings());
    for text in [&request(1)[..], "GET / HTTP/1.1\r\n\r\n"] {
        let mut stream = server.connect();
        send(&mut stream, text);
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        assert!(!rest.windows(4).any(|bytes| bytes == b"SIP/"), "{rest:?}");
    }
    let statistics = server.statistics(|s| s.tls_failures == 2);
    assert_eq!((statistics.tls_clear_sip, statistics.tls_clear_http, statistics.open), (1, 1, 0));
    server.nothing_comes();
    server.stop();
}

#[test]
fn a_handshake_that_does_not_come_ends_its_connection() {
    let keys = keys(|settings| settings.handshake_timeout = Duration::from_millis(300));
    let server = start(1, &[Transport::Tls], &keys.settings());
    let mut stream = server.connect();
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert_eq!(server.statistics(|s| s.tls_failures == 1).open, 0);
    server.stop();
}

#[test]
fn tampered_records_end_the_connection_with_an_alert() {
    let keys = keys(|_| {});
    let server = start(1, &[Transport::Tls], &keys.settings());
    let mut client = keys.secure(server.connect(), None);
    ask(&mut client, 1);
    client.sock.write_all(&[0x17, 3, 3, 0, 32]).unwrap();
    client.sock.write_all(&[0; 32]).unwrap();
    assert!(client.read(&mut [0; 10]).is_err());
    assert_eq!(server.statistics(|s| s.open == 0).tls_broken, 1);
    server.stop();
}

#[test]
fn without_a_pool_connections_of_tls_are_closed() {
    let server = start(1, &[Transport::Tls], &settings());
    expect_closed(&mut server.connect());
    assert_eq!(server.statistics(|s| s.refused_handshakes == 1).open, 0);
    server.send_to(closed_port(), &request(1));
    server.next_error();
    server.stop();
}

#[test]
fn a_request_opens_a_tls_connection_that_proves_its_domain() {
    let keys = keys(|_| {});
    let server = start(1, &[Transport::Tls], &keys.settings());
    let peer = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = peer.local_addr().unwrap();
    for name in ["a.example", ""] {
        server.order(&format!("DO domain {name}"));
        server.send_to(address, &request(1));
        server.send_to(address, &request(2));
        let mut back = keys.serve(peer.accept().unwrap().0);
        expect(&mut back, &(request(1) + &request(2)));
        for cseq in 1..=2 {
            send(&mut back, &answered(cseq));
            assert_eq!(server.next_message().text(), answered(cseq));
        }
    }
    server.statistics(|s| s.connected == 2);
    server.stop();
}

/// RFC 5923 §8.1: a peer that we have a connection to need not take that for its own requests: it can connect where we
/// listen, and answer there, too (RFC 3261 §18.1.1).
#[test]
fn who_was_connected_to_can_connect_back() {
    let keys = keys(|_| {});
    let server = start(1, &[Transport::Tls], &keys.settings());
    let peer = TcpListener::bind("127.0.0.1:0").unwrap();
    server.send_to(peer.local_addr().unwrap(), &request(1));
    let mut first = keys.serve(peer.accept().unwrap().0);
    expect(&mut first, &request(1));
    let mut back = keys.secure(server.connect(), None);
    send(&mut back, &answered(1));
    assert_eq!(server.next_message().text(), answered(1));
    ask(&mut back, 2);
    let statistics = server.statistics(|s| s.open == 2);
    assert_eq!((statistics.connected, statistics.accepted), (1, 1));
    server.stop();
}

#[test]
fn a_tls_peer_is_found_by_the_address_of_its_own_connection() {
    let keys = keys(|_| {});
    let server = start(2, &[Transport::Tls], &keys.settings());
    let mut client = keys.secure(server.connect(), None);
    ask(&mut client, 1);
    let remote = server.next_message().path.remote;
    for shard in 0..2 {
        server.order(&format!("DO send 1 0 {remote} 0 shard-{shard}\n{}", request(2)));
        expect(&mut client, &request(2));
    }
    server.stop();
}

#[test]
fn a_tls_peer_that_does_not_prove_its_domain_gets_nothing() {
    let keys = keys(|_| {});
    let server = start(1, &[Transport::Tls], &keys.settings());
    let peer = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = peer.local_addr().unwrap();
    server.order("DO domain b.example");
    server.send_to(address, &request(1));
    let mut back = keys.serve(peer.accept().unwrap().0);
    assert!(back.read(&mut [0; 10]).is_err());
    assert_eq!(server.next_error().remote, address);
    let statistics = server.statistics(|s| s.tls_failures == 1);
    assert_eq!((statistics.open, statistics.connected, statistics.queued_bytes), (0, 0, 0));
    server.stop();
}

#[test]
fn a_tls_alias_is_only_for_names_that_were_proved() {
    let keys = keys(|_| {});
    let server = start(1, &[Transport::Tls], &keys.settings());
    let alias = closed_port();
    let order = |path: engine::Path| server.order(&format!("DO alias 1 {} {}", path.flow.0, alias.port()));
    let mut client = keys.secure(server.connect(), None);
    ask(&mut client, 1);
    order(server.next_message().path);
    server.send_to(alias, &request(2));
    assert_eq!(server.next_error().remote, alias);
    let mut client = keys.secure(server.connect(), Some(()));
    ask(&mut client, 3);
    order(server.next_message().path);
    for name in ["", "a.example"] {
        server.order(&format!("DO domain {name}"));
        server.send_to(alias, &request(4));
        expect(&mut client, &request(4));
    }
    server.order("DO domain b.example");
    server.send_to(alias, &request(5));
    assert_eq!(server.next_error().remote, alias);
    server.stop();
}

/// RFC 5923 §8.2: what an alias led to may have gone, and then a connection to the same place is opened.
#[test]
fn a_tls_alias_whose_connection_has_gone_is_replaced_by_a_connection_of_our_own() {
    let keys = keys(|_| {});
    let server = start(1, &[Transport::Tls], &keys.settings());
    let peer = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = peer.local_addr().unwrap();
    let mut client = keys.secure(server.connect(), Some(()));
    ask(&mut client, 1);
    let flow = server.next_message().path.flow.0;
    server.order(&format!("DO alias 1 {flow} {}", address.port()));
    server.order("DO domain a.example");
    server.send_to(address, &request(2));
    expect(&mut client, &request(2));
    send(&mut client, &answered(2));
    server.next_message();
    client.conn.send_close_notify();
    client.flush().unwrap();
    drop(client);
    server.statistics(|s| s.open == 0);
    server.send_to(address, &request(3));
    let mut back = keys.serve(peer.accept().unwrap().0);
    expect(&mut back, &request(3));
    send(&mut back, &answered(3));
    assert_eq!(server.next_message().text(), answered(3));
    // The new one is used from then on.
    server.send_to(address, &request(4));
    expect(&mut back, &request(4));
    server.stop();
}

/// RFC 5923 §8.3: nothing new is begun after the peer's closure alert.
#[test]
fn after_the_peers_close_notify_a_request_takes_another_connection() {
    let keys = keys(|_| {});
    let server = start(1, &[Transport::Tls], &keys.settings());
    let peer = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = peer.local_addr().unwrap();
    server.send_to(address, &request(1));
    let mut first = keys.serve(peer.accept().unwrap().0);
    expect(&mut first, &request(1));
    // Its own question keeps the connection until it is answered.
    send(&mut first, &(answered(1) + &request(7)));
    assert_eq!(server.next_message().text(), answered(1));
    first.conn.send_close_notify();
    first.flush().unwrap();
    expect(&mut first, &answered(7));
    assert_eq!(first.read(&mut [0; 10]).unwrap(), 0, "close_notify, and nothing new before it");
    server.send_to(address, &request(2));
    let mut second = keys.serve(peer.accept().unwrap().0);
    expect(&mut second, &request(2));
    server.stop();
}

#[test]
fn a_tls_peer_that_does_not_read_loses_its_connection() {
    let keys = keys(|_| {});
    let mut settings = keys.settings();
    settings.streams.write_queue_bytes_max = 100_000;
    let server = start(1, &[Transport::Tls], &settings);
    let mut client = keys.secure(server.connect_narrow(), None);
    ask(&mut client, 1);
    let path = server.next_message().path;
    let big = format!("SIP/2.0 200 OK\r\n\r\n{}", "x".repeat(60_000));
    while server.statistics(|_| true).write_queue_full == 0 {
        for _ in 0..8 {
            server.send_on(path, 0, &big);
        }
    }
    assert_eq!(server.statistics(|s| s.open == 0).queued_bytes, 0);
    server.stop();
}

// --- WebSocket --------------------------------------------------------------------------------------------------------

fn upgrade<S: Read + Write>(stream: S, address: SocketAddr) -> WebSocket<S> {
    use tungstenite::client::IntoClientRequest as _;
    let mut request = format!("ws://{address}/").into_client_request().unwrap();
    request.headers_mut().insert("Sec-WebSocket-Protocol", "sip".parse().unwrap());
    tungstenite::client(request, stream).unwrap_or_else(|_| panic!("refused")).0
}

fn ask_frame<S: Read + Write>(socket: &mut WebSocket<S>, cseq: u32) {
    socket.send(Message::text(request(cseq))).unwrap();
    assert_eq!(socket.read().unwrap().into_text().unwrap().as_str(), answered(cseq));
}

#[test]
fn messages_pass_over_websocket_in_clear_and_over_tls() {
    let keys = keys(|_| {});
    let server = start(1, &[Transport::Ws, Transport::Wss], &keys.settings());
    let mut clear = upgrade(server.connect_to(1), server.addresses[1]);
    let mut secure = upgrade(keys.secure(server.connect_to(2), None), server.addresses[2]);
    for cseq in 1..50 {
        ask_frame(&mut clear, cseq);
        let path = server.next_message().path;
        ask_frame(&mut secure, cseq);
        assert_eq!((path.listener.0, server.next_message().path.listener.0), (1, 2));
        // And in the other direction, by the connection.
        server.send_on(path, 0, &request(cseq));
        assert_eq!(clear.read().unwrap().into_text().unwrap().as_str(), request(cseq));
    }
    let statistics = server.statistics(|s| s.messages_received == 98);
    assert_eq!((statistics.open, statistics.open_tls), (2, 1));
    server.stop();
}

#[test]
fn a_websocket_is_closed_in_order_by_either_side() {
    let server = start(1, &[Transport::Ws], &settings());
    let mut socket = upgrade(server.connect(), server.addresses[1]);
    ask_frame(&mut socket, 1);
    socket.close(None).unwrap();
    while socket.read().is_ok() {}
    drop(socket);
    assert_eq!(server.statistics(|s| s.open == 0).closed_by_peer, 1);
    let mut socket = upgrade(server.connect(), server.addresses[1]);
    ask_frame(&mut socket, 2);
    server.stop();
    let Message::Close(Some(frame)) = socket.read().unwrap() else { panic!("no close") };
    assert_eq!(u16::from(frame.code), 1_001);
}

#[test]
fn keep_alives_in_frames_are_answered_and_are_no_messages() {
    let server = start(1, &[Transport::Ws], &settings());
    let mut socket = upgrade(server.connect(), server.addresses[1]);
    socket.send(Message::text("\r\n\r\n")).unwrap();
    assert_eq!(socket.read().unwrap().into_text().unwrap().as_str(), "\r\n");
    socket.send(Message::Ping(b"?"[..].into())).unwrap();
    assert_eq!(socket.read().unwrap(), Message::Pong(b"?"[..].into()));
    server.nothing_comes();
    server.stop();
}

#[test]
fn a_silent_websocket_is_asked_and_lives_as_long_as_it_answers() {
    let mut settings = settings();
    settings.streams.lifetime = Duration::from_millis(500);
    let server = start(1, &[Transport::Ws], &settings);
    let mut lively = upgrade(server.connect(), server.addresses[1]);
    let mut dead = upgrade(server.connect(), server.addresses[1]);
    for _ in 0..4 {
        assert!(matches!(lively.read().unwrap(), Message::Ping(_)));
        lively.flush().unwrap();
    }
    assert!(matches!(dead.read().unwrap(), Message::Ping(_)));
    assert!(matches!(dead.read().unwrap(), Message::Close(_)));
    let statistics = server.statistics(|s| s.idle == 1);
    assert_eq!(statistics.open, 1);
    server.stop();
}

#[test]
fn what_is_no_websocket_is_refused_and_closed() {
    let server = start(1, &[Transport::Ws], &settings());
    let mut stream = server.connect();
    send(&mut stream, &request(1));
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400") || answer.starts_with("HTTP/1.1 405"), "{answer}");
    drop(stream);
    assert_eq!(server.statistics(|s| s.open == 0).websocket_refused, 1);
    let mut socket = upgrade(server.connect(), server.addresses[1]);
    // Not masked: RFC 6455 §5.1 has the server close.
    socket.get_mut().write_all(&[0x81, 1, b'x']).unwrap();
    assert!(matches!(socket.read().unwrap(), Message::Close(Some(_))));
    drop(socket);
    assert_eq!(server.statistics(|s| s.open == 0).websocket_violations, 1);
    server.stop();
}

#[test]
fn half_a_record_of_tls_is_counted_and_does_not_stay() {
    let keys = keys(|_| {});
    let mut settings = keys.settings();
    settings.streams.message_timeout = Duration::from_millis(500);
    let server = start(1, &[Transport::Tls], &settings);
    let mut client = keys.secure(server.connect(), None);
    ask(&mut client, 1);
    client.sock.write_all(&[0x17, 3, 3, 0x20, 0]).unwrap();
    client.sock.write_all(&[0; 5_000]).unwrap();
    server.statistics(|s| s.partial_bytes >= 5_000);
    assert_eq!(server.statistics(|s| s.open == 0).slow, 1);
    assert_eq!(server.statistics(|_| true).partial_bytes, 0);
    server.stop();
}

#[test]
fn a_websocket_handshake_that_takes_too_long_ends() {
    let mut settings = settings();
    settings.streams.message_timeout = Duration::from_millis(300);
    let server = start(1, &[Transport::Ws], &settings);
    let mut stream = server.connect();
    send(&mut stream, "GET / HTTP/1.1\r\n");
    expect_closed(&mut stream);
    assert_eq!(server.statistics(|s| s.open == 0).slow, 1);
    server.stop();
}
