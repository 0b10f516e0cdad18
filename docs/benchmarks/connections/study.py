#!/usr/bin/env python3
"""What calls, registrations and idle connections cost over TCP and TLS: Strowger and Kamailio in turn.

    docs/benchmarks/connections/study.py [--repeat 5] [--seconds 5] [--only WORD ...] [--json FILE]

Needs root, two CPUs, Debian's kamailio with kamailio-tls-modules, and `cargo build --release -p strowger -p sipstone`. Both
servers read ../2009/grid.cfg and tls.cfg, filled in here. The server runs on CPU 0 and is started anew for each run, sipstone on
CPU 1, ahead of everything else there. Three parts, chosen by --only (calls, idle, storm; all by default):

calls  CPU per operation at fixed rates, servers interleaved, medians of --repeat runs of --seconds.
idle   Memory of the server for each of --connections idle connections (at most what `ulimit -n` lets it have).
storm  How long established calls over TLS take while full handshakes with an RSA-2048 key arrive, from twenty addresses, at twice
       the rate that the server's core does when it has nothing else to do (measured first: the most of several rates offered).

Printed as tables for docs/benchmarks.md; --json keeps every run.
"""
import argparse, json, os, resource, statistics, subprocess, sys, tempfile, time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
RELEASE = os.path.join(os.environ.get("CARGO_TARGET_DIR", f"{ROOT}/target"), "release")
WORK = tempfile.mkdtemp(prefix="connections-")
SERVERS = {
    "strowger": f"{RELEASE}/strowger -f {WORK}/grid.cfg",
    "kamailio": f"kamailio -DD -E -m 8192 -M 64 -x tlsf -X tlsf -P {WORK}/kamailio.pid -f {WORK}/grid.cfg",
}
UDP, TLS = "127.0.0.1:5070", "127.0.0.1:5071"
PER_CALL = ["--caller-connections", "per-call"]
BOTH = PER_CALL + ["--callee-connections", "per-call"]
EACH = ["--caller-connections", "per-transaction"]
# Name, rate, scenario and options. Rates that both servers carry with less than three quarters of a core.
CASES = [
    ("call over UDP", 4000, "invite", UDP, "udp", []),
    ("call over TCP, standing connections", 4000, "invite", UDP, "tcp", []),
    ("call over TCP, one connection a call on both sides", 500, "invite", UDP, "tcp", BOTH),
    ("call over TLS, standing connections", 3000, "invite", TLS, "tls", []),
    ("call over TLS, one connection a call from the caller", 300, "invite", TLS, "tls", PER_CALL),
    ("call over TLS, one connection a call on both sides", 150, "invite", TLS, "tls", BOTH),
    ("REGISTER over TLS, full handshake for each", 400, "register", TLS, "tls", EACH),
    ("REGISTER over TLS, session resumed for each", 400, "register", TLS, "tls", EACH + ["--tls", "reuse"]),
]
# A later generator than this is another load (sipstone's own limit where only CPU time is measured).
LAG_MAX_MS = 50.0


def fill(key):
    """The configuration files, and certificates with keys of this kind for the server."""
    words = {"host": "127.0.0.1", "port": "5070", "tls_port": "5071", "mutual": "no", "dir": WORK, "certs": f"{WORK}/{key}"}
    for name in ("grid.cfg", "tls.cfg"):
        text = open(f"{HERE}/../2009/{name}").read()
        for word, value in words.items():
            text = text.replace("{" + word + "}", value)
        open(f"{WORK}/{name}", "w").write(text)


def sipstone(*options, priority=50):
    """Starts one run; the process, and where its report will be."""
    out = f"{WORK}/{time.monotonic_ns()}.json"
    command = ["chrt", "-R", "-f", str(priority)] if priority else []
    command += [f"{RELEASE}/sipstone", "run", *map(str, options), "--cpus", "1", "--quiet", "--json", out]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=WORK), out


def report(run):
    process, out = run
    _, errors = process.communicate()
    if not os.path.exists(out):
        sys.exit(f"{' '.join(process.args)}\n{errors}")
    return json.load(open(out))


def served(server, key):
    return ["--sut-exec", SERVERS[server], "--sut-cpu", "0", "--tls-out", f"{WORK}/{key}", "--tls-key", key]


def figures(found):
    trial = found["subjects"][0]["trials"][-1]
    latency = trial["all"]["latency_sent"]
    return {
        "cpu_us": trial["cpu_us_per_op"], "cores": trial["cpu_cores"], "carried": trial["throughput"],
        "succeeded": trial["all"]["succeeded"], "offered": trial["all"]["offered"],
        "p50_ms": latency["p50_ms"], "p99_ms": latency["p99_ms"], "lag_p99_ms": trial["generator"]["send_lag_p99_ms"],
        "invalid": [why for why in trial["invalid"] if not why.startswith("the generator was late")],
    }


def calls(args, kept):
    fill("ecdsa")
    kept["calls"] = {name: {server: [] for server in SERVERS} for name, *_ in CASES}
    for turn in range(args.repeat):
        for name, rate, scenario, target, transport, options in CASES:
            for server in SERVERS:
                print(f"{turn + 1}/{args.repeat} {name}: {server}", file=sys.stderr)
                seen = figures(report(sipstone(
                    scenario, "--rate", rate, "--target", target, "--transport", transport, *options, *served(server, "ecdsa"),
                    "--users", 1000, "--warm-up", "1s", "--duration", f"{args.seconds}s", "--drain", "12s")))
                kept["calls"][name][server].append(seen)
                if seen["invalid"] or seen["lag_p99_ms"] > LAG_MAX_MS:
                    print(f"  left out: {seen['invalid'] or 'the generator was late'}", file=sys.stderr)
    print("| load | server | CPU per operation | of Kamailio | range | good | p50 | p99 |\n|---|---|---|---|---|---|---|---|")
    for name, rate, *_ in CASES:
        middle = {}
        for server in reversed(SERVERS):
            runs = [run for run in kept["calls"][name][server] if not run["invalid"] and run["lag_p99_ms"] <= LAG_MAX_MS]
            middle[server] = runs and statistics.median(run["cpu_us"] for run in runs), runs
        for server in SERVERS:
            cpu, runs = middle[server]
            if not runs:
                print(f"| {name}, {rate:,}/s | {server} | – | | | | | |")
                continue
            good = sum(run["succeeded"] for run in runs) / sum(run["offered"] for run in runs)
            costs = sorted(run["cpu_us"] for run in runs)
            base = middle["kamailio"][0]
            p50, p99 = (statistics.median(run[q] or float("inf") for run in runs) for q in ("p50_ms", "p99_ms"))
            print(f"| {name}, {rate:,}/s | {server} | {cpu:.1f} µs | {cpu / base:.2f} | {costs[0]:.1f} to {costs[-1]:.1f} | "
                  f"{good:.2%} | {p50:.2f} ms | {p99:.1f} ms |" if base else f"| {name}, {rate:,}/s | {server} | {cpu:.1f} µs |")


def idle(args, kept):
    fill("ecdsa")
    kept["idle"] = {}
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1] - 300
    count = min(args.connections, most)
    print("| idle connections | server | open | memory of the server for each | CPU to open one |\n|---|---|---|---|---|")
    for transport, target, rate in (("tcp", UDP, 2000), ("tls", TLS, 500)):
        for server in SERVERS:
            found = report(sipstone("connect", "--target", target, "--transport", transport, "--connections", count, "--rate", rate,
                                    "--keepalive", "15s", "--duration", "5s", "--source", "127.0.0.2-127.0.0.21", *served(server, "ecdsa")))["connect"]
            kept["idle"][f"{server} {transport}"] = found
            seen = found["server"]
            print(f"| {transport.upper()} | {server} | {found['open_at_end']:,} | {seen['bytes_per_connection']:,.0f} bytes | "
                  f"{seen['cpu_us_per_opening']:.0f} µs |")


def handshakes(found):
    """Full handshakes that were done in a second of the window."""
    trial = found["subjects"][0]["trials"][-1]
    return trial["connections"]["tls_client"]["full"] / trial["measure_s"]


def storm(args, kept):
    fill("rsa")
    kept["storm"] = {}
    print("| server | most handshakes | storm | handshakes done | calls | good | p50 | p99 | longest |\n|---|---|---|---|---|---|---|---|---|")
    flood = ["register", *EACH, "--target", TLS, "--transport", "tls", "--users", 500, "--first-user", 5001, "--no-preamble",
             "--source", "127.0.0.2-127.0.0.21", "--open-max", 100_000, "--drain", "2s"]
    for server in SERVERS:
        done = {rate: handshakes(report(sipstone(*flood, *served(server, "rsa"), "--rate", rate, "--warm-up", "1s", "--duration", "2s")))
                for rate in (500, 1000, 1500, 2000, 2500, 3000)}
        most = max(done.values())
        for offered in (0, round(2 * most)):
            established = sipstone("invite", "--rate", 100, "--target", TLS, "--transport", "tls", *served(server, "rsa"),
                                   "--users", 500, "--warm-up", "4s", "--duration", "6s", "--drain", "12s", priority=60)
            attack = None
            if offered:
                time.sleep(3)
                attack = sipstone(*flood, "--tls-out", f"{WORK}/rsa", "--tls-key", "rsa", "--rate", offered, "--warm-up", "1s",
                                  "--duration", "8s", priority=0)
            trial = report(established)["subjects"][0]["trials"][-1]
            seen = handshakes(report(attack)) if attack else None
            latency, outcome = trial["all"]["latency_planned"], trial["all"]
            kept["storm"][f"{server} {offered}"] = {
                "done_alone": done, "offered": offered, "done": seen, "calls": outcome["offered"], "good": outcome["succeeded"],
                "cpu_cores": trial["cpu_cores"], **{q: latency[q] for q in ("p50_ms", "p90_ms", "p99_ms", "max_ms")}}
            shown = lambda ms: "∞" if ms is None else f"{ms:.1f} ms"
            print(f"| {server} | {most:,.0f}/s | {f'{offered:,}/s' if offered else 'none'} | {f'{seen:,.0f}/s' if attack else '–'} | "
                  f"{outcome['offered']:,} | {outcome['succeeded'] / max(outcome['offered'], 1):.2%} | {shown(latency['p50_ms'])} | "
                  f"{shown(latency['p99_ms'])} | {shown(latency['max_ms'])} |")


def main():
    parts = {"calls": calls, "idle": idle, "storm": storm}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--connections", type=int, default=20_000)
    parser.add_argument("--only", nargs="+", choices=parts, default=list(parts))
    parser.add_argument("--json")
    args = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    kept = {"processor": next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), ""),
            "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "command": sys.argv[1:]}
    for part in args.only:
        parts[part](args, kept)
        if args.json:
            json.dump(kept, open(args.json, "w"), indent=1)


main()
