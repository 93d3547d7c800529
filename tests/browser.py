"""A headless Chromium driven over its DevTools protocol, for pages that lie in a file."""

import itertools
import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--remote-debugging-port=0",
)  # fmt: skip
WAIT = 60  # seconds; a busy machine is slow to start it


class Page:
    """One tab.

    Attributes:
        events: the tab's events since it was opened, in order: requests, console messages, exceptions.
    """

    def __init__(self, socket: ClientConnection) -> None:
        self._socket, self._numbers, self.events = socket, itertools.count(1), []
        for domain in ("Page", "Network", "Log", "Runtime"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict:
        """One command of the protocol, and its result."""
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while (message := self._hear()).get("id") != number:
            pass
        assert "error" not in message, message
        return message["result"]

    def open(self, file: Path, *, width: int = 1280, dark: bool = False, media: str = "") -> None:
        """Open a file, as wide as asked for, and wait until it is loaded."""
        self.events.clear()
        height, mobile = 900, width < 600
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)
        theme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=media, features=[theme])
        self.call("Page.navigate", url=file.as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self._hear()

    def js(self, expression: str) -> Any:
        """The value of an expression in the page."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def click(self, selector: str) -> None:
        """Press and release the mouse in the middle of an element."""
        place = (
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); "
            "e.scrollIntoView({block: 'center', behavior: 'instant'}); "
            "const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2] })()"
        )
        x, y = self.js(place)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def _hear(self) -> dict:
        message = json.loads(self._socket.recv(timeout=WAIT))
        if "method" in message:
            self.events.append(message)
        return message


@contextmanager
def open_chromium(profile: Path) -> Iterator[Page]:
    """Start Chromium with a profile of its own, and end it."""
    command = [CHROMIUM, *QUIET, f"--user-data-dir={profile}", "about:blank"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            found = (re.search(r"ws://127\.0\.0\.1:(\d+)/", line) for line in process.stderr)
            port = next(filter(None, found))[1]
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/json", timeout=WAIT) as answer:
                tabs = json.load(answer)
            address = next(tab["webSocketDebuggerUrl"] for tab in tabs if tab["type"] == "page")
            with connect(address, max_size=None, open_timeout=WAIT, proxy=None) as socket:
                yield Page(socket)
        finally:
            process.terminate()
