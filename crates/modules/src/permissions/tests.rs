//! Networks and groups, one by one.

use super::*;
use alloc::borrow::ToOwned;
use alloc::string::ToString;

fn rows(rows: &[[&str; 5]]) -> Vec<Vec<Option<String>>> {
    let column = |text: &&str| (*text != "NULL").then(|| (*text).to_owned());
    rows.iter().map(|row| row.iter().map(column).collect()).collect()
}

fn addresses(table: &[[&str; 5]]) -> Addresses {
    Addresses::from_rows(&PermissionsSettings::default(), &rows(table), &[]).unwrap()
}

/// As a table of Kamailio's holds them.
fn known() -> Addresses {
    addresses(&[
        ["1", "127.0.0.0", "8", "0", "loop8"],
        ["1", "127.0.0.1", "32", "0", "exact"],
        ["2", "10.0.0.0", "8", "5060", "ten"],
        ["3", "10.1.0.0", "16", "0", "ten16"],
        ["2", "10.1.0.0", "16", "0", "ten16g2"],
        ["4", "gw.example.org", "32", "0", "gw"],
        ["5", "192.0.2.1", "0", "0", "NULL"],
        ["6", "2001:db8::", "32", "0", "v6"],
        ["7", "2001:db8::5", "128", "0", "v6e"],
        ["8", "10.1.0.1", "32", "5070", "p5070"],
        ["9", "10.1.0.1", "NULL", "NULL", "p0"],
    ])
}

fn tag(known: &Addresses, group: u32, host: &str, port: u16) -> Option<String> {
    let member = known.member(group, Peer::parse(host.as_bytes()), port)?;
    Some(member.tag.unwrap_or("none").to_owned())
}

#[test]
fn addresses_belong_to_groups_by_their_longest_prefix() {
    let known = known();
    for (group, host, port, expected) in [
        (1, "127.0.0.1", 5060, Some("exact")),
        (1, "127.0.0.2", 5060, Some("loop8")),
        (2, "10.2.0.1", 5060, Some("ten")),
        (2, "10.2.0.1", 5061, None),
        (2, "10.2.0.1", 0, None),
        (2, "10.1.0.1", 5061, Some("ten16g2")),
        (3, "10.1.0.1", 0, Some("ten16")),
        (4, "gw.example.org", 5060, Some("gw")),
        (4, "GW.example.org.", 5060, Some("gw")),
        (5, "192.0.2.1", 1, Some("none")),
        (5, "192.0.2.2", 1, None),
        (6, "2001:db8::5", 1, Some("v6")),
        (7, "2001:db8::5", 1, Some("v6e")),
        (7, "[2001:DB8::5]", 1, Some("v6e")),
        (1, "::ffff:127.0.0.1", 1, Some("exact")),
        (8, "10.1.0.1", 5070, Some("p5070")),
        (8, "10.1.0.1", 5060, None),
        (0, "127.0.0.1", 1, None),
        (99, "127.0.0.1", 1, None),
        (1, "", 1, None),
        (1, "nonsense", 1, None),
    ] {
        assert_eq!(tag(&known, group, host, port).as_deref(), expected, "{group} {host}:{port}");
    }
}

#[test]
fn the_group_of_an_address_is_found() {
    let known = known();
    for (host, port, expected) in [
        ("10.1.0.1", 5070, Some((8, Some("p5070")))),
        ("10.1.0.1", 5060, Some((9, Some("p0")))),
        ("10.1.2.1", 5060, Some((2, Some("ten16g2")))),
        ("10.2.0.1", 5060, Some((2, Some("ten")))),
        ("10.2.0.1", 5061, None),
        ("gw.example.org", 5060, Some((4, Some("gw")))),
        ("2001:db8::5", 1, Some((7, Some("v6e")))),
        ("2001:db8::6", 1, Some((6, Some("v6")))),
        ("192.0.2.1", 9, Some((5, None))),
        ("192.0.2.9", 1, None),
        ("", 1, None),
    ] {
        let found = known.group(Peer::parse(host.as_bytes()), port).map(|member| (member.group, member.tag));
        assert_eq!(found, expected, "{host}:{port}");
    }
}

/// An IPv6 network that covers the mapped addresses by chance says nothing of IPv4.
#[test]
fn the_families_are_apart() {
    let known = addresses(&[["1", "::", "1", "0", "half"], ["2", "::ffff:192.0.2.0", "24", "0", "v4"]]);
    assert_eq!(tag(&known, 1, "192.0.2.1", 0), None);
    assert_eq!(tag(&known, 1, "::1", 0).as_deref(), Some("half"));
    assert_eq!(tag(&known, 2, "192.0.2.1", 0).as_deref(), Some("v4"));
    assert_eq!(known.group(Peer::parse(b"192.0.2.1"), 0).map(|member| member.group), Some(2));
}

#[test]
fn of_two_equal_rows_the_first_counts() {
    let known = addresses(&[["1", "10.0.0.1", "32", "0", "first"], ["1", "10.0.0.1", "32", "0", "second"]]);
    assert_eq!(tag(&known, 1, "10.0.0.1", 7).as_deref(), Some("first"));
    // The very port counts before any port.
    let known = addresses(&[["1", "10.0.0.1", "32", "0", "any"], ["1", "10.0.0.1", "32", "7", "seven"]]);
    assert_eq!(tag(&known, 1, "10.0.0.1", 7).as_deref(), Some("seven"));
    assert_eq!(tag(&known, 1, "10.0.0.1", 8).as_deref(), Some("any"));
}

#[test]
fn a_row_that_makes_no_sense_is_named() {
    for (row, named) in [
        (["0", "10.0.0.1", "32", "0", "x"], "no group"),
        (["-1", "10.0.0.1", "32", "0", "x"], "no group"),
        (["NULL", "10.0.0.1", "32", "0", "x"], "no group"),
        (["1", "10.0.0.1", "33", "0", "x"], "1 to 32"),
        (["1", "2001:db8::", "129", "0", "x"], "1 to 128"),
        (["1", "10.0.0.1", "255.255.255.0", "0", "x"], "no length"),
        (["1", "10.0.0.1", "32", "65536", "x"], "no port"),
        (["1", "10.0.0.0/8", "32", "0", "x"], "column of its own"),
        (["1", "10.0.0.300", "32", "0", "x"], "no address"),
        (["1", "10.0.0", "32", "0", "x"], "no address"),
        (["1", "2001:db8", "32", "0", "x"], "neither"),
        (["1", "", "32", "0", "x"], "neither"),
        (["1", "NULL", "32", "0", "x"], "neither"),
    ] {
        let error = Addresses::from_rows(&PermissionsSettings::default(), &rows(&[row]), &[]).unwrap_err();
        assert!(error.contains(named), "{row:?}: {error}");
    }
}

/// The sample of Kamailio's documentation.
#[test]
fn a_file_is_read() {
    let text = "# address file\n\n1 127.0.0.1 32 0 tag1\r\n1 10.0.0.10 # one\n\n2 192.168.1.0 24 0 tag2\n\
                2 192.168.2.0 24 0 tag3\n3 [1:5ee::900d:c0de]\n4 gw.example.org 0 5060 a,b=c;d\n";
    let known = Addresses::parse_file(text).unwrap();
    assert_eq!(known.len(), 6);
    for (group, host, port, expected) in [
        (1, "127.0.0.1", 1, Some("tag1")),
        (1, "10.0.0.10", 1, Some("none")),
        (2, "192.168.2.77", 1, Some("tag3")),
        (2, "192.168.3.1", 1, None),
        (3, "1:5ee::900d:c0de", 1, Some("none")),
        (4, "gw.example.org", 5060, Some("a,b=c;d")),
        (4, "gw.example.org", 5061, None),
    ] {
        assert_eq!(tag(&known, group, host, port).as_deref(), expected, "{group} {host}:{port}");
    }
    assert!(Addresses::parse_file("").unwrap().is_empty());
    for (text, named) in [
        ("1 10.0.0.1\nx 10.0.0.2\n", "line 2"),
        ("1\n", "neither"),
        ("1 10.0.0.1 32 0 a tag\n", "nothing more"),
        ("1 10.0.0.0/8 0\n", "column of its own"),
        ("1 10.0.0.1 tag\n", "no length"),
        ("1 10.0.0.1 99\n", "1 to 32"),
    ] {
        let error = Addresses::parse_file(text).unwrap_err();
        assert!(error.contains(named), "{text}: {error}");
    }
}

/// Whatever is written: records or an error, and no panic.
#[test]
fn any_text_is_a_file_or_an_error() {
    let pieces = [
        "1",
        " ",
        "10.0.0.1",
        "\n",
        "#",
        "2001:db8::",
        "[",
        "/8",
        "32",
        "\t",
        "gw",
        "-",
        "\u{e4}",
        "65536",
        ".",
    ];
    let mut state = 1u64;
    for _ in 0..5_000 {
        let mut text = String::new();
        for _ in 0..20 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            text.push_str(pieces[(state >> 33) as usize % pieces.len()]);
        }
        let _ = Addresses::parse_file(&text);
    }
}

#[test]
fn thousands_of_networks_are_all_found() {
    let table: Vec<Vec<Option<String>>> = (0..20_000u32)
        .map(|place| {
            let ip = core::net::Ipv4Addr::from_bits(0x0a00_0000 + place * 256);
            let group = (place % 7 + 1).to_string();
            [group, ip.to_string(), "24".into(), "0".into(), place.to_string()].map(Some).into()
        })
        .collect();
    let known = Addresses::from_rows(&PermissionsSettings::default(), &table, &[]).unwrap();
    for place in (0..20_000u32).step_by(617) {
        let ip = IpAddr::from(core::net::Ipv4Addr::from_bits(0x0a00_0000 + place * 256 + 9));
        let found = known.group(Peer::Address(ip), 5060).unwrap();
        assert_eq!((found.group, found.tag), (place % 7 + 1, Some(place.to_string().as_str())));
        assert!(known.member(place % 7 + 1, Peer::Address(ip), 5060).is_some());
        assert!(known.member((place + 1) % 7 + 1, Peer::Address(ip), 5060).is_none());
    }
}

mod trusted_rules {
    use super::super::super::trusted::{Protocol, Trusted};
    use super::*;

    fn trusted(rules: &[[&str; 6]]) -> Result<Trusted, String> {
        let column = |text: &&str| (*text != "NULL").then(|| (*text).to_owned());
        let rows: Vec<Vec<_>> = rules.iter().map(|row| row.iter().map(column).collect()).collect();
        Trusted::from_rows(&rows)
    }

    fn tags(trusted: &Trusted, source: &str, protocol: &str, from: &str, uri: &str) -> Vec<String> {
        let mut tags = Vec::new();
        let protocol = Protocol::parse(protocol.as_bytes()).unwrap();
        let count = trusted.each(
            Peer::parse(source.as_bytes()),
            protocol,
            from.as_bytes(),
            uri.as_bytes(),
            &mut |tag| {
                tags.push(tag.unwrap_or("none").to_owned());
                true
            },
        );
        assert_eq!(count, tags.len());
        tags
    }

    #[test]
    fn every_part_of_a_rule_must_fit() {
        let known = trusted(&[
            ["127.0.0.1", "any", "^sip:alice@", "NULL", "t-any", "0"],
            ["127.0.0.1", "UDP", "NULL", "^sip:x", "t-ruri", "5"],
            ["127.0.0.1", "tcp", "", "", "t-tcp", "9"],
            ["2001:DB8::1", "tls", "NULL", "NULL", "NULL", "NULL"],
            ["127.0.0.2", "none", "NULL", "NULL", "off", "0"],
            ["Host.example", "any", "NULL", "NULL", "name", "0"],
        ])
        .unwrap();
        for (source, protocol, from, uri, expected) in [
            ("127.0.0.1", "udp", "sip:alice@a", "sip:b@a", &["t-any"][..]),
            ("127.0.0.1", "udp", "sip:alice@a", "sip:x@a", &["t-ruri", "t-any"]),
            ("127.0.0.1", "udp", "sip:z@a", "sip:b@a", &[]),
            ("127.0.0.1", "any", "sip:z@a", "sip:b@a", &["t-tcp"]),
            ("127.0.0.1", "tls", "sip:z@a", "sip:b@a", &[]),
            ("::ffff:127.0.0.1", "tcp", "sip:z@a", "sip:b@a", &["t-tcp"]),
            ("2001:db8:0::1", "tls", "sip:z@a", "sip:b@a", &["none"]),
            ("127.0.0.2", "udp", "sip:z@a", "sip:b@a", &[]),
            ("127.0.0.2", "any", "sip:z@a", "sip:b@a", &[]),
            ("host.EXAMPLE", "udp", "sip:z@a", "sip:b@a", &["name"]),
            ("10.0.0.1", "udp", "sip:alice@a", "sip:b@a", &[]),
            ("", "udp", "sip:alice@a", "sip:b@a", &[]),
        ] {
            assert_eq!(
                tags(&known, source, protocol, from, uri),
                expected,
                "{source} {protocol} {from} {uri}"
            );
        }
    }

    #[test]
    fn a_rule_that_makes_no_sense_is_named() {
        for (rule, named) in [
            (["", "any", "NULL", "NULL", "x", "0"], "no source"),
            (["10.0.0.1", "carrier pigeon", "NULL", "NULL", "x", "0"], "no transport"),
            (["10.0.0.1", "any", "\\(", "NULL", "x", "0"], "no expression"),
            (["10.0.0.1", "any", "NULL", "[", "x", "0"], "no expression"),
            (["10.0.0.1", "any", "NULL", "NULL", "x", "high"], "no priority"),
        ] {
            let error = trusted(&[rule]).unwrap_err();
            assert!(error.contains(named), "{rule:?}: {error}");
        }
        let long = "x".repeat(256);
        for rule in [["10.0.0.1", "any", &long, "", "x", "0"], ["10.0.0.1", "any", "", "", &long, "0"]] {
            assert!(trusted(&[rule]).unwrap_err().contains("longer than 255 bytes"));
        }
        let many = [["10.0.0.1", "any", "NULL", "NULL", "x", "0"]; 257];
        assert!(trusted(&many).unwrap_err().contains("more than 256"));
    }
}
