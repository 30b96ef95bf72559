"""Settings for a local Spark that trocket starts: driver and workers on this machine.

Two settings make a scan of a store's files take a fifth less time: workers send batches through
Unix sockets instead of TCP, and the driver, which runs the tasks here, uses Java's garbage
collector for throughput (docs/spark.md has the figures).

If the user has configured Spark or Java, none of them is set: a builder's settings would override
spark-defaults.conf, and a JVM with two collectors in its options does not start.
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
"""Variables with which users configure Spark or Java."""
FILES: Final = ("spark-defaults.conf", "spark-env.sh")

FOLDER_BYTES_MAX: Final = 60
"""Longest path of the sockets' folder: systems allow 104 bytes, and Spark's file names have 43."""


def local_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """The settings to start Spark with; empty if the user has configured Spark or Java.

    PySpark 4.0 does not support the sockets, and ignores the setting.
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
    """The folder of the Spark that PySpark starts: SPARK_HOME, else that of the pip package."""
    import pyspark

    return environment.get("SPARK_HOME") or str(Path(pyspark.__file__).parent)


@cache
def _socket_folder() -> str | None:
    """A folder for the sockets of this process's Spark; None: its path would be too long.

    Spark does not authenticate connections to these sockets, so only this user may access the
    folder; and Spark leaves sockets behind, so the folder is removed when the process ends.
    """
    if len(os.fsencode(tempfile.gettempdir())) + len("/spark-12345678") > FOLDER_BYTES_MAX:
        return None
    folder = tempfile.mkdtemp(prefix="spark-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
