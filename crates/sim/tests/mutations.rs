//! The planted bugs fit the tree, and `docs/testing.md` tells of each. That they are found takes hours:
//! `cargo run --release -p sim --bin mutants`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn tree() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The mutations, by name.
fn mutations() -> Vec<(String, String)> {
    let folder = fs::read_dir(tree().join("crates/sim/mutations")).expect("the mutations");
    let paths = folder.map(|entry| entry.expect("an entry").path());
    let patches = paths.filter(|path| path.extension().is_some_and(|extension| extension == "patch"));
    let named = patches.map(|path| {
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        (name, fs::read_to_string(&path).expect("a patch"))
    });
    named.collect()
}

/// What each piece of a patch is to find: the file, and the lines as they are.
fn pieces(patch: &str) -> Vec<(&str, String)> {
    let mut pieces: Vec<(&str, String)> = Vec::new();
    let mut file = "";
    for line in patch.lines() {
        match line.split_at_checked(1) {
            _ if line.starts_with("--- a/") => file = &line["--- a/".len()..],
            _ if line.starts_with("+++ ") => {}
            _ if line.starts_with("@@ ") => pieces.push((file, String::new())),
            Some((" " | "-", text)) => {
                let (_, old) = pieces.last_mut().expect("a piece begins with @@");
                old.push_str(text);
                old.push('\n');
            }
            _ => {}
        }
    }
    pieces
}

#[test]
fn each_mutation_fits_the_tree() {
    let mut unfit = Vec::new();
    for (name, patch) in mutations() {
        let pieces = pieces(&patch);
        assert!(!pieces.is_empty(), "{name} changes nothing");
        for (file, old) in pieces {
            let text = fs::read_to_string(tree().join(file));
            if text.is_ok_and(|text| text.matches(&old).count() == 1) {
                continue;
            }
            unfit.push(format!("{name} does not fit {file} any more"));
        }
    }
    assert!(unfit.is_empty(), "write them anew: {unfit:#?}");
}

#[test]
fn each_mutation_is_told_of() {
    let guide = fs::read_to_string(tree().join("docs/testing.md")).expect("docs/testing.md");
    let table = guide.split("| mutation |").nth(1).expect("the table of mutations");
    let rows = table.lines().skip(2).take_while(|line| line.starts_with("| "));
    let told: BTreeSet<_> = rows.map(|row| row.split('`').nth(1).expect("a name").to_owned()).collect();
    let there: BTreeSet<_> = mutations().into_iter().map(|(name, _)| name).collect();
    assert_eq!(told, there);
}
