"""The run of all clients' scenarios on one broker, with a fault in the middle.

Scenarios of the fault table report the point "ready" and keep sending; when all have reported, the
fault is injected, and they are resumed. They report "done" when they have received everything; the
broker's state is queried then, repeatedly until the group has committed its offsets.
"""

from __future__ import annotations

import contextlib
import queue
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ..peer import Cluster
from ..process import PeerError
from ..tls_files import ClientTls
from ..wire import Keys, WireClient
from .broker_view import left_behind, stored_bodies
from .fault_injector import FaultInjector
from .faults import BrokerState, Fault, FaultScenario, ProgramReport, evaluate, summary
from .programs import Outcome, Playable, Program, create_topics, prefix, topic_names
from .table import START_ORDER

TIMEOUT_S = 180.0
"""For scenarios without a fault."""
READY_TIMEOUT_S = 120.0
THROUGH_TIMEOUT_S = 600.0
SETTLE_TIMEOUT_S = 20.0
"""How long a group may take to commit; clients do so every second or every 5 s."""
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
    injector: FaultInjector | None = None,
    on_outcome: OnOutcome | None = None,
    mark: str = "",
    tls: ClientTls | None = None,
    keys: Keys | None = None,
    environment: Mapping[str, str] = MappingProxyType({}),
    servers: Mapping[str, str] = MappingProxyType({}),
    message_types: Mapping[str, str] = MappingProxyType({}),
) -> dict[Key, Outcome]:
    """Run scenarios on a started cluster and return their outcomes; each has one.

    Args:
      scenarios: by client.
      folder: for the programs' files.
      injector: injects the fault; None if there is none.
      on_outcome: called with each outcome as soon as it is known, in this thread.
      mark: prefix of the names of all topics and groups.
      tls: of the clients; None: they use none.
      keys: of an account that may create topics; None: the broker has no accounts.
      environment: further variables of the programs, such as their account.
      servers: HOST:PORT that a client connects to; the name server, if it is not there.
      message_types: of the topics, by scenario; none, if it is not there.
    Raises: PeerError: the broker refuses to create the topics.
    """
    injector = injector or FaultInjector(Fault.NONE, cluster)
    coordinator = _Coordinator(scenarios, cluster, injector, on_outcome, mark, tls)
    with contextlib.ExitStack() as stack:
        coordinator.create_topics(keys, message_types)
        coordinator.start(folder, stack, environment, servers)
        coordinator.run()
    return coordinator.outcomes


class _Coordinator:
    """Handles the programs' reports one by one, and resumes programs that wait."""

    def __init__(
        self,
        scenarios: Mapping[str, Sequence[Playable]],
        cluster: Cluster,
        injector: FaultInjector,
        on_outcome: OnOutcome | None,
        mark: str,
        tls: ClientTls | None,
    ) -> None:
        self._tls = tls
        self.outcomes: dict[Key, Outcome] = {}
        self._scenarios: dict[Key, Playable] = {
            (client, scenario.name): scenario
            for client in sorted(scenarios, key=START_ORDER.index)
            for scenario in scenarios[client]
        }
        self._cluster = cluster
        self._injector = injector
        self._on_outcome = on_outcome
        self._mark = mark
        self._reports: queue.SimpleQueue[tuple[str, dict[str, Any]]] = queue.SimpleQueue()
        self._programs: dict[str, Program] = {}
        self._ended: set[str] = set()
        self._unready = {
            key for key, one in self._scenarios.items() if isinstance(one, FaultScenario)
        }
        self._is_injected = not self._unready
        self._settling: dict[Key, float] = {}
        self._states: dict[Key, BrokerState] = {}
        self._started_s = time.monotonic()

    # ---- the programs --------------------------------------------------------------------

    def create_topics(self, keys: Keys | None, message_types: Mapping[str, str]) -> None:
        """Create the topics of all scenarios; see `play`."""
        for client, some in self._by_client().items():
            before = prefix(client, self._mark)
            create_topics(self._cluster, before, some, keys, message_types)

    def _by_client(self) -> dict[str, list[Playable]]:
        found: dict[str, list[Playable]] = {}
        for (client, _), scenario in self._scenarios.items():
            found.setdefault(client, []).append(scenario)
        return found

    def start(
        self,
        folder: Path,
        stack: contextlib.ExitStack,
        environment: Mapping[str, str],
        servers: Mapping[str, str],
    ) -> None:
        """Start the programs, to be killed with the stack.

        In the order of `START_ORDER`: Go's build runs while the JVMs start.
        """
        namesrv = self._injector.namesrv_address
        for client, some in self._by_client().items():
            try:
                program = Program(
                    client,
                    some,
                    before=prefix(client, self._mark),
                    namesrv=servers.get(client, namesrv),
                    folder=folder / client,
                    on_report=lambda *report: self._reports.put(report),
                    tls=self._tls,
                    environment=environment,
                )
            except PeerError as error:
                self._give_up(client, str(error))
                continue
            stack.callback(program.kill)
            self._programs[client] = program

    def run(self) -> None:
        """Handle reports until each scenario has an outcome."""
        self._started_s = time.monotonic()
        limit_s = THROUGH_TIMEOUT_S if self._unready else TIMEOUT_S
        while len(self.outcomes) < len(self._scenarios):
            for client, report in self._next():
                self._handle(client, report)
            self._check_programs()
            self._inject_fault_if_ready()
            self._check_settling()
            if time.monotonic() - self._started_s > limit_s:
                for client in list(self._programs):
                    self._give_up(client, f"no outcome in {limit_s:.0f} s")

    def _next(self) -> Iterator[tuple[str, dict[str, Any]]]:
        with contextlib.suppress(queue.Empty):
            yield self._reports.get(timeout=TICK_S)
            while True:
                yield self._reports.get_nowait()

    def _handle(self, client: str, report: dict[str, Any]) -> None:
        if "end" in report:
            self._ended.add(client)
            self._give_up(client, "its program ended without reporting it")
        elif "unreadable" in report:
            self._give_up(client, report["unreadable"])
        elif "at" in report:
            self._reached((client, report["scenario"]), report["at"])
        else:
            self._finish((client, report["scenario"]), report)

    def _reached(self, key: Key, point: str) -> None:
        if point == "ready":
            self._unready.discard(key)
            if self._is_injected:
                self._resume(key, "ready")
        elif point == "done" and key in self._scenarios:
            self._settling[key] = time.monotonic() + SETTLE_TIMEOUT_S

    def _resume(self, key: Key, point: str) -> None:
        program = self._programs[key[0]]
        # `_check_programs` will find that the program has ended, and report its last lines.
        with contextlib.suppress(PeerError):
            program.resume(key[1], point)

    def _check_programs(self) -> None:
        for client, program in self._programs.items():
            if client not in self._ended and not program.running:
                # First handle what it reported before it ended.
                program.read_rest()
                for other, report in self._drained():
                    self._handle(other, report)
                self._ended.add(client)
                self._give_up(client, f"its program ended\n{program.tail()[-TAIL_MAX:]}")

    def _drained(self) -> list[tuple[str, dict[str, Any]]]:
        found = []
        with contextlib.suppress(queue.Empty):
            while True:
                found.append(self._reports.get_nowait())
        return found

    # ---- the fault -----------------------------------------------------------------------

    def _inject_fault_if_ready(self) -> None:
        waited_s = time.monotonic() - self._started_s
        if self._is_injected or (self._unready and waited_s < READY_TIMEOUT_S):
            return
        self._is_injected = True
        try:
            self._injector.inject()
        except PeerError as error:
            for client in list(self._programs):
                self._give_up(client, f"{self._injector.fault}: {error}"[:TAIL_MAX])
            return
        for key, scenario in self._scenarios.items():
            if isinstance(scenario, FaultScenario) and key not in self.outcomes:
                self._resume(key, "ready")

    def _check_settling(self) -> None:
        if not self._settling:
            return
        try:
            with WireClient(self._cluster.broker_address) as wire:
                for key, until_s in list(self._settling.items()):
                    topic = prefix(key[0], self._mark) + key[1]
                    topics = topic_names(topic, self._scenarios[key])
                    behind = left_behind(wire, topic, topics)
                    if not behind or time.monotonic() > until_s:
                        self._states[key] = BrokerState(
                            stored_bodies(wire, topic, topics[topic]), behind
                        )
                        del self._settling[key]
                        self._resume(key, "done")
        except PeerError as error:
            for key in list(self._settling):
                del self._settling[key]
                self._report(key, Outcome({}, f"querying the broker failed: {error}"))

    # ---- outcomes ------------------------------------------------------------------------

    def _finish(self, key: Key, report: dict[str, Any]) -> None:
        scenario = self._scenarios.get(key)
        if scenario is None:
            return
        seconds = report.get("ms", 0) / 1000
        outcome = Outcome(report["facts"], report.get("error", ""), seconds=seconds)
        if isinstance(scenario, FaultScenario):
            self._unready.discard(key)
            self._settling.pop(key, None)
            outcome = self._evaluated(scenario, key, outcome)
        self._report(key, outcome)

    def _evaluated(self, scenario: FaultScenario, key: Key, outcome: Outcome) -> Outcome:
        if outcome.error:
            return Outcome({}, outcome.error, seconds=outcome.seconds)
        state = self._states.get(key)
        if state is None:
            return Outcome({}, "it ended before the broker's state was queried")
        try:
            report = ProgramReport.of(outcome.facts)
        except ValueError as error:
            return Outcome({}, f"its program's report is malformed: {error}")
        facts = evaluate(scenario, self._injector.fault, report, state)
        note = summary(report, state)
        if self._injector.fault == Fault.NONE:
            note = ""
        return Outcome(facts, "", note, outcome.seconds)

    def _give_up(self, client: str, error: str) -> None:
        """Fail the scenarios of a client that have no outcome yet."""
        for key in self._scenarios:
            if key[0] == client and key not in self.outcomes:
                self._unready.discard(key)
                self._settling.pop(key, None)
                self._report(key, Outcome({}, error))

    def _report(self, key: Key, outcome: Outcome) -> None:
        if key not in self.outcomes:
            self.outcomes[key] = outcome
            if self._on_outcome is not None:
                self._on_outcome(key[0], self._scenarios[key], outcome)
