"""Browser: a small driver of Chromium over its debugging pipe, with no library of its own.

Chromium reads commands from file descriptor 3 and writes answers and events to 4, each a JSON text that ends with a
zero byte. Reference: the Chrome DevTools Protocol and ``--remote-debugging-pipe``.
"""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-sync",
    "--disable-extensions",
    "--no-first-run",
    "--no-default-browser-check",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
# Between this process and the browser: it moves the two ends of the pipe to the places where the browser looks.
_STARTER = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); os.execvp(sys.argv[3], sys.argv[3:])"
)
_PATIENCE = 30.0


def find_browser() -> str | None:
    """The path of a Chromium on this machine, if there is one."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """A running Chromium with one tab."""

    def __init__(self, path: str, folder: str) -> None:
        down_read, self._down = (_high(end) for end in os.pipe())
        self._up, up_write = (_high(end) for end in os.pipe())
        command = [path, *_FLAGS, f"--user-data-dir={folder}", "about:blank"]
        self._process = subprocess.Popen(
            [sys.executable, "-c", _STARTER, str(down_read), str(up_write), *command],
            pass_fds=(down_read, up_write),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(down_read)
        os.close(up_write)
        self._number = 0
        self._session: str | None = None
        self._rest = b""
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "DOM"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and wait for its answer; events that arrive meanwhile are kept."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._down, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + _PATIENCE
        while True:
            answer = self._receive(deadline)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]

    def open_quietly(self, page: Path) -> None:
        """Load a file in a fresh document, without asking any script to run."""
        self.events.clear()
        self.call("Page.navigate", url=page.resolve().as_uri())
        self.wait_for("Page.loadEventFired")

    def open(self, page: Path) -> None:
        """Load a file in a fresh document, and wait until it has settled."""
        self.open_quietly(page)
        self.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def wait_for(self, event: str) -> None:
        """Wait until an event has arrived since the last page was opened."""
        deadline = time.monotonic() + _PATIENCE
        while not any(each["method"] == event for each in self.events):
            self._receive(deadline)

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression, promises awaited."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise RuntimeError(found["exceptionDetails"].get("exception", {}).get("description", expression))
        return found["result"].get("value")

    def click(self, selector: str) -> None:
        """Click in the middle of an element, as a mouse would."""
        place = self.evaluate(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); "
            "e.scrollIntoView({block: 'nearest', inline: 'center', behavior: 'instant'}); "
            "const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2] })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left", clickCount=1)

    def type(self, selector: str, text: str) -> None:
        """Put text into a field, in place of what is there, as the keyboard would."""
        self.evaluate(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.focus(); e.select(); }})()"
        )
        if text:
            self.call("Input.insertText", text=text)
        else:
            for kind in ("keyDown", "keyUp"):
                self.call("Input.dispatchKeyEvent", type=kind, key="Delete", code="Delete", windowsVirtualKeyCode=46)

    def resize(self, width: int, height: int, *, phone: bool = False) -> None:
        """Take the size of a screen."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)

    def show_as(self, *, media: str = "", scheme: str = "light", vision: str = "none") -> None:
        """Emulate paper (``media="print"``), a colour scheme, and what a reader sees (``vision="achromatopsia"``)."""
        features = [
            {"name": "prefers-color-scheme", "value": scheme},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]
        self.call("Emulation.setEmulatedMedia", media=media, features=features)
        self.call("Emulation.setEmulatedVisionDeficiency", type=vision)

    def set_scripts(self, *, allowed: bool) -> None:
        """Switch the scripts of pages on or off."""
        self.call("Emulation.setScriptExecutionDisabled", value=not allowed)

    def screenshot(self, *, whole: bool = False) -> bytes:
        """What is seen, or the whole page, as a PNG file."""
        return base64.b64decode(self.call("Page.captureScreenshot", captureBeyondViewport=whole)["data"])

    def pdf(self) -> bytes:
        """The page on paper."""
        printed = self.call("Page.printToPDF", preferCSSPageSize=True, printBackground=True)
        return base64.b64decode(printed["data"])

    @property
    def complaints(self) -> list[str]:
        """Errors and warnings since the last page was opened: of scripts, of the console and of the browser."""
        found = []
        for event in self.events:
            details = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                found.append(f"exception: {details['exceptionDetails'].get('text')}")
            elif event["method"] == "Runtime.consoleAPICalled" and details["type"] in ("error", "warning", "assert"):
                found.append(f"console: {[each.get('value') for each in details['args']]}")
            elif event["method"] == "Log.entryAdded" and details["entry"]["level"] in ("error", "warning"):
                found.append(f"log: {details['entry']['text']}")
        return found

    @property
    def requests(self) -> list[str]:
        """The addresses that were asked for since the last page was opened; those inside of the page do not count."""
        sent = [event["params"] for event in self.events if event["method"] == "Network.requestWillBeSent"]
        return [each["request"]["url"] for each in sent if not each["request"]["url"].startswith("data:")]

    def close(self) -> None:
        """End the browser."""
        self._session = None
        try:
            self.call("Browser.close")
            self._process.wait(timeout=10)
        except (OSError, RuntimeError, TimeoutError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        os.close(self._down)
        os.close(self._up)

    def _receive(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._up], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError("the browser did not answer")
            chunk = os.read(self._up, 1 << 20)
            if not chunk:
                raise RuntimeError("the browser went away")
            self._rest += chunk
        message, _, self._rest = self._rest.partition(b"\0")
        answer: dict[str, Any] = json.loads(message)
        if "method" in answer:
            self.events.append(answer)
        return answer


def _high(end: int) -> int:
    """The same pipe end under a number above ten, so that it cannot be one of those that the browser uses."""
    moved = fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(end)
    return moved


@contextmanager
def browser(path: str) -> Iterator[Browser]:
    """A browser with a profile of its own, gone at the end."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        running = Browser(path, folder)
        try:
            yield running
        finally:
            running.close()
