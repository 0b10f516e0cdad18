//! What a file of profiles and the module's parameters say, and what is wrong with them.

use super::*;
use crate::Settings;
use std::format;
use std::string::{String, ToString};
use std::vec::Vec;

/// The profiles of a file without errors.
fn profiles(text: &str) -> TlsProfiles {
    let (profiles, found) = TlsProfiles::read(text, 0);
    let errors: Vec<_> = found.iter().filter(|finding| finding.is_error()).collect();
    assert!(errors.is_empty(), "{errors:?}");
    profiles
}

/// What is found in a file: the text that is pointed at, and the message with its help.
fn findings(text: &str) -> Vec<(Severity, String, String)> {
    let show = |finding: &Diagnostic| {
        let span = finding.span().unwrap();
        let place = text.get(span.start as usize..span.end as usize).unwrap().to_string();
        (finding.severity, place, format!("{}; {}", finding.message, finding.help.join("; ")))
    };
    TlsProfiles::read(text, 0).1.iter().map(show).collect()
}

fn errors(text: &str) -> Vec<(String, String)> {
    let all = findings(text).into_iter();
    all.filter(|(severity, ..)| *severity == Severity::Error)
        .map(|(_, place, words)| (place, words))
        .collect()
}

const SERVER: &str = "[server:default]\ncertificate = server.pem\nprivate_key = server-key.pem\n";

#[test]
fn a_profile_says_what_its_lines_say() {
    let read = profiles(
        "# all\n[server:default] ; this one too\n  certificate=\"my cert.pem\"  # chain\nprivate_key = k.pem\n\
         method = TLSv1.3\nverify_client = optional\nca_list = ca.pem\ncrl = crl.pem\n\
         cipher_list = \"ECDHE-RSA-AES128-GCM-SHA256:TLS_AES_128_GCM_SHA256\"\n",
    );
    let [server] = read.servers.as_slice() else { panic!("{read:?}") };
    assert_eq!((server.address, server.names.len()), (None, 0));
    assert_eq!(server.certificates[0].chain.text, "my cert.pem");
    assert_eq!(server.certificates[0].key.text, "k.pem");
    assert_eq!(server.versions, (TlsVersion::V1_3, TlsVersion::V1_3));
    assert_eq!(server.peer, TlsPeer::Request);
    assert_eq!(server.ca_list.as_ref().unwrap().text, "ca.pem");
    assert_eq!(server.crl.as_ref().unwrap().text, "crl.pem");
    assert!(server.cipher_list.as_ref().unwrap().text.ends_with(":TLS_AES_128_GCM_SHA256"));
}

#[test]
fn defaults_are_the_safe_ones() {
    let read = profiles(SERVER);
    assert_eq!(read.servers[0].peer, TlsPeer::Off);
    assert_eq!(read.servers[0].versions, (TlsVersion::V1_2, TlsVersion::V1_3));
    // RFC 5922 §7.3: the client checks that the certificate is of the domain that it asked for.
    let [client] = read.clients.as_slice() else { panic!("{read:?}") };
    assert_eq!((client.peer, client.address, client.ca_list.is_none()), (TlsPeer::Require, None, true));
}

#[test]
fn a_key_is_in_the_certificates_file_where_none_is_named() {
    let read = profiles("[server:default]\ncertificate = both.pem\n");
    assert_eq!(read.servers[0].certificates[0].key.text, "both.pem");
}

#[test]
fn several_certificates_pair_with_their_keys_in_order() {
    let read = profiles(
        "[server:default]\ncertificate = ec.pem\nprivate_key = ec-key.pem\ncertificate = rsa.pem\nprivate_key = rsa-key.pem\n",
    );
    let pairs: Vec<_> = read.servers[0].certificates.iter().map(|c| (&*c.chain.text, &*c.key.text)).collect();
    assert_eq!(pairs, [("ec.pem", "ec-key.pem"), ("rsa.pem", "rsa-key.pem")]);
    let found = errors("[server:default]\ncertificate = a\ncertificate = b\nprivate_key = c\n");
    assert!(found[0].0 == "c" && found[0].1.contains("2 `certificate` and 1 `private_key`"), "{found:?}");
    assert!(!errors("[server:default]\nprivate_key = c\n").is_empty());
}

#[test]
fn sections_are_for_addresses_and_names() {
    let read = profiles(&format!(
        "{SERVER}[server:192.0.2.1:5061]\nserver_name=a.example.com\n[server:192.0.2.1:5061]\nserver_name=b.example.com\n\
         [server:[2001:db8::1]:5061]\n[server:any]\nserver_name = Example.NET.\nserver_name_mode = 1\n\
         [server:any]\nserver_name = example.org\nserver_name_mode = 2\n[client:192.0.2.9:5061]\nserver_name = trunk.example.com\n"
    ));
    let servers: Vec<_> =
        read.servers.iter().map(|s| (s.address.map(|a| a.to_string()), s.names.join(" "))).collect();
    let some = |text: &str| Some(text.to_string());
    assert_eq!(
        servers,
        [
            (None, String::new()),
            (some("192.0.2.1:5061"), "a.example.com".into()),
            (some("192.0.2.1:5061"), "b.example.com".into()),
            (some("[2001:db8::1]:5061"), String::new()),
            (None, "example.net *.example.net".into()),
            (None, "*.example.org".into()),
        ]
    );
    assert_eq!(read.clients[0].names, ["trunk.example.com"]);
    assert_eq!(read.clients[1].address, None, "a default comes with it");
}

#[test]
fn what_a_section_does_not_say_it_has_from_its_default() {
    let read = profiles(&format!(
        "[server:192.0.2.1:5061]\ncertificate = own.pem\nverify_client = off\n[client:192.0.2.9:5061]\n\
         [client:default]\ncertificate = c.pem\nmethod = TLSv1.3\n{SERVER}require_certificate = yes\nca_list = ca.pem\n"
    ));
    let own = &read.servers[0];
    assert_eq!(own.certificates.len(), 1);
    assert_eq!((&*own.certificates[0].chain.text, &*own.certificates[0].key.text), ("own.pem", "own.pem"));
    assert_eq!((own.peer, &*own.ca_list.as_ref().unwrap().text), (TlsPeer::Off, "ca.pem"));
    assert_eq!(read.servers[1].peer, TlsPeer::Require);
    assert_eq!(read.clients[0].certificates[0].chain.text, "c.pem");
    assert_eq!(read.clients[0].versions.0, TlsVersion::V1_3);
}

#[test]
fn methods_of_openssl_mean_what_is_safe_of_them() {
    let both = (TlsVersion::V1_2, TlsVersion::V1_3);
    for (method, versions, notes) in [
        ("TLSv1.2", (TlsVersion::V1_2, TlsVersion::V1_2), 0),
        ("tlsv1.2+", both, 0),
        ("TLSv1.3", (TlsVersion::V1_3, TlsVersion::V1_3), 0),
        ("TLSv1.3+", (TlsVersion::V1_3, TlsVersion::V1_3), 0),
        ("SSLv23", both, 1),
        ("TLSv1+", both, 1),
        ("TLSv1.1+", both, 1),
    ] {
        let text = format!("{SERVER}method = {method}\n");
        assert_eq!(profiles(&text).servers[0].versions, versions, "{method}");
        assert_eq!(findings(&text).len(), notes, "{method}");
    }
    for broken in ["SSLv2", "SSLv3", "TLSv1", "TLSv1.1", "TLSv9"] {
        let found = errors(&format!("{SERVER}method = {broken}\n"));
        assert!(found[0].0 == broken && found[0].1.contains("TLSv1.2+"), "{found:?}");
    }
}

#[test]
fn what_is_wrong_is_pointed_at() {
    for (text, place, words) in [
        ("certifcate = a.pem", "certifcate", "did you mean `certificate`?"),
        ("frobnicate = 1", "frobnicate", "does not say"),
        ("verify_certificate = maybe", "maybe", "`yes` or `no`"),
        ("certificate a.pem", "certificate a.pem", "`key = value`"),
        ("crl =", "crl", "a value is missing"),
        ("crl = a b", "a b", "quotes"),
        ("crl = \"a", "\"a", "closing quote"),
        ("crl = \"a\" b", "\"a\" b", "closing quote"),
        ("ca_path = /etc/ssl", "/etc/ssl", "ca_list"),
        ("private_key = /engine:x", "/engine:x", "HSM"),
        ("verify_client = optional_no_ca", "optional_no_ca", "optional"),
        ("server_name = 192.0.2.1", "192.0.2.1", "not a name"),
        ("server_name = a..b", "a..b", "not a host name"),
        ("server_name_mode = 3", "3", "one label below"),
        ("verify_depth = x", "x", "not a number"),
        ("crl = a\ncrl = b", "b", "twice"),
        ("[server:default]\ncertificate = x", "[server:default]", "two sections"),
        ("[sever:default]", "sever", "did you mean `server`?"),
        ("[server]", "[server]", "no head"),
        ("[server:default", "[server:default", "no head"),
        ("[server:192.0.2.1]", "192.0.2.1", "a port is missing"),
        ("[server:example.com]", "example.com", "server_name"),
        ("[server:any]", "[server:any]", "needs a name"),
        ("[client:any]", "any", "[client:IP:PORT]"),
    ] {
        let found = errors(&format!("{SERVER}{text}\n"));
        assert!(found.iter().any(|(at, said)| at == place && said.contains(words)), "{text}: {found:?}");
    }
}

#[test]
fn a_misspelt_line_is_told_and_not_what_it_would_have_said() {
    let found = errors(
        "[server:default]\ncertifcate = a\nprivate_key = b\n[server:192.0.2.1:5061]\nverify_client = on\n",
    );
    assert!(found.len() == 1 && found[0].0 == "certifcate", "{found:?}");
}

#[test]
fn an_unreadable_head_hides_no_error_below_it_and_makes_no_profile() {
    let text = format!("{SERVER}[server:nowhere]\ncertifcate = a\ncertificate = b\n");
    assert_eq!(errors(&text).len(), 2);
    assert_eq!(TlsProfiles::read(&text, 0).0.servers.len(), 1);
    assert!(errors("certificate = a\n")[0].1.contains("[server:default]"));
}

#[test]
fn a_server_without_a_certificate_is_an_error_that_says_how_to_make_one() {
    let found = errors("[server:default]\nmethod = TLSv1.2\n");
    assert!(found[0].0 == "[server:default]" && found[0].1.contains("strowger cert"), "{found:?}");
    assert!(errors("[client:default]\n").is_empty());
}

#[test]
fn what_is_allowed_but_probably_not_meant_is_a_warning() {
    for (text, words) in [
        ("require_certificate = yes", "public CA"),
        ("crl = crl.pem", "no certificate is verified"),
        ("[client:default]\nverify_certificate = no", "pretend to be it"),
    ] {
        let found = findings(&format!("{SERVER}{text}\n"));
        assert!(found.iter().any(|f| f.0 == Severity::Warning && f.2.contains(words)), "{text}: {found:?}");
    }
    let found = findings("[server:any]\nserver_name = example.com\ncertificate = a\n");
    assert!(found.iter().any(|f| f.2.contains("[server:default]")), "{found:?}");
}

#[test]
fn a_long_file_ends_somewhere() {
    let many = "[server:any]\nserver_name = x\n".repeat(2_000);
    let found = TlsProfiles::read(&many, 0).1;
    assert!(found.len() <= 100, "{}", found.len());
}

#[test]
fn no_text_is_a_panic() {
    for text in [
        "",
        "\u{feff}",
        "[",
        "]",
        "[]",
        "[:]",
        "=",
        "= =",
        "\"",
        "[server:default]\n=\n\\\n\"\\",
        "é = ü\n[é:ü]",
    ] {
        let _ = findings(text);
    }
}

/// The settings of a configuration that loads the module, with these lines.
fn settings(lines: &str) -> Settings {
    let text = format!("loadmodule \"tls.so\"\n{lines}\nrequest_route {{ exit; }}\n");
    let loaded = route::load(&text, "test.cfg", &crate::catalogue(), &route::NoFiles, &[])
        .unwrap_or_else(|rejected| panic!("{}", rejected.render(route::Colour::Never)));
    Settings::from_program(&loaded.program).unwrap_or_else(|errors| panic!("{errors:?}"))
}

#[test]
fn nothing_set_is_the_default() {
    assert_eq!(settings("").tls, TlsConfiguration::default());
    assert_eq!(TlsConfiguration::default().profiles.clients[0].peer, TlsPeer::Require);
}

#[test]
fn parameters_make_one_profile_for_each_side() {
    let tls = settings(
        "modparam(\"tls\", \"certificate\", \"./server-test.pem\")\nmodparam(\"tls\", \"private_key\", \"key.pem\")\n\
         modparam(\"tls\", \"ca_list\", \"ca.pem\")\nmodparam(\"tls\", \"verify_certificate\", 1)\n\
         modparam(\"tls\", \"server_name\", \"example.com\")\nmodparam(\"tls\", \"tls_method\", \"TLSv1.3\")\n",
    )
    .tls;
    let ([server], [client]) = (tls.profiles.servers.as_slice(), tls.profiles.clients.as_slice()) else {
        panic!("{tls:?}")
    };
    assert_eq!((server.peer, client.peer), (TlsPeer::Request, TlsPeer::Require));
    assert_eq!(server.certificates[0].chain.text, "./server-test.pem");
    assert_eq!(server.certificates, client.certificates);
    assert_eq!(server.versions.0, TlsVersion::V1_3);
    assert_eq!((server.names.len(), client.names.as_slice()), (0, ["example.com".to_string()].as_slice()));
}

#[test]
fn a_file_of_profiles_replaces_the_parameters() {
    let settings = settings(
        "modparam(\"tls\", \"config\", \"tls.cfg\")\nmodparam(\"tls\", \"certificate\", \"a.pem\")\n",
    );
    assert_eq!(settings.tls.file.unwrap().text, "tls.cfg");
    assert_eq!(settings.tls.profiles, TlsProfiles::default());
    assert!(settings.notes.iter().any(|note| note.code == "ignored-parameter"), "{:?}", settings.notes);
}

#[test]
fn times_and_numbers_are_read() {
    let tls = settings(
        "modparam(\"tls\", \"handshake_timeout\", 5)\nmodparam(\"tls\", \"session_lifetime\", 60)\n\
         modparam(\"tls\", \"handshakes_max\", 8)\nmodparam(\"tls\", \"client_sessions_max\", 0)\n",
    )
    .tls;
    assert_eq!(tls.handshake_timeout, Duration::from_secs(5));
    assert_eq!(tls.session_lifetime, Duration::from_secs(60));
    assert_eq!((tls.handshakes_max, tls.client_sessions_max), (8, 0));
    assert_eq!(settings("modparam(\"tls\", \"session_cache\", 0)").tls.session_lifetime, Duration::ZERO);
    let long = settings("modparam(\"tls\", \"connection_timeout\", 600)");
    assert_eq!(long.tls.handshake_timeout, Duration::from_secs(60));
    assert_eq!(long.notes.len(), 1);
}

#[test]
fn what_cannot_be_honoured_says_what_to_do() {
    for (line, words) in [
        ("modparam(\"tls\", \"ca_path\", \"/etc/ssl/certs\")", "ca_list"),
        ("modparam(\"tls\", \"engine\", \"pkcs11\")", "PEM file"),
        ("modparam(\"tls\", \"certifcate\", \"x\")", "certificate"),
    ] {
        let text = format!("loadmodule \"tls.so\"\n{line}\nrequest_route {{ exit; }}\n");
        let loaded = route::load(&text, "test.cfg", &crate::catalogue(), &route::NoFiles, &[]);
        let shown = loaded.expect_err("an error").render(route::Colour::Never);
        assert!(shown.contains(words), "{shown}");
    }
    for (route, words) in [
        ("if (is_peer_verified()) exit;", "require_certificate=yes"),
        ("xlog(\"$tls_peer_subject\\n\");", "verify_client=on"),
    ] {
        let text = format!("loadmodule \"tls.so\"\nloadmodule \"xlog.so\"\nrequest_route {{ {route} }}\n");
        let loaded = route::load(&text, "test.cfg", &crate::catalogue(), &route::NoFiles, &[]);
        let shown = loaded.expect_err("an error").render(route::Colour::Never);
        assert!(shown.contains(words), "{shown}");
    }
}

#[test]
fn what_kamailio_files_carry_along_is_accepted() {
    let tls = settings(
        "modparam(\"tls\", \"tls_force_run\", 1)\nmodparam(\"tls\", \"xavp_cfg\", \"tls\")\n\
         modparam(\"tls\", \"low_mem_threshold1\", 0)\nmodparam(\"tls\", \"tls_log\", 2)\n",
    );
    assert_eq!(tls.tls, TlsConfiguration::default());
}
