"""Settings for a Spark whose driver and workers are all on this machine, and that we start.

A scan of a store's files takes a fifth less time with both: batches come from the workers by a
socket of Unix in place of TCP, and the driver, which runs the tasks here, has Java's collector for
throughput (docs/spark.md has the figures).

Who configures Spark or Java gets what they configured, and nothing of ours: what a builder is given
wins over spark-defaults.conf, and a JVM that is told of two collectors does not start.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

COLLECTOR: Final = {"spark.driver.extraJavaOptions": "-XX:+UseParallelGC"}
SOCKETS: Final = "spark.python.unix.domain.socket"

VARIABLES: Final = (
    "PYSPARK_SUBMIT_ARGS",
    "PYSPARK_UDS_MODE",
    "SPARK_SUBMIT_OPTS",
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "_JAVA_OPTIONS",
)
"""By which a user configures Spark or Java."""
FILES: Final = ("spark-defaults.conf", "spark-env.sh")

FOLDER_BYTES_MAX: Final = 60
"""Of the folder of the sockets: systems take 104 bytes of a path, and Spark's names have 43."""


def local_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """What to start Spark with; nothing where the user has configured it.

    PySpark 4.0 does not know the sockets, and ignores them.
    """
    if any(environment.get(name) for name in VARIABLES):
        return {}
    folder = environment.get("SPARK_CONF_DIR") or f"{_home(environment)}/conf"
    if any((Path(folder) / name).exists() for name in FILES):
        return {}
    sockets = _socket_folder()
    if sockets is None:
        return dict(COLLECTOR)
    return {**COLLECTOR, f"{SOCKETS}.enabled": "true", f"{SOCKETS}.dir": sockets}


def _home(environment: Mapping[str, str]) -> str:
    """The folder of the Spark that PySpark starts: that of pip's package unless one is named."""
    import pyspark

    return environment.get("SPARK_HOME") or str(Path(pyspark.__file__).parent)


@cache
def _socket_folder() -> str | None:
    """A folder for the sockets of this process's Spark; None: its path would be too long.

    Spark asks nobody who connects to such a socket for a secret, so the folder is this user's
    alone; and it leaves sockets behind, so the folder is removed when the process ends.
    """
    if len(os.fsencode(tempfile.gettempdir())) + len("/spark-12345678") > FOLDER_BYTES_MAX:
        return None
    folder = tempfile.mkdtemp(prefix="spark-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
