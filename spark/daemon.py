"""Spark's daemon of Python workers, quiet where a query has ended before its worker.

`spark.python.daemon.module` names it. When a query ends, Spark closes the connections of its
workers; PySpark's daemon prints a traceback for each worker that still writes, so a run that went
well looked broken.
"""

from __future__ import annotations

from collections.abc import Callable
from socket import socket
from typing import Final

from pyspark import daemon

LOST: Final = 1
"""The exit code of a worker without a connection: PySpark then ends it."""

Worker = Callable[[socket, bool], int]


def quiet(worker: Worker) -> Worker:
    """A worker that ends without a traceback when Spark has closed its connection."""

    def quiet_worker(connection: socket, authenticated: bool) -> int:
        try:
            return worker(connection, authenticated)
        except (BrokenPipeError, ConnectionResetError):
            return LOST

    return quiet_worker


if __name__ == "__main__":
    daemon.worker = quiet(daemon.worker)
    daemon.manager()
