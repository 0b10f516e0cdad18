//! A phone: a user agent (RFC 3261 §8, §12, §13) with transactions of its own (§17), written from the RFC and
//! sharing nothing with the server. What it does when is drawn from the seed.

mod client;
mod dialog;
mod habits;
mod keys;
mod server;

use crate::prng::Prng;
use crate::text::{Msg, host_of, uri_of};
use crate::trace::Micros;
use client::Client;
use dialog::Dialog;
pub use habits::Habits;
pub use keys::{Keys, Manner};
use server::ServerTransaction;
use std::net::SocketAddr;

/// RFC 3261 Table 4.
pub const T1: Micros = 500_000;
/// RFC 3261 Table 4.
pub const T2: Micros = 4_000_000;
/// RFC 3261 Table 4.
pub const T4: Micros = 5_000_000;
/// 64*T1.
pub const LONG: Micros = 64 * T1;

/// A way out of a phone, or the one by which something came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// A datagram from or to there.
    Datagram(SocketAddr),
    /// A connection.
    Stream(u64),
    /// A connection to there, opened if need be.
    Connect(SocketAddr),
}

impl Way {
    /// Whether nothing needs to be sent again.
    pub fn is_reliable(self) -> bool {
        !matches!(self, Way::Datagram(_))
    }
}

/// Something that a phone does some time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task {
    /// Registers, or changes what is registered.
    Register,
    /// Calls this user.
    Call(String),
    /// Sends a request outside of dialogs: method, user.
    Ask(&'static str, String),
    /// Gives up the call with this Call-ID.
    Cancel(String),
    /// Ends the dialog with this Call-ID and remote tag.
    Hangup(String, String),
    /// Offers another session in this dialog.
    Reinvite(String, String),
    /// Answers the server transaction of this number so.
    Answer(u64, u16),
}

/// A call that this phone began.
#[derive(Clone, Debug)]
struct Call {
    call_id: String,
    cancel_wanted: bool,
    cancel_sent: bool,
    over: bool,
}

/// What became of the calls, for the net grid.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Calls begun.
    pub begun: u64,
    /// Those accepted.
    pub accepted: u64,
    /// From INVITE to the first 2xx (µs).
    pub set_up: Vec<Micros>,
    /// Messages sent again.
    pub again: u64,
    /// The Request-URIs of BYEs that nobody answered.
    pub unanswered_byes: Vec<String>,
}

/// See the module's documentation.
pub struct Phone {
    /// Where it listens.
    pub address: SocketAddr,
    /// Whose phone it is.
    pub user: String,
    /// Whether it speaks by TCP.
    pub tcp: bool,
    /// Where its requests go first.
    pub proxy: SocketAddr,
    /// The registrar.
    pub home: SocketAddr,
    /// What it sends: way and message.
    pub out: Vec<(Way, Vec<u8>)>,
    /// What became of its calls.
    pub tally: Tally,
    habits: Habits,
    keys: Option<Keys>,
    prng: Prng,
    clients: Vec<Client>,
    servers: Vec<ServerTransaction>,
    calls: Vec<Call>,
    dialogs: Vec<Dialog>,
    agenda: Vec<(Micros, u64, Task)>,
    sequence: u64,
    register_call: String,
    register_cseq: u32,
    /// What it registers, if not itself.
    leads_to: Vec<String>,
    /// It registers no more after this.
    registers_until: Micros,
}

impl Phone {
    /// A phone of `user` at `address`.
    pub fn new(
        address: SocketAddr,
        user: String,
        tcp: bool,
        proxy: SocketAddr,
        home: SocketAddr,
        mut prng: Prng,
    ) -> Phone {
        let register_call = format!("reg-{}", prng.word());
        Phone {
            address,
            user,
            tcp,
            proxy,
            home,
            out: Vec::new(),
            tally: Tally::default(),
            habits: Habits::draw(&mut prng),
            keys: None,
            prng,
            clients: Vec::new(),
            servers: Vec::new(),
            calls: Vec::new(),
            dialogs: Vec::new(),
            agenda: Vec::new(),
            sequence: 0,
            register_call,
            register_cseq: 0,
            leads_to: Vec::new(),
            registers_until: 0,
        }
    }

    /// Other habits than those drawn.
    pub fn set_habits(&mut self, habits: Habits) {
        self.habits = habits;
    }

    /// Registers these URIs, and never itself but as one of them.
    pub fn lead_to(&mut self, uris: Vec<String>) {
        self.leads_to = uris;
    }

    /// Does something at `at`.
    pub fn plan(&mut self, at: Micros, task: Task) {
        self.sequence += 1;
        self.agenda.push((at, self.sequence, task));
    }

    /// Registers itself again and again until then.
    pub fn register_until(&mut self, at: Micros, until: Micros) {
        self.registers_until = until;
        self.plan(at, Task::Register);
    }

    /// Transactions and plans that are left: none, at rest.
    pub fn remains(&self) -> usize {
        self.clients.len() + self.servers.len() + self.agenda.len()
    }

    /// When [`Phone::tick`] is to be called.
    pub fn next(&self) -> Option<Micros> {
        let clients = self.clients.iter().flat_map(|client| [client.resend_at, client.expire_at]);
        let servers = self.servers.iter().flat_map(|server| [server.resend_at, server.expire_at]);
        let dialogs = self.dialogs.iter().map(|dialog| dialog.resend_at);
        let agenda = self.agenda.iter().map(|(at, ..)| Some(*at));
        clients.chain(servers).chain(dialogs).chain(agenda).flatten().min()
    }

    /// The clock reached [`Phone::next`].
    pub fn tick(&mut self, now: Micros) {
        self.tick_clients(now);
        self.tick_servers(now);
        self.tick_dialogs(now);
        self.agenda.sort_by_key(|(at, sequence, _)| (*at, *sequence));
        while self.agenda.first().is_some_and(|(at, ..)| *at <= now) {
            let (_, _, task) = self.agenda.remove(0);
            self.perform(now, task);
        }
    }

    fn perform(&mut self, now: Micros, task: Task) {
        match task {
            Task::Register => self.register(now),
            Task::Call(user) => self.call(now, &user),
            Task::Ask(method, user) => self.ask(now, method, &user),
            Task::Cancel(call_id) => self.cancel(now, &call_id),
            Task::Hangup(call_id, tag) => self.hangup(now, &call_id, &tag),
            Task::Reinvite(call_id, tag) => self.reinvite(now, &call_id, &tag),
            Task::Answer(number, status) => self.answer(now, number, status),
        }
    }

    /// A message came.
    pub fn receive(&mut self, now: Micros, way: Way, msg: &Msg) {
        match (msg.status(), msg.method()) {
            (Some(status), _) => self.on_response(now, status, msg),
            (None, "ACK") => self.on_ack(now, msg),
            (None, _) => self.on_request(now, way, msg),
        }
    }

    /// What was sent on a connection is lost (RFC 3261 §8.1.3.1: as a 503).
    pub fn broken(&mut self, to: SocketAddr) {
        let lost: Vec<_> = self
            .clients
            .iter()
            .filter(|client| client.way == Way::Connect(to) && client.is_waiting())
            .map(|client| (client.branch.clone(), client.msg.method().to_owned()))
            .collect();
        for (branch, method) in lost {
            self.client_failed(&branch, &method);
        }
    }

    // --- requests
    // -----------------------------------------------------------------------------------------------------

    /// `sip:user@address` with what others need to reach it.
    pub fn contact(&self) -> String {
        let transport = if self.tcp { ";transport=tcp" } else { "" };
        format!("sip:{}@{}{transport}", self.user, self.address)
    }

    fn via(&mut self, transport: &str) -> (String, String) {
        let branch = format!("z9hG4bK{}", self.prng.word());
        let host = if self.habits.hides {
            format!("192.168.0.7:{}", self.address.port())
        } else {
            self.address.to_string()
        };
        let rport = if self.habits.rport { ";rport" } else { "" };
        (format!("SIP/2.0/{transport} {host};branch={branch}{rport}"), branch)
    }

    /// From now on requests leave by another port than responses come to, unless they are to come to where it left (RFC 3581).
    pub fn speak_elsewhere(&mut self) {
        self.habits.elsewhere = !self.habits.rport;
    }

    /// The address that a datagram leaves by.
    pub fn sends_from(&self, bytes: &[u8]) -> SocketAddr {
        let is_elsewhere = self.habits.elsewhere && !bytes.starts_with(b"SIP/2.0 ");
        SocketAddr::new(self.address.ip(), self.address.port() + if is_elsewhere { 1_000 } else { 0 })
    }

    /// A request with the headers that every one has (RFC 3261 §8.1.1); its branch.
    fn request(&mut self, method: &str, uri: &str, headers: Vec<(&str, String)>, way: Way) -> (Msg, String) {
        let (via, branch) = self.via(if way.is_reliable() { "TCP" } else { "UDP" });
        let mut all = vec![("via".to_owned(), via)];
        let hops = self.habits.max_forwards.map(|hops| ("max-forwards".to_owned(), hops.to_string()));
        all.extend(hops);
        all.extend(headers.into_iter().map(|(name, value)| (name.to_owned(), value)));
        (Msg { first: format!("{method} {uri} SIP/2.0"), headers: all, body: String::new() }, branch)
    }

    /// The way to the outbound proxy or to the registrar.
    fn way_to(&self, address: SocketAddr) -> Way {
        if self.tcp { Way::Connect(address) } else { Way::Datagram(address) }
    }

    /// The way to what a Route or a target URI names.
    fn way_by(&self, uri: &str) -> Way {
        let address = crate::text::address_of(uri).unwrap_or(self.proxy);
        if uri.contains("transport=tcp") { Way::Connect(address) } else { Way::Datagram(address) }
    }

    fn register(&mut self, now: Micros) {
        let expires = match (self.habits.steady, now >= self.registers_until) {
            (true, _) => 3_600,
            (false, true) => 0,
            (false, false) => *self.prng.pick(&[20, 40, 60, 120, 240]),
        };
        self.register_cseq += 1;
        let aor = format!("<sip:{}@home.example>", self.user);
        let contact = self.registered_contact(expires);
        let tag = self.prng.word();
        let mut headers = vec![
            ("from", format!("{aor};tag={tag}")),
            ("to", aor.clone()),
            ("call-id", self.register_call.clone()),
            ("cseq", format!("{} REGISTER", self.register_cseq)),
        ];
        if contact.as_deref() == Some("*") {
            headers.push(("expires", "0".to_owned()));
        }
        headers.extend(contact.map(|contact| ("contact", contact)));
        let way = self.way_to(self.home);
        let (mut msg, _) = self.request("REGISTER", "sip:home.example", headers, way);
        self.preempt(&mut msg);
        self.begin(now, msg, way, None);
        if now < self.registers_until && !self.habits.steady {
            let after = self.prng.between(expires.max(30) / 2, expires.max(30)) * 1_000_000;
            self.plan((now + after).min(self.registers_until), Task::Register);
        }
    }

    /// The Contact of a REGISTER; `None`: it only asks.
    fn registered_contact(&mut self, expires: u64) -> Option<String> {
        if !self.leads_to.is_empty() {
            let contacts = self.leads_to.iter().map(|uri| format!("<{uri}>;expires={expires}"));
            return Some(contacts.collect::<Vec<_>>().join(", "));
        }
        let contact = self.contact();
        if self.habits.steady {
            return Some(format!("<{contact}>;expires={expires}"));
        }
        match (self.prng.below(20), expires) {
            (0, _) => None,
            // Everything of this user goes.
            (1, _) => Some("*".to_owned()),
            (_, 0) => Some(format!("<{contact}>;expires=0")),
            (2, _) => {
                let user = &self.user;
                Some(format!("<{contact}>;expires={expires}, <sip:{user}@10.2.0.1>;expires=30;q=0.1"))
            }
            _ => Some(format!("<{contact}>;expires={expires};q=0.{}", self.habits.q)),
        }
    }

    fn call(&mut self, now: Micros, user: &str) {
        let call_id = format!("call-{}", self.prng.word());
        let tag = self.prng.word();
        let headers = vec![
            ("from", format!("\"{}, x\" <sip:{}@home.example>;tag={tag}", self.user, self.user)),
            ("to", format!("<sip:{user}@home.example>")),
            ("call-id", call_id.clone()),
            ("cseq", "1 INVITE".to_owned()),
            ("contact", format!("<{}>", self.contact())),
            ("x-unknown", format!("  <\"odd>; {}", self.prng.word())),
        ];
        let way = self.way_to(self.proxy);
        let (mut msg, _) = self.request("INVITE", &format!("sip:{user}@home.example"), headers, way);
        msg.body = self.habits.body(&mut self.prng);
        self.preempt(&mut msg);
        self.calls.push(Call {
            call_id: call_id.clone(),
            cancel_wanted: false,
            cancel_sent: false,
            over: false,
        });
        self.tally.begun += 1;
        let patience = self.habits.patience(&mut self.prng);
        self.plan(now + patience, Task::Cancel(call_id));
        self.begin(now, msg, way, None);
    }

    fn ask(&mut self, now: Micros, method: &'static str, user: &str) {
        let tag = self.prng.word();
        let headers = vec![
            ("from", format!("<sip:{}@home.example>;tag={tag}", self.user)),
            ("to", format!("<sip:{user}@home.example>")),
            ("call-id", format!("ask-{}", self.prng.word())),
            ("cseq", format!("1 {method}")),
        ];
        let way = self.way_to(self.proxy);
        let (msg, _) = self.request(method, &format!("sip:{user}@home.example"), headers, way);
        self.begin(now, msg, way, None);
    }

    fn cancel(&mut self, now: Micros, call_id: &str) {
        let Some(call) = self.calls.iter_mut().find(|call| call.call_id == call_id && !call.over) else {
            return;
        };
        call.cancel_wanted = true;
        self.send_cancel(now, call_id);
    }

    /// RFC 3261 §9.1: once a provisional response has come.
    fn send_cancel(&mut self, now: Micros, call_id: &str) {
        let Some(call) = self.calls.iter_mut().find(|call| call.call_id == call_id) else { return };
        let Some(invite) = self.clients.iter_mut().find(|client| client.is_ringing(call_id)) else { return };
        if call.cancel_sent || !call.cancel_wanted {
            return;
        }
        call.cancel_sent = true;
        // RFC 3261 §9.1: over 64*T1 later, whatever comes; a little more, for who waits as long.
        invite.expire_at = Some(now + LONG + T2);
        let same = |name: &str| matches!(name, "max-forwards" | "from" | "to" | "call-id" | "route");
        let mut headers: Vec<_> = invite.msg.headers.iter().take(1).cloned().collect();
        headers.extend(invite.msg.headers.iter().filter(|(name, _)| same(name)).cloned());
        headers.push(("cseq".to_owned(), format!("{} CANCEL", invite.msg.cseq())));
        let first = format!("CANCEL {} SIP/2.0", invite.msg.uri());
        let (msg, way) = (Msg { first, headers, body: String::new() }, invite.way);
        let branch = invite.branch.clone();
        self.begin(now, msg, way, Some(branch));
    }
}

/// Whether a URI is a loose router's.
fn is_loose(uri: &str) -> bool {
    uri.split(';').skip(1).any(|param| param == "lr" || param.starts_with("lr="))
}

/// The first Route's URI, else the target: where a request in a dialog goes (RFC 3261 §12.2.1.1).
fn next_hop<'a>(routes: &'a [String], target: &'a str) -> &'a str {
    match routes.first() {
        Some(route) if is_loose(uri_of(route)) && !host_of(uri_of(route)).is_empty() => uri_of(route),
        _ => target,
    }
}
