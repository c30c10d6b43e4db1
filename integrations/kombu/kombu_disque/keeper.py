"""A thread that says again and again what has to stay true while this process lives.

That jobs are in work (their leases), and that queues are bound to exchanges. It runs only
while there is something to say. When the process dies, nobody says it any more, which is
the point.
"""

import threading
import time

from kombu.log import get_logger

from .wire import in_this_process

logger = get_logger(__name__)

# The thread ends after so long without anything to do.
IDLE_SECS = 5


class Keeper:
    """Calls each item every `period_secs` until it is discarded or its call returns False."""

    def __init__(self):
        self.after_fork()
        in_this_process.add(self)

    def after_fork(self):
        self._changed = threading.Condition()
        self._due = {}
        self._thread = None

    def add(self, key, period_secs, call):
        with self._changed:
            self._due[key] = (time.monotonic() + period_secs, period_secs, call)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="disque-keeper", daemon=True)
                self._thread.start()
            self._changed.notify()

    def discard(self, key):
        with self._changed:
            self._due.pop(key, None)

    def __len__(self):
        return len(self._due)

    def _run(self):
        while True:
            with self._changed:
                if not self._due and not self._changed.wait(IDLE_SECS) and not self._due:
                    self._thread = None
                    return
                if not self._due:
                    continue
                key, (due_at, period_secs, call) = min(self._due.items(), key=lambda it: it[1][0])
                left = due_at - time.monotonic()
                if left > 0:
                    self._changed.wait(left)
                    continue
                self._due[key] = (time.monotonic() + period_secs, period_secs, call)
            try:
                goes_on = call()
            except Exception as error:
                # The next time may be better; a lease has two more before it is over.
                logger.warning("Disque: %s was not renewed: %s", key, error)
                continue
            if goes_on is False:
                self.discard(key)
