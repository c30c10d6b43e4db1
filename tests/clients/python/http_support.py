"""What the tests of the HTTP port share: asking it, and work for the servers."""

import contextlib
import json
import os
import threading
import urllib.request

import resp

HTTP_PORTS = [int(port) for port in os.environ["DISQUE_HTTP_PORTS"].split()]


def get(path, port=HTTP_PORTS[0], **headers):
    """The body of an answer, as text."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.read().decode()


def get_json(path, port=HTTP_PORTS[0]):
    return json.loads(get(path, port))


@contextlib.contextmanager
def work(port, queues, body=b"work"):
    """Jobs come and go in these queues as long as the context lasts."""
    is_over = threading.Event()

    def produce_and_consume():
        client = resp.Client(port)
        while not is_over.wait(0.002):
            for queue in queues:
                client.call("ADDJOB", queue, body, 0)
            found = client.call("GETJOB", "NOHANG", "COUNT", len(queues), "FROM", *queues)
            for _, job, _ in found or []:
                client.call("ACKJOB", job)
        client.close()

    thread = threading.Thread(target=produce_and_consume)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
