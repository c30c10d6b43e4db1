"""disq 0.0.4, on the redis-py of its days."""

import unittest

from old_disq import disq
from redis.connection import ConnectionPool

from support import HOST, JOB_ID, PORT


def connected(**options):
    client = disq.Disque(host=HOST, port=PORT, **options)
    # A node on its own calls its address "", which disq would dial from here on.
    for node in client.connection_pool:
        client.connection_pool[node] = ConnectionPool(host=HOST, port=PORT, **options)
    return client


class Disq(unittest.TestCase):
    def setUp(self):
        self.client = connected()
        self.queue = self.id()

    def tearDown(self):
        for pool in self.client.connection_pool.values():
            pool.disconnect()

    def test_hello_is_read_into_a_dict(self):
        hello = self.client.hello()
        self.assertEqual(hello["version"], 1)
        self.assertEqual(hello["id"][:8].decode(), self.client.default_node)
        ((node_id, _, port, priority),) = hello["nodes"]
        self.assertEqual(
            (node_id, port, priority), (hello["id"], str(PORT).encode(), b"1")
        )

    def test_produce_consume_acknowledge(self):
        job_id = self.client.addjob(self.queue, "body", retry_secs=60, ttl_secs=600)
        self.assertRegex(job_id.encode(), JOB_ID)
        self.assertEqual(job_id[2:10], self.client.default_node)
        self.assertEqual(self.client.qlen(self.queue), 1)
        jobs = self.client.getjob(self.queue, timeout_ms=5_000, queues=[self.queue + "-other"])
        self.assertEqual(jobs, [[self.queue, job_id, b"body"]])
        self.assertEqual(self.client.ackjob(job_id), 1)
        self.assertEqual(self.client.ackjob(job_id), 0)
        self.assertIsNone(self.client.show(job_id))

    def test_nothing_there_is_none(self):
        self.assertIsNone(self.client.getjob(self.queue, timeout_ms=20))

    def test_fast_acknowledge(self):
        job_id = self.client.addjob(self.queue, "body")
        self.assertEqual(self.client.fastack(job_id), 1)
        self.assertEqual(self.client.fastack(job_id), 0)

    def test_asynchronous_add_with_a_limit(self):
        self.client.addjob(self.queue, "1", maxlen=1, async_=True)
        with self.assertRaisesRegex(disq.ResponseError, "^MAXLEN "):
            self.client.addjob(self.queue, "2", maxlen=1, async_=True)

    def test_show_peek_dequeue_enqueue_delete(self):
        job_id = self.client.addjob(self.queue, "body", retry_secs=60)
        shown = self.client.show(job_id)
        job = dict(zip(shown[::2], shown[1::2]))
        self.assertEqual((job[b"id"], job[b"retry"]), (job_id.encode(), 60))
        self.assertEqual(
            self.client.qpeek(self.queue), [[self.queue.encode(), job_id.encode(), b"body"]]
        )
        self.assertEqual(self.client.dequeue(job_id), 1)
        self.assertEqual(self.client.enqueue(job_id), 1)
        self.assertEqual(self.client.deljob(job_id), 1)
        self.assertEqual(self.client.qlen(self.queue), 0)

    def test_server_commands(self):
        self.assertEqual(self.client.ping(), b"PONG")
        self.assertIn("disque_version", self.client.info())
        self.assertEqual(list(self.client.info("clients")), ["connected_clients",
            "client_longest_output_list", "client_biggest_input_buf", "blocked_clients"])
        self.assertTrue(self.client.bgrewriteaof())
        seconds, microseconds = self.client.time()
        self.assertGreater(seconds, 1_600_000_000)
        self.assertLess(microseconds, 1_000_000)
        (node,) = self.client.cluster_nodes().values()
        self.assertEqual((node["flags"], node["address"]), ("myself", f":{PORT}"))
        self.assertRegex(self.client.cluster_info(), rb"cluster_size:1\r\n")

    def test_settings_and_client_names(self):
        self.assertEqual(self.client.config_get("appendfsync"), {"appendfsync": "everysec"})
        self.assertTrue(self.client.config_set("slowlog-max-len", 64))
        self.assertEqual(self.client.config_get("slowlog-max-len"), {"slowlog-max-len": "64"})
        self.assertTrue(self.client.config_resetstat())
        self.assertTrue(self.client.client_setname("tester"))
        self.assertIn("tester", [client["name"] for client in self.client.client_list()])
        self.assertEqual(self.client.slowlog_reset(), b"OK")
        self.assertEqual(self.client.slowlog_len(), 0)

    def test_password(self):
        self.client.config_set("requirepass", "secret")
        try:
            for command in (self.client.ping, connected):
                with self.assertRaisesRegex(disq.ResponseError, "^NOAUTH Authentication required"):
                    command()
            self.assertEqual(connected(password="secret").ping(), b"PONG")
        finally:
            connected(password="secret").config_set("requirepass", "")


if __name__ == "__main__":
    unittest.main()
