"""Dead letters with known counts, from two groups that reject some of their messages."""

from __future__ import annotations

import contextlib
import json
import logging
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final

from trocket.blocking import Admin, Client, Message, Producer, PushConsumer
from trocket.client.errors import ClientError
from trocket.common.terminal import grouped, show
from trocket.remoting.bodies import ConsumeFromWhere
from trocket.spark.jobs.demo import Stage

TOPICS: Final = ("TopicOrder", "TopicPayment")
GROUPS: Final = {"demo-billing": TOPICS, "demo-shipping": TOPICS[:1]}
REASONS: Final = ("Timeout", "NoStock", "BadAddress")
CUSTOMERS: Final = 7
WAIT_S: Final = 30.0
"""Longest wait for a message."""


def fill(name_server: str, count: int, seed: int) -> dict[str, Any]:
    """Send messages, and consume them in two groups that reject some.

    demo-shipping retries a message once, after a second, before it becomes a dead letter.

    Returns: `total`, `by` (dimension of the report to value to count), `keys` (customer to count),
      `dead` (group to orders), `sent` (topic to count).
    """
    rng = random.Random(seed)
    dead: list[dict[str, Any]] = []
    sent: Counter[str] = Counter()
    with Client(name_server) as client, Admin(client) as admin, Producer(client) as producer:
        for topic in TOPICS:
            admin.create_topic(topic, 2)
        for number in range(count):
            topic, reason = rng.choice(TOPICS), rng.choice(REASONS)
            refused = [group for group in GROUPS if rng.random() < 0.2 and topic in GROUPS[group]]
            customer = f"customer-{rng.randrange(CUSTOMERS)}"
            order = {"order": number, "refusedBy": refused}
            producer.send_soon(
                Message(topic, json.dumps(order), tags=f"tag{number % 3}",
                        keys=[f"order-{number}", customer], properties={"reason": reason})
            )  # fmt: skip
            sent[topic] += 1
            dead += [
                {"consumerGroup": group, "originTopic": topic, "reason": reason, "key": customer,
                 "reconsumeTimes": str(1 + (group == "demo-shipping")), "order": number}
                for group in refused
            ]  # fmt: skip
        producer.drain()
        with _quiet_broker():
            for group, topics in GROUPS.items():
                consume(client, group, topics, sum(sent[topic] for topic in topics))
    names = ("consumerGroup", "originTopic", "reason", "reconsumeTimes")
    return {
        "total": len(dead),
        "by": {name: dict(Counter(each[name] for each in dead)) for name in names},
        "keys": dict(Counter(each["key"] for each in dead)),
        "dead": {group: [each["order"] for each in dead if each["consumerGroup"] == group]
                 for group in GROUPS},
        "sent": dict(sent),
    }  # fmt: skip


def consume(client: Client, group: str, topics: Iterable[str], count: int) -> None:
    """Consume `count` messages in a group: acknowledge each, or send it to the dead letters.

    Raises: ClientError: fewer messages arrive.
    """
    done = 0
    with PushConsumer(
        client,
        group=group,
        subscriptions=dict.fromkeys(topics, "*"),
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    ) as consumer:
        while done < count:
            message = consumer.receive(timeout_s=WAIT_S)
            if message is None:
                raise ClientError(f"{group} received only {done} of {count} messages")
            if group not in json.loads(message.body)["refusedBy"]:
                message.ack()
            elif group == "demo-shipping" and message.reconsume_times == 0:
                message.retry(1)
                continue
            else:
                message.retry(-1)
            done += 1


@contextlib.contextmanager
def _quiet_broker() -> Iterator[None]:
    """Silence the warnings of this process's broker about each dead letter."""
    logger = logging.getLogger("trocket.broker.sending.send_back")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def arguments(stage: Stage, answers: dict[str, Any]) -> list[str]:
    """The job's command line."""
    return ["--name-server", stage.name_server, "--out", str(stage.results)]


def check(stage: Stage, answers: dict[str, Any]) -> bool:
    """Compare the dead letter topics with the rejected messages."""
    found = {
        group: sorted(json.loads(each.body)["order"]
                      for each in stage.broker.messages(f"%DLQ%{group}"))
        for group in GROUPS
    }  # fmt: skip
    expected = {group: sorted(orders) for group, orders in answers["dead"].items()}
    rows = [
        (group, len(expected[group]), len(found[group]))
        for group in GROUPS
    ]  # fmt: skip
    show(("group", "given up", "dead letters"), rows, title="Checked", cell=grouped)
    return found == expected
