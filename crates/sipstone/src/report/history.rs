//! What papers measured, for the faint lines in the plots: another machine and another time, not a rival.

use serde::Serialize;

use super::model::Subject;
use crate::spec::{Auth, Scenario};

/// One figure of a paper.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// Which paper: who, and the year.
    pub paper: &'static str,
    /// Its machine's processor.
    pub processor: &'static str,
    /// What was measured, where the scenario does not say it.
    pub what: &'static str,
    /// Operations a second.
    pub rate: f64,
}

/// Whether the figure was measured with authentication.
#[derive(Clone, Copy, PartialEq)]
enum With {
    /// With a challenge to every call.
    Authentication,
    /// Without.
    Nothing,
    /// For registrations the papers' set-ups differ; their figures are shown to both.
    Either,
}

const P3: &str = "Pentium III 850 MHz";
const P4_24: &str = "Pentium 4 2.4 GHz";
const P4_30: &str = "Pentium 4 3 GHz";
const XEON: &str = "Xeon 3.06 GHz";

/// Figures over UDP on one server.
const FIGURES: [(Scenario, With, Figure); 14] = [
    (Scenario::Invite, With::Nothing, figure("SER 2003", P3, "INVITE and BYE", 2000.0)),
    (Scenario::Register, With::Either, figure("SER 2003", P3, "in memory", 2000.0)),
    (Scenario::Register, With::Either, figure("SER 2003", P3, "write-back", 1900.0)),
    (Scenario::Register, With::Either, figure("SER 2003", P3, "write-through", 1100.0)),
    (Scenario::Register, With::Either, figure("Columbia 2006", P4_30, "", 2000.0)),
    (Scenario::Invite, With::Nothing, figure("Columbia 2006", P4_30, "", 1400.0)),
    (Scenario::Invite, With::Nothing, figure("IBM 2007", XEON, "stateful, linear timer list", 400.0)),
    (Scenario::Invite, With::Nothing, figure("IBM 2007", XEON, "stateful, O(1) timer", 4012.0)),
    (Scenario::Invite, With::Authentication, figure("IBM 2007", XEON, "linear timer list", 300.0)),
    (Scenario::Invite, With::Authentication, figure("IBM 2007", XEON, "O(1) timer", 701.0)),
    (Scenario::Invite, With::Nothing, figure("Columbia/IBM 2009", XEON, "chain", 2400.0)),
    (Scenario::Register, With::Either, figure("Towson 2012", P4_24, "bare PC", 700.0)),
    (Scenario::Register, With::Either, figure("Towson 2012", P4_24, "OpenSER", 650.0)),
    (Scenario::Register, With::Either, figure("Towson 2012", P4_24, "Brekeke, about", 200.0)),
];

const fn figure(paper: &'static str, processor: &'static str, what: &'static str, rate: f64) -> Figure {
    Figure { paper, processor, what, rate }
}

/// The figures that measured what the subject measures: one scenario, not a mix, with its authentication.
#[must_use]
pub fn of(subject: &Subject) -> Vec<Figure> {
    let [class] = subject.classes.as_slice() else { return Vec::new() };
    let with = if subject.auth == Auth::Challenge { With::Authentication } else { With::Nothing };
    let belongs = |(scenario, measured, _): &&(Scenario, With, Figure)| {
        *scenario == class.scenario && (*measured == With::Either || *measured == with)
    };
    FIGURES.iter().filter(belongs).map(|(_, _, figure)| *figure).collect()
}

#[cfg(test)]
mod tests {
    use super::super::model::ClassFacts;
    use super::*;

    fn subject(scenarios: &[Scenario], auth: Auth) -> Subject {
        let class = |scenario: &Scenario| ClassFacts {
            name: scenario.facts().id.into(),
            scenario: *scenario,
            weight: 1.0,
            messages_in: 1,
            messages_out: 1,
        };
        Subject { classes: scenarios.iter().map(class).collect(), auth, ..Subject::default() }
    }

    #[test]
    fn figures_belong_to_the_scenario_and_its_authentication() {
        let rates = |scenario, auth| {
            of(&subject(&[scenario], auth)).iter().map(|figure| figure.rate).collect::<Vec<_>>()
        };
        assert_eq!(rates(Scenario::Invite, Auth::None), [2000.0, 1400.0, 400.0, 4012.0, 2400.0]);
        assert_eq!(rates(Scenario::Invite, Auth::Challenge), [300.0, 701.0]);
        assert_eq!(rates(Scenario::Register, Auth::None), rates(Scenario::Register, Auth::Challenge));
        assert!(rates(Scenario::Message, Auth::None).is_empty());
    }

    #[test]
    fn mix_has_no_history() {
        assert!(of(&subject(&[Scenario::Invite, Scenario::InviteCancel], Auth::None)).is_empty());
    }
}
