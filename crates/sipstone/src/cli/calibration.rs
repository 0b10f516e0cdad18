//! How much the generator itself can do: it measures itself against the null server.
//!
//! The null server runs on a thread of this process, on the server's CPU where that is known, so that generator and
//! null server share the host as generator and server do. A quick ramp is enough: the result only tells a peak that
//! is the server's from one that may be the generator's.

use super::exit::Refusal;
use super::session::Session;
use super::workload::Pace;
use super::{mix::Offer, refuse};
use crate::criterion::Criterion;
use crate::net::local::LocalGroup;
use crate::null::{Behaviour, serve};
use crate::report::assemble;
use crate::report::model::TrialReport;
use crate::spec::{Auth, Class, Connections, Delay, Proxy, Scenario, Workload};
use crate::stats::Verdict;
use crate::trial::{Conductor, GroupSpec, TrialError};
use crate::view::QuietView;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

/// Warm-up and window of one step: long enough for a lag to show, short enough to be worth it.
const WARM_UP: Duration = Duration::from_millis(200);
const MEASURE: Duration = Duration::from_millis(1000);
/// What is not answered after this is lost: nothing on loopback takes so long.
const DRAIN: Duration = Duration::from_millis(500);
/// Each step's rate is so many times the one before.
const STEP: f64 = 1.3;
/// How often a step is made again: a hiccup of the host is not the generator's limit.
const HICCUPS_MAX: u32 = 1;
/// Most steps.
const STEPS_MAX: u32 = 20;
/// Users that are registered for it; more would only take longer.
const USERS_MAX: u32 = 1000;
/// From the INVITE to the CANCEL, in place of the seconds of a real call.
const CANCEL_AFTER: Duration = Duration::from_millis(20);

/// The highest rate that the generator carried against the null server, operations a second; `None` if it was interrupted or not even the first rate was reached.
///
/// # Errors
/// The null server or the workers could not be started.
pub(super) fn calibrate(
    session: &mut Session<'_>,
    offer: &Offer,
    start: f64,
) -> Result<Option<f64>, Refusal> {
    session.view.begin(&format!("calibrating: {} against a server that does nothing", offer.name), None);
    let pace = Pace { rate: start, warm_up: WARM_UP, measure: MEASURE };
    let mut workload = session.workload(offer, pace)?;
    let behaviour = Behaviour {
        redirect: workload.classes.iter().any(|class| class.scenario == Scenario::Redirect),
        trying: workload.proxy != Proxy::Stateless,
        cap: None,
    };
    let address = SocketAddr::new(loopback(workload.target.address.ip()), 0);
    let transport = workload.links.caller.transport;
    let cpu = session.server_cpus.first().copied();
    let serving = match serve::start_over(transport, &workload.links.tls, address, behaviour, cpu) {
        Ok(serving) => serving,
        Err(error) => {
            return refuse(format!(
                "the null server cannot listen on {address}: {error} (--no-calibration does without)"
            ));
        }
    };
    simplify(&mut workload, serving.address());
    // The given sources may not reach loopback.
    let spec = GroupSpec { sources: Vec::new(), ..session.spec.clone() };
    let interrupted = session.conductor.interrupted.clone();
    let mut conductor = Conductor::new(vec![(spec, Box::new(LocalGroup::new()))], None, interrupted);
    let (mut reached, mut failed) = (None, 0);
    for _ in 0..STEPS_MAX {
        let raw = match conductor.run(&workload, "calibration", None, &mut QuietView) {
            Ok(raw) => raw,
            Err(error) => match *error {
                TrialError::Setup(sentence, _) => return refuse(format!("calibration: {sentence}")),
                TrialError::Gone(..) | TrialError::Interrupted(_) => return Ok(None),
            },
        };
        let trial = assemble::trial(&raw);
        if kept_up(&trial) {
            failed = 0;
            reached = Some(trial.throughput);
            workload.rate *= STEP;
        } else {
            failed += 1;
            if failed > HICCUPS_MAX {
                break;
            }
        }
    }
    Ok(reached)
}

/// The null server's address is of the target's family.
fn loopback(target: IpAddr) -> IpAddr {
    if target.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() }
}

/// The same operations, without their pauses and without a server that challenges.
fn simplify(workload: &mut Workload, null: SocketAddr) {
    workload.target.address = null;
    workload.target.domain = null.to_string();
    // The null server has one transport, and no certificate that an authority of the server's knows.
    workload.links.callee.transport = workload.links.caller.transport;
    workload.links.callee.address = None;
    if workload.links.callee.transport.is_websocket() && !workload.links.callee.connections.stay() {
        workload.links.callee.connections = Connections::Single;
    }
    workload.links.tls.authorities = None;
    workload.auth = Auth::None;
    workload.auth_every = false;
    workload.drain = DRAIN;
    workload.users.count = workload.users.count.min(USERS_MAX);
    workload.users.listed.truncate(USERS_MAX as usize);
    for class in &mut workload.classes {
        *class = Class { ring: Delay::None, hold: Delay::None, cancel_after: CANCEL_AFTER, ..class.clone() };
    }
}

/// Share of the offered rate that must be carried within the window.
const CARRIED_MIN: f64 = 0.985;

/// Whether the generator, and the server that does nothing, carried the rate.
fn kept_up(trial: &TrialReport) -> bool {
    Criterion::default().judge(trial) != Verdict::Fail
        && trial.all.success >= Criterion::default().share
        && trial.throughput >= CARRIED_MIN * trial.offered_rate
        && trial.generator.socket_drops == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_null_server_is_in_the_targets_family() {
        assert!(loopback("10.0.0.1".parse().unwrap()).is_ipv4());
        assert!(loopback("fe80::1".parse().unwrap()).is_ipv6());
    }
}
