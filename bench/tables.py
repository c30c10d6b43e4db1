"""What is compared: tables of works, each of which yields one figure or more.

A work is run on fresh servers once for each contestant and pair. Its figures carry the
limit that is aimed at, on ours / C ("ratio") or on ours alone ("value").
"""

import contextlib
import dataclasses
import re
import signal
import socket
import threading
import time
import urllib.request
from typing import Callable

from servers import ServerError, free_port

@dataclasses.dataclass(frozen=True)
class Figure:
    """A line of a table."""

    title: str
    unit: str
    limit: float | None = None
    of: str = "ratio"


@dataclasses.dataclass(frozen=True)
class Work:
    """Something done to a server. `run` takes the bench and the contestant's name and
    returns one number for each figure, in order."""

    figures: list[Figure]
    contestants: tuple[str, ...]
    run: Callable


def load(figures, lines, nodes=1, aof=None):
    """A work that is one run of the load generator.

    `figures` maps a row and a field of its CSV to a figure; `lines` are the arguments by
    peer. Both Disque servers do the same. `aof` is the fsync policy of a run with an
    append only file.
    """
    words = ("--appendonly", "yes", "--appendfsync", aof) if aof else ()

    def run(bench, contestant):
        line = lines.get(contestant, lines["disque"])
        with bench.servers(contestant, nodes, words) as group:
            rows = bench.load(contestant, group, line)
            # Figures of a file that nobody wrote would look good.
            if aof and not all(node.aof_bytes() for node in group):
                raise ServerError("there is nothing in the AOF")
        return [rows[row].get(field) if row in rows else None for row, field in figures]

    contestants = ("ours", "c", *(name for name in lines if name != "disque"))
    return Work(list(figures.values()), contestants, run)


def cpu(title, limit=None):
    return Figure(title, "us", limit)


def speed(scale):
    """One node."""
    n = lambda jobs: max(1000, int(jobs * scale))
    deep = f"-P 16 -n {n(200_000)}"
    return [
        load(
            {
                ("add", "server_us"): cpu("ADDJOB 50x16", 0.35),
                ("get", "server_us"): cpu("GETJOB 50x16", 0.20),
                ("ack", "server_us"): cpu("ACKJOB 50x16", 0.45),
            },
            {
                "disque": f"{deep} -w add,get,ack",
                "list": f"{deep} -w add,get",
                "stream": f"{deep} -w add,get,ack",
            },
        ),
        load(
            {
                ("get", "server_us"): cpu("GETJOB COUNT 100, a job", 0.6),
                ("ack", "server_us"): cpu("ACKJOB of 100, a job", 0.35),
            },
            {"disque": f"{deep} -w add,get,ack --count 100"},
        ),
        load(
            {
                ("add", "server_us"): cpu("ADDJOB 50x1", 0.75),
                ("drain", "server_us"): cpu("GETJOB and ACKJOB 50x1", 0.85),
            },
            {
                name: f"-n {n(50_000)} -w add-drain"
                for name in ("disque", "list", "stream", "beanstalkd")
            },
        ),
        load(
            {("mix", "server_us"): cpu("add, deliver to a waiting client, ack", 0.80)},
            {
                name: f"-n {n(100_000)} -w mix"
                for name in ("disque", "list", "reliable", "stream", "beanstalkd")
            },
        ),
        *(
            load(
                {("add", "server_us"): cpu(f"ADDJOB 50x16, AOF {policy}", 0.45)},
                {name: f"{deep} -w add" for name in ("disque", "list", "stream")},
                aof=policy,
            )
            for policy in ("everysec", "always")
        ),
        load(
            {
                ("add", "server_us"): cpu("ADDJOB of 64 KiB 50x1", 0.65),
                ("get", "server_us"): cpu("GETJOB of 64 KiB 50x1", 0.65),
            },
            {name: f"-n {n(5_000)} -d 65536 -w add,get" for name in ("disque", "list", "stream")},
        ),
        growth(n(5_000_000), n(20_000)),
        many_queues(n(200_000)),
    ]


def growth(jobs, sample):
    def run(bench, contestant):
        # Both refuse jobs at 1 GB otherwise.
        with bench.servers(contestant, 1, ("--maxmemory", "8gb")) as group:
            measure = lambda line: bench.load(contestant, group, f"-P 16 {line}")
            few = measure(f"-n {sample} -w add,get,ack")
            measure(f"-n {jobs} -w add")
            add = measure(f"-n {sample} -w add")["add"]["server_us"]
            ack = measure(f"-n {sample} -w get,ack")["ack"]["server_us"]
            random = measure(f"-n {sample} -w get,ack --random-acks")["ack"]["server_us"]
        few_add, few_ack = few["add"]["server_us"], few["ack"]["server_us"]
        return [add / few_add, ack / few_ack, random / few_ack]

    figures = [
        Figure(f"ADDJOB with {jobs:,} jobs queued / with few", "x", 1.3, "value"),
        Figure("ACKJOB the same, in order", "x", 1.3, "value"),
        Figure("ACKJOB the same, random order", "x", 2.0, "value"),
    ]
    return Work(figures, ("ours", "c"), run)


def many_queues(jobs):
    def run(bench, contestant):
        cost = []
        for queues in (1, 100_000):
            with bench.servers(contestant) as group:
                line = f"-P 16 -n {jobs} --queues {queues} -w add"
                cost.append(bench.load(contestant, group, line)["add"]["server_us"])
        return [cost[1] / cost[0]]

    figure = Figure("ADDJOB to 100,000 queues / to one", "x", 1.3, "value")
    return Work([figure], ("ours", "c"), run)


def cluster(scale):
    """Three nodes on one machine; CPU of all three."""
    n = lambda jobs: max(500, int(jobs * scale))
    return [
        load(
            {
                ("add", "server_us"): cpu("ADDJOB REPLICATE 3 50x1", 0.55),
                ("ack", "server_us"): cpu("ACKJOB after it 50x1", 0.60),
            },
            {"disque": f"-n {n(30_000)} --replicate 3 -w add,get,ack"},
            nodes=3,
        ),
        load(
            {("add", "server_us"): cpu("ADDJOB REPLICATE 3 ASYNC 50x16", 0.45)},
            {"disque": f"-n {n(100_000)} -P 16 --replicate 3 --async -w add"},
            nodes=3,
        ),
        load(
            {("add", "server_us"): cpu("ADDJOB REPLICATE 3 of 64 KiB 50x1", 0.25)},
            {"disque": f"-n {n(2_000)} -d 65536 --replicate 3 -w add"},
            nodes=3,
        ),
        load(
            {
                ("federation", "p50_us"): Figure("producer on A, consumer on B, p50", "us"),
                ("federation", "p99_us"): Figure("the same, p99", "us", 5000, "value"),
            },
            {"disque": "-w federation -c 10 --producers 5 --rate 200 --seconds 5"},
            nodes=2,
        ),
        urgent(200),
        given_back(max(5, round(60 * scale))),
        waiters(10_000),
        slow_node(max(100, n(1000))),
        quiet_nodes(max(5, round(20 * scale))),
    ]


def messages_sent(group):
    """How many messages all nodes have sent to each other so far."""
    lines = (line for node in group for line in node.ask("CLUSTER", "INFO").split("\r\n"))
    sent = "cluster_stats_messages_sent:"
    return sum(int(line.removeprefix(sent)) for line in lines if line.startswith(sent))


@contextlib.contextmanager
def in_slices(node, runs_secs, stands_secs):
    """Lets a node run for a moment and stand still for one, in turn, as one does that swaps."""
    is_over = threading.Event()

    def slice_it():
        while not is_over.wait(runs_secs):
            node.process.send_signal(signal.SIGSTOP)
            is_over.wait(stands_secs)
            node.process.send_signal(signal.SIGCONT)

    thread = threading.Thread(target=slice_it)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def slow_node(jobs):
    """Producers of three nodes of which one stands still most of the time."""
    ways = {"REPLICATE 3": (), "REPLICATE 3 SYNC 2": ("SYNC", 2)}

    def run(bench, contestant):
        values = []
        for words in ways.values():
            if words and contestant == "c":
                values += [None, None]
                continue
            took_us = []
            with bench.servers(contestant, 3) as group, in_slices(group[2], 0.005, 0.05):
                with group[0].connect() as client:
                    for _ in range(jobs):
                        begun_at = time.monotonic()
                        client.ask("ADDJOB", "q", "body", 5000, "REPLICATE", 3, *words)
                        took_us.append((time.monotonic() - begun_at) * 1e6)
            took_us.sort()
            values += [took_us[jobs // 2], took_us[jobs * 99 // 100]]
        return values

    figures = []
    for name, words in ways.items():
        figures.append(Figure(f"{name}, one node of three is slow, p50", "us"))
        aim = (5000, "value") if words else ()
        figures.append(Figure("the same, p99", "us", *aim))
    return Work(figures, ("ours", "c"), run)


def quiet_nodes(secs):
    """Three nodes that have nothing to do; ours with all settings that make nodes speak."""

    def run(bench, contestant):
        words = ()
        if contestant == "ours":
            words = ("--availability-zone", "a", "--cluster-name", "bench",
                     "--cluster-forget-after", "3600")  # fmt: skip
        with bench.servers(contestant, 3, words) as group:
            before, cpu_before = messages_sent(group), sum(node.cpu_secs() for node in group)
            time.sleep(secs)
            messages = messages_sent(group) - before
            cpu_secs = sum(node.cpu_secs() for node in group) - cpu_before
        return [messages / secs / 3, cpu_secs / secs / 3 * 100]

    figures = [
        Figure("messages of a quiet node of three", "/s", 6, "value"),
        Figure("its CPU", "%"),
    ]
    return Work(figures, ("ours", "c"), run)


def urgent(count):
    """Urgent jobs on a node without consumers, while those of another have bulk work."""
    bulk = 200_000

    def run(bench, contestant):
        took_us = []
        with bench.servers(contestant, 2) as group:
            bench.load(contestant, group[1:], f"-P 16 -n {bulk} -w add")
            is_over = threading.Event()

            def consume():
                with group[1].connect() as client:
                    while not is_over.is_set():
                        [[_, job_id, body]] = client.ask("GETJOB", "FROM", "q")
                        if body.startswith("urgent "):
                            took_us.append((time.monotonic() - float(body.split()[1])) * 1e6)
                        client.ask("ACKJOB", job_id)

            consumer = threading.Thread(target=consume)
            consumer.start()
            with group[0].connect() as producer:
                for _ in range(count):
                    body = f"urgent {time.monotonic()}"
                    producer.ask("ADDJOB", "q", body, 0, "REPLICATE", 1, "PRIORITY", 1)
                    time.sleep(0.03)
                deadline = time.monotonic() + 5
                while len(took_us) < count and time.monotonic() < deadline:
                    time.sleep(0.05)
            is_over.set()
            consumer.join()
        if len(took_us) < count:
            raise ServerError(f"{len(took_us)} of {count} urgent jobs came")
        took_us.sort()
        return [took_us[count // 2], took_us[count * 99 // 100]]

    figures = [
        Figure("urgent job on A, consumer with bulk work on B, p50", "us"),
        Figure("the same, p99", "us", 50_000, "value"),
    ]
    return Work(figures, ("ours",), run)


def given_back(secs):
    """Consumers on three nodes give back whatever they get."""
    jobs = 1000

    def run(bench, contestant):
        with bench.servers(contestant, 3) as group:
            bench.load(contestant, group, f"-n {jobs} --replicate 3 -w add")
            before = [node.cpu_secs() for node in group], messages_sent(group)
            resident = [node.resident_bytes() for node in group]
            ends_at = time.monotonic() + secs
            counts = []

            def give_back(node):
                with node.connect() as client:
                    count = 0
                    while time.monotonic() < ends_at:
                        for _, job_id, _ in client.ask("GETJOB", "TIMEOUT", 100, "FROM", "q") or ():
                            count += client.ask("NACK", job_id)
                    counts.append(count)

            threads = [threading.Thread(target=give_back, args=(node,)) for node in group]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            cpu_secs = sum(node.cpu_secs() for node in group) - sum(before[0])
            grown = max(node.resident_bytes() - was for node, was in zip(group, resident))
            messages = messages_sent(group) - before[1]
            nacks = max(1, sum(counts))
        return [nacks / secs, cpu_secs * 1e6 / nacks, messages / nacks, grown / 1024]

    title = f"three nodes, {jobs:,} jobs on each, all given back for {secs} s"
    figures = [
        Figure(f"{title}: NACKs", "/s"),
        Figure("the same, CPU a NACK, all nodes", "us"),
        Figure("the same, messages a NACK", ""),
        Figure("the same, memory that a node gained", "KiB", 4096, "value"),
    ]
    return Work(figures, ("ours", "c"), run)


def waiters(count):
    """Clients that wait for the end of a job, while nothing ends."""
    secs = 5

    def run(bench, contestant):
        words = ("--maxclients", str(count + 100))
        with bench.servers(contestant, words=words) as group, contextlib.ExitStack() as clients:
            job_id = group[0].ask("ADDJOB", "q", "body", 0)
            request = b"*4\r\n$7\r\nWAITJOB\r\n$7\r\nTIMEOUT\r\n$6\r\n600000\r\n$40\r\n%s\r\n"
            for _ in range(count):
                clients.enter_context(group[0].connect()).link.sendall(request % job_id.encode())
            while f"blocked_clients:{count}" not in group[0].ask("INFO", "clients"):
                time.sleep(0.05)
            before = group[0].cpu_secs()
            time.sleep(secs)
            return [(group[0].cpu_secs() - before) / secs * 100]

    figure = Figure(f"CPU of a server with {count:,} clients in WAITJOB", "%", 2, "value")
    return Work([figure], ("ours",), run)


def memory(scale):
    """Memory and disk."""
    jobs = max(10_000, int(1_000_000 * scale))
    return [
        resident(jobs),
        churned(jobs // 10),
        loading(jobs),
        rewriting(jobs),
        connections(max(500, min(5_000, int(5_000 * scale)))),
    ]


def resident(jobs):
    def run(bench, contestant):
        with bench.servers(contestant) as group:
            rows = bench.load(contestant, group, f"-P 16 -n {jobs} -w add")
        return [(rows["add"]["resident_after"] - rows["add"]["resident_before"]) / jobs]

    figure = Figure(f"resident bytes a job, {jobs:,} jobs", "B", 220, "value")
    return Work([figure], ("ours", "c", "list", "stream", "beanstalkd"), run)


def churned(jobs):
    rounds = 10
    sizes = (64, 300, 20, 1000, 100)
    # jemalloc gives back what has been free for ten seconds.
    settles_secs = 12

    def run(bench, contestant):
        with bench.servers(contestant) as group:
            bench.load(contestant, group, f"-P 16 -n {3 * jobs} -w add")
            for size in rounds * sizes:
                bench.load(contestant, group, f"-P 16 -n {jobs} -d {size} -w add,get,ack")
            time.sleep(settles_secs)
            counted = re.search(r"used_memory:(\d+)", group[0].ask("INFO", "memory"))
            return [group[0].resident_bytes() / int(counted[1])]

    came = rounds * len(sizes) * jobs
    figure = Figure(f"resident / counted, {came:,} jobs later", "x", 1.2, "value")
    return Work([figure], ("ours", "c"), run)


def loading(jobs):
    def run(bench, contestant):
        with bench.servers(contestant, 1, ("--appendonly", "yes")) as group:
            bench.load(contestant, group, f"-P 16 -n {jobs} -w add")
            group[0].stop()
            secs = group[0].start()
            # Not QLEN: they come back active, and are queued when their retry is due.
            if f"registered_jobs:{jobs}" not in group[0].ask("INFO", "jobs"):
                raise ServerError("the jobs are not there after a restart")
            return [secs * 1e6 / jobs]

    figure = Figure("loading the AOF, a job", "us", 1.5, "value")
    return Work([figure], ("ours", "c"), run)


def rewriting(jobs):
    def run(bench, contestant):
        with bench.servers(contestant, 1, ("--appendonly", "yes")) as group:
            bench.load(contestant, group, f"-P 16 -n {jobs} -w add")
            with bench.probe(contestant, group, secs=8) as probe:
                time.sleep(1)
                group[0].ask("BGREWRITEAOF")
        return [probe.worst_us()]

    figure = Figure("worst delivery while the AOF is rewritten", "us", 5000, "value")
    return Work([figure], ("ours", "c"), run)


def connections(count):
    """Connections that pipelined a little work and read all replies, at once and after
    they have been silent for longer than buffers are kept."""
    silent_secs = 15
    ping = b"*1\r\n$4\r\nPING\r\n"

    def run(bench, contestant):
        with bench.servers(contestant) as group, contextlib.ExitStack() as links:
            node = group[0]
            before = node.resident_bytes()
            each = lambda: (node.resident_bytes() - before) / count
            sockets = []
            for _ in range(count):
                address = ("127.0.0.1", node.port)
                link = links.enter_context(socket.create_connection(address, 60))
                sockets.append(link)
                read_to(link, ping, b"+PONG\r\n")
            idle = each()
            # 16 KiB of answers: what the C server keeps within a client.
            long = b"*2\r\n$4\r\nPING\r\n$1024\r\n" + b"x" * 1024 + b"\r\n"
            for link in sockets:
                read_to(link, 16 * long + ping, b"+PONG\r\n")
            active = each()
            time.sleep(silent_secs)
            return [idle, active, each()]

    figures = [
        Figure("an idle connection", "B", 3 * 1024, "value"),
        Figure("an active connection, 16 KiB pipelined both ways", "B"),
        Figure(f"the same after {silent_secs} s of silence", "B", 3 * 1024, "value"),
    ]
    return Work(figures, ("ours", "c"), run)


def read_to(link, request, end):
    """Sends a request and reads until the answers end with `end`."""
    link.sendall(request)
    got = b""
    while not got.endswith(end):
        more = link.recv(1 << 16)
        if not more:
            raise EOFError("the server closed the connection")
        got = (got + more)[-len(end) :]


def stall(scale):
    """Never stall."""
    jobs = max(10_000, int(500_000 * scale))
    clients = max(100, int(10_000 * scale))
    return [
        retries(jobs),
        delays(jobs),
        long_commands(jobs),
        moves(jobs // 5, nodes=1),
        moves(jobs // 5, nodes=3),
        quiet(0),
        quiet(max(1_000, jobs // 5)),
        load(
            {
                ("wait", "p50_us"): Figure(
                    f"lateness of GETJOB's timeout, {clients:,} blocked, p50", "us"
                ),
                ("wait", "max_us"): Figure("the same, worst", "us", 20_000, "value"),
            },
            {"disque": f"-w wait -c {clients} -n {clients} --timeout 3000"},
        ),
        late_producers(clients - 100),
        scrapes(10_000),
    ]


def retries(jobs):
    retry_secs = 15

    def run(bench, contestant):
        with bench.servers(contestant) as group:
            line = f"-P 16 -n {jobs} -w add,get --count 100"
            bench.load(contestant, group, [*line.split(), "--with", f"RETRY {retry_secs}"])
            with bench.probe(contestant, group, secs=retry_secs + 3) as probe:
                pass
        return [probe.worst_us()]

    figure = Figure(f"worst delivery while {jobs:,} retries fall due", "us", 5000, "value")
    return Work([figure], ("ours", "c"), run)


def delays(jobs):
    wait_secs = 15
    parts = 10

    def run(bench, contestant):
        with bench.servers(contestant) as group:
            due_at = time.monotonic() + wait_secs
            # A delay has whole seconds: later parts get shorter ones.
            for _ in range(parts):
                delay = max(1, round(due_at - time.monotonic()))
                words = ["--with", f"DELAY {delay} RETRY 60"]
                line = f"-P 16 -n {jobs // parts} -w add"
                bench.load(contestant, group, [*line.split(), *words])
            left_secs = max(1, round(due_at - time.monotonic()))
            with bench.probe(contestant, group, secs=left_secs + 3) as probe:
                pass
        return [probe.worst_us()]

    figure = Figure(f"worst delivery while {jobs:,} delayed jobs fall due", "us", 5000, "value")
    return Work([figure], ("ours", "c"), run)


def long_commands(jobs):
    commands = [
        ("JSCAN", "0", "COUNT", 10 * jobs, "REPLY", "all"),
        ("QPEEK", "q", jobs),
        ("GETJOB", "NOHANG", "COUNT", jobs, "FROM", "q"),
    ]

    def run(bench, contestant):
        worst = []
        with bench.servers(contestant) as group:
            bench.load(contestant, group, f"-P 16 -n {jobs} -w add")
            for command in commands:
                with bench.probe(contestant, group, secs=6) as probe:
                    time.sleep(1)
                    group[0].ask(*command)
                worst.append(probe.worst_us())
        return worst

    figures = [
        Figure(f"worst delivery beside {command[0]} of {jobs:,} jobs", "us", 100_000, "value")
        for command in commands
    ]
    return Work(figures, ("ours", "c"), run)


def moves(jobs, nodes):
    """A queue goes to another one, job by job, and is emptied then."""
    commands = [("QMOVE", "q", "target"), ("QPURGE", "target")]
    count_max = 10_000

    def run(bench, contestant):
        worst = []
        with bench.servers(contestant, nodes) as group:
            bench.load(contestant, group, f"-P 16 -n {jobs} -w add")
            for command in commands:
                done = 0
                with bench.probe(contestant, group, secs=6) as probe:
                    time.sleep(1)
                    for node in group:
                        while moved := node.ask(*command, "COUNT", count_max):
                            done += moved
                if done != jobs:
                    raise ServerError(f"{command[0]} was done to {done} of {jobs} jobs")
                worst.append(probe.worst_us())
        return worst

    on = "one node" if nodes == 1 else f"{nodes} nodes, copies on each"
    # With copies the probe's own wait behind what the nodes say of each move.
    limit_us = 10_000 if nodes == 1 else 100_000
    title = f"of {jobs:,} jobs, {on}"
    figures = [
        Figure(f"worst delivery beside {command[0]} {title}", "us", limit_us, "value")
        for command in commands
    ]
    return Work(figures, ("ours",), run)


def quiet(jobs):
    """Half of the jobs queued, half with a delay."""
    secs = 5

    def run(bench, contestant):
        with bench.servers(contestant) as group:
            if jobs:
                line = ["-P", "16", "-n", str(jobs), "-w", "add"]
                bench.load(contestant, group, line)
                bench.load(contestant, group, [*line, "--with", "DELAY 3600 RETRY 3600"])
            before = group[0].wakeups()
            time.sleep(secs)
            return [(group[0].wakeups() - before) / secs]

    title = "wake-ups a second with jobs and nothing due" if jobs else "wake-ups a second when idle"
    return Work([Figure(title, "/s", 12, "value")], ("ours", "c"), run)


def late_producers(clients):
    """A producer whose copies never arrive, beside clients that wait: the other node is
    frozen, and not yet held for failed."""
    timeout_secs = 0.3
    tries = 20

    def run(bench, contestant):
        with bench.servers(contestant, 2) as group:
            line = f"-w wait -c {clients} -n {clients} --timeout 60000"
            with bench.crowd(contestant, group[:1], line):
                while f"blocked_clients:{clients}" not in group[0].ask("INFO", "clients"):
                    time.sleep(0.05)
                group[1].freeze()
                late = []
                for _ in range(tries):
                    begun_at = time.monotonic()
                    try:
                        group[0].ask("ADDJOB", "q", "", int(timeout_secs * 1000), "REPLICATE", 2)
                        raise EOFError("a frozen node has acknowledged a copy")
                    except ServerError:
                        late.append((time.monotonic() - begun_at - timeout_secs) * 1e6)
                return [max(late)]

    figure = Figure(
        f"lateness of ADDJOB's timeout beside {clients:,} blocked, worst", "us", 20_000, "value"
    )
    return Work([figure], ("ours", "c"), run)


def scrapes(queues):
    """What asks the HTTP port, beside a probe: a scraper, three open pages, and scrapers
    without a pause."""
    secs = 10
    page = ("/api/overview", "/api/queues?sort=length&limit=100&filter=")
    askers = {
        "nobody": [],
        "a scrape a second": [(("/metrics",), 1)],
        "three open pages": 3 * [(page, 2)],
        "four scrapers without a pause": 4 * [(("/metrics",), 0)],
    }

    def run(bench, contestant):
        values = []
        port = free_port()
        with bench.servers(contestant, words=("--http-port", str(port))) as group:
            line = f"-P 16 -n {queues} -w add --queues {queues}"
            bench.load(contestant, group, line)
            for asked in askers.values():
                is_over = threading.Event()
                counts = []
                threads = [
                    threading.Thread(target=ask_again, args=(port, *them, is_over, counts))
                    for them in asked
                ]
                with bench.probe(contestant, group, secs=secs) as probe:
                    for thread in threads:
                        thread.start()
                    before = group[0].cpu_secs()
                    time.sleep(secs - 2)
                    cpu = group[0].cpu_secs() - before
                    is_over.set()
                    for thread in threads:
                        thread.join()
                values += [probe.worst_us(), cpu / (secs - 2) * 100]
                if len(asked) == 4:
                    values.append(cpu * 1000 / max(1, len(counts)))
        return values

    figures = []
    for name in askers:
        figures.append(Figure(f"worst delivery, {queues:,} queues, {name}", "us", 5000, "value"))
        figures.append(Figure(f"CPU of the server, {name}", "%"))
    figures.append(Figure("CPU of a scrape, the probe's part included", "ms"))
    return Work(figures, ("ours",), run)


def ask_again(port, paths, period_secs, is_over, counts):
    """Asks the HTTP port until it is over; counts the answers."""
    while not is_over.is_set():
        for path in paths:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
                answer.read()
            counts.append(path)
        is_over.wait(period_secs)


TABLES = {"speed": speed, "cluster": cluster, "memory": memory, "stall": stall}
