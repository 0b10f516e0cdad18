//! SIP in a browser: headless Chromium with a page for each phone, driven by `tests/browser/drive.mjs`.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use crate::phone::PROGRAM_PATIENCE;
use crate::process::poll;
use crate::{Scratch, Server, Transport, wait_for_exit};

/// A running browser. It is stopped when dropped.
#[derive(Debug)]
pub struct Browser {
    child: Child,
    input: ChildStdin,
    scratch: Scratch,
    server: String,
    domain: String,
}

impl Browser {
    /// Starts a browser whose phones connect to the server over secure WebSocket.
    ///
    /// # Panics
    ///
    /// When Chromium, Node or the npm packages are not installed.
    pub fn start(server: &Server) -> Self {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("browser");
        assert!(
            directory.join("node_modules").is_dir(),
            "tests/browser/node_modules is not there; `cargo xtask test` installs it, or run there: npm ci"
        );
        let scratch = Scratch::new("browser");
        let log = scratch.create("browser.log");
        let err = log.try_clone().expect("a log can be written to twice");
        let child = Command::new("node")
            .arg(directory.join("drive.mjs"))
            .arg(profile(&scratch))
            .stdin(Stdio::piped())
            .stdout(log)
            .stderr(err)
            .spawn();
        let mut child = child.unwrap_or_else(|error| panic!("node: {error}; the tests need Node.js"));
        let input = child.stdin.take().expect("invariant: its input is a pipe");
        let address = server.address_over(Transport::Wss);
        let (server, domain) = (format!("wss://{address}/"), address.ip().to_string());
        Self { child, input, scratch, server, domain }
    }

    /// Opens a page with a phone of this user by this library (`sip.js` or `jssip`), and waits until it is registered.
    pub fn open(&mut self, library: &str, user: &str) {
        let (server, domain) = (self.server.clone(), self.domain.clone());
        self.command(&format!("{user} open {library} {server} sip:{user}@{domain}"));
        self.expect(&format!("{user}: registered"));
    }

    /// Gives a phone a command: `alice call URI`, `alice hangup`.
    ///
    /// # Panics
    ///
    /// When the browser has gone.
    pub fn command(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap_or_else(|error| panic!("the browser: {error}"));
    }

    /// Waits until a phone says this: `alice: established`.
    ///
    /// # Panics
    ///
    /// When it does not.
    pub fn expect(&self, text: &str) {
        self.expect_times(text, 1);
    }

    /// The same for what it must have said so many times.
    ///
    /// # Panics
    ///
    /// When it has not.
    pub fn expect_times(&self, text: &str, times: usize) {
        let count = || self.scratch.read("browser.log").matches(text).count();
        let said = poll(PROGRAM_PATIENCE, || (count() >= times).then_some(()));
        assert!(said.is_some(), "the browser does not say {times} times: {text}");
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The driver closes the browser, which killing the driver would leave behind.
        let _ = writeln!(self.input, "quit");
        if wait_for_exit(&mut self.child, PROGRAM_PATIENCE).is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn profile(scratch: &Scratch) -> PathBuf {
    scratch.file("profile")
}
