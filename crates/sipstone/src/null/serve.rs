//! The null server on a socket and a thread.
//!
//! One thread reads datagrams in batches, gives each to the pure [`NullServer`], and sends what it wants sent in batches, by
//! the same means as the generator's threads: what it costs is what the generator is measured against.

use super::streams::StreamServer;
use super::{Behaviour, Counters, NullServer};
use crate::load::Outbox;
use crate::net::cpus;
use crate::net::socket::{NetError, Receiver, Sender, Socket};
use crate::net::stream::listen;
use crate::spec::{Tls, Transport};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;

/// Most batches read before what they brought is sent.
const BATCHES_MAX: usize = 4;

/// How long the thread sleeps at most, milliseconds, before it looks whether it is to stop. Stopping takes no longer than twice this.
pub(super) const WAKE_EVERY_MS: u8 = 40;

/// How often the counters are made visible while datagrams come without a pause.
pub(super) const PUBLISH_EVERY_US: u64 = 50_000;

/// A null server that runs until it is dropped.
#[derive(Debug)]
pub struct Serving {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

/// What the thread shares with its owner.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) stop: Arc<AtomicBool>,
    counters: Mutex<Counters>,
}

impl Shared {
    pub(super) fn counters(&self) -> MutexGuard<'_, Counters> {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Serving {
    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it did, as of at most 100 ms ago.
    #[must_use]
    pub fn counters(&self) -> Counters {
        *self.shared.counters()
    }

    /// Set it to true and the server ends within 100 ms; [`wait`](Serving::wait) then returns.
    #[must_use]
    pub fn stop_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.shared.stop)
    }

    /// Waits until SIGINT or SIGTERM comes or the [`stop_flag`](Serving::stop_flag) is set: the whole of a command in
    /// the foreground. The signals are handled from this call on, and then no longer end the process.
    ///
    /// # Errors
    /// The signals cannot be handled, or the socket failed.
    pub fn wait(mut self) -> io::Result<Counters> {
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::flag::register(signal, self.stop_flag())?;
        }
        self.join()?;
        Ok(self.counters())
    }

    /// Ends it and returns what it did in all.
    ///
    /// # Errors
    /// The socket failed before.
    pub fn stop(mut self) -> io::Result<Counters> {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.join()?;
        Ok(self.counters())
    }

    fn join(&mut self) -> io::Result<()> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the null server panicked")))
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        // Whoever wants to know how it ended has called `stop` or `wait`.
        drop(self.join());
    }
}

/// Starts one thread that serves `address` (port 0: any), pinned to `cpu` if there is one.
///
/// # Errors
/// The address cannot be bound, the thread cannot be started, or it cannot be pinned to that CPU.
pub fn start(address: SocketAddr, behaviour: Behaviour, cpu: Option<u16>) -> io::Result<Serving> {
    let socket = Socket::bind(address).map_err(plain)?;
    let address = socket.local();
    let server = NullServer::new(address, behaviour);
    spawn(address, cpu, move |shared| Server::new(socket, server, shared).run())
}

/// Starts one thread that serves `address` over any transport; `tls` says which certificate it shows, and which handshakes
/// it makes.
///
/// # Errors
/// As [`start`]; or TLS cannot be set up.
pub fn start_over(
    transport: Transport,
    tls: &Tls,
    address: SocketAddr,
    behaviour: Behaviour,
    cpu: Option<u16>,
) -> io::Result<Serving> {
    if !transport.is_stream() {
        return start(address, behaviour, cpu);
    }
    let listener = listen(address).map_err(plain)?;
    let address = listener.local_addr()?;
    let server = NullServer::new(address, behaviour).over(transport);
    let server = StreamServer::new(transport, tls, listener, server)?;
    spawn(address, cpu, move |shared| server.run(&shared))
}

fn plain(error: NetError) -> io::Error {
    match error {
        NetError::Open { error, .. } | NetError::Listen { error, .. } => error,
        other => io::Error::other(other.to_string()),
    }
}

/// Runs a server on a thread of its own.
fn spawn(
    address: SocketAddr,
    cpu: Option<u16>,
    run: impl FnOnce(Arc<Shared>) -> io::Result<()> + Send + 'static,
) -> io::Result<Serving> {
    let shared = Arc::new(Shared::default());
    let (tell, told) = mpsc::sync_channel(1);
    let of_thread = Arc::clone(&shared);
    let thread = std::thread::Builder::new().name("null-server".into()).spawn(move || {
        let pinned = pin(cpu);
        let ready = pinned.is_ok();
        // The other side waits for this message.
        let _ = tell.send(pinned);
        if ready { run(of_thread) } else { Ok(()) }
    })?;
    told.recv().map_err(|_| io::Error::other("the null server's thread ended at once"))??;
    Ok(Serving { address, shared, thread: Some(thread) })
}

fn pin(cpu: Option<u16>) -> io::Result<()> {
    cpu.map_or(Ok(()), |cpu| cpus::pin(&[cpu]))
}

/// The thread's own.
struct Server {
    socket: Socket,
    server: NullServer,
    shared: Arc<Shared>,
    out: Outbox,
    send_errors: u64,
    /// Datagrams too long for what is received here.
    cut: u64,
    receiver: Receiver,
    sender: Sender,
}

impl Server {
    fn new(socket: Socket, server: NullServer, shared: Arc<Shared>) -> Server {
        let (receiver, sender) = (Receiver::default(), Sender::default());
        Server { socket, server, shared, out: Outbox::default(), send_errors: 0, cut: 0, receiver, sender }
    }

    fn run(mut self) -> io::Result<()> {
        let clock = std::time::Instant::now();
        let mut published_us = 0;
        let ended = loop {
            if self.shared.stop.load(Ordering::Relaxed) {
                break Ok(());
            }
            if let Err(error) = self.wait().and_then(|()| self.receive(&clock)) {
                break Err(error);
            }
            self.flush();
            let now_us = micros(&clock);
            if now_us >= published_us + PUBLISH_EVERY_US {
                published_us = now_us;
                self.publish();
            }
        };
        self.publish();
        ended
    }

    fn publish(&self) {
        let counters = self.server.counters();
        let garbage = counters.garbage + self.cut;
        *self.shared.counters() = Counters { send_errors: self.send_errors, garbage, ..counters };
    }

    fn wait(&mut self) -> io::Result<()> {
        let mut polled = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
        match poll(&mut polled, PollTimeout::from(WAKE_EVERY_MS)) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        if polled[0].revents().is_some_and(|events| events.contains(PollFlags::POLLERR)) {
            // A refusal is about an address that was sent to before, not about this socket.
            self.socket.drain_errors();
        }
        Ok(())
    }

    /// Takes the datagrams that are there.
    fn receive(&mut self, clock: &std::time::Instant) -> io::Result<()> {
        let Server { socket, server, out, receiver, cut, .. } = self;
        for _ in 0..BATCHES_MAX {
            let now = sip::Instant::from_micros(micros(clock));
            let batch = receiver.receive(socket, |from, bytes| server.handle(now, from, bytes, out));
            let batch = batch.map_err(|error| io::Error::other(error.to_string()))?;
            *cut += u64::try_from(batch.cut).unwrap_or(u64::MAX);
            if !batch.more {
                break;
            }
        }
        Ok(())
    }

    /// Sends all that is to be sent, and passes over what the system refuses.
    fn flush(&mut self) {
        let mut next = 0;
        while next < self.out.sends.len() {
            match self.sender.send(&self.socket, &self.out, next..self.out.sends.len()) {
                Ok((sent, _)) => next += sent.max(1),
                Err(_) => {
                    self.send_errors += 1;
                    next += 1;
                }
            }
        }
        self.out.clear();
    }
}

pub(super) fn micros(clock: &std::time::Instant) -> u64 {
    u64::try_from(clock.elapsed().as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::time::Duration;

    const PLAIN: Behaviour = Behaviour { redirect: false, trying: false, cap: None };

    fn localhost() -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 0))
    }

    fn client(server: SocketAddr) -> UdpSocket {
        let any = if server.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" };
        let socket = UdpSocket::bind(any).expect("a socket");
        socket.set_read_timeout(Some(Duration::from_secs(5))).expect("a timeout");
        socket.connect(server).expect("connected");
        socket
    }

    fn options(server: SocketAddr, number: u32) -> Vec<u8> {
        format!(
            "OPTIONS sip:{server} SIP/2.0\r\nVia: SIP/2.0/UDP host;rport;branch=z9hG4bK{number}\r\n\
             From: <sip:a@b>;tag=1\r\nTo: <sip:a@b>\r\nCall-ID: {number}\r\nCSeq: 1 OPTIONS\r\nContent-Length: 0\r\n\r\n"
        )
        .into_bytes()
    }

    fn receive(socket: &UdpSocket) -> String {
        let mut room = [0; 2048];
        let len = socket.recv(&mut room).expect("an answer");
        String::from_utf8_lossy(&room[..len]).into_owned()
    }

    #[test]
    fn datagrams_are_answered_in_batches_and_counted() {
        for address in [localhost(), "[::1]:0".parse().expect("an address")] {
            let Ok(serving) = start(address, PLAIN, None) else {
                assert!(address.is_ipv6(), "IPv4 must be there");
                continue;
            };
            let socket = client(serving.address());
            socket.send(b"").expect("sent");
            socket.send(&[b'x'; 60_000]).expect("sent");
            let mut answers = Vec::new();
            // No more at once than the answers of which fit into the client's own receive buffer.
            for burst in 0..8 {
                for number in 0..25 {
                    socket.send(&options(serving.address(), 25 * burst + number)).expect("sent");
                }
                answers.extend((0..25).map(|_| receive(&socket)));
            }
            answers.dedup();
            assert_eq!(answers.len(), 200);
            assert!(answers.iter().all(|answer| answer.starts_with("SIP/2.0 200 OK\r\n")));
            let counters = serving.stop().expect("no error");
            assert_eq!((counters.options, counters.answered, counters.garbage), (200, 200, 2));
            assert_eq!(counters.send_errors, 0);
        }
    }

    #[test]
    fn a_message_and_its_answer_cross_between_two_sockets() {
        let serving = start(localhost(), PLAIN, None).expect("started");
        let (caller, callee) = (client(serving.address()), client(serving.address()));
        let at = callee.local_addr().expect("an address");
        let text = |method: &str| {
            String::from_utf8(options(serving.address(), 7)).expect("ASCII").replace("OPTIONS", method)
        };
        let contact = format!("To: <sip:a@b>\r\nContact: <sip:a@{at}>");
        callee.send(text("REGISTER").replace("To: <sip:a@b>", &contact).as_bytes()).expect("sent");
        assert!(receive(&callee).contains(&format!("Contact: <sip:a@{at}>;expires=3600\r\n")));
        caller.send(text("MESSAGE").replacen("sip:", "sip:a@", 1).as_bytes()).expect("sent");
        let message = receive(&callee);
        assert!(message.starts_with(&format!("MESSAGE sip:a@{at} SIP/2.0\r\n")), "{message}");
        let answer = message.replacen(&format!("MESSAGE sip:a@{at} SIP/2.0"), "SIP/2.0 200 OK", 1);
        callee.send(answer.as_bytes()).expect("sent");
        let answer = receive(&caller);
        assert!(answer.starts_with("SIP/2.0 200 OK\r\n") && answer.matches("Via:").count() == 1, "{answer}");
        let counters = serving.stop().expect("no error");
        assert_eq!((counters.register, counters.message, counters.responses), (1, 1, 1));
    }

    #[test]
    fn it_stops_at_once_and_frees_its_port() {
        let serving = start(localhost(), PLAIN, None).expect("started");
        let address = serving.address();
        // This waits for the thread.
        drop(serving);
        UdpSocket::bind(address).expect("the port is free");
    }

    #[test]
    fn waiting_ends_with_the_flag_and_gives_the_counters() {
        let serving = start(localhost(), PLAIN, Some(0)).expect("started on the first CPU");
        let socket = client(serving.address());
        socket.send(&options(serving.address(), 1)).expect("sent");
        receive(&socket);
        let flag = serving.stop_flag();
        let waiting = std::thread::spawn(move || serving.wait());
        flag.store(true, Ordering::Relaxed);
        assert_eq!(waiting.join().expect("no panic").expect("no error").options, 1);
    }

    #[test]
    fn what_the_system_refuses_to_send_is_counted_and_the_rest_goes() {
        let serving = start(localhost(), PLAIN, None).expect("started");
        let socket = client(serving.address());
        let text = String::from_utf8(options(serving.address(), 1)).expect("ASCII");
        // An IPv6 address, and port 0, cannot be sent to from here.
        for uri in ["sip:[::1]:5060", "sip:127.0.0.1:0"] {
            let lost = text.replacen(&format!("sip:{}", serving.address()), uri, 1);
            socket.send(lost.as_bytes()).expect("sent");
        }
        socket.send(text.as_bytes()).expect("sent");
        assert!(receive(&socket).starts_with("SIP/2.0 200"));
        let counters = serving.stop().expect("no error");
        assert_eq!((counters.send_errors, counters.forwarded, counters.answered), (2, 2, 1));
    }

    #[test]
    fn what_cannot_be_had_is_an_error() {
        let taken = UdpSocket::bind(localhost()).expect("a socket");
        let address = taken.local_addr().expect("an address");
        assert_eq!(start(address, PLAIN, None).expect_err("taken").kind(), io::ErrorKind::AddrInUse);
        start(localhost(), PLAIN, Some(u16::MAX)).expect_err("there is no such CPU");
    }
}
