//! The server of a configuration: its certificates, its files, its start.

use super::GridArgs;
use crate::certs::{Certificates, Name};
use crate::cli::exit::Refusal;
use crate::cli::options::ServerArgs;
use crate::cli::session::{self, Session};
use crate::grid::files::{Scratch, Values};
use crate::grid::{Configuration, Security};
use crate::net::socket::source_towards;
use crate::spec::{Connections, Link, Links, OwnCertificate, Tls, TlsMode, Transport};
use crate::sut::Server;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long one attempt to connect may take.
const CONNECT_WITHIN: Duration = Duration::from_secs(1);
/// Time between attempts.
const POLL: Duration = Duration::from_millis(20);

/// What the servers of a grid share.
pub(super) struct Servers {
    scratch: Scratch,
    certificates: PathBuf,
    templates: Option<PathBuf>,
    args: ServerArgs,
    address: SocketAddr,
    tls_port: u16,
    own: OwnCertificate,
    authority: String,
}

impl Servers {
    /// Makes the certificates.
    ///
    /// # Errors
    /// A folder or file cannot be made.
    pub(super) fn new(args: &GridArgs, session: &Session<'_>, tls: &Tls) -> Result<Servers, Refusal> {
        let scratch = Scratch::create()?;
        let address = session.given.address;
        let kept = args.load.tls.tls_out.clone();
        let (own, authority) = match (&tls.own, &tls.authorities) {
            // --tls-out: the files are there, and ours were issued with them.
            (Some(own), Some(authority)) if kept.is_some() => (own.clone(), authority.clone()),
            _ => certificates(args, session, tls, scratch.path())?,
        };
        let tls_port = args.tls_port.unwrap_or_else(|| address.port().saturating_add(1));
        Ok(Servers {
            certificates: kept.unwrap_or_else(|| scratch.path().to_owned()),
            scratch,
            templates: args.sut_files.clone(),
            args: args.server.clone(),
            address,
            tls_port,
            own,
            authority,
        })
    }

    /// Ends the server that runs, if sipstone started it, and starts the one of a configuration.
    ///
    /// # Errors
    /// Its files cannot be made, or it does not start.
    pub(super) fn start(
        &self,
        session: &mut Session<'_>,
        configuration: Configuration,
    ) -> Result<(), Refusal> {
        let Some(template) = &self.args.sut_exec else { return Ok(()) };
        // Two servers would want the same ports.
        session.conductor.server = None;
        let values = Values {
            folder: self.scratch.path(),
            certificates: &self.certificates,
            configuration,
            address: self.address,
            tls_port: self.tls_port,
        };
        if let Some(templates) = &self.templates {
            self.scratch.fill(templates, &values)?;
        }
        let filled = ServerArgs { sut_exec: Some(values.fill(template)), ..self.args.clone() };
        let Some(watch) = session::watch(&filled)? else { return Ok(()) };
        let mut server = Server::start(&watch, self.address).map_err(|error| Refusal(error.to_string()))?;
        self.wait_until_ready(&mut server, configuration)?;
        let mut facts = server.facts();
        // The command as it was given: what was filled in differs from configuration to configuration.
        facts.command = Some(template.clone());
        session.report.server = Some(facts);
        if let Some(remark) = server.remark() {
            session.remark(remark);
        }
        session.conductor.server = Some(server);
        session.conductor.forget_registrations();
        Ok(())
    }

    /// A server that takes datagrams already may take connections only a little later.
    fn wait_until_ready(&self, server: &mut Server, configuration: Configuration) -> Result<(), Refusal> {
        let address = match configuration.security {
            Security::Udp => return Ok(()),
            Security::Tcp => self.address,
            _ => SocketAddr::new(self.address.ip(), self.tls_port),
        };
        let until = Instant::now() + self.args.sut_ready;
        loop {
            let Err(why) = TcpStream::connect_timeout(&address, CONNECT_WITHIN) else { return Ok(()) };
            // It may have ended.
            server.sample().map_err(|error| Refusal(error.to_string()))?;
            if Instant::now() >= until {
                return Err(Refusal(format!(
                    "{configuration}: the server takes no connections on {address} ({why}): let its configuration listen \
                     there, or name another port with --tls-port"
                )));
            }
            std::thread::sleep(POLL);
        }
    }

    /// How the load reaches the server in a configuration.
    pub(super) fn links(&self, configuration: Configuration, tls: &Tls) -> Links {
        let Configuration { mode, security } = configuration;
        let transport = match security {
            Security::Udp => Transport::Udp,
            Security::Tcp => Transport::Tcp,
            _ => Transport::Tls,
        };
        let address = security.is_tls().then(|| SocketAddr::new(self.address.ip(), self.tls_port));
        let link = |anew: bool| Link {
            transport,
            connections: if anew { Connections::PerCall } else { Connections::Single },
            address,
        };
        Links {
            caller: link(mode.callers_connect()),
            callee: link(mode.callees_are_connected()),
            tls: Tls {
                mode: match security {
                    Security::TlsMutual => TlsMode::Mutual,
                    Security::TlsReuse => TlsMode::Reuse,
                    _ => TlsMode::Full,
                },
                authorities: Some(self.authority.clone()),
                own: Some(self.own.clone()),
                ..tls.clone()
            },
            ..Links::default()
        }
    }
}

/// New certificates: the server's into the folder, ours and the authority's returned.
fn certificates(
    args: &GridArgs,
    session: &Session<'_>,
    tls: &Tls,
    folder: &Path,
) -> Result<(OwnCertificate, String), Refusal> {
    let address = session.given.address;
    let mut server =
        vec![Name::of_host(&args.load.domain.clone().unwrap_or_else(|| args.load.target.domain()))];
    server.extend((server[0] != Name::Address(address.ip())).then_some(Name::Address(address.ip())));
    let mut sources = session.spec.sources.clone();
    if sources.is_empty() {
        sources.push(source_towards(address).map_err(|error| Refusal(error.to_string()))?);
    }
    let client: Vec<Name> = sources.into_iter().map(Name::Address).collect();
    let said = |error: crate::certs::CertificateError| Refusal(error.to_string());
    let certificates = Certificates::new(tls.key, &server, &client).map_err(said)?;
    certificates.write_to(folder).map_err(said)?;
    let own = OwnCertificate {
        chain: certificates.client.chain_pem().into(),
        key: certificates.client.key_pem().into(),
    };
    Ok((own, certificates.authority_pem().into()))
}
