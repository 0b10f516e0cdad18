//! Kamailio and Strowger one after the other on one database, made by Kamailio's own scripts: what one has written the
//! other serves.

use std::net::SocketAddr;

use end_to_end::{
    Algorithm, Challenge, Database, Digest, House, Kamailio, Phone, Server, Sql, Subscriber, contacts,
    final_answer, loopback, only_strowger, strowger,
};

/// A time zone that is not the databases': times in the tables are local ones.
const ZONE: (&str, &str) = ("TZ", "America/St_Johns");

/// A database with Kamailio's tables, and both servers' place.
struct Both {
    house: House,
    url: String,
    more: Vec<(String, String)>,
}

impl Both {
    fn new(sql: Sql, more: &[(&str, &str)]) -> Self {
        let mut house = House::with_database(Database::of_kamailio(sql), "1");
        // Kamailio takes passwords as they stand in the URL.
        house.database.use_plain_password();
        let url = house.database.plain_url();
        house = house.define("DB_URL", &format!("\"{url}\""));
        let module = match sql {
            Sql::Sqlite => "WITH_SQLITE",
            Sql::Postgres => "WITH_POSTGRES",
            Sql::MariaDb => "WITH_MYSQL",
        };
        let mut more: Vec<(String, String)> =
            more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        more.push((module.to_owned(), String::new()));
        for (name, value) in &more {
            house = house.define(name, value);
        }
        Self { house, url, more }
    }

    fn strowger(&self) -> Server {
        self.house.start().environment(ZONE.0, ZONE.1).spawn()
    }

    fn kamailio(&self) -> Kamailio {
        let mut defines = vec![format!("DB_URL=\"{}\"", self.url), "DB_MODE=1".to_owned()];
        defines.extend(
            self.more
                .iter()
                .map(|(name, value)| if value.is_empty() { name.clone() } else { format!("{name}={value}") }),
        );
        let arguments: Vec<&str> = defines.iter().flat_map(|define| ["-A", define.as_str()]).collect();
        Kamailio::start_at(self.house.address(), "tests/conf/registrar-db.cfg", &arguments, &[ZONE])
    }

    /// A phone of a user, which outlives the servers.
    fn phone(&self, user: &str) -> Phone {
        Phone::between(self.house.address(), SocketAddr::from((loopback(), 0)), user)
    }
}

/// The three ways in which a contact can be had.
struct Phones {
    /// Reached at its contact.
    plain: Phone,
    /// Reached where it registered from, not where it says that it is.
    behind_nat: Phone,
    /// Reached along a Path (RFC 3327).
    on_a_path: Phone,
    caller: Phone,
}

impl Phones {
    fn new(both: &Both) -> Self {
        let phone = |user| both.phone(user);
        Self {
            plain: phone("plain"),
            behind_nat: phone("nat"),
            on_a_path: phone("path"),
            caller: phone("caller"),
        }
    }

    fn register(&self) {
        let own = format!("<{}>;q=0.7;expires=900", self.plain.contact());
        let other = "<sip:plain@192.0.2.9:5062;transport=udp>;q=0.35;expires=1800";
        let register = self.plain.register_request().set("Contact", own).with("Contact", other);
        ok(&self.plain, &register);
        let hidden =
            self.behind_nat.register_request().set("Contact", "<sip:nat@192.168.1.2:5060;ob>;expires=900");
        ok(&self.behind_nat, &hidden.with("P-Behind-NAT", "yes"));
        let path = format!("<sip:{};lr>", self.on_a_path.address());
        let register =
            self.on_a_path.register_request().set("Contact", "<sip:path@192.0.2.7:5064>;expires=900");
        ok(&self.on_a_path, &register.with("Supported", "path").with("Path", path));
    }

    /// They are listed with q and expiry, and found.
    fn expect_served(&self) {
        let known = contacts(&self.plain);
        assert_eq!(known.len(), 2, "{known:?}");
        let one = |part: &str| {
            let found = known.iter().find(|contact| contact.contains(part));
            found.unwrap_or_else(|| panic!("{part} is not in {known:?}"))
        };
        let address = self.plain.address().to_string();
        for (part, q, lasting) in [(address.as_str(), 0.7, 900), ("192.0.2.9", 0.35, 1800)] {
            let contact = one(part);
            assert!((number(contact, "q=") - q).abs() < 0.001, "{contact}");
            let expires = number(contact, "expires=");
            let lasting = f64::from(lasting);
            assert!(expires <= lasting + 1.0 && expires > lasting - 60.0, "{contact}");
        }
        self.expect_call(&self.behind_nat, "sip:nat@192.168.1.2:5060");
        let arrived = self.expect_call(&self.on_a_path, "sip:path@192.0.2.7:5064");
        assert!(
            arrived.contains(&self.on_a_path.address().to_string()),
            "no Route along the path: {arrived}"
        );
    }

    /// A call to a user arrives at this phone, for this contact; the Route that it came with.
    fn expect_call(&self, callee: &Phone, contact: &str) -> String {
        let invite = self.caller.request("INVITE", &callee.address_of_record());
        self.caller.send(&invite);
        let arrived = callee.expect_request("INVITE");
        assert!(arrived.uri().starts_with(contact), "{arrived}");
        callee.answer(&arrived, 486, "Busy Here");
        let answer = self.caller.expect_response(486, &invite);
        self.caller.acknowledge(&invite, &answer);
        callee.expect_request("ACK");
        arrived.find("Route").unwrap_or_default().to_owned()
    }

    /// One contact goes, another lasts longer.
    fn change(&self) {
        let address = self.plain.contact();
        let register =
            self.plain.register_request().set("Contact", format!("<{address}>;q=0.9;expires=1200"));
        ok(&self.plain, &register.with("Contact", "<sip:plain@192.0.2.9:5062;transport=udp>;expires=0"));
    }

    fn expect_changed(&self) {
        let known = contacts(&self.plain);
        assert_eq!(known.len(), 1, "{known:?}");
        assert!((number(&known[0], "q=") - 0.9).abs() < 0.001, "{known:?}");
        assert!(number(&known[0], "expires=") > 1100.0, "{known:?}");
    }

    fn leave(&self) {
        let star = self.plain.register_request().set("Contact", "*").set("Expires", 0);
        ok(&self.plain, &star);
    }
}

fn ok(phone: &Phone, register: &end_to_end::Message) {
    phone.send(register);
    let answer = final_answer(phone, register);
    assert_eq!(answer.status(), Some(200), "{answer}");
}

/// The number after this in a Contact.
fn number(contact: &str, name: &str) -> f64 {
    let after = contact.split(name).nth(1).unwrap_or_else(|| panic!("no {name} in {contact}"));
    let end = after.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(after.len());
    after[..end].parse().unwrap_or_else(|_| panic!("what is {name} in {contact}"))
}

fn one_after_the_other(sql: Sql, more: &[(&str, &str)]) {
    let both = Both::new(sql, more);
    let phones = Phones::new(&both);
    // Kamailio first.
    let kamailio = both.kamailio();
    phones.register();
    phones.expect_served();
    drop(kamailio);
    let strowger = both.strowger();
    phones.expect_served();
    phones.change();
    phones.expect_changed();
    strowger.kill_at_once();
    both.house.expect_no_doubles();
    let kamailio = both.kamailio();
    phones.expect_changed();
    phones.leave();
    drop(kamailio);
    let strowger = both.strowger();
    assert_eq!(contacts(&phones.plain), [""; 0], "what Kamailio has removed is gone");
    // Then Strowger first.
    phones.register();
    phones.expect_served();
    strowger.kill_at_once();
    both.house.expect_no_doubles();
    let kamailio = both.kamailio();
    phones.expect_served();
    phones.change();
    drop(kamailio);
    let strowger = both.strowger();
    phones.expect_changed();
    strowger.kill_at_once();
    both.house.expect_no_doubles();
}

#[test]
fn kamailio_and_strowger_serve_each_others_bindings_on_postgresql() {
    only_strowger!("it starts both");
    one_after_the_other(Sql::Postgres, &[]);
}

#[test]
fn kamailio_and_strowger_serve_each_others_bindings_with_domains() {
    only_strowger!("it starts both");
    one_after_the_other(Sql::Postgres, &[("BY_DOMAIN", "")]);
}

#[test]
fn kamailio_and_strowger_serve_each_others_bindings_on_mariadb() {
    only_strowger!("it starts both");
    one_after_the_other(Sql::MariaDb, &[]);
}

#[test]
fn kamailio_and_strowger_serve_each_others_bindings_on_sqlite() {
    only_strowger!("it starts both");
    one_after_the_other(Sql::Sqlite, &[]);
}

/// Registers with a password; the status.
fn registers(phone: &Phone, user: &str, password: &str) -> Option<u16> {
    let request = phone.register_request();
    let who = Subscriber::new(user, password);
    let answer = who.challenged(phone, &request);
    let digest = Digest::to(&Challenge::find(&answer, Algorithm::Md5), &request, &who);
    let with = digest.apply(phone, &request);
    phone.send(&with);
    final_answer(phone, &with).status()
}

fn users_of_both(sql: Sql, more: &[(&str, &str)]) {
    let both = Both::new(sql, more);
    let ip = both.house.address().ip();
    let is_clear = more.iter().any(|(name, _)| *name == "CLEAR_TEXT");
    if is_clear {
        both.house.database.run(&format!(
            "INSERT INTO subscriber (username, domain, password, ha1, ha1b) VALUES ('alice', '{ip}', 'hers', '', '');"
        ));
    } else {
        both.house.add_user("alice", "hers");
    }
    let name = format!("bob@{ip}");
    let mut arguments = vec!["user", "add", &name, "--password-stdin", "--db", &both.url];
    if is_clear {
        arguments.push("--clear");
    }
    let added = strowger(both.house.state(), &arguments, "his\n");
    assert!(added.status.success(), "{added:?}");
    let (alice, bob) = (both.phone("alice"), both.phone("bob"));
    let expect = |who: &str| {
        assert_eq!(registers(&alice, "alice", "hers"), Some(200), "{sql:?}: alice at {who}");
        assert_eq!(registers(&bob, "bob", "his"), Some(200), "{sql:?}: bob at {who}");
        assert_eq!(registers(&bob, "bob", "hers"), Some(401), "{sql:?}: a wrong password at {who}");
    };
    let kamailio = both.kamailio();
    expect("Kamailio");
    drop(kamailio);
    let server = both.strowger();
    expect("Strowger");
    drop(server);
}

#[test]
fn users_of_one_are_users_of_the_other_on_postgresql() {
    only_strowger!("it starts both");
    users_of_both(Sql::Postgres, &[("WITH_AUTH", "")]);
}

#[test]
fn users_of_one_are_users_of_the_other_on_mariadb() {
    only_strowger!("it starts both");
    users_of_both(Sql::MariaDb, &[("WITH_AUTH", "")]);
}

#[test]
fn users_with_clear_passwords_are_users_of_both() {
    only_strowger!("it starts both");
    users_of_both(Sql::Postgres, &[("WITH_AUTH", ""), ("CLEAR_TEXT", "")]);
}
