"""Message traces of our client and of the official ones: mqadmin and `Admin` read them alike.

With TROCKET_INTEROP_PEER the traces are in an Apache broker.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from trocket import MessageTrace, NotFoundError, TracedType
from trocket.blocking import Admin
from trocket.interop.mqadmin import AdminJvm
from trocket.interop.peer import Cluster
from trocket.interop.scenarios.programs import KEYS, Program, create_topics, prefix
from trocket.interop.scenarios.table import GO, JAVA_4, JAVA_5, PYTHON, SCENARIOS

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("java")]

TIMEOUT_S = 120.0
TRACE = next(scenario for scenario in SCENARIOS if scenario.name == "trace")


@pytest.fixture
def cluster(make_cluster_with: Callable[[Mapping[str, object]], Cluster]) -> Cluster:
    cluster = make_cluster_with(KEYS)
    cluster.start()
    return cluster


def play(client: str, cluster: Cluster, folder: Path) -> str:
    """Play the scenario of a client: send a traced message, consume it; returns its topic."""
    before = prefix(client)
    create_topics(cluster, before, [TRACE])
    reports: list[dict[str, Any]] = []
    ended = threading.Event()

    def on_report(_: str, report: dict[str, Any]) -> None:
        reports.append(report)
        if report == {"end": True}:
            ended.set()

    folder.mkdir()
    program = Program(
        client,
        [TRACE],
        before=before,
        namesrv=cluster.namesrv_address,
        folder=folder,
        on_report=on_report,
    )
    try:
        assert ended.wait(TIMEOUT_S), program.tail()
    finally:
        program.kill()
    assert reports[0].get("facts") == TRACE.facts(client, "trocket"), program.tail()
    return before + TRACE.name


def timeline(admin: Admin, topic: str) -> MessageTrace:
    """That of the topic's message, once both ends of it are indexed."""
    due_s = time.monotonic() + TIMEOUT_S
    (message,) = admin.messages_by_key(topic, "key")
    while True:
        assert time.monotonic() < due_s, f"no timeline of {message}"
        try:
            found = admin.message_trace(message.message_id)
            if found.sends and found.consumptions:
                return found
        except NotFoundError:
            pass


def shape(printed: str, topic: str) -> list[str]:
    """The lines of mqadmin without times and costs, and with one name for all groups."""
    lines = [line for line in printed.splitlines() if line.startswith(("#", "Pub", "Sub"))]
    text = "\n".join(lines).replace(topic, "T")
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "TIME", text)
    return [" ".join(line.split()) for line in re.sub(r"\b-?\d+ms", "COST", text).splitlines()]


@pytest.mark.matrix
def test_timelines_of_all_clients_look_alike(cluster: Cluster, tmp_path: Path) -> None:
    clients = [
        client
        for client in (*PYTHON, JAVA_5, JAVA_4, GO)
        if f"{client} on {cluster.label}" not in TRACE.not_on
    ]
    topics = {client: play(client, cluster, tmp_path / client) for client in clients}
    with Admin(cluster.namesrv_address) as admin:
        found = {client: timeline(admin, topic) for client, topic in topics.items()}
    for client, trace in found.items():
        topic = topics[client]
        (sent,) = trace.sends
        assert (sent.topic, sent.group, sent.tags, sent.keys) == (topic, topic, "Tag", "key")
        assert (sent.kind, sent.is_success, sent.client_host) == (
            TracedType.NORMAL,
            True,
            "127.0.0.1",
        )
        assert sent.store_host == cluster.broker_address
        (consumption,) = trace.consumptions
        assert consumption.is_success, client
        assert consumption.retry_times == 0
        assert trace.bad_count == 0
    for version in ("5.5.0", "4.9.7"):
        mqadmin = AdminJvm(version, tmp_path / f"mqadmin-{version}")
        try:
            shapes = {}
            for client, trace in found.items():
                words = ["queryMsgTraceById", "-i", trace.message_id]
                words += ["-n", cluster.namesrv_address]
                if version == "4.9.7":
                    words += ["-t", "RMQ_SYS_TRACE_TOPIC"]
                printed, _ = mqadmin.play(words)
                shapes[client] = shape(printed, topics[client])
        finally:
            mqadmin.close()
        java = shapes[JAVA_4]
        assert [line.split()[0] for line in java] == ["#Type", "Pub", "#Type", "Sub"], java
        for client in PYTHON:
            assert shapes[client] == java, (version, client)
