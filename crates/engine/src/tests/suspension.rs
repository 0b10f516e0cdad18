//! Scripts and branches that wait for answers.

use super::*;
use core::net::IpAddr;

fn asking() -> Script {
    Box::new(|cx| {
        *cx.state += 1;
        cx.edits.append_header(&cx.message(), b"X-Before: 1\r\n");
        cx.set_request_uri(b"sip:callee@192.0.2.20");
        let ask = Ask::Resolve { host: "who.example".to_string() };
        Handled::Suspend { state: 7, ask, deadline: Duration::from_secs(2) }
    })
}

fn asking_rig() -> Rig {
    let mut rig = Rig::new(asking());
    rig.endpoint.user_mut().answer = Box::new(|cx| {
        assert_eq!(*cx.state, 1);
        let _ = cx.relay();
        Handled::Done
    });
    rig
}

#[test]
fn a_suspended_script_goes_on_with_its_answer() {
    let mut rig = asking_rig();
    assert_eq!(kinds(&rig.receive(CALLER, &invite("1"))), ["100"]);
    assert_eq!(kinds(&rig.receive(CALLER, &invite("1"))), ["100"]);
    let (id, _) = rig.asks[0].clone();
    let address: IpAddr = "192.0.2.77".parse().unwrap();
    let sent = rig.input(Input::Answer { id, answer: Answer::Addresses(&[address]) });
    assert_eq!(kinds(&sent), ["INVITE"]);
    assert_eq!((sent[0].to.as_str(), sent[0].header("X-Before")), (CALLEE, "1"));
    assert_eq!(rig.endpoint.user().answers, ["7 Addresses([192.0.2.77])"]);
    // A second answer finds nobody.
    assert!(rig.input(Input::Answer { id, answer: Answer::Failed }).is_empty());
    let sent = rig.receive(CALLEE, &response(&sent[0], "404 Not Found", ""));
    assert_eq!(kinds(&sent), ["ACK", "404"]);
    rig.rest();
}

#[test]
fn its_deadline_answers_for_the_outside() {
    let mut rig = asking_rig();
    let _ = rig.receive(CALLER, &invite("1"));
    let sent = rig.pass(Duration::from_secs(2));
    assert_eq!((sent[0].0, sent[0].1.method()), (2_000, "INVITE"));
    assert_eq!(rig.endpoint.user().answers, ["7 Failed"]);
    rig.rest();
}

#[test]
fn a_cancel_ends_a_suspended_script() {
    let mut rig = asking_rig();
    let _ = rig.receive(CALLER, &invite("1"));
    rig.endpoint.user_mut().script = relay();
    let sent = rig.receive(CALLER, &request("CANCEL", &format!("sip:callee@{CALLEE}"), "1", ""));
    assert_eq!(kinds(&sent), ["200", "487"]);
    let (id, _) = rig.asks[0].clone();
    assert!(rig.input(Input::Answer { id, answer: Answer::Failed }).is_empty());
    assert!(rig.endpoint.user().answers.is_empty());
    rig.rest();
}

#[test]
fn too_many_suspended_scripts_are_refused() {
    let mut config = config();
    config.limits.suspended_max = 1;
    let mut rig = Rig::with(config, asking());
    let _ = rig.receive(CALLER, &invite("1"));
    let sent = rig.receive(CALLER, &invite("2"));
    assert_eq!((kinds(&sent), sent[0].header("Retry-After")), (alloc::vec!["503".to_string()], "5"));
    assert_eq!(rig.endpoint.transactions(), 1);
}

#[test]
fn a_named_next_hop_is_resolved_and_remembered() {
    let mut rig = Rig::new(relay());
    let text = |branch: &str| request("OPTIONS", "sip:callee@Far.Example:5070", branch, "");
    assert!(rig.receive(CALLER, &text("1")).is_empty());
    let (id, ask) = rig.asks[0].clone();
    assert_eq!(ask, Ask::Resolve { host: "far.example".to_string() });
    let addresses: [IpAddr; 2] = ["2001:db8::9".parse().unwrap(), "192.0.2.66".parse().unwrap()];
    let sent = rig.input(Input::Answer { id, answer: Answer::Addresses(&addresses) });
    // No listener speaks IPv6 here: the first address that one can reach.
    assert_eq!((kinds(&sent), sent[0].to.as_str()), (alloc::vec!["OPTIONS".to_string()], "192.0.2.66:5070"));
    assert_eq!(rig.receive(CALLER, &text("2"))[0].to, "192.0.2.66:5070");
    let _ = rig.pass(Duration::from_secs(31));
    let before = rig.asks.len();
    let _ = rig.receive(CALLER, &text("3"));
    assert_eq!(rig.asks.len(), before + 1);
}

#[test]
fn a_name_without_address_fails_the_branch() {
    let mut rig = Rig::new(relay());
    let text = request("INVITE", "sip:callee@nowhere.example", "1", "");
    assert_eq!(kinds(&rig.receive(CALLER, &text)), ["100"]);
    let (id, _) = rig.asks[0].clone();
    assert_eq!(kinds(&rig.input(Input::Answer { id, answer: Answer::Failed })), ["500"]);
    rig.rest();
    // And so does silence.
    let mut rig = Rig::new(relay());
    let _ = rig.receive(CALLER, &text);
    let sent = rig.pass(Duration::from_secs(5));
    assert_eq!((sent[0].0, sent[0].1.first_line()), (4_000, "SIP/2.0 500 Server Internal Error"));
    rig.rest();
}
