#![no_std]
#![forbid(unsafe_code)]
//! The location service: bindings of addresses-of-record to contacts, in memory (RFC 3261 §10.3).
//!
//! - [`Table`] keeps bindings, applies REGISTER requests all or nothing, answers lookups and forgets what
//!   expired, in bounded steps. It reads no clock and draws no random numbers: both are handed in.
//! - [`Location`] is what a registrar and a proxy see of it. [`Local`] is the single-threaded implementation;
//!   a server with several threads puts one [`Table`] behind each of its locks and picks by [`stripe_of`].
//!
//! ```text
//!  HashTable: hash of the AOR --> first slot        Slots: one per binding, chained per AOR by q, newest first
//!                                   |                 `- one block of bytes: AOR, contact, Call-ID, path, ...
//!                                   `--> slot --> slot --> .
//!  Wheel: seconds until expiry --> slots due then (a refresh that moves the expiry later does not touch it)
//! ```

extern crate alloc;

mod binding;
mod changes;
mod keep;
mod order;
mod plan;
mod policy;
mod request;
mod service;
mod slots;
mod table;
#[cfg(test)]
mod tests;
mod traces;
mod wheel;

pub use binding::Binding;
pub use changes::{Change, Drained, Recorder};
pub use policy::{AtLimit, BelowMinimum, Limits, ONE_HOUR_SECS, Policy};
pub use request::{Blame, CONTACTS_PER_REQUEST_MAX, Kept, Refusal, Register, Update};
pub use service::{Local, Location, stripe_of};
pub use table::{Bindings, Changed, Registered, Seeds, Table};
pub use traces::Traces;
