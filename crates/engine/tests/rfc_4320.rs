//! Requirements of RFC 4320 on responses to requests other than INVITE that no other file shows, each under its section.

mod rig;

use std::net::SocketAddr;

use engine::{FlowId, Input, ListenerId, Path};
use rig::{
    ALICE, BOB, BOB_URI, CAROL, CAROL_URI, Network, PROXY, Request, SIXTY_FOUR_T1, Script, config, to_bob,
};

/// Where Alice's connection comes from.
const CLIENT: SocketAddr = SocketAddr::new(ALICE.ip(), 40_000);

/// A server whose one listener is a TCP one.
fn over_tcp(script: Script) -> Network {
    let mut config = config();
    config.listeners[0].transport = sip::Transport::Tcp;
    Network::with(config, script)
}

/// A request of Alice's on her connection.
fn send_over_tcp(network: &mut Network, request: &Request) {
    let via = request.vias[0].replace("SIP/2.0/UDP", "SIP/2.0/TCP");
    let path = Path { flow: FlowId(7), ..Path::new(ListenerId(0), Some(PROXY.ip()), CLIENT) };
    network.handle(Input::Message { path, bytes: &request.clone().via(&via).bytes() });
}

/// A script that says 100 as soon as a request comes, and passes it on.
fn hasty() -> Script {
    Script::new(|cx| {
        cx.create_transaction().expect("there is room");
        cx.reply(100, b"Trying", b"", b"").expect("the first response");
        cx.set_request_uri(BOB_URI.as_bytes());
        let _ = cx.relay();
        rig::done()
    })
}

/// §4.1: over UDP a 100 waits until the client's Timer E has reached T2, whoever wants it earlier: it would stop the
/// retransmissions that make up for a lost final response.
#[test]
fn a_100_waits_for_its_time_over_udp() {
    let mut network = Network::new(hasty());
    network.alice(&Request::options(1));
    network.until_ms(3499);
    network.alice(&Request::options(1));
    network.assert_quiet(ALICE);
    network.until_ms(20_000);
    assert_eq!(network.sent_at(ALICE, "100"), [3500]);
    network.settle();
}

/// §4.1: over a reliable transport it may be sent at any time, and once is enough.
#[test]
fn a_100_may_come_at_once_over_tcp() {
    let mut network = over_tcp(hasty());
    send_over_tcp(&mut network, &Request::options(1));
    network.until_ms(20_000);
    assert_eq!(network.sent_at(CLIENT, "100"), [0]);
    network.settle();
}

/// §4.1: "Without regard to transport" a 100 is due when Timer E would have reached T2.
#[test]
fn an_unanswered_non_invite_gets_100_over_tcp_too() {
    let mut network = over_tcp(to_bob());
    send_over_tcp(&mut network, &Request::options(1));
    network.until_ms(20_000);
    assert_eq!(network.sent_at(CLIENT, "100"), [3500]);
    network.settle();
}

/// §4.1: no provisional response but 100, from whomever: a script with or without a transaction.
#[test]
fn a_script_cannot_send_another_provisional_response() {
    for status in [101, 180, 183, 199] {
        let mut network = Network::new(Script::reply(status));
        network.alice(&Request::options(1));
        assert_eq!(network.labels(ALICE), ["500"], "the script has left it at that");
    }
    for status in [100, 183] {
        let mut network = Network::new(Script::new(move |cx| {
            let _ = cx.reply_stateless(status, b"Scripted", b"", b"");
            rig::done()
        }));
        network.alice(&Request::options(1));
        network.assert_quiet(ALICE);
        network.assert_at_rest();
    }
}

/// §4.1: nor does one of the next hop pass where requests are forwarded without state; the final response does.
#[test]
fn a_provisional_response_does_not_pass_without_state() {
    let mut network = Network::new(Script::stateless());
    for (request, passes) in [(Request::options(1), false), (Request::invite(2), true)] {
        network.alice(&request.uri(BOB_URI));
        let received = network.one(BOB);
        network.send(BOB, received.respond(180, "bob"));
        assert_eq!(network.labels(ALICE), if passes { vec!["180"] } else { vec![] });
        network.send(BOB, received.respond(200, "bob"));
        assert_eq!(network.labels(ALICE), ["200"]);
    }
}

/// §4.2: no 408, not even one that a script wants; copies of the request are absorbed as long as they come. An INVITE is
/// told.
#[test]
fn a_script_cannot_send_a_408() {
    let mut network = Network::new(Script::reply(408));
    network.alice(&Request::options(1));
    network.until_ms(31_500);
    network.alice(&Request::options(1));
    assert_eq!(
        network.sent_at(ALICE, "100"),
        [3_500, 31_500],
        "that somebody is here is said all the same (§4.1)"
    );
    assert!(network.finals(ALICE, "OPTIONS").is_empty());
    assert_eq!(network.engine.user().count("request OPTIONS"), 1);
    network.settle();
    network.take(ALICE);
    network.alice(&Request::invite(2));
    assert_eq!(network.labels(ALICE), ["408"]);
    network.settle();
}

/// §4.1, "without regard to transport": over TCP, too, and nothing is left afterwards.
#[test]
fn who_is_not_told_of_a_408_is_told_100_over_tcp_too() {
    let mut network = over_tcp(Script::reply(408));
    send_over_tcp(&mut network, &Request::options(1));
    network.until_ms(30_000);
    assert_eq!(network.sent_at(CLIENT, "100"), [3_500]);
    network.settle();
    assert_eq!(network.all(CLIENT).len(), 1, "{}", network.ladder());
}

/// §4.2: a failure route that answers a timeout by 408 says nothing either.
#[test]
fn a_timeout_is_not_told_by_a_failure_script() {
    let script = to_bob().on_failure(|cx| {
        cx.reply(cx.status().expect("all have failed"), b"Scripted", b"", b"").expect("nothing was sent yet");
    });
    let mut network = Network::new(script);
    network.alice(&Request::options(1));
    network.until_ms(2 * SIXTY_FOUR_T1);
    assert!(network.finals(ALICE, "OPTIONS").is_empty(), "{}", network.ladder());
    network.assert_at_rest();
}

/// §4.2: over TCP the server transaction ends with its final response; what comes from another branch later is not
/// forwarded.
#[test]
fn a_second_final_response_of_a_fork_is_not_forwarded_over_tcp() {
    let script = Script::fork(&[(BOB_URI, 1000), (CAROL_URI, 1000)]);
    let mut network = over_tcp(script);
    send_over_tcp(&mut network, &Request::options(1));
    let (first, second) = (network.only(BOB, "OPTIONS"), network.only(CAROL, "OPTIONS"));
    network.send(BOB, first.respond(200, "bob"));
    assert_eq!(network.labels(CLIENT), ["200"]);
    network.send(CAROL, second.respond(200, "carol"));
    network.assert_quiet(CLIENT);
    network.settle();
}
