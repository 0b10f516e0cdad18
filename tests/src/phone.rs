//! A SIP user agent, driven line by line from the test: on a datagram socket, or over connections.

use std::cell::RefCell;
use std::collections::HashSet;
use std::fmt::{Display, Write as _};
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use crate::address::SIP_PORT;
use crate::streams::Streams;
use crate::{Connection, Credentials, Message, Server, Transport, loopback, unique};

/// How long anything that must come is waited for: long enough for a loaded machine.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// How long real programs are waited for, which take long to start where many do at once.
pub(crate) const PROGRAM_PATIENCE: Duration = Duration::from_secs(60);

/// How long nothing must come before we believe that nothing will: longer than T1 (RFC 3261 §17.1.1.1), so that a
/// wrong retransmission shows.
pub const QUIET: Duration = Duration::from_millis(800);

/// A user agent. It retransmits nothing by itself, skips copies of messages that it has seen, and skips 100s.
///
/// Over streams it has a connection of its own to the server and a listener beside; what it answers goes back by the
/// connection that the request came by, all else over its own one.
#[derive(Debug)]
pub struct Phone {
    user: String,
    /// What it puts into the To of its answers.
    tag: String,
    server: SocketAddr,
    wire: Wire,
    /// Host and port in its Via and Contact where those are not its real ones.
    advertised: Option<String>,
    seen: RefCell<HashSet<Vec<u8>>>,
    /// What went over the wire, printed when the test fails.
    transcript: RefCell<String>,
}

/// What carries a phone's messages.
#[derive(Debug)]
enum Wire {
    Datagrams(UdpSocket),
    Streams(Box<RefCell<Streams>>),
}

/// How a phone ends its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// With a FIN, and the server's is waited for.
    Close,
    /// With a RST.
    Reset,
}

impl Phone {
    /// A phone of `user` at an address of its own.
    pub fn new(server: &Server, user: &str) -> Self {
        Self::between(server.address(), SocketAddr::from((loopback(), 0)), user)
    }

    /// A phone bound to `local` that sends to `server`.
    ///
    /// # Panics
    ///
    /// When the address is taken.
    pub fn between(server: SocketAddr, local: SocketAddr, user: &str) -> Self {
        let socket = UdpSocket::bind(local).unwrap_or_else(|error| panic!("phone at {local}: {error}"));
        Self::on(Wire::Datagrams(socket), server, user)
    }

    /// A phone of `user` that talks to the server over this transport, from an address of its own. For secure
    /// transports it has a certificate of the server's authority for its address.
    pub fn over(transport: Transport, server: &Server, user: &str) -> Self {
        Self::over_at(transport, server, user, SocketAddr::from((loopback(), 0)))
    }

    /// The same at this address, where it listens; its port may be 0 for any.
    pub fn over_at(transport: Transport, server: &Server, user: &str, local: SocketAddr) -> Self {
        let credentials = transport.is_secure().then(|| {
            let authority = server.authority();
            Credentials::showing(authority, &authority.issue(&[&local.ip().to_string()]))
        });
        Self::over_with(transport, server, user, local, credentials)
    }

    /// The same, with these credentials.
    ///
    /// # Panics
    ///
    /// When the server cannot be connected to.
    pub fn over_with(
        transport: Transport,
        server: &Server,
        user: &str,
        local: SocketAddr,
        credentials: Option<Credentials>,
    ) -> Self {
        let target = server.address_of_family(transport, local);
        if transport == Transport::Udp {
            return Self::between(target, local, user);
        }
        let streams = Streams::new(transport, target, local, credentials);
        let mut phone = Self::on(Wire::Streams(Box::new(RefCell::new(streams))), server.address(), user);
        if transport.is_websocket() {
            // RFC 7118 §5: nobody can reach a browser by name or address, so any name does.
            phone.advertised = Some(format!("{}.invalid", unique()));
        }
        phone
    }

    fn on(wire: Wire, server: SocketAddr, user: &str) -> Self {
        let (seen, transcript) = (RefCell::default(), RefCell::default());
        Self { user: user.to_owned(), tag: unique(), server, wire, advertised: None, seen, transcript }
    }

    /// As behind a NAT: its Via and Contact name this host and port, where nobody is.
    #[must_use]
    pub fn advertising(mut self, host_port: &str) -> Self {
        self.advertised = Some(host_port.to_owned());
        self
    }

    /// Where it listens.
    ///
    /// # Panics
    ///
    /// Never: its socket is bound.
    pub fn address(&self) -> SocketAddr {
        match &self.wire {
            Wire::Datagrams(socket) => socket.local_addr().expect("invariant: the socket is bound"),
            Wire::Streams(streams) => streams.borrow().address(),
        }
    }

    /// What its messages travel over.
    pub fn transport(&self) -> Transport {
        match &self.wire {
            Wire::Datagrams(_) => Transport::Udp,
            Wire::Streams(streams) => streams.borrow().transport(),
        }
    }

    /// Ends all of its connections; its listener stays.
    pub fn cut(&self, how: Cut) {
        self.streams().borrow_mut().cut(how);
    }

    /// Opens a new connection to the server.
    pub fn reconnect(&self) {
        self.streams().borrow_mut().connect();
    }

    /// Refuses connections from now on.
    pub fn stop_listening(&self) {
        self.streams().borrow_mut().stop_listening();
    }

    /// How many connections the server has opened to it.
    pub fn opened_by_server(&self) -> usize {
        self.streams().borrow_mut().accepted()
    }

    /// How many pongs (RFC 5626 §3.5.1) came so far.
    pub fn pongs(&self) -> u32 {
        self.streams().borrow().pongs()
    }

    /// Does something with the phone's own connection.
    pub fn with_connection<T>(&self, run: impl FnOnce(&mut Connection) -> T) -> T {
        run(self.streams().borrow_mut().own())
    }

    fn streams(&self) -> &RefCell<Streams> {
        match &self.wire {
            Wire::Streams(streams) => streams,
            Wire::Datagrams(_) => panic!("a phone over UDP has no connections"),
        }
    }

    /// Host and port that it gives others.
    fn sent_by(&self) -> String {
        self.advertised.clone().unwrap_or_else(|| self.address().to_string())
    }

    /// The user's public address, at the server's.
    pub fn address_of_record(&self) -> String {
        format!("sip:{}@{}", self.user, host_port(self.server))
    }

    /// The URI of this phone itself.
    pub fn contact(&self) -> String {
        match self.transport() {
            Transport::Udp => format!("sip:{}@{}", self.user, self.sent_by()),
            other => format!("sip:{}@{};transport={}", self.user, self.sent_by(), other.parameter()),
        }
    }

    /// A new request of this phone outside a dialog (RFC 3261 §8.1.1).
    pub fn request(&self, method: &str, uri: &str) -> Message {
        let request =
            Message { start: format!("{method} {uri} SIP/2.0"), headers: Vec::new(), body: String::new() };
        request
            .with("Via", self.via())
            .with("Max-Forwards", 70)
            .with("From", format!("<{}>;tag={}", self.address_of_record(), unique()))
            .with("To", format!("<{uri}>"))
            .with("Call-ID", unique())
            .with("CSeq", format!("1 {method}"))
            .with("Contact", format!("<{}>", self.contact()))
            .with("Content-Length", 0)
    }

    /// A Via of this phone with a branch of its own.
    pub fn via(&self) -> String {
        format!("SIP/2.0/{} {};branch=z9hG4bK{}", self.transport().via(), self.sent_by(), unique())
    }

    /// A REGISTER of this phone's address-of-record (RFC 3261 §10.2), with its contact.
    pub fn register_request(&self) -> Message {
        let domain = format!("sip:{}", host_port(self.server));
        self.request("REGISTER", &domain)
            .set("To", format!("<{}>", self.address_of_record()))
            .with("Expires", 300)
    }

    /// Registers this phone.
    ///
    /// # Panics
    ///
    /// When the server does not accept it.
    pub fn register(&self) {
        let register = self.register_request();
        self.send(&register);
        self.expect_response(200, &register);
    }

    /// Registers a contact of another device for this phone's user, which must be accepted.
    pub fn register_contact(&self, contact: impl Display) {
        let register = self.register_request().set("Contact", contact);
        self.send(&register);
        self.expect_response(200, &register);
    }

    /// The ACK to a negative answer (RFC 3261 §17.1.1.3).
    pub fn acknowledge(&self, invite: &Message, answer: &Message) {
        self.send(&within_transaction(invite, "ACK").set("To", answer.header("To")));
    }

    /// The CANCEL of a request of ours (RFC 3261 §9.1).
    pub fn cancel(&self, invite: &Message) -> Message {
        let cancel = within_transaction(invite, "CANCEL");
        self.send(&cancel);
        cancel
    }

    /// Answers an INVITE with a 200 of this phone, and returns the answer.
    pub fn accept(&self, invite: &Message) -> Message {
        let contact = format!("<{}>", self.contact());
        let answer = invite.response(200, "OK", &self.tag).with("Contact", contact);
        self.send(&answer);
        answer
    }

    /// Answers a request with a status and no more.
    pub fn answer(&self, request: &Message, status: u16, reason: &str) -> Message {
        let answer = request.response(status, reason, &self.tag);
        self.send(&answer);
        answer
    }

    /// Sends a message to the server.
    pub fn send(&self, message: &Message) {
        self.send_bytes(message.to_string().as_bytes());
    }

    /// Sends any bytes to the server.
    ///
    /// # Panics
    ///
    /// When the network refuses them.
    pub fn send_bytes(&self, bytes: &[u8]) {
        self.note("sent", bytes);
        match &self.wire {
            Wire::Datagrams(socket) => {
                socket.send_to(bytes, self.server).unwrap_or_else(|error| panic!("sending: {error}"));
            }
            Wire::Streams(streams) => streams.borrow_mut().send(bytes),
        }
    }

    /// Sends a message to the server from another port of this phone's address, as a phone behind a restless NAT
    /// does. Answers still come to the address in its Via.
    ///
    /// # Panics
    ///
    /// When the network refuses it.
    pub fn send_from_elsewhere(&self, message: &Message) {
        let text = message.to_string();
        self.note("sent from another port", text.as_bytes());
        let socket = UdpSocket::bind((self.address().ip(), 0)).expect("the phone's address has free ports");
        socket.send_to(text.as_bytes(), self.server).unwrap_or_else(|error| panic!("sending: {error}"));
    }

    /// The next message must be a request of this method.
    ///
    /// # Panics
    ///
    /// When it is another, or none comes.
    pub fn expect_request(&self, method: &str) -> Message {
        let message = self.next(method);
        let is_expected = message.status().is_none() && message.method() == method;
        assert!(is_expected, "{} wants {method}, got:\n{message}", self.user);
        message
    }

    /// The next message must be a response with this status to this request. When a final one is wanted, provisional
    /// ones on the way are skipped.
    ///
    /// # Panics
    ///
    /// When it is another, or none comes.
    pub fn expect_response(&self, status: u16, request: &Message) -> Message {
        let message = loop {
            let message = self.next(&status.to_string());
            let is_passing = status >= 200 && message.status().is_some_and(|status| status < 200);
            if !is_passing || message.method() != request.method() {
                break message;
            }
        };
        let answers =
            message.find("Call-ID") == request.find("Call-ID") && message.method() == request.method();
        let is_expected = message.status() == Some(status) && answers;
        assert!(is_expected, "{} wants {status} to {}, got:\n{message}", self.user, request.start);
        message
    }

    /// A copy of a message that has come before must come again; what else comes until then is skipped.
    ///
    /// # Panics
    ///
    /// When it does not.
    pub fn expect_again(&self, message: &Message) {
        let deadline = Instant::now() + PATIENCE;
        while let Some(bytes) = self.receive_bytes(deadline.saturating_duration_since(Instant::now())) {
            if Message::parse(&bytes).as_ref() == Some(message) {
                return;
            }
        }
        panic!("{} waited in vain for a copy of:\n{message}", self.user);
    }

    /// Nothing new may come for a while; copies of what has come already may.
    ///
    /// # Panics
    ///
    /// When something comes.
    pub fn expect_nothing(&self) {
        if let Some(message) = self.receive(QUIET) {
            panic!("{} wants nothing, got:\n{message}", self.user);
        }
    }

    /// The next message that is neither a copy nor a 100, if one comes within the limit.
    pub fn receive(&self, limit: Duration) -> Option<Message> {
        let deadline = Instant::now() + limit;
        while let Some(bytes) = self.receive_bytes(deadline.saturating_duration_since(Instant::now())) {
            if !self.seen.borrow_mut().insert(bytes.clone()) {
                continue;
            }
            // Keep-alives and other bytes that are no message say nothing to a user agent.
            let Some(message) = Message::parse(&bytes) else { continue };
            if message.status() != Some(100) {
                return Some(message);
            }
        }
        None
    }

    /// The next datagram, whatever it is, if one comes within the limit; over streams the next message.
    ///
    /// # Panics
    ///
    /// When the socket breaks.
    pub fn receive_bytes(&self, limit: Duration) -> Option<Vec<u8>> {
        let bytes = match &self.wire {
            Wire::Datagrams(socket) => datagram(socket, limit),
            Wire::Streams(streams) => streams.borrow_mut().receive(limit),
        }?;
        self.note("got", &bytes);
        Some(bytes)
    }

    fn next(&self, wanted: &str) -> Message {
        self.receive(PATIENCE).unwrap_or_else(|| panic!("{} waited in vain for {wanted}", self.user))
    }

    fn note(&self, direction: &str, bytes: &[u8]) {
        let text = String::from_utf8_lossy(bytes);
        // Writing to a String cannot fail.
        let _ = writeln!(self.transcript.borrow_mut(), "{} {direction}:\n{}", self.user, text.trim_end());
    }
}

impl Drop for Phone {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("---- {} at {}\n{}", self.user, self.address(), self.transcript.borrow());
        }
    }
}

/// The next datagram, if one comes within the limit. A wait that is interrupted before its time goes on: where a process was
/// stopped and continued, that is how Linux ends the wait for a socket (signal(7)).
///
/// # Panics
///
/// When the socket breaks.
pub fn datagram(socket: &UdpSocket, limit: Duration) -> Option<Vec<u8>> {
    let deadline = Instant::now() + limit;
    let mut buffer = vec![0; usize::from(u16::MAX)];
    loop {
        // A timeout of zero would mean none at all.
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        socket.set_read_timeout(Some(left)).expect("invariant: the timeout is not zero");
        match socket.recv_from(&mut buffer) {
            Ok((length, _)) => {
                buffer.truncate(length);
                return Some(buffer);
            }
            Err(error) if !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                panic!("the phone's socket broke: {error}")
            }
            Err(_) if Instant::now() < deadline => {}
            Err(_) => return None,
        }
    }
}

/// A request with the identity of the transaction of `invite`.
fn within_transaction(invite: &Message, method: &str) -> Message {
    let number = invite.header("CSeq").split(' ').next().unwrap_or_default();
    let start = format!("{method} {} SIP/2.0", invite.uri());
    let request = Message { start, headers: Vec::new(), body: String::new() };
    let copied = ["Via", "From", "To", "Call-ID", "Route", "Max-Forwards"];
    let copies = copied.iter().flat_map(|name| invite.all(name).into_iter().map(move |value| (*name, value)));
    let request = copies.fold(request, |request, (name, value)| request.with(name, value));
    request.with("CSeq", format!("{number} {method}")).with("Content-Length", 0)
}

/// An address as it stands in a URI, without the port that is the default.
fn host_port(address: SocketAddr) -> String {
    match address {
        SocketAddr::V4(v4) if v4.port() == SIP_PORT => v4.ip().to_string(),
        SocketAddr::V6(v6) if v6.port() == SIP_PORT => format!("[{}]", v6.ip()),
        other => other.to_string(),
    }
}
