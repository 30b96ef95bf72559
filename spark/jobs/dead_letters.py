"""Dead letters as a table, with the consumer group, the original message and topic, and the reason.

A broker stores the original topic in the property RETRY_TOPIC and the original message's id in
ORIGIN_MESSAGE_ID; proxies of 5.x use DLQ_ORIGIN_TOPIC and DLQ_ORIGIN_MESSAGE_ID. None of them
stores a reason: consumers that do choose a property for it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from pyspark.sql import functions as F

from trocket.blocking import Admin
from trocket.client.core.namespaces import NAMESPACE_SEPARATOR
from trocket.client.core.routes import subscribe_queues
from trocket.common.topic_names import DLQ_TOPIC_PREFIX
from trocket.spark.jobs.connection import client, cluster_name, reading
from trocket.spark.jobs.flags import JobFlags
from trocket.spark.jobs.running import JobError
from trocket.spark.source_options import source_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

REASONS: Final = ("reason", "REASON", "exception", "EXCEPTION", "error", "ERROR")
"""Default properties for the reason, in order."""


@dataclass(frozen=True, kw_only=True)
class DeadLetterFlags(JobFlags):
    """The flags that select dead letters."""

    group: Annotated[
        str,
        typer.Option(
            help="Select these groups, separated by commas. Default: all.",
            rich_help_panel="Which dead letters",
        ),
    ] = ""
    pattern: Annotated[
        str,
        typer.Option(
            help="Select groups that match this regular expression.",
            rich_help_panel="Which dead letters",
        ),
    ] = ""
    origin_topic: Annotated[
        str,
        typer.Option(
            help="Select these original topics, separated by commas.",
            rich_help_panel="Which dead letters",
        ),
    ] = ""
    keys: Annotated[
        str,
        typer.Option(
            help="Select messages with one of these keys, separated by commas.",
            rich_help_panel="Which dead letters",
        ),
    ] = ""
    tags: Annotated[
        str,
        typer.Option(
            help="Select these tags, separated by commas.", rich_help_panel="Which dead letters"
        ),
    ] = ""
    since: Annotated[
        str,
        typer.Option(
            help="Select letters dead since this time: ms since 1970, or ISO 8601 (UTC).",
            rich_help_panel="Which dead letters",
        ),
    ] = ""
    until: Annotated[
        str,
        typer.Option(
            help="Select letters dead until this time.", rich_help_panel="Which dead letters"
        ),
    ] = ""
    where: Annotated[
        str,
        typer.Option(
            metavar="SQL",
            help="Filter by consumerGroup, originTopic, originId, reason or a message's columns.",
            rich_help_panel="Which dead letters",
        ),
    ] = ""
    reason_property: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help=f"Take the reason from this property. Default: {', '.join(REASONS)}.",
            rich_help_panel="Which dead letters",
        ),
    ] = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.need("--name-server")
        if self.group and self.pattern:
            raise typer.BadParameter("give one of --group and --pattern")
        try:
            re.compile(self.pattern)
        except re.error as error:
            raise typer.BadParameter(f"--pattern is not a regular expression: {error}") from error


def dlq_topics(given: DeadLetterFlags) -> tuple[list[str], list[str]]:
    """The selected dead letter topics: the readable ones, and those without read permission.

    Apache's brokers of 4.x create these topics for writing only.

    Raises:
      JobError: a named group has none. ClientError: no name server answers.
    """
    asked = client(given)
    with Admin(asked) as admin:
        there = [name for name in admin.topics(is_all=True) if name.startswith(DLQ_TOPIC_PREFIX)]
    groups = _names(given.group)
    for group in groups:
        if DLQ_TOPIC_PREFIX + group not in there:
            raise JobError(
                f"the group {group} has no dead letters: {cluster_name(given)} knows no topic"
                f" {DLQ_TOPIC_PREFIX}{group}"
            )
    pattern = given.pattern or ".*"
    meant = [DLQ_TOPIC_PREFIX + group for group in groups] or [
        name for name in there if re.fullmatch(pattern, name.removeprefix(DLQ_TOPIC_PREFIX))
    ]
    full = {name: asked.with_namespace(name) for name in meant}
    closed = [name for name in meant if not subscribe_queues(name, asked.route(full[name]))]
    return [name for name in meant if name not in closed], closed


def dead_letters(
    spark: SparkSession, given: DeadLetterFlags, topics: Sequence[str]
) -> DataFrame | None:
    """The selected dead letters; None if there is no topic to read.

    Returns: a message's columns, and `consumerGroup`, `originTopic`, `originId` (the same in all
      copies of a message) and `reason`; null if the message has no such property.
    Raises:
      OptionError: a time cannot be parsed.
    """
    if not topics:
        return None
    times = {"startingTimestamp": given.since, "endingTimestamp": given.until}
    options = reading(
        given,
        topic=",".join(topics),
        startingOffsetsByTimestampStrategy="latest",
        **{name: text for name, text in times.items() if text},
    )
    parsed = source_options(options)
    found = explained(spark.read.format("rocketmq").options(**options).load(), given)
    # Offsets of a time are inexact if a broker's clock was set back, so filter the rows, too.
    stored_ms = F.unix_millis("storeTimestamp")
    if parsed.starting_timestamp is not None:
        found = found.where(stored_ms >= parsed.starting_timestamp)
    if parsed.ending_timestamp is not None:
        found = found.where(stored_ms <= parsed.ending_timestamp)
    if given.origin_topic:
        found = found.where(F.col("originTopic").isin(_names(given.origin_topic)))
    if given.tags:
        found = found.where(F.col("tags").isin(_names(given.tags)))
    if given.keys:
        wanted = F.array(*map(F.lit, _names(given.keys)))
        found = found.where(F.arrays_overlap(F.split("keys", " "), wanted))
    return found.where(given.where) if given.where else found


def explained(messages: DataFrame, given: DeadLetterFlags) -> DataFrame:
    """Messages of dead letter topics, with columns from the properties of their history."""
    reasons = [given.reason_property] if given.reason_property else list(REASONS)
    place = F.concat_ws("/", "brokerName", "topic", "queueId", "queueOffset")
    origin = F.coalesce(
        _property("DLQ_ORIGIN_MESSAGE_ID"), _property("ORIGIN_MESSAGE_ID"), F.col("uniqKey")
    )
    origin_topic = F.coalesce(_property("DLQ_ORIGIN_TOPIC"), _property("RETRY_TOPIC"))
    if given.namespace:  # show the topic's name without its namespace, as for other topics
        head = given.namespace + NAMESPACE_SEPARATOR
        rest = F.substr(origin_topic, F.lit(len(head) + 1))
        origin_topic = F.when(F.startswith(origin_topic, F.lit(head)), rest).otherwise(origin_topic)
    return messages.withColumns(
        {
            "consumerGroup": F.substr("topic", F.lit(len(DLQ_TOPIC_PREFIX) + 1)),
            "originTopic": origin_topic,
            # A broker's id is an address and an offset in the log, and repeats in a new log; so
            # the topic and the producer's id are part of the key.
            "originId": F.when(
                origin.isNotNull(), F.concat_ws(" ", origin_topic, origin, "uniqKey")
            ).otherwise(place),
            "reason": F.coalesce(*map(_property, reasons)),
        }
    )


def _property(name: str) -> Any:
    return F.col("properties")[name]


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]
