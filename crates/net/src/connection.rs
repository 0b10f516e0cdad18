//! One connection: bytes in, messages out, and back (RFC 3261 §18).
//!
//! ```text
//!  socket ── (TLS session) ── (WebSocket) ── framer ──▶ messages
//! ```
//!
//! A connection without anything half done owns no buffer: what is read lies in a buffer of the shard's, and only the
//! rest of an incomplete message, or what the peer has not yet taken, is kept.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use engine::{FlowId, ListenerId, Path};
use mio::net::TcpStream;
use sip::stream::{Broken, Frame, Framer, NotSip, StreamLimits};
use sip::{Instant, Transport};

use crate::peers::Key;
use crate::stream_settings::{Ended, StreamSettings, StreamStatistics};
use crate::tls::Session;
use crate::websocket::{Closed, Event, WebSocket, WebSocketPolicy, close_code};

/// Bytes of unfinished messages of a shard together; past it the connection that adds to them is closed.
const PARTIAL_BYTES_MAX: usize = 64 << 20;
/// Bytes that are gathered for one write; more are written at once.
const COALESCE_BYTES: usize = 64 << 10;
/// Buffers kept for the next one who needs one.
const SPARE_BUFFERS: usize = 64;
/// A larger buffer is given back to the system.
const SPARE_BYTES_MAX: usize = 128 << 10;
/// How long a connection whose peer has said its last word waits for the answers that are owed (64*T1).
const HALF_CLOSED: Duration = Duration::from_secs(32);
/// How long a connection of which we have enough waits for the peer to have read our last answer.
const LINGER: Duration = Duration::from_secs(2);
/// Bytes thrown away meanwhile; past it the connection is closed.
const LINGER_BYTES_MAX: usize = 256 << 10;
/// How long a TLS handshake is waited for: the pool answers sooner, but its answer is lost if the shard's queue is full.
const SECURING: Duration = Duration::from_secs(120);
/// How long a connection lives on which somebody waits for an answer, where that is longer than others live: Timer C
/// (RFC 3261 §16.6 item 11), and some time for what follows it.
const ANSWER_AWAITED: Duration = Duration::from_secs(200);
/// How long a request may be unanswered for the loss of its connection to be told (64*T1, Timers B and F).
const ANSWER_EXPECTED: Duration = Duration::from_secs(32);

/// Where messages go.
pub(crate) trait Upward {
    /// A whole message.
    fn message(&mut self, path: Path, bytes: &[u8]);
}

/// How far a connection has got.
#[derive(Debug)]
pub(crate) enum State {
    /// TCP's handshake is under way.
    Connecting(Box<Waiting>),
    /// TLS's is, at the pool; the socket is there.
    Securing(Box<Waiting>),
    /// Messages pass.
    Open,
    /// We have enough: what comes is thrown away, what is owed is written, then it ends.
    Ending { why: Ended, until: Instant, discarded: usize },
}

/// What waits for a connection to be there.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    /// Whom TLS must prove; the address if it is empty.
    pub(crate) domain: Box<[u8]>,
    pub(crate) bytes: Vec<u8>,
    pub(crate) messages: Vec<Held>,
}

/// One message that waits.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) path: Path,
    /// The shard that it is from.
    pub(crate) origin: usize,
    pub(crate) len: usize,
}

/// A response that may have gone to nobody.
#[derive(Debug)]
pub(crate) struct LastWord {
    pub(crate) path: Path,
    /// The shard that it is from.
    pub(crate) origin: usize,
    pub(crate) bytes: Vec<u8>,
}

/// By what else a connection is found (RFC 5923).
#[derive(Debug)]
pub(crate) struct Alias {
    /// The peer's own address.
    pub(crate) remote: SocketAddr,
    /// That address, over TLS with each of the names that the peer has proved.
    pub(crate) keys: Vec<Key>,
}

/// What all connections of a shard use together.
pub(crate) struct Desk {
    pub(crate) settings: StreamSettings,
    pub(crate) limits: StreamLimits,
    pub(crate) policy: Arc<WebSocketPolicy>,
    pub(crate) statistics: StreamStatistics,
    pub(crate) now: Instant,
    pub(crate) queued_bytes: usize,
    partial_bytes: usize,
    spare: Vec<Vec<u8>>,
    plaintext: Vec<u8>,
    replies: Vec<u8>,
    framed: Vec<u8>,
}

impl Desk {
    pub(crate) fn new(settings: StreamSettings, limits: StreamLimits, policy: WebSocketPolicy) -> Desk {
        Desk {
            settings,
            limits,
            policy: Arc::new(policy),
            statistics: StreamStatistics::default(),
            now: Instant::ZERO,
            queued_bytes: 0,
            partial_bytes: 0,
            spare: Vec::new(),
            plaintext: Vec::new(),
            replies: Vec::new(),
            framed: Vec::new(),
        }
    }

    /// The counters, with what is there now.
    pub(crate) fn statistics(&self) -> StreamStatistics {
        StreamStatistics {
            queued_bytes: self.queued_bytes as u64,
            partial_bytes: self.partial_bytes as u64,
            ..self.statistics
        }
    }

    fn buffer(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    fn give_back(&mut self, mut buffer: Vec<u8>) {
        if self.spare.len() < SPARE_BUFFERS && (1..=SPARE_BYTES_MAX).contains(&buffer.capacity()) {
            buffer.clear();
            self.spare.push(buffer);
        }
    }
}

/// What was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// All that was there.
    All,
    /// As much as goes at once; there may be more.
    Some,
    /// The peer has said its last word.
    Last,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Connection {
    /// Not here while TLS's handshake has it.
    pub(crate) socket: Option<TcpStream>,
    pub(crate) state: State,
    pub(crate) transport: Transport,
    pub(crate) listener: ListenerId,
    pub(crate) flow: FlowId,
    pub(crate) local: Option<IpAddr>,
    pub(crate) remote: SocketAddr,
    /// By which it is found.
    pub(crate) key: Key,
    /// By what it is found as well.
    pub(crate) alias: Option<Alias>,
    /// It counts as one of its source's.
    pub(crate) accepted: bool,
    /// There may be something to read.
    pub(crate) ready: bool,
    /// It is listed as one that has something to write.
    pub(crate) dirty: bool,
    /// The network has told of the end of the stream, or of an error; what came before is read first.
    pub(crate) nears_end: bool,
    /// The peer has said its last word; it may still listen.
    read_closed: bool,
    /// A WebSocket that has been silent for half its time has been asked whether it is there.
    pinged: bool,
    session: Option<Box<Session>>,
    websocket: Option<Box<WebSocket>>,
    framer: Framer,
    /// The beginning of a message.
    rest: Vec<u8>,
    /// Bytes of `rest`, or those that the WebSocket holds.
    partial: usize,
    /// What the peer has not yet taken is `queue[taken..]`.
    queue: Vec<u8>,
    taken: usize,
    /// Something that is SIP has come by it, or it was opened by us.
    proven: bool,
    /// Requests that came and have had no final answer, as far as can be told from here.
    owed: u32,
    /// Of these, the INVITEs.
    invites: u32,
    /// Requests that went and have had none.
    asked: u32,
    /// Responses to a peer that has said its last word: if it was gone altogether, they take another way.
    last_words: Vec<LastWord>,
    /// The shards that sent requests by it.
    origins: u64,
    /// When something last came or went whole; before it is established, when it began.
    pub(crate) active: Instant,
    /// When the first byte of the message came that is not whole.
    partial_since: Option<Instant>,
    /// Since when the peer has taken nothing of what waits for it.
    blocked_since: Option<Instant>,
    /// When a request was last sent.
    request_at: Option<Instant>,
}

impl Connection {
    pub(crate) fn new(
        socket: TcpStream,
        state: State,
        transport: Transport,
        path: Path,
        key: Key,
        now: Instant,
    ) -> Connection {
        let websocket = matches!(transport, Transport::Ws | Transport::Wss);
        let proven = !matches!(state, State::Open);
        Connection {
            socket: Some(socket),
            transport,
            listener: path.listener,
            flow: FlowId::NONE,
            state,
            local: path.local,
            remote: path.remote,
            key,
            alias: None,
            accepted: false,
            ready: false,
            dirty: false,
            nears_end: false,
            read_closed: false,
            pinged: false,
            session: None,
            websocket: websocket.then(|| Box::new(WebSocket::new())),
            framer: Framer::new(),
            rest: Vec::new(),
            partial: 0,
            queue: Vec::new(),
            taken: 0,
            proven,
            owed: 0,
            invites: 0,
            asked: 0,
            last_words: Vec::new(),
            origins: 0,
            active: now,
            partial_since: None,
            blocked_since: None,
            request_at: None,
        }
    }

    pub(crate) fn is_tls(&self) -> bool {
        matches!(self.transport, Transport::Tls | Transport::Wss)
    }

    /// Nothing is under way: it may be closed for another's sake.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.state, State::Open) && self.queued() == 0 && self.partial == 0 && !self.is_awaited()
    }

    /// It waits for an answer, and has been silent for so long that most have given up: it may be closed for another's
    /// sake where there is no better one.
    pub(crate) fn is_given_up(&self, now: Instant) -> bool {
        matches!(self.state, State::Open) && now.since(self.active) > ANSWER_EXPECTED
    }

    /// Somebody waits for an answer that comes or goes by it: a call rings.
    fn is_awaited(&self) -> bool {
        self.owed > 0 || self.asked > 0
    }

    /// Something that is SIP has come by it, or it was opened by us: it is not closed for another's sake while there are
    /// others that only hold a place.
    pub(crate) fn is_proven(&self) -> bool {
        self.proven
    }

    /// How long it may be silent.
    fn lifetime(&self, settings: &StreamSettings) -> Duration {
        if self.is_awaited() {
            settings.lifetime.max(ANSWER_AWAITED)
        } else if self.proven {
            settings.lifetime
        } else {
            // Whoever connects has something to say.
            settings.lifetime.min(settings.message_timeout)
        }
    }

    /// Bytes that wait for the peer.
    pub(crate) fn queued(&self) -> usize {
        self.queue.len() - self.taken
    }

    pub(crate) fn session(&self) -> Option<&Session> {
        self.session.as_deref()
    }

    /// The way by which its messages come.
    pub(crate) fn path(&self) -> Path {
        Path { flow: self.flow, ..Path::new(self.listener, self.local, self.remote) }
    }

    // --- out ----------------------------------------------------------------------------------------------------------

    /// Takes a message to be sent; `origin` is the shard that it is from.
    ///
    /// # Errors
    ///
    /// Why the connection must end: too much waits for its peer.
    pub(crate) fn append(&mut self, message: &[u8], origin: usize, desk: &mut Desk) -> Result<(), Ended> {
        match message.strip_prefix(b"SIP/2.0 ") {
            Some(rest) if rest.first().is_some_and(|class| *class >= b'2') => {
                self.note_answered(message, rest);
            }
            Some(_) => {}
            None if message.starts_with(b"ACK ") => {}
            None => {
                self.asked = self.asked.saturating_add(1);
                self.request_at = Some(desk.now);
                self.origins |= 1 << (origin as u64 % 64);
            }
        }
        desk.statistics.messages_sent += 1;
        self.active = desk.now;
        self.put(message, desk)?;
        self.bound_queue(desk)
    }

    /// Counts a final response that goes. A 2xx to an INVITE goes again until its ACK comes, and once for each branch of
    /// a fork (RFC 3261 §13.3.1.4): where no INVITE is owed an answer, it is none to another request.
    fn note_answered(&mut self, response: &[u8], status: &[u8]) {
        if self.owed == 0 {
            return;
        }
        if is_to_invite(response) {
            if self.invites == 0 && status.starts_with(b"2") {
                return;
            }
            self.invites = self.invites.saturating_sub(1);
        }
        self.owed -= 1;
    }

    /// Puts one message through the layers into the queue.
    fn put(&mut self, message: &[u8], desk: &mut Desk) -> Result<(), Ended> {
        let Some(websocket) = self.websocket.take() else { return self.put_bytes(message, desk) };
        let mut framed = std::mem::take(&mut desk.framed);
        framed.clear();
        websocket.write(message, &mut framed);
        self.websocket = Some(websocket);
        let put = self.put_bytes(&framed, desk);
        desk.framed = framed;
        put
    }

    /// Puts bytes into the queue, encrypted if need be.
    fn put_bytes(&mut self, bytes: &[u8], desk: &mut Desk) -> Result<(), Ended> {
        if self.queue.capacity() == 0 {
            self.queue = desk.buffer();
        }
        let before = self.queue.len();
        let put = match &mut self.session {
            None => {
                self.queue.extend_from_slice(bytes);
                Ok(())
            }
            Some(session) => session.send(bytes, &mut self.queue).map_err(|_| Ended::TlsBroken),
        };
        desk.queued_bytes += self.queue.len() - before;
        put
    }

    /// Gives the kernel what waits, as much as it takes.
    ///
    /// # Errors
    ///
    /// Why the connection must end.
    pub(crate) fn write(&mut self, desk: &mut Desk) -> Result<(), Ended> {
        while self.queued() > 0 {
            let Some(socket) = &mut self.socket else { return Ok(()) };
            match socket.write(&self.queue[self.taken..]) {
                Ok(0) => return Err(Ended::Reset),
                Ok(n) => {
                    self.taken += n;
                    desk.queued_bytes -= n;
                    self.blocked_since = None;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.blocked_since.get_or_insert(desk.now);
                    self.compact();
                    return Ok(());
                }
                Err(_) => return Err(Ended::Reset),
            }
        }
        self.taken = 0;
        desk.give_back(std::mem::take(&mut self.queue));
        if let State::Ending { .. } = self.state
            && self.owed == 0
        {
            self.say_goodbye(desk);
        }
        Ok(())
    }

    /// Keeps what was taken from holding memory, at a cost that what was taken has paid.
    fn compact(&mut self) {
        if self.taken > self.queue.len() / 2 {
            self.queue.drain(..self.taken);
            self.taken = 0;
        }
    }

    /// Tells the peer that nothing more comes from here; it may have time to read what did.
    fn say_goodbye(&mut self, desk: &mut Desk) {
        if let Some(mut session) = self.session.take() {
            let mut last = Vec::new();
            session.close(&mut last);
            if let Some(socket) = &mut self.socket {
                // A few bytes for which there is room, or the peer has not read for long.
                let _ = socket.write(&last);
            }
            self.session = Some(session);
        }
        if let Some(socket) = &self.socket {
            let _ = socket.shutdown(Shutdown::Write);
        }
        if let State::Ending { until, .. } = &mut self.state {
            *until = (*until).min(desk.now + LINGER);
        }
    }

    /// Ends it in order: WebSocket's and TLS's last words, as far as the kernel takes them at once.
    pub(crate) fn close(&mut self, desk: &mut Desk) {
        if let Some(mut websocket) = self.websocket.take() {
            let mut last = Vec::new();
            websocket.close(close_code::GOING_AWAY, &mut last);
            let _ = self.put_bytes(&last, desk);
        }
        if let Some(mut session) = self.session.take() {
            let before = self.queue.len();
            session.close(&mut self.queue);
            desk.queued_bytes += self.queue.len() - before;
        }
        let _ = self.write(desk);
    }

    /// What it held is given back: it is not used any more.
    pub(crate) fn give_back(&mut self, desk: &mut Desk) {
        desk.queued_bytes -= self.queued();
        desk.partial_bytes -= self.partial;
        (self.taken, self.partial) = (0, 0);
        desk.give_back(std::mem::take(&mut self.queue));
        desk.give_back(std::mem::take(&mut self.rest));
    }

    // --- in -----------------------------------------------------------------------------------------------------------

    /// Reads once, and hands the messages that are whole to `up`.
    ///
    /// # Errors
    ///
    /// Why the connection must end.
    pub(crate) fn read(
        &mut self,
        buffer: &mut [u8],
        desk: &mut Desk,
        up: &mut dyn Upward,
    ) -> Result<Read, Ended> {
        let Some(socket) = &mut self.socket else { return Ok(Read::All) };
        let n = match socket.read(buffer) {
            Ok(0) => return Ok(Read::Last),
            Ok(n) => n,
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock => return Ok(Read::All),
                io::ErrorKind::Interrupted => return Ok(Read::Some),
                _ => return Err(Ended::Reset),
            },
        };
        let full = n == buffer.len();
        let bytes = buffer.get_mut(..n).unwrap_or_default();
        let last = self.receive(bytes, desk, up)?;
        Ok(match () {
            () if last => Read::Last,
            // Less than there was room for: nothing was left, and what comes now raises a new event. The end of the
            // stream raised the same event as the bytes before it, so it is looked for.
            () if full || self.nears_end => Read::Some,
            () => Read::All,
        })
    }

    /// Bytes from the network, which are decrypted in place; returns whether they are the last ones.
    pub(crate) fn receive(
        &mut self,
        bytes: &mut [u8],
        desk: &mut Desk,
        up: &mut dyn Upward,
    ) -> Result<bool, Ended> {
        if let State::Ending { why, discarded, .. } = &mut self.state {
            *discarded += bytes.len();
            return if *discarded > LINGER_BYTES_MAX { Err(*why) } else { Ok(false) };
        }
        let received = self.receive_record(bytes, desk, up);
        self.count_partial(desk)?;
        received
    }

    fn receive_record(
        &mut self,
        bytes: &mut [u8],
        desk: &mut Desk,
        up: &mut dyn Upward,
    ) -> Result<bool, Ended> {
        let Some(mut session) = self.session.take() else {
            return self.receive_plain(bytes, desk, up).map(|()| false);
        };
        let mut plaintext = std::mem::take(&mut desk.plaintext);
        plaintext.clear();
        let received = session.receive(bytes, &mut plaintext);
        let before = self.queue.len();
        session.pending(&mut self.queue);
        desk.queued_bytes += self.queue.len() - before;
        self.session = Some(session);
        let handled = self.receive_plain(&plaintext, desk, up);
        desk.plaintext = plaintext;
        handled?;
        match received {
            Ok(received) => self.bound_queue(desk).map(|()| received.closed),
            Err(_) => {
                // The alert that says why.
                let _ = self.write(desk);
                Err(Ended::TlsBroken)
            }
        }
    }

    /// Plaintext from the peer.
    pub(crate) fn receive_plain(
        &mut self,
        bytes: &[u8],
        desk: &mut Desk,
        up: &mut dyn Upward,
    ) -> Result<(), Ended> {
        if bytes.is_empty() {
            return Ok(());
        }
        let received = match self.websocket.take() {
            Some(websocket) => self.receive_frames(websocket, bytes, desk, up),
            None => self.receive_stream(bytes, desk, up),
        };
        let begun = match &self.websocket {
            Some(websocket) => websocket.is_partial(),
            // A line end alone is no message that has begun.
            None => !matches!(self.rest.as_slice(), b"" | b"\r"),
        };
        self.partial_since = if begun { self.partial_since.or(Some(desk.now)) } else { None };
        received
    }

    /// Counts what is held of messages and records that are not whole.
    ///
    /// # Errors
    ///
    /// When it has grown, and all connections together hold too much.
    fn count_partial(&mut self, desk: &mut Desk) -> Result<(), Ended> {
        let record = self.session.as_ref().map_or(0, |session| session.partial_bytes());
        let held = self.websocket.as_ref().map_or(self.rest.len(), |websocket| websocket.memory());
        let partial = held + record;
        if record > 0 {
            self.partial_since.get_or_insert(desk.now);
        }
        desk.partial_bytes = desk.partial_bytes + partial - self.partial;
        let grown = partial > self.partial;
        self.partial = partial;
        if grown && desk.partial_bytes > PARTIAL_BYTES_MAX { Err(Ended::MemoryFull) } else { Ok(()) }
    }

    fn receive_stream(&mut self, bytes: &[u8], desk: &mut Desk, up: &mut dyn Upward) -> Result<(), Ended> {
        let mut rest = std::mem::take(&mut self.rest);
        let whole = if rest.is_empty() {
            bytes
        } else {
            rest.extend_from_slice(bytes);
            &rest[..]
        };
        let mut at = 0;
        let mut pongs = 0;
        let ended = loop {
            let left = whole.get(at..).unwrap_or(&[]);
            match self.framer.next(&desk.limits, left) {
                Frame::Message { skip, len } => {
                    let from = at + skip;
                    at = from + len;
                    self.deliver(whole.get(from..at).unwrap_or(&[]), desk, up);
                    self.partial_since = None;
                }
                Frame::Ping { len } => {
                    at += len;
                    pongs += 1;
                }
                Frame::Incomplete { skip } => {
                    // Some keep a connection alive with a line end alone.
                    if skip > 0 {
                        self.active = desk.now;
                    }
                    at += skip;
                    break None;
                }
                Frame::Broken(why) => break Some(self.broken(why, left, desk, up)),
            }
        };
        let left = whole.len() - at.min(whole.len());
        if ended.is_some() || left == 0 {
            desk.give_back(rest);
        } else if rest.is_empty() {
            desk.give_back(rest);
            self.rest = desk.buffer();
            self.rest.extend_from_slice(bytes.get(at..).unwrap_or(&[]));
        } else {
            rest.drain(..at);
            self.rest = rest;
        }
        self.pong(pongs, desk)?;
        ended.unwrap_or(Ok(()))
    }

    /// RFC 5626 §3.5.1, §4.4.1: each CRLF CRLF is answered with CRLF.
    fn pong(&mut self, count: u32, desk: &mut Desk) -> Result<(), Ended> {
        /// Pongs put at once; over TLS each would be a record of its own otherwise.
        const TOGETHER: usize = 64;
        if count == 0 {
            return Ok(());
        }
        desk.statistics.pings += u64::from(count);
        self.active = desk.now;
        self.pinged = false;
        let mut left = count as usize;
        while left > 0 {
            let now = left.min(TOGETHER);
            left -= now;
            match self.websocket {
                Some(_) => (0..now).try_for_each(|_| self.put(b"\r\n", desk))?,
                None => self.put_bytes(&b"\r\n".repeat(now), desk)?,
            }
        }
        self.bound_queue(desk)
    }

    /// Writes what is too much to wait.
    ///
    /// # Errors
    ///
    /// When the peer does not take it: one that asks without listening is no better than one that does not read messages.
    fn bound_queue(&mut self, desk: &mut Desk) -> Result<(), Ended> {
        let all_full = desk.queued_bytes > desk.settings.write_queue_total_bytes_max;
        if self.queued() <= COALESCE_BYTES.min(desk.settings.write_queue_bytes_max) && !all_full {
            return Ok(());
        }
        self.write(desk)?;
        let full = self.queued() > desk.settings.write_queue_bytes_max;
        let all_full = desk.queued_bytes > desk.settings.write_queue_total_bytes_max;
        if full || (all_full && self.queued() > 0) { Err(Ended::WriteQueueFull) } else { Ok(()) }
    }

    /// Hands a message up.
    fn deliver(&mut self, message: &[u8], desk: &mut Desk, up: &mut dyn Upward) {
        desk.statistics.messages_received += 1;
        self.note_received(message, desk.now);
        up.message(self.path(), message);
    }

    fn note_received(&mut self, message: &[u8], now: Instant) {
        self.active = now;
        self.pinged = false;
        self.proven = true;
        match message.strip_prefix(b"SIP/2.0 ") {
            Some(rest) if rest.first().is_some_and(|class| *class >= b'2') => {
                self.asked = self.asked.saturating_sub(1);
            }
            Some(_) => {}
            None if message.starts_with(b"ACK ") => {}
            None => {
                self.owed = self.owed.saturating_add(1);
                if message.starts_with(b"INVITE ") {
                    self.invites = self.invites.saturating_add(1);
                }
            }
        }
    }

    /// What comes cannot be cut into messages any more. Where the head of a request is whole, it goes up to be refused
    /// (RFC 3261 §18.3, §21.4.1, §21.4.11), and the connection ends when the answer is written.
    fn broken(
        &mut self,
        why: Broken,
        left: &[u8],
        desk: &mut Desk,
        up: &mut dyn Upward,
    ) -> Result<(), Ended> {
        let ended = match why {
            Broken::HeadersTooLong => Ended::HeadersTooLong,
            Broken::TooLarge => Ended::TooLarge,
            Broken::ContentLength => Ended::ContentLength,
            Broken::NotSip(NotSip::Tls) => Ended::NotSipTls,
            Broken::NotSip(NotSip::Http) => Ended::NotSipHttp,
            Broken::NotSip(NotSip::Other) => Ended::NotSipOther,
        };
        let head = left.get(..self.framer.head_len()).unwrap_or(&[]);
        if head.is_empty() {
            return Err(ended);
        }
        self.state = State::Ending { why: ended, until: desk.now + LINGER, discarded: 0 };
        self.deliver(head, desk, up);
        Ok(())
    }

    /// Bytes of a WebSocket connection (RFC 7118: a message of it is a message of SIP).
    fn receive_frames(
        &mut self,
        mut websocket: Box<WebSocket>,
        bytes: &[u8],
        desk: &mut Desk,
        up: &mut dyn Upward,
    ) -> Result<(), Ended> {
        let mut replies = std::mem::take(&mut desk.replies);
        replies.clear();
        let mut closed = None;
        let mut pings = 0;
        // Any sign of life counts: a browser has no other way to show one than to answer pings.
        if websocket.is_open() {
            self.active = desk.now;
            self.pinged = false;
        }
        let policy = desk.policy.clone();
        websocket.receive(bytes, &policy, &mut |event| match event {
            Event::Message(message) if message.iter().all(|byte| matches!(byte, b'\r' | b'\n')) => {
                pings += u32::from(message.len() >= 4);
            }
            Event::Message(message) => self.deliver(message, desk, up),
            Event::Reply(reply) => replies.extend_from_slice(reply),
            Event::Closed(why) => closed = Some(why),
        });
        self.websocket = Some(websocket);
        let put = self.put_bytes(&replies, desk);
        desk.replies = replies;
        put?;
        self.bound_queue(desk)?;
        self.pong(pings, desk)?;
        let why = match closed {
            None => return Ok(()),
            Some(Closed::ByPeer) => Ended::ByPeer,
            Some(Closed::Refused(_)) => Ended::WebSocketRefused,
            Some(Closed::Violation(_)) => Ended::WebSocketViolation,
        };
        (self.owed, self.invites) = (0, 0);
        self.state = State::Ending { why, until: desk.now + LINGER, discarded: 0 };
        Ok(())
    }

    // --- life ---------------------------------------------------------------------------------------------------------

    /// The TLS handshake is done.
    pub(crate) fn secured(&mut self, socket: TcpStream, session: Session) {
        self.socket = Some(socket);
        self.session = Some(Box::new(session));
    }

    /// Whether a message can be sent by it now; one that is being established counts.
    pub(crate) fn takes_messages(&self) -> bool {
        match self.state {
            State::Connecting(_) | State::Securing(_) => true,
            State::Open => self.websocket.as_ref().is_none_or(|websocket| websocket.is_open()),
            // The answer to what it ends for.
            State::Ending { .. } => self.owed > 0,
        }
    }

    /// Whether its peer has said its last word, or the network has told of it: what it is asked, it cannot answer.
    pub(crate) fn answers_nothing(&self) -> bool {
        self.nears_end || self.read_closed
    }

    /// The peer's last word: what is owed to it goes out before the connection ends.
    pub(crate) fn half_close(&mut self, now: Instant) {
        self.read_closed = true;
        if let State::Open = self.state {
            self.state = State::Ending { why: Ended::ByPeer, until: now + HALF_CLOSED, discarded: 0 };
        }
    }

    /// Nothing is left to be done for it.
    pub(crate) fn is_over(&self) -> Option<Ended> {
        let done = self.read_closed && self.owed == 0 && self.queued() == 0 && self.last_words.is_empty();
        match self.state {
            State::Ending { why, .. } if done => Some(why),
            _ => None,
        }
    }

    /// Keeps a response that goes to a peer who has said its last word. The end of its stream may be the end of it, which
    /// only the answer to what is sent to it tells; the response then goes to its sent-by (RFC 3261 §18.2.2).
    ///
    /// Returns whether it was kept.
    pub(crate) fn keep_last_word(&mut self, path: Path, origin: usize, message: &[u8]) -> bool {
        /// Responses kept, and bytes of each, at most; further and longer ones take their chance.
        const WORDS_MAX: usize = 4;
        const WORD_BYTES_MAX: usize = 4_096;
        let fits = self.last_words.len() < WORDS_MAX && message.len() <= WORD_BYTES_MAX;
        // The end may have been told of and not been read yet.
        let keep = (self.read_closed || self.nears_end) && fits && path.fallback_port != 0;
        if keep {
            self.last_words.push(LastWord { path, origin, bytes: message.to_vec() });
        }
        keep
    }

    /// Whether the network has said that the peer of an ending connection is gone.
    pub(crate) fn is_lost(&self) -> bool {
        let error = || self.socket.as_ref().and_then(|socket| socket.take_error().ok().flatten());
        matches!(self.state, State::Ending { .. }) && error().is_some()
    }

    /// What was kept, to be sent in another way.
    pub(crate) fn take_last_words(&mut self) -> Vec<LastWord> {
        std::mem::take(&mut self.last_words)
    }

    /// When it is to be looked at next.
    pub(crate) fn deadline(&self, settings: &StreamSettings) -> Instant {
        let mut at = match self.state {
            State::Connecting(_) => return self.active + settings.connect_timeout,
            State::Securing(_) => return self.active + SECURING,
            State::Ending { until, .. } => until,
            State::Open => self.active + self.ping_after(settings).unwrap_or(self.lifetime(settings)),
        };
        if let Some(since) = self.partial_since {
            at = at.min(since + settings.message_timeout);
        }
        if let Some(since) = self.blocked_since {
            at = at.min(since + settings.send_timeout);
        }
        at
    }

    /// Whether its time is up, and why; a silent WebSocket is asked whether it is there first.
    pub(crate) fn expired(&mut self, desk: &mut Desk) -> Option<Ended> {
        let settings = &desk.settings;
        let past = |since: Instant, time: Duration| since + time <= desk.now;
        match self.state {
            State::Connecting(_) => {
                return past(self.active, settings.connect_timeout).then_some(Ended::ConnectFailed);
            }
            State::Securing(_) => return past(self.active, SECURING).then_some(Ended::Handshake),
            State::Ending { why, until, .. } if until <= desk.now => return Some(why),
            _ => {}
        }
        if self.blocked_since.is_some_and(|since| past(since, settings.send_timeout)) {
            return Some(Ended::SendTimeout);
        }
        if self.partial_since.is_some_and(|since| past(since, settings.message_timeout)) {
            return Some(Ended::Slow);
        }
        if !matches!(self.state, State::Open) {
            return None;
        }
        if past(self.active, self.lifetime(settings)) {
            return Some(Ended::Idle);
        }
        if self.ping_after(settings).is_some_and(|silence| past(self.active, silence)) {
            self.ping(desk);
        }
        None
    }

    /// The silence after which a WebSocket peer is to be asked whether it is there.
    fn ping_after(&self, settings: &StreamSettings) -> Option<Duration> {
        if self.pinged {
            return None;
        }
        self.websocket.as_ref()?;
        settings.websocket_ping.map(|silence| silence.min(self.lifetime(settings) / 2))
    }

    /// Asks a WebSocket peer whether it is there (RFC 6455 §5.5.2, RFC 7118 §6).
    fn ping(&mut self, desk: &mut Desk) {
        let Some(websocket) = &self.websocket else { return };
        self.pinged = true;
        let mut ping = Vec::new();
        websocket.ping(&mut ping);
        // What cannot be put is found when the next message cannot.
        let _ = self.put_bytes(&ping, desk);
    }

    /// Whether its peer waits for an answer.
    pub(crate) fn owes(&self) -> bool {
        self.owed > 0
    }

    /// Whether all that its peer has to answer is these last `fresh` requests, which take another way: nobody is to be
    /// told then that they are lost.
    pub(crate) fn forget_asked(&mut self, fresh: usize) -> bool {
        let all = self.asked as usize == fresh;
        if all {
            self.asked = 0;
        }
        all
    }

    /// The shards whose requests may never be answered as it ends for this reason, a bit for each. They are told once.
    pub(crate) fn take_bereaved(&mut self, why: Ended, now: Instant) -> u64 {
        let lost = self.asked > 0 && why != Ended::Stopped;
        let recent = self.request_at.is_some_and(|at| now.since(at) < ANSWER_EXPECTED);
        if lost && recent { std::mem::take(&mut self.origins) } else { 0 }
    }
}

/// Whether a response is one to an INVITE, by its CSeq.
fn is_to_invite(response: &[u8]) -> bool {
    let lines = response.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii);
    let mut head = lines.take_while(|line| !line.is_empty());
    head.any(|line| {
        let is_cseq = line.get(..4).is_some_and(|name| name.eq_ignore_ascii_case(b"CSeq"));
        is_cseq && line.ends_with(b" INVITE")
    })
}
