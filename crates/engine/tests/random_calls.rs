//! Thousands of forked calls whose callees answer, ring, refuse, hang and cross each other at random: what RFC 3261
//! §16.7 promises holds for every one of them.

mod rig;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use rig::prng::Prng;
use rig::{ALICE, BOB, BOB_URI, CAROL, CAROL_URI, DAVE, DAVE_URI, Network, PROXY, Request, Script, Seen};

enum Event {
    /// A datagram leaves a party.
    Send(SocketAddr, Vec<u8>),
    /// A callee sends its final response to this INVITE, unless it has sent one.
    Final(SocketAddr, Seen, u16),
}

struct Run {
    seed: u64,
    prng: Prng,
    network: Network,
    events: BTreeMap<(u64, u64), Event>,
    sequence: u64,
    cursor: usize,
    invite: Request,
    /// Branches by their Via branch: who, and the final status sent in it (0: none).
    finals: BTreeMap<String, (SocketAddr, u16)>,
    /// Branches that sent a provisional response.
    rang: BTreeSet<String>,
}

const FAILURES: [u16; 12] = [300, 302, 401, 404, 407, 408, 480, 486, 500, 503, 600, 603];

impl Run {
    fn at(&mut self, ms: u64, event: Event) {
        self.sequence += 1;
        self.events.insert((ms, self.sequence), event);
    }

    fn now(&self) -> u64 {
        self.network.now.as_micros() / 1000
    }

    /// Reacts to all that the engine has sent since the last time.
    fn react(&mut self) {
        while self.cursor < self.network.log.len() {
            let seen = self.network.log[self.cursor].clone();
            self.cursor += 1;
            if seen.from != PROXY {
                continue;
            }
            let now = self.now();
            match seen.label().as_str() {
                "INVITE" => self.on_invite(now, seen),
                "CANCEL" => self.on_cancel(now, &seen),
                _ if seen.to == ALICE && seen.cseq_method() == "INVITE" => self.on_response(now, &seen),
                _ => {}
            }
        }
    }

    fn on_invite(&mut self, now: u64, seen: Seen) {
        if self.finals.contains_key(&seen.branch()) {
            return;
        }
        self.finals.insert(seen.branch(), (seen.to, 0));
        let tag = format!("{}", seen.to.ip());
        let mut provisionals = self.prng.below(3);
        while provisionals > 0 {
            provisionals -= 1;
            let status = [100, 180, 183][usize::try_from(self.prng.below(3)).expect("small")];
            let at = now + self.prng.below(8000);
            self.at(at, Event::Send(seen.to, seen.respond(status, if status == 100 { "" } else { &tag })));
        }
        if self.prng.chance(85) {
            let ok = self.prng.chance(35);
            let failure = FAILURES[usize::try_from(self.prng.below(12)).expect("small")];
            let at = now + self.prng.below(12_000);
            self.at(at, Event::Final(seen.to, seen, if ok { 200 } else { failure }));
        }
    }

    fn on_cancel(&mut self, now: u64, seen: &Seen) {
        let branch = seen.branch();
        assert!(
            self.rang.contains(&branch),
            "seed {}: RFC 3261 §9.1: CANCEL before a provisional",
            self.seed
        );
        if self.prng.chance(10) {
            return;
        }
        let at = now + self.prng.below(1000);
        self.at(at, Event::Send(seen.to, seen.respond(200, "cancel")));
        let invite = self
            .network
            .log
            .iter()
            .find(|old| old.from == PROXY && old.label() == "INVITE" && old.branch() == branch)
            .cloned()
            .expect("a CANCEL follows its INVITE");
        let at = now + self.prng.below(1500);
        self.at(at, Event::Final(seen.to, invite, 487));
    }

    fn on_response(&mut self, now: u64, seen: &Seen) {
        if seen.status().is_some_and(|status| status >= 300) && self.prng.chance(90) {
            let ack = self.invite.ack(seen).bytes();
            let at = now + self.prng.below(300);
            self.at(at, Event::Send(ALICE, ack));
        }
    }

    fn fire(&mut self, event: Event) {
        match event {
            Event::Send(from, bytes) => {
                let seen = Seen { at: 0, from, to: PROXY, bytes };
                if seen.status().is_some_and(|status| status < 200) {
                    // RFC 3261 §17.2.1: nothing provisional after the final response of the same server transaction.
                    if self.finals.get(&seen.branch()).is_some_and(|&(_, status)| status != 0) {
                        return;
                    }
                    self.rang.insert(seen.branch());
                }
                self.network.send(from, &seen.bytes);
            }
            Event::Final(at, invite, status) => {
                let sent = self.finals.get_mut(&invite.branch()).expect("an INVITE came before");
                if sent.1 != 0 {
                    return;
                }
                sent.1 = status;
                let tag = format!("{}", at.ip());
                let bytes = if status == 200 { invite.accept(&tag) } else { invite.respond(status, &tag) };
                self.network.send(at, &bytes);
                if self.prng.chance(30) {
                    self.network.send(at, &bytes);
                }
            }
        }
    }

    fn run(&mut self) {
        loop {
            self.react();
            // The engine's timers between here and the next event may make new events.
            let next = self.events.first_key_value().map(|(&(at, _), _)| at);
            let timeout = self.network.engine.next_timeout().map(|at| at.as_micros().div_ceil(1000));
            let Some(to) = next.into_iter().chain(timeout).min().filter(|&at| at < 900_000) else { break };
            self.network.until_ms(to.max(self.now()));
            self.react();
            while let Some(entry) = self.events.first_entry().filter(|entry| entry.key().0 <= to) {
                let event = entry.remove();
                self.fire(event);
                self.react();
            }
        }
    }

    /// What must hold when everything has ended.
    fn check(&mut self) {
        let seed = self.seed;
        let ladder = self.network.ladder();
        assert_eq!(self.network.engine.transactions(), 0, "seed {seed}\n{ladder}");
        assert_eq!(self.network.engine.next_timeout(), None, "seed {seed}");
        let finals = self.network.finals(ALICE, "INVITE");
        let statuses: Vec<u16> = finals.iter().filter_map(Seen::status).collect();
        let accepted = statuses.iter().filter(|&&status| status < 300).count();
        // §16.7 item 5: "either exactly one non-2xx response or one or more 2xx responses to an INVITE request".
        assert!(!statuses.is_empty(), "seed {seed}: no final response\n{ladder}");
        assert!(accepted == statuses.len() || statuses.len() == 1, "seed {seed}: {statuses:?}\n{ladder}");
        assert!(!statuses.contains(&503), "seed {seed}: a 503 of a callee goes upstream as 500\n{ladder}");

        let upstream = self.network.all(ALICE);
        let for_invite = upstream.iter().filter(|seen| seen.cseq_method() == "INVITE");
        let order: Vec<bool> =
            for_invite.map(|seen| seen.status().is_some_and(|status| status >= 200)).collect();
        assert!(order.is_sorted(), "seed {seed}: a provisional response after the final one\n{ladder}");

        let sent: Vec<u16> = self.finals.values().map(|&(_, status)| status).collect();
        for (branch, &(at, status)) in &self.finals {
            let here = |label: &str| {
                let of = |seen: &&Seen| seen.from == PROXY && seen.to == at && seen.branch() == *branch;
                self.network.log.iter().filter(of).filter(|seen| seen.label() == label).count()
            };
            assert!(here("INVITE") <= 7, "seed {seed}\n{ladder}");
            if status >= 300 {
                assert!(here("ACK") >= 1, "seed {seed}: {status} of {at} was not acknowledged\n{ladder}");
            } else {
                assert_eq!(here("ACK"), 0, "seed {seed}: {at} sent no failure\n{ladder}");
            }
            if status == 200 {
                let tag = format!("{}", at.ip());
                let came = finals.iter().any(|seen| seen.to_tag().as_deref() == Some(&tag));
                assert!(came, "seed {seed}: the 2xx of {at} was not forwarded\n{ladder}");
            }
        }
        if accepted == 0 && sent.iter().any(|&status| status >= 600) {
            assert!(statuses[0] >= 600, "seed {seed}: §16.7 item 6: a 6xx wins, not {statuses:?}\n{ladder}");
        }
    }
}

fn call(seed: u64) {
    let mut prng = Prng::new(seed);
    let qs = [1000, 1000, 500];
    let targets: Vec<(&str, u16)> = [BOB_URI, CAROL_URI, DAVE_URI]
        .into_iter()
        .map(|uri| (uri, qs[usize::try_from(prng.below(3)).expect("small")]))
        .collect();
    let invite = Request::invite(1);
    let mut run = Run {
        seed,
        prng,
        network: Network::new(Script::fork(&targets)),
        events: BTreeMap::new(),
        sequence: 0,
        cursor: 0,
        invite: invite.clone(),
        finals: BTreeMap::new(),
        rang: BTreeSet::new(),
    };
    run.at(0, Event::Send(ALICE, invite.bytes()));
    for _ in 0..run.prng.below(3) {
        let at = run.prng.below(20_000);
        run.at(at, Event::Send(ALICE, invite.bytes()));
    }
    if run.prng.chance(30) {
        let at = run.prng.below(15_000);
        let cancel = invite.cancel().bytes();
        run.at(at, Event::Send(ALICE, cancel.clone()));
        run.at(at + 500, Event::Send(ALICE, cancel));
    }
    run.run();
    run.check();
    let callees: BTreeSet<SocketAddr> = run.finals.values().map(|&(at, _)| at).collect();
    assert!(callees.iter().all(|at| [BOB, CAROL, DAVE].contains(at)));
    assert_eq!(callees.len(), run.finals.len(), "seed {seed}: one branch a target");
}

/// RFC 3261 §16.7, §9.1, §17: exactly one final response or 2xx only, CANCEL after provisional only, every failure
/// acknowledged, every 2xx forwarded, 6xx wins, nothing left.
#[test]
fn any_course_of_a_forked_call_keeps_the_promises_of_the_rfc() {
    for seed in 0..3000 {
        call(seed);
    }
}
