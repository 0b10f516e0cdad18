//! Playing cases: every case has a loopback address of its own, where its caller sends from port 5060 and its
//! next hop listens on port 5070 (the configurations send what they forward there), so that a whole batch runs
//! at once.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::draft::{Draft, Message as Drafted};
use super::text::{Names, expand};
use super::traffic::{Case, Sender, Step};
use crate::connection::dial;
use crate::message::via_port;
use crate::server::ping;
use crate::{Challenge, Digest, Message, PATIENCE, Subscriber};

const CALLER_PORT: u16 = 5060;
const NEXT_PORT: u16 = 5070;

/// Cases that run at once: each has up to four descriptors.
const BATCH: usize = 100;

/// How long nothing must come, after the server has shown that it has read everything, before the next step.
const QUIET: Duration = Duration::from_millis(60);

/// The user whom the configurations know.
const USER: (&str, &str) = ("alice", "secret");

/// Where a server is.
#[derive(Clone, Copy, Debug)]
pub struct Play {
    /// Its address for datagrams and streams.
    pub server: SocketAddr,
}

/// What came of a case.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What the caller received, each once.
    pub answers: Vec<Vec<u8>>,
    /// What the next hop received, each once.
    pub forwarded: Vec<Vec<u8>>,
    /// What was sent.
    pub sent: Vec<Vec<u8>>,
    /// Whether the server closed the caller's connection.
    pub closed: bool,
    pub(super) server: SocketAddr,
    pub(super) peer: IpAddr,
    pub(super) caller_port: u16,
}

/// Plays all of these cases, and returns an outcome for each.
///
/// # Panics
///
/// When the server dies, or the machine's loopback is not 127.0.0.0/8.
pub fn play(play: Play, cases: &[&Case]) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    for batch in cases.chunks(BATCH) {
        let mut peers: Vec<Peer> = batch.iter().map(|case| Peer::new(case, play.server)).collect();
        let steps = batch.iter().map(|case| case.steps.len()).max().unwrap_or_default();
        for index in 0..steps {
            for (case, peer) in batch.iter().zip(&mut peers) {
                if let Some(step) = case.steps.get(index) {
                    peer.send(step);
                }
            }
            settle(play.server, &mut peers);
        }
        outcomes.extend(peers.into_iter().map(Peer::outcome));
    }
    outcomes
}

/// Waits until the server has dealt with all that was sent, and with what that has caused.
fn settle(server: SocketAddr, peers: &mut [Peer]) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        assert!(Instant::now() < deadline, "the server does not answer, or the peers do not come to rest");
        // The server reads its datagrams in their order: when it answers this, it has read all before.
        if !ping(server) {
            continue;
        }
        thread::sleep(QUIET);
        let news: usize = peers.iter_mut().map(Peer::receive).sum();
        if news == 0 {
            return;
        }
    }
}

/// The caller of a case and its next hop.
struct Peer {
    names: Names,
    /// Where the caller sends from.
    caller: UdpSocket,
    next: UdpSocket,
    /// The port that a torture message's Via names.
    named: Option<UdpSocket>,
    stream: Option<TcpStream>,
    /// Whether the next hop answers by itself.
    answers: bool,
    received: Vec<u8>,
    outcome: Outcome,
}

impl Peer {
    fn new(case: &Case, server: SocketAddr) -> Self {
        let peer = IpAddr::from(next_address());
        let bound = |port| {
            let socket = UdpSocket::bind((peer, port));
            let socket = socket.unwrap_or_else(|error| panic!("{peer}:{port}: {error}"));
            socket.set_nonblocking(true).expect("a socket can be made not to block");
            socket
        };
        let named = case.steps.first().and_then(|step| match &step.draft {
            Draft::Bytes(bytes) => via_port(&String::from_utf8_lossy(bytes)),
            _ => None,
        });
        let named = named.filter(|port| ![CALLER_PORT, NEXT_PORT].contains(port)).map(bound);
        let stream = case.stream.then(|| {
            let stream = dial(Some(peer), server).expect("the server listens by TCP");
            stream.set_nonblocking(true).expect("a socket can be made not to block");
            stream
        });
        let local = stream.as_ref().map(|stream| stream.local_addr().expect("invariant: it is connected"));
        let caller_port = local.map_or(CALLER_PORT, |local| local.port());
        let names = Names {
            server,
            peer,
            caller_port,
            next_port: NEXT_PORT,
            id: case.id(),
            credentials: String::new(),
            arrived: Vec::new(),
        };
        let outcome = Outcome {
            answers: Vec::new(),
            forwarded: Vec::new(),
            sent: Vec::new(),
            closed: false,
            server,
            peer,
            caller_port,
        };
        Self {
            names,
            caller: bound(CALLER_PORT),
            next: bound(NEXT_PORT),
            named,
            stream,
            answers: case.answers,
            received: Vec::new(),
            outcome,
        }
    }

    fn send(&mut self, step: &Step) {
        self.answer_challenge();
        let bytes = match &step.draft {
            Draft::Bytes(bytes) => bytes.clone(),
            Draft::Lines(lines) => {
                lines.iter().flat_map(|line| [expand(line, &self.names), b"\r\n".to_vec()].concat()).collect()
            }
            Draft::Message(message) => message.bytes(&self.names),
            Draft::Again => self.outcome.sent.last().cloned().unwrap_or_default(),
        };
        match (step.sender, &mut self.stream) {
            // A connection that the server has closed takes no more.
            (Sender::Caller, Some(stream)) => drop(stream.write_all(&bytes)),
            (Sender::Caller, None) => drop(self.caller.send_to(&bytes, self.names.server)),
            (Sender::NextHop, _) => drop(self.next.send_to(&bytes, self.names.server)),
        }
        self.outcome.sent.push(bytes);
    }

    /// Computes the credentials for the last challenge and the first request.
    fn answer_challenge(&mut self) {
        let challenged = self.outcome.answers.iter().rev().find_map(|answer| Message::parse(answer));
        let request = self.outcome.sent.first().and_then(|request| Message::parse(request));
        let (Some(answer), Some(request)) = (challenged, request) else { return };
        if let Some(challenge) = Challenge::all(&answer).first() {
            let digest = Digest::to(challenge, &request, &Subscriber::new(USER.0, USER.1));
            self.names.credentials = digest.value();
        }
    }

    /// Takes in what has arrived; returns how much of it is new.
    fn receive(&mut self) -> usize {
        let mut news = 0;
        let sockets = [Some(&self.caller), self.named.as_ref()];
        let mut answers: Vec<Vec<u8>> = sockets.into_iter().flatten().flat_map(datagrams).collect();
        answers.extend(self.stream_messages());
        for answer in answers {
            // Whether and when a server says that it tries is its own affair (RFC 3261 §8.2.6.1, §17.2.1).
            if !answer.starts_with(b"SIP/2.0 100") && !self.outcome.answers.contains(&answer) {
                self.outcome.answers.push(answer);
                news += 1;
            }
        }
        for request in datagrams(&self.next) {
            if self.outcome.forwarded.contains(&request) {
                continue;
            }
            news += 1;
            self.outcome.forwarded.push(request.clone());
            if self.answers {
                self.reply(&request);
            }
            // What a case answers is what was asked, not what has called it off since.
            if ![&b"ACK "[..], b"CANCEL "].iter().any(|method| request.starts_with(method)) {
                self.names.arrived = request;
            }
        }
        news
    }

    /// The next hop answers what has arrived.
    fn reply(&self, request: &[u8]) {
        if request.starts_with(b"SIP/2.0") || request.starts_with(b"ACK ") {
            return;
        }
        let names = Names { arrived: request.to_vec(), ..self.names.clone() };
        let answer = Drafted::answer("200 Answered").bytes(&names);
        // What the server does not take in shows in the outcome.
        let _ = self.next.send_to(&answer, self.names.server);
    }

    /// What the stream has brought, cut into messages.
    fn stream_messages(&mut self) -> Vec<Vec<u8>> {
        let Some(stream) = &mut self.stream else { return Vec::new() };
        let mut buffer = [0; 4096];
        while !self.outcome.closed {
            match stream.read(&mut buffer) {
                Ok(0) => self.outcome.closed = true,
                Ok(length) => self.received.extend_from_slice(&buffer[..length]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => self.outcome.closed = true,
            }
        }
        let mut messages = Vec::new();
        while let Some(length) = first_message(&self.received) {
            messages.push(self.received.drain(..length).collect());
        }
        messages
    }

    fn outcome(self) -> Outcome {
        self.outcome
    }
}

/// The length of the first message of a server's stream: servers write it well, or the test shows it.
fn first_message(stream: &[u8]) -> Option<usize> {
    let head = stream.windows(4).position(|end| end == b"\r\n\r\n")? + 4;
    let message = Message::parse(&stream[..head]);
    let length = message.and_then(|message| message.find("Content-Length")?.parse::<usize>().ok());
    let length = head + length.unwrap_or_default();
    (stream.len() >= length).then_some(length)
}

fn datagrams(socket: &UdpSocket) -> Vec<Vec<u8>> {
    let mut buffer = vec![0; usize::from(u16::MAX)];
    let mut all = Vec::new();
    while let Ok(length) = socket.recv(&mut buffer) {
        all.push(buffer[..length].to_vec());
    }
    all
}

/// A loopback address that no other case has, apart from those of [`crate::loopback`].
fn next_address() -> Ipv4Addr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let octet =
        |number: u32| u8::try_from(number).expect("invariant: every number below is reduced to an octet");
    let process = process::id();
    Ipv4Addr::new(
        127,
        octet(251 + process % 4),
        octet((process / 4 + number / 250) % 256),
        octet(1 + number % 250),
    )
}
