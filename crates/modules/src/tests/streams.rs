//! TCP, TLS and WebSocket as a configuration sees them: settings, listeners, contacts behind connections, aliases.

use super::settings::{errors, settings};
use super::*;
use crate::{Keepalive, ListenHost};

const TCP: u16 = 1;
const TLS: u16 = 2;
const WS: u16 = 3;
const WSS: u16 = 4;
/// Where phones connect from.
const SOURCE: &str = "127.0.0.1:41000";

fn environment() -> Environment {
    let listener = |transport, port: u16| engine::Listener {
        transport,
        address: SocketAddr::from(([127, 0, 0, 1], port)),
        advertise: None,
    };
    let listeners = std::vec![
        listener(Transport::Udp, 5060),
        listener(Transport::Tcp, 5060),
        listener(Transport::Tls, 5061),
        listener(Transport::Ws, 80),
        listener(Transport::Wss, 443),
    ];
    Environment { listeners, ..Environment::default() }
}

fn rig(body: &str) -> Rig {
    Rig::with(&format!("{LOAD}\nrequest_route {{\n{body}\n}}\n"), &[], environment())
}

/// A registrar and proxy.
fn proxy() -> Rig {
    rig("if (is_method(\"REGISTER\")) { save(\"location\"); exit; }
        loose_route();
        if (uri == myself) lookup(\"location\");
        t_relay();")
}

fn register(contact: &str) -> String {
    Request::new("REGISTER", "sip:127.0.0.1", SOURCE).line(&format!("Contact: {contact}")).text()
}

fn invite(call: &str) -> String {
    Request::new("INVITE", "sip:bob@127.0.0.1", ALICE).call(call).text()
}

#[test]
fn nothing_set_is_all_defaults() {
    let settings = settings("");
    let connections = &settings.connections;
    assert_eq!((connections.max, connections.tls_max, connections.per_source_max), (65_536, 65_536, 4_096));
    let secs = |secs| Duration::from_secs(secs);
    assert_eq!((connections.lifetime, connections.connect_timeout), (secs(120), secs(10)));
    assert_eq!((connections.send_timeout, connections.message_timeout), (secs(10), secs(20)));
    assert_eq!(connections.write_queue_bytes_max, 262_144);
    assert_eq!(connections.write_queue_total_bytes_max, 64 << 20);
    assert_eq!(connections.connect_queue_messages_max, 1_024);
    let keepalive = Keepalive { idle: secs(60), interval: secs(10), probes: 3 };
    assert_eq!(connections.keepalive, Some(keepalive));
    assert!(!connections.accept_aliases && !connections.no_connect);
    assert_eq!(settings.transports, engine::Transports::default());
    assert!(settings.websocket.origins.is_empty());
    assert_eq!(settings.websocket.keepalive, Some(secs(180)));
}

#[test]
fn connections_are_what_the_file_says() {
    let settings = settings(
        "loadmodule \"websocket.so\"\ntcp_max_connections=100\ntls_max_connections=50\ntcp_max_connections_per_source=5\ntcp_connection_lifetime=3605\ntcp_connect_timeout=3\ntcp_send_timeout=4\ntcp_msg_read_timeout=5\ntcp_conn_wq_max=65536\ntcp_wq_max=10485760\ntcp_keepalive=no\ntcp_accept_aliases=yes\ntcp_no_connect=on\nudp_mtu=1200\nudp_mtu_try_proto=TLS\nmodparam(\"websocket\", \"origins\", \"https://a.example, https://b.example\")\nmodparam(\"websocket\", \"keepalive_mechanism\", 0)\nmodparam(\"websocket\", \"cors_mode\", 2)\n",
    );
    let connections = &settings.connections;
    assert_eq!((connections.max, connections.tls_max, connections.per_source_max), (100, 50, 5));
    assert_eq!(connections.lifetime, Duration::from_secs(3_605));
    assert_eq!(
        (connections.keepalive, connections.accept_aliases, connections.no_connect),
        (None, true, true)
    );
    assert_eq!(settings.transports.datagram_bytes_max, 1_200);
    assert_eq!(settings.transports.long_transport, Some(Transport::Tls));
    assert!(settings.transports.accept_aliases);
    assert_eq!(settings.websocket.origins, ["https://a.example", "https://b.example"]);
    assert_eq!(settings.websocket.keepalive, None);
    let text = "udp_mtu=0\nudp_mtu_try_proto=UDP";
    assert_eq!(super::settings::settings(text).transports.long_transport, None);
}

#[test]
fn every_transport_has_its_listeners_and_ports() {
    let settings = settings(
        "port=5080\nlisten=tcp:127.0.0.1\nlisten=tls:127.0.0.1\nlisten=ws:127.0.0.1\nlisten=wss:[::1]\nlisten=tls:eth0:5071 advertise sip.example.org\nlisten=tcp:*:5062\nadvertised_address=192.0.2.9",
    );
    let found: Vec<_> = settings.listen.iter().map(|l| (l.transport, l.port, l.advertise.clone())).collect();
    let everywhere = |port| Some(("192.0.2.9".to_string(), port));
    assert_eq!(
        found,
        [
            (Transport::Tcp, 5080, everywhere(5080)),
            (Transport::Tls, 5061, everywhere(5061)),
            (Transport::Ws, 80, everywhere(80)),
            (Transport::Wss, 443, everywhere(443)),
            (Transport::Tls, 5071, Some(("sip.example.org".into(), 5071))),
            (Transport::Tcp, 5062, everywhere(5080)),
        ]
    );
    assert_eq!(settings.listen[5].host, ListenHost::Any);
}

#[test]
fn listeners_that_are_switched_off_are_left_out_with_a_note() {
    let all = "listen=udp:127.0.0.1\nlisten=tcp:127.0.0.1\nlisten=tls:127.0.0.1\nlisten=wss:127.0.0.1\n";
    for (switch, left) in
        [("", 4), ("enable_tls=yes", 4), ("disable_tcp=yes", 1), ("enable_tls=no", 2), ("disable_tls=yes", 2)]
    {
        let settings = settings(&format!("{all}{switch}"));
        assert_eq!((settings.listen.len(), settings.notes.len()), (left, 4 - left), "{switch}");
    }
}

#[test]
fn the_websocket_of_kamailio_says_what_to_write_instead() {
    let text = "loadmodule \"websocket.so\"\nrequest_route { exit; }\nevent_route[xhttp:request] { ws_handle_handshake(); }";
    let rejected = check(text, &crate::catalogue()).expect_err("an error").render(Colour::Never);
    assert!(rejected.contains("listen=ws:"), "{rejected}");
    let text = "loadmodule \"xhttp.so\"\nrequest_route { exit; }";
    let rejected = check(text, &crate::catalogue()).expect_err("an error").render(Colour::Never);
    assert!(rejected.contains("listen=wss:"), "{rejected}");
    assert_eq!(errors("loadmodule \"websocket.so\"\nmodparam(\"websocket\", \"sub_protocols\", 3)").len(), 1);
}

#[test]
fn conditions_know_the_transport() {
    let mut rig = rig("if (proto == TLS) xlog(\"tls $pr $Rp $su\"); if (proto == WS) xlog(\"ws $proto\");
        if (proto == TCP || proto == WSS) xlog(\"other $pr\"); drop;");
    for listener in [TLS, WS, TCP, WSS, 0] {
        rig.send_by(listener, SOURCE, &invite(&listener.to_string()));
    }
    assert_eq!(
        rig.lines(),
        ["tls tls 5061 sip:127.0.0.1:41000;transport=tls", "ws ws", "other tcp", "other wss"]
    );
}

/// RFC 7118 §5: the contact of a WebSocket client means nothing but its connection.
#[test]
fn a_websocket_contact_is_reached_by_its_connection() {
    for (listener, transport) in [(WS, "ws"), (WSS, "wss")] {
        let mut rig = proxy();
        let contact = "<sip:bob@df7jal23ls0d.invalid;transport=ws>";
        let reply = rig.send_by(listener, SOURCE, &register(contact)).remove(0);
        assert_eq!(reply.first(), "SIP/2.0 200 OK");
        let received = format!("received=\"sip:{SOURCE};transport={transport}\"");
        assert!(reply.header("Contact").unwrap().contains(&received), "{}", reply.text);
        let sent = rig.send(ALICE, &invite("1"));
        let call = sent.iter().find(|sent| sent.first().starts_with("INVITE")).expect("an INVITE");
        assert_eq!((call.to.as_str(), call.listener), (SOURCE, listener));
        assert_eq!(call.first(), "INVITE sip:bob@df7jal23ls0d.invalid;transport=ws SIP/2.0");
    }
}

/// RFC 7118 §8.1, F3 and F4: as it is printed. Of outbound and GRUU the answer says nothing: neither is there.
#[test]
fn the_register_of_rfc_7118_section_8_1_is_taken() {
    let body =
        "alias=\"example.com\"\nalias=\"proxy.example.com\"\nrequest_route { save(\"location\"); exit; }";
    let mut rig = Rig::with(&format!("{LOAD}\n{body}\n"), &[], environment());
    let f3 = "REGISTER sip:proxy.example.com SIP/2.0\r\n\
        Via: SIP/2.0/WSS df7jal23ls0d.invalid;branch=z9hG4bKasudf\r\n\
        From: sip:alice@example.com;tag=65bnmj.34asd\r\nTo: sip:alice@example.com\r\n\
        Call-ID: aiuy7k9njasd\r\nCSeq: 1 REGISTER\r\nMax-Forwards: 70\r\n\
        Supported: path, outbound, gruu\r\n\
        Contact: <sip:alice@df7jal23ls0d.invalid;transport=ws>\r\n  ;reg-id=1\r\n  \
        ;+sip.instance=\"<urn:uuid:f81-7dec-14a06cf1>\"\r\n\r\n";
    let f4 = rig.send_by(WSS, SOURCE, f3).remove(0);
    assert_eq!(f4.first(), "SIP/2.0 200 OK", "{}", f4.text);
    let via = "SIP/2.0/WSS df7jal23ls0d.invalid;branch=z9hG4bKasudf;received=127.0.0.1";
    assert_eq!(f4.header("Via"), Some(via));
    let contact = f4.header("Contact").unwrap();
    assert!(contact.starts_with("<sip:alice@df7jal23ls0d.invalid;transport=ws>"), "{contact}");
    assert!(contact.contains(";expires=3600") && !contact.contains("gruu"), "{contact}");
    assert!(contact.contains("f81-7dec-14a06cf1"), "{contact}");
    assert_eq!(f4.header("Require"), None);
}

#[test]
fn a_contact_that_is_not_where_it_came_from_is_reached_by_its_connection() {
    for (listener, contact, to) in [
        (TCP, "<sip:bob@192.168.1.7:5060;transport=tcp>", SOURCE),
        (TCP, "<sip:bob@phone.example.org;transport=tcp>", SOURCE),
        (TLS, "<sip:bob@127.0.0.1:5061;transport=tls>", SOURCE),
        // It listens where it came from, or came by UDP: what the Contact says.
        (TCP, "<sip:bob@127.0.0.1:41000;transport=tcp>", SOURCE),
        (0, "<sip:bob@127.0.0.1:5070>", "127.0.0.1:5070"),
    ] {
        let mut rig = proxy();
        let reply = rig.send_by(listener, SOURCE, &register(contact)).remove(0);
        let bound = listener != 0 && !contact.contains("41000");
        assert_eq!(reply.header("Contact").unwrap().contains("received="), bound, "{}", reply.text);
        let sent = rig.send(ALICE, &invite("1"));
        let call = sent.iter().find(|sent| sent.first().starts_with("INVITE")).expect("an INVITE");
        assert_eq!((call.to.as_str(), call.listener), (to, listener), "{contact}");
    }
}

/// What another proxy hands on is reached as its Contact says.
#[test]
fn a_contact_behind_another_proxy_is_not_bound_to_the_proxys_connection() {
    let mut rig = proxy();
    let text = register("<sip:bob@192.0.2.7:5060;transport=tcp>");
    let text = text.replacen("Via:", "Via: SIP/2.0/TCP edge.example.org;branch=z9hG4bKedge\r\nVia:", 1);
    let reply = rig.send_by(TCP, SOURCE, &text).remove(0);
    assert_eq!(reply.header("Contact"), Some("<sip:bob@192.0.2.7:5060;transport=tcp>;expires=3600"));
}

/// RFC 5630 §5.2.
#[test]
fn a_sips_contact_needs_a_sips_register() {
    let mut rig = proxy();
    let text = register("<sips:bob@127.0.0.1:5061>");
    let refused = rig.send_by(TLS, SOURCE, &text).remove(0);
    assert_eq!(refused.first(), "SIP/2.0 400 SIPS Contact Needs SIPS Request-URI And Path");
    let text = text.replace("REGISTER sip:", "REGISTER sips:").replace("CSeq: 1", "CSeq: 2");
    let text = text.replace("z9hG4bK", "z9hG4bKx");
    assert_eq!(rig.send_by(TLS, SOURCE, &text).remove(0).first(), "SIP/2.0 200 OK");
}

/// RFC 5630 §5.2: an address-of-record is the same with either scheme.
#[test]
fn sip_and_sips_are_one_address_of_record() {
    for use_domain in [0, 1] {
        let parameter = format!("modparam(\"usrloc\", \"use_domain\", {use_domain})");
        let body = "request_route { if (is_method(\"REGISTER\")) { save(\"location\"); exit; }
            if (lookup(\"location\")) xlog(\"$ru\"); drop; }";
        let mut rig = Rig::with(&format!("{LOAD}\n{parameter}\n{body}"), &[], environment());
        let text = register("<sips:bob@127.0.0.1:5061>").replace("REGISTER sip:", "REGISTER sips:");
        rig.send_by(TLS, SOURCE, &text.replace("To: <sip:", "To: <sips:"));
        rig.send(ALICE, &invite("1"));
        assert_eq!(rig.lines(), ["sips:bob@127.0.0.1:5061"]);
    }
}

#[test]
fn requests_are_relayed_and_forwarded_by_the_transport_that_is_named() {
    for (body, listener) in [
        ("t_relay_to_tcp(\"127.0.0.1\", 5070);", TCP),
        ("t_relay_to_tls(\"127.0.0.1\", 5070);", TLS),
        ("t_relay_to_udp(\"127.0.0.1\", 5070);", 0),
        ("t_forward_nonack_tcp(\"127.0.0.1\", 5070);", TCP),
        ("t_forward_nonack_tls(\"127.0.0.1\", 5070);", TLS),
        ("forward_tcp(\"127.0.0.1\", 5070);", TCP),
        ("forward_tls(\"127.0.0.1\", 5070);", TLS),
        ("forward_udp(\"127.0.0.1\", 5070);", 0),
        ("$du = \"sip:127.0.0.1:5070;transport=tcp\"; t_relay();", TCP),
    ] {
        let mut rig = rig(body);
        let sent = rig.send(ALICE, &invite("1"));
        let call = sent.iter().find(|sent| sent.first().starts_with("INVITE")).expect("an INVITE");
        assert_eq!((call.to.as_str(), call.listener), ("127.0.0.1:5070", listener), "{body}");
    }
}

#[test]
fn aliases_are_made_by_the_script() {
    let mut rig = rig("if (force_tcp_alias()) xlog(\"one\"); if (add_tcp_alias(5099)) xlog(\"two\");
        if (!force_tcp_alias(0)) xlog(\"none\"); drop;");
    rig.send_by(TCP, SOURCE, &invite("1"));
    assert_eq!(rig.aliases, [(SOURCE.to_string(), 5061), (SOURCE.to_string(), 5099)]);
    assert_eq!(rig.lines()[..2], ["one", "two"]);
    let before = rig.lines().len();
    rig.send(ALICE, &invite("2"));
    assert_eq!(rig.aliases.len(), 2);
    assert!(rig.lines()[before..].iter().all(|line| line != "one" && line != "two"), "{:?}", rig.lines());
}
