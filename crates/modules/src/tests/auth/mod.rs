//! Digest authentication, end to end: challenges, credentials, users from a database on virtual time (RFC 3261 §22).

mod challenges;
mod credentials;
mod embedded;
mod flow;
mod slowed;
mod storage;
mod variables;

use super::*;
use crate::auth::{Guard, NonceWindow};
use crate::{Addresses, Domains, Services};
use ::core::sync::atomic::{AtomicU64, Ordering};
use alloc::boxed::Box;
use engine::{Ask, Rows, Select};
use sip::digest::Algorithm;
#[expect(clippy::disallowed_types, reason = "the server's part, which has locks")]
use std::sync::Mutex;

/// The modules of authentication.
const AUTH: &str = "loadmodule \"auth.so\"\nloadmodule \"auth_db.so\"\n";
/// The realm of all tests.
const REALM: &str = "127.0.0.1";
/// Alice's password.
const SECRET: &str = "open sesame";

/// What the shards of a server share.
#[expect(clippy::disallowed_types, reason = "the server's part, which has locks")]
struct Shared {
    nonces: Mutex<NonceWindow>,
    guard: Mutex<Guard>,
    epoch: AtomicU64,
}

#[expect(clippy::disallowed_types, reason = "the server's part, which has locks")]
impl Shared {
    fn new() -> Arc<Shared> {
        Arc::new(Shared {
            nonces: Mutex::new(NonceWindow::new(64)),
            guard: Mutex::new(Guard::new(256)),
            epoch: AtomicU64::new(0),
        })
    }
}

impl Services for Shared {
    fn with_nonces(&self, _hash: u64, visit: &mut dyn FnMut(&mut NonceWindow)) {
        visit(&mut self.nonces.lock().unwrap());
    }

    fn with_guard(&self, _hash: u64, visit: &mut dyn FnMut(&mut Guard)) {
        visit(&mut self.guard.lock().unwrap());
    }

    fn users_epoch(&self) -> u64 {
        self.epoch.load(Ordering::Relaxed)
    }

    fn domains(&self) -> Arc<Domains> {
        Arc::default()
    }

    fn addresses(&self) -> Arc<Addresses> {
        Arc::default()
    }
}

/// A server with this configuration behind `LOAD` and `AUTH`.
fn server(text: &str) -> Rig {
    server_with(text, &Shared::new())
}

fn server_with(text: &str, shared: &Arc<Shared>) -> Rig {
    server_at(text, shared, &[])
}

/// At these addresses; at one of the loopback's if there are none.
fn server_at(text: &str, shared: &Arc<Shared>, addresses: &[&str]) -> Rig {
    let listener = |address: &&str| engine::Listener {
        transport: Transport::Udp,
        address: address.parse().unwrap(),
        advertise: None,
    };
    let listeners = addresses.iter().map(listener).collect();
    let environment =
        Environment { services: shared.clone(), nonce_key: [7; 32], listeners, ..Environment::default() };
    let mut rig = Rig::with(&format!("{LOAD}{AUTH}{text}"), &[], environment);
    rig.no_users = false;
    rig
}

/// A registrar and proxy that authenticates by `auth_db`.
const ROUTE: &str = r#"
request_route {
    if (is_method("REGISTER")) {
        $var(rc) = 0;
        if (!www_authorize("127.0.0.1", "subscriber")) {
            $var(rc) = $rc;
            xlog("code $var(rc)\n");
            www_challenge("127.0.0.1", "1");
            exit;
        }
        save("location");
        exit;
    }
    if (!proxy_authorize("127.0.0.1", "subscriber")) {
        xlog("code $rc\n");
        proxy_challenge("127.0.0.1", "1");
        exit;
    }
    consume_credentials();
    $du = "sip:127.0.0.1:5062";
    t_relay();
}
"#;

/// The same with parameters.
fn registrar(parameters: &str) -> Rig {
    server(&format!("{parameters}\n{ROUTE}"))
}

fn register(cseq: u32) -> Request {
    let contact = format!("Contact: <sip:alice@{ALICE}>");
    Request::new("REGISTER", "sip:127.0.0.1", ALICE).to("<sip:alice@127.0.0.1>").cseq(cseq).line(&contact)
}

/// A phone's answer to a challenge.
#[derive(Clone)]
struct Phone {
    user: String,
    password: String,
    realm: String,
    nonce: String,
    algorithm: Algorithm,
    qop: bool,
    count: u32,
    uri: String,
    method: String,
}

impl Phone {
    /// Alice's, answering a challenge for a REGISTER.
    fn alice(challenge: &str) -> Phone {
        let algorithm = piece(challenge, "algorithm").unwrap_or_else(|| "MD5".into());
        Phone {
            user: "alice".into(),
            password: SECRET.into(),
            realm: piece(challenge, "realm").expect("a realm"),
            nonce: piece(challenge, "nonce").expect("a nonce"),
            algorithm: Algorithm::parse(algorithm.as_bytes()).expect("an algorithm").0,
            qop: piece(challenge, "qop").is_some(),
            count: 1,
            uri: "sip:127.0.0.1".into(),
            method: "REGISTER".into(),
        }
    }

    /// The value of the header field (RFC 7616 §3.4), computed as the RFC says it.
    fn value(&self) -> String {
        let hash = |parts: &[&str]| {
            let parts: Vec<&[u8]> = parts.iter().map(|part| part.as_bytes()).collect();
            String::from_utf8(self.algorithm.hash_joined(&parts).as_bytes().to_vec()).unwrap()
        };
        let a1 = hash(&[&self.user, &self.realm, &self.password]);
        let a2 = hash(&[&self.method, &self.uri]);
        let count = format!("{:08x}", self.count);
        let (response, qop) = if self.qop {
            let response = hash(&[&a1, &self.nonce, &count, "0a4f113b", "auth", &a2]);
            (response, format!(", qop=auth, nc={count}, cnonce=\"0a4f113b\""))
        } else {
            (hash(&[&a1, &self.nonce, &a2]), String::new())
        };
        let Phone { user, realm, nonce, uri, .. } = self;
        format!(
            "Digest username=\"{user}\", realm=\"{realm}\", nonce=\"{nonce}\", uri=\"{uri}\", response=\"{response}\", algorithm={}{qop}",
            self.algorithm.name()
        )
    }

    fn line(&self) -> String {
        format!("Authorization: {}", self.value())
    }
}

/// A parameter of a challenge, without its quotes.
fn piece(challenge: &str, name: &str) -> Option<String> {
    let rest = challenge.strip_prefix("Digest ")?;
    rest.split(", ").find_map(|part| {
        let (key, value) = part.split_once('=')?;
        (key == name).then(|| value.trim_matches('"').to_string())
    })
}

/// H(A1) of Alice in hexadecimal.
fn ha1(algorithm: Algorithm, user: &str, password: &str) -> String {
    let hash = algorithm.hash_joined(&[user.as_bytes(), REALM.as_bytes(), password.as_bytes()]);
    String::from_utf8(hash.as_bytes().to_vec()).unwrap()
}

/// A row of the table.
fn row(values: &[Option<&str>]) -> Rows {
    Rows(alloc::vec![values.iter().map(|value| value.map(|text| Box::from(text.as_bytes()))).collect()])
}

/// Alice's row: `ha1` and `ha1b`.
fn alices_row(password: &str) -> Rows {
    let (plain, with_domain) =
        (ha1(Algorithm::Md5, "alice", password), ha1(Algorithm::Md5, "alice@127.0.0.1", password));
    row(&[Some(&plain), Some(&with_domain), Some("alice")])
}

impl Rig {
    /// The challenge that a REGISTER gets.
    fn challenge(&mut self) -> String {
        let reply = self.one(ALICE, &register(1).text());
        assert_eq!(reply.first(), "SIP/2.0 401 Unauthorized", "{reply:?}");
        reply.header("WWW-Authenticate").unwrap().to_string()
    }

    /// The question that waits.
    fn select(&self) -> &Select {
        match &self.question {
            Some(Ask::Select(select)) => select,
            other => panic!("{other:?}"),
        }
    }

    /// The answer to the last question, and the final reply that comes of it.
    fn rows(&mut self, rows: &Rows) -> Sent {
        let mut sent = self.answer(Answer::Rows(rows));
        assert_eq!(sent.len(), 1, "{sent:#?}");
        sent.pop().unwrap()
    }

    /// Alice is registered, and so remembered.
    fn remember_alice(&mut self) -> Phone {
        let phone = Phone::alice(&self.challenge());
        assert!(self.send(ALICE, &register(2).line(&phone.line()).text()).is_empty());
        let reply = self.rows(&alices_row(SECRET));
        assert_eq!(reply.first(), "SIP/2.0 200 OK", "{reply:?}");
        phone
    }
}
