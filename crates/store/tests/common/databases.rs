//! PostgreSQL and MariaDB servers of our own for tests: each in a temporary directory, on a free TCP port of
//! 127.0.0.1 and on a Unix socket in the directory. They are ended when the value is dropped.
//!
//! Needs the programs of the packages `postgresql`, `mariadb-server-core` and `mariadb-client-core`. PostgreSQL refuses
//! to run as root: for root it runs as the user `postgres` that its package makes.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]
#![allow(unreachable_pub, reason = "each test file is a crate of its own")]
#![allow(dead_code, reason = "each test file uses a part")]

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Which server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Postgres,
    MariaDb,
}

/// A server that runs.
pub struct Server {
    kind: Kind,
    directory: PathBuf,
    port: u16,
    child: Option<Child>,
}

const USER: &str = "strowger";
const PASSWORD: &str = "geheim";
const DATABASE: &str = "kamailio";

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").unwrap().uid() == 0
}

/// A program of PostgreSQL's newest version, which Debian keeps out of the path.
fn postgres_program(name: &str) -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> =
        versions.map(|entry| entry.path().join("bin").join(name)).filter(|path| path.exists()).collect();
    found.sort();
    found.pop().unwrap_or_else(|| PathBuf::from(name))
}

fn mariadb_program(names: &[&str]) -> PathBuf {
    let places = ["/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin", "/usr/libexec"];
    let all = names.iter().flat_map(|name| places.iter().map(move |place| Path::new(place).join(name)));
    let found = all.into_iter().find(|path| path.exists());
    found.unwrap_or_else(|| panic!("{} is not installed: `cargo xtask test` installs it", names[0]))
}

/// A command of PostgreSQL, which runs as its own user if we are root.
fn as_postgres(program: &Path) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--init-groups"]).arg(program);
    command.env("HOME", "/");
    command
}

/// A command of MariaDB, which runs as root only if that is said.
fn as_mariadb(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.arg("--no-defaults");
    if is_root() {
        command.arg("--user=root");
    }
    command
}

fn run(mut command: Command, what: &str) {
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("{what}: {error}"));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}: {text}{}", String::from_utf8_lossy(&output.stdout));
}

impl Server {
    /// Starts a server with an empty database `kamailio` and a user who may do everything in it.
    pub fn start(kind: Kind) -> Server {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("strowger-db-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let directory = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).unwrap();
        let mut server = Server { kind, directory, port: free_port(), child: None };
        if is_root() && kind == Kind::Postgres {
            let mut chown = Command::new("chown");
            chown.arg("postgres").arg(&server.directory);
            run(chown, "chown");
        }
        server.initialise();
        server.boot();
        server.provide();
        server
    }

    fn data(&self) -> PathBuf {
        self.directory.join("data")
    }

    fn initialise(&self) {
        let mut command = match self.kind {
            Kind::Postgres => {
                let mut command = as_postgres(&postgres_program("initdb"));
                command.args(["-A", "trust", "-U", USER, "-E", "UTF8", "--no-locale", "--no-sync", "-D"]);
                command.arg(self.data());
                command
            }
            Kind::MariaDb => {
                let program = mariadb_program(&["mariadb-install-db", "mysql_install_db"]);
                let mut command = as_mariadb(&program);
                command.args(["--auth-root-authentication-method=normal", "--skip-test-db"]);
                command.arg(format!("--datadir={}", self.data().display()));
                command.env("TMPDIR", &self.directory);
                command
            }
        };
        command.current_dir(&self.directory);
        run(command, "making a database");
    }

    /// Starts the server (again) and waits until it answers.
    pub fn boot(&mut self) {
        let directory = self.directory.display();
        let mut command = match self.kind {
            Kind::Postgres => {
                let mut command = as_postgres(&postgres_program("postgres"));
                command.arg("-D").arg(self.data()).args(["-k", &directory.to_string(), "-h", "127.0.0.1"]);
                command.args(["-p", &self.port.to_string(), "-c", "max_connections=100"]);
                command
            }
            Kind::MariaDb => {
                let mut command = as_mariadb(&mariadb_program(&["mariadbd", "mysqld"]));
                command.args(["--bind-address=127.0.0.1", "--skip-name-resolve"]);
                command.arg(format!("--datadir={}", self.data().display()));
                command.arg(format!("--socket={}", self.socket().display()));
                command.arg(format!("--pid-file={directory}/pid"));
                command.arg(format!("--port={}", self.port));
                // When it starts it removes every temporary table of its directory, those of other servers, too, which
                // crash then.
                command.env("TMPDIR", &self.directory);
                command
            }
        };
        let log = fs::OpenOptions::new().create(true).append(true).open(self.directory.join("log")).unwrap();
        command
            .current_dir(&self.directory)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        self.child = Some(command.spawn().expect("the server starts"));
        let begun = Instant::now();
        while !self.answers() {
            if begun.elapsed() > Duration::from_secs(60) {
                let log = fs::read_to_string(self.directory.join("log")).unwrap_or_default();
                panic!("the server does not answer: {log}");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn answers(&self) -> bool {
        if TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            return false;
        }
        let sql = Command::output(self.client("SELECT 1", self.kind == Kind::Postgres).stdin(Stdio::null()));
        sql.is_ok_and(|output| output.status.success())
    }

    fn provide(&self) {
        match self.kind {
            Kind::Postgres => {
                run(self.client(&format!("CREATE DATABASE {DATABASE}"), true), "CREATE DATABASE");
            }
            Kind::MariaDb => {
                let sql = format!(
                    "CREATE DATABASE {DATABASE}; CREATE USER {USER}@'%' IDENTIFIED BY '{PASSWORD}'; \
                     CREATE USER {USER}@localhost IDENTIFIED BY '{PASSWORD}'; \
                     GRANT ALL ON *.* TO {USER}@'%'; GRANT ALL ON *.* TO {USER}@localhost"
                );
                run(self.client(&sql, true), "CREATE DATABASE");
            }
        }
    }

    fn socket(&self) -> PathBuf {
        self.directory.join("mariadb.sock")
    }

    /// The server's own client, in our database or in the one that is there from the start.
    fn client(&self, sql: &str, is_first: bool) -> Command {
        match self.kind {
            Kind::Postgres => {
                let mut command = Command::new(postgres_program("psql"));
                let database = if is_first { "postgres" } else { DATABASE };
                command.args(["-X", "-q", "-At", "-v", "ON_ERROR_STOP=1", "-U", USER, "-d", database]);
                command.args(["-h", &self.directory.display().to_string(), "-p", &self.port.to_string()]);
                command.args(["-c", sql]);
                command
            }
            Kind::MariaDb => {
                let mut command = Command::new(mariadb_program(&["mariadb", "mysql"]));
                command.args(["--no-defaults", "-N", "-u", "root"]);
                command.arg(format!("--socket={}", self.socket().display()));
                command.args(["-e", sql]);
                if !is_first && !sql.starts_with("SELECT 1") {
                    command.arg(DATABASE);
                }
                command
            }
        }
    }

    /// The database's URL over TCP.
    pub fn url(&self) -> String {
        let scheme = if self.kind == Kind::Postgres { "postgres" } else { "mysql" };
        format!("{scheme}://{USER}:{PASSWORD}@127.0.0.1:{}/{DATABASE}", self.port)
    }

    /// The database's URL over its Unix socket.
    pub fn socket_url(&self) -> String {
        let directory = self.directory.display();
        match self.kind {
            Kind::Postgres => {
                format!("postgres:///{DATABASE}?host={directory}&port={}&user={USER}", self.port)
            }
            Kind::MariaDb => {
                format!("mysql://{USER}:{PASSWORD}@localhost/{DATABASE}?socket={}", self.socket().display())
            }
        }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// A client that will run SQL as an administrator.
    pub fn client_command(&self, sql: &str) -> Command {
        self.client(sql, false)
    }

    /// Runs SQL as an administrator; returns what it printed.
    pub fn execute(&self, sql: &str) -> String {
        let output = self.client(sql, false).stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Makes Kamailio's tables with Kamailio's own scripts.
    pub fn make_kamailio_tables(&self) {
        let (kind, package) = match self.kind {
            Kind::Postgres => ("postgres", "kamailio-postgres-modules"),
            Kind::MariaDb => ("mysql", "kamailio-mysql-modules"),
        };
        super::kamailio_scripts(kind, package, &mut |sql| drop(self.execute(sql)));
    }

    /// The server's processes.
    fn processes(&self) -> Vec<u32> {
        let Some(first) = self.child.as_ref().map(Child::id) else { return Vec::new() };
        let mut all = vec![first];
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
            let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            // After the name, which is in parentheses: state and parent.
            let parent = stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(1));
            if parent.and_then(|parent| parent.parse().ok()) == Some(first) {
                all.push(pid);
            }
        }
        all
    }

    fn signal(&self, name: &str) {
        for pid in self.processes() {
            // A process may have ended meanwhile.
            let _ = Command::new("kill").arg(format!("-{name}")).arg(pid.to_string()).output();
        }
    }

    /// Stops all its processes where they are; connections stay and nothing answers.
    pub fn pause(&self) {
        self.signal("STOP");
    }

    pub fn resume(&self) {
        self.signal("CONT");
    }

    /// Kills it, as a power cut would; [`Server::boot`] starts it again.
    pub fn kill(&mut self) {
        self.signal("KILL");
        if let Some(mut child) = self.child.take() {
            let _ = child.wait();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        let _ = fs::remove_dir_all(&self.directory);
    }
}
