//! Every timer of RFC 3261 Table 4, and L and M of RFC 6026: exact instants, what happens at expiry, and that nothing
//! is left afterwards.

mod rig;

use std::time::Duration;

use rig::{ALICE, BOB, Network, Request, SIXTY_FOUR_T1, Script, config, invited, to_bob};

/// Timer A's instants for T1 = 500 ms: intervals that double until Timer B (RFC 3261 §17.1.1.2).
const INVITE_SENDS: [u64; 7] = [0, 500, 1500, 3500, 7500, 15_500, 31_500];

/// Timer E's and G's instants: intervals that double up to T2 = 4 s (RFC 3261 §17.1.2.2, §17.2.1).
const CAPPED_SENDS: [u64; 11] = [0, 500, 1500, 3500, 7500, 11_500, 15_500, 19_500, 23_500, 27_500, 31_500];

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// An OPTIONS that was relayed to Bob at 0.
fn asked() -> (Network, Request, rig::Seen) {
    let mut network = Network::new(to_bob());
    let options = Request::options(1);
    network.alice(&options);
    let received = network.only(BOB, "OPTIONS");
    (network, options, received)
}

/// RFC 3261 §17.1.1.2: Timer A doubles from T1; seven requests in 64*T1.
#[test]
fn timer_a_retransmits_an_invite_with_doubling_intervals() {
    let (mut network, _, first) = invited(to_bob());
    network.pass(ms(60_000));
    assert_eq!(network.sent_at(BOB, "INVITE"), INVITE_SENDS);
    assert!(network.all(BOB).iter().all(|seen| seen.bytes == first.bytes), "retransmissions are identical");
    network.settle();
}

/// RFC 3261 §17.1.1.2: the Proceeding state does not retransmit.
#[test]
fn timer_a_stops_with_the_first_provisional_response() {
    let (mut network, _, received) = invited(to_bob());
    network.until_ms(700);
    network.send(BOB, received.respond(100, ""));
    network.until_ms(40_000);
    assert_eq!(network.sent_at(BOB, "INVITE"), [0, 500]);
}

/// RFC 3261 §17.1.1.2, §16.7 item 6: Timer B ends a branch that never answered, and the caller gets 408; no ACK goes
/// to the callee.
#[test]
fn timer_b_ends_a_silent_invite_with_408() {
    let (mut network, invite, _) = invited(to_bob());
    network.until_ms(SIXTY_FOUR_T1 - 1);
    assert!(network.sent_at(ALICE, "408").is_empty());
    network.until_ms(SIXTY_FOUR_T1);
    assert_eq!(network.sent_at(ALICE, "408"), [SIXTY_FOUR_T1]);
    let timeout = network.only(ALICE, "408");
    network.alice(&invite.ack(&timeout));
    network.pass(ms(5000));
    network.assert_at_rest();
    assert!(network.sent_at(BOB, "ACK").is_empty(), "nothing was answered, nothing is acknowledged");
    assert!(network.sent_at(BOB, "CANCEL").is_empty(), "a branch without provisional is not cancelled");
}

/// RFC 3261 §17.1.1.2: Timer B does nothing once a provisional response came.
#[test]
fn timer_b_does_not_end_a_call_that_rings() {
    let (mut network, _, received) = invited(to_bob());
    network.until_ms(1000);
    network.send(BOB, received.respond(180, "bob"));
    network.until_ms(100_000);
    assert!(network.finals(ALICE, "INVITE").is_empty());
    network.send(BOB, received.accept("bob"));
    assert_eq!(network.sent_at(ALICE, "200"), [100_000]);
}

/// RFC 3261 §16.6 item 11: Timer C is larger than three minutes.
#[test]
fn timer_c_is_larger_than_three_minutes_by_default() {
    assert!(config().timers.timer_c > Duration::from_secs(180));
}

/// RFC 3261 §16.8: a ringing branch whose Timer C fires is cancelled; its 487 goes upstream.
#[test]
fn timer_c_cancels_a_branch_that_rings_for_too_long() {
    let timer_c = u64::try_from(config().timers.timer_c.as_millis()).expect("a sane timer");
    let (mut network, invite, received) = invited(to_bob());
    network.until_ms(1000);
    network.send(BOB, received.respond(180, "bob"));
    network.until_ms(1000 + timer_c - 1);
    assert!(network.sent_at(BOB, "CANCEL").is_empty());
    network.until_ms(1000 + timer_c);
    assert_eq!(network.sent_at(BOB, "CANCEL"), [1000 + timer_c]);
    let cancel = network.only(BOB, "CANCEL");
    network.send(BOB, cancel.respond(200, "bob"));
    network.send(BOB, received.respond(487, "bob"));
    let last = network.take(ALICE).pop().expect("a final response");
    assert_eq!(last.label(), "487");
    network.alice(&invite.ack(&last));
    network.settle();
}

/// RFC 3261 §9.1: a cancelled branch that stays silent for 64*T1 more is given up; §16.7 item 6: 408.
#[test]
fn timer_c_gives_up_a_branch_that_ignores_its_cancel() {
    let timer_c = u64::try_from(config().timers.timer_c.as_millis()).expect("a sane timer");
    let (mut network, _, received) = invited(to_bob());
    network.send(BOB, received.respond(180, "bob"));
    network.until_ms(timer_c + SIXTY_FOUR_T1);
    assert_eq!(network.sent_at(ALICE, "408").first(), Some(&(timer_c + SIXTY_FOUR_T1)));
    network.settle();
    assert_eq!(network.finals(ALICE, "INVITE").len(), 1);
}

/// RFC 3261 §16.7 item 2: 101 to 199 reset Timer C.
#[test]
fn timer_c_starts_again_with_each_ringing() {
    let timer_c = u64::try_from(config().timers.timer_c.as_millis()).expect("a sane timer");
    let (mut network, _, received) = invited(to_bob());
    network.send(BOB, received.respond(180, "bob"));
    network.until_ms(100_000);
    network.send(BOB, received.respond(183, "bob"));
    network.until_ms(100_000 + timer_c - 1);
    assert!(network.sent_at(BOB, "CANCEL").is_empty());
    network.until_ms(100_000 + timer_c);
    assert_eq!(network.sent_at(BOB, "CANCEL"), [100_000 + timer_c]);
}

/// RFC 3261 §16.7 item 2: "anything but 100".
#[test]
fn timer_c_is_not_reset_by_100() {
    let timer_c = u64::try_from(config().timers.timer_c.as_millis()).expect("a sane timer");
    let (mut network, _, received) = invited(to_bob());
    network.until_ms(20_000);
    network.send(BOB, received.respond(100, ""));
    network.until_ms(timer_c + 1000);
    assert_eq!(network.sent_at(BOB, "CANCEL").first(), Some(&timer_c), "counted from the INVITE");
}

/// RFC 3261 §17.1.1.2: for at least 32 s a retransmitted non-2xx final is acknowledged and not passed on; then the
/// transaction is gone.
#[test]
fn timer_d_absorbs_retransmitted_finals_for_32_seconds() {
    let (mut network, invite, received) = invited(to_bob());
    network.send(BOB, received.respond(486, "bob"));
    let busy = network.only(ALICE, "486");
    network.alice(&invite.ack(&busy));
    network.until_ms(31_900);
    network.send(BOB, received.respond(486, "bob"));
    assert_eq!(network.sent_at(BOB, "ACK"), [0, 31_900]);
    assert_eq!(network.sent_at(ALICE, "486"), [0], "not passed up again");
    assert!(network.engine.transactions() > 0);
    network.until_ms(40_000);
    network.assert_at_rest();
    network.send(BOB, received.respond(486, "bob"));
    assert_eq!(network.sent_at(BOB, "ACK"), [0, 31_900], "Timer D has fired");
    assert_eq!(network.sent_at(ALICE, "486"), [0], "a stray response is not forwarded (RFC 6026 §7.3)");
}

/// RFC 3261 §17.1.1.2: with Timer D the client transaction ends at its very instant.
#[test]
fn timer_d_ends_at_its_instant() {
    let timer_d = u64::try_from(config().timers.timer_d.as_millis()).expect("a sane timer");
    assert!(timer_d >= 32_000);
    let (mut network, invite, received) = invited(to_bob());
    network.send(BOB, received.respond(486, "bob"));
    let busy = network.only(ALICE, "486");
    network.alice(&invite.ack(&busy));
    network.until_ms(timer_d - 1);
    assert!(network.engine.transactions() > 0);
    network.until_ms(timer_d);
    network.assert_at_rest();
}

/// RFC 3261 §17.1.2.2: Timer E doubles from T1 to T2.
#[test]
fn timer_e_retransmits_a_non_invite_up_to_t2() {
    let (mut network, _, first) = asked();
    network.pass(ms(60_000));
    assert_eq!(network.sent_at(BOB, "OPTIONS"), CAPPED_SENDS);
    assert!(network.all(BOB).iter().all(|seen| seen.bytes == first.bytes));
}

/// RFC 3261 §17.1.2.2: in the Proceeding state Timer E is reset to T2 each time it fires.
#[test]
fn timer_e_fires_every_t2_after_a_provisional_response() {
    let (mut network, _, received) = asked();
    network.until_ms(700);
    network.send(BOB, received.respond(100, ""));
    network.until_ms(60_000);
    assert_eq!(
        network.sent_at(BOB, "OPTIONS"),
        [0, 500, 1500, 5500, 9500, 13_500, 17_500, 21_500, 25_500, 29_500]
    );
}

/// RFC 3261 §17.1.2.2 and RFC 4320 §4.2: Timer F ends the branch, and no 408 is sent for a non-INVITE request.
#[test]
fn timer_f_ends_a_silent_non_invite_without_a_final_response() {
    let (mut network, _, _) = asked();
    network.until_ms(SIXTY_FOUR_T1);
    network.pass(ms(1));
    network.pass(ms(SIXTY_FOUR_T1));
    network.assert_at_rest();
    assert!(network.finals(ALICE, "OPTIONS").is_empty(), "{}", network.ladder());
}

/// RFC 3261 §17.1.2.2: Timer F fires in the Proceeding state too.
#[test]
fn timer_f_ends_a_non_invite_that_is_proceeding() {
    let (mut network, _, received) = asked();
    network.send(BOB, received.respond(100, ""));
    network.until_ms(2 * SIXTY_FOUR_T1);
    assert!(network.sent_at(BOB, "OPTIONS").into_iter().all(|at| at < SIXTY_FOUR_T1));
    network.assert_at_rest();
}

/// RFC 3261 §17.2.1: Timer G repeats a non-2xx final from T1 up to T2, Timer H ends it after 64*T1.
#[test]
fn timer_g_retransmits_a_final_until_timer_h() {
    let mut network = Network::new(Script::reply(486));
    network.alice(&Request::invite(1));
    network.until_ms(SIXTY_FOUR_T1 - 1);
    assert_eq!(network.engine.transactions(), 1);
    network.until_ms(SIXTY_FOUR_T1);
    network.assert_at_rest();
    network.until_ms(2 * SIXTY_FOUR_T1);
    assert_eq!(network.sent_at(ALICE, "486"), CAPPED_SENDS);
    assert_eq!(network.finals(ALICE, "INVITE").len(), 1, "retransmissions are identical");
}

/// RFC 3261 §17.2.1: the same for a response that a callee sent.
#[test]
fn timer_g_retransmits_a_forwarded_final() {
    let (mut network, _, received) = invited(to_bob());
    network.send(BOB, received.respond(486, "bob"));
    network.until_ms(2 * SIXTY_FOUR_T1);
    assert_eq!(network.sent_at(ALICE, "486"), CAPPED_SENDS);
    network.assert_at_rest();
}

/// RFC 3261 §17.2.1: the ACK stops Timer G; Timer I absorbs further ACKs for T4 and ends the transaction.
#[test]
fn timer_i_absorbs_acks_for_t4() {
    let mut network = Network::new(Script::reply(486));
    let invite = Request::invite(1);
    network.alice(&invite);
    let busy = network.only(ALICE, "486");
    network.until_ms(1000);
    network.alice(&invite.ack(&busy));
    network.until_ms(5000);
    network.alice(&invite.ack(&busy));
    network.until_ms(5999);
    assert_eq!(network.engine.transactions(), 1);
    network.until_ms(6000);
    network.assert_at_rest();
    assert_eq!(network.sent_at(ALICE, "486"), [0, 500], "Timer G stopped at the ACK");
    assert_eq!(network.engine.user().count("request ACK"), 0, "both ACKs were absorbed");
}

/// RFC 3261 §17.2.2: Timer J keeps a final response for 64*T1.
#[test]
fn timer_j_repeats_a_final_on_request_for_64_t1() {
    let mut network = Network::new(Script::reply(200));
    let options = Request::options(1);
    network.alice(&options);
    network.until_ms(31_999);
    network.alice(&options);
    assert_eq!(network.sent_at(ALICE, "200"), [0, 31_999]);
    assert_eq!(network.engine.user().count("request OPTIONS"), 1);
    assert_eq!(network.engine.transactions(), 1);
    network.until_ms(SIXTY_FOUR_T1);
    network.assert_at_rest();
    network.alice(&options);
    assert_eq!(network.engine.user().count("request OPTIONS"), 2, "a new transaction after Timer J");
    network.settle();
}

/// RFC 3261 §17.1.2.2: in Timer K's time response retransmissions are absorbed; afterwards late non-INVITE responses
/// are not forwarded either (RFC 4320 §4.3).
#[test]
fn timer_k_absorbs_retransmitted_responses() {
    let (mut network, _, received) = asked();
    network.until_ms(1000);
    network.send(BOB, received.respond(200, "bob"));
    for at in [1100, 5900, 6100, 20_000, 40_000] {
        network.until_ms(at);
        network.send(BOB, received.respond(200, "bob"));
    }
    assert_eq!(network.sent_at(ALICE, "200"), [1000]);
    network.settle();
}

/// RFC 3261 §17.1.2.2, §17.2.2: with a short Timer J only Timer K (T4) holds the transaction.
#[test]
fn timer_k_ends_at_t4() {
    let mut config = config();
    config.timers.timer_j = ms(1);
    let mut network = Network::with(config, to_bob());
    network.alice(&Request::options(1));
    let received = network.only(BOB, "OPTIONS");
    network.until_ms(1000);
    network.send(BOB, received.respond(200, "bob"));
    network.until_ms(5999);
    assert!(network.engine.transactions() > 0, "Timer K is still running");
    network.until_ms(6000);
    network.assert_at_rest();
}

/// RFC 6026 §7.1: Timer L absorbs retransmitted INVITEs for 64*T1 after a 2xx, and sends no response to them.
#[test]
fn timer_l_absorbs_retransmitted_invites_after_a_2xx() {
    let (mut network, invite, received) = invited(to_bob());
    network.until_ms(1000);
    network.send(BOB, received.accept("bob"));
    network.take(ALICE);
    network.take(BOB);
    network.until_ms(1000 + SIXTY_FOUR_T1 - 1);
    network.alice(&invite);
    network.assert_quiet(ALICE);
    network.assert_quiet(BOB);
    assert_eq!(network.engine.user().count("request INVITE"), 1);
    assert!(network.engine.transactions() > 0);
    network.until_ms(1000 + SIXTY_FOUR_T1);
    network.assert_at_rest();
    network.alice(&invite);
    assert_eq!(network.engine.user().count("request INVITE"), 2, "Timer L has fired");
    network.settle();
}

/// RFC 6026 §7.2: Timer M lets retransmitted 2xx through for 64*T1; §7.3: after that they are stray and dropped.
#[test]
fn timer_m_lets_2xx_through_for_64_t1() {
    let (mut network, _, received) = invited(to_bob());
    network.until_ms(1000);
    for at in [1000, 1500, 2500, 1000 + SIXTY_FOUR_T1 - 1] {
        network.until_ms(at);
        network.send(BOB, received.accept("bob"));
    }
    network.until_ms(1000 + SIXTY_FOUR_T1);
    network.assert_at_rest();
    network.send(BOB, received.accept("bob"));
    assert_eq!(network.sent_at(ALICE, "200"), [1000, 1500, 2500, 1000 + SIXTY_FOUR_T1 - 1]);
}

/// RFC 3261 §17.1.1.1: T1 is configurable, and everything that is counted in T1 follows.
#[test]
fn another_t1_scales_the_timers() {
    let mut config = config();
    config.timers = engine::Timers::with_t1(ms(100));
    let mut network = Network::with(config, to_bob());
    network.alice(&Request::invite(1));
    network.until_ms(20_000);
    assert_eq!(network.sent_at(BOB, "INVITE"), [0, 100, 300, 700, 1500, 3100, 6300]);
    assert_eq!(network.sent_at(ALICE, "408").first(), Some(&6400));
    network.settle();
}

/// Retransmission and expiry at the same instant: a final that is queued for 64*T1 is not sent after the end.
#[test]
fn a_thousand_transactions_keep_their_own_instants() {
    let mut network = Network::new(to_bob());
    for n in 0..1000_u32 {
        network.until_ms(u64::from(n) * 7);
        network.alice(&Request::invite(n));
    }
    network.until_ms(60_000);
    let mut per_call = std::collections::BTreeMap::<String, Vec<u64>>::new();
    for seen in network.all(BOB) {
        per_call.entry(seen.call_id()).or_default().push(seen.ms());
    }
    for n in 0..1000_u64 {
        let start = n * 7;
        let expected: Vec<u64> = INVITE_SENDS.iter().map(|at| start + at).collect();
        assert_eq!(per_call[&format!("call-{n}@alice.example.org")], expected);
    }
    network.settle();
}
