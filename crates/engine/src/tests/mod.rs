//! The endpoint as a whole, on virtual time, with a small transaction user.

mod failures;
mod limits;
mod proxying;
mod routing;
mod suspension;

use crate::*;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::time::Duration;
use sip::{Instant, Transport};

pub(super) type Script = Box<dyn FnMut(&mut RequestContext<'_, u32>) -> Handled<u32>>;
pub(super) type Failure = Box<dyn FnMut(&mut RequestContext<'_, u32>)>;

/// A user made of closures; it counts what it is asked.
pub(super) struct Fake {
    pub(super) script: Script,
    pub(super) answer: Script,
    pub(super) failure: Option<Failure>,
    pub(super) requests: Vec<String>,
    pub(super) replies: Vec<u16>,
    pub(super) answers: Vec<String>,
    pub(super) branches: u32,
}

impl TransactionUser for Fake {
    type State = u32;
    type Suspended = u32;

    fn on_request(&mut self, cx: &mut RequestContext<'_, u32>) -> Handled<u32> {
        self.requests.push(String::from_utf8_lossy(cx.message().method_bytes()).into_owned());
        (self.script)(cx)
    }

    fn on_answer(
        &mut self,
        cx: &mut RequestContext<'_, u32>,
        suspended: u32,
        answer: Answer<'_>,
    ) -> Handled<u32> {
        self.answers.push(format!("{suspended} {answer:?}"));
        (self.answer)(cx)
    }

    fn on_reply(&mut self, cx: &mut ReplyContext<'_, u32>) -> ReplyVerdict {
        self.replies.push(cx.status());
        ReplyVerdict::Forward
    }

    fn on_failure(&mut self, cx: &mut RequestContext<'_, u32>) {
        if let Some(failure) = &mut self.failure {
            failure(cx);
        }
    }

    fn failure_armed(&self, _: &u32) -> bool {
        self.failure.is_some()
    }

    fn on_branch(&mut self, _: &mut BranchContext<'_, u32>) -> BranchVerdict {
        self.branches += 1;
        BranchVerdict::Send
    }
}

pub(super) const US: &str = "192.0.2.1:5060";
pub(super) const CALLER: &str = "192.0.2.10:5060";
pub(super) const CALLEE: &str = "192.0.2.20:5060";

/// An endpoint, its time and what it sent.
pub(super) struct Rig {
    pub(super) endpoint: Endpoint<Fake>,
    pub(super) now: Instant,
    pub(super) asks: Vec<(AskId, Ask)>,
}

/// A message that left, and where to.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) to: String,
    pub(super) text: String,
}

impl Sent {
    pub(super) fn first_line(&self) -> &str {
        self.text.lines().next().unwrap_or("")
    }

    /// All values of a header.
    pub(super) fn all(&self, name: &str) -> Vec<&str> {
        let prefix = format!("{name}: ");
        self.text.lines().filter_map(|line| line.strip_prefix(prefix.as_str())).collect()
    }

    pub(super) fn header(&self, name: &str) -> &str {
        self.all(name).first().copied().unwrap_or("")
    }

    pub(super) fn method(&self) -> &str {
        self.text.split(' ').next().unwrap_or("")
    }
}

pub(super) fn config() -> Config {
    Config {
        listeners: alloc::vec![Listener {
            transport: Transport::Udp,
            address: US.parse().unwrap(),
            advertise: None,
        }],
        aliases: alloc::vec![Alias { host: "example.com".to_string(), port: None, transport: None }],
        seed: [11, 22, 33, 44],
        ..Config::default()
    }
}

/// Relays to the Request-URI.
pub(super) fn relay() -> Script {
    Box::new(|cx| {
        let _ = cx.relay();
        Handled::Done
    })
}

/// Relays to these targets, with q.
pub(super) fn fork(targets: &'static [(&'static str, u16)]) -> Script {
    Box::new(move |cx| {
        for (place, (uri, q)) in targets.iter().enumerate() {
            let target = Target { q: *q, ..Target::new(uri.as_bytes()) };
            if place == 0 {
                cx.set_request_target(&target);
            } else {
                cx.append_target(&target).unwrap();
            }
        }
        let _ = cx.relay();
        Handled::Done
    })
}

impl Rig {
    pub(super) fn new(script: Script) -> Rig {
        Rig::with(config(), script)
    }

    pub(super) fn with(config: Config, script: Script) -> Rig {
        let user = Fake {
            script,
            answer: Box::new(|_| Handled::Done),
            failure: None,
            requests: Vec::new(),
            replies: Vec::new(),
            answers: Vec::new(),
            branches: 0,
        };
        let now = Instant::from_micros(1_000_000_000);
        Rig { endpoint: Endpoint::new(config, user), now, asks: Vec::new() }
    }

    pub(super) fn input(&mut self, input: Input<'_>) -> Vec<Sent> {
        let mut out = Outbox::new();
        self.endpoint.handle(self.now, input, &mut out);
        let mut sent = Vec::new();
        for output in &out.outputs {
            match output {
                Output::Send { path, bytes } => {
                    let text = String::from_utf8_lossy(&out.bytes[bytes.clone()]).into_owned();
                    sent.push(Sent { to: path.remote.to_string(), text });
                }
                Output::Ask { id, ask, .. } => self.asks.push((*id, ask.clone())),
                Output::Alias { .. } => {}
            }
        }
        sent
    }

    pub(super) fn path(from: &str) -> Path {
        Path::new(ListenerId(0), None, from.parse().unwrap())
    }

    pub(super) fn receive(&mut self, from: &str, text: &str) -> Vec<Sent> {
        let path = Rig::path(from);
        self.input(Input::Message { path, bytes: text.as_bytes() })
    }

    /// Goes on by `duration`, timer by timer; what was sent with the milliseconds that had passed.
    pub(super) fn pass(&mut self, duration: Duration) -> Vec<(u64, Sent)> {
        let (start, end) = (self.now, self.now + duration);
        let mut all = Vec::new();
        while let Some(next) = self.endpoint.next_timeout().filter(|next| *next <= end) {
            self.now = next.max(self.now);
            let millis = self.now.since(start).as_millis() as u64;
            all.extend(self.input(Input::Timeout).into_iter().map(|sent| (millis, sent)));
        }
        self.now = end;
        all
    }

    /// Lets everything run out; nothing may be left.
    pub(super) fn rest(&mut self) {
        let _ = self.pass(Duration::from_secs(600));
        assert_eq!(self.endpoint.transactions(), 0, "transactions are left");
        assert_eq!(self.endpoint.next_timeout(), None, "timers are left");
        assert!(self.endpoint.is_idle());
    }
}

/// A request of the caller.
pub(super) fn request(method: &str, uri: &str, branch: &str, extra: &str) -> String {
    format!(
        "{method} {uri} SIP/2.0\r\nVia: SIP/2.0/UDP {CALLER};branch=z9hG4bK{branch}\r\nMax-Forwards: 70\r\n\
         From: <sip:caller@example.net>;tag=ft\r\nTo: <sip:callee@example.com>\r\nCall-ID: call-1\r\n\
         CSeq: 1 {method}\r\n{extra}Content-Length: 0\r\n\r\n"
    )
}

pub(super) fn invite(branch: &str) -> String {
    request("INVITE", &format!("sip:callee@{CALLEE}"), branch, "")
}

/// What the callee answers to a request that it got.
pub(super) fn response(to: &Sent, status: &str, extra: &str) -> String {
    let mut text = format!("SIP/2.0 {status}\r\n");
    for line in to.text.lines() {
        let copied = ["Via: ", "From: ", "Call-ID: ", "CSeq: ", "Record-Route: "];
        if copied.iter().any(|name| line.starts_with(name)) {
            text.push_str(line);
            text.push_str("\r\n");
        } else if let Some(to) = line.strip_prefix("To: ") {
            let tag = if to.contains("tag=") { "" } else { ";tag=callee" };
            text.push_str(&format!("To: {to}{tag}\r\n"));
        }
    }
    text.push_str(extra);
    text.push_str("Content-Length: 0\r\n\r\n");
    text
}

/// The ACK of a final response that is no 2xx.
pub(super) fn ack(branch: &str, response: &Sent) -> String {
    let text = request("ACK", &format!("sip:callee@{CALLEE}"), branch, "");
    text.replace("To: <sip:callee@example.com>", &format!("To: {}", response.header("To")))
}

/// Statuses and methods of what was sent.
pub(super) fn kinds(sent: &[Sent]) -> Vec<String> {
    sent.iter()
        .map(|sent| match sent.text.strip_prefix("SIP/2.0 ") {
            Some(rest) => rest[..3].to_string(),
            None => sent.method().to_string(),
        })
        .collect()
}
