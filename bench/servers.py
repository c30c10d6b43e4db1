"""Starts and stops the servers that are compared, each in a folder of its own.

Nothing outlives the comparison: every server is stopped where it was started, and once
more at exit for those that an error or a signal left behind.
"""

import atexit
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

# Client ports; a Disque node's bus port is 10,000 above.
PORTS = iter(range(20300, 21999))
START_SECS_MAX = 120
STOP_SECS_MAX = 60

running = []


class Node:
    """A server process, and its folder, which it finds again after a restart."""

    def __init__(self, program, words, folder):
        self.port = free_port()
        self.folder = folder
        self.words = command_line(program, self.port, words)
        self.process = None
        self.frozen = False
        self.start()

    def start(self):
        """Starts the process and returns how many seconds it took to answer."""
        log = open(os.path.join(self.folder, "log"), "ab")
        begun_at = time.monotonic()
        self.process = subprocess.Popen(
            self.words, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
        log.close()
        running.append(self)
        while not self.answers():
            if self.process.poll() is not None or time.monotonic() > begun_at + START_SECS_MAX:
                with open(os.path.join(self.folder, "log"), errors="replace") as log:
                    tail = log.read()[-2000:]
                sys.exit(f"{self.words[0]} does not start:\n{tail}")
            time.sleep(0.001)
        return time.monotonic() - begun_at

    def answers(self):
        try:
            if "beanstalkd" in self.words[0]:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return True
            return self.ask("PING") == "PONG"
        except (OSError, EOFError, ServerError):
            return False

    def ask(self, *words):
        """Sends one command and returns its reply as a Python value."""
        with self.connect() as client:
            return client.ask(*words)

    def connect(self):
        return Client(self.port)

    def stop(self):
        if self in running:
            running.remove(self)
        if self.process.poll() is not None:
            return
        if self.frozen:
            self.process.kill()
        self.process.terminate()
        try:
            self.process.wait(STOP_SECS_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def freeze(self):
        """Stops the process from running, for good: it ends by a kill."""
        self.process.send_signal(signal.SIGSTOP)
        self.frozen = True

    @property
    def pid(self):
        return self.process.pid

    def resident_bytes(self):
        with open(f"/proc/{self.pid}/status") as status:
            for line in status:
                if line.startswith("VmRSS:"):
                    return int(line.split()[1]) * 1024
        raise EOFError(f"process {self.pid} has no memory")

    def cpu_secs(self):
        """Time that all of its threads have spent on a CPU so far."""
        with open(f"/proc/{self.pid}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def aof_bytes(self):
        """The size of all append only files in its folder."""
        files = (
            os.path.join(folder, name)
            for folder, _, names in os.walk(self.folder)
            for name in names
            if ".aof" in name
        )
        return sum(os.path.getsize(file) for file in files)

    def wakeups(self):
        """How often its threads have waited and been woken so far."""
        total = 0
        for task in os.listdir(f"/proc/{self.pid}/task"):
            with open(f"/proc/{self.pid}/task/{task}/status") as status:
                for line in status:
                    if line.startswith("voluntary_ctxt_switches:"):
                        total += int(line.split()[1])
        return total


class Client:
    """A connection for many commands."""

    def __init__(self, port):
        self.link = socket.create_connection(("127.0.0.1", port), 60)
        self.replies = self.link.makefile("rb")

    def ask(self, *words):
        """Sends one command and returns its reply as a Python value."""
        arguments = [str(word).encode() for word in words]
        parts = [b"$%d\r\n%s\r\n" % (len(argument), argument) for argument in arguments]
        self.link.sendall(b"*%d\r\n%s" % (len(arguments), b"".join(parts)))
        return read_reply(self.replies)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.replies.close()
        self.link.close()


class ServerError(Exception):
    """An error reply, or work that was not done."""


def read_reply(replies):
    line = replies.readline()
    if not line.endswith(b"\r\n"):
        raise EOFError("the server closed the connection")
    kind, text = line[:1], line[1:-2].decode(errors="replace")
    if kind == b"-":
        raise ServerError(text)
    if kind == b":":
        return int(text)
    if kind == b"$":
        if int(text) < 0:
            return None
        return replies.read(int(text) + 2)[:-2].decode(errors="replace")
    if kind == b"*":
        return None if int(text) < 0 else [read_reply(replies) for _ in range(int(text))]
    return text


def command_line(program, port, words):
    if os.path.basename(program) == "beanstalkd":
        return [program, "-l", "127.0.0.1", "-p", str(port), "-z", "1048576"]
    line = [program, "--port", str(port), "--bind", "127.0.0.1", *words]
    if os.path.basename(program) == "redis-server":
        line += ["--save", ""]
    return line


def free_port():
    for port in PORTS:
        with contextlib.ExitStack() as stack:
            try:
                for candidate in (port, port + 10000):
                    probe = stack.enter_context(socket.socket())
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    probe.bind(("127.0.0.1", candidate))
                return port
            except OSError:
                continue
    sys.exit("no port is free")


@contextlib.contextmanager
def started(program, words=(), nodes=1):
    """So many nodes of a server, as one cluster when there are several."""
    folder = tempfile.mkdtemp(prefix="disque-compare-")
    group = []
    try:
        for number in range(nodes):
            own = os.path.join(folder, str(number))
            os.mkdir(own)
            group.append(Node(program, words, own))
        if nodes > 1:
            join(group)
        yield group
    finally:
        for node in group:
            node.stop()
        shutil.rmtree(folder, ignore_errors=True)


def join(group):
    """Has the nodes meet and waits until each of them replicates to all others."""
    for node in group[1:]:
        group[0].ask("CLUSTER", "MEET", "127.0.0.1", node.port)
    deadline = time.monotonic() + START_SECS_MAX
    for node in group:
        while not replicates(node, len(group)):
            if time.monotonic() > deadline:
                sys.exit("the nodes do not find each other")
            time.sleep(0.05)


def replicates(node, copies):
    try:
        job = node.ask("ADDJOB", "meeting", "", 1000, "REPLICATE", copies)
    except ServerError:
        return False
    node.ask("ACKJOB", job)
    return True


def stop_all():
    for node in list(running):
        node.stop()


def stop_on_signals():
    """Lets a signal end the comparison like an error does, servers included."""
    atexit.register(stop_all)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit("stopped by a signal"))
