"""Facts for the tests of the pure parts, with what a test does not name being usual."""

from __future__ import annotations

from typing import Any

from trocket.client import (
    ConsumeOutcome,
    InvisibleMessage,
    MessageTrace,
    SubscriptionInfo,
    TracedConsumption,
)
from trocket.operations.message_life import (
    CopyFacts,
    CopyKind,
    GroupFacts,
    MemberFacts,
    MessageFacts,
)

NOW_MS = 1_000_000
STORED_MS = 900_000
ID = "7F00000124A551B6EF5F6C42A3AC0000"
PLACE_ID = "7F0000010000B3350000000000000064"


def message(**values: Any) -> MessageFacts:
    """A message at offset 10 of its queue."""
    usual: dict[str, Any] = {
        "message_id": ID,
        "unique_key": ID,
        "offset_message_id": PLACE_ID,
        "topic": "T",
        "stored_topic": "T",
        "broker_name": "b",
        "queue_id": 0,
        "queue_offset": 10,
        "physical_offset": 100,
        "size": 200,
        "born_ms": STORED_MS - 2,
        "born_host": "10.0.0.5:1",
        "store_ms": STORED_MS,
        "store_host": "10.0.0.7:10911",
        "tags": "refund",
        "keys": (),
        "properties": {"TAGS": "refund", "price": "9"},
        "queue_begin": 0,
        "queue_end": 20,
        "unit_offset": 100,
        "is_intact": True,
        "is_indexed": True,
    }
    return MessageFacts(**(usual | values))


def group(committed: int | None = None, **values: Any) -> GroupFacts:
    """A group without members."""
    usual: dict[str, Any] = {
        "has_offset": committed is not None,
        "committed": committed,
        "is_online": False,
        "copies": (),
        "pops": (),
    }
    return GroupFacts("g", **(usual | values))


def wants(expression: str, kind: str = "TAG") -> SubscriptionInfo:
    return SubscriptionInfo("T", expression, kind)


def member(name: str, expression: str | None = "*", **values: Any) -> MemberFacts:
    """A member that was there before the message."""
    kind = values.pop("kind", "TAG")
    subscription = None if expression is None else wants(expression, kind)
    return MemberFacts(name, subscription, **({"started_ms": STORED_MS - 1000} | values))


def copy(kind: CopyKind, attempt: int, **values: Any) -> CopyFacts:
    return CopyFacts(kind, "%RETRY%g", "b", 0, 5, STORED_MS + 10, attempt, **values)


def pop(visible_ms: int) -> InvisibleMessage:
    return InvisibleMessage("T", "b", 0, 10, STORED_MS + 20, visible_ms, "receipt", True)


def run(is_success: bool | None, retry_times: int = 0, of: str = "g") -> TracedConsumption:
    outcome = {True: ConsumeOutcome.SUCCESS, False: ConsumeOutcome.EXCEPTION, None: None}
    return TracedConsumption(
        time_ms=STORED_MS + 50,
        cost_ms=None if is_success is None else 7,
        group=of,
        client_host="10.0.0.8",
        is_success=is_success,
        outcome=outcome[is_success],
        retry_times=retry_times,
        keys=None,
        request_id=str(retry_times),
    )


def trace(*runs: TracedConsumption) -> MessageTrace:
    return MessageTrace(ID, (), runs, (), ())
