"""Lag of groups, computed from offsets: lag, age, slope, and lost messages. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

AT_RISK: Final = 0.8
"""Share of the retention time after which an unread message counts as about to be lost."""


class Place(NamedTuple):
    """A queue."""

    topic: str
    broker_name: str
    queue_id: int


class Held(NamedTuple):
    """The range of a queue: the offset of its first message, and of the next one."""

    begin: int
    end: int


@dataclass(frozen=True)
class LagRow:
    """The lag of a group in a queue.

    Attributes:
      committed: the group's offset; begin, end: the queue's range.
      lag: messages in the queue that the group has not consumed.
      lost: messages that were deleted before the group consumed them.
      next_unread_ms: store time of the next unread message; None if there is none, or it is
          unknown.
      age_s: the age of that message.
      is_at_risk: whether retention is about to delete it.
      slope: growth of the lag since the earlier report in messages per second; None if there is no
        earlier report, or it lacks this group and queue.
      eta_s: seconds until the lag is 0 at this slope; None: it does not fall.
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
    """The offset of the next message for a group; None: it has consumed all."""
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
    """The rows of a report, the worst first: by lost messages, then by age and lag.

    Args:
      committed: (group, queue) to the committed offset.
      stored_ms: (queue, offset) to the store time, for the unread messages that were found.
      at_ms: the time of the report.
      before: an earlier report, as in its JSON.
    """
    lags_before, seconds = _lags(before or {}), _seconds(before or {}, at_ms)
    rows = []
    for (group, place), offset in committed.items():
        held = queues.get(place)
        if held is None:  # the topic was deleted: the group has neither lag nor losses
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
