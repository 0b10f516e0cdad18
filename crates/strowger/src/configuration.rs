//! Reading a configuration file: from disk to a checked program and its settings.

use std::fs;
use std::io::{self, IsTerminal as _, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use modules::Settings;
use route::{
    Colour, Constant, DefaultValue, Diagnostic, FileLoader, LoadError as FileError, Program, Rejected,
    Severity,
};

use crate::tls;

/// The configuration that runs when none is given.
pub(crate) const BUILT_IN: &str = include_str!("../../../conf/default.cfg");

/// What diagnostics call it.
const BUILT_IN_NAME: &str = "the built-in configuration";

/// A configuration that runs.
pub(crate) struct Loaded {
    /// The file's name, as it was given.
    pub(crate) name: String,
    /// The file's directory.
    pub(crate) directory: PathBuf,
    pub(crate) program: Arc<Program>,
    pub(crate) settings: Arc<Settings>,
    /// The settings of TLS, and all files that were read.
    pub(crate) tls: tls::Found,
    /// Where they come from.
    pub(crate) tls_source: tls::Source,
    diagnostics: Vec<Diagnostic>,
}

/// Why there is none.
#[derive(Debug)]
pub(crate) enum LoadError {
    /// The file cannot be read: one line that says so.
    Unreadable(String),
    /// What is wrong in it, for people to read.
    Wrong(String),
}

/// Loads `file`, standard input for `-`, or the built-in configuration.
pub(crate) fn load(file: Option<&Path>, defines: &[String]) -> Result<Loaded, LoadError> {
    let (name, text) = match file {
        None => (BUILT_IN_NAME.to_owned(), BUILT_IN.to_owned()),
        Some(path) if path == Path::new("-") => ("standard input".to_owned(), read_standard_input()?),
        Some(path) => (path.display().to_string(), read(path)?),
    };
    let defines: Vec<(&str, &str)> = defines.iter().map(|d| d.split_once('=').unwrap_or((d, ""))).collect();
    let directory = file.and_then(Path::parent).map(Path::to_owned).unwrap_or_default();
    let files = Files { beside: directory.clone() };
    let wrong = |rejected: &Rejected| LoadError::Wrong(rejected.render(colour()));
    let loaded = route::load(&text, &name, &modules::catalogue(), &files, &defines)
        .map_err(|rejected| wrong(&rejected))?;
    let (program, mut diagnostics) = (loaded.program, loaded.diagnostics);
    let settings = Settings::from_program(&program)
        .map_err(|diagnostics| wrong(&Rejected { diagnostics, sources: program.sources().clone() }))?;
    diagnostics.extend(settings.notes.iter().cloned());
    let tls_source = tls::Source::new(settings.tls.clone(), directory.clone());
    let tls = tls_source
        .load(program.sources().clone(), &settings.listen)
        .map_err(|tls::Wrong { diagnostics, sources }| wrong(&Rejected { diagnostics, sources }))?;
    diagnostics.extend(tls.diagnostics.iter().cloned());
    let (program, settings) = (Arc::new(program), Arc::new(settings));
    Ok(Loaded { name, directory, program, settings, tls, tls_source, diagnostics })
}

impl Loaded {
    /// Whether it loads a module.
    pub(crate) fn loads(&self, module: &str) -> bool {
        modules::catalogue().module(module).is_some_and(|id| self.program.loads(id))
    }

    /// What a module's parameter is, as a text: what the file says last, else its default.
    pub(crate) fn parameter(&self, module: &str, name: &str) -> String {
        let catalogue = modules::catalogue();
        let found = catalogue.module(module).and_then(|module| catalogue.parameter_named(module, name));
        let Some(id) = found else { return String::new() };
        match self.program.modparam(id).map(|set| &set.value) {
            Some(Constant::Str(text)) => return String::from_utf8_lossy(text).into_owned(),
            Some(Constant::Int(value)) => return value.to_string(),
            Some(Constant::Socket(_)) | None => {}
        }
        match catalogue.parameter(id).map(|decl| decl.default) {
            Some(DefaultValue::Str(text)) => text.to_owned(),
            Some(DefaultValue::Int(value)) => value.to_string(),
            _ => String::new(),
        }
    }

    /// Loads certificates as `run` would.
    ///
    /// # Errors
    ///
    /// What is wrong inside of them.
    pub(crate) fn prove_certificates(&self) -> Result<(), LoadError> {
        let wrong = |finding: Box<Diagnostic>| {
            LoadError::Wrong(route::render(&finding, &self.tls.sources, colour()) + "\n")
        };
        self.tls.prove().map_err(wrong)
    }

    /// Warnings and notes, for people to read; empty if there are none.
    pub(crate) fn notes(&self) -> String {
        self.diagnostics.iter().map(|d| route::render(d, &self.tls.sources, colour()) + "\n\n").collect()
    }

    /// Writes warnings to the log, a line each.
    pub(crate) fn log_notes(&self) {
        for diagnostic in self.diagnostics.iter().filter(|d| d.severity >= Severity::Warning) {
            let place = self.tls.sources.position(diagnostic.span().unwrap_or_default());
            tracing::warn!("{}:{}:{}: {}", place.file, place.line, place.column, diagnostic.message);
        }
    }
}

fn colour() -> Colour {
    if io::stderr().is_terminal() { Colour::Always } else { Colour::Never }
}

fn read(path: &Path) -> Result<String, LoadError> {
    match fs::read(path) {
        Ok(bytes) => Ok(text(bytes)),
        Err(error) => Err(LoadError::Unreadable(format!(
            "cannot read {}: {error}; give a configuration file, or none to run the built-in one",
            path.display()
        ))),
    }
}

fn read_standard_input() -> Result<String, LoadError> {
    let mut bytes = Vec::new();
    let limit = route::limits::SOURCE_BYTES_MAX as u64 + 1;
    match io::stdin().take(limit).read_to_end(&mut bytes) {
        Ok(_) => Ok(text(bytes)),
        Err(error) => Err(LoadError::Unreadable(format!("cannot read standard input: {error}"))),
    }
}

/// Comments of old files are in all kinds of encodings; what is not UTF-8 in a name is found by the checker.
fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// Included files: relative names are looked for beside the file that includes them, then beside the main one.
struct Files {
    beside: PathBuf,
}

impl FileLoader for Files {
    fn load(&self, path: &str, from: &str) -> Result<String, FileError> {
        let beside_includer = Path::new(from).parent().unwrap_or(Path::new("")).join(path);
        let mut last = FileError::Missing;
        for candidate in [beside_includer, self.beside.join(path)] {
            match fs::read(&candidate) {
                Ok(bytes) => return Ok(text(bytes)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => last = FileError::Failed(format!("{}: {error}", candidate.display())),
            }
        }
        Err(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_configuration_loads_without_a_warning() {
        let loaded = match load(None, &[]) {
            Ok(loaded) => loaded,
            Err(LoadError::Unreadable(text) | LoadError::Wrong(text)) => panic!("{text}"),
        };
        assert!(loaded.diagnostics.iter().all(|d| d.severity < Severity::Warning), "{}", loaded.notes());
    }

    #[test]
    fn a_missing_file_is_one_line_that_says_what_to_do() {
        let Err(LoadError::Unreadable(line)) = load(Some(Path::new("/nowhere/x.cfg")), &[]) else {
            panic!("it was read")
        };
        assert!(line.contains("/nowhere/x.cfg") && !line.contains('\n'), "{line}");
    }
}
