//! From options to a [`Workload`]: everything filled in, every range checked.
//!
//! Pure. What the engine gets from here needs no second check.

use super::links::TlsFiles;
use super::mix::Offer;
use super::options::{LoadArgs, USERS_MAX};
use super::values;
use crate::load::users::is_user_part;
use crate::spec::{Auth, Choice, Class, Delay, Scenario, Target, Users, Workload};
use std::net::SocketAddr;
use std::time::Duration;

/// Shortest window.
pub(super) const MEASURE_MIN: Duration = Duration::from_millis(100);
/// Longest time that a call rings: a proxy may end it any time later (RFC 3261 §16.6 item 11, Timer C).
pub(super) const RING_MAX: Duration = Duration::from_secs(180);
/// Longest name or password of a user, bytes.
const NAME_MAX: usize = 128;

/// What differs from trial to trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Pace {
    /// Operations a second.
    pub(super) rate: f64,
    /// Not counted.
    pub(super) warm_up: Duration,
    /// The window.
    pub(super) measure: Duration,
}

/// What comes from outside the command line.
#[derive(Clone, Debug)]
pub(super) struct Given {
    /// Where the target's name leads.
    pub(super) address: SocketAddr,
    /// The users of `--users-file`, or none.
    pub(super) listed: Vec<(String, String)>,
    /// The seed, given or drawn.
    pub(super) seed: u64,
    /// What the files of TLS say.
    pub(super) tls: TlsFiles,
}

/// The workload of an offer.
///
/// # Errors
/// A value is out of its range, or two do not fit together; the sentence names the option.
pub(super) fn build(offer: &Offer, load: &LoadArgs, given: &Given, pace: Pace) -> Result<Workload, String> {
    check_times(load, pace)?;
    if load.auth_every && load.auth != Auth::Challenge {
        return Err("--auth-every says that the BYE is challenged too: it needs --auth challenge".into());
    }
    let classes = classes(offer, load)?;
    let domain = load.domain.clone().unwrap_or_else(|| load.target.domain());
    check_domain(&domain)?;
    Ok(Workload {
        target: Target { address: given.address, domain },
        links: super::links::build(load, given)?,
        rate: pace.rate,
        shape: load.shape,
        users: users(load, &given.listed)?,
        auth: load.auth,
        auth_every: load.auth_every,
        proxy: load.proxy,
        seed: given.seed,
        warm_up: pace.warm_up,
        measure: pace.measure,
        drain: load.drain.unwrap_or_else(|| default_drain(load.t1, &classes)),
        t1: load.t1,
        t2: load.t2,
        open_operations_max: within("--open-max", load.open_max, 1, 10_000_000)?,
        preamble_window: within("--preamble-window", load.preamble_window, 1, 10_000)?,
        preamble: !load.no_preamble && classes.iter().any(|class| class.scenario.facts().preamble),
        expires: within("--expires", load.expires, 60, 604_800)?,
        trace: false,
        classes,
    })
}

/// A number in its range, or the sentence about it.
fn within(option: &str, value: u32, low: u32, high: u32) -> Result<u32, String> {
    if (low..=high).contains(&value) {
        Ok(value)
    } else {
        Err(format!("{option} {value} is not from {low} to {high}"))
    }
}

/// Timers, window and rate.
fn check_times(load: &LoadArgs, pace: Pace) -> Result<(), String> {
    if !(Duration::from_millis(1)..=Duration::from_secs(10)).contains(&load.t1) {
        return Err("--t1 is not from 1ms to 10s".into());
    }
    if load.t2 < load.t1 || load.t2 > Duration::from_secs(60) {
        return Err("--t2 is not from T1 to 1m".into());
    }
    if pace.measure < MEASURE_MIN {
        return Err("the measured window is shorter than 100ms: nothing could be said about it".into());
    }
    if pace.measure > values::LONGEST || pace.warm_up > values::LONGEST {
        return Err("warm-up and window are at most a day each".into());
    }
    if !(pace.rate.is_finite() && pace.rate > 0.0 && pace.rate <= values::RATE_MAX) {
        return Err(format!("the rate {} is not above zero and at most 10M a second", pace.rate));
    }
    if pace.rate * pace.measure.as_secs_f64() < 1.0 {
        return Err(
            "at this rate no operation falls into the window: raise the rate or make the window longer"
                .into(),
        );
    }
    Ok(())
}

/// Refuses options that no class of the offer has a use for.
///
/// # Errors
/// The sentence names the option.
pub(super) fn check_effect(offer: &Offer, load: &LoadArgs) -> Result<(), String> {
    let answered = offer.classes.iter().any(is_answered);
    let cancelled = offer.classes.iter().any(is_cancelled);
    let given = [
        ("--ring", load.ring.is_some() && !answered, "is answered"),
        ("--hold", load.hold.is_some() && !answered, "is answered"),
        ("--cancel-after", load.cancel_after.is_some() && !cancelled, "is cancelled"),
    ];
    match given.iter().find(|(_, unused, _)| *unused) {
        Some((option, _, what)) => {
            Err(format!("{option} has no effect: {} has no call that {what}", offer.name))
        }
        None => Ok(()),
    }
}

fn is_answered(class: &Class) -> bool {
    matches!(class.scenario, Scenario::Invite | Scenario::Outbound)
}

fn is_cancelled(class: &Class) -> bool {
    class.scenario == Scenario::InviteCancel
}

/// The classes of an offer with the delays that the options put in their place.
fn classes(offer: &Offer, load: &LoadArgs) -> Result<Vec<Class>, String> {
    let mut classes = offer.classes.clone();
    for class in classes.iter_mut().filter(|class| is_answered(class)) {
        class.ring = load.ring.unwrap_or(class.ring);
        class.hold = load.hold.unwrap_or(class.hold);
    }
    for class in classes.iter_mut().filter(|class| is_cancelled(class)) {
        class.cancel_after = load.cancel_after.unwrap_or(class.cancel_after);
    }
    let rings = |class: &Class| if is_cancelled(class) { class.cancel_after } else { longest(class.ring) };
    if classes.iter().any(|class| rings(class) > RING_MAX) {
        return Err(
            "a call rings at most 3m: after that a proxy may end it (RFC 3261 Timer C); shorten --ring or \
                    --cancel-after (exp:MEAN rings up to ten times the mean, exp:MEAN:LONGEST up to LONGEST)"
                .into(),
        );
    }
    Ok(classes)
}

/// The longest that a delay can be.
fn longest(delay: Delay) -> Duration {
    match delay {
        Delay::None => Duration::ZERO,
        Delay::Constant(time) => time,
        Delay::Exponential { max, .. } => max,
    }
}

/// Until the last operation must have ended: its own time and Timer B or F (64·T1, RFC 3261 §17.1.1.2) after it.
fn default_drain(t1: Duration, classes: &[Class]) -> Duration {
    let own = classes.iter().map(|class| match class.scenario {
        Scenario::InviteCancel => class.cancel_after,
        _ => longest(class.ring) + longest(class.hold),
    });
    64 * t1 + Duration::from_secs(1) + own.max().unwrap_or_default()
}

/// The users, generated or listed.
fn users(load: &LoadArgs, listed: &[(String, String)]) -> Result<Users, String> {
    let count = if load.users_file.is_some() {
        u32::try_from(listed.len()).unwrap_or(u32::MAX)
    } else {
        check_format(load)?;
        load.users
    };
    if !(2..=USERS_MAX).contains(&count) {
        return Err(format!("{count} users: there must be from 2 to {USERS_MAX}"));
    }
    if load.first_user.checked_add(count - 1).is_none() {
        return Err(format!(
            "--first-user {}: the last user's number would be above {}",
            load.first_user,
            u32::MAX
        ));
    }
    let choice = match load.zipf {
        None => Choice::Uniform,
        Some(s) if (0.1..=5.0).contains(&s) => Choice::Zipf(s),
        Some(s) => return Err(format!("--zipf {s} is not from 0.1 to 5")),
    };
    Ok(Users {
        count,
        first: load.first_user,
        name: load.user_format.clone(),
        password: load.password_format.clone(),
        listed: listed.to_vec(),
        choice,
    })
}

/// The formats of names and passwords.
fn check_format(load: &LoadArgs) -> Result<(), String> {
    if !load.user_format.contains("{}") {
        return Err(format!("--user-format {:?} has no {{}} for the user's number", load.user_format));
    }
    let example = load.user_format.replace("{}", "0");
    if example.len() > NAME_MAX || !is_user_part(example.as_bytes()) {
        return Err(format!(
            "--user-format {:?} has characters that a SIP user part cannot have",
            load.user_format
        ));
    }
    if !is_password(&load.password_format) {
        return Err("--password-format is longer than 128 bytes or has control characters".into());
    }
    Ok(())
}

/// Whether it can be a password.
fn is_password(password: &str) -> bool {
    password.len() <= NAME_MAX && !password.chars().any(char::is_control)
}

/// The domain must be one that a URI can carry.
fn check_domain(domain: &str) -> Result<(), String> {
    match domain.parse::<values::TargetName>() {
        Ok(name) if name.domain() == domain => Ok(()),
        _ => Err(format!(
            "--domain {domain:?} is no host: write example.com, 10.0.0.1 or [::1], with :PORT if need be"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::super::mix;
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        load: LoadArgs,
    }

    fn load(options: &str) -> LoadArgs {
        let words = ["x", "--target", "127.0.0.1:5070"].into_iter().chain(options.split_whitespace());
        Line::try_parse_from(words).unwrap().load
    }

    fn given() -> Given {
        Given {
            address: "127.0.0.1:5070".parse().unwrap(),
            listed: Vec::new(),
            seed: 7,
            tls: TlsFiles::default(),
        }
    }

    fn pace(rate: f64) -> Pace {
        Pace { rate, warm_up: Duration::from_secs(2), measure: Duration::from_secs(10) }
    }

    fn built(name: &str, options: &str) -> Result<Workload, String> {
        let (offer, load) = (mix::by_name(name).unwrap(), load(options));
        check_effect(&offer, &load)?;
        build(&offer, &load, &given(), pace(100.0))
    }

    #[test]
    fn defaults_are_the_documented_ones() {
        let workload = built("invite", "").unwrap();
        assert_eq!(workload.target.domain, "127.0.0.1:5070");
        assert_eq!(workload.drain, Duration::from_secs(33));
        assert_eq!((workload.users.count, workload.users.first), (10_000, 1));
        assert_eq!(
            (workload.users.name.as_str(), workload.users.password.as_str()),
            ("user{}", "password{}")
        );
        assert_eq!((workload.t1, workload.t2), (Duration::from_millis(500), Duration::from_secs(4)));
        assert_eq!((workload.expires, workload.preamble, workload.seed), (3600, true, 7));
    }

    #[test]
    fn registration_is_only_made_where_the_scenario_needs_it() {
        assert!(!built("options", "").unwrap().preamble);
        assert!(!built("invite", "--no-preamble").unwrap().preamble);
        assert!(built("mix:mobile", "").unwrap().preamble);
    }

    #[test]
    fn delays_replace_those_of_the_mix_and_lengthen_the_drain() {
        let workload = built("mix:sipstone", "--ring 1s --hold 2s --cancel-after 4s").unwrap();
        assert_eq!(workload.classes[0].ring, Delay::Constant(Duration::from_secs(1)));
        assert_eq!(workload.classes[1].cancel_after, Duration::from_secs(4));
        assert_eq!(workload.drain, Duration::from_secs(37));
        assert_eq!(built("mix:sipstone", "").unwrap().drain, Duration::from_secs(71));
        assert_eq!(built("mix:sipstone", "--drain 5s").unwrap().drain, Duration::from_secs(5));
    }

    #[test]
    fn options_without_effect_are_refused() {
        assert!(built("register", "--ring 1s").unwrap_err().contains("--ring"));
        assert!(built("options", "--hold 1s").unwrap_err().contains("--hold"));
        assert!(built("invite", "--cancel-after 1s").unwrap_err().contains("--cancel-after"));
        assert!(built("invite", "--auth-every").unwrap_err().contains("--auth challenge"));
    }

    #[test]
    fn values_out_of_range_are_refused() {
        for bad in [
            "--users 1",
            "--users 5000001",
            "--first-user 4294967295",
            "--zipf 0",
            "--zipf 9",
            "--t1 0s",
            "--t1 11s",
            "--t2 100ms",
            "--t2 2m",
            "--expires 5",
            "--preamble-window 0",
            "--open-max 0",
            "--user-format bob",
            "--user-format {}@x",
            "--domain a@b",
            "--domain sip:x",
            "--ring 4m",
            "--ring exp:30s",
            "--caller-connections per-call",
        ] {
            assert!(built("invite", bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn rates_and_windows_are_checked() {
        let with = |pace| build(&mix::by_name("options").unwrap(), &load(""), &given(), pace);
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e9, 0.01] {
            assert!(with(pace(bad)).is_err(), "{bad}");
        }
        assert!(with(Pace { measure: Duration::from_millis(99), ..pace(100.0) }).is_err());
        assert!(with(Pace { measure: Duration::from_millis(100), ..pace(100.0) }).is_ok());
        assert!(with(Pace { warm_up: Duration::from_secs(100_000), ..pace(100.0) }).is_err());
    }

    #[test]
    fn listed_users_take_the_place_of_generated_ones() {
        let user = |name: &str| (name.to_string(), "secret".to_string());
        let load = LoadArgs { users_file: Some("f.csv".into()), ..load("") };
        let with = |listed| {
            let given = Given { listed, ..given() };
            build(&mix::by_name("options").unwrap(), &load, &given, pace(100.0))
        };
        let workload = with(vec![user("alice"), user("bob")]).unwrap();
        assert_eq!((workload.users.count, workload.users.listed.len()), (2, 2));
        assert!(with(vec![user("alice")]).unwrap_err().contains("from 2 to"));
    }
}
