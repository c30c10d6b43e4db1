"""One connection to a server: RESP2, commands out and replies in.

A connection can be asked and waited for (`call`), or sent to and read from later (`send`,
`receive`), which is how a fetch waits in an event loop.
"""

import os
import socket
import time
import weakref


class ErrorReply(Exception):
    """An error that the server replied with."""

    @property
    def code(self):
        return str(self).split(" ", 1)[0]


class _Incomplete(Exception):
    """A reply that has not arrived whole."""


# What begins anew in a child that is forked, by `after_fork`: connections, of which the child
# closes its copies, since the server takes one for alive as long as anybody has it open; and
# what has locks, which a thread may hold that the child does not have.
in_this_process = weakref.WeakSet()


def _after_fork():
    for it in list(in_this_process):
        it.after_fork()


os.register_at_fork(after_in_child=_after_fork)


def encode(arguments):
    parts = [b"*%d\r\n" % len(arguments)]
    for argument in arguments:
        data = argument if isinstance(argument, bytes) else str(argument).encode()
        parts.append(b"$%d\r\n%s\r\n" % (len(data), data))
    return b"".join(parts)


class Wire:
    """A connection to the server at `address`, logged in."""

    def __init__(self, address, username, password, timeout):
        self.address = address
        self.timeout = timeout
        self._input = bytearray()
        # No reply is whole before this many bytes are here.
        self._wanted = 0
        self._socket = socket.create_connection(address, timeout=timeout)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        in_this_process.add(self)
        if password:
            self.call("AUTH", *([username] if username else []), password)

    def fileno(self):
        return self._socket.fileno()

    def close(self):
        in_this_process.discard(self)
        self._socket.close()

    def after_fork(self):
        self._socket.close()

    def call(self, *arguments, wait=0):
        """The reply to a command, which may take `wait` seconds longer than a plain one."""
        self.send(*arguments)
        return self.reply(self.timeout + wait)

    def send(self, *arguments):
        self._socket.settimeout(self.timeout)
        self._socket.sendall(encode(arguments))

    def reply(self, timeout):
        """The next reply; `ErrorReply` is raised, `OSError` when the connection fails."""
        give_up_at = time.monotonic() + timeout
        while True:
            try:
                value = self._parse()
            except _Incomplete:
                left = give_up_at - time.monotonic()
                if left <= 0:
                    raise socket.timeout("no reply from %s:%d" % self.address) from None
                self._socket.settimeout(left)
                self._read()
                continue
            if isinstance(value, ErrorReply):
                raise value
            return value

    def receive(self):
        """The replies that are here, errors among them, without waiting for more."""
        self._socket.settimeout(0)
        try:
            self._read()
        except BlockingIOError:
            return []
        replies = []
        while self._input:
            try:
                replies.append(self._parse())
            except _Incomplete:
                break
        return replies

    def drain(self):
        """Tells the server that nothing more comes, and returns what it had sent by then.

        So a fetch is ended without losing the jobs that were on their way.
        """
        replies = []
        try:
            self._socket.shutdown(socket.SHUT_WR)
            while True:
                replies.append(self._parse_or_read())
        except OSError:
            pass
        self.close()
        return replies

    def _parse_or_read(self):
        while True:
            try:
                return self._parse()
            except _Incomplete:
                self._socket.settimeout(self.timeout)
                self._read()

    def _read(self):
        data = self._socket.recv(65536)
        if not data:
            raise ConnectionResetError("%s:%d closed the connection" % self.address)
        self._input += data

    def _parse(self):
        if len(self._input) < self._wanted:
            raise _Incomplete
        value, end = self._parse_at(0)
        del self._input[:end]
        self._wanted = 0
        return value

    def _parse_at(self, at):
        line_end = self._input.find(b"\r\n", at)
        if line_end < 0:
            raise _Incomplete
        kind, rest, at = self._input[at : at + 1], bytes(self._input[at + 1 : line_end]), line_end + 2
        if kind == b"+":
            return rest.decode(), at
        if kind == b"-":
            return ErrorReply(rest.decode(errors="replace")), at
        if kind == b":":
            return int(rest), at
        if kind == b"$":
            length = int(rest)
            if length < 0:
                return None, at
            if len(self._input) < at + length + 2:
                self._wanted = at + length + 2
                raise _Incomplete
            return bytes(self._input[at : at + length]), at + length + 2
        if kind == b"*":
            count = int(rest)
            if count < 0:
                return None, at
            items = []
            for _ in range(count):
                item, at = self._parse_at(at)
                items.append(item)
            return items, at
        raise ConnectionError("%s:%d does not speak the protocol" % self.address)
