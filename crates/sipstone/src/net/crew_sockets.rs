//! What one worker thread sends from and is called on: its sockets of datagrams, its listeners, its addresses.
//!
//! Callers come first, as [`SocketId`](crate::load::SocketId) counts. With UDP every address is a socket of its own; with
//! connections a caller's address is where they are opened from, a callee's is a listener that the server connects to.

use super::local::Plan;
use super::socket::{NetError, Socket};
use super::stream::tls::{Ends, own_certificate};
use super::stream::{Equipment, Place, limits, listen};
use super::worker_thread::share_of;
use crate::load::SocketId;
use crate::spec::{CONTACTS_MAX, Connections, Link, Tls};
use std::net::{SocketAddr, TcpListener};

/// The port of the callees of the first group's first thread; the next thread's is one higher, the next group's
/// [`GROUP_PORTS`] higher. Below the usual ephemeral ports.
const CALLEE_PORT: u16 = 16_060;

/// Ports between the callees of two groups, which may be on one host.
const GROUP_PORTS: u16 = 64;

/// From here on the further listeners of workers that have several.
const MANY_PORTS: u32 = 20_000;

/// Where the usual ephemeral ports begin.
const EPHEMERAL_PORTS: u32 = 32_768;

/// What all threads of a crew share.
#[derive(Debug)]
pub(super) struct CrewLimits {
    /// Most connections of one thread.
    open_max: usize,
    /// TLS with our certificate, made once.
    tls: Tls,
}

impl CrewLimits {
    /// # Errors
    /// The limit of open files is too low for what stays open, or there is no certificate.
    pub(super) fn of(plan: &Plan) -> Result<CrewLimits, NetError> {
        let mut tls = plan.links.tls.clone();
        if plan.links.any_tls() {
            tls.own = Some(own_certificate(&tls, &plan.sources).map_err(NetError::Links)?);
        }
        if !plan.links.any_stream() {
            return Ok(CrewLimits { open_max: 0, tls });
        }
        let allowed = limits::connections_max();
        let per_thread = |index: u16| callee_places(plan, index) * 2 + caller_pool(plan, index);
        let needed: u32 = (0..plan.threads).map(per_thread).sum();
        let needed = usize::try_from(needed).unwrap_or(usize::MAX);
        if needed > allowed {
            return Err(NetError::Links(limits::too_many(needed, allowed)));
        }
        let listeners: u32 = (0..plan.threads).map(|index| callee_places(plan, index)).sum();
        let left = allowed - usize::try_from(listeners).unwrap_or(0).min(allowed);
        Ok(CrewLimits { open_max: left / usize::from(plan.threads.max(1)), tls })
    }
}

/// What one thread has.
#[derive(Debug)]
pub(super) struct Opened {
    /// Sockets of datagrams.
    pub(super) sockets: Vec<Socket>,
    /// The number of the first of them: zero unless the callers have connections.
    pub(super) first_socket: u16,
    /// The addresses of callers, as messages name them; port 0: none.
    pub(super) callers: Vec<SocketAddr>,
    /// The addresses of callees.
    pub(super) callees: Vec<SocketAddr>,
    /// What its connections are made from, if it has any.
    pub(super) equipment: Option<Equipment>,
}

impl Opened {
    /// Opens everything for thread `index`.
    ///
    /// # Errors
    /// An address cannot be had, or TLS cannot be as the workload wants it.
    pub(super) fn new(plan: &Plan, index: u16, limits: &CrewLimits) -> Result<Opened, NetError> {
        let (caller, callee) = (plan.links.caller, plan.links.callee);
        let mut opened = Opened {
            sockets: Vec::new(),
            first_socket: 0,
            callers: Vec::new(),
            callees: Vec::new(),
            equipment: None,
        };
        let mut listeners = Vec::new();
        for source in &plan.sources {
            let address = SocketAddr::new(*source, 0);
            let address = if caller.transport.is_stream() { address } else { opened.datagrams(address)? };
            opened.callers.push(address);
        }
        if caller.transport.is_stream() {
            opened.first_socket = u16::try_from(opened.callers.len()).unwrap_or(u16::MAX);
        }
        for number in 0..callee_places(plan, index) {
            let from = usize::try_from(number).unwrap_or(0) % plan.sources.len().max(1);
            let Some(source) = plan.sources.get(from) else { break };
            let wanted = SocketAddr::new(*source, callee_port(plan, index, number));
            let address = if !callee.transport.is_stream() {
                opened.datagrams(wanted)?
            } else if callee.transport.is_websocket() {
                wanted
            } else {
                let listener = listen(wanted).or_else(|_| listen(SocketAddr::new(*source, 0)))?;
                let address =
                    listener.local_addr().map_err(|error| NetError::Listen { address: wanted, error })?;
                listeners.push(listener);
                address
            };
            opened.callees.push(address);
        }
        if caller.transport == callee.transport && !caller.transport.is_websocket() {
            opened.name_callers();
        }
        opened.equip(plan, limits, listeners)?;
        Ok(opened)
    }

    /// Opens a socket of datagrams, on another port if that one is taken.
    fn datagrams(&mut self, address: SocketAddr) -> Result<SocketAddr, NetError> {
        let socket = Socket::bind(address).or_else(|error| match address.port() {
            0 => Err(error),
            _ => Socket::bind(SocketAddr::new(address.ip(), 0)),
        })?;
        let local = socket.local();
        self.sockets.push(socket);
        Ok(local)
    }

    /// A caller is reached where the callees of its address are: what its Via names must be listened to (RFC 3261
    /// §18.1.1).
    fn name_callers(&mut self) {
        for caller in self.callers.iter_mut().filter(|caller| caller.port() == 0) {
            if let Some(callee) = self.callees.iter().find(|callee| callee.ip() == caller.ip()) {
                caller.set_port(callee.port());
            }
        }
    }

    fn equip(
        &mut self,
        plan: &Plan,
        limits: &CrewLimits,
        listeners: Vec<TcpListener>,
    ) -> Result<(), NetError> {
        let Some(server) = plan.server else { return Ok(()) };
        let place = |link: Link| {
            move |address: &SocketAddr| {
                let at = Place { local: address.ip(), transport: link.transport };
                link.transport.is_stream().then_some(at)
            }
        };
        let callers = self.callers.iter().map(place(plan.links.caller));
        let places = callers.chain(self.callees.iter().map(place(plan.links.callee))).collect();
        let first = u16::try_from(self.callers.len()).unwrap_or(u16::MAX);
        let ids = (first..).map(SocketId);
        let ends = plan.links.any_tls().then(|| Ends::new(&limits.tls, server.ip(), &plan.sources));
        self.equipment = Some(Equipment {
            places,
            listeners: listeners.into_iter().zip(ids).collect(),
            ends: ends.transpose().map_err(NetError::Links)?,
            open_max: limits.open_max,
        });
        Ok(())
    }
}

/// Where the callees of a thread are called: one place for each source with UDP.
fn callee_places(plan: &Plan, index: u16) -> u32 {
    let sources = u32::try_from(plan.sources.len()).unwrap_or(u32::MAX);
    let callee = plan.links.callee;
    if !callee.transport.is_stream() {
        return sources;
    }
    let users = share_of((0, plan.users), index, plan.threads).1;
    match callee.connections {
        Connections::Single => 1,
        Connections::Pool(count) => share_of((0, count), index, plan.threads).1,
        Connections::PerCall | Connections::PerTransaction => users.clamp(1, CONTACTS_MAX),
    }
}

/// How many shared connections the callers of a thread have.
fn caller_pool(plan: &Plan, index: u16) -> u32 {
    match plan.links.caller {
        Link { transport, .. } if !transport.is_stream() => 0,
        Link { connections: Connections::Pool(count), .. } => share_of((0, count), index, plan.threads).1,
        _ => 1,
    }
}

/// The port that this thread's callees had in the last run too, if it is free: the users' contacts are then the same, and a
/// registrar that keeps few contacts of a user (`max_contacts`) takes them again. 0: any.
fn callee_port(plan: &Plan, index: u16, number: u32) -> u16 {
    let sources = u32::try_from(plan.sources.len()).unwrap_or(1).max(1);
    if number < sources {
        let offset = plan.group.checked_mul(GROUP_PORTS).and_then(|ports| ports.checked_add(index));
        return offset.and_then(|offset| CALLEE_PORT.checked_add(offset)).unwrap_or(0);
    }
    let worker = u32::from(plan.group) * u32::from(plan.threads) + u32::from(index);
    let port =
        MANY_PORTS.saturating_add(worker.saturating_mul(callee_places(plan, index))).saturating_add(number);
    u16::try_from(port).ok().filter(|port| u32::from(*port) < EPHEMERAL_PORTS).unwrap_or(0)
}

/// Whether the threads have at least one connection each.
///
/// # Errors
/// A sentence that says what to choose.
pub(super) fn enough_for_threads(link: Link, threads: u16) -> Result<(), String> {
    match link.connections {
        Connections::Pool(count) if link.transport.is_stream() && count < u32::from(threads) => Err(format!(
            "pool:{count} is less than one connection for each of {threads} threads: choose fewer with --threads"
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{Links, Role, Transport};

    fn plan(links: Links, threads: u16) -> Plan {
        Plan {
            threads,
            cpus: Vec::new(),
            sources: vec!["127.0.0.1".parse().unwrap()],
            role: Role::Both,
            group: 40,
            server: links.any_stream().then(|| "127.0.0.1:9".parse().unwrap()),
            links,
            users: 10,
        }
    }

    fn open(links: Links) -> Opened {
        let plan = plan(links, 1);
        Opened::new(&plan, 0, &CrewLimits::of(&plan).unwrap()).unwrap()
    }

    fn links(caller: (Transport, Connections), callee: (Transport, Connections)) -> Links {
        let link = |(transport, connections)| Link { transport, connections, address: None };
        Links { caller: link(caller), callee: link(callee), ..Links::default() }
    }

    #[test]
    fn datagrams_need_one_socket_for_each_side() {
        let opened = open(Links::default());
        assert_eq!((opened.sockets.len(), opened.first_socket), (2, 0));
        assert!(opened.equipment.is_none());
    }

    #[test]
    fn callers_with_connections_are_named_by_the_callees_listener() {
        let opened = open(Links::both(Transport::Tcp));
        assert!(opened.sockets.is_empty());
        assert_eq!(opened.callers, opened.callees);
        let equipment = opened.equipment.unwrap();
        assert_eq!((equipment.listeners.len(), equipment.places.len()), (1, 2));
        assert_eq!(equipment.listeners[0].1, SocketId(1));
    }

    #[test]
    fn each_callee_has_its_own_port_when_each_call_has_its_own_connection() {
        let udp = (Transport::Udp, Connections::Single);
        let opened = open(links(udp, (Transport::Tcp, Connections::PerCall)));
        let mut ports: Vec<u16> = opened.callees.iter().map(SocketAddr::port).collect();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 10);
        assert_eq!((opened.sockets.len(), opened.first_socket), (1, 0));
        let opened = open(links((Transport::Tcp, Connections::Pool(3)), udp));
        assert_eq!((opened.sockets.len(), opened.first_socket), (1, 1));
        assert_eq!(opened.callers[0].port(), 0, "nothing listens for it");
    }

    #[test]
    fn a_pool_is_shared_by_the_threads_and_gives_each_at_least_one() {
        let pool = (Transport::Ws, Connections::Pool(5));
        let plan = plan(links(pool, pool), 2);
        let places: Vec<u32> = (0..2).map(|index| callee_places(&plan, index)).collect();
        assert_eq!(places.iter().sum::<u32>(), 5);
        assert!(enough_for_threads(plan.links.caller, 5).is_ok());
        assert!(enough_for_threads(plan.links.caller, 6).unwrap_err().contains("--threads"));
    }

    #[test]
    fn more_connections_than_files_is_an_error_that_says_what_to_raise() {
        let pool = (Transport::Tcp, Connections::Pool(u32::MAX / 8));
        let error = CrewLimits::of(&plan(links(pool, pool), 1)).unwrap_err().to_string();
        assert!(error.contains("ulimit -n"), "{error}");
    }
}
