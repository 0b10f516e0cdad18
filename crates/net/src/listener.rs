//! Listeners: one socket per shard for each address and transport that the server is reachable by.

use std::fmt;
use std::fs::File;
use std::io;
use std::net::SocketAddr;

use sip::Transport;
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::stream_settings::StreamSettings;
use crate::tcp;
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
    /// A descriptor kept for when there is none.
    pub(crate) reserve: Option<File>,
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

/// Binds `address` once for each of `shards` shards; connections that are accepted there are as `settings` say.
///
/// With several shards the sockets share the port (`SO_REUSEPORT`) and the kernel spreads the senders over them. The
/// port is first bound alone, so that a second server on it is refused instead of taking half of the traffic.
///
/// # Errors
///
/// [`BindError`] when the port is taken, the address is not this machine's, the transport is none of UDP, TCP, TLS, WS
/// and WSS, or the system refuses.
pub fn bind(
    transport: Transport,
    address: SocketAddr,
    shards: usize,
    settings: &StreamSettings,
) -> Result<Vec<Listener>, BindError> {
    let fail = |source| BindError { transport, address, source };
    if shards <= 1 {
        return Ok(vec![open(transport, address, false, settings).map_err(fail)?]);
    }
    let address = try_alone(transport, address).map_err(fail)?;
    (0..shards).map(|_| open(transport, address, true, settings).map_err(fail)).collect()
}

/// Sees to it that nobody has an address; returns it with its port.
fn try_alone(transport: Transport, address: SocketAddr) -> io::Result<SocketAddr> {
    match transport {
        Transport::Udp => udp::open(address, false).map(|alone| alone.address()),
        // It does not listen: who connected to it would lose the connection when it is closed.
        _ => address_of(&bind_stream(address, false)?),
    }
}

fn open(
    transport: Transport,
    address: SocketAddr,
    share_port: bool,
    settings: &StreamSettings,
) -> io::Result<Listener> {
    match transport {
        Transport::Udp => udp::open(address, share_port).map(Listener::Udp),
        Transport::Tcp | Transport::Tls | Transport::Ws | Transport::Wss => {
            open_stream(transport, address, share_port, settings).map(Listener::Stream)
        }
        Transport::Sctp | Transport::Other => Err(io::ErrorKind::Unsupported.into()),
    }
}

fn open_stream(
    transport: Transport,
    address: SocketAddr,
    share_port: bool,
    settings: &StreamSettings,
) -> io::Result<StreamListener> {
    let socket = bind_stream(address, share_port)?;
    // Linux hands the options of a listening socket down to its connections, and makes these from the next line
    // on, not only when a shard asks for them.
    settings.apply(&SockRef::from(&socket))?;
    socket.listen(BACKLOG)?;
    let address = address_of(&socket)?;
    let socket = mio::net::TcpListener::from_std(socket.into());
    Ok(StreamListener { socket, transport, address, reserve: tcp::reserve() })
}

fn bind_stream(address: SocketAddr, share_port: bool) -> io::Result<Socket> {
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
    Ok(socket)
}

fn address_of(socket: &Socket) -> io::Result<SocketAddr> {
    socket.local_addr()?.as_socket().ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;
    use std::time::Duration;

    use super::*;
    use crate::stream_settings::Keepalive;

    const ALL: [Transport; 5] =
        [Transport::Udp, Transport::Tcp, Transport::Tls, Transport::Ws, Transport::Wss];

    fn any() -> SocketAddr {
        "127.0.0.1:0".parse().unwrap()
    }

    fn bind(transport: Transport, address: SocketAddr, shards: usize) -> Result<Vec<Listener>, BindError> {
        super::bind(transport, address, shards, &StreamSettings::default())
    }

    #[test]
    fn a_busy_port_says_what_to_do() {
        for transport in ALL {
            let first = bind(transport, any(), 1).unwrap();
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
            let sockets = bind(transport, any(), 3).unwrap();
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
        assert!(bind(Transport::Sctp, any(), 1).is_err());
    }

    #[test]
    fn nobody_is_connected_to_a_socket_that_only_tries_the_address() {
        let alone = bind_stream(any(), false).unwrap();
        let refused = TcpStream::connect(address_of(&alone).unwrap()).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn the_longest_probes_that_can_be_configured_are_taken() {
        let longest = Duration::from_secs(32_767);
        let keepalive = Keepalive { idle: longest, interval: longest, probes: 127 };
        let settings = StreamSettings { keepalive: Some(keepalive), ..StreamSettings::default() };
        super::bind(Transport::Tcp, any(), 1, &settings).unwrap();
    }

    #[test]
    fn who_connects_before_a_shard_runs_is_probed_too() {
        let seconds = Duration::from_secs;
        let keepalive = Keepalive { idle: seconds(7), interval: seconds(5), probes: 3 };
        let settings = StreamSettings { keepalive: Some(keepalive), ..StreamSettings::default() };
        for shards in [1, 2] {
            let listeners = super::bind(Transport::Tcp, any(), shards, &settings).unwrap();
            let _peer = TcpStream::connect(listeners[0].address()).unwrap();
            let accepted = listeners.iter().find_map(|listener| match listener {
                Listener::Stream(listener) => listener.socket.accept().ok(),
                Listener::Udp(_) => None,
            });
            let (accepted, _) = accepted.unwrap();
            let accepted = SockRef::from(&accepted);
            assert!(accepted.keepalive().unwrap() && accepted.tcp_nodelay().unwrap());
            assert_eq!(accepted.tcp_keepalive_time().unwrap(), seconds(7));
            // What is sent and not acknowledged keeps the probes back: it has the same time.
            assert_eq!(accepted.tcp_user_timeout().unwrap(), Some(seconds(7 + 3 * 5)));
        }
    }
}
