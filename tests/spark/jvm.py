"""Options for the JVMs of Spark's tests, and the archive of Spark's classes that they map.

Half of the CPU time until a session's first results is spent on loading and verifying classes (9 s
instead of 4.5 to 5 s). The first session dumps them to a file of the cache folder (class-data
sharing); later JVMs map it. A JVM ignores an archive that does not fit its version or its jars.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from trocket.interop.class_archive import QUIET, RECORD, archive_file, dump_file

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A JVM that lives for seconds uses less CPU time without the optimizing compiler."""


def java_options() -> str:
    """The value of spark.driver.extraJavaOptions."""
    archive = _archive()
    if archive.is_file():
        return f"{QUICK} {QUIET} -XX:SharedArchiveFile={archive}"
    # A Java runtime without the tools of the JDK has no jcmd, and cannot dump.
    return f"{QUICK} {QUIET} {RECORD}" if shutil.which("jcmd") else QUICK


def dump_classes(pid: int) -> None:
    """Archive the classes of a running JVM, unless there is an archive.

    Args:
      pid: of a JVM with `java_options`. A failure leaves no archive.
    """
    if shutil.which("jcmd"):
        dump_file(_archive(), pid)


def _archive() -> Path:
    """The archive's file, named by the JVM, its options and Spark's jars."""
    import pyspark

    home = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    return archive_file("Spark", sorted((home / "jars").glob("*.jar")), QUICK, str(home))
