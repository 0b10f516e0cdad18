//! What happens at the limits: of a run, and of a text.

#![allow(clippy::unwrap_used)]

mod support;

use route::{Machine, RouteKind, RunErrorKind, Step, Verdict, limits};
use std::fmt::Write as _;
use support::{FakeHost, calls, diagnose, load};

fn failure(text: &str) -> (RunErrorKind, String) {
    let loaded = load(text);
    let route = loaded.program.entry(RouteKind::Request, None).unwrap();
    match Machine::new().run(&loaded.program, route, &mut FakeHost::new()) {
        Step::Done(Verdict::Failed(error)) => (error.kind, loaded.program.describe(&error)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_endless_loop_is_stopped_with_its_place() {
    let (kind, words) = failure("route {\n  $var(x) = 1;\n  while (1) { $var(x) += 1; }\n}");
    assert_eq!(kind, RunErrorKind::Steps);
    assert!(words.starts_with("test.cfg:3: "), "{words}");
}

#[test]
fn endless_recursion_is_stopped() {
    let (kind, words) = failure("route { route(A); }\nroute[A] {\n route(A); }");
    assert_eq!(kind, RunErrorKind::Depth);
    assert!(words.starts_with("test.cfg:3: "), "{words}");
}

#[test]
fn a_string_that_grows_without_end_is_stopped() {
    let (kind, _) = failure("route { $var(s) = \"0123456789\"; while (1) { $var(s) = $var(s) + $var(s); } }");
    assert_eq!(kind, RunErrorKind::Memory);
}

#[test]
fn strings_that_nobody_uses_are_collected() {
    let uris = "$ru".repeat(40);
    let text = format!(
        "while ($var(i) < 1200) {{ $var(i) += 1; $var(s) = $_s({uris} $var(i)); $var(kept) = $var(kept) + \"x\";
         if ($var(i) mod 10 == 0) $var(kept) = \"\"; }} show($var(s)); show($var(kept));"
    );
    let uri = "sip:alice@example.com".repeat(40);
    assert_eq!(calls(&text), [format!("show(\"{uri} 1200\")"), "show(\"\")".to_string()]);
}

#[test]
fn a_run_leaves_nothing_to_the_next() {
    let loaded = load("route { show($var(x)); $var(x) = 5; route(A); } route[A] { exit; }");
    let route = loaded.program.entry(RouteKind::Request, None).unwrap();
    let mut machine = Machine::new();
    let mut host = FakeHost::new();
    for _ in 0..3 {
        assert!(matches!(machine.run(&loaded.program, route, &mut host), Step::Done(Verdict::Exit)));
    }
    assert_eq!(host.calls, ["show(0)", "show(0)", "show(0)"]);
}

#[test]
fn deep_nesting_is_a_diagnostic() {
    let deep = |open: &str, close: &str, count: usize| {
        let (open, close) = (open.repeat(count), close.repeat(count));
        diagnose(&format!("route {{ {open} show(1); {close} }}"))
    };
    assert!(deep("{", "}", 100_000).contains("blocks nest more than"));
    assert!(deep("if (1) ", "", 100_000).contains("nest more than"));
    assert!(deep("while (1) {", "}", 200).contains("nest more than"));
    assert!(deep("switch (1) { case 1: ", "}", 200).contains("nest more than"));
    let nested = |part: &str, end: &str| {
        let text = format!("route {{ $var(x) = {}1{}; }}", part.repeat(100_000), end.repeat(100_000));
        diagnose(&text)
    };
    assert!(nested("(", ")").contains("nests more than"));
    assert!(nested("!", "").contains("nests more than"));
    assert!(nested("1 + ", "").contains("operators in a row"));
    assert!(nested("code(", ")").contains("nests more than"));
    assert!(nested("$_s(", ")").len() < 10_000);
    let variables = format!("route {{ show({}x{}); }}", "$avp(".repeat(100), ")".repeat(100));
    assert!(diagnose(&variables).contains("nest more than"));
    let ifs = format!("route {{ if (1) show(1); {} }}", "else if (2) show(2);".repeat(50_000));
    assert!(!diagnose(&ifs).contains("error"));
}

#[test]
fn definitions_cannot_explode() {
    let mut text = String::from("#!define A0 x x x x x x x x x x\n");
    for level in 1..12 {
        let previous = format!("A{} ", level - 1).repeat(10);
        let _ = writeln!(text, "#!define A{level} {previous}");
    }
    text.push_str("route { A11 }");
    assert!(diagnose(&text).contains("words and signs"));
    assert!(diagnose("#!define A B\n#!define B A\nroute { A; }").contains("uses itself"));
}

/// Found by fuzzing: each of these makes every string three times as long for the next one.
#[test]
fn substitutions_cannot_explode() {
    let substitutions = "#!subst \"//ba/g\"\n".repeat(40);
    let strings = "xlog(\"hello\");".repeat(40);
    let shown = diagnose(&format!("{substitutions}route {{ {strings} }}"));
    let wanted = "error[too-long]: substitutions replace more than 1000000 matches";
    assert!(shown.contains(wanted), "{shown}");
    assert_eq!(shown.matches("too-long").count(), 1, "{shown}");
}

#[test]
fn findings_are_limited() {
    let mut text = String::from("route {\n");
    for _ in 0..1000 {
        text.push_str("nothing();\n");
    }
    text.push('}');
    let shown = diagnose(&text);
    assert_eq!(shown.matches("there is no function").count(), limits::DIAGNOSTICS_MAX);
    assert!(shown.contains("800 more findings"));
}

#[test]
fn long_strings_and_huge_files_are_refused() {
    let long = "x".repeat(70_000);
    assert!(diagnose(&format!("route {{ show(\"{long}\"); }}")).contains("longer than"));
    assert!(diagnose(&" ".repeat(limits::SOURCE_BYTES_MAX + 1)).contains("larger than"));
}
