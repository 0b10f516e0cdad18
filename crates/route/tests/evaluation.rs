//! What expressions and statements mean.

mod support;

use route::Verdict;
use support::{FakeHost, calls, eval, eval_with, run};

#[test]
fn arithmetic_follows_precedence_and_wraps() {
    assert_eq!(eval("1 + 2 * 3"), "7");
    assert_eq!(eval("(1 + 2) * 3"), "9");
    assert_eq!(eval("7 / 2"), "3");
    assert_eq!(eval("7 mod 4"), "3");
    assert_eq!(eval("7 % 4"), "3");
    assert_eq!(eval("-3 + 1"), "-2");
    assert_eq!(eval("0x10 | 1"), "17");
    assert_eq!(eval("6 & 3"), "2");
    assert_eq!(eval("6 ^ 3"), "5");
    assert_eq!(eval("~0"), "-1");
    assert_eq!(eval("1 << 4 >> 2"), "4");
    assert_eq!(eval("9223372036854775807 + 1"), "-9223372036854775808");
    assert_eq!(eval("1 - 2 - 3"), "-4");
}

#[test]
fn type_of_the_left_side_decides_about_plus() {
    assert_eq!(eval("\"1\" + 2"), "\"12\"");
    assert_eq!(eval("1 + \"2\""), "3");
    assert_eq!(eval("\"a\" + \"b\" + \"c\""), "\"abc\"");
    assert_eq!(eval("\"sip:\" + $rU + \"@x\""), "\"sip:alice@x\"");
    assert_eq!(eval("\"a\" . 1"), "\"a1\"");
    assert_eq!(eval("\"a\" + $avp(none)"), "\"a\"");
    assert_eq!(eval("\"one \" \"two\""), "\"one two\"");
}

#[test]
fn type_of_the_left_side_decides_about_equality() {
    assert_eq!(eval("\"10\" == 10"), "1");
    assert_eq!(eval("10 == \"10\""), "1");
    assert_eq!(eval("\"010\" == 10"), "0");
    assert_eq!(eval("10 == \"010\""), "1");
    assert_eq!(eval("\"a\" != \"b\""), "1");
    assert_eq!(eval("\"010\" ieq 10"), "1");
    assert_eq!(eval("10 ne \"010\""), "1");
    assert_eq!(eval("$avp(none) == $null"), "1");
    assert_eq!(eval("$rU == $null"), "0");
    assert_eq!(eval("$rU != $null"), "1");
    assert_eq!(eval("$sp == 5060"), "1");
    assert_eq!(eval("$sp > 5000 && $sp <= 5060"), "1");
}

#[test]
fn logic_is_short_and_gives_one_or_zero() {
    assert_eq!(eval("1 && 2"), "1");
    assert_eq!(eval("0 || 0"), "0");
    assert_eq!(eval("!5"), "0");
    assert_eq!(eval("not 0 and 1 or 0"), "1");
    assert_eq!(eval("!(1 == 2)"), "1");
    assert_eq!(calls("if (code(-1) && show(1)) show(2);"), ["code(-1)"]);
    assert_eq!(calls("if (code(2) || show(1)) show(2);"), ["code(2)", "show(2)"]);
    assert_eq!(
        calls("if (!(code(1) && !code(-2)) || code(-3)) show(1); else show(2);"),
        ["code(1)", "code(-2)", "code(-3)", "show(2)"]
    );
}

#[test]
fn return_codes_are_true_when_positive() {
    assert_eq!(calls("if (code(-5)) show(1); else show(2);"), ["code(-5)", "show(2)"]);
    assert_eq!(
        calls("code(-5); $var(a) = $rc; $var(b) = $retcode; if (retcode < 0) show($var(a) + $var(b));"),
        ["code(-5)", "show(-10)"]
    );
    assert_eq!(calls("$var(x) = code(-3); show($var(x));"), ["code(-3)", "show(-3)"]);
    assert_eq!(calls("code(7); $var(a) = $rc; show($var(a));"), ["code(7)", "show(7)"]);
}

#[test]
fn zero_and_exit_stop_the_script() {
    let mut host = FakeHost::new();
    assert_eq!(run("route { code(0); show(1); }", &mut host), Verdict::Exit);
    assert_eq!(run("route { stop(); show(1); }", &mut host), Verdict::Exit);
    assert_eq!(run("route { route(A); show(1); }\nroute[A] { exit; }", &mut host), Verdict::Exit);
    assert_eq!(run("route { route(A); show(1); }\nroute[A] { return 0; }", &mut host), Verdict::Exit);
    assert_eq!(run("route { route(A); show(1); }\nroute[A] { drop; }", &mut host), Verdict::Drop);
    assert_eq!(run("route { return 5; }", &mut host), Verdict::End(5));
    assert!(host.calls.iter().all(|call| !call.starts_with("show")));
}

#[test]
fn routes_return_their_codes() {
    let text = "route { if (route(A)) show(1); else show(2); $var(x) = route(B); show($var(x)); if (route(C)) show(3); }
        route[A] { return -1; } route[B] { return 4; } route[C] { $var(y) = 1; }";
    let mut host = FakeHost::new();
    run(text, &mut host);
    assert_eq!(host.calls, ["show(2)", "show(4)", "show(3)"]);
}

#[test]
fn break_leaves_a_route_outside_of_loops() {
    let text =
        "route { route(1); show(2); break; show(3); } route[1] { show(1); if (1) { break; }; show(9); }";
    let mut host = FakeHost::new();
    assert_eq!(run(text, &mut host), Verdict::End(1));
    assert_eq!(host.calls, ["show(1)", "show(2)"]);
}

#[test]
fn routes_are_called_by_computed_names() {
    let text = "route { $var(n) = \"B:x\"; route($var(n)); route(\"$var(n)\"); route(\"A$var(none)\"); if (!route(\"$var(z)q\")) show(8); }
        route[A0] { show(1); } route[B:x] { show(2); } route[\"C\"] { show(3); }";
    let mut host = FakeHost::new();
    run(text, &mut host);
    assert_eq!(host.calls, ["show(2)", "show(2)", "show(1)", "show(8)"]);
}

#[test]
fn loops_end_by_condition_or_break() {
    assert_eq!(
        calls("while ($var(i) < 3) { show($var(i)); $var(i) = $var(i) + 1; }"),
        ["show(0)", "show(1)", "show(2)"]
    );
    assert_eq!(
        calls("while (1) { $var(i) += 2; if ($var(i) > 5) break; show($var(i)); } show(\"end\");"),
        ["show(2)", "show(4)", "show(\"end\")"]
    );
}

#[test]
fn switch_falls_through_until_break() {
    let body = |value: &str| {
        format!(
            "switch ({value}) {{ case 1: show(1); case 2: show(2); break; case \"x\": case /^y/: show(3); break; case -1: exit; default: show(9); }} show(0);"
        )
    };
    assert_eq!(calls(&body("1")), ["show(1)", "show(2)", "show(0)"]);
    assert_eq!(calls(&body("2")), ["show(2)", "show(0)"]);
    assert_eq!(calls(&body("\"x\"")), ["show(3)", "show(0)"]);
    assert_eq!(calls(&body("\"YES\"")), ["show(3)", "show(0)"]);
    assert_eq!(calls(&body("-1")), Vec::<String>::new());
    assert_eq!(calls(&body("7")), ["show(9)", "show(0)"]);
    assert_eq!(calls("switch (5) { case 1: show(1); } show(2);"), ["show(2)"]);
}

#[test]
fn expressions_match_without_case() {
    assert_eq!(eval("\"INVITE\" =~ \"^inv.*\""), "1");
    assert_eq!(eval("$rU =~ \"^[a-c]+$\""), "0");
    assert_eq!(eval("$rU !~ \"bob\""), "1");
    assert_eq!(
        calls("$var(p) = \"^ali\"; if ($rU =~ $var(p)) show(1); if ($rU =~ \"(\" + \"(\") show(2);"),
        ["show(1)"]
    );
    assert_eq!(
        calls("if (matches(\"<$rU>\", \"^<alice>$\")) show(1);"),
        ["matches(\"<alice>\", regex)", "show(1)"]
    );
}

#[test]
fn variables_start_as_zero_or_null() {
    assert_eq!(eval("$var(new)"), "0");
    assert_eq!(
        calls("show($vn(a)); $vn(a) = 1; show($vn(a)); $vn(a) = $null; show($vn(a));"),
        ["show(null)", "show(1)", "show(null)"]
    );
    assert_eq!(calls("$var(a) = \"x\"; $var(a) = $null; show($var(a));"), ["show(0)"]);
}

#[test]
fn avps_are_stacks() {
    assert_eq!(
        calls(
            "$avp(s:x) = 1; $avp(x) = \"b\"; show($avp(x)); show($(avp(x)[1])); show($(avp(x)[*])); $avp(x) = $null; show($avp(x)); show($avp(i:5));"
        ),
        ["show(\"b\")", "show(1)", "show(\"b,1\")", "show(1)", "show(null)"]
    );
    assert_eq!(
        calls("$var(n) = \"k\"; $avp($var(n)) = 3; show($avp(k)); $var(i) = 0; show($(avp(k)[$var(i)]));"),
        ["show(3)", "show(3)"]
    );
}

#[test]
fn headers_have_indices_and_transformations() {
    let mut host = FakeHost::new();
    host.headers = vec![("X", "one"), ("Y", "other"), ("X", "two")];
    assert_eq!(eval_with("$hdr(X)", &mut host), "\"one\"");
    assert_eq!(eval_with("$(hdr(X)[1])", &mut host), "\"two\"");
    assert_eq!(eval_with("$(hdr(X)[-1]{s.toupper})", &mut host), "\"TWO\"");
    assert_eq!(eval_with("$(hdr(X){s.len}) + 1", &mut host), "4");
    assert_eq!(eval_with("$(hdr(Z){s.len}) == $null", &mut host), "1");
    assert_eq!(eval_with("$(ru{uri.user})", &mut host), "\"alice\"");
    assert_eq!(eval_with("$(ru{uri.host}{s.substr,0,3})", &mut host), "\"exa\"");
    assert_eq!(eval_with("$(ru{re.subst,/^sip:(.*)@.*$/\\1/})", &mut host), "\"alice\"");
    assert_eq!(eval_with("$(ru{s.rm,$rU})", &mut host), "\"sip:@example.com\"");
}

#[test]
fn formats_replace_variables_and_strings_do_not() {
    assert_eq!(
        calls("log(1, \"$rm to $ru ($si:$sp) $$5 $avp(none) $(rU{s.len}) $rU(x)\");"),
        ["log(1, \"INVITE to sip:alice@example.com (10.1.2.3:5060) $5 <null> 5 alice(x)\")"]
    );
    assert_eq!(eval("$_s(<$rU>)"), "\"<alice>\"");
}

#[test]
fn casts_and_tests_work() {
    assert_eq!(eval("(int)\"42\" + 1"), "43");
    assert_eq!(eval("(str)4 + 2"), "\"42\"");
    assert_eq!(eval("strlen(\"abc\")"), "3");
    assert_eq!(eval("strlen($avp(none))"), "0");
    assert_eq!(eval("strempty(\"\")"), "1");
    assert_eq!(eval("strempty($rU)"), "0");
    assert_eq!(eval("defined $avp(none)"), "0");
    assert_eq!(eval("defined $rU && 1"), "1");
}

#[test]
fn words_of_the_old_language_work() {
    let yes = |condition: &str| calls(&format!("if ({condition}) show(1);")) == ["show(1)"];
    assert!(yes("method==\"INVITE\""));
    assert!(yes("method==INVITE"));
    assert!(!yes("method==ACK"));
    assert!(yes("method=~\"INV.*\""));
    assert!(yes("uri==myself"));
    assert!(!yes("uri!=myself"));
    assert!(!yes("!uri==myself"));
    assert!(yes("$ru == myself"));
    assert!(!yes("from_uri==myself"));
    assert!(yes("src_ip==10.0.0.0/8"));
    assert!(yes("src_ip==10.1.2.3"));
    assert!(yes("src_ip==10.0.0.0/255.0.0.0"));
    assert!(yes("src_ip!=127.0.0.1"));
    assert!(!yes("src_ip==[::1]"));
    assert!(yes("src_ip!=myself"));
    assert!(yes("src_port==5060"));
    assert!(yes("msg:len >= max_len"));
    assert!(!yes("proto==UDP"));
    assert!(yes("\"ru\" == myself"));
}

#[test]
fn assignments_reach_the_host() {
    let mut host = FakeHost::new();
    run("route { $ru = \"sip:\" + $rU + \"@\" + $si; $rU = $null; }", &mut host);
    assert_eq!(host.writes, ["ru = \"sip:alice@10.1.2.3\"", "rU = null"]);
}

#[test]
fn arguments_arrive_as_declared() {
    assert_eq!(
        calls("setflag(\"5\"); setflag(3 + 4); setflag(\"$sp\");"),
        ["setflag(5)", "setflag(7)", "setflag(5060)"]
    );
    assert_eq!(
        calls("forward(10.0.0.1, 5060); forward(); forward(uri:host);"),
        ["forward(\"10.0.0.1\", 5060)", "forward()", "forward(\"uri:host\")"]
    );
    assert_eq!(calls("force_rport;"), ["force_rport()"]);
}

#[test]
fn definitions_replace_words() {
    let text = "#!KAMAILIO
#!define FLAG 5
#!define NAME \"location\"
#!trydef FLAG 6
#!substdef \"/HOST/example.org/\"
#!ifdef FLAG
route { setflag(FLAG); show(NAME); show(\"at HOST\"); show($def(FLAG)); show($defn(FLAG));
#!ifndef FLAG
  this is not even text ' \"
#!else
  show(2);
#!endif
#!ifexp FLAG == 5 && !defined(OTHER)
  show(3);
#!endif
}
#!else
nonsense
#!endif
";
    let mut host = FakeHost::new();
    run(text, &mut host);
    assert_eq!(
        host.calls,
        [
            "setflag(5)",
            "show(\"location\")",
            "show(\"at example.org\")",
            "show(\"5\")",
            "show(5)",
            "show(2)",
            "show(3)"
        ]
    );
}

#[test]
fn globals_of_the_configuration_are_constants() {
    let text = "gw.ip = \"10.0.0.9\" desc \"a gateway\"\ngw.port = 5070\nroute { show($sel(cfg_get.gw.ip)); show($sel(cfg_get.gw.port)); }";
    let mut host = FakeHost::new();
    run(text, &mut host);
    assert_eq!(host.calls, ["show(\"10.0.0.9\")", "show(5070)"]);
}

#[test]
fn functions_do_nothing_in_routes_that_do_not_allow_them() {
    let text = "route { route(A); } onreply_route { route(A); }\nroute[A] { if (!force_rport()) show(1); }";
    let loaded = support::load(text);
    let route = loaded.program.entry(route::RouteKind::Reply, None).unwrap();
    let mut host = FakeHost::new();
    route::Machine::new().run(&loaded.program, route, &mut host);
    assert_eq!(host.calls, ["force_rport refused in onreply_route", "show(1)"]);
}
