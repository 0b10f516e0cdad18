//! The engine with connections: names, closing, losses (RFC 3261 §17.1.1.2, §18).

use super::rig::{SERVER, one};
use crate::load::{ConnectionId, Input, Outbox, SocketId, Worker};
use crate::spec::*;
use crate::tally::Failure;
use sip::Instant;
use std::time::Duration;

struct Stage {
    worker: Worker,
    out: Outbox,
    now: Instant,
}

impl Stage {
    fn new(scenario: Scenario, links: Links) -> Stage {
        let workload = Workload { links, ..one(scenario) };
        let callees = (0, workload.users.count);
        let assignment = Assignment {
            workload,
            group: 0,
            rate_share: 1.0,
            callees,
            role: Role::Both,
            threads: 1,
            cpus: Vec::new(),
            sources: Vec::new(),
        };
        let (callers, at) = (["10.0.0.1:0".parse().unwrap()], ["10.0.0.1:7000".parse().unwrap()]);
        let mut worker = Worker::new(&assignment, 0, 1, callees, &callers, &at);
        let contacts = worker.contacts();
        worker.start(Instant::from_micros(1_000_000), &contacts);
        Stage { worker, out: Outbox::default(), now: Instant::from_micros(1_000_000) }
    }

    /// Goes to the next timeout and forgets what was sent before.
    fn step(&mut self) {
        self.out.clear();
        self.now = self.worker.next_timeout().unwrap();
        self.worker.handle(self.now, Input::Timeout, &mut self.out);
    }

    fn text(&self, send: usize) -> String {
        String::from_utf8_lossy(self.out.datagram(&self.out.sends[send])).into_owned()
    }

    /// Answers the first message of the outbox on its connection.
    fn answer(&mut self, status: &str) {
        let (connection, request) = (self.out.sends[0].connection, self.text(0));
        let copied = |name: &str| request.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
        let lines = ["Via", "From", "To", "Call-ID", "CSeq"].map(|name| copied(name) + "\r\n").concat();
        let bytes = format!("SIP/2.0 {status}\r\n{lines}Content-Length: 0\r\n\r\n");
        self.out.clear();
        let input = Input::Message {
            socket: SocketId(0),
            connection,
            from: SERVER.parse().unwrap(),
            bytes: bytes.as_bytes(),
        };
        self.worker.handle(self.now, input, &mut self.out);
    }
}

fn tcp(connections: Connections, close: Close) -> Links {
    let mut links = Links::both(Transport::Tcp);
    (links.caller.connections, links.close) = (connections, close);
    links
}

#[test]
fn requests_name_the_transport_and_are_not_sent_again() {
    let mut stage = Stage::new(Scenario::Options, tcp(Connections::Single, Close::Caller));
    stage.step();
    let text = stage.text(0);
    assert!(text.contains("\r\nVia: SIP/2.0/TCP 10.0.0.1;rport;branch="), "{text}");
    assert!(text.contains("@10.0.0.1;transport=tcp>"), "{text}");
    assert_eq!(stage.out.sends[0].connection, ConnectionId::shared(0));
    stage.worker.stop(stage.now, true);
    // The next thing that happens is the end of the transaction: RFC 3261 §17.1.2.2, Timer E is not set.
    stage.step();
    assert!(stage.out.sends.is_empty() && stage.now >= Instant::from_micros(33_000_000));
    let failures = &stage.worker.counts().measured.classes[0].failures;
    assert_eq!(failures.get(&Failure::Timeout), Some(&1));
}

#[test]
fn a_connection_of_an_operations_own_is_closed_with_it_by_whom_the_user_says() {
    for (close, closed) in [(Close::Caller, 1), (Close::Server, 0)] {
        let mut stage = Stage::new(Scenario::Options, tcp(Connections::PerCall, close));
        stage.step();
        let first = stage.out.sends[0].connection;
        stage.answer("200 OK");
        assert_eq!(stage.out.closes.len(), closed);
        stage.step();
        assert_ne!(stage.out.sends[0].connection, first, "the next one has another");
        stage.answer("503 Busy");
        assert_eq!(stage.out.closes.len(), 1, "what failed is always closed");
    }
}

#[test]
fn what_waits_on_a_lost_connection_has_failed_and_nothing_else() {
    let mut stage = Stage::new(Scenario::Options, tcp(Connections::Pool(2), Close::Caller));
    for _ in 0..4 {
        stage.step();
    }
    let lost = Input::Lost { connection: ConnectionId::shared(1), failure: Failure::Connection };
    stage.worker.handle(stage.now, lost, &mut stage.out);
    assert_eq!(stage.worker.open(), 2);
    let failures = stage.worker.counts().measured.classes[0].failures.clone();
    assert_eq!(failures.into_iter().collect::<Vec<_>>(), [(Failure::Connection, 2)]);
}

#[test]
fn transactions_have_connections_of_their_own_where_that_is_asked_for() {
    let mut stage = Stage::new(Scenario::InviteNotfound, tcp(Connections::PerTransaction, Close::Caller));
    stage.step();
    let connection = stage.out.sends[0].connection;
    stage.answer("404 Not Found");
    assert!(stage.text(0).starts_with("ACK "));
    assert_eq!((stage.out.sends[0].connection, stage.out.closes.as_slice()), (connection, &[connection][..]));
}

/// RFC 7118 §5: what stands in Via and Contact of a WebSocket client leads nowhere.
#[test]
fn over_websocket_names_that_lead_nowhere_stand_in_place_of_addresses() {
    let mut stage = Stage::new(Scenario::Register, Links::both(Transport::Ws));
    stage.step();
    let text = stage.text(0);
    assert!(text.contains("Via: SIP/2.0/WS c10-0-0-1-0.invalid;rport;branch="), "{text}");
    assert!(text.contains("@c10-0-0-1-7000.invalid;transport=ws>"), "{text}");
}

#[test]
fn callees_answer_on_the_connection_and_close_it_after_the_call() {
    let mut links = Links::both(Transport::Tcp);
    links.callee.connections = Connections::PerCall;
    let mut stage = Stage::new(Scenario::Invite, links);
    let connection = ConnectionId::accepted(3, 1);
    let give = |stage: &mut Stage, text: &str| {
        stage.out.clear();
        let from = SERVER.parse().unwrap();
        let input = Input::Message { socket: SocketId(1), connection, from, bytes: text.as_bytes() };
        stage.worker.handle(stage.now, input, &mut stage.out);
    };
    let request = |method: &str, cseq: u8, tag: &str| {
        format!(
            "{method} sip:user1@10.0.0.1:7000;transport=tcp SIP/2.0\r\nVia: SIP/2.0/TCP {SERVER};branch=z9hG4bK{cseq}{method}\r\n\
             From: <sip:a@b>;tag=1\r\nTo: <sip:user1@b>{tag}\r\nCall-ID: one\r\nCSeq: {cseq} {method}\r\n\
             Contact: <sip:a@b>\r\nContent-Length: 0\r\n\r\n"
        )
    };
    give(&mut stage, &request("INVITE", 1, ""));
    assert_eq!(stage.out.sends.len(), 2, "180 and 200");
    assert!(stage.out.sends.iter().all(|send| send.connection == connection));
    let ok = stage.text(1);
    let tag =
        ok.lines().find(|line| line.starts_with("To:")).unwrap().split(";tag=").nth(1).unwrap().to_owned();
    give(&mut stage, &request("ACK", 1, &format!(";tag={tag}")));
    assert!(stage.out.closes.is_empty());
    give(&mut stage, &request("BYE", 2, &format!(";tag={tag}")));
    assert!(stage.text(0).starts_with("SIP/2.0 200"));
    assert!(stage.out.closes.contains(&connection));
    stage.now += Duration::from_millis(1);
}
