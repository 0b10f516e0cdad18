//! Scripts run through the engine on virtual time, with raw SIP text on both sides.

mod alias_db;
mod auth;
mod catalogue;
mod domain;
mod examples;
mod functions;
mod lines;
mod permissions;
mod registrar;
mod registrar_waits;
mod relaying;
mod rfc_3261;
mod routing;
mod settings;
mod siputils;
mod streams;
mod suspension;
mod uri_db;

use crate::{Clock, Environment, Level, Log, Module, ScriptUser, Settings, catalogue_with};
use ::core::cell::RefCell;
use ::core::net::SocketAddr;
use alloc::rc::Rc;
use alloc::sync::Arc;
use core::time::Duration;
use engine::{Answer, AskId, Config, Endpoint, Input, ListenerId, Outbox, Output, Path};
use location::Local;
use route::{Catalogue, Colour, Diagnostic, NoFiles, Program, Rejected};
use sip::{Instant, Transport};
use std::format;
use std::string::{String, ToString};
use std::vec::Vec;

/// The server's address in all tests.
const SERVER: &str = "127.0.0.1:5060";
/// Callers.
const ALICE: &str = "127.0.0.1:5061";
/// Callees.
const BOB: &str = "127.0.0.1:5062";
const CAROL: &str = "127.0.0.1:5063";

/// Modules that most configurations of the tests load.
const LOAD: &str = r#"
loadmodule "sl.so"
loadmodule "tm.so"
loadmodule "rr.so"
loadmodule "pv.so"
loadmodule "maxfwd.so"
loadmodule "usrloc.so"
loadmodule "registrar.so"
loadmodule "textops.so"
loadmodule "siputils.so"
loadmodule "xlog.so"
loadmodule "sanity.so"
"#;

/// A log that keeps its lines.
#[derive(Clone, Default)]
struct Lines(Rc<RefCell<Vec<(Level, String)>>>);

impl Log for Lines {
    fn is_enabled(&self, _level: Level) -> bool {
        true
    }

    fn log(&mut self, level: Level, line: &[u8]) {
        self.0.borrow_mut().push((level, String::from_utf8_lossy(line).into_owned()));
    }
}

/// A message that the server sent.
#[derive(Debug)]
struct Sent {
    to: String,
    /// The number of the listener that it left by.
    listener: u16,
    text: String,
}

impl Sent {
    /// The first line.
    fn first(&self) -> &str {
        self.text.lines().next().unwrap_or_default()
    }

    /// The value of the first header line of a name.
    fn header(&self, name: &str) -> Option<&str> {
        self.headers(name).into_iter().next()
    }

    /// The values of all header lines of a name.
    fn headers(&self, name: &str) -> Vec<&str> {
        let lines = self.text.split("\r\n\r\n").next().unwrap_or_default().split("\r\n").skip(1);
        lines
            .filter_map(|line| line.split_once(':'))
            .filter(|(key, _)| key.trim().eq_ignore_ascii_case(name))
            .map(|(_, value)| value.trim())
            .collect()
    }
}

/// The engine with a script, on virtual time.
struct Rig {
    endpoint: Endpoint<ScriptUser<Local, Lines>>,
    now: Instant,
    out: Outbox,
    lines: Lines,
    asks: Vec<AskId>,
    /// What was asked last.
    question: Option<engine::Ask>,
    /// The table of users is empty, and says so by itself.
    no_users: bool,
    /// What changes is committed by itself.
    commits: bool,
    aliases: Vec<(String, u16)>,
}

/// Checks a configuration.
fn check(text: &str, catalogue: &Catalogue) -> Result<Program, Rejected> {
    route::load(text, "test.cfg", catalogue, &NoFiles, &[]).map(|loaded| loaded.program)
}

/// A program that must check.
fn program(text: &str, catalogue: &Catalogue) -> Program {
    check(text, catalogue).unwrap_or_else(|rejected| panic!("{}", rejected.render(Colour::Never)))
}

impl Rig {
    /// A server with this configuration.
    fn new(text: &str) -> Rig {
        Rig::with(text, &[], Environment::default())
    }

    /// A server whose configuration is only a request route, with all modules.
    fn route(body: &str) -> Rig {
        Rig::new(&format!("{LOAD}\nrequest_route {{\n{body}\n}}\n"))
    }

    fn with(text: &str, further: &[&'static Module], environment: Environment) -> Rig {
        Rig::with_limits(text, further, environment, engine::Limits::default())
    }

    fn with_limits(
        text: &str,
        further: &[&'static Module],
        environment: Environment,
        limits: engine::Limits,
    ) -> Rig {
        let catalogue = catalogue_with(further.iter());
        let program = program(text, &catalogue);
        let settings = Settings::from_program(&program).unwrap_or_else(|errors| panic!("{errors:?}"));
        let listener =
            engine::Listener { transport: Transport::Udp, address: SERVER.parse().unwrap(), advertise: None };
        let listeners = match environment.listeners.is_empty() {
            true => [listener].into(),
            false => environment.listeners.clone(),
        };
        let config = Config {
            listeners: listeners.clone(),
            transports: settings.transports.clone(),
            aliases: settings.aliases.clone(),
            timers: settings.timers.clone(),
            server_header: settings.server_header.clone(),
            auto_100: settings.auto_100,
            seed: [1, 2, 3, 4],
            limits,
            ..Config::default()
        };
        let lines = Lines::default();
        let location = Local::new(location::Limits::default(), location::Seeds([5, 6, 7, 8]));
        let environment = Environment {
            clock: Clock { unix_micros_at_zero: 1_700_000_000_000_000 },
            listeners,
            ..environment
        };
        let modules = crate::modules().iter().chain(further.iter());
        let user = ScriptUser::with_modules(
            modules,
            Arc::new(program),
            Arc::new(settings),
            location,
            lines.clone(),
            environment,
        );
        Rig {
            endpoint: Endpoint::new(config, user),
            now: Instant::from_micros(1_000_000),
            out: Outbox::new(),
            lines,
            asks: Vec::new(),
            question: None,
            no_users: true,
            commits: true,
            aliases: Vec::new(),
        }
    }

    /// What the server sends when this arrives.
    fn send(&mut self, from: &str, text: &str) -> Vec<Sent> {
        self.send_by(0, from, text)
    }

    /// The same by another listener.
    fn send_by(&mut self, listener: u16, from: &str, text: &str) -> Vec<Sent> {
        let local = Some("127.0.0.1".parse().unwrap());
        let path = Path::new(ListenerId(listener), local, from.parse::<SocketAddr>().unwrap());
        self.handle(|endpoint, now, out| {
            endpoint.handle(now, Input::Message { path, bytes: text.as_bytes() }, out);
        })
    }

    /// What the server sends in this time.
    fn pass(&mut self, time: Duration) -> Vec<Sent> {
        let end = self.now + time;
        let mut sent = Vec::new();
        while let Some(next) = self.endpoint.next_timeout().filter(|next| *next <= end) {
            self.now = next.max(self.now);
            sent.extend(self.handle(|endpoint, now, out| endpoint.handle(now, Input::Timeout, out)));
        }
        self.now = end;
        sent
    }

    /// What the server sends when its last question is answered.
    fn answer(&mut self, answer: Answer<'_>) -> Vec<Sent> {
        let id = self.asks.pop().expect("a question");
        self.handle(|endpoint, now, out| endpoint.handle(now, Input::Answer { id, answer }, out))
    }

    fn handle(
        &mut self,
        event: impl FnOnce(&mut Endpoint<ScriptUser<Local, Lines>>, Instant, &mut Outbox),
    ) -> Vec<Sent> {
        self.out.clear();
        event(&mut self.endpoint, self.now, &mut self.out);
        let mut sent = Vec::new();
        let (mut empty, mut committed) = (None, None);
        for output in &self.out.outputs {
            match output {
                Output::Send { path, bytes } => sent.push(Sent {
                    to: path.remote.to_string(),
                    listener: path.listener.0,
                    text: String::from_utf8_lossy(&self.out.bytes[bytes.clone()]).into_owned(),
                }),
                Output::Ask { id, ask: engine::Ask::Select(select), .. }
                    if self.no_users && select.keys.is_empty() =>
                {
                    empty = Some(*id);
                }
                Output::Ask { id, ask: engine::Ask::Persist { .. }, .. } if self.commits => {
                    committed = Some(*id);
                }
                Output::Ask { id, ask, .. } => {
                    self.asks.push(*id);
                    self.question = Some(ask.clone());
                }
                Output::Alias { path, port } => self.aliases.push((path.remote.to_string(), *port)),
            }
        }
        if let Some(id) = empty {
            sent.extend(self.no_rows(id));
        }
        if let Some(id) = committed {
            sent.extend(self.done(id));
        }
        sent
    }

    /// What the server sends when this question is answered by no rows.
    fn no_rows(&mut self, id: AskId) -> Vec<Sent> {
        let rows = engine::Rows::default();
        let answer = Answer::Rows(&rows);
        self.handle(|endpoint, now, out| endpoint.handle(now, Input::Answer { id, answer }, out))
    }

    /// What the server sends when this question is answered by its deed.
    fn done(&mut self, id: AskId) -> Vec<Sent> {
        let answer = Answer::Done;
        self.handle(|endpoint, now, out| endpoint.handle(now, Input::Answer { id, answer }, out))
    }

    /// The one message that the server sends when this arrives.
    fn one(&mut self, from: &str, text: &str) -> Sent {
        let mut sent = self.send(from, text);
        assert_eq!(sent.len(), 1, "{sent:#?}");
        sent.pop().unwrap()
    }

    /// The status line of the one reply.
    fn status(&mut self, from: &str, text: &str) -> String {
        self.one(from, text).first().to_string()
    }

    /// What was logged.
    fn lines(&self) -> Vec<String> {
        self.lines.0.borrow().iter().map(|(_, line)| line.clone()).collect()
    }

    /// Registers a contact, which must succeed.
    fn register(&mut self, user: &str, at: &str, call: &str) -> Sent {
        let text = Request::new("REGISTER", "sip:127.0.0.1", at)
            .to(&format!("<sip:{user}@127.0.0.1>"))
            .call(call)
            .line(&format!("Contact: <sip:{user}@{at}>"))
            .text();
        let reply = self.one(at, &text);
        assert_eq!(reply.first(), "SIP/2.0 200 OK", "{reply:?}");
        reply
    }
}

/// A request to be written.
#[derive(Clone)]
struct Request {
    method: String,
    uri: String,
    via: String,
    from: String,
    to: String,
    call: String,
    cseq: u32,
    max_forwards: Option<String>,
    lines: String,
    body: String,
}

impl Request {
    fn new(method: &str, uri: &str, from: &str) -> Request {
        Request {
            method: method.into(),
            uri: uri.into(),
            via: format!("SIP/2.0/UDP {from};branch=z9hG4bK-{method}-1"),
            from: "Alice <sip:alice@127.0.0.1>;tag=a1".into(),
            to: "<sip:bob@127.0.0.1>".into(),
            call: "call-1".into(),
            cseq: 1,
            max_forwards: Some("70".into()),
            lines: String::new(),
            body: String::new(),
        }
    }

    fn to(mut self, to: &str) -> Request {
        self.to = to.into();
        self
    }

    fn from(mut self, from: &str) -> Request {
        self.from = from.into();
        self
    }

    fn call(mut self, call: &str) -> Request {
        self.call = call.into();
        self.via.push_str(call);
        self
    }

    fn cseq(mut self, cseq: u32) -> Request {
        self.cseq = cseq;
        self.via.push_str(&cseq.to_string());
        self
    }

    fn max_forwards(mut self, hops: Option<&str>) -> Request {
        self.max_forwards = hops.map(str::to_string);
        self
    }

    fn line(mut self, line: &str) -> Request {
        self.lines.push_str(line);
        self.lines.push_str("\r\n");
        self
    }

    fn body(mut self, body: &str) -> Request {
        self.body = body.into();
        self
    }

    fn text(&self) -> String {
        let hops =
            self.max_forwards.as_ref().map_or(String::new(), |hops| format!("Max-Forwards: {hops}\r\n"));
        format!(
            "{} {} SIP/2.0\r\nVia: {}\r\n{hops}From: {}\r\nTo: {}\r\nCall-ID: {}\r\nCSeq: {} {}\r\n{}Content-Length: {}\r\n\r\n{}",
            self.method,
            self.uri,
            self.via,
            self.from,
            self.to,
            self.call,
            self.cseq,
            self.method,
            self.lines,
            self.body.len(),
            self.body
        )
    }
}

/// The response of a callee to what it received.
fn respond(request: &Sent, status: &str, to_tag: &str) -> String {
    let mut text = format!("SIP/2.0 {status}\r\n");
    for line in request.text.split("\r\n\r\n").next().unwrap_or_default().split("\r\n").skip(1) {
        let name = line.split(':').next().unwrap_or_default();
        match name {
            "Via" | "From" | "Call-ID" | "CSeq" | "Record-Route" => text.push_str(line),
            "To" if line.contains(";tag=") => text.push_str(line),
            "To" => text.push_str(&format!("{line};tag={to_tag}")),
            _ => continue,
        }
        text.push_str("\r\n");
    }
    text + "Content-Length: 0\r\n\r\n"
}
