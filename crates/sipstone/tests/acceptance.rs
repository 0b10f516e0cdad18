//! The instrument as a whole, on virtual time: what it says of servers about which everything is known.
//!
//! The rig ([`rig`]) puts real workers and a server ([`server`]) together over a network that delays, loses and doubles
//! datagrams. No test reads a clock, opens a socket or draws a number that its seed does not fix, so each of them shows
//! the same on every machine:
//!
//! - [`arrivals`]: what leaves the workers is a Poisson process, and the same one each time;
//! - [`latency`]: a server that stalls is not hidden, and no merging of histograms changes a number;
//! - [`capacity`]: the search finds the capacity of a server that has a known one;
//! - [`losses`]: verdicts and retransmissions (RFC 3261 §17.1.2.2) under losses of a known share;
//! - [`messages`]: the messages of each operation, also where the network doubles some.

#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "acceptance/arrivals.rs"]
mod arrivals;
#[path = "acceptance/capacity.rs"]
mod capacity;
#[path = "acceptance/latency.rs"]
mod latency;
#[path = "acceptance/losses.rs"]
mod losses;
#[path = "acceptance/messages.rs"]
mod messages;
#[path = "acceptance/rig.rs"]
mod rig;
#[path = "acceptance/server.rs"]
mod server;
