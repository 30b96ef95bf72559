"""Small files and folders of a job, next to Spark's: on a disk, HDFS or an object store.

Spark writes its tables itself; this is for other files. It uses the same Hadoop classes as Spark,
so a path means the same to both.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from trocket.spark.jobs.running import JobError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Files:
    """Files and folders in a folder of a job.

    Args:
      root: a path or URI as for Spark.

    Raises:
      JobError: the URI's file system is unknown. Every method raises it when the operation fails.
    """

    def __init__(self, spark: SparkSession, root: str) -> None:
        self.root = root.rstrip("/")
        self._jvm: Any = spark.sparkContext._jvm
        self._hadoop = self._jvm.org.apache.hadoop
        self._conf = spark.sparkContext._jsc.hadoopConfiguration()
        with _job_errors(f"no file system for {root}"):
            found = self._path("").getFileSystem(self._conf)
            # Without checksum files on a local disk: with them, a manually edited file is
            # unreadable.
            checked = self._jvm.java.lang.Class.forName("org.apache.hadoop.fs.ChecksumFileSystem")
            self._fs = found.getRawFileSystem() if checked.isInstance(found) else found

    def where(self, name: str) -> str:
        return f"{self.root}/{name}" if name else self.root

    def has(self, name: str) -> bool:
        """Whether there is such a file or folder."""
        with _job_errors(f"{self.where(name)} cannot be checked"):
            return bool(self._fs.exists(self._path(name)))

    def names(self, folder: str = "") -> list[str]:
        """The names in a folder, sorted; empty if it does not exist."""
        if not self.has(folder):
            return []
        with _job_errors(f"{self.where(folder)} cannot be listed"):
            return sorted(
                each.getPath().getName() for each in self._fs.listStatus(self._path(folder))
            )

    def read(self, name: str) -> str | None:
        """A file's text; None: it does not exist."""
        if not self.has(name):
            return None
        with _job_errors(f"{self.where(name)} cannot be read"):
            stream = self._fs.open(self._path(name))
            try:
                return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
            finally:
                stream.close()

    def write(self, name: str, text: str) -> None:
        """Replace a file atomically: readers see the old text or the new one."""
        new = f"{name}.new"
        with _job_errors(f"{self.where(name)} cannot be written"):
            stream = self._fs.create(self._path(new), True)
            try:
                stream.write(bytearray(text.encode()))
            finally:
                stream.close()
            # On a local disk this replaces the file; elsewhere it returns false if the file exists.
            if not self._fs.rename(self._path(new), self._path(name)):
                self._replace(new, name)

    def move(self, source: str, target: str) -> None:
        """Move a folder to a path that does not exist yet."""
        with _job_errors(f"{self.where(source)} cannot be moved to {self.where(target)}"):
            self._fs.mkdirs(self._path(target).getParent())
            if not self._fs.rename(self._path(source), self._path(target)):
                raise OSError("the file system gave no reason")

    def delete(self, name: str) -> None:
        """Delete a file, or a folder with its content; do nothing if it does not exist."""
        with _job_errors(f"{self.where(name)} cannot be deleted"):
            self._fs.delete(self._path(name), True)

    def _path(self, name: str) -> Any:
        return self._hadoop.fs.Path(self.where(name) or "/")

    def _replace(self, source: str, target: str) -> None:
        options = getattr(self._hadoop.fs, "Options$Rename")
        overwrite = self._jvm.java.lang.reflect.Array.newInstance(
            options.OVERWRITE.getDeclaringClass(), 1
        )
        overwrite[0] = options.OVERWRITE
        path = self._path(target)
        context = self._hadoop.fs.FileContext.getFileContext(self._fs.getUri(), self._conf)
        context.rename(self._path(source), path, overwrite)


@contextlib.contextmanager
def _job_errors(what: str) -> Iterator[None]:
    """Turn Java's exceptions in the block into JobErrors."""
    from py4j.protocol import Py4JJavaError

    try:
        yield
    except Py4JJavaError as error:
        raise JobError(f"{what}: {error.java_exception.getMessage() or error}") from error
    except OSError as error:
        raise JobError(f"{what}: {error}") from error
