//! `sim`: runs seeds and tells what does not hold.

use clap::Parser;
use sim::coverage::Coverage;
use sim::run::{self, Outcome};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Servers, phones and bad networks in one process at virtual time, running the production code.
///
/// Each seed makes a world of its own: how many phones and servers, which faults, who calls whom and when.
/// After its run every oracle (see --oracles) judges what went over the wire. A seed reproduces its run
/// exactly.
#[derive(Parser)]
#[command(
    version,
    after_help = "\
Examples:
  cargo run --release -p sim -- --seeds 1..1000     a thousand worlds; ends with 1 if something does not hold
  cargo run --release -p sim -- --seed 42           one world: its faults, and the ladder of each call with a fault
  cargo run --release -p sim -- --seed 42 --trace   everything that happens in it"
)]
struct Arguments {
    /// Seeds to be run, the first and the last: 1..1000.
    #[arg(long, value_name = "FIRST..LAST", value_parser = range, conflicts_with = "seed")]
    seeds: Option<(u64, u64)>,
    /// One seed.
    #[arg(long, value_name = "SEED")]
    seed: Option<u64>,
    /// With --seed: shows every message, not only those of calls with a fault.
    #[arg(long, requires = "seed")]
    trace: bool,
    /// Goes on behind a seed with a fault, and counts such seeds.
    #[arg(long)]
    all: bool,
    /// Runs each seed once: does not prove that it reproduces its run, and takes half the time.
    #[arg(long)]
    once: bool,
    /// Shows how often each state and transition was met.
    #[arg(long)]
    coverage: bool,
    /// Lists the oracles with their sections and ends.
    #[arg(long)]
    oracles: bool,
}

fn range(text: &str) -> Result<(u64, u64), String> {
    let wrong = || format!("`{text}` is no range of seeds; write the first and the last as 1..1000");
    let (first, last) = text.split_once("..").ok_or_else(wrong)?;
    let number = |part: &str| part.trim_start_matches('=').parse::<u64>().map_err(|_| wrong());
    let (first, last) = (number(first)?, number(last)?);
    if first > last {
        Err(format!("`{text}` holds no seed; the first is to be the smaller one"))
    } else {
        Ok((first, last))
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.oracles {
        for oracle in sim::oracle::ORACLES.iter().copied().flatten() {
            println!("{:<26} {:<52} {}", oracle.name, oracle.section, oracle.says);
        }
        return ExitCode::SUCCESS;
    }
    match (arguments.seed, arguments.seeds) {
        (Some(seed), _) => one(seed, arguments.trace),
        (None, seeds) => many(seeds.unwrap_or((1, 1_000)), &arguments),
    }
}

/// One seed, with everything about it.
fn one(seed: u64, trace: bool) -> ExitCode {
    let world = run::world(seed);
    println!("seed {seed}: {}", world.plan.describe());
    if trace {
        print!("{}", sim::ladder::draw(&world.trace, ""));
    }
    let outcome = run::judged(&world);
    println!(
        "{} messages, {} µs of virtual time, trace hash {:016x}",
        outcome.messages, world.now, outcome.hash
    );
    if run::hash_again(seed) != outcome.hash {
        println!("the second run was another one: something random is not the seed's");
        return ExitCode::FAILURE;
    }
    tell(&outcome, &world.trace, !trace)
}

/// What does not hold, and the ladders.
fn tell(outcome: &Outcome, trace: &sim::trace::Trace, ladders: bool) -> ExitCode {
    let mut shown = std::collections::BTreeSet::new();
    for violation in &outcome.violations {
        let at = sim::trace::seconds(violation.at);
        println!(
            "\nseed {} breaks {} ({}) at {at}, call {:?}: {}",
            outcome.seed, violation.oracle, violation.section, violation.call_id, violation.text
        );
        if ladders && !violation.call_id.is_empty() && shown.insert(&violation.call_id) {
            print!("{}", sim::ladder::draw(trace, &violation.call_id));
        }
    }
    if outcome.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn many((first, last): (u64, u64), arguments: &Arguments) -> ExitCode {
    let begin = Instant::now();
    let mut said = begin;
    let (mut messages, mut failed) = (0_u64, 0_u64);
    let mut coverage = Coverage::default();
    for seed in first..=last {
        let outcome = run::run(seed);
        messages += outcome.messages as u64;
        coverage.add(&outcome.coverage);
        let differs = !arguments.once && run::hash_again(seed) != outcome.hash;
        if differs {
            println!("seed {seed}: the second run was another one: something random is not the seed's");
        }
        if differs || !outcome.violations.is_empty() {
            failed += 1;
            if arguments.all {
                let first = outcome.violations.first();
                println!(
                    "seed {seed}: {}",
                    first.map_or(String::new(), |v| format!("{} ({}): {}", v.oracle, v.section, v.text))
                );
            } else {
                let world = run::world(seed);
                println!("{}", world.plan.describe());
                tell(&outcome, &world.trace, true);
                println!("\nagain, with everything: cargo run --release -p sim -- --seed {seed} --trace");
                return ExitCode::FAILURE;
            }
        }
        if said.elapsed() > Duration::from_secs(5) {
            said = Instant::now();
            println!("seed {seed}: {}", pace(begin.elapsed(), seed - first + 1, messages));
        }
    }
    if arguments.coverage {
        for (point, count) in &coverage.0 {
            println!("{count:>9}  {point}");
        }
    }
    let seeds = last - first + 1;
    println!(
        "{seeds} seeds, {failed} with faults; {}; {} states and transitions met",
        pace(begin.elapsed(), seeds, messages),
        coverage.0.len()
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn pace(elapsed: Duration, seeds: u64, messages: u64) -> String {
    let millis = elapsed.as_secs_f64() * 1_000.0 / seeds as f64;
    format!("{millis:.1} ms a seed, {} messages a seed", messages / seeds)
}
