//! Listeners: one socket per shard for each address and transport that the server is reachable by.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use sip::Transport;
use socket2::{Domain, Protocol, Socket, Type};

use crate::stream_settings::StreamSettings;
use crate::udp::{self, UdpListener};

/// Connections that the kernel keeps ready to be accepted; it takes fewer if `net.core.somaxconn` says so.
const BACKLOG: i32 = 4_096;

/// One shard's socket of one listener.
#[derive(Debug)]
pub enum Listener {
    /// Datagrams.
    Udp(UdpListener),
    /// Connections: TCP, TLS, WebSocket in clear or over TLS.
    Stream(StreamListener),
}

impl Listener {
    /// The transport.
    pub fn transport(&self) -> Transport {
        match self {
            Listener::Udp(_) => Transport::Udp,
            Listener::Stream(listener) => listener.transport,
        }
    }

    /// The address it is bound to, with the port that the system chose if it was asked to choose one.
    pub fn address(&self) -> SocketAddr {
        match self {
            Listener::Udp(listener) => listener.address(),
            Listener::Stream(listener) => listener.address,
        }
    }

    /// The receive buffer that the kernel granted, in bytes; `None` for a stream listener.
    pub fn receive_buffer_bytes(&self) -> Option<usize> {
        match self {
            Listener::Udp(listener) => Some(listener.receive_buffer_bytes()),
            Listener::Stream(_) => None,
        }
    }
}

/// One shard's listening socket of a stream transport.
#[derive(Debug)]
pub struct StreamListener {
    pub(crate) socket: mio::net::TcpListener,
    pub(crate) transport: Transport,
    pub(crate) address: SocketAddr,
}

impl StreamListener {
    /// Sets what accepted connections shall have: Linux hands the options of the listening socket down to them.
    pub(crate) fn set_options(&self, settings: &StreamSettings) -> io::Result<()> {
        settings.apply(&socket2::SockRef::from(&self.socket))
    }
}

/// Why an address could not be listened on.
#[derive(Debug)]
pub struct BindError {
    /// The transport that was asked for.
    pub transport: Transport,
    /// The address that was asked for.
    pub address: SocketAddr,
    /// What the system said.
    pub source: io::Error,
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (at, name) = (self.address, name(self.transport));
        let list = if self.transport == Transport::Udp { "ss -lunp" } else { "ss -ltnp" };
        match self.source.kind() {
            io::ErrorKind::AddrInUse => write!(
                f,
                "cannot listen on {name} {at}: the port is in use; stop the other server (`{list} sport = :{}` shows it) \
                 or choose another port with -l {name}:ADDRESS:PORT",
                at.port()
            ),
            io::ErrorKind::AddrNotAvailable => write!(
                f,
                "cannot listen on {name} {at}: this machine has no such address; `ip address` lists those it has"
            ),
            io::ErrorKind::PermissionDenied => write!(
                f,
                "cannot listen on {name} {at}: not permitted; use a port above 1023 or give the program \
                 CAP_NET_BIND_SERVICE"
            ),
            _ => write!(f, "cannot listen on {name} {at}: {}", self.source),
        }
    }
}

impl std::error::Error for BindError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// A transport's name as `listen` has it.
fn name(transport: Transport) -> &'static str {
    match transport {
        Transport::Udp => "udp",
        Transport::Tcp => "tcp",
        Transport::Tls => "tls",
        Transport::Ws => "ws",
        Transport::Wss => "wss",
        Transport::Sctp => "sctp",
        Transport::Other => "unknown",
    }
}

/// Binds `address` once for each of `shards` shards.
///
/// With several shards the sockets share the port (`SO_REUSEPORT`) and the kernel spreads the senders over them. The
/// port is first bound alone, so that a second server on it is refused instead of taking half of the traffic.
///
/// # Errors
///
/// [`BindError`] when the port is taken, the address is not this machine's, the transport is none of UDP, TCP, TLS, WS
/// and WSS, or the system refuses.
pub fn bind(transport: Transport, address: SocketAddr, shards: usize) -> Result<Vec<Listener>, BindError> {
    let open: fn(Transport, SocketAddr, bool) -> io::Result<Listener> = match transport {
        Transport::Udp => |_, address, share| udp::open(address, share).map(Listener::Udp),
        Transport::Tcp | Transport::Tls | Transport::Ws | Transport::Wss => open_stream,
        Transport::Sctp | Transport::Other => |_, _, _| Err(io::ErrorKind::Unsupported.into()),
    };
    let fail = |source| BindError { transport, address, source };
    if shards <= 1 {
        return Ok(vec![open(transport, address, false).map_err(fail)?]);
    }
    let alone = open(transport, address, false).map_err(fail)?;
    let address = alone.address();
    drop(alone);
    (0..shards).map(|_| open(transport, address, true).map_err(fail)).collect()
}

fn open_stream(transport: Transport, address: SocketAddr, share_port: bool) -> io::Result<Listener> {
    let kind = Type::STREAM.nonblocking().cloexec();
    let socket = Socket::new(Domain::for_address(address), kind, Some(Protocol::TCP))?;
    // Connections of a server that has just ended wait out their time; they keep nobody from listening.
    socket.set_reuse_address(true)?;
    if share_port {
        socket.set_reuse_port(true)?;
    }
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    let address = socket.local_addr()?.as_socket().unwrap_or(address);
    let socket = mio::net::TcpListener::from_std(socket.into());
    Ok(Listener::Stream(StreamListener { socket, transport, address }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Transport; 5] =
        [Transport::Udp, Transport::Tcp, Transport::Tls, Transport::Ws, Transport::Wss];

    #[test]
    fn a_busy_port_says_what_to_do() {
        for transport in ALL {
            let first = bind(transport, "127.0.0.1:0".parse().unwrap(), 1).unwrap();
            for shards in [1, 2] {
                let error = bind(transport, first[0].address(), shards).unwrap_err().to_string();
                assert!(error.contains("in use") && error.contains("np sport"), "{error}");
                assert!(error.contains(name(transport)) && !error.contains('\n'));
            }
        }
    }

    #[test]
    fn shards_share_one_port_and_keep_a_second_server_out() {
        for transport in ALL {
            let sockets = bind(transport, "127.0.0.1:0".parse().unwrap(), 3).unwrap();
            assert_eq!(sockets.len(), 3);
            assert!(sockets.iter().all(|s| s.address() == sockets[0].address()));
            assert!(sockets.iter().all(|s| s.transport() == transport));
            assert!(bind(transport, sockets[0].address(), 2).is_err());
        }
    }

    #[test]
    fn a_foreign_address_is_named() {
        let error = bind(Transport::Tcp, "203.0.113.1:5060".parse().unwrap(), 1).unwrap_err().to_string();
        assert!(error.contains("no such address"), "{error}");
    }

    #[test]
    fn a_transport_that_is_not_there_is_refused() {
        assert!(bind(Transport::Sctp, "127.0.0.1:0".parse().unwrap(), 1).is_err());
    }
}
