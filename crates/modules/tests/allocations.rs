//! No heap allocation per message outside the creation of a transaction or a binding: scripts run through the engine
//! with an allocator that counts.

use engine::{Answer, Config, Endpoint, Input, Listener, ListenerId, Outbox, Output, Path};
use location::{Limits, Local, Seeds};
use modules::{Environment, NoLog, ScriptUser, Settings};
use sip::{Instant, Transport};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

struct Counting;

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator unchanged; counting touches no memory of the allocation.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: `pointer` came from `alloc` above with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

struct Server {
    endpoint: Endpoint<ScriptUser<Local, NoLog>>,
    out: Outbox,
    path: Path,
}

impl Server {
    fn new(text: &str) -> Server {
        let loaded = route::load(text, "test.cfg", &modules::catalogue(), &route::NoFiles, &[]);
        let program =
            loaded.unwrap_or_else(|rejected| panic!("{}", rejected.render(route::Colour::Never))).program;
        let settings = Settings::from_program(&program).expect("settings");
        let address = "127.0.0.1:5070".parse().expect("an address");
        let listeners = vec![Listener { transport: Transport::Udp, address, advertise: None }];
        let config =
            Config { listeners: listeners.clone(), aliases: settings.aliases.clone(), ..Config::default() };
        let environment = Environment { listeners, ..Environment::default() };
        let location = Local::new(Limits::default(), Seeds([1, 2, 3, 4]));
        let user = ScriptUser::new(Arc::new(program), Arc::new(settings), location, NoLog, environment);
        let path = Path::new(ListenerId(0), None, "127.0.0.1:5071".parse().expect("an address"));
        Server { endpoint: Endpoint::new(config, user), out: Outbox::new(), path }
    }

    fn handle(&mut self, at: u64, text: &str) {
        self.out.clear();
        let input = Input::Message { path: self.path, bytes: text.as_bytes() };
        self.endpoint.handle(Instant::from_micros(at), input, &mut self.out);
    }

    /// Allocations of this message, once it has been handled often enough for all buffers to have grown.
    fn allocations(&mut self, message: impl Fn(u64) -> String) -> usize {
        for at in 1..20 {
            self.handle(at * 1_000, &message(at));
        }
        let last = message(20);
        let before = COUNT.with(Cell::get);
        self.handle(20_000, &last);
        assert!(matches!(self.out.outputs.first(), Some(Output::Send { .. })), "nothing was sent");
        COUNT.with(Cell::get) - before
    }
}

fn message(method: &str, cseq: u64, lines: &str) -> String {
    format!(
        "{method} sip:bob@127.0.0.1:5070 SIP/2.0\r\nVia: SIP/2.0/UDP 127.0.0.1:5071;branch=z9hG4bK{method}{cseq}\r\nMax-Forwards: 70\r\nFrom: <sip:bob@127.0.0.1>;tag=1\r\nTo: <sip:bob@127.0.0.1>\r\nCall-ID: {method}\r\nCSeq: {cseq} {method}\r\n{lines}Content-Length: 0\r\n\r\n"
    )
}

fn register(cseq: u64) -> String {
    message("REGISTER", cseq, "Contact: <sip:bob@127.0.0.1:5072>;expires=600\r\n")
}

#[test]
fn a_refreshed_registration_allocates_nothing() {
    let mut server = Server::new(include_str!("data/kamailio-stateless.cfg"));
    assert_eq!(server.allocations(register), 0);
}

/// Allocations of a refresh that waits for its commit: the question's address-of-record, what waits, the binding as it was
/// and as it is, and the frame of the script.
const WAITING_ALLOCATIONS_MAX: usize = 5;

/// A configuration whose REGISTERs wait.
const WRITE_THROUGH: &str = r#"
loadmodule "sl.so"
loadmodule "usrloc.so"
loadmodule "registrar.so"
modparam("usrloc", "db_mode", 1)
modparam("usrloc", "db_url", "sqlite:")
request_route { save("location"); exit; }
"#;

impl Server {
    /// A REGISTER and the answer that it waits for.
    fn commit(&mut self, at: u64, text: &str) {
        self.handle(at, text);
        let Some(Output::Ask { id, .. }) = self.out.outputs.pop() else { panic!("no question was asked") };
        let input = Input::Answer { id, answer: Answer::Done };
        self.endpoint.handle(Instant::from_micros(at), input, &mut self.out);
        assert!(matches!(self.out.outputs.first(), Some(Output::Send { .. })), "nothing was sent");
    }
}

#[test]
fn a_refresh_that_waits_for_its_commit_allocates_little() {
    let mut server = Server::new(WRITE_THROUGH);
    for at in 1..20 {
        server.commit(at * 1_000, &register(at));
    }
    let last = register(20);
    let before = COUNT.with(Cell::get);
    server.commit(20_000, &last);
    let allocations = COUNT.with(Cell::get) - before;
    assert!(allocations <= WAITING_ALLOCATIONS_MAX, "{allocations}");
    assert_eq!(server.endpoint.transactions(), 0);
}

#[test]
fn a_request_forwarded_without_state_allocates_nothing() {
    let mut server = Server::new(include_str!("data/kamailio-stateless.cfg"));
    server.handle(1, &register(1));
    assert_eq!(server.allocations(|cseq| message("INVITE", cseq, "")), 0);
}

#[test]
fn a_redirected_request_allocates_nothing() {
    let mut server = Server::new(include_str!("data/kamailio-redirect.cfg"));
    server.handle(1, &register(1));
    assert_eq!(server.allocations(|cseq| message("INVITE", cseq, "")), 0);
}

#[test]
fn a_response_without_state_allocates_nothing() {
    let mut server = Server::new(include_str!("data/kamailio-stateless.cfg"));
    server.handle(1, &register(1));
    server.handle(2, &message("INVITE", 1, ""));
    let sent = server.out.outputs.iter().find_map(|output| match output {
        Output::Send { bytes, .. } => Some(bytes.clone()),
        Output::Ask { .. } | Output::Alias { .. } => None,
    });
    let forwarded = String::from_utf8(server.out.bytes[sent.expect("a message")].to_vec()).expect("text");
    let vias: String =
        forwarded.lines().filter(|line| line.starts_with("Via:")).map(|line| format!("{line}\r\n")).collect();
    let response = format!(
        "SIP/2.0 200 OK\r\n{vias}From: <sip:bob@127.0.0.1>;tag=1\r\nTo: <sip:bob@127.0.0.1>;tag=2\r\nCall-ID: INVITE\r\nCSeq: 1 INVITE\r\nContent-Length: 0\r\n\r\n"
    );
    assert_eq!(server.allocations(|_| response.clone()), 0);
}

/// How long one message takes, from bytes to bytes: `cargo test --release -p modules -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement, not a test"]
#[allow(clippy::disallowed_types, clippy::disallowed_methods)] // The measurement is of real time.
fn time_per_message() {
    let mut server = Server::new(include_str!("data/kamailio-stateless.cfg"));
    server.handle(1, &register(1));
    let invite = message("INVITE", 1, "");
    let start = std::time::Instant::now();
    let mut waiting = Server::new(WRITE_THROUGH);
    let registers: Vec<String> = (1..100_000).map(register).collect();
    let made = start.elapsed();
    for text in &registers {
        waiting.commit(2, text);
    }
    println!("REGISTER, waiting: {} ns", (start.elapsed() - made).as_nanos() / 100_000);
    let cases = [("REGISTER", register(2)), ("INVITE, stateless", invite)];
    for (name, text) in cases {
        let start = std::time::Instant::now();
        for _ in 0..200_000 {
            server.handle(2, &text);
        }
        println!("{name}: {} ns", start.elapsed().as_nanos() / 200_000);
    }
}
