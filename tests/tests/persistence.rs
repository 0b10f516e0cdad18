//! What is left of the bindings when the server dies at any moment: what each persistence mode promises
//! (`docs/guide/users.md`), on each database.
//!
//! `STROWGER_KILLS` says how often it dies in each test (20 times on SQLite, five times on the others, unless it says
//! otherwise); `STROWGER_SEED` repeats a run. The database is the same from death to death, so that damage adds up.

use std::env;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use end_to_end::{
    Crowd, Database, House, Phone, Promise, Random, Server, Signal, Sql, contacts, only_strowger,
};

/// How far the database may be behind in write-back mode: `flush_interval`.
const FLUSH: Duration = Duration::from_millis(200);
/// What a flush itself may take on a busy disk, beyond the longest silence that the crowd has seen.
const FLUSH_TAKES: Duration = Duration::from_millis(1_300);
/// REGISTERs per second in write-back: what comes faster than a database takes it must be behind.
const PACE: u32 = 1_500;

fn seed() -> u64 {
    let given = env::var("STROWGER_SEED").ok().and_then(|seed| seed.parse().ok());
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |time| time.subsec_nanos().into());
    given.unwrap_or_else(now)
}

fn kills(otherwise: u32) -> u32 {
    env::var("STROWGER_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(otherwise)
}

/// Kills the server at random moments under load, and looks what is there when it is back.
fn dies(sql: Sql, mode: &'static str, rounds: u32, load_ms: (u64, u64)) {
    let house = House::new(sql, mode).define("FLUSH_MS", &FLUSH.as_millis().to_string());
    dies_in(&house, mode, rounds, load_ms);
}

fn dies_in(house: &House, mode: &str, rounds: u32, load_ms: (u64, u64)) {
    let seed = seed();
    eprintln!("STROWGER_SEED={seed}");
    let mut random = Random(seed);
    let mut crowd = Crowd::new(house.address(), 2_000, random.below(u64::MAX));
    if mode == "2" {
        crowd = crowd.at_rate(PACE);
    }
    let mut server = house.start().spawn();
    let (mut accepted, began) = (0, Instant::now());
    for round in 1..=rounds {
        let lasting = Duration::from_millis(load_ms.0 + random.below(load_ms.1 - load_ms.0));
        let load = crowd.load(lasting);
        let died = Instant::now();
        server.kill_at_once();
        let last = crowd.server_died();
        accepted += load.accepted + last.accepted;
        eprintln!("round {round}: {load:?}, {} users registered", crowd.registered());
        server = house.start().spawn();
        crowd.check(match mode {
            "1" | "3" => Promise::WriteThrough,
            _ => Promise::WriteBack(died - FLUSH - FLUSH_TAKES - load.longest_silence),
        });
    }
    assert!(accepted > u64::from(rounds) * 20, "only {accepted} REGISTERs were accepted");
    eprintln!("{rounds} deaths, {accepted} REGISTERs, {:?}", began.elapsed());
    server.kill_at_once();
    house.expect_no_doubles();
}

#[test]
fn what_was_answered_survives_kill_9_on_sqlite() {
    only_strowger!("Kamailio promises less");
    dies(Sql::Sqlite, "1", kills(20), (50, 500));
}

#[test]
fn what_was_answered_survives_kill_9_on_postgresql() {
    only_strowger!("Kamailio promises less");
    dies(Sql::Postgres, "1", kills(5), (50, 500));
}

#[test]
fn what_was_answered_survives_kill_9_without_a_journal() {
    only_strowger!("Kamailio promises less");
    let house = House::with_database(Database::of_kamailio(Sql::Postgres), "1");
    dies_in(&house, "1", kills(5), (50, 500));
}

#[test]
fn what_was_answered_survives_kill_9_on_mariadb() {
    only_strowger!("Kamailio promises less");
    dies(Sql::MariaDb, "1", kills(5), (50, 500));
}

#[test]
fn what_was_answered_survives_kill_9_where_the_database_is_always_asked() {
    only_strowger!("Kamailio promises less");
    dies(Sql::Postgres, "3", kills(5), (50, 500));
}

#[test]
fn what_is_older_than_the_flush_interval_survives_kill_9_in_write_back() {
    only_strowger!("Kamailio promises less");
    for sql in Sql::ALL {
        dies(sql, "2", kills(10) / 5 + 1, (1_600, 2_800));
    }
}

#[test]
fn write_back_writes_all_when_it_is_told_to_stop() {
    only_strowger!("Kamailio promises less");
    for sql in Sql::ALL {
        let house = House::new(sql, "2");
        let mut crowd = Crowd::new(house.address(), 500, seed());
        for _ in 0..3 {
            let mut server = house.start().spawn();
            crowd.load(Duration::from_millis(300));
            crowd.settle();
            server.stop(Signal::Terminate);
            let status = server.wait_for_exit(Duration::from_secs(20));
            assert!(status.is_some_and(|status| status.success()), "{sql:?}: {status:?}\n{}", server.log());
            let server = house.start().spawn();
            crowd.check(Promise::WriteThrough);
            server.kill_at_once();
        }
        house.expect_no_doubles();
    }
}

#[test]
fn memory_mode_forgets() {
    only_strowger!("it needs a restart in place");
    let house = House::new(Sql::Sqlite, "0");
    let server = house.start().spawn();
    Phone::new(&server, "bob").register();
    server.kill_at_once();
    let server = house.start().spawn();
    let bob = Phone::new(&server, "bob");
    assert!(contacts(&bob).is_empty());
}

/// What a row has beside the contact: the path to it, where it really is, its device (RFC 3327, RFC 5627).
#[test]
fn all_that_a_binding_has_comes_back() {
    only_strowger!("it needs a restart in place");
    for sql in Sql::ALL {
        let house = House::new(sql, "1");
        let server = house.start().spawn();
        let (alice, bob) = (Phone::new(&server, "alice"), Phone::new(&server, "bob"));
        let instance = "\"<urn:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6>\"";
        let wanted = "sip:bob@192.0.2.77:5066;ob";
        let register = bob
            .register_request()
            .set("Contact", format!("<{wanted}>;q=0.7;+sip.instance={instance};reg-id=1;expires=900"))
            .with("Supported", "path")
            .with("Path", format!("<sip:{};lr>", bob.address()))
            .with("User-Agent", "a phone with \"quotes\" and 'apostrophes' and ünïcode \\ backslash");
        bob.send(&register);
        bob.expect_response(200, &register);
        server.kill_at_once();
        let server = house.start().spawn();
        let known = contacts(&bob);
        assert_eq!(known.len(), 1, "{sql:?}: {known:?}");
        for part in [wanted, "q=0.7"] {
            assert!(known[0].contains(part), "{sql:?}: {part} is not in {}", known[0]);
        }
        // The path leads to it: bob himself is on it, and gets the INVITE for the contact.
        let invite = alice.request("INVITE", &server.uri("bob"));
        alice.send(&invite);
        let arrived = bob.expect_request("INVITE");
        assert!(arrived.uri().starts_with(wanted), "{sql:?}:\n{arrived}");
        assert!(arrived.header("Route").contains(&bob.address().to_string()), "{sql:?}:\n{arrived}");
        bob.answer(&arrived, 486, "Busy Here");
        let answer = alice.expect_response(486, &invite);
        alice.acknowledge(&invite, &answer);
        drop(server);
    }
}

/// RFC 3261 §10.3 step 7: what is ordered by CSeq stays so.
#[test]
fn an_older_cseq_is_refused_after_a_restart() {
    only_strowger!("it needs a restart in place");
    let house = House::new(Sql::Sqlite, "1");
    let server = house.start().spawn();
    let bob = Phone::new(&server, "bob");
    let register = |cseq: u32, expires: u32| {
        let contact = format!("<{}>;expires={expires}", bob.contact());
        let register = bob.register_request().set("Contact", contact);
        register.set("Call-ID", "the-same-call").set("CSeq", format!("{cseq} REGISTER"))
    };
    let newer = register(7, 600);
    bob.send(&newer);
    bob.expect_response(200, &newer);
    server.kill_at_once();
    let _server = house.start().spawn();
    let older = register(6, 0);
    bob.send(&older);
    let answer = bob.receive(end_to_end::PATIENCE).expect("an answer");
    assert!(answer.status().is_some_and(|status| status >= 400), "{answer}");
    assert_eq!(contacts(&bob).len(), 1);
}

/// The thesis's zombies: what expired while nobody ran is not served, and its rows go.
#[test]
fn what_expired_during_an_outage_is_gone() {
    only_strowger!("it needs a restart in place");
    for sql in Sql::ALL {
        let house = House::new(sql, "1");
        let server = house.start().spawn();
        let bob = Phone::new(&server, "bob");
        bob.register_contact("<sip:bob@127.0.0.1:5091>;expires=2");
        bob.register_contact("<sip:bob@127.0.0.1:5092>;expires=600");
        server.kill_at_once();
        std::thread::sleep(Duration::from_millis(4_100));
        let _server: Server = house.start().spawn();
        let known = contacts(&bob);
        assert_eq!(known.len(), 1, "{sql:?}: {known:?}");
        assert!(known[0].contains("5092"), "{sql:?}: {known:?}");
    }
}

/// A million bindings are for the benchmarks; here it is that many come back whole.
#[test]
fn fifty_thousand_bindings_come_back() {
    only_strowger!("it needs a restart in place");
    let house = House::new(Sql::Sqlite, "2");
    drop(house.start().spawn());
    house.database.run(&format!(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 50000) \
         INSERT INTO location (ruid, username, domain, contact, expires, q, callid, cseq, last_modified, user_agent) \
         SELECT 'uloc-' || i, 'user' || i, '{ip}', 'sip:user' || i || '@127.0.0.1:5099', \
         (strftime('%s', 'now') + 3600) * 1000000, 1.0, 'call' || i, 1, strftime('%s', 'now') * 1000000, 'a phone' FROM n;",
        ip = house.address().ip()
    ));
    let server = house.start().spawn();
    for number in [1, 25_000, 50_000] {
        let phone = Phone::new(&server, &format!("user{number}"));
        assert_eq!(contacts(&phone).len(), 1, "user{number}");
    }
}
