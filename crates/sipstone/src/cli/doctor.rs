//! `sipstone doctor`: what on this host or at the target would spoil a measurement.

use super::exit::{Exit, Refusal};
use super::mix;
use super::options::{LoadArgs, OutputArgs, ServerArgs};
use super::session::{Ending, Session, Stop};
use super::values::TargetName;
use super::workload::{self, Pace};
use super::{refuse, result};
use crate::doctor::{Plan, State, examine, render, worst};
use crate::ladder;
use crate::spec::Auth;
use clap::{Args, Parser};
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  sipstone doctor
  sipstone doctor --target 127.0.0.1:5060
      and one OPTIONS to the server, message by message
  sipstone doctor --target 10.0.0.1 --scenario invite --auth challenge
      two users are registered, and one calls the other

Exit code 1 if something was found that makes measurements impossible.";

/// The one operation: the first of these is shown.
const PACE: Pace = Pace { rate: 10.0, warm_up: Duration::ZERO, measure: Duration::from_millis(500) };
/// How long it may take.
const DRAIN: Duration = Duration::from_secs(4);
/// Columns of the ladder.
const WIDTH: usize = 110;

/// Look for what would spoil a measurement: limits, buffers, clocks; with --target one operation as a ladder
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct DoctorArgs {
    /// The server: HOST, HOST:PORT, [::1]:5060 or sip:HOST[:PORT]; default port 5060
    #[arg(long, value_name = "HOST:PORT")]
    target: Option<TargetName>,

    /// The domain of Request-URIs and addresses-of-record [default: the target as it was written]
    #[arg(long, value_name = "NAME", requires = "target")]
    domain: Option<String>,

    /// The operation that is shown
    #[arg(long, value_name = "NAME", default_value = "options", requires = "target")]
    scenario: String,

    /// Authentication that the client expects
    #[arg(long, value_enum, value_name = "HOW", default_value_t = Auth::None)]
    auth: Auth,

    /// User part, with {} for the number
    #[arg(long, value_name = "FORMAT", default_value = "user{}")]
    user_format: String,

    /// Password, with {} for the number
    #[arg(long, value_name = "FORMAT", default_value = "password{}")]
    password_format: String,

    /// Worker threads that a measurement would have
    #[arg(long, value_name = "N", default_value_t = 1)]
    threads: u16,
}

/// The options of a load, for their defaults.
#[derive(Parser)]
struct Defaults {
    #[command(flatten)]
    load: LoadArgs,
}

pub(super) fn doctor(args: &DoctorArgs) -> Result<Exit, Refusal> {
    let resolved = |target: &TargetName| target.resolve(target.transport.unwrap_or_default());
    let target = args.target.as_ref().map(resolved).transpose()?;
    // Its first look is a datagram; a target with connections is examined by the operation alone.
    let datagrams =
        args.target.as_ref().is_none_or(|target| !target.transport.unwrap_or_default().is_stream());
    let target = target.filter(|_| datagrams);
    let plan = Plan { threads: args.threads, domain: args.domain.clone(), ..Plan::default() };
    let findings = examine(target, &plan);
    result::print(&render(&findings))?;
    let mut exit = if worst(&findings) == State::Bad { Exit::SetUp } else { Exit::Fine };
    if let Some(target) = &args.target {
        let (text, succeeded) = operation(args, target)?;
        result::print(&text)?;
        if !succeeded {
            exit = Exit::SetUp;
        }
    }
    Ok(exit)
}

/// One operation through the whole machinery, as text, and whether it succeeded.
fn operation(args: &DoctorArgs, target: &TargetName) -> Result<(String, bool), Refusal> {
    let words =
        ["sipstone", "--users", "2", "--threads", "1", "--target", &target.domain()].map(str::to_owned);
    let mut load = match Defaults::try_parse_from(words) {
        Ok(defaults) => defaults.load,
        Err(error) => return refuse(error.to_string()),
    };
    load.target.transport = target.transport;
    load.domain.clone_from(&args.domain);
    load.auth = args.auth;
    load.user_format.clone_from(&args.user_format);
    load.password_format.clone_from(&args.password_format);
    load.drain = Some(DRAIN);
    let offer = mix::by_name(&args.scenario)?;
    let (server, output) = (ServerArgs::default(), OutputArgs { quiet: true, ..OutputArgs::default() });
    let check = |given: &workload::Given| workload::build(&offer, &load, given, PACE).map(drop);
    let mut session = Session::open("doctor", &load, &server, &output, check)?;
    let mut workload = session.workload(&offer, PACE)?;
    workload.trace = true;
    match session.measure(&workload, "doctor", Ending::AtTheEnd) {
        Ok(trial) => {
            let mut text = String::new();
            for example in &trial.examples {
                text.push_str(&format!("\n{}", ladder::render(example, WIDTH)));
            }
            Ok((text, trial.all.succeeded > 0))
        }
        Err(Stop::SetUp(sentence) | Stop::BrokenOff(sentence, _)) => Ok((format!("\n{sentence}\n"), false)),
    }
}
