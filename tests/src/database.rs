//! Database servers of a test's own: PostgreSQL and MariaDB in a temporary directory, with every safety of theirs on, and
//! files of SQLite.

use std::env;
use std::fs;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal as UnixSignal, kill};
use nix::unistd::{Pid, Uid};

use crate::process::{POLL, output, poll};
use crate::{Scratch, unique, wait_for_exit};

/// How long a database server is waited for, also on a machine with much else to do.
const DATABASE_PATIENCE: Duration = Duration::from_secs(60);
/// The user, the password and the name of the database.
const NAME: &str = "strowger";
const PASSWORD: &str = "a-secret/of:the@test";
/// The same as it stands in a URL (RFC 3986 §2.1).
const PASSWORD_IN_URL: &str = "a-secret%2Fof%3Athe%40test";
/// Where Debian has PostgreSQL's programs: in a directory for each version.
const POSTGRES_DIRECTORY: &str = "/usr/lib/postgresql";
/// Kamailio's definitions of the tables that a registrar needs, in their order.
const KAMAILIO_TABLES: [&str; 7] =
    ["standard", "usrloc", "auth_db", "domain", "permissions", "alias_db", "uri_db"];

/// Whose database it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sql {
    /// A file of SQLite.
    Sqlite,
    /// PostgreSQL.
    Postgres,
    /// MariaDB.
    MariaDb,
}

impl Sql {
    /// All of them.
    pub const ALL: [Sql; 3] = [Sql::Sqlite, Sql::Postgres, Sql::MariaDb];
    /// Those that are servers.
    pub const SERVERS: [Sql; 2] = [Sql::Postgres, Sql::MariaDb];
}

/// A database of a test's own: empty, until somebody makes tables. Its server is stopped when it is dropped.
#[derive(Debug)]
pub struct Database {
    sql: Sql,
    port: u16,
    child: Option<Child>,
    paused: bool,
    scratch: Scratch,
}

impl Database {
    /// A new one.
    ///
    /// # Panics
    ///
    /// When the server is not installed or does not start.
    pub fn new(sql: Sql) -> Self {
        let scratch = Scratch::new(&format!("{sql:?}").to_lowercase());
        let mut database = Self { sql, port: free_port(), child: None, paused: false, scratch };
        if sql != Sql::Sqlite {
            database.copy_template();
            database.start();
            let make = match sql {
                Sql::Postgres => format!("CREATE ROLE {NAME} LOGIN PASSWORD '{PASSWORD}';"),
                _ => format!("CREATE USER {NAME}@'%' IDENTIFIED BY '{PASSWORD}'; CREATE DATABASE {NAME};"),
            };
            database.client("", &make);
            let give = match sql {
                Sql::Postgres => format!("CREATE DATABASE {NAME} OWNER {NAME};"),
                _ => format!("GRANT ALL ON {NAME}.* TO {NAME}@'%';"),
            };
            database.client("", &give);
        }
        database
    }

    /// A new one with the tables of Kamailio's own scripts.
    pub fn of_kamailio(sql: Sql) -> Self {
        let database = Self::new(sql);
        database.make_kamailio_tables();
        database
    }

    /// Whose it is.
    pub fn sql(&self) -> Sql {
        self.sql
    }

    /// Its URL.
    pub fn url(&self) -> String {
        self.url_at(self.address())
    }

    /// Its URL through something that listens here.
    pub fn url_at(&self, address: SocketAddr) -> String {
        match self.sql {
            Sql::Sqlite => format!("sqlite://{}", self.file().display()),
            Sql::Postgres => format!("postgres://{NAME}:{PASSWORD_IN_URL}@{address}/{NAME}"),
            Sql::MariaDb => format!("mysql://{NAME}:{PASSWORD_IN_URL}@{address}/{NAME}"),
        }
    }

    /// What must never be in a log.
    pub fn secrets() -> [&'static str; 2] {
        [PASSWORD, PASSWORD_IN_URL]
    }

    /// Its URL without characters that need escaping, as Kamailio reads it: it does not decode them.
    pub fn plain_url(&self) -> String {
        self.url().replace(PASSWORD_IN_URL, "plain")
    }

    /// Gives the user a password that stands in a URL as it is.
    pub fn use_plain_password(&self) {
        match self.sql {
            Sql::Sqlite => {}
            Sql::Postgres => {
                self.client("", &format!("ALTER ROLE {NAME} PASSWORD 'plain';"));
            }
            Sql::MariaDb => {
                self.client("", &format!("ALTER USER {NAME}@'%' IDENTIFIED BY 'plain';"));
            }
        }
    }

    /// Where its server listens.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// The file of SQLite.
    pub fn file(&self) -> PathBuf {
        self.scratch.file("strowger.sqlite")
    }

    /// Runs statements as its owner, in the tool that comes with it; returns the rows, with tabs between the columns.
    ///
    /// # Panics
    ///
    /// When it refuses them.
    pub fn run(&self, statements: &str) -> String {
        self.client(NAME, statements)
    }

    /// The number that a statement gives.
    ///
    /// # Panics
    ///
    /// When it gives none.
    pub fn number(&self, statement: &str) -> u64 {
        let said = self.run(statement);
        said.trim().parse().unwrap_or_else(|_| panic!("{statement} gives {said}"))
    }

    /// Makes the tables with Kamailio's own scripts.
    ///
    /// # Panics
    ///
    /// When they are not installed or fail.
    pub fn make_kamailio_tables(&self) {
        let statements: String = KAMAILIO_TABLES.iter().map(|name| self.kamailio_script(name)).collect();
        self.run(&statements);
    }

    /// Makes the tables of one of Kamailio's scripts, `usrloc`.
    ///
    /// # Panics
    ///
    /// When it is not installed or fails.
    pub fn make_kamailio_table(&self, name: &str) {
        self.run(&self.kamailio_script(name));
    }

    fn kamailio_script(&self, name: &str) -> String {
        let directory = match self.sql {
            Sql::Sqlite => "db_sqlite",
            Sql::Postgres => "postgres",
            Sql::MariaDb => "mysql",
        };
        let path = format!("/usr/share/kamailio/{directory}/{name}-create.sql");
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// Lets it stand still: its processes are there, take connections perhaps, and say nothing.
    pub fn pause(&mut self) {
        self.signal_all(UnixSignal::SIGSTOP);
        self.paused = true;
    }

    /// Lets it go on.
    pub fn resume(&mut self) {
        self.signal_all(UnixSignal::SIGCONT);
        self.paused = false;
    }

    /// Ends it as its administrator would, without waiting for those who are connected.
    pub fn stop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        // SIGINT is PostgreSQL's fast shutdown; MariaDB's is SIGTERM.
        let with = if self.sql == Sql::Postgres { UnixSignal::SIGINT } else { UnixSignal::SIGTERM };
        let _ = kill(pid(child.id()), with);
        let ended = wait_for_exit(&mut child, DATABASE_PATIENCE);
        assert!(ended.is_some(), "{:?} does not stop", self.sql);
    }

    /// Ends it as a power cut would.
    pub fn kill(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        let family = family(child.id());
        for process in &family {
            let _ = kill(pid(*process), UnixSignal::SIGKILL);
        }
        let _ = child.wait();
        // PostgreSQL does not start again while a process of its last run is left.
        let alive = |process: &u32| Path::new(&format!("/proc/{process}")).exists();
        let gone = poll(DATABASE_PATIENCE, || (!family.iter().any(alive)).then_some(()));
        assert!(gone.is_some(), "processes of {:?} outlive SIGKILL", self.sql);
        self.paused = false;
    }

    /// Starts it again, where it was, and waits until it answers.
    ///
    /// # Panics
    ///
    /// When it does not start.
    pub fn start(&mut self) {
        assert!(self.child.is_none(), "it runs");
        let mut command = match self.sql {
            Sql::Sqlite => return,
            Sql::Postgres => self.postgres(),
            Sql::MariaDb => self.mariadbd(),
        };
        let log = self.scratch.create("database.log");
        let err = log.try_clone().expect("a log can be written to twice");
        let child = command.stdin(Stdio::null()).stdout(log).stderr(err).spawn();
        self.child = Some(
            child.unwrap_or_else(|error| panic!("{command:?}: {error}; `cargo xtask test` installs it")),
        );
        let deadline = Instant::now() + DATABASE_PATIENCE;
        while self.ask("", "SELECT 1;").is_err() {
            let ended = self.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(Some(_))));
            assert!(
                !ended && Instant::now() < deadline,
                "{:?} does not start:\n{}",
                self.sql,
                self.scratch.read("database.log")
            );
            thread::sleep(POLL);
        }
    }

    /// Ends all connections of clients.
    pub fn cut_connections(&self) {
        match self.sql {
            Sql::Sqlite => {}
            Sql::Postgres => {
                let which = format!("usename = '{NAME}' AND pid <> pg_backend_pid()");
                self.client(
                    "",
                    &format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {which};"),
                );
            }
            Sql::MariaDb => {
                self.client("", &format!("KILL USER {NAME};"));
            }
        }
    }

    fn client(&self, database: &str, statements: &str) -> String {
        let asked = self.ask(database, statements);
        asked.unwrap_or_else(|error| panic!("{:?}: {statements}\n{error}", self.sql))
    }

    /// Runs statements in the tool that comes with it, as its administrator.
    fn ask(&self, database: &str, statements: &str) -> Result<String, String> {
        let mut command = match self.sql {
            Sql::Sqlite => {
                let mut command = Command::new("sqlite3");
                command
                    .args(["-bail", "-batch", "-separator", "\t", "-cmd", ".timeout 10000"])
                    .arg(self.file());
                command
            }
            Sql::Postgres => {
                let mut command = Command::new(postgres_program("psql"));
                command.args(["-X", "-A", "-t", "-q", "-F", "\t", "-v", "ON_ERROR_STOP=1"]);
                let user = if database.is_empty() { "postgres" } else { NAME };
                let database = if database.is_empty() { "postgres" } else { database };
                command.arg("-h").arg(self.scratch.path()).args(["-p", &self.port.to_string()]);
                command.args(["-U", user, "-d", database]);
                command
            }
            Sql::MariaDb => {
                let mut command = Command::new("mariadb");
                command.args(["--no-defaults", "-N", "-B", "-u", "root"]);
                command.arg(format!("--socket={}", self.scratch.file("socket").display()));
                if !database.is_empty() {
                    command.arg(database);
                }
                command
            }
        };
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn();
        let mut child =
            child.unwrap_or_else(|error| panic!("{command:?}: {error}; `cargo xtask test` installs it"));
        // A tool that has failed already does not read on; its output says why.
        let mut input = child.stdin.take().expect("invariant: its input is a pipe");
        let _ = input.write_all(statements.as_bytes());
        drop(input);
        let output = child.wait_with_output().map_err(|error| error.to_string())?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() {
            Ok(said)
        } else {
            Err(format!("{said}{}", String::from_utf8_lossy(&output.stderr)))
        }
    }

    fn data(&self) -> PathBuf {
        self.scratch.file("data")
    }

    /// Copies what an empty server begins with, which takes long to make, from where it was made once.
    fn copy_template(&self) {
        let template = template(self.sql);
        let copied = output(Command::new("cp").arg("-a").arg(template).arg(self.data()));
        assert!(copied.is_ok_and(|copied| copied.status.success()), "the database is not copied");
        if let (Sql::Postgres, Some(owner)) = (self.sql, postgres_owner()) {
            // It puts its socket beside.
            chown(self.scratch.path(), Some(owner), Some(owner)).expect("root may give away what it has");
        }
    }

    fn postgres(&self) -> Command {
        let mut command = as_postgres(&postgres_program("postgres"));
        command.arg("-D").arg(self.data());
        let directory = format!("unix_socket_directories={}", self.scratch.path().display());
        let port = format!("port={}", self.port);
        let settings =
            ["listen_addresses=127.0.0.1", &port, &directory, "shared_buffers=16MB", "max_connections=60"];
        for setting in settings.iter().chain(&["fsync=on", "synchronous_commit=on", "full_page_writes=on"]) {
            command.args(["-c", setting]);
        }
        command
    }

    fn mariadbd(&self) -> Command {
        let mut command = Command::new(mariadb_program());
        command.arg("--no-defaults").arg(format!("--datadir={}", self.data().display()));
        command.arg(format!("--socket={}", self.scratch.file("socket").display()));
        command.arg(format!("--pid-file={}", self.scratch.file("pid").display()));
        // When it starts it removes every temporary table of its directory, those of other servers, too, which crash then.
        command.env("TMPDIR", self.scratch.path());
        command.args([&format!("--port={}", self.port), "--bind-address=127.0.0.1", "--skip-name-resolve"]);
        command.args(["--innodb-flush-log-at-trx-commit=1", "--innodb-buffer-pool-size=32M"]);
        command.args(["--innodb-log-file-size=8M", "--performance-schema=off", "--max-connections=60"]);
        if Uid::effective().is_root() {
            command.arg("--user=root");
        }
        command
    }

    fn signal_all(&self, with: UnixSignal) {
        let Some(child) = &self.child else { return };
        for process in family(child.id()) {
            let _ = kill(pid(process), with);
        }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        if self.paused {
            self.resume();
        }
        // It keeps nothing that anybody will read.
        if let Some(child) = &mut self.child {
            for process in family(child.id()) {
                let _ = kill(pid(process), UnixSignal::SIGKILL);
            }
            let _ = child.wait();
        }
    }
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("the loopback has free ports");
    listener.local_addr().expect("invariant: the socket is bound").port()
}

fn pid(id: u32) -> Pid {
    Pid::from_raw(i32::try_from(id).expect("invariant: Linux numbers processes with an i32"))
}

/// A process and its children: the parent first, so that it makes no more when it is stopped.
fn family(parent: u32) -> Vec<u32> {
    let is_child = |id: &u32| {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        // The name is in parentheses and may hold anything; state and parent follow (proc(5)).
        let after = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
        after.split(' ').nth(1).and_then(|parent| parent.parse().ok()) == Some(parent)
    };
    let entries = fs::read_dir("/proc").expect("Linux has /proc").flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    std::iter::once(parent).chain(ids.filter(is_child)).collect()
}

/// The directory of an empty server, made when it is first wanted and kept for the next run.
fn template(sql: Sql) -> PathBuf {
    let owner = Uid::effective();
    let name = format!("strowger-e2e-template-{}-{owner}", format!("{sql:?}").to_lowercase());
    let path = env::temp_dir().join(name);
    if path.is_dir() {
        return path;
    }
    // Another test may be making it: whoever is first gives it its name, and nobody sees half of one.
    let scratch = Scratch::new("template");
    let made = scratch.file(&unique());
    match sql {
        Sql::Sqlite => unreachable!("invariant: SQLite has no server"),
        Sql::Postgres => {
            if let Some(owner) = postgres_owner() {
                chown(scratch.path(), Some(owner), Some(owner)).expect("root may give away what it has");
            }
            let mut command = as_postgres(&postgres_program("initdb"));
            command.args(["-U", "postgres", "--auth-local=trust", "--auth-host=scram-sha-256"]);
            command.args(["-E", "UTF8", "--locale=C", "--wal-segsize=1", "-D"]).arg(&made);
            succeed(&mut command);
        }
        Sql::MariaDb => {
            let mut command = Command::new("mariadb-install-db");
            command.arg("--no-defaults").arg(format!("--datadir={}", made.display()));
            command.args(["--auth-root-authentication-method=normal", "--skip-test-db"]);
            command.arg("--innodb-log-file-size=8M").env("TMPDIR", scratch.path());
            if owner.is_root() {
                command.arg("--user=root");
            }
            succeed(&mut command);
        }
    }
    if fs::rename(&made, &path).is_err() {
        assert!(path.is_dir(), "{} cannot be made", path.display());
    }
    path
}

/// Runs a command, which must succeed.
fn succeed(command: &mut Command) {
    let done = output(command)
        .unwrap_or_else(|error| panic!("{command:?}: {error}; `cargo xtask test` installs it"));
    assert!(
        done.status.success(),
        "{command:?}: {}\n{}",
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr)
    );
}

/// A program of the newest PostgreSQL that is installed.
fn postgres_program(name: &str) -> PathBuf {
    let versions = fs::read_dir(POSTGRES_DIRECTORY).into_iter().flatten().flatten();
    let mut found: Vec<(u32, PathBuf)> = versions
        .filter_map(|entry| {
            Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin").join(name)))
        })
        .filter(|(_, path)| path.is_file())
        .collect();
    found.sort();
    found.pop().map_or_else(|| PathBuf::from(name), |(_, path)| path)
}

/// Debian has it where the `PATH` of ordinary users does not lead.
fn mariadb_program() -> PathBuf {
    let installed = Path::new("/usr/sbin/mariadbd");
    if installed.is_file() { installed.to_owned() } else { PathBuf::from("mariadbd") }
}

/// The user that PostgreSQL must run as where we are root, as whom it refuses to run.
fn postgres_owner() -> Option<u32> {
    if !Uid::effective().is_root() {
        return None;
    }
    let id = output(Command::new("id").args(["-u", "postgres"])).expect("id is there");
    let id = String::from_utf8_lossy(&id.stdout).trim().parse();
    Some(id.expect("Debian's package makes the user postgres"))
}

/// A command that PostgreSQL lets run: not as root.
fn as_postgres(program: &Path) -> Command {
    match postgres_owner() {
        None => Command::new(program),
        Some(owner) => {
            let mut command = Command::new("setpriv");
            let (user, group) = (format!("--reuid={owner}"), format!("--regid={owner}"));
            command.args([&user, &group, "--clear-groups"]).arg(program);
            command
        }
    }
}
