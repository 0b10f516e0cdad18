//! One end of a dialog (RFC 3261 §12), enough of it to send requests within.

use std::cell::Cell;

use crate::{Message, Phone};

/// What an end of a call remembers between its requests.
#[derive(Debug)]
pub struct Dialog {
    call_id: String,
    local: String,
    remote: String,
    remote_target: String,
    route_set: Vec<String>,
    cseq: Cell<u32>,
}

impl Dialog {
    /// A call of `caller` to the registered user of `callee`, answered and acknowledged through the server.
    ///
    /// # Panics
    ///
    /// When it does not come about.
    pub fn establish(caller: &Phone, callee: &Phone) -> (Self, Self) {
        Self::establish_at(caller, callee, &callee.address_of_record())
    }

    /// The same with this Request-URI, by which the server finds the callee.
    ///
    /// # Panics
    ///
    /// When it does not come about.
    pub fn establish_at(caller: &Phone, callee: &Phone, uri: &str) -> (Self, Self) {
        let invite = caller.request("INVITE", uri);
        caller.send(&invite);
        let arrived = callee.expect_request("INVITE");
        let ok = callee.accept(&arrived);
        let answer = caller.expect_response(200, &invite);
        let ends = (Self::of_caller(&invite, &answer), Self::of_callee(&arrived, &ok));
        caller.send(&ends.0.ack(caller));
        callee.expect_request("ACK");
        ends
    }

    /// The caller's end, from the INVITE that it sent and the 2xx that it got (RFC 3261 §12.1.2).
    pub fn of_caller(invite: &Message, answer: &Message) -> Self {
        let routes = answer.all("Record-Route").into_iter().rev().map(str::to_owned).collect();
        Self {
            call_id: invite.header("Call-ID").to_owned(),
            local: answer.header("From").to_owned(),
            remote: answer.header("To").to_owned(),
            remote_target: answer.uri_of("Contact").to_owned(),
            route_set: routes,
            cseq: Cell::new(sequence(invite)),
        }
    }

    /// The callee's end, from the INVITE that it got and the 2xx that it sent (RFC 3261 §12.1.1).
    pub fn of_callee(invite: &Message, answer: &Message) -> Self {
        Self {
            call_id: invite.header("Call-ID").to_owned(),
            local: answer.header("To").to_owned(),
            remote: invite.header("From").to_owned(),
            remote_target: invite.uri_of("Contact").to_owned(),
            route_set: invite.all("Record-Route").into_iter().map(str::to_owned).collect(),
            cseq: Cell::new(sequence(invite)),
        }
    }

    /// The next request of this end, along the route set (RFC 3261 §12.2.1.1). Its proxies are loose routers.
    pub fn request(&self, phone: &Phone, method: &str) -> Message {
        self.cseq.set(self.cseq.get() + 1);
        self.build(phone, method)
    }

    /// Sends a request of this end from its phone to the other one, which answers with 200. A new INVITE is
    /// acknowledged, too.
    ///
    /// # Panics
    ///
    /// When it does not arrive as it should, or its answer does not.
    pub fn exchange(&self, from: &Phone, to: &Phone, method: &str) {
        let request = self.request(from, method);
        from.send(&request);
        let arrived = to.expect_request(method);
        assert_eq!(arrived.uri(), to.contact(), "the remote target is the Request-URI (§12.2.1.1)");
        assert_eq!(arrived.find("Route"), None, "the server takes its own Routes off (§16.4):\n{arrived}");
        to.accept(&arrived);
        from.expect_response(200, &request);
        if method == "INVITE" {
            from.send(&self.ack(from));
            to.expect_request("ACK");
        }
    }

    /// The ACK to the 2xx of this end's latest INVITE (RFC 3261 §13.2.2.4).
    pub fn ack(&self, phone: &Phone) -> Message {
        self.build(phone, "ACK")
    }

    fn build(&self, phone: &Phone, method: &str) -> Message {
        let request = phone
            .request(method, &self.remote_target)
            .set("From", &self.local)
            .set("To", &self.remote)
            .set("Call-ID", &self.call_id)
            .set("CSeq", format!("{} {method}", self.cseq.get()));
        self.route_set.iter().fold(request, |request, route| request.with("Route", route))
    }
}

fn sequence(request: &Message) -> u32 {
    let number = request.header("CSeq").split(' ').next().unwrap_or_default();
    number.parse().unwrap_or_else(|_| panic!("no number in CSeq of:\n{request}"))
}
