"""Servers under test: each on a free port, in a folder of its own, and gone at the end."""

import contextlib
import pathlib
import random
import socket
import subprocess
import tempfile
import time

BUS_PORT_OFFSET = 10_000
READY_WITHIN_SECS = 60


# Open until this process ends; see `free_port`.
claims = []


def free_port():
    """A port that is free together with its bus port, and that no other test takes.

    A name in Linux's abstract namespace claims it, as `tests/integration/support.rs` does.
    """
    ports = list(range(15_000, 22_000))
    random.shuffle(ports)
    for port in ports:
        with contextlib.ExitStack() as stack:
            try:
                claim = socket.socket(socket.AF_UNIX)
                claim.bind(f"\0disque-test-port-{port}")
                claims.append(claim)
                for number in (port, port + BUS_PORT_OFFSET):
                    probe = stack.enter_context(socket.socket())
                    probe.bind(("127.0.0.1", number))
            except OSError:
                continue
            return port
    raise SystemExit("no free pair of ports")


class Server:
    """A context in which a server runs and accepts connections."""

    def __init__(self, binary, *options, has_http=False):
        self.port = free_port()
        self.http_port = free_port() if has_http else None
        self._folder = tempfile.TemporaryDirectory(prefix="disque-clients-")
        self.folder = pathlib.Path(self._folder.name)
        self._log = self.folder / "server.log"
        # A configuration file rather than options: CONFIG REWRITE wants one.
        config = self.folder / "disque.conf"
        lines = [f"port {self.port}", "bind 127.0.0.1", f'dir "{self.folder}"', *options]
        if has_http:
            lines.append(f"http-port {self.http_port}")
        config.write_text("\n".join(lines) + "\n")
        self._command = [binary, config]

    def __enter__(self):
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(
                self._command, stdout=output, stderr=output, cwd=self.folder
            )
        try:
            self._wait_until_ready()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *_):
        self.kill()
        self._folder.cleanup()

    def kill(self):
        self._process.kill()
        self._process.wait()

    @property
    def pid(self):
        return self._process.pid

    def has_ended(self):
        return self._process.poll() is not None

    def report(self):
        """The end of what it printed."""
        return self._log.read_text(errors="replace")[-4000:]

    def _wait_until_ready(self):
        give_up_at = time.monotonic() + READY_WITHIN_SECS
        while time.monotonic() < give_up_at and not self.has_ended():
            with contextlib.suppress(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            time.sleep(0.01)
        raise SystemExit(f"the server did not start:\n{self.report()}")
