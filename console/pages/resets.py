"""Resetting a group's offsets, with a preview, and undoing that."""

from __future__ import annotations

from typing import Final

import msgspec

from ...client import BrokersError
from ...operations.resets import (
    Plan,
    Target,
    offsets_by_queue,
    plan_reset,
    plan_undo,
    reset,
    undo,
)
from ..audit_log import Change as AuditedChange
from ..errors import PageError
from ..roles import Role
from .audit import may_see
from .audited import audited
from .page import Ask, Change, Done
from .times import time_ms

RESET: Final = "reset"
UNDO: Final = "undo"


class ResetPage(msgspec.Struct, frozen=True, rename="camel"):
    """What a reset would do.

    Attributes:
      topics: those in which the group has offsets, for the form.
      plan: None: no target was chosen yet.
    """

    group: str
    topic: str
    topics: tuple[str, ...]
    target: Target | None
    plan: Plan | None


def _target(ask: Ask) -> Target | None:
    kind = ask.query.get("to", "")
    if not kind:
        return None
    if kind == "time":
        return Target("time", timestamp_ms=_time_ms(ask))
    if kind == "offset":
        broker_name, _, _ = ask.text("queue").rpartition(":")
        queue = ask.text("queue").rpartition(":")[2]
        if not (broker_name and queue.isascii() and queue.isdigit() and len(queue) < 10):
            raise PageError(400, "bad_queue", value=ask.text("queue"))
        return Target(
            "offset", broker_name=broker_name, queue_id=int(queue), offset=ask.number("offset")
        )
    if kind not in ("begin", "end"):
        raise PageError(400, "no_target", value=kind)
    return Target("begin" if kind == "begin" else "end")


def _time_ms(ask: Ask) -> int:
    found = time_ms(ask, "at")
    if found is None:
        raise PageError(400, "missing_field", name="at")
    return found


async def _preview(ask: Ask) -> ResetPage:
    group = ask.text("group")
    target = _target(ask)
    topics = tuple(await ask.admin.group_topics(group))
    topic = ask.query.get("topic", "")
    plan = None
    if target is not None:
        plan = await plan_reset(ask.admin, group, ask.text("topic"), target)
    return ResetPage(group, topic, topics, target, plan)


async def _carry_out(ask: Ask) -> Done:
    group, topic = ask.text("group"), ask.text("topic")
    target = _target(ask)
    if target is None:
        raise PageError(400, "missing_field", name="to")
    of = {"group": group, "topic": topic}
    with audited(ask, RESET, of, before={}, after={}) as line:
        try:
            done = await reset(ask.admin, group, topic, target)
        except BrokersError as error:
            line.before, line.after = offsets_by_queue(error.partial or [])
            raise
        line.of = {**of, "to": target.to}
        line.before, line.after = offsets_by_queue(done)
    return Done("group", {"group": group}, "reset", {"topic": topic, "number": line.number})


class UndoPage(msgspec.Struct, frozen=True, rename="camel"):
    """What undoing a change would do."""

    change: AuditedChange
    plan: Plan


def _undone(ask: Ask) -> tuple[AuditedChange, dict[str, int]]:
    change = ask.console.audit.find(ask.number("number"))
    if change is None or not may_see(ask, change):
        raise PageError(404, "no_change", number=ask.query.get("number", ""))
    if change.what not in (RESET, UNDO) or not isinstance(change.before, dict):
        raise PageError(400, "no_undo", what=change.what)
    try:
        return change, msgspec.convert(change.before, dict[str, int])
    except msgspec.ValidationError:
        raise PageError(400, "no_undo", what=change.what) from None


async def _preview_undo(ask: Ask) -> UndoPage:
    change, before = _undone(ask)
    plan = await plan_undo(ask.admin, change.of["group"], change.of["topic"], before)
    return UndoPage(change, plan)


async def _carry_out_undo(ask: Ask) -> Done:
    change, offsets = _undone(ask)
    group, topic = change.of["group"], change.of["topic"]
    of = {"group": group, "topic": topic, "number": str(change.number)}
    with audited(ask, UNDO, of) as line:
        line.before, line.after = offsets_by_queue(await undo(ask.admin, group, topic, offsets))
    return Done("group", {"group": group}, "undo", {"topic": topic, "number": line.number})


CHANGES = (
    Change("reset", Role.OPERATE, _preview, _carry_out, section="groups"),
    Change("undo", Role.OPERATE, _preview_undo, _carry_out_undo, section="audit"),
)
