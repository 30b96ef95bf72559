"""Waiting for what only another thread or process brings about."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

DEADLINE_S: Final = 60.0
"""Longer than anything takes on a busy machine."""
PAUSE_S: Final = 0.005


def wait_until(
    is_so: Callable[[], object],
    what: str | Callable[[], str] = "",
    *,
    timeout_s: float = DEADLINE_S,
    pause_s: float = PAUSE_S,
) -> None:
    """Look again and again until something is so.

    Args:
      what: is waited for, for people; a function is called only if it does not come.

    Raises: AssertionError: it is not in time.
    """
    until_s, never = time.monotonic() + timeout_s, threading.Event()
    while not is_so():
        if time.monotonic() > until_s:
            raise AssertionError(f"not in {timeout_s:g} s: {what() if callable(what) else what}")
        never.wait(pause_s)
