"""The page of the HTTP port in a real browser: three nodes with work, thousands of queues, names
that try to be scripts, a node that dies, and the page's own node that does not answer.

`REWRITE=1` renews the pictures under docs/.
"""

import os
import pathlib
import signal
import unittest

import resp
from chromium import Chromium
from http_support import HTTP_PORTS, get_json, work
from support import PORTS, wait_until

DOCS = pathlib.Path(__file__).resolve().parents[3] / "docs" / "pictures"
PIDS = [int(pid) for pid in os.environ["DISQUE_PIDS"].split()]
HOSTILE = [
    b"<img src=x onerror=alert(1)>",
    b"</title><script>alert(1)</script>",
    b"\"'><svg onload=alert(1)>",
    b"'; rm -rf ~ #",
    b"\xff\xfe\x00\x1b[2J",
    "abc\u202egnp.exe".encode(),
    b"javascript:alert(1)",
    b"",
]
NAMES = ["mail", "thumbnails", "invoices", "webhooks", "search-index", "reports.daily"]


def url(node=0, fragment=""):
    return f"http://127.0.0.1:{HTTP_PORTS[node]}/{fragment}"


class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        clients = [resp.Client(port) for port in PORTS]
        for port in PORTS[1:]:
            clients[0].call("CLUSTER", "MEET", "127.0.0.1", port)

        def all_linked():
            peers = [get_json("/api/nodes", port)["peers"] for port in HTTP_PORTS]
            return all(len(them) == 2 and all(it["linked"] for it in them) for them in peers)

        wait_until(all_linked, "the nodes know each other")
        cls.client = clients[0]
        cls.browser = cls.enterClassContext(Chromium())

    def open(self, fragment="", node=0, **how):
        tab = self.browser.tab(**how)
        tab.open(url(node, fragment))
        tab.wait("document.querySelector('#tiles dd') !== null")
        return tab

    def assert_clean(self, tab):
        self.assertEqual(tab.complaints, [])
        self.assertEqual(tab.dialogs, [])
        foreign = [it for it in tab.requests if not it.startswith((url(), "data:image/svg", "http://127.0.0.1:"))]
        self.assertEqual(foreign, [])

    # The order of the tests is that of their names: the cluster is whole at first.

    def test_1_the_first_view_says_that_all_is_well(self):
        for queue in NAMES:
            for number in range(3 * len(queue)):
                self.client.call("ADDJOB", queue, f'{{"order": {number}}}', 0, "RETRY", 600)
        with work(PORTS[0], NAMES[:3]):
            for theme in ("light", "dark"):
                tab = self.open(theme=theme, height=800)
                self.assertIn("All is well", tab.wait("document.querySelector('#state h2').innerText"))
                tab.wait("[...document.querySelectorAll('.tile')].some(it => /[1-9].* in$/m.test(it.innerText))")
                # Some seconds of history for the pictures.
                tab.wait("(document.querySelector('td svg .in')?.getAttribute('points') || '').split(' ').length > 5")
                text = tab.evaluate("document.body.innerText")
                self.assertIn("3 of 3", text)
                self.assertIn("mail", text)
                if os.environ.get("REWRITE"):
                    DOCS.mkdir(parents=True, exist_ok=True)
                    tab.screenshot(DOCS / f"page-{theme}.png")
                self.assert_clean(tab)

    def test_2_two_thousand_queues_are_listed_filtered_and_sorted(self):
        for number in range(2000):
            self.client.send("ADDJOB", f"bulk-{number:04}", "body", 0, "RETRY", 600)
        for _ in range(2000):
            self.client.reply()
        tab = self.open()
        rows = "document.querySelectorAll('tbody tr').length"
        tab.wait(f"{rows} === 100")
        tab.evaluate("document.querySelector('.more-rows').click()")
        tab.wait(f"{rows} === 300")
        # With the keyboard alone: "/" goes to the filter.
        tab.press("/")
        tab.wait("document.activeElement.id === 'filter'")
        tab.type("BULK-19")
        tab.wait(f"{rows} === 100 && document.body.innerText.includes('100 of 2,0')")
        first = "document.querySelector('tbody .link').innerText"
        sort = "document.querySelector('th button').click()"
        tab.evaluate(sort)
        tab.wait(f"{first} === 'bulk-1900'")
        tab.evaluate(sort)
        tab.wait(f"{first} === 'bulk-1999'")
        self.assertEqual(tab.evaluate("document.querySelector('th').ariaSort"), "descending")
        tab.evaluate("document.querySelector('tbody .link').click()")
        tab.wait("document.querySelector('main h2')?.innerText === 'bulk-1999'")
        tab.wait("document.body.innerText.includes('qstat bulk-1999')")
        tab.press("Escape")
        tab.wait("location.hash === '#queues'")
        self.assert_clean(tab)

    def test_3_hostile_names_and_bodies_are_shown_and_not_run(self):
        for name in HOSTILE:
            for body in HOSTILE:
                self.client.call("ADDJOB", name, body, 0, "RETRY", 600)
        tab = self.open()
        for name in HOSTILE[:4]:
            tab.wait(f"document.querySelector('main').innerText.includes({name.decode()!r})")
        text = tab.evaluate("document.querySelector('main').innerText")
        for shown in (r"\xff\xfe\x00\x1b[2J", r"abc\u202egnp.exe", "(empty name)"):
            self.assertIn(shown, text)
        for name in HOSTILE:
            fragment = "#queue=" + "".join(f"%{byte:02x}" for byte in name)
            tab.evaluate(f"location.hash = {fragment!r}")
            tab.wait("document.querySelectorAll('.body').length === 8")
            self.assertEqual(tab.evaluate("document.querySelectorAll('main img, main script').length"), 0)
            command = tab.evaluate("document.querySelector('code').innerText")
            words = self.words_of(command)
            self.assertEqual(words[-2:], [b"qstat", name.split(b"\0")[0]])
        job = get_json("/api/queue?name=%3Cimg%20src=x%20onerror=alert(1)%3E")["first_jobs"][0]["id"]
        tab.evaluate(f"location.hash = 'job={job}'")
        tab.wait("document.querySelector('main').innerText.includes('<img src=x onerror=alert(1)>')")
        self.assertNotIn("<img", tab.evaluate("document.title"))
        self.assert_clean(tab)
        # And if the page made a mistake, the browser would not run it.
        broken = self.open()
        for mistake in (
            "document.body.innerHTML = '<img src=x onerror=\"window.ran = 1\">'",
            "const it = document.createElement('script'); it.textContent = 'window.ran = 1'; document.body.append(it)",
            "const it = document.createElement('script'); it.setAttribute('src', 'data:,window.ran=1'); document.body.append(it)",
            "document.body.append(Object.assign(document.createElement('a'), {href: 'javascript:window.ran = 1'})); document.body.lastChild.click()",
        ):
            try:
                broken.evaluate(f"{{ {mistake} }}")
            except RuntimeError as refused:
                self.assertIn("TrustedScript", str(refused).replace("TrustedHTML", "TrustedScript"))
        self.assertIsNone(broken.evaluate("window.ran"))
        with self.assertRaises(RuntimeError):
            broken.evaluate("fetch('http://127.0.0.1:1/').then(() => 1)")

    @staticmethod
    def words_of(command):
        """What a shell makes of a line."""
        import subprocess

        script = f'disque() {{ printf "%s\\0" "$@"; }}\n{command}\n'
        done = subprocess.run(["bash"], input=script.encode(), capture_output=True, check=True)
        return done.stdout.split(b"\0")[:-1]

    def test_3_dead_letters_are_shown_with_their_reasons(self):
        job = self.client.call("ADDJOB", "orders", '{"to": "nobody"}', 0)
        self.client.call("GETJOB", "FROM", "orders")
        self.client.call("NACK", job, "DEAD", "REASON", "<b>no such user</b>")
        tab = self.open("#dead")
        tab.wait("!document.querySelector('nav [href=\"#dead\"]').hidden")
        text = tab.wait("document.querySelector('tbody tr')?.innerText")
        for shown in (job, "orders", "nack", "<b>no such user</b>", '{"to": "nobody"}'):
            self.assertIn(shown, text)
        self.assertIn("1 nack", tab.evaluate("document.querySelector('main .note').innerText"))
        self.assert_clean(tab)

    def test_3_what_happened_to_a_job_is_shown_also_when_it_is_gone(self):
        job = self.client.call("ADDJOB", "traced", "body", 0, "TRACE")
        self.client.call("GETJOB", "FROM", "traced")
        self.client.call("NACK", job, "REASON", "<b>busy</b>")
        tab = self.open(f"#job={job}")
        life = "document.querySelector('.trace-of-job')?.innerText"
        text = tab.wait(life)
        for shown in ("added", "copy-sent", "fetched", "nacked", "<b>busy</b>", f"trace {job}"):
            self.assertIn(shown, text)
        self.client.call("ACKJOB", job)
        tab.wait(f"{life}?.includes('collected') && document.querySelector('main').innerText.includes('does not know that job')")
        self.assert_clean(tab)

    def test_4_it_fits_a_phone_and_is_told_to_a_screen_reader(self):
        for fragment in ("", "#nodes", "#queue=mail", "#help", "#job"):
            tab = self.open(fragment, width=360, height=740)
            tab.wait("document.querySelector('#state h2').innerText === 'All is well'")
            self.assertLessEqual(tab.evaluate("document.documentElement.scrollWidth"), 360, fragment)
            nodes = tab.call("Accessibility.getFullAXTree")["nodes"]
            named = {"button", "link", "textbox", "searchbox", "table", "image"}
            nameless = [
                node["role"]["value"]
                for node in nodes
                if not node["ignored"]
                and node["role"]["value"] in named
                and not node.get("name", {}).get("value")
            ]
            self.assertEqual(nameless, [], fragment)
            roles = [node["role"]["value"] for node in nodes if not node["ignored"]]
            for role in ("status", "main", "navigation", "banner"):
                self.assertIn(role, roles, fragment)
            if os.environ.get("REWRITE") and fragment == "":
                tab.screenshot(DOCS / "page-phone.png")
            self.assert_clean(tab)

    def test_5_the_token_is_asked_for_and_stays_in_the_tab(self):
        self.client.call("CONFIG", "SET", "http-token", "s3cret")
        tab = self.browser.tab()
        tab.open(url())
        tab.wait("document.querySelector('#login')?.open && document.activeElement.id === 'token'")
        self.assertNotIn("bulk-", tab.evaluate("document.body.innerText"))
        tab.type("wrong")
        tab.evaluate("document.querySelector('#login-form button').click()")
        tab.wait("document.querySelector('#login').open && document.querySelector('#token').value === ''")
        tab.type("s3cret")
        tab.evaluate("document.querySelector('#login-form button').click()")
        tab.wait("document.querySelector('#state h2').innerText === 'All is well'")
        self.assertEqual(tab.evaluate("localStorage.getItem('token')"), None)
        self.client.call("CONFIG", "SET", "http-token", "")
        # The browser notes each answer 401, and nothing else went wrong.
        self.assertTrue(all("401" in it for it in tab.complaints), tab.complaints)

    def test_6_a_node_that_dies_is_named(self):
        tab = self.open("#nodes")
        tab.wait("document.querySelectorAll('tbody tr').length === 3")
        os.kill(PIDS[2], signal.SIGKILL)
        tab.wait("document.querySelector('#state').className !== 'state good'")
        address = f"127.0.0.1:{PORTS[2]}"
        tab.wait(f"document.querySelector('#state').innerText.includes({address!r})")
        tab.wait("document.querySelector('main').innerText.includes('failing: a majority says so')")
        self.assertIn("critical", tab.wait("document.querySelector('#state').className"))
        tab.wait("document.querySelector('#tiles').innerText.includes('2 of 3')")
        self.assert_clean(tab)

    def test_7_it_says_when_its_own_node_does_not_answer(self):
        tab = self.open(node=1)
        before = tab.wait("document.querySelector('#state h2').innerText")
        os.kill(PIDS[1], signal.SIGSTOP)
        try:
            tab.wait("document.querySelector('#state h2').innerText === 'This node does not answer'")
            text = tab.evaluate("document.querySelector('#state').innerText")
            self.assertIn("What you see below is from ", text)
            self.assertTrue(tab.evaluate("document.body.classList.contains('stale')"))
        finally:
            os.kill(PIDS[1], signal.SIGCONT)
        tab.wait(f"document.querySelector('#state h2').innerText === {before!r}")
        self.assertFalse(tab.evaluate("document.body.classList.contains('stale')"))
        os.kill(PIDS[1], signal.SIGKILL)
        tab.wait("document.querySelector('#state').innerText.includes('No connection can be made')")


if __name__ == "__main__":
    unittest.main()
