"""Export of messages for other programs: JSON lines, one JSON document, Parquet.

A regular file appears whole or not at all (common/whole_file.py). Parquet needs pyarrow, which is
not installed with trocket.

Not done: a store as the format. Messages in another store would have other queue offsets, which
consumers' offsets would not match.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import msgspec

from ...common.whole_file import replacing
from ...disk.errors import StoreError, StoreIOError
from ...disk.os_disk import explain
from ...remoting.message import MessageExt
from .selection import Bodies, as_json, readable_body

PARQUET_ROWS = 5000
PARQUET_BYTES = 32 * 1024 * 1024


class ExportError(StoreError):
    """The export cannot be written; `str()` says what to do."""


class Writer(Protocol):
    """A writer of exported messages."""

    def write(self, record: MessageExt) -> None: ...

    def finish(self) -> None:
        """Write the end of the file."""


@contextmanager
def output_file(path: str) -> Iterator[BinaryIO]:
    """A file that replaces the one at its path when the context ends without an error.

    What is not a regular file, such as a pipe or /dev/stdout, is written into.

    Raises:
      StoreIOError: it cannot be written; an old file is unchanged.
    """
    try:
        with replacing(Path(path)) as file:
            yield file
    except OSError as error:
        raise StoreIOError(path, explain(error)) from error


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
      file: takes the bytes; the caller closes it.
      inflate: see `selection.as_json`.

    Raises:
      ExportError: pyarrow is not installed.
    """

    def __init__(self, file: BinaryIO, *, inflate: bool) -> None:
        try:
            # By name, so that nothing here depends on it.
            self._arrow: Any = importlib.import_module("pyarrow")
            parquet: Any = importlib.import_module("pyarrow.parquet")
        except ImportError as error:
            raise ExportError(
                "Parquet needs pyarrow, which is not installed: pip install 'trocket[parquet]', or "
                "export as jsonl"
            ) from error
        self._inflate = inflate
        self._schema = _parquet_schema(self._arrow)
        self._writer = parquet.ParquetWriter(file, self._schema)
        self._rows: list[dict[str, Any]] = []
        self._bytes = 0

    def write(self, record: MessageExt) -> None:
        """Append one message. Raises: OSError: it cannot be written."""
        row = as_json(record, Bodies.NONE)
        body, row["isCompressed"] = readable_body(record, inflate=self._inflate)
        row["body"] = body
        row["properties"] = list(record.properties.items())
        self._rows.append(row)
        self._bytes += len(body)
        if len(self._rows) >= PARQUET_ROWS or self._bytes >= PARQUET_BYTES:
            self._flush()

    def _flush(self) -> None:
        self._writer.write_table(self._arrow.Table.from_pylist(self._rows, schema=self._schema))
        self._rows, self._bytes = [], 0

    def finish(self) -> None:
        """Write the rest and the file's end. Raises: OSError: they cannot be written."""
        self._flush()
        self._writer.close()


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
