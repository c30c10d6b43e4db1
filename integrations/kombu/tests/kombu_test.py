"""The transport as a user of Kombu sees it. Needs a server at DISQUE_PORT; see `tests/clients/run`."""

import contextlib
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import warnings
import zipfile

import resp
from kombu import Connection, Consumer, Exchange, Producer, Queue
from kombu_disque import nodes, transport
from kombu_disque.wire import ErrorReply
from resp import eventually
from servers import Server

PORT = int(os.environ["DISQUE_PORT"])
BINARY = os.environ["DISQUE_SERVER"]
SOURCE = pathlib.Path(transport.__file__).resolve().parents[1]

# What is closed by the collector of garbage is no business of these tests.
warnings.simplefilter("ignore", ResourceWarning)


class Urls(unittest.TestCase):
    def test_a_url_has_several_nodes_and_a_password(self):
        url = nodes.Url("disque://default:s%40cret@one,two:7712,[::1]:7713/")
        self.assertEqual(url.addresses, [("one", 7711), ("two", 7712), ("::1", 7713)])
        self.assertEqual((url.username, url.password), ("default", "s@cret"))
        self.assertEqual(url.text("**"), "disque://default:**@one:7711,two:7712,[::1]:7713")
        self.assertEqual(nodes.Url("disque://:secret@one").username, "")
        self.assertEqual(nodes.Url("disque://").addresses, [("localhost", 7711)])
        with self.assertRaisesRegex(ValueError, "'one:x' is no host:port"):
            nodes.Url("disque://one:x")

    def test_a_url_is_shown_without_its_password(self):
        self.assertNotIn("secret", repr(Connection("disque://:secret@one,two")))


class Times(unittest.TestCase):
    def test_a_delay_is_whole_seconds_rounded_down(self):
        in_ten = time.gmtime(time.time() + 10.9)
        for form in ("%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%S+00:00", "%Y-%m-%dT%H:%M:%SZ"):
            self.assertIn(transport.delay_secs({"eta": time.strftime(form, in_ten)}), (9, 10))
        self.assertEqual(transport.delay_secs({"x-delay": 1999}), 1)

    def test_what_is_no_time_is_no_delay(self):
        for headers in ({}, {"eta": None}, {"eta": "soon"}, {"x-delay": "soon"}, {"eta": "2001-01-01T00:00:00"}):
            self.assertEqual(transport.delay_secs(headers), 0)


class KombuTest(unittest.TestCase):
    def setUp(self):
        self.server = resp.Client(PORT)
        self.addCleanup(self.server.close)
        self.connection = self.connect()
        self.name = self.id().rsplit(".", 1)[1]

    def connect(self, url=f"disque://127.0.0.1:{PORT}", **options):
        connection = Connection(url, transport_options=options)
        self.addCleanup(connection.close)
        return connection

    def publish(self, *bodies, **properties):
        with Producer(self.connection.channel()) as producer:
            for body in bodies:
                producer.publish(body, routing_key=self.name, **properties)

    def show(self, job_id):
        shown = self.server.call("SHOW", job_id)
        return dict(zip(shown[::2], shown[1::2]))

    def only_job(self, queue=None):
        (job_id,) = self.server.call("JSCAN", "BUSYLOOP", "QUEUE", queue or self.name)[1]
        return self.show(job_id)

    def consume(self, count, connection=None, act=lambda message: message.ack(), **options):
        """The bodies of the next messages."""
        connection, bodies = connection or self.connection, []

        def on_message(message):
            bodies.append(message.payload)
            act(message)

        queue = Queue(self.name, exchange="", routing_key=self.name)
        with connection.channel() as channel:
            if options.get("prefetch"):
                channel.basic_qos(prefetch_count=options["prefetch"])
            with Consumer(channel, [queue], on_message=on_message, no_ack=options.get("no_ack", False)):
                while len(bodies) < count:
                    connection.drain_events(timeout=resp.PATIENCE_SECS)
        return bodies


class Publishing(KombuTest):
    def test_a_job_has_the_ttl_and_the_retry_of_the_options(self):
        self.connection = self.connect(lease=7, ttl=100)
        self.publish({})
        job = self.only_job()
        self.assertEqual((job[b"retry"], job[b"delay"]), (7, 0))
        self.assertLessEqual(job[b"ttl"], 100)

    def test_an_expiration_is_a_ttl(self):
        self.publish({}, expiration=20)
        job = self.only_job()
        self.assertLessEqual(job[b"ttl"], 20)

    def test_priorities_are_those_of_rabbitmq(self):
        for priority in range(10):
            self.publish(priority, priority=priority)
        self.publish("none", priority=None)
        order = self.consume(11, prefetch=1)
        self.assertEqual(order, [9, 7, 8, 6, 4, 5, "none", 3, 1, 2, 0])

    def test_a_delay_begins_with_the_publishing(self):
        self.publish({}, headers={"x-delay": 1000})
        self.assertEqual(self.only_job()[b"state"], b"active")
        before = time.monotonic()
        self.consume(1)
        self.assertLess(time.monotonic() - before, 30)

    def test_a_refusal_is_an_error(self):
        self.server.call("PAUSE", self.name, "in")
        with self.assertRaisesRegex(ErrorReply, "PAUSED"):
            self.publish({})

    def test_large_bodies_come_back_whole(self):
        body = "x" * 3_000_000
        self.publish(body)
        self.assertEqual(self.consume(1), [body])


class Consuming(KombuTest):
    def test_acknowledged_is_gone_and_no_ack_acknowledges(self):
        self.publish(1, 2)
        self.consume(1, prefetch=1)
        self.consume(1, no_ack=True)
        states = [self.show(it)[b"state"] for it in self.server.call("JSCAN", "BUSYLOOP", "QUEUE", self.name)[1]]
        self.assertLessEqual(set(states), {b"acked"})

    def test_no_more_is_fetched_than_the_prefetch_count(self):
        self.publish(*range(5))
        seen = []
        queue = Queue(self.name, exchange="", routing_key=self.name)
        with self.connection.channel() as channel:
            channel.basic_qos(prefetch_count=2)
            with Consumer(channel, [queue], on_message=seen.append):
                while len(seen) < 2:
                    self.connection.drain_events(timeout=resp.PATIENCE_SECS)
                with self.assertRaises(socket.timeout):
                    self.connection.drain_events(timeout=0.2)
                self.assertEqual(self.server.call("QLEN", self.name), 3)
                seen[0].ack()
                self.connection.drain_events(timeout=resp.PATIENCE_SECS)
        self.assertEqual(len(seen), 3)

    def test_what_is_requeued_comes_again_and_says_so(self):
        self.publish("again")
        self.consume(1, act=lambda message: message.requeue())
        job = self.only_job()
        self.assertEqual(job[b"nacks"], 1)
        redelivered = []
        self.consume(1, act=lambda it: (redelivered.append(it.delivery_info["redelivered"]), it.ack()))
        self.assertEqual(redelivered, [True])

    def test_what_is_rejected_is_a_dead_letter_or_ends(self):
        self.publish("dead")
        self.consume(1, act=lambda message: message.reject())
        self.assertEqual(self.server.call("QLEN", f"{self.name}.dead"), 1)
        self.publish("ends")
        self.consume(1, self.connect(dead_letters=False), act=lambda message: message.reject())
        self.assertEqual(self.server.call("QLEN", f"{self.name}.dead"), 1)
        self.assertEqual(self.server.call("QLEN", self.name), 0)

    def test_a_job_that_is_no_message_is_a_dead_letter(self):
        self.server.call("ADDJOB", self.name, "no JSON", 0)
        self.publish("a message")
        self.assertEqual(self.consume(1), ["a message"])
        self.assertEqual(self.server.call("QLEN", f"{self.name}.dead"), 1)

    def test_a_closed_channel_gives_back_uncounted(self):
        self.publish("back")
        self.consume(1, act=lambda message: None)
        job = self.only_job()
        self.assertEqual((job[b"state"], job[b"nacks"], job[b"additional-deliveries"]), (b"queued", 0, 0))

    def test_a_cancelled_consumer_takes_nothing(self):
        queue = Queue(self.name, exchange="", routing_key=self.name)
        with self.connection.channel() as channel, Consumer(channel, [queue], on_message=print):
            with self.assertRaises(socket.timeout):
                self.connection.drain_events(timeout=0.1)
        self.publish("left")
        self.assertEqual(self.server.call("QLEN", self.name), 1)

    def test_a_lease_is_renewed_while_a_message_is_kept(self):
        self.connection = self.connect(lease=1)
        self.publish("long")
        queue = Queue(self.name, exchange="", routing_key=self.name)
        kept = []
        with self.connection.channel() as channel, Consumer(channel, [queue], on_message=kept.append):
            self.connection.drain_events(timeout=resp.PATIENCE_SECS)
            calls = []

            def renewals():
                info = self.server.call("INFO", "commandstats").decode()
                line = next((it for it in info.splitlines() if it.startswith("cmdstat_working:")), "calls=0,")
                calls.append(int(line.split("calls=")[1].split(",")[0]))
                return calls[-1] - calls[0]

            # A lease is three of them.
            eventually(renewals, lambda count: count >= 4, "the lease is renewed")
            job = self.only_job()
            self.assertEqual((job[b"state"], job[b"additional-deliveries"]), (b"active", 0))
            kept[0].ack()

    def test_one_message_at_a_time_by_hand(self):
        self.publish("one")
        queue = Queue(self.name, exchange="", routing_key=self.name)(self.connection.channel())
        message = queue.get()
        self.assertEqual(message.payload, "one")
        self.assertIsNone(queue.get())
        message.ack()
        self.publish("two")
        self.assertEqual(queue.get(no_ack=True).payload, "two")

    def test_sizes_and_purges(self):
        self.publish(1, 2, 3)
        self.publish(4, headers={"x-delay": 3_600_000})
        channel = self.connection.channel()
        self.assertEqual(channel.queue_declare(self.name).message_count, 3)
        self.assertEqual(channel.queue_purge(self.name), 4)
        self.assertEqual(channel.queue_declare(self.name).message_count, 0)

    def test_exchanges_reach_all_who_listen(self):
        exchange = Exchange(self.name, type="topic", durable=False)
        seen = {"all": [], "some": []}
        with contextlib.ExitStack() as stack:
            listeners = []
            for who, key in (("all", "#"), ("some", "mail.*")):
                connection = self.connect()
                queue = Queue(f"{self.name}.{who}", exchange, routing_key=key, auto_delete=True)
                consumer = Consumer(connection.channel(), [queue], no_ack=True)
                consumer.register_callback(lambda body, message, who=who: seen[who].append(body))
                stack.enter_context(consumer)
                listeners.append(connection)
            producer = Producer(self.connection.channel(), exchange=exchange)
            for key in ("mail.ann", "other.bob"):
                producer.publish(key, routing_key=key)
            while len(seen["all"]) < 2 or len(seen["some"]) < 1:
                for connection in listeners:
                    with contextlib.suppress(socket.timeout):
                        connection.drain_events(timeout=0.05)
        self.assertEqual(sorted(seen["all"]), ["mail.ann", "other.bob"])
        self.assertEqual(seen["some"], ["mail.ann"])
        # Who does not listen any more is not published to.
        for connection in listeners:
            connection.close()
        self.assertEqual(self.server.call("QLEN", transport.BINDINGS + self.name), 0)


class Reconnecting(KombuTest):
    def test_a_consumer_whose_connections_are_closed_goes_on(self):
        queue = Queue(self.name, exchange="", routing_key=self.name)
        seen = []
        with self.connection.channel() as channel, Consumer(channel, [queue], on_message=seen.append):
            with self.assertRaises(socket.timeout):
                self.connection.drain_events(timeout=0.1)
            self.server.call("CLIENT", "KILL", "TYPE", "normal")
            self.publish("after")
            self.connection.drain_events(timeout=resp.PATIENCE_SECS)
            self.server.call("CLIENT", "KILL", "TYPE", "normal")
            seen[0].ack()
        self.assertEqual(self.server.call("QLEN", self.name), 0)

    def test_without_any_node_there_is_an_error_and_then_it_goes_on(self):
        with Server(BINARY) as server:
            connection = self.connect(f"disque://127.0.0.1:{server.port}")
            connection.connect()
            server.kill()
            with self.assertRaisesRegex(OSError, "no node of Disque can be used"):
                connection.default_channel.queue_declare("any")

    def test_an_acknowledgement_without_any_node_is_sent_when_there_is_one(self):
        with Server(BINARY, "appendonly yes") as server:
            self.connection = self.connect(f"disque://127.0.0.1:{server.port}")
            self.publish("done")
            queue = Queue(self.name, exchange="", routing_key=self.name)(self.connection.channel())
            message = queue.get()
            server.kill()
            message.ack()
            server.__enter__()
            client = resp.Client(server.port)
            self.addCleanup(client.close)
            eventually(lambda: client.call("DBSIZE"), lambda count: count == 0, "the job is gone")

    def test_a_password_is_sent_and_a_wrong_one_refused(self):
        with Server(BINARY, "requirepass secret") as server:
            for credentials in (":secret", "default:secret"):
                connection = self.connect(f"disque://{credentials}@127.0.0.1:{server.port}")
                self.assertEqual(connection.default_channel.queue_declare("any").message_count, 0)
                connection.close()
            with self.assertRaisesRegex(ErrorReply, "invalid password"):
                self.connect(f"disque://:wrong@127.0.0.1:{server.port}").connect()

    def test_a_node_that_leaves_is_left(self):
        with Server(BINARY, "cluster-node-timeout 1000") as one, Server(BINARY, "cluster-node-timeout 1000") as two:
            clients = {server.port: resp.Client(server.port) for server in (one, two)}
            clients[one.port].call("CLUSTER", "MEET", "127.0.0.1", two.port)
            for client in clients.values():
                eventually(
                    lambda: client.call("HELLO")[2:],
                    lambda rows: len(rows) == 2 and all(row[3] == b"1" for row in rows),
                    "the nodes have links",
                )
            # The other one is not in the URL.
            self.connection = self.connect(f"disque://127.0.0.1:{one.port}", replicate=1)
            queue = Queue(self.name, exchange="", routing_key=self.name)
            seen = []
            with self.connection.channel() as channel, Consumer(channel, [queue], on_message=seen.append):
                with self.assertRaises(socket.timeout):
                    self.connection.drain_events(timeout=0.1)
                clients[one.port].call("CLUSTER", "LEAVING", "yes")
                # The first may come by the fetch that was waiting, the next one does not.
                for body in ("first", "second"):
                    self.publish(body)
                    self.connection.drain_events(timeout=resp.PATIENCE_SECS)
                self.assertIn(b"cmd=getjob", clients[two.port].call("CLIENT", "LIST"))
                for message in seen:
                    message.ack()
            for client in clients.values():
                client.close()

    def test_acknowledgements_come_from_any_thread(self):
        self.publish(*range(20))
        threads = []

        def act(message):
            threads.append(threading.Thread(target=message.ack))
            threads[-1].start()

        self.assertEqual(sorted(self.consume(20, act=act, prefetch=4)), list(range(20)))
        for thread in threads:
            thread.join()


class Packaging(unittest.TestCase):
    def test_the_package_builds_and_has_its_modules(self):
        with tempfile.TemporaryDirectory() as folder:
            copy = pathlib.Path(folder) / "source"
            shutil.copytree(SOURCE, copy)
            pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
            subprocess.run([*pip, "--no-index", "--wheel-dir", folder, copy], check=True)
            (wheel,) = pathlib.Path(folder).glob("kombu_disque-*.whl")
            names = zipfile.ZipFile(wheel).namelist()
        for module in SOURCE.glob("kombu_disque/*.py"):
            self.assertIn(f"kombu_disque/{module.name}", names)


if __name__ == "__main__":
    unittest.main()
