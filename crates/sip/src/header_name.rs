//! Header field names: long and compact forms, any case, one meaning (RFC 3261 §7.3.1, §7.3.3, §20).
//!
//! A name is classified by its case-folded bytes taken as up to three 64-bit words, which a perfect hash finds in a
//! table, so that a name costs a few compares and no loop.

/// Longest name that the table below knows, in bytes.
const KNOWN_MAX: usize = 24;

/// The case-folded words of a name, zeros behind its end. Folding leaves no zero in a name, so the length is in them.
type Key = (u64, u64, u64);

const CASE: u64 = 0x2020_2020_2020_2020;

const fn word(name: &[u8], from: usize) -> u64 {
    let mut value = 0u64;
    let mut i = 0;
    while i < 8 {
        if from + i < name.len() {
            value |= ((name[from + i] | 0x20) as u64) << (8 * i);
        }
        i += 1;
    }
    value
}

const fn key(name: &[u8]) -> Key {
    (word(name, 0), word(name, 8), word(name, 16))
}

/// The place of a key in [`PLACES`]. The factor was found by trial: it keeps all known names apart.
#[inline]
const fn place((a, b, c): Key) -> usize {
    ((a ^ b.rotate_left(17) ^ c.rotate_left(37)).wrapping_mul(0x8f1d_517f_b108_1f29) >> 56) as usize
}

/// For every place, which of [`KNOWN`] is there; [`NOBODY`] if none is.
static PLACES: [u8; 256] = {
    let mut places = [NOBODY; 256];
    let mut i = 0;
    while i < KNOWN.len() {
        let at = place(KNOWN[i].0);
        assert!(places[at] == NOBODY, "two header names share a place: another factor is needed");
        places[at] = i as u8;
        i += 1;
    }
    places
};
const NOBODY: u8 = u8::MAX;

macro_rules! names {
    ($($variant:ident $text:literal $($compact:literal)?;)*) => {
        /// The name of a header field, whatever its spelling in the message.
        ///
        /// [`HeaderName::Other`] stands for every name that this table does not have; such headers are found with
        /// [`Message::headers_named`](crate::Message::headers_named).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum HeaderName {
            $(#[doc = concat!("`", $text, "`.")] $variant,)*
            /// Any other name.
            Other,
        }

        impl HeaderName {
            /// The long form as this server writes it, `None` for [`HeaderName::Other`].
            pub const fn as_str(self) -> Option<&'static str> {
                match self { $(HeaderName::$variant => Some($text),)* HeaderName::Other => None }
            }

            /// The one-letter compact form, if the name has one (RFC 3261 §7.3.3 and IANA's list).
            pub const fn compact(self) -> Option<u8> {
                match self { $($(HeaderName::$variant => Some($compact),)?)* _ => None }
            }
        }

        static KNOWN: [(Key, HeaderName); NAMES - 1] =
            [$((key($text.as_bytes()), HeaderName::$variant),)*];

        #[inline]
        fn lookup_compact(folded: u8) -> HeaderName {
            match folded { $($($compact => HeaderName::$variant,)?)* _ => HeaderName::Other }
        }

        #[cfg(test)]
        const ALL: &[HeaderName] = &[$(HeaderName::$variant,)*];
    };
}

names! {
    Via "Via" b'v';
    From "From" b'f';
    To "To" b't';
    CallId "Call-ID" b'i';
    CSeq "CSeq";
    Contact "Contact" b'm';
    Route "Route";
    RecordRoute "Record-Route";
    MaxForwards "Max-Forwards";
    Expires "Expires";
    MinExpires "Min-Expires";
    ContentLength "Content-Length" b'l';
    ContentType "Content-Type" b'c';
    ContentEncoding "Content-Encoding" b'e';
    ContentDisposition "Content-Disposition";
    ContentLanguage "Content-Language";
    Require "Require";
    ProxyRequire "Proxy-Require";
    Supported "Supported" b'k';
    Unsupported "Unsupported";
    Allow "Allow";
    AllowEvents "Allow-Events" b'u';
    Path "Path";
    ServiceRoute "Service-Route";
    Authorization "Authorization";
    ProxyAuthorization "Proxy-Authorization";
    WwwAuthenticate "WWW-Authenticate";
    ProxyAuthenticate "Proxy-Authenticate";
    AuthenticationInfo "Authentication-Info";
    Event "Event" b'o';
    SubscriptionState "Subscription-State";
    UserAgent "User-Agent";
    Server "Server";
    Subject "Subject" b's';
    RetryAfter "Retry-After";
    Date "Date";
    Timestamp "Timestamp";
    MaxBreadth "Max-Breadth";
    ReferTo "Refer-To" b'r';
    ReferredBy "Referred-By" b'b';
    Replaces "Replaces";
    SessionExpires "Session-Expires" b'x';
    MinSe "Min-SE";
    RAck "RAck";
    RSeq "RSeq";
    SipEtag "SIP-ETag";
    SipIfMatch "SIP-If-Match";
    PAssertedIdentity "P-Asserted-Identity";
    PPreferredIdentity "P-Preferred-Identity";
    Privacy "Privacy";
    Reason "Reason";
    Accept "Accept";
    AcceptEncoding "Accept-Encoding";
    AcceptLanguage "Accept-Language";
    AcceptContact "Accept-Contact" b'a';
    RejectContact "Reject-Contact" b'j';
    RequestDisposition "Request-Disposition" b'd';
    Identity "Identity" b'y';
    IdentityInfo "Identity-Info" b'n';
    Warning "Warning";
    FlowTimer "Flow-Timer";
    MimeVersion "MIME-Version";
}

/// How many names there are; they index 64-bit sets.
pub(crate) const NAMES: usize = HeaderName::Other as usize + 1;
const _: () = assert!(NAMES <= 64, "header names must fit a 64-bit set");

impl HeaderName {
    /// Classifies a name as written: long or compact, any case.
    pub fn of(name: &[u8]) -> HeaderName {
        if name.is_empty() || name.len() > KNOWN_MAX {
            return HeaderName::Other;
        }
        classify(load_short(name), name.len())
    }

    /// The name's bit in a 64-bit set.
    #[inline]
    pub(crate) const fn bit(self) -> u64 {
        1 << self as u8
    }
}

#[inline]
fn load(window: &[u8; KNOWN_MAX]) -> [u64; 3] {
    let mut words = [0u64; 3];
    let (chunks, _) = window.as_chunks::<8>();
    for (word, chunk) in words.iter_mut().zip(chunks) {
        *word = u64::from_le_bytes(*chunk);
    }
    words
}

#[inline(never)]
fn load_short(text: &[u8]) -> [u64; 3] {
    let mut window = [0u8; KNOWN_MAX];
    for (to, from) in window.iter_mut().zip(text) {
        *to = *from;
    }
    load(&window)
}

/// Keeps the lowest `len` bytes of a word, 1 to 8.
#[inline]
fn mask(len: usize) -> u64 {
    u64::MAX >> (64 - 8 * len.clamp(1, 8))
}

#[inline(always)]
fn classify([a, b, c]: [u64; 3], len: usize) -> HeaderName {
    let key = match len {
        1 => return lookup_compact((a | CASE) as u8),
        2..=8 => return lookup(((a | CASE) & mask(len), 0, 0)),
        9..=16 => (a | CASE, (b | CASE) & mask(len - 8), 0),
        17..=KNOWN_MAX => (a | CASE, b | CASE, (c | CASE) & mask(len - 16)),
        _ => return HeaderName::Other,
    };
    lookup(key)
}

#[inline(always)]
fn lookup(key: Key) -> HeaderName {
    let found = PLACES.get(place(key)).and_then(|&at| KNOWN.get(usize::from(at)));
    match found {
        Some((known, name)) if *known == key => *name,
        _ => HeaderName::Other,
    }
}

/// A header line's name: what it is, how long it is, and where the colon stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NameAt {
    pub(crate) name: HeaderName,
    /// Bytes of the name, white space before the colon left out.
    pub(crate) len: usize,
    /// Index of the colon in the message.
    pub(crate) colon: usize,
}

/// Reads the name of the header line `start..end` of `bytes`; `None` if there is no name or no colon.
#[inline]
pub(crate) fn read(bytes: &[u8], start: usize, end: usize) -> Option<NameAt> {
    let words = match bytes.get(start..).and_then(<[u8]>::first_chunk::<KNOWN_MAX>) {
        Some(window) => load(window),
        // The last bytes of the buffer: the line is short, copy it.
        None => load_short(bytes.get(start..end)?),
    };
    let offset = match colon(words) {
        Some(offset) => offset,
        None => memchr::memchr(b':', bytes.get(start..end)?)?,
    };
    let colon = start + offset;
    if colon >= end {
        return None;
    }
    let mut len = offset;
    // HCOLON = *( SP / HTAB ) ":" SWS (RFC 3261 §25.1).
    while len > 0 && matches!(bytes.get(start + len - 1), Some(b' ' | b'\t')) {
        len -= 1;
    }
    if len == 0 || len > usize::from(u16::MAX) {
        return None;
    }
    let name = classify(words, len);
    if name == HeaderName::Other && !crate::token::is_token(bytes.get(start..start + len)?) {
        return None;
    }
    Some(NameAt { name, len, colon })
}

/// Offset of the first colon in three little-endian words.
#[inline]
fn colon([a, b, c]: [u64; 3]) -> Option<usize> {
    use crate::token::find_in_word;
    find_in_word(a, b':')
        .or_else(|| find_in_word(b, b':').map(|at| at + 8))
        .or_else(|| find_in_word(c, b':').map(|at| at + 16))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn every_name_is_found_in_any_case_and_in_its_compact_form() {
        for &name in ALL {
            let text = name.as_str().unwrap();
            assert_eq!(HeaderName::of(text.as_bytes()), name);
            assert_eq!(HeaderName::of(text.to_ascii_uppercase().as_bytes()), name);
            assert_eq!(HeaderName::of(text.to_ascii_lowercase().as_bytes()), name);
            if let Some(letter) = name.compact() {
                assert_eq!(HeaderName::of(&[letter]), name);
                assert_eq!(HeaderName::of(&[letter.to_ascii_uppercase()]), name);
            }
        }
    }

    #[test]
    fn near_misses_are_other() {
        for name in [&b"Vi"[..], b"Viaa", b"X-Via", b"Call_ID", b"g", b"", b"Proxy-Authorizatiom", b"To\0"] {
            assert_eq!(HeaderName::of(name), HeaderName::Other, "{name:?}");
        }
        assert_eq!(HeaderName::of(&[b'a'; 300]), HeaderName::Other);
    }

    fn name_of(line: &[u8]) -> Option<(HeaderName, usize, usize)> {
        read(line, 0, line.len()).map(|n| (n.name, n.len, n.colon))
    }

    #[test]
    fn white_space_before_the_colon_is_not_part_of_the_name() {
        assert_eq!(name_of(b"To :x"), Some((HeaderName::To, 2, 3)));
        assert_eq!(name_of(b"MaX-fOrWaRdS \t : 70 and more bytes"), Some((HeaderName::MaxForwards, 12, 15)));
    }

    #[test]
    fn a_line_without_a_name_has_none() {
        assert_eq!(name_of(b": x"), None);
        assert_eq!(name_of(b"no colon here at all, not even far away"), None);
        assert_eq!(name_of(b"Two Words: x and a longer rest of the line"), None);
        assert_eq!(name_of(b"Fol\r\n ded: x"), None);
    }

    #[test]
    fn long_unknown_names_keep_their_length() {
        let mut line = Vec::from([b'x'; 100]);
        line.extend_from_slice(b": value");
        assert_eq!(name_of(&line), Some((HeaderName::Other, 100, 100)));
    }
}
