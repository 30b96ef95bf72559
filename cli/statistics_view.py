"""Rows and JSON of statistics and progress, which several commands print."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..common.terminal import plain

if TYPE_CHECKING:
    from ..client import GroupProgress, StatsSnapshot


def rate(value: float | None) -> str:
    """A number per second, with a decimal where it matters; "-": it is unknown."""
    if value is None:
        return plain(None)
    return f"{value:.1f}" if value < 99.95 else f"{value:.0f}"


def seconds(value: float | None) -> str:
    """Seconds with a decimal, for scripts and people; "-": they are unknown."""
    return plain(None) if value is None else f"{value:.1f}"


def growth_rows(snapshot: StatsSnapshot | None) -> list[list[object]]:
    """A row for the last minute, hour and day: total, per second, per call."""
    if snapshot is None:
        return []
    periods = {"minute": snapshot.minute, "hour": snapshot.hour, "day": snapshot.day}
    return [
        [name, each.total, f"{each.per_second:.2f}", f"{each.per_call:.2f}"]
        for name, each in periods.items()
    ]


def progress_tree(progress: GroupProgress, min_lag: int = 0) -> dict[str, Any]:
    """A group's progress as JSON has it, with the lag of each queue, and its sums.

    Args:
      min_lag: leave out queues with a smaller lag.
    """
    import msgspec

    tree: dict[str, Any] = msgspec.to_builtins(progress)
    tree["lag"] = progress.lag
    tree["delayS"] = progress.delay_s
    tree["queues"] = [
        each | {"lag": queue.lag}
        for each, queue in zip(tree["queues"], progress.queues, strict=True)
        if queue.lag >= min_lag
    ]
    return tree
