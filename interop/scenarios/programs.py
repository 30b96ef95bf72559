"""One program per client plays its scenarios, all at once, and tells of them line by line."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ..cpp_program import CPP_PROGRAM, cpp_python
from ..go_program import build_go
from ..java_program import java_command
from ..peer import Cluster
from ..process import LineProcess
from ..wire import WireClient, wait_for_route
from .table import CPP, GO, PYTHON

JAVA_OPTIONS = ("-Drocketmq.client.rebalance.waitInterval=1000",)

KEYS: Mapping[str, object] = {
    "enablePropertyFilter": True,
    "traceTopicEnable": True,
    "recallMessageEnable": True,
    # Apache 5.5.0 notes ends three seconds later: with a shorter time it asks about what has ended.
    "transactionTimeOut": 8000,
    "transactionCheckInterval": 3000,
    "mappedFileSizeCommitLog": 64 << 20,
    "mappedFileSizeConsumeQueue": 20 * 10_000,
    # The shortest that Apache's takes: a name server that was away hears of the broker again.
    "registerNameServerPeriod": 10_000,
}
"""Of broker.conf: what the scenarios need."""

ROUTE_TIMEOUT_S = 60.0

OnTold = Callable[[str, dict[str, Any]], None]
"""Called in a thread of the program's with its client and what a line says; must not raise."""


class Playable(Protocol):
    """A scenario, whichever table it is from."""

    @property
    def name(self) -> str:
        """As the programs know it."""

    @property
    def argument(self) -> str:
        """What a program is told."""

    @property
    def topics(self) -> Mapping[str, int]:
        """Created before, with so many queues; `{}` stands for the scenario's own name."""


@dataclass(frozen=True)
class Outcome:
    """What became of a scenario: `error` is what stood in its way, or empty.

    `note` says what differs from run to run, for people.
    """

    facts: dict[str, Any]
    error: str
    note: str = ""
    seconds: float = 0.0


def prefix(client: str, mark: str = "") -> str:
    """What the names of a client's topics and groups begin with; `mark` is the run's."""
    return mark + client.replace(".", "").replace("-", "_") + "_"


def topic_names(prefixed: str, scenario: Playable) -> dict[str, int]:
    """The topics that a scenario needs, and how many queues each has.

    Args:
      prefixed: the scenario's own topic.
    """
    return {topic.format(prefixed): count for topic, count in scenario.topics.items()}


def create_topics(cluster: Cluster, before: str, scenarios: Iterable[Playable]) -> None:
    """Create what the scenarios of a client need, and wait until the name server knows it.

    Args:
      before: what its names begin with.
    Raises: PeerError: the broker refuses, or does not tell its name server in time.
    """
    topics: dict[str, int] = {}
    for scenario in scenarios:
        topics.update(topic_names(before + scenario.name, scenario))
    with WireClient(cluster.broker_address) as wire:
        for topic, queue_count in topics.items():
            wire.create_topic(topic, queue_count=queue_count)
    # Apache's 4.x answers before it has told its name server, and some clients ask only once.
    for topic in topics:
        wait_for_route(cluster.namesrv_address, topic, timeout_s=ROUTE_TIMEOUT_S)


def command_of(client: str, arguments: Sequence[str], folder: Path) -> list[str]:
    """The command of a client's program, built when its sources changed.

    Raises: PeerError: it could not be built, or what builds it is not here.
    """
    if client == GO:
        return [str(build_go()), *arguments]
    if client == CPP:
        return [str(cpp_python()), str(CPP_PROGRAM), *arguments]
    if client in PYTHON:
        door = client.removeprefix("python-")
        return [sys.executable, "-m", "trocket.interop.clients.python", door, *arguments]
    version = client.removeprefix("java-")
    return java_command(version, "Scenarios", *arguments, folder=folder, options=JAVA_OPTIONS)


class Program:
    """The running program of one client.

    Args:
      before: what the names of its topics and groups begin with.
      namesrv: HOST:PORT, of the cluster's name server or of what stands before it.
      folder: for its logs and what the client keeps in its user's home.
      on_told: see `OnTold`.
    Raises: PeerError: it could not be built or started.
    """

    def __init__(
        self,
        client: str,
        scenarios: Iterable[Playable],
        *,
        before: str,
        namesrv: str,
        folder: Path,
        on_told: OnTold,
    ) -> None:
        self.client = client
        self._on_told = on_told
        arguments = [namesrv, before, *(scenario.argument for scenario in scenarios)]
        self._process = LineProcess(
            command_of(client, arguments, folder),
            folder=folder,
            name=client,
            environment={"HOME": str(folder)},
            on_line=self._on_line,
        )

    def _on_line(self, line: str) -> None:
        # Clients' logging may write to stdout too.
        if line == "end":
            self._on_told(self.client, {"end": True})
        elif line.startswith(('{"scenario":', '{"at":')):
            try:
                told = json.loads(line)
            except ValueError as error:
                told = {"unreadable": f"{error}: {line[:200]}"}
            self._on_told(self.client, told)

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._process.running

    def let_go_on(self, name: str, point: str) -> None:
        """Let a scenario pass a point. Raises: PeerError: the program has ended."""
        self._process.write_line(f"{name} {point}")

    def tail(self) -> str:
        """Its last lines, for an error text."""
        return self._process.tail()

    def kill(self) -> None:
        """End it."""
        self._process.kill()
