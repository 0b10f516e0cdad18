//! `sipstone compare`: two reports, with a verdict.

use super::exit::{Exit, Refusal};
use super::result::{self, Gates};
use crate::compare;
use crate::report::model::Report;
use clap::Args;
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  sipstone compare base.json new.json
  sipstone compare base.json new.json --gate 'peak >= 0.95*base' --gate 'cpu_us_per_op <= 1.05*base'
      in a build: exit code 2 if the new one carries less or costs more";

/// Compare two reports: better, worse, or no difference that the measurement can show
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct CompareArgs {
    /// The report that is compared with
    #[arg(value_name = "BASE.json")]
    base: PathBuf,

    /// The new report
    #[arg(value_name = "NEW.json")]
    new: PathBuf,

    /// Fail (exit code 2) unless this holds of the new report; `base` is the other one; can be repeated
    #[arg(long = "gate", value_name = "CONDITION")]
    gates: Vec<String>,
}

pub(super) fn compare(args: &CompareArgs) -> Result<Exit, Refusal> {
    let read = |path: &Path| Report::read(path).map_err(|error| Refusal(error.to_string()));
    let gates = Gates::read(&args.gates, Some(&args.base))?;
    let (base, new) = (read(&args.base)?, read(&args.new)?);
    result::print(&compare::compare(&base, &new).table())?;
    let (lines, held) = gates.judge(&new)?;
    result::print(&lines)?;
    Ok(if held { Exit::Fine } else { Exit::GateFailed })
}
