"""Certificates that are renewed while clients send: no send fails, no connection breaks."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import anyio
import anyio.to_thread
import psutil
import pytest

from trocket import ConnectionChange, ConnectionEvent, Message, Producer
from trocket.interop.java_peer import JavaPeer
from trocket.interop.peer import LocalCluster
from trocket.interop.peers import parse_peer
from trocket.interop.tls_files import ENFORCING, ClientTls, ServerTls, make_files, renew_files
from trocket.interop.tls_jobs import open_secure
from trocket.interop.wire import WireClient, wait_for_route

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("java")]

JAVA = "5.5.0"
TOPIC = "Rotation"
RENEWALS_MIN = 3
RATE_PER_S = 100.0
JAVA_COUNT = 1500
RELOAD_S = 15.0
TIMEOUT_S = 120.0
IN_FLIGHT = 16


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """The authority's folder; servers want a client's certificate."""
    made = tmp_path / "tls"
    make_files(made, "require")
    return made


@pytest.fixture(
    params=["trocket", pytest.param("apache-5.5.0", marks=pytest.mark.matrix)],
)
def cluster(request: pytest.FixtureRequest, tmp_path: Path, files: Path) -> Iterator[LocalCluster]:
    """A started name server and broker that take TLS only."""
    made = open_secure(parse_peer(request.param), ServerTls(files, ENFORCING), tmp_path / "cluster")
    try:
        made.start()
        with WireClient(made.broker_address) as wire:
            wire.create_topic(TOPIC, queue_count=4)
        wait_for_route(made.namesrv_address, TOPIC, timeout_s=TIMEOUT_S)
        yield made
    finally:
        made.close()


def certificate(address: str, files: Path) -> bytes:
    """The certificate that a new connection gets, by a client with its certificate."""
    host, _, port = address.rpartition(":")
    context = ClientTls(files).context
    with (
        socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as plain,
        context.wrap_socket(plain, server_hostname=host) as secure,
    ):
        return secure.getpeercert(binary_form=True) or b""


def ports(pid: int, address: str) -> set[int]:
    """The ports of a process's open connections to a server."""
    server = int(address.rpartition(":")[2])
    return {
        each.laddr.port
        for each in psutil.Process(pid).net_connections(kind="tcp")
        if each.raddr and each.raddr.port == server and each.status == psutil.CONN_ESTABLISHED
    }


async def renewed(cluster: LocalCluster, files: Path) -> None:
    """Renew all certificates, and wait until both servers show the new one."""
    addresses = (cluster.namesrv_address, cluster.broker_address)
    before = [certificate(each, files) for each in addresses]
    await anyio.to_thread.run_sync(renew_files, files)
    with anyio.fail_after(RELOAD_S):
        for address, old in zip(addresses, before, strict=True):
            while certificate(address, files) == old:  # noqa: ASYNC110 - of a process
                await anyio.sleep(0.2)


def test_no_send_fails_while_certificates_are_renewed(
    cluster: LocalCluster, files: Path, tmp_path: Path
) -> None:
    events: list[ConnectionEvent] = []
    sent = renewals = 0
    is_over = False

    async def send(producer: Producer) -> None:
        nonlocal sent
        while not is_over:
            await producer.send(Message(TOPIC, b"python"))
            sent += 1

    async def scenario(java: JavaPeer) -> int:
        nonlocal is_over, renewals
        url = ClientTls(files).url(cluster.namesrv_address)
        # No second attempt: a send that fails raises.
        async with (
            Producer(url, group="python", retry_times=0, on_connection=events.append) as producer,
            anyio.create_task_group() as tasks,
        ):
            for _ in range(IN_FLIGHT):
                tasks.start_soon(send, producer)
            opened: set[int] = set()
            while not opened or not sent:
                opened = ports(java.pid, cluster.broker_address)
                await anyio.sleep(0.05)
            while len(java.acknowledged) < JAVA_COUNT:
                await renewed(cluster, files)
                now = ports(java.pid, cluster.broker_address)
                if len(java.acknowledged) < JAVA_COUNT:  # the producer closes when it is done
                    assert now == opened
                    renewals += 1
            is_over = True
        return sent

    with JavaPeer(JAVA, tmp_path / "java", options=ClientTls(files).java_options) as java:
        java.start_sending(
            "java", TOPIC, namesrv_address=cluster.namesrv_address, mode="sync",
            message_count=JAVA_COUNT, rate_per_s=RATE_PER_S,
        )  # fmt: skip
        count = anyio.run(scenario, java)
        java.wait_sent("java", timeout_s=TIMEOUT_S)
        assert java.failure_texts == []
        assert len(java.acknowledged) == JAVA_COUNT
    assert renewals >= RENEWALS_MIN
    assert [each for each in events if each.change is not ConnectionChange.CONNECTED] == []
    with WireClient(cluster.broker_address) as wire:
        stored = sum(wire.max_offset(TOPIC, queue_id) for queue_id in range(4))
    assert stored == count + JAVA_COUNT
    print(f"{count} sends by Python and {JAVA_COUNT} by Java over {renewals} renewals")
