//! RFC 3261 §19.1, RFC 3966, RFC 4475 §3.1.1, RFC 5118.

use super::*;
use crate::Transport;

fn uri(text: &str) -> Uri<'_> {
    Uri::parse(text.as_bytes()).unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn sip(text: &str) -> SipUri<'_> {
    *uri(text).sip().unwrap()
}

fn equal(a: &str, b: &str) -> bool {
    let (x, y) = (uri(a).equivalent(&uri(b)), uri(b).equivalent(&uri(a)));
    assert_eq!(x, y, "{a} {b}: equality has no direction");
    assert!(uri(a).equivalent(&uri(a)), "{a} equals itself");
    x
}

#[test]
fn a_sip_uri_has_its_parts() {
    let u =
        sip("sips:alice:secret@atlanta.com:5070;transport=tcp;lr;x=%20?subject=project%20x&priority=urgent");
    assert!(u.secure);
    assert_eq!(u.user, Some(&b"alice"[..]));
    assert_eq!(u.password, Some(&b"secret"[..]));
    assert_eq!(u.host, Host::Name(b"atlanta.com"));
    assert_eq!((u.port, u.port_or_default()), (Some(5070), 5070));
    assert_eq!(u.transport(), Some(Transport::Tcp));
    assert!(u.lr());
    let headers: Vec<_> = u.header_pairs().collect();
    assert_eq!(headers, [(&b"subject"[..], &b"project%20x"[..]), (b"priority", b"urgent")]);
    assert_eq!(sip("SIPS:a").port_or_default(), 5061);
    assert_eq!(sip("sip:a;transport=tls").port_or_default(), 5061);
}

#[test]
fn semicolons_and_question_marks_before_the_at_sign_belong_to_the_user() {
    let u = sip("sip:+1;ext=2@host;x=1");
    assert_eq!(u.user, Some(&b"+1;ext=2"[..]));
    assert_eq!(u.params.get(b"x"), Some(Some(&b"1"[..])));
    // RFC 4475 §3.1.1.9 and §3.1.1.2.
    assert_eq!(sip("sip:user;par=u%40example.net@example.com").user, Some(&b"user;par=u%40example.net"[..]));
    let u = sip(
        "sip:1_unusual.URI~(to-be!sure)&isn't+it$/crazy?,/;;*:&it+has=1,weird!*pas$wo~d_too.(doesn't-it)@example.com",
    );
    assert_eq!(u.user, Some(&b"1_unusual.URI~(to-be!sure)&isn't+it$/crazy?,/;;*"[..]));
    assert_eq!(u.password, Some(&b"&it+has=1,weird!*pas$wo~d_too.(doesn't-it)"[..]));
    // RFC 4475 §3.1.1.3.
    assert_eq!(
        sip("sip:sips%3Auser%40example.com@example.net").user,
        Some(&b"sips%3Auser%40example.com"[..])
    );
}

#[test]
fn escaped_parameter_names_are_the_same_names() {
    // RFC 4475 §3.1.1.3.
    let u = sip("sip:cal%6Cer@host5.example.net;%6C%72;n%61me=v%61lue%25%34%31;tr%61nsport=t%63p");
    assert!(u.lr());
    assert_eq!(u.transport(), Some(Transport::Tcp));
    assert_eq!(u.param(b"NAME"), Some(Some(&b"v%61lue%25%34%31"[..])));
    assert_eq!(Uri::parse(b"sip:a@b;lr;%6C%72"), Err(UriError::Params));
}

#[test]
fn ipv6_references_and_their_ports() {
    assert_eq!(sip("sip:[2001:db8::10]").port, None);
    assert_eq!(sip("sip:[2001:db8::10:5070]").port, None);
    let u = sip("sip:a@[2001:db8::10]:5070;x");
    assert_eq!((u.host.ip(), u.port), (Some("2001:db8::10".parse().unwrap()), Some(5070)));
}

#[test]
fn malformed_uris_say_what_is_wrong() {
    for (text, error) in [
        ("sip:2001:db8::10", UriError::Host),
        ("sip:a@2001:db8::10", UriError::Host),
        ("sip:host:db8::10", UriError::Port),
        ("sip:host:0", UriError::Port),
        ("sip:host:65536", UriError::Port),
        ("sip:host:", UriError::Port),
        ("sip:host:50x", UriError::Port),
        ("sip:a@b@c", UriError::User),
        ("sip:a:b:c@d", UriError::User),
        ("sip:@host", UriError::User),
        ("sip:a@", UriError::Host),
        ("sip:", UriError::Scheme),
        ("sip:a@h/x", UriError::Host),
        ("sip:h;", UriError::Params),
        ("sip:h;;lr", UriError::Params),
        ("sip:h;maddr=a;maddr=b", UriError::Params),
        ("sip:h;a=", UriError::Params),
        ("sip:%4@h", UriError::Character),
        ("sip:a b@h", UriError::Character),
        ("sip:a@h;x=%zz", UriError::Character),
        ("sip:999.1.1.1", UriError::Host),
        ("joe", UriError::Scheme),
        ("1sip:joe", UriError::Scheme),
        ("tel:", UriError::Scheme),
        ("tel:+", UriError::Number),
        ("tel:+1x", UriError::Number),
        ("tel:1234", UriError::Number),
        ("http:a b", UriError::Character),
    ] {
        let got = Uri::parse(text.as_bytes());
        let plausible = got == Err(error) || (error == UriError::Scheme && got.is_err());
        assert!(plausible, "{text}: {got:?}");
    }
}

#[test]
fn other_schemes_are_opaque() {
    assert_eq!(
        uri("nobodyKnowsThisScheme:totallyopaquecontent"),
        Uri::Other { scheme: b"nobodyKnowsThisScheme", rest: b"totallyopaquecontent" }
    );
    assert!(matches!(uri("soap.beep://192.0.2.103:3002"), Uri::Other { scheme: b"soap.beep", .. }));
    assert!(equal("HTTP:a", "http:a"));
    assert!(!equal("http:a", "http:A"));
}

#[test]
fn the_equal_examples_of_rfc_3261_19_1_4_are_equal() {
    for (a, b) in [
        ("sip:%61lice@atlanta.com;transport=TCP", "sip:alice@AtLanTa.CoM;Transport=tcp"),
        ("sip:carol@chicago.com", "sip:carol@chicago.com;newparam=5"),
        ("sip:carol@chicago.com", "sip:carol@chicago.com;security=on"),
        ("sip:carol@chicago.com;newparam=5", "sip:carol@chicago.com;security=on"),
        (
            "sip:biloxi.com;transport=tcp;method=REGISTER?to=sip:bob%40biloxi.com",
            "sip:biloxi.com;method=REGISTER;transport=tcp?to=sip:bob%40biloxi.com",
        ),
        (
            "sip:alice@atlanta.com?subject=project%20x&priority=urgent",
            "sip:alice@atlanta.com?priority=urgent&subject=project%20x",
        ),
        ("sip:carol@chicago.com", "sip:carol@chicago.com;security=off"),
    ] {
        assert!(equal(a, b), "{a} {b}");
    }
}

#[test]
fn the_different_examples_of_rfc_3261_19_1_4_differ() {
    for (a, b) in [
        ("SIP:ALICE@AtLanTa.CoM;Transport=udp", "sip:alice@AtLanTa.CoM;Transport=UDP"),
        ("sip:bob@biloxi.com", "sip:bob@biloxi.com:5060"),
        ("sip:bob@biloxi.com", "sip:bob@biloxi.com;transport=udp"),
        ("sip:bob@biloxi.com", "sip:bob@biloxi.com:6000;transport=tcp"),
        ("sip:carol@chicago.com", "sip:carol@chicago.com?Subject=next%20meeting"),
        ("sip:bob@phone21.boxesbybob.com", "sip:bob@192.0.2.4"),
        ("sip:carol@chicago.com;security=on", "sip:carol@chicago.com;security=off"),
    ] {
        assert!(!equal(a, b), "{a} {b}");
    }
}

#[test]
fn the_rules_of_rfc_3261_19_1_4_hold_beyond_the_examples() {
    assert!(!equal("sip:a@b", "sips:a@b"));
    assert!(!equal("sip:a@b", "sip:b"));
    assert!(!equal("sip:a:x@b", "sip:a:X@b"));
    assert!(!equal("sip:a:x@b", "sip:a@b"));
    for decisive in ["user=phone", "ttl=1", "method=INVITE", "maddr=h"] {
        assert!(!equal("sip:a@b", &alloc::format!("sip:a@b;{decisive}")), "{decisive}");
    }
    // An escaped reserved character is another character; hexadecimal digits have no case.
    assert!(!equal("sip:a%3bb@c", "sip:a;b@c"));
    assert!(equal("sip:a%3bb@c", "sip:a%3Bb@c"));
    assert!(!equal("sip:%2541@c", "sip:%41@c"));
    assert!(equal("sip:a@b;x=%59", "sip:a@b;X=y"));
    assert!(!equal("sip:a@b?x=1&x=2", "sip:a@b?x=1&x=1"));
    // RFC 5954 §4.2: addresses by value.
    assert!(equal("sip:a@[2001:db8::1]", "sip:a@[2001:DB8:0:0:0:0:0:1]"));
    // RFC 4475 §3.1.1.4: a NUL ends nothing.
    assert!(!equal("sip:null-%00-null@example.com", "sip:null-%00-other@example.com"));
}

#[test]
fn tel_uris_have_number_and_parameters() {
    let Uri::Tel(tel) = uri("tel:7042;phone-context=example.com;isub=1411;ext=1-2") else { panic!() };
    assert!(!tel.is_global());
    assert_eq!(
        (tel.context(), tel.isub(), tel.ext()),
        (Some(&b"example.com"[..]), Some(&b"1411"[..]), Some(&b"1-2"[..]))
    );
    assert!(matches!(uri("TEL:+1-(201).555-0123"), Uri::Tel(tel) if tel.is_global()));
    assert!(matches!(uri("tel:*#aF;phone-context=+1"), Uri::Tel(_)));
    assert!(matches!(uri("tel:7042;phone%2Dcontext=a"), Uri::Tel(tel) if tel.context() == Some(&b"a"[..])));
}

#[test]
fn tel_uris_compare_by_rfc_3966_4() {
    assert!(equal("tel:+1-201-555-0123", "tel:+1(201)5550123"));
    assert!(equal("tel:863-1234;phone-context=+1-914-555", "tel:8631234;Phone-Context=+1914555"));
    assert!(equal("tel:7042;phone-context=Example.com", "tel:7042;phone-context=example.COM"));
    assert!(equal("tel:+1201;ext=1-2;isub=3", "tel:+1201;isub=3;ext=12"));
    assert!(equal("tel:ab;phone-context=x", "tel:AB;phone-context=x"));
    // An escape of a character that is not reserved is that character as in sip URIs (RFC 3261 §19.1.4), in names, too.
    assert!(equal("tel:+1;01-prttl=iori", "tel:+1;01-p%72ttl=Io%52i"));
    assert!(equal("tel:+1;e%78t=1-2;phone%2Dcontext=+1.2", "tel:+1;phone-context=+12;ext=12"));
    assert!(!equal("tel:+1201", "tel:+1202"));
    assert!(!equal("tel:+1201", "tel:1201;phone-context=+1"));
    assert!(!equal("tel:+1201", "tel:+1201;ext=1"));
    assert!(!equal("tel:7042;phone-context=a", "tel:7042;phone-context=b"));
    assert!(!equal("tel:+1201", "sip:+1201@host;user=phone"));
}

fn aor(text: &str, with_domain: bool) -> alloc::string::String {
    let mut out = Vec::new();
    canonical_aor(&uri(text), with_domain, &mut out);
    alloc::string::String::from_utf8(out).unwrap()
}

#[test]
fn an_address_of_record_has_no_parameters_and_no_escapes() {
    assert_eq!(
        aor("sip:%75se%72@Example.COM:5060;transport=tcp;user=phone?x=y", true),
        "sip:user@example.com"
    );
    assert_eq!(aor("SIPS:Alice:pw@A.b", true), "sips:Alice@a.b");
    assert_eq!(aor("sip:Alice@[2001:DB8:0::1]", true), "sip:Alice@[2001:db8::1]");
    assert_eq!(aor("sip:Alice@a.b", false), "Alice");
    assert_eq!(aor("sip:A.b", true), "sip:a.b");
    assert_eq!(aor("sip:A.b", false), "a.b");
    assert_eq!(aor("sip:null-%00-null@example.com", false), "null-\0-null");
    assert_eq!(aor("tel:+1-201-555;ext=1", true), "tel:+1201555");
    assert_eq!(aor("tel:70-42;phone-context=Ex.com", true), "tel:7042;phone-context=ex.com");
    assert_eq!(aor("foo:Bar;x", true), "foo:Bar;x");
}
