//! Routes and Record-Routes (RFC 3261 §16.4, §16.6 items 4 and 6, §16.12).

use super::*;

fn two_listeners() -> Config {
    let mut config = config();
    config.listeners.push(Listener {
        transport: Transport::Udp,
        address: "[2001:db8::1]:5060".parse().unwrap(),
        advertise: None,
    });
    config
}

fn routed() -> Script {
    Box::new(|cx| {
        let verdict = cx.loose_route();
        *cx.state = verdict as u32;
        if matches!(cx.message().method(), sip::Method::Invite) {
            cx.record_route(b";ftag=1");
        }
        let _ = cx.relay();
        Handled::Done
    })
}

fn in_dialog(route: &str, uri: &str) -> String {
    request("BYE", uri, "bye", &format!("Route: {route}\r\n"))
        .replace("To: <sip:callee@example.com>", "To: <sip:callee@example.com>;tag=callee")
}

#[test]
fn our_record_route_brings_the_next_request_and_is_removed() {
    let mut rig = Rig::new(routed());
    let copy = rig.receive(CALLER, &invite("1"))[1].clone();
    let ours = copy.header("Record-Route").to_string();
    assert!(ours.starts_with("<sip:") && ours.ends_with("@192.0.2.1:5060;lr;ftag=1>"), "{ours}");
    let sent = rig.receive(CALLER, &in_dialog(&ours, &format!("sip:callee@{CALLEE}")));
    assert_eq!((kinds(&sent), sent[0].to.as_str()), (alloc::vec!["BYE".to_string()], CALLEE));
    assert!(sent[0].all("Route").is_empty());
    // Without the token too, by name, and on to the next proxy.
    let both = "<sip:example.com;lr>, <sip:192.0.2.30;lr>";
    let sent = rig.receive(CALLER, &in_dialog(both, "sip:callee@203.0.113.1").replace("bye", "bye2"));
    assert_eq!(sent[0].to, "192.0.2.30:5060");
    assert_eq!(sent[0].header("Route"), "<sip:192.0.2.30;lr>");
}

#[test]
fn two_sides_get_two_record_routes_and_both_are_removed() {
    let mut rig = Rig::with(two_listeners(), routed());
    let text = request("INVITE", "sip:callee@[2001:db8::20]", "1", "");
    let copy = rig.receive(CALLER, &text)[1].clone();
    assert_eq!(copy.to, "[2001:db8::20]:5060");
    assert!(copy.header("Via").starts_with("SIP/2.0/UDP [2001:db8::1]:5060;"), "{}", copy.header("Via"));
    let ours = copy.header("Record-Route").to_string();
    let values: Vec<&str> = ours.split(", ").collect();
    assert!(values[0].contains("@[2001:db8::1]:5060;r2=on;lr"), "{ours}");
    assert!(values[1].contains("@192.0.2.1:5060;r2=on;lr"), "{ours}");
    let back = alloc::format!("{}, {}", values[1], values[0]);
    let sent = rig.receive(CALLER, &in_dialog(&back, "sip:callee@[2001:db8::20]"));
    assert_eq!((kinds(&sent), sent[0].to.as_str()), (alloc::vec!["BYE".to_string()], "[2001:db8::20]:5060"));
    assert!(sent[0].all("Route").is_empty());
}

#[test]
fn a_strict_router_before_us_is_undone() {
    let mut rig = Rig::new(routed());
    let copy = rig.receive(CALLER, &invite("1"))[1].clone();
    let ours = copy.header("Record-Route").trim_matches(['<', '>']).to_string();
    let route = format!("<sip:192.0.2.30;lr>, <sip:callee@{CALLEE}>");
    let sent = rig.receive(CALLER, &in_dialog(&route, &ours));
    assert_eq!(sent[0].first_line(), format!("BYE sip:callee@{CALLEE} SIP/2.0"));
    assert_eq!((sent[0].to.as_str(), sent[0].header("Route")), ("192.0.2.30:5060", "<sip:192.0.2.30;lr>"));
}

#[test]
fn a_strict_router_behind_us_gets_what_it_wants() {
    let mut rig = Rig::new(routed());
    let route = "<sip:192.0.2.1;lr>, <sip:192.0.2.30>, <sip:192.0.2.31;lr>";
    let sent = rig.receive(CALLER, &in_dialog(route, "sip:callee@192.0.2.20"));
    assert_eq!(sent[0].first_line(), "BYE sip:192.0.2.30 SIP/2.0");
    assert_eq!(sent[0].to, "192.0.2.30:5060");
    let routes = sent[0].all("Route").join(", ");
    assert_eq!(routes, "<sip:192.0.2.31;lr>, <sip:callee@192.0.2.20>");
}

#[test]
fn a_destination_overrides_route_and_request_uri() {
    let mut rig = Rig::new(Box::new(|cx| {
        cx.set_request_uri(b"sip:new@203.0.113.7");
        cx.set_destination_uri(Some(b"192.0.2.44:5099"));
        cx.relay().unwrap();
        Handled::Done
    }));
    let sent = rig.receive(CALLER, &invite("1"));
    assert_eq!(
        (sent[1].to.as_str(), sent[1].first_line()),
        ("192.0.2.44:5099", "INVITE sip:new@203.0.113.7 SIP/2.0")
    );
}

#[test]
fn a_path_is_put_before_the_request() {
    let mut rig = Rig::new(Box::new(|cx| {
        let path = b"<sip:192.0.2.50:5080;lr>,<sip:192.0.2.51;lr>";
        cx.set_request_target(&Target { path: Some(path), ..Target::new(b"sip:a@10.1.1.1") });
        cx.relay().unwrap();
        Handled::Done
    }));
    let sent = rig.receive(CALLER, &invite("1"));
    assert_eq!(sent[1].to, "192.0.2.50:5080");
    assert_eq!(sent[1].header("Route"), "<sip:192.0.2.50:5080;lr>,<sip:192.0.2.51;lr>");
}

#[test]
fn verdicts_tell_own_foreign_and_no_routes() {
    let verdict = |route: &str| {
        let mut rig = Rig::new(Box::new(|cx| {
            let verdict = match cx.loose_route() {
                RouteVerdict::NotRouted => 601,
                RouteVerdict::Routed => 602,
                RouteVerdict::Foreign => 603,
            };
            cx.reply(verdict, b"x", b"", b"").unwrap();
            Handled::Done
        }));
        kinds(&rig.receive(CALLER, &request("BYE", "sip:a@203.0.113.1", "1", route)))[0].clone()
    };
    assert_eq!(verdict(""), "601");
    assert_eq!(verdict("Route: <sip:192.0.2.1:5060;lr>\r\n"), "602");
    assert_eq!(verdict("Route: <sip:192.0.2.1:5061;lr>\r\n"), "603");
}
