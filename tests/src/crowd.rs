//! A crowd of users who register, refresh and remove contacts as fast as the server lets them, and who remember every
//! answer: what a server must still know after its death (RFC 3261 §10.3).

use std::collections::{HashMap, VecDeque};
use std::fmt::Write as _;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use crate::{Message, loopback, unique};

/// Sockets of the crowd: enough that a server with several shards uses them all.
const SOCKETS: usize = 4;
/// REGISTERs on their way at once: enough that commits are shared.
const WINDOW: usize = 128;
/// After so long without an answer a request is sent again (RFC 3261 §17.1.2.2, T1).
const RESEND: Duration = Duration::from_millis(500);
/// An answer that never comes fails the test.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);
/// Contacts that one user may have.
const CONTACTS_MAX: u64 = 4;
/// Expiries are told in whole seconds, rounded somehow, by a clock that is read for many messages at once; a server that
/// gets no processor meanwhile tells them late.
const ROUNDING: Duration = Duration::from_millis(2_500);

/// Numbers that are the same for the same seed (SplitMix64).
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// The next number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

/// What a server promises about its bindings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// What was answered 200 is there.
    WriteThrough,
    /// What was answered 200 before this moment is there, or what came later.
    WriteBack(Instant),
}

/// A contact as the crowd believes in it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Binding {
    uri: String,
    /// Thousandths; `None` where the phone names none, which counts as 0 here.
    q: Option<u16>,
    /// It expires between these moments.
    expires: (Instant, Instant),
}

/// All contacts of a user at one time.
#[derive(Clone, Debug)]
struct State {
    /// When the answer came.
    since: Instant,
    bindings: Vec<Binding>,
    /// Whether they stand in the order that the registrar has told.
    is_ordered: bool,
}

/// A request that waits for its answer.
#[derive(Debug)]
struct Pending {
    number: usize,
    bytes: Vec<u8>,
    call_id: String,
    sent: Instant,
    resent: Instant,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// It asks for this: URI, q, seconds (0 removes); what is there otherwise stays, unless all is removed first.
    Update { wanted: Vec<(String, Option<u16>, u64)>, removes_all: bool },
    /// It must be refused.
    Wrong,
    /// It only asks.
    Query,
}

#[derive(Debug)]
struct User {
    name: String,
    call_id: String,
    cseq: u32,
    /// The newest last. Never empty.
    history: VecDeque<State>,
    /// What may have been done although nobody said so, since the last that was.
    maybe: Vec<State>,
    is_busy: bool,
}

/// What a load was like.
#[derive(Clone, Copy, Debug, Default)]
pub struct Load {
    /// REGISTERs that were answered 200.
    pub accepted: u64,
    /// REGISTERs that were refused and should have been.
    pub refused: u64,
    /// REGISTERs that were answered 500 or 503.
    pub unavailable: u64,
    /// The longest time without any answer.
    pub longest_silence: Duration,
}

/// The crowd.
#[derive(Debug)]
pub struct Crowd {
    server: SocketAddr,
    sockets: Vec<(UdpSocket, SocketAddr)>,
    users: Vec<User>,
    pending: HashMap<String, Pending>,
    random: Random,
    /// Requests per second at most.
    rate: u32,
    /// What the last query found.
    problems: Vec<String>,
}

impl Crowd {
    /// So many users of the server at this address, who do the same for the same seed.
    ///
    /// # Panics
    ///
    /// When the system gives no sockets.
    pub fn new(server: SocketAddr, users: usize, seed: u64) -> Self {
        let ip = loopback();
        let socket = || {
            let socket = UdpSocket::bind((ip, 0)).expect("an address of our own");
            socket.set_nonblocking(true).expect("Linux has such sockets");
            let address = socket.local_addr().expect("invariant: the socket is bound");
            (socket, address)
        };
        let sockets = (0..SOCKETS).map(|_| socket()).collect();
        let nothing = || State { since: Instant::now(), bindings: Vec::new(), is_ordered: true };
        let user = |number| User {
            name: format!("user{number}"),
            call_id: unique(),
            cseq: 0,
            history: VecDeque::from([nothing()]),
            maybe: Vec::new(),
            is_busy: false,
        };
        let users = (0..users).map(user).collect();
        let (pending, random) = (HashMap::new(), Random(seed));
        Self { server, sockets, users, pending, random, rate: u32::MAX, problems: Vec::new() }
    }

    /// Sending at most so many requests a second, which the slowest database can take.
    #[must_use]
    pub fn at_rate(mut self, per_second: u32) -> Self {
        self.rate = per_second;
        self
    }

    /// How many users have contacts, as far as they know.
    pub fn registered(&self) -> usize {
        self.users.iter().filter(|user| !user.last().bindings.is_empty()).count()
    }

    /// Registers at random for so long. What is not answered by then stays open.
    pub fn load(&mut self, lasting: Duration) -> Load {
        let began = Instant::now();
        let (mut load, mut heard, mut sent) = (Load::default(), began, 0_u32);
        while began.elapsed() < lasting {
            let due = began.elapsed().as_secs_f64() * f64::from(self.rate);
            while self.pending.len() < WINDOW.min(self.users.len()) && f64::from(sent) < due {
                self.send_something();
                sent = sent.saturating_add(1);
            }
            let before = load.accepted + load.refused + load.unavailable;
            self.receive_all(&mut load);
            if load.accepted + load.refused + load.unavailable > before {
                load.longest_silence = load.longest_silence.max(heard.elapsed());
                heard = Instant::now();
            } else {
                thread::sleep(Duration::from_micros(200));
            }
            self.resend();
        }
        load.longest_silence = load.longest_silence.max(heard.elapsed());
        load
    }

    /// Waits for all answers that are open.
    ///
    /// # Panics
    ///
    /// When one does not come.
    pub fn settle(&mut self) -> Load {
        let mut load = Load::default();
        self.finish(&mut load);
        load
    }

    /// The server is dead: takes the answers that it had sent, and expects no more.
    pub fn server_died(&mut self) -> Load {
        let mut load = Load::default();
        self.receive_all(&mut load);
        let open: Vec<Pending> = self.pending.drain().map(|(_, pending)| pending).collect();
        let now = Instant::now();
        for pending in open {
            let user = &mut self.users[pending.number];
            user.is_busy = false;
            if let Kind::Update { wanted, removes_all } = &pending.kind {
                user.maybe.push(user.after(wanted, *removes_all, pending.sent, now));
            }
        }
        load
    }

    /// Asks for every user's contacts and compares them with what was promised.
    ///
    /// # Panics
    ///
    /// When the promise was not kept: says for whom, and what was expected.
    pub fn check(&mut self, promise: Promise) {
        assert!(self.pending.is_empty(), "requests are open: settle first");
        self.problems.clear();
        let mut load = Load::default();
        for number in 0..self.users.len() {
            while self.pending.len() >= WINDOW {
                self.receive_replies(&mut load, Some(promise));
                self.resend();
            }
            self.send(number, Vec::new(), Kind::Query);
        }
        let deadline = Instant::now() + ANSWER_LIMIT;
        while !self.pending.is_empty() {
            assert!(Instant::now() < deadline, "{} queries are not answered", self.pending.len());
            self.receive_replies(&mut load, Some(promise));
            self.resend();
            thread::sleep(Duration::from_micros(100));
        }
        let count = self.problems.len();
        let first = self.problems.iter().take(5).fold(String::new(), |text, problem| text + problem + "\n");
        assert!(count == 0, "{count} of {} users are not as promised:\n{first}", self.users.len());
    }

    fn finish(&mut self, load: &mut Load) {
        let deadline = Instant::now() + ANSWER_LIMIT;
        while !self.pending.is_empty() {
            assert!(Instant::now() < deadline, "{} requests are not answered", self.pending.len());
            self.receive_all(load);
            self.resend();
            thread::sleep(Duration::from_micros(200));
        }
    }

    /// Sends the next request of a user who has none open.
    fn send_something(&mut self) {
        let count = self.users.len() as u64;
        let mut number = self.random.below(count) as usize;
        while self.users[number].is_busy {
            number = (number + 1) % self.users.len();
        }
        let known: Vec<String> =
            self.users[number].last().bindings.iter().map(|binding| binding.uri.clone()).collect();
        let address = self.sockets[number % SOCKETS].1;
        let name = self.users[number].name.clone();
        let random = &mut self.random;
        let fresh =
            |random: &mut Random| format!("sip:{name}@{address};device={}", random.below(CONTACTS_MAX));
        let q = |random: &mut Random| match random.below(3) {
            0 => None,
            _ => Some(u16::try_from(random.below(1001)).expect("invariant: it is below 1001")),
        };
        // Now and then so short that it ends while the test runs.
        let seconds = |random: &mut Random| match random.below(20) {
            0 => 2 + random.below(3),
            _ => 600 + random.below(3000),
        };
        let pick = |random: &mut Random| match known.len() {
            0 => fresh(random),
            some => known[random.below(some as u64) as usize].clone(),
        };
        let (wanted, removes_all) = match random.below(100) {
            0..35 => (vec![(pick(random), q(random), seconds(random))], false),
            35..60 => (vec![(fresh(random), q(random), seconds(random))], false),
            60..72 => {
                let devices = 2 + random.below(CONTACTS_MAX - 1);
                let contact =
                    |device| (format!("sip:{name}@{address};device={device}"), q(random), seconds(random));
                ((0..devices).map(contact).collect(), false)
            }
            72..82 => (vec![(pick(random), None, 0)], false),
            82..86 => (Vec::new(), true),
            86..94 => {
                let (old, new) = (pick(random), fresh(random));
                let mut wanted = vec![(new.clone(), q(random), seconds(random))];
                if old != new {
                    wanted.insert(0, (old, None, 0));
                }
                (wanted, false)
            }
            _ => return self.send_wrong(number),
        };
        if self.random.below(10) == 0 {
            // The phone was started anew.
            self.users[number].call_id = unique();
        }
        let mut lines = Vec::new();
        if removes_all {
            lines.extend(["Contact: *".to_owned(), "Expires: 0".to_owned()]);
        }
        for (uri, q, seconds) in &wanted {
            let q = q.map(|q| format!(";q={}.{:03}", q / 1000, q % 1000)).unwrap_or_default();
            lines.push(format!("Contact: <{uri}>{q};expires={seconds}"));
        }
        self.send(number, lines, Kind::Update { wanted, removes_all });
    }

    /// A REGISTER that must change nothing: a `*` that does not expire, among others (RFC 3261 §10.3 step 6).
    fn send_wrong(&mut self, number: usize) {
        let address = self.sockets[number % SOCKETS].1;
        let contact = format!("Contact: <sip:{}@{address};device=0>;expires=900", self.users[number].name);
        let lines = match self.random.below(3) {
            0 => vec!["Contact: *".to_owned(), "Expires: 60".to_owned()],
            1 => vec![contact, "Contact: *".to_owned(), "Expires: 0".to_owned()],
            _ => vec![contact, "Contact: <sip:unclosed".to_owned()],
        };
        self.send(number, lines, Kind::Wrong);
    }

    fn send(&mut self, number: usize, lines: Vec<String>, kind: Kind) {
        let (server, address) = (self.server.ip(), self.sockets[number % SOCKETS].1);
        let token = unique();
        let user = &mut self.users[number];
        user.cseq += 1;
        user.is_busy = true;
        let (name, call_id, cseq) = (&user.name, user.call_id.clone(), user.cseq);
        let mut text = format!(
            "REGISTER sip:{server} SIP/2.0\r\nVia: SIP/2.0/UDP {address};branch=z9hG4bK{token}\r\nMax-Forwards: 70\r\n\
             From: <sip:{name}@{server}>;tag={token}\r\nTo: <sip:{name}@{server}>\r\nCall-ID: {call_id}\r\n\
             CSeq: {cseq} REGISTER\r\n"
        );
        for line in lines {
            // Writing to a String cannot fail.
            let _ = write!(text, "{line}\r\n");
        }
        text.push_str("Content-Length: 0\r\n\r\n");
        let now = Instant::now();
        let pending = Pending { number, bytes: text.into_bytes(), call_id, sent: now, resent: now, kind };
        self.transmit(&pending);
        self.pending.insert(token, pending);
    }

    fn transmit(&self, pending: &Pending) {
        let sent = self.sockets[pending.number % SOCKETS].0.send_to(&pending.bytes, self.server);
        // What finds no room or nobody there is sent again.
        let is_lost = |kind| matches!(kind, ErrorKind::WouldBlock | ErrorKind::ConnectionRefused);
        if let Err(error) = sent {
            assert!(is_lost(error.kind()), "sending: {error}");
        }
    }

    fn resend(&mut self) {
        let now = Instant::now();
        let late: Vec<String> = self
            .pending
            .iter()
            .filter(|(_, pending)| now - pending.resent > RESEND)
            .map(|(token, _)| token.clone())
            .collect();
        for token in late {
            let Some(pending) = self.pending.get_mut(&token) else { continue };
            pending.resent = now;
            assert!(
                now - pending.sent < ANSWER_LIMIT,
                "no answer to {}",
                String::from_utf8_lossy(&pending.bytes)
            );
            self.transmit(&self.pending[&token]);
        }
    }

    fn receive_all(&mut self, load: &mut Load) {
        self.receive_replies(load, None);
    }

    fn receive_replies(&mut self, load: &mut Load, promise: Option<Promise>) {
        let mut buffer = vec![0; 65_536];
        for socket in 0..SOCKETS {
            loop {
                match self.sockets[socket].0.recv_from(&mut buffer) {
                    Ok((length, _)) => {
                        if let Some(answer) = Message::parse(&buffer[..length]) {
                            self.take(&answer, load, promise);
                        }
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    // A death of the server is told to the socket (ICMP).
                    Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
                    Err(error) => panic!("receiving: {error}"),
                }
            }
        }
    }

    fn take(&mut self, answer: &Message, load: &mut Load, promise: Option<Promise>) {
        let now = Instant::now();
        let Some(status) = answer.status().filter(|status| *status >= 200) else { return };
        let token = answer.parameter("From", "tag").unwrap_or_default();
        // The answer to a copy of a request that is done says nothing new.
        let Some(pending) = self.pending.remove(token) else { return };
        let user = &mut self.users[pending.number];
        user.is_busy = false;
        assert_eq!(answer.header("Call-ID"), pending.call_id, "{answer}");
        let request = || String::from_utf8_lossy(&pending.bytes).into_owned();
        match (&pending.kind, status) {
            (Kind::Update { wanted, removes_all }, 200) => {
                load.accepted += 1;
                let expected = user.after(wanted, *removes_all, pending.sent, now);
                match expected.agree(answer, pending.sent, now) {
                    Ok(state) => user.remember(state),
                    Err(why) => panic!("the 200 lists other contacts ({why}):\n{}{answer}", request()),
                }
            }
            (Kind::Update { wanted, removes_all }, 500 | 503) => {
                load.unavailable += 1;
                assert!(
                    status == 500 || answer.find("Retry-After").is_some(),
                    "when to come again?\n{answer}"
                );
                // It may have been committed all the same: whole, or not at all.
                user.maybe.push(user.after(wanted, *removes_all, pending.sent, now));
            }
            (Kind::Wrong, 400..500) => load.refused += 1,
            (Kind::Query, 200) => {
                let promise = promise.unwrap_or(Promise::WriteThrough);
                if let Err(problem) = user.judge(answer, promise, pending.sent, now) {
                    self.problems.push(problem);
                }
            }
            _ => panic!("{status} to\n{}{answer}", request()),
        }
    }
}

impl User {
    fn last(&self) -> &State {
        self.history.back().expect("invariant: there is always a state")
    }

    fn remember(&mut self, state: State) {
        self.maybe.clear();
        self.history.push_back(state);
        // More than any flush interval of a test can reach back.
        while self.history.len() > 1 && self.history[1].since.elapsed() > Duration::from_secs(30) {
            self.history.pop_front();
        }
    }

    /// What is there after an update that is done between these moments.
    fn after(
        &self,
        wanted: &[(String, Option<u16>, u64)],
        removes_all: bool,
        from: Instant,
        to: Instant,
    ) -> State {
        let mut bindings = if removes_all { Vec::new() } else { self.last().bindings.clone() };
        for (uri, q, seconds) in wanted {
            bindings.retain(|binding| binding.uri != *uri);
            if *seconds > 0 {
                let lasting = Duration::from_secs(*seconds);
                bindings.push(Binding { uri: uri.clone(), q: *q, expires: (from + lasting, to + lasting) });
            }
        }
        State { since: to, bindings, is_ordered: false }
    }

    /// Compares what the registrar lists with what it promised, and believes it from now on.
    fn judge(
        &mut self,
        answer: &Message,
        promise: Promise,
        asked: Instant,
        came: Instant,
    ) -> Result<(), String> {
        let first = match promise {
            Promise::WriteThrough => self.history.len() - 1,
            Promise::WriteBack(before) => {
                self.history.iter().rposition(|state| state.since <= before).unwrap_or(0)
            }
        };
        let possible = self.history.iter().skip(first).rev().chain(&self.maybe);
        let mut reasons = String::new();
        let mut found: Option<State> = None;
        for state in possible {
            match state.agree(answer, asked, came) {
                // Any of those that fit may be what is there, and they differ in the expiries.
                Ok(state) => match &mut found {
                    Some(found) => found.widen(&state),
                    None => found = Some(state),
                },
                Err(why) => {
                    // Writing to a String cannot fail.
                    let _ = write!(reasons, "\n  not {}: {why}", state.describe(came));
                }
            }
        }
        let listed = listed(answer).map_or_else(|error| error, |listed| format!("{listed:?}"));
        self.maybe.clear();
        let name = &self.name;
        let state = found.ok_or_else(|| format!("{name} has {listed}{reasons}"))?;
        self.history = VecDeque::from([state]);
        Ok(())
    }
}

impl State {
    /// Whether an answer lists what this state says; the state in the order of the answer.
    fn agree(&self, answer: &Message, asked: Instant, came: Instant) -> Result<State, String> {
        let listed = listed(answer)?;
        let mut bindings = Vec::new();
        for (place, (uri, q, seconds)) in listed.iter().enumerate() {
            if listed[..place].iter().any(|(other, ..)| other == uri) {
                return Err(format!("{uri} is doubled"));
            }
            let Some(binding) = self.bindings.iter().find(|binding| binding.uri == *uri) else {
                return Err(format!("{uri} should not be there"));
            };
            if binding.q.unwrap_or(0) != q.unwrap_or(0) {
                return Err(format!("{uri} has q {q:?} instead of {:?}", binding.q));
            }
            let lasting = Duration::from_secs(*seconds);
            let margin = ROUNDING;
            let is_late = asked + lasting > binding.expires.1 + margin;
            let is_early = came + lasting + margin < binding.expires.0;
            if is_late || is_early {
                let expected = (binding.expires.0 - asked, binding.expires.1.saturating_duration_since(came));
                return Err(format!("{uri} expires in {seconds} s instead of {expected:?}"));
            }
            bindings.push(binding.clone());
        }
        let is_there = |uri: &String| listed.iter().any(|(other, ..)| other == uri);
        for binding in &self.bindings {
            if !is_there(&binding.uri) && binding.expires.0 > came {
                return Err(format!("{} is missing", binding.uri));
            }
        }
        if self.is_ordered {
            let expected: Vec<&String> =
                self.bindings.iter().map(|binding| &binding.uri).filter(|uri| is_there(uri)).collect();
            let got: Vec<&String> = listed.iter().map(|(uri, ..)| uri).collect();
            if expected != got {
                return Err(format!("the order was {expected:?}"));
            }
        }
        Ok(State { since: self.since, bindings, is_ordered: true })
    }

    /// It may be the other state, too, that a registrar has: the contacts are the same ones.
    fn widen(&mut self, other: &State) {
        for binding in &mut self.bindings {
            if let Some(other) = other.bindings.iter().find(|other| other.uri == binding.uri) {
                let (from, to) = other.expires;
                binding.expires = (binding.expires.0.min(from), binding.expires.1.max(to));
            }
        }
    }

    fn describe(&self, now: Instant) -> String {
        let one = |binding: &Binding| {
            let seconds = binding.expires.0.saturating_duration_since(now).as_secs_f32();
            format!("{} q {:?} for {seconds:.1} s", binding.uri, binding.q)
        };
        let age = now.saturating_duration_since(self.since);
        format!("{:?} ({age:?} old)", self.bindings.iter().map(one).collect::<Vec<_>>())
    }
}

/// The contacts of an answer, in its order: URI, q in thousandths, seconds.
fn listed(answer: &Message) -> Result<Vec<(String, Option<u16>, u64)>, String> {
    let one = |value: &str| {
        let (uri, parameters) = value.trim_start_matches('<').split_once('>')?;
        let parameter = |name: &str| {
            let mut pairs = parameters.split(';').filter_map(|pair| pair.split_once('='));
            pairs.find(|(other, _)| *other == name).map(|(_, value)| value)
        };
        let q = parameter("q").and_then(|q| q.parse::<f64>().ok()).map(|q| (q * 1000.0).round() as u16);
        Some((uri.to_owned(), q, parameter("expires")?.parse().ok()?))
    };
    let values = answer.all("Contact");
    let read = values.iter().map(|value| one(value).ok_or_else(|| format!("what is {value}?")));
    read.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user_of(states: &[(&str, Instant, u64)]) -> User {
        let state = |&(uri, since, seconds): &(&str, Instant, u64)| {
            let end = since + Duration::from_secs(seconds);
            State {
                since,
                bindings: vec![Binding { uri: uri.to_owned(), q: None, expires: (end, end) }],
                is_ordered: false,
            }
        };
        User {
            name: "user1".to_owned(),
            call_id: "call".to_owned(),
            cseq: 2,
            history: states.iter().map(state).collect(),
            maybe: Vec::new(),
            is_busy: false,
        }
    }

    #[test]
    fn either_of_two_states_that_may_be_there_is_believed() {
        let now = Instant::now();
        let (uri, second) = ("sip:user1@192.0.2.1", Duration::from_secs(1));
        let answer = |seconds| {
            let text =
                format!("SIP/2.0 200 OK\r\nContact: <{uri}>;expires={seconds}\r\nContent-Length: 0\r\n\r\n");
            Message::parse(text.as_bytes()).expect("a message")
        };
        let judged = |told| {
            let mut user = user_of(&[(uri, now, 4), (uri, now, 2)]);
            let judged = user.judge(&answer(told), Promise::WriteBack(now - second), now, now);
            judged.map(|()| user.last().bindings[0].expires)
        };
        assert_eq!(judged(3), Ok((now + 2 * second, now + 4 * second)));
        assert_eq!(judged(6), Ok((now + 4 * second, now + 4 * second)));
        assert!(judged(7).is_err(), "too long for both");
    }
}
