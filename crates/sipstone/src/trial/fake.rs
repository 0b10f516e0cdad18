//! Groups and a view for tests of the conductor: they do at once what they are told to, or fail where the test wants.

use crate::group::{Command, Event, Finished, Gone, Group, Interval};
use crate::report::model::{Second, TrialReport};
use crate::spec::{
    Auth, Choice, Class, ContactRange, Links, Proxy, Scenario, Shape, Target, Users, Workload,
};
use crate::tally::{Example, Failure, Tally};
use crate::view::View;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Calls of 1000 users at 127.0.0.1:5060, three seconds long.
pub(crate) fn workload() -> Workload {
    Workload {
        target: Target { address: "127.0.0.1:5060".parse().unwrap(), domain: "127.0.0.1:5060".into() },
        links: Links::default(),
        classes: vec![Class::plain(Scenario::Invite)],
        rate: 100.0,
        shape: Shape::Poisson,
        users: Users {
            count: 1000,
            first: 1,
            name: "user{}".into(),
            password: "password{}".into(),
            listed: Vec::new(),
            choice: Choice::Uniform,
        },
        auth: Auth::None,
        auth_every: false,
        proxy: Proxy::Auto,
        seed: 1,
        warm_up: Duration::from_secs(1),
        measure: Duration::from_secs(2),
        drain: Duration::from_secs(1),
        t1: Duration::from_millis(500),
        t2: Duration::from_secs(4),
        open_operations_max: 10_000,
        preamble_window: 100,
        preamble: true,
        expires: 3600,
        trace: false,
    }
}

/// What a fake group does.
#[derive(Clone, Debug, Default)]
pub(super) struct Script {
    /// Registrations end with this failure; `None`: they succeed.
    pub(super) registrations_fail: Option<&'static str>,
    /// Nothing is said of registrations until they are stopped.
    pub(super) registrations_silent: bool,
    /// Seconds of a trial, each with ten operations that end so; `None`: well.
    pub(super) seconds: Vec<Option<Failure>>,
    /// Nothing comes back from the server.
    pub(super) server_silent: bool,
    /// After the seconds the group dies.
    pub(super) dies: bool,
    /// After the seconds the group tells of a problem.
    pub(super) problem: bool,
    /// Preparing fails.
    pub(super) unprepared: bool,
    /// After the seconds it waits for a stop.
    pub(super) waits: bool,
    /// After the seconds it sets this.
    pub(super) interrupts: Option<Arc<AtomicBool>>,
}

/// A group that follows a script.
pub(super) struct Fake {
    script: Script,
    index: u16,
    queue: VecDeque<Result<Event, Gone>>,
    log: Arc<Mutex<Vec<String>>>,
    contacts: Vec<ContactRange>,
    running: bool,
    dead: bool,
}

impl Fake {
    pub(super) fn new(script: Script, log: Arc<Mutex<Vec<String>>>) -> Fake {
        Fake {
            script,
            index: 0,
            queue: VecDeque::new(),
            log,
            contacts: Vec::new(),
            running: false,
            dead: false,
        }
    }

    fn event(&mut self, event: Event) {
        self.queue.push_back(Ok(event));
    }

    fn registered(&mut self, count: u32) {
        let event = match self.script.registrations_fail {
            Some(word) => {
                let example =
                    Example { class: "preamble".into(), failure: Some(word.into()), messages: Vec::new() };
                Event::Registered { registered: 0, failed: count, example: Some(example) }
            }
            None => Event::Registered { registered: count, failed: 0, example: None },
        };
        self.event(event);
    }

    fn trial(&mut self) {
        self.running = true;
        let script = self.script.clone();
        for (second, failure) in (0u32..).zip(&script.seconds) {
            let mut tally = Tally::new(1);
            tally.classes[0].offered = 10;
            match failure {
                Some(failure) => {
                    tally.classes[0].failures.insert(*failure, 10);
                }
                None => tally.classes[0].succeeded = 10,
            }
            tally.generator.datagrams_sent = 60;
            tally.generator.datagrams_received = if script.server_silent { 0 } else { 60 };
            let so_far = u64::from(second) * 10;
            self.event(Event::Interval(Box::new(Interval {
                second,
                tally,
                measured: vec![(so_far, 0, so_far)],
            })));
        }
        if script.dies {
            self.dead = true;
            self.queue.push_back(Err(gone()));
        } else if script.problem {
            self.event(Event::Problem { message: "no route".into() });
        } else if !script.waits {
            self.finish();
        }
    }

    fn finish(&mut self) {
        if std::mem::take(&mut self.running) {
            let mut measured = Tally::new(1);
            measured.classes[0].offered = 20;
            let example =
                Example { class: "invite".into(), failure: Some("timeout".into()), messages: Vec::new() };
            self.event(Event::Finished(Box::new(Finished { measured, examples: vec![example] })));
        }
    }
}

fn gone() -> Gone {
    Gone { group: "fake".into(), reason: "the connection broke".into() }
}

impl Group for Fake {
    fn name(&self) -> &str {
        "fake"
    }

    fn send(&mut self, command: Command) -> Result<(), Gone> {
        if self.dead {
            return Err(gone());
        }
        let word = match command {
            Command::Prepare(assignment) => {
                self.index = assignment.group;
                let (first, count) = assignment.callees;
                let address = "127.0.0.1:7000".parse().unwrap();
                self.contacts = vec![ContactRange { first, count, address }];
                let contacts = self.contacts.clone();
                let problem = Event::Problem { message: "port taken".into() };
                self.event(if self.script.unprepared { problem } else { Event::Prepared { contacts } });
                "prepare".into()
            }
            Command::Register { contacts } => {
                if !self.script.registrations_silent {
                    self.registered(self.contacts[0].count);
                }
                format!("register with {}", contacts.len())
            }
            Command::Start { contacts, .. } => {
                self.trial();
                format!("start with {}", contacts.len())
            }
            Command::Stop { drain } => {
                self.script.registrations_silent.then(|| self.registered(0));
                self.finish();
                format!("stop {drain}")
            }
            Command::Ping { token } => {
                self.event(Event::Pong { token, clock_us: 0 });
                return Ok(());
            }
        };
        self.log.lock().unwrap().push(format!("{} {word}", self.index));
        Ok(())
    }

    fn receive(&mut self, wait: Duration) -> Result<Option<Event>, Gone> {
        match self.queue.pop_front() {
            Some(event) => event.map(Some),
            None => {
                if self.running
                    && let Some(flag) = &self.script.interrupts
                {
                    flag.store(true, Ordering::Relaxed);
                }
                std::thread::sleep(wait);
                Ok(None)
            }
        }
    }
}

/// A view that remembers.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) begun: Vec<String>,
    pub(super) registered: u32,
    pub(super) seconds: Vec<(Second, bool)>,
    pub(super) notes: Vec<String>,
}

impl View for Seen {
    fn begin(&mut self, what: &str, _: Option<Duration>) {
        self.begun.push(what.into());
    }

    fn registering(&mut self, registered: u32, _: u32, _: u32) {
        self.registered = registered;
    }

    fn second(&mut self, second: &Second, _: f64, measured: bool) {
        self.seconds.push((second.clone(), measured));
    }

    fn trial(&mut self, _: &TrialReport) {}

    fn note(&mut self, text: &str) {
        self.notes.push(text.into());
    }

    fn end(&mut self) {}
}
