//! A seeded world: servers, phones and bad networks in one process at virtual time.
//!
//! ```text
//!  seed ─▶ Plan ─▶ World ─▶ Trace ─▶ oracles ─▶ Verdict
//!                  │ │ └ Server: the production endpoint, script machine, modules, location table
//!                  │ └── Phone: RFC 3261's user agents, written independently of the server
//!                  └──── packets, streams, names and a store that delay, lose, break and lie
//! ```
//!
//! Nothing here reads a clock, opens a socket or starts a thread, and all chance comes from the seed: a seed
//! reproduces its run exactly.

pub mod coverage;
pub mod digest;
pub mod faults;
pub mod grid;
pub mod ladder;
pub mod noise;
pub mod oracle;
pub mod phone;
pub mod prng;
pub mod run;
pub mod server;
pub mod streams;
pub mod text;
pub mod trace;
pub mod world;
