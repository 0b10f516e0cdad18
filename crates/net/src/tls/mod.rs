//! TLS by rustls: profiles, sessions over bytes, and the threads that shake hands.
//!
//! A handshake costs as much as dozens of calls, so it is no business of a shard: the socket goes to a
//! [`HandshakePool`], whose threads run at a lower priority, and comes back with a [`Session`] as
//! [`Parcel::Secured`](crate::queue::Parcel::Secured).
//!
//! TLS 1.2 (RFC 5246) and 1.3 (RFC 8446); whom a certificate names is RFC 5922's business.

mod certificates;
mod ciphers;
mod client;
mod der;
mod error;
mod handshake;
mod identity;
mod pool;
mod profiles;
mod session;
#[cfg(test)]
mod tests;
mod tickets;
mod verify;

use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;

pub use error::{HandshakeError, NotTls, SessionError, TlsError};
pub use pool::{HANDSHAKE_THREADS_MAX, HandshakePool, HandshakeStatistics};
pub use session::{Received, Session, SessionFacts};

use profiles::Loaded;
use tickets::TicketKeys;

/// What is asked of the other side's certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PeerCertificate {
    /// Nothing (`verify_certificate=no`).
    #[default]
    Off,
    /// A server asks its client for one and goes on without; one that is there must be valid.
    Request,
    /// There must be one, and it must be valid (`require_certificate=yes`).
    Require,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TlsVersion {
    /// TLS 1.2 (RFC 5246).
    V1_2,
    /// TLS 1.3 (RFC 8446).
    V1_3,
}

/// One certificate with its key, both PEM files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate, then those that lead to its CA.
    pub chain: PathBuf,
    /// Its private key; may be the same file.
    pub key: PathBuf,
}

/// One profile: `[server:…]` or `[client:…]` of a `tls.cfg`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// The address that it is for; all others if `None` (`default`).
    pub address: Option<SocketAddr>,
    /// For a server profile: the name (SNI) that it is for, `*.` in front for one label more.
    /// For a client profile: the name to ask for and to verify instead of the next hop's domain.
    pub server_name: Option<String>,
    /// Certificates, one of each kind of key (RSA, ECDSA): the client's algorithms decide. None for a client
    /// profile without.
    pub certificates: Vec<CertificateFiles>,
    /// CAs that the other side's certificate may come from; the system's where it is `None`.
    pub ca_list: Option<PathBuf>,
    /// Certificates revoked by those CAs. Every CA of a chain must have a list here that is not out of date:
    /// else its certificates are refused, as it cannot be known whether they were revoked.
    pub crl: Option<PathBuf>,
    /// What is asked of the other side.
    pub peer: PeerCertificate,
    /// The oldest and newest version.
    pub versions: (TlsVersion, TlsVersion),
    /// OpenSSL names of cipher suites of TLS 1.2 and 1.3, separated by colons; all that are safe if `None`.
    pub cipher_list: Option<String>,
}

/// Everything about TLS that a configuration sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSettings {
    /// Server profiles: address and name, then address, then name, then default decide.
    pub servers: Vec<Profile>,
    /// Client profiles.
    pub clients: Vec<Profile>,
    /// Longest time for a handshake; default 10 s.
    pub handshake_timeout: Duration,
    /// Handshakes under way at once; the next connection is closed and counted; default 4,096.
    pub handshakes_max: usize,
    /// How long a session can be resumed, as server (tickets) and as client; default 2 h, at most 6 h; zero:
    /// never.
    pub session_lifetime: Duration,
    /// Sessions kept to be resumed as client, one for each peer; default 4,096.
    pub client_sessions_max: usize,
}

impl Default for TlsSettings {
    /// No profiles, and the defaults of the rest.
    fn default() -> TlsSettings {
        TlsSettings {
            servers: Vec::new(),
            clients: Vec::new(),
            handshake_timeout: Duration::from_secs(10),
            handshakes_max: 4_096,
            session_lifetime: Duration::from_secs(2 * 3_600),
            client_sessions_max: 4_096,
        }
    }
}

/// The profiles in use; clones share them, so that a reload is for all.
#[derive(Clone, Debug)]
pub struct Tls(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    loaded: ArcSwap<Loaded>,
    /// Seal tickets; they outlive reloads, so that sessions go on.
    keys: Arc<TicketKeys>,
    /// Held by whoever loads: of two reloads at once the later one counts.
    loading: Mutex<()>,
}

impl Tls {
    /// Reads all files that the settings name.
    ///
    /// A certificate of ours that is not valid today is used, with a warning.
    ///
    /// # Errors
    ///
    /// One line that names the file, what is wrong with it and what to do.
    pub fn load(settings: TlsSettings) -> Result<Tls, TlsError> {
        let keys = Arc::new(TicketKeys::default());
        let loaded = ArcSwap::from_pointee(Loaded::new(settings, &keys)?);
        Ok(Tls(Arc::new(Shared { loaded, keys, loading: Mutex::default() })))
    }

    /// Reads the files again, for handshakes from now on.
    ///
    /// Tickets stay good where what is asked of clients (CAs, revocation list) is the same as before.
    ///
    /// # Errors
    ///
    /// As [`load`](Self::load); what was loaded before stays in use then.
    pub fn reload(&self) -> Result<(), TlsError> {
        let _one_at_a_time = self.0.loading.lock().unwrap_or_else(PoisonError::into_inner);
        let settings = self.0.loaded.load().settings.clone();
        self.put(settings)
    }

    /// Puts other settings in the place of those in use, for handshakes from now on.
    ///
    /// # Errors
    ///
    /// As [`load`](Self::load); what was loaded before stays in use then.
    pub fn replace(&self, settings: TlsSettings) -> Result<(), TlsError> {
        let _one_at_a_time = self.0.loading.lock().unwrap_or_else(PoisonError::into_inner);
        self.put(settings)
    }

    fn put(&self, settings: TlsSettings) -> Result<(), TlsError> {
        self.0.loaded.store(Arc::new(Loaded::new(settings, &self.0.keys)?));
        Ok(())
    }

    fn loaded(&self) -> arc_swap::Guard<Arc<Loaded>> {
        self.0.loaded.load()
    }
}

/// A connection that was secured.
#[derive(Debug)]
pub struct Secured {
    /// Non-blocking; no poll knows it.
    pub(crate) socket: TcpStream,
    pub(crate) session: Session,
    /// Application data that came with the last flight of the handshake.
    pub(crate) plaintext: Vec<u8>,
}
