//! The shard's loop: wait, receive a batch, handle it, send a batch.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant as Clock};

use engine::{Ask, AskId, DomainId, Input, ListenerId, Outbox, Output, Path, TransportFailure};
use mio::{Events, Interest, Poll, Registry, Token};
use sip::Instant;
use sip::stream::StreamLimits;
use smallvec::SmallVec;

use crate::connection::{Desk, Upward};
use crate::listener::Listener;
use crate::peers::Peers;
use crate::queue::{Parcel, Post, Postbox, post_office};
use crate::resolver::Resolver;
use crate::stream_settings::{StreamSettings, StreamStatistics};
use crate::streams::Streams;
use crate::sys::{self, BATCH, Outgoing, ReceiveBatch, SendBatch};
use crate::tls::HandshakePool;
use crate::udp::UdpListener;
use crate::websocket::WebSocketPolicy;

/// Batches received from one socket before the others, the queue and the timers get their turn.
const BATCHES_PER_TURN: usize = 8;

/// ICMP errors read from one socket in one turn.
const ERRORS_PER_TURN: usize = 64;

/// Parcels from other shards handled in one turn.
const PARCELS_PER_TURN: usize = 256;

/// Connections read from in one turn.
const READS_PER_TURN: usize = 256;

/// Messages of connections handled in one turn, and those of the last read.
const MESSAGES_PER_TURN: u64 = 512;

/// How long streams are left alone while another shard has too much to do.
const CONGESTED: Duration = Duration::from_millis(1);

/// Losses that the handler is told of in one turn.
const FAILURES_PER_TURN: usize = 64;

/// Bytes that the outbox may hold before it is emptied, where one read may bring a hundred messages.
const OUTBOX_BYTES: usize = 256 << 10;

/// Events taken from the system at once.
const EVENTS: usize = 1_024;

const WAKE: Token = Token(usize::MAX);

/// Shards of one server, at most.
pub const SHARDS_MAX: usize = 64;

/// What the loop carries bytes for: `engine::Endpoint` in the server.
pub trait Handler {
    /// The shard that a message belongs to, told from a glance at it.
    fn shard_of(&self, message: &[u8]) -> usize;
    /// One input; all outputs go to `out`. Called again after it panicked.
    fn handle(&mut self, now: Instant, input: Input<'_>, out: &mut Outbox);
    /// What is to be done once for all inputs that came together, before their outputs are sent.
    fn settle(&mut self) {}
    /// The name that a TLS connection which is opened for a message must lead to (RFC 5922); empty for none.
    fn domain(&self, _id: DomainId) -> &[u8] {
        &[]
    }
    /// A question that is not about names; its answer comes as a [`Parcel::Answer`](crate::Parcel::Answer) to `post`.
    fn ask(&mut self, _id: AskId, _ask: Ask, _deadline: Instant, _post: &Post) {}
    /// When [`Input::Timeout`] is due.
    fn next_timeout(&self) -> Option<Instant>;
    /// Nothing is in flight: a draining shard may stop.
    fn is_idle(&self) -> bool;
    /// Called about once a second, and once at the end, with what the loop counted.
    fn report(&mut self, statistics: &Statistics);
}

/// How a shard behaves.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Longest time for which messages are gathered before a busy shard looks at them, zero to look at once.
    ///
    /// As a network card's interrupt moderation: fewer wake-ups for a bounded delay. The shard waits for about eight
    /// messages at the rate at which they come, never longer than this, and not at all where fewer than two are
    /// to be expected: a quiet server answers at once.
    pub gather: Duration,
    /// A moment of the system's clock,
    pub origin: Clock,
    /// and what it is called among the shards' [`Instant`]s: later than zero where moments before the start of the process
    /// have to have names, too.
    pub origin_at: Instant,
    /// What connections may do and take.
    pub streams: StreamSettings,
    /// How long a message on a stream may be.
    pub limits: StreamLimits,
    /// What WebSocket listeners allow.
    pub websocket: WebSocketPolicy,
    /// Those who shake hands; without them connections to TLS listeners are closed, and none are opened.
    pub tls: Option<HandshakePool>,
}

impl Settings {
    /// Defaults for streams, no TLS; the origin is [`Instant::ZERO`].
    pub fn new(gather: Duration, origin: Clock) -> Settings {
        Settings {
            gather,
            origin,
            origin_at: Instant::ZERO,
            streams: StreamSettings::default(),
            limits: StreamLimits::default(),
            websocket: WebSocketPolicy::default(),
            tls: None,
        }
    }

    /// What the time is now.
    pub fn now(&self) -> Instant {
        self.origin_at + self.origin.elapsed()
    }
}

/// Orders to all shards, from the thread that gets the signals, and what they know together.
#[derive(Debug)]
pub struct Control {
    order: AtomicU8,
    reports: AtomicU64,
    /// One bit for each shard that may still have something in flight: a draining server stops when none is left,
    /// all shards together, since until then each may be needed by the others.
    in_flight: AtomicU64,
    peers: Arc<Peers>,
}

impl Control {
    const DRAIN: u8 = 1;
    const STOP: u8 = 2;

    /// For this many shards, at most [`SHARDS_MAX`].
    pub fn new(shards: usize) -> Control {
        let all = 1_u64.checked_shl(shards as u32).map_or(u64::MAX, |bit| bit - 1);
        Control {
            order: AtomicU8::new(0),
            reports: AtomicU64::new(0),
            in_flight: AtomicU64::new(all),
            peers: Arc::new(Peers::new()),
        }
    }

    /// No new transactions; all shards stop when nothing is in flight in any.
    pub fn drain(&self) {
        self.order.fetch_max(Self::DRAIN, Ordering::Release);
    }

    /// All shards stop now.
    pub fn stop(&self) {
        self.order.fetch_max(Self::STOP, Ordering::Release);
    }

    /// All shards report their counters soon.
    pub fn report(&self) {
        self.reports.fetch_add(1, Ordering::Release);
    }

    /// Notes whether the draining shard `index` has something in flight; returns whether none has.
    fn is_drained(&self, index: usize, idle: bool) -> bool {
        let bit = 1_u64 << (index % SHARDS_MAX);
        let before = if idle {
            self.in_flight.fetch_and(!bit, Ordering::AcqRel) & !bit
        } else {
            self.in_flight.fetch_or(bit, Ordering::AcqRel) | bit
        };
        before == 0
    }

    /// How often [`report`](Self::report) was called.
    pub fn reports(&self) -> u64 {
        self.reports.load(Ordering::Acquire)
    }
}

/// What a shard's loop counted since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Datagrams taken from this shard's sockets.
    pub datagrams_received: u64,
    /// Datagrams given to the kernel.
    pub datagrams_sent: u64,
    /// Datagrams that the kernel would not take (its buffer was full, or no route).
    pub datagrams_unsent: u64,
    /// Datagrams that the kernel dropped because a receive buffer was full.
    pub receive_drops: u64,
    /// Messages handed to another shard.
    pub crossed: u64,
    /// Messages for this shard lost because its queue was full.
    pub queue_drops: u64,
    /// Times the loop woke up.
    pub wakeups: u64,
    /// Panics caught at the shard's edge.
    pub panics: u64,
    /// About connections.
    pub streams: StreamStatistics,
}

/// One thread's share of the network.
#[derive(Debug)]
pub struct Shard {
    index: usize,
    poll: Poll,
    registry: Registry,
    listeners: Vec<Listener>,
    postbox: Postbox,
    post: Post,
}

impl Shard {
    /// A shard of these listeners, in the order of their [`ListenerId`]s. It has all its descriptors now, but
    /// for those of connections: none of a server's shards answers before each has what it needs.
    ///
    /// # Errors
    ///
    /// When the system has no descriptor left for the event queue.
    pub fn new(index: usize, mut listeners: Vec<Listener>) -> io::Result<Shard> {
        let poll = Poll::new()?;
        for (i, listener) in listeners.iter_mut().enumerate() {
            let registry = poll.registry();
            match listener {
                Listener::Udp(udp) => registry.register(udp.source(), Token(i), Interest::READABLE)?,
                Listener::Stream(tcp) => registry.register(&mut tcp.socket, Token(i), Interest::READABLE)?,
            }
        }
        let (post, postbox) = post_office(poll.registry(), WAKE)?;
        let registry = poll.registry().try_clone()?;
        Ok(Shard { index, poll, registry, listeners, postbox, post })
    }

    /// The way to send this shard something; give it to all others, in order, before [`run`](Self::run).
    pub fn post(&self) -> Post {
        self.post.clone()
    }

    /// Carries messages until [`Control::stop`], or until nothing is in flight after [`Control::drain`].
    ///
    /// `posts` are the ways to all shards, this one included, by index.
    ///
    /// # Errors
    ///
    /// When the event queue itself fails.
    pub fn run<H: Handler>(
        self,
        handler: H,
        settings: &Settings,
        control: &Arc<Control>,
        posts: Vec<Post>,
        resolver: Resolver,
    ) -> io::Result<Statistics> {
        sys::set_precise_sleep();
        let Shard { index, mut poll, registry, listeners, postbox, post } = self;
        let mut events = Events::with_capacity(EVENTS);
        let mut turn =
            Turn::new(index, handler, settings, control, (listeners, registry), posts, post, resolver);
        let mut receive = ReceiveBatch::new();
        let mut gather = Gather::new(settings.gather);
        let mut orders =
            Orders { control: control.clone(), draining: false, reports: 0, next_report: Instant::ZERO };
        turn.begin(settings.now());
        loop {
            turn.set_now(settings.now());
            let busy = turn.receive_all(&mut receive) | turn.parcels(&postbox) | turn.streams();
            let busy = turn.timers() | turn.failures() | busy;
            turn.core.statistics.queue_drops = postbox.dropped();
            let stops = orders.obey(&mut turn);
            turn.streams.write_all();
            if stops {
                turn.streams.stop();
                turn.report();
                return Ok(turn.core.statistics);
            }
            let wait = if busy { Some(Duration::ZERO) } else { turn.wait(&orders) };
            let received = turn.core.statistics.datagrams_received + turn.streams.messages_received();
            let time = gather.time(turn.core.now, received);
            if !busy && !time.is_zero() {
                sys::sleep(time);
            }
            match poll.poll(&mut events, wait) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            turn.core.statistics.wakeups += 1;
            events.iter().for_each(|event| turn.event(event));
        }
    }
}

/// The handler, and what it leaves.
struct Core<H> {
    index: usize,
    handler: H,
    out: Outbox,
    now: Instant,
    statistics: Statistics,
    posts: Vec<Post>,
}

impl<H: Handler> Core<H> {
    /// One input, with the shard's edge around it: a panic costs what it was about, not the shard.
    fn handle(&mut self, input: Input<'_>) {
        let (handler, now, out) = (&mut self.handler, self.now, &mut self.out);
        let before = (out.bytes.len(), out.outputs.len());
        if catch_unwind(AssertUnwindSafe(|| handler.handle(now, input, out))).is_err() {
            // Nothing half written goes out; what earlier inputs left does.
            self.out.bytes.truncate(before.0);
            self.out.outputs.truncate(before.1);
            self.statistics.panics += 1;
            tracing::error!(shard = self.index, "a message caused a panic, which is our bug; it was dropped");
        }
    }
}

impl<H: Handler> Upward for Core<H> {
    fn message(&mut self, path: Path, bytes: &[u8]) {
        if self.posts.len() > 1 {
            let shard = self.handler.shard_of(bytes);
            if shard != self.index
                && let Some(post) = self.posts.get(shard)
            {
                self.statistics.crossed += 1;
                post.message(path, bytes);
                return;
            }
        }
        self.handle(Input::Message { path, bytes });
    }
}

/// What the loop does between two waits.
struct Turn<H> {
    core: Core<H>,
    /// UDP sockets that may hold datagrams, by listener.
    ready: Vec<bool>,
    outgoing: Sender,
    streams: Streams,
    /// Streams wait for another shard.
    congested: bool,
    post: Post,
    resolver: Resolver,
}

impl<H: Handler> Turn<H> {
    #[expect(clippy::too_many_arguments, reason = "the parts of a shard, put together in one place")]
    fn new(
        index: usize,
        handler: H,
        settings: &Settings,
        control: &Control,
        (listeners, registry): (Vec<Listener>, Registry),
        posts: Vec<Post>,
        post: Post,
        resolver: Resolver,
    ) -> Turn<H> {
        let (mut udp, mut tcp) = (Vec::new(), Vec::new());
        for listener in listeners {
            match listener {
                Listener::Udp(listener) => (udp.push(Some(listener)), tcp.push(None)),
                Listener::Stream(listener) => (udp.push(None), tcp.push(Some(listener))),
            };
        }
        let desk = Desk::new(settings.streams.clone(), settings.limits, settings.websocket.clone());
        let peers = control.peers.clone();
        let streams = Streams::new(index, registry, tcp, desk, (peers, posts.clone()), settings.tls.clone());
        Turn {
            core: Core {
                index,
                handler,
                out: Outbox::new(),
                now: Instant::ZERO,
                statistics: Statistics::default(),
                posts,
            },
            ready: udp.iter().map(Option::is_some).collect(),
            outgoing: Sender { sockets: udp, batch: SendBatch::new(), unsent: 0, sent: 0 },
            streams,
            congested: false,
            post,
            resolver,
        }
    }

    /// The first moment, which may be long after zero: whoever counts in steps takes them all now, when nothing waits.
    fn begin(&mut self, now: Instant) {
        self.set_now(now);
        self.streams.deadlines();
        self.core.handle(Input::Timeout);
        self.flush();
    }

    fn set_now(&mut self, now: Instant) {
        self.core.now = now;
        self.streams.set_now(now);
    }

    /// Takes note of what the system tells.
    fn event(&mut self, event: &mio::event::Event) {
        let Token(token) = event.token();
        if event.token() == WAKE {
            return;
        }
        if token >= self.ready.len() {
            return self.streams.event(event);
        }
        if self.outgoing.sockets[token].is_none() {
            return self.streams.listener_event(token);
        }
        self.ready[token] = true;
        if event.is_error() {
            self.errors(token);
        }
    }

    // --- datagrams ----------------------------------------------------------------------------------------------------

    /// Receives from every ready socket; returns whether one may hold more.
    fn receive_all(&mut self, batch: &mut ReceiveBatch) -> bool {
        let mut more = false;
        for i in 0..self.ready.len() {
            for _ in 0..BATCHES_PER_TURN {
                if !self.ready[i] {
                    break;
                }
                self.receive(i, batch);
            }
            more |= self.ready[i];
        }
        more
    }

    fn receive(&mut self, i: usize, batch: &mut ReceiveBatch) {
        let Some(socket) = &self.outgoing.sockets[i] else {
            self.ready[i] = false;
            return;
        };
        match batch.receive(socket.raw()) {
            Ok(n) => {
                // Fewer than a batch: the queue was empty, and what comes now raises a new event.
                self.ready[i] = n == BATCH;
                self.core.statistics.datagrams_received += n as u64;
            }
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock => return self.ready[i] = false,
                io::ErrorKind::Interrupted => return,
                // An ICMP error that waits in the error queue; it says nothing about the next datagram.
                _ => return self.errors(i),
            },
        }
        let listener = ListenerId(i as u16);
        for (remote, local, bytes) in batch.datagrams() {
            self.core.message(Path::new(listener, local, remote), bytes);
        }
        self.flush();
    }

    /// Tells the handler which peers of this socket can't be reached (RFC 3261 §18.4).
    fn errors(&mut self, i: usize) {
        let Some(socket) = &self.outgoing.sockets[i] else { return };
        let listener = ListenerId(i as u16);
        let mut failed = Vec::new();
        sys::drain_errors(socket.raw(), ERRORS_PER_TURN, |remote| failed.push(remote));
        for remote in failed {
            self.core.handle(Input::TransportError {
                path: Path::new(listener, None, remote),
                failure: TransportFailure::Unreachable,
            });
        }
        self.flush();
    }

    // --- streams ------------------------------------------------------------------------------------------------------

    /// Accepts, reads, and looks after deadlines; returns whether there may be more of any.
    fn streams(&mut self) -> bool {
        let mut more = self.streams.accept();
        // What waits in the network is not lost, what does not fit into the queue is: TCP has its own flow control.
        self.congested = self.core.posts.iter().any(Post::is_congested);
        let enough = self.streams.messages_received() + MESSAGES_PER_TURN;
        for _ in 0..READS_PER_TURN {
            if self.congested
                || self.streams.messages_received() >= enough
                || !self.streams.read_next(&mut self.core)
            {
                break;
            }
            if self.core.out.bytes.len() > OUTBOX_BYTES {
                self.flush();
            }
        }
        more |= self.streams.deadlines() | (self.streams.has_ready() && !self.congested);
        self.flush();
        more
    }

    /// Tells the handler what was lost (RFC 3261 §18.4); returns whether there is more of it.
    fn failures(&mut self) -> bool {
        for _ in 0..FAILURES_PER_TURN {
            let Some((path, failure)) = self.streams.next_failure() else { return false };
            self.core.handle(Input::TransportError { path, failure });
            self.flush();
        }
        true
    }

    // --- the others ---------------------------------------------------------------------------------------------------

    /// Parcels from the other shards and the resolver; returns whether there may be more.
    fn parcels(&mut self, postbox: &Postbox) -> bool {
        let more = postbox.drain(PARCELS_PER_TURN, |parcel| self.parcel(parcel));
        self.flush();
        more
    }

    /// Handles a parcel and gives back its buffer.
    fn parcel(&mut self, parcel: Parcel) -> Option<Vec<u8>> {
        match parcel {
            Parcel::Message { path, bytes } => {
                self.core.handle(Input::Message { path, bytes: &bytes });
                Some(bytes)
            }
            Parcel::Answer { id, answer } => {
                self.core.handle(Input::Answer { id, answer: answer.as_answer() });
                None
            }
            Parcel::Outgoing { from, flow, path, bytes } => self.streams.outgoing(from, flow, path, bytes),
            Parcel::Bounced { path, bytes } => {
                self.streams.bounced(path, self.core.handler.domain(path.domain), &bytes);
                Some(bytes)
            }
            Parcel::Failed { path, failure } => {
                self.streams.failed(path, failure);
                None
            }
            Parcel::Alias { path, port } => {
                self.streams.alias(path, port);
                None
            }
            Parcel::Secured { flow, result } => {
                self.streams.secured(flow, result, &mut self.core);
                None
            }
        }
    }

    /// Returns whether the handler has more to do at once.
    fn timers(&mut self) -> bool {
        let is_due = |core: &Core<H>| core.handler.next_timeout().is_some_and(|due| due <= core.now);
        if !is_due(&self.core) {
            return false;
        }
        self.core.handle(Input::Timeout);
        self.flush();
        is_due(&self.core)
    }

    /// Sends what the handler left in the outbox, and passes its questions on.
    fn flush(&mut self) {
        let Turn { core: Core { out, handler, .. }, outgoing, streams, resolver, post, .. } = self;
        handler.settle();
        if out.outputs.is_empty() {
            return;
        }
        // Aliases first: what is sent may go by one that came with the same request.
        for output in &mut out.outputs {
            match output {
                Output::Send { .. } => {}
                Output::Ask { id, ask: Ask::Resolve { host }, .. } => {
                    resolver.ask(*id, std::mem::take(host), post);
                }
                // Emptied here: the outbox is cleared next.
                Output::Ask { id, ask, deadline } => {
                    let ask = std::mem::replace(ask, Ask::Resolve { host: String::new() });
                    handler.ask(*id, ask, *deadline, post);
                }
                Output::Alias { path, port } => streams.alias(*path, *port),
            }
        }
        outgoing.send(out, |path, bytes| streams.send(path, handler.domain(path.domain), bytes));
        out.clear();
    }

    /// How long the loop may wait for an event.
    fn wait(&self, orders: &Orders) -> Option<Duration> {
        let due = self.core.handler.next_timeout().unwrap_or(Instant::NEVER);
        let due = due.min(orders.next_report).min(self.streams.next_due());
        if self.congested {
            return Some(CONGESTED);
        }
        // The event queue counts whole milliseconds; a little late is right for every timer of SIP.
        Some(due.since(self.core.now) + Duration::from_millis(1))
    }

    fn report(&mut self) {
        let statistics = &mut self.core.statistics;
        statistics.datagrams_sent = self.outgoing.sent;
        statistics.datagrams_unsent = self.outgoing.unsent;
        statistics.receive_drops =
            self.outgoing.sockets.iter().flatten().filter_map(UdpListener::receive_drops).sum();
        statistics.streams = self.streams.statistics();
        self.core.handler.report(&self.core.statistics);
    }
}

/// Decides how long to wait for more messages where that saves wake-ups.
struct Gather {
    longest: Duration,
    since: Instant,
    received: u64,
    time: Duration,
}

impl Gather {
    /// How long the rate is measured before it decides again.
    const WINDOW: Duration = Duration::from_millis(2);

    /// Messages that it aims to gather. Measured: from 8 on a wake-up's share of the cost is lost in the rest.
    const ENOUGH: u32 = 8;

    /// With fewer than these to be expected it does not wait at all.
    const WORTHWHILE: u128 = 2;

    fn new(longest: Duration) -> Gather {
        Gather { longest, since: Instant::ZERO, received: 0, time: Duration::ZERO }
    }

    /// How long to wait now; `received` counts all messages since the start.
    fn time(&mut self, now: Instant, received: u64) -> Duration {
        let window = now.since(self.since);
        if window >= Self::WINDOW {
            let count = received - self.received;
            let expected = u128::from(count) * self.longest.as_micros() / window.as_micros();
            self.time = if expected < Self::WORTHWHILE {
                Duration::ZERO
            } else {
                let count = u32::try_from(count).unwrap_or(u32::MAX).max(1);
                (window * Self::ENOUGH / count).min(self.longest)
            };
            (self.since, self.received) = (now, received);
        }
        self.time
    }
}

/// The sending half: groups what goes out by one socket into batches.
struct Sender {
    /// By listener; `None` for those of streams.
    sockets: Vec<Option<UdpListener>>,
    batch: SendBatch,
    sent: u64,
    unsent: u64,
}

impl Sender {
    /// Sends the datagrams; what goes by streams is for `other`.
    fn send(&mut self, out: &Outbox, mut other: impl FnMut(Path, &[u8])) {
        let mut pending: SmallVec<[Outgoing<'_>; BATCH]> = SmallVec::new();
        let mut by = ListenerId(0);
        for output in &out.outputs {
            let Output::Send { path, bytes } = output else { continue };
            let Some(bytes) = out.bytes.get(bytes.clone()) else { continue };
            if let Some(None) = self.sockets.get(usize::from(path.listener.0)) {
                other(*path, bytes);
                continue;
            }
            if !pending.is_empty() && (path.listener != by || pending.len() == BATCH) {
                self.send_batch(by, &pending);
                pending.clear();
            }
            by = path.listener;
            pending.push(Outgoing { to: path.remote, from: path.local, bytes });
        }
        if !pending.is_empty() {
            self.send_batch(by, &pending);
        }
    }

    fn send_batch(&mut self, by: ListenerId, mut datagrams: &[Outgoing<'_>]) {
        /// Times that one datagram is tried: an ICMP error of an earlier one is reported instead of sending it.
        const TRIES: u32 = 3;
        let Some(Some(socket)) = self.sockets.get(usize::from(by.0)) else { return };
        let mut tries = 0;
        while !datagrams.is_empty() {
            match self.batch.send(socket.raw(), datagrams) {
                Ok(n) => {
                    self.sent += n as u64;
                    datagrams = &datagrams[n.min(datagrams.len())..];
                    tries = 0;
                }
                Err(_) if tries + 1 < TRIES => tries += 1,
                Err(_) => {
                    self.unsent += 1;
                    datagrams = &datagrams[1..];
                    tries = 0;
                }
            }
        }
    }
}

/// What the control thread wants of this shard, and what it has got.
struct Orders {
    control: Arc<Control>,
    draining: bool,
    reports: u64,
    next_report: Instant,
}

impl Orders {
    /// How often the counters are handed to the handler.
    const REPORT_EVERY: Duration = Duration::from_secs(1);

    /// Does what is ordered; returns whether the shard shall stop.
    fn obey<H: Handler>(&mut self, turn: &mut Turn<H>) -> bool {
        let order = self.control.order.load(Ordering::Acquire);
        if order >= Control::DRAIN && !self.draining {
            self.draining = true;
            turn.streams.stop_listening();
            turn.core.handle(Input::Drain);
            turn.flush();
        }
        if turn.core.now >= self.next_report || self.reports != self.control.reports() {
            self.reports = self.control.reports();
            self.next_report = turn.core.now + Self::REPORT_EVERY;
            turn.report();
        }
        if self.draining
            && order < Control::STOP
            && self.control.is_drained(turn.core.index, turn.core.handler.is_idle())
        {
            self.control.stop();
            turn.core.posts.iter().for_each(Post::wake);
            return true;
        }
        order >= Control::STOP
    }
}

#[cfg(test)]
mod tests;
