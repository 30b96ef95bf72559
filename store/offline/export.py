"""Writing messages in a form that other programs read: JSON lines, one JSON document, Parquet.

A file appears whole or not at all: it is written beside its place and renamed. Parquet needs
pyarrow, which is not installed with trocket.

Not done: a store as the format. Messages put into another store would get other queue offsets, and
with them all that consumers know of them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol

import msgspec

from ...remoting.message import MessageExt
from ..disk.os_disk import Disk, DiskFile
from ..errors import StoreError, StoreIOError
from ..offsets import Position
from .selection import Bodies, as_json, readable_body

BUFFER_BYTES = 1024 * 1024
PARQUET_ROWS = 5000
PARQUET_BYTES = 32 * 1024 * 1024


class ExportError(StoreError):
    """It cannot be written; `str()` says what to do."""


class Writer(Protocol):
    """Where messages go."""

    def write(self, record: MessageExt) -> None:
        """Append one message."""

    def finish(self) -> None:
        """All were written."""


class NewFile:
    """A file that gets its name when it is whole.

    Use as a context; `commit` before its end, or nothing is left behind.

    Args:
      disk: where it is.
      path: what it is to be called; an existing file is replaced then.

    Raises:
      StoreIOError: it cannot be made.
    """

    def __init__(self, disk: Disk, path: str) -> None:
        self.path = path
        self.partial = f"{path}.partial"
        self._disk = disk
        disk.unlink(self.partial)
        self._file: DiskFile | None = disk.open(self.partial, create=True)
        self._position = 0
        self._buffer = bytearray()

    def write(self, data: bytes) -> None:
        """Append bytes.

        Raises:
          StoreIOError: they cannot be written.
        """
        self._buffer += data
        if len(self._buffer) >= BUFFER_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._file is not None and self._buffer:
            self._file.pwrite(self._buffer, Position(self._position))
            self._position += len(self._buffer)
            self._buffer = bytearray()

    def commit(self) -> None:
        """Sync it and give it its name.

        Raises:
          StoreIOError: it cannot be written, synced or renamed.
        """
        self._flush()
        file = self._file
        if file is not None:
            file.sync()
            file.close()
            self._file = None
            self._disk.rename(self.partial, self.path)
            self._disk.sync_folder(self.path.rpartition("/")[0] or ".")

    def __enter__(self) -> NewFile:
        """Itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove what was not committed."""
        if self._file is not None:
            self._file.close()
            self._file = None
            self._disk.unlink(self.partial)


class JsonWriter:
    """Messages as JSON: one object a line, or one array.

    Args:
      write: takes bytes.
      bodies, inflate: see `selection.as_json`.
      as_array: one document.
    """

    def __init__(
        self, write: Callable[[bytes], None], *, bodies: Bodies, inflate: bool, as_array: bool
    ) -> None:
        self._write = write
        self._bodies = bodies
        self._inflate = inflate
        self._as_array = as_array
        self._encode = msgspec.json.Encoder().encode
        self._count = 0

    def write(self, record: MessageExt) -> None:
        """Append one message."""
        text = self._encode(as_json(record, self._bodies, inflate=self._inflate))
        if not self._as_array:
            self._write(text + b"\n")
        else:
            self._write((b",\n" if self._count else b"[\n") + text)
        self._count += 1

    def finish(self) -> None:
        """End the array."""
        if self._as_array:
            self._write(b"\n]\n" if self._count else b"[]\n")


class ParquetWriter:
    """Messages as rows of a Parquet file.

    Args:
      path: of a file that exists; it is written by pyarrow itself.
      inflate: see `selection.as_json`.

    Raises:
      ExportError: pyarrow is not installed.
    """

    def __init__(self, path: str, *, inflate: bool) -> None:
        try:
            # By name, so that nothing here depends on it.
            self._arrow: Any = importlib.import_module("pyarrow")
            parquet: Any = importlib.import_module("pyarrow.parquet")
        except ImportError as error:
            raise ExportError(
                "Parquet needs pyarrow, which is not installed: pip install 'trocket[parquet]', or "
                "export as jsonl"
            ) from error
        self._path = path
        self._inflate = inflate
        self._schema = _parquet_schema(self._arrow)
        try:
            self._writer = parquet.ParquetWriter(path, self._schema)
        except OSError as error:
            raise StoreIOError(path, str(error)) from error
        self._rows: list[dict[str, Any]] = []
        self._bytes = 0

    def write(self, record: MessageExt) -> None:
        """Append one message.

        Raises:
          StoreIOError: it cannot be written.
        """
        row = as_json(record, Bodies.NONE)
        body, row["isCompressed"] = readable_body(record, inflate=self._inflate)
        row["body"] = body
        row["properties"] = list(record.properties.items())
        self._rows.append(row)
        self._bytes += len(body)
        if len(self._rows) >= PARQUET_ROWS or self._bytes >= PARQUET_BYTES:
            self._flush()

    def _flush(self) -> None:
        try:
            self._writer.write_table(self._arrow.Table.from_pylist(self._rows, schema=self._schema))
        except OSError as error:
            raise StoreIOError(self._path, str(error)) from error
        self._rows, self._bytes = [], 0

    def finish(self) -> None:
        """Write the rest and the file's end.

        Raises:
          StoreIOError: it cannot be written.
        """
        self._flush()
        try:
            self._writer.close()
        except OSError as error:
            raise StoreIOError(self._path, str(error)) from error


def _parquet_schema(arrow: Any) -> Any:
    time, number, integer = arrow.timestamp("ms", tz="UTC"), arrow.int64(), arrow.int32()
    return arrow.schema(
        [
            ("topic", arrow.string()),
            ("queueId", integer),
            ("queueOffset", number),
            ("physicalOffset", number),
            ("size", integer),
            ("msgId", arrow.string()),
            ("storeTimestamp", time),
            ("bornTimestamp", time),
            ("storeHost", arrow.string()),
            ("bornHost", arrow.string()),
            ("flag", integer),
            ("sysFlag", integer),
            ("bodyCRC", number),
            ("reconsumeTimes", integer),
            ("preparedTransactionOffset", number),
            ("properties", arrow.map_(arrow.string(), arrow.string())),
            ("isCompressed", arrow.bool_()),
            ("body", arrow.binary()),
        ]
    )
