//! Requirements of RFC 3261 on proxies and their transactions that no other file shows, each under its section.

mod rig;

use std::net::SocketAddr;
use std::time::Duration;

use engine::Answer;
use rig::{ALICE, BOB, MALLORY, Network, Request, Script, Seen, to_bob};

/// What Bob receives of a request that is relayed where it says.
fn proxied(request: &Request) -> Seen {
    let mut network = Network::new(Script::proxy());
    network.alice(request);
    network.only(BOB, &request.method)
}

/// §9.2: the To tag of the 200 to a CANCEL and that of the response to the INVITE "SHOULD be the same".
#[test]
fn the_200_to_a_cancel_has_the_to_tag_of_the_487() {
    let mut network = Network::new(Script::suspend(Duration::from_secs(10)));
    let invite = Request::invite(1);
    network.alice(&invite);
    network.take(ALICE);
    network.alice(&invite.cancel());
    let answers = network.take(ALICE);
    let tag = |label: &str| answers.iter().find(|seen| seen.label() == label).and_then(Seen::to_tag);
    assert!(tag("200").is_some(), "{}", network.ladder());
    assert_eq!(tag("200"), tag("487"));
}

/// §16.4: a `maddr` of ours, on the port and transport that the request came by, is stripped, and the request goes on as
/// if it had not been there.
#[test]
fn an_own_maddr_is_stripped_and_the_request_goes_on() {
    let received = proxied(&Request::invite(1).uri("sip:bob@10.0.2.1;maddr=10.0.0.1"));
    assert_eq!(received.uri(), "sip:bob@10.0.2.1");
    let spelled_out = Request::invite(1).uri("sip:bob@10.0.2.1:5060;transport=udp;maddr=10.0.0.1;user=phone");
    assert_eq!(proxied(&spelled_out).uri(), "sip:bob@10.0.2.1;user=phone");
}

/// §16.5: a Request-URI with a `maddr` that is not ours is the only target, and sent there as it is.
#[test]
fn a_foreign_maddr_is_where_the_request_goes() {
    let uri = "sip:bob@elsewhere.example.net;maddr=10.0.2.1";
    assert_eq!(proxied(&Request::invite(1).uri(uri)).uri(), uri);
}

/// §16.7 item 6: to a request that has a To tag, no forwarded response has another one.
#[test]
fn the_to_tag_of_a_request_is_that_of_its_response() {
    let mut network = Network::new(to_bob());
    network.alice(&Request::options(1).with_to_tag("of-the-dialog"));
    let received = network.only(BOB, "OPTIONS");
    assert_eq!(received.to_tag().as_deref(), Some("of-the-dialog"));
    network.send(BOB, received.respond(481, ""));
    assert_eq!(network.only(ALICE, "481").to_tag().as_deref(), Some("of-the-dialog"));
}

/// §16.11, §17.2.3: without the magic cookie too, the ACK of a failure gets the branch of its INVITE, though it has a To
/// tag and the INVITE has none.
#[test]
fn the_stateless_branch_of_an_ack_without_cookie_is_that_of_its_invite() {
    let mut network = Network::new(Script::stateless());
    let invite = Request::invite(1).uri(rig::BOB_URI).via("SIP/2.0/UDP 10.0.1.1:5060");
    network.alice(&invite);
    let received = network.one(BOB);
    network.send(BOB, received.respond(486, "bob"));
    let busy = network.one(ALICE);
    network.alice(&invite.ack(&busy));
    let ack = network.one(BOB);
    assert_eq!((ack.label().as_str(), ack.branch()), ("ACK", received.branch()));
}

/// §17.2.3: without the magic cookie, an ACK with another To tag than that of our response belongs to something else.
#[test]
fn an_ack_without_cookie_and_with_another_to_tag_does_not_end_the_retransmissions() {
    let mut network = Network::new(Script::reply(486));
    let invite = Request::invite(1).via("SIP/2.0/UDP 10.0.1.1:5060");
    network.alice(&invite);
    let busy = network.only(ALICE, "486");
    let mut ack = invite.ack(&busy);
    ack.to = format!("{};tag=of-another", invite.to);
    network.alice(&ack);
    network.pass(rig::T1);
    assert_eq!(network.only(ALICE, "486").bytes, busy.bytes);
    network.alice(&invite.ack(&busy));
    network.pass(Duration::from_secs(60));
    network.assert_quiet(ALICE);
}

/// §18.2.2: a response goes to the `maddr` of the Via, at the port of sent-by or 5060; never to a group, which would make
/// one request of a stranger's a message to many.
#[test]
fn a_response_goes_to_the_maddr_of_the_via_unless_that_is_a_group() {
    let with = |maddr: &str| format!("SIP/2.0/UDP 10.0.1.1:5060;maddr={maddr};branch=z9hG4bK-maddr");
    let mut network = Network::new(Script::reply(404));
    network.alice(&Request::options(1).via(&with("10.0.9.9")));
    assert_eq!(network.one(MALLORY).label(), "404");
    network.assert_quiet(ALICE);

    let mut network = Network::new(Script::reply(404));
    network.alice(&Request::options(1).via(&with("224.0.1.75")));
    assert_eq!(network.one(ALICE).label(), "404");
}

/// §18.2.2 without state (§16.11).
#[test]
fn a_response_without_state_goes_to_the_maddr_of_the_next_via() {
    let mut network = Network::new(Script::stateless());
    let via = "SIP/2.0/UDP 10.0.1.1:5060;maddr=10.0.9.9;branch=z9hG4bK-maddr";
    network.alice(&Request::options(1).uri(rig::BOB_URI).via(via));
    let received = network.one(BOB);
    network.send(BOB, received.respond(200, "bob"));
    assert_eq!(network.one(MALLORY).label(), "200");
    network.assert_quiet(ALICE);
}

/// RFC 3263 §4.4: a proxy without state has one order for the addresses of a name, whatever the order of the answer, so
/// that a retransmission goes where its request went.
#[test]
fn without_state_the_order_of_a_names_addresses_does_not_matter() {
    let [low, high]: [SocketAddr; 2] = [BOB, rig::CAROL];
    for answer in [[low.ip(), high.ip()], [high.ip(), low.ip()]] {
        let mut network = Network::new(Script::stateless());
        let options = Request::options(1).uri("sip:bob@two.example.net:5060");
        // The first is lost: nobody can wait without state.
        network.alice(&options);
        network.answer(Answer::Addresses(&answer));
        network.alice(&options);
        assert_eq!(network.one(low).label(), "OPTIONS");
        network.assert_quiet(high);
    }
}
