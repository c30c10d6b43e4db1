"""The transport: what Kombu calls messages are jobs here, and delivery tags are their IDs.

A consumer keeps one `GETJOB` waiting for all queues of its channel and takes no more jobs
than its prefetch count allows. A fetched job has a lease, which the keeper renews as long as
the job is neither acknowledged nor given back and this process lives.

When a node is gone, commands and fetches go to another one, and what was fetched stays so.
Only when no node can be reached do Kombu and Celery get an error.
"""

import json
import math
import selectors
import socket
import time
from datetime import datetime, timezone

from kombu.exceptions import ChannelError
from kombu.log import get_logger
from kombu.transport import virtual
from kombu.utils.json import dumps

from .fetch import Fetch
from .keeper import Keeper
from .nodes import DEFAULT_PORT, Nodes, Url
from .wire import ErrorReply

logger = get_logger(__name__)

# Kombu's priorities go from 0 to 9, which goes first; those of Disque from 7 to 1.
PRIORITIES = (7, 6, 6, 5, 4, 4, 3, 2, 2, 1)
# How many jobs QPURGE, JSCAN and QPEEK are asked for at a time.
PAGE = 10_000
# Who listens to an exchange stands in a queue of this name, as jobs that nobody fetches.
BINDINGS = "kombu.bindings."
BINDING_TTL_SECS = 180
# So often what could not be said of a job is tried again.
AGAIN_SECS = 1
# For so long a publisher remembers who listens.
BINDINGS_FRESH_SECS = 1


class QoS(virtual.QoS):
    """What is fetched and not acknowledged."""

    def append(self, message, delivery_tag):
        super().append(message, delivery_tag)
        self.channel.keep_lease(delivery_tag)

    def ack(self, delivery_tag):
        self.channel.end(delivery_tag, "ACKJOB", delivery_tag)
        self._forget(delivery_tag)

    def reject(self, delivery_tag, requeue=False):
        if requeue:
            self.channel.end(delivery_tag, "NACK", delivery_tag)
        elif self.channel.dead_letters:
            self.channel.end(delivery_tag, "NACK", delivery_tag, "DEAD", "REASON", "rejected")
        else:
            self.channel.end(delivery_tag, "ACKJOB", delivery_tag)
        self._forget(delivery_tag)

    def restore_unacked(self):
        """Gives everything back, uncounted: it was not begun, or its worker ends."""
        self._flush()
        tags = list(self._delivered)
        self._delivered.clear()
        self.channel.give_back(tags)
        return []

    def _forget(self, delivery_tag):
        super().ack(delivery_tag)
        self.channel.has_room()


class Channel(virtual.Channel):
    """A channel: its consumers share a prefetch count and one fetch."""

    QoS = QoS
    supports_fanout = True
    # None is Disque's own default, which is in the middle.
    default_priority = None

    #: For how many seconds a job is a worker's before its lease is renewed or over. It is the
    #: RETRY of the jobs that are published, too.
    lease = 60
    #: How long a job may wait and be worked on, in seconds.
    ttl = 30 * 24 * 3600
    #: The same for messages whose delivery mode is transient; they have a single copy.
    transient_ttl = 24 * 3600
    #: How many nodes have a copy before a message counts as published; None is the server's
    #: default, three or all there are.
    replicate = None
    #: How long publishing waits for these copies, in seconds.
    publish_timeout = 5
    #: Most jobs that are fetched at a time, where the prefetch count sets no limit.
    fetch_count = 64
    #: Whether what is rejected and not requeued goes to the dead queue, or ends.
    dead_letters = True

    from_transport_options = (
        "body_encoding",
        "deadletter_queue",
        "lease",
        "ttl",
        "transient_ttl",
        "replicate",
        "publish_timeout",
        "fetch_count",
        "dead_letters",
    )

    def __init__(self, connection, **kwargs):
        super().__init__(connection, **kwargs)
        self.nodes, self.keeper = connection.nodes, connection.keeper
        self.fetch = Fetch(self)
        # Kept for acknowledgements, which may come when the channel is closed.
        self._transport = connection
        self._without_ack = set()
        self._private_queues = set()
        # The jobs that say that a queue is bound, by binding.
        self._announced = {}
        self._heard_bindings = {}

    # Publishing

    def prepare_message(self, body, priority=None, *args, **kwargs):
        message = super().prepare_message(body, priority, *args, **kwargs)
        # The base takes 0, which goes last, for a priority that is not given.
        if priority is not None:
            message["properties"]["priority"] = priority
        return message

    def _put(self, queue, message, **kwargs):
        properties, headers = message["properties"], message.get("headers") or {}
        is_transient = str(properties.get("delivery_mode")) == "1"
        ttl = self.transient_ttl if is_transient else self.ttl
        if properties.get("expiration"):
            ttl = max(1, math.ceil(float(properties["expiration"]) / 1000))
        delay = delay_secs(headers)
        options = ["TTL", ttl + delay, "RETRY", max(1, min(self.lease, ttl))]
        if delay:
            options += ["DELAY", delay]
        if is_transient:
            options += ["REPLICATE", 1]
        elif self.replicate:
            options += ["REPLICATE", self.replicate]
        priority = priority_of(properties.get("priority"))
        if priority != 4:
            options += ["PRIORITY", priority]
        timeout_ms = int(self.publish_timeout * 1000)
        body = dumps(message).encode()
        self.nodes.call("ADDJOB", queue, body, timeout_ms, *options, wait=self.publish_timeout)

    def _put_fanout(self, exchange, message, routing_key, **kwargs):
        self._heard_bindings.pop(exchange, None)
        for queue in {queue for _, _, queue in self.get_table(exchange)}:
            self._put(queue, message, **kwargs)

    def _lookup(self, exchange, routing_key, default=None):
        if self.state.exchanges.get(exchange, {}).get("type") == "direct":
            # Most are bound by the publisher itself: nobody need be asked.
            local = {queue for key, _, queue in super().get_table(exchange) if key == routing_key}
            if local:
                return local
            # A queue for replies may be younger than what was heard.
            self._heard_bindings.pop(exchange, None)
        return super()._lookup(exchange, routing_key, default)

    # Who listens to an exchange

    def get_table(self, exchange):
        """The bindings that this process made, and those of all consumers of the cluster."""
        local = super().get_table(exchange)
        now = time.monotonic()
        heard_at, heard = self._heard_bindings.get(exchange, (None, ()))
        if heard_at is None or now - heard_at > BINDINGS_FRESH_SECS:
            rows = self.nodes.call("QPEEK", BINDINGS + exchange, PAGE)
            heard = {tuple(json.loads(body)) for _, _, body in rows}
            self._heard_bindings[exchange] = (now, heard)
        return list({tuple(row) for row in local} | set(heard))

    def _new_queue(self, queue, auto_delete=False, exclusive=False, **kwargs):
        if auto_delete or exclusive:
            self._private_queues.add(queue)

    def _queue_bind(self, exchange, routing_key, pattern, queue):
        # Somebody may answer into a private queue before its owner begins to consume.
        if queue in self._private_queues:
            self._announce(exchange, routing_key, pattern, queue)

    def _announce_all(self, queue):
        for exchange, routing_key, arguments in self.state.queue_bindings(queue):
            kind = self.typeof(exchange)
            # That of a task queue, which every publisher makes for itself.
            if kind.type == "direct" and routing_key == queue:
                continue
            self._announce(exchange, *kind.prepare_bind(queue, exchange, routing_key, arguments))

    def _announce(self, exchange, routing_key, pattern, queue):
        key = ("binding", queue, exchange, routing_key)
        if key in self._announced:
            return
        row = json.dumps([routing_key or "", pattern, queue])
        options = ["REPLICATE", 1, "RETRY", 0, "TTL", BINDING_TTL_SECS]

        def announce():
            # On every node, since publishers look at their own.
            before, now = self._announced.get(key, ()), []
            for address, reply in self.nodes.call_each("ADDJOB", BINDINGS + exchange, row, 0, *options):
                if isinstance(reply, Exception):
                    logger.info("Disque: %s:%d knows nothing of %s: %s", *address, queue, reply)
                else:
                    now.append(reply)
            self._announced[key] = now
            self._end_bindings(before)

        announce()
        self.keeper.add(key, BINDING_TTL_SECS / 3, announce)

    def _withdraw(self, key):
        self.keeper.discard(key)
        self._end_bindings(self._announced.pop(key, ()))

    def _end_bindings(self, job_ids):
        if job_ids:
            try:
                # Any node tells the one that has the job.
                self.nodes.call("FASTACK", *job_ids)
            except (OSError, ErrorReply):
                logger.info("Disque: %d bindings go when their TTL is over", len(job_ids))

    def _delete(self, queue, exchange=None, routing_key=None, *args, **kwargs):
        self._withdraw(("binding", queue, exchange, routing_key))
        self._private_queues.discard(queue)
        self._purge(queue)

    # Consuming

    def basic_consume(self, queue, no_ack, *args, **kwargs):
        if no_ack:
            self._without_ack.add(queue)
        self._announce_all(queue)
        result = super().basic_consume(queue, no_ack, *args, **kwargs)
        self._transport.look()
        return result

    def basic_cancel(self, consumer_tag):
        queue = self._tag_to_queue.get(consumer_tag)
        super().basic_cancel(consumer_tag)
        if queue not in self._active_queues:
            self._without_ack.discard(queue)
            if queue in self.fetch.queues:
                self.fetch.stop(self.wanted_queues)

    def _reset_cycle(self):
        """Fetches ask for all queues at once."""

    @property
    def wanted_queues(self):
        return list(dict.fromkeys(self._active_queues))

    @property
    def room(self):
        """How many more jobs may be fetched."""
        if self.closed or not self._active_queues:
            return 0
        estimate = self.qos.can_consume_max_estimate()
        return self.fetch_count if estimate is None else min(estimate, self.fetch_count)

    def has_room(self):
        self._transport.wake()

    def basic_get(self, queue, no_ack=False, **kwargs):
        rows = self.nodes.call("GETJOB", "NOHANG", "WITHCOUNTERS", "LEASE", self.lease, "FROM", queue)
        payload = rows and self.payload_of(rows[0])
        if not payload:
            return None
        message = self.Message(payload, channel=self)
        if no_ack:
            self.nodes.call("ACKJOB", message.delivery_tag)
        else:
            self.qos.append(message, message.delivery_tag)
        return message

    def deliver(self, row):
        """Hands a fetched job to its consumer."""
        queue, job_id = row[0].decode(), row[1].decode()
        if queue not in self._active_queues:
            self.give_back([job_id])
            return
        payload = self.payload_of(row)
        if payload is None:
            return
        if queue in self._without_ack:
            self.nodes.call("ACKJOB", job_id)
        self._transport._deliver(payload, queue)

    def payload_of(self, row):
        """The message in a job; one that is none of Kombu's is dead."""
        _, job_id, body, _, nacks, _, additional_deliveries = row
        try:
            payload = json.loads(body)
            properties = payload["properties"]
            properties["delivery_tag"] = job_id.decode()
            info = properties.setdefault("delivery_info", {})
        except (ValueError, TypeError, KeyError):
            logger.error("Disque: job %s is no message of Kombu", job_id.decode())
            self.nodes.call("NACK", job_id, "DEAD", "REASON", "no message of Kombu")
            return None
        if nacks or additional_deliveries:
            payload["redelivered"] = info["redelivered"] = True
        return payload

    # What becomes of a fetched job

    def keep_lease(self, job_id):
        def renew():
            def is_enough(reply):
                return not isinstance(reply, Exception) or getattr(reply, "code", "") in ("ACKED", "TOOLATE")

            reply = self.nodes.call_until(is_enough, "WORKING", job_id, "LEASE", self.lease)
            if isinstance(reply, ErrorReply):
                if reply.code != "ACKED":
                    logger.warning("Disque: the lease of job %s is not renewed: %s", job_id, reply)
                return False
            if isinstance(reply, Exception):
                raise reply
            return True

        self.keeper.add(job_id, self.lease / 3, renew)

    def end(self, job_id, *command):
        """Acknowledges a job or says that it failed. Where no node can be reached, this is said
        as soon as one can, so that work which is done is not done again."""
        self.keeper.discard(job_id)

        def say():
            if command[0] == "ACKJOB":
                # A node that does not know the job tells the others.
                self.nodes.call(*command)
                return False
            reply = self.nodes.call_until(lambda it: it == 1, *command)
            if isinstance(reply, OSError):
                raise reply
            return False

        try:
            say()
        except OSError as error:
            logger.warning("Disque: %s of job %s is sent again: %s", command[0], job_id, error)
            self.keeper.add(("end", job_id), AGAIN_SECS, say)

    def give_back(self, job_ids):
        """Queues jobs again without counting it as a failure. What cannot be reached comes
        back when its lease is over."""
        for job_id in job_ids:
            self.keeper.discard(job_id)
            try:
                reply = self.nodes.call_until(lambda it: it == 1, "NACK", job_id, "SILENT")
                if isinstance(reply, OSError):
                    raise reply
            except (OSError, ErrorReply) as error:
                logger.warning("Disque: %d jobs come back when their lease is over: %s", len(job_ids), error)
                break

    # Queues

    def _size(self, queue):
        reply = self.nodes.call("QSTAT", queue, "CLUSTER")
        if reply is None:
            return 0
        return dict(zip(reply[::2], reply[1::2]))[b"len"]

    def _purge(self, queue):
        """Ends what is queued on all nodes, and what waits for its time."""
        ended = 0
        reached = [address for address, reply in self.nodes.call_each("PING") if reply == "PONG"]
        for address in reached:
            while True:
                count = self.nodes.call_at(address, "QPURGE", queue, "COUNT", PAGE)
                if not count:
                    break
                ended += count
        delayed = set()
        for address in reached:
            cursor = b"0"
            while True:
                command = ["JSCAN", cursor, "COUNT", PAGE, "QUEUE", queue, "STATE", "delayed"]
                cursor, ids = self.nodes.call_at(address, *command)
                delayed.update(ids)
                if cursor == b"0":
                    break
        if delayed:
            self.nodes.call("ACKJOB", *delayed)
        return ended + len(delayed)

    def _has_queue(self, queue, **kwargs):
        # Every queue is there; an empty one costs nothing.
        return True

    def close(self):
        if not self.closed:
            self.fetch.close()
            for key in list(self._announced):
                self._withdraw(key)
        super().close()


def delay_secs(headers):
    """How long a message has to wait, from the `eta` of a task or the `x-delay` of RabbitMQ.

    Whole seconds, rounded down: a worker holds the task for what is left, so it is on time.
    """
    delay = 0
    try:
        if headers.get("x-delay"):
            delay = float(headers["x-delay"]) / 1000
        elif headers.get("eta"):
            eta = headers["eta"]
            if isinstance(eta, str):
                eta = datetime.fromisoformat(eta.replace("Z", "+00:00"))
            if eta.tzinfo is None:
                eta = eta.replace(tzinfo=timezone.utc)
            delay = eta.timestamp() - time.time()
    except (AttributeError, OverflowError, TypeError, ValueError):
        # The consumer is to judge what is no time.
        return 0
    return max(0, math.floor(delay))


def priority_of(priority):
    if priority is None:
        return 4
    return PRIORITIES[max(0, min(9, int(priority)))]


class Transport(virtual.Transport):
    """Connections to a cluster of Disque."""

    Channel = Channel
    can_parse_url = True
    default_port = DEFAULT_PORT
    driver_type = "disque"
    driver_name = "disque"
    polling_interval = None

    connection_errors = (OSError,)
    channel_errors = (ErrorReply, ChannelError)
    recoverable_connection_errors = (OSError,)
    recoverable_channel_errors = (ErrorReply,)

    implements = virtual.Transport.implements.extend(
        asynchronous=True,
        exchange_type=frozenset(["direct", "topic", "fanout"]),
    )

    def __init__(self, client, **kwargs):
        super().__init__(client, **kwargs)
        self.url = Url(self._url_text(client))
        self.nodes = Nodes(self.url, client.connect_timeout or 5)
        self.keeper = Keeper()
        self._loop = None
        self._readers = {}

    @staticmethod
    def _url_text(client):
        if "://" in (client.hostname or ""):
            return client.hostname
        # One of several URLs, which Kombu has taken apart.
        password = f"{client.userid or ''}:{client.password}@" if client.password else ""
        return f"disque://{password}{client.hostname or 'localhost'}:{client.port or DEFAULT_PORT}"

    def driver_version(self):
        from . import __version__

        return __version__

    def as_uri(self, uri, include_password=False, mask="**"):
        url = Url(uri or "")
        return url.text(url.password if include_password else mask)

    @property
    def default_connection_params(self):
        return {"port": self.default_port, "hostname": "localhost"}

    def establish_connection(self):
        self.nodes.call("PING")
        return super().establish_connection()

    def verify_connection(self, connection):
        return True

    def close_connection(self, connection):
        if self._loop is not None:
            self.unregister_from_event_loop(connection, self._loop)
        super().close_connection(connection)
        self.nodes.close()

    def _reject_inbound_message(self, raw_message):
        for channel in self.channels[:1]:
            channel.give_back([raw_message["properties"]["delivery_tag"]])

    # Waiting by oneself

    def drain_events(self, connection, timeout=None):
        give_up_at = None if timeout is None else time.monotonic() + timeout
        while True:
            if any(channel.fetch.deliver_next() for channel in list(self.channels)):
                return
            with selectors.DefaultSelector() as selector:
                is_full = False
                for channel in list(self.channels):
                    channel.fetch.look()
                    if channel.fetch.is_waiting:
                        selector.register(channel.fetch.wire, selectors.EVENT_READ, channel)
                    is_full = is_full or bool(channel._active_queues and not channel.fetch.is_waiting)
                # Whoever is full may be emptied by another thread.
                longest = 0.05 if is_full else 1.0
                left = longest if give_up_at is None else give_up_at - time.monotonic()
                wait = max(0, min(left, longest))
                if selector.get_map():
                    ready = [key.data for key, _ in selector.select(wait)]
                else:
                    time.sleep(wait)
                    ready = []
            for channel in ready:
                channel.fetch.read()
            if any(channel.fetch.rows for channel in self.channels):
                continue
            if give_up_at is not None and time.monotonic() >= give_up_at:
                raise socket.timeout("no message came")

    # In an event loop

    def register_with_event_loop(self, connection, loop):
        self._loop = loop
        loop.on_tick.add(self.look)

    def unregister_from_event_loop(self, connection, loop):
        loop.on_tick.discard(self.look)
        for number in self._readers.values():
            loop.remove_reader(number)
        self._readers.clear()
        self._loop = None

    def look(self):
        """Has every channel fetch that may, and the loop wait for all their connections."""
        if self._loop is None:
            return
        waiting = {}
        for channel in list(self.channels):
            channel.fetch.look()
            if channel.fetch.is_waiting:
                waiting[channel.fetch.wire] = channel
        # By connection and not by number, which a later connection may have again.
        for wire, number in list(self._readers.items()):
            if wire not in waiting:
                self._loop.remove_reader(number)
                del self._readers[wire]
        for wire, channel in waiting.items():
            if wire not in self._readers:
                self._readers[wire] = wire.fileno()
                self._loop.add_reader(wire.fileno(), self._read, channel)

    def _read(self, channel):
        channel.fetch.read()
        while channel.fetch.deliver_next():
            pass

    def wake(self):
        """A job was ended, perhaps by another thread, and one more may be fetched."""
        if self._loop is not None:
            self._loop.call_soon(self.look)
