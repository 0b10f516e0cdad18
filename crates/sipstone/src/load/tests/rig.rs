//! A worker and a small server on virtual time.
//!
//! The server is a registrar and a proxy in some eighty lines of text handling: enough to answer what the engine sends,
//! and nothing of the crate `sip`, so that a mistake there cannot hide one here.

use crate::load::{Input, Outbox, SocketId, Worker};
use crate::spec::*;
use crate::tally::{ClassTally, Tally};
use sip::Instant;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

pub(super) const SERVER: &str = "10.0.0.9:5060";
const CALLER: &str = "10.0.0.1:6000";
const CALLEE: &str = "10.0.0.1:7000";
/// One way.
const WAY: Duration = Duration::from_micros(100);

/// What the server does besides.
#[derive(Clone)]
pub(super) struct Manners {
    /// Stateful: 100 to each INVITE, its own answers to CANCEL and its own ACKs of refusals.
    pub(super) stateful: bool,
    /// Every request but ACK and CANCEL gets this.
    pub(super) refuse: Option<&'static str>,
    /// Registered users are answered 302.
    pub(super) redirect: bool,
    /// Values of Record-Route, the first one on top.
    pub(super) record_routes: Vec<&'static str>,
    /// Requests outside of dialogs without good credentials are challenged; with `all`, BYE too.
    pub(super) challenge: Option<Challenges>,
    /// Never answers anything.
    pub(super) dead: bool,
    /// A 200 to a REGISTER lists this instead of the bindings.
    pub(super) odd_contact: Option<&'static str>,
}

impl Default for Manners {
    fn default() -> Manners {
        Manners {
            stateful: false,
            refuse: None,
            redirect: false,
            record_routes: vec!["<sip:10.0.0.9:5060;lr>"],
            challenge: None,
            dead: false,
            odd_contact: None,
        }
    }
}

#[derive(Clone, Copy, Default)]
pub(super) struct Challenges {
    pub(super) all: bool,
    /// A nonce is good for so many requests, then it is stale; 0: for ever.
    pub(super) uses: u32,
    /// Whether credentials are never good enough.
    pub(super) hopeless: bool,
    /// Whether each request must have been challenged itself.
    pub(super) anew: bool,
}

/// Messages that are to be lost on their way.
pub(super) struct Loss {
    /// What the first line begins with.
    pub(super) start: &'static str,
    /// Method of CSeq.
    pub(super) cseq: &'static str,
    pub(super) to: Hop,
    pub(super) left: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub(super) enum Hop {
    Server,
    Caller,
    Callee,
}

struct Packet {
    at: Instant,
    from: SocketAddr,
    to: SocketAddr,
    text: String,
}

pub(super) struct Rig {
    pub(super) worker: Worker,
    pub(super) manners: Manners,
    pub(super) now: Instant,
    pub(super) losses: Vec<Loss>,
    /// Every datagram from the server arrives twice.
    pub(super) twice: bool,
    /// `caller > server INVITE`, … in order of sending, lost ones too.
    pub(super) log: Vec<(Hop, Hop, String)>,
    pub(super) bindings: BTreeMap<String, String>,
    pub(super) interval: Tally,
    nonces: BTreeMap<String, u32>,
    nonce: u32,
    /// With their texts, once that is asked for.
    texts: Option<Vec<(Hop, Hop, String)>>,
    packets: VecDeque<Packet>,
    out: Outbox,
    start: Instant,
}

pub(super) fn workload(classes: Vec<Class>) -> Workload {
    Workload {
        target: Target { address: SERVER.parse().unwrap(), domain: SERVER.into() },
        links: Links::default(),
        classes,
        rate: 100.0,
        shape: Shape::Uniform,
        users: Users {
            count: 20,
            first: 1,
            name: "user{}".into(),
            password: "password{}".into(),
            listed: Vec::new(),
            choice: Choice::Uniform,
        },
        auth: Auth::None,
        auth_every: false,
        proxy: Proxy::Auto,
        seed: 7,
        warm_up: Duration::ZERO,
        measure: Duration::from_millis(500),
        drain: Duration::from_secs(33),
        t1: Duration::from_millis(500),
        t2: Duration::from_secs(4),
        open_operations_max: 1000,
        preamble_window: 3,
        preamble: true,
        expires: 3600,
        trace: false,
    }
}

pub(super) fn one(scenario: Scenario) -> Workload {
    workload(vec![Class::plain(scenario)])
}

impl Rig {
    pub(super) fn new(workload: &Workload) -> Rig {
        let assignment = Assignment {
            workload: workload.clone(),
            group: 3,
            rate_share: 1.0,
            callees: (0, workload.users.count),
            role: Role::Both,
            threads: 1,
            cpus: Vec::new(),
            sources: Vec::new(),
        };
        let worker = Worker::new(
            &assignment,
            0,
            1,
            assignment.callees,
            &[CALLER.parse().unwrap()],
            &[CALLEE.parse().unwrap()],
        );
        Rig {
            worker,
            manners: Manners::default(),
            now: Instant::from_micros(1_000_000),
            losses: Vec::new(),
            twice: false,
            log: Vec::new(),
            bindings: BTreeMap::new(),
            interval: Tally::new(workload.classes.len()),
            nonces: BTreeMap::new(),
            nonce: 0,
            texts: None,
            packets: VecDeque::new(),
            out: Outbox::default(),
            start: Instant::ZERO,
        }
    }

    /// Registers the users and forgets what was seen of it.
    pub(super) fn preamble(&mut self) {
        let contacts = self.worker.contacts();
        self.worker.register(self.now, &contacts, &mut self.out);
        self.carry();
        for _ in 0..100_000 {
            if self.worker.preamble().done() {
                break;
            }
            self.step(Instant::NEVER);
        }
        assert!(self.worker.preamble().done());
        self.log.clear();
        let _ = self.worker.counts();
    }

    /// Starts the arrivals and runs until the worker is finished.
    pub(super) fn run(&mut self) {
        self.start();
        self.run_until(self.now + Duration::from_secs(200));
        assert!(self.worker.finished(self.now), "still open: {}", self.worker.open());
    }

    pub(super) fn start(&mut self) {
        let contacts = self.worker.contacts();
        self.start = self.now;
        self.worker.start(self.now, &contacts);
    }

    pub(super) fn run_until(&mut self, end: Instant) {
        for _ in 0..1_000_000 {
            if self.now >= end || self.worker.finished(self.now) && self.packets.is_empty() {
                break;
            }
            self.step(end);
        }
        let counts = self.worker.counts();
        self.interval.merge(&counts.interval);
    }

    pub(super) fn measured(&mut self) -> ClassTally {
        let counts = self.worker.counts();
        self.interval.merge(&counts.interval);
        counts.measured.classes[0].clone()
    }

    /// Goes on for this long, finished or not.
    pub(super) fn linger(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.step(end);
        }
        let counts = self.worker.counts();
        self.interval.merge(&counts.interval);
    }

    /// The next thing that happens.
    fn step(&mut self, end: Instant) {
        let packet = self.packets.front().map_or(Instant::NEVER, |packet| packet.at);
        let timeout = self.worker.next_timeout().unwrap_or(Instant::NEVER);
        let next = packet.min(timeout).min(end);
        self.now = self.now.max(next);
        if next == end || next == Instant::NEVER {
            return;
        }
        if timeout <= packet {
            self.worker.handle(self.now, Input::Timeout, &mut self.out);
            self.carry();
        } else if let Some(packet) = self.packets.pop_front() {
            self.deliver(packet);
        }
    }

    fn deliver(&mut self, packet: Packet) {
        if hop_of(packet.to) == Hop::Server {
            self.serve(&packet);
            return;
        }
        self.inject(packet.from, packet.to, packet.text.as_bytes());
    }

    /// Hands bytes to the worker.
    pub(super) fn inject(&mut self, from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        let socket = SocketId(u16::from(hop_of(to) == Hop::Callee));
        self.worker.handle(self.now, Input::Datagram { socket, from, bytes }, &mut self.out);
        self.carry();
    }

    pub(super) fn refuse(&mut self) {
        self.worker.handle(self.now, Input::Refused { socket: SocketId(0) }, &mut self.out);
        self.carry();
    }

    /// Puts what the worker wants sent on its way.
    fn carry(&mut self) {
        self.worker.sent(self.now + Duration::from_micros(7));
        let out = std::mem::take(&mut self.out);
        for send in &out.sends {
            if self.manners.dead && known(send.to).is_none() {
                continue;
            }
            let text = String::from_utf8_lossy(out.datagram(send)).into_owned();
            if !self.manners.dead {
                check(&text);
            }
            let from = if send.socket == SocketId(0) { CALLER } else { CALLEE };
            self.put(from.parse().unwrap(), send.to, text);
        }
    }

    fn put(&mut self, from: SocketAddr, to: SocketAddr, text: String) {
        let (first, cseq) = (text.lines().next().unwrap_or(""), header(&text, "CSeq").unwrap_or_default());
        let method = cseq.split(' ').nth(1).unwrap_or("").to_owned();
        let brief = match first.strip_prefix("SIP/2.0 ") {
            Some(rest) => format!("{} {method}", &rest[..3]),
            None => first.split(' ').next().unwrap_or("").to_owned(),
        };
        self.log.push((hop_of(from), hop_of(to), brief));
        if let Some(texts) = &mut self.texts {
            texts.push((hop_of(from), hop_of(to), text.clone()));
        }
        let lost = self.losses.iter_mut().find(|loss| {
            loss.left > 0 && first.starts_with(loss.start) && method == loss.cseq && hop_of(to) == loss.to
        });
        if let Some(loss) = lost {
            loss.left -= 1;
            return;
        }
        let times = if self.twice && hop_of(from) == Hop::Server { 2 } else { 1 };
        for _ in 0..times {
            self.packets.push_back(Packet { at: self.now + WAY, from, to, text: text.clone() });
        }
    }

    /// How many messages of the log went this way; a brief word selects.
    pub(super) fn seen(&self, from: Hop, to: Hop, brief: &str) -> usize {
        self.log.iter().filter(|(f, t, b)| *f == from && *t == to && (brief.is_empty() || b == brief)).count()
    }

    /// Messages into and out of the server.
    pub(super) fn at_server(&self) -> (usize, usize) {
        let into = self.log.iter().filter(|(_, to, _)| *to == Hop::Server).count();
        (into, self.log.len() - into)
    }

    /// From now on the texts of all messages are kept.
    pub(super) fn record(&mut self) {
        self.texts.get_or_insert_default();
    }

    /// The worker's messages.
    pub(super) fn texts(&self) -> Vec<String> {
        let texts = self.texts.as_ref().unwrap();
        texts.iter().filter(|(from, ..)| *from != Hop::Server).map(|(_, _, text)| text.clone()).collect()
    }

    /// The server's messages.
    pub(super) fn delivered(&self) -> Vec<String> {
        let texts = self.texts.as_ref().unwrap();
        texts.iter().filter(|(from, ..)| *from == Hop::Server).map(|(_, _, text)| text.clone()).collect()
    }

    pub(super) fn clear(&mut self) {
        self.texts = None;
    }

    /// The first request of a method from the caller.
    pub(super) fn sent(&self, method: &str) -> String {
        self.texts().into_iter().find(|text| text.starts_with(method)).unwrap()
    }

    /// The first request of a method to the callee.
    pub(super) fn to_callee(&self, method: &str) -> String {
        self.delivered().into_iter().find(|text| text.starts_with(method)).unwrap()
    }

    /// Hands bytes to the worker and drops what it says to them: it need not be for anybody here.
    pub(super) fn feed(&mut self, to: SocketAddr, bytes: &[u8]) {
        let socket = SocketId(u16::from(hop_of(to) == Hop::Callee));
        let from = SERVER.parse().unwrap();
        self.worker.handle(self.now, Input::Datagram { socket, from, bytes }, &mut self.out);
        self.out.clear();
        self.manners.dead = true;
    }

    fn say(&mut self, to: SocketAddr, text: String) {
        self.put(SERVER.parse().unwrap(), to, text);
    }

    /// The server takes one message.
    fn serve(&mut self, packet: &Packet) {
        if self.manners.dead {
            return;
        }
        if packet.text.starts_with("SIP/2.0") {
            self.relay_response(packet);
            return;
        }
        let method = packet.text.split(' ').next().unwrap_or("").to_owned();
        let to = header(&packet.text, "To").unwrap_or_default();
        if method == "ACK" && to.ends_with("tag=srv") {
            return;
        }
        let in_dialog = to.contains("tag=");
        if method != "ACK" && method != "CANCEL" {
            if let Some(status) = self.manners.refuse {
                let text = answer(&packet.text, status, "");
                self.say(packet.from, text);
                return;
            }
            if self.challenges(packet, &method, in_dialog) {
                return;
            }
        }
        match method.as_str() {
            "REGISTER" => self.register(packet),
            "OPTIONS" => self.say(packet.from, answer(&packet.text, "200 OK", "")),
            _ => self.relay_request(packet, &method, in_dialog),
        }
    }

    fn challenges(&mut self, packet: &Packet, method: &str, in_dialog: bool) -> bool {
        let Some(rules) = self.manners.challenge else { return false };
        if in_dialog && !rules.all {
            return false;
        }
        let register = method == "REGISTER";
        let (field, status) = if register {
            ("WWW-Authenticate", "401 Unauthorized")
        } else {
            ("Proxy-Authenticate", "407 Proxy Authentication Required")
        };
        let given = header(&packet.text, if register { "Authorization" } else { "Proxy-Authorization" });
        let mut stale = "";
        if let Some(given) = given.filter(|_| !rules.hopeless) {
            let nonce = given.split("nonce=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
            let uri = packet.text.split(' ').nth(1).unwrap();
            assert!(given.contains(&format!("uri=\"{uri}\"")), "the digest is for another URI: {given}");
            if let Some(uses) = self.nonces.get_mut(&nonce) {
                *uses += 1;
                let count = given.split("nc=").nth(1).unwrap().split(',').next().unwrap();
                if !rules.anew {
                    assert_eq!(u32::from_str_radix(count, 16).unwrap(), *uses, "nonce counts go up by one");
                }
                if rules.uses == 0 || *uses <= rules.uses {
                    return false;
                }
                stale = ", stale=true";
            }
        }
        self.nonce += 1;
        let nonce = format!("nonce{}", self.nonce);
        let challenge =
            format!("{field}: Digest realm=\"r\", nonce=\"{nonce}\", qop=\"auth\", algorithm=MD5{stale}\r\n");
        self.nonces.insert(nonce, 0);
        let text = answer(&packet.text, status, &challenge);
        self.say(packet.from, text);
        true
    }

    fn register(&mut self, packet: &Packet) {
        let to = header(&packet.text, "To").unwrap();
        let aor = uri_of(&to);
        let contact = uri_of(&header(&packet.text, "Contact").unwrap());
        if header(&packet.text, "Expires").as_deref() == Some("0") {
            self.bindings.remove(&aor);
        } else {
            self.bindings.insert(aor.clone(), contact);
        }
        let bound = self.manners.odd_contact.map(str::to_owned).or_else(|| self.bindings.get(&aor).cloned());
        let list = bound.map(|uri| format!("Contact: <sip:other@10.9.9.9>, <{uri}>;expires=3600\r\n"));
        let text = answer(&packet.text, "200 OK", &list.unwrap_or_default());
        self.say(packet.from, text);
    }

    fn relay_request(&mut self, packet: &Packet, method: &str, in_dialog: bool) {
        let stateful = self.manners.stateful;
        if method == "INVITE" && stateful && !in_dialog {
            self.say(packet.from, answer(&packet.text, "100 Trying", ""));
        }
        let mut uri = packet.text.split(' ').nth(1).unwrap().to_owned();
        if let Some(contact) = self.bindings.get(&uri) {
            uri = contact.clone();
            if self.manners.redirect {
                let contact = format!("Contact: <{uri}>\r\n");
                self.say(packet.from, answer(&packet.text, "302 Moved Temporarily", &contact));
                return;
            }
        } else if uri.ends_with(SERVER) {
            self.say(packet.from, answer(&packet.text, "404 Not Found", ""));
            return;
        }
        let refusal_ack = method == "ACK" && self.answered_by_callee_with_refusal(&packet.text);
        if stateful && refusal_ack {
            return;
        }
        if stateful && method == "CANCEL" {
            self.say(packet.from, answer(&packet.text, "200 OK", ""));
        }
        let text = self.forwarded(packet, &mut uri, in_dialog || method == "CANCEL" || method == "ACK");
        let to = address_of(&uri);
        self.say(to, text);
    }

    fn answered_by_callee_with_refusal(&self, ack: &str) -> bool {
        // A refusal's ACK has the branch of its INVITE, whose Request-URI is the callee's address-of-record.
        ack.split(' ').nth(1).is_some_and(|uri| uri.ends_with(SERVER))
            || self.bindings.contains_key(ack.split(' ').nth(1).unwrap_or(""))
    }

    fn forwarded(&self, packet: &Packet, uri: &mut String, plain: bool) -> String {
        let branch = header(&packet.text, "Via").unwrap().split("branch=").nth(1).unwrap().to_owned();
        let mut lines: Vec<String> = Vec::new();
        let (head, body) = packet.text.split_once("\r\n\r\n").unwrap();
        let mut routes: Vec<String> = Vec::new();
        for line in head.split("\r\n").skip(1) {
            match line.strip_prefix("Route: ") {
                Some(route) => routes.push(route.to_owned()),
                None => lines.push(line.to_owned()),
            }
        }
        // What a strict router in front has done: the Request-URI was ours, the last Route is the target.
        if self.manners.record_routes.iter().any(|value| uri_of(value) == *uri) {
            *uri = uri_of(&routes.pop().expect("the remote target follows the routes"));
        }
        let method = packet.text.split(' ').next().unwrap();
        let first = format!("{method} {uri} SIP/2.0");
        let mut all = vec![first, format!("Via: SIP/2.0/UDP {SERVER};branch=z9hG4bK.{branch}.s")];
        if !plain {
            all.extend(self.manners.record_routes.iter().map(|value| format!("Record-Route: {value}")));
        }
        all.extend(lines);
        format!("{}\r\n\r\n{body}", all.join("\r\n"))
    }

    fn relay_response(&mut self, packet: &Packet) {
        let cseq = header(&packet.text, "CSeq").unwrap();
        let status = &packet.text[8..11];
        if self.manners.stateful {
            if cseq.ends_with("CANCEL") {
                return;
            }
            if cseq.ends_with("INVITE") && status >= "300" {
                self.acknowledge(packet);
            }
        }
        let (head, body) = packet.text.split_once("\r\n\r\n").unwrap();
        let mut lines: Vec<&str> = head.split("\r\n").collect();
        let top = lines.iter().position(|line| line.starts_with("Via:")).unwrap();
        assert!(lines[top].contains(SERVER), "our own Via is on top: {}", lines[top]);
        lines.remove(top);
        let next = lines[top].strip_prefix("Via: SIP/2.0/UDP ").unwrap();
        let to = next.split(';').next().unwrap().parse().unwrap();
        let text = format!("{}\r\n\r\n{body}", lines.join("\r\n"));
        self.say(to, text);
    }

    /// RFC 3261 §17.1.1.3, by the stateful server towards the callee.
    fn acknowledge(&mut self, packet: &Packet) {
        let value = |name| header(&packet.text, name).unwrap();
        let number = value("CSeq").split(' ').next().unwrap().to_owned();
        let text = format!(
            "ACK sip:callee@{} SIP/2.0\r\nVia: {}\r\nMax-Forwards: 70\r\nFrom: {}\r\nTo: {}\r\nCall-ID: {}\r\n\
             CSeq: {number} ACK\r\nContent-Length: 0\r\n\r\n",
            packet.from,
            value("Via"),
            value("From"),
            value("To"),
            value("Call-ID")
        );
        self.say(packet.from, text);
    }
}

/// The value of the first header line of a name.
pub(super) fn header(text: &str, name: &str) -> Option<String> {
    text.split("\r\n")
        .take_while(|line| !line.is_empty())
        .find_map(|line| line.split_once(": ").filter(|(n, _)| *n == name).map(|(_, value)| value.to_owned()))
}

fn uri_of(value: &str) -> String {
    value.split('<').nth(1).and_then(|rest| rest.split('>').next()).unwrap_or(value).to_owned()
}

fn address_of(uri: &str) -> SocketAddr {
    let host = uri.split('@').next_back().unwrap().trim_start_matches("sip:");
    host.split(';').next().unwrap().parse().unwrap()
}

fn known(address: SocketAddr) -> Option<Hop> {
    match address.to_string().as_str() {
        CALLER => Some(Hop::Caller),
        CALLEE => Some(Hop::Callee),
        SERVER => Some(Hop::Server),
        _ => None,
    }
}

fn hop_of(address: SocketAddr) -> Hop {
    known(address).unwrap_or_else(|| panic!("nobody is at {address}"))
}

/// An answer of the server itself.
fn answer(request: &str, status: &str, more: &str) -> String {
    let mut text = format!("SIP/2.0 {status}\r\n");
    for line in request.split("\r\n").take_while(|line| !line.is_empty()) {
        let name = line.split(':').next().unwrap();
        if matches!(name, "Via" | "From" | "Call-ID" | "CSeq") {
            text += &format!("{line}\r\n");
        } else if name == "To" {
            let tag = if line.contains("tag=") || status.starts_with("100") { "" } else { ";tag=srv" };
            text += &format!("{line}{tag}\r\n");
        }
    }
    text + more + "Content-Length: 0\r\n\r\n"
}

/// What every message of ours must be.
fn check(text: &str) {
    let mut index = sip::Index::new();
    let message = sip::Message::parse(text.as_bytes(), &mut index).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert_eq!(header(text, "Content-Length").unwrap().parse::<usize>().unwrap(), body.len(), "{text}");
    for name in ["Via", "From", "To", "Call-ID", "CSeq"] {
        assert!(header(text, name).is_some(), "{name} is missing: {text}");
    }
    assert!(header(text, "From").unwrap().contains(";tag="));
    if message.is_request() {
        assert_eq!(header(text, "Max-Forwards").as_deref(), Some("70"));
        let via = header(text, "Via").unwrap();
        assert!(via.contains(";rport;branch=z9hG4bK"), "{via}");
        let method = text.split(' ').next().unwrap();
        assert!(header(text, "CSeq").unwrap().ends_with(method), "{text}");
    }
    assert!(head.split("\r\n").all(|line| line.contains(": ") || line.contains("SIP/2.0")), "{text}");
}
