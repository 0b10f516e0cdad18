//! `cargo xtask callgrind`: instructions per operation, counted by Callgrind, in a table.

use std::env;
use std::process::{Command, Stdio};

/// The runner's version must be that of the `gungraun` crate in `Cargo.lock`.
const RUNNER: &str = "gungraun-runner";
const RUNNER_VERSION: &str = "0.20.0";

/// Runs the benchmarks and prints what they counted.
///
/// # Errors
///
/// What is missing, or the command that failed.
pub(crate) fn run() -> Result<(), String> {
    require("valgrind", "apt-get install valgrind")?;
    require(RUNNER, &format!("cargo install {RUNNER} --version {RUNNER_VERSION}"))?;
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["bench", "--package", "strowger", "--bench", "callgrind"])
        .env("GUNGRAUN_COLOR", "never")
        .env("CARGO_TERM_COLOR", "never")
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cannot run cargo: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        return Err(format!("cargo bench -p strowger --bench callgrind failed\n{text}"));
    }
    let rows = rows(&text);
    if rows.is_empty() {
        return Err(format!("the benchmarks printed no counts\n{text}"));
    }
    println!("{:<48} {:>24}", "operation", "instructions, each");
    for row in rows {
        println!("{:<48} {:>24.0}", row.name, row.instructions / row.operations);
    }
    Ok(())
}

fn require(program: &str, how: &str) -> Result<(), String> {
    let found = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    match found {
        Ok(_) => Ok(()),
        Err(_) => Err(format!("{program} is not installed; to install it:\n    {how}")),
    }
}

/// One benchmark's count.
#[derive(Debug, PartialEq)]
struct Row {
    name: String,
    instructions: f64,
    operations: f64,
}

/// Reads pairs of lines: `path::of::function id_OPERATIONS:(...)`, `  Instructions:  COUNT|...`.
fn rows(text: &str) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut header = None;
    for line in text.lines() {
        if let Some(rest) = line.trim_start().strip_prefix("Instructions:") {
            let count = rest.split('|').next().and_then(|count| count.trim().parse().ok());
            rows.extend(header.take().zip(count).map(|((name, operations), instructions)| Row {
                name,
                instructions,
                operations,
            }));
        } else if !line.starts_with(' ') {
            header = named(line);
        }
    }
    rows
}

/// Function and id without the number of operations, and that number.
fn named(line: &str) -> Option<(String, f64)> {
    let (path, id) = line.split_once(' ')?;
    let function = path.rsplit_once("::")?.1;
    let (id, operations) = id.split(':').next()?.rsplit_once('_')?;
    Some((format!("{function}: {}", id.replace('_', " ")), operations.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_with_their_names() {
        let text = "\
callgrind::message::parse invite_of_1_kb_1:(parse_ready(& text :: invite()))
  Instructions:                                       9113|N/A                  (*********)
callgrind::message::call stateful_32:(operations :: ready(DEFAULT, 32...
  Instructions:                                    3777049|3777050              (-0.00003%)

Gungraun result: Ok. 2 without regressions; 0 regressed; 0 filtered; 2 benchmarks finished in 29.4s
";
        let row =
            |name: &str, instructions, operations| Row { name: name.to_owned(), instructions, operations };
        let expected = [row("parse: invite of 1 kb", 9_113.0, 1.0), row("call: stateful", 3_777_049.0, 32.0)];
        assert_eq!(rows(text), expected);
    }
}
