//! Databases that fail: calls go on, registered users are found, users who were authenticated a moment ago still are, what
//! needs the database is answered 503 with Retry-After, and nothing is lost when it is back.
//!
//! `STROWGER_PAUSE` says for how many seconds a database stands still (5 unless it says otherwise).

use std::env;
use std::thread;
use std::time::{Duration, Instant};

use end_to_end::{
    Algorithm, Cable, Challenge, Crowd, Database, Digest, House, Message, PATIENCE, Phone, Promise, SIP_PORT,
    Scratch, Server, Signal, Sql, Start, Subscriber, contacts, final_answer, loopback, only_strowger,
    strowger,
};

/// How long a server may take to find that its database is back.
const BACK: Duration = Duration::from_secs(30);

fn pause() -> Duration {
    let given = env::var("STROWGER_PAUSE").ok().and_then(|seconds| seconds.parse().ok());
    Duration::from_secs(given.unwrap_or(5))
}

/// Two users who talk to each other, and one whom the server has never heard of.
struct Neighbours {
    alice: Phone,
    bob: Phone,
    carol: Phone,
}

fn subscriber(phone: &str) -> Subscriber {
    Subscriber::new(phone, &format!("password of {phone}"))
}

fn name(phone: &Phone) -> Subscriber {
    let record = phone.address_of_record();
    subscriber(record.trim_start_matches("sip:").split('@').next().unwrap_or_default())
}

impl Neighbours {
    /// Alice and bob are registered and have talked, so that the server knows them.
    fn new(house: &House, server: &Server) -> Self {
        for user in ["alice", "bob", "carol"] {
            house.add_user(user, &subscriber(user).password);
        }
        let phone = |user| Phone::new(server, user);
        let neighbours = Self { alice: phone("alice"), bob: phone("bob"), carol: phone("carol") };
        for phone in [&neighbours.alice, &neighbours.bob] {
            name(phone).register(phone);
        }
        neighbours.talk();
        neighbours
    }

    /// Alice calls bob, who hangs up.
    fn talk(&self) {
        let invite = self.alice.request("INVITE", &self.bob.address_of_record());
        let answer = name(&self.alice).challenged(&self.alice, &invite);
        let digest = Digest::to(&Challenge::find(&answer, Algorithm::Md5), &invite, &name(&self.alice));
        let invite = digest.apply(&self.alice, &invite);
        self.alice.send(&invite);
        let arrived = self.bob.expect_request("INVITE");
        self.bob.answer(&arrived, 486, "Busy Here");
        let answer = self.alice.expect_response(486, &invite);
        self.alice.acknowledge(&invite, &answer);
        self.bob.expect_request("ACK");
    }

    /// What needs the database is refused for a while.
    fn expect_unavailable(&self) {
        for phone in [&self.bob, &self.carol] {
            let answer = register(phone);
            assert!(matches!(answer.status(), Some(500 | 503)), "the database is away:\n{answer}");
            assert!(answer.find("Retry-After").is_some(), "when to come again?\n{answer}");
        }
    }

    /// It is not any more.
    fn expect_recovery(&self) {
        let deadline = Instant::now() + BACK;
        for phone in [&self.bob, &self.carol] {
            loop {
                let answer = register(phone);
                if answer.status() == Some(200) {
                    break;
                }
                assert!(Instant::now() < deadline, "the database is back:\n{answer}");
                thread::sleep(Duration::from_millis(200));
            }
        }
    }
}

/// A REGISTER with credentials; the answer.
fn register(phone: &Phone) -> Message {
    let request = phone.register_request();
    phone.send(&request);
    let answer = final_answer(phone, &request);
    if answer.status() != Some(401) {
        return answer;
    }
    let digest = Digest::to(&Challenge::find(&answer, Algorithm::Md5), &request, &name(phone));
    let with = digest.apply(phone, &request);
    phone.send(&with);
    final_answer(phone, &with)
}

/// Lines of a log that speak of the database.
fn lines_about_it(log: &str) -> Vec<String> {
    let lines = log.lines().filter(|line| line.to_ascii_lowercase().contains("database"));
    lines.map(str::to_owned).collect()
}

/// The same as soon as there are more than so many: the log is written by a thread of its own.
fn lines_after(server: &Server, before: usize, news: &str) -> Vec<String> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let log = server.log();
        let lines = lines_about_it(&log);
        if lines.len() > before {
            return lines;
        }
        assert!(Instant::now() < deadline, "nothing in the log says that the database is {news}:\n{log}");
        thread::sleep(Duration::from_millis(20));
    }
}

fn expect_no_secrets(server: &Server) {
    let log = server.log();
    for secret in Database::secrets() {
        assert!(!log.contains(secret), "the password of the database is in the log:\n{log}");
    }
}

/// The server without its database for a while, and after it.
fn lives_through(
    house: &mut House,
    goes: impl FnOnce(&mut Database),
    comes_back: impl FnOnce(&mut Database),
) {
    let server = house.start().spawn();
    let neighbours = Neighbours::new(house, &server);
    let before = lines_about_it(&server.log()).len();
    goes(&mut house.database);
    neighbours.talk();
    neighbours.expect_unavailable();
    neighbours.talk();
    // It knows by now; it need not say it for every message.
    neighbours.expect_unavailable();
    neighbours.talk();
    let away = lines_after(&server, before, "away");
    assert!(away.len() - before <= 3, "one line is enough:\n{}", away.join("\n"));
    comes_back(&mut house.database);
    neighbours.expect_recovery();
    let back = lines_after(&server, away.len(), "back");
    // A line of the first kind may have come late.
    assert!(back.len() - before <= 6, "one line of each is enough:\n{}", back.join("\n"));
    neighbours.talk();
    expect_no_secrets(&server);
    server.kill_at_once();
    let _server = house.start().spawn();
    neighbours.talk();
    house.expect_no_doubles();
}

/// With passwords, and one shard: each has its own memory of them.
fn house(sql: Sql) -> House {
    House::new(sql, "1").define("WITH_AUTH", "").arguments(&["--shards", "1"])
}

#[test]
fn a_database_that_is_stopped_and_started_again() {
    only_strowger!("how outages are lived through is ours");
    for sql in Sql::SERVERS {
        lives_through(&mut house(sql), Database::stop, Database::start);
    }
}

#[test]
fn a_database_that_is_killed_and_started_again() {
    only_strowger!("how outages are lived through is ours");
    for sql in Sql::SERVERS {
        lives_through(&mut house(sql), Database::kill, Database::start);
    }
}

fn stands_still(sql: Sql) {
    let began = Instant::now();
    lives_through(&mut house(sql), Database::pause, |database| {
        thread::sleep(pause().saturating_sub(began.elapsed()));
        database.resume();
    });
}

#[test]
fn a_postgresql_that_stands_still() {
    only_strowger!("how outages are lived through is ours");
    stands_still(Sql::Postgres);
}

#[test]
fn a_mariadb_that_stands_still() {
    only_strowger!("how outages are lived through is ours");
    stands_still(Sql::MariaDb);
}

/// A house whose database is at the end of a cable.
fn with_cable(sql: Sql) -> (House, Cable) {
    let house = house(sql);
    let cable = Cable::to(house.database.address());
    let url = format!("\"{}\"", house.database.url_at(cable.address()));
    (house.define("DB_URL", &url), cable)
}

#[test]
fn a_database_that_takes_ten_seconds() {
    only_strowger!("how outages are lived through is ours");
    for sql in Sql::SERVERS {
        let (mut house, cable) = with_cable(sql);
        lives_through(&mut house, |_| cable.delay(Duration::from_secs(10)), |_| cable.delay(Duration::ZERO));
    }
}

#[test]
fn a_database_that_refuses_connections() {
    only_strowger!("how outages are lived through is ours");
    for sql in Sql::SERVERS {
        let (mut house, cable) = with_cable(sql);
        lives_through(
            &mut house,
            |_| cable.refuse(),
            |_| {
                // It was tried again, but not for every message.
                let tried = cable.connections();
                assert!(tried < 200, "{tried} connections: no backoff");
                cable.admit();
            },
        );
    }
}

/// What is on its way when a connection breaks is done or not; either way nobody is told what is not so.
#[test]
fn connections_that_break_in_mid_query_lose_nothing() {
    only_strowger!("how outages are lived through is ours");
    for sql in Sql::SERVERS {
        let house = House::new(sql, "1");
        let cable = Cable::to(house.database.address());
        let house = house.define(
            "DB_URL",
            &format!("\"{}\"", {
                let database = &cable;
                url_through(sql, database)
            }),
        );
        let server = house.start().spawn();
        let mut crowd = crowd(&house, 500);
        let mut accepted = 0;
        for _ in 0..12 {
            accepted += crowd.load(Duration::from_millis(250)).accepted;
            cable.cut();
        }
        crowd.settle();
        // Everybody can be asked for, whatever happened to his last request.
        crowd.check(Promise::WriteThrough);
        assert!(accepted > 100, "only {accepted} were accepted");
        expect_no_secrets(&server);
        server.kill_at_once();
        let server = house.start().spawn();
        crowd.check(Promise::WriteThrough);
        server.kill_at_once();
        house.expect_no_doubles();
    }
}

fn url_through(sql: Sql, cable: &Cable) -> String {
    let scheme = if sql == Sql::Postgres { "postgres" } else { "mysql" };
    format!("{scheme}://strowger:{}@{}/strowger", Database::secrets()[1], cable.address())
}

fn crowd(house: &House, users: usize) -> Crowd {
    Crowd::new(house.address(), users, 5)
}

/// Power cuts of the database itself, under load: what was answered 200 is on its disk.
#[test]
fn a_database_that_is_killed_under_load_loses_nothing() {
    only_strowger!("how outages are lived through is ours");
    for sql in Sql::SERVERS {
        let mut house = House::new(sql, "1");
        let server = house.start().spawn();
        let mut crowd = crowd(&house, 500);
        for _ in 0..3 {
            crowd.load(Duration::from_millis(400));
            house.database.kill();
            let load = crowd.load(Duration::from_millis(400));
            house.database.start();
            eprintln!("{sql:?} away: {load:?}");
        }
        crowd.settle();
        server.kill_at_once();
        let server = house.start().spawn();
        crowd.check(Promise::WriteThrough);
        server.kill_at_once();
        house.expect_no_doubles();
    }
}

#[test]
fn write_back_catches_up_after_an_outage() {
    only_strowger!("how outages are lived through is ours");
    for sql in Sql::SERVERS {
        let mut house = House::new(sql, "2").define("FLUSH_MS", "200");
        let mut server = house.start().spawn();
        let mut crowd = crowd(&house, 500);
        crowd.load(Duration::from_millis(300));
        house.database.kill();
        let load = crowd.load(Duration::from_millis(1_500));
        assert_eq!(load.unavailable, 0, "{sql:?}: registering does not need the database");
        assert!(load.accepted > 100, "{sql:?}: {load:?}");
        house.database.start();
        crowd.load(Duration::from_millis(300));
        crowd.settle();
        crowd.check(Promise::WriteThrough);
        server.stop(Signal::Terminate);
        let status = server.wait_for_exit(BACK);
        assert!(status.is_some_and(|status| status.success()), "{sql:?}: {status:?}\n{}", server.log());
        let server = house.start().spawn();
        crowd.check(Promise::WriteThrough);
        server.kill_at_once();
        house.expect_no_doubles();
    }
}

#[test]
fn a_server_that_cannot_flush_ends_all_the_same_and_says_so() {
    only_strowger!("how outages are lived through is ours");
    let mut house = House::new(Sql::Postgres, "2").define("FLUSH_MS", "200");
    let mut server = house.start().spawn();
    let bob = Phone::new(&server, "bob");
    bob.register();
    house.database.kill();
    bob.register_contact("<sip:bob@127.0.0.1:5091>");
    server.stop(Signal::Terminate);
    let status = server.wait_for_exit(Duration::from_secs(60));
    assert!(status.is_some(), "it waits for ever:\n{}", server.log());
    assert!(!lines_about_it(&server.log()).is_empty(), "what is lost is not said:\n{}", server.log());
    expect_no_secrets(&server);
}

/// Bindings are kept in memory, so what one writes the other does not see: the later one is taken for the right one.
#[test]
fn of_two_servers_on_the_same_tables_the_later_one_writes() {
    only_strowger!("Kamailio lets both write");
    for sql in Sql::SERVERS {
        let house = House::new(sql, "1");
        let mut earlier = house.start().spawn();
        Phone::new(&earlier, "alice").register();
        let elsewhere = Scratch::new("state");
        let start = Start::configuration_at("registrar-db", (loopback(), SIP_PORT).into());
        let url = house.database.url();
        let start = start.define("DB_MODE", "1").define("DB_URL", &format!("\"{url}\""));
        let later = start.state(elsewhere.path()).spawn();
        let bob = Phone::new(&later, "bob");
        bob.register();
        assert_eq!(contacts(&Phone::new(&later, "alice")).len(), 1, "{sql:?}");

        let alice = Phone::new(&earlier, "alice");
        let answer = register(&alice);
        assert_eq!(answer.status(), Some(503), "{sql:?}: {answer}");
        earlier.expect_log("another server has taken over");
        later.expect_log("its connection has been ended");

        let nowhere = Scratch::new("state");
        let run = |command: &[&str]| strowger(nowhere.path(), &[command, &["--db", &url]].concat(), "");
        let listed = run(&["contacts", "list"]);
        let text = String::from_utf8_lossy(&listed.stdout);
        assert!(
            listed.status.success() && text.contains("alice") && text.contains("a server writes"),
            "{text}"
        );
        let removed = run(&["contacts", "rm", "alice"]);
        assert!(!removed.status.success(), "{sql:?}: {removed:?}");

        later.kill_at_once();
        let deadline = Instant::now() + BACK;
        while register(&alice).status() != Some(200) {
            assert!(Instant::now() < deadline, "{sql:?}: {}", earlier.log());
            thread::sleep(Duration::from_millis(100));
        }
        earlier.stop(Signal::Terminate);
        house.expect_no_doubles();
    }
}

#[test]
fn tables_that_vanish_and_return() {
    only_strowger!("how outages are lived through is ours");
    for sql in Sql::SERVERS {
        let house = House::with_database(Database::of_kamailio(sql), "1");
        let server = house.start().spawn();
        let (alice, bob) = (Phone::new(&server, "alice"), Phone::new(&server, "bob"));
        bob.register();
        house.database.run(
            "DROP TABLE location; DROP TABLE IF EXISTS location_attrs; \
             DELETE FROM version WHERE table_name IN ('location', 'location_attrs');",
        );
        let answer = registers(&alice);
        assert!(matches!(answer.status(), Some(500 | 503)), "{sql:?}: where is it kept?\n{answer}");
        assert!(answer.find("Retry-After").is_some(), "{sql:?}:\n{answer}");
        // Bob is still there, in memory.
        call(&alice, &bob);
        house.database.make_kamailio_table("usrloc");
        let deadline = Instant::now() + BACK;
        loop {
            let answer = registers(&alice);
            if answer.status() == Some(200) {
                break;
            }
            assert!(Instant::now() < deadline, "{sql:?}: the table is back:\n{answer}");
            thread::sleep(Duration::from_millis(200));
        }
        server.kill_at_once();
        let server = house.start().spawn();
        assert_eq!(contacts(&Phone::new(&server, "alice")).len(), 1, "{sql:?}: alice was told 200");
    }
}

/// From now on the tables may be read only, or written again.
fn set_read_only(database: &Database, is: bool) {
    match (database.sql(), is) {
        (Sql::Postgres, true) => {
            database.run("ALTER DATABASE strowger SET default_transaction_read_only = on;");
            // It counts for new sessions.
            database.cut_connections();
        }
        (Sql::Postgres, false) => {
            database.run(
                "SET default_transaction_read_only = off; \
                 ALTER DATABASE strowger RESET default_transaction_read_only;",
            );
            database.cut_connections();
        }
        _ => {
            database.run(&format!("SET GLOBAL read_only = {};", u8::from(is)));
        }
    }
}

/// A REGISTER without credentials; the answer.
fn registers(phone: &Phone) -> Message {
    let request = phone.register_request();
    phone.send(&request);
    final_answer(phone, &request)
}

/// Alice calls bob, who is busy.
fn call(alice: &Phone, bob: &Phone) {
    let invite = alice.request("INVITE", &bob.address_of_record());
    alice.send(&invite);
    let arrived = bob.expect_request("INVITE");
    bob.answer(&arrived, 486, "Busy Here");
    let answer = alice.expect_response(486, &invite);
    alice.acknowledge(&invite, &answer);
    bob.expect_request("ACK");
}

#[test]
fn a_database_that_becomes_read_only_refuses_registers_and_nothing_else() {
    only_strowger!("how outages are lived through is ours");
    for sql in Sql::SERVERS {
        let house = House::new(sql, "1");
        let server = house.start().spawn();
        let (alice, bob) = (Phone::new(&server, "alice"), Phone::new(&server, "bob"));
        bob.register();
        set_read_only(&house.database, true);
        let answer = registers(&alice);
        assert!(matches!(answer.status(), Some(500 | 503)), "{sql:?}: where is it kept?\n{answer}");
        assert!(answer.find("Retry-After").is_some(), "{sql:?}:\n{answer}");
        call(&alice, &bob);
        set_read_only(&house.database, false);
        let deadline = Instant::now() + BACK;
        loop {
            let answer = registers(&alice);
            if answer.status() == Some(200) {
                break;
            }
            assert!(Instant::now() < deadline, "{sql:?}: it can be written again:\n{answer}");
            thread::sleep(Duration::from_millis(200));
        }
        server.kill_at_once();
        let server = house.start().spawn();
        for phone in ["alice", "bob"] {
            assert_eq!(contacts(&Phone::new(&server, phone)).len(), 1, "{sql:?}: {phone} was told 200");
        }
        house.expect_no_doubles();
    }
}

/// Where REGISTERs do not wait for the database they do not notice; what they changed is written when it can be.
fn write_back_waits(house: &House, goes: impl FnOnce(&Database), comes_back: impl FnOnce(&Database)) {
    let sql = house.database.sql();
    let server = house.start().spawn();
    let (alice, bob) = (Phone::new(&server, "alice"), Phone::new(&server, "bob"));
    bob.register();
    let before = lines_about_it(&server.log()).len();
    goes(&house.database);
    assert_eq!(registers(&alice).status(), Some(200), "{sql:?}: registering does not need the database");
    call(&alice, &bob);
    lines_after(&server, before, "not written to");
    comes_back(&house.database);
    let is_there = "SELECT COUNT(*) FROM location WHERE username = 'alice';";
    let deadline = Instant::now() + BACK;
    while house.database.number(is_there) != 1 {
        assert!(Instant::now() < deadline, "{sql:?}: it can be written to:\n{}", server.log());
        thread::sleep(Duration::from_millis(200));
    }
    server.kill_at_once();
    let server = house.start().spawn();
    assert_eq!(contacts(&Phone::new(&server, "alice")).len(), 1, "{sql:?}");
    house.expect_no_doubles();
}

#[test]
fn write_back_waits_for_a_database_that_is_read_only() {
    only_strowger!("how outages are lived through is ours");
    for sql in Sql::SERVERS {
        let house = House::new(sql, "2").define("FLUSH_MS", "200");
        write_back_waits(&house, |it| set_read_only(it, true), |it| set_read_only(it, false));
    }
}

#[test]
fn write_back_waits_for_a_table_that_vanished() {
    only_strowger!("how outages are lived through is ours");
    for sql in Sql::SERVERS {
        let house = House::with_database(Database::of_kamailio(sql), "2").define("FLUSH_MS", "200");
        write_back_waits(
            &house,
            |it| {
                it.run("ALTER TABLE location RENAME TO away;");
            },
            |it| {
                it.run("ALTER TABLE away RENAME TO location;");
            },
        );
    }
}

/// What a refused start must say.
fn refused(house: &House, mentions: &[&str]) -> String {
    eprintln!("{:?} must be refused with {mentions:?}", house.database.sql());
    let (code, said) = house.start().begin().expect_refusal();
    assert!(matches!(code, Some(1 | 2)), "{code:?}:\n{said}");
    for mention in mentions {
        assert!(said.contains(mention), "{mention} is not in:\n{said}");
    }
    for secret in Database::secrets() {
        assert!(!said.contains(secret), "the password is in:\n{said}");
    }
    said
}

#[test]
fn a_database_that_is_not_there_at_start_is_named() {
    only_strowger!("messages at start are ours");
    for sql in Sql::SERVERS {
        let mut house = House::new(sql, "1");
        house.database.stop();
        let address = house.database.address();
        refused(&house, &["127.0.0.1", &address.port().to_string()]);
    }
}

#[test]
fn a_wrong_password_of_the_database_is_named_and_not_told() {
    only_strowger!("messages at start are ours");
    for sql in Sql::SERVERS {
        let house = House::new(sql, "1");
        let url = house.database.plain_url();
        let said = refused(
            &house.define("DB_URL", &format!("\"{}\"", url.replace("plain", "mistaken"))),
            &["strowger"],
        );
        assert!(!said.contains("mistaken"), "{said}");
    }
}

#[test]
fn a_schema_that_does_not_fit_is_named_with_what_to_do() {
    only_strowger!("messages at start are ours");
    for sql in Sql::SERVERS {
        let house = House::with_database(Database::of_kamailio(sql), "1");
        house.database.run("UPDATE version SET table_version = 7 WHERE table_name = 'location';");
        refused(&house, &["location", "7", "9"]);
        house.database.run("UPDATE version SET table_version = 9 WHERE table_name = 'location';");
        house.database.run("ALTER TABLE location DROP COLUMN ruid;");
        refused(&house, &["location", "ruid"]);
        house.database.run("DROP TABLE location;");
        refused(&house, &["location"]);
    }
}

#[test]
fn a_database_without_tables_is_told_how_to_make_them() {
    only_strowger!("messages at start are ours");
    for sql in Sql::SERVERS {
        let house = House::with_database(Database::new(sql), "1");
        refused(&house, &["strowger db"]);
    }
}
