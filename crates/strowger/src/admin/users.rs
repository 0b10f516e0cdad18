//! `strowger user`: who may register, and with which password.
//!
//! What is stored is H(A1) of RFC 2617 §3.2.2.2 and RFC 7616 §3.4.2 for each algorithm, not the password: it is good for
//! this realm and no other. It is a secret all the same, since it is all that a phone needs.

use std::net::IpAddr;

use clap::{Args, Subcommand};
use modules::{ListenHost, Settings};
use serde_json::json;
use sip::digest::Algorithm;
use store::{Database, StoreError, Url, User};

use super::password::{self, Password, Source};
use super::user_table::UserTable;
use super::{AdminError, MakeFile, Place, THERE_ARE_MORE, counted, table};
use crate::control::{self, CallError};
use crate::state;

/// Users in one list where the command does not say how many.
const LIST_DEFAULT: usize = 1_000_000;

/// Users that a new one is compared with, at most.
const COMPARED_MAX: usize = 1_000_000;

/// The longest name of a user or a domain, in bytes: Kamailio's columns have 64.
const NAME_BYTES_MAX: usize = 64;

/// `strowger user`.
#[derive(Debug, Subcommand)]
pub(crate) enum Users {
    /// Add a user; the password is asked for.
    Add(Change),
    /// Give a user another password.
    Passwd(Change),
    /// Remove a user. What is registered stays until it expires: see `strowger contacts rm`.
    Del(Name),
    /// List users.
    List(List),
}

/// A user and a password.
#[derive(Args, Debug)]
pub(crate) struct Change {
    #[command(flatten)]
    name: Name,

    /// Read the password from the first line of standard input instead of asking for it.
    #[arg(long)]
    password_stdin: bool,

    /// Store the password itself, too, for servers that need it. By default only hashes are stored.
    #[arg(long)]
    clear: bool,
}

/// A user.
#[derive(Args, Debug)]
pub(crate) struct Name {
    /// The user: NAME, or NAME@DOMAIN.
    #[arg(value_name = "NAME[@DOMAIN]")]
    name: String,

    /// The domain, which is the realm that phones are asked for; by default that of the configuration.
    #[arg(long, value_name = "DOMAIN")]
    domain: Option<String>,

    /// The table of users, where the configuration has several or names it in a variable.
    #[arg(long, value_name = "TABLE")]
    table: Option<String>,

    #[command(flatten)]
    place: Place,
}

/// Which users.
#[derive(Args, Debug)]
pub(crate) struct List {
    /// Only those of this domain.
    #[arg(long, value_name = "DOMAIN")]
    domain: Option<String>,

    /// Users at most; 0 for all.
    #[arg(long, value_name = "N", default_value_t = LIST_DEFAULT)]
    limit: usize,

    /// Print JSON: an array of objects.
    #[arg(long)]
    json: bool,

    /// The table of users, where the configuration has several or names it in a variable.
    #[arg(long, value_name = "TABLE")]
    table: Option<String>,

    #[command(flatten)]
    place: Place,
}

/// Runs a command; returns what to print.
///
/// # Errors
///
/// See [`AdminError`].
pub(crate) fn run(command: &Users) -> Result<String, AdminError> {
    let source = |change: &Change| {
        if change.password_stdin { Source::StandardInput } else { Source::Terminal }
    };
    match command {
        Users::Add(change) => add(change, |user| password::ask(source(change), user)),
        Users::Passwd(change) => passwd(change, |user| password::ask(source(change), user)),
        Users::Del(name) => remove(name),
        Users::List(list) => self::list(list),
    }
}

/// Name and domain, and where they are kept.
struct Target {
    username: String,
    domain: String,
    table: UserTable,
    /// Users are told apart by the case of their letters (`case_sensitive` of `registrar`).
    case_sensitive: bool,
}

impl Name {
    fn target(&self) -> Result<Target, AdminError> {
        let loaded = self.place.load()?;
        let (username, of_name) = match self.name.rsplit_once('@') {
            Some((username, domain)) => (username, Some(domain)),
            None => (self.name.as_str(), None),
        };
        if let (Some(one), Some(other)) = (of_name, self.domain.as_deref())
            && !one.eq_ignore_ascii_case(other)
        {
            return Err(AdminError::Line(format!("two domains, {one} and {other}: which one?")));
        }
        let domain = of_name.or(self.domain.as_deref()).map(str::to_ascii_lowercase);
        let domain = domain.unwrap_or_else(|| default_domain(&loaded.settings));
        check_name("user", username)?;
        check_name("domain", &domain)?;
        let table = self.place.user_table(&loaded, self.table.as_deref())?;
        let case_sensitive = loaded.settings.registrar.case_sensitive;
        Ok(Target { username: username.to_owned(), domain, table, case_sensitive })
    }
}

/// What can be in a URI and in quotes, so that every phone can say it.
fn check_name(what: &str, name: &str) -> Result<(), AdminError> {
    let is_odd = |c: char| c.is_control() || c.is_whitespace() || "<>@:,;?/".contains(c);
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains(is_odd) {
        return Err(AdminError::Line(format!(
            "'{}' is no name of a {what}: 1 to {NAME_BYTES_MAX} letters, digits and signs like . - _ +",
            name.escape_debug()
        )));
    }
    Ok(())
}

/// A new name has nothing that is written otherwise in a URI or in quotes: it would be read as somebody else's. Users of other
/// programs may have it, so that they can be removed.
fn check_new_name(what: &str, name: &str) -> Result<(), AdminError> {
    let why = match name.chars().find(|c| "%\"\\".contains(*c)) {
        None => return Ok(()),
        Some('%') => "% begins an escape in a URI: %41 is the letter A",
        Some(_) => "\" and \\ end a text in quotes or change what follows",
    };
    Err(AdminError::Line(format!(
        "'{name}' is no name of a new {what}, it would be read as another one: {why}; choose one without"
    )))
}

/// The domain of users where none is said: the realm that the script asks phones for, else the first name of the server
/// that others can use, else its address.
pub(crate) fn default_domain(settings: &Settings) -> String {
    let is_for_others =
        |host: &str| host != "localhost" && !host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    let alias = settings.aliases.iter().map(|alias| alias.host.as_str()).find(|host| is_for_others(host));
    let listens = settings.listen.iter().find_map(|listen| match &listen.host {
        ListenHost::Address(ip) if !ip.is_unspecified() => Some(ip.to_string()),
        _ => None,
    });
    let realm = settings.auth_db.realm.clone();
    realm.or(alias.map(str::to_ascii_lowercase)).or(listens).unwrap_or_else(|| "127.0.0.1".to_owned())
}

fn add(
    change: &Change,
    password: impl FnOnce(&str) -> Result<Password, AdminError>,
) -> Result<String, AdminError> {
    let target = change.name.target()?;
    check_new_name("user", &target.username)?;
    check_new_name("domain", &target.domain)?;
    check_secret(&target, change.clear)?;
    let database = change.name.place.open(&target.table.url, MakeFile::Yes)?;
    if matches!(target.table.url, Url::Sqlite(_)) && database.columns(&target.table.name)?.is_empty() {
        // It needs no set-up: the server makes a table of a name of one's own, too.
        database.complete(&[target.table.needed()])?;
    }
    let mut users = target.users(&database)?;
    let unsure = if target.case_sensitive { "" } else { check_case(&target, &mut users)? };
    let shown = target.shown();
    let user = user_of(&target, &password(&shown)?, change.clear);
    let missing = users.add(&user).map_err(|error| match error {
        StoreError::Wrong(_) => AdminError::Line(format!(
            "there is a user {shown} already; `strowger user passwd {shown}` gives another password"
        )),
        other => other.into(),
    })?;
    let told = change.name.place.tell()?;
    let table = target.table.shown();
    Ok(format!("{shown} added to {}{table}{}{unsure}; {told}\n", target.table.url, without(&missing)))
}

/// A server that computes hashes reads passwords alone; one that reads hashes may have no column for a password.
fn check_secret(target: &Target, clear: bool) -> Result<(), AdminError> {
    let table = &target.table;
    if table.reads_passwords && !clear {
        return Err(AdminError::Line(format!(
            "with calculate_ha1 the server needs the password itself, and {} could never register with a hash; give \
             --clear, which stores it, or leave calculate_ha1 out of the configuration",
            target.shown()
        )));
    }
    if clear && !table.keeps("password") {
        return Err(AdminError::Line(format!(
            "the column `password` of the table {} has hashes (password_column), so that no password can be stored; \
             leave --clear out",
            table.name
        )));
    }
    Ok(())
}

/// Refuses a name that the registrar takes for that of another user. Returns what to say where there are too many to look at.
fn check_case(target: &Target, users: &mut store::Users) -> Result<&'static str, AdminError> {
    let (mut seen, mut is_there, mut other) = (0, false, None);
    users.list(Some(&target.domain), COMPARED_MAX, &mut |user| {
        seen += 1;
        if user.username == target.username {
            is_there = true;
        } else if user.username.eq_ignore_ascii_case(&target.username) {
            other = Some(user.username.clone());
        }
    })?;
    match other {
        // Whoever is there already is named as such.
        Some(other) if !is_there => Err(AdminError::Line(format!(
            "there is a user {}@{} already, and the registrar tells no upper from lower case: both would have the same \
             contacts; choose another name (or set case_sensitive of registrar to 1, and name the configuration with -f)",
            other.escape_debug(),
            target.domain
        ))),
        _ if seen >= COMPARED_MAX => {
            Ok(" (too many users to look whether one of them differs in upper and lower case only)")
        }
        _ => Ok(""),
    }
}

fn passwd(
    change: &Change,
    password: impl FnOnce(&str) -> Result<Password, AdminError>,
) -> Result<String, AdminError> {
    let target = change.name.target()?;
    check_secret(&target, change.clear)?;
    let mut users = target.users(&change.name.place.open(&target.table.url, MakeFile::No)?)?;
    let shown = target.shown();
    let user = user_of(&target, &password(&shown)?, change.clear);
    let missing = users.passwd(&user).map_err(|error| match error {
        StoreError::Wrong(_) => no_such_user(&shown),
        other => other.into(),
    })?;
    let told = change.name.place.tell()?;
    Ok(format!("{shown} has a new password{}; {told}\n", without(&missing)))
}

fn remove(name: &Name) -> Result<String, AdminError> {
    let target = name.target()?;
    let shown = target.shown();
    let database = name.place.open(&target.table.url, MakeFile::No)?;
    if !target.users(&database)?.remove(&target.username, &target.domain)? {
        return Err(no_such_user(&shown));
    }
    let told = name.place.tell()?;
    Ok(format!(
        "{shown} removed; {told}. Phones that are registered stay so until they expire: strowger contacts rm {shown}\n"
    ))
}

fn no_such_user(shown: &str) -> AdminError {
    AdminError::Line(format!("there is no user {shown}; `strowger user list` shows all"))
}

fn list(list: &List) -> Result<String, AdminError> {
    let table = list.place.user_table(&list.place.load()?, list.table.as_deref())?;
    let database = list.place.open(&table.url, MakeFile::No)?;
    let limit = if list.limit == 0 { usize::MAX } else { list.limit };
    let (mut found, mut is_cut) = (Vec::new(), false);
    let domain = list.domain.as_deref().map(str::to_ascii_lowercase);
    let mut users = database.users_in(&table.name, &table.columns)?;
    users.list(domain.as_deref(), limit.saturating_add(1), &mut |user| {
        if found.len() < limit {
            found.push((user.username.clone(), user.domain.clone(), secrets(&table, user)));
        } else {
            is_cut = true;
        }
    })?;
    if list.json {
        if is_cut {
            super::note_that_there_are_more();
        }
        let users: Vec<_> = found
            .iter()
            .map(|(username, domain, secrets)| json!({ "username": username, "domain": domain, "secrets": secrets }))
            .collect();
        return Ok(format!("{}\n", json!(users)));
    }
    if found.is_empty() {
        return Ok(format!("no users in {}{}; strowger user add NAME\n", database.url(), table.shown()));
    }
    let count = counted(found.len(), "user");
    let more = if is_cut { format!("; {THERE_ARE_MORE}") } else { String::new() };
    let rows = found.into_iter().map(|(username, domain, secrets)| vec![username, domain, secrets.join(" ")]);
    Ok(format!("{}{count}{more}\n", table::table(&["user", "domain", "secrets"], rows.collect())))
}

/// The kinds of secrets that are stored of a user.
fn secrets(table: &UserTable, user: &User) -> Vec<&'static str> {
    let kinds = [
        ("MD5", "ha1", &user.ha1),
        ("SHA-256", "ha1_sha256", &user.ha1_sha256),
        ("SHA-512-256", "ha1_sha512_256", &user.ha1_sha512_256),
        ("clear", "password", &user.password),
    ];
    let is_there = |column: &str, value: &str| table.keeps(column) && !value.is_empty();
    kinds.iter().filter(|(_, column, value)| is_there(column, value)).map(|(kind, ..)| *kind).collect()
}

impl Target {
    fn shown(&self) -> String {
        format!("{}@{}", self.username, self.domain)
    }

    fn users(&self, database: &Database) -> Result<store::Users, AdminError> {
        Ok(database.users_in(&self.table.name, &self.table.columns)?)
    }
}

/// The row of a user with this password.
fn user_of(target: &Target, Password(password): &Password, clear: bool) -> User {
    let (username, domain) = (target.username.as_bytes(), target.domain.as_bytes());
    let hash = |column: &str, algorithm: Algorithm, name: &[u8]| {
        if !target.table.keeps(column) {
            return String::new();
        }
        let hash = algorithm.hash_joined(&[name, domain, password.as_bytes()]);
        String::from_utf8_lossy(hash.as_bytes()).into_owned()
    };
    User {
        username: target.username.clone(),
        domain: target.domain.clone(),
        password: if clear { password.clone() } else { String::new() },
        ha1: hash("ha1", Algorithm::Md5, username),
        ha1b: hash("ha1b", Algorithm::Md5, target.shown().as_bytes()),
        ha1_sha256: hash("ha1_sha256", Algorithm::Sha256, username),
        ha1_sha512_256: hash("ha1_sha512_256", Algorithm::Sha512_256, username),
    }
}

/// What a table has no column for.
fn without(missing: &[&'static str]) -> String {
    if missing.is_empty() {
        return String::new();
    }
    format!(" (the table has no column for {}: those algorithms need --clear)", missing.join(", "))
}

impl Place {
    /// Tells a running server that users have changed; returns what to say of it.
    fn tell(&self) -> Result<String, AdminError> {
        let socket = state::socket(&self.state());
        match control::call(&socket, "users.changed", &json!({})) {
            Ok(_) => Ok("the running server knows".to_owned()),
            Err(CallError::NoServer) => Ok(format!(
                "no server runs with the state directory {} (one that runs elsewhere finds out within minutes)",
                self.state().display()
            )),
            Err(CallError::Failed(why)) => {
                Ok(format!("the running server could not be told ({why}): it finds out within minutes"))
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::admin) fn change(arguments: &[&str]) -> Change {
        use clap::Parser;
        #[derive(Parser)]
        struct Only {
            #[command(flatten)]
            change: Change,
        }
        Only::try_parse_from(std::iter::once(&"x").chain(arguments)).unwrap().change
    }

    pub(in crate::admin) fn added(arguments: &[&str], secret: &str) -> Result<String, AdminError> {
        add(&change(arguments), |_| Ok(Password(secret.to_owned())))
    }

    pub(in crate::admin) fn changed(arguments: &[&str], secret: &str) -> Result<String, AdminError> {
        passwd(&change(arguments), |_| Ok(Password(secret.to_owned())))
    }

    #[test]
    fn names_that_no_phone_can_say_are_refused() {
        for odd in ["", "a b", "a<b", "a\nb", "a@b@c", &"x".repeat(65)] {
            assert!(change(&["--", odd]).name.target().is_err(), "{odd:?}");
        }
        for (odd, mention) in [("a%41", "escape"), ("%", "escape"), ("a\"b", "quotes"), ("a\\b", "quotes")] {
            assert!(change(&["--", odd]).name.target().is_ok(), "who is there can be removed: {odd:?}");
            let Err(AdminError::Line(said)) = check_new_name("user", odd) else { panic!("{odd:?}") };
            assert!(said.contains(odd) && said.contains(mention), "{said}");
        }
        assert!(change(&["alice@one", "--domain", "two"]).name.target().is_err(), "two domains");
    }

    #[test]
    fn the_domain_is_what_is_said_else_the_servers() {
        let target = |arguments: &[&str]| change(arguments).name.target().unwrap().shown();
        assert_eq!(target(&["alice@Example.com"]), "alice@example.com");
        assert_eq!(target(&["alice", "--domain", "example.com"]), "alice@example.com");
        assert_eq!(target(&["alice"]), "alice@127.0.0.1", "of the built-in configuration");
    }

    #[test]
    fn only_hashes_are_stored_unless_told_otherwise() {
        let target = change(&["Mufasa", "--domain", "atlanta.example.com"]).name.target().unwrap();
        let user = user_of(&target, &Password("zanzibar".into()), false);
        assert_eq!(user.password, "");
        assert_eq!((user.ha1.len(), user.ha1b.len()), (32, 32));
        assert_eq!(user_of(&target, &Password("zanzibar".into()), true).password, "zanzibar");
    }
}
