//! What a measurement needs while it runs: the groups, the server, the view, the criterion, the report so far.
//!
//! `run`, `peak`, `suite` and `doctor` open a [`Session`], have it make trials, and close it.

use super::exit::{Exit, Refusal};
use super::links::TlsFiles;
use super::mix::Offer;
use super::options::{AGENTS_MAX, LoadArgs, OutputArgs, ServerArgs, THREADS_MAX};
use super::result::{self, Files, Gates};
use super::workload::{self, Given, Pace};
use super::{agent, refuse};
use crate::agent::RemoteGroup;
use crate::criterion::{Criterion, expected_offered};
use crate::group::Group;
use crate::ladder;
use crate::load::users::read_list;
use crate::net::cpus;
use crate::net::local::LocalGroup;
use crate::net::socket::source_towards;
use crate::report::assemble::{self, RawTrial};
use crate::report::host::{rfc3339, this_host};
use crate::report::model::{FORMAT, Host, LinkFacts, Report, Subject, TrialReport};
use crate::report::redact;
use crate::spec::{Links, Role, Workload};
use crate::sut::{Server, Watch};
use crate::tally::Example;
use crate::trial::{Conductor, Early, GroupSpec, TrialError};
use crate::validity::{self, Purpose};
use crate::view::{self, Verbosity, View};
use clap::ValueEnum;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

/// How long an agent may take to answer at the start.
const AGENT_WITHIN: Duration = Duration::from_secs(5);
/// Columns of a ladder.
const LADDER_WIDTH: usize = 100;
/// Messages of a failure that are shown; the report has the others.
const LADDER_MESSAGES_MAX: usize = 8;
/// Longest time until a started server must listen that can be asked for.
const READY_MAX: Duration = Duration::from_secs(600);

/// A flag that the first Ctrl-C (or SIGTERM) sets; the second ends the program at once.
///
/// # Errors
/// The system does not let signals be handled.
pub(super) fn on_interrupt() -> Result<Arc<AtomicBool>, Refusal> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // In this order: the default action is armed by the flag that the first signal sets.
        signal_hook::flag::register_conditional_default(signal, Arc::clone(&flag))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&flag)))
            .map_err(|error| Refusal(format!("Ctrl-C cannot be handled: {error}")))?;
    }
    Ok(flag)
}

/// Whether a trial may end before its window does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// It is measured to its end.
    AtTheEnd,
    /// It ends as soon as it cannot pass any more.
    WhenCertain,
    /// It ends when many operations have failed and not one has succeeded: a server that refuses everybody is told
    /// after seconds, not after the whole run.
    WhenHopeless,
}

/// So many failures without a success are hopeless.
const HOPELESS: u64 = 200;

/// Why there is no trial, or only a part of one.
#[derive(Debug)]
pub(super) enum Stop {
    /// It could not begin: the sentence, with the messages that show why.
    SetUp(String),
    /// It was broken off, by a dead group or the user: why, and what was measured until then.
    BrokenOff(String, Box<TrialReport>),
}

/// An open measurement.
pub(super) struct Session<'a> {
    pub(super) load: &'a LoadArgs,
    pub(super) output: &'a OutputArgs,
    pub(super) given: Given,
    pub(super) criterion: Criterion,
    pub(super) conductor: Conductor,
    pub(super) view: Box<dyn View>,
    pub(super) report: Report,
    pub(super) server_cpus: Vec<u16>,
    pub(super) spec: GroupSpec,
    /// How the load reaches the server, in place of what the options say: the grid changes it.
    pub(super) links: Option<Links>,
    /// What is read off the trials: the grid changes it.
    pub(super) purpose: Purpose,
    gates: Gates,
    restart: bool,
    trials: u32,
    explained: BTreeSet<(String, String)>,
    traces: Vec<Example>,
}

impl<'a> Session<'a> {
    /// Looks the target up, starts the server, connects to the agents. `check` may say before that what is wrong with
    /// the workload.
    ///
    /// # Errors
    /// Anything that makes a measurement impossible; nothing has been sent to the server then.
    pub(super) fn open(
        command: &str,
        load: &'a LoadArgs,
        server: &'a ServerArgs,
        output: &'a OutputArgs,
        check: impl FnOnce(&Given) -> Result<(), String>,
    ) -> Result<Session<'a>, Refusal> {
        Files::of(output).check()?;
        let gates = Gates::read(&output.gates, output.base.as_deref())?;
        let given = given(load)?;
        check(&given)?;
        let interrupted = on_interrupt()?;
        let watched = watch(server)?.map(|watch| Server::start(&watch, given.address)).transpose();
        let watched = watched.map_err(|error| Refusal(error.to_string()))?;
        let server_cpus = server_cpus(server, watched.as_ref())?;
        let spec = spec(load, &server_cpus, is_here(given.address, watched.as_ref()))?;
        let mut report = report(command, load, output, given.address);
        report.server = watched.as_ref().map(Server::facts);
        report.remarks.extend(watched.as_ref().and_then(Server::remark));
        let groups = groups(load, &spec, &mut report.generator_host)?;
        let verbosity = if output.quiet { Verbosity::Quiet } else { Verbosity::Shown };
        let conductor = Conductor::new(groups, watched, interrupted);
        Ok(Session {
            load,
            output,
            given,
            criterion: output.criterion.unwrap_or_default(),
            conductor,
            view: view::choose(verbosity),
            report,
            server_cpus,
            spec,
            links: None,
            gates,
            purpose: Purpose::default(),
            restart: server.sut_restart,
            trials: 0,
            explained: BTreeSet::new(),
            traces: Vec::new(),
        })
    }

    /// The workload of an offer at a pace.
    ///
    /// # Errors
    /// As [`workload::build`].
    pub(super) fn workload(&self, offer: &Offer, pace: Pace) -> Result<Workload, Refusal> {
        let mut workload = workload::build(offer, self.load, &self.given, pace)?;
        workload.links = self.links.clone().unwrap_or(workload.links);
        Ok(workload)
    }

    /// A subject without trials.
    pub(super) fn subject(&self, offer: &Offer, workload: &Workload) -> Subject {
        Subject {
            name: offer.name.clone(),
            classes: assemble::class_facts(workload, &[]),
            auth: workload.auth,
            proxy: workload.proxy,
            links: Some(LinkFacts::of(&workload.links)),
            criterion: self.criterion.name.into(),
            required_success: Some(self.criterion.share),
            ..Subject::default()
        }
    }

    /// Makes one trial and judges it.
    ///
    /// # Errors
    /// See [`Stop`].
    pub(super) fn measure(
        &mut self,
        workload: &Workload,
        phase: &str,
        ending: Ending,
    ) -> Result<TrialReport, Stop> {
        self.restart_server()?;
        let criterion = self.criterion;
        let expected = expected_offered(&workload.classes, workload.rate, workload.measure);
        let certain = move |measured: &[(u64, u64, u64)]| criterion.certain(measured, &expected);
        let early: Option<Early<'_>> = match ending {
            Ending::AtTheEnd => None,
            Ending::WhenCertain => Some(&certain),
            Ending::WhenHopeless => Some(&hopeless),
        };
        // Trials at one rate must not see the same arrivals again: the spread between them would be too small.
        let workload = &Workload { seed: workload.seed.wrapping_add(self.trials.into()), ..workload.clone() };
        self.trials += 1;
        let raw = match self.conductor.run(workload, phase, early, self.view.as_mut()) {
            Ok(raw) => raw,
            Err(error) => return Err(self.stopped(*error)),
        };
        let trial = self.judged(&raw);
        self.view.trial(&trial);
        self.explain(&trial);
        Ok(trial)
    }

    fn restart_server(&mut self) -> Result<(), Stop> {
        match &mut self.conductor.server {
            Some(server) if self.restart && self.trials > 0 => server
                .restart()
                .map_err(|error| Stop::SetUp(format!("the server could not be started anew: {error}"))),
            _ => Ok(()),
        }
    }

    /// A trial as it was counted, with verdict and validity.
    fn judged(&self, raw: &RawTrial) -> TrialReport {
        let mut trial = assemble::trial(raw);
        trial.verdict = self.criterion.judge(&trial).word().into();
        trial.invalid = validity::check(&trial, &raw.workload, self.purpose);
        trial
    }

    fn stopped(&mut self, error: TrialError) -> Stop {
        match error {
            TrialError::Setup(sentence, example) => {
                let ladder =
                    example.map(|example| format!("\n{}", short_ladder(&example))).unwrap_or_default();
                Stop::SetUp(format!("{sentence}{ladder}"))
            }
            TrialError::Gone(gone, raw) => Stop::BrokenOff(gone.to_string(), Box::new(self.judged(&raw))),
            TrialError::Interrupted(raw) => {
                Stop::BrokenOff("interrupted by the user".into(), Box::new(self.judged(&raw)))
            }
        }
    }

    /// Shows the messages of each kind of failure that was not shown before.
    fn explain(&mut self, trial: &TrialReport) {
        for example in &trial.examples {
            let Some(failure) = &example.failure else { continue };
            if self.explained.insert((example.class.clone(), failure.clone())) {
                self.view.note(short_ladder(example).trim_end());
            }
        }
    }

    /// Keeps the traced operations of classes that had none, for the end.
    pub(super) fn keep_traces(&mut self, trial: &TrialReport) {
        for example in trial.examples.iter().filter(|example| example.failure.is_none()) {
            if self.traces.iter().all(|kept| kept.class != example.class) {
                self.traces.push(example.clone());
            }
        }
    }

    /// Tells the reader of the report something, once.
    pub(super) fn remark(&mut self, remark: String) {
        if !self.report.remarks.contains(&remark) {
            self.report.remarks.push(remark);
        }
    }

    /// Whether the user has interrupted it.
    pub(super) fn interrupted(&self) -> bool {
        self.conductor.interrupted.load(Ordering::Relaxed)
    }

    /// Closes it: shows the traces, writes, judges.
    ///
    /// # Errors
    /// A file could not be written, or a gate asks for what was not measured.
    pub(super) fn close(mut self) -> Result<Exit, Refusal> {
        self.view.end();
        if self.output.trace {
            for example in &self.traces {
                eprintln!("{}", ladder::render(example, LADDER_WIDTH));
            }
        }
        result::finish(&self.report, self.output, &self.gates)
    }
}

/// Whether many operations have failed and none has succeeded.
fn hopeless(measured: &[(u64, u64, u64)]) -> bool {
    let (succeeded, failed) =
        measured.iter().fold((0, 0), |(good, bad), class| (good + class.1, bad + class.2));
    succeeded == 0 && failed >= HOPELESS
}

/// The deciding messages of a failure: the last ones.
pub(super) fn short_ladder(example: &Example) -> String {
    let skipped = example.messages.len().saturating_sub(LADDER_MESSAGES_MAX);
    let mut short = example.clone();
    short.messages.drain(..skipped);
    ladder::render(&short, LADDER_WIDTH)
}

/// What comes from outside the command line.
fn given(load: &LoadArgs) -> Result<Given, Refusal> {
    let listed = match &load.users_file {
        None => Vec::new(),
        Some(path) => read_list(path)?,
    };
    let seed = load.seed.unwrap_or_else(draw_seed);
    let address = load.target.resolve(load.caller_transport())?;
    let sources = match &load.source {
        Some(sources) => sources.0.clone(),
        None => source_towards(address).into_iter().collect(),
    };
    let tls = TlsFiles::read(load, address.ip(), &sources)?;
    Ok(Given { address, listed, seed, tls })
}

/// A seed that was not there before, from the keys that the standard library draws for its hash tables. It has 48
/// bits: short enough to be typed again, and exact in JSON readers that know only doubles.
fn draw_seed() -> u64 {
    RandomState::new().build_hasher().finish() >> 16
}

/// The report's head.
fn report(command: &str, load: &LoadArgs, output: &OutputArgs, address: SocketAddr) -> Report {
    let arguments: Vec<String> =
        std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    let mut remarks = Vec::new();
    if output.quick {
        remarks.push("quick: the criterion's times were divided by ten".to_string());
    }
    Report {
        format: FORMAT,
        version: env!("CARGO_PKG_VERSION").into(),
        command: command.into(),
        command_line: redact::command_line(&arguments),
        started_at: rfc3339(SystemTime::now()),
        label: output.label.clone().unwrap_or_else(|| load.target.domain()),
        quick: output.quick,
        generator_host: this_host(),
        target: address.to_string(),
        remarks,
        ..Report::default()
    }
}

/// How the options say the server is to be watched.
pub(super) fn watch(server: &ServerArgs) -> Result<Option<Watch>, Refusal> {
    if server.sut_ready > READY_MAX {
        return refuse("--sut-ready is longer than 10m");
    }
    let cpus = cpu_list("--sut-cpu", server.sut_cpu.as_deref())?;
    Ok(match (&server.sut_pid, &server.sut_cgroup, &server.sut_exec) {
        (Some(pid), ..) => Some(Watch::Pid(*pid)),
        (_, Some(cgroup), _) => Some(Watch::Cgroup(cgroup.clone())),
        (.., Some(command)) => {
            Some(Watch::Exec { command: command.clone(), cpus, ready_within: server.sut_ready })
        }
        _ => None,
    })
}

fn cpu_list(option: &str, list: Option<&str>) -> Result<Vec<u16>, Refusal> {
    let cpus = list.map(cpus::parse).transpose().map_err(|error| Refusal(format!("{option}: {error}")))?;
    Ok(cpus.unwrap_or_default())
}

/// The server's CPUs: as the option says, or as the watched process is pinned.
fn server_cpus(server: &ServerArgs, watched: Option<&Server>) -> Result<Vec<u16>, Refusal> {
    let said = cpu_list("--sut-cpu", server.sut_cpu.as_deref())?;
    if !said.is_empty() {
        return Ok(said);
    }
    let pinned = watched.map(|server| server.facts().cpus).unwrap_or_default();
    // A process that may use every CPU is not pinned.
    Ok(if pinned.len() < usize::from(THREADS_MAX) && is_part(&pinned) { pinned } else { Vec::new() })
}

/// Whether some of this host's CPUs are not in the list.
fn is_part(list: &[u16]) -> bool {
    cpus::allowed().is_ok_and(|allowed| allowed.iter().any(|cpu| !list.contains(cpu)))
}

/// Whether the server runs on this host.
fn is_here(address: SocketAddr, watched: Option<&Server>) -> bool {
    address.ip().is_loopback() || watched.is_some()
}

/// Threads, CPUs and source addresses of a group.
fn spec(load: &LoadArgs, server_cpus: &[u16], here: bool) -> Result<GroupSpec, Refusal> {
    let listed = cpu_list("--cpus", load.cpus.as_deref())?;
    let sources = load.source.clone().map(|sources| sources.0).unwrap_or_default();
    let threads = |usable: usize| {
        let threads =
            load.threads.unwrap_or_else(|| u16::try_from(usable.max(1)).unwrap_or(u16::MAX).min(THREADS_MAX));
        let in_range = (1..=THREADS_MAX).contains(&threads);
        if in_range {
            Ok(threads)
        } else {
            refuse(format!("--threads {threads} is not from 1 to {THREADS_MAX}"))
        }
    };
    if !load.agents.is_empty() {
        // What another host has is not known here: one thread unless more are asked for.
        return Ok(GroupSpec {
            threads: threads(listed.len())?,
            cpus: listed,
            sources,
            ..GroupSpec::default()
        });
    }
    let allowed =
        cpus::allowed().map_err(|error| Refusal(format!("the CPUs of this host cannot be read: {error}")))?;
    if let Some(cpu) = listed.iter().find(|cpu| !allowed.contains(cpu)) {
        return refuse(format!(
            "--cpus: this process may not use CPU {cpu}, only {}",
            cpus::format(&allowed)
        ));
    }
    let free = cpus::without(&allowed, server_cpus);
    let pinned = if !listed.is_empty() {
        listed
    } else if free.is_empty() || free == allowed {
        Vec::new()
    } else {
        free
    };
    let usable = match (pinned.is_empty(), here) {
        (false, _) => pinned.len(),
        (true, true) => allowed.len() / 2,
        (true, false) => allowed.len(),
    };
    Ok(GroupSpec { threads: threads(usable)?, cpus: pinned, sources, ..GroupSpec::default() })
}

/// An agent's address and what it is to do: `HOST:PORT`, `HOST:PORT=loader`, `HOST:PORT=handler`.
fn with_role(agent: &str) -> Result<(&str, Role), Refusal> {
    let Some((address, role)) = agent.rsplit_once('=') else { return Ok((agent, Role::Both)) };
    match Role::from_str(role, false) {
        Ok(role) => Ok((address, role)),
        Err(_) => refuse(format!("--agent {agent}: {role:?} is not loader, handler or both")),
    }
}

/// Groups, with what each has to work with.
type Groups = Vec<(GroupSpec, Box<dyn Group>)>;

/// This host, or the agents; with what the report says of them.
fn groups(load: &LoadArgs, spec: &GroupSpec, host: &mut Host) -> Result<Groups, Refusal> {
    if load.agents.is_empty() {
        host.threads = u32::from(spec.threads);
        return Ok(vec![(spec.clone(), Box::new(LocalGroup::new()))]);
    }
    if load.agents.len() > AGENTS_MAX {
        return refuse(format!("there are more than {AGENTS_MAX} agents"));
    }
    let token = load.agent_token_file.as_deref().map(agent::token).transpose()?;
    let mut groups: Groups = Vec::new();
    let agents = load.agents.iter().map(|agent| with_role(agent)).collect::<Result<Vec<_>, _>>()?;
    for (address, role) in agents {
        let group = RemoteGroup::connect(address, token.as_deref(), AGENT_WITHIN)?;
        host.threads += u32::from(spec.threads);
        host.agents.push(group.facts());
        groups.push((GroupSpec { role, ..spec.clone() }, Box::new(group)));
    }
    Ok(groups)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tally::{Direction, Side, TracedMessage};

    #[test]
    fn only_many_failures_without_a_success_are_hopeless() {
        assert!(hopeless(&[(150, 0, 150), (50, 0, 50)]));
        assert!(!hopeless(&[(199, 0, 199)]));
        assert!(!hopeless(&[(1000, 1, 999)]));
        assert!(!hopeless(&[]));
    }

    #[test]
    fn what_is_expected_follows_the_weights() {
        let load = ["x", "--target", "127.0.0.1:5070"];
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            load: LoadArgs,
        }
        let load = <Line as clap::Parser>::try_parse_from(load).unwrap().load;
        let given = Given {
            address: "127.0.0.1:5070".parse().unwrap(),
            listed: Vec::new(),
            seed: 1,
            tls: TlsFiles::default(),
        };
        let pace = Pace { rate: 100.0, warm_up: Duration::ZERO, measure: Duration::from_secs(10) };
        let offer = super::super::mix::by_name("mix:sipstone").unwrap();
        let workload = workload::build(&offer, &load, &given, pace).unwrap();
        let expected = expected_offered(&workload.classes, workload.rate, workload.measure);
        assert!((expected[0] - 700.0).abs() < 1e-6 && (expected[1] - 300.0).abs() < 1e-6, "{expected:?}");
    }

    #[test]
    fn of_a_long_failure_the_last_messages_are_shown() {
        let message = |at_us| TracedMessage {
            at_us,
            side: Side::Caller,
            direction: Direction::Sent,
            repeated: at_us > 0,
            text: format!("OPTIONS sip:h SIP/2.0\r\nCSeq: {at_us} OPTIONS\r\n\r\n"),
        };
        let messages = (0..20).map(|n| message(n * 1000)).collect();
        let example = Example { class: "options".into(), failure: Some("timeout".into()), messages };
        assert!(short_ladder(&example).matches("OPTIONS").count() <= LADDER_MESSAGES_MAX + 1);
    }

    #[test]
    fn an_agent_may_be_told_to_call_or_to_answer_only() {
        assert_eq!(with_role("h:1").ok(), Some(("h:1", Role::Both)));
        assert_eq!(with_role("[::1]:5099=handler").ok(), Some(("[::1]:5099", Role::Handler)));
        assert_eq!(with_role("h:1=loader").ok(), Some(("h:1", Role::Loader)));
        assert!(with_role("h:1=proxy").unwrap_err().0.contains("loader"));
    }

    #[test]
    fn drawn_seeds_are_short() {
        assert!((0..100).all(|_| draw_seed() < 1 << 48));
    }
}
