"""Groups with known lags, one overloaded queue, and one hot key."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any, Final

from trocket.blocking import Admin, Client, Message, Producer, PullConsumer
from trocket.client import MessageQueue
from trocket.common.terminal import grouped, show
from trocket.spark.jobs.demo import Stage
from trocket.spark.jobs.report_page import span

TOPICS: Final = {"TopicClick": 4, "TopicOrder": 2, "TopicAudit": 1}
"""Topics and their numbers of queues."""
GROUPS: Final = {
    "billing": ("TopicOrder", 1.0),
    "search": ("TopicClick", 0.9),
    "warehouse": ("TopicOrder", 0.4),
    "nightly": ("TopicAudit", 0.0),
}
"""The topic of each group, and the share of each queue that the group has read."""
COLUMNS: Final = ("group", "topic", "lag", "oldest unread")
HOT_KEY: Final = "customer-7"


def fill(name_server: str, count: int, seed: int) -> dict[str, Any]:
    """Send `count` messages and commit offsets.

    Returns: `sent` (messages by topic and queue id), `lags` (by group, topic and queue id), `hot`
      (messages of the hot key).
    """
    rng = random.Random(seed)
    sent: Counter[tuple[str, int]] = Counter()
    hot = 0
    with Client(name_server) as client, Admin(client) as admin, Producer(client) as producer:
        places: dict[str, list[MessageQueue]] = {}
        for topic, queues in TOPICS.items():
            admin.create_topic(topic, queues)
            places[topic] = sorted(producer.queues(topic))
        for _ in range(count):
            topic = rng.choices(list(TOPICS), (6, 3, 1))[0]
            # Every other click goes to one queue, as it has the hot key.
            is_hot = topic == "TopicClick" and rng.random() < 0.5
            key = HOT_KEY if is_hot else f"customer-{rng.randrange(1000, 9999)}"
            queue = places[topic][3 if is_hot else rng.randrange(TOPICS[topic])]
            body = json.dumps({"key": key, "text": "x" * rng.randrange(20, 400)})
            producer.send_soon(Message(topic, body, keys=key), queue=queue)
            sent[topic, queue.queue_id] += 1
            hot += is_hot
        producer.drain()
        lags = {}
        for group, (topic, share) in GROUPS.items():
            admin.create_group(group)
            offsets = {queue: int(sent[topic, queue.queue_id] * share) for queue in places[topic]}
            with PullConsumer(client, group=group, auto_commit=False) as consumer:
                consumer.commit(offsets)
            for queue, offset in offsets.items():
                lags[group, topic, queue.queue_id] = sent[topic, queue.queue_id] - offset
    return {"sent": dict(sent), "lags": lags, "hot": hot}


def arguments(stage: Stage, answers: dict[str, Any]) -> list[str]:
    """The job's command line: a report on the broker's files after a restart."""
    stage.broker.restart()
    return ["--store", str(stage.store), "--out", str(stage.results)]


def check(stage: Stage, answers: dict[str, Any]) -> bool:
    """Compare the report with the sent messages and committed offsets."""
    report = json.loads((stage.results / "report.json").read_text(encoding="utf-8"))
    is_right = problems(report, answers) == []
    show(COLUMNS, lag_by_group(report), title="Lag", cell=grouped)
    word = "the same as" if is_right else "NOT the same as"
    print(f"{sum(answers['lags'].values()):,} messages of lag: {word} was committed")
    return is_right


def lag_by_group(report: dict[str, Any]) -> list[tuple[str, str, int, str]]:
    """Group, topic, lag and the age of the next unread message, the longest lag first."""
    lags: Counter[tuple[str, str]] = Counter()
    ages: dict[tuple[str, str], float] = {}
    for row in report["lag"]:
        place = row["group"], row["topic"]
        lags[place] += row["lag"]
        ages[place] = max(ages.get(place, 0.0), row["age_s"] or 0.0)
    return [(*place, lag, span(ages[place])) for place, lag in lags.most_common()]


def problems(report: dict[str, Any], answers: dict[str, Any]) -> list[str]:
    """The parts of a report that differ from the answers."""
    lags = {(row["group"], row["topic"], row["queueId"]): row["lag"] for row in report["lag"]}
    loads = {(row["topic"], row["queueId"]): row["messages"] for row in report["queues"]}
    hot = [row for row in report["hot_keys"] if row["topic"] == "TopicClick"]
    return [
        name
        for name, is_same in (
            ("lag", lags == answers["lags"]),
            ("queues", loads == answers["sent"]),
            ("hot key", (hot[0]["key"], hot[0]["messages"]) == (HOT_KEY, answers["hot"])),
        )
        if not is_same
    ]
