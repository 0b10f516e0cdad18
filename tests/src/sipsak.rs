//! sipsak, a command-line SIP tester.

use std::process::{Command, Output};

/// Runs sipsak with these arguments to its end.
///
/// # Panics
///
/// When it is not installed.
pub fn sipsak(arguments: &[&str]) -> Output {
    let output = Command::new("sipsak").args(arguments).output();
    output.unwrap_or_else(|error| panic!("sipsak: {error}; `cargo xtask test` installs it"))
}
