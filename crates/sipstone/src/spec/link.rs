//! How each side reaches the server: the transport, its connections, and TLS (RFC 3261 §18, RFC 5922, RFC 7118).
//!
//! A side is the callers or the callees. On the callers' side sipstone opens the connections; on the callees' side the
//! server does (over WebSocket, which a server cannot open, callees open it too and are called on it).

use crate::certs::KeyKind;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::str::FromStr;

/// Most connections of a [`Connections::Pool`], of a group.
pub const POOL_MAX: u32 = 10_000;

/// What messages travel in.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Default,
    Serialize,
    Deserialize,
    clap::ValueEnum,
    schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// Datagrams.
    #[default]
    Udp,
    /// TCP.
    Tcp,
    /// TLS over TCP.
    Tls,
    /// WebSocket (RFC 7118).
    Ws,
    /// WebSocket over TLS.
    Wss,
}

impl Transport {
    /// Its name on the command line and in the `transport` parameter of URIs (RFC 3261 §19.1.1, RFC 7118 §5.2).
    #[must_use]
    pub fn id(self) -> &'static str {
        match self {
            Transport::Udp => "udp",
            Transport::Tcp => "tcp",
            Transport::Tls => "tls",
            Transport::Ws => "ws",
            Transport::Wss => "wss",
        }
    }

    /// Its name in a Via (RFC 3261 §20.42, RFC 7118 §5.1).
    #[must_use]
    pub fn via(self) -> &'static str {
        match self {
            Transport::Udp => "UDP",
            Transport::Tcp => "TCP",
            Transport::Tls => "TLS",
            Transport::Ws => "WS",
            Transport::Wss => "WSS",
        }
    }

    /// Whether it has connections: what is sent arrives, in order, or the connection is lost.
    #[must_use]
    pub fn is_stream(self) -> bool {
        self != Transport::Udp
    }

    /// Whether TLS protects it.
    #[must_use]
    pub fn is_tls(self) -> bool {
        matches!(self, Transport::Tls | Transport::Wss)
    }

    /// Whether messages travel in WebSocket frames.
    #[must_use]
    pub fn is_websocket(self) -> bool {
        matches!(self, Transport::Ws | Transport::Wss)
    }

    /// Where a server listens that names no port (RFC 3261 §19.1.2, RFC 7118 §5.5 by RFC 6455 §3).
    #[must_use]
    pub fn default_port(self) -> u16 {
        match self {
            Transport::Udp | Transport::Tcp => 5060,
            Transport::Tls => 5061,
            Transport::Ws => 80,
            Transport::Wss => 443,
        }
    }
}

impl std::fmt::Display for Transport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.id())
    }
}

/// Contacts that the callees of a worker thread have at most, each with a port of its own, where the server is to connect
/// anew for each call or transaction.
pub const CONTACTS_MAX: u32 = 1024;

/// How many connections a side has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Connections {
    /// One for each worker thread, which all its calls share.
    #[default]
    Single,
    /// This many for the group, shared by all calls.
    Pool(u32),
    /// One for each call or other operation.
    PerCall,
    /// One for each transaction: the INVITE with its ACK has one, the BYE another.
    PerTransaction,
}

impl Connections {
    /// Whether calls share connections that stay.
    #[must_use]
    pub fn stay(self) -> bool {
        matches!(self, Connections::Single | Connections::Pool(_))
    }
}

impl std::fmt::Display for Connections {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Connections::Single => f.write_str("single"),
            Connections::Pool(count) => write!(f, "pool:{count}"),
            Connections::PerCall => f.write_str("per-call"),
            Connections::PerTransaction => f.write_str("per-transaction"),
        }
    }
}

impl FromStr for Connections {
    type Err = String;

    /// `single`, `pool:N`, `per-call`, `per-transaction`.
    fn from_str(text: &str) -> Result<Connections, String> {
        match text.split_once(':') {
            None if text == "single" => Ok(Connections::Single),
            None if text == "per-call" => Ok(Connections::PerCall),
            None if text == "per-transaction" => Ok(Connections::PerTransaction),
            Some(("pool", count)) => match count.parse::<u32>() {
                Ok(count) if (1..=POOL_MAX).contains(&count) => Ok(Connections::Pool(count)),
                _ => Err(format!("{count:?} is no number of connections from 1 to {POOL_MAX}")),
            },
            _ => Err(format!(
                "{text:?} is no way to connect: there are single, pool:N, per-call and per-transaction"
            )),
        }
    }
}

/// Who closes a connection when its call or transaction is over. Shared ones are closed at the end, by sipstone.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize, clap::ValueEnum, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Close {
    /// Sipstone: the caller or the callee hangs up and closes.
    #[default]
    Caller,
    /// The server; sipstone waits for it.
    Server,
}

/// How one side reaches the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Link {
    /// What its messages travel in.
    pub transport: Transport,
    /// How many connections it has. Of no meaning for UDP.
    pub connections: Connections,
    /// Where the server listens for this side; `None`: at the target's address.
    pub address: Option<SocketAddr>,
}

/// What TLS handshakes the run makes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize, clap::ValueEnum, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum TlsMode {
    /// Each handshake in full; sipstone neither offers nor accepts to resume a session.
    #[default]
    Full,
    /// The same, and both ends show certificates.
    Mutual,
    /// All but the first resume a session.
    Reuse,
}

/// A version of TLS.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum, schemars::JsonSchema,
)]
pub enum TlsVersion {
    /// TLS 1.2 (RFC 5246).
    #[serde(rename = "1.2")]
    #[value(name = "1.2")]
    V1_2,
    /// TLS 1.3 (RFC 8446).
    #[serde(rename = "1.3")]
    #[value(name = "1.3")]
    V1_3,
}

/// How TLS is spoken, on both sides.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Tls {
    /// Which handshakes are made.
    pub mode: TlsMode,
    /// The only version; `None`: 1.2 and 1.3.
    pub version: Option<TlsVersion>,
    /// The only cipher suite, by its IANA name; `None`: all that rustls has.
    pub cipher: Option<String>,
    /// The kind of key of our own certificates.
    pub key: KeyKind,
    /// The name that the server is asked for (SNI) and must prove; `None`: its address.
    pub server_name: Option<String>,
    /// Certificates (PEM) of the authorities by which the other end is verified. `None`: the server's is not verified,
    /// and with [`TlsMode::Mutual`] any certificate that a client shows is taken.
    pub authorities: Option<String>,
    /// What we show: always as a server, as a client with [`TlsMode::Mutual`]. `None`: made when it is needed.
    pub own: Option<OwnCertificate>,
}

/// A certificate made for a run. It travels to agents, and is good for nothing but the run.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct OwnCertificate {
    /// The certificate and those up to its authority, PEM.
    pub chain: String,
    /// Its key, PKCS #8, PEM.
    pub key: String,
}

impl std::fmt::Debug for OwnCertificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OwnCertificate")
    }
}

/// How the load reaches the server.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Links {
    /// The callers' side.
    pub caller: Link,
    /// The callees' side; registrations of the preamble go by it, too.
    pub callee: Link,
    /// Who closes.
    pub close: Close,
    /// TLS, where a side has it.
    pub tls: Tls,
}

impl Links {
    /// Both sides alike, everything else by default.
    #[must_use]
    pub fn both(transport: Transport) -> Links {
        let link = Link { transport, ..Link::default() };
        Links { caller: link, callee: link, ..Links::default() }
    }

    /// Whether any side has connections.
    #[must_use]
    pub fn any_stream(&self) -> bool {
        self.caller.transport.is_stream() || self.callee.transport.is_stream()
    }

    /// Whether any side has TLS.
    #[must_use]
    pub fn any_tls(&self) -> bool {
        self.caller.transport.is_tls() || self.callee.transport.is_tls()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_written_as_they_are_read() {
        for text in ["single", "pool:1", "pool:10000", "per-call", "per-transaction"] {
            assert_eq!(text.parse::<Connections>().unwrap().to_string(), text);
        }
        for wrong in ["", "pool", "pool:", "pool:0", "pool:10001", "pool:x", "percall", "single:2"] {
            assert!(wrong.parse::<Connections>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_workload_of_before_travels_as_udp_on_both_sides() {
        let links: Links = serde_json::from_str("{}").unwrap();
        assert_eq!(links, Links::default());
        assert!(!links.any_stream());
        let tls = Links::both(Transport::Wss);
        assert!(tls.any_stream() && tls.any_tls());
        let text = serde_json::to_string(&tls).unwrap();
        assert_eq!(serde_json::from_str::<Links>(&text).unwrap(), tls);
    }

    #[test]
    fn a_certificates_key_is_not_shown() {
        let own = OwnCertificate { chain: "c".into(), key: "secret".into() };
        assert!(!format!("{own:?}").contains("secret"));
    }
}
