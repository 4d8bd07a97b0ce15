"""A headless Chromium that tells what a page did: its console, its requests, and whatever a script asks of it.

It is driven by the DevTools protocol over a pair of pipes, which needs no library and opens no port.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
#: Quiet, and cut off from every host but this one: the dashboard must bring all that it loads.
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--remote-debugging-pipe",
)
DESKTOP = (1400, 900)
PHONE = (360, 740)
_DEADLINE_S = 60.0


class Browser:
    """One tab."""

    def __init__(self, process: subprocess.Popen[bytes], write: int, read: int) -> None:
        self._process = process
        self._write = write
        self._read = open(read, "rb", closefd=True)  # noqa: SIM115 - a descriptor, closed by `opened`
        self._serial = 0
        self._session: str | None = None
        #: What the page complained of: messages of the console, exceptions, and requests that failed.
        self.complaints: list[str] = []
        #: The addresses that the page has loaded.
        self.requests: list[str] = []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")

    def close(self) -> None:
        os.close(self._write)
        self._read.close()

    def open(self, url: str, size: tuple[int, int] = DESKTOP, *, until: str) -> None:
        """Open a page at a size, and wait until an expression in it is true."""
        width, height = size
        self.complaints.clear()
        self.requests.clear()
        self._call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=size == PHONE
        )
        self._call("Page.navigate", url="about:blank")  # another fragment alone would not load the page again
        self._call("Page.navigate", url=url)
        self.wait(until)

    def wait(self, expression: str) -> None:
        """Wait until an expression is true."""
        deadline = time.monotonic() + _DEADLINE_S
        while not self.run(f"Boolean({expression})"):
            assert time.monotonic() < deadline, f"never: {expression}\n{self.complaints}"
            time.sleep(0.05)

    def run(self, expression: str) -> Any:  # noqa: ANN401 - whatever JavaScript gives
        """Evaluate JavaScript and return its value; None where it throws, as while a page loads."""
        answer = self._call("Runtime.evaluate", expression=expression, returnByValue=True)
        return None if "exceptionDetails" in answer else answer["result"].get("value")

    def do(self, statement: str) -> None:
        """Run JavaScript whose value is of no interest, nor one that can be sent."""
        self.run(f"{statement}; 0")

    def press(self, key: str) -> None:
        """Press a key and let it go."""
        codes = {"Tab": 9, "Enter": 13, " ": 32}
        text = {"Enter": "\r", " ": " "}.get(key, "")
        common = {"key": key, "code": "Space" if key == " " else key, "windowsVirtualKeyCode": codes[key]}
        self._call("Input.dispatchKeyEvent", type="keyDown", text=text, **common)
        self._call("Input.dispatchKeyEvent", type="keyUp", **common)

    def _call(self, method: str, **params: object) -> dict[str, Any]:
        self._serial += 1
        message: dict[str, object] = {"id": self._serial, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._serial:
                assert "error" not in answer, f"{method}: {answer['error']}"
                result: dict[str, Any] = answer["result"]
                return result
            self._note(answer.get("method", ""), answer.get("params", {}))

    def _next(self) -> dict[str, Any]:
        message = bytearray()
        while (byte := self._read.read(1)) != b"\0":
            assert byte, f"Chromium has ended, exit status {self._process.poll()}"
            message += byte
        parsed: dict[str, Any] = json.loads(message)
        return parsed

    def _note(self, event: str, params: dict[str, Any]) -> None:
        match event:
            case "Log.entryAdded" if params["entry"]["level"] in ("error", "warning"):
                self.complaints.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning", "assert"):
                self.complaints.append(str(params["args"]))
            case "Runtime.exceptionThrown":
                self.complaints.append(str(params["exceptionDetails"]))
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])
            case _:
                pass


@contextlib.contextmanager
def opened(profile: Path) -> Iterator[Browser]:
    """Start Chromium with a new profile."""
    assert CHROMIUM is not None
    commands, answers = os.pipe(), os.pipe()
    # Chromium reads commands from descriptor 3 and answers on 4.
    script = 'exec 3<&"$1" 4>&"$2"; shift 2; exec "$@"'
    process = subprocess.Popen(
        [
            "bash",
            "-c",
            script,
            "bash",
            str(commands[0]),
            str(answers[1]),
            CHROMIUM,
            *FLAGS,
            f"--user-data-dir={profile}",
        ],
        pass_fds=(commands[0], answers[1]),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(commands[0])
    os.close(answers[1])
    try:
        browser = Browser(process, commands[1], answers[0])
        yield browser
        browser.close()  # it ends when its pipe does
        process.wait(_DEADLINE_S)
    finally:
        process.kill()
        process.wait()
