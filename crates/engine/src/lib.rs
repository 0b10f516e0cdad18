#![no_std]
#![forbid(unsafe_code)]
//! Transactions, timers and the proxy core of RFC 3261 (§16, §17), as a state machine without I/O.
//!
//! [`Endpoint`] is one shard. It takes in messages, answers and the time by [`Endpoint::handle`], and puts what is to be
//! sent or asked into an [`Outbox`]. What happens to requests is decided by a [`TransactionUser`].

extern crate alloc;

mod bad;
mod branch;
mod client_invite;
mod client_non_invite;
mod config;
mod context;

mod counters;
mod domains;
mod endpoint;
mod io;
mod long;
mod mac;
mod machine;
mod own;
mod plan;
mod pool;
mod proxy;
mod refused;
mod reply;
mod resolve;
mod server_invite;
mod server_non_invite;
mod shard;
mod steer;
mod table;
mod transaction;
mod waiting;
mod wheel;

#[cfg(test)]
mod tests;

pub use config::{Alias, Config, Limits, Listener, Timers, Transports};
pub use context::{
    BranchContext, BranchVerdict, Branches, EngineError, Handled, MaxForwards, RelayError, ReplyContext,
    ReplyError, ReplyVerdict, RequestContext, RouteVerdict, Target, TargetsFull, TransactionId,
    TransactionUser,
};
pub use counters::Counters;
pub use endpoint::Endpoint;
pub use io::{
    Answer, Ask, AskId, DomainId, FlowId, Input, ListenerId, Outbox, Output, OwnedAnswer, Path, Rows, Select,
    TransportFailure,
};
pub use own::Own;
pub use steer::steer;
