"""prometheus_client's own parsers read every scrape, in both formats."""

import json
import math
import unittest

from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_text

import resp
from http_support import get, work
from support import PORT, wait_until

OPENMETRICS = "application/openmetrics-text;version=1.0.0"
NAMES = [
    b"mail",
    b'quotes "and" \\ backslashes',
    b"two\nlines",
    b"<script>alert(1)</script>",
    "naïve, 名前, \u202eright to left".encode(),
    b"\xff\xfe\x00binary",
    b"base64:lie",
    b"",
    b"x" * 255,
    b"y" * 256,
]


def families(text, parse=parse_text):
    found = {}
    for family in parse(text):
        assert family.name not in found, f"{family.name} comes twice"
        found[family.name] = family
    return found


class Metrics(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.client = resp.Client(PORT)
        for name in NAMES:
            cls.client.call("ADDJOB", name, "body", 0)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()

    def test_both_formats_say_the_same(self):
        text = families(get("/metrics"))
        open_ = families(get("/metrics", Accept=OPENMETRICS), parse_openmetrics)
        self.assertGreater(len(text), 50)
        # In the text format an info is a gauge of its full name.
        infos = {name for name, family in open_.items() if family.type == "info"}
        names = {name + "_info" if name in infos else name for name in open_}
        self.assertEqual(set(text), names)
        for name, family in open_.items():
            if name not in infos:
                self.assertEqual(text[name].type, family.type, name)
            self.assertTrue(family.documentation.endswith("."), name)

    def test_names_follow_the_conventions(self):
        for name, family in families(get("/metrics", Accept=OPENMETRICS), parse_openmetrics).items():
            self.assertRegex(name, r"^(disque|process)_[a-z_]+$")
            self.assertFalse(name.endswith(("_total", "_count", "_sum", "_ms", "_us")), name)
            if name.endswith(("_seconds", "_bytes")):
                self.assertEqual(family.unit, name.rsplit("_", 1)[1])
            for sample in family.samples:
                self.assertTrue(math.isfinite(sample.value), sample)
                self.assertLessEqual(len(sample.labels), 3 if family.type == "info" else 2)
                if family.type == "counter":
                    self.assertGreaterEqual(sample.value, 0)

    def test_every_name_that_is_not_long_is_told_apart(self):
        lengths = families(get("/metrics"))["disque_queue_length"].samples
        labels = {sample.labels["queue"] for sample in lengths} - {"loaded"}
        self.assertEqual(len(labels), len(NAMES) - 1)
        self.assertIn('quotes "and" \\ backslashes', labels)
        self.assertIn("<script>alert(1)</script>", labels)
        self.assertIn("base64:YmFzZTY0OmxpZQ==", labels)
        other = families(get("/metrics"))["disque_other_queues"].samples
        self.assertEqual([sample.value for sample in other], [1])

    def test_counters_and_histograms_rise_under_load(self):
        def counters():
            return {
                (sample.name, tuple(sample.labels.items())): sample.value
                for family in families(get("/metrics", Accept=OPENMETRICS), parse_openmetrics).values()
                if family.type in ("counter", "histogram")
                for sample in family.samples
            }

        with work(PORT, ["loaded"]):
            before = counters()
            for _ in range(20):
                after = counters()
                for series, value in before.items():
                    self.assertGreaterEqual(after.get(series, 0), value, series)
                before = after
            out = ("disque_queue_jobs_out_total", (("queue", "loaded"),))
            wait_until(lambda: counters()[out] > before[out], "jobs go out")

    def test_the_json_is_json(self):
        for path in ("overview", "queues", "nodes", "queue?name=two%0Alines", "queue?name=%ff"):
            answer = json.loads(get(f"/api/{path}"))
            self.assertEqual(answer["version"], 1, path)
        queues = json.loads(get("/api/queues"))["queues"]
        self.assertIn({"base64": "//4AYmluYXJ5"}, [queue["name"] for queue in queues])


if __name__ == "__main__":
    unittest.main()
