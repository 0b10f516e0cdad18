//! The control socket, and what is said to it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant as SystemClock};

use location::{Location as _, Policy, Register, Update};
use modules::Services as _;
use serde_json::{Value, json};

use super::*;
use crate::clock::Time;
use crate::databases::Databases;
use crate::persistence::tests::rig;
use crate::reload::Reload;
use crate::services::Shared;
use crate::state::tests::Scratch;
use crate::striped::Striped;

struct Server {
    scratch: Scratch,
    location: Striped,
    shared: Arc<Shared>,
    time: Time,
    _listening: Listening,
}

/// Nothing is to be read.
fn reload(shared: &Arc<Shared>) -> Reload {
    Reload {
        settings: crate::configuration::load(None, &[]).unwrap().settings,
        shared: shared.clone(),
        databases: Arc::new(Databases::default()),
        tls: None,
    }
}

fn server() -> Server {
    let (scratch, location) = (Scratch::new(), rig::striped());
    let (shared, time) = (Arc::new(Shared::new(64, 64)), Time::start());
    let methods = Methods {
        location: location.clone(),
        settings: crate::configuration::load(None, &[]).unwrap().settings,
        shared: shared.clone(),
        reload: reload(&shared),
        persister: None,
        listeners: Vec::new(),
        time,
    };
    let listening = listen(&scratch.0, methods).unwrap();
    Server { scratch, location, shared, time, _listening: listening }
}

impl Server {
    fn bind(&self, user: &str, contact: &str) {
        let update = Update { expires: Some(600), ..Update::new(contact.as_bytes(), b"call", 1) };
        let register = Register::Bind(std::slice::from_ref(&update));
        self.location
            .register(self.time.now(), user.as_bytes(), &register, &Policy::default(), &mut |_| {})
            .unwrap();
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(state::socket(&self.scratch.0)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    fn call(&self, method: &str, params: Value) -> Result<Value, String> {
        call(&state::socket(&self.scratch.0), method, &params).map_err(|error| match error {
            CallError::NoServer => "nobody".to_owned(),
            CallError::Failed(why) => why,
        })
    }

    /// The answer to one line, as it is.
    fn say(&self, line: &[u8]) -> Value {
        let mut stream = self.connect();
        stream.write_all(line).unwrap();
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).unwrap();
        serde_json::from_str(&answer).unwrap()
    }
}

#[test]
fn the_socket_is_its_owners_alone_and_goes_with_the_server() {
    let server = server();
    let path = state::socket(&server.scratch.0);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let Server { scratch, _listening, .. } = server;
    drop(_listening);
    assert!(!path.exists());
    assert!(matches!(call(&path, "version", &json!({})), Err(CallError::NoServer)));
    drop(scratch);
}

#[test]
fn a_second_server_has_no_socket_there_and_says_why() {
    let first = server();
    let methods = Methods {
        location: rig::striped(),
        settings: crate::configuration::load(None, &[]).unwrap().settings,
        shared: first.shared.clone(),
        reload: reload(&first.shared),
        persister: None,
        listeners: Vec::new(),
        time: first.time,
    };
    let said = listen(&first.scratch.0, methods).unwrap_err();
    assert!(said.contains("another server"), "{said}");
    assert!(first.call("version", json!({})).is_ok(), "the first one's is still there");
    let nowhere = Path::new("/proc/nowhere");
    assert!(!nowhere.exists());
}

#[test]
fn contacts_are_listed_page_by_page_in_order() {
    let server = server();
    for user in (0..250).rev() {
        server.bind(&format!("user{user:03}"), "sip:phone@192.0.2.1");
    }
    let (mut seen, mut after) = (Vec::new(), Value::Null);
    loop {
        let page = server.call("contacts.list", json!({ "after": after, "limit": 100 })).unwrap();
        for contact in page["contacts"].as_array().unwrap() {
            seen.push(contact["aor"].as_str().unwrap().to_owned());
        }
        after = page["next"].clone();
        if after.is_null() {
            break;
        }
    }
    let expected: Vec<String> = (0..250).map(|user| format!("user{user:03}")).collect();
    assert_eq!(seen, expected);
}

#[test]
fn contacts_are_shown_and_removed() {
    let server = server();
    server.bind("alice", "sip:one@192.0.2.1");
    server.bind("alice", "sip:two@192.0.2.1");
    let shown = server.call("contacts.show", json!({ "aor": "Alice@example.com" })).unwrap();
    assert_eq!(shown["contacts"].as_array().map(Vec::len), Some(2));
    let rm = |params| server.call("contacts.rm", params).unwrap()["removed"].as_u64();
    assert_eq!(rm(json!({ "aor": "sip:alice@example.com", "contact": "sip:one@192.0.2.1" })), Some(1));
    assert_eq!(rm(json!({ "aor": "alice" })), Some(1));
    assert_eq!(rm(json!({ "aor": "alice" })), Some(0));
}

#[test]
fn changed_users_are_a_new_epoch() {
    let server = server();
    let before = server.shared.users_epoch();
    server.call("users.changed", json!({})).unwrap();
    assert!(server.shared.users_epoch() > before);
    assert_eq!(server.call("reload", json!({})).unwrap(), json!({ "read": [] }));
}

/// A server that has groups of addresses from a file, and domains from a table.
fn reloading() -> (Scratch, Arc<Shared>, Listening) {
    let scratch = Scratch::new();
    let file = scratch.0.join("own.cfg");
    let text = "loadmodule \"sl.so\"\nloadmodule \"permissions.so\"\nloadmodule \"domain.so\"\n\
                modparam(\"permissions\", \"address_file\", \"address.list\")\n\
                modparam(\"domain\", \"db_url\", \"sqlite:\")\nrequest_route { exit; }\n";
    fs::write(&file, text).unwrap();
    let settings = crate::configuration::load(Some(&file), &[]).unwrap().settings;
    let shared = Arc::new(Shared::new(64, 64));
    let databases = Arc::new(Databases::open(&settings, &scratch.0, &scratch.0).unwrap());
    let methods = Methods {
        location: rig::striped(),
        settings: settings.clone(),
        shared: shared.clone(),
        reload: Reload { settings, shared: shared.clone(), databases, tls: None },
        persister: None,
        listeners: Vec::new(),
        time: Time::start(),
    };
    let listening = listen(&scratch.0, methods).unwrap();
    (scratch, shared, listening)
}

#[test]
fn what_is_read_again_is_said_and_what_cannot_be_changes_nothing() {
    let (scratch, shared, listening) = reloading();
    let list = scratch.0.join("address.list");
    let reload = || {
        call(&state::socket(&scratch.0), "reload", &json!({})).map_err(|error| match error {
            CallError::NoServer => "nobody".to_owned(),
            CallError::Failed(why) => why,
        })
    };
    fs::write(&list, "1 192.0.2.1\n1 192.0.2.2\n").unwrap();
    let domains = json!({ "what": "domains", "from": ["domain", "domain_attrs"], "count": 0 });
    let addresses = json!({ "what": "addresses", "from": ["address.list"], "count": 2 });
    assert_eq!(reload().unwrap(), json!({ "read": [domains, addresses] }));
    assert_eq!(shared.addresses().len(), 2);
    fs::write(&list, "nonsense\n").unwrap();
    let said = reload().unwrap_err();
    assert!(said.contains("stay as they are") && said.contains("read again: domains"), "{said}");
    assert_eq!(shared.addresses().len(), 2, "what was in use stays");
    drop(listening);
    assert_eq!(reload().unwrap_err(), "nobody");
}

#[test]
fn garbage_is_answered_with_what_is_wrong_with_it() {
    let server = server();
    let cases: [(&[u8], i64); 9] = [
        (b"hello\n", PARSE_ERROR),
        (b"\xff\xfe\x00\n", PARSE_ERROR),
        (b"{\n", PARSE_ERROR),
        (b"[]\n", INVALID_REQUEST),
        (b"{\"id\":1,\"method\":\"version\"}\n", INVALID_REQUEST),
        (b"{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"version\"}\n", INVALID_REQUEST),
        (b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"stop\"}\n", NO_SUCH_METHOD),
        (b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"version\",\"params\":[1]}\n", INVALID_PARAMS),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"contacts.list\",\"params\":{\"limit\":0}}\n",
            INVALID_PARAMS,
        ),
    ];
    for (line, code) in cases {
        assert_eq!(server.say(line)["error"]["code"], code, "{}", String::from_utf8_lossy(line));
    }
    for params in [json!({}), json!({ "aor": 7 }), json!({ "aor": "a b" }), json!({ "aor": "" })] {
        assert!(server.call("contacts.show", params.clone()).is_err(), "{params}");
    }
    assert!(server.call("contacts.list", json!({ "after": "xyz" })).is_err());
}

#[test]
fn a_notification_has_no_answer_and_a_line_may_come_in_pieces() {
    let server = server();
    let mut stream = server.connect();
    stream.write_all(b"{\"jsonrpc\":\"2.0\",\"method\":\"users.changed\"}\n\n{\"jsonrpc\":\"2.0\",").unwrap();
    stream.write_all(b"\"id\":\"x\",\"method\":\"version\"}\n").unwrap();
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).unwrap();
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!((&answer["id"], &answer["result"]["name"]), (&json!("x"), &json!("strowger")));
}

#[test]
fn an_endless_line_ends_the_connection() {
    let server = server();
    let mut stream = server.connect();
    let piece = vec![b'x'; 4_096];
    // The other side stops reading at its limit; what is written past it may fail.
    for _ in 0..64 {
        if stream.write_all(&piece).is_err() {
            break;
        }
    }
    let mut answer = Vec::new();
    let _ = BufReader::new(stream).take(4_096).read_until(b'\n', &mut answer);
    if let Ok(answer) = serde_json::from_slice::<Value>(&answer) {
        assert_eq!(answer["error"]["code"], INVALID_REQUEST);
    }
    assert!(server.call("version", json!({})).is_ok(), "others are served");
}

#[test]
fn too_many_connections_are_told_so() {
    let server = server();
    let held: Vec<UnixStream> = (0..CONNECTIONS_MAX).map(|_| server.connect()).collect();
    let begin = SystemClock::now();
    let said = loop {
        let mut answer = String::new();
        let stream = server.connect();
        let _ = BufReader::new(stream).read_line(&mut answer);
        if answer.contains("connections are open") || begin.elapsed() > Duration::from_secs(20) {
            break answer;
        }
    };
    assert!(said.contains("try again"), "{said}");
    drop(held);
    let begin = SystemClock::now();
    while server.call("version", json!({})).is_err() {
        assert!(begin.elapsed() < Duration::from_secs(20), "closed connections make room");
    }
}
