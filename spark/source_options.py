"""The options of `format("rocketmq")` as a source. Pure."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import msgspec

from .columns import PropertiesAs
from .errors import OptionError
from .options import DurationMs, Secret, SizeBytes, TimeMs, names, read_options
from .queue_offsets import OffsetSpec, read_offset_spec

FORMAT: Final = "rocketmq"
DEFAULT_GROUP: Final = "spark-rocketmq-source"
"""Of all queries that name none. Nothing is ever committed for it. (A name for each query, as the
Kafka source has it, would leave a group behind at every broker with each.)"""


class ReadFrom(enum.Enum):
    """Which broker of a name messages are pulled from."""

    MASTER = "master"
    SLAVE = "slave"
    """One of the slaves; the master where there is none, or where it does not have them yet."""
    SUGGESTED = "suggested"
    """The one that a broker suggests in its answers, as consumers do it."""


@dataclass(frozen=True)
class ConnectionOptions:
    """How a cluster is reached: what source and sink share; see docs/spark.md."""

    name_server: str = field(metadata={"meaning": "host:port;host:port of the name servers"})
    namespace: str = ""
    access_key: Secret | None = None
    secret_key: Secret | None = None
    security_token: Secret | None = None
    secrets_file: str | None = None
    tls: bool = False
    tls_ca_file: str | None = None
    pull_timeout_ms: int = field(default=3000, metadata={"minimum": 1})
    num_retries: int = field(default=3, metadata={"minimum": 0})
    retry_interval_ms: int = field(default=100, metadata={"minimum": 0})

    def __post_init__(self) -> None:
        """Raises: OptionError: options that do not go together."""
        if (self.access_key is None) != (self.secret_key is None):
            raise OptionError("accessKey and secretKey go together: give both, or neither")
        if self.access_key is not None and self.secrets_file is not None:
            raise OptionError("accessKey and secretsFile are two ways to say the same: give one")
        if not self.name_server:
            raise OptionError("nameServer is empty: it is host:port;host:port")

    @cached_property
    def connection(self) -> ConnectionOptions:
        """These options alone: what tells one connection from another."""
        mine = {name: getattr(self, name) for name in ConnectionOptions.__dataclass_fields__}
        return ConnectionOptions(**mine)


@dataclass(frozen=True)
class SourceOptions(ConnectionOptions):
    """What a source reads; a field is an option of that name."""

    topic: str = ""
    topics: str = ""
    topic_pattern: str = ""
    assign: str = ""
    starting_offsets: str = ""
    ending_offsets: str = ""
    starting_timestamp: TimeMs | None = None
    ending_timestamp: TimeMs | None = None
    starting_offsets_by_timestamp_strategy: str = "error"
    consumer_group: str = DEFAULT_GROUP
    commit_offsets: bool | None = None
    tags: str = "*"
    filter_sql: str = ""
    max_offsets_per_trigger: int | None = field(default=None, metadata={"minimum": 1})
    max_bytes_per_trigger: SizeBytes | None = field(default=None, metadata={"minimum": 1})
    min_offsets_per_trigger: int | None = field(default=None, metadata={"minimum": 1})
    max_trigger_delay: DurationMs = DurationMs(900_000)  # noqa: RUF009
    min_partitions: int | None = field(default=None, metadata={"minimum": 1})
    max_records_per_partition: int | None = field(default=None, metadata={"minimum": 1})
    fail_on_data_loss: bool = True
    pull_batch_size: int = field(default=1024, metadata={"minimum": 1})
    pull_bytes: SizeBytes | None = field(default=None, metadata={"minimum": 1})
    read_from: ReadFrom = ReadFrom.MASTER
    offset_poll_interval_ms: int = field(default=200, metadata={"minimum": 0})
    queue_discovery_interval: DurationMs = DurationMs(30_000)  # noqa: RUF009
    decompress: bool = True
    properties_as: PropertiesAs = PropertiesAs.MAP
    pushdown: bool = False
    arrow_batch_rows: int = field(default=8192, metadata={"minimum": 1})

    def __post_init__(self) -> None:
        """Raises: OptionError: options that do not go together, or text that is none."""
        super().__post_init__()
        ways = {
            "topic": self.topic,
            "topics": self.topics,
            "topicPattern": self.topic_pattern,
            "assign": self.assign,
        }
        given = [name for name, text in ways.items() if text]
        if len(given) != 1:
            said = f", not {' and '.join(given)}" if given else ""
            raise OptionError(f"{FORMAT} needs one of {', '.join(ways)}{said}")
        if self.starting_offsets_by_timestamp_strategy not in ("error", "latest"):
            raise OptionError(
                f"{FORMAT}: startingOffsetsByTimestampStrategy must be error or latest, not"
                f" {self.starting_offsets_by_timestamp_strategy!r}"
            )
        if self.filter_sql and self.tags not in ("", "*"):
            raise OptionError(f"{FORMAT}: tags and filterSql are two ways to filter: give one")
        try:
            re.compile(self.topic_pattern)
        except re.error as error:
            raise OptionError(f"{FORMAT}: topicPattern is no regular expression: {error}") from None
        if self.assign:
            read_assignment(self.assign)
        has_group = self.consumer_group not in ("", DEFAULT_GROUP)
        if not has_group and (self.commit_offsets or self.starting_offsets.lower() == "group"):
            raise OptionError(
                f"{FORMAT}: commitOffsets=true and startingOffsets=group need a consumerGroup"
            )
        if self.starting_offsets:
            read_offset_spec(self.starting_offsets, "startingOffsets")
        if self.ending_offsets:
            read_offset_spec(self.ending_offsets, "endingOffsets")

    @property
    def topic_names(self) -> tuple[str, ...]:
        """The topics that are named; none with a pattern."""
        if self.assign:
            return tuple(read_assignment(self.assign))
        return names(self.topic) or names(self.topics)

    @property
    def is_limited(self) -> bool:
        """Whether a stream's batches are."""
        return self.max_offsets_per_trigger is not None or self.max_bytes_per_trigger is not None

    @property
    def is_committing(self) -> bool:
        """Whether the group's offsets are told to the brokers."""
        if self.commit_offsets is not None:
            return self.commit_offsets
        return self.consumer_group != DEFAULT_GROUP

    def start(self, default: str) -> OffsetSpec:
        """Where to begin; `default` where nothing is said."""
        return read_offset_spec(self.starting_offsets or default, "startingOffsets")

    @property
    def end(self) -> OffsetSpec:
        """Where a batch ends."""
        return read_offset_spec(self.ending_offsets or "latest", "endingOffsets")


def source_options(given: Mapping[str, str]) -> SourceOptions:
    """The options as the user wrote them.

    Raises:
      OptionError: they cannot be right.
    """
    return read_options(SourceOptions, given, FORMAT)


def read_assignment(text: str) -> dict[str, dict[str, list[int]]]:
    """Queues as `{"T":{"broker-a":[0,1]}}`.

    Raises:
      OptionError: it is none.
    """
    kind: Any = dict[str, dict[str, list[int]]]
    try:
        found: dict[str, dict[str, list[int]]] = msgspec.json.decode(text, type=kind)
    except msgspec.DecodeError as error:
        raise OptionError(
            f'{FORMAT}: assign must be JSON such as {{"T":{{"broker-a":[0,1]}}}}: {error}'
        ) from None
    return found
