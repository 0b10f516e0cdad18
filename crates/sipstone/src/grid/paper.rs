//! The figures of the 2009 paper, each with the place in it.
//!
//! Costs are thousands of CPU events that oprofile counted for 50 calls a second (figures 6, 8, 10 and 12; the
//! numbers stand in the text of section IV). Peaks are calls a second on one Xeon of 3.06 GHz (figures 5, 7, 9
//! and 11), of inbound and local those "with timeout fix". Some are printed; of others the text only says the
//! ratio to a printed one: those are marked. Outbound and local were measured with SIP authentication, chain
//! and inbound without.

use super::{Configuration, Mode, Security};

/// The cost of the UDP chain without authentication, to which all costs are normalised (section IV-A).
pub const UDP_CHAIN_COST: f64 = 144.0;

/// What authentication adds, in units of the UDP chain: over UDP, TCP and TLS (figure 13).
pub const AUTHENTICATION: [f64; 3] = [3.0, 3.2, 3.6];

/// A figure of the paper.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quoted {
    /// The number.
    pub value: f64,
    /// Where it stands, or what it was computed from.
    pub place: &'static str,
    /// Whether it was computed here from a ratio or a difference in the text.
    pub computed: bool,
}

/// What the paper has of one configuration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// Calls a second at the peak.
    pub peak: Quoted,
    /// Thousands of CPU events.
    pub cost: Quoted,
    /// Whether authentication is in them.
    pub authentication: bool,
}

const fn printed(value: f64, place: &'static str) -> Quoted {
    Quoted { value, place, computed: false }
}

const fn computed(value: f64, place: &'static str) -> Quoted {
    Quoted { value, place, computed: true }
}

/// What the paper has of a configuration; `None` where it measured nothing of its own: a chain makes no
/// handshakes that could be mutual or resumed.
#[must_use]
pub fn of(configuration: Configuration) -> Option<Figures> {
    use Security::{Tcp, Tls, TlsMutual, TlsReuse, Udp};
    let (peak, cost) = match (configuration.mode, configuration.security) {
        (Mode::Chain, Udp) => (printed(2400.0, "figure 5"), printed(144.0, "section IV-A")),
        (Mode::Chain, Tcp) => {
            (printed(1139.0, "figure 5"), computed(296.0, "section IV-A: 152 more than UDP"))
        }
        (Mode::Chain, Tls) => (printed(695.0, "figure 5"), printed(450.0, "section IV-A")),
        (Mode::Chain, TlsMutual | TlsReuse) => return None,
        (Mode::Outbound, Udp) => {
            (printed(462.0, "figure 5"), computed(569.0, "section IV-B: 271 less than TCP"))
        }
        (Mode::Outbound, Tcp) => {
            (computed(462.0 * 0.58, "section IV-B: 58 % of UDP"), printed(840.0, "section IV-B"))
        }
        (Mode::Outbound, Tls) => {
            (computed(462.0 * 0.58 * 0.56, "section IV-B: 56 % of TCP"), printed(1470.0, "section IV-B"))
        }
        (Mode::Outbound, TlsMutual) => (
            computed(462.0 * 0.58 * 0.56 * 0.8, "section IV-B: 20 % less than TLS"),
            printed(1790.0, "section IV-B"),
        ),
        (Mode::Outbound, TlsReuse) => (
            computed(462.0 * 0.58 * 0.56 * 1.2, "section IV-B: 20 % more than TLS"),
            computed(1270.0, "section IV-B: about 200 less than TLS"),
        ),
        (Mode::Inbound, Udp) => {
            (printed(2400.0, "figure 5"), computed(144.0, "section IV-C: 250 less than TCP"))
        }
        (Mode::Inbound, Tcp) => {
            (computed(2400.0 * 0.24, "section IV-C: 24 % of UDP"), printed(394.0, "section IV-C"))
        }
        (Mode::Inbound, Tls) => {
            (computed(2400.0 * 0.24 * 0.28, "section IV-C: 28 % of TCP"), printed(1315.0, "section IV-C"))
        }
        (Mode::Inbound, TlsMutual) => (
            computed(2400.0 * 0.24 * 0.28 * 0.71, "section IV-C: 29 % less than TLS"),
            computed(1865.0, "section IV-C: 550 more than TLS"),
        ),
        (Mode::Inbound, TlsReuse) => (
            computed(2400.0 * 0.24 * 0.28 * 2.0, "section IV-C: 100 % more than TLS"),
            printed(710.0, "section IV-C"),
        ),
        (Mode::Local, Udp) => (printed(462.0, "figure 5"), computed(570.0, "section IV-D: TCP is 58 % more")),
        (Mode::Local, Tcp) => {
            (computed(462.0 * 0.53, "section IV-D: 53 % of UDP"), printed(900.0, "section IV-D"))
        }
        (Mode::Local, Tls) => {
            (computed(462.0 * 0.53 * 0.37, "section IV-D: 37 % of TCP"), printed(2400.0, "section IV-D"))
        }
        (Mode::Local, TlsMutual) => (
            computed(462.0 * 0.53 * 0.37 * 0.67, "section IV-D: 33 % less than TLS"),
            printed(3170.0, "section IV-D"),
        ),
        (Mode::Local, TlsReuse) => (
            computed(462.0 * 0.53 * 0.37 * 1.66, "section IV-D: 66 % more than TLS"),
            printed(1500.0, "section IV-D"),
        ),
    };
    Some(Figures { peak, cost, authentication: configuration.mode.callers_connect() })
}

impl Figures {
    /// The cost in units of the UDP chain.
    #[must_use]
    pub fn relative(&self) -> f64 {
        self.cost.value / UDP_CHAIN_COST
    }

    /// The same without authentication, by the paper's own component; what is measured here has none.
    #[must_use]
    pub fn relative_without_authentication(&self, security: Security) -> f64 {
        self.relative() - if self.authentication { authentication(security) } else { 0.0 }
    }
}

/// What authentication adds over this transport.
#[must_use]
pub fn authentication(security: Security) -> f64 {
    match security {
        Security::Udp => AUTHENTICATION[0],
        Security::Tcp => AUTHENTICATION[1],
        _ => AUTHENTICATION[2],
    }
}

/// The components of figure 13 in units of the UDP chain, in the order of [`super::model::Part`]; the last six
/// with the client's fix of figure 18 beside them where it has one.
#[must_use]
pub fn component(part: super::model::Part) -> (f64, Option<f64>) {
    use super::model::Part;
    match part {
        Part::Udp => (1.0, None),
        Part::Tcp => (1.1, None),
        Part::Encryption => (1.1, None),
        // "between 0.6 and 0.7": the middle.
        Part::TcpServer | Part::TcpClient => (0.65, None),
        Part::TlsServer(Security::TlsMutual) => (5.1, None),
        Part::TlsServer(Security::TlsReuse) => (1.4, None),
        Part::TlsServer(_) => (2.8, None),
        Part::TlsClient(Security::TlsMutual) => (9.2, Some(4.14)),
        Part::TlsClient(Security::TlsReuse) => (1.1, Some(0.30)),
        Part::TlsClient(_) => (5.3, Some(2.65)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::model;
    use super::*;

    #[test]
    fn printed_components_give_the_papers_local_totals_within_6_percent() {
        let errors: Vec<f64> = Security::ALL[1..]
            .iter()
            .map(|&security| {
                let configuration = Configuration { mode: Mode::Local, security };
                let parts: f64 = model::parts(configuration).into_iter().map(|part| component(part).0).sum();
                let predicted = parts + authentication(security);
                predicted / of(configuration).unwrap().relative() - 1.0
            })
            .collect();
        for (error, expected) in errors.iter().zip([0.056, -0.028, 0.018, 0.018]) {
            assert!((error - expected).abs() < 0.0005, "{errors:?}");
        }
    }

    #[test]
    fn costs_differ_as_the_paper_says() {
        let cost = |id: &str| of(Configuration::of_id(id).unwrap()).unwrap().cost.value;
        let more = |one: &str, than: &str| cost(one) / cost(than) - 1.0;
        // Section IV-B, IV-C and IV-D, in percent.
        for (one, than, percent) in [
            ("outbound-tcp", "outbound-udp", 47.0),
            ("outbound-tls", "outbound-tcp", 75.0),
            ("outbound-tls-reuse", "outbound-tls", -15.0),
            ("inbound-tcp", "inbound-udp", 174.0),
            ("inbound-tls", "inbound-tcp", 233.0),
            ("inbound-tls-mutual", "inbound-tls", 42.0),
            ("inbound-tls-reuse", "inbound-tls", -46.0),
            ("local-tcp", "local-udp", 58.0),
            ("local-tls", "local-tcp", 166.0),
            ("local-tls-mutual", "local-tls", 32.0),
            ("local-tls-reuse", "local-tls", -38.0),
        ] {
            assert!((100.0 * more(one, than) - percent).abs() < 1.5, "{one}: {}", 100.0 * more(one, than));
        }
    }

    #[test]
    fn chain_has_no_handshakes_to_be_mutual_or_resumed() {
        let without: Vec<String> = Configuration::all()
            .into_iter()
            .filter(|one| of(*one).is_none())
            .map(Configuration::id)
            .collect();
        assert_eq!(without, ["chain-tls-mutual", "chain-tls-reuse"]);
    }

    #[test]
    fn authentication_is_taken_off_where_the_paper_had_it() {
        let figures = of(Configuration::of_id("local-tls").unwrap()).unwrap();
        assert!(
            (figures.relative_without_authentication(Security::Tls) - (2400.0 / 144.0 - 3.6)).abs() < 1e-9
        );
        let figures = of(Configuration::of_id("inbound-tls").unwrap()).unwrap();
        assert_eq!(figures.relative_without_authentication(Security::Tls), figures.relative());
    }
}
