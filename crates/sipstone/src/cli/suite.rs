//! `sipstone suite`: several scenarios, one after the other, in one report.

use super::exit::{Exit, Refusal};
use super::mix::{self, Offer};
use super::options::{LoadArgs, OutputArgs, ServerArgs};
use super::peak::{self, Course, SearchArgs};
use super::session::{Ending, Session, Stop};
use super::workload::{self, Pace};
use super::{refuse, values};
use crate::report::assemble;
use clap::Args;

const EXAMPLES: &str = "\
Examples:
  sipstone suite --target 127.0.0.1:5060 --sut-pid 1234 --html suite.html
  sipstone suite all --target 10.0.0.1 --quick --json suite.json
  sipstone suite options,register,invite --target 127.0.0.1:5060 --rates 500,1k,2k
      three fixed rates each instead of a search: for the server's CPU time per operation

paper is what the IBM paper of 2007 measured: register, redirect, invite; all is every scenario. Redirecting \
and forwarding, and stateless and stateful, are configurations of the server: measure each with a suite of its \
own. What the server does not do at all is recorded as not supported, and the suite goes on.";

/// Most rates of --rates.
const RATES_MAX: usize = 32;

/// Measure several scenarios, one after the other, in one report
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct SuiteArgs {
    /// Scenarios, mixes and lists, with blanks or commas between them: paper, all, or names
    #[arg(value_name = "NAME", default_value = "paper")]
    names: Vec<String>,

    /// Make a trial at each of these rates instead of searching the peak; at most 32
    #[arg(long, value_name = "A,B,…", value_parser = Rates::parse, help_heading = "Search")]
    rates: Option<Rates>,

    #[command(flatten)]
    search: SearchArgs,

    #[command(flatten)]
    load: LoadArgs,

    #[command(flatten)]
    server: ServerArgs,

    #[command(flatten)]
    output: OutputArgs,
}

/// Rates. (A type of its own, because `clap` takes a bare `Vec` for a repeated option.)
#[derive(Clone, Debug)]
pub(super) struct Rates(pub(super) Vec<f64>);

impl Rates {
    pub(super) fn parse(text: &str) -> Result<Rates, String> {
        let rates = values::rates(text)?;
        if rates.len() > RATES_MAX {
            Err(format!("at most {RATES_MAX} rates can be given"))
        } else {
            Ok(Rates(rates))
        }
    }
}

pub(super) fn suite(args: &SuiteArgs) -> Result<Exit, Refusal> {
    let offers = mix::list(&args.names)?;
    let pace = peak::full_pace(&args.search, &args.output);
    let mut session = Session::open("suite", &args.load, &args.server, &args.output, |given| {
        args.search.check()?;
        offers.iter().try_for_each(|offer| workload::build(offer, &args.load, given, pace).map(drop))
    })?;
    let mut unsupported = Vec::new();
    for (index, offer) in offers.iter().enumerate() {
        session.view.note(&format!("{} of {}: {}", index + 1, offers.len(), offer.name));
        let course = match &args.rates {
            Some(rates) => at_rates(&mut session, offer, &rates.0, pace)?,
            None => peak::subject(&mut session, offer, &args.search)?,
        };
        match course {
            Course::Measured => {}
            Course::BrokenOff => break,
            Course::NotSupported(sentence, subject) => {
                session.view.note(&format!("not supported: {sentence}"));
                session.remark(format!("not supported: {}", sentence.lines().next().unwrap_or_default()));
                session.report.subjects.push(*subject);
                unsupported.push(sentence);
            }
        }
    }
    if unsupported.len() == offers.len() {
        session.view.end();
        return refuse(format!("the server did none of the scenarios; the first: {}", unsupported.concat()));
    }
    session.close()
}

/// One trial at each rate.
fn at_rates(session: &mut Session<'_>, offer: &Offer, rates: &[f64], pace: Pace) -> Result<Course, Refusal> {
    let workload = session.workload(offer, pace)?;
    let mut subject = session.subject(offer, &workload);
    if let Some(course) = peak::probe(session, offer, &workload, &mut subject) {
        return Ok(course);
    }
    let mut course = Course::Measured;
    for rate in rates {
        let workload = session.workload(offer, Pace { rate: *rate, ..pace })?;
        match session.measure(&workload, "run", Ending::AtTheEnd) {
            Ok(trial) => {
                let name = format!("{} at {rate}/s", offer.name);
                session.report.invalid.extend(trial.invalid.iter().map(|why| format!("{name}: {why}")));
                subject.trials.push(trial);
            }
            Err(Stop::SetUp(why)) => {
                session.report.invalid.push(why);
                course = Course::BrokenOff;
                break;
            }
            Err(Stop::BrokenOff(why, trial)) => {
                session.report.invalid.push(why);
                subject.trials.push(*trial);
                course = Course::BrokenOff;
                break;
            }
        }
    }
    subject.classes = assemble::class_facts(&workload, &subject.trials);
    subject.cpu_slope = peak::cpu_slope(&subject.trials);
    session.report.subjects.push(subject);
    Ok(course)
}
