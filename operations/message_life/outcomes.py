"""Outcomes of a message for groups, by what was learnt: a table of rules. Pure.

An offset that has passed a message shows that the group went on behind it, and nothing else: the
message may have been consumed, filtered, or skipped by a reset. So only a report of a consumer
makes it CONSUMED.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from ...client import MessageTrace, TracedConsumption
from ...remoting.bodies import MessageModel
from .facts import CopyFacts, CopyKind, GroupFacts, MemberFacts, MessageFacts
from .refusals import Refusal as Refusal
from .refusals import RefusalReason as RefusalReason
from .refusals import collisions, refusal_of
from .sources import Source as Source


class OutcomeKind(StrEnum):
    """What a group did with a message."""

    CONSUMED = "CONSUMED"
    """A consumer reported that it succeeded."""
    CONSUMED_OR_FILTERED = "CONSUMED_OR_FILTERED"
    """The group's offset has passed it; which of the two, or whether a reset skipped it, is in no
    record."""
    PASSED_OVER = "PASSED_OVER"
    """The group's offset has passed it, and the member that holds its queue, or every member, does
    not want it, and has been there since before it was stored."""
    IN_FLIGHT = "IN_FLIGHT"
    """It was delivered, and neither succeeded nor failed yet."""
    RETRYING = "RETRYING"
    """A delivery failed, and another one is to come."""
    DEAD_LETTER = "DEAD_LETTER"
    """The group gave it up."""
    WAITING = "WAITING"
    """The group's offset has not reached it."""
    NEVER_SUBSCRIBED = "NEVER_SUBSCRIBED"
    """The group has no offset in its queue, and no member subscribes to its topic."""
    BROADCASTING = "BROADCASTING"
    """Each member gets it, and keeps its offsets itself: a broker knows none of them."""
    UNKNOWN = "UNKNOWN"
    """Brokers did not say what is needed."""


class GroupOutcome(msgspec.Struct, frozen=True, rename="camel"):
    """What a group did with a message. None and "": not known, or without a meaning here.

    Attributes:
      known_from: the sources of this.
      clients: who consumed it or has it: the hosts in a trace.
      at_ms: when the consumption ended, or when it was delivered; ms since 1970, as all times.
      until_ms: when it becomes visible again, or when the next delivery is due.
      deliveries: how many are known of.
      failure: how the last known delivery failed, as in ConsumeOutcome.
      before: messages in its queue that come before it.
      wait_s: how long these take at the group's present rate, in seconds.
      committed: the group's offset in its queue.
      copy: the copy that stands for the message now.
      refusals: of PASSED_OVER, those that decided; of CONSUMED_OR_FILTERED, those of members who
        do not want it.
      collisions: tags that the group subscribes to, and that have the hash code of its other tag.
    """

    group: str
    kind: OutcomeKind
    known_from: tuple[Source, ...]
    clients: tuple[str, ...] = ()
    at_ms: int | None = None
    until_ms: int | None = None
    deliveries: int = 0
    failure: str = ""
    before: int | None = None
    wait_s: float | None = None
    committed: int | None = None
    copy: CopyFacts | None = None
    refusals: tuple[Refusal, ...] = ()
    collisions: tuple[str, ...] = ()


class _Case(msgspec.Struct, frozen=True):
    """What the rules go by.

    Attributes:
      runs: deliveries of the group that were reported, by time.
      copy: the newest copy.
    """

    message: MessageFacts
    group: GroupFacts
    runs: Sequence[TracedConsumption]
    copy: CopyFacts | None
    now_ms: int

    @property
    def is_passed(self) -> bool:
        """Whether the group's offset has passed the message in its queue."""
        committed = self.group.committed
        in_topic = self.message.is_in_topic
        return in_topic and committed is not None and committed > self.message.queue_offset

    @property
    def failure(self) -> str:
        """How the last reported delivery failed."""
        last = self.runs[-1] if self.runs else None
        if last is None or last.is_success is not False:
            return ""
        return last.outcome.name if last.outcome is not None else "FAILED"

    def outcome(self, kind: OutcomeKind, *known_from: Source, **values: object) -> GroupOutcome:
        copied = self.copy.attempt if self.copy is not None else 0
        made = GroupOutcome(
            self.group.group,
            kind,
            known_from,
            deliveries=max(len(self.runs), copied - (kind is OutcomeKind.RETRYING)),
            failure=self.failure if kind is not OutcomeKind.CONSUMED else "",
            committed=self.group.committed,
            copy=self.copy,
        )
        return msgspec.structs.replace(made, **values)


_Rule = Callable[[_Case], GroupOutcome | None]


def group_outcome(
    message: MessageFacts, group: GroupFacts, trace: MessageTrace | None, now_ms: int
) -> GroupOutcome:
    """What a group did with a message.

    Args:
      trace: None: nothing was reported.
      now_ms: ms since 1970.
    """
    runs = [each for each in trace.consumptions if each.group == group.group] if trace else []
    case = _Case(message, group, runs, group.copies[-1] if group.copies else None, now_ms)
    subscriptions = [group.subscription, *(each.subscription for each in group.members)]
    for rule in RULES:
        found = rule(case)
        if found is not None:
            colliding = collisions(message, subscriptions)
            return msgspec.structs.replace(found, collisions=colliding)
    return case.outcome(OutcomeKind.UNKNOWN)


def _broadcasts(case: _Case) -> GroupOutcome | None:
    if case.group.message_model != MessageModel.BROADCASTING:
        return None
    hosts = sorted({each.client_host for each in case.runs if each.is_success})
    known_from = (Source.GROUP_SUBSCRIPTION, *([Source.TRACE] if hosts else []))
    return case.outcome(OutcomeKind.BROADCASTING, *known_from, clients=tuple(hosts))


def _consumed(case: _Case) -> GroupOutcome | None:
    done = [each for each in case.runs if each.is_success]
    if not done:
        return None
    last = done[-1]
    ended = None if last.time_ms is None else last.time_ms + (last.cost_ms or 0)
    clients = tuple(sorted({each.client_host for each in done}))
    return case.outcome(OutcomeKind.CONSUMED, Source.TRACE, clients=clients, at_ms=ended)


def _popped(case: _Case) -> GroupOutcome | None:
    held = [each for each in case.group.pops or () if each.visible_ms > case.now_ms]
    if not held:
        return None
    last = max(held, key=lambda each: each.popped_ms)
    return case.outcome(
        OutcomeKind.IN_FLIGHT, Source.POPS, at_ms=last.popped_ms, until_ms=last.visible_ms
    )


def _dead(case: _Case) -> GroupOutcome | None:
    copy = case.copy
    if copy is None or copy.kind is not CopyKind.DEAD_LETTER:
        return None
    known_from = (Source.DEAD_LETTER_TOPIC, *([Source.TRACE] if case.failure else []))
    return case.outcome(OutcomeKind.DEAD_LETTER, *known_from, at_ms=copy.store_ms)


def _running(case: _Case) -> GroupOutcome | None:
    """A delivery began and its end was not reported, and nothing shows that it is over."""
    last = case.runs[-1] if case.runs else None
    if last is None or last.is_success is not None:
        return None
    copy, attempt = case.copy, (last.retry_times or 0) + 1
    if case.is_passed if copy is None else attempt < copy.attempt or _is_passed(copy):
        return None
    return case.outcome(
        OutcomeKind.IN_FLIGHT, Source.TRACE, clients=(last.client_host,), at_ms=last.time_ms
    )


def _retrying(case: _Case) -> GroupOutcome | None:
    copy = case.copy
    if copy is None:
        if case.failure and not case.is_passed:
            return case.outcome(OutcomeKind.RETRYING, Source.TRACE)
        return None
    if copy.kind is CopyKind.SCHEDULED:
        return case.outcome(OutcomeKind.RETRYING, Source.DELAYED_TOPIC, until_ms=copy.due_ms)
    if copy.kind is CopyKind.RETRY and not _is_passed(copy):
        return case.outcome(OutcomeKind.RETRYING, Source.RETRY_TOPIC, until_ms=copy.store_ms)
    return None


def _retried(case: _Case) -> GroupOutcome | None:
    """The offset of the retry topic has passed the last copy."""
    if case.copy is None:
        return None
    return case.outcome(OutcomeKind.CONSUMED_OR_FILTERED, Source.RETRY_TOPIC)


def _is_passed(copy: CopyFacts) -> bool:
    return copy.committed is not None and copy.committed > copy.queue_offset


def _passed_over(case: _Case) -> GroupOutcome | None:
    if not case.is_passed:
        return None
    # One that joined later cannot have been there when the group went on behind the message.
    there = [
        each
        for each in case.group.members
        if each.subscription is not None
        and each.started_ms is not None
        and each.started_ms <= case.message.store_ms
    ]
    owner = next((each for each in there if each.has_queue), None)
    wanting = [each for each in case.group.members if each.subscription is not None]
    is_all = not any(each.is_silent for each in case.group.members) and len(wanting) == len(there)
    decided_by = [owner] if owner is not None else there if is_all else []
    refusals = _refusals(case, decided_by)
    if not refusals or len(refusals) < len(decided_by):
        return None
    return case.outcome(
        OutcomeKind.PASSED_OVER, Source.GROUP_OFFSET, Source.MEMBER, refusals=refusals
    )


def _consumed_or_filtered(case: _Case) -> GroupOutcome | None:
    if not case.is_passed:
        return None
    refusals = _refusals(case, case.group.members)
    known_from = (Source.GROUP_OFFSET, *([Source.MEMBER] if refusals else []))
    return case.outcome(OutcomeKind.CONSUMED_OR_FILTERED, *known_from, refusals=refusals)


def _refusals(case: _Case, members: Sequence[MemberFacts]) -> tuple[Refusal, ...]:
    found = [
        refusal_of(each.client_id, each.subscription, case.message)
        for each in members
        if each.subscription is not None
    ]
    return tuple(each for each in found if each is not None)


def _never_subscribed(case: _Case) -> GroupOutcome | None:
    group = case.group
    if group.has_offset is not False or group.is_online is None:
        return None
    if _subscribes(group):
        return None
    known_from = (Source.GROUP_OFFSET, Source.GROUP_SUBSCRIPTION)
    return case.outcome(OutcomeKind.NEVER_SUBSCRIBED, *known_from)


def _subscribes(group: GroupFacts) -> bool:
    return group.subscription is not None or any(each.subscription for each in group.members)


def _waiting(case: _Case) -> GroupOutcome | None:
    group, message = case.group, case.message
    if group.has_offset is None:
        return None
    if not message.is_in_topic:
        source = Source.DELAYED_TOPIC if message.due_ms is not None else Source.MESSAGE
        return case.outcome(OutcomeKind.WAITING, source, until_ms=message.due_ms)
    if group.committed is None:
        if not _subscribes(group):
            return None
        return case.outcome(OutcomeKind.WAITING, Source.GROUP_SUBSCRIPTION)
    before = max(message.queue_offset - max(group.committed, message.queue_begin or 0), 0)
    share = (group.rate or 0.0) / max(group.behind_queues, 1)
    wait_s = before / share if share > 0 else None
    rate = [Source.GROUP_RATE] if wait_s is not None else []
    return case.outcome(
        OutcomeKind.WAITING, Source.GROUP_OFFSET, *rate, before=before, wait_s=wait_s
    )


RULES: Final[tuple[_Rule, ...]] = (
    _broadcasts,
    _consumed,
    _popped,
    _dead,
    _running,
    _retrying,
    _retried,
    _passed_over,
    _consumed_or_filtered,
    _never_subscribed,
    _waiting,
)
"""The first one that applies decides; without one, the outcome is UNKNOWN."""
