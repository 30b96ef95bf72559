"""`trocket up` with several brokers: real processes, kills, and clients that spread over them."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trustme

from trocket.blocking import Admin, Producer, PushConsumer
from trocket.broker.settings.listening import listen
from trocket.cli.up.plan import PORT_STEP
from trocket.client import ConsumeFromWhere, Message
from trocket.client.pushing import queue_puller

from ..kit.waiting import wait_until
from .conftest import Command

pytestmark = pytest.mark.slow

DEADLINE_S = 20.0
SMALL_FILES = "mappedFileSizeCommitLog=1048576\nmaxHashSlotNum=1000\nmaxIndexNum=4000\n"
Start = Callable[..., Command]


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    path = tmp_path / "small.conf"
    path.write_text(SMALL_FILES)
    return path


@pytest.fixture
def up(start: Start, home: Path, conf: Path) -> Start:
    def up(*more: str) -> Command:
        ports = ("--namesrv-port", "0", "--broker-port", "0")
        return start("up", "--home", str(home), *ports, "--json", "-c", str(conf), *more)

    return up


def pids(facts: dict[str, Any]) -> dict[str, int]:
    return {broker["name"]: broker["pid"] for broker in facts["brokers"]}


def all_end(processes: dict[str, int]) -> None:
    """Waits until none of them runs."""
    for name, pid in processes.items():
        if hasattr(os, "pidfd_open"):  # what has ended may not be reaped in a container
            try:
                descriptor = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            assert poll.poll(DEADLINE_S * 1000), f"{name} runs on"
            os.close(descriptor)
        else:
            wait_until(lambda pid=pid: not _is_there(pid), f"{name} runs on")


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def send(url: str, count: int) -> Counter[str]:
    """Sends messages with the numbers from 0 on; how many each broker got."""
    with Producer(url) as producer:
        results = [producer.send(Message("Orders", str(number))) for number in range(count)]
    assert {result.status.name for result in results} == {"SEND_OK"}
    return Counter(result.queue.broker_name for result in results)


def consumer(url: str) -> PushConsumer:
    """Holds one message of each queue at a time: the rest is still with the brokers."""
    return PushConsumer(
        url,
        group="readers",
        subscriptions={"Orders": "*"},
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        pull_batch_size=1,
        pull_threshold_for_queue=1,
    )


def read(reader: PushConsumer, bodies: set[int]) -> None:
    """Reads until all of them have come."""
    while bodies:
        message = reader.receive(timeout_s=DEADLINE_S)
        assert message is not None, f"these did not come: {bodies}"
        message.ack()
        bodies.discard(int(message.text))


def test_two_masters_with_a_slave_each_go_on_when_a_master_is_killed(up: Start, home: Path) -> None:
    command = up("--masters", "2", "--slaves", "1", "--sync")
    facts = command.ready()
    keys = ("name", "brokerName", "brokerId", "brokerRole")
    assert [tuple(broker[key] for key in keys) for broker in facts["brokers"]] == [
        ("broker-a", "broker-a", 0, "SYNC_MASTER"),
        ("broker-b", "broker-b", 0, "SYNC_MASTER"),
        ("broker-a-1", "broker-a", 1, "SLAVE"),
        ("broker-b-1", "broker-b", 1, "SLAVE"),
    ]
    assert [broker["store"] for broker in facts["brokers"]] == [
        str(home / name) for name in pids(facts)
    ]
    url = f"rocketmq://{facts['namesrv']}"
    with Admin(url) as admin:
        admin.create_topic("Orders", 4)
        listed = {
            (broker.name, broker_id): address
            for broker in admin.cluster().brokers
            for broker_id, address in broker.addresses.items()
        }
    assert listed == {(b["brokerName"], b["brokerId"]): b["broker"] for b in facts["brokers"]}
    # SEND_OK: the slaves have them, too.
    assert send(url, 80) == {"broker-a": 40, "broker-b": 40}

    with consumer(url) as reader:
        message = reader.receive()
        message.ack()
        os.kill(pids(facts)["broker-a"], signal.SIGKILL)
        read(reader, {*range(80)} - {int(message.text)})
    status, out, error = command.end(signal.SIGTERM)
    assert (status, out) == (1, "")
    gone = f"broker-a (process {pids(facts)['broker-a']}) has ended: signal 9"
    assert error.count(gone) == 2  # when it happened, and as the reason of the status
    assert json.loads(error.splitlines()[-1]) == {"error": gone}
    assert "Traceback" not in error
    all_end(pids(facts))


def test_two_brokers_share_the_work_and_stop_cleanly(up: Start, home: Path) -> None:
    command = up("--brokers", "2")
    facts = command.ready()
    assert [(b["name"], b["brokerRole"]) for b in facts["brokers"]] == [
        ("broker-a", "ASYNC_MASTER"),
        ("broker-b", "ASYNC_MASTER"),
    ]
    url = f"rocketmq://{facts['namesrv']}"
    with Admin(url) as admin:
        admin.create_topic("Orders", 2)
    assert send(url, 20) == {"broker-a": 10, "broker-b": 10}
    with consumer(url) as reader:
        read(reader, {*range(20)})
        assert {queue.broker_name for queue in reader.positions} == {"broker-a", "broker-b"}
    status, out, error = command.end(signal.SIGTERM)
    assert (status, out) == (0, "")
    assert "Traceback" not in error
    all_end(pids(facts))
    for name in pids(facts):
        assert (home / name / "commitlog").is_dir()
        assert not (home / name / "abort").exists()


def test_several_brokers_log_objects_that_name_their_broker(up: Start) -> None:
    command = up("--brokers", "2", "--log-level", "info", "--log-format", "json")
    names = set(pids(command.ready()))
    _, _, errors = command.end(signal.SIGTERM)
    lines = [json.loads(line) for line in errors.splitlines()]
    assert {line.get("server") for line in lines} >= names
    assert all({"time", "level", "message"} <= line.keys() for line in lines)


def test_who_is_far_behind_reads_from_the_slave_as_the_master_suggests(
    up: Start, conf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with conf.open("a") as file:
        file.write("slaveReadEnable=true\naccessMessageInMemoryMaxRatio=0\n")
    url = f"rocketmq://{up('--masters', '1', '--slaves', '1').ready()['namesrv']}"
    send(url, 40)
    asked = Counter[int]()
    pull = queue_puller.pull

    def noting(*arguments: Any, **keywords: Any) -> Any:
        asked[keywords["broker_id"]] += 1
        return pull(*arguments, **keywords)

    monkeypatch.setattr(queue_puller, "pull", noting)
    with consumer(url) as reader:
        read(reader, set(range(40)))
    assert asked[0] > 0
    assert asked[1] > 0


def test_a_master_and_its_slave_speak_tls(up: Start, conf: Path, tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("broker-a")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    certificate.private_key_pem.write_to_path(tmp_path / "key.pem")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    conf.write_text(
        f"{SMALL_FILES}haTlsEnable=true\nhaTlsCertPath={tmp_path}/cert.pem\n"
        f"haTlsKeyPath={tmp_path}/key.pem\nhaTlsTrustCertPath={tmp_path}/ca.pem\n"
    )
    command = up("--slaves", "1", "--sync")
    command.ready()  # the slave is connected
    assert command.end(signal.SIGTERM)[0] == 0
    (tmp_path / "key.pem").unlink()
    status, _, error = up("--slaves", "1", "--sync").end()
    assert status == 1
    assert f"haTlsKeyPath={tmp_path}/key.pem: No such file or directory" in error
    assert "Traceback" not in error


def test_a_cluster_that_only_serves_tls(up: Start, conf: Path, tmp_path: Path) -> None:
    """The brokers register, replicate, and pass the self-check by TLS, with certificates."""
    authority = trustme.CA()
    issued = authority.issue_cert("broker-a", "127.0.0.1")
    issued.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "both.pem"))
    (tmp_path / "both.pem").chmod(0o600)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    keys = [
        "tls.server.mode=enforcing",
        "tls.server.need.client.auth=require",
        "tls.server.authClient=true",
        "tls.client.authServer=true",
    ]
    for side in ("server", "client"):
        keys += [f"tls.{side}.{key}={tmp_path}/both.pem" for key in ("certPath", "keyPath")]
        keys.append(f"tls.{side}.trustCertPath={tmp_path}/ca.pem")
    conf.write_text(SMALL_FILES + "".join(f"{key}\n" for key in keys))
    command = up("--slaves", "1")
    facts = command.ready()
    context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    context.load_cert_chain(tmp_path / "both.pem")
    with Producer(facts["namesrv"], tls=context) as producer:
        assert producer.send(Message("T", b"by TLS")).message_id
    assert command.end(signal.SIGTERM)[0] == 0


def test_nothing_outlives_a_parent_that_is_killed(up: Start, home: Path) -> None:
    command = up("--masters", "1", "--slaves", "1")
    facts = command.ready()
    command.process.kill()
    all_end(pids(facts))
    for name in pids(facts):
        assert not (home / name / "abort").exists()  # they were stopped, and not killed


def test_the_last_broker_that_is_lost_ends_it(up: Start) -> None:
    command = up("--brokers", "1")
    facts = command.ready()
    os.kill(pids(facts)["broker-a"], signal.SIGKILL)
    status, out, error = command.end()
    assert (status, out) == (1, "")
    assert json.loads(error.splitlines()[-1]) == {"error": "no broker is left: all have exited"}


def test_a_broker_that_cannot_start_ends_all_and_says_why(
    start: Start, home: Path, conf: Path
) -> None:
    free, vip = listen("127.0.0.1", 0)
    first = free.getsockname()[1]
    free.close()
    vip.close()
    with socket.create_server(("127.0.0.1", first + PORT_STEP)):
        ports = ("--namesrv-port", "0", "--broker-port", str(first))
        command = start("up", "--home", str(home), *ports, "-c", str(conf), "--brokers", "2")
        status, out, error = command.end()
    assert (status, out) == (1, "")
    assert "broker-b: trocket broker: cannot listen on" in error
    assert "has ended: exit status 1" in error
    assert str(first + PORT_STEP) in error
    assert "Traceback" not in error


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (("--brokers", "2", "--masters", "2"), "--brokers N means --masters N --slaves 0"),
        (("--brokers", "2", "--slaves", "1"), "--brokers N means --masters N --slaves 0"),
        (("--masters", "0"), "--masters 0: give 1 to 26"),
        (("--masters", "2", "--sync"), "add --slaves 1"),
        (("--broker-config", "broker-a=x.conf"), "needs several brokers"),
    ],
)
def test_flags_that_contradict_one_another_are_one_line(
    start: Start, home: Path, flags: tuple[str, ...], reason: str
) -> None:
    status, out, error = start("up", "--home", str(home), *flags).end()
    assert (status, out) == (2, "")
    assert error.count("\n") == 1
    assert reason in error
    assert not home.exists()
