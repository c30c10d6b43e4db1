"""Chromium without a screen, driven through a pipe by its DevTools protocol."""

import base64
import json
import os
import pathlib
import select
import shutil
import subprocess
import tempfile
import time

PATIENCE_SECS = 60


class Chromium:
    """A context in which the browser runs."""

    def __enter__(self):
        program = shutil.which("chromium")
        if not program:
            raise SystemExit("chromium is not installed")
        self._profile = tempfile.TemporaryDirectory(
            prefix="disque-chromium-", ignore_cleanup_errors=True
        )
        its_input, self._requests = os.pipe()
        self._answers, its_output = os.pipe()
        options = [
            "--headless=new",
            "--remote-debugging-pipe",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--disable-component-update",
            "--no-first-run",
            "--hide-scrollbars",
            "--lang=en",
            f"--user-data-dir={self._profile.name}",
        ]
        if os.getuid() == 0:
            options.append("--no-sandbox")
        # The browser reads its descriptor 3 and writes to 4.
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{its_input} 4>&{its_output}', "chromium", program, *options],
            pass_fds=(its_input, its_output),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(its_input)
        os.close(its_output)
        self._input = b""
        self._number = 0
        self._results = {}
        self._tabs = {}
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()
        os.close(self._requests)
        os.close(self._answers)
        self._profile.cleanup()

    def tab(self, width=1280, height=900, theme="light"):
        """A new page, empty."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        tab = Tab(self, session)
        self._tabs[session] = tab
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
            tab.call(f"{domain}.enable")
        tab.resize(width, height)
        tab.set_theme(theme)
        return tab

    def call(self, method, session=None, **params):
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self._requests, json.dumps(message).encode() + b"\0")
        give_up_at = time.monotonic() + PATIENCE_SECS
        while number not in self._results:
            self.pump(give_up_at - time.monotonic(), method)
        answer = self._results.pop(number)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def pump(self, secs, what="an event"):
        """Takes in what the browser says; waits for something, up to `secs`."""
        ready, _, _ = select.select([self._answers], [], [], max(0, secs))
        if not ready:
            raise TimeoutError(f"the browser has nothing to say to {what}")
        bytes_ = os.read(self._answers, 1 << 20)
        if not bytes_:
            raise RuntimeError("the browser has ended")
        *messages, self._input = (self._input + bytes_).split(b"\0")
        for message in map(json.loads, messages):
            if "id" in message:
                self._results[message["id"]] = message
            elif message.get("sessionId") in self._tabs:
                self._tabs[message["sessionId"]].note(message["method"], message["params"])


class Tab:
    """A page of the browser, and all that went wrong in it."""

    def __init__(self, browser, session):
        self._browser = browser
        self._session = session
        # What the console, the content security policy and scripts complained of.
        self.complaints = []
        self.dialogs = []
        self.requests = []

    def call(self, method, **params):
        return self._browser.call(method, self._session, **params)

    def note(self, method, params):
        if method == "Runtime.exceptionThrown":
            self.complaints.append(str(params["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.complaints.append(str(params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            entry = params["entry"]
            self.complaints.append(f"{entry['text']} {entry.get('url', '')}")
        elif method == "Page.javascriptDialogOpening":
            self.dialogs.append(params["message"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    def resize(self, width, height):
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 700,
        )

    def set_theme(self, theme):
        features = [{"name": "prefers-color-scheme", "value": theme}]
        self.call("Emulation.setEmulatedMedia", features=features)

    def open(self, url):
        self.call("Page.navigate", url=url)

    def evaluate(self, expression):
        """The value of an expression in the page; an exception there is one here."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["exception"].get("description", ""))
        return answer["result"].get("value")

    def wait(self, expression, secs=PATIENCE_SECS):
        """Returns the value of an expression once it is true."""
        give_up_at = time.monotonic() + secs
        while True:
            value = self.evaluate(expression)
            if value:
                return value
            if time.monotonic() > give_up_at:
                text = self.evaluate("document.body.innerText.slice(0, 2000)")
                raise AssertionError(f"waited {secs} s in vain for {expression}; the page: {text}")
            time.sleep(0.05)

    def press(self, key):
        for kind in ("keyDown", "keyUp"):
            text = {"text": key} if kind == "keyDown" and len(key) == 1 else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, **text)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def screenshot(self, path):
        data = self.call("Page.captureScreenshot", format="png")["data"]
        pathlib.Path(path).write_bytes(base64.b64decode(data))
