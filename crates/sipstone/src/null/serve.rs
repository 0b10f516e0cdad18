//! The null server on a socket and a thread.
//!
//! One thread reads datagrams in batches (`recvmmsg`), gives each to the pure [`NullServer`], and sends what it wants
//! sent in batches (`sendmmsg`).

use super::{Behaviour, Counters, NullServer};
use crate::load::{Outbox, Send};
use nix::errno::Errno;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::socket::{
    MsgFlags, MultiHeaders, SockaddrIn, SockaddrIn6, SockaddrLike, recvmmsg, sendmmsg, setsockopt, sockopt,
};
use nix::unistd::Pid;
use socket2::{Domain, Protocol, Socket, Type};
use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

/// Datagrams of one system call.
const BATCH: usize = 64;

/// Room for one datagram: any that UDP can carry. An odd number of cache lines, so that the beginnings of the batch's
/// datagrams do not all fall into the same cache set.
const DATAGRAM_BYTES: usize = 1025 * 64;

/// Asked for as the socket's buffers; the kernel may give less.
const SOCKET_BUFFER_BYTES: usize = 16 << 20;

/// How long the thread sleeps at most before it looks whether it is to stop. Stopping takes no longer than twice this.
const WAKE_EVERY: Duration = Duration::from_millis(40);

/// How often the counters are made visible while datagrams come without a pause.
const PUBLISH_EVERY_US: u64 = 50_000;

/// A null server that runs until it is dropped.
#[derive(Debug)]
pub struct Serving {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

#[derive(Debug, Default)]
struct Shared {
    stop: Arc<AtomicBool>,
    counters: Mutex<Counters>,
}

impl Shared {
    fn counters(&self) -> MutexGuard<'_, Counters> {
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
    let socket = open(address)?;
    let address =
        socket.local_addr()?.as_socket().ok_or_else(|| io::Error::other("the socket has no IP address"))?;
    let shared = Arc::new(Shared::default());
    let (tell, told) = mpsc::sync_channel(1);
    let server = NullServer::new(address, behaviour);
    let of_thread = Arc::clone(&shared);
    let thread = std::thread::Builder::new().name("null-server".into()).spawn(move || {
        let pinned = pin(cpu);
        let ready = pinned.is_ok();
        // The other side waits for this message.
        let _ = tell.send(pinned);
        match address {
            _ if !ready => Ok(()),
            SocketAddr::V4(_) => Server::<SockaddrIn>::new(socket, server, of_thread).run(),
            SocketAddr::V6(_) => Server::<SockaddrIn6>::new(socket, server, of_thread).run(),
        }
    })?;
    told.recv().map_err(|_| io::Error::other("the null server's thread ended at once"))??;
    Ok(Serving { address, shared, thread: Some(thread) })
}

fn open(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    // Above the system's limit if we may, else as much of it as there is.
    if setsockopt(&socket, sockopt::RcvBufForce, &SOCKET_BUFFER_BYTES).is_err() {
        socket.set_recv_buffer_size(SOCKET_BUFFER_BYTES)?;
    }
    socket.set_send_buffer_size(SOCKET_BUFFER_BYTES)?;
    socket.set_read_timeout(Some(WAKE_EVERY))?;
    socket.bind(&address.into())?;
    Ok(socket)
}

fn pin(cpu: Option<u16>) -> io::Result<()> {
    let Some(cpu) = cpu else { return Ok(()) };
    let mut set = CpuSet::new();
    set.set(usize::from(cpu))?;
    Ok(sched_setaffinity(Pid::from_raw(0), &set)?)
}

/// An address of one family, as the system calls take it: a quarter of the room of one for all families.
trait Address: SockaddrLike + Copy + Into<SocketAddr> {
    /// `None`: the address is of the other family.
    fn of(address: SocketAddr) -> Option<Self>;
}

impl Address for SockaddrIn {
    fn of(address: SocketAddr) -> Option<SockaddrIn> {
        if let SocketAddr::V4(address) = address { Some(address.into()) } else { None }
    }
}

impl Address for SockaddrIn6 {
    fn of(address: SocketAddr) -> Option<SockaddrIn6> {
        if let SocketAddr::V6(address) = address { Some(address.into()) } else { None }
    }
}

/// The thread's own.
struct Server<A> {
    socket: Socket,
    server: NullServer,
    shared: Arc<Shared>,
    out: Outbox,
    send_errors: u64,
    receive_headers: MultiHeaders<A>,
    send_headers: MultiHeaders<A>,
}

impl<A: Address> Server<A> {
    fn new(socket: Socket, server: NullServer, shared: Arc<Shared>) -> Server<A> {
        Server {
            socket,
            server,
            shared,
            out: Outbox::default(),
            send_errors: 0,
            receive_headers: MultiHeaders::preallocate(BATCH, None),
            send_headers: MultiHeaders::preallocate(BATCH, None),
        }
    }

    fn run(mut self) -> io::Result<()> {
        let clock = std::time::Instant::now();
        let mut room = vec![0; BATCH * DATAGRAM_BYTES];
        let mut published_us = 0;
        let ended = loop {
            if self.shared.stop.load(Ordering::Relaxed) {
                break Ok(());
            }
            let received = self.receive(&mut room, &clock);
            self.flush();
            let now_us = micros(&clock);
            match received {
                Ok(()) if now_us < published_us + PUBLISH_EVERY_US => {}
                // A refusal is about an address that we sent to before, not about this socket.
                Ok(()) | Err(Errno::EAGAIN | Errno::EINTR | Errno::ECONNREFUSED) => {
                    published_us = now_us;
                    self.publish();
                }
                Err(error) => break Err(error.into()),
            }
        };
        self.publish();
        ended
    }

    fn publish(&self) {
        *self.shared.counters() = Counters { send_errors: self.send_errors, ..self.server.counters() };
    }

    /// Waits for datagrams and takes as many as there are.
    fn receive(&mut self, room: &mut [u8], clock: &std::time::Instant) -> nix::Result<()> {
        let mut places = room.chunks_exact_mut(DATAGRAM_BYTES);
        let mut slices: [_; BATCH] =
            std::array::from_fn(|_| [IoSliceMut::new(places.next().unwrap_or_default())]);
        let fd = self.socket.as_raw_fd();
        let received =
            recvmmsg(fd, &mut self.receive_headers, slices.iter_mut(), MsgFlags::MSG_WAITFORONE, None)?;
        let now = sip::Instant::from_micros(micros(clock));
        for datagram in received {
            let Some(from) = datagram.address else { continue };
            let bytes = datagram.iovs().next().unwrap_or_default();
            self.server.handle(now, from.into(), bytes, &mut self.out);
        }
        Ok(())
    }

    /// Sends all that is to be sent, and passes over what the system refuses.
    fn flush(&mut self) {
        let sends = std::mem::take(&mut self.out.sends);
        let mut rest = sends.as_slice();
        while !rest.is_empty() {
            let (batch, _) = rest.split_at(rest.len().min(BATCH));
            let sent = match self.send(batch) {
                Ok(sent) if sent > 0 => sent,
                Err(Errno::EINTR) => 0,
                Ok(_) | Err(_) => {
                    self.send_errors += 1;
                    1
                }
            };
            rest = rest.get(sent..).unwrap_or_default();
        }
        self.out.sends = sends;
        self.out.clear();
    }

    /// Sends up to [`BATCH`] datagrams; how many of them went. An error is the first one's.
    fn send(&mut self, batch: &[Send]) -> nix::Result<usize> {
        let datagram = |place: usize| batch.get(place).map_or(&[][..], |send| self.out.datagram(send));
        let slices: [_; BATCH] = std::array::from_fn(|place| [IoSlice::new(datagram(place))]);
        let addresses: [_; BATCH] = std::array::from_fn(|place| A::of(batch.get(place)?.to));
        if addresses.first().is_none_or(Option::is_none) {
            return Err(Errno::EAFNOSUPPORT);
        }
        // Up to the first address of the other family, which comes first in the next call.
        let count = addresses.iter().take_while(|address| address.is_some()).count().min(batch.len());
        let (slices, addresses) =
            (slices.get(..count).unwrap_or_default(), addresses.get(..count).unwrap_or_default());
        let fd = self.socket.as_raw_fd();
        Ok(sendmmsg(fd, &mut self.send_headers, slices, addresses, [], MsgFlags::empty())?.count())
    }
}

fn micros(clock: &std::time::Instant) -> u64 {
    u64::try_from(clock.elapsed().as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

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
    fn it_stops_within_a_tenth_of_a_second_and_frees_its_port() {
        let serving = start(localhost(), PLAIN, None).expect("started");
        let address = serving.address();
        let begun = std::time::Instant::now();
        drop(serving);
        // On a loaded host the thread may get its turn late.
        assert!(begun.elapsed() < Duration::from_millis(1000), "{:?}", begun.elapsed());
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
