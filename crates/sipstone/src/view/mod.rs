//! What a person sees while it runs.
//!
//! All of it goes to standard error, so that standard output carries results only. A terminal gets a picture that
//! renews itself, a pipe a line a second that `grep` and `awk` understand, `--quiet` nothing.

mod line;
mod live;
mod text;

pub use line::LineView;
pub use live::LiveView;

use crate::report::model::{Second, TrialReport};
use std::io::IsTerminal;
use std::time::Duration;

/// Where progress goes: a live terminal, a line a second in a pipe, or nowhere (`--quiet`).
pub trait View {
    /// A new piece of work: `registering`, `trial 3: ramp at 3375/s`; how long it should take, if known.
    fn begin(&mut self, what: &str, expected: Option<Duration>);
    /// Registrations so far.
    fn registering(&mut self, registered: u32, failed: u32, users: u32);
    /// A second has passed. `measured`: whether it lies in the window.
    fn second(&mut self, second: &Second, rate: f64, measured: bool);
    /// A trial has ended and was judged.
    fn trial(&mut self, trial: &TrialReport);
    /// A sentence that should stay on the screen.
    fn note(&mut self, text: &str);
    /// Everything has ended: clear what was live.
    fn end(&mut self);
}

/// Shows nothing (`--quiet`).
#[derive(Clone, Copy, Debug, Default)]
pub struct QuietView;

impl View for QuietView {
    fn begin(&mut self, _: &str, _: Option<Duration>) {}
    fn registering(&mut self, _: u32, _: u32, _: u32) {}
    fn second(&mut self, _: &Second, _: f64, _: bool) {}
    fn trial(&mut self, _: &TrialReport) {}
    fn note(&mut self, _: &str) {}
    fn end(&mut self) {}
}

/// How much is shown while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verbosity {
    /// What standard error can show.
    Shown,
    /// Nothing.
    Quiet,
}

/// The view that suits standard error.
#[must_use]
pub fn choose(verbosity: Verbosity) -> Box<dyn View> {
    let error = std::io::stderr();
    match verbosity {
        Verbosity::Quiet => Box::new(QuietView),
        Verbosity::Shown if error.is_terminal() => Box::new(LiveView::new()),
        Verbosity::Shown => Box::new(LineView::new(error)),
    }
}
