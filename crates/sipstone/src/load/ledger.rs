//! What a worker counts: the interval since it was last asked, the measured window, and the examples.

use super::{Counts, EXAMPLES_MAX, Preamble};
use crate::tally::{ClassTally, Direction, Example, Failure, GeneratorTally, Side, Tally, TracedMessage};
use sip::Instant;
use std::time::Duration;

/// The class of the preamble's registrations, which are in no tally.
pub(super) const PREAMBLE: u16 = u16::MAX;

/// Most messages of one example; what comes later is left out.
const EXAMPLE_MESSAGES_MAX: usize = 64;

/// Most INVITEs whose first answer waits for the socket; the turnaround of further ones is not counted.
const TURNAROUNDS_MAX: usize = 1024;

/// Whether an operation was planned in the measured window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Window {
    Measured,
    Outside,
}

/// A message, for examples.
#[derive(Clone, Copy)]
pub(super) struct Seen<'a> {
    pub(super) at: Instant,
    pub(super) side: Side,
    pub(super) direction: Direction,
    pub(super) repeated: bool,
    pub(super) bytes: &'a [u8],
}

/// Where a message of an example is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    example: usize,
    message: usize,
}

/// The books of one worker.
#[derive(Debug)]
pub(super) struct Ledger {
    pub(super) interval: Tally,
    pub(super) measured: Tally,
    pub(super) preamble: Preamble,
    names: Vec<String>,
    examples: Vec<Example>,
    /// Which failures have an example.
    known: Vec<(u16, Failure)>,
    /// How many examples failures leave to traces.
    kept_free: usize,
    /// Per class, which example is its trace.
    traces: Vec<Option<usize>>,
    start: Instant,
    window: (Instant, Instant),
    /// When the INVITEs came whose first answer is not yet handed to the socket.
    unanswered: Vec<Instant>,
}

impl Ledger {
    /// For these classes; with `traced`, room is kept for an example of each.
    pub(super) fn new(names: Vec<String>, traced: bool) -> Ledger {
        let classes = names.len();
        Ledger {
            interval: Tally::new(classes),
            measured: Tally::new(classes),
            preamble: Preamble::default(),
            names,
            examples: Vec::new(),
            known: Vec::new(),
            kept_free: if traced { classes.min(EXAMPLES_MAX / 2) } else { 0 },
            traces: vec![None; classes],
            start: Instant::ZERO,
            window: (Instant::NEVER, Instant::NEVER),
            unanswered: Vec::with_capacity(TURNAROUNDS_MAX),
        }
    }

    /// The measured window begins `warm_up` after `start`.
    pub(super) fn begin(&mut self, start: Instant, warm_up: Duration, measure: Duration) {
        self.start = start;
        self.window = (start + warm_up, start + warm_up + measure);
    }

    pub(super) fn window_of(&self, planned: Instant) -> Window {
        let inside = self.window.0 <= planned && planned < self.window.1;
        if inside { Window::Measured } else { Window::Outside }
    }

    /// Counts in the interval, and in the measured window if it belongs there. The preamble is in neither.
    pub(super) fn count(&mut self, class: u16, window: Window, count: impl Fn(&mut ClassTally)) {
        if let Some(tally) = self.interval.classes.get_mut(usize::from(class)) {
            count(tally);
        }
        if window == Window::Measured {
            self.count_measured(class, count);
        }
    }

    /// Counts in the measured window only: what was counted in the interval when it happened.
    pub(super) fn count_measured(&mut self, class: u16, count: impl Fn(&mut ClassTally)) {
        if let Some(tally) = self.measured.classes.get_mut(usize::from(class)) {
            count(tally);
        }
    }

    /// Counts what the generator itself did, in the window if it is now.
    pub(super) fn count_generator(&mut self, now: Instant, count: impl Fn(&mut GeneratorTally)) {
        count(&mut self.interval.generator);
        if self.window_of(now) == Window::Measured {
            count(&mut self.measured.generator);
        }
    }

    /// A callee has answered an INVITE that came at `received`.
    pub(super) fn await_turnaround(&mut self, received: Instant) {
        if self.unanswered.len() < TURNAROUNDS_MAX {
            self.unanswered.push(received);
        }
    }

    /// The answers were handed to the socket.
    pub(super) fn count_turnarounds(&mut self, now: Instant) {
        for at in 0..self.unanswered.len() {
            let received = self.unanswered[at];
            self.count_generator(received, |generator| {
                generator.callee_turnaround.record(now.since(received));
            });
        }
        self.unanswered.clear();
    }

    /// What happened since the last call, and the window so far.
    pub(super) fn take(&mut self, open: u64) -> Counts {
        let classes = self.names.len();
        let mut interval = std::mem::replace(&mut self.interval, Tally::new(classes));
        interval.open = open;
        self.measured.open = open;
        Counts { interval, measured: self.measured.clone() }
    }

    pub(super) fn examples(&self) -> Vec<Example> {
        self.examples.clone()
    }

    /// The first operation of a class that asks gets its trace.
    pub(super) fn wants_trace(&mut self, class: u16) -> bool {
        let index = self.traces.get(usize::from(class)).copied();
        index == Some(None) && self.open_trace(class).is_some()
    }

    fn open_trace(&mut self, class: u16) -> Option<usize> {
        let trace = self.traces.get_mut(usize::from(class))?;
        if trace.is_none() && self.examples.len() < EXAMPLES_MAX {
            *trace = Some(self.examples.len());
            let name = self.names.get(usize::from(class))?.clone();
            self.examples.push(Example { class: name, failure: None, messages: Vec::new() });
        }
        *trace
    }

    /// Notes a message of a traced operation; the callee's side may be noted first.
    pub(super) fn trace(&mut self, class: u16, seen: &Seen<'_>) -> Option<Place> {
        let message = self.text(seen);
        let index = self.open_trace(class)?;
        let messages = &mut self.examples.get_mut(index)?.messages;
        if messages.len() >= EXAMPLE_MESSAGES_MAX {
            return None;
        }
        messages.push(message);
        Some(Place { example: index, message: messages.len() - 1 })
    }

    /// What was noted turned out to have come before.
    pub(super) fn mark_repeated(&mut self, place: Option<Place>) {
        let message =
            place.and_then(|place| self.examples.get_mut(place.example)?.messages.get_mut(place.message));
        if let Some(message) = message {
            message.repeated = true;
        }
    }

    /// Keeps the first failure of a kind, as long as there is room beside the traces.
    pub(super) fn failure_example(&mut self, class: u16, failure: Failure, messages: &[Seen<'_>]) {
        if class == PREAMBLE {
            if self.preamble.example.is_none() {
                self.preamble.example = Some(self.example("preamble".into(), failure, messages));
            }
            return;
        }
        let Some(name) = self.names.get(usize::from(class)) else { return };
        if self.known.len() < EXAMPLES_MAX - self.kept_free
            && self.examples.len() < EXAMPLES_MAX
            && !self.known.contains(&(class, failure))
        {
            let example = self.example(name.clone(), failure, messages);
            self.known.push((class, failure));
            self.examples.push(example);
        }
    }

    fn example(&self, class: String, failure: Failure, messages: &[Seen<'_>]) -> Example {
        let messages = messages.iter().map(|seen| self.text(seen)).collect();
        Example { class, failure: Some(failure.word()), messages }
    }

    fn text(&self, seen: &Seen<'_>) -> TracedMessage {
        TracedMessage {
            at_us: u64::try_from(seen.at.since(self.start).as_micros()).unwrap_or(u64::MAX),
            side: seen.side,
            direction: seen.direction,
            repeated: seen.repeated,
            text: String::from_utf8_lossy(seen.bytes).into_owned(),
        }
    }
}
