//! What outlives the process: bindings, users, domains and addresses, in SQLite, PostgreSQL or MariaDB, in
//! Kamailio's tables.
//!
//! - [`Database`] is one of them, opened by its [`Url`] and checked: which tables are there, of which
//!   version.
//! - [`Bindings`] reads a location table once, at start, and then writes [`Batch`]es of changes, each in one
//!   transaction.
//! - [`Journal`] is where changes are on disk before they are in their table.
//! - [`Selector`] answers questions for a few rows, with a bound for how many wait and for how long.
//! - [`Users`] is what an administrator does to the `subscriber` table.
//!
//! Nothing here knows SIP. Everything blocks its own threads and nobody else's.

#![deny(unsafe_code)]

mod batch;
mod bindings;
mod check;
mod database;
mod error;
mod fault;
mod health;
mod journal;
mod load;
mod location;
mod mysql;
mod postgres;
mod remote;
mod ruid;
mod schema;
mod selector;
mod session;
mod sqlite;
mod time;
mod url;
mod user;
mod users;

pub use batch::{Batch, Change, What};
pub use bindings::{Bindings, Contact, LeftOut, Written};
pub use database::{Database, Needed};
pub use error::StoreError;
pub use journal::{Draft, Encoder, Journal, Records};
pub use selector::{Select, Selected, Selector, SelectorState};
pub use url::Url;
pub use user::User;
pub use users::Users;
