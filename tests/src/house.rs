//! A server with its database, which can die and come back to the same address with the same files.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::address::SIP_PORT;
use crate::{Algorithm, Database, Message, Phone, Scratch, Sql, Start, loopback, strowger_binary};

/// The server's place in the world: `conf/registrar-db.cfg` with a database.
#[derive(Debug)]
pub struct House {
    /// The database.
    pub database: Database,
    address: SocketAddr,
    state: Scratch,
    defines: Vec<(String, String)>,
    arguments: Vec<String>,
}

impl House {
    /// With a new database: Kamailio's tables on PostgreSQL; on MariaDB, where those keep times and preferences only
    /// roughly, Strowger's own; a file that Strowger makes on SQLite. `mode` is `db_mode`.
    ///
    /// # Panics
    ///
    /// When the tables cannot be made.
    pub fn new(sql: Sql, mode: &str) -> Self {
        let house = Self::with_database(Database::new(sql), mode);
        if sql != Sql::Sqlite {
            let make = || strowger(house.state(), &["db", "create", "--db", &house.database.url()], "");
            // A database that has just begun to listen closes a connection now and then.
            let made = (0..20).map(|_| make()).inspect(|made| {
                if !made.status.success() {
                    std::thread::sleep(std::time::Duration::from_millis(250));
                }
            });
            let mut tried = made.skip_while(|made| !made.status.success());
            assert!(tried.next().is_some(), "{:?}", make());
        }
        house
    }

    /// With this database.
    pub fn with_database(database: Database, mode: &str) -> Self {
        let house = Self {
            address: SocketAddr::from((loopback(), SIP_PORT)),
            state: Scratch::new("state"),
            defines: vec![("DB_MODE".to_owned(), mode.to_owned())],
            arguments: Vec::new(),
            database,
        };
        let url = house.database.url();
        house.define("DB_URL", &format!("\"{url}\""))
    }

    /// With this defined for the configuration; a name that is defined already gets the new value.
    #[must_use]
    pub fn define(mut self, name: &str, value: &str) -> Self {
        self.defines.retain(|(other, _)| other != name);
        self.defines.push((name.to_owned(), value.to_owned()));
        self
    }

    /// With this on the command line.
    #[must_use]
    pub fn arguments(mut self, arguments: &[&str]) -> Self {
        self.arguments.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        self
    }

    /// Where the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The server, to be started.
    pub fn start(&self) -> Start {
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        let start = Start::configuration_at("registrar-db", self.address).state(self.state.path());
        self.defines
            .iter()
            .fold(start, |start, (name, value)| start.define(name, value))
            .arguments(&arguments)
    }

    /// The directory of what the server keeps.
    pub fn state(&self) -> &Path {
        self.state.path()
    }

    /// Puts a user into `subscriber`, as other programs do: with hashes only, all that the table has columns for.
    pub fn add_user(&self, name: &str, password: &str) {
        let realm = self.address.ip();
        let secret = format!("{name}:{realm}:{password}");
        let ha1b = Algorithm::Md5.hash(&format!("{name}@{realm}:{realm}:{password}"));
        let ha1 = Algorithm::Md5.hash(&secret);
        let (columns, values) = if self.database.sql() == Sql::Sqlite {
            let [longest, long] =
                [Algorithm::Sha512_256, Algorithm::Sha256].map(|algorithm| algorithm.hash(&secret));
            (", ha1_sha256, ha1_sha512_256", format!(", '{long}', '{longest}'"))
        } else {
            ("", String::new())
        };
        self.database.run(&format!(
            "INSERT INTO subscriber (username, domain, password, ha1, ha1b{columns}) \
             VALUES ('{name}', '{realm}', '', '{ha1}', '{ha1b}'{values});"
        ));
    }

    /// Every binding is in the table once.
    ///
    /// # Panics
    ///
    /// When one is doubled.
    pub fn expect_no_doubles(&self) {
        let doubles = "SELECT COUNT(*) FROM (SELECT username FROM location GROUP BY username, domain, contact \
                       HAVING COUNT(*) > 1) AS doubled;";
        assert_eq!(self.database.number(doubles), 0, "rows are doubled");
    }
}

/// The contacts that a registrar lists for a phone's user.
///
/// # Panics
///
/// When it does not.
pub fn contacts(phone: &Phone) -> Vec<String> {
    let query = phone.register_request().without("Contact").without("Expires");
    phone.send(&query);
    listed(&phone.expect_response(200, &query))
}

/// The contacts in an answer.
pub fn listed(answer: &Message) -> Vec<String> {
    answer.all("Contact").into_iter().map(str::to_owned).collect()
}

/// Runs `strowger` with a state directory and something to read on its standard input, to its end.
///
/// # Panics
///
/// When there is no such program.
pub fn strowger(state: &Path, arguments: &[&str], input: &str) -> Output {
    let mut command = Command::new(strowger_binary());
    command.args(arguments).env("STATE_DIRECTORY", state);
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.expect("strowger starts");
    let mut pipe = child.stdin.take().expect("invariant: its input is a pipe");
    // One that has refused its arguments reads nothing.
    let _ = std::io::Write::write_all(&mut pipe, input.as_bytes());
    drop(pipe);
    child.wait_with_output().expect("a child of ours can be waited for")
}
