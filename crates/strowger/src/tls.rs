//! From what a configuration says about TLS to what `net` works with: files found, profiles read, both again on SIGHUP.
//!
//! Names of files are relative to the directory of the configuration file, those in a `tls.cfg` too, wherever that is.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use modules::{
    Listen, ListenHost, TlsConfiguration, TlsPeer, TlsProfile, TlsProfiles, TlsVersion as Version, Written,
};
use net::tls::{
    CertificateFiles, HandshakePool, HandshakeStatistics, PeerCertificate, Profile, Tls, TlsError,
    TlsSettings, TlsVersion,
};
use route::{Diagnostic, Severity, Sources, Span};
use sip::Transport;

use crate::certificate;
use crate::configuration::Loaded;
use crate::server::StartError;

/// The longest `tls.cfg`, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Where the settings of TLS come from, so that they can be read again.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    configuration: TlsConfiguration,
    /// The directory of the configuration file.
    directory: PathBuf,
}

/// What is wrong with them.
#[derive(Debug)]
pub(crate) struct Wrong {
    pub(crate) diagnostics: Vec<Diagnostic>,
    /// What the diagnostics point into.
    pub(crate) sources: Sources,
}

/// The first error in one line, with its place and what to do.
impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut errors = self.diagnostics.iter().filter(|finding| finding.is_error());
        let Some(first) = errors.next() else { return f.write_str("the settings of TLS cannot be used") };
        let place = self.sources.position(first.span().unwrap_or_default());
        write!(f, "{}:{}:{}: {}", place.file, place.line, place.column, first.message)?;
        if let Some(help) = first.help.first() {
            write!(f, "; {help}")?;
        }
        match errors.count() {
            0 => Ok(()),
            more => write!(f, " (and {more} more)"),
        }
    }
}

/// What was read, with what is worth knowing about it.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) settings: TlsSettings,
    pub(crate) diagnostics: Vec<Diagnostic>,
    /// The given sources, and the `tls.cfg` behind them.
    pub(crate) sources: Sources,
    /// Which file is named where.
    places: Vec<(PathBuf, Span)>,
}

impl Found {
    /// Loads the certificates as the server would.
    ///
    /// # Errors
    ///
    /// What is wrong inside of a file, at the place that names it.
    pub(crate) fn prove(&self) -> Result<(), Box<Diagnostic>> {
        if self.settings.servers.is_empty() && self.places.is_empty() {
            return Ok(());
        }
        Tls::load(self.settings.clone()).map(drop).map_err(|error| Box::new(self.at_its_place(&error)))
    }

    /// Writes what is probably not meant to the log, a line each.
    fn log_warnings(&self) {
        for finding in self.diagnostics.iter().filter(|finding| finding.severity == Severity::Warning) {
            let place = self.sources.position(finding.span().unwrap_or_default());
            tracing::warn!("{}:{}:{}: {}", place.file, place.line, place.column, finding.message);
        }
    }

    fn at_its_place(&self, error: &TlsError) -> Diagnostic {
        let place = self.places.iter().find(|(path, _)| Some(path.as_path()) == error.path());
        Diagnostic {
            severity: Severity::Error,
            code: "certificate",
            message: error.to_string(),
            primary: place.map(|(_, span)| (*span, String::new())),
            secondary: Vec::new(),
            help: Vec::new(),
        }
    }
}

/// TLS at work: what handshakes are made with, the threads that make them, and where it all came from.
pub(crate) struct InUse {
    tls: Tls,
    pool: HandshakePool,
    source: Source,
    /// The files of the configuration, without the `tls.cfg`.
    sources: Sources,
}

impl InUse {
    /// Loads certificates and starts `threads` for handshakes; `None` if no listener needs them.
    ///
    /// # Errors
    ///
    /// When a listener needs a certificate and there is none, or one that cannot be used.
    pub(crate) fn start(
        loaded: &Loaded,
        listeners: &[engine::Listener],
        threads: u8,
    ) -> Result<Option<InUse>, StartError> {
        let mut secure =
            listeners.iter().filter(|listener| matches!(listener.transport, Transport::Tls | Transport::Wss));
        let Some(first) = secure.next() else { return Ok(None) };
        if loaded.tls.settings.servers.is_empty() {
            return Err(StartError(format!("{} needs a certificate: {HOW_TO_BEGIN}", first.address)));
        }
        let tls = Tls::load(loaded.tls.settings.clone()).map_err(|error| StartError(error.to_string()))?;
        let pool = HandshakePool::start(tls.clone(), usize::from(threads))
            .map_err(|error| StartError(format!("cannot start the threads for TLS handshakes: {error}")))?;
        let (source, sources) = (loaded.tls_source.clone(), loaded.program.sources().clone());
        Ok(Some(InUse { tls, pool, source, sources }))
    }

    /// What the shards hand connections to.
    pub(crate) fn pool(&self) -> HandshakePool {
        self.pool.clone()
    }

    /// What became of handshakes.
    pub(crate) fn statistics(&self) -> HandshakeStatistics {
        self.pool.statistics()
    }

    /// Reads everything again; how many profiles of servers and of clients there are.
    ///
    /// # Errors
    ///
    /// What is wrong, in one line; what was in use stays so.
    pub(crate) fn reload(&self) -> Result<(usize, usize), String> {
        self.source.reload(&self.sources, |settings| self.tls.replace(settings))
    }

    /// What it is read from.
    pub(crate) fn origin(&self) -> &str {
        let file = self.source.configuration.file.as_ref();
        file.map_or("the configuration", |file| &file.text)
    }
}

impl Source {
    pub(crate) fn new(configuration: TlsConfiguration, directory: PathBuf) -> Source {
        Source { configuration, directory }
    }

    /// Reads the profiles and looks for their files; `sources` are those of the configuration.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with the profiles or the names of files in them. What is wrong inside of certificates
    /// is found where they are used.
    pub(crate) fn read(&self, mut sources: Sources) -> Result<Found, Wrong> {
        let mut diagnostics = Vec::new();
        let profiles = self.profiles(&mut sources, &mut diagnostics);
        let mut places = Vec::new();
        if !diagnostics.iter().any(Diagnostic::is_error) {
            self.check_files(&profiles, &mut places, &mut diagnostics);
        }
        if diagnostics.iter().any(Diagnostic::is_error) {
            return Err(Wrong { diagnostics, sources });
        }
        Ok(Found { settings: self.settings(&profiles), diagnostics, sources, places })
    }

    /// The same at the start, with a look at who listens.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read), and where a listener has no certificate.
    pub(crate) fn load(&self, sources: Sources, listen: &[Listen]) -> Result<Found, Wrong> {
        let mut found = self.read(sources)?;
        found.diagnostics.extend(check_listeners(listen, &found.settings));
        if found.diagnostics.iter().any(Diagnostic::is_error) {
            return Err(Wrong { diagnostics: found.diagnostics, sources: found.sources });
        }
        Ok(found)
    }

    /// Reads everything again and has `replace` put it to use. Says in one line of the log what came of it; what is in
    /// use stays so where anything is wrong.
    pub(crate) fn reload<E: fmt::Display>(
        &self,
        sources: &Sources,
        replace: impl FnOnce(TlsSettings) -> Result<(), E>,
    ) -> Result<(usize, usize), String> {
        self.read(sources.clone()).map_err(|wrong| wrong.to_string()).and_then(|found| {
            if found.settings.servers.is_empty() {
                return Err("no [server:...] profile is left, and a listener needs one".to_owned());
            }
            found.log_warnings();
            let counts = (found.settings.servers.len(), found.settings.clients.len());
            replace(found.settings).map(|()| counts).map_err(|error| error.to_string())
        })
    }

    fn profiles(&self, sources: &mut Sources, diagnostics: &mut Vec<Diagnostic>) -> TlsProfiles {
        let Some(file) = &self.configuration.file else { return self.configuration.profiles.clone() };
        let path = self.resolved(file);
        let text = match read_text(&path) {
            Ok(text) => text,
            Err(error) => {
                diagnostics.push(unreadable(file, &path, &error));
                return TlsProfiles::default();
            }
        };
        let index = sources.add(&path.display().to_string(), text.clone());
        let (profiles, found) = TlsProfiles::read(&text, index);
        diagnostics.extend(found);
        profiles
    }

    /// A name of a file as it is to be opened.
    fn resolved(&self, name: &Written) -> PathBuf {
        let text = name.text.strip_prefix("./").unwrap_or(&name.text);
        self.directory.join(text)
    }

    /// Looks at every file that the profiles name, once for each place that names it.
    fn check_files(
        &self,
        profiles: &TlsProfiles,
        places: &mut Vec<(PathBuf, Span)>,
        diagnostics: &mut Vec<Diagnostic>,
    ) {
        let mut seen: Vec<(&Written, Kind)> = Vec::new();
        for profile in profiles.servers.iter().chain(&profiles.clients) {
            let pairs = profile.certificates.iter();
            let pairs = pairs.flat_map(|pair| [(&pair.key, Kind::Key), (&pair.chain, Kind::Certificate)]);
            let others = profile.ca_list.iter().chain(&profile.crl).map(|name| (name, Kind::Other));
            for (name, kind) in pairs.chain(others) {
                // What profiles inherit is named at one place; a file may be both certificate and key.
                if seen.contains(&(name, kind)) {
                    continue;
                }
                let path = self.resolved(name);
                let told = diagnostics.len();
                if !places.iter().any(|(_, span)| *span == name.span) || kind == Kind::Certificate {
                    diagnostics.extend(check_file(name, &path, kind));
                }
                seen.push((name, kind));
                places.push((path, name.span));
                // One that cannot be read is told once.
                if diagnostics.get(told).is_some_and(Diagnostic::is_error) {
                    seen.extend([(name, Kind::Key), (name, Kind::Certificate)]);
                }
            }
        }
    }

    fn settings(&self, profiles: &TlsProfiles) -> TlsSettings {
        let configuration = &self.configuration;
        let all = |profiles: &[TlsProfile]| profiles.iter().flat_map(|one| self.profile(one)).collect();
        TlsSettings {
            servers: all(&profiles.servers),
            clients: all(&profiles.clients),
            handshake_timeout: configuration.handshake_timeout,
            handshakes_max: configuration.handshakes_max,
            session_lifetime: configuration.session_lifetime,
            client_sessions_max: if configuration.session_lifetime == Duration::ZERO {
                0
            } else {
                configuration.client_sessions_max
            },
        }
    }

    /// One profile for each name.
    fn profile(&self, from: &TlsProfile) -> Vec<Profile> {
        let certificate = |pair: &modules::TlsCertificate| CertificateFiles {
            chain: self.resolved(&pair.chain),
            key: self.resolved(&pair.key),
        };
        let nameless = Profile {
            address: from.address,
            server_name: None,
            certificates: from.certificates.iter().map(certificate).collect(),
            ca_list: from.ca_list.as_ref().map(|name| self.resolved(name)),
            crl: from.crl.as_ref().map(|name| self.resolved(name)),
            peer: match from.peer {
                TlsPeer::Off => PeerCertificate::Off,
                TlsPeer::Request => PeerCertificate::Request,
                TlsPeer::Require => PeerCertificate::Require,
            },
            versions: (version(from.versions.0), version(from.versions.1)),
            cipher_list: from.cipher_list.as_ref().map(|list| list.text.clone()),
        };
        if from.names.is_empty() {
            return vec![nameless];
        }
        let named = |name: &String| Profile { server_name: Some(name.clone()), ..nameless.clone() };
        from.names.iter().map(named).collect()
    }
}

/// What a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Key,
    Certificate,
    Other,
}

/// Whether a file is there, a key is a secret, and a certificate of ours is valid for a while.
fn check_file(name: &Written, path: &Path, kind: Kind) -> Option<Diagnostic> {
    /// Read, write or search by whoever is neither the owner nor of the group.
    const OTHERS: u32 = 0o007;
    let metadata = match File::open(path).and_then(|file| file.metadata()) {
        Ok(metadata) => metadata,
        Err(error) => return Some(unreadable(name, path, &error)),
    };
    if metadata.is_dir() {
        return Some(unreadable(name, path, &io::ErrorKind::IsADirectory.into()));
    }
    let (code, message, help) = match kind {
        Kind::Key if metadata.permissions().mode() & OTHERS != 0 => (
            "open-key",
            format!("every user of this machine can read the private key in {}", path.display()),
            format!("chmod 600 {}", path.display()),
        ),
        Kind::Certificate => (
            "expires",
            format!("{} {}", path.display(), certificate::ends_soon(path)?),
            "put a new one in its place, then send SIGHUP".to_owned(),
        ),
        _ => return None,
    };
    Some(finding(Severity::Warning, name.span, code, message, help))
}

/// What `listen` lines and profiles have to say to each other: a listener for TLS needs a certificate, and a certificate
/// that no listener uses was probably meant for one.
pub(crate) fn check_listeners(listen: &[Listen], profiles: &TlsSettings) -> Vec<Diagnostic> {
    let secure: Vec<&Listen> =
        listen.iter().filter(|listen| matches!(listen.transport, Transport::Tls | Transport::Wss)).collect();
    let Some(first) = secure.first() else { return Vec::new() };
    if profiles.servers.is_empty() {
        let message = "TLS needs a certificate".to_owned();
        return vec![finding(
            Severity::Error,
            first.span,
            "no-certificate",
            message,
            HOW_TO_BEGIN.to_owned(),
        )];
    }
    // Who listens on an interface or on everything listens on addresses that are not known here.
    let known: Option<Vec<_>> = secure
        .iter()
        .map(|listen| match listen.host {
            ListenHost::Address(ip) if !ip.is_unspecified() => Some((ip, listen.port)),
            _ => None,
        })
        .collect();
    let Some(known) = known else { return Vec::new() };
    let unused = |profile: &&Profile| {
        profile.address.is_some_and(|address| !known.contains(&(address.ip(), address.port())))
    };
    let mut addresses: Vec<_> =
        profiles.servers.iter().filter(unused).filter_map(|profile| profile.address).collect();
    addresses.dedup();
    let warning = |address| {
        let message = format!("a profile is for {address}, where nothing listens for TLS");
        let help = format!("listen=tls:{address}, or take [server:{address}] out of the file of profiles");
        finding(Severity::Warning, first.span, "no-listener", message, help)
    };
    addresses.into_iter().map(warning).collect()
}

/// What to do where there is no certificate, in one line.
pub(crate) const HOW_TO_BEGIN: &str = "name one: modparam(\"tls\", \"certificate\", \"FILE\") and \"private_key\"; \
     to make one: strowger cert ca --out ca, then strowger cert server --ca ca --name DOMAIN --out .";

fn version(version: Version) -> TlsVersion {
    match version {
        Version::V1_2 => TlsVersion::V1_2,
        Version::V1_3 => TlsVersion::V1_3,
    }
}

fn read_text(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    // Comments are in all kinds of encodings; what is not UTF-8 in a name is not found on the disk either.
    Ok(String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

fn unreadable(name: &Written, path: &Path, error: &io::Error) -> Diagnostic {
    let message = format!("cannot read {}: {error}", path.display());
    let help = match error.kind() {
        io::ErrorKind::NotFound if Path::new(&name.text).is_absolute() => {
            "`strowger cert --help` says how to make certificates"
        }
        io::ErrorKind::NotFound => "names of files are relative to the directory of the configuration file",
        io::ErrorKind::PermissionDenied => "the user that runs the server must be able to read it",
        io::ErrorKind::IsADirectory => "name one file",
        _ => "give the name of a readable file",
    };
    finding(Severity::Error, name.span, "unreadable", message, help.to_owned())
}

fn finding(severity: Severity, span: Span, code: &'static str, message: String, help: String) -> Diagnostic {
    Diagnostic {
        severity,
        code,
        message,
        primary: Some((span, String::new())),
        secondary: Vec::new(),
        help: vec![help],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::net::IpAddr;

    /// A directory of its own for one test, gone with it.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Scratch {
            let path = std::env::temp_dir().join(format!("strowger-tls-{}-{name}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Scratch(path)
        }

        fn write(&self, name: &str, text: &str) {
            let path = self.0.join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        }

        fn source(&self) -> Source {
            let file = Some(Written { text: "./tls.cfg".to_owned(), span: Span::default() });
            Source::new(TlsConfiguration { file, ..TlsConfiguration::default() }, self.0.clone())
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const TLS_CFG: &str = "[server:default]\ncertificate = server.pem\nprivate_key = server-key.pem\n\
         [server:any]\nserver_name = example.com\nserver_name_mode = 1\n[client:192.0.2.1:5061]\nca_list = server.pem\n";

    #[test]
    fn files_are_found_beside_the_configuration() {
        let here = Scratch::new("found");
        here.write("tls.cfg", TLS_CFG);
        here.write("server.pem", "");
        here.write("server-key.pem", "");
        let found = here.source().read(Sources::default()).unwrap();
        let names: Vec<_> =
            found.settings.servers.iter().map(|profile| profile.server_name.as_deref()).collect();
        assert_eq!(names, [None, Some("example.com"), Some("*.example.com")]);
        assert_eq!(found.settings.servers[2].certificates[0].key, here.0.join("server-key.pem"));
        assert_eq!(found.settings.clients[0].ca_list, Some(here.0.join("server.pem")));
        assert_eq!(found.settings.clients[1].peer, PeerCertificate::Require);
        assert!(found.diagnostics.is_empty(), "{:?}", found.diagnostics);
    }

    #[test]
    fn a_missing_file_is_told_once_at_the_place_that_names_it() {
        let here = Scratch::new("missing");
        here.write("tls.cfg", TLS_CFG);
        here.write("server-key.pem", "");
        let wrong = here.source().read(Sources::default()).unwrap_err();
        assert_eq!(wrong.diagnostics.len(), 2, "{:?}", wrong.diagnostics);
        let line = wrong.to_string();
        assert!(line.contains("tls.cfg:2:15: cannot read") && line.contains("(and 1 more)"), "{line}");
    }

    #[test]
    fn a_key_that_everybody_can_read_is_a_warning() {
        let here = Scratch::new("open");
        here.write("tls.cfg", "[server:default]\ncertificate = both.pem\n");
        here.write("both.pem", "");
        fs::set_permissions(here.0.join("both.pem"), fs::Permissions::from_mode(0o644)).unwrap();
        let found = here.source().read(Sources::default()).unwrap();
        assert!(found.diagnostics.iter().any(|d| d.code == "open-key"), "{:?}", found.diagnostics);
    }

    #[test]
    fn what_is_wrong_is_not_put_to_use() {
        let here = Scratch::new("reload");
        let used = Cell::new(0);
        let replace = |settings: TlsSettings| -> Result<(), String> {
            used.set(used.get() + settings.servers.len());
            Ok(())
        };
        here.source().reload(&Sources::default(), replace).unwrap_err();
        here.write("tls.cfg", "[server:default]\ncertifcate = a\n");
        here.source().reload(&Sources::default(), replace).unwrap_err();
        // Nobody could connect any more.
        here.write("tls.cfg", "[client:default]\n");
        here.source().reload(&Sources::default(), replace).unwrap_err();
        assert_eq!(used.get(), 0);
        here.write("tls.cfg", "[server:default]\ncertificate = a\n");
        here.write("a", "");
        assert_eq!(here.source().reload(&Sources::default(), replace), Ok((1, 1)));
        assert_eq!(used.get(), 1);
    }

    #[test]
    fn a_listener_for_tls_needs_a_certificate_of_its_own() {
        let listen = Listen {
            transport: Transport::Tls,
            ..Listen::on(ListenHost::Address(IpAddr::from([192, 0, 2, 1])), 5061)
        };
        let here = Scratch::new("listen");
        here.write("tls.cfg", "[server:192.0.2.9:5061]\ncertificate = a\n[client:default]\n");
        here.write("a", "");
        let mut settings = here.source().read(Sources::default()).unwrap().settings;
        let found = check_listeners(std::slice::from_ref(&listen), &settings);
        assert!(found[0].message.contains("192.0.2.9:5061") && !found[0].is_error(), "{found:?}");
        settings.servers.clear();
        let found = check_listeners(&[listen], &settings);
        assert!(found[0].is_error() && found[0].help[0].contains("strowger cert ca"), "{found:?}");
        assert!(check_listeners(&[], &settings).is_empty());
    }
}
