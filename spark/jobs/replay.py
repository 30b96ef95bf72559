"""Dead letters back to the topic that they came from, slowly, with an audit of each.

    spark-submit trocket/spark/jobs/replay.py --name-server 127.0.0.1:9876 --group billing \\
        --where "reason LIKE 'Timeout%'" --rate 50 --audit /data/replay-audit --dry-run

Each message that is looked at is a line of JSON in `--audit`: sent (as which message, where to),
failed or skipped, and why. What the audit says was sent is never sent again, however often this
runs: a message is known by its first topic and id, not by its place in a dead letter queue.

At least once: lines are written after each `--batch` messages, when brokers have confirmed them.
A kill in between repeats at most these; all copies have the same property REPLAY_ID, by which
consumers can drop them. One run at a time on one audit.

All groups of the topic get a message that is sent again, not only the one that gave it up. It
keeps its body, tag, keys, sharding key, flag and its own properties; id and time are new, so if it
dies again it is a dead letter of its own, with REPLAY_TIMES one higher.
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
from trocket.client.clock import wall_ms
from trocket.client.errors import ClientError
from trocket.client.message import SYSTEM_PROPERTIES
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
"""The status of what a dry run would send."""
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

    to: Annotated[str, typer.Option(metavar="TOPIC", help="Else where each came from.")] = ""
    audit: Annotated[str, typer.Option(metavar="FOLDER", help="What became of each.")] = ""
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Send and write nothing.")] = False
    rate: Annotated[float, typer.Option(help="Messages a second; 0: any.")] = 100.0
    limit: Annotated[int, typer.Option(help="Send this many at most; 0: all.")] = 0
    batch: Annotated[int, typer.Option(help="Messages between two audit files.")] = 100
    max_failures: Annotated[int, typer.Option(help="Then it is given up.")] = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.dry_run:
            self.need("--audit")
        if self.batch < 1 or self.rate < 0:
            raise typer.BadParameter("--batch must be at least 1, and --rate not negative")


class Sender(Protocol):
    """Who sends: a blocking producer, or a stand-in of the tests."""

    def send_soon(self, message: Message) -> Any:
        """Send without waiting; what it gives has `result`."""


@dataclass
class Replay:
    """One run: decides on each dead letter, sends, and writes down what became of it.

    Args:
      name: of the run.
      to: a topic for all; "": the one each came from.
      write: takes a batch's lines of the audit.
      send: None: a dry run.
      rate: messages a second; 0: as fast as brokers take them.
      failures_max: after so many it is given up.
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
        """Go through dead letters; False: it was given up after too many failures.

        Args:
          letters: COLUMNS, and `sentAt`: text of when it was sent before, or None.
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
        """What is to become of it: sent, or skipped."""
        known = letter["originId"]
        destination = self.to or letter["originTopic"] or ""
        why = ""
        if letter["sentAt"] is not None:
            why = f"sent before, at {letter['sentAt']}"
        elif known in self._seen:
            why = "the same message is among the dead letters more than once"
        elif not destination:
            why = "it does not say which topic it came from; --to says where it is to go"
        else:
            self._seen.add(known)
        place = [str(letter[name]) for name in ("brokerName", "topic", "queueId", "queueOffset")]
        return {
            "run": self.name, "status": "skipped" if why else TO_SEND, "why": why, "id": known,
            "consumerGroup": letter["consumerGroup"], "originTopic": letter["originTopic"],
            "destination": destination, "place": "/".join(place), "keys": letter["keys"],
        }  # fmt: skip

    def _pace(self) -> None:
        """Wait until the next message may go."""
        if self.rate > 0:
            wait_s = self._begin_s + self._count / self.rate - time.monotonic()
            if wait_s > 0:
                threading.Event().wait(wait_s)
        self._count += 1


def message(letter: Mapping[str, Any], destination: str) -> Message:
    """A dead letter as its producer sent it, but for what says that it is sent again."""
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
    """The dead letters with when they were sent before, the oldest first.

    Args:
      audit: None: there is none yet.
      limit: so many that were not sent before, and none that was; 0: all.
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
    """What was done before; None: nothing.

    Raises: JobError: the folder has something else in it.
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
            f"{bad[0]} is no audit of {NAME}: give --audit a folder of its own, or restore this one"
        )
    return lines


def work(spark: SparkSession, given: Flags, summary: Summary) -> int:
    """Send again."""
    files = Files(spark, given.audit) if given.audit else None
    audit = read_audit(spark, files)
    topics, closed = dlq_topics(given)
    if closed:
        raise JobError(f"{closed[0]} cannot be read: give it perm 6 (mqadmin updateTopic -p 6)")
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
    return _tell(replay, would, given, summary, is_through)


def _tell(
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
    """Replay; 0: well, 1: some were not sent, 2: it could not be done."""
    return run(NAME, read_flags(Flags, NAME, __doc__, argv), work)


if __name__ == "__main__":
    sys.exit(main())
