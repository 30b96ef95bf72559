"""Synchronisation points with the harness: a line out, and a line in that resumes."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import anyio
import anyio.from_thread


class Points:
    """Reads stdin in a separate thread; each line is `SCENARIO POINT`."""

    def __init__(self, portal: anyio.from_thread.BlockingPortal) -> None:
        self._portal = portal
        self._passed: dict[tuple[str, str], anyio.Event] = {}

    def start(self) -> None:
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        # Unbuffered: a buffer's lock would be held by this thread when the interpreter ends.
        with Path("/dev/stdin").open("rb", buffering=0) as lines:
            for line in lines:
                name, _, point = line.decode().strip().partition(" ")
                self._portal.call(lambda key: self._event(*key).set(), (name, point))

    def _event(self, name: str, point: str) -> anyio.Event:
        return self._passed.setdefault((name, point), anyio.Event())

    def reach(self, name: str, point: str) -> anyio.Event:
        """Report a scenario's point; the event is set when the harness resumes it."""
        print(json.dumps({"at": point, "scenario": name}), flush=True)
        return self._event(name, point)
