"""Orders of which some are never paid or shipped, and some stuck in their transactions."""

from __future__ import annotations

import json
import random
from functools import partial
from typing import Any, Final

from trocket.blocking import Admin, Client, Message, Producer, TransactionProducer
from trocket.client import TransactionState
from trocket.common.terminal import grouped, show
from trocket.spark.jobs.demo import Stage

TOPICS: Final = ("TopicOrder", "TopicPayment", "TopicShipment", "TopicOrderAlert")
PAY_WITHIN_S: Final = 1800
SHIP_WITHIN_S: Final = 7200
TRANSACTIONS: Final = {
    "committed": TransactionState.COMMIT,
    "rolled back": TransactionState.ROLLBACK,
    "left open": TransactionState.UNKNOWN,
}
"""Of every tenth order, in turn."""
SHOWN: Final = 12


def _end(state: TransactionState, sent: Message) -> TransactionState:
    return state


def fill(name_server: str, count: int, seed: int) -> dict[str, Any]:
    """Send `count` orders and what follows; returns the ids of those that get stuck, by kind.

    Every tenth order is sent in a transaction. One of them in three is rolled back, and so no
    order; one is left open, and is found only in the store's files.
    """
    rng = random.Random(seed)
    found: dict[str, set[str]] = {"unpaid": set(), "unshipped": set(), "half": set()}
    with Client(name_server) as client, Admin(client) as admin:
        for topic in TOPICS:
            admin.create_topic(topic, 4)
        with (
            Producer(client, group="shop") as producer,
            TransactionProducer(
                client, group="shop-tx", check=lambda message: TransactionState.UNKNOWN
            ) as transactions,
        ):
            for number in range(count):
                order: dict[str, Any] = {
                    "orderId": f"O{seed}-{number:06}",
                    "amount": rng.randrange(100, 90_000) / 4,
                }
                message = Message(TOPICS[0], json.dumps(order), keys=order["orderId"])
                if number % 10 == 9:
                    fate = list(TRANSACTIONS)[number // 10 % 3]
                    transactions.send_in_transaction(message, partial(_end, TRANSACTIONS[fate]))
                    if fate == "left open":
                        found["half"].add(order["orderId"])
                    if fate != "committed":
                        continue
                else:
                    producer.send_soon(message)
                outcome = rng.choices(("done", "unpaid", "unshipped", "twice"), (80, 6, 6, 8))[0]
                if outcome in found:
                    found[outcome].add(order["orderId"])
                if outcome == "unpaid":
                    continue
                for _ in range(2 if outcome == "twice" else 1):
                    producer.send_soon(Message(TOPICS[1], json.dumps(order)))
                if outcome != "unshipped":
                    producer.send_soon(Message(TOPICS[2], json.dumps(order)))
    return found


def pass_time(stage: Stage) -> None:
    """Hours pass for the broker, and an order comes, is paid and shipped: time has passed."""
    stage.broker.advance(hours=3)
    with Producer(stage.name_server) as producer:
        for topic in TOPICS[:3]:
            producer.send(Message(topic, json.dumps({"orderId": "LAST", "amount": 1.0})))


def times() -> list[str]:
    """The flags for the times that `pass_time` lets pass."""
    return ["--pay-within", str(PAY_WITHIN_S), "--ship-within", str(SHIP_WITHIN_S)]


def arguments(stage: Stage, answers: dict[str, Any]) -> list[str]:
    """Both streams, which end by themselves."""
    pass_time(stage)
    return [
        *("--name-server", stage.name_server, *times(), "--available-now"),
        *("--checkpoint", str(stage.folder / "checkpoint")),
    ]


def check(stage: Stage, answers: dict[str, Any]) -> bool:
    """Print some alerts, and compare them with what was left out when the data was made."""
    told = [json.loads(message.body) for message in stage.broker.messages(TOPICS[3])]
    told.sort(key=lambda alert: (alert["kind"], alert["orderId"]))
    rows = [(alert["kind"], alert["orderId"], f"{alert['amount']:,.2f}") for alert in told]
    show(["kind", "order", "amount"], rows[:SHOWN], title=TOPICS[3], cell=grouped)
    if len(rows) > SHOWN:
        print(f"… and {len(rows) - SHOWN} more alerts")
    expected = sorted((kind, each) for kind in ("unpaid", "unshipped") for each in answers[kind])
    is_right = expected == [(alert["kind"], alert["orderId"]) for alert in told]
    word = "the same as were made" if is_right else "NOT those that were made"
    print(f"{len(told)} stuck orders: {word}")
    return is_right
