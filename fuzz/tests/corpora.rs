//! Without libFuzzer: every committed input of every target runs, and the canary's planted bug is seen.

#![allow(missing_docs)]

use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

fn inputs(target: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    let Ok(entries) = std::fs::read_dir(&folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("a readable folder").path()).collect();
    paths.sort();
    paths
}

#[test]
fn every_committed_input_passes() {
    for target in fuzz::TARGETS.iter().filter(|target| target.name != "canary") {
        let paths = inputs(target.name);
        assert!(!paths.is_empty(), "{} has no corpus", target.name);
        for path in paths {
            let bytes = std::fs::read(&path).expect("a readable file");
            let run = || (target.run)(&bytes);
            assert!(catch_unwind(run).is_ok(), "{} fails with {}", target.name, path.display());
        }
    }
}

#[test]
fn no_corpus_is_without_a_target() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for entry in std::fs::read_dir(folder).expect("the corpora are there") {
        let name = entry.expect("a readable folder").file_name();
        assert!(fuzz::target(&name.to_string_lossy()).is_some(), "{name:?} is a corpus of no target");
    }
}

#[test]
fn the_planted_bug_of_the_canary_is_seen() {
    let canary = fuzz::target("canary").expect("there is one");
    assert!(
        catch_unwind(|| (canary.run)(b"sip:a@b:5060")).is_ok(),
        "without a leading zero nothing is wrong"
    );
    assert!(catch_unwind(|| (canary.run)(b"sip:a@b:05060")).is_err(), "the planted bug is not seen");
}
