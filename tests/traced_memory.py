"""The memory that a test allocates while no other thread of the process runs.

A worker of pytest keeps brokers in threads, of fixtures whose scope is the session: what those
allocate is not the test's.
"""

from __future__ import annotations

import select
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

SWITCH_INTERVAL_S: Final = 10.0
"""How long another thread waits before it asks for its turn: longer than a test measures. It is not
longer still, as the test waits that long, too, for a thread that does nothing but compute."""


@contextmanager
def traced_memory() -> Iterator[Callable[[], int]]:
    """Trace allocations inside the block; the function that it gives returns the bytes held now.

    Other threads stand still meanwhile, unless the test waits or reads and writes files.
    """
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    select.select((), (), (), 0)  # threads that asked for their turn before have it now
    tracemalloc.start()
    try:
        yield lambda: tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
        sys.setswitchinterval(interval_s)
