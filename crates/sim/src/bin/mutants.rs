//! Shows that the simulator finds bugs: plants each mutation of `crates/sim/mutations` in a copy of the tree,
//! builds the simulator there, and runs seeds until one breaks an oracle.

use clap::Parser;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::{env, fs, io};

/// Plants mutations and tells which seed finds each.
///
/// The copy is `mutants` in the system's directory for temporary files; what is built there stays, so that the
/// next mutation costs what it changes. The tree itself is not touched. Needs `patch`.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Only mutations whose name has this in it.
    #[arg(default_value = "")]
    name: String,
    /// Seeds to be run before a mutation counts as not found.
    #[arg(long, default_value_t = 4_000)]
    seeds: u64,
    /// Builds without optimisation of the whole program: sooner built, slower run.
    #[arg(long)]
    dev: bool,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("mutants: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether every mutation was found.
fn run(arguments: &Arguments) -> Result<bool, String> {
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let copy = env::temp_dir().join("mutants");
    let failed = |what: &str, error: io::Error| format!("{what}: {error}");
    copy_tree(&tree, &copy).map_err(|error| failed("cannot copy the tree", error))?;
    let mut patches: Vec<PathBuf> = fs::read_dir(tree.join("crates/sim/mutations"))
        .map_err(|error| failed("cannot read crates/sim/mutations", error))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "patch"))
        .collect();
    patches.sort();
    let mut all = true;
    for patch in patches {
        let name = patch.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
        if !name.contains(&arguments.name) {
            continue;
        }
        // What goes wrong with one is said, and the others are tried all the same.
        let found = match apply(&copy, &patch, &[]) {
            Ok(()) => {
                let found = seeds(&copy, arguments);
                apply(&copy, &patch, &["-R"])?;
                found
            }
            Err(error) => Err(error),
        };
        all &= matches!(found, Ok(Some(_)));
        let told = found.map_or_else(|error| error, |seed| seed.unwrap_or_else(|| "NOT FOUND".to_owned()));
        println!("{name:<32} {told}");
    }
    Ok(all)
}

/// Copies what is needed to build; files that are the same stay as they are, so that they are not built again.
fn copy_tree(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let name = entry.file_name();
        let (source, target) = (entry.path(), to.join(&name));
        if name == "target" || name == ".git" {
            continue;
        }
        if entry.file_type()?.is_dir() {
            copy_tree(&source, &target)?;
        } else if fs::read(&target).ok() != Some(fs::read(&source)?) {
            fs::copy(&source, &target)?;
        }
    }
    Ok(())
}

fn apply(copy: &Path, patch: &Path, options: &[&str]) -> Result<(), String> {
    let mut command = Command::new("patch");
    command.args(["-p1", "-s", "-F0", "-i"]).arg(patch).args(options).current_dir(copy);
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(format!("{} does not fit the tree any more; write it anew", patch.display())),
        Err(error) => Err(format!("cannot run `patch`: {error}; install it")),
    }
}

/// What the first seed says that finds the mutation.
fn seeds(copy: &Path, arguments: &Arguments) -> Result<Option<String>, String> {
    // A directory of its own: cargo would take what is built of a mutation for what is to be built of the tree.
    let target = env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| copy.join("target"), |dir| Path::new(&dir).join("mutants"));
    let profile: &[&str] = if arguments.dev { &[] } else { &["--release"] };
    let built = Command::new("cargo")
        .args(["build", "-q", "-p", "sim", "--bin", "sim"])
        .args(profile)
        .env("CARGO_TARGET_DIR", &target)
        .current_dir(copy)
        .status();
    if !built.is_ok_and(|status| status.success()) {
        return Err("a mutation does not build; write its patch anew".to_owned());
    }
    let program = target.join(if arguments.dev { "debug" } else { "release" }).join("sim");
    let output = Command::new(program)
        .args(["--once", "--seeds", &format!("1..{}", arguments.seeds)])
        .stderr(Stdio::piped())
        .output()
        .map_err(|error| format!("cannot run the simulator: {error}"))?;
    let told = String::from_utf8_lossy(&output.stdout);
    let broken = told.lines().find(|line| line.contains(" breaks "));
    let panicked = String::from_utf8_lossy(&output.stderr)
        .lines()
        .find(|line| line.contains("panicked"))
        .map(str::to_owned);
    match broken.map(str::to_owned).or(panicked) {
        None if !output.status.success() => Err(format!("the simulator ended with {}", output.status)),
        found => Ok(found),
    }
}
