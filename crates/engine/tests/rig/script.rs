//! The transaction user of the tests: closures per callback, and a diary of what it was called for.

use engine::{
    Answer, Ask, BranchContext, BranchVerdict, Handled, ReplyContext, ReplyVerdict, RequestContext, Target,
    TransactionUser,
};
use std::time::Duration;

use super::DOMAIN;

/// What a script keeps with a transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// How often `on_failure` ran.
    pub failures: u32,
    /// Set by tests, read back in later callbacks of the same transaction.
    pub mark: u32,
}

/// What a suspended script keeps.
pub type Suspended = u32;

type OnRequest = dyn FnMut(&mut RequestContext<'_, State>) -> Handled<Suspended>;
type OnAnswer = dyn FnMut(&mut RequestContext<'_, State>, Suspended, Answer<'_>) -> Handled<Suspended>;
type OnReply = dyn FnMut(&mut ReplyContext<'_, State>) -> ReplyVerdict;
type OnBranch = dyn FnMut(&mut BranchContext<'_, State>) -> BranchVerdict;
type OnFailure = dyn FnMut(&mut RequestContext<'_, State>);

/// A transaction user made of closures.
pub struct Script {
    on_request: Box<OnRequest>,
    on_answer: Box<OnAnswer>,
    on_reply: Box<OnReply>,
    on_failure: Box<OnFailure>,
    on_branch: Box<OnBranch>,
    /// What was called, in order: `request INVITE`, `answer 7`, `reply 180`, `failure 486`.
    pub diary: Vec<String>,
    /// Long runs keep no diary.
    pub silent: bool,
}

impl Script {
    pub fn new(
        on_request: impl FnMut(&mut RequestContext<'_, State>) -> Handled<Suspended> + 'static,
    ) -> Script {
        Script {
            on_request: Box::new(on_request),
            on_answer: Box::new(|_, _, _| Handled::Done),
            on_reply: Box::new(|_| ReplyVerdict::Forward),
            on_failure: Box::new(|_| {}),
            on_branch: Box::new(|_| BranchVerdict::Send),
            diary: Vec::new(),
            silent: false,
        }
    }

    /// The proxy of RFC 3261 §16: route processing, then relay to the Request-URI.
    pub fn proxy() -> Script {
        Script::new(proxy)
    }

    /// The same without any state (RFC 3261 §16.11).
    pub fn stateless() -> Script {
        Script::new(|cx| {
            let _ = cx.loose_route();
            let _ = cx.forward(None);
            Handled::Done
        })
    }

    /// Requests for our domain go to all of `targets` (URI, q in thousandths), everything else to its Request-URI.
    pub fn fork(targets: &[(&str, u16)]) -> Script {
        let targets: Vec<(String, u16)> = targets.iter().map(|&(uri, q)| (uri.to_owned(), q)).collect();
        Script::new(move |cx| {
            let _ = cx.loose_route();
            if is_for_us(cx) {
                set_targets(cx, &targets);
            }
            let _ = cx.relay();
            Handled::Done
        })
    }

    /// Answers everything but ACK with `status`, within a transaction.
    pub fn reply(status: u16) -> Script {
        Script::new(move |cx| {
            if cx.message().method() == sip::Method::Ack {
                return Handled::Done;
            }
            if cx.message().method() == sip::Method::Cancel && cx.matches_transaction() {
                let _ = cx.relay();
                return Handled::Done;
            }
            if cx.create_transaction().is_err() {
                return Handled::Done;
            }
            let _ = cx.reply(status, b"Scripted", b"", b"");
            Handled::Done
        })
    }

    /// Suspends every request that is new with the question for a host name; CANCEL and ACK are relayed.
    pub fn suspend(deadline: Duration) -> Script {
        Script::new(move |cx| match cx.message().method() {
            sip::Method::Ack | sip::Method::Cancel => proxy(cx),
            _ => Handled::Suspend { state: 7, ask: Ask::Resolve { host: "database".into() }, deadline },
        })
    }

    pub fn answer(
        mut self,
        f: impl FnMut(&mut RequestContext<'_, State>, Suspended, Answer<'_>) -> Handled<Suspended> + 'static,
    ) -> Script {
        self.on_answer = Box::new(f);
        self
    }

    pub fn on_reply(
        mut self,
        f: impl FnMut(&mut ReplyContext<'_, State>) -> ReplyVerdict + 'static,
    ) -> Script {
        self.on_reply = Box::new(f);
        self
    }

    pub fn on_failure(mut self, f: impl FnMut(&mut RequestContext<'_, State>) + 'static) -> Script {
        self.on_failure = Box::new(f);
        self
    }

    pub fn on_branch(
        mut self,
        f: impl FnMut(&mut BranchContext<'_, State>) -> BranchVerdict + 'static,
    ) -> Script {
        self.on_branch = Box::new(f);
        self
    }

    pub fn silent(mut self) -> Script {
        self.silent = true;
        self
    }

    fn note(&mut self, text: impl FnOnce() -> String) {
        if !self.silent {
            self.diary.push(text());
        }
    }

    /// How often the diary has that entry.
    pub fn count(&self, entry: &str) -> usize {
        self.diary.iter().filter(|line| *line == entry).count()
    }
}

/// Route processing, then relay.
pub fn proxy(cx: &mut RequestContext<'_, State>) -> Handled<Suspended> {
    let _ = cx.loose_route();
    let _ = cx.relay();
    Handled::Done
}

/// Is the Request-URI in our own domain, and the request one that a target set is made for?
pub fn is_for_us(cx: &mut RequestContext<'_, State>) -> bool {
    let method = cx.message().method();
    let ours = format!("@{DOMAIN}");
    let uri = String::from_utf8_lossy(cx.request_uri()).into_owned();
    uri.contains(&ours) && method != sip::Method::Ack && method != sip::Method::Cancel
}

/// The first of `targets` becomes target 0, the rest follow.
pub fn set_targets(cx: &mut RequestContext<'_, State>, targets: &[(String, u16)]) {
    for (n, (uri, q)) in targets.iter().enumerate() {
        let target = target(uri, *q);
        if n == 0 {
            cx.set_request_target(&target);
        } else {
            let _ = cx.append_target(&target);
        }
    }
}

/// A target with nothing but a URI and a q.
pub fn target(uri: &str, q: u16) -> Target<'_> {
    Target { uri: uri.as_bytes(), q, destination: None, path: None }
}

impl TransactionUser for Script {
    type State = State;
    type Suspended = Suspended;

    fn on_request(&mut self, cx: &mut RequestContext<'_, State>) -> Handled<Suspended> {
        self.note(|| format!("request {}", String::from_utf8_lossy(cx.message().method_bytes())));
        (self.on_request)(cx)
    }

    fn on_answer(
        &mut self,
        cx: &mut RequestContext<'_, State>,
        suspended: Suspended,
        answer: Answer<'_>,
    ) -> Handled<Suspended> {
        self.note(|| match answer {
            Answer::Failed => format!("failed {suspended}"),
            _ => format!("answer {suspended}"),
        });
        (self.on_answer)(cx, suspended, answer)
    }

    fn on_reply(&mut self, cx: &mut ReplyContext<'_, State>) -> ReplyVerdict {
        self.note(|| format!("reply {}", cx.message().status().unwrap_or(0)));
        (self.on_reply)(cx)
    }

    fn on_failure(&mut self, cx: &mut RequestContext<'_, State>) {
        self.note(|| "failure".into());
        (self.on_failure)(cx);
    }

    fn on_branch(&mut self, cx: &mut BranchContext<'_, State>) -> BranchVerdict {
        self.note(|| format!("branch {}", cx.index()));
        (self.on_branch)(cx)
    }
}
