//! How the load reaches the server: transports, connections and TLS, from options to [`Links`].
//!
//! What files say is read once ([`TlsFiles::read`]); the rest is pure.

use super::options::LoadArgs;
use super::values::TargetName;
use super::workload::Given;
use crate::certs::{Authority, Files, KeyKind, Name};
use crate::spec::{Close, Connections, Link, Links, OwnCertificate, Tls, TlsMode, TlsVersion, Transport};
use clap::Args;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Longest file of authorities, bytes.
const AUTHORITIES_BYTES_MAX: u64 = 4 << 20;

/// Transports and their connections.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Connections")]
pub(super) struct LinkArgs {
    /// Transport of callers and callees [default: the target's, as in sip:HOST;transport=tcp, or udp]
    #[arg(long, value_enum, value_name = "NAME", help_heading = "Target")]
    pub transport: Option<Transport>,

    /// Transport of the callers, where it is another one
    #[arg(long, value_enum, value_name = "NAME")]
    pub caller_transport: Option<Transport>,

    /// Transport of the callees, where it is another one
    #[arg(long, value_enum, value_name = "NAME")]
    pub callee_transport: Option<Transport>,

    /// Where the server listens for the callees' registrations [default: the target; with another transport than the
    /// callers', that transport's port there]
    #[arg(long, value_name = "HOST:PORT")]
    pub callee_target: Option<TargetName>,

    /// The callers' connections: single, pool:N, per-call or per-transaction
    ///
    /// single: one for each thread. pool:N: N (1 to 10000), shared by the threads. per-call: one for each operation;
    /// its set-up is part of the latency. per-transaction: one for the INVITE with its ACK, another for the BYE.
    #[arg(long, value_name = "HOW", default_value_t = Connections::Single)]
    pub caller_connections: Connections,

    /// The callees' connections, which the server opens: single, pool:N, per-call or per-transaction
    ///
    /// single: all callees of a thread have one contact. pool:N: they have N contacts, on ports of their own. per-call,
    /// per-transaction: as many contacts as there are users (at most 1024 in a thread), and the callee closes the connection
    /// when its calls, or transactions, are over. Over WebSocket the callees open the connections: single or pool:N.
    #[arg(long, value_name = "HOW", default_value_t = Connections::Single)]
    pub callee_connections: Connections,

    /// Who closes connections of single calls or transactions: caller (sipstone) or server (sipstone waits for it)
    #[arg(long, value_enum, value_name = "WHO", default_value_t = Close::Caller)]
    pub close: Close,
}

/// TLS.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "TLS")]
pub(super) struct TlsArgs {
    /// TLS handshakes: full, mutual (both ends show certificates) or reuse (sessions are resumed)
    ///
    /// They are counted: a full or mutual run with any resumed handshake, and a reuse run with under 99 % of them, is
    /// invalid (exit code 3).
    #[arg(long, value_enum, value_name = "MODE", default_value_t = TlsMode::Full)]
    pub tls: TlsMode,

    /// The only version of TLS: 1.2 or 1.3 [default: both]
    #[arg(long, value_enum, value_name = "VERSION")]
    pub tls_version: Option<TlsVersion>,

    /// The only cipher suite, by its registered name, as TLS_AES_128_GCM_SHA256 [default: all]
    #[arg(long, value_name = "SUITE")]
    pub tls_cipher: Option<String>,

    /// Kind of key of sipstone's own certificates
    #[arg(long, value_enum, value_name = "KIND", default_value_t = KeyKind::EcdsaP256)]
    pub tls_key: KeyKind,

    /// Verify the server against the authorities in this file (PEM) [default: it is not verified, unless --tls-out]
    ///
    /// Without it the server may show any certificate, as a server in a laboratory does; its signature is verified all
    /// the same, so that the handshake costs what it costs.
    #[arg(long, value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,

    /// Keep an authority in this directory (made if it is not there), with a certificate for the server: ca.pem, server.pem,
    /// server.key; sipstone's own certificates are issued by it, and the server is verified against it
    #[arg(long, value_name = "DIR", conflicts_with = "tls_ca")]
    pub tls_out: Option<PathBuf>,
}

impl LoadArgs {
    /// The callers' transport.
    pub(super) fn caller_transport(&self) -> Transport {
        let links = &self.links;
        links.caller_transport.or(links.transport).or(self.target.transport).unwrap_or_default()
    }

    /// The callees'.
    fn callee_transport(&self) -> Transport {
        let links = &self.links;
        links.callee_transport.or(links.transport).or(self.target.transport).unwrap_or_default()
    }
}

/// What the files say that the options name, and what was looked up.
#[derive(Clone, Debug, Default)]
pub(super) struct TlsFiles {
    /// Certificates of authorities, PEM.
    pub(super) authorities: Option<String>,
    /// Our own certificate.
    pub(super) own: Option<OwnCertificate>,
    /// Where `--callee-target` leads.
    pub(super) callee_target: Option<SocketAddr>,
}

impl TlsFiles {
    /// Reads them, and makes the certificates of `--tls-out`.
    ///
    /// # Errors
    /// A file cannot be read or written; or the target of the callees cannot be found.
    pub(super) fn read(load: &LoadArgs, server: IpAddr, sources: &[IpAddr]) -> Result<TlsFiles, String> {
        let callee = load.links.callee_target.as_ref();
        let mut files = TlsFiles {
            callee_target: callee.map(|target| target.resolve(load.callee_transport())).transpose()?,
            ..TlsFiles::default()
        };
        if let Some(path) = &load.tls.tls_ca {
            files.authorities = Some(authorities(path)?);
        }
        if let Some(folder) = &load.tls.tls_out {
            let server = server_names(load, server);
            (files.authorities, files.own) = certificates(folder, load.tls.tls_key, &server, sources)?;
        }
        Ok(files)
    }
}

fn authorities(path: &Path) -> Result<String, String> {
    let size = fs::metadata(path).map_or(0, |facts| facts.len());
    if size > AUTHORITIES_BYTES_MAX {
        return Err(format!("--tls-ca {}: longer than 4 MB is no list of authorities", path.display()));
    }
    let text = fs::read_to_string(path).map_err(|error| format!("--tls-ca {}: {error}", path.display()))?;
    crate::net::stream::tls::roots(&text).map_err(|why| format!("--tls-ca {}: {why}", path.display()))?;
    Ok(text)
}

/// TLS of a server of ours: the null server.
///
/// # Errors
/// As [`TlsFiles::read`].
pub(super) fn server_tls(args: &TlsArgs, address: IpAddr) -> Result<Tls, String> {
    let (mut authorities, mut own) = (args.tls_ca.as_deref().map(self::authorities).transpose()?, None);
    if let Some(folder) = &args.tls_out {
        let name = [Name::Address(address)];
        let (known, _) = certificates(folder, args.tls_key, &name, &[address])?;
        let files = Files::of(folder);
        let read = |path: &Path| {
            fs::read_to_string(path).map_err(|error| format!("{} cannot be read: {error}", path.display()))
        };
        own = Some(OwnCertificate { chain: read(&files.server_chain)?, key: read(&files.server_key)? });
        authorities = known;
    }
    Ok(Tls {
        mode: args.tls,
        version: args.tls_version,
        cipher: args.tls_cipher.clone(),
        key: args.tls_key,
        server_name: None,
        authorities,
        own,
    })
}

/// What the server must be able to prove: the names by which it is called.
fn server_names(load: &LoadArgs, server: IpAddr) -> Vec<Name> {
    let mut names = vec![Name::of_host(&load.target.host), Name::Address(server)];
    names.extend(load.domain.as_deref().map(Name::of_host));
    names.sort_by_key(ToString::to_string);
    names.dedup();
    names
}

type Certificates = (Option<String>, Option<OwnCertificate>);

/// Opens or makes the authority, and sees to the server's files and our own certificate.
fn certificates(
    folder: &Path,
    key: KeyKind,
    server: &[Name],
    sources: &[IpAddr],
) -> Result<Certificates, String> {
    let failed = |error: &dyn std::fmt::Display| format!("--tls-out {}: {error}", folder.display());
    fs::create_dir_all(folder).map_err(|error| failed(&error))?;
    let authority = Authority::open_or_create(folder, key).map_err(|error| failed(&error))?;
    let files = Files::of(folder);
    if !(files.server_chain.exists() && files.server_key.exists()) {
        let issued = authority.issue(server).map_err(|error| failed(&error))?;
        write(&files.server_chain, issued.chain_pem(), 0o644).map_err(|error| failed(&error))?;
        write(&files.server_key, issued.key_pem(), 0o600).map_err(|error| failed(&error))?;
    }
    let mut names: Vec<Name> = sources.iter().copied().map(Name::Address).collect();
    names.push(Name::Dns("sipstone".into()));
    names.truncate(crate::certs::NAMES_MAX);
    let issued = authority.issue(&names).map_err(|error| failed(&error))?;
    let own = OwnCertificate { chain: issued.chain_pem().into(), key: issued.key_pem().into() };
    Ok((Some(authority.pem().into()), Some(own)))
}

/// Writes a file that nobody else may have prepared: one that is there already is replaced.
fn write(path: &Path, text: &str, mode: u32) -> std::io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?.write_all(text.as_bytes())
}

/// The links of the options.
///
/// # Errors
/// Two options do not fit together; the sentence names them.
pub(super) fn build(load: &LoadArgs, given: &Given) -> Result<Links, String> {
    let (caller, callee) = (load.caller_transport(), load.callee_transport());
    let args = &load.links;
    check_connections(caller, "--caller-connections", args.caller_connections)?;
    check_connections(callee, "--callee-connections", args.callee_connections)?;
    if callee.is_websocket() && !args.callee_connections.stay() {
        return Err(format!(
            "--callee-connections {}: over WebSocket callees are called on the connection that registered them, so theirs \
             are single or pool:N",
            args.callee_connections
        ));
    }
    let callee_address = given.tls.callee_target.or_else(|| {
        let port = if caller == callee {
            given.address.port()
        } else {
            port_of(caller, callee, given.address.port())
        };
        (port != given.address.port()).then(|| SocketAddr::new(given.address.ip(), port))
    });
    Ok(Links {
        caller: Link { transport: caller, connections: args.caller_connections, address: None },
        callee: Link { transport: callee, connections: args.callee_connections, address: callee_address },
        close: args.close,
        tls: Tls {
            mode: load.tls.tls,
            version: load.tls.tls_version,
            cipher: load.tls.tls_cipher.clone(),
            key: load.tls.tls_key,
            server_name: server_name(load),
            authorities: given.tls.authorities.clone(),
            own: given.tls.own.clone(),
        },
    })
}

/// The callees' port where the callers' is `port`: UDP and TCP share one, every other transport has its own.
fn port_of(caller: Transport, callee: Transport, port: u16) -> u16 {
    let plain = |transport: Transport| !transport.is_tls() && !transport.is_websocket();
    if plain(caller) && plain(callee) { port } else { callee.default_port() }
}

fn check_connections(transport: Transport, option: &str, connections: Connections) -> Result<(), String> {
    if transport.is_stream() || connections == Connections::Single {
        return Ok(());
    }
    Err(format!("{option} {connections} needs a transport with connections: UDP has none (--transport tcp)"))
}

/// The name that the server must prove: the domain that was asked for, or the target's name; an address needs none.
fn server_name(load: &LoadArgs) -> Option<String> {
    let name = |host: &str| match Name::of_host(host) {
        Name::Domain(name) | Name::Dns(name) => Some(name),
        Name::Address(_) => None,
    };
    load.domain.as_deref().and_then(name).or_else(|| name(&load.target.host))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        load: LoadArgs,
    }

    fn load(words: &str) -> LoadArgs {
        let words = ["x", "--target"].into_iter().chain(words.split_whitespace());
        Line::try_parse_from(words).unwrap().load
    }

    fn links(words: &str) -> Result<Links, String> {
        let load = load(words);
        let address = load.target.resolve(load.caller_transport()).unwrap();
        build(&load, &Given { address, listed: Vec::new(), seed: 1, tls: TlsFiles::default() })
    }

    #[test]
    fn the_transport_is_the_targets_or_the_options() {
        assert_eq!(
            links("127.0.0.1").unwrap(),
            Links { tls: links("127.0.0.1").unwrap().tls, ..Links::default() }
        );
        for (words, caller, callee) in [
            ("sip:127.0.0.1;transport=tcp", Transport::Tcp, Transport::Tcp),
            ("127.0.0.1:5060;transport=tls", Transport::Tls, Transport::Tls),
            ("sips:127.0.0.1", Transport::Tls, Transport::Tls),
            ("127.0.0.1 --transport wss", Transport::Wss, Transport::Wss),
            ("sip:127.0.0.1;transport=tcp --callee-transport udp", Transport::Tcp, Transport::Udp),
            ("127.0.0.1 --transport tcp --caller-transport tls", Transport::Tls, Transport::Tcp),
        ] {
            let links = links(words).unwrap();
            assert_eq!((links.caller.transport, links.callee.transport), (caller, callee), "{words}");
        }
    }

    #[test]
    fn the_default_port_is_the_transports() {
        let port = |words: &str| {
            let load = load(words);
            load.target.resolve(load.caller_transport()).unwrap().port()
        };
        assert_eq!(
            [port("127.0.0.1"), port("sips:127.0.0.1"), port("127.0.0.1 --transport ws")],
            [5060, 5061, 80]
        );
        assert_eq!(port("127.0.0.1:99 --transport tls"), 99);
    }

    #[test]
    fn callees_of_another_transport_find_the_server_on_its_port() {
        let callee = |words: &str| links(words).unwrap().callee.address.map(|address| address.port());
        assert_eq!(callee("127.0.0.1:5070 --transport tcp"), None);
        assert_eq!(callee("127.0.0.1:5070 --transport tcp --callee-transport udp"), None);
        assert_eq!(callee("127.0.0.1:5061 --transport tls --callee-transport udp"), Some(5060));
        assert_eq!(callee("127.0.0.1 --callee-transport tls"), Some(5061));
    }

    #[test]
    fn connections_that_cannot_be_are_refused_with_what_can() {
        assert!(links("127.0.0.1 --caller-connections per-call").unwrap_err().contains("--transport tcp"));
        assert!(
            links("127.0.0.1 --transport ws --callee-connections per-call").unwrap_err().contains("pool:N")
        );
        assert!(links("127.0.0.1 --transport ws --caller-connections per-call").is_ok());
    }

    #[test]
    fn a_server_with_a_name_must_prove_it() {
        let name = |words: &str| links(words).unwrap().tls.server_name;
        assert_eq!(name("127.0.0.1 --transport tls"), None);
        assert_eq!(name("localhost --transport tls").as_deref(), Some("localhost"));
        assert_eq!(
            name("127.0.0.1 --transport tls --domain example.com:5061").as_deref(),
            Some("example.com")
        );
    }

    #[test]
    fn certificates_are_kept_so_that_a_server_that_has_them_is_believed_again() {
        let folder = std::env::temp_dir().join(format!("sipstone-tls-out-{}", std::process::id()));
        let here = [IpAddr::from([127, 0, 0, 1])];
        let words = format!("127.0.0.1 --transport tls --tls-out {}", folder.display());
        let first = TlsFiles::read(&load(&words), here[0], &here).unwrap();
        let server = fs::read_to_string(folder.join("server.pem")).unwrap();
        let second = TlsFiles::read(&load(&words), here[0], &here).unwrap();
        assert_eq!(first.authorities, second.authorities);
        assert_eq!(fs::read_to_string(folder.join("server.pem")).unwrap(), server);
        assert!(second.own.is_some());
        let ca = format!("127.0.0.1 --tls-ca {}", folder.join("ca.pem").display());
        assert!(TlsFiles::read(&load(&ca), here[0], &here).unwrap().own.is_none());
        fs::remove_dir_all(&folder).unwrap();
        assert!(TlsFiles::read(&load(&ca), here[0], &here).unwrap_err().contains("--tls-ca"));
    }
}
