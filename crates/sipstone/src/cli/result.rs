//! What a measurement ends with: files, the summary, gates, the exit code.

use super::exit::{Exit, Refusal};
use super::options::OutputArgs;
use super::refuse;
use crate::gate::{self, Gate, GateResult};
use crate::report::model::Report;
use crate::report::{csv, html, json, text};
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Where a report goes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Files<'a> {
    /// `--json`.
    pub(super) json: Option<&'a Path>,
    /// `--csv`.
    pub(super) csv: Option<&'a Path>,
    /// `--html`.
    pub(super) html: Option<&'a Path>,
}

impl<'a> Files<'a> {
    /// Those of the options.
    pub(super) fn of(output: &'a OutputArgs) -> Files<'a> {
        Files { json: output.json.as_deref(), csv: output.csv.as_deref(), html: output.html.as_deref() }
    }

    /// Whether standard output is one of them, so that nothing else may be written there.
    pub(super) fn take_stdout(&self) -> bool {
        [self.json, self.csv].into_iter().flatten().any(is_stdout)
    }

    /// Refuses what could not be written after an hour of measurement.
    ///
    /// # Errors
    /// Two files on standard output, a page on it, or a folder that does not exist.
    pub(super) fn check(&self) -> Result<(), Refusal> {
        if [self.json, self.csv].into_iter().flatten().filter(|path| is_stdout(path)).count() > 1 {
            return refuse("--json - and --csv - cannot both be written to standard output: give one a file");
        }
        if self.html.is_some_and(is_stdout) {
            return refuse("--html needs a file: it is not written to standard output");
        }
        for path in [self.json, self.csv, self.html].into_iter().flatten().filter(|path| !is_stdout(path)) {
            let folder =
                path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            if !folder.is_dir() {
                return refuse(format!(
                    "{} cannot be written: there is no folder {}",
                    path.display(),
                    folder.display()
                ));
            }
            if path.is_dir() {
                return refuse(format!("{} cannot be written: it is a folder", path.display()));
            }
        }
        Ok(())
    }

    /// Writes all of them.
    ///
    /// # Errors
    /// One could not be written; the others are.
    pub(super) fn write(&self, report: &Report) -> Result<(), Refusal> {
        let written = [
            self.json.map(|path| write(path, |out| json::write(report, out))),
            self.csv.map(|path| write(path, |out| csv::write(report, out))),
            self.html.map(|path| write(path, |out| html::write(report, out))),
        ];
        written.into_iter().flatten().collect()
    }
}

fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Writes one file, or standard output for `-`.
fn write(path: &Path, content: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Refusal> {
    let done = if is_stdout(path) {
        let mut out = io::stdout().lock();
        content(&mut out).and_then(|()| out.flush()).or_else(reader_left)
    } else {
        std::fs::File::create(path).and_then(|file| {
            let mut out = BufWriter::new(file);
            content(&mut out)?;
            out.flush()
        })
    };
    done.map_err(|error| Refusal(format!("{} cannot be written: {error}", path.display())))
}

/// Prints to standard output. A reader that has gone away has seen enough.
///
/// # Errors
/// Standard output cannot be written.
pub(super) fn print(text: &str) -> Result<(), Refusal> {
    let mut out = io::stdout().lock();
    let done = out.write_all(text.as_bytes()).and_then(|()| out.flush()).or_else(reader_left);
    done.map_err(|error| Refusal(format!("standard output cannot be written: {error}")))
}

fn reader_left(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::BrokenPipe { Ok(()) } else { Err(error) }
}

/// The report for the terminal.
pub(super) fn summary(report: &Report) -> String {
    text::summary(report)
}

/// The gates of a command, with what they compare with.
#[derive(Debug, Default)]
pub(super) struct Gates {
    gates: Vec<Gate>,
    base: Option<Report>,
}

impl Gates {
    /// Reads them before anything is measured, so that a typing error costs no time.
    ///
    /// # Errors
    /// A gate that is none, or a base that cannot be read.
    pub(super) fn read(texts: &[String], base: Option<&Path>) -> Result<Gates, Refusal> {
        let gates = texts.iter().map(|text| Gate::parse(text).map_err(|error| Refusal(error.to_string())));
        let gates = gates.collect::<Result<Vec<Gate>, Refusal>>()?;
        let base = base.map(Report::read).transpose().map_err(|error| Refusal(error.to_string()))?;
        if let Some(gate) = gates.iter().find(|gate| base.is_none() && gate.needs_base()) {
            return refuse(format!(
                "gate {:?} compares with a base report: give it with --base FILE",
                gate.text
            ));
        }
        Ok(Gates { gates, base })
    }

    /// One line for each gate, and whether all held.
    ///
    /// # Errors
    /// A gate asks for what was not measured.
    pub(super) fn judge(&self, report: &Report) -> Result<(String, bool), Refusal> {
        let results = gate::evaluate(&self.gates, report, self.base.as_ref());
        let results = results.map_err(|error| Refusal(error.to_string()))?;
        let line = |result: &GateResult| {
            format!("gate {}  {}\n", if result.pass { "held  " } else { "FAILED" }, result.sentence)
        };
        Ok((results.iter().map(line).collect(), results.iter().all(|result| result.pass)))
    }
}

/// Writes the files, prints the summary, judges the gates.
///
/// # Errors
/// A file could not be written, or a gate asks for what was not measured.
pub(super) fn finish(report: &Report, output: &OutputArgs, gates: &Gates) -> Result<Exit, Refusal> {
    let files = Files::of(output);
    files.write(report)?;
    let (lines, held) = gates.judge(report)?;
    let summary = format!("{}{lines}", summary(report));
    if files.take_stdout() {
        eprint!("{summary}");
    } else {
        print(&summary)?;
    }
    if nothing_succeeded(report) {
        let hint = if asks_for_credentials(report) {
            "the server asks for credentials: add --auth challenge or --auth cached"
        } else {
            "the target or the users may be wrong"
        };
        eprintln!("sipstone: not one operation succeeded: see the failures above; {hint}");
    }
    Ok(exit_of(report, held))
}

/// What is wrong with the measurement weighs more than what a gate says of it.
fn exit_of(report: &Report, gates_held: bool) -> Exit {
    if !report.invalid.is_empty() {
        Exit::Invalid
    } else if !gates_held {
        Exit::GateFailed
    } else if nothing_succeeded(report) {
        Exit::SetUp
    } else {
        Exit::Fine
    }
}

/// Whether a challenge was a failure somewhere (RFC 3261 §22).
fn asks_for_credentials(report: &Report) -> bool {
    let trials = report.subjects.iter().flat_map(|subject| &subject.trials);
    trials
        .flat_map(|trial| trial.all.failures.keys())
        .any(|word| word == "status-401" || word == "status-407")
}

/// Whether there were trials, and all of them in vain.
fn nothing_succeeded(report: &Report) -> bool {
    let mut trials = report.subjects.iter().flat_map(|subject| &subject.trials).peekable();
    trials.peek().is_some() && trials.all(|trial| trial.all.offered > 0 && trial.all.succeeded == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::model::{ClassReport, Subject, TrialReport};
    use std::path::PathBuf;

    #[test]
    fn only_one_file_goes_to_standard_output() {
        let dash = Path::new("-");
        assert!(Files { json: Some(dash), csv: Some(dash), html: None }.check().is_err());
        assert!(Files { html: Some(dash), ..Files::default() }.check().is_err());
        let one = Files { json: Some(dash), ..Files::default() };
        assert!(one.check().is_ok() && one.take_stdout());
    }

    #[test]
    fn files_that_cannot_be_written_are_refused_before_the_measurement() {
        let nowhere = Files { json: Some(Path::new("/nonexistent/folder/x.json")), ..Files::default() };
        assert!(nowhere.check().unwrap_err().0.contains("/nonexistent/folder"));
        let folder: PathBuf = std::env::temp_dir();
        assert!(Files { html: Some(&folder), ..Files::default() }.check().is_err());
        assert!(Files { csv: Some(Path::new("x.csv")), ..Files::default() }.check().is_ok());
    }

    #[test]
    fn an_invalid_measurement_weighs_more_than_a_gate() {
        let invalid = Report { invalid: vec!["too late".into()], ..Report::default() };
        assert_eq!(exit_of(&invalid, false), Exit::Invalid);
        assert_eq!(exit_of(&Report::default(), false), Exit::GateFailed);
        assert_eq!(exit_of(&Report::default(), true), Exit::Fine);
    }

    #[test]
    fn a_measurement_in_which_nothing_succeeded_is_a_matter_of_set_up() {
        let with = |succeeded| {
            let all = ClassReport { offered: 10, succeeded, ..ClassReport::default() };
            let trials = vec![TrialReport { all, ..TrialReport::default() }];
            Report { subjects: vec![Subject { trials, ..Subject::default() }], ..Report::default() }
        };
        assert_eq!(exit_of(&with(0), true), Exit::SetUp);
        assert_eq!(exit_of(&with(0), false), Exit::GateFailed);
        assert_eq!(exit_of(&with(1), true), Exit::Fine);
    }

    #[test]
    fn a_gate_that_is_none_is_refused_before_the_measurement() {
        assert!(Gates::read(&["beauty >= 3".into()], None).is_err());
        assert!(Gates::read(&[], Some(Path::new("/nonexistent/base.json"))).is_err());
    }
}
