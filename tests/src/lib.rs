//! The harness of the end-to-end tests: the real server as a process, and peers to talk to it.
//!
//! - [`Server`] starts the release build of `strowger` on a loopback address of its own and stops it when dropped;
//! - [`Phone`] is a SIP user agent over any transport whose every message the test sees and forms, for nasty cases;
//! - [`Connection`] is one connection byte by byte, for what no user agent would send;
//! - [`Sipp`], [`Baresip`], [`Linphone`], [`Browser`], [`Openssl`] and [`sipsak`] drive real peers;
//! - [`Authority`] makes certificates, good ones and bad ones, and [`Network`] hosts whose cable can be pulled;
//! - [`Sipstone`] is our benchmark suite as a process, and [`Kamailio`] a second server for it to measure;
//! - [`Link`] is a network that loses datagrams.
//!
//! The harness shares no code with the server: a mistake that both made would be invisible.
//!
//! Every server and every peer has its own address in 127.0.0.0/8 (see [`loopback`]), so tests run side by side and
//! the ports can be the usual ones. What a test leaves behind (configuration, logs) is printed when it fails.
//!
//! With `STROWGER_E2E_SERVER=kamailio` in the environment the suite runs against Kamailio with the same configuration
//! files, which shows whether a test expects what SIP says or only what we do. Tests of what Kamailio does not have
//! begin with [`only_strowger!`]. `STROWGER_E2E_BINARY` names another `strowger` than the release build beside us.

mod address;
mod baresip;
mod browser;
mod cable;
mod certificates;
mod connection;
mod credentials;
mod crowd;
mod database;
mod dialog;
pub mod differential;
mod digest;
mod house;
mod link;
mod linphone;
mod message;
mod network;
mod openssl;
mod phone;
mod process;
mod scratch;
mod server;
mod sipp;
mod sipsak;
mod sipstone;
mod streams;
mod transport;
mod websocket;

pub use address::{SIP_PORT, loopback, loopback_v6, unique};
pub use baresip::Baresip;
pub use browser::Browser;
pub use cable::Cable;
pub use certificates::{Authority, Identity, Validity};
pub use connection::{Connection, Ending, Received};
pub use credentials::{Credentials, Versions};
pub use crowd::{Crowd, Load, Promise, Random};
pub use database::{Database, Sql};
pub use dialog::Dialog;
pub use digest::{Algorithm, Challenge, Digest, Subscriber, again, final_answer, written};
pub use house::{House, contacts, listed, strowger};
pub use link::Link;
pub use linphone::Linphone;
pub use message::{Message, via_port};
pub use network::Network;
pub use openssl::{Openssl, OpensslRun, Talk};
pub use phone::{Cut, PATIENCE, Phone, QUIET, datagram};
pub use process::{Signal, Usage, signal, wait_for_exit};
pub use scratch::Scratch;
pub use server::{Server, Start, conf_directory, is_strowger, strowger_binary, tls_configuration};
pub use sipp::{Sipp, SippRun};
pub use sipsak::sipsak;
pub use sipstone::{Kamailio, Outcome, Report, Running, Sipstone};
pub use transport::Transport;
pub use websocket::{Frame, fragment, frame, upgrade_request};

/// Ends the test at once when the suite runs against another server, saying so.
#[macro_export]
macro_rules! only_strowger {
    ($why:literal) => {
        if !$crate::is_strowger() {
            eprintln!("skipped: {}", $why);
            return;
        }
    };
}
