"""Scenarios that run through a fault, and the evaluation of what their programs report. Pure.

A program sends and consumes before, during and after a fault, repeats each send until it is
acknowledged, and reports everything: `ProgramReport`. Together with the broker's state afterwards,
`BrokerState`, it is evaluated here, in one place for all clients. The number of failed sends and of
duplicates differs from run to run; the evaluated facts do not depend on timing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec

from ..report.cells import NO_FAULT
from .table import (
    ALL,
    APACHES_4,
    CLIENTS,
    FOUR_QUEUES,
    GO,
    JAVA,
    JAVA_42,
    LITE_PULL_IS_NEW,
    POP_CLIENTS,
    PYTHON,
    WITH_JAVA_42,
)

KEYS = 4
"""A step is one message of each key: body KEY/STEP, tag TKEY, key k-KEY/STEP, property step."""
SENT_BEFORE = SENT_AFTER = 20
TRIES = 3
LEVEL_MS = (1000, 5000)
"""The delays of the delay levels, which keys use in turn."""
COMMITTED_KEYS = frozenset({"0", "2"})
"""Keys with committed transactions (those of 2 on a check); the others are rolled back."""
LISTED_MAX = 8


class Fault(StrEnum):
    """A fault that is injected while scenarios run."""

    NONE = NO_FAULT
    RESTART = "restart"
    """The broker is stopped gracefully and started again."""
    KILL = "kill"
    """The broker is killed with SIGKILL and started again."""
    NAMESRV_GONE = "namesrv-gone"
    """The name server is down for a while; the broker keeps running."""
    SLOW_NETWORK = "slow-network"
    """Data is delayed and split into small pieces, and connections are cut."""


ALL_FAULTS: tuple[str, ...] = tuple(Fault)
GENTLE = frozenset({Fault.NONE, Fault.NAMESRV_GONE})
"""Faults under which no message may be stored or delivered twice."""


class Send(StrEnum):
    """How a scenario sends."""

    SYNC = "sync"
    ASYNC = "async"
    BATCH = "batch"
    ORDERED = "ordered"
    DELAYED = "delayed"
    TRANSACTION = "transaction"


class Consume(StrEnum):
    """How a scenario consumes."""

    CONCURRENT = "concurrent"
    ORDERLY = "orderly"
    RETRY = "retry"
    """Each message is rejected twice."""
    SQL = "sql"
    PULL = "pull"
    POP = "pop"


RETRIED = {**FOUR_QUEUES, "%RETRY%{}": 1}
"""Topics created in advance: a client may poll for new topics only every 30 s."""


@dataclass(frozen=True)
class FaultScenario:
    """A combination of sending and consuming.

    Attributes: those of `table.Scenario`, and
      left_out: clients that have the feature but are excluded, with the reason.
    """

    name: str
    send: Send
    consume: Consume
    clients: tuple[str, ...] = ALL
    topics: Mapping[str, int] = field(default_factory=lambda: FOUR_QUEUES)
    not_on: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def argument(self) -> str:
        """The program's argument: NAME:SEND:CONSUME."""
        return f"{self.name}:{self.send}:{self.consume}"

    def facts(self, fault: str) -> dict[str, Any]:
        """The expected facts, for any client on any broker."""
        facts: dict[str, Any] = {
            "acknowledged": {"before": SENT_BEFORE, "after": SENT_AFTER},
            "sent_during": True,
            "lost": [],
            "not_stored": [],
            "never_sent": [],
            "changed": [],
            "left_behind": [],
        }
        if fault == Fault.NONE:
            del facts["sent_during"]
        if fault in GENTLE:
            facts["repeated"] = []
        if self.consume is Consume.ORDERLY:
            facts["overtaken"] = []
        if self.consume is Consume.RETRY:
            facts["tries"] = [list(range(TRIES))]
        if self.send is Send.DELAYED:
            facts["early"] = []
        if self.send is Send.TRANSACTION:
            facts["rolled_back_but_came"] = []
        return facts


FAULT_SCENARIOS = (
    FaultScenario("through_sync", Send.SYNC, Consume.CONCURRENT, CLIENTS),
    FaultScenario(
        "through_async",
        Send.ASYNC,
        Consume.CONCURRENT,
        WITH_JAVA_42,
        left_out={
            # The panic would end its program, with all other scenarios in it.
            GO: "this client panics when an asynchronous send times out (client.go:730)",
            # The next request reuses the opaque of the retried send, whose answer is then dropped:
            # with Apache's brokers, too.
            JAVA_42: "this client gives an asynchronous send that it tries again the opaque id of"
            " its next request (RemotingCommand.createNewRequestId), and may forget the callback",
        },
    ),
    FaultScenario("through_batch", Send.BATCH, Consume.CONCURRENT, WITH_JAVA_42),
    FaultScenario("through_ordered", Send.ORDERED, Consume.ORDERLY, CLIENTS),
    FaultScenario("through_delayed", Send.DELAYED, Consume.CONCURRENT, CLIENTS),
    FaultScenario("through_transaction", Send.TRANSACTION, Consume.CONCURRENT),
    FaultScenario("through_retry", Send.SYNC, Consume.RETRY, WITH_JAVA_42, RETRIED),
    FaultScenario("through_sql", Send.SYNC, Consume.SQL, WITH_JAVA_42),
    FaultScenario(
        "through_pull",
        Send.SYNC,
        Consume.PULL,
        (*JAVA, GO, *PYTHON),
        not_on=LITE_PULL_IS_NEW,
    ),
    FaultScenario("through_pop", Send.SYNC, Consume.POP, POP_CLIENTS, not_on=APACHES_4),
)


class Received(msgspec.Struct, frozen=True, array_like=True):
    """A received message; `age_ms`: since its producer created it."""

    body: str
    tries: int
    tags: str | None
    keys: str
    step: str | None
    own_topic: bool
    age_ms: int


class ProgramReport(msgspec.Struct, frozen=True):
    """What a program reports.

    Attributes:
      acknowledged: bodies of successful sends, in order.
      counts: how many of them before, during and after the fault.
      failed: sends that failed and were repeated: "BODY: ERROR".
      received: all received messages, in order.
    """

    acknowledged: list[str]
    counts: list[int]
    failed: list[str]
    received: list[Received]

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> ProgramReport:
        """Decode a program's facts. Raises: ValueError: malformed; the message names the place."""
        return msgspec.convert(facts, cls)


@dataclass(frozen=True)
class BrokerState:
    """The broker's state at the end.

    Attributes:
      bodies: the stored messages of the scenario's topic.
      left_behind: "TOPIC/QUEUE: OFFSET of MAX" for each queue in which the group lags.
    """

    bodies: Sequence[str]
    left_behind: Sequence[str] = ()


def evaluate(
    scenario: FaultScenario, fault: str, report: ProgramReport, state: BrokerState
) -> dict[str, Any]:
    """The facts to compare with those of `FaultScenario.facts`."""
    # A failed send may have been stored, so its message may be received, but need not be.
    tried = {*report.acknowledged, *(text.partition(":")[0] for text in report.failed)}
    wanted = [body for body in report.acknowledged if _is_wanted(scenario, body)]
    # Under RETRY earlier tries are rejected: only the last one consumes the message.
    last_try = TRIES - 1 if scenario.consume is Consume.RETRY else 0
    came = {one.body for one in report.received if one.tries >= last_try}
    before, during, after = (*report.counts, 0, 0, 0)[:3]
    facts: dict[str, Any] = {
        "acknowledged": {"before": before, "after": after},
        "lost": _some(body for body in wanted if body not in came),
        "not_stored": _some(set(wanted).difference(state.bodies)),
        "never_sent": _some({one.body for one in report.received} - tried),
        "changed": _some(_changes(one) for one in report.received if _changes(one)),
        "left_behind": list(state.left_behind),
    }
    if fault != Fault.NONE:
        facts["sent_during"] = during >= KEYS
    if fault in GENTLE:
        facts["repeated"] = _some(_repeated(report, state))
    if scenario.consume is Consume.ORDERLY:
        facts["overtaken"] = _some(_overtaken(report.received))
    if scenario.consume is Consume.RETRY:
        facts["tries"] = _tries(report.received)
    if scenario.send is Send.DELAYED:
        facts["early"] = _some(
            f"{m.body} after {m.age_ms} ms" for m in report.received if _early(m)
        )
    if scenario.send is Send.TRANSACTION:
        facts["rolled_back_but_came"] = _some(
            one.body for one in report.received if not _is_wanted(scenario, one.body)
        )
    return facts


def summary(report: ProgramReport, state: BrokerState) -> str:
    """The counts that differ from run to run, in one line."""
    stored = sum(times - 1 for times in Counter(state.bodies).values())
    came = sum(times - 1 for times in _times_come(report).values())
    return (
        f"{len(report.acknowledged)} acknowledged, {len(report.failed)} sends failed,"
        f" {stored} stored again, {came} came again"
    )


def _is_wanted(scenario: FaultScenario, body: str) -> bool:
    return scenario.send is not Send.TRANSACTION or body.partition("/")[0] in COMMITTED_KEYS


def _times_come(report: ProgramReport) -> Counter[tuple[str, int]]:
    return Counter((one.body, one.tries) for one in report.received)


def _repeated(report: ProgramReport, state: BrokerState) -> Iterable[str]:
    yield from (f"{body} stored" for body, times in Counter(state.bodies).items() if times > 1)
    yield from (f"{body} came" for (body, _), times in _times_come(report).items() if times > 1)


def _changes(one: Received) -> str:
    key, _, step = one.body.partition("/")
    expected = (f"T{key}", f"k-{one.body}", step, True)
    found = (one.tags, one.keys, one.step, one.own_topic)
    return "" if found == expected else f"{one.body} came as {found}"


def _overtaken(received: Iterable[Received]) -> Iterable[str]:
    """Messages received before an earlier one of their key; duplicates are ignored."""
    next_steps: dict[str, int] = defaultdict(int)
    for one in received:
        key, _, text = one.body.partition("/")
        step = int(text)
        if step > next_steps[key]:
            yield f"{one.body} before {key}/{next_steps[key]}"
        next_steps[key] = max(next_steps[key], step + 1)


def _tries(received: Iterable[Received]) -> list[list[int]]:
    """The distinct sets of tries over all messages."""
    tries: dict[str, set[int]] = defaultdict(set)
    for one in received:
        tries[one.body].add(one.tries)
    return sorted({tuple(sorted(some)): sorted(some) for some in tries.values()}.values())


def _early(one: Received) -> bool:
    return one.age_ms < LEVEL_MS[int(one.body.partition("/")[0]) % len(LEVEL_MS)]


def _some(texts: Iterable[str]) -> list[str]:
    """The first of them, sorted, and the number of the others."""
    found = sorted(texts)
    more = len(found) - LISTED_MAX
    return [*found[:LISTED_MAX], *([f"and {more} more"] if more > 0 else [])]
