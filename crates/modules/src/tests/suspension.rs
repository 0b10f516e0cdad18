//! A function that waits for the outside, in a module of the tests' own, nested in an `if` inside a called route.

use super::*;
use crate::run::Run;
use crate::table::{Function, MESSAGES, Module};
use engine::Ask;
use route::{Args, Outcome, Param, ParamKind};

static ASKING: Module = Module {
    name: "asking",
    doc: "Waits for the addresses of a name.",
    functions: &[Function::new(
        "has_address",
        &[Param::new("name", ParamKind::Format)],
        MESSAGES,
        has_address,
        "Whether a name has an address.",
    )],
    parameters: &[],
    variables: &[],
};

fn has_address(run: &mut Run<'_, '_>, args: &Args<'_>) -> Outcome {
    let host = String::from_utf8_lossy(args.str(0)).into_owned();
    run.suspend(Ask::Resolve { host }, Duration::from_secs(2), answered)
}

fn answered(_: &mut Run<'_, '_>, answer: &Answer<'_>) -> Outcome {
    Outcome::Code(match answer {
        Answer::Addresses(addresses) if !addresses.is_empty() => i32::try_from(addresses.len()).unwrap_or(1),
        Answer::Addresses(_) => -1,
        _ => -2,
    })
}

const SCRIPT: &str = r#"
loadmodule "asking.so"
request_route {
    $var(before) = "kept";
    $avp(before) = "kept, too";
    append_to_reply("X-Before: $var(before)\r\n");
    append_hf("X-Edit: kept\r\n");
    route(ASK);
    xlog("after: $var(before), $avp(before), $rc\n");
    if ($rU == "relay") { $du = "sip:127.0.0.1:5062"; t_relay(); exit; }
    send_reply("404", "Not Found");
}
route[ASK] {
    if (is_method("INVITE") && has_address("$rd") && $rc == 2) {
        xlog("two addresses\n");
        return(7);
    }
    xlog("not two: $rc\n");
    return(8);
}
"#;

fn rig() -> Rig {
    Rig::with(&format!("{LOAD}\n{SCRIPT}"), &[&ASKING], Environment::default())
}

fn invite(user: &str) -> String {
    Request::new("INVITE", &format!("sip:{user}@example.org"), ALICE).call(user).text()
}

#[test]
fn a_script_goes_on_where_it_waited() {
    let mut rig = rig();
    assert!(rig.send(ALICE, &invite("bob")).iter().all(|sent| sent.first() == "SIP/2.0 100 Trying"));
    assert_eq!(rig.asks.len(), 1);
    assert!(rig.lines().is_empty());
    // A retransmission meanwhile changes nothing.
    assert!(rig.send(ALICE, &invite("bob")).iter().all(|sent| sent.first() == "SIP/2.0 100 Trying"));
    let addresses = ["10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap()];
    let sent = rig.answer(Answer::Addresses(&addresses));
    let reply = sent.iter().find(|sent| sent.first() == "SIP/2.0 404 Not Found").expect("the reply");
    assert_eq!(reply.header("X-Before"), Some("kept"));
    assert_eq!(rig.lines(), ["two addresses", "after: kept, kept, too, 7"]);
}

#[test]
fn edits_and_targets_survive_the_wait() {
    let mut rig = rig();
    rig.send(ALICE, &invite("relay"));
    let sent = rig.answer(Answer::Addresses(&[]));
    let forwarded = sent.iter().find(|sent| sent.to == BOB).expect("the INVITE");
    assert_eq!(forwarded.header("X-Edit"), Some("kept"));
    assert_eq!(rig.lines(), ["not two: -1", "after: kept, kept, too, 8"]);
}

#[test]
fn an_answer_that_never_comes_is_a_failure() {
    let mut rig = rig();
    rig.send(ALICE, &invite("bob"));
    let sent = rig.pass(Duration::from_secs(3));
    assert!(sent.iter().any(|sent| sent.first() == "SIP/2.0 404 Not Found"), "{sent:#?}");
    assert_eq!(rig.lines(), ["not two: -2", "after: kept, kept, too, 8"]);
}

#[test]
fn other_requests_are_served_meanwhile() {
    let mut rig = rig();
    rig.send(ALICE, &invite("bob"));
    let other = Request::new("OPTIONS", "sip:carol@example.org", CAROL).call("other").text();
    let reply = rig.one(CAROL, &other);
    assert_eq!(reply.first(), "SIP/2.0 404 Not Found");
    assert_eq!(rig.lines(), ["not two: -1", "after: kept, kept, too, 8"]);
}

#[test]
fn a_route_that_cannot_wait_ends() {
    let mut rig = Rig::with(
        &format!(
            "{LOAD}\nloadmodule \"asking.so\"\nrequest_route {{ $du = \"sip:{BOB}\"; t_relay(); }}\nonreply_route {{ has_address(\"x\"); xlog(\"never\\n\"); }}\n"
        ),
        &[&ASKING],
        Environment::default(),
    );
    let sent = rig.send(ALICE, &invite("bob"));
    let forwarded = sent.iter().find(|sent| sent.to == BOB).unwrap();
    assert_eq!(rig.one(BOB, &respond(forwarded, "200 OK", "b")).first(), "SIP/2.0 200 OK");
    assert!(rig.asks.is_empty());
    assert_eq!(rig.lines().len(), 1);
    assert!(rig.lines()[0].contains("cannot wait"));
}
