//! The targets, one file each.

pub mod config;
pub mod credentials;
pub mod datagram;
pub mod edits;
pub mod equality;
pub mod header;
mod input;
pub mod lists;
pub mod machine;
mod meaning;
pub mod name_addr;
pub mod registrar;
pub mod response;
pub mod stream;
pub mod transactions;
pub mod uri;
pub mod via;
pub mod websocket;

use reference::Judged;
use std::fmt::Debug;

/// What the server makes of a text and what the reference does are the same; gives what was taken by both.
///
/// # Panics
/// If one takes the text and the other does not.
#[track_caller]
fn agreed<T, E: Debug, R>(text: &[u8], ours: Result<T, E>, reference: Judged<R>) -> Option<(T, R)> {
    match (ours, reference) {
        (Ok(ours), Judged::Yes(reference)) => Some((ours, reference)),
        (Err(_), Judged::No) | (_, Judged::TooLong) => None,
        (Ok(_), Judged::No) => panic!("taken, and the reference refuses it: {}", show(text)),
        (Err(error), Judged::Yes(_)) => {
            panic!("refused ({error:?}), and the reference takes it: {}", show(text))
        }
    }
}

/// Bytes for people.
fn show(text: &[u8]) -> String {
    format!("\"{}\"", text.escape_ascii())
}
