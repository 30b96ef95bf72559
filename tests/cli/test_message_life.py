"""`trocket message --life`: the sentences, and the command on a broker."""

from __future__ import annotations

from typing import Any

import anyio
import msgspec
import pytest

from trocket.cli import message_life as texts
from trocket.client import Admin, Message, MessageQueue, Producer, PullConsumer, SendResult
from trocket.operations.message_life import (
    Gap,
    GapReason,
    GroupOutcome,
    Life,
    LookUp,
    LookUpResult,
    OutcomeKind,
    Refusal,
    RefusalReason,
    Source,
    Stage,
    StageKind,
    StageState,
    Verdict,
    VerdictKey,
)
from trocket.testing import Broker

from .conftest import Run

ID = "7F00000124A551B6EF5F6C42A3AC0000"
TABLES: list[tuple[Any, Any]] = [
    (texts.VERDICTS, VerdictKey),
    (texts.STAGES, StageKind),
    (texts.STATES, StageState),
    (texts.OUTCOMES, OutcomeKind),
    (texts.SOURCES, Source),
    (texts.REFUSALS, RefusalReason),
    (texts.GAPS, GapReason),
]


@pytest.fixture(scope="module")
def broker(broker: Broker) -> Broker:
    broker.create_topic("T", 1)
    broker.create_group("behind")
    broker.create_group("over")
    broker.create_group("idle")
    return broker


@pytest.fixture(scope="module")
def sent(broker: Broker) -> SendResult:
    """Two messages in T, of which the group `over` has passed both, and `behind` one."""

    async def traffic() -> SendResult:
        async with Admin(broker.url) as admin:
            async with Producer(admin.client) as producer:
                await producer.send(Message("T", "x"))
                result = await producer.send(Message("T", "y"))
            for group, offset in (("over", 2), ("behind", 1)):
                async with PullConsumer(admin.client, group=group) as consumer:
                    await consumer.commit({MessageQueue("T", "broker-a", 0): offset})
        return result

    return anyio.run(traffic, backend="trio")


@pytest.mark.parametrize(("table", "names"), TABLES, ids=[n.__name__ for _, n in TABLES])
def test_every_name_has_a_text(table: dict[Any, Any], names: Any) -> None:
    assert set(table) == set(names)


@pytest.mark.parametrize("key", VerdictKey)
def test_every_verdict_is_a_sentence_of_one_line(key: VerdictKey) -> None:
    look_up = LookUp(ID, LookUpResult.FOUND, "T", "10.0.0.7:10911", 5, 1, 9)
    life = Life(1, look_up, Verdict(key, ("g", "h"), 3, 7), None, (), (), (), (), None)
    sentence = texts.verdict_text(life)
    assert sentence
    assert "\n" not in sentence
    assert "None" not in sentence


@pytest.mark.parametrize("kind", OutcomeKind)
def test_the_details_of_outcomes_leave_out_what_is_not_known(kind: OutcomeKind) -> None:
    assert "None" not in texts.outcome_details(GroupOutcome("g", kind, ()))


@pytest.mark.parametrize("kind", StageKind)
def test_the_details_of_stages_leave_out_what_is_not_known(kind: StageKind) -> None:
    stage = Stage(kind, StageState.UNKNOWN, (), offset=3, size=4, queue_id=0, broker_id=1)
    assert "None" not in texts.stage_details(stage)


def test_the_details_of_an_outcome() -> None:
    refusal = Refusal("10.0.0.21@7781", "created || paid", "TAG", RefusalReason.TAG)
    made = GroupOutcome("g", OutcomeKind.PASSED_OVER, (), committed=42, refusals=(refusal,))
    assert texts.outcome_details(made) == "offset 42, 10.0.0.21@7781 wants created || paid"
    made = GroupOutcome("g", OutcomeKind.WAITING, (), before=1204, wait_s=6.2)
    assert texts.outcome_details(made) == "1204 messages before it, about 6 s"
    made = GroupOutcome("g", OutcomeKind.DEAD_LETTER, (), deliveries=1, failure="EXCEPTION")
    assert texts.outcome_details(made) == "1 delivery, the last one: exception"
    made = GroupOutcome("g", OutcomeKind.WAITING, (), collisions=("Aa",))
    assert texts.outcome_details(made) == "tags with its hash code: Aa"


def test_the_stages_of_a_message_that_is_not_in_its_queue() -> None:
    stage = Stage(
        StageKind.QUEUE, StageState.NOT_YET, (), broker_name="b", queue_id=3, offset=9, end=9
    )
    assert texts.stage_details(stage) == "b/3 @9, the queue ends at 9"
    wrong = msgspec.structs.replace(stage, state=StageState.WRONG, tags_code=5, expected_code=6)
    assert texts.stage_details(wrong) == "b/3 @9, tag code 5, not 6"


def test_a_gap_says_why() -> None:
    gap = Gap("settings", "broker-a", GapReason.SILENT)
    assert texts.gap_text(gap) == "not known: settings of broker-a: no answer in time"
    assert texts.gap_text(Gap("crc", "", GapReason.REFUSED, "x")) == "not known: crc: x"


@pytest.mark.slow
def test_the_life_of_a_message(run: Run, sent: SendResult) -> None:
    shown = run("message", sent.offset_message_id, "--life", "--group", "idle")
    assert (shown.status, shown.err) == (0, "")
    (verdict,), *rows = shown.rows
    assert verdict == "waits for behind"
    assert [row[0] for row in rows[:4]] == [
        "sent", "in the commit log", "in its queue", "in the index",
    ]  # fmt: skip
    groups = {row[0]: row[1:] for row in rows[5:]}
    assert {name: row[0] for name, row in groups.items()} == {
        "behind": "waiting",
        "idle": "never subscribed",
        "over": "consumed or filtered",
    }
    assert groups["behind"][2:] == ["0 messages before it", "the group's offset"]
    tree = run("message", sent.message_id, "--topic", "T", "--life", "--json").json
    assert tree["verdict"] == {
        "key": "WAITING", "groups": ["behind"], "groupCount": 2, "dueMs": None,
    }  # fmt: skip
    assert tree["message"]["messageId"] == sent.message_id
    outcome = tree["outcomes"][0]
    assert (outcome["kind"], outcome["knownFrom"]) == ("WAITING", ["GROUP_OFFSET"])


@pytest.mark.slow
def test_a_message_that_is_not_found(run: Run, sent: SendResult) -> None:
    none = run("message", "A1B2", "--topic", "T", "--life")
    assert (none.status, none.out) == (1, "")
    assert none.err == "trocket: no message with the id A1B2 is in the topic T\n"
    tree = run("message", "A1B2", "--topic", "T", "--life", "--json")
    assert tree.status == 1
    assert '"key":"NOT_FOUND"' in tree.out
    elsewhere = run("message", "CB00710900002A9F0000000000000005", "--life")
    assert "203.0.113.9:10911, which is not of this cluster" in elsewhere.err
    assert run("message", "--topic", "T", "--key", "k", "--life").status == 2
    assert run("message", sent.message_id, "--group", "g").status == 2
