"""One program per client plays its scenarios, all at once, and tells their facts line by line."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trocket.interop.peer import Cluster
from trocket.interop.process import LineProcess, PeerError
from trocket.interop.wire import WireClient

from ..go_program import build_go
from ..java_program import java_command
from .table import GO, Scenario

TIMEOUT_S = 180.0
JAVA_OPTIONS = ("-Drocketmq.client.rebalance.waitInterval=1000",)


@dataclass(frozen=True)
class Outcome:
    """What became of a scenario: `error` is what stood in its way, or empty."""

    facts: dict[str, Any]
    error: str


def prefix(client: str) -> str:
    """What the names of a client's topics and groups begin with."""
    return client.replace(".", "").replace("-", "_") + "_"


def create_topics(cluster: Cluster, client: str, scenarios: Iterable[Scenario]) -> None:
    """Create what the scenarios of a client need."""
    with WireClient(cluster.broker_address) as wire:
        for scenario in scenarios:
            for topic, queue_count in scenario.topics.items():
                name = topic.format(prefix(client) + scenario.name)
                wire.create_topic(name, queue_count=queue_count)


class Program:
    """The running program of one client.

    Args:
      folder: for its logs and what the client keeps in its user's home.
    Raises: PeerError: it could not be built or started.
    """

    def __init__(self, client: str, names: list[str], cluster: Cluster, folder: Path) -> None:
        self.client = client
        self.outcomes: dict[str, Outcome] = {}
        arguments = [cluster.namesrv_address, prefix(client), *names]
        if client == GO:
            command = [str(build_go()), *arguments]
        else:
            version = client.removeprefix("java-")
            command = java_command(
                version, "Scenarios", *arguments, folder=folder, options=JAVA_OPTIONS
            )
        self._process = LineProcess(
            command,
            folder=folder,
            name=client,
            environment={"HOME": str(folder)},
            on_line=self._on_line,
        )

    def _on_line(self, line: str) -> None:
        # Clients' logging may write to stdout too.
        if line.startswith('{"scenario":'):
            told = json.loads(line)
            self.outcomes[told["scenario"]] = Outcome(told["facts"], told.get("error", ""))

    def finish(self) -> str:
        """Wait until it has played all it could; what went wrong, or empty."""
        try:
            self._process.wait_line(lambda line: line == "end", timeout_s=TIMEOUT_S)
        except PeerError as error:
            return str(error)
        finally:
            self._process.kill()
        return f"not in time\n{self._process.tail()}"
