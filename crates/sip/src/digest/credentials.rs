//! Digest credentials: reading and checking them (RFC 3261 §20.7, §20.28, §25.1; RFC 7616 §3.4; RFC 8760 §2.6).
//!
//! Tolerant of what phones write and of what all readers read alike: any order, any white space and folds
//! between parameters, empty list elements, parameters that are unknown, quotes where none belong and none
//! where they do. Strict where two readers might read two users: a parameter that counts is there once, and
//! control characters are refused.

use super::{Algorithm, Hex};
use crate::token;
use alloc::vec::Vec;
use core::fmt;

/// Longest credentials that are read, in bytes.
pub const CREDENTIALS_BYTES_MAX: usize = 4_096;

/// Digest credentials, from the value of an Authorization or Proxy-Authorization (RFC 3261 §20.7, §20.28).
///
/// What was quoted is here without its quotes and with its escapes, which is what RFC 2617 §3.2.1 hashes; RFC 7616
/// §3.3 hashes it without them. `Debug` shows neither the user nor the response.
#[derive(Clone, Copy)]
pub struct Credentials<'a> {
    /// `username`.
    pub username: &'a [u8],
    /// `realm`.
    pub realm: &'a [u8],
    /// `nonce`; phones of the IMS that have none yet send it empty, and the response, too (3GPP TS 24.229
    /// §5.1.1.2).
    pub nonce: &'a [u8],
    /// `uri`.
    pub uri: &'a [u8],
    /// `response`: hexadecimal digits, of any number.
    pub response: &'a [u8],
    /// `algorithm`; MD5 where none is named.
    pub algorithm: Algorithm,
    /// Whether it is the `-sess` form.
    pub session: bool,
    /// `cnonce`; empty where there is none.
    pub cnonce: &'a [u8],
    /// `opaque`; empty where there is none.
    pub opaque: &'a [u8],
    /// `qop=auth`, with its `nc` as it was written, 8 digits.
    pub nonce_count: Option<&'a [u8]>,
}

/// Why credentials cannot be read: each is a 400 (or as good as none, if the scheme is another).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CredentialsError {
    /// Another scheme than Digest.
    Scheme,
    /// Against the grammar of RFC 3261 §25.1, at this byte.
    Malformed(usize),
    /// Longer than [`CREDENTIALS_BYTES_MAX`].
    TooLong,
    /// This parameter twice: which one counts would be a guess.
    Twice(&'static str),
    /// This parameter is missing.
    Missing(&'static str),
    /// An algorithm that is unknown.
    Algorithm,
    /// A qop that is not `auth`.
    Qop,
    /// A parameter that says who it is in a way that was not offered and is not SIP's: `userhash=true`,
    /// `username*`.
    Unsupported(&'static str),
}

impl CredentialsError {
    /// The status to answer with (RFC 3261 §21.4.1).
    pub const fn status(self) -> u16 {
        400
    }
}

impl fmt::Display for CredentialsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CredentialsError::Scheme => f.write_str("the credentials are of another scheme than Digest"),
            CredentialsError::Malformed(at) => write!(f, "the credentials are malformed at byte {at}"),
            CredentialsError::TooLong => {
                write!(f, "the credentials are longer than {CREDENTIALS_BYTES_MAX} bytes")
            }
            CredentialsError::Twice(name) => write!(f, "the credentials have {name} twice"),
            CredentialsError::Missing(name) => write!(f, "the credentials have no {name}"),
            CredentialsError::Algorithm => f.write_str("the credentials name an unknown algorithm"),
            CredentialsError::Qop => f.write_str("the credentials have another qop than auth"),
            CredentialsError::Unsupported(name) => {
                write!(f, "the credentials use {name}, which is not spoken")
            }
        }
    }
}

impl core::error::Error for CredentialsError {}

impl<'a> Credentials<'a> {
    /// Reads the value of the header.
    ///
    /// # Errors
    ///
    /// See [`CredentialsError`].
    pub fn parse(value: &'a [u8]) -> Result<Credentials<'a>, CredentialsError> {
        Given::read(value)?.credentials()
    }

    /// Whether the response is right for this secret and method; takes as long whichever byte is wrong.
    ///
    /// `ha1` is `H(user:realm:password)` in hexadecimal, which [`Algorithm::hash_joined`] makes; for `-sess`
    /// the session's key is made from it. A secret of another length than the algorithm's is never right.
    /// `method` is that of the request line. The response may be in upper case, which RFC 3261 §25.1 (`LHEX`)
    /// does not have. A `cnonce` with escapes may be hashed with them or without.
    pub fn is_right(&self, ha1: &[u8], method: &[u8]) -> bool {
        let (Some(ha1), Some(response)) = (Hex::parse(ha1), Hex::parse(self.response)) else { return false };
        if ha1.as_bytes().len() != self.algorithm.hex_len() {
            return false;
        }
        let is_expected = |cnonce: &[u8]| self.expected(&ha1, method, cnonce) == response;
        // No nonce of ours and no SIP URI has a backslash; a cnonce may.
        is_expected(self.cnonce)
            || self.cnonce.contains(&b'\\')
                && is_expected(&without_escapes(self.cnonce).copied().collect::<Vec<u8>>())
    }

    /// The right response (RFC 7616 §3.4.1; without a qop RFC 2617 §3.2.2.1).
    fn expected(&self, ha1: &Hex, method: &[u8], cnonce: &[u8]) -> Hex {
        let hash = |parts: &[&[u8]]| self.algorithm.hash_joined(parts);
        // RFC 7616 §3.4.2: the hash in hexadecimal goes into a session's key. (The sample code of RFC 2617 §5
        // has it in binary; erratum 1649 mends that.)
        let key = if self.session { hash(&[ha1.as_bytes(), self.nonce, cnonce]) } else { *ha1 };
        let ha2 = hash(&[method, self.uri]);
        match self.nonce_count {
            Some(count) => hash(&[key.as_bytes(), self.nonce, count, cnonce, b"auth", ha2.as_bytes()]),
            None => hash(&[key.as_bytes(), self.nonce, ha2.as_bytes()]),
        }
    }

    /// The number in `nc`; `None` without a qop.
    pub fn count(&self) -> Option<u32> {
        let digits = self.nonce_count?.iter().map(|&digit| token::hex(digit).map_or(0, u32::from));
        Some(digits.fold(0, |count, digit| count << 4 | digit))
    }

    /// Whether they are for this realm. Case counts; escapes in what was written mean the same as none.
    pub fn is_for(&self, realm: &[u8]) -> bool {
        without_escapes(self.realm).eq(realm)
    }
}

/// What a quoted string means (RFC 3261 §25.1 `quoted-pair`).
fn without_escapes(quoted: &[u8]) -> impl Iterator<Item = &u8> {
    let mut escaped = false;
    quoted.iter().filter(move |&&byte| {
        escaped = byte == b'\\' && !escaped;
        !escaped
    })
}

impl fmt::Debug for Credentials<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("algorithm", &self.algorithm)
            .field("session", &self.session)
            .field("count", &self.count())
            .finish_non_exhaustive()
    }
}

/// The parameters that count, by their place in [`Given::values`].
const NAMES: [&str; 12] = [
    "username",
    "realm",
    "nonce",
    "uri",
    "response",
    "algorithm",
    "cnonce",
    "opaque",
    "qop",
    "nc",
    "userhash",
    "username*",
];
const USERNAME: usize = 0;
const REALM: usize = 1;
const NONCE: usize = 2;
const URI: usize = 3;
const RESPONSE: usize = 4;
const ALGORITHM: usize = 5;
const CNONCE: usize = 6;
const OPAQUE: usize = 7;
const QOP: usize = 8;
const NC: usize = 9;
const USERHASH: usize = 10;
const USERNAME_EXT: usize = 11;

/// Where the values of the parameters that count are.
struct Given<'a> {
    value: &'a [u8],
    values: [Option<(usize, usize)>; NAMES.len()],
}

impl<'a> Given<'a> {
    /// `"Digest" LWS dig-resp *(COMMA dig-resp)` (RFC 3261 §25.1).
    fn read(value: &'a [u8]) -> Result<Given<'a>, CredentialsError> {
        let mut at = token::skip_lws(value, 0);
        let scheme_end = token::skip_token(value, at);
        if !token::slice(value, at, scheme_end).eq_ignore_ascii_case(b"Digest") {
            return Err(CredentialsError::Scheme);
        }
        if value.len() > CREDENTIALS_BYTES_MAX {
            return Err(CredentialsError::TooLong);
        }
        at = token::skip_lws(value, scheme_end);
        if at == scheme_end && at < value.len() {
            return Err(CredentialsError::Malformed(at));
        }
        let mut given = Given { value, values: [None; NAMES.len()] };
        loop {
            // An empty element of the list is none (RFC 9110 §5.6.1.2).
            while value.get(at) == Some(&b',') {
                at = token::skip_lws(value, at + 1);
            }
            if at >= value.len() {
                return Ok(given);
            }
            at = token::skip_lws(value, given.parameter(at)?);
            if at < value.len() && value.get(at) != Some(&b',') {
                return Err(CredentialsError::Malformed(at));
            }
        }
    }

    /// Reads the parameter at `at`; gives the index behind it.
    fn parameter(&mut self, at: usize) -> Result<usize, CredentialsError> {
        let name_end = token::skip_token(self.value, at);
        let equals = token::skip_lws(self.value, name_end);
        if name_end == at || self.value.get(equals) != Some(&b'=') {
            return Err(CredentialsError::Malformed(equals));
        }
        let start = token::skip_lws(self.value, equals + 1);
        let (inside, end) = if self.value.get(start) == Some(&b'"') {
            let close = self.quoted_end(start + 1)?;
            ((start + 1, close), close + 1)
        } else {
            let end = token::skip_param_value(self.value, start);
            if end == start {
                return Err(CredentialsError::Malformed(start));
            }
            ((start, end), end)
        };
        let name = token::slice(self.value, at, name_end);
        let known = NAMES.iter().zip(&mut self.values);
        let place = known.into_iter().find(|(known, _)| known.as_bytes().eq_ignore_ascii_case(name));
        if let Some((known, place)) = place
            && place.replace(inside).is_some()
        {
            return Err(CredentialsError::Twice(known));
        }
        Ok(end)
    }

    /// The index of the quote that ends the string whose inside starts at `at`. A control character inside is
    /// refused, even one in a fold: one reader would hash it, another what it stands for.
    fn quoted_end(&self, mut at: usize) -> Result<usize, CredentialsError> {
        let mut escaped = false;
        while let Some(&byte) = self.value.get(at) {
            match byte {
                b'"' if !escaped => return Ok(at),
                byte if byte.is_ascii_control() && byte != b'\t' => break,
                byte => escaped = byte == b'\\' && !escaped,
            }
            at += 1;
        }
        Err(CredentialsError::Malformed(at))
    }

    /// What was found means something.
    fn credentials(&self) -> Result<Credentials<'a>, CredentialsError> {
        // RFC 7616 §3.4 has these two for HTTP; SIP's grammar has neither, and usernames are UTF-8 there
        // anyway.
        if self.get(USERNAME_EXT).is_some() {
            return Err(CredentialsError::Unsupported(NAMES[USERNAME_EXT]));
        }
        if self.get(USERHASH).is_some_and(|value| !value.eq_ignore_ascii_case(b"false")) {
            return Err(CredentialsError::Unsupported(NAMES[USERHASH]));
        }
        let algorithm = self.get(ALGORITHM).map_or(Some((Algorithm::Md5, false)), Algorithm::parse);
        let (algorithm, session) = algorithm.ok_or(CredentialsError::Algorithm)?;
        let nonce_count = self.nonce_count()?;
        let cnonce = if nonce_count.is_some() || session {
            self.need(CNONCE)?
        } else {
            self.get(CNONCE).unwrap_or_default()
        };
        Ok(Credentials {
            username: self.need(USERNAME)?,
            realm: self.need(REALM)?,
            nonce: self.need(NONCE)?,
            uri: self.need(URI)?,
            response: self.hex(RESPONSE)?,
            algorithm,
            session,
            cnonce,
            opaque: self.get(OPAQUE).unwrap_or_default(),
            nonce_count,
        })
    }

    /// `nc` where there is a qop: 8 digits (RFC 3261 §25.1 `nc-value`). Without a qop it means nothing.
    fn nonce_count(&self) -> Result<Option<&'a [u8]>, CredentialsError> {
        match self.get(QOP) {
            None => Ok(None),
            Some(qop) if !qop.eq_ignore_ascii_case(b"auth") => Err(CredentialsError::Qop),
            Some(_) => match self.hex(NC)? {
                count if count.len() == 8 => Ok(Some(count)),
                _ => Err(self.malformed(NC)),
            },
        }
    }

    fn get(&self, name: usize) -> Option<&'a [u8]> {
        let (start, end) = self.values.get(name).copied().flatten()?;
        Some(token::slice(self.value, start, end))
    }

    fn need(&self, name: usize) -> Result<&'a [u8], CredentialsError> {
        self.get(name).ok_or(CredentialsError::Missing(NAMES[name]))
    }

    fn hex(&self, name: usize) -> Result<&'a [u8], CredentialsError> {
        let value = self.need(name)?;
        let digits = value.iter().all(|&digit| token::hex(digit).is_some());
        if digits { Ok(value) } else { Err(self.malformed(name)) }
    }

    /// The value of this parameter is against its grammar.
    fn malformed(&self, name: usize) -> CredentialsError {
        let at = self.values.get(name).copied().flatten().map_or(0, |(start, _)| start);
        CredentialsError::Malformed(at)
    }
}
