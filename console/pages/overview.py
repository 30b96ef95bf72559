"""The first page: what is wrong, the last hour, brokers, and the topics that wait longest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from ...operations.sampling import BrokerRow, GroupRow, TopicRow
from ..charts import Chart, chart_of
from ..findings import Finding
from ..samples import Point
from .page import Ask, Page

ROWS_MAX = 8
"""Topics and groups of the first page: those that wait longest."""


class Overview(msgspec.Struct, frozen=True, rename="camel"):
    """What the page shows.

    Attributes:
      error: why the cluster does not answer; "": it does.
      findings: of the doctor, the worst first; None: it still collects.
      brokers, topics, groups: rows of the newest sample.
      points: of the last hour in which there were viewers.
      now: the newest point; None: there is no sample.
      charts: the points, drawn.
    """

    error: str
    findings: tuple[Finding, ...] | None
    brokers: tuple[BrokerRow, ...]
    topics: tuple[TopicRow, ...]
    groups: tuple[GroupRow, ...]
    points: tuple[Point, ...]
    now: Point | None
    charts: dict[str, Chart]


async def overview(ask: Ask) -> Overview:
    """The newest sample, and the newest findings."""
    samples = ask.account.samples
    sample = await samples.fresh()
    points = tuple(samples.points)
    return Overview(
        error=samples.error,
        findings=ask.account.findings.latest(),
        brokers=sample.brokers if sample else (),
        topics=tuple(sorted(sample.topics, key=lambda each: -each.lag)[:ROWS_MAX])
        if sample
        else (),
        groups=tuple(sorted(sample.groups, key=lambda each: -each.lag)[:ROWS_MAX])
        if sample
        else (),
        points=points,
        now=points[-1] if points else None,
        charts={
            "rates": chart_of(points, lambda each: each.in_rate, lambda each: each.out_rate),
            "lag": chart_of(points, lambda each: each.lag),
            "disk": chart_of(points, lambda each: each.disk_ratio, top=1.0),
        },
    )


Row = TypeVar("Row", TopicRow, GroupRow)


def _worst(rows: Sequence[Row]) -> tuple[Row, ...]:
    return tuple(sorted(rows, key=lambda each: -each.lag)[:ROWS_MAX])


PAGES = (Page("overview", overview, table="brokers", is_live=True),)
