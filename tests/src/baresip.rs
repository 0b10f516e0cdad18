//! baresip, a softphone, without sound devices.

use std::io::Write as _;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

use crate::address::SIP_PORT;
use crate::process::poll;
use crate::{PATIENCE, Scratch, Server, loopback};

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
        let scratch = Scratch::new(user);
        let address = IpAddr::from(loopback());
        scratch.write("config", &configuration(address));
        scratch.write("contacts", "");
        scratch.write("accounts", &format!("<{}>;regint=60;answermode=auto\n", server.uri(user)));
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
        let said = poll(PATIENCE, || self.scratch.read("screen.log").contains(text).then_some(()));
        assert!(said.is_some(), "{} never says: {text}", self.user);
    }

    /// Gives it a command of its menu: `dial`, `hangup`.
    ///
    /// # Panics
    ///
    /// When it does not listen for commands.
    pub fn command(&self, command: &str, parameters: &str) {
        let control = SocketAddr::new(self.address, CONTROL_PORT);
        let stream = poll(PATIENCE, || TcpStream::connect(control).ok());
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
