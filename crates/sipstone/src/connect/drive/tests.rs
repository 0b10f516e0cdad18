//! Against small servers on loopback, over TCP and TLS.

use super::*;
use crate::certs::{Certificates, KeyKind, Name};
use crate::connect::wire::Registration;
use crate::spec::{OwnCertificate, Tls, TlsMode, Transport};
use rustls::{ServerConfig, ServerConnection};
use std::net::TcpListener;

const PATIENCE: Duration = Duration::from_secs(10);

fn settings(target: SocketAddr, connections: u32) -> Settings {
    Settings {
        target,
        connections,
        rate: 1000.0,
        keepalive: Some(Duration::from_secs(1)),
        sources: vec![target.ip()],
        register: None,
        seed: 7,
    }
}

/// A server with a thread for each connection: answers pings with pongs and registrations with `status`.
fn server(security: Option<Arc<ServerConfig>>, status: u16) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let security = security.clone();
            std::thread::spawn(move || match security {
                None => serve(stream, status),
                Some(config) => {
                    serve(rustls::StreamOwned::new(ServerConnection::new(config).unwrap(), stream), status);
                }
            });
        }
    });
    address
}

fn serve(mut stream: impl Read + Write, status: u16) {
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        let answer = match &buffer[..count] {
            PING => "\r\n".to_owned(),
            _ => format!("SIP/2.0 {status} Answer\r\nContent-Length: 0\r\n\r\n"),
        };
        if stream.write_all(answer.as_bytes()).and_then(|()| stream.flush()).is_err() {
            return;
        }
    }
}

fn until(crew: &Crew, done: impl Fn(&Counts, bool) -> bool) -> Counts {
    let limit = Instant::now() + PATIENCE;
    loop {
        let (counts, tried) = crew.counts();
        if done(&counts, tried) {
            return counts;
        }
        assert!(Instant::now() < limit && !crew.broken(), "{counts:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn certificates() -> Certificates {
    let name = [Name::Address("127.0.0.1".parse().unwrap())];
    Certificates::new(KeyKind::EcdsaP256, &name, &name).unwrap()
}

fn server_config(certificates: &Certificates) -> Arc<ServerConfig> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(certificates.server.chain.clone(), certificates.server.key.clone_key());
    Arc::new(config.unwrap())
}

fn security(certificates: &Certificates, mode: TlsMode) -> Ends {
    let own = OwnCertificate {
        chain: certificates.client.chain_pem().into(),
        key: certificates.client.key_pem().into(),
    };
    let authorities = Some(certificates.authority_pem().to_owned());
    let tls = Tls { mode, authorities, own: Some(own), ..Tls::default() };
    Ends::new(&tls, "127.0.0.1".parse().unwrap(), &[]).unwrap()
}

#[test]
fn connections_are_opened_pinged_and_kept() {
    let crew = Crew::start(&settings(server(None, 200), 20), None, 2).unwrap();
    let counts = until(&crew, |counts, tried| tried && counts.pongs >= 20);
    assert_eq!((counts.opened, counts.open, counts.failed(), counts.lost()), (20, 20, 0, 0));
    assert_eq!((counts.connect.count(), counts.handshake.count()), (20, 0));
    let end = crew.end().unwrap();
    assert_eq!((end.begun, end.lost()), (20, 0));
}

#[test]
fn a_user_is_registered_on_each_connection() {
    let registration = |target: SocketAddr| Registration {
        domain: target.to_string(),
        user_format: "user{}".into(),
        first: 1,
        expires: 60,
        transport: Transport::Tcp,
    };
    let target = server(None, 200);
    let with = |target| Settings { register: Some(registration(target)), ..settings(target, 5) };
    let crew = Crew::start(&with(target), None, 1).unwrap();
    assert_eq!(until(&crew, |_, tried| tried).register.count(), 5);
    let crew = Crew::start(&with(server(None, 403)), None, 1).unwrap();
    assert_eq!(until(&crew, |_, tried| tried).failed.get("register-403"), Some(&5));
}

#[test]
fn refused_and_lost_connections_are_told_apart() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let crew = Crew::start(&settings(closed, 3), None, 1).unwrap();
    assert_eq!(until(&crew, |_, tried| tried).failed.get("refused"), Some(&3));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let crew = Crew::start(&settings(listener.local_addr().unwrap(), 1), None, 1).unwrap();
    let (stream, _) = listener.accept().unwrap();
    until(&crew, |counts, _| counts.open == 1);
    drop(stream);
    let counts = until(&crew, |counts, _| counts.lost() > 0);
    assert_eq!((counts.lost.get("closed"), counts.failed()), (Some(&1), 0));
}

#[test]
fn handshakes_over_tls_are_full_or_resumed_as_asked() {
    let certificates = certificates();
    let target = server(Some(server_config(&certificates)), 200);
    for (mode, resumed) in [(TlsMode::Full, false), (TlsMode::Reuse, true)] {
        let slow = Settings { rate: 50.0, ..settings(target, 10) };
        let crew = Crew::start(&slow, Some(&security(&certificates, mode)), 1).unwrap();
        // Tickets of TLS 1.3 come after the handshake, so that the first pong is waited for.
        let counts = until(&crew, |counts, tried| tried && counts.pongs >= 10);
        assert_eq!((counts.opened, counts.handshake.count()), (10, 10), "{counts:?}");
        assert_eq!(counts.handshakes_resumed > 0, resumed, "{counts:?}");
    }
}

#[test]
fn a_server_that_cannot_prove_its_name_is_not_connected_to() {
    let target = server(Some(server_config(&certificates())), 200);
    let stranger = security(&certificates(), TlsMode::Full);
    let crew = Crew::start(&settings(target, 2), Some(&stranger), 1).unwrap();
    assert_eq!(until(&crew, |_, tried| tried).failed.get("handshake-certificate"), Some(&2));
}

#[test]
fn a_server_that_does_not_speak_tls_is_told() {
    let target = server(None, 200);
    let crew = Crew::start(&settings(target, 1), Some(&security(&certificates(), TlsMode::Full)), 1).unwrap();
    let counts = until(&crew, |_, tried| tried);
    assert_eq!(counts.failed(), 1);
    assert!(counts.failed.keys().next().unwrap().starts_with("handshake-"), "{counts:?}");
}
