use super::exec::tests::{listener, own_target, remove_log};
use super::*;
use std::process::{Child, Command};

const LONG: Duration = Duration::from_secs(30);

/// A process that sleeps already: one that is only about to become `sleep` has other descriptors, and tells less.
fn sleeper() -> Child {
    let child = Command::new("sleep").arg("60").spawn().unwrap();
    let stat = format!("/proc/{}/stat", child.id());
    let begun = Instant::now();
    while !std::fs::read_to_string(&stat).unwrap().contains("(sleep) S") {
        assert!(begun.elapsed() < LONG, "it does not begin to sleep");
        std::thread::sleep(Duration::from_millis(1));
    }
    child
}

fn end(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

fn exec(target: SocketAddr) -> Watch {
    Watch::Exec { command: listener(target), cpus: Vec::new(), ready_within: LONG }
}

#[test]
fn a_process_that_runs_is_looked_at() {
    let child = sleeper();
    let mut server = Server::start(&Watch::Pid(child.id()), own_target()).unwrap();
    let sample = server.sample().unwrap();
    assert!(sample.resident_bytes > 0 && sample.threads == 1, "{sample:?}");
    assert!(sample.descriptors.is_some_and(|count| count >= 3), "{sample:?}");
    assert!(sample.context_switches.is_some_and(|count| count >= 1), "{sample:?}");
    assert_eq!(sample.udp_drops, None, "it has no socket on the port");
    let next = server.sample().unwrap();
    assert!(next.at > sample.at && next.cpu_us >= sample.cpu_us && next.cpu_user_us >= sample.cpu_user_us);
    let facts = server.facts();
    assert_eq!((facts.method.as_str(), facts.pid, facts.command), ("process tree", Some(child.id()), None));
    assert!(!server.is_ours() && server.remark().is_none());
    let error = server.restart().unwrap_err().0;
    assert!(error.contains("--sut-exec"), "{error}");
    drop(server);
    assert!(Proc::system().identity(child.id()).is_some(), "one that was only found is left alone");
    end(child);
}

#[test]
fn a_process_that_ends_is_an_error() {
    let child = sleeper();
    let pid = child.id();
    let mut server = Server::start(&Watch::Pid(pid), own_target()).unwrap();
    end(child);
    let error = server.sample().unwrap_err().0;
    assert!(error.contains(&pid.to_string()) && error.contains("has ended"), "{error}");
}

#[test]
fn a_process_that_does_not_exist_is_an_error_with_advice() {
    let error = Server::start(&Watch::Pid(u32::MAX), own_target()).unwrap_err().0;
    assert!(error.contains("no process 4294967295") && error.contains("pgrep"), "{error}");
}

#[test]
fn a_cgroup_that_does_not_exist_is_an_error_with_advice() {
    for path in ["/nonexistent/group", "nonexistent.slice"] {
        let error = Server::start(&Watch::Cgroup(path.into()), own_target()).unwrap_err().0;
        assert!(error.contains("cgroup v2") && error.contains("pid"), "{error}");
    }
}

#[test]
fn a_cgroup_is_watched_while_it_has_processes() {
    let root = fake::directory();
    std::fs::write(root.join("cpu.stat"), "usage_usec 700\nuser_usec 300\nsystem_usec 400\n").unwrap();
    std::fs::write(root.join("cgroup.procs"), "").unwrap();
    let watch = Watch::Cgroup(root.clone());
    let error = Server::start(&watch, own_target()).unwrap_err().0;
    assert!(error.contains("No process"), "{error}");
    std::fs::write(root.join("cgroup.procs"), std::process::id().to_string()).unwrap();
    let mut server = Server::start(&watch, own_target()).unwrap();
    let sample = server.sample().unwrap();
    assert_eq!((sample.cpu_us, sample.cpu_user_us), (700, Some(300)));
    assert!(sample.resident_bytes > 0 && sample.threads >= 1);
    assert_eq!((server.facts().method.as_str(), server.facts().pid), ("cgroup", None));
    std::fs::remove_dir_all(&root).unwrap();
    let error = server.sample().unwrap_err().0;
    assert!(error.contains("is gone"), "{error}");
}

#[test]
fn a_started_server_is_watched_and_ended() {
    let target = own_target();
    let mut server = Server::start(&exec(target), target).unwrap();
    let facts = server.facts();
    let pid = facts.pid.expect("sipstone knows whom it started");
    let sample = server.sample().unwrap();
    assert_eq!(sample.udp_drops, Some(0), "its socket was found");
    assert!(sample.threads >= 1 && sample.resident_bytes > 0, "{sample:?}");
    assert!(server.is_ours() && facts.same_host && facts.command.is_some());
    assert_eq!(facts.method == "process tree", server.remark().is_some(), "what is not the best is remarked");
    assert_eq!(listening(target).and_then(|listener| listener.pid), Some(pid));
    drop(server);
    assert_eq!(listening(target), None);
}

#[test]
fn cpu_time_that_a_started_server_uses_is_seen() {
    let target = own_target();
    let mut server = Server::start(&exec(target), target).unwrap();
    let before = server.sample().unwrap();
    let sender = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let until = Instant::now() + LONG;
    loop {
        sender.send_to(b"work", target).unwrap();
        let sample = server.sample().unwrap();
        if sample.cpu_us > before.cpu_us + 10_000 && sample.cpu_user_us > before.cpu_user_us {
            break;
        }
        assert!(Instant::now() < until, "{before:?} {sample:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_restarted_server_is_another_process_on_the_same_port() {
    let target = own_target();
    let mut server = Server::start(&exec(target), target).unwrap();
    let first = server.facts().pid;
    server.sample().unwrap();
    server.restart().unwrap();
    assert_ne!(server.facts().pid, first);
    assert_eq!(listening(target).and_then(|listener| listener.pid), server.facts().pid);
    server.sample().unwrap();
}

#[test]
fn a_started_server_that_dies_is_an_error_with_its_end_and_last_lines() {
    let target = own_target();
    let mut server = Server::start(&exec(target), target).unwrap();
    server.sample().unwrap();
    let pid = i32::try_from(server.facts().pid.unwrap()).unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL).unwrap();
    let until = Instant::now() + LONG;
    let error = loop {
        match server.sample() {
            Err(SutError(error)) => break error,
            Ok(_) => assert!(Instant::now() < until, "it was killed"),
        }
    };
    assert!(error.contains("SIGKILL") && error.contains(&format!("listens on {target}")), "{error}");
    remove_log(&error);
    server.restart().expect("it can be started anew");
    server.sample().unwrap();
}
