"""The options of `format("rocketmq")` as a sink, and the columns that it accepts. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from .columns import PROPERTIES_MAP
from .errors import OptionError, nearest
from .options import SizeBytes, read_options
from .source_options import FORMAT, OF_KAFKA, ConnectionOptions

ROW_ID: Final = "SPARK_ROW_ID"
"""The property with a row's id, which is the same when Spark writes the row again."""

BAD_ROW: Final = "SPARK_BAD_ROW"
"""The property of a message in onBadRow's topic with the reason why the row was refused."""
BAD_ROW_TOPIC: Final = "SPARK_TOPIC"
"""The property of such a message with the row's topic."""

FAIL: Final = "fail"
"""The value of onBadRow that lets the task fail."""

COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "body": ("binary", "string"),
    "topic": ("string",),
    "tags": ("string",),
    "keys": ("string", "array<string>"),
    "properties": (PROPERTIES_MAP,),
    "shardingKey": ("string",),
    "brokerName": ("string",),
    "queueId": ("int",),
    "delayLevel": ("int",),
    "deliverAt": ("timestamp",),
    "flag": ("int",),
}
"""The columns of a row, and their allowed types."""


@dataclass(frozen=True)
class SinkOptions(ConnectionOptions):
    """The options of a sink; see docs/spark.md."""

    topic: str = ""
    producer_group: str = "spark-rocketmq-sink"
    batch_size: int = field(default=256, metadata={"minimum": 1})
    batch_bytes: SizeBytes = field(default=SizeBytes(1 << 20), metadata={"minimum": 1})
    max_in_flight: int = field(default=4, metadata={"minimum": 1})
    send_timeout_ms: int = field(default=3000, metadata={"minimum": 1})
    retries: int = field(default=2, metadata={"minimum": 0})
    require_flushed: bool = True
    ordered: bool = False
    row_id: str = "auto"
    on_bad_row: str = FAIL
    max_message_size: SizeBytes = field(default=SizeBytes(4 << 20), metadata={"minimum": 1})


@dataclass(frozen=True)
class RowLayout:
    """The columns of the rows, and the one that holds their ids (None: no column does)."""

    names: tuple[str, ...]
    id_column: str | None


_OF_SPARK: Final = {"checkpointlocation", "queryname"}
"""Options of Spark's stream writer, which come with the sink's options."""


def sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Parse the user's options.

    Raises:
      OptionError: an option is invalid.
    """
    mine = {key: value for key, value in given.items() if key.lower() not in _OF_SPARK}
    return read_options(SinkOptions, mine, f"{FORMAT} as a sink", OF_KAFKA)


def row_layout(columns: Iterable[tuple[str, str]], options: SinkOptions) -> RowLayout:
    """Check the columns of the rows to write.

    Args:
      columns: (name, type as DDL) of each.

    Raises:
      OptionError: one is missing, unknown, or of another type.
    """
    found = dict(columns)
    id_column = None if options.row_id in ("auto", "off") else options.row_id
    if id_column is not None and found.get(id_column) != "string":
        raise OptionError(
            f"rowId={id_column} must be auto, off, or a column of type string"
            f"{nearest(id_column, found)}"
        )
    for name, kind in found.items():
        if name == id_column and name not in COLUMNS:
            continue
        if name not in COLUMNS:
            raise OptionError(
                f"{FORMAT} cannot write a column {name!r}{nearest(name, COLUMNS)}; select only the"
                f" columns of a message: {', '.join(COLUMNS)}"
            )
        if kind not in COLUMNS[name]:
            raise OptionError(
                f"the column {name} is {kind}, and must be {' or '.join(COLUMNS[name])}: cast it"
            )
    if "body" not in found:
        raise OptionError(f"{FORMAT} needs a column body, of type binary or string")
    if not options.topic and "topic" not in found:
        raise OptionError(f"{FORMAT} needs the option topic, or a column topic")
    if ("queueId" in found) != ("brokerName" in found):
        raise OptionError("queueId and brokerName go together: give both columns, or neither")
    if options.ordered and not {"shardingKey", "queueId"} & set(found):
        raise OptionError("ordered=true needs a column shardingKey, or brokerName and queueId")
    return RowLayout(tuple(found), id_column)
