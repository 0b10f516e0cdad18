//! What the messages of RFC 5118 mean: IPv6 references, their ports, and where brackets may be missing.

use super::*;

#[test]
fn ipv6_good_references_everywhere() {
    accepted("rfc5118/ipv6-good.dat", |m| {
        let target = sip_uri(m.request_uri());
        assert_eq!((target.host, target.port), (v6("2001:db8::10"), None));
        let via = m.via_top().unwrap();
        assert_eq!((via.host, via.port), (v6("2001:db8::9:1"), None));
        assert_eq!(via.branch(), Some(&b"z9hG4bKas3-111"[..]));
        assert_eq!(sip_uri(only_contact(&m).uri).host, v6("2001:db8::1"));
    });
}

#[test]
fn ipv6_bad_is_the_request_uri() {
    rejected("rfc5118/ipv6-bad.dat", |m| {
        assert!(Uri::parse(m.request_uri()).is_err());
        assert_eq!(m.via_top().unwrap().host, v6("2001:db8::9:1"));
    });
}

#[test]
fn port_ambiguous_and_unambiguous() {
    accepted("rfc5118/port-ambiguous.dat", |m| {
        let target = sip_uri(m.request_uri());
        assert_eq!((target.host, target.port), (v6("2001:db8::10:5070"), None));
    });
    accepted("rfc5118/port-unambiguous.dat", |m| {
        let target = sip_uri(m.request_uri());
        assert_eq!((target.host, target.port), (v6("2001:db8::10"), Some(5070)));
    });
}

#[test]
fn via_received_with_and_without_brackets() {
    let received = Some(IpAddr::V6("2001:db8::9:255".parse().unwrap()));
    for (file, branch) in [
        ("rfc5118/via-received-param-with-delim.dat", &b"z9hG4bKas3-111"[..]),
        ("rfc5118/via-received-param-no-delim.dat", b"z9hG4bKas3"),
    ] {
        accepted(file, |m| {
            let via = m.via_top().unwrap();
            assert_eq!((via.host, via.port), (v6("2001:db8::9:1"), None), "{file}");
            assert_eq!((via.received(), via.branch()), (received, Some(branch)), "{file}");
        });
    }
}

#[test]
fn mult_ip_in_header_families_mix() {
    accepted("rfc5118/mult-ip-in-header.dat", |m| {
        let all = vias(&m);
        assert_eq!(all.len(), 3);
        assert_eq!((all[0].host, all[0].port), (v6("2001:db8::9:1"), Some(6050)));
        assert_eq!((all[1].host, all[1].port), (Host::V4(Ipv4Addr::new(192, 0, 2, 1)), None));
        assert_eq!((all[2].host, all[2].transport), (v6("2001:db8::9:255"), Transport::Tcp));
        assert_eq!(all[2].received(), Some(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 200))));
    });
}

#[test]
fn sdp_bodies_end_where_content_length_says() {
    accepted("rfc5118/ipv6-in-sdp.dat", |m| {
        assert_eq!(m.body().len(), 251);
        assert!(contains(m.body(), b"c=IN IP6 2001:db8::20\r\n"));
    });
    accepted("rfc5118/mult-ip-in-sdp.dat", |m| assert_eq!(m.body().len(), 181));
    accepted("rfc5118/ipv4-mapped-ipv6.dat", |m| assert_eq!(m.body().len(), 236));
}

#[test]
fn ipv4_mapped_ipv6_is_ipv6() {
    accepted("rfc5118/ipv4-mapped-ipv6.dat", |m| {
        let all = vias(&m);
        assert_eq!((all[0].host, all[0].port), (v6("::ffff:192.0.2.10"), Some(19823)));
        assert_eq!((all[1].host, all[1].port), (v6("::ffff:192.0.2.2"), None));
        assert_eq!(sip_uri(only_contact(&m).uri).host, v6("::ffff:192.0.2.2"));
    });
}

#[test]
fn ipv6_abnf_bug_means_two_colons() {
    for file in ["rfc5118/ipv6-bug-abnf-3-colons.dat", "rfc5118/ipv6-correct-abnf-2-colons.dat"] {
        accepted(file, |m| {
            assert_eq!(sip_uri(m.request_uri()).host, v6("2001:db8::192.0.2.1"), "{file}");
            assert_eq!(sip_uri(m.to().unwrap().uri).host, v6("2001:db8::192.0.2.1"), "{file}");
        });
    }
}
