//! Sockets, batching and the shard's loop: the hands of the server. No SIP decision is made here.
//!
//! A [`Shard`] is one thread's share of the network: its own UDP sockets (`SO_REUSEPORT` where there are several
//! shards), its queue for messages that arrived elsewhere, its outbox. [`Shard::run`] carries datagrams in batches
//! between the sockets and a [`Handler`], which is an `engine::Endpoint` in the server and anything else in a test.

mod interface;
mod queue;
mod resolver;
mod shard;
mod sys;
mod udp;

pub use interface::{Interface, interfaces};
pub use queue::{Parcel, Post, Postbox, post_office};
pub use resolver::Resolver;
pub use shard::{Control, Handler, SHARDS_MAX, Settings, Shard, Statistics};
pub use udp::{BindError, UdpListener, bind};
