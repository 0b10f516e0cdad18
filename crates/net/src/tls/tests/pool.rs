//! The threads that shake hands: deadlines, limits, and whatever comes in.

use super::*;
use proptest::prelude::*;
use std::io::ErrorKind;
use std::net::Shutdown;

/// A server with one pool and short patience.
struct Server {
    pki: Pki,
    pool: HandshakePool,
    desk: Desk,
    listener: TcpListener,
}

impl Server {
    fn new(handshake_timeout: Duration, handshakes_max: usize) -> Server {
        let pki = Pki::new();
        let settings = TlsSettings {
            servers: vec![server_profile(&[pki.simple("s", "example.org")])],
            handshake_timeout,
            handshakes_max,
            ..TlsSettings::default()
        };
        let pool = HandshakePool::start(Tls::load(settings).unwrap(), 2).unwrap();
        Server { pki, pool, desk: Desk::new(), listener: listener() }
    }

    /// Hands over one connection; the client's socket, if it was taken.
    fn accept(&self, flow: u64) -> Result<TcpStream, TcpStream> {
        let (client, server) = connection(&self.listener);
        let at = self.listener.local_addr().unwrap();
        match self.pool.accept(server, at, client.local_addr().unwrap(), FlowId(flow), &self.desk.post) {
            Ok(()) => Ok(client),
            Err(_closed) => Err(client),
        }
    }

    /// What comes of it when a client begins with these bytes.
    fn answer_to(&mut self, bytes: &[u8]) -> HandshakeError {
        let mut client = self.accept(9).unwrap();
        client.write_all(bytes).unwrap();
        self.desk.outcome(FlowId(9)).unwrap_err()
    }
}

/// The socket was closed by the other side, after an alert or not.
fn is_closed(socket: &mut TcpStream) -> bool {
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut buffer = [0; 512];
    loop {
        match socket.read(&mut buffer) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() == ErrorKind::ConnectionReset,
        }
    }
}

#[test]
fn a_handshake_that_stalls_times_out() {
    let mut server = Server::new(Duration::from_millis(300), 100);
    let begun = Instant::now();
    let mut silent = server.accept(1).unwrap();
    let mut half = server.accept(2).unwrap();
    half.write_all(&[22, 3, 1, 2, 0, 1, 0, 1]).unwrap();
    for flow in [1, 2] {
        assert_eq!(server.desk.outcome(FlowId(flow)).unwrap_err(), HandshakeError::TimedOut);
    }
    let took = begun.elapsed();
    assert!(took >= Duration::from_millis(300) && took < Duration::from_secs(10), "{took:?}");
    assert!(is_closed(&mut silent) && is_closed(&mut half));
    let statistics = server.pool.statistics();
    assert_eq!((statistics.timed_out, statistics.under_way), (2, 0));
}

#[test]
fn a_client_that_trickles_has_no_longer_than_others() {
    let mut server = Server::new(Duration::from_millis(400), 100);
    let mut client = server.accept(1).unwrap();
    let hello = [&[22_u8, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3][..], &[7; 300]].concat();
    for byte in hello {
        if client.write_all(&[byte]).is_err() {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
        server.desk.look();
        if !server.desk.came.is_empty() {
            break;
        }
    }
    assert_eq!(server.desk.outcome(FlowId(1)).unwrap_err(), HandshakeError::TimedOut);
}

#[test]
fn more_than_may_be_under_way_are_refused_at_once() {
    let mut server = Server::new(Duration::from_secs(3), 8);
    let waiting: Vec<TcpStream> = (1..=8).map(|flow| server.accept(flow).unwrap()).collect();
    for flow in 9..=20 {
        let mut refused = server.accept(flow).unwrap_err();
        assert!(is_closed(&mut refused));
    }
    let statistics = server.pool.statistics();
    assert_eq!((statistics.refused, statistics.under_way), (12, 8));
    for flow in 1..=8 {
        assert_eq!(server.desk.outcome(FlowId(flow)).unwrap_err(), HandshakeError::TimedOut);
    }
    drop(waiting);
    server.desk.look();
    assert!(server.desk.came.is_empty(), "what was refused has no outcome");
    server.accept(21).unwrap();
}

#[test]
fn a_storm_of_handshakes_comes_through() {
    let pki = Pki::new();
    let server = servers(vec![server_profile(&[pki.simple("s", "example.org")])]);
    let client = clients(client_profile(Some(&pki.ca)));
    let mut couple = Couple::new(&server, &client);
    let at = couple.listener.local_addr().unwrap();
    const STORM: u64 = 200;
    for number in 0..STORM {
        let (one, other) = connection(&couple.listener);
        couple.server.accept(other, at, at, FlowId(1_000 + number), &couple.desk.post).unwrap();
        couple.client.connect(one, at, Some(b"example.org"), FlowId(number), &couple.desk.post).unwrap();
    }
    let mut open = Vec::new();
    for number in 0..STORM {
        open.push(couple.desk.outcome(FlowId(number)).unwrap());
        open.push(couple.desk.outcome(FlowId(1_000 + number)).unwrap());
    }
    let (server, client) = (couple.server.statistics(), couple.client.statistics());
    assert_eq!(server.accepted_full + server.accepted_resumed, STORM);
    assert_eq!(client.connected_full + client.connected_resumed, STORM);
    assert_eq!((server.under_way, client.under_way), (0, 0));
}

#[test]
fn what_is_not_tls_is_told_apart() {
    let mut server = Server::new(Duration::from_secs(10), 100);
    let sip = server.answer_to(b"OPTIONS sip:example.org SIP/2.0\r\n\r\n");
    assert_eq!(sip, HandshakeError::NotTls(NotTls::Sip));
    assert!(sip.to_string().contains("SIP without TLS"));
    assert_eq!(server.answer_to(b"GET / HTTP/1.1\r\n\r\n"), HandshakeError::NotTls(NotTls::Http));
    assert_eq!(server.answer_to(b"\x00\x01\x02"), HandshakeError::NotTls(NotTls::Other));
    assert_eq!(server.answer_to(b"\x80\x2e\x01\x00\x02"), HandshakeError::NotTls(NotTls::Other));
    assert_eq!(server.pool.statistics().not_tls, 4);
}

#[test]
fn garbage_behind_a_good_beginning_is_a_protocol_error() {
    let mut server = Server::new(Duration::from_secs(10), 100);
    let bad = [
        // A record of a handshake with an unknown message; one that is too long; an empty one.
        [&[22, 3, 1, 0, 8][..], &[99, 0, 0, 4, 1, 2, 3, 4]].concat(),
        [&[22, 3, 3, 0xff, 0xff][..], &[0; 100]].concat(),
        [&[22, 3, 1, 0, 0][..], &[22, 3, 1, 0, 0]].concat(),
        // A ClientHello that says it is longer than it may be.
        [&[22, 3, 1, 0, 8][..], &[1, 0xff, 0xff, 0xff, 3, 3, 0, 0]].concat(),
    ];
    for bytes in bad {
        let error = server.answer_to(&bytes);
        assert!(matches!(error, HandshakeError::Protocol(_)), "{bytes:?}: {error:?}");
    }
    assert_eq!(server.pool.statistics().protocol, 4);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn no_bytes_panic_in_a_handshake(
        garbage in proptest::collection::vec(any::<u8>(), 1..600),
        honest in any::<bool>(),
    ) {
        thread_local! {
            static SERVER: std::cell::RefCell<Option<Server>> = const { std::cell::RefCell::new(None) };
        }
        SERVER.with_borrow_mut(|server| {
            let server = server.get_or_insert_with(|| Server::new(Duration::from_millis(50), 100));
            let mut bytes = vec![22, 3, 1];
            if honest {
                // Good headers of a record and of a ClientHello around it.
                let length = u16::try_from(garbage.len()).unwrap();
                bytes.extend_from_slice(&(length + 4).to_be_bytes());
                bytes.extend_from_slice(&[1, 0]);
                bytes.extend_from_slice(&length.to_be_bytes());
            }
            bytes.extend_from_slice(&garbage);
            let error = server.answer_to(&bytes);
            assert!(!error.to_string().contains("fault"), "{error}");
        });
    }
}

/// A relay from one socket to another that turns around one bit of the byte at `place`.
fn mutilate(from: TcpStream, to: TcpStream, place: usize) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        let (mut buffer, mut seen) = ([0; 4_096], 0);
        while let Ok(count @ 1..) = (&from).read(&mut buffer) {
            if (seen..seen + count).contains(&place) {
                buffer[place - seen] ^= 1 << (place % 8);
            }
            seen += count;
            if (&to).write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    })
}

#[test]
fn one_wrong_bit_anywhere_breaks_a_handshake_and_nothing_else() {
    let pki = Pki::new();
    for versions in [ONLY_1_2, ONLY_1_3] {
        let own = pki.simple("s", "example.org");
        let server = servers(vec![Profile { versions, ..server_profile(&[own]) }]);
        let settings = TlsSettings {
            clients: vec![client_profile(Some(&pki.ca))],
            handshake_timeout: Duration::from_millis(200),
            ..TlsSettings::default()
        };
        let mut couple = Couple::new(&server, &Tls::load(settings).unwrap());
        let at = couple.listener.local_addr().unwrap();
        let mut broken = 0;
        for place in (0..900).step_by(61) {
            for (up, down) in [(place, usize::MAX), (usize::MAX, place)] {
                let (near, far) = connection(&couple.listener);
                let (there, here) = connection(&couple.listener);
                couple.server.accept(here, at, at, SERVER, &couple.desk.post).unwrap();
                couple.client.connect(near, at, Some(b"example.org"), CLIENT, &couple.desk.post).unwrap();
                let relays = [
                    mutilate(far.try_clone().unwrap(), there.try_clone().unwrap(), up),
                    mutilate(there, far, down),
                ];
                let client = couple.desk.outcome(CLIENT);
                let told = [client.map(drop), couple.desk.outcome(SERVER).map(drop)];
                for error in told.into_iter().filter_map(Result::err) {
                    broken += 1;
                    assert!(!error.to_string().contains("fault"), "{place}: {error}");
                }
                relays.into_iter().for_each(|relay| relay.join().unwrap());
            }
        }
        assert!(broken > 10, "{broken}");
        couple.talk(Some("example.org"));
    }
}

#[test]
fn endless_fragments_are_cut_off() {
    let mut server = Server::new(Duration::from_secs(10), 100);
    let mut client = server.accept(1).unwrap();
    client.set_write_timeout(Some(PATIENCE)).unwrap();
    // A ClientHello of 65,535 bytes in records of one byte each takes 390 kilobytes.
    let mut hello = vec![1, 0, 0xff, 0xff];
    hello.resize(65_539, 7);
    let records: Vec<u8> = hello.iter().flat_map(|byte| [22, 3, 1, 0, 1, *byte]).collect();
    let _ = client.write_all(&records);
    let error = server.desk.outcome(FlowId(1)).unwrap_err();
    assert!(matches!(error, HandshakeError::Protocol(_)), "{error:?}");
}

#[test]
fn a_client_that_goes_away_is_told_as_closed() {
    let mut server = Server::new(Duration::from_secs(10), 100);
    drop(server.accept(1).unwrap());
    let half = server.accept(2).unwrap();
    (&half).write_all(&[22, 3, 1]).unwrap();
    half.shutdown(Shutdown::Write).unwrap();
    for flow in [1, 2] {
        assert_eq!(server.desk.outcome(FlowId(flow)).unwrap_err(), HandshakeError::Closed);
    }
    assert_eq!(server.pool.statistics().closed, 2);
}

#[test]
fn a_client_hello_in_single_bytes_is_put_together() {
    let mut server = Server::new(Duration::from_secs(10), 100);
    let slow = server.accept(1).unwrap();
    let tls = clients(client_profile(Some(&server.pki.ca)));
    // A relay between the pool's client and the server's socket that cuts everything into bytes.
    let (near, far) = connection(&server.listener);
    let at = server.listener.local_addr().unwrap();
    let pool = HandshakePool::start(tls, 1).unwrap();
    pool.connect(near, at, Some(b"example.org"), CLIENT, &server.desk.post).unwrap();
    let relay = |from: TcpStream, to: TcpStream| {
        to.set_nodelay(true).unwrap();
        std::thread::spawn(move || {
            let mut buffer = [0; 4_096];
            while let Ok(count @ 1..) = (&from).read(&mut buffer) {
                for byte in &buffer[..count] {
                    if (&to).write_all(&[*byte]).is_err() {
                        return;
                    }
                }
            }
        })
    };
    let up = relay(far.try_clone().unwrap(), slow.try_clone().unwrap());
    let down = relay(slow.try_clone().unwrap(), far.try_clone().unwrap());
    let accepted = server.desk.outcome(FlowId(1)).unwrap();
    let connected = server.desk.outcome(CLIENT).unwrap();
    assert_eq!(accepted.session.facts().server_name.as_deref(), Some("example.org"));
    drop((accepted, connected));
    for socket in [&far, &slow] {
        let _ = socket.shutdown(Shutdown::Both);
    }
    up.join().unwrap();
    down.join().unwrap();
}

#[test]
fn a_full_queue_closes_the_connection_and_is_counted() {
    let mut server = Server::new(Duration::from_secs(10), 100);
    while server.desk.post.send(Parcel::Secured { flow: FlowId(0), result: Err(HandshakeError::Closed) }) {}
    let mut client = server.accept(1).unwrap();
    client.write_all(b"nonsense").unwrap();
    assert!(is_closed(&mut client));
    // It is not under way any more a moment before it is counted.
    let until = Instant::now() + PATIENCE;
    while server.pool.statistics().undelivered == 0 {
        assert!(Instant::now() < until);
        std::thread::yield_now();
    }
    let HandshakeStatistics { under_way, undelivered, .. } = server.pool.statistics();
    assert_eq!((under_way, undelivered), (0, 1));
    server.desk.look();
    assert!(server.desk.came.iter().all(|(flow, _)| *flow == FlowId(0)));
}

#[test]
fn what_is_under_way_when_the_pool_ends_is_told_as_closed() {
    let mut server = Server::new(Duration::from_secs(10), 100);
    let _clients: Vec<TcpStream> = (1..=5).map(|flow| server.accept(flow).unwrap()).collect();
    let (pki, mut desk) = (server.pki, std::mem::replace(&mut server.desk, Desk::new()));
    drop(server.pool);
    drop(pki);
    for flow in 1..=5 {
        assert_eq!(desk.outcome(FlowId(flow)).unwrap_err(), HandshakeError::Closed);
    }
    desk.look();
    assert!(desk.came.is_empty(), "once each");
}

#[test]
fn the_threads_are_nicer_than_the_shards() {
    let _server = Server::new(Duration::from_secs(10), 1);
    let until = Instant::now() + PATIENCE;
    // Field 19 of a thread's stat is its nice value; the name in field 2 may not hold spaces here.
    let is_nice = || {
        fs::read_dir("/proc/self/task").unwrap().filter_map(Result::ok).any(|task| {
            let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            let fields: Vec<&str> = stat.split_whitespace().collect();
            fields.get(1).is_some_and(|name| name.starts_with("(tls-")) && fields.get(18) == Some(&"10")
        })
    };
    while !is_nice() {
        assert!(Instant::now() < until, "no thread `tls-N` at nice 10");
        std::thread::sleep(Duration::from_millis(10));
    }
}
