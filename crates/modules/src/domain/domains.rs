//! The rows of `domain` and `domain_attrs`, as they are asked for.

use super::DomainSettings;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::Ipv6Addr;
use hashbrown::HashMap;

/// Longest name of a domain, in bytes (RFC 1035 §2.3.4); a longer one is nobody's.
const NAME_BYTES_MAX: usize = 255;
/// Longest `did`, name or value of an attribute, in bytes: what a table of this kind can hold.
const TEXT_BYTES_MAX: usize = 255;

/// The domains that are served. Names compare without case; one final dot more or less means nothing.
#[derive(Clone, Debug)]
pub struct Domains {
    /// From the name in lower case to its place among `dids`.
    names: HashMap<Box<[u8]>, u32, ahash::RandomState>,
    /// What belongs together, and its attributes in `attributes`.
    dids: Vec<Did>,
    /// All attributes, those of one `did` side by side in the order of their rows.
    attributes: Vec<Attribute>,
}

/// Domains that belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Did {
    text: Box<[u8]>,
    attributes: core::ops::Range<u32>,
}

/// One row of `domain_attrs`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Attribute {
    /// Its name.
    pub(super) name: Box<[u8]>,
    /// Its value.
    pub(super) value: Value,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// Type 0.
    Int(i64),
    /// Type 2.
    Str(Box<[u8]>),
}

impl Default for Domains {
    fn default() -> Domains {
        Domains { names: empty(), dids: Vec::new(), attributes: Vec::new() }
    }
}

impl PartialEq for Domains {
    fn eq(&self, other: &Domains) -> bool {
        self.names == other.names && self.dids == other.dids && self.attributes == other.attributes
    }
}

impl Eq for Domains {}

/// A map whose keys are the operator's, never a peer's: the seed need not be secret.
fn empty<K, V>() -> HashMap<K, V, ahash::RandomState> {
    HashMap::with_hasher(ahash::RandomState::with_seeds(11, 12, 13, 14))
}

impl Domains {
    /// Domains that are read at most.
    pub const ROWS_MAX: usize = 100_000;
    /// Attributes that are read at most.
    pub const ATTRIBUTES_MAX: usize = 1_000_000;

    /// The domains and attributes of these rows, whose columns are [`DomainSettings::columns`] and
    /// [`DomainSettings::attributes_columns`]. Attributes that belong to no domain are passed over.
    ///
    /// # Errors
    ///
    /// A sentence that names the table, the row, and what to do: a row that makes no sense, or too many of
    /// them.
    pub fn from_rows(
        settings: &DomainSettings,
        rows: &[Vec<Option<String>>],
        attributes: &[Vec<Option<String>>],
    ) -> Result<Domains, String> {
        check_count(&settings.table, rows.len(), Domains::ROWS_MAX)?;
        check_count(&settings.attributes_table, attributes.len(), Domains::ATTRIBUTES_MAX)?;
        let mut domains = Domains::default();
        let mut places: HashMap<Box<[u8]>, u32, ahash::RandomState> = empty();
        for row in rows {
            domains.add(row, &mut places).map_err(|why| format!("table `{}`: {why}", settings.table))?;
        }
        let mut found = Vec::new();
        for row in attributes {
            let attribute =
                attribute(row).map_err(|why| format!("table `{}`: {why}", settings.attributes_table))?;
            if let Some(place) = places.get(attribute.0) {
                found.push((*place, attribute.1));
            }
        }
        domains.sort_in(found);
        Ok(domains)
    }

    fn add(
        &mut self,
        row: &[Option<String>],
        places: &mut HashMap<Box<[u8]>, u32, ahash::RandomState>,
    ) -> Result<(), String> {
        let name = text(row, 0).unwrap_or_default();
        let mut buffer = [0; NAME_BYTES_MAX];
        let Some(key) = key(name.as_bytes(), &mut buffer) else {
            return Err(format!(
                "`{name}` is no domain: write a name of at most {NAME_BYTES_MAX} bytes, without port"
            ));
        };
        let did = text(row, 1).filter(|did| !did.is_empty()).unwrap_or(name);
        if did.len() > TEXT_BYTES_MAX {
            return Err(format!("the did of `{name}` is longer than {TEXT_BYTES_MAX} bytes: shorten it"));
        }
        let next = u32::try_from(self.dids.len()).unwrap_or(u32::MAX);
        let place = *places.entry_ref(did.as_bytes()).or_insert(next);
        if place == next {
            self.dids.push(Did { text: did.as_bytes().into(), attributes: 0..0 });
        }
        match self.names.insert(key.into(), place) {
            Some(other) if other != place => {
                Err(format!("`{name}` is there twice with different dids: remove one of the rows"))
            }
            _ => Ok(()),
        }
    }

    /// Puts attributes behind their `did`s.
    fn sort_in(&mut self, mut found: Vec<(u32, Attribute)>) {
        // A stable sort: attributes of one name keep the order of their rows.
        found.sort_by_key(|(place, _)| *place);
        for (place, attribute) in found {
            let end = u32::try_from(self.attributes.len()).unwrap_or(u32::MAX);
            if let Some(did) = self.dids.get_mut(place as usize) {
                let start = if did.attributes.is_empty() { end } else { did.attributes.start };
                did.attributes = start..end + 1;
                self.attributes.push(attribute);
            }
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Their names, in lower case and in no order.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.names.keys().map(|name| &**name)
    }

    /// Whether a host, as a URI has it, is one of them.
    pub fn contains(&self, host: &[u8]) -> bool {
        self.place(host).is_some()
    }

    fn place(&self, host: &[u8]) -> Option<u32> {
        let mut buffer = [0; NAME_BYTES_MAX];
        self.names.get(key(host, &mut buffer)?).copied()
    }

    /// The `did` and the attributes of a host that is one of them.
    pub(super) fn look_up(&self, host: &[u8]) -> Option<(&[u8], &[Attribute])> {
        let did = self.dids.get(self.place(host)? as usize)?;
        let attributes = did.attributes.start as usize..did.attributes.end as usize;
        Some((&did.text, self.attributes.get(attributes).unwrap_or(&[])))
    }
}

/// The text of a column; `None` for NULL.
pub(crate) fn text(row: &[Option<String>], column: usize) -> Option<&str> {
    row.get(column).and_then(Option::as_deref)
}

/// Refuses a table that is too long.
pub(crate) fn check_count(table: &str, rows: usize, rows_max: usize) -> Result<(), String> {
    if rows <= rows_max {
        return Ok(());
    }
    Err(format!("table `{table}`: {rows} rows are more than the {rows_max} that are read: remove some"))
}

/// What a host is looked for by: in lower case, without a final dot, an IPv6 address in its shortest form.
/// `None` for what is no host.
fn key<'b>(host: &[u8], buffer: &'b mut [u8; NAME_BYTES_MAX]) -> Option<&'b [u8]> {
    let bare = host.strip_prefix(b"[").and_then(|host| host.strip_suffix(b"]")).unwrap_or(host);
    let address = || core::str::from_utf8(bare).ok().and_then(|text| text.parse::<Ipv6Addr>().ok());
    if bare.contains(&b':') {
        // All that has colons is an address or nothing: a domain has no port.
        let octets = address()?.octets();
        let key = buffer.get_mut(..octets.len())?;
        key.copy_from_slice(&octets);
        return Some(key);
    }
    let name = host.strip_suffix(b".").unwrap_or(host);
    let plain = !name.is_empty() && !name.iter().any(|byte| byte.is_ascii_whitespace() || *byte < b' ');
    let key = buffer.get_mut(..name.len()).filter(|_| plain)?;
    key.copy_from_slice(name);
    key.make_ascii_lowercase();
    Some(key)
}

/// Reads a row of `domain_attrs`: the `did`, and what it has.
fn attribute(row: &[Option<String>]) -> Result<(&[u8], Attribute), String> {
    let column = |place| text(row, place).unwrap_or_default();
    let (did, name, kind, value) = (column(0), column(1), column(2), column(3));
    if name.is_empty() || [did, name, value].iter().any(|text| text.len() > TEXT_BYTES_MAX) {
        return Err(format!(
            "an attribute of `{did}`: names and values have at most {TEXT_BYTES_MAX} bytes, \
             and names at least 1"
        ));
    }
    let value = match kind.trim() {
        "0" => match value.trim().parse() {
            Ok(int) => Value::Int(int),
            Err(_) => {
                return Err(format!(
                    "the attribute `{name}` of `{did}` has the type 0, an integer, and its value is none: \
                     correct it, or make its type 2"
                ));
            }
        },
        "2" => Value::Str(value.as_bytes().into()),
        other => {
            return Err(format!(
                "the attribute `{name}` of `{did}` has the type `{other}`: write 0 (integer) or 2 (string)"
            ));
        }
    };
    Ok((did.as_bytes(), Attribute { name: name.as_bytes().into(), value }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::borrow::ToOwned;
    use alloc::string::ToString;

    fn rows(rows: &[&[&str]]) -> Vec<Vec<Option<String>>> {
        let column = |text: &&str| (*text != "NULL").then(|| (*text).to_owned());
        rows.iter().map(|row| row.iter().map(column).collect()).collect()
    }

    fn domains(table: &[&[&str]], attributes: &[&[&str]]) -> Result<Domains, String> {
        Domains::from_rows(&DomainSettings::default(), &rows(table), &rows(attributes))
    }

    #[test]
    fn names_compare_without_case() {
        let known = domains(
            &[
                &["Example.org", "NULL"],
                &["b.example.", "NULL"],
                &["192.0.2.1", "NULL"],
                &["2001:DB8::1", "NULL"],
            ],
            &[],
        )
        .unwrap();
        for host in
            ["example.ORG", "example.org.", "B.example", "192.0.2.1", "[2001:db8:0::1]", "2001:db8::1"]
        {
            assert!(known.contains(host.as_bytes()), "{host}");
        }
        let long = "a".repeat(256);
        for host in ["", ".", "example.org:5060", "a.example.org", "192.0.2.10", "[2001:db8::2]", "[", &long]
        {
            assert!(!known.contains(host.as_bytes()), "{host}");
        }
        assert_eq!(known.len(), 4);
    }

    #[test]
    fn domains_of_one_did_share_its_attributes() {
        let known = domains(
            &[&["a.example", "one"], &["b.example", "one"], &["c.example", "NULL"]],
            &[
                &["one", "limit", "0", "42"],
                &["c.example", "x", "2", ""],
                &["one", "name", "2", "first"],
                &["one", "name", "2", "second"],
                &["nobody", "x", "2", "lost"],
            ],
        )
        .unwrap();
        let (did, attributes) = known.look_up(b"B.EXAMPLE").unwrap();
        let values: Vec<_> = attributes.iter().map(|attribute| attribute.value.clone()).collect();
        assert_eq!(did, b"one");
        assert_eq!(
            values,
            [Value::Int(42), Value::Str(b"first".as_slice().into()), Value::Str(b"second".as_slice().into())]
        );
        let (did, attributes) = known.look_up(b"c.example").unwrap();
        assert_eq!((did, attributes.len()), (&b"c.example"[..], 1));
        assert_eq!(known.look_up(b"d.example"), None);
    }

    #[test]
    fn a_row_that_makes_no_sense_is_named() {
        for (table, attributes, named) in [
            (&[&["", "NULL"][..]][..], &[][..], "no domain"),
            (&[&["NULL", "x"][..]][..], &[][..], "no domain"),
            (&[&["a.example:5060", "x"][..]][..], &[][..], "a.example:5060"),
            (&[&["a.example", "x"][..], &["A.example", "y"]][..], &[][..], "twice"),
            (&[&["a.example", "x"][..]][..], &[&["x", "n", "0", "many"][..]][..], "type 0"),
            (&[&["a.example", "x"][..]][..], &[&["x", "n", "1", "1"][..]][..], "type `1`"),
            (&[&["a.example", "x"][..]][..], &[&["x", "", "2", "1"][..]][..], "names at least 1"),
            (&[&["a.example"][..]][..], &[&["x"][..]][..], "names at least 1"),
        ] {
            let error = domains(table, attributes).unwrap_err();
            assert!(error.contains(named), "{error}");
        }
        let many: Vec<_> =
            (0..=Domains::ROWS_MAX).map(|place| [Some(place.to_string()), None].into()).collect();
        assert!(
            Domains::from_rows(&DomainSettings::default(), &many, &[]).unwrap_err().contains("more than")
        );
    }
}
