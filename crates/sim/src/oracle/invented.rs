//! What a server makes of what it got: no byte of a message comes from nowhere (RFC 3261 §16.6, §8.2.6.2, §9.1,
//! §17.1.1.3). What passes through is compared by `requests-pass-untouched` and `responses-pass-untouched`; here are the
//! fields that a proxy writes, and the messages that it makes itself.

use super::messages::{PROXYS_OWN, origin, others};
use super::story::At;
use super::{Branch, Court, Oracle, Story, Transaction};
use crate::digest::REALM;
use crate::faults::Plan;
use crate::server::{CONFIGURATION_HEADER, Edition, Role, SECOND_HEADER, TABLE_HEADER};
use crate::text::{Msg, host_of, param, sent_by, uri_of, user_of};
use crate::trace::{Entry, What};
use std::net::SocketAddr;

/// Record-Routes that one server adds, and own Routes that it takes off, at most: two where sides change.
const OWN_ROUTES_MAX: usize = 2;
/// The edge's script stays on the path of calls with a longer Call-ID.
const SHORT_CALL_ID: usize = 12;
/// The tag of a server's own responses.
const TAG_LEN: usize = 13;
/// What the servers call themselves, where they do.
const SERVER: &str = "strowger";

pub(super) const ORACLES: &[Oracle] = &[Oracle {
    name: "nothing-invented",
    section: "RFC 3261 §16.6, §8.2.6.2, §9.1, §17.1.1.3",
    says: "Whatever a server writes was in what it received or is in its configuration, but for its own address and \
        fresh tokens.",
    judge: nothing_invented,
}];

/// What is known of one server.
struct Source<'w> {
    story: &'w Story<'w>,
    /// `host:port`, as it names itself.
    address: String,
    role: Role,
    has_digest: bool,
    has_changes: bool,
    /// Contacts that somebody wanted to bind: when, whose, and which.
    registered: Vec<(At, &'w str, &'w str)>,
}

fn nothing_invented(court: &mut Court<'_>) {
    for story in court.stories {
        let source = Source::new(story, &court.world.plan, court.world.servers[story.server].role);
        for (at, text) in source.faults() {
            court.accuse(story.time(at), story.msg(at).call_id(), text);
        }
    }
}

fn is_noise(msg: &Msg) -> bool {
    msg.call_id().starts_with(crate::noise::CALL_ID)
}

/// All values of a header that is no list.
fn values<'m>(msg: &'m Msg, name: &str) -> Vec<&'m str> {
    msg.headers.iter().filter(|(key, _)| key == name).map(|(_, value)| value.as_str()).collect()
}

impl<'w> Source<'w> {
    fn new(story: &'w Story<'w>, plan: &Plan, role: Role) -> Source<'w> {
        let registers = story.transactions.iter().filter(|transaction| transaction.method == "REGISTER");
        let registered = registers.flat_map(|transaction| &transaction.ins).flat_map(|at| {
            let msg = story.msg(*at);
            let user = user_of(uri_of(msg.get("to").unwrap_or("")));
            msg.list("contact").into_iter().map(move |contact| (*at, user, uri_of(contact)))
        });
        Source {
            story,
            address: story.address.to_string(),
            role,
            has_digest: plan.digest.is_some(),
            has_changes: plan.changes,
            registered: registered.collect(),
        }
    }

    fn faults(&self) -> Vec<(At, String)> {
        let story = self.story;
        let mut faults = Vec::new();
        let mut note = |at: At, fault: Option<&str>| {
            if let Some(fault) = fault {
                faults.push((at, format!("{} with {fault}", story.msg(at).label())));
            }
        };
        for branch in &story.branches {
            let transaction = &story.transactions[branch.transaction];
            if !story.is_judged(transaction) {
                continue;
            }
            note(branch.sends[0], self.request_fault(&transaction.ins, branch.sends[0]));
            // A CANCEL of nothing that goes on without state is none of its own; its copies are sorted alike.
            let made = branch.cancels.iter().chain(&branch.acks);
            for &made in made.filter(|_| transaction.method == "INVITE") {
                note(made, self.made_fault(branch, made));
            }
        }
        for (ack, sent) in &story.acks {
            let msg = story.msg(*ack);
            let is_its = |out: &&At| {
                story.time(**out) == story.time(*ack) && story.msg(**out).call_id() == msg.call_id()
            };
            for &out in sent.iter().filter(is_its).filter(|_| !is_noise(msg)) {
                note(out, self.request_fault(&[*ack], out));
            }
        }
        for transaction in story.transactions.iter().filter(|transaction| story.is_judged(transaction)) {
            for &out in &transaction.outs {
                // A 100 never passes through (RFC 3261 §16.7 item 5).
                if story.status(out) == 100 || origin(story, transaction, out).is_none() {
                    note(out, self.response_fault(transaction, out));
                }
            }
        }
        let own = |(_, entry): &(At, &Entry)| entry.node == story.address && matches!(entry.what, What::Sent);
        for (at, entry) in story.trace.entries.iter().enumerate().filter(own) {
            if let Some(msg) = entry.msg.as_ref().filter(|msg| !is_noise(msg)) {
                note(at, length_fault(msg, entry.reliable));
            }
        }
        faults
    }

    // --- requests that go on
    // ------------------------------------------------------------------------------------------

    /// What is wrong with a request that goes on, if it is made of none of the copies that came.
    fn request_fault(&self, ins: &[At], out: At) -> Option<&'static str> {
        let copies = ins.iter().copied().filter(|came| *came < out);
        let mut faults = copies.map(|came| self.copy_fault(came, out));
        let first = faults.next()?;
        if faults.any(|fault| fault.is_none()) { None } else { first }
    }

    fn copy_fault(&self, came: At, out: At) -> Option<&'static str> {
        let (asked, sent) = (self.story.msg(came), self.story.msg(out));
        let is_ack = asked.method() == "ACK";
        let one_number = |name: &str| matches!(values(sent, name)[..], [one] if one.parse::<u32>().is_ok());
        match () {
            () if sent.first != format!("{} {} SIP/2.0", asked.method(), sent.uri()) => {
                Some("another request line")
            }
            () if !self.is_target(asked, sent.uri(), out) => Some("a Request-URI of nobody's"),
            () if !self.is_via(came, out) => Some("other Vias than its own and those that came"),
            () if !self.are_routes(asked, sent) => Some("Routes that did not come"),
            () if !self.are_record_routes(asked, sent) => {
                Some("Record-Routes that are neither its own nor came")
            }
            () if !one_number("max-forwards") || !one_number("max-breadth") => {
                Some("no Max-Forwards or Max-Breadth, or several")
            }
            () if !self.is_authorization(came, sent) => Some("other credentials"),
            () if !self.are_marks(asked, sent) => Some("headers that no script writes"),
            // All others are compared by `requests-pass-untouched`, which does not see ACKs.
            () if is_ack && others(sent, &PROXYS_OWN) != others(asked, &PROXYS_OWN) => Some("other headers"),
            () if is_ack && sent.body != asked.body => Some("another body"),
            () => None,
        }
    }

    /// RFC 3261 §16.4, §16.5, §16.6 item 2: the one that came, or, of a new request at the home, a contact of its user or what
    /// the script makes of it.
    fn is_target(&self, asked: &Msg, uri: &str, out: At) -> bool {
        // RFC 3261 §16.4: a `maddr` that names the server itself is taken off.
        let own_maddr = format!(";maddr={}", self.story.address.ip());
        if uri == asked.uri() || uri == asked.uri().replacen(&own_maddr, "", 1) {
            return true;
        }
        if self.role != Role::Home || asked.to_tag().is_some() {
            return false;
        }
        let user = user_of(asked.uri());
        let spirals = |rest: &str| asked.uri().replacen(user, rest, 1) == uri;
        if user.strip_prefix("spiral-").is_some_and(spirals) {
            return true;
        }
        let second = user.strip_prefix("second-");
        let is_user = |owner: &str| owner == second.unwrap_or(user);
        // Whom the failure route tries.
        let is_second = |owner: &str| second.is_some() && matches!(owner, "u0" | "u1");
        let mut before = self.registered.iter().filter(|(at, ..)| *at < out);
        before.any(|(_, owner, contact)| *contact == uri && (is_user(owner) || is_second(owner)))
    }

    /// RFC 3261 §16.6 item 8, §18.1.1: its own is its address and a branch, that of who sent it is as §18.2.1 marks it.
    fn is_via(&self, came: At, out: At) -> bool {
        let (asked, sent) = (self.story.entry(came), self.story.entry(out));
        let (before, after) = (self.story.msg(came).list("via"), self.story.msg(out).list("via"));
        let transport = if sent.reliable { "TCP" } else { "UDP" };
        let own = format!("SIP/2.0/{transport} {};branch=", self.address);
        let is_token = |branch: &str| branch.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'.');
        let is_own = after.first().and_then(|via| via.strip_prefix(&own)).is_some_and(is_token);
        is_own && are_marked(&before, &after[1..], asked.peer)
    }

    fn is_own_uri(&self, value: &str) -> bool {
        host_of(uri_of(value)) == self.address
    }

    /// RFC 3261 §16.4, §16.6 item 6: those that came, less its own in front.
    fn are_routes(&self, asked: &Msg, sent: &Msg) -> bool {
        let (before, after) = (asked.list("route"), sent.list("route"));
        let Some(taken) = before.len().checked_sub(after.len()) else { return false };
        let is_first_own = before.first().is_some_and(|route| self.is_own_uri(route));
        before.ends_with(&after)
            && before[..taken].iter().all(|route| self.is_own_uri(route))
            && taken <= OWN_ROUTES_MAX
            && is_first_own == (taken > 0)
    }

    /// RFC 3261 §16.6 item 4: its own in front of those that came, where its script stays on the path, and only there.
    fn are_record_routes(&self, asked: &Msg, sent: &Msg) -> bool {
        let (before, after) = (asked.list("record-route"), sent.list("record-route"));
        let Some(added) = after.len().checked_sub(before.len()) else { return false };
        let begins = asked.method() == "INVITE" && asked.to_tag().is_none();
        let stays = begins && (self.role == Role::Home || asked.call_id().len() > SHORT_CALL_ID);
        // The edge's `rr` notes who has called, the home's does not.
        let tag = format!("ftag={}", asked.from_tag().unwrap_or(""));
        let is_noted = |param: &str| self.role == Role::Edge && param == tag;
        let is_param = |param: &str| matches!(param, "lr" | "r2=on" | "transport=tcp") || is_noted(param);
        let is_own = |value: &&str| {
            let uri = uri_of(value);
            let user = user_of(uri);
            **value == format!("<{uri}>")
                && self.is_own_uri(value)
                && user.bytes().all(|byte| byte.is_ascii_alphanumeric())
                && user.len() >= TAG_LEN
                && uri.split(';').skip(1).all(is_param)
                && uri.split(';').any(|param| param == "lr")
        };
        after.ends_with(&before)
            && stays == (added > 0)
            && added <= OWN_ROUTES_MAX
            && after[..added].iter().all(is_own)
    }

    /// RFC 3261 §22.3: who has made the challenge may take out what answers it; nobody else changes anything.
    fn is_authorization(&self, came: At, sent: &Msg) -> bool {
        let (entry, asked) = (self.story.entry(came), self.story.msg(came));
        let begins = asked.method() == "INVITE" && asked.to_tag().is_none();
        let is_new = entry.peer.ip() != self.story.address.ip();
        let consumes = self.has_digest && self.role == Role::Home && begins && is_new;
        let mut kept = values(asked, "proxy-authorization");
        if consumes {
            kept.retain(|value| !value.contains(&format!("realm=\"{REALM}\"")));
        }
        values(sent, "proxy-authorization") == kept
    }

    /// What the home's script says of itself, where it does.
    fn are_marks(&self, asked: &Msg, sent: &Msg) -> bool {
        let is_edition = |value: &&str| [Edition::One, Edition::Two].iter().any(|e| e.name() == *value);
        let writes = self.has_changes && self.role == Role::Home && asked.to_tag().is_none();
        [TABLE_HEADER, SECOND_HEADER, CONFIGURATION_HEADER].iter().all(|name| {
            let (before, after) = (values(asked, name), values(sent, name));
            let added = after.get(before.len()..).unwrap_or(&[]);
            after.starts_with(&before) && (added.is_empty() || writes) && added.iter().all(is_edition)
        })
    }

    // --- messages of its own
    // ------------------------------------------------------------------------------------------

    /// RFC 3261 §9.1, §17.1.1.3: the CANCEL and the ACK of a failure have these fields, and no others. What is in them
    /// `cancel-form` and `failure-acknowledged-here` judge.
    fn made_fault(&self, branch: &Branch, made: At) -> Option<&'static str> {
        const FIELDS: [&str; 8] =
            ["via", "max-forwards", "from", "to", "call-id", "cseq", "route", "content-length"];
        let (msg, invite) = (self.story.msg(made), self.story.msg(branch.sends[0]));
        let is_field = |name: &str| FIELDS.contains(&name);
        let is_once = |name: &&&str| **name == "route" || values(msg, name).len() == 1;
        match () {
            () if !msg.headers.iter().all(|(name, _)| is_field(name)) => Some("fields that it may not have"),
            () if FIELDS.iter().filter(is_once).count() != FIELDS.len() => Some("a field missing, or twice"),
            () if msg.get("cseq") != Some(&format!("{} {}", invite.cseq(), msg.method())) => {
                Some("another CSeq")
            }
            () if msg.get("max-forwards").is_none_or(|hops| hops.parse::<u8>().is_err()) => {
                Some("no number of hops")
            }
            () if !msg.body.is_empty() => Some("a body"),
            () => None,
        }
    }

    /// What is wrong with a response of the server's own (RFC 3261 §8.2.6).
    fn response_fault(&self, transaction: &Transaction, out: At) -> Option<&'static str> {
        let copies = transaction.ins.iter().copied().filter(|came| *came < out);
        let mut faults = copies.map(|came| self.answer_fault(came, out));
        let first = faults.next()?;
        if faults.any(|fault| fault.is_none()) { None } else { first }
    }

    fn answer_fault(&self, came: At, out: At) -> Option<&'static str> {
        let (asked, msg) = (self.story.msg(came), self.story.msg(out));
        let peer = self.story.entry(came).peer;
        let to = (asked.get("to").unwrap_or(""), msg.get("to").unwrap_or(""));
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'v').contains(&byte);
        let is_tag = |tag: &str| tag.len() == TAG_LEN && tag.bytes().all(is_digit);
        let tag = to.1.strip_prefix(to.0);
        let is_to = match tag.map(|tag| tag.strip_prefix(";tag=")) {
            Some(Some(tag)) => asked.to_tag().is_none() && is_tag(tag),
            Some(None) => tag == Some(""),
            None => false,
        };
        let once = ["from", "to", "call-id", "cseq"];
        match () {
            () if !msg.headers.iter().all(|header| is_answers(header, asked, msg)) => {
                Some("fields that nobody has asked for")
            }
            () if !once.iter().all(|name| values(msg, name).len() == 1) => Some("a field missing, or twice"),
            () if !are_marked(&asked.list("via"), &msg.list("via"), peer) => Some("other Vias than came"),
            () if !is_to => Some("a To that is neither that of the request nor that and a tag"),
            () if !msg.body.is_empty() => Some("a body"),
            () => None,
        }
    }
}

/// Whether a field may stand in a server's own response.
fn is_answers((name, value): &(String, String), asked: &Msg, answer: &Msg) -> bool {
    let status = answer.status().unwrap_or(0);
    let is_number = value.parse::<u32>().is_ok();
    match name.as_str() {
        "via" | "from" | "to" | "call-id" | "cseq" | "content-length" => true,
        "server" => value == SERVER,
        // RFC 3261 §10.3 step 8; which contacts `bindings` judges.
        "contact" | "date" => status == 200 && asked.method() == "REGISTER",
        "www-authenticate" => status == 401 && asked.method() == "REGISTER",
        "proxy-authenticate" => status == 407,
        "retry-after" => matches!(status, 500 | 503) && is_number,
        "min-expires" => status == 423 && is_number,
        _ => false,
    }
}

/// Whether these are the Vias that came, the topmost with what RFC 3261 §18.2.1 and RFC 3581 §4 add to it, and nothing
/// else.
fn are_marked(before: &[&str], after: &[&str], peer: SocketAddr) -> bool {
    let (Some((before, below)), Some((after, left))) = (before.split_first(), after.split_first()) else {
        return false;
    };
    let is_added = |part: &&str| {
        let name = part.split('=').next().unwrap_or("").trim();
        name.eq_ignore_ascii_case("received") || name.eq_ignore_ascii_case("rport")
    };
    let plain = |via: &'_ str| -> Vec<String> {
        via.split(';').filter(|part| !is_added(part)).map(|part| part.trim().to_owned()).collect()
    };
    let (ip, port) = (peer.ip().to_string(), peer.port().to_string());
    let is_other = sent_by(before).split(':').next() != Some(&ip);
    let asks = param(before, "rport").is_some();
    let received = param(after, "received");
    let has_received = received == Some(&ip) || (received.is_none() && !is_other && !asks);
    let has_port = param(after, "rport") == asks.then_some(port.as_str());
    below == left && plain(before) == plain(after) && has_received && has_port
}

/// RFC 3261 §20.14, §18.3: how long a message says that its body is.
fn length_fault(msg: &Msg, reliable: bool) -> Option<&'static str> {
    let said = values(msg, "content-length");
    let is_right = |length: &&str| length.parse() == Ok(msg.body.len());
    let is_needed = reliable && said.is_empty();
    (is_needed || said.len() > 1 || !said.iter().all(is_right))
        .then_some("another Content-Length than its body's")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: SocketAddr =
        SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 1, 0, 1)), 5061);

    #[test]
    fn only_what_a_server_adds_may_stand_in_a_via_that_came() {
        let marked = |before: &str, after: &str| are_marked(&[before], &[after], PEER);
        let via = "SIP/2.0/UDP 10.1.0.1:5060;branch=z9hG4bK1";
        let hidden = "SIP/2.0/UDP 192.168.0.7:5060;branch=z9hG4bK1;rport";
        assert!(marked(via, via) && marked(via, &format!("{via};received=10.1.0.1")));
        assert!(marked(hidden, &format!("{hidden}=5061;received=10.1.0.1")));
        for wrong in [
            hidden.to_owned(),
            format!("{hidden}=5061"),
            format!("{hidden}=5060;received=10.1.0.1"),
            format!("{hidden}=5061;received=10.1.0.2"),
            format!("{hidden}=5061;received=10.1.0.1;x=y"),
        ] {
            assert!(!marked(hidden, &wrong), "{wrong}");
        }
        assert!(!marked(via, &format!("{via};rport=5061")));
        assert!(!are_marked(&[via, "a"], &[via], PEER) && !are_marked(&[via], &[], PEER));
    }

    #[test]
    fn a_length_is_that_of_the_body() {
        let fault =
            |text: &str, reliable| length_fault(&Msg::parse(text.as_bytes()).unwrap(), reliable).is_some();
        assert!(!fault("SIP/2.0 200 OK\r\nContent-Length: 2\r\n\r\nhi", true));
        assert!(!fault("SIP/2.0 200 OK\r\nTo: x\r\n\r\nhi", false));
        assert!(fault("SIP/2.0 200 OK\r\nTo: x\r\n\r\nhi", true));
        assert!(fault("SIP/2.0 200 OK\r\nContent-Length: 3\r\n\r\nhi", false));
    }
}
