//! A slow reader of SIP that shares nothing with the crate `sip`: the oracle for accept and reject, and for
//! values.
//!
//! The grammar is RFC 3261 §25.1 itself ([`abnf`] reads it, [`matcher`] matches it), with the server's
//! deviations laid over it (`deviations.abnf`, each with its reason). What no grammar can say is in `rules`.
//! [`message`] reads whole messages, [`frames`] WebSocket frames.

#![forbid(unsafe_code)]

pub mod abnf;
pub mod frames;
pub mod matcher;
pub mod message;
mod rules;
pub mod values;

use abnf::Grammar;
use matcher::Matcher;
use std::sync::LazyLock;

/// RFC 3261 §25.1 to the letter.
pub static STANDARD: LazyLock<Grammar> = LazyLock::new(|| Grammar::read(&[include_str!("rfc3261.abnf")]));

/// The same with our deviations.
pub static OURS: LazyLock<Grammar> =
    LazyLock::new(|| Grammar::read(&[include_str!("rfc3261.abnf"), include_str!("deviations.abnf")]));

/// What the reference says of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judged<T> {
    /// It is one, and means this.
    Yes(T),
    /// It is none.
    No,
    /// It is longer than [`matcher::TEXT_BYTES_MAX`]: the reference would be too slow.
    TooLong,
}

impl<T> Judged<T> {
    /// What it means, if it is one.
    pub fn yes(self) -> Option<T> {
        match self {
            Judged::Yes(value) => Some(value),
            Judged::No | Judged::TooLong => None,
        }
    }
}

/// Whether a text is what a rule of `grammar` says; `None` if it is too long.
#[must_use]
pub fn accepts(grammar: &Grammar, rule: &str, text: &[u8]) -> Option<bool> {
    Some(Matcher::new(grammar, text)?.accepts(rule))
}

/// Whether every CR and LF of a header field's value is part of a fold (RFC 3261 §7.3.1), as it is once its
/// lines have been told apart. Others are no values.
#[must_use]
pub fn is_value(text: &[u8]) -> bool {
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        match byte {
            b'\r' if matches!(text.get(at + 1..at + 3), Some([b'\n', b' ' | b'\t'])) => at += 2,
            b'\r' | b'\n' => return false,
            _ => at += 1,
        }
    }
    true
}
