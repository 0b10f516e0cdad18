//! The course of a trial: second after second, with the looks at the server, to the results of all groups.

use super::diagnosis::{self, FirstSeconds};
use super::{Early, FINISH_GRACE, FIRST_ANSWER_MAX, Run, STOP_MAX, Trouble, intended};
use crate::group::{Command, Event, Gone, Merger};
use crate::report::assemble::{RawTrial, second_report};
use crate::spec::Workload;
use std::time::{Duration, Instant};

/// What has been collected of a trial.
#[derive(Debug)]
pub(super) struct Course {
    start: Instant,
    merger: Merger,
    first: FirstSeconds,
}

impl Course {
    pub(super) fn new(groups: usize, start: Instant) -> Course {
        Course { start, merger: Merger::new(groups), first: FirstSeconds::default() }
    }

    /// The first group without a result.
    pub(super) fn unfinished(&self) -> Option<usize> {
        self.merger.unfinished()
    }

    pub(super) fn take(&mut self, group: usize, event: Event) {
        match event {
            Event::Interval(interval) => self.merger.interval(group, *interval),
            Event::Finished(finished) => self.merger.finish(group, *finished),
            // It will not say anything more.
            Event::Problem { .. } => self.lose(group),
            _ => {}
        }
    }

    /// Waits no longer for a group.
    pub(super) fn lose(&mut self, group: usize) {
        if !self.merger.finished(group) {
            self.merger.finish(group, crate::group::Finished::default());
        }
    }

    /// Hands over what there is, complete or not.
    pub(super) fn end(&mut self, raw: &mut RawTrial) {
        raw.seconds.extend(self.merger.take_all());
        let result = std::mem::take(&mut self.merger).into_result();
        raw.measured.merge(&result.measured);
        raw.examples.extend(result.examples);
    }
}

/// When the server is looked at: at each second, and exactly at both ends of the window.
#[derive(Clone, Copy, Debug)]
struct Looks {
    window: (Duration, Duration),
    /// The next one, from the start of the warm-up.
    due: Duration,
}

impl Looks {
    fn new(workload: &Workload) -> Looks {
        let window = (workload.warm_up, workload.warm_up + workload.measure);
        Looks { window, due: Duration::ZERO }
    }

    /// The one after a look at this time; looks that were missed are not made up for.
    fn next(&mut self, at: Duration) {
        let second = Duration::from_secs(at.as_secs() + 1);
        let ends = [self.window.0, self.window.1].into_iter().filter(|end| *end > at);
        self.due = ends.fold(second, Duration::min);
    }
}

impl Run<'_> {
    /// Collects seconds until all groups have finished.
    pub(super) fn follow(&mut self, start: Instant, early: Option<Early<'_>>) -> Result<(), Trouble> {
        let workload = self.workload;
        let planned = workload.warm_up + workload.measure;
        let what = format!("{} at {:.0}/s", self.raw.phase, workload.rate);
        self.view.begin(&what, Some(planned));
        let mut until = start + planned + workload.drain + FINISH_GRACE;
        let mut looks = Looks::new(workload);
        while let Some(missing) = self.course.as_ref().and_then(Course::unfinished) {
            let now = Instant::now();
            if now >= until {
                return Err(self.without_result(missing));
            }
            if now >= start + looks.due {
                self.look(&mut looks)?;
                continue;
            }
            let next = if self.conductor.server.is_some() { until.min(start + looks.due) } else { until };
            let Some((group, event)) = self.next_event(next)? else { continue };
            self.record(group, event)?;
            if let Some(early) = early
                && !self.raw.ended_early
                && self.course.as_ref().is_some_and(|course| certain(course, early))
            {
                self.raw.ended_early = true;
                self.look(&mut looks)?;
                until = until.min(Instant::now() + STOP_MAX);
                for group in &mut self.conductor.groups {
                    group.send(Command::Stop { drain: false })?;
                }
            }
        }
        if looks.due <= planned && !self.raw.ended_early && self.conductor.server.is_some() {
            // The groups were faster than the look at the end of the window.
            std::thread::sleep((start + looks.due).saturating_duration_since(Instant::now()));
            self.look(&mut looks)?;
        }
        if let Some(mut course) = self.course.take() {
            course.end(&mut self.raw);
        }
        Ok(())
    }

    fn without_result(&self, group: usize) -> Trouble {
        let name = self.conductor.groups.get(group).map_or("a group", |group| group.name());
        let reason = "it has shown no result after the end of the trial".into();
        Trouble::Gone(Gone { group: name.into(), reason })
    }

    /// Looks at the server.
    fn look(&mut self, looks: &mut Looks) -> Result<(), Trouble> {
        let Some(course) = &mut self.course else { return Ok(()) };
        let due = looks.due;
        let sample = self.conductor.server.as_mut().map(crate::sut::Server::sample).transpose();
        looks.next(due.max(course.start.elapsed()));
        let gone = |reason| Trouble::Gone(Gone { group: "the server under test".into(), reason });
        let Some(sample) = sample.map_err(|error| gone(error.0))? else { return Ok(()) };
        let seconds = sample.at.saturating_duration_since(course.start).as_secs_f64()
            - course.start.saturating_duration_since(sample.at).as_secs_f64();
        self.raw.server.push((seconds, sample));
        Ok(())
    }

    /// Takes an event; shows and judges the seconds that it completes.
    fn record(&mut self, group: usize, event: Event) -> Result<(), Trouble> {
        let Some(course) = &mut self.course else { return Ok(()) };
        course.take(group, event);
        for (second, tally) in course.merger.take_complete() {
            course.first.take(second, &tally);
            self.conductor.answered |= tally.generator.datagrams_received > 0;
            let measured = in_window(self.workload, second);
            let shown = second_report(second, &tally, &self.raw.server);
            self.view.second(&shown, self.workload.rate, measured);
            self.raw.seconds.push((second, tally));
            judge_first(&course.first, second, self.workload, self.conductor.answered)?;
            let patience = (FIRST_ANSWER_MAX + intended(self.workload)).as_secs();
            if self.raw.phase == "run" && u64::from(second) + 1 == patience && course.first.succeeded == 0 {
                self.view.note(&diagnosis::nothing_succeeds(second + 1, &course.first.failures));
            }
        }
        Ok(())
    }
}

/// Whether the verdict is certain.
fn certain(course: &Course, early: Early<'_>) -> bool {
    let measured = course.merger.measured();
    measured.iter().any(|(offered, _, _)| *offered > 0) && early(&measured)
}

/// Ends a trial at a server that has never answered anything. One that has answered and is silent now has a bad trial,
/// not a wrong set-up.
fn judge_first(
    first: &FirstSeconds,
    second: u32,
    workload: &Workload,
    answered: bool,
) -> Result<(), Trouble> {
    if answered {
        return Ok(());
    }
    if first.unreachable() {
        return Err(Trouble::Setup(diagnosis::nothing_listens(workload), None));
    }
    let silent = first.first_sent.is_some_and(|sent| u64::from(second - sent) >= FIRST_ANSWER_MAX.as_secs());
    if !silent {
        return Ok(());
    }
    let method = workload.classes.first().map_or("requests", |class| diagnosis::method(class.scenario));
    Err(Trouble::Setup(diagnosis::no_answer(workload, method, FIRST_ANSWER_MAX), None))
}

/// Whether a second begins in the measured window.
fn in_window(workload: &Workload, second: u32) -> bool {
    let begins = Duration::from_secs(u64::from(second));
    begins >= workload.warm_up && begins < workload.warm_up + workload.measure
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_is_looked_at_each_second_and_at_both_ends_of_the_window() {
        let ms = Duration::from_millis;
        let mut looks = Looks { window: (ms(1500), ms(3500)), due: Duration::ZERO };
        let mut due = Vec::new();
        for _ in 0..8 {
            due.push(looks.due);
            looks.next(looks.due);
        }
        assert_eq!(due, [0, 1000, 1500, 2000, 3000, 3500, 4000, 5000].map(ms));
        // A look that comes late does not make up for those that were missed.
        looks.next(ms(9_200));
        assert_eq!(looks.due, ms(10_000));
    }
}
