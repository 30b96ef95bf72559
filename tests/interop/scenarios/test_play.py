"""Each scenario has an outcome, however its program fails."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from trocket.interop.process import PeerError
from trocket.interop.scenarios import play as playing
from trocket.interop.scenarios import programs
from trocket.interop.scenarios.faults import Consume, Fault, FaultScenario, Send
from trocket.interop.scenarios.play import play
from trocket.interop.scenarios.programs import Outcome
from trocket.interop.scenarios.table import GO, Scenario

pytestmark = pytest.mark.slow

ONE, OTHER = Scenario("one", {}), Scenario("other", {})
THROUGH = FaultScenario("through", Send.SYNC, Consume.CONCURRENT)
ROWS = [[f"{key}/0", 0, f"T{key}", f"k-{key}/0", "0", True, 5] for key in range(4)]
REPORT = {
    "acknowledged": [row[0] for row in ROWS],
    "counts": [0, 4, 0],
    "failed": [],
    "received": ROWS,
}

PRELUDE = "import json, sys\ndef say(**report): print(json.dumps(report), flush=True)\n"


class FakeCluster:
    label = "fake"
    namesrv_address = "127.0.0.1:1"
    broker_address = "127.0.0.1:2"
    pids: Sequence[int] = ()

    def start(self) -> None: ...

    def start_broker(self) -> None: ...

    def stop_broker(self) -> None: ...

    def kill_broker(self) -> None: ...

    def close(self) -> None: ...


class FakeInjector:
    """Counts injections; with an error the cluster does not recover."""

    def __init__(self, error: str = "") -> None:
        self.fault = Fault.KILL
        self.namesrv_address = "127.0.0.1:1"
        self.count = 0
        self._error = error

    def inject(self) -> None:
        self.count += 1
        if self._error:
            raise PeerError(self._error)


@pytest.fixture(autouse=True)
def _no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextlib.contextmanager
    def no_client(address: str) -> Iterator[None]:
        yield

    monkeypatch.setattr(playing, "create_topics", lambda *_: None)
    monkeypatch.setattr(playing, "WireClient", no_client)
    monkeypatch.setattr(playing, "left_behind", lambda *_: [])
    monkeypatch.setattr(playing, "stored_bodies", lambda *_: [row[0] for row in ROWS])


def run(
    code: str,
    scenarios: Sequence[Any],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    **more: Any,
) -> dict[str, Outcome]:
    """Play them with a program of these lines in the place of Go's."""
    command = [sys.executable, "-c", PRELUDE + code]
    monkeypatch.setattr(programs, "command_of", lambda *_: command)
    outcomes = play({GO: scenarios}, FakeCluster(), folder, **more)
    assert {client for client, _ in outcomes} == {GO}
    return {name: outcome for (_, name), outcome in outcomes.items()}


def test_what_is_reported_is_the_outcome(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "say(scenario='one', facts={'x': [1]}, ms=1500)\n"
        "print('a word of logging')\n"
        "say(scenario='other', facts={}, error='broke')\n"
        "print('end')"
    )
    known: list[tuple[str, str]] = []
    outcomes = run(
        code,
        [ONE, OTHER],
        tmp_path,
        monkeypatch,
        on_outcome=lambda client, scenario, _: known.append((client, scenario.name)),
    )
    assert outcomes == {
        "one": Outcome({"x": [1]}, "", seconds=1.5),
        "other": Outcome({}, "broke"),
    }
    assert known == [(GO, "one"), (GO, "other")]


def test_a_program_that_falls_over_fails_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "say(scenario='one', facts={})\nsys.exit('out of memory')"
    outcomes = run(code, [ONE, OTHER], tmp_path, monkeypatch)
    assert outcomes["one"] == Outcome({}, "")
    assert "its program ended" in outcomes["other"].error
    assert "out of memory" in outcomes["other"].error


def test_a_program_that_forgets_one_fails_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "say(scenario='one', facts={})\nprint('end', flush=True)\nsys.stdin.read()"
    outcomes = run(code, [ONE, OTHER], tmp_path, monkeypatch)
    assert outcomes["other"].error == "its program ended without reporting it"


def test_a_program_that_is_not_in_time_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(playing, "TIMEOUT_S", 0.5)
    outcomes = run("sys.stdin.read()", [ONE], tmp_path, monkeypatch)
    assert outcomes["one"].error.startswith("no outcome in")


def test_a_program_that_cannot_be_built_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(*_: Any) -> list[str]:
        raise PeerError("no go")

    monkeypatch.setattr(programs, "command_of", build)
    outcomes = play({GO: [ONE]}, FakeCluster(), tmp_path)
    assert outcomes == {(GO, "one"): Outcome({}, "no go")}


GOING_ON = (
    "say(at='ready', scenario='through')\n"
    "assert sys.stdin.readline() == 'through ready\\n'\n"
    "say(at='done', scenario='through')\n"
    "assert sys.stdin.readline() == 'through done\\n'\n"
)


def test_the_fault_happens_once_all_are_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    injector = FakeInjector()
    code = GOING_ON + f"say(scenario='through', facts={REPORT!r})\nprint('end')"
    outcome = run(code, [THROUGH], tmp_path, monkeypatch, injector=injector)["through"]
    assert injector.count == 1
    assert outcome.error == ""
    assert outcome.facts["lost"] == []
    assert outcome.facts["sent_during"] is True
    assert outcome.note == "4 acknowledged, 0 sends failed, 0 stored again, 0 came again"


def test_one_that_falls_over_before_does_not_hold_the_others_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = FaultScenario("falls_over", Send.SYNC, Consume.CONCURRENT)
    injector = FakeInjector()
    code = (
        "say(scenario='falls_over', facts={}, error='no route')\n"
        f"{GOING_ON}say(scenario='through', facts={REPORT!r})\nprint('end')"
    )
    outcomes = run(code, [THROUGH, other], tmp_path, monkeypatch, injector=injector)
    assert injector.count == 1
    assert outcomes["falls_over"] == Outcome({}, "no route")
    assert outcomes["through"].error == ""


def test_a_broker_that_does_not_come_back_fails_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    injector = FakeInjector("the port is taken")
    code = GOING_ON + "sys.stdin.read()"
    outcomes = run(code, [THROUGH], tmp_path, monkeypatch, injector=injector)
    assert outcomes["through"].error == "kill: the port is taken"


def test_a_program_with_a_malformed_report_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = {**REPORT, "received": [["0/0"]]}
    code = GOING_ON + f"say(scenario='through', facts={wrong!r})\nprint('end')"
    outcomes = run(code, [THROUGH], tmp_path, monkeypatch, injector=FakeInjector())
    assert "report is malformed" in outcomes["through"].error


def test_what_ended_before_the_broker_was_asked_proves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = f"say(scenario='through', facts={REPORT!r})\nprint('end')"
    outcomes = run(code, [THROUGH], tmp_path, monkeypatch, injector=FakeInjector())
    assert outcomes["through"].error == "it ended before the broker's state was queried"


def test_a_group_that_does_not_commit_is_asked_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([["T/0: 1 of 2"], ["T/0: 1 of 2"], []])
    monkeypatch.setattr(playing, "left_behind", lambda *_: next(answers))
    code = GOING_ON + f"say(scenario='through', facts={REPORT!r})\nprint('end')"
    outcomes = run(code, [THROUGH], tmp_path, monkeypatch, injector=FakeInjector())
    assert outcomes["through"].facts["left_behind"] == []
    assert next(answers, None) is None


def test_a_group_that_never_commits_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(playing, "SETTLE_TIMEOUT_S", 0.3)
    monkeypatch.setattr(playing, "left_behind", lambda *_: ["T/0: 1 of 2"])
    code = GOING_ON + f"say(scenario='through', facts={REPORT!r})\nprint('end')"
    outcomes = run(code, [THROUGH], tmp_path, monkeypatch, injector=FakeInjector())
    assert outcomes["through"].facts["left_behind"] == ["T/0: 1 of 2"]
