//! Attackers, phones and their neighbours, on virtual time.

use super::*;
use crate::auth::NonceWindow;
use crate::domain::Domains;
use crate::permissions::Addresses;
use alloc::sync::Arc;
use core::net::{Ipv4Addr, Ipv6Addr};
use std::format;
use std::string::String;
use std::vec::Vec;

const NOW: u64 = 1_790_000_000;
/// An office with many phones behind one address, and somebody elsewhere.
const OFFICE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const ELSEWHERE: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 7));

/// A server that has nothing but guards, in parts.
#[allow(clippy::disallowed_types, reason = "services are shared between threads, here as in the server")]
struct Server {
    parts: Vec<std::sync::Mutex<Guard>>,
    key: NonceKey,
    limits: GuardLimits,
}

impl Services for Server {
    fn with_nonces(&self, _hash: u64, _visit: &mut dyn FnMut(&mut NonceWindow)) {}

    fn with_guard(&self, hash: u64, visit: &mut dyn FnMut(&mut Guard)) {
        let at = hash as usize % self.parts.len();
        visit(&mut self.parts[at].lock().unwrap());
    }

    fn users_epoch(&self) -> u64 {
        0
    }

    fn domains(&self) -> Arc<Domains> {
        Arc::default()
    }

    fn addresses(&self) -> Arc<Addresses> {
        Arc::default()
    }
}

impl Server {
    fn new(parts: usize, entries_max: usize) -> Server {
        let parts = (0..parts).map(|_| Guard::new(entries_max).into()).collect();
        Server { parts, key: NonceKey::new(b"a secret"), limits: GuardLimits::default() }
    }

    fn admit(&self, source: IpAddr, user: &str, now: u64) -> Admission {
        let attempt = Attempt::new(&self.key, source, user.as_bytes());
        attempt.admit(self, &self.limits, now)
    }

    fn pass(&self, source: IpAddr, user: &str, now: u64) -> Result<Pass, u32> {
        match self.admit(source, user, now) {
            Admission::Evaluate(pass) => Ok(pass),
            Admission::Later { secs } => Err(secs),
        }
    }

    /// A wrong password; how long to wait if it was not even looked at.
    fn wrong(&self, source: IpAddr, user: &str, now: u64) -> Result<(), u32> {
        self.pass(source, user, now)?.failed(self, &self.limits, now);
        Ok(())
    }

    /// The right one.
    fn right(&self, source: IpAddr, user: &str, now: u64) -> Result<(), u32> {
        self.pass(source, user, now)?.succeeded(self, &self.limits, now);
        Ok(())
    }

    /// How many of `tries` wrong passwords were looked at.
    fn looked_at(&self, tries: u64, mut one: impl FnMut(&Server, u64) -> Result<(), u32>) -> usize {
        (0..tries).filter(|&n| one(self, n).is_ok()).count()
    }
}

fn server() -> Server {
    Server::new(4, 1_024)
}

fn address(n: u64) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 | n as u32))
}

#[test]
fn a_source_has_ten_wrong_attempts_at_once_then_one_in_six_seconds() {
    let server = server();
    assert_eq!(server.looked_at(100, |server, _| server.wrong(ELSEWHERE, "bob", NOW)), 10);
    assert_eq!(server.wrong(ELSEWHERE, "bob", NOW), Err(6));
    assert_eq!(server.wrong(ELSEWHERE, "bob", NOW + 5), Err(1));
    assert_eq!(server.wrong(ELSEWHERE, "bob", NOW + 6), Ok(()));
    assert_eq!(server.wrong(ELSEWHERE, "bob", NOW + 6), Err(6));
    // An hour of trying all the time: one in six seconds.
    assert_eq!(server.looked_at(3_600, |server, n| server.wrong(ELSEWHERE, "bob", NOW + 7 + n)), 600);
    // A minute of rest, and there are ten again.
    assert_eq!(server.looked_at(100, |server, _| server.wrong(ELSEWHERE, "bob", NOW + 3_700)), 10);
}

#[test]
fn one_source_on_many_users_is_slowed() {
    let server = server();
    let tried =
        server.looked_at(10_000, |server, n| server.wrong(ELSEWHERE, &format!("user{n}"), NOW + n / 1_000));
    assert_eq!(tried, 10 + 1, "nine seconds");
    // The users are not: each can come in from elsewhere at once.
    for n in 0..100 {
        assert_eq!(server.right(OFFICE, &format!("user{n}"), NOW + 10), Ok(()));
    }
}

#[test]
fn many_sources_on_one_user_are_slowed() {
    let server = server();
    let tried = server.looked_at(10_000, |server, n| server.wrong(address(n), "bob", NOW + n / 1_000));
    assert_eq!(tried, 10 + 1, "nine seconds");
    // The sources have not been charged for what was not looked at.
    assert_eq!(server.right(address(9_999), "alice", NOW + 10), Ok(()));
    assert_eq!(server.looked_at(100, |server, _| server.wrong(address(9_998), "carol", NOW + 10)), 10);
}

#[test]
fn spellings_of_a_user_and_addresses_of_a_network_are_one() {
    let server = server();
    let spelling = |n: u64| if n.is_multiple_of(2) { "bob" } else { "BoB" };
    assert_eq!(server.looked_at(100, |server, n| server.wrong(address(n), spelling(n), NOW)), 10);

    let of = |source: IpAddr| Attempt::new(&server.key, source, b"bob").source;
    let v6 = |last: u16, net: u16| IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, net, 9, 9, 9, last));
    assert_eq!(of(v6(1, 1)), of(v6(2, 1)));
    assert_ne!(of(v6(1, 1)), of(v6(1, 2)));
    let IpAddr::V4(office) = OFFICE else { panic!() };
    assert_eq!(of(OFFICE), of(office.to_ipv6_mapped().into()));
    assert_ne!(of(OFFICE), of(ELSEWHERE));

    let user = |user: &[u8]| Attempt::new(&server.key, OFFICE, user);
    assert_eq!(user(b"BOB"), user(b"bob"));
    assert_ne!(user(b"bob\0biloxi.com").user, user(b"bob\0atlanta.com").user);
    let other = Attempt::new(&NonceKey::new(b"another secret"), OFFICE, b"bob");
    assert!(other.user != user(b"bob").user && other.source != user(b"bob").source);
}

#[test]
fn a_colleague_behind_the_same_nat_is_not_locked_out() {
    let server = server();
    assert_eq!(server.right(OFFICE, "alice", NOW), Ok(()));
    // Somebody in the office tries passwords of everybody there is.
    for n in 0..1_000 {
        let _ = server.wrong(OFFICE, &format!("user{n}"), NOW + 1);
    }
    assert_eq!(server.right(OFFICE, "carol", NOW + 1), Err(6), "the first time from a source that is slowed");
    for n in 0..1_000 {
        assert_eq!(server.right(OFFICE, "alice", NOW + 1 + n), Ok(()));
        let _ = server.wrong(OFFICE, "bob", NOW + 1 + n);
    }
}

#[test]
fn a_phone_is_not_locked_out_by_those_who_try_its_user() {
    let server = server();
    assert_eq!(server.right(OFFICE, "bob", NOW), Ok(()));
    for n in 0..10_000 {
        let _ = server.wrong(address(n), "bob", NOW + n / 10);
        assert_eq!(server.right(OFFICE, "bob", NOW + n / 10), Ok(()));
    }
    assert!(matches!(server.right(ELSEWHERE, "bob", NOW + 1_000), Err(1..=6)), "a place where it never was");
}

#[test]
fn a_known_pair_has_a_wider_bucket_of_its_own() {
    let server = server();
    assert_eq!(server.right(OFFICE, "bob", NOW), Ok(()));
    // A second phone of Bob's with an old password, or somebody who guesses behind his NAT.
    assert_eq!(server.looked_at(1_000, |server, _| server.wrong(OFFICE, "bob", NOW)), 100);
    assert_eq!(server.wrong(OFFICE, "bob", NOW), Err(1));
    assert_eq!(server.looked_at(60_000, |server, n| server.wrong(OFFICE, "bob", NOW + 1 + n / 100)), 1_000);
    // Nobody else pays for it.
    assert_eq!(server.looked_at(100, |server, _| server.wrong(OFFICE, "alice", NOW + 600)), 10);
    // A phone that is wrong once a second for ever does not lock the other one out.
    for n in 0..10_000 {
        let now = NOW + 700 + n;
        assert_eq!((server.wrong(OFFICE, "bob", now), server.right(OFFICE, "bob", now)), (Ok(()), Ok(())));
    }
}

#[test]
fn a_day_without_success_and_the_pair_is_unknown() {
    let server = server();
    assert_eq!(server.right(OFFICE, "bob", NOW), Ok(()));
    let attack = |now| server.looked_at(100, |server, n| server.wrong(address(n), "bob", now));
    assert_eq!(attack(NOW + 86_400), 10);
    assert!(matches!(server.admit(OFFICE, "bob", NOW + 86_400), Admission::Evaluate(_)));
    assert_eq!(server.right(OFFICE, "bob", NOW + 86_401), Err(5));
    // A success while it lasts is another day.
    let server = self::server();
    assert_eq!(server.right(OFFICE, "bob", NOW), Ok(()));
    for hour in 1..100 {
        assert_eq!(
            server.looked_at(100, |server, n| server.wrong(address(n), "bob", NOW + hour * 3_600)),
            10
        );
        assert_eq!(server.right(OFFICE, "bob", NOW + hour * 3_600), Ok(()), "{hour}");
    }
}

#[test]
fn a_right_password_gains_no_guesses_at_others() {
    let server = server();
    assert_eq!(server.right(ELSEWHERE, "mallory", NOW), Ok(()));
    let mut looked_at = 0;
    for n in 0..1_000 {
        looked_at += usize::from(server.wrong(ELSEWHERE, &format!("user{n}"), NOW).is_ok());
        assert_eq!(server.right(ELSEWHERE, "mallory", NOW), Ok(()));
    }
    assert_eq!(looked_at, 10);
}

#[test]
fn guesses_that_wait_for_the_database_together_gain_nothing() {
    let server = server();
    let passes: Vec<Pass> = (0..100).filter_map(|_| server.pass(ELSEWHERE, "bob", NOW).ok()).collect();
    assert_eq!(passes.len(), 100);
    // The answers come, and each asks again before its password is looked at.
    let mut looked_at = 0;
    for _ in passes {
        if let Ok(pass) = server.pass(ELSEWHERE, "bob", NOW + 1) {
            looked_at += 1;
            pass.failed(&server, &server.limits, NOW + 1);
        }
    }
    assert_eq!(looked_at, 10);
}

#[test]
fn phones_that_wait_for_the_database_together_all_come_in() {
    let server = server();
    let users: Vec<String> = (0..500).map(|n| format!("user{n}")).collect();
    let passes: Vec<Pass> = users.iter().map(|user| server.pass(OFFICE, user, NOW).unwrap()).collect();
    assert_eq!(passes.len(), users.len());
    for user in &users {
        let pass = server.pass(OFFICE, user, NOW + 1).unwrap();
        pass.succeeded(&server, &server.limits, NOW + 1);
    }
    // And what is not evaluated after all costs nothing.
    let withdrawn = (0..100).filter(|_| server.pass(OFFICE, "new", NOW + 1).is_ok()).count();
    assert_eq!(withdrawn, 100);
    assert_eq!(server.looked_at(100, |server, _| server.wrong(OFFICE, "new", NOW + 1)), 10);
}

#[test]
fn strangers_who_succeed_pay_nothing() {
    let server = server();
    for n in 0..1_000 {
        assert_eq!(server.right(OFFICE, &format!("user{n}"), NOW), Ok(()), "a power cut in an office: {n}");
    }
    assert_eq!(server.looked_at(100, |server, _| server.wrong(OFFICE, "bob", NOW)), 10);
}

#[test]
fn a_full_table_slows_strangers_and_nobody_gains_attempts() {
    let server = Server::new(1, 16);
    assert_eq!(server.right(OFFICE, "alice", NOW), Ok(()));
    // A hundred thousand sources, each on a user of its own: two sets of eight.
    let tried = server.looked_at(100_000, |server, n| server.wrong(address(n), &format!("user{n}"), NOW));
    assert!((8..=160).contains(&tried), "{tried}");
    // Whom they flushed out has not gained anything.
    assert_eq!(server.looked_at(100, |server, _| server.wrong(ELSEWHERE, "bob", NOW)), 0);
    assert!(matches!(server.right(ELSEWHERE, "bob", NOW), Err(1..=6)));
    // Who is known comes in.
    assert_eq!(server.right(OFFICE, "alice", NOW), Ok(()));
    // The flood over, a minute later everybody does.
    assert_eq!(server.right(ELSEWHERE, "bob", NOW + 60), Ok(()));
}

#[test]
fn nobody_gets_more_attempts_than_one_bucket_has_however_small_the_table_is() {
    for entries_max in [1, 8, 32, 256] {
        let server = Server::new(1, entries_max);
        let mut seed = 1u64;
        let mut looked_at = [0u64; 40];
        for step in 0..20_000u64 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // Forty sources, some much busier than others, each on a user that nobody else tries.
            let source = ((seed >> 33) % 40 * ((seed >> 50) % 40)) / 40;
            let user: String = format!("user{step}");
            looked_at[source as usize] +=
                u64::from(server.wrong(address(source), &user, NOW + step / 100).is_ok());
        }
        // 200 seconds: ten at once, and one in six seconds.
        assert!(looked_at.iter().all(|&looked_at| looked_at <= 10 + 200 / 6), "{entries_max}: {looked_at:?}");
        assert!(looked_at.iter().any(|&looked_at| looked_at > 0));
    }
}

#[test]
fn one_user_with_many_sources_pushes_out_his_own() {
    // One set for all users.
    let server = Server::new(1, 8);
    for user in ["alice", "bob", "carol", "dave"] {
        assert_eq!(server.right(OFFICE, user, NOW), Ok(()));
    }
    for n in 0..1_000 {
        assert_eq!(server.right(address(n), "mallory", NOW + n), Ok(()));
    }
    let known = |user: &str, source: IpAddr| {
        let attempt = Attempt::new(&server.key, source, user.as_bytes());
        visit(&server, attempt.user, |guard| guard.known(&attempt, &server.limits, NOW + 1_000)).is_some()
    };
    for user in ["alice", "bob", "carol", "dave"] {
        assert!(known(user, OFFICE), "{user}");
    }
    let last: Vec<u64> = (0..1_000).filter(|&n| known("mallory", address(n))).collect();
    assert_eq!(last, [996, 997, 998, 999]);
    // In a full set of many users the one that succeeded longest ago goes.
    assert_eq!(server.right(OFFICE, "erin", NOW + 1_000), Ok(()));
    assert!(known("erin", OFFICE));
    assert_eq!(["alice", "bob", "carol", "dave"].iter().filter(|user| known(user, OFFICE)).count(), 3);
}

#[test]
fn a_phone_that_is_known_costs_one_visit() {
    let server = server();
    assert_eq!(server.right(OFFICE, "bob", NOW), Ok(()));
    let standing = |now| server.pass(OFFICE, "bob", now).map(|pass| pass.standing);
    assert_eq!(standing(NOW + 60), Ok(Standing::Known { renew: false }));
    assert_eq!(standing(NOW + 30_000), Ok(Standing::Known { renew: true }));
}

#[test]
fn a_clock_that_is_put_back_locks_nobody_out_for_long() {
    let server = server();
    assert_eq!(server.right(OFFICE, "alice", NOW), Ok(()));
    assert_eq!(server.looked_at(1_000, |server, _| server.wrong(OFFICE, "alice", NOW)), 100);
    assert_eq!(server.looked_at(100, |server, _| server.wrong(ELSEWHERE, "bob", NOW)), 10);
    let hour_ago = NOW - 3_600;
    assert_eq!(server.wrong(ELSEWHERE, "bob", hour_ago), Err(6));
    assert_eq!(server.wrong(ELSEWHERE, "bob", hour_ago + 6), Ok(()));
    assert_eq!(server.right(OFFICE, "alice", hour_ago), Err(1));
    assert_eq!(server.right(OFFICE, "alice", hour_ago + 1), Ok(()));
}

#[test]
fn limits_of_any_size_are_obeyed() {
    let mut server = server();
    server.limits.at_once = 0;
    assert_eq!(server.looked_at(1_000, |server, _| server.wrong(ELSEWHERE, "bob", NOW)), 1_000, "no guard");
    server.limits = GuardLimits { at_once: 1, secs_per_attempt: 3_600, known_secs: 0, known_factor: 0 };
    assert_eq!(server.wrong(ELSEWHERE, "bob", NOW), Ok(()));
    assert_eq!(server.wrong(ELSEWHERE, "bob", NOW), Err(3_600));
    assert_eq!(server.right(OFFICE, "alice", NOW), Ok(()));
    assert_eq!(
        server.looked_at(9, |server, _| server.wrong(OFFICE, "alice", NOW)),
        1,
        "known for this second"
    );
    server.limits = GuardLimits {
        at_once: u32::MAX,
        secs_per_attempt: u32::MAX,
        known_secs: u32::MAX,
        known_factor: u32::MAX,
    };
    for now in [0, NOW, u64::from(u32::MAX), u64::MAX] {
        for source in [OFFICE, ELSEWHERE] {
            let _ = (
                server.wrong(source, "eve", now),
                server.right(source, "eve", now),
                server.wrong(source, "eve", now),
            );
        }
    }
}

#[test]
fn nothing_is_allocated_before_it_is_needed_and_no_size_is_too_large_or_too_small() {
    let guard = Guard::new(usize::MAX);
    assert_eq!(
        (guard.charges.capacity(), guard.pairs.capacity(), guard.sets_max * WAYS),
        (0, 0, ENTRIES_MAX)
    );
    assert_eq!(format!("{:?}", Guard::new(100)), "Guard { entries_max: 104, .. }");
    let server = Server::new(1, 0);
    assert_eq!(server.looked_at(100, |server, _| server.wrong(ELSEWHERE, "bob", NOW)), 10);
    let guard = server.parts[0].lock().unwrap();
    assert_eq!((guard.charges.capacity(), guard.pairs.capacity()), (1, 0));
}
