"""Clusters in containers: what the engine is asked for, and, where one answers, real ones."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from trocket.interop.docker_peer import DockerCluster
from trocket.interop.peers import check_peer, open_cluster
from trocket.interop.process import PeerError

from .docker_engine import Call, FakeEngine
from .test_peers import give_and_take, restart_and_kill


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[FakeEngine]:
    with FakeEngine(tmp_path) as engine:
        yield engine


@pytest.fixture
def cluster(engine: FakeEngine, tmp_path: Path) -> Iterator[DockerCluster]:
    client = docker.DockerClient(base_url=engine.url)
    made = DockerCluster("5.3.3", tmp_path / "c", broker_keys={"brokerRole": "x"}, engine=client)
    yield made
    made.close()


def orders(engine: FakeEngine, cluster: DockerCluster) -> list[str]:
    """What was ordered since the last time, without the questions, with the cluster's name cut."""
    found = [call.what.replace(cluster.name, "C") for call in engine.calls]
    engine.calls.clear()
    return [what for what in found if not what.startswith("GET ")]


def created(engine: FakeEngine, role: str) -> Call:
    (call,) = (
        call
        for call in engine.calls
        if call.what == "POST /containers/create" and call.query["name"].endswith(role)
    )
    return call


@pytest.mark.slow
def test_a_life(engine: FakeEngine, cluster: DockerCluster) -> None:
    assert cluster.label == "docker-5.3.3"
    assert cluster.pids == []
    cluster.start()
    assert orders(engine, cluster) == [
        "POST /networks/create",
        "POST /containers/create",
        "POST /containers/create",
        "POST /containers/C-namesrv/start",
        "POST /containers/C-broker/start",
    ]
    assert len(cluster.pids) == 2
    cluster.start()
    assert orders(engine, cluster) == []
    cluster.stop_broker()
    assert [call.query for call in engine.calls if call.what.endswith("/stop")] == [{"t": "60"}]
    assert orders(engine, cluster) == ["POST /containers/C-broker/stop"]
    assert len(cluster.pids) == 1
    cluster.stop_broker()
    cluster.kill_broker()
    assert orders(engine, cluster) == []
    cluster.start_broker()
    assert orders(engine, cluster) == ["POST /containers/C-broker/start"]
    cluster.kill_broker()
    kills = [call.query for call in engine.calls if call.what.endswith("/kill")]
    assert kills == [{"signal": "SIGKILL"}]
    assert orders(engine, cluster) == [
        "POST /containers/C-broker/kill",
        "POST /containers/C-broker/wait",
    ]
    cluster.start()
    engine.calls.clear()
    cluster.close()
    assert engine.containers == {}
    assert engine.networks == set()


def test_what_the_containers_are_made_of(engine: FakeEngine, cluster: DockerCluster) -> None:
    cluster.start()
    for role, main in (("namesrv", "NamesrvStartup"), ("broker", "BrokerStartup")):
        body = created(engine, role).body
        assert body["Image"] == "apache/rocketmq:5.3.3"
        assert body["Entrypoint"] == ["sh", "-c"]
        (command,) = body["Cmd"]
        assert command.startswith("exec ")  # or SIGTERM would end at the shell
        assert f".{role}.{main} -c /trocket/conf/{role}.conf" in command
        assert "%" not in command
        assert body["User"] == f"{os.getuid()}:{os.getgid()}"
        host = body["HostConfig"]
        assert host["NetworkMode"] == cluster.name
        assert host["GroupAdd"] == ["3000"]
        assert host["Binds"] == [f"{cluster.folder}:/trocket:rw"]
        assert (cluster.folder / "conf" / f"{role}.conf").exists()


def test_ports_are_published_on_the_loopback_address(
    engine: FakeEngine, cluster: DockerCluster
) -> None:
    cluster.start()
    namesrv_port = cluster.namesrv_address.removeprefix("127.0.0.1:")
    port = int(cluster.broker_address.removeprefix("127.0.0.1:"))
    bindings = created(engine, "namesrv").body["HostConfig"]["PortBindings"]
    assert bindings == {"9876/tcp": [{"HostIp": "127.0.0.1", "HostPort": namesrv_port}]}
    bindings = created(engine, "broker").body["HostConfig"]["PortBindings"]
    assert bindings == {
        f"{each}/tcp": [{"HostIp": "127.0.0.1", "HostPort": str(each)}] for each in (port, port - 2)
    }


def test_the_broker_is_configured_to_be_found_where_it_is_published(
    cluster: DockerCluster,
) -> None:
    lines = (cluster.folder / "conf" / "broker.conf").read_text().splitlines()
    assert "brokerIP1 = 127.0.0.1" in lines
    assert f"listenPort = {cluster.broker_address.partition(':')[2]}" in lines
    assert f"namesrvAddr = {cluster.name}-namesrv:9876" in lines
    assert "storePathRootDir = /trocket/store" in lines
    assert "brokerRole = x" in lines


def test_an_image_that_is_missing_is_pulled(engine: FakeEngine, cluster: DockerCluster) -> None:
    engine.has_image = False
    cluster.start()
    pulls = [call.query for call in engine.calls if call.what == "POST /images/create"]
    assert pulls == [{"fromImage": "apache/rocketmq", "tag": "5.3.3"}]


def test_a_container_that_ends_is_an_error_with_its_log(
    engine: FakeEngine, cluster: DockerCluster
) -> None:
    engine.breaks_down = True
    with pytest.raises(
        PeerError, match=r"(?s)namesrv does not answer: it is exited.*no such class"
    ):
        cluster.start()
    cluster.close()
    assert engine.containers == {}


def test_a_broker_that_had_to_be_killed_was_not_stopped(
    engine: FakeEngine, cluster: DockerCluster
) -> None:
    cluster.start()
    engine.deaf = True
    with pytest.raises(PeerError, match="broker did not stop in 60 s"):
        cluster.stop_broker()


def test_no_engine_is_a_reason_not_a_traceback(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nothing.sock")
    reason = check_peer("docker-5.3.3")
    assert reason is not None
    assert reason.startswith("no Docker engine answers")
    with pytest.raises(PeerError, match="no Docker engine answers"):
        open_cluster("docker-5.3.3", tmp_path / "c")


def test_no_package_is_a_reason_that_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "docker", None)
    reason = check_peer("docker-5.3.3")
    assert reason is not None
    assert "pip install 'trocket[docker]'" in reason


HARNESS = """
import signal, sys
from pathlib import Path
from trocket.interop.peers import open_cluster
cluster = open_cluster("docker-5.3.3", Path(sys.argv[1]))
cluster.start()
print("ready", flush=True)
signal.pause()
"""


@pytest.mark.slow
def test_a_killed_harness_leaves_no_container(engine: FakeEngine, tmp_path: Path) -> None:
    harness = subprocess.Popen(
        [sys.executable, "-c", HARNESS, str(tmp_path / "cluster")],
        env={**os.environ, "DOCKER_HOST": engine.url},
        stdout=subprocess.PIPE,
    )
    assert harness.stdout is not None
    try:
        assert harness.stdout.readline() == b"ready\n"
        assert len(engine.containers) == 2
    finally:
        harness.kill()
        harness.wait()
        harness.stdout.close()
    engine.wait_until_empty(60.0)
    assert engine.containers == {}
    assert engine.networks == set()


@pytest.mark.slow
@pytest.mark.interop
@pytest.mark.parametrize("name", ["docker-5.3.3", "docker-4.9.7"])
def test_a_real_one_keeps_its_messages(name: str, tmp_path: Path) -> None:
    reason = check_peer(name)
    if reason is not None:
        pytest.skip(reason)
    cluster = open_cluster(name, tmp_path / "cluster")
    try:
        cluster.start()
        give_and_take(cluster, 0)
        restart_and_kill(cluster)
    finally:
        cluster.close()
