//! The state directory: what a server keeps between its runs, and where its control socket is.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::server::StartError;

/// The control socket's name in the state directory.
const SOCKET: &str = "strowger.sock";

/// The name of the file with the key of nonces.
const NONCE_KEY: &str = "nonce.key";

/// The lock file's.
const LOCK: &str = "strowger.lock";

/// Where a server keeps its state: `--state-dir`, else `$STATE_DIRECTORY` (as systemd sets it), else `/var/lib/strowger`
/// for root, else `$XDG_STATE_HOME/strowger` or `~/.local/state/strowger`.
pub(crate) fn directory(option: Option<&Path>) -> PathBuf {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    // Systemd names several, separated by colons, where a unit has several.
    let of_systemd = || {
        let value = std::env::var("STATE_DIRECTORY").ok()?;
        value.split(':').next().filter(|path| !path.is_empty()).map(PathBuf::from)
    };
    let of_user = || match variable("XDG_STATE_HOME") {
        Some(home) => home.join("strowger"),
        None => variable("HOME").unwrap_or_else(|| PathBuf::from("/")).join(".local/state/strowger"),
    };
    if let Some(path) = option {
        return path.to_owned();
    }
    of_systemd().unwrap_or_else(|| {
        if rustix::process::geteuid().is_root() { PathBuf::from("/var/lib/strowger") } else { of_user() }
    })
}

/// The control socket of the server that keeps its state in `directory`.
pub(crate) fn socket(directory: &Path) -> PathBuf {
    directory.join(SOCKET)
}

/// Makes the directory if it is not there, for its owner only.
///
/// # Errors
///
/// What the system said.
pub(crate) fn make(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

/// The key of nonces that is kept in `directory`, so that phones hear after a restart that their
/// nonces are stale, and do not ask their users; made if it is not there.
/// `None` with a line in the log where it can be neither read nor made: then it is random.
pub(crate) fn nonce_key(directory: &Path, fresh: [u8; 32]) -> Option<[u8; 32]> {
    let path = directory.join(NONCE_KEY);
    let kept = make(directory).and_then(|()| match fs::read(&path) {
        Ok(bytes) => <[u8; 32]>::try_from(bytes).map_err(|_| io::Error::other("it is not 32 bytes long")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let mut file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&path)?;
            file.write_all(&fresh).and_then(|()| file.sync_all()).map(|()| fresh)
        }
        Err(error) => Err(error),
    });
    let say = |error: &io::Error| {
        tracing::warn!(
            "the key of nonces is not kept in {}: {error}; phones are challenged anew after a restart",
            path.display()
        );
    };
    kept.inspect_err(say).ok()
}

/// A file that only one server at a time can hold; it is free again when this is dropped, or the process ends in whatever
/// way.
#[derive(Debug)]
pub(crate) struct Lock(#[expect(dead_code, reason = "held for its lock")] File);

/// Why a lock cannot be had.
#[derive(Debug)]
pub(crate) enum LockError {
    /// Another process has it.
    Taken,
    /// The file cannot be made.
    Failed(io::Error),
}

impl Lock {
    fn take(path: &Path) -> Result<Lock, LockError> {
        let file = OpenOptions::new().create(true).write(true).truncate(false).mode(0o600).open(path);
        let file = file.map_err(LockError::Failed)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Lock(file)),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(LockError::Taken),
            Err(error) => Err(LockError::Failed(error.into())),
        }
    }

    /// The state directory, for one server's control socket.
    ///
    /// # Errors
    ///
    /// See [`LockError`].
    pub(crate) fn of_directory(directory: &Path) -> Result<Lock, LockError> {
        Lock::take(&directory.join(LOCK))
    }

    /// A file of SQLite, for the one server that keeps its bindings there. The lock is a file beside it.
    ///
    /// # Errors
    ///
    /// A sentence that says what to do.
    pub(crate) fn of_database(path: &Path) -> Result<Lock, StartError> {
        let mut name = path.as_os_str().to_owned();
        name.push(".lock");
        Lock::take(Path::new(&name)).map_err(|error| {
            StartError(match error {
                LockError::Taken => format!(
                    "another server keeps its bindings in {}; stop it, or give this one a state directory of its own: \
                     --state-dir DIRECTORY",
                    path.display()
                ),
                LockError::Failed(error) => format!(
                    "cannot lock {}: {error}; is the directory writable? --state-dir DIRECTORY names another",
                    path.display()
                ),
            })
        })
    }
}

/// Makes the state directory for a file of SQLite in it. No other is made: it may be a disk that is not mounted, or a
/// mistake in the name.
///
/// # Errors
///
/// A sentence that says what to do.
pub(crate) fn make_for(file: &Path, state: &Path) -> Result<(), StartError> {
    let Some(parent) = file.parent().filter(|parent| !parent.as_os_str().is_empty()) else { return Ok(()) };
    if fs::metadata(parent).is_ok_and(|found| found.is_dir()) {
        return Ok(());
    }
    if !parent.starts_with(state) {
        return Err(StartError(format!(
            "there is no directory {} for the database {}: make it, or mend the URL (is a disk not mounted?)",
            parent.display(),
            file.display()
        )));
    }
    make(parent).map_err(|error| {
        StartError(format!(
            "cannot make {} for the database: {error}; --state-dir DIRECTORY names another place",
            parent.display()
        ))
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// A directory of its own for one test, gone with it.
    #[derive(Debug)]
    pub(crate) struct Scratch(pub(crate) PathBuf);

    impl Scratch {
        pub(crate) fn new() -> Scratch {
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let name =
                format!("strowger-state-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
            let path = std::env::temp_dir().join(name);
            fs::create_dir_all(&path).unwrap();
            Scratch(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn what_the_command_line_says_comes_first() {
        assert_eq!(directory(Some(Path::new("/srv/x"))), Path::new("/srv/x"));
        assert!(directory(None).ends_with("strowger") || std::env::var_os("STATE_DIRECTORY").is_some());
    }

    #[test]
    fn the_directory_is_its_owners_alone() {
        let scratch = Scratch::new();
        let directory = scratch.0.join("a/b");
        make(&directory).unwrap();
        assert_eq!(fs::metadata(&directory).unwrap().permissions().mode() & 0o777, 0o700);
        make(&directory).unwrap();
    }

    #[test]
    fn only_the_state_directory_is_made() {
        let scratch = Scratch::new();
        let state = scratch.0.join("state");
        make_for(&state.join("strowger.sqlite"), &state).unwrap();
        assert!(state.is_dir());
        let elsewhere = scratch.0.join("mounted/strowger.sqlite");
        let said = make_for(&elsewhere, &state).unwrap_err().to_string();
        assert!(said.contains("mounted") && said.contains("make it"), "{said}");
        assert!(!scratch.0.join("mounted").exists());
    }

    #[test]
    fn the_key_of_nonces_is_made_once_and_kept() {
        let scratch = Scratch::new();
        let directory = scratch.0.join("state");
        assert_eq!(nonce_key(&directory, [1; 32]), Some([1; 32]));
        assert_eq!(nonce_key(&directory, [2; 32]), Some([1; 32]));
        let mode = fs::metadata(directory.join(NONCE_KEY)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        fs::write(directory.join(NONCE_KEY), b"short").unwrap();
        assert_eq!(nonce_key(&directory, [3; 32]), None);
    }

    #[test]
    fn two_servers_cannot_have_one_database() {
        let scratch = Scratch::new();
        let file = scratch.0.join("strowger.sqlite");
        let first = Lock::of_database(&file).unwrap();
        let said = Lock::of_database(&file).unwrap_err().to_string();
        assert!(said.contains("strowger.sqlite") && said.contains("--state-dir"), "{said}");
        drop(first);
        Lock::of_database(&file).unwrap();
        let said = Lock::of_database(Path::new("/nowhere/x.sqlite")).unwrap_err().to_string();
        assert!(said.contains("--state-dir"), "{said}");
    }
}
