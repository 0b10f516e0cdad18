//! Controller and agent over real connections on loopback, and each of them against a hostile peer.

use super::*;
use crate::group::{Command, Event, Finished, Gone, Group, Interval};
use crate::scenario::sipstone_mix;
use crate::spec::{
    Assignment, Auth, Choice, ContactRange, Links, Proxy, Role, Shape, Target, Users, Workload,
};
use crate::tally::{CLASSES_MAX, Tally, Times};
use proptest::prelude::*;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Instant;

const TOKEN: &str = "a token for tests only";

/// Short times; silence is noticed soon, but not by a machine that is merely busy.
fn quick() -> Settings {
    Settings {
        ping_every: Duration::from_millis(100),
        // Longer than a busy machine stands still.
        silence_max: Duration::from_secs(3),
        greeting_max: Duration::from_secs(3),
        wrong_token_pause: Duration::from_millis(10),
        line_bytes_max: 1 << 20,
    }
}

const PATIENCE: Duration = Duration::from_secs(20);

/// What the fake group saw and is to say.
struct World {
    /// Commands of all groups, in order.
    commands: Mutex<Vec<Command>>,
    /// Events that the current group is to send.
    events: Mutex<Receiver<Event>>,
    /// Groups made and dropped.
    made: AtomicUsize,
    dropped: AtomicUsize,
}

struct FakeGroup(Arc<World>);

impl Group for FakeGroup {
    fn name(&self) -> &str {
        "this host"
    }

    fn send(&mut self, command: Command) -> Result<(), Gone> {
        self.0.commands.lock().unwrap().push(command);
        Ok(())
    }

    fn receive(&mut self, wait: Duration) -> Result<Option<Event>, Gone> {
        Ok(self.0.events.lock().unwrap().recv_timeout(wait).ok())
    }
}

impl Drop for FakeGroup {
    fn drop(&mut self) {
        self.0.dropped.fetch_add(1, Ordering::SeqCst);
    }
}

struct Agent {
    address: String,
    world: Arc<World>,
    say: Sender<Event>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<std::io::Result<()>>>,
}

impl Agent {
    fn start(token: Option<&'static str>) -> Agent {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (say, events) = mpsc::channel();
        let world = Arc::new(World {
            commands: Mutex::default(),
            events: Mutex::new(events),
            made: AtomicUsize::new(0),
            dropped: AtomicUsize::new(0),
        });
        let stop = Arc::new(AtomicBool::new(false));
        let thread = thread::spawn({
            let (world, stop) = (Arc::clone(&world), Arc::clone(&stop));
            move || {
                let mut make = || -> Box<dyn Group> {
                    world.made.fetch_add(1, Ordering::SeqCst);
                    Box::new(FakeGroup(Arc::clone(&world)))
                };
                serve_on(&listener, token, &quick(), &mut make, &stop)
            }
        });
        Agent { address, world, say, stop, thread: Some(thread) }
    }

    fn connect(&self) -> Result<RemoteGroup, String> {
        RemoteGroup::connect_with(&self.address, None, PATIENCE, &quick())
    }

    fn commands(&self) -> Vec<Command> {
        self.world.commands.lock().unwrap().clone()
    }

    fn dropped(&self) -> usize {
        self.world.dropped.load(Ordering::SeqCst)
    }

    /// Connects without being a controller and says this.
    fn tell(&self, bytes: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        // An agent that has heard enough resets the connection.
        let _ = stream.write_all(bytes);
        stream
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.take().unwrap().join().unwrap().unwrap();
    }
}

fn until(what: &str, mut happened: impl FnMut() -> bool) {
    let start = Instant::now();
    while !happened() {
        assert!(start.elapsed() < PATIENCE, "not in time: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

fn next(group: &mut RemoteGroup) -> Event {
    group.receive(PATIENCE).unwrap().expect("an event comes in time")
}

fn gone(group: &mut RemoteGroup) -> String {
    let start = Instant::now();
    loop {
        match group.receive(Duration::from_millis(50)) {
            Ok(_) => assert!(start.elapsed() < PATIENCE, "the group is still there"),
            Err(gone) => return gone.reason,
        }
    }
}

fn first_line(stream: TcpStream) -> String {
    let mut line = String::new();
    let _ = BufReader::new(stream).read_line(&mut line);
    line
}

fn assignment() -> Assignment {
    let users = Users {
        count: 1000,
        first: 1,
        name: "user{}".into(),
        password: "password{}".into(),
        listed: vec![("alice".into(), "wonder\"land\u{1f}".into())],
        choice: Choice::Zipf(1.1),
    };
    let workload = Workload {
        target: Target { address: "[::1]:5060".parse().unwrap(), domain: "example.org".into() },
        links: Links::default(),
        classes: sipstone_mix(),
        rate: 0.1 + 0.2,
        shape: Shape::Ramp { from: 1.0 / 3.0 },
        users,
        auth: Auth::Cached,
        auth_every: true,
        proxy: Proxy::Stateful,
        seed: u64::MAX,
        warm_up: Duration::from_millis(2500),
        measure: Duration::from_nanos(10_000_000_001),
        drain: Duration::from_secs(33),
        t1: Duration::from_millis(500),
        t2: Duration::from_secs(4),
        open_operations_max: 100_000,
        preamble_window: 64,
        preamble: true,
        expires: 3600,
        trace: true,
    };
    Assignment {
        workload,
        group: 3,
        rate_share: 0.7,
        callees: (500, 500),
        role: Role::Handler,
        threads: 2,
        cpus: vec![1, 2],
        sources: vec!["127.0.0.2".parse().unwrap()],
    }
}

fn contacts() -> Vec<ContactRange> {
    vec![ContactRange { first: 0, count: 1000, address: "127.0.0.1:4000".parse().unwrap() }]
}

#[test]
fn commands_and_events_arrive_as_they_were_and_in_order() {
    let agent = Agent::start(None);
    let mut group = agent.connect().unwrap();
    assert_eq!(group.name(), agent.address);
    let commands = [
        Command::Prepare(Box::new(assignment())),
        Command::Register { contacts: contacts() },
        Command::Stop { drain: true },
    ];
    for command in &commands {
        group.send(command.clone()).unwrap();
    }
    until("three commands", || agent.commands().len() == 3);
    assert_eq!(agent.commands(), commands);
    let events = [
        Event::Prepared { contacts: contacts() },
        Event::Registering { users: 10, registered: 4, failed: 1 },
        Event::Registered { registered: 9, failed: 1, example: None },
        Event::Finished(Box::new(Finished { measured: Tally::new(2), examples: Vec::new() })),
        Event::Problem { message: "no address".into() },
    ];
    for event in &events {
        agent.say.send(event.clone()).unwrap();
    }
    for event in &events {
        assert_eq!(&next(&mut group), event);
    }
}

#[test]
fn a_ping_of_the_conductor_is_answered_and_heartbeats_stay_hidden() {
    let agent = Agent::start(None);
    let mut group = agent.connect().unwrap();
    assert_eq!(
        group.receive(Duration::from_millis(250)).unwrap(),
        None,
        "two heartbeats were answered meanwhile"
    );
    group.send(Command::Ping { token: 7 }).unwrap();
    assert!(matches!(next(&mut group), Event::Pong { token: 7, .. }));
    assert_eq!(agent.commands(), [], "the group is not asked");
}

/// Times of all sizes, the longest and beyond included.
fn times(seed: u64, count: u64) -> Times {
    let mut times = Times::default();
    for at in 0..count {
        let mixed = seed.wrapping_add(at).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        times.record_us(mixed >> (mixed % 64));
    }
    times
}

fn interval(second: u32) -> Interval {
    let mut tally = Tally::new(2);
    for (at, class) in tally.classes.iter_mut().enumerate() {
        let seed = u64::from(second) * 100 + at as u64;
        class.offered = 3000;
        class.latencies.from_planned = times(seed, 3000);
        class.latencies.from_sent = times(seed + 1, 2999);
        class.latencies.bye = times(seed + 2, 1);
    }
    tally.generator.send_lag = times(u64::from(second), 70_000);
    Interval { second, tally, measured: vec![(3000, 2999, 1), (0, 0, 0)] }
}

#[test]
fn histograms_merged_over_the_wire_equal_those_merged_here_bit_for_bit() {
    let agent = Agent::start(None);
    let mut group = agent.connect().unwrap();
    let (mut here, mut there) = (Tally::default(), Tally::default());
    for second in 0..5 {
        let interval = interval(second);
        here.merge(&interval.tally);
        agent.say.send(Event::Interval(Box::new(interval.clone()))).unwrap();
        let Event::Interval(received) = next(&mut group) else { panic!("another event") };
        assert_eq!(*received, interval);
        there.merge(&received.tally);
    }
    assert_eq!(here, there);
    assert_eq!(serde_json::to_vec(&here).unwrap(), serde_json::to_vec(&there).unwrap());
    let (ours, theirs) = (&here.generator.send_lag, &there.generator.send_lag);
    assert_eq!(
        (ours.count(), ours.max_us(), ours.mean_us()),
        (theirs.count(), theirs.max_us(), theirs.mean_us())
    );
}

#[test]
fn the_clock_of_an_agent_on_the_same_host_has_no_offset_to_speak_of() {
    let agent = Agent::start(None);
    let group = agent.connect().unwrap();
    let (offset_us, round_trip_us) = group.clock();
    assert!(round_trip_us > 0 && round_trip_us < 100_000, "{round_trip_us}");
    assert!(offset_us.unsigned_abs() <= round_trip_us, "{offset_us} of {round_trip_us}");
    assert_eq!(group.facts().address, agent.address);
    assert_eq!(group.version(), env!("CARGO_PKG_VERSION"));
}

#[test]
fn a_start_loses_the_time_of_its_way_and_of_its_waiting() {
    let agent = Agent::start(None);
    let mut group = agent.connect().unwrap();
    group.send(Command::Start { after: Duration::from_secs(2), contacts: contacts() }).unwrap();
    until("the start", || !agent.commands().is_empty());
    let Some(Command::Start { after, .. }) = agent.commands().pop() else { panic!("another command") };
    assert!(after < Duration::from_secs(2) && after > Duration::from_millis(1500), "{after:?}");
}

#[test]
fn a_controller_that_goes_away_ends_the_load_and_the_next_one_may_come() {
    let agent = Agent::start(None);
    let group = agent.connect().unwrap();
    until("a group", || agent.world.made.load(Ordering::SeqCst) == 1);
    drop(group);
    let _next_one = agent.connect().unwrap();
    assert_eq!(agent.dropped(), 1, "the load has ended before another may begin");
    assert_eq!(agent.commands(), [Command::Stop { drain: false }]);
    until("a new group", || agent.world.made.load(Ordering::SeqCst) == 2);
}

#[test]
fn a_controller_that_falls_silent_ends_the_load() {
    let agent = Agent::start(None);
    let stream = agent.tell(b"{\"sipstone\":1,\"version\":\"0.1.0\"}\n");
    until("a group", || agent.world.made.load(Ordering::SeqCst) == 1);
    let start = Instant::now();
    until("the end of the load", || agent.dropped() == 1);
    assert!(start.elapsed() > quick().silence_max / 2, "not before the time is up");
    drop(stream);
}

#[test]
fn a_controller_that_reads_nothing_cannot_keep_the_load_going() {
    let agent = Agent::start(None);
    let mut stream = agent.tell(b"{\"sipstone\":1,\"version\":\"0.1.0\"}\n");
    for second in 0..2000 {
        agent.say.send(Event::Interval(Box::new(interval(second % 2)))).unwrap();
        if second % 100 == 0 && agent.dropped() == 1 {
            break;
        }
    }
    let start = Instant::now();
    while agent.dropped() == 0 && start.elapsed() < PATIENCE {
        let _ = stream.write_all(b"{\"ping\":{\"token\":1}}\n");
        thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(agent.dropped(), 1);
}

#[test]
fn a_second_controller_is_refused_with_a_sentence() {
    let agent = Agent::start(None);
    let mut first = agent.connect().unwrap();
    let sentence = agent.connect().err().unwrap();
    assert!(sentence.contains("it works for 127.0.0.1:"), "{sentence}");
    first.send(Command::Ping { token: 1 }).unwrap();
    assert!(matches!(next(&mut first), Event::Pong { token: 1, .. }), "the first one is not disturbed");
}

#[test]
fn a_stranger_who_says_nothing_keeps_nobody_waiting_and_is_sent_away() {
    let agent = Agent::start(None);
    let silent = agent.tell(b"");
    agent.connect().unwrap();
    assert!(first_line(silent).contains("no greeting came in time"));
}

#[test]
fn more_strangers_than_can_be_heard_are_turned_away_and_later_ones_are_heard() {
    let agent = Agent::start(None);
    let strangers: Vec<TcpStream> = (0..40).map(|_| agent.tell(b"")).collect();
    drop(strangers);
    until("a controller is let in", || agent.connect().is_ok());
}

#[test]
fn without_the_right_token_nobody_is_obeyed() {
    let agent = Agent::start(Some(TOKEN));
    for (token, words) in
        [(None, "a token is needed"), (Some("a token for tests onlY"), "the token is wrong")]
    {
        let sentence = RemoteGroup::connect_with(&agent.address, token, PATIENCE, &quick()).err().unwrap();
        assert!(sentence.contains(words), "{sentence}");
    }
    assert_eq!(agent.world.made.load(Ordering::SeqCst), 0);
    RemoteGroup::connect_with(&agent.address, Some(TOKEN), PATIENCE, &quick()).unwrap();
}

#[test]
fn an_agent_beyond_loopback_needs_a_token_that_cannot_be_guessed() {
    let (loopback, everywhere) = ("127.0.0.1:1".parse().unwrap(), "0.0.0.0:1".parse().unwrap());
    assert_eq!(require_token(loopback, None), Ok(()));
    assert_eq!(require_token(loopback, Some("short")), Ok(()));
    assert_eq!(require_token(everywhere, Some("sixteen bytes ok")), Ok(()));
    for (listen, token) in [
        (everywhere, None),
        (everywhere, Some("short")),
        ("[::]:1".parse().unwrap(), None),
        (loopback, Some("")),
        (loopback, Some("x".repeat(TOKEN_BYTES_MAX + 1).as_str())),
    ] {
        let sentence = require_token(listen, token).unwrap_err();
        assert!(sentence.contains("head -c 24 /dev/urandom"), "{sentence}");
    }
    let never = AtomicBool::new(false);
    let error = serve("0.0.0.0:0".parse().unwrap(), None, &mut || panic!("no group"), &never).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
}

#[test]
fn what_is_no_greeting_is_refused_with_a_sentence() {
    let agent = Agent::start(None);
    let endless = vec![b'x'; 100_000];
    let many = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(100);
    for (bytes, words) in [
        (&many[..], "not a controller's greeting"),
        (&endless, "not a controller's greeting"),
        (b"\n", "not a controller's greeting"),
        (b"\xff\xfe\0\n", "not a controller's greeting"),
        (b"{\"sipstone\":99999999999999999999,\"version\":\"1\"}\n", "not a controller's greeting"),
        (b"{\"sipstone\":2,\"version\":\"9\"}\n", "the controller speaks 2"),
    ] {
        let line = first_line(agent.tell(bytes));
        assert!(line.contains("\"refused\"") && line.contains(words), "{line:?}");
    }
    assert_eq!(agent.world.made.load(Ordering::SeqCst), 0);
}

/// What the agent says to a controller that sends this after its greeting.
fn said_to(bytes: &[u8]) -> String {
    let agent = Agent::start(None);
    let mut greeting = b"{\"sipstone\":1,\"version\":\"0.1.0\"}\n".to_vec();
    greeting.extend_from_slice(bytes);
    let mut said = String::new();
    let _ = agent.tell(&greeting).read_to_string(&mut said);
    until("the end of the load", || agent.dropped() == 1);
    assert_eq!(agent.commands(), [Command::Stop { drain: false }], "nothing else reached the group");
    said
}

#[test]
fn hostile_commands_end_the_session_with_a_sentence_and_never_reach_the_group() {
    let mut big = assignment();
    big.threads = u16::MAX;
    let big = serde_json::to_string(&Command::Prepare(Box::new(big))).unwrap() + "\n";
    let too_long = vec![b'['; quick().line_bytes_max + 2];
    let nested = [vec![b'['; 10_000], b"\n".to_vec()].concat();
    let mut user = assignment();
    user.workload.users.first = u32::MAX;
    let user = serde_json::to_string(&Command::Prepare(Box::new(user))).unwrap() + "\n";
    for (bytes, words) in [
        (&b"garbage\n"[..], "that is no command"),
        (b"\xff\xff\n", "that is no command"),
        (&nested, "that is no command"),
        (&too_long, "a line of more than 1048576 bytes"),
        (big.as_bytes(), "the number of threads is 65535"),
        (user.as_bytes(), "go beyond"),
        (b"{\"start\":{\"after\":{\"secs\":18446744073709551615,\"nanos\":0},\"contacts\":[]}}\n", "until the start"),
        (b"{\"start\":{\"after\":{\"secs\":1e300,\"nanos\":0},\"contacts\":[]}}\n", "that is no command"),
        (
            b"{\"register\":{\"contacts\":[{\"first\":4294967295,\"count\":4294967295,\"address\":\"1.2.3.4:5\"}]}}\n",
            "the last user of a contact range",
        ),
    ] {
        let said = said_to(bytes);
        assert!(said.contains("\"problem\"") && said.contains(words), "{said:?} lacks {words:?}");
    }
}

#[test]
fn assignments_beyond_a_limit_are_refused_one_by_one() {
    let refused = |change: &dyn Fn(&mut Assignment)| {
        let mut assignment = assignment();
        change(&mut assignment);
        let line = serde_json::to_vec(&Command::Prepare(Box::new(assignment))).unwrap();
        check::command(&line).err()
    };
    assert_eq!(refused(&|_| {}), None);
    let month = Duration::from_secs(32 * 86_400);
    type Change<'a> = &'a dyn Fn(&mut Assignment);
    let changes: [(&str, Change<'_>); 14] = [
        ("no thread", &|it| it.threads = 0),
        ("the rate is", &|it| it.workload.rate = -1.0),
        ("the rate is", &|it| it.workload.rate = 1e12),
        ("share of the rate", &|it| it.rate_share = 1.1),
        ("no class has a weight", &|it| it.workload.classes.clear()),
        ("number of classes", &|it| {
            let class = it.workload.classes[0].clone();
            it.workload.classes.resize(CLASSES_MAX + 1, class);
        }),
        ("the last callee", &|it| it.callees = (600, 500)),
        ("number of sources", &|it| it.sources = vec!["::1".parse().unwrap(); 257]),
        ("window", &|it| it.workload.measure = Duration::from_secs(32 * 86_400)),
        ("a delay", &|it| it.workload.classes[0].hold = crate::spec::Delay::Constant(month)),
        ("T1", &|it| it.workload.t1 = Duration::ZERO),
        ("no operations", &|it| it.workload.shape = Shape::Burst { size: 0 }),
        ("open operations", &|it| it.workload.open_operations_max = u32::MAX),
        ("number of users", &|it| it.workload.users.count = USERS_MAX + 1),
    ];
    for (words, change) in changes {
        let sentence = refused(change).unwrap_or_else(|| panic!("{words:?} was not refused"));
        assert!(sentence.contains(words), "{sentence} lacks {words:?}");
    }
}

/// An agent of the test's own: lets the controller in, answers its first Pings, and then does as told.
fn fake_agent(then: impl FnOnce(TcpStream) + Send + 'static) -> (String, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let thread = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        lines.next().unwrap().unwrap();
        stream.write_all(b"{\"sipstone\":1,\"version\":\"0.1.0\"}\n").unwrap();
        for token in 0..16 {
            lines.next().unwrap().unwrap();
            writeln!(stream, "{{\"pong\":{{\"token\":{token},\"clock_us\":{}}}}}", u64::MAX).unwrap();
        }
        then(stream);
    });
    (address, thread)
}

/// Why the controller gives up an agent that does this.
fn given_up(then: impl FnOnce(TcpStream) + Send + 'static) -> String {
    let (address, thread) = fake_agent(then);
    let mut group = RemoteGroup::connect_with(&address, None, PATIENCE, &quick()).unwrap();
    let reason = gone(&mut group);
    assert_eq!(group.send(Command::Stop { drain: true }).unwrap_err().reason, reason, "and it stays gone");
    assert_eq!(group.receive(Duration::ZERO).unwrap_err().group, address);
    drop(group);
    thread.join().unwrap();
    reason
}

#[test]
fn an_agent_that_closes_is_gone_at_once() {
    let start = Instant::now();
    assert_eq!(given_up(drop), "it closed the connection");
    assert!(start.elapsed() < PATIENCE);
}

#[test]
fn an_agent_that_falls_silent_is_gone_after_the_silence() {
    let silence = quick().silence_max;
    let reason = given_up(move |stream| {
        thread::sleep(silence * 2);
        drop(stream);
    });
    assert!(reason.starts_with("nothing was heard from it for "), "{reason}");
}

#[test]
fn hostile_agents_are_given_up_with_a_sentence() {
    let many = Tally::new(CLASSES_MAX + 1);
    let mut large = Tally::new(1);
    large.classes[0].offered = COUNT_MAX + 1;
    let line = |tally: &Tally| {
        let interval = Interval { tally: tally.clone(), ..Interval::default() };
        serde_json::to_string(&Event::Interval(Box::new(interval))).unwrap() + "\n"
    };
    let allowed = line(&Tally::new(CLASSES_MAX));
    let strange = line(&Tally::new(1)).replace("\"HIST", "\"TSIH");
    assert!(check::event(allowed.trim_end().as_bytes()).is_ok());
    for (bytes, words) in [
        ("garbage\n".to_string(), "it sent no event"),
        ("\u{1b}[2J\n".to_string(), "it sent no event"),
        (line(&many), "at most 64 classes"),
        (line(&large), "a count is"),
        (strange, "histogram"),
        ("{\"interval\":{\"second\":4294967295,\"tally\":".to_string() + &tail(), "the second is"),
        ("x".repeat(quick().line_bytes_max + 10), "a line of more than"),
        ("{\"finished\":".repeat(3) + "\n", "it sent no event"),
    ] {
        let reason = given_up(move |mut stream| {
            let _ = stream.write_all(bytes.as_bytes());
            let _ = stream.shutdown(Shutdown::Write);
            let _ = stream.read_to_end(&mut Vec::new());
        });
        assert!(reason.contains(words), "{reason:?} lacks {words:?}");
        assert!(!reason.contains('\u{1b}'), "{reason:?}");
    }
}

/// An interval's rest behind its second.
fn tail() -> String {
    let tally = serde_json::to_string(&Tally::new(1)).unwrap();
    format!("{tally},\"measured\":[]}}}}\n")
}

#[test]
fn an_agent_that_talks_without_end_is_given_up_within_the_memory_allowed() {
    let (address, thread) = fake_agent(|mut stream| {
        let line = b"{\"registering\":{\"users\":1,\"registered\":1,\"failed\":0}}\n".repeat(1000);
        while stream.write_all(&line).is_ok() {}
    });
    let mut group = RemoteGroup::connect_with(&address, None, PATIENCE, &quick()).unwrap();
    thread.join().unwrap();
    assert_eq!(gone(&mut group), "it sends more than it was asked for");
}

#[test]
fn the_last_words_of_an_agent_are_heard_even_by_a_sender() {
    let (address, thread) = fake_agent(|mut stream| {
        stream.write_all(b"{\"problem\":{\"message\":\"no descriptors\\u001b left\"}}\n").unwrap();
    });
    let mut group = RemoteGroup::connect_with(&address, None, PATIENCE, &quick()).unwrap();
    thread.join().unwrap();
    let start = Instant::now();
    let reason = loop {
        match group.send(Command::Stop { drain: true }) {
            Ok(()) => assert!(start.elapsed() < PATIENCE),
            Err(gone) => break gone.reason,
        }
    };
    assert_eq!(reason, "no descriptors\u{241b} left");
}

#[test]
fn who_is_no_agent_is_told_apart() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let connect = |address: &str| RemoteGroup::connect_with(address, None, Duration::from_secs(3), &quick());
    assert!(connect(&nobody).err().unwrap().contains("start `sipstone agent` there"));
    assert!(connect("no port").err().unwrap().contains("give HOST:PORT"));
    for (answer, words) in [
        (&b"HTTP/1.1 400 Bad Request\r\n"[..], "is no sipstone agent"),
        (&[b'x'; 10_000], "is no sipstone agent"),
        (b"{\"sipstone\":7,\"version\":\"9\\u001b\"}\n", "speaks version 7"),
        (b"{\"sipstone\":1,\"version\":\"9\",\"refused\":\"no\"}\n", "refuses: no"),
        (b"", "does not answer"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let thread = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.write_all(answer);
            let _ = stream.read_to_end(&mut Vec::new());
        });
        let sentence = connect(&address).err().unwrap();
        assert!(sentence.contains(words) && !sentence.contains('\u{1b}'), "{sentence:?} lacks {words:?}");
        thread.join().unwrap();
    }
}

#[test]
fn an_agent_that_is_ended_says_so() {
    let mut agent = Agent::start(None);
    let mut group = agent.connect().unwrap();
    until("a group", || agent.world.made.load(Ordering::SeqCst) == 1);
    let start = Instant::now();
    agent.stop.store(true, Ordering::SeqCst);
    assert!(matches!(next(&mut group), Event::Problem { message } if message.contains("on its own host")));
    assert_eq!(gone(&mut group), "it closed the connection");
    until("the end of the agent", || agent.thread.as_ref().unwrap().is_finished());
    assert!(start.elapsed() < PATIENCE);
    agent.thread.replace(thread::spawn(|| Ok(())));
}

/// The agent of the next test: the same test program, started as a process of its own.
#[test]
fn agent_process() {
    if std::env::var_os("SIPSTONE_TEST_AGENT").is_none() {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    println!("\nlistening on {}", listener.local_addr().unwrap());
    let (_say, events) = mpsc::channel();
    let world = Arc::new(World {
        commands: Mutex::default(),
        events: Mutex::new(events),
        made: AtomicUsize::new(0),
        dropped: AtomicUsize::new(0),
    });
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        // Never longer than the test that started it.
        scope.spawn(|| {
            thread::sleep(PATIENCE * 3);
            stop.store(true, Ordering::SeqCst);
        });
        let mut make = || -> Box<dyn Group> { Box::new(FakeGroup(Arc::clone(&world))) };
        serve_on(&listener, None, &quick(), &mut make, &stop).unwrap();
    });
}

#[test]
fn an_agent_that_is_killed_or_stopped_is_gone() {
    use nix::sys::signal::{Signal, kill};
    for (signal, words) in [(Signal::SIGKILL, "the connection"), (Signal::SIGSTOP, "nothing was heard")] {
        let mut process = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "agent::tests::agent_process", "--nocapture"])
            .env("SIPSTONE_TEST_AGENT", "1")
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let address =
            lines.find_map(|line| Some(line.ok()?.strip_prefix("listening on ")?.to_owned())).unwrap();
        let mut group = RemoteGroup::connect_with(&address, None, PATIENCE, &quick()).unwrap();
        let start = Instant::now();
        kill(nix::unistd::Pid::from_raw(process.id().try_into().unwrap()), signal).unwrap();
        let reason = gone(&mut group);
        assert!(start.elapsed() < PATIENCE && reason.contains(words), "{reason}");
        let _ = process.kill();
        process.wait().unwrap();
    }
}

#[test]
fn the_usual_limits_notice_a_dead_agent_within_six_seconds() {
    let settings = Settings::default();
    assert!(settings.silence_max + settings.slice() < Duration::from_secs(6));
    assert!(settings.ping_every * 3 < settings.silence_max, "three lost answers are not death");
}

proptest! {
    /// Neither side's parser panics, whatever comes.
    #[test]
    fn any_line_is_parsed_or_refused(line in any::<Vec<u8>>()) {
        let _ = check::command(&line);
        let _ = check::event(&line);
    }

    /// A histogram that was tampered with is refused or read; it neither panics nor takes the memory it asks for.
    #[test]
    fn a_tampered_histogram_does_no_harm(at in 0_usize..400, byte in any::<u8>(), times_of in 0_u64..200) {
        use base64::Engine;
        let engine = base64::engine::general_purpose::STANDARD;
        let text: String = serde_json::from_value(serde_json::to_value(times(1, times_of)).unwrap()).unwrap();
        let mut bytes = engine.decode(text).unwrap();
        let at = at % bytes.len();
        bytes[at] = byte;
        bytes.extend([0xff; 9].iter().take(usize::from(byte % 3) * 4));
        if let Ok(mut read) = serde_json::from_value::<Times>(engine.encode(bytes).into()) {
            read.merge(&read.clone());
            let _ = (read.count(), read.mean_us(), read.quantile_us(0.99));
        }
    }
}
