"""What a Python worker of Spark does once, before its first task of ours."""

from __future__ import annotations

import gc
from typing import Final

from pyspark import TaskContext

_settled: Final[list[bool]] = []


def settle() -> None:
    """Take what is loaded by now out of the garbage collector's sight.

    Spark's workers collect all garbage after each task, and walk over every object of pyarrow,
    numpy and pandas for it: 20 to 40 ms, more than the rest of a small task. A stream of 16 queues
    has 16 tasks in each batch. Nothing is done where no task runs, on the driver and in tests.
    """
    if _settled or TaskContext.get() is None:
        return
    _settled.append(True)
    gc.collect()
    gc.freeze()
