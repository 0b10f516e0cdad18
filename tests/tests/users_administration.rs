//! What an administrator does from the command line: users and contacts, with a server that runs and without one.

use std::process::Output;
use std::thread;
use std::time::{Duration, Instant};

use end_to_end::{
    Algorithm, Challenge, Database, Digest, House, PATIENCE, Phone, Server, Sql, Subscriber, contacts,
    final_answer, only_strowger, strowger,
};
use serde_json::Value;

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A server and the commands that belong to it.
struct Exchange {
    house: House,
    url: String,
}

impl Exchange {
    fn new() -> Self {
        let house = House::new(Sql::Sqlite, "1").define("WITH_AUTH", "");
        let url = house.database.url();
        Self { house, url }
    }

    fn run(&self, arguments: &[&str], input: &str) -> Output {
        let place = ["--db", self.url.as_str()];
        let arguments: Vec<&str> = arguments.iter().chain(&place).copied().collect();
        strowger(self.house.state(), &arguments, input)
    }

    /// It must succeed; what it prints.
    fn does(&self, arguments: &[&str], input: &str) -> String {
        let output = self.run(arguments, input);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        assert_eq!(errors(&output), "", "{arguments:?}");
        said(&output)
    }

    /// It must fail with one line that mentions this.
    fn refuses(&self, arguments: &[&str], input: &str, mention: &str) {
        let output = self.run(arguments, input);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {output:?}");
        let why = errors(&output);
        assert_eq!(why.trim_end().lines().count(), 1, "{why}");
        assert!(why.contains(mention), "{mention} is not in: {why}");
        assert_eq!(said(&output), "", "{arguments:?}");
    }

    fn json(&self, arguments: &[&str]) -> Vec<Value> {
        let text = self.does(arguments, "");
        let value: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        value.as_array().unwrap_or_else(|| panic!("no array: {text}")).clone()
    }

    /// A name of a user of this server.
    fn name(&self, user: &str) -> String {
        format!("{user}@{}", self.house.address().ip())
    }
}

/// The status that a REGISTER with this password gets.
fn registers(phone: &Phone, user: &str, password: &str) -> Option<u16> {
    let request = phone.register_request();
    let who = Subscriber::new(user, password);
    let answer = who.challenged(phone, &request);
    let digest = Digest::to(&Challenge::find(&answer, Algorithm::Md5), &request, &who);
    let with = digest.apply(phone, &request);
    phone.send(&with);
    final_answer(phone, &with).status()
}

#[test]
fn users_are_added_listed_changed_and_removed_without_a_server() {
    only_strowger!("the command line is ours");
    let exchange = Exchange::new();
    exchange.does(&["user", "add", "bob@example.org", "--password-stdin"], "first\n");
    exchange.does(&["user", "add", "alice", "--domain", "example.org", "--password-stdin"], "hers");
    exchange.refuses(&["user", "add", "bob@example.org", "--password-stdin"], "again\n", "bob@example.org");
    let listed = exchange.json(&["user", "list", "--json"]);
    let names: Vec<_> =
        listed.iter().map(|user| (user["username"].as_str(), user["domain"].as_str())).collect();
    assert_eq!(names, [(Some("alice"), Some("example.org")), (Some("bob"), Some("example.org"))]);
    let table = exchange.does(&["user", "list"], "");
    assert!(table.contains("alice") && table.contains("bob") && table.contains("2 users"), "{table}");
    let ha1 = |password: &str| Algorithm::Md5.hash(&format!("bob:example.org:{password}"));
    let stored = || exchange.house.database.run("SELECT ha1 FROM subscriber WHERE username = 'bob';");
    assert_eq!(stored().trim(), ha1("first"));
    exchange.does(&["user", "passwd", "bob@example.org", "--password-stdin"], "second\n");
    assert_eq!(stored().trim(), ha1("second"));
    exchange.does(&["user", "del", "bob@example.org"], "");
    exchange.refuses(&["user", "del", "bob@example.org"], "", "bob@example.org");
    exchange.refuses(&["user", "passwd", "bob@example.org", "--password-stdin"], "x\n", "bob@example.org");
    assert_eq!(exchange.json(&["user", "list", "--json"]).len(), 1);
}

#[test]
fn passwords_are_not_kept_nor_shown_unless_asked_for() {
    only_strowger!("the command line is ours");
    let exchange = Exchange::new();
    let secret = "a s\u{e4}fe \"pass\\word\"";
    exchange.does(&["user", "add", "bob@example.org", "--password-stdin"], &format!("{secret}\n"));
    let stored = exchange.house.database.run("SELECT * FROM subscriber;");
    assert!(!stored.contains(secret), "{stored}");
    let realm_secret = format!("bob:example.org:{secret}");
    for algorithm in Algorithm::ALL {
        assert!(stored.contains(&algorithm.hash(&realm_secret)), "no {}: {stored}", algorithm.name());
    }
    for arguments in [["user", "list"].as_slice(), &["user", "list", "--json"]] {
        let shown = exchange.does(arguments, "");
        for hash in Algorithm::ALL.map(|algorithm| algorithm.hash(&realm_secret)) {
            assert!(!shown.contains(&hash), "a hash is as good as a password: {shown}");
        }
    }
    exchange
        .does(&["user", "add", "carol@example.org", "--password-stdin", "--clear"], &format!("{secret}\n"));
    assert!(exchange.house.database.run("SELECT password FROM subscriber;").contains(secret));
}

#[test]
fn what_is_no_user_and_no_password_is_refused() {
    only_strowger!("the command line is ours");
    let exchange = Exchange::new();
    let long = "x".repeat(300);
    for name in [
        "",
        "two words@example.org",
        "bob@",
        "@example.org",
        "semi;colon@example.org",
        "a\"b@example.org",
        &long,
    ] {
        exchange.refuses(&["user", "add", name, "--password-stdin"], "x\n", "strowger: ");
    }
    exchange.refuses(&["user", "add", "bob@example.org", "--password-stdin"], "", "password");
    exchange.refuses(&["user", "add", "bob@example.org", "--password-stdin"], "\n", "password");
    // Nobody is there to be asked.
    exchange.refuses(&["user", "add", "bob@example.org"], "", "--password-stdin");
    assert!(exchange.json(&["user", "list", "--json"]).is_empty());
}

#[test]
fn what_looks_like_sql_is_a_name_like_others() {
    only_strowger!("the command line is ours");
    let exchange = Exchange::new();
    let name = "bob'--@example.org";
    exchange.does(&["user", "add", name, "--password-stdin"], "'; DROP TABLE subscriber; --\n");
    assert_eq!(exchange.json(&["user", "list", "--json"]).len(), 1);
    exchange.does(&["user", "del", name], "");
}

#[test]
fn a_running_server_knows_at_once() {
    only_strowger!("the command line is ours");
    let exchange = Exchange::new();
    let server = exchange.house.start().spawn();
    let bob = Phone::new(&server, "bob");
    assert_eq!(registers(&bob, "bob", "first"), Some(401), "no such user");
    exchange.does(&["user", "add", &exchange.name("bob"), "--password-stdin"], "first\n");
    assert_eq!(registers(&bob, "bob", "first"), Some(200));
    exchange.does(&["user", "passwd", &exchange.name("bob"), "--password-stdin"], "second\n");
    assert_eq!(registers(&bob, "bob", "first"), Some(401), "the old password");
    assert_eq!(registers(&bob, "bob", "second"), Some(200));
    exchange.does(&["user", "del", &exchange.name("bob")], "");
    assert_eq!(registers(&bob, "bob", "second"), Some(401), "removed");
}

#[test]
fn tables_are_read_again_when_told_to() {
    only_strowger!("the command line is ours");
    let exchange = Exchange::new();
    let run = |arguments: &[&str]| strowger(exchange.house.state(), arguments, "");
    let nobody = run(&["reload"]);
    assert_eq!(nobody.status.code(), Some(1), "{nobody:?}");
    assert!(
        errors(&nobody).contains("no server runs") && errors(&nobody).contains("--state-dir"),
        "{nobody:?}"
    );
    let domains = "loadmodule \"domain.so\"\nmodparam(\"domain\", \"db_url\", DB_URL)\n\n";
    let _server = exchange.house.start().inserting("request_route {", domains).spawn();
    exchange.house.database.run("INSERT INTO domain (domain, did) VALUES ('example.org', 'example.org');");
    let read = run(&["reload", "--json"]);
    assert!(read.status.success() && errors(&read).is_empty(), "{read:?}");
    let read: Value = serde_json::from_str(&said(&read)).expect("JSON");
    assert_eq!((read[0]["what"].as_str(), read[0]["count"].as_u64()), (Some("domains"), Some(1)), "{read}");
    let read = said(&run(&["reload"]));
    assert!(read.contains("domains") && read.contains("domain_attrs"), "{read}");
    exchange.house.database.run("ALTER TABLE domain RENAME TO gone;");
    let refused = run(&["reload"]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(errors(&refused).contains("the domains stay as they are"), "{refused:?}");
}

#[test]
fn a_list_for_programs_that_ends_before_its_time_says_so_beside_it() {
    only_strowger!("the command line is ours");
    let (exchange, _server) = inhabited();
    for user in ["a@example.org", "b@example.org"] {
        exchange.does(&["user", "add", user, "--password-stdin"], "x\n");
    }
    for list in ["user", "contacts"] {
        let listed = exchange.run(&[list, "list", "--json", "--limit", "1"], "");
        assert!(listed.status.success(), "{listed:?}");
        assert!(errors(&listed).contains("there are more: --limit 0"), "{listed:?}");
        let value: Value = serde_json::from_str(&said(&listed)).expect("JSON, and nothing else");
        assert_eq!(value.as_array().map(Vec::len), Some(1), "{value}");
        exchange.json(&[list, "list", "--json", "--limit", "0"]);
    }
}

/// A server with two users who have three contacts.
fn inhabited() -> (Exchange, Server) {
    let mut exchange = Exchange::new();
    exchange.house = House::new(Sql::Sqlite, "1");
    exchange.url = exchange.house.database.url();
    let server = exchange.house.start().spawn();
    let bob = Phone::new(&server, "bob");
    bob.register_contact("<sip:bob@192.0.2.1:5060>;q=0.5;expires=600, <sip:bob@192.0.2.2:5060>;expires=900");
    Phone::new(&server, "alice").register_contact("<sip:alice@192.0.2.3:5060>;expires=600");
    (exchange, server)
}

/// The contacts of what is listed.
fn uris(listed: &[Value]) -> Vec<String> {
    let mut uris: Vec<String> =
        listed.iter().map(|contact| contact["contact"].as_str().unwrap_or_default().to_owned()).collect();
    uris.sort();
    uris
}

const ALL: [&str; 3] = ["sip:alice@192.0.2.3:5060", "sip:bob@192.0.2.1:5060", "sip:bob@192.0.2.2:5060"];

#[test]
fn contacts_are_listed_shown_and_removed_while_a_server_runs() {
    only_strowger!("the command line is ours");
    let (exchange, server) = inhabited();
    assert_eq!(uris(&exchange.json(&["contacts", "list", "--json"])), ALL);
    let shown = exchange.json(&["contacts", "show", "bob", "--json"]);
    assert_eq!(uris(&shown), ALL[1..]);
    let first = shown.iter().find(|contact| contact["contact"] == ALL[1]).expect("the first contact");
    assert_eq!(first["q"].as_f64(), Some(0.5), "{first}");
    assert!(first["expires_in"].as_u64().is_some_and(|seconds| (540..=600).contains(&seconds)), "{first}");
    for arguments in [["contacts", "list"].as_slice(), &["contacts", "show", "bob"]] {
        let table = exchange.does(arguments, "");
        assert!(table.contains(ALL[1]) && table.contains(ALL[2]), "{table}");
    }
    exchange.does(&["contacts", "rm", "bob", ALL[1]], "");
    let bob = Phone::new(&server, "bob");
    assert_eq!(contacts(&bob).len(), 1, "the server has forgotten it");
    exchange.refuses(&["contacts", "rm", "bob", ALL[1]], "", "bob");
    exchange.does(&["contacts", "rm", "alice"], "");
    assert_eq!(uris(&exchange.json(&["contacts", "list", "--json"])), ALL[2..]);
    exchange.refuses(&["contacts", "rm", "nobody"], "", "nobody");
    // And so has the database.
    server.kill_at_once();
    let _server = exchange.house.start().spawn();
    assert_eq!(uris(&exchange.json(&["contacts", "list", "--json"])), ALL[2..]);
}

#[test]
fn contacts_are_listed_shown_and_removed_without_a_server() {
    only_strowger!("the command line is ours");
    let (exchange, server) = inhabited();
    server.kill_at_once();
    assert_eq!(uris(&exchange.json(&["contacts", "list", "--json"])), ALL);
    assert_eq!(uris(&exchange.json(&["contacts", "show", "bob", "--json"])), ALL[1..]);
    exchange.does(&["contacts", "rm", "bob", ALL[1]], "");
    exchange.refuses(&["contacts", "rm", "bob", ALL[1]], "", "bob");
    let server = exchange.house.start().spawn();
    assert_eq!(contacts(&Phone::new(&server, "bob")).len(), 1);
    assert_eq!(contacts(&Phone::new(&server, "alice")).len(), 1);
}

/// Names of users come from the network, and the terminal obeys what it is sent.
#[test]
fn a_hostile_registration_does_not_reach_the_terminal() {
    only_strowger!("the command line is ours");
    let (exchange, server) = inhabited();
    let mallory = Phone::new(&server, "mallory");
    let register = mallory
        .register_request()
        .set("Contact", "<sip:mallory@192.0.2.4:5060>;expires=600")
        .with("User-Agent", "\u{1b}[2J\u{1b}]0;owned\u{7}");
    mallory.send(&register);
    let answer = final_answer(&mallory, &register);
    for arguments in [["contacts", "list"].as_slice(), &["contacts", "show", "mallory"]] {
        let printed = exchange.run(arguments, "").stdout;
        assert!(!printed.contains(&0x1b), "an escape is printed ({:?}): {printed:?}", answer.status());
    }
    // JSON is escaped by itself.
    assert_eq!(
        exchange.json(&["contacts", "list", "--json"]).len(),
        if answer.status() == Some(200) { 4 } else { 3 }
    );
}

#[test]
fn tables_are_made_on_servers_when_told_to() {
    only_strowger!("the command line is ours");
    for sql in Sql::SERVERS {
        let house = House::with_database(Database::new(sql), "1").define("WITH_AUTH", "");
        let url = house.database.url();
        for _ in 0..2 {
            let made = strowger(house.state(), &["db", "create", "--db", &url], "");
            assert!(made.status.success(), "{sql:?}: {made:?}");
            for secret in Database::secrets() {
                assert!(!said(&made).contains(secret), "{made:?}");
            }
        }
        let checked = strowger(house.state(), &["db", "check", "--db", &url], "");
        assert!(checked.status.success(), "{sql:?}: {checked:?}");
        let name = format!("bob@{}", house.address().ip());
        let added =
            strowger(house.state(), &["user", "add", &name, "--password-stdin", "--db", &url], "his\n");
        assert!(added.status.success(), "{sql:?}: {added:?}");
        let server = house.start().spawn();
        let bob = Phone::new(&server, "bob");
        assert_eq!(registers(&bob, "bob", "his"), Some(200), "{sql:?}");
        server.kill_at_once();
        let _server = house.start().spawn();
        assert_eq!(registers(&bob, "bob", "his"), Some(200), "{sql:?}");
    }
}

/// An administrator waits for an answer, not for ever.
#[test]
fn a_database_that_does_not_answer_is_named() {
    only_strowger!("the command line is ours");
    let mut database = Database::of_kamailio(Sql::Postgres);
    database.pause();
    let began = Instant::now();
    let state = end_to_end::Scratch::new("state");
    let output = strowger(state.path(), &["user", "list", "--db", &database.url()], "");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(errors(&output).contains("127.0.0.1"), "{output:?}");
    assert!(began.elapsed() < 6 * PATIENCE, "{:?}", began.elapsed());
    database.resume();
    thread::sleep(Duration::from_millis(50));
}

#[test]
fn two_servers_do_not_share_the_bindings_of_one_file() {
    only_strowger!("the database is ours");
    let house = House::new(Sql::Sqlite, "1");
    let _server = house.start().spawn();
    let other = House::new(Sql::Sqlite, "1").define("DB_URL", &format!("\"{}\"", house.database.url()));
    let (code, why) = other.start().begin().expect_refusal();
    assert_eq!(code, Some(1), "{why}");
    assert!(why.contains("strowger.sqlite"), "{why}");
}
