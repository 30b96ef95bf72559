"""Pages of consumer groups: all, one with its members and queues, and the stacks of a member."""

from __future__ import annotations

from functools import partial

import msgspec

from ...client import RunningInfo
from ...operations.asking import asked_at_once
from ...operations.group_view import GroupView, group_view
from ...operations.sampling import GroupRow
from ..charts import NO_CHART, Chart, chart_of
from ..lags import LagPoint
from .page import Ask, Page


class Groups(msgspec.Struct, frozen=True, rename="camel"):
    """All groups of the newest sample.

    Attributes:
      gaps: brokers that did not answer all, with the reason.
    """

    error: str
    groups: tuple[GroupRow, ...]
    gaps: tuple[str, ...] = ()


async def groups(ask: Ask) -> Groups:
    """The groups of the newest sample."""
    sample = await ask.account.samples.fresh()
    samples = ask.account.samples
    return Groups(samples.error, sample.groups if sample else (), samples.gaps)


class GroupPage(GroupView, frozen=True, rename="camel"):
    """A group with its members and queues.

    Attributes:
      lags: of the last hour in which there were viewers.
      chart: the lags, drawn.
    """

    lags: tuple[LagPoint, ...] = ()
    chart: Chart = NO_CHART


async def group(ask: Ask) -> GroupPage:
    """A group with its members and queues, and its lag over the last hour."""
    name = ask.text("group")
    samples = ask.account.samples
    # The page's own sample adds to the hour, where there is no other viewer.
    (view, _), _ = await asked_at_once(partial(group_view, ask.admin, name), samples.fresh)
    now = LagPoint(ask.admin.client.wall_ms(), view.lag)
    before = (each for each in samples.lags.of(name) if each.timestamp_ms <= now.timestamp_ms)
    lags = (*before, now)
    chart = chart_of(lags, lambda each: each.lag)
    return GroupPage(**msgspec.structs.asdict(view), lags=lags, chart=chart)


class MemberPage(msgspec.Struct, frozen=True, rename="camel"):
    """What a member says of itself, with the stacks of its threads."""

    group: str
    member: RunningInfo


async def member(ask: Ask) -> MemberPage:
    """A member of a group."""
    name = ask.text("group")
    info = await ask.admin.running_info(name, ask.text("client"), with_stacks=True)
    return MemberPage(name, info)


PAGES = (
    Page("groups", groups, table="groups", is_live=True, name_field="group"),
    Page("group", group, table="queues", section="groups"),
    Page("member", member, section="groups", needs_broker=True),
)
