"""redis-cli and redis-benchmark, as the distribution ships them."""

import re
import subprocess
import unittest

from support import HOST, PATIENCE_SECS, PORT, needs_hello_3


def run(tool, *arguments):
    return subprocess.run(
        [tool, "-h", HOST, "-p", str(PORT), *arguments],
        capture_output=True,
        text=True,
        timeout=6 * PATIENCE_SECS,
        check=True,
    ).stdout


class RedisCli(unittest.TestCase):
    protocol = []

    def cli(self, *arguments):
        return run("redis-cli", *self.protocol, *arguments).rstrip("\n")

    def test_ping_and_info(self):
        self.assertEqual(self.cli("PING"), "PONG")
        self.assertTrue(self.cli("INFO").startswith("# Server\n"))
        self.assertIn(f"tcp_port:{PORT}", self.cli("INFO", "server").split())

    def test_settings(self):
        self.assertEqual(self.cli("CONFIG", "SET", "slowlog-max-len", "64"), "OK")
        self.assertEqual(
            self.cli("CONFIG", "GET", "slowlog-max-len").split(), ["slowlog-max-len", "64"]
        )

    def test_jobs(self):
        queue = self.id()
        job_id = self.cli("ADDJOB", queue, "body", "0")
        self.assertEqual(
            self.cli("GETJOB", "NOHANG", "FROM", queue).split("\n"), [queue, job_id, "body"]
        )
        self.assertEqual(self.cli("ACKJOB", job_id), "1")
        self.assertEqual(self.cli("GETJOB", "NOHANG", "FROM", queue), "")

    @needs_hello_3
    def test_url_with_user_and_password(self):
        def by_url(login):
            command = ["redis-cli", *self.protocol, "-u", f"redis://{login}@{HOST}:{PORT}/0", "PING"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECS)
            return done.stdout.strip()

        self.cli("CONFIG", "SET", "requirepass", "secret")
        try:
            for login in ("default:secret", ":secret"):
                self.assertEqual(by_url(login), "PONG", login)
            for login in ("nobody:secret", "default:wrong"):
                self.assertRegex(by_url(login), "^(NOAUTH|WRONGPASS)", login)
        finally:
            self.cli("-a", "secret", "CONFIG", "SET", "requirepass", "")

    @needs_hello_3
    def test_mass_insertion(self):
        queue = self.id()
        commands = "".join(f"ADDJOB {queue} {number} 0\r\n" for number in range(10_000))
        done = subprocess.run(
            ["redis-cli", *self.protocol, "-h", HOST, "-p", str(PORT), "--pipe"],
            input=commands,
            capture_output=True,
            text=True,
            timeout=6 * PATIENCE_SECS,
            check=True,
        )
        self.assertIn("errors: 0, replies: 10000\n", done.stdout)
        self.assertEqual(self.cli("QLEN", queue), "10000")

    @needs_hello_3
    def test_help_shows_arguments(self):
        for command, syntax in (("SELECT", "SELECT index"), ("ECHO", "ECHO message")):
            done = subprocess.run(
                ["redis-cli", "-h", HOST, "-p", str(PORT)],
                input=f"help {command}\n",
                capture_output=True,
                text=True,
                timeout=PATIENCE_SECS,
                check=True,
            )
            self.assertIn(syntax, re.sub(r"\x1b\[\d*m", "", done.stdout))


@needs_hello_3
class RedisCliWithHello3(RedisCli):
    """`-3` greets with HELLO 3."""

    protocol = ["-3"]


class RedisBenchmark(unittest.TestCase):
    def test_ping_runs(self):
        printed = run("redis-benchmark", "-t", "ping", "-n", "10000", "-q")
        for name in ("PING_INLINE", "PING_MBULK"):
            self.assertRegex(printed, rf"{name}: [0-9.]+ requests per second")

    def test_commands_of_disque_run(self):
        queue = self.id()

        def runs(*command):
            # It ends with an error and status 1 at the first error reply.
            printed = run("redis-benchmark", "-n", "5000", "-P", "8", "-c", "20", "-q", *command)
            self.assertIn("requests per second", printed)

        runs("ADDJOB", queue, "body", "0")
        self.assertEqual(run("redis-cli", "QLEN", queue), "5000\n")
        runs("GETJOB", "NOHANG", "FROM", queue)
        self.assertEqual(run("redis-cli", "QLEN", queue), "0\n")


if __name__ == "__main__":
    unittest.main()
