//! The profiles of a configuration, made ready for `rustls`; which of them a connection gets.

use std::net::SocketAddr;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::ServerName;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion, version};

use super::certificates::{self, Certificates};
use super::ciphers;
use super::client::{ClientSessions, PeerSessions};
use super::tickets::{LIFETIME_MAX, Policy, TicketKeys, Tickets};
use super::verify::{Authorities, ClientVerifier, ServerVerifier};
use super::{PeerCertificate, Profile, TlsError, TlsSettings, TlsVersion};

/// A server profile that is ready for use.
#[derive(Debug)]
pub(super) struct ServerProfile {
    address: Option<SocketAddr>,
    /// In lower case; `*.` in front stands for one label.
    name: Option<String>,
    pub(super) config: Arc<ServerConfig>,
}

/// A client profile that is ready for use.
#[derive(Debug)]
pub(super) struct ClientProfile {
    address: Option<SocketAddr>,
    /// What the peer must prove instead of the next hop's domain.
    pub(super) name: Option<String>,
    config: ClientConfig,
    pub(super) verifies: bool,
}

/// All of a configuration.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) settings: TlsSettings,
    servers: Vec<ServerProfile>,
    clients: Vec<ClientProfile>,
    sessions: Arc<ClientSessions>,
}

impl Loaded {
    /// Reads all files and checks everything that can be checked.
    pub(super) fn new(settings: TlsSettings, keys: &Arc<TicketKeys>) -> Result<Loaded, TlsError> {
        check(&settings)?;
        let mut loader = Loader { system: None, keys: keys.clone(), lifetime: lifetime(&settings) };
        let servers = settings.servers.iter().map(|profile| loader.server(profile));
        let servers = servers.collect::<Result<Vec<_>, _>>()?;
        let clients = settings.clients.iter().map(|profile| loader.client(profile));
        let clients = clients.collect::<Result<Vec<_>, _>>()?;
        let sessions = ClientSessions::new(settings.client_sessions_max, u64::from(loader.lifetime));
        Ok(Loaded { settings, servers, clients, sessions: Arc::new(sessions) })
    }

    /// The profile for a client that connected to `local` and asks for `name` (SNI, RFC 6066 §3).
    ///
    /// Address and name decide before address alone, that before name alone, that before the default; a whole
    /// name before a wildcard, a whole address before one with a part open; the first one written where that is
    /// all the same.
    pub(super) fn server(&self, local: SocketAddr, name: Option<&str>) -> Option<&ServerProfile> {
        let name = name.map(|name| name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase());
        let rank = |profile: &ServerProfile| {
            let address = rank_of_address(profile.address, local)?;
            Some((address, rank_of_name(profile.name.as_deref(), name.as_deref())?))
        };
        best(&self.servers, rank).map(|at| &self.servers[at])
    }

    /// The profile for a connection to `remote`.
    pub(super) fn client(&self, remote: SocketAddr) -> Option<(&ClientProfile, ClientConfig)> {
        let at = best(&self.clients, |profile| rank_of_address(profile.address, remote))?;
        let profile = &self.clients[at];
        let mut config = profile.config.clone();
        if lifetime(&self.settings) > 0 && self.settings.client_sessions_max > 0 {
            let sessions = PeerSessions { sessions: self.sessions.clone(), profile: at, address: remote };
            config.resumption = Resumption::store(Arc::new(sessions));
        }
        Some((profile, config))
    }
}

/// The place of the first of those with the highest rank.
fn best<T, R: Ord>(profiles: &[T], rank: impl Fn(&T) -> Option<R>) -> Option<usize> {
    let mut best: Option<(R, usize)> = None;
    for (at, profile) in profiles.iter().enumerate() {
        if let Some(rank) = rank(profile)
            && best.as_ref().is_none_or(|(other, _)| rank > *other)
        {
            best = Some((rank, at));
        }
    }
    best.map(|(_, at)| at)
}

/// How well an address fits: not at all, for all, with its port or its IP address open, entirely.
fn rank_of_address(profile: Option<SocketAddr>, actual: SocketAddr) -> Option<u8> {
    let Some(wanted) = profile else { return Some(0) };
    let any_ip = wanted.ip().is_unspecified();
    let ip_fits = any_ip || wanted.ip().to_canonical() == actual.ip().to_canonical();
    let port_fits = wanted.port() == 0 || wanted.port() == actual.port();
    (ip_fits && port_fits).then_some(if any_ip || wanted.port() == 0 { 1 } else { 2 })
}

/// How well a name fits: not at all, for all, by wildcard, entirely.
fn rank_of_name(profile: Option<&str>, asked: Option<&str>) -> Option<u8> {
    let Some(wanted) = profile else { return Some(0) };
    let asked = asked?;
    if let Some(parent) = wanted.strip_prefix("*.") {
        let (label, rest) = asked.split_once('.')?;
        return (!label.is_empty() && rest == parent).then_some(1);
    }
    (wanted == asked).then_some(2)
}

fn check(settings: &TlsSettings) -> Result<(), TlsError> {
    if settings.handshake_timeout.is_zero() {
        return Err(TlsError::setting("the longest time of a TLS handshake is zero", "set it to 10 seconds"));
    }
    if settings.handshakes_max == 0 {
        return Err(TlsError::setting("no TLS handshake may be under way", "set their number to 4096"));
    }
    if settings.session_lifetime > LIFETIME_MAX {
        tracing::warn!("TLS sessions are kept for 6 hours at most, although the configuration says more");
    }
    Ok(())
}

/// The name of a server profile must be one that clients can ask for.
fn check_pattern(profile: &Profile) -> Result<(), TlsError> {
    let Some(name) = &profile.server_name else { return Ok(()) };
    let host = name.strip_prefix("*.").unwrap_or(name);
    // SNI carries host names, no addresses (RFC 6066 §3).
    if matches!(ServerName::try_from(host), Ok(ServerName::DnsName(_))) {
        return Ok(());
    }
    let problem = format!("`{name}` is no name that a client can ask for");
    Err(TlsError::setting(problem, "set `server_name` to a host name, of other alphabets in its `xn--` form"))
}

/// Seconds for which a session can be resumed; 0: never.
fn lifetime(settings: &TlsSettings) -> u32 {
    let lifetime = settings.session_lifetime.min(LIFETIME_MAX);
    // Less than a second is one, not never.
    let seconds = lifetime.as_secs() + u64::from(lifetime.subsec_nanos() > 0);
    u32::try_from(seconds).unwrap_or(u32::MAX)
}

/// What profiles are made with.
struct Loader {
    /// The system's CAs, once they were needed.
    system: Option<Arc<RootCertStore>>,
    keys: Arc<TicketKeys>,
    lifetime: u32,
}

impl Loader {
    fn server(&mut self, profile: &Profile) -> Result<ServerProfile, TlsError> {
        let (provider, versions) = provider_and_versions(profile)?;
        if profile.certificates.is_empty() {
            let problem = format!("{} has no certificate", label("server", profile));
            return Err(TlsError::setting(problem, "give it `certificate` and `private_key`"));
        }
        check_pattern(profile)?;
        let certificates = Certificates::load(&profile.certificates, &provider)?;
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&versions)
            .map_err(|error| unusable("server", profile, &error))?;
        let (builder, policy) = if profile.peer == PeerCertificate::Off {
            let builder = builder.with_client_cert_verifier(WebPkiClientVerifier::no_client_auth());
            (builder, Policy::of([&b"off"[..]].into_iter()))
        } else {
            let (authorities, raw) = self.authorities(profile, &provider)?;
            let policy = policy(profile.peer, &authorities, &raw);
            let hints = if profile.ca_list.is_some() { authorities.roots.subjects() } else { Vec::new() };
            let mandatory = profile.peer == PeerCertificate::Require;
            (
                builder.with_client_cert_verifier(Arc::new(ClientVerifier { authorities, mandatory, hints })),
                policy,
            )
        };
        let mut config = builder.with_cert_resolver(Arc::new(certificates));
        config.session_storage = Arc::new(NoServerSessionStorage {});
        if self.lifetime > 0 {
            let lifetime = self.lifetime;
            config.ticketer = Arc::new(Tickets { keys: self.keys.clone(), policy, lifetime });
            // Each connection gets a new one when it begins, which is enough for the next.
            config.send_tls13_tickets = 1;
        } else {
            config.send_tls13_tickets = 0;
        }
        let name = profile.server_name.as_ref().map(|name| name.to_ascii_lowercase());
        Ok(ServerProfile { address: profile.address, name, config: Arc::new(config) })
    }

    fn client(&mut self, profile: &Profile) -> Result<ClientProfile, TlsError> {
        let (provider, versions) = provider_and_versions(profile)?;
        if let Some(name) = &profile.server_name
            && ServerName::try_from(name.as_str()).is_err()
        {
            let problem = format!("`{name}` is no name that a server can prove");
            return Err(TlsError::setting(problem, "set `server_name` to a host name or an address"));
        }
        let verifies = profile.peer != PeerCertificate::Off;
        let authorities = if verifies { Some(self.authorities(profile, &provider)?.0) } else { None };
        let algorithms = provider.signature_verification_algorithms;
        let own = Certificates::load(&profile.certificates, &provider)?;
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&versions)
            .map_err(|error| unusable("client", profile, &error))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(ServerVerifier { authorities, algorithms }));
        let mut config = if profile.certificates.is_empty() {
            builder.with_no_client_auth()
        } else {
            builder.with_client_cert_resolver(Arc::new(own))
        };
        config.resumption = Resumption::disabled();
        Ok(ClientProfile { address: profile.address, name: profile.server_name.clone(), config, verifies })
    }

    /// Whom a profile trusts; and the bytes of its revocation lists.
    fn authorities(
        &mut self,
        profile: &Profile,
        provider: &CryptoProvider,
    ) -> Result<(Authorities, Vec<Vec<u8>>), TlsError> {
        let roots = match &profile.ca_list {
            Some(file) => Arc::new(certificates::roots(file)?),
            None => self.system_roots(),
        };
        let (revoked, raw) = match &profile.crl {
            Some(file) => certificates::revocation_lists(file)?,
            None => Default::default(),
        };
        let algorithms = provider.signature_verification_algorithms;
        Ok((Authorities { roots, revoked, algorithms }, raw))
    }

    fn system_roots(&mut self) -> Arc<RootCertStore> {
        self.system.get_or_insert_with(|| Arc::new(certificates::system_roots())).clone()
    }
}

/// What a ticket is bound to: a session begun under one policy means nothing under another.
fn policy(peer: PeerCertificate, authorities: &Authorities, lists: &[Vec<u8>]) -> Policy {
    let mode = if peer == PeerCertificate::Require { &b"require"[..] } else { b"request" };
    let roots = authorities.roots.roots.iter().flat_map(|anchor| {
        let constraints = anchor.name_constraints.as_deref().unwrap_or_default();
        [&anchor.subject[..], &anchor.subject_public_key_info[..], constraints]
    });
    let lists = lists.iter().map(Vec::as_slice);
    Policy::of([mode].into_iter().chain(roots).chain([&b"revoked"[..]]).chain(lists))
}

/// The cryptography that a profile allows, and its versions.
fn provider_and_versions(
    profile: &Profile,
) -> Result<(Arc<CryptoProvider>, Vec<&'static SupportedProtocolVersion>), TlsError> {
    let suites = match &profile.cipher_list {
        None => ciphers::all(),
        Some(list) => {
            let Some(chosen) = ciphers::choose(list) else {
                let problem = format!("none of the cipher suites in `{list}` is there");
                let advice =
                    "name some of ECDHE-{ECDSA,RSA}-{AES128-GCM-SHA256,AES256-GCM-SHA384,CHACHA20-POLY1305}";
                return Err(TlsError::setting(problem, advice));
            };
            for word in &chosen.unknown {
                tracing::warn!("cipher suite `{word}` is not there, or not safe: skipped");
            }
            chosen.suites
        }
    };
    let (oldest, newest) = profile.versions;
    let has = |tls13: bool| suites.iter().any(|suite| suite.tls13().is_some() == tls13);
    let mut versions = Vec::with_capacity(2);
    if newest >= TlsVersion::V1_3 && has(true) {
        versions.push(&version::TLS13);
    }
    if oldest <= TlsVersion::V1_2 && has(false) {
        versions.push(&version::TLS12);
    }
    if versions.is_empty() {
        let problem = "the versions of a TLS profile leave no cipher suite of its list";
        return Err(TlsError::setting(problem, "allow both TLS 1.2 and 1.3, or leave the cipher list out"));
    }
    let enabled = |suite: &rustls::SupportedCipherSuite| versions.contains(&suite.version());
    let cipher_suites = suites.into_iter().filter(enabled).collect();
    let provider = CryptoProvider { cipher_suites, ..aws_lc_rs::default_provider() };
    Ok((Arc::new(provider), versions))
}

fn label(kind: &str, profile: &Profile) -> String {
    match (&profile.address, &profile.server_name) {
        (Some(address), Some(name)) => format!("the {kind} profile for {address} and {name}"),
        (Some(address), None) => format!("the {kind} profile for {address}"),
        (None, Some(name)) => format!("the {kind} profile for {name}"),
        (None, None) => format!("the default {kind} profile"),
    }
}

fn unusable(kind: &str, profile: &Profile, error: &rustls::Error) -> TlsError {
    let problem = format!("{} is not usable: {error}", label(kind, profile));
    TlsError::setting(problem, "correct its versions and cipher list")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_fits_entirely_or_with_a_part_open() {
        let rank = |profile: &str, actual: &str| rank_of_address(Some(address(profile)), address(actual));
        assert_eq!(rank("192.0.2.1:5061", "192.0.2.1:5061"), Some(2));
        assert_eq!(rank("192.0.2.1:0", "192.0.2.1:5061"), Some(1));
        assert_eq!(rank("0.0.0.0:5061", "192.0.2.1:5061"), Some(1));
        assert_eq!(rank("192.0.2.1:5061", "[::ffff:192.0.2.1]:5061"), Some(2));
        assert_eq!(rank("192.0.2.1:5061", "192.0.2.2:5061"), None);
        assert_eq!(rank("192.0.2.1:5061", "192.0.2.1:5062"), None);
        assert_eq!(rank_of_address(None, address("192.0.2.1:5061")), Some(0));
    }

    #[test]
    fn a_wildcard_stands_for_exactly_one_label() {
        let rank = |profile: &str, asked: &str| rank_of_name(Some(profile), Some(asked));
        assert_eq!(rank("sip.example.org", "sip.example.org"), Some(2));
        assert_eq!(rank("*.example.org", "sip.example.org"), Some(1));
        assert_eq!(rank("*.example.org", "example.org"), None);
        assert_eq!(rank("*.example.org", "a.b.example.org"), None);
        assert_eq!(rank("*.example.org", ".example.org"), None);
        assert_eq!(rank_of_name(Some("example.org"), None), None);
        assert_eq!(rank_of_name(None, Some("example.org")), Some(0));
    }

    #[test]
    fn the_first_of_the_best_is_taken() {
        assert_eq!(best(&[1, 3, 2, 3], |n| Some(*n)), Some(1));
        assert_eq!(best(&[1, 3], |_| None::<u8>), None);
    }
}
