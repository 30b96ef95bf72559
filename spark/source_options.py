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
from .queue_offsets import OffsetSpec, TimeSpec, read_offset_spec, read_time_spec

FORMAT: Final = "rocketmq"
DEFAULT_GROUP: Final = "spark-rocketmq-source"
"""Group of all queries that name none. No offset is ever committed for it. (A group per query, as
the Kafka source has it, would leave a group behind at every broker with each query.)"""


class ReadFrom(enum.Enum):
    """The broker of a broker name that messages are pulled from."""

    MASTER = "master"
    SLAVE = "slave"
    """One of the slaves; the master if there is none, or if it does not have the messages yet."""
    SUGGESTED = "suggested"
    """The broker that the last answer suggests, as consumers choose."""


@dataclass(frozen=True)
class ConnectionOptions:
    """Options of the connection to a cluster, for source and sink; see docs/spark.md."""

    name_server: str = field(metadata={"meaning": "host:port;host:port of the name servers"})
    namespace: str = ""
    access_key: Secret | None = None
    secret_key: Secret | None = None
    security_token: Secret | None = None
    secrets_file: str | None = None
    tls: bool = False
    tls_ca_file: str | None = None
    tls_cert_file: str | None = None
    tls_key_file: str | None = None
    tls_key_password: Secret | None = None
    tls_verify: bool = True
    pull_timeout_ms: int = field(default=3000, metadata={"minimum": 1})
    num_retries: int = field(default=3, metadata={"minimum": 0})
    retry_interval_ms: int = field(default=100, metadata={"minimum": 0})

    def __post_init__(self) -> None:
        """Raises: OptionError: options contradict each other."""
        if (self.access_key is None) != (self.secret_key is None):
            raise OptionError("accessKey and secretKey go together: give both, or neither")
        if self.access_key is not None and self.secrets_file is not None:
            raise OptionError("give accessKey or secretsFile, not both")
        if self.tls_key_file is not None and self.tls_cert_file is None:
            raise OptionError("tlsKeyFile needs tlsCertFile: give both")
        if self.tls_ca_file is not None and not self.tls_verify:
            raise OptionError("tlsCaFile has no effect with tlsVerify=false: leave one of them out")
        if not self.name_server:
            raise OptionError("nameServer is empty: give host:port;host:port")

    @cached_property
    def connection(self) -> ConnectionOptions:
        """These options without those of subclasses: the key of a shared connection."""
        mine = {name: getattr(self, name) for name in ConnectionOptions.__dataclass_fields__}
        return ConnectionOptions(**mine)


@dataclass(frozen=True)
class SourceOptions(ConnectionOptions):
    """The options of a source; see docs/spark.md."""

    topic: str = ""
    topics: str = ""
    topic_pattern: str = ""
    assign: str = ""
    starting_offsets: str = ""
    ending_offsets: str = ""
    starting_timestamp: TimeMs | None = None
    ending_timestamp: TimeMs | None = None
    starting_offsets_by_timestamp: str = ""
    ending_offsets_by_timestamp: str = ""
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
        """Raises: OptionError: options contradict each other, or a string cannot be parsed."""
        super().__post_init__()
        ways = {
            "topic": self.topic,
            "topics": self.topics,
            "topicPattern": self.topic_pattern,
            "assign": self.assign,
        }
        given = [name for name, text in ways.items() if text]
        if len(given) != 1:
            found = f", not {' and '.join(given)}" if given else ""
            raise OptionError(f"{FORMAT} needs one of {', '.join(ways)}{found}")
        if self.starting_offsets_by_timestamp_strategy not in ("error", "latest"):
            raise OptionError(
                f"{FORMAT}: startingOffsetsByTimestampStrategy must be error or latest, not"
                f" {self.starting_offsets_by_timestamp_strategy!r}"
            )
        if self.filter_sql and self.tags not in ("", "*"):
            raise OptionError(f"{FORMAT}: give tags or filterSql, not both")
        try:
            re.compile(self.topic_pattern)
        except re.error as error:
            raise OptionError(
                f"{FORMAT}: topicPattern is not a regular expression: {error}"
            ) from None
        if self.assign:
            # Parsed here only to fail on the driver, before a job has begun.
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
        if self.starting_offsets_by_timestamp:
            read_time_spec(self.starting_offsets_by_timestamp, "startingOffsetsByTimestamp")
        if self.ending_offsets_by_timestamp:
            read_time_spec(self.ending_offsets_by_timestamp, "endingOffsetsByTimestamp")

    @property
    def topic_names(self) -> tuple[str, ...]:
        """The named topics; empty with a pattern."""
        if self.assign:
            return tuple(read_assignment(self.assign))
        return names(self.topic) or names(self.topics)

    @property
    def is_limited(self) -> bool:
        """Whether the size of a stream's batches is limited."""
        return self.max_offsets_per_trigger is not None or self.max_bytes_per_trigger is not None

    @property
    def is_committing(self) -> bool:
        """Whether the group's offsets are committed to the brokers."""
        if self.commit_offsets is not None:
            return self.commit_offsets
        return self.consumer_group != DEFAULT_GROUP

    def start(self, default: str) -> OffsetSpec:
        """The starting offsets, or `default` if the option is not set."""
        return read_offset_spec(self.starting_offsets or default, "startingOffsets")

    @property
    def start_times(self) -> TimeSpec | None:
        """The starting times; None: queues start at offsets."""
        return _times(
            self.starting_timestamp,
            self.starting_offsets_by_timestamp,
            "startingOffsetsByTimestamp",
        )

    @property
    def end_times(self) -> TimeSpec | None:
        """The ending times of a batch, included; None: queues end at offsets."""
        return _times(
            self.ending_timestamp, self.ending_offsets_by_timestamp, "endingOffsetsByTimestamp"
        )

    @property
    def end(self) -> OffsetSpec:
        """The ending offsets of a batch."""
        return read_offset_spec(self.ending_offsets or "latest", "endingOffsets")


def _times(everywhere: int | None, text: str, name: str) -> TimeSpec | None:
    if everywhere is not None:
        return TimeSpec(everywhere)
    return read_time_spec(text, name) if text else None


OF_KAFKA: Final = {
    "kafka.bootstrap.servers": "nameServer",
    "kafka.group.id": "consumerGroup",
    "subscribe": "topic",
    "subscribepattern": "topicPattern",
    "groupidprefix": "consumerGroup",
    "maxtriggerdelayms": "maxTriggerDelay",
    "kafkaconsumer.polltimeoutms": "pullTimeoutMs",
    "fetchoffset.numretries": "numRetries",
    "fetchoffset.retryintervalms": "retryIntervalMs",
}
"""Names of Spark's Kafka source, in lower case, and the options here that mean the same.

Source: Spark 4.x, Structured Streaming + Kafka Integration Guide.
"""


def source_options(given: Mapping[str, str]) -> SourceOptions:
    """Parse the user's options.

    Raises:
      OptionError: an option is invalid.
    """
    return read_options(SourceOptions, given, FORMAT, OF_KAFKA)


def read_assignment(text: str) -> dict[str, dict[str, list[int]]]:
    """Parse queues such as `{"T":{"broker-a":[0,1]}}`.

    Raises:
      OptionError: the text has another form.
    """
    kind: Any = dict[str, dict[str, list[int]]]
    try:
        found: dict[str, dict[str, list[int]]] = msgspec.json.decode(text, type=kind)
    except msgspec.DecodeError as error:
        raise OptionError(
            f'{FORMAT}: assign must be JSON such as {{"T":{{"broker-a":[0,1]}}}}: {error}'
        ) from None
    return found
