#!/usr/bin/env python3
"""What authentication and databases cost: Strowger and Kamailio in turn, on one SQLite file, PostgreSQL and MariaDB.

    docs/benchmarks/users/study.py [--repeat 5] [--seconds 5] [--only PART ...] [--users 10000] [--servers NAME ...]
        [--databases NAME ...] [--modes NAME ...] [--scenarios NAME ...] [--secrets WHERE ...] [--warm-up SECONDS] [--json FILE]

Needs root, two CPUs, Debian's postgresql, mariadb-server, kamailio with its -postgres-, -mysql- and -sqlite-modules, and
`cargo build --release -p strowger -p sipstone`. Both servers read users.cfg, filled in here. On PostgreSQL and MariaDB they use the
same tables, made by Kamailio's own scripts, to which `strowger db create` adds a journal; on SQLite each has a file of its own kind.
The server runs on CPU 0 and is started anew for each run; sipstone and the databases are on CPU 1. Parts:

auth     CPU of the server per REGISTER and per call: without authentication, every request challenged, and with credentials used
         again. Secrets in each database: it is asked each time, as the papers had it (Strowger with `cache_size` 0, Kamailio with
         eight processes). Secrets in memory: Kamailio's htable, Strowger's users whom it has seen, as it is without settings
         (with room for all where there are more than it remembers then).
persist  The same with bindings in memory, written back, and written through, on each database: REGISTERs, challenged ones, and
         calls whose credentials are used again.
share    CPU of the server per REGISTER in each of these modes near its peak, beside memory's in the same turn: what is left of the peak
         where it is the CPU that ends it.
peak     The rate of REGISTERs in each of these modes that the server keeps up with in half of the runs: 99 % good, half of the answers
         within T1, 500 ms, 95 % as many answers as questions. Up and down from run to run, all modes in turn: --repeat 20 or more. The
         server has CPU 0 and everything else CPU 1, where PostgreSQL comes before the generator in write-through. (MariaDB does not
         go on where it comes first on its only CPU: not in this part.) What PostgreSQL does on CPU 1 slows down what CPU 0 does, whoever
         it is for: so write-back is also compared with memory beside a PostgreSQL that does as much for somebody else.
start    How long a start takes with --bindings bindings in the database that the server itself has written, and its memory.

Printed as tables for docs/benchmarks.md; --json keeps every run.
"""
import argparse, contextlib, hashlib, json, os, pwd, resource, shutil, signal, socket, sqlite3, statistics, subprocess, sys, tempfile, time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
RELEASE = os.path.join(os.environ.get("CARGO_TARGET_DIR", f"{ROOT}/target"), "release")
WORK = tempfile.mkdtemp(prefix="users-")
os.chmod(WORK, 0o755)
SCRIPTS = "/usr/share/kamailio"
TABLES = ("standard", "auth_db", "usrloc")
DOMAIN = "bench.example"
TARGET = "127.0.0.1:5070"
SERVERS = ("strowger", "kamailio")
SHARE_RATE = {"strowger": 100_000, "kamailio": 60_000}
# Users that Strowger remembers without settings.
REMEMBERED = 65_536
T1_MS = 500
# REGISTERs a second that part peak begins with; Kamailio's write-through with a twentieth.
FIRST_RATE = 90_000
# What cannot carry so many has no peak.
LEAST_RATE = 100
MODES = {"memory": 0, "write-through": 1, "write-back": 2}
# Memory again, on a machine whose PostgreSQL has the work of write-back to do for somebody else.
BESIDE = "memory beside PostgreSQL's work"


def sh(command, check=True, **more):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)
    if check and done.returncode:
        sys.exit(f"{command}\n{done.stdout}")
    return done.stdout


def ha1(number):
    return hashlib.md5(f"user{number}:{DOMAIN}:password{number}".encode()).hexdigest()


class Julian(float):
    """A day, as Kamailio's driver for SQLite counts them."""


class Sqlite:
    name, driver = "SQLite", "db_sqlite.so"

    def start(self):
        self.files = {"kamailio": f"{WORK}/kamailio.db", "strowger": f"{WORK}/strowger.db"}
        self.urls = {server: f"sqlite://{file}" for server, file in self.files.items()}
        sh([f"{RELEASE}/strowger", "db", "create", "--db", f"sqlite:{self.files['strowger']}"])
        base = sqlite3.connect(self.files["kamailio"])
        for table in TABLES:
            base.executescript(open(f"{SCRIPTS}/db_sqlite/{table}-create.sql").read())
        base.execute("CREATE TABLE secrets (id INTEGER PRIMARY KEY, key_name TEXT, key_type INT DEFAULT 0, value_type INT DEFAULT 0, key_value TEXT, expires INT DEFAULT 0)")
        base.execute("INSERT INTO version (table_name, table_version) VALUES ('secrets', 2)")
        base.commit()
        base.close()

    def fill(self, table, columns, rows):
        rows = list(rows)
        for server, file in self.files.items():
            if table == "secrets" and server == "strowger":
                continue
            base = sqlite3.connect(file)
            base.execute("PRAGMA synchronous=OFF")
            base.execute(f"DELETE FROM {table}")
            if table == "location" and server == "strowger":
                base.execute("DELETE FROM strowger_journal")
                rows = [[self.micros(cell) if isinstance(cell, Julian) else cell for cell in row] for row in rows]
            marks = ",".join("?" * len(columns))
            base.executemany(f"INSERT INTO {table} ({','.join(columns)}) VALUES ({marks})", rows)
            base.commit()
            base.close()

    def now(self, seconds):
        """How Kamailio's driver writes a time in this database."""
        return Julian(2440587.5 + (time.time() + seconds - time.timezone) / 86400)

    @staticmethod
    def micros(julian):
        """How Strowger writes it in a file of its own."""
        return int(((julian - 2440587.5) * 86400 + time.timezone) * 1e6)

    def count(self, table):
        base = sqlite3.connect(self.files["kamailio"])
        return base.execute(f"SELECT count(*) FROM {table}").fetchone()[0]

    def stop(self):
        pass


class Postgres:
    name, driver = "PostgreSQL", "db_postgres.so"

    def start(self):
        found = sorted(os.listdir("/usr/lib/postgresql"))[-1]
        bin_dir, data = f"/usr/lib/postgresql/{found}/bin", f"{WORK}/postgres"
        user = pwd.getpwnam("postgres")
        os.mkdir(data)
        os.chown(data, user.pw_uid, user.pw_gid)
        self.as_user = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
        sh(self.as_user + [f"{bin_dir}/initdb", "-D", data, "-U", "kamailio", "--auth=trust", "-E", "UTF8", "--locale=C"], cwd="/")
        self.process = subprocess.Popen(
            ["taskset", "-c", "1"] + self.as_user + [f"{bin_dir}/postgres", "-D", data, "-p", "5499", "-c", "listen_addresses=127.0.0.1",
             "-c", "unix_socket_directories=", "-c", "shared_buffers=1GB", "-c", "max_wal_size=4GB"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/")
        self.psql = ["psql", "-q", "-h", "127.0.0.1", "-p", "5499", "-U", "kamailio", "-v", "ON_ERROR_STOP=1"]
        for _ in range(200):
            if subprocess.run(self.psql + ["-d", "postgres", "-c", "SELECT 1"], capture_output=True).returncode == 0:
                break
            time.sleep(0.1)
        sh(self.psql + ["-d", "postgres", "-c", "CREATE DATABASE bench"])
        self.psql += ["-d", "bench"]
        for table in TABLES:
            sh(self.psql + ["-f", f"{SCRIPTS}/postgres/{table}-create.sql"])
        sh(self.psql + ["-c", "CREATE TABLE secrets (id SERIAL PRIMARY KEY, key_name VARCHAR(64), key_type INT DEFAULT 0, value_type INT DEFAULT 0, key_value VARCHAR(128), expires INT DEFAULT 0);"
                        "INSERT INTO version (table_name, table_version) VALUES ('secrets', 2)"])
        self.urls = dict.fromkeys(SERVERS, "postgres://kamailio@127.0.0.1:5499/bench")
        sh([f"{RELEASE}/strowger", "db", "create", "--db", self.urls["strowger"]])

    def fill(self, table, columns, rows):
        text = "".join("\t".join("\\N" if cell is None else str(cell) for cell in row) + "\n" for row in rows)
        also = ["-c", "TRUNCATE strowger_journal"] if table == "location" else []
        sh(self.psql + also + ["-c", f"TRUNCATE {table}", "-c", f"COPY {table} ({','.join(columns)}) FROM STDIN", "-c", f"ANALYZE {table}"], input=text)

    @contextlib.contextmanager
    def busy(self, count):
        """The work of write-back, a flush of so many rows each second, for somebody else."""
        columns = "ruid, username, domain, contact, expires, q, callid, cseq, last_modified, user_agent, socket, connection_id"
        updates = ", ".join(f"{name} = excluded.{name}" for name in columns.split(", ")[4:])
        sql = (f"INSERT INTO others ({columns}) SELECT 'uloc-bench-' || n, 'user' || n, '{DOMAIN}', 'sip:user' || n || '@127.0.0.1:5090', "
               f"now() + interval '1 hour', 1.0, 'call-' || n || '@127.0.0.1', 1, now(), 'bench', 'udp:{TARGET}', -1 "
               f"FROM generate_series(1, {count}) AS n ON CONFLICT (ruid) DO UPDATE SET {updates}")
        sh(self.psql + ["-c", "SET client_min_messages = error", "-c", "DROP TABLE IF EXISTS others", "-c", "CREATE TABLE others (LIKE location INCLUDING ALL)"])
        others = subprocess.Popen(["taskset", "-c", "1", *self.psql], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        # A second from one to the next, with the time that it takes.
        others.stdin.write(f"{sql} \\watch 0.6\n")
        others.stdin.close()
        try:
            yield
        finally:
            others.terminate()
            others.wait()

    def now(self, seconds):
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time.time() + seconds))

    def count(self, table):
        return int(sh(self.psql + ["-At", "-c", f"SELECT count(*) FROM {table}"]))

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait()


class Mariadb:
    name, driver = "MariaDB", "db_mysql.so"

    def start(self):
        data, self.socket = f"{WORK}/mariadb", f"{WORK}/mariadb.sock"
        user = pwd.getpwnam("mysql")
        os.mkdir(data)
        os.chown(data, user.pw_uid, user.pw_gid)
        sh(["mariadb-install-db", "--no-defaults", f"--datadir={data}", "--user=mysql", "--auth-root-authentication-method=normal"])
        self.process = subprocess.Popen(
            ["taskset", "-c", "1", "mariadbd", "--no-defaults", f"--datadir={data}", "--user=mysql", f"--socket={data}/socket", f"--tmpdir={data}", "--port=5498",
             "--bind-address=127.0.0.1", "--innodb-buffer-pool-size=1G", "--local-infile=1", "--skip-log-bin"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.mysql = ["mariadb", "--no-defaults", f"--socket={data}/socket", "-uroot", "--local-infile=1"]
        for _ in range(300):
            if subprocess.run(self.mysql + ["-e", "SELECT 1"], capture_output=True).returncode == 0:
                break
            time.sleep(0.1)
        sh(self.mysql + ["-e", "CREATE DATABASE bench; CREATE USER kamailio@'127.0.0.1' IDENTIFIED BY 'secret'; GRANT ALL ON bench.* TO kamailio@'127.0.0.1'; "
                         "CREATE USER kamailio@localhost IDENTIFIED BY 'secret'; GRANT ALL ON bench.* TO kamailio@localhost"])
        self.mysql += ["bench"]
        for table in TABLES:
            sh(self.mysql, input=open(f"{SCRIPTS}/mysql/{table}-create.sql").read())
        sh(self.mysql + ["-e", "CREATE TABLE secrets (id INT AUTO_INCREMENT PRIMARY KEY, key_name VARCHAR(64), key_type INT DEFAULT 0, value_type INT DEFAULT 0, key_value VARCHAR(128), expires INT DEFAULT 0);"
                         "INSERT INTO version (table_name, table_version) VALUES ('secrets', 2)"])
        self.urls = dict.fromkeys(SERVERS, "mysql://kamailio:secret@127.0.0.1:5498/bench")
        sh([f"{RELEASE}/strowger", "db", "create", "--db", self.urls["strowger"]])

    def fill(self, table, columns, rows):
        path = f"{WORK}/rows.txt"
        with open(path, "w") as out:
            for row in rows:
                out.write("\t".join("\\N" if cell is None else str(cell) for cell in row) + "\n")
        also = "TRUNCATE strowger_journal; " if table == "location" else ""
        sh(self.mysql + ["-e", f"{also}TRUNCATE {table}; LOAD DATA LOCAL INFILE '{path}' INTO TABLE {table} ({','.join(columns)}); ANALYZE TABLE {table}"])

    def now(self, seconds):
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time.time() + seconds))

    def count(self, table):
        return int(sh(self.mysql + ["-N", "-e", f"SELECT count(*) FROM {table}"]))

    def stop(self):
        self.process.terminate()
        self.process.wait()


def add_users(base, count):
    print(f"{base.name}: {count:,} users", file=sys.stderr)
    base.fill("subscriber", ("username", "domain", "password", "ha1", "ha1b"), ((f"user{n}", DOMAIN, "", ha1(n), "") for n in range(1, count + 1)))
    base.fill("secrets", ("key_name", "key_value"), ((f"user{n}", ha1(n)) for n in range(1, count + 1)))


def add_bindings(base, count):
    print(f"{base.name}: {count:,} bindings", file=sys.stderr)
    expires, modified = base.now(7200), base.now(0)
    columns = ("ruid", "username", "domain", "contact", "expires", "q", "callid", "cseq", "last_modified", "flags", "cflags", "user_agent",
               "socket", "methods", "reg_id")
    base.fill("location", columns, (
        (f"uloc-bench-{n:x}", f"user{n}", DOMAIN, f"sip:user{n}@127.0.0.1:5090", expires, 1.0, f"call-{n}@127.0.0.1", 1, modified, 0, 0,
         "bench", f"udp:{TARGET}", None, 0) for n in range(1, count + 1)))


def command(server, base, mode="memory", auth=None, children=1, interval=1, users=0):
    """The command that starts a server; the configuration is the same file for both."""
    text = open(f"{HERE}/users.cfg").read()
    words = {"children": children, "driver": base.driver, "url": base.urls[server], "mode": MODES[mode], "interval": interval,
             "room": users * 6 // 5}
    for word, value in words.items():
        text = text.replace("{" + word + "}", str(value))
    path = f"{WORK}/{server}-{base.driver}-{mode}-{children}.cfg"
    open(path, "w").write(text)
    defines = [] if auth is None else ["-A", "AUTH"]
    defines += ["-A", "HTABLE"] if auth == "memory" and server == "kamailio" else []
    defines += ["-A", "ASKED"] if auth == "database" and server == "strowger" else []
    defines += ["-A", "ROOMY"] if auth == "memory" and server == "strowger" and users > REMEMBERED else []
    defines += ["-A", "PERSISTED"] if mode != "memory" else []
    if server == "strowger":
        return " ".join([f"{RELEASE}/strowger", "-f", path, "--state-dir", f"{WORK}/state", *defines])
    return " ".join(["kamailio", "-DD", "-E", "-m", "8192", "-M", "64", "-x", "tlsf", "-X", "tlsf", "-P", f"{WORK}/kamailio.pid", "-f", path, *defines])


def sipstone(verb, *options):
    out = f"{WORK}/{time.monotonic_ns()}.json"
    line = ["chrt", "-R", "-f", "50", f"{RELEASE}/sipstone", verb, *map(str, options), "--target", TARGET, "--domain", DOMAIN, "--cpus", "1", "--quiet",
            "--json", out]
    done = subprocess.run(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=WORK)
    if not os.path.exists(out):
        print(f"{' '.join(line)}\n{done.stderr}", file=sys.stderr)
        return None
    return json.load(open(out))


def cost(scenario, rate, args, sut, *options, warm_up=2.0):
    """One run; its figures, or why it does not count."""
    found = sipstone("run", scenario, "--rate", rate, "--users", args.users, "--warm-up", f"{warm_up}s", "--duration", f"{args.seconds}s", "--drain", "8s",
                     "--sut-exec", sut, "--sut-cpu", "0", "--sut-ready", "120s", *options)
    if found is None:
        return {"invalid": ["it could not be measured"], "good": 0, "carried": 0, "p50_ms": None}
    trial = found["subjects"][0]["trials"][-1]
    latency = trial["all"]["latency_sent"]
    return {
        "cpu_us": trial["cpu_us_per_op"], "carried": trial["throughput"], "good": trial["all"]["succeeded"] / max(trial["all"]["offered"], 1),
        "p50_ms": latency["p50_ms"], "p99_ms": latency["p99_ms"],
        "invalid": [why for why in trial["invalid"] if not why.startswith("the generator was late")],
    }


def table(rows, args, kept):
    """Runs all rows --repeat times, interleaved, and prints medians. A row: name, rate, function that measures."""
    for turn in range(args.repeat):
        for name, rate, measure in rows:
            print(f"{turn + 1}/{args.repeat} {name}, {rate}/s", file=sys.stderr)
            seen = measure()
            kept.setdefault(name, []).append(seen)
            if seen["invalid"]:
                print(f"  left out: {seen['invalid']}", file=sys.stderr)
    print("| load | CPU per operation | range | good | p50 | p99 |\n|---|---|---|---|---|---|")
    for name, rate, _ in rows:
        runs = [run for run in kept[name] if not run["invalid"] and run["cpu_us"] is not None]
        if not runs:
            print(f"| {name}, {rate:,}/s | – | | | | |")
            continue
        costs = sorted(run["cpu_us"] for run in runs)
        show = lambda q: statistics.median(run[q] if run[q] is not None else float("inf") for run in runs)
        print(f"| {name}, {rate:,}/s | {statistics.median(costs):.1f} µs | {costs[0]:.1f} to {costs[-1]:.1f} | "
              f"{statistics.mean(run['good'] for run in runs):.2%} | {show('p50_ms'):.2f} ms | {show('p99_ms'):.1f} ms |", flush=True)


def auth(args, kept):
    """A challenged operation has more messages than a plain one: so plain ones are also measured at the rate at which they have as many."""
    for base in args.bases:
        add_users(base, args.users)
    rows = []
    for scenario, rate, more in (("register", args.rate, 2), ("invite", args.rate / 2, 16 / 13)):
        if scenario not in args.scenarios:
            continue
        # All users once, and some of them twice: then Strowger remembers all, and all credentials have been asked for.
        warm_up = args.warm_up or max(2.0, 1.3 * args.users / rate)

        def row(label, rate, sut, how, scenario=scenario, warm_up=warm_up):
            rows.append((f"{scenario}, {label}", round(rate), lambda: cost(scenario, round(rate), args, sut, "--auth", how, warm_up=warm_up)))

        for server in args.servers:
            row(f"{server}, none", rate, command(server, args.bases[0]), "none")
            row(f"{server}, none, as many messages", rate * more, command(server, args.bases[0]), "none")
            for how in ("challenge", "cached"):
                for base in args.bases if "database" in args.secrets else ():
                    children = 8 if server == "kamailio" else 1
                    row(f"{server}, {base.name}, {how}", rate, command(server, base, auth="database", children=children), how)
                if "memory" in args.secrets:
                    row(f"{server}, memory, {how}", rate, command(server, args.bases[0], auth="memory", users=args.users), how)
    table(rows, args, kept.setdefault("auth", {}))


def persist(args, kept):
    """REGISTERs without authentication and challenged, and calls whose credentials are used again; secrets in memory."""
    for base in args.bases:
        add_users(base, args.users)
    rows = []
    for scenario, how, rate in (("register", "none", args.rate), ("register", "challenge", args.rate), ("invite", "cached", args.rate // 2)):
        if scenario not in args.scenarios:
            continue
        for base in args.bases:
            for server in args.servers:
                for mode in args.modes:
                    if mode == "memory" and base is not args.bases[0]:
                        continue
                    children = 8 if mode == "write-through" and server == "kamailio" else 1
                    sut = command(server, base, mode, auth=None if how == "none" else "memory", children=children, users=args.users)
                    label = f"{scenario}, {how}, {server}, {mode}" + ("" if mode == "memory" else f", {base.name}")
                    warm_up = 2.0 if how == "none" else args.warm_up or max(2.0, 1.3 * args.users / rate)

                    def measure(base=base, mode=mode, sut=sut, scenario=scenario, how=how, rate=rate, warm_up=warm_up):
                        if mode != "memory":
                            base.fill("location", ("ruid",), ())
                        return cost(scenario, rate, args, sut, "--auth", how, warm_up=warm_up)

                    rows.append((label, rate, measure))
    table(rows, args, kept.setdefault("persist", {}))


def share(args, kept):
    """What a mode costs of the CPU, compared with memory in the same turn: a host that is shared changes between two searches for a
    peak by more than what is looked for. At a rate that all of them carry, and at which a server has no time to wait."""
    seen, rows = kept.setdefault("share", {}), []
    for server in args.servers:
        for base in args.bases:
            for mode in args.modes:
                if mode == "memory" and base is not args.bases[0] or server == "kamailio" and mode == "write-through":
                    continue
                rows.append((base, server, mode, f"{server}, {mode}" + ("" if mode == "memory" else f", {base.name}")))
    for turn in range(args.repeat):
        # Each turn begins elsewhere, so that no mode always follows the same one.
        for base, server, mode, name in rows[turn % len(rows):] + rows[:turn % len(rows)]:
            if mode != "memory":
                base.fill("location", ("ruid",), ())
            rate = SHARE_RATE[server]
            run = cost("register", rate, args, command(server, base, mode), warm_up=4.0)
            seen.setdefault(name, []).append(run)
            left_out = f"; left out: {'; '.join(run['invalid'])}" if run["invalid"] else ""
            print(f"{turn + 1}/{args.repeat} {name}: {run['carried']:.0f} of {rate}, {run.get('cpu_us') or 0:.2f} µs{left_out}", file=sys.stderr, flush=True)
    print("| load | good | CPU per operation | memory's share of it in the same turn: median, quartiles | turns |\n|---|---|---|---|---|")
    for _, server, _, name in rows:
        pairs = [(run, memory) for run, memory in zip(seen[name], seen[f"{server}, memory"])
                 if run.get("cpu_us") and memory.get("cpu_us") and not run["invalid"] and not memory["invalid"]]
        if len(pairs) < 2:
            print(f"| {name}, {SHARE_RATE[server]:,}/s | – | | | {len(pairs)} |")
            continue
        low, middle, high = statistics.quantiles([memory["cpu_us"] / run["cpu_us"] for run, memory in pairs], n=4, method="inclusive")
        print(f"| {name}, {SHARE_RATE[server]:,}/s | {statistics.mean(run['good'] for run, _ in pairs):.2%} | "
              f"{statistics.median(run['cpu_us'] for run, _ in pairs):.2f} µs | {middle:.2f}, {low:.2f} to {high:.2f} | {len(pairs)} |", flush=True)


def keeps_up(run, rate):
    """Whether a server answers as fast as it is asked: it may get somewhat behind, but not more and more, and half of its answers come
    before they are asked for again (T1, RFC 3261 §17.1.2). What waits in the socket is some 100 ms of work by itself."""
    return run["good"] >= 0.99 and run["carried"] >= 0.95 * rate and (run["p50_ms"] or 1e9) < T1_MS


class Stairs:
    """Up and down (Dixon and Mood, 1948): a rate that is kept up with is followed by a higher one, another by a lower one, so that the
    rates come to stand around the one that half of the runs keep up with. The steps get smaller each time that it turns; what was before
    the last of them does not count."""

    STEPS = (1.5, 1.15, 1.07, 1.03)

    def __init__(self, rate):
        self.rate, self.turns, self.last, self.runs = rate, 0, None, []

    def take(self, run):
        passed = keeps_up(run, self.rate)
        if self.last not in (None, passed):
            self.turns += 1
        self.last = passed
        at = min(self.turns, len(self.STEPS) - 1)
        self.runs.append({"rate": round(self.rate), "passed": passed, "settled": at == len(self.STEPS) - 1, **run})
        self.rate = self.rate * self.STEPS[at] if passed else self.rate / self.STEPS[at]


def let_come_first(base, first):
    """Whether PostgreSQL gets its CPU before the generator with which it shares it: where answers wait for a commit it has to, as if it
    had one of its own; where none does, it would only have the generator ask less than it says."""
    if isinstance(base, Postgres):
        for pid in sh(["pgrep", "-P", str(base.process.pid)], check=False).split() + [str(base.process.pid)]:
            # A process that has ended since is none.
            sh(["chrt", *(["-f", "-p", "60"] if first else ["-o", "-p", "0"]), pid], check=False)


def peak(args, kept):
    """All modes in turn, each at a rate of its own, so that each sees the same host: one that is shared changes between two searches
    by more than what is looked for."""
    seen, rows = kept.setdefault("peak", {}), []
    for base in args.bases:
        for server in () if isinstance(base, Mariadb) else args.servers:
            for mode in args.modes:
                if mode == "memory" and base is not args.bases[0]:
                    continue
                children = 8 if mode == "write-through" and server == "kamailio" else 1
                name = f"{server}, {mode}" + ("" if mode == "memory" else f", {base.name}")
                stairs = Stairs(FIRST_RATE if server == "strowger" or mode != "write-through" else FIRST_RATE / 20)
                seen[name] = stairs.runs
                rows.append((base, mode, command(server, base, mode, children=children), name, stairs))
                if isinstance(base, Postgres) and mode == "write-back":
                    name, stairs = f"{server}, {BESIDE}", Stairs(FIRST_RATE)
                    seen[name] = stairs.runs
                    rows.append((base, BESIDE, command(server, base), name, stairs))
    for turn in range(args.repeat):
        # Each turn begins elsewhere, so that no mode always follows the same one.
        for base, mode, sut, name, stairs in rows[turn % len(rows):] + rows[:turn % len(rows)]:
            if stairs.rate < LEAST_RATE:
                continue
            base.fill("location", ("ruid",), ())
            let_come_first(base, mode == "write-through")
            with base.busy(args.users) if mode == BESIDE else contextlib.nullcontext():
                stairs.take(cost("register", round(stairs.rate), args, sut))
            run = stairs.runs[-1]
            print(f"{turn + 1}/{args.repeat} {name}: {run['carried']:.0f} of {run['rate']}, {run['good']:.1%} good, p50 {run['p50_ms'] or 0:.1f} ms: "
                  f"{'up' if run['passed'] else 'down'}", file=sys.stderr, flush=True)
    print("| server, mode | peak, REGISTERs a second: mean, quartiles | of memory's in the same turn: mean, quartiles | turns |\n|---|---|---|---|")
    for _, _, _, name, stairs in rows:
        server = name.split(",")[0]
        compared = [(name, f"{server}, memory")]
        if name == f"{server}, write-back, PostgreSQL":
            compared.append((f"the same, of {BESIDE}", f"{server}, {BESIDE}"))
        for label, other in compared:
            pairs = [(run["rate"], memory["rate"]) for run, memory in zip(stairs.runs, seen[other]) if run["settled"] and memory["settled"]]
            if len(pairs) < 2:
                print(f"| {label} | – | | {len(pairs)} |")
                continue
            rates, shares = [rate for rate, _ in pairs], [rate / memory for rate, memory in pairs]
            low, _, high = statistics.quantiles(rates, n=4, method="inclusive")
            below, _, above = statistics.quantiles(shares, n=4, method="inclusive")
            # Geometric: all steps are factors. A share's median would jump, as two modes that both take a step differ by none or two.
            print(f"| {label} | {statistics.geometric_mean(rates):,.0f}, {low:,.0f} to {high:,.0f} | "
                  f"{statistics.geometric_mean(shares):.3f}, {below:.2f} to {above:.2f} | {len(pairs)} |", flush=True)


def start(args, kept):
    seen = kept.setdefault("start", {})
    print(f"| {args.bindings:,} bindings | server | until it answers | memory |\n|---|---|---|---|")
    for base in args.bases:
        for server in SERVERS:
            runs = []
            add_bindings(base, args.bindings)
            # Strowger's first start takes over rows that others wrote, which is not what this is about.
            for turn in range(args.repeat + (server == "strowger")):
                line = command(server, base, "write-back", interval=60)
                begin = time.monotonic()
                process = subprocess.Popen(["taskset", "-c", "0,1", *line.split()], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                probe = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                probe.settimeout(0.02)
                options = (f"OPTIONS sip:nobody@{DOMAIN} SIP/2.0\r\nVia: SIP/2.0/UDP 127.0.0.1:{{}};branch=z9hG4bK{{}}\r\nMax-Forwards: 5\r\nFrom: <sip:a@b>;tag=1\r\n"
                           f"To: <sip:c@d>\r\nCall-ID: {{}}\r\nCSeq: 1 OPTIONS\r\nContent-Length: 0\r\n\r\n")
                probe.bind(("127.0.0.1", 0))
                while time.monotonic() - begin < 300 and process.poll() is None:
                    mark = time.monotonic_ns()
                    probe.sendto(options.format(probe.getsockname()[1], mark, mark).encode(), ("127.0.0.1", 5070))
                    try:
                        probe.recv(4096)
                        break
                    except OSError:
                        pass
                took = time.monotonic() - begin
                memory = sum(int(line.split()[1]) for line in open(f"/proc/{process.pid}/status") if line.startswith("VmRSS")) * 1024 if process.poll() is None else 0
                if turn > 0 or server == "kamailio":
                    runs.append({"seconds": took, "bytes": memory})
                process.terminate()
                process.wait()
            seen[f"{server} {base.name}"] = runs
            print(f"| {base.name} | {server} | {statistics.median(run['seconds'] for run in runs):.1f} s | {statistics.median(run['bytes'] for run in runs) / 1e6:,.0f} MB |", flush=True)


def main():
    parts = {"auth": auth, "persist": persist, "share": share, "peak": peak, "start": start}
    bases = {"sqlite": Sqlite, "postgres": Postgres, "mariadb": Mariadb}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--users", type=int, default=10_000)
    parser.add_argument("--bindings", type=int, default=1_000_000)
    parser.add_argument("--rate", type=int, default=1_000, help="REGISTERs a second in parts auth and persist; calls in part auth are half as many")
    parser.add_argument("--scenarios", nargs="+", choices=("register", "invite"), default=["register", "invite"], help="in parts auth and persist")
    parser.add_argument("--secrets", nargs="+", choices=("database", "memory"), default=["database", "memory"], help="in part auth")
    parser.add_argument("--warm-up", type=float, help="seconds, in parts auth and persist; if nothing is said, until all users have come by")
    parser.add_argument("--servers", nargs="+", choices=SERVERS, default=list(SERVERS), help="in all parts but start")
    parser.add_argument("--databases", nargs="+", choices=bases, default=list(bases))
    parser.add_argument("--only", nargs="+", choices=parts, default=list(parts))
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES), help="in parts persist, share and peak")
    parser.add_argument("--json")
    args = parser.parse_args()
    if "memory" not in args.modes and {"share", "peak"} & set(args.only):
        parser.error("parts share and peak compare with memory: --modes memory ...")
    kept = {"processor": next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), ""),
            "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "command": sys.argv[1:]}
    args.bases = [bases[name]() for name in args.databases]
    started = []
    try:
        for base in args.bases:
            base.start()
            started.append(base)
        for part in args.only:
            parts[part](args, kept)
            if args.json:
                json.dump(kept, open(args.json, "w"), indent=1)
    finally:
        for base in started:
            base.stop()
        shutil.rmtree(WORK, ignore_errors=True)


main()
