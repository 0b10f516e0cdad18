//! What a certificate says about its holder: subject, alternative names, times (RFC 5280 §4.1, §4.2.1.6).
//!
//! Only read, never judged: signatures, chains and constraints are `webpki`'s business. Nothing here fails on
//! odd bytes; what cannot be read is not there.

use std::net::IpAddr;

/// The facts of one certificate, borrowed from its bytes.
#[derive(Debug, Default)]
pub(super) struct Facts<'a> {
    /// The subject's attributes as they stand: object identifier (DER) and text.
    pub(super) subject: Vec<(&'a [u8], String)>,
    /// Whether the extension subjectAltName is there, whatever is in it.
    pub(super) has_alternative_names: bool,
    /// Its values that may name a SIP peer.
    pub(super) names: Vec<AlternativeName<'a>>,
    /// Seconds since 1970 before which it is not valid.
    pub(super) not_before: u64,
    /// Seconds since 1970 after which it is not valid.
    pub(super) not_after: u64,
}

/// One value of subjectAltName.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AlternativeName<'a> {
    Dns(&'a str),
    Uri(&'a str),
    Address(IpAddr),
}

const COMMON_NAME: &[u8] = &[0x55, 4, 3];
const SUBJECT_ALT_NAME: &[u8] = &[0x55, 29, 17];

const OBJECT_IDENTIFIER: u8 = 0x06;
const OCTET_STRING: u8 = 0x04;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
const INTEGER: u8 = 0x02;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const BMP_STRING: u8 = 0x1e;

impl<'a> Facts<'a> {
    /// Reads a certificate; `None` if it is none.
    pub(super) fn read(certificate: &'a [u8]) -> Option<Facts<'a>> {
        let mut outer = Reader(Reader(certificate).expect(SEQUENCE)?);
        let mut fields = Reader(outer.expect(SEQUENCE)?);
        fields.skip_if(VERSION);
        let (_serial, _algorithm, _issuer) = (fields.next()?, fields.next()?, fields.next()?);
        let mut validity = Reader(fields.expect(SEQUENCE)?);
        let mut facts = Facts {
            not_before: seconds(validity.next()?)?,
            not_after: seconds(validity.next()?)?,
            subject: subject(fields.expect(SEQUENCE)?),
            ..Facts::default()
        };
        let _key = fields.next()?;
        while let Some((tag, content)) = fields.next() {
            if tag == EXTENSIONS {
                facts.read_extensions(content);
            }
        }
        Some(facts)
    }

    fn read_extensions(&mut self, content: &'a [u8]) {
        let mut extensions = Reader(Reader(content).expect(SEQUENCE).unwrap_or_default());
        while let Some(extension) = extensions.expect(SEQUENCE) {
            let mut parts = Reader(extension);
            if parts.expect(OBJECT_IDENTIFIER) != Some(SUBJECT_ALT_NAME) {
                continue;
            }
            self.has_alternative_names = true;
            // A BOOLEAN `critical` may stand between.
            while let Some((tag, value)) = parts.next() {
                if tag == OCTET_STRING {
                    self.read_alternative_names(value);
                }
            }
        }
    }

    fn read_alternative_names(&mut self, value: &'a [u8]) {
        let mut names = Reader(Reader(value).expect(SEQUENCE).unwrap_or_default());
        while let Some((tag, content)) = names.next() {
            let name = match tag {
                0x82 => std::str::from_utf8(content).ok().map(AlternativeName::Dns),
                0x86 => std::str::from_utf8(content).ok().map(AlternativeName::Uri),
                0x87 => address(content).map(AlternativeName::Address),
                _ => None,
            };
            self.names.extend(name);
        }
    }

    /// The most specific common name of the subject.
    pub(super) fn common_name(&self) -> Option<&str> {
        let found = self.subject.iter().rev().find(|(kind, _)| *kind == COMMON_NAME);
        found.map(|(_, text)| text.as_str())
    }

    /// The subject in one line: `C=SE, O=Example, CN=sip.example.org`.
    pub(super) fn subject_line(&self) -> String {
        let mut line = String::new();
        for (kind, text) in &self.subject {
            if let Some(label) = attribute_label(kind) {
                if !line.is_empty() {
                    line.push_str(", ");
                }
                line.push_str(label);
                line.push('=');
                // A name is somebody else's text; it shall not reach a log with line breaks or escapes in it.
                line.extend(text.chars().map(|c| if c.is_control() { '?' } else { c }));
            }
        }
        line
    }
}

/// The short names of RFC 4514 §3, and the address of RFC 2985.
fn attribute_label(kind: &[u8]) -> Option<&'static str> {
    Some(match kind {
        [0x55, 4, 3] => "CN",
        [0x55, 4, 5] => "serialNumber",
        [0x55, 4, 6] => "C",
        [0x55, 4, 7] => "L",
        [0x55, 4, 8] => "ST",
        [0x55, 4, 10] => "O",
        [0x55, 4, 11] => "OU",
        [0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1] => "UID",
        [0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25] => "DC",
        [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1] => "emailAddress",
        _ => return None,
    })
}

fn subject(name: &[u8]) -> Vec<(&[u8], String)> {
    let mut attributes = Vec::new();
    let mut sets = Reader(name);
    while let Some(set) = sets.expect(SET) {
        let mut pairs = Reader(set);
        while let Some(pair) = pairs.expect(SEQUENCE) {
            let mut pair = Reader(pair);
            if let (Some(kind), Some((tag, value))) = (pair.expect(OBJECT_IDENTIFIER), pair.next()) {
                attributes.push((kind, text(tag, value)));
            }
        }
    }
    attributes
}

fn text(tag: u8, value: &[u8]) -> String {
    if tag == BMP_STRING {
        let units = value.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
        return char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect();
    }
    String::from_utf8_lossy(value).into_owned()
}

fn address(content: &[u8]) -> Option<IpAddr> {
    if let Ok(four) = <[u8; 4]>::try_from(content) {
        return Some(IpAddr::from(four));
    }
    <[u8; 16]>::try_from(content).ok().map(IpAddr::from)
}

/// `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ` (RFC 5280 §4.1.2.5) in seconds since 1970; times before that are 1970.
fn seconds((tag, content): (u8, &[u8])) -> Option<u64> {
    let number = |from: usize, length: usize| -> Option<u64> {
        let digits = content.get(from..from + length)?;
        digits
            .iter()
            .try_fold(0_u64, |sum, digit| digit.is_ascii_digit().then(|| sum * 10 + u64::from(digit - b'0')))
    };
    let (year, rest) = if tag == UTC_TIME {
        let year = number(0, 2)?;
        (if year < 50 { 2_000 + year } else { 1_900 + year }, 2)
    } else {
        (number(0, 4)?, 4)
    };
    let (month, day) = (number(rest, 2)?, number(rest + 2, 2)?);
    let (hour, minute, second) = (number(rest + 4, 2)?, number(rest + 6, 2)?, number(rest + 8, 2)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    Some((days_since_1970(year, month, day) * 24 + hour) * 3_600 + minute * 60 + second)
}

/// Days from 1970-01-01 to a day of the Gregorian calendar; years are counted from March, so that the leap day
/// is last.
fn days_since_1970(year: u64, month: u64, day: u64) -> u64 {
    const DAYS_TO_1970: u64 = 719_468;
    let year = if month <= 2 { year.saturating_sub(1) } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    (year * 365 + year / 4 - year / 100 + year / 400 + day_of_year).saturating_sub(DAYS_TO_1970)
}

/// When the next issue of a revocation list is due (RFC 5280 §5.1.2.5), in seconds since 1970.
pub(super) fn next_update(list: &[u8]) -> Option<u64> {
    let mut outer = Reader(Reader(list).expect(SEQUENCE)?);
    let mut fields = Reader(outer.expect(SEQUENCE)?);
    fields.skip_if(INTEGER);
    let (_algorithm, _issuer, _this_update) = (fields.next()?, fields.next()?, fields.next()?);
    fields.next().filter(|(tag, _)| matches!(*tag, UTC_TIME | GENERALIZED_TIME)).and_then(seconds)
}

/// The day on which a time falls, as `2026-11-21`.
pub(super) fn date(seconds: u64) -> String {
    const DAYS_TO_1970: u64 = 719_468;
    let days = seconds / 86_400 + DAYS_TO_1970;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

/// Reads one tag, length and content after another (X.690 §8.1); tags of more than one byte do not occur here.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, rest) = rest.split_first()?;
        let (length, rest) = match first {
            0..=0x7f => (usize::from(first), rest),
            0x81..=0x83 => {
                let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
                (bytes.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)), rest)
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        (tag & 0x1f != 0x1f).then_some((tag, content))
    }

    /// The content of the next element if it has this tag.
    fn expect(&mut self, wanted: u8) -> Option<&'a [u8]> {
        self.next().and_then(|(tag, content)| (tag == wanted).then_some(content))
    }

    fn skip_if(&mut self, tag: u8) {
        if self.0.first() == Some(&tag) {
            let _ = self.next();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn times_of_both_kinds_are_read() {
        assert_eq!(seconds((UTC_TIME, b"700101000000Z")), Some(0));
        assert_eq!(seconds((UTC_TIME, b"261121221500Z")), Some(1_795_299_300));
        assert_eq!(seconds((UTC_TIME, b"491231235959Z")), Some(2_524_607_999));
        assert_eq!(seconds((GENERALIZED_TIME, b"20500101000000Z")), Some(2_524_608_000));
        assert_eq!(seconds((GENERALIZED_TIME, b"20000229120000Z")), Some(951_825_600));
        assert_eq!(seconds((UTC_TIME, b"6911")), None);
        assert_eq!(seconds((UTC_TIME, b"261321221500Z")), None);
        assert_eq!(seconds((UTC_TIME, b"26x121221500Z")), None);
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(951_825_600), "2000-02-29");
        assert_eq!(date(1_795_299_300), "2026-11-21");
        assert_eq!(date(2_524_608_000), "2050-01-01");
    }

    #[test]
    fn a_subject_is_shown_without_control_characters() {
        let facts =
            Facts { subject: vec![(COMMON_NAME, "a\r\nb".into()), (&[1], "x".into())], ..Facts::default() };
        assert_eq!(facts.subject_line(), "CN=a??b");
    }

    proptest! {
        #[test]
        fn no_bytes_panic(mut certificate in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = (Facts::read(&certificate), next_update(&certificate));
            // Nested far enough to reach the inner parts.
            for (at, byte) in [0x30, 0x81, 200, 0x30, 0x81, 190].into_iter().enumerate() {
                if let Some(place) = certificate.get_mut(at) {
                    *place = byte;
                }
            }
            let _ = (Facts::read(&certificate), next_update(&certificate));
        }
    }
}
