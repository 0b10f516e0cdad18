//! `strowger contacts`: who is registered, from a running server, else from the database.

use std::collections::BTreeSet;

use clap::{Args, Subcommand};
use modules::{Settings, StoredAor, stored_aor};
use serde_json::{Value, json};
use store::{Batch, Bindings, Contact, Url};

use super::{AdminError, MakeFile, Place, THERE_ARE_MORE, counted, table};
use crate::clock::Time;
use crate::control::{self, CallError, key_of, shown};
use crate::keeping;
use crate::state::{self, Lock};

/// Addresses-of-record asked for at once.
const PAGE: usize = 1_000;

/// `strowger contacts`.
#[derive(Debug, Subcommand)]
pub(crate) enum Contacts {
    /// List contacts in the order of their users.
    List(List),
    /// Show all that is known of the contacts of one user.
    Show(One),
    /// Remove a contact of a user, or all of them.
    Rm(Remove),
}

/// How many, and how.
#[derive(Args, Debug)]
pub(crate) struct List {
    /// Users at most; 0 for all.
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: usize,

    /// Print JSON: an array of objects.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    place: Place,
}

/// Whose.
#[derive(Args, Debug)]
pub(crate) struct One {
    /// The user: NAME, NAME@DOMAIN or a URI.
    #[arg(value_name = "USER")]
    user: String,

    /// The location table, as `save` and `lookup` name it.
    #[arg(long, value_name = "NAME", default_value = "location")]
    table: String,

    /// Print JSON: an array of objects.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    place: Place,
}

/// Which.
#[derive(Args, Debug)]
pub(crate) struct Remove {
    /// The user: NAME, NAME@DOMAIN or a URI.
    #[arg(value_name = "USER")]
    user: String,

    /// The contact's URI, as `strowger contacts show` prints it; without it all of the user go.
    #[arg(value_name = "CONTACT")]
    contact: Option<String>,

    /// The location table, as `save` and `lookup` name it.
    #[arg(long, value_name = "NAME", default_value = "location")]
    table: String,

    #[command(flatten)]
    place: Place,
}

/// Runs a command; returns what to print.
///
/// # Errors
///
/// See [`AdminError`].
pub(crate) fn run(command: &Contacts) -> Result<String, AdminError> {
    match command {
        Contacts::List(list) => self::list(list),
        Contacts::Show(one) => show(one),
        Contacts::Rm(one) => remove(one),
    }
}

/// Contacts, and where they are from.
struct Found {
    contacts: Vec<Value>,
    /// What a person should know of them.
    note: String,
    /// There are more.
    is_cut: bool,
}

fn ask(place: &Place, method: &str, params: &Value) -> Result<Option<Value>, AdminError> {
    match control::call(&state::socket(&place.state()), method, params) {
        Ok(result) => Ok(Some(result)),
        Err(CallError::NoServer) => Ok(None),
        Err(CallError::Failed(why)) => Err(AdminError::Line(why)),
    }
}

fn list(list: &List) -> Result<String, AdminError> {
    let limit = if list.limit == 0 { usize::MAX } else { list.limit };
    let found = match from_server(&list.place, limit)? {
        Some(found) => found,
        None => Stored::open(&list.place)?.list(limit)?,
    };
    if list.json {
        if found.is_cut {
            super::note_that_there_are_more();
        }
        return Ok(format!("{}\n", Value::Array(found.contacts)));
    }
    let rows: Vec<Vec<String>> = found.contacts.iter().map(row).collect();
    let count = counted(rows.len(), "contact");
    let more = if found.is_cut { format!("; {THERE_ARE_MORE}") } else { String::new() };
    let head = ["user", "contact", "expires in", "q", "user agent"];
    Ok(format!("{}{count}{}{more}\n", table::table(&head, rows), found.note))
}

fn row(contact: &Value) -> Vec<String> {
    let text = |name: &str| contact[name].as_str().unwrap_or("").to_owned();
    let table = text("table");
    let user = if table == "location" { text("aor") } else { format!("{} ({table})", text("aor")) };
    let expires = table::span(contact["expires_in"].as_u64().unwrap_or(0));
    let q = contact["q"].as_f64().unwrap_or(0.0);
    vec![user, text("contact"), expires, format!("{q}"), text("user_agent")]
}

/// All pages that are wanted; `None` if no server runs.
fn from_server(place: &Place, limit: usize) -> Result<Option<Found>, AdminError> {
    let mut found = Found { contacts: Vec::new(), note: String::new(), is_cut: false };
    let (mut after, mut left) = (Value::Null, limit);
    while left > 0 {
        let page = left.min(PAGE);
        let params = json!({ "after": after, "limit": page });
        let Some(mut result) = ask(place, "contacts.list", &params)? else { return Ok(None) };
        if let Some(Value::Array(contacts)) = result.get_mut("contacts").map(Value::take) {
            found.contacts.extend(contacts);
        }
        after = result.get_mut("next").map(Value::take).unwrap_or_default();
        if after.is_null() {
            return Ok(Some(found));
        }
        left -= page;
    }
    found.is_cut = true;
    Ok(Some(found))
}

/// The location tables of the database, read and changed without a server.
struct Stored {
    settings: std::sync::Arc<Settings>,
    bindings: Bindings,
    /// Why they must not be changed: a server writes them after all.
    busy: Option<String>,
    /// Keeps servers away meanwhile, where the database is a file.
    _lock: Option<Lock>,
    /// What a person should know of what comes from here.
    note: String,
    /// Microseconds since 1970.
    now: u64,
}

impl Stored {
    fn open(place: &Place) -> Result<Stored, AdminError> {
        let settings = place.settings()?;
        let url = place.url(&settings, "location")?;
        let database = place.open(&url, MakeFile::No)?;
        let mut bindings = database.bindings(&keeping::location_columns(&settings))?;
        let tables = keeping::location_tables(&settings);
        let locked = match &url {
            Url::Sqlite(file) => Lock::of_database(file).map(Some).map_err(|why| why.to_string()),
            Url::Postgres(_) | Url::MySql(_) => match bindings.claim(&tables)? {
                Some(other) => Err(format!(
                    "a server writes them ({other}); run this where it runs, with its --state-dir"
                )),
                None => Ok(None),
            },
        };
        // The journal of a server that runs is its own affair: rows would come back that it has replaced.
        if locked.is_ok() {
            bindings.recover(&tables)?;
        }
        let time = Time::start();
        let note = match &locked {
            Ok(_) => format!("no server runs with the state directory {}", place.state().display()),
            Err(why) => format!("what changed in the last seconds may be missing: {why}"),
        };
        Ok(Stored {
            settings,
            bindings,
            note: format!(" in {url} ({note})"),
            now: time.unix_micros(time.now()),
            busy: locked.as_ref().err().cloned(),
            _lock: locked.ok().flatten(),
        })
    }

    fn list(mut self, limit: usize) -> Result<Found, AdminError> {
        let (mut contacts, mut users, mut is_cut) = (Vec::new(), BTreeSet::new(), false);
        let now = self.now;
        for table in keeping::location_tables(&self.settings) {
            self.bindings.load(&table, now, &mut |_, _| {}, &mut |contact| {
                let user = (table.clone(), shown(contact.username, contact.domain));
                if users.len() >= limit && !users.contains(&user) {
                    is_cut = true;
                    return true;
                }
                users.insert(user);
                contacts.push(value(&table, contact, now));
                true
            })?;
        }
        contacts.sort_by_key(|contact| contact["aor"].as_str().map(str::to_owned));
        Ok(Found { contacts, note: self.note, is_cut })
    }

    /// Visits the contacts of one user that have not expired.
    fn visit(
        &mut self,
        table: &str,
        user: &str,
        visit: &mut dyn FnMut(&Contact<'_>),
    ) -> Result<(), AdminError> {
        let key = key_of(&self.settings.registrar, table, user).map_err(AdminError::Line)?;
        let StoredAor { username, domain, .. } = stored_aor(&self.settings.registrar, &key);
        let now = self.now;
        self.bindings.read(table, username, domain, &mut |contact| {
            if contact.expires_unix_micros > now {
                visit(contact);
            }
        })?;
        Ok(())
    }
}

fn value(table: &str, contact: &Contact<'_>, now: u64) -> Value {
    let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let some = |bytes: &[u8]| (!bytes.is_empty()).then(|| lossy(bytes));
    json!({
        "table": table,
        "aor": shown(contact.username, contact.domain),
        "contact": lossy(contact.contact),
        "q": f64::from(contact.q) / 1_000.0,
        "expires_in": contact.expires_unix_micros.saturating_sub(now).div_ceil(1_000_000),
        "expires_at": contact.expires_unix_micros / 1_000_000,
        "modified_at": contact.modified_unix_micros / 1_000_000,
        "call_id": lossy(contact.call_id),
        "cseq": contact.cseq,
        "received": some(contact.received),
        "path": some(contact.path),
        "instance": some(contact.instance),
        "reg_id": (contact.reg_id != 0).then_some(contact.reg_id),
        "user_agent": some(contact.user_agent),
        "socket": some(contact.socket),
    })
}

fn show(one: &One) -> Result<String, AdminError> {
    let params = json!({ "aor": one.user, "table": one.table });
    let (contacts, note) = match ask(&one.place, "contacts.show", &params)? {
        Some(mut result) => {
            (result["contacts"].take().as_array().cloned().unwrap_or_default(), String::new())
        }
        None => {
            let mut stored = Stored::open(&one.place)?;
            let (now, mut contacts) = (stored.now, Vec::new());
            stored.visit(&one.table, &one.user, &mut |contact| {
                contacts.push(value(&one.table, contact, now));
            })?;
            (contacts, stored.note)
        }
    };
    if one.json {
        return Ok(format!("{}\n", Value::Array(contacts)));
    }
    let count = counted(contacts.len(), "contact");
    let cards: String = contacts.iter().map(|contact| table::table(&[], card(contact)) + "\n").collect();
    Ok(format!("{cards}{count} of {}{note}\n", one.user))
}

/// All that is known of a contact, a line each.
fn card(contact: &Value) -> Vec<Vec<String>> {
    let text = |value: &Value| match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    };
    let span = |name: &str| contact[name].as_u64().map(table::span);
    let fields = [
        ("contact", text(&contact["contact"])),
        ("expires in", span("expires_in")),
        ("q", text(&contact["q"])),
        ("user agent", text(&contact["user_agent"])),
        ("really at", text(&contact["received"])),
        ("by way of", text(&contact["path"])),
        ("listener", text(&contact["socket"])),
        ("instance", text(&contact["instance"])),
        ("reg-id", text(&contact["reg_id"])),
        ("Call-ID", text(&contact["call_id"])),
        ("CSeq", text(&contact["cseq"])),
    ];
    fields.into_iter().filter_map(|(name, value)| Some(vec![name.to_owned(), value?])).collect()
}

fn remove(one: &Remove) -> Result<String, AdminError> {
    let params = json!({ "aor": one.user, "table": one.table, "contact": one.contact });
    let (removed, note) = match ask(&one.place, "contacts.rm", &params)? {
        Some(result) => (result["removed"].as_u64().unwrap_or(0), String::new()),
        None => remove_stored(one)?,
    };
    if removed == 0 {
        let contact = one.contact.as_deref().map(|contact| format!(" {contact}")).unwrap_or_default();
        return Err(AdminError::Line(format!("{} has no contact{contact}{note}", one.user)));
    }
    let removed = counted(usize::try_from(removed).unwrap_or(usize::MAX), "contact");
    Ok(format!("{removed} of {} removed{note}\n", one.user))
}

fn remove_stored(one: &Remove) -> Result<(u64, String), AdminError> {
    let mut stored = Stored::open(&one.place)?;
    if let Some(why) = stored.busy {
        return Err(AdminError::Line(format!("the contacts of {} cannot be removed: {why}", one.user)));
    }
    let (mut batch, mut removed) = (Batch::default(), 0);
    stored.visit(&one.table, &one.user, &mut |contact| {
        if one.contact.as_ref().is_none_or(|wanted| wanted.as_bytes() == contact.contact) {
            batch.remove(&one.table, contact);
            if contact.is_foreign {
                batch.remove_ruid(&one.table, contact.ruid);
            }
            removed += 1;
        }
    })?;
    stored.bindings.write(&batch)?;
    Ok((removed, stored.note))
}
