"""The `GETJOB` of a channel, which waits on a connection of its own."""

import random
import time
from collections import deque

from kombu.log import get_logger

from .nodes import OF_THE_NODE
from .wire import ErrorReply

logger = get_logger(__name__)

# How long a GETJOB waits before it is sent anew, and how much later than that its reply may
# be. A host that vanished is noticed by it.
WAIT_SECS = 5
LATE_SECS = 5


class Fetch:
    """At most one GETJOB under way, for all queues that the channel consumes from."""

    def __init__(self, channel):
        self._channel = channel
        self._wire = None
        self._overdue_at = None
        # Those that the GETJOB under way asks for.
        self.queues = ()
        # What was fetched and not delivered yet.
        self.rows = deque()

    @property
    def is_waiting(self):
        return self._overdue_at is not None

    @property
    def wire(self):
        """The connection that the GETJOB waits on."""
        return self._wire if self.is_waiting else None

    def look(self):
        """Sends a GETJOB if one may be sent, and gives up one that is overdue or outdated."""
        wanted = self._channel.wanted_queues
        if self.is_waiting:
            if set(wanted) != set(self.queues):
                self.stop(wanted)
            elif time.monotonic() > self._overdue_at:
                logger.warning("Disque: %s:%d does not answer", *self._wire.address)
                self._lose()
        room = self._channel.room - len(self.rows)
        while not self.is_waiting and room > 0:
            self._send(wanted, room)

    def read(self):
        """Takes in what has come."""
        try:
            replies = self._wire.receive()
        except OSError as error:
            logger.warning("Disque: lost a connection: %s", error)
            self._lose()
            return
        for reply in replies:
            self._overdue_at = None
            if isinstance(reply, ErrorReply):
                if reply.code not in OF_THE_NODE:
                    raise reply
                self._lose()
                return
            self.rows.extend(reply or ())

    def deliver_next(self):
        """Hands the next job to its consumer, and returns whether there was one."""
        if not self.rows:
            return False
        self._channel.deliver(self.rows.popleft())
        return True

    def close(self):
        self.stop(())

    def stop(self, wanted):
        """Ends the GETJOB under way, and gives back all but what is for the `wanted` queues."""
        if self._wire is not None:
            for reply in self._wire.drain():
                self.rows.extend(reply if isinstance(reply, list) else ())
            self._wire = self._overdue_at = None
        unwanted = [row for row in self.rows if row[0].decode() not in wanted]
        self.rows = deque(row for row in self.rows if row not in unwanted)
        self._channel.give_back([row[1].decode() for row in unwanted])

    def _send(self, queues, count):
        if self._wire is None:
            self._wire = self._channel.nodes.connect()
        # The names have an order in GETJOB; none of them is to wait for ever.
        self.queues = random.sample(queues, len(queues))
        options = ["TIMEOUT", WAIT_SECS * 1000, "COUNT", count, "WITHCOUNTERS"]
        try:
            self._wire.send("GETJOB", *options, "LEASE", self._channel.lease, "FROM", *self.queues)
        except OSError:
            self._lose()
            return
        self._overdue_at = time.monotonic() + WAIT_SECS + LATE_SECS

    def _lose(self):
        self._channel.nodes.failed(self._wire.address)
        self._wire.close()
        self._wire = self._overdue_at = None
