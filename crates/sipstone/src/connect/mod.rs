//! Connections as a load of their own: opened at a rate, kept alive and counted (`sipstone run connect`).
//!
//! ```text
//!  Planned ──▶ Connecting ──▶ Securing ──▶ Registering ──▶ Open ──▶ Lost (closed, reset, no pong)
//!                  └──────── Failed (refused, timed out, not secured, not registered)
//! ```
//!
//! An open connection is kept alive as RFC 5626 §3.5.1 says: CRLF CRLF is sent, CRLF must come back within ten
//! seconds (§4.4.1). [`fleet`] is pure and lives on virtual time, [`drive`] has the sockets, [`limits`] says
//! before anything is opened whether ports and descriptors suffice.

pub mod drive;
pub mod fleet;
pub mod limits;
pub mod report;
pub mod wire;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Most connections of a run: what one host's descriptors and 256 sources' ports carry.
pub const CONNECTIONS_MAX: u32 = 5_000_000;

/// How long a connection may take from its start until it is open.
pub const OPEN_WITHIN: Duration = Duration::from_secs(30);

/// How long a pong may take (RFC 5626 §4.4.1).
pub const PONG_WITHIN: Duration = Duration::from_secs(10);

/// Shortest time between pings: a server must not be flooded by mistake.
pub const KEEPALIVE_MIN: Duration = Duration::from_secs(1);

/// What is to be opened.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Where.
    pub target: SocketAddr,
    /// How many.
    pub connections: u32,
    /// How many are begun a second.
    pub rate: f64,
    /// Longest time between pings of a connection; `None`: none are sent. Each ping is sent after 80 to 100 %
    /// of it (RFC 5626 §4.4.1), so that those of many connections do not come at once.
    pub keepalive: Option<Duration>,
    /// Local addresses, used in turn; at least one.
    pub sources: Vec<IpAddr>,
    /// One user is registered on each connection.
    pub register: Option<wire::Registration>,
    /// From which the times of pings are drawn.
    pub seed: u64,
}
