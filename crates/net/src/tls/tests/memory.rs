//! What an idle TLS connection costs in memory.

use super::*;
use std::process::Command;

/// Sessions on each side.
const SESSIONS: usize = 1_000;

/// What an idle TLS connection may take of memory in user space.
const BYTES_MAX: usize = 16 * 1024;

const CHILD: &str = "NET_TLS_MEMORY_CHILD";

/// Bytes of memory that are resident.
fn resident() -> usize {
    let pages = fs::read_to_string("/proc/self/statm").unwrap();
    pages.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 4_096
}

/// In processes of their own, so that nothing else counts and no freed memory is used again.
#[test]
fn an_idle_connection_is_small() {
    match std::env::var(CHILD).as_deref() {
        Ok("1.2") => return measure(ONLY_1_2),
        Ok(_) => return measure(ONLY_1_3),
        Err(_) => {}
    }
    let name = "tls::tests::memory::an_idle_connection_is_small";
    for version in ["1.2", "1.3"] {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(CHILD, version)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
        let measured = text.lines().find(|line| line.starts_with("an idle")).unwrap_or_default();
        println!("TLS {version}: {measured}");
    }
}

/// Opens sessions which have spoken once; both halves are in this process, and are halved.
fn measure(versions: (TlsVersion, TlsVersion)) {
    let pki = Pki::new();
    let own = pki.simple("server", "example.org");
    let server = servers(vec![Profile { versions, ..server_profile(&[own]) }]);
    let mut couple = Couple::new(&server, &clients(client_profile(Some(&pki.ca))));
    let _warm: Vec<_> = (0..50).map(|_| couple.talk(Some("example.org"))).collect();
    let before = resident();
    let sessions: Vec<_> = (0..SESSIONS).map(|_| couple.talk(Some("example.org"))).collect();
    let each = resident().saturating_sub(before) / (2 * SESSIONS);
    let told = (sessions[0].0.session.memory() + sessions[0].1.session.memory()) / 2;
    println!("\nan idle connection takes {each} bytes, {told} by its own account");
    assert!(each < BYTES_MAX, "{each} bytes");
    assert!(told < 2 * each && told > each / 2, "the account is off: {told}, {each}");
}
