"""The application that the workers of `celery_test.py` run. Tasks write down what they do in
the file that the environment names, a line each."""

import os
import pathlib
import time

import celery
import kombu_disque  # noqa: F401

app = celery.Celery("tests", broker=os.environ["BROKER"], backend="rpc://")
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
    broker_connection_retry_on_startup=True,
    broker_transport_options={
        # What makes the transport of Redis deliver tasks twice; nothing here knows it.
        "visibility_timeout": 1,
        "lease": int(os.environ.get("LEASE", 60)),
        "replicate": int(os.environ.get("REPLICATE", 0)) or None,
    },
    task_publish_retry_policy={"max_retries": 30, "interval_start": 0, "interval_max": 0.2},
)


def note(*words):
    line = " ".join(map(str, words)) + "\n"
    with open(os.environ["NOTES"], "a") as file:
        file.write(line)


@app.task
def add(x, y):
    return x + y


@app.task
def run(name):
    note(name, "ran", time.time())


@app.task(bind=True, max_retries=3)
def fail(self, name):
    note(name, "ran", time.time())
    if self.request.retries < 2:
        raise self.retry(countdown=1)


@app.task
def hold(name):
    """Works until a file of its name is there."""
    note(name, "began")
    while not pathlib.Path(os.environ["NOTES"] + "." + name).exists():
        time.sleep(0.02)
    note(name, "ended")


@app.task
def reject(name):
    raise celery.exceptions.Reject(name, requeue=False)
