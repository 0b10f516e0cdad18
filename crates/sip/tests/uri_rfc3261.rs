//! URIs as RFC 3261 §19.1 and RFC 3966 §4 have them: every example of §19.1.3 and §19.1.4, the comparison rules of
//! `tel:`, and the corners those rules leave to a careless reader.

use sip::{Host, SipUri, Uri, canonical_aor};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Well-formed URIs of all kinds; fodder for the tests that parse everything and that break everything.
const WELL_FORMED: &[&str] = &[
    "sip:alice@atlanta.com",
    "sip:alice:secretword@atlanta.com;transport=tcp",
    "sips:alice@atlanta.com?subject=project%20x&priority=urgent",
    "sip:+1-212-555-1212:1234@gateway.com;user=phone",
    "sips:1212@gateway.com",
    "sip:alice@192.0.2.4",
    "sip:atlanta.com;method=REGISTER?to=alice%40atlanta.com",
    "sip:alice;day=tuesday@atlanta.com",
    "sip:user;par=u%40example.net@example.com",
    INTMETH,
    "sip:null-%00-null@example.com",
    "sip:cal%6Cer@host5.example.net;%6C%72;n%61me=v%61lue%25%34%31",
    "sip:user@[2001:db8::10]:5070;lr",
    "sip:[2001:db8:::192.0.2.1]",
    "sip:[::ffff:192.0.2.10]:19823",
    "tel:+1-201-555-0123;ext=12",
    "tel:863-1234;phone-context=+1-914-555",
    "soap.beep://192.0.2.103:3002",
    "isbn:2983792873",
];

/// The Request-URI of RFC 4475 §3.1.1.2.
const INTMETH: &str = "sip:1_unusual.URI~(to-be!sure)&isn't+it$/crazy?,/;;*:&it+has=1,weird!*pas$wo~d_too.(doesn't-it)@example.com";

fn uri(text: &str) -> Uri<'_> {
    Uri::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{text} does not parse: {error:?}"))
}

fn sip_uri(text: &str) -> SipUri<'_> {
    match uri(text) {
        Uri::Sip(sip) => sip,
        _ => panic!("{text} is not a SIP or SIPS URI"),
    }
}

fn refused(set: &[&str]) {
    let accepted: Vec<_> = set.iter().filter(|text| Uri::parse(text.as_bytes()).is_ok()).collect();
    assert!(accepted.is_empty(), "these should not parse: {accepted:?}");
}

/// Comparison is symmetric.
fn equal(left: &str, right: &str) {
    assert!(uri(left).equivalent(&uri(right)), "{left} should equal {right}");
    assert!(uri(right).equivalent(&uri(left)), "{right} should equal {left}");
}

/// Comparison is symmetric, and every URI equals itself.
fn different(left: &str, right: &str) {
    for same in [left, right] {
        assert!(uri(same).equivalent(&uri(same)), "{same} should equal itself");
    }
    assert!(!uri(left).equivalent(&uri(right)), "{left} should not equal {right}");
    assert!(!uri(right).equivalent(&uri(left)), "{right} should not equal {left}");
}

fn all_equal(set: &[&str]) {
    for left in set {
        for right in set {
            equal(left, right);
        }
    }
}

fn aor(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    canonical_aor(&uri(text), true, &mut out);
    out
}

// ---- RFC 3261 §19.1.3, example URIs -------------------------------------------------------------

#[test]
fn example_user_and_host() {
    let parsed = sip_uri("sip:alice@atlanta.com");
    assert!(!parsed.secure);
    assert_eq!(parsed.user, Some(&b"alice"[..]));
    assert_eq!(parsed.password, None);
    assert_eq!(parsed.host, Host::Name(b"atlanta.com"));
    assert_eq!(parsed.port, None);
    assert!(parsed.params.get(b"transport").is_none());
    assert_eq!(parsed.headers, None);
}

#[test]
fn example_password_and_transport() {
    let parsed = sip_uri("sip:alice:secretword@atlanta.com;transport=tcp");
    assert_eq!(parsed.user, Some(&b"alice"[..]));
    assert_eq!(parsed.password, Some(&b"secretword"[..]));
    assert_eq!(parsed.host, Host::Name(b"atlanta.com"));
    assert_eq!(parsed.params.get(b"transport"), Some(Some(&b"tcp"[..])));
    assert!(!parsed.lr());
}

#[test]
fn example_secure_with_headers() {
    let parsed = sip_uri("sips:alice@atlanta.com?subject=project%20x&priority=urgent");
    assert!(parsed.secure);
    assert_eq!(parsed.host, Host::Name(b"atlanta.com"));
    assert_eq!(parsed.headers, Some(&b"subject=project%20x&priority=urgent"[..]));
}

#[test]
fn example_telephone_subscriber_as_user() {
    let parsed = sip_uri("sip:+1-212-555-1212:1234@gateway.com;user=phone");
    assert_eq!(parsed.user, Some(&b"+1-212-555-1212"[..]));
    assert_eq!(parsed.password, Some(&b"1234"[..]));
    assert_eq!(parsed.host, Host::Name(b"gateway.com"));
    assert_eq!(parsed.port, None);
    assert_eq!(parsed.params.get(b"user"), Some(Some(&b"phone"[..])));
}

#[test]
fn example_digits_as_user() {
    let parsed = sip_uri("sips:1212@gateway.com");
    assert!(parsed.secure);
    assert_eq!(parsed.user, Some(&b"1212"[..]));
    assert_eq!(parsed.host, Host::Name(b"gateway.com"));
}

#[test]
fn example_ipv4_host() {
    let parsed = sip_uri("sip:alice@192.0.2.4");
    assert_eq!(parsed.host, Host::V4(Ipv4Addr::new(192, 0, 2, 4)));
    assert_eq!(parsed.port, None);
}

#[test]
fn example_method_and_header_without_user() {
    let parsed = sip_uri("sip:atlanta.com;method=REGISTER?to=alice%40atlanta.com");
    assert_eq!(parsed.user, None);
    assert_eq!(parsed.host, Host::Name(b"atlanta.com"));
    assert_eq!(parsed.params.get(b"method"), Some(Some(&b"REGISTER"[..])));
    assert_eq!(parsed.headers, Some(&b"to=alice%40atlanta.com"[..]));
}

#[test]
fn example_semicolon_in_user_is_opaque() {
    let parsed = sip_uri("sip:alice;day=tuesday@atlanta.com");
    assert_eq!(parsed.user, Some(&b"alice;day=tuesday"[..]));
    assert_eq!(parsed.host, Host::Name(b"atlanta.com"));
    assert!(parsed.params.get(b"day").is_none());
}

#[test]
fn every_well_formed_uri_parses_and_equals_itself() {
    for text in WELL_FORMED {
        equal(text, text);
    }
}

// ---- RFC 3261 §19.1.4, equivalent examples ------------------------------------------------------

#[test]
fn escapes_of_unreserved_and_case_outside_userinfo_do_not_matter() {
    all_equal(&["sip:%61lice@atlanta.com;transport=TCP", "sip:alice@AtLanTa.CoM;Transport=tcp"]);
}

#[test]
fn unknown_parameter_in_one_uri_only_is_ignored() {
    all_equal(&[
        "sip:carol@chicago.com",
        "sip:carol@chicago.com;newparam=5",
        "sip:carol@chicago.com;security=on",
    ]);
}

#[test]
fn order_of_parameters_does_not_matter() {
    all_equal(&[
        "sip:biloxi.com;transport=tcp;method=REGISTER?to=sip:bob%40biloxi.com",
        "sip:biloxi.com;method=REGISTER;transport=tcp?to=sip:bob%40biloxi.com",
    ]);
}

#[test]
fn order_of_headers_does_not_matter() {
    all_equal(&[
        "sip:alice@atlanta.com?subject=project%20x&priority=urgent",
        "sip:alice@atlanta.com?priority=urgent&subject=project%20x",
    ]);
}

// ---- RFC 3261 §19.1.4, examples that are not equivalent -----------------------------------------

#[test]
fn different_usernames_by_case() {
    different("SIP:ALICE@AtLanTa.CoM;Transport=udp", "sip:alice@AtLanTa.CoM;Transport=UDP");
}

#[test]
fn explicit_default_port_is_not_the_absent_port() {
    different("sip:bob@biloxi.com", "sip:bob@biloxi.com:5060");
}

#[test]
fn explicit_default_transport_is_not_the_absent_transport() {
    different("sip:bob@biloxi.com", "sip:bob@biloxi.com;transport=udp");
}

#[test]
fn different_port_and_transport() {
    different("sip:bob@biloxi.com", "sip:bob@biloxi.com:6000;transport=tcp");
}

#[test]
fn header_component_is_never_ignored() {
    different("sip:carol@chicago.com", "sip:carol@chicago.com?Subject=next%20meeting");
}

#[test]
fn host_name_is_not_the_address_it_resolves_to() {
    different("sip:bob@phone21.boxesbybob.com", "sip:bob@192.0.2.4");
}

#[test]
fn equality_is_not_transitive() {
    equal("sip:carol@chicago.com", "sip:carol@chicago.com;security=on");
    equal("sip:carol@chicago.com", "sip:carol@chicago.com;security=off");
    different("sip:carol@chicago.com;security=on", "sip:carol@chicago.com;security=off");
}

// ---- RFC 3261 §19.1.4, rules the examples leave out ---------------------------------------------

#[test]
fn sip_and_sips_are_never_equal() {
    different("sip:alice@atlanta.com", "sips:alice@atlanta.com");
}

#[test]
fn scheme_is_case_insensitive() {
    all_equal(&["sip:alice@atlanta.com", "SIP:alice@atlanta.com", "SiP:alice@ATLANTA.com"]);
    all_equal(&["sips:alice@atlanta.com", "SIPS:alice@atlanta.com"]);
}

#[test]
fn user_in_one_uri_only_never_matches() {
    different("sip:atlanta.com", "sip:alice@atlanta.com");
}

#[test]
fn password_in_one_uri_only_never_matches() {
    different("sip:alice@atlanta.com", "sip:alice:secret@atlanta.com");
    // `password` may be empty by the grammar, and an empty one is not an omitted one.
    different("sip:alice@atlanta.com", "sip:alice:@atlanta.com");
}

#[test]
fn userinfo_is_case_sensitive_even_escaped() {
    different("sip:alice:secret@atlanta.com", "sip:alice:SECRET@atlanta.com");
    different("sip:%41lice@atlanta.com", "sip:alice@atlanta.com");
    equal("sip:%41lice@atlanta.com", "sip:Alice@atlanta.com");
}

#[test]
fn escape_of_a_reserved_character_is_not_the_character() {
    for (escaped, reserved) in [
        ("%3B", ";"),
        ("%2F", "/"),
        ("%3F", "?"),
        ("%3A", ":"),
        ("%26", "&"),
        ("%3D", "="),
        ("%2B", "+"),
        ("%24", "$"),
        ("%2C", ","),
    ] {
        different(&format!("sip:a{escaped}b@atlanta.com"), &format!("sip:a{reserved}b@atlanta.com"));
    }
}

#[test]
fn escape_of_an_unreserved_character_is_the_character() {
    for (escaped, unreserved) in [
        ("%2D", "-"),
        ("%5F", "_"),
        ("%2E", "."),
        ("%21", "!"),
        ("%7E", "~"),
        ("%2A", "*"),
        ("%27", "'"),
        ("%28", "("),
        ("%29", ")"),
        ("%39", "9"),
        ("%7A", "z"),
    ] {
        equal(&format!("sip:a{escaped}b@atlanta.com"), &format!("sip:a{unreserved}b@atlanta.com"));
    }
}

#[test]
fn hex_digits_of_an_escape_are_case_insensitive() {
    equal("sip:a%3bb@atlanta.com", "sip:a%3Bb@atlanta.com");
    equal("sip:%6Aoe@atlanta.com", "sip:%6aoe@atlanta.com");
    different("sip:a%3bb@atlanta.com", "sip:a%3fb@atlanta.com");
}

#[test]
fn unescaping_is_not_recursive() {
    different("sip:a%2541@atlanta.com", "sip:aA@atlanta.com");
    different("sip:a%2541@atlanta.com", "sip:a%41@atlanta.com");
    equal("sip:a%25%34%31@atlanta.com", "sip:a%2541@atlanta.com");
    // RFC 4475 §3.1.1.3, in a parameter
    equal("sip:h.example.net;n%61me=v%61lue%25%34%31", "sip:h.example.net;name=value%2541");
    different("sip:h.example.net;n%61me=v%61lue%25%34%31", "sip:h.example.net;name=valueA");
}

#[test]
fn escaped_nul_does_not_end_a_user() {
    different("sip:%00@host5.example.com", "sip:%00%00@host5.example.com");
    different("sip:null-%00-null@example.com", "sip:null-@example.com");
    different("sip:null-%00-null@example.com", "sip:null-%00-bull@example.com");
}

#[test]
fn escaped_host_is_never_the_unescaped_host() {
    // §19.1.2: "MUST NOT attempt to improve robustness by treating received escaped characters in the host
    // component as literally equivalent to their unescaped counterpart".
    if let Ok(escaped) = Uri::parse(b"sip:alice@%61tlanta.com") {
        assert!(!escaped.equivalent(&uri("sip:alice@atlanta.com")));
        assert!(!uri("sip:alice@atlanta.com").equivalent(&escaped));
    }
}

#[test]
fn escaped_parameter_names_are_names() {
    // RFC 4475 §3.1.1.3
    assert!(sip_uri("sip:host5.example.net;%6C%72").lr());
    assert!(sip_uri("sip:host5.example.net;LR").lr());
    assert!(sip_uri("sip:host5.example.net;lr=on").lr());
    assert!(!sip_uri("sip:host5.example.net;lrx").lr());
    assert!(!sip_uri("sip:lr@host5.example.net").lr());
    different("sip:host5.example.net;m%61ddr=192.0.2.1", "sip:host5.example.net");
}

#[test]
fn parameters_with_defaults_in_one_uri_only_never_match() {
    for param in ["user=ip", "user=phone", "ttl=1", "method=INVITE", "maddr=192.0.2.1", "transport=udp"] {
        different("sip:carol@chicago.com", &format!("sip:carol@chicago.com;{param}"));
    }
    equal("sip:carol@chicago.com;lr", "sip:carol@chicago.com");
}

#[test]
fn parameters_in_both_uris_must_match_without_regard_to_case() {
    equal("sip:carol@chicago.com;maddr=A.example.com", "sip:carol@chicago.com;MADDR=a.EXAMPLE.com");
    different("sip:carol@chicago.com;maddr=a.example.com", "sip:carol@chicago.com;maddr=b.example.com");
    equal("sip:carol@chicago.com;X=Y", "sip:carol@chicago.com;x=y");
    different("sip:carol@chicago.com;x=1", "sip:carol@chicago.com;x=2");
    different("sip:carol@chicago.com;x", "sip:carol@chicago.com;x=1");
    different("sip:carol@chicago.com;ttl=1", "sip:carol@chicago.com;ttl=2");
    different("sip:carol@chicago.com;user=phone", "sip:carol@chicago.com;user=ip");
    different("sip:carol@chicago.com;transport=tcp", "sip:carol@chicago.com;transport=sctp");
}

#[test]
fn headers_match_by_name_without_case_and_by_value() {
    equal("sip:a@b.com?Subject=next%20meeting", "sip:a@b.com?subject=next%20meeting");
    equal("sip:a@b.com?priority=%75rgent", "sip:a@b.com?priority=urgent");
    different("sip:a@b.com?subject=x", "sip:a@b.com?subject=y");
    different("sip:a@b.com?subject=x", "sip:a@b.com?subject=x&priority=urgent");
    different("sip:a@b.com?subject=x", "sip:a@b.com?priority=x");
}

#[test]
fn only_explicit_ports_match() {
    equal("sip:bob@biloxi.com:5060", "sip:bob@BILOXI.com:5060");
    different("sip:bob@biloxi.com:5060", "sip:bob@biloxi.com:5061");
    different("sips:bob@biloxi.com", "sips:bob@biloxi.com:5061");
    different("sip:bob@[2001:db8::1]", "sip:bob@[2001:db8::1]:5060");
}

// ---- IPv6 references (RFC 3261 §25.1, RFC 5118) -------------------------------------------------

#[test]
fn ipv6_reference_is_an_address_however_written() {
    let address: Ipv6Addr = "2001:db8::1".parse().unwrap();
    assert_eq!(sip_uri("sip:[2001:db8::1]").host, Host::V6(address));
    all_equal(&[
        "sip:[2001:db8::1]",
        "sip:[2001:DB8::1]",
        "sip:[2001:db8:0:0:0:0:0:1]",
        "sip:[2001:0db8::0001]",
    ]);
    equal("sip:[::ffff:192.0.2.1]", "sip:[::ffff:c000:201]");
    different("sip:[2001:db8::1]", "sip:[2001:db8::2]");
    different("sip:[::ffff:192.0.2.1]", "sip:192.0.2.1");
}

#[test]
fn port_of_an_ipv6_reference_is_outside_the_brackets() {
    let outside = sip_uri("sip:[2001:db8::10]:5070");
    assert_eq!(outside.host, Host::V6("2001:db8::10".parse().unwrap()));
    assert_eq!(outside.port, Some(5070));
    let inside = sip_uri("sip:[2001:db8::10:5070]");
    assert_eq!(inside.host, Host::V6("2001:db8::10:5070".parse().unwrap()));
    assert_eq!(inside.port, None);
    let all = sip_uri("sip:bob:pw@[2001:db8::10]:5070;lr?a=b");
    assert_eq!((all.user, all.password), (Some(&b"bob"[..]), Some(&b"pw"[..])));
    assert_eq!(all.port, Some(5070));
    assert!(all.lr());
    assert_eq!(all.headers, Some(&b"a=b"[..]));
}

#[test]
fn third_colon_of_the_grammar_bug_is_tolerated() {
    // RFC 5118 §4.10
    equal("sip:user@[2001:db8:::192.0.2.1]", "sip:user@[2001:db8::192.0.2.1]");
    refused(&["sip:user@[2001:db8::::192.0.2.1]"]);
}

#[test]
fn malformed_ipv6_references_are_refused() {
    refused(&[
        "sip:2001:db8::10",
        "sip:user@2001:db8::10",
        "sip:[2001:db8::10",
        "sip:2001:db8::10]",
        "sip:[]",
        "sip:[::1]x",
        "sip:[::1]:",
        "sip:[::1]5060",
        "sip:[1:2:3:4:5:6:7:8:9]",
        "sip:[2001::db8::1]",
        "sip:[12345::1]",
        "sip:[::1%25eth0]",
        "sip:[example.com]",
        "sip:[192.0.2.1]",
    ]);
}

// ---- the userinfo, where most characters are allowed --------------------------------------------

#[test]
fn userinfo_may_hold_what_looks_like_the_rest_of_a_uri() {
    let parsed = sip_uri("sip:user;par=u%40example.net@example.com");
    assert_eq!(parsed.user, Some(&b"user;par=u%40example.net"[..]));
    assert_eq!(parsed.host, Host::Name(b"example.com"));

    let parsed = sip_uri("sip:a?b@example.com;x=1");
    assert_eq!(parsed.user, Some(&b"a?b"[..]));
    assert_eq!(parsed.headers, None);
    assert_eq!(parsed.params.get(b"x"), Some(Some(&b"1"[..])));

    let parsed = sip_uri("sip:sips%3Auser%40example.com@example.net");
    assert_eq!(parsed.user, Some(&b"sips%3Auser%40example.com"[..]));
    assert_eq!((parsed.password, parsed.host), (None, Host::Name(b"example.net")));
}

#[test]
fn userinfo_of_rfc4475_intmeth() {
    let parsed = sip_uri(INTMETH);
    assert_eq!(parsed.user, Some(&b"1_unusual.URI~(to-be!sure)&isn't+it$/crazy?,/;;*"[..]));
    assert_eq!(parsed.password, Some(&b"&it+has=1,weird!*pas$wo~d_too.(doesn't-it)"[..]));
    assert_eq!(parsed.host, Host::Name(b"example.com"));
    assert_eq!((parsed.port, parsed.headers), (None, None));
}

#[test]
fn an_empty_user_is_refused() {
    refused(&["sip:@atlanta.com", "sip::secret@atlanta.com", "sip::@atlanta.com"]);
}

#[test]
fn two_at_signs_are_refused() {
    refused(&["sip:j@s0n@atlanta.com"]);
    assert_eq!(sip_uri("sip:j%40s0n@atlanta.com").user, Some(&b"j%40s0n"[..]));
}

#[test]
fn malformed_uris_are_refused() {
    refused(&[
        "",
        ":",
        "sip",
        "sip:",
        "sips:",
        "sip:;lr",
        "sip:?a=b",
        "sip::5060",
        "sip:alice@",
        "sip:alice@;lr",
        "sip:alice@:5060",
        "alice@atlanta.com",
        "<sip:alice@atlanta.com>",
        "sip:alice@atlanta.com:",
        "sip:alice@atlanta.com:;lr",
        "sip:alice@atlanta.com:65536",
        "sip:alice@atlanta.com:99999999999999999999",
        "sip:alice@atlanta.com:50x0",
        "sip:alice@atlanta.com:-5060",
        "sip:alice@atlanta.com:5060:5060",
        "sip:al%4@atlanta.com",
        "sip:al%zzice@atlanta.com",
        "sip:alice%@atlanta.com",
        "sip:al ice@atlanta.com",
        "sip:alice@atlanta.com; lr",
        "sip:alice@atlanta.com ",
        " sip:alice@atlanta.com",
        "sip:alice@atlanta.com\r\n",
        "sip:alice@atlanta\0.com",
        "sip:al\0ice@atlanta.com",
        "sip:alice@atl<anta.com",
        "1sip:alice@atlanta.com",
    ]);
}

// ---- other schemes ------------------------------------------------------------------------------

#[test]
fn other_schemes_are_kept_whole() {
    for (text, want_scheme, want_rest) in [
        ("nobodyKnowsThisScheme:totallyopaquecontent", "nobodyKnowsThisScheme", "totallyopaquecontent"),
        ("soap.beep://192.0.2.103:3002", "soap.beep", "//192.0.2.103:3002"),
        ("http://www.example.com", "http", "//www.example.com"),
        ("name:John_Smith", "name", "John_Smith"),
    ] {
        let Uri::Other { scheme, rest } = uri(text) else { panic!("{text} is of another scheme") };
        assert_eq!((scheme, rest), (want_scheme.as_bytes(), want_rest.as_bytes()), "{text}");
    }
    different("isbn:2983792873", "isbn:2983792874");
    different("isbn:2983792873", "sip:2983792873@example.com");
    different("sipx:alice@atlanta.com", "sip:alice@atlanta.com");
}

// ---- tel: (RFC 3966 §4) -------------------------------------------------------------------------

#[test]
fn tel_examples_parse() {
    // RFC 3966 §6
    for text in
        ["tel:+1-201-555-0123", "tel:7042;phone-context=example.com", "tel:863-1234;phone-context=+1-914-555"]
    {
        assert!(matches!(uri(text), Uri::Tel(_)), "{text}");
        equal(text, text);
    }
}

#[test]
fn tel_visual_separators_do_not_matter() {
    all_equal(&["tel:+1-201-555-0123", "tel:+12015550123", "tel:+1(201)555.0123", "tel:+1-(201)-555-01-23"]);
    all_equal(&["tel:863-1234;phone-context=+1-914-555", "tel:8631234;phone-context=+1914555"]);
    different("tel:+1-201-555-0123", "tel:+1-201-555-0124");
    different("tel:+1-201-555-0123", "tel:+1-201-555-012");
}

#[test]
fn tel_global_and_local_numbers_never_match() {
    different("tel:+12015550123", "tel:12015550123;phone-context=+1");
}

#[test]
fn tel_phone_context_is_a_host_name_or_digits() {
    equal("tel:7042;phone-context=example.com", "tel:7042;phone-context=EXAMPLE.com");
    different("tel:7042;phone-context=example.com", "tel:7042;phone-context=example.net");
    different("tel:7042;phone-context=+1", "tel:7042;phone-context=+12");
    different("tel:7042;phone-context=example.com", "tel:7043;phone-context=example.com");
    // a '-' in a domain name is no visual separator
    different("tel:7042;phone-context=ex-ample.com", "tel:7042;phone-context=example.com");
}

#[test]
fn tel_parameters_match_by_name_in_any_order() {
    equal("tel:+1201;a=1;b=2", "tel:+1201;b=2;a=1");
    equal("tel:+1201;ext=12;a=1", "tel:+1201;A=1;EXT=12");
    different("tel:+1201;a=1", "tel:+1201;a=2");
    different("tel:+1201;a=1", "tel:+1201;a");
}

#[test]
fn tel_parameter_in_one_uri_only_makes_them_different() {
    different("tel:+1201", "tel:+1201;ext=12");
    different("tel:+1201", "tel:+1201;isub=12345");
    different("tel:+1201", "tel:+1201;unknown");
    different("tel:+1201;a=1", "tel:+1201;b=1");
}

#[test]
fn tel_comparison_is_case_insensitive() {
    equal("TEL:+1201;Foo=BAR", "tel:+1201;foo=bar");
    equal("tel:7042A;phone-context=example.com", "tel:7042a;phone-context=example.com");
}

#[test]
fn tel_escape_of_an_unreserved_character_is_the_character() {
    // RFC 3966 §3
    equal("tel:+1201;foo=%62ar", "tel:+1201;foo=bar");
    different("tel:+1201;foo=a%2Fb", "tel:+1201;foo=a/b");
}

#[test]
fn tel_is_not_sip() {
    different("tel:+12015550123", "sip:+12015550123@gateway.com;user=phone");
}

#[test]
fn malformed_tel_uris_are_refused() {
    refused(&["tel:", "tel:+", "tel:;phone-context=+1", "tel:+1 201", "tel:+1201;", "tel:alice@atlanta.com"]);
}

// ---- address-of-record (RFC 3261 §10.3 step 5) --------------------------------------------------

#[test]
fn equal_addresses_of_record_have_one_canonical_form() {
    let plain = aor("sip:alice@atlanta.com");
    for same in ["sip:%61lice@ATLANTA.com", "SIP:alice@atlanta.com;x=y", "sip:alic%65@Atlanta.Com;user=phone"]
    {
        assert_eq!(aor(same), plain, "{same}");
    }
    for other in
        ["sip:Alice@atlanta.com", "sips:alice@atlanta.com", "sip:alice@atlanta.net", "sip:atlanta.com"]
    {
        assert_ne!(aor(other), plain, "{other}");
    }
}

#[test]
fn canonical_form_is_not_cut_at_an_escaped_nul() {
    // RFC 4475 §3.1.1.4
    assert_ne!(aor("sip:null-%00-null@example.com"), aor("sip:null-@example.com"));
    assert_ne!(aor("sip:null-%00-null@example.com"), aor("sip:null-%00-bull@example.com"));
    assert_ne!(aor("sip:%00@example.com"), aor("sip:%00%00@example.com"));
}

#[test]
fn canonical_form_unescapes_once() {
    assert_ne!(aor("sip:a%2541@example.com"), aor("sip:aA@example.com"));
    assert_ne!(aor("sip:a%2541@example.com"), aor("sip:a%41@example.com"));
}

// ---- nothing panics -----------------------------------------------------------------------------

#[test]
fn no_prefix_and_no_changed_byte_panics() {
    for text in WELL_FORMED {
        let bytes = text.as_bytes();
        for end in 0..bytes.len() {
            check(&bytes[..end]);
        }
        for at in 0..bytes.len() {
            for byte in *b"\0 \r%@:;?&=[]<>\",\xff+" {
                let mut changed = bytes.to_vec();
                changed[at] = byte;
                check(&changed);
                changed = bytes.to_vec();
                changed.insert(at, byte);
                check(&changed);
            }
        }
    }
}

/// What parses equals itself, and its canonical form can be written.
fn check(bytes: &[u8]) {
    if let Ok(parsed) = Uri::parse(bytes) {
        assert!(parsed.equivalent(&parsed), "{:?} should equal itself", String::from_utf8_lossy(bytes));
        let mut out = Vec::new();
        canonical_aor(&parsed, true, &mut out);
        canonical_aor(&parsed, false, &mut out);
    }
}
