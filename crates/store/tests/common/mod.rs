//! What every database must do, and a directory for its files.
#![allow(unreachable_pub, reason = "each test file is a crate of its own")]
#![allow(dead_code, reason = "each test file uses a part")]

pub mod databases;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant, SystemTime};

use store::{
    Batch, Bindings, Contact, Database, Draft, Encoder, Journal, Needed, Records, Select, Selected, Selector,
    StoreError, User, What,
};

/// How long a database may take where it should answer.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// The time of a question whose answer must come at once.
pub const FOR_EVER: Duration = Duration::from_secs(3_600);

/// How long a client holds its lock.
const LOCKED_SECS: u64 = 6;

/// A directory that goes with the value.
pub struct Directory(PathBuf);

impl Directory {
    pub fn new() -> Directory {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("strowger-store-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Directory(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs the scripts that Debian's package of Kamailio brings for one kind of database: the tables that we know.
pub fn kamailio_scripts(kind: &str, package: &str, execute: &mut dyn FnMut(&str)) {
    let scripts = Path::new("/usr/share/kamailio").join(kind);
    for part in ["standard", "usrloc", "auth_db", "domain", "permissions", "alias_db", "uri_db"] {
        let file = scripts.join(format!("{part}-create.sql"));
        let sql = std::fs::read_to_string(&file);
        execute(&sql.unwrap_or_else(|error| panic!("{}: {error}: install {package}", file.display())));
    }
}

pub fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_micros() as u64
}

pub fn needed(table: &str, kind: &'static str) -> Needed {
    Needed { table: table.into(), kind, columns: Vec::new() }
}

/// A binding with something in every field; microseconds that no double keeps.
pub fn full(now: u64) -> Contact<'static> {
    Contact {
        username: "älice".as_bytes(),
        domain: b"example.com",
        contact: b"sip:alice@192.0.2.1:5060;transport=udp",
        received: b"sip:198.51.100.7:40000",
        path: b"<sip:edge.example.com;lr>",
        expires_unix_micros: now + 3_600_000_123,
        q: 700,
        call_id: b"a84b4c76e66710@pc33",
        cseq: 4_000_000_000,
        modified_unix_micros: now + 7,
        flags: 3,
        cflags: 0x8000_0001,
        user_agent: b"Phone/1.0 (\"quoted\" 'so' \\ too)",
        socket: b"udp:192.0.2.9:5060",
        methods: Some(7),
        instance: b"\"<urn:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6>\"",
        reg_id: 1,
        ..Contact::default()
    }
}

/// A binding with nothing that may be missing.
pub fn bare<'a>(user: &'a str, contact: &'a str, now: u64) -> Contact<'a> {
    Contact {
        username: user.as_bytes(),
        contact: contact.as_bytes(),
        expires_unix_micros: now + 60_000_000,
        modified_unix_micros: now,
        q: 1000,
        call_id: b"c",
        cseq: 1,
        ..Contact::default()
    }
}

/// A binding that owns its texts, for comparisons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub texts: [String; 9],
    pub numbers: [u64; 6],
    pub methods: Option<u32>,
    pub q: u16,
    pub ruid: String,
    pub is_foreign: bool,
}

/// Where it is in [`Seen::numbers`].
const CSEQ: usize = 2;

pub fn seen(contact: &Contact<'_>) -> Seen {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Seen {
        texts: [
            contact.username,
            contact.domain,
            contact.contact,
            contact.received,
            contact.path,
            contact.call_id,
            contact.user_agent,
            contact.socket,
            contact.instance,
        ]
        .map(text),
        numbers: [
            contact.expires_unix_micros,
            contact.modified_unix_micros,
            contact.cseq.into(),
            contact.flags.into(),
            contact.cflags.into(),
            contact.reg_id.into(),
        ],
        methods: contact.methods,
        q: contact.q,
        ruid: text(contact.ruid),
        is_foreign: contact.is_foreign,
    }
}

/// The same without what only reading tells.
pub fn written(contact: &Contact<'_>) -> Seen {
    Seen { ruid: String::new(), is_foreign: false, ..seen(contact) }
}

pub fn load_all(bindings: &mut Bindings, table: &str, now: u64) -> Vec<Seen> {
    let mut all = Vec::new();
    let visited = bindings.load(table, now, &mut |_, _| {}, &mut |contact| {
        all.push(seen(contact));
        true
    });
    assert_eq!(visited.unwrap(), all.len() as u64);
    all
}

pub fn read_all(bindings: &mut Bindings, username: &str, domain: &str) -> Vec<Seen> {
    let mut all = Vec::new();
    bindings
        .read("location", username.as_bytes(), domain.as_bytes(), &mut |contact| all.push(seen(contact)))
        .unwrap();
    all
}

pub fn save(bindings: &mut Bindings, contacts: &[Contact<'_>]) {
    let mut batch = Batch::default();
    for contact in contacts {
        batch.save("location", contact);
    }
    let written = bindings.write(&batch).unwrap();
    assert_eq!((written.rows, written.left_out.len()), (contacts.len(), 0), "{written:?}");
}

/// What the journal keeps of a table named `location`.
pub fn record(encoder: &Encoder, what: What, contact: &Contact<'_>) -> Result<Draft, String> {
    let mut draft = Draft::default();
    match what {
        What::Save => encoder.save(0, contact, &mut draft)?,
        _ => encoder.remove(0, contact, &mut draft),
    }
    Ok(draft)
}

/// Commits these bindings to the journal.
pub fn save_to(
    bindings: &mut Bindings,
    (journal, encoder): &mut (Journal, Encoder),
    contacts: &[Contact<'_>],
) {
    let (mut records, mut draft) = (Records::default(), Draft::default());
    for contact in contacts {
        encoder.save(0, contact, &mut draft).unwrap();
    }
    records.push(0, &mut draft);
    bindings.commit(journal, &mut records, &Batch::default(), false).unwrap();
}

pub fn users_of(all: &[Seen]) -> Vec<&str> {
    all.iter().map(|seen| seen.texts[0].as_str()).collect()
}

/// Everything comes back as it was written, in the order of the last updates.
pub fn bindings_come_back(database: &Database) {
    let now = now();
    let mut bindings = database.bindings(&[]).unwrap();
    let first = full(now);
    let second = bare("bob", "sip:bob@h", now);
    let forever = Contact { expires_unix_micros: Contact::NEVER, ..bare("carol", "sip:c@h", now + 3) };
    save(&mut bindings, &[first, second, forever]);
    drop(bindings);
    let mut bindings = database.bindings(&[]).unwrap();
    let all = load_all(&mut bindings, "location", now);
    assert_eq!(users_of(&all), ["bob", "carol", "älice"]);
    for (seen, contact) in all.iter().zip([&second, &forever, &first]) {
        assert!(seen.ruid.starts_with("strowger-") && !seen.is_foreign, "{seen:?}");
        assert_eq!(Seen { ruid: String::new(), ..seen.clone() }, written(contact));
    }
    assert_eq!(read_all(&mut bindings, "älice", "example.com").len(), 1);
    assert_eq!(read_all(&mut bindings, "bob", "").len(), 1);
    assert_eq!(read_all(&mut bindings, "bob", "example.com").len(), 0);
    assert_eq!(read_all(&mut bindings, "nobody", "").len(), 0);
}

/// A row is updated, not doubled; removals and clearing do what they say.
pub fn rows_are_replaced_and_removed(database: &Database) {
    let now = now();
    let mut bindings = database.bindings(&[]).unwrap();
    save(&mut bindings, &[bare("a", "sip:1", now), bare("a", "sip:2", now + 1), bare("b", "sip:1", now + 2)]);
    let later = Contact { cseq: 9, modified_unix_micros: now + 10, ..bare("a", "sip:1", now) };
    let mut batch = Batch::default();
    batch.save("location", &bare("a", "sip:1", now));
    batch.save("location", &later);
    batch.remove("location", &bare("a", "sip:2", now));
    batch.remove("location", &bare("never", "sip:there", now));
    assert_eq!(bindings.write(&batch).unwrap().left_out, []);
    // After an error nobody knows whether it was committed: it may be written again.
    bindings.write(&batch).unwrap();
    let all = load_all(&mut bindings, "location", now);
    assert_eq!(users_of(&all), ["b", "a"]);
    assert_eq!(all[1].numbers[2], 9);

    let mut batch = Batch::default();
    batch.save("location", &bare("gone", "sip:1", now));
    batch.clear_table("location");
    batch.save("location", &bare("new", "sip:1", now));
    bindings.write(&batch).unwrap();
    assert_eq!(users_of(&load_all(&mut bindings, "location", now)), ["new"]);
}

/// Whatever was committed to the journal is there after any end, whether or not its rows had been written; the rows come from
/// where the bindings are.
pub fn a_journal_keeps_what_was_committed(database: &Database, rounds: u64) {
    let (now, tables) = (now(), ["location".to_string()]);
    let mut model = std::collections::BTreeMap::new();
    let mut seed = 1_u64;
    let mut random = |bound: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % bound
    };
    fn row(user: &str, cseq: Option<u32>, now: u64) -> Contact<'_> {
        Contact { cseq: cseq.unwrap_or(0), ..bare(user, "sip:c", now) }
    }
    let (mut recovered, mut folded, mut ended) = (0, 0, 0);
    for round in 0..rounds {
        let mut bindings = database.bindings(&[]).unwrap();
        recovered += bindings.recover(&tables).unwrap();
        let expected: Vec<(String, u32)> = model
            .iter()
            .filter_map(|(user, cseq): (&u64, &Option<u32>)| Some((user.to_string(), (*cseq)?)))
            .collect();
        let mut found: Vec<(String, u32)> = load_all(&mut bindings, "location", now)
            .into_iter()
            .map(|seen| (seen.texts[0].clone(), seen.numbers[2] as u32))
            .collect();
        found.sort_by_key(|(user, _)| user.parse::<u64>().unwrap());
        assert!(found == expected, "round {round}: {found:?} instead of {expected:?}");
        let (mut journal, encoder) = bindings.journal(&tables).unwrap().expect("the table is there");
        let mut records = Records::default();
        // Users whose rows are behind, and those whose rows are being written.
        let (mut dirty, mut todo) = (std::collections::BTreeSet::new(), Vec::new());
        for number in 0..random(12) {
            for _ in 0..random(600) {
                let (user, cseq) = (random(3_000), (random(6) > 0).then_some((round * 100 + number) as u32));
                let what = if cseq.is_some() { What::Save } else { What::Remove };
                records.push(0, &mut record(&encoder, what, &row(&user.to_string(), cseq, now)).unwrap());
                model.insert(user, cseq);
                dirty.insert(user);
            }
            if !journal.is_ending() && random(3) == 0 {
                journal.end_generation();
                todo = std::mem::take(&mut dirty).into_iter().collect();
            }
            let mut rows = Batch::default();
            for user in todo.drain(..todo.len().min(random(800) as usize)) {
                let (name, cseq) = (user.to_string(), model[&user]);
                match cseq {
                    Some(_) => rows.save("location", &row(&name, cseq, now)),
                    None => rows.remove("location", &row(&name, cseq, now)),
                }
            }
            let is_last = journal.is_ending() && todo.is_empty();
            folded += bindings.commit(&mut journal, &mut records, &rows, is_last).unwrap().rows;
            ended += u64::from(is_last);
            assert!(!is_last || !journal.is_ending());
            if random(8) == 0 {
                // Nobody knows whether it was committed: it is written again, with what comes next.
                continue;
            }
            records.clear();
        }
        // What was not committed is not promised.
        if !records.is_empty() {
            bindings.commit(&mut journal, &mut records, &Batch::default(), false).unwrap();
        }
    }
    recovered += database.bindings(&[]).unwrap().recover(&tables).unwrap();
    assert!(recovered > 0 && folded > 0 && ended > 0, "{recovered}, {folded} and {ended}");
}

/// A row that the table cannot hold is named when it is to be committed, and no page of it is written.
pub fn a_journal_takes_what_fits(database: &Database) {
    let (now, tables) = (now(), ["location".to_string()]);
    let mut bindings = database.bindings(&[]).unwrap();
    bindings.recover(&tables).unwrap();
    let (journal, encoder) = bindings.journal(&tables).unwrap().expect("the table is there");
    let long = "x".repeat(70_000);
    let unfit = Contact { path: long.as_bytes(), ..bare("long", "sip:2", now) };
    assert!(record(&encoder, What::Save, &unfit).is_err_and(|why| why.contains("longer than")));
    save_to(
        &mut bindings,
        &mut (journal, encoder),
        &[bare("first", "sip:1", now), bare("last", "sip:3", now)],
    );
    drop(bindings);
    let mut bindings = database.bindings(&[]).unwrap();
    assert_eq!(bindings.recover(&tables).unwrap(), 2);
    assert_eq!(users_of(&load_all(&mut bindings, "location", now)), ["first", "last"]);
    assert_eq!(bindings.recover(&tables).unwrap(), 0);
}

/// Expired bindings are neither visited nor kept.
pub fn expired_rows_are_removed(database: &Database) {
    let now = now();
    let mut bindings = database.bindings(&[]).unwrap();
    let mut batch = Batch::default();
    let names: Vec<String> = (0..6_000).map(|number| format!("sip:{number}@h")).collect();
    for name in &names {
        let old = Contact { expires_unix_micros: now - 2_000_000, ..bare("old", "", now) };
        batch.save("location", &Contact { contact: name.as_bytes(), ..old });
    }
    batch.save("location", &bare("live", "sip:l", now));
    assert_eq!(bindings.write(&batch).unwrap().rows, 6_001);
    assert_eq!(read_all(&mut bindings, "old", "").len(), 6_000);
    let mut told = Vec::new();
    let visited = bindings.load("location", now, &mut |read, total| told.push((read, total)), &mut |_| true);
    assert_eq!(visited.unwrap(), 1);
    assert_eq!((told.first(), told.last()), (Some(&(0, 6_001)), Some(&(6_001, 6_001))));
    assert_eq!(read_all(&mut bindings, "old", "").len(), 0);
    assert_eq!(users_of(&load_all(&mut bindings, "location", now)), ["live"]);
}

/// What no table can hold does not keep the rest from being written.
pub fn a_bad_row_does_not_poison_the_batch(database: &Database, stores_any_bytes: bool) {
    let now = now();
    let mut bindings = database.bindings(&[]).unwrap();
    let long = "sip:".to_string() + &"x".repeat(600);
    let agent = "ü".repeat(400);
    let mut batch = Batch::default();
    batch.save("location", &bare("first", "sip:1", now));
    batch.save("location", &Contact { contact: long.as_bytes(), ..bare("long", "", now) });
    batch.save("location", &Contact { path: b"<sip:\xff;lr>", ..bare("odd", "sip:2", now) });
    batch.save("location", &Contact { call_id: b"a\0b", ..bare("nul", "sip:3", now) });
    batch.save("location", &Contact { user_agent: agent.as_bytes(), ..bare("agent", "sip:4", now) });
    batch.save("location", &bare("last", "sip:5", now));
    let written = bindings.write(&batch).unwrap();
    let mut all = load_all(&mut bindings, "location", now);
    all.sort_by_key(|seen| seen.texts[2].len());
    let left_out: Vec<&[u8]> = written.left_out.iter().map(|left| &*left.username).collect();
    if stores_any_bytes {
        assert_eq!((written.rows, left_out.len(), all.len()), (6, 0, 6));
        assert!(all.iter().any(|seen| seen.texts[2] == long));
        return;
    }
    assert_eq!(left_out, [&b"long"[..], b"odd", b"nul"]);
    assert!(written.left_out.iter().all(|left| left.reason.contains("column")), "{written:?}");
    assert_eq!(written.rows, 3);
    let agents: Vec<usize> = all.iter().map(|seen| seen.texts[6].chars().count()).collect();
    assert_eq!(agents, [0, 255, 0]);
}

/// Rows that a Kamailio wrote are taken over; of two for one contact the later one counts.
pub fn foreign_rows_are_taken_over(database: &Database, insert: &mut dyn FnMut(&str, &str, &str, i64)) {
    let now = now();
    let mut bindings = database.bindings(&[]).unwrap();
    // (ruid, username, contact, updated so many seconds ago)
    insert("uloc-1-1-1", "alice", "sip:a@h", 30);
    insert("uloc-1-1-2", "bob", "sip:b@h", 50);
    insert("uloc-1-1-3", "bob", "sip:b@h", 20);
    insert("uloc-1-1-4", "carol", "sip:c@h", 40);
    save(&mut bindings, &[Contact { cseq: 77, ..bare("carol", "sip:c@h", now - 10_000_000) }]);
    let all = load_all(&mut bindings, "location", now);
    let found: Vec<(&str, bool)> = all.iter().map(|seen| (&*seen.texts[0], seen.is_foreign)).collect();
    assert_eq!(found, [("alice", true), ("bob", true), ("carol", false)]);
    assert_eq!(all[1].ruid, "uloc-1-1-3");
    let age = now - all[0].numbers[1];
    assert!((29_000_000..33_000_000).contains(&age), "updated {age} us ago");
    // The losers are gone; what was visited goes when it is written as ours.
    assert_eq!(load_all(&mut bindings, "location", now).len(), 3);
    let mut batch = Batch::default();
    for seen in all.iter().filter(|seen| seen.is_foreign) {
        batch.remove_ruid("location", seen.ruid.as_bytes());
        let [username, _, contact, ..] = &seen.texts;
        let row = Contact { username: username.as_bytes(), contact: contact.as_bytes(), ..bare("", "", now) };
        batch.save("location", &row);
    }
    bindings.write(&batch).unwrap();
    let all = load_all(&mut bindings, "location", now);
    assert!(all.len() == 3 && all.iter().all(|seen| !seen.is_foreign), "{all:?}");
    insert("uloc-1-1-5", "alice", "sip:a@h", -5);
    let alice = read_all(&mut bindings, "alice", "");
    assert_eq!(alice.len(), 1);
    assert!(alice[0].is_foreign && alice[0].ruid == "uloc-1-1-5", "{alice:?}");
    assert_eq!(load_all(&mut bindings, "location", now).len(), 3);
}

/// Users are added once, changed, listed in order and removed.
pub fn users_are_managed(database: &Database, has_sha_columns: bool) {
    let user = |name: &str, domain: &str| User {
        username: name.into(),
        domain: domain.into(),
        ha1: "0123456789abcdef0123456789abcdef".into(),
        ha1_sha256: "5".repeat(64),
        ..User::default()
    };
    let missing: &[&str] = if has_sha_columns { &[] } else { &["ha1_sha256"] };
    let mut users = database.users().unwrap();
    assert_eq!(users.add(&user("bob", "b.org")).unwrap(), missing);
    assert_eq!(users.add(&user("alice", "b.org")).unwrap(), missing);
    users.add(&user("Zoe", "a.org")).unwrap();
    users.add(&user("zoe", "a.org")).unwrap();
    for again in [user("bob", "b.org"), user("Zoe", "a.org")] {
        assert!(matches!(users.add(&again), Err(StoreError::Wrong(text)) if text.contains(&again.username)));
    }
    let list = |users: &mut store::Users, domain: Option<&str>, limit| {
        let mut all = Vec::new();
        users.list(domain, limit, &mut |user| all.push(user.clone())).unwrap();
        all
    };
    let all = list(&mut users, None, 100);
    let names: Vec<&str> = all.iter().map(|user| &*user.username).collect();
    assert_eq!(names, ["Zoe", "zoe", "alice", "bob"]);
    assert_eq!(list(&mut users, Some("b.org"), 1).len(), 1);
    let changed = User { ha1: "f".repeat(32), ..user("bob", "b.org") };
    users.passwd(&changed).unwrap();
    users.passwd(&changed).unwrap();
    let bob = list(&mut users, Some("b.org"), 9).pop().unwrap();
    assert_eq!((&bob.ha1, &bob.password), (&changed.ha1, &String::new()));
    assert_eq!(bob.ha1_sha256.is_empty(), !has_sha_columns);
    assert!(matches!(users.passwd(&user("nobody", "b.org")), Err(StoreError::Wrong(_))));
    assert!(users.remove("bob", "b.org").unwrap());
    assert!(!users.remove("bob", "b.org").unwrap());
    // No SQL in a name is more than a name.
    users.add(&user("o'neil\"; DROP TABLE subscriber; --", "b.org")).unwrap();
    assert!(users.remove("o'neil\"; DROP TABLE subscriber; --", "b.org").unwrap());
}

pub fn select(table: &str, columns: &[&str], keys: &[(&str, &str)]) -> Select {
    Select {
        table: table.into(),
        columns: columns.iter().map(|column| (*column).into()).collect(),
        keys: keys.iter().map(|(key, value)| ((*key).into(), value.as_bytes().into())).collect(),
        rows_max: 10,
    }
}

/// Asks and waits for the answer, which comes soon even where the question has [`FOR_EVER`].
pub fn ask(selector: &Selector, select: Select, patience: Duration) -> Selected {
    let (sender, receiver) = mpsc::channel();
    let reply = move |selected| {
        let _ = sender.send(selected);
    };
    selector.ask(select, Instant::now() + patience, Box::new(reply));
    receiver.recv_timeout(3 * PATIENCE).expect("an answer in time")
}

/// Questions are answered with texts, and wrong ones refused.
pub fn questions_are_answered(database: &Database) {
    let mut users = database.users().unwrap();
    let alice = User { username: "alice".into(), domain: "d".into(), ha1: "x".into(), ..User::default() };
    users.add(&alice).unwrap();
    let selector = database.selector(2, 100).unwrap();
    let key = [("username", "alice"), ("domain", "d")];
    let rows = ask(&selector, select("subscriber", &["ha1", "password"], &key), PATIENCE);
    assert_eq!(rows.unwrap(), vec![vec![Some(b"x".as_slice().into()), Some(b"".as_slice().into())]]);
    let rows = ask(&selector, select("subscriber", &["ha1"], &[("username", "bob")]), PATIENCE);
    assert_eq!(rows.unwrap().len(), 0);
    // A column that holds no text is compared and read as one.
    let rows = ask(&selector, select("version", &["table_version"], &[("table_version", "7")]), PATIENCE);
    assert_eq!(rows.unwrap(), vec![vec![Some(b"7".as_slice().into())]]);
    let mut odd = select("subscriber", &["ha1"], &[]);
    odd.keys.push(("username".into(), b"\xff\0".as_slice().into()));
    assert_eq!(ask(&selector, odd, PATIENCE).unwrap().len(), 0);
    let refused = ask(&selector, select("no_such_table", &["a"], &[]), PATIENCE);
    assert!(
        matches!(&refused, Err(StoreError::Refused(text)) if text.contains("no_such_table")),
        "{refused:?}"
    );
    for (columns, key) in [(["ha1", "no_such_column"], "username"), (["ha1", "username"], "no_such_column")] {
        let refused = ask(&selector, select("subscriber", &columns, &[(key, "no_such_column")]), PATIENCE);
        assert!(
            matches!(&refused, Err(StoreError::Refused(text)) if text.contains("no_such_column")),
            "{refused:?}"
        );
    }
    assert!(matches!(database.rows("subscriber", &["no_such_column"], 9), Err(StoreError::Refused(_))));
    let wrong = ask(&selector, select("a; DROP TABLE x", &["a"], &[]), PATIENCE);
    assert!(matches!(wrong, Err(StoreError::Wrong(_))));
    let state = selector.state();
    assert_eq!((state.answered, state.refused, state.failed, state.waiting), (4, 4, 0, 0), "{state:?}");
    assert!(state.is_up);
}

/// More questions than may wait are turned away, and each is answered once.
pub fn too_many_questions_are_turned_away(database: &Database) {
    let selector = database.selector(1, 4).unwrap();
    let (sender, receiver) = mpsc::channel();
    for _ in 0..500 {
        let sender = sender.clone();
        let reply = move |selected: Selected| {
            let _ = sender.send(selected.is_ok());
        };
        selector.ask(select("version", &["table_name"], &[]), Instant::now() + PATIENCE, Box::new(reply));
    }
    drop(sender);
    // The threads answer all that they took before they end.
    let state = selector.clone();
    drop(selector);
    let answers: Vec<bool> = receiver.iter().collect();
    assert_eq!(answers.len(), 500);
    let state = state.state();
    assert_eq!((state.answered + state.full, state.failed), (500, 0), "{state:?}");
    assert!(state.full > 0 && state.answered >= 5, "{state:?}");
}

/// What is missing is named, and made on demand.
pub fn tables_are_checked_and_made(database: &Database, execute: &mut dyn FnMut(&str)) {
    let kinds =
        ["location", "subscriber", "domain", "domain_attrs", "address", "trusted", "dbaliases", "uri"];
    let all: Vec<Needed> = kinds.iter().map(|kind| needed(kind, kind)).collect();
    database.check(&all).unwrap();
    assert_eq!(database.create().unwrap(), Vec::<String>::new());
    let mut other = needed("location2", "location");
    other.columns.push(("username".into(), "aor_user".into()));
    let missing = database.check(std::slice::from_ref(&other)).unwrap_err().to_string();
    assert!(missing.contains("no table location2") && missing.contains("strowger db create"), "{missing}");
    assert_eq!(database.create_needed(std::slice::from_ref(&other)).unwrap(), ["location2"]);
    database.check(std::slice::from_ref(&other)).unwrap();
    assert!(database.columns("location2").unwrap().contains(&"aor_user".to_string()));
    assert_eq!(database.columns("nothing").unwrap(), Vec::<String>::new());

    execute("UPDATE version SET table_version = 1004 WHERE table_name = 'subscriber'");
    execute("ALTER TABLE domain RENAME COLUMN did TO gone");
    let faults = database.check(&all).unwrap_err();
    let text = faults.to_string();
    assert!(matches!(faults, StoreError::Unfit(_)));
    assert!(text.contains("subscriber: it has version 1004 where 7 is expected"), "{text}");
    assert!(text.contains("domain: it lacks the columns did"), "{text}");
    execute("DROP TABLE uri");
    assert_eq!(database.create().unwrap(), ["uri"]);

    execute("INSERT INTO address (grp, ip_addr, mask) VALUES (1, '192.0.2.0', 24)");
    execute("INSERT INTO address (grp, ip_addr, mask, tag) VALUES (2, '198.51.100.1', 32, 'x')");
    let rows = database.rows("address", &["grp", "ip_addr", "tag"], 2).unwrap();
    assert!(rows.contains(&vec![Some("1".into()), Some("192.0.2.0".into()), None]), "{rows:?}");
    assert!(matches!(database.rows("address", &["grp"], 1), Err(StoreError::Refused(_))));
}

fn subscriber(selector: &Selector, patience: Duration) -> Selected {
    ask(selector, select("subscriber", &["ha1"], &[("username", "alice")]), patience)
}

fn wait_until_up(selector: &Selector) {
    let begun = Instant::now();
    while !selector.state().is_up {
        assert!(begun.elapsed() < Duration::from_secs(40), "it is not found again: {:?}", selector.state());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Killed and started again: committed rows are there, calls fail at once meanwhile and work again
/// afterwards.
pub fn survives_a_kill(server: &mut databases::Server, database: &Database) {
    let mut bindings = database.bindings(&[]).unwrap();
    let selector = database.selector(2, 100).unwrap();
    assert!(subscriber(&selector, PATIENCE).is_ok());
    save(&mut bindings, &[bare("before", "sip:1", now())]);
    server.kill();
    let mut batch = Batch::default();
    batch.save("location", &bare("after", "sip:1", now()));
    for _ in 0..2 {
        let error = bindings.write(&batch).unwrap_err();
        assert!(matches!(error, StoreError::Away(_)), "{error}");
        let answer = subscriber(&selector, FOR_EVER);
        assert!(matches!(answer, Err(StoreError::Away(_))), "{answer:?}");
    }
    assert!(!selector.state().is_up);
    server.boot();
    wait_until_up(&selector);
    assert!(subscriber(&selector, PATIENCE).is_ok());
    bindings.write(&batch).unwrap();
    assert_eq!(users_of(&load_all(&mut bindings, "location", now())), ["before", "after"]);
    // Restarted while nobody asked: nobody notices.
    server.kill();
    server.boot();
    assert!(subscriber(&selector, PATIENCE).is_ok());
    save(&mut bindings, &[bare("later", "sip:1", now())]);
    assert!(selector.state().is_up);
}

/// Paused: calls come back in time with `Away`, and at once when it is known.
pub fn survives_a_pause(server: &databases::Server, database: &Database) {
    let mut bindings = database.bindings(&[]).unwrap();
    let selector = database.selector(2, 100).unwrap();
    assert!(subscriber(&selector, PATIENCE).is_ok());
    save(&mut bindings, &[bare("before", "sip:1", now())]);
    server.pause();
    let mut batch = Batch::default();
    batch.save("location", &bare("after", "sip:1", now()));
    for _ in 0..2 {
        // It is paused until this has come back.
        let error = bindings.write(&batch).unwrap_err();
        assert!(matches!(error, StoreError::Away(_)), "{error}");
    }
    for _ in 0..4 {
        let answer = subscriber(&selector, Duration::from_millis(300));
        assert!(matches!(answer, Err(StoreError::Away(_))), "{answer:?}");
    }
    assert!(!selector.state().is_up);
    let answer = subscriber(&selector, FOR_EVER);
    assert!(matches!(answer, Err(StoreError::Away(_))), "{answer:?}");
    server.resume();
    wait_until_up(&selector);
    assert!(subscriber(&selector, PATIENCE).is_ok());
    bindings.write(&batch).unwrap();
    assert_eq!(users_of(&load_all(&mut bindings, "location", now())), ["before", "after"]);
}

/// A client that holds a lock on all rows of `location` until the thread ends; `sleep` is the database's function for it.
fn lock_rows(server: &databases::Server, sleep: &str) -> std::thread::JoinHandle<()> {
    let lock = "SELECT * FROM location FOR UPDATE";
    let mut holder = server.client_command(&format!("BEGIN; {lock}; SELECT {sleep}({LOCKED_SECS}); COMMIT"));
    let holder = std::thread::spawn(move || drop(holder.output()));
    while server.client_command(&format!("{lock} NOWAIT")).output().unwrap().status.success() {
        assert!(!holder.is_finished(), "the lock was never there");
    }
    holder
}

/// A statement that a lost connection left behind a lock is not carried out after a later one.
pub fn what_was_given_up_is_not_done_later(server: &databases::Server, database: &Database, sleep: &str) {
    let mut bindings = database.bindings(&[]).unwrap();
    save(&mut bindings, &[bare("a", "sip:1", now())]);
    let holder = lock_rows(server, sleep);
    let begun = Instant::now();
    let mut batch = Batch::default();
    batch.save("location", &Contact { cseq: 2, ..bare("a", "sip:1", now()) });
    let error = bindings.write(&batch).unwrap_err();
    assert!(matches!(error, StoreError::Away(_)), "{error}");
    // The next one is another change; the first must not come after it.
    batch.clear();
    batch.remove("location", &bare("a", "sip:1", now()));
    while bindings.write(&batch).is_err() {
        assert!(begun.elapsed().as_secs() < LOCKED_SECS * 4, "the lock is never gone");
    }
    holder.join().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(read_all(&mut bindings, "a", "").len(), 0);
}

/// The last statement of a process that has died is not carried out after the next one has taken over.
pub fn who_died_writes_nothing_more(server: &databases::Server, database: &Database, sleep: &str) {
    let tables = ["location".to_string()];
    let mut dying = database.bindings(&[]).unwrap();
    assert_eq!(dying.take_over(&tables).unwrap(), [""; 0]);
    save(&mut dying, &[bare("a", "sip:1", now())]);
    let holder = lock_rows(server, sleep);
    let mut batch = Batch::default();
    batch.save("location", &Contact { cseq: 2, ..bare("a", "sip:1", now()) });
    // The database is still at it when the connection is closed.
    dying.write(&batch).unwrap_err();
    drop(dying);
    let mut next = database.bindings(&[]).unwrap();
    assert_eq!(next.take_over(&tables).unwrap().len(), 1);
    let before = read_all(&mut next, "a", "");
    holder.join().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(before[0].numbers[CSEQ], 1);
    assert_eq!(read_all(&mut next, "a", ""), before);
}

/// Of two that hold the same tables in memory the later one writes, and the earlier one is told so.
pub fn only_one_writes(database: &Database) {
    let tables = ["location".to_string()];
    let change = |cseq| {
        let mut batch = Batch::default();
        batch.save("location", &Contact { cseq, ..bare("a", "sip:1", now()) });
        batch
    };
    let mut earlier = database.bindings(&[]).unwrap();
    assert_eq!(earlier.take_over(&tables).unwrap(), [""; 0]);
    earlier.write(&change(1)).unwrap();
    let mut looking = database.bindings(&[]).unwrap();
    assert!(looking.claim(&tables).unwrap().is_some());
    assert_eq!(looking.claim(&["aliases".to_string()]).unwrap(), None);
    earlier.write(&change(2)).unwrap();

    let mut later = database.bindings(&[]).unwrap();
    assert_eq!(later.take_over(&tables).unwrap().len(), 1);
    later.write(&change(3)).unwrap();
    for _ in 0..3 {
        let error = earlier.write(&change(4)).unwrap_err();
        assert!(matches!(&error, StoreError::Away(why) if why.contains("has taken over")), "{error}");
    }
    assert_eq!(read_all(&mut later, "a", "")[0].numbers[CSEQ], 3);
    drop(later);
    let begun = Instant::now();
    while let Err(error) = earlier.write(&change(5)) {
        assert!(begun.elapsed() < PATIENCE, "{error}");
    }
    assert_eq!(read_all(&mut looking, "a", "")[0].numbers[CSEQ], 5);
}
