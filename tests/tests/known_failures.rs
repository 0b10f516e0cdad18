//! What has brought down or misled Kamailio and OpenSIPS, class by class: the server answers it rightly or
//! drops it, and serves the next request. `docs/security.md` has the list with its sources.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use end_to_end::{
    Connection, Ending, Message, PATIENCE, Phone, QUIET, Server, Start, Transport, contacts, datagram,
    loopback, only_strowger, unique,
};

/// How long an answer is waited for that may not come: longer than any takes on loopback, shorter than T1.
const SHORT: Duration = Duration::from_millis(300);

/// A server with two phones that are registered where it is a registrar.
struct Scene {
    server: Server,
    alice: Phone,
    bob: Phone,
    /// A socket without a user agent's habits.
    stranger: UdpSocket,
}

impl Scene {
    fn new(start: Start) -> Self {
        let server = start.arguments(&["--shards", "1"]).spawn();
        let (alice, bob) = (Phone::new(&server, "alice"), Phone::new(&server, "bob"));
        let stranger = UdpSocket::bind((loopback(), 0)).expect("an address of our own");
        stranger.connect(server.address()).expect("the server's address");
        Self { server, alice, bob, stranger }
    }

    fn of(configuration: &str) -> Self {
        Self::new(Start::configuration(configuration))
    }

    fn with_users(configuration: &str) -> Self {
        let scene = Self::of(configuration);
        scene.alice.register();
        scene.bob.register();
        scene
    }

    fn address(&self) -> SocketAddr {
        self.stranger.local_addr().expect("invariant: it is bound")
    }

    /// A request of the stranger's, sound in every part.
    fn request(&self, method: &str, uri: &str) -> Message {
        let request =
            Message { start: format!("{method} {uri} SIP/2.0"), headers: Vec::new(), body: String::new() };
        request
            .with("Via", self.via())
            .with("Max-Forwards", 70)
            .with("From", format!("<sip:mallory@{}>;tag={}", self.address(), unique()))
            .with("To", format!("<{uri}>"))
            .with("Call-ID", unique())
            .with("CSeq", format!("1 {method}"))
            .with("Contact", format!("<sip:mallory@{}>", self.address()))
            .with("Content-Length", 0)
    }

    fn via(&self) -> String {
        format!("SIP/2.0/UDP {};branch=z9hG4bK{}", self.address(), unique())
    }

    /// Sends these bytes and returns the final answer, if one comes within this time.
    fn answer_within(&self, limit: Duration, bytes: impl AsRef<[u8]>) -> Option<Message> {
        // What a test before this one has caused late is not the answer to this.
        self.stranger.set_nonblocking(true).expect("a socket can be made not to block");
        let mut buffer = vec![0; usize::from(u16::MAX)];
        while self.stranger.recv(&mut buffer).is_ok() {}
        self.stranger.set_nonblocking(false).expect("a socket can be made to block");
        self.stranger.send(bytes.as_ref()).expect("loopback takes any datagram");
        loop {
            let bytes = datagram(&self.stranger, limit)?;
            let answer = Message::parse(&bytes).expect("the server sends messages");
            if answer.status() != Some(100) {
                return Some(answer);
            }
        }
    }

    /// The status that a message is answered with; it must be answered.
    fn status(&self, message: &Message) -> u16 {
        let answer = self.answer_within(PATIENCE, message.to_string());
        let answer = answer.unwrap_or_else(|| panic!("no answer to:\n{}", head(message)));
        answer.status().unwrap_or_else(|| panic!("a request came:\n{answer}"))
    }

    /// A message between the phones gets through, and its answer back.
    fn expect_service(&self) {
        let message =
            self.alice.request("MESSAGE", &self.bob.address_of_record()).body("text/plain", "well?");
        self.alice.send(&message);
        self.bob.answer(&self.bob.expect_request("MESSAGE"), 200, "OK");
        self.alice.expect_response(200, &message);
    }

    /// The same where the server does nothing but relay.
    fn expect_relaying(&self) {
        let message = self.alice.request("MESSAGE", &self.bob.contact());
        self.alice.send(&message);
        self.bob.answer(&self.bob.expect_request("MESSAGE"), 200, "OK");
        self.alice.expect_response(200, &message);
    }
}

/// So much of a message as is of use in a failure.
fn head(message: &Message) -> String {
    message.to_string().chars().take(600).collect()
}

/// CVE-2018-8828.
#[test]
fn an_overlong_branch_or_tag_in_a_register_is_answered() {
    let scene = Scene::with_users("default");
    let register = || {
        let request = scene.request("REGISTER", &format!("sip:{}", scene.server.address().ip()));
        request.set("To", format!("<{}>", scene.server.uri("mallory")))
    };
    for length in [1, 127, 128, 255, 256, 257, 1_023, 1_024, 4_096, 9_000, 30_000] {
        let long = "b".repeat(length);
        let branch = format!("SIP/2.0/UDP {};branch=z9hG4bK{}{long}", scene.address(), unique());
        let from = format!("<{}>;tag={long}", scene.server.uri("mallory"));
        for request in [register().set("Via", &branch), register().set("From", &from)] {
            let answer = scene.answer_within(PATIENCE, request.to_string()).expect("an answer");
            assert_eq!(answer.status(), Some(200), "{length}: {}", head(&answer));
            assert_eq!(answer.parameter("Via", "branch"), request.parameter("Via", "branch"));
            assert_eq!(answer.parameter("From", "tag"), request.parameter("From", "tag"));
        }
    }
    scene.expect_service();
}

/// CVE-2018-8828.
#[test]
fn a_malformed_branch_in_a_register_is_400() {
    only_strowger!("Kamailio drops some of them and takes others");
    let scene = Scene::with_users("default");
    let domain = format!("sip:{}", scene.server.address().ip());
    let to = format!("<{}>", scene.server.uri("mallory"));
    for bad in ["branch=", "branch=z9hG4bK", "branch=\"z9hG4bKq\";branch=z9hG4bKr", "branch=z9hG4bK\u{7f}"] {
        let request = scene
            .request("REGISTER", &domain)
            .set("To", &to)
            .set("Via", format!("SIP/2.0/UDP {};{bad}", scene.address()));
        assert_eq!(scene.status(&request), 400, "{bad}");
    }
    scene.expect_service();
}

/// CVE-2018-14767.
#[test]
fn a_second_to_with_an_empty_tag_is_400() {
    only_strowger!("Kamailio drops it");
    for configuration in ["default", "stateless", "registrar", "redirect"] {
        let scene = Scene::of(configuration);
        for method in ["INVITE", "REGISTER", "MESSAGE"] {
            let request = || scene.request(method, &scene.server.uri("bob"));
            for (name, value) in [
                ("To", "<sip:a@b>;tag="),
                ("To", "<sip:a@b>;tag"),
                ("t", "<sip:a@b>"),
                ("To ", ""),
                ("To", ";tag="),
            ] {
                assert_eq!(
                    scene.status(&request().with(name, value)),
                    400,
                    "{configuration} {method} {name}: {value}"
                );
            }
            for value in ["<sip:a@b>;tag=", "<sip:a@b>;tag", "", ";tag=", "<>;tag=", "\"\" <>"] {
                assert_eq!(
                    scene.status(&request().set("To", value)),
                    400,
                    "{configuration} {method} To: {value}"
                );
            }
        }
        assert!(scene.server.is_answering(), "{configuration}");
    }
}

/// CVE-2018-16657, CVE-2023-27598: the answer is made from the Via, whether there is a transaction or not.
#[test]
fn a_malformed_via_is_answered_400_where_it_came_from() {
    only_strowger!("Kamailio drops most of them");
    for configuration in ["stateless", "registrar", "redirect", "default"] {
        let scene = Scene::of(configuration);
        let address = scene.address();
        let vias = [
            String::new(),
            "SIP".to_owned(),
            "SIP/2.0".to_owned(),
            "SIP/2.0/UDP".to_owned(),
            "SIP/2.0/UDP ;branch=z9hG4bKx".to_owned(),
            "SIP/2.0/UDP :5060;branch=z9hG4bKx".to_owned(),
            "SIP/2.0/UDP [;branch=z9hG4bKx".to_owned(),
            "SIP/2.0/UDP [::1;branch=z9hG4bKx".to_owned(),
            format!("SIP/2.0/UDP {address};;"),
            format!("SIP/2.0/UDP {address};=;branch=z9hG4bKx"),
            format!("SIP/2.0/UDP {address};branch=\"z9hG4bKx"),
            format!("SIP/2.0/UDP {address},"),
            format!("SIP/2.0/UDP {address}(;branch=z9hG4bKx"),
            format!("SIP/2.0/UDP {address}:5060;branch=z9hG4bKx"),
            format!("/{}", ",".repeat(3_000)),
            ";".repeat(3_000),
        ];
        for via in vias {
            for method in ["OPTIONS", "INVITE", "REGISTER"] {
                let request = scene.request(method, &scene.server.uri("nobody")).set("Via", &via);
                assert_eq!(scene.status(&request), 400, "{configuration} {method} Via: {via}");
            }
        }
        assert!(scene.server.is_answering(), "{configuration}");
    }
}

/// CVE-2020-27507.
#[test]
fn an_invite_of_doubled_fields_and_overlong_tags_is_400() {
    only_strowger!("Kamailio drops it");
    let scene = Scene::with_users("default");
    let tag = "t".repeat(20_000);
    let long = || {
        let invite = scene.request("INVITE", &scene.server.uri("bob"));
        invite.set("From", format!("<sip:mallory@{}>;tag={tag}", scene.address()))
    };
    for name in ["From", "To", "Call-ID", "CSeq", "Max-Forwards", "Content-Length"] {
        let value = long().header(name).to_owned();
        assert_eq!(scene.status(&long().with(name, value)), 400, "two {name}");
    }
    assert_eq!(scene.status(&long().with("f", format!("<sip:a@b>;tag={tag}"))), 400);
    // Long alone is no fault: it arrives whole.
    scene.stranger.send(long().to_string().as_bytes()).expect("loopback takes any datagram");
    let arrived = scene.bob.expect_request("INVITE");
    assert_eq!(arrived.parameter("From", "tag"), Some(tag.as_str()));
    scene.bob.answer(&arrived, 486, "Busy Here");
    scene.bob.expect_request("ACK");
    scene.expect_service();
}

/// CVE-2023-28097: beyond 2³¹, 2³², 2⁶³ and 2⁶⁴, with a Request-URI that fills what is left.
#[test]
fn a_content_length_beyond_any_message_is_400() {
    only_strowger!("Kamailio drops it");
    let scene = Scene::with_users("default");
    let beyond = [
        "2147483647",
        "2147483648",
        "4294967295",
        "4294967296",
        "4294967301",
        "9223372036854775807",
        "18446744073709551615",
        "18446744073709551621",
        "340282366920938463463374607431768211456",
    ];
    for length in beyond {
        for uri in [scene.server.uri("bob"), format!("sip:{}@{}", "u".repeat(20_000), scene.server.address())]
        {
            let request =
                scene.request("MESSAGE", &uri).body("text/plain", "hello").set("Content-Length", length);
            assert_eq!(scene.status(&request), 400, "{length}");
        }
    }
    scene.bob.expect_nothing();
    scene.expect_service();
}

/// CVE-2023-28097 on a stream, where the length decides where the next message begins.
#[test]
fn a_content_length_beyond_any_message_ends_the_connection() {
    only_strowger!("Kamailio closes without an answer, or waits");
    let start = Start::configuration("default").over(&[Transport::Tcp]);
    let scene = Scene::new(start);
    scene.alice.register();
    scene.bob.register();
    for (length, status) in [
        ("2147483648", 513),
        ("4294967296", 400),
        ("4294967301", 400),
        ("18446744073709551616", 400),
        ("-1", 400),
        ("0x5", 400),
        ("5 5", 400),
    ] {
        let mut connection =
            Connection::open(Transport::Tcp, scene.server.address_over(Transport::Tcp), None);
        let via = format!("SIP/2.0/TCP {};branch=z9hG4bK{}", connection.local_address(), unique());
        let request = scene.request("MESSAGE", &scene.server.uri("bob")).set("Via", via);
        connection.send(request.set("Content-Length", length).to_string());
        connection.expect_response(status);
        assert_eq!(connection.expect_end(PATIENCE), Ending::Closed, "{length}");
    }
    scene.bob.expect_nothing();
    scene.expect_service();
}

/// CVE-2023-28098.
#[test]
fn credentials_that_do_not_parse_are_400_or_challenged() {
    let scene = Scene::of("digest");
    let unending = [",", "=", "a", "a=", "a,", "a=\"", "a=b,", "\"", "\\", "a=\"\\", " ", "=,"];
    let mut values: Vec<String> =
        unending.iter().flat_map(|part| [1, 2, 500, 8_000].map(|count| part.repeat(count))).collect();
    let whole = "username=\"u\", realm=\"r\", nonce=\"n\", uri=\"sip:u\", \
         response=\"00000000000000000000000000000000\"";
    values.extend((0..whole.len()).map(|end| whole[..end].to_owned()));
    values.extend(["qop", "nc", "cnonce", "algorithm", "opaque"].map(|name| format!("{whole}, {name}")));
    for value in values {
        for scheme in ["Digest ", "Digest", "digest\t", ""] {
            let request = scene.request("REGISTER", &format!("sip:{}", scene.server.address().ip()));
            let request = request.with("Authorization", format!("{scheme}{value}"));
            let status = scene.status(&request);
            assert!(matches!(status, 400 | 401), "{status} to {scheme}{}", &value[..value.len().min(80)]);
        }
    }
    assert!(scene.server.is_answering());
}

/// CVE-2023-27599.
#[test]
fn a_malformed_to_never_meets_the_header_that_a_script_adds() {
    only_strowger!("Kamailio drops some and forwards others");
    let added = "\tappend_hf(\"X-Added: 1\\r\\n\");\n\tappend_hf(\"X-After: 2\\r\\n\", \"To\");\n\
         \tremove_hf(\"Contact\");";
    let scene = Scene::new(Start::configuration("relay").inserting("\tif (!t_relay())", added));
    let uri = scene.bob.contact();
    for to in [
        "",
        "<",
        ">",
        "<sip:b@c>;",
        "<sip:b@c>;=",
        "<sip:b@c>;tag=\"",
        "\"",
        "\"\\",
        "<sip:b@c",
        "b <",
        ";tag=1",
        "<sip:b@c>,",
    ] {
        assert_eq!(scene.status(&scene.request("MESSAGE", &uri).set("To", to)), 400, "To: {to}");
    }
    scene.bob.expect_nothing();
    scene.stranger.send(scene.request("MESSAGE", &uri).to_string().as_bytes()).expect("loopback takes it");
    let arrived = scene.bob.expect_request("MESSAGE");
    assert_eq!((arrived.header("X-Added"), arrived.header("X-After")), ("1", "2"));
    assert_eq!(arrived.find("Contact"), None, "{arrived}");
}

/// CVE-2023-27597.
#[test]
fn a_request_uri_that_cannot_be_rewritten_is_refused() {
    only_strowger!("Kamailio has other words for it");
    let bob = SocketAddr::from((loopback(), 5_070));
    let rewriting =
        format!("\tsetuser(\"bob\");\n\tsethost(\"{}\");\n\tsetport(\"{}\");", bob.ip(), bob.port());
    let scene = Scene::new(Start::configuration("relay").inserting("\tif (!t_relay())", &rewriting));
    let callee = Phone::between(scene.server.address(), bob, "bob");
    let long = format!("sip:{}", ":".repeat(5_000));
    for uri in [
        "sip:",
        "sip:@",
        "sip::@",
        "sip:a@",
        "sip:a@:",
        "sip:a@:5060",
        "sip:a:b@",
        "sip:[",
        "sip:[::1",
        "sip:a@b:99999",
        "sip:a@b;",
        "sip:a@b;=",
        "sip:a@b?",
        "sip:a@b?c=d",
        "sip:a%@b",
        "tel:",
        "tel:;",
        "sips:",
        "x",
        ":",
        &long,
    ] {
        let status = scene.status(&scene.request("MESSAGE", uri));
        assert!((400..600).contains(&status), "{status} to {}", &uri[..uri.len().min(80)]);
    }
    callee.expect_nothing();
    for uri in ["sip:c@192.0.2.9", "sip:c:password@192.0.2.9:5099;transport=udp", "sip:192.0.2.9;a=b"] {
        scene.stranger.send(scene.request("MESSAGE", uri).to_string().as_bytes()).expect("loopback takes it");
        let arrived = callee.expect_request("MESSAGE");
        assert!(arrived.uri().contains(&format!("@{bob}")), "{arrived}");
        callee.answer(&arrived, 200, "OK");
    }
}

/// CVE-2023-27596, CVE-2023-27600, CVE-2023-27601: no byte of a body is read.
#[test]
fn bodies_that_are_no_sdp_pass_unchanged() {
    let scene = Scene::of("relay");
    let good = "v=0\r\no=- 1 1 IN IP4 192.0.2.1\r\ns=-\r\nc=IN IP4 192.0.2.1\r\nt=0 0\r\n\
        m=audio 4000 RTP/AVP 0 8\r\na=rtpmap:0 PCMU/8000\r\n";
    let bodies = [
        good[..good.len() - 2].to_owned(),
        good[..good.len() - 1].to_owned(),
        good.replace("\r\n", "\n"),
        good.replace("\r\n", "\r"),
        "m=audio".to_owned(),
        "m=\r\n".repeat(2_000),
        "a=rtpmap:".to_owned(),
        "v=0\r\nm=audio 99999999999 RTP/AVP -1 99999999999 \0\r\n".to_owned(),
        "\r\n\r\n".to_owned(),
        "=".repeat(5_000),
    ];
    for _ in 0..5 {
        for body in &bodies {
            let message =
                scene.alice.request("INVITE", &scene.bob.contact()).body("application/sdp", body.as_str());
            scene.alice.send(&message);
            let arrived = scene.bob.expect_request("INVITE");
            assert_eq!(&arrived.body, body);
            let answer = scene.bob.answer(&arrived, 488, "Not Acceptable Here");
            scene.alice.expect_response(488, &message);
            scene.alice.acknowledge(&message, &answer);
            scene.bob.expect_request("ACK");
        }
    }
    scene.expect_relaying();
}

/// CVE-2023-28095: an answer of the server's own is made from whatever could be read.
#[test]
fn every_beginning_of_a_request_is_answered_or_dropped() {
    for configuration in ["registrar", "redirect", "stateless"] {
        let scene = Scene::of(configuration);
        let whole =
            scene.request("INVITE", &scene.server.uri("nobody")).body("text/plain", "hello").to_string();
        for end in 0..whole.len() {
            // Each its own transaction, so that none is a copy of another.
            let part = whole[..end].replace("branch=z9hG4bK", &format!("branch=z9hG4bK{end}"));
            scene.stranger.send(part.as_bytes()).expect("loopback takes any datagram");
        }
        assert!(scene.server.is_answering(), "{configuration}");
        let refused = scene.status(&scene.request("OPTIONS", &scene.server.uri("nobody")));
        assert!((400..500).contains(&refused), "{configuration}: {refused}");
    }
}

/// Our own, found by fuzzing: a CR alone before a name went out in the 400, where a careless reader sees a line end.
#[test]
fn an_answer_to_what_is_no_message_has_whole_lines_only() {
    only_strowger!("Kamailio does not answer the first of them");
    let scene = Scene::of("relay");
    let whole = scene.request("BYE", "sip:nobody@127.0.0.1").to_string();
    let (request_line, headers) = whole.split_once("\r\n").expect("a request has lines");
    for (end, is_answered) in
        [("\n", true), ("\n\r", false), ("\n\x0c", false), ("\n\0", false), ("\n ", false), ("\n\t", false)]
    {
        scene
            .stranger
            .send(format!("{request_line}{end}{headers}").as_bytes())
            .expect("loopback takes any datagram");
        let answer = datagram(&scene.stranger, if is_answered { PATIENCE } else { SHORT });
        let answer = answer.map(|bytes| String::from_utf8(bytes).expect("the request was UTF-8"));
        assert_eq!(answer.is_some(), is_answered, "{end:?}: {answer:?}");
        let Some(answer) = answer else { continue };
        assert!(answer.starts_with("SIP/2.0 400 Bad Request\r\nVia: "), "{answer}");
        assert!(!answer.replace("\r\n", "").contains(['\r', '\n']), "{answer:?}");
    }
    scene.expect_relaying();
}

/// CVE-2023-28096.
#[test]
fn requests_cut_short_on_the_control_socket_leave_nothing() {
    only_strowger!("Kamailio has no such socket");
    let scene = Scene::with_users("default");
    let socket = scene.server.state().join("strowger.sock");
    let ask = |text: &str| {
        let mut stream = UnixStream::connect(&socket).expect("the control socket");
        stream.set_read_timeout(Some(PATIENCE)).expect("invariant: the timeout is not zero");
        stream.write_all(text.as_bytes()).expect("the control socket takes what is sent");
        stream.shutdown(std::net::Shutdown::Write).expect("a socket that is open");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer in text, or none");
        answer
    };
    let flood = || {
        for _ in 0..2_000 {
            ask("{\"jsonrpc\": \"2.0\",\"method\": \"log_le");
            ask("{\"jsonrpc\": \"2.0\",\"method\": \"log_le\n");
        }
        scene.server.usage()
    };
    let first = flood();
    let second = flood();
    let grown_kb = second.resident_kb.saturating_sub(first.resident_kb);
    assert!(grown_kb < 1_024, "{first:?}, then {second:?}");
    assert!(second.descriptors <= first.descriptors + 2, "{first:?}, then {second:?}");
    assert_eq!(contacts(&scene.bob).len(), 1);
    scene.expect_service();
}

/// CVE-2023-28099: an address that a peer wrote is asked for in a list of addresses.
#[test]
fn what_is_no_address_is_in_no_list_of_addresses() {
    only_strowger!("Kamailio's table of addresses is elsewhere");
    let modules = "loadmodule \"pv.so\"\nloadmodule \"permissions.so\"\n\
         modparam(\"permissions\", \"db_url\", \"sqlite:\")";
    let asked = "\tif (allow_address(\"1\", \"$hdr(X-Address)\", \"5060\")) {\n\
         \t\tsl_send_reply(\"200\", \"Listed\");\n\t\texit;\n\t}";
    let start = Start::configuration("relay").inserting("request_route", modules);
    let scene = Scene::new(start.inserting("\tif (!t_relay())", asked));
    for address in
        ["", " ", "0", "1.2.3", "1.2.3.4.5", "::::", "[", "NULL", "%s%n", "\u{7f}", &"9".repeat(5_000)]
    {
        let request = scene.request("MESSAGE", &scene.bob.contact()).with("X-Address", address);
        scene.stranger.send(request.to_string().as_bytes()).expect("loopback takes any datagram");
        // Not listed: it goes on.
        scene.bob.answer(&scene.bob.expect_request("MESSAGE"), 200, "OK");
    }
    scene.expect_relaying();
}

/// OpenSIPS issues #950 and #2291: what a stream brings in pieces, or is no message at all.
#[test]
fn a_stream_in_single_bytes_is_one_message_and_rubbish_is_none() {
    let start = Start::configuration("default").over(&[Transport::Tcp]);
    let scene = Scene::new(start);
    scene.bob.register();
    let address = scene.server.address_over(Transport::Tcp);
    let mut slow = Connection::open(Transport::Tcp, address, None);
    let via = format!("SIP/2.0/TCP {};branch=z9hG4bK{}", slow.local_address(), unique());
    let request =
        scene.request("MESSAGE", &scene.server.uri("bob")).set("Via", via).body("text/plain", "hello");
    for rubbish in
        [&b"\r\n\r\n\r\n"[..], b"\0\0\0\0", b"GET / HTTP/1.1\r\n\r\n", b"SIP/2.0\r\n\r\n", b":::::::\r\n\r\n"]
    {
        let mut connection = Connection::open(Transport::Tcp, address, None);
        connection.send(rubbish);
        connection.reset();
    }
    for byte in request.to_string().as_bytes() {
        slow.send([*byte]);
    }
    let arrived = scene.bob.expect_request("MESSAGE");
    assert_eq!(arrived.body, "hello");
    scene.bob.answer(&arrived, 200, "OK");
    slow.expect_response(200);
}

/// A server without state knows nothing of a request but what its Via says (RFC 3261 §18.2.1, §16.11): were
/// `received` the client's to write, the response would go to whomever it names.
#[test]
fn a_response_never_goes_where_its_request_says_that_it_came_from() {
    let scene = Scene::with_users("stateless");
    let victim = UdpSocket::bind((loopback(), 0)).expect("an address of our own");
    let named = victim.local_addr().expect("invariant: it is bound");
    victim.set_read_timeout(Some(SHORT)).expect("invariant: the timeout is not zero");
    for sent_by in [scene.alice.address(), named] {
        for written in
            [format!("received={}", named.ip()), format!("rport={};received={}", named.port(), named.ip())]
        {
            let via = format!("SIP/2.0/UDP {sent_by};{written};branch=z9hG4bK{}", unique());
            let message = scene.alice.request("MESSAGE", &scene.bob.address_of_record()).set("Via", via);
            scene.alice.send(&message);
            scene.bob.answer(&scene.bob.expect_request("MESSAGE"), 200, "OK");
            if sent_by == scene.alice.address() || written.contains("rport") {
                scene.alice.expect_response(200, &message);
            }
            assert!(victim.recv(&mut [0; 2_000]).is_err(), "{message}");
        }
    }
}

/// Responses of the same kinds, from a next hop that is hostile: the caller hears nothing wrong, and the call
/// of the next one works.
#[test]
fn hostile_responses_are_dropped() {
    only_strowger!("Kamailio forwards some of them");
    let scene = Scene::of("relay");
    let message = scene.alice.request("MESSAGE", &scene.bob.contact());
    scene.alice.send(&message);
    let arrived = scene.bob.expect_request("MESSAGE");
    let good = arrived.response(200, "OK", "bob");
    let to = good.header("To").to_owned();
    let tampered = [
        good.clone().with("To", format!("{to}x")),
        good.clone().set("To", "<sip:bob@b>;tag="),
        good.clone().set("Content-Length", "2147483648"),
        good.clone().set("Content-Length", "-1"),
        good.clone().set("CSeq", "99999999999 MESSAGE"),
        good.clone().set("CSeq", "1 INVITE"),
        good.clone().set("Via", good.all("Via")[0].replace("branch=", "branch=x")),
        good.clone().without("Via"),
        good.clone().without("CSeq"),
        good.clone().start("SIP/2.0 99 Odd"),
        good.clone().start("SIP/2.0 1000 Odd"),
        good.clone().start("SIP/3.0 200 OK"),
    ];
    for response in tampered {
        scene.bob.send(&response);
        let heard = scene.alice.receive(SHORT);
        assert!(
            heard.is_none(),
            "{response}\nwas passed on as\n{}",
            heard.map(|h| h.to_string()).unwrap_or_default()
        );
    }
    scene.bob.send(&good);
    scene.alice.expect_response(200, &message);
    assert!(scene.alice.receive(QUIET).is_none(), "one final response is enough");
    scene.expect_relaying();
}

/// Appends every source file of a folder and those below it.
fn read_sources(folder: &Path, sources: &mut String) {
    for entry in fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("a folder that can be read").path();
        if path.is_dir() {
            read_sources(&path, sources);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            sources.push_str(&fs::read_to_string(&path).expect("a source that can be read"));
        }
    }
}

#[test]
fn every_test_that_the_page_names_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("../docs/security.md")).expect("the page");
    let mut sources = String::new();
    read_sources(&root.join("tests"), &mut sources);
    read_sources(&root.join("../crates"), &mut sources);
    let is_name = |text: &&str| {
        text.contains('_')
            && text.len() > 30
            && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
    };
    let named: Vec<&str> =
        page.split('`').filter_map(|text| text.rsplit("::").next()).filter(is_name).collect();
    assert!(named.len() >= 17, "{named:?}");
    for name in named {
        assert!(sources.contains(&format!("fn {name}()")), "docs/security.md names {name}");
    }
}
