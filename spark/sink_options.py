"""The options of `format("rocketmq")` as a sink, and the columns that it takes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from .columns import PROPERTIES_MAP
from .errors import OptionError, nearest
from .options import SizeBytes, read_options
from .source_options import FORMAT, ConnectionOptions

ROW_ID: Final = "SPARK_ROW_ID"
"""The property that a row's id goes into: the same when Spark writes the row again."""

BAD_ROW: Final = "SPARK_BAD_ROW"
"""The property of a row in the topic of onBadRow that says what was wrong."""
BAD_ROW_TOPIC: Final = "SPARK_TOPIC"
"""The property that says which topic it was for."""

FAIL: Final = "fail"
"""onBadRow: the task fails."""

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
"""What a row may have, and its types."""


@dataclass(frozen=True)
class SinkOptions(ConnectionOptions):
    """How rows are sent; a field is an option of that name."""

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
    """Which columns rows have, and the one whose text is their id; None: none."""

    names: tuple[str, ...]
    id_column: str | None


_OF_SPARK: Final = {"checkpointlocation", "queryname"}
"""What a stream's writer sets beside the sink's own options."""


def sink_options(given: Mapping[str, str]) -> SinkOptions:
    """The options as the user wrote them.

    Raises:
      OptionError: they cannot be right.
    """
    mine = {key: value for key, value in given.items() if key.lower() not in _OF_SPARK}
    return read_options(SinkOptions, mine, f"{FORMAT} as a sink")


def row_layout(columns: Iterable[tuple[str, str]], options: SinkOptions) -> RowLayout:
    """Check the columns of what is to be written.

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
                f"{FORMAT} cannot write a column {name!r}{nearest(name, COLUMNS)}; select what a"
                f" message has: {', '.join(COLUMNS)}"
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
        raise OptionError("queueId and brokerName go together: a queue is one of a broker")
    if options.ordered and not {"shardingKey", "queueId"} & set(found):
        raise OptionError("ordered=true needs a column shardingKey, or brokerName and queueId")
    return RowLayout(tuple(found), id_column)
