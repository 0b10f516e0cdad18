//! The grid in the report: a row for each configuration, the components, the predictions; and what a grid needs
//! to go on.
//!
//! Everything but the rows' own measurement follows from the rows, so [`Grid::complete`] makes it anew each
//! time that a configuration is finished.

use super::model::{self, Measured, Part, Slope};
use super::{Configuration, Mode, Security, paper};
use crate::report::model::Estimate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The share of handshakes that must resume a session where reuse is measured, and of those that must be full
/// elsewhere.
pub const HANDSHAKES_SHARE_MIN: f64 = 0.99;

/// Where the numbers of 2009 come from.
pub const SOURCE: &str = "C. Shen, E. Nahum, H. Schulzrinne, C. P. Wright: The Impact of TLS on SIP Server Performance, \
                          Columbia University technical report CUCS-022-09, 2009";

/// What is measured, and how: a file that has another plan is another measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Plan {
    /// The command that starts the server, with its placeholders; empty where the server was only watched.
    pub command: String,
    /// Calls a second at which each configuration is measured; empty until they have been found.
    pub rates: Vec<f64>,
    /// Whether the rates were given, not found.
    pub rates_given: bool,
    /// How often each rate is measured.
    pub rounds: u32,
    /// Warm-up of each trial, seconds.
    pub warm_up_s: f64,
    /// Window of each trial, seconds.
    pub measure_s: f64,
    /// Whether peaks are searched too.
    pub peaks: bool,
    /// The only version of TLS that was spoken; `None`: what both sides agreed on.
    pub version: Option<String>,
    /// The only cipher suite.
    pub cipher: Option<String>,
    /// The kind of key.
    pub key: String,
    /// Client authentication: `none`, `challenge`, `cached`.
    pub authentication: String,
}

/// The TLS grid.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Grid {
    /// How it is measured.
    pub plan: Plan,
    /// The configurations that are wanted, by id, in order.
    pub wanted: Vec<String>,
    /// Those that are done, in order.
    pub rows: Vec<Row>,
    /// What the costs are made of.
    pub components: Vec<Component>,
    /// The `local` configurations, predicted from the others.
    pub predictions: Vec<Prediction>,
    /// Pairs that must cost the same, since neither makes handshakes: how far they are apart.
    pub replicates: Vec<Replicate>,
    /// Where the numbers of 2009 come from.
    pub source: String,
}

/// One configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Row {
    /// `local-tls-mutual`; the subject of this name has the trials.
    pub id: String,
    /// Who connects anew for every call.
    pub mode: Mode,
    /// What the connections are.
    pub security: Security,
    /// Server CPU time per call, microseconds: the slope over the rates.
    pub cpu_us_per_call: Option<Estimate>,
    /// Standard error of that.
    pub standard_error_us: Option<f64>,
    /// Trials that the slope was drawn through.
    pub points: u32,
    /// The cost in units of the UDP chain.
    pub relative_cost: Option<Estimate>,
    /// The highest rate that passed, if it was searched.
    pub peak: Option<Estimate>,
    /// Handshakes of all trials.
    pub handshakes: Handshakes,
    /// Version and cipher suite that were agreed on, where the connections tell.
    #[serde(default)]
    pub agreed: Option<String>,
    /// Why it has no numbers: what the server does not do.
    pub not_supported: Option<String>,
    /// What makes it invalid.
    pub invalid: Vec<String>,
    /// The 2009 paper beside it.
    pub paper: Option<PaperRow>,
}

/// Handshakes, by side and kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Handshakes {
    /// Callers with the server: in full.
    pub callers_full: u64,
    /// Callers with the server: a session was resumed.
    pub callers_resumed: u64,
    /// The server with callees: in full.
    pub callees_full: u64,
    /// The server with callees: a session was resumed.
    pub callees_resumed: u64,
    /// Either, failed.
    pub failed: u64,
}

/// The 2009 paper's figures of a configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PaperRow {
    /// Calls a second at the peak.
    pub peak: f64,
    /// Where that stands.
    pub peak_place: String,
    /// Whether it was computed from a ratio in the text.
    pub peak_computed: bool,
    /// The cost in units of the UDP chain, without authentication.
    pub relative_cost: f64,
    /// Where that stands.
    pub cost_place: String,
    /// Whether authentication was measured with it, and taken off by the paper's own component.
    pub authentication_taken_off: bool,
}

/// A component of the cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Component {
    /// What.
    pub name: String,
    /// Microseconds of server CPU time.
    pub us: Estimate,
    /// In units of the UDP chain.
    pub relative: Estimate,
    /// The paper's figure 13.
    pub paper: f64,
    /// The paper's figure 18, with its client fixed.
    pub paper_fixed: Option<f64>,
}

/// A prediction beside what was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Prediction {
    /// The configuration.
    pub id: String,
    /// By the model, which was not shown this configuration; microseconds.
    pub predicted_us: Estimate,
    /// As measured.
    pub measured_us: Estimate,
    /// predicted / measured − 1.
    pub error: Estimate,
    /// The same of the paper's printed components and totals.
    pub paper_error: f64,
}

/// Two configurations that do the same.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Replicate {
    /// One.
    pub id: String,
    /// The other.
    pub of: String,
    /// Their costs' ratio minus one.
    pub difference: f64,
}

impl Handshakes {
    /// Both sides' of one kind.
    fn sides(&self) -> [(&'static str, u64, u64); 2] {
        [
            ("callers", self.callers_full, self.callers_resumed),
            ("callees", self.callees_full, self.callees_resumed),
        ]
    }

    /// Adds others.
    pub fn add(&mut self, other: &Handshakes) {
        self.callers_full += other.callers_full;
        self.callers_resumed += other.callers_resumed;
        self.callees_full += other.callees_full;
        self.callees_resumed += other.callees_resumed;
        self.failed += other.failed;
    }

    /// What is wrong with them for a configuration: resumed where full was measured, or full where reuse was.
    /// Only the sides that connect for every call are looked at, and of reuse the `first_ones` may be full, with callers
    /// and with callees: a session must be made before it can be resumed.
    #[must_use]
    pub fn faults(&self, configuration: Configuration, first_ones: [u64; 2]) -> Vec<String> {
        let (left, right) = configuration.handshakes_per_call();
        let sides = self.sides().into_iter().zip(first_ones).zip([left, right]);
        let sides = sides.filter(|(_, per_call)| *per_call > 0).map(|(side, _)| side);
        let fault = |((side, full, resumed), first_ones): ((&'static str, u64, u64), u64)| {
            let all = full + resumed;
            if all == 0 {
                return Some(format!("{configuration}: no handshake with {side} was counted"));
            }
            if configuration.security == Security::TlsReuse {
                let full = full.saturating_sub(first_ones);
                let share = resumed as f64 / (full + resumed).max(1) as f64;
                return (share < HANDSHAKES_SHARE_MIN).then(|| {
                    format!(
                        "{configuration}: {resumed} of {all} handshakes with {side} resumed a session; reuse means at least \
                         99 %: let the server keep sessions or issue tickets"
                    )
                });
            }
            (resumed > 0).then(|| {
                format!("{configuration}: {resumed} of {all} handshakes with {side} resumed a session, and all should be full")
            })
        };
        sides.filter_map(fault).collect()
    }
}

impl Row {
    /// A row without numbers.
    #[must_use]
    pub fn new(configuration: Configuration) -> Row {
        Row {
            id: configuration.id(),
            mode: configuration.mode,
            security: configuration.security,
            cpu_us_per_call: None,
            standard_error_us: None,
            points: 0,
            relative_cost: None,
            peak: None,
            handshakes: Handshakes::default(),
            agreed: None,
            not_supported: None,
            invalid: Vec::new(),
            paper: paper_row(configuration),
        }
    }

    /// Which it is.
    #[must_use]
    pub fn configuration(&self) -> Configuration {
        Configuration { mode: self.mode, security: self.security }
    }

    /// Whether the server handled it at all: a slope came out, or handshakes of another kind than were asked
    /// for.
    #[must_use]
    pub fn handled(&self) -> bool {
        self.cpu_us_per_call.is_some() || self.handshakes != Handshakes::default()
    }

    /// Its slope, unless it is invalid or did not measure what it should.
    fn slope(&self) -> Option<Slope> {
        let usable = self.invalid.is_empty() && self.not_supported.is_none() && self.points > 2;
        usable.then_some(Slope {
            us: self.cpu_us_per_call?.value,
            error_us: self.standard_error_us?,
            freedom: f64::from(self.points) - 2.0,
        })
    }
}

fn paper_row(configuration: Configuration) -> Option<PaperRow> {
    let figures = paper::of(configuration)?;
    Some(PaperRow {
        peak: figures.peak.value,
        peak_place: figures.peak.place.into(),
        peak_computed: figures.peak.computed,
        relative_cost: figures.relative_without_authentication(configuration.security),
        cost_place: figures.cost.place.into(),
        authentication_taken_off: figures.authentication,
    })
}

impl Grid {
    /// A grid of which nothing has been measured.
    #[must_use]
    pub fn new(plan: Plan, wanted: &[Configuration]) -> Grid {
        Grid {
            plan,
            wanted: wanted.iter().map(|one| one.id()).collect(),
            source: SOURCE.into(),
            ..Grid::default()
        }
    }

    /// Whether a grid of this plan can go on with these rows: all is the same but for rates that are still to
    /// be found.
    #[must_use]
    pub fn continues(&self, plan: &Plan) -> bool {
        let known = |one: &Plan| Plan { rates: Vec::new(), ..one.clone() };
        known(&self.plan) == known(plan) && (!plan.rates_given || self.plan.rates == plan.rates)
    }

    /// The row of a configuration.
    #[must_use]
    pub fn row(&self, configuration: Configuration) -> Option<&Row> {
        self.rows.iter().find(|row| row.configuration() == configuration)
    }

    /// The wanted configurations that have no row yet.
    #[must_use]
    pub fn left(&self) -> Vec<Configuration> {
        let wanted = self.wanted.iter().filter_map(|id| Configuration::of_id(id));
        wanted.filter(|configuration| self.row(*configuration).is_none()).collect()
    }

    /// Adds a row, or puts it in the place of an earlier one, and computes what follows from all of them.
    pub fn finish(&mut self, row: Row) {
        self.rows.retain(|other| other.configuration() != row.configuration());
        self.rows.push(row);
        self.rows.sort_by_key(Row::configuration);
        self.complete();
    }

    /// Computes what follows from the rows.
    pub fn complete(&mut self) {
        let measured: Measured =
            self.rows.iter().filter_map(|row| Some((row.configuration(), row.slope()?))).collect();
        for row in &mut self.rows {
            row.relative_cost = measured.relative_cost(row.configuration());
        }
        self.components = Part::ALL.into_iter().filter_map(|part| component(&measured, part)).collect();
        let locals = Security::ALL.into_iter().filter(|security| *security != Security::Udp);
        self.predictions = locals.filter_map(|security| prediction(&measured, security)).collect();
        self.replicates = replicates(&measured);
    }

    /// The largest error of a prediction, without its sign.
    #[must_use]
    pub fn error_max(&self) -> Option<f64> {
        self.predictions.iter().map(|one| one.error.value.abs()).max_by(f64::total_cmp)
    }
}

fn component(measured: &Measured, part: Part) -> Option<Component> {
    let (paper, paper_fixed) = paper::component(part);
    Some(Component {
        name: part.name().into(),
        us: measured.part_us(part)?,
        relative: measured.part_relative(part)?,
        paper,
        paper_fixed,
    })
}

fn prediction(measured: &Measured, security: Security) -> Option<Prediction> {
    let configuration = Configuration { mode: Mode::Local, security };
    let checked = measured.check(configuration)?;
    let parts: f64 = model::parts(configuration).into_iter().map(|part| paper::component(part).0).sum();
    let paper = paper::of(configuration)?;
    Some(Prediction {
        id: configuration.id(),
        predicted_us: checked.predicted_us,
        measured_us: checked.measured_us,
        error: checked.error,
        paper_error: (parts + paper::authentication(security)) / paper.relative() - 1.0,
    })
}

/// Over UDP all modes are the same, and a chain makes no handshakes of any kind.
fn replicates(measured: &Measured) -> Vec<Replicate> {
    let configuration = |mode, security| Configuration { mode, security };
    let chain = |security| configuration(Mode::Chain, security);
    let pairs = [
        (configuration(Mode::Outbound, Security::Udp), chain(Security::Udp)),
        (configuration(Mode::Inbound, Security::Udp), chain(Security::Udp)),
        (configuration(Mode::Local, Security::Udp), chain(Security::Udp)),
        (chain(Security::TlsMutual), chain(Security::Tls)),
        (chain(Security::TlsReuse), chain(Security::Tls)),
    ];
    let apart = |(one, of): (Configuration, Configuration)| {
        let (left, right) = (measured.slope(one)?.us, measured.slope(of)?.us);
        (right > 0.0).then(|| Replicate { id: one.id(), of: of.id(), difference: left / right - 1.0 })
    };
    pairs.into_iter().filter_map(apart).collect()
}

/// How long what is left should take: as long as what was done on average, or `planned` before anything was.
#[must_use]
pub fn time_left(done: u32, spent: Duration, left: u32, planned: Duration) -> Duration {
    let each = if done > 0 { spent / done } else { planned };
    each * left
}

/// The order in which rates are measured: every other one, then those between, so that a machine that grows
/// slower does not look like a server that costs more at higher rates.
#[must_use]
pub fn shuffled(rates: &[f64]) -> Vec<f64> {
    let every_other = |first: usize| rates.iter().skip(first).step_by(2);
    every_other(0).chain(every_other(1)).copied().collect()
}

/// Rates for a slope below a peak: seven, from an eighth to three quarters of it.
#[must_use]
pub fn rates_below(peak: f64) -> Vec<f64> {
    let rate = |step: u32| (peak * (0.125 + 0.625 * f64::from(step) / 6.0)).max(1.0).round();
    let mut rates: Vec<f64> = (0..7).map(rate).collect();
    rates.dedup();
    rates
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A row of a server that obeys the model with the paper's components, 10 µs a unit.
    pub(crate) fn row(configuration: Configuration) -> Row {
        let us: f64 =
            model::parts(configuration).into_iter().map(|part| paper::component(part).0 * 10.0).sum();
        Row {
            cpu_us_per_call: Some(Estimate { value: us, low: us - 0.3, high: us + 0.3 }),
            standard_error_us: Some(0.1),
            points: 7,
            ..Row::new(configuration)
        }
    }

    pub(crate) fn grid() -> Grid {
        let plan = Plan { rates: vec![100.0, 200.0], rounds: 1, ..Plan::default() };
        let mut grid = Grid::new(plan, &Configuration::all());
        Configuration::all().into_iter().for_each(|one| grid.finish(row(one)));
        grid
    }

    #[test]
    fn whole_grid_has_all_components_and_predicts_the_four_local_ones() {
        let grid = grid();
        assert_eq!((grid.rows.len(), grid.components.len(), grid.replicates.len()), (20, 11, 5));
        let ids: Vec<&str> = grid.predictions.iter().map(|one| one.id.as_str()).collect();
        assert_eq!(ids, ["local-tcp", "local-tls", "local-tls-mutual", "local-tls-reuse"]);
        assert!(grid.error_max().unwrap() < 1e-9);
        assert!(grid.left().is_empty());
        let errors: Vec<f64> =
            grid.predictions.iter().map(|one| (one.paper_error * 1000.0).round()).collect();
        assert_eq!(errors, [56.0, -28.0, 18.0, 18.0]);
        assert!(grid.rows[7].handled() && !Row::new(grid.rows[7].configuration()).handled());
        assert!((grid.rows[7].relative_cost.unwrap().value - 6.65).abs() < 1e-9, "{}", grid.rows[7].id);
    }

    #[test]
    fn grid_goes_on_where_it_was_left() {
        let plan = Plan { rounds: 2, ..Plan::default() };
        let mut grid = Grid::new(plan.clone(), &Configuration::list("chain").unwrap());
        grid.finish(row(Configuration::of_id("chain-tcp").unwrap()));
        grid.finish(row(Configuration::of_id("chain-udp").unwrap()));
        assert_eq!(grid.rows[0].id, "chain-udp");
        let left: Vec<String> = grid.left().into_iter().map(Configuration::id).collect();
        assert_eq!(left, ["chain-tls", "chain-tls-mutual", "chain-tls-reuse"]);
        grid.plan.rates = vec![10.0];
        assert!(grid.continues(&plan), "rates that were found do not matter");
        assert!(!grid.continues(&Plan { rounds: 3, ..plan.clone() }));
        assert!(!grid.continues(&Plan { rates: vec![20.0], rates_given: true, ..plan }));
    }

    #[test]
    fn invalid_row_is_not_calibrated_with() {
        let mut grid = grid();
        let mut bad = row(Configuration::of_id("chain-tls").unwrap());
        bad.invalid.push("the generator was late".into());
        grid.finish(bad);
        assert!(grid.components.iter().all(|component| component.name != "encryption"));
        assert_eq!(grid.predictions.len(), 1, "only TCP has no part in it");
    }

    #[test]
    fn handshakes_are_held_against_the_configuration() {
        let of = |id: &str| Configuration::of_id(id).unwrap();
        let full = Handshakes { callers_full: 1000, callees_full: 1000, ..Handshakes::default() };
        let resumed = Handshakes { callers_full: 2, callers_resumed: 998, ..Handshakes::default() };
        assert!(full.faults(of("local-tls"), [2, 2]).is_empty());
        assert!(resumed.faults(of("outbound-tls-reuse"), [2, 2]).is_empty());
        assert_eq!(resumed.faults(of("outbound-tls"), [2, 2]).len(), 1);
        assert_eq!(full.faults(of("local-tls-reuse"), [2, 2]).len(), 2);
        let one_each = Handshakes { callees_full: 100, callees_resumed: 900, ..resumed };
        assert!(
            one_each.faults(of("local-tls-reuse"), [2, 100]).is_empty(),
            "each of 100 callees was met once"
        );
        assert_eq!(one_each.faults(of("local-tls-reuse"), [2, 50]).len(), 1);
        assert_eq!(full.faults(of("local-tls-reuse"), [2, 1000]).len(), 2, "none was resumed");
        let some = Handshakes { callers_full: 20, callers_resumed: 980, ..Handshakes::default() };
        assert!(some.faults(of("outbound-tls-reuse"), [2, 2])[0].contains("980 of 1000"));
        assert!(Handshakes::default().faults(of("local-tls"), [0, 0])[0].contains("no handshake"));
        assert!(Handshakes::default().faults(of("local-tcp"), [0, 0]).is_empty());
        assert!(full.faults(of("chain-tls-reuse"), [0, 0]).is_empty(), "a chain connects once");
    }

    #[test]
    fn time_left_follows_what_was_done() {
        let s = Duration::from_secs;
        assert_eq!(time_left(0, s(0), 20, s(60)), s(1200));
        assert_eq!(time_left(2, s(100), 3, s(60)), s(150));
    }

    #[test]
    fn rates_are_spread_and_not_measured_in_their_order() {
        let rates = rates_below(1000.0);
        assert_eq!((rates.len(), rates[0], rates[6]), (7, 125.0, 750.0));
        assert_eq!(shuffled(&[1.0, 2.0, 3.0, 4.0, 5.0]), [1.0, 3.0, 5.0, 2.0, 4.0]);
        assert_eq!(rates_below(3.0), [1.0, 2.0]);
    }

    #[test]
    fn a_grid_in_a_file_is_read_back_the_same() {
        let grid = grid();
        let text = serde_json::to_string(&grid).unwrap();
        assert_eq!(serde_json::from_str::<Grid>(&text).unwrap(), grid);
    }
}
