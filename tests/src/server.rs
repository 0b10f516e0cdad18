//! The server under test, as a process.

use std::env;
use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::address::SIP_PORT;
use crate::process::poll;
use crate::{Message, PATIENCE, Scratch, Signal, loopback, signal, unique, wait_for_exit};

/// How long one question whether the server is there waits for its answer.
const PING: Duration = Duration::from_millis(200);

/// The directory of the example configurations.
pub fn conf_directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../conf")
}

/// Whether the suite runs against our server.
pub fn is_strowger() -> bool {
    env::var_os("STROWGER_E2E_SERVER").is_none_or(|server| server != "kamailio")
}

/// The server's executable: what `STROWGER_E2E_BINARY` says, or the release build of the target directory that this
/// test was built in.
///
/// # Panics
///
/// When it has not been built.
pub fn strowger_binary() -> PathBuf {
    let built = || {
        let test = env::current_exe().expect("invariant: a running test has a path");
        let target = test.ancestors().nth(3).expect("invariant: tests are in target/PROFILE/deps");
        target.join("release/strowger")
    };
    let binary = env::var_os("STROWGER_E2E_BINARY").map_or_else(built, PathBuf::from);
    assert!(binary.is_file(), "{} is not there; run: cargo build --release -p strowger", binary.display());
    binary
}

/// How to start a server.
#[derive(Debug)]
pub struct Start {
    configuration: String,
    listen: Vec<SocketAddr>,
    arguments: Vec<String>,
    /// Strowger starts without a file.
    embedded: bool,
}

/// A running server. Dropping it stops it, and fails the test if it has crashed.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    child: Child,
    scratch: Scratch,
    /// It was told to stop, so its end is no crash.
    stopping: bool,
}

impl Start {
    /// With a configuration of ours by its name: `tests/conf/NAME.cfg`, or else `conf/NAME.cfg`.
    ///
    /// # Panics
    ///
    /// When there is none.
    pub fn configuration(name: &str) -> Self {
        let file = format!("{name}.cfg");
        let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("conf").join(&file);
        let path = if ours.is_file() { ours } else { conf_directory().join(&file) };
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let listen = vec![SocketAddr::from((loopback(), SIP_PORT))];
        Self { configuration: text, listen, arguments: Vec::new(), embedded: false }
    }

    /// Listening on these addresses too.
    #[must_use]
    pub fn listening_on(mut self, addresses: impl IntoIterator<Item = SocketAddr>) -> Self {
        self.listen.extend(addresses);
        self
    }

    /// Listening on these addresses instead of one of its own.
    #[must_use]
    pub fn listening_only_on(mut self, addresses: impl IntoIterator<Item = SocketAddr>) -> Self {
        self.listen = addresses.into_iter().collect();
        self
    }

    /// With these arguments on Strowger's command line; other servers do not see them.
    #[must_use]
    pub fn arguments(mut self, arguments: &[&str]) -> Self {
        self.arguments.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        self
    }

    /// With no file at all, so that Strowger runs the configuration that is built in.
    #[must_use]
    pub fn embedded(mut self) -> Self {
        self.embedded = true;
        self
    }

    /// With this text put before a line of the configuration that begins with `before`.
    ///
    /// # Panics
    ///
    /// When there is no such line.
    #[must_use]
    pub fn inserting(mut self, before: &str, text: &str) -> Self {
        let at =
            self.configuration.find(&format!("\n{before}")).unwrap_or_else(|| panic!("no line {before}"));
        self.configuration.insert_str(at + 1, &format!("{text}\n"));
        self
    }

    /// Starts it and waits until it answers.
    ///
    /// # Panics
    ///
    /// When it does not start.
    pub fn spawn(self) -> Server {
        let scratch = Scratch::new("server");
        let (text, listens) = rewrite_listen(&self.configuration, &self.listen);
        let file = scratch.write("server.cfg", &text);
        let mut command = if is_strowger() {
            let mut command = Command::new(strowger_binary());
            if !self.embedded {
                command.arg("run").arg(&file);
            }
            command.args(&self.arguments);
            command
        } else {
            kamailio(&file, &scratch)
        };
        if !listens || self.embedded {
            command.args(self.listen.iter().flat_map(|address| ["-l".to_owned(), format!("udp:{address}")]));
        }
        let log = scratch.create("server.log");
        let err = log.try_clone().expect("a log can be written to twice");
        let child = command.stdin(Stdio::null()).stdout(log).stderr(err).spawn();
        let child = child.unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let mut server = Server { address: self.listen[0], child, scratch, stopping: false };
        server.wait_until_ready();
        server
    }
}

impl Server {
    /// Starts the server with a configuration of ours (see [`Start::configuration`]).
    pub fn start(configuration: &str) -> Self {
        Start::configuration(configuration).spawn()
    }

    /// Its first address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URI of a user of this server.
    pub fn uri(&self, user: &str) -> String {
        format!("sip:{user}@{}", self.address.ip())
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it has written to its standard output and error.
    pub fn log(&self) -> String {
        self.scratch.read("server.log")
    }

    /// Whether it answers a request.
    pub fn is_answering(&self) -> bool {
        self.is_answering_at(self.address)
    }

    /// Whether it answers a request to this address, from this address.
    pub fn is_answering_at(&self, address: SocketAddr) -> bool {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if ping(address) {
                return true;
            }
        }
        false
    }

    /// Sends it a signal that must end it.
    pub fn stop(&mut self, with: Signal) {
        self.stopping = true;
        signal(&self.child, with);
    }

    /// Waits for its end after [`Server::stop`]; `None` when it has not come within the limit.
    pub fn wait_for_exit(&mut self, limit: Duration) -> Option<ExitStatus> {
        wait_for_exit(&mut self.child, limit)
    }

    fn wait_until_ready(&mut self) {
        let ready = poll(PATIENCE, || {
            if let Ok(Some(status)) = self.child.try_wait() {
                self.stopping = true;
                panic!("the server ended at once ({status}):\n{}", self.log());
            }
            ping(self.address).then_some(())
        });
        assert!(ready.is_some(), "the server does not answer");
    }

    fn kill(&mut self) {
        // Kamailio's children outlive a parent that is killed; Strowger has none.
        if !is_strowger() {
            signal(&self.child, Signal::Terminate);
            if wait_for_exit(&mut self.child, PATIENCE).is_some() {
                return;
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let crashed = !self.stopping && matches!(self.child.try_wait(), Ok(Some(_)));
        self.kill();
        if !thread::panicking() {
            assert!(!crashed, "the server crashed:\n{}", self.log());
            assert!(!self.log().contains("panicked at"), "the server panicked:\n{}", self.log());
        }
    }
}

/// One OPTIONS that may go no further (RFC 3261 §8.1.1.6): every configuration answers it, mostly with 483.
fn ping(server: SocketAddr) -> bool {
    let local: SocketAddr = match server {
        SocketAddr::V4(_) => ([127, 0, 0, 1], 0).into(),
        SocketAddr::V6(_) => ([0, 0, 0, 0, 0, 0, 0, 1], 0).into(),
    };
    let Ok(socket) = UdpSocket::bind(local).and_then(|socket| socket.connect(server).map(|()| socket)) else {
        return false;
    };
    let (call_id, branch) = (unique(), unique());
    let Ok(local) = socket.local_addr() else { return false };
    let options = format!(
        "OPTIONS sip:{server} SIP/2.0\r\nVia: SIP/2.0/UDP {local};branch=z9hG4bK{branch}\r\nMax-Forwards: 0\r\n\
         From: <sip:ping@{local}>;tag=1\r\nTo: <sip:{server}>\r\nCall-ID: {call_id}\r\nCSeq: 1 OPTIONS\r\n\
         Content-Length: 0\r\n\r\n"
    );
    let mut answer = [0; 2048];
    let exchange = socket
        .set_read_timeout(Some(PING))
        .and_then(|()| socket.send(options.as_bytes()))
        .and_then(|_| socket.recv(&mut answer));
    let answer = exchange.ok().and_then(|length| Message::parse(&answer[..length]));
    answer.is_some_and(|answer| answer.find("Call-ID") == Some(call_id.as_str()))
}

/// The configuration with its `listen` lines replaced, and whether there were any.
fn rewrite_listen(configuration: &str, addresses: &[SocketAddr]) -> (String, bool) {
    let mut lines: Vec<String> = Vec::new();
    let mut listens = false;
    for line in configuration.lines() {
        if !line.starts_with("listen=") {
            lines.push(line.to_owned());
        } else if !listens {
            lines.extend(addresses.iter().map(|address| format!("listen=udp:{address}")));
            listens = true;
        }
    }
    lines.push(String::new());
    (lines.join("\n"), listens)
}

fn kamailio(file: &Path, scratch: &Scratch) -> Command {
    let mut command = Command::new("kamailio");
    command.args(["-DD", "-E", "-T", "-m", "64", "-M", "8", "-n", "1"]);
    command.arg("-Y").arg(scratch.path()).arg("-P").arg(scratch.file("pid")).arg("-f").arg(file);
    command
}
