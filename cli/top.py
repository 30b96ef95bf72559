"""`trocket top`: brokers, topics and groups of a cluster, live in the terminal."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from ..common.terminal import plain, show, table, time_text
from ..common.texts import one_line
from .live_lines import begin_sample
from .session import (
    INTERVAL_MAX_S,
    SHARED,
    Shared,
    emit,
    end_with,
    new_client,
    run,
)
from .statistics_view import rate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from rich.console import RenderableType

    from ..operations.sampling import BrokerRow, GroupRow, Sample, Sampler, TopicRow

BROKER_COLUMNS = ("Broker", "Cluster", "Address", "Version", "In/s", "Out/s", "Disk", "Error")
TOPIC_COLUMNS = ("Topic", "Queues", "In/s", "Out/s", "Groups", "Lag", "Delay")
GROUP_COLUMNS = ("Group", "Topics", "Out/s", "Lag", "Delay", "Retries")
SPARE = ("Cluster", "Version", "Address", "Queues", "Groups", "Topics", "Retries")
"""Columns that a narrow terminal leaves out first."""
FRAME_LINES = 4
"""Lines of a table besides its rows."""
ROWS_MIN = 3
"""Rows of a table that are shown however low the terminal is."""
TOPICS_SHOWN = 3
"""Names of topics in a group's row."""


class Order(StrEnum):
    """The number by which rows are sorted, the largest first."""

    IN = "in"
    OUT = "out"
    LAG = "lag"
    DELAY = "delay"
    NAME = "name"


def top(
    order: Annotated[
        Order,
        typer.Option("--sort", help="Sort by messages in or out, lag, delay, or name."),
    ] = Order.LAG,
    containing: Annotated[
        str,
        typer.Option("--filter", metavar="TEXT", help="Show only topics and groups with TEXT."),
    ] = "",
    is_all: Annotated[
        bool, typer.Option("--all", help="Show RocketMQ's own topics and groups, too.")
    ] = False,
    interval: Annotated[
        float,
        typer.Option(
            "--interval",
            min=0.1,
            max=INTERVAL_MAX_S,
            metavar="S",
            help="Refresh every S seconds.",
        ),
    ] = 2.0,
    once: Annotated[
        bool, typer.Option("--once", help="Measure for one interval, print, and end.")
    ] = False,
    shared: Shared = SHARED,
) -> None:
    """Show brokers, topics and groups live: messages in and out per second, lag, delay.

    Ends with Ctrl-C. With --json, print an object a line. With --once, status 1 if a broker does
    not answer.
    """

    async def main() -> str:
        import anyio

        from ..client import Admin
        from ..operations.sampling import Sampler

        async with new_client(shared.url, shared.timeout_s) as client, Admin(client) as admin:
            sampler = Sampler(admin, is_all=is_all)
            select = _selection(order, containing)
            if sys.stdout.isatty() and not (once or shared.as_json):
                await _live(sampler, select, interval)
            await sampler.sample()
            is_first = True
            while True:
                await anyio.sleep(interval)
                sample = select(await sampler.sample())
                if shared.as_json:
                    emit(sample)
                else:
                    begin_sample(sample.timestamp_ms, is_first=is_first)
                    _print(sample)
                sys.stdout.flush()
                if once:
                    return "; ".join(
                        f"{each.broker}: {each.error}" for each in sample.brokers if each.error
                    )
                is_first = False

    end_with(run(main))


def _selection(order: Order, containing: str) -> Callable[[Sample], Sample]:
    """A function that leaves out rows by their names, and sorts the others."""

    def select(sample: Sample) -> Sample:
        import msgspec

        topics = [row for row in sample.topics if containing in row.topic]
        groups = [
            row
            for row in sample.groups
            if any(containing in each for each in (row.group, *row.topics))
        ]
        return msgspec.structs.replace(
            sample, topics=tuple(_sorted(topics, order)), groups=tuple(_sorted(groups, order))
        )

    return select


def _sorted(rows: Sequence[Any], order: Order) -> list[Any]:
    """Largest first; rows that do not have the number, or have equal ones, by their names."""
    if order is Order.NAME:
        return list(rows)
    name = {Order.IN: "in_rate", Order.OUT: "out_rate", Order.LAG: "lag", Order.DELAY: "delay_s"}
    return sorted(rows, key=lambda row: -(getattr(row, name[order], None) or 0))


async def _live(sampler: Sampler, select: Callable[[Sample], Sample], interval_s: float) -> None:
    """Show samples until Ctrl-C; an error is shown, and the next sample tried."""
    import anyio
    from rich.live import Live
    from rich.text import Text

    from ..client import ClientError

    with Live(Text("asking the cluster"), auto_refresh=False, screen=True) as live:
        while True:
            try:
                sample = select(await sampler.sample())
                live.update(
                    screen_of(sample, live.console.height, live.console.width), refresh=True
                )
            except ClientError as failure:
                live.update(Text(one_line(failure)), refresh=True)
            await anyio.sleep(interval_s)


def screen_of(sample: Sample, height: int, width: int) -> RenderableType:
    """A screen of tables; rows that do not fit are counted in their title.

    Args:
      height: of the screen, in lines.
      width: of the screen, in characters.
    """
    from rich.console import Group
    from rich.text import Text

    # Most of the time no broker has an error, and the width is needed.
    shown = len(BROKER_COLUMNS) if any(row.error for row in sample.brokers) else -1
    brokers = [broker_cells(row)[:shown] for row in sample.brokers]
    topics = [topic_cells(row) for row in sample.topics]
    groups = [group_cells(row) for row in sample.groups]
    # The line with the time, three tables, and a line in each for its title.
    room = max(height - 1 - 3 * (FRAME_LINES + 1), 3 * ROWS_MIN)
    shares = _shares(room, [len(brokers), len(topics), len(groups)])
    parts = (
        ("Brokers", BROKER_COLUMNS[:shown], brokers),
        ("Topics", TOPIC_COLUMNS, topics),
        ("Groups", GROUP_COLUMNS, groups),
    )
    return Group(
        Text(f"{time_text(sample.timestamp_ms)}  Ctrl-C ends"),
        *(
            table(
                columns,
                rows[:share],
                title=_title(title, len(rows), share),
                width=width,
                spare=SPARE,
            )
            for (title, columns, rows), share in zip(parts, shares, strict=True)
        ),
    )


def _shares(room: int, wanted: list[int]) -> list[int]:
    """Rows of each table: what a small one does not need, the others get."""
    shares = [0] * len(wanted)
    left = [index for index, count in enumerate(wanted) if count]
    while left:
        each = max((room - sum(shares)) // len(left), ROWS_MIN)
        small = [index for index in left if wanted[index] <= each]
        for index in small or left:
            shares[index] = min(wanted[index], each)
        left = [index for index in left if small and index not in small]
    return shares


def _title(name: str, count: int, shown: int) -> str:
    return name if count <= shown else f"{name}: {shown} of {count}"


def broker_cells(row: BrokerRow) -> list[str]:
    disk = plain(None) if row.disk_ratio is None else f"{row.disk_ratio:.0%}"
    rates = (rate(row.in_rate), rate(row.out_rate))
    cells = (row.broker, row.cluster, row.address, row.version, *rates, disk, row.error)
    return [plain(cell) for cell in cells]


def topic_cells(row: TopicRow) -> list[str]:
    rates = (rate(row.in_rate), rate(row.out_rate))
    cells = (row.topic, row.queues, *rates, row.groups, row.lag, span_text(row.delay_s))
    return [plain(cell) for cell in cells]


def group_cells(row: GroupRow) -> list[str]:
    topics = " ".join(row.topics[:TOPICS_SHOWN])
    if len(row.topics) > TOPICS_SHOWN:
        topics += f" +{len(row.topics) - TOPICS_SHOWN}"
    cells = (row.group, topics, rate(row.out_rate), row.lag, span_text(row.delay_s), row.retries)
    return [plain(cell) for cell in cells]


def span_text(seconds: float | None) -> str:
    """A span for people, in its two largest units: "3.2s", "5m10s", "2h05m", "3d04h"."""
    if seconds is None:
        return plain(None)
    if seconds < 60:
        return f"{seconds:.1f}s"
    whole = int(seconds)
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < 86_400:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    return f"{whole // 86_400}d{whole % 86_400 // 3600:02}h"


def _print(sample: Sample) -> None:
    """Tables on a terminal; in a pipe lines that begin with broker, topic or group."""
    if sys.stdout.isatty():
        show(BROKER_COLUMNS, map(broker_cells, sample.brokers), title="Brokers", spare=SPARE)
        show(TOPIC_COLUMNS, map(topic_cells, sample.topics), title="Topics", spare=SPARE)
        show(GROUP_COLUMNS, map(group_cells, sample.groups), title="Groups", spare=SPARE)
        return
    show(("", *BROKER_COLUMNS), (["broker", *broker_cells(row)] for row in sample.brokers))
    show(("", *TOPIC_COLUMNS), (["topic", *topic_cells(row)] for row in sample.topics))
    show(("", *GROUP_COLUMNS), (["group", *group_cells(row)] for row in sample.groups))
