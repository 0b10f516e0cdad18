//! `sipstone grid tls`: the twenty configurations of the 2009 paper, and the model that adds their costs up.
//!
//! A configuration is measured by trials at several rates on a server that was started for it; when it is done
//! the report is written, so that a grid which was ended goes on where it was.

mod run;
mod server;

use super::exit::{Exit, Refusal};
use super::mix::{self, Offer};
use super::options::{LoadArgs, OutputArgs, ServerArgs};
use super::peak::SearchArgs;
use super::refuse;
use super::session::Session;
use super::suite::Rates;
use super::workload::{self, Pace};
use crate::criterion::QUICK_DIVISOR;
use crate::grid::report::{Grid, Plan};
use crate::grid::{Configuration, Security};
use crate::report::model::Report;
use crate::spec::{Auth, Tls, TlsVersion};
use clap::Args;
use std::path::{Path, PathBuf};
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  sipstone grid tls --target 127.0.0.1:5070 --sut-files docs/benchmarks/2009 --sut-cpu 0 --cpus 1 --json grid.json \
--sut-exec 'strowger -f {dir}/grid.cfg'
      all twenty; ended by Ctrl-C and given again, it goes on where it was
  sipstone grid tls --target 127.0.0.1:5070 --only chain,local-tls --rates 200,400,600,800,1k --sut-exec './server {certs}'
  sipstone grid tls --target 10.0.0.1 --tls-out /etc/sip/test --sut-cgroup /sys/fs/cgroup/sip --peaks --html grid.html

Modes: chain (connections stay), outbound (callers connect for every call), inbound (the server connects to the callee \
for every call), local (both). Securities: udp, tcp, tls, tls-mutual, tls-reuse.

The server listens on the target's port for UDP and TCP and on --tls-port for TLS. In --sut-exec and in the files of \
--sut-files these words are filled in for each configuration: {dir} (where the files are), {certs} (ca.pem, server.pem, \
server.key), {config}, {mode}, {security}, {mutual} (yes or no), {host}, {port}, {tls_port}.

A grid that does not do what a configuration asks for, as a server that does not resume sessions towards callees, is \
told so, and the others are measured.";

/// The window of a trial when nothing else is said.
const MEASURE: Duration = Duration::from_secs(10);
/// The warm-up when nothing else is said.
const WARM_UP: Duration = Duration::from_secs(2);
/// Rates of a slope at least (the 2009 paper's calibration).
const RATES_MIN: usize = 5;

/// Measure the TLS grid: four ways of connecting × UDP, TCP, TLS, mutual TLS, resumed TLS, and what each part
/// of a call costs
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct GridArgs {
    /// The grid; tls is the only one
    #[arg(value_name = "GRID", value_parser = ["tls"])]
    which: String,

    /// Configurations to measure: modes, securities, both as in local-tls, with commas between them [default:
    /// all]
    #[arg(long, value_name = "LIST", value_parser = Only::parse, help_heading = "Grid")]
    only: Option<Only>,

    /// Rates at which each configuration is measured, at least five [default: seven below the peak of the
    /// costliest]
    #[arg(long, value_name = "A,B,…", value_parser = Rates::parse, help_heading = "Grid")]
    rates: Option<Rates>,

    /// How often each rate is measured (1 to 20): more makes the intervals narrower
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=20), help_heading = "Grid")]
    rounds: u32,

    /// Search the peak of each configuration, too
    #[arg(long, help_heading = "Grid")]
    peaks: bool,

    /// Folder with the server's configuration files, which are filled in for each configuration
    #[arg(long, value_name = "DIR", help_heading = "Grid")]
    sut_files: Option<PathBuf>,

    /// The server's port for TLS [default: the target's port + 1]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..), help_heading = "Grid")]
    tls_port: Option<u16>,

    /// Begin anew, whatever the file of --json has
    #[arg(long, help_heading = "Grid")]
    fresh: bool,

    #[command(flatten)]
    search: SearchArgs,

    #[command(flatten)]
    load: LoadArgs,

    #[command(flatten)]
    server: ServerArgs,

    #[command(flatten)]
    output: OutputArgs,
}

/// Configurations. (A type of its own, because `clap` takes a bare `Vec` for a repeated option.)
#[derive(Clone, Debug)]
struct Only(Vec<Configuration>);

impl Only {
    fn parse(text: &str) -> Result<Only, String> {
        Configuration::list(text).map(Only)
    }
}

pub(super) fn grid(args: &GridArgs) -> Result<Exit, Refusal> {
    let offer = mix::by_name("invite")?;
    let pace = pace(args);
    check(args)?;
    // The server of a configuration is started when its turn comes; one that is only watched is there already.
    let watched = ServerArgs { sut_exec: None, sut_restart: false, ..args.server.clone() };
    let mut tls = Tls::default();
    let mut session = Session::open("grid", &args.load, &watched, &args.output, |given| {
        args.search.check()?;
        workload::check_effect(&offer, &args.load)?;
        tls = workload::build(&offer, &args.load, given, pace)?.links.tls;
        Ok(())
    })?;
    let plan = plan(args, &tls, pace);
    let wanted = args.only.as_ref().map_or_else(Configuration::all, |only| only.0.clone());
    let grid = begin(args, &mut session, &plan, &wanted)?;
    let servers = server::Servers::new(args, &session, &tls)?;
    let mut run = run::Run { args, session, servers, offer, pace, tls, grid };
    run.all()?;
    let run::Run { mut session, grid, .. } = run;
    for row in &grid.rows {
        session.report.invalid.extend(row.invalid.iter().cloned());
    }
    session.report.invalid.dedup();
    session.report.grid = Some(grid);
    session.conductor.server = None;
    session.close()
}

/// What the parsers of single options cannot check.
fn check(args: &GridArgs) -> Result<(), Refusal> {
    let target = &args.load.target;
    if let Some(rates) = args.rates.as_ref().filter(|rates| rates.0.len() < RATES_MIN) {
        return refuse(format!("--rates has {} rates: a slope needs at least {RATES_MIN}", rates.0.len()));
    }
    if args.server.sut_exec.is_none() && args.sut_files.is_some() {
        return refuse("--sut-files are the files of a server that sipstone starts: give --sut-exec");
    }
    let watched = args.server.sut_pid.is_some() || args.server.sut_cgroup.is_some();
    if args.server.sut_exec.is_none() && !watched {
        return refuse("the grid is about the server's CPU time: give --sut-exec, --sut-cgroup or --sut-pid");
    }
    if args.server.sut_exec.is_none() && args.load.tls.tls_out.is_none() {
        return refuse(
            "a server that sipstone does not start must have its certificates before: give their folder with --tls-out",
        );
    }
    if args.tls_port.is_none() && target.port == Some(u16::MAX) {
        return refuse("the target's port has none after it: give --tls-port");
    }
    if !args.load.agents.is_empty() {
        return refuse("the grid works on this host only: the certificates of callees are for its addresses");
    }
    Ok(())
}

/// Warm-up and window of a trial; its rate is given when its turn comes.
fn pace(args: &GridArgs) -> Pace {
    let divisor = if args.output.quick { QUICK_DIVISOR } else { 1 };
    let (warm_up, measure) = match args.output.criterion {
        Some(criterion) => {
            let plan = criterion.plan(args.output.quick);
            (plan.warm_up, plan.measure)
        }
        None => (WARM_UP / divisor, MEASURE / divisor),
    };
    Pace {
        rate: args.search.start,
        warm_up: args.search.warm_up.unwrap_or(warm_up),
        measure: args.search.duration.unwrap_or(measure),
    }
}

fn plan(args: &GridArgs, tls: &Tls, pace: Pace) -> Plan {
    let version = tls.version.map(|version| match version {
        TlsVersion::V1_2 => "1.2".to_owned(),
        TlsVersion::V1_3 => "1.3".to_owned(),
    });
    Plan {
        command: args.server.sut_exec.clone().unwrap_or_default(),
        rates: args.rates.as_ref().map(|rates| rates.0.clone()).unwrap_or_default(),
        rates_given: args.rates.is_some(),
        rounds: args.rounds,
        warm_up_s: pace.warm_up.as_secs_f64(),
        measure_s: pace.measure.as_secs_f64(),
        peaks: args.peaks,
        version,
        cipher: tls.cipher.clone(),
        key: tls.key.word().into(),
        authentication: match args.load.auth {
            Auth::None => "none",
            Auth::Challenge => "challenge",
            Auth::Cached => "cached",
        }
        .into(),
    }
}

/// The grid of the file of `--json`, to go on with, or a new one.
fn begin(
    args: &GridArgs,
    session: &mut Session<'_>,
    plan: &Plan,
    wanted: &[Configuration],
) -> Result<Grid, Refusal> {
    let fresh = Grid::new(plan.clone(), wanted);
    let Some(path) = kept(args) else { return Ok(fresh) };
    if args.fresh || !path.exists() {
        return Ok(fresh);
    }
    let other = |what: &str| {
        Refusal(format!("{} {what}: give another file, or --fresh to begin anew", path.display()))
    };
    let report = Report::read(path).map_err(|error| Refusal(error.to_string()))?;
    let Some(grid) = report.grid.filter(|_| report.target == session.report.target) else {
        return Err(other("is the report of something else"));
    };
    if !grid.continues(plan) {
        return Err(other("has a grid that was measured otherwise"));
    }
    let mut grid = grid;
    // What was spoilt is measured again, and what the server did not do at all is asked again.
    grid.rows.retain(|row| row.invalid.is_empty() && row.handled());
    session.report.server = report.server;
    session.report.remarks.extend(report.remarks);
    session.remark(format!(
        "continued: {} of the configurations were measured from {} on",
        grid.rows.len(),
        report.started_at
    ));
    session.report.subjects = report.subjects;
    let ids = wanted.iter().map(|one| one.id()).collect();
    Ok(Grid { wanted: ids, ..grid })
}

/// The file that keeps what is done.
fn kept(args: &GridArgs) -> Option<&Path> {
    args.output.json.as_deref().filter(|path| path.as_os_str() != "-")
}

/// The configuration by whose peak the rates are chosen: the costliest that is wanted.
fn costliest(wanted: &[Configuration]) -> Vec<Configuration> {
    let rank = |one: &Configuration| {
        let security = match one.security {
            Security::Udp => 0,
            Security::Tcp => 1,
            Security::TlsReuse => 2,
            Security::Tls => 3,
            Security::TlsMutual => 4,
        };
        (security, one.mode)
    };
    let mut ordered = wanted.to_vec();
    ordered.sort_by_key(|one| std::cmp::Reverse(rank(one)));
    ordered
}

/// The offer under a configuration's name.
fn named(offer: &Offer, configuration: Configuration) -> Offer {
    Offer { name: configuration.id(), classes: offer.classes.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        grid: GridArgs,
    }

    fn args(options: &str) -> GridArgs {
        let words = ["x", "tls", "--target", "127.0.0.1:5070"].into_iter().chain(options.split_whitespace());
        Line::try_parse_from(words).unwrap().grid
    }

    #[test]
    fn what_cannot_be_measured_is_refused_before_anything_is_started() {
        let error = |options: &str| check(&args(options)).unwrap_err().0;
        assert!(error("").contains("--sut-exec"));
        assert!(error("--sut-pid 1").contains("--tls-out"));
        assert!(error("--sut-exec x --rates 1,2,3,4").contains("at least 5"));
        assert!(error("--sut-pid 1 --tls-out /x --sut-files /y").contains("--sut-exec"));
        assert!(check(&args("--sut-exec x --rates 1,2,3,4,5")).is_ok());
        assert!(check(&args("--sut-pid 1 --tls-out /x")).is_ok());
    }

    #[test]
    fn rates_are_chosen_by_the_costliest_configuration() {
        let first = |list: &str| costliest(&Configuration::list(list).unwrap())[0].id();
        assert_eq!(first("all"), "local-tls-mutual");
        assert_eq!(first("chain,inbound-tls"), "chain-tls-mutual");
        assert_eq!(first("udp,local-tcp,chain-tcp"), "local-tcp");
    }

    #[test]
    fn times_are_short_unless_a_criterion_is_named() {
        let times = |options: &str| {
            let pace = pace(&args(options));
            (pace.warm_up.as_millis(), pace.measure.as_millis())
        };
        assert_eq!(times(""), (2000, 10_000));
        assert_eq!(times("--quick"), (200, 1000));
        assert_eq!(times("--criterion tls2009"), (30_000, 120_000));
        assert_eq!(times("--duration 20s --warm-up 1s"), (1000, 20_000));
    }
}
