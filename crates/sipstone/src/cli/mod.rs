//! The command line: one file per command, and what they share.
//!
//! `values` reads single values, `options` declares what `run`, `peak` and `suite` share, `mix` and `workload` make
//! of it what is offered, `session` holds what a measurement needs while it runs, `result` writes and judges what it
//! found.

mod agent;
mod calibration;
mod compare;
mod connect;
mod doctor;
mod exit;
mod grid;
mod links;
mod mix;
mod null;
mod options;
mod peak;
mod report;
mod result;
mod run;
mod scenarios;
mod session;
mod suite;
mod values;
mod workload;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};
use exit::{Exit, Refusal};
use std::process::ExitCode;

/// Shown under `sipstone --help`.
const EXAMPLES: &str = "\
Examples:
  sipstone doctor --target 127.0.0.1:5060
      what limits this host, and one call shown message by message
  sipstone run invite --target 127.0.0.1:5060 --rate 500 --duration 30s
      500 calls a second for half a minute
  sipstone peak register --target sip:10.0.0.1 --sut-pid 1234 --html register.html
      the highest rate that the server keeps up with, and its CPU time for each registration
  sipstone suite paper --target 127.0.0.1:5060 --json new.json
      what the papers measured, one after the other, in one report
  sipstone compare base.json new.json --gate 'peak >= 0.95*base'
      better or worse, and is the difference more than noise
  sipstone null --listen 127.0.0.1:5070
      a server that answers and does nothing: what the generator itself can do

Exit codes: 0 measured; 1 usage or set-up; 2 a gate failed; 3 the measurement is invalid or was broken off.
Results go to standard output, progress and complaints to standard error.
`sipstone COMMAND --help` explains every option of a command.";

/// A benchmark suite for SIP servers: peak rate, CPU time of the server per operation, latency
#[derive(Debug, Parser)]
#[command(name = "sipstone", bin_name = "sipstone", version, after_help = EXAMPLES, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::RunArgs),
    Peak(peak::PeakArgs),
    Suite(suite::SuiteArgs),
    Grid(Box<grid::GridArgs>),
    Compare(compare::CompareArgs),
    Report(report::ReportArgs),
    Scenarios(scenarios::ScenariosArgs),
    Null(null::NullArgs),
    Doctor(doctor::DoctorArgs),
    Agent(agent::AgentArgs),
}

/// Runs the command that the arguments name.
pub fn main() -> ExitCode {
    log();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    let done = match &cli.command {
        Command::Run(args) => run::run(args),
        Command::Peak(args) => peak::peak(args),
        Command::Suite(args) => suite::suite(args),
        Command::Grid(args) => grid::grid(args),
        Command::Compare(args) => compare::compare(args),
        Command::Report(args) => report::report(args),
        Command::Scenarios(args) => scenarios::scenarios(args),
        Command::Null(args) => null::null(args),
        Command::Doctor(args) => doctor::doctor(args),
        Command::Agent(args) => agent::agent(args),
    };
    match done {
        Ok(exit) => exit.into(),
        Err(refusal) => {
            eprintln!("sipstone: {refusal}");
            Exit::SetUp.into()
        }
    }
}

/// Warnings of the program itself to standard error; `SIPSTONE_LOG=debug` shows more.
fn log() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("SIPSTONE_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn"));
    // A logger that somebody else has set, as in tests, stays.
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).try_init();
}

/// Help and version as they are; an error in one sentence that says where help is.
fn usage(error: &clap::Error) -> ExitCode {
    use ErrorKind::{DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, DisplayVersion};
    if matches!(error.kind(), DisplayHelp | DisplayVersion) {
        // A reader who closed the pipe has seen enough.
        let _ = error.print();
        return Exit::Fine.into();
    }
    if error.kind() == DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = error.print();
        return Exit::SetUp.into();
    }
    eprintln!("sipstone: {}", sentence(&error.to_string()));
    Exit::SetUp.into()
}

/// What `clap` says in several lines, in one; its hint is kept, its usage line left out.
fn sentence(text: &str) -> String {
    let head = text.lines().take_while(|line| !line.trim().is_empty() && !line.starts_with("Usage:"));
    let head: Vec<&str> = head.map(str::trim).collect();
    let head = head.join(" ");
    let tips: Vec<&str> = text.lines().filter_map(|line| line.trim().strip_prefix("tip: ")).collect();
    let tip = tips.first().map(|tip| format!(" ({tip})")).unwrap_or_default();
    let command = text.lines().find_map(|line| line.strip_prefix("Usage: sipstone "));
    let command = command
        .and_then(|usage| usage.split_whitespace().next())
        .filter(|word| word.starts_with(char::is_lowercase));
    let command = command.map(|word| format!(" {word}")).unwrap_or_default();
    format!("{}{tip}; see sipstone{command} --help", head.trim_start_matches("error: ").trim_end_matches('.'))
}

/// Fails with a sentence.
fn refuse<T>(sentence: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal(sentence.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn error(line: &str) -> String {
        sentence(&Cli::try_parse_from(line.split_whitespace()).unwrap_err().to_string())
    }

    #[test]
    fn the_declaration_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn examples_of_the_help_are_command_lines() {
        let of = |command: &mut clap::Command| {
            command.get_after_help().map(ToString::to_string).unwrap_or_default()
        };
        let mut root = Cli::command();
        let mut texts = vec![of(&mut root)];
        texts.extend(root.get_subcommands_mut().map(of));
        let mut seen = 0;
        for line in texts.iter().flat_map(|text| text.lines()) {
            let Some(line) = line.strip_prefix("  sipstone ") else { continue };
            let words = words(line);
            let parsed = Cli::try_parse_from(std::iter::once("sipstone".to_string()).chain(words));
            assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
            seen += 1;
        }
        assert!(seen >= 15, "only {seen} examples");
    }

    /// Splits at blanks, keeping what stands between single quotes together.
    fn words(line: &str) -> Vec<String> {
        let mut words = vec![String::new()];
        let mut quoted = false;
        for c in line.trim_end_matches('&').trim().chars() {
            match c {
                '\'' => quoted = !quoted,
                ' ' if !quoted => words.push(String::new()),
                c => words.last_mut().unwrap().push(c),
            }
        }
        words.retain(|word| !word.is_empty());
        words
    }

    #[test]
    fn usage_errors_are_one_sentence_with_the_way_to_help() {
        let missing = error("sipstone run invite");
        assert!(missing.contains("--target") && missing.ends_with("see sipstone run --help"), "{missing}");
        let unknown = error("sipstone run invite --target h --duratoin 3s");
        assert!(unknown.contains("--duration") && !unknown.contains('\n'), "{unknown}");
        let value = error("sipstone run invite --target h --rate fast");
        assert!(value.contains("--rate") && value.contains("operations a second"), "{value}");
        let both = error("sipstone run invite --target h --sut-pid 1 --sut-exec x");
        assert!(both.contains("cannot be used with"), "{both}");
    }

    #[test]
    fn every_option_has_help() {
        for command in Cli::command().get_subcommands() {
            assert!(command.get_about().is_some(), "{}", command.get_name());
            for option in command.get_arguments() {
                assert!(option.get_help().is_some(), "{} {}", command.get_name(), option.get_id());
            }
        }
    }
}
