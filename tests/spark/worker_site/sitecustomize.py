"""Start of the tests' Python workers: the planner of a stream connects to Spark before it imports.

Spark waits 10 s, which no setting changes, for the connection of a stream's planner
(`PythonWorkerFactory.createSimpleWorker`, 4.3.0), and fails the query with "Python worker failed to
connect back". The planner connects only after it has imported PySpark, which takes longer on a
machine that does many things at once. Python imports this module, which PYTHONPATH has, first.
"""

from __future__ import annotations

import os
import sys

PLANNER = "pyspark.sql.streaming.python_streaming_source_runner"
PATH = os.environ.get("PYTHON_WORKER_FACTORY_SOCK_PATH")


def _connect_now(path: str) -> None:
    """Connect, and give this connection to the socket that PySpark connects to the same path."""
    import socket

    early = socket.socket(socket.AF_UNIX)
    early.connect(path)
    connect = socket.socket.connect

    def take_over(self: socket.socket, address: object) -> None:
        if address != path:
            connect(self, address)
            return
        socket.socket.connect = connect
        os.dup2(early.fileno(), self.fileno())
        os.set_blocking(self.fileno(), self.gettimeout() is None)
        early.close()

    socket.socket.connect = take_over


if PATH is not None and PLANNER in sys.orig_argv:
    _connect_now(PATH)
