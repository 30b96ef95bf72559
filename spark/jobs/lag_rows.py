"""How far groups are, by offsets alone: lag, age, slope, and what is lost or about to be. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

AT_RISK: Final = 0.8
"""Of the retention: a message older than that, and not consumed, is about to be lost."""


class Place(NamedTuple):
    """A queue."""

    topic: str
    broker_name: str
    queue_id: int


class Held(NamedTuple):
    """What a queue holds: offsets of its first message, and of the next to come."""

    begin: int
    end: int


@dataclass(frozen=True)
class LagRow:
    """A group in a queue.

    Attributes:
      committed: where it goes on; begin, end: what the queue holds.
      lag: messages that are there, and were not consumed.
      lost: messages that were deleted before they were consumed.
      next_unread_ms: when the next one was stored; None: there is none, or it is not known.
      age_s: since then.
      is_at_risk: retention is about to delete it.
      slope: by how many messages a second the lag grew since the report before; None: there is
        none, or it does not have this group and queue.
      eta_s: until it is 0 if it goes on falling so; None: it does not fall.
    """

    group: str
    topic: str
    brokerName: str
    queueId: int
    committed: int
    begin: int
    end: int
    lag: int
    lost: int
    next_unread_ms: int | None
    age_s: float | None
    is_at_risk: bool
    slope: float | None
    eta_s: float | None


def next_unread(committed: int, held: Held) -> int | None:
    """The offset of the next message that a group gets; None: it has all."""
    offset = max(committed, held.begin)
    return offset if offset < held.end else None


def lag_rows(
    committed: Mapping[tuple[str, Place], int],
    queues: Mapping[Place, Held],
    stored_ms: Mapping[tuple[Place, int], int],
    *,
    at_ms: int,
    retention_s: float,
    before: Mapping[str, Any] | None = None,
) -> list[LagRow]:
    """The rows of a report, the worst first: what is lost, then by age and lag.

    Args:
      committed: (group, queue) to the offset.
      stored_ms: (queue, offset) to when it was stored, as far as it was looked up.
      at_ms: the moment of the report.
      before: an earlier report, as its JSON has it.
    """
    lags_before, seconds = _lags(before or {}), _seconds(before or {}, at_ms)
    rows = []
    for (group, place), offset in committed.items():
        held = queues.get(place)
        if held is None:  # the topic was deleted; nothing is lost or waits
            continue
        lag = max(held.end - max(offset, held.begin), 0)
        unread = next_unread(offset, held)
        stored = None if unread is None else stored_ms.get((place, unread))
        age_s = None if stored is None else max(at_ms - stored, 0) / 1000
        lag_before = lags_before.get((group, *place))
        slope = (lag - lag_before) / seconds if lag_before is not None and seconds > 0 else None
        rows.append(
            LagRow(
                group, *place, offset, *held, lag,
                lost=max(held.begin - offset, 0),
                next_unread_ms=stored,
                age_s=age_s,
                is_at_risk=age_s is not None and age_s > AT_RISK * retention_s,
                slope=slope,
                eta_s=lag / -slope if slope is not None and slope < 0 else None,
            )
        )  # fmt: skip
    rows.sort(key=lambda row: (-row.lost, -(row.age_s or 0), -row.lag, row.group, row.topic,
                               row.brokerName, row.queueId))  # fmt: skip
    return rows


def _lags(report: Mapping[str, Any]) -> dict[tuple[str, str, str, int], int]:
    rows: Iterable[Mapping[str, Any]] = report.get("lag", ())
    return {
        (row["group"], row["topic"], row["brokerName"], row["queueId"]): row["lag"] for row in rows
    }


def _seconds(report: Mapping[str, Any], at_ms: int) -> float:
    return (at_ms - int(report.get("at_ms", at_ms))) / 1000
