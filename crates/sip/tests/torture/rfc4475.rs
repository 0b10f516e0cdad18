//! What the messages of RFC 4475 mean, one test for each that says something beyond accept or reject.

use super::*;

// ---- RFC 4475 §3.1.1, valid messages ------------------------------------------------------------

#[test]
fn wsinv_folds_and_white_space_mean_nothing() {
    accepted("rfc4475/wsinv.dat", |m| {
        assert_eq!(m.method(), Method::Invite);
        let target = sip_uri(m.request_uri());
        assert_eq!(target.user, Some(&b"vivekg"[..]));
        assert_eq!(target.params.get(b"unknownparam"), Some(None));

        let to = m.to().unwrap();
        assert_eq!((to.display, to.uri), (None, &b"sip:vivekg@chair-dnrc.example.com"[..]));
        assert_eq!(m.to_tag(), Some(&b"1918181833n"[..]));
        let from = m.from().unwrap();
        assert!(from.display.is_some_and(|display| contains(display, br#"J Rosenberg \\\""#)));
        assert_eq!(from.uri, b"sip:jdrosen@example.com");
        assert_eq!(m.from_tag(), Some(&b"98asjd8"[..]));

        assert_eq!(m.max_forwards(), Ok(Some(68)));
        assert_eq!(m.call_id(), Ok(&b"wsinv.ndaksdj@192.0.2.1"[..]));
        assert_eq!(m.content_length(), Ok(Some(150)));
        assert_eq!(m.body().len(), 150);
        assert_eq!((cseq(&m).number, cseq(&m).method), (9, Method::Invite));
        assert_eq!(values(&m, b"Subject"), [b""]);
        assert_eq!(values(&m, b"CONTENT-TYPE"), [b"application/sdp"]);
    });
}

#[test]
fn wsinv_unknown_headers_are_kept_as_written() {
    accepted("rfc4475/wsinv.dat", |m| {
        assert_eq!(values(&m, b"UnknownHeaderWithUnusualValue"), [b";;,,;;,;"]);
        assert_eq!(values(&m, b"newfangledheader"), [b"newfangled value\r\n continued newfangled value"]);
    });
}

#[test]
fn wsinv_three_vias_in_two_spellings_are_one_list() {
    accepted("rfc4475/wsinv.dat", |m| {
        let all = vias(&m);
        assert_eq!(all.len(), 3);
        assert_eq!(all[0].transport, Transport::Udp);
        assert_eq!(all[0].host, Host::V4(Ipv4Addr::new(192, 0, 2, 2)));
        assert_eq!(all[0].branch(), Some(&b"390skdjuw"[..]));
        assert_eq!(all[1].transport, Transport::Tcp);
        assert_eq!(all[1].host, Host::Name(b"spindle.example.com"));
        assert_eq!(all[1].branch(), Some(&b"z9hG4bK9ikj8"[..]));
        assert_eq!(all[2].transport, Transport::Udp);
        assert_eq!(all[2].host, Host::V4(Ipv4Addr::new(192, 168, 255, 111)));
        assert_eq!(all[2].branch(), Some(&b"z9hG4bK30239"[..]));
        assert_eq!(m.via_top().unwrap().branch(), all[0].branch());
    });
}

#[test]
fn wsinv_route_and_contact() {
    accepted("rfc4475/wsinv.dat", |m| {
        let routes: Vec<_> = m.routes().map(Result::unwrap).collect();
        assert_eq!(routes.len(), 1);
        let route = sip_uri(routes[0].uri);
        assert!(route.lr());
        assert_eq!(route.params.get(b"unknownwith"), Some(Some(&b"value"[..])));
        assert_eq!(route.params.get(b"unknown-no-value"), Some(None));

        assert!(!m.contacts().is_star());
        let contact = only_contact(&m);
        assert!(contact.display.is_some_and(|display| contains(display, br#"Quoted string \"\""#)));
        assert_eq!(contact.uri, b"sip:jdrosen@example.com");
        assert_eq!(contact.params.get(b"newparam"), Some(Some(&b"newvalue"[..])));
        assert_eq!(contact.params.get(b"secondparam"), Some(None));
        assert_eq!(contact.params.get(b"q"), Some(Some(&b"0.33"[..])));
    });
}

#[test]
fn intmeth_every_legal_character_is_legal() {
    accepted("rfc4475/intmeth.dat", |m| {
        let method = b"!interesting-Method0123456789_*+`.%indeed'~";
        assert_eq!((m.method(), m.method_bytes()), (Method::Other, &method[..]));
        assert_eq!((cseq(&m).number, cseq(&m).method_bytes), (139_122_385, &method[..]));
        assert_eq!(sip_uri(m.request_uri()).host, Host::Name(b"example.com"));
        assert_eq!(m.via_top().unwrap().branch(), Some(&b"z9hG4bK-.!%66*_+`'~"[..]));
        let to = m.to().unwrap();
        assert!(to.display.is_some_and(|display| contains(display, b"BEL:\\\x07 NUL:\\\0 DEL:\\\x7f")));
        assert_eq!(to.uri, b"sip:1_unusual.URI~(to-be!sure)&isn't+it$/crazy?,/;;*@example.com");
        let from = m.from().unwrap();
        assert_eq!(from.display, Some(&b"token1~` token2'+_ token3*%!.-"[..]));
        assert_eq!(from.params.get(b"fromparam''~+*_!.-%").flatten(), Some("\"работающий\"".as_bytes()));
        assert_eq!(m.from_tag(), Some(&b"_token~1'+`*%!-."[..]));
        assert_eq!(m.call_id(), Ok(&b"intmeth.word%ZK-!.*_+'@word`~)(><:\\/\"][?}{"[..]));
        assert_eq!(m.max_forwards(), Ok(Some(255)));
        assert_eq!(values(&m, b"extensionHeader-!.%*+_`'~"), ["\u{feff}大停電".as_bytes()]);
    });
}

#[test]
fn esc01_escapes_mean_their_characters_once() {
    accepted("rfc4475/esc01.dat", |m| {
        let target = sip_uri(m.request_uri());
        assert_eq!(target.user, Some(&b"sips%3Auser%40example.com"[..]));
        assert_eq!(target.host, Host::Name(b"example.net"));
        let to = m.to().unwrap().uri().unwrap();
        assert!(to.equivalent(&Uri::parse(b"sip:user@example.com").unwrap()));
        assert_eq!(m.from().unwrap().uri, b"sip:I%20have%20spaces@example.net");
        let contact = only_contact(&m);
        assert!(sip_uri(contact.uri).lr());
        let contact = contact.uri().unwrap();
        assert!(contact.equivalent(&Uri::parse(b"sip:caller@host5.example.net;lr;name=value%2541").unwrap()));
        assert!(!contact.equivalent(&Uri::parse(b"sip:caller@host5.example.net;lr;name=valueA").unwrap()));
    });
}

#[test]
fn escnull_two_distinct_contacts() {
    accepted("rfc4475/escnull.dat", |m| {
        assert_eq!(m.method(), Method::Register);
        let all = contacts(&m);
        assert_eq!(all.len(), 2);
        assert!(!all[0].uri().unwrap().equivalent(&all[1].uri().unwrap()));
        assert_eq!(sip_uri(m.to().unwrap().uri).user, Some(&b"null-%00-null"[..]));
        assert_eq!(m.content_length(), Ok(Some(0)));
    });
}

#[test]
fn esc02_percent_is_no_escape_in_tokens() {
    accepted("rfc4475/esc02.dat", |m| {
        assert_eq!((m.method(), m.method_bytes()), (Method::Other, &b"RE%47IST%45R"[..]));
        assert_eq!(cseq(&m).method_bytes, b"RE%47IST%45R");
        assert!(m.to().unwrap().display.is_some_and(|display| contains(display, b"%Z%45")));
        assert!(m.from().unwrap().display.is_some_and(|display| contains(display, b"%Z%45")));
        let uris: Vec<_> = contacts(&m).iter().map(|contact| contact.uri).collect();
        assert_eq!(uris, [&b"sip:alias1@host1.example.com"[..], b"sip:alias3@host3.example.com"]);
        assert_eq!(values(&m, b"c%6fntact"), [b"<sip:alias2@host2.example.com>"]);
        assert_eq!(m.via_top().unwrap().branch(), Some(&b"z9hG4bK209%fzsnel234"[..]));
    });
}

#[test]
fn lwsdisp_display_name_may_touch_the_bracket() {
    accepted("rfc4475/lwsdisp.dat", |m| {
        let from = m.from().unwrap();
        assert_eq!((from.display, from.uri), (Some(&b"caller"[..]), &b"sip:caller@example.com"[..]));
        assert_eq!(m.from_tag(), Some(&b"323"[..]));
    });
}

#[test]
fn longreq_long_values_and_many_vias() {
    accepted("rfc4475/longreq.dat", |m| {
        let all = vias(&m);
        assert_eq!(all.len(), 34);
        let (last, others) = all.split_last().unwrap();
        for (via, number) in others.iter().zip((1..=33).rev()) {
            assert_eq!(via.transport, Transport::Tcp);
            assert_eq!(via.host, Host::Name(format!("sip{number}.example.com").as_bytes()));
            assert_eq!(via.branch(), None);
        }
        assert_eq!(last.received(), Some(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 5))));
        assert_eq!(last.branch(), Some(format!("very{}branchvalue", "long".repeat(50)).as_bytes()));

        let to = m.to().unwrap();
        let display = format!("I have a user name of {} proportion", "extreme".repeat(10));
        assert!(to.display.is_some_and(|found| contains(found, display.as_bytes())));
        let to = sip_uri(to.uri);
        assert_eq!(to.port, Some(6000));
        let name = format!("very{}ParameterNameWithNoValue", "long".repeat(25));
        assert_eq!(to.params.get(name.as_bytes()), Some(None));
        let name = format!("longparam{}", "name".repeat(25));
        assert_eq!(to.params.get(name.as_bytes()), Some(Some(&b"shortvalue"[..])));

        assert_eq!(m.from_tag(), Some(format!("12{}424", "982".repeat(50)).as_bytes()));
        let call_id = format!("longreq.one{}longcallid", "really".repeat(20));
        assert_eq!(m.call_id(), Ok(call_id.as_bytes()));
        assert_eq!(m.body().len(), 150);
    });
}

#[test]
fn dblreq_second_request_is_noise() {
    accepted("rfc4475/dblreq.dat", |m| {
        assert_eq!((m.method(), cseq(&m).method), (Method::Register, Method::Register));
        assert_eq!(m.call_id(), Ok(&b"dblreq.0ha0isndaksdj99sdfafnl3lk233412"[..]));
        assert_eq!((vias(&m).len(), m.body().len()), (1, 0));
        let mut out = Vec::new();
        Edits::default().write(&m, &mut out);
        assert!(
            !contains(&out, b"INVITE") && !contains(&out, b"rtpmap"),
            "{}",
            String::from_utf8_lossy(&out)
        );
        assert!(out.ends_with(b"\r\n\r\n"));
    });
}

#[test]
fn semiuri_semicolon_belongs_to_the_user() {
    accepted("rfc4475/semiuri.dat", |m| {
        let target = sip_uri(m.request_uri());
        assert_eq!(target.user, Some(&b"user;par=u%40example.net"[..]));
        assert_eq!(target.host, Host::Name(b"example.com"));
        assert_eq!(target.params.count(), 0);
        assert_eq!(values(&m, b"Accept").len(), 1);
    });
}

#[test]
fn transports_known_and_unknown() {
    accepted("rfc4475/transports.dat", |m| {
        let found: Vec<_> = vias(&m).iter().map(|via| via.transport).collect();
        let (udp, tcp, tls) = (Transport::Udp, Transport::Tcp, Transport::Tls);
        assert_eq!(found, [udp, Transport::Sctp, tls, Transport::Other, tcp]);
        assert_eq!(vias(&m)[3].host, Host::Name(b"t4.example.com"));
    });
}

#[test]
fn mpart01_body_is_octets() {
    accepted("rfc4475/mpart01.dat", |m| {
        assert_eq!(m.method(), Method::Message);
        assert_eq!((m.content_length(), m.body().len()), (Ok(Some(553)), 553));
        assert!(m.body().contains(&0));
        assert!(m.body().ends_with(b"\r\n--7a9cbec02ceef655--\r\n"));
        let via = m.via_top().unwrap();
        assert_eq!((via.host, via.port), (Host::V4(Ipv4Addr::LOCALHOST), Some(5070)));
        assert_eq!(via.rport(), Some(None));
        assert_eq!(m.routes().next().unwrap().unwrap().uri, b"sip:127.0.0.1:5080");
    });
}

#[test]
fn unreason_reason_phrase_is_text() {
    accepted("rfc4475/unreason.dat", |m| {
        assert_eq!(m.status(), Some(200));
        assert_eq!(m.reason(), "= 2**3 * 5**2 но сто девяносто девять - простое".as_bytes());
        assert_eq!((m.method(), cseq(&m).number), (Method::Invite, 35));
        assert_eq!(m.to_tag(), Some(&b"2229"[..]));
        assert_eq!(m.body().len(), 154);
    });
}

#[test]
fn noreason_reason_phrase_may_be_empty() {
    accepted("rfc4475/noreason.dat", |m| {
        assert_eq!((m.status(), m.reason()), (Some(100), &b""[..]));
        assert_eq!(m.via_top().unwrap().branch(), Some(&b"z9hG4bK2398ndaoe"[..]));
    });
}

// ---- RFC 4475 §3.1.2, invalid messages: what is wrong is wrong for the reason the RFC gives -----

#[test]
fn badinv01_separators_without_values_are_errors() {
    rejected("rfc4475/badinv01.dat", |m| {
        assert!(m.vias().any(|via| via.is_err()));
        assert!(m.contacts().any(|contact| contact.is_err()));
    });
}

#[test]
fn clerr_and_ncl_only_the_length_is_wrong() {
    for (file, length) in [("rfc4475/clerr.dat", &b"9999"[..]), ("rfc4475/ncl.dat", b"-999")] {
        rejected(file, |m| assert_eq!(values(&m, b"l"), [length]));
        let text = String::from_utf8(bytes_of(file)).unwrap();
        let good = text.replace(std::str::from_utf8(length).unwrap(), "100");
        let mut index = Index::new();
        let repaired = Message::parse(good.as_bytes(), &mut index).unwrap();
        assert_eq!(validated(&repaired), Ok(()), "{file}");
        assert_eq!(repaired.body().len(), 100);
    }
    rejected("rfc4475/ncl.dat", |m| assert!(m.content_length().is_err()));
}

#[test]
fn content_length_that_is_no_number_is_rejected() {
    // §3.1.2.3
    let text = String::from_utf8(bytes_of("rfc4475/ncl.dat")).unwrap();
    for value in ["five", "+152", "152 ", "1 52", "0x98", "", "152,152", "99999999999999999999", "152;x"] {
        let bytes = text.replace("-999", value).into_bytes();
        let mut index = Index::new();
        let message = Message::parse(&bytes, &mut index).unwrap();
        let want = if value == "152 " { Ok(()) } else { Err(400) };
        assert_eq!(validated(&message), want, "{value:?}");
    }
}

#[test]
fn scalar02_overlarge_numbers() {
    rejected("rfc4475/scalar02.dat", |m| {
        assert!(m.cseq().is_err());
        assert_eq!(m.call_id(), Ok(&b"scalar02.23o0pd9vanlq3wnrlnewofjas9ui32"[..]));
    });
    // "If only the expiry values were in error", the element goes on. CSeq is below 2**31 (RFC 3261 §8.1.1.5).
    let text = String::from_utf8(bytes_of("rfc4475/scalar02.dat")).unwrap();
    let bytes = text.replace("36893488147419103232", "2147483647").replace(": 300", ": 255").into_bytes();
    let mut index = Index::new();
    let message = Message::parse(&bytes, &mut index).unwrap();
    assert_eq!(validated(&message), Ok(()));
    assert_eq!(message.expires(), Ok(Some(u32::MAX)));
    assert_eq!(cseq(&message).number, (1 << 31) - 1);
}

#[test]
fn scalarlg_cseq_of_a_response() {
    rejected("rfc4475/scalarlg.dat", |m| {
        assert!(m.cseq().is_err());
        assert_eq!(m.status(), Some(503));
        assert_eq!(m.via_top().unwrap().received(), Some(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 129))));
    });
}

#[test]
fn quotbal_open_quote_is_an_error_of_to() {
    rejected("rfc4475/quotbal.dat", |m| {
        assert!(m.to().is_err());
        assert!(m.from().is_ok() && m.via_top().is_ok());
    });
}

#[test]
fn baddate_date_is_not_ours_to_judge() {
    accepted("rfc4475/baddate.dat", |m| {
        assert_eq!(values(&m, b"date"), [b"Fri, 01 Jan 2010 16:00:00 EST"]);
    });
}

#[test]
fn regbadct_bare_contact_with_a_question_mark_is_an_error() {
    // RFC 3261 §20.10: "If the URI contains a comma, question mark or semicolon, the URI MUST be enclosed in
    // angle brackets". A registrar sees the error; a proxy does not look.
    accepted("rfc4475/regbadct.dat", |m| {
        assert!(m.contacts().all(|contact| contact.is_err()));
        assert_eq!(m.contacts().count(), 1);
    });
}

#[test]
fn badaspec_spaces_in_the_brackets_are_an_error_of_to() {
    rejected("rfc4475/badaspec.dat", |m| {
        assert!(m.to().and_then(|to| to.uri().map_err(|_| m.cseq().unwrap_err())).is_err());
    });
}

#[test]
fn baddn_comma_in_a_bare_display_name_is_an_error() {
    // The archive's file also lacks the empty line at the end; it must be wrong without that, too.
    let mut bytes = bytes_of("rfc4475/baddn.dat");
    bytes.extend_from_slice(b"\r\n");
    let mut index = Index::new();
    let message = Message::parse(&bytes, &mut index).unwrap();
    assert_eq!(validated(&message), Err(400));
    assert!(message.from().is_err() && message.to().is_err());
}

#[test]
fn badvers_and_mismatches_are_only_that() {
    rejected("rfc4475/badvers.dat", |m| {
        assert!(!m.version_ok());
        assert_eq!(m.method(), Method::Options);
    });
    rejected("rfc4475/mismatch01.dat", |m| {
        assert_eq!((m.method(), cseq(&m).method), (Method::Options, Method::Invite));
    });
    rejected("rfc4475/mismatch02.dat", |m| {
        assert_eq!((m.method(), m.method_bytes()), (Method::Other, &b"NEWMETHOD"[..]));
        assert_eq!(cseq(&m).method, Method::Invite);
    });
}

#[test]
fn two_unknown_methods_must_be_the_same_bytes() {
    let text = String::from_utf8(bytes_of("rfc4475/mismatch02.dat")).unwrap();
    for (method, want) in [("NEWMETHOD", Ok(())), ("NewMethod", Err(501)), ("OTHERMETHOD", Err(501))] {
        let bytes = text.replace("CSeq: 8 INVITE", &format!("CSeq: 8 {method}")).into_bytes();
        let mut index = Index::new();
        assert_eq!(validated(&Message::parse(&bytes, &mut index).unwrap()), want, "{method}");
    }
}

// ---- RFC 4475 §3.2 to §3.4, what upper layers reject --------------------------------------------

#[test]
fn badbranch_cookie_without_an_identifier() {
    accepted("rfc4475/badbranch.dat", |m| {
        assert_eq!(m.via_top().unwrap().branch(), Some(&b"z9hG4bK"[..]));
    });
}

#[test]
fn insuf_nothing_is_invented() {
    rejected("rfc4475/insuf.dat", |m| {
        assert!(m.from().is_err() && m.to().is_err() && m.call_id().is_err());
        assert_eq!((m.from_tag(), m.to_tag()), (None, None));
        assert_eq!(cseq(&m).number, 193_942);
    });
}

#[test]
fn unkscm_and_novelsc_schemes_are_opaque() {
    for (file, want) in
        [("rfc4475/unkscm.dat", "nobodyKnowsThisScheme"), ("rfc4475/novelsc.dat", "soap.beep")]
    {
        accepted(file, |m| {
            let Ok(Uri::Other { scheme, .. }) = Uri::parse(m.request_uri()) else { panic!("{file}") };
            assert_eq!(scheme, want.as_bytes());
        });
    }
}

#[test]
fn unksm2_any_scheme_in_to_from_and_contact() {
    accepted("rfc4475/unksm2.dat", |m| {
        assert_eq!(m.to().unwrap().uri, b"isbn:2983792873");
        assert_eq!(m.from().unwrap().uri, b"http://www.example.com");
        assert_eq!(m.from_tag(), Some(&b"3234233"[..]));
        assert_eq!(only_contact(&m).uri, b"name:John_Smith");
    });
}

#[test]
fn bext01_option_tags_by_header() {
    accepted("rfc4475/bext01.dat", |m| {
        let tags = |name| m.option_tags(name).collect::<Vec<_>>();
        assert_eq!(
            tags(HeaderName::ProxyRequire),
            [&b"noProxiesSupportThis"[..], b"norDoAnyProxiesSupportThis"]
        );
        assert_eq!(tags(HeaderName::Require), [&b"nothingSupportsThis"[..], b"nothingSupportsThisEither"]);
        assert!(tags(HeaderName::Supported).is_empty());
    });
}

#[test]
fn bodies_and_credentials_of_unknown_kinds_are_kept() {
    accepted("rfc4475/invut.dat", |m| {
        assert_eq!(m.body(), b"<audio>\r\n <pcmu port=\"443\"/>\r\n</audio>\r\n");
    });
    accepted("rfc4475/regaut01.dat", |m| {
        assert_eq!(values(&m, b"Authorization"), [b"NoOneKnowsThisScheme opaque-data=here"]);
        assert_eq!(m.content_length(), Ok(Some(0)));
        assert_eq!(m.contacts().count(), 0);
    });
    accepted("rfc4475/sdp01.dat", |m| assert_eq!(values(&m, b"accept"), [b"text/nobodyKnowsThis"]));
}

#[test]
fn bcast_second_via_is_the_broadcast_address() {
    accepted("rfc4475/bcast.dat", |m| {
        assert_eq!(vias(&m)[1].host, Host::V4(Ipv4Addr::BROADCAST));
        assert_eq!(m.status(), Some(200));
    });
}

#[test]
fn zeromf_zero_is_not_absent() {
    accepted("rfc4475/zeromf.dat", |m| assert_eq!(m.max_forwards(), Ok(Some(0))));
    accepted("rfc4475/inv2543.dat", |m| assert_eq!(m.max_forwards(), Ok(None)));
}

#[test]
fn cparam_parameters_belong_where_the_brackets_say() {
    accepted("rfc4475/cparam01.dat", |m| {
        let contact = only_contact(&m);
        assert_eq!(contact.uri, b"sip:+19725552222@gw1.example.net");
        assert_eq!(contact.params.get(b"unknownparam"), Some(None));
    });
    accepted("rfc4475/cparam02.dat", |m| {
        let contact = only_contact(&m);
        assert_eq!(contact.params.get(b"unknownparam"), None);
        assert_eq!(sip_uri(contact.uri).params.get(b"unknownparam"), Some(None));
    });
}

#[test]
fn regescrt_escaped_header_stays_in_the_contact() {
    accepted("rfc4475/regescrt.dat", |m| {
        let contact = only_contact(&m);
        assert_eq!(contact.uri, b"sip:user@example.com?Route=%3Csip:sip.example.com%3E");
        assert_eq!(sip_uri(contact.uri).headers, Some(&b"Route=%3Csip:sip.example.com%3E"[..]));
        assert_eq!(m.routes().count(), 0);
    });
}

#[test]
fn inv2543_old_requests_are_whole() {
    accepted("rfc4475/inv2543.dat", |m| {
        assert_eq!((m.from_tag(), m.to_tag()), (None, None));
        let via = m.via_top().unwrap();
        assert_eq!((via.host, via.branch()), (Host::Name(b"iftgw.example.com"), None));
        assert_eq!((m.content_length(), m.body().len()), (Ok(None), 105));
        // the parameter follows a bare address: it is To's, not the URI's (RFC 3261 §20.10)
        let to = m.to().unwrap();
        assert_eq!(to.uri, b"sip:+16505552222@ss1.example.net");
        assert_eq!(to.params.get(b"user"), Some(Some(&b"phone"[..])));
        let from = sip_uri(m.from().unwrap().uri);
        assert_eq!(from.params.get(b"user"), Some(Some(&b"phone"[..])));
        let record_route = m.record_routes().next().unwrap().unwrap();
        assert_eq!(sip_uri(record_route.uri).params.get(b"maddr"), Some(Some(&b"ss1.example.com"[..])));
    });
}
