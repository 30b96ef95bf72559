"""One-time setup of a Spark Python worker."""

from __future__ import annotations

import gc
from typing import Final

from pyspark import TaskContext

_settled: Final[list[bool]] = []


def settle() -> None:
    """Exclude all objects loaded so far from garbage collections, once per worker.

    Spark's workers run a full collection after each task, which visits every object of pyarrow,
    numpy and pandas: 20 to 40 ms, more than the rest of a small task. A stream of 16 queues has 16
    tasks in each batch. Outside of tasks, on the driver and in tests, it does nothing.
    """
    if _settled or TaskContext.get() is None:
        return
    _settled.append(True)
    gc.collect()
    gc.freeze()
