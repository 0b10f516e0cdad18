//! The folder in which a measured server finds its certificates and configuration.
//!
//! A template is any text with placeholders: `{dir}`, `{certs}`, `{config}`, `{mode}`, `{security}`, `{mutual}`
//! (`yes` or `no`), `{host}`, `{port}`, `{tls_port}`. Other braces stay as they are: configurations of SIP
//! servers are full of them.

use super::{Configuration, Security};
use std::fs;
use std::io::Read;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Templates of one folder at most.
pub const FILES_MAX: usize = 64;

/// Largest template, bytes.
pub const FILE_BYTES_MAX: u64 = 1 << 20;

/// Names of scratch folders that are tried when others exist.
const NAMES_MAX: u32 = 100;

/// A folder of this user only, removed with all that is in it when dropped.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// A new one among the system's temporary files.
    ///
    /// # Errors
    /// None can be made there, or its path has characters that a command could not carry without quotes.
    pub fn create() -> Result<Scratch, String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let parent = std::env::temp_dir();
        let plain = |c: char| c.is_alphanumeric() || "/-_.+,@".contains(c);
        if !parent.to_str().is_some_and(|path| path.chars().all(plain)) {
            return Err(format!(
                "the path {} cannot stand in a command: set TMPDIR to one without blanks and quotes",
                parent.display()
            ));
        }
        let mut last = None;
        for _ in 0..NAMES_MAX {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = parent.join(format!("sipstone-grid-{}-{number}", std::process::id()));
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Scratch { path }),
                Err(error) => last = Some(error),
            }
        }
        let why = last.map_or_else(String::new, |error| format!(": {error}"));
        Err(format!("no folder can be made in {}{why}; set TMPDIR", parent.display()))
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the templates of a folder here, filled in; what was here of the same name is replaced.
    ///
    /// # Errors
    /// The folder cannot be read, has more than [`FILES_MAX`] files, or one that is larger than
    /// [`FILE_BYTES_MAX`] or no text.
    pub fn fill(&self, templates: &Path, values: &Values<'_>) -> Result<(), String> {
        let cannot = |what: &str, path: &Path, error: &dyn std::fmt::Display| {
            format!("{} cannot be {what}: {error}", path.display())
        };
        let entries = fs::read_dir(templates).map_err(|error| cannot("read", templates, &error))?;
        let mut files = 0;
        for entry in entries {
            let path = entry.map_err(|error| cannot("read", templates, &error))?.path();
            let (true, Some(name)) = (path.is_file(), path.file_name()) else { continue };
            files += 1;
            if files > FILES_MAX {
                return Err(format!(
                    "{} has more than {FILES_MAX} files: give a folder with the server's only",
                    templates.display()
                ));
            }
            let mut text = String::new();
            fs::File::open(&path)
                .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text))
                .map_err(|error| cannot("read", &path, &error))?;
            if text.len() as u64 > FILE_BYTES_MAX {
                return Err(format!(
                    "{} is larger than {FILE_BYTES_MAX} bytes, so it is no configuration",
                    path.display()
                ));
            }
            let here = self.path.join(name);
            fs::write(&here, values.fill(&text)).map_err(|error| cannot("written", &here, &error))?;
        }
        Ok(())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed is left to the system, which empties its temporary files.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// What the placeholders stand for.
#[derive(Clone, Copy, Debug)]
pub struct Values<'a> {
    /// `{dir}`: where the filled templates are.
    pub folder: &'a Path,
    /// `{certs}`: where the certificates are.
    pub certificates: &'a Path,
    /// `{config}`, `{mode}`, `{security}`, `{mutual}`.
    pub configuration: Configuration,
    /// `{host}`, `{port}`: UDP and TCP.
    pub address: SocketAddr,
    /// `{tls_port}`.
    pub tls_port: u16,
}

impl Values<'_> {
    /// The text with its placeholders filled in.
    #[must_use]
    pub fn fill(&self, text: &str) -> String {
        let (folder, certificates) =
            (self.folder.display().to_string(), self.certificates.display().to_string());
        let host = match self.address {
            SocketAddr::V4(address) => address.ip().to_string(),
            SocketAddr::V6(address) => format!("[{}]", address.ip()),
        };
        let mutual = if self.configuration.security == Security::TlsMutual { "yes" } else { "no" };
        text.replace("{dir}", &folder)
            .replace("{certs}", &certificates)
            .replace("{config}", &self.configuration.id())
            .replace("{mode}", self.configuration.mode.word())
            .replace("{security}", self.configuration.security.word())
            .replace("{mutual}", mutual)
            .replace("{host}", &host)
            .replace("{port}", &self.address.port().to_string())
            .replace("{tls_port}", &self.tls_port.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn values(folder: &Path, id: &str) -> String {
        let values = Values {
            folder,
            certificates: Path::new("/c"),
            configuration: Configuration::of_id(id).unwrap(),
            address: "127.0.0.1:5070".parse().unwrap(),
            tls_port: 5071,
        };
        values.fill("server -f {dir}/{config}.cfg {certs} {mode} {security} {mutual} {host}:{port} {tls_port} $(fU{s.len})")
    }

    #[test]
    fn placeholders_are_filled_and_other_braces_stay() {
        assert_eq!(
            values(Path::new("/x"), "local-tls-mutual"),
            "server -f /x/local-tls-mutual.cfg /c local tls-mutual yes 127.0.0.1:5070 5071 $(fU{s.len})"
        );
        assert!(values(Path::new("/x"), "chain-tls").contains(" no "));
    }

    #[test]
    fn addresses_of_version_6_stand_in_brackets() {
        let values = Values {
            folder: Path::new("/x"),
            certificates: Path::new("/c"),
            configuration: Configuration::of_id("chain-udp").unwrap(),
            address: "[::1]:5070".parse().unwrap(),
            tls_port: 1,
        };
        assert_eq!(values.fill("{host}:{port}"), "[::1]:5070");
    }

    #[test]
    fn templates_are_filled_into_a_folder_of_this_user_which_goes_away() {
        let templates = Scratch::create().unwrap();
        fs::write(templates.path().join("a.cfg"), "port={port}\n").unwrap();
        fs::create_dir(templates.path().join("folder")).unwrap();
        let scratch = Scratch::create().unwrap();
        let path = scratch.path().to_owned();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        let values = Values {
            folder: &path,
            certificates: &path,
            configuration: Configuration::of_id("chain-udp").unwrap(),
            address: "127.0.0.1:5070".parse().unwrap(),
            tls_port: 1,
        };
        scratch.fill(templates.path(), &values).unwrap();
        assert_eq!(fs::read_to_string(path.join("a.cfg")).unwrap(), "port=5070\n");
        assert!(
            scratch
                .fill(Path::new("/nonexistent/templates"), &values)
                .unwrap_err()
                .contains("cannot be read")
        );
        fs::write(templates.path().join("b.bin"), [0xff, 0xfe]).unwrap();
        assert!(scratch.fill(templates.path(), &values).unwrap_err().contains("b.bin"));
        drop(scratch);
        assert!(!path.exists());
    }
}
