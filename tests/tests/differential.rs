//! The same configuration and the same traffic through Kamailio and through us: whatever differs is in
//! `differential/expected.tsv`, and why in `docs/differences.md`.
//!
//! After a change that moves a difference on purpose, `STROWGER_DIFFERENTIAL_SEEN=FILE` writes the list as it
//! is now; what is new in it has the entry `?` and waits for somebody to say whose it is.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

use end_to_end::differential::{
    Case, DOES_NOT_UNFOLD, Difference, Expected, Normal, Outcome, Play, differences, generated, play,
    torture, traffic,
};
use end_to_end::{Kamailio, Server, Start, Transport, loopback, only_strowger};

/// Each a configuration in `tests/conf/differential/`.
const PROFILES: [&str; 4] = ["stateful", "stateless", "checks", "auth"];

/// Those of them that take header fields out of what goes on.
const REMOVING: [&str; 2] = ["stateful", "stateless"];

/// The files of `tests/differential/`.
const FILES: [&str; 11] = [
    "valid",
    "start",
    "headers",
    "via",
    "routes",
    "methods",
    "responses",
    "register",
    "credentials",
    "smuggling",
    "recorded",
];

/// The list is what this version does.
const KAMAILIO: &str = "5.6.3";

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn cases(profile: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = FILES.iter().flat_map(|file| traffic(file)).collect();
    cases.extend(traffic("streams"));
    cases.extend(torture());
    cases.extend(generated());
    cases.retain(|case| case.is_for(profile));
    cases
}

fn strowger(profile: &str) -> Server {
    Start::configuration(&format!("differential/{profile}"))
        .over(&[Transport::Tcp])
        .arguments(&["--shards", "1"])
        .spawn()
}

fn through_strowger(profile: &str, cases: &[&Case]) -> Vec<Outcome> {
    let server = strowger(profile);
    let outcomes = play(Play { server: server.address() }, cases);
    assert!(server.is_answering(), "the server must live");
    outcomes
}

fn through_kamailio(profile: &str, cases: &[&Case]) -> Vec<Outcome> {
    let address = (loopback(), 5060).into();
    let configuration = format!("tests/conf/differential/{profile}.cfg");
    let kamailio = Kamailio::start_over(&["udp", "tcp"], address, &configuration, &[], &[]);
    play(Play { server: kamailio.address() }, cases)
}

/// Every difference under a profile.
fn seen(profile: &str) -> Vec<(String, Difference)> {
    let cases = cases(profile);
    let cases: Vec<&Case> = cases.iter().collect();
    let ours = through_strowger(profile, &cases);
    let theirs = through_kamailio(profile, &cases);
    let compared = cases.iter().zip(ours.iter().zip(&theirs));
    let found = compared
        .flat_map(|(case, (ours, theirs))| differences(&case.name, &Normal::of(ours), &Normal::of(theirs)))
        .filter(|difference| difference.what != "smuggled" || REMOVING.contains(&profile));
    found.map(|difference| (profile.to_owned(), difference)).collect()
}

fn expected() -> Expected {
    let path = repository().join("tests/differential/expected.tsv");
    Expected::read(&fs::read_to_string(path).expect("the list of known differences"))
}

#[test]
fn whatever_differs_from_kamailio_is_known() {
    only_strowger!("this compares both");
    match Kamailio::version() {
        Some(version) if version == KAMAILIO => {}
        Some(version) => panic!(
            "the list is of Kamailio {KAMAILIO}, and {version} is here: renew it by STROWGER_DIFFERENTIAL_SEEN=FILE, say in \
             docs/differences.md what is new, and change KAMAILIO here"
        ),
        None => panic!("no Kamailio here; `cargo xtask test` installs it"),
    }
    let runs: Vec<_> = PROFILES.iter().map(|profile| thread::spawn(|| seen(profile))).collect();
    let seen: Vec<(String, Difference)> =
        runs.into_iter().flat_map(|run| run.join().expect("a run that ends")).collect();
    let expected = expected();
    let now = expected.renewed(&seen);
    if let Some(path) = env::var_os("STROWGER_DIFFERENTIAL_SEEN") {
        fs::write(path, now.to_string()).expect("the file that STROWGER_DIFFERENTIAL_SEEN names");
    }
    let (new, gone) = (now.missing_from(&expected, &PROFILES), expected.missing_from(&now, &PROFILES));
    assert!(
        new.is_empty() && gone.is_empty(),
        "new differences (entry, profile, case, what, ours, theirs):\n{}\n\ngone:\n{}",
        new.join("\n"),
        gone.join("\n")
    );
}

#[test]
fn every_difference_is_explained() {
    let text = fs::read_to_string(repository().join("docs/differences.md")).expect("the page");
    let explained: BTreeSet<&str> = text.lines().filter_map(|line| line.strip_prefix("### ")).collect();
    let named = expected().entries();
    let named: BTreeSet<&str> = named.keys().map(String::as_str).collect();
    assert_eq!(named, explained, "entries of expected.tsv, and headings of docs/differences.md");
}

/// Cases that put the name of what is taken out into a fold of what is not.
fn is_in_a_fold(case: &Case) -> bool {
    ["smuggling/as-a-fold", "smuggling/compact-as-a-fold"].contains(&case.name.as_str())
}

#[test]
fn what_is_taken_out_is_found_by_no_reader() {
    only_strowger!("Kamailio's holes are in docs/differences.md");
    let mut cases = traffic("smuggling");
    cases.extend(generated());
    for profile in REMOVING {
        let cases: Vec<&Case> = cases.iter().filter(|case| case.is_for(profile)).collect();
        let outcomes = through_strowger(profile, &cases);
        let smuggled = |(case, outcome): (&&Case, &Outcome)| {
            let mut readers = Normal::of(outcome).smuggled;
            // What stands in a fold is another field's value, and passes (§7.3.1).
            if is_in_a_fold(case) {
                readers.retain(|reader| *reader != DOES_NOT_UNFOLD);
            }
            (!readers.is_empty()).then(|| format!("{}: {}", case.name, readers.join(", ")))
        };
        let holes: Vec<String> = cases.iter().zip(&outcomes).filter_map(smuggled).collect();
        assert!(holes.is_empty(), "{profile}:\n{}", holes.join("\n"));
        let passed = outcomes.iter().filter(|outcome| !outcome.forwarded.is_empty()).count();
        assert!(passed > 10, "most disguises are legal, and their requests pass: {passed}");
    }
}

/// RFC 3261 §22.3: what has authenticated a request here is nobody else's, however its header was written; and
/// who it was is what the next hop reads.
#[test]
fn credentials_that_were_used_go_no_further() {
    only_strowger!("what Kamailio leaves is in docs/differences.md");
    let forms =
        ["right", "header-in-odd-case-with-space", "header-folded", "more-parameters", "comma-at-the-end"];
    let cases = traffic("credentials");
    let used = |case: &&Case| forms.iter().any(|form| case.name == format!("credentials/{form}"));
    let cases: Vec<&Case> = cases.iter().filter(used).collect();
    assert_eq!(cases.len(), forms.len());
    for (case, outcome) in cases.iter().zip(through_strowger("auth", &cases)) {
        let normal = Normal::of(&outcome);
        let [forwarded] = normal.forwarded.as_slice() else { panic!("{}: {normal:?}", case.name) };
        let lines = forwarded.lines.iter().map(|line| line.to_ascii_lowercase());
        assert!(!lines.clone().any(|line| line.contains("authorization")), "{}: {forwarded:?}", case.name);
        assert_eq!(lines.filter(|line| line == "x-user: alice").count(), 1, "{}: {forwarded:?}", case.name);
    }
}
