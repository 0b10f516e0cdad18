//! Digest authentication, the client's side (RFC 3261 §22; RFC 2617; RFC 7616; RFC 8760).
//!
//! MD5, SHA-256 and SHA-512-256 with their `-sess` forms, with `qop=auth` or without any qop. `auth-int` is not spoken:
//! a server that offers nothing else is refused with an error that says so.

use sha2::Digest;
use std::fmt;

/// Longest challenge that is read, in bytes.
pub(crate) const CHALLENGE_BYTES_MAX: usize = 8192;

/// A challenge of a server, from its WWW-Authenticate or Proxy-Authenticate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Challenge {
    proxy: bool,
    algorithm: Algorithm,
    /// A `-sess` algorithm.
    session: bool,
    /// The challenge named its algorithm; the answer names it then too (RFC 2617 §3.2.2).
    algorithm_named: bool,
    /// `qop` was there and offered `auth`.
    qop: bool,
    stale: bool,
    /// These three as they stood between the quotes, escapes included: that is what RFC 2617 §3.2.2.1 hashes
    /// (`unq(X)` takes nothing but the quotes away), and written back they are the same string again.
    realm: Vec<u8>,
    nonce: Vec<u8>,
    opaque: Option<Vec<u8>>,
}

/// Who answers a challenge.
#[derive(Clone, Copy)]
pub(crate) struct Credentials<'a> {
    /// The user's name: the user part of the address-of-record.
    pub(crate) name: &'a [u8],
    /// The password.
    pub(crate) password: &'a [u8],
}

/// Why a challenge cannot be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChallengeError {
    /// No challenge at all.
    Absent,
    /// Another scheme than Digest.
    Scheme,
    /// Not the grammar of RFC 3261 §25.1 at this byte of the value.
    Malformed(usize),
    /// Longer than [`CHALLENGE_BYTES_MAX`].
    TooLong,
    /// This parameter is missing.
    Missing(&'static str),
    /// An algorithm that is unknown.
    Algorithm,
    /// A qop, but not `auth`.
    Qop,
    /// A `-sess` algorithm without a qop: its first part needs a cnonce, which may not be sent without qop (RFC 2617
    /// §3.2.2).
    SessionWithoutQop,
}

impl fmt::Display for ChallengeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChallengeError::Absent => f.write_str("401 or 407 without a challenge; the server must send one"),
            ChallengeError::Scheme => {
                f.write_str("the challenge is not Digest; let the server ask for Digest")
            }
            ChallengeError::Malformed(at) => write!(f, "the challenge is malformed at byte {at}"),
            ChallengeError::TooLong => write!(f, "the challenge is longer than {CHALLENGE_BYTES_MAX} bytes"),
            ChallengeError::Missing(what) => write!(f, "the challenge has no {what}"),
            ChallengeError::Algorithm => f.write_str(
                "unknown algorithm; let the server offer MD5, SHA-256 or SHA-512-256 (with or without -sess)",
            ),
            ChallengeError::Qop => {
                f.write_str("only qop=auth is supported, not auth-int; let the server offer auth (too)")
            }
            ChallengeError::SessionWithoutQop => {
                f.write_str("a -sess algorithm needs a qop; let the server offer auth")
            }
        }
    }
}

impl std::error::Error for ChallengeError {}

/// The challenge to answer, of all that a response has: the values of its WWW-Authenticate or Proxy-Authenticate fields.
///
/// A server lists them in the order in which it would like them used (RFC 8760 §2.3), and a client should take the
/// topmost that it supports (§2.4); so do we, whatever its strength: it is the work that the server chose that is to be
/// measured. Several realms (proxies in a row that all challenge) are not told apart: the topmost is answered.
///
/// # Errors
/// None can be answered: why not the topmost one.
pub(crate) fn choose<'a>(
    values: impl Iterator<Item = &'a [u8]>,
    proxy: bool,
) -> Result<Challenge, ChallengeError> {
    let mut first_error = None;
    for value in values {
        match Challenge::parse(value, proxy) {
            Ok(challenge) => return Ok(challenge),
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    Err(first_error.unwrap_or(ChallengeError::Absent))
}

impl Challenge {
    /// Reads the value of one WWW-Authenticate field, or of a Proxy-Authenticate field if `proxy`.
    ///
    /// # Errors
    /// It is not one that can be answered.
    pub(crate) fn parse(header_value: &[u8], proxy: bool) -> Result<Challenge, ChallengeError> {
        if header_value.len() > CHALLENGE_BYTES_MAX {
            return Err(ChallengeError::TooLong);
        }
        let mut reader = Reader { text: header_value, at: 0 };
        reader.skip_space();
        if !reader.token().eq_ignore_ascii_case(b"Digest") {
            return Err(ChallengeError::Scheme);
        }
        let given = Given::read(&mut reader)?;
        let (algorithm, session) = given.algorithm.map_or(Ok((Algorithm::Md5, false)), Algorithm::of)?;
        let qop = given.offers_auth()?;
        if session && !qop {
            return Err(ChallengeError::SessionWithoutQop);
        }
        Ok(Challenge {
            proxy,
            algorithm,
            session,
            algorithm_named: given.algorithm.is_some(),
            qop,
            stale: given.stale.is_some_and(|stale| stale.eq_ignore_ascii_case(b"true")),
            realm: given.realm.ok_or(ChallengeError::Missing("realm"))?.to_vec(),
            nonce: given.nonce.ok_or(ChallengeError::Missing("nonce"))?.to_vec(),
            opaque: given.opaque.map(<[u8]>::to_vec),
        })
    }

    /// Whether only the nonce was too old: the same credentials are worth another try (RFC 2617 §3.2.1).
    pub(crate) fn is_stale(&self) -> bool {
        self.stale
    }

    /// The nonce as it stood between the quotes.
    #[cfg(test)]
    pub(crate) fn nonce(&self) -> &[u8] {
        &self.nonce
    }

    /// The realm as it stood between the quotes.
    #[cfg(test)]
    pub(crate) fn realm(&self) -> &[u8] {
        &self.realm
    }

    /// Appends the header field that answers this challenge, with its name and its line end.
    ///
    /// `nonce_count` is 1 for the first request with this nonce and one more for each further one. With a `-sess`
    /// algorithm the session's key is made of the first `cnonce` (RFC 2617 §3.2.2.2): pass the same one with each
    /// request of the same nonce. Without qop neither of the two is sent. Quotes in names are escaped and control
    /// characters left out, so nothing that is passed can end the field.
    pub(crate) fn authorize(
        &self,
        c: &Credentials<'_>,
        method: &[u8],
        uri: &[u8],
        nonce_count: u32,
        cnonce: &[u8],
        out: &mut Vec<u8>,
    ) {
        let count = nonce_count_text(nonce_count);
        let response = self.response(c, method, uri, &count, cnonce);
        let field: &[u8] = if self.proxy { b"Proxy-Authorization" } else { b"Authorization" };
        out.extend_from_slice(field);
        out.extend_from_slice(b": Digest username=\"");
        push_escaped(c.name, out);
        out.extend_from_slice(b"\", realm=\"");
        out.extend_from_slice(&self.realm);
        out.extend_from_slice(b"\", nonce=\"");
        out.extend_from_slice(&self.nonce);
        out.extend_from_slice(b"\", uri=\"");
        push_escaped(uri, out);
        out.extend_from_slice(b"\", response=\"");
        out.extend_from_slice(response.as_bytes());
        out.push(b'"');
        if self.algorithm_named {
            out.extend_from_slice(b", algorithm=");
            out.extend_from_slice(self.algorithm.name().as_bytes());
            out.extend_from_slice(if self.session { b"-sess" } else { b"" });
        }
        if let Some(opaque) = &self.opaque {
            out.extend_from_slice(b", opaque=\"");
            out.extend_from_slice(opaque);
            out.push(b'"');
        }
        if self.qop {
            out.extend_from_slice(b", qop=auth, nc=");
            out.extend_from_slice(&count);
            out.extend_from_slice(b", cnonce=\"");
            push_escaped(cnonce, out);
            out.push(b'"');
        }
        out.extend_from_slice(b"\r\n");
    }

    /// The request-digest of RFC 7616 §3.4.1.
    fn response(&self, c: &Credentials<'_>, method: &[u8], uri: &[u8], count: &[u8], cnonce: &[u8]) -> Hex {
        let hash = |parts: &[&[u8]]| self.algorithm.hash(parts);
        let mut a1 = hash(&[c.name, b":", &self.realm, b":", c.password]);
        if self.session {
            a1 = hash(&[a1.as_bytes(), b":", &self.nonce, b":", cnonce]);
        }
        let a2 = hash(&[method, b":", uri]);
        if self.qop {
            hash(&[a1.as_bytes(), b":", &self.nonce, b":", count, b":", cnonce, b":auth:", a2.as_bytes()])
        } else {
            // RFC 2617 §3.2.2.1: the form of RFC 2069.
            hash(&[a1.as_bytes(), b":", &self.nonce, b":", a2.as_bytes()])
        }
    }
}

/// A hash function of digest authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Algorithm {
    Md5,
    Sha256,
    Sha512T256,
}

impl Algorithm {
    const ALL: [Algorithm; 3] = [Algorithm::Md5, Algorithm::Sha256, Algorithm::Sha512T256];

    /// The algorithm of a token, and whether it is the `-sess` form.
    fn of(token: &[u8]) -> Result<(Algorithm, bool), ChallengeError> {
        let named =
            |name: &[u8]| Algorithm::ALL.into_iter().find(|a| a.name().as_bytes().eq_ignore_ascii_case(name));
        if let Some(algorithm) = named(token) {
            return Ok((algorithm, false));
        }
        let (name, end) = token.split_at(token.len().saturating_sub(b"-sess".len()));
        let session = end.eq_ignore_ascii_case(b"-sess");
        named(name).filter(|_| session).map(|algorithm| (algorithm, true)).ok_or(ChallengeError::Algorithm)
    }

    fn name(self) -> &'static str {
        match self {
            Algorithm::Md5 => "MD5",
            Algorithm::Sha256 => "SHA-256",
            Algorithm::Sha512T256 => "SHA-512-256",
        }
    }

    fn hash(self, parts: &[&[u8]]) -> Hex {
        match self {
            Algorithm::Md5 => Hex::of::<md5::Md5>(parts),
            Algorithm::Sha256 => Hex::of::<sha2::Sha256>(parts),
            Algorithm::Sha512T256 => Hex::of::<sha2::Sha512_256>(parts),
        }
    }
}

/// A hash in lower-case hexadecimal, of up to 32 bytes.
struct Hex {
    text: [u8; 64],
    len: usize,
}

impl Hex {
    fn of<D: Digest>(parts: &[&[u8]]) -> Hex {
        let mut hasher = D::new();
        for part in parts {
            hasher.update(part);
        }
        let mut hex = Hex { text: [0; 64], len: 0 };
        for (place, byte) in hex.text.chunks_exact_mut(2).zip(hasher.finalize()) {
            place.copy_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
            hex.len += 2;
        }
        hex
    }

    fn as_bytes(&self) -> &[u8] {
        self.text.get(..self.len).unwrap_or(&[])
    }
}

/// The hexadecimal digit of a number below 16.
fn digit(value: u8) -> u8 {
    if value < 10 { b'0' + value } else { b'a' + value - 10 }
}

/// Eight hexadecimal digits (RFC 3261 §25.1 `nc-value`).
fn nonce_count_text(count: u32) -> [u8; 8] {
    let mut text = [0; 8];
    for (place, byte) in text.chunks_exact_mut(2).zip(count.to_be_bytes()) {
        place.copy_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
    }
    text
}

/// Whether a byte may stand in a line of text: no control character but the tab.
fn is_text(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 127)
}

/// Appends text for between quotes: quotes and backslashes escaped, control characters left out.
fn push_escaped(text: &[u8], out: &mut Vec<u8>) {
    for &byte in text {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            _ if is_text(byte) => out.push(byte),
            _ => {}
        }
    }
}

/// The parameters of a challenge that matter, as they were written.
#[derive(Default)]
struct Given<'a> {
    realm: Option<&'a [u8]>,
    nonce: Option<&'a [u8]>,
    opaque: Option<&'a [u8]>,
    algorithm: Option<&'a [u8]>,
    qop: Option<&'a [u8]>,
    stale: Option<&'a [u8]>,
}

impl<'a> Given<'a> {
    /// Reads `name=value` pairs up to the end. A parameter of ours that comes twice is malformed; others are skipped.
    fn read(reader: &mut Reader<'a>) -> Result<Given<'a>, ChallengeError> {
        let mut given = Given::default();
        loop {
            reader.skip_space();
            while reader.take(b',') {
                reader.skip_space();
            }
            let at = reader.at;
            if at == reader.text.len() {
                return Ok(given);
            }
            let (name, value) = reader.parameter().ok_or(ChallengeError::Malformed(reader.at))?;
            let twice = given.place(name).is_some_and(|place| place.replace(value).is_some());
            reader.skip_space();
            if twice {
                return Err(ChallengeError::Malformed(at));
            }
            if reader.at < reader.text.len() && !reader.take(b',') {
                return Err(ChallengeError::Malformed(reader.at));
            }
        }
    }

    fn place(&mut self, name: &[u8]) -> Option<&mut Option<&'a [u8]>> {
        let places: [(&[u8], &mut Option<&'a [u8]>); 6] = [
            (b"realm", &mut self.realm),
            (b"nonce", &mut self.nonce),
            (b"opaque", &mut self.opaque),
            (b"algorithm", &mut self.algorithm),
            (b"qop", &mut self.qop),
            (b"stale", &mut self.stale),
        ];
        places.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, place)| place)
    }

    /// Whether `auth` is among the values of qop; without a qop, or with an empty one, it is not.
    fn offers_auth(&self) -> Result<bool, ChallengeError> {
        let mut offered = self.qop.unwrap_or_default().split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
        if offered.clone().all(<[u8]>::is_empty) {
            return Ok(false);
        }
        if offered.any(|value| value.eq_ignore_ascii_case(b"auth")) {
            Ok(true)
        } else {
            Err(ChallengeError::Qop)
        }
    }
}

/// Reads a challenge from left to right.
struct Reader<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        let there = self.peek() == Some(byte);
        self.at += usize::from(there);
        there
    }

    /// The bytes from here on that are of a kind.
    fn while_is(&mut self, kind: impl Fn(u8) -> bool) -> &'a [u8] {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let len = rest.iter().position(|&byte| !kind(byte)).unwrap_or(rest.len());
        self.at += len;
        rest.get(..len).unwrap_or_default()
    }

    /// White space; a line end inside of a field's value can only be a folding (RFC 3261 §7.3.1).
    fn skip_space(&mut self) {
        self.while_is(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n'));
    }

    fn token(&mut self) -> &'a [u8] {
        self.while_is(|byte| byte.is_ascii_alphanumeric() || b"-.!%*_+`'~".contains(&byte))
    }

    /// `name = value`. The value is a quoted string, or, whatever the parameter, anything that needs no quotes: servers
    /// differ in which ones they quote.
    fn parameter(&mut self) -> Option<(&'a [u8], &'a [u8])> {
        let name = self.token();
        self.skip_space();
        if name.is_empty() || !self.take(b'=') {
            return None;
        }
        self.skip_space();
        if self.take(b'"') {
            return Some((name, self.quoted()?));
        }
        let value = self.while_is(|byte| byte > b' ' && byte != 127 && !b",\"\\".contains(&byte));
        (!value.is_empty()).then_some((name, value))
    }

    /// What is between the quotes, the first of which was taken. No control character may be in it, escaped or not: it
    /// will stand in a header field of ours.
    fn quoted(&mut self) -> Option<&'a [u8]> {
        let start = self.at;
        loop {
            self.while_is(|byte| is_text(byte) && byte != b'"' && byte != b'\\');
            match self.peek()? {
                b'"' => break,
                b'\\' if self.text.get(self.at + 1).is_some_and(|&byte| is_text(byte)) => self.at += 2,
                _ => return None,
            }
        }
        let inside = self.text.get(start..self.at);
        self.at += 1;
        inside
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MUFASA: Credentials<'_> = Credentials { name: b"Mufasa", password: b"Circle of Life" };

    fn line(
        challenge: &Challenge,
        credentials: &Credentials<'_>,
        method: &str,
        uri: &str,
        count: u32,
        cnonce: &str,
    ) -> String {
        let mut out = Vec::new();
        challenge.authorize(
            credentials,
            method.as_bytes(),
            uri.as_bytes(),
            count,
            cnonce.as_bytes(),
            &mut out,
        );
        String::from_utf8(out).expect("UTF-8")
    }

    fn parsed(text: &str) -> Challenge {
        Challenge::parse(text.as_bytes(), false).expect(text)
    }

    /// The value of `response` in a line.
    fn response(line: &str) -> &str {
        line.split("response=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a response")
    }

    #[test]
    fn example_of_rfc_2617_section_3_5() {
        let challenge = parsed(
            "Digest realm=\"testrealm@host.com\", qop=\"auth,auth-int\", nonce=\"dcd98b7102dd2f0e8b11d0f600bfb0c093\", \
             opaque=\"5ccc069c403ebaf9f0171e9517f40e41\"",
        );
        let credentials = Credentials { name: b"Mufasa", password: b"Circle Of Life" };
        assert_eq!(
            line(&challenge, &credentials, "GET", "/dir/index.html", 1, "0a4f113b"),
            "Authorization: Digest username=\"Mufasa\", realm=\"testrealm@host.com\", \
             nonce=\"dcd98b7102dd2f0e8b11d0f600bfb0c093\", uri=\"/dir/index.html\", \
             response=\"6629fae49393a05397450978507c4ef1\", opaque=\"5ccc069c403ebaf9f0171e9517f40e41\", \
             qop=auth, nc=00000001, cnonce=\"0a4f113b\"\r\n"
        );
    }

    #[test]
    fn examples_of_rfc_7616_section_3_9_1() {
        for (algorithm, expected) in [
            ("MD5", "8ca523f5e9506fed4657c9700eebdbec"),
            ("SHA-256", "753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1"),
        ] {
            let challenge = parsed(&format!(
                "Digest realm=\"http-auth@example.org\", qop=\"auth, auth-int\", algorithm={algorithm}, \
                 nonce=\"7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v\", \
                 opaque=\"FQhe/qaU925kfnzjCev0ciny7QMkPqMAFRtzCUYo5tdS\""
            ));
            let cnonce = "f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ";
            let line = line(&challenge, &MUFASA, "GET", "/dir/index.html", 1, cnonce);
            assert_eq!(response(&line), expected);
            assert!(line.contains(&format!(", algorithm={algorithm}, ")), "{line}");
        }
    }

    /// The expected values come from Python's hashlib.
    #[test]
    fn every_algorithm_with_and_without_session_and_qop_agrees_with_hashlib() {
        for (algorithm, qop, expected) in [
            ("MD5", true, "120c0c689ff1d4aa10f8010b362f429a"),
            ("MD5-sess", true, "09297e0aa9512b97ae7404f2dcfa071c"),
            ("MD5", false, "74e725b09aa1697ad4c428f048cbdcd2"),
            ("sha-256", true, "d1afd31a1dd2759ce15adce7e734902d3980032d310ee467db43346b74faf0fa"),
            ("SHA-256-sess", true, "5b43bc5e9c029668944031e54fdd94e029d257c2fdeb076a132adabb4568695d"),
            ("SHA-256", false, "d44760d384ad8a37e997fbd5837f803f9cef0661e0a474cc59ac8889cb19ca6f"),
            ("SHA-512-256", true, "c63bfd53bb92f6d44fab012ccc73e88293085d5537f917020e24b7dd9a8ee061"),
            ("SHA-512-256-SESS", true, "a989ed6daac542f2c30253952f1f7b43e95135b7ed649c924995bf4f22dd9fda"),
            ("SHA-512-256", false, "17c2bd6eebe3547ebfea647ba1e0170b10327d09ac3e0d18d04f6e11e86fede3"),
        ] {
            let qop = if qop { ",qop=\"auth\"" } else { "" };
            let text = format!(
                "Digest realm=\"sip.example.com\",nonce=\"abcdef0123456789\",algorithm={algorithm}{qop}"
            );
            let credentials = Credentials { name: b"user7", password: b"password7" };
            let line = line(&parsed(&text), &credentials, "REGISTER", "sip:example.com:5070", 0xbeef, "c1c2");
            assert_eq!(response(&line), expected, "{text}");
            assert_eq!(line.contains("nc=0000beef, cnonce=\"c1c2\""), !qop.is_empty(), "{line}");
        }
    }

    #[test]
    fn a_proxy_is_answered_in_its_own_field_and_parts_can_be_asked_for() {
        let text = b"digest Realm = \"r\" ,, NONCE=\"n\\\"1\",\r\n\tstale=TRUE, other=x;y, opaque=\"\"";
        let challenge = Challenge::parse(text, true).expect("a challenge");
        assert!(challenge.is_stale());
        assert_eq!((challenge.realm(), challenge.nonce()), (&b"r"[..], &b"n\\\"1"[..]));
        let line = line(&challenge, &MUFASA, "INVITE", "sip:bob@b", 1, "");
        assert!(
            line.starts_with(
                "Proxy-Authorization: Digest username=\"Mufasa\", realm=\"r\", nonce=\"n\\\"1\", "
            ),
            "{line}"
        );
        assert!(line.ends_with(", opaque=\"\"\r\n"), "{line}");
        assert!(!parsed("Digest realm=\"r\", nonce=\"n\"").is_stale());
    }

    #[test]
    fn what_cannot_be_answered_says_why() {
        let long = format!("Digest realm=\"{}\", nonce=\"n\"", "r".repeat(CHALLENGE_BYTES_MAX));
        for (text, expected) in [
            ("Basic realm=\"r\"", ChallengeError::Scheme),
            ("", ChallengeError::Scheme),
            ("Digest", ChallengeError::Missing("realm")),
            ("Digest realm=\"r\"", ChallengeError::Missing("nonce")),
            ("Digest realm=\"r\", nonce=\"n\", algorithm=AKAv1-MD5", ChallengeError::Algorithm),
            ("Digest realm=\"r\", nonce=\"n\", algorithm=-sess", ChallengeError::Algorithm),
            ("Digest realm=\"r\", nonce=\"n\", qop=\"auth-int\"", ChallengeError::Qop),
            ("Digest realm=\"r\", nonce=\"n\", algorithm=MD5-sess", ChallengeError::SessionWithoutQop),
            ("Digest realm=\"r\", realm=\"s\", nonce=\"n\"", ChallengeError::Malformed(18)),
            ("Digest realm=\"r\" nonce=\"n\"", ChallengeError::Malformed(17)),
            ("Digest realm=\"r", ChallengeError::Malformed(15)),
            ("Digest realm=\"r\\", ChallengeError::Malformed(15)),
            ("Digest realm=\"a\r\nX: y\"", ChallengeError::Malformed(15)),
            ("Digest realm=\"a\\\rb\"", ChallengeError::Malformed(15)),
            ("Digest realm=a\\, nonce=n", ChallengeError::Malformed(14)),
            ("Digest realm", ChallengeError::Malformed(12)),
            (&long, ChallengeError::TooLong),
        ] {
            assert_eq!(Challenge::parse(text.as_bytes(), false), Err(expected), "{text:?}");
            assert!(expected.to_string().contains(' '));
        }
        assert!(ChallengeError::Qop.to_string().contains("auth-int"));
    }

    #[test]
    fn the_topmost_supported_challenge_is_taken() {
        let md5 = b"Digest realm=\"r\", nonce=\"1\", algorithm=MD5".as_slice();
        let sha = b"Digest realm=\"r\", nonce=\"2\", algorithm=SHA-256".as_slice();
        let unknown = b"Digest realm=\"r\", nonce=\"3\", algorithm=SHA3".as_slice();
        let basic = b"Basic realm=\"r\"".as_slice();
        let nonce = |values: &[&[u8]]| {
            choose(values.iter().copied(), false).map(|challenge| challenge.nonce().to_vec())
        };
        assert_eq!(nonce(&[unknown, sha, md5]), Ok(b"2".to_vec()));
        assert_eq!(nonce(&[basic, md5, sha]), Ok(b"1".to_vec()));
        assert_eq!(nonce(&[unknown, basic]), Err(ChallengeError::Algorithm));
        assert_eq!(nonce(&[]), Err(ChallengeError::Absent));
    }

    #[test]
    fn names_and_uris_cannot_end_the_field() {
        let challenge = parsed("Digest realm=\"r\", nonce=\"n\", qop=auth");
        let credentials = Credentials { name: b"a\"b\\\r\nX: y\0", password: b"\r\n" };
        let line = line(&challenge, &credentials, "INVITE", "sip:a\"\r\n@b", 1, "\"\r\n");
        assert!(line.contains("username=\"a\\\"b\\\\X: y\", "), "{line:?}");
        assert!(line.contains("uri=\"sip:a\\\"@b\", "), "{line:?}");
        assert_eq!(line.find(['\r', '\n']), Some(line.len() - 2));
    }

    proptest! {
        #[test]
        fn no_bytes_panic_or_break_out_of_the_line(
            bytes in proptest::collection::vec(any::<u8>(), 0..100),
            text in "(realm|nonce|qop|opaque|algorithm)?[=\", \\\\a-c\r\n\t]{0,30}",
            name in proptest::collection::vec(any::<u8>(), 0..20),
        ) {
            let texts = [bytes, [b"Digest realm=\"r\", nonce=\"n\", ", text.as_bytes()].concat(),
                [b"Digest nonce=\"n\", realm=\"", text.as_bytes(), b"\""].concat()];
            for text in texts {
                let Ok(challenge) = Challenge::parse(&text, false) else { continue };
                let mut out = Vec::new();
                challenge.authorize(&Credentials { name: &name, password: b"" }, b"M", &name, 1, &name, &mut out);
                let (end, inside) = (out.len() - 2, &out[..out.len() - 2]);
                prop_assert_eq!(&out[end..], b"\r\n");
                prop_assert!(inside.iter().all(|&byte| is_text(byte)));
                // What we wrote is well-formed: as a challenge it has the same parts.
                let again = Challenge::parse(&inside["Authorization: ".len()..], false);
                prop_assert_eq!(again.as_ref().map(Challenge::realm), Ok(challenge.realm()));
                prop_assert_eq!(again.as_ref().map(Challenge::nonce), Ok(challenge.nonce()));
            }
        }
    }
}
