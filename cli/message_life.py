"""The life of a message in English: the verdict, its stages, and what each group did with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import typer

from ..common.terminal import printable, say, show, time_text
from ..operations.message_life import (
    Gap,
    GapReason,
    GroupOutcome,
    Life,
    LookUpResult,
    OutcomeKind,
    Refusal,
    RefusalReason,
    Source,
    Stage,
    StageKind,
    StageState,
    VerdictKey,
)

VERDICTS: Final[dict[VerdictKey, Callable[[Life], str]]] = {
    VerdictKey.NO_ID: lambda life: f"{life.look_up.message_id!r} is not the id of a message",
    VerdictKey.NOT_FOUND: lambda life: (
        f"no message with the id {life.look_up.message_id} is in {_where(life)}"
    ),
    VerdictKey.FOREIGN_BROKER: lambda life: (
        f"the id names the broker {life.look_up.address}, which is not of this cluster"
    ),
    VerdictKey.DELETED: lambda life: (
        f"the message is deleted: it was at byte {life.look_up.offset} of {life.look_up.address}, "
        f"whose log begins at {life.look_up.log_begin} now"
    ),
    VerdictKey.BEYOND_LOG: lambda life: (
        f"the id points to byte {life.look_up.offset} of {life.look_up.address}, whose log ends at "
        f"{life.look_up.log_end}: the message was lost, or the id is of another cluster"
    ),
    VerdictKey.NO_TOPIC: lambda life: f"there is no topic {life.look_up.topic}",
    VerdictKey.SILENT: lambda _: "the brokers that may have the message did not answer in time",
    VerdictKey.REFUSED: lambda life: f"a broker refused the search: {life.look_up.text}",
    VerdictKey.DAMAGED: lambda _: "the message is damaged: its body does not have its CRC",
    VerdictKey.HALF: lambda _: (
        "its transaction has not ended: no consumer can get the message until it is committed"
    ),
    VerdictKey.DELAYED: lambda life: (
        f"the message is delayed: it is due {time_text(life.verdict.due_ms)}"
    ),
    VerdictKey.NOT_IN_QUEUE: lambda _: (
        "the message is in the commit log, and not in its queue: no consumer can get it"
    ),
    VerdictKey.NO_GROUPS: lambda life: f"stored; no group consumes the topic {_topic(life)}",
    VerdictKey.DEAD_LETTER: lambda life: f"given up by {_groups(life)}: a dead letter",
    VerdictKey.PASSED_OVER: lambda life: (
        f"passed over by {_groups(life)}: no member that wants it had its queue"
    ),
    VerdictKey.RETRYING: lambda life: f"a delivery to {_groups(life)} failed, and comes again",
    VerdictKey.WAITING: lambda life: f"waits for {_groups(life)}",
    VerdictKey.IN_FLIGHT: lambda life: f"delivered to {_groups(life)}, and not done yet",
    VerdictKey.UNKNOWN: lambda life: f"of {_groups(life)} the brokers did not say enough",
    VerdictKey.CONSUMED_OR_FILTERED: lambda life: (
        f"{_groups(life)} went on behind it: consumed, filtered or skipped by a reset; only a trace"
        " would tell"
    ),
    VerdictKey.BROADCASTING: lambda life: (
        f"{_groups(life)} broadcasts: each member keeps its offsets itself, and no broker knows "
        "them"
    ),
    VerdictKey.NEVER_SUBSCRIBED: lambda life: f"{_groups(life)} never subscribed to its topic",
    VerdictKey.CONSUMED: lambda life: f"consumed by {_groups(life)}, as the trace says",
}

STAGES: Final[dict[StageKind, str]] = {
    StageKind.SENT: "sent",
    StageKind.LOG: "in the commit log",
    StageKind.DELAY: "delayed",
    StageKind.QUEUE: "in its queue",
    StageKind.INDEX: "in the index",
    StageKind.SLAVE: "on a slave",
    StageKind.DELETION: "deleted",
}
STATES: Final[dict[StageState, str]] = {
    StageState.DONE: "yes",
    StageState.NOT_YET: "not yet",
    StageState.WRONG: "wrong",
    StageState.UNKNOWN: "unknown",
}
OUTCOMES: Final[dict[OutcomeKind, str]] = {
    OutcomeKind.CONSUMED: "consumed",
    OutcomeKind.CONSUMED_OR_FILTERED: "consumed or filtered",
    OutcomeKind.PASSED_OVER: "passed over",
    OutcomeKind.IN_FLIGHT: "in flight",
    OutcomeKind.RETRYING: "retrying",
    OutcomeKind.DEAD_LETTER: "dead letter",
    OutcomeKind.WAITING: "waiting",
    OutcomeKind.NEVER_SUBSCRIBED: "never subscribed",
    OutcomeKind.BROADCASTING: "broadcasting",
    OutcomeKind.UNKNOWN: "unknown",
}
SOURCES: Final[dict[Source, str]] = {
    Source.MESSAGE: "the message",
    Source.TRACE: "the trace",
    Source.LOG: "the commit log",
    Source.LOG_RANGE: "the log's range",
    Source.QUEUE: "the queue",
    Source.QUEUE_RANGE: "the queue's range",
    Source.INDEX: "the index",
    Source.SLAVE_LOG: "the slave's log",
    Source.SETTINGS: "the settings",
    Source.GROUP_OFFSET: "the group's offset",
    Source.GROUP_RATE: "its rate",
    Source.GROUP_SUBSCRIPTION: "the group's subscription",
    Source.MEMBER: "its members",
    Source.POPS: "the records of pops",
    Source.RETRY_TOPIC: "the retry topic",
    Source.DELAYED_TOPIC: "the delayed messages",
    Source.DEAD_LETTER_TOPIC: "the dead letters",
}
REFUSALS: Final[dict[RefusalReason, str]] = {
    RefusalReason.TAG: "wants",
    RefusalReason.COLLISION: "wants (a tag with the same hash code)",
    RefusalReason.FALSE: "false:",
    RefusalReason.UNKNOWN: "a property is missing:",
    RefusalReason.ERROR: "cannot be compared:",
    RefusalReason.BAD_EXPRESSION: "cannot be compiled:",
}
GAPS: Final[dict[GapReason, str]] = {
    GapReason.SILENT: "no answer in time",
    GapReason.REFUSED: "refused",
    GapReason.NOT_SUPPORTED: "the broker does not serve this",
    GapReason.LIMITED: "more than is read at once",
    GapReason.NO_KEY: "the message has no unique key to look for",
    GapReason.STOPPED: "the broker is stopped",
}


def print_life(life: Life) -> None:
    """Print a life: the verdict as a line, then a table of stages and one of groups.

    What could not be learnt is said on standard error.
    """
    typer.echo(printable(verdict_text(life)))
    if life.message is not None:
        show(
            ["Stage", "Reached", "Time", "Details", "Known from"],
            [
                [
                    STAGES[each.kind],
                    STATES[each.state],
                    time_text(each.at_ms),
                    stage_details(each),
                    _sources(each.known_from),
                ]
                for each in life.stages
            ],
        )
    if life.outcomes:
        show(
            ["Group", "Outcome", "Time", "Details", "Known from"],
            [
                [
                    each.group,
                    OUTCOMES[each.kind],
                    time_text(each.at_ms),
                    outcome_details(each),
                    _sources(each.known_from),
                ]
                for each in life.outcomes
            ],
        )
    for gap in life.gaps:
        say(f"trocket: {printable(gap_text(gap))}")
    if life.other_groups:
        say(f"trocket: of {len(life.other_groups)} groups only the offset was asked for: --group")


def is_found(life: Life) -> bool:
    """Whether there is a message."""
    return life.look_up.result is LookUpResult.FOUND


def verdict_text(life: Life) -> str:
    """The verdict as one sentence, without a full stop."""
    return VERDICTS[life.verdict.key](life)


def gap_text(gap: Gap) -> str:
    """A gap as one line."""
    of = f" of {gap.of}" if gap.of else ""
    return f"not known: {gap.what}{of}: {gap.text or GAPS[gap.reason]}"


def stage_details(stage: Stage) -> str:
    """The details of a stage."""
    found: list[str] = []
    if stage.kind is StageKind.SENT:
        found = [*_named("group", stage.group), *_named("client", stage.client_id), stage.host]
        found += [f"{stage.cost_ms} ms"] if stage.cost_ms is not None else []
    elif stage.kind is StageKind.LOG:
        crc = {True: "CRC right", False: "CRC wrong", None: "CRC not checked"}[stage.is_intact]
        found = [f"{stage.host} at byte {stage.offset}", f"{stage.size} bytes", crc]
    elif stage.kind is StageKind.QUEUE and stage.offset is not None:
        found = [f"{stage.broker_name}/{stage.queue_id} @{stage.offset}"]
        if stage.state is StageState.NOT_YET and stage.end is not None:
            found.append(f"the queue ends at {stage.end}")
        if stage.tags_code not in (None, stage.expected_code):
            found.append(f"tag code {stage.tags_code}, not {stage.expected_code}")
    elif stage.kind is StageKind.SLAVE:
        found = [f"{stage.broker_id} at {stage.host}"]
        found += [f"its log ends at {stage.offset}"] if stage.offset is not None else []
    elif stage.kind is StageKind.DELETION and stage.reserved_hours is not None:
        found = [
            f"not before this time, kept {stage.reserved_hours} h",
            f"at the hours {stage.delete_hours}",
            *(["its file is still being written"] if stage.is_file_full is False else []),
        ]
    return ", ".join(found)


def outcome_details(outcome: GroupOutcome) -> str:
    """The details of an outcome."""
    found: list[str] = []
    if outcome.clients:
        found.append(f"by {' '.join(outcome.clients)}")
    if outcome.deliveries > 1 or (outcome.deliveries and outcome.failure):
        found.append(
            "1 delivery" if outcome.deliveries == 1 else f"{outcome.deliveries} deliveries"
        )
    if outcome.failure:
        found.append(f"the last one: {outcome.failure.lower()}")
    if outcome.until_ms is not None:
        word = "invisible until" if outcome.kind is OutcomeKind.IN_FLIGHT else "due"
        found.append(f"{word} {time_text(outcome.until_ms)}")
    if outcome.before is not None:
        found.append(f"{outcome.before} messages before it")
    if outcome.wait_s is not None:
        found.append(f"about {outcome.wait_s:.0f} s")
    if outcome.kind in (OutcomeKind.PASSED_OVER, OutcomeKind.CONSUMED_OR_FILTERED):
        found += [f"offset {outcome.committed}"] if outcome.committed is not None else []
    found += [refusal_text(each) for each in outcome.refusals]
    if outcome.collisions:
        found.append(f"tags with its hash code: {' '.join(outcome.collisions)}")
    return ", ".join(found)


def refusal_text(refusal: Refusal) -> str:
    """A refusal as a phrase: who, and what it wants."""
    return f"{refusal.client_id} {REFUSALS[refusal.reason]} {refusal.term or refusal.expression}"


def _named(what: str, name: str) -> list[str]:
    return [f"{what} {name}"] if name else []


def _sources(known_from: Iterable[Source]) -> str:
    return ", ".join(SOURCES[each] for each in known_from)


def _groups(life: Life) -> str:
    return ", ".join(life.verdict.groups)


def _topic(life: Life) -> str:
    return life.message.topic if life.message is not None else ""


def _where(life: Life) -> str:
    look_up = life.look_up
    if look_up.address:
        return f"the log of {look_up.address}"
    return f"the topic {look_up.topic}" if look_up.topic else "any topic"
