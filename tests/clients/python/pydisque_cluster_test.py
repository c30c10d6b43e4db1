"""pydisque on three nodes: it is given all their addresses, uses one, and goes on with
another when that one dies."""

import logging
import os
import signal
import unittest

from pydisque.client import Client

from support import HOST, PORTS, wait_until

# pydisque logs each error it retries; the test provokes some.
logging.disable(logging.CRITICAL)

# redis-py tries a dead node several times, with pauses that grow to seconds, and pydisque
# tries again what that gave up.
FAILOVER_SECS = 90


def connected(*ports):
    client = Client([f"{HOST}:{port}" for port in ports])
    client.connect()
    return client


def hang_up(client):
    for node in client.nodes.values():
        if node is not None:
            node.connection.close()


class ThreeNodes(unittest.TestCase):
    def test_it_fails_over_and_loses_no_job(self):
        client = connected(*PORTS)
        self.addCleanup(hang_up, client)
        for port in PORTS:
            client.execute_command("CLUSTER", "MEET", HOST, port)

        for port in PORTS:
            node = connected(port)
            self.addCleanup(hang_up, node)

            def sees_all():
                listed = node.hello()[2:]
                info = node.execute_command("CLUSTER", "INFO")
                return (
                    len(listed) == 3
                    and all(priority == b"1" for *_, priority in listed)
                    and b"reachable_nodes:2\r\n" in info
                )

            wait_until(sees_all, "all nodes have met")

        added = [client.add_job("q", str(n), timeout=5000, replicate=3, retry=1) for n in range(10)]
        dead = client.connected_node
        os.kill(client.info()["process_id"], signal.SIGKILL)

        missing = set(added)

        def all_come():
            for _, job_id, _ in client.get_job(["q"], timeout=100, count=5):
                client.ack_job(job_id)
                missing.discard(job_id)
            return not missing

        wait_until(all_come, "the copies are delivered", FAILOVER_SECS)
        self.assertNotEqual(client.connected_node.node_id, dead.node_id)
        # It is told of the death, too.
        wait_until(
            lambda: dict((entry[0], entry[3]) for entry in client.hello()[2:])[dead.node_id]
            == b"100",
            "the dead node is failing",
        )
        self.assertRegex(client.add_job("q", "after", timeout=5000, replicate=2), b"^D-")


if __name__ == "__main__":
    unittest.main()
