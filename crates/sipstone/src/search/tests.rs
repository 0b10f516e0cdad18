//! Searches against simulated servers: capped, collapsing, noisy, lossy, limitless, dead.

use super::*;
use crate::stats::wilson;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Normal};
use rand_xoshiro::Xoshiro256PlusPlus;

/// How a simulated server behaves above its capacity, and below.
#[derive(Clone, Copy, Debug)]
enum Behaviour {
    /// Carries its capacity whatever is offered.
    Cap,
    /// The capacity differs by a normal 1 % from trial to trial.
    Noisy,
    /// Above its capacity K, throughput is K·(K/rate)^power.
    Collapse(i32),
    /// Loses this share at random, on top of a cap.
    Lossy(f64),
    /// Carries everything.
    Limitless,
    /// Answers nothing.
    Dead,
    /// Answers all of a short trial's backlog after the window; full trials have a capacity of this share.
    Tiring(f64),
    /// Full trials above this share of the capacity break down to about half of it.
    Breaking(f64),
    /// As a cap, but what does not fit is answered after the window: all succeed.
    Backlog,
}

struct Server {
    behaviour: Behaviour,
    capacity: f64,
    random: Xoshiro256PlusPlus,
    trials: u32,
    longest: f64,
}

impl Server {
    fn new(behaviour: Behaviour, capacity: f64, seed: u64) -> Server {
        Server {
            behaviour,
            capacity,
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            trials: 0,
            longest: 0.0,
        }
    }

    /// Throughput and success share at a rate.
    fn carries(&mut self, rate: f64, phase: Phase) -> (f64, f64) {
        let capped = |capacity: f64| (rate.min(capacity), (capacity / rate).min(1.0));
        let capacity = self.capacity;
        match self.behaviour {
            Behaviour::Cap => capped(capacity),
            Behaviour::Noisy => {
                let noise = Normal::new(1.0, 0.01).expect("a valid deviation").sample(&mut self.random);
                capped(capacity * f64::clamp(noise, 0.97, 1.03))
            }
            Behaviour::Collapse(power) if rate > capacity => capped(capacity * (capacity / rate).powi(power)),
            Behaviour::Collapse(_) | Behaviour::Limitless => (rate, 1.0),
            Behaviour::Lossy(loss) => {
                let (throughput, success) = capped(capacity);
                (throughput * (1.0 - loss), success * (1.0 - loss))
            }
            Behaviour::Dead => (0.0, 0.0),
            Behaviour::Tiring(share) => {
                capped(if phase == Phase::Confirm { capacity * share } else { capacity })
            }
            Behaviour::Breaking(share) if phase == Phase::Confirm && rate > capacity * share => {
                (capacity * 0.55, 0.55)
            }
            Behaviour::Breaking(_) => capped(capacity),
            Behaviour::Backlog => (rate.min(capacity), 1.0),
        }
    }

    fn trial(&mut self, criterion: &Criterion, phase: Phase, rate: f64, measure: Duration) -> Outcome {
        let (throughput, success) = self.carries(rate, phase);
        let attempts = (rate * measure.as_secs_f64()).round().max(1.0);
        let mut succeeded = attempts * success;
        if success < 1.0 && !matches!(self.behaviour, Behaviour::Cap) {
            let deviation = (attempts * success * (1.0 - success)).sqrt();
            succeeded +=
                deviation * Normal::new(0.0, 1.0).expect("a valid deviation").sample(&mut self.random);
        }
        let (attempts, succeeded) = (attempts as u64, succeeded.round().clamp(0.0, attempts) as u64);
        self.trials += 1;
        self.longest = self.longest.max(measure.as_secs_f64());
        Outcome {
            verdict: wilson::decide(succeeded, attempts, criterion.share),
            success: succeeded as f64 / attempts as f64,
            offered_rate: rate,
            throughput: throughput.min(if success < 1.0 { throughput } else { rate }),
            trial_index: self.trials - 1,
            server_cores: Some(0.01),
            offered: 0,
            open_at_end: 0,
        }
    }

    fn search(&mut self, settings: SearchSettings) -> Peak {
        let mut search = Search::new(settings.clone());
        for _ in 0..1000 {
            match search.next() {
                Next::Done(peak) => return peak,
                Next::Trial { phase, rate, measure, .. } => {
                    let highest = settings.max_rate.unwrap_or(HIGHEST_RATE);
                    assert!((LOWEST_RATE..=highest).contains(&rate), "{rate} is out of bounds");
                    let outcome = self.trial(&settings.criterion, phase, rate, measure);
                    search.record(outcome);
                }
            }
        }
        panic!("the search does not end");
    }
}

/// Capacities from 300 to 30,000, and around each step of the ramp, where it is hardest.
fn capacities() -> impl Iterator<Item = f64> {
    let even = (0..4000).map(|k| 300.0 * 100_f64.powf(f64::from(k) / 3999.0));
    let steps = (0..9)
        .flat_map(|step| (-200..200).map(move |k| 990.0 * 1.5_f64.powi(step) * (1.0 + f64::from(k) * 1e-4)));
    even.chain(steps.filter(|capacity| (300.0..=30_000.0).contains(capacity)))
}

#[test]
fn a_capped_server_is_found_within_2_percent_in_at_most_twelve_search_trials() {
    let mut most = 0;
    for quick in [false, true] {
        for capacity in capacities() {
            let settings = SearchSettings { quick, ..SearchSettings::default() };
            let peak = Server::new(Behaviour::Cap, capacity, 1).search(settings);
            assert!((peak.rate / capacity - 1.0).abs() <= 0.02, "{} of {capacity}", peak.rate);
            assert!(peak.low <= peak.high && peak.high <= peak.low * 1.021, "{peak:?}");
            assert!(
                peak.search_trials <= 12,
                "{} trials for {capacity}: {:?}",
                peak.search_trials,
                peak.trace
            );
            assert_eq!(peak.ended, None);
            most = most.max(peak.search_trials);
        }
    }
    assert_eq!(most, 12, "the bound is sharp; if fewer suffice, say so in the documentation");
}

#[test]
fn a_capped_server_far_from_the_start_is_found_too() {
    for capacity in [1.5, 3.0, 10.0, 47.0, 99.0, 250.0, 100_000.0, 5_000_000.0] {
        let peak = Server::new(Behaviour::Cap, capacity, 1).search(SearchSettings::default());
        assert!((peak.rate / capacity - 1.0).abs() <= 0.02, "{} of {capacity}: {:?}", peak.rate, peak.trace);
    }
}

#[test]
fn a_collapsing_server_is_found_within_2_percent() {
    let mut most = 0;
    for power in [1, 2, 4, 10] {
        for capacity in capacities().step_by(7) {
            let peak = Server::new(Behaviour::Collapse(power), capacity, 1).search(SearchSettings::default());
            assert!(
                (peak.rate / capacity - 1.0).abs() <= 0.02,
                "{} of {capacity}: {:?}",
                peak.rate,
                peak.trace
            );
            most = most.max(peak.search_trials);
        }
    }
    // Ten for the ramp, then a bisection of ×1.5 (five) with a wrong prediction.
    assert!(most <= 16, "{most} trials");
}

#[test]
fn a_noisy_cap_is_found_within_its_noise() {
    let (mut trials, mut searches, mut off) = (0, 0, 0);
    for seed in 0..20 {
        for capacity in capacities().step_by(31) {
            let peak = Server::new(Behaviour::Noisy, capacity, seed).search(SearchSettings::default());
            // Capacity ±3 % at most, precision 2 %, perhaps steps down in the confirmation.
            assert!((peak.rate / capacity - 1.0).abs() <= 0.08, "{} of {capacity}: {peak:?}", peak.rate);
            assert!(
                peak.search_trials <= 18,
                "{} trials for {capacity}: {:?}",
                peak.search_trials,
                peak.trace
            );
            off += u32::from((peak.rate / capacity - 1.0).abs() > 0.03);
            trials += peak.search_trials;
            searches += 1;
        }
    }
    let mean = f64::from(trials) / f64::from(searches);
    assert!(mean < 8.0, "{mean} trials in the mean");
    assert!(off * 100 < searches, "{off} of {searches} are off by more than 3 %");
}

#[test]
fn losses_within_what_is_permitted_do_not_hide_the_capacity() {
    for seed in 0..10 {
        for capacity in capacities().step_by(101) {
            let peak = Server::new(Behaviour::Lossy(0.003), capacity, seed).search(SearchSettings::default());
            assert!((peak.rate / capacity - 1.0).abs() <= 0.03, "{} of {capacity}: {peak:?}", peak.rate);
        }
    }
}

#[test]
fn a_server_that_loses_just_what_is_permitted_ends_the_search_with_something_or_a_reason() {
    // Exactly at the criterion every trial is a toss; nothing but an end and honesty can be asked.
    for seed in 0..300 {
        let mut server = Server::new(Behaviour::Lossy(0.01), 5000.0, seed);
        let peak = server.search(SearchSettings::default());
        assert!(peak.rate <= 5000.0 * 1.02, "{}", peak.rate);
        assert!(peak.rate > 0.0 || peak.ended.is_some());
        assert!(server.trials < 80, "{} trials", server.trials);
    }
}

#[test]
fn a_server_that_loses_too_much_has_no_peak_and_the_report_says_so() {
    for seed in 0..20 {
        let mut server = Server::new(Behaviour::Lossy(0.05), 1e9, seed);
        let peak = server.search(SearchSettings::default());
        assert_eq!(peak.rate, 0.0);
        assert!(peak.ended.expect("a reason").contains("too fast"));
        assert!(server.trials <= 12, "{} trials", server.trials);
    }
}

#[test]
fn a_limitless_server_ends_at_the_highest_rate_and_says_so() {
    let settings = SearchSettings { max_rate: Some(7000.0), ..SearchSettings::default() };
    let peak = Server::new(Behaviour::Limitless, 0.0, 1).search(settings);
    assert_eq!((peak.rate, peak.low, peak.high), (7000.0, 7000.0, 7000.0));
    assert!(peak.ended.expect("a reason").contains("--max-rate"));
    assert!(peak.trace.iter().all(|step| step.phase != "overload"), "no rate above the limit");
    let unlimited = Server::new(Behaviour::Limitless, 0.0, 1).search(SearchSettings::default());
    assert_eq!(unlimited.rate, HIGHEST_RATE);
}

#[test]
fn a_dead_server_ends_the_search_soon_and_says_that_it_was_idle() {
    let mut server = Server::new(Behaviour::Dead, 0.0, 1);
    let peak = server.search(SearchSettings::default());
    assert_eq!((peak.rate, peak.highest_throughput), (0.0, 0.0));
    assert!(peak.ended.expect("a reason").contains("0.01 cores"));
    assert!(server.trials <= 6, "{} trials", server.trials);
}

#[test]
fn a_server_that_tires_is_confirmed_at_what_it_holds() {
    for share in [0.97, 0.9, 0.7] {
        let peak = Server::new(Behaviour::Tiring(share), 5000.0, 1).search(SearchSettings::default());
        assert!((peak.rate / (5000.0 * share) - 1.0).abs() < 0.04, "{share}: {} {:?}", peak.rate, peak.trace);
        assert!(peak.high > peak.rate);
    }
    let peak = Server::new(Behaviour::Tiring(0.01), 5000.0, 1).search(SearchSettings::default());
    assert_eq!(peak.rate, 0.0);
    assert!(peak.ended.expect("a reason").contains("could be confirmed"));
}

#[test]
fn a_server_that_breaks_down_in_full_trials_is_searched_upwards_again() {
    for share in [0.98, 0.9, 0.75] {
        let peak = Server::new(Behaviour::Breaking(share), 5000.0, 1).search(SearchSettings::default());
        let holds = 5000.0 * share;
        assert!(peak.rate <= holds && holds <= peak.high, "{share}: {peak:?}");
        assert!(peak.rate > 0.95 * holds, "{share}: {} of {holds}: {:?}", peak.rate, peak.trace);
    }
}

#[test]
fn a_backlog_that_is_answered_after_the_window_does_not_count_as_carried() {
    for capacity in capacities().step_by(53) {
        let peak = Server::new(Behaviour::Backlog, capacity, 1).search(SearchSettings::default());
        assert!((peak.rate / capacity - 1.0).abs() <= 0.02, "{} of {capacity}: {:?}", peak.rate, peak.trace);
    }
    // With hold times, throughput in the window says nothing: success alone decides.
    let settings = SearchSettings {
        ends_promptly: false,
        max_rate: Some(9000.0),
        overload: vec![],
        ..SearchSettings::default()
    };
    assert_eq!(Server::new(Behaviour::Backlog, 5000.0, 1).search(settings).rate, 9000.0);
}

#[test]
fn the_peak_is_confirmed_at_full_length_and_then_overloaded() {
    let mut server = Server::new(Behaviour::Cap, 4000.0, 1);
    let peak = server.search(SearchSettings::default());
    let confirmations: Vec<&Step> = peak.trace.iter().filter(|step| step.phase == "confirm").collect();
    assert_eq!(confirmations.len(), 5);
    assert!(confirmations.iter().all(|step| step.rate == peak.rate));
    let overload: Vec<f64> =
        peak.trace.iter().filter(|step| step.phase == "overload").map(|step| step.rate / peak.rate).collect();
    assert_eq!(overload.len(), 3);
    for (seen, asked) in overload.iter().zip([1.1, 1.5, 2.0]) {
        assert!((seen - asked).abs() < 1e-9);
    }
    assert_eq!(server.longest, 120.0);
    assert_eq!(peak.highest_throughput, 4000.0);
    let indices: Vec<u32> = peak.trace.iter().map(|step| step.trial).collect();
    assert_eq!(indices, (0..server.trials).collect::<Vec<u32>>());
}

#[test]
fn half_of_the_runs_are_no_majority() {
    let settings = SearchSettings { confirm_runs: Some(2), overload: vec![], ..SearchSettings::default() };
    let mut search = Search::new(SearchSettings { max_rate: Some(1000.0), ..settings });
    let outcome = |verdict, success| Outcome {
        verdict,
        success,
        offered_rate: 1000.0,
        throughput: 1000.0 * success,
        trial_index: 0,
        server_cores: None,
        offered: 0,
        open_at_end: 0,
    };
    search.record(outcome(Verdict::Pass, 1.0));
    search.record(outcome(Verdict::Pass, 1.0));
    search.record(outcome(Verdict::Fail, 0.95));
    let Next::Trial { phase, rate, .. } = search.next() else { panic!("a lower rate is tried") };
    assert_eq!(phase, Phase::Confirm);
    assert!(rate < 1000.0);
}

#[test]
fn an_undecided_trial_is_made_longer_once_and_then_goes_by_what_was_seen() {
    let mut search = Search::new(SearchSettings::default());
    let outcome = Outcome {
        verdict: Verdict::Undecided,
        success: 0.9901,
        offered_rate: 1000.0,
        throughput: 990.1,
        trial_index: 0,
        server_cores: None,
        offered: 0,
        open_at_end: 0,
    };
    let Next::Trial { measure: short, rate, .. } = search.next() else { panic!("a trial") };
    search.record(outcome);
    let Next::Trial { measure: long, rate: again, .. } = search.next() else { panic!("a trial") };
    assert_eq!((again, long), (rate, short * EXTENSION));
    search.record(outcome);
    let Next::Trial { rate: higher, .. } = search.next() else { panic!("a trial") };
    assert_eq!(higher, 1500.0);
}

#[test]
fn search_trials_are_short_but_long_enough_to_decide() {
    let measure_at =
        |start: f64, settings: SearchSettings| match Search::new(SearchSettings { start, ..settings }).next()
        {
            Next::Trial { measure, warm_up, .. } => (warm_up.as_secs(), measure.as_secs()),
            Next::Done(_) => panic!("a trial"),
        };
    let ibm = SearchSettings::default();
    assert_eq!(measure_at(1000.0, ibm.clone()), (5, 12));
    // 3 · 331 attempts at 20/s; at one a second the full length is the bound.
    assert_eq!(measure_at(20.0, ibm.clone()), (5, 50));
    assert_eq!(measure_at(1.0, ibm.clone()), (5, 120));
    assert_eq!(measure_at(1000.0, SearchSettings { quick: true, ..ibm.clone() }), (1, 2));
    // A class with a hundredth of the arrivals needs as many attempts.
    assert_eq!(measure_at(1000.0, SearchSettings { rarest_share: 0.01, ..ibm.clone() }), (5, 100));
    let carrier = SearchSettings { criterion: "carrier".parse().expect("a criterion"), ..ibm };
    assert_eq!(measure_at(1000.0, carrier.clone()), (5, 300));
    assert_eq!(measure_at(20_000.0, carrier), (5, 51));
}

#[test]
fn a_peak_over_half_of_the_calibration_is_bound_by_the_generator() {
    for (calibration, bound) in [(Some(7000.0), true), (Some(9000.0), false), (None, false)] {
        let settings = SearchSettings { calibration, ..SearchSettings::default() };
        let peak = Server::new(Behaviour::Cap, 4000.0, 1).search(settings);
        assert_eq!(peak.generator_bound, bound, "{calibration:?}");
    }
}

#[test]
fn settings_out_of_range_are_refused_with_the_range_and_never_break_a_search() {
    let good = SearchSettings::default();
    assert_eq!(good.check(), Ok(()));
    let bad = [
        SearchSettings { start: 0.0, ..good.clone() },
        SearchSettings { start: f64::NAN, ..good.clone() },
        SearchSettings { max_rate: Some(-1.0), ..good.clone() },
        SearchSettings { precision: 0.0, ..good.clone() },
        SearchSettings { confirm_runs: Some(0), ..good.clone() },
        SearchSettings { overload: vec![0.9], ..good.clone() },
        SearchSettings { rarest_share: f64::NAN, overload: vec![f64::NAN], ..good },
    ];
    for settings in bad {
        let error = settings.check().expect_err("out of range").to_string();
        assert!(error.contains("between"), "{error}");
        let limit = SearchSettings { max_rate: settings.max_rate, ..SearchSettings::default() }.limit();
        let settings = SearchSettings { max_rate: Some(limit), ..settings };
        let _ = Server::new(Behaviour::Cap, 400.0, 1).search(settings);
    }
}

#[test]
fn any_outcomes_end_the_search() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
    for _ in 0..2000 {
        let mut search = Search::new(SearchSettings::default());
        let mut trials = 0;
        while let Next::Trial { rate, .. } = search.next() {
            assert!((LOWEST_RATE..=HIGHEST_RATE).contains(&rate));
            let verdict = [Verdict::Pass, Verdict::Fail, Verdict::Undecided][random.random_range(0..3)];
            let throughput =
                [f64::NAN, f64::INFINITY, 0.0, rate * random.random::<f64>()][random.random_range(0..4)];
            search.record(Outcome {
                verdict,
                success: random.random(),
                offered_rate: rate,
                throughput,
                trial_index: trials,
                server_cores: None,
                offered: 0,
                open_at_end: 0,
            });
            trials += 1;
            assert!(trials < SEARCH_TRIALS_MAX + 40, "it does not end");
        }
        // After the end nothing changes any more.
        let before = search.next();
        search.record(Outcome {
            verdict: Verdict::Pass,
            success: 1.0,
            offered_rate: 1.0,
            throughput: 1.0,
            trial_index: 0,
            server_cores: None,
            offered: 0,
            open_at_end: 0,
        });
        assert_eq!(search.next(), before);
    }
}

#[test]
fn the_classes_say_how_rare_the_rarest_is_and_whether_operations_end_promptly() {
    let mix = SearchSettings::default().for_classes(&crate::scenario::sipstone_mix());
    assert!((mix.rarest_share - 0.3).abs() < 1e-9);
    assert!(!mix.ends_promptly);
    let plain = SearchSettings::default().for_classes(&[Class::plain(Scenario::Invite)]);
    assert_eq!((plain.rarest_share, plain.ends_promptly), (1.0, true));
    assert_eq!(SearchSettings::default().for_classes(&[]).rarest_share, 1.0);
}

#[test]
fn operations_that_are_open_beyond_those_that_ring_or_talk_are_a_backlog() {
    let classes =
        [Class { ring: Delay::Constant(Duration::from_secs(10)), ..Class::plain(Scenario::Invite) }];
    let settings = SearchSettings::default().for_classes(&classes);
    assert!((settings.intended_s - 10.0).abs() < 1e-9);
    let search = Search::new(settings);
    let outcome = |open_at_end| Outcome {
        verdict: Verdict::Pass,
        success: 1.0,
        offered_rate: 100.0,
        throughput: 0.0,
        trial_index: 0,
        server_cores: None,
        offered: 2000,
        open_at_end,
    };
    assert!(!search.fell_behind(&outcome(1100)), "1,000 are meant to be open");
    assert!(search.fell_behind(&outcome(1300)));
}
