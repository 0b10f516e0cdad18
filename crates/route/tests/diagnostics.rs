//! What people see when a configuration is wrong: place, reason, and what to write instead.

mod support;

use insta::assert_snapshot;
use support::diagnose;

const HEAD: &str = "loadmodule \"tm.so\"\n";

fn route(body: &str) -> String {
    diagnose(&format!("{HEAD}request_route {{\n{body}\n}}\n"))
}

#[test]
fn misspelt_functions() {
    assert_snapshot!(route("\tif (!t_realy()) {\n\t\texit;\n\t}"), @r#"
error[unknown-function]: there is no function `t_realy`
 --> test.cfg:3:7
  |
3 |     if (!t_realy()) {
  |          ^^^^^^^
  |
  = help: did you mean `t_relay`?
"#);
}

#[test]
fn functions_of_modules_that_are_not_loaded() {
    assert_snapshot!(route("    record_route();\n    xlog(\"$ci\");"), @r#"
error[module-not-loaded]: `record_route` belongs to the module `rr`, which is not loaded
 --> test.cfg:3:5
  |
3 |     record_route();
  |     ^^^^^^^^^^^^
  |
  = help: add: loadmodule "rr.so"

error[module-not-loaded]: `xlog` belongs to the module `xlog`, which is not loaded
 --> test.cfg:4:5
  |
4 |     xlog("$ci");
  |     ^^^^
  |
  = help: add: loadmodule "xlog.so"
"#);
}

#[test]
fn unknown_names() {
    assert_snapshot!(
        diagnose("debg = 3\nloadmodule \"tn.so\"\nloadmodule \"rr.so\"\nmodparam(\"rr\", \"append_fromtg\", 1)\nmodparam(\"sl\", \"x\", 1)\nrequest_route { route(RELAI); $ruu = 1; $hdr(X{s.len}); }\nroute[RELAY] { $var(x) = $(ru{s.lem}); $x = $msg(size); }\n"),
        @r#"
error[unknown-setting]: there is no setting `debg`
 --> test.cfg:1:1
  |
1 | debg = 3
  | ^^^^
  |
  = help: did you mean `debug`?

error[unknown-module]: there is no module `tn`
 --> test.cfg:2:12
  |
2 | loadmodule "tn.so"
  |            ^^^^^^^
  |
  = help: did you mean `tm.so`?

error[unknown-parameter]: the module `rr` has no parameter `append_fromtg`
 --> test.cfg:4:16
  |
4 | modparam("rr", "append_fromtg", 1)
  |                ^^^^^^^^^^^^^^^
  |
  = help: did you mean `append_fromtag`?

error[module-not-loaded]: the module `sl` is not loaded
 --> test.cfg:5:10
  |
5 | modparam("sl", "x", 1)
  |          ^^^^
  |
  = help: add: loadmodule "sl.so"

error[unknown-route]: there is no `route[RELAI]`
 --> test.cfg:6:23
  |
6 | request_route { route(RELAI); $ruu = 1; $hdr(X{s.len}); }
  |                       ^^^^^
  |
  = help: did you mean `RELAY`?

error[unknown-variable]: there is no pseudo-variable `$ruu`
 --> test.cfg:6:31
  |
6 | request_route { route(RELAI); $ruu = 1; $hdr(X{s.len}); }
  |                               ^^^^
  |
  = help: did you mean `$rU`?

error[syntax]: expected `=` after `$hdr(X{s.len})`, found `;`
 --> test.cfg:6:55
  |
6 | request_route { route(RELAI); $ruu = 1; $hdr(X{s.len}); }
  |                                                       ^

error[transformation]: there is no transformation `s.lem`
 --> test.cfg:7:31
  |
7 | route[RELAY] { $var(x) = $(ru{s.lem}); $x = $msg(size); }
  |                               ^^^^^
  |
  = help: did you mean `s.len`?

error[unknown-variable]: there is no pseudo-variable `$x`
 --> test.cfg:7:40
  |
7 | route[RELAY] { $var(x) = $(ru{s.lem}); $x = $msg(size); }
  |                                        ^^
  |
  = help: a variable of your own is written `$var(x)`

error[variable]: `$msg` has no `size`; it has: len, id
 --> test.cfg:7:45
  |
7 | route[RELAY] { $var(x) = $(ru{s.lem}); $x = $msg(size); }
  |                                             ^^^^^^^^^^
"#
    );
}

#[test]
fn what_is_not_supported_says_why() {
    assert_snapshot!(diagnose("user = nobody\nchildren = 4\nloadmodule \"kex.so\"\nloadmodule \"db_mysql.so\"\nroute { fix_nated_contact(); @to.tag; }\n"), @r#"
error[unsupported-setting]: the setting `user` is not supported
 --> test.cfg:1:1
  |
1 | user = nobody
  | ^^^^^^^^^^^^^
  |
  = help: start the server as that user instead

note[harmless]: 2 settings are accepted and mean nothing here
 --> test.cfg:2:1
  |
2 | children = 4
  | ^^^^^^^^
  |
  = help: `children`: one thread serves each core
  = help: `kex`: it is part of the core here

error[unsupported-module]: the module `db_mysql` is not supported
 --> test.cfg:4:12
  |
4 | loadmodule "db_mysql.so"
  |            ^^^^^^^^^^^^^
  |
  = help: there are no databases yet

error[unsupported-function]: the function `fix_nated_contact` is not supported
 --> test.cfg:5:9
  |
5 | route { fix_nated_contact(); @to.tag; }
  |         ^^^^^^^^^^^^^^^^^
  |
  = help: use force_rport() instead

error[syntax]: expected a statement, found `@to.tag`
 --> test.cfg:5:30
  |
5 | route { fix_nated_contact(); @to.tag; }
  |                              ^^^^^^^
"#);
}

#[test]
fn only_harmless_things_make_one_note() {
    assert_snapshot!(diagnose("fork = yes\nchildren = 4\nloadmodule \"usrloc.so\"\nmodparam(\"usrloc\", \"hash_size\", 14)\nroute { exit; }\n"), @r#"
note[harmless]: 3 settings are accepted and mean nothing here
 --> test.cfg:1:1
  |
1 | fork = yes
  | ^^^^
  |
  = help: `fork`: the server does not fork
  = help: `children`: one thread serves each core
  = help: `usrloc: hash_size`: tables grow by themselves
"#);
}

#[test]
fn wrong_arguments() {
    assert_snapshot!(
        route("forward(1, 2, 3);\nsetflag();\nsetflag(\"high\");\nmatches($ru, \"(\");\nt_on_reply(\"nowhere\");\nt_on_failure($ru);"),
        @r#"
error[arguments]: `forward` takes 0 to 2 arguments, here are 3
 --> test.cfg:3:1
  |
3 | forward(1, 2, 3);
  | ^^^^^^^^^^^^^^^^
  |
  = help: write `forward([text], [number])`

error[arguments]: `setflag` takes 1 argument, here are 0
 --> test.cfg:4:1
  |
4 | setflag();
  | ^^^^^^^^^
  |
  = help: write `setflag(number)`

error[argument]: `number` of `setflag` must be an integer
 --> test.cfg:5:9
  |
5 | setflag("high");
  |         ^^^^^^
  |
  = help: write `setflag(number)`

error[regex]: this regular expression cannot be used: unclosed group
 --> test.cfg:6:14
  |
6 | matches($ru, "(");
  |              ^^^

error[unknown-route]: there is no `onreply_route[nowhere]`
 --> test.cfg:7:12
  |
7 | t_on_reply("nowhere");
  |            ^^^^^^^^^
  |
  = help: add: onreply_route[nowhere] { ... }

error[argument]: `route` of `t_on_failure` must be the name of a route in quotes
 --> test.cfg:8:14
  |
8 | t_on_failure($ru);
  |              ^^^
  |
  = help: write `t_on_failure(route)`
"#
    );
}

#[test]
fn functions_in_routes_where_they_cannot_work() {
    assert_snapshot!(
        diagnose("loadmodule \"tm.so\"\nrequest_route { t_on_reply(\"R\"); route(BOTH); }\nonreply_route[R] {\n  t_relay();\n  route(REPLIES);\n  route(BOTH);\n}\nroute[REPLIES] { t_relay(); }\nroute[BOTH] { t_relay(); }\n"),
        @r#"
error[context]: `t_relay` cannot be used in `onreply_route[R]`
 --> test.cfg:4:3
  |
4 |   t_relay();
  |   ^^^^^^^
  |
  = help: `t_relay` works in: route, failure_route

error[context]: `t_relay` cannot be used in `route[REPLIES]`
 --> test.cfg:8:18
  |
5 |   route(REPLIES);
  |   -------------- the route is called from here, in `onreply_route`
...
8 | route[REPLIES] { t_relay(); }
  |                  ^^^^^^^
  |
  = help: `t_relay` works in: route, failure_route

note[context]: `t_relay` does nothing when this route is called from `onreply_route`
 --> test.cfg:9:15
  |
6 |   route(BOTH);
  |   ----------- it is called from here
...
9 | route[BOTH] { t_relay(); }
  |               ^^^^^^^
  |
  = help: `t_relay` works in: route, failure_route
"#
    );
}

#[test]
fn assignment_in_a_condition() {
    assert_snapshot!(route("if ($rm = \"INVITE\") exit;"), @r#"
error[assignment-in-condition]: `=` assigns; it does not compare
 --> test.cfg:3:9
  |
3 | if ($rm = "INVITE") exit;
  |         ^ here
  |
  = help: write `==`
"#);
}

#[test]
fn missing_semicolons() {
    assert_snapshot!(route("\tforce_rport()\n\t$var(x) = 1\n\tsetflag(1) setflag(2);"), @r#"
error[semicolon]: a `;` is missing at the end of this statement
 --> test.cfg:3:15
  |
3 |     force_rport()
  |                  ^ add `;` here

error[semicolon]: a `;` is missing at the end of this statement
 --> test.cfg:4:13
  |
4 |     $var(x) = 1
  |                ^ add `;` here

error[semicolon]: a `;` is missing at the end of this statement
 --> test.cfg:5:12
  |
5 |     setflag(1) setflag(2);
  |               ^------- found `setflag`
  |               |
  |               add `;` here
"#);
}

#[test]
fn what_is_never_closed() {
    assert_snapshot!(diagnose("route {\n  if (1) {\n    log(1, \"x\");\n}\n\nroute[A] {\n  exit;\n}\n"), @r#"
error[unclosed]: this block is never closed
 --> test.cfg:1:7
  |
1 | route {
  |       ^ no `}` closes this `{`
2 |   if (1) {
  |          - is its `}` missing? The next one stands further left
...
6 | route[A] {
  | ----- another block begins here
"#);
    assert_snapshot!(diagnose("route {\n  log(1, \"x);\n  log(1, \"y\");\n  nothing();\n}\n"), @r#"
error[open-string]: this string is never closed
 --> test.cfg:2:10
  |
2 |   log(1, "x);
  |          ^^^^ no `"` ends it

error[unknown-function]: there is no function `nothing`
 --> test.cfg:4:3
  |
4 |   nothing();
  |   ^^^^^^^
"#);
    assert_snapshot!(diagnose("route {\n  /* the rest\n}\n#!ifdef X\n"), @r#"
error[unclosed]: this block is never closed
 --> test.cfg:1:7
  |
1 | route {
  |       ^ no `}` closes this `{`
...
4 | #!ifdef X
  |          - the file ends here

error[open-comment]: this comment is never closed
 --> test.cfg:2:3
  |
2 |   /* the rest
  |   ^^ it starts here
  |
  = help: end it with `*/`
"#);
    assert_snapshot!(diagnose("#!ifdef X\nroute { exit; }\n"), @r#"
error[open-conditional]: this condition is never closed
 --> test.cfg:1:1
  |
1 | #!ifdef X
  | ^^^^^^^^^ it starts here
  |
  = help: end it with `#!endif`
"#);
}

#[test]
fn several_errors_are_found_at_once() {
    assert_snapshot!(route("if ($ru ==) exit;\nif (t_relay() exit;\n$var(x) = ;\nelse exit;\ntm_relay();"), @r#"
error[syntax]: expected a value, found `)`
 --> test.cfg:3:11
  |
3 | if ($ru ==) exit;
  |           ^ an expression belongs here

error[unclosed]: expected `)`, found `exit`
 --> test.cfg:4:15
  |
4 | if (t_relay() exit;
  |    -          ^^^^ expected `)`
  |    |
  |    to close this

error[syntax]: expected a value, found `;`
 --> test.cfg:5:11
  |
5 | $var(x) = ;
  |           ^ an expression belongs here

error[syntax]: this `else` belongs to no `if`
 --> test.cfg:6:1
  |
6 | else exit;
  | ^^^^
  |
  = help: there is no `;` between the `}` of an `if` and its `else`

warning[unreachable]: this is never reached
 --> test.cfg:7:1
  |
6 | else exit;
  | ---------- nothing behind this runs
7 | tm_relay();
  | ^^^^^^^^^^^

error[unknown-function]: there is no function `tm_relay`
 --> test.cfg:7:1
  |
7 | tm_relay();
  | ^^^^^^^^
  |
  = help: did you mean `t_relay`?
"#);
}

#[test]
fn stray_semicolons_before_else() {
    assert_snapshot!(route("if (1) { exit; }; else { drop; }"), @r#"
error[syntax]: a `;` separates this `else` from its `if`
 --> test.cfg:3:17
  |
3 | if (1) { exit; }; else { drop; }
  |                 ^
  |
  = help: remove this `;`
"#);
}

#[test]
fn routes_twice_unused_and_missing() {
    assert_snapshot!(diagnose("route[A] { exit; }\nroute[A] { exit; }\nfailure_route[F] { exit; }\nevent_route[tm:local-request] { exit; }\nbranch_route { exit; }\n"), @r#"
error[duplicate-route]: there are two `route[A]` blocks
 --> test.cfg:2:1
  |
1 | route[A] { exit; }
  | -------- the first one
2 | route[A] { exit; }
  | ^^^^^^^^ the second one
  |
  = help: give one of them another name, or join them

error[route-kind]: this server does not run `event_route` blocks
 --> test.cfg:4:1
  |
4 | event_route[tm:local-request] { exit; }
  | ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ would never run
  |
  = help: it runs: route, onreply_route, failure_route, branch_route

error[route-name]: a `branch_route` needs a name
 --> test.cfg:5:1
  |
5 | branch_route { exit; }
  | ^^^^^^^^^^^^
  |
  = help: write `branch_route[NAME]`

error[no-main-route]: there is no `request_route`
 |
 = help: requests begin in it: write `request_route { ... }`
"#);
}

#[test]
fn code_that_is_never_reached() {
    assert_snapshot!(route("if (1) { exit; } else { return; }\nsetflag(1);\nsetflag(2);"), @r#"
warning[unreachable]: this is never reached
 --> test.cfg:4:1
  |
3 | if (1) { exit; } else { return; }
  | --------------------------------- nothing behind this runs
4 | setflag(1);
  | ^^^^^^^^^^^
"#);
}

#[test]
fn variables_inside_plain_strings() {
    assert_snapshot!(route("$var(x) = \"sip:$rU@x\";\n$ru = 10 / 0;\n$rm = \"BYE\";\nlog(1, \"costs $ 5\");\nlog(1, \"$(ru\");"), @r#"
warning[no-format]: `$rU` is not replaced in this string
 --> test.cfg:3:16
  |
3 | $var(x) = "sip:$rU@x";
  |                ^^^
  |
  = help: join strings with `+`, or write `$_s(...)` around the text

error[division]: this divides by zero
 --> test.cfg:4:7
  |
4 | $ru = 10 / 0;
  |       ^^^^^^

error[assignment]: `$rm` cannot be assigned to
 --> test.cfg:5:1
  |
5 | $rm = "BYE";
  | ^^^ read only

warning[dollar]: this `$` begins no pseudo-variable
 --> test.cfg:6:15
  |
6 | log(1, "costs $ 5");
  |               ^
  |
  = help: write `$$` for a dollar sign

error[open-variable]: a `)` is missing
 --> test.cfg:7:9
  |
7 | log(1, "$(ru");
  |         ^ for this pseudo-variable
"#);
}

#[test]
fn bare_words_and_myself() {
    assert_snapshot!(route("if ($rm == INVITE) exit;\n$var(x) = myself;\nset_it = 5;\nT_RELAY();"), @r#"
error[bare-word]: `INVITE` is not a value
 --> test.cfg:3:12
  |
3 | if ($rm == INVITE) exit;
  |            ^^^^^^
  |
  = help: a string needs quotes: "INVITE"

error[myself]: `myself` is not a value
 --> test.cfg:4:11
  |
4 | $var(x) = myself;
  |           ^^^^^^
  |
  = help: compare with it: `uri == myself`, `src_ip != myself`

error[syntax]: `set_it` does not begin a statement
 --> test.cfg:5:1
  |
5 | set_it = 5;
  | ^^^^^^
  |
  = help: settings stand outside of routes; inside, assign to a variable like `$var(x)`

error[unknown-function]: there is no function `T_RELAY`
 --> test.cfg:6:1
  |
6 | T_RELAY();
  | ^^^^^^^
  |
  = help: did you mean `t_relay`?
"#);
}

#[test]
fn values_of_settings() {
    assert_snapshot!(diagnose("debug = lots\ntimeout = 100\nport = 5060 5061\nlisten = udp:[::1\nlisten = udp:127.0.0.1:5060 advertize 1.2.3.4\nfork yes\nmodparam(\"core\", \"x\")\nroute { exit; }\n"), @r#"
error[value]: `debug` takes an integer, not `lots`
 --> test.cfg:1:9
  |
1 | debug = lots
  |         ^^^^

error[value]: `timeout` takes an integer from 1 to 60, not 100
 --> test.cfg:2:11
  |
2 | timeout = 100
  |           ^^^

error[value]: `port` takes one value
 --> test.cfg:3:13
  |
3 | port = 5060 5061
  |             ^^^^

error[socket]: `udp:[::1` is not a socket
 --> test.cfg:4:10
  |
4 | listen = udp:[::1
  |          ^^^^^^^^
  |
  = help: write `udp:10.0.0.1:5060`, with IPv6 addresses in brackets, and `advertise host:port` behind it

error[socket]: `advertize` is not known behind a socket
 --> test.cfg:5:29
  |
5 | listen = udp:127.0.0.1:5060 advertize 1.2.3.4
  |                             ^^^^^^^^^
  |
  = help: write `udp:10.0.0.1:5060`, with IPv6 addresses in brackets, and `advertise host:port` behind it

error[syntax]: `fork` is not known here
 --> test.cfg:6:1
  |
6 | fork yes
  | ^^^^ expected a setting, `loadmodule`, `modparam` or a route
  |
  = help: settings are written `fork = value`

error[modparam]: `modparam` takes three values, here are 2
 --> test.cfg:7:1
  |
7 | modparam("core", "x")
  | ^^^^^^^^^^^^^^^^^^^^^
  |
  = help: write `modparam("module", "parameter", value)`
"#);
}

#[test]
fn definitions() {
    assert_snapshot!(diagnose("#!define A 1\n#!define A 2\n#!ifdfe A\n#!endif\n#!subst \"/(/x/\"\ninclude_file \"gone.cfg\"\nimport_file \"also-gone.cfg\"\nroute { $var(x) = $def(B); }\n"), @r#"
error[define-twice]: `A` is already defined
 --> test.cfg:2:1
  |
1 | #!define A 1
  | ------------ first defined here
2 | #!define A 2
  | ^^^^^^^^^^^^ defined again
  |
  = help: `#!redefine` replaces a definition, `#!trydef` keeps the first

warning[unknown-directive]: `#!ifdfe` is not a directive; the line is a comment
 --> test.cfg:3:1
  |
3 | #!ifdfe A
  | ^^^^^^^^^
  |
  = help: did you mean `#!ifdef`?

error[stray-conditional]: `#!endif` without a condition before it
 --> test.cfg:4:1
  |
4 | #!endif
  | ^^^^^^^
  |
  = help: `#!ifdef`, `#!ifndef` or `#!ifexp` opens a condition

error[subst]: this substitution cannot be used: unclosed group
 --> test.cfg:5:1
  |
5 | #!subst "/(/x/"
  | ^^^^^^^^^^^^^^^

error[include]: there is no file `gone.cfg`
 --> test.cfg:6:14
  |
6 | include_file "gone.cfg"
  |              ^^^^^^^^^^
  |
  = help: `import_file` instead of `include_file` takes a missing file as an empty one

error[definition]: `B` is not defined
 --> test.cfg:8:19
  |
8 | route { $var(x) = $def(B); }
  |                   ^^^^^^^
"#);
}

#[test]
fn statements_outside_of_routes() {
    assert_snapshot!(diagnose("route {\n  exit;\n}\n}\nif (1) { exit; }\nlog(1, \"x\");\nruote[X] { exit; }\n"), @r#"
error[syntax]: this `}` closes nothing
 --> test.cfg:4:1
  |
4 | }
  | ^ no block is open here
  |
  = help: is there a `{` missing, or one `}` too many, above?

error[outside-route]: `if` belongs inside a route
 --> test.cfg:5:1
  |
5 | if (1) { exit; }
  | ^^ no route is open here
  |
  = help: is there one `}` too many above?

error[outside-route]: `log` belongs inside a route
 --> test.cfg:6:1
  |
6 | log(1, "x");
  | ^^^ no route is open here
  |
  = help: is there one `}` too many above?

error[syntax]: `ruote` is not known here
 --> test.cfg:7:1
  |
7 | ruote[X] { exit; }
  | ^^^^^ expected a setting, `loadmodule`, `modparam` or a route
  |
  = help: did you mean `route`?
"#);
}

/// A quote that is missing makes a text of many lines; the message that repeats it stays one.
#[test]
fn a_message_is_one_line_whatever_text_it_repeats() {
    let text = "listen=\"localhost\n  and more\r\n\"\nroute { exit; }\n";
    let rejected =
        route::load(text, "test.cfg", &support::catalogue(), &route::NoFiles, &[]).expect_err("no socket");
    let messages: Vec<&str> = rejected.diagnostics.iter().map(|finding| finding.message.as_str()).collect();
    assert_eq!(messages, ["`localhost and more ` is not a socket"]);
}
