//! Between a binding in the location table and its row in a database.

use std::net::SocketAddr;

use location::{Binding, Kept, Update};
use modules::{RegistrarSettings, StoredAor, key_of_stored, methods_of_stored, stored_aor, stored_methods};
use sip::{Instant, Transport};
use store::Contact;

use crate::clock::Time;

/// What is needed to make rows of bindings and bindings of rows.
#[derive(Clone, Debug)]
pub(crate) struct RowMaker {
    settings: RegistrarSettings,
    /// The tables that scripts name.
    tables: Vec<String>,
    /// The listeners, as rows name them.
    sockets: Vec<Box<[u8]>>,
    time: Time,
}

impl RowMaker {
    /// For these tables and listeners.
    pub(crate) fn new(
        settings: RegistrarSettings,
        tables: Vec<String>,
        listeners: &[engine::Listener],
        time: Time,
    ) -> RowMaker {
        let socket = |listener: &engine::Listener| {
            socket_text(listener.transport, listener.address).into_bytes().into_boxed_slice()
        };
        RowMaker { settings, tables, sockets: listeners.iter().map(socket).collect(), time }
    }

    /// The tables.
    pub(crate) fn tables(&self) -> &[String] {
        &self.tables
    }

    /// The table of that name; the first one for a name that no script has.
    pub(crate) fn table_name(&self, name: &[u8]) -> &str {
        self.tables.get(self.table_place(name)).map_or("location", String::as_str)
    }

    /// Its place among the tables.
    pub(crate) fn table_place(&self, name: &[u8]) -> usize {
        self.tables.iter().position(|table| table.as_bytes() == name).unwrap_or(0)
    }

    /// Table, user and domain of a key.
    pub(crate) fn stored<'k>(&self, key: &'k [u8]) -> StoredAor<'k> {
        stored_aor(&self.settings, key)
    }

    /// The row of a binding, and whose it is.
    pub(crate) fn row<'b>(&'b self, binding: &'b Binding) -> (StoredAor<'b>, Contact<'b>) {
        let stored = self.stored(binding.aor());
        let listener = usize::try_from(binding.flow()).ok();
        let socket = listener.and_then(|listener| self.sockets.get(listener));
        let contact = Contact {
            username: stored.username,
            domain: stored.domain,
            contact: binding.contact(),
            received: binding.received().unwrap_or(&[]),
            path: binding.path().unwrap_or(&[]),
            expires_unix_micros: match binding.expires_at() {
                Instant::NEVER => Contact::NEVER,
                at => self.time.unix_micros(at),
            },
            q: binding.q(),
            call_id: binding.call_id(),
            cseq: binding.cseq(),
            modified_unix_micros: self.time.unix_micros(binding.modified_at()),
            cflags: binding.flags(),
            user_agent: binding.user_agent().unwrap_or(&[]),
            socket: socket.map_or(&[][..], |socket| socket),
            methods: stored_methods(binding.methods()),
            instance: binding.instance().unwrap_or(&[]),
            reg_id: binding.reg_id().unwrap_or(0),
            ..Contact::default()
        };
        (stored, contact)
    }

    /// Writes the key of a row's address-of-record to `key`; false if it is none that could be asked for here.
    pub(crate) fn key(&self, table: &str, contact: &Contact<'_>, key: &mut Vec<u8>) -> bool {
        let (username, domain) = (contact.username, contact.domain);
        key_of_stored(&self.settings, &StoredAor { table: table.as_bytes(), username, domain }, key)
    }

    /// The binding of a row.
    pub(crate) fn kept<'r>(&self, contact: &Contact<'r>) -> Kept<'r> {
        let update = Update {
            received: contact.received,
            path: contact.path,
            instance: contact.instance,
            user_agent: contact.user_agent,
            reg_id: contact.reg_id,
            flow: self.listener(contact.socket),
            methods: methods_of_stored(contact.methods),
            flags: contact.cflags,
            ..Update::new(contact.contact, contact.call_id, contact.cseq)
        };
        Kept {
            update,
            q: contact.q,
            expires_at: match contact.expires_unix_micros {
                Contact::NEVER.. => Instant::NEVER,
                micros => self.time.instant(micros),
            },
            modified_at: self.time.instant(contact.modified_unix_micros),
            is_foreign: contact.is_foreign,
        }
    }

    /// The listener that a row names; if there is none any more, the first one of its transport, else the first.
    fn listener(&self, socket: &[u8]) -> u64 {
        let transport = |socket: &[u8]| socket.iter().position(|&byte| byte == b':').unwrap_or(0);
        let same = self.sockets.iter().position(|own| own.eq_ignore_ascii_case(socket));
        let like = || {
            let wanted = &socket[..transport(socket)];
            self.sockets.iter().position(|own| own[..transport(own)].eq_ignore_ascii_case(wanted))
        };
        same.or_else(like).unwrap_or(0) as u64
    }
}

/// A listener as Kamailio writes it in its tables: `udp:192.0.2.1:5060`, `tls:[2001:db8::1]:5061`.
fn socket_text(transport: Transport, address: SocketAddr) -> String {
    format!("{}:{address}", transport.as_str().unwrap_or("udp").to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::super::tests::rig;
    use super::*;
    use location::{Location as _, Policy, Register};
    use std::ops::ControlFlow;

    #[test]
    fn a_binding_comes_back_from_its_row() {
        let maker = rig::maker(&["location", "phones"]);
        let (from, to) = (rig::striped(), rig::striped());
        let now = maker.time.now();
        let update = Update {
            expires: Some(600),
            q: Some(700),
            received: b"sip:198.51.100.7:4444",
            path: b"<sip:p.example.com;lr>",
            instance: b"\"<urn:uuid:1>\"",
            user_agent: b"Phone/1.0",
            reg_id: 3,
            flow: 1,
            methods: 0b101,
            flags: 0x40,
            ..Update::new(b"sip:alice@192.0.2.7:5062", b"call@192.0.2.7", 17)
        };
        for aor in [&b"alice"[..], b"phones\0alice"] {
            let register = Register::Bind(std::slice::from_ref(&update));
            from.register(now, aor, &register, &Policy::default(), &mut |_| {}).unwrap();
            from.lookup(now, aor, &mut |binding| {
                let (stored, contact) = maker.row(binding);
                let mut key = Vec::new();
                assert!(maker.key(maker.table_name(stored.table), &contact, &mut key));
                assert_eq!(key, aor);
                to.restore(now, &key, &maker.kept(&contact)).unwrap();
                ControlFlow::Continue(())
            });
            let both = [&from, &to].map(|table| rig::bindings(table, now, aor));
            assert_eq!(both[0].len(), 1);
            assert_eq!(both[0], both[1]);
        }
    }

    #[test]
    fn a_listener_that_is_gone_is_replaced_by_one_like_it() {
        let maker = rig::maker(&["location"]);
        assert_eq!(maker.listener(b"udp:127.0.0.1:5060"), 0);
        assert_eq!(maker.listener(b"TCP:[::1]:5060"), 1);
        assert_eq!(maker.listener(b"tcp:192.0.2.1:5070"), 1, "the same transport");
        assert_eq!(maker.listener(b"tls:192.0.2.1:5061"), 0);
        for odd in [&b""[..], b":", b"udp", b"\xff:\xff"] {
            assert_eq!(maker.listener(odd), 0);
        }
    }

    #[test]
    fn a_table_that_no_script_names_is_the_first() {
        let maker = rig::maker(&["location", "phones"]);
        assert_eq!(maker.table_name(b"phones"), "phones");
        assert_eq!(maker.table_name(b"elsewhere"), "location");
    }
}
