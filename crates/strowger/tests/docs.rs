//! Keeps `docs/rfc-coverage.md` honest: the files and tests that it names exist, every row says how it is shown or that
//! it is not, and every RFC that the source cites has its place there.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// References that the document has at least; fewer mean that this test no longer understands it.
const REFERENCES_MIN: usize = 200;
/// What a row without a test must say.
const EXCUSES: [&str; 4] = ["no test", "not met", "not yet", "not applicable"];
/// The head of every table of coverage.
const HEAD: [&str; 4] = ["section", "what", "where", "test"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn document() -> String {
    fs::read_to_string(root().join("docs/rfc-coverage.md")).expect("docs/rfc-coverage.md")
}

/// The file or folder that the document means: paths leave out `crates/`.
fn resolved(path: &str) -> PathBuf {
    let top = ["tests/", "conf/", "docs/"].iter().any(|folder| path.starts_with(folder));
    if top { root().join(path) } else { root().join("crates").join(path) }
}

/// One row of a table of coverage, with its line number.
struct Row<'a> {
    line: usize,
    place: &'a str,
    test: &'a str,
}

fn rows(document: &str) -> Vec<Row<'_>> {
    let mut rows = Vec::new();
    let mut inside = false;
    for (index, line) in document.lines().enumerate() {
        let Some(cells) = line.strip_prefix('|').and_then(|line| line.strip_suffix('|')) else {
            inside = false;
            continue;
        };
        let cells: Vec<&str> = cells.split('|').map(str::trim).collect();
        if cells == HEAD {
            inside = true;
        } else if inside && !cells.iter().all(|cell| cell.starts_with("---")) {
            let &[_, what, place, test] = cells.as_slice() else {
                panic!("line {}: {} cells instead of four", index + 1, cells.len())
            };
            assert!(!what.is_empty(), "line {}: says nothing", index + 1);
            rows.push(Row { line: index + 1, place, test });
        }
    }
    rows
}

/// What stands between backticks.
fn spans(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// The tests that a cell names: file and function. `::name` is of the file before.
fn references(cell: &str) -> Vec<(&str, &str)> {
    let mut file = "";
    let mut found = Vec::new();
    for (before, name) in spans(cell).filter_map(|span| span.split_once("::")) {
        if !before.is_empty() {
            file = before;
        }
        found.push((file, name));
    }
    found
}

/// Whether `source` has a test function of this name.
fn has_test(source: &str, name: &str) -> bool {
    let start = format!("fn {name}(");
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    lines.iter().enumerate().any(|(at, line)| {
        let above = || lines.get(..at).unwrap_or_default().iter().rev();
        line.starts_with(&start)
            && above()
                .take_while(|line| line.starts_with("#[") || line.starts_with("///"))
                .any(|line| *line == "#[test]")
    })
}

#[test]
fn every_test_named_in_rfc_coverage_exists() {
    let document = document();
    let mut wrong = Vec::new();
    let mut count = 0;
    for row in rows(&document) {
        for (file, name) in references(row.test) {
            count += 1;
            match fs::read_to_string(resolved(file)) {
                Err(_) => wrong.push(format!("line {}: there is no file {file}", row.line)),
                Ok(source) if !has_test(&source, name) => {
                    wrong.push(format!("line {}: there is no test {name} in {file}", row.line));
                }
                Ok(_) => {}
            }
        }
    }
    assert!(wrong.is_empty(), "docs/rfc-coverage.md:\n{}", wrong.join("\n"));
    assert!(count >= REFERENCES_MIN, "only {count} references were understood");
}

#[test]
fn every_file_named_in_rfc_coverage_exists() {
    let document = document();
    let mut wrong = Vec::new();
    for row in rows(&document) {
        for path in spans(row.place).filter(|path| !resolved(path).exists()) {
            wrong.push(format!("line {}: there is no {path}", row.line));
        }
    }
    assert!(wrong.is_empty(), "docs/rfc-coverage.md:\n{}", wrong.join("\n"));
}

#[test]
fn every_row_of_rfc_coverage_has_a_test_or_says_why_not() {
    let document = document();
    let bare: Vec<String> = rows(&document)
        .iter()
        .filter(|row| references(row.test).is_empty())
        .filter(|row| !EXCUSES.iter().any(|excuse| row.test.contains(excuse)))
        .map(|row| format!("line {}: {}", row.line, row.test))
        .collect();
    assert!(bare.is_empty(), "neither a test nor one of {EXCUSES:?}:\n{}", bare.join("\n"));
}

#[test]
fn every_rfc_that_the_source_cites_is_in_rfc_coverage() {
    let mut cited = BTreeSet::new();
    for package in fs::read_dir(root().join("crates")).expect("the crates") {
        cite(&package.expect("an entry").path().join("src"), &mut cited);
    }
    assert!(cited.contains("3261"), "nothing was found: {cited:?}");
    let document = document();
    let told: BTreeSet<&str> = document.split(|c: char| !c.is_ascii_digit()).collect();
    let missing: Vec<&String> = cited.iter().filter(|number| !told.contains(number.as_str())).collect();
    assert!(missing.is_empty(), "docs/rfc-coverage.md says nothing about RFC {missing:?}");
}

/// Collects the numbers behind `RFC ` in the source below a folder.
fn cite(folder: &Path, cited: &mut BTreeSet<String>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            cite(&path, cited);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let source =
                fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            for after in source.split("RFC ").skip(1) {
                let number: String = after.chars().take_while(char::is_ascii_digit).collect();
                if number.len() >= 3 {
                    cited.insert(number);
                }
            }
        }
    }
}

#[test]
fn references_and_excuses_are_told_apart() {
    let cell = "`a/b.rs::one` `::two`; **no test** of `conf/x.cfg`; `c.rs::three`";
    assert_eq!(references(cell), [("a/b.rs", "one"), ("a/b.rs", "two"), ("c.rs", "three")]);
    let source = "    /// Says what.\n    #[test]\n    fn yes() {\n    }\n\nfn no() {}\n// fn neither()\n";
    assert!(has_test(source, "yes"));
    assert!(!has_test(source, "no") && !has_test(source, "neither") && !has_test(source, "ye"));
}
