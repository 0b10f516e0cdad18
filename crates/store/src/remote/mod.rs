//! What PostgreSQL and MariaDB have in common: connections over a network that may be lost, silent or
//! refused.
//!
//! - [`Driver`] is how a kind of database is spoken to; [`Tables`] is how its location tables are.
//! - [`Link`] is a connection for a thread that may wait.
//! - [`RemoteBindings`] reads and writes location tables over one.
//! - [`start_selector`] starts a thread that answers questions, with connections of its own.
//!
//! One thread has one runtime and waits in it; nothing here runs on a thread that carries messages.

mod bindings;
mod link;
mod selector;

pub(crate) use bindings::{Fields, Fresh, Part, RemoteBindings, Tables};
pub(crate) use link::{Link, run, step};
pub(crate) use selector::start as start_selector;

use std::future::Future;

use tokio::runtime::{Builder, Runtime};

use crate::fault::Fault;
use crate::session::{Column, Dialect, OwnedRow};

/// How a kind of database is spoken to.
pub(crate) trait Driver: Send + Sync + 'static {
    type Connection: Send + 'static;
    const DIALECT: Dialect;

    fn connect(&self) -> impl Future<Output = Result<Self::Connection, Fault>> + Send;

    /// What the server calls this connection.
    fn identity(
        connection: &mut Self::Connection,
    ) -> impl Future<Output = Result<Vec<OwnedRow>, Fault>> + Send;

    /// Ends an earlier connection with this identity, if the server still has it; true when it has it no
    /// more.
    fn end_earlier(
        connection: &mut Self::Connection,
        identity: &[Option<&str>],
    ) -> impl Future<Output = Result<bool, Fault>> + Send;

    /// Whether this connection is from now on the only one that may write this table: a lock of the session's,
    /// which goes with the connection, after the last of its statements.
    fn claim(
        connection: &mut Self::Connection,
        table: &str,
    ) -> impl Future<Output = Result<bool, Fault>> + Send;

    /// The server's number for the connection that has claimed this table, and a few words about it.
    fn claimant(
        connection: &mut Self::Connection,
        table: &str,
    ) -> impl Future<Output = Result<Vec<OwnedRow>, Fault>> + Send;

    /// Ends a connection, or begins to.
    fn end(connection: &mut Self::Connection, number: &str)
    -> impl Future<Output = Result<(), Fault>> + Send;

    fn columns(
        connection: &mut Self::Connection,
        table: &str,
    ) -> impl Future<Output = Result<Vec<Column>, Fault>> + Send;

    fn execute(
        connection: &mut Self::Connection,
        sql: &str,
        values: &[Option<&str>],
    ) -> impl Future<Output = Result<u64, Fault>> + Send;

    fn query(
        connection: &mut Self::Connection,
        sql: &str,
        values: &[Option<&str>],
    ) -> impl Future<Output = Result<Vec<OwnedRow>, Fault>> + Send;
}

fn runtime() -> Result<Runtime, Fault> {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Fault::refused(format!("the system refuses what a connection needs: {error}")))
}
