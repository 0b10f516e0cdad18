//! `sipstone run connect`: connections that are opened at a rate, kept alive and counted.

use super::exit::{Exit, Refusal};
use super::options::{LoadArgs, OutputArgs, ServerArgs};
use super::session::Session;
use super::workload::{self, Given, Pace};
use super::{mix, refuse, values};
use crate::connect::drive::Crew;
use crate::connect::fleet::Counts;
use crate::connect::report::{ConnectReport, Looks, Seconds};
use crate::connect::wire::Registration;
use crate::connect::{CONNECTIONS_MAX, KEEPALIVE_MIN, Settings, limits};
use crate::net::socket::source_towards;
use crate::net::stream::tls::Ends;
use crate::report::model::Second;
use crate::spec::{Transport, Workload};
use crate::sut::Sample;
use clap::Args;
use std::time::{Duration, Instant};

/// The name of this load where scenarios are named.
pub(super) const NAME: &str = "connect";

/// How many connections are opened when nothing else is said.
const CONNECTIONS: u32 = 1000;

/// How long they are held when nothing else is said.
const HOLD: Duration = Duration::from_secs(60);

/// From the last connection to the look at the server: it frees what only the opening needed.
const SETTLE: Duration = Duration::from_secs(2);

/// Time between looks at the counts.
const LOOK: Duration = Duration::from_millis(20);

/// Threads when nothing else is said: an idle connection needs little.
const THREADS: u32 = 2;

/// Kept connections, for `run connect`.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Connections (connect only)")]
pub(super) struct ConnectArgs {
    /// With connect: how many connections are opened, --rate a second, as in 1000 or 50k; at most 5M [default:
    /// 1000]
    ///
    /// They are then held for --duration [default: 60s]. One address has about 28,000 ports to one server: for
    /// more give several with --source; on loopback they are taken by themselves.
    #[arg(long, value_name = "N", value_parser = count)]
    connections: Option<u32>,

    /// With connect: longest time between pings (CRLF CRLF) of a connection, at least 1s; none sends none
    /// [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = keepalive)]
    keepalive: Option<Keepalive>,

    /// With connect: register one user on each connection
    #[arg(long)]
    register: bool,
}

/// Time between pings. (A type of its own, because `clap` takes a bare `Option` for an option that may be left
/// out.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Keepalive(Option<Duration>);

fn keepalive(text: &str) -> Result<Keepalive, String> {
    if text == "none" {
        return Ok(Keepalive(None));
    }
    let time = values::duration(text)?;
    if time < KEEPALIVE_MIN {
        Err("it must be at least 1s, or none".into())
    } else {
        Ok(Keepalive(Some(time)))
    }
}

fn count(text: &str) -> Result<u32, String> {
    let wrong = || format!("{text:?} is no number of connections from 1 to 5M: write 1000 or 50k");
    let number = values::rate(text).map_err(|_| wrong())?;
    if number.fract() == 0.0 && (1.0..=f64::from(CONNECTIONS_MAX)).contains(&number) {
        Ok(number as u32)
    } else {
        Err(wrong())
    }
}

impl ConnectArgs {
    /// Other loads have no use for these options.
    ///
    /// # Errors
    /// One is given; the sentence names it.
    pub(super) fn refuse_elsewhere(&self) -> Result<(), Refusal> {
        let given = [
            ("--connections", self.connections.is_some()),
            ("--keepalive", self.keepalive.is_some()),
            ("--register", self.register),
        ];
        match given.iter().find(|(_, given)| *given) {
            Some((option, _)) => refuse(format!("{option} is for `sipstone run connect` only")),
            None => Ok(()),
        }
    }
}

/// `rate`: connections a second; `duration`: how long they are held.
pub(super) fn run(
    args: &ConnectArgs,
    load: &LoadArgs,
    server: &ServerArgs,
    output: &OutputArgs,
    (rate, duration): (f64, Option<Duration>),
) -> Result<Exit, Refusal> {
    if !load.agents.is_empty() {
        return refuse("connect works on this host only: start it on several instead of giving --agent");
    }
    // The options of every load mean here what they mean there; an OPTIONS stands for them.
    let offer = mix::by_name("options")?;
    let pace = Pace { rate, warm_up: Duration::ZERO, measure: duration.unwrap_or(HOLD) };
    let mut base = None;
    let mut session = Session::open("run", load, server, output, |given: &Given| {
        let workload = workload::build(&offer, load, given, pace)?;
        if !matches!(workload.links.caller.transport, Transport::Tcp | Transport::Tls) {
            return Err("connect opens connections: give --transport tcp or tls".into());
        }
        limits::descriptors(args.connections.unwrap_or(CONNECTIONS))?;
        base = Some(workload);
        Ok(())
    })?;
    let Some(workload) = base else { return refuse("the workload was not looked at, please report it") };
    let settings = settings(args, load, &workload, rate, session.given.seed)?;
    let ends = match workload.links.caller.transport {
        Transport::Tls => Some(Ends::new(&workload.links.tls, settings.target.ip(), &settings.sources)?),
        _ => None,
    };
    let mut report = ConnectReport {
        transport: workload.links.caller.transport.id().into(),
        connections: settings.connections,
        rate,
        keepalive_s: settings.keepalive.map(|time| time.as_secs_f64()),
        hold_s: pace.measure.as_secs_f64(),
        registered: args.register,
        sources: u32::try_from(settings.sources.len()).unwrap_or(u32::MAX),
        ..ConnectReport::default()
    };
    let threads = load.threads.map_or(THREADS, u32::from);
    session.report.generator_host.threads = threads;
    let crew = Crew::start(&settings, ends.as_ref(), threads)?;
    let what = format!("opening {} connections at {rate}/s", settings.connections);
    let expected = Duration::from_secs_f64(f64::from(settings.connections) / rate) + SETTLE + pace.measure;
    session.view.begin(&what, Some(expected));
    Watcher::new(&mut session, &mut report, rate).follow(crew, pace.measure)?;
    session.report.invalid.extend(report.faults());
    session.report.connect = Some(report);
    session.close()
}

fn settings(
    args: &ConnectArgs,
    load: &LoadArgs,
    workload: &Workload,
    rate: f64,
    seed: u64,
) -> Result<Settings, Refusal> {
    let target = workload.links.caller.address.unwrap_or(workload.target.address);
    let connections = args.connections.unwrap_or(CONNECTIONS);
    let given = load.source.clone().map(|sources| sources.0).unwrap_or_default();
    let route = source_towards(target).map_err(|error| Refusal(error.to_string()))?;
    let register = args.register.then(|| Registration {
        domain: workload.target.domain.clone(),
        user_format: workload.users.name.clone(),
        first: workload.users.first,
        expires: workload.expires,
        transport: workload.links.caller.transport,
    });
    Ok(Settings {
        target,
        connections,
        rate,
        keepalive: args.keepalive.map_or(Some(Duration::from_secs(30)), |given| given.0),
        sources: limits::sources(target, connections, &given, route, limits::ports_of_a_source())?,
        register,
        seed,
    })
}

/// Where a run is.
enum Phase {
    Opening,
    /// All were tried; the server comes to rest until then.
    Settling(Instant),
    /// They are held until then.
    Holding(Instant),
}

/// Follows a crew, second by second.
struct Watcher<'a, 'b> {
    session: &'a mut Session<'b>,
    report: &'a mut ConnectReport,
    rate: f64,
    start: Instant,
    seconds: Seconds,
}

impl<'a, 'b> Watcher<'a, 'b> {
    fn new(session: &'a mut Session<'b>, report: &'a mut ConnectReport, rate: f64) -> Watcher<'a, 'b> {
        Watcher { session, report, rate, start: Instant::now(), seconds: Seconds::default() }
    }

    fn sample(&mut self) -> Result<Option<Sample>, Refusal> {
        let sample = self.session.conductor.server.as_mut().map(crate::sut::Server::sample);
        sample.transpose().map_err(|error| Refusal(error.to_string()))
    }

    fn follow(&mut self, crew: Crew, hold: Duration) -> Result<(), Refusal> {
        let before = self.sample()?;
        self.seconds.begin(before);
        let (mut phase, mut opening) = (Phase::Opening, None);
        let mut at_open: Option<(Option<Sample>, Counts)> = None;
        loop {
            std::thread::sleep(LOOK);
            let (counts, tried) = crew.counts();
            self.second(&counts, matches!(phase, Phase::Holding(_)))?;
            let now = Instant::now();
            phase = match phase {
                Phase::Opening if tried => {
                    opening = Some(self.start.elapsed());
                    Phase::Settling(now + SETTLE)
                }
                Phase::Settling(until) if now >= until => {
                    at_open = Some((self.sample()?, counts));
                    Phase::Holding(now + hold)
                }
                Phase::Holding(until) if now >= until => break,
                other => other,
            };
            if self.session.interrupted() {
                self.session.report.invalid.push("interrupted by the user".into());
                break;
            }
            if crew.broken() {
                break;
            }
        }
        let (end, counts) = (self.sample()?, crew.counts().0);
        crew.end()?;
        self.report.count(&counts, opening.unwrap_or_else(|| self.start.elapsed()));
        if let (Some(before), Some((Some(open), opened)), Some(end)) = (before, at_open, end) {
            self.report.watch(&Looks { before, open, end }, opened.open, counts.pings - opened.pings);
        }
        Ok(())
    }

    /// Tells the seconds that have passed.
    fn second(&mut self, counts: &Counts, measured: bool) -> Result<(), Refusal> {
        let passed = u32::try_from(self.start.elapsed().as_secs()).unwrap_or(u32::MAX);
        let number = u32::try_from(self.report.series.len()).unwrap_or(u32::MAX);
        if passed <= number {
            return Ok(());
        }
        let sample = self.sample()?;
        let second = self.seconds.next(number, counts, sample);
        let shown = Second {
            second: number,
            offered: second.begun,
            succeeded: second.opened,
            failed: second.failed,
            open: second.open,
            p50_ms: counts.connect.quantile_us(0.5).map(|us| us as f64 / 1000.0),
            p99_ms: counts.connect.quantile_us(0.99).map(|us| us as f64 / 1000.0),
            server: second.server,
            ..Second::default()
        };
        self.session.view.second(&shown, if second.begun > 0 { self.rate } else { 0.0 }, measured);
        self.report.series.push(second);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        connect: ConnectArgs,
    }

    fn args(options: &str) -> Result<ConnectArgs, clap::Error> {
        Line::try_parse_from(std::iter::once("x").chain(options.split_whitespace())).map(|line| line.connect)
    }

    #[test]
    fn numbers_of_connections_may_be_written_short() {
        assert_eq!(args("--connections 50k").unwrap().connections, Some(50_000));
        assert_eq!(args("--connections 5M").unwrap().connections, Some(CONNECTIONS_MAX));
        for bad in ["0", "6M", "1.5", "many"] {
            assert!(args(&format!("--connections {bad}")).is_err(), "{bad}");
        }
    }

    #[test]
    fn pings_may_be_left_out_but_not_be_a_flood() {
        assert_eq!(args("--keepalive none").unwrap().keepalive, Some(Keepalive(None)));
        assert_eq!(
            args("--keepalive 25s").unwrap().keepalive,
            Some(Keepalive(Some(Duration::from_secs(25))))
        );
        assert!(args("--keepalive 100ms").is_err());
    }

    #[test]
    fn options_of_connect_are_refused_elsewhere() {
        assert!(args("").unwrap().refuse_elsewhere().is_ok());
        for option in ["--connections 5", "--keepalive 30s", "--register"] {
            let error = args(option).unwrap().refuse_elsewhere().unwrap_err();
            assert!(error.0.contains(option.split(' ').next().unwrap()), "{}", error.0);
        }
    }
}
