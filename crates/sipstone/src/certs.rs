//! Certificates for measurements: an authority of one's own, and what it issues to servers and user agents.
//!
//! Names are those of RFC 5922: a SIP domain stands as a URI `sip:DOMAIN` among the subject's alternative names
//! (§7.1), and as a DNS name for those who look only there; a user agent that is reached by its address has
//! that. All of it is made anew for a measurement, lasts a month and is trusted by nobody else.

use crate::report::host::civil;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256, SanType, SignatureAlgorithm,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use serde::{Deserialize, Serialize};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Days that a certificate is valid: longer than any measurement, too short to be kept.
pub const VALID_DAYS: i64 = 30;

/// Days before its making from which it is valid: the server's clock may be behind.
const BACK_DAYS: i64 = 1;

/// Names of one certificate at most.
pub const NAMES_MAX: usize = 256;

/// Which kind of key signs and is certified.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    Serialize,
    Deserialize,
    clap::ValueEnum,
    schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum KeyKind {
    /// ECDSA on the curve P-256 with SHA-256. The default.
    #[default]
    #[value(name = "ecdsa")]
    EcdsaP256,
    /// RSA with 2048 bits and SHA-256.
    #[value(name = "rsa")]
    Rsa2048,
}

impl KeyKind {
    /// Its name in reports.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            KeyKind::EcdsaP256 => "ECDSA P-256",
            KeyKind::Rsa2048 => "RSA 2048",
        }
    }
}

/// What a certificate is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Name {
    /// A SIP domain: `sip:DOMAIN` as a URI and `DOMAIN` as a DNS name.
    Domain(String),
    /// A DNS name alone.
    Dns(String),
    /// An address.
    Address(IpAddr),
}

impl Name {
    /// What a URI's host is: an address with or without brackets, or else a domain. A port is left out.
    #[must_use]
    pub fn of_host(host: &str) -> Name {
        let host = without_port(host);
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        bare.parse().map_or_else(|_| Name::Domain(bare.to_owned()), Name::Address)
    }

    /// The alternative names that it stands for.
    fn alternatives(&self) -> Result<Vec<SanType>, rcgen::Error> {
        Ok(match self {
            Name::Domain(domain) => {
                vec![
                    SanType::URI(format!("sip:{domain}").try_into()?),
                    SanType::DnsName(domain.as_str().try_into()?),
                ]
            }
            Name::Dns(name) => vec![SanType::DnsName(name.as_str().try_into()?)],
            Name::Address(address) => vec![SanType::IpAddress(*address)],
        })
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Name::Domain(name) | Name::Dns(name) => f.write_str(name),
            Name::Address(address) => address.fmt(f),
        }
    }
}

/// `example.com:5061` without its port; an IPv6 address without brackets has none.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => {
            if name.starts_with('[') == name.ends_with(']') && !name.trim_matches(['[', ']']).is_empty() {
                let bare_address = name.contains(':') && !name.starts_with('[');
                return if bare_address { host } else { name };
            }
            host
        }
        _ => host,
    }
}

/// Why there is no certificate, or no file of it; one sentence.
#[derive(Debug)]
pub struct CertificateError(String);

impl std::fmt::Display for CertificateError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for CertificateError {}

impl From<rcgen::Error> for CertificateError {
    fn from(error: rcgen::Error) -> CertificateError {
        CertificateError(format!("a certificate could not be made: {error}"))
    }
}

/// A certificate with its key.
pub struct Issued {
    /// The certificate first, then whoever issued it (here never the authority itself, which the other side
    /// knows).
    pub chain: Vec<CertificateDer<'static>>,
    /// The key, as PKCS #8.
    pub key: PrivateKeyDer<'static>,
    chain_pem: String,
    key_pem: String,
}

impl Clone for Issued {
    fn clone(&self) -> Issued {
        Issued {
            chain: self.chain.clone(),
            key: self.key.clone_key(),
            chain_pem: self.chain_pem.clone(),
            key_pem: self.key_pem.clone(),
        }
    }
}

impl std::fmt::Debug for Issued {
    /// Without the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Issued").field("chain", &self.chain.len()).finish_non_exhaustive()
    }
}

impl Issued {
    /// The chain as a PEM file has it.
    #[must_use]
    pub fn chain_pem(&self) -> &str {
        &self.chain_pem
    }

    /// The key as a PEM file has it (`PRIVATE KEY`, PKCS #8).
    #[must_use]
    pub fn key_pem(&self) -> &str {
        &self.key_pem
    }
}

/// Who issues certificates.
pub struct Authority {
    kind: KeyKind,
    params: CertificateParams,
    key: KeyPair,
    certificate: CertificateDer<'static>,
    pem: String,
}

impl std::fmt::Debug for Authority {
    /// Without the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl Authority {
    /// A new authority; it and all that it issues have keys of this kind. An RSA key takes up to a second.
    ///
    /// # Errors
    /// The system gives no random numbers.
    pub fn new(kind: KeyKind) -> Result<Authority, CertificateError> {
        let key = new_key(kind)?;
        let params = authority_params();
        let certificate = params.self_signed(&key)?;
        Ok(Authority { kind, certificate: certificate.der().clone(), pem: certificate.pem(), params, key })
    }

    /// Its own certificate, which both sides must trust.
    #[must_use]
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// The same as a PEM file has it.
    #[must_use]
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// The authority of a folder (`ca.pem`, `ca.key`), so that what it issued to a server earlier is still
    /// believed; a new one, written there, where there is none. The folder must exist.
    ///
    /// # Errors
    /// The files cannot be read or written, do not belong together, or hold a key of another kind.
    pub fn open_or_create(folder: &Path, kind: KeyKind) -> Result<Authority, CertificateError> {
        let (certificate, key) = (folder.join("ca.pem"), folder.join("ca.key"));
        let texts = (fs::read_to_string(&certificate), fs::read_to_string(&key));
        match texts {
            (Ok(certificate), Ok(key)) => Authority::of_pem(certificate, &key, kind)
                .map_err(|why| CertificateError(format!("the authority in {} {why}", folder.display()))),
            (Err(one), Err(other))
                if [&one, &other].iter().all(|e| e.kind() == std::io::ErrorKind::NotFound) =>
            {
                let authority = Authority::new(kind)?;
                write(&certificate, authority.pem(), 0o644)?;
                write(&key, &authority.key.serialize_pem(), 0o600)?;
                Ok(authority)
            }
            (Err(error), _) => Err(unreadable(&certificate, &error)),
            (_, Err(error)) => Err(unreadable(&key, &error)),
        }
    }

    fn of_pem(pem: String, key: &str, kind: KeyKind) -> Result<Authority, String> {
        let key = KeyPair::from_pem(key).map_err(|error| format!("has a key that is none: {error}"))?;
        if !key.is_compatible(algorithm(kind)) {
            return Err(format!("has no {} key: choose that kind, or another folder", kind.word()));
        }
        let certificate = CertificateDer::from_pem_slice(pem.as_bytes())
            .map_err(|error| format!("has a certificate that is none: {error}"))?;
        let public = key.public_key_raw();
        if !certificate.as_ref().windows(public.len()).any(|window| window == public) {
            return Err("has a key that does not belong to its certificate".into());
        }
        Ok(Authority { kind, params: authority_params(), key, certificate, pem })
    }

    /// A certificate with a new key for these names, good for both sides of a connection: a proxy is client and
    /// server.
    ///
    /// # Errors
    /// No name or more than [`NAMES_MAX`], or one that a certificate cannot carry.
    pub fn issue(&self, names: &[Name]) -> Result<Issued, CertificateError> {
        let first = match names {
            [first, ..] if names.len() <= NAMES_MAX => first,
            _ => {
                let count = names.len();
                return Err(CertificateError(format!(
                    "a certificate has 1 to {NAMES_MAX} names, not {count}"
                )));
            }
        };
        let mut params = valid_for_a_month();
        params.distinguished_name = common_name(&first.to_string());
        for name in names {
            let alternatives = name.alternatives().map_err(|error| {
                CertificateError(format!("{:?} cannot stand in a certificate: {error}", name.to_string()))
            })?;
            params.subject_alt_names.extend(alternatives);
        }
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        let key = new_key(self.kind)?;
        let certificate = params.signed_by(&key, &Issuer::from_params(&self.params, &self.key))?;
        Ok(Issued {
            chain: vec![certificate.der().clone()],
            key: PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())),
            chain_pem: certificate.pem(),
            key_pem: key.serialize_pem(),
        })
    }
}

fn new_key(kind: KeyKind) -> Result<KeyPair, CertificateError> {
    Ok(KeyPair::generate_for(algorithm(kind))?)
}

fn algorithm(kind: KeyKind) -> &'static SignatureAlgorithm {
    match kind {
        KeyKind::EcdsaP256 => &PKCS_ECDSA_P256_SHA256,
        KeyKind::Rsa2048 => &PKCS_RSA_SHA256,
    }
}

/// The same for every authority but its key, so that one can be read again from its key.
fn authority_params() -> CertificateParams {
    let mut params = valid_for_a_month();
    params.distinguished_name = common_name("sipstone test authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn unreadable(path: &Path, error: &std::io::Error) -> CertificateError {
    CertificateError(format!("{} cannot be read: {error}", path.display()))
}

fn common_name(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

fn valid_for_a_month() -> CertificateParams {
    const DAY_S: u64 = 86_400;
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let today = i64::try_from(since.as_secs() / DAY_S).unwrap_or(0);
    let date = |days: i64| {
        let (year, month, day) = civil(days);
        let (year, small) =
            (i32::try_from(year).unwrap_or(i32::MAX), |value: i64| u8::try_from(value).unwrap_or(1));
        rcgen::date_time_ymd(year, small(month), small(day))
    };
    let mut params = CertificateParams::default();
    (params.not_before, params.not_after) = (date(today - BACK_DAYS), date(today + VALID_DAYS));
    params
}

/// All that a measurement needs: the authority, the server's certificate, and the one of the user agents.
#[derive(Clone, Debug)]
pub struct Certificates {
    authority: CertificateDer<'static>,
    authority_pem: String,
    /// For the server under test.
    pub server: Issued,
    /// For the callers (where the server wants to know them) and the callees (who are servers to the server).
    pub client: Issued,
}

impl Certificates {
    /// New ones.
    ///
    /// # Errors
    /// As [`Authority::issue`].
    pub fn new(kind: KeyKind, server: &[Name], client: &[Name]) -> Result<Certificates, CertificateError> {
        let authority = Authority::new(kind)?;
        Ok(Certificates {
            server: authority.issue(server)?,
            client: authority.issue(client)?,
            authority: authority.certificate,
            authority_pem: authority.pem,
        })
    }

    /// The authority's certificate.
    #[must_use]
    pub fn authority(&self) -> &CertificateDer<'static> {
        &self.authority
    }

    /// The same as a PEM file has it.
    #[must_use]
    pub fn authority_pem(&self) -> &str {
        &self.authority_pem
    }

    /// Writes `ca.pem`, `server.pem`, `server.key`, `client.pem` and `client.key` into a folder that exists;
    /// the keys are readable by this user only. Files of those names are replaced, never written through a
    /// link.
    ///
    /// # Errors
    /// A file could not be written.
    pub fn write_to(&self, folder: &Path) -> Result<Files, CertificateError> {
        let files = Files::of(folder);
        write(&files.authority, &self.authority_pem, 0o644)?;
        write(&files.server_chain, self.server.chain_pem(), 0o644)?;
        write(&files.server_key, self.server.key_pem(), 0o600)?;
        write(&files.client_chain, self.client.chain_pem(), 0o644)?;
        write(&files.client_key, self.client.key_pem(), 0o600)?;
        Ok(files)
    }
}

/// Where the certificates of a measurement are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// `ca.pem`
    pub authority: PathBuf,
    /// `server.pem`
    pub server_chain: PathBuf,
    /// `server.key`
    pub server_key: PathBuf,
    /// `client.pem`
    pub client_chain: PathBuf,
    /// `client.key`
    pub client_key: PathBuf,
}

impl Files {
    /// Those of a folder.
    #[must_use]
    pub fn of(folder: &Path) -> Files {
        Files {
            authority: folder.join("ca.pem"),
            server_chain: folder.join("server.pem"),
            server_key: folder.join("server.key"),
            client_chain: folder.join("client.pem"),
            client_key: folder.join("client.key"),
        }
    }
}

/// A new file with these rights from its first moment.
fn write(path: &Path, text: &str, mode: u32) -> Result<(), CertificateError> {
    let done = match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(path)
            .and_then(|mut file| file.write_all(text.as_bytes())),
    };
    done.map_err(|error| CertificateError(format!("{} cannot be written: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::client::WebPkiServerVerifier;
    use rustls::client::danger::ServerCertVerifier;
    use rustls::pki_types::{ServerName, UnixTime};
    use rustls::server::WebPkiClientVerifier;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::Arc;

    fn provider() -> Arc<rustls::crypto::CryptoProvider> {
        Arc::new(rustls::crypto::aws_lc_rs::default_provider())
    }

    fn trusting(authority: &CertificateDer<'static>) -> Arc<rustls::RootCertStore> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(authority.clone()).unwrap();
        Arc::new(roots)
    }

    /// Whether a client that trusts the authority believes that this is `name`.
    fn proves(authority: &CertificateDer<'static>, issued: &Issued, name: &str) -> bool {
        let verifier =
            WebPkiServerVerifier::builder_with_provider(trusting(authority), provider()).build().unwrap();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        verifier.verify_server_cert(&issued.chain[0], &[], &name, &[], UnixTime::now()).is_ok()
    }

    fn contains(certificate: &CertificateDer<'_>, text: &str) -> bool {
        certificate.as_ref().windows(text.len()).any(|window| window == text.as_bytes())
    }

    #[test]
    fn what_an_authority_issues_is_believed_by_those_who_trust_it() {
        for kind in [KeyKind::EcdsaP256, KeyKind::Rsa2048] {
            let authority = Authority::new(kind).unwrap();
            let names = [Name::Domain("example.com".into()), Name::Address("127.0.0.1".parse().unwrap())];
            let issued = authority.issue(&names).unwrap();
            assert!(proves(authority.certificate(), &issued, "example.com"), "{kind:?}");
            assert!(proves(authority.certificate(), &issued, "127.0.0.1"), "{kind:?}");
            assert!(!proves(authority.certificate(), &issued, "other.example.com"), "{kind:?}");
            let stranger = Authority::new(KeyKind::EcdsaP256).unwrap();
            assert!(!proves(stranger.certificate(), &issued, "example.com"), "{kind:?}");
            let clients =
                WebPkiClientVerifier::builder_with_provider(trusting(authority.certificate()), provider());
            clients.build().unwrap().verify_client_cert(&issued.chain[0], &[], UnixTime::now()).unwrap();
        }
    }

    #[test]
    fn sip_domain_stands_as_a_uri_too() {
        // RFC 5922 §7.1: a SIP URI among the names is looked at before the DNS names.
        let authority = Authority::new(KeyKind::EcdsaP256).unwrap();
        let issued = authority.issue(&[Name::Domain("example.com".into())]).unwrap();
        assert!(contains(&issued.chain[0], "sip:example.com"));
        let issued = authority.issue(&[Name::Dns("example.com".into())]).unwrap();
        assert!(!contains(&issued.chain[0], "sip:example.com"));
    }

    #[test]
    fn keys_fit_their_certificates() {
        for kind in [KeyKind::EcdsaP256, KeyKind::Rsa2048] {
            let issued = Authority::new(kind).unwrap().issue(&[Name::Dns("a".into())]).unwrap();
            let config = rustls::ServerConfig::builder_with_provider(provider())
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_no_client_auth();
            config.with_single_cert(issued.chain.clone(), issued.key.clone_key()).unwrap();
            assert!(issued.key_pem().starts_with("-----BEGIN PRIVATE KEY-----"));
            assert!(issued.chain_pem().starts_with("-----BEGIN CERTIFICATE-----"));
            assert!(!format!("{issued:?}").contains("key"));
        }
    }

    #[test]
    fn names_that_no_certificate_can_carry_are_refused() {
        let authority = Authority::new(KeyKind::EcdsaP256).unwrap();
        assert!(authority.issue(&[]).unwrap_err().to_string().contains("1 to 256 names"));
        let error = authority.issue(&[Name::Domain("bücher.example".into())]).unwrap_err().to_string();
        assert!(error.contains("bücher.example"), "{error}");
        assert!(authority.issue(&vec![Name::Dns("a".into()); NAMES_MAX + 1]).is_err());
    }

    #[test]
    fn hosts_are_addresses_or_domains() {
        let address = |text: &str| Name::Address(text.parse().unwrap());
        for (host, name) in [
            ("127.0.0.1", address("127.0.0.1")),
            ("127.0.0.1:5060", address("127.0.0.1")),
            ("[::1]:5061", address("::1")),
            ("[::1]", address("::1")),
            ("::1", address("::1")),
            ("example.com:5060", Name::Domain("example.com".into())),
            ("example.com", Name::Domain("example.com".into())),
        ] {
            assert_eq!(Name::of_host(host), name, "{host}");
        }
    }

    #[test]
    fn authority_of_a_folder_is_found_again() {
        let folder = std::env::temp_dir().join(format!("sipstone-authority-{}", std::process::id()));
        assert!(Authority::open_or_create(&folder, KeyKind::EcdsaP256).is_err(), "no such folder");
        fs::create_dir(&folder).unwrap();
        let first = Authority::open_or_create(&folder, KeyKind::EcdsaP256).unwrap();
        let second = Authority::open_or_create(&folder, KeyKind::EcdsaP256).unwrap();
        assert_eq!(first.pem(), second.pem());
        let issued = second.issue(&[Name::Dns("a.example".into())]).unwrap();
        assert!(proves(first.certificate(), &issued, "a.example"));
        assert_eq!(fs::metadata(folder.join("ca.key")).unwrap().permissions().mode() & 0o777, 0o600);
        let error = Authority::open_or_create(&folder, KeyKind::Rsa2048).unwrap_err().to_string();
        assert!(error.contains("RSA 2048"), "{error}");
        let other = Authority::new(KeyKind::EcdsaP256).unwrap();
        fs::write(folder.join("ca.pem"), other.pem()).unwrap();
        let error = Authority::open_or_create(&folder, KeyKind::EcdsaP256).unwrap_err().to_string();
        assert!(error.contains("does not belong"), "{error}");
        fs::remove_file(folder.join("ca.pem")).unwrap();
        let error = Authority::open_or_create(&folder, KeyKind::EcdsaP256).unwrap_err().to_string();
        assert!(error.contains("ca.pem cannot be read"), "{error}");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn keys_are_for_this_user_only_and_links_are_not_followed() {
        let folder = std::env::temp_dir().join(format!("sipstone-certs-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let victim = folder.join("victim");
        fs::write(&victim, "untouched").unwrap();
        std::os::unix::fs::symlink(&victim, folder.join("server.key")).unwrap();
        let names = [Name::Dns("a".into())];
        let certificates = Certificates::new(KeyKind::EcdsaP256, &names, &names).unwrap();
        let files = certificates.write_to(&folder).unwrap();
        let again = certificates.write_to(&folder).unwrap();
        assert_eq!(files, again);
        for key in [&files.server_key, &files.client_key] {
            assert_eq!(fs::metadata(key).unwrap().permissions().mode() & 0o777, 0o600);
        }
        assert_eq!(fs::read_to_string(&victim).unwrap(), "untouched");
        assert_eq!(fs::read_to_string(&files.authority).unwrap(), certificates.authority_pem());
        fs::remove_dir_all(&folder).unwrap();
        let error = certificates.write_to(&folder).unwrap_err().to_string();
        assert!(error.contains("ca.pem cannot be written"), "{error}");
    }
}
