"""A headless Chromium, asked over its debugging pipe: no port, no package.

Source: the Chrome DevTools Protocol; `--remote-debugging-pipe` reads file descriptor 3 and writes
4, JSON texts with a zero byte after each.
"""

from __future__ import annotations

import base64
import json
import os
import select
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any

DEADLINE_S = 60.0


class Browser:
    """One page of one browser, with a separate profile folder. A context manager."""

    def __init__(self, program: str, folder: Path) -> None:
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        command = [program, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        command += ["--disable-dev-shm-usage", "--remote-debugging-pipe"]
        command += [f"--user-data-dir={folder / 'profile'}", "about:blank"]
        # 3 and 4 may be in use here: dup2 in the child is what puts the pipe's ends there.
        script = 'exec "${@:3}" 3<&"$1" 4>&"$2"'
        self._process = subprocess.Popen(
            ["bash", "-c", script, "bash", str(to_read), str(to_write), *command],
            pass_fds=(to_read, to_write),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": str(folder)},
        )
        os.close(to_read)
        os.close(to_write)
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        self.call("Page.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._write)
        os.close(self._read)
        self._process.kill()
        self._process.wait(DEADLINE_S)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command and its result."""
        self._number += 1
        request = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            request["sessionId"] = self._session
        os.write(self._write, json.dumps(request).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer["error"]
                result: dict[str, Any] = answer["result"]
                return result

    def wait_event(self, method: str) -> None:
        """Wait for something that the page does from now on."""
        while self._next().get("method") != method:
            pass

    def _next(self) -> dict[str, Any]:
        deadline_s = time.monotonic() + DEADLINE_S
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], deadline_s - time.monotonic())
            assert ready, "Chromium does not answer"
            received = os.read(self._read, 1 << 20)
            assert received, "Chromium has ended"
            self._buffer += received
        text, _, self._buffer = self._buffer.partition(b"\0")
        answer: dict[str, Any] = json.loads(text)
        return answer

    def show(self, page: Path, width: int, height: int, *, is_dark: bool = False) -> None:
        """Open a page as on a screen of that size, in CSS pixels."""
        self.show_size(width, height)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        calm = {"name": "prefers-reduced-motion", "value": "reduce"}
        self.call("Emulation.setEmulatedMedia", features=[scheme, calm])
        self.call("Page.navigate", url=page.as_uri())
        self.wait_event("Page.loadEventFired")

    def show_size(self, width: int, height: int) -> None:
        """Go on with a screen of that size, a phone's if it is narrow."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )

    def evaluate(self, expression: str) -> Any:
        """What an expression of the page's script gives."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def click(self, selector: str) -> None:
        """Click in the middle of an element, scrolled into view."""
        place = self.evaluate(
            f"(() => {{ const found = document.querySelector({json.dumps(selector)});"
            "found.scrollIntoView({block: 'center', inline: 'center'});"
            "const box = found.getBoundingClientRect();"
            "return [box.x + box.width / 2, box.y + box.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call(
                "Input.dispatchMouseEvent",
                type=kind,
                x=place[0],
                y=place[1],
                button="left",
                clickCount=1,
            )

    def screenshot(self, path: Path) -> None:
        """What is seen now, as PNG."""
        data = self.call("Page.captureScreenshot", format="png")["data"]
        path.write_bytes(base64.b64decode(data))
