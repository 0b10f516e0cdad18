//! TCP connections from the system: accepted with a reserve for bad times, opened without waiting.

use std::fs::File;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use mio::Registry;
use mio::net::TcpStream;
use sip::{Instant, Transport};
use socket2::{Domain, Protocol, Socket, Type};

use crate::connection::Desk;
use crate::listener::StreamListener;
use crate::stream_settings::StreamSettings;
use crate::sys;

/// How long a listener rests when the system gives nothing.
const BACK_OFF: Duration = Duration::from_millis(100);
/// How often its trouble is logged.
const COMPLAIN_EVERY: Duration = Duration::from_secs(1);

/// What accepting gave.
pub(crate) enum Accepted {
    /// Nobody is there, or the listener rests.
    Nothing,
    /// Somebody was there and has been turned away, or has gone.
    Refused,
    /// A connection.
    Connection(TcpStream, SocketAddr),
}

/// A listening socket at work.
pub(crate) struct Acceptor {
    /// `None` once it has stopped listening.
    socket: Option<mio::net::TcpListener>,
    transport: Transport,
    address: SocketAddr,
    /// There may be connections.
    pub(crate) ready: bool,
    /// A descriptor kept for when there is none: it lets one peer at a time be accepted and closed, so that it knows.
    reserve: Option<File>,
    retry_at: Option<Instant>,
    complained: Option<Instant>,
}

impl Acceptor {
    pub(crate) fn new(listener: StreamListener) -> Acceptor {
        let StreamListener { socket, transport, address, reserve } = listener;
        Acceptor {
            socket: Some(socket),
            transport,
            address,
            ready: true,
            reserve,
            retry_at: None,
            complained: None,
        }
    }

    pub(crate) fn transport(&self) -> Transport {
        self.transport
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// When it tries again after trouble.
    pub(crate) fn retry_at(&self) -> Option<Instant> {
        self.retry_at
    }

    /// Accepts one connection, without waiting.
    pub(crate) fn accept(&mut self, desk: &mut Desk) -> Accepted {
        if self.retry_at.is_some_and(|at| at > desk.now) || !self.ready {
            return Accepted::Nothing;
        }
        self.retry_at = None;
        let Some(socket) = &self.socket else {
            self.ready = false;
            return Accepted::Nothing;
        };
        match socket.accept() {
            Ok((socket, remote)) => Accepted::Connection(socket, remote),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.ready = false;
                Accepted::Nothing
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Accepted::Refused,
            Err(error) if is_want_of_descriptors(&error) => {
                let turned_away = self.turn_one_away();
                // The kernel looks for a descriptor before it looks for a peer: there may be none to turn away.
                if turned_away.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
                    self.ready = false;
                    return Accepted::Nothing;
                }
                desk.statistics.no_descriptors += 1;
                self.complain(&error, desk.now);
                if turned_away.is_ok() { Accepted::Refused } else { self.rest(desk.now) }
            }
            // The connection that was there has ended again (accept(2): errors of the network are handed down).
            Err(error) if is_of_the_network(&error) => {
                desk.statistics.accept_errors += 1;
                Accepted::Refused
            }
            Err(error) => {
                desk.statistics.accept_errors += 1;
                self.complain(&error, desk.now);
                self.rest(desk.now)
            }
        }
    }

    /// With the reserve's descriptor a peer is accepted and closed, so that it goes elsewhere instead of waiting.
    fn turn_one_away(&mut self) -> io::Result<()> {
        let Some(reserve) = self.reserve.take() else {
            self.reserve = crate::tcp::reserve();
            return Err(io::ErrorKind::Other.into());
        };
        drop(reserve);
        let turned_away = match &self.socket {
            Some(socket) => socket.accept().map(drop),
            None => Err(io::ErrorKind::NotConnected.into()),
        };
        self.reserve = crate::tcp::reserve();
        turned_away
    }

    fn rest(&mut self, now: Instant) -> Accepted {
        self.retry_at = Some(now + BACK_OFF);
        Accepted::Nothing
    }

    fn complain(&mut self, error: &io::Error, now: Instant) {
        if self.complained.is_none_or(|at| now.since(at) >= COMPLAIN_EVERY) {
            self.complained = Some(now);
            tracing::error!(
                address = %self.address, %error,
                "cannot accept connections; if it is for want of descriptors, raise the limit: ulimit -n, LimitNOFILE="
            );
        }
    }

    /// Stops listening: the kernel refuses further connections.
    pub(crate) fn stop(&mut self, registry: &Registry) {
        if let Some(mut socket) = self.socket.take() {
            let _ = registry.deregister(&mut socket);
        }
        (self.ready, self.reserve, self.retry_at) = (false, None, None);
    }
}

/// The descriptor that an [`Acceptor`] keeps for bad times.
pub(crate) fn reserve() -> Option<File> {
    File::open("/dev/null").ok()
}

/// The process or the system has no descriptor left.
pub(crate) fn is_want_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

fn is_of_the_network(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::ECONNABORTED
                | libc::ENETDOWN
                | libc::EPROTO
                | libc::ENOPROTOOPT
                | libc::EHOSTDOWN
                | libc::ENONET
                | libc::EHOSTUNREACH
                | libc::EOPNOTSUPP
                | libc::ENETUNREACH
        )
    )
}

/// Begins to connect, from our address `from` unless that is a wildcard.
pub(crate) fn connect(remote: SocketAddr, from: IpAddr, settings: &StreamSettings) -> io::Result<TcpStream> {
    let kind = Type::STREAM.nonblocking().cloexec();
    let socket = Socket::new(Domain::for_address(remote), kind, Some(Protocol::TCP))?;
    settings.apply(&socket2::SockRef::from(&socket))?;
    if !from.is_unspecified() && from.is_ipv4() == remote.is_ipv4() {
        // The port is chosen when the peer is known, so that there is one for every peer.
        sys::set_option(
            std::os::fd::AsRawFd::as_raw_fd(&socket),
            libc::IPPROTO_IP,
            libc::IP_BIND_ADDRESS_NO_PORT,
            1,
        )?;
        socket.bind(&SocketAddr::new(from, 0).into())?;
    }
    match socket.connect(&remote.into()) {
        Ok(()) => {}
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
        Err(error) => return Err(error),
    }
    Ok(TcpStream::from_std(socket.into()))
}

/// Whether a connection that was begun is there.
///
/// # Errors
///
/// Why it will never be.
pub(crate) fn is_connected(socket: &TcpStream) -> io::Result<bool> {
    if let Some(error) = socket.take_error()? {
        return Err(error);
    }
    match socket.peer_addr() {
        // The system may choose the very port that is connected to as the one to connect from, if nobody listens there:
        // TCP then meets itself (RFC 9293 §3.5, simultaneous open), and what we send comes back.
        Ok(peer) if socket.local_addr()? == peer => Err(io::ErrorKind::ConnectionRefused.into()),
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_with_itself_is_a_refused_one() {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)).unwrap();
        socket.bind(&any.into()).unwrap();
        socket.connect(&socket.local_addr().unwrap()).unwrap();
        let error = is_connected(&TcpStream::from_std(socket.into())).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);

        let listener = std::net::TcpListener::bind(any).unwrap();
        let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert!(is_connected(&TcpStream::from_std(stream)).unwrap());
    }
}
