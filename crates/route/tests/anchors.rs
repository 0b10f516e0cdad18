//! Configurations that others wrote load verbatim: the one of the 2003 thesis, and Kamailio's.

#![allow(clippy::unwrap_used)]

mod support;

use route::{Constant, Machine, NoFiles, RouteKind, Step, Verdict};
use support::{FakeHost, catalogue, load};

const THESIS: &str = include_str!("data/ser-2003.cfg");

fn run(text: &str, host: &mut FakeHost) -> Verdict {
    let loaded = load(text);
    let route = loaded.program.entry(RouteKind::Request, None).unwrap();
    match Machine::new().run(&loaded.program, route, host) {
        Step::Done(verdict) => verdict,
        Step::Suspended(_) => panic!("suspended"),
    }
}

#[test]
fn configuration_of_the_thesis_loads_verbatim() {
    let loaded = load(THESIS);
    assert!(loaded.diagnostics.iter().all(|finding| finding.code == "harmless"), "{:?}", loaded.diagnostics);
    let port = loaded.program.settings().iter().find(|setting| setting.value == Constant::Int(5060));
    assert!(port.is_some());
    assert_eq!(loaded.program.modules().len(), 7);
    assert_eq!(loaded.program.modparams().len(), 1);
}

#[test]
fn configuration_of_the_thesis_registers() {
    let mut host = FakeHost::new();
    host.variables.insert("rm", "REGISTER".into());
    host.codes.insert("len_gt", -1);
    assert_eq!(run(THESIS, &mut host), Verdict::End(1));
    assert_eq!(
        host.calls,
        [
            "mf_process_maxfwd_header(10)",
            "len_gt(0)",
            "record_route()",
            "loose_route()",
            "save(\"location\")"
        ]
    );
}

#[test]
fn configuration_of_the_thesis_relays() {
    let mut host = FakeHost::new();
    host.codes.insert("len_gt", -1);
    host.codes.insert("t_relay", -1);
    run(THESIS, &mut host);
    assert_eq!(host.calls[4..], ["lookup(\"location\")", "t_relay()", "sl_reply_error()"]);
}

#[test]
fn configuration_of_the_thesis_stops_at_too_many_hops() {
    let mut host = FakeHost::new();
    host.codes.insert("mf_process_maxfwd_header", -1);
    run(THESIS, &mut host);
    assert_eq!(host.calls[1..], ["sl_send_reply(483, \"Too Many Hops\")"]);
}

#[test]
fn configurations_of_kamailio_load_verbatim() {
    for text in [
        include_str!("data/kamailio-stateful.cfg"),
        include_str!("data/kamailio-stateless.cfg"),
        include_str!("data/kamailio-redirect.cfg"),
    ] {
        let loaded = load(text);
        assert_eq!(loaded.diagnostics.len(), 1, "one note about what is harmless");
    }
}

#[test]
fn stateful_configuration_of_kamailio_runs() {
    let text = include_str!("data/kamailio-stateful.cfg");
    let mut host = FakeHost::new();
    for (name, code) in [("is_method", -1), ("has_totag", -1)] {
        host.codes.insert(name, code);
    }
    assert_eq!(run(text, &mut host), Verdict::End(1));
    assert_eq!(host.calls[3..], ["record_route()", "lookup(\"location\")", "t_relay()"]);
    host.codes.insert("has_totag", 1);
    host.calls.clear();
    assert_eq!(run(text, &mut host), Verdict::Exit);
    assert_eq!(host.calls[3..], ["loose_route()", "t_relay()"]);
}

#[test]
fn steps_of_a_whole_request_stay_few() {
    let loaded = load(include_str!("data/kamailio-stateful.cfg"));
    let route = loaded.program.entry(RouteKind::Request, None).unwrap();
    let mut machine = Machine::new();
    let mut host = FakeHost::new();
    host.codes.insert("is_method", -1);
    host.codes.insert("has_totag", -1);
    machine.run(&loaded.program, route, &mut host);
    assert!(machine.steps() < 25, "{}", machine.steps());
}

/// Not run by default: `KAMAILIO_CFG=/etc/kamailio/kamailio.cfg cargo test -p route -- --ignored --nocapture`.
#[test]
#[ignore = "needs a configuration of Kamailio on this machine"]
#[allow(clippy::disallowed_methods)]
fn default_configuration_of_kamailio_has_no_syntax_errors() {
    let path = std::env::var("KAMAILIO_CFG").unwrap();
    let text = std::fs::read_to_string(path).unwrap();
    let features = [
        "WITH_MYSQL",
        "WITH_AUTH",
        "WITH_NAT",
        "WITH_PSTN",
        "WITH_VOICEMAIL",
        "WITH_ANTIFLOOD",
        "WITH_JSONRPC",
        "WITH_TLS",
    ];
    let all: Vec<(&str, &str)> = features.iter().map(|name| (*name, "")).collect();
    for defines in [&[][..], &all] {
        let rejected = route::load(&text, "kamailio.cfg", &catalogue(), &NoFiles, defines).unwrap_err();
        println!("{}", rejected.render(route::Colour::Never));
        for finding in &rejected.diagnostics {
            assert!(
                !matches!(
                    finding.code,
                    "syntax" | "unclosed" | "semicolon" | "nesting" | "open-string" | "variable"
                ),
                "{finding:?}"
            );
        }
    }
}
