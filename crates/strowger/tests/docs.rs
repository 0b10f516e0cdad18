//! Keeps `docs/rfc-coverage.md` and the pages below `docs/rfc-coverage/` honest: the files, functions and tests that they name
//! exist, every row says how it is shown or that it is not, links lead somewhere, the counts of the index are those of the
//! pages, and every RFC that the source cites has its place there.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// References that the pages have at least; fewer mean that this test no longer understands them.
const REFERENCES_MIN: usize = 900;
/// What a row without a test must say.
const EXCUSES: [&str; 4] = ["no test", "not met", "not yet", "not applicable"];
/// The head of a table of coverage.
const COVERAGE: [&str; 4] = ["section", "what", "where", "test"];
/// The head of a table of requirements, one a row.
const REQUIREMENTS: [&str; 5] = ["section", "requirement", "state", "code", "test"];
/// What becomes of a requirement.
const STATES: [&str; 4] = ["done", "partly", "not done", "not applicable"];
/// How strongly it is asked for (RFC 2119).
const LEVELS: [&str; 6] = ["MUST NOT", "MUST", "SHOULD NOT", "SHOULD", "NOT RECOMMENDED", "RECOMMENDED"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A page, by its path from the root.
struct Page {
    path: String,
    text: String,
}

impl Page {
    fn read(path: String) -> Page {
        let text = fs::read_to_string(root().join(&path)).unwrap_or_else(|error| panic!("{path}: {error}"));
        Page { path, text }
    }
}

/// The index and the pages of single RFCs, in order.
fn pages() -> Vec<Page> {
    let folder = fs::read_dir(root().join("docs/rfc-coverage")).expect("docs/rfc-coverage");
    let mut names: Vec<String> = folder
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .map(|name| format!("docs/rfc-coverage/{name}"))
        .collect();
    names.sort();
    names.insert(0, "docs/rfc-coverage.md".to_owned());
    names.into_iter().map(Page::read).collect()
}

/// The file or folder that a page means: paths leave out `crates/`.
fn resolved(path: &str) -> PathBuf {
    let top = ["tests/", "conf/", "docs/"].iter().any(|folder| path.starts_with(folder));
    if top { root().join(path) } else { root().join("crates").join(path) }
}

/// One row of a table, with its place.
struct Row<'a> {
    place: String,
    what: &'a str,
    /// Of a requirement.
    state: Option<&'a str>,
    code: &'a str,
    test: &'a str,
}

fn rows(page: &Page) -> Vec<Row<'_>> {
    let mut rows = Vec::new();
    let mut width = 0;
    for (index, line) in page.text.lines().enumerate() {
        let place = format!("{} line {}", page.path, index + 1);
        let Some(cells) = line.strip_prefix('|').and_then(|line| line.strip_suffix('|')) else {
            width = 0;
            continue;
        };
        let cells: Vec<&str> = cells.split('|').map(str::trim).collect();
        if cells == COVERAGE || cells == REQUIREMENTS {
            width = cells.len();
        } else if width > 0 && !cells.iter().all(|cell| cell.starts_with("---")) {
            assert_eq!(cells.len(), width, "{place}: so many cells");
            let (what, state, code, test) = match cells[..] {
                [_, what, code, test] => (what, None, code, test),
                [_, what, state, code, test] => (what, Some(state), code, test),
                _ => unreachable!("a head has four cells or five"),
            };
            assert!(!what.is_empty(), "{place}: says nothing");
            rows.push(Row { place, what, state, code, test });
        }
    }
    rows
}

/// Complaints about rows, of all pages.
fn complaints(find: impl Fn(&Row<'_>) -> Option<String>) -> String {
    let mut all = String::new();
    for page in pages() {
        for (place, found) in rows(&page).iter().filter_map(|row| Some((&row.place, find(row)?))) {
            let _ = writeln!(all, "{place}: {found}");
        }
    }
    all
}

/// What stands between backticks.
fn spans(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// The functions that a cell names, with their files. `::name` is of the file before.
fn references(cell: &str) -> Vec<(&str, &str)> {
    let mut file = "";
    let mut found = Vec::new();
    for span in spans(cell) {
        let Some((before, name)) = span.split_once("::") else {
            file = span;
            continue;
        };
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

/// Whether `source` has a function, constant or type of this name.
fn has_item(source: &str, name: &str) -> bool {
    let kinds = ["fn", "const", "static", "struct", "enum"];
    source
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .zip(source.split(|c: char| !c.is_alphanumeric() && c != '_').skip(1))
        .any(|(kind, item)| item == name && kinds.contains(&kind))
}

#[test]
fn every_test_named_in_rfc_coverage_exists() {
    let wrong = complaints(|row| {
        let missing = |(file, name): (&str, &str)| match fs::read_to_string(resolved(file)) {
            Err(_) => Some(format!("there is no file {file}")),
            Ok(source) => (!has_test(&source, name)).then(|| format!("there is no test {name} in {file}")),
        };
        references(row.test).into_iter().find_map(missing)
    });
    assert!(wrong.is_empty(), "{wrong}");
    let count: usize = pages()
        .iter()
        .map(|page| rows(page).iter().map(|row| references(row.test).len()).sum::<usize>())
        .sum();
    assert!(count >= REFERENCES_MIN, "only {count} references were understood");
}

#[test]
fn everything_named_as_code_in_rfc_coverage_exists() {
    let wrong = complaints(|row| {
        let missing_file = spans(row.code)
            .map(|span| span.split("::").next().unwrap_or_default())
            .filter(|file| !file.is_empty())
            .find(|file| !resolved(file).exists());
        if let Some(file) = missing_file {
            return Some(format!("there is no {file}"));
        }
        references(row.code).into_iter().find_map(|(file, name)| {
            let source = fs::read_to_string(resolved(file)).unwrap_or_default();
            (!has_item(&source, name)).then(|| format!("there is no {name} in {file}"))
        })
    });
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn every_row_of_rfc_coverage_has_a_test_or_says_why_not() {
    let wrong = complaints(|row| {
        let shown =
            !references(row.test).is_empty() || EXCUSES.iter().any(|excuse| row.test.contains(excuse));
        let of_none = row.state.is_some_and(|state| state.starts_with("not "));
        (!shown && !of_none).then(|| format!("neither a test nor one of {EXCUSES:?}"))
    });
    assert!(wrong.is_empty(), "{wrong}");
}

/// The state that a cell begins with, and what it says of it.
fn state_of(cell: &str) -> Option<(&'static str, &str)> {
    STATES.iter().find_map(|state| {
        let reason = cell.strip_prefix(state)?;
        (reason.is_empty() || reason.starts_with([':', ';', ','])).then_some((*state, reason))
    })
}

#[test]
fn every_requirement_says_how_much_it_asks_and_what_became_of_it() {
    let wrong = complaints(|row| {
        let state = row.state?;
        if !LEVELS.iter().any(|level| row.what.starts_with(&format!("**{level}** "))) {
            return Some("the requirement does not begin with **MUST** or its like".to_owned());
        }
        match state_of(state) {
            None => Some(format!("the state is none of {STATES:?}")),
            Some(("done" | "partly", _)) if row.code.is_empty() => Some("it names no code".to_owned()),
            Some(("partly" | "not done" | "not applicable", "")) => Some("it does not say why".to_owned()),
            Some(_) => None,
        }
    });
    assert!(wrong.is_empty(), "{wrong}");
}

/// How many requirements of a page there are in each of [`STATES`].
fn counts(page: &Page) -> [usize; 4] {
    let rows = rows(page);
    let states = || rows.iter().filter_map(|row| state_of(row.state?)).map(|(state, _)| state);
    STATES.map(|wanted| states().filter(|state| *state == wanted).count())
}

#[test]
fn the_index_counts_the_requirements_of_each_page() {
    let pages = pages();
    let (index, single) = pages.split_first().expect("the index");
    for page in single {
        let name = page.path.strip_prefix("docs/").expect("it is below docs");
        let [done, partly, not_done, not_applicable] = counts(page);
        let line = format!("]({name}) | {done} | {partly} | {not_done} | {not_applicable} |");
        assert!(index.text.contains(&line), "docs/rfc-coverage.md has no line with `{line}`");
    }
}

/// The name by which a heading is linked to.
fn anchor(heading: &str) -> String {
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    heading
        .trim_start_matches('#')
        .trim()
        .to_lowercase()
        .chars()
        .filter(kept)
        .collect::<String>()
        .replace(' ', "-")
}

#[test]
fn every_link_of_rfc_coverage_leads_somewhere() {
    let mut wrong = String::new();
    for page in pages() {
        let here = root().join(&page.path);
        let links = page.text.split("](").skip(1).filter_map(|after| after.split(')').next());
        for link in links.filter(|link| !link.starts_with("http")) {
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { here.clone() } else { here.with_file_name("").join(file) };
            let text = fs::read_to_string(&target);
            let found = text.is_ok_and(|text| {
                let mut headings = text.lines().filter(|line| line.starts_with('#')).map(anchor);
                heading.is_empty() || headings.any(|found| found == heading)
            });
            if !found {
                let _ = writeln!(wrong, "{}: {link} leads nowhere", page.path);
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn every_rfc_that_the_source_cites_is_in_rfc_coverage() {
    let mut cited = BTreeSet::new();
    for package in fs::read_dir(root().join("crates")).expect("the crates") {
        cite(&package.expect("an entry").path().join("src"), &mut cited);
    }
    assert!(cited.contains("3261"), "nothing was found: {cited:?}");
    let pages = pages();
    let words = pages.iter().flat_map(|page| page.text.split(|c: char| !c.is_ascii_digit()));
    let told: BTreeSet<&str> = words.collect();
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
    assert!(has_item(source, "no") && !has_item(source, "n") && !has_item(source, "Says"));
    assert_eq!(state_of("not done: nobody asked"), Some(("not done", ": nobody asked")));
    assert_eq!((state_of("done"), state_of("donealmost"), state_of("")), (Some(("done", "")), None, None));
    assert_eq!(anchor("## RFC 2543: old clients"), "rfc-2543-old-clients");
}
