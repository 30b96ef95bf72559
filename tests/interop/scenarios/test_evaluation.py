"""The evaluation of fault scenarios: correct facts pass, and each wrong fact is found."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from trocket.interop.scenarios.faults import (
    ALL_FAULTS,
    FAULT_SCENARIOS,
    TRIES,
    BrokerState,
    Consume,
    Fault,
    FaultScenario,
    ProgramReport,
    Received,
    Send,
    evaluate,
    summary,
)

BODIES = [f"{key}/{step}" for step in range(15) for key in range(4)]
SYNC, ORDERED, DELAYED, TRANSACTION, RETRY = (
    next(one for one in FAULT_SCENARIOS if one.name == f"through_{name}")
    for name in ("sync", "ordered", "delayed", "transaction", "retry")
)


def came(body: str, tries: int = 0, **different: Any) -> Received:
    key, _, step = body.partition("/")
    row = Received(body, tries, f"T{key}", f"k-{body}", step, True, 60_000)
    return msgspec.structs.replace(row, **different)


def good(scenario: FaultScenario) -> ProgramReport:
    """A correct report: 20 messages sent before, during and after the fault."""
    wanted = [b for b in BODIES if scenario.send is not Send.TRANSACTION or b[0] in "02"]
    tries = range(TRIES) if scenario.consume is Consume.RETRY else range(1)
    received = [came(body, number) for number in tries for body in wanted]
    return ProgramReport(list(BODIES), [20, 20, 20], [], received)


def state_of(scenario: FaultScenario) -> BrokerState:
    return BrokerState([b for b in BODIES if scenario.send is not Send.TRANSACTION or b[0] in "02"])


@pytest.mark.parametrize("fault", ALL_FAULTS)
@pytest.mark.parametrize("scenario", FAULT_SCENARIOS, ids=lambda one: one.name)
def test_what_holds_is_as_expected(scenario: FaultScenario, fault: str) -> None:
    assert evaluate(scenario, fault, good(scenario), state_of(scenario)) == scenario.facts(fault)


def differing(
    scenario: FaultScenario, fault: str, report: ProgramReport, has: BrokerState
) -> dict[str, Any]:
    facts = evaluate(scenario, fault, report, has)
    assert facts.keys() == scenario.facts(fault).keys()
    return {name: fact for name, fact in facts.items() if fact != scenario.facts(fault)[name]}


def changed(report: ProgramReport, **members: Any) -> ProgramReport:
    return msgspec.structs.replace(report, **members)


def test_a_message_that_never_came_is_lost() -> None:
    report = good(SYNC)
    report.received.remove(came("1/7"))
    assert differing(SYNC, Fault.KILL, report, state_of(SYNC)) == {"lost": ["1/7"]}


def test_a_message_that_only_failed_is_not_lost() -> None:
    report = changed(good(SYNC), failed=["9/9: no answer"])
    assert differing(SYNC, Fault.KILL, report, state_of(SYNC)) == {}


def test_a_message_that_is_not_in_the_store_is_missed() -> None:
    has = BrokerState([body for body in BODIES if body != "0/3"])
    assert differing(SYNC, Fault.KILL, good(SYNC), has) == {"not_stored": ["0/3"]}


def test_a_message_that_was_never_sent_is_found() -> None:
    report = good(SYNC)
    report.received.append(came("3/99"))
    assert differing(SYNC, Fault.KILL, report, state_of(SYNC)) == {"never_sent": ["3/99"]}


def test_a_failed_send_that_was_stored_was_sent() -> None:
    report = changed(good(SYNC), failed=["3/99: no answer"])
    report.received.append(came("3/99"))
    assert differing(SYNC, Fault.KILL, report, state_of(SYNC)) == {}


@pytest.mark.parametrize(
    "different",
    [{"tags": "T2"}, {"tags": None}, {"keys": ""}, {"step": "8"}, {"own_topic": False}],
    ids=str,
)
def test_a_message_that_changed_on_its_way_is_seen(different: dict[str, Any]) -> None:
    report = good(SYNC)
    report.received[report.received.index(came("1/7"))] = came("1/7", **different)
    facts = differing(SYNC, Fault.KILL, report, state_of(SYNC))
    assert list(facts) == ["changed"]
    assert facts["changed"][0].startswith("1/7 came as")


def test_a_group_that_is_behind_is_found() -> None:
    has = replace(state_of(SYNC), left_behind=["T/0: 14 of 15"])
    facts = differing(SYNC, Fault.KILL, good(SYNC), has)
    assert facts == {"left_behind": ["T/0: 14 of 15"]}


@pytest.mark.parametrize(("counts", "name"), [([19, 20, 20], "before"), ([20, 20, 21], "after")])
def test_each_phase_must_have_been_acknowledged(counts: list[int], name: str) -> None:
    facts = differing(SYNC, Fault.KILL, changed(good(SYNC), counts=counts), state_of(SYNC))
    assert list(facts) == ["acknowledged"]
    assert facts["acknowledged"][name] != 20


def test_nothing_sent_during_the_fault_proves_nothing() -> None:
    report = changed(good(SYNC), counts=[20, 3, 20])
    assert differing(SYNC, Fault.KILL, report, state_of(SYNC)) == {"sent_during": False}
    assert differing(SYNC, Fault.NONE, report, state_of(SYNC)) == {}


@pytest.mark.parametrize("fault", [Fault.NONE, Fault.NAMESRV_GONE])
def test_where_the_broker_stays_nothing_may_come_twice(fault: str) -> None:
    report = good(SYNC)
    report.received.append(came("1/7"))
    assert differing(SYNC, fault, report, state_of(SYNC)) == {"repeated": ["1/7 came"]}
    twice = BrokerState([*BODIES, "2/2"])
    assert differing(SYNC, fault, good(SYNC), twice) == {"repeated": ["2/2 stored"]}


@pytest.mark.parametrize("fault", [Fault.RESTART, Fault.KILL, Fault.SLOW_NETWORK])
def test_where_answers_get_lost_repeats_are_counted_only(fault: str) -> None:
    report = good(SYNC)
    report.received.append(came("1/7"))
    twice = BrokerState([*BODIES, "2/2"])
    assert differing(SYNC, fault, report, twice) == {}
    assert summary(report, twice) == (
        "60 acknowledged, 0 sends failed, 1 stored again, 1 came again"
    )


def test_a_message_that_overtakes_one_of_its_key_is_found() -> None:
    report = good(ORDERED)
    first, second = (report.received.index(came(body)) for body in ("2/4", "2/5"))
    report.received[first], report.received[second] = came("2/5"), came("2/4")
    facts = differing(ORDERED, Fault.KILL, report, state_of(ORDERED))
    assert facts == {"overtaken": ["2/5 before 2/4"]}


def test_a_queue_that_is_handed_out_again_overtakes_nothing() -> None:
    report = good(ORDERED)
    again = [came(f"2/{step}") for step in range(3, 6)]
    place = report.received.index(came("2/5")) + 1
    report.received[place:place] = again
    assert differing(ORDERED, Fault.KILL, report, state_of(ORDERED)) == {}


def test_a_try_that_was_left_out_is_found() -> None:
    report = good(RETRY)
    report.received.remove(came("0/0", 1))
    assert differing(RETRY, Fault.KILL, report, state_of(RETRY)) == {"tries": [[0, 1, 2], [0, 2]]}


def test_a_message_without_its_last_try_is_lost() -> None:
    report = good(RETRY)
    report.received.remove(came("0/0", 2))
    facts = differing(RETRY, Fault.KILL, report, state_of(RETRY))
    assert facts == {"lost": ["0/0"], "tries": [[0, 1], [0, 1, 2]]}


def test_a_delayed_message_that_came_early_is_found() -> None:
    report = good(DELAYED)
    report.received[report.received.index(came("1/7"))] = came("1/7", age_ms=4999)
    report.received[report.received.index(came("0/7"))] = came("0/7", age_ms=1000)
    facts = differing(DELAYED, Fault.KILL, report, state_of(DELAYED))
    assert facts == {"early": ["1/7 after 4999 ms"]}


def test_what_was_rolled_back_may_not_come() -> None:
    report = good(TRANSACTION)
    report.received.append(came("3/3"))
    facts = differing(TRANSACTION, Fault.KILL, report, state_of(TRANSACTION))
    assert facts == {"rolled_back_but_came": ["3/3"]}


def test_of_many_wrong_messages_a_few_are_named() -> None:
    report = changed(good(SYNC), received=[])
    lost = differing(SYNC, Fault.KILL, report, state_of(SYNC))["lost"]
    assert len(lost) == 9
    assert lost[-1] == "and 52 more"


@pytest.mark.parametrize(
    ("wrong", "where"),
    [
        ({"acknowledged": 3}, "acknowledged"),
        ({"received": [["1/1", "0"]]}, "received"),
        ({"counts": None}, "counts"),
    ],
)
def test_what_is_no_report_is_refused(wrong: dict[str, Any], where: str) -> None:
    facts = {"acknowledged": [], "counts": [], "failed": [], "received": []}
    with pytest.raises(ValueError, match=where):
        ProgramReport.of({**facts, **wrong})
