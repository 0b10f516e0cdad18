//! What the target says of itself: an OPTIONS request (RFC 3261 §11), its answer's Via (RFC 3581 §4), and, if the server
//! runs on this host, which process listens.

use super::host::{PROCESSES_MAX, text};
use super::{Finding, Plan};
use crate::ladder::visible;
use sip::{HeaderName, Index, Message};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// First pause before the request is sent again; it doubles (RFC 3261 §17.1.2.2, Timer E with T1).
const AGAIN_AFTER: Duration = Duration::from_millis(500);

/// Datagrams that are looked at while the answer is awaited.
const DATAGRAMS_MAX: usize = 1000;

/// Longest header value that is shown, in characters.
const SHOWN_CHARS_MAX: usize = 120;

/// Descriptors that are looked through for the server's socket, of one process.
const DESCRIPTORS_MAX: usize = 65_536;

/// Where the kernel lists UDP sockets.
const SOCKET_LISTS: [&str; 2] = ["/proc/net/udp", "/proc/net/udp6"];

/// Asks the target, and looks who listens if it is this host.
pub(super) fn examine(target: SocketAddr, plan: &Plan) -> Vec<Finding> {
    let mut findings = match ask(target, plan) {
        Ok(answer) => judge_answer(&answer),
        Err(trouble) => vec![judge_trouble(target, &trouble, plan.answer_within)],
    };
    findings.extend(listener(target));
    findings
}

/// An answer, and what it answers.
pub(super) struct Answer {
    /// Where the request came from, as this host sees it.
    pub(super) local: SocketAddr,
    /// The datagram.
    pub(super) bytes: Vec<u8>,
    /// From the first request to it.
    pub(super) time: Duration,
    /// Requests sent until it came.
    pub(super) sent: u32,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Trouble {
    /// No socket towards it can be opened: no route, no address.
    Socket(io::Error),
    /// ICMP: nothing listens there.
    Refused,
    /// Nothing came; so many datagrams came that were no answer.
    Silence(usize),
}

/// Sends OPTIONS, and again as UDP needs it, until the answer comes.
pub(super) fn ask(target: SocketAddr, plan: &Plan) -> Result<Answer, Trouble> {
    let any: IpAddr =
        if target.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).map_err(Trouble::Socket)?;
    // Connected, so that ICMP errors are told and strangers are not heard.
    socket.connect(target).map_err(Trouble::Socket)?;
    let local = socket.local_addr().map_err(Trouble::Socket)?;
    // Unlike any earlier one of this host: the time of day and the process.
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let branch = format!("z9hG4bK{:x}.{:x}", since.as_nanos(), std::process::id());
    let request = request(target, local, &branch, plan.domain.as_deref());
    let (start, mut space) = (Instant::now(), vec![0; 65_536]);
    let (mut sent, mut strangers, mut next, mut pause) = (0, 0, Duration::ZERO, AGAIN_AFTER);
    while start.elapsed() < plan.answer_within && strangers < DATAGRAMS_MAX {
        if start.elapsed() >= next {
            refused(socket.send(request.as_bytes()))?;
            sent += 1;
            next += pause;
            pause *= 2;
        }
        let wait = next.min(plan.answer_within).saturating_sub(start.elapsed()).max(Duration::from_millis(1));
        socket.set_read_timeout(Some(wait)).map_err(Trouble::Socket)?;
        let Some(length) = refused(socket.recv(&mut space))? else { continue };
        let bytes = space.get(..length).unwrap_or_default();
        if answers(bytes, &branch) {
            return Ok(Answer { local, bytes: bytes.to_vec(), time: start.elapsed(), sent });
        }
        strangers += 1;
    }
    Err(Trouble::Silence(strangers))
}

/// A refusal ends the asking; a timeout is nothing.
fn refused(result: io::Result<usize>) -> Result<Option<usize>, Trouble> {
    match result {
        Ok(length) => Ok(Some(length)),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Err(Trouble::Refused),
        Err(error) => match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted => Ok(None),
            _ => Err(Trouble::Socket(error)),
        },
    }
}

/// An OPTIONS request as RFC 3261 §11.1 has it, with `rport` (RFC 3581 §3).
fn request(target: SocketAddr, local: SocketAddr, branch: &str, domain: Option<&str>) -> String {
    let domain = domain.map_or_else(|| target.to_string(), str::to_owned);
    format!(
        "OPTIONS sip:{domain} SIP/2.0\r\n\
         Via: SIP/2.0/UDP {local};branch={branch};rport\r\n\
         Max-Forwards: 70\r\n\
         From: <sip:doctor@{domain}>;tag=d{branch}\r\n\
         To: <sip:{domain}>\r\n\
         Call-ID: {branch}@sipstone\r\n\
         CSeq: 1 OPTIONS\r\n\
         Contact: <sip:doctor@{local}>\r\n\
         Accept: application/sdp\r\n\
         User-Agent: sipstone/{}\r\n\
         Content-Length: 0\r\n\r\n",
        env!("CARGO_PKG_VERSION")
    )
}

/// Whether this is a final response to our request (RFC 3261 §17.1.3).
fn answers(bytes: &[u8], branch: &str) -> bool {
    let mut index = Index::new();
    let Ok(message) = Message::parse(bytes, &mut index) else { return false };
    let ours = message.via_top().is_ok_and(|via| via.branch() == Some(branch.as_bytes()));
    ours && message.status().is_some_and(|status| status >= 200)
}

pub(super) fn judge_trouble(target: SocketAddr, trouble: &Trouble, waited: Duration) -> Finding {
    let topic = "target";
    match trouble {
        Trouble::Socket(error) => Finding::bad(topic, format!("{target} cannot be sent to: {error}"))
            .advise(format!("see the way there: ip route get {}", target.ip())),
        Trouble::Refused => Finding::bad(topic, format!("nothing listens on UDP {target}"))
            .advise("start the server; on its host, see what it listens on: ss -ulnp"),
        Trouble::Silence(strangers) => {
            let seconds = waited.as_secs_f64();
            let others = match strangers {
                0 => String::new(),
                count => format!(" ({count} datagrams came that were no answer)"),
            };
            Finding::bad(topic, format!("{target} did not answer OPTIONS within {seconds:.1} s{others}")).advise(format!(
                "see whether datagrams go there and come back: tcpdump -ni any udp port {}; a packet filter or a wrong \
                 --target looks like this",
                target.port()
            ))
        }
    }
}

pub(super) fn judge_answer(answer: &Answer) -> Vec<Finding> {
    let mut index = Index::new();
    let Ok(message) = Message::parse(&answer.bytes, &mut index) else { return Vec::new() };
    let status = message.status().unwrap_or(0);
    let reason = shown(message.reason());
    let ms = answer.time.as_secs_f64() * 1e3;
    let seen = format!("answers OPTIONS with {status} {reason} after {ms:.3} ms");
    let target = match (status, answer.sent) {
        (200, 1) => Finding::good("target", seen),
        (200, sent) => Finding::warn("target", format!("{seen}, to the request number {sent}"))
            .advise("a datagram was lost or the server was busy: look at its UDP buffers, and ask again"),
        _ => Finding::warn("target", seen).advise(
            "it works as a server, but the scenario `options` needs 200: let it answer OPTIONS to itself, or give the \
             domain that it serves with --domain",
        ),
    };
    let mut findings = vec![target, software(&message)];
    findings.push(judge_via(&message, answer.local));
    findings
}

fn software(message: &Message<'_>) -> Finding {
    let header =
        [HeaderName::Server, HeaderName::UserAgent].into_iter().find_map(|name| message.header(name));
    match header {
        Some(header) => Finding::good("software", shown(header.value)),
        None => Finding::good("software", "it does not say (no Server header)"),
    }
}

/// Bytes of the network as a short text.
fn shown(bytes: &[u8]) -> String {
    visible(&String::from_utf8_lossy(bytes).chars().take(SHOWN_CHARS_MAX).collect::<String>())
}

/// Whether the answer's Via says where the request came from (RFC 3581 §4: `received` too, whenever `rport` is asked for).
fn judge_via(message: &Message<'_>, local: SocketAddr) -> Finding {
    let topic = "rport";
    let Ok(via) = message.via_top() else { return Finding::bad(topic, "the answer has no Via") };
    let (port, address) = (via.rport().flatten(), via.received());
    let seen = format!(
        "rport={}, received={}; the request was sent from {local}",
        port.map_or("absent".into(), |port| port.to_string()),
        address.map_or("absent".into(), |address| address.to_string()),
    );
    let port_wrong = port.is_some_and(|port| port != local.port());
    let address_wrong = address.is_some_and(|address| address != local.ip());
    if port_wrong || address_wrong {
        return Finding::warn(topic, format!("{seen}: something between translates addresses")).advise(
            "calls towards the callees will not arrive through a NAT: measure from the server's side of it",
        );
    }
    match (port, address) {
        (Some(_), Some(_)) => Finding::good(topic, seen),
        (Some(_), None) => Finding::warn(topic, format!("{seen}: RFC 3581 §4 wants received beside rport"))
            .advise("nothing to do for a measurement: answers come back all the same"),
        _ => Finding::warn(topic, format!("{seen}: it does not know RFC 3581"))
            .advise("nothing to do without a NAT; else let the server add it (Kamailio: force_rport())"),
    }
}

/// If the target is this host: which process listens.
fn listener(target: SocketAddr) -> Option<Finding> {
    // Only an own address can be bound.
    UdpSocket::bind((target.ip(), 0)).ok()?;
    let inodes = SOCKET_LISTS.iter().flat_map(|path| sockets_of(&text(path), target)).collect::<Vec<_>>();
    let owners = if inodes.is_empty() { BTreeMap::new() } else { owners(&inodes) };
    Some(judge_listener(target, inodes.len(), &owners))
}

/// Inodes of the unconnected sockets in a list of the kernel (proc_net(5)) that a datagram for `target` could reach.
pub(super) fn sockets_of(list: &str, target: SocketAddr) -> Vec<u64> {
    list.lines()
        .skip(1)
        .filter_map(|line| {
            let mut words = line.split_whitespace().skip(1);
            let local = kernel_address(words.next()?)?;
            let remote = kernel_address(words.next()?)?;
            let inode = words.nth(6)?.parse().ok()?;
            let ours = local.ip() == target.ip() || local.ip().is_unspecified();
            (local.port() == target.port() && ours && remote.port() == 0).then_some(inode)
        })
        .collect()
}

/// `0100007F:13C4`: words of the address in the host's byte order, each in hexadecimal; the port as usual.
fn kernel_address(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| Some(u32::from_str_radix(address.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
    let ip: IpAddr = match address.len() {
        8 => Ipv4Addr::from(word(0)?).into(),
        32 => {
            let mut bytes = [0; 16];
            for (at, chunk) in bytes.chunks_exact_mut(4).enumerate() {
                chunk.copy_from_slice(&word(at * 8)?);
            }
            Ipv6Addr::from(bytes).to_canonical()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

/// The processes that have one of these sockets open, with their names.
fn owners(inodes: &[u64]) -> BTreeMap<u32, String> {
    let wanted: Vec<String> = inodes.iter().map(|inode| format!("socket:[{inode}]")).collect();
    let mut owners = BTreeMap::new();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten().take(PROCESSES_MAX) {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let descriptors = fs::read_dir(process.path().join("fd")).into_iter().flatten().flatten();
        let has = descriptors
            .take(DESCRIPTORS_MAX)
            .filter_map(|descriptor| fs::read_link(descriptor.path()).ok())
            .any(|link| link.to_str().is_some_and(|link| wanted.iter().any(|wanted| wanted == link)));
        if has {
            owners.insert(pid, visible(text(process.path().join("comm")).trim()));
        }
    }
    owners
}

pub(super) fn judge_listener(target: SocketAddr, sockets: usize, owners: &BTreeMap<u32, String>) -> Finding {
    let topic = "listener";
    if sockets == 0 {
        return Finding::bad(topic, format!("{target} is this host, and nothing listens on that UDP port"))
            .advise("start the server; see what listens: ss -ulnp");
    }
    // A server's first process has its workers below it: the smallest number, short of a wrap.
    let Some((first, name)) = owners.first_key_value() else {
        return Finding::warn(
            topic,
            format!("this host listens on {target}; whose socket it is cannot be seen"),
        )
        .advise("run the doctor as root or as the server's user, or look: sudo ss -ulnp");
    };
    let more = match owners.len() {
        1 => String::new(),
        count => format!(" and {} more processes", count - 1),
    };
    Finding::good(topic, format!("process {first} ({name}){more} on this host, {sockets} sockets")).advise(format!(
        "to count its CPU time: --sut-pid {first}; keep it and the generator on different CPUs (--sut-cpu, --cpus)"
    ))
}
