"""The nodes of a cluster: which to speak to, and another one when that is gone.

All connections of one `Nodes` go to the same node as long as it answers, since a job is best
known where it was fetched.
"""

import random
import threading
import time
from urllib.parse import unquote

from .wire import ErrorReply, Wire, in_this_process

DEFAULT_PORT = 7711
# A node that failed is asked after all others for so long.
AVOIDED_SECS = 5
# Another node may take what a node refuses for one of these.
OF_THE_NODE = {"LEAVING", "LOADING", "MISCONF", "OOM", "NOREPL"}

# By URL the nodes that its cluster has, by their IDs: at the address that was connected to, or
# else at the one that other nodes know.
_learned = {}


class Url:
    """`disque://[[user]:password@]host[:port][,host[:port]...]`"""

    def __init__(self, text):
        rest = text.split("://", 1)[-1].split("?", 1)[0].split("/", 1)[0]
        credentials, _, hosts = rest.rpartition("@")
        user, _, password = credentials.partition(":")
        self.username, self.password = unquote(user), unquote(password)
        self.addresses = [self._address(part.strip()) for part in hosts.split(",") if part.strip()]
        self.addresses = self.addresses or [("localhost", DEFAULT_PORT)]

    def text(self, password):
        credentials = f"{self.username}:{password}@" if self.password else ""
        hosts = [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.addresses]
        return f"disque://{credentials}{','.join(hosts)}"

    @staticmethod
    def _address(part):
        if part.startswith("["):
            host, _, rest = part[1:].partition("]")
            port = rest.lstrip(":")
        else:
            host, _, port = part.partition(":")
        try:
            return unquote(host) or "localhost", int(port or DEFAULT_PORT)
        except ValueError:
            raise ValueError(f"{part!r} is no host:port") from None


class Nodes:
    """Connections to some node of the cluster at `url`."""

    def __init__(self, url, timeout):
        self.url = url
        self.timeout = timeout
        self._lock = threading.RLock()
        self._command = None
        self._current = None
        self._failed_at = {}
        self._key = tuple(url.addresses)
        in_this_process.add(self)

    def after_fork(self):
        self._lock = threading.RLock()

    def connect(self):
        """A connection to the current node, or to the first one that answers."""
        errors = []
        for address in self._candidates():
            try:
                wire = self._open(address)
                self._learn(wire)
            except (OSError, ErrorReply) as error:
                if isinstance(error, ErrorReply) and error.code not in OF_THE_NODE:
                    raise
                self.failed(address)
                errors.append(f"{address[0]}:{address[1]}: {error}")
                continue
            with self._lock:
                self._current = address
            return wire
        raise ConnectionError("no node of Disque can be used: " + "; ".join(errors))

    def failed(self, address):
        """Has the next connection be made to another node, if there is one."""
        with self._lock:
            self._failed_at[address] = time.monotonic()
            if self._current == address:
                self._current = None

    def call(self, *arguments, wait=0):
        """The reply of the current node. When that fails, the command is sent to another one.

        So a command whose reply got lost may have been carried out twice.
        """
        with self._lock:
            attempts = len(self._candidates()) + 1
            for attempt in range(1, attempts + 1):
                try:
                    if self._command is None:
                        self._command = self.connect()
                    return self._command.call(*arguments, wait=wait)
                except ErrorReply as error:
                    # The connection is as good as it was.
                    if error.code not in OF_THE_NODE or attempt == attempts:
                        raise
                    self._leave()
                except OSError:
                    if self._command is None or attempt == attempts:
                        raise
                    self._leave()

    def call_until(self, is_enough, *arguments):
        """Asks the current node, then the others, until a reply is enough; the last reply.

        For commands about a job that the current node need not know.
        """
        reply = self._result(lambda: self.call(*arguments))
        if is_enough(reply):
            return reply
        for address, answer in self.call_each(*arguments):
            if not isinstance(answer, OSError):
                reply = answer
            if is_enough(reply):
                break
        return reply

    def call_each(self, *arguments):
        """Yields each node's address and its reply, which may be an error."""
        for address in self._candidates():
            yield address, self._result(lambda: self.call_at(address, *arguments))

    def close(self):
        with self._lock:
            if self._command is not None:
                self._command.close()
                self._command = None

    def call_at(self, address, *arguments):
        """The reply of one node."""
        wire = self._open(address)
        try:
            return wire.call(*arguments)
        finally:
            wire.close()

    @staticmethod
    def _result(call):
        try:
            return call()
        except (OSError, ErrorReply) as error:
            return error

    def _open(self, address):
        return Wire(address, self.url.username, self.url.password, self.timeout)

    def _leave(self):
        self.failed(self._command.address)
        self._command.close()
        self._command = None

    def _learn(self, wire):
        """Remembers the nodes that a node knows; a node that leaves refuses here."""
        _, own_id, *rows = wire.call("HELLO")
        known = _learned.setdefault(self._key, {})
        known[own_id] = wire.address
        for node_id, host, port, priority in rows:
            if int(priority) >= 100:
                known.pop(node_id, None)
                if node_id == own_id:
                    raise ErrorReply("LEAVING this node leaves the cluster")
            elif host and known.get(node_id) not in self.url.addresses:
                known[node_id] = (host.decode(), int(port))

    def _candidates(self):
        """All nodes in the order to try them, those that failed of late behind the others."""
        with self._lock:
            now = time.monotonic()
            given = random.sample(self.url.addresses, len(self.url.addresses))
            learned = [it for it in _learned.get(self._key, {}).values() if it not in given]
            first = [self._current] if self._current else []
            every = list(dict.fromkeys(first + given + random.sample(learned, len(learned))))
            return sorted(every, key=lambda it: now - self._failed_at.get(it, -AVOIDED_SECS) < AVOIDED_SECS)
