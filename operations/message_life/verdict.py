"""The verdict on a message: one key, with values for the sentence that it stands for. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from ...client import MessageTrace
from .facts import Gap, LifeFacts, LookUp, LookUpResult, MessageFacts
from .outcomes import GroupOutcome, OutcomeKind, group_outcome
from .stages import Stage, StageKind, StageState, stages


class VerdictKey(StrEnum):
    """What is to be said first about a message. The first names are those of LookUpResult."""

    NO_ID = "NO_ID"
    NOT_FOUND = "NOT_FOUND"
    FOREIGN_BROKER = "FOREIGN_BROKER"
    DELETED = "DELETED"
    BEYOND_LOG = "BEYOND_LOG"
    NO_TOPIC = "NO_TOPIC"
    SILENT = "SILENT"
    REFUSED = "REFUSED"
    DAMAGED = "DAMAGED"
    """Its body does not have the CRC that is stored with it."""
    HALF = "HALF"
    """It waits for the end of its transaction."""
    DELAYED = "DELAYED"
    """It waits for its time."""
    NOT_IN_QUEUE = "NOT_IN_QUEUE"
    """It is in the commit log, and not in its queue: no consumer can get it."""
    NO_GROUPS = "NO_GROUPS"
    """It is stored, and no group consumes its topic."""
    DEAD_LETTER = "DEAD_LETTER"
    """A group gave it up. This and the next ones are the names of OutcomeKind: `groups` has those
    with this outcome, and no group has one that is named before it here."""
    PASSED_OVER = "PASSED_OVER"
    RETRYING = "RETRYING"
    WAITING = "WAITING"
    IN_FLIGHT = "IN_FLIGHT"
    UNKNOWN = "UNKNOWN"
    CONSUMED_OR_FILTERED = "CONSUMED_OR_FILTERED"
    BROADCASTING = "BROADCASTING"
    NEVER_SUBSCRIBED = "NEVER_SUBSCRIBED"
    CONSUMED = "CONSUMED"


WORST_FIRST: Final = (
    OutcomeKind.DEAD_LETTER,
    OutcomeKind.PASSED_OVER,
    OutcomeKind.RETRYING,
    OutcomeKind.WAITING,
    OutcomeKind.IN_FLIGHT,
    OutcomeKind.UNKNOWN,
    OutcomeKind.CONSUMED_OR_FILTERED,
    OutcomeKind.BROADCASTING,
    OutcomeKind.NEVER_SUBSCRIBED,
    OutcomeKind.CONSUMED,
)
"""Outcomes by how much they matter to who asks for a message."""


class Verdict(msgspec.Struct, frozen=True, rename="camel"):
    """What is to be said first about a message.

    Attributes:
      groups: those with the outcome of this name, sorted.
      group_count: of all groups with an outcome.
      due_ms: of DELAYED, ms since 1970.
    """

    key: VerdictKey
    groups: tuple[str, ...] = ()
    group_count: int = 0
    due_ms: int | None = None


class Life(msgspec.Struct, frozen=True, rename="camel"):
    """The life of a message.

    Attributes:
      now_ms, look_up, message, trace, other_groups, gaps: as in LifeFacts.
      stages: of the message; none, if it was not found.
      outcomes: of each group, sorted by its name.
    """

    now_ms: int
    look_up: LookUp
    verdict: Verdict
    message: MessageFacts | None
    stages: tuple[Stage, ...]
    outcomes: tuple[GroupOutcome, ...]
    other_groups: tuple[str, ...]
    gaps: tuple[Gap, ...]
    trace: MessageTrace | None


def life_of(facts: LifeFacts) -> Life:
    """What follows from what was learnt about a message."""
    message = facts.message
    reached: tuple[Stage, ...] = ()
    outcomes: tuple[GroupOutcome, ...] = ()
    if message is not None:
        reached = stages(message, facts.trace, facts.now_ms)
        outcomes = tuple(
            group_outcome(message, group, facts.trace, facts.now_ms) for group in facts.groups
        )
    return Life(
        now_ms=facts.now_ms,
        look_up=facts.look_up,
        verdict=_verdict(facts, reached, outcomes),
        message=message,
        stages=reached,
        outcomes=outcomes,
        other_groups=facts.other_groups,
        gaps=facts.gaps,
        trace=facts.trace,
    )


def _verdict(
    facts: LifeFacts, reached: tuple[Stage, ...], outcomes: tuple[GroupOutcome, ...]
) -> Verdict:
    if facts.look_up.result is not LookUpResult.FOUND or facts.message is None:
        return Verdict(VerdictKey(facts.look_up.result.value))
    count = len(outcomes)
    states = {each.kind: each.state for each in reached}
    if states[StageKind.LOG] is StageState.WRONG:
        return Verdict(VerdictKey.DAMAGED, group_count=count)
    if facts.message.is_half:
        return Verdict(VerdictKey.HALF, group_count=count)
    if not facts.message.is_in_topic:
        return Verdict(VerdictKey.DELAYED, group_count=count, due_ms=facts.message.due_ms)
    if states[StageKind.QUEUE] in (StageState.NOT_YET, StageState.WRONG):
        return Verdict(VerdictKey.NOT_IN_QUEUE, group_count=count)
    for kind in WORST_FIRST:
        groups = tuple(each.group for each in outcomes if each.kind is kind)
        if groups:
            return Verdict(VerdictKey(kind.value), groups, count)
    return Verdict(VerdictKey.NO_GROUPS)
