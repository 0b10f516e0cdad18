//! sipstone, the benchmark suite, as a process, and Kamailio as a server for it to measure.

use std::env;
use std::ffi::OsStr;
use std::fmt::Display;
use std::fs;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::address::SIP_PORT;
use crate::process::{POLL, poll};
use crate::{PATIENCE, Scratch, Signal, loopback, signal, wait_for_exit};

/// How long one command may take, unless the test says otherwise: every test is planned for a few seconds.
const LIMIT: Duration = Duration::from_secs(60);

/// The report that a command of [`Sipstone::offering`] writes.
const REPORT: &str = "report.json";

/// sipstone's executable: what `SIPSTONE_E2E_BINARY` says, or the release build of the target directory that this test
/// was built in.
fn sipstone_binary() -> PathBuf {
    let built = || {
        let test = env::current_exe().expect("invariant: a running test has a path");
        let target = test.ancestors().nth(3).expect("invariant: tests are in target/PROFILE/deps");
        target.join("release/sipstone")
    };
    let binary = env::var_os("SIPSTONE_E2E_BINARY").map_or_else(built, PathBuf::from);
    assert!(binary.is_file(), "{} is not there; run: cargo build --release -p sipstone", binary.display());
    binary
}

/// A command line of sipstone. It runs in a directory of its own.
#[derive(Debug)]
pub struct Sipstone {
    name: String,
    command: Command,
    scratch: Scratch,
    limit: Duration,
}

/// A sipstone that runs. It is killed when dropped.
#[derive(Debug)]
pub struct Running {
    name: String,
    child: Child,
    scratch: Rc<Scratch>,
    limit: Duration,
}

/// What became of a command.
#[derive(Debug)]
pub struct Outcome {
    /// The exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    /// The result, for people.
    pub stdout: String,
    /// Progress and complaints.
    pub stderr: String,
    scratch: Rc<Scratch>,
}

/// A report, as `--json` wrote it.
#[derive(Clone, Debug, PartialEq)]
pub struct Report(pub Value);

impl Sipstone {
    /// `sipstone COMMAND`.
    ///
    /// # Panics
    ///
    /// When it has not been built.
    pub fn new(command: &str) -> Self {
        let scratch = Scratch::new(&format!("sipstone-{command}"));
        let mut line = Command::new(sipstone_binary());
        line.arg(command).current_dir(scratch.path()).stdin(Stdio::null());
        Self { name: command.to_owned(), command: line, scratch, limit: LIMIT }
    }

    /// `sipstone COMMAND SCENARIO --target TARGET`, with a JSON report, from an address that only this test uses: a
    /// registrar that takes one contact of each user knows it again in the test's next run.
    pub fn offering(command: &str, scenario: &str, target: SocketAddr) -> Self {
        thread_local!(static SOURCE: Ipv4Addr = loopback());
        let line = Self::new(command).words(scenario).argument("--target", target);
        line.argument("--source", SOURCE.with(|source| *source)).argument("--json", REPORT)
    }

    /// By these agents, which run already and know this token.
    #[must_use]
    pub fn by_agents(self, agents: &[SocketAddr], token: &str) -> Self {
        agents.iter().fold(self.token(token), |line, agent| line.argument("--agent", agent))
    }

    /// With a token for or of agents.
    #[must_use]
    pub fn token(self, token: &str) -> Self {
        let file = self.scratch.write("token", token);
        self.argument("--agent-token-file", file.display())
    }

    /// With these words, which are split at blanks.
    #[must_use]
    pub fn words(mut self, words: &str) -> Self {
        self.command.args(words.split_whitespace());
        self
    }

    /// With an option that has a value.
    #[must_use]
    pub fn argument(mut self, option: &str, value: impl Display) -> Self {
        self.command.arg(option).arg(value.to_string());
        self
    }

    /// With the path of a file.
    #[must_use]
    pub fn path(mut self, path: impl AsRef<OsStr>) -> Self {
        self.command.arg(path);
        self
    }

    /// It must end within this time.
    #[must_use]
    pub fn within(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Starts it.
    ///
    /// # Panics
    ///
    /// When it does not start.
    pub fn spawn(mut self) -> Running {
        self.command.stdout(self.scratch.create("stdout.log")).stderr(self.scratch.create("stderr.log"));
        let child = self.command.spawn().unwrap_or_else(|error| panic!("{:?}: {error}", self.command));
        Running { name: self.name, child, scratch: Rc::new(self.scratch), limit: self.limit }
    }

    /// Runs it to its end.
    ///
    /// # Panics
    ///
    /// When it does not end.
    pub fn finish(self) -> Outcome {
        self.spawn().finish()
    }
}

impl Running {
    /// Starts an agent at an address of its own and waits until it listens.
    ///
    /// # Panics
    ///
    /// When it does not.
    pub fn agent(address: SocketAddr, token: &str) -> Self {
        let agent = Sipstone::new("agent").argument("--listen", address).token(token).spawn();
        let listening = poll(PATIENCE, || TcpStream::connect(address).ok());
        assert!(listening.is_some(), "the agent does not listen:\n{}", agent.scratch.read("stderr.log"));
        agent
    }

    /// Starts the server that does nothing, at this address.
    pub fn null(address: SocketAddr, words: &str) -> Self {
        let null = Sipstone::new("null").argument("--listen", address).words(words).spawn();
        null.expect("listens");
        null
    }

    /// Waits until it has said this on standard error.
    ///
    /// # Panics
    ///
    /// When it does not.
    pub fn expect(&self, text: &str) {
        let said = poll(PATIENCE, || self.scratch.read("stderr.log").contains(text).then_some(()));
        assert!(said.is_some(), "sipstone {} never says: {text}", self.name);
    }

    /// Sends it a signal.
    pub fn signal(&self, with: Signal) {
        signal(&self.child, with);
    }

    /// Ends it at once, as SIGKILL does.
    ///
    /// # Panics
    ///
    /// When it has ended before.
    pub fn kill(&mut self) {
        self.child.kill().expect("sipstone runs");
        let _ = self.child.wait();
    }

    /// Waits for its end.
    ///
    /// # Panics
    ///
    /// When it does not end.
    pub fn finish(mut self) -> Outcome {
        let status = wait_for_exit(&mut self.child, self.limit);
        let read = |name| self.scratch.read(name);
        let (stdout, stderr) = (read("stdout.log"), read("stderr.log"));
        let status = status.unwrap_or_else(|| {
            panic!("sipstone {} does not end within {:?}:\n{stderr}", self.name, self.limit)
        });
        Outcome { code: status.code(), stdout, stderr, scratch: Rc::clone(&self.scratch) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

impl Outcome {
    /// Everything that it said.
    pub fn said(&self) -> String {
        format!("{}{}", self.stderr, self.stdout)
    }

    /// What it wrote to a file of its directory; empty if there is none.
    pub fn file(&self, name: &str) -> String {
        self.scratch.read(name)
    }

    /// The path of a file of its directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.scratch.file(name)
    }

    /// Where its JSON report is.
    pub fn report_path(&self) -> PathBuf {
        self.path(REPORT)
    }

    /// Its JSON report.
    ///
    /// # Panics
    ///
    /// When it wrote none.
    pub fn report(&self) -> Report {
        let text = self.file(REPORT);
        let value = serde_json::from_str(&text);
        Report(value.unwrap_or_else(|error| panic!("no report ({error}); it said:\n{}", self.said())))
    }
}

impl Report {
    /// The value at a JSON pointer (RFC 6901).
    ///
    /// # Panics
    ///
    /// When there is none.
    pub fn at(&self, pointer: &str) -> &Value {
        self.0.pointer(pointer).unwrap_or_else(|| panic!("the report has no {pointer}:\n{:#}", self.0))
    }

    /// The number there.
    ///
    /// # Panics
    ///
    /// When there is none.
    pub fn number(&self, pointer: &str) -> f64 {
        self.at(pointer).as_f64().unwrap_or_else(|| panic!("{pointer} is {}", self.at(pointer)))
    }

    /// The list there.
    ///
    /// # Panics
    ///
    /// When there is none.
    pub fn list(&self, pointer: &str) -> &[Value] {
        self.at(pointer).as_array().unwrap_or_else(|| panic!("{pointer} is {}", self.at(pointer)))
    }

    /// The strings of the list there.
    pub fn strings(&self, pointer: &str) -> Vec<&str> {
        self.list(pointer).iter().filter_map(Value::as_str).collect()
    }
}

/// A running Kamailio with one worker. It is stopped when dropped.
#[derive(Debug)]
pub struct Kamailio {
    address: SocketAddr,
    child: Child,
    scratch: Scratch,
}

impl Kamailio {
    /// Starts it with a file below the root of the source tree, on an address of its own, with these arguments.
    ///
    /// # Panics
    ///
    /// When it is not installed, or does not start.
    pub fn start(configuration: &str, arguments: &[&str]) -> Self {
        Self::start_at(SocketAddr::from((loopback(), SIP_PORT)), configuration, arguments, &[])
    }

    /// The same at this address, with these variables in its environment.
    ///
    /// # Panics
    ///
    /// When it is not installed, or does not start.
    pub fn start_at(
        address: SocketAddr,
        configuration: &str,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> Self {
        Self::start_over(&["udp"], address, configuration, arguments, environment)
    }

    /// The same, listening over these transports, by their names in `listen`.
    ///
    /// # Panics
    ///
    /// When it is not installed, or does not start.
    pub fn start_over(
        transports: &[&str],
        address: SocketAddr,
        configuration: &str,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(configuration);
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let listen: Vec<String> =
            transports.iter().map(|transport| format!("listen={transport}:{address}")).collect();
        let listen = listen.join("\n");
        let lines = text.lines().map(|line| if line.starts_with("listen=") { &listen } else { line });
        let text: String = lines.flat_map(|line| [line, "\n"]).collect();
        let scratch = Scratch::new("kamailio");
        let file = scratch.write("kamailio.cfg", &text);
        let mut command = Command::new(kamailio_binary());
        command.args(["-DD", "-E", "-m", "64", "-M", "8", "-n", "1"]).args(arguments);
        command.args(if transports == ["udp"] { ["-T"].as_slice() } else { &["-N", "1"] });
        command.envs(environment.iter().copied());
        command.arg("-Y").arg(scratch.path()).arg("-P").arg(scratch.file("pid")).arg("-f").arg(file);
        let (log, err) = (scratch.create("stdout.log"), scratch.create("stderr.log"));
        let child = command.stdin(Stdio::null()).stdout(log).stderr(err).spawn();
        let child = child.unwrap_or_else(|error| panic!("kamailio: {error}; `cargo xtask test` installs it"));
        let mut kamailio = Self { address, child, scratch };
        kamailio.wait_until_it_listens();
        kamailio
    }

    /// The version that is installed, or `None` if none is.
    pub fn version() -> Option<String> {
        let output = Command::new(kamailio_binary()).arg("-v").output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.split_whitespace().skip_while(|word| *word != "kamailio").nth(1).map(str::to_owned)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it has written to its standard error.
    pub fn log(&self) -> String {
        self.scratch.read("stderr.log")
    }

    fn wait_until_it_listens(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        while !is_listening(self.address) {
            let running = matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline;
            assert!(running, "Kamailio does not start:\n{}", self.scratch.read("stderr.log"));
            thread::sleep(POLL);
        }
    }
}

impl Drop for Kamailio {
    fn drop(&mut self) {
        // Its children outlive a parent that is killed.
        signal(&self.child, Signal::Terminate);
        if wait_for_exit(&mut self.child, PATIENCE).is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Debian has it where the `PATH` of ordinary users does not lead.
fn kamailio_binary() -> PathBuf {
    let installed = Path::new("/usr/sbin/kamailio");
    if installed.is_file() { installed.to_owned() } else { PathBuf::from("kamailio") }
}

/// Whether somebody has bound this address: otherwise ICMP refuses the first datagram, and the socket says so with the
/// second. SIP ignores lone line ends (RFC 3261 §7.5).
fn is_listening(address: SocketAddr) -> bool {
    let knock = || {
        let socket = UdpSocket::bind(("127.0.0.1", 0))?;
        socket.connect(address)?;
        socket.send(b"\r\n")?;
        thread::sleep(POLL);
        socket.send(b"\r\n")
    };
    match knock() {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{address}: {error}");
            false
        }
    }
}
