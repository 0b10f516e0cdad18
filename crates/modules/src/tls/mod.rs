//! `tls`: SIP over TLS (RFC 3261 §26.3.1, RFC 5922). It has parameters only.
//!
//! What they say becomes a [`TlsConfiguration`]: profiles with the names of files. Who opens the files makes a working
//! TLS of it. The profiles may also stand in a file of their own, Kamailio's `tls.cfg` (the parameter `config`), which
//! [`TlsProfiles::read`] reads.

mod draft;
mod profiles;
#[cfg(test)]
mod tests;

use crate::table::{Module, harmless_parameter, int_parameter, refused_parameter, str_parameter};
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::time::Duration;
use draft::{Draft, Side};
use route::{
    Catalogue, Class, Constant, DefaultValue, Diagnostic, ParameterDecl, Program, Severity, Span, ValueKind,
};

/// A handshake that takes longer than this serves nobody; larger settings are cut to it. Seconds.
const HANDSHAKE_SECS_MAX: i64 = 60;
/// Intermediate certificates between the other side's and its CA that are followed, whatever `verify_depth` says.
const CHAIN_DEPTH: i64 = 6;
/// Six hours: the keys that seal tickets are not kept longer (RFC 8446 §4.6.1 allows 7 days).
const SESSION_SECS_MAX: i64 = 21_600;

/// A text of a configuration, and where it stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// The text, without quotes.
    pub text: String,
    /// Where it stands.
    pub span: Span,
}

/// What is asked of the other side's certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsPeer {
    /// Nothing.
    #[default]
    Off,
    /// A client may have one; if it has, it must be valid.
    Request,
    /// There must be one, and it must be valid.
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

/// A certificate and its key: the names of files as they are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsCertificate {
    /// The certificate, then those that lead to its CA.
    pub chain: Written,
    /// Its private key; the same file where the configuration names none.
    pub key: Written,
}

/// What holds for some connections: a section of a `tls.cfg`, or the parameters of the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsProfile {
    /// Our address (server) or the next hop's (client) that it is for; all others if `None`.
    pub address: Option<SocketAddr>,
    /// Server: the names (SNI) that it is for, in lower case, `*.` in front for one label more; empty: all others.
    /// Client: the name that the next hop's certificate must prove instead of the domain that was asked for; at most one.
    pub names: Vec<String>,
    /// Our certificates, one for each kind of key; a client profile may have none.
    pub certificates: Vec<TlsCertificate>,
    /// The CAs that the other side's certificate may come from; those of the system if `None`.
    pub ca_list: Option<Written>,
    /// What those CAs have revoked.
    pub crl: Option<Written>,
    /// What is asked of the other side.
    pub peer: TlsPeer,
    /// The oldest and the newest version.
    pub versions: (TlsVersion, TlsVersion),
    /// Cipher suites by their OpenSSL names, separated by colons; all that are safe if `None`.
    pub cipher_list: Option<Written>,
    /// Where the configuration begins to speak of it.
    pub span: Span,
}

/// The profiles of a configuration, in the order of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsProfiles {
    /// For connections that others open.
    pub servers: Vec<TlsProfile>,
    /// For connections that this server opens.
    pub clients: Vec<TlsProfile>,
}

/// What a configuration says about TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsConfiguration {
    /// The `tls.cfg` with the profiles; they replace [`profiles`](Self::profiles), which are then empty.
    pub file: Option<Written>,
    /// The profiles that the parameters make: one server profile if there is a certificate, and one client profile.
    pub profiles: TlsProfiles,
    /// Longest time for a handshake, 1 to 60 s; 10 s.
    pub handshake_timeout: Duration,
    /// Handshakes under way at once; 4,096.
    pub handshakes_max: usize,
    /// How long a session can be resumed; zero: never; 2 h.
    pub session_lifetime: Duration,
    /// Sessions that are kept to be resumed with next hops; 4,096.
    pub client_sessions_max: usize,
}

pub(crate) static MODULE: Module = Module {
    name: "tls",
    doc: "SIP over TLS: certificates, and what is asked of the other side. TLS 1.2 and 1.3; see the guide to TLS.",
    functions: &[],
    parameters: PARAMETERS,
    variables: &[],
};

const NO_OPENSSL: &str = "TLS is rustls, not OpenSSL; it has nothing of the kind to set.";
const SEE_QUEUES: &str = "what waits to be sent is bounded by tcp_conn_wq_max and tcp_wq_max.";
const NO_ENGINE: &str =
    "keys are files; modules of hardware (HSM) are not supported: name a PEM file with private_key.";

static PARAMETERS: &[ParameterDecl] = &[
    str_parameter(
        "tls_method",
        "TLSv1.2+",
        "Versions: `TLSv1.2`, `TLSv1.2+` (and newer), `TLSv1.3`, `TLSv1.3+`. SSLv23, TLSv1+ and TLSv1.1+ mean `TLSv1.2+`; only older ones are an error.",
    ),
    str_parameter(
        "certificate",
        "",
        "The file with our certificate and those that lead to its CA (PEM). Relative to the configuration file's directory.",
    ),
    str_parameter(
        "private_key",
        "",
        "The file with the certificate's private key (PEM, not encrypted); by default the certificate's file.",
    ),
    str_parameter(
        "ca_list",
        "",
        "The file with the CAs that others' certificates may come from (PEM); by default the system's CAs.",
    ),
    refused_parameter(
        "ca_path",
        "put the CAs into one file, `cat *.pem > calist.pem`, and name it with ca_list.",
    ),
    str_parameter("crl", "", "The file with what these CAs have revoked (PEM)."),
    boolean(
        "verify_certificate",
        DefaultValue::None,
        "Whether others' certificates must be valid. As server: no, unless it says yes (a client without one is then let in); as client: yes, unless it says no.",
    ),
    boolean("require_certificate", DefaultValue::Int(0), "Whether clients must have a valid certificate."),
    str_parameter(
        "verify_client",
        "off",
        "What is asked of clients, instead of the two above: `off`, `optional` (one that is there must be valid) or `on`.",
    ),
    int_parameter(
        "verify_depth",
        (0, 100),
        CHAIN_DEPTH,
        "certificates",
        "Certificates are followed to their CA over at most 6 others, whatever is set; a smaller number is not enforced.",
    ),
    str_parameter(
        "cipher_list",
        "",
        "Cipher suites by their OpenSSL names, separated by colons; by default all that TLS 1.2 and 1.3 have and that are safe.",
    ),
    str_parameter(
        "server_name",
        "",
        "The name that the next hop's certificate must prove, and that it is asked for (SNI), instead of the domain of the URI.",
    ),
    str_parameter(
        "config",
        "",
        "A file with profiles, Kamailio's tls.cfg; the parameters above are then ignored. SIGHUP reads it again.",
    ),
    boolean(
        "session_cache",
        DefaultValue::Int(1),
        "Whether sessions can be resumed, which spares most of a handshake. See session_lifetime.",
    ),
    int_parameter(
        "session_lifetime",
        (0, SESSION_SECS_MAX),
        7_200,
        "s",
        "How long a session can be resumed, by tickets (RFC 5077, RFC 8446 section 2.2); 0: never. Not in Kamailio.",
    ),
    int_parameter(
        "client_sessions_max",
        (0, 1_000_000),
        4_096,
        "sessions",
        "Sessions that are kept to be resumed with next hops; the oldest makes room. Not in Kamailio.",
    ),
    int_parameter(
        "handshake_timeout",
        (1, HANDSHAKE_SECS_MAX),
        10,
        "s",
        "Longest time for a handshake; a connection that takes longer is closed.",
    ),
    int_parameter(
        "connection_timeout",
        (-1, 86_400),
        10,
        "s",
        "The same, as Kamailio's files have it: at most 60 are used. Idle connections live for tcp_connection_lifetime.",
    ),
    int_parameter(
        "handshakes_max",
        (1, 1_000_000),
        4_096,
        "handshakes",
        "Handshakes under way at once; further connections are closed and counted. Not in Kamailio.",
    ),
    harmless_parameter("session_id", "sessions are resumed by tickets that only this server can read."),
    harmless_parameter("send_timeout", "see tcp_send_timeout."),
    harmless_parameter("tls_log", "see `debug`."),
    harmless_parameter("tls_debug", "see `debug`."),
    harmless_parameter("tls_disable_compression", "TLS is never compressed."),
    harmless_parameter("renegotiation", "sessions are never renegotiated."),
    harmless_parameter("send_close_notify", "the end of a session is always announced."),
    harmless_parameter("con_ct_wq_max", SEE_QUEUES),
    harmless_parameter("ct_wq_max", SEE_QUEUES),
    harmless_parameter("ct_wq_blk_size", SEE_QUEUES),
    harmless_parameter("low_mem_threshold1", "connections have limits by number and by bytes."),
    harmless_parameter("low_mem_threshold2", "connections have limits by number and by bytes."),
    harmless_parameter("ssl_release_buffers", NO_OPENSSL),
    harmless_parameter("ssl_freelist_max_len", NO_OPENSSL),
    harmless_parameter("ssl_max_send_fragment", NO_OPENSSL),
    harmless_parameter("ssl_read_ahead", NO_OPENSSL),
    harmless_parameter("tls_force_run", NO_OPENSSL),
    harmless_parameter("rand_engine", NO_OPENSSL),
    harmless_parameter("init_mode", NO_OPENSSL),
    harmless_parameter("enable_shared_ctx", NO_OPENSSL),
    harmless_parameter(
        "xavp_cfg",
        "there is no $xavp; a [client:IP:PORT] of the tls.cfg says what holds for a next hop.",
    ),
    refused_parameter("event_callback", "routes are written in this language."),
    refused_parameter("engine", NO_ENGINE),
    refused_parameter("engine_config", NO_ENGINE),
    refused_parameter("engine_algorithms", NO_ENGINE),
    refused_parameter("provider", NO_ENGINE),
    refused_parameter("provider_algorithms", NO_ENGINE),
];

/// A parameter that is on or off.
const fn boolean(name: &'static str, default: DefaultValue, doc: &'static str) -> ParameterDecl {
    ParameterDecl { name, kind: ValueKind::Bool, range: None, default, unit: "", doc, class: Class::Honoured }
}

/// Functions that are not here.
pub(crate) static ABSENT: &[(&str, &str)] = &[
    (
        "is_peer_verified",
        "have the certificate required when the connection is made: require_certificate=yes in a [server:...] of the tls.cfg",
    ),
    (
        "tls_set_connect_server_id",
        "client profiles are chosen by the next hop's address: write a [client:IP:PORT] into the tls.cfg",
    ),
];

const NO_SESSION_VARIABLES: &str =
    "what a session has negotiated cannot be read yet; ask for it in the profile: tls_method, cipher_list";
const NO_PEER_VARIABLES: &str = "certificates cannot be read by scripts yet; have them verified when the connection is made (verify_client=on, ca_list)";
const NO_OWN_VARIABLES: &str =
    "our own certificate cannot be read by scripts; `strowger cert show FILE` shows it";

/// Variables that are not here.
pub(crate) static ABSENT_VARIABLES: &[(&str, &str)] = &[
    ("tls", NO_SESSION_VARIABLES),
    ("tls_version", NO_SESSION_VARIABLES),
    ("tls_description", NO_SESSION_VARIABLES),
    ("tls_cipher_info", NO_SESSION_VARIABLES),
    ("tls_cipher_bits", NO_SESSION_VARIABLES),
    ("tls_peer_server_name", NO_SESSION_VARIABLES),
    ("tls_peer_version", NO_PEER_VARIABLES),
    ("tls_peer_verified", NO_PEER_VARIABLES),
    ("tls_peer_revoked", NO_PEER_VARIABLES),
    ("tls_peer_expired", NO_PEER_VARIABLES),
    ("tls_peer_selfsigned", NO_PEER_VARIABLES),
    ("tls_peer_serial", NO_PEER_VARIABLES),
    ("tls_peer_notBefore", NO_PEER_VARIABLES),
    ("tls_peer_notAfter", NO_PEER_VARIABLES),
    ("tls_peer_subject", NO_PEER_VARIABLES),
    ("tls_peer_subject_cn", NO_PEER_VARIABLES),
    ("tls_peer_subject_locality", NO_PEER_VARIABLES),
    ("tls_peer_subject_country", NO_PEER_VARIABLES),
    ("tls_peer_subject_state", NO_PEER_VARIABLES),
    ("tls_peer_subject_organization", NO_PEER_VARIABLES),
    ("tls_peer_subject_unit", NO_PEER_VARIABLES),
    ("tls_peer_subject_uid", NO_PEER_VARIABLES),
    ("tls_peer_issuer", NO_PEER_VARIABLES),
    ("tls_peer_issuer_cn", NO_PEER_VARIABLES),
    ("tls_peer_issuer_locality", NO_PEER_VARIABLES),
    ("tls_peer_issuer_country", NO_PEER_VARIABLES),
    ("tls_peer_issuer_state", NO_PEER_VARIABLES),
    ("tls_peer_issuer_organization", NO_PEER_VARIABLES),
    ("tls_peer_issuer_unit", NO_PEER_VARIABLES),
    ("tls_peer_san_email", NO_PEER_VARIABLES),
    ("tls_peer_san_hostname", NO_PEER_VARIABLES),
    ("tls_peer_san_uri", NO_PEER_VARIABLES),
    ("tls_peer_san_ip", NO_PEER_VARIABLES),
    ("tls_peer_raw_cert", NO_PEER_VARIABLES),
    ("tls_peer_urlencoded_cert", NO_PEER_VARIABLES),
    ("tls_my_version", NO_OWN_VARIABLES),
    ("tls_my_serial", NO_OWN_VARIABLES),
    ("tls_my_subject", NO_OWN_VARIABLES),
    ("tls_my_subject_cn", NO_OWN_VARIABLES),
    ("tls_my_issuer", NO_OWN_VARIABLES),
    ("tls_my_issuer_cn", NO_OWN_VARIABLES),
    ("tls_my_san_email", NO_OWN_VARIABLES),
    ("tls_my_san_hostname", NO_OWN_VARIABLES),
    ("tls_my_san_uri", NO_OWN_VARIABLES),
    ("tls_my_san_ip", NO_OWN_VARIABLES),
    ("tls_my_raw_cert", NO_OWN_VARIABLES),
    ("tls_my_urlencoded_cert", NO_OWN_VARIABLES),
];

impl Default for TlsConfiguration {
    fn default() -> TlsConfiguration {
        TlsConfiguration {
            file: None,
            profiles: TlsProfiles { servers: Vec::new(), clients: [client_default()].into() },
            handshake_timeout: Duration::from_secs(10),
            handshakes_max: 4_096,
            session_lifetime: Duration::from_secs(7_200),
            client_sessions_max: 4_096,
        }
    }
}

/// The client profile where the configuration has none: the next hop must prove its domain to the system's CAs.
fn client_default() -> TlsProfile {
    Draft::default().profile(Side::Client, None, Span::default(), &mut Vec::new())
}

/// What `program` says about TLS; errors and notes join those that there are.
pub(crate) fn read(
    program: &Program,
    catalogue: &Catalogue,
    errors: &mut Vec<Diagnostic>,
    notes: &mut Vec<Diagnostic>,
) -> TlsConfiguration {
    let mut found = Vec::new();
    let configuration = Reader { program, catalogue }.configuration(&mut found);
    let (grave, light): (Vec<_>, Vec<_>) = found.into_iter().partition(Diagnostic::is_error);
    errors.extend(grave);
    notes.extend(light);
    configuration
}

/// Reads what one program says.
struct Reader<'p> {
    program: &'p Program,
    catalogue: &'p Catalogue,
}

impl Reader<'_> {
    fn configuration(&self, found: &mut Vec<Diagnostic>) -> TlsConfiguration {
        let seconds = |name: &str| {
            self.number(name).and_then(|number| u64::try_from(number).ok()).map(Duration::from_secs)
        };
        let count = |name: &str| self.number(name).and_then(|number| usize::try_from(number).ok());
        let default = TlsConfiguration::default();
        let resumed = self.number("session_cache") != Some(0);
        let (file, profiles) = self.profiles(found);
        TlsConfiguration {
            file,
            profiles,
            handshake_timeout: self.handshake_timeout(found).unwrap_or(default.handshake_timeout),
            handshakes_max: count("handshakes_max").unwrap_or(default.handshakes_max),
            session_lifetime: match seconds("session_lifetime") {
                _ if !resumed => Duration::ZERO,
                time => time.unwrap_or(default.session_lifetime),
            },
            client_sessions_max: count("client_sessions_max").unwrap_or(default.client_sessions_max),
        }
    }

    /// The last value that the file gives to a parameter of the module.
    fn parameter(&self, name: &str) -> Option<Written> {
        let set = self.program.modparams().iter().rev().find(|set| {
            self.catalogue.module_name(set.module) == MODULE.name
                && self.catalogue.parameter(set.id).is_some_and(|decl| decl.name == name)
        });
        set.map(|set| written(&set.value, set.span))
    }

    fn number(&self, name: &str) -> Option<i64> {
        self.parameter(name).and_then(|value| route::parse_int(value.text.as_bytes()))
    }

    fn handshake_timeout(&self, found: &mut Vec<Diagnostic>) -> Option<Duration> {
        let names = ["handshake_timeout", "connection_timeout"];
        let set = names.into_iter().find_map(|name| self.parameter(name))?;
        let wanted = route::parse_int(set.text.as_bytes())?;
        let seconds = if wanted < 0 { HANDSHAKE_SECS_MAX } else { wanted.clamp(1, HANDSHAKE_SECS_MAX) };
        if seconds != wanted {
            let message = format!("a handshake may take {seconds} s, not {wanted}");
            let help = "1 to 60 are possible; idle connections live for tcp_connection_lifetime";
            found.push(finding(Severity::Note, set.span, "handshake-time", message, help));
        }
        u64::try_from(seconds).ok().map(Duration::from_secs)
    }

    /// The file with profiles, or the profiles that the parameters make.
    fn profiles(&self, found: &mut Vec<Diagnostic>) -> (Option<Written>, TlsProfiles) {
        let mut draft = Draft::default();
        let mut first: Option<Written> = None;
        // `method` is a name of `tls_method` in files of profiles only.
        for (name, key) in draft::KEYS.iter().filter(|(name, _)| *name != "method") {
            let Some(value) = self.parameter(name) else { continue };
            if !value.text.is_empty() {
                draft.set(*key, name, value.clone(), found);
                first.get_or_insert(value);
            }
        }
        if let Some(file) = self.parameter("config").filter(|file| !file.text.is_empty()) {
            if let Some(ignored) = first {
                let message = "`config` is set: certificates and what is asked of others come from that file"
                    .to_owned();
                let help = "write this into the file, or leave `config` out";
                found.push(finding(Severity::Warning, ignored.span, "ignored-parameter", message, help));
            }
            return (Some(file), TlsProfiles::default());
        }
        let span = first.map(|value| value.span).unwrap_or_default();
        let mut servers = Vec::new();
        if draft.has_certificate() {
            servers.push(draft.nameless().profile(Side::Server, None, span, found));
        }
        let clients = [draft.profile(Side::Client, None, span, found)].into();
        (None, TlsProfiles { servers, clients })
    }
}

fn written(value: &Constant, span: Span) -> Written {
    let text = match value {
        Constant::Int(number) => number.to_string(),
        Constant::Str(text) => String::from_utf8_lossy(text).into_owned(),
        Constant::Socket(socket) => socket.host.clone(),
    };
    Written { text, span }
}

fn finding(severity: Severity, span: Span, code: &'static str, message: String, help: &str) -> Diagnostic {
    let help = if help.is_empty() { Vec::new() } else { [help.to_owned()].into() };
    Diagnostic { severity, code, message, primary: Some((span, String::new())), secondary: Vec::new(), help }
}
