//! A directory for the files of one server or peer.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::{env, thread};

use crate::unique;

/// A temporary directory: removed when dropped, and kept (and its logs printed) when the test fails.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
}

/// What of a log is printed on failure: its end, which tells most.
const PRINTED_BYTES: usize = 8_000;

impl Scratch {
    /// A new directory whose name begins with `name`.
    ///
    /// # Panics
    ///
    /// When it cannot be created.
    pub fn new(name: &str) -> Self {
        let path = env::temp_dir().join(format!("strowger-e2e-{}-{name}", unique()));
        fs::create_dir_all(&path).expect("the temporary directory is writable");
        Self { path }
    }

    /// The path of a file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file and returns its path.
    ///
    /// # Panics
    ///
    /// When it cannot be written.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.file(name);
        fs::write(&path, text).expect("the scratch directory is writable");
        path
    }

    /// What a file holds by now; nothing if it does not exist.
    pub fn read(&self, name: &str) -> String {
        fs::read(self.file(name))
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// A new file for the output of a child process.
    pub(crate) fn create(&self, name: &str) -> File {
        File::create(self.file(name)).expect("the scratch directory is writable")
    }

    fn print_logs(&self) {
        let Ok(entries) = fs::read_dir(&self.path) else { return };
        for path in entries.flatten().map(|entry| entry.path()) {
            if path.extension().is_none_or(|extension| extension != "log") {
                continue;
            }
            let bytes = fs::read(&path).unwrap_or_default();
            let tail = &bytes[bytes.len().saturating_sub(PRINTED_BYTES)..];
            eprintln!("---- {}\n{}", path.display(), String::from_utf8_lossy(tail));
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if thread::panicking() {
            self.print_logs();
        } else {
            // A directory that stays behind harms nobody.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}
