//! The operations that are measured, each made ready up to the moment before.

use std::time::Duration;

use engine::{Endpoint, Outbox, TransactionUser};
use location::{Limits, Local, Location as _, Policy, Register, Seeds, Update};
use modules::{NoLog, ScriptUser};
use sip::{Edits, HeaderName, Index, Instant, Message};

use super::apart::Apart;
use super::tape::{MESSAGES_PER_CALL, Recorder, Tape};
use super::text::{self, Call};
use super::{Configuration, DEFAULT, SEED};

/// Users that are registered and called.
pub const USERS: usize = 1_000;

/// The script of a configuration as the engine's user.
pub type Script = ScriptUser<Local, NoLog>;

/// A tape, and an endpoint that has heard the beginning of it.
pub struct Play<U: TransactionUser> {
    /// The endpoint.
    pub endpoint: Endpoint<U>,
    tape: Tape,
    at: usize,
    out: Outbox,
}

impl<U: TransactionUser> Play<U> {
    /// `endpoint` after the first `warm_up` datagrams of `tape`.
    pub fn new(tape: Tape, endpoint: Endpoint<U>, warm_up: usize) -> Play<U> {
        let mut play = Play { endpoint, tape, at: 0, out: Outbox::new() };
        play.run(warm_up);
        play
    }

    /// Plays the next `count` datagrams; returns how many the endpoint sent.
    pub fn run(&mut self, count: usize) -> usize {
        let range = self.at..self.at + count;
        self.at = range.end;
        self.tape.play(range, &mut self.endpoint, &mut self.out)
    }

    /// How many datagrams are left.
    pub fn left(&self) -> usize {
        self.tape.len() - self.at
    }
}

/// Registers all users, then makes `calls` calls, `every` after the last one; the number of datagrams before the first.
pub fn calls(text: &str, calls: usize, every: Duration) -> (Tape, usize) {
    let mut recorder = Recorder::new(Configuration::new(text).endpoint());
    (0..USERS).for_each(|user| recorder.register(user, 0));
    for number in 0..calls {
        recorder.call(&Call { id: format!("call{number:06}@bench"), user: number % USERS });
        recorder.wait(every);
    }
    (recorder.finish(), USERS)
}

/// How many of a tape's datagrams come before its last `measured` calls.
pub fn before_last(tape: &Tape, measured: usize) -> usize {
    tape.len() - measured * MESSAGES_PER_CALL
}

/// An endpoint with only `measured` whole calls before it.
pub fn ready_for_calls(text: &str, warm_up: usize, measured: usize, every: Duration) -> Play<Script> {
    let (tape, _) = calls(text, warm_up + measured, every);
    let before = before_last(&tape, measured);
    Play::new(tape, Configuration::new(text).endpoint(), before)
}

/// REGISTER requests of known users, `measured` of them left.
pub fn ready_for_registers(warm_up: usize, measured: usize) -> Play<Script> {
    let tape = registers(warm_up + measured);
    Play::new(tape, Configuration::new(DEFAULT).endpoint(), USERS + warm_up)
}

/// All users, then `count` refreshes, 1 ms apart.
fn registers(count: usize) -> Tape {
    let mut recorder = Recorder::new(Configuration::new(DEFAULT).endpoint());
    (0..USERS).for_each(|user| recorder.register(user, 0));
    for number in 0..count {
        recorder.register(number % USERS, 1 + number / USERS);
        recorder.wait(Duration::from_millis(1));
    }
    recorder.finish()
}

/// The message that an endpoint with an open INVITE transaction will get again and again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Again {
    /// The INVITE: its transaction answers once more with the 100.
    Invite,
    /// A 100 of the callee, which goes no further.
    Trying,
}

/// An endpoint with `USERS` open INVITE transactions; each gets the message again, `measured` in all.
pub fn ready_for_again(again: Again, measured: usize) -> Play<Script> {
    let mut recorder = Recorder::new(Configuration::new(DEFAULT).endpoint());
    (0..USERS).for_each(|user| recorder.register(user, 0));
    let call = |user: usize| Call { id: format!("call{user:06}@bench"), user };
    let forwarded: Vec<String> = (0..USERS).map(|user| recorder.invite(&call(user))).collect();
    for number in 0..USERS + measured {
        let user = number % USERS;
        let _ = match again {
            Again::Invite => recorder.caller(&call(user).invite()),
            Again::Trying => recorder.callee(&text::response(&forwarded[user], "100 Trying")),
        };
    }
    // The first round ends Timer A.
    Play::new(recorder.finish(), Configuration::new(DEFAULT).endpoint(), 3 * USERS)
}

/// The kinds of request whose script is measured apart.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A new call.
    Invite,
    /// A refresh.
    Register,
    /// The end of a call, along its Route.
    Bye,
}

/// An endpoint whose script is run apart, up to the next request of this kind; after it come `rest` other datagrams
/// until the next one.
pub fn ready_for_script(kind: Kind, warm_up: usize, measured: usize) -> (Play<Apart<Script>>, usize) {
    /// Messages of a call before its BYE.
    const BEFORE_BYE: usize = 4;
    let (tape, before, rest) = match kind {
        Kind::Register => (registers(warm_up + measured), USERS + warm_up, 0),
        Kind::Invite | Kind::Bye => {
            let (tape, users) = calls(DEFAULT, warm_up + measured, Duration::from_millis(10));
            let within = if kind == Kind::Bye { BEFORE_BYE } else { 0 };
            (tape, users + warm_up * MESSAGES_PER_CALL + within, MESSAGES_PER_CALL - 1)
        }
    };
    let configuration = Configuration::new(DEFAULT);
    let user = Apart::new(configuration.user(super::local()));
    let endpoint = Endpoint::new(configuration.engine(0, 1), user);
    (Play::new(tape, endpoint, before), rest)
}

/// A message, and what a proxy does to it.
pub struct Editing {
    bytes: Vec<u8>,
    index: Index,
    edits: Edits,
    out: Vec<u8>,
}

impl Editing {
    /// Ready to edit this message.
    pub fn new(text: &str) -> Editing {
        let bytes = text.as_bytes().to_vec();
        Editing { bytes, index: Index::new(), edits: Edits::new(), out: Vec::new() }
    }

    /// What stateful forwarding reads of a request before the script runs, and the routes.
    pub fn parse(&mut self) -> usize {
        let Ok(message) = Message::parse(&self.bytes, &mut self.index) else { return 0 };
        let valid = sip::validate::request(&message).is_ok();
        let branch = message.via_top().ok().and_then(|via| via.branch()).map_or(0, <[u8]>::len);
        let cseq = message.cseq().map_or(0, |cseq| cseq.number as usize);
        let call_id = message.call_id().map_or(0, <[u8]>::len);
        let tags = message.from_tag().map_or(0, <[u8]>::len) + message.to_tag().map_or(0, <[u8]>::len);
        let hops = message.max_forwards().ok().flatten().unwrap_or(0) as usize;
        let routes = message.routes().count();
        usize::from(valid) + branch + cseq + call_id + tags + hops + routes
    }

    /// What forwarding a response reads of it.
    pub fn parse_response(&mut self) -> usize {
        let Ok(message) = Message::parse(&self.bytes, &mut self.index) else { return 0 };
        let valid = sip::validate::response(&message).is_ok();
        let branch = message.via_top().ok().and_then(|via| via.branch()).map_or(0, <[u8]>::len);
        usize::from(valid) + branch + message.vias().count()
    }

    /// Reads the message and forwards it `times` times as a request; how long it became.
    pub fn forward_request(&mut self, times: usize) -> usize {
        let Ok(message) = Message::parse(&self.bytes, &mut self.index) else { return 0 };
        if sip::validate::request(&message).is_err() {
            return 0;
        }
        // Warm-up, under another name.
        let written = forward_one_request(&mut self.edits, &message, &mut self.out);
        written
            + (0..times)
                .map(|_| forward_measured_request(&mut self.edits, &message, &mut self.out))
                .sum::<usize>()
    }

    /// Reads the message and forwards it `times` times as a response.
    pub fn forward_response(&mut self, times: usize) -> usize {
        let Ok(message) = Message::parse(&self.bytes, &mut self.index) else { return 0 };
        if sip::validate::response(&message).is_err() {
            return 0;
        }
        // Warm-up, under another name.
        let written = forward_one_response(&mut self.edits, &message, &mut self.out);
        written
            + (0..times)
                .map(|_| forward_measured_response(&mut self.edits, &message, &mut self.out))
                .sum::<usize>()
    }
}

/// The edits of the engine's copy of a request (RFC 3261 §16.6), and their writing.
#[inline(never)]
fn forward_measured_request(edits: &mut Edits, message: &Message<'_>, out: &mut Vec<u8>) -> usize {
    forward_one_request(edits, message, out)
}

#[inline(always)]
fn forward_one_request(edits: &mut Edits, message: &Message<'_>, out: &mut Vec<u8>) -> usize {
    edits.clear();
    out.clear();
    edits.set_request_uri(message, b"sip:user1@127.0.0.1:6090");
    edits.insert_record_route(message, b"<sip:127.0.0.1;lr>");
    edits.set_max_forwards(message, 69);
    for header in message.headers(HeaderName::MaxBreadth) {
        edits.remove_header(&header);
    }
    edits.append_header(message, b"Max-Breadth: 60\r\n");
    edits.push_via(message, |value| {
        value.extend_from_slice(b"SIP/2.0/UDP 127.0.0.1;branch=z9hG4bK00112233445566778899aabbccddeeff");
    });
    edits.write(message, out);
    out.len()
}

/// The edits of a response on its way upstream (RFC 3261 §16.7 item 3), and their writing.
#[inline(never)]
fn forward_measured_response(edits: &mut Edits, message: &Message<'_>, out: &mut Vec<u8>) -> usize {
    forward_one_response(edits, message, out)
}

#[inline(always)]
fn forward_one_response(edits: &mut Edits, message: &Message<'_>, out: &mut Vec<u8>) -> usize {
    edits.clear();
    out.clear();
    edits.pop_via(message);
    edits.write(message, out);
    out.len()
}

/// The 200 of a callee as the proxy gets it: two Via and a Record-Route.
pub fn accepted() -> String {
    let mut recorder = Recorder::new(Configuration::new(DEFAULT).endpoint());
    recorder.register(1, 0);
    let invite = recorder.invite(&Call { id: "call@bench".to_owned(), user: 1 });
    text::response(&invite, "200 OK")
}

/// A location table with many bindings.
pub struct Bindings {
    table: Local,
    aors: Vec<Vec<u8>>,
    contacts: Vec<Vec<u8>>,
    call_ids: Vec<Vec<u8>>,
    policy: Policy,
    next: usize,
    cseq: u32,
}

impl Bindings {
    /// `count` users with a phone each.
    pub fn new(count: usize) -> Bindings {
        let bytes = |text: fn(usize) -> String| (0..count).map(|user| text(user).into_bytes()).collect();
        let mut bindings = Bindings {
            table: Local::new(Limits::default(), Seeds(SEED)),
            aors: bytes(text::aor),
            contacts: bytes(|user| format!("sip:user{user}@127.0.0.1:6090")),
            call_ids: bytes(|user| format!("r{user}@registrations")),
            policy: Policy::default(),
            next: 0,
            cseq: 1,
        };
        (0..count).for_each(|_| bindings.refresh());
        bindings
    }

    fn turn(&mut self) -> usize {
        // A prime far from the number of users: no two in a row are neighbours.
        self.next = (self.next + 7_919) % self.aors.len();
        self.next
    }

    /// Looks the next user up; how many contacts there are.
    pub fn lookup(&mut self) -> usize {
        let user = self.turn();
        let mut bytes = 0;
        self.table.lookup(Instant::ZERO, &self.aors[user], &mut |binding| {
            bytes += binding.contact().len();
            std::ops::ControlFlow::Continue(())
        });
        bytes
    }

    /// Refreshes the next user's binding.
    pub fn refresh(&mut self) {
        let user = self.turn();
        self.cseq += 1;
        let update = Update {
            expires: Some(3_600),
            ..Update::new(&self.contacts[user], &self.call_ids[user], self.cseq)
        };
        let refreshed = self.table.register(
            Instant::ZERO,
            &self.aors[user],
            &Register::Bind(&[update]),
            &self.policy,
            &mut |_| {},
        );
        assert!(refreshed.is_ok(), "{refreshed:?}");
    }
}
