//! Who listens on a UDP port and what it lost: `/proc/PID/net/udp` and `udp6`.
//!
//! ```text
//!   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops
//! 12503: 0100007F:13CE 00000000:0000 07 00000000:00016800 00:00000000 00000000     0        0 23505 2 0000…fd 28883
//! ```

use super::cpu::Ledger;
use super::procfs::{Proc, fields, number};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

/// More of one table than this is not read (about half a million sockets).
const TABLE_BYTES_MAX: u64 = 64 << 20;
/// Most sockets of one port that are looked at; any more are left out.
const SOCKETS_MAX: usize = 65_536;

/// How often the tables are read at most for a socket that is not in them. The kernel hands a table on in pieces and
/// counts its way to the next one, so that a socket that closes between two of them hides one that is open.
pub(crate) const UDP_LOOKS_MAX: usize = 8;

/// A process that listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// The address that its socket is bound to; the wildcard address where it takes all.
    pub address: SocketAddr,
    /// Its process, unless that is another user's; the first of several that share the socket.
    pub pid: Option<u32>,
    /// The name of that, cut to 15 bytes by the kernel.
    pub name: Option<String>,
}

impl std::fmt::Display for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.pid, &self.name) {
            (Some(pid), Some(name)) => write!(f, "{name} (pid {pid})"),
            (Some(pid), None) => write!(f, "the process {pid}"),
            _ => f.write_str("another user's process"),
        }
    }
}

/// One socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Row {
    local: SocketAddr,
    /// Bound and open for everybody, not connected to one peer.
    open: bool,
    inode: u64,
    drops: u64,
}

/// What listens on UDP datagrams to `target` on this host, in this thread's network namespace; `None` when nothing
/// does, or `/proc` is not there to ask.
#[must_use]
pub fn listening(target: SocketAddr) -> Option<Listener> {
    listening_at(&Proc::system(), target)
}

fn listening_at(proc: &Proc, target: SocketAddr) -> Option<Listener> {
    let row = open_socket(proc, None, target)?;
    let pid = proc.socket_holder(row.inode);
    Some(Listener { address: row.local, pid, name: pid.and_then(|pid| proc.name(pid)) })
}

/// Whether something listens on `target`, to datagrams or connections, where the process `pid` lives.
pub(super) fn is_listening(proc: &Proc, pid: u32, target: SocketAddr) -> bool {
    open_socket(proc, Some(pid), target).is_some()
        || proc.tcp_tables(pid).iter().any(|table| accepts(table, target))
}

/// Whether a table of TCP sockets has one that waits for connections to `target`.
fn accepts(table: &Path, target: SocketAddr) -> bool {
    // There is none where that version of IP is switched off.
    let Ok(file) = File::open(table) else { return false };
    let lines = BufReader::with_capacity(64 << 10, file.take(TABLE_BYTES_MAX)).split(b'\n');
    lines.map_while(Result::ok).filter_map(|line| listener(&line)).any(|local| takes(local, target))
}

/// The address of a row of a TCP table, if its socket waits for connections.
fn listener(line: &[u8]) -> Option<SocketAddr> {
    const LISTEN: &[u8] = b"0A";
    let mut field = fields(line);
    let local = parse_address(field.nth(1)?)?;
    (field.nth(1)? == LISTEN).then_some(local)
}

/// Sums up what the sockets of one address lost, those that were closed since included.
#[derive(Debug, Default)]
pub(super) struct Drops {
    by_inode: Ledger<u64>,
    found: bool,
}

impl Drops {
    /// `None` until a socket was found: the server is not on this port, or is in a container that maps ports.
    pub(super) fn look(&mut self, proc: &Proc, pid: u32, target: SocketAddr) -> Option<u64> {
        let mut now = BTreeMap::new();
        for _ in 0..UDP_LOOKS_MAX {
            // Tables that cannot be read now say nothing of the sockets.
            let Ok(rows) = sockets(proc, Some(pid), target) else { return self.total() };
            now.extend(rows.iter().map(|row| (row.inode, row.drops)));
            if self.by_inode.all_in(&now) {
                break;
            }
        }
        self.found |= !now.is_empty();
        self.by_inode.update(now);
        self.total()
    }

    fn total(&self) -> Option<u64> {
        self.found.then(|| self.by_inode.total())
    }
}

/// A socket that takes datagrams to `target` from everybody.
fn open_socket(proc: &Proc, pid: Option<u32>, target: SocketAddr) -> Option<Row> {
    let mut looks = (0..UDP_LOOKS_MAX).map_while(|_| sockets(proc, pid, target).ok());
    looks.find_map(|rows| rows.into_iter().find(|row| row.open))
}

/// The sockets that datagrams to `target` may go to.
fn sockets(proc: &Proc, pid: Option<u32>, target: SocketAddr) -> io::Result<Vec<Row>> {
    let [v4, v6] = proc.udp_tables(pid);
    let mut rows = of_table(File::open(v4)?, target)?;
    // There is none where IPv6 is switched off.
    if let Ok(file) = File::open(v6) {
        rows.extend(of_table(file, target)?);
    }
    rows.truncate(SOCKETS_MAX);
    Ok(rows)
}

fn of_table(table: impl Read, target: SocketAddr) -> io::Result<Vec<Row>> {
    let mut reader = BufReader::with_capacity(64 << 10, table.take(TABLE_BYTES_MAX));
    let mut rows = Vec::new();
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line)? > 0 {
        // The heading and lines of another form are passed over.
        rows.extend(parse_row(&line).filter(|row| takes(row.local, target)));
        line.clear();
        if rows.len() >= SOCKETS_MAX {
            break;
        }
    }
    Ok(rows)
}

/// Whether a socket bound to `local` takes datagrams to `target`: that port, and that address or any. One bound to `::`
/// takes IPv4 too, unless it is told not to, which the table does not show.
fn takes(local: SocketAddr, target: SocketAddr) -> bool {
    let any = match local.ip() {
        IpAddr::V4(ip) => ip.is_unspecified() && target.is_ipv4(),
        IpAddr::V6(ip) => ip.is_unspecified(),
    };
    local.port() == target.port() && (any || local.ip().to_canonical() == target.ip().to_canonical())
}

fn parse_row(line: &[u8]) -> Option<Row> {
    const UNCONNECTED: &[u8] = b"07";
    let mut field = fields(line);
    let local = parse_address(field.nth(1)?)?;
    let state = field.nth(1)?;
    let inode = number(field.nth(5)?)?;
    let drops = number(field.nth(2)?)?;
    Some(Row { local, open: state == UNCONNECTED, inode, drops })
}

/// `0100007F:13CE`: groups of 32 bits, each a number in the machine's byte order; the port as a plain number.
fn parse_address(field: &[u8]) -> Option<SocketAddr> {
    let (address, port) = std::str::from_utf8(field).ok()?.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let group = |at: usize| {
        let digits = address.get(at * 8..at * 8 + 8)?;
        Some(u32::from_str_radix(digits, 16).ok()?.to_ne_bytes())
    };
    let ip = match address.len() {
        8 => IpAddr::V4(Ipv4Addr::from(group(0)?)),
        32 => {
            let mut octets = [0; 16];
            for (at, bytes) in octets.chunks_exact_mut(4).enumerate() {
                bytes.copy_from_slice(&group(at)?);
            }
            IpAddr::V6(Ipv6Addr::from(octets))
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use super::super::fake::Fake;
    use super::*;
    use std::net::UdpSocket;

    const V4: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n\
        12503: 0100007F:13CE 00000000:0000 07 00000000:00016800 00:00000000 00000000     0        0 23505 2 00000000c189fbfd 28883\n\
        12504: 00000000:13CE 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 23506 2 00000000c189fbfe 17\n\
        12505: 0200007F:13CE 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 23507 2 00000000c189fbff 4\n\
        12506: 0100007F:13CE 0100007F:17C1 01 00000000:00000000 00:00000000 00000000     0        0 23508 2 00000000c189fc00 2\n\
        13514: 0100007F:17C1 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 24091 2 00000000966a9a89 8\n";
    const V6: &str = "  sl  local_address remote_address st tx_queue rx_queue tr tm->when retrnsmt uid timeout inode ref pointer drops\n\
        1: 00000000000000000000000000000000:13CE 00000000000000000000000000000000:0000 07 00000000:00000000 00:00000000 00000000 0 0 900 2 0000 5\n\
        2: 00000000000000000000000001000000:13CE 00000000000000000000000000000000:0000 07 00000000:00000000 00:00000000 00000000 0 0 901 2 0000 6\n";

    fn target(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn inodes(table: &str, to: &str) -> Vec<u64> {
        of_table(table.as_bytes(), target(to)).unwrap().iter().map(|row| row.inode).collect()
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn sockets_are_matched_by_port_and_address_or_wildcard() {
        assert_eq!(inodes(V4, "127.0.0.1:5070"), [23505, 23506, 23508]);
        assert_eq!(inodes(V4, "127.0.0.2:5070"), [23506, 23507]);
        assert_eq!(inodes(V4, "[::1]:5070"), [0; 0], "an IPv4 socket takes no IPv6");
        assert_eq!(inodes(V6, "[::1]:5070"), [900, 901]);
        assert_eq!(inodes(V6, "127.0.0.1:5070"), [900], "the IPv6 wildcard takes IPv4");
        assert_eq!(inodes(V4, "127.0.0.1:5071"), [0; 0]);
    }

    #[test]
    fn lines_of_another_form_are_passed_over() {
        for line in [
            "",
            "\n",
            "1:",
            "1: 0100007F:13CE",
            "1: 0100007F:13CE 0:0 07 0:0 0:0 0 0 0 x 2 0 0",
            "1: 0100007:13CE a b c d e f g 1 2 3 4",
            "1: 0100007F:13CE 0:0 07 0:0 0:0 0 0 0 12 2 0",
            "1: \u{e9}100007F:13CE 0:0 07 0:0 0:0 0 0 0 12 2 0 0",
        ] {
            assert_eq!(parse_row(line.as_bytes()), None, "{line}");
        }
        assert_eq!(of_table(&b"\xff\xfe\n\n:::\n"[..], target("127.0.0.1:1")).unwrap(), []);
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn drops_of_a_closed_socket_stay_counted() {
        let fake = Fake::new();
        fake.process(7, "server", 1).file("net/udp", V4);
        let (mut drops, to) = (Drops::default(), target("127.0.0.1:5070"));
        assert_eq!(drops.look(&fake.proc(), 7, to), Some(28_883 + 17 + 2));
        let rest: Vec<&str> = V4.lines().filter(|line| !line.contains("23505")).collect();
        fake.entry(7).file("net/udp", &rest.join("\n"));
        assert_eq!(drops.look(&fake.proc(), 7, to), Some(28_883 + 17 + 2));
        fake.remove_file(7, "net");
        assert_eq!(drops.look(&fake.proc(), 7, to), Some(28_883 + 17 + 2), "no table says nothing");
    }

    #[test]
    fn no_socket_on_the_port_is_not_no_drops() {
        let fake = Fake::new();
        fake.process(7, "server", 1).file("net/udp", V4);
        assert_eq!(Drops::default().look(&fake.proc(), 7, target("127.0.0.1:9")), None);
        assert_eq!(Drops::default().look(&fake.proc(), 8, target("127.0.0.1:5070")), None);
    }

    #[test]
    fn a_socket_that_is_overrun_shows_its_drops() {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None).unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        socket.bind(&target("127.0.0.1:0").into()).unwrap();
        let receiver: UdpSocket = socket.into();
        let to = receiver.local_addr().unwrap();
        let (proc, pid) = (Proc::system(), std::process::id());
        let mut drops = Drops::default();
        assert_eq!(drops.look(&proc, pid, to), Some(0));
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..200 {
            sender.send_to(&[0; 1000], to).unwrap();
        }
        let lost = drops.look(&proc, pid, to).unwrap();
        // The buffer holds a few; the rest was lost, since nobody read.
        assert!((100..200).contains(&lost), "{lost}");
        drop(receiver);
        assert_eq!(drops.look(&proc, pid, to), Some(lost));
    }

    #[test]
    fn the_process_that_listens_is_named() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = socket.local_addr().unwrap();
        let listener = listening(to).expect("it listens");
        assert_eq!((listener.address, listener.pid), (to, Some(std::process::id())));
        assert!(listener.to_string().contains(&format!("pid {}", std::process::id())), "{listener}");
        assert!(is_listening(&Proc::system(), std::process::id(), to));
        let somebody = Listener { address: to, pid: None, name: None };
        assert_eq!(somebody.to_string(), "another user's process");
    }

    #[test]
    fn a_socket_that_waits_for_connections_listens() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let to = socket.local_addr().unwrap();
        let (proc, pid) = (Proc::system(), std::process::id());
        assert!(is_listening(&proc, pid, to));
        let _connection = std::net::TcpStream::connect(to).unwrap();
        drop(socket);
        assert!(!is_listening(&proc, pid, to), "a connection on the port does not");
    }

    #[test]
    fn a_connected_socket_does_not_listen() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect("127.0.0.1:9").unwrap();
        assert_eq!(listening(socket.local_addr().unwrap()), None);
    }
}
