//! Networks in groups, and rules of trusted requests, as they are asked for.
//!
//! All networks are in one sorted table: by the length of their prefix, then by their bits, group and port,
//! IPv4 as it is mapped into IPv6 (RFC 4291 §2.5.5.2). A question is one binary search for each length that
//! occurs, the longest first.

use super::PermissionsSettings;
use super::trusted::Trusted;
use crate::domain::{check_count, text};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;

/// Longest tag or name, in bytes.
const TEXT_BYTES_MAX: usize = 255;
/// Where the prefixes of IPv4 begin within those of IPv6.
const V4_PREFIX: u8 = 96;

/// Networks in groups (the `address` table), and trusted peers (the `trusted` table).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// Sorted by prefix, bits, group, port; of equal ones the first row.
    networks: Vec<Network>,
    /// The prefixes that occur, the longest first.
    prefixes: Vec<u8>,
    /// Sorted by name, group, port.
    names: Vec<Name>,
    /// The tags, each once.
    tags: Vec<Box<str>>,
    /// The rules of the `trusted` table.
    pub(super) trusted: Trusted,
}

/// A network in a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Network {
    prefix: u8,
    bits: u128,
    group: u32,
    /// 0: any.
    port: u16,
    /// Its place among the tags.
    tag: Option<u32>,
}

/// A host's name in a group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Name {
    name: Box<[u8]>,
    group: u32,
    port: u16,
    tag: Option<u32>,
}

/// What is asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer<'a> {
    /// An address; one that is mapped into IPv6 is the IPv4 address.
    Address(IpAddr),
    /// Anything else: a name, which is not looked up.
    Name(&'a [u8]),
}

impl<'a> Peer<'a> {
    /// Reads an address, with or without the brackets of an IPv6 reference, or a name.
    pub(super) fn parse(text: &'a [u8]) -> Peer<'a> {
        ip(text).map_or(Peer::Name(text), Peer::Address)
    }
}

/// What an address belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Member<'a> {
    /// The group.
    pub(super) group: u32,
    /// The tag of the row.
    pub(super) tag: Option<&'a str>,
}

/// One row, before it is put where it belongs.
struct Row<'a> {
    group: &'a str,
    address: &'a str,
    mask: &'a str,
    port: &'a str,
    tag: Option<&'a str>,
}

impl Addresses {
    /// Rows that are read at most, of each table and of the file.
    pub const ROWS_MAX: usize = 500_000;

    /// The networks and rules of these rows, whose columns are [`PermissionsSettings::columns`] and
    /// [`PermissionsSettings::trusted_columns`].
    ///
    /// # Errors
    ///
    /// A sentence that names the table, the row, and what to do: a row that makes no sense, or too many of
    /// them.
    pub fn from_rows(
        settings: &PermissionsSettings,
        rows: &[Vec<Option<String>>],
        trusted: &[Vec<Option<String>>],
    ) -> Result<Addresses, String> {
        check_count(&settings.table, rows.len(), Addresses::ROWS_MAX)?;
        let mut addresses = Addresses::default();
        for row in rows {
            let column = |place| text(row, place).unwrap_or_default();
            let row = Row {
                group: column(0),
                address: column(1),
                mask: column(2),
                port: column(3),
                tag: text(row, 4),
            };
            addresses.add(&row).map_err(|why| format!("table `{}`: {why}", settings.table))?;
        }
        addresses.finish();
        addresses.with_trusted(settings, trusted)
    }

    /// The networks of `address_file`, whose text this is, and the rules of these rows.
    ///
    /// A line has a group, an address or name, and perhaps the length of its prefix, a port and a tag, with
    /// white space between them; `#` begins a comment.
    ///
    /// # Errors
    ///
    /// A sentence that names the line and what to write.
    pub fn from_file(
        settings: &PermissionsSettings,
        text: &str,
        trusted: &[Vec<Option<String>>],
    ) -> Result<Addresses, String> {
        Addresses::parse_file(text)?.with_trusted(settings, trusted)
    }

    /// The networks of a file alone.
    ///
    /// # Errors
    ///
    /// As [`Addresses::from_file`].
    pub fn parse_file(text: &str) -> Result<Addresses, String> {
        let mut addresses = Addresses::default();
        for (place, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default();
            let fields: Vec<&str> = line.split_whitespace().take(6).collect();
            if fields.is_empty() {
                continue;
            }
            let field = |place: usize| fields.get(place).copied();
            let optional = |place| field(place).unwrap_or("0");
            let row = Row {
                group: field(0).unwrap_or_default(),
                address: field(1).unwrap_or_default(),
                mask: optional(2),
                port: optional(3),
                tag: field(4),
            };
            let done = match fields.len() {
                6.. => Err(String::from("write GROUP ADDRESS [MASK [PORT [TAG]]] and nothing more")),
                _ if addresses.networks.len() + addresses.names.len() >= Addresses::ROWS_MAX => {
                    Err(format!("more than the {} records that are read: remove some", Addresses::ROWS_MAX))
                }
                _ => addresses.add(&row),
            };
            done.map_err(|why| format!("line {}: {why}", place + 1))?;
        }
        addresses.finish();
        Ok(addresses)
    }

    fn with_trusted(
        mut self,
        settings: &PermissionsSettings,
        rows: &[Vec<Option<String>>],
    ) -> Result<Addresses, String> {
        check_count(&settings.trusted_table, rows.len(), Addresses::ROWS_MAX)?;
        self.trusted =
            Trusted::from_rows(rows).map_err(|why| format!("table `{}`: {why}", settings.trusted_table))?;
        Ok(self)
    }

    fn add(&mut self, row: &Row<'_>) -> Result<(), String> {
        let Row { group, address, .. } = row;
        let group = match group.trim().parse::<u32>() {
            Ok(number) if number > 0 && i32::try_from(number).is_ok() => number,
            _ => return Err(format!("`{group}` is no group of `{address}`: write a number from 1 on")),
        };
        let Ok(port) = or_zero(row.port).parse::<u16>() else {
            return Err(format!("`{}` is no port of `{address}`: write 1 to 65535, or 0 for any", row.port));
        };
        if row.tag.is_some_and(|tag| tag.len() > TEXT_BYTES_MAX) {
            return Err(format!("the tag of `{address}` is longer than {TEXT_BYTES_MAX} bytes: shorten it"));
        }
        let tag = row.tag.map(|tag| self.tag(tag));
        let Some(ip) = ip(address.trim().as_bytes()) else {
            let name = name(address)?;
            self.names.push(Name { name, group, port, tag });
            return Ok(());
        };
        let bits = if ip.is_ipv4() { 32 } else { 128 };
        let prefix = match or_zero(row.mask).parse::<u8>() {
            Ok(0) => bits,
            Ok(mask) if mask <= bits => mask,
            _ => {
                return Err(format!(
                    "`{}` is no length of a prefix of `{address}`: write 1 to {bits}, or 0 for {bits}",
                    row.mask
                ));
            }
        };
        let (prefix, bits) = masked(ip, prefix);
        self.networks.push(Network { prefix, bits, group, port, tag });
        Ok(())
    }

    /// The place of a tag: rows of one peer stand side by side, so that the last one is most often the one.
    fn tag(&mut self, tag: &str) -> u32 {
        if self.tags.last().is_none_or(|last| **last != *tag) {
            self.tags.push(tag.into());
        }
        u32::try_from(self.tags.len() - 1).unwrap_or(u32::MAX)
    }

    fn finish(&mut self) {
        // Stable sorts: of two rows that differ in their tags alone the first one counts.
        self.networks.sort_by_key(|network| (network.prefix, network.bits, network.group, network.port));
        self.names.sort_by(|one, other| {
            (&one.name, one.group, one.port).cmp(&(&other.name, other.group, other.port))
        });
        let mut prefixes: Vec<u8> = self.networks.iter().map(|network| network.prefix).collect();
        prefixes.dedup();
        prefixes.reverse();
        self.prefixes = prefixes;
    }

    /// How many networks and names there are.
    pub fn len(&self) -> usize {
        self.networks.len() + self.names.len()
    }

    /// Whether there is neither.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What an address, or a name, and a port belong to in this group: the longest prefix counts, of equal ones
    /// that for this very port.
    pub(super) fn member(&self, group: u32, peer: Peer<'_>, port: u16) -> Option<Member<'_>> {
        let ip = match peer {
            Peer::Address(ip) => ip,
            Peer::Name(name) => {
                let mut names = self.names_of(name).filter(|name| name.group == group);
                return names.find_map(|name| name.fits(port, self));
            }
        };
        self.prefixes_of(ip).find_map(|prefix| {
            let (prefix, bits) = masked_mapped(ip, prefix);
            let found = |port| {
                let key = (prefix, bits, group, port);
                let at = self.networks.partition_point(|network| network.key() < key);
                self.networks.get(at).filter(|network| network.key() == key)
            };
            let exact = if port == 0 { None } else { found(port) };
            exact.or_else(|| found(0)).map(|network| network.member(self))
        })
    }

    /// The group that an address, or a name, and a port belong to: a single address comes before networks, of
    /// networks and names the group with the lowest number.
    pub(super) fn group(&self, peer: Peer<'_>, port: u16) -> Option<Member<'_>> {
        let ip = match peer {
            Peer::Address(ip) => ip,
            Peer::Name(name) => return self.names_of(name).find_map(|name| name.fits(port, self)),
        };
        let lowest = |prefix: u8| {
            let (prefix, bits) = masked_mapped(ip, prefix);
            let from =
                self.networks.partition_point(|network| (network.prefix, network.bits) < (prefix, bits));
            let same = self.networks.get(from..).unwrap_or(&[]).iter();
            same.take_while(|network| (network.prefix, network.bits) == (prefix, bits))
                .find(|network| network.port == 0 || network.port == port)
        };
        let single = self.prefixes_of(ip).filter(|prefix| *prefix == 128).find_map(lowest);
        let found = single.or_else(|| {
            // The longest prefix of the lowest group: `min_by_key` keeps the first of equal ones.
            self.prefixes_of(ip).filter_map(lowest).min_by_key(|network| network.group)
        });
        found.map(|network| network.member(self))
    }

    /// The prefixes that an address may have, the longest first.
    fn prefixes_of(&self, ip: IpAddr) -> impl Iterator<Item = u8> {
        let least = if ip.is_ipv4() { V4_PREFIX + 1 } else { 0 };
        self.prefixes.iter().copied().take_while(move |prefix| *prefix >= least)
    }

    /// The rows of a name.
    fn names_of(&self, host: &[u8]) -> impl Iterator<Item = &Name> {
        let mut key = host.to_ascii_lowercase();
        if key.ends_with(b".") {
            key.pop();
        }
        let from = self.names.partition_point(|name| *name.name < *key);
        self.names.get(from..).unwrap_or(&[]).iter().take_while(move |name| *name.name == *key)
    }

    fn tag_at(&self, tag: Option<u32>) -> Option<&str> {
        self.tags.get(tag? as usize).map(|tag| &**tag)
    }
}

impl Network {
    fn key(&self) -> (u8, u128, u32, u16) {
        (self.prefix, self.bits, self.group, self.port)
    }

    fn member<'a>(&self, of: &'a Addresses) -> Member<'a> {
        Member { group: self.group, tag: of.tag_at(self.tag) }
    }
}

impl Name {
    fn fits<'a>(&self, port: u16, of: &'a Addresses) -> Option<Member<'a>> {
        let fits = self.port == 0 || self.port == port;
        fits.then(|| Member { group: self.group, tag: of.tag_at(self.tag) })
    }
}

/// NULL and nothing are 0.
fn or_zero(text: &str) -> &str {
    let text = text.trim();
    if text.is_empty() { "0" } else { text }
}

/// An address, with or without the brackets of an IPv6 reference; one that is mapped is the IPv4 address.
fn ip(text: &[u8]) -> Option<IpAddr> {
    let bare = text.strip_prefix(b"[").and_then(|text| text.strip_suffix(b"]")).unwrap_or(text);
    let ip: IpAddr = core::str::from_utf8(bare).ok()?.parse().ok()?;
    Some(ip.to_canonical())
}

/// A name in lower case. What was meant to be an address and is none must not become a name that nobody has.
fn name(text: &str) -> Result<Box<[u8]>, String> {
    let text = text.trim();
    let name = text.strip_suffix('.').unwrap_or(text);
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    if name.is_empty() || name.len() > TEXT_BYTES_MAX || !name.bytes().all(is_plain) {
        return Err(format!(
            "`{text}` is neither an address nor a name: write 192.0.2.0, [2001:db8::] or gw.example.org, and \
             the length of a prefix in the column of its own"
        ));
    }
    if name.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return Err(format!("`{text}` is no address: write four numbers of 0 to 255 with dots between them"));
    }
    Ok(name.to_ascii_lowercase().into_bytes().into())
}

/// The prefix of an IPv6 address that stands for `prefix` bits of this one, and its bits.
fn masked(ip: IpAddr, prefix: u8) -> (u8, u128) {
    let prefix = if ip.is_ipv4() { V4_PREFIX + prefix.min(32) } else { prefix };
    masked_mapped(ip, prefix)
}

/// The same of a prefix that counts from the front of the mapped address.
fn masked_mapped(ip: IpAddr, prefix: u8) -> (u8, u128) {
    let bits = match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().to_bits(),
        IpAddr::V6(ip) => ip.to_bits(),
    };
    let mask = u128::MAX.checked_shl(128 - u32::from(prefix.min(128))).unwrap_or(0);
    (prefix, bits & mask)
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
