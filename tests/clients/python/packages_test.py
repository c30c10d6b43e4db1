"""What packages are made of, in conf/: units of systemd, the Debian package, the container's entry,
Compose, Kubernetes and the files of a release."""

import configparser
import contextlib
import hashlib
import io
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest

import dockerfile_parse
import kubernetes_validate
import yaml

import resp
from resp import eventually
from servers import BUS_PORT_OFFSET, free_port
from support import PORT

ROOT = pathlib.Path(__file__).resolve().parents[3]
CONF = ROOT / "conf"
BINARIES = pathlib.Path(os.environ["DISQUE_SERVER"]).parent
# Of characters that a configuration file has to quote.
SECRET = 'se "cr\\et'
# The real package is made with xz, which takes far longer.
FAST = {"DEB_COMPRESSION": "-Zgzip -z1"}


def run(*command, **options):
    result = subprocess.run(command, capture_output=True, text=True, **options)
    if result.returncode != 0:
        raise AssertionError(f"{command}: {result.returncode}\n{result.stdout}{result.stderr}")
    return result.stdout


def folder(test):
    holder = tempfile.TemporaryDirectory(prefix="disque-packages-")
    test.addCleanup(holder.cleanup)
    return pathlib.Path(holder.name)


def documents(path):
    return list(yaml.safe_load_all((CONF / path).read_text()))


def binaries_are_all_there(test):
    """A server that was built alone, as for poll(2), makes no package."""
    names = ["disque-server", "disque", "disque-check-aof", "disque-benchmark"]
    test.assertEqual([it for it in names if not (BINARIES / it).exists()], [])


def directives_are_known(test, text):
    """The running server has each directive of a configuration file."""
    client = resp.Client(PORT)
    for line in text.splitlines():
        if line.strip() and not line.strip().startswith("#"):
            name = line.split()[0]
            test.assertTrue(client.call("CONFIG", "GET", name), name)
    client.close()


class Units(unittest.TestCase):
    def read(self, name):
        # Names may stand more than once.
        lines = [it for it in (CONF / "systemd" / name).read_text().splitlines() if "=" in it and it[0] != "#"]
        return [line.split("=", 1) for line in lines]

    def test_systemd_takes_the_units_for_safe(self):
        target = folder(self)
        for name in ("disque-server.service", "disque-server@.service"):
            text = (CONF / "systemd" / name).read_text()
            instance = target / name.replace("@", "@one")
            # verify looks for the program.
            instance.write_text(text.replace("/usr/bin/disque-server", str(BINARIES / "disque-server")))
            run("systemd-analyze", "verify", "--man=no", str(instance))
            run("systemd-analyze", "security", "--offline=yes", "--threshold=15", str(instance))

    def test_the_units_differ_in_what_a_node_has_of_its_own(self):
        one, many = self.read("disque-server.service"), self.read("disque-server@.service")
        self.assertEqual([name for name, _ in one], [name for name, _ in many])
        own = {name for (name, value), (_, other) in zip(one, many) if value != other}
        self.assertEqual(own, {"Description", "ExecStart", "WorkingDirectory", "StateDirectory", "RuntimeDirectory"})

    def test_the_server_starts_as_the_unit_says(self):
        unit = dict(self.read("disque-server.service"))
        target, port = folder(self), free_port()
        (target / "disque.conf").write_text(f"port {port}\nbind 127.0.0.1\n")
        command = unit["ExecStart"].replace("/usr/bin", str(BINARIES)).replace("/etc/disque", str(target))
        process = subprocess.Popen(command.split(), cwd=target, stdout=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        wait_for(port)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(resp.PATIENCE_SECS), 0)


def wait_for(port):
    def pings():
        with contextlib.suppress(OSError, resp.ErrorReply):
            client = resp.Client(port)
            reply = client.call("PING")
            client.close()
            return reply

    eventually(pings, lambda it: it == "PONG", f"port {port} answers")


class DebianPackage(unittest.TestCase):
    """Installed, upgraded and purged in a copy of this system that is thrown away: an overlay."""

    @classmethod
    def setUpClass(cls):
        binaries_are_all_there(cls("test_it_is_installed_upgraded_removed_and_purged"))
        holder = tempfile.TemporaryDirectory(prefix="disque-deb-")
        cls.addClassCleanup(holder.cleanup)
        cls.folder = pathlib.Path(holder.name)
        build, options = CONF / "debian/build", dict(os.environ, **FAST)
        cls.first = pathlib.Path(run(build, BINARIES, cls.folder, env=options).strip())
        cls.second = pathlib.Path(run(build, BINARIES, cls.folder, "2", env=options).strip())

    def test_the_same_sources_make_the_same_package(self):
        again = folder(self)
        package = pathlib.Path(run(CONF / "debian/build", BINARIES, again, env=dict(os.environ, **FAST)).strip())
        self.assertEqual(package.name, self.first.name)
        self.assertEqual(package.read_bytes(), self.first.read_bytes())

    def test_files_have_the_places_and_modes_of_debian(self):
        lines = run("dpkg-deb", "--contents", self.first).splitlines()
        files = {line.split(maxsplit=5)[5][1:]: line.split()[:2] for line in lines}
        self.assertEqual(files["/usr/bin/disque-server"], ["-rwxr-xr-x", "root/root"])
        self.assertEqual(files["/etc/disque/disque.conf"], ["-rw-r-----", "root/root"])
        self.assertIn("/lib/systemd/system/disque-server@.service", files)
        self.assertEqual({owner for _, owner in files.values()}, {"root/root"})

    def test_it_is_installed_upgraded_removed_and_purged(self):
        script = f"""
            set -eu
            # A file system of memory, since an overlay does not lie on an overlay.
            mount -t tmpfs none {self.folder}/root
            cd {self.folder}/root
            mkdir upper work merged
            mount -t overlay overlay -o lowerdir=/,upperdir=upper,workdir=work merged
            cp {self.first} {self.second} merged/var/tmp
            mount -t proc none merged/proc
            mount --bind /dev merged/dev
            # As in a container: nothing is to be started by itself.
            rm -rf merged/run && mkdir merged/run
            exec chroot merged /bin/sh -eu /var/tmp/inside {self.first.name} {self.second.name}
        """
        inside = f"""
            cd /var/tmp
            export DEBIAN_FRONTEND=noninteractive
            systemctl() {{ :; }}
            say() {{ echo "== $*"; }}
            version() {{ dpkg-query -W -f '${{Status}} ${{Version}}' disque-server 2>/dev/null || echo none; }}
            serve() {{
                port=$1
                sed -i "s/^port .*/port $port/" /etc/disque/disque.conf
                cd /var/lib/disque
                setpriv --reuid disque --regid disque --clear-groups \\
                    /usr/bin/disque-server /etc/disque/disque.conf --daemonize no --appendonly yes >/var/tmp/log &
                server=$!
                until [ "$(/usr/bin/disque -p $port ping 2>/dev/null)" = PONG ]; do
                    kill -0 $server || {{ cat /var/tmp/log; exit 1; }}
                    sleep 0.05
                done
                cd /var/tmp
            }}

            dpkg -i --force-depends $1 >/dev/null
            say installed "$(version)"
            say user "$(id -un disque)" "$(stat -c '%U:%G %a' /etc/disque/disque.conf /var/lib/disque | tr '\\n' ' ')"
            say enabled "$(ls /etc/systemd/system/multi-user.target.wants | grep -c '^disque-server.service$')"
            serve {free_port()}
            disque -p $port addjob mail body 0 >/dev/null
            # The server may write its own configuration.
            say rewrite "$(disque -p $port config rewrite)"
            kill $server && wait $server
            echo '# mine' >>/etc/disque/disque.conf

            dpkg -i --force-depends --force-confold $2 >/dev/null
            say upgraded "$(version)" "$(tail -n 1 /etc/disque/disque.conf)"
            say owner "$(stat -c '%U %a' /etc/disque/disque.conf)"
            serve $port
            say jobs "$(disque -p $port info jobs | tr -d '\\r' | grep registered_jobs)"
            kill $server && wait $server
            logrotate --debug /etc/logrotate.d/disque-server 2>/dev/null
            say logrotate ok

            dpkg -r disque-server >/dev/null
            say removed "$(version)" "$(ls /usr/bin/disque* 2>/dev/null | wc -l)" "$(ls /etc/disque /var/lib/disque | tr '\\n' ' ')"
            dpkg -i --force-depends $2 >/dev/null
            dpkg -P disque-server >/dev/null
            say purged "$(version)" "$(ls -d /etc/disque /var/lib/disque /var/log/disque 2>/dev/null | wc -l)"
            say enabled "$(ls /etc/systemd/system/multi-user.target.wants | grep -c '^disque-server.service$')"
        """
        root = self.folder / "root"
        root.mkdir()
        # In a namespace of its own, which takes its mounts with it.
        script = script.replace("exec chroot", f"cat >merged/var/tmp/inside <<'INSIDE'\n{inside}\nINSIDE\nexec chroot")
        output = run("unshare", "--mount", "--pid", "--fork", "--kill-child", "/bin/bash", "-c", script)
        said = [line[3:].strip() for line in output.splitlines() if line.startswith("== ")]
        self.assertEqual(
            said,
            [
                f"installed install ok installed {self.version(1)}",
                "user disque disque:disque 640 disque:disque 750",
                "enabled 1",
                "rewrite OK",
                f"upgraded install ok installed {self.version(2)} # mine",
                "owner disque 640",
                "jobs registered_jobs:1",
                "logrotate ok",
                f"removed deinstall ok config-files {self.version(2)} 0 /etc/disque: disque.conf  "
                "/var/lib/disque: disque.aof disque.aof.stopped nodes.conf",
                "purged none 0",
                "enabled 0",
            ],
            output,
        )

    @staticmethod
    def version(revision):
        return f"{project_version()}-{revision}"


def project_version():
    return re.search(r'^version = "(.*)"', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]


class ContainerEntry(unittest.TestCase):
    """The entry script of the container, run here without one."""

    def setUp(self):
        binaries_are_all_there(self)
        self.environment = dict(os.environ, PATH=f"{BINARIES}:{os.environ['PATH']}")

    def start(self, port, others, **environment):
        home = folder(self)
        join = ",".join(f"127.0.0.1:{other}" for other in others)
        environment = dict(self.environment, DISQUE_PORT=str(port), DISQUE_JOIN=join, **environment)
        command = [CONF / "container/disque-container", "--appendonly", "yes", "--aof-restore-queues", "yes"]
        command += ["--cluster-node-timeout", "1000"]

        def begin(answers=wait_for):
            process = subprocess.Popen(command, cwd=home, env=environment, stdout=subprocess.DEVNULL, start_new_session=True)
            self.addCleanup(process.wait)
            self.addCleanup(lambda: kill_group(process))
            answers(port)
            return process

        return begin

    def ask(self, script_word, port, **environment):
        environment = dict(self.environment, DISQUE_PORT=str(port), **environment)
        return subprocess.run([CONF / "container/disque-container", script_word], env=environment).returncode

    def test_nodes_join_drain_and_come_back(self):
        ports = [free_port(), free_port()]
        begin = [self.start(port, ports, DISQUE_DRAIN_SECS="60") for port in ports]
        processes = [it() for it in begin]
        clients = [resp.Client(port) for port in ports]
        for client in clients:
            linked = lambda rows: len(rows) == 2 and all(row[3] == b"1" for row in rows)  # noqa: E731
            eventually(lambda client=client: client.call("HELLO")[2:], linked, "the nodes have met")
        self.assertEqual(self.ask("health", ports[0]), 0)
        for n in range(3):
            clients[0].call("ADDJOB", "mail", f"job {n}", 0, "REPLICATE", 1)

        # The signal that ends the container: the other node takes over what is queued here.
        processes[0].terminate()
        eventually(lambda: clients[0].call("CLUSTER", "LEAVING"), lambda it: it == "yes", "it leaves")
        bodies = set()
        for _ in range(3):
            ((_, job_id, body),) = clients[1].call("GETJOB", "TIMEOUT", 60_000, "FROM", "mail")
            bodies.add(body)
            clients[1].call("ACKJOB", job_id)
        self.assertEqual(bodies, {b"job 0", b"job 1", b"job 2"})
        self.assertEqual(processes[0].wait(resp.PATIENCE_SECS), 0)
        self.assertNotEqual(self.ask("health", ports[0]), 0)

        # It does not leave for good.
        begin[0]()
        again = resp.Client(ports[0])
        eventually(lambda: again.call("CLUSTER", "LEAVING"), lambda it: it == "no", "it is back")
        for client in (*clients, again):
            client.close()

    def test_a_node_alone_ends_at_once_and_keeps_its_jobs(self):
        port = free_port()
        begin = self.start(port, [], DISQUE_AUTH=SECRET, DISQUE_DRAIN_SECS="600")
        # The password is wanted, so that a plain PING is refused: that is alive.
        begin(lambda port: eventually(lambda: self.ask("health", port), lambda it: it == 0, "it is alive"))
        environment = dict(self.environment, DISQUE_AUTH=SECRET)
        cli = [BINARIES / "disque", "-p", str(port)]
        run(*cli, "addjob", "mail", "body", "0", env=environment)
        (pid,) = re.findall(r"process_id:(\d+)", run(*cli, "info", "server", env=environment))
        self.assertNotIn(SECRET, pathlib.Path(f"/proc/{pid}/cmdline").read_text())
        parent = int(pathlib.Path(f"/proc/{pid}/stat").read_text().split()[3])
        os.kill(parent, signal.SIGTERM)
        eventually(lambda: self.ask("health", port), lambda status: status != 0, "it has ended")

    def test_the_dockerfile_is_whole(self):
        parser = dockerfile_parse.DockerfileParser(fileobj=io.BytesIO((CONF / "container/Dockerfile").read_bytes()))
        by_name = {}
        for step in parser.structure:
            by_name.setdefault(step["instruction"], []).append(step["value"])
        toolchain = re.search(r'channel = "(.*)"', (ROOT / "rust-toolchain.toml").read_text())[1]
        self.assertEqual(by_name["FROM"], [f"rust:{toolchain}-slim-bookworm AS build", "debian:bookworm-slim"])
        self.assertEqual((by_name["USER"], by_name["STOPSIGNAL"]), (["999:999"], ["SIGTERM"]))
        self.assertEqual(json.loads(by_name["ENTRYPOINT"][0]), ["disque-container"])
        self.assertIn('"disque-container", "health"', by_name["HEALTHCHECK"][0])
        self.assertEqual(by_name["EXPOSE"], [f"7711 {7711 + BUS_PORT_OFFSET} 9711"])
        for line in by_name["COPY"]:
            for source in line.split()[:-1]:
                if source.startswith("conf/"):
                    self.assertTrue((ROOT / source).exists(), source)
        self.assertTrue(os.access(CONF / "container/disque-container", os.X_OK))
        run("sh", "-n", CONF / "container/disque-container")
        directives_are_known(self, (CONF / "container/disque.conf").read_text())

    def test_compose_takes_the_file(self):
        check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
        run(*check, CONF / "container/compose.yaml")
        (compose,) = documents("container/compose.yaml")
        nodes = compose["services"]
        self.assertEqual(len(nodes), 3)
        for name, node in nodes.items():
            joined = node["environment"]["DISQUE_JOIN"].split(",")
            self.assertEqual(joined, [f"{it}:7711" for it in nodes])
            self.assertEqual(node["hostname"], name)
            self.assertIn(node["volumes"][0].split(":")[0], compose["volumes"])


def kill_group(process):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


class Kubernetes(unittest.TestCase):
    def setUp(self):
        self.objects = documents("kubernetes/disque.yaml")
        self.kinds = {(it["kind"], it["metadata"]["name"]): it for it in self.objects}

    def test_the_manifests_fit_the_schemas(self):
        for version in ("1.27", "1.37"):
            for it in self.objects:
                kubernetes_validate.validate(it, version, strict=True)

    def test_what_is_named_is_there(self):
        stateful = self.kinds["StatefulSet", "disque"]["spec"]
        pod = stateful["template"]
        labels = pod["metadata"]["labels"]
        headless = self.kinds["Service", stateful["serviceName"]]["spec"]
        self.assertEqual((headless["clusterIP"], headless["publishNotReadyAddresses"]), ("None", True))
        selectors = [it["spec"]["selector"] for it in self.objects if it["kind"] == "Service"]
        selectors += [stateful["selector"]["matchLabels"]]
        selectors += [self.kinds["PodDisruptionBudget", "disque"]["spec"]["selector"]["matchLabels"]]
        for selector in selectors:
            self.assertEqual(selector, labels)
        (container,) = pod["spec"]["containers"]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        self.assertEqual(ports, {"clients": 7711, "bus": 17711, "http": 9711})
        paths = [container[f"{it}Probe"]["httpGet"]["path"] for it in ("startup", "liveness", "readiness")]
        self.assertEqual(paths, ["/livez", "/livez", "/readyz"])
        self.assertEqual(container["lifecycle"]["preStop"]["exec"]["command"], ["disque-container", "drain"])
        names = {f"disque-{n}.{stateful['serviceName']}:7711" for n in range(stateful["replicas"])}
        environment = {it["name"]: it for it in container["env"]}
        self.assertEqual(set(environment["DISQUE_JOIN"]["value"].split(",")), names)
        # There is time for the drain and for the rewrite of the file.
        drain = int(environment["DISQUE_DRAIN_SECS"]["value"])
        self.assertGreater(pod["spec"]["terminationGracePeriodSeconds"], 2 * drain)
        secret = environment["DISQUE_AUTH"]["valueFrom"]["secretKeyRef"]
        self.assertIn(secret["key"], self.kinds["Secret", secret["name"]]["stringData"])
        directives_are_known(self, self.kinds["ConfigMap", "disque"]["data"]["disque.conf"])


class Release(unittest.TestCase):
    def test_a_release_is_the_same_twice_and_says_what_is_in_it(self):
        binaries_are_all_there(self)
        first, second = folder(self), folder(self)
        for target in (first, second):
            run(CONF / "dist/build", BINARIES, target)
        names = sorted(it.name for it in first.iterdir())
        self.assertEqual(names, sorted(it.name for it in second.iterdir()))
        for name in names:
            self.assertEqual((first / name).read_bytes(), (second / name).read_bytes(), name)
        sums = dict(reversed(line.split()) for line in (first / "SHA256SUMS").read_text().splitlines())
        self.assertEqual(sorted([*sums, "SHA256SUMS"]), names)
        for name, digest in sums.items():
            self.assertEqual(hashlib.sha256((first / name).read_bytes()).hexdigest(), digest)

        (archive,) = first.glob("*linux-gnu.tar.gz")
        with tarfile.open(archive) as tar:
            members = {it.name.split("/", 1)[1]: it for it in tar if "/" in it.name}
            self.assertEqual({(it.uid, it.gid) for it in members.values()}, {(0, 0)})
            target = folder(self)
            tar.extractall(target, filter="data")
        for name in ("bin/disque-server", "conf/disque.conf", "docs/commands.md", "LICENSE", "README.md"):
            self.assertIn(name, members)
        (server,) = target.glob("*/bin/disque-server")
        self.assertIn("v=", run(server, "--version"))

        bill = json.loads(next(first.glob("*.cdx.json")).read_text())
        self.assertEqual((bill["bomFormat"], bill["specVersion"]), ("CycloneDX", "1.5"))
        self.assertEqual(bill["metadata"]["component"]["version"], project_version())
        known = {it["bom-ref"] for it in bill["components"]} | {bill["metadata"]["component"]["bom-ref"]}
        self.assertIn("mio", {it["name"] for it in bill["components"]})
        self.assertTrue(all(it.get("hashes") for it in bill["components"]))
        for dependency in bill["dependencies"]:
            self.assertLessEqual({dependency["ref"], *dependency["dependsOn"]}, known)


if __name__ == "__main__":
    unittest.main()
