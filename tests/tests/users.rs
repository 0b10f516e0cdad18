//! Phones that others wrote, as they come from Debian, with passwords: each of them registers and calls at a server that
//! was started without a file.

use std::time::Duration;

use end_to_end::{
    Baresip, House, Linphone, PATIENCE, Server, Sipp, Sql, Start, only_strowger, sipsak, strowger,
};

/// The embedded configuration, with users who were added as the guide says.
fn server_with(users: &[&str]) -> Server {
    let server = Start::configuration("default").embedded().spawn();
    for user in users {
        let added = strowger(
            server.state(),
            &["user", "add", user, "--password-stdin"],
            &format!("{}\n", password(user)),
        );
        assert!(added.status.success(), "{added:?}");
    }
    // They are asked for from now on.
    let probe = end_to_end::Phone::new(&server, users[0]);
    let deadline = std::time::Instant::now() + 3 * PATIENCE;
    loop {
        let request = probe.register_request();
        probe.send(&request);
        let answer = end_to_end::final_answer(&probe, &request);
        if answer.status() == Some(401) {
            return server;
        }
        assert!(std::time::Instant::now() < deadline, "users exist:\n{answer}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn password(user: &str) -> String {
    format!("secret-of-{user}")
}

#[test]
fn two_baresips_talk_to_each_other() {
    only_strowger!("the configuration is ours");
    let server = server_with(&["alice", "bob"]);
    let bob = Baresip::with_password(&server, "bob", &password("bob"));
    let alice = Baresip::with_password(&server, "alice", &password("alice"));
    for phone in [&bob, &alice] {
        phone.expect("200 OK");
    }
    alice.command("dial", &server.uri("bob"));
    for phone in [&alice, &bob] {
        phone.expect("Call established");
    }
    bob.command("hangup", "");
    alice.expect("session closed");
}

#[test]
fn linphone_talks_to_baresip() {
    only_strowger!("the configuration is ours");
    let server = server_with(&["alice", "bob"]);
    let mut alice = Linphone::with_password(&server, "alice", &password("alice"));
    let bob = Baresip::with_password(&server, "bob", &password("bob"));
    bob.expect("200 OK");
    alice.expect_registered();
    alice.command(&format!("call {}", server.uri("bob")));
    bob.expect("Call established");
    alice.expect("connected.");
    alice.command("terminate");
    bob.expect("session closed");
}

#[test]
fn sipsak_registers() {
    only_strowger!("the configuration is ours");
    let server = server_with(&["bob"]);
    let register = |password: &str| {
        let uri = server.uri("bob");
        let contact = "sip:bob@127.0.0.1:5099";
        sipsak(&["-U", "-C", contact, "-x", "300", "-u", "bob", "-a", password, "-s", &uri]).status.success()
    };
    assert!(!register("a guess"));
    assert!(register(&password("bob")));
}

#[test]
fn sipp_registers_and_calls() {
    only_strowger!("the configuration is ours");
    let server = server_with(&["alice", "bob"]);
    let account = |user: &str| ["-au".to_owned(), user.to_owned(), "-ap".to_owned(), password(user)];
    let callee = Sipp::new("callee", 20, &server).user("bob");
    let listens = callee.address().ip();
    let contact = callee.address().to_string();
    let callee = callee.key("contact", &contact);
    let bob = account("bob");
    let at = |address: std::net::IpAddr| match address {
        std::net::IpAddr::V4(address) => address,
        std::net::IpAddr::V6(_) => unreachable!("invariant: SIPp has an IPv4 address"),
    };
    Sipp::at(at(listens), "register_digest", 1, &server)
        .user("bob")
        .arguments(bob.each_ref().map(String::as_str))
        .run();
    let callee = callee.spawn();
    let alice = account("alice");
    Sipp::new("caller_digest", 20, &server)
        .user("bob")
        .key("caller", "alice")
        // Left alone it writes the server's address without the user, which is not what it calls.
        .arguments(["-auth_uri", &format!("bob@{}", server.address().ip())])
        .arguments(alice.each_ref().map(String::as_str))
        .run();
    callee.finish();
    Sipp::new("register_refused", 1, &server).user("bob").arguments(["-au", "bob", "-ap", "a guess"]).run();
}

#[test]
fn a_wrong_password_registers_no_phone() {
    only_strowger!("the configuration is ours");
    let server = server_with(&["alice", "bob"]);
    let bob = Baresip::with_password(&server, "bob", "a guess");
    let mut alice = Linphone::with_password(&server, "alice", "a guess");
    // It tries until it is slowed down, and says then that it is not registered.
    bob.expect("reg: sip:bob@");
    alice.expect_not_registered(Duration::from_secs(5));
    for user in ["alice", "bob"] {
        let shown = strowger(
            server.state(),
            &["contacts", "show", &format!("{user}@{}", server.address().ip()), "--json"],
            "",
        );
        let said = String::from_utf8_lossy(&shown.stdout).into_owned();
        assert!(!said.contains("sip:"), "{user} is registered: {said}");
    }
}

/// The one phone among them that speaks it.
#[test]
fn linphone_speaks_sha_256() {
    only_strowger!("the database is ours");
    let house = House::new(Sql::Sqlite, "1").define("WITH_AUTH", "").define("ALGORITHM", "\"SHA-256\"");
    let server = house.start().spawn();
    house.add_user("alice", &password("alice"));
    Linphone::with_password(&server, "alice", &password("alice")).expect_registered();
}

/// What was measured decides what the embedded configuration asks for: MD5 first lets these phones in, and who can do
/// better may.
#[test]
fn the_phones_that_look_at_the_first_challenge_cope_with_three() {
    only_strowger!("the database is ours");
    let house = House::new(Sql::Sqlite, "1").define("WITH_AUTH", "");
    let house = house.define("ALGORITHM", "\"MD5,SHA-256,SHA-512-256\"");
    let server = house.start().spawn();
    house.add_user("alice", &password("alice"));
    Linphone::with_password(&server, "alice", &password("alice")).expect_registered();
    let (uri, secret) = (server.uri("alice"), password("alice"));
    let contact = "sip:alice@127.0.0.1:5099";
    let output = sipsak(&["-U", "-C", contact, "-x", "300", "-u", "alice", "-a", &secret, "-s", &uri]);
    assert!(output.status.success(), "{output:?}");
    Sipp::new("register_digest", 1, &server).user("alice").arguments(["-au", "alice", "-ap", &secret]).run();
}
