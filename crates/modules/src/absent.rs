//! Modules and variables of Kamailio that are not here: some do nothing that would be missed, others are missed.

const NO_RPC: &str = "there is no command interface of this kind";
const DATABASES: &str =
    "SQLite, PostgreSQL and MySQL or MariaDB are there without a module: `db_url` says which";
const OTHER_DATABASES: &str =
    "databases are SQLite, PostgreSQL and MySQL or MariaDB: a `db_url` that names another one is an error";
const FUNCTIONS_ELSEWHERE: &str = "what of it can be used is part of the core and of tm";

/// Modules that mean nothing here: loading them changes nothing. What they would offer is not declared, so that a
/// script that uses it does not check.
pub(crate) static HARMLESS_MODULES: &[(&str, &str)] = &[
    ("kex", FUNCTIONS_ELSEWHERE),
    ("corex", FUNCTIONS_ELSEWHERE),
    ("tmx", FUNCTIONS_ELSEWHERE),
    ("textopsx", FUNCTIONS_ELSEWHERE),
    ("kemix", FUNCTIONS_ELSEWHERE),
    ("ctl", NO_RPC),
    ("cfg_rpc", NO_RPC),
    ("jsonrpcs", NO_RPC),
    ("jsonrpc-s", NO_RPC),
    ("mi_fifo", NO_RPC),
    ("mi_datagram", NO_RPC),
    ("mi_rpc", NO_RPC),
    ("mi_xmlrpc", NO_RPC),
    ("xmlrpc", NO_RPC),
    ("snmpstats", NO_RPC),
    ("counters", "counters are always on"),
    ("statistics", "counters are always on"),
    ("statsd", "counters are always on"),
    ("debugger", "there is nothing of the kind to debug"),
    ("db_mysql", DATABASES),
    ("db_postgres", DATABASES),
    ("db_sqlite", DATABASES),
    ("db_text", OTHER_DATABASES),
    ("db_unixodbc", OTHER_DATABASES),
    ("db_redis", OTHER_DATABASES),
    ("db_cluster", OTHER_DATABASES),
    ("db_flatstore", OTHER_DATABASES),
    ("mysql", DATABASES),
    ("postgres", DATABASES),
    ("dbtext", OTHER_DATABASES),
    ("avp", "`$avp` is part of pv"),
    ("blst", "no list of unreachable destinations is kept"),
];

/// Modules without which a configuration would do something else than it says.
pub(crate) static REFUSED_MODULES: &[(&str, &str)] = &[
    ("auth_radius", "users are in the tables of a database: load auth and auth_db"),
    ("auth_diameter", "users are in the tables of a database: load auth and auth_db"),
    ("auth_ephemeral", "users are in the tables of a database: load auth and auth_db"),
    ("auth_identity", "signatures of callers are not there yet"),
    ("auth_xkeys", "keys in headers are not there yet"),
    ("cfg_db", "settings are in this file, and nowhere else"),
    ("uid_domain", "load domain: tables of SER's kind, with user ids, are not read"),
    ("uid_auth_db", "load auth_db: tables of SER's kind, with user ids, are not read"),
    ("uid_uri_db", "load uri_db: tables of SER's kind, with user ids, are not read"),
    ("domainpolicy", "policies of federations are not there yet"),
    ("group", "groups of users are not there yet"),
    ("speeddial", "numbers of a user's own are not there yet; alias_db has those that are the same for all"),
    (
        "xhttp",
        "HTTP is spoken on WebSocket listeners alone, and answered there by itself: write \
         `listen=ws:ADDRESS:PORT` or `listen=wss:ADDRESS:PORT`, and leave xhttp and \
         event_route[xhttp:request] out",
    ),
    (
        "nathelper",
        "help for phones behind NAT by UDP is not there yet; by TCP, TLS and WebSocket none is needed: a \
         contact is reached by its connection",
    ),
    ("nat_traversal", "help for phones behind NAT is not there yet"),
    ("rtpproxy", "media relays are not there yet"),
    ("rtpengine", "media relays are not there yet"),
    ("mediaproxy", "media relays are not there yet"),
    ("sdpops", "SDP is passed on as it is; there is nothing to look into it yet"),
    ("path", "a Path is kept and followed (registrar's use_path), but not added yet"),
    ("outbound", "outbound connections are not there yet (RFC 5626)"),
    ("presence", "presence is not there yet"),
    ("presence_xml", "presence is not there yet"),
    ("presence_dialoginfo", "presence is not there yet"),
    ("pua", "presence is not there yet"),
    ("rls", "presence is not there yet"),
    ("dialog", "dialogs are not followed yet"),
    ("acc", "accounting is not there yet; xlog can write what it would"),
    ("dispatcher", "dispatching is not there yet; t_relay to fixed destinations is"),
    ("pike", "flood detection is not there yet"),
    ("ratelimit", "rate limits are not there yet"),
    ("pipelimit", "rate limits are not there yet"),
    ("htable", "shared tables are not there yet"),
    ("uac", "requests of our own are not there yet"),
    ("uac_redirect", "redirections are passed on to the caller"),
    ("avpops", "assign to $avp in the script"),
    ("cfgutils", "`$shv` and its relatives are not there yet"),
    (
        "sqlops",
        "scripts cannot ask a database by themselves yet; auth_db, alias_db, domain, permissions and uri_db do",
    ),
    ("ndb_redis", "scripts cannot ask a database by themselves yet"),
    ("http_client", "requests by HTTP are not there yet"),
    ("http_async_client", "requests by HTTP are not there yet"),
    ("siptrace", "traces are not there yet"),
    ("topoh", "topology hiding is not there yet"),
    ("topos", "topology hiding is not there yet"),
    ("enum", "ENUM is not there yet"),
    ("cfg_db", "settings are in this file, and nowhere else"),
    ("uid_domain", "load domain: tables of SER's kind, with user ids, are not read"),
    ("uid_auth_db", "load auth_db: tables of SER's kind, with user ids, are not read"),
    ("uid_uri_db", "load uri_db: tables of SER's kind, with user ids, are not read"),
    ("domainpolicy", "policies of federations are not there yet"),
    ("group", "groups of users are not there yet"),
    ("speeddial", "numbers of a user's own are not there yet; alias_db has those that are the same for all"),
    ("lcr", "least-cost routing is not there yet"),
    ("msilo", "offline messages are not there yet"),
    ("imc", "conferences of messages are not there yet"),
    ("async", "the script waits by itself where a function needs an answer from outside"),
    ("app_lua", "routes are written in this language"),
    ("app_python3", "routes are written in this language"),
    ("app_jsdt", "routes are written in this language"),
    ("app_ruby", "routes are written in this language"),
    ("app_perl", "routes are written in this language"),
    ("app_sqlang", "routes are written in this language"),
];

/// Variables that are not here.
pub(crate) static VARIABLES: &[(&str, &str)] = &[
    ("xavp", "use $avp"),
    ("xavu", "use $avp"),
    ("xavi", "use $avp"),
    ("shv", "shared variables are not there yet"),
    ("sht", "shared tables are not there yet"),
    ("ulc", "`lookup` and `registered` say what there is"),
    ("dlg", "dialogs are not followed yet"),
    ("dlg_var", "dialogs are not followed yet"),
    ("rc_socket", "the listener is $Ri and $Rp"),
    ("fs", "a request leaves by the listener that it came by, or the first that fits"),
    ("bf", "branches have no flags yet"),
    ("bF", "branches have no flags yet"),
];
