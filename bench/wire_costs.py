"""The costs of TLS or accounts per message: figures of each case without and with it.

`bench/wire.py` measures both by turns; the medians of the rounds and their range stand here. Pure.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from trocket.bench import kit


class Figures(Protocol):
    """The figures of a case that costs are made of."""

    @property
    def messages_per_s(self) -> float:
        """The rate."""

    @property
    def broker_cpu_us(self) -> float:
        """The broker's CPU time per message."""


@dataclass(frozen=True)
class Cost:
    """A case on one broker without and with TLS or accounts: medians of the rounds.

    Attributes:
      broker: "trocket" or "apache-5.5.0".
      case: its name, such as "64 in flight".
      rounds: the number of rounds.
      plain_cpu_us, added_cpu_us: the broker's CPU per message, without and with it.
      least_us, most_us: the least and the greatest difference of a round.
      plain_per_s, added_per_s: messages per second, without and with it.
    """

    broker: str
    case: str
    rounds: int
    plain_cpu_us: float
    added_cpu_us: float
    least_us: float
    most_us: float
    plain_per_s: float
    added_per_s: float


def cost_of(broker: str, case: str, pairs: Sequence[tuple[Figures, Figures]]) -> Cost:
    """The cost by the figures of each round, without and with it; there must be one or more."""
    more = [one.broker_cpu_us - plain.broker_cpu_us for plain, one in pairs]
    plains, others = zip(*pairs, strict=True)
    return Cost(
        broker=broker,
        case=case,
        rounds=len(pairs),
        plain_cpu_us=statistics.median(each.broker_cpu_us for each in plains),
        added_cpu_us=statistics.median(each.broker_cpu_us for each in others),
        least_us=min(more),
        most_us=max(more),
        plain_per_s=statistics.median(each.messages_per_s for each in plains),
        added_per_s=statistics.median(each.messages_per_s for each in others),
    )


COLUMNS: kit.Columns[Cost] = {
    "broker": lambda one: one.broker,
    "case": lambda one: one.case,
    "plain: CPU µs": lambda one: kit.short(one.plain_cpu_us),
    "with it": lambda one: kit.short(one.added_cpu_us),
    "ratio": lambda one: f"{one.added_cpu_us / one.plain_cpu_us:.2f}",
    "more µs": lambda one: f"{kit.short(one.least_us)} to {kit.short(one.most_us)}",
    "plain: msg/s": lambda one: kit.short(one.plain_per_s),
    "with it ": lambda one: kit.short(one.added_per_s),
}
"""CPU µs is the broker's per message; "more µs" has the least and the greatest of the rounds."""
