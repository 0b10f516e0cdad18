//! UDP sockets that move datagrams in batches (recvmmsg, sendmmsg), and what the system says about them.
//!
//! One [`Receiver`] and one [`Sender`] serve all sockets of a worker: they hold the buffers and headers, which are used
//! again for each call. A datagram is never lost in silence: a full send buffer is waited for, a send that the system
//! refuses ends the run with a sentence, and what the receive queues dropped is counted by [`udp_drops`].

use crate::load::Outbox;
use crate::sut::UDP_LOOKS_MAX;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, MultiHeaders, SockaddrIn, SockaddrIn6, SockaddrLike,
    getsockopt, recvmmsg, recvmsg, sendmmsg, sendmsg, setsockopt, sockopt,
};
use std::collections::{HashMap, HashSet};
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// Most datagrams of one system call.
pub const BATCH: usize = 64;

/// Room for one received datagram. Not a power of two: slots at a distance of 4096 bytes would all begin in the same
/// set of the first-level cache. A longer datagram (up to 64 kB is legal) is cut and counted as a stray.
pub const SLOT_BYTES: usize = 4096 + 3 * 64;

/// The receive buffer asked for. The system charges a SIP message with about 1.3 kB and doubles the size asked for, so
/// this is room for some 25,000 messages.
pub const RECEIVE_BUFFER_BYTES: usize = 16 << 20;

/// Most bytes of datagrams that go as segments of one: less than the 65,507 that a datagram may have.
const SEGMENTS_BYTES_MAX: usize = 65_000;

/// Longest wait for room in a send buffer; longer is an error.
pub const SEND_WAIT_MAX: Duration = Duration::from_secs(5);

/// Pause after ENOBUFS: the queue of the interface is full, and poll does not tell when it has room again.
const QUEUE_FULL_PAUSE: Duration = Duration::from_micros(200);

/// Most errors read from a socket's error queue at once; what is beyond is read the next time.
const ERRORS_MAX: usize = 1024;

/// Most sends in a row that report an earlier datagram's refusal instead of sending.
const REFUSALS_IN_A_ROW_MAX: u32 = 64;

/// Why sockets cannot be had or used. Each is a sentence that says what to do.
#[derive(Debug)]
pub enum NetError {
    /// A socket could not be opened or bound.
    Open {
        /// Where.
        address: SocketAddr,
        /// The system's answer.
        error: io::Error,
    },
    /// No route to the target.
    Route {
        /// The target.
        target: SocketAddr,
        /// The system's answer.
        error: io::Error,
    },
    /// A source address of the other family than the target.
    Family {
        /// The source.
        from: IpAddr,
        /// The target.
        to: SocketAddr,
    },
    /// The system refuses to send.
    Send {
        /// From which socket.
        from: SocketAddr,
        /// To where.
        to: SocketAddr,
        /// Length of the datagram.
        bytes: usize,
        /// The system's answer.
        error: Errno,
    },
    /// The send buffer stayed full.
    SendStuck {
        /// Of which socket.
        from: SocketAddr,
    },
    /// The system refuses to receive or to wait.
    Receive {
        /// On which socket, if it was one.
        on: Option<SocketAddr>,
        /// The system's answer.
        error: Errno,
    },
    /// The system does not show what its sockets dropped.
    Drops {
        /// Why.
        error: io::Error,
    },
    /// Nothing can listen for connections there.
    Listen {
        /// Where.
        address: SocketAddr,
        /// The system's answer.
        error: io::Error,
    },
    /// The system does not tell of connections.
    Epoll {
        /// Its answer.
        error: Errno,
    },
    /// TLS, or the number of connections, cannot be as the workload wants it; a sentence.
    Links(String),
    /// A thread could not be pinned to a CPU.
    Pin {
        /// Which.
        cpu: u16,
        /// The system's answer.
        error: Errno,
    },
    /// A thread could not be started.
    Thread {
        /// The system's answer.
        error: io::Error,
    },
}

impl std::fmt::Display for NetError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NetError::Open { address, error } => {
                let hint = address_hint(error);
                write!(f, "cannot open a UDP socket on {address}: {error}; {hint}")
            }
            NetError::Route { target, error } => {
                write!(f, "no way to the target {target}: {error}; check the address and this host's routes")
            }
            NetError::Family { from, to } => {
                write!(
                    f,
                    "the source {from} and the target {to} are not of the same family: use IPv4 or IPv6 for both"
                )
            }
            NetError::Send { from, to, bytes, error } => {
                let hint = match error {
                    Errno::EPERM => "a packet filter of this host forbids it",
                    Errno::ENETUNREACH | Errno::EHOSTUNREACH => "this host has no route to it",
                    Errno::EMSGSIZE => "the message is too long for a datagram: shorten user names or domain",
                    Errno::EINVAL => "the source address cannot reach it: choose another --source",
                    _ => "see whether this host may send there at all",
                };
                write!(f, "cannot send {bytes} bytes from {from} to {to}: {}; {hint}", error.desc())
            }
            NetError::SendStuck { from } => write!(
                f,
                "the send buffer of {from} was full for {} s: the interface does not send; check it, or lower the rate",
                SEND_WAIT_MAX.as_secs()
            ),
            NetError::Receive { on: Some(on), error } => {
                write!(f, "cannot receive on {on}: {}; the run cannot go on", error.desc())
            }
            NetError::Receive { on: None, error } => {
                write!(f, "cannot wait for datagrams: {}; the run cannot go on", error.desc())
            }
            NetError::Drops { error } => write!(
                f,
                "cannot tell whether the generator's own sockets lose datagrams: {error}; mount /proc where sipstone runs"
            ),
            NetError::Listen { address, error } => {
                let hint = address_hint(error);
                write!(f, "cannot listen for connections on {address}: {error}; {hint}")
            }
            NetError::Epoll { error } => {
                write!(f, "cannot wait for connections: {}; the run cannot go on", error.desc())
            }
            NetError::Links(sentence) => f.write_str(sentence),
            NetError::Pin { cpu, error } => {
                write!(
                    f,
                    "cannot pin a worker thread to CPU {cpu}: {}; choose others with --cpus",
                    error.desc()
                )
            }
            NetError::Thread { error } => {
                write!(
                    f,
                    "cannot start a worker thread: {error}; lower --threads or raise the limit of processes"
                )
            }
        }
    }
}

impl std::error::Error for NetError {}

/// What to do when an address cannot be had.
fn address_hint(error: &std::io::Error) -> &'static str {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EMFILE | Errno::ENFILE) => "raise the limit of open files (ulimit -n)",
        Some(Errno::EADDRNOTAVAIL) => "--source takes only addresses that this host has",
        Some(Errno::EADDRINUSE) => "another program uses it, or no ephemeral port is free there",
        _ => "check --source",
    }
}

/// One bound UDP socket that never blocks.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    local: SocketAddr,
    inode: u64,
    receive_buffer_bytes: usize,
}

impl Socket {
    /// A socket on `address`; port 0 takes an ephemeral one.
    ///
    /// Asks for [`RECEIVE_BUFFER_BYTES`] of receive buffer, by force where this process may, and for ICMP errors
    /// (IP_RECVERR), which an unconnected socket is not told of otherwise.
    ///
    /// # Errors
    /// [`NetError::Open`].
    pub fn bind(address: SocketAddr) -> Result<Socket, NetError> {
        Socket::bind_inner(address).map_err(|error| NetError::Open { address, error })
    }

    fn bind_inner(address: SocketAddr) -> io::Result<Socket> {
        use socket2::{Domain, Socket as Raw, Type};
        let raw = Raw::new(Domain::for_address(address), Type::DGRAM.nonblocking(), None)?;
        match address {
            SocketAddr::V4(_) => setsockopt(&raw, sockopt::Ipv4RecvErr, &true)?,
            SocketAddr::V6(_) => {
                raw.set_only_v6(true)?;
                setsockopt(&raw, sockopt::Ipv6RecvErr, &true)?;
            }
        }
        if setsockopt(&raw, sockopt::RcvBufForce, &RECEIVE_BUFFER_BYTES).is_err() {
            // Without the privilege the system gives what its limit (net.core.rmem_max) allows.
            setsockopt(&raw, sockopt::RcvBuf, &RECEIVE_BUFFER_BYTES)?;
        }
        // The system doubles what was asked for, to account for its own structures.
        let receive_buffer_bytes = getsockopt(&raw, sockopt::RcvBuf)? / 2;
        raw.bind(&address.into())?;
        let local = raw
            .local_addr()?
            .as_socket()
            .ok_or_else(|| io::Error::other("the system named no address of the bound socket"))?;
        let fd = OwnedFd::from(raw);
        let inode = nix::sys::stat::fstat(&fd)?.st_ino;
        Ok(Socket { fd, local, inode, receive_buffer_bytes })
    }

    /// Where it is bound.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// The receive buffer that the system gave, bytes; [`RECEIVE_BUFFER_BYTES`] was asked for.
    #[must_use]
    pub fn receive_buffer_bytes(&self) -> usize {
        self.receive_buffer_bytes
    }

    /// Its number in `/proc/net/udp`.
    #[must_use]
    pub fn inode(&self) -> u64 {
        self.inode
    }

    /// Empties the error queue; whether there was an ICMP answer in it that a datagram could not be delivered.
    ///
    /// The queue must be emptied: while it holds anything, poll reports an error at once, and it uses up the receive
    /// buffer.
    pub(crate) fn drain_errors(&self) -> bool {
        let mut refused = false;
        for _ in 0..ERRORS_MAX {
            let errno = match self.local {
                SocketAddr::V4(_) => queued_error::<SockaddrIn>(self.fd.as_fd()),
                SocketAddr::V6(_) => queued_error::<SockaddrIn6>(self.fd.as_fd()),
            };
            match errno {
                // A router wants shorter packets; the system fragments from now on, so the repeat gets through.
                Some(Some(Errno::EMSGSIZE)) => {}
                Some(_) => refused = true,
                None => break,
            }
        }
        refused
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Takes one entry off the error queue. `None`: it is empty; `Some(None)`: an entry that says nothing.
fn queued_error<S: SockaddrLike>(fd: BorrowedFd<'_>) -> Option<Option<Errno>> {
    let mut control = nix::cmsg_space!([u8; 256]);
    // The datagram that could not be delivered comes back; nobody needs it.
    let mut returned = [0u8; 64];
    let mut slices = [IoSliceMut::new(&mut returned)];
    let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
    let message = recvmsg::<S>(fd.as_raw_fd(), &mut slices, Some(&mut control), flags).ok()?;
    let Ok(parts) = message.cmsgs() else { return Some(None) };
    for part in parts {
        if let ControlMessageOwned::Ipv4RecvErr(error, _) | ControlMessageOwned::Ipv6RecvErr(error, _) = part
        {
            return Some(i32::try_from(error.ee_errno).ok().map(Errno::from_raw));
        }
    }
    Some(None)
}

/// What one call of [`Receiver::receive`] brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Datagrams handed on.
    pub datagrams: usize,
    /// Datagrams that were longer than [`SLOT_BYTES`] and were thrown away.
    pub cut: usize,
    /// ICMP said that a datagram of this socket could not be delivered.
    pub refused: bool,
    /// More may be waiting.
    pub more: bool,
}

/// Buffers and headers to receive with.
#[derive(Debug)]
pub struct Receiver {
    slots: Box<[u8]>,
    v4: MultiHeaders<SockaddrIn>,
    v6: MultiHeaders<SockaddrIn6>,
}

impl Default for Receiver {
    fn default() -> Receiver {
        Receiver {
            slots: vec![0; BATCH * SLOT_BYTES].into_boxed_slice(),
            v4: MultiHeaders::preallocate(BATCH, None),
            v6: MultiHeaders::preallocate(BATCH, None),
        }
    }
}

impl Receiver {
    /// Takes up to [`BATCH`] waiting datagrams and hands each to `each` with its source. Never waits.
    ///
    /// # Errors
    /// [`NetError::Receive`].
    pub fn receive(
        &mut self,
        socket: &Socket,
        mut each: impl FnMut(SocketAddr, &[u8]),
    ) -> Result<Batch, NetError> {
        let received = match socket.local {
            SocketAddr::V4(_) => receive_as(socket, &mut self.v4, &mut self.slots, &mut each),
            SocketAddr::V6(_) => receive_as(socket, &mut self.v6, &mut self.slots, &mut each),
        };
        match received {
            Ok(batch) => Ok(batch),
            Err(Errno::EAGAIN) => Ok(Batch::default()),
            Err(Errno::EINTR) => Ok(Batch { more: true, ..Batch::default() }),
            Err(error) if is_answer(error) => {
                Ok(Batch { refused: socket.drain_errors(), more: true, ..Batch::default() })
            }
            Err(error) => Err(NetError::Receive { on: Some(socket.local), error }),
        }
    }
}

/// [`Receiver::receive`] for one address family.
fn receive_as<S: SockaddrLike + Copy>(
    socket: &Socket,
    headers: &mut MultiHeaders<S>,
    slots: &mut [u8],
    each: &mut impl FnMut(SocketAddr, &[u8]),
) -> nix::Result<Batch>
where
    SocketAddr: From<S>,
{
    let mut rest = slots.chunks_exact_mut(SLOT_BYTES);
    let mut slices: [[IoSliceMut<'_>; 1]; BATCH] =
        std::array::from_fn(|_| [IoSliceMut::new(rest.next().unwrap_or_default())]);
    let mut batch = Batch::default();
    let messages = recvmmsg(socket.fd.as_raw_fd(), headers, slices.iter_mut(), MsgFlags::MSG_DONTWAIT, None)?;
    for message in messages {
        if message.flags.contains(MsgFlags::MSG_TRUNC) {
            batch.cut += 1;
            continue;
        }
        let Some(from) = message.address else { continue };
        batch.datagrams += 1;
        each(SocketAddr::from(from), message.iovs().next().unwrap_or_default());
    }
    batch.more = batch.datagrams + batch.cut == BATCH;
    Ok(batch)
}

/// Whether an error on a socket may be the answer to an earlier datagram (IP_RECVERR), not to the call itself.
fn is_answer(error: Errno) -> bool {
    matches!(
        error,
        Errno::ECONNREFUSED
            | Errno::EHOSTUNREACH
            | Errno::ENETUNREACH
            | Errno::EHOSTDOWN
            | Errno::ENOPROTOOPT
            | Errno::EPROTO
            | Errno::EACCES
            | Errno::EMSGSIZE
    )
}

/// Headers to send with.
#[derive(Debug)]
pub struct Sender {
    v4: MultiHeaders<SockaddrIn>,
    v6: MultiHeaders<SockaddrIn6>,
    /// The longest datagrams that go several as one (UDP_SEGMENT); 0: the system does not do that.
    segment_bytes_max: usize,
}

impl Default for Sender {
    fn default() -> Sender {
        let (v4, v6) = (MultiHeaders::preallocate(BATCH, None), MultiHeaders::preallocate(BATCH, None));
        Sender { v4, v6, segment_bytes_max: SEGMENTS_BYTES_MAX / 2 }
    }
}

impl Sender {
    /// Sends the first of these datagrams of the outbox, all of this socket, and waits for room when there is none.
    /// Returns how many went, at least one, and whether ICMP said meanwhile that an earlier one did not arrive.
    ///
    /// Neighbours of the same length and destination go as segments of one (UDP_SEGMENT) and arrive as the datagrams
    /// that they are. Over loopback this took one generator core from 26,000 to 50,000 calls a second.
    ///
    /// # Errors
    /// [`NetError::Send`], [`NetError::SendStuck`].
    pub fn send(
        &mut self,
        socket: &Socket,
        outbox: &Outbox,
        range: Range<usize>,
    ) -> Result<(usize, bool), NetError> {
        let mut next = range.start;
        let mut refused = false;
        let mut refusals = 0;
        let mut stuck_since = None;
        loop {
            let (unit, alike) = self.unit(&outbox.sends[next..range.end]);
            let result = match unit {
                0 => return Ok((next - range.start, refused)),
                _ if alike => send_segments(socket, outbox, next..next + unit),
                _ => self.send_once(socket, outbox, next..next + unit),
            };
            let error = match result {
                Ok(sent) if sent == unit => return Ok((next + sent - range.start, refused)),
                Ok(sent) if sent > 0 => {
                    next += sent;
                    (refusals, stuck_since) = (0, None);
                    continue;
                }
                Ok(_) => Errno::EAGAIN,
                Err(error) => error,
            };
            match error {
                Errno::EINTR => {}
                Errno::EAGAIN | Errno::ENOBUFS => {
                    wait_for_room(socket, error, *stuck_since.get_or_insert_with(Instant::now))?;
                }
                // Longer than the path's MTU; without segments it is fragmented.
                Errno::EINVAL | Errno::EMSGSIZE if alike => {
                    self.segment_bytes_max = outbox.sends[next].range.len().saturating_sub(1);
                }
                // The interface does not do it.
                Errno::EIO | Errno::EOPNOTSUPP | Errno::ENOPROTOOPT if alike => self.segment_bytes_max = 0,
                // An answer to an earlier datagram takes the place of this call; nothing was sent. ECONNREFUSED is
                // never anything else; other errors are, when the error queue does not have them.
                _ if is_answer(error)
                    && refusals < REFUSALS_IN_A_ROW_MAX
                    && (socket.drain_errors() || error == Errno::ECONNREFUSED) =>
                {
                    refused = true;
                    refusals += 1;
                }
                error => {
                    let send = &outbox.sends[next];
                    let (from, to, bytes) = (socket.local, send.to, send.range.len());
                    return Err(NetError::Send { from, to, bytes, error });
                }
            }
        }
    }

    /// How many of the first sends go in one system call, and whether they go as segments of one.
    fn unit(&self, sends: &[crate::load::Send]) -> (usize, bool) {
        let same = |a: &crate::load::Send, b: &crate::load::Send| {
            let length = a.range.len();
            length == b.range.len() && a.to == b.to && (1..=self.segment_bytes_max).contains(&length)
        };
        let Some(first) = sends.first() else { return (0, false) };
        let most = (SEGMENTS_BYTES_MAX / first.range.len().max(1)).clamp(1, BATCH);
        let alike = sends.iter().take(most).take_while(|send| same(first, send)).count();
        if alike > 1 {
            return (alike, true);
        }
        // Singles, up to where the next two are alike.
        let singles = sends.windows(2).take_while(|pair| !same(&pair[0], &pair[1])).take(BATCH).count();
        let unit = if singles + 1 == sends.len() { sends.len() } else { singles.max(1) };
        (unit.min(BATCH), false)
    }

    /// One system call; how many it sent. Not more than [`BATCH`] in `range`.
    fn send_once(&mut self, socket: &Socket, outbox: &Outbox, range: Range<usize>) -> nix::Result<usize> {
        let sends = &outbox.sends[range];
        match socket.local {
            SocketAddr::V4(_) => send_as(socket, &mut self.v4, outbox, sends, |to| match to {
                SocketAddr::V4(to) => Some(SockaddrIn::from(to)),
                SocketAddr::V6(_) => None,
            }),
            SocketAddr::V6(_) => send_as(socket, &mut self.v6, outbox, sends, |to| match to {
                SocketAddr::V6(to) => Some(SockaddrIn6::from(to)),
                SocketAddr::V4(_) => None,
            }),
        }
    }
}

/// Sends datagrams of one length and destination as segments of one; all or none.
fn send_segments(socket: &Socket, outbox: &Outbox, range: Range<usize>) -> nix::Result<usize> {
    let sends = &outbox.sends[range];
    let (Some(first), count) = (sends.first(), sends.len().min(BATCH)) else { return Ok(0) };
    let mut slices = [IoSlice::new(&[]); BATCH];
    for (send, slice) in sends.iter().zip(&mut slices) {
        *slice = IoSlice::new(outbox.datagram(send));
    }
    let size = u16::try_from(first.range.len()).map_err(|_| Errno::EMSGSIZE)?;
    let control = [ControlMessage::UdpGsoSegments(&size)];
    let fd = socket.fd.as_raw_fd();
    match first.to {
        SocketAddr::V4(to) => {
            sendmsg(fd, &slices[..count], &control, MsgFlags::MSG_DONTWAIT, Some(&SockaddrIn::from(to)))?
        }
        SocketAddr::V6(to) => {
            sendmsg(fd, &slices[..count], &control, MsgFlags::MSG_DONTWAIT, Some(&SockaddrIn6::from(to)))?
        }
    };
    Ok(count)
}

/// [`Sender::send_once`] for one address family. A destination of the other family has no address here, and the system
/// refuses it (EDESTADDRREQ).
fn send_as<S: SockaddrLike + Copy>(
    socket: &Socket,
    headers: &mut MultiHeaders<S>,
    outbox: &Outbox,
    sends: &[crate::load::Send],
    address: impl Fn(SocketAddr) -> Option<S>,
) -> nix::Result<usize> {
    let mut addresses = [None; BATCH];
    let mut slices = [[IoSlice::new(&[])]; BATCH];
    for ((send, to), slice) in sends.iter().zip(&mut addresses).zip(&mut slices) {
        *to = address(send.to);
        *slice = [IoSlice::new(outbox.datagram(send))];
    }
    let count = sends.len().min(BATCH);
    let flags = MsgFlags::MSG_DONTWAIT;
    let sent =
        sendmmsg(socket.fd.as_raw_fd(), headers, slices[..count].iter(), &addresses[..count], [], flags)?;
    Ok(sent.count())
}

/// Waits until the socket may have room again; an error when that took [`SEND_WAIT_MAX`] altogether.
fn wait_for_room(socket: &Socket, why: Errno, since: Instant) -> Result<(), NetError> {
    let left = SEND_WAIT_MAX.saturating_sub(since.elapsed());
    if left.is_zero() {
        return Err(NetError::SendStuck { from: socket.local });
    }
    if why == Errno::ENOBUFS {
        std::thread::sleep(QUEUE_FULL_PAUSE);
        return Ok(());
    }
    let mut polled = [PollFd::new(socket.as_fd(), PollFlags::POLLOUT)];
    let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
    match poll(&mut polled, timeout) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(error) => Err(NetError::Receive { on: Some(socket.local), error }),
    }
}

/// The local address that the route to `target` has.
///
/// # Errors
/// [`NetError::Route`].
pub fn source_towards(target: SocketAddr) -> Result<IpAddr, NetError> {
    let unspecified = match target {
        SocketAddr::V4(_) => SocketAddr::from(([0, 0, 0, 0], 0)),
        SocketAddr::V6(_) => SocketAddr::from(([0u16; 8], 0)),
    };
    let find = || {
        let socket = UdpSocket::bind(unspecified)?;
        socket.connect(target)?;
        Ok(socket.local_addr()?.ip())
    };
    find().map_err(|error| NetError::Route { target, error })
}

/// Datagrams that the receive queues of these sockets (by inode) have dropped since they were opened.
///
/// # Errors
/// [`NetError::Drops`]: the system's tables cannot be read, or do not list one of the sockets.
pub fn udp_drops(inodes: &HashSet<u64>) -> Result<u64, NetError> {
    let mut drops = HashMap::with_capacity(inodes.len());
    for _ in 0..UDP_LOOKS_MAX {
        for path in ["/proc/net/udp", "/proc/net/udp6"] {
            match std::fs::read_to_string(path) {
                Ok(table) => drops.extend(table_drops(&table, inodes)),
                // Without IPv6 in the system there is no second table.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(NetError::Drops { error }),
            }
        }
        if drops.len() == inodes.len() {
            return Ok(drops.values().sum());
        }
    }
    let error = io::Error::other(format!("/proc/net/udp lists {} of {} sockets", drops.len(), inodes.len()));
    Err(NetError::Drops { error })
}

/// Those of the sockets that a table of `/proc/net/udp` lists, with their drops.
fn table_drops<'a>(table: &'a str, inodes: &'a HashSet<u64>) -> impl Iterator<Item = (u64, u64)> + 'a {
    // sl local remote st tx:rx tr:when retrnsmt uid timeout inode ref pointer drops
    let row = |line: &str| -> Option<(u64, u64)> {
        let mut words = line.split_ascii_whitespace();
        let inode = words.nth(9)?.parse().ok()?;
        let drops = words.nth(2)?.parse().ok()?;
        Some((inode, drops))
    };
    table.lines().skip(1).filter_map(row).filter(|(inode, _)| inodes.contains(inode))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{ConnectionId, Send, SocketId};

    fn loopback() -> Socket {
        Socket::bind("127.0.0.1:0".parse().unwrap()).unwrap()
    }

    fn outbox(to: SocketAddr, datagrams: &[Vec<u8>]) -> Outbox {
        let mut out = Outbox::default();
        for bytes in datagrams {
            let start = out.bytes.len();
            out.bytes.extend_from_slice(bytes);
            let (socket, connection) = (SocketId(0), ConnectionId::NONE);
            out.sends.push(Send { socket, connection, to, range: start..out.bytes.len(), planned: None });
        }
        out
    }

    fn send_all(sender: &mut Sender, socket: &Socket, out: &Outbox) -> bool {
        let mut next = 0;
        let mut any = false;
        while next < out.sends.len() {
            let (sent, refused) = sender.send(socket, out, next..out.sends.len()).unwrap();
            next += sent;
            any |= refused;
        }
        any
    }

    fn receive_all(receiver: &mut Receiver, socket: &Socket) -> (Vec<(SocketAddr, Vec<u8>)>, Batch) {
        let mut got = Vec::new();
        let mut sum = Batch::default();
        loop {
            let batch = receiver.receive(socket, |from, bytes| got.push((from, bytes.to_vec()))).unwrap();
            sum.datagrams += batch.datagrams;
            sum.cut += batch.cut;
            sum.refused |= batch.refused;
            if !batch.more {
                return (got, sum);
            }
        }
    }

    #[test]
    fn batches_arrive_whole_and_in_order() {
        let (a, b) = (loopback(), loopback());
        let datagrams: Vec<Vec<u8>> = (0..200u32).map(|n| format!("datagram {n}").into_bytes()).collect();
        send_all(&mut Sender::default(), &a, &outbox(b.local(), &datagrams));
        let (got, batch) = receive_all(&mut Receiver::default(), &b);
        assert_eq!(batch.datagrams, 200);
        assert!(got.iter().all(|(from, _)| *from == a.local()));
        assert_eq!(got.into_iter().map(|(_, bytes)| bytes).collect::<Vec<_>>(), datagrams);
    }

    #[test]
    fn neighbours_alike_go_as_segments_and_arrive_as_datagrams() {
        let (a, b) = (loopback(), loopback());
        let lengths = [700, 700, 700, 10, 20, 20, 0, 0, 30, 60_000, 60_000, 5, 5];
        let datagrams: Vec<Vec<u8>> = (1u8..).zip(lengths).map(|(n, length)| vec![n; length]).collect();
        let out = outbox(b.local(), &datagrams);
        let units = |sender: &Sender| {
            let (mut units, mut next) = (Vec::new(), 0);
            while next < out.sends.len() {
                units.push(sender.unit(&out.sends[next..]));
                next += units.last().unwrap().0;
            }
            units
        };
        let mut sender = Sender::default();
        assert_eq!(units(&sender), [(3, true), (1, false), (2, true), (5, false), (2, true)]);
        for segment_bytes_max in [SEGMENTS_BYTES_MAX / 2, 0] {
            sender.segment_bytes_max = segment_bytes_max;
            send_all(&mut sender, &a, &out);
            let (got, batch) = receive_all(&mut Receiver::default(), &b);
            let whole =
                datagrams.iter().filter(|bytes| bytes.len() <= SLOT_BYTES).cloned().collect::<Vec<_>>();
            assert_eq!(got.into_iter().map(|(_, bytes)| bytes).collect::<Vec<_>>(), whole);
            assert_eq!(batch.cut, 2);
        }
        assert_eq!(units(&sender), [(13, false)]);
    }

    #[test]
    fn ipv6_and_empty_datagrams_work() {
        let Ok(a) = Socket::bind("[::1]:0".parse().unwrap()) else { return };
        let b = Socket::bind("[::1]:0".parse().unwrap()).unwrap();
        send_all(&mut Sender::default(), &a, &outbox(b.local(), &[vec![], b"x".to_vec()]));
        let (got, _) = receive_all(&mut Receiver::default(), &b);
        assert_eq!(got, [(a.local(), vec![]), (a.local(), b"x".to_vec())]);
    }

    #[test]
    fn a_datagram_longer_than_a_slot_is_cut_and_counted() {
        let (a, b) = (loopback(), loopback());
        let datagrams = [vec![1; SLOT_BYTES], vec![2; SLOT_BYTES + 1], vec![3; 65_507], vec![4; 3]];
        send_all(&mut Sender::default(), &a, &outbox(b.local(), &datagrams));
        let (got, batch) = receive_all(&mut Receiver::default(), &b);
        assert_eq!(batch.cut, 2);
        assert_eq!(got.iter().map(|(_, bytes)| bytes.len()).collect::<Vec<_>>(), [SLOT_BYTES, 3]);
    }

    #[test]
    fn nothing_is_waited_for() {
        let socket = loopback();
        assert_eq!(receive_all(&mut Receiver::default(), &socket).1, Batch::default());
    }

    #[test]
    fn icmp_port_unreachable_is_seen_and_nothing_else_is_lost() {
        let (a, b) = (loopback(), loopback());
        let nobody = loopback().local();
        let mut sender = Sender::default();
        send_all(&mut sender, &a, &outbox(nobody, &[b"lost".to_vec()]));
        // The answer comes with the next call of either kind.
        let refused = send_all(&mut sender, &a, &outbox(b.local(), &[b"1".to_vec(), b"2".to_vec()]));
        assert!(refused);
        assert_eq!(receive_all(&mut Receiver::default(), &b).0.len(), 2);

        send_all(&mut sender, &a, &outbox(nobody, &[b"lost".to_vec()]));
        assert!(receive_all(&mut Receiver::default(), &a).1.refused);
        // The error queue is empty again: poll does not report it.
        let mut polled = [PollFd::new(a.as_fd(), PollFlags::POLLIN)];
        assert_eq!(poll(&mut polled, PollTimeout::ZERO).unwrap(), 0);
    }

    #[test]
    fn a_whole_batch_to_a_closed_port_is_sent_and_refused() {
        let a = loopback();
        let nobody = loopback().local();
        let datagrams = vec![b"lost".to_vec(); 150];
        assert!(send_all(&mut Sender::default(), &a, &outbox(nobody, &datagrams)));
    }

    #[test]
    fn a_send_that_the_system_refuses_says_what_to_do() {
        let a = loopback();
        let error =
            Sender::default().send(&a, &outbox("[::1]:5060".parse().unwrap(), &[vec![1]]), 0..1).unwrap_err();
        assert!(matches!(error, NetError::Send { .. }), "{error}");
        let too_long = outbox(a.local(), &[vec![0; 65_508]]);
        let error = Sender::default().send(&a, &too_long, 0..1).unwrap_err();
        assert!(error.to_string().contains("too long for a datagram"), "{error}");
    }

    #[test]
    fn an_address_of_another_host_cannot_be_bound() {
        let error = Socket::bind("203.0.113.1:0".parse().unwrap()).unwrap_err();
        assert!(error.to_string().contains("--source takes only addresses that this host has"), "{error}");
    }

    #[test]
    fn the_route_names_the_source() {
        assert_eq!(source_towards("127.0.0.1:5060".parse().unwrap()).unwrap(), IpAddr::from([127, 0, 0, 1]));
    }

    #[test]
    fn drops_are_read_by_inode() {
        let table = "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n\
            12503: 0100007F:13CE 00000000:0000 07 00000000:00002300 00:00000000 00000000     0        0 23505 2 00000000c189fbfd 28883\n\
            13514: 0100007F:17C1 00000000:0000 07 00000000:00012200 00:00000000 00000000     0        0 24091 2 00000000966a9a89 5\n\
            garbage\n";
        let of = |inodes: [u64; 2]| table_drops(table, &HashSet::from(inodes)).collect::<Vec<_>>();
        assert_eq!(of([23505, 24091]), [(23505, 28883), (24091, 5)]);
        assert_eq!(of([24091, 7]), [(24091, 5)]);
    }

    #[test]
    fn a_full_receive_queue_counts_its_drops() {
        let (a, b) = (loopback(), loopback());
        setsockopt(&b, sockopt::RcvBuf, &4096).unwrap();
        let inodes = HashSet::from([b.inode()]);
        assert_eq!(udp_drops(&inodes).unwrap(), 0);
        send_all(&mut Sender::default(), &a, &outbox(b.local(), &vec![vec![0; 1000]; 100]));
        let (got, _) = receive_all(&mut Receiver::default(), &b);
        assert_eq!(udp_drops(&inodes).unwrap() + u64::try_from(got.len()).unwrap(), 100);
        assert!(got.len() < 100);
        drop(b);
        assert!(udp_drops(&inodes).unwrap_err().to_string().contains("lists 0 of 1 sockets"));
    }

    #[test]
    fn a_socket_is_listed_while_others_come_and_go() {
        let own = [loopback(), loopback()];
        let inodes = own.iter().map(Socket::inode).collect();
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let others = std::thread::spawn(move || {
            while stopped.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                drop((0..200).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect::<Vec<_>>());
            }
        });
        for _ in 0..500 {
            assert_eq!(udp_drops(&inodes).unwrap(), 0);
        }
        drop(stop);
        others.join().unwrap();
    }
}
