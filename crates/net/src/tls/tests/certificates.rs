//! Whose certificate is shown, asked for, believed and refused.

use super::*;
use std::net::SocketAddr;

/// A couple whose server shows `own`, and whose client believes the CA.
fn couple(pki: &Pki, own: CertificateFiles, client: Profile) -> Couple {
    let _ = pki;
    Couple::new(&servers(vec![server_profile(&[own])]), &clients(client))
}

#[test]
fn a_server_must_prove_the_domain() {
    let pki = Pki::new();
    let own = pki.issue(Wish::new("s", vec![uri("sip:example.org"), dns("proxy.example.org")]));
    let mut couple = couple(&pki, own, client_profile(Some(&pki.ca)));
    let (_, client) = couple.both(Some("example.org"));
    assert_eq!(client.session.facts().names, ["example.org"]);
    // There is a sip URI, so that the DNS name does not count (RFC 5922 §7.1).
    let why = couple.refusal(Some("proxy.example.org"));
    assert!(why.contains("must name proxy.example.org and names example.org"), "{why}");
    let why = couple.refusal(Some("example.net"));
    assert!(why.contains("example.net"), "{why}");
    assert_eq!(couple.client.statistics().certificate, 2);
    // The server learns of it by the alert. With TLS 1.3 its own handshake was not over yet.
    assert_eq!(couple.server.statistics().certificate, 2);
}

#[test]
fn wildcards_prove_nothing() {
    let pki = Pki::new();
    let own = pki.simple("s", "*.example.org");
    let why = couple(&pki, own, client_profile(Some(&pki.ca))).refusal(Some("sip.example.org"));
    assert!(why.contains("must name sip.example.org and names *.example.org"), "{why}");
}

#[test]
fn the_common_name_counts_only_without_alternative_names() {
    let pki = Pki::new();
    let own = pki.issue(Wish { common_name: "example.org", ..Wish::new("s", vec![]) });
    couple(&pki, own, client_profile(Some(&pki.ca))).both(Some("example.org"));
    let own = pki.issue(Wish { common_name: "example.org", ..Wish::new("t", vec![dns("example.net")]) });
    couple(&pki, own, client_profile(Some(&pki.ca))).refusal(Some("example.org"));
}

#[test]
fn without_a_domain_the_address_must_be_proved() {
    let pki = Pki::new();
    let loopback = IpAddr::from(Ipv4Addr::LOCALHOST);
    let own = pki.issue(Wish::new("s", vec![address(loopback), dns("example.org")]));
    let mut good = couple(&pki, own, client_profile(Some(&pki.ca)));
    let (server, client) = good.both(None);
    assert_eq!(server.session.facts().server_name, None, "an address is never sent as SNI (RFC 6066 §3)");
    assert_eq!(client.session.facts().names, ["example.org", "127.0.0.1"]);
    good.both(Some("127.0.0.1"));
    let own = pki.simple("t", "example.org");
    let why = couple(&pki, own, client_profile(Some(&pki.ca))).refusal(None);
    assert!(why.contains("127.0.0.1"), "{why}");
}

#[test]
fn a_client_profile_may_name_whom_to_ask_for() {
    let pki = Pki::new();
    let own = pki.simple("s", "other.example.net");
    let profile = Profile { server_name: Some("other.example.net".into()), ..client_profile(Some(&pki.ca)) };
    let (server, _) = couple(&pki, own, profile).both(Some("example.org"));
    assert_eq!(server.session.facts().server_name.as_deref(), Some("other.example.net"));
}

#[test]
fn a_name_that_nobody_can_prove_is_an_error_before_anything_is_sent() {
    let pki = Pki::new();
    let mut couple = couple(&pki, pki.simple("s", "example.org"), client_profile(Some(&pki.ca)));
    let (server, client) = couple.shake(Some("exa mple.org"));
    assert_eq!(
        client.unwrap_err(),
        HandshakeError::Certificate("no server can prove to be `exa mple.org`".into())
    );
    assert_eq!(server.unwrap_err(), HandshakeError::Closed);
}

#[test]
fn what_is_expired_unknown_or_revoked_is_refused() {
    let pki = Pki::new();
    let expired = pki.issue(Wish { not_after: 2_020, ..Wish::new("old", vec![dns("example.org")]) });
    let why = couple(&pki, expired, client_profile(Some(&pki.ca))).refusal(Some("example.org"));
    assert!(why.contains("expired"), "{why}");

    let strange = Pki::new();
    let own = strange.simple("s", "example.org");
    let why = couple(&pki, own, client_profile(Some(&pki.ca))).refusal(Some("example.org"));
    assert!(why.contains("no CA that we trust"), "{why}");

    let crl = pki.revoke("crl.pem", &[66], 2_090);
    let profile = Profile { crl: Some(crl), ..client_profile(Some(&pki.ca)) };
    let revoked = pki.issue(Wish { serial: 66, ..Wish::new("r", vec![dns("example.org")]) });
    let why = couple(&pki, revoked, profile.clone()).refusal(Some("example.org"));
    assert!(why.contains("revoked"), "{why}");
    let good = pki.issue(Wish { serial: 67, ..Wish::new("g", vec![dns("example.org")]) });
    couple(&pki, good.clone(), profile).both(Some("example.org"));

    let stale = pki.revoke("stale.pem", &[66], 2_021);
    let profile = Profile { crl: Some(stale), ..client_profile(Some(&pki.ca)) };
    let why = couple(&pki, good, profile).refusal(Some("example.org"));
    assert!(why.contains("revocation list"), "{why}");
}

#[test]
fn the_purpose_of_a_certificate_counts() {
    use rcgen::ExtendedKeyUsagePurpose as Purpose;
    let pki = Pki::new();
    // id-kp-sipDomain (RFC 5924 §3).
    let sip_domain = Purpose::Other(vec![1, 3, 6, 1, 5, 5, 7, 3, 20]);
    for (purpose, is_good) in [(Purpose::ServerAuth, true), (sip_domain, true), (Purpose::ClientAuth, false)]
    {
        let own = pki.issue_with(Wish::new("s", vec![dns("example.org")]), |params| {
            params.extended_key_usages = vec![purpose];
        });
        let (_, client) = couple(&pki, own, client_profile(Some(&pki.ca))).shake(Some("example.org"));
        assert_eq!(client.is_ok(), is_good);
        if let Err(error) = client {
            assert!(error.to_string().contains("purpose"), "{error}");
        }
    }
}

#[test]
fn a_chain_is_followed_and_each_ca_of_it_must_have_a_revocation_list() {
    let pki = Pki::new();
    let middle = pki.intermediate();
    let own = middle.simple("leaf", "example.org");
    let chain = [fs::read(&own.chain).unwrap(), fs::read(&middle.ca).unwrap()].concat();
    fs::write(&own.chain, chain).unwrap();
    couple(&pki, own.clone(), client_profile(Some(&pki.ca))).both(Some("example.org"));
    let of_root = pki.revoke("root-crl.pem", &[], 2_090);
    let profile = Profile { crl: Some(of_root.clone()), ..client_profile(Some(&pki.ca)) };
    let why = couple(&pki, own.clone(), profile).refusal(Some("example.org"));
    assert!(why.contains("no revocation list"), "{why}");
    let of_middle = middle.revoke("middle-crl.pem", &[], 2_090);
    let both = [fs::read(of_root).unwrap(), fs::read(of_middle).unwrap()].concat();
    let both = pki.directory.write("both.pem", both);
    let profile = Profile { crl: Some(both), ..client_profile(Some(&pki.ca)) };
    couple(&pki, own, profile).both(Some("example.org"));
}

#[test]
fn what_is_out_of_date_is_warned_of_with_its_date() {
    use crate::tls::certificates::{staleness_warning, validity_warning};
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, UnixTime};
    let pki = Pki::new();
    let now = UnixTime::now().as_secs();
    let own = pki.issue(Wish { not_after: 2_020, ..Wish::new("old", vec![dns("example.org")]) });
    let own = CertificateDer::from_pem_file(&own.chain).unwrap();
    let warning = validity_warning(&own, now).unwrap();
    assert!(warning.contains("expired on 2020-01-01"), "{warning}");
    // On the first day of 1999 it was not valid yet, in 2010 it was.
    assert!(validity_warning(&own, 915_148_800).unwrap().contains("from 2000-01-01"));
    assert_eq!(validity_warning(&own, 1_262_304_000), None);
    let list = CertificateRevocationListDer::from_pem_file(pki.revoke("crl.pem", &[1], 2_021)).unwrap();
    assert!(staleness_warning(&list, now).unwrap().contains("by 2021-01-01"));
    assert_eq!(staleness_warning(&list, 1_600_000_000), None);
}

#[test]
fn a_client_that_does_not_verify_takes_any_certificate() {
    let strange = Pki::new();
    let own = strange.issue(Wish { not_after: 2_020, ..Wish::new("s", vec![dns("example.net")]) });
    let (_, client) = couple(&strange, own, client_profile(None)).both(Some("example.org"));
    let facts = client.session.facts();
    assert!(!facts.peer_verified);
    assert_eq!(facts.names, ["example.net"]);
}

#[test]
fn the_systems_cas_are_used_where_none_are_named() {
    let pki = Pki::new();
    let own = pki.simple("s", "example.org");
    let profile = Profile { peer: PeerCertificate::Require, ..client_profile(None) };
    let settings = TlsSettings { clients: vec![profile], ..TlsSettings::default() };
    // Where the system has none, nobody is trusted, which is seen the same way.
    let client = Tls::load(settings).unwrap();
    let mut couple = Couple::new(&servers(vec![server_profile(&[own])]), &client);
    let why = couple.refusal(Some("example.org"));
    assert!(why.contains("no CA that we trust"), "{why}");
}

// --- certificates of clients ---------------------------------------------------------------------------------

/// A server that asks for certificates, and a client that has one or not.
fn mutual(pki: &Pki, peer: PeerCertificate, crl: Option<PathBuf>, client: Vec<CertificateFiles>) -> Couple {
    let own = pki.simple("server", "example.org");
    let server = Profile { peer, ca_list: Some(pki.ca.clone()), crl, ..server_profile(&[own]) };
    let client = Profile { certificates: client, ..client_profile(Some(&pki.ca)) };
    Couple::new(&servers(vec![server]), &clients(client))
}

#[test]
fn a_required_certificate_must_be_there_and_good() {
    for versions in [ONLY_1_2, ONLY_1_3] {
        let pki = Pki::new();
        let limit = |mut couple: Couple| {
            let profile = Profile { versions, ..server_profile(&[pki.simple("server", "example.org")]) };
            let profile =
                Profile { peer: PeerCertificate::Require, ca_list: Some(pki.ca.clone()), ..profile };
            let settings = TlsSettings { servers: vec![profile], ..TlsSettings::default() };
            couple.server = HandshakePool::start(Tls::load(settings).unwrap(), 1).unwrap();
            couple
        };
        let own = pki.issue(Wish::new("client", vec![uri("sip:client.example.org")]));
        let (server, _) =
            limit(mutual(&pki, PeerCertificate::Require, None, vec![own])).both(Some("example.org"));
        let facts = server.session.facts();
        assert!(facts.peer_verified);
        assert_eq!(facts.names, ["client.example.org"]);
        assert_eq!(facts.subject.as_deref(), Some("CN=holder"));

        let (server, client) =
            limit(mutual(&pki, PeerCertificate::Require, None, vec![])).shake(Some("example.org"));
        let HandshakeError::Certificate(why) = server.unwrap_err() else { panic!("not for the certificate") };
        assert!(why.contains("sent no certificate"), "{why}");
        if versions == ONLY_1_2 {
            assert!(matches!(client, Err(HandshakeError::Certificate(_) | HandshakeError::NoCommon(_))));
        } else if let Ok(mut client) = client {
            // To a client of TLS 1.3 the handshake was over before the server looked.
            let mut alert = read_some(&client.socket);
            let error = client.session.receive(&mut alert, &mut Vec::new()).unwrap_err();
            assert!(error.to_string().contains("CertificateRequired"), "{error}");
        }
    }
}

#[test]
fn a_certificate_of_another_ca_or_a_revoked_one_is_refused_by_the_server() {
    let pki = Pki::new();
    for peer in [PeerCertificate::Require, PeerCertificate::Request] {
        let strange = Pki::new().issue_for_good("client");
        let (server, _) = mutual(&pki, peer, None, vec![strange.1]).shake(Some("example.org"));
        let error = server.unwrap_err().to_string();
        assert!(error.contains("no CA that we trust"), "{error}");

        let crl = pki.revoke("crl.pem", &[66], 2_090);
        let revoked = pki.issue(Wish { serial: 66, ..Wish::new("client", vec![dns("c.example.org")]) });
        let (server, _) = mutual(&pki, peer, Some(crl), vec![revoked]).shake(Some("example.org"));
        let error = server.unwrap_err().to_string();
        assert!(error.contains("revoked"), "{error}");
    }
}

impl Pki {
    /// A certificate that outlives its makers: the files stay while the first value lives.
    fn issue_for_good(self, file: &'static str) -> (Pki, CertificateFiles) {
        let own = self.simple(file, "client.example.org");
        (self, own)
    }
}

#[test]
fn a_requested_certificate_may_be_missing() {
    let pki = Pki::new();
    let (server, _) = mutual(&pki, PeerCertificate::Request, None, vec![]).both(Some("example.org"));
    assert!(!server.session.facts().peer_verified);
    let own = pki.simple("client", "client.example.org");
    let (server, _) = mutual(&pki, PeerCertificate::Request, None, vec![own]).both(Some("example.org"));
    assert!(server.session.facts().peer_verified);
    assert_eq!(server.session.facts().names, ["client.example.org"]);
}

#[test]
fn a_certificate_that_is_not_asked_for_is_not_sent() {
    let pki = Pki::new();
    let own = pki.simple("client", "client.example.org");
    let (server, _) = mutual(&pki, PeerCertificate::Off, None, vec![own]).both(Some("example.org"));
    assert_eq!(server.session.facts().names, Vec::<String>::new());
}

// --- which profile and which certificate ---------------------------------------------------------------------

#[test]
fn rsa_and_ecdsa_are_served_together() {
    let pki = Pki::new();
    let rsa = pki.issue(Wish { rsa: true, ..Wish::new("rsa", vec![dns("example.org")]) });
    let ecdsa = pki.simple("ecdsa", "example.org");
    let server = servers(vec![server_profile(&[rsa, ecdsa])]);
    for (list, suite, subject) in [
        ("aRSA", "ECDHE-RSA-AES256-GCM-SHA384", "CN=holder"),
        ("aECDSA", "ECDHE-ECDSA-AES256-GCM-SHA384", "CN=simple"),
        ("HIGH", "ECDHE-ECDSA-AES256-GCM-SHA384", "CN=simple"),
    ] {
        let profile =
            Profile { versions: ONLY_1_2, cipher_list: Some(list.into()), ..client_profile(Some(&pki.ca)) };
        let (_, client) = Couple::new(&server, &clients(profile)).both(Some("example.org"));
        let facts = client.session.facts();
        assert_eq!((facts.cipher_suite, facts.subject.as_deref()), (suite, Some(subject)), "{list}");
    }
}

#[test]
fn a_client_without_a_suite_for_our_certificate_has_nothing_in_common() {
    let pki = Pki::new();
    let server = servers(vec![server_profile(&[pki.simple("ecdsa", "example.org")])]);
    let profile =
        Profile { versions: ONLY_1_2, cipher_list: Some("aRSA".into()), ..client_profile(Some(&pki.ca)) };
    let (server, client) = Couple::new(&server, &clients(profile)).shake(Some("example.org"));
    assert!(matches!(server, Err(HandshakeError::NoCommon(_))), "{server:?}");
    assert!(matches!(client, Err(HandshakeError::NoCommon(_))), "{client:?}");
}

#[test]
fn versions_that_do_not_meet_have_nothing_in_common() {
    let pki = Pki::new();
    let own = pki.simple("s", "example.org");
    let server = servers(vec![Profile { versions: ONLY_1_3, ..server_profile(&[own]) }]);
    let profile = Profile { versions: ONLY_1_2, ..client_profile(Some(&pki.ca)) };
    let (server, client) = Couple::new(&server, &clients(profile)).shake(Some("example.org"));
    assert!(matches!(server, Err(HandshakeError::NoCommon(_))), "{server:?}");
    assert!(matches!(client, Err(HandshakeError::NoCommon(_))), "{client:?}");
}

/// The subject of the certificate that a server shows for a name.
fn shown(couple: &mut Couple, name: Option<&str>) -> String {
    couple.both(name).1.session.facts().subject.unwrap_or_default()
}

#[test]
fn address_and_name_choose_the_profile() {
    let pki = Pki::new();
    let certificate = |name: &'static str| {
        pki.issue(Wish { common_name: name, ..Wish::new(name, vec![dns("any.example.org")]) })
    };
    let profile = |own: &'static str, address: Option<SocketAddr>, name: Option<&str>| Profile {
        address,
        server_name: name.map(str::to_owned),
        ..server_profile(&[certificate(own)])
    };
    let listener = listener();
    let here = listener.local_addr().unwrap();
    let there = SocketAddr::from(([192, 0, 2, 1], 5_061));
    let with_address = vec![
        profile("default", None, None),
        profile("elsewhere", Some(there), None),
        profile("here", Some(here), None),
        profile("here-and-name", Some(here), Some("a.example.org")),
        profile("name", None, Some("a.example.org")),
    ];
    let without = vec![
        profile("elsewhere", Some(there), Some("a.example.org")),
        profile("wildcard", None, Some("*.Example.org")),
        profile("name", None, Some("A.example.org")),
        profile("default", None, None),
    ];
    let mut couple = Couple::new(&servers(with_address), &clients(client_profile(None)));
    couple.listener = listener;
    assert_eq!(shown(&mut couple, Some("a.example.org")), "CN=here-and-name");
    assert_eq!(shown(&mut couple, Some("b.example.org")), "CN=here");
    assert_eq!(shown(&mut couple, None), "CN=here");
    let mut couple = Couple::new(&servers(without), &clients(client_profile(None)));
    assert_eq!(shown(&mut couple, Some("a.example.org")), "CN=name");
    assert_eq!(shown(&mut couple, Some("b.example.org")), "CN=wildcard");
    assert_eq!(shown(&mut couple, Some("c.b.example.org")), "CN=default");
    assert_eq!(shown(&mut couple, Some("example.org")), "CN=default");
    assert_eq!(shown(&mut couple, None), "CN=default");
}

#[test]
fn a_name_without_profile_is_told_where_there_is_no_default() {
    let pki = Pki::new();
    let only = Profile {
        server_name: Some("example.org".into()),
        ..server_profile(&[pki.simple("s", "example.org")])
    };
    let mut couple = Couple::new(&servers(vec![only]), &clients(client_profile(None)));
    couple.both(Some("example.org"));
    let (server, client) = couple.shake(Some("example.net"));
    let HandshakeError::NoCommon(why) = server.unwrap_err() else { panic!("another error") };
    assert!(why.contains("example.net"), "{why}");
    let HandshakeError::NoCommon(why) = client.unwrap_err() else { panic!("another error") };
    assert!(why.contains("UnrecognisedName"), "{why}");
}

#[test]
fn client_profiles_are_chosen_by_the_peers_address() {
    let pki = Pki::new();
    let server = servers(vec![server_profile(&[pki.simple("s", "example.org")])]);
    let listener = listener();
    let profile = Profile { address: Some(listener.local_addr().unwrap()), ..client_profile(Some(&pki.ca)) };
    let other = Pki::new();
    let settings =
        TlsSettings { clients: vec![client_profile(Some(&other.ca)), profile], ..TlsSettings::default() };
    let mut couple = Couple::new(&server, &Tls::load(settings).unwrap());
    couple.refusal(Some("example.org"));
    couple.listener = listener;
    couple.both(Some("example.org"));
    let mut none = Couple::new(&server, &Tls::load(TlsSettings::default()).unwrap());
    let (_, client) = none.shake(Some("example.org"));
    assert!(client.unwrap_err().to_string().contains("no client profile"));
}

// --- loading and reloading -----------------------------------------------------------------------------------

/// The error that loading gives, which names the file and is one line.
fn error(file: &Path, profile: Profile) -> String {
    let settings = TlsSettings { servers: vec![profile], ..TlsSettings::default() };
    let error = Tls::load(settings).unwrap_err();
    assert_eq!(error.path(), Some(file));
    let text = error.to_string();
    assert!(text.starts_with(&file.display().to_string()), "{text}");
    assert!(!text.contains('\n') && text.contains("; "), "{text}");
    text
}

#[test]
fn every_bad_file_is_named_with_what_to_do() {
    let pki = Pki::new();
    let good = pki.simple("good", "example.org");
    let other = pki.simple("other", "example.org");
    let missing = pki.directory.0.join("missing.pem");
    let with = |chain: &Path, key: &Path| {
        server_profile(&[CertificateFiles { chain: chain.to_owned(), key: key.to_owned() }])
    };
    assert!(error(&missing, with(&missing, &good.key)).contains("correct the path"));
    assert!(error(&missing, with(&good.chain, &missing)).contains("correct the path"));
    let text = error(&good.chain, with(&good.chain, &other.key));
    assert!(text.contains("does not belong to the key in") && text.contains("other.key"), "{text}");
    assert!(error(&good.key, with(&good.key, &good.key)).contains("holds no certificate"));
    assert!(error(&good.chain, with(&good.chain, &good.chain)).contains("holds no private key"));
    let empty = pki.directory.write("empty.pem", "");
    assert!(error(&empty, with(&empty, &good.key)).contains("holds no certificate"));
    let garbage =
        pki.directory.write("garbage.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    error(&garbage, with(&garbage, &good.key));
    let broken = pki.directory.write("broken.pem", "-----BEGIN CERTIFICATE-----\n!!\n");
    error(&broken, with(&broken, &good.key));
    let encrypted = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    let encrypted = pki.directory.write("encrypted.key", encrypted);
    assert!(error(&encrypted, with(&good.chain, &encrypted)).contains("openssl pkey"));
    let directory = pki.directory.0.clone();
    assert!(error(&directory, with(&directory, &good.key)).contains("is no file"));
    let asks = |ca: &Path, crl: Option<&Path>| Profile {
        peer: PeerCertificate::Require,
        ca_list: Some(ca.to_owned()),
        crl: crl.map(Path::to_owned),
        ..server_profile(std::slice::from_ref(&good))
    };
    error(&missing, asks(&missing, None));
    error(&empty, asks(&empty, None));
    error(&missing, asks(&pki.ca, Some(&missing)));
    assert!(error(&pki.ca, asks(&pki.ca, Some(&pki.ca))).contains("revocation list"));
    let twice = server_profile(&[good, other.clone()]);
    assert!(error(&other.chain, twice).contains("second certificate"));
}

#[test]
fn settings_that_make_no_sense_are_errors() {
    let pki = Pki::new();
    let own = [pki.simple("s", "example.org")];
    let says = |settings: TlsSettings| Tls::load(settings).unwrap_err().to_string();
    let with = |profile: Profile| TlsSettings { servers: vec![profile], ..TlsSettings::default() };
    assert!(says(with(server_profile(&[]))).contains("the default server profile has no certificate"));
    let unknown = Profile { cipher_list: Some("AES256-SHA:NULL".into()), ..server_profile(&own) };
    assert!(says(with(unknown)).contains("AES256-SHA:NULL"));
    let nothing_left = Profile {
        cipher_list: Some("TLS_AES_128_GCM_SHA256".into()),
        versions: ONLY_1_2,
        ..server_profile(&own)
    };
    assert!(says(with(nothing_left)).contains("versions"));
    let swapped = Profile { versions: (TlsVersion::V1_3, TlsVersion::V1_2), ..server_profile(&own) };
    assert!(says(with(swapped)).contains("versions"));
    let name = Profile { server_name: Some("exa mple".into()), ..client_profile(None) };
    assert!(says(TlsSettings { clients: vec![name], ..TlsSettings::default() }).contains("`exa mple`"));
    for name in ["192.0.2.1", "*.", "exa mple", "b\u{fc}ro.example.org"] {
        let profile = Profile { server_name: Some(name.into()), ..server_profile(&own) };
        assert!(says(with(profile)).contains("no name that a client can ask for"), "{name}");
    }
    let hasty = TlsSettings { handshake_timeout: Duration::ZERO, ..TlsSettings::default() };
    assert!(says(hasty).contains("zero"));
    assert!(says(TlsSettings { handshakes_max: 0, ..TlsSettings::default() }).contains("handshake"));
}

#[test]
fn unknown_ciphers_beside_known_ones_are_skipped() {
    let pki = Pki::new();
    let list = Some("AES256-SHA:ECDHE-ECDSA-CHACHA20-POLY1305".into());
    let own = pki.simple("s", "example.org");
    let server = Profile { cipher_list: list, versions: ONLY_1_2, ..server_profile(&[own]) };
    let (server, _) = Couple::new(&servers(vec![server]), &clients(client_profile(Some(&pki.ca))))
        .both(Some("example.org"));
    assert_eq!(server.session.facts().cipher_suite, "ECDHE-ECDSA-CHACHA20-POLY1305");
}

#[test]
fn an_expired_certificate_of_our_own_is_used_all_the_same() {
    let pki = Pki::new();
    let own = pki.issue(Wish { not_after: 2_020, ..Wish::new("old", vec![dns("example.org")]) });
    couple(&pki, own, client_profile(None)).both(Some("example.org"));
}

#[test]
fn a_reload_is_for_new_connections_and_an_error_changes_nothing() {
    let pki = Pki::new();
    let named = |name: &'static str| {
        pki.issue(Wish { common_name: name, ..Wish::new("own", vec![dns("example.org")]) })
    };
    let tls = servers(vec![server_profile(&[named("first")])]);
    let mut couple = Couple::new(&tls, &clients(client_profile(Some(&pki.ca))));
    let (mut server, mut client) = couple.both(Some("example.org"));
    assert_eq!(client.session.facts().subject.as_deref(), Some("CN=first"));

    let good = named("second");
    let new_client = || Couple::new(&tls, &clients(client_profile(Some(&pki.ca))));
    assert_eq!(shown(&mut new_client(), Some("example.org")), "CN=first", "not before it is told");
    tls.reload().unwrap();
    assert_eq!(shown(&mut new_client(), Some("example.org")), "CN=second");
    say(&mut client, &mut server, b"still there");
    say(&mut server, &mut client, b"and answered");

    fs::write(&good.chain, "nonsense").unwrap();
    let error = tls.reload().unwrap_err();
    assert_eq!(error.path(), Some(&*good.chain));
    assert_eq!(shown(&mut new_client(), Some("example.org")), "CN=second");
    say(&mut client, &mut server, b"still there");

    let third = pki.issue(Wish { common_name: "third", ..Wish::new("third", vec![dns("example.org")]) });
    let settings = TlsSettings { servers: vec![server_profile(&[third])], ..TlsSettings::default() };
    tls.replace(settings).unwrap();
    assert_eq!(shown(&mut new_client(), Some("example.org")), "CN=third");
}

#[test]
fn reloads_under_use_lose_no_handshake() {
    let pki = Pki::new();
    let tls = servers(vec![server_profile(&[pki.simple("own", "example.org")])]);
    let mut couple = Couple::new(&tls, &clients(client_profile(Some(&pki.ca))));
    let reloader = std::thread::spawn(move || {
        for _ in 0..50 {
            tls.reload().unwrap();
        }
    });
    while !reloader.is_finished() {
        couple.talk(Some("example.org"));
    }
    reloader.join().unwrap();
    assert_eq!(couple.server.statistics().protocol, 0);
}
