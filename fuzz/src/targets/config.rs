//! Configuration files: lexer, preprocessor, parser, checker and compiler, with the real modules' tables.

use super::show;
use modules::Settings;
use route::{Catalogue, Colour, Diagnostic, FileLoader, LoadError, Sources, Span};

thread_local! {
    pub(super) static CATALOGUE: Catalogue = modules::catalogue();
}

/// A file named `self` is the text itself, so that inclusions nest; there is no other.
struct Itself<'a>(&'a str);

impl FileLoader for Itself<'_> {
    fn load(&self, path: &str, _from: &str) -> Result<String, LoadError> {
        if path == "self" { Ok(self.0.to_owned()) } else { Err(LoadError::Missing) }
    }
}

/// See [`TARGETS`](crate::TARGETS).
pub fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let load = || CATALOGUE.with(|catalogue| route::load(&text, "fuzz.cfg", catalogue, &Itself(&text), &[]));
    match load() {
        Ok(loaded) => {
            assert!(loaded.diagnostics.iter().all(|finding| !finding.is_error()), "{}", show(data));
            let sources = loaded.program.sources();
            judge(&loaded.diagnostics, sources);
            let _ = loaded.render(Colour::Never);
            if let Err(findings) = Settings::from_program(&loaded.program) {
                judge(&findings, sources);
                findings.iter().for_each(|finding| drop(route::render(finding, sources, Colour::Always)));
            }
        }
        Err(rejected) => {
            assert!(rejected.errors() > 0, "rejected without an error: {}", show(data));
            assert!(rejected.diagnostics.len() <= route::limits::DIAGNOSTICS_MAX + 1, "{}", show(data));
            judge(&rejected.diagnostics, &rejected.sources);
            let shown = rejected.render(Colour::Never);
            let again = load().err().map(|rejected| rejected.render(Colour::Never));
            assert_eq!(again, Some(shown), "the same text is judged otherwise the second time");
        }
    }
}

/// Every place that a finding names is a piece of a file, from one character to another.
fn judge(findings: &[Diagnostic], sources: &Sources) {
    for finding in findings {
        assert!(!finding.message.is_empty() && !finding.code.is_empty());
        assert!(!finding.message.contains('\n'), "a message is one line: {:?}", finding.message);
        for (span, _) in finding.primary.iter().chain(&finding.secondary) {
            place(*span, finding, sources);
        }
    }
}

fn place(span: Span, finding: &Diagnostic, sources: &Sources) {
    let file = sources.files().get(usize::from(span.file));
    let text = file.map_or("", |file| file.text.as_str());
    let (start, end) = (span.start as usize, span.end as usize);
    assert!(text.get(start..end).is_some(), "{finding:?} points at {start}..{end} of {} bytes", text.len());
    let position = sources.position(span);
    assert!(position.line <= text.lines().count() + 1, "{finding:?}");
}
