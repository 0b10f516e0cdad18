//! The project's own chores, run as `cargo xtask <chore>`.
//!
//! `cargo xtask test` is the whole test suite, as a developer and as CI run it. Each step prints its heading, its
//! command and the time it took; the first one that fails ends the run with the command that repeats it.

mod callgrind;
mod fuzz;
mod packages;
mod steps;

use std::env;
use std::process::ExitCode;

const HELP: &str = "\
The project's chores

Usage: cargo xtask <chore>

  test           Run everything: formatting, lints, documentation, unit tests, fuzzing, end-to-end tests
  test --fast    The same without fuzzing and the end-to-end tests, which need the release build and SIP peers
  callgrind      Count the instructions of each kind of message, with Valgrind
  fuzz [TARGET…] [--seconds N] [--jobs N] [--keep] [-- ARGUMENT…]
                 Fuzz every target (or these) for some seconds; see fuzz/README.md
  help           Print this text
";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments.as_slice() {
        rustc if env::var_os(fuzz::WRAPPER).is_some() => fuzz::rustc(rustc),
        [] | ["help" | "--help" | "-h"] | [_, "--help" | "-h"] => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        ["test"] => {
            packages::ensure().and_then(|()| steps::run(&[steps::FAST, steps::FUZZING, steps::END_TO_END]))
        }
        ["callgrind"] => callgrind::run(),
        ["fuzz", rest @ ..] => fuzz::run(rest),
        ["test", "--fast"] => steps::run(&[steps::FAST]),
        unknown => Err(format!("unknown chore `{}`; `cargo xtask help` lists them", unknown.join(" "))),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("xtask: {reason}");
            ExitCode::FAILURE
        }
    }
}
