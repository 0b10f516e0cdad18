//! sipstone against real servers: what it counts is what they did, and what went wrong is said in a sentence.
//!
//! On a loaded machine the generator is late, and sipstone rightly calls the measurement invalid (exit code 3). So the
//! tests look at what was counted, never at how long it took.

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use end_to_end::{
    Kamailio, Outcome, Report, Running, Scratch, Server, Signal, Sipstone, Start, loopback, loopback_v6,
    only_strowger, strowger_binary,
};

/// A second of load that no machine is too slow for.
const LOAD: &str = "--rate 100 --duration 1s --warm-up 0s --users 30";

/// Ringing makes a call so long that a generator which is a little late is still within its limit, a tenth of that.
const UNHURRIED: &str = "--rate 60 --duration 1s --warm-up 0s --users 30 --ring 400ms";

/// What begins the complaints about a generator that a busy machine keeps from its schedule.
const BUSY: [&str; 3] = ["the generator was late", "the offered rate was", "the generator used"];

/// How soon a command that cannot work must say so.
const SOON: Duration = Duration::from_secs(15);

/// All classes of the only trial.
const ALL: &str = "/subjects/0/trials/0/all";

/// A configuration of the published benchmarks.
fn benchmark(name: &str) -> Server {
    Start::configuration(&format!("../../docs/benchmarks/2007/{name}")).spawn()
}

fn kamailio(name: &str, arguments: &[&str]) -> Kamailio {
    Kamailio::start(&format!("docs/benchmarks/2007/{name}.cfg"), arguments)
}

/// The configuration that demands credentials, for nothing but the first request of a call.
fn kamailio_with_digest(algorithm: &str, also_for_bye: bool) -> Kamailio {
    let algorithm = format!("ALGORITHM=\"{algorithm}\"");
    if also_for_bye {
        return kamailio("authenticated", &["-A", &algorithm]);
    }
    Kamailio::start("tests/conf/digest.cfg", &["-A", &algorithm])
}

/// A second of this scenario.
fn run(scenario: &str, target: SocketAddr, options: &str) -> Outcome {
    Sipstone::offering("run", scenario, target).words(LOAD).words(options).finish()
}

/// It came to its end, and nothing is wrong with it but that the machine was busy.
fn assert_measured(outcome: &Outcome) {
    let report = outcome.report();
    let wrong = report.strings("/invalid");
    let wrong: Vec<_> =
        wrong.into_iter().filter(|why| !BUSY.iter().any(|busy| why.starts_with(busy))).collect();
    assert!(wrong.is_empty(), "{wrong:#?}\n{}", outcome.said());
    let valid = report.list("/invalid").is_empty();
    assert_eq!(outcome.code, Some(if valid { 0 } else { 3 }), "{}", outcome.said());
}

/// All that was offered has succeeded.
fn assert_all_succeeded(report: &Report, class: &str) {
    let of = |field: &str| report.at(&format!("{class}/{field}"));
    assert!(of("offered").as_u64() > Some(0), "nothing was offered");
    assert_eq!(of("succeeded"), of("offered"), "{class} failed: {:#}", of("failures"));
    assert_eq!(of("failures"), &serde_json::json!({}));
}

/// Messages into the server and out of it, of each operation.
fn messages(report: &Report, class: &str) -> (f64, f64) {
    (report.number(&format!("{class}/messages_in")), report.number(&format!("{class}/messages_out")))
}

/// Everything succeeded, with exactly these messages in and out.
fn assert_exact(outcome: &Outcome, expected: (f64, f64)) {
    assert_measured(outcome);
    let report = outcome.report();
    assert_all_succeeded(&report, ALL);
    assert_eq!(messages(&report, ALL), expected);
    let row = (
        report.number("/subjects/0/classes/0/messages_in"),
        report.number("/subjects/0/classes/0/messages_out"),
    );
    assert_eq!(row, expected, "the row of the table that the report shows");
}

/// It could not begin, and said why in words that mention these.
fn assert_refused(outcome: &Outcome, mentions: &[&str]) {
    assert_eq!(outcome.code, Some(1), "{}", outcome.said());
    for mention in mentions {
        assert!(outcome.stderr.contains(mention), "{mention} is not in: {}", outcome.said());
    }
    assert_eq!(outcome.file("report.json"), "", "nothing was measured");
}

#[test]
fn options_are_two_messages() {
    let server = Server::start("services");
    assert_exact(&run("options", server.address(), ""), (1.0, 1.0));
}

#[test]
fn users_register() {
    let server = benchmark("stateful");
    assert_exact(&run("register", server.address(), ""), (1.0, 1.0));
}

#[test]
fn users_register_again() {
    let server = benchmark("stateful");
    assert_exact(&run("register-update", server.address(), ""), (1.0, 1.0));
}

#[test]
fn users_log_out() {
    let server = benchmark("stateful");
    let options = "--rate 100 --duration 1s --warm-up 0s --users 400";
    let outcome = Sipstone::offering("run", "register-logout", server.address()).words(options).finish();
    assert_exact(&outcome, (1.0, 1.0));
}

#[test]
fn users_log_out_more_often_than_there_are_users() {
    let server = benchmark("stateful");
    assert_exact(&run("register-logout", server.address(), ""), (1.0, 1.0));
}

#[test]
fn calls_pass_a_stateful_proxy() {
    let server = benchmark("stateful");
    let outcome = run("invite", server.address(), "");
    assert_exact(&outcome, (6.0, 7.0));
    let report = outcome.report();
    assert_eq!(report.number(&format!("{ALL}/trying")), 1.0, "100s");
    for latency in ["latency_sent", "first_18x", "bye"] {
        let count = report.at(&format!("{ALL}/{latency}/count"));
        assert_eq!(count, report.at(&format!("{ALL}/offered")), "{latency}");
    }
}

#[test]
fn calls_pass_a_stateless_proxy() {
    let server = benchmark("stateless");
    let outcome = run("invite", server.address(), "");
    assert_exact(&outcome, (6.0, 6.0));
    assert_eq!(outcome.report().number(&format!("{ALL}/trying")), 0.0, "100s");
}

#[test]
fn a_proxy_of_another_kind_than_said_makes_the_measurement_invalid() {
    for (configuration, said) in [("stateful", "stateless"), ("stateless", "stateful")] {
        let server = benchmark(configuration);
        let outcome = run("invite", server.address(), &format!("--proxy {said}"));
        assert_eq!(outcome.code, Some(3), "{}", outcome.said());
        let report = outcome.report();
        assert_all_succeeded(&report, ALL);
        let invalid = report.strings("/invalid");
        let of_the_proxy = format!("with the {said} proxy that --proxy says");
        assert!(invalid.iter().any(|why| why.contains(&of_the_proxy)), "{invalid:?}");
    }
}

#[test]
fn ringing_calls_are_cancelled() {
    let server = Server::start("services");
    assert_exact(&run("invite-cancel", server.address(), "--cancel-after 200ms"), (6.0, 7.0));
}

#[test]
fn unknown_users_are_not_found_statelessly() {
    let server = benchmark("stateful");
    assert_exact(&run("invite-notfound", server.address(), ""), (2.0, 1.0));
}

#[test]
fn unknown_users_are_not_found_statefully() {
    let server = Server::start("services");
    assert_exact(&run("invite-notfound", server.address(), "--proxy stateful"), (2.0, 2.0));
}

#[test]
fn callers_are_redirected() {
    let server = benchmark("redirect");
    assert_exact(&run("redirect", server.address(), ""), (2.0, 1.0));
}

#[test]
fn calls_leave_by_a_route() {
    let server = Server::start("services");
    assert_exact(&run("outbound", server.address(), ""), (6.0, 7.0));
}

#[test]
fn texts_pass_the_proxy() {
    let server = Server::start("services");
    assert_exact(&run("message", server.address(), ""), (2.0, 2.0));
}

#[test]
fn the_sipstone_mix_has_answered_and_abandoned_calls() {
    let server = Server::start("services");
    let outcome = run("mix:sipstone", server.address(), "--ring exp:100ms:1s --cancel-after 300ms");
    assert_measured(&outcome);
    let report = outcome.report();
    assert_eq!(report.at("/subjects/0/name"), "mix:sipstone");
    for (class, name) in [(0, "answered"), (1, "abandoned")] {
        let class = format!("/subjects/0/trials/0/classes/{class}");
        assert_eq!(report.at(&format!("{class}/name")), name);
        assert_all_succeeded(&report, &class);
        assert_eq!(messages(&report, &class), (6.0, 7.0));
    }
    let sum = ["0", "1"].map(|class| report.number(&format!("/subjects/0/trials/0/classes/{class}/offered")));
    assert_eq!(sum[0] + sum[1], report.number(&format!("{ALL}/offered")));
}

#[test]
fn every_class_of_the_other_mixes_succeeds() {
    for (mix, classes) in [
        ("mix:call-centre --ring exp:100ms:1s --cancel-after 300ms", 3),
        ("mix:mobile --ring exp:100ms:1s --cancel-after 300ms", 4),
        ("--mix options=1,invite=2,message=1,register-update=1,outbound=1", 5),
    ] {
        let server = Server::start("services");
        let outcome = Sipstone::offering("run", mix, server.address()).words(LOAD).finish();
        assert_measured(&outcome);
        let report = outcome.report();
        assert_eq!(report.list("/subjects/0/trials/0/classes").len(), classes, "{mix}");
        assert_all_succeeded(&report, ALL);
    }
}

#[test]
fn a_run_is_written_as_json_csv_and_html() {
    let server = benchmark("stateful");
    let outcome = run("invite", server.address(), "--csv run.csv --html run.html --trace --label first");
    assert_measured(&outcome);
    let report = outcome.report();
    assert_schema(&report);
    assert_eq!(report.at("/label"), "first");
    assert_eq!(report.at("/target"), &server.address().to_string());
    assert_eq!(report.number(&format!("{ALL}/offered")), offered_by_second(&report));

    let table = outcome.file("run.csv");
    assert_eq!(table.lines().count(), 2, "a head, and all of the one trial:\n{table}");
    let page = outcome.file("run.html");
    assert!(page.starts_with("<!doctype html>") && page.trim_end().ends_with("</html>"), "{page:.200}");
    assert!(!page.contains("src=\"http") && !page.contains("href=\"http"), "it needs nothing from elsewhere");

    for line in ["── INVITE ──", "◀─ 100 ", "180 Ringing (INVITE)", "── ACK ──", "200 OK (BYE)"]
    {
        assert!(outcome.stderr.contains(line), "{line} is not in the ladder:\n{}", outcome.stderr);
    }
    let path = outcome.report_path();
    let again = Sipstone::new("report").path(&path).words("--csv again.csv --html again.html").finish();
    assert_eq!(again.code, Some(0), "{}", again.said());
    assert_eq!(again.file("again.csv"), table);
    assert_eq!(again.file("again.html"), page);
    let shown = Sipstone::new("report").path(&path).finish();
    assert_eq!((shown.code, &shown.stdout), (Some(0), &outcome.stdout));
}

/// As the published schema wants it.
fn assert_schema(report: &Report) {
    let schema = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/sipstone-report.schema.json");
    let schema = fs::read_to_string(schema).expect("the schema is in the tree");
    let schema = serde_json::from_str(&schema).expect("the schema is JSON");
    let validator = jsonschema::validator_for(&schema).expect("the schema is one");
    let wrong: Vec<String> = validator.iter_errors(&report.0).map(|error| error.to_string()).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(report.at("/format"), 1);
}

/// Operations of all seconds: those of the window, when there is no warm-up.
fn offered_by_second(report: &Report) -> f64 {
    let series = report.list("/subjects/0/trials/0/series");
    series.iter().filter_map(|second| second["offered"].as_f64()).sum()
}

#[test]
fn a_report_goes_to_standard_output_alone() {
    let server = Server::start("services");
    let line = Sipstone::new("run").words("options --json -").words(LOAD);
    let outcome = line.argument("--target", server.address()).argument("--source", loopback()).finish();
    let report = serde_json::from_str(&outcome.stdout).map(Report);
    let report = report.unwrap_or_else(|error| panic!("{error}: {}", outcome.said()));
    assert_all_succeeded(&report, ALL);
    assert!(outcome.stderr.contains("success    100 %"), "people read it elsewhere:\n{}", outcome.stderr);
}

#[test]
fn throughput_is_what_succeeded_within_the_window() {
    let server = benchmark("stateful");
    // Uniform: a second that lies in the window by half counts by half, whatever a Poisson process did in either half.
    let options = "--rate 100 --shape uniform --duration 1s --warm-up 500ms --users 30";
    let outcome = Sipstone::offering("run", "invite", server.address()).words(options).finish();
    assert_measured(&outcome);
    let report = outcome.report();
    let (offered, carried) = ("/subjects/0/trials/0/offered_rate", "/subjects/0/trials/0/throughput");
    let (offered, carried) = (report.number(offered), report.number(carried));
    // Some begin within the window and end after it, and some end within that began before.
    assert!((carried / offered - 1.0).abs() < 0.1, "carried {carried}/s of {offered}/s, and all succeeded");
}

/// Sends a signal that [`Signal`] does not have.
fn signal_by_name(name: &str, process: u32) {
    let sent = Command::new("sh").args(["-c", &format!("kill -s {name} {process}")]).status();
    assert!(sent.is_ok_and(|status| status.success()), "{process} takes no {name}");
}

#[test]
fn a_server_that_stands_still_for_a_second_is_seen_to() {
    only_strowger!("others have several processes, and only the first one would stand still");
    let server = benchmark("stateful");
    let line = Sipstone::offering("run", "invite", server.address());
    let running = line.words("--rate 100 --duration 4s --warm-up 0s --users 30").spawn();
    running.expect("\nt=0 ");
    signal_by_name("STOP", server.id());
    thread::sleep(Duration::from_millis(1200));
    signal_by_name("CONT", server.id());
    let outcome = running.finish();
    // Retransmissions (RFC 3261 §17.1.1.2) bring every call through, each message counted once.
    assert_exact(&outcome, (6.0, 7.0));
    let report = outcome.report();
    assert!(report.number(&format!("{ALL}/retransmissions_sent")) > 0.0);
    // The schedule went on meanwhile: more than a quarter of the calls were planned for that time, and all waited.
    assert!(report.number(&format!("{ALL}/latency_planned/p90_ms")) > 300.0);
    assert!(report.number(&format!("{ALL}/latency_planned/max_ms")) > 700.0);
}

#[test]
fn the_same_seed_gives_the_same_arrivals() {
    let server = benchmark("stateful");
    let offered = |seed: u32| {
        let outcome = run("options", server.address(), &format!("--seed {seed}"));
        outcome.report().number(&format!("{ALL}/offered"))
    };
    let first = offered(7);
    assert_eq!(first, offered(7));
    assert!([8, 9, 10].into_iter().any(|seed| offered(seed) != first), "other seeds give other arrivals");
}

#[test]
fn arrivals_have_the_shape_that_was_asked_for() {
    let server = Server::start("services");
    for (shape, least, most) in [("uniform", 99.0, 101.0), ("burst:20", 80.0, 120.0), ("ramp:10", 30.0, 80.0)]
    {
        let outcome = run("options", server.address(), &format!("--shape {shape}"));
        assert_exact(&outcome, (1.0, 1.0));
        let offered = outcome.report().number(&format!("{ALL}/offered"));
        assert!((least..=most).contains(&offered), "{shape}: {offered}");
    }
}

#[test]
fn users_come_from_a_file() {
    let server = kamailio_with_digest("MD5", false);
    let scratch = Scratch::new("users");
    let users = scratch.write("users.csv", "name,password\nuser70,password70\nuser80,password80\n");
    let line = Sipstone::offering("run", "invite", server.address()).words("--auth challenge");
    let line = line.words("--rate 50 --duration 1s --warm-up 0s").argument("--users-file", users.display());
    assert_exact(&line.finish(), (8.0, 8.0));
}

#[test]
fn a_server_is_measured_under_its_name() {
    let server = benchmark("stateful");
    assert_exact(&run("invite", server.address(), "--domain example.com --trace"), (6.0, 7.0));
}

#[test]
fn servers_are_measured_over_ipv6() {
    let server = Start::configuration("services").listening_only_on([loopback_v6()]).spawn();
    let line = Sipstone::new("run").words("invite --source ::1 --json report.json").words(LOAD);
    assert_exact(&line.argument("--target", server.address()).finish(), (6.0, 7.0));
}

#[test]
fn a_second_run_finds_the_users_of_the_first() {
    let server = benchmark("stateful");
    assert_runs_follow_each_other(server.address());
}

/// The registrar takes one contact of each user: it must be the same in every run from one address.
fn assert_runs_follow_each_other(server: SocketAddr) {
    for options in ["--threads 2", "--threads 2", "--threads 2 --no-preamble --proxy stateful"] {
        let line = Sipstone::offering("run", "invite", server).words(LOAD);
        assert_exact(&line.words(options).finish(), (6.0, 7.0));
    }
}

#[test]
fn kamailio_forwards_calls_statefully() {
    let server = kamailio("stateful", &[]);
    assert_exact(&run("invite", server.address(), "--proxy stateful"), (6.0, 7.0));
}

#[test]
fn kamailio_forwards_calls_statelessly() {
    let server = kamailio("stateless", &[]);
    assert_exact(&run("invite", server.address(), ""), (6.0, 6.0));
}

#[test]
fn kamailio_finds_the_users_of_the_first_run_in_the_second() {
    let server = kamailio("stateful", &[]);
    assert_runs_follow_each_other(server.address());
}

#[test]
fn a_registration_that_is_challenged_is_four_messages() {
    for algorithm in ["MD5", "SHA-256"] {
        let server = kamailio_with_digest(algorithm, false);
        assert_exact(&run("register", server.address(), "--auth challenge"), (2.0, 2.0));
    }
}

#[test]
fn a_call_that_is_challenged_is_sixteen_messages() {
    for algorithm in ["MD5", "SHA-256"] {
        let server = kamailio_with_digest(algorithm, false);
        assert_exact(&run("invite", server.address(), "--auth challenge --proxy stateful"), (8.0, 8.0));
    }
}

#[test]
fn a_call_whose_bye_is_challenged_too_is_eighteen_messages() {
    for algorithm in ["MD5", "SHA-256"] {
        let server = kamailio_with_digest(algorithm, true);
        let options = "--auth challenge --auth-every --proxy stateful";
        assert_exact(&run("invite", server.address(), options), (9.0, 9.0));
    }
}

#[test]
fn cached_credentials_save_challenges() {
    for algorithm in ["MD5", "SHA-256"] {
        let server = kamailio_with_digest(algorithm, false);
        for (scenario, without, with) in
            [("register", (1.0, 1.0), (2.0, 2.0)), ("invite", (6.0, 7.0), (8.0, 8.0))]
        {
            let line = Sipstone::offering("run", scenario, server.address());
            let outcome =
                line.words("--auth cached --rate 100 --duration 1s --warm-up 0s --users 5").finish();
            assert_measured(&outcome);
            let report = outcome.report();
            assert_all_succeeded(&report, ALL);
            let (into, out) = messages(&report, ALL);
            // Of 100 operations of 5 users few are challenged.
            let limit = |without: f64, with: f64| without..(without + with) / 2.0;
            assert!(limit(without.0, with.0).contains(&into), "{scenario}: {into} in");
            assert!(limit(without.1, with.1).contains(&out), "{scenario}: {out} out");
        }
    }
}

#[test]
fn wrong_passwords_are_told_of_at_once() {
    let server = kamailio_with_digest("MD5", false);
    for auth in ["challenge", "cached"] {
        let options = format!("--auth {auth} --password-format wrong{{}}");
        let line = Sipstone::offering("run", "invite", server.address()).words(LOAD).words(&options);
        let outcome = line.within(SOON).finish();
        assert_refused(&outcome, &["refused the credentials", "--password-format"]);
    }
}

#[test]
fn operations_with_wrong_passwords_fail_as_authentication() {
    let server = kamailio_with_digest("MD5", false);
    let outcome = run("register", server.address(), "--auth challenge --password-format wrong{}");
    let report = outcome.report();
    assert_eq!(report.number(&format!("{ALL}/succeeded")), 0.0);
    let failed = report.at(&format!("{ALL}/failures"));
    assert_eq!(failed, &serde_json::json!({ "authentication": report.at(&format!("{ALL}/offered")) }));
    assert!(outcome.stderr.contains("the first failure of the kind authentication"), "{}", outcome.stderr);
    assert_nothing_succeeded(&outcome);
}

/// What was measured is written, yet it is no measurement but a wrong set-up.
fn assert_nothing_succeeded(outcome: &Outcome) {
    let valid = outcome.report().list("/invalid").is_empty();
    assert!(outcome.code == Some(1) || !valid && outcome.code == Some(3), "{}", outcome.said());
    assert!(outcome.stderr.contains("not one operation succeeded"), "{}", outcome.said());
}

#[test]
fn a_server_that_wants_credentials_is_told_of() {
    let server = kamailio_with_digest("MD5", false);
    for scenario in ["register", "invite"] {
        let line = Sipstone::offering("run", scenario, server.address()).words(LOAD).within(SOON);
        let outcome = line.finish();
        assert_nothing_succeeded(&outcome);
        assert!(outcome.stderr.contains("--auth challenge"), "no advice in:\n{}", outcome.stderr);
    }
}

#[test]
fn a_port_where_nothing_listens_is_named() {
    let nobody = SocketAddr::from((loopback(), 5060));
    for scenario in ["options", "invite", "register", "outbound"] {
        let outcome = Sipstone::offering("run", scenario, nobody).words(LOAD).within(SOON).finish();
        assert_refused(&outcome, &[&format!("nothing listens on udp:{nobody}")]);
    }
    let outcome = Sipstone::offering("peak", "options", nobody).within(SOON).finish();
    assert_refused(&outcome, &[&format!("nothing listens on udp:{nobody}")]);
}

#[test]
fn a_server_that_never_answers_is_given_up_soon() {
    let silent = UdpSocket::bind((loopback(), 5060)).expect("an address of our own");
    let silent = silent.local_addr().expect("invariant: the socket is bound");
    for scenario in ["options", "invite"] {
        let line = Sipstone::offering("run", scenario, silent).words("--rate 10 --duration 20s --users 10");
        let outcome = line.within(SOON).finish();
        assert_refused(&outcome, &[&format!("no answer from {silent}"), "check that the server runs"]);
    }
}

#[test]
fn a_server_that_refuses_the_users_is_told_of() {
    let server = Server::start("forbidden");
    let line = Sipstone::offering("run", "invite", server.address()).words(LOAD);
    assert_refused(&line.within(SOON).finish(), &["answered 403", "--domain", "403 Forbidden"]);
}

#[test]
fn operations_that_are_refused_fail_with_the_status() {
    let server = Server::start("forbidden");
    let outcome = run("options", server.address(), "");
    let report = outcome.report();
    let failed = report.at(&format!("{ALL}/failures"));
    assert_eq!(failed, &serde_json::json!({ "status-403": report.at(&format!("{ALL}/offered")) }));
    assert_eq!(report.at("/subjects/0/trials/0/verdict"), "fail");
    assert!(outcome.stderr.contains("the first failure of the kind status-403"), "{}", outcome.stderr);
    assert_nothing_succeeded(&outcome);
}

#[test]
fn a_search_at_a_server_that_does_not_do_it_ends_at_once() {
    let server = Server::start("forbidden");
    let outcome = Sipstone::offering("peak", "options", server.address()).within(SOON).finish();
    assert_refused(&outcome, &["options: none of", "status-403"]);
}

#[test]
fn mistakes_of_the_command_line_are_told_before_anything_is_sent() {
    let nobody = SocketAddr::from((loopback(), 5060));
    for (words, mentions) in [
        ("run dance", &["no scenario is called \"dance\"", "invite-cancel"][..]),
        ("run mix:dance", &["no mix is called", "mix:sipstone"]),
        ("run options --gate beauty>=3", &["beauty"]),
        ("run options --gate p99<=0.9*base", &["--base"]),
        ("run options --duratoin 3s", &["--duration", "see sipstone run --help"]),
        ("run options --json /nonexistent/x.json", &["/nonexistent"]),
        ("run options --transport sctp", &["sctp"]),
        ("run options --caller-connections per-call", &["--transport tcp"]),
        ("run register --ring 1s", &["--ring"]),
    ] {
        let (command, rest) = words.split_once(' ').expect("invariant: each has a command and more");
        let outcome = Sipstone::new(command).words(rest).argument("--target", nobody).within(SOON).finish();
        assert_refused(&outcome, mentions);
        assert_eq!(outcome.stderr.trim_end().lines().count(), 1, "{}", outcome.stderr);
        assert!(outcome.stderr.starts_with("sipstone: "), "{}", outcome.stderr);
    }
}

#[test]
fn gates_decide_the_exit_code() {
    let server = benchmark("stateful");
    let gated = |gate: &str| {
        let line = Sipstone::offering("run", "invite", server.address()).words(UNHURRIED);
        line.argument("--gate", gate).finish()
    };
    let held = gated("success >= 99%");
    assert_measured(&held);
    assert!(held.stdout.contains("gate held"), "{}", held.said());

    let failed = gated("throughput >= 1000000");
    let valid = failed.report().list("/invalid").is_empty();
    assert_eq!(failed.code, Some(if valid { 2 } else { 3 }), "{}", failed.said());
    assert!(failed.stdout.contains("gate FAILED"), "{}", failed.said());
}

#[test]
fn two_reports_are_compared() {
    let server = Server::start("services");
    let outcomes = [(); 2].map(|()| run("outbound", server.address(), ""));
    let compared = |gate: &str| {
        let line = Sipstone::new("compare").path(outcomes[0].report_path()).path(outcomes[1].report_path());
        line.argument("--gate", gate).finish()
    };
    let held = compared("success >= 0.99*base");
    assert_eq!(held.code, Some(0), "{}", held.said());
    for metric in ["success", "throughput", "p99"] {
        assert!(held.stdout.contains(metric), "no {metric} in:\n{}", held.stdout);
    }
    let failed = compared("success >= 2*base");
    assert_eq!(failed.code, Some(2), "{}", failed.said());
    let missing = compared("peak >= 0.95*base");
    assert_eq!(missing.code, Some(2), "{}", missing.said());
    assert!(missing.stdout.contains("no search was made"), "{}", missing.said());
}

#[test]
fn a_report_that_is_none_is_refused() {
    let scratch = Scratch::new("reports");
    for (name, text) in [("empty.json", ""), ("other.json", "{\"format\": 99}"), ("list.json", "[1]")] {
        let file = scratch.write(name, text);
        let shown = Sipstone::new("report").path(&file).finish();
        assert_refused(&shown, &[name]);
        let compared = Sipstone::new("compare").path(&file).path(&file).finish();
        assert_refused(&compared, &[name]);
    }
}

/// A short search, without registrations, which the null server would count among the operations that it serves. Calls
/// ring for [`UNHURRIED`]'s reason.
const SEARCH: &str = "--quick --precision 25% --confirm 1 --duration 2s --warm-up 0s --cooldown 0s --no-calibration \
                      --no-overload --users 30 --ring 300ms --t1 50ms --t2 200ms --shape uniform";

/// A search that the busy machine ended before its time.
fn is_cut_short(report: &Report) -> bool {
    let ended = report.at("/subjects/0/peak/ended").as_str().unwrap_or_default();
    ended.starts_with("generator-bound")
}

#[test]
fn a_search_ramps_bisects_and_confirms() {
    let address = SocketAddr::from((loopback(), 5060));
    let _null = Running::null(address, "--trying --cap 200");
    let line = Sipstone::offering("peak", "outbound", address).words(SEARCH);
    let line = line.words("--start 100 --max-rate 900 --drain 800ms --html peak.html --csv peak.csv");
    let outcome = line.finish();
    let report = outcome.report();
    assert_schema(&report);
    let trace = report.list("/subjects/0/peak/trace");
    let trials = report.list("/subjects/0/trials");
    for step in trace {
        let index = usize::try_from(step["trial"].as_u64().expect("an index")).expect("a small index");
        assert_eq!((&step["phase"], &step["rate"]), (&trials[index]["phase"], &trials[index]["rate"]));
    }
    assert!(outcome.file("peak.html").contains("</html>"));
    assert_eq!(outcome.file("peak.csv").lines().count(), 1 + trials.len());
    if is_cut_short(&report) {
        assert_eq!(outcome.code, Some(3), "{}", outcome.said());
        return;
    }
    for phase in ["ramp", "bisect", "confirm"] {
        assert!(trace.iter().any(|step| step["phase"] == phase), "no {phase} in {trace:#?}");
    }
    assert!(report.number("/subjects/0/peak/rate") > 0.0);
}

#[test]
fn a_search_finds_no_more_than_the_server_carries() {
    let address = SocketAddr::from((loopback(), 5060));
    let _null = Running::null(address, "--trying --cap 200");
    let line = Sipstone::offering("peak", "outbound", address).words(SEARCH);
    let outcome = line.words("--start 300 --max-rate 300").finish();
    let report = outcome.report();
    let peak = report.number("/subjects/0/peak/rate");
    assert!(peak <= 220.0, "200/s are served, and yet the peak is {peak}/s:\n{}", outcome.stdout);
    assert!(peak >= 100.0 || is_cut_short(&report), "{}", outcome.said());
}

/// Calls over a transport with connections, at the null server.
#[test]
fn calls_go_over_connections_and_are_counted() {
    for (transport, options, opened_each) in [
        ("tcp", "--users 30", 0),
        ("tcp", "--caller-connections per-call --callee-connections per-call --users 200", 1),
        ("tls", "--caller-connections per-transaction --users 30", 2),
        ("tls", "--caller-connections per-call --tls reuse --users 30", 1),
        ("ws", "--callee-connections pool:2 --users 30", 0),
    ] {
        let address = SocketAddr::from((loopback(), 5060));
        let reuse = if options.contains("reuse") { "--tls reuse" } else { "" };
        let _null = Running::null(address, &format!("--trying --transport {transport} {reuse}"));
        let outcome = Sipstone::offering("run", "invite", address)
            .words("--rate 50 --duration 1s --warm-up 0s --threads 1 --drain 5s")
            .words(&format!("--transport {transport} {options}"))
            .finish();
        let report = outcome.report();
        assert_all_succeeded(&report, ALL);
        let (succeeded, opened) = (
            report.number(&format!("{ALL}/succeeded")),
            report.number("/subjects/0/trials/0/connections/opened"),
        );
        let expected = succeeded * f64::from(opened_each);
        assert!((opened - expected).abs() <= 4.0, "{transport} {options}: {opened} opened of {expected}");
        assert_eq!(report.at("/subjects/0/links/caller/transport"), transport);
    }
}

/// A run that asks for resumed sessions, at a server that resumes none, measures something else.
#[test]
fn a_server_that_resumes_no_session_makes_a_reuse_run_invalid() {
    let address = SocketAddr::from((loopback(), 5060));
    let _null = Running::null(address, "--trying --transport tls --tls full");
    let outcome = Sipstone::offering("run", "options", address)
        .words("--rate 50 --duration 1s --warm-up 0s --threads 1 --transport tls --tls reuse")
        .words("--caller-connections per-call")
        .finish();
    assert_eq!(outcome.code, Some(3));
    let invalid = outcome.report();
    let invalid = invalid.strings("/invalid");
    assert!(invalid.iter().any(|sentence| sentence.contains("--tls reuse at least 99 %")), "{invalid:?}");
}

#[test]
fn a_search_over_connections_finds_no_more_than_the_server_carries() {
    for transport in ["tcp", "tls"] {
        let address = SocketAddr::from((loopback(), 5060));
        let _null = Running::null(address, &format!("--trying --cap 200 --transport {transport}"));
        let line = Sipstone::offering("peak", "outbound", address).words(SEARCH);
        let outcome = line.words(&format!("--start 300 --max-rate 300 --transport {transport}")).finish();
        let report = outcome.report();
        let peak = report.number("/subjects/0/peak/rate");
        assert!(peak <= 220.0, "200/s are served, and yet the peak is {peak}/s:\n{}", outcome.stdout);
        assert!(peak >= 100.0 || is_cut_short(&report), "{}", outcome.said());
    }
}

#[test]
fn the_null_server_does_every_scenario() {
    for (words, scenarios) in [
        (
            "",
            &[
                ("options", 1.0, 1.0),
                ("register", 1.0, 1.0),
                ("invite", 6.0, 6.0),
                ("message", 2.0, 2.0),
                ("invite-notfound", 2.0, 1.0),
            ][..],
        ),
        ("--trying", &[("invite", 6.0, 7.0), ("invite-cancel", 6.0, 7.0), ("outbound", 6.0, 7.0)]),
        (
            "--redirect",
            &[("redirect", 2.0, 1.0), ("register-logout", 1.0, 1.0), ("register-update", 1.0, 1.0)],
        ),
        ("--redirect --trying", &[("redirect", 2.0, 2.0)]),
    ] {
        let address = SocketAddr::from((loopback(), 5060));
        let null = Running::null(address, words);
        for (scenario, into, out) in scenarios {
            let line = Sipstone::offering("run", scenario, address);
            let line = line.words("--rate 100 --duration 300ms --warm-up 0s --users 30");
            let line = if *scenario == "invite-cancel" { line.words("--cancel-after 100ms") } else { line };
            assert_exact(&line.finish(), (*into, *out));
        }
        null.signal(Signal::Interrupt);
        assert_eq!(null.finish().code, Some(0));
    }
}

#[test]
fn a_suite_has_a_subject_for_each_scenario() {
    let server = Server::start("services");
    let options =
        "options message redirect --rates 50,100 --duration 500ms --warm-up 0s --users 30 --cooldown 0s";
    let outcome = Sipstone::offering("suite", "register", server.address()).words(options).finish();
    let report = outcome.report();
    assert_schema(&report);
    let subjects = report.list("/subjects");
    let names: Vec<_> = subjects.iter().map(|subject| subject["name"].as_str().unwrap_or_default()).collect();
    assert_eq!(names, ["register", "options", "message", "redirect"]);
    for (index, name) in names.iter().enumerate().take(3) {
        assert_eq!(report.list(&format!("/subjects/{index}/trials")).len(), 2, "{name}");
        assert_all_succeeded(&report, &format!("/subjects/{index}/trials/1/all"));
    }
    let remarks = report.strings("/remarks");
    assert!(remarks.iter().any(|remark| remark.starts_with("not supported: redirect")), "{remarks:?}");
}

const TOKEN: &str = "a token of the end-to-end tests";

/// Two agents that know the token.
fn agents() -> ([SocketAddr; 2], [Running; 2]) {
    let addresses = [(); 2].map(|()| SocketAddr::from((loopback(), 5099)));
    (addresses, addresses.map(|address| Running::agent(address, TOKEN)))
}

#[test]
fn agents_share_the_work() {
    let server = Server::start("services");
    let (addresses, _agents) = agents();
    let line = Sipstone::offering("run", "invite", server.address()).by_agents(&addresses, TOKEN);
    let outcome = line.words(LOAD).finish();
    assert_exact(&outcome, (6.0, 7.0));
    let report = outcome.report();
    assert_schema(&report);
    let listed = report.list("/generator_host/agents").iter().map(|agent| agent["address"].as_str());
    let listed: Vec<_> = listed.map(Option::unwrap_or_default).collect();
    assert_eq!(listed, addresses.map(|address| address.to_string()));
    assert_eq!(report.number("/generator_host/threads"), 2.0);
    assert_eq!(report.number(&format!("{ALL}/offered")), offered_by_second(&report));
    assert_eq!(report.number("/subjects/0/trials/0/generator/strays"), 0.0);
}

#[test]
fn one_agent_calls_and_the_other_answers() {
    let server = Server::start("services");
    let (addresses, _agents) = agents();
    let line = Sipstone::offering("run", "invite", server.address()).token(TOKEN);
    let line = line.argument("--agent", format!("{}=loader", addresses[0]));
    let outcome = line.argument("--agent", format!("{}=handler", addresses[1])).words(LOAD).finish();
    assert_exact(&outcome, (6.0, 7.0));
}

#[test]
fn agents_serve_one_controller_after_the_other() {
    let server = Server::start("services");
    let (addresses, _agents) = agents();
    for _ in 0..2 {
        let line = Sipstone::offering("run", "invite", server.address());
        let outcome = line.by_agents(&addresses, TOKEN).words(LOAD).finish();
        assert_exact(&outcome, (6.0, 7.0));
    }
}

#[test]
fn an_agent_that_dies_ends_the_run_with_what_was_measured() {
    let server = Server::start("services");
    let (addresses, [_first, mut second]) = agents();
    let line = Sipstone::offering("run", "invite", server.address()).by_agents(&addresses, TOKEN);
    let line = line.words("--rate 60 --duration 50s --warm-up 0s --users 30");
    let running = line.within(SOON).spawn();
    running.expect("\nt=1 ");
    second.kill();
    let outcome = running.finish();
    assert_eq!(outcome.code, Some(3), "{}", outcome.said());
    let report = outcome.report();
    let invalid = report.strings("/invalid");
    let dead = addresses[1].to_string();
    assert!(invalid.iter().any(|why| why.contains(&dead)), "{dead} is not named: {invalid:?}");
    assert!(report.number(&format!("{ALL}/succeeded")) > 0.0);
    assert!(report.number("/subjects/0/trials/0/measure_s") < 50.0);
}

#[test]
fn an_agent_refuses_a_wrong_token() {
    let server = Server::start("services");
    let (addresses, _agents) = agents();
    let wrong = "not the token of the tests";
    let line = Sipstone::offering("run", "options", server.address()).by_agents(&addresses, wrong);
    assert_refused(&line.words(LOAD).within(SOON).finish(), &[&addresses[0].to_string(), "token"]);
}

#[test]
fn an_agent_that_is_not_there_is_named() {
    let nobody = SocketAddr::from((loopback(), 5099));
    let target = SocketAddr::from((loopback(), 5060));
    let line = Sipstone::offering("run", "options", target).by_agents(&[nobody], TOKEN);
    assert_refused(&line.words(LOAD).within(SOON).finish(), &[&nobody.to_string()]);
}

/// A configuration for a server that sipstone starts, and where it will listen.
fn configuration_to_start(scratch: &Scratch) -> (PathBuf, SocketAddr) {
    let address = SocketAddr::from((loopback(), 5060));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/benchmarks/2007/stateful.cfg");
    let text = fs::read_to_string(path).expect("the configuration is in the tree");
    (scratch.write("server.cfg", &text.replace("127.0.0.1:5070", &address.to_string())), address)
}

/// A command that starts Strowger, and where it will listen.
fn strowger_command(scratch: &Scratch) -> (String, SocketAddr) {
    let (file, address) = configuration_to_start(scratch);
    (format!("{} run {}", strowger_binary().display(), file.display()), address)
}

#[test]
fn a_server_that_runs_already_is_watched() {
    let server = benchmark("stateful");
    let line = Sipstone::offering("run", "invite", server.address()).argument("--sut-pid", server.id());
    let outcome = line.words("--rate 100 --duration 2s --warm-up 0s --users 30").finish();
    assert_exact(&outcome, (6.0, 7.0));
    let report = outcome.report();
    assert_eq!(report.number("/server/pid"), f64::from(server.id()));
    assert!(report.number("/subjects/0/trials/0/cpu_us_per_op") > 0.0);
    assert!(report.number("/subjects/0/trials/0/series/0/server/resident_bytes") > 1e6);
    assert!(server.is_answering(), "it is not sipstone's to end");
}

#[test]
fn a_server_that_ends_ends_the_run_with_what_was_measured() {
    let mut server = benchmark("stateful");
    let line = Sipstone::offering("run", "invite", server.address()).argument("--sut-pid", server.id());
    let line = line.words("--rate 60 --duration 50s --warm-up 0s --users 30");
    let running = line.within(SOON).spawn();
    running.expect("\nt=1 ");
    server.stop(Signal::Terminate);
    let outcome = running.finish();
    assert_eq!(outcome.code, Some(3), "{}", outcome.said());
    let report = outcome.report();
    let invalid = report.strings("/invalid");
    assert!(invalid.iter().any(|why| why.contains("server under test")), "{invalid:?}");
    assert!(report.number(&format!("{ALL}/succeeded")) > 0.0);
}

/// Whether a process is left that was started with a file of this directory (proc(5), `/proc/PID/cmdline`).
fn is_alive(scratch: &Scratch) -> bool {
    let processes = fs::read_dir("/proc").expect("Linux has /proc").flatten();
    let mut commands = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    let directory = scratch.path().display().to_string();
    commands.any(|command| String::from_utf8_lossy(&command).contains(&directory))
}

#[test]
fn a_server_that_sipstone_starts_is_watched_and_ended() {
    only_strowger!("its command line is ours");
    let scratch = Scratch::new("sut");
    let (command, address) = strowger_command(&scratch);
    let line = Sipstone::offering("run", "invite", address).argument("--sut-exec", &command);
    let outcome = line.words("--rate 200 --duration 2s --warm-up 0s --users 30").finish();
    assert_exact(&outcome, (6.0, 7.0));
    let report = outcome.report();
    assert_schema(&report);
    assert!(report.number("/subjects/0/trials/0/cpu_us_per_op") > 0.0);
    let seconds = report.list("/subjects/0/trials/0/series");
    let resident = seconds.iter().filter_map(|second| second["server"]["resident_bytes"].as_u64()).max();
    assert!(resident > Some(1_000_000), "{resident:?} bytes");
    assert_eq!(report.at("/server/command"), &command);
    assert!(!is_alive(&scratch), "the server outlives sipstone");
}

#[test]
fn a_server_of_several_processes_is_watched_and_ended() {
    let scratch = Scratch::new("sut");
    let (file, address) = configuration_to_start(&scratch);
    let directory = scratch.path().display();
    let command = format!(
        "/usr/sbin/kamailio -DD -E -T -m 64 -M 8 -n 1 -Y {directory} -P {directory}/pid -f {}",
        file.display()
    );
    let line = Sipstone::offering("run", "invite", address).argument("--sut-exec", &command);
    let outcome = line.words("--rate 100 --duration 2s --warm-up 0s --users 30").finish();
    assert_exact(&outcome, (6.0, 7.0));
    let report = outcome.report();
    assert!(report.number("/subjects/0/trials/0/cpu_us_per_op") > 0.0);
    assert!(report.number("/subjects/0/trials/0/series/0/server/threads") > 1.0, "one thread a process");
    assert!(!is_alive(&scratch), "the server outlives sipstone");
}

#[test]
fn a_server_that_does_not_start_is_told_of() {
    let nobody = SocketAddr::from((loopback(), 5060));
    for (command, mention) in
        [("/nonexistent/server", "/nonexistent/server"), ("sh -c 'echo no such line >&2; exit 7'", "7")]
    {
        let line = Sipstone::offering("run", "options", nobody).argument("--sut-exec", command);
        assert_refused(&line.words(LOAD).within(SOON).finish(), &[mention]);
    }
    let sleeper = Sipstone::offering("run", "options", nobody).argument("--sut-exec", "sleep 60");
    let outcome = sleeper.words(LOAD).words("--sut-ready 1s").within(SOON).finish();
    assert_refused(&outcome, &["listen"]);
}

#[test]
fn ctrl_c_ends_a_run_with_what_was_measured() {
    only_strowger!("its command line is ours");
    let scratch = Scratch::new("sut");
    let (command, address) = strowger_command(&scratch);
    let line = Sipstone::offering("run", "invite", address).argument("--sut-exec", &command);
    let running = line.words("--rate 60 --duration 50s --warm-up 0s --users 30").within(SOON).spawn();
    running.expect("\nt=1 ");
    running.signal(Signal::Interrupt);
    let outcome = running.finish();
    assert_eq!(outcome.code, Some(3), "{}", outcome.said());
    let report = outcome.report();
    assert_schema(&report);
    assert!(report.strings("/invalid").contains(&"interrupted by the user"), "{:?}", report.at("/invalid"));
    assert!(report.number(&format!("{ALL}/succeeded")) > 0.0);
    assert!(!is_alive(&scratch), "the server outlives sipstone");
}

#[test]
fn ctrl_c_ends_a_search_with_what_was_measured() {
    let server = benchmark("stateful");
    let search = "--start 50 --no-calibration --duration 40s --warm-up 0s --users 30 --ring 300ms";
    let line = Sipstone::offering("peak", "invite", server.address()).words(search);
    let running = line.within(SOON).spawn();
    running.expect("ramp at 50/s");
    running.signal(Signal::Interrupt);
    let outcome = running.finish();
    assert_eq!(outcome.code, Some(3), "{}", outcome.said());
    let report = outcome.report();
    assert!(report.strings("/invalid").contains(&"interrupted by the user"), "{:?}", report.at("/invalid"));
}

#[test]
fn the_doctor_examines_the_host_and_a_call() {
    let alone = Sipstone::new("doctor").finish();
    assert_examined(&alone);

    let server = Server::start("services");
    for (scenario, line) in [("options", "200 OK (OPTIONS)"), ("invite", "180 Ringing (INVITE)")] {
        let doctor = Sipstone::new("doctor").argument("--target", server.address());
        let outcome = doctor.argument("--scenario", scenario).finish();
        assert_examined(&outcome);
        assert!(outcome.stdout.contains(line), "{}", outcome.said());
    }
    let nobody = SocketAddr::from((loopback(), 5060));
    let outcome = Sipstone::new("doctor").argument("--target", nobody).within(SOON).finish();
    assert_eq!(outcome.code, Some(1), "{}", outcome.said());
    assert!(outcome.said().contains(&nobody.to_string()), "{}", outcome.said());
}

/// Nothing is bad but what a busy machine does to timers.
fn assert_examined(outcome: &Outcome) {
    let bad: Vec<_> = outcome.stdout.lines().filter(|line| line.starts_with("BAD")).collect();
    assert!(bad.iter().all(|line| line.contains("timers")), "{}", outcome.said());
    assert!(outcome.stdout.contains("open files"), "{}", outcome.said());
    assert_eq!(outcome.code, Some(i32::from(!bad.is_empty())), "{}", outcome.said());
}

#[test]
fn scenarios_are_listed() {
    let outcome = Sipstone::new("scenarios").finish();
    assert_eq!(outcome.code, Some(0), "{}", outcome.said());
    for name in ["options", "register-logout", "invite-cancel", "redirect", "6 + 7", "mix:sipstone"] {
        assert!(outcome.stdout.contains(name), "no {name} in:\n{}", outcome.stdout);
    }
}

#[test]
fn every_command_has_help() {
    let all = Sipstone::new("--help").finish();
    assert_eq!(all.code, Some(0));
    for command in ["run", "peak", "suite", "compare", "report", "scenarios", "null", "doctor", "agent"] {
        assert!(all.stdout.contains(&format!("  {command} ")), "{command} is not in the help");
        let help = Sipstone::new(command).words("--help").finish();
        assert_eq!(help.code, Some(0), "{command}: {}", help.said());
        assert!(help.stdout.contains("Usage:") && help.stdout.contains("Examples:"), "{}", help.stdout);
        assert_eq!(help.stderr, "");
    }
}
