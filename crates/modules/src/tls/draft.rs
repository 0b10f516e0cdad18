//! One profile while it is read: what has been said so far, what it inherits, and what it means.

use super::{CHAIN_DEPTH, TlsCertificate, TlsPeer, TlsProfile, TlsVersion, Written, finding};
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use route::{Diagnostic, Severity, Span};

/// Whose connections a profile is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// Those that others open.
    Server,
    /// Those that this server opens.
    Client,
}

/// What a profile can say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Item {
    Method,
    VerifyCertificate,
    RequireCertificate,
    VerifyClient,
    VerifyDepth,
    Certificate,
    PrivateKey,
    CaList,
    CaPath,
    Crl,
    CipherList,
    ServerName,
    ServerNameMode,
    ServerId,
}

/// How it says so.
pub(super) static KEYS: &[(&str, Item)] = &[
    ("method", Item::Method),
    ("tls_method", Item::Method),
    ("verify_certificate", Item::VerifyCertificate),
    ("require_certificate", Item::RequireCertificate),
    ("verify_client", Item::VerifyClient),
    ("verify_depth", Item::VerifyDepth),
    ("certificate", Item::Certificate),
    ("private_key", Item::PrivateKey),
    ("ca_list", Item::CaList),
    ("ca_path", Item::CaPath),
    ("crl", Item::Crl),
    ("cipher_list", Item::CipherList),
    ("server_name", Item::ServerName),
    ("server_name_mode", Item::ServerNameMode),
    ("server_id", Item::ServerId),
];

/// Certificates of one profile: kinds of keys are few.
const CERTIFICATES_MAX: usize = 8;

/// Which names (SNI) a profile is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum NameMode {
    /// The one that it names.
    #[default]
    Exact,
    /// This and those below.
    AndBelow,
    /// Those below.
    Below,
}

/// What has been said.
#[derive(Clone, Debug, Default)]
pub(super) struct Draft {
    versions: Option<(TlsVersion, TlsVersion)>,
    verify: Option<bool>,
    require: Option<bool>,
    verify_client: Option<TlsPeer>,
    certificates: Vec<Written>,
    keys: Vec<Written>,
    ca_list: Option<Written>,
    crl: Option<Written>,
    cipher_list: Option<Written>,
    name: Option<Written>,
    name_mode: NameMode,
    said: Vec<(Item, Span)>,
}

/// Reads the words for yes and no.
pub(super) fn truth(text: &str) -> Option<bool> {
    let is = |words: &[&str]| words.iter().any(|word| text.eq_ignore_ascii_case(word));
    if is(&["yes", "on", "true", "enable", "enabled", "1", "y"]) {
        Some(true)
    } else if is(&["no", "off", "false", "disable", "disabled", "0", "n"]) {
        Some(false)
    } else {
        None
    }
}

/// What is wrong with a value: the sentence and what to write instead.
type Wrong = (String, &'static str);

impl Draft {
    /// Takes one value; `name` is what it was called.
    pub(super) fn set(&mut self, key: Item, name: &str, value: Written, found: &mut Vec<Diagnostic>) {
        let span = value.span;
        let repeatable = matches!(key, Item::Certificate | Item::PrivateKey);
        if let Some((_, first)) = self.said.iter().find(|(said, _)| *said == key && !repeatable) {
            let mut twice = finding(
                Severity::Error,
                span,
                "twice",
                format!("`{name}` is set twice"),
                "leave one of them out",
            );
            twice.secondary.push((*first, "the first one".to_owned()));
            return found.push(twice);
        }
        self.said.push((key, span));
        if let Err((message, help)) = self.keep(key, name, value, found) {
            found.push(finding(Severity::Error, span, "bad-value", message, help));
        }
    }

    fn keep(
        &mut self,
        key: Item,
        name: &str,
        value: Written,
        found: &mut Vec<Diagnostic>,
    ) -> Result<(), Wrong> {
        match key {
            Item::Method => self.versions = Some(versions(&value, found)?),
            Item::VerifyCertificate => self.verify = Some(yes_or_no(name, &value)?),
            Item::RequireCertificate => self.require = Some(yes_or_no(name, &value)?),
            Item::VerifyClient => self.verify_client = Some(verify_client(&value)?),
            Item::VerifyDepth => check_depth(&value, found)?,
            Item::Certificate => self.certificates.push(file(value, self.certificates.len())?),
            Item::PrivateKey => self.keys.push(file(value, self.keys.len())?),
            Item::CaList => self.ca_list = Some(value),
            Item::CaPath => {
                let message = "directories of CAs are not read".to_owned();
                return Err((
                    message,
                    "put the CAs into one file, `cat *.pem > calist.pem`: ca_list = calist.pem",
                ));
            }
            Item::Crl => self.crl = Some(value),
            Item::CipherList => self.cipher_list = Some(value),
            Item::ServerName => self.name = Some(server_name(value)?),
            Item::ServerNameMode => self.name_mode = name_mode(&value)?,
            Item::ServerId => {
                let message = "`server_id` means nothing here".to_owned();
                let help = "a client profile is chosen by the next hop's address: [client:IP:PORT]";
                found.push(finding(Severity::Note, value.span, "harmless", message, help));
            }
        }
        Ok(())
    }

    /// Takes from the default profile of its side what this one does not say; names are its own.
    pub(super) fn inherit(&mut self, from: &Draft) {
        self.versions = self.versions.or(from.versions);
        // What is asked of the other side is one thing, however it is said.
        if self.verify.is_none() && self.require.is_none() && self.verify_client.is_none() {
            (self.verify, self.require, self.verify_client) = (from.verify, from.require, from.verify_client);
        }
        if self.certificates.is_empty() && self.keys.is_empty() {
            self.certificates.clone_from(&from.certificates);
            self.keys.clone_from(&from.keys);
        }
        for (mine, theirs) in [
            (&mut self.ca_list, &from.ca_list),
            (&mut self.crl, &from.crl),
            (&mut self.cipher_list, &from.cipher_list),
        ] {
            if mine.is_none() {
                mine.clone_from(theirs);
            }
        }
    }

    pub(super) fn has_certificate(&self) -> bool {
        !self.certificates.is_empty()
    }

    /// The name as it is written.
    pub(super) fn name(&self) -> Option<&Written> {
        self.name.as_ref()
    }

    /// The same without its name.
    pub(super) fn nameless(&self) -> Draft {
        Draft { name: None, ..self.clone() }
    }

    /// The profile that this makes; `span` is where it begins.
    pub(super) fn profile(
        &self,
        side: Side,
        address: Option<SocketAddr>,
        span: Span,
        found: &mut Vec<Diagnostic>,
    ) -> TlsProfile {
        let peer = self.peer(side);
        self.warn(side, peer, span, found);
        TlsProfile {
            address,
            names: self.names(side),
            certificates: self.pairs(found),
            ca_list: self.ca_list.clone(),
            crl: self.crl.clone(),
            peer,
            versions: self.versions.unwrap_or((TlsVersion::V1_2, TlsVersion::V1_3)),
            cipher_list: self.cipher_list.clone(),
            span,
        }
    }

    fn peer(&self, side: Side) -> TlsPeer {
        let verify = self.verify_client.map(|peer| peer != TlsPeer::Off).or(self.verify);
        match (side, self.verify_client) {
            // A server always has a certificate; the question is whether it is looked at.
            (Side::Client, _) if verify == Some(false) => TlsPeer::Off,
            (Side::Client, _) => TlsPeer::Require,
            (Side::Server, Some(peer)) => peer,
            (Side::Server, None) if self.require == Some(true) => TlsPeer::Require,
            (Side::Server, None) if self.verify == Some(true) => TlsPeer::Request,
            (Side::Server, None) => TlsPeer::Off,
        }
    }

    fn warn(&self, side: Side, peer: TlsPeer, span: Span, found: &mut Vec<Diagnostic>) {
        let mut warn = |span: Span, code, message: &str, help| {
            found.push(finding(Severity::Warning, span, code, message.to_owned(), help));
        };
        let said =
            |key: Item| self.said.iter().find(|(said, _)| *said == key).map_or(span, |(_, span)| *span);
        if peer == TlsPeer::Off {
            if side == Side::Client {
                warn(
                    said(Item::VerifyCertificate),
                    "not-verified",
                    "whoever is between this server and the next hop can pretend to be it",
                    "verify_certificate = yes, with ca_list where its CA is not one of the system's",
                );
            }
            if let Some(crl) =
                self.crl.as_ref().filter(|_| self.said.iter().any(|(key, _)| *key == Item::Crl))
            {
                warn(
                    crl.span,
                    "no-effect",
                    "no certificate is verified, so none is looked up in `crl`",
                    "verify_certificate = yes",
                );
            }
        } else if side == Side::Server && self.ca_list.is_none() {
            let message = "every certificate of every public CA lets its owner in";
            warn(
                span,
                "any-ca",
                message,
                "name the CAs that clients' certificates may come from: ca_list = FILE",
            );
        }
    }

    /// Certificates and keys, in the order in which they are written.
    fn pairs(&self, found: &mut Vec<Diagnostic>) -> Vec<TlsCertificate> {
        let (certificates, keys) = (&self.certificates, &self.keys);
        let pair =
            |(chain, key): (&Written, &Written)| TlsCertificate { chain: chain.clone(), key: key.clone() };
        match (certificates.len(), keys.len()) {
            (_, 0) => certificates.iter().zip(certificates).map(pair).collect(),
            (some, same) if some == same => certificates.iter().zip(keys).map(pair).collect(),
            (some, other) => {
                let span = keys.last().map(|key| key.span).unwrap_or_default();
                let message = format!("{some} `certificate` and {other} `private_key`");
                let help = "write one private_key for each certificate, in the same order";
                found.push(finding(Severity::Error, span, "bad-value", message, help));
                Vec::new()
            }
        }
    }

    fn names(&self, side: Side) -> Vec<String> {
        let Some(name) = &self.name else { return Vec::new() };
        let exact = name.text.clone();
        if side == Side::Client || exact.starts_with("*.") {
            return [exact].into();
        }
        let below = format!("*.{exact}");
        match self.name_mode {
            NameMode::Exact => [exact].into(),
            NameMode::AndBelow => [exact, below].into(),
            NameMode::Below => [below].into(),
        }
    }
}

fn yes_or_no(name: &str, value: &Written) -> Result<bool, Wrong> {
    truth(&value.text)
        .ok_or_else(|| (format!("`{name}` takes `yes` or `no`, not `{}`", value.text), "yes or no"))
}

/// The versions that a method of OpenSSL stands for. What is older than TLS 1.2 "MUST NOT" be negotiated (RFC 8996).
fn versions(value: &Written, found: &mut Vec<Diagnostic>) -> Result<(TlsVersion, TlsVersion), Wrong> {
    const CHOICE: &str = "TLSv1.2, TLSv1.2+ (and newer), TLSv1.3 or TLSv1.3+";
    let method = value.text.to_ascii_lowercase();
    match method.as_str() {
        "tlsv1.2" => Ok((TlsVersion::V1_2, TlsVersion::V1_2)),
        "tlsv1.2+" => Ok((TlsVersion::V1_2, TlsVersion::V1_3)),
        "tlsv1.3" | "tlsv1.3+" => Ok((TlsVersion::V1_3, TlsVersion::V1_3)),
        "sslv23" | "tlsv1+" | "tlsv1.0+" | "tlsv1.1+" => {
            let message = format!("`{}` means TLS 1.2 and 1.3 here", value.text);
            let help = "older versions are broken (RFC 8996); write TLSv1.2+";
            found.push(finding(Severity::Note, value.span, "old-version", message, help));
            Ok((TlsVersion::V1_2, TlsVersion::V1_3))
        }
        "sslv2" | "sslv3" | "tlsv1" | "tlsv1.0" | "tlsv1.1" => {
            let message = format!("`{}` alone is broken and not supported (RFC 8996)", value.text);
            Err((message, "write TLSv1.2+, which is TLS 1.2 and 1.3"))
        }
        _ => Err((format!("there is no method `{}`", value.text), CHOICE)),
    }
}

fn verify_client(value: &Written) -> Result<TlsPeer, Wrong> {
    match value.text.to_ascii_lowercase().as_str() {
        "off" => Ok(TlsPeer::Off),
        "on" => Ok(TlsPeer::Require),
        "optional" => Ok(TlsPeer::Request),
        "optional_no_ca" => Err((
            "a certificate that need not be valid proves nothing".to_owned(),
            "`optional` (one that is there must be valid) or `off`; for phones with certificates of their own CA, name it with ca_list",
        )),
        _ => Err((format!("`verify_client` is not `{}`", value.text), "off, optional or on")),
    }
}

fn check_depth(value: &Written, found: &mut Vec<Diagnostic>) -> Result<(), Wrong> {
    let depth = route::parse_int(value.text.as_bytes()).filter(|depth| *depth >= 0);
    let Some(depth) = depth else {
        return Err((format!("`{}` is not a number", value.text), "leave `verify_depth` out"));
    };
    if depth < CHAIN_DEPTH {
        let message =
            format!("certificates are followed to their CA over up to {CHAIN_DEPTH} others, not {depth}");
        let help = "a CA that signs no further CAs (pathlen:0) is what keeps chains short";
        found.push(finding(Severity::Note, value.span, "harmless", message, help));
    }
    Ok(())
}

fn file(value: Written, before: usize) -> Result<Written, Wrong> {
    if value.text.starts_with("/engine:") || value.text.starts_with("/uri:") {
        let message = "keys in modules of hardware (HSM) are not supported".to_owned();
        return Err((message, "name a PEM file"));
    }
    if before >= CERTIFICATES_MAX {
        let message = format!("more than {CERTIFICATES_MAX} certificates in one profile");
        return Err((
            message,
            "one for each kind of key is enough; for several domains write [server:any] with server_name",
        ));
    }
    Ok(value)
}

/// A host name, in lower case; the dot of the root is left out.
fn server_name(value: Written) -> Result<Written, Wrong> {
    const HELP: &str = "letters, digits, `-` and dots, for example sip.example.com";
    let text = value.text.trim_end_matches('.').to_ascii_lowercase();
    let host = text.strip_prefix("*.").unwrap_or(&text);
    let plain = |label: &str| {
        let known = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        (1..=63).contains(&label.len()) && label.bytes().all(known)
    };
    if host.parse::<IpAddr>().is_ok() {
        return Err((
            format!("`{}` is an address, not a name", value.text),
            "an address belongs into the head: [server:IP:PORT]",
        ));
    }
    if host.len() > 253 || !host.split('.').all(plain) {
        return Err((format!("`{}` is not a host name", value.text), HELP));
    }
    Ok(Written { text, span: value.span })
}

fn name_mode(value: &Written) -> Result<NameMode, Wrong> {
    match value.text.as_str() {
        "0" => Ok(NameMode::Exact),
        "1" => Ok(NameMode::AndBelow),
        "2" => Ok(NameMode::Below),
        _ => Err((
            format!("`server_name_mode` is not `{}`", value.text),
            "0: the name; 1: the name and those one label below; 2: those below",
        )),
    }
}
