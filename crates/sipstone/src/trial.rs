//! One trial: prepares the groups, registers the users, starts all at once, collects a second after the other, ends.
//!
//! Everything that is waited for has a limit here, so that a trial ends whatever the groups and the server do.

mod assign;
mod course;
mod diagnosis;
#[cfg(test)]
pub(crate) mod fake;
mod preamble;

pub use assign::{GroupSpec, assignments};

use crate::group::{Command, Event, Gone, Group};
use crate::report::assemble::RawTrial;
use crate::spec::{ContactRange, Delay, Scenario, Target, Users, Workload};
use crate::sut::Server;
use crate::tally::{Example, Tally};
use crate::view::View;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Longest wait for sockets and tables of a new assignment: a million users take seconds.
pub const PREPARE_MAX: Duration = Duration::from_secs(60);

/// Longest wait for the first answer of a server.
pub const FIRST_ANSWER_MAX: Duration = Duration::from_secs(3);

/// Longest wait for the answer to a ping of a group.
pub const PONG_MAX: Duration = Duration::from_secs(5);

/// Pings of each group before the start; the shortest round trip counts.
const PINGS: u64 = 5;

/// From the command to start to the start, at least: time to tell every group.
const LEAD: Duration = Duration::from_millis(100);

/// How long after the end of the drain a group may still be silent about its result.
pub const FINISH_GRACE: Duration = Duration::from_secs(10);

/// Longest wait for the results of a trial that ends before its time.
pub const STOP_MAX: Duration = Duration::from_secs(5);

/// How long groups are listened to before the clock and the interruption are looked at again.
const LISTEN: Duration = Duration::from_millis(20);

/// More failed registrations than this share of the users end the preamble.
pub const PREAMBLE_FAILED_MAX: f64 = 0.01;

/// Runs trials on its groups.
pub struct Conductor {
    /// Who carries them out.
    pub groups: Vec<Box<dyn Group>>,
    /// What each of them has to work with, in the same order.
    pub specs: Vec<GroupSpec>,
    /// The server, if it is watched.
    pub server: Option<Server>,
    /// Set from outside (Ctrl-C) to end the trial in good order.
    pub interrupted: Arc<AtomicBool>,
    registered: Option<Registered>,
    /// Whether the server has ever answered.
    answered: bool,
}

/// Decides from (offered, succeeded, failed) per class whether the verdict is certain already.
pub type Early<'a> = &'a dyn Fn(&[(u64, u64, u64)]) -> bool;

/// Why a trial has no result.
#[derive(Debug)]
pub enum TrialError {
    /// It could not begin: the sentence says why; the example shows the one message.
    Setup(String, Option<Box<Example>>),
    /// A group died; what was measured until then.
    Gone(Gone, Box<RawTrial>),
    /// The user interrupted it; what was measured until then.
    Interrupted(Box<RawTrial>),
}

impl std::fmt::Display for TrialError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            TrialError::Setup(sentence, _) => f.write_str(sentence),
            TrialError::Gone(gone, _) => gone.fmt(f),
            TrialError::Interrupted(_) => f.write_str("interrupted"),
        }
    }
}

impl std::error::Error for TrialError {}

/// The users that the server knows from an earlier trial.
#[derive(Clone, Debug, PartialEq)]
struct Registered {
    target: Target,
    users: Users,
    contacts: Vec<ContactRange>,
    /// The server's process: another one has forgotten them.
    pid: Option<u32>,
    until: Instant,
}

/// Why a step of a trial did not end as it should.
#[derive(Debug)]
enum Trouble {
    Setup(String, Option<Box<Example>>),
    Gone(Gone),
    Problem(Gone),
    Interrupted,
}

impl From<Gone> for Trouble {
    fn from(gone: Gone) -> Trouble {
        Trouble::Gone(gone)
    }
}

impl Conductor {
    /// A conductor of these groups. `interrupted` is set from outside to end a trial in good order.
    #[must_use]
    pub fn new(
        groups: Vec<(GroupSpec, Box<dyn Group>)>,
        server: Option<Server>,
        interrupted: Arc<AtomicBool>,
    ) -> Conductor {
        let (specs, groups) = groups.into_iter().unzip();
        Conductor { groups, specs, server, interrupted, registered: None, answered: false }
    }

    /// Forgets that the users are registered: for a server that was restarted by others.
    ///
    /// A watched server that has another process than before is noticed without this.
    pub fn forget_registrations(&mut self) {
        self.registered = None;
        self.answered = false;
    }

    /// Runs one trial.
    ///
    /// # Errors
    /// See [`TrialError`].
    pub fn run(
        &mut self,
        workload: &Workload,
        phase: &str,
        early: Option<Early<'_>>,
        view: &mut dyn View,
    ) -> Result<RawTrial, Box<TrialError>> {
        let mut run = Run {
            workload,
            raw: RawTrial {
                phase: phase.into(),
                workload: workload.clone(),
                seconds: Vec::new(),
                measured: Tally::new(workload.classes.len()),
                server: Vec::new(),
                ended_early: false,
                examples: Vec::new(),
            },
            course: None,
            conductor: self,
            view,
        };
        let Err(trouble) = run.all(early) else { return Ok(run.raw) };
        run.wind_up();
        let begun = run.course.is_some();
        let raw = Box::new(run.raw);
        Err(Box::new(match trouble {
            Trouble::Setup(sentence, None) => TrialError::Setup(
                sentence,
                raw.examples.iter().find(|e| e.failure.is_some()).cloned().map(Box::new),
            ),
            Trouble::Setup(sentence, example) => TrialError::Setup(sentence, example),
            Trouble::Problem(gone) if !begun => {
                TrialError::Setup(format!("{}: {}", gone.group, gone.reason), None)
            }
            Trouble::Problem(gone) | Trouble::Gone(gone) => TrialError::Gone(gone, raw),
            Trouble::Interrupted => TrialError::Interrupted(raw),
        }))
    }
}

/// A trial that is being run.
struct Run<'a> {
    conductor: &'a mut Conductor,
    workload: &'a Workload,
    view: &'a mut dyn View,
    raw: RawTrial,
    course: Option<course::Course>,
}

impl Run<'_> {
    fn all(&mut self, early: Option<Early<'_>>) -> Result<(), Trouble> {
        let contacts = self.prepare()?;
        self.preamble(&contacts)?;
        let start = self.start(contacts)?;
        self.follow(start, early)?;
        if self.workload.classes.iter().any(|class| class.scenario == Scenario::RegisterLogout) {
            self.conductor.registered = None;
        }
        Ok(())
    }

    /// Opens the sockets of every group; returns all contacts.
    fn prepare(&mut self) -> Result<Vec<ContactRange>, Trouble> {
        let assignments = assignments(self.workload, &self.conductor.specs)
            .map_err(|sentence| Trouble::Setup(sentence, None))?;
        for (group, assignment) in self.conductor.groups.iter_mut().zip(assignments) {
            group.send(Command::Prepare(Box::new(assignment)))?;
        }
        let mut contacts: Vec<Option<Vec<ContactRange>>> = vec![None; self.conductor.groups.len()];
        let until = Instant::now() + PREPARE_MAX;
        while let Some(missing) = contacts.iter().position(Option::is_none) {
            match self.next_event(until)? {
                Some((group, Event::Prepared { contacts: own })) => contacts[group] = Some(own),
                Some(_) => {}
                None => return Err(self.late(missing, "has not opened its sockets", PREPARE_MAX)),
            }
        }
        Ok(contacts.into_iter().flatten().flatten().collect())
    }

    /// Tells every group to start at the same time; returns that time.
    fn start(&mut self, contacts: Vec<ContactRange>) -> Result<Instant, Trouble> {
        let ways = self.ways()?;
        let lead = LEAD + 4 * ways.iter().max().copied().unwrap_or_default();
        self.conductor.server_sample().map_err(|reason| Trouble::Setup(reason, None))?;
        let start = Instant::now() + lead;
        self.course = Some(course::Course::new(self.conductor.groups.len(), start));
        for (group, way) in self.conductor.groups.iter_mut().zip(ways) {
            let after = start.saturating_duration_since(Instant::now()).saturating_sub(way);
            group.send(Command::Start { after, contacts: contacts.clone() })?;
        }
        Ok(start)
    }

    /// How long a command takes to each group: half the shortest round trip.
    fn ways(&mut self) -> Result<Vec<Duration>, Trouble> {
        let mut ways = Vec::new();
        for group in 0..self.conductor.groups.len() {
            let mut shortest = PONG_MAX;
            for token in 0..PINGS {
                let sent = Instant::now();
                self.conductor.groups[group].send(Command::Ping { token })?;
                loop {
                    match self.next_event(sent + PONG_MAX)? {
                        Some((from, Event::Pong { token: back, .. })) if from == group && back == token => {
                            break;
                        }
                        Some(_) => {}
                        None => return Err(self.late(group, "has not answered a ping", PONG_MAX)),
                    }
                }
                shortest = shortest.min(sent.elapsed());
            }
            ways.push(shortest / 2);
        }
        Ok(ways)
    }

    /// The next event of any group; `None` when `until` has come.
    fn next_event(&mut self, until: Instant) -> Result<Option<(usize, Event)>, Trouble> {
        let Conductor { groups, interrupted, .. } = &mut *self.conductor;
        let slice = LISTEN / u32::try_from(groups.len().max(1)).unwrap_or(u32::MAX);
        loop {
            if interrupted.load(Ordering::Relaxed) {
                return Err(Trouble::Interrupted);
            }
            let left = until.saturating_duration_since(Instant::now());
            for (index, group) in groups.iter_mut().enumerate() {
                match group.receive(slice.min(left))? {
                    Some(Event::Problem { message }) => {
                        return Err(Trouble::Problem(Gone { group: group.name().into(), reason: message }));
                    }
                    Some(event) => return Ok(Some((index, event))),
                    None => {}
                }
            }
            if Instant::now() >= until {
                return Ok(None);
            }
        }
    }

    /// A group that has not done what it should in time.
    fn late(&self, group: usize, what: &str, within: Duration) -> Trouble {
        let name = self.conductor.groups.get(group).map_or("a group", |group| group.name());
        Trouble::Gone(Gone { group: name.into(), reason: format!("it {what} within {} s", within.as_secs()) })
    }

    /// Ends what is under way and keeps what the groups still say about it.
    fn wind_up(&mut self) {
        for group in &mut self.conductor.groups {
            // A group that is gone has nothing to stop.
            let _ = group.send(Command::Stop { drain: false });
        }
        let Some(course) = &mut self.course else { return };
        let until = Instant::now() + STOP_MAX;
        while course.unfinished().is_some() && Instant::now() < until {
            for (index, group) in self.conductor.groups.iter_mut().enumerate() {
                match group.receive(LISTEN) {
                    Ok(Some(event)) => course.take(index, event),
                    Ok(None) => {}
                    Err(_) => course.lose(index),
                }
            }
        }
        course.end(&mut self.raw);
    }
}

impl Conductor {
    /// Looks at the server, if it is watched.
    fn server_sample(&mut self) -> Result<Option<crate::sut::Sample>, String> {
        self.server.as_mut().map(Server::sample).transpose().map_err(|error| error.to_string())
    }
}

/// The longest that a delay can be.
fn longest(delay: Delay) -> Duration {
    match delay {
        Delay::None => Duration::ZERO,
        Delay::Constant(time) => time,
        Delay::Exponential { max, .. } => max,
    }
}

/// The longest that an operation of this workload takes because it is told to.
fn intended(workload: &Workload) -> Duration {
    let one = |class: &crate::spec::Class| match class.scenario {
        Scenario::InviteCancel => class.cancel_after,
        _ => longest(class.ring) + longest(class.hold),
    };
    workload.classes.iter().map(one).max().unwrap_or_default()
}

#[cfg(test)]
mod tests;
