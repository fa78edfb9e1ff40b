"""A headless Chromium over its own debugging pipe: no port, no library. Whatever happens, it is
ended with everything that it started.
"""

import json
import os
import select
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
WAIT_S = 60.0  # a start on two busy cores takes ten


class Browser:
    """One page in one browser. `events` are all that it told so far: console messages, exceptions,
    requests.
    """

    def __init__(self, home: Path) -> None:
        assert CHROMIUM is not None
        self.events: list[dict[str, Any]] = []
        self._number, self._rest = 0, b""
        self._session: str | None = None
        from_us, self._write = os.pipe()
        self._read, to_us = os.pipe()
        words = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            f"--user-data-dir={home}",
            "--remote-debugging-pipe",
            "about:blank",
        ]
        # The browser reads its orders from descriptor 3 and answers on 4.
        given = f'exec 3<&{from_us} 4>&{to_us}; exec "$@"'
        self._process = subprocess.Popen(
            ["bash", "-c", given, "bash", CHROMIUM, *words],
            pass_fds=(from_us, to_us),
            start_new_session=True,
            stderr=subprocess.DEVNULL,
        )
        os.close(from_us)
        os.close(to_us)
        try:
            target = self.ask("Target.createTarget", url="about:blank")["targetId"]
            self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)[
                "sessionId"
            ]
            for domain in ("Page", "Runtime", "Log", "Network"):
                self.ask(f"{domain}.enable")
        except BaseException:
            self.close()
            raise

    def ask(self, method: str, **params: Any) -> Any:
        """What the browser answers to one order."""
        self._number += 1
        order = {"id": self._number, "method": method, "params": params} | (
            {"sessionId": self._session} if self._session else {}
        )
        os.write(self._write, json.dumps(order).encode() + b"\0")
        answer = self._until(lambda told: told.get("id") == order["id"])
        assert "error" not in answer, answer["error"]
        return answer["result"]

    def _until(self, is_wanted: Any) -> dict[str, Any]:
        end = time.monotonic() + WAIT_S
        while True:
            line, found, self._rest = self._rest.partition(b"\0")
            if not found:
                self._rest = line
                ready, _, _ = select.select([self._read], [], [], max(0.0, end - time.monotonic()))
                data = os.read(self._read, 1 << 20) if ready else b""
                assert data, "the browser is silent or gone"
                self._rest += data
                continue
            told: dict[str, Any] = json.loads(line)
            if "method" in told:
                self.events.append(told)
            if is_wanted(told):
                return told

    def look(
        self,
        url: str,
        *,
        width: int = 1280,
        height: int = 900,
        scheme: str = "light",
        phone: bool = False,
        script: bool = True,
    ) -> None:
        """Open a page and wait until it is loaded."""
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=phone,
        )
        self.ask("Emulation.setTouchEmulationEnabled", enabled=phone)
        self.ask(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )
        # a page that differs in the fragment only would not be loaded again
        self.ask("Page.navigate", url="about:blank")
        self.events.clear()
        self.ask("Page.navigate", url=url)
        if not any(told["method"] == "Page.loadEventFired" for told in self.events[-1:]):
            self._until(lambda told: told.get("method") == "Page.loadEventFired")
        if script:
            self.run(
                "new Promise(done => { const look = () => document.documentElement.dataset.ready"
                " ? requestAnimationFrame(() => requestAnimationFrame(done)) : setTimeout(look, 5);"
                " look(); })"
            )

    def run(self, code: str) -> Any:
        """The value of an expression in the page. $ and $$ find what a selector names, as in the
        console, but not in what runs later.
        """
        told = self.ask(
            "Runtime.evaluate",
            expression=code,
            returnByValue=True,
            awaitPromise=True,
            includeCommandLineAPI=True,
        )
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    def complaints(self) -> list[str]:
        """Errors and warnings of the console, and exceptions that nobody caught."""
        found = self._told("Runtime.exceptionThrown") + self._told("Runtime.consoleAPICalled")
        logged = [params["entry"]["text"] for params in self._told("Log.entryAdded")]
        return [*map(json.dumps, found), *logged]

    def requests(self) -> list[str]:
        """Addresses that were asked for."""
        return [params["request"]["url"] for params in self._told("Network.requestWillBeSent")]

    def _told(self, method: str) -> list[dict[str, Any]]:
        return [told["params"] for told in self.events if told["method"] == method]

    def close(self) -> None:
        """End the browser and all its children."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(WAIT_S)
        for end in (self._read, self._write):
            os.close(end)
