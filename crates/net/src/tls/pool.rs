//! The threads that shake hands, at a lower priority than the shards.
//!
//! Each has a poll of its own and as many handshakes under way as come; together they have a limit, past which
//! a connection is refused at once. Every handshake has one deadline, counted from the moment it was handed
//! over, and one outcome, which is posted to its shard whatever happens: a [`Promise`] that is dropped posts
//! that it is closed.

use std::collections::BTreeSet;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use engine::FlowId;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};

use super::error::HandshakeError;
use super::handshake::{Handshake, Progress};
use super::{Secured, Tls};
use crate::queue::{Parcel, Post};
use crate::sys;

/// How much nicer than the shards these threads are: new connections wait before calls do.
const NICE: i32 = 10;

/// Threads at most.
pub const HANDSHAKE_THREADS_MAX: usize = 64;

/// Bytes read from a socket at once.
const READ_BYTES: usize = 16 * 1024;

const WAKE: Token = Token(0);

/// A handle of the pool; the threads end when the last one is dropped.
#[derive(Clone, Debug)]
pub struct HandshakePool(Arc<Pool>);

#[derive(Debug)]
struct Pool {
    shared: Arc<Shared>,
    workers: Vec<Arc<Worker>>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    tls: Tls,
    under_way: AtomicUsize,
    counters: Counters,
    stops: AtomicBool,
}

/// What a thread and those who give it work have in common.
#[derive(Debug)]
struct Worker {
    /// New work; never more than may be under way.
    jobs: Mutex<Vec<Job>>,
    under_way: AtomicUsize,
    waker: Waker,
}

#[derive(Debug, Default)]
struct Counters {
    accepted_full: AtomicU64,
    accepted_resumed: AtomicU64,
    connected_full: AtomicU64,
    connected_resumed: AtomicU64,
    not_tls: AtomicU64,
    timed_out: AtomicU64,
    closed: AtomicU64,
    certificate: AtomicU64,
    protocol: AtomicU64,
    no_common: AtomicU64,
    refused: AtomicU64,
    undelivered: AtomicU64,
}

/// Handshakes since the start, by what came of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandshakeStatistics {
    /// As server, with certificates and signatures.
    pub accepted_full: u64,
    /// As server, on an earlier session.
    pub accepted_resumed: u64,
    /// As client, with certificates and signatures.
    pub connected_full: u64,
    /// As client, on an earlier session.
    pub connected_resumed: u64,
    /// Failed: the other side does not speak TLS.
    pub not_tls: u64,
    /// Failed: not done in time.
    pub timed_out: u64,
    /// Failed: the connection was closed.
    pub closed: u64,
    /// Failed: a certificate was refused, theirs or ours.
    pub certificate: u64,
    /// Failed: the protocol was broken.
    pub protocol: u64,
    /// Failed: nothing in common.
    pub no_common: u64,
    /// Not begun, because as many were under way as may be.
    pub refused: u64,
    /// Outcomes that a shard's full queue did not take; the connection was closed.
    pub undelivered: u64,
    /// Under way now.
    pub under_way: usize,
}

#[derive(Debug)]
struct Job {
    socket: TcpStream,
    remote: SocketAddr,
    kind: Kind,
    deadline: Instant,
    promise: Promise,
}

#[derive(Debug)]
enum Kind {
    Accept { local: SocketAddr },
    Connect { name: Option<Box<[u8]>> },
}

/// Which side of a handshake is ours.
#[derive(Clone, Copy)]
enum Side {
    Server,
    Client,
}

/// The duty to tell the shard what came of a handshake, exactly once; it counts as under way until then.
#[derive(Debug)]
struct Promise {
    flow: FlowId,
    post: Post,
    shared: Arc<Shared>,
    worker: Arc<Worker>,
    kept: bool,
}

impl Promise {
    fn keep(mut self, result: Result<Box<Secured>, HandshakeError>) {
        self.deliver(result);
    }

    fn deliver(&mut self, result: Result<Box<Secured>, HandshakeError>) {
        self.kept = true;
        // Before the shard learns of it, which may then count on the place.
        self.worker.under_way.fetch_sub(1, Ordering::Relaxed);
        self.shared.under_way.fetch_sub(1, Ordering::Relaxed);
        let counters = &self.shared.counters;
        if let Err(error) = &result {
            counters.failed(error);
        }
        if !self.post.send(Parcel::Secured { flow: self.flow, result }) {
            // The parcel is gone, and the socket with it.
            count(&counters.undelivered);
        }
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        if !self.kept {
            self.deliver(Err(HandshakeError::Closed));
        }
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Counters {
    fn failed(&self, error: &HandshakeError) {
        count(match error {
            HandshakeError::NotTls(_) => &self.not_tls,
            HandshakeError::TimedOut => &self.timed_out,
            HandshakeError::Closed => &self.closed,
            HandshakeError::Certificate(_) => &self.certificate,
            HandshakeError::Protocol(_) => &self.protocol,
            HandshakeError::NoCommon(_) => &self.no_common,
        });
    }

    fn done(&self, side: Side, secured: &Secured) {
        count(match (side, secured.session.is_resumed()) {
            (Side::Server, false) => &self.accepted_full,
            (Side::Server, true) => &self.accepted_resumed,
            (Side::Client, false) => &self.connected_full,
            (Side::Client, true) => &self.connected_resumed,
        });
    }
}

impl HandshakePool {
    /// Starts the threads: `tls-0` and so on, between 1 and [`HANDSHAKE_THREADS_MAX`].
    ///
    /// # Errors
    ///
    /// When the system has no descriptors or threads left.
    pub fn start(tls: Tls, threads: usize) -> io::Result<HandshakePool> {
        let shared = Arc::new(Shared {
            tls,
            under_way: AtomicUsize::new(0),
            counters: Counters::default(),
            stops: AtomicBool::new(false),
        });
        let mut pool = Pool { shared, workers: Vec::new(), threads: Vec::new() };
        for index in 0..threads.clamp(1, HANDSHAKE_THREADS_MAX) {
            let poll = Poll::new()?;
            let waker = Waker::new(poll.registry(), WAKE)?;
            let worker = Arc::new(Worker { jobs: Mutex::default(), under_way: AtomicUsize::new(0), waker });
            let thread = Thread::new(poll, worker.clone(), pool.shared.clone());
            let builder = std::thread::Builder::new().name(format!("tls-{index}"));
            pool.threads.push(builder.spawn(move || thread.run())?);
            pool.workers.push(worker);
        }
        Ok(HandshakePool(Arc::new(pool)))
    }

    /// Shakes hands as server on a connection from `remote` that came in at `local`.
    ///
    /// The outcome comes to `post` as [`Parcel::Secured`], always and once.
    ///
    /// # Errors
    ///
    /// The socket, when as many handshakes are under way as may be; nothing is posted then.
    pub fn accept(
        &self,
        socket: TcpStream,
        local: SocketAddr,
        remote: SocketAddr,
        flow: FlowId,
        post: &Post,
    ) -> Result<(), TcpStream> {
        self.begin(socket, remote, flow, post, || Kind::Accept { local })
    }

    /// Shakes hands as client on a connection to `remote`, which must prove to be `name`; its address if that
    /// is `None` or empty (RFC 5922 §7.3).
    ///
    /// The outcome comes to `post` as [`Parcel::Secured`], always and once.
    ///
    /// # Errors
    ///
    /// The socket, when as many handshakes are under way as may be; nothing is posted then.
    pub fn connect(
        &self,
        socket: TcpStream,
        remote: SocketAddr,
        name: Option<&[u8]>,
        flow: FlowId,
        post: &Post,
    ) -> Result<(), TcpStream> {
        self.begin(socket, remote, flow, post, || Kind::Connect { name: name.map(Into::into) })
    }

    fn begin(
        &self,
        socket: TcpStream,
        remote: SocketAddr,
        flow: FlowId,
        post: &Post,
        kind: impl FnOnce() -> Kind,
    ) -> Result<(), TcpStream> {
        let shared = &self.0.shared;
        let loaded = shared.tls.loaded();
        let admit = |now: usize| (now < loaded.settings.handshakes_max).then_some(now + 1);
        let admitted = shared.under_way.fetch_update(Ordering::Relaxed, Ordering::Relaxed, admit);
        let least_busy = self.0.workers.iter().min_by_key(|worker| worker.under_way.load(Ordering::Relaxed));
        let (Ok(_), Some(worker)) = (admitted, least_busy) else {
            count(&shared.counters.refused);
            return Err(socket);
        };
        worker.under_way.fetch_add(1, Ordering::Relaxed);
        let promise =
            Promise { flow, post: post.clone(), shared: shared.clone(), worker: worker.clone(), kept: false };
        let deadline = Instant::now() + loaded.settings.handshake_timeout;
        let job = Job { socket, remote, kind: kind(), deadline, promise };
        worker.jobs.lock().unwrap_or_else(PoisonError::into_inner).push(job);
        if let Err(error) = worker.waker.wake() {
            tracing::error!(%error, "cannot wake a thread of the TLS handshakes");
        }
        Ok(())
    }

    /// What has happened since the start.
    pub fn statistics(&self) -> HandshakeStatistics {
        let counters = &self.0.shared.counters;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        HandshakeStatistics {
            accepted_full: read(&counters.accepted_full),
            accepted_resumed: read(&counters.accepted_resumed),
            connected_full: read(&counters.connected_full),
            connected_resumed: read(&counters.connected_resumed),
            not_tls: read(&counters.not_tls),
            timed_out: read(&counters.timed_out),
            closed: read(&counters.closed),
            certificate: read(&counters.certificate),
            protocol: read(&counters.protocol),
            no_common: read(&counters.no_common),
            refused: read(&counters.refused),
            undelivered: read(&counters.undelivered),
            under_way: self.0.shared.under_way.load(Ordering::Relaxed),
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stops.store(true, Ordering::Release);
        for worker in &self.workers {
            let _ = worker.waker.wake();
        }
        for thread in self.threads.drain(..) {
            // A thread's panic was logged where it happened.
            let _ = thread.join();
        }
        for worker in &self.workers {
            worker.jobs.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
    }
}

/// One thread of the pool.
struct Thread {
    poll: Poll,
    worker: Arc<Worker>,
    shared: Arc<Shared>,
    slots: Vec<Option<Running>>,
    free: Vec<usize>,
    deadlines: BTreeSet<(Instant, usize)>,
    scratch: Vec<u8>,
}

struct Running {
    handshake: Handshake,
    remote: SocketAddr,
    side: Side,
    deadline: Instant,
    promise: Promise,
}

impl Thread {
    fn new(poll: Poll, worker: Arc<Worker>, shared: Arc<Shared>) -> Thread {
        let (slots, free, deadlines) = (Vec::new(), Vec::new(), BTreeSet::new());
        Thread { poll, worker, shared, slots, free, deadlines, scratch: vec![0; READ_BYTES] }
    }

    fn run(mut self) {
        if let Err(error) = sys::set_nice(NICE) {
            tracing::debug!(%error, "TLS handshakes run at the usual priority");
        }
        let mut events = Events::with_capacity(256);
        while !self.shared.stops.load(Ordering::Acquire) {
            let timeout = self.deadlines.first().map(|(at, _)| at.saturating_duration_since(Instant::now()));
            if let Err(error) = self.poll.poll(&mut events, timeout)
                && error.kind() != io::ErrorKind::Interrupted
            {
                tracing::error!(%error, "TLS handshakes cannot wait for their sockets");
                std::thread::sleep(Duration::from_millis(100));
            }
            for event in &events {
                if event.token() != WAKE {
                    self.advance(event.token().0 - 1);
                }
            }
            let jobs = std::mem::take(&mut *self.worker.jobs.lock().unwrap_or_else(PoisonError::into_inner));
            for job in jobs {
                self.begin(job);
            }
            self.expire();
        }
    }

    fn begin(&mut self, job: Job) {
        let Job { socket, remote, kind, deadline, promise } = job;
        let (side, handshake) = match kind {
            Kind::Accept { local } => (Side::Server, Ok(Handshake::accept(socket, local))),
            Kind::Connect { name } => {
                let loaded = self.shared.tls.loaded();
                (Side::Client, Handshake::connect(socket, remote, name.as_deref(), &loaded))
            }
        };
        let handshake = match handshake {
            Ok(handshake) => handshake,
            Err(error) => return promise.keep(Err(error)),
        };
        let slot = self.free.pop().unwrap_or(self.slots.len());
        let raw = handshake.socket.as_raw_fd();
        let both = Interest::READABLE | Interest::WRITABLE;
        let registered = handshake
            .socket
            .set_nonblocking(true)
            .and_then(|()| self.poll.registry().register(&mut SourceFd(&raw), Token(slot + 1), both));
        if let Err(error) = registered {
            tracing::error!(%error, "a TLS handshake cannot be waited for");
            self.free.push(slot);
            return;
        }
        if slot == self.slots.len() {
            self.slots.push(None);
        }
        self.slots[slot] = Some(Running { handshake, remote, side, deadline, promise });
        self.deadlines.insert((deadline, slot));
        self.advance(slot);
    }

    /// Goes on with a handshake, if it is still there, and ends it if it is done.
    fn advance(&mut self, slot: usize) {
        let Some(Some(running)) = self.slots.get_mut(slot) else { return };
        let (tls, scratch) = (&self.shared.tls, &mut self.scratch);
        let progress = catch_unwind(AssertUnwindSafe(|| running.handshake.advance(tls, scratch)));
        let error = match progress {
            Ok(Progress::Waits) => return,
            Ok(Progress::Done) => None,
            Ok(Progress::Failed(error)) => Some(error),
            Err(_) => {
                let remote = running.remote;
                tracing::error!(%remote, "a TLS handshake met a fault of this server and was given up");
                Some(HandshakeError::Protocol("a fault of this server; its log has more".into()))
            }
        };
        self.end(slot, error);
    }

    fn end(&mut self, slot: usize, error: Option<HandshakeError>) {
        let Some(running) = self.slots.get_mut(slot).and_then(Option::take) else { return };
        self.free.push(slot);
        self.deadlines.remove(&(running.deadline, slot));
        let raw = running.handshake.socket.as_raw_fd();
        let _ = self.poll.registry().deregister(&mut SourceFd(&raw));
        let result = match error {
            Some(error) => Err(error),
            None => running.handshake.finish(),
        };
        if let Ok(secured) = &result {
            self.shared.counters.done(running.side, secured);
        }
        running.promise.keep(result);
    }

    fn expire(&mut self) {
        let now = Instant::now();
        while let Some(&(at, slot)) = self.deadlines.first() {
            if at > now {
                return;
            }
            self.deadlines.pop_first();
            self.end(slot, Some(HandshakeError::TimedOut));
        }
    }
}
