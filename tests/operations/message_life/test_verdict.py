"""The stages of a message and the verdict on it."""

from __future__ import annotations

from typing import Any

import pytest

from trocket.client import MessageTrace, TracedSend, TracedType
from trocket.operations.message_life import (
    CopyKind,
    GroupFacts,
    LifeFacts,
    LookUp,
    LookUpResult,
    MessageFacts,
    Retention,
    SlaveFacts,
    Source,
    Stage,
    StageKind,
    StageState,
    Verdict,
    VerdictKey,
    life_of,
    stages,
)

from .facts_of import ID, NOW_MS, STORED_MS, copy, group, member, message, run, trace

DONE, NOT_YET, WRONG, UNKNOWN = StageState
HOUR_MS = 3_600_000


def stage(facts: MessageFacts, kind: StageKind) -> Stage:
    return next(each for each in stages(facts, None, NOW_MS) if each.kind is kind)


def verdict(facts: MessageFacts | None, *groups: GroupFacts, **values: Any) -> Verdict:
    look_up = LookUp(ID, LookUpResult.FOUND)
    return life_of(LifeFacts(NOW_MS, look_up, facts, groups=groups, **values)).verdict


@pytest.mark.parametrize(
    ("values", "kind", "state", "known_from"),
    [
        ({}, StageKind.LOG, DONE, (Source.MESSAGE, Source.LOG)),
        ({"is_intact": None}, StageKind.LOG, DONE, (Source.MESSAGE,)),
        ({"is_intact": False}, StageKind.LOG, WRONG, (Source.MESSAGE, Source.LOG)),
        ({}, StageKind.QUEUE, DONE, (Source.QUEUE,)),
        ({"queue_end": 10}, StageKind.QUEUE, NOT_YET, (Source.QUEUE_RANGE,)),
        ({"unit_offset": -1}, StageKind.QUEUE, NOT_YET, (Source.QUEUE,)),
        ({"unit_offset": 7}, StageKind.QUEUE, WRONG, (Source.QUEUE,)),
        ({"unit_offset": None}, StageKind.QUEUE, UNKNOWN, ()),
        ({}, StageKind.INDEX, DONE, (Source.INDEX,)),
        ({"is_indexed": False}, StageKind.INDEX, NOT_YET, (Source.INDEX,)),
        ({"is_indexed": None}, StageKind.INDEX, UNKNOWN, ()),
        ({"slaves": (SlaveFacts(1, "s:1", 300),)}, StageKind.SLAVE, DONE, (Source.SLAVE_LOG,)),
        ({"slaves": (SlaveFacts(1, "s:1", 299),)}, StageKind.SLAVE, NOT_YET, (Source.SLAVE_LOG,)),
        ({"slaves": (SlaveFacts(1, "s:1", None),)}, StageKind.SLAVE, UNKNOWN, ()),
        ({}, StageKind.DELETION, UNKNOWN, ()),
    ],
)
def test_the_stages_of_a_message(
    values: dict[str, Any], kind: StageKind, state: StageState, known_from: tuple[Source, ...]
) -> None:
    found = stage(message(**values), kind)
    assert (found.state, found.known_from) == (state, known_from)


def test_a_delayed_message_is_in_no_queue_yet() -> None:
    facts = message(stored_topic="SCHEDULE_TOPIC_XXXX", due_ms=NOW_MS + 5)
    found = {each.kind: each for each in stages(facts, None, NOW_MS)}
    assert (found[StageKind.DELAY].state, found[StageKind.DELAY].at_ms) == (NOT_YET, NOW_MS + 5)
    assert (found[StageKind.QUEUE].state, found[StageKind.QUEUE].offset) == (NOT_YET, None)


@pytest.mark.parametrize(
    ("log_end", "is_full", "at_ms"),
    [
        (900, False, NOW_MS + 48 * HOUR_MS),
        (1024, True, STORED_MS + 48 * HOUR_MS),
        (None, None, STORED_MS + 48 * HOUR_MS),
    ],
)
def test_a_file_that_is_written_yet_is_kept_longer(
    log_end: int | None, is_full: bool | None, at_ms: int
) -> None:
    found = stage(message(retention=Retention(1024, 48, "04"), log_end=log_end), StageKind.DELETION)
    assert (found.is_file_full, found.at_ms, found.delete_hours) == (is_full, at_ms, "04")


def test_the_producer_is_known_by_its_trace() -> None:
    sent = TracedSend(
        1, 3, "makers", "10.0.0.5", "client", "T", None, None, "b:1", None, 4,
        TracedType.NORMAL, True, "r",
    )  # fmt: skip
    traced = MessageTrace(ID, (sent,), (), (), ())
    found = stages(message(), traced, NOW_MS)[0]
    assert (found.group, found.client_id, found.cost_ms) == ("makers", "client", 3)
    assert found.known_from == (Source.MESSAGE, Source.TRACE)
    assert stage(message(properties={"PGROUP": "makers"}), StageKind.SENT).group == "makers"


@pytest.mark.parametrize(
    ("facts", "key"),
    [
        (message(is_intact=False), VerdictKey.DAMAGED),
        (message(stored_topic="RMQ_SYS_TRANS_HALF_TOPIC", is_half=True), VerdictKey.HALF),
        (message(stored_topic="SCHEDULE_TOPIC_XXXX", due_ms=7), VerdictKey.DELAYED),
        (message(queue_end=10), VerdictKey.NOT_IN_QUEUE),
        (message(unit_offset=7), VerdictKey.NOT_IN_QUEUE),
        (message(), VerdictKey.NO_GROUPS),
    ],
)
def test_what_is_wrong_with_the_message_is_said_first(facts: MessageFacts, key: VerdictKey) -> None:
    assert verdict(facts).key is key
    if key is not VerdictKey.NO_GROUPS:
        assert verdict(facts, group(11)).key is key


def test_the_worst_outcome_is_said_with_its_groups() -> None:
    by_name = {
        "dead": group(11, copies=(copy(CopyKind.DEAD_LETTER, 1),)),
        "passed": group(11, members=(member("a", "paid", has_queue=True),)),
        "behind": group(1),
        "over": group(11),
    }
    groups = [
        GroupFacts(**({f: getattr(each, f) for f in each.__struct_fields__} | {"group": name}))
        for name, each in by_name.items()
    ]
    keys = []
    while groups:
        found = verdict(message(), *groups)
        assert (found.groups, found.group_count) == ((groups[0].group,), len(groups))
        keys.append(found.key)
        del groups[0]
    assert keys == [
        VerdictKey.DEAD_LETTER,
        VerdictKey.PASSED_OVER,
        VerdictKey.WAITING,
        VerdictKey.CONSUMED_OR_FILTERED,
    ]
    all_ = verdict(message(), group(11), trace=trace(run(True)))
    assert all_ == Verdict(VerdictKey.CONSUMED, ("g",), 1)


@pytest.mark.parametrize("result", [each for each in LookUpResult if each != LookUpResult.FOUND])
def test_a_message_that_is_not_found_has_the_verdict_of_the_search(result: LookUpResult) -> None:
    life = life_of(LifeFacts(NOW_MS, LookUp(ID, result)))
    assert life.verdict == Verdict(VerdictKey(result.value))
    assert (life.stages, life.outcomes) == ((), ())
