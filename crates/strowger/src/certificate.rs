//! `strowger cert`: a certification authority for a site of its own, certificates for servers and clients, and what is
//! in a certificate.
//!
//! A SIP domain is proved by a subjectAltName `URI:sip:DOMAIN`; `DNS:DOMAIN` counts where there is no such URI
//! (RFC 5922 §7.1). Certificates made here have both, since TLS libraries of phones look for DNS names only.

use std::fmt::{self, Write as _};
use std::fs;
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand, ValueEnum};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256, PublicKeyData as _, RsaKeySize,
    SanType, SerialNumber,
};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};
use x509_parser::public_key::PublicKey;
use x509_parser::time::ASN1Time;

/// The CA's certificate in its directory.
const CA_FILE: &str = "ca.pem";
/// The CA's private key there.
const CA_KEY_FILE: &str = "ca-key.pem";
/// The longest file that is read as certificates or a key, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Clocks of phones are behind by up to this much.
const CLOCK_SKEW: Duration = Duration::from_secs(24 * 60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// `id-kp-sipDomain` (RFC 5924 §4.1).
const SIP_DOMAIN: [u64; 9] = [1, 3, 6, 1, 5, 5, 7, 3, 20];

/// Certificates: what to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Certificates {
    /// Make a certification authority (CA): a certificate that phones and other servers are told to trust.
    ///
    /// Writes ca.pem, to be given to everybody, and ca-key.pem, to be given to nobody.
    Ca(Authority),
    /// Make a certificate for a server, signed by such a CA.
    ///
    /// It serves a proxy in both directions: for connections that it accepts and for those that it opens.
    Server(Request),
    /// Make a certificate for a client: a trunk that calls this server, or one user (--name alice@example.com).
    Client(Request),
    /// Show what is in a file of certificates.
    Show {
        /// A PEM file.
        file: PathBuf,
    },
}

/// What a new CA is to be.
#[derive(Args, Debug)]
pub(crate) struct Authority {
    /// The directory for its files; it is made if need be.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,

    /// Its name, as people see it.
    #[arg(long, default_value = "Strowger CA")]
    name: String,

    /// How long it is valid, in days.
    #[arg(long, value_name = "N", default_value_t = 3_650, value_parser = clap::value_parser!(u32).range(1..=36_500))]
    days: u32,

    /// The kind of its key.
    #[arg(long, value_enum, default_value_t = KeyKind::Ecdsa)]
    key: KeyKind,

    /// Replace a CA that is there; what it has signed is worth nothing then.
    #[arg(long)]
    force: bool,
}

/// What a new certificate is to be.
#[derive(Args, Debug)]
pub(crate) struct Request {
    /// The directory of the CA that signs it, with ca.pem and ca-key.pem.
    #[arg(long, value_name = "DIR")]
    ca: PathBuf,

    /// A domain or host name that it proves, example.com; may be given several times.
    #[arg(long, required_unless_present = "ip")]
    name: Vec<String>,

    /// An address that it proves, for peers that know no name; may be given several times.
    #[arg(long, value_name = "ADDRESS")]
    ip: Vec<IpAddr>,

    /// The kind of its key. ECDSA (P-256) makes a handshake several times cheaper, RSA (2048 bits) is for old phones.
    #[arg(long, value_enum, default_value_t = KeyKind::Ecdsa)]
    key: KeyKind,

    /// How long it is valid, in days; never longer than its CA.
    #[arg(long, value_name = "N", default_value_t = 397, value_parser = clap::value_parser!(u32).range(1..=36_500))]
    days: u32,

    /// The directory for its files; it is made if need be.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,

    /// Replace files that are there.
    #[arg(long)]
    force: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum KeyKind {
    /// P-256.
    Ecdsa,
    /// 2048 bits.
    Rsa,
}

/// Why there is no certificate, in one line that says what to do.
#[derive(Debug)]
pub(crate) struct CertificateError(String);

impl fmt::Display for CertificateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn fail<T>(line: String) -> Result<T, CertificateError> {
    Err(CertificateError(line))
}

fn made(error: rcgen::Error) -> CertificateError {
    CertificateError(format!("the certificate cannot be made: {error}"))
}

/// Does what is asked; what to print is in the result.
///
/// # Errors
///
/// One line that says what to do.
pub(crate) fn run(command: &Certificates) -> Result<String, CertificateError> {
    match command {
        Certificates::Ca(authority) => make_authority(authority),
        Certificates::Server(request) => make(request, Role::Server),
        Certificates::Client(request) => make(request, Role::Client),
        Certificates::Show { file } => show(file),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Server,
    Client,
}

fn make_authority(options: &Authority) -> Result<String, CertificateError> {
    if options.name.is_empty() || options.name.len() > 64 || options.name.chars().any(char::is_control) {
        return fail("--name is 1 to 64 bytes long (RFC 5280 appendix A.1)".to_owned());
    }
    let (file, key_file) = (options.out.join(CA_FILE), options.out.join(CA_KEY_FILE));
    refuse_to_replace([&file, &key_file], options.force)?;
    let mut params = CertificateParams::default();
    params.distinguished_name = common_name(&options.name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.serial_number = Some(serial_number()?);
    set_validity(&mut params, options.days, None);
    let key = new_key(options.key)?;
    let certificate = params.self_signed(&key).map_err(made)?;
    make_directory(&options.out)?;
    write(&key_file, &key.serialize_pem(), Access::Owner, options.force)?;
    write(&file, &certificate.pem(), Access::Everybody, options.force)?;
    let directory = options.out.display();
    Ok(format!(
        "{}\n    the CA's certificate, valid until {}: give it to phones and other servers to trust\n\
         {}\n    its private key: keep it off the server, give it to nobody\n\n\
         Next: strowger cert server --ca {directory} --name DOMAIN --out DIR\n",
        file.display(),
        date(params.not_after.unix_timestamp()),
        key_file.display(),
    ))
}

fn make(options: &Request, role: Role) -> Result<String, CertificateError> {
    let names: Vec<Name> =
        options.name.iter().map(|name| Name::parse(name, role)).collect::<Result<_, _>>()?;
    let authority = read_authority(&options.ca)?;
    let title = names
        .first()
        .map_or_else(|| options.ip.first().map(ToString::to_string), |name| Some(name.to_string()));
    let Some(title) = title else { return fail("give at least one --name or --ip".to_owned()) };
    let stem = stem(&title, role, options.key);
    let (file, key_file) =
        (options.out.join(format!("{stem}.pem")), options.out.join(format!("{stem}-key.pem")));
    refuse_to_replace([&file, &key_file], options.force)?;

    let mut params = CertificateParams::default();
    // A common name has 64 characters at most (RFC 5280 appendix A.1); nobody compares it where there are other names.
    params.distinguished_name =
        if title.len() <= 64 { common_name(&title) } else { DistinguishedName::new() };
    params.subject_alt_names = alternative_names(&names, &options.ip)?;
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = usages(&names, role);
    params.use_authority_key_identifier_extension = true;
    params.serial_number = Some(serial_number()?);
    set_validity(&mut params, options.days, Some(authority.ends));
    let key = new_key(options.key)?;
    let certificate = params.signed_by(&key, &authority.issuer).map_err(made)?;
    make_directory(&options.out)?;
    write(&key_file, &key.serialize_pem(), Access::Owner, options.force)?;
    write(&file, &certificate.pem(), Access::Everybody, options.force)?;
    Ok(Made {
        file: &file,
        key_file: &key_file,
        ca_file: &options.ca.join(CA_FILE),
        until: date(params.not_after.unix_timestamp()),
        ends_with_its_ca: params.not_after.unix_timestamp().unsigned_abs() == authority.ends.as_secs(),
        names: &names,
        addresses: &options.ip,
        role,
    }
    .to_string())
}

/// What was made, and what to do with it.
struct Made<'a> {
    file: &'a Path,
    key_file: &'a Path,
    ca_file: &'a Path,
    until: String,
    ends_with_its_ca: bool,
    names: &'a [Name],
    addresses: &'a [IpAddr],
    role: Role,
}

impl fmt::Display for Made<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let (file, key_file, ca_file) =
            (absolute(self.file), absolute(self.key_file), absolute(self.ca_file));
        write!(f, "{}\n    the certificate, valid until {}", self.file.display(), self.until)?;
        if self.ends_with_its_ca {
            write!(f, ", as its CA is")?;
        }
        write!(f, ", for")?;
        let names = self.names.iter().map(ToString::to_string);
        for (at, name) in names.chain(self.addresses.iter().map(ToString::to_string)).enumerate() {
            write!(f, "{} {name}", if at > 0 { "," } else { "" })?;
        }
        writeln!(
            f,
            "\n{}\n    its private key: readable by you only; the server's user must be able to read it\n",
            self.key_file.display()
        )?;
        match self.role {
            Role::Server => {
                writeln!(
                    f,
                    "Into the file of profiles (modparam(\"tls\", \"config\", \"tls.cfg\")):\n\n[server:default]"
                )?;
                writeln!(f, "certificate = {}\nprivate_key = {}\n", Quoted(&file), Quoted(&key_file))?;
                writeln!(f, "Phones and other servers must trust {}", ca_file.display())
            }
            Role::Client => {
                writeln!(
                    f,
                    "To ask for such certificates, into the tls.cfg of the server that is called:\n"
                )?;
                writeln!(f, "[server:default]\nverify_client = on\nca_list = {}\n", Quoted(&ca_file))?;
                writeln!(
                    f,
                    "To show it to a Strowger or Kamailio's next hop, into the tls.cfg of the one that calls:\n"
                )?;
                writeln!(
                    f,
                    "[client:IP:PORT]\ncertificate = {}\nprivate_key = {}",
                    Quoted(&file),
                    Quoted(&key_file)
                )
            }
        }
    }
}

/// A file's name as a value of a `tls.cfg`.
struct Quoted<'a>(&'a Path);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.display().to_string();
        if text.contains(|c: char| c.is_whitespace() || "#;\"\\".contains(c)) {
            write!(f, "\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
        } else {
            f.write_str(&text)
        }
    }
}

/// Whom a certificate is for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Name {
    /// A domain or host.
    Domain(String),
    /// One user of a domain, `user@domain`.
    User(String),
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Name::Domain(text) | Name::User(text)) = self;
        f.write_str(text)
    }
}

impl Name {
    fn parse(text: &str, role: Role) -> Result<Name, CertificateError> {
        let bare = text.strip_prefix("sip:").or_else(|| text.strip_prefix("sips:")).unwrap_or(text);
        let (user, domain) =
            bare.rsplit_once('@').map_or((None, bare), |(user, domain)| (Some(user), domain));
        let domain = domain.trim_end_matches('.').to_ascii_lowercase();
        if domain.parse::<IpAddr>().is_ok() {
            return fail(format!("--name {text} is an address: write --ip {domain}"));
        }
        if domain.contains('*') {
            return fail(format!(
                "--name {text}: SIP knows no wildcards (RFC 5922 section 7.2); give --name for each domain"
            ));
        }
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        let label = |label: &str| (1..=63).contains(&label.len()) && label.bytes().all(plain);
        if domain.len() > 253 || !domain.split('.').all(label) {
            return fail(format!(
                "--name {text} is not a host name: letters, digits, `-` and dots (names in other scripts as xn--…)"
            ));
        }
        match user {
            None => Ok(Name::Domain(domain)),
            Some(_) if role == Role::Server => {
                fail(format!("--name {text}: a server has a domain: --name {domain}"))
            }
            Some(user) => {
                let unreserved =
                    |byte: u8| byte.is_ascii_alphanumeric() || b"-_.!~*'()&=+$,;?/%".contains(&byte);
                if user.is_empty() || !user.bytes().all(unreserved) {
                    return fail(format!(
                        "--name {text}: this is no user of a SIP URI; write alice@example.com"
                    ));
                }
                Ok(Name::User(format!("{user}@{domain}")))
            }
        }
    }
}

/// Both forms of a domain (RFC 5922 §7.1): the URI is what SIP asks for, the DNS name what every TLS library compares.
fn alternative_names(names: &[Name], addresses: &[IpAddr]) -> Result<Vec<SanType>, CertificateError> {
    let mut all = Vec::new();
    for name in names {
        all.push(SanType::URI(format!("sip:{name}").try_into().map_err(made)?));
    }
    for name in names {
        if let Name::Domain(domain) = name {
            all.push(SanType::DnsName(domain.clone().try_into().map_err(made)?));
        }
    }
    all.extend(addresses.iter().map(|address| SanType::IpAddress(*address)));
    Ok(all)
}

/// What a certificate may be used for; one of a domain says that it is of a SIP domain (RFC 5924 §3).
fn usages(names: &[Name], role: Role) -> Vec<ExtendedKeyUsagePurpose> {
    let mut usages = Vec::new();
    if role == Role::Server {
        usages.push(ExtendedKeyUsagePurpose::ServerAuth);
    }
    usages.push(ExtendedKeyUsagePurpose::ClientAuth);
    if names.iter().any(|name| matches!(name, Name::Domain(_))) {
        usages.push(ExtendedKeyUsagePurpose::Other(SIP_DOMAIN.to_vec()));
    }
    usages
}

/// Certificates of one name with different keys and roles lie beside each other.
fn stem(title: &str, role: Role, key: KeyKind) -> String {
    let safe: String = title
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || "-_.@".contains(c) { c } else { '_' })
        .collect();
    let role = if role == Role::Client { "-client" } else { "" };
    let key = if key == KeyKind::Rsa { "-rsa" } else { "" };
    format!("{safe}{role}{key}")
}

/// A CA that can sign.
struct Signer {
    issuer: Issuer<'static, KeyPair>,
    /// Since 1970.
    ends: Duration,
}

fn read_authority(directory: &Path) -> Result<Signer, CertificateError> {
    let (file, key_file) = (directory.join(CA_FILE), directory.join(CA_KEY_FILE));
    let hint = "; make a CA: strowger cert ca --out DIR";
    let read = |path: &Path| {
        read_file(path)
            .map_err(|error| CertificateError(format!("cannot read {}: {error}{hint}", path.display())))
    };
    let (certificate, key) = (read(&file)?, read(&key_file)?);
    let wrong =
        |path: &Path, what: &dyn fmt::Display| CertificateError(format!("{}: {what}", path.display()));
    let der = CertificateDer::from_pem_slice(&certificate)
        .map_err(|_| wrong(&file, &"there is no certificate in it (PEM is expected)"))?;
    let (_, parsed) = X509Certificate::from_der(&der)
        .map_err(|error| wrong(&file, &format_args!("the certificate cannot be read: {error}")))?;
    if !parsed.is_ca() {
        return Err(wrong(&file, &"this certificate is not one of a CA, it cannot sign others"));
    }
    let last = parsed.validity().not_after.timestamp();
    let ends = Duration::from_secs(u64::try_from(last).unwrap_or(0));
    if ends <= now() {
        return Err(wrong(&file, &format_args!("the CA has expired on {}; make a new one", date(last))));
    }
    let key = std::str::from_utf8(&key).ok().and_then(|text| KeyPair::from_pem(text).ok());
    let Some(key) = key else {
        return Err(wrong(&key_file, &"there is no usable key in it (PEM, not encrypted; ECDSA or RSA)"));
    };
    if key.subject_public_key_info() != parsed.public_key().raw {
        return Err(wrong(&key_file, &format_args!("this is not the key of {}", file.display())));
    }
    let issuer = Issuer::from_ca_cert_der(&der.into_owned(), key)
        .map_err(|error| wrong(&file, &format_args!("the CA cannot be used: {error}")))?;
    Ok(Signer { issuer, ends })
}

fn new_key(kind: KeyKind) -> Result<KeyPair, CertificateError> {
    match kind {
        KeyKind::Ecdsa => KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256),
        KeyKind::Rsa => KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048),
    }
    .map_err(made)
}

fn common_name(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names
}

/// Random, so that no two certificates of a CA share one, whoever makes them (RFC 5280 §4.1.2.2: positive, at most 20
/// octets).
fn serial_number() -> Result<SerialNumber, CertificateError> {
    let mut bytes = [0_u8; 16];
    getrandom::fill(&mut bytes)
        .map_err(|error| CertificateError(format!("the system has no random numbers: {error}")))?;
    // Neither negative nor shortened.
    bytes[0] = bytes[0] & 0x3f | 0x40;
    Ok(SerialNumber::from_slice(&bytes))
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// From yesterday, for clocks that are slow, for so many days from now; never beyond `last`, in seconds since 1970.
fn set_validity(params: &mut CertificateParams, days: u32, last: Option<Duration>) {
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let end = now() + DAY * days;
    params.not_before = epoch + now().saturating_sub(CLOCK_SKEW);
    params.not_after = epoch + last.map_or(end, |last| end.min(last));
}

fn refuse_to_replace(files: [&Path; 2], force: bool) -> Result<(), CertificateError> {
    match files.into_iter().find(|file| !force && file.exists()) {
        Some(file) => fail(format!("{} exists already; give --force to replace it", file.display())),
        None => Ok(()),
    }
}

fn make_directory(path: &Path) -> Result<(), CertificateError> {
    let make = || fs::DirBuilder::new().recursive(true).mode(0o755).create(path);
    make().map_err(|error| CertificateError(format!("cannot make the directory {}: {error}", path.display())))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Owner,
    Everybody,
}

/// Writes a file as a whole or not at all; one that is there only if that is wanted.
fn write(path: &Path, text: &str, access: Access, force: bool) -> Result<(), CertificateError> {
    let mode = if access == Access::Owner { 0o600 } else { 0o644 };
    let put = |path: &Path| -> io::Result<()> {
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    let written = if force {
        let new = path.with_extension(format!("new-{}", std::process::id()));
        put(&new).and_then(|()| fs::rename(&new, path)).inspect_err(|_| drop(fs::remove_file(&new)))
    } else {
        put(path)
    };
    written.map_err(|error| CertificateError(format!("cannot write {}: {error}", path.display())))
}

fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut io::Read::take(fs::File::open(path)?, FILE_BYTES_MAX + 1), &mut bytes)?;
    if bytes.len() as u64 > FILE_BYTES_MAX { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(bytes) }
}

/// Whether the first certificate of a file has ended or soon will; the words go behind its name.
pub(crate) fn ends_soon(path: &Path) -> Option<String> {
    /// Time enough to have a new one made.
    const SOON_DAYS: i64 = 14;
    let der = CertificateDer::from_pem_slice(&read_file(path).ok()?).ok()?;
    let (_, certificate) = X509Certificate::from_der(&der).ok()?;
    let end = certificate.validity().not_after.timestamp();
    let days = (end - now().as_secs().cast_signed()).div_euclid(DAY.as_secs().cast_signed());
    match days {
        i64::MIN..0 => Some(format!("has expired on {}: peers refuse it", date(end))),
        0..SOON_DAYS => Some(format!("expires on {}, in {days} days", date(end))),
        _ => None,
    }
}

/// Everything that a person asks of a file of certificates.
fn show(file: &Path) -> Result<String, CertificateError> {
    let name = file.display();
    let bytes = read_file(file).map_err(|error| CertificateError(format!("cannot read {name}: {error}")))?;
    let mut out = String::new();
    for (at, der) in CertificateDer::pem_slice_iter(&bytes).enumerate() {
        let unreadable = || CertificateError(format!("{name}: certificate {} cannot be read", at + 1));
        let der = der.map_err(|_| unreadable())?;
        let (_, certificate) = X509Certificate::from_der(&der).map_err(|_| unreadable())?;
        if at > 0 {
            out.push('\n');
        }
        // Writing to a String cannot fail.
        let _ = describe(&certificate, &mut out);
    }
    if out.is_empty() {
        let is_key = bytes.windows(11).any(|part| part == b"PRIVATE KEY");
        let what =
            if is_key { "a private key is in it, no certificate" } else { "there is no certificate in it" };
        return fail(format!("{name}: {what}; a PEM file with BEGIN CERTIFICATE is expected"));
    }
    Ok(out)
}

fn describe(certificate: &X509Certificate<'_>, out: &mut String) -> fmt::Result {
    let validity = certificate.validity();
    let own = certificate.subject().as_raw() == certificate.issuer().as_raw();
    writeln!(out, "subject   {}", printable(&certificate.subject().to_string()))?;
    for (at, name) in alternative_names_of(certificate).iter().enumerate() {
        writeln!(out, "{:9} {name}", if at == 0 { "names" } else { "" })?;
    }
    writeln!(
        out,
        "issuer    {}",
        if own { "itself".to_owned() } else { printable(&certificate.issuer().to_string()) }
    )?;
    let remark = match validity.not_after.timestamp() - now().as_secs().cast_signed() {
        _ if validity.not_before > ASN1Time::now() => "not yet valid".to_owned(),
        seconds if seconds < 0 => "EXPIRED".to_owned(),
        seconds => format!("{} days left", seconds.unsigned_abs().div_ceil(DAY.as_secs())),
    };
    let (from, to) = (date(validity.not_before.timestamp()), date(validity.not_after.timestamp()));
    writeln!(out, "valid     {from} to {to} ({remark})")?;
    writeln!(out, "key       {}", key_of(certificate))?;
    writeln!(out, "for       {}", purposes(certificate))?;
    writeln!(out, "serial    {}", certificate.raw_serial_as_string())
}

fn alternative_names_of(certificate: &X509Certificate<'_>) -> Vec<String> {
    let Ok(Some(extension)) = certificate.subject_alternative_name() else {
        return vec!["none: nobody who follows RFC 5922 accepts it".to_owned()];
    };
    let name = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => format!("DNS {}", printable(name)),
        GeneralName::URI(uri) => format!("URI {}", printable(uri)),
        GeneralName::RFC822Name(address) => format!("e-mail {}", printable(address)),
        GeneralName::IPAddress(bytes) => match (<[u8; 4]>::try_from(*bytes), <[u8; 16]>::try_from(*bytes)) {
            (Ok(v4), _) => format!("IP {}", IpAddr::from(v4)),
            (_, Ok(v6)) => format!("IP {}", IpAddr::from(v6)),
            _ => "IP of a wrong length".to_owned(),
        },
        _ => "a name of another kind".to_owned(),
    };
    extension.value.general_names.iter().map(name).collect()
}

fn key_of(certificate: &X509Certificate<'_>) -> String {
    match certificate.public_key().parsed() {
        Ok(PublicKey::RSA(key)) => format!("RSA, {} bits", key.key_size()),
        Ok(PublicKey::EC(key)) => format!("ECDSA, {} bits", key.key_size()),
        _ => format!("of the kind {}", certificate.public_key().algorithm.algorithm),
    }
}

fn purposes(certificate: &X509Certificate<'_>) -> String {
    let mut all: Vec<String> = Vec::new();
    if certificate.is_ca() {
        all.push("signing certificates (CA)".to_owned());
    }
    match certificate.extended_key_usage() {
        Ok(Some(usage)) => {
            let usage = usage.value;
            let known =
                [(usage.server_auth, "servers"), (usage.client_auth, "clients"), (usage.any, "everything")];
            all.extend(known.iter().filter(|(has, _)| *has).map(|(_, name)| (*name).to_owned()));
            let sip = SIP_DOMAIN.map(|number| number.to_string()).join(".");
            all.extend(usage.other.iter().map(|oid| {
                let oid = oid.to_id_string();
                if oid == sip { "SIP domains".to_owned() } else { oid }
            }));
        }
        _ if all.is_empty() => all.push("everything".to_owned()),
        _ => {}
    }
    all.join(", ")
}

/// What somebody else wrote, harmless to a terminal.
fn printable(text: &str) -> String {
    let mut out = String::new();
    for character in text.chars() {
        if character.is_control() {
            let _ = write!(out, "{}", character.escape_default());
        } else {
            out.push(character);
        }
    }
    out
}

/// A day, of seconds since 1970.
fn date(seconds: i64) -> String {
    let Ok(time) = ASN1Time::from_timestamp(seconds) else { return "a day out of range".to_owned() };
    let time = time.to_datetime();
    format!("{:04}-{:02}-{:02}", time.year(), u8::from(time.month()), time.day())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_domains_or_users() {
        let parse = |text, role| Name::parse(text, role).ok();
        let domain = |text: &str| Some(Name::Domain(text.to_owned()));
        assert_eq!(parse("Example.COM.", Role::Server), domain("example.com"));
        assert_eq!(parse("sip:example.com", Role::Server), domain("example.com"));
        assert_eq!(
            parse("Alice@Example.com", Role::Client),
            Some(Name::User("Alice@example.com".to_owned()))
        );
        for wrong in
            ["", ".", "@example.com", "al ice@example.com", "*.example.com", "192.0.2.1", "a\nb", "a@b@c d"]
        {
            assert_eq!(parse(wrong, Role::Client), None, "{wrong}");
        }
        assert_eq!(parse("alice@example.com", Role::Server), None);
    }

    #[test]
    fn a_user_has_a_uri_and_no_dns_name() {
        let names = [Name::Domain("example.com".to_owned()), Name::User("alice@example.com".to_owned())];
        let all = alternative_names(&names, &[]).unwrap();
        assert_eq!(all.len(), 3);
        assert!(usages(&names[1..], Role::Client).len() == 1 && usages(&names, Role::Server).len() == 3);
    }

    #[test]
    fn files_are_named_after_what_they_are_for() {
        assert_eq!(stem("example.com", Role::Server, KeyKind::Ecdsa), "example.com");
        assert_eq!(stem("example.com", Role::Client, KeyKind::Rsa), "example.com-client-rsa");
        assert_eq!(stem("2001:db8::1", Role::Server, KeyKind::Ecdsa), "2001_db8__1");
    }

    #[test]
    fn names_of_files_are_quoted_where_a_profile_needs_that() {
        for (path, value) in
            [("/etc/a.pem", "/etc/a.pem"), ("/my dir/a.pem", "\"/my dir/a.pem\""), ("/a#\"b", "\"/a#\\\"b\"")]
        {
            assert_eq!(Quoted(Path::new(path)).to_string(), value);
        }
    }

    #[test]
    fn days_are_written_as_iso_8601_has_them() {
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(1_798_761_600), "2027-01-01");
    }

    #[test]
    fn what_others_wrote_cannot_move_the_cursor() {
        assert_eq!(printable("a\u{1b}[2Jb\n"), "a\\u{1b}[2Jb\\n");
    }
}
