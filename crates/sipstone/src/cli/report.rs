//! `sipstone report`: shows a report again, or writes it in another form.

use super::exit::{Exit, Refusal};
use super::result;
use crate::report::model::Report;
use clap::Args;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  sipstone report peak.json
      the summary, as it was shown after the measurement
  sipstone report peak.json --html peak.html --csv peak.csv";

/// Show a JSON report again, or write it as HTML or CSV
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct ReportArgs {
    /// The report, as --json wrote it
    #[arg(value_name = "FILE.json")]
    file: PathBuf,

    /// Write one self-contained HTML page with plots
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Write the trials as CSV; - for standard output
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
}

pub(super) fn report(args: &ReportArgs) -> Result<Exit, Refusal> {
    let report = Report::read(&args.file).map_err(|error| Refusal(error.to_string()))?;
    let files = result::Files { json: None, csv: args.csv.as_deref(), html: args.html.as_deref() };
    files.write(&report)?;
    if args.csv.is_none() && args.html.is_none() {
        result::print(&result::summary(&report))?;
    }
    Ok(Exit::Fine)
}
