//! SIPp, running the scenarios of `tests/sipp/`.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::address::SIP_PORT;
use crate::process::poll;
use crate::{Link, PATIENCE, Scratch, Server, loopback, wait_for_exit};

/// SIPp ends by itself after this long, whatever it waits for, unless it is told otherwise.
const TIMEOUT: Duration = Duration::from_secs(90);

/// A SIPp to be started.
#[derive(Debug)]
pub struct Sipp {
    scenario: String,
    address: SocketAddr,
    target: SocketAddr,
    timeout: Duration,
    traced: bool,
    /// Where Linux lists its socket (proc(5)).
    table: &'static str,
    command: Command,
    scratch: Scratch,
}

/// A SIPp that runs. It is stopped when dropped.
#[derive(Debug)]
pub struct SippRun {
    scenario: String,
    timeout: Duration,
    child: Child,
    scratch: Scratch,
}

impl Sipp {
    /// One that plays the scenario `tests/sipp/NAME.xml` so many times, with this server.
    pub fn new(scenario: &str, calls: u32, server: &Server) -> Self {
        Self::at(loopback(), scenario, calls, server)
    }

    /// The same at an address that the test has chosen.
    pub fn at(address: Ipv4Addr, scenario: &str, calls: u32, server: &Server) -> Self {
        let scratch = Scratch::new(&format!("sipp-{scenario}"));
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("sipp").join(format!("{scenario}.xml"));
        let address = SocketAddr::from((address, SIP_PORT));
        let mut command = Command::new("sipp");
        command
            .arg("-sf")
            .arg(file)
            .args(["-i", &address.ip().to_string(), "-p", &SIP_PORT.to_string()])
            .args(["-m", &calls.to_string(), "-nostdin", "-timeout_error", "-trace_err"])
            .arg("-error_file")
            .arg(scratch.file("errors.log"))
            .args(["-key", "domain", &server.address().ip().to_string()]);
        let (scenario, target) = (scenario.to_owned(), server.address());
        let table = "/proc/net/udp";
        Self { scenario, address, target, timeout: TIMEOUT, traced: true, table, command, scratch }
    }

    /// Where it sends from and listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sending through a link.
    #[must_use]
    pub fn through(mut self, link: &Link) -> Self {
        self.target = link.address();
        self
    }

    /// The user called or registered: `[service]` in the scenario.
    #[must_use]
    pub fn user(self, user: &str) -> Self {
        self.arguments(["-s", user])
    }

    /// A value for `[name]` in the scenario.
    #[must_use]
    pub fn key(self, name: &str, value: &str) -> Self {
        self.arguments(["-key", name, value])
    }

    /// Over TCP: `t1` with one connection for all calls, `tn` with one for each.
    #[must_use]
    pub fn over_tcp(mut self, mode: &str) -> Self {
        self.table = "/proc/net/tcp";
        self.arguments(["-t", mode, "-max_socket", "1000"])
    }

    /// Calls per second.
    #[must_use]
    pub fn rate(self, rate: u32) -> Self {
        self.arguments(["-r", &rate.to_string()])
    }

    /// For a long run: with its own limit of time, and without writing down every message.
    #[must_use]
    pub fn lasting(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self.traced = false;
        self
    }

    /// More of SIPp's own options.
    #[must_use]
    pub fn arguments<const N: usize>(mut self, arguments: [&str; N]) -> Self {
        self.command.args(arguments);
        self
    }

    /// Starts it and waits until it listens.
    ///
    /// # Panics
    ///
    /// When it is not installed, or does not listen.
    pub fn spawn(mut self) -> SippRun {
        if self.traced {
            self.command.arg("-trace_msg").arg("-message_file").arg(self.scratch.file("messages.log"));
        }
        self.command.args(["-timeout", &self.timeout.as_secs().to_string()]);
        let log = self.scratch.create("screen.log");
        let err = log.try_clone().expect("a log can be written to twice");
        self.command
            .arg(self.target.to_string())
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(err)
            .current_dir(self.scratch.path());
        let child = self
            .command
            .spawn()
            .unwrap_or_else(|error| panic!("sipp: {error}; `cargo xtask test` installs it"));
        let mut run =
            SippRun { scenario: self.scenario, timeout: self.timeout, child, scratch: self.scratch };
        let listening = poll(PATIENCE, || {
            let ended = matches!(run.child.try_wait(), Ok(Some(_)));
            (ended || is_bound(self.table, self.address)).then_some(())
        });
        assert!(listening.is_some(), "sipp {} does not listen", run.scenario);
        run
    }

    /// Runs it to its end, which must be a good one.
    pub fn run(self) {
        self.spawn().finish();
    }
}

impl SippRun {
    /// Waits for its end: every call must have gone as the scenario says.
    ///
    /// # Panics
    ///
    /// When one has not.
    pub fn finish(mut self) {
        let status = wait_for_exit(&mut self.child, self.timeout + PATIENCE);
        let good = status.is_some_and(|status| status.success());
        assert!(good, "sipp {}: {status:?}\n{}", self.scenario, self.scratch.read("errors.log"));
    }
}

impl Drop for SippRun {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether a process has bound this address, as Linux lists them (proc(5), `/proc/net/udp` and `/proc/net/tcp`).
fn is_bound(table: &str, address: SocketAddr) -> bool {
    let SocketAddr::V4(address) = address else { return false };
    let wanted = format!(" {:08X}:{:04X} ", network_order(*address.ip()), address.port());
    fs::read_to_string(table).is_ok_and(|table| table.contains(&wanted))
}

/// The address as the kernel prints it: its four octets read as one number of this machine.
fn network_order(address: Ipv4Addr) -> u32 {
    u32::from_ne_bytes(address.octets())
}
