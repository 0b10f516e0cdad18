//! PEM files of certificates, keys, CAs and revocation lists; and which of several certificates a handshake
//! gets.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use rustls::client::ResolvesClientCert;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, UnixTime};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{InconsistentKeys, RootCertStore, SignatureAlgorithm, SignatureScheme, SupportedCipherSuite};
use webpki::{CertRevocationList, OwnedCertRevocationList};

use super::der::{self, Facts};
use super::{CertificateFiles, TlsError};

/// A file of PEM or certificates that is longer than this is a mistake.
const FILE_BYTES_MAX: u64 = 16 << 20;

fn read(file: &Path) -> Result<Vec<u8>, TlsError> {
    let unreadable = |error| TlsError::unreadable(file, &error);
    let about = fs::metadata(file).map_err(unreadable)?;
    if !about.is_file() {
        return Err(TlsError::file(file, "is no file", "name a PEM file"));
    }
    if about.len() > FILE_BYTES_MAX {
        return Err(TlsError::file(file, "is longer than 16 MiB", "name a PEM file"));
    }
    fs::read(file).map_err(unreadable)
}

/// All certificates of a file.
fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let bytes = read(file)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let found = found.map_err(|error| {
        TlsError::file(file, format_args!("is not good PEM: {error}"), "make the file anew")
    })?;
    if found.is_empty() {
        let advice = "name a PEM file with `-----BEGIN CERTIFICATE-----` in it";
        return Err(TlsError::file(file, "holds no certificate", advice));
    }
    Ok(found)
}

fn private_key(file: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let bytes = read(file)?;
    let encrypted = bytes.windows(27).any(|window| window == b"BEGIN ENCRYPTED PRIVATE KEY")
        || bytes.windows(21).any(|window| window == b"Proc-Type: 4,ENCRYPTED");
    if encrypted {
        let advice = "write it without a pass phrase: openssl pkey -in FILE -out NEWFILE";
        return Err(TlsError::file(file, "holds a key that is encrypted", advice));
    }
    PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| {
        let advice = "name a PEM file with `-----BEGIN PRIVATE KEY-----` in it";
        TlsError::file(file, format_args!("holds no private key: {error}"), advice)
    })
}

/// A certificate with its key, checked to fit each other.
fn certified_key(
    files: &CertificateFiles,
    provider: &CryptoProvider,
    now: u64,
) -> Result<CertifiedKey, TlsError> {
    let chain = certificates(&files.chain)?;
    let key = provider.key_provider.load_private_key(private_key(&files.key)?).map_err(|error| {
        let advice = "use a key of RSA (2048 bits or more), ECDSA (P-256, P-384, P-521) or Ed25519";
        TlsError::file(&files.key, format_args!("holds a key that is not usable: {error}"), advice)
    })?;
    if let Some(warning) = chain.first().and_then(|own| validity_warning(own, now)) {
        tracing::warn!(file = %files.chain.display(), "{warning}");
    }
    let own = CertifiedKey::new(chain, key);
    match own.keys_match() {
        Ok(()) | Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(own),
        Err(rustls::Error::InconsistentKeys(_)) => {
            let problem =
                format_args!("the certificate does not belong to the key in {}", files.key.display());
            let advice = "give the certificate that was issued for that key, its own before those of CAs";
            Err(TlsError::file(&files.chain, problem, advice))
        }
        Err(error) => {
            let advice = "make the certificate anew";
            Err(TlsError::file(&files.chain, format_args!("is no usable certificate: {error}"), advice))
        }
    }
}

/// What to say of a revocation list that is out of date: with it, everybody is refused.
pub(super) fn staleness_warning(list: &[u8], now: u64) -> Option<String> {
    let due = der::next_update(list).filter(|due| now > *due)?;
    let date = der::date(due);
    Some(format!("this revocation list was to be renewed by {date}: all certificates of its CA are refused"))
}

/// What to say of a certificate of our own that is not valid today. It is used all the same: peers that check
/// say so.
pub(super) fn validity_warning(certificate: &CertificateDer<'_>, now: u64) -> Option<String> {
    let facts = Facts::read(certificate)?;
    if now > facts.not_after {
        let date = der::date(facts.not_after);
        return Some(format!("this certificate expired on {date}: peers will refuse it; renew it"));
    }
    if now < facts.not_before {
        let date = der::date(facts.not_before);
        return Some(format!("this certificate is valid from {date} only: peers will refuse it until then"));
    }
    None
}

/// The CAs of a file.
pub(super) fn roots(file: &Path) -> Result<RootCertStore, TlsError> {
    let mut store = RootCertStore::empty();
    for certificate in certificates(file)? {
        store.add(certificate).map_err(|error| {
            let problem = format_args!("holds a certificate that cannot be that of a CA: {error}");
            TlsError::file(file, problem, "leave only CA certificates in it")
        })?;
    }
    Ok(store)
}

/// The CAs that the system trusts. A system that has none, as a small container, is no reason not to start: the profile
/// for what nobody has configured needs them too. It is said, and nobody is trusted.
pub(super) fn system_roots() -> RootCertStore {
    let found = rustls_native_certs::load_native_certs();
    let mut store = RootCertStore::empty();
    let (added, _ignored) = store.add_parsable_certificates(found.certs);
    if added == 0 {
        let why = found.errors.first().map(|error| format!(": {error}")).unwrap_or_default();
        tracing::warn!(
            "the system has no CA certificates{why}; where no `ca_list` is named, no certificate will be trusted: install \
             the package ca-certificates, or name a file"
        );
    }
    store
}

/// The revocation lists of a file, and their bytes.
pub(super) fn revocation_lists(
    file: &Path,
) -> Result<(Vec<CertRevocationList<'static>>, Vec<Vec<u8>>), TlsError> {
    let bytes = read(file)?;
    let bad = |error: &dyn std::fmt::Display| {
        let advice = "name a PEM file with `-----BEGIN X509 CRL-----` in it, of version 2";
        TlsError::file(file, format_args!("is no usable revocation list: {error}"), advice)
    };
    let (mut lists, mut raw) = (Vec::new(), Vec::new());
    for item in CertificateRevocationListDer::pem_slice_iter(&bytes) {
        let der = item.map_err(|error| bad(&error))?;
        let list = OwnedCertRevocationList::from_der(&der).map_err(|error| bad(&error))?;
        if let Some(warning) = staleness_warning(&der, UnixTime::now().as_secs()) {
            tracing::warn!(file = %file.display(), "{warning}");
        }
        lists.push(CertRevocationList::from(list));
        raw.push(der.to_vec());
    }
    if lists.is_empty() {
        return Err(bad(&"there is none in it"));
    }
    Ok((lists, raw))
}

/// The certificates of a profile, the cheaper kinds of key first.
#[derive(Debug)]
pub(super) struct Certificates {
    keys: Vec<Arc<CertifiedKey>>,
    /// The suites of the profile: a client of TLS 1.2 must know one that goes with the key.
    suites: Vec<SupportedCipherSuite>,
}

impl Certificates {
    /// Loads them all.
    pub(super) fn load(
        files: &[CertificateFiles],
        provider: &CryptoProvider,
    ) -> Result<Certificates, TlsError> {
        let now = UnixTime::now().as_secs();
        let mut keys: Vec<Arc<CertifiedKey>> = Vec::with_capacity(files.len());
        for pair in files {
            let own = certified_key(pair, provider, now)?;
            if keys.iter().any(|other| other.key.algorithm() == own.key.algorithm()) {
                let problem = "is the second certificate with this kind of key in one profile";
                let advice = "give one of each kind (RSA, ECDSA), or separate profiles by `server_name`";
                return Err(TlsError::file(&pair.chain, problem, advice));
            }
            keys.push(Arc::new(own));
        }
        keys.sort_by_key(|own| own.key.algorithm() == SignatureAlgorithm::RSA);
        Ok(Certificates { keys, suites: provider.cipher_suites.clone() })
    }
}

impl ResolvesServerCert for Certificates {
    /// The first that the client can verify; else the first, so that the handshake fails for the right reason.
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let fits = |own: &&Arc<CertifiedKey>| {
            let has_suite = self.suites.iter().any(|suite| {
                hello.cipher_suites().contains(&suite.suite())
                    && suite.usable_for_signature_algorithm(own.key.algorithm())
            });
            has_suite && own.key.choose_scheme(hello.signature_schemes()).is_some()
        };
        self.keys.iter().find(fits).or(self.keys.first()).cloned()
    }
}

impl ResolvesClientCert for Certificates {
    fn resolve(&self, _roots: &[&[u8]], schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.keys.iter().find(|own| own.key.choose_scheme(schemes).is_some()).cloned()
    }

    fn has_certs(&self) -> bool {
        !self.keys.is_empty()
    }
}
