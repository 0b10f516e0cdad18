//! Hosts of our own on this machine: two network namespaces with a cable between them that can be pulled.

use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{self, Command};
use std::thread;

use nix::sched::{CloneFlags, setns};

use crate::connection::dial;
use crate::process::output;
use crate::unique;

/// Two hosts, one for the server and one for its peers. They vanish when dropped.
///
/// Their addresses are of TEST-NET-2 (RFC 5737), which leads nowhere outside.
#[derive(Debug)]
pub struct Network {
    server: String,
    peers: String,
}

const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
const PEERS: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);

impl Network {
    /// Two new hosts with a cable; `None`, and a line that says why, where this user may not make any.
    pub fn new() -> Option<Self> {
        let name = unique();
        let network = Self { server: format!("strowger-{name}-a"), peers: format!("strowger-{name}-b") };
        match network.build() {
            Ok(()) => Some(network),
            Err(error) => {
                eprintln!("skipped: no network namespaces here, which root may make: {error}");
                None
            }
        }
    }

    fn build(&self) -> Result<(), String> {
        let (server, peers) = (self.server.as_str(), self.peers.as_str());
        ip(&["netns", "add", server])?;
        ip(&["netns", "add", peers])?;
        ip(&["-n", server, "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", peers])?;
        for (host, address) in [(server, SERVER), (peers, PEERS)] {
            ip(&["-n", host, "address", "add", &format!("{address}/24"), "dev", "cable"])?;
            ip(&["-n", host, "link", "set", "lo", "up"])?;
            ip(&["-n", host, "link", "set", "cable", "up"])?;
        }
        Ok(())
    }

    /// The server's address.
    pub fn server(&self) -> IpAddr {
        SERVER.into()
    }

    /// A command that runs on the server's host.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.server]).arg(program);
        command
    }

    /// Connects from the peers' host. The socket stays on that host, whoever uses it.
    ///
    /// # Errors
    ///
    /// As of connecting anywhere.
    ///
    /// # Panics
    ///
    /// When the host has gone.
    pub fn dial(&self, server: SocketAddr) -> io::Result<TcpStream> {
        let host = File::open(format!("/run/netns/{}", self.peers)).expect("the peers' host is there");
        let dialled = thread::scope(|scope| {
            let on_host = scope.spawn(|| {
                // Only this thread moves, and it ends here.
                setns(&host, CloneFlags::CLONE_NEWNET)?;
                dial(None, server)
            });
            on_host.join()
        });
        dialled.expect("the thread that connects does not panic")
    }

    /// Pulls the cable on the peers' side: what is sent from now on is lost, and nobody is told.
    ///
    /// # Panics
    ///
    /// When there is no cable.
    pub fn pull_cable(&self) {
        // The peers' host forgets the server's, so nothing answers even if a packet came through.
        let pulled = ip(&["-n", &self.peers, "link", "set", "cable", "down"]);
        pulled.unwrap_or_else(|error| panic!("the cable: {error}"));
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for host in [&self.server, &self.peers] {
            // A host that was never made cannot be removed.
            let _ = ip(&["netns", "delete", host]);
        }
    }
}

fn ip(arguments: &[&str]) -> Result<(), String> {
    let output = output(Command::new("ip").args(arguments)).map_err(|error| format!("ip: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        Ok(())
    } else {
        Err(format!("ip {} (process {}): {}", arguments.join(" "), process::id(), said.trim()))
    }
}
