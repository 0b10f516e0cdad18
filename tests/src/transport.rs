//! The transports of SIP (RFC 3261 §18, RFC 7118) as phones and servers of the tests name them.

/// One transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// Datagrams.
    Udp,
    /// A stream in clear.
    Tcp,
    /// A stream under TLS.
    Tls,
    /// WebSocket in clear (RFC 7118).
    Ws,
    /// WebSocket under TLS.
    Wss,
}

impl Transport {
    /// All of them.
    pub const ALL: [Transport; 5] = [Self::Udp, Self::Tcp, Self::Tls, Self::Ws, Self::Wss];

    /// Those that have connections.
    pub const STREAMS: [Transport; 4] = [Self::Tcp, Self::Tls, Self::Ws, Self::Wss];

    /// The token in a Via.
    pub fn via(self) -> &'static str {
        match self {
            Self::Udp => "UDP",
            Self::Tcp => "TCP",
            Self::Tls => "TLS",
            Self::Ws => "WS",
            Self::Wss => "WSS",
        }
    }

    /// The value of a URI's `transport` parameter; `ws` is that of both kinds of WebSocket (RFC 7118 §5.2).
    pub fn parameter(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Tcp => "tcp",
            Self::Tls => "tls",
            Self::Ws | Self::Wss => "ws",
        }
    }

    /// Whether TLS is below it.
    pub fn is_secure(self) -> bool {
        matches!(self, Self::Tls | Self::Wss)
    }

    /// Whether messages travel in frames of WebSocket.
    pub fn is_websocket(self) -> bool {
        matches!(self, Self::Ws | Self::Wss)
    }

    /// Where servers of the tests listen, each on its own address.
    pub(crate) fn port(self) -> u16 {
        match self {
            Self::Udp | Self::Tcp => 5060,
            Self::Tls => 5061,
            Self::Ws => 8080,
            Self::Wss => 8443,
        }
    }
}
