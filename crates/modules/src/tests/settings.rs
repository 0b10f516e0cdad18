//! What a configuration sets, and what it cannot.

use super::*;
use crate::{ListenHost, PathMode};
use location::BelowMinimum;

pub(super) fn settings(text: &str) -> Settings {
    let program = program(&format!("{text}\nrequest_route {{ exit; }}\n"), &crate::catalogue());
    Settings::from_program(&program).unwrap_or_else(|errors| panic!("{errors:?}"))
}

/// The texts that the errors of a configuration point at, with their messages.
pub(super) fn errors(text: &str) -> Vec<(String, String)> {
    let text = format!("{text}\nrequest_route {{ exit; }}\n");
    let found = match check(&text, &crate::catalogue()) {
        Ok(program) => Settings::from_program(&program).expect_err("an error"),
        Err(rejected) => rejected.diagnostics,
    };
    let at = |error: &Diagnostic| {
        let span = error.span().unwrap_or_default();
        text.get(span.start as usize..span.end as usize).unwrap_or_default().to_string()
    };
    found.iter().filter(|error| error.is_error()).map(|error| (at(error), error.message.clone())).collect()
}

#[test]
fn nothing_set_is_all_defaults() {
    let settings = settings("");
    assert!(settings.listen.is_empty());
    assert_eq!(settings.timers, engine::Timers::default());
    assert_eq!(settings.server_header.as_deref(), Some("strowger"));
    assert_eq!(settings.registrar.policy.below_minimum, BelowMinimum::Raise);
    assert_eq!(settings.registrar.path_mode, PathMode::Required);
    assert!(settings.auto_100 && settings.append_fromtag && settings.notes.is_empty());
    assert_eq!(settings.expire_interval, Duration::from_secs(60));
}

#[test]
fn listeners_names_and_ports_are_read() {
    let settings = settings(
        "port=5080\nlisten=udp:127.0.0.1:5070\nlisten=10.0.0.1\nlisten=udp:[::1]:5071\nlisten=udp:eth0\nlisten=udp:10.0.0.2:5072 advertise 192.0.2.1:5060\nalias=\"example.org\"\nalias=udp:sip.example.org:5090\nadvertised_address=\"192.0.2.9\"\n",
    );
    let found: Vec<_> = settings.listen.iter().map(|listen| (listen.host.clone(), listen.port)).collect();
    let address = |text: &str| ListenHost::Address(text.parse().unwrap());
    assert_eq!(
        found,
        [
            (address("127.0.0.1"), 5070),
            (address("10.0.0.1"), 5080),
            (address("::1"), 5071),
            (ListenHost::Named("eth0".into()), 5080),
            (address("10.0.0.2"), 5072),
        ]
    );
    assert_eq!(settings.listen[0].advertise, Some(("192.0.2.9".into(), 5080)));
    assert_eq!(settings.listen[4].advertise, Some(("192.0.2.1".into(), 5060)));
    assert_eq!(settings.aliases[0].host, "example.org");
    assert_eq!((settings.aliases[1].port, settings.aliases[1].transport), (Some(5090), Some(Transport::Udp)));
}

#[test]
fn timers_are_milliseconds() {
    let settings = settings(
        "loadmodule \"tm.so\"\nmodparam(\"tm\", \"retr_timer1\", 250)\nmodparam(\"tm\", \"fr_timer\", 5000)\nmodparam(\"tm\", \"fr_inv_timer\", 120000)\n",
    );
    assert_eq!(settings.timers.t1, Duration::from_millis(250));
    assert_eq!(settings.timers.timer_b, Duration::from_secs(5));
    assert_eq!(settings.timers.timer_f, Duration::from_secs(5));
    assert_eq!(settings.timers.timer_h, Duration::from_secs(16));
    assert_eq!(settings.timers.timer_c, Duration::from_secs(120));
    // RFC 3261 §16.6 item 11 asks for more than three minutes.
    assert_eq!(settings.notes.len(), 1);
}

#[test]
fn the_server_header_is_what_is_set() {
    assert_eq!(settings("server_header=\"Server: X/1\"").server_header.as_deref(), Some("X/1"));
    assert_eq!(settings("server_signature=no").server_header, None);
    assert_eq!(settings("debug=3").log_level, Level::Debug);
    assert_eq!(settings("debug=-1").log_level, Level::Error);
}

#[test]
fn harmless_settings_are_accepted() {
    settings(
        "children=8\nfork=yes\nmpath=\"/usr/lib\"\nlog_facility=LOG_LOCAL0\ndisable_tcp=yes\nmhomed=no\ntcp_children=4\nmemdbg=5",
    );
}

#[test]
fn what_cannot_be_honoured_is_an_error_at_its_place() {
    for (text, place) in [
        ("mhomed=yes", "yes"),
        ("rev_dns=yes", "yes"),
        ("user=\"sip\"", "sip"),
        ("listen=sctp:127.0.0.1:5060", "sctp:127.0.0.1:5060"),
        ("tcp_accept_haproxy=yes", "yes"),
        ("tcp_connection_lifetime=0", "0"),
        ("udp_mtu_try_proto=SCTP", "SCTP"),
        ("tls_certificate=\"/etc/cert.pem\"", "/etc/cert.pem"),
        ("debug=99", "99"),
        ("port=70000", "70000"),
    ] {
        let found = errors(text);
        assert_eq!(found.len(), 1, "{text}: {found:?}");
        assert!(found[0].0.contains(place) || text.contains(&found[0].0), "{text}: {found:?}");
    }
}

#[test]
fn parameters_that_contradict_each_other_are_errors() {
    let registrar = "loadmodule \"usrloc.so\"\nloadmodule \"registrar.so\"\n";
    let found = errors(&format!("{registrar}modparam(\"registrar\", \"max_expires\", 30)"));
    assert!(found[0].1.contains("shorter than the shortest"), "{found:?}");
    let found = errors("loadmodule \"tm.so\"\nmodparam(\"tm\", \"retr_timer2\", 100)");
    assert!(found[0].1.contains("shorter than the first"), "{found:?}");
    let found = errors(&format!("{registrar}modparam(\"registrar\", \"received_avp\", \"$var(x)\")"));
    assert!(found[0].1.contains("$avp"), "{found:?}");
    assert_eq!(errors("loadmodule \"usrloc.so\"\nmodparam(\"usrloc\", \"db_mode\", 1)").len(), 1);
}

#[test]
fn absent_functions_and_modules_say_what_to_do() {
    let text = "loadmodule \"tm.so\"\nrequest_route { t_set_retr(500, 4000); }";
    let rejected = check(text, &crate::catalogue()).expect_err("an error").render(Colour::Never);
    assert!(rejected.contains("retr_timer1"), "{rejected}");
    let text = "loadmodule \"dialog.so\"\nrequest_route { exit; }";
    assert!(check(text, &crate::catalogue()).is_err());
    let text = "loadmodule \"kex.so\"\nloadmodule \"ctl.so\"\nrequest_route { exit; }";
    assert!(check(text, &crate::catalogue()).is_ok());
}
