//! What the kernel says of this host: limits, buffers, ports, processors, clocks, filters, losses.
//!
//! Each check reads in one function and judges in another, so that every judgement can be tested on any host.

use super::{Finding, Plan};
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::socket::{getsockopt, setsockopt, sockopt};
use nix::unistd::{AccessFlags, Pid, access};
use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;

/// Receive buffer that a socket of the generator should get, bytes: at 100,000 datagrams a second of 600 bytes that is
/// over 20 ms, more than a thread loses to the scheduler.
pub(super) const BUFFER_BYTES: usize = 4 << 20;

/// Descriptors of a thread beside its sockets, and of the process beside its threads.
const DESCRIPTORS_PER_THREAD: u64 = 4;
const DESCRIPTORS_OF_PROCESS: u64 = 64;

/// Processes that are looked through for a time daemon, at most.
pub(super) const PROCESSES_MAX: usize = 65_536;

/// Everything that needs no measuring.
pub(super) fn examine(target: Option<SocketAddr>, plan: &Plan) -> Vec<Finding> {
    let mut findings = vec![open_files(plan), processors(plan), other_work()];
    findings.extend(governor());
    findings.push(buffers());
    findings.push(ports(target, plan));
    let tracked = ["count", "max"].map(|name| read_number(&format!("net/netfilter/nf_conntrack_{name}")));
    findings.push(conntrack(tracked[0], tracked[1], target.map_or(5060, |target| target.port())));
    findings.extend(udp_losses(&text("/proc/net/snmp")));
    findings
        .push(clock_source(text("/sys/devices/system/clocksource/clocksource0/current_clocksource").trim()));
    findings.push(time_sync(&time_daemons()));
    findings.push(cpu_accounting());
    findings
}

/// A file of `/proc` or `/sys`; empty if it cannot be read.
pub(super) fn text(path: impl AsRef<Path>) -> String {
    fs::read(path).map_or_else(|_| String::new(), |bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// A number under `/proc/sys`.
fn read_number(name: &str) -> Option<u64> {
    text(Path::new("/proc/sys").join(name)).trim().parse().ok()
}

/// Sockets that the generator opens: one for callers and one for callees for each thread and source.
fn sockets(plan: &Plan) -> u64 {
    2 * u64::from(plan.threads.max(1)) * u64::from(plan.sources.max(1))
}

fn open_files(plan: &Plan) -> Finding {
    let need = sockets(plan) + u64::from(plan.threads) * DESCRIPTORS_PER_THREAD + DESCRIPTORS_OF_PROCESS;
    match getrlimit(Resource::RLIMIT_NOFILE) {
        Ok((soft, hard)) => judge_open_files(soft, hard, need),
        Err(error) => Finding::warn("open files", format!("the limit cannot be read: {error}")),
    }
}

pub(super) fn judge_open_files(soft: u64, hard: u64, need: u64) -> Finding {
    let topic = "open files";
    let seen = format!("limit {soft} (hard {hard}), about {need} needed");
    if soft >= need {
        Finding::good(topic, seen)
    } else if hard >= need {
        Finding::bad(topic, seen).advise(format!("ulimit -n {need}"))
    } else {
        Finding::bad(topic, seen).advise(format!("as root: prlimit --pid $$ --nofile={need}:{need}"))
    }
}

fn processors(plan: &Plan) -> Finding {
    let online = std::thread::available_parallelism().map_or(1, usize::from);
    let shown = text("/proc/cpuinfo").lines().filter(|line| line.starts_with("processor")).count().max(1);
    let allowed = nix::sched::sched_getaffinity(Pid::from_raw(0)).map_or_else(
        |_| Vec::new(),
        |set| (0..nix::sched::CpuSet::count()).filter(|cpu| set.is_set(*cpu).unwrap_or(false)).collect(),
    );
    judge_processors(shown, online, &allowed, plan.threads)
}

/// `usable`: what the affinity and a cgroup's quota leave of the `shown` ones.
pub(super) fn judge_processors(shown: usize, usable: usize, allowed: &[usize], threads: u16) -> Finding {
    let topic = "processors";
    let mut seen = format!("{shown} CPUs, {usable} usable by this process");
    if !allowed.is_empty() && allowed.len() < shown {
        seen = format!("{seen} (affinity: {})", list(allowed));
    }
    if usable < usize::from(threads) {
        return Finding::bad(topic, format!("{seen}, {threads} threads planned"))
            .advise(format!("--threads {usable}, or start with a wider `taskset -c LIST`"));
    }
    match shown {
        1 => Finding::warn(
            topic,
            format!("{seen}: a server on this host shares its only one with the generator"),
        )
        .advise("run the generator on another host: `sipstone agent` there, `--agent HOST:PORT` here"),
        _ => Finding::good(topic, seen),
    }
}

/// Numbers as `taskset -c` writes them: `0-3,8`.
fn list(numbers: &[usize]) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *number => *last = *number,
            _ => ranges.push((*number, *number)),
        }
    }
    let words: Vec<String> =
        ranges.iter().map(|(a, b)| if a == b { a.to_string() } else { format!("{a}-{b}") }).collect();
    words.join(",")
}

fn other_work() -> Finding {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let load = text("/proc/loadavg").split_whitespace().next().and_then(|word| word.parse().ok());
    judge_other_work(load, cpus)
}

pub(super) fn judge_other_work(load: Option<f64>, cpus: usize) -> Finding {
    let topic = "other work";
    let Some(load) = load else { return Finding::good(topic, "the load average is not visible") };
    let seen = format!("load average {load:.2} over the last minute, {cpus} CPUs");
    // A quarter of the machine is more than a server's share may vary by.
    if load <= 0.25 * cpus as f64 {
        Finding::good(topic, seen)
    } else {
        Finding::warn(topic, seen)
            .advise("see what runs with `top -b -n 1 | head -15`, and wait until it has ended")
    }
}

fn governor() -> Option<Finding> {
    let mut governors: Vec<String> = (0..4096)
        .map(|cpu| format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor"))
        .map_while(|path| fs::read_to_string(path).ok())
        .map(|word| word.trim().to_owned())
        .collect();
    governors.sort();
    governors.dedup();
    judge_governor(&governors)
}

/// `governors`: the different ones; none where the host of a virtual machine decides.
pub(super) fn judge_governor(governors: &[String]) -> Option<Finding> {
    let topic = "CPU frequency";
    Some(match governors {
        [] => Finding::good(topic, "no governor is visible (a virtual machine, or a fixed frequency)"),
        [one] if one == "performance" => Finding::good(topic, "governor performance"),
        _ => Finding::warn(
            topic,
            format!("governor {}: CPU time per operation depends on the load", governors.join(", ")),
        )
        .advise("as root: cpupower frequency-set -g performance"),
    })
}

fn buffers() -> Finding {
    let topic = "socket buffers";
    let Ok(socket) = UdpSocket::bind("127.0.0.1:0") else {
        return Finding::bad(topic, "no UDP socket can be opened on 127.0.0.1");
    };
    let forced = setsockopt(&socket, sockopt::RcvBufForce, &BUFFER_BYTES).is_ok();
    if !forced {
        let _ = setsockopt(&socket, sockopt::RcvBuf, &BUFFER_BYTES);
    }
    // The kernel doubles what is asked for, to pay for its own book-keeping, and tells the double (socket(7)).
    let got = getsockopt(&socket, sockopt::RcvBuf).map_or(0, |bytes| bytes / 2);
    judge_buffers(got, forced, read_number("net/core/rmem_max"), read_number("net/core/wmem_max"))
}

pub(super) fn judge_buffers(
    got: usize,
    forced: bool,
    rmem_max: Option<u64>,
    wmem_max: Option<u64>,
) -> Finding {
    let topic = "socket buffers";
    let number =
        |value: Option<u64>| value.map_or("not visible".into(), |bytes| format!("{} kB", bytes / 1024));
    let how = if forced { "SO_RCVBUFFORCE works" } else { "SO_RCVBUFFORCE is not allowed" };
    let seen = format!(
        "receive buffer of {} kB of {} kB asked for; {how}; rmem_max {}, wmem_max {}",
        got / 1024,
        BUFFER_BYTES / 1024,
        number(rmem_max),
        number(wmem_max)
    );
    if got >= BUFFER_BYTES {
        return Finding::good(topic, seen);
    }
    Finding::warn(topic, seen).advise(format!(
        "as root: sysctl -w net.core.rmem_max={BUFFER_BYTES} net.core.wmem_max={BUFFER_BYTES}"
    ))
}

fn ports(target: Option<SocketAddr>, plan: &Plan) -> Finding {
    let range = text("/proc/sys/net/ipv4/ip_local_port_range");
    let mut words = range.split_whitespace().map(|word| word.parse().ok());
    let range = words.next().flatten().zip(words.next().flatten());
    // Each source address has all ports for itself.
    let need = sockets(plan) / u64::from(plan.sources.max(1));
    let reserved = text("/proc/sys/net/ipv4/ip_local_reserved_ports");
    judge_ports(range, need, target.map_or(5060, |target| target.port()), reserved.trim())
}

pub(super) fn judge_ports(range: Option<(u16, u16)>, need: u64, server: u16, reserved: &str) -> Finding {
    let topic = "local ports";
    let Some((low, high)) = range else {
        return Finding::warn(topic, "the range of local ports is not visible");
    };
    let count = u64::from(high.saturating_sub(low)) + 1;
    let seen = format!("{low} to {high}: {count}, {need} needed for each source");
    if count < 2 * need {
        return Finding::bad(topic, seen)
            .advise("as root: sysctl -w net.ipv4.ip_local_port_range=\"32768 60999\"");
    }
    let is_reserved = reserved.split(',').any(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        matches!((first.parse::<u16>(), last.parse::<u16>()), (Ok(first), Ok(last)) if (first..=last).contains(&server))
    });
    if (low..=high).contains(&server) && !is_reserved {
        return Finding::warn(
            topic,
            format!("{seen}; the server's port {server} is among them and could be taken"),
        )
        .advise(format!("as root: sysctl -w net.ipv4.ip_local_reserved_ports={server}"));
    }
    Finding::good(topic, seen)
}

/// `count` and `max`: connections that the kernel's connection tracking has, and may have; `port` is the server's.
pub(super) fn conntrack(count: Option<u64>, max: Option<u64>, port: u16) -> Finding {
    let topic = "connection tracking";
    let (Some(count), Some(max)) = (count, max) else {
        return Finding::good(topic, "not loaded, or not visible");
    };
    if count == 0 {
        return Finding::good(topic, "loaded, but nothing is tracked");
    }
    let seen = format!("{count} of {max} connections: each datagram pays for a look-up");
    let advice = format!(
        "as root: for C in PREROUTING OUTPUT; do for P in --dport --sport; do iptables -t raw -A $C -p udp $P {port} \
         -j NOTRACK; done; done"
    );
    if count.saturating_mul(10) >= max.saturating_mul(8) {
        return Finding::bad(topic, format!("{seen}; when it is full datagrams are dropped")).advise(advice);
    }
    Finding::warn(topic, seen).advise(advice)
}

/// Datagrams that sockets of this host lost since it started (RFC 4113 names the counters).
pub(super) fn udp_losses(snmp: &str) -> Option<Finding> {
    let topic = "UDP losses";
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Udp:"));
    let (names, values) = (lines.next()?, lines.next()?);
    let value = |wanted: &str| -> Option<u64> {
        let at = names.split_whitespace().position(|name| name == wanted)?;
        values.split_whitespace().nth(at)?.parse().ok()
    };
    let (received, lost) = (value("InDatagrams")?, value("RcvbufErrors")?);
    let seen = format!("{lost} datagrams lost in full receive buffers since the start, {received} delivered");
    // One in a thousand is ten times what a peak at 99 % success notices.
    if lost.saturating_mul(1000) <= received {
        return Some(Finding::good(topic, seen));
    }
    Some(Finding::warn(topic, seen).advise(
        "see whose: ss -uanm | grep -B1 ',d[1-9]'; give those sockets larger buffers, and look again after a run with \
         `nstat -az UdpRcvbufErrors`",
    ))
}

pub(super) fn clock_source(name: &str) -> Finding {
    let topic = "clock source";
    match name {
        "" => Finding::good(topic, "not visible"),
        "hpet" | "acpi_pm" | "jiffies" | "refined-jiffies" | "pit" => {
            Finding::warn(topic, format!("{name}: reading the time is a slow call into the kernel")).advise(
                "as root: echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource",
            )
        }
        _ => Finding::good(topic, name),
    }
}

/// Names of the processes that keep the time.
fn time_daemons() -> Vec<String> {
    const DAEMONS: [&str; 7] =
        ["chronyd", "ntpd", "ntpsec", "systemd-timesyn", "openntpd", "ptp4l", "phc2sys"];
    let mut found: Vec<String> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .take(PROCESSES_MAX)
        .filter_map(|entry| entry.ok())
        .map(|entry| text(entry.path().join("comm")).trim().to_owned())
        .filter(|name| DAEMONS.contains(&name.as_str()))
        .collect();
    found.sort();
    found.dedup();
    found
}

pub(super) fn time_sync(daemons: &[String]) -> Finding {
    let topic = "time of day";
    if daemons.is_empty() {
        return Finding::good(
            topic,
            "no daemon keeps it (chronyd, ntpd, …): only the time stamps of reports depend on it, for latencies are \
             taken on one host's monotonic clock",
        );
    }
    Finding::good(topic, format!("kept by {}", daemons.join(", ")))
}

fn cpu_accounting() -> Finding {
    let mounts = text("/proc/self/mountinfo");
    let own = text("/proc/self/cgroup");
    let directory = cgroup_directory(&mounts, &own);
    let writable = directory.as_deref().is_some_and(|path| access(path, AccessFlags::W_OK).is_ok());
    let counted = directory.as_deref().is_some_and(|path| Path::new(path).join("cpu.stat").exists());
    judge_accounting(directory.as_deref(), writable, counted, Path::new("/proc/self/schedstat").exists())
}

/// Where this process's cgroup v2 is; `None` without cgroup v2.
pub(super) fn cgroup_directory(mountinfo: &str, own: &str) -> Option<String> {
    // proc(5): the mount point is the fifth field, the type the first behind the lonely hyphen.
    let mount = mountinfo.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        (after.split(' ').next() == Some("cgroup2")).then(|| before.split(' ').nth(4))?
    })?;
    let path = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    Some(format!("{}{}", mount.trim_end_matches('/'), path.trim_end_matches('/')))
}

pub(super) fn judge_accounting(
    directory: Option<&str>,
    writable: bool,
    counted: bool,
    schedstat: bool,
) -> Finding {
    let topic = "CPU accounting";
    let otherwise = if schedstat {
        "the process tree's schedstat (nanoseconds)"
    } else {
        "the process tree's stat (clock ticks of 10 ms)"
    };
    match directory {
        Some(path) if writable && counted => Finding::good(
            topic,
            format!(
                "cgroup v2 at {path} is writable: a server started with --sut-exec is counted by cpu.stat"
            ),
        ),
        Some(path) if writable => Finding::good(
            topic,
            format!("cgroup v2 at {path} is writable and its root: groups below it are counted by cpu.stat"),
        ),
        Some(path) => {
            Finding::good(topic, format!("cgroup v2 at {path} is not writable: {otherwise} will be used"))
        }
        None if schedstat => Finding::good(topic, format!("no cgroup v2: {otherwise} will be used")),
        None => Finding::warn(topic, format!("no cgroup v2: {otherwise} will be used"))
            .advise("measure for 30 s or longer, so that a tick does not matter: --duration 30s"),
    }
}

/// Ticks of all CPUs since the start: all of them, and those that the host of this virtual machine took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CpuTimes {
    pub(super) all: u64,
    pub(super) stolen: u64,
}

/// From `/proc/stat`.
pub(super) fn cpu_times() -> Option<CpuTimes> {
    parse_cpu_times(&text("/proc/stat"))
}

pub(super) fn parse_cpu_times(stat: &str) -> Option<CpuTimes> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    // user nice system idle iowait irq softirq steal; guest times, which follow, are in user already.
    let ticks: Vec<u64> = line.split_whitespace().take(8).map_while(|word| word.parse().ok()).collect();
    Some(CpuTimes {
        all: ticks.iter().fold(0, |sum, ticks| sum.saturating_add(*ticks)),
        stolen: *ticks.get(7)?,
    })
}

/// Time that the host of a virtual machine took away between two looks.
pub(super) fn stolen(before: Option<CpuTimes>, after: Option<CpuTimes>) -> Option<Finding> {
    let topic = "stolen time";
    let (before, after) = (before?, after?);
    let all = after.all.checked_sub(before.all).filter(|ticks| *ticks > 0)?;
    let stolen = after.stolen.saturating_sub(before.stolen);
    let share = 100.0 * stolen as f64 / all as f64;
    let seen =
        format!("{share:.1} % of the CPU time of the last second or so went to other virtual machines");
    Some(if share <= 2.0 {
        Finding::good(topic, seen)
    } else {
        Finding::warn(topic, seen)
            .advise("measure on a host of your own, or repeat: watch `vmstat 1`, column st")
    })
}
