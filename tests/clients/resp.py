"""A client of a server in a page, and waiting for what other processes do in their own time."""

import socket
import time

# How long anything may take. C nodes tell of a failing node only while they try to connect
# to it, which takes luck.
PATIENCE_SECS = 60


def eventually(look, is_right, what):
    """Looks until it is as it should be; returns what was seen."""
    give_up_at = time.monotonic() + PATIENCE_SECS
    while not is_right(seen := look()):
        if time.monotonic() > give_up_at:
            raise AssertionError(f"{what}: it stays at {seen!r}")
        time.sleep(0.02)
    return seen


class ErrorReply(Exception):
    """An error that a server answered with."""


class Client:
    """One connection: a command goes out, its reply comes back."""

    def __init__(self, port, host="127.0.0.1"):
        self._socket = socket.create_connection((host, port), timeout=PATIENCE_SECS)
        self._file = self._socket.makefile("rb")

    def close(self):
        self._file.close()
        self._socket.close()

    def send(self, *words):
        words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        parts = [b"$%d\r\n%s\r\n" % (len(word), word) for word in words]
        self._socket.sendall(b"*%d\r\n" % len(words) + b"".join(parts))

    def reply(self):
        line = self._file.readline()
        if not line:
            raise ConnectionError("the server hung up")
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return rest.decode()
        if kind == b"-":
            raise ErrorReply(rest.decode())
        if kind == b":":
            return int(rest)
        if rest == b"-1":
            return None
        if kind == b"$":
            return self._file.read(int(rest) + 2)[:-2]
        return [self.reply() for _ in range(int(rest))]

    def call(self, *words):
        self.send(*words)
        return self.reply()
