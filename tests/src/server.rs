//! The server under test, as a process.

use std::env;
use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::address::SIP_PORT;
use crate::certificates::path;
use crate::process::{open_files, poll};
use crate::{
    Authority, Credentials, Identity, Message, Network, PATIENCE, Scratch, Signal, Transport, Usage,
    loopback, signal, unique, wait_for_exit,
};

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
    listen: Vec<(Transport, SocketAddr)>,
    arguments: Vec<String>,
    defines: Vec<String>,
    environment: Vec<(String, String)>,
    tls: Option<(Authority, String)>,
    network: Option<Network>,
    /// Strowger starts without a file.
    embedded: bool,
    /// What it keeps outlives it.
    state: Option<PathBuf>,
}

/// A running server. Dropping it stops it, and fails the test if it has crashed.
#[derive(Debug)]
pub struct Server {
    listen: Vec<(Transport, SocketAddr)>,
    authority: Option<Authority>,
    network: Option<Network>,
    child: Child,
    state: PathBuf,
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
        Self::configuration_at(name, SocketAddr::from((loopback(), SIP_PORT)))
    }

    /// The same at an address that is known already.
    ///
    /// # Panics
    ///
    /// As [`Start::configuration`].
    pub fn configuration_at(name: &str, address: SocketAddr) -> Self {
        let file = format!("{name}.cfg");
        let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("conf").join(&file);
        let path = if ours.is_file() { ours } else { conf_directory().join(&file) };
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self {
            configuration: text,
            listen: vec![(Transport::Udp, address)],
            arguments: Vec::new(),
            defines: Vec::new(),
            environment: Vec::new(),
            tls: None,
            network: None,
            embedded: false,
            state: None,
        }
    }

    /// Its first address.
    pub fn address(&self) -> SocketAddr {
        self.listen[0].1
    }

    /// Listening over these transports too, each on its usual port of the first address.
    #[must_use]
    pub fn over(mut self, transports: &[Transport]) -> Self {
        let ip = self.address().ip();
        let more = transports.iter().map(|transport| (*transport, SocketAddr::new(ip, transport.port())));
        self.listen.extend(more);
        self
    }

    /// Listening over this transport at this address too.
    #[must_use]
    pub fn over_at(mut self, transport: Transport, address: SocketAddr) -> Self {
        self.listen.push((transport, address));
        self
    }

    /// With certificates of this authority, as this `tls.cfg` says. Without, a server that listens securely has a
    /// certificate for its addresses, of an authority of its own, and asks clients for none.
    #[must_use]
    pub fn tls(mut self, authority: Authority, configuration: impl Into<String>) -> Self {
        self.tls = Some((authority, configuration.into()));
        self
    }

    /// On a host of its own in this network, at that host's address.
    #[must_use]
    pub fn inside(mut self, network: Network) -> Self {
        let ip = network.server();
        self.listen.iter_mut().for_each(|(_, address)| address.set_ip(ip));
        self.network = Some(network);
        self
    }

    /// Listening on these addresses too.
    #[must_use]
    pub fn listening_on(mut self, addresses: impl IntoIterator<Item = SocketAddr>) -> Self {
        self.listen.extend(addresses.into_iter().map(|address| (Transport::Udp, address)));
        self
    }

    /// Listening on these addresses instead of one of its own.
    #[must_use]
    pub fn listening_only_on(mut self, addresses: impl IntoIterator<Item = SocketAddr>) -> Self {
        self.listen = addresses.into_iter().map(|address| (Transport::Udp, address)).collect();
        self
    }

    /// With these arguments on Strowger's command line; other servers do not see them.
    #[must_use]
    pub fn arguments(mut self, arguments: &[&str]) -> Self {
        self.arguments.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        self
    }

    /// With this variable in its environment.
    #[must_use]
    pub fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// With no file at all, so that Strowger runs the configuration that is built in.
    #[must_use]
    pub fn embedded(mut self) -> Self {
        self.embedded = true;
        self
    }

    /// With this directory for what it keeps, instead of one that ends with it.
    #[must_use]
    pub fn state(mut self, directory: &Path) -> Self {
        self.state = Some(directory.to_owned());
        self
    }

    /// At this address instead of one of its own.
    #[must_use]
    pub fn at(self, address: SocketAddr) -> Self {
        self.listening_only_on([address])
    }

    /// With `NAME` defined for the configuration, as `VALUE` as it stands there.
    #[must_use]
    pub fn define(mut self, name: &str, value: &str) -> Self {
        self.defines.push(if value.is_empty() { name.to_owned() } else { format!("{name}={value}") });
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
        let mut server = self.begin();
        server.wait_until_ready();
        server
    }

    /// Starts it, and does not wait: for one that may not come up.
    ///
    /// # Panics
    ///
    /// When there is no such program.
    pub fn begin(mut self) -> Server {
        let scratch = Scratch::new("server");
        let (text, listens) = rewrite_listen(&self.configuration, &self.listen);
        let file = scratch.write("server.cfg", &text);
        let mut command = self.command(&file, &scratch);
        if !listens || self.embedded {
            command.args(
                self.listen.iter().flat_map(|(_, address)| ["-l".to_owned(), format!("udp:{address}")]),
            );
        }
        let secure = self.listen.iter().any(|(transport, _)| transport.is_secure());
        let tls = self.tls.take().or_else(|| secure.then(|| own_certificate(&self.listen)));
        if let Some((_, configuration)) = &tls {
            let file = scratch.write("tls.cfg", configuration);
            command.arg("-A").arg("WITH_TLS").arg("-A").arg(format!("TLS_CONFIG=\"{}\"", path(&file)));
        }
        if self.listen.iter().any(|(transport, _)| transport.is_websocket()) {
            command.arg("-A").arg("WITH_WEBSOCKET");
        }
        let log = scratch.create("server.log");
        let err = log.try_clone().expect("a log can be written to twice");
        let child = command.stdin(Stdio::null()).stdout(log).stderr(err).spawn();
        let child = child.unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let (authority, network) = (tls.map(|(authority, _)| authority), self.network);
        let state = self.state.unwrap_or_else(|| scratch.file("state"));
        Server { listen: self.listen, authority, network, child, state, scratch, stopping: false }
    }

    /// The command line up to what depends on the listeners.
    fn command(&self, file: &Path, scratch: &Scratch) -> Command {
        let program = if is_strowger() { strowger_binary() } else { PathBuf::from("kamailio") };
        let mut command = match &self.network {
            Some(network) => network.command(&program),
            None => Command::new(program),
        };
        command.env("STATE_DIRECTORY", self.state.as_deref().unwrap_or(&scratch.file("state")));
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        if !is_strowger() {
            let streams = self.listen.iter().any(|(transport, _)| *transport != Transport::Udp);
            kamailio(&mut command, file, scratch, streams);
            command.args(["-A", "WITH_NATHELPER"]);
        } else {
            if !self.embedded {
                command.arg("run").arg(file);
            }
            command.args(&self.arguments);
        }
        command.args(self.defines.iter().flat_map(|define| ["-A", define]));
        command
    }
}

/// An authority, and a `tls.cfg` with a certificate of it for these addresses.
fn own_certificate(listen: &[(Transport, SocketAddr)]) -> (Authority, String) {
    let authority = Authority::new("the authority of a test");
    let mut names: Vec<String> = listen.iter().map(|(_, address)| address.ip().to_string()).collect();
    names.dedup();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let configuration = tls_configuration(&authority, &authority.issue(&names), "");
    (authority, configuration)
}

/// A `tls.cfg`: this certificate for the server, more lines for it, and for connections that it opens this authority.
pub fn tls_configuration(authority: &Authority, identity: &Identity, more: &str) -> String {
    let (certificate, key) = (path(&identity.certificate), path(&identity.key));
    let ca = authority.certificate();
    format!(
        "[server:default]\nmethod = TLSv1.2+\ncertificate = {certificate}\nprivate_key = {key}\n{more}\n\
         [client:default]\nmethod = TLSv1.2+\ncertificate = {certificate}\nprivate_key = {key}\n\
         verify_certificate = yes\nrequire_certificate = yes\nca_list = {}\n",
        path(&ca)
    )
}

impl Server {
    /// Starts the server with a configuration of ours (see [`Start::configuration`]).
    pub fn start(configuration: &str) -> Self {
        Start::configuration(configuration).spawn()
    }

    /// Its first address.
    pub fn address(&self) -> SocketAddr {
        self.listen[0].1
    }

    /// Its first address for this transport.
    ///
    /// # Panics
    ///
    /// When it was not told to listen over it.
    pub fn address_over(&self, transport: Transport) -> SocketAddr {
        let mut found =
            self.listen.iter().filter(|(other, _)| *other == transport).map(|(_, address)| *address);
        found.next().unwrap_or_else(|| panic!("the server does not listen over {}", transport.via()))
    }

    /// Its first address for this transport that is of the same family as the peer's.
    pub(crate) fn address_of_family(&self, transport: Transport, peer: SocketAddr) -> SocketAddr {
        let is_fit =
            |other: Transport, address: SocketAddr| other == transport && address.is_ipv4() == peer.is_ipv4();
        let found = self.listen.iter().find(|(other, address)| is_fit(*other, *address));
        found.map_or_else(|| self.address_over(transport), |(_, address)| *address)
    }

    /// Whose certificates it has and trusts.
    ///
    /// # Panics
    ///
    /// When it has none.
    pub fn authority(&self) -> &Authority {
        self.authority.as_ref().expect("the server has no certificates")
    }

    /// What a phone without a certificate needs to connect to it securely.
    pub fn credentials(&self) -> Credentials {
        Credentials::trusting(self.authority())
    }

    /// The hosts that it runs among.
    ///
    /// # Panics
    ///
    /// When it runs on this one.
    pub fn network(&self) -> &Network {
        self.network.as_ref().expect("the server runs on this host")
    }

    /// Writes its `tls.cfg` anew; SIGHUP lets it read that.
    pub fn write_tls(&self, configuration: &str) {
        self.scratch.write("tls.cfg", configuration);
    }

    /// What it uses of the machine now.
    pub fn usage(&self) -> Usage {
        Usage::of(self.child.id())
    }

    /// What is behind each of its descriptors, for a failing test to print.
    pub fn open_files(&self) -> String {
        open_files(self.child.id())
    }

    /// Waits until its log says this.
    ///
    /// # Panics
    ///
    /// When it does not.
    pub fn expect_log(&self, text: &str) {
        let said = poll(PATIENCE, || self.log().contains(text).then_some(()));
        assert!(said.is_some(), "the server never says: {text}");
    }

    /// Sends it a signal that it survives.
    pub fn signal(&self, which: Signal) {
        signal(&self.child, which);
    }

    /// The directory of what it keeps.
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// How often its log says this.
    pub fn log_count(&self, text: &str) -> usize {
        self.log().matches(text).count()
    }

    /// Ends it as `kill -9` does.
    pub fn kill_at_once(mut self) {
        self.stopping = true;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Whether it has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)))
    }

    /// Whether it answers one question, now.
    pub fn answers_now(&self) -> bool {
        ping(self.address())
    }

    /// Waits until it answers.
    ///
    /// # Panics
    ///
    /// When it ends, or does not.
    pub fn wait_until_ready(&mut self) {
        let ready = poll(PATIENCE, || {
            if let Ok(Some(status)) = self.child.try_wait() {
                self.stopping = true;
                panic!("the server ended at once ({status}):\n{}", self.log());
            }
            self.is_ready().then_some(())
        });
        assert!(ready.is_some(), "the server does not answer");
    }

    /// Waits for the end of one that must not come up, and returns its exit code and what it said.
    ///
    /// # Panics
    ///
    /// When it does not end.
    pub fn expect_refusal(mut self) -> (Option<i32>, String) {
        self.stopping = true;
        let status = wait_for_exit(&mut self.child, 3 * PATIENCE);
        let status = status.unwrap_or_else(|| panic!("the server runs:\n{}", self.log()));
        (status.code(), self.log())
    }

    /// The URI of a user of this server.
    pub fn uri(&self, user: &str) -> String {
        match self.address() {
            SocketAddr::V4(address) => format!("sip:{user}@{}", address.ip()),
            SocketAddr::V6(address) => format!("sip:{user}@[{}]", address.ip()),
        }
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
        self.is_answering_at(self.address())
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

    /// Whether it answers, or takes connections where a ping does not get to.
    fn is_ready(&self) -> bool {
        match &self.network {
            None => ping(self.address()),
            Some(network) => network.dial(self.address_over(Transport::Tcp)).is_ok(),
        }
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
pub(crate) fn ping(server: SocketAddr) -> bool {
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
fn rewrite_listen(configuration: &str, addresses: &[(Transport, SocketAddr)]) -> (String, bool) {
    let mut lines: Vec<String> = Vec::new();
    let mut listens = false;
    for line in configuration.lines() {
        if !line.starts_with("listen=") {
            lines.push(line.to_owned());
        } else if !listens {
            lines.extend(
                addresses
                    .iter()
                    .map(|(transport, address)| format!("listen={}:{address}", listen_protocol(*transport))),
            );
            listens = true;
        }
    }
    lines.push(String::new());
    (lines.join("\n"), listens)
}

/// The protocol of a `listen`. Kamailio upgrades to WebSocket on listeners of TCP and TLS.
fn listen_protocol(transport: Transport) -> &'static str {
    match transport {
        Transport::Ws if !is_strowger() => "tcp",
        Transport::Wss if !is_strowger() => "tls",
        Transport::Wss => "wss",
        other => other.parameter(),
    }
}

fn kamailio(command: &mut Command, file: &Path, scratch: &Scratch, streams: bool) {
    command.args(["-DD", "-E", "-m", "64", "-M", "8", "-n", "1"]);
    command.args(if streams { ["-N", "2"].as_slice() } else { &["-T"] });
    command.arg("-Y").arg(scratch.path()).arg("-P").arg(scratch.file("pid")).arg("-f").arg(file);
}
