//! Addresses and names that no other test uses.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

/// The SIP port that servers and SIPp peers use, each on its own address.
pub const SIP_PORT: u16 = 5060;

/// A loopback address that nobody else uses: the middle octets come from our process id, the last one counts.
///
/// # Panics
///
/// After 254 addresses in one process.
pub fn loopback() -> Ipv4Addr {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let last = NEXT.fetch_add(1, Ordering::Relaxed);
    let process = process::id();
    let octet =
        |number: u32| u8::try_from(number).expect("invariant: every number below is reduced to an octet");
    assert!(last <= 254, "one test process has 254 addresses; split the test file");
    Ipv4Addr::new(127, octet(1 + process / 254 % 250), octet(1 + process % 254), octet(last))
}

/// A token that is used once: for branches, tags and Call-IDs.
pub fn unique() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    format!("{:x}-{:x}", process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// An address on `::1`, which there is only one of, with a port that was free a moment ago.
///
/// # Panics
///
/// When the machine has no IPv6 loopback.
pub fn loopback_v6() -> SocketAddr {
    let socket = UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).expect("the machine has ::1");
    socket.local_addr().expect("invariant: the socket is bound")
}
