//! Values by the grammar: URIs (RFC 3261 §19.1, RFC 3966), Via (§20.42), name-addr (§20.10), credentials
//! (§20.7).

use super::matcher::Matcher;
use super::{Judged, OURS, rules};
use std::ops::Range;

/// Names and values of parameters, as written.
pub type Params<'a> = Vec<(&'a [u8], Option<&'a [u8]>)>;

/// A URI, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Uri<'a> {
    /// sip or sips.
    Sip {
        /// sips.
        secure: bool,
        /// As written.
        user: Option<&'a [u8]>,
        /// As written.
        password: Option<&'a [u8]>,
        /// As written, brackets included.
        host: &'a [u8],
        /// As written.
        port: Option<&'a [u8]>,
        /// As written.
        params: Params<'a>,
        /// What stands behind the question mark.
        headers: Option<&'a [u8]>,
    },
    /// tel.
    Tel {
        /// As written.
        number: &'a [u8],
        /// As written.
        params: Params<'a>,
    },
    /// Another scheme.
    Other {
        /// As written.
        scheme: &'a [u8],
    },
}

/// A Via value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Via<'a> {
    /// As written.
    pub transport: &'a [u8],
    /// As written, brackets included.
    pub host: &'a [u8],
    /// As written.
    pub port: Option<&'a [u8]>,
    /// As written.
    pub params: Params<'a>,
}

/// A value of From, To, Contact, Route and their kin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address<'a> {
    /// As written, without white space around it.
    pub display: Option<&'a [u8]>,
    /// As written, without brackets.
    pub uri: &'a [u8],
    /// As written.
    pub params: Params<'a>,
}

/// Reads a URI.
#[must_use]
pub fn uri(text: &[u8]) -> Judged<Uri<'_>> {
    let colon = text.iter().position(|&byte| byte == b':').unwrap_or(0);
    let scheme = text[..colon].to_ascii_lowercase();
    match scheme.as_slice() {
        b"sip" => sip_uri(text, "SIP-URI"),
        b"sips" => sip_uri(text, "SIPS-URI"),
        b"tel" => tel_uri(text),
        _ => read(text, "other-URI", &[], |_| Some(Uri::Other { scheme: &text[..colon] })),
    }
}

fn sip_uri<'a>(text: &'a [u8], rule: &str) -> Judged<Uri<'a>> {
    let wanted = ["user", "password", "host", "port", "pname", "pvalue", "headers"];
    read(text, rule, &wanted, |parts| {
        let port = parts.first("port");
        let params = parts.params("pname", "pvalue");
        let names: Vec<&[u8]> = params.iter().map(|(name, _)| *name).collect();
        let sound = port.is_none_or(rules::is_port) && rules::are_sound(&names, rules::uri_name);
        sound.then_some(Uri::Sip {
            secure: rule == "SIPS-URI",
            user: parts.first("user"),
            password: parts.first("password"),
            host: parts.first("host")?,
            port,
            params,
            headers: parts.first("headers").map(|headers| &headers[1..]),
        })
    })
}

fn tel_uri(text: &[u8]) -> Judged<Uri<'_>> {
    let wanted = ["global-number-digits", "local-number-digits", "tel-pname", "tel-pvalue"];
    read(text, "telephone-uri", &wanted, |parts| {
        let params = parts.params("tel-pname", "tel-pvalue");
        let names: Vec<&[u8]> = params.iter().map(|(name, _)| *name).collect();
        let local = parts.first("local-number-digits");
        // RFC 3966 §5.1.5: a local number MUST have a phone-context.
        let context =
            params.iter().any(|(name, value)| rules::uri_name(name) == b"phone-context" && value.is_some());
        let sound = rules::are_sound(&names, rules::uri_name) && (local.is_none() || context);
        sound.then_some(Uri::Tel { number: parts.first("global-number-digits").or(local)?, params })
    })
}

/// Reads the values of a Via header field.
#[must_use]
pub fn vias(text: &[u8]) -> Judged<Vec<Via<'_>>> {
    let wanted = ["transport", "host", "port", "param-name", "param-value", "quoted-value"];
    read(text, "via-values", &wanted, |parts| {
        let mut vias = Vec::new();
        for parts in parts.split_before("transport") {
            let (port, params) = (parts.first("port"), parts.params("param-name", "param-value"));
            let names: Vec<&[u8]> = params.iter().map(|(name, _)| *name).collect();
            if !port.is_none_or(rules::is_port) || !rules::are_sound(&names, rules::header_name) {
                return None;
            }
            // A host may also be a parameter's value: the first one is that of sent-by.
            vias.push(Via { transport: parts.first("transport")?, host: parts.first("host")?, port, params });
        }
        Some(vias)
    })
}

/// Reads the values of a header field that is a list of addresses.
#[must_use]
pub fn addresses(text: &[u8]) -> Judged<Vec<Address<'_>>> {
    read_addresses(text, "address-values")
}

/// Reads the value of From or To.
#[must_use]
pub fn address(text: &[u8]) -> Judged<Address<'_>> {
    match read_addresses(text, "one-address") {
        Judged::Yes(mut all) => all.pop().map_or(Judged::No, Judged::Yes),
        Judged::No => Judged::No,
        Judged::TooLong => Judged::TooLong,
    }
}

fn read_addresses<'a>(text: &'a [u8], rule: &str) -> Judged<Vec<Address<'a>>> {
    let wanted = ["address-value", "display-name", "address", "plain-address", "param-name", "param-value"];
    read(text, rule, &wanted, |parts| {
        let mut addresses = Vec::new();
        for parts in parts.split_before("address-value") {
            let params = parts.params("param-name", "param-value");
            let names: Vec<&[u8]> = params.iter().map(|(name, _)| *name).collect();
            if !rules::are_sound(&names, rules::header_name) {
                return None;
            }
            let display = parts.first("display-name").map(trim).filter(|display| !display.is_empty());
            let uri = parts.first("address").or(parts.first("plain-address"))?;
            addresses.push(Address { display, uri, params });
        }
        Some(addresses)
    })
}

/// Reads Digest credentials: names and values (without quotes) of all parameters.
#[must_use]
pub fn credentials(text: &[u8]) -> Judged<Vec<(&[u8], &[u8])>> {
    read(text, "credentials", &["dig-name", "dig-quoted", "dig-plain"], |parts| {
        let elements = parts.split_before("dig-name");
        let pairs = elements.iter().map(|parts| {
            let quoted = parts.first("dig-quoted").map(|text| &text[1..text.len() - 1]);
            Some((parts.first("dig-name")?, quoted.or(parts.first("dig-plain"))?))
        });
        pairs.collect()
    })
}

/// Text without linear white space at its ends.
#[must_use]
pub fn trim(text: &[u8]) -> &[u8] {
    let is_text = |byte: &u8| !matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
    let start = text.iter().position(is_text).unwrap_or(text.len());
    let end = text.iter().rposition(is_text).map_or(start, |last| last + 1);
    &text[start..end]
}

fn read<'a, T>(
    text: &'a [u8],
    rule: &str,
    wanted: &[&str],
    judge: impl FnOnce(&Parts<'a>) -> Option<T>,
) -> Judged<T> {
    let Some(mut matcher) = Matcher::new(&OURS, text) else { return Judged::TooLong };
    let Some(parts) = matcher.parts(rule, wanted) else { return Judged::No };
    judge(&Parts { text, parts }).map_or(Judged::No, Judged::Yes)
}

/// The parts of a text, in their order.
struct Parts<'a> {
    text: &'a [u8],
    parts: Vec<(&'a str, Range<usize>)>,
}

impl<'a> Parts<'a> {
    fn first(&self, rule: &str) -> Option<&'a [u8]> {
        self.parts.iter().find(|(name, _)| *name == rule).map(|(_, range)| &self.text[range.clone()])
    }

    /// Every `name`, with the `value` that follows it before the next one.
    fn params(&self, name: &str, value: &str) -> Params<'a> {
        let mut params: Params<'a> = Vec::new();
        for (rule, range) in &self.parts {
            let text = &self.text[range.clone()];
            if *rule == name {
                params.push((text, None));
            } else if let Some(last) = params.last_mut().filter(|_| *rule == value || *rule == "quoted-value")
            {
                // A quoted string may begin with white space by its rule.
                last.1 = Some(trim(text));
            }
        }
        params
    }

    /// One group of parts for each `rule`.
    fn split_before(&self, rule: &str) -> Vec<Parts<'a>> {
        let mut groups: Vec<Parts<'a>> = Vec::new();
        for part in &self.parts {
            if part.0 == rule {
                groups.push(Parts { text: self.text, parts: Vec::new() });
            }
            if let Some(group) = groups.last_mut() {
                group.parts.push(part.clone());
            }
        }
        groups
    }
}
