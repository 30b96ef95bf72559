"""Orders and payments to archive; the answers are their counts and the sums of their amounts."""

from __future__ import annotations

import json
import random
from typing import Any, Final

from trocket.blocking import Admin, Client, Message, Producer
from trocket.common.terminal import grouped, show
from trocket.spark.jobs.demo import Stage

QUEUES: Final = {"TopicOrder": 3, "TopicPayment": 2}
COLUMNS: Final = ("topic", "archived", "sent", "sum archived", "sum sent")
BATCH: Final = 100
"""Messages per request."""


def fill(name_server: str, count: int, seed: int) -> dict[str, Any]:
    """Create the topics and send messages.

    Args:
      count: messages in total.

    Returns: `topics` (name to `count` and `cents`, the sum of its amounts) and `total`.
    """
    rng = random.Random(seed)
    answers: dict[str, Any] = {
        "total": count, "topics": {topic: {"count": 0, "cents": 0} for topic in QUEUES}
    }  # fmt: skip
    waiting: dict[str, list[Message]] = {topic: [] for topic in QUEUES}
    with Client(name_server) as client, Admin(client) as admin:
        for topic, queues in QUEUES.items():
            admin.create_topic(topic, queues)
        with Producer(client, group="demo-archive") as producer:
            for number in range(count):
                topic = rng.choice(list(QUEUES))
                cents = rng.randrange(100, 100_000)
                body = json.dumps({"order": number, "cents": cents})
                waiting[topic].append(Message(topic, body, keys=f"order-{number}"))
                answers["topics"][topic]["count"] += 1
                answers["topics"][topic]["cents"] += cents
                if len(waiting[topic]) == BATCH:
                    producer.send_batch(waiting[topic])
                    waiting[topic] = []
            for messages in waiting.values():
                if messages:
                    producer.send_batch(messages)
    return answers


def arguments(stage: Stage, answers: dict[str, Any]) -> list[str]:
    """The job's command line."""
    topics = ",".join(answers["topics"])
    out = stage.results
    return ["--name-server", stage.name_server, "--topic", topics, "--out", str(out)]


def check(stage: Stage, answers: dict[str, Any]) -> bool:
    """Verify the archive, and sum up its amounts with another reader than Spark."""
    from pyarrow import parquet

    from trocket.spark.jobs.archive_parquet import main

    out = str(stage.results)
    status = main(["--name-server", stage.name_server, "--out", out, "--verify"])
    found = {topic: {"count": 0, "cents": 0} for topic in QUEUES}
    for row in parquet.read_table(out, columns=["topic", "body"]).to_pylist():
        found[row["topic"]]["count"] += 1
        found[row["topic"]]["cents"] += json.loads(row["body"])["cents"]
    rows = [
        (topic, values["count"], sent["count"], f"{values['cents'] / 100:,.2f}",
         f"{sent['cents'] / 100:,.2f}")
        for topic, values in found.items() if (sent := answers["topics"][topic])
    ]  # fmt: skip
    show(COLUMNS, rows, title="The archive, and what was sent", cell=grouped)
    return status == 0 and found == answers["topics"]
