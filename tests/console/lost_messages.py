"""The example `lost_messages`, running, and what the console shows of it."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..kit.waiting import wait_until
from .running import Browser

EXAMPLE = Path(__file__).parents[2] / "examples" / "lost_messages" / "program.py"
ADDRESS = re.compile(r"trocket console -n (127\.0\.0\.1:\d+)")
LOST = 20
QUICK = """
import functools, runpy, sys, trocket
quick = {"suspend_s": 0.5, "persist_offsets_s": 0.1}
trocket.PushConsumer = functools.partial(trocket.PushConsumer, **quick)
runpy.run_path(sys.argv[1], run_name="__main__")
"""
"""The example with members that commit at once: their pulls are held for 15 s otherwise."""


@contextmanager
def example() -> Iterator[str]:
    """Run it; gives the address of its name server."""
    command = [sys.executable, "-u", "-c", QUICK, str(EXAMPLE)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            found = next(filter(None, map(ADDRESS.match, process.stdout)))
            yield found[1]
        finally:
            process.terminate()


def passed_over(browser: Browser) -> list[str]:
    """The ids of the messages that no member got, once the members have committed their offsets."""
    messages = browser.get("messages.json", topic="orders").tree["messages"]
    found: set[str] = set()

    def are_there() -> bool:
        for each in messages:
            if each["messageId"] in found:
                continue
            query = {"topic": "orders", "id": each["messageId"]}
            if "passed over" in browser.get("message", **query).text:
                found.add(each["messageId"])
        return len(found) == LOST

    wait_until(are_there, f"{LOST} messages that were passed over")
    return sorted(found)
