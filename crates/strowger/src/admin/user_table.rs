//! Which table `strowger user` works on: the one that the configuration has its users in, with its names of columns.

use std::collections::BTreeSet;

use store::{Needed, Url};

use super::{AdminError, Place};
use crate::configuration::Loaded;

/// The functions of scripts that name a table of users, as their second argument.
const NAME_TABLES: [&str; 6] = [
    "www_authorize",
    "www_authenticate",
    "proxy_authorize",
    "proxy_authenticate",
    "auth_check",
    "is_subscriber",
];

/// Where users are where nobody says otherwise.
const USUAL: &str = "subscriber";

/// Kamailio's names of the columns of secrets, and ours of the stronger hashes.
const SECRETS: [&str; 5] = ["password", "ha1", "ha1b", "ha1_sha256", "ha1_sha512_256"];

/// A table of users.
#[derive(Debug)]
pub(super) struct UserTable {
    pub(super) url: Url,
    pub(super) name: String,
    /// Those of other names: (Kamailio's name, the name here).
    pub(super) columns: Vec<(String, String)>,
    /// The server computes hashes from passwords and reads no others (`calculate_ha1`).
    pub(super) reads_passwords: bool,
    /// Secrets whose columns hold another one: they are not stored.
    displaced: Vec<&'static str>,
}

impl UserTable {
    /// Whether a secret, by Kamailio's name, has a column of its own.
    pub(super) fn keeps(&self, secret: &str) -> bool {
        !self.displaced.contains(&secret)
    }

    /// The table for who makes it.
    pub(super) fn needed(&self) -> Needed {
        Needed { table: self.name.clone(), kind: "subscriber", columns: self.columns.clone() }
    }

    /// What is said of it behind the URL: nothing if it is the usual one.
    pub(super) fn shown(&self) -> String {
        if self.name == USUAL { String::new() } else { format!(", table {}", self.name) }
    }
}

impl Place {
    /// The table of users: what `--table` says, else the one that the configuration names.
    ///
    /// # Errors
    ///
    /// Where it names none, several, or one that is known when a request comes; and for a `--table` that it does not name.
    pub(super) fn user_table(&self, loaded: &Loaded, said: Option<&str>) -> Result<UserTable, AdminError> {
        let settings = &loaded.settings;
        let Some(place) = settings.auth_db.database else { return self.table_without_auth(loaded, said) };
        let url = match (&self.db, settings.databases.get(usize::from(place))) {
            (None, Some(url)) => Url::parse(&url.0, &self.state())?,
            _ => self.url(settings, "subscriber")?,
        };
        let name = chosen(&Tables::of(loaded), said, self.db.is_some()).map_err(AdminError::Line)?;
        let reads_passwords = is_on(&loaded.parameter("auth_db", "calculate_ha1"));
        let (columns, displaced) = columns(loaded, reads_passwords);
        Ok(UserTable { url, name, columns, reads_passwords, displaced })
    }

    /// The same where nobody is authenticated by a table: whoever asks for users asks this one.
    fn table_without_auth(&self, loaded: &Loaded, said: Option<&str>) -> Result<UserTable, AdminError> {
        let url = self.url(&loaded.settings, "subscriber")?;
        let needed = loaded.settings.tables_needed().into_iter().find(|table| table.kind == "subscriber");
        let (name, columns) = match needed {
            Some(table) => (table.table, table.columns),
            None => (USUAL.to_owned(), Vec::new()),
        };
        let owned = |(kamailio, here): (&str, String)| (kamailio.to_owned(), here);
        Ok(UserTable {
            url,
            name: said.map_or(name, str::to_owned),
            columns: columns.into_iter().map(owned).collect(),
            reads_passwords: false,
            displaced: Vec::new(),
        })
    }
}

/// The tables of users that a script names.
#[derive(Debug, Default)]
struct Tables {
    named: BTreeSet<String>,
    /// The function that is given the name of one in a variable.
    computed_in: Option<&'static str>,
}

impl Tables {
    fn of(loaded: &Loaded) -> Tables {
        let catalogue = modules::catalogue();
        let mut tables = Tables::default();
        for call in loaded.program.calls() {
            let function = catalogue.function(call.function).map_or("", |decl| decl.name);
            if !NAME_TABLES.contains(&function) {
                continue;
            }
            match call.texts.get(1) {
                Some(Some(name)) => {
                    tables.named.insert(String::from_utf8_lossy(name).into_owned());
                }
                Some(None) => tables.computed_in = Some(function),
                None => {}
            }
        }
        tables
    }

    /// The names with `--table` before each.
    fn options(&self) -> String {
        let options: Vec<String> = self.named.iter().map(|name| format!("--table {name}")).collect();
        options.join(" or ")
    }
}

/// The table that is meant. Where `--db` names the database (`any`), its tables are not those of a configuration.
fn chosen(tables: &Tables, said: Option<&str>, any: bool) -> Result<String, String> {
    let is_known = |name: &str| tables.computed_in.is_some() || tables.named.contains(name);
    if let Some(name) = said {
        if any || tables.named.is_empty() || is_known(name) {
            return Ok(name.to_owned());
        }
        return Err(format!(
            "the configuration has no users in a table {name}, so that nobody would read it: {}",
            tables.options()
        ));
    }
    let mut named = tables.named.iter();
    match (named.next(), named.next(), tables.computed_in) {
        (Some(only), None, None) => Ok(only.clone()),
        (None, _, None) => Err(
            "no function of the configuration names a table of users (auth_check, www_authorize): name it with \
             --table TABLE"
                .to_owned(),
        ),
        (None, _, Some(function)) => Err(format!(
            "the table of users is known only when a request comes: it is a variable in {function}; name it with \
             --table TABLE"
        )),
        (Some(_), _, Some(function)) => Err(format!(
            "the configuration has several tables of users, one of them a variable in {function}; which one? {} or \
             --table TABLE",
            tables.options()
        )),
        (Some(_), Some(_), None) => Err(format!(
            "the configuration has several tables of users; which one? {}",
            tables.options()
        )),
    }
}

fn is_on(parameter: &str) -> bool {
    route::parse_int(parameter.as_bytes()).is_some_and(|value| value != 0)
}

/// The columns whose names are not Kamailio's, and the secrets that are left without one.
///
/// `password_column` may be the usual name of another secret: `ha1`, its default, holds passwords where `calculate_ha1` is
/// set. The two then change places, so that a row never has two values for one column.
fn columns(loaded: &Loaded, reads_passwords: bool) -> (Vec<(String, String)>, Vec<&'static str>) {
    let parameter = |name: &str| loaded.parameter("auth_db", name);
    let mut wanted: Vec<(&'static str, String)> = Vec::new();
    wanted.push((if reads_passwords { "password" } else { "ha1" }, parameter("password_column")));
    if !reads_passwords {
        wanted.push(("ha1b", parameter("password_column_2")));
    }
    for secret in SECRETS {
        if !wanted.iter().any(|(known, _)| *known == secret) {
            wanted.push((secret, secret.to_owned()));
        }
    }
    let mut placed: Vec<(&'static str, String)> = Vec::new();
    let mut displaced = Vec::new();
    for (secret, here) in &wanted {
        if placed.iter().any(|(_, taken)| taken.eq_ignore_ascii_case(here)) {
            displaced.push(*secret);
        } else {
            placed.push((secret, here.clone()));
        }
    }
    for secret in &displaced {
        let is_free = |name: &str| !placed.iter().any(|(_, taken)| taken.eq_ignore_ascii_case(name));
        if let Some(free) = SECRETS.into_iter().find(|name| is_free(name)) {
            placed.push((secret, free.to_owned()));
        }
    }
    placed.push(("username", parameter("user_column")));
    placed.push(("domain", parameter("domain_column")));
    placed.retain(|(usual, here)| usual != here);
    (placed.into_iter().map(|(usual, here)| (usual.to_owned(), here)).collect(), displaced)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration;
    use crate::state::tests::Scratch;

    fn load(settings: &str, calls: &str) -> Loaded {
        let scratch = Scratch::new();
        let file = scratch.0.join("x.cfg");
        let text = format!(
            "loadmodule \"sl.so\"\nloadmodule \"pv.so\"\nloadmodule \"auth.so\"\nloadmodule \"auth_db.so\"\n{settings}\n\
             request_route {{ {calls} }}\n"
        );
        std::fs::write(&file, text).unwrap();
        configuration::load(Some(&file), &[]).unwrap_or_else(|error| panic!("{error:?}"))
    }

    fn of_file() -> Place {
        Place { file: Some("x.cfg".into()), ..Place::default() }
    }

    fn table(settings: &str, calls: &str, said: Option<&str>) -> Result<UserTable, String> {
        of_file().user_table(&load(settings, calls), said).map_err(|error| match error {
            AdminError::Line(line) => line,
            AdminError::Configuration(error) => panic!("{error:?}"),
        })
    }

    const PEOPLE: &str = "www_authorize(\"$td\", \"people\");";
    const STAFF: &str = "proxy_authorize(\"$fd\", \"staff\");";
    const VARIABLE: &str = "$var(t) = \"x\"; auth_check(\"$fd\", \"$var(t)\", \"0\");";

    #[test]
    fn the_table_is_that_of_the_configuration() {
        assert_eq!(table("", PEOPLE, None).unwrap().name, "people");
        assert_eq!(table("", &PEOPLE.repeat(2), Some("people")).unwrap().name, "people");
        let said = table("", PEOPLE, Some("subscriber")).unwrap_err();
        assert!(said.contains("subscriber") && said.contains("--table people"), "{said}");
    }

    #[test]
    fn of_several_tables_one_is_asked_for() {
        let both = format!("{PEOPLE} {STAFF}");
        let said = table("", &both, None).unwrap_err();
        assert!(said.contains("--table people or --table staff"), "{said}");
        assert_eq!(table("", &both, Some("staff")).unwrap().name, "staff");
    }

    #[test]
    fn a_table_in_a_variable_is_asked_for() {
        let said = table("", VARIABLE, None).unwrap_err();
        assert!(said.contains("auth_check") && said.contains("--table TABLE"), "{said}");
        assert_eq!(table("", VARIABLE, Some("any")).unwrap().name, "any");
        let said = table("", &format!("{PEOPLE} {VARIABLE}"), None).unwrap_err();
        assert!(said.contains("--table people") && said.contains("--table TABLE"), "{said}");
        let said = table("", "exit;", None).unwrap_err();
        assert!(said.contains("--table TABLE"), "{said}");
    }

    #[test]
    fn columns_are_those_that_the_server_checks() {
        let settings = [
            "",
            "modparam(\"auth_db\", \"user_column\", \"login\")\nmodparam(\"auth_db\", \"domain_column\", \"realm\")",
            "modparam(\"auth_db\", \"password_column\", \"h\")\nmodparam(\"auth_db\", \"password_column_2\", \"hb\")",
            "modparam(\"auth_db\", \"calculate_ha1\", yes)\nmodparam(\"auth_db\", \"password_column\", \"secret\")",
        ];
        for settings in settings {
            let loaded = load(settings, PEOPLE);
            let ours = of_file().user_table(&loaded, None).unwrap();
            let needed = loaded.settings.tables_needed();
            let mut theirs: Vec<(String, String)> =
                needed[0].columns.iter().map(|(usual, here)| ((*usual).to_owned(), here.clone())).collect();
            let mut columns = ours.columns.clone();
            theirs.sort();
            columns.sort();
            assert_eq!(columns, theirs, "{settings}");
            assert!(SECRETS.iter().all(|secret| ours.keeps(secret)), "{settings}");
        }
    }

    #[test]
    fn no_column_has_two_secrets() {
        let pair = |usual: &str, here: &str| (usual.to_owned(), here.to_owned());
        let calculated = table("modparam(\"auth_db\", \"calculate_ha1\", 1)", PEOPLE, None).unwrap();
        assert!(calculated.reads_passwords && !calculated.keeps("ha1") && calculated.keeps("password"));
        assert_eq!(calculated.columns, [pair("password", "ha1"), pair("ha1", "password")]);
        let hashed = table("modparam(\"auth_db\", \"password_column\", \"password\")", PEOPLE, None).unwrap();
        assert!(!hashed.reads_passwords && !hashed.keeps("password") && hashed.keeps("ha1"));
        assert_eq!(hashed.columns, [pair("ha1", "password"), pair("password", "ha1")]);
        let one = "modparam(\"auth_db\", \"password_column\", \"x\")\nmodparam(\"auth_db\", \"password_column_2\", \"x\")";
        let one = table(one, PEOPLE, None).unwrap();
        assert!(one.keeps("ha1") && !one.keeps("ha1b"));
    }
}
