//! A location table, a database that fails when it is told to, and a shard that only hears answers.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant as SystemClock};

use crossbeam_channel::{Receiver, Sender, unbounded};
use engine::{Answer, AskId, Input, Outbox, OwnedAnswer};
use location::{Binding, Limits, Location as _, Policy, Register, Seeds, Update};
use modules::DbMode;
use net::{Control, Handler, Post, Resolver, Shard, Statistics};
use sip::{Instant, Transport};
use store::{Contact, LeftOut, StoreError, What, Written};

use super::super::changes::Changes;
use super::super::{Keeper, Metrics, Order, PersistenceState, Plan, RowMaker, Running, Tickets, load, start};
use crate::clock::Time;
use crate::held::Held;
use crate::striped::Striped;

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn maker(tables: &[&str]) -> RowMaker {
    let settings = crate::configuration::load(None, &[]).unwrap().settings.registrar.clone();
    let listener = |transport, address: &str| engine::Listener {
        transport,
        address: address.parse().unwrap(),
        advertise: None,
    };
    let listeners = [listener(Transport::Udp, "127.0.0.1:5060"), listener(Transport::Tcp, "[::1]:5060")];
    let tables = tables.iter().map(|table| (*table).to_owned()).collect();
    RowMaker::new(settings, tables, &listeners, Time::start())
}

pub(crate) fn striped() -> Striped {
    Striped::new(&Limits::default(), Seeds([1, 2, 3, 4]))
}

pub(crate) fn bindings(location: &Striped, now: Instant, aor: &[u8]) -> Vec<Binding> {
    let mut found = Vec::new();
    location.lookup(now, aor, &mut |binding| {
        found.push(binding.clone());
        std::ops::ControlFlow::Continue(())
    });
    found
}

/// What the database does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Mood {
    #[default]
    Fine,
    Away,
    Refusing,
    /// It takes this long for everything.
    Slow(Duration),
    /// It does nothing until its mood changes.
    Hanging,
    /// It writes, and then says that it is away: nobody knows.
    CommitsAndGoes,
}

/// Table, user and contact; who wrote it.
pub(super) type Rows = BTreeMap<(String, String, String), String>;

#[derive(Debug, Default)]
pub(super) struct Inside {
    pub(super) mood: Mood,
    pub(super) rows: Rows,
    /// Changes in each transaction.
    pub(super) transactions: Vec<usize>,
    /// A user whose row no table can hold.
    pub(super) unfit: Option<&'static str>,
    pub(super) expires_unix_micros: u64,
}

/// The database; clones are the same one.
#[derive(Clone, Debug, Default)]
pub(super) struct Fake(Arc<Mutex<Inside>>);

impl Fake {
    pub(super) fn lock(&self) -> MutexGuard<'_, Inside> {
        self.0.lock().unwrap()
    }

    pub(super) fn set(&self, mood: Mood) {
        self.lock().mood = mood;
    }

    /// Runs a call to another database, which is in the same mood.
    pub(super) fn around<T>(&self, call: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
        match self.mood()? {
            Mood::CommitsAndGoes => {
                call()?;
                Err(StoreError::Away("the connection was lost".into()))
            }
            _ => call(),
        }
    }

    fn mood(&self) -> Result<Mood, StoreError> {
        let mood = self.lock().mood;
        match mood {
            Mood::Away => return Err(StoreError::Away("nobody there".into())),
            Mood::Refusing => return Err(StoreError::Refused("the disk is full".into())),
            Mood::Slow(time) => thread::sleep(time),
            Mood::Hanging => {
                while self.lock().mood == Mood::Hanging {
                    thread::sleep(Duration::from_millis(5));
                }
                return self.mood();
            }
            Mood::Fine | Mood::CommitsAndGoes => {}
        }
        Ok(mood)
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl Keeper for Fake {
    fn write(&mut self, changes: &Changes, range: Range<usize>) -> Result<Written, StoreError> {
        let mood = self.mood()?;
        let mut inside = self.lock();
        let mut written = Written::default();
        inside.transactions.push(range.len());
        for row in changes.rows(range) {
            let contact = row.contact;
            let key = (row.table.to_owned(), text(contact.username), text(contact.contact));
            match row.what {
                What::Save if inside.unfit.is_some_and(|unfit| unfit.as_bytes() == contact.username) => {
                    written.left_out.push(LeftOut {
                        table: row.table.to_owned(),
                        username: contact.username.into(),
                        domain: contact.domain.into(),
                        contact: contact.contact.into(),
                        reason: "it is too long".into(),
                    });
                }
                What::Save => {
                    inside.rows.insert(key, "ours".into());
                }
                What::Remove => {
                    inside.rows.remove(&key);
                }
                What::RemoveRuid => {
                    let ruid = text(contact.ruid);
                    inside.rows.retain(|_, writer| *writer != ruid);
                }
            }
        }
        match mood {
            Mood::CommitsAndGoes => Err(StoreError::Away("the connection was lost".into())),
            _ => Ok(written),
        }
    }

    fn read(
        &mut self,
        table: &str,
        username: &[u8],
        _: &[u8],
        visit: &mut dyn FnMut(&Contact<'_>),
    ) -> Result<(), StoreError> {
        self.load(table, 0, &mut |_, _| {}, &mut |contact| {
            if contact.username == username {
                visit(contact);
            }
            true
        })?;
        Ok(())
    }

    fn load(
        &mut self,
        table: &str,
        _: u64,
        progress: &mut dyn FnMut(u64, u64),
        visit: &mut dyn FnMut(&Contact<'_>) -> bool,
    ) -> Result<u64, StoreError> {
        self.mood()?;
        let inside = self.lock();
        let (rows, expires_unix_micros) = (inside.rows.clone(), inside.expires_unix_micros);
        drop(inside);
        let (mut visited, all) = (0, rows.len() as u64);
        for ((_, user, contact), writer) in rows.iter().filter(|((of, ..), _)| of == table) {
            visited += 1;
            progress(visited, all);
            let contact = Contact {
                username: user.as_bytes(),
                contact: contact.as_bytes(),
                call_id: b"stored",
                cseq: 1,
                expires_unix_micros,
                ruid: writer.as_bytes(),
                is_foreign: writer != "ours",
                ..Contact::default()
            };
            if !visit(&contact) {
                break;
            }
        }
        Ok(visited)
    }
}

/// Hears answers.
struct Ear(Sender<(AskId, OwnedAnswer)>);

impl Handler for Ear {
    fn shard_of(&self, _: &[u8]) -> usize {
        0
    }
    fn handle(&mut self, _: Instant, input: Input<'_>, _: &mut Outbox) {
        if let Input::Answer { id, answer } = input {
            let answer = match answer {
                Answer::Done => OwnedAnswer::Done,
                Answer::Refused => OwnedAnswer::Refused,
                _ => OwnedAnswer::Failed,
            };
            let _ = self.0.send((id, answer));
        }
    }
    fn next_timeout(&self) -> Option<Instant> {
        None
    }
    fn is_idle(&self) -> bool {
        true
    }
    fn report(&mut self, _: &Statistics) {}
}

/// All together.
pub(super) struct Rig {
    pub(super) fake: Fake,
    pub(super) location: Striped,
    pub(super) time: Time,
    pub(super) running: Running,
    answers: Receiver<(AskId, OwnedAnswer)>,
    post: Post,
    control: Arc<Control>,
    shard: Option<thread::JoinHandle<()>>,
    next: u64,
}

impl Rig {
    /// A persister of that mode over a database that is fine, with what it holds loaded.
    pub(super) fn new(mode: DbMode, fake: Fake) -> Rig {
        Rig::over(mode, fake.clone(), Box::new(fake), striped())
    }

    /// The same over another keeper and table.
    pub(super) fn over(mode: DbMode, fake: Fake, mut keeper: Box<dyn Keeper>, location: Striped) -> Rig {
        let (maker, time) = (maker(&["location", "phones"]), Time::start());
        let metrics = Arc::new(Metrics::default());
        load(&mut *keeper, &location, &maker, mode, &metrics, time).unwrap();
        let plan = Plan {
            mode,
            flush_interval: Duration::from_millis(20),
            commit_timeout: Duration::from_millis(200),
            database: "fake".into(),
        };
        let running = start(keeper, plan, location.clone(), maker, metrics, time).unwrap();
        let (sender, answers) = unbounded();
        let shard = Shard::new(0, Vec::new()).unwrap();
        let post = shard.post();
        let control = Arc::new(Control::new(1));
        let (orders, posts) = (control.clone(), vec![post.clone()]);
        let shard = thread::spawn(move || {
            let settings = net::Settings::new(Duration::ZERO, SystemClock::now());
            shard.run(Ear(sender), &settings, &orders, posts, Resolver::start().unwrap()).unwrap();
        });
        Rig { fake, location, time, running, answers, post, control, shard: Some(shard), next: 0 }
    }

    /// Binds a contact of a user.
    pub(super) fn bind(&self, user: &str, contact: &str) {
        self.rebind(user, contact, 1);
    }

    /// The same by the REGISTER with this CSeq.
    pub(super) fn rebind(&self, user: &str, contact: &str, cseq: u32) {
        let update = Update { expires: Some(600), ..Update::new(contact.as_bytes(), user.as_bytes(), cseq) };
        let register = Register::Bind(std::slice::from_ref(&update));
        self.location
            .register(self.time.now(), user.as_bytes(), &register, &Policy::default(), &mut |_| {})
            .unwrap();
    }

    /// What holds back the answers of the shard.
    pub(super) fn held(&self, timeout: Duration) -> Held {
        let tickets = Arc::new(Tickets::new(self.post.clone()));
        self.running.persister.hold(tickets.clone()).unwrap();
        Held::new(self.running.persister.clone(), tickets, self.location.clone(), timeout, 5)
    }

    /// Asks for a commit.
    pub(super) fn ask(&mut self, user: &str, is_refresh: bool) -> AskId {
        self.next += 1;
        let id = AskId(self.next);
        let deadline = SystemClock::now() + PATIENCE;
        self.running.persister.ask(id, user.as_bytes().into(), is_refresh, deadline, &self.post);
        id
    }

    /// The next answer.
    pub(super) fn answer(&self) -> (AskId, OwnedAnswer) {
        self.answers.recv_timeout(PATIENCE).expect("an answer")
    }

    /// The next one, if it comes soon.
    pub(super) fn answer_at_once(&self) -> Option<(AskId, OwnedAnswer)> {
        self.answers.recv_timeout(Duration::from_millis(200)).ok()
    }

    /// Asks and waits.
    pub(super) fn persist(&mut self, user: &str) -> OwnedAnswer {
        let id = self.ask(user, false);
        let (of, answer) = self.answer();
        assert_eq!(of, id);
        answer
    }

    pub(super) fn state(&self) -> PersistenceState {
        self.running.persister.state()
    }

    /// Has the thread end soon; how many changes it could not write.
    pub(super) fn end(&self) -> usize {
        let at = SystemClock::now() + Duration::from_millis(100);
        self.running.persister.orders.send(Order::Stop(at)).unwrap();
        self.running.ended.recv_timeout(PATIENCE).expect("the thread ends")
    }

    /// Waits until something is so.
    pub(super) fn until(&self, what: &str, is_so: impl Fn(&Rig) -> bool) {
        let begin = SystemClock::now();
        while !is_so(self) {
            assert!(begin.elapsed() < PATIENCE, "it never came: {what}; {:?}", self.state());
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// The users and contacts that are stored.
    pub(super) fn stored(&self) -> Vec<(String, String)> {
        self.fake.lock().rows.keys().map(|(_, user, contact)| (user.clone(), contact.clone())).collect()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.control.stop();
        self.post.wake();
        if let Some(shard) = self.shard.take() {
            let _ = shard.join();
        }
    }
}
