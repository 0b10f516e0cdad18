//! The preamble: every user is registered before the first operation, unless the server knows them already.

use super::{FIRST_ANSWER_MAX, PREAMBLE_FAILED_MAX, Registered, Run, Trouble, diagnosis};
use crate::group::{Command, Event};
use crate::spec::ContactRange;
use crate::tally::Example;
use std::time::{Duration, Instant};

/// How long groups may take to show the message that failed, after the preamble was ended.
const EXAMPLE_MAX: Duration = Duration::from_secs(2);

/// A registration is given up after 64·T1 (RFC 3261 §17.1.2.2, Timer F); this much later something must have ended.
const STALL_GRACE: Duration = Duration::from_secs(8);

/// How far one group is.
#[derive(Clone, Debug, Default)]
struct Progress {
    registered: u32,
    failed: u32,
    done: bool,
    example: Option<Example>,
}

impl Run<'_> {
    /// Registers the users if that is needed.
    pub(super) fn preamble(&mut self, contacts: &[ContactRange]) -> Result<(), Trouble> {
        let workload = self.workload;
        if !workload.preamble || !workload.classes.iter().any(|class| class.scenario.facts().preamble) {
            return Ok(());
        }
        let lasts = Duration::from_secs(u64::from(workload.expires));
        let takes = workload.warm_up + workload.measure + workload.drain;
        if lasts < takes {
            let sentence = format!(
                "registrations last {} s, but the trial takes up to {} s: raise --expires",
                lasts.as_secs(),
                takes.as_secs()
            );
            return Err(Trouble::Setup(sentence, None));
        }
        let now = Instant::now();
        let registered = Registered {
            target: workload.target.clone(),
            users: workload.users.clone(),
            contacts: contacts.to_vec(),
            pid: self.conductor.server.as_ref().and_then(|server| server.facts().pid),
            until: now + lasts,
        };
        if self.conductor.registered.as_ref().is_some_and(|old| old.still_good(&registered, now + takes)) {
            return Ok(());
        }
        self.conductor.registered = None;
        self.register(contacts)?;
        self.conductor.registered = Some(registered);
        Ok(())
    }

    fn register(&mut self, contacts: &[ContactRange]) -> Result<(), Trouble> {
        let users = self.workload.users.count;
        self.view.begin(&format!("registering {users} users"), None);
        for group in &mut self.conductor.groups {
            group.send(Command::Register { contacts: contacts.to_vec() })?;
        }
        let mut groups = vec![Progress::default(); self.conductor.groups.len()];
        let stall = 64 * self.workload.t1 + STALL_GRACE;
        let mut last = (0, Instant::now());
        let (begun, mut answered) = (Instant::now(), false);
        while groups.iter().any(|group| !group.done) {
            let until = if answered { last.1 + stall } else { begun + FIRST_ANSWER_MAX };
            let Some((index, event)) = self.next_event(until)? else {
                let sentence = if answered {
                    format!(
                        "no registration has ended for {} s: see what the server is doing",
                        stall.as_secs()
                    )
                } else {
                    diagnosis::no_answer(self.workload, "REGISTER", FIRST_ANSWER_MAX)
                };
                let example = self.end_preamble(&mut groups);
                return Err(Trouble::Setup(sentence, example));
            };
            groups[index].take(event);
            let (registered, failed) = sum(&groups);
            self.view.registering(registered, failed, users);
            if registered + failed != last.0 {
                last = (registered + failed, Instant::now());
            }
            answered |= registered + failed > 0;
            self.conductor.answered |= registered > 0;
            if f64::from(failed) > PREAMBLE_FAILED_MAX * f64::from(users) {
                let example = self.end_preamble(&mut groups);
                let sentence = diagnosis::refused(self.workload, registered, failed, example.as_deref());
                return Err(Trouble::Setup(sentence, example));
            }
        }
        Ok(())
    }

    /// Ends the preamble before its time; the first failure that a group shows.
    fn end_preamble(&mut self, groups: &mut [Progress]) -> Option<Box<Example>> {
        for group in &mut self.conductor.groups {
            group.send(Command::Stop { drain: false }).ok()?;
        }
        let until = Instant::now() + EXAMPLE_MAX;
        while groups.iter().all(|group| group.example.is_none()) && groups.iter().any(|group| !group.done) {
            let (index, event) = self.next_event(until).ok()??;
            groups[index].take(event);
        }
        groups.iter_mut().find_map(|group| group.example.take()).map(Box::new)
    }
}

impl Progress {
    fn take(&mut self, event: Event) {
        match event {
            Event::Registering { registered, failed, .. } => {
                (self.registered, self.failed) = (registered, failed);
            }
            Event::Registered { registered, failed, example } => {
                *self = Progress { registered, failed, done: true, example };
            }
            _ => {}
        }
    }
}

fn sum(groups: &[Progress]) -> (u32, u32) {
    groups.iter().fold((0, 0), |(registered, failed), group| {
        (registered.saturating_add(group.registered), failed.saturating_add(group.failed))
    })
}

impl Registered {
    /// Whether what was registered is what is needed now, and stays until then.
    fn still_good(&self, needed: &Registered, until: Instant) -> bool {
        self.until > until
            && self.target == needed.target
            && self.users == needed.users
            && self.contacts == needed.contacts
            && self.pid == needed.pid
    }
}
