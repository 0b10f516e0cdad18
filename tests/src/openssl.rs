//! `openssl s_client`: how a TLS that is not the server's own sees it.

use std::io::Write as _;
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, Command, Stdio};

use crate::certificates::path;
use crate::process::poll;
use crate::{Authority, Identity, PATIENCE, Scratch, unique, wait_for_exit};

/// A client to be started.
#[derive(Debug)]
pub struct Openssl {
    server: SocketAddr,
    command: Command,
    scratch: Scratch,
}

/// A client that runs. It is stopped when dropped.
#[derive(Debug)]
pub struct OpensslRun {
    server: SocketAddr,
    child: Child,
    input: ChildStdin,
    scratch: Scratch,
}

/// What came of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Talk {
    /// A SIP request was answered.
    Answered,
    /// The connection failed or was closed before.
    Refused,
}

impl Openssl {
    /// One that connects there, and ends the connection if the server's certificate is not of this authority.
    pub fn new(server: SocketAddr, authority: &Authority) -> Self {
        let scratch = Scratch::new("s_client");
        let mut command = Command::new("openssl");
        command.args(["s_client", "-connect", &server.to_string(), "-verify_return_error"]);
        command.arg("-CAfile").arg(authority.certificate());
        Self { server, command, scratch }
    }

    /// With more of its own options.
    #[must_use]
    pub fn arguments(mut self, arguments: &[&str]) -> Self {
        self.command.args(arguments);
        self
    }

    /// Showing a certificate.
    #[must_use]
    pub fn showing(self, identity: &Identity) -> Self {
        let (certificate, key) = (path(&identity.certificate), path(&identity.key));
        self.arguments(&["-cert", certificate, "-key", key])
    }

    /// Starts it.
    ///
    /// # Panics
    ///
    /// When OpenSSL is not installed.
    pub fn spawn(mut self) -> OpensslRun {
        let log = self.scratch.create("s_client.log");
        let err = log.try_clone().expect("a log can be written to twice");
        let child = self.command.stdin(Stdio::piped()).stdout(log).stderr(err).spawn();
        let mut child =
            child.unwrap_or_else(|error| panic!("openssl: {error}; `cargo xtask test` installs it"));
        let input = child.stdin.take().expect("invariant: its input is a pipe");
        OpensslRun { server: self.server, child, input, scratch: self.scratch }
    }

    /// Connects, asks with a SIP request, and leaves; gives back what happened and everything that it printed.
    pub fn talk(self) -> (Talk, String) {
        let mut run = self.spawn();
        let talk = run.ask();
        (talk, run.finish())
    }
}

impl OpensslRun {
    /// Sends an OPTIONS that may go no further, and waits for an answer or the end.
    pub fn ask(&mut self) -> Talk {
        let before = self.answers();
        let (server, branch, call_id) = (self.server, unique(), unique());
        let options = format!(
            "OPTIONS sip:{server} SIP/2.0\r\nVia: SIP/2.0/TLS s-client.invalid;branch=z9hG4bK{branch}\r\n\
             Max-Forwards: 0\r\nFrom: <sip:s-client@{server}>;tag=1\r\nTo: <sip:{server}>\r\nCall-ID: {call_id}\r\n\
             CSeq: 1 OPTIONS\r\nContent-Length: 0\r\n\r\n"
        );
        // Where it has ended already there is nobody to write to, which shows below.
        let _ = self.input.write_all(options.as_bytes());
        let talk = poll(PATIENCE, || {
            let ended = matches!(self.child.try_wait(), Ok(Some(_)));
            match self.answers() > before {
                true => Some(Talk::Answered),
                false => ended.then_some(Talk::Refused),
            }
        });
        talk.unwrap_or_else(|| panic!("no answer and no end:\n{}", self.scratch.read("s_client.log")))
    }

    /// Ends it as a user does; gives back everything that it printed.
    pub fn finish(mut self) -> String {
        // `Q` at the beginning of a line ends s_client.
        let _ = self.input.write_all(b"Q\n");
        let _ = wait_for_exit(&mut self.child, PATIENCE);
        self.scratch.read("s_client.log")
    }

    fn answers(&self) -> usize {
        self.scratch.read("s_client.log").matches("SIP/2.0 483 ").count()
    }
}

impl Drop for OpensslRun {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
