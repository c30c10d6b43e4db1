"""What every Python test file here shares: where the server is, and waiting without sleeping blindly.

The server under test was started by `tests/clients/run`, fresh for each file, and its
port is in the environment. Tests keep apart by using a queue of their own name.
"""

import os
import re
import threading
import time
import unittest

HOST = "127.0.0.1"
PORT = int(os.environ["DISQUE_PORT"])
ADDRESS = f"{HOST}:{PORT}"
# Of all servers, where a suite has several. They have not met.
PORTS = [int(port) for port in os.environ["DISQUE_PORTS"].split()]

# The C server knows neither HELLO 2|3 nor CLIENT SETINFO.
needs_hello_3 = unittest.skipIf(os.environ["DISQUE_PEER"] == "c", "not against the C server")

JOB_ID = re.compile(rb"D-[0-9a-f]{8}-[A-Za-z0-9+/]{24}-[0-9a-f]{4}")
NODE_ID = re.compile(rb"[0-9a-f]{40}")

# SHOW answers these names in this order.
SHOW_FIELDS = (
    b"id queue state repl ttl ctime delay retry nacks additional-deliveries nodes-delivered"
    b" nodes-confirmed next-requeue-within next-awake-within body"
).split()
# QSTAT answers these.
QSTAT_FIELDS = (
    b"name len age idle blocked import-from import-rate jobs-in jobs-out pause"
).split()

# How long a condition that is bound to come may take on a busy machine.
PATIENCE_SECS = 60


def wait_until(condition, what, patience_secs=PATIENCE_SECS):
    """Returns once `condition()` holds; fails after `patience_secs`."""
    give_up_at = time.monotonic() + patience_secs
    while not condition():
        if time.monotonic() > give_up_at:
            raise AssertionError(f"waited {patience_secs} s in vain: {what}")
        time.sleep(0.005)


class Background:
    """A call that blocks, run in a thread; `result()` is what it returned."""

    def __init__(self, call):
        self._outcome = {}
        self._thread = threading.Thread(target=self._run, args=(call,), daemon=True)
        self._thread.start()

    def _run(self, call):
        try:
            self._outcome["value"] = call()
        except Exception as error:  # handed to the test's own thread
            self._outcome["error"] = error

    def result(self):
        self._thread.join(PATIENCE_SECS)
        if self._thread.is_alive():
            raise AssertionError("the blocked call never came back")
        if "error" in self._outcome:
            raise self._outcome["error"]
        return self._outcome["value"]
