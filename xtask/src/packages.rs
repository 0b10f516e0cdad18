//! What the end-to-end tests drive (SIP peers, a browser, databases), and how it gets installed.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a test starts, a program or a file of its own place, and the Debian package that brings it.
const NEEDED: &[(&str, &str)] = &[
    ("sipp", "sip-tester"),
    ("sipsak", "sipsak"),
    ("baresip", "baresip-core"),
    ("linphonec", "linphone-cli"),
    ("chromium", "chromium"),
    ("openssl", "openssl"),
    ("c++", "g++"),
    ("ip", "iproute2"),
    ("kamailio", "kamailio"),
    ("/usr/lib/x86_64-linux-gnu/kamailio/modules/tls.so", "kamailio-tls-modules"),
    ("/usr/lib/x86_64-linux-gnu/kamailio/modules/websocket.so", "kamailio-websocket-modules"),
    ("/usr/lib/x86_64-linux-gnu/kamailio/modules/db_postgres.so", "kamailio-postgres-modules"),
    ("/usr/lib/x86_64-linux-gnu/kamailio/modules/db_mysql.so", "kamailio-mysql-modules"),
    ("/usr/lib/x86_64-linux-gnu/kamailio/modules/db_sqlite.so", "kamailio-sqlite-modules"),
    ("/usr/lib/postgresql/15/bin/postgres", "postgresql-15"),
    ("mariadbd", "mariadb-server-core"),
    ("mariadb", "mariadb-client-core"),
    ("sqlite3", "sqlite3"),
    ("setpriv", "util-linux"),
];

/// The npm packages of the browser's phones: `package-lock.json` there says which, to the byte.
const BROWSER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/browser");

/// Where programs of the system's administrator are, which Debian leaves out of the `PATH` of others.
const ADMINISTRATION: [&str; 2] = ["/usr/sbin", "/sbin"];

/// Makes sure that everything needed is there: installs missing Debian packages when run by root, and otherwise says
/// which command will; npm packages need no root.
///
/// # Errors
///
/// The line to tell the developer: what to run by hand, or which installation failed.
pub(crate) fn ensure() -> Result<(), String> {
    debian_packages()?;
    npm_packages()
}

fn debian_packages() -> Result<(), String> {
    let missing = missing_packages();
    if missing.is_empty() {
        return Ok(());
    }
    let install = format!("apt-get install -y --no-install-recommends {}", missing.join(" "));
    if !is_root() {
        return Err(format!(
            "the tests drive SIP peers and databases that are not installed; run:\n    sudo {install}"
        ));
    }
    println!("==> packages: {}", missing.join(" "));
    shell("apt-get update")?;
    shell(&install)?;
    match missing_packages().as_slice() {
        [] => Ok(()),
        still => Err(format!("`{install}` succeeded, yet {} brought no program", still.join(" "))),
    }
}

/// Installs what the lock file says where that is not what is installed: npm keeps a copy of the lock file beside.
fn npm_packages() -> Result<(), String> {
    let directory = Path::new(BROWSER);
    let wanted = directory.join("package-lock.json");
    let stamp = directory.join("node_modules/.strowger-lock.json");
    let text = fs::read(&wanted).map_err(|error| format!("{}: {error}", wanted.display()))?;
    if fs::read(&stamp).is_ok_and(|installed| installed == text) {
        return Ok(());
    }
    if !is_installed("npm") {
        return Err("the tests drive SIP phones in a browser, which need Node.js 20 and npm".to_owned());
    }
    println!("==> npm packages: {BROWSER}");
    shell(&format!("cd {BROWSER} && npm ci --no-audit --no-fund"))?;
    fs::write(&stamp, text).map_err(|error| format!("{}: {error}", stamp.display()))
}

fn missing_packages() -> Vec<&'static str> {
    NEEDED.iter().filter(|(program, _)| !is_installed(program)).map(|(_, package)| *package).collect()
}

fn is_installed(program: &str) -> bool {
    if program.starts_with('/') {
        return Path::new(program).is_file();
    }
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(ADMINISTRATION.iter().map(PathBuf::from))
        .any(|directory| directory.join(program).is_file())
}

fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|id| id.stdout.trim_ascii() == b"0")
}

fn shell(line: &str) -> Result<(), String> {
    let status = Command::new("sh").args(["-c", line]).env("DEBIAN_FRONTEND", "noninteractive").status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("`{line}` failed ({status})")),
        Err(error) => Err(format!("cannot run `sh`: {error}")),
    }
}
