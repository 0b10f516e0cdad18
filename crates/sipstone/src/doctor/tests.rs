//! Each judgement on made-up hosts, the whole on this one, and the target's part against servers of the test's own.

use super::host::*;
use super::measure::*;
use super::target::*;
use super::*;
use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::thread;
use std::time::Instant;

/// Little time for what is measured here; the target gets enough for a busy machine.
fn plan() -> Plan {
    Plan {
        loopback_for: Duration::from_millis(20),
        sleeps: 10,
        answer_within: Duration::from_secs(5),
        ..Plan::default()
    }
}

fn advice(finding: &Finding) -> &str {
    finding.advice.as_deref().unwrap_or("")
}

#[test]
fn a_limit_of_open_files_that_is_too_low_comes_with_the_command() {
    assert_eq!(judge_open_files(1024, 4096, 100).state, State::Good);
    let soft = judge_open_files(1024, 4096, 2000);
    assert_eq!((soft.state, advice(&soft)), (State::Bad, "ulimit -n 2000"));
    let hard = judge_open_files(1024, 1024, 2000);
    assert_eq!((hard.state, advice(&hard)), (State::Bad, "as root: prlimit --pid $$ --nofile=2000:2000"));
}

#[test]
fn processors_are_judged_by_what_the_threads_need() {
    assert_eq!(judge_processors(4, 4, &[0, 1, 2, 3], 2).state, State::Good);
    assert_eq!(judge_processors(1, 1, &[0], 1).state, State::Warn);
    let few = judge_processors(16, 3, &[0, 1, 2, 3, 8], 4);
    assert_eq!(few.state, State::Bad);
    assert!(few.seen.contains("affinity: 0-3,8"), "{}", few.seen);
    assert!(advice(&few).starts_with("--threads 3"), "{}", advice(&few));
}

#[test]
fn other_work_and_stolen_time_are_seen() {
    assert_eq!(judge_other_work(Some(0.2), 2).state, State::Good);
    assert_eq!(judge_other_work(Some(1.9), 2).state, State::Warn);
    assert_eq!(judge_other_work(None, 2).state, State::Good);
    let at = |all, stolen| Some(CpuTimes { all, stolen });
    assert_eq!(stolen(at(1000, 5), at(1200, 6)).unwrap().state, State::Good);
    let taken = stolen(at(1000, 5), at(1200, 45)).unwrap();
    assert_eq!(taken.state, State::Warn);
    assert!(taken.seen.starts_with("20.0 %"), "{}", taken.seen);
    assert_eq!(stolen(at(1000, 5), at(1000, 5)), None, "no tick passed");
    assert_eq!(parse_cpu_times("cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1"), at(36, 8));
    assert_eq!(parse_cpu_times("cpu  1 2 3\n"), None);
    assert_eq!(parse_cpu_times("intr 1"), None);
}

#[test]
fn a_governor_that_saves_power_is_named() {
    assert_eq!(judge_governor(&[]).unwrap().state, State::Good);
    assert_eq!(judge_governor(&["performance".into()]).unwrap().state, State::Good);
    let mixed = judge_governor(&["performance".into(), "powersave".into()]).unwrap();
    assert_eq!(
        (mixed.state, advice(&mixed)),
        (State::Warn, "as root: cpupower frequency-set -g performance")
    );
}

#[test]
fn a_receive_buffer_smaller_than_asked_for_comes_with_the_command() {
    assert_eq!(judge_buffers(BUFFER_BYTES, true, Some(212_992), None).state, State::Good);
    let small = judge_buffers(212_992, false, Some(212_992), Some(212_992));
    assert_eq!(small.state, State::Warn);
    assert!(small.seen.contains("208 kB of 4096 kB") && small.seen.contains("not allowed"), "{}", small.seen);
    assert!(advice(&small).contains("net.core.rmem_max=4194304"), "{}", advice(&small));
}

#[test]
fn local_ports_must_suffice_and_leave_the_servers_alone() {
    assert_eq!(judge_ports(Some((32_768, 60_999)), 4, 5060, "").state, State::Good);
    assert_eq!(judge_ports(Some((40_000, 40_001)), 4, 5060, "").state, State::Bad);
    assert_eq!(judge_ports(None, 4, 5060, "").state, State::Warn);
    let overlap = judge_ports(Some((1024, 65_535)), 4, 5060, "");
    assert_eq!(overlap.state, State::Warn);
    assert!(advice(&overlap).ends_with("net.ipv4.ip_local_reserved_ports=5060"), "{}", advice(&overlap));
    assert_eq!(judge_ports(Some((1024, 65_535)), 4, 5060, "80,5000-5100").state, State::Good);
    assert_eq!(judge_ports(Some((60_000, 1)), 4, 5060, "x-y,,").state, State::Bad, "an odd file is no panic");
}

#[test]
fn connection_tracking_is_worse_the_fuller_it_is() {
    assert_eq!(conntrack(None, None, 5060).state, State::Good);
    assert_eq!(conntrack(Some(0), Some(1000), 5060).state, State::Good, "no rule makes use of it");
    let loaded = conntrack(Some(10), Some(1000), 5070);
    assert_eq!(loaded.state, State::Warn);
    assert!(advice(&loaded).contains("5070 -j NOTRACK"), "{}", advice(&loaded));
    assert_eq!(conntrack(Some(900), Some(1000), 5060).state, State::Bad);
}

#[test]
fn udp_losses_are_found_in_the_kernels_table_by_name() {
    let table = |received: u64, lost: u64| {
        format!(
            "Tcp: a b\nTcp: 1 2\nUdp: InDatagrams NoPorts RcvbufErrors\nUdp: {received} 5 {lost}\nUdpLite: InDatagrams\nUdpLite: 0\n"
        )
    };
    assert_eq!(udp_losses(&table(1_000_000, 10)).unwrap().state, State::Good);
    let lossy = udp_losses(&table(1_000_000, 20_000)).unwrap();
    assert_eq!(lossy.state, State::Warn);
    assert!(lossy.seen.starts_with("20000 datagrams lost"), "{}", lossy.seen);
    assert_eq!(udp_losses(""), None);
    assert_eq!(udp_losses("Udp: InDatagrams RcvbufErrors\nUdp: 1\n"), None);
}

#[test]
fn slow_clocks_and_late_timers_are_found() {
    assert_eq!(clock_source("tsc").state, State::Good);
    assert_eq!(clock_source("hpet").state, State::Warn);
    assert_eq!(judge_clock(Duration::from_nanos(25), Duration::from_nanos(20)).state, State::Good);
    assert_eq!(judge_clock(Duration::from_nanos(900), Duration::from_nanos(20)).state, State::Warn);
    assert_eq!(judge_clock(Duration::from_nanos(25), Duration::from_millis(4)).state, State::Bad);
    assert_eq!(judge_timers(60, 90, 200).state, State::Good);
    assert_eq!(judge_timers(60, 900, 200).state, State::Warn);
    assert_eq!(judge_timers(60, 4000, 200).state, State::Warn);
    assert_eq!(judge_loopback(90_000, 0, Duration::from_millis(300)).state, State::Good);
    assert_eq!(judge_loopback(3000, 0, Duration::from_millis(300)).state, State::Warn);
    assert_eq!(judge_loopback(90_000, 900, Duration::from_millis(300)).state, State::Bad);
    assert_eq!(judge_loopback(0, 0, Duration::ZERO).state, State::Warn);
}

#[test]
fn the_cgroup_is_found_where_it_is_mounted() {
    let hybrid = "24 1 0:22 / /sys/fs/cgroup ro - tmpfs tmpfs rw\n\
                  30 24 0:27 / /sys/fs/cgroup/unified rw,relatime shared:3 - cgroup2 cgroup2 rw,nsdelegate\n";
    assert_eq!(
        cgroup_directory(hybrid, "1:cpu:/x\n0::/user.slice/a\n").as_deref(),
        Some("/sys/fs/cgroup/unified/user.slice/a")
    );
    assert_eq!(cgroup_directory(hybrid, "0::/\n").as_deref(), Some("/sys/fs/cgroup/unified"));
    assert_eq!(cgroup_directory("24 1 0:22 / /sys rw - tmpfs t rw\n", "0::/\n"), None);
    assert_eq!(cgroup_directory("", ""), None);
    assert_eq!(cgroup_directory(hybrid, "1:cpu:/x\n"), None);
    assert_eq!(judge_accounting(Some("/c"), true, true, true).state, State::Good);
    assert!(judge_accounting(Some("/c"), false, true, true).seen.contains("schedstat"));
    assert_eq!(judge_accounting(None, false, false, false).state, State::Warn);
}

#[test]
fn the_time_of_day_is_kept_or_not() {
    assert!(time_sync(&["chronyd".into()]).seen.contains("chronyd"));
    assert!(time_sync(&[]).seen.contains("no daemon"));
}

#[test]
fn this_host_is_examined_within_a_few_seconds() {
    let start = Instant::now();
    let findings = super::examine(None, &plan());
    assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
    for topic in [
        "open files",
        "processors",
        "other work",
        "CPU frequency",
        "socket buffers",
        "local ports",
        "connection tracking",
        "clock source",
        "time of day",
        "CPU accounting",
        "clock",
        "timers",
        "loopback",
    ] {
        assert!(findings.iter().any(|finding| finding.topic == topic), "{topic} is missing");
    }
    // Whatever can be mended has its command.
    assert!(
        findings.iter().all(|finding| finding.state == State::Good || finding.advice.is_some()),
        "{findings:#?}"
    );
    println!("{}", render(&findings));
}

#[test]
fn findings_are_json_and_come_back() {
    let findings = vec![Finding::warn("timers", "late").advise("wait"), Finding::good("clock", "fine")];
    let json = serde_json::to_string(&findings).unwrap();
    assert_eq!(
        json,
        "[{\"topic\":\"timers\",\"state\":\"warn\",\"seen\":\"late\",\"advice\":\"wait\"},\
         {\"topic\":\"clock\",\"state\":\"good\",\"seen\":\"fine\",\"advice\":null}]"
    );
    assert_eq!(serde_json::from_str::<Vec<Finding>>(&json).unwrap(), findings);
}

#[test]
fn the_text_has_the_advice_below_and_a_sum() {
    let findings = vec![
        Finding::good("clock", "fine"),
        Finding::bad("open files", "too few\u{1b}[2J").advise("ulimit -n 2000"),
        Finding::warn("timers", "late").advise("wait"),
    ];
    assert_eq!(worst(&findings), State::Bad);
    assert_eq!(worst(&[]), State::Good);
    insta::assert_snapshot!(render(&findings), @r"
        good  clock       fine
        BAD   open files  too few␛[2J
                          → ulimit -n 2000
        WARN  timers      late
                          → wait

        1 to mend before measuring, 1 worth a look.
        ");
    assert!(render(&findings[..1]).ends_with("Nothing to mend.\n"));
}

/// A server for one request: answers what `answer` makes of it.
fn server(
    answer: impl FnOnce(&str, SocketAddr) -> Vec<Vec<u8>> + Send + 'static,
) -> (SocketAddr, thread::JoinHandle<()>) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let address = socket.local_addr().unwrap();
    let thread = thread::spawn(move || {
        let mut space = [0; 2000];
        let (length, from) = socket.recv_from(&mut space).unwrap();
        for datagram in answer(std::str::from_utf8(&space[..length]).unwrap(), from) {
            socket.send_to(&datagram, from).unwrap();
        }
    });
    (address, thread)
}

/// A response to the request with this Via suffix.
fn response(request: &str, status: &str, suffix: &str, more: &str) -> Vec<u8> {
    let line = |name: &str| request.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    let via = line("Via:").replace(";rport", suffix);
    format!(
        "SIP/2.0 {status}\r\n{via}\r\n{}\r\n{};tag=x\r\n{}\r\n{}\r\n{more}Content-Length: 0\r\n\r\n",
        line("From:"),
        line("To:"),
        line("Call-ID:"),
        line("CSeq:")
    )
    .into_bytes()
}

fn find<'a>(findings: &'a [Finding], topic: &str) -> &'a Finding {
    findings.iter().find(|finding| finding.topic == topic).unwrap_or_else(|| panic!("{topic} is missing"))
}

#[test]
fn a_server_that_answers_well_is_described() {
    let (address, thread) = server(|request, from| {
        assert!(request.starts_with("OPTIONS sip:127.0.0.1:") && request.ends_with("\r\n\r\n"));
        let suffix = format!(";received={};rport={}", from.ip(), from.port());
        vec![
            b"noise".to_vec(),
            response(request, "100 Trying", &suffix, ""),
            response(request, "200 OK", &suffix, "Server: strange\u{1b}[2J 1.0\r\n"),
        ]
    });
    let findings = super::target::examine(address, &plan());
    thread.join().unwrap();
    let target = find(&findings, "target");
    assert!(
        target.state == State::Good && target.seen.starts_with("answers OPTIONS with 200 OK after "),
        "{target:?}"
    );
    assert_eq!(find(&findings, "software").seen, "strange\u{241b}[2J 1.0");
    assert_eq!(find(&findings, "rport").state, State::Good);
}

#[test]
fn a_server_without_rport_or_with_a_wrong_one_is_noticed() {
    for (suffix, words) in [
        ("", "does not know RFC 3581"),
        (";rport=9", "something between translates"),
        (";received=192.0.2.1", "something between translates"),
    ] {
        let (address, thread) =
            server(move |request, _| vec![response(request, "404 Not Found", suffix, "")]);
        let findings = super::target::examine(address, &plan());
        thread.join().unwrap();
        assert_eq!(find(&findings, "target").state, State::Warn, "404 is an answer");
        assert!(find(&findings, "rport").seen.contains(words), "{:?}", find(&findings, "rport"));
        assert_eq!(find(&findings, "software").seen, "it does not say (no Server header)");
    }
}

#[test]
fn the_process_that_listens_here_is_named() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let findings =
        super::target::examine(address, &Plan { answer_within: Duration::from_millis(100), ..plan() });
    assert!(find(&findings, "target").seen.contains("did not answer OPTIONS within 0.1 s"));
    let listener = find(&findings, "listener");
    assert!(listener.seen.starts_with(&format!("process {} (", std::process::id())), "{listener:?}");
    assert!(advice(listener).contains(&format!("--sut-pid {}", std::process::id())), "{listener:?}");
}

#[test]
fn nobody_there_is_told_from_nobody_answering() {
    let free = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let findings = super::target::examine(free, &plan());
    assert_eq!(find(&findings, "target").seen, format!("nothing listens on UDP {free}"));
    assert_eq!(find(&findings, "listener").state, State::Bad);
    let nowhere = super::target::ask("127.0.0.1:0".parse().unwrap(), &plan());
    assert!(matches!(nowhere, Err(Trouble::Socket(_) | Trouble::Refused)), "no port 0");
}

#[test]
fn sockets_are_found_by_address_and_port() {
    let list = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref\n\
         1: 0100007F:13C4 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 11 2 0 0\n\
         2: 00000000:13C4 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 12 2 0 0\n\
         3: 0200007F:13C4 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 13 2 0 0\n\
         4: 0100007F:13C4 0100007F:0009 01 00000000:00000000 00:00000000 00000000     0        0 14 2 0 0\n\
         5: 0100007F:13C5 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 15 2 0 0\n\
         6: 0000000000000000FFFF00000100007F:13C4 00000000000000000000000000000000:0000 07 0:0 0:0 0 0 0 16 2 0 0\n\
         7: zz:13C4 00000000:0000 07\n8: é\n\n";
    assert_eq!(sockets_of(list, "127.0.0.1:5060".parse().unwrap()), [11, 12, 16]);
    assert_eq!(judge_listener("127.0.0.1:5060".parse().unwrap(), 2, &BTreeMap::new()).state, State::Warn);
    let two = BTreeMap::from([(20, "kamailio".to_string()), (21, "kamailio".to_string())]);
    let seen = judge_listener("127.0.0.1:5060".parse().unwrap(), 2, &two).seen;
    assert_eq!(seen, "process 20 (kamailio) and 1 more processes on this host, 2 sockets");
}
