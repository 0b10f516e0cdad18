//! No text may panic, and no program may pass its limits.

mod support;

use proptest::collection::vec;
use proptest::prelude::*;
use route::{Machine, NoFiles, RouteKind, Step, limits};
use support::{FakeHost, catalogue};

const WORDS: &[&str] = &[
    "route",
    "request_route",
    "onreply_route",
    "failure_route",
    "if",
    "else",
    "while",
    "switch",
    "case",
    "default",
    "break",
    "return",
    "exit",
    "drop",
    "loadmodule",
    "modparam",
    "listen",
    "debug",
    "include_file",
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    ";",
    ",",
    ":",
    "=",
    "==",
    "!=",
    "=~",
    "!~",
    "<",
    ">",
    "&&",
    "||",
    "!",
    "+",
    "-",
    "*",
    "/",
    ".",
    "&",
    "|",
    "^",
    "~",
    "<<",
    ">>",
    "+=",
    "\n",
    "\n#!define A B\n",
    "\n#!define B 1 + A\n",
    "A",
    "B",
    "\n#!ifdef A\n",
    "\n#!else\n",
    "\n#!endif\n",
    "\n#!ifexp A ==\n",
    "\n#!subst \"/a/b/\"\n",
    "/*",
    "*/",
    "#",
    "//",
    "\"",
    "'",
    "\\",
    "\"text\"",
    "\"$rU x\"",
    "\"$(ru\"",
    "\"(\"",
    "$ru",
    "$(ru{uri.user})",
    "$(ru{s.substr,1,$var(x)})",
    "$(hdr(X)[-1])",
    "$(hdr(X)[$var(x)])",
    "$avp($ru)",
    "$var(x)",
    "$(var(x){re.subst,/a/b/g})",
    "$",
    "$(",
    "$null",
    "$rc",
    "myself",
    "uri",
    "method",
    "src_ip",
    "max_len",
    "10.0.0.0/8",
    "[::1]",
    "0",
    "1",
    "-1",
    "99999999999999999999",
    "0x",
    "t_relay",
    "ask",
    "code",
    "show",
    "log",
    "setflag",
    "exit;",
    "{ if (",
    "strlen(",
    "defined",
    "(int)",
    "(str)",
    "not",
    "mod",
    "udp:127.0.0.1:5060",
    "@to",
    "\u{e9}",
    "\0",
    "case /x/:",
    "route(",
    "[A]",
];

fn soup() -> impl Strategy<Value = String> {
    vec((0..WORDS.len(), any::<bool>()), 0..80).prop_map(|words| {
        let mut text = String::new();
        for (word, space) in words {
            text.push_str(WORDS[word]);
            if space {
                text.push(' ');
            }
        }
        text
    })
}

/// An expression that is well formed.
fn expression() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        any::<i32>().prop_map(|value| format!("({value})")),
        "[a-z0-9]{0,8}".prop_map(|text| format!("\"{text}\"")),
        prop::sample::select(vec![
            "$ru",
            "$rU",
            "$var(a)",
            "$var(b)",
            "$avp(x)",
            "$(avp(x)[*])",
            "$null",
            "$rc",
            "$(ru{s.len})",
            "$_s($rU-$var(a))",
            "$(ru{s.select,-1,@})",
            "$(var(a){s.substr,-2,9})",
            "code(-1)",
            "ask(\"$var(b)\")",
            "route(A)",
            "$(ru{s.replace,a,$var(a)})",
            "$(var(b){re.subst,/[a-z]*/<\\0>/g})",
        ])
        .prop_map(ToString::to_string),
    ];
    leaf.prop_recursive(4, 32, 2, |inner| {
        let operators = vec![
            "+", "-", "*", "/", "%", ".", "==", "!=", "<", ">", "&&", "||", "&", "|", "^", "<<", ">>", "ieq",
            "ne", "=~",
        ];
        prop_oneof![
            (inner.clone(), prop::sample::select(operators), inner.clone())
                .prop_map(|(left, operator, right)| format!("({left} {operator} {right})")),
            (prop::sample::select(vec!["!", "-", "~", "(int)", "(str)", "defined "]), inner.clone())
                .prop_map(|(operator, operand)| format!("({operator}{operand})")),
            inner.clone().prop_map(|operand| format!("strlen({operand})")),
        ]
    })
}

fn statement() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        (prop::sample::select(vec!["$var(a)", "$var(b)", "$avp(x)", "$(avp(x)[*])", "$ru"]), expression())
            .prop_map(|(target, value)| format!("{target} = {value};")),
        expression().prop_map(|value| format!("show({value});")),
        Just("route(A);".to_string()),
        Just("return $var(a);".to_string()),
        Just("break;".to_string()),
        Just("log(1, \"$ru $avp(x) $var(a)\");".to_string()),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            (expression(), vec(inner.clone(), 1..4), vec(inner.clone(), 0..3)).prop_map(
                |(condition, yes, no)| {
                    format!("if (({condition}) == 1) {{ {} }} else {{ {} }}", yes.join(" "), no.join(" "))
                }
            ),
            (expression(), vec(inner.clone(), 1..4))
                .prop_map(|(condition, body)| format!("while (0 != {condition}) {{ {} }}", body.join(" "))),
            (expression(), vec(inner.clone(), 1..4)).prop_map(|(value, body)| format!(
                "switch ({value}) {{ case 0: {} default: show(0); }}",
                body.join(" case 1: ")
            )),
        ]
    })
}

fn check(text: &str) {
    match route::load(text, "soup.cfg", &catalogue(), &NoFiles, &[]) {
        Ok(loaded) => {
            let _ = loaded.render(route::Colour::Never);
        }
        Err(rejected) => {
            assert!(rejected.errors() > 0);
            let _ = rejected.render(route::Colour::Always);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn random_bytes_do_not_panic(bytes in vec(any::<u8>(), 0..200)) {
        check(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn random_words_do_not_panic(text in soup()) {
        check(&text);
        check(&format!("route {{ {text} }}"));
    }

    #[test]
    fn a_cut_configuration_does_not_panic(at in 0usize..2000) {
        let text = include_str!("data/kamailio-stateful.cfg");
        let at = at.min(text.len());
        check(&text[..at]);
        check(&text[at..]);
    }

    #[test]
    fn random_programs_stay_inside_their_limits(
        body in vec(statement(), 1..6),
        sub in vec(statement(), 1..4),
        answers in vec(-2i32..3, 40),
    ) {
        let text = format!("request_route {{ {} }}\nroute[A] {{ {} }}", body.join("\n"), sub.join("\n"));
        let loaded = match route::load(&text, "random.cfg", &catalogue(), &NoFiles, &[]) {
            Ok(loaded) => loaded,
            // What these make can be wrong in one way only: a constant expression as divisor, or an expression
            // that is no constant where one must be.
            Err(rejected) => {
                let known = |code: &str| matches!(code, "division" | "regex" | "unused-value" | "unreachable" | "condition" | "no-format" | "duplicate-case");
                prop_assert!(rejected.diagnostics.iter().all(|finding| known(finding.code)), "{}\n{}", text, rejected.render(route::Colour::Never));
                return Ok(());
            }
        };
        let route = loaded.program.entry(RouteKind::Request, None).unwrap();
        let mut host = FakeHost::new();
        let mut machine = Machine::new();
        machine.set_steps_max(20_000);
        let mut step = machine.run(&loaded.program, route, &mut host);
        for answer in answers {
            prop_assert!(machine.steps() <= 20_001);
            match step {
                Step::Done(_) => break,
                Step::Suspended(frame) => {
                    prop_assert!(frame.size() <= 4 * limits::ARENA_BYTES_MAX);
                    step = machine.resume(&loaded.program, frame, answer, &mut host);
                }
            }
        }
    }
}
