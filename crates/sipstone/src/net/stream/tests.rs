//! Two tables of connections against each other, on loopback.

use super::tls::Ends;
use super::*;
use crate::spec::{Tls, TlsMode};
use std::time::Duration;

const OPTIONS: &[u8] = b"OPTIONS sip:a SIP/2.0\r\nContent-Length: 0\r\n\r\n";
const OK: &[u8] = b"SIP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n";

struct Pair {
    client: Streams,
    server: Streams,
    address: SocketAddr,
    clock: crate::net::Clock,
    /// What the client received: the connection and the message.
    answers: Vec<ConnectionId>,
    /// What the server received.
    requests: Vec<ConnectionId>,
}

fn ends(tls: &Tls) -> Ends {
    let here = IpAddr::from([127, 0, 0, 1]);
    Ends::new(tls, here, &[here]).unwrap()
}

impl Pair {
    fn new(transport: Transport, tls: &Tls) -> Pair {
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let table = |listeners| {
            let place = Place { local: address.ip(), transport };
            let ends = transport.is_tls().then(|| ends(tls));
            Streams::new(Equipment { places: vec![Some(place)], listeners, ends, open_max: 8 }).unwrap()
        };
        Pair {
            client: table(Vec::new()),
            server: table(vec![(listener, SocketId(0))]),
            address,
            clock: crate::net::Clock::start(),
            answers: Vec::new(),
            requests: Vec::new(),
        }
    }

    fn send(&mut self, connection: ConnectionId) {
        self.client.send(self.clock.now(), (SocketId(0), connection, self.address), OPTIONS);
        self.client.flush();
    }

    /// Lets both work until `done`, for at most twenty seconds; the server answers every request.
    fn until(&mut self, done: impl Fn(&Pair) -> bool) {
        let begun = std::time::Instant::now();
        while !done(self) {
            assert!(begun.elapsed() < Duration::from_secs(20), "nothing happens");
            let now = self.clock.now();
            let Pair { client, server, requests, answers, .. } = self;
            let mut new = Vec::new();
            server.receive(now, &mut |arrived| new.push((arrived.connection, arrived.from))).unwrap();
            for (connection, from) in new {
                requests.push(connection);
                server.send(now, (SocketId(0), connection, from), OK);
            }
            server.flush();
            client.receive(now, &mut |arrived| answers.push(arrived.connection)).unwrap();
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn messages_share_a_connection_or_have_their_own_over_every_transport() {
    for transport in [Transport::Tcp, Transport::Tls, Transport::Ws, Transport::Wss] {
        let mut pair = Pair::new(transport, &Tls::default());
        for _ in 0..3 {
            pair.send(ConnectionId::shared(1));
        }
        pair.send(ConnectionId::own(5, 6, 7));
        pair.until(|pair| pair.answers.len() == 4);
        let (client, server) = (pair.client.take_tally(), pair.server.take_tally());
        assert_eq!((client.opened, server.accepted), (2, 2), "{transport}");
        assert_eq!(client.connect_time.count(), 2);
        let secured = if transport.is_tls() { 2 } else { 0 };
        assert_eq!((client.client.full, server.server.full), (secured, secured), "{transport}");
        assert_eq!(client.suites.values().sum::<u64>(), secured);
        let own = pair.answers.iter().filter(|id| id.owner() == Some(5)).count();
        assert_eq!(own, 1);
    }
}

#[test]
fn sessions_are_resumed_when_they_are_to_be_reused_only() {
    for (mode, resumed) in [(TlsMode::Full, 0), (TlsMode::Mutual, 0), (TlsMode::Reuse, 3)] {
        let mut pair = Pair::new(Transport::Tls, &Tls { mode, ..Tls::default() });
        for number in 0..4 {
            pair.send(ConnectionId::own(number, 0, 0));
            pair.until(|pair| pair.answers.len() == number as usize + 1);
            pair.client.close(ConnectionId::own(number, 0, 0));
            pair.client.flush();
        }
        let tally = pair.client.take_tally();
        assert_eq!((tally.client.full, tally.client.resumed), (4 - resumed, resumed), "{mode:?}");
        assert_eq!(tally.closed, 4);
    }
}

#[test]
fn the_end_of_a_connection_is_told_and_a_new_one_is_opened_for_the_next_message() {
    let mut pair = Pair::new(Transport::Tcp, &Tls::default());
    let shared = ConnectionId::shared(1);
    pair.send(shared);
    pair.until(|pair| pair.answers.len() == 1);
    let accepted = pair.requests[0];
    pair.server.close(accepted);
    pair.server.flush();
    pair.until(|pair| !pair.client.lost.is_empty());
    assert_eq!(pair.client.take_lost(), Some((shared, Failure::Connection)));
    assert_eq!(pair.client.take_tally().closed_by_server, 1);
    pair.server.send(pair.clock.now(), (SocketId(0), accepted, pair.address), OK);
    assert_eq!(pair.server.take_tally().undeliverable, 1);
    pair.send(shared);
    pair.until(|pair| pair.answers.len() == 2);
    assert_eq!(pair.client.take_tally().opened, 1);
}

#[test]
fn nobody_listening_is_a_refusal_and_sip_on_a_tls_port_a_failed_handshake() {
    let mut pair = Pair::new(Transport::Tcp, &Tls::default());
    let nowhere = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let shared = ConnectionId::shared(1);
    pair.client.send(pair.clock.now(), (SocketId(0), shared, nowhere), OPTIONS);
    pair.until(|pair| !pair.client.lost.is_empty());
    assert_eq!(pair.client.take_lost(), Some((shared, Failure::ConnectRefused)));
    let failures = pair.client.take_tally().failures;
    assert_eq!(failures.into_iter().collect::<Vec<_>>(), [("connect: Connection refused".to_owned(), 1)]);

    let mut tls = Pair::new(Transport::Tls, &Tls::default());
    tls.server.places = vec![Some(Place { local: tls.address.ip(), transport: Transport::Tcp })];
    tls.send(shared);
    tls.until(|pair| !pair.client.lost.is_empty() || !pair.server.tally.failures.is_empty());
    assert!(tls.server.tally.failures.keys().any(|cause| cause.contains("speaks TLS")));
    tls.until(|pair| !pair.client.lost.is_empty());
    assert_eq!(tls.client.take_lost(), Some((shared, Failure::Handshake)));
}

#[test]
fn more_connections_than_allowed_are_counted_and_not_opened() {
    let mut pair = Pair::new(Transport::Tcp, &Tls::default());
    for number in 0..9 {
        pair.send(ConnectionId::own(number, 0, 0));
    }
    assert_eq!(pair.client.take_lost(), Some((ConnectionId::own(8, 0, 0), Failure::GeneratorDropped)));
    assert_eq!(pair.client.take_tally().files_exhausted, 1);
    pair.until(|pair| pair.answers.len() == 8);
    pair.client.close_own();
    assert_eq!(pair.client.open, 0);
}

#[test]
fn names_of_connections_tell_their_owners() {
    let own = ConnectionId::own(u32::MAX, 3, 60);
    assert_eq!((own.owner(), own.accepted_slot()), (Some(u32::MAX), None));
    assert_ne!(own, ConnectionId::own(u32::MAX, 3, 61));
    assert_ne!(own, ConnectionId::own(u32::MAX, 4, 60));
    let accepted = ConnectionId::accepted(7, u32::MAX);
    assert_eq!((accepted.owner(), accepted.accepted_slot()), (None, Some(7)));
    assert_eq!(ConnectionId::shared(9).owner(), None);
}
