"""What a group did with a message: the table, case by case."""

from __future__ import annotations

from typing import Any

import pytest

from trocket.client import MessageTrace
from trocket.operations.message_life import (
    CopyKind,
    GroupFacts,
    OutcomeKind,
    RefusalReason,
    Source,
    group_outcome,
)

from .facts_of import (
    NOW_MS,
    STORED_MS,
    copy,
    group,
    member,
    message,
    pop,
    run,
    trace,
    wants,
)

K, S = OutcomeKind, Source
LATER = {"started_ms": STORED_MS + 1}
NARROW = "created || paid"

CASES: dict[str, tuple[GroupFacts, MessageTrace | None, OutcomeKind, tuple[Source, ...]]] = {
    "a consumer says so": (group(11), trace(run(True)), K.CONSUMED, (S.TRACE,)),
    "a consumer says so, and the offset is behind": (
        group(3), trace(run(True)), K.CONSUMED, (S.TRACE,),
    ),
    "it succeeded at last, whatever copies there are": (
        group(11, copies=(copy(CopyKind.RETRY, 2),)),
        trace(run(False), run(True, 1)), K.CONSUMED, (S.TRACE,),
    ),
    "another group's consumer says so": (
        group(3), trace(run(True, of="other")), K.WAITING, (S.GROUP_OFFSET,),
    ),
    "the offset has passed, without members": (
        group(11), None, K.CONSUMED_OR_FILTERED, (S.GROUP_OFFSET,),
    ),
    "the offset has passed, and all want it": (
        group(11, members=(member("a"), member("b", "refund"))),
        None, K.CONSUMED_OR_FILTERED, (S.GROUP_OFFSET,),
    ),
    "the offset has passed, and began without an end": (
        group(11), trace(run(None)), K.CONSUMED_OR_FILTERED, (S.GROUP_OFFSET,),
    ),
    "the owner does not want it": (
        group(11, members=(member("a", NARROW, has_queue=True), member("b"))),
        None, K.PASSED_OVER, (S.GROUP_OFFSET, S.MEMBER),
    ),
    "the owner wants it, and another member does not": (
        group(11, members=(member("a", NARROW), member("b", has_queue=True))),
        None, K.CONSUMED_OR_FILTERED, (S.GROUP_OFFSET, S.MEMBER),
    ),
    "the owner does not want it, and joined after it was stored": (
        group(11, members=(member("a", NARROW, has_queue=True, **LATER), member("b"))),
        None, K.CONSUMED_OR_FILTERED, (S.GROUP_OFFSET, S.MEMBER),
    ),
    "the owner does not want it, and does not say since when": (
        group(11, members=(member("a", NARROW, has_queue=True, started_ms=None),)),
        None, K.CONSUMED_OR_FILTERED, (S.GROUP_OFFSET, S.MEMBER),
    ),
    "no one owns the queue, and none wants it": (
        group(11, members=(member("a", NARROW), member("b", "paid"))),
        None, K.PASSED_OVER, (S.GROUP_OFFSET, S.MEMBER),
    ),
    "no one owns the queue, none wants it, and one joined later": (
        group(11, members=(member("a", NARROW), member("b", "paid", **LATER))),
        None, K.CONSUMED_OR_FILTERED, (S.GROUP_OFFSET, S.MEMBER),
    ),
    "no one owns the queue, and one is silent": (
        group(11, members=(member("a", NARROW), member("b", None, is_silent=True))),
        None, K.CONSUMED_OR_FILTERED, (S.GROUP_OFFSET, S.MEMBER),
    ),
    "a class filter decides": (
        group(11, members=(member("a", "com.shop.Cheap", kind="CLASS", has_queue=True),)),
        None, K.CONSUMED_OR_FILTERED, (S.GROUP_OFFSET,),
    ),
    "popped, and not acknowledged": (
        group(11, pops=(pop(NOW_MS + 1),)), None, K.IN_FLIGHT, (S.POPS,),
    ),
    "popped, and its time is over": (
        group(3, pops=(pop(NOW_MS),)), None, K.WAITING, (S.GROUP_OFFSET,),
    ),
    "a delivery began": (group(3), trace(run(None)), K.IN_FLIGHT, (S.TRACE,)),
    "the next delivery began": (
        group(11, copies=(copy(CopyKind.RETRY, 2),)),
        trace(run(False), run(None, 1)), K.IN_FLIGHT, (S.TRACE,),
    ),
    "a delivery began, and was sent back since": (
        group(11, copies=(copy(CopyKind.SCHEDULED, 2),)),
        trace(run(None)), K.RETRYING, (S.DELAYED_TOPIC,),
    ),
    "a delivery failed where it is": (group(3), trace(run(False)), K.RETRYING, (S.TRACE,)),
    "a copy waits for its time": (
        group(11, copies=(copy(CopyKind.SCHEDULED, 2, due_ms=NOW_MS + 5),)),
        None, K.RETRYING, (S.DELAYED_TOPIC,),
    ),
    "a copy waits in the retry topic": (
        group(11, copies=(copy(CopyKind.SCHEDULED, 2), copy(CopyKind.RETRY, 2, committed=5))),
        None, K.RETRYING, (S.RETRY_TOPIC,),
    ),
    "the group went on behind the copy": (
        group(11, copies=(copy(CopyKind.RETRY, 2, committed=6),)),
        None, K.CONSUMED_OR_FILTERED, (S.RETRY_TOPIC,),
    ),
    "given up": (
        group(11, copies=(copy(CopyKind.RETRY, 2), copy(CopyKind.DEAD_LETTER, 2))),
        None, K.DEAD_LETTER, (S.DEAD_LETTER_TOPIC,),
    ),
    "given up, and a consumer says why": (
        group(11, copies=(copy(CopyKind.DEAD_LETTER, 1),)),
        trace(run(False)), K.DEAD_LETTER, (S.DEAD_LETTER_TOPIC, S.TRACE),
    ),
    "the offset is before it": (group(10), None, K.WAITING, (S.GROUP_OFFSET,)),
    "the offset is before it, and the group reads": (
        group(4, rate=2.0, behind_queues=2), None, K.WAITING, (S.GROUP_OFFSET, S.GROUP_RATE),
    ),
    "it subscribes, and has no offset yet": (
        group(members=(member("a"),), is_online=True, subscription=wants("*")),
        None, K.WAITING, (S.GROUP_SUBSCRIPTION,),
    ),
    "neither offset nor subscription": (
        group(), None, K.NEVER_SUBSCRIBED, (S.GROUP_OFFSET, S.GROUP_SUBSCRIPTION),
    ),
    "members of another topic": (
        group(is_online=True, members=(member("a", None),)),
        None, K.NEVER_SUBSCRIBED, (S.GROUP_OFFSET, S.GROUP_SUBSCRIPTION),
    ),
    "no broker said who is connected": (group(is_online=None), None, K.UNKNOWN, ()),
    "no broker said where it is": (group(has_offset=None), None, K.UNKNOWN, ()),
    "it broadcasts": (
        group(message_model="BROADCASTING"), None, K.BROADCASTING, (S.GROUP_SUBSCRIPTION,),
    ),
    "it broadcasts, and a member says that it has it": (
        group(message_model="BROADCASTING"),
        trace(run(True)), K.BROADCASTING, (S.GROUP_SUBSCRIPTION, S.TRACE),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_a_group_did_with_a_message(name: str) -> None:
    facts, traced, kind, known_from = CASES[name]
    found = group_outcome(message(), facts, traced, NOW_MS)
    assert (found.group, found.kind, found.known_from) == ("g", kind, known_from)


def test_every_outcome_has_a_case() -> None:
    assert {kind for _, _, kind, _ in CASES.values()} == set(OutcomeKind)


@pytest.mark.parametrize(
    ("facts", "traced", "expected"),
    [
        (group(11), trace(run(True)), {"clients": ("10.0.0.8",), "at_ms": STORED_MS + 57}),
        (
            group(11, pops=(pop(NOW_MS + 9),)),
            None,
            {"at_ms": STORED_MS + 20, "until_ms": NOW_MS + 9},
        ),
        (
            group(11, copies=(copy(CopyKind.SCHEDULED, 3, due_ms=NOW_MS + 5),)),
            None,
            {"until_ms": NOW_MS + 5, "deliveries": 2},
        ),
        (
            group(11, copies=(copy(CopyKind.DEAD_LETTER, 4),)),
            trace(run(False)),
            {"deliveries": 4, "failure": "EXCEPTION", "at_ms": STORED_MS + 10},
        ),
        (group(4, rate=2.0, behind_queues=2), None, {"before": 6, "wait_s": 6.0, "committed": 4}),
        (group(10, rate=0.0), None, {"before": 0, "wait_s": None}),
    ],
)
def test_the_values_of_outcomes(
    facts: GroupFacts, traced: MessageTrace | None, expected: dict[str, Any]
) -> None:
    found = group_outcome(message(), facts, traced, NOW_MS)
    assert {name: getattr(found, name) for name in expected} == expected


def test_deleted_messages_do_not_count_as_waiting_before_it() -> None:
    found = group_outcome(message(queue_begin=8), group(0), None, NOW_MS)
    assert found.before == 2


@pytest.mark.parametrize(
    ("expression", "kind", "reason", "term"),
    [
        (NARROW, "TAG", RefusalReason.TAG, ""),
        ("price > 10", "SQL92", RefusalReason.FALSE, "price > 10"),
        ("price < 10 AND region = 'eu'", "SQL92", RefusalReason.UNKNOWN, "region = 'eu'"),
        ("price < 10 AND TAGS > 5", "SQL92", RefusalReason.ERROR, "TAGS > 5"),
        ("price >", "SQL92", RefusalReason.BAD_EXPRESSION, ""),
    ],
)
def test_a_refusal_says_who_and_why(
    expression: str, kind: str, reason: RefusalReason, term: str
) -> None:
    facts = group(11, members=(member("a", expression, kind=kind, has_queue=True),))
    (refusal,) = group_outcome(message(), facts, None, NOW_MS).refusals
    assert (refusal.client_id, refusal.expression, refusal.expression_type) == (
        "a", expression, kind,
    )  # fmt: skip
    assert (refusal.reason, refusal.term) == (reason, term)


@pytest.mark.parametrize("expression", ["*", "", "refund", " paid || refund ", "a||refund"])
def test_who_wants_it_does_not_refuse(expression: str) -> None:
    facts = group(11, members=(member("a", expression, has_queue=True),))
    found = group_outcome(message(), facts, None, NOW_MS)
    assert (found.kind, found.refusals) == (OutcomeKind.CONSUMED_OR_FILTERED, ())


def test_tags_with_one_hash_code_are_noted() -> None:
    """Java's hash codes of "Aa" and "BB" are equal: the broker lets the message pass."""
    facts = group(11, members=(member("a", "BB || C", has_queue=True),))
    found = group_outcome(message(tags="Aa"), facts, None, NOW_MS)
    assert found.collisions == ("BB",)
    assert [each.reason for each in found.refusals] == [RefusalReason.COLLISION]
    assert group_outcome(message(tags="D"), facts, None, NOW_MS).collisions == ()


def test_a_delayed_message_waits_in_every_group() -> None:
    delayed = message(stored_topic="SCHEDULE_TOPIC_XXXX", due_ms=NOW_MS + 7)
    found = group_outcome(delayed, group(11), None, NOW_MS)
    assert (found.kind, found.known_from) == (OutcomeKind.WAITING, (Source.DELAYED_TOPIC,))
    assert (found.until_ms, found.before) == (NOW_MS + 7, None)
