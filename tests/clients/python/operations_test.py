"""The files of docs/operations/ are what the tools they are for can read, and ask for what the
server has."""

import json
import pathlib
import re
import tomllib
import unittest
import urllib.parse

import promql_parser
import yaml
from prometheus_client.parser import text_string_to_metric_families

import resp
from http_support import get, get_json
from support import PORT

FOLDER = pathlib.Path(__file__).resolve().parents[3] / "docs" / "operations"
# What Prometheus adds to each target.
OF_PROMETHEUS = {"up"}
LABELS_OF_PROMETHEUS = {"job", "instance"}


def read(name):
    return (FOLDER / name).read_text()


class Files(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        client = resp.Client(PORT)
        client.call("ADDJOB", "mail", "body", 0)
        client.call("ADDJOB", "mail", "body", 0)
        client.call("GETJOB", "FROM", "mail")
        client.close()
        # The names of all series and of their labels; those of other nodes come with a node.
        cls.names, cls.labels = set(OF_PROMETHEUS), set(LABELS_OF_PROMETHEUS) | {"node", "state"}
        for family in text_string_to_metric_families(get("/metrics")):
            cls.names.add(family.name)
            for sample in family.samples:
                cls.names.add(sample.name)
                cls.labels |= set(sample.labels)

    def check_query(self, query):
        """It is PromQL, and every name in it is one that the server has."""
        promql_parser.parse(query)
        without_texts = re.sub(r'"[^"]*"', '""', query)
        for name in re.findall(r"\b(?:disque|process)_\w+", without_texts):
            self.assertIn(name, self.names, query)
        for label in re.findall(r"(\w+) ?(?:=~|!=|=)\"\"", without_texts):
            self.assertIn(label, self.labels, query)

    def test_the_rules_are_rules(self):
        rules = [rule for group in yaml.safe_load(read("disque-rules.yml"))["groups"] for rule in group["rules"]]
        self.assertGreater(len(rules), 10)
        self.assertEqual(len({rule["alert"] for rule in rules}), len(rules))
        documented = (FOLDER.parent / "operations.md").read_text()
        for rule in rules:
            self.check_query(rule["expr"])
            self.assertLessEqual(set(rule), {"alert", "expr", "for", "labels", "annotations"})
            self.assertRegex(rule.get("for", "1m"), r"^\d+[smh]$")
            self.assertIn(rule["labels"]["severity"], ("warning", "critical"))
            self.assertEqual(set(rule["annotations"]), {"summary", "description"})
            self.assertIn(f"`{rule['alert']}`", documented)

    def test_the_dashboard_asks_for_what_there_is(self):
        dashboard = json.loads(read("grafana-dashboard.json"))
        panels = dashboard["panels"]
        self.assertGreater(len(panels), 15)
        self.assertEqual(len({panel["id"] for panel in panels}), len(panels))
        places = set()
        for panel in panels:
            at = panel["gridPos"]
            cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
            self.assertFalse(cells & places, f"{panel['title']} lies on another panel")
            self.assertLessEqual(at["x"] + at["w"], 24)
            places |= cells
            for target in panel["targets"]:
                # As Grafana fills in its variables.
                self.check_query(re.sub(r"\$__rate_interval", "1m", re.sub(r"\$(job|instance|queue)", ".*", target["expr"])))
        for variable in dashboard["templating"]["list"]:
            if variable["type"] == "query":
                name = re.match(r"label_values\((\w+)", variable["query"]["query"])[1]
                self.assertIn(name, self.names)

    def test_prometheus_finds_the_rules(self):
        config = yaml.safe_load(read("prometheus.yml"))
        for name in config["rule_files"]:
            self.assertTrue((FOLDER / name).exists())
        (scrape,) = config["scrape_configs"]
        self.assertEqual(scrape["job_name"], "disque")

    def test_telegraf_asks_paths_that_there_are(self):
        inputs = tomllib.loads(read("telegraf.conf"))["inputs"]
        self.assertEqual(set(inputs), {"prometheus", "http_response"})
        for plugin in inputs.values():
            for address in plugin[0]["urls"]:
                parts = urllib.parse.urlsplit(address)
                self.assertTrue(get(f"{parts.path}?{parts.query}"))
        self.assertLessEqual(set(inputs["prometheus"][0]["taginclude"]), self.labels | {"url", "le"})

    def test_keda_finds_its_number(self):
        objects = {it["kind"]: it for it in yaml.safe_load_all(read("keda.yml"))}
        (trigger,) = objects["ScaledObject"]["spec"]["triggers"]
        self.assertEqual(trigger["type"], "metrics-api")
        parts = urllib.parse.urlsplit(trigger["metadata"]["url"])
        self.assertEqual(get_json(f"{parts.path}?{parts.query}")[trigger["metadata"]["valueLocation"]], 1)
        missing = get_json("/api/queue?name=nothing")
        self.assertEqual(missing[trigger["metadata"]["valueLocation"]], 0)
        (secret,) = objects["TriggerAuthentication"]["spec"]["secretTargetRef"]
        self.assertEqual(secret["name"], objects["Secret"]["metadata"]["name"])
        self.assertIn(secret["key"], objects["Secret"]["stringData"])


if __name__ == "__main__":
    unittest.main()
