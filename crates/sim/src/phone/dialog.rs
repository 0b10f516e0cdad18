//! Dialogs of a phone (RFC 3261 §12, §13, §15): the ACK of a 2xx, its retransmissions, BYE and re-INVITE.

use super::{LONG, Phone, T1, T2, Task, Way, next_hop};
use crate::text::{Msg, uri_of};
use crate::trace::Micros;

/// One dialog, or what is left of one.
#[derive(Clone, Debug)]
pub(super) struct Dialog {
    pub(super) call_id: String,
    /// Our From (or To) value, with the tag.
    local: String,
    remote: String,
    remote_tag: String,
    target: String,
    routes: Vec<String>,
    cseq: u32,
    /// The ACK of our INVITE's 2xx, by its CSeq.
    ack: Option<(u32, Way, Vec<u8>)>,
    /// Our 2xx, while its ACK is awaited: its CSeq, way, bytes, interval, and until when.
    ok: Option<(u32, Way, Vec<u8>, Micros, Micros)>,
    pub(super) resend_at: Option<Micros>,
    over: bool,
}

impl Phone {
    /// A 2xx to an INVITE of ours came: a new dialog, a known one, or a copy of what is known (RFC 3261
    /// §13.2.2.4).
    pub(super) fn accepted(&mut self, now: Micros, invite: &Msg, ok: &Msg) {
        let tag = ok.to_tag().unwrap_or("").to_owned();
        let call_id = ok.call_id().to_owned();
        let known =
            self.dialogs.iter().position(|dialog| dialog.call_id == call_id && dialog.remote_tag == tag);
        let at = known.unwrap_or_else(|| {
            let routes = ok.list("record-route").into_iter().rev().map(str::to_owned).collect();
            let local = invite.get("from").unwrap_or("").to_owned();
            self.dialogs.push(Dialog::new(ok, local, ok.get("to"), tag.clone(), routes, invite.cseq()));
            self.dialogs.len() - 1
        });
        let cseq = ok.cseq();
        if let Some((acked, way, bytes)) = &self.dialogs[at].ack
            && *acked == cseq
        {
            self.out.push((*way, bytes.clone()));
            return;
        }
        if let Some(contact) = ok.get("contact") {
            self.dialogs[at].target = uri_of(contact).to_owned();
        }
        self.acknowledge(at, cseq);
        let has_other = self.dialogs.iter().any(|other| other.call_id == call_id && other.remote_tag != tag);
        if known.is_none() {
            // RFC 3261 §13.2.2.4: of several the caller keeps one.
            let talk = if has_other { 0 } else { 100_000 + self.prng.below(self.habits.talks) };
            if !has_other && self.prng.chance(20) {
                self.plan(now + talk / 2, Task::Reinvite(call_id.clone(), tag.clone()));
            }
            self.plan(now + talk, Task::Hangup(call_id, tag));
        }
    }

    fn acknowledge(&mut self, at: usize, cseq: u32) {
        let dialog = &self.dialogs[at];
        let headers = dialog.headers(&format!("{cseq} ACK"));
        let (uri, way) = (dialog.target.clone(), self.way_by(next_hop(&dialog.routes, &dialog.target)));
        let (msg, _) = self.request("ACK", &uri, headers, way);
        let bytes = msg.bytes();
        self.out.push((way, bytes.clone()));
        self.dialogs[at].ack = Some((cseq, way, bytes));
    }

    /// We accepted an INVITE: the 2xx is sent until its ACK comes (RFC 3261 §13.3.1.4).
    pub(super) fn accept(&mut self, now: Micros, invite: &Msg, ok: &Msg, way: Way) {
        let tag = invite.from_tag().unwrap_or("").to_owned();
        let known = self.dialogs.iter().position(|d| d.call_id == invite.call_id() && d.remote_tag == tag);
        let at = known.unwrap_or_else(|| {
            let routes = invite.list("record-route").into_iter().map(str::to_owned).collect();
            let local = ok.get("to").unwrap_or("").to_owned();
            self.dialogs.push(Dialog::new(invite, local, invite.get("from"), tag.clone(), routes, 1));
            self.dialogs.len() - 1
        });
        let dialog = &mut self.dialogs[at];
        dialog.ok = Some((invite.cseq(), way, ok.bytes(), T1, now + LONG));
        dialog.resend_at = Some(now + T1);
        if known.is_none() && self.prng.chance(30) {
            let talk = 500_000 + self.prng.below(self.habits.talks);
            self.plan(now + talk, Task::Hangup(invite.call_id().to_owned(), tag));
        }
    }

    pub(super) fn acknowledged(&mut self, ack: &Msg) {
        let tag = ack.from_tag().unwrap_or("");
        let fits = |dialog: &&mut Dialog| dialog.call_id == ack.call_id() && dialog.remote_tag == tag;
        if let Some(dialog) = self.dialogs.iter_mut().find(fits)
            && dialog.ok.as_ref().is_some_and(|(cseq, ..)| *cseq == ack.cseq())
        {
            dialog.ok = None;
            dialog.resend_at = None;
        }
    }

    pub(super) fn tick_dialogs(&mut self, now: Micros) {
        let mut given_up = Vec::new();
        for dialog in &mut self.dialogs {
            if dialog.resend_at.is_none_or(|at| at > now) {
                continue;
            }
            let Some((_, way, bytes, interval, until)) = &mut dialog.ok else { continue };
            if now >= *until {
                // RFC 3261 §13.3.1.4: without an ACK the session is ended.
                dialog.ok = None;
                dialog.resend_at = None;
                given_up.push((dialog.call_id.clone(), dialog.remote_tag.clone()));
                continue;
            }
            self.out.push((*way, bytes.clone()));
            self.tally.again += 1;
            *interval = (*interval * 2).min(T2);
            dialog.resend_at = Some((now + *interval).min(*until));
        }
        for (call_id, tag) in given_up {
            self.hangup(now, &call_id, &tag);
        }
    }

    pub(super) fn hangup(&mut self, now: Micros, call_id: &str, tag: &str) {
        self.within(now, call_id, tag, "BYE");
    }

    pub(super) fn reinvite(&mut self, now: Micros, call_id: &str, tag: &str) {
        self.within(now, call_id, tag, "INVITE");
    }

    fn within(&mut self, now: Micros, call_id: &str, tag: &str, method: &str) {
        let fits =
            |dialog: &&mut Dialog| dialog.call_id == call_id && dialog.remote_tag == tag && !dialog.over;
        let Some(dialog) = self.dialogs.iter_mut().find(fits) else { return };
        if method == "INVITE" && dialog.ok.is_some() {
            return;
        }
        dialog.over = method == "BYE";
        dialog.cseq += 1;
        let mut headers = dialog.headers(&format!("{} {method}", dialog.cseq));
        let (uri, hop) = (dialog.target.clone(), next_hop(&dialog.routes, &dialog.target).to_owned());
        if method == "INVITE" {
            headers.push(("contact", format!("<{}>", self.contact())));
        }
        let way = self.way_by(&hop);
        let (msg, _) = self.request(method, &uri, headers, way);
        self.begin(now, msg, way, None);
    }

    /// The other side hung up; whether there was such a dialog.
    pub(super) fn on_bye(&mut self, bye: &Msg) -> bool {
        let tag = bye.from_tag().unwrap_or("");
        let fits = |dialog: &&mut Dialog| dialog.call_id == bye.call_id() && dialog.remote_tag == tag;
        let Some(dialog) = self.dialogs.iter_mut().find(fits) else { return false };
        dialog.over = true;
        dialog.ok = None;
        dialog.resend_at = None;
        true
    }
}

impl Dialog {
    fn new(
        msg: &Msg,
        local: String,
        remote: Option<&str>,
        remote_tag: String,
        routes: Vec<String>,
        cseq: u32,
    ) -> Dialog {
        Dialog {
            call_id: msg.call_id().to_owned(),
            local,
            remote: remote.unwrap_or("").to_owned(),
            remote_tag,
            target: msg.get("contact").map(uri_of).unwrap_or("").to_owned(),
            routes,
            cseq,
            ack: None,
            ok: None,
            resend_at: None,
            over: false,
        }
    }

    fn headers(&self, cseq: &str) -> Vec<(&'static str, String)> {
        let mut headers = vec![
            ("from", self.local.clone()),
            ("to", self.remote.clone()),
            ("call-id", self.call_id.clone()),
            ("cseq", cseq.to_owned()),
        ];
        headers.extend(self.routes.iter().map(|route| ("route", route.clone())));
        headers
    }
}
