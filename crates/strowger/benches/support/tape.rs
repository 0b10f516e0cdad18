//! Recording traffic against one endpoint, and playing it to others that were made alike.

use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;

use engine::{Endpoint, Input, ListenerId, Outbox, Output, Path, TransactionUser};
use sip::Instant;

use super::text::{self, Call};
use super::{CALLEE, CALLER};

/// Messages that the server gets of one call: INVITE, 180, 200, ACK, BYE, 200.
pub const MESSAGES_PER_CALL: usize = 6;

/// Datagrams in the order in which they come.
#[derive(Default)]
pub struct Tape {
    bytes: Vec<u8>,
    messages: Vec<Recorded>,
}

struct Recorded {
    now: Instant,
    path: Path,
    bytes: Range<usize>,
}

impl Tape {
    /// How many datagrams there are.
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// Plays the datagrams `range` to an endpoint; returns how many it sent.
    pub fn play<U: TransactionUser>(
        &self,
        range: Range<usize>,
        endpoint: &mut Endpoint<U>,
        out: &mut Outbox,
    ) -> usize {
        let mut sent = 0;
        for Recorded { now, path, bytes } in &self.messages[range] {
            out.clear();
            let bytes = &self.bytes[bytes.clone()];
            endpoint.handle(*now, Input::Message { path: *path, bytes }, out);
            sent += out.outputs.len();
        }
        sent
    }

    /// The `nth` datagram.
    pub fn message(&self, nth: usize) -> &[u8] {
        &self.bytes[self.messages[nth].bytes.clone()]
    }

    /// The time of the last datagram.
    pub fn end(&self) -> Instant {
        self.messages.last().map_or(Instant::ZERO, |message| message.now)
    }
}

/// A caller and a callee whose messages are recorded.
pub struct Recorder<U: TransactionUser> {
    endpoint: Endpoint<U>,
    out: Outbox,
    tape: Tape,
    now: Instant,
    caller: Path,
    callee: Path,
    /// Datagrams that the endpoint sent.
    pub sent: usize,
}

impl<U: TransactionUser> Recorder<U> {
    /// One that records against `endpoint`.
    pub fn new(endpoint: Endpoint<U>) -> Recorder<U> {
        let path = |remote: &str| {
            let remote = remote.parse::<SocketAddr>().expect("an address");
            Path::new(ListenerId(0), Some([127, 0, 0, 1].into()), remote)
        };
        Recorder {
            endpoint,
            out: Outbox::new(),
            tape: Tape::default(),
            now: Instant::from_micros(1_000_000),
            caller: path(CALLER),
            callee: path(CALLEE),
            sent: 0,
        }
    }

    /// The recording.
    pub fn finish(self) -> Tape {
        self.tape
    }

    /// Lets time pass.
    pub fn wait(&mut self, time: Duration) {
        self.now += time;
    }

    /// Sends a message of the caller; what comes of it.
    pub fn caller(&mut self, text: &str) -> Vec<String> {
        self.send(self.caller, text)
    }

    /// Sends a message of the callee; what comes of it.
    pub fn callee(&mut self, text: &str) -> Vec<String> {
        self.send(self.callee, text)
    }

    fn send(&mut self, path: Path, text: &str) -> Vec<String> {
        let start = self.tape.bytes.len();
        self.tape.bytes.extend_from_slice(text.as_bytes());
        let bytes = start..self.tape.bytes.len();
        self.tape.messages.push(Recorded { now: self.now, path, bytes });
        self.out.clear();
        let input = Input::Message { path, bytes: text.as_bytes() };
        self.endpoint.handle(self.now, input, &mut self.out);
        self.sent += self.out.outputs.len();
        let texts = self.out.outputs.iter().filter_map(|output| match output {
            Output::Send { bytes, .. } => Some(&self.out.bytes[bytes.clone()]),
            Output::Ask { .. } | Output::Alias { .. } => None,
        });
        texts.map(|bytes| String::from_utf8_lossy(bytes).into_owned()).collect()
    }

    /// The `number`th REGISTER of `user`, which must be answered 200.
    pub fn register(&mut self, user: usize, number: usize) {
        let sent = self.caller(&text::register(user, number));
        assert!(sent.len() == 1 && sent[0].starts_with("SIP/2.0 200"), "{sent:#?}");
    }

    /// Sends the INVITE of a call; how the callee received it.
    pub fn invite(&mut self, call: &Call) -> String {
        find(self.caller(&call.invite()), "INVITE")
    }

    /// A whole call: [`MESSAGES_PER_CALL`] messages.
    pub fn call(&mut self, call: &Call) {
        let invite = self.invite(call);
        find(self.callee(&text::response(&invite, "180 Ringing")), "SIP/2.0 180");
        let accepted = find(self.callee(&text::response(&invite, "200 OK")), "SIP/2.0 200");
        find(self.caller(&call.ack(&accepted)), "ACK");
        let bye = find(self.caller(&call.bye(&accepted)), "BYE");
        find(self.callee(&text::response(&bye, "200 OK")), "SIP/2.0 200");
    }
}

/// The message that begins with `start`.
fn find(sent: Vec<String>, start: &str) -> String {
    match sent.iter().position(|text| text.starts_with(start)) {
        Some(at) => sent.into_iter().nth(at).unwrap_or_default(),
        None => panic!("no {start} among {sent:#?}"),
    }
}
