"""Options for the JVMs of Spark's tests, and the archive of Spark's classes that they map.

Half of the CPU time until a session's first results is spent on loading and verifying classes (9 s
instead of 4.5 to 5 s). The first session dumps them to a file of the cache folder (class-data
sharing); later JVMs map it. A JVM ignores an archive that does not fit its version or its jars.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from trocket.interop.cache import CACHE_FOLDER

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A JVM that lives for seconds uses less CPU time without the optimizing compiler."""
QUIET = "-Xlog:cds*=off"
"""Without it the JVM lists on stdout the classes that it does not archive."""
DUMP_TIMEOUT_S = 120.0


def java_options() -> str:
    """The value of spark.driver.extraJavaOptions."""
    archive = _archive()
    if archive.is_file():
        return f"{QUICK} {QUIET} -XX:SharedArchiveFile={archive}"
    # A Java runtime without the tools of the JDK has no jcmd, and cannot dump.
    return f"{QUICK} {QUIET} -XX:+RecordDynamicDumpInfo" if shutil.which("jcmd") else QUICK


def dump_classes(pid: int) -> None:
    """Archive the classes of a running JVM, unless there is an archive or another test makes it.

    Args:
      pid: of a JVM with `java_options`. A failure leaves no archive.
    """
    archive = _archive()
    if archive.is_file() or not shutil.which("jcmd"):
        return
    archive.parent.mkdir(parents=True, exist_ok=True)
    fresh = archive.with_suffix(f".{pid}")
    with archive.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(
                ["jcmd", str(pid), "VM.cds", "dynamic_dump", str(fresh)],
                capture_output=True,
                timeout=DUMP_TIMEOUT_S,
                check=False,
            )
            fresh.rename(archive)
        fresh.unlink(missing_ok=True)


def _archive() -> Path:
    """The archive's file, named by the JVM, its collector and Spark's jars."""
    import pyspark

    home = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    facts = [os.path.realpath(shutil.which("java") or "java"), QUICK, str(home)]
    for jar in sorted((home / "jars").glob("*.jar")):
        stat = jar.stat()
        facts.append(f"{jar.name} {stat.st_size} {stat.st_mtime_ns}")
    digest = hashlib.sha256("\n".join(facts).encode()).hexdigest()[:12]
    return CACHE_FOLDER / "archives" / f"Spark-{digest}.jsa"
