//! Counts against a model that never forgets.

use super::*;
use std::collections::BTreeMap;
use std::vec::Vec;

const NOW: u64 = 1_790_000_000;

/// A small generator: the same numbers on every run.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 ^ self.0 >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }
}

/// A request number `request` (its fingerprint) with a count of nonce `identity`, which was issued at NOW.
fn used(identity: u64, count: u32, request: u64, now_secs: u64) -> NonceUse {
    issued_at(NOW, identity, count, request, now_secs)
}

fn issued_at(issued: u64, identity: u64, count: u32, request: u64, now_secs: u64) -> NonceUse {
    let fingerprint = request.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    NonceUse {
        nonce: Nonce { identity, issued_secs: issued as u32 },
        count,
        fingerprint,
        now_secs,
        drift_secs: 3,
    }
}

#[test]
fn each_count_is_taken_once() {
    let mut window = NonceWindow::new(64);
    for count in 1..200 {
        assert_eq!(window.take(&used(1, count, u64::from(count), NOW)), Count::New);
        assert_eq!(window.take(&used(1, count, 1_000 + u64::from(count), NOW)), Count::Stale);
        assert_eq!(window.take(&used(1, 1, 2_000, NOW)), Count::Stale);
    }
}

#[test]
fn counts_may_overtake_each_other_within_the_window() {
    let mut window = NonceWindow::new(64);
    for (request, (count, verdict)) in [
        (5, Count::New),
        (4, Count::Stale), // Below the first that was seen: another node may have taken it.
        (70, Count::New),
        (6, Count::Stale), // 64 below the highest.
        (7, Count::New),   // 63 below.
        (7, Count::Stale),
        (69, Count::New),
        (71, Count::New),
        (69, Count::Stale),
        (68, Count::New),
        (1_000_000, Count::New),
        (71, Count::Stale),
        (999_999, Count::New),
        (u32::MAX, Count::New),
        (u32::MAX - 1, Count::New),
        (1_000_001, Count::Stale),
        (u32::MAX, Count::Stale),
        (0, Count::Stale),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(window.take(&used(1, count, request as u64, NOW)), verdict, "{count}");
    }
}

#[test]
fn the_first_count_may_be_any() {
    let mut window = NonceWindow::new(64);
    for (identity, count) in [(1, 0), (2, 1), (3, 17), (4, u32::MAX)] {
        assert_eq!(window.take(&used(identity, count, 1, NOW)), Count::New);
        assert_eq!(window.take(&used(identity, count, 2, NOW)), Count::Stale);
    }
}

#[test]
fn a_retransmission_is_accepted_for_32_seconds() {
    let mut window = NonceWindow::new(64);
    assert_eq!(window.take(&used(1, 1, 7, NOW)), Count::New);
    for later in [0, 1, 31, 32] {
        assert_eq!(window.take(&used(1, 1, 7, NOW + later)), Count::Retransmission, "{later}");
        assert_eq!(window.take(&used(1, 1, 8, NOW + later)), Count::Stale, "another request");
    }
    // Having been seen again does not prolong it.
    assert_eq!(window.take(&used(1, 1, 7, NOW + 33)), Count::Stale);
    assert_eq!(window.take(&used(1, 1, 7, NOW - 1)), Count::Stale, "the clock was put back");
}

#[test]
fn retransmissions_of_the_last_five_requests_are_known() {
    let mut window = NonceWindow::new(64);
    for count in 1..=7 {
        assert_eq!(window.take(&used(1, count, u64::from(count), NOW)), Count::New);
    }
    for count in 1..=7 {
        let verdict = if count <= 2 { Count::Stale } else { Count::Retransmission };
        assert_eq!(window.take(&used(1, count, u64::from(count), NOW + 1)), verdict, "{count}");
    }
    // Also when the count has long left the window.
    assert_eq!(window.take(&used(1, 500, 500, NOW + 2)), Count::New);
    assert_eq!(window.take(&used(1, 7, 7, NOW + 3)), Count::Retransmission);
}

#[test]
fn a_fingerprint_of_zeros_is_one_like_any_other() {
    let mut window = NonceWindow::new(64);
    assert_eq!(window.take(&used(1, 1, 0, 0)), Count::New);
    assert_eq!(window.take(&used(1, 1, 0, 1)), Count::Retransmission);
    // Places of requests that never were do not match it.
    assert_eq!(window.take(&used(2, 1, 1, 0)), Count::New);
    assert_eq!(window.take(&used(2, 1, 0, 1)), Count::Stale);
}

#[test]
fn a_full_set_forgets_the_oldest_nonce_and_knows_that_it_did() {
    let mut window = NonceWindow::new(8);
    for at in 1..=8 {
        assert_eq!(window.take(&issued_at(NOW + at, at, 1, at, NOW + 9)), Count::New);
    }
    assert_eq!(window.take(&issued_at(NOW + 9, 9, 1, 9, NOW + 9)), Count::New);
    // The first had to go: neither its counts nor anything else from its time is accepted.
    for count in 1..100 {
        assert_eq!(window.take(&issued_at(NOW + 1, 1, count, 1, NOW + 9)), Count::Stale);
    }
    assert_eq!(window.take(&issued_at(NOW + 1, 77, 1, 77, NOW + 9)), Count::Stale);
    // Unknown, and younger than what was forgotten: it is new, and the second has to go.
    assert_eq!(window.take(&issued_at(NOW + 5, 55, 1, 55, NOW + 9)), Count::New);
    assert_eq!(window.take(&issued_at(NOW + 2, 2, 2, 2, NOW + 9)), Count::Stale);
    // The others are still known.
    for at in 3..=9 {
        assert_eq!(window.take(&issued_at(NOW + at, at, 1, at, NOW + 9)), Count::Retransmission);
        assert_eq!(window.take(&issued_at(NOW + at, at, 2, 100 + at, NOW + 9)), Count::New);
    }
}

#[test]
fn a_nonce_older_than_all_of_a_full_set_is_stale_and_pushes_nobody_out() {
    let mut window = NonceWindow::new(8);
    for at in 1..=8 {
        assert_eq!(window.take(&issued_at(NOW + 10, at, 1, at, NOW + 10)), Count::New);
    }
    for issued in [NOW, NOW + 9, NOW + 10] {
        assert_eq!(window.take(&issued_at(issued, 99, 1, 99, NOW + 10)), Count::Stale);
    }
    for at in 1..=8 {
        assert_eq!(window.take(&issued_at(NOW + 10, at, 1, at, NOW + 11)), Count::Retransmission);
    }
    // A second later the same phone asks again and gets in.
    assert_eq!(window.take(&issued_at(NOW + 11, 99, 1, 99, NOW + 11)), Count::New);
}

#[test]
fn a_clock_that_is_put_back_does_not_lock_phones_out() {
    let mut window = NonceWindow::new(8);
    // The clock is an hour ahead, and the set is full and has forgotten some.
    for at in 1..=20 {
        let _ = window.take(&issued_at(NOW + 3_600 + at, at, 1, at, NOW + 3_600 + at));
    }
    // Now it is right. What is issued in the next second is accepted, and for good.
    for at in 1..=30 {
        let (identity, now) = (100 + at, NOW + at);
        assert_eq!(window.take(&issued_at(now, identity, 1, at, now)), Count::New, "{at}");
        assert_eq!(window.take(&issued_at(now, identity, 1, 99, now)), Count::Stale, "{at}");
    }
}

#[test]
fn nothing_is_allocated_before_the_first_use_and_no_size_is_too_large_or_too_small() {
    let window = NonceWindow::new(usize::MAX);
    assert_eq!((window.sets.capacity(), window.sets_max * WAYS), (0, NONCES_MAX));
    let mut window = NonceWindow::new(0);
    assert_eq!(window.take(&used(1, 1, 1, NOW)), Count::New);
    assert_eq!(window.take(&used(1, 1, 2, NOW)), Count::Stale);
    assert_eq!((window.sets.len(), window.sets.capacity()), (1, 1));
    let mut window = NonceWindow::new(1_000);
    for identity in 0..5_000 {
        let _ = window.take(&used(identity << 40, 1, 1, NOW));
    }
    assert_eq!((window.sets.len(), window.sets.capacity()), (125, 125));
    assert_eq!(std::format!("{window:?}"), "NonceWindow { nonces_max: 1000, .. }");
}

#[test]
fn all_sets_are_used_whatever_bits_have_chosen_the_part() {
    for shift in [0, 16, 32, 48, 56] {
        let mut seen = [0u32; 64];
        for n in 0..4_096u64 {
            // Eight bits are the same for all in this part; the others are a hash's.
            let random = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ n << 21;
            seen[place(random & !(0xff << shift) | 0x5a << shift, 64)] += 1;
        }
        assert!(seen.iter().all(|&hits| (24..128).contains(&hits)), "{shift}: {seen:?}");
    }
}

/// What a server that never forgets knows of a nonce.
#[derive(Default)]
struct Known {
    /// The request that each count was taken with, and when.
    taken: BTreeMap<u32, (u64, u64)>,
    first: u32,
}

/// Runs `steps` random uses of `nonces` nonces against the model; gives how often a new count was taken, a
/// count was taken again, and one was refused though the model has not seen it.
fn against_the_model(seed: u64, window: &mut NonceWindow, nonces: u64, steps: u64) -> [u64; 3] {
    let mut numbers = Numbers(seed);
    let mut model: BTreeMap<u64, Known> = BTreeMap::new();
    let mut sent: Vec<NonceUse> = Vec::new();
    let [mut new, mut again, mut refused] = [0; 3];
    for step in 0..steps {
        let now = NOW + 400 + step / 8;
        // A new request; or one of the last ones again, as it was, or with its count and nonce in another
        // request.
        let mut now_used = match (numbers.below(4), sent.len() as u64) {
            (0 | 1, _) | (_, 0) => {
                let identity = numbers.below(nonces);
                let issued = now - 1 - numbers.below(300);
                let issued = sent
                    .iter()
                    .rev()
                    .find(|old| old.nonce.identity == identity)
                    .map_or(issued, |old| old.nonce.issued_secs.into());
                let highest = model.get(&identity).and_then(|known| known.taken.keys().last()).copied();
                let count = highest.unwrap_or(0) + 1 + numbers.below(3) as u32;
                let count = if numbers.below(4) == 0 {
                    count.saturating_sub(numbers.below(80) as u32)
                } else {
                    count
                };
                issued_at(issued, identity, count, step, now)
            }
            (kind, sent_len) => {
                let back = 1 + numbers.below(sent_len.min(200));
                let old = sent[(sent_len - back) as usize];
                let fingerprint = if kind == 2 { old.fingerprint } else { numbers.next() };
                NonceUse { fingerprint, ..old }
            }
        };
        now_used.now_secs = now;
        let verdict = window.take(&now_used);
        let identity = now_used.nonce.identity;
        let taken = model.get(&identity).and_then(|known| known.taken.get(&now_used.count)).copied();
        match (verdict, taken) {
            (Count::New, None) => new += 1,
            (Count::New, Some(_)) => panic!("{step}: count {} was taken twice", now_used.count),
            (Count::Retransmission, None) => panic!("{step}: nothing was there to be retransmitted"),
            (Count::Retransmission, Some((fingerprint, at))) => {
                assert!(fingerprint >> 17 == now_used.fingerprint >> 17 && now - at <= 32, "{step}");
                again += 1;
            }
            (Count::Stale, None) => {
                let known = model.get(&identity);
                let highest = known.and_then(|known| known.taken.keys().last()).copied().unwrap_or(0);
                let in_window = known.is_some_and(|known| now_used.count > known.first)
                    && highest - now_used.count.min(highest) < 64;
                refused += u64::from(in_window || known.is_none());
            }
            (Count::Stale, Some(_)) => {}
        }
        if verdict == Count::New {
            let known =
                model.entry(identity).or_insert_with(|| Known { first: now_used.count, ..Known::default() });
            known.taken.insert(now_used.count, (now_used.fingerprint, now));
        }
        sent.push(now_used);
    }
    [new, again, refused]
}

#[test]
fn no_count_is_taken_twice_and_none_is_refused_while_there_is_room() {
    for seed in 0..20 {
        let [new, again, refused] = against_the_model(seed, &mut NonceWindow::new(4_096), 100, 5_000);
        assert!(new > 1_000 && again > 100, "{new} {again}");
        assert_eq!(refused, 0, "seed {seed}");
    }
}

#[test]
fn no_count_is_taken_twice_while_nonces_are_forgotten_all_the_time() {
    let mut all = 0;
    for seed in 0..20 {
        for nonces_max in [1, 8, 16, 64] {
            let [new, _, refused] = against_the_model(seed, &mut NonceWindow::new(nonces_max), 300, 5_000);
            assert!(new > 50, "{new}");
            all += refused;
        }
    }
    assert!(all > 1_000, "the table was too small, or nothing was tested: {all}");
}
