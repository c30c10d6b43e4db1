"""disq on four nodes: it introduces them to each other, keeps a pool of connections for each
that HELLO names, and reads where most of its jobs come from."""

import unittest

from old_disq import disq
from redis.connection import ConnectionPool

from support import HOST, PORTS, wait_until

# Jobs that its first node borrowed before it turned to the producer's come back when they
# are asked for, which C nodes do every few seconds.
LENT_BACK_SECS = 60


def alone(port):
    """A client of a node that may not know its own address yet, and calls it ""."""
    client = disq.Disque(host=HOST, port=port)
    for node in client.connection_pool:
        client.connection_pool[node] = ConnectionPool(host=HOST, port=port)
    return client


def hang_up(client):
    for pool in client.connection_pool.values():
        pool.disconnect()


class FourNodes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        first = alone(PORTS[0])
        cls.addClassCleanup(hang_up, first)
        for port in PORTS[1:]:
            assert first.cluster_meet(HOST, port) == b"OK"
        for port in PORTS:
            node = alone(port)
            cls.addClassCleanup(hang_up, node)

            def sees_all():
                nodes = node.hello()["nodes"]
                return (
                    len(nodes) == 4
                    and all(priority == b"1" for *_, priority in nodes)
                    and b"reachable_nodes:3\r\n" in node.cluster_info()
                )

            wait_until(sees_all, "all nodes have met")

    def setUp(self):
        self.client = disq.Disque(host=HOST, port=PORTS[0])
        self.addCleanup(hang_up, self.client)
        self.queue = self.id()

    def test_it_keeps_connections_to_all_four(self):
        ids = {node_id[:8].decode() for node_id, *_ in self.client.hello()["nodes"]}
        self.assertEqual(len(ids), 4)
        self.assertEqual(set(self.client.connection_pool), ids)
        self.assertEqual(len(self.client.cluster_nodes()), 4)

    def test_it_reads_where_its_jobs_come_from(self):
        producer = disq.Disque(host=HOST, port=PORTS[2])
        self.addCleanup(hang_up, producer)
        added = {
            producer.addjob(self.queue, f"{n}", timeout_ms=5000, replicate=4, retry_secs=60)
            for n in range(20)
        }
        self.assertEqual({job_id[2:10] for job_id in added}, {producer.default_node})
        missing = set(added)

        def all_come():
            jobs = self.client.getjob(self.queue, timeout_ms=100, count=5) or []
            ids = [job_id for _, job_id, _ in jobs]
            if ids:
                self.assertEqual(self.client.ackjob(*ids), len(ids))
            missing.difference_update(ids)
            return not missing

        wait_until(all_come, "the jobs come", LENT_BACK_SECS)
        # From its first jobs on it asks the producer's own node.
        connection, node = self.client._get_connection("GETJOB")
        self.client._release_connection(connection, node)
        self.assertEqual(node, producer.default_node)
        for job_id in added:
            wait_until(lambda: self.client.show(job_id) is None, "the job has left all nodes")

    def test_more_copies_than_nodes_are_refused(self):
        with self.assertRaisesRegex(disq.ResponseError, "^NOREPL "):
            self.client.addjob(self.queue, "body", timeout_ms=100, replicate=5)
        self.client.addjob(self.queue, "body", timeout_ms=5000, replicate=4)


if __name__ == "__main__":
    unittest.main()
