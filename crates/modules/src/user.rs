//! The transaction user (RFC 3261 §5) that runs scripts.

use crate::auth::{AuthCounters, Shard};
use crate::log::{Level, Log};
use crate::registrar::Unsaved;
use crate::run::{Asked, Context, Dispatch, Environment, Prepared, Run, Scratch, State, Then};
use crate::settings::Settings;
use crate::table::Module;
use alloc::sync::Arc;
use alloc::vec::Vec;
use engine::{
    Answer, BranchContext, BranchVerdict, Handled, ReplyContext, ReplyVerdict, RequestContext,
    TransactionUser,
};
use location::Location;
use route::{Frame, Machine, Outcome, Program, RouteId, RouteKind, Step, Verdict};
use sip::Instant;

/// A script that waits for an answer.
#[derive(Debug)]
pub struct Suspended {
    frame: Frame,
    prepared: Prepared,
    then: Then,
}

/// What the machine needs beside the message: everything is used again from run to run.
struct Stage<L, G> {
    program: Arc<Program>,
    settings: Arc<Settings>,
    environment: Environment,
    dispatch: Dispatch,
    location: L,
    log: G,
    machine: Machine,
    scratch: Scratch,
    prepared: Prepared,
    auth: Shard,
    unsaved: Vec<Unsaved>,
}

/// Runs a configuration's routes for the engine: `request_route` for requests, reply, failure and branch routes where
/// they exist and are armed.
pub struct ScriptUser<L, G> {
    stage: Stage<L, G>,
    request_route: Option<RouteId>,
    reply_route: Option<RouteId>,
}

/// How a run ended.
enum End {
    Over(Verdict),
    Waits(Frame, Asked),
}

impl<L: Location, G: Log> ScriptUser<L, G> {
    /// Runs `program`, which was checked against [`catalogue`](crate::catalogue), with what it sets.
    pub fn new(
        program: Arc<Program>,
        settings: Arc<Settings>,
        location: L,
        log: G,
        environment: Environment,
    ) -> ScriptUser<L, G> {
        ScriptUser::with_modules(crate::modules(), program, settings, location, log, environment)
    }

    /// The same with other modules than those of [`modules`](crate::modules).
    pub(crate) fn with_modules<'t>(
        modules: impl IntoIterator<Item = &'t &'static Module>,
        program: Arc<Program>,
        settings: Arc<Settings>,
        location: L,
        log: G,
        environment: Environment,
    ) -> ScriptUser<L, G> {
        let mut dispatch = Dispatch::default();
        for module in modules {
            dispatch.handlers.extend(module.functions.iter().map(|function| function.handler));
            dispatch.readers.extend(module.variables.iter().map(|variable| variable.read));
            dispatch.writers.extend(module.variables.iter().map(|variable| variable.write));
        }
        let request_route = program.entry(RouteKind::Request, None);
        let reply_route = program.entry(RouteKind::Reply, None);
        let auth = Shard::new(&settings, &environment);
        let stage = Stage {
            program,
            settings,
            environment,
            dispatch,
            location,
            log,
            machine: Machine::new(),
            scratch: Scratch::new(),
            prepared: Prepared::default(),
            auth,
            unsaved: Vec::new(),
        };
        ScriptUser { stage, request_route, reply_route }
    }

    /// The location service.
    pub fn location(&self) -> &L {
        &self.stage.location
    }

    /// The log.
    pub fn log(&self) -> &G {
        &self.stage.log
    }

    /// What the configuration sets.
    pub fn settings(&self) -> &Settings {
        &self.stage.settings
    }

    /// What came of credentials.
    pub fn auth_counters(&self) -> AuthCounters {
        self.stage.auth.counters
    }

    /// The last of the answers that the input just handled has given, and that must wait for their commits; until there is
    /// none. See [`Environment::holds_answers`].
    pub fn take_unsaved(&mut self) -> Option<Unsaved> {
        self.stage.unsaved.pop()
    }

    /// The wall clock and what else the process knows, to be kept up to date.
    pub fn environment_mut(&mut self) -> &mut Environment {
        &mut self.stage.environment
    }
}

impl<L: Location, G: Log> Stage<L, G> {
    /// Runs a route, or goes on with a suspended one.
    fn run(&mut self, cx: Context<'_, '_>, start: Start<'_>) -> End {
        let mut ask = None;
        if matches!(start, Start::Route(_)) {
            self.prepared.lines_read = false;
        }
        let mut run = Run {
            cx,
            location: &self.location,
            log: &mut self.log,
            settings: &self.settings,
            dispatch: &self.dispatch,
            scratch: &mut self.scratch,
            prepared: &mut self.prepared,
            environment: &self.environment,
            auth: &mut self.auth,
            ask: &mut ask,
            unsaved: &mut self.unsaved,
        };
        let step = match start {
            Start::Route(route) => self.machine.run(&self.program, route, &mut run),
            Start::Frame(frame, then, answer) => {
                let code = match then(&mut run, answer) {
                    Outcome::True => 1,
                    Outcome::False => -1,
                    Outcome::Code(code) => code,
                    Outcome::Exit => 0,
                    Outcome::Suspend => return self.waits(frame, ask),
                };
                self.machine.resume(&self.program, frame, code, &mut run)
            }
        };
        match (step, ask) {
            (Step::Done(verdict), _) => End::Over(self.over(verdict)),
            (Step::Suspended(frame), asked) => self.waits(frame, asked),
        }
    }

    fn waits(&mut self, frame: Frame, asked: Option<Asked>) -> End {
        match asked {
            Some(asked) => End::Waits(frame, asked),
            None => {
                self.say("a function waits for nothing; the script ends here");
                End::Over(Verdict::Exit)
            }
        }
    }

    fn over(&mut self, verdict: Verdict) -> Verdict {
        if let Verdict::Failed(error) = &verdict {
            let line = self.program.describe(error);
            self.say(&line);
        }
        verdict
    }

    fn say(&mut self, line: &str) {
        if self.log.is_enabled(Level::Error) {
            self.log.log(Level::Error, line.as_bytes());
        }
    }

    /// Runs a route that cannot wait.
    fn run_through(&mut self, cx: Context<'_, '_>, route: RouteId) -> Verdict {
        match self.run(cx, Start::Route(route)) {
            End::Over(verdict) => verdict,
            End::Waits(..) => {
                self.say("a function was called that waits for an answer, in a route that cannot wait; the route ends here");
                Verdict::Exit
            }
        }
    }

    fn handled(&mut self, end: End) -> Handled<Suspended> {
        match end {
            End::Over(_) => Handled::Done,
            End::Waits(frame, Asked { ask, deadline, then }) => {
                let prepared = core::mem::take(&mut self.prepared);
                Handled::Suspend { state: Suspended { frame, prepared, then }, ask, deadline }
            }
        }
    }
}

/// Where a run starts.
enum Start<'a> {
    Route(RouteId),
    Frame(Frame, Then, &'a Answer<'a>),
}

impl<L: Location, G: Log> TransactionUser for ScriptUser<L, G> {
    type State = State;
    type Suspended = Suspended;

    fn on_request(&mut self, cx: &mut RequestContext<'_, State>) -> Handled<Suspended> {
        let Some(route) = self.request_route else { return Handled::Done };
        self.stage.prepared.clear();
        if self.stage.settings.force_rport {
            cx.force_rport();
        }
        if self.stage.settings.local_rport {
            cx.ask_rport();
        }
        let end = self.stage.run(Context::Request(cx), Start::Route(route));
        self.stage.handled(end)
    }

    fn on_answer(
        &mut self,
        cx: &mut RequestContext<'_, State>,
        suspended: Suspended,
        answer: Answer<'_>,
    ) -> Handled<Suspended> {
        self.stage.prepared = suspended.prepared;
        let start = Start::Frame(suspended.frame, suspended.then, &answer);
        let end = self.stage.run(Context::Request(cx), start);
        self.stage.handled(end)
    }

    fn on_abandoned(&mut self, suspended: Suspended, now: Instant) {
        if let Some(pending) = suspended.prepared.pending {
            crate::registrar::abandon(&self.stage.location, now, &pending);
        }
    }

    fn on_reply(&mut self, cx: &mut ReplyContext<'_, State>) -> ReplyVerdict {
        let armed = cx.state.on_reply;
        for route in [self.reply_route, armed].into_iter().flatten() {
            if self.stage.run_through(Context::Reply(cx), route) == Verdict::Drop {
                return ReplyVerdict::Drop;
            }
        }
        ReplyVerdict::Forward
    }

    fn on_failure(&mut self, cx: &mut RequestContext<'_, State>) {
        // A failure route runs once for each time that it was armed.
        if let Some(route) = cx.state.on_failure.take() {
            self.stage.prepared.clear();
            let _ = self.stage.run_through(Context::Request(cx), route);
        }
    }

    fn failure_armed(&self, state: &State) -> bool {
        state.on_failure.is_some()
    }

    fn on_branch(&mut self, cx: &mut BranchContext<'_, State>) -> BranchVerdict {
        let armed = cx.state.on_branch;
        let verdict = armed.map(|route| self.stage.run_through(Context::Branch(cx), route));
        if verdict == Some(Verdict::Drop) { BranchVerdict::Drop } else { BranchVerdict::Send }
    }
}
