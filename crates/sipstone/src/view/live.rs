//! The view of a terminal: a bar for the work at hand and a line each for load, success, times, server and generator.
//!
//! The lines stand still and only their text changes. What should stay (trials, notes) scrolls by above them.

use super::{View, text};
use crate::report::model::{Second, TrialReport};
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use std::fmt::Write;
use std::time::Duration;

/// How often the bar is drawn anew. Four times a second looks alive and costs the generator nothing.
const TICK: Duration = Duration::from_millis(250);
/// How often the screen is written at most, a second: the lines of one second change together.
const DRAW_HZ: u8 = 5;
/// The head of work whose length is known.
const BAR: &str = "{spinner:.cyan} {prefix:.bold}  {bar:28.cyan/dim} {left}";
/// The head of work whose length is not known.
const SPINNER: &str = "{spinner:.cyan} {prefix:.bold}  {elapsed}";
/// One of the lines below.
const LINE: &str = "{prefix:>11.dim}  {wide_msg}";

/// The lines below the bar.
#[derive(Debug)]
struct Lines {
    load: ProgressBar,
    success: ProgressBar,
    times: ProgressBar,
    server: ProgressBar,
    generator: ProgressBar,
}

/// A picture on standard error that renews itself.
#[derive(Debug)]
pub struct LiveView {
    all: MultiProgress,
    head: Option<ProgressBar>,
    lines: Option<Lines>,
    succeeded: u64,
    failed: u64,
    /// The server was seen in this trial.
    watched: bool,
}

impl Default for LiveView {
    fn default() -> LiveView {
        LiveView::new()
    }
}

impl LiveView {
    /// An empty picture on standard error.
    #[must_use]
    pub fn new() -> LiveView {
        let all = MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(DRAW_HZ));
        LiveView { all, head: None, lines: None, succeeded: 0, failed: 0, watched: false }
    }

    /// The lines, added to the screen when the first second comes.
    fn lines(&mut self) -> &Lines {
        let all = &self.all;
        self.lines.get_or_insert_with(|| {
            let line = |name: &'static str| {
                all.add(ProgressBar::new_spinner()).with_style(style(LINE)).with_prefix(name)
            };
            Lines {
                load: line("load"),
                success: line("success"),
                times: line("time"),
                server: line("server"),
                generator: line("generator"),
            }
        })
    }

    /// Takes the picture off the screen.
    fn clear(&mut self) {
        let lines = self.lines.take();
        let lines =
            lines.map(|lines| [lines.load, lines.success, lines.times, lines.server, lines.generator]);
        let bars: Vec<ProgressBar> =
            self.head.take().into_iter().chain(lines.into_iter().flatten()).collect();
        bars.iter().for_each(ProgressBar::disable_steady_tick);
        let _ = self.all.clear();
        // A bar that is removed draws nothing when it is dropped.
        bars.iter().for_each(|bar| self.all.remove(bar));
    }

    /// A line that stays.
    fn keep(&self, line: &str) {
        let _ = self.all.println(line);
    }
}

/// A style of one of the templates above.
fn style(template: &'static str) -> ProgressStyle {
    ProgressStyle::with_template(template)
        .expect("invariant: the templates are constants, and a test reads them all")
}

/// The bar of work that should take this long.
fn bar_style(expected: Duration) -> ProgressStyle {
    style(BAR).progress_chars("━╸─").with_key("left", move |state: &ProgressState, to: &mut dyn Write| {
        let elapsed = state.elapsed();
        let _ = match expected.checked_sub(elapsed) {
            Some(left) => {
                write!(to, "{} of {}, {} left", text::span(elapsed), text::span(expected), text::span(left))
            }
            None => write!(to, "{}, waiting for the last to end", text::span(elapsed)),
        };
    })
}

/// Whole milliseconds for the length of a bar.
fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl View for LiveView {
    fn begin(&mut self, what: &str, expected: Option<Duration>) {
        self.clear();
        (self.succeeded, self.failed, self.watched) = (0, 0, false);
        let head = match expected {
            Some(expected) => ProgressBar::new(ms(expected)).with_style(bar_style(expected)),
            None => ProgressBar::new_spinner().with_style(style(SPINNER)),
        };
        let head = self.all.add(head.with_prefix(what.to_string()));
        head.enable_steady_tick(TICK);
        self.head = Some(head);
    }

    fn registering(&mut self, registered: u32, failed: u32, users: u32) {
        let failed = if failed > 0 { format!(", {failed} failed") } else { String::new() };
        let lines = self.lines();
        lines.load.set_prefix("users");
        lines.load.set_message(format!("{registered} of {users} registered{failed}"));
    }

    fn second(&mut self, second: &Second, rate: f64, measured: bool) {
        if measured {
            self.succeeded += second.succeeded;
            self.failed += second.failed;
        }
        if let Some(head) = &self.head {
            head.set_position(ms(head.elapsed()));
        }
        self.watched |= second.server.is_some();
        let watched = self.watched;
        let success = if measured {
            text::success(self.succeeded, self.failed)
        } else {
            text::outside(self.succeeded, self.failed)
        };
        let lines = self.lines();
        lines.load.set_prefix("load");
        lines.load.set_message(text::load(second, rate));
        lines.success.set_message(success);
        lines.times.set_message(text::times(second));
        lines.generator.set_message(text::generator(second));
        // A second in which nobody looked leaves the last look standing.
        if second.server.is_some() || !watched {
            lines.server.set_message(text::server(second.server.as_ref()));
        }
    }

    fn trial(&mut self, trial: &TrialReport) {
        self.keep(&text::trial(trial));
    }

    fn note(&mut self, text: &str) {
        self.keep(text);
    }

    fn end(&mut self) {
        self.clear();
    }
}

impl Drop for LiveView {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use indicatif::InMemoryTerm;
    use std::time::Instant;

    fn screen() -> (LiveView, InMemoryTerm) {
        let term = InMemoryTerm::new(20, 90);
        let view = LiveView::new();
        view.all.set_draw_target(ProgressDrawTarget::term_like(Box::new(term.clone())));
        (view, term)
    }

    #[test]
    fn every_template_is_one() {
        for template in [BAR, SPINNER, LINE] {
            style(template);
        }
    }

    #[test]
    fn a_second_shows_load_success_times_server_and_generator() {
        let (mut view, term) = screen();
        view.begin("invite at 500/s", Some(Duration::from_secs(12)));
        let second =
            Second { offered: 500, succeeded: 499, failed: 1, p50_ms: Some(0.4), ..Second::default() };
        view.second(&second, 500.0, true);
        let parts = [
            "invite at 500/s",
            "left",
            "500 of 500/s offered",
            "99.8 %",
            "p50 400 µs",
            "not watched",
            "busy",
        ];
        // The screen is drawn by a thread of its own, a few times a second.
        let until = Instant::now() + Duration::from_secs(10);
        while !parts.iter().all(|part| term.contents().contains(part)) && Instant::now() < until {
            std::thread::sleep(TICK / 5);
        }
        let text = term.contents();
        for part in parts {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
    }

    #[test]
    fn at_the_end_only_what_should_stay_stays() {
        let (mut view, term) = screen();
        view.begin("trial", None);
        view.second(&Second::default(), 1.0, false);
        view.note("a sentence that stays");
        view.end();
        assert_eq!(term.contents().trim(), "a sentence that stays");
    }

    #[test]
    fn a_long_line_does_not_break_the_picture() {
        let (mut view, term) = screen();
        view.begin("trial", None);
        view.registering(u32::MAX / 2, 1, u32::MAX);
        view.second(&Second { offered: u64::MAX, succeeded: u64::MAX, ..Second::default() }, 1e7, false);
        std::thread::sleep(2 * TICK);
        assert!(term.contents().lines().count() <= 6, "{}", term.contents());
    }
}
