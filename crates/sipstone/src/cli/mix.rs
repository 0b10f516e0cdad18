//! What is offered: one scenario, a preset mix, or weights of one's own.
//!
//! A preset is a claim about how people use telephones, so each says where its numbers come from. Presets whose
//! operations sipstone cannot do yet (presence) are not offered.

use super::values;
use crate::scenario::sipstone_mix;
use crate::spec::{Class, Delay, Scenario};
use std::time::Duration;

/// A scenario or a mix, by the name that reports use.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Offer {
    /// The scenario's id, the preset's name, or the weights as they were written.
    pub(super) name: String,
    /// Its classes.
    pub(super) classes: Vec<Class>,
}

/// A preset.
pub(super) struct Preset {
    /// What follows `mix:`.
    pub(super) name: &'static str,
    /// One line for help.
    pub(super) summary: &'static str,
    /// Its classes.
    pub(super) classes: fn() -> Vec<Class>,
}

/// Every preset.
pub(super) const PRESETS: [Preset; 3] = [
    Preset {
        name: "sipstone",
        summary: "calls: 70 % answered after 8.5 s on average, 30 % ring 38 s and are cancelled",
        classes: sipstone_mix,
    },
    Preset {
        name: "call-centre",
        summary: "calls: 90 % answered (80 % of them within 20 s), 5 % given up after 60 s, 5 % to unknown numbers",
        classes: call_centre,
    },
    Preset {
        name: "mobile",
        summary: "handsets: per busy hour 6 re-registrations, 3 messages, 1.05 answered and 0.45 cancelled calls",
        classes: mobile,
    },
];

/// A call centre: most calls wait until somebody is free, few are given up.
///
/// Contact centres promise "80/20": 80 % of calls answered within 20 s. With exponential waiting that is a mean of 20
/// s / ln 5 = 12.4 s; nobody waits longer than a minute. One caller in twenty gives up, which is the usual target for
/// abandonment, and one in twenty dials a number that does not exist. Talking costs a proxy nothing but memory, so
/// calls end at once; `--hold` makes them talk.
fn call_centre() -> Vec<Class> {
    let patience = Duration::from_secs(60);
    let ring = Delay::Exponential { mean: Duration::from_millis(12_400), max: patience };
    let class = |name: &str, weight, scenario| Class { name: name.into(), weight, ..Class::plain(scenario) };
    vec![
        Class { ring, ..class("answered", 0.90, Scenario::Invite) },
        Class { cancel_after: patience, ..class("abandoned", 0.05, Scenario::InviteCancel) },
        class("unknown", 0.05, Scenario::InviteNotfound),
    ]
}

/// Handsets: they register far more often than they call.
///
/// The weights are operations of one handset in a busy hour. Address translators and batteries make it register anew
/// every ten minutes: 6. It sends 3 messages and tries 1.5 calls, of which 70 % are answered after 8.5 s on average
/// and the others ring 38 s (the call model of SIPstone, 2002). First registrations and removals are left out: a
/// handset that has just gone would make calls to it fail, which is no fault of the server.
fn mobile() -> Vec<Class> {
    let mut classes: Vec<Class> =
        sipstone_mix().into_iter().map(|class| Class { weight: class.weight * 1.5, ..class }).collect();
    classes.push(Class { name: "re-register".into(), weight: 6.0, ..Class::plain(Scenario::RegisterUpdate) });
    classes.push(Class { weight: 3.0, ..Class::plain(Scenario::Message) });
    classes
}

/// What the positional argument and `--mix` mean.
///
/// # Errors
/// Neither or both are given, or the name is not known.
pub(super) fn offer(named: Option<&str>, weights: Option<&[(Scenario, f64)]>) -> Result<Offer, String> {
    match (named, weights) {
        (None, None) => {
            Err(format!("what to offer is missing: name a scenario ({}) or give --mix", names().join(", ")))
        }
        (Some(name), Some(_)) => Err(format!("both {name:?} and --mix say what to offer: give one of them")),
        (Some(name), None) => by_name(name),
        (None, Some(weights)) => Ok(own(weights)),
    }
}

/// A scenario or a preset by its name.
///
/// # Errors
/// The name is not known.
pub(super) fn by_name(name: &str) -> Result<Offer, String> {
    if let Some(preset) = name.strip_prefix("mix:") {
        let found = PRESETS.iter().find(|one| one.name == preset);
        let known = || PRESETS.iter().map(|one| format!("mix:{}", one.name)).collect::<Vec<_>>().join(", ");
        let found = found.ok_or_else(|| format!("no mix is called {name:?}; there are {}", known()))?;
        return Ok(Offer { name: name.into(), classes: (found.classes)() });
    }
    match Scenario::of_id(name) {
        Some(scenario) => Ok(Offer { name: name.into(), classes: vec![Class::plain(scenario)] }),
        None => Err(format!("no scenario is called {name:?}; there are {}", names().join(", "))),
    }
}

/// Weights that were given one by one.
fn own(weights: &[(Scenario, f64)]) -> Offer {
    let name = weights.iter().map(|(scenario, weight)| format!("{}={weight}", scenario.facts().id));
    Offer {
        name: format!("mix:{}", name.collect::<Vec<_>>().join(",")),
        classes: weights
            .iter()
            .map(|(scenario, weight)| Class { weight: *weight, ..Class::plain(*scenario) })
            .collect(),
    }
}

/// Every name that [`by_name`] knows.
pub(super) fn names() -> Vec<String> {
    let scenarios = crate::scenario::ALL.iter().map(|scenario| scenario.facts().id.to_string());
    scenarios.chain(PRESETS.iter().map(|preset| format!("mix:{}", preset.name))).collect()
}

/// The scenarios that a list names: presets of lists (`paper`, `all`) and names, each once, in order.
///
/// # Errors
/// A name is not known.
pub(super) fn list(names: &[String]) -> Result<Vec<Offer>, String> {
    let mut offers: Vec<Offer> = Vec::new();
    let mut add = |offer: Offer| {
        if offers.iter().all(|known| known.name != offer.name) {
            offers.push(offer);
        }
    };
    for name in names.iter().flat_map(|names| names.split(',')).map(str::trim).filter(|name| !name.is_empty())
    {
        let group: &[Scenario] = match name {
            "paper" => &PAPER,
            "all" => &crate::scenario::ALL,
            _ => {
                add(by_name(name)?);
                continue;
            }
        };
        for scenario in group {
            add(by_name(scenario.facts().id)?);
        }
    }
    if offers.is_empty() {
        return Err(format!(
            "the list of scenarios is empty; there are paper, all, {}",
            self::names().join(", ")
        ));
    }
    if offers.len() > values::CLASSES_MAX {
        return Err(format!("at most {} scenarios can be measured in one suite", values::CLASSES_MAX));
    }
    Ok(offers)
}

/// What the IBM paper of 2007 measured: a registrar, a redirect server, a proxy.
const PAPER: [Scenario; 3] = [Scenario::Register, Scenario::Redirect, Scenario::Invite];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_can_be_offered() {
        for name in names() {
            let offer = offer(Some(&name), None).unwrap();
            assert_eq!(offer.name, name);
            assert!(offer.classes.iter().all(|class| class.weight > 0.0));
        }
    }

    #[test]
    fn one_of_scenario_and_mix_must_be_given() {
        assert!(offer(None, None).unwrap_err().contains("register-update"));
        assert!(offer(Some("invite"), Some(&[(Scenario::Invite, 1.0)])).is_err());
        assert!(offer(Some("mix:presence"), None).unwrap_err().contains("mix:mobile"));
        assert!(offer(Some("dance"), None).unwrap_err().contains("options"));
    }

    #[test]
    fn own_weights_keep_their_order_and_name() {
        let offer = offer(None, Some(&[(Scenario::Invite, 7.0), (Scenario::Register, 3.0)])).unwrap();
        assert_eq!(offer.name, "mix:invite=7,register=3");
        assert_eq!(offer.classes[0].weight, 7.0);
        assert_eq!(offer.classes[1].scenario, Scenario::Register);
    }

    #[test]
    fn classes_of_a_mix_have_different_names() {
        for preset in &PRESETS {
            let classes = (preset.classes)();
            for (index, class) in classes.iter().enumerate() {
                assert!(classes[..index].iter().all(|other| other.name != class.name), "{}", preset.name);
            }
        }
    }

    #[test]
    fn eighty_of_a_hundred_call_centre_calls_are_answered_within_twenty_seconds() {
        let Delay::Exponential { mean, .. } = call_centre()[0].ring else {
            panic!("no exponential ring time")
        };
        let within = 1.0 - (-20.0 / mean.as_secs_f64()).exp();
        assert!((within - 0.8).abs() < 0.01, "{within}");
    }

    #[test]
    fn lists_have_no_doubles() {
        let of = |names: &[&str]| list(&names.iter().map(|name| (*name).to_string()).collect::<Vec<_>>());
        let names: Vec<String> =
            of(&["paper", "invite,options"]).unwrap().into_iter().map(|offer| offer.name).collect();
        assert_eq!(names, ["register", "redirect", "invite", "options"]);
        assert_eq!(of(&["all"]).unwrap().len(), 10);
        assert!(of(&[""]).is_err() && of(&["nothing"]).is_err());
    }
}
