"""Plays the scenarios of all clients on one broker at once, and a fault in the middle.

Scenarios of the fault table come to the point "ready", going on all the time; when all have, the
fault happens, and they are let past it. They come to "done" when everything they wait for has come;
the broker is asked then, as long as it takes a group to commit what it has consumed.
"""

from __future__ import annotations

import contextlib
import queue
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..peer import Cluster
from ..process import PeerError
from ..wire import WireClient
from .broker_view import left_behind, stored_bodies
from .faults import Fault, FaultScenario, Kept, Told, judge, summary
from .happening import Happening
from .programs import Outcome, Playable, Program, create_topics, prefix, topic_names
from .table import CLIENTS

TIMEOUT_S = 180.0
"""Of scenarios without a fault."""
READY_TIMEOUT_S = 120.0
THROUGH_TIMEOUT_S = 600.0
SETTLE_TIMEOUT_S = 20.0
"""How long a group may take to commit: clients do so every second or every 5 s."""
TICK_S = 0.25
TAIL_MAX = 3000

Key = tuple[str, str]
"""Client and name of a scenario."""

OnOutcome = Callable[[str, Playable, Outcome], None]


def play(
    scenarios: Mapping[str, Sequence[Playable]],
    cluster: Cluster,
    folder: Path,
    *,
    happening: Happening | None = None,
    on_outcome: OnOutcome | None = None,
    mark: str = "",
) -> dict[Key, Outcome]:
    """Play them on a cluster that has been started; each has an outcome.

    Args:
      scenarios: by client.
      folder: for what programs write.
      happening: the fault; None: nothing happens.
      on_outcome: called with each outcome as soon as it is known, in this thread.
      mark: what the names of all topics and groups begin with.
    Raises: PeerError: the broker does not take the topics.
    """
    happening = happening or Happening(Fault.NONE, cluster)
    director = _Director(scenarios, cluster, happening, on_outcome, mark)
    with contextlib.ExitStack() as stack:
        director.start(folder, stack)
        director.run()
    return director.outcomes


class _Director:
    """Hears what programs tell, one thing after the other, and says what they wait for."""

    def __init__(
        self,
        scenarios: Mapping[str, Sequence[Playable]],
        cluster: Cluster,
        happening: Happening,
        on_outcome: OnOutcome | None,
        mark: str,
    ) -> None:
        self.outcomes: dict[Key, Outcome] = {}
        self._scenarios: dict[Key, Playable] = {
            (client, scenario.name): scenario
            for client in sorted(scenarios, key=CLIENTS.index)
            for scenario in scenarios[client]
        }
        self._cluster = cluster
        self._happening = happening
        self._on_outcome = on_outcome
        self._mark = mark
        self._heard: queue.SimpleQueue[tuple[str, dict[str, Any]]] = queue.SimpleQueue()
        self._programs: dict[str, Program] = {}
        self._ended: set[str] = set()
        self._unready = {
            key for key, one in self._scenarios.items() if isinstance(one, FaultScenario)
        }
        self._happened = not self._unready
        self._settling: dict[Key, float] = {}
        self._kept: dict[Key, Kept] = {}
        self._started_s = time.monotonic()

    # ---- the programs --------------------------------------------------------------------

    def start(self, folder: Path, stack: contextlib.ExitStack) -> None:
        """Start the programs, to be killed with the stack; Go's last, others hide its build."""
        by_client: dict[str, list[Playable]] = {}
        for (client, _), scenario in self._scenarios.items():
            by_client.setdefault(client, []).append(scenario)
        for client, some in by_client.items():
            create_topics(self._cluster, prefix(client, self._mark), some)
        namesrv = self._happening.namesrv_address
        for client, some in by_client.items():
            try:
                program = Program(
                    client,
                    some,
                    before=prefix(client, self._mark),
                    namesrv=namesrv,
                    folder=folder / client,
                    on_told=lambda *told: self._heard.put(told),
                )
            except PeerError as error:
                self._give_up(client, str(error))
                continue
            stack.callback(program.kill)
            self._programs[client] = program

    def run(self) -> None:
        """Until each scenario has an outcome."""
        self._started_s = time.monotonic()
        limit_s = THROUGH_TIMEOUT_S if self._unready else TIMEOUT_S
        while len(self.outcomes) < len(self._scenarios):
            for client, told in self._next():
                self._hear(client, told)
            self._look_at_programs()
            self._let_happen()
            self._look_at_settling()
            if time.monotonic() - self._started_s > limit_s:
                for client in list(self._programs):
                    self._give_up(client, f"not in time, {limit_s:.0f} s")

    def _next(self) -> Iterator[tuple[str, dict[str, Any]]]:
        with contextlib.suppress(queue.Empty):
            yield self._heard.get(timeout=TICK_S)
            while True:
                yield self._heard.get_nowait()

    def _hear(self, client: str, told: dict[str, Any]) -> None:
        if "end" in told:
            self._ended.add(client)
            self._give_up(client, "its program ended without a word of it")
        elif "unreadable" in told:
            self._give_up(client, told["unreadable"])
        elif "at" in told:
            self._reached((client, told["scenario"]), told["at"])
        else:
            self._finish((client, told["scenario"]), told)

    def _reached(self, key: Key, point: str) -> None:
        if point == "ready":
            self._unready.discard(key)
            if self._happened:
                self._let_go_on(key, "ready")
        elif point == "done" and key in self._scenarios:
            self._settling[key] = time.monotonic() + SETTLE_TIMEOUT_S

    def _let_go_on(self, key: Key, point: str) -> None:
        program = self._programs[key[0]]
        # That a program has ended is found by looking at it, with its last lines.
        with contextlib.suppress(PeerError):
            program.let_go_on(key[1], point)

    def _look_at_programs(self) -> None:
        for client, program in self._programs.items():
            if client not in self._ended and not program.running:
                # What it said before it ended comes first.
                for other, told in self._drained():
                    self._hear(other, told)
                self._ended.add(client)
                self._give_up(client, f"its program ended\n{program.tail()[-TAIL_MAX:]}")

    def _drained(self) -> list[tuple[str, dict[str, Any]]]:
        found = []
        with contextlib.suppress(queue.Empty):
            while True:
                found.append(self._heard.get_nowait())
        return found

    # ---- the fault -----------------------------------------------------------------------

    def _let_happen(self) -> None:
        waited_s = time.monotonic() - self._started_s
        if self._happened or (self._unready and waited_s < READY_TIMEOUT_S):
            return
        self._happened = True
        try:
            self._happening.happen()
        except PeerError as error:
            for client in list(self._programs):
                self._give_up(client, f"{self._happening.fault}: {error}"[:TAIL_MAX])
            return
        for key, scenario in self._scenarios.items():
            if isinstance(scenario, FaultScenario) and key not in self.outcomes:
                self._let_go_on(key, "ready")

    def _look_at_settling(self) -> None:
        if not self._settling:
            return
        try:
            with WireClient(self._cluster.broker_address) as wire:
                for key, until_s in list(self._settling.items()):
                    topic = prefix(key[0], self._mark) + key[1]
                    topics = topic_names(topic, self._scenarios[key])
                    behind = left_behind(wire, topic, topics)
                    if not behind or time.monotonic() > until_s:
                        self._kept[key] = Kept(stored_bodies(wire, topic, topics[topic]), behind)
                        del self._settling[key]
                        self._let_go_on(key, "done")
        except PeerError as error:
            for key in list(self._settling):
                del self._settling[key]
                self._tell(key, Outcome({}, f"the broker cannot be asked: {error}"))

    # ---- outcomes ------------------------------------------------------------------------

    def _finish(self, key: Key, told: dict[str, Any]) -> None:
        scenario = self._scenarios.get(key)
        if scenario is None:
            return
        seconds = told.get("ms", 0) / 1000
        outcome = Outcome(told["facts"], told.get("error", ""), seconds=seconds)
        if isinstance(scenario, FaultScenario):
            self._unready.discard(key)
            self._settling.pop(key, None)
            outcome = self._judged(scenario, key, outcome)
        self._tell(key, outcome)

    def _judged(self, scenario: FaultScenario, key: Key, outcome: Outcome) -> Outcome:
        if outcome.error:
            return Outcome({}, outcome.error, seconds=outcome.seconds)
        kept = self._kept.get(key)
        if kept is None:
            return Outcome({}, "it ended before the broker was asked")
        try:
            told = Told.of(outcome.facts)
        except ValueError as error:
            return Outcome({}, f"its program told something else: {error}")
        facts = judge(scenario, self._happening.fault, told, kept)
        note = summary(told, kept)
        if self._happening.fault == Fault.NONE:
            note = ""
        return Outcome(facts, "", note, outcome.seconds)

    def _give_up(self, client: str, error: str) -> None:
        """What a client has not told of by now will never come."""
        for key in self._scenarios:
            if key[0] == client and key not in self.outcomes:
                self._unready.discard(key)
                self._settling.pop(key, None)
                self._tell(key, Outcome({}, error))

    def _tell(self, key: Key, outcome: Outcome) -> None:
        if key not in self.outcomes:
            self.outcomes[key] = outcome
            if self._on_outcome is not None:
                self._on_outcome(key[0], self._scenarios[key], outcome)
