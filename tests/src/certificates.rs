//! Certificates for servers and phones, made by OpenSSL, which shares no code with the TLS of the server under test.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::Scratch;
use crate::process::output;

/// A certificate authority of one test, with its own directory, index and revocations.
#[derive(Debug)]
pub struct Authority {
    scratch: Scratch,
    certificate: PathBuf,
    issued: AtomicU32,
}

/// A certificate and its private key, as PEM files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The certificate.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// When a certificate counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validity {
    /// Now.
    Current,
    /// It did once.
    Expired,
}

const CONFIGURATION: &str = "\
[ca]
default_ca = default
[default]
database = index.txt
new_certs_dir = .
serial = serial
crlnumber = crlnumber
certificate = ca.pem
private_key = ca.key
default_md = sha256
default_crl_days = 2
policy = policy
unique_subject = no
[policy]
commonName = supplied
[req]
distinguished_name = name
prompt = no
[name]
CN = unused
[authority]
basicConstraints = critical,CA:TRUE
keyUsage = critical,keyCertSign,cRLSign
subjectKeyIdentifier = hash
";

impl Authority {
    /// A new authority with a P-256 key.
    ///
    /// # Panics
    ///
    /// When OpenSSL is not installed.
    pub fn new(name: &str) -> Self {
        let scratch = Scratch::new("certificates");
        scratch.write("openssl.cnf", CONFIGURATION);
        scratch.write("index.txt", "");
        scratch.write("serial", "1000\n");
        scratch.write("crlnumber", "01\n");
        let certificate = scratch.file("ca.pem");
        let authority = Self { scratch, certificate, issued: AtomicU32::new(0) };
        let subject = format!("/CN={name}");
        let mut arguments = vec!["req", "-x509", "-config", "openssl.cnf", "-extensions", "authority"];
        arguments.extend(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]);
        arguments.extend(["-days", "2", "-subj", &subject, "-keyout", "ca.key", "-out", "ca.pem"]);
        authority.openssl(&arguments);
        authority
    }

    /// One that somebody else made, of which we have the certificate alone; it issues nothing.
    pub fn made_elsewhere(certificate: PathBuf) -> Self {
        Self { scratch: Scratch::new("certificates"), certificate, issued: AtomicU32::new(0) }
    }

    /// The authority's own certificate, which who trusts it has.
    pub fn certificate(&self) -> PathBuf {
        self.certificate.clone()
    }

    /// A certificate for these names, valid now: host names, IP addresses, or URIs (`sip:example.com`).
    pub fn issue(&self, names: &[&str]) -> Identity {
        self.issue_with(names, Validity::Current)
    }

    /// A certificate for these names.
    ///
    /// # Panics
    ///
    /// When there is no name, or OpenSSL refuses them.
    pub fn issue_with(&self, names: &[&str], validity: Validity) -> Identity {
        let number = self.issued.fetch_add(1, Ordering::Relaxed);
        let file = |extension: &str| format!("{number}.{extension}");
        let (request, key, certificate) = (file("csr"), file("key"), file("pem"));
        let subject =
            format!("/CN={}", names.first().expect("a certificate is for a name").replace('/', "_"));
        let mut arguments = vec!["req", "-new", "-config", "openssl.cnf", "-subj", &subject];
        arguments.extend(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]);
        arguments.extend(["-keyout", &key, "-out", &request]);
        self.openssl(&arguments);
        let extensions = file("ext");
        let alternative: Vec<String> = names.iter().map(|name| alternative_name(name)).collect();
        let text = format!(
            "basicConstraints = critical,CA:FALSE\nkeyUsage = critical,digitalSignature\n\
             extendedKeyUsage = serverAuth,clientAuth\nsubjectAltName = {}\n",
            alternative.join(",")
        );
        self.scratch.write(&extensions, &text);
        let mut arguments = vec!["ca", "-config", "openssl.cnf", "-batch", "-notext"];
        arguments.extend(["-extfile", &extensions, "-in", &request, "-out", &certificate]);
        arguments.extend(match validity {
            Validity::Current => ["-days", "2"].as_slice(),
            Validity::Expired => &["-startdate", "20200101000000Z", "-enddate", "20200102000000Z"],
        });
        self.openssl(&arguments);
        Identity { certificate: self.scratch.file(&certificate), key: self.scratch.file(&key) }
    }

    /// Takes a certificate back.
    pub fn revoke(&self, identity: &Identity) {
        self.openssl(&["ca", "-config", "openssl.cnf", "-revoke", path(&identity.certificate)]);
    }

    /// The list of what it took back, as it is now, in a file.
    pub fn revocations(&self) -> PathBuf {
        self.openssl(&["ca", "-config", "openssl.cnf", "-gencrl", "-out", "crl.pem"]);
        self.scratch.file("crl.pem")
    }

    fn openssl(&self, arguments: &[&str]) {
        let output = output(Command::new("openssl").args(arguments).current_dir(self.scratch.path()));
        let output =
            output.unwrap_or_else(|error| panic!("openssl: {error}; `cargo xtask test` installs it"));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "openssl {arguments:?}: {}\n{said}", output.status);
    }
}

fn alternative_name(name: &str) -> String {
    let kind = match name {
        _ if name.starts_with("sip:") => "URI",
        _ if name.parse::<std::net::IpAddr>().is_ok() => "IP",
        _ => "DNS",
    };
    format!("{kind}:{name}")
}

/// A path of ours as an argument.
pub(crate) fn path(path: &Path) -> &str {
    path.to_str().expect("invariant: the temporary directory's name is UTF-8")
}
