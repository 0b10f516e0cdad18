//! Sockets for a fleet: a few threads, each with an epoll of its own and a share of the connections.
//!
//! A thread does what its [`Fleet`] says is due, waits for its sockets no longer than until the next such time,
//! and tells a snapshot of its counts now and then. The end is told to it by a flag.

use super::Settings;
use super::fleet::{Counts, Fleet, Task};
use super::wire::{self, Heard, PING};
use crate::net::stream::tls::Ends;
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::socket::{setsockopt, sockopt};
use rustls::{Connection, HandshakeKind};
use socket2::{Domain, Protocol, Socket, Type};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Events of one wait.
const EVENTS: usize = 1024;

/// Longest wait: how soon the end is noticed.
const WAIT_MAX: Duration = Duration::from_millis(50);

/// How often a thread tells its counts.
const TELL_EVERY: Duration = Duration::from_millis(100);

/// Tasks that are done before the sockets are looked at again.
const TASKS_MAX: usize = 256;

/// Bytes that are read at once.
const READ_BYTES: usize = 16_384;

/// Reads of one connection before the others have their turn.
const READS_MAX: usize = 16;

/// Threads at work. They end when this is dropped.
#[derive(Debug)]
pub struct Crew {
    stop: Arc<AtomicBool>,
    counts: Vec<Arc<Mutex<(Counts, bool)>>>,
    threads: Vec<JoinHandle<Result<(), String>>>,
}

impl Crew {
    /// Starts `threads` threads, which open the connections.
    ///
    /// # Errors
    /// The system gives no thread or epoll.
    pub(crate) fn start(settings: &Settings, security: Option<&Ends>, threads: u32) -> Result<Crew, String> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut crew = Crew { stop, counts: Vec::new(), threads: Vec::new() };
        let start = Instant::now();
        for part in 0..threads.max(1) {
            let counts = Arc::new(Mutex::new((Counts::default(), false)));
            let driver = Driver::new(settings, security, part, threads.max(1), start)?;
            let (told, stop) = (counts.clone(), crew.stop.clone());
            let thread = std::thread::Builder::new()
                .name(format!("connect-{part}"))
                .spawn(move || driver.run(&told, &stop))
                .map_err(|error| format!("no thread can be started: {error}"))?;
            crew.counts.push(counts);
            crew.threads.push(thread);
        }
        Ok(crew)
    }

    /// The counts so far, and whether every connection was opened or has failed.
    #[must_use]
    pub fn counts(&self) -> (Counts, bool) {
        let mut sum = (Counts::default(), true);
        for told in &self.counts {
            let told = told.lock().unwrap_or_else(PoisonError::into_inner);
            sum.0.merge(&told.0);
            sum.1 &= told.1;
        }
        sum
    }

    /// Whether a thread has ended by itself: then [`Crew::end`] says why.
    #[must_use]
    pub fn broken(&self) -> bool {
        self.threads.iter().any(JoinHandle::is_finished)
    }

    /// Closes all connections and ends the threads.
    ///
    /// # Errors
    /// A thread could not go on; the sentence says why.
    pub fn end(mut self) -> Result<Counts, String> {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().map_err(|_| "a thread has panicked, please report it".to_owned())??;
        }
        Ok(self.counts().0)
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // What it could not do matters to nobody any more.
            let _ = thread.join();
        }
    }
}

/// A connection's socket.
#[derive(Debug)]
struct Wire {
    stream: TcpStream,
    tls: Option<Box<Connection>>,
    connected: bool,
    inbox: Vec<u8>,
    /// What the socket has not taken yet.
    outbox: Vec<u8>,
    /// Whether epoll tells when it can be written to.
    writable_wanted: bool,
}

/// How a connection ended, as the report calls it.
struct Over(String);

/// One thread's part.
struct Driver {
    settings: Settings,
    security: Option<Ends>,
    fleet: Fleet,
    wires: Vec<Option<Wire>>,
    epoll: Epoll,
    start: Instant,
    /// Makes Call-IDs of one run differ from those of another.
    attempt: u64,
}

impl Driver {
    fn new(
        settings: &Settings,
        security: Option<&Ends>,
        part: u32,
        parts: u32,
        start: Instant,
    ) -> Result<Driver, String> {
        let fleet = Fleet::new(settings, part, parts);
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)
            .map_err(|error| format!("no epoll can be opened: {error}"))?;
        Ok(Driver {
            settings: settings.clone(),
            security: security.cloned(),
            wires: (0..fleet.len()).map(|_| None).collect(),
            fleet,
            epoll,
            start,
            attempt: settings.seed,
        })
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    fn run(mut self, told: &Mutex<(Counts, bool)>, stop: &AtomicBool) -> Result<(), String> {
        let mut events = vec![EpollEvent::empty(); EVENTS];
        let mut tell_at = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            self.tasks();
            if Instant::now() >= tell_at {
                self.tell(told);
                tell_at = Instant::now() + TELL_EVERY;
            }
            let ready = match self.epoll.wait(&mut events, self.patience()) {
                Ok(count) => count,
                Err(Errno::EINTR) => 0,
                Err(error) => return Err(format!("the connections cannot be waited for: {error}")),
            };
            for event in &events[..ready] {
                // Only indices of this thread's connections were given to epoll.
                if let Ok(index) = u32::try_from(event.data()) {
                    self.event(index, event.events());
                }
            }
        }
        self.tell(told);
        for index in 0..self.wires.len() {
            self.goodbye(index);
        }
        Ok(())
    }

    fn tell(&self, told: &Mutex<(Counts, bool)>) {
        let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
        *told = (self.fleet.counts().clone(), self.fleet.all_tried());
    }

    /// Until the next task, rounded up to the millisecond that epoll can wait.
    fn patience(&self) -> EpollTimeout {
        let until =
            self.fleet.next_at().map_or(WAIT_MAX, |at| Duration::from_micros(at.saturating_sub(self.now())));
        let ms = until.min(WAIT_MAX).as_micros().div_ceil(1000);
        EpollTimeout::from(u8::try_from(ms).unwrap_or(u8::MAX))
    }

    fn tasks(&mut self) {
        for _ in 0..TASKS_MAX {
            let now = self.now();
            match self.fleet.due(now) {
                None => return,
                Some(Task::Connect(index)) => {
                    if let Err(error) = self.connect(index) {
                        self.over(index, &cause(&error));
                    }
                }
                Some(Task::Ping(index)) => self.send(index, PING),
                Some(Task::Close(index)) => self.drop_wire(index),
            }
        }
    }

    fn connect(&mut self, index: u32) -> io::Result<()> {
        let Settings { target, sources, .. } = &self.settings;
        let socket =
            Socket::new(Domain::for_address(*target), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
        let source = sources[self.fleet.number(index) as usize % sources.len()];
        // The port is chosen at the connect, so that it need only differ from those of this source and this
        // target.
        setsockopt(&socket, sockopt::IpBindAddressNoPort, &true).map_err(io::Error::from)?;
        socket.bind(&SocketAddr::new(source, 0).into())?;
        socket.set_tcp_nodelay(true)?;
        match socket.connect(&(*target).into()) {
            Err(error) if error.raw_os_error() != Some(Errno::EINPROGRESS as i32) => return Err(error),
            _ => {}
        }
        let stream: TcpStream = socket.into();
        let event = EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT, index.into());
        self.epoll.add(&stream, event).map_err(io::Error::from)?;
        let (inbox, outbox) = (Vec::new(), Vec::new());
        self.wires[index as usize] =
            Some(Wire { stream, tls: None, connected: false, inbox, outbox, writable_wanted: true });
        Ok(())
    }

    fn event(&mut self, index: u32, flags: EpollFlags) {
        let Some(Some(wire)) = self.wires.get_mut(index as usize) else { return };
        if !wire.connected {
            match wire.stream.take_error() {
                Ok(None) if flags.contains(EpollFlags::EPOLLOUT) => {}
                Ok(None) => return,
                Ok(Some(error)) | Err(error) => return self.over(index, &cause(&error)),
            }
            wire.connected = true;
            if let Some(security) = &self.security {
                match security.connect() {
                    Ok(tls) => wire.tls = Some(Box::new(tls)),
                    Err(error) => return self.over(index, &handshake_cause(&error)),
                }
            }
            let now = self.now();
            let register = self.fleet.on_connected(index, now, self.security.is_some());
            if register {
                self.register(index);
            }
        }
        if let Err(Over(cause)) = self.pump(index) {
            self.over(index, &cause);
        }
    }

    fn register(&mut self, index: u32) {
        let number = self.fleet.number(index);
        let local = self.wires[index as usize].as_ref().and_then(|wire| wire.stream.local_addr().ok());
        let (Some(registration), Some(local)) = (&self.settings.register, local) else { return };
        let request = registration.request(number, local, self.attempt);
        self.send(index, request.as_bytes());
    }

    fn send(&mut self, index: u32, bytes: &[u8]) {
        let Some(Some(wire)) = self.wires.get_mut(index as usize) else { return };
        match &mut wire.tls {
            Some(tls) => {
                if let Err(error) = tls.writer().write_all(bytes) {
                    return self.over(index, &cause(&error));
                }
            }
            None => wire.outbox.extend_from_slice(bytes),
        }
        if let Err(Over(cause)) = self.flush(index) {
            self.over(index, &cause);
        }
    }

    /// Reads what there is, and does what follows from it.
    fn pump(&mut self, index: u32) -> Result<(), Over> {
        for _ in 0..READS_MAX {
            let Some(Some(wire)) = self.wires.get_mut(index as usize) else { return Ok(()) };
            let more = match &mut wire.tls {
                None => read_plain(wire)?,
                Some(_) => {
                    let handshaking = wire.tls.as_ref().is_some_and(|tls| tls.is_handshaking());
                    let more = read_tls(wire)?;
                    let secured = wire
                        .tls
                        .as_ref()
                        .filter(|tls| handshaking && !tls.is_handshaking())
                        .map(|tls| tls.handshake_kind() == Some(HandshakeKind::Resumed));
                    // What is left of the handshake goes out before it counts as done.
                    self.flush(index)?;
                    if let Some(resumed) = secured {
                        let now = self.now();
                        if self.fleet.on_secured(index, now, resumed) {
                            self.register(index);
                        }
                    }
                    more
                }
            };
            self.hear(index)?;
            match more {
                More::Maybe => {}
                More::NotNow => break,
                More::Never => return Err(Over("closed".into())),
            }
        }
        self.flush(index)
    }

    /// Takes what was said off the inbox.
    fn hear(&mut self, index: u32) -> Result<(), Over> {
        loop {
            let Some(Some(wire)) = self.wires.get_mut(index as usize) else { return Ok(()) };
            let heard = wire::next(&mut wire.inbox).map_err(|_| Over("not-sip".into()))?;
            let now = self.now();
            match heard {
                None => {
                    if let Some(Some(wire)) = self.wires.get_mut(index as usize)
                        && wire.inbox.is_empty()
                    {
                        // An idle connection holds no buffer.
                        wire.inbox = Vec::new();
                    }
                    return Ok(());
                }
                Some(Heard::Pong) => self.fleet.on_pong(index, now),
                Some(Heard::Request) => self.fleet.on_stray(),
                Some(Heard::Response(status)) => {
                    if self.fleet.on_response(index, now, status) {
                        self.drop_wire(index);
                    }
                }
            }
        }
    }

    /// Writes what is waiting, and has epoll tell when the rest can be written.
    fn flush(&mut self, index: u32) -> Result<(), Over> {
        let Some(Some(wire)) = self.wires.get_mut(index as usize) else { return Ok(()) };
        if !wire.connected {
            return Ok(());
        }
        let done = match &mut wire.tls {
            Some(tls) => loop {
                if !tls.wants_write() {
                    break Ok(true);
                }
                match tls.write_tls(&mut wire.stream) {
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break Ok(false),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => break Err(error),
                }
            },
            None => write_plain(&mut wire.stream, &mut wire.outbox),
        };
        let waits = !done.map_err(|error| Over(cause(&error)))?;
        if waits != wire.writable_wanted {
            let mut flags = EpollFlags::EPOLLIN;
            flags.set(EpollFlags::EPOLLOUT, waits);
            let mut event = EpollEvent::new(flags, index.into());
            self.epoll.modify(&wire.stream, &mut event).map_err(|error| Over(cause(&error.into())))?;
            wire.writable_wanted = waits;
        }
        Ok(())
    }

    fn over(&mut self, index: u32, cause: &str) {
        self.fleet.on_over(index, cause);
        self.drop_wire(index);
    }

    /// Closing a socket takes it out of epoll.
    fn drop_wire(&mut self, index: u32) {
        if let Some(wire) = self.wires.get_mut(index as usize) {
            *wire = None;
        }
    }

    /// Closes in good order: TLS says so first.
    fn goodbye(&mut self, index: usize) {
        let Some(mut wire) = self.wires[index].take() else { return };
        if let Some(tls) = &mut wire.tls {
            tls.send_close_notify();
            // A server that is gone need not be told.
            let _ = tls.write_tls(&mut wire.stream);
        }
    }
}

/// Whether there may be more to read.
enum More {
    Maybe,
    NotNow,
    Never,
}

fn read_plain(wire: &mut Wire) -> Result<More, Over> {
    let mut buffer = [0; READ_BYTES];
    match wire.stream.read(&mut buffer) {
        Ok(0) => Ok(More::Never),
        Ok(count) => {
            wire.inbox.extend_from_slice(&buffer[..count]);
            Ok(More::Maybe)
        }
        Err(error) => later(&error),
    }
}

fn read_tls(wire: &mut Wire) -> Result<More, Over> {
    let Some(tls) = &mut wire.tls else { return Ok(More::NotNow) };
    let more = match tls.read_tls(&mut wire.stream) {
        Ok(0) => More::Never,
        Ok(_) => More::Maybe,
        Err(error) => later(&error)?,
    };
    let handshaking = tls.is_handshaking();
    if let Err(error) = tls.process_new_packets() {
        // The alert tells the server why; whether it arrives does not matter.
        let _ = tls.write_tls(&mut wire.stream);
        return Err(Over(if handshaking { handshake_cause(&error) } else { "tls".into() }));
    }
    let mut buffer = [0; READ_BYTES];
    loop {
        match tls.reader().read(&mut buffer) {
            Ok(0) => return Ok(More::Never),
            Ok(count) => wire.inbox.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(more),
            // Closed without saying so.
            Err(_) => return Ok(More::Never),
        }
    }
}

fn later(error: &io::Error) -> Result<More, Over> {
    match error.kind() {
        io::ErrorKind::WouldBlock => Ok(More::NotNow),
        io::ErrorKind::Interrupted => Ok(More::Maybe),
        _ => Err(Over(cause(error))),
    }
}

/// Whether all of it was written.
fn write_plain(stream: &mut TcpStream, outbox: &mut Vec<u8>) -> io::Result<bool> {
    while !outbox.is_empty() {
        match stream.write(outbox) {
            Ok(count) => drop(outbox.drain(..count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    *outbox = Vec::new();
    Ok(true)
}

/// The word for an error of the system. Those that are the generator's own begin with `generator-`.
fn cause(error: &io::Error) -> String {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ECONNREFUSED) => "refused".into(),
        Some(Errno::ECONNRESET | Errno::EPIPE) => "reset".into(),
        Some(Errno::ETIMEDOUT) => "connect-timeout".into(),
        Some(Errno::EADDRNOTAVAIL | Errno::EADDRINUSE) => "generator-no-port".into(),
        Some(Errno::EMFILE | Errno::ENFILE) => "generator-no-descriptor".into(),
        Some(Errno::ENETUNREACH | Errno::EHOSTUNREACH) => "unreachable".into(),
        _ => format!("{:?}", error.kind()).to_lowercase(),
    }
}

/// The word for a handshake that failed.
fn handshake_cause(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(_) => "handshake-certificate".into(),
        rustls::Error::AlertReceived(alert) => format!("handshake-alert-{alert:?}").to_lowercase(),
        _ => "handshake-protocol".into(),
    }
}

#[cfg(test)]
mod tests;
