//! What a phone shows and trusts in TLS, by rustls. OpenSSL's view of the server is in `openssl.rs`.

use std::path::Path;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion};

use crate::{Authority, Identity};

/// The TLS side of a phone: a certificate of its own if it has one, and the authority that it trusts.
///
/// Copies of it share the sessions that can be resumed.
#[derive(Clone, Debug)]
pub struct Credentials {
    pub(crate) client: Arc<ClientConfig>,
    pub(crate) server: Option<Arc<ServerConfig>>,
}

/// The versions that a phone offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Versions {
    /// TLS 1.2 (RFC 5246) and TLS 1.3 (RFC 8446).
    Both,
    /// TLS 1.2 alone.
    Only12,
    /// TLS 1.3 alone.
    Only13,
}

static ONLY_12: [&SupportedProtocolVersion; 1] = [&rustls::version::TLS12];
static ONLY_13: [&SupportedProtocolVersion; 1] = [&rustls::version::TLS13];

impl Versions {
    fn list(self) -> &'static [&'static SupportedProtocolVersion] {
        match self {
            Self::Both => rustls::ALL_VERSIONS,
            Self::Only12 => &ONLY_12,
            Self::Only13 => &ONLY_13,
        }
    }
}

impl Credentials {
    /// Of a phone that trusts this authority and has no certificate.
    pub fn trusting(authority: &Authority) -> Self {
        Self::new(authority, None, Versions::Both)
    }

    /// Of a phone that trusts this authority and shows this certificate, as client and as server.
    pub fn showing(authority: &Authority, identity: &Identity) -> Self {
        Self::new(authority, Some(identity), Versions::Both)
    }

    /// With everything chosen.
    ///
    /// # Panics
    ///
    /// When the files are none.
    pub fn new(authority: &Authority, identity: Option<&Identity>, versions: Versions) -> Self {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&authority.certificate()) {
            roots.add(certificate).expect("a certificate of an authority");
        }
        let provider = Arc::new(aws_lc_rs::default_provider());
        let client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(versions.list())
            .expect("invariant: the provider has suites of every version")
            .with_root_certificates(roots);
        let Some(identity) = identity else {
            return Self { client: Arc::new(client.with_no_client_auth()), server: None };
        };
        let (chain, key) = (certificates(&identity.certificate), key(&identity.key));
        let server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(versions.list())
            .expect("invariant: the provider has suites of every version")
            .with_no_client_auth()
            .with_single_cert(chain.clone(), key.clone_key())
            .expect("the key is that of the certificate");
        let client = client.with_client_auth_cert(chain, key).expect("the key is that of the certificate");
        Self { client: Arc::new(client), server: Some(Arc::new(server)) }
    }
}

fn certificates(file: &Path) -> Vec<CertificateDer<'static>> {
    let parsed = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    parsed.unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

fn key(file: &Path) -> PrivateKeyDer<'static> {
    PrivateKeyDer::from_pem_file(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}
