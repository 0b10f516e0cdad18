//! Fuzz targets: functions of bytes that panic where an invariant of the server is broken.
//!
//! `fuzz/README.md` says how they are run. [`TARGETS`] is the one list of them; [`reference`] is what they
//! are held against.

#![forbid(unsafe_code)]

/// The part of `net` that reads WebSocket connections: it does no I/O and is not public there.
#[path = "../../crates/net/src"]
#[allow(dead_code, reason = "what a connection needs beside reading")]
mod net {
    pub(crate) mod websocket;
}
pub mod targets;

/// A target.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name, and that of its corpus in `fuzz/corpus/`.
    pub name: &'static str,
    /// What is asserted, in a sentence.
    pub asserts: &'static str,
    /// Runs one input. Panics for a finding.
    pub run: fn(&[u8]),
    /// Words that inputs are made of: a file of `fuzz/dictionaries/`.
    pub dictionary: Option<&'static str>,
    /// Longest input, in bytes.
    pub input_bytes_max: usize,
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target {
        name: "uri",
        asserts: "a URI is taken exactly if the reference takes it, with the same parts; equality \
                  ignores case and escapes",
        run: targets::uri::run,
        dictionary: Some("sip"),
        input_bytes_max: 256,
    },
    Target {
        name: "equality",
        asserts: "two URIs are equal exactly if the rules of RFC 3261 section 19.1.4, written out slowly, say so, \
                  in both directions",
        run: targets::equality::run,
        dictionary: Some("sip"),
        input_bytes_max: 512,
    },
    Target {
        name: "via",
        asserts: "Via values are taken exactly if the reference takes them, with the same parts",
        run: targets::via::run,
        dictionary: Some("sip"),
        input_bytes_max: 512,
    },
    Target {
        name: "name_addr",
        asserts: "an address is taken exactly if the reference takes it, with the same display name, URI \
                  and parameters",
        run: targets::name_addr::run,
        dictionary: Some("sip"),
        input_bytes_max: 512,
    },
    Target {
        name: "header",
        asserts: "each typed header field is taken exactly if the reference takes it, with the same \
                  value, however it is spelt",
        run: targets::header::run,
        dictionary: Some("sip"),
        input_bytes_max: 512,
    },
    Target {
        name: "lists",
        asserts: "a header field that is a list has the values that the reference finds, in their order, on however \
                  many lines",
        run: targets::lists::run,
        dictionary: Some("sip"),
        input_bytes_max: 512,
    },
    Target {
        name: "credentials",
        asserts: "credentials are taken exactly if the reference takes them, with the same parameters; a \
                  challenge is well formed whatever its realm",
        run: targets::credentials::run,
        dictionary: Some("sip"),
        input_bytes_max: 512,
    },
    Target {
        name: "datagram",
        asserts: "a message is acted on exactly if the reference would, means the same, and means the \
                  same once written again",
        run: targets::datagram::run,
        dictionary: Some("sip"),
        input_bytes_max: 4_096,
    },
    Target {
        name: "stream",
        asserts: "a stream is cut the same in whatever chunks it comes, and where the reference cuts it",
        run: targets::stream::run,
        dictionary: Some("sip"),
        input_bytes_max: 4_096,
    },
    Target {
        name: "edits",
        asserts: "edits change what they say and nothing else; undone edits change nothing",
        run: targets::edits::run,
        dictionary: Some("sip"),
        input_bytes_max: 4_096,
    },
    Target {
        name: "response",
        asserts: "a response to anything that parsed is a message; to a sound request a sound one, with \
                  its Vias, and no line that nobody wrote",
        run: targets::response::run,
        dictionary: Some("sip"),
        input_bytes_max: 4_096,
    },
    Target {
        name: "transactions",
        asserts: "whatever comes, tables keep their limits, what leaves is a message, an ACK is not \
                  answered, and an hour later nothing is left",
        run: targets::transactions::run,
        dictionary: None,
        input_bytes_max: 512,
    },
    Target {
        name: "registrar",
        asserts: "the location table does what a plain list does; undone is undone; a store that follows \
                  has what the table has",
        run: targets::registrar::run,
        dictionary: None,
        input_bytes_max: 512,
    },
    Target {
        name: "config",
        asserts: "a configuration is taken or has an error; every finding points at a place that there is",
        run: targets::config::run,
        dictionary: Some("config"),
        input_bytes_max: 2_048,
    },
    Target {
        name: "machine",
        asserts: "every program halts within its steps and memory, whatever its functions answer",
        run: targets::machine::run,
        dictionary: None,
        input_bytes_max: 512,
    },
    Target {
        name: "websocket",
        asserts: "a WebSocket connection comes to the same in whatever chunks, and to what the reference \
                  makes of it",
        run: targets::websocket::run,
        dictionary: Some("websocket"),
        input_bytes_max: 1_024,
    },
    Target {
        name: "canary",
        asserts: "fails: a URI's port is read wrongly on purpose, which a run must find",
        run: targets::uri::canary,
        dictionary: Some("sip"),
        input_bytes_max: 256,
    },
];

/// The target of this name.
#[must_use]
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
