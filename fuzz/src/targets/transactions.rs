//! The engine's endpoint under a stream of operations: requests, copies, responses, ACKs, CANCELs, mutated
//! and raw messages, answers, errors, time.

use super::input::Input;
use super::meaning::is_sound;
use super::show;
use engine::{
    Alias, Answer, Ask, AskId, Config, Endpoint, FlowId, Handled, Input as Event, Limits, Listener,
    ListenerId, Outbox, Output, Path, RequestContext, Rows, Target, TransactionUser, TransportFailure,
};
use sip::{Index, Instant, Message, Method, Transport};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

/// Most operations of one input.
const OPERATIONS_MAX: usize = 80;
/// Messages that are kept to be answered, copied or mutated.
const KEPT_MAX: usize = 24;
/// Most that one message in may put out: branches of a fork with their CANCELs, a reply, questions.
const OUTPUTS_MAX: usize = 24;
/// Listeners of the endpoint: UDP and TCP.
const LISTENERS: usize = 2;
/// Virtual time after which nothing may be left: Timer C and what follows it, several times in a row.
const REST: Duration = Duration::from_secs(3_600);

const METHODS: [&str; 6] = ["INVITE", "OPTIONS", "BYE", "CANCEL", "ACK", "X"];
const STATUSES: [u16; 10] = [100, 180, 183, 200, 302, 404, 408, 486, 503, 603];
const STEPS_MS: [u64; 8] = [1, 100, 500, 1_000, 4_000, 32_000, 60_000, 200_000];

/// See [`TARGETS`](crate::TARGETS). The bytes are operations.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let mut world = World::new();
    for _ in 0..OPERATIONS_MAX {
        if input.is_empty() {
            break;
        }
        world.operate(&mut input);
    }
    world.rest();
}

fn config() -> Config {
    let listener = |transport, port| Listener { transport, address: address(0, port), advertise: None };
    Config {
        listeners: vec![listener(Transport::Udp, 5060), listener(Transport::Tcp, 5060)],
        aliases: vec![Alias { host: "example.org".into(), port: None, transport: None }],
        limits: Limits {
            transactions_max: 6,
            branches_max: 4,
            suspended_max: 2,
            resolves_max: 2,
            timers_per_step_max: 8,
            message_bytes_max: 2_000,
            max_breadth: 3,
            ..Limits::default()
        },
        seed: [1, 2, 3, 4],
        ..Config::default()
    }
}

fn address(host: u8, port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1 + host)), port)
}

/// A proxy that does with a request what the last byte of its Call-ID says.
struct Proxy;

impl TransactionUser for Proxy {
    /// How often all branches of it have failed.
    type State = u8;
    type Suspended = u8;

    fn on_request(&mut self, cx: &mut RequestContext<'_, u8>) -> Handled<u8> {
        let choice = cx.message().call_id().ok().and_then(<[u8]>::last).copied().unwrap_or(b'0');
        let _ = cx.loose_route();
        if matches!(cx.message().method(), Method::Ack | Method::Cancel) {
            let _ = cx.relay();
            return Handled::Done;
        }
        match choice {
            b'1' => reply(cx, 404),
            b'2' => match cx.create_transaction() {
                Ok(()) => reply(cx, 486),
                Err(_) => reply(cx, 503),
            },
            b'3' => {
                let _ = cx.forward(Some(b"sip:10.0.0.3"));
            }
            b'4' => {
                let ask = Ask::Resolve { host: "database".into() };
                return Handled::Suspend { state: 1, ask, deadline: Duration::from_secs(2) };
            }
            b'5' => fork(cx, &["sip:a@10.0.0.3", "sip:b@10.0.0.4", "sip:c@10.0.0.5", "sip:d@10.0.0.6"]),
            b'6' => fork(cx, &["sip:a@name.example", "sip:b@10.0.0.4;transport=tcp"]),
            _ => {
                cx.record_route(b";x=y");
                fork(cx, &["sip:b@10.0.0.3"]);
            }
        }
        Handled::Done
    }

    fn on_answer(&mut self, cx: &mut RequestContext<'_, u8>, turn: u8, answer: Answer<'_>) -> Handled<u8> {
        match answer {
            Answer::Addresses(_) if turn < 3 => {
                let ask = Ask::Resolve { host: "again".into() };
                return Handled::Suspend { state: turn + 1, ask, deadline: Duration::from_secs(1) };
            }
            Answer::Failed | Answer::Refused => reply(cx, 500),
            _ => fork(cx, &["sip:b@10.0.0.3"]),
        }
        Handled::Done
    }

    fn on_failure(&mut self, cx: &mut RequestContext<'_, u8>) {
        *cx.state += 1;
        if *cx.state < 3 && cx.status() != Some(603) {
            let uri = format!("sip:next{}@10.0.0.7", *cx.state);
            let _ = cx.append_target(&Target::new(uri.as_bytes()));
            let _ = cx.relay();
        }
    }
}

/// In the transaction if there is one, else without state.
fn reply(cx: &mut RequestContext<'_, u8>, status: u16) {
    let _ = cx.reply(status, b"", b"", b"");
}

fn fork(cx: &mut RequestContext<'_, u8>, uris: &[&str]) {
    cx.set_request_uri(uris[0].as_bytes());
    for (turn, uri) in (1u16..).zip(&uris[1..]) {
        let q = 1_000 - 500 * (turn / 2);
        let _ = cx.append_target(&Target { q, ..Target::new(uri.as_bytes()) });
    }
    let _ = cx.relay();
}

/// A message that passed the wire, in either direction.
#[derive(Clone)]
struct Kept {
    path: Path,
    bytes: Vec<u8>,
}

struct World {
    endpoint: Endpoint<Proxy>,
    limits: Limits,
    now: Instant,
    outbox: Outbox,
    sent: Vec<Kept>,
    received: Vec<Kept>,
    asks: Vec<AskId>,
}

impl World {
    fn new() -> World {
        World {
            endpoint: Endpoint::new(config(), Proxy),
            limits: config().limits,
            now: Instant::ZERO,
            outbox: Outbox::new(),
            sent: Vec::new(),
            received: Vec::new(),
            asks: Vec::new(),
        }
    }

    fn operate(&mut self, input: &mut Input<'_>) {
        match input.below(13) {
            0..=2 => self.request(input),
            3 => {
                if let Some(copy) = choose(&self.received, input) {
                    self.receive(copy);
                }
            }
            4 | 5 => self.respond(input),
            6 => self.ack(input),
            7 => self.pass(Duration::from_millis(*input.pick(&STEPS_MS))),
            8 => {
                if let Some(next) = self.endpoint.next_timeout() {
                    self.now = self.now.max(next);
                    self.handle(Event::Timeout, false);
                }
            }
            9 => self.answer(input),
            10 => {
                if let Some(Kept { path, .. }) = choose(&self.sent, input) {
                    let failure = *input.pick(&[TransportFailure::Unreachable, TransportFailure::Broken]);
                    self.handle(Event::TransportError { path, failure }, false);
                }
            }
            11 => self.mutated(input),
            _ => {
                let path = path(input);
                let bytes = input.bytes(80).to_vec();
                self.receive(Kept { path, bytes });
                // Rarely, for nothing new is served after it.
                if input.byte() == 0xff {
                    self.handle(Event::Drain, false);
                }
            }
        }
    }

    fn request(&mut self, input: &mut Input<'_>) {
        let method = *input.pick(&METHODS);
        let call = input.below(8);
        let path = path(input);
        // A CANCEL and the ACK of a failure have the branch of their INVITE (RFC 3261 §9.1, §17.1.1.3).
        let branch = if matches!(method, "CANCEL" | "ACK") { "INVITE" } else { method };
        let hops = *input.pick(&[70, 1, 0]);
        let transport = if path.flow == FlowId::NONE { "UDP" } else { "TCP" };
        let text = format!(
            "{method} sip:bob@example.org SIP/2.0\r\nVia: SIP/2.0/{transport} {};\
             branch=z9hG4bK{call}{branch};rport\r\n\
             From: <sip:alice@example.org>;tag=a{call}\r\nTo: <sip:bob@example.org>\r\nCall-ID: call-{call}\r\n\
             CSeq: 1 {method}\r\nMax-Forwards: {hops}\r\nContact: <sip:alice@10.0.0.2>\r\n\
             Content-Length: 0\r\n\r\n",
            path.remote,
        );
        self.receive(Kept { path, bytes: text.into_bytes() });
    }

    /// A response to a request that was sent, as its receiver would write it (§8.2.6).
    fn respond(&mut self, input: &mut Input<'_>) {
        let Some(request) = choose(&self.sent, input) else { return };
        let status = *input.pick(&STATUSES);
        let text = String::from_utf8_lossy(&request.bytes).into_owned();
        if text.starts_with("SIP/2.0") {
            return;
        }
        let mut response = format!("SIP/2.0 {status} Said\r\n");
        for line in text.lines().take_while(|line| !line.is_empty()) {
            let name = line.split(':').next().unwrap_or_default();
            if ["Via", "From", "Call-ID", "CSeq", "Record-Route"].contains(&name) {
                response += &format!("{line}\r\n");
            } else if name == "To" {
                let tag = if status > 100 { format!(";tag=t{}", input.below(2)) } else { String::new() };
                response += &format!("{line}{tag}\r\n");
            }
        }
        response += "Contact: <sip:bob@10.0.0.9>\r\nContent-Length: 0\r\n\r\n";
        self.receive(Kept { path: request.path, bytes: response.into_bytes() });
    }

    /// The ACK of a response that was sent (§17.1.1.3).
    fn ack(&mut self, input: &mut Input<'_>) {
        let Some(response) = choose(&self.sent, input) else { return };
        let text = String::from_utf8_lossy(&response.bytes).into_owned();
        if !text.starts_with("SIP/2.0") || !text.contains("INVITE\r\n") {
            return;
        }
        let mut ack = "ACK sip:bob@example.org SIP/2.0\r\n".to_owned();
        for line in text.lines().take_while(|line| !line.is_empty()) {
            let name = line.split(':').next().unwrap_or_default();
            if ["Via", "From", "To", "Call-ID"].contains(&name) {
                ack += &format!("{line}\r\n");
            }
        }
        ack += "CSeq: 1 ACK\r\nMax-Forwards: 70\r\nContent-Length: 0\r\n\r\n";
        self.receive(Kept { path: response.path, bytes: ack.into_bytes() });
    }

    /// A message that has passed already, with some of its bytes changed.
    fn mutated(&mut self, input: &mut Input<'_>) {
        let from = if input.flag() { &self.sent } else { &self.received };
        let Some(mut kept) = choose(from, input) else { return };
        for _ in 0..1 + input.below(3) {
            let at = (input.byte() as usize | (input.byte() as usize) << 8) % kept.bytes.len().max(1);
            let byte = input.byte();
            match input.below(3) {
                0 => kept.bytes.insert(at, byte),
                1 if !kept.bytes.is_empty() => drop(kept.bytes.remove(at)),
                _ => kept.bytes.iter_mut().skip(at).take(1).for_each(|old| *old = byte),
            }
        }
        self.receive(kept);
    }

    fn answer(&mut self, input: &mut Input<'_>) {
        let addresses = [IpAddr::V4(Ipv4Addr::new(10, 0, 0, 8)), IpAddr::V4(Ipv4Addr::new(10, 0, 0, 9))];
        let rows = Rows::default();
        let answer = match input.below(6) {
            0 => Answer::Addresses(&addresses),
            1 => Answer::Addresses(&addresses[..1]),
            2 => Answer::Addresses(&[]),
            3 => Answer::Rows(&rows),
            4 => Answer::Refused,
            _ => Answer::Failed,
        };
        // Some answers come twice, or to questions that nobody asked.
        let id = self.asks.first().copied().unwrap_or(AskId(u64::from(input.byte())));
        if input.flag() && !self.asks.is_empty() {
            self.asks.remove(0);
        }
        self.handle(Event::Answer { id, answer }, false);
    }

    fn receive(&mut self, kept: Kept) {
        let is_ack = kept.bytes.starts_with(b"ACK ");
        self.handle(Event::Message { path: kept.path, bytes: &kept.bytes }, is_ack);
        keep(&mut self.received, kept);
    }

    /// One input; everything that comes of it is looked at.
    fn handle(&mut self, event: Event<'_>, is_ack: bool) {
        self.outbox.clear();
        let is_message = matches!(event, Event::Message { .. });
        self.endpoint.handle(self.now, event, &mut self.outbox);
        assert!(self.endpoint.transactions() <= self.limits.transactions_max);
        assert_eq!(self.endpoint.counters().transactions_lost, 0);
        let outputs = std::mem::take(&mut self.outbox.outputs);
        // Timers that were due go off with any input.
        let most = OUTPUTS_MAX + 8 * self.limits.timers_per_step_max as usize;
        assert!(outputs.len() <= most, "{} outputs of one input", outputs.len());
        let mut replies = 0;
        for output in outputs {
            match output {
                Output::Send { path, bytes } => {
                    let bytes = self.outbox.bytes.get(bytes).expect("a range of the outbox").to_vec();
                    let of_ack = bytes.windows(6).any(|text| text == b" ACK\r\n");
                    replies += usize::from(bytes.starts_with(b"SIP/2.0") && of_ack);
                    judge(path, &bytes, self.limits.message_bytes_max);
                    keep(&mut self.sent, Kept { path, bytes });
                }
                Output::Ask { id, deadline, .. } => {
                    assert!(deadline >= self.now, "a question whose deadline has passed");
                    assert!(!self.asks.contains(&id), "two questions have one name");
                    self.asks.push(id);
                    assert!(self.asks.len() < 10_000);
                }
                Output::Alias { .. } => {}
            }
        }
        assert!(!(is_message && is_ack) || replies == 0, "an ACK was answered");
    }

    /// Time passes; every timeout at its own moment.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        let mut stuck = 0;
        while let Some(next) = self.endpoint.next_timeout().filter(|next| *next <= end) {
            stuck = if next > self.now { 0 } else { stuck + 1 };
            assert!(stuck < 1_000, "next_timeout() does not go on");
            self.now = self.now.max(next);
            self.handle(Event::Timeout, false);
        }
        self.now = end;
    }

    /// When nothing more comes, nothing is left.
    fn rest(mut self) {
        self.pass(REST);
        assert_eq!(self.endpoint.transactions(), 0, "transactions are left");
        assert!(self.endpoint.is_idle());
        assert_eq!(self.endpoint.next_timeout(), None, "a timer is armed though nothing is held");
    }
}

/// Whether CR and LF come only together.
fn lines_end_with_crlf(head: &[u8]) -> bool {
    head.iter().enumerate().all(|(at, &byte)| match byte {
        b'\r' => head.get(at + 1) == Some(&b'\n'),
        b'\n' => at.checked_sub(1).is_some_and(|before| head[before] == b'\r'),
        _ => true,
    })
}

/// What leaves is a message, sound, within its limit, by a listener that there is.
fn judge(path: Path, bytes: &[u8], message_bytes_max: usize) {
    assert!(usize::from(path.listener.0) < LISTENERS, "{path:?}");
    let mut index = Index::new();
    let message = Message::parse(bytes, &mut index).unwrap_or_else(|e| panic!("{e}: {}", show(bytes)));
    assert!(lines_end_with_crlf(&bytes[..message.headers_end()]), "RFC 3261 §7: {}", show(bytes));
    if message.is_request() {
        assert!(is_sound(&message), "an unsound request leaves: {}", show(bytes));
        assert!(bytes.len() <= message_bytes_max, "{} bytes leave", bytes.len());
        let hops = message.max_forwards().ok().flatten();
        assert!(hops.is_some(), "RFC 3261 §16.6 item 3: {}", show(bytes));
    }
    // A response to a request that is not sound copies what it can.
    assert!(message.header(sip::HeaderName::Via).is_some(), "{}", show(bytes));
}

fn path(input: &mut Input<'_>) -> Path {
    let choice = input.byte();
    let stream = choice & 4 != 0;
    let listener = ListenerId(u16::from(stream));
    let remote = address(1 + (choice & 3), if stream { 40_000 } else { 5060 });
    let flow = if stream { FlowId(1 + u64::from(choice & 3)) } else { FlowId::NONE };
    Path { flow, ..Path::new(listener, Some(address(0, 0).ip()), remote) }
}

fn choose(kept: &[Kept], input: &mut Input<'_>) -> Option<Kept> {
    let back = input.below(kept.len());
    kept.iter().rev().nth(back).cloned()
}

fn keep(all: &mut Vec<Kept>, one: Kept) {
    if all.len() >= KEPT_MAX {
        all.remove(0);
    }
    all.push(one);
}
