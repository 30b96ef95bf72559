"""Orders, some of them never paid or shipped, and some with an unfinished transaction."""

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
"""Outcomes of the transactions, which every tenth order has, in turn."""
SHOWN: Final = 12


def _end(state: TransactionState, sent: Message) -> TransactionState:
    return state


def fill(name_server: str, count: int, seed: int) -> dict[str, Any]:
    """Send `count` orders, payments and shipments; returns the ids of stuck orders by kind.

    Every tenth order is sent in a transaction. Of three, one is rolled back, and one is left open,
    which only the store's files show.
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
    """Advance the broker's clock by hours, and send one more complete order, for the watermarks."""
    stage.broker.advance(hours=3)
    with Producer(stage.name_server) as producer:
        for topic in TOPICS[:3]:
            producer.send(Message(topic, json.dumps({"orderId": "LAST", "amount": 1.0})))


def times() -> list[str]:
    """The flags for deadlines that `pass_time` passes."""
    return ["--pay-within", str(PAY_WITHIN_S), "--ship-within", str(SHIP_WITHIN_S)]


def arguments(stage: Stage, answers: dict[str, Any]) -> list[str]:
    """The job's command line: both streams, with --available-now."""
    pass_time(stage)
    return [
        *("--name-server", stage.name_server, *times(), "--available-now"),
        *("--checkpoint", str(stage.folder / "checkpoint")),
    ]


def check(stage: Stage, answers: dict[str, Any]) -> bool:
    """Print some alerts, and compare them with the stuck orders."""
    alerts = [json.loads(message.body) for message in stage.broker.messages(TOPICS[3])]
    alerts.sort(key=lambda alert: (alert["kind"], alert["orderId"]))
    rows = [(alert["kind"], alert["orderId"], f"{alert['amount']:,.2f}") for alert in alerts]
    kept = "".join(json.dumps(alert) + "\n" for alert in alerts)
    (stage.results / "alerts.jsonl").write_text(kept, encoding="utf-8")
    show(["kind", "order", "amount"], rows[:SHOWN], title=TOPICS[3], cell=grouped)
    if len(rows) > SHOWN:
        print(f"… and {len(rows) - SHOWN} more alerts")
    expected = sorted((kind, each) for kind in ("unpaid", "unshipped") for each in answers[kind])
    is_right = expected == [(alert["kind"], alert["orderId"]) for alert in alerts]
    word = "as expected" if is_right else "NOT as expected"
    print(f"{len(alerts)} stuck orders: {word}")
    return is_right
