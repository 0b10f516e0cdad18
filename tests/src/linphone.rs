//! Linphone, a softphone, in its console version without sound devices.

use std::fs;
use std::io::Write as _;
use std::net::IpAddr;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::certificates::path;
use crate::phone::PROGRAM_PATIENCE;
use crate::process::poll;
use crate::{Scratch, Server, Transport, loopback};

/// A running softphone of one user, which answers calls by itself. It is stopped when dropped.
#[derive(Debug)]
pub struct Linphone {
    user: String,
    child: Child,
    input: ChildStdin,
    scratch: Scratch,
}

impl Linphone {
    /// Starts a softphone that registers at the server over this transport.
    ///
    /// # Panics
    ///
    /// When it is not installed.
    pub fn over(transport: Transport, server: &Server, user: &str) -> Self {
        Self::with_account(transport, server, user, None)
    }

    /// One over UDP who knows a password.
    pub fn with_password(server: &Server, user: &str, password: &str) -> Self {
        Self::with_account(Transport::Udp, server, user, Some(password))
    }

    fn with_account(transport: Transport, server: &Server, user: &str, password: Option<&str>) -> Self {
        let scratch = Scratch::new(user);
        // Without a place for its databases it keeps no account.
        fs::create_dir_all(scratch.file(".local/share/linphone")).expect("the scratch directory is writable");
        let mut text = configuration(transport, server, user);
        if let Some(password) = password {
            let domain = server.address().ip();
            text += &format!("\n[auth_info_0]\nusername={user}\npasswd={password}\ndomain={domain}\n");
        }
        let file = scratch.write("linphonerc", &text);
        let log = scratch.create("screen.log");
        let err = log.try_clone().expect("a log can be written to twice");
        let child = Command::new("linphonec")
            .args(["-a", "-c"])
            .arg(file)
            .env("HOME", scratch.path())
            .stdin(Stdio::piped())
            .stdout(log)
            .stderr(err)
            .spawn();
        let mut child =
            child.unwrap_or_else(|error| panic!("linphonec: {error}; `cargo xtask test` installs it"));
        let input = child.stdin.take().expect("invariant: its input is a pipe");
        Self { user: user.to_owned(), child, input, scratch }
    }

    /// Waits until the softphone says this on its screen.
    ///
    /// # Panics
    ///
    /// When it does not.
    pub fn expect(&self, text: &str) {
        let said = poll(PROGRAM_PATIENCE, || self.scratch.read("screen.log").contains(text).then_some(()));
        assert!(said.is_some(), "{} never says: {text}", self.user);
    }

    /// It must not become registered for so long, although it is asked again and again.
    ///
    /// # Panics
    ///
    /// When it does.
    pub fn expect_not_registered(&mut self, lasting: Duration) {
        let deadline = Instant::now() + lasting;
        while Instant::now() < deadline {
            self.command("status register");
            thread::sleep(Duration::from_millis(200));
            let said = self.scratch.read("screen.log");
            assert!(!said.contains("registered, identity="), "{} is registered:\n{said}", self.user);
        }
    }

    /// Waits until it is registered, which it says when it is asked.
    ///
    /// # Panics
    ///
    /// When it never is.
    pub fn expect_registered(&mut self) {
        let deadline = Instant::now() + PROGRAM_PATIENCE;
        while !self.scratch.read("screen.log").contains("registered, identity=") {
            assert!(Instant::now() < deadline, "{} does not register", self.user);
            self.command("status register");
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// Gives it a command: `call URI`, `terminate`.
    ///
    /// # Panics
    ///
    /// When it takes none.
    pub fn command(&mut self, command: &str) {
        writeln!(self.input, "{command}").unwrap_or_else(|error| panic!("{}: {error}", self.user));
    }
}

impl Drop for Linphone {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn configuration(transport: Transport, server: &Server, user: &str) -> String {
    let address = IpAddr::from(loopback());
    let (proxy, parameter) = (server.address_over(transport), transport.parameter());
    // It knows no addresses in certificates, names only.
    let root = if transport.is_secure() {
        format!(
            "root_ca={}\nverify_server_certs=1\nverify_server_cn=0\n",
            path(&server.authority().certificate())
        )
    } else {
        String::new()
    };
    format!(
        "[sip]\nbind_address={address}\nsip_port=-1\nsip_tcp_port=-1\nsip_tls_port=-1\ndefault_proxy=0\n\
         guess_hostname=0\nuse_ipv6=0\nping_with_options=0\n{root}\n\
         [net]\nmtu=1300\n\n[rtp]\naudio_rtp_port=-1\n\n[sound]\nplayback_dev_id=null\ncapture_dev_id=null\n\
         ringer_dev_id=null\n\n[video]\nenabled=0\n\n\
         [proxy_0]\nreg_proxy=<sip:{proxy};transport={parameter}>\nreg_route=<sip:{proxy};transport={parameter};lr>\n\
         reg_identity={}\nreg_expires=300\nreg_sendregister=1\npublish=0\n",
        server.uri(user)
    )
}
