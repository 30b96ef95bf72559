"""A consumer group for people: each member's own subscription, the owner of each queue, and lag."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from ..client.core.topics import is_retry_topic
from .asking import asked_at_once

if TYPE_CHECKING:
    from ..client import Admin, ClientInfo, GroupProgress, QueueProgress, RunningInfo

MEMBERS_ASKED_MAX: Final = 64
"""Members that are asked for their subscriptions and queues; a group seldom has more."""
MEMBERS_S: Final = 3.0
"""How long all of them together have for that."""


class WantedTopic(msgspec.Struct, frozen=True, rename="camel"):
    """What a member wants of a topic.

    Attributes:
      expression: such as "*" or "TagA || TagB".
      expression_type: "TAG" or "SQL92".
      differs: another member wants something else of this topic, or does not want it.
    """

    topic: str
    expression: str
    expression_type: str
    differs: bool


class Member(msgspec.Struct, frozen=True, rename="camel"):
    """A connected member.

    Attributes:
      client_id, address, language, version: as in ClientInfo.
      wants: as it says itself, sorted by topic; None: it was not asked, or did not answer.
      queues: how many queues it has; None: as `wants`.
    """

    client_id: str
    address: str
    language: str
    version: str
    wants: tuple[WantedTopic, ...] | None
    queues: int | None


class GroupQueue(msgspec.Struct, frozen=True, rename="camel"):
    """How far the group is in a queue.

    Attributes:
      committed, pulled, end, delay_s: as in QueueProgress.
      lag: messages that were not consumed.
      owner: the member that has it; "": no member said that it has it.
      idles: its owner pulls and does not commit: `pulled` is ahead, and messages wait.
    """

    topic: str
    broker_name: str
    queue_id: int
    committed: int
    pulled: int
    end: int
    lag: int
    delay_s: float | None
    owner: str
    idles: bool


class GroupView(msgspec.Struct, frozen=True, rename="camel"):
    """A consumer group.

    Attributes:
      consume_type, message_model: as in GroupProgress.
      rate: messages read per second during the last minute.
      lag: messages of all queues that were not consumed.
      delay_s: the longest delay of its queues; None: unknown.
      retries, dead_letters: as in GroupProgress.
      members: sorted by client id.
      queues: sorted by topic, broker name and queue id.
      differ: topics of which its members want different things, sorted.
      unowned: how many queues no member has, although all members said which they have.
      silent: members that did not answer.
      error: which brokers did not answer; "": all did.
    """

    group: str
    consume_type: str
    message_model: str
    rate: float
    lag: int
    delay_s: float | None
    retries: int
    dead_letters: int
    members: tuple[Member, ...]
    queues: tuple[GroupQueue, ...]
    differ: tuple[str, ...]
    unowned: int
    silent: tuple[str, ...]
    error: str = ""


async def group_view(admin: Admin, group: str) -> GroupView:
    """Ask for a group's progress, and at the same time its members for what they want and have.

    Raises: NotFoundError: no broker knows the group. ServerError; ConnectError.
    """
    (progress, error), (members, other_error) = await asked_at_once(
        partial(admin.progress, group),
        partial(admin.members, group, timeout_s=MEMBERS_S, count=MEMBERS_ASKED_MAX),
    )
    infos = {each.client_id: each for each in members.infos}
    return merged(progress, infos, error or other_error)


def merged(progress: GroupProgress, infos: Mapping[str, RunningInfo], error: str = "") -> GroupView:
    """A group of what its brokers and its members said."""
    wants = _wants(infos)
    differ = _different(wants)
    owners: dict[tuple[str, str, int], str] = {}
    for client_id, info in infos.items():
        for state in info.queues:
            owners[state.topic, state.broker_name, state.queue_id] = client_id
    queues = tuple(_queue(each, owners) for each in progress.queues)
    silent = tuple(each.client_id for each in progress.clients if each.client_id not in infos)
    pops = progress.consume_type == "CONSUME_POP"
    counts = bool(infos) and not silent and not pops
    return GroupView(
        group=progress.group,
        consume_type=progress.consume_type,
        message_model=progress.message_model,
        rate=progress.rate,
        lag=progress.lag,
        delay_s=progress.delay_s,
        retries=progress.retries,
        dead_letters=progress.dead_letters,
        members=tuple(
            _member(each, infos.get(each.client_id), wants, differ) for each in progress.clients
        ),
        queues=queues,
        differ=tuple(sorted(differ)),
        unowned=sum(not each.owner for each in queues) if counts else 0,
        silent=silent,
        error=error,
    )


def _member(
    client: ClientInfo, info: RunningInfo | None, wants: _Wants, differ: set[str]
) -> Member:
    own = wants.get(client.client_id)
    return Member(
        client.client_id,
        client.address,
        client.language,
        client.version,
        None if own is None else _member_wants(own, differ),
        _queue_count(info),
    )


_Wants = dict[str, dict[str, tuple[str, str]]]
"""Client id to topic to expression and its type."""


def _queue_count(info: RunningInfo | None) -> int | None:
    """How many queues a member has, without those of the retry topic, which every member asks."""
    if info is None:
        return None
    return sum(not is_retry_topic(each.topic) for each in info.queues)


def _wants(infos: Mapping[str, RunningInfo]) -> _Wants:
    return {
        client_id: {
            each.topic: (each.expression, each.expression_type)
            for each in info.subscriptions
            if not is_retry_topic(each.topic)
        }
        for client_id, info in infos.items()
    }


def _different(wants: _Wants) -> set[str]:
    """Topics of which the members do not all want the same; spaces and order count for nothing."""
    topics = {topic for of in wants.values() for topic in of}
    return {topic for topic in topics if len({_plain(of.get(topic)) for of in wants.values()}) > 1}


def _plain(wanted: tuple[str, str] | None) -> tuple[object, str] | None:
    if wanted is None:
        return None
    expression, kind = wanted
    if kind == "SQL92":
        return expression, kind
    return frozenset(each.strip() for each in expression.split("||")), kind


def _member_wants(of: Mapping[str, tuple[str, str]], differ: set[str]) -> tuple[WantedTopic, ...]:
    return tuple(WantedTopic(topic, *of[topic], topic in differ) for topic in sorted(of))


def _queue(queue: QueueProgress, owners: Mapping[tuple[str, str, int], str]) -> GroupQueue:
    owner = owners.get((queue.topic, queue.broker_name, queue.queue_id), "")
    return GroupQueue(
        topic=queue.topic,
        broker_name=queue.broker_name,
        queue_id=queue.queue_id,
        committed=queue.committed,
        pulled=queue.pulled,
        end=queue.end,
        lag=queue.lag,
        delay_s=queue.delay_s,
        owner=owner,
        idles=bool(queue.lag) and queue.pulled > queue.committed,
    )
