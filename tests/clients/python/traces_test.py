"""Every command shape that 24 client libraries were seen to send is sent, in a state in which
the server answers as the C server did, and the shape of the answer is compared.

The rows are in `tests/golden/traces.tsv`, which also explains the notation. Scenarios below
bring the server into the states; a row that no scenario produced fails the test of its command.
"""

import collections
import contextlib
import os
import pathlib
import re
import socket
import unittest

from servers import Server
from support import JOB_ID, PATIENCE_SECS, QSTAT_FIELDS, SHOW_FIELDS, wait_until

GOLDEN = pathlib.Path(__file__).parents[2] / "golden" / "traces.tsv"
ON_ONE_NODE, IN_A_CLUSTER = (
    [tuple(line.split("\t")) for line in part.splitlines() if not line.startswith("#")]
    for part in GOLDEN.read_text().split("# in a cluster\n")
)
# The words that stand as themselves in a command's shape.
KEYWORDS = {
    word
    for command, _ in ON_ONE_NODE + IN_A_CLUSTER
    for word in command.split(" ")[1:]
    if not word.startswith("<")
}
# Rows that ours answers otherwise.
OURS = {
    # Redis' clients choose the one database there is.
    ("SELECT <n>", "-ERR unknown command 'SELECT'"): ("SELECT <n>", "+OK"),
}
MISSING = "D-00000000-000000000000000000000000-0000"


# The wire


class Status(str):
    """A simple string."""


class Error(str):
    """An error line."""


class Connection:
    """A client that sends words and reads any reply; it keeps the shapes of both."""

    def __init__(self, port, seen):
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE_SECS)
        self._file = self._socket.makefile("rb")
        self._seen = seen
        self.address = "%s:%d" % self._socket.getsockname()

    def ask(self, line, *more):
        """Sends the words of `line` and `more`, which may be empty or hold spaces."""
        words = [word.encode() for word in [*line.split(), *more]]
        self.send(b"*%d\r\n" % len(words))
        self.send(b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words))
        reply = self._read()
        self._seen.add((command_shape(words), reply_shape(reply)))
        return reply

    def ask_inline(self, line):
        self.send(line.encode() + b"\r\n")
        reply = self._read()
        self._seen.add((f"INLINE {line}", reply_shape(reply)))
        return reply

    def send(self, data):
        self._socket.sendall(data)

    def close(self):
        self._file.close()
        self._socket.close()

    def _read(self):
        line = self._file.readline()
        kind, rest = line[:1], line[1:].rstrip(b"\r\n")
        if kind == b"+":
            return Status(rest.decode())
        if kind == b"-":
            return Error(rest.decode())
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return NoBulk if rest == b"-1" else self._file.read(int(rest) + 2)[:-2]
        if kind == b"*":
            return NoArray if rest == b"-1" else [self._read() for _ in range(int(rest))]
        raise AssertionError(f"no reply: {line!r}")


class NoBulk:
    """The null bulk string."""


class NoArray:
    """The null array."""


# The notation


def command_shape(words):
    name, *arguments = (word.decode() for word in words)
    shape = [name]
    for word in arguments:
        if JOB_ID.fullmatch(word.encode()):
            kind = "<jobid>"
        elif re.fullmatch(r"-?\d+", word):
            kind = "<n>"
        else:
            kind = word if word in KEYWORDS else "<s>"
        if kind.startswith("<") and shape[-1].rstrip("+") == kind:
            shape[-1] = kind + "+"
        else:
            shape.append(kind)
    return " ".join(shape)


def reply_shape(reply, literal=False):
    """`literal` keeps the text of a bulk string: a name, or a word of a fixed set."""
    if reply is NoBulk:
        return "$-1"
    if reply is NoArray:
        return "*-1"
    if isinstance(reply, Error):
        return f"-{reply}"
    if isinstance(reply, Status):
        return "+<jobid>" if JOB_ID.fullmatch(reply.encode()) else f"+{reply}"
    if isinstance(reply, int):
        return ":int"
    if isinstance(reply, bytes):
        if JOB_ID.fullmatch(reply):
            return "$<jobid>"
        return f"${reply.decode()}" if literal else "$bulk"
    items = [reply_shape(item, place in literal_places(reply)) for place, item in enumerate(reply)]
    if items and all(item.startswith("+") and item != "+<jobid>" for item in items):
        return "*n[+flag]"
    runs = []
    for item in items:
        if runs and runs[-1][0] == item:
            runs[-1][1] += 1
        else:
            runs.append([item, 1])
    count = "n" if len(runs) == 1 and runs[0][1] >= 5 else len(items)
    return f"*{count}[{' '.join(repeated(*run) for run in runs)}]"


def repeated(item, times):
    return item if times == 1 else f"{item}x{'n' if times >= 5 else times}"


def literal_places(row):
    """Where a row of SHOW, QSTAT or WITHCOUNTERS has names, or its state."""
    if row[::2] == SHOW_FIELDS:
        return {*range(0, 30, 2), 5}
    if row[::2] == QSTAT_FIELDS:
        return {*range(0, 20, 2), 19}
    return {3, 5} if len(row) == 7 and row[3] == b"nacks" else set()


# Scenarios on one node


class Node:
    """A server and a first connection to it."""

    def __init__(self, server, seen):
        self.server = server
        self.seen = seen
        self.client = self.connect()
        self.ask = self.client.ask

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.client.close()

    def connect(self):
        return Connection(self.server.port, self.seen)

    def info(self, field):
        text = self.ask("INFO").decode()
        return re.search(rf"^{field}:(.*)\r$", text, re.MULTILINE)[1]

    def block(self, line):
        """Sends a command that must not be answered, waits until it blocks, and hangs up."""
        client = self.connect()
        client.send(line.encode() + b"\r\n")
        wait_until(lambda: self.info("blocked_clients") == "1", f"{line} blocks")
        client.close()
        wait_until(lambda: self.info("blocked_clients") == "0", "the client is forgotten")
        self.seen.add((command_shape(line.encode().split()), "(blocks)"))


def adding(node):
    for options in (
        "",
        "DELAY 1",
        "REPLICATE 1",
        "REPLICATE 1 DELAY 1 RETRY 60 TTL 600 ASYNC",
        "REPLICATE 1 DELAY 1 RETRY 60 TTL 600 MAXLEN 100 ASYNC",
        "REPLICATE 1 RETRY 60",
        "REPLICATE 1 RETRY 60 TTL 600 MAXLEN 100 DELAY 1 ASYNC",
        "RETRY 60",
        "RETRY 60 TTL 600",
        "TTL 600",
        "TTL 600 ASYNC",
        "async",
        "async ttl 600",
        "delay 1",
        "maxlen 100",
        "maxlen 1",
        "replicate 3",
        "retry 60",
        "ttl 600",
    ):
        node.ask(f"ADDJOB adding body 0 {options}")
    for options in ("", "MAXLEN 100", "MAXLEN 1", "maxlen 100"):
        node.ask(f"addjob adding body 0 {options}")


def fetching(node):
    for line, counts in (
        ("GETJOB COUNT 10 FROM q", (1, 2, 3)),
        ("GETJOB COUNT 10 FROM q r", (1, 2)),
        ("GETJOB COUNT 10 TIMEOUT 20 FROM q", (0, 1, 5)),
        ("GETJOB COUNT 10 WITHCOUNTERS FROM q", (1, 2, 5)),
        ("GETJOB FROM q", (1,)),
        ("GETJOB NOHANG COUNT 10 FROM q", (0, 1, 2, 3)),
        ("GETJOB NOHANG COUNT 10 WITHCOUNTERS FROM q", (0,)),
        ("GETJOB NOHANG FROM q", (0, 1)),
        ("GETJOB NOHANG WITHCOUNTERS FROM q", (0,)),
        ("GETJOB TIMEOUT 20 COUNT 10 FROM q", (0, 1, 2)),
        ("GETJOB TIMEOUT 20 COUNT 10 FROM q r", (2,)),
        ("GETJOB TIMEOUT 20 COUNT 10 WITHCOUNTERS FROM q", (0, 1, 2)),
        ("GETJOB TIMEOUT 20 FROM q", (0, 1)),
        ("GETJOB TIMEOUT 20 WITHCOUNTERS FROM q", (0, 1)),
        ("GETJOB TIMEOUT 20 WITHCOUNTERS FROM q r", (1,)),
        ("GETJOB WITHCOUNTERS FROM q", (1,)),
        ("getjob from q", (1,)),
    ):
        for count in counts:
            for n in range(count):
                node.ask(f"ADDJOB q body-{n} 0")
            node.ask(line)
    node.block("GETJOB COUNT 10 WITHCOUNTERS FROM q")
    node.block("GETJOB TIMEOUT 60000 COUNT 10 FROM q")
    node.block("GETJOB TIMEOUT 60000 FROM q")


def handling_jobs(node):
    for command in "ENQUEUE DEQUEUE NACK WORKING ACKJOB ackjob FASTACK DELJOB".split():
        ids = [node.ask("ADDJOB handled body 0") for _ in range(3)]
        node.ask(f"{command} {ids[0]}")
        if command != "WORKING":
            node.ask(f"{command} {ids[1]} {ids[2]}")
        node.ask(f"{command} nonsense")


def looking_at_jobs(node):
    job_id = node.ask("ADDJOB seen body 0")
    node.ask(f"SHOW {job_id}")
    node.ask("QPEEK seen 2")
    node.ask("QSTAT seen")
    node.ask("ADDJOB seen body 0")
    node.ask("QPEEK seen 2")
    node.ask("QLEN seen")
    node.ask("qlen seen")
    node.ask("GETJOB FROM seen")
    node.ask(f"SHOW {job_id}")
    node.ask(f"show {job_id}")
    node.ask(f"SHOW {MISSING}")
    node.ask("SHOW nonsense")
    node.ask("QPEEK unknown 2")
    node.ask("QSTAT unknown")


def pausing(node):
    node.ask("PAUSE paused STATE")
    node.ask("PAUSE paused in")
    node.ask("ADDJOB paused body 0")
    node.ask("PAUSE paused none")
    node.ask("PAUSE paused BCAST ALL")
    node.ask("PAUSE paused BCAST NONE")
    node.ask("PAUSE paused NONE")


def scanning_jobs(node):
    node.ask("ADDJOB one body 0")
    for line in (
        "0 BUSYLOOP QUEUE one",
        "0 QUEUE one",
        "0 QUEUE one REPLY all",
        "BUSYLOOP QUEUE one STATE queued REPLY id",
        "COUNT 100 QUEUE one 0",
        "COUNT 100 QUEUE other 0",
        "COUNT 100 QUEUE one REPLY all 0",
        "COUNT 100 QUEUE other REPLY all 0",
        "COUNT 100 QUEUE one STATE active 0",
        "QUEUE other",
    ):
        node.ask(f"JSCAN {line}")
    node.ask("ADDJOB one body 0")
    node.ask("JSCAN 0 BUSYLOOP QUEUE one")
    node.ask("JSCAN 0 BUSYLOOP QUEUE one STATE queued REPLY all")
    node.ask("JSCAN QUEUE one")
    node.ask("ADDJOB one body 0")
    node.ask("JSCAN 0 QUEUE one REPLY id")
    for _ in range(3):
        node.ask("ADDJOB one body 0")
    for line in (
        "0 REPLY id",
        "COUNT 100 REPLY id",
        "COUNT 100 0",
        "COUNT 100 0 REPLY id",
        "REPLY id",
    ):
        node.ask(f"JSCAN {line}")
    node.ask("DEBUG FLUSHALL")
    node.ask("ADDJOB one body 0")
    node.ask("GETJOB FROM one")
    node.ask("JSCAN COUNT 100 REPLY all 0")


def scanning_queues(node):
    node.ask("ADDJOB only body 0")
    for line in ("", "0", "0 BUSYLOOP MINLEN 1"):
        node.ask(f"QSCAN {line}")
    for n in range(6):
        node.ask(f"ADDJOB queue-{n} body 0")
    for line in (
        "",
        "0",
        "0 BUSYLOOP",
        "COUNT 100",
        "COUNT 100 0",
        "COUNT 100 BUSYLOOP 0",
        "COUNT 100 BUSYLOOP MINLEN 50 0",
        "IMPORTRATE 0",
    ):
        node.ask(f"QSCAN {line}")


def logging_in(node):
    node.ask("auth 123")
    node.ask("CONFIG SET requirepass foobared")
    node.ask("AUTH wrong")
    stranger = node.connect()
    stranger.ask("HELLO")
    stranger.ask("PING")
    stranger.ask_inline('AUTH "foobared"')
    stranger.ask_inline("HELLO")
    stranger.ask_inline("PING")
    stranger.ask("QUIT")
    stranger.close()
    node.ask("AUTH foobared")
    node.ask("config set requirepass 123")
    node.ask("auth 123")
    node.ask("CONFIG SET requirepass", "")


def connections(node):
    node.ask("CLIENT GETNAME")
    node.ask("CLIENT SETNAME me")
    node.ask("CLIENT GETNAME")
    node.ask("CLIENT LIST")
    node.ask("CLIENT KILL 192.0.2.1:1")
    other = node.connect()
    node.ask(f"CLIENT KILL {other.address}")
    other.close()
    node.ask("CLIENT PAUSE 1")


def administration(node):
    for line in (
        "BGREWRITEAOF",
        "CLUSTER INFO",
        "CLUSTER MYID",
        "CLUSTER NODES",
        "CLUSTER SAVECONFIG",
        "COMMAND",
        "command",
        "COMMAND COUNT",
        "COMMAND INFO ackjob",
        "COMMAND INFO no-such-command",
        "CONFIG GET appendfsync",
        "CONFIG SET slowlog-max-len 64",
        "CONFIG RESETSTAT",
        "CONFIG REWRITE",
        "config set appendfsync everysec",
        "DEBUG FLUSHALL",
        "DEBUG flushall",
        "HELLO",
        "hello",
        "INFO",
        "INFO server",
        "info",
        "PING",
        "ping",
        "SELECT 0",
        "SHUTDOWN nonsense",
        "TIME",
        "time",
    ):
        node.ask(line)


def slow_log(node):
    node.ask("CONFIG SET slowlog-max-len 2")
    node.ask("CONFIG SET slowlog-log-slower-than 0")
    node.ask("QLEN a")
    node.ask("QLEN b")
    node.ask("SLOWLOG GET")
    node.ask("QLEN c")
    node.ask("SLOWLOG GET 1")
    node.ask("SLOWLOG LEN")
    node.ask("CONFIG SET slowlog-log-slower-than 10000")
    node.ask("SLOWLOG RESET")


def leaving(node):
    node.ask("CLUSTER LEAVING")
    node.ask("CLUSTER LEAVING yes")
    node.ask("CLUSTER LEAVING")
    node.ask("GETJOB FROM q")
    node.ask("GETJOB TIMEOUT 20 FROM q")
    node.ask("CLUSTER LEAVING no")


# Scenarios in a cluster


def meet(node, *others):
    """Makes `node` know the others, and waits until all of them know each other."""
    size = len(node.ask("HELLO")) - 2 + len(others)
    for other in others:
        node.ask(f"CLUSTER MEET 127.0.0.1 {other.server.port}")
    for member in (node, *others):
        wait_until(lambda: usable_nodes(member) == size, f"{size} nodes know each other")
        member.ask("HELLO")


def usable_nodes(node):
    return sum(row[3] == b"1" for row in node.ask("HELLO")[2:])


def copies(a):
    job_id = a.ask("ADDJOB copied body 5000")
    a.ask(f"SHOW {job_id}")
    a.ask("GETJOB FROM copied")
    a.ask(f"SHOW {job_id}")


def federation(a, b, c):
    def sources():
        b.ask("ADDJOB lent body 0 REPLICATE 1")
        c.ask("ADDJOB lent body 0 REPLICATE 1")
        a.ask("GETJOB TIMEOUT 50 FROM lent")
        stat = a.ask("QSTAT lent")
        return 0 if stat is NoArray else len(stat[11])

    wait_until(lambda: sources() == 2, "jobs come from two nodes")


def leaving_a_cluster(a):
    a.ask("CLUSTER LEAVING yes")
    a.ask("ADDJOB left body 100")
    a.ask("CLUSTER LEAVING no")


def left_alone(a, b, c):
    b.server.kill()
    c.server.kill()
    wait_until(
        lambda: a.ask("ADDJOB alone body 50").startswith("NOREPL Not enough"),
        "the others are found missing",
    )


class OnOneNode(unittest.TestCase):
    seen = set()

    @classmethod
    def setUpClass(cls):
        with Server(os.environ["DISQUE_SERVER"]) as server, Node(server, cls.seen) as node:
            for scenario in (
                adding,
                fetching,
                handling_jobs,
                looking_at_jobs,
                pausing,
                scanning_jobs,
                scanning_queues,
                logging_in,
                connections,
                administration,
                slow_log,
                leaving,
            ):
                scenario(node)
                node.ask("DEBUG FLUSHALL")


class InACluster(unittest.TestCase):
    seen = set()

    @classmethod
    def setUpClass(cls):
        with contextlib.ExitStack() as stack:
            a, b, c, d = (cls.node(stack) for _ in range(4))
            meet(a, b, c)
            copies(a)
            federation(a, b, c)
            leaving_a_cluster(a)
            meet(a, d)
            left_alone(a, b, c)

    @classmethod
    def node(cls, stack):
        server = Server(os.environ["DISQUE_SERVER"], "cluster-node-timeout 1000")
        return stack.enter_context(Node(stack.enter_context(server), cls.seen))


def add_tests(case, rows):
    """Gives the test case one test a command, which compares what its scenarios produced."""
    by_command = collections.defaultdict(set)
    if os.environ["DISQUE_PEER"] != "c":
        rows = [OURS.get(row, row) for row in rows]
    for command, reply in rows:
        by_command[command.split(" ")[0]].add((command, reply))
    for name, wanted in by_command.items():

        def test(self, wanted=wanted):
            commands = {command for command, _ in wanted}
            seen = {row for row in self.seen if row[0] in commands}
            if not wanted <= seen:
                missing, seen = (map("\t".join, sorted(rows)) for rows in (wanted - seen, seen))
                self.fail("\n".join(["missing:", *missing, "seen:", *seen]))

        setattr(case, f"test_{name}", test)


add_tests(OnOneNode, ON_ONE_NODE)
add_tests(InACluster, IN_A_CLUSTER)


if __name__ == "__main__":
    unittest.main()
