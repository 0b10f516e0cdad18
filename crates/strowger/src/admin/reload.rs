//! `strowger reload`: a running server reads its certificates and the tables that it holds in memory again.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use super::{AdminError, table};
use crate::control::{self, CallError};
use crate::state;

/// `strowger reload`.
#[derive(Args, Debug)]
pub(crate) struct Reload {
    /// Print JSON: an array of objects.
    #[arg(long)]
    json: bool,

    /// The server's state directory.
    #[arg(long, value_name = "DIRECTORY")]
    state_dir: Option<PathBuf>,
}

/// Runs the command; returns what to print.
///
/// # Errors
///
/// See [`AdminError`]: no server runs there, or something could not be read.
pub(crate) fn run(reload: &Reload) -> Result<String, AdminError> {
    let directory = state::directory(reload.state_dir.as_deref());
    let answer = control::call(&state::socket(&directory), "reload", &json!({}));
    let mut answer = answer.map_err(|error| match error {
        CallError::NoServer => AdminError::Line(format!(
            "no server runs with the state directory {}: give its --state-dir DIRECTORY (one that is started reads \
             everything anew)",
            directory.display()
        )),
        CallError::Failed(why) => AdminError::Line(why),
    })?;
    let read = answer["read"].take().as_array().cloned().unwrap_or_default();
    if reload.json {
        return Ok(format!("{}\n", Value::Array(read)));
    }
    if read.is_empty() {
        return Ok(
            "the configuration has no table that is read whole, and no certificates: nothing to read again\n"
                .to_owned(),
        );
    }
    Ok(table::table(&["read again", "entries", "from"], read.iter().map(row).collect()))
}

fn row(read: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
    let from: Vec<String> = read["from"].as_array().into_iter().flatten().map(text).collect();
    vec![text(&read["what"]), read["count"].to_string(), from.join(", ")]
}
