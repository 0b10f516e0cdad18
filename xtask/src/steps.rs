//! The steps of the test suite: what each one runs, and running them one after the other.

use std::env;
use std::io::{self, Write as _};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// One command of the suite.
pub(crate) struct Step {
    heading: &'static str,
    environment: &'static [(&'static str, &'static str)],
    /// What follows `cargo`.
    arguments: &'static [&'static str],
    /// Another step that runs at the same time.
    beside: Option<&'static Step>,
}

const fn step(heading: &'static str, arguments: &'static [&'static str]) -> Step {
    Step { heading, environment: &[], arguments, beside: None }
}

/// What needs nothing but the toolchain.
pub(crate) const FAST: &[Step] = &[
    step("formatting", &["fmt", "--all", "--check"]),
    step("lints", &["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"]),
    Step {
        environment: &[("RUSTDOCFLAGS", "-D warnings")],
        ..step("documentation", &["doc", "--workspace", "--no-deps", "--locked"])
    },
    step("unit tests", &["test", "--workspace", "--exclude", "end-to-end", "--locked"]),
];

/// What is in the workspace of the fuzz targets: the reference's own tests, and every committed input once.
pub(crate) const FUZZING: &[Step] = &[
    step(
        "formatting of the fuzz targets",
        &["fmt", "--manifest-path", "fuzz/Cargo.toml", "--all", "--check"],
    ),
    step(
        "lints of the fuzz targets",
        // Not all targets: the library takes in sources of `net`, whose own tests are not ours.
        &[
            "clippy",
            "--manifest-path",
            "fuzz/Cargo.toml",
            "--workspace",
            "--lib",
            "--tests",
            "--locked",
            "--",
            "-D",
            "warnings",
        ],
    ),
    step(
        "reference of the fuzz targets",
        &["test", "--manifest-path", "fuzz/Cargo.toml", "--workspace", "--locked"],
    ),
];

/// A minute of each target. A minute of the clock: it needs little more of that beside something that does not keep all
/// cores busy.
const MINUTE_OF_FUZZING: Step = step("fuzzing", &["xtask", "fuzz", "--seconds", "60", "--jobs", "2"]);

/// What drives the release build with real peers. Those tests wait far more than they compute, so more of them run at
/// once than there are cores.
pub(crate) const END_TO_END: &[Step] = &[
    Step {
        // It spends minutes on one core, in the linker's optimisation of the whole program.
        beside: Some(&MINUTE_OF_FUZZING),
        ..step("release build", &["build", "--release", "-p", "strowger", "-p", "sipstone", "--locked"])
    },
    step(
        "databases",
        // Of the whole workspace, so that no dependency is built once more with other features.
        &[
            "test",
            "--workspace",
            "--test",
            "postgres",
            "--test",
            "mariadb",
            "--test",
            "sqlite",
            "--locked",
            "--",
            "--ignored",
        ],
    ),
    Step {
        environment: &[("RUST_TEST_THREADS", "6")],
        ..step("end-to-end tests", &["test", "-p", "end-to-end", "--locked"])
    },
];

/// Runs the groups of steps in order.
///
/// # Errors
///
/// Names the first step that failed and the command that repeats it alone, and the one that failed beside it.
pub(crate) fn run(groups: &[&[Step]]) -> Result<(), String> {
    let began = Instant::now();
    for step in groups.iter().copied().flatten() {
        match step.beside {
            Some(other) => both(step, other)?,
            None => step.run()?,
        }
    }
    println!("\n==> all passed in {} s", began.elapsed().as_secs());
    Ok(())
}

/// Runs two steps at once. What the second prints is kept until the first has ended, and both are waited for: neither
/// outlives the suite, and one run tells of both.
fn both(first: &Step, second: &Step) -> Result<(), String> {
    println!("\n==> {}, beside the next step: {}", second.heading, second.command_line());
    let began = Instant::now();
    let kept = second.command().stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let kept = kept.map_err(|error| format!("cannot run cargo: {error}"))?;
    let outcome = first.run();
    let beside = second.end(kept, began);
    match (outcome, beside) {
        (Err(one), Err(other)) => Err(format!("{one}\n{other}")),
        (one, other) => one.and(other),
    }
}

impl Step {
    fn run(&self) -> Result<(), String> {
        let began = Instant::now();
        println!("\n==> {}: {}", self.heading, self.command_line());
        let status = self.command().status().map_err(|error| format!("cannot run cargo: {error}"))?;
        self.outcome(status.success(), began)
    }

    /// Waits for the end of this step, and prints what it had to say.
    fn end(&self, child: Child, began: Instant) -> Result<(), String> {
        println!("\n==> {}: waiting for its end", self.heading);
        let output = child.wait_with_output().map_err(|error| format!("cannot wait for cargo: {error}"))?;
        io::stderr()
            .write_all(&output.stderr)
            .and_then(|()| io::stdout().write_all(&output.stdout))
            .map_err(|error| format!("cannot print what {} said: {error}", self.heading))?;
        self.outcome(output.status.success(), began)
    }

    fn outcome(&self, success: bool, began: Instant) -> Result<(), String> {
        if !success {
            return Err(format!("{} failed; to repeat it:\n    {}", self.heading, self.command_line()));
        }
        println!("==> {}: passed in {:.1} s", self.heading, began.elapsed().as_secs_f32());
        Ok(())
    }

    fn command(&self) -> Command {
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command.args(self.arguments).envs(self.environment.iter().copied());
        command
    }

    /// The step as one would type it into a shell.
    fn command_line(&self) -> String {
        let environment =
            self.environment.iter().map(|(name, value)| format!("{name}='{value}' ")).collect::<String>();
        format!("{environment}cargo {}", self.arguments.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSES: Step = step("what passes", &["--version"]);
    const FAILS: Step = step("what fails", &["no-such-command"]);

    #[test]
    fn two_steps_pass_together() {
        assert_eq!(both(&PASSES, &PASSES), Ok(()));
    }

    #[test]
    fn the_failure_of_either_of_two_steps_is_told_with_the_command_that_repeats_it() {
        let told = "what fails failed; to repeat it:\n    cargo no-such-command";
        assert_eq!(both(&FAILS, &PASSES), Err(told.to_owned()));
        assert_eq!(both(&PASSES, &FAILS), Err(told.to_owned()));
        assert_eq!(both(&FAILS, &FAILS), Err(format!("{told}\n{told}")));
    }
}
