//! Kamailio's other tables, made by its own scripts, on each database: what a Strowger reads in them, a Kamailio reads.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use end_to_end::{
    Algorithm, Database, Kamailio, Message, PATIENCE, Phone, SIP_PORT, Scratch, Server, Sql, Start,
    Subscriber, final_answer, loopback, only_strowger, strowger,
};

/// The tables of a house: of `alice`, who may be called `sales`, too, of peers, and of two domains.
const ROWS: &str = "\
    INSERT INTO domain (domain, did) VALUES ('example.org', 'example.org');\
    INSERT INTO domain (domain, did) VALUES ('www.example.org', 'example.org');\
    INSERT INTO domain_attrs (did, name, type, value) VALUES ('example.org', 'limit', 0, '7');\
    INSERT INTO domain_attrs (did, name, type, value) VALUES ('example.org', 'colour', 2, 'red');\
    INSERT INTO address (grp, ip_addr, mask, port, tag) VALUES (1, '127.0.0.0', 8, 0, 'house');\
    INSERT INTO address (grp, ip_addr, mask, port, tag) VALUES (2, '192.0.2.0', 24, 0, 'net');\
    INSERT INTO address (grp, ip_addr, mask, port, tag) VALUES (2, '192.0.2.7', 32, 5060, 'peer');\
    INSERT INTO address (grp, ip_addr, mask, port, tag) VALUES (2, '198.51.100.1', 32, 5061, 'other port');\
    INSERT INTO trusted (src_ip, proto, from_pattern, tag) VALUES ('LOOPBACK', 'any', '^sip:boss@', 'the boss');\
    INSERT INTO dbaliases (alias_username, alias_domain, username, domain) \
        VALUES ('4711', 'example.org', 'alice', 'example.net');\
    INSERT INTO uri (username, domain, uri_user) VALUES ('alice', 'LOOPBACK', 'alice');\
    INSERT INTO uri (username, domain, uri_user) VALUES ('alice', 'LOOPBACK', 'sales');";

/// What is asked: X-Ask, Request-URI, user of From; and what the tables say.
const QUESTIONS: [(&str, &str, &str, &str); 19] = [
    ("from", "sip:x@elsewhere.example", "boss@example.org", "local"),
    ("from", "sip:x@example.org", "boss@elsewhere.example", "foreign"),
    ("uri", "sip:x@example.org", "x@y.example", "local"),
    ("uri", "sip:x@EXAMPLE.org:5070;transport=udp", "x@y.example", "local"),
    ("uri", "sip:x@www.example.org", "x@y.example", "local"),
    ("uri", "sip:x@ww.example.org", "x@y.example", "foreign"),
    ("attribute", "sip:x@www.example.org", "x@y.example", "at most 7, red"),
    ("attribute", "sip:x@example.net", "x@y.example", "foreign"),
    ("source", "sip:x@example.org", "x@y.example", "house"),
    ("address", "sip:192.0.2.1@example.org", "x@y.example", "net"),
    ("address", "sip:192.0.3.1@example.org", "x@y.example", "stranger"),
    ("address", "sip:198.51.100.1@example.org", "x@y.example", "stranger"),
    ("trusted", "sip:x@example.org", "boss@y.example", "the boss"),
    ("trusted", "sip:x@example.org", "clerk@y.example", "stranger"),
    ("alias", "sip:4711@example.org", "x@y.example", "sip:alice@example.net"),
    ("alias", "sip:4711@example.net", "x@y.example", "none"),
    ("alias", "sip:x'OR'1'='1@example.org", "x@y.example", "none"),
    ("exists", "sip:sales@example.org", "x@y.example", "yes"),
    ("exists", "sip:purchase@example.org", "x@y.example", "no"),
];

struct Tables {
    database: Database,
    address: SocketAddr,
    state: Scratch,
}

impl Tables {
    fn new(sql: Sql) -> Self {
        let tables = Self {
            database: Database::of_kamailio(sql),
            address: SocketAddr::from((loopback(), SIP_PORT)),
            state: Scratch::new("state"),
        };
        // Kamailio takes passwords as they stand in the URL.
        tables.database.use_plain_password();
        let ip = tables.address.ip().to_string();
        tables.database.run(&ROWS.replace("LOOPBACK", &ip));
        let ha1 = Algorithm::Md5.hash(&format!("alice:{ip}:secret"));
        tables.database.run(&format!(
            "INSERT INTO subscriber (username, domain, password, ha1, ha1b) VALUES ('alice', '{ip}', '', '{ha1}', '');"
        ));
        tables
    }

    fn start(&self) -> Server {
        let url = format!("\"{}\"", self.database.plain_url());
        Start::configuration_at("tables", self.address)
            .state(self.state.path())
            .define("DB_URL", &url)
            .spawn()
    }

    fn kamailio(&self) -> Kamailio {
        let url = format!("DB_URL=\"{}\"", self.database.plain_url());
        let driver = match self.database.sql() {
            Sql::Sqlite => "WITH_SQLITE",
            Sql::Postgres => "WITH_POSTGRES",
            Sql::MariaDb => "WITH_MYSQL",
        };
        Kamailio::start_at(self.address, "tests/conf/tables.cfg", &["-A", &url, "-A", driver], &[])
    }

    fn phone(&self, user: &str) -> Phone {
        // The address of the rows.
        Phone::between(self.address, SocketAddr::new(self.address.ip(), 0), user)
    }

    /// Each question has its answer.
    fn expect_answers(&self, who: &str) {
        let phone = self.phone("alice");
        for (ask, uri, from, expected) in QUESTIONS {
            let answer = asked(&phone, ask, uri, from);
            assert_eq!(reason(&answer), expected, "{who}, {:?}: {ask} {uri} {from}", self.database.sql());
        }
        let alice = Subscriber::new("alice", "secret");
        for (user, expected) in [("alice", "his own"), ("sales", "his own"), ("bob", "not his")] {
            let phone = self.phone(user);
            let (_, answer) = alice.authenticated(&phone, &phone.register_request(), Algorithm::Md5);
            assert_eq!(reason(&answer), expected, "{who}, {:?}: {user}", self.database.sql());
        }
    }
}

/// The answer to a question.
fn asked(phone: &Phone, ask: &str, uri: &str, from: &str) -> Message {
    let request = phone.request("OPTIONS", uri).with("X-Ask", ask).set("From", format!("<sip:{from}>;tag=1"));
    phone.send(&request);
    final_answer(phone, &request)
}

/// Its reason phrase.
fn reason(answer: &Message) -> String {
    answer.start.splitn(3, ' ').nth(2).unwrap_or_default().to_owned()
}

#[test]
fn both_servers_read_the_same_in_kamailios_tables() {
    only_strowger!("both servers are started here");
    for sql in Sql::ALL {
        let tables = Tables::new(sql);
        let kamailio = tables.kamailio();
        tables.expect_answers("Kamailio");
        drop(kamailio);
        let _server = tables.start();
        tables.expect_answers("Strowger");
    }
}

#[test]
fn tables_of_every_database_are_read_again_when_told_to() {
    only_strowger!("the command line is ours");
    for sql in Sql::ALL {
        let tables = Tables::new(sql);
        let _server = tables.start();
        let phone = tables.phone("alice");
        let ask = |what, uri| reason(&asked(&phone, what, uri, "x@y.example"));
        tables.database.run(
            "DELETE FROM domain WHERE domain = 'www.example.org'; UPDATE address SET tag = 'street' WHERE grp = 1;",
        );
        assert_eq!(
            (ask("uri", "sip:x@www.example.org"), ask("source", "sip:x@y.example")),
            ("local".to_owned(), "house".to_owned())
        );
        let read = strowger(tables.state.path(), &["reload"], "");
        assert!(read.status.success(), "{sql:?}: {read:?}");
        assert_eq!(
            (ask("uri", "sip:x@www.example.org"), ask("source", "sip:x@y.example")),
            ("foreign".to_owned(), "street".to_owned()),
            "{sql:?}"
        );
    }
}

/// A table that is asked for each request: its requests are refused for a while, others are served.
#[test]
fn a_table_that_vanishes_delays_only_who_needs_it() {
    only_strowger!("how outages are lived through is ours");
    for sql in Sql::ALL {
        let tables = Tables::new(sql);
        let server = tables.start();
        let phone = tables.phone("alice");
        assert_eq!(
            reason(&asked(&phone, "alias", "sip:4711@example.org", "x@y.example")),
            "sip:alice@example.net"
        );
        for table in ["dbaliases", "uri", "subscriber"] {
            tables.database.run(&format!("ALTER TABLE {table} RENAME TO away_{table};"));
        }
        for ask in ["alias", "exists"] {
            let answer = asked(&phone, ask, "sip:4711@example.org", "x@y.example");
            assert!(matches!(answer.status(), Some(500 | 503)), "{sql:?}, {ask}:\n{answer}");
            assert!(answer.find("Retry-After").is_some(), "{sql:?}, {ask}:\n{answer}");
        }
        // Somebody whose secret the server does not know.
        let alice = Subscriber::new("alice", "secret");
        let (_, answer) = alice.authenticated(&phone, &phone.register_request(), Algorithm::Md5);
        let neither = "neither let in nor refused for good";
        assert!(matches!(answer.status(), Some(500 | 503)), "{sql:?}: {neither}\n{answer}");
        assert!(answer.find("Retry-After").is_some(), "{sql:?}:\n{answer}");
        // What was read at the start is in memory.
        assert_eq!(reason(&asked(&phone, "source", "sip:x@y.example", "x@y.example")), "house", "{sql:?}");
        for table in ["dbaliases", "uri", "subscriber"] {
            tables.database.run(&format!("ALTER TABLE away_{table} RENAME TO {table};"));
        }
        let deadline = Instant::now() + PATIENCE;
        while reason(&asked(&phone, "exists", "sip:sales@example.org", "x@y.example")) != "yes" {
            assert!(Instant::now() < deadline, "{sql:?}: the tables are back\n{}", server.log());
            thread::sleep(Duration::from_millis(100));
        }
        assert_eq!(
            reason(&asked(&phone, "alias", "sip:4711@example.org", "x@y.example")),
            "sip:alice@example.net"
        );
        alice.register(&phone);
    }
}
