"""The timeline of a message: what traced clients reported about it, as events by time. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import TypeAlias

import msgspec

from ..client import (
    MessageTrace,
    TracedConsumption,
    TracedRecall,
    TracedSend,
    TracedTransactionEnd,
)

Traced: TypeAlias = TracedSend | TracedTransactionEnd | TracedRecall | TracedConsumption
"""A report of a client."""


class EventKind(StrEnum):
    """What happened to a message."""

    SEND = "send"
    TRANSACTION = "transaction"
    RECALL = "recall"
    CONSUME = "consume"


class EventStatus(StrEnum):
    """How it went. A transaction's is its outcome."""

    STORED = "stored"
    STORED_LESS_SAFELY = "stored less safely"
    COMMIT = "commit"
    ROLLBACK = "rollback"
    UNKNOWN = "unknown"
    ACCEPTED = "accepted"
    REFUSED = "refused"
    SUCCESS = "success"
    FAILED = "failed"
    NOT_ENDED = "no end reported"


class TraceEvent(msgspec.Struct, frozen=True, rename="camel"):
    """Something that happened to a message, as a client reported it.

    Attributes:
      time_ms: when it began, by the client's clock, ms since 1970; None: not reported.
      group: of the producer or consumer; None: not reported.
      client_host: IP address of the client.
      cost_ms: how long it took; None: not reported, or it is not measured.
      report: the report, which has the rest.
    """

    time_ms: int | None
    kind: EventKind
    status: EventStatus
    group: str | None
    client_host: str
    cost_ms: int | None
    report: Traced


def timeline(trace: MessageTrace) -> list[TraceEvent]:
    """All events of a message, by time; those without a time are the first."""
    return sorted(_events(trace), key=lambda event: event.time_ms or 0)


def _events(trace: MessageTrace) -> Iterator[TraceEvent]:
    for sent in trace.sends:
        status = EventStatus.STORED if sent.is_success else EventStatus.STORED_LESS_SAFELY
        yield _event(EventKind.SEND, status, sent, sent.cost_ms)
    for end in trace.transaction_ends:
        yield _event(EventKind.TRANSACTION, EventStatus[end.state.name], end)
    for recall in trace.recalls:
        status = EventStatus.ACCEPTED if recall.is_success else EventStatus.REFUSED
        yield _event(EventKind.RECALL, status, recall)
    for one in trace.consumptions:
        if one.is_success is None:
            status = EventStatus.NOT_ENDED
        else:
            status = EventStatus.SUCCESS if one.is_success else EventStatus.FAILED
        yield _event(EventKind.CONSUME, status, one, one.cost_ms)


def _event(
    kind: EventKind, status: EventStatus, report: Traced, cost_ms: int | None = None
) -> TraceEvent:
    where = report.group, report.client_host
    return TraceEvent(report.time_ms, kind, status, *where, cost_ms, report)
