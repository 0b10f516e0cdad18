//! The system calls that the standard library does not have: `recvmmsg`, `sendmmsg`, the socket error queue,
//! the receive-drop counter. All `unsafe` of the project is in this file.

use std::io;
use std::mem::{self, MaybeUninit};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::RawFd;
use std::ptr;
use std::time::Duration;

/// Datagrams received or sent by one system call.
///
/// Measured on loopback: past 16 the gain is lost in the noise, and 64 costs cache for nothing.
pub(crate) const BATCH: usize = 32;

/// The longest UDP payload (RFC 768: a 16-bit length).
pub(crate) const DATAGRAM_MAX: usize = 65_535;

/// Distance of two receive buffers: a datagram, and some lines more, so that their starts do not fall into one
/// set of the cache.
const STRIDE: usize = 65_536 + 19 * 64;

/// Room for one `in_pktinfo` or `in6_pktinfo` with its header, aligned as control messages must be.
type Control = [u64; 8];

/// Buffers for one `recvmmsg`, laid out once and used again for every call.
pub(crate) struct ReceiveBatch {
    buffers: Box<[u8]>,
    names: Box<[libc::sockaddr_storage; BATCH]>,
    vectors: Box<[libc::iovec; BATCH]>,
    headers: Box<[libc::mmsghdr; BATCH]>,
    controls: Box<[Control; BATCH]>,
    received: usize,
}

// SAFETY: the raw pointers inside point only into the boxes owned by the same value, which move with it.
unsafe impl Send for ReceiveBatch {}

impl ReceiveBatch {
    pub(crate) fn new() -> ReceiveBatch {
        let mut buffers = vec![0_u8; STRIDE * BATCH].into_boxed_slice();
        // SAFETY: all-zero is a valid value of these plain C structures.
        let mut names: Box<[libc::sockaddr_storage; BATCH]> = Box::new(unsafe { mem::zeroed() });
        // SAFETY: as above.
        let mut vectors: Box<[libc::iovec; BATCH]> = Box::new(unsafe { mem::zeroed() });
        // SAFETY: as above.
        let mut headers: Box<[libc::mmsghdr; BATCH]> = Box::new(unsafe { mem::zeroed() });
        let mut controls: Box<[Control; BATCH]> = Box::new([[0; 8]; BATCH]);
        for (i, buffer) in buffers.chunks_exact_mut(STRIDE).enumerate() {
            vectors[i] = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: DATAGRAM_MAX };
            headers[i].msg_hdr.msg_name = ptr::from_mut(&mut names[i]).cast();
            headers[i].msg_hdr.msg_iov = ptr::from_mut(&mut vectors[i]);
            headers[i].msg_hdr.msg_iovlen = 1;
            headers[i].msg_hdr.msg_control = ptr::from_mut(&mut controls[i]).cast();
        }
        ReceiveBatch { buffers, names, vectors, headers, controls, received: 0 }
    }

    /// Receives what is there, without waiting; returns how many datagrams.
    ///
    /// Fewer than [`BATCH`] means that the socket's queue was empty at some moment during the call.
    pub(crate) fn receive(&mut self, socket: RawFd) -> io::Result<usize> {
        for header in &mut self.headers[..] {
            header.msg_hdr.msg_namelen = mem::size_of::<libc::sockaddr_storage>() as libc::socklen_t;
            header.msg_hdr.msg_controllen = mem::size_of::<Control>();
        }
        self.received = 0;
        // SAFETY: `headers` holds BATCH headers whose names, vectors and controls point into boxes that live as long as
        // `self` and are borrowed mutably for the call; each comes with its true length.
        let n = unsafe {
            libc::recvmmsg(
                socket,
                self.headers.as_mut_ptr(),
                BATCH as libc::c_uint,
                libc::MSG_DONTWAIT,
                ptr::null_mut(),
            )
        };
        if n < 0 {
            return Err(io::Error::last_os_error());
        }
        self.received = usize::try_from(n).unwrap_or(0).min(BATCH);
        debug_assert!(
            self.vectors.iter().all(|v| v.iov_len == DATAGRAM_MAX),
            "recvmmsg does not write vectors"
        );
        debug_assert!(!self.controls.is_empty());
        Ok(self.received)
    }

    /// The datagrams of the last [`receive`](Self::receive): where each came from, which of our addresses it was sent to
    /// if the socket was told to find out, and its bytes.
    pub(crate) fn datagrams(&self) -> impl Iterator<Item = (SocketAddr, Option<IpAddr>, &[u8])> {
        self.headers[..self.received]
            .iter()
            .zip(&self.names[..])
            .zip(self.buffers.chunks_exact(STRIDE))
            .filter_map(|((header, name), buffer)| {
                let length = (header.msg_len as usize).min(DATAGRAM_MAX);
                Some((address_from(name)?, asked_address(&header.msg_hdr), &buffer[..length]))
            })
    }
}

/// The destination address in the control messages of a received datagram (`IP_PKTINFO`, `IPV6_PKTINFO`).
fn asked_address(header: &libc::msghdr) -> Option<IpAddr> {
    if header.msg_controllen == 0 {
        return None;
    }
    // SAFETY: the kernel filled in `header`, whose control buffer its owner still holds.
    let message = unsafe { libc::CMSG_FIRSTHDR(header) };
    if message.is_null() {
        return None;
    }
    // SAFETY: a non-null CMSG_FIRSTHDR is a whole control header within the buffer.
    match unsafe { ((*message).cmsg_level, (*message).cmsg_type) } {
        (libc::SOL_IP, libc::IP_PKTINFO) => {
            // SAFETY: the kernel puts an in_pktinfo behind a header of this level and type.
            let info = unsafe { ptr::read_unaligned(libc::CMSG_DATA(message).cast::<libc::in_pktinfo>()) };
            Some(IpAddr::V4(Ipv4Addr::from(u32::from_be(info.ipi_addr.s_addr))))
        }
        (libc::SOL_IPV6, libc::IPV6_PKTINFO) => {
            // SAFETY: the kernel puts an in6_pktinfo behind a header of this level and type.
            let info = unsafe { ptr::read_unaligned(libc::CMSG_DATA(message).cast::<libc::in6_pktinfo>()) };
            Some(IpAddr::V6(Ipv6Addr::from(info.ipi6_addr.s6_addr)))
        }
        _ => None,
    }
}

/// One datagram to be sent.
#[derive(Clone, Copy)]
pub(crate) struct Outgoing<'a> {
    pub(crate) to: SocketAddr,
    /// Our address that it leaves by, where the socket is bound to all of them.
    pub(crate) from: Option<IpAddr>,
    pub(crate) bytes: &'a [u8],
}

/// Addresses and headers for one `sendmmsg`, used again for every call.
pub(crate) struct SendBatch {
    names: Vec<(libc::sockaddr_storage, libc::socklen_t)>,
    vectors: Vec<libc::iovec>,
    headers: Vec<libc::mmsghdr>,
    controls: Box<[Control; BATCH]>,
}

// SAFETY: the raw pointers are written anew before each call and used only within it.
unsafe impl Send for SendBatch {}

impl SendBatch {
    pub(crate) fn new() -> SendBatch {
        SendBatch {
            names: Vec::with_capacity(BATCH),
            vectors: Vec::with_capacity(BATCH),
            headers: Vec::with_capacity(BATCH),
            controls: Box::new([[0; 8]; BATCH]),
        }
    }

    /// Sends up to [`BATCH`] datagrams without waiting; returns how many the kernel took.
    ///
    /// # Errors
    ///
    /// The error of the first datagram, when not even that one was taken.
    pub(crate) fn send(&mut self, socket: RawFd, datagrams: &[Outgoing<'_>]) -> io::Result<usize> {
        self.names.clear();
        self.vectors.clear();
        self.headers.clear();
        let datagrams = &datagrams[..datagrams.len().min(BATCH)];
        for Outgoing { to, bytes, .. } in datagrams {
            self.names.push(address_into(to));
            self.vectors
                .push(libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() });
        }
        let froms = datagrams.iter().map(|datagram| datagram.from).zip(&mut self.controls[..]);
        for ((name, vector), (from, control)) in self.names.iter_mut().zip(&mut self.vectors).zip(froms) {
            // SAFETY: all-zero is a valid mmsghdr.
            let mut header: libc::mmsghdr = unsafe { mem::zeroed() };
            header.msg_hdr.msg_name = ptr::from_mut(&mut name.0).cast();
            header.msg_hdr.msg_namelen = name.1;
            header.msg_hdr.msg_iov = ptr::from_mut(vector);
            header.msg_hdr.msg_iovlen = 1;
            if let Some(from) = from {
                leave_by(from, control, &mut header.msg_hdr);
            }
            self.headers.push(header);
        }
        // SAFETY: every header points to a name, a vector and a control of `self`, which neither move nor grow until the
        // call returns; the vectors point to `datagrams`, borrowed for the call, which the kernel only reads.
        let n = unsafe {
            libc::sendmmsg(
                socket,
                self.headers.as_mut_ptr(),
                self.headers.len() as libc::c_uint,
                libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
            )
        };
        if n < 0 { Err(io::Error::last_os_error()) } else { Ok(usize::try_from(n).unwrap_or(0)) }
    }
}

/// Has a datagram leave by one of our addresses (`IP_PKTINFO`, `IPV6_PKTINFO`).
fn leave_by(from: IpAddr, control: &mut Control, header: &mut libc::msghdr) {
    header.msg_control = control.as_mut_ptr().cast();
    match from {
        IpAddr::V4(from) => {
            // SAFETY: all-zero is a valid in_pktinfo.
            let mut info: libc::in_pktinfo = unsafe { mem::zeroed() };
            info.ipi_spec_dst.s_addr = u32::from(from).to_be();
            // SAFETY: `control` is aligned and longer than CMSG_SPACE of this type.
            unsafe { put_control(header, libc::SOL_IP, libc::IP_PKTINFO, info) };
        }
        IpAddr::V6(from) => {
            let info =
                libc::in6_pktinfo { ipi6_addr: libc::in6_addr { s6_addr: from.octets() }, ipi6_ifindex: 0 };
            // SAFETY: as above.
            unsafe { put_control(header, libc::SOL_IPV6, libc::IPV6_PKTINFO, info) };
        }
    }
}

/// # Safety
///
/// `header.msg_control` points to writable memory, aligned for a control header, of at least `CMSG_SPACE` of `T`.
unsafe fn put_control<T>(header: &mut libc::msghdr, level: i32, kind: i32, value: T) {
    let size = mem::size_of::<T>() as libc::c_uint;
    // SAFETY: CMSG_SPACE only computes.
    header.msg_controllen = unsafe { libc::CMSG_SPACE(size) } as usize;
    // SAFETY: by the caller's promise there is room for the header and the value.
    unsafe {
        let message = libc::CMSG_FIRSTHDR(header);
        (*message).cmsg_level = level;
        (*message).cmsg_type = kind;
        (*message).cmsg_len = libc::CMSG_LEN(size) as usize;
        libc::CMSG_DATA(message).cast::<T>().write_unaligned(value);
    }
}

/// The peers for which ICMP errors are queued on `socket` (`IP_RECVERR`), at most `max` of them.
///
/// Only what RFC 3261 §18.4 calls a failure is reported: host, network, port or protocol unreachable, parameter
/// problem. Source quench and time exceeded are read and ignored, and so is that a datagram was too long for its path: the
/// kernel has learned by it how long one may be, and sends the retransmission in fragments.
pub(crate) fn drain_errors(socket: RawFd, max: usize, mut report: impl FnMut(SocketAddr)) {
    for _ in 0..max {
        // SAFETY: all-zero is a valid value of these plain C structures.
        let (mut name, mut header): (libc::sockaddr_storage, libc::msghdr) = unsafe { mem::zeroed() };
        let mut control = [0_u64; 64];
        let mut byte = [0_u8; 1];
        let mut vector = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: byte.len() };
        header.msg_name = ptr::from_mut(&mut name).cast();
        header.msg_namelen = mem::size_of_val(&name) as libc::socklen_t;
        header.msg_iov = &raw mut vector;
        header.msg_iovlen = 1;
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = mem::size_of_val(&control);
        // SAFETY: every pointer in `header` is to a local that outlives the call, with its true size.
        if unsafe { libc::recvmsg(socket, &raw mut header, libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT) } < 0 {
            return;
        }
        if is_unreachable(&header)
            && let Some(peer) = address_from(&name)
        {
            report(peer);
        }
    }
}

/// Whether the extended error in `header` says that the peer can't be reached.
fn is_unreachable(header: &libc::msghdr) -> bool {
    // SAFETY: `header` was filled in by the kernel and its control buffer is still alive at the caller.
    let mut message = unsafe { libc::CMSG_FIRSTHDR(header) };
    while !message.is_null() {
        // SAFETY: CMSG_FIRSTHDR and CMSG_NXTHDR return null or a whole control header within the buffer.
        let (level, kind) = unsafe { ((*message).cmsg_level, (*message).cmsg_type) };
        if (level, kind) == (libc::SOL_IP, libc::IP_RECVERR)
            || (level, kind) == (libc::SOL_IPV6, libc::IPV6_RECVERR)
        {
            // SAFETY: the kernel puts a sock_extended_err behind a header of this level and type.
            let error: libc::sock_extended_err =
                unsafe { ptr::read_unaligned(libc::CMSG_DATA(message).cast::<libc::sock_extended_err>()) };
            return is_failure(error.ee_origin, error.ee_type, error.ee_code);
        }
        // SAFETY: as above; `header` and its control buffer are unchanged.
        message = unsafe { libc::CMSG_NXTHDR(header, message) };
    }
    false
}

/// Whether an error of this origin, type and code says that the peer can't be reached (RFC 3261 §18.4).
fn is_failure(origin: u8, kind: u8, code: u8) -> bool {
    const ICMP_DEST_UNREACH: u8 = 3;
    const ICMP_FRAG_NEEDED: u8 = 4;
    const ICMP_PARAMETERPROB: u8 = 12;
    const ICMP6_DEST_UNREACH: u8 = 1;
    const ICMP6_PARAMPROB: u8 = 4;
    match (origin, kind) {
        (libc::SO_EE_ORIGIN_LOCAL, _) => true,
        (libc::SO_EE_ORIGIN_ICMP, ICMP_DEST_UNREACH) => code != ICMP_FRAG_NEEDED,
        (libc::SO_EE_ORIGIN_ICMP, ICMP_PARAMETERPROB) => true,
        (libc::SO_EE_ORIGIN_ICMP6, ICMP6_DEST_UNREACH | ICMP6_PARAMPROB) => true,
        _ => false,
    }
}

/// Sets an integer socket option.
pub(crate) fn set_option(socket: RawFd, level: i32, name: i32, value: i32) -> io::Result<()> {
    // SAFETY: `value` lives through the call and its size is given.
    let result = unsafe {
        libc::setsockopt(
            socket,
            level,
            name,
            ptr::from_ref(&value).cast(),
            mem::size_of::<i32>() as libc::socklen_t,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Datagrams that the kernel dropped because the receive buffer of `socket` was full (`SO_MEMINFO`).
pub(crate) fn receive_drops(socket: RawFd) -> Option<u64> {
    /// Place of the drop counter in the kernel's array (`SK_MEMINFO_DROPS`).
    const DROPS: usize = 8;
    let mut values = [0_u32; 16];
    let mut size = mem::size_of_val(&values) as libc::socklen_t;
    // SAFETY: `values` has the size that `size` says; the kernel writes no more than that.
    let result = unsafe {
        libc::getsockopt(
            socket,
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            values.as_mut_ptr().cast(),
            &raw mut size,
        )
    };
    let filled = size as usize / mem::size_of::<u32>();
    (result == 0 && filled > DROPS).then(|| u64::from(values[DROPS]))
}

/// Sleeps, to within microseconds: the thread's timer slack is set to 1 ns on first use by the caller.
pub(crate) fn sleep(time: Duration) {
    let time = libc::timespec {
        tv_sec: libc::time_t::try_from(time.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::from(time.subsec_nanos() as i32),
    };
    // SAFETY: `time` is a valid timespec; the remaining time is not asked for.
    unsafe { libc::clock_nanosleep(libc::CLOCK_MONOTONIC, 0, &raw const time, ptr::null_mut()) };
}

/// Has the kernel back this process's memory with small pages only, from now on.
pub(crate) fn set_small_pages() -> io::Result<()> {
    // SAFETY: PR_SET_THP_DISABLE takes integers and touches no memory of ours.
    let result = unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1_usize, 0_usize, 0_usize, 0_usize) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Asks for precise short sleeps on this thread (the default slack is 50 µs).
pub(crate) fn set_precise_sleep() {
    // SAFETY: PR_SET_TIMERSLACK takes one integer and touches no memory.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_usize) };
}

/// Lowers the priority of the calling thread: 0 is the usual one, 19 the lowest.
pub(crate) fn set_nice(level: i32) -> io::Result<()> {
    // SAFETY: gettid takes and touches nothing.
    let thread = unsafe { libc::gettid() };
    // SAFETY: setpriority takes integers; on Linux PRIO_PROCESS with a thread's id means that thread.
    let result = unsafe { libc::setpriority(libc::PRIO_PROCESS, thread.cast_unsigned(), level) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Name, index and addresses of the machine's interfaces.
pub(crate) fn interface_addresses() -> io::Result<Vec<(String, IpAddr)>> {
    let mut list = MaybeUninit::<*mut libc::ifaddrs>::uninit();
    // SAFETY: on success the kernel library writes one pointer to `list`.
    if unsafe { libc::getifaddrs(list.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: getifaddrs succeeded, so `list` is written.
    let head = unsafe { list.assume_init() };
    let mut found = Vec::new();
    let mut entry = head;
    while !entry.is_null() {
        // SAFETY: a non-null entry of the list is valid until freeifaddrs.
        let item = unsafe { &*entry };
        if !item.ifa_addr.is_null() {
            // SAFETY: ifa_name is a C string of the same lifetime.
            let name = unsafe { std::ffi::CStr::from_ptr(item.ifa_name) }.to_string_lossy().into_owned();
            // SAFETY: ifa_addr is not null, and points to at least as many bytes as its family says.
            if let Some(address) = unsafe { address_of_raw(item.ifa_addr) } {
                found.push((name, address.ip()));
            }
        }
        entry = item.ifa_next;
    }
    // SAFETY: `head` came from getifaddrs and is freed once.
    unsafe { libc::freeifaddrs(head) };
    Ok(found)
}

/// # Safety
///
/// `raw` points to a socket address with as many valid bytes as its family needs.
unsafe fn address_of_raw(raw: *const libc::sockaddr) -> Option<SocketAddr> {
    // SAFETY: the family is the first field of every socket address.
    match i32::from(unsafe { (*raw).sa_family }) {
        // SAFETY: by the caller's promise.
        libc::AF_INET => Some(from_v4(unsafe { &*raw.cast::<libc::sockaddr_in>() })),
        // SAFETY: by the caller's promise.
        libc::AF_INET6 => Some(from_v6(unsafe { &*raw.cast::<libc::sockaddr_in6>() })),
        _ => None,
    }
}

fn address_from(name: &libc::sockaddr_storage) -> Option<SocketAddr> {
    // SAFETY: sockaddr_storage is large enough and aligned for both families.
    unsafe { address_of_raw(ptr::from_ref(name).cast()) }
}

fn from_v4(a: &libc::sockaddr_in) -> SocketAddr {
    SocketAddr::V4(SocketAddrV4::new(
        Ipv4Addr::from(u32::from_be(a.sin_addr.s_addr)),
        u16::from_be(a.sin_port),
    ))
}

fn from_v6(a: &libc::sockaddr_in6) -> SocketAddr {
    SocketAddr::V6(SocketAddrV6::new(
        Ipv6Addr::from(a.sin6_addr.s6_addr),
        u16::from_be(a.sin6_port),
        a.sin6_flowinfo,
        a.sin6_scope_id,
    ))
}

fn address_into(address: &SocketAddr) -> (libc::sockaddr_storage, libc::socklen_t) {
    // SAFETY: all-zero is a valid sockaddr_storage.
    let mut storage: libc::sockaddr_storage = unsafe { mem::zeroed() };
    let length = match address {
        SocketAddr::V4(v4) => {
            let raw = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from(*v4.ip()).to_be() },
                sin_zero: [0; 8],
            };
            // SAFETY: sockaddr_storage is larger than sockaddr_in and suitably aligned.
            unsafe { ptr::from_mut(&mut storage).cast::<libc::sockaddr_in>().write(raw) };
            mem::size_of::<libc::sockaddr_in>()
        }
        SocketAddr::V6(v6) => {
            let raw = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                sin6_scope_id: v6.scope_id(),
            };
            // SAFETY: sockaddr_storage is larger than sockaddr_in6 and suitably aligned.
            unsafe { ptr::from_mut(&mut storage).cast::<libc::sockaddr_in6>().write(raw) };
            mem::size_of::<libc::sockaddr_in6>()
        }
    };
    (storage, length as libc::socklen_t)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsRawFd;

    #[test]
    fn a_batch_goes_out_and_comes_back_with_its_addresses() {
        for any in ["127.0.0.1:0", "[::1]:0"] {
            let (a, b) = (UdpSocket::bind(any).unwrap(), UdpSocket::bind(any).unwrap());
            let to = b.local_addr().unwrap();
            let out = |bytes| Outgoing { to, from: None, bytes };
            let sent = SendBatch::new().send(a.as_raw_fd(), &[out(b"one"), out(b""), out(b"three")]).unwrap();
            assert_eq!(sent, 3);
            let mut batch = ReceiveBatch::new();
            assert_eq!(batch.receive(b.as_raw_fd()).unwrap(), 3);
            let from = a.local_addr().unwrap();
            let got: Vec<_> = batch.datagrams().collect();
            assert_eq!(got, [(from, None, &b"one"[..]), (from, None, &b""[..]), (from, None, &b"three"[..])]);
        }
    }

    #[test]
    fn an_empty_socket_does_not_wait() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let error = ReceiveBatch::new().receive(socket.as_raw_fd()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }

    /// RFC 3261 §18.4: "host, network, port or protocol unreachable errors, or parameter problem errors"; not source quench
    /// and TTL exceeded, nor that the datagram was too long for its path.
    #[test]
    fn only_what_says_that_the_peer_is_out_of_reach_is_a_failure() {
        let (icmp, icmp6) = (libc::SO_EE_ORIGIN_ICMP, libc::SO_EE_ORIGIN_ICMP6);
        for (origin, kind, code) in [
            (icmp, 3, 0),
            (icmp, 3, 1),
            (icmp, 3, 2),
            (icmp, 3, 3),
            (icmp, 12, 0),
            (icmp6, 1, 4),
            (icmp6, 4, 1),
        ] {
            assert!(is_failure(origin, kind, code), "{origin} {kind} {code}");
        }
        for (origin, kind, code) in
            [(icmp, 3, 4), (icmp, 4, 0), (icmp, 11, 0), (icmp6, 2, 0), (icmp6, 3, 0), (0, 3, 3)]
        {
            assert!(!is_failure(origin, kind, code), "{origin} {kind} {code}");
        }
    }

    #[test]
    fn a_closed_port_is_reported_as_unreachable() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        set_option(socket.as_raw_fd(), libc::SOL_IP, libc::IP_RECVERR, 1).unwrap();
        let closed = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        socket.send_to(b"x", closed).unwrap();
        let mut failed = Vec::new();
        for _ in 0..1_000 {
            drain_errors(socket.as_raw_fd(), 8, |peer| failed.push(peer));
            if !failed.is_empty() {
                break;
            }
            sleep(Duration::from_millis(1));
        }
        assert_eq!(failed, [closed]);
    }

    #[test]
    fn loopback_is_among_the_interfaces() {
        let found = interface_addresses().unwrap();
        assert!(found.iter().any(|(_, ip)| *ip == IpAddr::V4(Ipv4Addr::LOCALHOST)), "{found:?}");
    }
}
