//! Limits and times of connections, and what is counted about them.

use std::io;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};

/// The longest `TCP_USER_TIMEOUT` that Linux takes.
const USER_TIMEOUT_MAX: Duration = Duration::from_millis(i32::MAX as u64);

/// Probes of a silent connection by the kernel (RFC 9293 §3.8.4). One whose peer acknowledges nothing for as long as
/// all of them take is lost, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// Silence before the first probe.
    pub idle: Duration,
    /// Time between two probes.
    pub interval: Duration,
    /// Probes without an answer after which the connection is lost.
    pub probes: u32,
}

/// What connections of stream transports may do and take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamSettings {
    /// Connections at once, of all shards and stream transports; default 65,536. For a further one the connection that
    /// has been idle longest is closed; where none is idle, the new one is.
    pub max: usize,
    /// The same, for those over TLS alone; default 65,536.
    pub tls_max: usize,
    /// Connections accepted from one IPv4 address or one IPv6 /64; default 4,096. Further ones are closed.
    pub per_source_max: usize,
    /// How long a connection lives without a message or a keep-alive; default 120 s.
    pub lifetime: Duration,
    /// Longest time for a connection to be established; default 10 s.
    pub connect_timeout: Duration,
    /// A peer that takes nothing of what waits for it for so long loses its connection; default 10 s.
    pub send_timeout: Duration,
    /// Longest time from the first byte of a message to its last; default 20 s.
    pub message_timeout: Duration,
    /// Bytes that may wait for one connection's peer; default 262,144. Past it the connection is lost.
    pub write_queue_bytes_max: usize,
    /// Bytes that may wait for all peers of a shard; default 64 MiB. Past it a connection whose peer does not read is
    /// lost when it is to carry more.
    pub write_queue_total_bytes_max: usize,
    /// Messages that may wait for a connection under way; default 1,024. Further ones fail.
    pub connect_queue_messages_max: usize,
    /// Probes of silent connections; by default after 60 s, every 10 s, three of them.
    pub keepalive: Option<Keepalive>,
    /// How long a WebSocket may be silent before its peer is asked whether it is there; half of `lifetime` at most;
    /// by default that. Peers are not asked if it is `None`.
    pub websocket_ping: Option<Duration>,
    /// Whether no connections are opened at all; default no.
    pub no_connect: bool,
}

impl Default for StreamSettings {
    fn default() -> StreamSettings {
        let seconds = Duration::from_secs;
        StreamSettings {
            max: 65_536,
            tls_max: 65_536,
            per_source_max: 4_096,
            lifetime: seconds(120),
            connect_timeout: seconds(10),
            send_timeout: seconds(10),
            message_timeout: seconds(20),
            write_queue_bytes_max: 262_144,
            write_queue_total_bytes_max: 64 << 20,
            connect_queue_messages_max: 1_024,
            keepalive: Some(Keepalive { idle: seconds(60), interval: seconds(10), probes: 3 }),
            websocket_ping: Some(Duration::MAX),
            no_connect: false,
        }
    }
}

impl StreamSettings {
    /// Sets the options of a socket.
    pub(crate) fn apply(&self, socket: &SockRef<'_>) -> io::Result<()> {
        // A message is written as a whole: waiting for more of it only delays it.
        socket.set_tcp_nodelay(true)?;
        let Some(Keepalive { idle, interval, probes }) = self.keepalive else {
            return socket.set_keepalive(false);
        };
        socket.set_tcp_keepalive(
            &TcpKeepalive::new().with_time(idle).with_interval(interval).with_retries(probes),
        )?;
        // Linux does not probe while something that was sent is not acknowledged: it repeats that, for a quarter of an
        // hour (tcp(7), tcp_retries2). A peer that has gone then is found dead as soon as one that has gone in silence.
        let dead = (idle + interval * probes).max(self.send_timeout);
        socket.set_tcp_user_timeout(Some(dead.min(USER_TIMEOUT_MAX)))
    }
}

/// What a shard counted about its connections since its start; what is there now where it says so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamStatistics {
    /// Connections there are now, those being established included.
    pub open: u64,
    /// Of these, over TLS.
    pub open_tls: u64,
    /// Bytes that wait for peers now.
    pub queued_bytes: u64,
    /// Bytes of messages that are not yet whole now.
    pub partial_bytes: u64,
    /// Connections accepted.
    pub accepted: u64,
    /// Connections established to peers.
    pub connected: u64,
    /// Connections to peers that could not be established, or not in time.
    pub connect_failures: u64,
    /// Messages received.
    pub messages_received: u64,
    /// Messages given to connections.
    pub messages_sent: u64,
    /// Messages that no connection could carry.
    pub messages_unsent: u64,
    /// Keep-alives answered (RFC 5626 §3.5.1).
    pub pings: u64,
    /// Connections that were closed by their peers.
    pub closed_by_peer: u64,
    /// Connections that were reset, or lost by the network.
    pub reset: u64,
    /// Connections closed as nothing came for their lifetime.
    pub idle: u64,
    /// Idle connections closed to make room for others.
    pub evicted: u64,
    /// Connections refused as there were too many.
    pub refused_full: u64,
    /// Connections refused as their source had too many.
    pub refused_source: u64,
    /// Connections refused as too many TLS handshakes were under way, or as TLS is not set up.
    pub refused_handshakes: u64,
    /// Connections closed as a message took too long to come.
    pub slow: u64,
    /// Connections closed as their peer took nothing for too long.
    pub send_timeouts: u64,
    /// Connections closed as too much waited for their peer.
    pub write_queue_full: u64,
    /// Connections closed as all unfinished messages together took too much memory.
    pub memory_full: u64,
    /// Connections closed as headers did not end within the limit.
    pub headers_too_long: u64,
    /// Connections closed as a message was longer than the limit.
    pub too_large: u64,
    /// Connections closed as a Content-Length was missing or wrong.
    pub content_length: u64,
    /// Connections closed as TLS came where SIP was expected.
    pub not_sip_tls: u64,
    /// Connections closed as HTTP came where SIP was expected.
    pub not_sip_http: u64,
    /// Connections closed as something else came where SIP was expected.
    pub not_sip_other: u64,
    /// TLS handshakes that failed.
    pub tls_failures: u64,
    /// Of these, with SIP in clear from the peer.
    pub tls_clear_sip: u64,
    /// Of these, with HTTP in clear from the peer.
    pub tls_clear_http: u64,
    /// TLS connections closed as what came was not what the session expects.
    pub tls_broken: u64,
    /// WebSocket handshakes refused.
    pub websocket_refused: u64,
    /// WebSocket connections closed as the peer broke the protocol.
    pub websocket_violations: u64,
    /// Times that the system gave no connection when it should have, other than for want of descriptors.
    pub accept_errors: u64,
    /// Connections refused, or not opened, for want of descriptors.
    pub no_descriptors: u64,
}

/// Why a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    ByPeer,
    Reset,
    Idle,
    Evicted,
    ConnectFailed,
    Slow,
    SendTimeout,
    WriteQueueFull,
    MemoryFull,
    HeadersTooLong,
    TooLarge,
    ContentLength,
    NotSipTls,
    NotSipHttp,
    NotSipOther,
    Handshake,
    HandshakesFull,
    TlsBroken,
    WebSocketRefused,
    WebSocketViolation,
    Stopped,
}

impl StreamStatistics {
    pub(crate) fn ended(&mut self, why: Ended) {
        let counter = match why {
            Ended::ByPeer => &mut self.closed_by_peer,
            Ended::Reset => &mut self.reset,
            Ended::Idle => &mut self.idle,
            Ended::Evicted => &mut self.evicted,
            Ended::ConnectFailed => &mut self.connect_failures,
            Ended::Slow => &mut self.slow,
            Ended::SendTimeout => &mut self.send_timeouts,
            Ended::WriteQueueFull => &mut self.write_queue_full,
            Ended::MemoryFull => &mut self.memory_full,
            Ended::HeadersTooLong => &mut self.headers_too_long,
            Ended::TooLarge => &mut self.too_large,
            Ended::ContentLength => &mut self.content_length,
            Ended::NotSipTls => &mut self.not_sip_tls,
            Ended::NotSipHttp => &mut self.not_sip_http,
            Ended::NotSipOther => &mut self.not_sip_other,
            Ended::Handshake => &mut self.tls_failures,
            Ended::HandshakesFull => &mut self.refused_handshakes,
            Ended::TlsBroken => &mut self.tls_broken,
            Ended::WebSocketRefused => &mut self.websocket_refused,
            Ended::WebSocketViolation => &mut self.websocket_violations,
            Ended::Stopped => return,
        };
        *counter += 1;
    }
}
