"""Small files and folders of a job, wherever Spark's own are: on a disk, HDFS or an object store.

Spark's tables are written by Spark; this is for what lies beside them. All of it goes through the
Hadoop classes that Spark reads and writes with, so a path means the same to both.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from trocket.spark.jobs.running import JobError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Files:
    """Files and folders under one that a job owns.

    Args:
      root: a path or URI as Spark takes it.

    Raises:
      JobError: no file system is known for it. From every method: it could not be done.
    """

    def __init__(self, spark: SparkSession, root: str) -> None:
        self.root = root.rstrip("/")
        self._jvm: Any = spark.sparkContext._jvm
        self._hadoop = self._jvm.org.apache.hadoop
        self._conf = spark.sparkContext._jsc.hadoopConfiguration()
        with _told(f"no file system for {root}"):
            found = self._path("").getFileSystem(self._conf)
            # On a local disk without the checksum files beside each, which make a file that a
            # person edited unreadable.
            checked = self._jvm.java.lang.Class.forName("org.apache.hadoop.fs.ChecksumFileSystem")
            self._fs = found.getRawFileSystem() if checked.isInstance(found) else found

    def where(self, name: str) -> str:
        """The path of a name."""
        return f"{self.root}/{name}" if name else self.root

    def has(self, name: str) -> bool:
        """Whether there is such a file or folder."""
        with _told(f"{self.where(name)} cannot be looked at"):
            return bool(self._fs.exists(self._path(name)))

    def names(self, folder: str = "") -> list[str]:
        """What a folder holds, sorted; nothing if it is not there."""
        if not self.has(folder):
            return []
        with _told(f"{self.where(folder)} cannot be listed"):
            return sorted(
                each.getPath().getName() for each in self._fs.listStatus(self._path(folder))
            )

    def read(self, name: str) -> str | None:
        """A file's text; None: it is not there."""
        if not self.has(name):
            return None
        with _told(f"{self.where(name)} cannot be read"):
            stream = self._fs.open(self._path(name))
            try:
                return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
            finally:
                stream.close()

    def write(self, name: str, text: str) -> None:
        """Replace a file as a whole: whoever reads it has the old text or the new one."""
        new = f"{name}.new"
        with _told(f"{self.where(name)} cannot be written"):
            stream = self._fs.create(self._path(new), True)
            try:
                stream.write(bytearray(text.encode()))
            finally:
                stream.close()
            # On a local disk this replaces; elsewhere it says no if there is such a file.
            if not self._fs.rename(self._path(new), self._path(name)):
                self._replace(new, name)

    def move(self, source: str, target: str) -> None:
        """Give a folder another place, which must be free."""
        with _told(f"{self.where(source)} cannot be moved to {self.where(target)}"):
            self._fs.mkdirs(self._path(target).getParent())
            if not self._fs.rename(self._path(source), self._path(target)):
                raise OSError("it was refused without a reason")

    def delete(self, name: str) -> None:
        """Delete a file, or a folder with all in it; nothing if it is not there."""
        with _told(f"{self.where(name)} cannot be deleted"):
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
def _told(what: str) -> Iterator[None]:
    """What Java throws in the block is a JobError."""
    from py4j.protocol import Py4JJavaError

    try:
        yield
    except Py4JJavaError as error:
        raise JobError(f"{what}: {error.java_exception.getMessage() or error}") from error
    except OSError as error:
        raise JobError(f"{what}: {error}") from error
