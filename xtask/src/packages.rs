//! The SIP peers that the end-to-end tests drive, and how they get installed.

use std::env;
use std::path::PathBuf;
use std::process::Command;

/// A program that a test starts and the Debian package that brings it.
const NEEDED: &[(&str, &str)] =
    &[("sipp", "sip-tester"), ("sipsak", "sipsak"), ("baresip", "baresip-core"), ("kamailio", "kamailio")];

/// Where programs of the system's administrator are, which Debian leaves out of the `PATH` of others.
const ADMINISTRATION: [&str; 2] = ["/usr/sbin", "/sbin"];

/// Makes sure that every needed program is there: installs what is missing when run by root, and otherwise
/// says which command will.
///
/// # Errors
///
/// The line to tell the developer: what to run by hand, or which installation failed.
pub(crate) fn ensure() -> Result<(), String> {
    let missing = missing_packages();
    if missing.is_empty() {
        return Ok(());
    }
    let install = format!("apt-get install -y --no-install-recommends {}", missing.join(" "));
    if !is_root() {
        return Err(format!("the tests drive SIP peers that are not installed; run:\n    sudo {install}"));
    }
    println!("==> packages: {}", missing.join(" "));
    shell("apt-get update")?;
    shell(&install)?;
    match missing_packages().as_slice() {
        [] => Ok(()),
        still => Err(format!("`{install}` succeeded, yet {} brought no program", still.join(" "))),
    }
}

fn missing_packages() -> Vec<&'static str> {
    NEEDED.iter().filter(|(program, _)| !is_installed(program)).map(|(_, package)| *package).collect()
}

fn is_installed(program: &str) -> bool {
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
