//! The component model of the 2009 paper (section V), with an interval for each number.
//!
//! ```text
//! C = 1 + TCP + ENC + L·(TCPS + TLSS) + R·(TCPC + TLSC)
//! ```
//!
//! L is 1 where callers connect for every call, R where callees are connected. Costs are subtracted in the
//! paper's order: TCP from the chains, ENC from the chains, the TCP handshakes from outbound and inbound, the
//! TLS handshakes from what then is left. Every number of the model is a sum of measured slopes with factors,
//! so its variance is the sum of theirs with the squares of the factors, and its degrees of freedom are Welch's
//! and Satterthwaite's.

use super::{Configuration, Mode, Security};
use crate::report::model::Estimate;
use crate::stats::distribution::student_quantile;
use crate::stats::slope::Line;
use std::collections::BTreeMap;

/// One term of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// A call over UDP; the unit.
    Udp,
    /// What TCP adds to it on connections that stay.
    Tcp,
    /// What encryption adds to that.
    Encryption,
    /// Accepting a TCP connection.
    TcpServer,
    /// Opening one.
    TcpClient,
    /// The server's side of a TLS handshake.
    TlsServer(Security),
    /// The client's side.
    TlsClient(Security),
}

impl Part {
    /// All, in the paper's order.
    pub const ALL: [Part; 11] = [
        Part::Udp,
        Part::Tcp,
        Part::Encryption,
        Part::TcpServer,
        Part::TcpClient,
        Part::TlsServer(Security::Tls),
        Part::TlsServer(Security::TlsMutual),
        Part::TlsServer(Security::TlsReuse),
        Part::TlsClient(Security::Tls),
        Part::TlsClient(Security::TlsMutual),
        Part::TlsClient(Security::TlsReuse),
    ];

    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Part::Udp => "call over UDP",
            Part::Tcp => "TCP data",
            Part::Encryption => "encryption",
            Part::TcpServer => "TCP handshake, server",
            Part::TcpClient => "TCP handshake, client",
            Part::TlsServer(Security::TlsMutual) => "TLS handshake, server, mutual",
            Part::TlsServer(Security::TlsReuse) => "TLS handshake, server, resumed",
            Part::TlsServer(_) => "TLS handshake, server, full",
            Part::TlsClient(Security::TlsMutual) => "TLS handshake, client, mutual",
            Part::TlsClient(Security::TlsReuse) => "TLS handshake, client, resumed",
            Part::TlsClient(_) => "TLS handshake, client, full",
        }
    }

    /// What it is taken from.
    fn sum(self) -> Sum {
        let of = |mode, security| Sum::of(Configuration { mode, security });
        let chain = |security| of(Mode::Chain, security);
        match self {
            Part::Udp => chain(Security::Udp),
            Part::Tcp => chain(Security::Tcp).minus(&chain(Security::Udp)),
            Part::Encryption => chain(Security::Tls).minus(&chain(Security::Tcp)),
            Part::TcpServer => of(Mode::Outbound, Security::Tcp).minus(&chain(Security::Tcp)),
            Part::TcpClient => of(Mode::Inbound, Security::Tcp).minus(&chain(Security::Tcp)),
            Part::TlsServer(security) => {
                of(Mode::Outbound, security).minus(&chain(Security::Tls)).minus(&Part::TcpServer.sum())
            }
            Part::TlsClient(security) => {
                of(Mode::Inbound, security).minus(&chain(Security::Tls)).minus(&Part::TcpClient.sum())
            }
        }
    }
}

/// What the model adds up for a configuration.
#[must_use]
pub fn parts(configuration: Configuration) -> Vec<Part> {
    let Configuration { mode, security } = configuration;
    let mut parts = vec![Part::Udp];
    if security == Security::Udp {
        return parts;
    }
    parts.push(Part::Tcp);
    if security.is_tls() {
        parts.push(Part::Encryption);
    }
    if mode.callers_connect() {
        parts.push(Part::TcpServer);
        parts.extend(security.is_tls().then_some(Part::TlsServer(security)));
    }
    if mode.callees_are_connected() {
        parts.push(Part::TcpClient);
        parts.extend(security.is_tls().then_some(Part::TlsClient(security)));
    }
    parts
}

/// A measured slope.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slope {
    /// Microseconds of CPU time per call.
    pub us: f64,
    /// Its standard error.
    pub error_us: f64,
    /// Degrees of freedom: the points of its line without two.
    pub freedom: f64,
}

impl Slope {
    /// Of a line of CPU time (microseconds a second) over calls a second. `None` with two points only.
    #[must_use]
    pub fn of(line: &Line) -> Option<Slope> {
        let errors = line.errors?;
        Some(Slope { us: line.slope, error_us: errors.slope_error, freedom: line.points as f64 - 2.0 })
    }

    /// With its 95 % interval.
    #[must_use]
    pub fn estimate(&self) -> Estimate {
        let reach = student_quantile(0.975, self.freedom) * self.error_us;
        Estimate { value: self.us, low: self.us - reach, high: self.us + reach }
    }
}

/// A sum of configurations' costs with factors.
#[derive(Clone, Debug, Default, PartialEq)]
struct Sum(BTreeMap<Configuration, f64>);

impl Sum {
    fn of(configuration: Configuration) -> Sum {
        Sum(BTreeMap::from([(configuration, 1.0)]))
    }

    fn plus(&self, other: &Sum, factor: f64) -> Sum {
        let mut sum = self.clone();
        for (configuration, by) in &other.0 {
            *sum.0.entry(*configuration).or_default() += factor * by;
        }
        sum.0.retain(|_, factor| factor.abs() > 1e-12);
        sum
    }

    fn minus(&self, other: &Sum) -> Sum {
        self.plus(other, -1.0)
    }
}

/// A number with what its interval is made of.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Uncertain {
    value: f64,
    variance: f64,
    freedom: f64,
}

impl Uncertain {
    fn estimate(&self) -> Estimate {
        let reach = if self.variance > 0.0 {
            student_quantile(0.975, self.freedom.max(1.0)) * self.variance.sqrt()
        } else {
            0.0
        };
        Estimate { value: self.value, low: self.value - reach, high: self.value + reach }
    }
}

/// The slopes that there are.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured(BTreeMap<Configuration, Slope>);

impl FromIterator<(Configuration, Slope)> for Measured {
    fn from_iter<T: IntoIterator<Item = (Configuration, Slope)>>(slopes: T) -> Measured {
        Measured(slopes.into_iter().collect())
    }
}

/// A prediction beside what was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Checked {
    /// Microseconds of CPU time per call, by the model.
    pub predicted_us: Estimate,
    /// As measured.
    pub measured_us: Estimate,
    /// predicted / measured − 1.
    pub error: Estimate,
}

impl Measured {
    /// The slope of a configuration.
    #[must_use]
    pub fn slope(&self, configuration: Configuration) -> Option<Slope> {
        self.0.get(&configuration).copied()
    }

    /// A component in microseconds; `None` where something that it is taken from was not measured.
    #[must_use]
    pub fn part_us(&self, part: Part) -> Option<Estimate> {
        Some(self.value(&part.sum())?.estimate())
    }

    /// A component in units of the UDP chain.
    #[must_use]
    pub fn part_relative(&self, part: Part) -> Option<Estimate> {
        self.relative(&part.sum(), &Part::Udp.sum())
    }

    /// A configuration's cost in units of the UDP chain.
    #[must_use]
    pub fn relative_cost(&self, configuration: Configuration) -> Option<Estimate> {
        self.relative(&Sum::of(configuration), &Part::Udp.sum())
    }

    /// The model's cost of a configuration beside the measured one.
    #[must_use]
    pub fn check(&self, configuration: Configuration) -> Option<Checked> {
        let predicted =
            parts(configuration).into_iter().fold(Sum::default(), |sum, part| sum.plus(&part.sum(), 1.0));
        let measured = Sum::of(configuration);
        let ratio = self.relative(&predicted, &measured)?;
        Some(Checked {
            predicted_us: self.value(&predicted)?.estimate(),
            measured_us: self.value(&measured)?.estimate(),
            error: Estimate { value: ratio.value - 1.0, low: ratio.low - 1.0, high: ratio.high - 1.0 },
        })
    }

    fn value(&self, sum: &Sum) -> Option<Uncertain> {
        let (mut value, mut variance, mut squares) = (0.0, 0.0, 0.0);
        for (configuration, factor) in &sum.0 {
            let slope = self.0.get(configuration)?;
            let part = (factor * slope.error_us).powi(2);
            value += factor * slope.us;
            variance += part;
            squares += part * part / slope.freedom.max(1.0);
        }
        let freedom = if squares > 0.0 { variance * variance / squares } else { 1.0 };
        Some(Uncertain { value, variance, freedom })
    }

    /// `sum / unit`. Its error is that of `sum − ratio·unit`, divided by the unit, to first order; what both
    /// are made of is accounted for.
    fn relative(&self, sum: &Sum, unit: &Sum) -> Option<Estimate> {
        let base = self.value(unit)?.value;
        if base.is_nan() || base <= 0.0 {
            return None;
        }
        let ratio = self.value(sum)?.value / base;
        let difference = self.value(&sum.plus(unit, -ratio))?;
        Some(
            Uncertain { value: ratio, variance: difference.variance / (base * base), ..difference }
                .estimate(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that obeys the model exactly, with the paper's components: 10 µs a unit.
    fn by_the_paper(error_us: f64) -> Measured {
        let cost = |one: Configuration| {
            parts(one).into_iter().map(|part| super::super::paper::component(part).0).sum::<f64>() * 10.0
        };
        Configuration::all()
            .into_iter()
            .map(|one| (one, Slope { us: cost(one), error_us, freedom: 3.0 }))
            .collect()
    }

    fn near(left: f64, right: f64) {
        assert!((left - right).abs() < 1e-9, "{left} is not {right}");
    }

    #[test]
    fn components_of_a_server_that_obeys_the_model_are_found_again() {
        let measured = by_the_paper(0.1);
        for part in Part::ALL {
            let expected = super::super::paper::component(part).0;
            near(measured.part_relative(part).unwrap().value, expected);
            near(measured.part_us(part).unwrap().value, expected * 10.0);
        }
    }

    #[test]
    fn local_configurations_are_predicted_from_the_others() {
        let mut measured = by_the_paper(0.1);
        let local = Configuration { mode: Mode::Local, security: Security::TlsMutual };
        near(measured.check(local).unwrap().error.value, 0.0);
        // The prediction does not look at what it predicts.
        measured.0.get_mut(&local).unwrap().us *= 1.25;
        let checked = measured.check(local).unwrap();
        near(checked.predicted_us.value, 188.0);
        near(checked.error.value, 1.0 / 1.25 - 1.0);
    }

    #[test]
    fn a_prediction_is_outbound_and_inbound_without_the_chain() {
        let configuration = |mode, security| Configuration { mode, security };
        let predicted = parts(configuration(Mode::Local, Security::TlsReuse))
            .into_iter()
            .fold(Sum::default(), |sum, part| sum.plus(&part.sum(), 1.0));
        let expected = BTreeMap::from([
            (configuration(Mode::Chain, Security::Tls), -1.0),
            (configuration(Mode::Outbound, Security::TlsReuse), 1.0),
            (configuration(Mode::Inbound, Security::TlsReuse), 1.0),
        ]);
        assert_eq!(predicted.0, expected);
    }

    #[test]
    fn intervals_grow_with_the_slopes_that_are_subtracted() {
        let measured = by_the_paper(1.0);
        let width = |estimate: Estimate| estimate.high - estimate.low;
        let one = width(measured.part_us(Part::Udp).unwrap());
        // t(3) = 3.1824 for one slope; two of them have the √2-fold error and 6 degrees of freedom (t =
        // 2.4469).
        near((one / 2.0 * 1e4).round() / 1e4, 3.1824);
        let two = width(measured.part_us(Part::Tcp).unwrap());
        assert!((two / 2.0 - 2.4469 * 2_f64.sqrt()).abs() < 1e-3, "{two}");
        assert!(width(measured.part_us(Part::TlsServer(Security::Tls)).unwrap()) > 2.5);
    }

    #[test]
    fn the_unit_has_no_error_of_its_own_in_units_of_itself() {
        let unit = by_the_paper(1.0).part_relative(Part::Udp).unwrap();
        assert_eq!((unit.value, unit.low, unit.high), (1.0, 1.0, 1.0));
    }

    #[test]
    fn what_was_not_measured_has_no_components() {
        let mut measured = by_the_paper(0.1);
        measured.0.remove(&Configuration { mode: Mode::Outbound, security: Security::Tcp });
        assert!(measured.part_us(Part::TcpServer).is_none());
        assert!(measured.part_us(Part::TlsServer(Security::Tls)).is_none());
        assert!(measured.part_us(Part::TlsClient(Security::Tls)).is_some());
        let local = |security| Configuration { mode: Mode::Local, security };
        assert!(measured.check(local(Security::Tcp)).is_none());
        assert!(Measured::default().part_us(Part::Udp).is_none());
    }

    #[test]
    fn udp_costs_the_same_in_every_mode() {
        for mode in Mode::ALL {
            assert_eq!(parts(Configuration { mode, security: Security::Udp }), [Part::Udp]);
        }
    }
}
