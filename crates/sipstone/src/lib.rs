//! sipstone: a benchmark suite for SIP servers.
//!
//! Three layers. Pure: what to do ([`spec`], [`scenario`]), the load engine on virtual time ([`load`], [`null`]), the
//! statistics ([`stats`], [`criterion`], [`search`], [`validity`], [`compare`]). Hands: sockets and threads ([`net`]),
//! watching the server ([`sut`]), agents ([`agent`]). Whole: one trial ([`trial`]), the commands ([`cli`]), what they show
//! ([`view`]) and write ([`report`]).
//!
//! It shares the crate `sip` with the server and nothing else: a bug that a server and its tester share is invisible.

#![forbid(unsafe_code)]

pub mod agent;
pub mod certs;
pub mod cli;
pub mod compare;
pub mod connect;
pub mod criterion;
pub mod doctor;
pub mod gate;
pub mod grid;
pub mod group;
pub mod ladder;
pub mod load;
pub mod net;
pub mod null;
pub mod report;
pub mod scenario;
pub mod search;
pub mod spec;
pub mod stats;
pub mod sut;
pub mod tally;
pub mod trial;
pub mod validity;
pub mod view;
