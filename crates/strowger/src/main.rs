//! `strowger`: a SIP server.
//!
//! This crate puts the others together and decides nothing about SIP: command line, configuration file, listeners,
//! threads, signals.

#![deny(unsafe_code)]

mod admin;
mod asks;
mod certificate;
mod cli;
mod clock;
mod configuration;
mod control;
mod databases;
mod greeting;
mod held;
mod keeping;
mod log;
mod persistence;
mod reload;
mod server;
mod services;
mod shard;
mod signals;
mod state;
mod striped;
mod tls;
mod totals;

use std::path::Path;
use std::process::ExitCode;

use clap::Parser as _;
use clap::error::ErrorKind;

use crate::admin::AdminError;
use crate::cli::{Cli, Command, Run};
use crate::configuration::LoadError;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Exit code of a configuration that does not check.
const DOES_NOT_CHECK: u8 = 2;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    match cli.command {
        None => run(&cli.run),
        Some(Command::Run(options)) => run(&options),
        Some(Command::Check { file, defines }) => check(&file, &defines),
        Some(Command::Init { file }) => init(&file),
        Some(Command::Cert(command)) => certificate(&command),
        Some(Command::User(command)) => administer(admin::users::run(&command)),
        Some(Command::Contacts(command)) => administer(admin::contacts::run(&command)),
        Some(Command::Reload(command)) => administer(admin::reload::run(&command)),
        Some(Command::Db(command)) => administer(admin::db::run(&command)),
        Some(Command::Reference) => {
            print!("{}", modules::catalogue().reference_markdown());
            ExitCode::SUCCESS
        }
    }
}

/// Help and version as they are; an error in one line that says where help is.
fn usage(error: &clap::Error) -> ExitCode {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        // A reader who closed the pipe has seen enough.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = error.print();
        return ExitCode::FAILURE;
    }
    let text = error.to_string();
    let first = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
    // What is missing stands below, a line each.
    let missing: Vec<&str> = match error.kind() {
        ErrorKind::MissingRequiredArgument => {
            text.lines().skip(1).map_while(|line| line.strip_prefix("  ")).map(str::trim).collect()
        }
        _ => Vec::new(),
    };
    let missing = if missing.is_empty() { String::new() } else { format!(" {}", missing.join(", ")) };
    let tip = text.lines().find_map(|line| line.trim().strip_prefix("tip: ")).map(|tip| format!(" ({tip})"));
    eprintln!("strowger: {first}{missing}{}; see strowger --help", tip.unwrap_or_default());
    ExitCode::FAILURE
}

fn run(options: &Run) -> ExitCode {
    let loaded = match configuration::load(options.file().map(AsRef::as_ref), &options.defines) {
        Ok(loaded) => loaded,
        Err(error) => return refused(&error),
    };
    match server::run(options, loaded) {
        Ok(code) => code,
        Err(error) => fail(&error.to_string()),
    }
}

fn check(file: &Path, defines: &[String]) -> ExitCode {
    match configuration::load(Some(file), defines) {
        Ok(loaded) => {
            eprint!("{}", loaded.notes());
            if let Err(error) = loaded.prove_certificates() {
                return refused(&error);
            }
            // URLs are read; nothing is connected.
            if let Err(error) = databases::urls(&loaded.settings, &state::directory(None)) {
                eprintln!("strowger: {}: {error}", loaded.name);
                return ExitCode::from(DOES_NOT_CHECK);
            }
            println!("{}: no errors", loaded.name);
            ExitCode::SUCCESS
        }
        Err(error) => refused(&error),
    }
}

fn refused(error: &LoadError) -> ExitCode {
    match error {
        LoadError::Unreadable(line) => fail(line),
        LoadError::Wrong(diagnostics) => {
            eprint!("{diagnostics}");
            ExitCode::from(DOES_NOT_CHECK)
        }
    }
}

fn init(file: &Path) -> ExitCode {
    use std::io::Write as _;
    let write = || std::fs::File::create_new(file)?.write_all(configuration::BUILT_IN.as_bytes());
    let name = file.display();
    match write() {
        Ok(()) => {
            println!("{name} written; `strowger check {name}` checks it, `strowger run {name}` runs it");
            ExitCode::SUCCESS
        }
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            fail(&format!("{name} exists already; give another name: strowger init FILE"))
        }
        Err(error) => fail(&format!("cannot write {name}: {error}")),
    }
}

fn administer(done: Result<String, AdminError>) -> ExitCode {
    use std::io::Write as _;
    match done {
        Ok(text) => {
            // A reader who closed the pipe has seen enough.
            let _ = std::io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(AdminError::Line(line)) => fail(&line),
        Err(AdminError::Configuration(error)) => refused(&error),
    }
}

fn certificate(command: &certificate::Certificates) -> ExitCode {
    use std::io::Write as _;
    match certificate::run(command) {
        Ok(text) => {
            // A reader who closed the pipe has seen enough.
            let _ = std::io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(error) => fail(&error.to_string()),
    }
}

fn fail(line: &str) -> ExitCode {
    eprintln!("strowger: {line}");
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_reference_in_the_documentation_is_current() {
        let written = include_str!("../../../docs/reference.md");
        let current = modules::catalogue().reference_markdown();
        assert!(written == current, "write it again: cargo run --release -- reference > docs/reference.md");
    }
}
