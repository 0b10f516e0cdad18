//! The command line: one declaration per option, from which the help comes.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::admin::{Contacts, Databases, Reload, Users};
use crate::certificate::Certificates;

/// A SIP server: registrar, stateful and stateless proxy, redirect server.
#[derive(Debug, Parser)]
#[command(
    name = "strowger",
    version,
    disable_help_subcommand = true,
    subcommand_negates_reqs = true,
    args_conflicts_with_subcommands = true,
    after_help = "Without a configuration file, a registrar and record-routing proxy on udp:127.0.0.1:5060 is started.\n\
                  Exit codes: 0 stopped as asked, 1 usage or set-up, 2 a configuration that does not check."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,

    #[command(flatten)]
    pub(crate) run: Run,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the server (the default).
    Run(Run),
    /// Check a configuration file and say what is wrong with it.
    Check {
        /// The file; `-` reads standard input.
        file: PathBuf,
        /// Define an identifier, as `#!define` does: NAME or NAME=VALUE.
        #[arg(short = 'A', long = "define", value_name = "NAME[=VALUE]")]
        defines: Vec<String>,
    },
    /// Write the built-in configuration to a file, commented, as the place to begin.
    Init {
        /// The file to write; it must not exist.
        #[arg(default_value = "strowger.cfg")]
        file: PathBuf,
    },
    /// Make and show certificates for TLS: a CA of your own, servers, clients.
    #[command(
        subcommand,
        arg_required_else_help = true,
        disable_help_subcommand = true,
        after_help = "A phone over TLS in three commands:\n\n  \
                      strowger cert ca --out ca\n  \
                      strowger cert server --ca ca --name example.com --out .\n  \
                      strowger cert show example.com.pem\n\n\
                      The second one says what to put into the configuration; phones are given ca/ca.pem to trust."
    )]
    Cert(Certificates),
    /// Add, change, remove and list users, who may register and call.
    #[command(
        subcommand,
        arg_required_else_help = true,
        disable_help_subcommand = true,
        after_help = "Examples:\n\n  \
                      strowger user add alice                      asks for the password, twice\n  \
                      strowger user add alice@example.com -f strowger.cfg\n  \
                      echo \"$SECRET\" | strowger user passwd alice --password-stdin\n  \
                      strowger user list --json\n\n\
                      Without -f or --db the users are those of the built-in configuration, in the state directory.\n\
                      A running server knows at once. Exit codes: 0 done, 1 not done, 2 a configuration that does not check."
    )]
    User(Users),
    /// List, show and remove contacts: who is registered, and where.
    #[command(
        subcommand,
        arg_required_else_help = true,
        disable_help_subcommand = true,
        after_help = "Examples:\n\n  \
                      strowger contacts list\n  \
                      strowger contacts show alice\n  \
                      strowger contacts rm alice sip:alice@192.0.2.7:5060\n\n\
                      A running server is asked; where none runs, the database is read, and the answer says so.\n\
                      Exit codes: 0 done, 1 not done, 2 a configuration that does not check."
    )]
    Contacts(Contacts),
    /// Have a running server read its certificates and the tables that it holds in memory again.
    ///
    /// The tables are `domain` and `domain_attrs`, and the groups of `permissions`: `address`, `trusted`, or its file. Users and
    /// aliases are asked for row by row; the configuration file itself is read at start alone. SIGHUP does the same.
    #[command(
        after_help = "What cannot be read, or says what cannot be, changes nothing: what was in use stays so.\n\
                      Exit codes: 0 read again, 1 something was not, or no server runs."
    )]
    Reload(Reload),
    /// Make and check the tables of a database.
    #[command(
        subcommand,
        arg_required_else_help = true,
        disable_help_subcommand = true,
        after_help = "Examples:\n\n  \
                      strowger db create --db postgres://strowger@db.example.com/strowger\n  \
                      strowger db check -f strowger.cfg\n\n\
                      A file of SQLite needs neither: it is made with all tables when it is first used.\n\
                      Exit codes: 0 done, 1 not done, 2 a configuration that does not check."
    )]
    Db(Databases),
    /// Print the reference of all modules, functions, parameters, variables and settings (Markdown).
    Reference,
}

/// How to run the server.
#[derive(Args, Clone, Debug)]
pub(crate) struct Run {
    /// The configuration file, in the language of SER and Kamailio; `-` reads standard input.
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,

    /// The same, as Kamailio has it.
    #[arg(short = 'f', long = "file", value_name = "FILE", conflicts_with = "file")]
    pub(crate) file_option: Option<PathBuf>,

    /// Listen here instead of where the configuration says; may be given several times.
    ///
    /// `udp:192.0.2.1:5060`, `tcp:[2001:db8::1]:5060`, `tls:eth0:5061`, `ws:` or `wss:`; without a transport it is UDP,
    /// without a port that of the configuration or of the transport.
    #[arg(short = 'l', long = "listen", value_name = "ADDRESS")]
    pub(crate) listen: Vec<String>,

    /// Worker threads, each with its own sockets and transactions; by default one per CPU it may use.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=64))]
    pub(crate) shards: Option<u8>,

    /// After SIGTERM, answer what is in flight for at most this long (a second SIGTERM stops at once).
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = duration)]
    pub(crate) drain_timeout: Duration,

    /// Let messages gather for this long before a busy shard handles them, 0 to handle each at once.
    ///
    /// It saves wake-ups, as a network card's interrupt moderation does: the shard waits for about eight messages,
    /// never longer than this, and not at all while fewer than two arrive in such a time: a quiet server answers at
    /// once. At most 10ms.
    #[arg(long, value_name = "TIME", default_value = "500us", value_parser = gather)]
    pub(crate) gather: Duration,

    /// Where the server keeps its state: the embedded database, the control socket.
    ///
    /// By default $STATE_DIRECTORY, else /var/lib/strowger for root, else $XDG_STATE_HOME/strowger or
    /// ~/.local/state/strowger. It is made when it is needed.
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) state_dir: Option<PathBuf>,

    /// What to log: error, warn, info, debug or trace; by default what `debug=` in the configuration says.
    #[arg(long, value_name = "LEVEL")]
    pub(crate) log: Option<tracing::level_filters::LevelFilter>,

    /// Define an identifier, as `#!define` does: NAME or NAME=VALUE.
    #[arg(short = 'A', long = "define", value_name = "NAME[=VALUE]")]
    pub(crate) defines: Vec<String>,
}

impl Run {
    /// The configuration file, however it was given.
    pub(crate) fn file(&self) -> Option<&PathBuf> {
        self.file.as_ref().or(self.file_option.as_ref())
    }
}

/// Reads `5s`, `200ms`, `100us`, `2m`; a bare number counts seconds.
fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 =
        number.parse().map_err(|_| "use a number and a unit: 5s, 200ms, 100us, 2m".to_owned())?;
    match unit {
        "us" => Ok(Duration::from_micros(number)),
        "ms" => Ok(Duration::from_millis(number)),
        "" | "s" => Ok(Duration::from_secs(number)),
        "m" => Ok(Duration::from_secs(number.saturating_mul(60))),
        _ => Err(format!("unknown unit '{unit}'; use us, ms, s or m")),
    }
}

fn gather(text: &str) -> Result<Duration, String> {
    /// Past this the delay would be heard of: a call passes a proxy about six times before it rings and answers.
    const MAX: Duration = Duration::from_millis(10);
    match duration(text)? {
        time if time <= MAX => Ok(time),
        _ => Err("at most 10ms".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_declarations_are_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn run_is_the_default_command() {
        for arguments in [["strowger", "x.cfg"].as_slice(), &["strowger", "-f", "x.cfg"]] {
            let cli = Cli::try_parse_from(arguments).unwrap();
            assert!(cli.command.is_none());
            assert_eq!(cli.run.file(), Some(&PathBuf::from("x.cfg")));
        }
        let cli = Cli::try_parse_from(["strowger", "run", "x.cfg", "--shards", "2"]).unwrap();
        let Some(Command::Run(run)) = cli.command else { panic!("not run") };
        assert_eq!((run.file(), run.shards), (Some(&PathBuf::from("x.cfg")), Some(2)));
    }

    #[test]
    fn durations_have_units() {
        assert_eq!(duration("100us"), Ok(Duration::from_micros(100)));
        assert_eq!(duration("5"), Ok(Duration::from_secs(5)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        for wrong in ["", "s", "5h", "-1s", "1.5s"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
        assert!(gather("11ms").is_err());
    }
}
