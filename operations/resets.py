"""Resets of a group's offsets: what one would skip and repeat, making it, and undoing it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import anyio
import msgspec

from ..client import ClientError, QueueReset
from ..client.admin.looking import look
from ..remoting.bodies import MessageQueue

if TYPE_CHECKING:
    from ..client import Admin
    from ..remoting.message import MessageExt

FIRST_MESSAGES_S = 3.0
"""How long the first messages of all queues together may take."""
FIRST_MESSAGES_MAX = 32
"""Queues whose first message is read: each takes one request, and a person reads no more."""


class Target(msgspec.Struct, frozen=True, rename="camel"):
    """Where a group is to go on in a topic.

    Attributes:
      to: the first message there is, the next to come, the first one stored at a time, or a given
        offset of one queue.
      timestamp_ms: with "time", ms since 1970.
      broker_name, queue_id, offset: with "offset".
    """

    to: Literal["begin", "end", "time", "offset"]
    timestamp_ms: int = 0
    broker_name: str = ""
    queue_id: int = 0
    offset: int = 0

    def arguments(self, topic: str) -> dict[str, Any]:
        """As `Admin.reset_offset` has it."""
        if self.to == "time":
            return {"timestamp_ms": self.timestamp_ms}
        if self.to == "offset":
            queue = MessageQueue(topic, self.broker_name, self.queue_id)
            return {"offsets": {queue: self.offset}}
        return {"to": self.to}


class FirstMessage(msgspec.Struct, frozen=True, rename="camel"):
    """The first message that a reset skips or repeats in a queue."""

    message_id: str
    offset: int
    stored_ms: int
    tag: str


class QueuePlan(msgspec.Struct, frozen=True, rename="camel"):
    """What a reset does in a queue.

    Attributes:
      before: where the group is; None: it never committed.
      after: where it goes on.
      skips, repeats: messages; one of them is 0.
      first: the first of these; None: there is none, or it was not read.
    """

    broker_name: str
    queue_id: int
    before: int | None
    after: int
    skips: int
    repeats: int
    first: FirstMessage | None


class Plan(msgspec.Struct, frozen=True, rename="camel"):
    """What a reset does; queues sorted by broker name and queue id."""

    group: str
    topic: str
    queues: tuple[QueuePlan, ...]

    @property
    def skips(self) -> int:
        return sum(each.skips for each in self.queues)

    @property
    def repeats(self) -> int:
        return sum(each.repeats for each in self.queues)


async def plan_reset(admin: Admin, group: str, topic: str, target: Target) -> Plan:
    """What a reset would do now. It changes nothing.

    Raises: as `Admin.reset_offset`.
    """
    resets = await admin.reset_offset(group, topic, dry_run=True, **target.arguments(topic))
    return await _with_first(admin, group, topic, resets)


async def plan_undo(admin: Admin, group: str, topic: str, before: Mapping[str, int]) -> Plan:
    """What going back to earlier offsets would do now.

    Args:
      before: the offset of each queue, by `broker:queue`.

    Raises: as `Admin.reset_offset`.
    """
    resets = await admin.reset_offset(group, topic, dry_run=True, offsets=_offsets(topic, before))
    return await _with_first(admin, group, topic, resets)


async def reset(admin: Admin, group: str, topic: str, target: Target) -> list[QueueReset]:
    """Carry out a reset. Raises: as `Admin.reset_offset`."""
    return await admin.reset_offset(group, topic, **target.arguments(topic))


async def undo(admin: Admin, group: str, topic: str, before: Mapping[str, int]) -> list[QueueReset]:
    """Go back to earlier offsets. Raises: as `Admin.reset_offset`."""
    return await admin.reset_offset(group, topic, offsets=_offsets(topic, before))


def offsets_by_queue(resets: Iterable[QueueReset]) -> tuple[dict[str, int], dict[str, int]]:
    """The offsets before and after, by `broker:queue`; queues without an offset before are left
    out of the first: there is nothing to go back to."""
    listed = list(resets)
    before = {_key(each): each.before for each in listed if each.before is not None}
    return before, {_key(each): each.after for each in listed}


def _key(reset: QueueReset) -> str:
    return f"{reset.broker_name}:{reset.queue_id}"


def _offsets(topic: str, by_queue: Mapping[str, int]) -> dict[MessageQueue, int]:
    offsets = {}
    for key, offset in by_queue.items():
        broker_name, _, queue_id = key.rpartition(":")
        offsets[MessageQueue(topic, broker_name, int(queue_id))] = offset
    return offsets


async def _with_first(admin: Admin, group: str, topic: str, resets: Iterable[QueueReset]) -> Plan:
    plans = [_plan(each) for each in resets]
    found: dict[int, FirstMessage] = {}

    async def read(number: int, plan: QueuePlan) -> None:
        full = admin.client.with_namespace(topic)
        queue = MessageQueue(full, plan.broker_name, plan.queue_id)
        offset = min(plan.before or 0, plan.after)
        try:
            result = await look(admin.client, queue, offset, 1)
        except ClientError:
            return  # the counts are what matters
        if result.messages:
            found[number] = _first(result.messages[0])

    changed = [number for number, each in enumerate(plans) if each.skips or each.repeats]
    with anyio.move_on_after(FIRST_MESSAGES_S):
        async with anyio.create_task_group() as tasks:
            for number in changed[:FIRST_MESSAGES_MAX]:
                tasks.start_soon(partial(read, number, plans[number]))
    queues = [
        msgspec.structs.replace(each, first=found.get(number)) for number, each in enumerate(plans)
    ]
    return Plan(group, topic, tuple(queues))


def _plan(reset: QueueReset) -> QueuePlan:
    moved = reset.after - (reset.before or 0)
    return QueuePlan(
        reset.broker_name,
        reset.queue_id,
        reset.before,
        reset.after,
        max(moved, 0),
        max(-moved, 0),
        None,
    )


def _first(message: MessageExt) -> FirstMessage:
    return FirstMessage(
        message.unique_key or message.offset_message_id,
        message.queue_offset,
        message.store_timestamp_ms,
        message.tags or "",
    )
