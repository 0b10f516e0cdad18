//! The group of this host: one thread per worker, each with its own sockets.
//!
//! Threads and sockets stay from one assignment to the next as long as their number, the CPUs, the sources and the role
//! stay, so that registered contacts remain true. The threads' reports are merged by whoever calls
//! [`receive`](Group::receive); no thread of its own is needed for that.

use super::Clock;
use super::crew_sockets::{CrewLimits, Opened, enough_for_threads};
use super::socket::{NetError, source_towards, udp_drops};
use super::worker_thread::{self, Order, Post, Report};
use crate::group::{Command, Event, Gone, Group, Interval, Merger};
use crate::load::Preamble;
use crate::spec::{Assignment, ContactRange, Links, Role};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::collections::{HashSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

/// Most source addresses of one assignment.
pub const SOURCES_MAX: usize = 256;

/// Most worker threads of one group.
pub const THREADS_MAX: u16 = 1024;

/// A worker thread reports each second of a trial; one that is silent for longer than this is stuck.
pub const WORKER_SILENT_MAX: Duration = Duration::from_secs(10);

/// How often the progress of the preamble is told.
const REGISTERING_EVERY: Duration = Duration::from_millis(200);

/// Longest wait for a thread to end.
const END_MAX: Duration = Duration::from_secs(2);

/// The group of this host.
#[derive(Debug)]
pub struct LocalGroup {
    clock: Clock,
    crew: Option<Crew>,
    events: VecDeque<Event>,
}

/// What must stay the same for threads and sockets to be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) threads: u16,
    pub(super) cpus: Vec<u16>,
    pub(super) sources: Vec<IpAddr>,
    pub(super) role: Role,
    pub(super) group: u16,
    pub(super) links: Links,
    /// Where the connections lead; `None` if there are none: datagrams go wherever a trial wants them.
    pub(super) server: Option<SocketAddr>,
    /// Users who are called here, where their number decides about sockets.
    pub(super) users: u32,
}

/// The threads of one plan.
#[derive(Debug)]
struct Crew {
    plan: Plan,
    hands: Vec<Hired>,
    reports: mpsc::Receiver<(u16, Report)>,
    inodes: HashSet<u64>,
    receive_buffer_bytes: usize,
    work: Work,
}

/// One thread.
#[derive(Debug)]
struct Hired {
    orders: mpsc::Sender<Order>,
    wake: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
}

/// What the threads have reported of the present assignment.
#[derive(Debug, Default)]
struct Work {
    contacts: Vec<Option<Vec<ContactRange>>>,
    preambles: Vec<Option<Preamble>>,
    registered: Vec<bool>,
    /// Whether a preamble is under way; what is said of an earlier one does not count.
    registering: bool,
    told: Option<Instant>,
    course: Option<Course>,
    broken: bool,
}

/// A trial that is running.
#[derive(Debug)]
struct Course {
    merger: Merger,
    /// Whose own operations have ended.
    done: Vec<bool>,
    /// When each thread was last heard.
    heard: Vec<Instant>,
    /// The sockets' drops at the last second, and at the start.
    drops: u64,
    drops_at_start: u64,
}

impl Default for LocalGroup {
    fn default() -> LocalGroup {
        LocalGroup::new()
    }
}

impl LocalGroup {
    /// A group without threads; [`Command::Prepare`] starts them.
    #[must_use]
    pub fn new() -> LocalGroup {
        LocalGroup { clock: Clock::start(), crew: None, events: VecDeque::new() }
    }

    /// The smallest receive buffer of its sockets, bytes; `None` before the first [`Command::Prepare`].
    ///
    /// [`RECEIVE_BUFFER_BYTES`](super::socket::RECEIVE_BUFFER_BYTES) was asked for; without privileges the system gives
    /// no more than `net.core.rmem_max`.
    #[must_use]
    pub fn receive_buffer_bytes(&self) -> Option<usize> {
        self.crew.as_ref().map(|crew| crew.receive_buffer_bytes)
    }

    fn prepare(&mut self, assignment: &Assignment) -> Result<(), String> {
        let plan = plan(assignment)?;
        if self.crew.as_ref().is_none_or(|crew| crew.plan != plan || crew.work.broken) {
            // The old sockets are closed first: they may hold the ports or use up the descriptors.
            self.crew = None;
            self.crew = Some(Crew::hire(plan, self.clock).map_err(|error| error.to_string())?);
        }
        if let Some(crew) = &mut self.crew {
            crew.work = Work::new(crew.hands.len());
            crew.tell_all(|| Order::Prepare(Box::new(assignment.clone())));
        }
        Ok(())
    }

    fn start(&mut self, after: Duration, contacts: &[ContactRange]) -> Result<(), String> {
        let start = self.clock.now() + after;
        let Some(crew) = &mut self.crew else { return Ok(()) };
        let drops = udp_drops(&crew.inodes).map_err(|error| error.to_string())?;
        crew.work.course = Some(Course::new(crew.hands.len(), after, drops));
        crew.tell_all(|| Order::Start(start, contacts.to_vec()));
        Ok(())
    }
}

impl Group for LocalGroup {
    fn name(&self) -> &str {
        "this host"
    }

    fn send(&mut self, command: Command) -> Result<(), Gone> {
        let done = match command {
            Command::Prepare(assignment) => {
                self.events.clear();
                self.prepare(&assignment)
            }
            Command::Register { contacts } => {
                self.crew.iter_mut().for_each(|crew| crew.work.registering = true);
                self.crew.iter().for_each(|crew| crew.tell_all(|| Order::Register(contacts.clone())));
                Ok(())
            }
            Command::Start { after, contacts } => self.start(after, &contacts),
            Command::Stop { drain } => {
                self.crew.iter().for_each(|crew| crew.tell_all(|| Order::Stop { drain }));
                Ok(())
            }
            Command::Ping { token } => {
                let clock_us =
                    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_micros();
                self.events
                    .push_back(Event::Pong { token, clock_us: u64::try_from(clock_us).unwrap_or(u64::MAX) });
                Ok(())
            }
        };
        if let Err(message) = done {
            self.events.push_back(Event::Problem { message });
        }
        Ok(())
    }

    fn receive(&mut self, wait: Duration) -> Result<Option<Event>, Gone> {
        let until = Instant::now() + wait;
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(Some(event));
            }
            let left = until.saturating_duration_since(Instant::now());
            let Some(crew) = self.crew.as_mut().filter(|crew| !crew.work.broken) else {
                std::thread::sleep(left);
                return Ok(None);
            };
            match crew.reports.recv_timeout(left) {
                Ok((index, report)) => crew.take(usize::from(index), report, &mut self.events),
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    let Some(message) = crew.silent_worker() else { return Ok(None) };
                    crew.problem(message, &mut self.events);
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    crew.problem("all worker threads have ended, please report it".into(), &mut self.events);
                }
            }
        }
    }
}

/// What an assignment asks of threads and sockets, checked.
fn plan(assignment: &Assignment) -> Result<Plan, String> {
    let target = assignment.workload.target.address;
    let threads = assignment.threads;
    if !(1..=THREADS_MAX).contains(&threads) {
        return Err(format!("{threads} worker threads: choose 1 to {THREADS_MAX} with --threads"));
    }
    let mut sources = assignment.sources.clone();
    if sources.len() > SOURCES_MAX {
        return Err(format!("{} source addresses: no more than {SOURCES_MAX} are possible", sources.len()));
    }
    if sources.is_empty() {
        sources.push(source_towards(target).map_err(|error| error.to_string())?);
    }
    if let Some(&from) = sources.iter().find(|source| source.is_ipv4() != target.is_ipv4()) {
        return Err(NetError::Family { from, to: target }.to_string());
    }
    for link in [assignment.workload.links.caller, assignment.workload.links.callee] {
        enough_for_threads(link, threads)?;
    }
    let Assignment { cpus, role, group, .. } = assignment;
    let links = assignment.workload.links.clone();
    let streams = links.any_stream();
    Ok(Plan {
        threads,
        cpus: cpus.clone(),
        sources,
        role: *role,
        group: *group,
        server: streams.then_some(target),
        users: if streams { assignment.callees.1 } else { 0 },
        links,
    })
}

impl Crew {
    /// Opens the sockets and starts the threads.
    fn hire(plan: Plan, clock: Clock) -> Result<Crew, NetError> {
        let (sender, reports) = mpsc::channel();
        let mut crew = Crew {
            hands: Vec::with_capacity(usize::from(plan.threads)),
            reports,
            inodes: HashSet::new(),
            receive_buffer_bytes: usize::MAX,
            work: Work::default(),
            plan,
        };
        let limits = CrewLimits::of(&crew.plan)?;
        for index in 0..crew.plan.threads {
            let opened = Opened::new(&crew.plan, index, &limits)?;
            for socket in &opened.sockets {
                crew.inodes.insert(socket.inode());
                crew.receive_buffer_bytes = crew.receive_buffer_bytes.min(socket.receive_buffer_bytes());
            }
            let of = crew.plan.threads;
            crew.hands.push(Hired::start(opened, index, of, clock, sender.clone())?);
        }
        // Better now than at the end of the first second.
        udp_drops(&crew.inodes)?;
        Ok(crew)
    }

    fn tell_all(&self, order: impl Fn() -> Order) {
        for hand in &self.hands {
            // A thread that has ended has said why; its report is on the way.
            let _ = hand.orders.send(order());
            let _ = hand.wake.write(1);
        }
    }

    fn problem(&mut self, message: String, events: &mut VecDeque<Event>) {
        self.work.broken = true;
        events.push_back(Event::Problem { message });
    }

    /// The sentence about a thread that has not reported for too long.
    fn silent_worker(&self) -> Option<String> {
        let course = self.work.course.as_ref()?;
        let silent = |(index, heard): (usize, &Instant)| {
            (!course.merger.finished(index) && heard.elapsed() > WORKER_SILENT_MAX).then_some(index)
        };
        let index = course.heard.iter().enumerate().find_map(silent)?;
        Some(format!(
            "worker thread {index} has reported nothing for {} s: this host is overloaded or stands still; free its CPUs \
             or choose others with --cpus",
            WORKER_SILENT_MAX.as_secs()
        ))
    }

    fn take(&mut self, index: usize, report: Report, events: &mut VecDeque<Event>) {
        match report {
            Report::Prepared(contacts) => self.work.prepared(index, contacts, events),
            Report::Preamble(preamble, done) => self.work.preamble(index, *preamble, done, events),
            Report::Problem(message) => self.problem(message, events),
            Report::Second(interval) => {
                if let Some(course) = &mut self.work.course {
                    course.heard[index] = Instant::now();
                    course.merger.interval(index, *interval);
                }
                self.tell_seconds(events);
            }
            Report::Done => {
                let Some(course) = &mut self.work.course else { return };
                course.done[index] = true;
                if course.done.iter().all(|done| *done) {
                    self.tell_all(|| Order::Close);
                }
            }
            Report::Finished(finished) => {
                if let Some(course) = &mut self.work.course {
                    course.merger.finish(index, *finished);
                }
                self.tell_seconds(events);
            }
        }
    }

    /// Tells the seconds that all threads have reported, and the end.
    fn tell_seconds(&mut self, events: &mut VecDeque<Event>) {
        let Some(course) = &mut self.work.course else { return };
        let complete = course.merger.take_complete();
        let over = course.merger.unfinished().is_none();
        if complete.is_empty() && !over {
            return;
        }
        let drops = match udp_drops(&self.inodes) {
            Ok(drops) => drops,
            Err(error) => return self.problem(error.to_string(), events),
        };
        let mut new_drops = drops.saturating_sub(course.drops);
        course.drops = drops;
        for (second, mut tally) in complete {
            tally.generator.socket_drops += std::mem::take(&mut new_drops);
            let measured = course.merger.measured();
            events.push_back(Event::Interval(Box::new(Interval { second, tally, measured })));
        }
        if over && let Some(course) = self.work.course.take() {
            let mut finished = course.merger.into_result();
            // A datagram lost before or after the window may still have belonged to an operation of it.
            finished.measured.generator.socket_drops = drops.saturating_sub(course.drops_at_start);
            events.push_back(Event::Finished(Box::new(finished)));
        }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        let mut threads = Vec::new();
        for mut hand in self.hands.drain(..) {
            threads.extend(hand.thread.take());
            drop(hand.orders);
            let _ = hand.wake.write(1);
        }
        let until = Instant::now() + END_MAX;
        for thread in threads {
            while !thread.is_finished() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
            }
            // A thread that is stuck is left behind; it holds nothing but its own sockets.
            if thread.is_finished() {
                let _ = thread.join();
            }
        }
    }
}

impl Hired {
    fn start(
        opened: Opened,
        index: u16,
        of: u16,
        clock: Clock,
        reports: mpsc::Sender<(u16, Report)>,
    ) -> Result<Hired, NetError> {
        let thread_error = |error| NetError::Thread { error };
        let wake = EventFd::from_value_and_flags(0, EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)
            .map_err(|error| thread_error(error.into()))?;
        let wake = Arc::new(wake);
        let (orders, inbox) = mpsc::channel();
        let post = Post { index, of, clock, opened, wake: wake.clone(), orders: inbox, reports };
        let thread = std::thread::Builder::new()
            .name(format!("sipstone-{index}"))
            .spawn(move || worker_thread::run(post))
            .map_err(thread_error)?;
        Ok(Hired { orders, wake, thread: Some(thread) })
    }
}

impl Work {
    fn new(workers: usize) -> Work {
        Work {
            contacts: vec![None; workers],
            preambles: vec![None; workers],
            registered: vec![false; workers],
            ..Work::default()
        }
    }

    fn prepared(&mut self, index: usize, contacts: Vec<ContactRange>, events: &mut VecDeque<Event>) {
        self.contacts[index] = Some(contacts);
        if self.contacts.iter().all(Option::is_some) {
            let contacts = self.contacts.iter_mut().filter_map(Option::take).flatten().collect();
            events.push_back(Event::Prepared { contacts });
        }
    }

    fn preamble(&mut self, index: usize, preamble: Preamble, done: bool, events: &mut VecDeque<Event>) {
        if !self.registering {
            return;
        }
        self.preambles[index] = Some(preamble);
        self.registered[index] |= done;
        let all = || self.preambles.iter().flatten();
        let users = all().map(|preamble| preamble.users).sum();
        let registered = all().map(|preamble| preamble.registered).sum();
        let failed = all().map(|preamble| preamble.failed).sum();
        if self.registered.iter().all(|done| *done) {
            let example = all().find_map(|preamble| preamble.example.clone());
            events.push_back(Event::Registered { registered, failed, example });
            *self = Work { contacts: std::mem::take(&mut self.contacts), ..Work::new(self.registered.len()) };
        } else if self.told.is_none_or(|told| told.elapsed() >= REGISTERING_EVERY) {
            // The users of a thread that has not reported yet are missing in the sum, so it waits for all.
            if self.preambles.iter().all(Option::is_some) {
                self.told = Some(Instant::now());
                events.push_back(Event::Registering { users, registered, failed });
            }
        }
    }
}

impl Course {
    fn new(workers: usize, after: Duration, drops: u64) -> Course {
        Course {
            merger: Merger::new(workers),
            done: vec![false; workers],
            heard: vec![Instant::now() + after; workers],
            drops,
            drops_at_start: drops,
        }
    }
}

#[cfg(test)]
mod tests;
