"""The pages for readers: their links lead somewhere, every page is found, and what they show is what
a server does.

Fenced blocks are run, those of a page in their order:

| language | what is done |
|---|---|
| `disque` | lines `name> COMMAND` are sent, each name on a connection of its own; the lines behind are the reply |
| `sh` | one script for all of a page, with servers on free ports in the place of 7711 and so on |
| `python`, `js` | a program for each, against the server |

IDs stand for those that the server gives. `...` is anything from there on.
"""

import contextlib
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import unittest

import resp
from servers import free_port
from support import PORT

ROOT = pathlib.Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"
BINARIES = pathlib.Path(os.environ["DISQUE_SERVER"]).parent
# Those whose blocks are run. Older pages have theirs indented, with what is said between them.
RUN = ["clients.md", "concepts.md", "faq.md", "glossary.md", "migration.md"]
JOB_ID = re.compile(r"D-[0-9a-f]{8}-[A-Za-z0-9+/]{24}-[0-9a-f]{4}")
SCRIPT_MAX_SECS = 30


def pages():
    readers = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "bench/README.md")]
    return [*readers, *sorted(DOCS.glob("*.md")), *ROOT.glob("integrations/*/README.md")]


def without_code(text):
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", "code", text)


def anchors(page):
    """Of its headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    titles = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title) for title in titles]
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def links(page):
    return re.findall(r"\[[^]]*\]\(([^)\s]+)\)", without_code(page.read_text()))


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


class Links(unittest.TestCase):
    def test_links_lead_somewhere(self):
        broken = []
        for page in pages():
            for link in links(page):
                if re.match(r"[a-z]+:", link):
                    continue
                path, _, anchor = link.partition("#")
                target = (page.parent / path).resolve() if path else page
                if not target.exists():
                    broken.append(f"{page.name}: {link}")
                elif anchor and anchor not in anchors(target):
                    broken.append(f"{page.name}: {link} has no such heading")
        self.assertEqual(broken, [])

    def test_every_page_is_found_from_the_index(self):
        found = {(DOCS / link.partition("#")[0]).resolve() for link in links(DOCS / "README.md")}
        missing = [page.name for page in pages() if page not in found and page.name != "README.md"]
        self.assertEqual(missing, [])
        self.assertIn("docs/README.md", links(ROOT / "README.md"))

    def test_files_that_are_named_are_there(self):
        missing = []
        for page in pages():
            for name in re.findall(r"`((?:docs|conf|tests|bench|integrations)/[\w./-]+)`", page.read_text()):
                if not (ROOT / name).exists():
                    missing.append(f"{page.name}: {name}")
        self.assertEqual(missing, [])

    def test_tests_that_are_named_are_there(self):
        """`concepts.md` has a test behind each promise."""
        known = {
            name
            for path in ROOT.glob("tests/**/*.rs")
            for name in re.findall(r"fn (\w+)\(", path.read_text())
        }
        known |= {path.name for path in ROOT.glob("tests/simulation/scripts/*.txt")}
        named = re.findall(r"`(\w+(?:\.txt)?)` in `tests/", (DOCS / "concepts.md").read_text())
        self.assertGreater(len(named), 10)
        self.assertEqual([name for name in named if name not in known], [])


class Transcripts(unittest.TestCase):
    def test_commands_are_answered_as_is_shown(self):
        count = 0
        for name in RUN:
            control = resp.Client(PORT)
            control.call("DEBUG", "FLUSHALL")
            clients, ids = {}, {}
            for block in blocks(DOCS / name, "disque"):
                for line, who, command, shown in self.exchanges(block):
                    with self.subTest(page=name, line=line):
                        if who not in clients:
                            clients[who] = resp.Client(PORT)
                        client = clients[who]
                        words = [self.real(ids, word) for word in shlex.split(command)]
                        try:
                            reply = self.lines(client.call(*words))
                        except resp.ErrorReply as error:
                            reply = [f"(error) {error}"]
                        self.compare(ids, shown, reply)
                        count += 1
            control.call("DEBUG", "FLUSHALL")
            for client in (control, *clients.values()):
                client.close()
        self.assertGreater(count, 30)

    @staticmethod
    def exchanges(block):
        """Each command with the lines of its reply."""
        found = []
        for line in block.splitlines():
            prompt = re.match(r"(\w*)> (.*)$", line)
            if prompt:
                found.append((line, prompt[1], prompt[2], []))
            else:
                found[-1][3].append(line.rstrip())
        return found

    @staticmethod
    def real(ids, text):
        return JOB_ID.sub(lambda it: ids.get(it[0], it[0]), text)

    def compare(self, ids, shown, reply):
        if shown and shown[-1].strip() == "...":
            shown = shown[:-1]
            reply = reply[: len(shown)]
        # The IDs of the page are bound to those of the server where they come first.
        for left, right in zip(JOB_ID.findall("\n".join(shown)), JOB_ID.findall("\n".join(reply))):
            ids.setdefault(left, right)
        self.assertEqual([self.real(ids, line) for line in shown], reply)

    def lines(self, value):
        """A reply as the command line client shows it to people."""
        if value is None:
            return ["(nil)"]
        if isinstance(value, int):
            return [f"(integer) {value}"]
        if isinstance(value, str):
            return [value]
        if isinstance(value, bytes):
            return [f'"{value.decode()}"']
        if not value:
            return ["(empty list or set)"]
        shown, width = [], len(str(len(value)))
        for number, item in enumerate(value, 1):
            head = f"{number:{width}}) "
            for at, line in enumerate(self.lines(item)):
                shown.append((head if at == 0 else " " * len(head)) + line)
        return shown


class Programs(unittest.TestCase):
    def setUp(self):
        self.client = resp.Client(PORT)
        self.addCleanup(self.client.close)
        self.client.call("DEBUG", "FLUSHALL")

    def run_each(self, language, command, suffix):
        count = 0
        for name in RUN:
            for block in blocks(DOCS / name, language):
                with self.subTest(page=name, block=block.splitlines()[0]), tempfile.TemporaryDirectory() as folder:
                    program = pathlib.Path(folder) / f"program.{suffix}"
                    program.write_text(block.replace("7711", str(PORT)))
                    result = subprocess.run(
                        [*command, program], capture_output=True, text=True, timeout=SCRIPT_MAX_SECS
                    )
                    self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
                    count += 1
        self.assertGreater(count, 1)

    def test_programs_in_python_do_what_they_say(self):
        self.run_each("python", [sys.executable, "-W", "ignore"], "py")

    def test_programs_in_javascript_do_what_they_say(self):
        self.run_each("js", ["node"], "cjs")

    def test_programs_in_shell_do_what_they_say(self):
        count = 0
        for name in RUN:
            script = "\n".join(blocks(DOCS / name, "sh"))
            if not script:
                continue
            with self.subTest(page=name), tempfile.TemporaryDirectory(prefix="disque-docs-") as folder:
                self.run_script(pathlib.Path(folder), script)
                count += 1
        self.assertGreater(count, 0)

    def run_script(self, folder, script):
        ports = {"7711": free_port()}
        for port in re.findall(r"\b771[2-9]\b", script):
            ports[port] = ports.get(port) or free_port()
        script = re.sub(r"\b771[1-9]\b", lambda it: str(ports[it[0]]), script)
        # What a person does by looking: the client is called once the server is there.
        tools = folder / "tools"
        tools.mkdir()
        for tool in ("disque", "disque-check-aof", "disque-server"):
            (tools / tool).symlink_to(BINARIES / tool)
        client = tools / "disque"
        client.unlink()
        client.write_text(
            f"#!{sys.executable}\n"
            "import os, re, socket, sys, time\n"
            "ports = re.findall(r'\\b(?:1[5-9]|2[012])\\d{3}\\b', ' '.join(sys.argv[1:]))\n"
            f"end = time.monotonic() + {resp.PATIENCE_SECS}\n"
            f"for port in ports or [{ports['7711']}]:\n"
            "    while time.monotonic() < end:\n"
            "        try:\n"
            "            socket.create_connection(('127.0.0.1', int(port))).close()\n"
            "            break\n"
            "        except OSError:\n"
            "            time.sleep(0.02)\n"
            f"words = sys.argv[1:] if ports else ['-p', '{ports['7711']}', *sys.argv[1:]]\n"
            f"os.execv({str(BINARIES / 'disque')!r}, ['disque', *words])\n"
        )
        client.chmod(0o755)
        environment = dict(os.environ, PATH=f"{tools}:{os.environ['PATH']}", HOME=str(folder))
        output = folder / "output"
        with output.open("w") as file:
            # Servers in the background end with the group.
            process = subprocess.Popen(
                ["/bin/bash", "-euxc", script],
                cwd=folder,
                env=environment,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        status = "it does not end"
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = process.wait(SCRIPT_MAX_SECS)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        self.assertEqual(status, 0, output.read_text())


if __name__ == "__main__":
    unittest.main()
