//! Challenges (RFC 3261 §20.27, §20.44; RFC 7616 §3.3; RFC 8760 §2.3).

use super::Algorithm;
use alloc::vec::Vec;

/// A challenge to be written. Where several algorithms are offered each has a header field of its own, the
/// most preferred on top (RFC 8760 §2.3).
#[derive(Clone, Copy, Debug)]
pub struct Challenge<'a> {
    /// `realm`.
    pub realm: &'a [u8],
    /// `nonce`.
    pub nonce: &'a [u8],
    /// `algorithm`.
    pub algorithm: Algorithm,
    /// Whether `qop="auth"` is offered.
    pub qop: bool,
    /// Whether the last credentials were right, but for their nonce.
    pub stale: bool,
}

impl Challenge<'_> {
    /// Appends the value of a WWW-Authenticate or Proxy-Authenticate header, without a line end.
    ///
    /// Quotes and backslashes of realm and nonce are escaped. What cannot stand in a quoted string (RFC 3261
    /// §25.1), a line end above all, is left out.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"Digest realm=\"");
        push_escaped(self.realm, out);
        out.extend_from_slice(b"\", nonce=\"");
        push_escaped(self.nonce, out);
        out.extend_from_slice(b"\", algorithm=");
        out.extend_from_slice(self.algorithm.name().as_bytes());
        if self.qop {
            // RFC 3261 §22.4 item 8: a server sends a qop, in quotes.
            out.extend_from_slice(b", qop=\"auth\"");
        }
        if self.stale {
            out.extend_from_slice(b", stale=true");
        }
    }
}

fn push_escaped(text: &[u8], out: &mut Vec<u8>) {
    for &byte in text {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            byte if byte.is_ascii_control() => {}
            byte => out.push(byte),
        }
    }
}
