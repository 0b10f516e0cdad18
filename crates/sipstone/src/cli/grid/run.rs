//! The course of a grid: rates, trials, rows, and the file that keeps them.

use super::server::Servers;
use super::{GridArgs, RATES_MIN, costliest, kept, named};
use crate::cli::exit::Refusal;
use crate::cli::mix::Offer;
use crate::cli::peak::{self, Course, Factors, SearchArgs};
use crate::cli::refuse;
use crate::cli::session::{Ending, Session, Stop};
use crate::cli::workload::Pace;
use crate::grid::model::Slope;
use crate::grid::report::{Grid, Handshakes, Row, rates_below, shuffled, time_left};
use crate::grid::{Configuration, Security};
use crate::report::assemble;
use crate::report::json;
use crate::report::model::{Estimate, Report, Subject, TrialReport};
use crate::spec::Tls;
use crate::stats::{Verdict, slope};
use crate::validity::{self, Purpose};
use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

/// How often a trial is made again because the generator could not keep up.
const HICCUPS_MAX: u32 = 2;
/// Share of the offered rate that a trial must carry within its window: what a server that falls behind has
/// spent there belongs to calls that are not counted there.
const KEPT_UP_MIN: f64 = 0.95;
/// Start, preamble and end of a configuration, for the estimate of the time before anything was measured.
const OVERHEAD: Duration = Duration::from_secs(8);
/// Times of the search that finds the rates: it need not be exact.
const SEARCH_WARM_UP: Duration = Duration::from_secs(1);
const SEARCH_MEASURE: Duration = Duration::from_secs(2);
const SEARCH_PRECISION: f64 = 0.1;

/// A grid being measured.
pub(super) struct Run<'a> {
    pub(super) args: &'a GridArgs,
    pub(super) session: Session<'a>,
    pub(super) servers: Servers,
    pub(super) offer: Offer,
    pub(super) pace: Pace,
    pub(super) tls: Tls,
    pub(super) grid: Grid,
}

/// How a configuration went.
enum Done {
    /// It has its row.
    Row(Box<Row>, Box<Subject>),
    /// The user ended it, or a group died: why.
    BrokenOff(String),
}

impl Run<'_> {
    /// Measures what is left.
    ///
    /// # Errors
    /// The server does not start, nothing can be measured, or the file cannot be written.
    pub(super) fn all(&mut self) -> Result<(), Refusal> {
        if self.grid.plan.rates.is_empty() && !self.grid.left().is_empty() {
            match self.find_rates()? {
                Ok(rates) => self.grid.plan.rates = rates,
                Err(why) => {
                    self.session.report.invalid.push(why);
                    return Ok(());
                }
            }
        }
        let start = Instant::now();
        let left = self.grid.left();
        for (number, configuration) in (0_u32..).zip(&left) {
            let remaining = u32::try_from(left.len()).unwrap_or(u32::MAX) - number;
            let time = time_left(number, start.elapsed(), remaining, self.planned());
            self.session.view.note(&format!(
                "{configuration}: {} of {}, about {} min left",
                self.grid.rows.len() + 1,
                self.grid.wanted.len(),
                time.as_secs().div_ceil(60)
            ));
            match self.one(*configuration)? {
                Done::Row(row, subject) => {
                    self.session.view.note(&told(&row));
                    self.session.report.subjects.retain(|other| other.name != subject.name);
                    self.session.report.subjects.push(*subject);
                    self.grid.finish(*row);
                    self.keep()?;
                }
                Done::BrokenOff(why) => {
                    self.session.report.invalid.push(why);
                    return Ok(());
                }
            }
        }
        if self.grid.rows.iter().all(|row| row.cpu_us_per_call.is_none()) {
            self.session.view.end();
            let why = self.grid.rows.first().and_then(|row| row.not_supported.clone()).unwrap_or_default();
            return refuse(format!("none of the configurations could be measured; the first: {why}"));
        }
        Ok(())
    }

    /// How long a configuration should take.
    fn planned(&self) -> Duration {
        let trials =
            u32::try_from(self.grid.plan.rates.len()).unwrap_or(u32::MAX).saturating_mul(self.args.rounds);
        let trial = self.pace.warm_up + self.pace.measure + self.args.search.cooldown;
        OVERHEAD + trial.saturating_mul(trials)
    }

    /// Starts the server of a configuration and aims the load at it.
    fn set_up(&mut self, configuration: Configuration) -> Result<(), Refusal> {
        self.servers.start(&mut self.session, configuration)?;
        self.session.links = Some(self.servers.links(configuration, &self.tls));
        Ok(())
    }

    /// Rates that the costliest configuration which the server does can carry: all are measured at the same
    /// ones, so that what differs between them is not the load.
    fn find_rates(&mut self) -> Result<Result<Vec<f64>, String>, Refusal> {
        let mut reasons = Vec::new();
        for configuration in costliest(&self.grid.left()) {
            self.session.view.note(&format!("finding the rates: the peak of {configuration}"));
            self.set_up(configuration)?;
            let search = SearchArgs {
                precision: SEARCH_PRECISION,
                confirm: Some(1),
                overload: Factors(Vec::new()),
                no_overload: true,
                no_calibration: true,
                duration: Some(SEARCH_MEASURE),
                warm_up: Some(SEARCH_WARM_UP),
                ..self.args.search.clone()
            };
            let (invalid, remarks) = (self.session.report.invalid.len(), self.session.report.remarks.len());
            let course = peak::subject(&mut self.session, &named(&self.offer, configuration), &search)?;
            let reason = self.session.report.invalid.drain(invalid..).collect::<Vec<String>>().join("; ");
            self.session.report.remarks.truncate(remarks);
            match course {
                Course::Measured => {
                    let subject = self.session.report.subjects.pop();
                    match subject
                        .and_then(|subject| subject.peak)
                        .map(|peak| peak.rate)
                        .filter(|rate| *rate > 0.0)
                    {
                        Some(peak) => {
                            let rates = rates_below(peak);
                            self.session.remark(format!(
                                "the rates lie below {peak:.0}/s, the peak of {configuration} by a short search"
                            ));
                            return Ok(Ok(rates));
                        }
                        None => reasons.push(format!("{configuration}: {reason}")),
                    }
                }
                Course::BrokenOff => return Ok(Err(reason)),
                Course::NotSupported(sentence, _) => reasons.push(sentence),
            }
        }
        refuse(format!(
            "no rates could be found, for no configuration carried any; the first: {}; --rates gives them",
            reasons.first().map_or("", String::as_str)
        ))
    }

    fn one(&mut self, configuration: Configuration) -> Result<Done, Refusal> {
        self.set_up(configuration)?;
        let offer = named(&self.offer, configuration);
        let workload = self.session.workload(&offer, self.pace)?;
        let mut subject = self.session.subject(&offer, &workload);
        let mut row = Row::new(configuration);
        match peak::probe(&mut self.session, &offer, &workload, &mut subject) {
            None => {}
            Some(Course::NotSupported(sentence, subject)) => {
                row.not_supported = Some(sentence.lines().next().unwrap_or_default().to_owned());
                let subject = Subject { name: offer.name.clone(), ..*subject };
                return Ok(Done::Row(Box::new(row), Box::new(subject)));
            }
            Some(_) => return Ok(Done::BrokenOff(self.session.report.invalid.pop().unwrap_or_default())),
        }
        for _ in 0..self.args.rounds {
            for rate in shuffled(&self.grid.plan.rates) {
                if let Err(why) = self.trial(&offer, rate, &mut subject)? {
                    return Ok(Done::BrokenOff(why));
                }
            }
        }
        subject.classes = assemble::class_facts(&workload, &subject.trials);
        let callees = validity::callee_sessions(&workload);
        judge(&mut row, &mut subject, self.session.spec.threads, callees);
        if self.args.peaks
            && let Some(why) = self.peak(&offer, &mut row, &mut subject)?
        {
            return Ok(Done::BrokenOff(why));
        }
        Ok(Done::Row(Box::new(row), Box::new(subject)))
    }

    /// One trial, made again where the generator could not keep up.
    fn trial(
        &mut self,
        offer: &Offer,
        rate: f64,
        subject: &mut Subject,
    ) -> Result<Result<(), String>, Refusal> {
        let workload = self.session.workload(offer, Pace { rate, ..self.pace })?;
        self.session.purpose = Purpose::Cost;
        for attempt in 0..=HICCUPS_MAX {
            peak::pause(&self.session, self.args.search.cooldown);
            match self.session.measure(&workload, "run", Ending::WhenHopeless) {
                Ok(trial) => {
                    let faults = validity::generator_faults(&trial, &workload, Purpose::Cost);
                    if faults.is_empty() || attempt == HICCUPS_MAX {
                        subject.trials.push(trial);
                        break;
                    }
                    self.session.view.note(&format!(
                        "made again, for the generator could not keep up: {}",
                        faults.join("; ")
                    ));
                }
                Err(Stop::SetUp(why) | Stop::BrokenOff(why, _)) => return Ok(Err(why)),
            }
        }
        Ok(Ok(()))
    }

    /// The peak of a configuration; a sentence if the search was broken off.
    fn peak(
        &mut self,
        offer: &Offer,
        row: &mut Row,
        subject: &mut Subject,
    ) -> Result<Option<String>, Refusal> {
        let invalid = self.session.report.invalid.len();
        self.session.purpose = Purpose::Latency;
        let course = peak::subject(&mut self.session, offer, &self.args.search)?;
        let reasons: Vec<String> = self.session.report.invalid.drain(invalid..).collect();
        match course {
            Course::Measured => {
                let searched = self.session.report.subjects.pop().unwrap_or_default();
                let peak = searched.peak.filter(|peak| peak.rate > 0.0);
                row.peak =
                    peak.as_ref().map(|peak| Estimate { value: peak.rate, low: peak.low, high: peak.high });
                subject.peak = peak;
                // The search counts its trials from its own first one.
                let offset = u32::try_from(subject.trials.len()).unwrap_or(u32::MAX);
                let steps = subject.peak.iter_mut().flat_map(|peak| &mut peak.trace);
                steps.for_each(|step| step.trial = step.trial.saturating_add(offset));
                subject.trials.extend(searched.trials);
                row.invalid.extend(reasons);
                Ok(None)
            }
            Course::NotSupported(sentence, _) => {
                row.invalid.push(sentence);
                Ok(None)
            }
            Course::BrokenOff => Ok(Some(reasons.join("; "))),
        }
    }

    /// Writes the report so far, whole or not at all.
    fn keep(&self) -> Result<(), Refusal> {
        let Some(path) = kept(self.args) else { return Ok(()) };
        let report = Report { grid: Some(self.grid.clone()), ..self.session.report.clone() };
        replace(path, &json::to_json(&report))
            .map_err(|error| Refusal(format!("{} cannot be written: {error}", path.display())))
    }
}

/// Replaces a file in one step, so that an end in the middle leaves the old one.
fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let new = path.with_file_name(name);
    let mut file = std::fs::File::create(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&new, path)
}

/// Slope, handshakes and what is wrong, from the trials; of the `callees` each has an address of its own.
fn judge(row: &mut Row, subject: &mut Subject, threads: u16, callees: u64) {
    let usable: Vec<&TrialReport> = subject
        .trials
        .iter()
        // A short trial may be too short to prove what it showed: for a slope it is enough that the server kept
        // up.
        .filter(|trial| trial.invalid.is_empty() && trial.verdict != Verdict::Fail.word())
        .filter(|trial| trial.throughput >= KEPT_UP_MIN * trial.offered_rate)
        .collect();
    let points: Vec<(f64, f64)> =
        usable.iter().filter_map(|trial| Some((trial.throughput, trial.cpu_cores? * 1e6))).collect();
    let rates: BTreeSet<u64> = usable.iter().map(|trial| trial.rate.to_bits()).collect();
    if let Some(found) = slope::line(&points).ok().as_ref().and_then(Slope::of) {
        row.cpu_us_per_call = Some(found.estimate());
        row.standard_error_us = Some(found.error_us);
        row.points = u32::try_from(points.len()).unwrap_or(u32::MAX);
        subject.cpu_slope = row.cpu_us_per_call;
    }
    (row.handshakes, row.agreed) = handshakes(&subject.trials);
    let runs = u64::try_from(subject.trials.len()).unwrap_or(u64::MAX);
    let configuration = row.configuration();
    let threads = runs.saturating_mul(threads.into());
    let faults = row.handshakes.faults(configuration, [threads, threads.saturating_add(callees)]);
    if configuration.security == Security::TlsReuse && !faults.is_empty() {
        row.not_supported = Some(faults.join("; "));
        return;
    }
    row.invalid.extend(faults);
    if rates.len() < RATES_MIN {
        let why: BTreeSet<&String> = subject.trials.iter().flat_map(|trial| &trial.invalid).collect();
        let why = why.into_iter().next().map_or("the server did not carry the others", String::as_str);
        row.invalid.push(format!(
            "{configuration}: only {} rates gave a point of the slope, which needs {RATES_MIN} ({why})",
            rates.len()
        ));
    }
}

/// Those of all trials, with what was agreed on in most.
fn handshakes(trials: &[TrialReport]) -> (Handshakes, Option<String>) {
    let mut sum = Handshakes::default();
    let mut suites = std::collections::BTreeMap::<&str, u64>::new();
    for connections in trials.iter().filter_map(|trial| trial.connections.as_ref()) {
        sum.add(&Handshakes {
            callers_full: connections.tls_client.full,
            callers_resumed: connections.tls_client.resumed,
            callees_full: connections.tls_server.full,
            callees_resumed: connections.tls_server.resumed,
            failed: connections
                .failures
                .iter()
                .filter(|(cause, _)| cause.contains("handshake"))
                .map(|(_, n)| n)
                .sum(),
        });
        for (suite, count) in &connections.suites {
            *suites.entry(suite).or_default() += count;
        }
    }
    (sum, suites.into_iter().max_by_key(|(_, count)| *count).map(|(suite, _)| suite.to_owned()))
}

/// A row in a sentence.
fn told(row: &Row) -> String {
    match (&row.not_supported, row.cpu_us_per_call) {
        (Some(why), _) => format!("not supported: {why}"),
        (None, Some(cpu)) => {
            format!(
                "{}: {:.1} µs of server CPU per call ({:.1} to {:.1})",
                row.id, cpu.value, cpu.low, cpu.high
            )
        }
        (None, None) => format!("no slope: {}", row.invalid.join("; ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::model::{ConnectionReport, HandshakeReport};

    fn trial(rate: f64, full: u64, resumed: u64) -> TrialReport {
        let tls_client = HandshakeReport { full, resumed, ..HandshakeReport::default() };
        let suites = [("TLSv1_3 TLS_AES_256_GCM_SHA384".to_owned(), full + resumed)].into();
        TrialReport {
            rate,
            throughput: rate,
            offered_rate: rate,
            cpu_cores: Some(0.01 + rate * 80e-6),
            verdict: "pass".into(),
            connections: Some(ConnectionReport { tls_client, suites, ..ConnectionReport::default() }),
            ..TrialReport::default()
        }
    }

    fn judged(id: &str, trials: Vec<TrialReport>) -> Row {
        let mut row = Row::new(Configuration::of_id(id).unwrap());
        let mut subject = Subject { trials, ..Subject::default() };
        judge(&mut row, &mut subject, 1, 0);
        row
    }

    #[test]
    fn cost_is_the_slope_over_the_rates_that_were_carried() {
        let mut trials: Vec<TrialReport> = (1..=6).map(|n| trial(f64::from(n) * 100.0, 1000, 0)).collect();
        trials.push(TrialReport { verdict: "fail".into(), cpu_cores: Some(1.0), ..trial(900.0, 10, 0) });
        let row = judged("outbound-tls", trials);
        assert!((row.cpu_us_per_call.unwrap().value - 80.0).abs() < 1e-6);
        assert_eq!((row.points, row.invalid.len(), row.handshakes.callers_full), (6, 0, 6010));
        assert_eq!(row.agreed.as_deref(), Some("TLSv1_3 TLS_AES_256_GCM_SHA384"));
    }

    #[test]
    fn four_rates_are_too_few() {
        let mut trials: Vec<TrialReport> = (1..=5).map(|n| trial(f64::from(n) * 100.0, 1000, 0)).collect();
        trials[4].invalid.push("the generator was late".into());
        trials.push(TrialReport { throughput: 300.0, ..trial(600.0, 1000, 0) });
        let row = judged("outbound-tls", trials);
        assert!(
            row.invalid[0].contains("only 4 rates") && row.invalid[0].contains("late"),
            "{:?}",
            row.invalid
        );
    }

    #[test]
    fn a_server_that_does_not_resume_is_told_and_not_called_invalid() {
        let trials =
            |full, resumed| (1..=5).map(|n| trial(f64::from(n) * 100.0, full, resumed)).collect::<Vec<_>>();
        let row = judged("outbound-tls-reuse", trials(1000, 0));
        assert!(row.not_supported.unwrap().contains("0 of 5000"));
        assert!(row.invalid.is_empty());
        assert_eq!(judged("outbound-tls-reuse", trials(1, 999)).not_supported, None);
        let row = judged("outbound-tls", trials(500, 500));
        assert!(row.invalid[0].contains("all should be full"), "{:?}", row.invalid);
    }

    #[test]
    fn a_file_is_replaced_in_one_step() {
        let path = std::env::temp_dir().join(format!("sipstone-grid-{}.json", std::process::id()));
        replace(&path, "one").unwrap();
        replace(&path, "two").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "two");
        assert!(!path.with_file_name(format!("sipstone-grid-{}.json.new", std::process::id())).exists());
        std::fs::remove_file(&path).unwrap();
        assert!(replace(Path::new("/nonexistent/x.json"), "").is_err());
    }
}
