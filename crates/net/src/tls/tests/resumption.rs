//! Sessions that are resumed, and those that must not be.

use super::*;

fn tls_of(pki: &Pki, versions: (TlsVersion, TlsVersion)) -> (Tls, Tls) {
    let own = pki.simple("server", "example.org");
    let server = servers(vec![Profile { versions, ..server_profile(&[own]) }]);
    (server, clients(client_profile(Some(&pki.ca))))
}

/// Handshakes of server and client: full, resumed.
fn counts(couple: &Couple) -> [(u64, u64); 2] {
    let (server, client) = (couple.server.statistics(), couple.client.statistics());
    [(server.accepted_full, server.accepted_resumed), (client.connected_full, client.connected_resumed)]
}

#[test]
fn a_second_connection_resumes_and_both_sides_count_it() {
    for versions in [ONLY_1_2, ONLY_1_3] {
        let pki = Pki::new();
        let (server, client) = tls_of(&pki, versions);
        let mut couple = Couple::new(&server, &client);
        couple.talk(Some("example.org"));
        assert_eq!(counts(&couple), [(1, 0), (1, 0)]);
        for resumed in 1..=3 {
            let (server, client) = couple.talk(Some("example.org"));
            assert_eq!(counts(&couple), [(1, resumed), (1, resumed)], "{versions:?}");
            assert!(server.session.facts().resumed && client.session.facts().resumed);
            assert!(client.session.facts().peer_verified);
            assert_eq!(client.session.facts().names, ["example.org"]);
        }
    }
}

#[test]
fn another_name_or_address_does_not_resume() {
    let pki = Pki::new();
    let own = pki.issue(Wish::new("s", vec![dns("example.org"), dns("example.net")]));
    let server = servers(vec![server_profile(&[own])]);
    let mut couple = Couple::new(&server, &clients(client_profile(Some(&pki.ca))));
    couple.talk(Some("example.org"));
    couple.talk(Some("example.net"));
    assert_eq!(counts(&couple), [(2, 0), (2, 0)]);
    couple.listener = listener();
    couple.talk(Some("example.org"));
    assert_eq!(counts(&couple), [(3, 0), (3, 0)]);
}

#[test]
fn a_lifetime_of_zero_means_none_on_either_side() {
    for versions in [ONLY_1_2, ONLY_1_3] {
        for side in 0..2 {
            let pki = Pki::new();
            let own = pki.simple("server", "example.org");
            let life = |zero: bool| if zero { Duration::ZERO } else { Duration::from_secs(60) };
            let server = TlsSettings {
                servers: vec![Profile { versions, ..server_profile(&[own]) }],
                session_lifetime: life(side == 0),
                ..TlsSettings::default()
            };
            let client = TlsSettings {
                clients: vec![client_profile(Some(&pki.ca))],
                session_lifetime: life(side == 1),
                ..TlsSettings::default()
            };
            let mut couple = Couple::new(&Tls::load(server).unwrap(), &Tls::load(client).unwrap());
            let mut first = couple.both(Some("example.org"));
            say(&mut first.0, &mut first.1, b"x");
            let mut second = couple.both(Some("example.org"));
            say(&mut second.0, &mut second.1, b"x");
            assert_eq!(counts(&couple), [(2, 0), (2, 0)], "{versions:?} {side}");
        }
    }
}

#[test]
fn tickets_survive_a_reload_of_the_server() {
    for versions in [ONLY_1_2, ONLY_1_3] {
        let pki = Pki::new();
        let (server, client) = tls_of(&pki, versions);
        let mut couple = Couple::new(&server, &client);
        couple.talk(Some("example.org"));
        server.reload().unwrap();
        couple.talk(Some("example.org"));
        assert_eq!(counts(&couple), [(1, 1), (1, 1)]);
    }
}

#[test]
fn a_session_without_certificate_is_not_resumed_where_one_is_required() {
    for versions in [ONLY_1_2, ONLY_1_3] {
        for before in [PeerCertificate::Off, PeerCertificate::Request] {
            let pki = Pki::new();
            let own = pki.simple("server", "example.org");
            let settings = |peer| TlsSettings {
                servers: vec![Profile {
                    versions,
                    peer,
                    ca_list: Some(pki.ca.clone()),
                    ..server_profile(std::slice::from_ref(&own))
                }],
                ..TlsSettings::default()
            };
            let server = Tls::load(settings(before)).unwrap();
            let mut couple = Couple::new(&server, &clients(client_profile(Some(&pki.ca))));
            couple.talk(Some("example.org"));
            server.replace(settings(PeerCertificate::Require)).unwrap();
            let (outcome, _) = couple.shake(Some("example.org"));
            assert!(matches!(outcome, Err(HandshakeError::Certificate(_))), "{outcome:?}");
            assert_eq!(couple.server.statistics().accepted_resumed, 0);
            server.replace(settings(before)).unwrap();
            couple.talk(Some("example.org"));
        }
    }
}

#[test]
fn a_session_with_certificate_resumes_with_it_until_what_is_trusted_changes() {
    for versions in [ONLY_1_2, ONLY_1_3] {
        let pki = Pki::new();
        let own = pki.simple("server", "example.org");
        let settings = |crl: Option<PathBuf>| TlsSettings {
            servers: vec![Profile {
                versions,
                peer: PeerCertificate::Require,
                ca_list: Some(pki.ca.clone()),
                crl,
                ..server_profile(std::slice::from_ref(&own))
            }],
            ..TlsSettings::default()
        };
        let server = Tls::load(settings(None)).unwrap();
        let certificate = pki.issue(Wish { serial: 66, ..Wish::new("c", vec![dns("client.example.org")]) });
        let client = Profile { certificates: vec![certificate], ..client_profile(Some(&pki.ca)) };
        let mut couple = Couple::new(&server, &clients(client));
        couple.talk(Some("example.org"));
        let (accepted, _) = couple.talk(Some("example.org"));
        let facts = accepted.session.facts();
        assert!(facts.resumed && facts.peer_verified);
        assert_eq!(facts.names, ["client.example.org"]);
        // Revoked since: its ticket is worth nothing, and neither is itself.
        let crl = pki.revoke("crl.pem", &[66], 2_090);
        server.replace(settings(Some(crl))).unwrap();
        let (outcome, _) = couple.shake(Some("example.org"));
        assert!(outcome.unwrap_err().to_string().contains("revoked"));
    }
}

#[test]
fn a_client_forgets_its_sessions_when_its_profiles_are_loaded_anew() {
    let pki = Pki::new();
    let (server, client) = tls_of(&pki, BOTH);
    let mut couple = Couple::new(&server, &client);
    couple.talk(Some("example.org"));
    client.reload().unwrap();
    couple.talk(Some("example.org"));
    assert_eq!(counts(&couple), [(2, 0), (2, 0)]);
}

#[test]
fn a_session_is_not_resumed_after_its_lifetime() {
    let pki = Pki::new();
    let own = pki.simple("server", "example.org");
    let server = TlsSettings {
        servers: vec![server_profile(&[own])],
        session_lifetime: Duration::from_millis(10),
        ..TlsSettings::default()
    };
    let client = clients(client_profile(Some(&pki.ca)));
    let mut couple = Couple::new(&Tls::load(server).unwrap(), &client);
    couple.talk(Some("example.org"));
    // Ten milliseconds count as one second.
    std::thread::sleep(Duration::from_millis(2_100));
    couple.talk(Some("example.org"));
    assert_eq!(counts(&couple), [(2, 0), (2, 0)]);
}
