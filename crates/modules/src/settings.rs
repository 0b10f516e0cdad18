//! What a configuration sets, typed and checked: listeners, names, timers, the registrar's policy.

use crate::alias_db::AliasDbSettings;
use crate::auth::AuthSettings;
use crate::auth_db::AuthDbSettings;
use crate::core::settings_table::SETTINGS;
use crate::database::{DatabaseUrl, TableNeeded};
use crate::domain::DomainSettings;
use crate::log::Level;
use crate::permissions::PermissionsSettings;
use crate::tls::TlsConfiguration;
use crate::uri_db::UriDbSettings;
use crate::usrloc::PersistenceSettings;
use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::IpAddr;
use core::time::Duration;
use engine::{Alias, Timers, Transports};
use location::{BelowMinimum, Policy};
use route::{Catalogue, Constant, Diagnostic, Program, Severity, Socket, Span, VariableId};
use sip::Transport;

/// SIP's port where none is written (RFC 3261 §19.1.2).
const DEFAULT_PORT: u16 = 5060;
/// Targets of one request where the configuration says nothing.
const BRANCHES_MAX: u16 = 31;
/// RFC 3261 §16.6 item 11: Timer C "MUST be larger than 3 minutes".
const TIMER_C_MIN: Duration = Duration::from_secs(180);

/// Where a listener shall be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenHost {
    /// This address.
    Address(IpAddr),
    /// Every address of the host (`*`).
    Any,
    /// The addresses of this interface or host name; who binds it looks it up.
    Named(String),
}

/// One `listen`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    /// The transport: UDP, TCP, TLS, WebSocket or WebSocket over TLS.
    pub transport: Transport,
    /// Where.
    pub host: ListenHost,
    /// The port.
    pub port: u16,
    /// Host and port to be told to others instead.
    pub advertise: Option<(String, u16)>,
    /// Where the configuration says so.
    pub span: Span,
}

impl Listen {
    /// A UDP listener that no configuration mentions.
    pub fn on(host: ListenHost, port: u16) -> Listen {
        Listen { transport: Transport::Udp, host, port, advertise: None, span: Span::default() }
    }

    /// Reads `PROTOCOL:ADDRESS:PORT` as a command line has it: `udp:` and `:PORT` may be left out, an IPv6 address is in
    /// brackets, and an interface's name or `*` may stand for an address. `default_port` is for UDP and TCP; TLS has
    /// 5061, WebSocket 80 and 443.
    ///
    /// # Errors
    ///
    /// What to write instead.
    pub fn parse(text: &str, default_port: u16) -> Result<Listen, &'static str> {
        const EXPECTED: &str =
            "write PROTOCOL:ADDRESS:PORT, for example udp:192.0.2.1:5060 or tls:[2001:db8::1]:5061";
        // A bare IPv6 address has no port: its colons are its own.
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Listen::on(ListenHost::Address(address), default_port));
        }
        let socket = parse_socket(text.as_bytes());
        let Some(transport) = listen_transport(&socket) else {
            return Err("SCTP is not there: write udp:, tcp:, tls:, ws: or wss:, then ADDRESS:PORT");
        };
        let host = text.rsplit_once(':').map_or(text, |(host, _)| host);
        let no_port = host == text || socket.protocol.as_deref() == Some(&*host.to_ascii_lowercase());
        let port_is_wrong = socket.port.is_none() && !text.ends_with(']') && !no_port;
        if socket.host.is_empty() || socket.host.contains(':') != text.contains('[') || port_is_wrong {
            return Err(EXPECTED);
        }
        let port = socket.port.unwrap_or(port_of(transport, default_port));
        Ok(Listen { transport, ..Listen::on(listen_host(&socket.host), port) })
    }
}

/// The answer to a REGISTER with Path (RFC 3327 §5.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PathMode {
    /// The Path is kept, and never in the answer.
    Silent,
    /// It is in the answer to a phone that supports it.
    IfSupported,
    /// A phone that does not support it is answered 420.
    #[default]
    Required,
}

/// How REGISTER and lookups go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistrarSettings {
    /// Intervals, preferences, contacts per address-of-record.
    pub policy: Policy,
    /// By how many percent, at most, the default interval is lengthened or shortened.
    pub default_expires_range_percent: u8,
    /// By how many percent, at most, a requested interval is shortened.
    pub expires_range_percent: u8,
    /// Whether an address-of-record is user and domain, or the user alone.
    pub use_domain: bool,
    /// Whether users are told apart by the case of their letters.
    pub case_sensitive: bool,
    /// Whether `lookup` makes targets of all contacts.
    pub append_branches: bool,
    /// Whether `lookup` passes over contacts that do not take the method.
    pub method_filtering: bool,
    /// Whether a Path is kept and followed.
    pub use_path: bool,
    /// What is answered to one.
    pub path_mode: PathMode,
    /// Seconds in the Retry-After of a 503; 0: none.
    pub retry_after_secs: u32,
    /// The longest URI of a contact, in bytes.
    pub contact_bytes_max: usize,
    /// The name of the `$avp` that says where a contact really is.
    pub received_avp: Option<Box<[u8]>>,
    /// The Contact parameter of the 200 that says so; empty: none.
    pub received_param: String,
}

/// What `sanity_check` checks where the script does not say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SanitySettings {
    /// Sum of the checks.
    pub checks: i64,
    /// Sum of the URIs.
    pub uris: i64,
    /// Option tags that a Proxy-Require may name.
    pub proxy_require: Vec<String>,
    /// Whether a failed check ends the script.
    pub autodrop: bool,
    /// Whether a failed check is left for the script to answer.
    pub noreply: bool,
}

/// What `options_reply` answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionsSettings {
    /// Accept.
    pub accept: String,
    /// Accept-Encoding.
    pub accept_encoding: String,
    /// Accept-Language.
    pub accept_language: String,
    /// Supported.
    pub supported: String,
}

/// Probes of idle connections by the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// How long a connection is idle before it is probed.
    pub idle: Duration,
    /// The time between two probes.
    pub interval: Duration,
    /// Probes without an answer after which a connection is dead.
    pub probes: u32,
}

/// Connections: how many, how long, how much waits for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionSettings {
    /// Connections at once, of all streams but TLS. Past it the one idle longest is closed, else the new one.
    pub max: usize,
    /// Connections by TLS at once.
    pub tls_max: usize,
    /// Connections of one address at once.
    pub per_source_max: usize,
    /// How long a connection may be idle.
    pub lifetime: Duration,
    /// How long a connection may take to be opened.
    pub connect_timeout: Duration,
    /// How long a peer may take nothing of what is sent to it.
    pub send_timeout: Duration,
    /// How long a message may take from its first to its last byte.
    pub message_timeout: Duration,
    /// Bytes that may wait to be written to one connection.
    pub write_queue_bytes_max: usize,
    /// Bytes that may wait to be written to all connections of a shard.
    pub write_queue_total_bytes_max: usize,
    /// Messages that may wait for one connection that is being opened.
    pub connect_queue_messages_max: usize,
    /// Probes of idle connections; none if `None`.
    pub keepalive: Option<Keepalive>,
    /// Whether `alias` in a Via counts over TCP (RFC 5923); the engine's [`Transports::accept_aliases`].
    pub accept_aliases: bool,
    /// Whether no connections are opened.
    pub no_connect: bool,
}

/// WebSocket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebSocketSettings {
    /// The values of Origin that are let in; all if it is empty.
    pub origins: Vec<String>,
    /// How long a connection may be silent before it is probed by a ping; never if `None`.
    pub keepalive: Option<Duration>,
}

/// Everything that a configuration sets.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where to listen, in the order of the file; empty if it does not say.
    pub listen: Vec<Listen>,
    /// The port of listeners that do not say theirs (`port=`); 5060.
    pub port: u16,
    /// Further names of this server.
    pub aliases: Vec<Alias>,
    /// What the engine must know of transports.
    pub transports: Transports,
    /// Connections.
    pub connections: ConnectionSettings,
    /// WebSocket.
    pub websocket: WebSocketSettings,
    /// How much is logged.
    pub log_level: Level,
    /// The Server header's value in responses of ours.
    pub server_header: Option<String>,
    /// The timers of transactions.
    pub timers: Timers,
    /// Whether a relayed INVITE is answered 100 at once.
    pub auto_100: bool,
    /// Targets that one request may have, 1 to 31.
    pub branches_max: u16,
    /// How often expired bindings are removed, at most.
    pub expire_interval: Duration,
    /// The registrar.
    pub registrar: RegistrarSettings,
    /// Whether responses go to the source port whatever the client asks for.
    pub force_rport: bool,
    /// Whether our Via asks for `rport`.
    pub local_rport: bool,
    /// What `sl_reply_error` answers where nothing is known: status and reason.
    pub default_reply: (u16, String),
    /// Whether a Record-Route carries the From tag.
    pub append_fromtag: bool,
    /// `sanity_check`.
    pub sanity: SanitySettings,
    /// `options_reply`.
    pub options: OptionsSettings,
    /// TLS.
    pub tls: TlsConfiguration,
    /// The databases that are used, each once; others name them by their place.
    pub databases: Vec<DatabaseUrl>,
    /// How bindings outlive the process.
    pub persistence: PersistenceSettings,
    /// Challenges and nonces.
    pub auth: AuthSettings,
    /// Users.
    pub auth_db: AuthDbSettings,
    /// Domains that are served.
    pub domain: DomainSettings,
    /// Aliases of users.
    pub alias_db: AliasDbSettings,
    /// Groups of addresses.
    pub permissions: PermissionsSettings,
    /// Checks of URIs against users.
    pub uri_db: UriDbSettings,
    /// What is worth knowing though it is no error.
    pub notes: Vec<Diagnostic>,
    pub(crate) request_uri_variable: Option<VariableId>,
}

/// Reads one program's settings and collects what is wrong with them.
pub(crate) struct Reader<'p> {
    databases: Vec<DatabaseUrl>,
    pub(crate) program: &'p Program,
    pub(crate) catalogue: Catalogue,
    errors: Vec<Diagnostic>,
    notes: Vec<Diagnostic>,
}

impl Settings {
    /// What `program` sets; the defaults for the rest.
    ///
    /// # Errors
    ///
    /// One diagnostic for each value that cannot be honoured, at its place.
    pub fn from_program(program: &Program) -> Result<Settings, Vec<Diagnostic>> {
        let mut reader = Reader {
            databases: Vec::new(),
            program,
            catalogue: crate::catalogue(),
            errors: Vec::new(),
            notes: Vec::new(),
        };
        reader.check_only_off();
        let listen = reader.listen();
        let auth = crate::auth::read(&mut reader);
        let settings = Settings {
            listen,
            port: reader.port(),
            aliases: reader.aliases(),
            transports: reader.transports(),
            connections: reader.connections(),
            websocket: reader.websocket(),
            log_level: Level::from_number(reader.setting_int("debug").unwrap_or(1)),
            server_header: reader.server_header(),
            timers: reader.timers(),
            auto_100: reader.int("tm", "auto_inv_100") != 0,
            branches_max: reader
                .setting_int("max_branches")
                .and_then(|branches| u16::try_from(branches).ok())
                .unwrap_or(BRANCHES_MAX),
            expire_interval: Duration::from_secs(reader.unsigned("usrloc", "timer_interval").into()),
            registrar: reader.registrar(),
            force_rport: reader.setting_int("force_rport") == Some(1),
            local_rport: reader.setting_int("local_rport") == Some(1),
            default_reply: reader.default_reply(),
            append_fromtag: reader.int("rr", "append_fromtag") != 0,
            sanity: reader.sanity(),
            options: reader.options(),
            tls: crate::tls::read(program, &reader.catalogue, &mut reader.errors, &mut reader.notes),
            persistence: crate::usrloc::read(&mut reader),
            auth_db: crate::auth_db::read(&mut reader, &auth.algorithms),
            auth,
            domain: crate::domain::read(&mut reader),
            alias_db: crate::alias_db::read(&mut reader),
            permissions: crate::permissions::read(&mut reader),
            uri_db: crate::uri_db::read(&mut reader),
            databases: core::mem::take(&mut reader.databases),
            request_uri_variable: reader.catalogue.variable_named("ru"),
            notes: Vec::new(),
        };
        if reader.errors.is_empty() {
            Ok(Settings { notes: reader.notes, ..settings })
        } else {
            Err(reader.errors)
        }
    }
}

impl Settings {
    /// The tables that are needed of the databases.
    #[must_use]
    pub fn tables_needed(&self) -> Vec<TableNeeded> {
        [
            self.persistence.tables_needed(),
            self.auth_db.tables_needed(),
            self.domain.tables_needed(),
            self.alias_db.tables_needed(),
            self.permissions.tables_needed(),
            self.uri_db.tables_needed(),
        ]
        .concat()
    }
}

/// The timers that `program` sets.
///
/// # Errors
///
/// As [`Settings::from_program`].
pub fn timers(program: &Program) -> Result<Timers, Vec<Diagnostic>> {
    Settings::from_program(program).map(|settings| settings.timers)
}

impl Reader<'_> {
    pub(crate) fn error(&mut self, span: Span, code: &'static str, message: String, help: &str) {
        self.errors.push(diagnostic(Severity::Error, span, code, message, help));
    }

    pub(crate) fn note(&mut self, span: Span, code: &'static str, message: String, help: &str) {
        self.notes.push(diagnostic(Severity::Note, span, code, message, help));
    }

    pub(crate) fn settings(&self, name: &str) -> impl Iterator<Item = (&Constant, Span)> {
        let wanted = self.catalogue.settings().iter().position(|decl| decl.name == name);
        self.program
            .settings()
            .iter()
            .filter(move |setting| Some(usize::from(setting.id.0)) == wanted)
            .map(|setting| (&setting.value, setting.span))
    }

    pub(crate) fn setting_int(&self, name: &str) -> Option<i64> {
        self.settings(name).last().and_then(|(value, _)| value.as_int())
    }

    /// Settings that can be honoured only when they are off.
    fn check_only_off(&mut self) {
        let mut found = Vec::new();
        for setting in self.program.settings() {
            let Some(known) = SETTINGS.get(usize::from(setting.id.0)) else { continue };
            let on = match &setting.value {
                Constant::Int(value) => *value != 0,
                Constant::Str(text) => !matches!(text.as_slice(), b"" | b"0" | b"no" | b"off" | b"false"),
                Constant::Socket(_) => true,
            };
            if known.only_off && on {
                found.push((setting.span, known.decl));
            }
        }
        for (span, decl) in found {
            self.error(span, "refused-setting", format!("`{}` cannot be honoured", decl.name), decl.doc);
        }
    }

    fn port(&self) -> u16 {
        self.setting_int("port").and_then(|port| u16::try_from(port).ok()).unwrap_or(DEFAULT_PORT)
    }

    fn listen(&mut self) -> Vec<Listen> {
        let port = self.port();
        let default = port;
        let everywhere = self.advertised();
        let sockets: Vec<(Constant, Span)> =
            self.settings("listen").map(|(value, span)| (value.clone(), span)).collect();
        let mut listen = Vec::new();
        for (value, span) in sockets {
            let socket = match value {
                Constant::Socket(socket) => socket,
                Constant::Str(text) => parse_socket(&text),
                Constant::Int(_) => {
                    self.error(span, "bad-listen", "an address is expected".to_owned(), "udp:127.0.0.1:5060");
                    continue;
                }
            };
            let Some(transport) = listen_transport(&socket) else {
                let message = format!("`{}` is not there", socket.protocol.unwrap_or_default());
                self.error(span, "bad-listen", message, "listen on udp:, tcp:, tls:, ws: or wss:");
                continue;
            };
            if let Some(setting) = self.off(transport) {
                let message = format!("nothing is listened on here: `{setting}` says so");
                self.notes.push(diagnostic(
                    Severity::Note,
                    span,
                    "unused-listen",
                    message,
                    "leave the line out",
                ));
                continue;
            }
            let own_port = socket.port.unwrap_or(port_of(transport, port));
            let advertise = socket.advertise.map(|(host, port)| (host, port.unwrap_or(own_port)));
            let everywhere = everywhere.clone().map(|(host, port)| match transport {
                Transport::Udp | Transport::Tcp => (host, port.unwrap_or(default)),
                // One port cannot be that of all of them.
                _ => (host, own_port),
            });
            listen.push(Listen {
                transport,
                host: listen_host(&socket.host),
                port: own_port,
                advertise: advertise.or(everywhere),
                span,
            });
        }
        listen
    }

    /// The setting that says that a transport is not listened on.
    fn off(&self, transport: Transport) -> Option<&'static str> {
        let is = |name: &str, value: i64| self.setting_int(name) == Some(value);
        let secure = matches!(transport, Transport::Tls | Transport::Wss);
        match transport {
            Transport::Udp => None,
            _ if is("disable_tcp", 1) => Some("disable_tcp"),
            _ if secure && is("enable_tls", 0) => Some("enable_tls"),
            _ if secure && is("tls_enable", 0) => Some("tls_enable"),
            _ if secure && is("disable_tls", 1) => Some("disable_tls"),
            _ if secure && is("tls_disable", 1) => Some("tls_disable"),
            _ => None,
        }
    }

    /// The value of a setting: what the file says last, else its default.
    fn number(&self, name: &str) -> u64 {
        let default =
            self.catalogue.settings().iter().find(|decl| decl.name == name).map(|decl| decl.default);
        let default = if let Some(route::DefaultValue::Int(value)) = default { value } else { 0 };
        u64::try_from(self.setting_int(name).unwrap_or(default)).unwrap_or(0)
    }

    fn count(&self, name: &str) -> usize {
        usize::try_from(self.number(name)).unwrap_or(usize::MAX)
    }

    fn seconds(&self, name: &str) -> Duration {
        Duration::from_secs(self.number(name))
    }

    fn connections(&self) -> ConnectionSettings {
        let keepalive = Keepalive {
            idle: self.seconds("tcp_keepidle"),
            interval: self.seconds("tcp_keepintvl"),
            probes: u32::try_from(self.number("tcp_keepcnt")).unwrap_or(u32::MAX),
        };
        ConnectionSettings {
            max: self.count("tcp_max_connections"),
            tls_max: self.count("tls_max_connections"),
            per_source_max: self.count("tcp_max_connections_per_source"),
            lifetime: self.seconds("tcp_connection_lifetime"),
            connect_timeout: self.seconds("tcp_connect_timeout"),
            send_timeout: self.seconds("tcp_send_timeout"),
            message_timeout: self.seconds("tcp_msg_read_timeout"),
            write_queue_bytes_max: self.count("tcp_conn_wq_max"),
            write_queue_total_bytes_max: self.count("tcp_wq_max"),
            connect_queue_messages_max: self.count("tcp_connect_queue_max"),
            keepalive: (self.number("tcp_keepalive") != 0).then_some(keepalive),
            accept_aliases: self.number("tcp_accept_aliases") != 0,
            no_connect: self.number("tcp_no_connect") != 0,
        }
    }

    fn transports(&mut self) -> Transports {
        let written = self.settings("udp_mtu_try_proto").last();
        let written = written.map(|(value, span)| (value.as_str().unwrap_or("").to_ascii_lowercase(), span));
        let long_transport = match &written {
            None => Some(Transport::Tcp),
            Some((name, span)) => match transport_named(name) {
                Some(Transport::Udp) => None,
                Some(transport @ (Transport::Tcp | Transport::Tls)) => Some(transport),
                _ => {
                    let message = format!("`{name}` is nothing that a long request could take");
                    self.error(*span, "bad-protocol", message, "udp_mtu_try_proto is TCP, TLS or UDP");
                    None
                }
            },
        };
        Transports {
            datagram_bytes_max: self.count("udp_mtu"),
            long_transport,
            accept_aliases: self.number("tcp_accept_aliases") != 0,
        }
    }

    fn websocket(&self) -> WebSocketSettings {
        let list = self.text("websocket", "origins");
        let origins = list.split(',').map(str::trim).filter(|origin| !origin.is_empty());
        let timeout = Duration::from_secs(self.unsigned("websocket", "keepalive_timeout").into());
        WebSocketSettings {
            origins: origins.map(str::to_owned).collect(),
            keepalive: (self.int("websocket", "keepalive_mechanism") != 0).then_some(timeout),
        }
    }

    /// What all listeners advertise that say nothing else: host, and port if that is set too.
    fn advertised(&self) -> Option<(String, Option<u16>)> {
        let host = match self.settings("advertised_address").last()?.0 {
            Constant::Str(text) => String::from_utf8_lossy(text).into_owned(),
            Constant::Socket(socket) => socket.host.clone(),
            Constant::Int(_) => return None,
        };
        let advertised = self.setting_int("advertised_port").and_then(|port| u16::try_from(port).ok());
        Some((host, advertised))
    }

    fn aliases(&mut self) -> Vec<Alias> {
        let names = ["alias", "domain"];
        let values: Vec<Socket> = names
            .iter()
            .flat_map(|name| self.settings(name))
            .filter_map(|(value, _)| match value {
                Constant::Socket(socket) => Some(socket.clone()),
                Constant::Str(text) => Some(parse_socket(text)),
                Constant::Int(_) => None,
            })
            .collect();
        let alias = |socket: Socket| Alias {
            transport: socket.protocol.as_deref().and_then(transport_named),
            host: socket.host,
            port: socket.port,
        };
        values.into_iter().map(alias).collect()
    }

    fn server_header(&mut self) -> Option<String> {
        if self.setting_int("server_signature") == Some(0) {
            return None;
        }
        let set = self
            .settings("server_header")
            .last()
            .map(|(value, span)| (value.as_str().map(str::to_owned), span));
        let Some((line, span)) = set else { return Some("strowger".to_owned()) };
        let line = line.unwrap_or_default();
        let value = match line.split_once(':') {
            Some((name, value)) if name.trim().eq_ignore_ascii_case("Server") => value.trim(),
            _ => line.trim(),
        };
        if value.chars().any(char::is_control) {
            self.error(
                span,
                "bad-header",
                "a header is one line".to_owned(),
                "server_header=\"Server: NAME\"",
            );
            return None;
        }
        (!value.is_empty()).then(|| value.to_owned())
    }

    fn default_reply(&mut self) -> (u16, String) {
        let reason = self.text("sl", "default_reason");
        if reason.chars().any(char::is_control) {
            let span = self.place("sl", "default_reason").unwrap_or_default();
            self.error(span, "bad-reason", "a reason is one line".to_owned(), "leave control characters out");
        }
        (u16::try_from(self.unsigned("sl", "default_code")).unwrap_or(500), reason)
    }

    /// The value of a module's parameter: what the file says last, else its default.
    pub(crate) fn int(&self, module: &str, name: &str) -> i64 {
        match self.parameter(module, name) {
            (Some(Constant::Int(value)), _) => value,
            (Some(Constant::Str(text)), default) => route::parse_int(&text).unwrap_or(default),
            (_, default) => default,
        }
    }

    pub(crate) fn unsigned(&self, module: &str, name: &str) -> u32 {
        u32::try_from(self.int(module, name)).unwrap_or(0)
    }

    pub(crate) fn text(&self, module: &str, name: &str) -> String {
        let found = self
            .catalogue
            .parameters()
            .find(|(id, decl)| self.catalogue.module_name(*id) == module && decl.name == name);
        match (self.parameter(module, name).0, found.map(|(_, decl)| decl.default)) {
            (Some(Constant::Str(text)), _) => String::from_utf8_lossy(&text).into_owned(),
            (Some(Constant::Int(value)), _) => value.to_string(),
            (_, Some(route::DefaultValue::Str(text))) => text.to_owned(),
            _ => String::new(),
        }
    }

    fn parameter(&self, module: &str, name: &str) -> (Option<Constant>, i64) {
        let mut all = self.catalogue.parameters().enumerate();
        let found =
            all.find(|(_, (id, decl))| self.catalogue.module_name(*id) == module && decl.name == name);
        let Some((place, (_, decl))) = found else { return (None, 0) };
        let default = if let route::DefaultValue::Int(value) = decl.default { value } else { 0 };
        let id = route::ParameterId(u16::try_from(place).unwrap_or(u16::MAX));
        (self.program.modparam(id).map(|set| set.value.clone()), default)
    }

    /// The database that a module's parameter names, by its place among [`Settings::databases`]; `None` for an empty URL.
    pub(crate) fn database(&mut self, module: &str, parameter: &str) -> Option<u16> {
        let url = self.text(module, parameter);
        if url.is_empty() {
            return None;
        }
        let known = self.databases.iter().position(|known| known.0 == url);
        let place = known.unwrap_or_else(|| {
            self.databases.push(DatabaseUrl(url));
            self.databases.len() - 1
        });
        u16::try_from(place).ok()
    }

    /// Whether the configuration loads a module.
    pub(crate) fn loads(&self, module: &str) -> bool {
        self.catalogue.module(module).is_some_and(|id| self.program.loads(id))
    }

    /// The constant texts that calls of these functions have as argument number `at`, each once.
    pub(crate) fn called_texts(&self, functions: &[&str], at: usize) -> Vec<String> {
        let mut texts: Vec<String> = Vec::new();
        for call in self.program.calls() {
            let named =
                self.catalogue.function(call.function).is_some_and(|decl| functions.contains(&decl.name));
            let text = call.texts.get(at).and_then(Option::as_deref).map(String::from_utf8_lossy);
            if let Some(text) = text.filter(|text| named && !texts.iter().any(|known| known == text)) {
                texts.push(text.into_owned());
            }
        }
        texts
    }

    /// Whether the file sets a parameter, and where.
    pub(crate) fn place(&self, module: &str, name: &str) -> Option<Span> {
        self.program
            .modparams()
            .iter()
            .rev()
            .find(|set| {
                self.catalogue.module_name(set.module) == module
                    && self.catalogue.parameter(set.id).is_some_and(|decl| decl.name == name)
            })
            .map(|set| set.span)
    }

    /// The constant texts that calls of these functions have as argument number `at`, and where the calls are.
    pub(crate) fn call_places(&self, functions: &[&str], at: usize) -> Vec<(String, Span)> {
        let calls = self.program.calls().iter().filter(|call| {
            self.catalogue.function(call.function).is_some_and(|decl| functions.contains(&decl.name))
        });
        let text = |call: &route::Call| {
            let text = call.texts.get(at).and_then(Option::as_deref)?;
            Some((String::from_utf8_lossy(text).into_owned(), call.span))
        };
        calls.filter_map(text).collect()
    }

    /// Whether the file calls a function.
    pub(crate) fn calls(&self, function: &str) -> bool {
        let named = |call: &route::Call| {
            self.catalogue.function(call.function).is_some_and(|decl| decl.name == function)
        };
        self.program.calls().iter().any(named)
    }

    fn millis(&self, name: &str) -> Option<Duration> {
        self.place("tm", name).map(|_| Duration::from_millis(self.unsigned("tm", name).into()))
    }

    fn timers(&mut self) -> Timers {
        let mut timers = self.millis("retr_timer1").map_or_else(Timers::default, Timers::with_t1);
        if let Some(t2) = self.millis("retr_timer2") {
            timers.t2 = t2;
        }
        if let Some(t4) = self.millis("wt_timer") {
            timers.t4 = t4;
        }
        if let Some(final_response) = self.millis("fr_timer") {
            timers.timer_b = final_response;
            timers.timer_f = final_response;
        }
        if let Some(ringing) = self.millis("fr_inv_timer") {
            timers.timer_c = ringing;
            if ringing <= TIMER_C_MIN
                && let Some(span) = self.place("tm", "fr_inv_timer")
            {
                let message = "a ringing call is given up before three minutes".to_owned();
                let help = "RFC 3261 section 16.6 item 11 asks for more than 180000 (ms)";
                self.notes.push(diagnostic(Severity::Note, span, "short-timer-c", message, help));
            }
        }
        if timers.t2 < timers.t1 {
            let span = self.place("tm", "retr_timer2").or_else(|| self.place("tm", "retr_timer1"));
            self.error(
                span.unwrap_or_default(),
                "bad-timer",
                "the longest interval between retransmissions is shorter than the first".to_owned(),
                "retr_timer2 must be at least retr_timer1",
            );
        }
        timers
    }

    fn registrar(&mut self) -> RegistrarSettings {
        let unsigned = |name: &str| self.unsigned("registrar", name);
        let flag = |name: &str| self.int("registrar", name) != 0;
        let policy = Policy {
            default_expires: unsigned("default_expires"),
            min_expires: unsigned("min_expires"),
            max_expires: unsigned("max_expires"),
            default_q: u16::try_from(unsigned("default_q")).unwrap_or(0),
            max_contacts: unsigned("max_contacts") as usize,
            below_minimum: if flag("min_expires_mode") { BelowMinimum::Refuse } else { BelowMinimum::Raise },
            ..Policy::default()
        };
        let settings = RegistrarSettings {
            policy,
            default_expires_range_percent: u8::try_from(unsigned("default_expires_range")).unwrap_or(0),
            expires_range_percent: u8::try_from(unsigned("expires_range")).unwrap_or(0),
            use_domain: self.int("usrloc", "use_domain") != 0,
            case_sensitive: flag("case_sensitive"),
            append_branches: flag("append_branches"),
            method_filtering: flag("method_filtering"),
            use_path: flag("use_path"),
            path_mode: match unsigned("path_mode") {
                0 => PathMode::Silent,
                1 => PathMode::IfSupported,
                _ => PathMode::Required,
            },
            retry_after_secs: unsigned("retry_after"),
            contact_bytes_max: unsigned("contact_max_size") as usize,
            received_avp: avp_name(&self.text("registrar", "received_avp")),
            received_param: self.text("registrar", "received_param"),
        };
        self.check_registrar(&settings);
        settings
    }

    fn check_registrar(&mut self, settings: &RegistrarSettings) {
        let policy = &settings.policy;
        if policy.max_expires != 0 && policy.max_expires < policy.min_expires {
            let span =
                self.place("registrar", "max_expires").or_else(|| self.place("registrar", "min_expires"));
            self.error(
                span.unwrap_or_default(),
                "bad-interval",
                "the longest interval is shorter than the shortest".to_owned(),
                "max_expires must be at least min_expires, or 0",
            );
        }
        let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"-.!%*_+`'~".contains(&byte);
        if !settings.received_param.bytes().all(is_token) {
            let span = self.place("registrar", "received_param").unwrap_or_default();
            self.error(
                span,
                "bad-name",
                "this is no name of a parameter".to_owned(),
                "letters, digits and `-`",
            );
        }
        let avp = self.text("registrar", "received_avp");
        if !avp.is_empty() && settings.received_avp.is_none() {
            let span = self.place("registrar", "received_avp").unwrap_or_default();
            self.error(span, "bad-name", "this is no `$avp`".to_owned(), "write it as \"$avp(rcv)\"");
        }
    }

    fn sanity(&self) -> SanitySettings {
        let list = self.text("sanity", "proxy_require");
        let tags = list.split(',').map(str::trim).filter(|tag| !tag.is_empty());
        SanitySettings {
            checks: self.int("sanity", "default_checks"),
            uris: self.int("sanity", "uri_checks"),
            proxy_require: tags.map(str::to_owned).collect(),
            autodrop: self.int("sanity", "autodrop") != 0,
            noreply: self.int("sanity", "noreply") != 0,
        }
    }

    fn options(&mut self) -> OptionsSettings {
        crate::siputils::check_outputs(self);
        let mut text = |name: &str| {
            let value = self.text("siputils", name);
            if value.chars().any(char::is_control) {
                let span = self.place("siputils", name).unwrap_or_default();
                self.error(
                    span,
                    "bad-header",
                    "a header is one line".to_owned(),
                    "leave control characters out",
                );
            }
            value
        };
        OptionsSettings {
            accept: text("options_accept"),
            accept_encoding: text("options_accept_encoding"),
            accept_language: text("options_accept_language"),
            supported: text("options_support"),
        }
    }
}

fn diagnostic(severity: Severity, span: Span, code: &'static str, message: String, help: &str) -> Diagnostic {
    Diagnostic {
        severity,
        code,
        message,
        primary: Some((span, String::new())),
        secondary: Vec::new(),
        help: [help.to_owned()].into(),
    }
}

/// The name in `$avp(name)`, `$avp(s:name)`, or alone.
pub(crate) fn avp_name(text: &str) -> Option<Box<[u8]>> {
    let name = text.strip_prefix("$avp(").and_then(|rest| rest.strip_suffix(')')).unwrap_or(text);
    let plain = !name.is_empty() && !name.contains(['$', '(', ')']);
    plain.then(|| name.as_bytes().into())
}

fn transport_named(name: &str) -> Option<Transport> {
    match name {
        "udp" => Some(Transport::Udp),
        "tcp" => Some(Transport::Tcp),
        "tls" => Some(Transport::Tls),
        "sctp" => Some(Transport::Sctp),
        "ws" => Some(Transport::Ws),
        "wss" => Some(Transport::Wss),
        _ => None,
    }
}

/// What a `listen` asks for; `None` for what cannot be listened on.
fn listen_transport(socket: &Socket) -> Option<Transport> {
    let transport = transport_named(socket.protocol.as_deref().unwrap_or("udp"))?;
    (transport != Transport::Sctp).then_some(transport)
}

/// The port of a listener that names none; `port` is that of UDP and TCP.
fn port_of(transport: Transport, port: u16) -> u16 {
    match transport {
        Transport::Udp | Transport::Tcp => port,
        other => other.default_port(),
    }
}

fn listen_host(host: &str) -> ListenHost {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    match bare.parse::<IpAddr>() {
        Ok(address) => ListenHost::Address(address),
        Err(_) if bare == "*" => ListenHost::Any,
        Err(_) => ListenHost::Named(bare.to_owned()),
    }
}

/// `[proto:]host[:port]` that was written as a string.
fn parse_socket(text: &[u8]) -> Socket {
    let text = String::from_utf8_lossy(text);
    let (protocol, rest) = match text.split_once(':') {
        Some((protocol, rest)) if transport_named(&protocol.to_ascii_lowercase()).is_some() => {
            (Some(protocol.to_ascii_lowercase()), rest)
        }
        _ => (None, &*text),
    };
    let (host, port) = crate::uri_parts::split_hostport(rest.as_bytes());
    let bare = host.strip_prefix(b"[").and_then(|host| host.strip_suffix(b"]")).unwrap_or(host);
    Socket {
        protocol,
        host: String::from_utf8_lossy(bare).into_owned(),
        port: port.and_then(crate::uri_parts::decimal).and_then(|port| u16::try_from(port).ok()),
        ..Socket::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_the_command_line_are_read() {
        let read = |text| Listen::parse(text, 5060).map(|listen| (listen.host, listen.port));
        let transport = |text| Listen::parse(text, 5060).map(|listen| listen.transport);
        let address = |text: &str| ListenHost::Address(text.parse().unwrap());
        for (text, host, port) in [
            ("udp:192.0.2.1:5070", address("192.0.2.1"), 5070),
            ("192.0.2.1:5070", address("192.0.2.1"), 5070),
            ("udp:192.0.2.1", address("192.0.2.1"), 5060),
            ("192.0.2.1", address("192.0.2.1"), 5060),
            ("udp:[2001:db8::1]:5070", address("2001:db8::1"), 5070),
            ("[2001:db8::1]", address("2001:db8::1"), 5060),
            ("2001:db8::1", address("2001:db8::1"), 5060),
            ("udp:eth0:5070", ListenHost::Named("eth0".to_owned()), 5070),
            ("udp:*:5060", ListenHost::Any, 5060),
            ("tcp:192.0.2.1", address("192.0.2.1"), 5060),
            ("tls:192.0.2.1", address("192.0.2.1"), 5061),
            ("TLS:[2001:db8::1]:5071", address("2001:db8::1"), 5071),
            ("ws:eth0", ListenHost::Named("eth0".to_owned()), 80),
            ("wss:*", ListenHost::Any, 443),
            ("wss:*:8443", ListenHost::Any, 8443),
        ] {
            assert_eq!(read(text), Ok((host, port)), "{text}");
        }
        assert_eq!(transport("192.0.2.1"), Ok(Transport::Udp));
        assert_eq!(transport("tcp:192.0.2.1:5060"), Ok(Transport::Tcp));
        assert_eq!(transport("wss:192.0.2.1:8443"), Ok(Transport::Wss));
        for wrong in [
            "",
            "udp:",
            "sctp:192.0.2.1:5060",
            "tls:",
            "tcp:192.0.2.1:x",
            "udp:192.0.2.1:70000",
            "udp:192.0.2.1:x",
            "udp:2001:db8::1:5060",
        ] {
            assert!(read(wrong).is_err(), "{wrong}: {:?}", read(wrong));
        }
    }
}
