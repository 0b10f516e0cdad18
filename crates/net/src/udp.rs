//! UDP sockets: bound and sized.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};

use socket2::{Domain, Protocol, Socket, Type};

use crate::sys;

/// What a receive buffer is asked to hold, in bytes: some thousand messages, about 50 ms at the peak of one core.
///
/// The kernel grants more than `net.core.rmem_max` only to a process with `CAP_NET_ADMIN`; what it granted is in
/// [`UdpListener::receive_buffer_bytes`].
pub(crate) const RECEIVE_BUFFER_BYTES: usize = 8 << 20;

/// One shard's socket of one UDP listener.
#[derive(Debug)]
pub struct UdpListener {
    socket: mio::net::UdpSocket,
    address: SocketAddr,
    receive_buffer_bytes: usize,
}

impl UdpListener {
    /// The address it is bound to, with the port that the system chose if it was asked to choose one.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The receive buffer that the kernel granted, in bytes.
    pub fn receive_buffer_bytes(&self) -> usize {
        self.receive_buffer_bytes
    }

    /// Datagrams dropped by the kernel since the start because the receive buffer was full.
    pub fn receive_drops(&self) -> Option<u64> {
        sys::receive_drops(self.raw())
    }

    pub(crate) fn raw(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    pub(crate) fn source(&mut self) -> &mut mio::net::UdpSocket {
        &mut self.socket
    }
}

/// Binds one socket; with `share_port` several may have the port (`SO_REUSEPORT`).
pub(crate) fn open(address: SocketAddr, share_port: bool) -> io::Result<UdpListener> {
    let socket =
        Socket::new(Domain::for_address(address), Type::DGRAM.nonblocking().cloexec(), Some(Protocol::UDP))?;
    if share_port {
        socket.set_reuse_port(true)?;
    }
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    size_buffers(&socket);
    // ICMP errors name the peer that can't be reached (RFC 3261 §18.4); without this the kernel keeps them to itself.
    let (level, option) = if address.is_ipv6() {
        (libc::SOL_IPV6, libc::IPV6_RECVERR)
    } else {
        (libc::SOL_IP, libc::IP_RECVERR)
    };
    sys::set_option(socket.as_raw_fd(), level, option, 1)?;
    if address.ip().is_unspecified() {
        // The kernel tells which of its addresses was asked, and answers leave by that one.
        let (level, option) = if address.is_ipv6() {
            (libc::SOL_IPV6, libc::IPV6_RECVPKTINFO)
        } else {
            (libc::SOL_IP, libc::IP_PKTINFO)
        };
        sys::set_option(socket.as_raw_fd(), level, option, 1)?;
    }
    socket.bind(&address.into())?;
    let receive_buffer_bytes = socket.recv_buffer_size()?;
    let address = socket.local_addr()?.as_socket().unwrap_or(address);
    Ok(UdpListener { socket: mio::net::UdpSocket::from_std(socket.into()), address, receive_buffer_bytes })
}

/// Asks for large buffers: past the system's limit where the process may, up to it otherwise.
fn size_buffers(socket: &Socket) {
    let size = i32::try_from(RECEIVE_BUFFER_BYTES).unwrap_or(i32::MAX);
    let raw = socket.as_raw_fd();
    if sys::set_option(raw, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, size).is_err() {
        let _ = socket.set_recv_buffer_size(RECEIVE_BUFFER_BYTES);
    }
    if sys::set_option(raw, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, size).is_err() {
        let _ = socket.set_send_buffer_size(RECEIVE_BUFFER_BYTES);
    }
}
