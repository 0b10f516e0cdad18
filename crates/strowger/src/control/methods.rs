//! What can be asked of a running server.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use location::{Binding, Location as _};
use modules::{Settings, key_of_uri, stored_aor};
use serde_json::{Value, json};

use super::{FAILED, Failure, INVALID_PARAMS, NO_SUCH_METHOD};
use crate::clock::Time;
use crate::persistence::Persister;
use crate::reload::{Read, Reload};
use crate::services::Shared;
use crate::striped::{STRIPES, Striped};

/// Addresses-of-record in one answer where the question does not say how many.
const LIST_DEFAULT: u64 = 100;

/// The same, at most.
const LIST_MAX: u64 = 10_000;

/// How long a removal waits for the database.
const WRITE_MAX: Duration = Duration::from_secs(5);

/// What the methods work on.
pub(crate) struct Methods {
    pub(crate) location: Striped,
    pub(crate) settings: Arc<Settings>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) reload: Reload,
    /// `None` in memory mode.
    pub(crate) persister: Option<Persister>,
    pub(crate) listeners: Vec<engine::Listener>,
    pub(crate) time: Time,
}

impl Methods {
    /// Does what `method` says.
    ///
    /// # Errors
    ///
    /// A [`Failure`] with the number that JSON-RPC gives it.
    pub(crate) fn call(&self, method: &str, params: &Value) -> Result<Value, Failure> {
        if !params.is_object() {
            return Err(Failure::new(INVALID_PARAMS, "`params` is an object: {\"aor\":\"alice\"}"));
        }
        match method {
            "version" => Ok(json!({ "name": "strowger", "version": env!("CARGO_PKG_VERSION") })),
            "contacts.list" => self.list(params),
            "contacts.show" => self.show(params),
            "contacts.rm" => self.remove(params),
            "users.changed" => {
                self.shared.users_changed();
                Ok(json!({}))
            }
            "reload" => self.reload(),
            _ => Err(Failure::new(
                NO_SUCH_METHOD,
                "there are version, contacts.list, contacts.show, contacts.rm, users.changed and reload",
            )),
        }
    }

    fn reload(&self) -> Result<Value, Failure> {
        let mut reading = self.reload.again("reload");
        if reading.wrong.is_empty() {
            let value = |Read { what, from, count }| json!({ "what": what, "from": from, "count": count });
            let read: Vec<Value> = reading.read.into_iter().map(value).collect();
            return Ok(json!({ "read": read }));
        }
        if !reading.read.is_empty() {
            let read: Vec<&str> = reading.read.iter().map(|read| read.what).collect();
            reading.wrong.push(format!("read again: {}", read.join(", ")));
        }
        Err(Failure::new(FAILED, reading.wrong.join("; ")))
    }

    /// The bindings of the next addresses-of-record in the order of their keys. `after` is what the answer before called
    /// `next`, `limit` how many addresses-of-record are wanted.
    fn list(&self, params: &Value) -> Result<Value, Failure> {
        let limit = match params.get("limit") {
            None | Some(Value::Null) => LIST_DEFAULT,
            Some(limit) => limit
                .as_u64()
                .filter(|limit| (1..=LIST_MAX).contains(limit))
                .ok_or_else(|| Failure::new(INVALID_PARAMS, format!("`limit` is 1 to {LIST_MAX}")))?,
        };
        let after = match text(params, "after")? {
            None => Vec::new(),
            Some(hex) => from_hex(hex)
                .ok_or_else(|| Failure::new(INVALID_PARAMS, "`after` is what an answer called `next`"))?,
        };
        let keys = self.keys_after(&after, usize::try_from(limit).unwrap_or(usize::MAX));
        let is_full = keys.len() as u64 == limit;
        let next = keys.last().filter(|_| is_full).map(|key| to_hex(key));
        let mut contacts = Vec::new();
        for key in &keys {
            self.push_contacts(key, &mut contacts);
        }
        Ok(json!({ "contacts": contacts, "next": next }))
    }

    /// The first `limit` keys behind `after`; one stripe is looked through at a time.
    fn keys_after(&self, after: &[u8], limit: usize) -> Vec<Box<[u8]>> {
        let now = self.time.now();
        let mut first: BTreeSet<Box<[u8]>> = BTreeSet::new();
        for stripe in 0..STRIPES {
            self.location.visit(stripe, |binding| {
                let aor = binding.aor();
                let is_behind_all = || first.last().is_some_and(|last| aor >= &last[..]);
                if aor <= after || binding.is_expired(now) || (first.len() >= limit && is_behind_all()) {
                    return;
                }
                if first.insert(aor.into()) && first.len() > limit {
                    first.pop_last();
                }
            });
        }
        first.into_iter().collect()
    }

    fn show(&self, params: &Value) -> Result<Value, Failure> {
        let mut contacts = Vec::new();
        self.push_contacts(&self.key(params)?, &mut contacts);
        Ok(json!({ "contacts": contacts }))
    }

    fn remove(&self, params: &Value) -> Result<Value, Failure> {
        let key = self.key(params)?;
        let contact = text(params, "contact")?.map(str::as_bytes);
        let removed = self.location.remove(self.time.now(), &key, contact);
        if let Some(persister) = self.persister.as_ref().filter(|_| removed > 0)
            && !persister.write_now(key.into(), WRITE_MAX)
        {
            return Err(Failure::new(
                FAILED,
                format!(
                    "{removed} removed, but the database has not taken it yet: it does when it answers again"
                ),
            ));
        }
        Ok(json!({ "removed": removed }))
    }

    /// The key of the address-of-record that the question names.
    fn key(&self, params: &Value) -> Result<Vec<u8>, Failure> {
        let Some(aor) = text(params, "aor")? else {
            return Err(Failure::new(INVALID_PARAMS, "`aor` is missing: a user, NAME or NAME@DOMAIN"));
        };
        let table = text(params, "table")?.unwrap_or("location");
        key_of(&self.settings.registrar, table, aor).map_err(|why| Failure::new(INVALID_PARAMS, why))
    }

    fn push_contacts(&self, key: &[u8], contacts: &mut Vec<Value>) {
        self.location.lookup(self.time.now(), key, &mut |binding| {
            contacts.push(self.contact(binding));
            ControlFlow::Continue(())
        });
    }

    fn contact(&self, binding: &Binding) -> Value {
        let stored = stored_aor(&self.settings.registrar, binding.aor());
        let listener = usize::try_from(binding.flow()).ok().and_then(|flow| self.listeners.get(flow));
        let socket = listener.map(|listener| {
            let transport = listener.transport.as_str().unwrap_or("udp").to_ascii_lowercase();
            format!("{transport}:{}", listener.address)
        });
        json!({
            "table": lossy(stored.table),
            "aor": shown(stored.username, stored.domain),
            "contact": lossy(binding.contact()),
            "q": f64::from(binding.q()) / 1_000.0,
            "expires_in": binding.expires_in(self.time.now()),
            "expires_at": self.time.unix_micros(binding.expires_at()) / 1_000_000,
            "modified_at": self.time.unix_micros(binding.modified_at()) / 1_000_000,
            "call_id": lossy(binding.call_id()),
            "cseq": binding.cseq(),
            "received": binding.received().map(lossy),
            "path": binding.path().map(lossy),
            "instance": binding.instance().map(lossy),
            "reg_id": binding.reg_id(),
            "user_agent": binding.user_agent().map(lossy),
            "socket": socket,
        })
    }
}

/// The key of an address-of-record as an administrator writes it: NAME, NAME@DOMAIN, or a URI.
///
/// # Errors
///
/// What to write instead.
pub(crate) fn key_of(
    settings: &modules::RegistrarSettings,
    table: &str,
    aor: &str,
) -> Result<Vec<u8>, String> {
    let has_scheme = ["sip:", "sips:", "tel:"]
        .iter()
        .any(|scheme| aor.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme)));
    let mut uri = if has_scheme { aor.to_owned() } else { format!("sip:{aor}") };
    if !has_scheme && !aor.contains('@') {
        if settings.use_domain {
            return Err(format!("which domain? write {aor}@DOMAIN"));
        }
        // Any will do: users are told apart by their names alone.
        uri.push_str("@localhost");
    }
    key_of_uri(settings, table, &uri).ok_or_else(|| format!("{aor} is no user: write NAME or NAME@DOMAIN"))
}

/// User and domain as people write them.
pub(crate) fn shown(username: &[u8], domain: &[u8]) -> String {
    match (username, domain) {
        (user, b"") => lossy(user),
        (b"", domain) => lossy(domain),
        (user, domain) => format!("{}@{}", lossy(user), lossy(domain)),
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A parameter that is a text, if it is there.
fn text<'p>(params: &'p Value, name: &str) -> Result<Option<&'p str>, Failure> {
    match params.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(Failure::new(INVALID_PARAMS, format!("`{name}` is a text"))),
    }
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| Some(digit(*pair.first()?)? << 4 | digit(*pair.get(1)?)?)).collect()
}
