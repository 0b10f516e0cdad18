//! Suspended scripts: at any depth of calls and expressions, and resumed with the answer.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod support;

use route::{Frame, Loaded, Machine, RouteKind, RunErrorKind, Step, Verdict};
use support::{FakeHost, load};

/// Starts the request route; the script must suspend.
fn suspend(loaded: &Loaded, host: &mut FakeHost) -> Frame {
    let route = loaded.program.entry(RouteKind::Request, None).unwrap();
    match Machine::new().run(&loaded.program, route, host) {
        Step::Suspended(frame) => frame,
        Step::Done(verdict) => panic!("ended: {verdict:?}"),
    }
}

/// Resumes on a machine that has never seen the script, until it ends; answers with these codes in turn.
fn finish(loaded: &Loaded, mut frame: Frame, codes: &[i32], host: &mut FakeHost) -> Verdict {
    for code in codes {
        match Machine::new().resume(&loaded.program, frame, *code, host) {
            Step::Done(verdict) => return verdict,
            Step::Suspended(next) => frame = next,
        }
    }
    panic!("suspended once more than expected");
}

fn answers(text: &str, codes: &[i32]) -> (Vec<String>, Verdict) {
    let loaded = load(text);
    let mut host = FakeHost::new();
    let frame = suspend(&loaded, &mut host);
    let verdict = finish(&loaded, frame, codes, &mut host);
    (host.calls, verdict)
}

#[test]
fn the_answer_is_the_return_code() {
    let text = "route { ask(); show($rc); $var(x) = ask(\"b\"); show($var(x)); }";
    let (calls, verdict) = answers(text, &[3, -7]);
    assert_eq!(calls, ["ask()", "show(3)", "ask(\"b\")", "show(-7)"]);
    assert_eq!(verdict, Verdict::End(1));
}

#[test]
fn an_answer_of_zero_stops_the_script() {
    let (calls, verdict) = answers("route { ask(); show(1); }", &[0]);
    assert_eq!(calls, ["ask()"]);
    assert_eq!(verdict, Verdict::Exit);
}

#[test]
fn suspends_inside_a_condition() {
    let text = "route { if (code(-1) || !ask() && show(1)) show(2); else show(3); }";
    assert_eq!(answers(text, &[-1]).0[2..], ["show(1)", "show(2)"]);
    assert_eq!(answers(text, &[1]).0[2..], ["show(3)"]);
}

#[test]
fn suspends_inside_an_expression() {
    let text = "route { $var(s) = \"a\" + ask(\"x\") + $rU; show($var(s)); show(1 + ask(\"$rm\") * 2); }";
    let (calls, _) = answers(text, &[5, 4]);
    assert_eq!(calls, ["ask(\"x\")", "show(\"a5alice\")", "ask(\"INVITE\")", "show(9)"]);
}

#[test]
fn suspends_inside_nested_routes_and_loops() {
    let text = "route { while ($var(i) < 2) { if (route(A) > 0) show($var(i)); $var(i) += 1; } show(\"end\"); }
        route[A] { $var(text) = \"run \" + $var(i); $var(code) = route(B) + 10; show($var(text)); return $var(code); }
        route[B] { return 5 + ask(\"$var(i)\"); }";
    let (calls, verdict) = answers(text, &[1, 2]);
    assert_eq!(
        calls,
        [
            "ask(\"0\")",
            "show(\"run 0\")",
            "show(0)",
            "ask(\"1\")",
            "show(\"run 1\")",
            "show(1)",
            "show(\"end\")"
        ]
    );
    assert_eq!(verdict, Verdict::End(1));
}

#[test]
fn suspends_inside_switch_and_arguments() {
    let text = "route { switch (ask()) { case 2: show(ask(\"inner\")); break; default: show(0); } }";
    assert_eq!(answers(text, &[2, 9]).0[1..], ["ask(\"inner\")", "show(9)"]);
    assert_eq!(answers(text, &[1]).0[1..], ["show(0)"]);
}

#[test]
fn frames_are_small_and_can_be_sent() {
    fn sendable<T: Send + 'static>(_: &T) {}
    let loaded = load(
        "route { $var(long) = $_s($ru$ru$ru$ru); $var(long) = \"x\"; $var(s) = $rU; ask(); show($var(s)); }",
    );
    let mut host = FakeHost::new();
    let frame = suspend(&loaded, &mut host);
    sendable(&frame);
    assert!(frame.size() < 256, "{}", frame.size());
    assert_eq!(loaded.program.sources().position(frame.span(&loaded.program)).line, 1);
    let resumed = std::thread::spawn(move || {
        finish(&loaded, frame, &[1], &mut host);
        host.calls
    });
    assert_eq!(resumed.join().unwrap()[1..], ["show(\"alice\")"]);
}

#[test]
fn a_frame_of_another_program_is_refused() {
    let loaded = load("route { ask(); }");
    let frame = suspend(&loaded, &mut FakeHost::new());
    let other = load("route { ask();  }");
    let verdict = finish(&other, frame, &[1], &mut FakeHost::new());
    assert!(matches!(verdict, Verdict::Failed(error) if error.kind == RunErrorKind::OtherProgram));
}
