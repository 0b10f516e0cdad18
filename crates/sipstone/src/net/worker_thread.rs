//! One worker thread: a load worker, its sockets, the clock, and what it reports each second.
//!
//! The loop waits for datagrams, orders and the next timeout, takes what there is, and then sends everything at once.
//! Nothing on a message's way is shared with another thread.

use super::Clock;
use super::crew_sockets::Opened;
use super::pace::Pace;
use super::socket::{NetError, Receiver, Sender, Socket};
use super::stream::Streams;
use crate::group::{Finished, Interval};
use crate::load::{ConnectionId, Input, Outbox, Preamble, SocketId, Worker};
use crate::spec::{Assignment, ContactRange};
use crate::tally::{ConnectionTally, GeneratorTally, Tally};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::eventfd::EventFd;
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use sip::Instant;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

/// How often the progress of the preamble is reported.
const PREAMBLE_REPORT: Duration = Duration::from_millis(200);

/// Longest sleep, so that a thread that missed a wake-up looks around again.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// Most batches read from one socket before anything else is done. An operation brings several datagrams for each that
/// begins it, so reading must be able to overtake the arrivals when both have piled up.
const BATCHES_MAX: usize = 8;

/// Most batches thrown away when a new assignment begins on old sockets.
const OLD_BATCHES_MAX: usize = 4096;

/// What a worker thread is told.
#[derive(Debug)]
pub(super) enum Order {
    /// A new worker for this assignment.
    Prepare(Box<Assignment>),
    /// Register the own users.
    Register(Vec<ContactRange>),
    /// The warm-up begins at this time.
    Start(Instant, Vec<ContactRange>),
    /// No more arrivals.
    Stop {
        /// Whether open operations may still end.
        drain: bool,
    },
    /// All workers are done: show the result.
    Close,
}

/// What a worker thread says.
#[derive(Debug)]
pub(super) enum Report {
    /// The worker stands; the contacts of its callees.
    Prepared(Vec<ContactRange>),
    /// The preamble, and whether it has ended.
    Preamble(Box<Preamble>, bool),
    /// One second.
    Second(Box<Interval>),
    /// The own operations have ended; the callees may still be wanted by those of other workers.
    Done,
    /// The result.
    Finished(Box<Finished>),
    /// The thread ends with this sentence.
    Problem(String),
}

/// What a worker thread is made of.
#[derive(Debug)]
pub(super) struct Post {
    /// Which of how many.
    pub(super) index: u16,
    /// How many workers the group has.
    pub(super) of: u16,
    /// The group's clock.
    pub(super) clock: Clock,
    /// Its sockets, listeners and addresses.
    pub(super) opened: Opened,
    /// Wakes the thread when there is an order.
    pub(super) wake: Arc<EventFd>,
    /// Orders; the thread ends when the other side is dropped.
    pub(super) orders: mpsc::Receiver<Order>,
    /// Reports, with the thread's index.
    pub(super) reports: mpsc::Sender<(u16, Report)>,
}

/// The body of the thread; returns when the orders' other side is gone or after a problem.
pub(super) fn run(mut post: Post) {
    let (index, reports) = (post.index, post.reports.clone());
    let equipment = post.opened.equipment.take();
    // A panic must not look like a thread that has nothing to say.
    let ended = catch_unwind(AssertUnwindSafe(|| {
        let streams = equipment.map(Streams::new).transpose()?;
        Hand::new(&post, streams).serve(&post)
    }));
    let problem = match ended {
        Ok(Ok(())) => return,
        Ok(Err(error)) => error.to_string(),
        Err(panic) => {
            format!("worker thread {index} stopped on an internal error, please report it: {}", text(&*panic))
        }
    };
    // The group may be gone itself; then nobody waits for the sentence.
    let _ = reports.send((index, Report::Problem(problem)));
}

/// The message of a panic.
fn text(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no message")
}

/// Pins the calling thread.
fn pin(cpu: u16) -> Result<(), NetError> {
    let mut set = CpuSet::new();
    set.set(usize::from(cpu))
        .and_then(|()| sched_setaffinity(Pid::from_raw(0), &set))
        .map_err(|error| NetError::Pin { cpu, error })
}

/// What the thread is doing.
#[derive(Debug)]
enum Phase {
    /// Nothing that is reported. Late datagrams are still answered.
    Idle,
    /// The preamble; the next report is due then.
    Registering(Instant),
    /// A trial.
    Running(Box<Course>),
}

/// The times and counts of a running trial.
#[derive(Debug)]
struct Course {
    start: Instant,
    /// The measured window.
    window: (Instant, Instant),
    /// The second that is being counted.
    second: u32,
    /// Whether there are no more arrivals because the group was told so.
    stopped: bool,
    /// Whether the own operations have ended.
    done: bool,
    /// What this thread counts itself, of the current second and of the window.
    interval: GeneratorTally,
    measured: GeneratorTally,
    /// What became of connections, likewise.
    connections: Option<Box<(ConnectionTally, ConnectionTally)>>,
    /// Where the last cut was.
    cut_at: Instant,
    cut_cpu: Duration,
}

impl Course {
    fn new(start: Instant, assignment: &Assignment, now: Instant) -> Course {
        let opens = start + assignment.workload.warm_up;
        Course {
            start,
            window: (opens, opens + assignment.workload.measure),
            second: 0,
            stopped: false,
            done: false,
            interval: GeneratorTally::default(),
            measured: GeneratorTally::default(),
            connections: assignment.workload.links.any_stream().then(Box::default),
            cut_at: now.max(start),
            cut_cpu: thread_cpu(),
        }
    }

    /// The end of the current second.
    fn second_ends(&self) -> Instant {
        self.start + Duration::from_secs(u64::from(self.second) + 1)
    }

    /// When the next cut is due: the end of the second, or an end of the window.
    fn next_cut(&self) -> Instant {
        let later = |at: Instant| if at > self.cut_at { at } else { Instant::NEVER };
        self.second_ends().min(later(self.window.0)).min(later(self.window.1))
    }

    /// Books the time since the last cut on the second and, if it lay there, on the window.
    fn cut(&mut self, now: Instant, traffic: &mut Traffic, streams: Option<&mut Streams>) {
        let cpu = thread_cpu();
        let piece = GeneratorPiece {
            cpu_us: micros(cpu.saturating_sub(self.cut_cpu)),
            wall_us: micros(now.since(self.cut_at)),
            traffic: std::mem::take(traffic),
        };
        piece.book(&mut self.interval);
        let within = self.cut_at >= self.window.0 && self.cut_at < self.window.1;
        if within {
            piece.book(&mut self.measured);
        }
        if let (Some(connections), Some(streams)) = (&mut self.connections, streams) {
            let tally = streams.take_tally();
            connections.0.merge(&tally);
            if within {
                connections.1.merge(&tally);
            }
        }
        (self.cut_at, self.cut_cpu) = (now, cpu);
    }

    /// Records how late the first request of an operation went out.
    fn lag(&mut self, planned: Instant, sent: Instant) {
        let lag_us = micros(sent.since(planned));
        self.interval.send_lag.record_us(lag_us);
        if planned >= self.window.0 && planned < self.window.1 {
            self.measured.send_lag.record_us(lag_us);
        }
    }
}

/// What went through the sockets since the last cut.
#[derive(Clone, Copy, Debug, Default)]
struct Traffic {
    sent: u64,
    received: u64,
    cut_short: u64,
}

/// What the thread used between two cuts.
struct GeneratorPiece {
    cpu_us: u64,
    wall_us: u64,
    traffic: Traffic,
}

impl GeneratorPiece {
    fn book(&self, tally: &mut GeneratorTally) {
        tally.cpu_us += self.cpu_us;
        tally.wall_us += self.wall_us;
        tally.datagrams_sent += self.traffic.sent;
        tally.datagrams_received += self.traffic.received;
        tally.strays += self.traffic.cut_short;
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// A count as the tally has it.
fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

/// CPU time of the calling thread.
pub(super) fn thread_cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}

/// The thread's own state.
#[derive(Debug)]
struct Hand {
    clock: Clock,
    receiver: Receiver,
    sender: Sender,
    out: Outbox,
    order: SendOrder,
    worker: Option<(Worker, Box<Assignment>)>,
    phase: Phase,
    traffic: Traffic,
    /// Sockets that have something to read.
    ready: Vec<usize>,
    /// The connections, if there are any, and whether something has happened to them.
    streams: Option<Streams>,
    stirred: bool,
    /// The last reading of the clock.
    now: Instant,
    pace: Pace,
}

impl Hand {
    fn new(post: &Post, streams: Option<Streams>) -> Hand {
        Hand {
            clock: post.clock,
            receiver: Receiver::default(),
            sender: Sender::default(),
            out: Outbox::default(),
            order: SendOrder::default(),
            worker: None,
            phase: Phase::Idle,
            traffic: Traffic::default(),
            ready: Vec::with_capacity(post.opened.sockets.len()),
            streams,
            stirred: false,
            now: post.clock.now(),
            pace: Pace::new(post.clock.now()),
        }
    }

    fn serve(&mut self, post: &Post) -> Result<(), NetError> {
        // Without the privilege for it the system wakes the thread 50 µs late, which shows as send lag.
        let _ = nix::sys::prctl::set_timerslack(1);
        let epoll = self.streams.as_ref().map(Streams::epoll);
        let mut polled: Vec<PollFd<'_>> =
            post.opened.sockets.iter().map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN)).collect();
        polled.extend(epoll.as_ref().map(|epoll| PollFd::new(epoll.0.as_fd(), PollFlags::POLLIN)));
        polled.push(PollFd::new(post.wake.as_fd(), PollFlags::POLLIN));
        loop {
            loop {
                match post.orders.try_recv() {
                    Ok(order) => self.obey(post, order)?,
                    Err(mpsc::TryRecvError::Empty) => break,
                    Err(mpsc::TryRecvError::Disconnected) => return Ok(()),
                }
            }
            self.timeouts();
            self.flush(post)?;
            self.lost();
            self.report(post);
            self.wait(post, &mut polled)?;
            self.receive(post)?;
        }
    }

    fn obey(&mut self, post: &Post, order: Order) -> Result<(), NetError> {
        self.now = self.clock.now();
        match (order, &mut self.worker) {
            (Order::Prepare(assignment), _) => return self.prepare(post, assignment),
            (Order::Register(contacts), Some((worker, _))) => {
                worker.register(self.now, &contacts, &mut self.out);
                self.phase = Phase::Registering(self.now + PREAMBLE_REPORT);
            }
            (Order::Start(start, contacts), Some((worker, assignment))) => {
                // What the preamble left in the counts belongs to no second.
                drop(worker.counts());
                self.traffic = Traffic::default();
                drop(self.streams.as_mut().map(Streams::take_tally));
                worker.start(start, &contacts);
                self.phase = Phase::Running(Box::new(Course::new(start, assignment, self.now)));
            }
            (Order::Stop { drain }, Some((worker, _))) => {
                worker.stop(self.now, drain);
                match &mut self.phase {
                    Phase::Idle => {}
                    Phase::Registering(_) => self.end_preamble(post),
                    Phase::Running(course) => course.stopped = true,
                }
            }
            (Order::Close, Some(_)) => self.close(post),
            (_, None) => {}
        }
        Ok(())
    }

    fn prepare(&mut self, post: &Post, assignment: Box<Assignment>) -> Result<(), NetError> {
        if let Some(&cpu) = nth_round_robin(&assignment.cpus, usize::from(post.index)) {
            pin(cpu)?;
        }
        for socket in &post.opened.sockets {
            for _ in 0..OLD_BATCHES_MAX {
                if !self.receiver.receive(socket, |_, _| {})?.more {
                    break;
                }
            }
        }
        if let Some(streams) = &mut self.streams {
            streams.close_own();
        }
        let Opened { callers, callees, .. } = &post.opened;
        let share = share_of(assignment.callees, post.index, post.of);
        let worker = Worker::new(&assignment, post.index, post.of, share, callers, callees);
        self.out.clear();
        self.phase = Phase::Idle;
        let contacts = worker.contacts();
        self.worker = Some((worker, assignment));
        say(post, Report::Prepared(contacts));
        Ok(())
    }

    /// Reads the sockets that are ready and lets the worker see what came.
    fn receive(&mut self, post: &Post) -> Result<(), NetError> {
        while let Some(index) = self.ready.pop() {
            for _ in 0..BATCHES_MAX {
                let id = socket_id(index, post.opened.first_socket);
                if !self.receive_from(&post.opened.sockets[index], id)? {
                    break;
                }
            }
        }
        for _ in 0..BATCHES_MAX {
            self.stirred = self.stirred && self.receive_streams()?;
        }
        self.stirred = false;
        Ok(())
    }

    /// Takes what has happened to connections; whether there may be more.
    fn receive_streams(&mut self) -> Result<bool, NetError> {
        let Hand { streams, worker, out, order, clock, now, traffic, .. } = self;
        let Some(streams) = streams else { return Ok(false) };
        *now = clock.now();
        let at = *now;
        streams.receive(at, &mut |arrived| {
            traffic.received += 1;
            if let Some((worker, _)) = worker {
                let before = out.sends.len();
                let crate::net::stream::Arrived { socket, connection, from, bytes } = arrived;
                worker.handle(at, Input::Message { socket, connection, from, bytes }, out);
                order.note(before, out.sends.len());
            }
        })
    }

    /// Tells the worker which connections were lost.
    fn lost(&mut self) {
        let Hand { streams, worker, out, now, .. } = self;
        let Some(streams) = streams else { return };
        while let Some((connection, failure)) = streams.take_lost() {
            if let Some((worker, _)) = worker {
                worker.handle(*now, Input::Lost { connection, failure }, out);
            }
        }
    }

    /// Reads one batch; whether there may be more.
    fn receive_from(&mut self, socket: &Socket, id: SocketId) -> Result<bool, NetError> {
        let Hand { receiver, worker, out, order, clock, now, .. } = self;
        let mut read = false;
        let batch = receiver.receive(socket, |from, bytes| {
            if !read {
                // One reading of the clock serves the batch.
                *now = clock.now();
                read = true;
            }
            if let Some((worker, _)) = worker {
                let before = out.sends.len();
                worker.handle(*now, Input::Datagram { socket: id, from, bytes }, out);
                order.note(before, out.sends.len());
            }
        })?;
        self.traffic.received += count(batch.datagrams + batch.cut);
        self.traffic.cut_short += count(batch.cut);
        if batch.refused {
            self.refused(id);
        }
        Ok(batch.more)
    }

    fn refused(&mut self, socket: SocketId) {
        if let Some((worker, _)) = &mut self.worker {
            worker.handle(self.now, Input::Refused { socket }, &mut self.out);
        }
    }

    /// Lets the worker do what is due. It bounds its own work; what is left is due in the next round.
    fn timeouts(&mut self) {
        self.now = self.clock.now();
        let Some((worker, _)) = &mut self.worker else { return };
        if worker.next_timeout().is_some_and(|due| due <= self.now) {
            worker.handle(self.now, Input::Timeout, &mut self.out);
        }
    }

    /// Sends what the worker wrote, a run of datagrams of the same socket at a time.
    fn flush(&mut self, post: &Post) -> Result<(), NetError> {
        self.order.sort(&mut self.out.sends);
        let mut next = 0;
        while let Some(first) = self.out.sends.get(next) {
            let id = first.socket;
            let connected = first.connection != ConnectionId::NONE;
            let run = self.out.sends[next..].iter().take_while(|send| send.socket == id).count();
            if connected {
                self.pass_on(next..next + run);
                next += run;
                continue;
            }
            let index = usize::from(id.0.wrapping_sub(post.opened.first_socket));
            let Some(socket) = post.opened.sockets.get(index) else {
                debug_assert!(false, "the worker named a socket that it does not have");
                next += run;
                continue;
            };
            let (sent, refused) = self.sender.send(socket, &self.out, next..next + run)?;
            self.traffic.sent += count(sent);
            self.record_lags(next..next + sent);
            next += sent;
            if refused {
                self.refused(id);
            }
        }
        self.flush_streams();
        if let (Some((worker, _)), false) = (&mut self.worker, self.out.sends.is_empty()) {
            worker.sent(self.clock.now());
        }
        self.out.clear();
        Ok(())
    }

    /// Gives messages to their connections. A socket's messages go all by datagram or all by connection.
    fn pass_on(&mut self, range: std::ops::Range<usize>) {
        let Hand { streams, out, now, traffic, .. } = self;
        let Some(streams) = streams else { return };
        for send in out.sends.get(range).unwrap_or(&[]) {
            streams.send(*now, (send.socket, send.connection, send.to), out.datagram(send));
            traffic.sent += 1;
        }
    }

    /// Writes to the connections, closes those that are to be closed, and then records the lags of what went.
    fn flush_streams(&mut self) {
        let Some(streams) = &mut self.streams else { return };
        streams.flush();
        if !self.out.closes.is_empty() {
            for connection in self.out.closes.drain(..) {
                streams.close(connection);
            }
            streams.flush();
        }
        let planned =
            |send: &crate::load::Send| send.connection != ConnectionId::NONE && send.planned.is_some();
        if let Phase::Running(course) = &mut self.phase
            && self.out.sends.iter().any(planned)
        {
            self.now = self.clock.now();
            for send in self.out.sends.iter().filter(|send| planned(send)) {
                course.lag(send.planned.unwrap_or(self.now), self.now);
            }
        }
    }

    fn record_lags(&mut self, sent: std::ops::Range<usize>) {
        let Phase::Running(course) = &mut self.phase else { return };
        let mut planned = self.out.sends[sent].iter().filter_map(|send| send.planned).peekable();
        if planned.peek().is_some() {
            self.now = self.clock.now();
            planned.for_each(|planned| course.lag(planned, self.now));
        }
    }

    /// Reports what is due.
    fn report(&mut self, post: &Post) {
        match &self.phase {
            Phase::Idle => {}
            Phase::Registering(due) => {
                let Some((worker, _)) = &self.worker else { return };
                // Asking for the preamble may copy an example, so it is not done for each datagram.
                if self.now < *due && worker.next_timeout().is_some() {
                    return;
                }
                let preamble = worker.preamble();
                if preamble.done() {
                    self.end_preamble(post);
                } else {
                    self.phase = Phase::Registering(self.now + PREAMBLE_REPORT);
                    say(post, Report::Preamble(Box::new(preamble), false));
                }
            }
            Phase::Running(_) => self.report_course(post),
        }
    }

    fn end_preamble(&mut self, post: &Post) {
        let Some((worker, _)) = &self.worker else { return };
        say(post, Report::Preamble(Box::new(worker.preamble()), true));
        self.phase = Phase::Idle;
    }

    fn report_course(&mut self, post: &Post) {
        let (Phase::Running(course), Some((worker, _))) = (&mut self.phase, &mut self.worker) else { return };
        while self.now >= course.next_cut() {
            let due = course.next_cut();
            course.cut(self.now.min(due), &mut self.traffic, self.streams.as_mut());
            if due == course.second_ends() {
                end_second(post, course, worker);
            }
        }
        // The window lasts to its end even when the last operation in it has ended: so long the server is watched.
        let over = if course.stopped { course.start } else { course.window.1 };
        if !course.done && self.now >= over && worker.finished(self.now) {
            course.done = true;
            say(post, Report::Done);
        }
    }

    /// Ends the trial: reports what is left of the second, and the result.
    fn close(&mut self, post: &Post) {
        let (Phase::Running(course), Some((worker, _))) = (&mut self.phase, &mut self.worker) else { return };
        course.cut(self.now, &mut self.traffic, self.streams.as_mut());
        let mut measured = end_second(post, course, worker);
        measured.generator.merge(&course.measured);
        measured.connections = course.connections.take().map(|connections| Box::new(connections.1));
        say(post, Report::Finished(Box::new(Finished { measured, examples: worker.examples() })));
        self.phase = Phase::Idle;
    }

    /// Whether the loss of connections has made the worker write something.
    fn has_work(&self) -> bool {
        !self.out.sends.is_empty() || !self.out.closes.is_empty()
    }

    /// Sleeps until a datagram, an order or the next timeout, and notes which sockets are ready.
    fn wait(&mut self, post: &Post, polled: &mut [PollFd<'_>]) -> Result<(), NetError> {
        let due =
            self.worker.as_ref().and_then(|(worker, _)| worker.next_timeout()).unwrap_or(Instant::NEVER);
        let due = due.min(match &self.phase {
            Phase::Idle => Instant::NEVER,
            Phase::Registering(due) => *due,
            Phase::Running(course) => course.next_cut(),
        });
        // Sending took time since the last reading.
        self.now = self.clock.now();
        if self.pace.rest(self.now, due) {
            self.now = self.clock.now();
        }
        let sleep = if self.has_work() { Duration::ZERO } else { due.since(self.now).min(SLEEP_MAX) };
        match ppoll(polled, Some(TimeSpec::from_duration(sleep)), None) {
            Ok(0) | Err(Errno::EINTR) => return Ok(()),
            Ok(_) => {}
            Err(error) => return Err(NetError::Receive { on: None, error }),
        }
        let (wake, sockets) = polled.split_last().expect("invariant: the wake-up is always polled");
        for (index, polled) in sockets.iter().enumerate() {
            let events = polled.revents().unwrap_or(PollFlags::POLLIN);
            let Some(socket) = post.opened.sockets.get(index) else {
                // Behind the sockets stands the epoll of the connections.
                self.stirred = !events.is_empty();
                continue;
            };
            if events.contains(PollFlags::POLLERR) && socket.drain_errors() {
                self.refused(socket_id(index, post.opened.first_socket));
            }
            if events.contains(PollFlags::POLLIN) {
                self.ready.push(index);
            }
        }
        if wake.any() != Some(false) {
            // Only wakes; the orders are in the channel.
            let _ = post.wake.read();
        }
        Ok(())
    }
}

/// Brings datagrams of the same socket and length together, so that they go as segments of one.
///
/// What one input made the worker send (an ACK and a BYE, a 180 and a 200) keeps its order: all first datagrams go before
/// all second ones. Those of different inputs belong to different operations, or are so far apart on the way that UDP
/// promises no order either.
#[derive(Debug, Default)]
struct SendOrder {
    /// Of each datagram, which of its input's it is; those that are not noted are first ones.
    places: Vec<u16>,
    keys: Vec<(u16, u16, usize, usize)>,
    sorted: Vec<crate::load::Send>,
}

impl SendOrder {
    /// Notes what one input made the worker send; `from` is how many sends there were before.
    fn note(&mut self, from: usize, to: usize) {
        if to > from + 1 {
            self.places.resize(from, 0);
            self.places.extend((0..to - from).map(|place| u16::try_from(place).unwrap_or(u16::MAX)));
        }
    }

    /// Puts the sends in order and forgets the notes.
    fn sort(&mut self, sends: &mut Vec<crate::load::Send>) {
        if sends.len() > 2 {
            let places = self.places.iter().copied().chain(std::iter::repeat(0));
            self.keys.clear();
            let key = |((index, send), place): ((usize, &crate::load::Send), u16)| {
                (send.socket.0, place, send.range.len(), index)
            };
            self.keys.extend(sends.iter().enumerate().zip(places).map(key));
            self.keys.sort_unstable();
            self.sorted.clear();
            self.sorted.extend(self.keys.iter().map(|(_, _, _, index)| sends[*index].clone()));
            std::mem::swap(sends, &mut self.sorted);
        }
        self.places.clear();
    }
}

/// Ends the current second; returns the measured window so far.
fn end_second(post: &Post, course: &mut Course, worker: &mut Worker) -> Tally {
    let mut counts = worker.counts();
    counts.interval.generator.merge(&std::mem::take(&mut course.interval));
    counts.interval.connections =
        course.connections.as_mut().map(|connections| Box::new(std::mem::take(&mut connections.0)));
    let interval = Interval { second: course.second, tally: counts.interval, measured: worker.measured() };
    say(post, Report::Second(Box::new(interval)));
    course.second = course.second.saturating_add(1);
    counts.measured
}

/// Reports; when the group is gone, the orders' channel ends the thread soon.
fn say(post: &Post, report: Report) {
    let _ = post.reports.send((post.index, report));
}

fn socket_id(index: usize, first: u16) -> SocketId {
    let index = u16::try_from(index).expect("invariant: a worker has at most 512 sockets of datagrams");
    SocketId(index.saturating_add(first))
}

/// The CPU of a worker: round robin over the list.
fn nth_round_robin(cpus: &[u16], index: usize) -> Option<&u16> {
    cpus.get(index.checked_rem(cpus.len())?)
}

/// The users of worker `index` of `of`: equal shares, in order, nothing left over.
pub(super) fn share_of(callees: (u32, u32), index: u16, of: u16) -> (u32, u32) {
    let (first, users) = callees;
    let cut = |i: u16| {
        let users_before = u64::from(users) * u64::from(i) / u64::from(of.max(1));
        u32::try_from(users_before).unwrap_or(users)
    };
    let (from, to) = (cut(index), cut(index + 1));
    (first.saturating_add(from), to - from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Send;

    #[test]
    fn datagrams_of_one_length_come_together_and_those_of_one_input_keep_their_order() {
        let mut order = SendOrder::default();
        let mut sends: Vec<Send> = Vec::new();
        let add = |sends: &mut Vec<Send>, socket: u16, length: usize| {
            let to = "127.0.0.1:5060".parse().unwrap();
            let start = sends.last().map_or(0, |send: &Send| send.range.end);
            sends.push(Send {
                socket: SocketId(socket),
                connection: ConnectionId::NONE,
                to,
                range: start..start + length,
                planned: None,
            });
        };
        // A timeout: a BYE alone. Then two answers that bring ACK (40) and BYE (30) each, and one on another socket.
        add(&mut sends, 0, 30);
        for _ in 0..2 {
            add(&mut sends, 0, 40);
            add(&mut sends, 0, 30);
            order.note(sends.len() - 2, sends.len());
        }
        add(&mut sends, 1, 40);
        add(&mut sends, 0, 40);
        order.note(sends.len() - 1, sends.len());
        order.sort(&mut sends);
        let lengths: Vec<_> = sends.iter().map(|send| (send.socket.0, send.range.len())).collect();
        assert_eq!(lengths, [(0, 30), (0, 40), (0, 40), (0, 40), (0, 30), (0, 30), (1, 40)]);
        assert!(order.places.is_empty());
    }

    #[test]
    fn shares_cover_every_user_once() {
        let mut next = 100;
        for index in 0..7 {
            let (first, count) = share_of((100, 1000), index, 7);
            assert_eq!(first, next);
            assert!((142..=143).contains(&count));
            next = first + count;
        }
        assert_eq!(next, 1100);
        assert_eq!(share_of((5, 0), 1, 2), (5, 0));
        assert_eq!(share_of((0, u32::MAX), 1, 2), (u32::MAX / 2, u32::MAX / 2 + 1));
    }

    #[test]
    fn workers_take_the_cpus_in_turn() {
        assert_eq!(
            [0, 1, 2, 3].map(|i| nth_round_robin(&[4, 6], i).copied()),
            [Some(4), Some(6), Some(4), Some(6)]
        );
        assert_eq!(nth_round_robin(&[], 3), None);
    }

    #[test]
    fn a_cpu_that_does_not_exist_is_an_error_that_says_what_to_do() {
        let error = pin(1000).unwrap_err();
        assert!(error.to_string().contains("choose others with --cpus"), "{error}");
    }
}
