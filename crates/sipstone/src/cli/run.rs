//! `sipstone run`: one trial at one rate.

use super::connect::{self, ConnectArgs};
use super::exit::{Exit, Refusal};
use super::mix::{self, Offer};
use super::options::{LoadArgs, OutputArgs, ServerArgs};
use super::session::{Ending, Session, Stop};
use super::workload::{self, Pace};
use super::{refuse, values};
use crate::criterion::QUICK_DIVISOR;
use crate::report::assemble;
use crate::spec::Scenario;
use clap::Args;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  sipstone run invite --target 127.0.0.1:5060 --rate 500 --duration 30s
  sipstone run register --target sip:10.0.0.1 --auth challenge --rate 2k --users 100000
  sipstone run mix:sipstone --target 127.0.0.1:5060 --sut-exec './server -f a.cfg' --sut-cpu 0
      started, pinned, watched and ended by sipstone; the generator keeps to the other CPUs
  sipstone run --mix 'invite=7,register=3' --target 127.0.0.1:5060 --gate 'p99 <= 5ms'
  sipstone run options --target 127.0.0.1:5060 --rate 1 --trace
      and show the messages
  sipstone run connect --connections 50k --rate 2k --target 127.0.0.1:5060 --transport tcp --sut-pid 1234
      connections that are opened, kept alive for a minute and counted: what each costs the server

Ctrl-C ends the run and reports what was measured until then (exit code 3); a second Ctrl-C ends it at once.";

/// The window when nothing else is said.
const MEASURE: Duration = Duration::from_secs(10);
/// The warm-up when nothing else is said.
const WARM_UP: Duration = Duration::from_secs(2);

/// Offer one scenario or mix at one rate, and report what became of it
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct RunArgs {
    /// What to offer: a scenario or mix:NAME, as `sipstone scenarios` lists them, or connect
    #[arg(value_name = "SCENARIO")]
    scenario: Option<String>,

    /// Scenarios with weights of your own, as in 'invite=7,register=3'; at most 16
    #[arg(long, value_name = "A=W,B=W", value_parser = Weights::parse, help_heading = "Load")]
    mix: Option<Weights>,

    /// Operations a second, all classes together: 500, 0.5, 2k; at most 10M
    #[arg(long, value_name = "RATE", default_value = "100", value_parser = values::rate, help_heading = "Load")]
    rate: f64,

    /// The measured window (100ms to 24h) [default: 10s; with --criterion the criterion's]
    #[arg(long, value_name = "TIME", value_parser = values::duration, help_heading = "Load")]
    duration: Option<Duration>,

    /// Operations of this first time are not counted [default: 2s; with --criterion the criterion's]
    #[arg(long, value_name = "TIME", value_parser = values::duration, help_heading = "Load")]
    warm_up: Option<Duration>,

    #[command(flatten)]
    connect: ConnectArgs,

    #[command(flatten)]
    load: LoadArgs,

    #[command(flatten)]
    server: ServerArgs,

    #[command(flatten)]
    output: OutputArgs,
}

/// Weights of scenarios. (A type of its own, because `clap` takes a bare `Vec` for a repeated option.)
#[derive(Clone, Debug)]
pub(super) struct Weights(pub(super) Vec<(Scenario, f64)>);

impl Weights {
    pub(super) fn parse(text: &str) -> Result<Weights, String> {
        values::weights(text).map(Weights)
    }
}

pub(super) fn run(args: &RunArgs) -> Result<Exit, Refusal> {
    if args.scenario.as_deref() == Some(connect::NAME) {
        return connect::run(
            &args.connect,
            &args.load,
            &args.server,
            &args.output,
            (args.rate, args.duration),
        );
    }
    args.connect.refuse_elsewhere()?;
    let offer = mix::offer(args.scenario.as_deref(), args.mix.as_ref().map(|weights| weights.0.as_slice()))?;
    let pace = pace(args);
    let mut session = Session::open("run", &args.load, &args.server, &args.output, |given| {
        workload::check_effect(&offer, &args.load)?;
        workload::build(&offer, &args.load, given, pace).map(drop)
    })?;
    one(&mut session, &offer, pace)?;
    session.close()
}

/// The rate and times that the options say.
fn pace(args: &RunArgs) -> Pace {
    let divisor = if args.output.quick { QUICK_DIVISOR } else { 1 };
    let (warm_up, measure) = match args.output.criterion {
        Some(criterion) => {
            let plan = criterion.plan(args.output.quick);
            (plan.warm_up, plan.measure)
        }
        None => (WARM_UP / divisor, MEASURE / divisor),
    };
    Pace {
        rate: args.rate,
        warm_up: args.warm_up.unwrap_or(warm_up),
        measure: args.duration.unwrap_or(measure),
    }
}

/// Makes the trial and puts it into the report.
fn one(session: &mut Session<'_>, offer: &Offer, pace: Pace) -> Result<(), Refusal> {
    let mut workload = session.workload(offer, pace)?;
    workload.trace = session.output.trace;
    let mut subject = session.subject(offer, &workload);
    let trial = match session.measure(&workload, "run", Ending::WhenHopeless) {
        Ok(trial) => trial,
        Err(Stop::SetUp(sentence)) => return refuse(sentence),
        Err(Stop::BrokenOff(why, trial)) => {
            session.report.invalid.push(why);
            *trial
        }
    };
    session.keep_traces(&trial);
    session.report.invalid.extend(trial.invalid.iter().cloned());
    subject.trials.push(trial);
    subject.classes = assemble::class_facts(&workload, &subject.trials);
    session.report.subjects.push(subject);
    Ok(())
}
