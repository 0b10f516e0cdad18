//! TLS for the generator: one configuration for each end, made from what the workload says (RFC 5246, RFC 8446).
//!
//! What is measured must not depend on luck: with [`TlsMode::Full`] and [`TlsMode::Mutual`] no session is ever offered or
//! accepted, with [`TlsMode::Reuse`] every handshake but the first has one to offer.

use crate::certs::{Authority, Name};
use crate::spec::{OwnCertificate, Tls, TlsMode, TlsVersion};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ClientSessionStore, Resumption, Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, ServerSessionMemoryCache, WebPkiClientVerifier};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, DistinguishedName, NamedGroup, RootCertStore,
    ServerConfig, ServerConnection, SignatureScheme, SupportedProtocolVersion,
};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Tickets of TLS 1.3 that a client keeps. Each is good for one connection, so that as many are needed as connections
/// are begun before the first of them brings new ones; further ones take the place of the oldest.
const TICKETS_MAX: usize = 4096;

/// Sessions that a server keeps by their id (TLS 1.2); tickets need no room.
const SERVER_SESSIONS: usize = 65_536;

/// Both ends of TLS, for all connections of one worker.
#[derive(Clone, Debug)]
pub(crate) struct Ends {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    name: ServerName<'static>,
}

impl Ends {
    /// As the workload says; `server` is the address of the server under test, and `own` what we are reached by.
    ///
    /// # Errors
    /// A sentence that names the option: a certificate or key that cannot be read, a cipher suite that there is not.
    pub(crate) fn new(tls: &Tls, server: IpAddr, own: &[IpAddr]) -> Result<Ends, String> {
        let provider = Arc::new(provider(tls)?);
        let (chain, key) = read(&own_certificate(tls, own)?)?;
        let roots = tls.authorities.as_deref().map(roots).transpose()?;
        let name = match &tls.server_name {
            Some(name) => ServerName::try_from(name.clone())
                .map_err(|_| format!("{name:?} is no name that a server can prove with a certificate"))?,
            None => ServerName::IpAddress(server.into()),
        };
        Ok(Ends {
            client: Arc::new(client(tls, &provider, roots.clone(), (chain.clone(), key.clone_key()))?),
            server: Arc::new(self::server(tls, &provider, roots, (chain, key))?),
            name,
        })
    }

    /// A connection of ours to the server.
    pub(crate) fn connect(&self) -> Result<rustls::Connection, rustls::Error> {
        ClientConnection::new(Arc::clone(&self.client), self.name.clone()).map(Into::into)
    }

    /// A connection of the server's to us.
    pub(super) fn accept(&self) -> Result<rustls::Connection, rustls::Error> {
        ServerConnection::new(Arc::clone(&self.server)).map(Into::into)
    }
}

/// Our certificate: the workload's, or one for these addresses, issued by an authority that nobody knows.
///
/// # Errors
/// It cannot be made.
pub(crate) fn own_certificate(tls: &Tls, own: &[IpAddr]) -> Result<OwnCertificate, String> {
    if let Some(own) = &tls.own {
        return Ok(own.clone());
    }
    let key = tls.key;
    let mut names: Vec<Name> = own.iter().copied().map(Name::Address).collect();
    names.push(Name::Dns("sipstone".into()));
    let issued = Authority::new(key).and_then(|authority| authority.issue(&names));
    let issued = issued.map_err(|error| error.to_string())?;
    Ok(OwnCertificate { chain: issued.chain_pem().into(), key: issued.key_pem().into() })
}

type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn read(own: &OwnCertificate) -> Result<Identity, String> {
    let unread = |what: &str| {
        format!("the {what} of sipstone's own certificate cannot be read: make it anew with --tls-out")
    };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(own.chain.as_bytes()).collect();
    let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes());
    Ok((chain.map_err(|_| unread("chain"))?, key.map_err(|_| unread("key"))?))
}

/// The authorities of a PEM text.
///
/// # Errors
/// No certificate is in it, or one that cannot be read.
pub(crate) fn roots(pem: &str) -> Result<Arc<RootCertStore>, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let certificate =
            certificate.map_err(|error| format!("a certificate of an authority cannot be read: {error}"))?;
        roots
            .add(certificate)
            .map_err(|error| format!("a certificate of an authority cannot be used: {error}"))?;
    }
    if roots.is_empty() {
        return Err(
            "no certificate of an authority (-----BEGIN CERTIFICATE-----) is in the file of --tls-ca".into(),
        );
    }
    Ok(Arc::new(roots))
}

/// The cipher suites that there are, restricted to the one that was asked for.
fn provider(tls: &Tls) -> Result<CryptoProvider, String> {
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    if let Some(wanted) = &tls.cipher {
        let all: Vec<String> = provider.cipher_suites.iter().map(|suite| suite_name(suite.suite())).collect();
        provider.cipher_suites.retain(|suite| suite_name(suite.suite()).eq_ignore_ascii_case(wanted));
        if provider.cipher_suites.is_empty() {
            return Err(format!("no cipher suite is called {wanted:?}; there are {}", all.join(", ")));
        }
    }
    let fits = |suite: &rustls::SupportedCipherSuite| match tls.version {
        Some(version) => suite.version() == version_of(version),
        None => true,
    };
    if !provider.cipher_suites.iter().any(fits) {
        return Err("--tls-cipher names a cipher suite of another version of TLS than --tls-version".into());
    }
    Ok(provider)
}

/// The name of a cipher suite as it is registered: rustls writes the suites of TLS 1.3 with their version.
pub(super) fn suite_name(suite: rustls::CipherSuite) -> String {
    let name = format!("{suite:?}");
    name.strip_prefix("TLS13_").map_or(name.clone(), |rest| format!("TLS_{rest}"))
}

fn version_of(version: TlsVersion) -> &'static SupportedProtocolVersion {
    match version {
        TlsVersion::V1_2 => &rustls::version::TLS12,
        TlsVersion::V1_3 => &rustls::version::TLS13,
    }
}

fn versions(tls: &Tls, provider: &CryptoProvider) -> Vec<&'static SupportedProtocolVersion> {
    // A version of which no cipher suite is left cannot be offered.
    let usable = |version: &&SupportedProtocolVersion| {
        provider.cipher_suites.iter().any(|suite| suite.version() == *version)
    };
    let wanted = match tls.version {
        Some(version) => vec![version_of(version)],
        None => vec![&rustls::version::TLS13, &rustls::version::TLS12],
    };
    wanted.into_iter().filter(usable).collect()
}

fn wrong(error: &rustls::Error) -> String {
    format!("TLS cannot be set up: {error}; look at --tls-version and --tls-cipher")
}

fn client(
    tls: &Tls,
    provider: &Arc<CryptoProvider>,
    roots: Option<Arc<RootCertStore>>,
    (chain, key): Identity,
) -> Result<ClientConfig, String> {
    let builder = ClientConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(&versions(tls, provider))
        .map_err(|error| wrong(&error))?;
    let builder = match roots {
        Some(roots) => builder.with_root_certificates(roots),
        None => builder.dangerous().with_custom_certificate_verifier(Arc::new(Anybody::new(provider))),
    };
    let mut config = match tls.mode {
        TlsMode::Mutual => builder.with_client_auth_cert(chain, key).map_err(|error| wrong(&error))?,
        TlsMode::Full | TlsMode::Reuse => builder.with_no_client_auth(),
    };
    config.resumption = match tls.mode {
        TlsMode::Reuse => Resumption::store(Arc::new(Sessions::default())),
        TlsMode::Full | TlsMode::Mutual => Resumption::disabled(),
    };
    Ok(config)
}

fn server(
    tls: &Tls,
    provider: &Arc<CryptoProvider>,
    roots: Option<Arc<RootCertStore>>,
    (chain, key): Identity,
) -> Result<ServerConfig, String> {
    let builder = ServerConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(&versions(tls, provider))
        .map_err(|error| wrong(&error))?;
    let builder = match (tls.mode, roots) {
        (TlsMode::Mutual, Some(roots)) => {
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(provider)).build();
            builder.with_client_cert_verifier(
                verifier.map_err(|error| format!("--tls-ca cannot be used: {error}"))?,
            )
        }
        (TlsMode::Mutual, None) => builder.with_client_cert_verifier(Arc::new(Anybody::new(provider))),
        (TlsMode::Full | TlsMode::Reuse, _) => builder.with_no_client_auth(),
    };
    let mut config = builder.with_single_cert(chain, key).map_err(|error| wrong(&error))?;
    if tls.mode == TlsMode::Reuse {
        config.session_storage = ServerSessionMemoryCache::new(SERVER_SESSIONS);
        config.ticketer = rustls::crypto::aws_lc_rs::Ticketer::new().map_err(|error| wrong(&error))?;
    } else {
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    Ok(config)
}

/// The sessions of one worker with the one server that there is. What rustls has for this keeps eight tickets of a server:
/// a burst of more connections would have to make full handshakes.
#[derive(Debug, Default)]
struct Sessions(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    group: Option<NamedGroup>,
    session: Option<Tls12ClientSessionValue>,
    tickets: VecDeque<Tls13ClientSessionValue>,
}

impl Sessions {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientSessionStore for Sessions {
    fn set_kx_hint(&self, _: ServerName<'static>, group: NamedGroup) {
        self.kept().group = Some(group);
    }

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        self.kept().group
    }

    fn set_tls12_session(&self, _: ServerName<'static>, value: Tls12ClientSessionValue) {
        self.kept().session = Some(value);
    }

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.kept().session.clone()
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {
        self.kept().session = None;
    }

    fn insert_tls13_ticket(&self, _: ServerName<'static>, value: Tls13ClientSessionValue) {
        let mut kept = self.kept();
        if kept.tickets.len() == TICKETS_MAX {
            kept.tickets.pop_front();
        }
        kept.tickets.push_back(value);
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.kept().tickets.pop_back()
    }
}

/// Believes everybody's certificate, but not that somebody has its key: the handshake costs what it costs.
#[derive(Debug)]
struct Anybody {
    algorithms: WebPkiSupportedAlgorithms,
}

impl Anybody {
    fn new(provider: &CryptoProvider) -> Anybody {
        Anybody { algorithms: provider.signature_verification_algorithms }
    }
}

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

impl ClientCertVerifier for Anybody {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certs::KeyKind;

    fn ends(tls: &Tls) -> Ends {
        Ends::new(tls, IpAddr::from([127, 0, 0, 1]), &[IpAddr::from([127, 0, 0, 1])]).unwrap()
    }

    /// Carries bytes between two ends until both have what they need.
    fn shake(client: &mut rustls::Connection, server: &mut rustls::Connection) -> Result<(), rustls::Error> {
        for _ in 0..10 {
            for turn in 0..2 {
                let (from, to) =
                    if turn == 0 { (&mut *client, &mut *server) } else { (&mut *server, &mut *client) };
                let mut bytes = Vec::new();
                while from.wants_write() {
                    from.write_tls(&mut bytes).unwrap();
                }
                let mut rest = bytes.as_slice();
                while !rest.is_empty() {
                    to.read_tls(&mut rest).unwrap();
                    to.process_new_packets()?;
                }
            }
        }
        Ok(())
    }

    fn kinds(ends: &Ends, times: usize) -> Vec<rustls::HandshakeKind> {
        let one = |_| {
            let (mut client, mut server) = (ends.connect().unwrap(), ends.accept().unwrap());
            shake(&mut client, &mut server).unwrap();
            assert!(!client.is_handshaking() && !server.is_handshaking());
            assert_eq!(client.handshake_kind(), server.handshake_kind());
            client.handshake_kind().unwrap()
        };
        (0..times).map(one).collect()
    }

    #[test]
    fn full_handshakes_never_resume_and_reuse_resumes_all_but_the_first() {
        use rustls::HandshakeKind::{Full, Resumed};
        for version in [TlsVersion::V1_2, TlsVersion::V1_3] {
            for (mode, then) in [(TlsMode::Full, Full), (TlsMode::Mutual, Full), (TlsMode::Reuse, Resumed)] {
                let tls = Tls { mode, version: Some(version), ..Tls::default() };
                assert_eq!(kinds(&ends(&tls), 4), [Full, then, then, then], "{version:?} {mode:?}");
            }
        }
    }

    /// RFC 8446 §4.6.1: a server issues several tickets, and a client offers each once.
    #[test]
    fn a_burst_of_connections_has_a_ticket_for_each() {
        let ends = ends(&Tls { mode: TlsMode::Reuse, version: Some(TlsVersion::V1_3), ..Tls::default() });
        kinds(&ends, 20);
        let burst: Vec<_> = (0..20).map(|_| (ends.connect().unwrap(), ends.accept().unwrap())).collect();
        for (mut client, mut server) in burst {
            shake(&mut client, &mut server).unwrap();
            assert_eq!(client.handshake_kind(), Some(rustls::HandshakeKind::Resumed));
        }
    }

    #[test]
    fn version_and_cipher_suite_are_those_asked_for() {
        for (version, cipher) in [
            (Some(TlsVersion::V1_2), "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"),
            (None, "tls_chacha20_poly1305_sha256"),
        ] {
            let ends = ends(&Tls { version, cipher: Some(cipher.into()), ..Tls::default() });
            let (mut client, mut server) = (ends.connect().unwrap(), ends.accept().unwrap());
            shake(&mut client, &mut server).unwrap();
            let suite = suite_name(client.negotiated_cipher_suite().unwrap().suite());
            assert!(suite.eq_ignore_ascii_case(cipher), "{suite}");
        }
    }

    #[test]
    fn what_cannot_be_is_a_sentence() {
        let fails = |tls: Tls| Ends::new(&tls, IpAddr::from([127, 0, 0, 1]), &[]).unwrap_err();
        assert!(
            fails(Tls { cipher: Some("NULL".into()), ..Tls::default() }).contains("TLS_AES_128_GCM_SHA256")
        );
        let other = Tls {
            version: Some(TlsVersion::V1_2),
            cipher: Some("TLS_AES_128_GCM_SHA256".into()),
            ..Tls::default()
        };
        assert!(fails(other).contains("another version"));
        assert!(fails(Tls { authorities: Some("nothing".into()), ..Tls::default() }).contains("--tls-ca"));
        assert!(fails(Tls { own: Some(OwnCertificate::default()), ..Tls::default() }).contains("--tls-out"));
        assert!(fails(Tls { server_name: Some("a b".into()), ..Tls::default() }).contains("a b"));
    }

    #[test]
    fn a_server_is_verified_against_the_authority_and_its_address() {
        let authority = Authority::new(KeyKind::EcdsaP256).unwrap();
        let issued = authority.issue(&[Name::Address(IpAddr::from([127, 0, 0, 1]))]).unwrap();
        let own = OwnCertificate { chain: issued.chain_pem().into(), key: issued.key_pem().into() };
        let tls = Tls { authorities: Some(authority.pem().into()), own: Some(own), ..Tls::default() };
        for (address, good) in [([127, 0, 0, 1], true), ([127, 0, 0, 2], false)] {
            for mode in [TlsMode::Full, TlsMode::Mutual] {
                let ends = Ends::new(&Tls { mode, ..tls.clone() }, IpAddr::from(address), &[]).unwrap();
                let (mut client, mut server) = (ends.connect().unwrap(), ends.accept().unwrap());
                assert_eq!(shake(&mut client, &mut server).is_ok(), good, "{address:?} {mode:?}");
            }
        }
        let stranger = Authority::new(KeyKind::EcdsaP256).unwrap();
        let ends = Ends::new(
            &Tls { authorities: Some(stranger.pem().into()), ..tls },
            IpAddr::from([127, 0, 0, 1]),
            &[],
        );
        let ends = ends.unwrap();
        let (mut client, mut server) = (ends.connect().unwrap(), ends.accept().unwrap());
        shake(&mut client, &mut server).unwrap_err();
    }
}
