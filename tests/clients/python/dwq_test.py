"""dwq: a work queue on top of Disque. Its worker runs the commands its client sends."""

import os
import subprocess
import sys
import unittest

import dwq

from support import ADDRESS, PATIENCE_SECS, wait_until

TOOLS = os.path.dirname(sys.executable)


def tool(name, *arguments):
    return [os.path.join(TOOLS, name), "-D", ADDRESS, *arguments]


def output_of(name, *arguments, stdin=""):
    return subprocess.run(
        tool(name, *arguments),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=6 * PATIENCE_SECS,
        check=True,
    ).stdout


class Dwq(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.worker = subprocess.Popen(
            tool("dwqw", "-j", "2", "-n", "worker-1", "-q", "commands", "-Q"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        dwq.Disque.connect([ADDRESS])
        wait_until(
            lambda: dwq.Disque.qstat(["commands"]).get("commands", {}).get("blocked") == 2,
            "both threads of the worker wait for jobs",
        )

    @classmethod
    def tearDownClass(cls):
        cls.worker.kill()
        cls.worker.wait()
        dwq.Disque.get().get_connection().close()

    def test_worker_runs_the_command_and_returns_its_output(self):
        self.assertEqual(output_of("dwqc", "-q", "commands", "echo done"), "done\n")

    def test_each_line_of_input_is_a_job(self):
        lines = output_of(
            "dwqc", "-q", "commands", "-s", "echo got ${1}", stdin="a\nb\nc\n"
        ).splitlines()
        self.assertEqual(sorted(lines), ["got a", "got b", "got c"])

    def test_failing_command_is_tried_again(self):
        script = "echo try >>$DWQ_TRIES; test $(wc -l <$DWQ_TRIES) = 3 && echo third time lucky"
        tries = os.path.join(os.environ["DISQUE_DIR"], "tries")
        printed = output_of("dwqc", "-q", "commands", "-E", f"DWQ_TRIES={tries}", script)
        self.assertEqual(printed, "third time lucky\n")

    def test_management_tool_reaches_the_worker(self):
        self.assertEqual(output_of("dwqm", "control", "-l"), "worker-1\n")
        self.assertIn("worker-1: pong", output_of("dwqm", "control", "-P", "worker-1"))

    def test_drained_queue_is_empty(self):
        for n in range(5):
            dwq.Job.add("drained", {"n": n})
        self.assertEqual(
            output_of("dwqm", "queue", "-l", "drained"), "name: drained len: 5 blocked: 0\n"
        )
        output_of("dwqm", "queue", "-d", "drained")
        self.assertEqual(dwq.Disque.get().qlen("drained"), 0)

    def test_job_interface(self):
        job_id = dwq.Job.add("jobs", {"n": 1}, retry=60)
        (job,) = dwq.Job.get(["jobs"], timeout=5_000)
        self.assertEqual((job.job_id, job.body, job.nacks), (job_id, {"n": 1}, 0))
        job.working("still at it")
        job.nack()
        (job,) = dwq.Job.get(["jobs"], timeout=5_000)
        self.assertEqual((job.job_id, job.nacks, job.additional_deliveries), (job_id, 1, 0))
        job.cancel()
        self.assertIsNone(dwq.Disque.get().show(job_id))


if __name__ == "__main__":
    unittest.main()
