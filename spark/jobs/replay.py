"""Replay of dead letters to their original topics, at a limited rate, with an audit log.

    spark-submit trocket/spark/jobs/replay.py --name-server 127.0.0.1:9876 --group billing \\
        --where "reason LIKE 'Timeout%'" --rate 50 --audit /data/replay-audit --dry-run

Each dead letter becomes a line of JSON in `--audit`: sent (with the new id and topic), failed or
skipped, and why. A message that the audit lists as sent is never sent again by later runs: it is
identified by its original topic and id, not by its place in a dead letter queue.

At least once: lines are written after each `--batch` messages, when brokers have confirmed them.
A kill in between repeats at most these; all copies have the same property REPLAY_ID, by which
consumers can drop them. Run only one job at a time per audit.

All groups of the topic receive a replayed message, not only the group that rejected it. It keeps
its body, tag, keys, sharding key, flag and user properties; id and time are new, so if it fails
again it becomes another dead letter, with REPLAY_TIMES one higher.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Final, Protocol

import typer
from pyspark.sql import functions as F

from trocket.blocking import Message, Producer
from trocket.client.errors import ClientError
from trocket.client.tasks.clock import wall_ms
from trocket.common.message_properties import SYSTEM_PROPERTIES
from trocket.common.terminal import grouped, show
from trocket.spark.jobs.connection import client
from trocket.spark.jobs.dead_letters import DeadLetterFlags, dead_letters, dlq_topics
from trocket.spark.jobs.files import Files
from trocket.spark.jobs.flags import read_flags
from trocket.spark.jobs.running import EXIT_FINDINGS, JobError, Summary, run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAME: Final = "replay"
GROUP: Final = "trocket-replay"
REPLAY_ID: Final = "REPLAY_ID"
REPLAY_TIMES: Final = "REPLAY_TIMES"
TO_SEND: Final = "to send"
"""The status of messages that a dry run would send."""
AUDIT: Final = (
    "run string, at bigint, status string, why string, id string, consumerGroup string,"
    " originTopic string, destination string, place string, keys string, messageId string,"
    " offsetMessageId string"
)
"""A line of the audit; `at` is ms since 1970."""

COLUMNS: Final = (
    "originId", "consumerGroup", "originTopic", "topic", "brokerName", "queueId", "queueOffset",
    "body", "keys", "tags", "flag", "properties",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Flags(DeadLetterFlags):
    """The job's command line."""

    to: Annotated[
        str, typer.Option(metavar="TOPIC", help="Send to TOPIC. Default: original topics.")
    ] = ""
    audit: Annotated[
        str, typer.Option(metavar="FOLDER", help="Write the outcome of each message to FOLDER.")
    ] = ""
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Send and write nothing.")] = False
    rate: Annotated[float, typer.Option(help="Send at most this often a second; 0: no limit.")] = (
        100.0
    )
    limit: Annotated[int, typer.Option(help="Send at most this number; 0: all.")] = 0
    batch: Annotated[int, typer.Option(help="Write an audit file after this number.")] = 100
    max_failures: Annotated[int, typer.Option(help="Stop after this number of failures.")] = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.dry_run:
            self.need("--audit")
        if self.batch < 1 or self.rate < 0:
            raise typer.BadParameter("--batch must be at least 1, and --rate not negative")


class Sender(Protocol):
    """Sends messages: a blocking producer, or a fake in tests."""

    def send_soon(self, message: Message) -> Any:
        """Send without waiting; the returned delivery has `result`."""


@dataclass
class Replay:
    """One run: decides on each dead letter, sends it, and writes its outcome to the audit.

    Args:
      name: the run's name.
      to: the topic to send to; "": the original topics.
      write: called with a batch's lines of the audit.
      send: the producer; None: a dry run.
      rate: messages per second; 0: no limit.
      failures_max: the run stops after this number of failures.
    """

    name: str
    to: str
    write: Any
    send: Sender | None
    rate: float = 0.0
    failures_max: int = 100
    counts: Counter[str] = field(default_factory=Counter)
    _seen: set[str] = field(default_factory=set)
    _begin_s: float = field(default_factory=time.monotonic)
    _count: int = 0

    def all(self, letters: Iterable[Mapping[str, Any]], batch: int) -> bool:
        """Replay dead letters; False: the run stopped after too many failures.

        Args:
          letters: COLUMNS, and `sentAt`: when it was replayed before, or None.
        """
        rest = iter(letters)
        while part := list(islice(rest, batch)):
            self.write(self._batch(part))
            if self.counts["failed"] >= self.failures_max:
                return False
        return True

    def _batch(self, letters: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        lines, under_way = [], []
        for letter in letters:
            line = self._line(letter)
            lines.append(line)
            if line["status"] == TO_SEND and self.send is not None:
                self._pace()
                under_way.append((line, self.send.send_soon(message(letter, line["destination"]))))
        for line, delivery in under_way:
            try:
                result = delivery.result()
            except ClientError as error:
                line |= {"status": "failed", "why": str(error)}
                self._seen.discard(line["id"])
                continue
            line |= {
                "status": "sent",
                "messageId": result.message_id,
                "offsetMessageId": result.offset_message_id,
                "why": "" if result.status == 0 else f"stored, but {result.status.name}",
            }
        at = wall_ms()
        for line in lines:
            line["at"] = at
            self.counts[line["status"]] += 1
        return lines

    def _line(self, letter: Mapping[str, Any]) -> dict[str, Any]:
        """The audit line of a dead letter, which decides between sending and skipping."""
        known = letter["originId"]
        destination = self.to or letter["originTopic"] or ""
        why = ""
        if letter["sentAt"] is not None:
            why = f"sent before, at {letter['sentAt']}"
        elif known in self._seen:
            why = "the same message is among the dead letters more than once"
        elif not destination:
            why = "its original topic is unknown; choose one with --to"
        else:
            self._seen.add(known)
        place = [str(letter[name]) for name in ("brokerName", "topic", "queueId", "queueOffset")]
        return {
            "run": self.name, "status": "skipped" if why else TO_SEND, "why": why, "id": known,
            "consumerGroup": letter["consumerGroup"], "originTopic": letter["originTopic"],
            "destination": destination, "place": "/".join(place), "keys": letter["keys"],
        }  # fmt: skip

    def _pace(self) -> None:
        """Wait until the rate allows the next message."""
        if self.rate > 0:
            wait_s = self._begin_s + self._count / self.rate - time.monotonic()
            if wait_s > 0:
                threading.Event().wait(wait_s)
        self._count += 1


def message(letter: Mapping[str, Any], destination: str) -> Message:
    """A dead letter as its producer sent it, with the properties of a replay."""
    properties = dict(letter["properties"] or {})
    own = {name: value for name, value in properties.items() if name not in SYSTEM_PROPERTIES}
    before = own.get(REPLAY_TIMES, "0")
    own[REPLAY_TIMES] = str(int(before) + 1 if before.isdecimal() else 1)
    own[REPLAY_ID] = letter["originId"]
    return Message(
        destination,
        bytes(letter["body"] or b""),
        tags=letter["tags"],
        keys=letter["keys"] or (),
        properties=own,
        sharding_key=properties.get("__SHARDINGKEY"),
        flag=letter["flag"] or 0,
    )


def selected(letters: DataFrame, audit: DataFrame | None, limit: int) -> DataFrame:
    """The dead letters with the times of earlier replays, the oldest first.

    Args:
      audit: the lines of earlier runs; None if there are none.
      limit: at most this number, and only letters that were not replayed before; 0: all.
    """
    rows = letters.select(*COLUMNS, "storeTimestamp")
    if audit is None:
        rows = rows.withColumn("sentAt", F.lit(None).cast("string"))
    else:
        sent = audit.where("status = 'sent'").groupBy("id").agg(F.max("at").alias("at"))
        at = F.timestamp_millis("at")
        when = F.date_format(at, "yyyy-MM-dd'T'HH:mm:ss'Z'").alias("sentAt")
        known = sent.select(F.col("id").alias("originId"), when)
        rows = rows.join(known, "originId", "left")
    if limit:
        rows = rows.where("sentAt IS NULL")
    rows = rows.orderBy("storeTimestamp", "brokerName", "topic", "queueId", "queueOffset")
    return rows.limit(limit) if limit else rows


def read_audit(spark: SparkSession, files: Files | None) -> DataFrame | None:
    """The lines of earlier runs; None if there are none.

    Raises: JobError: a file in the folder is not an audit.
    """
    if files is None:
        return None
    names = [name for name in files.names() if name.endswith(".jsonl")]
    if not names:
        return None
    reader = spark.read.schema(f"{AUDIT}, _corrupt string")
    paths = [files.where(name) for name in names]
    lines = reader.option("columnNameOfCorruptRecord", "_corrupt").json(paths)
    bad = lines.where("_corrupt IS NOT NULL OR status IS NULL").select(F.input_file_name()).first()
    if bad is not None:
        raise JobError(
            f"{bad[0]} is not an audit of {NAME}: use another folder for --audit, or restore it"
        )
    return lines


def work(spark: SparkSession, given: Flags, summary: Summary) -> int:
    """Replay the selected dead letters."""
    files = Files(spark, given.audit) if given.audit else None
    audit = read_audit(spark, files)
    topics, closed = dlq_topics(given)
    if closed:
        raise JobError(f"{closed[0]} cannot be read: set its perm to 6 (mqadmin updateTopic -p 6)")
    letters = dead_letters(spark, given, topics)
    rows: Iterator[Any] = iter(())
    if letters is not None:
        rows = selected(letters, audit, given.limit).toLocalIterator()
    would: Counter[tuple[str, str, str]] = Counter()
    name = f"{wall_ms()}"
    numbers = iter(range(1_000_000_000))

    def write(lines: list[dict[str, Any]]) -> None:
        for line in lines:
            would[line["status"], line["destination"], line["why"].partition(", at ")[0]] += 1
        if files is not None and not given.dry_run:
            text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
            files.write(f"{name}-{next(numbers):09d}.jsonl", text)

    replay = Replay(name, given.to, write, None, given.rate, given.max_failures)
    if given.dry_run:
        is_through = replay.all(rows, given.batch)
    else:
        with Producer(client(given), group=GROUP) as replay.send:
            is_through = replay.all(rows, given.batch)
    return _print_summary(replay, would, given, summary, is_through)


def _print_summary(
    replay: Replay,
    what: Counter[tuple[str, str, str]],
    given: Flags,
    summary: Summary,
    is_through: bool,
) -> int:
    for name in (TO_SEND, "skipped") if given.dry_run else ("sent", "failed", "skipped"):
        summary.row(name, replay.counts[name])
    summary.row("given up", not is_through)
    status = EXIT_FINDINGS if replay.counts["failed"] else 0
    names = ("status", "topic", "why", "dead letters")
    lines = [(*key, count) for key, count in what.most_common()]
    if given.json:
        summary.row("by", [dict(zip(names, line, strict=True)) for line in lines])
        return summary.finish(status)
    summary.finish(status)
    show(names, lines, cell=grouped)
    return status


def main(argv: Sequence[str] | None = None) -> int:
    """Replay; exit status 0: success, 1: some were not sent, 2: failure."""
    return run(NAME, read_flags(Flags, NAME, __doc__, argv), work)


if __name__ == "__main__":
    sys.exit(main())
