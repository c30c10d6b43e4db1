"""Celery with real workers on real servers. Needs a server at DISQUE_PORT; see `tests/clients/run`."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import resp
from resp import eventually
from servers import Server

HERE = pathlib.Path(__file__).resolve().parent
BINARY = os.environ["DISQUE_SERVER"]
PORT = int(os.environ["DISQUE_PORT"])
FOLDER = tempfile.TemporaryDirectory(prefix="disque-celery-")
NOTES = pathlib.Path(FOLDER.name) / "notes"
BROKER = f"disque://127.0.0.1:{PORT}"

os.environ |= {"BROKER": BROKER, "NOTES": str(NOTES)}
NOTES.touch()

import celery_app  # noqa: E402
from celery_app import app  # noqa: E402

# Short, so that what comes back comes soon. On a slow machine a lease that is renewed three
# times as often must not be missed.
LEASE_SECS = 3


class Worker:
    """A Celery worker in a process group of its own."""

    def __init__(self, queue, *options, broker=BROKER, **environment):
        self.name = f"{queue}@tests"
        self._log = pathlib.Path(FOLDER.name) / f"{queue}-{time.monotonic_ns()}.log"
        command = [sys.executable, "-m", "celery", "-A", "celery_app", "worker", "-Q", queue]
        command += ["-n", self.name, "-l", "info", "--without-heartbeat", *options]
        environment = dict(os.environ, BROKER=broker, C_FORCE_ROOT="1", **environment)
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                command, cwd=HERE, env=environment, stdout=log, stderr=log, start_new_session=True
            )

    def __enter__(self):
        try:
            eventually(lambda: self.is_ready(), bool, "the worker is ready")
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, kind, *_):
        self.kill()
        if kind:
            print(self.log())

    def is_ready(self):
        assert self.process.poll() is None, self.log()
        return " ready." in self.log()

    def log(self):
        return self._log.read_text()

    def kill(self):
        """As the system does that is short of memory: everything at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self):
        os.kill(self.process.pid, signal.SIGTERM)


def notes(name, word):
    lines = [line.split() for line in NOTES.read_text().splitlines()]
    return [line for line in lines if line[:2] == [name, word]]


def noted(name, word, count=1):
    return eventually(lambda: notes(name, word), lambda it: len(it) >= count, f"{name} {word}")


def release(name):
    pathlib.Path(f"{NOTES}.{name}").touch()


class CeleryTest(unittest.TestCase):
    def setUp(self):
        self.server = resp.Client(PORT)
        self.addCleanup(self.server.close)

    def jobs(self, queue, *filters, server=None):
        return (server or self.server).call("JSCAN", "BUSYLOOP", "QUEUE", queue, *filters)[1]

    def gone(self, queue):
        """Until no job of the queue is left, so that none can run again."""

        def left():
            return set(self.jobs(queue)) - set(self.jobs(queue, "STATE", "acked"))

        eventually(left, lambda it: not it, "the jobs are acknowledged")

    def queued(self, queue):
        return [body for _, _, body in self.server.call("QPEEK", queue, 100)]


class WithAWorker(CeleryTest):
    """What an idle worker with two processes does; its queue is `celery`."""

    @classmethod
    def setUpClass(cls):
        cls.worker = Worker("celery", "-c", "2", "-E", LEASE=str(LEASE_SECS))
        cls.enterClassContext(cls.worker)

    def test_tasks_run_and_results_come_back(self):
        results = [celery_app.add.delay(n, 1) for n in range(20)]
        self.assertEqual([it.get(timeout=30) for it in results], list(range(1, 21)))

    def test_a_chain_runs_to_its_end(self):
        chain = celery_app.add.s(1, 2) | celery_app.add.s(3) | celery_app.add.s(4)
        self.assertEqual(chain.delay().get(timeout=30), 10)

    def test_a_countdown_waits_in_the_server_and_ends_on_time(self):
        before = time.time()
        celery_app.run.apply_async(["countdown"], countdown=2)
        # Not in the worker, which would forget it when it is killed.
        self.assertEqual(len(self.jobs("celery", "STATE", "delayed")), 1)
        ran_at = float(noted("countdown", "ran")[0][2])
        self.assertGreaterEqual(ran_at - before, 2)
        self.assertLess(ran_at - before, 10)

    def test_an_eta_beyond_the_visibility_timeout_runs_once(self):
        # The transport of Redis delivers such a task once more each time its timeout is over,
        # which is 1 s here, as the worker has it all the time.
        celery_app.run.apply_async(["eta"], countdown=LEASE_SECS + 1)
        noted("eta", "ran")
        self.gone("celery")
        self.assertEqual(len(notes("eta", "ran")), 1)

    def test_a_retry_runs_when_its_countdown_is_over(self):
        celery_app.fail.delay("retry")
        times = [float(note[2]) for note in noted("retry", "ran", 3)]
        self.assertGreaterEqual(times[1] - times[0], 1)
        self.assertGreaterEqual(times[2] - times[1], 1)
        self.gone("celery")
        self.assertEqual(len(notes("retry", "ran")), 3)

    def test_what_is_rejected_and_what_nobody_knows_is_a_dead_letter(self):
        celery_app.reject.delay("rejected")
        app.send_task("no.such.task")
        dead = eventually(lambda: self.queued("celery.dead"), lambda it: len(it) == 2, "dead letters")
        self.assertTrue(any(b"celery_app.reject" in body for body in dead))
        self.assertTrue(any(b"no.such.task" in body for body in dead))

    def test_workers_answer_to_remote_control(self):
        self.assertEqual(app.control.ping([self.worker.name], timeout=10), [{self.worker.name: {"ok": "pong"}}])
        stats = app.control.inspect([self.worker.name], timeout=10).stats()
        self.assertEqual(stats[self.worker.name]["broker"]["transport"], "disque")

    def test_a_task_that_is_revoked_while_it_waits_does_not_run(self):
        result = celery_app.run.apply_async(["revoked"], countdown=2)
        app.control.revoke(result.id, destination=[self.worker.name], reply=True, timeout=10)
        self.gone("celery")
        self.assertEqual(notes("revoked", "ran"), [])

    def test_events_reach_a_receiver(self):
        with app.connection_for_read() as connection:
            seen = []

            def on_event(event):
                if event["type"] == "task-succeeded":
                    seen.append(event)
                    receiver.should_stop = True

            receiver = app.events.Receiver(connection, handlers={"*": on_event})
            with receiver.consumer_context() as (connection, _, _):
                result = None
                give_up_at = time.monotonic() + resp.PATIENCE_SECS
                while not seen and time.monotonic() < give_up_at:
                    # Publishers look every second who listens.
                    result = result or celery_app.add.delay(20, 22)
                    if result.ready():
                        result = None
                    with contextlib.suppress(TimeoutError):
                        connection.drain_events(timeout=0.2)
            self.assertEqual(seen[0]["type"], "task-succeeded")


class Workers(CeleryTest):
    def test_a_task_of_a_killed_worker_runs_again_when_its_lease_is_over(self):
        with Worker("killed", "-c", "1", LEASE=str(LEASE_SECS)) as worker:
            celery_app.hold.apply_async(["killed"], queue="killed")
            noted("killed", "began")
            worker.kill()
        with Worker("killed", "-c", "1", LEASE=str(LEASE_SECS)):
            noted("killed", "began", 2)
            release("killed")
            noted("killed", "ended")
            self.gone("killed")
        self.assertEqual(len(notes("killed", "began")), 2)

    def test_a_task_longer_than_its_lease_runs_once(self):
        # Without a pool the task has the only thread of the worker but for the keeper's.
        with Worker("long", "-P", "solo", LEASE="1"), Worker("long", "-P", "threads", "-c", "2", LEASE="1"):
            renewed_before = self.renewals()
            celery_app.hold.apply_async(["long"], queue="long")
            noted("long", "began")
            # Three of these are a lease.
            eventually(self.renewals, lambda it: it >= renewed_before + 7, "the lease is renewed")
            release("long")
            noted("long", "ended")
            self.gone("long")
        self.assertEqual(len(notes("long", "began")), 1)

    def renewals(self):
        stats = self.server.call("INFO", "commandstats").decode()
        calls = [line.split("calls=")[1] for line in stats.splitlines() if line.startswith("cmdstat_working:")]
        return int(calls[0].split(",")[0]) if calls else 0

    def test_a_worker_that_is_told_to_end_gives_back_what_it_has_not_begun(self):
        with Worker("stopped", "-P", "solo", "--prefetch-multiplier", "4") as worker:
            for name in ("stopped", "waiting"):
                celery_app.hold.apply_async([name], queue="stopped")
            noted("stopped", "began")
            worker.stop()
            release("stopped")
            worker.process.wait(resp.PATIENCE_SECS)
        ((_, job_id, _),) = eventually(
            lambda: self.server.call("QPEEK", "stopped", 9), lambda it: len(it) == 1, "one is left"
        )
        shown = self.server.call("SHOW", job_id)
        self.assertEqual(shown[shown.index(b"nacks") + 1], 0)
        self.assertEqual(notes("waiting", "began"), [])

    def test_priorities_are_those_of_rabbitmq(self):
        for priority in (None, 0, 9, 5, 2):
            celery_app.run.apply_async([f"priority-{priority}"], queue="priorities", priority=priority)
        names = [body for body in self.queued("priorities")]
        order = [next(p for p in ("None", "0", "9", "5", "2") if f"priority-{p}".encode() in body) for body in names]
        self.assertEqual(order, ["9", "None", "5", "2", "0"])

    def test_a_purge_ends_what_waits(self):
        for n in range(5):
            celery_app.run.apply_async(["purged"], queue="purged")
            celery_app.run.apply_async(["purged"], queue="purged", countdown=3600)
        with app.connection_for_write() as connection:
            queue = app.amqp.queues.select_add("purged")(connection.default_channel)
            self.assertEqual(queue.purge(), 10)
        self.gone("purged")


class ThreeNodes(CeleryTest):
    def test_the_death_of_a_node_loses_no_task(self):
        with contextlib.ExitStack() as stack:
            servers = {}
            for _ in range(3):
                server = stack.enter_context(Server(BINARY, "cluster-node-timeout 1000"))
                servers[server.port] = server
            first, *others = servers
            clients = {port: resp.Client(port) for port in servers}
            for port in others:
                clients[first].call("CLUSTER", "MEET", "127.0.0.1", port)
            for client in clients.values():
                eventually(
                    lambda: client.call("HELLO")[2:],
                    lambda nodes: len(nodes) == 3 and all(node[3] == b"1" for node in nodes),
                    "the nodes have links",
                )
            broker = "disque://" + ",".join(f"127.0.0.1:{port}" for port in servers)
            options = {"lease": LEASE_SECS, "replicate": 2}
            with (
                Worker("nodes", "-c", "2", broker=broker, LEASE=str(LEASE_SECS), REPLICATE="2"),
                app.connection_for_write(broker, transport_options=options) as connection,
            ):
                producer = app.amqp.Producer(connection)

                def send(numbers):
                    for n in numbers:
                        celery_app.run.apply_async([f"node-{n}"], queue="nodes", producer=producer, retry=True)

                send(range(20))
                noted("node-19", "ran")
                send(range(20, 40))
                # The node that the worker fetches from.
                (victim,) = [
                    port for port, client in clients.items() if b"cmd=getjob" in client.call("CLIENT", "LIST")
                ]
                servers[victim].kill()
                send(range(40, 60))
                for n in range(60):
                    noted(f"node-{n}", "ran")
                survivor = next(clients[port] for port in servers if port != victim)
                eventually(
                    lambda: set(self.jobs("nodes", server=survivor))
                    - set(self.jobs("nodes", "STATE", "acked", server=survivor)),
                    lambda left: not left,
                    "everything is acknowledged",
                )


if __name__ == "__main__":
    unittest.main()
