//! `cargo xtask fuzz`: builds the fuzz targets with the compiler's coverage counters and has libFuzzer drive
//! them.
//!
//! The stable toolchain does it: the counters are a pass of LLVM that rustc runs on request, and libFuzzer
//! comes with a crate. What is found is left in `fuzz/artifacts/`; what `--keep` collects, in `fuzz/found/`.

use std::env;
use std::fs;
use std::io::{self, BufRead as _, BufReader};
use std::path::{Path, PathBuf, absolute};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How each target is run where nobody says it.
const SECONDS: u64 = 5;
/// One input that takes longer is a finding: work without a bound.
const INPUT_SECONDS_MAX: u64 = 10;
/// A target that needs more memory is a finding: a table without a limit.
const MEMORY_MB_MAX: u64 = 1_024;
/// The target with a planted bug.
const CANARY: &str = "canary";
/// How long the planted bug may stay unfound.
const CANARY_SECONDS: u64 = 60;
/// How often a long run says how far it is.
const SAY_EVERY: Duration = Duration::from_secs(60);
/// What a second of CPU time has in `/proc/PID/stat` (Linux: USER_HZ).
const TICKS_PER_SECOND: u64 = 100;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz");
/// Set while cargo calls this program in place of rustc.
pub(crate) const WRAPPER: &str = "STROWGER_FUZZ_RUSTC";

/// What gets counters: the code under test. Libraries and the reference run as fast as they can.
const COUNTED: [&str; 6] = ["sip", "engine", "location", "route", "modules", "fuzz"];

/// The counters that libFuzzer reads, as `cargo fuzz` asks for them.
const FLAGS: [&str; 6] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Cllvm-args=-simplifycfg-branch-fold-threshold=0",
];

/// What the command line asks for.
#[derive(Debug)]
struct Plan {
    targets: Vec<String>,
    seconds: u64,
    jobs: usize,
    keep: bool,
    arguments: Vec<String>,
}

/// Runs it.
///
/// # Errors
///
/// What could not be built, or which target failed, with the command that repeats it.
pub(crate) fn run(arguments: &[&str]) -> Result<(), String> {
    let plan = plan(arguments)?;
    let program = build()?;
    if !plan.arguments.is_empty() {
        return by_hand(&program, &plan);
    }
    let targets = targets(&program, &plan.targets)?;
    println!("{:<14} {:>11} {:>9} {:>8} {:>8} {:>8}", "target", "runs", "runs/s", "CPU s", "edges", "corpus");
    let mut failed = Vec::new();
    for batch in targets.chunks(plan.jobs) {
        std::thread::scope(|scope| {
            let runs: Vec<_> =
                batch.iter().map(|target| scope.spawn(|| smoke(&program, target, &plan))).collect();
            for run in runs {
                let outcome =
                    run.join().unwrap_or_else(|_| Err("the thread of a target panicked".to_owned()));
                failed.extend(outcome.err());
            }
        });
    }
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n")) }
}

fn plan(arguments: &[&str]) -> Result<Plan, String> {
    let mut plan =
        Plan { targets: Vec::new(), seconds: SECONDS, jobs: 1, keep: false, arguments: Vec::new() };
    let mut rest = arguments.iter();
    while let Some(&argument) = rest.next() {
        let mut number = || {
            let value = rest.next().and_then(|value| value.parse::<u64>().ok()).filter(|&n| n > 0);
            value.ok_or_else(|| format!("{argument} needs a number behind it, from 1 on"))
        };
        match argument {
            "--seconds" => plan.seconds = number()?,
            "--jobs" => plan.jobs = usize::try_from(number()?).unwrap_or(1),
            "--keep" => plan.keep = true,
            "--" => plan.arguments = rest.by_ref().map(|&argument| argument.to_owned()).collect(),
            target if target.starts_with('-') => {
                return Err(format!("unknown option `{target}`; fuzz/README.md has them all"));
            }
            target => plan.targets.push(target.to_owned()),
        }
    }
    if !plan.arguments.is_empty() && plan.targets.len() != 1 {
        return Err("arguments for libFuzzer need one target".to_owned());
    }
    Ok(plan)
}

/// Builds the program; gives its path.
fn build() -> Result<PathBuf, String> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let target = match env::var_os("CARGO_TARGET_DIR") {
        None => Path::new(FOLDER).join("target"),
        // The server's crates are there without counters, and may just be built: these need a place of their own.
        Some(folder) => absolute(&folder).map_err(|error| format!("CARGO_TARGET_DIR: {error}"))?.join("fuzz"),
    };
    let this = env::current_exe().map_err(|error| format!("cannot tell where this program is: {error}"))?;
    let status = Command::new(cargo)
        .args(["build", "--release", "--locked", "--features", "libfuzzer"])
        .current_dir(FOLDER)
        .env("RUSTC_WRAPPER", this)
        .env(WRAPPER, "1")
        .env("CARGO_TARGET_DIR", &target)
        .status()
        .map_err(|error| format!("cannot run cargo: {error}"))?;
    if !status.success() {
        return Err("the fuzz targets do not build; libFuzzer needs a C++ compiler (Debian: g++)".to_owned());
    }
    Ok(target.join("release/fuzz"))
}

/// Runs rustc as cargo asks for it, with counters for the code under test.
///
/// # Errors
///
/// If rustc cannot be run, or fails.
pub(crate) fn rustc(arguments: &[&str]) -> Result<(), String> {
    let [rustc, arguments @ ..] = arguments else { return Err("cargo named no compiler".to_owned()) };
    let of_test = arguments.windows(2).any(|pair| pair[0] == "--crate-name" && COUNTED.contains(&pair[1]));
    let flags = if of_test { &FLAGS[..] } else { &[] };
    let status = Command::new(rustc).args(arguments).args(flags).status();
    let status = status.map_err(|error| format!("cannot run {rustc}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{rustc} failed")) }
}

/// A target, as the program lists it.
#[derive(Clone, Debug)]
struct Target {
    name: String,
    input_bytes_max: String,
    dictionary: String,
}

/// Asks the program which targets it has.
fn targets(program: &Path, wanted: &[String]) -> Result<Vec<Target>, String> {
    let output = Command::new(program).env_remove("FUZZ_TARGET").output();
    let output = output.map_err(|error| format!("cannot run {}: {error}", program.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let all = text.lines().filter_map(|line| {
        let mut fields = line.split('\t').map(str::to_owned);
        Some(Target { name: fields.next()?, input_bytes_max: fields.next()?, dictionary: fields.next()? })
    });
    let all: Vec<Target> = all.collect();
    if let Some(unknown) = wanted.iter().find(|name| !all.iter().any(|target| target.name == **name)) {
        let names: Vec<&str> = all.iter().map(|target| target.name.as_str()).collect();
        return Err(format!("there is no target `{unknown}`; there are {}", names.join(", ")));
    }
    Ok(all.into_iter().filter(|target| wanted.is_empty() || wanted.contains(&target.name)).collect())
}

/// Hands the arguments to libFuzzer.
fn by_hand(program: &Path, plan: &Plan) -> Result<(), String> {
    let mut command = command(program, &plan.targets[0])?;
    let status = command.args(&plan.arguments).status().map_err(|error| format!("cannot run it: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{} failed", plan.targets[0])) }
}

fn command(program: &Path, target: &str) -> Result<Command, String> {
    let artifacts = Path::new(FOLDER).join("artifacts").join(target);
    fs::create_dir_all(&artifacts).map_err(|error| format!("{}: {error}", artifacts.display()))?;
    let mut command = Command::new(program);
    command
        .env("FUZZ_TARGET", target)
        .env("RUST_BACKTRACE", "0")
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .arg(format!("-timeout={INPUT_SECONDS_MAX}"))
        .arg(format!("-rss_limit_mb={MEMORY_MB_MAX}"));
    Ok(command)
}

/// Runs one target for its time, and prints a line of figures.
fn smoke(program: &Path, target: &Target, plan: &Plan) -> Result<(), String> {
    let Target { name: target, input_bytes_max, dictionary } = target;
    let is_canary = target == CANARY;
    let seconds = if is_canary { CANARY_SECONDS } else { plan.seconds };
    let mut command = command(program, target)?;
    command.arg(format!("-max_total_time={seconds}")).args(["-print_final_stats=1", "-reload=0"]);
    command.arg(format!("-max_len={input_bytes_max}"));
    if !dictionary.is_empty() {
        command.arg(format!("-dict={FOLDER}/dictionaries/{dictionary}.dict"));
    }
    let found = Path::new(FOLDER).join("found").join(target);
    if plan.keep && !is_canary {
        fs::create_dir_all(&found).map_err(|error| format!("{}: {error}", found.display()))?;
        command.arg(&found);
    } else {
        // The same run each time: what fails in CI fails here.
        command.arg("-seed=1");
    }
    // What libFuzzer finds goes into the first folder that is named; the committed inputs are only read.
    let scratch = env::temp_dir().join(format!("strowger-fuzz-{}-{target}", std::process::id()));
    if !plan.keep || is_canary {
        fs::create_dir_all(&scratch).map_err(|error| format!("{}: {error}", scratch.display()))?;
        command.arg(&scratch);
    }
    command.arg(Path::new(FOLDER).join("corpus").join(target));
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let ended = child.and_then(|child| watch(target, child));
    let _ = fs::remove_dir_all(&scratch);
    let ended = ended.map_err(|error| format!("cannot run {}: {error}", program.display()))?;
    figures(target, &ended);
    match (is_canary, ended.status.success()) {
        (false, true) => Ok(()),
        (true, false) => no_artifacts(target),
        (true, true) => Err(format!(
            "the bug planted in `{CANARY}` was not found in {CANARY_SECONDS} s: fuzzing does not work"
        )),
        (false, false) => Err(finding(target, &ended.text)),
    }
}

/// A run that is over.
struct Ended {
    status: ExitStatus,
    /// All that libFuzzer has said.
    text: String,
    took: Duration,
    /// Of all cores; unknown where there is no `/proc`.
    cpu_seconds: Option<u64>,
}

/// Waits for the end of a run, and passes on its progress once a minute.
fn watch(target: &str, mut child: Child) -> io::Result<Ended> {
    let began = Instant::now();
    let (mut said, mut text) = (began, String::new());
    if let Some(stderr) = child.stderr.take() {
        for line in BufReader::new(stderr).split(b'\n') {
            let line = String::from_utf8_lossy(&line?).into_owned();
            if line.starts_with('#') && said.elapsed() >= SAY_EVERY {
                eprintln!("{target:<14} {} s: {}", began.elapsed().as_secs(), line.replace('\t', " "));
                said = Instant::now();
            }
            text.push_str(&line);
            text.push('\n');
        }
    }
    // Before it is waited for: afterwards there is nothing to read.
    let cpu_seconds = cpu_seconds(child.id());
    Ok(Ended { status: child.wait()?, text, took: began.elapsed(), cpu_seconds })
}

/// User and system time of a process (proc(5): fields 14 and 15 of `/proc/PID/stat`).
fn cpu_seconds(process: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The second field, the name, is in parentheses and may hold anything.
    let (_, behind_name) = stat.rsplit_once(')')?;
    let mut times = behind_name.split_whitespace().skip(11).map_while(|field| field.parse::<u64>().ok());
    Some((times.next()? + times.next()?) / TICKS_PER_SECOND)
}

fn figures(target: &str, ended: &Ended) {
    let Ended { text, took, cpu_seconds, .. } = ended;
    let stat = |name: &str| {
        let line = text.lines().rev().find_map(|line| line.strip_prefix(name))?;
        line.trim().parse::<u64>().ok()
    };
    let status = text.lines().rev().find(|line| line.starts_with('#') && line.contains(" cov: "));
    let word = |name: &str| {
        let mut words = status?.split_whitespace().skip_while(|word| *word != name);
        words.nth(1).map(|value| value.split('/').next().unwrap_or(value).to_owned())
    };
    let runs = stat("stat::number_of_executed_units:");
    let shown = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    println!(
        "{target:<14} {:>11} {:>9} {:>8} {:>8} {:>8}",
        shown(runs.map(|runs| runs.to_string())),
        shown(runs.map(|runs| format!("{:.0}", runs as f64 / took.as_secs_f64()))),
        shown(cpu_seconds.map(|seconds| seconds.to_string())),
        shown(word("cov:")),
        shown(word("corp:")),
    );
}

/// What the canary found is no news.
fn no_artifacts(target: &str) -> Result<(), String> {
    let folder = Path::new(FOLDER).join("artifacts").join(target);
    fs::remove_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))
}

fn finding(target: &str, text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let about =
        lines.iter().position(|line| line.contains("panicked at") || line.contains("ERROR: libFuzzer"));
    let shown = lines.get(about.unwrap_or(lines.len().saturating_sub(20))..).unwrap_or_default();
    let file = text.lines().find_map(|line| line.split("Test unit written to ").nth(1)).unwrap_or("FILE");
    let shown: Vec<&str> = shown.iter().take(12).copied().collect();
    format!(
        "{target} failed:\n    {}\nto repeat it:\n    cargo xtask fuzz {target} -- {file}",
        shown.join("\n    ")
    )
}
