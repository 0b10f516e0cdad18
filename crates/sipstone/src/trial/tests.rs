//! Tests of the conductor with groups that follow a script.

use super::fake::{Fake, Script, Seen, workload};
use super::*;
use crate::spec::Class;
use crate::tally::Failure;
use std::sync::Mutex;

type Log = Arc<Mutex<Vec<String>>>;

fn conductor(scripts: &[Script]) -> (Conductor, Log) {
    let log = Log::default();
    let spec = GroupSpec { threads: 1, ..GroupSpec::default() };
    let group = |script: &Script| {
        let fake: Box<dyn Group> = Box::new(Fake::new(script.clone(), log.clone()));
        (spec.clone(), fake)
    };
    let groups = scripts.iter().map(group).collect();
    (Conductor::new(groups, None, Arc::default()), log)
}

fn of(scenario: Scenario) -> Workload {
    Workload { classes: vec![Class::plain(scenario)], ..workload() }
}

fn good() -> Script {
    Script { seconds: vec![None; 4], ..Script::default() }
}

fn take(log: &Log) -> Vec<String> {
    std::mem::take(&mut *log.lock().unwrap())
}

fn setup(error: TrialError) -> (String, Option<Box<Example>>) {
    match error {
        TrialError::Setup(sentence, example) => (sentence, example),
        other => panic!("not a set-up error: {other:?}"),
    }
}

#[test]
fn groups_are_prepared_registered_started_and_added_up() {
    let (mut conductor, log) = conductor(&[good(), good()]);
    let mut seen = Seen::default();
    let raw = conductor.run(&workload(), "run", None, &mut seen).unwrap();
    let steps = [
        "0 prepare",
        "1 prepare",
        "0 register with 2",
        "1 register with 2",
        "0 start with 2",
        "1 start with 2",
    ];
    assert_eq!(take(&log), steps);
    assert_eq!(
        raw.seconds.iter().map(|(s, t)| (*s, t.classes[0].offered)).collect::<Vec<_>>(),
        [(0, 20), (1, 20), (2, 20), (3, 20)]
    );
    assert_eq!(raw.measured.classes[0].offered, 40);
    assert_eq!(raw.examples.len(), 1);
    assert_eq!(seen.registered, 1000);
    assert_eq!(
        seen.seconds.iter().map(|(_, measured)| *measured).collect::<Vec<_>>(),
        [false, true, true, false]
    );
    assert_eq!(seen.begun, ["registering 1000 users", "run at 100/s"]);
    assert!(seen.notes.is_empty());
}

#[test]
fn users_are_registered_once_until_they_are_logged_out_or_others() {
    let (mut conductor, log) = conductor(&[good()]);
    let registers = |conductor: &mut Conductor, workload: &Workload| {
        conductor.run(workload, "run", None, &mut Seen::default()).unwrap();
        take(&log).iter().any(|step| step.contains("register"))
    };
    assert!(registers(&mut conductor, &workload()));
    assert!(!registers(&mut conductor, &workload()));
    assert!(!registers(&mut conductor, &of(Scenario::RegisterLogout)));
    assert!(registers(&mut conductor, &workload()));
    let mut others = workload();
    others.users.first = 5000;
    assert!(registers(&mut conductor, &others));
    conductor.forget_registrations();
    assert!(registers(&mut conductor, &others));
    // They would expire during the trial.
    assert!(registers(&mut conductor, &Workload { expires: 4, ..workload() }));
    assert!(registers(&mut conductor, &Workload { expires: 4, ..workload() }));
}

#[test]
fn no_preamble_where_no_class_needs_one() {
    let (mut conductor, log) = conductor(&[good()]);
    conductor.run(&of(Scenario::Options), "run", None, &mut Seen::default()).unwrap();
    conductor.run(&Workload { preamble: false, ..workload() }, "run", None, &mut Seen::default()).unwrap();
    assert!(!take(&log).iter().any(|step| step.contains("register")));
}

#[test]
fn registrations_that_end_before_the_trial_are_refused() {
    let (mut conductor, _) = conductor(&[good()]);
    let short = Workload { expires: 3, ..workload() };
    let error = conductor.run(&short, "run", None, &mut Seen::default()).unwrap_err();
    assert!(setup(*error).0.contains("raise --expires"));
}

#[test]
fn a_silent_server_is_a_setup_error_after_three_seconds() {
    let script = Script { registrations_silent: true, registrations_fail: Some("unfinished"), ..good() };
    let (mut conductor, log) = conductor(&[script]);
    let begun = Instant::now();
    let (sentence, example) =
        setup(*conductor.run(&workload(), "run", None, &mut Seen::default()).unwrap_err());
    assert!(begun.elapsed() >= FIRST_ANSWER_MAX && begun.elapsed() < 5 * FIRST_ANSWER_MAX);
    assert!(sentence.starts_with("no answer from 127.0.0.1:5060 to REGISTER within 3 s: "), "{sentence}");
    assert_eq!(example.unwrap().failure.as_deref(), Some("unfinished"));
    assert!(take(&log).contains(&"0 stop false".into()));
}

#[test]
fn refused_registrations_show_the_answer() {
    let (mut conductor, _) = conductor(&[Script { registrations_fail: Some("status-403"), ..good() }]);
    let (sentence, example) =
        setup(*conductor.run(&workload(), "run", None, &mut Seen::default()).unwrap_err());
    assert!(sentence.starts_with("1000 registrations of 1000 users failed"), "{sentence}");
    assert!(sentence.contains("answered 403"), "{sentence}");
    assert!(example.is_some());
}

#[test]
fn a_port_where_nothing_listens_is_told_at_once() {
    let seconds = vec![Some(Failure::Unreachable); 2];
    let script = Script { seconds, server_silent: true, waits: true, ..Script::default() };
    let (mut conductor, _) = conductor(&[script]);
    let error = conductor.run(&of(Scenario::Options), "run", None, &mut Seen::default()).unwrap_err();
    let (sentence, example) = setup(*error);
    assert!(sentence.starts_with("nothing listens on udp:127.0.0.1:5060"), "{sentence}");
    assert!(example.is_some(), "the example of the stopped trial belongs to it");
}

#[test]
fn a_server_that_never_answers_ends_the_trial_but_one_that_did_has_a_bad_one() {
    let script =
        Script { seconds: vec![Some(Failure::Timeout); 5], server_silent: true, ..Script::default() };
    let (mut silent, _) = conductor(std::slice::from_ref(&script));
    let error = silent.run(&of(Scenario::Options), "run", None, &mut Seen::default()).unwrap_err();
    let sentence = setup(*error).0;
    assert!(sentence.starts_with("no answer from 127.0.0.1:5060 to OPTIONS within 3 s"), "{sentence}");

    // Here the preamble was answered.
    let (mut answered, _) = conductor(&[script]);
    let raw = answered.run(&workload(), "run", None, &mut Seen::default()).unwrap();
    assert_eq!(raw.seconds.len(), 5);
}

#[test]
fn a_run_without_success_gets_a_note() {
    let (mut conductor, _) = conductor(&[Script { seconds: vec![Some(Failure::Status(404)); 4], ..good() }]);
    let mut seen = Seen::default();
    conductor.run(&workload(), "run", None, &mut seen).unwrap();
    assert_eq!(seen.notes, ["no operation has succeeded in the first 3 s: status-404 × 30"]);
}

#[test]
fn a_group_that_dies_leaves_what_was_measured() {
    let (mut conductor, log) = conductor(&[
        Script { dies: true, seconds: vec![None; 2], ..Script::default() },
        Script { waits: true, ..good() },
    ]);
    let error = conductor.run(&workload(), "run", None, &mut Seen::default()).unwrap_err();
    let TrialError::Gone(gone, raw) = *error else { panic!("{error:?}") };
    assert_eq!(gone.reason, "the connection broke");
    assert_eq!(raw.seconds.iter().map(|(_, tally)| tally.classes[0].offered).sum::<u64>(), 60);
    assert_eq!(raw.measured.classes[0].offered, 20, "the other group's result is kept");
    assert!(take(&log).contains(&"1 stop false".into()));
}

#[test]
fn a_problem_is_a_setup_error_before_the_start_and_a_lost_group_after_it() {
    let (mut unprepared, _) = conductor(&[Script { unprepared: true, ..good() }]);
    let error = unprepared.run(&workload(), "run", None, &mut Seen::default()).unwrap_err();
    assert_eq!(setup(*error).0, "fake: port taken");
    let (mut later, _) = conductor(&[Script { problem: true, ..good() }]);
    let error = later.run(&workload(), "run", None, &mut Seen::default()).unwrap_err();
    let TrialError::Gone(gone, raw) = *error else { panic!("{error:?}") };
    assert_eq!((gone.reason.as_str(), raw.seconds.len()), ("no route", 4));
}

#[test]
fn an_interrupted_trial_shows_what_there_is() {
    let flag = Arc::new(AtomicBool::new(false));
    let script = Script { waits: true, interrupts: Some(flag.clone()), ..good() };
    let (mut conductor, log) = conductor(&[script]);
    conductor.interrupted = flag;
    let error = conductor.run(&workload(), "run", None, &mut Seen::default()).unwrap_err();
    let TrialError::Interrupted(raw) = *error else { panic!("{error:?}") };
    assert_eq!((raw.seconds.len(), raw.measured.classes[0].offered), (4, 20));
    assert_eq!(take(&log).last().unwrap(), "0 stop false");
}

#[test]
fn a_certain_verdict_ends_the_trial_early() {
    let (mut conductor, log) = conductor(&[Script { waits: true, ..good() }]);
    let early = |measured: &[(u64, u64, u64)]| measured[0].2 >= 20;
    let raw = conductor.run(&workload(), "ramp", Some(&early), &mut Seen::default()).unwrap();
    assert!(raw.ended_early);
    assert_eq!(take(&log).last().unwrap(), "0 stop false");
    let never = |_: &[(u64, u64, u64)]| false;
    let (mut other, _) = self::conductor(&[good()]);
    assert!(!other.run(&workload(), "ramp", Some(&never), &mut Seen::default()).unwrap().ended_early);
}
