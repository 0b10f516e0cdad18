//! Where a database is: `sqlite:PATH`, `postgres://…`, `mysql://…`, as Kamailio and as drivers write them.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use sqlx::mysql::MySqlConnectOptions;
use sqlx::postgres::PgConnectOptions;

use crate::StoreError;

/// The name of SQLite's file where the URL names none.
const DEFAULT_FILE: &str = "strowger.sqlite";

/// Parameters of a PostgreSQL URL. Others are refused: the driver would write them to the log, values and
/// all.
const POSTGRES_PARAMETERS: &[&str] = &[
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "password",
    "application_name",
    "options",
    "statement-cache-capacity",
];

/// Parameters of a MySQL URL.
const MYSQL_PARAMETERS: &[&str] = &[
    "sslmode",
    "ssl-mode",
    "sslca",
    "ssl-ca",
    "sslcert",
    "ssl-cert",
    "sslkey",
    "ssl-key",
    "charset",
    "collation",
    "socket",
    "statement-cache-capacity",
];

/// A database's place. Printing it hides the password.
#[derive(Clone, PartialEq, Eq)]
pub enum Url {
    /// A file of SQLite.
    Sqlite(PathBuf),
    /// PostgreSQL (`postgres:`, `postgresql:`), as its driver wants it.
    Postgres(String),
    /// MySQL or MariaDB (`mysql:`, `mariadb:`), as its driver wants it.
    MySql(String),
}

impl Url {
    /// Reads a URL; `sqlite:` without a path, or with a relative one, is in `state`, the state directory
    /// (`sqlite:` alone is `strowger.sqlite` there).
    ///
    /// `sqlite:/path`, `sqlite:///path` and Kamailio's `sqlite:////path` are the same file. PostgreSQL and
    /// MySQL take `//user:password@host:port/database?parameters`, with `%`-escapes; a Unix socket is
    /// `?host=/run/postgresql` for PostgreSQL and `?socket=/run/mysqld/mysqld.sock` for MySQL. Whether the
    /// connection is encrypted says `sslmode` (`disable`, `prefer`, the default, `require`, `verify-ca`,
    /// `verify-full`) or `ssl-mode` (`disabled`, `preferred`, `required`, `verify_ca`, `verify_identity`).
    ///
    /// # Errors
    ///
    /// [`StoreError::Wrong`] says what to write. It never repeats the URL.
    pub fn parse(text: &str, state: &Path) -> Result<Url, StoreError> {
        let Some((scheme, rest)) = text.trim().split_once(':') else {
            return Err(wrong(
                "a database's URL begins with sqlite:, postgres:// or mysql://, as in sqlite:strowger.sqlite",
            ));
        };
        match scheme.to_ascii_lowercase().as_str() {
            "sqlite" | "sqlite3" => sqlite_path(rest, state).map(Url::Sqlite),
            "postgres" | "postgresql" => postgres(rest),
            "mysql" | "mariadb" => mysql(rest),
            "text" | "dbtext" | "redis" | "oracle" | "unixodbc" | "cassandra" | "mongodb" | "http" => {
                Err(wrong(
                    "of Kamailio's databases only sqlite:, postgres: and mysql: are supported; \
                 write one of these, as in sqlite:strowger.sqlite",
                ))
            }
            _ => Err(wrong(
                "the scheme of a database's URL is sqlite:, postgres: or mysql:, as in sqlite:strowger.sqlite",
            )),
        }
    }
}

fn wrong(text: &str) -> StoreError {
    StoreError::Wrong(text.to_string())
}

/// The file that is meant by what follows `sqlite:`.
fn sqlite_path(rest: &str, state: &Path) -> Result<PathBuf, StoreError> {
    if rest == ":memory:" {
        return Err(wrong(
            "sqlite::memory: would keep nothing; use the memory mode (db_mode 0) or name a file, \
             as in sqlite:strowger.sqlite",
        ));
    }
    if rest.contains(['?', '\0']) {
        return Err(wrong("the URL of a SQLite file has no parameters; write sqlite:/path/to/file.sqlite"));
    }
    let path = match rest.strip_prefix("//") {
        // Kamailio's form: after `sqlite://` comes the path, with as many slashes as its writer liked.
        Some(path) if path.starts_with('/') => format!("/{}", path.trim_start_matches('/')),
        Some(path) => path.to_string(),
        None => rest.to_string(),
    };
    if path.ends_with('/') {
        return Err(wrong("the URL names a directory; write sqlite:/path/to/file.sqlite"));
    }
    let file = if path.is_empty() { DEFAULT_FILE } else { path.as_str() };
    Ok(state.join(file))
}

/// The parts that both drivers need: a URL of a known form with known parameters.
fn server(scheme: &str, rest: &str, known: &[&str]) -> Result<url::Url, StoreError> {
    let example = format!("{scheme}://user:password@host/database");
    let parsed = url::Url::parse(&format!("{scheme}:{rest}")).ok().filter(|_| rest.starts_with("//"));
    let Some(parsed) = parsed else {
        return Err(StoreError::Wrong(format!(
            "the database's URL cannot be read; write {example}, and characters like @, / and # of a password \
             with a percent sign and two hexadecimal digits (%40, %2F, %23)"
        )));
    };
    for (key, _) in parsed.query_pairs() {
        if !known.contains(&&*key) {
            return Err(StoreError::Wrong(format!(
                "the parameter {key} of the database's URL is not known; there are {}",
                known.join(", ")
            )));
        }
    }
    Ok(parsed)
}

fn postgres(rest: &str) -> Result<Url, StoreError> {
    let parsed = server("postgres", rest, POSTGRES_PARAMETERS)?;
    // The driver's message may repeat a value, so it is not passed on.
    let options = PgConnectOptions::from_str(parsed.as_str()).map_err(|_| {
        wrong(
            "a parameter of the database's URL is wrong: sslmode is disable, prefer, require, verify-ca or \
             verify-full, port a number, hostaddr an address",
        )
    })?;
    if options.get_database().is_none() {
        return Err(wrong("the database's URL names no database; write postgres://user@host/database"));
    }
    Ok(Url::Postgres(parsed.to_string()))
}

fn mysql(rest: &str) -> Result<Url, StoreError> {
    let parsed = server("mysql", rest, MYSQL_PARAMETERS)?;
    let options = MySqlConnectOptions::from_str(parsed.as_str()).map_err(|_| {
        wrong(
            "a parameter of the database's URL is wrong: ssl-mode is disabled, preferred, required, \
             verify_ca or verify_identity",
        )
    })?;
    if options.get_database().is_none() {
        return Err(wrong("the database's URL names no database; write mysql://user@host/database"));
    }
    Ok(Url::MySql(parsed.to_string()))
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Url {
    /// The place without the password: it can be shown, and written again with the password where it was.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Url::Sqlite(path) => return write!(f, "sqlite:{}", path.display()),
            Url::Postgres(text) | Url::MySql(text) => text,
        };
        let Ok(parsed) = url::Url::parse(text) else {
            return f.write_str(if matches!(self, Url::Postgres(_)) { "postgres:" } else { "mysql:" });
        };
        write!(f, "{}://", parsed.scheme())?;
        if !parsed.username().is_empty() {
            write!(f, "{}@", parsed.username())?;
        }
        f.write_str(parsed.host_str().unwrap_or(""))?;
        if let Some(port) = parsed.port() {
            write!(f, ":{port}")?;
        }
        f.write_str(parsed.path())?;
        let mut separator = '?';
        for (key, value) in parsed.query_pairs() {
            if key == "host" || key == "socket" || key == "port" || key == "dbname" || key == "user" {
                write!(f, "{separator}{key}={value}")?;
                separator = '&';
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Url, StoreError> {
        Url::parse(text, Path::new("/state"))
    }

    fn file(text: &str) -> PathBuf {
        match parse(text) {
            Ok(Url::Sqlite(path)) => path,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn sqlite_files_are_relative_to_the_state_directory() {
        assert_eq!(file("sqlite:"), Path::new("/state/strowger.sqlite"));
        assert_eq!(file("sqlite:other.db"), Path::new("/state/other.db"));
        assert_eq!(file("sqlite://other.db"), Path::new("/state/other.db"));
        for same in ["sqlite:/a/b.db", "sqlite:///a/b.db", "sqlite:////a/b.db", "SQLite:/a/b.db"] {
            assert_eq!(file(same), Path::new("/a/b.db"), "{same}");
        }
    }

    #[test]
    fn what_is_no_url_is_refused_with_a_sentence() {
        for bad in [
            "",
            "kamailio",
            "oracle://x/y",
            "text:///a",
            "sqlite::memory:",
            "sqlite:/a/",
            "sqlite:/a?mode=ro",
            "postgres:db",
            "postgres://host",
            "mysql://host/",
            "postgres://u:p@h/db?sslmode=perhaps",
            "postgres://u:p@h/db?pasword=geheim",
            "mysql://u:p@h:port/db",
        ] {
            match parse(bad) {
                Err(StoreError::Wrong(text)) => {
                    assert!(text.len() > 30 && !text.contains("geheim"), "{bad}: {text}");
                }
                other => panic!("{bad}: {other:?}"),
            }
        }
    }

    #[test]
    fn passwords_are_never_printed() {
        for text in [
            "postgres://carol:geheim@db.example.com:5433/sip?sslmode=require",
            "postgresql:///sip?host=/run/postgresql&user=carol&password=geheim",
            "mysql://carol:geheim@db.example.com/sip",
            "mariadb://carol:geheim@localhost/sip?socket=/run/mysqld/mysqld.sock",
        ] {
            let url = parse(text).expect(text);
            let shown = format!("{url} {url:?}");
            assert!(!shown.contains("geheim"), "{shown}");
            assert!(shown.contains("carol") && shown.contains("/sip"), "{shown}");
        }
    }
}
