use super::*;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};

const LISTEN: &str = "SIPSTONE_TEST_LISTEN";
const LONG: Duration = Duration::from_secs(30);

/// An address of this test run's own, with a port that the system gives to nobody by itself.
pub(in crate::sut) fn own_target() -> SocketAddr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let pid = std::process::id();
    let octet = |number: u32| u8::try_from(number % 250 + 1).unwrap();
    let ip = IpAddr::V4(Ipv4Addr::new(127, 83, octet(pid / 250), octet(pid)));
    SocketAddr::new(ip, 15_000 + u16::try_from(NEXT.fetch_add(1, Ordering::Relaxed)).unwrap())
}

/// A command whose process (the next function) listens there.
pub(in crate::sut) fn listener(target: SocketAddr) -> String {
    let exe = std::env::current_exe().unwrap();
    format!(
        "env {LISTEN}={target} '{}' --exact sut::exec::tests::acts_as_a_server --ignored --nocapture",
        exe.display()
    )
}

#[test]
#[ignore = "acts as the server that other tests start"]
fn acts_as_a_server() {
    let Ok(target) = std::env::var(LISTEN) else { return };
    let socket = UdpSocket::bind(&target).unwrap();
    println!("the server listens on {target}");
    socket.set_read_timeout(Some(LONG)).unwrap();
    let until = Instant::now() + LONG;
    // Each datagram is some work.
    while Instant::now() < until && socket.recv(&mut [0; 16]).is_ok() {
        std::hint::black_box((0..1_000_000_u64).map(std::hint::black_box).sum::<u64>());
    }
}

/// Removes the file that an error named, which is kept for the reader.
pub(in crate::sut) fn remove_log(error: &str) {
    let name = error.split(['\n', ' ', ':', ')']).find(|word| word.contains("/sipstone-server-"));
    fs::remove_file(name.unwrap_or_else(|| panic!("no file is named in: {error}"))).unwrap();
}

fn start(command: &str, target: SocketAddr, within: Duration) -> Result<Running, SutError> {
    Running::start(&Proc::system(), command, &[], target, within)
}

fn number_after(text: &str, word: &str) -> u32 {
    let rest = text.split(word).nth(1).unwrap_or_else(|| panic!("no `{word}` in: {text}"));
    rest.trim_start().split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
}

#[test]
fn a_server_that_listens_is_ready_and_ends_when_dropped() {
    let target = own_target();
    let running = start(&listener(target), target, LONG).unwrap();
    let proc = Proc::system();
    let who = proc.identity(running.pid()).expect("it runs");
    assert_eq!(udp::listening(target).and_then(|listener| listener.pid), Some(running.pid()));
    assert_eq!(proc.stat(running.pid()).unwrap().group, running.pid(), "a process group of its own");
    let log = running.log.path.clone();
    let scope = running.cgroup().map(|cgroup| cgroup.path().to_owned());
    assert!(log.exists());
    drop(running);
    assert!(!proc.lives(who));
    assert!(proc.stat(who.pid).is_err(), "it was waited for");
    assert!(!log.exists(), "no error named it");
    assert!(scope.is_none_or(|scope| !scope.exists()));
}

#[test]
fn a_server_in_a_scope_is_there_with_nobody_else() {
    let target = own_target();
    let running = start(&listener(target), target, LONG).unwrap();
    match (running.cgroup(), running.no_cgroup()) {
        (Some(cgroup), None) => assert_eq!(cgroup.pids().unwrap(), [running.pid()]),
        (None, Some(why)) => assert!(!why.is_empty()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_server_is_pinned_and_this_thread_is_not() {
    let before = cpus::allowed().unwrap();
    let cpu = *before.last().unwrap();
    let target = own_target();
    let running = Running::start(&Proc::system(), &listener(target), &[cpu], target, LONG).unwrap();
    assert_eq!(running.proc.cpus_allowed(running.pid()).unwrap(), cpu.to_string());
    assert_eq!(cpus::allowed().unwrap(), before);
}

#[test]
fn cpus_that_do_not_exist_are_an_error_before_anything_runs() {
    let error = Running::start(&Proc::system(), "sleep 30", &[1023], own_target(), LONG).unwrap_err().0;
    assert!(error.contains("1023") && error.contains("--sut-cpu"), "{error}");
}

#[test]
fn a_program_that_does_not_exist_is_named() {
    let error = start("/nonexistent/server -x", own_target(), LONG).unwrap_err().0;
    assert!(error.contains("`/nonexistent/server`") && error.contains("no such program"), "{error}");
}

#[test]
fn a_command_that_cannot_be_split_is_refused() {
    let error = start("server 'x", own_target(), LONG).unwrap_err().0;
    assert!(error.contains("a ' is not closed"), "{error}");
}

#[test]
fn a_server_that_stops_at_once_is_quoted() {
    let command = "sh -c 'echo first; echo cannot bind >&2; printf \"\\033[31mred\"; exit 7'";
    let error = start(command, own_target(), LONG).unwrap_err().0;
    assert!(error.contains("exit status 7"), "{error}");
    assert!(error.contains("\n  first\n  cannot bind\n  [31mred"), "{error}");
    remove_log(&error);
}

#[test]
fn a_server_that_says_nothing_is_told_so() {
    let error = start("false", own_target(), LONG).unwrap_err().0;
    assert!(error.contains("exit status 1") && error.contains("wrote nothing"), "{error}");
    assert!(error.contains("foreground"), "{error}");
    remove_log(&error);
}

#[test]
fn a_port_that_is_taken_is_found_before_the_start() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let error = start("sleep 30", socket.local_addr().unwrap(), LONG).unwrap_err().0;
    assert!(
        error.contains("listens on UDP") && error.contains(&format!("pid {}", std::process::id())),
        "{error}"
    );
}

#[test]
fn one_that_never_listens_and_will_not_end_is_killed_with_its_children() {
    // It says its numbers only when SIGTERM is ignored already; the child has left the process group.
    let command =
        "sh -c 'trap \"\" TERM; setsid sleep 60 & echo child $! parent $$; while :; do sleep 1; done'";
    let begun = Instant::now();
    let error = start(command, own_target(), Duration::from_secs(2)).unwrap_err().0;
    assert!(error.contains("does not listen") && error.contains("after 2s"), "{error}");
    assert!(begun.elapsed() >= Duration::from_secs(2) + TERM_WITHIN, "SIGTERM comes first");
    let proc = Proc::system();
    for word in ["child", "parent"] {
        let pid = number_after(&error, word);
        assert!(proc.identity(pid).is_none(), "{word} {pid} still runs");
    }
    remove_log(&error);
}

#[test]
fn without_a_scope_a_child_that_left_the_group_is_ended_too() {
    let log = Log::create().unwrap();
    let words = words::split("sh -c 'setsid sleep 60 & wait'").unwrap();
    let mut running = Running::new(Proc::system(), spawn(&words, &[], &log).unwrap(), log);
    let until = Instant::now() + LONG;
    let child = loop {
        let found = tree::descendants(&running.proc, running.pid());
        let outside = |who: &&Identity| running.proc.stat(who.pid).is_ok_and(|stat| stat.group == who.pid);
        if let Some(child) = found.iter().find(outside) {
            break *child;
        }
        assert!(Instant::now() < until, "no child left the group");
        std::thread::sleep(POLL);
    };
    running.stop().unwrap();
    assert!(!running.proc.lives(child));
    running.stop().expect("the second time it does nothing");
}

#[test]
fn a_number_that_is_not_our_childs_is_never_signalled() {
    assert!(!is_reserved(Pid::from_raw(1)));
    let mut child = Command::new("true").spawn().unwrap();
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
    assert!(is_reserved(pid), "it runs, or waits to be waited for");
    child.wait().unwrap();
    assert!(!is_reserved(pid));
    assert_eq!(ending(pid).unwrap(), "nobody knows how");
}

#[test]
fn the_end_of_the_output_is_quoted_within_limits() {
    let log = Log::create().unwrap();
    assert!(log.last_lines().is_empty());
    let long = "x".repeat(5000);
    fs::write(&log.path, format!("{long}\nb\n\n  \nc\nd\ne\nf\u{7}{long}\n")).unwrap();
    let lines = log.last_lines();
    assert_eq!(lines[..4], ["b", "c", "d", "e"]);
    assert_eq!((lines.len(), lines[4].len()), (QUOTED_LINES, QUOTED_CHARS));
    fs::write(&log.path, [0xff, b'\n', 0xfe]).unwrap();
    assert_eq!(log.last_lines().len(), 2, "bytes that are no text do no harm");
    fs::remove_file(&log.path).unwrap();
    assert!(log.last_lines().is_empty());
}
