//! The steps of the test suite: what each one runs, and running them one after the other.

use std::env;
use std::process::Command;
use std::time::Instant;

/// One command of the suite.
pub(crate) struct Step {
    heading: &'static str,
    environment: &'static [(&'static str, &'static str)],
    /// What follows `cargo`.
    arguments: &'static [&'static str],
}

/// What needs nothing but the toolchain.
pub(crate) const FAST: &[Step] = &[
    Step { heading: "formatting", environment: &[], arguments: &["fmt", "--all", "--check"] },
    Step {
        heading: "lints",
        environment: &[],
        arguments: &["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"],
    },
    Step {
        heading: "documentation",
        environment: &[("RUSTDOCFLAGS", "-D warnings")],
        arguments: &["doc", "--workspace", "--no-deps", "--locked"],
    },
    Step {
        heading: "unit tests",
        environment: &[],
        arguments: &["test", "--workspace", "--exclude", "end-to-end", "--locked"],
    },
];

/// What drives the release build with real peers. Those tests wait far more than they compute, so more of them run at
/// once than there are cores.
pub(crate) const END_TO_END: &[Step] = &[
    Step {
        heading: "release build",
        environment: &[],
        arguments: &["build", "--release", "-p", "strowger", "-p", "sipstone", "--locked"],
    },
    Step {
        heading: "databases",
        environment: &[],
        arguments: &["test", "-p", "store", "--locked", "--", "--ignored"],
    },
    Step {
        heading: "end-to-end tests",
        environment: &[("RUST_TEST_THREADS", "6")],
        arguments: &["test", "-p", "end-to-end", "--locked"],
    },
];

/// Runs the groups of steps in order.
///
/// # Errors
///
/// Names the first step that failed and the command that repeats it alone.
pub(crate) fn run(groups: &[&[Step]]) -> Result<(), String> {
    let began = Instant::now();
    for step in groups.iter().copied().flatten() {
        step.run()?;
    }
    println!("\n==> all passed in {} s", began.elapsed().as_secs());
    Ok(())
}

impl Step {
    fn run(&self) -> Result<(), String> {
        let began = Instant::now();
        println!("\n==> {}: {}", self.heading, self.command_line());
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let status = Command::new(cargo)
            .args(self.arguments)
            .envs(self.environment.iter().copied())
            .status()
            .map_err(|error| format!("cannot run cargo: {error}"))?;
        if !status.success() {
            return Err(format!("{} failed; to repeat it:\n    {}", self.heading, self.command_line()));
        }
        println!("==> {}: passed in {:.1} s", self.heading, began.elapsed().as_secs_f32());
        Ok(())
    }

    /// The step as one would type it into a shell.
    fn command_line(&self) -> String {
        let environment =
            self.environment.iter().map(|(name, value)| format!("{name}='{value}' ")).collect::<String>();
        format!("{environment}cargo {}", self.arguments.join(" "))
    }
}
