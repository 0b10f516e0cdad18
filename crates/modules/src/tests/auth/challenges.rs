//! Challenges: status, header fields, several algorithms, qop, realms.

use super::*;

fn challenging(parameters: &str, body: &str) -> Rig {
    server(&format!("{parameters}\nrequest_route {{ {body} }}"))
}

fn options() -> Request {
    Request::new("OPTIONS", "sip:bob@example.org", ALICE).from("<sip:alice@sip.example.com>;tag=1")
}

#[test]
fn a_server_challenges_with_401_and_a_proxy_with_407() {
    for (function, status, header) in [
        ("www_challenge", "SIP/2.0 401 Unauthorized", "WWW-Authenticate"),
        ("proxy_challenge", "SIP/2.0 407 Proxy Authentication Required", "Proxy-Authenticate"),
        ("auth_challenge", "SIP/2.0 407 Proxy Authentication Required", "Proxy-Authenticate"),
    ] {
        let mut rig = challenging("", &format!("{function}(\"r\", \"0\"); xlog(\"$rc\\n\");"));
        let reply = rig.one(ALICE, &options().text());
        assert_eq!(reply.first(), status);
        assert_eq!(reply.headers(header).len(), 1, "{reply:?}");
        assert_eq!(rig.lines(), ["1"]);
    }
    let mut rig = challenging("", "auth_challenge(\"r\", \"0\");");
    assert_eq!(rig.status(ALICE, &register(1).text()), "SIP/2.0 401 Unauthorized");
}

/// RFC 8760 §2.3: in the order in which they are preferred, one header field each.
#[test]
fn several_algorithms_are_offered_in_their_order_with_one_nonce() {
    let mut rig = challenging(
        "modparam(\"auth\", \"algorithm\", \"SHA-512-256, SHA-256, MD5\")",
        "www_challenge(\"r\", \"1\");",
    );
    let reply = rig.one(ALICE, &options().text());
    let challenges = reply.headers("WWW-Authenticate");
    let pieces = |name: &str| challenges.iter().map(|it| piece(it, name).unwrap()).collect::<Vec<_>>();
    assert_eq!(pieces("algorithm"), ["SHA-512-256", "SHA-256", "MD5"]);
    let nonces = pieces("nonce");
    assert!(nonces.iter().all(|nonce| *nonce == nonces[0]));
}

#[test]
fn each_of_the_offered_algorithms_is_taken() {
    let ours = "modparam(\"auth\", \"algorithm\", \"SHA-512-256,SHA-256,MD5\")";
    for algorithm in [Algorithm::Sha512_256, Algorithm::Sha256, Algorithm::Md5] {
        let mut rig = registrar(ours);
        let phone = Phone { algorithm, ..Phone::alice(&rig.challenge()) };
        assert!(rig.send(ALICE, &register(2).line(&phone.line()).text()).is_empty());
        let columns: Vec<_> = rig.select().columns.iter().map(|it| it.to_string()).collect();
        assert_eq!(columns, ["ha1", "ha1b", "username", "ha1_sha256", "ha1_sha512_256", "password"]);
        let hash = |algorithm| ha1(algorithm, "alice", SECRET);
        let (md5, sha256, sha512) =
            (hash(Algorithm::Md5), hash(Algorithm::Sha256), hash(Algorithm::Sha512_256));
        let reply =
            rig.rows(&row(&[Some(&md5), Some(""), Some("alice"), Some(&sha256), Some(&sha512), None]));
        assert_eq!(reply.first(), "SIP/2.0 200 OK", "{algorithm:?}");
    }
}

#[test]
fn qop_is_offered_by_flag_or_by_parameter() {
    for (parameter, flags, offered) in [
        ("", "0", false),
        ("", "1", true),
        ("", "2", true),
        ("modparam(\"auth\", \"qop\", \"auth\")", "0", true),
    ] {
        let mut rig = challenging(parameter, &format!("www_challenge(\"r\", \"{flags}\");"));
        let reply = rig.one(ALICE, &options().text());
        let qop = piece(reply.header("WWW-Authenticate").unwrap(), "qop");
        assert_eq!(qop.is_some(), offered, "{parameter} {flags}");
    }
}

#[test]
fn the_script_may_say_stale_and_choose_the_algorithm_and_the_header() {
    let mut rig = challenging(
        "modparam(\"auth\", \"proxy_challenge_header\", \"X-Challenge\")",
        "auth_algorithm(\"SHA-256\"); auth_algorithm(\"ROT13\"); proxy_challenge(\"r\", \"16\");",
    );
    let reply = rig.one(ALICE, &options().text());
    let challenge = reply.header("X-Challenge").unwrap();
    assert_eq!(piece(challenge, "stale").as_deref(), Some("true"));
    assert_eq!(piece(challenge, "algorithm").as_deref(), Some("SHA-256"));
    assert_eq!(rig.lines().len(), 1);
}

#[test]
fn a_realm_loses_its_prefix_and_is_made_of_from_where_none_is_given() {
    for (parameter, realm, expected) in [
        ("modparam(\"auth\", \"realm_prefix\", \"sip.\")", "$fd", "example.com"),
        ("", "$fd", "sip.example.com"),
        ("", "", "sip.example.com"),
        ("", "a \\\"quoted\\\" one", "a \\\"quoted\\\" one"),
    ] {
        let mut rig = challenging(parameter, &format!("www_challenge(\"{realm}\", \"0\");"));
        let reply = rig.one(ALICE, &options().text());
        let challenge = reply.header("WWW-Authenticate").unwrap();
        assert!(challenge.contains(&format!("realm=\"{expected}\"")), "{challenge}");
    }
}

#[test]
fn without_a_realm_there_is_no_challenge() {
    for (flags, answer) in [("1", Some("SIP/2.0 500 Server Internal Error")), ("5", None)] {
        let mut rig = challenging("", &format!("www_challenge(\"\", \"{flags}\"); xlog(\"$rc\\n\"); exit;"));
        let sent = rig.send(ALICE, &options().from("<tel:+15551234>;tag=1").text());
        let first = sent.iter().map(Sent::first).find(|first| first.contains("500 Server Internal"));
        assert_eq!(first.filter(|_| flags == "1"), answer, "{sent:?}");
        assert_eq!(rig.lines().last().map(String::as_str), Some("-1"));
    }
}

#[test]
fn no_two_nonces_are_the_same() {
    let mut rig = challenging("", "www_challenge(\"r\", \"1\");");
    let mut nonces = Vec::new();
    for cseq in 0..50 {
        let reply = rig.one(ALICE, &options().cseq(cseq).text());
        nonces.push(piece(reply.header("WWW-Authenticate").unwrap(), "nonce").unwrap());
    }
    nonces.sort();
    nonces.dedup();
    assert_eq!(nonces.len(), 50);
}

/// RFC 7616 §3.5.
#[test]
fn the_server_proves_that_it_knows_the_secret_where_it_is_told_to() {
    let mut rig = registrar("modparam(\"auth\", \"add_authinfo_hdr\", 1)");
    let phone = Phone { count: 2, ..rig.remember_alice() };
    let reply = rig.one(ALICE, &register(3).line(&phone.line()).text());
    let a1 = ha1(Algorithm::Md5, "alice", SECRET);
    let a2 = Algorithm::Md5.hash_joined(&[b"", phone.uri.as_bytes()]);
    let parts = [a1.as_bytes(), phone.nonce.as_bytes(), b"00000002", b"0a4f113b", b"auth", a2.as_bytes()];
    let proof = Algorithm::Md5.hash_joined(&parts);
    let proof = core::str::from_utf8(proof.as_bytes()).unwrap();
    let expected = format!("qop=auth, rspauth=\"{proof}\", cnonce=\"0a4f113b\", nc=00000002");
    assert_eq!(reply.header("Authentication-Info"), Some(expected.as_str()));
}

/// RFC 7616 §3.5: a nonce that is good once brings the next one, in quotation marks, and a phone need not ask for it.
#[test]
fn a_nonce_that_is_good_once_brings_the_next_one() {
    let mut rig =
        registrar("modparam(\"auth\", \"add_authinfo_hdr\", 1)\nmodparam(\"auth\", \"one_time_nonce\", 1)");
    let mut phone = Phone::alice(&rig.challenge());
    assert!(rig.send(ALICE, &register(2).line(&phone.line()).text()).is_empty());
    let mut reply = rig.rows(&alices_row(SECRET));
    for cseq in 3..6 {
        assert_eq!(reply.first(), "SIP/2.0 200 OK");
        let info = reply.header("Authentication-Info").unwrap().to_string();
        let (_, next) = info.split_once(", nextnonce=\"").unwrap();
        let next = next.strip_suffix('"').unwrap().to_string();
        assert_ne!(next, phone.nonce);
        phone.nonce = next;
        reply = rig.one(ALICE, &register(cseq).line(&phone.line()).text());
    }
}

#[test]
fn a_list_of_algorithms_that_is_none_is_an_error_at_load() {
    for text in [
        "modparam(\"auth\", \"algorithm\", \"SHA-1\")",
        "modparam(\"auth\", \"algorithm\", \"MD5,MD5\")",
        "modparam(\"auth\", \"algorithm\", \"MD5-sess\")",
        "modparam(\"auth\", \"qop\", \"auth-int\")",
        "modparam(\"auth\", \"challenge_attr\", \"$var(x)\")",
        "modparam(\"auth\", \"proxy_challenge_header\", \"A B\")",
        "modparam(\"auth_db\", \"password_column\", \"ha1; drop table\")",
        "modparam(\"auth_db\", \"db_url\", \"\")",
        "modparam(\"auth_db\", \"load_credentials\", \"$var(x)=y\")",
    ] {
        let program = program(&format!("{AUTH}{text}\nrequest_route {{ exit; }}"), &crate::catalogue());
        assert_eq!(Settings::from_program(&program).map_or_else(|errors| errors.len(), |_| 0), 1, "{text}");
    }
}
