//! The report as JSON, and its schema (`docs/sipstone-report.schema.json`).

use super::model::{FORMAT, Report};
use super::redact;
use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

/// Largest report file that is read, bytes; a larger one is refused.
pub const FILE_BYTES_MAX: u64 = 256 << 20;

/// Why a file is no report; the sentence names the file, the place in it and what is wrong there.
#[derive(Debug)]
pub struct ReadError(String);

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ReadError {}

impl Report {
    /// Reads a report that [`to_json`] wrote.
    ///
    /// # Errors
    /// No such file, one over [`FILE_BYTES_MAX`], no report, or one of a newer format.
    pub fn read(path: &Path) -> Result<Report, ReadError> {
        let name = path.display();
        let mut text = String::new();
        File::open(path)
            .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text))
            .map_err(|error| ReadError(format!("{name} cannot be read: {error}")))?;
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(ReadError(format!(
                "{name} is larger than {FILE_BYTES_MAX} bytes, so it is no report of sipstone"
            )));
        }
        from_json(&text).map_err(|ReadError(reason)| ReadError(format!("{name}{reason}")))
    }
}

/// The report that stands in a text.
///
/// # Errors
/// As [`Report::read`]; the sentence begins with the place instead of the file.
pub fn from_json(text: &str) -> Result<Report, ReadError> {
    /// What every format has, so that a newer one is recognised before its fields are looked at.
    #[derive(serde::Deserialize)]
    struct Envelope {
        format: u32,
        #[serde(default)]
        version: String,
    }
    let envelope: Envelope = serde_json::from_str(text).map_err(|error| misread(text, &error))?;
    if envelope.format == 0 || envelope.format > FORMAT {
        let Envelope { format, version } = envelope;
        let by = if version.is_empty() { String::new() } else { format!(" (sipstone {version} wrote it)") };
        return Err(ReadError(format!(
            " has format {format}{by}; this sipstone, {}, reads formats 1 to {FORMAT}: use a newer one",
            env!("CARGO_PKG_VERSION")
        )));
    }
    serde_json::from_str(text).map_err(|error| misread(text, &error))
}

/// Where the text stops being a report, with the line itself.
fn misread(text: &str, error: &serde_json::Error) -> ReadError {
    /// Characters of the line that are shown.
    const SHOWN_MAX: usize = 80;
    let (line, column) = (error.line(), error.column());
    let what = error.to_string();
    let what = what.strip_suffix(&format!(" at line {line} column {column}")).unwrap_or(&what);
    let skipped = column.saturating_sub(SHOWN_MAX / 2);
    let shown: String = text
        .lines()
        .nth(line.saturating_sub(1))
        .unwrap_or("")
        .chars()
        .skip(skipped)
        .take(SHOWN_MAX)
        .collect();
    ReadError(format!(", line {line}, column {column}: {what}: {:?}", shown.trim()))
}

/// The report as indented JSON, with a newline at its end.
#[must_use]
pub fn to_json(report: &Report) -> String {
    let report = redact::report(report);
    let mut text = serde_json::to_string_pretty(&report)
        .expect("invariant: the report's maps have strings as keys, its numbers are finite or null");
    text.push('\n');
    text
}

/// Writes the report as indented JSON.
///
/// # Errors
/// The writer's.
pub fn write(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    out.write_all(to_json(report).as_bytes())
}

/// The schema of the report, as committed in `docs/sipstone-report.schema.json`.
#[must_use]
pub fn schema() -> String {
    let mut schema = schemars::schema_for!(Report);
    schema.insert("title".into(), "sipstone report".into());
    let mut text = serde_json::to_string_pretty(&schema).expect("invariant: a schema is JSON already");
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    const SCHEMA_FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/sipstone-report.schema.json");

    #[test]
    fn what_is_written_is_read_back_the_same() {
        for report in
            [sample::peak(), sample::run(), sample::suite(), Report { format: FORMAT, ..Report::default() }]
        {
            assert_eq!(from_json(&to_json(&report)).unwrap(), report);
        }
    }

    /// `SIPSTONE_WRITE_SCHEMA=1 cargo test -p sipstone schema` writes it.
    #[test]
    fn committed_schema_is_current() {
        if std::env::var_os("SIPSTONE_WRITE_SCHEMA").is_some() {
            std::fs::write(SCHEMA_FILE, schema()).unwrap();
        }
        let committed = std::fs::read_to_string(SCHEMA_FILE).unwrap();
        assert!(
            committed == schema(),
            "run SIPSTONE_WRITE_SCHEMA=1 cargo test -p sipstone schema and commit what it wrote"
        );
    }

    #[test]
    fn reports_validate_against_the_schema_and_broken_ones_do_not() {
        let schema: serde_json::Value = serde_json::from_str(&schema()).unwrap();
        let validator = jsonschema::validator_for(&schema).unwrap();
        for report in [sample::peak(), sample::run(), sample::suite()] {
            let value: serde_json::Value = serde_json::from_str(&to_json(&report)).unwrap();
            let wrong: Vec<String> = validator.iter_errors(&value).map(|error| error.to_string()).collect();
            assert!(wrong.is_empty(), "{wrong:?}");
            let mut broken = value.clone();
            broken["subjects"][0]["trials"][0]["rate"] = "fast".into();
            assert!(!validator.is_valid(&broken));
            let mut broken = value;
            broken.as_object_mut().unwrap().remove("subjects");
            assert!(!validator.is_valid(&broken));
        }
    }

    #[test]
    fn newer_format_is_refused_with_a_sentence() {
        let error =
            from_json(r#"{"format": 9, "version": "7.1.0", "subjects": "renamed"}"#).unwrap_err().to_string();
        assert!(error.contains("format 9 (sipstone 7.1.0 wrote it)"), "{error}");
        assert!(error.ends_with("use a newer one"), "{error}");
        assert!(from_json(r#"{"format": 0}"#).is_err());
    }

    #[test]
    fn mistake_is_told_with_its_line_and_what_was_expected() {
        let text = to_json(&sample::run()).replacen("\"same_host\": true", "\"same_host\": \"yes\"", 1);
        let error = from_json(&text).unwrap_err().to_string();
        assert!(
            error.contains("line ") && error.contains("expected a boolean") && error.contains("same_host"),
            "{error}"
        );
        assert!(from_json("").unwrap_err().to_string().contains("line 1"));
        assert!(from_json("[1, 2]").is_err());
        assert!(from_json(r#"{"version": "1"}"#).unwrap_err().to_string().contains("format"));
    }

    #[test]
    fn missing_file_is_named() {
        let error = Report::read(Path::new("/nonexistent/base.json")).unwrap_err().to_string();
        assert!(error.starts_with("/nonexistent/base.json cannot be read"), "{error}");
    }

    #[test]
    fn file_is_named_with_the_place_in_it() {
        let path = std::env::temp_dir().join(format!("sipstone-report-{}.json", std::process::id()));
        std::fs::write(&path, "{\n \"format\": one\n}").unwrap();
        let error = Report::read(&path).unwrap_err().to_string();
        std::fs::remove_file(&path).unwrap();
        assert!(error.contains(&format!("{}, line 2, column ", path.display())), "{error}");
    }
}
