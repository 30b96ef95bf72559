"""What the log of a test leaves out: lines that another test, or a busy machine, caused.

A worker of pytest keeps brokers in threads, of fixtures that outlive a test: what those log is not
the test's. Nor is how long a turn of the event loop took, which depends on what else runs.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Final

SLOW_TURNS: Final = "trocket.remoting.loop_monitor"
BROKER_THREAD: Final = "trocket-broker-"
"""How the name of the thread of a `trocket.testing.Broker` begins."""


def broker_threads() -> set[threading.Thread]:
    """The threads of brokers (`trocket.testing`) that run now.

    Others are shared: trio's workers, and the loop of the blocking clients.
    """
    return {each for each in threading.enumerate() if each.name.startswith(BROKER_THREAD)}


@contextmanager
def own_lines(
    handler: logging.Handler, others: Collection[threading.Thread], *, slow_turns: bool = False
) -> Iterator[None]:
    """Keep from the handler what other tests' brokers log and, unless wanted, slow turns."""

    def is_own(record: logging.LogRecord) -> bool:
        return threading.current_thread() not in others and (
            slow_turns or record.name != SLOW_TURNS
        )

    handler.addFilter(is_own)
    try:
        yield
    finally:
        handler.removeFilter(is_own)
