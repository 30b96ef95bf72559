"""The programs of the clients: one per client, which runs its scenarios and reports by lines."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from .. import class_archive
from ..cpp_program import CPP_PROGRAM, cpp_python
from ..go_program import build_go, build_go_grpc
from ..java_program import grpc_command, java_command
from ..node_program import node_command
from ..peer import Cluster
from ..process import LineProcess
from ..python_grpc_program import python_grpc_command
from ..tls_files import ClientTls
from ..wire import Keys, WireClient, wait_for_route
from .table import (
    CPP,
    GO,
    GO_NEXT,
    GRPC_GO,
    GRPC_JAVA,
    GRPC_NODE,
    GRPC_PYTHON,
    PYTHON,
    PYTHON_BY_GRPC,
)

JAVA_OPTIONS = ("-Drocketmq.client.rebalance.waitInterval=1000",)

KEYS: Mapping[str, object] = {
    "enablePropertyFilter": True,
    "traceTopicEnable": True,
    "recallMessageEnable": True,
    # Apache 5.5.0 records ends three seconds later: with a shorter time it checks ended ones.
    "transactionTimeOut": 8000,
    "transactionCheckInterval": 3000,
    "mappedFileSizeCommitLog": 64 << 20,
    "mappedFileSizeConsumeQueue": 20 * 10_000,
    # The minimum of Apache's: a restarted name server gets the broker's registration in time.
    "registerNameServerPeriod": 10_000,
}
"""Keys of broker.conf that the scenarios need."""

ROUTE_TIMEOUT_S = 60.0

OnReport = Callable[[str, dict[str, Any]], None]
"""Called in the reader thread with the client and the decoded line; must not raise."""


class Playable(Protocol):
    """A scenario of either table."""

    @property
    def name(self) -> str: ...

    @property
    def argument(self) -> str: ...

    @property
    def topics(self) -> Mapping[str, int]:
        """Queue counts of the topics to create; `{}` stands for the scenario's own name."""


@dataclass(frozen=True)
class Outcome:
    """The result of a scenario; `error`: why it could not finish, or empty.

    `note` has counts that differ from run to run.
    """

    facts: dict[str, Any]
    error: str
    note: str = ""
    seconds: float = 0.0


def prefix(client: str, mark: str = "") -> str:
    """The prefix of a client's topics and groups; `mark` is that of the run."""
    return mark + client.replace(".", "").replace("-", "_") + "_"


def topic_names(prefixed: str, scenario: Playable) -> dict[str, int]:
    """Queue counts of the topics that a scenario needs.

    Args:
      prefixed: the scenario's own topic.
    """
    return {topic.format(prefixed): count for topic, count in scenario.topics.items()}


def create_topics(
    cluster: Cluster,
    before: str,
    scenarios: Iterable[Playable],
    keys: Keys | None = None,
    message_types: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Create the topics of a client's scenarios, and wait for their routes.

    Args:
      before: the prefix of the names.
      keys: of an account that may create topics; None: the broker has no accounts.
      message_types: of the topics, by the names of scenarios; none, if it is not there.
    Raises: PeerError: the broker refuses, or the name server has no route in time.
    """
    topics: dict[str, tuple[int, str]] = {}
    for scenario in scenarios:
        message_type = message_types.get(scenario.name, "")
        for topic, queue_count in topic_names(before + scenario.name, scenario).items():
            topics[topic] = queue_count, message_type
    with WireClient(cluster.broker_address, keys=keys) as wire:
        for topic, (queue_count, message_type) in topics.items():
            wire.create_topic(topic, queue_count=queue_count, message_type=message_type)
    # Apache's 4.x answers before it registers the topic, and some clients ask for routes only once.
    for topic in topics:
        wait_for_route(cluster.namesrv_address, topic, timeout_s=ROUTE_TIMEOUT_S)


def command_of(
    client: str, arguments: Sequence[str], folder: Path, tls: ClientTls | None = None
) -> list[str]:
    """The command of a client's program, built if its sources changed.

    Args:
      tls: of a client in Java or of ours; None: none.

    Raises: PeerError: the build failed, or a tool is missing.
    """
    if client in (GO, GO_NEXT):
        return [str(build_go(is_next=client == GO_NEXT)), *arguments]
    if client == CPP:
        return [str(cpp_python()), str(CPP_PROGRAM), *arguments]
    if client in PYTHON:
        api = client.removeprefix("python-")
        if tls is not None:
            arguments = [tls.url(arguments[0]), *arguments[1:]]
        return [sys.executable, "-m", "trocket.interop.clients.python", api, *arguments]
    if client in PYTHON_BY_GRPC:
        api = client.removeprefix("python-").removesuffix("-grpc")
        url = f"rocketmq+grpc://{arguments[0]}"
        if tls is not None:
            url = tls.url(arguments[0]).replace("rocketmq://", "rocketmq+grpcs://", 1)
        arguments = [url, *arguments[1:]]
        return [sys.executable, "-m", "trocket.interop.clients.python", api, *arguments]
    if client == GRPC_JAVA:
        return grpc_command(client.removeprefix("grpc-java-"), *arguments, folder=folder)
    if client == GRPC_PYTHON:
        return python_grpc_command(client.removeprefix("grpc-python-"), *arguments)
    if client == GRPC_GO:
        return [str(build_go_grpc()), *arguments]
    if client == GRPC_NODE:
        return node_command(*arguments)
    version = client.removeprefix("java-")
    options = JAVA_OPTIONS if tls is None else (*JAVA_OPTIONS, *tls.java_options)
    return java_command(version, "Scenarios", *arguments, folder=folder, options=options)


class Program:
    """The running program of one client.

    Args:
      before: the prefix of its topics and groups.
      namesrv: HOST:PORT of the cluster's name server, or of a relay to it.
      folder: for its logs, and the home folder of the client.
      on_report: see `OnReport`.
      tls: see `command_of`.
      environment: further variables, such as its account.
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
        on_report: OnReport,
        tls: ClientTls | None = None,
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.client = client
        self._on_report = on_report
        arguments = [namesrv, before, *(scenario.argument for scenario in scenarios)]
        self._command = command_of(client, arguments, folder, tls)
        of_tls = {} if tls is None else {"INTEROP_TLS": "true"}  # for Go, and all of gRPC
        self._process = LineProcess(
            self._command,
            folder=folder,
            name=client,
            environment={"HOME": str(folder), **of_tls, **environment},
            on_line=self._on_line,
        )

    def _on_line(self, line: str) -> None:
        # The client's logging may also write to stdout.
        if line == "end":
            self._on_report(self.client, {"end": True})
        elif line.startswith(('{"scenario":', '{"at":')):
            try:
                report = json.loads(line)
            except ValueError as error:
                report = {"unreadable": f"{error}: {line[:200]}"}
            self._on_report(self.client, report)

    @property
    def running(self) -> bool:
        return self._process.running

    def resume(self, name: str, point: str) -> None:
        """Let a scenario continue from a point. Raises: PeerError: the program has ended."""
        self._process.write_line(f"{name} {point}")

    def read_rest(self) -> None:
        """Wait until all reports of a program that has ended are read."""
        self._process.read_rest()

    def tail(self) -> str:
        """Its last lines, for an error text."""
        return self._process.tail()

    def kill(self) -> None:
        if self._process.running:
            class_archive.dump(self._command, self._process.pid)
        self._process.kill()
