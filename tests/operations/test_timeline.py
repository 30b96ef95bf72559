"""The timeline of a message: each kind of report is an event, in the order of the times."""

from __future__ import annotations

from trocket.cli.message_trace import cells
from trocket.client import (
    ConsumeOutcome,
    MessageTrace,
    TracedConsumption,
    TracedRecall,
    TracedSend,
    TracedTransactionEnd,
    TracedType,
    TransactionState,
)
from trocket.operations.timeline import EventKind, EventStatus, timeline

HOST, STORE = "10.0.0.1", "10.0.0.9:10911"


def sent(time_ms: int, **changes: object) -> TracedSend:
    values = {
        "time_ms": time_ms, "cost_ms": 3, "group": "shop", "client_host": HOST, "client_id": "c",
        "topic": "T", "tags": None, "keys": None, "store_host": STORE, "offset_message_id": None,
        "body_length": 5, "kind": TracedType.NORMAL, "is_success": True, "region": "r",
    }  # fmt: skip
    return TracedSend(**{**values, **changes})


def consumed(time_ms: int | None, is_success: bool | None, **changes: object) -> TracedConsumption:
    values = {
        "time_ms": time_ms, "cost_ms": 7, "group": "g", "client_host": HOST,
        "is_success": is_success, "outcome": None, "retry_times": None, "keys": None,
        "request_id": "1",
    }  # fmt: skip
    return TracedConsumption(**{**values, **changes})


def test_events_are_sorted_by_time_whatever_they_are() -> None:
    end = TracedTransactionEnd(
        20, "shop", HOST, "T", STORE, None, TransactionState.ROLLBACK, True, "r"
    )
    trace = MessageTrace(
        "id",
        (sent(10, is_success=False, tags="t", keys="k", kind=TracedType.DELAY),),
        (
            consumed(None, None),
            consumed(40, False, outcome=ConsumeOutcome.TIMEOUT, retry_times=2),
            consumed(41, False, outcome=ConsumeOutcome.FAILED),
            consumed(42, True),
        ),
        (end,),
        (TracedRecall(30, "shop", HOST, "T", False, "r"),),
    )
    events = timeline(trace)
    assert [(event.time_ms, event.kind, event.status) for event in events] == [
        (None, EventKind.CONSUME, EventStatus.NOT_ENDED),
        (10, EventKind.SEND, EventStatus.STORED_LESS_SAFELY),
        (20, EventKind.TRANSACTION, EventStatus.ROLLBACK),
        (30, EventKind.RECALL, EventStatus.REFUSED),
        (40, EventKind.CONSUME, EventStatus.FAILED),
        (41, EventKind.CONSUME, EventStatus.FAILED),
        (42, EventKind.CONSUME, EventStatus.SUCCESS),
    ]
    assert [cells(event)[4:] for event in events] == [
        [7, "no end reported", ""],
        [3, "stored less safely", f"T on {STORE}, 5 bytes, delay, tags=t, keys=k"],
        [None, "rollback", f"T on {STORE}, asked for"],
        [None, "refused", "T"],
        [7, "failed (timeout)", "retry 2"],
        [7, "failed", ""],
        [7, "success", ""],
    ]
    assert cells(events[0])[0] == "?"
    assert events[1].report is trace.sends[0]


def test_a_message_that_no_client_traced_has_no_events() -> None:
    assert timeline(MessageTrace("id", (), (), (), ())) == []
