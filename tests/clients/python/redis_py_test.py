"""redis-py 8 as it comes: HELLO 3, CLIENT SETINFO, RESP3 nulls."""

import hashlib
import unittest

import redis

from support import HOST, JOB_ID, PORT


class RedisPy(unittest.TestCase):
    def setUp(self):
        self.client = redis.Redis(host=HOST, port=PORT)
        self.queue = self.id()

    def tearDown(self):
        self.client.close()

    def test_ping_and_info(self):
        self.assertTrue(self.client.ping())
        info = self.client.info()
        self.assertEqual((info["tcp_port"], info["loading"]), (PORT, 0))
        self.assertIn("disque_version", info)
        self.assertEqual(list(self.client.info("queues")), ["registered_queues"])

    def test_settings(self):
        self.assertEqual(self.client.config_get("slowlog-max-len"), {"slowlog-max-len": "128"})
        self.assertTrue(self.client.config_set("slowlog-max-len", 64))
        self.assertEqual(self.client.config_get("slowlog-max-l*"), {"slowlog-max-len": "64"})
        self.assertEqual(self.client.config_get("no-such-directive"), {})
        with self.assertRaisesRegex(redis.ResponseError, "^Unsupported CONFIG parameter: no-such"):
            self.client.config_set("no-such", "x")
        self.assertTrue(self.client.config_resetstat())

    def test_client_commands(self):
        self.assertIsNone(self.client.client_getname())
        named = redis.Redis(host=HOST, port=PORT, client_name="tester", single_connection_client=True)
        self.assertEqual(named.client_getname(), "tester")
        self.assertGreater(named.client_id(), 0)
        self.assertIn("tester", [row["name"] for row in self.client.client_list()])
        named.close()

    def test_jobs(self):
        add = ("ADDJOB", self.queue, b"body", 0, "RETRY", 60)
        job_id = self.client.execute_command(*add)
        self.assertRegex(job_id, JOB_ID)
        fetched = self.client.execute_command("GETJOB", "TIMEOUT", 5_000, "FROM", self.queue)
        self.assertEqual(fetched, [[self.queue.encode(), job_id, b"body"]])
        self.assertEqual(self.client.execute_command("WORKING", job_id), 60)
        self.assertEqual(self.client.execute_command("NACK", job_id), 1)
        fetched = self.client.execute_command("GETJOB", "WITHCOUNTERS", "FROM", self.queue)
        self.assertEqual(
            fetched,
            [[self.queue.encode(), job_id, b"body", b"nacks", 1, b"additional-deliveries", 0]],
        )
        self.assertEqual(self.client.execute_command("ACKJOB", job_id), 1)

    def test_attributes(self):
        span = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
        given = ("ATTR", "traceparent", span, "ATTR", "type", b"\x00\xff")
        job_id = self.client.execute_command("ADDJOB", self.queue, b"body", 0, *given)
        plain_id = self.client.execute_command("ADDJOB", self.queue, b"plain", 0)
        fetched = self.client.execute_command(
            "GETJOB", "WITHATTRS", "COUNT", 2, "FROM", self.queue
        )
        self.assertEqual(
            fetched,
            [
                [self.queue.encode(), job_id, b"body", b"attrs",
                 [b"traceparent", span, b"type", b"\x00\xff"]],
                [self.queue.encode(), plain_id, b"plain", b"attrs", []],
            ],
        )
        shown = self.client.execute_command("SHOW", job_id)
        self.assertEqual(shown[-2:], [b"attrs", [b"traceparent", span, b"type", b"\x00\xff"]])
        self.assertEqual(self.client.execute_command("SHOW", plain_id)[-2], b"body")
        with self.assertRaisesRegex(redis.ResponseError, "^ATTR needs a name and a value$"):
            self.client.execute_command("ADDJOB", self.queue, b"body", 0, "ATTR", "type")

    def test_priorities_and_waiting(self):
        add = ("DISQUE.ADDJOB", self.queue)
        plain_id = self.client.execute_command(*add, b"plain", 0)
        urgent_id = self.client.execute_command(*add, b"urgent", 0, "PRIORITY", 1)
        peeked = self.client.execute_command("QPEEK", self.queue, 9, "SKIP", 1)
        self.assertEqual(peeked, [[self.queue.encode(), plain_id, b"plain"]])
        self.assertEqual(
            self.client.execute_command("SHOW", urgent_id)[-2:], [b"priority", 1]
        )
        fetched = self.client.execute_command("DISQUE", "GETJOB", "FROM", self.queue)
        self.assertEqual(fetched, [[self.queue.encode(), urgent_id, b"urgent"]])
        self.assertEqual(self.client.execute_command("ACKJOB", urgent_id), 1)
        ended = self.client.execute_command("WAITJOB", urgent_id, plain_id)
        self.assertEqual(ended, [[urgent_id, b"acked"]])
        self.assertIsNone(self.client.execute_command("WAITJOB", "TIMEOUT", 20, plain_id))
        stat = self.client.execute_command("QSTAT", self.queue, "CLUSTER")
        self.assertEqual(stat[:4], [b"name", self.queue.encode(), b"len", 1])
        self.assertEqual(stat[-4:], [b"nodes", 1, b"silent", 0])
        with self.assertRaisesRegex(redis.ResponseError, "^PRIORITY must be between 1 and 7$"):
            self.client.execute_command(*add, b"body", 0, "PRIORITY", 8)

    def test_delays_and_leases(self):
        job_id = self.client.execute_command("ADDJOB", self.queue, b"body", 0, "RETRY", 60)
        get = ("GETJOB", "LEASE", 600, "FROM", self.queue)
        self.assertEqual(len(self.client.execute_command(*get)), 1)
        self.assertEqual(self.client.execute_command("WORKING", job_id, "LEASE", 900), 900)
        self.assertEqual(self.client.execute_command("NACK", job_id, "DELAY", 300), 1)
        scan = ("JSCAN", "STATE", "delayed", "QUEUE", self.queue)
        self.assertEqual(self.client.execute_command(*scan), [b"0", [job_id]])
        with self.assertRaisesRegex(redis.ResponseError, "^DELAY time must be"):
            self.client.execute_command("NACK", job_id, "DELAY", "soon")
        self.assertEqual(self.client.execute_command("NACK", job_id, "DELAY", 0, "SILENT"), 1)
        fetched = self.client.execute_command("GETJOB", "WITHCOUNTERS", "FROM", self.queue)
        self.assertEqual(fetched[0][3:], [b"nacks", 1, b"additional-deliveries", 0])

    def test_dead_letters(self):
        execute = self.client.execute_command
        job_id = execute("ADDJOB", self.queue, b"body", 0, "MAXDELIVERIES", 1)
        self.assertEqual(len(execute("GETJOB", "FROM", self.queue)), 1)
        with self.assertRaisesRegex(redis.ResponseError, "^DELAY and DEAD exclude each other$"):
            execute("NACK", job_id, "DEAD", "DELAY", 5)
        self.assertEqual(execute("NACK", job_id, "REASON", "no route"), 1)
        (row,) = execute("GETJOB", "WITHATTRS", "FROM", self.queue + ".dead")
        self.assertEqual(row[1:5], [job_id, b"body", b"attrs", []])
        facts = dict(zip(row[6][::2], row[6][1::2]))
        self.assertEqual(row[5], b"dead")
        self.assertEqual(facts[b"reason"], b"max-deliveries")
        self.assertEqual(facts[b"queue"], self.queue.encode())
        self.assertEqual(facts[b"note"], b"no route")
        self.assertEqual(execute("ACKJOB", job_id), 1)

    def test_moves(self):
        target = self.queue + "-target"
        ids = [self.client.execute_command("ADDJOB", self.queue, n, 0) for n in range(4)]
        move = ("MOVEJOB", target, ids[3], ids[0], "PRIORITY", 4)
        self.assertEqual(self.client.execute_command(*move), 2)
        self.assertEqual(self.client.execute_command("QMOVE", self.queue, target, "COUNT", 1), 1)
        peeked = self.client.execute_command("QPEEK", target, 9)
        self.assertEqual([row[1] for row in peeked], [ids[0], ids[1], ids[3]])
        self.assertEqual(self.client.execute_command("QREDRIVE", target, "REASON", "nack"), 0)
        self.assertEqual(self.client.execute_command("QPURGE", target), 3)
        self.assertEqual(self.client.execute_command("QLEN", target), 0)
        self.assertEqual(self.client.execute_command("MOVEJOB", target, ids[0]), 0)
        with self.assertRaisesRegex(redis.ResponseError, "^COUNT must be between 1 and 10000$"):
            self.client.execute_command("QPURGE", target, "COUNT", 0)

    def test_every_kind_of_nothing_is_none(self):
        missing = "D-00000000-000000000000000000000000-0000"
        for command in (
            ("GETJOB", "NOHANG", "FROM", self.queue),
            ("GETJOB", "TIMEOUT", 20, "FROM", self.queue),
            ("QSTAT", self.queue + "-unknown"),
            ("SHOW", missing),
        ):
            self.assertIsNone(self.client.execute_command(*command), command)

    def test_pipeline(self):
        with self.client.pipeline(transaction=False) as pipeline:
            for n in range(100):
                pipeline.execute_command("ADDJOB", self.queue, n, 0)
            pipeline.execute_command("QLEN", self.queue)
            *ids, length = pipeline.execute()
        self.assertEqual((len(set(ids)), length), (100, 100))

    def test_password(self):
        self.client.config_set("requirepass", "secret")
        try:
            with self.assertRaises(redis.AuthenticationError):
                redis.Redis(host=HOST, port=PORT).ping()
            with self.assertRaises(redis.AuthenticationError):
                redis.Redis(host=HOST, port=PORT, password="wrong").ping()
            for protocol in (2, 3):
                client = redis.Redis(host=HOST, port=PORT, password="secret", protocol=protocol)
                self.assertTrue(client.ping())
                client.close()
        finally:
            redis.Redis(host=HOST, port=PORT, password="secret").config_set("requirepass", "")

    def test_url_with_user_and_password(self):
        self.client.config_set("requirepass", "secret")
        try:
            for protocol in (2, 3):
                for login in ("default:secret", ":secret"):
                    with redis.Redis.from_url(url(login), protocol=protocol) as client:
                        self.assertTrue(client.ping(), login)
                for login in ("nobody:secret", "default:wrong", ":wrong"):
                    with redis.Redis.from_url(url(login), protocol=protocol) as client:
                        with self.assertRaises(redis.AuthenticationError):
                            client.ping()
        finally:
            redis.Redis.from_url(url(":secret")).config_set("requirepass", "")

    def test_users(self):
        self.client.config_set("requirepass", "secret")
        admin = redis.Redis.from_url(url(":secret"))
        line = f"mailer {user_hash('long word')} produce,consume {self.queue}*"
        try:
            admin.config_set("user", line)
            self.assertEqual(admin.config_get("user"), {"user": line})
            for protocol in (2, 3):
                with redis.Redis.from_url(url("mailer:long%20word"), protocol=protocol) as client:
                    self.assertIn(client.acl_whoami(), (b"mailer", "mailer"))
                    job_id = client.execute_command("ADDJOB", self.queue, "body", 0)
                    fetched = client.execute_command("GETJOB", "FROM", self.queue)
                    self.assertEqual(fetched, [[self.queue.encode(), job_id, b"body"]])
                    self.assertEqual(client.execute_command("ACKJOB", job_id), 1)
                    with self.assertRaisesRegex(redis.exceptions.NoPermissionError, "config|get"):
                        client.config_get("user")
                    with self.assertRaisesRegex(redis.exceptions.NoPermissionError, "a queue$"):
                        client.execute_command("ADDJOB", "other", "body", 0)
                    self.assertTrue(client.ping())
                with redis.Redis.from_url(url("mailer:wrong"), protocol=protocol) as client:
                    with self.assertRaises(redis.AuthenticationError):
                        client.ping()
            self.assertIn("default", [row["user"] for row in admin.client_list()])
        finally:
            admin.config_set("user", "mailer")
            admin.config_set("requirepass", "")

    def test_first_words_of_tools(self):
        self.assertEqual(self.client.echo("hello"), b"hello")
        self.assertEqual(self.client.acl_whoami(), "default")
        self.assertEqual(self.client.module_list(), [])
        self.assertEqual(list(self.client.scan_iter("*")), [])
        self.assertEqual(self.client.keys("*"), [])
        self.assertEqual(self.client.type("key"), b"none")
        self.assertIn(b"addjob", self.client.execute_command("COMMAND LIST"))
        before = self.client.dbsize()
        self.client.execute_command("ADDJOB", self.queue, "body", 0)
        self.assertEqual(self.client.dbsize(), before + 1)
        self.assertEqual(self.client.config_get("databases"), {"databases": "1"})
        self.assertEqual(self.client.client_info()["name"], "")
        self.assertTrue(self.client.client_pause(60_000))
        self.assertTrue(self.client.client_unpause())
        with redis.Redis.from_url(f"redis://{HOST}:{PORT}/1") as client:
            with self.assertRaisesRegex(redis.ResponseError, "DB index is out of range"):
                client.ping()


def user_hash(password):
    return "sha256:" + hashlib.sha256(password.encode()).hexdigest()


def url(login):
    return f"redis://{login}@{HOST}:{PORT}/0"


if __name__ == "__main__":
    unittest.main()
