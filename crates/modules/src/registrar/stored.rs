//! Bindings as location tables of databases have them: user and domain apart, methods as Kamailio numbers them.

use super::{MAIN_TABLE, aor_key};
use crate::settings::RegistrarSettings;
use alloc::vec::Vec;
use sip::Method;

/// What the key of an address-of-record says in a location table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredAor<'k> {
    /// The table's name.
    pub table: &'k [u8],
    /// The user; empty for the address of a host.
    pub username: &'k [u8],
    /// The domain; empty where addresses-of-record are users alone, and for URIs of other schemes, which are the user as
    /// a whole.
    pub domain: &'k [u8],
}

/// Takes a key of the location service apart.
pub fn stored_aor<'k>(settings: &RegistrarSettings, key: &'k [u8]) -> StoredAor<'k> {
    let (table, rest) = match key.iter().position(|&byte| byte == 0) {
        Some(end) => (&key[..end], &key[end + 1..]),
        None => (MAIN_TABLE, key),
    };
    if !settings.use_domain {
        return StoredAor { table, username: rest, domain: &[] };
    }
    let Some(address) = rest.strip_prefix(b"sip:") else {
        return StoredAor { table, username: rest, domain: &[] };
    };
    // A user may hold an `@` that was escaped; a host cannot.
    match address.iter().rposition(|&byte| byte == b'@') {
        Some(at) => StoredAor { table, username: &address[..at], domain: &address[at + 1..] },
        None => StoredAor { table, username: &[], domain: address },
    }
}

/// Writes the key of an address-of-record as a location table has it to `out`; false if it can be none here: without a
/// user, or without a domain where addresses-of-record have one.
pub fn key_of_stored(settings: &RegistrarSettings, stored: &StoredAor<'_>, out: &mut Vec<u8>) -> bool {
    out.clear();
    if stored.username.contains(&0) || stored.domain.contains(&0) {
        return false;
    }
    if stored.table != MAIN_TABLE {
        out.extend_from_slice(stored.table);
        out.push(0);
    }
    let start = out.len();
    if !settings.use_domain {
        out.extend_from_slice(stored.username);
    } else if !stored.domain.is_empty() {
        out.extend_from_slice(b"sip:");
        if !stored.username.is_empty() {
            out.extend_from_slice(stored.username);
            out.push(b'@');
        }
        out.extend_from_slice(stored.domain);
    } else if stored.username.contains(&b':') {
        out.extend_from_slice(stored.username);
    }
    if !settings.case_sensitive {
        out[start..].make_ascii_lowercase();
    }
    out.len() > start
}

/// The key of the address-of-record that a URI names in a table; `None` if it is no URI.
pub fn key_of_uri(settings: &RegistrarSettings, table: &str, uri: &str) -> Option<Vec<u8>> {
    let mut key = Vec::new();
    aor_key(settings, table.as_bytes(), uri.as_bytes(), &mut key).then_some(key)
}

/// Methods, and the bits that Kamailio's `methods` column has for them.
const METHODS: [(Method, u32); 15] = [
    (Method::Invite, 1),
    (Method::Cancel, 1 << 1),
    (Method::Ack, 1 << 2),
    (Method::Bye, 1 << 3),
    (Method::Info, 1 << 4),
    (Method::Register, 1 << 5),
    (Method::Subscribe, 1 << 6),
    (Method::Notify, 1 << 7),
    (Method::Message, 1 << 8),
    (Method::Options, 1 << 9),
    (Method::Prack, 1 << 10),
    (Method::Update, 1 << 11),
    (Method::Refer, 1 << 12),
    (Method::Publish, 1 << 13),
    (Method::Other, 1 << 19),
];

/// A binding's methods in Kamailio's numbers; `None`, which stands for all, where its REGISTER had no Allow.
pub fn stored_methods(mask: u32) -> Option<u32> {
    let of = |(method, bit): &(Method, u32)| if mask & super::method_bit(*method) != 0 { *bit } else { 0 };
    (mask != 0).then(|| METHODS.iter().map(of).sum())
}

/// A binding's methods, from Kamailio's numbers.
pub fn methods_of_stored(stored: Option<u32>) -> u32 {
    // All of them: as if there had been no Allow.
    let Some(stored) = stored.filter(|&stored| stored != u32::MAX) else { return 0 };
    let of = |(method, bit): &(Method, u32)| if stored & bit != 0 { super::method_bit(*method) } else { 0 };
    match METHODS.iter().map(of).sum() {
        // None that is known here is not the same as all.
        0 => super::method_bit(Method::Other),
        mask => mask,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registrar_settings() -> RegistrarSettings {
        let text = "request_route { exit; }";
        let loaded = route::load(text, "test.cfg", &crate::catalogue(), &route::NoFiles, &[])
            .unwrap_or_else(|rejected| panic!("{}", rejected.render(route::Colour::Never)));
        crate::Settings::from_program(&loaded.program).unwrap().registrar
    }

    fn round(use_domain: bool, uri: &str, table: &str) -> Vec<u8> {
        let settings = RegistrarSettings { use_domain, ..registrar_settings() };
        let key = key_of_uri(&settings, table, uri).unwrap();
        let mut again = Vec::new();
        assert!(key_of_stored(&settings, &stored_aor(&settings, &key), &mut again), "{uri}");
        assert_eq!(again, key, "{uri}");
        key
    }

    #[test]
    fn a_key_comes_back_from_its_row() {
        for uri in [
            "sip:alice@example.com",
            "sips:alice@example.com:5061",
            "sip:a%40b@example.com",
            "sip:alice@[2001:db8::1]",
            "sip:example.com",
            "tel:+1-201-555-0123",
            "tel:7042;phone-context=example.com",
        ] {
            for table in ["location", "other"] {
                round(true, uri, table);
                round(false, uri, table);
            }
        }
    }

    #[test]
    fn user_and_domain_stand_apart() {
        let settings = RegistrarSettings { use_domain: true, ..registrar_settings() };
        let key = round(true, "sip:Alice@Example.COM", "phones");
        let stored = stored_aor(&settings, &key);
        assert_eq!(stored.table, b"phones");
        assert_eq!((stored.username, stored.domain), (&b"alice"[..], &b"example.com"[..]));
        let alone = round(false, "sip:alice@example.com", "location");
        let settings = RegistrarSettings { use_domain: false, ..settings };
        assert_eq!(stored_aor(&settings, &alone).domain, b"");
    }

    #[test]
    fn rows_that_name_nobody_have_no_key() {
        let mut out = Vec::new();
        let settings = RegistrarSettings { use_domain: true, ..registrar_settings() };
        let row = |username, domain| StoredAor { table: MAIN_TABLE, username, domain };
        assert!(!key_of_stored(&settings, &row(b"alice", b""), &mut out), "no domain");
        assert!(!key_of_stored(&settings, &row(b"", b""), &mut out));
        assert!(!key_of_stored(&settings, &row(b"a\0b", b"example.com"), &mut out));
        let settings = RegistrarSettings { use_domain: false, ..settings };
        assert!(!key_of_stored(&settings, &row(b"", b"example.com"), &mut out), "no user");
    }

    #[test]
    fn methods_come_back_from_kamailios_numbers() {
        let invite_bye = super::super::method_bit(Method::Invite) | super::super::method_bit(Method::Bye);
        assert_eq!(stored_methods(invite_bye), Some(9));
        assert_eq!(stored_methods(0), None);
        assert_eq!(methods_of_stored(Some(u32::MAX)), 0);
        for mask in 0..1_u32 << 15 {
            assert_eq!(methods_of_stored(stored_methods(mask)), mask);
        }
        assert_ne!(methods_of_stored(Some(0)), 0, "no method is not all of them");
    }
}
