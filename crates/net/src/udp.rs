//! UDP listeners: bound, sized, one socket per shard.

use std::fmt;
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

/// Why an address could not be listened on.
#[derive(Debug)]
pub struct BindError {
    /// The address that was asked for.
    pub address: SocketAddr,
    /// What the system said.
    pub source: io::Error,
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.address;
        match self.source.kind() {
            io::ErrorKind::AddrInUse => write!(
                f,
                "cannot listen on udp {at}: the port is in use; stop the other server (`ss -lunp sport = :{}` shows it) \
                 or choose another port with -l udp:ADDRESS:PORT",
                at.port()
            ),
            io::ErrorKind::AddrNotAvailable => write!(
                f,
                "cannot listen on udp {at}: this machine has no such address; `ip address` lists those it has"
            ),
            io::ErrorKind::PermissionDenied => write!(
                f,
                "cannot listen on udp {at}: not permitted; use a port above 1023 or give the program \
                 CAP_NET_BIND_SERVICE"
            ),
            _ => write!(f, "cannot listen on udp {at}: {}", self.source),
        }
    }
}

impl std::error::Error for BindError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// Binds `address` once for each of `shards` shards.
///
/// With several shards the sockets share the port (`SO_REUSEPORT`) and the kernel spreads the senders over them. The
/// port is first bound alone, so that a second server on it is refused instead of taking half of the traffic.
///
/// # Errors
///
/// [`BindError`] when the port is taken, the address is not this machine's, or the system refuses.
pub fn bind(address: SocketAddr, shards: usize) -> Result<Vec<UdpListener>, BindError> {
    let fail = |source| BindError { address, source };
    if shards <= 1 {
        return Ok(vec![open(address, false).map_err(fail)?]);
    }
    let alone = open(address, false).map_err(fail)?;
    let address = alone.address;
    drop(alone);
    (0..shards).map(|_| open(address, true).map_err(fail)).collect()
}

fn open(address: SocketAddr, share_port: bool) -> io::Result<UdpListener> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_port_says_what_to_do() {
        let first = bind("127.0.0.1:0".parse().unwrap(), 1).unwrap();
        for shards in [1, 2] {
            let error = bind(first[0].address(), shards).unwrap_err().to_string();
            assert!(error.contains("in use") && error.contains("ss -lunp"), "{error}");
            assert!(!error.contains('\n'));
        }
    }

    #[test]
    fn shards_share_one_port_and_keep_a_second_server_out() {
        let sockets = bind("127.0.0.1:0".parse().unwrap(), 3).unwrap();
        assert_eq!(sockets.len(), 3);
        assert!(sockets.iter().all(|s| s.address() == sockets[0].address()));
        assert!(bind(sockets[0].address(), 2).is_err());
    }

    #[test]
    fn a_foreign_address_is_named() {
        let error = bind("203.0.113.1:5060".parse().unwrap(), 1).unwrap_err().to_string();
        assert!(error.contains("no such address"), "{error}");
    }
}
