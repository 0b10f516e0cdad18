//! Calls over a network that loses a fifth of the datagrams in each direction.

use end_to_end::{Link, Phone, Server, Sipp};

const CALLS: u32 = 30;
const LOSS_PERCENT: u64 = 20;

#[test]
fn every_call_completes_over_a_lossy_network() {
    let server = Server::start("default");
    // The peers exist before the links do, since a link needs to know its peer's address; they send to the links.
    let (caller_seed, callee_seed) = (3, 5);
    let callee_peer = end_to_end::loopback();
    let caller_peer = end_to_end::loopback();
    let callee_link = Link::new(server.address(), (callee_peer, 5060).into(), LOSS_PERCENT, callee_seed);
    let caller_link = Link::new(server.address(), (caller_peer, 5060).into(), LOSS_PERCENT, caller_seed);

    let contact = callee_link.address().to_string();
    Phone::new(&server, "bob").register_contact(format!("<sip:bob@{contact}>"));
    let patient = ["-max_retrans", "20"];
    let callee = Sipp::at(callee_peer, "callee_patient", CALLS, &server)
        .through(&callee_link)
        .user("bob")
        .key("contact", &contact);
    let callee = callee.arguments(patient).spawn();
    let caller =
        Sipp::at(caller_peer, "caller_patient", CALLS, &server).through(&caller_link).user("bob").rate(10);
    caller.arguments(patient).run();
    callee.finish();

    assert!(caller_link.lost() > 0 && callee_link.lost() > 0, "both links must have lost something");
}
