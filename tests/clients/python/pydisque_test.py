"""pydisque: the widest Python client. Runs once on redis-py 7 and once on redis-py 8,
which greets with HELLO 3 and reads RESP3 nulls."""

import json
import logging
import time
import unittest

from pydisque.client import Client
from redis.exceptions import ResponseError

from support import ADDRESS, JOB_ID, NODE_ID, QSTAT_FIELDS, SHOW_FIELDS, Background, wait_until

# pydisque logs each error it retries; the tests provoke some.
logging.disable(logging.CRITICAL)


def connected():
    client = Client([ADDRESS])
    client.connect()
    return client


class Pydisque(unittest.TestCase):
    def setUp(self):
        self.client = connected()
        self.queue = self.id()
        self.name = self.queue.encode()

    def tearDown(self):
        self.client.get_connection().close()

    def test_hello_names_this_node(self):
        version, node_id, *nodes = self.client.hello()
        self.assertEqual(version, 1)
        self.assertRegex(node_id, NODE_ID)
        self.assertEqual(self.client.connected_node.node_id, node_id)
        self.assertIn(node_id, [node[0] for node in nodes])
        self.assertTrue(all(len(node) == 4 for node in nodes))

    def test_info_has_the_version_and_the_counts(self):
        self.client.add_job(self.queue, "counted")
        info = self.client.info()
        self.assertIn("disque_version", info)
        self.assertGreaterEqual(info["registered_jobs"], 1)
        self.assertGreaterEqual(info["registered_queues"], 1)
        self.assertEqual(info["loading"], 0)

    def test_jobs_come_back_as_they_were_added_and_in_order(self):
        bodies = [json.dumps(["hello", n]).encode() for n in range(5)] + [b"\x00\r\n\xff", b""]
        ids = [self.client.add_job(self.queue, body) for body in bodies]
        for job_id in ids:
            self.assertRegex(job_id, JOB_ID)
        self.assertEqual(self.client.qlen(self.queue), len(bodies))
        jobs = self.client.get_job([self.queue], count=100)
        self.assertEqual(jobs, [(self.name, job_id, body) for job_id, body in zip(ids, bodies)])

    def test_left_queue_is_served_first(self):
        other = self.queue + "-other"
        second = self.client.add_job(other, "second")
        first = self.client.add_job(self.queue, "first")
        jobs = self.client.get_job([self.queue, other], count=2)
        self.assertEqual([job[1] for job in jobs], [first, second])

    def test_nothing_there_is_an_empty_list(self):
        self.assertEqual(self.client.get_job([self.queue], nohang=True), [])
        self.assertEqual(self.client.get_job([self.queue], timeout=20), [])

    def test_blocked_consumer_gets_the_job_when_it_comes(self):
        consumer = connected()
        waiting = Background(lambda: consumer.get_job([self.queue], timeout=20_000))

        def blocked():
            stat = self.client.qstat(self.queue)
            return bool(stat) and dict(zip(stat[::2], stat[1::2]))[b"blocked"] == 1

        wait_until(blocked, "the consumer is blocked")
        job_id = self.client.add_job(self.queue, "at last")
        self.assertEqual(waiting.result(), [(self.name, job_id, b"at last")])
        consumer.get_connection().close()

    def test_acknowledged_job_is_gone(self):
        for acknowledge in (self.client.ack_job, self.client.fast_ack):
            ids = [self.client.add_job(self.queue, "work", retry=1) for _ in range(3)]
            self.client.get_job([self.queue], count=3)
            acknowledge(*ids)
            self.assertEqual([self.client.show(job_id) for job_id in ids], [None] * 3)
            self.assertEqual(self.client.jscan(queue=self.queue, busyloop=True), [b"0", []])
            self.assertEqual(self.client.qlen(self.queue), 0)

    def test_nack_puts_the_job_back_and_counts(self):
        job_id = self.client.add_job(self.queue, "hard")
        for nacks in range(3):
            jobs = self.client.get_job([self.queue], timeout=5_000, withcounters=True)
            self.assertEqual(jobs, [(self.name, job_id, b"hard", nacks, 0)])
            self.client.nack_job(job_id)
        self.assertEqual(self.client.qlen(self.queue), 1)

    def test_working_answers_the_retry_time(self):
        job_id = self.client.add_job(self.queue, "long", retry=60)
        self.client.get_job([self.queue])
        self.assertEqual(self.client.working(job_id), 60)
        self.client.ack_job(job_id)
        with self.assertRaisesRegex(ResponseError, "^NOJOB"):
            self.client.working(job_id)

    def test_job_not_acknowledged_comes_back_after_its_retry_time(self):
        job_id = self.client.add_job(self.queue, "again", retry=1)
        self.client.get_job([self.queue])
        fetched_at = time.monotonic()
        jobs = self.client.get_job([self.queue], timeout=10_000, withcounters=True)
        self.assertEqual(jobs, [(self.name, job_id, b"again", 0, 1)])
        self.assertGreater(time.monotonic() - fetched_at, 0.25)

    def test_job_with_retry_0_is_delivered_once(self):
        job_id = self.client.add_job(self.queue, "once", retry=0)
        self.assertEqual(self.client.get_job([self.queue]), [(self.name, job_id, b"once")])
        self.assertEqual(self.client.get_job([self.queue], timeout=50), [])

    def test_delayed_job_waits_out_its_delay(self):
        added_at = time.monotonic()
        job_id = self.client.add_job(self.queue, "later", delay=1)
        self.assertEqual(self.client.qlen(self.queue), 0)
        self.assertEqual(
            self.client.get_job([self.queue], timeout=10_000), [(self.name, job_id, b"later")]
        )
        self.assertGreater(time.monotonic() - added_at, 0.5)

    def test_job_leaves_its_queue_when_its_ttl_ends(self):
        job_id = self.client.add_job(self.queue, "brief", ttl=5)
        self.assertEqual(self.client.qlen(self.queue), 1)
        wait_until(lambda: self.client.qlen(self.queue) == 0, "the job expires")
        self.assertIsNone(self.client.show(job_id))

    def test_asynchronous_add_is_queued_like_any_other(self):
        job_id = self.client.add_job(self.queue, "soon", asynchronous=True)
        jobs = self.client.get_job([self.queue], timeout=5_000)
        self.assertEqual(jobs, [(self.name, job_id, b"soon")])

    def test_full_queue_refuses(self):
        self.client.add_job(self.queue, "fits", maxlen=1)
        with self.assertRaisesRegex(
            ResponseError, "^MAXLEN Queue is already longer than the specified MAXLEN count$"
        ):
            self.client.add_job(self.queue, "does not", maxlen=1)
        self.assertEqual(self.client.qlen(self.queue), 1)

    def test_more_copies_than_nodes_are_refused(self):
        with self.assertRaisesRegex(
            ResponseError,
            "^NOREPL Not enough reachable nodes for the requested replication level$",
        ):
            self.client.add_job(self.queue, "everywhere", replicate=3)

    def test_show_tells_everything_in_the_known_order(self):
        earliest = time.time_ns()
        job_id = self.client.add_job(self.queue, "shown", retry=60, ttl=600)
        latest = time.time_ns()
        self.assertEqual(self.client.show(job_id)[::2], SHOW_FIELDS)
        job = self.client.show(job_id, return_dict=True)
        self.assertEqual(job[b"id"], job_id)
        self.assertEqual(job[b"queue"], self.name)
        self.assertEqual(job[b"state"], b"queued")
        self.assertEqual((job[b"repl"], job[b"delay"], job[b"retry"]), (1, 0, 60))
        self.assertTrue(500 <= job[b"ttl"] <= 600, job[b"ttl"])
        # Within the grain of the server's clock.
        self.assertGreater(job[b"ctime"], earliest - 10**8)
        self.assertLess(job[b"ctime"], latest + 10**8)
        self.assertEqual(job[b"nodes-delivered"], [self.client.connected_node.node_id])
        self.assertEqual(job[b"nodes-confirmed"], [])
        self.assertEqual(job[b"body"], b"shown")
        self.client.get_job([self.queue])
        self.assertEqual(self.client.show(job_id, return_dict=True)[b"state"], b"active")

    def test_peek_takes_nothing(self):
        ids = [self.client.add_job(self.queue, str(n)) for n in range(3)]
        rows = [[self.name, job_id, str(n).encode()] for n, job_id in enumerate(ids)]
        self.assertEqual(self.client.qpeek(self.queue, 2), rows[:2])
        self.assertEqual(self.client.qpeek(self.queue, -2), rows[:0:-1])
        self.assertEqual(self.client.qlen(self.queue), 3)
        self.assertEqual(self.client.qpeek(self.queue + "-unknown", 2), [])

    def test_queue_statistics(self):
        self.client.add_job(self.queue, "1")
        self.client.add_job(self.queue, "2")
        self.client.get_job([self.queue])
        stat = self.client.qstat(self.queue, return_dict=True)
        self.assertEqual(list(stat), QSTAT_FIELDS)
        self.assertEqual(stat[b"name"], self.name)
        self.assertEqual((stat[b"len"], stat[b"jobs-in"], stat[b"jobs-out"]), (1, 2, 1))
        self.assertEqual(stat[b"pause"], b"none")
        self.assertIsNone(self.client.qstat(self.queue + "-unknown"))

    def test_dequeue_and_enqueue(self):
        job_id = self.client.add_job(self.queue, "moved")
        self.assertEqual(self.client.enqueue(job_id), 0)
        self.assertEqual(self.client.dequeue(job_id), 1)
        self.assertEqual(self.client.qlen(self.queue), 0)
        self.assertEqual(self.client.enqueue(job_id), 1)
        self.assertEqual(self.client.get_job([self.queue]), [(self.name, job_id, b"moved")])

    def test_delete(self):
        job_id = self.client.add_job(self.queue, "unwanted")
        self.assertEqual(self.client.del_job(job_id), 1)
        self.assertEqual(self.client.del_job(job_id), 0)
        self.assertEqual(self.client.qlen(self.queue), 0)

    def test_pause_stops_producers_and_consumers(self):
        self.assertEqual(self.client.pause(self.queue, kw_state=True), b"none")
        self.client.add_job(self.queue, "before")
        self.assertEqual(self.client.pause(self.queue, kw_in=True), b"in")
        with self.assertRaisesRegex(ResponseError, "^PAUSED Queue paused in input, try later$"):
            self.client.add_job(self.queue, "refused")
        self.assertEqual(self.client.pause(self.queue, kw_all=True), b"all")
        self.assertEqual(self.client.get_job([self.queue], timeout=20), [])
        self.assertEqual(self.client.pause(self.queue, kw_none=True), b"none")
        self.assertEqual(self.client.get_job([self.queue])[0][2], b"before")

    def test_queue_scan_finds_every_queue_once(self):
        names = {f"{self.queue}-{n}".encode() for n in range(30)}
        for name in names:
            self.client.add_job(name, "here")
        cursor, found = b"0", []
        while True:
            cursor, part = self.client.qscan(cursor, count=7)
            found += [name for name in part if name in names]
            if cursor == b"0":
                break
        self.assertEqual(sorted(found), sorted(names))
        cursor, longer = self.client.qscan(busyloop=True, minlen=2)
        self.assertEqual((cursor, names & set(longer)), (b"0", set()))

    def test_job_scan_finds_every_job_once(self):
        ids = [self.client.add_job(self.queue, str(n)) for n in range(30)]
        cursor, found = b"0", []
        while True:
            cursor, part = self.client.jscan(cursor, count=7, queue=self.queue)
            found += part
            if cursor == b"0":
                break
        self.assertEqual(sorted(found), sorted(ids))

        fetched = [job[1] for job in self.client.get_job([self.queue], count=4)]
        _, active = self.client.jscan(busyloop=True, queue=self.queue, state=["active"])
        self.assertEqual(sorted(active), sorted(fetched))
        _, rows = self.client.jscan(
            busyloop=True, queue=self.queue, state=["active", "queued"], reply="all"
        )
        self.assertEqual(sorted(row[1] for row in rows), sorted(ids))
        self.assertTrue(all(row[::2] == SHOW_FIELDS for row in rows))

    def test_malformed_id_is_refused_and_nothing_is_done(self):
        job_id = self.client.add_job(self.queue, "kept")
        for command in (self.client.ack_job, self.client.fast_ack, self.client.nack_job):
            with self.assertRaisesRegex(ResponseError, "^BADID Invalid Job ID format.$"):
                command(job_id, "DI81250b3ccbac68e6625e79c8e7c5b286b1dcd2ac05a0SQ")
        self.assertEqual(self.client.qlen(self.queue), 1)


if __name__ == "__main__":
    unittest.main()
