//! The shard's loop: wait, receive a batch, handle it, send a batch.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant as Clock};

use engine::{Answer, Ask, FlowId, Input, ListenerId, Outbox, Output, Path};
use mio::{Events, Interest, Poll, Token};
use sip::Instant;
use smallvec::SmallVec;

use crate::queue::{Parcel, Post, Postbox, post_office};
use crate::resolver::Resolver;
use crate::sys::{self, BATCH, Outgoing, ReceiveBatch, SendBatch};
use crate::udp::UdpListener;

/// Batches received from one socket before the others, the queue and the timers get their turn.
const BATCHES_PER_TURN: usize = 8;

/// ICMP errors read from one socket in one turn.
const ERRORS_PER_TURN: usize = 64;

/// Parcels from other shards handled in one turn.
const PARCELS_PER_TURN: usize = 256;

const WAKE: Token = Token(usize::MAX);

/// Shards of one server, at most.
pub const SHARDS_MAX: usize = 64;

/// What the loop carries bytes for: `engine::Endpoint` in the server.
pub trait Handler {
    /// The shard that a datagram belongs to, told from a glance at it.
    fn shard_of(&self, datagram: &[u8]) -> usize;
    /// One input; all outputs go to `out`. Called again after it panicked.
    fn handle(&mut self, now: Instant, input: Input<'_>, out: &mut Outbox);
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
    /// Longest time for which datagrams are gathered before a busy shard looks at them, zero to look at once.
    ///
    /// As a network card's interrupt moderation: fewer wake-ups for a bounded delay. The shard waits for about eight
    /// datagrams at the rate at which they come, never longer than this, and not at all where fewer than two are
    /// to be expected: a quiet server answers at once.
    pub gather: Duration,
    /// The origin of the shards' [`Instant`]s.
    pub origin: Clock,
}

/// Orders to all shards, from the thread that gets the signals.
#[derive(Debug)]
pub struct Control {
    order: AtomicU8,
    reports: AtomicU64,
    /// One bit for each shard that may still have something in flight: a draining server stops when none is left,
    /// all shards together, since until then each may be needed by the others.
    in_flight: AtomicU64,
}

impl Control {
    const DRAIN: u8 = 1;
    const STOP: u8 = 2;

    /// For this many shards, at most [`SHARDS_MAX`].
    pub fn new(shards: usize) -> Control {
        let all = 1_u64.checked_shl(shards as u32).map_or(u64::MAX, |bit| bit - 1);
        Control { order: AtomicU8::new(0), reports: AtomicU64::new(0), in_flight: AtomicU64::new(all) }
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
    /// Datagrams handed to another shard.
    pub crossed: u64,
    /// Messages for this shard lost because its queue was full.
    pub queue_drops: u64,
    /// Times the loop woke up.
    pub wakeups: u64,
    /// Panics caught at the shard's edge.
    pub panics: u64,
}

/// One thread's share of the network.
#[derive(Debug)]
pub struct Shard {
    index: usize,
    poll: Poll,
    listeners: Vec<UdpListener>,
    postbox: Postbox,
    post: Post,
}

impl Shard {
    /// A shard of these listeners, in the order of their [`ListenerId`]s.
    ///
    /// # Errors
    ///
    /// When the system has no descriptor left for the event queue.
    pub fn new(index: usize, mut listeners: Vec<UdpListener>) -> io::Result<Shard> {
        let poll = Poll::new()?;
        for (i, listener) in listeners.iter_mut().enumerate() {
            poll.registry().register(listener.source(), Token(i), Interest::READABLE)?;
        }
        let (post, postbox) = post_office(poll.registry(), WAKE)?;
        Ok(Shard { index, poll, listeners, postbox, post })
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
        let Shard { index, mut poll, listeners, postbox, post } = self;
        let mut events = Events::with_capacity(listeners.len() + 1);
        let mut turn = Turn {
            ready: vec![true; listeners.len()],
            outgoing: Sender { listeners, batch: SendBatch::new(), unsent: 0, sent: 0 },
            index,
            handler,
            out: Outbox::new(),
            now: Instant::ZERO,
            statistics: Statistics::default(),
            posts,
            post,
            resolver,
        };
        let mut receive = ReceiveBatch::new();
        let mut gather = Gather::new(settings.gather);
        let mut orders =
            Orders { control: control.clone(), draining: false, reports: 0, next_report: Instant::ZERO };
        loop {
            turn.now = instant(settings.origin);
            let busy = turn.receive_all(&mut receive) | turn.parcels(&postbox);
            turn.timers();
            turn.statistics.queue_drops = postbox.dropped();
            if orders.obey(&mut turn) {
                turn.report();
                return Ok(turn.statistics);
            }
            let wait = if busy { Some(Duration::ZERO) } else { turn.wait(&orders) };
            let time = gather.time(turn.now, turn.statistics.datagrams_received);
            if !busy && !time.is_zero() {
                sys::sleep(time);
            }
            match poll.poll(&mut events, wait) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            turn.statistics.wakeups += 1;
            for event in &events {
                if let Some(ready) = turn.ready.get_mut(event.token().0) {
                    *ready = true;
                    if event.is_error() {
                        turn.errors(event.token().0);
                    }
                }
            }
        }
    }
}

fn instant(origin: Clock) -> Instant {
    Instant::from_micros(u64::try_from(origin.elapsed().as_micros()).unwrap_or(u64::MAX))
}

/// What the loop does between two waits.
struct Turn<H> {
    index: usize,
    handler: H,
    out: Outbox,
    now: Instant,
    ready: Vec<bool>,
    statistics: Statistics,
    outgoing: Sender,
    posts: Vec<Post>,
    post: Post,
    resolver: Resolver,
}

impl<H: Handler> Turn<H> {
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
        match batch.receive(self.outgoing.listeners[i].raw()) {
            Ok(n) => {
                // Fewer than a batch: the queue was empty, and what comes now raises a new event.
                self.ready[i] = n == BATCH;
                self.statistics.datagrams_received += n as u64;
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
            let path = Path { listener, flow: FlowId::DATAGRAM, local, remote };
            self.datagram(path, bytes);
        }
        self.flush();
    }

    fn datagram(&mut self, path: Path, bytes: &[u8]) {
        if self.posts.len() > 1 {
            let shard = self.handler.shard_of(bytes);
            if shard != self.index
                && let Some(post) = self.posts.get(shard)
            {
                self.statistics.crossed += 1;
                post.datagram(path, bytes);
                return;
            }
        }
        self.handle(Input::Message { path, bytes });
    }

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

    /// Parcels from the other shards and the resolver; returns whether there may be more.
    fn parcels(&mut self, postbox: &Postbox) -> bool {
        let more = postbox.drain(PARCELS_PER_TURN, |parcel| match parcel {
            Parcel::Datagram { path, bytes } => self.handle(Input::Message { path: *path, bytes }),
            Parcel::Addresses { id, addresses } => {
                let answer = addresses.as_deref().map_or(Answer::Failed, Answer::Addresses);
                self.handle(Input::Answer { id: *id, answer });
            }
        });
        self.flush();
        more
    }

    fn timers(&mut self) {
        if self.handler.next_timeout().is_some_and(|due| due <= self.now) {
            self.handle(Input::Timeout);
            self.flush();
        }
    }

    /// Tells the handler which peers of this socket can't be reached (RFC 3261 §18.4).
    fn errors(&mut self, i: usize) {
        let listener = ListenerId(i as u16);
        let mut failed = Vec::new();
        sys::drain_errors(self.outgoing.listeners[i].raw(), ERRORS_PER_TURN, |remote| failed.push(remote));
        for remote in failed {
            self.handle(Input::TransportError {
                path: Path { listener, flow: FlowId::DATAGRAM, local: None, remote },
            });
        }
        self.flush();
    }

    /// Sends what the handler left in the outbox, and passes its questions on.
    fn flush(&mut self) {
        if self.out.outputs.is_empty() {
            return;
        }
        self.outgoing.send(&self.out);
        for output in &mut self.out.outputs {
            if let Output::Ask { id, ask: Ask::Resolve { host }, .. } = output {
                self.resolver.ask(*id, std::mem::take(host), &self.post);
            }
        }
        self.out.clear();
    }

    /// How long the loop may wait for an event.
    fn wait(&self, orders: &Orders) -> Option<Duration> {
        let due = self.handler.next_timeout().unwrap_or(Instant::NEVER).min(orders.next_report);
        // The event queue counts whole milliseconds; a little late is right for every timer of SIP.
        Some(due.since(self.now) + Duration::from_millis(1))
    }

    fn report(&mut self) {
        self.statistics.datagrams_sent = self.outgoing.sent;
        self.statistics.datagrams_unsent = self.outgoing.unsent;
        self.statistics.receive_drops =
            self.outgoing.listeners.iter().filter_map(UdpListener::receive_drops).sum();
        self.handler.report(&self.statistics);
    }
}

/// Decides how long to wait for more datagrams where that saves wake-ups.
struct Gather {
    longest: Duration,
    since: Instant,
    received: u64,
    time: Duration,
}

impl Gather {
    /// How long the rate is measured before it decides again.
    const WINDOW: Duration = Duration::from_millis(2);

    /// Datagrams that it aims to gather. Measured: from 8 on a wake-up's share of the cost is lost in the rest.
    const ENOUGH: u32 = 8;

    /// With fewer than these to be expected it does not wait at all.
    const WORTHWHILE: u128 = 2;

    fn new(longest: Duration) -> Gather {
        Gather { longest, since: Instant::ZERO, received: 0, time: Duration::ZERO }
    }

    /// How long to wait now; `received` counts all datagrams since the start.
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
    listeners: Vec<UdpListener>,
    batch: SendBatch,
    sent: u64,
    unsent: u64,
}

impl Sender {
    fn send(&mut self, out: &Outbox) {
        let mut pending: SmallVec<[Outgoing<'_>; BATCH]> = SmallVec::new();
        let mut by = ListenerId(0);
        for output in &out.outputs {
            let Output::Send { path, bytes } = output else { continue };
            if !pending.is_empty() && (path.listener != by || pending.len() == BATCH) {
                self.send_batch(by, &pending);
                pending.clear();
            }
            by = path.listener;
            if let Some(bytes) = out.bytes.get(bytes.clone()) {
                pending.push(Outgoing { to: path.remote, from: path.local, bytes });
            }
        }
        if !pending.is_empty() {
            self.send_batch(by, &pending);
        }
    }

    fn send_batch(&mut self, by: ListenerId, mut datagrams: &[Outgoing<'_>]) {
        /// Times that one datagram is tried: an ICMP error of an earlier one is reported instead of sending it.
        const TRIES: u32 = 3;
        let Some(listener) = self.listeners.get(usize::from(by.0)) else { return };
        let mut tries = 0;
        while !datagrams.is_empty() {
            match self.batch.send(listener.raw(), datagrams) {
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
            turn.handle(Input::Drain);
            turn.flush();
        }
        if turn.now >= self.next_report || self.reports != self.control.reports() {
            self.reports = self.control.reports();
            self.next_report = turn.now + Self::REPORT_EVERY;
            turn.report();
        }
        if self.draining
            && order < Control::STOP
            && self.control.is_drained(turn.index, turn.handler.is_idle())
        {
            self.control.stop();
            turn.posts.iter().for_each(Post::wake);
            return true;
        }
        order >= Control::STOP
    }
}

#[cfg(test)]
mod tests;
