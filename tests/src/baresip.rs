//! baresip, a softphone, without sound devices.

use std::fs;
use std::io::Write as _;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

use crate::address::SIP_PORT;
use crate::certificates::path;
use crate::phone::PROGRAM_PATIENCE;
use crate::process::poll;
use crate::{Scratch, Server, Transport, loopback};

/// Where baresip takes commands.
const CONTROL_PORT: u16 = 4444;

/// A running softphone of one user. It is stopped when dropped.
#[derive(Debug)]
pub struct Baresip {
    user: String,
    address: IpAddr,
    child: Child,
    scratch: Scratch,
}

impl Baresip {
    /// Starts a softphone that registers at the server and answers calls by itself.
    ///
    /// # Panics
    ///
    /// When it is not installed.
    pub fn start(server: &Server, user: &str) -> Self {
        Self::with_account(server, user, Transport::Udp, "")
    }

    /// The same over this transport.
    pub fn over(transport: Transport, server: &Server, user: &str) -> Self {
        Self::with_account(server, user, transport, "")
    }

    /// One who knows a password.
    pub fn with_password(server: &Server, user: &str, password: &str) -> Self {
        let more = format!(";auth_user={user};auth_pass=\"{password}\"");
        Self::with_account(server, user, Transport::Udp, &more)
    }

    /// One whose media is encrypted and finds its way as browsers ask for it (RFC 8827).
    pub fn for_browsers(server: &Server, user: &str) -> Self {
        Self::with_account(server, user, Transport::Udp, ";mediaenc=dtls_srtp;medianat=ice")
    }

    fn with_account(server: &Server, user: &str, transport: Transport, more: &str) -> Self {
        let scratch = Scratch::new(user);
        let address = IpAddr::from(loopback());
        let mut configuration = configuration(address);
        if transport.is_secure() {
            let authority = server.authority();
            let identity = authority.issue(&[&address.to_string()]);
            // baresip wants certificate and key in one file.
            let files = [&identity.certificate, &identity.key];
            let pem = files.map(|file| fs::read_to_string(file).expect("the certificate is there")).concat();
            let own = scratch.write("own.pem", &pem);
            let lines = [("sip_certificate", own.as_path()), ("sip_cafile", &authority.certificate())]
                .map(|(name, file)| format!("{name} {}\n", path(file)));
            configuration += &lines.concat();
        }
        if more.contains("dtls_srtp") {
            // Only where they are needed: loading them makes a key, which takes seconds.
            configuration += "rtcp_mux yes\nmodule srtp.so\nmodule dtls_srtp.so\nmodule ice.so\n";
        }
        scratch.write("config", &configuration);
        scratch.write("contacts", "");
        let proxy = format!("sip:{};transport={}", server.address_over(transport), transport.parameter());
        let account =
            format!("<{}>;outbound=\"{proxy}\";regint=60;answermode=auto{more}\n", server.uri(user));
        scratch.write("accounts", &account);
        let log = scratch.create("screen.log");
        let err = log.try_clone().expect("a log can be written to twice");
        let child = Command::new("baresip")
            .arg("-f")
            .arg(scratch.path())
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(err)
            .spawn();
        let child = child.unwrap_or_else(|error| panic!("baresip: {error}; `cargo xtask test` installs it"));
        Self { user: user.to_owned(), address, child, scratch }
    }

    /// Waits until the softphone says this on its screen.
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
        let count = || self.scratch.read("screen.log").matches(text).count();
        let said = poll(PROGRAM_PATIENCE, || (count() >= times).then_some(()));
        assert!(said.is_some(), "{} does not say {times} times: {text}", self.user);
    }

    /// Gives it a command of its menu: `dial`, `hangup`.
    ///
    /// # Panics
    ///
    /// When it does not listen for commands.
    pub fn command(&self, command: &str, parameters: &str) {
        let control = SocketAddr::new(self.address, CONTROL_PORT);
        let stream = poll(PROGRAM_PATIENCE, || TcpStream::connect(control).ok());
        let json = format!(r#"{{"command":"{command}","params":"{parameters}"}}"#);
        let sent = stream.and_then(|mut stream| write!(stream, "{}:{json},", json.len()).ok());
        assert!(sent.is_some(), "{} takes no commands", self.user);
    }
}

impl Drop for Baresip {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn configuration(address: IpAddr) -> String {
    format!(
        "poll_method epoll\n\
         sip_listen {address}:{SIP_PORT}\n\
         net_interface {address}\n\
         audio_player aubridge,nil\n\
         audio_source aubridge,nil\n\
         audio_alert aubridge,nil\n\
         ctrl_tcp_listen {address}:{CONTROL_PORT}\n\
         module_path /usr/lib/baresip/modules\n\
         module g711.so\n\
         module aubridge.so\n\
         module_app account.so\n\
         module_app menu.so\n\
         module_app ctrl_tcp.so\n"
    )
}
