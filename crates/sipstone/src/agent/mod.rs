//! Agents: groups of workers on other hosts, under one controller.
//!
//! An agent is a process that waits for a controller ([`serve`]); the controller has a [`RemoteGroup`] for each agent and
//! treats it as any other [`Group`](crate::group::Group). Between them is one TCP connection that carries one JSON object
//! a line, at most [`LINE_BYTES_MAX`] bytes each:
//!
//! ```text
//!  controller                                             agent
//!      │ {"sipstone":1,"version":"0.1.0","token":"…"}       │
//!      │ ─────────────────────────────────────────────────▶ │  or {…,"refused":"a sentence"} and the end
//!      │ ◀───────────────── {"sipstone":1,"version":"0.1.0"} │
//!      │ a Command a line ─────────────────────────────────▶ │
//!      │ ◀──────────────────────────────── an Event a line   │
//! ```
//!
//! Both sides notice a silent peer: the controller sends a Ping every second, and whoever hears nothing for five gives
//! the other up. An agent that loses its controller ends its load at once and waits for the next one.
//!
//! An agent sends load wherever its controller says, so it obeys nobody without the token, unless it listens on loopback
//! only ([`require_token`]). The connection is not encrypted: across a network that is not trusted, let the agent listen
//! on loopback and reach it through `ssh -L`.

mod check;
mod remote;
mod serve;
#[cfg(test)]
mod tests;
mod wire;

pub use check::{CONTACT_RANGES_MAX, COUNT_MAX, THREADS_MAX, TIME_MAX, USERS_MAX};
pub use remote::RemoteGroup;
pub use serve::{serve, serve_on};
pub use wire::{LINE_BYTES_MAX, PROTOCOL};

use std::net::SocketAddr;
use std::time::Duration;

/// Shortest token that an agent beyond loopback accepts as protection, in bytes.
pub const TOKEN_BYTES_MIN: usize = 16;

/// Longest token, in bytes; it must fit into the first line.
pub const TOKEN_BYTES_MAX: usize = 1024;

/// Times and limits of a connection between controller and agent; the default is for use, others are for tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How often the controller sends a Ping (1 s).
    pub ping_every: Duration,
    /// How long nothing may be heard before the peer counts as gone (5 s). Also how long a write may be stuck.
    pub silence_max: Duration,
    /// Within what time the first line must be there (5 s).
    pub greeting_max: Duration,
    /// How long the answer to a wrong token is held back (500 ms), so that guessing is slow.
    pub wrong_token_pause: Duration,
    /// Longest line, in bytes ([`LINE_BYTES_MAX`]); past it the connection ends.
    pub line_bytes_max: usize,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            ping_every: Duration::from_secs(1),
            silence_max: Duration::from_secs(5),
            greeting_max: Duration::from_secs(5),
            wrong_token_pause: Duration::from_millis(500),
            line_bytes_max: LINE_BYTES_MAX,
        }
    }
}

impl Settings {
    /// How long one read may wait before the clock is looked at again.
    fn slice(&self) -> Duration {
        (self.silence_max / 8).clamp(Duration::from_millis(5), Duration::from_millis(200))
    }
}

/// Whether an agent may listen there with this token.
///
/// # Errors
/// Beyond loopback there must be a token of at least [`TOKEN_BYTES_MIN`] bytes; nowhere may it be empty or longer than
/// [`TOKEN_BYTES_MAX`]. The sentence says what to do.
pub fn require_token(listen: SocketAddr, token: Option<&str>) -> Result<(), String> {
    const MAKE: &str = "make one with `head -c 24 /dev/urandom | base64 > token` and give it to the agent and to the \
                        controller with --agent-token-file";
    let Some(token) = token else {
        return match listen.ip().is_loopback() {
            true => Ok(()),
            false => Err(format!(
                "an agent sends load wherever its controller says, and {listen} can be reached from other hosts: it \
                 needs a token; {MAKE}"
            )),
        };
    };
    if token.is_empty() {
        return Err(format!("the token is empty; {MAKE}"));
    }
    if token.len() > TOKEN_BYTES_MAX {
        return Err(format!("the token is longer than {TOKEN_BYTES_MAX} bytes; {MAKE}"));
    }
    if token.len() < TOKEN_BYTES_MIN && !listen.ip().is_loopback() {
        return Err(format!("the token has fewer than {TOKEN_BYTES_MIN} bytes and could be guessed; {MAKE}"));
    }
    Ok(())
}
