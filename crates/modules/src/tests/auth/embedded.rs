//! The embedded configuration, once there is a user: who must prove what.

use super::*;

const DEFAULT: &str = include_str!("../../../../../conf/default.cfg");

/// The embedded configuration with one user, Alice, who is registered and remembered.
fn with_alice() -> (Rig, Phone) {
    let environment = Environment { services: Shared::new(), ..Environment::default() };
    let mut rig = Rig::with(DEFAULT, &[], environment);
    rig.no_users = false;
    assert!(rig.send(ALICE, &register(1).text()).is_empty());
    let reply = rig.rows(&row(&[Some("alice")]));
    let phone = Phone::alice(reply.header("WWW-Authenticate").unwrap());
    assert!(rig.send(ALICE, &alices(2).line(&phone.line()).text()).is_empty());
    assert_eq!(rig.rows(&alices_row(SECRET)).first(), "SIP/2.0 200 OK");
    (rig, phone)
}

/// A REGISTER whose From is Alice, too.
fn alices(cseq: u32) -> Request {
    register(cseq).from("<sip:alice@127.0.0.1>;tag=a")
}

/// RFC 8760 §2.6 item 8: a server always sends a qop.
#[test]
fn the_embedded_challenge_offers_qop() {
    let environment = Environment { services: Shared::new(), ..Environment::default() };
    let mut rig = Rig::with(DEFAULT, &[], environment);
    rig.no_users = false;
    assert!(rig.send(ALICE, &register(1).text()).is_empty());
    let reply = rig.rows(&row(&[Some("alice")]));
    assert!(reply.header("WWW-Authenticate").unwrap().contains(", qop=\"auth\""), "{reply:?}");
    let call = Request::new("INVITE", "sip:bob@127.0.0.1", ALICE).from("<sip:alice@127.0.0.1>;tag=1");
    let sent = rig.send(ALICE, &call.text());
    let reply = sent.last().unwrap();
    assert!(reply.header("Proxy-Authenticate").unwrap().contains(", qop=\"auth\""), "{reply:?}");
}

#[test]
fn nobody_registers_another_ones_address() {
    let (mut rig, phone) = with_alice();
    let phone = Phone { count: 2, ..phone };
    let bobs = alices(3).to("<sip:bob@127.0.0.1>").line(&phone.line());
    assert_eq!(rig.status(ALICE, &bobs.text()), "SIP/2.0 403 Not Your Name");
    assert_eq!(rig.status(BOB, &register(4).call("b").text()), "SIP/2.0 401 Unauthorized");
}

#[test]
fn whoever_says_to_be_ours_must_be_it_and_others_need_not() {
    let (mut rig, phone) = with_alice();
    let invite = |from: &str, call: &str| {
        let request = Request::new("INVITE", "sip:alice@127.0.0.1", BOB).from(from).call(call);
        request.to("<sip:alice@127.0.0.1>")
    };
    let sent = rig.send(BOB, &invite("<sip:alice@127.0.0.1>;tag=1", "1").text());
    assert_eq!(sent.last().map(Sent::first), Some("SIP/2.0 407 Proxy Authentication Required"));
    let phone = Phone { method: "INVITE".into(), uri: "sip:alice@127.0.0.1".into(), count: 5, ..phone };
    let line = format!("Proxy-Authorization: {}", phone.value());
    let sent = rig.send(BOB, &invite("<sip:bob@127.0.0.1>;tag=1", "2").line(&line).text());
    assert_eq!(sent.last().map(Sent::first), Some("SIP/2.0 403 Not Your Name"));
    let phone = Phone { count: 6, ..phone };
    let line = format!("Proxy-Authorization: {}", phone.value());
    for (from, call, line) in [
        ("<sip:alice@127.0.0.1>;tag=1", "3", line.as_str()),
        ("<sip:carol@example.org>;tag=1", "4", "X-None: none"),
    ] {
        let sent = rig.send(BOB, &invite(from, call).line(line).text());
        let forwarded = sent.iter().find(|sent| sent.to == ALICE).expect("the INVITE");
        assert_eq!(forwarded.header("Proxy-Authorization"), None);
    }
}

#[test]
fn kamailio_sees_the_same_rules_without_what_is_ours() {
    // What Kamailio reads: our name is not defined there.
    let elsewhere = DEFAULT.replace("STROWGER", "NOT_DEFINED");
    let mut rig = Rig::new(&elsewhere);
    rig.register("bob", BOB, "reg-bob");
    assert_eq!(rig.endpoint.user().settings().databases.len(), 0);
}

/// A To tag and a Route can be made up. RFC 3261 §16.4: only a Route of ours is taken off; §26.1.4 has the rest.
#[test]
fn a_forged_dialog_is_no_way_round_the_challenge_or_to_anywhere() {
    let (mut rig, phone) = with_alice();
    let forged = |method: &str, from: &str, route: &str, call: &str| {
        let request = Request::new(method, "sip:mallory@203.0.113.9", BOB).from(from).call(call);
        request.to("<sip:x@127.0.0.1>;tag=z").line(&format!("Route: <{route};lr>"))
    };
    let (ours, elsewhere) = ("sip:127.0.0.1", "sip:198.51.100.7");
    let (alice, carol) = ("<sip:alice@127.0.0.1>;tag=1", "<sip:carol@example.org>;tag=1");
    for from in [alice, carol] {
        let call = if from == alice { "a" } else { "c" };
        let request = forged("INVITE", from, elsewhere, call);
        assert_eq!(rig.status(BOB, &request.text()), "SIP/2.0 403 Relaying Denied");
    }
    for method in ["INVITE", "REFER", "MESSAGE"] {
        let sent = rig.send(BOB, &forged(method, alice, ours, method).text());
        assert_eq!(sent.last().map(Sent::first), Some("SIP/2.0 407 Proxy Authentication Required"));
    }
    // A user may, also one who was called by another name; what ends a call always may.
    let uri = "sip:mallory@203.0.113.9";
    let phone = Phone { method: "INVITE".into(), uri: uri.into(), count: 7, ..phone };
    let line = format!("Proxy-Authorization: {}", phone.value());
    let named = forged("INVITE", "<sip:sales@127.0.0.1>;tag=1", ours, "named").line(&line);
    for request in [named, forged("BYE", alice, ours, "bye"), forged("ACK", alice, ours, "ack")] {
        let sent = rig.send(BOB, &request.text());
        let forwarded = sent.iter().find(|sent| sent.to == "203.0.113.9:5060").expect("it goes on");
        assert_eq!(forwarded.header("Proxy-Authorization"), None);
        assert_eq!(forwarded.header("Route"), None);
    }
}

/// What the guide shows works as it stands there, and lets nobody be another.
#[test]
fn the_guides_configuration_lets_nobody_speak_for_another() {
    let guide = include_str!("../../../../../docs/guide/users.md");
    let shown = guide.split("In a configuration of yours:").nth(1).expect("the configuration");
    let shown: Vec<&str> =
        shown.lines().skip(1).take_while(|line| line.is_empty() || line.starts_with("    ")).collect();
    let (settings, route): (Vec<&str>, Vec<&str>) = shown.iter().partition(|line| {
        line.trim_start().starts_with("loadmodule") || line.trim_start().starts_with("modparam")
    });
    assert!(settings.len() >= 4 && route.len() >= 6, "{shown:#?}");
    let (settings, route) = (settings.join("\n"), route.join("\n"));
    let text = format!(
        "{LOAD}{settings}\nrequest_route {{\n{route}\nif (is_method(\"REGISTER\")) {{ save(\"location\"); exit; }}\n\
         send_reply(\"202\", \"Accepted\"); }}"
    );
    let (own, others) = ("<sip:alice@127.0.0.1>", "<sip:bob@127.0.0.1>");
    let cases = [
        ("REGISTER", own, own, "SIP/2.0 200 OK"),
        ("REGISTER", own, others, "SIP/2.0 403 Not Your Name"),
        ("REGISTER", others, others, "SIP/2.0 403 Not Your Name"),
        ("MESSAGE", own, others, "SIP/2.0 202 Accepted"),
        ("MESSAGE", others, own, "SIP/2.0 403 Not Your Name"),
    ];
    for (method, from, to, expected) in cases {
        let environment = Environment { services: Shared::new(), ..Environment::default() };
        let mut rig = Rig::with(&text, &[], environment);
        rig.no_users = false;
        let request = |cseq: u32| {
            let request = Request::new(method, "sip:127.0.0.1", ALICE).from(&format!("{from};tag=1")).to(to);
            request.cseq(cseq).line(&format!("Contact: <sip:alice@{ALICE}>"))
        };
        let reply = rig.one(ALICE, &request(1).text());
        let (name, line) = match method {
            "REGISTER" => ("WWW-Authenticate", "Authorization"),
            _ => ("Proxy-Authenticate", "Proxy-Authorization"),
        };
        let phone = Phone { method: method.into(), ..Phone::alice(reply.header(name).unwrap()) };
        let line = format!("{line}: {}", phone.value());
        assert!(rig.send(ALICE, &request(2).line(&line).text()).is_empty(), "the database is asked");
        assert_eq!(rig.rows(&alices_row(SECRET)).first(), expected, "{method} {from} {to}");
    }
}
