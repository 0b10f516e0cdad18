//! The server put together: listeners bound, shards started, stopped when asked.

use std::borrow::Cow;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant as Clock};

use engine::{Endpoint, Limits};
use location::Location as _;
use location::Seeds;
use modules::{DbMode, Environment, Listen, ListenHost, ScriptUser};
use net::{Control, Post, Resolver, Shard};
use sip::Instant;

use crate::cli::Run;
use crate::clock::Time;
use crate::configuration::Loaded;
use crate::control::{self, Methods};
use crate::greeting::Greeting;
use crate::held::Held;
use crate::keeping::Keeping;
use crate::log::{self, ScriptLog};
use crate::persistence::Tickets;
use crate::reload::Reload;
use crate::services::Shared;
use crate::shard::ShardHandler;
use crate::signals::Watch;
use crate::state;
use crate::striped::Striped;
use crate::tls::InUse;
use crate::totals::{Line, Totals};

/// Served domains that Route headers may have as names of this server: they are looked through one by one.
const OWN_DOMAINS_MAX: usize = 256;

/// How long SIGUSR1 waits for the shards' counters.
const REPORT_WAIT: Duration = Duration::from_secs(1);

/// Why the server did not start, in one line that says what to do.
#[derive(Debug)]
pub(crate) struct StartError(pub(crate) String);

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl StartError {
    fn of(what: &str, error: &dyn fmt::Display) -> StartError {
        StartError(format!("{what}: {error}"))
    }
}

/// Runs the server until it is asked to stop.
///
/// # Errors
///
/// [`StartError`] when it could not be started; what happens later is in the log and in the exit code.
pub(crate) fn run(options: &Run, loaded: Loaded) -> Result<ExitCode, StartError> {
    let watch = Watch::new(options.drain_timeout).map_err(|e| StartError::of("cannot catch signals", &e))?;
    let shards = options.shards.unwrap_or_else(default_shards);
    let listen = where_to_listen(options, &loaded)?;
    let (sockets, listeners) = bind_all(&listen, usize::from(shards), &stream_settings(&loaded.settings))?;
    let _guard = log::start(options.log.unwrap_or_else(|| log::filter(loaded.settings.log_level)));
    loaded.log_notes();
    if let Err(error) = net::use_small_pages() {
        tracing::debug!(%error, "huge pages stay on: a growing server may pause for some milliseconds");
    }
    let server = Server::new(options, &loaded, listeners, shards)?;
    let state = state::directory(options.state_dir.as_deref());
    // Everything that a control socket serves is there now.
    let _listening = control::listen(&state, server.methods())
        .inspect_err(|why| tracing::info!("no control socket: {why}"))
        .ok();
    let greeting = Greeting {
        loaded: &loaded,
        is_built_in: options.file().is_none(),
        listeners: &server.environment.listeners,
        shards,
        has_users: server.keeping.databases.have_users(&loaded.settings),
    };
    println!("{greeting}");
    warn_of_small_buffers(&sockets);
    server.serve(sockets, watch)
}

/// One shard for each CPU that the process may use.
fn default_shards() -> u8 {
    thread::available_parallelism().map_or(1, |n| u8::try_from(n.get()).unwrap_or(u8::MAX)).min(64)
}

/// What all shards share.
struct Server {
    program: Arc<route::Program>,
    settings: Arc<modules::Settings>,
    environment: Environment,
    config: engine::Config,
    location: Striped,
    shared: Arc<Shared>,
    keeping: Keeping,
    time: Time,
    /// How long the last bindings may take to be written.
    drain_timeout: Duration,
    totals: Arc<Totals>,
    control: Arc<Control>,
    loop_settings: net::Settings,
    resolver: Resolver,
    tls: Option<Arc<InUse>>,
}

impl Server {
    fn new(
        options: &Run,
        loaded: &Loaded,
        listeners: Vec<engine::Listener>,
        shards: u8,
    ) -> Result<Server, StartError> {
        let settings = &loaded.settings;
        let time = Time::start();
        let limits = Limits { branches_max: settings.branches_max, ..Limits::default() };
        let limits_of_messages = net::StreamLimits {
            head_bytes_max: limits.message_bytes_max,
            message_bytes_max: limits.message_bytes_max,
        };
        let state = state::directory(options.state_dir.as_deref());
        let shared = Arc::new(Shared::new(settings.auth.nonces_max, settings.auth.attempts_max));
        let environment = Environment {
            clock: time.wall_clock(),
            process_id: std::process::id(),
            listeners: listeners.clone(),
            message_bytes_max: u32::try_from(limits.message_bytes_max).unwrap_or(u32::MAX),
            nonce_key: nonce_key(loaded, &state)?,
            holds_answers: settings.persistence.mode == DbMode::WriteThrough,
            started_unix_secs: time.unix_micros(time.now()) / 1_000_000,
            services: shared.clone(),
        };
        let mut config = engine::Config {
            listeners,
            aliases: settings.aliases.clone(),
            timers: settings.timers.clone(),
            limits,
            transports: settings.transports.clone(),
            shard: 0,
            shards,
            server_header: settings.server_header.clone(),
            seed: random()?,
            auto_100: settings.auto_100,
        };
        // A handshake costs as much as dozens of calls: as many threads as shards, at a lower priority.
        let tls = InUse::start(loaded, &config.listeners, shards)?.map(Arc::new);
        let mut loop_settings = loop_settings(options.gather, time, settings, &limits_of_messages);
        loop_settings.tls = tls.as_ref().map(|tls| tls.pool());
        let location = Striped::new(&location::Limits::default(), Seeds(random()?));
        let keeping = Keeping::open(loaded, &state, &config.listeners, &location, &shared, time)?;
        if settings.domain.register_myself {
            config.aliases.extend(own_domains(&shared));
        }
        Ok(Server {
            program: loaded.program.clone(),
            settings: settings.clone(),
            environment,
            config,
            location,
            shared,
            keeping,
            time,
            drain_timeout: options.drain_timeout,
            totals: Arc::new(Totals::new(usize::from(shards))),
            control: Arc::new(Control::new(usize::from(shards))),
            loop_settings,
            resolver: Resolver::start()
                .map_err(|e| StartError::of("cannot start the resolver's threads", &e))?,
            tls,
        })
    }

    /// Starts a thread for each shard and obeys signals until all have ended.
    fn serve(mut self, sockets: Vec<Vec<net::Listener>>, watch: Watch) -> Result<ExitCode, StartError> {
        let fail = |e: std::io::Error| StartError::of("cannot start a shard", &e);
        let shards: Vec<Shard> = sockets
            .into_iter()
            .enumerate()
            .map(|(index, listeners)| Shard::new(index, listeners))
            .collect::<Result<_, _>>()
            .map_err(fail)?;
        let posts: Vec<Post> = shards.iter().map(Shard::post).collect();
        let mut threads = Vec::new();
        for (index, shard) in shards.into_iter().enumerate() {
            threads.push(self.start_shard(index, shard, posts.clone(), watch.handle()).map_err(fail)?);
        }
        let reload = self.reload();
        watch.obey(
            &self.control,
            &posts,
            |reports| self.log_totals(reports),
            // The log says what came of it.
            || drop(reload.again("SIGHUP")),
        );
        let mut code = ExitCode::SUCCESS;
        for thread in threads {
            if !thread.join().unwrap_or(false) {
                code = ExitCode::FAILURE;
            }
        }
        // Nothing changes any more.
        self.keeping.flush(self.drain_timeout);
        tracing::info!("stopped: {}", self.line());
        Ok(code)
    }

    /// Who reads certificates and tables again.
    fn reload(&self) -> Reload {
        Reload {
            settings: self.settings.clone(),
            shared: self.shared.clone(),
            databases: self.keeping.databases.clone(),
            tls: self.tls.clone(),
        }
    }

    /// What the control socket works on.
    fn methods(&self) -> Methods {
        Methods {
            location: self.location.clone(),
            settings: self.settings.clone(),
            shared: self.shared.clone(),
            reload: self.reload(),
            persister: self.keeping.persister(),
            listeners: self.config.listeners.clone(),
            time: self.time,
        }
    }

    /// All counters.
    fn line(&self) -> Line {
        let handshakes = self.tls.as_ref().map(|tls| tls.statistics()).unwrap_or_default();
        self.totals.line(self.location.len(), handshakes, self.keeping.state())
    }

    /// The thread of one shard; it gives back whether it ended as it was asked to.
    fn start_shard(
        &self,
        index: usize,
        shard: Shard,
        posts: Vec<Post>,
        signals: signal_hook::iterator::Handle,
    ) -> std::io::Result<thread::JoinHandle<bool>> {
        let handler = self.handler(index, posts.get(index))?;
        let (settings, control, resolver) =
            (self.loop_settings.clone(), self.control.clone(), self.resolver.clone());
        thread::Builder::new().name(format!("shard-{index}")).spawn(move || {
            let ended = shard.run(handler, &settings, &control, posts.clone(), resolver);
            if let Err(error) = &ended {
                tracing::error!(shard = index, %error, "the event queue failed; the server stops");
                control.stop();
                posts.iter().for_each(Post::wake);
            }
            // Shards end together, so that the first to do so may end the wait for signals.
            signals.close();
            ended.is_ok()
        })
    }

    /// What a shard drives; `post` is its own.
    fn handler(&self, index: usize, post: Option<&Post>) -> std::io::Result<ShardHandler> {
        let user = ScriptUser::new(
            self.program.clone(),
            self.settings.clone(),
            self.location.clone(),
            ScriptLog,
            self.environment.clone(),
        );
        let shard = u8::try_from(index).unwrap_or(u8::MAX);
        let config = engine::Config { shard, ..self.config.clone() };
        let persister = self.keeping.persister().filter(|_| self.environment.holds_answers);
        let held = match (persister, post) {
            (Some(persister), Some(post)) => {
                let tickets = Arc::new(Tickets::new(post.clone()));
                persister.hold(tickets.clone())?;
                let timeout = self.settings.persistence.commit_timeout;
                let retry_after_secs = self.settings.registrar.retry_after_secs;
                Some(Held::new(persister, tickets, self.location.clone(), timeout, retry_after_secs))
            }
            _ => None,
        };
        Ok(ShardHandler {
            index,
            shards: self.config.shards,
            steer_key: self.config.seed,
            endpoint: Endpoint::new(config, user),
            location: self.location.clone(),
            asks: self.keeping.asks(),
            held,
            totals: self.totals.clone(),
            control: self.control.clone(),
            expire_every: self.settings.expire_interval,
            expire_at: if index == 0 { Instant::ZERO } else { Instant::NEVER },
        })
    }

    fn log_totals(&self, reports: u64) {
        let begin = Clock::now();
        while !self.totals.are_of(reports) && begin.elapsed() < REPORT_WAIT {
            thread::sleep(Duration::from_millis(5));
        }
        tracing::info!("counters: {}", self.line());
    }
}

/// What the configuration says about connections.
fn stream_settings(settings: &modules::Settings) -> net::StreamSettings {
    let from = &settings.connections;
    let keepalive = from.keepalive.map(|keepalive| net::Keepalive {
        idle: keepalive.idle,
        interval: keepalive.interval,
        probes: keepalive.probes,
    });
    net::StreamSettings {
        max: from.max,
        tls_max: from.tls_max,
        per_source_max: from.per_source_max,
        lifetime: from.lifetime,
        connect_timeout: from.connect_timeout,
        send_timeout: from.send_timeout,
        message_timeout: from.message_timeout,
        write_queue_bytes_max: from.write_queue_bytes_max,
        write_queue_total_bytes_max: from.write_queue_total_bytes_max,
        connect_queue_messages_max: from.connect_queue_messages_max,
        keepalive,
        websocket_ping: settings.websocket.keepalive,
        no_connect: from.no_connect,
    }
}

/// What the loops know of the configuration.
fn loop_settings(
    gather: Duration,
    time: Time,
    settings: &modules::Settings,
    limits: &net::StreamLimits,
) -> net::Settings {
    let websocket = net::WebSocketPolicy {
        origins: settings.websocket.origins.clone(),
        message_bytes_max: limits.message_bytes_max,
        ..net::WebSocketPolicy::default()
    };
    let origin_at = time.origin_at();
    net::Settings {
        streams: stream_settings(settings),
        limits: *limits,
        websocket,
        origin_at,
        ..net::Settings::new(gather, time.origin())
    }
}

fn random() -> Result<[u64; 4], StartError> {
    let mut numbers = [0_u64; 4];
    for (number, chunk) in numbers.iter_mut().zip(random_bytes()?.chunks_exact(8)) {
        *number = chunk.iter().fold(0, |n, byte| n << 8 | u64::from(*byte));
    }
    Ok(numbers)
}

/// Served domains as names of this server, which Route headers may have; scripts know all of them.
fn own_domains(shared: &Shared) -> Vec<engine::Alias> {
    let domains = modules::Services::domains(shared);
    let (names, left_out) = first_names(domains.names().map(String::from_utf8_lossy).collect());
    if left_out > 0 {
        tracing::warn!(
            "register_myself: {left_out} of {} domains are no names of this server in Route headers, which the first \
             {OWN_DOMAINS_MAX} in the order of the alphabet are: requests with a Route to one of the others go where DNS \
             says; write an address of this server into Routes, or those domains as alias= into the configuration",
            domains.len()
        );
    }
    let alias = |host: Cow<'_, str>| engine::Alias { transport: None, host: host.into_owned(), port: None };
    names.into_iter().map(alias).collect()
}

/// The first names in the order of the alphabet, the same ones at every start, and how many are left out.
fn first_names(mut names: Vec<Cow<'_, str>>) -> (Vec<Cow<'_, str>>, usize) {
    names.sort_unstable();
    let left_out = names.len().saturating_sub(OWN_DOMAINS_MAX);
    names.truncate(OWN_DOMAINS_MAX);
    (names, left_out)
}

/// The key of nonces: kept in the state directory if the configuration asks for credentials, random otherwise.
fn nonce_key(loaded: &Loaded, state: &Path) -> Result<[u8; 32], StartError> {
    let fresh = random_bytes()?;
    let kept = if loaded.loads("auth") { state::nonce_key(state, fresh) } else { None };
    Ok(kept.unwrap_or(fresh))
}

fn random_bytes() -> Result<[u8; 32], StartError> {
    let mut bytes = [0_u8; 32];
    getrandom::fill(&mut bytes).map_err(|e| StartError::of("the system has no random numbers", &e))?;
    Ok(bytes)
}

/// What `-l` says, else the configuration, else loopback.
fn where_to_listen(options: &Run, loaded: &Loaded) -> Result<Vec<Listen>, StartError> {
    let port = loaded.settings.port;
    if !options.listen.is_empty() {
        let parse =
            |text: &String| Listen::parse(text, port).map_err(|e| StartError(format!("-l {text}: {e}")));
        return options.listen.iter().map(parse).collect();
    }
    if !loaded.settings.listen.is_empty() {
        return Ok(loaded.settings.listen.clone());
    }
    Ok(vec![Listen::on(ListenHost::Address(IpAddr::from([127, 0, 0, 1])), port)])
}

/// The sockets of each shard, and the listeners as the engine knows them, in the same order.
type Bound = (Vec<Vec<net::Listener>>, Vec<engine::Listener>);

/// Binds every address for every shard.
fn bind_all(listen: &[Listen], shards: usize, settings: &net::StreamSettings) -> Result<Bound, StartError> {
    let mut sockets: Vec<Vec<net::Listener>> = (0..shards).map(|_| Vec::new()).collect();
    let mut listeners: Vec<engine::Listener> = Vec::new();
    for wanted in listen {
        for address in addresses(wanted)? {
            let same = |l: &engine::Listener| l.transport == wanted.transport && l.address == address;
            if address.port() != 0 && listeners.iter().any(same) {
                continue;
            }
            let bound = net::bind(wanted.transport, address, shards, settings)
                .map_err(|e| StartError(e.to_string()))?;
            let Some(address) = bound.first().map(net::Listener::address) else { continue };
            sockets.iter_mut().zip(bound).for_each(|(shard, socket)| shard.push(socket));
            listeners.push(engine::Listener {
                transport: wanted.transport,
                address,
                advertise: wanted.advertise.clone(),
            });
        }
    }
    Ok((sockets, listeners))
}

/// The addresses that one `listen` stands for: an interface for all that it has now.
fn addresses(listen: &Listen) -> Result<Vec<SocketAddr>, StartError> {
    let at = |ip| SocketAddr::new(ip, listen.port);
    match &listen.host {
        ListenHost::Address(ip) => Ok(vec![at(*ip)]),
        ListenHost::Any => Ok(vec![at(Ipv4Addr::UNSPECIFIED.into()), at(Ipv6Addr::UNSPECIFIED.into())]),
        ListenHost::Named(name) => {
            let all =
                net::interfaces().map_err(|e| StartError::of("cannot list the network interfaces", &e))?;
            let of_interface: Vec<_> =
                all.iter().filter(|i| i.name == *name).map(|i| at(i.address)).collect();
            if of_interface.is_empty() { named(name, listen.port) } else { Ok(of_interface) }
        }
    }
}

/// The addresses of a host name, asked for once at start.
fn named(name: &str, port: u16) -> Result<Vec<SocketAddr>, StartError> {
    use std::net::ToSocketAddrs as _;
    match (name, port).to_socket_addrs() {
        Ok(found) => Ok(found.collect()),
        Err(error) => Err(StartError(format!(
            "cannot listen on '{name}': no such interface or host name ({error}); `ip address` lists the interfaces"
        ))),
    }
}

fn warn_of_small_buffers(sockets: &[Vec<net::Listener>]) {
    /// Below this a burst of a tenth of a second at some thousand calls a second is lost.
    const ENOUGH: usize = 1 << 20;
    let granted = sockets.iter().flatten().filter_map(net::Listener::receive_buffer_bytes);
    if let Some(small) = granted.min().filter(|bytes| *bytes < ENOUGH) {
        tracing::warn!(
            "the kernel grants receive buffers of {small} bytes only, too few for bursts; \
             raise it with: sysctl net.core.rmem_max=8388608"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_too_many_domains_the_same_ones_are_names_of_the_server() {
        let names = |order: &mut dyn Iterator<Item = usize>| -> Vec<Cow<'static, str>> {
            order.map(|number| Cow::from(format!("d{number:03}.example"))).collect()
        };
        let (first, left_out) = first_names(names(&mut (0..OWN_DOMAINS_MAX + 44).rev()));
        assert_eq!((first.len(), left_out), (OWN_DOMAINS_MAX, 44));
        assert_eq!(first, names(&mut (0..OWN_DOMAINS_MAX)));
        assert_eq!(first_names(names(&mut (0..OWN_DOMAINS_MAX))).1, 0);
    }
}
