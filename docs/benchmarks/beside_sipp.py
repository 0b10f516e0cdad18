#!/usr/bin/env python3
"""sipstone beside SIPp: the same call, the same server, the same core, one after the other in turn.

    docs/benchmarks/beside_sipp.py [--rate 1000 --rate 2000 ...] [--seconds 10] [--repeat 5]

Needs `sipp` and `dumpcap`, `tshark` (Debian: sip-tester, tshark), root, and `cargo build --release -p sipstone`.
The server (`sipstone null --trying`, which costs so little that the generator is the limit) runs on CPU 0, the generator (SIPp: caller and callee are two processes) on CPU 1. Printed per
rate, medians: calls that ended well, calls a second from the first INVITE to the last, how much of its core the generator
used, and how far INVITEs left from a uniform schedule of that rate. The last two are taken from the packets on the loopback
interface, for both alike: INVITE number i is planned at t0 + i/rate, with t0 such that the earliest one is on time.
The rates go up; a generator that sends less than 95 % of what was asked for takes part no longer.
"""
import argparse, os, re, socket, statistics, subprocess, tempfile, time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
RELEASE = os.path.join(os.environ.get("CARGO_TARGET_DIR", f"{ROOT}/target"), "release")
SIPP = f"{ROOT}/tests/sipp"
SERVER = "127.0.0.1:5070"
HEADERS = 14 + 20 + 8
TMP = tempfile.mkdtemp(prefix="beside-sipp-")


def cpu_ns(pid):
    return sum(int(open(f"/proc/{pid}/task/{t}/schedstat").read().split()[0]) for t in os.listdir(f"/proc/{pid}/task"))


def pinned(cpu, *command, **how):
    return subprocess.Popen(["taskset", "-c", str(cpu), *map(str, command)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **how)


def end(process):
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def register(user, contact):
    """One registration, so that SIPp's callee is found."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.bind(("127.0.0.1", 0))
        s.settimeout(2)
        at = "127.0.0.1:%d" % s.getsockname()[1]
        s.sendto((f"REGISTER sip:{SERVER} SIP/2.0\r\nVia: SIP/2.0/UDP {at};branch=z9hG4bKbeside\r\nMax-Forwards: 70\r\n"
                  f"From: <sip:{user}@{SERVER}>;tag=1\r\nTo: <sip:{user}@{SERVER}>\r\nCall-ID: beside\r\nCSeq: 1 REGISTER\r\n"
                  f"Contact: <sip:{user}@{contact}>\r\nContent-Length: 0\r\n\r\n").encode(), ("127.0.0.1", 5070))
        assert s.recv(4096).startswith(b"SIP/2.0 200"), "the server did not register the callee"


class Capture:
    """The INVITEs to the server, with the kernel's time stamps."""

    def __init__(self):
        self.file = f"{TMP}/invites.pcapng"
        self.process = subprocess.Popen(["taskset", "-c", "0", "dumpcap", "-q", "-i", "lo", "-s", "80", "-B", "64", "-f",
                                         "udp dst port 5070 and udp[8:4] = 0x494e5649", "-w", self.file],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(1.5)

    def lags_ms(self, rate):
        time.sleep(0.5)
        end(self.process)
        out = subprocess.run(["tshark", "-r", self.file, "-T", "fields", "-e", "frame.time_epoch", "-e", "frame.len"], capture_output=True,
                             text=True).stdout
        packets = sorted((float(time), int(length) - HEADERS) for time, length in map(str.split, out.splitlines()))
        if len(packets) < 100:
            return None
        # sipstone hands datagrams of one length to the kernel together, which the capture sees as one packet (UDP_SEGMENT).
        shortest = min(length for _, length in packets)
        times = [time for time, length in packets for _ in range(max(1, round(length / shortest)))]
        self.achieved = (len(times) - 1) / (times[-1] - times[0])
        late = [t - i / rate for i, t in enumerate(times)]
        first = min(late)
        late = sorted((x - first) * 1e3 for x in late)
        return late[len(late) // 2], late[len(late) * 99 // 100], late[-1]


def sipp(rate, seconds):
    calls = int(rate * seconds)
    callee = pinned(1, "sipp", "-sf", f"{SIPP}/callee.xml", "-i", "127.0.0.1", "-p", 5091, "-key", "contact", "127.0.0.1:5091",
                    "-s", "user1", "-nostdin", cwd=TMP)
    time.sleep(0.7)
    register("user1", "127.0.0.1:5091")
    caller = pinned(1, "sipp", "-sf", f"{SIPP}/caller.xml", "-i", "127.0.0.1", "-p", 5090, "-key", "domain", SERVER, "-s", "user1",
                    "-r", rate, "-m", calls, "-l", 1_000_000, "-nostdin", "-trace_stat", "-stf", f"{TMP}/stat.csv", "-fd", 1, "-timeout",
                    seconds * 2 + 20, SERVER, cwd=TMP)
    # Its process ends with its last call, so its CPU time is read until it is gone.
    # A call of which a datagram was lost at the wrong moment keeps it waiting for ever.
    used, limit = 0, time.time() + seconds * 2 + 10
    while caller.poll() is None and time.time() < limit:
        try:
            used = cpu_ns(caller.pid) + cpu_ns(callee.pid)
        except (FileNotFoundError, ProcessLookupError):
            pass
        time.sleep(0.02)
    end(caller)
    end(callee)
    rows = [line.split(";") for line in open(f"{TMP}/stat.csv")]
    good = int(rows[-1][rows[0].index("SuccessfulCall(C)")])
    os.remove(f"{TMP}/stat.csv")
    return good / calls, used / 1e9 / seconds


def sipstone(rate, seconds):
    report = f"{TMP}/report.json"
    subprocess.run([f"{RELEASE}/sipstone", "run", "invite", "--target", SERVER, "--rate", str(rate), "--shape", "uniform", "--warm-up", "0s",
                    "--duration", f"{seconds}s", "--cpus", "1", "--threads", "1", "--users", "1000", "--quiet", "--json", report],
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    import json
    trial = json.load(open(report))["subjects"][0]["trials"][0]
    return trial["all"]["success"], trial["generator"]["utilisation"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=int, action="append")
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--repeat", type=int, default=5)
    arguments = parser.parse_args()
    tools = {"sipp": sipp, "sipstone": sipstone}
    for rate in arguments.rate or [2000, 4000, 8000, 12000, 32000, 40000, 48000]:
        rows = {name: [] for name in tools}
        for _ in range(arguments.repeat):
            for name, tool in list(tools.items()):
                server = pinned(0, f"{RELEASE}/sipstone", "null", "--trying", "--listen", SERVER)
                time.sleep(1)
                capture = Capture()
                try:
                    good, used = tool(rate, arguments.seconds)
                    lags = capture.lags_ms(rate)
                    rows[name].append((good, used, lags, capture.achieved))
                finally:
                    end(server)
        for name, runs in ((name, runs) for name, runs in rows.items() if runs):
            median = lambda pick: statistics.median(pick(run) for run in runs)
            print(f"{rate:6}/s  {name:9} good {100 * median(lambda run: run[0]):6.2f} %  sent {median(lambda run: run[3]):8,.0f}/s  "
                  f"core {100 * median(lambda run: run[1]):5.1f} %  late p50 {median(lambda run: run[2][0]):8.3f} ms  "
                  f"p99 {median(lambda run: run[2][1]):8.3f} ms  max {median(lambda run: run[2][2]):8.3f} ms", flush=True)
            if median(lambda run: run[3]) < 0.95 * rate:
                del tools[name]


main()
