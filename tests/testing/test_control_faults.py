"""Faults and the disk of `trocket up --test-clock`, as a client on a socket meets them."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import pytest

from trocket.common.clock import SystemClock
from trocket.remoting.codec import RemotingCommand, encode
from trocket.testing.control.fault_list import FAULTS_MAX, REMARK

from .blocking_client import Client, Code, ResponseCode, pull_fields, send_fields
from .controlled import Controlled, Refused, controlled

SEND = int(Code.SEND_MESSAGE_V2)
SOON_S = 0.05
"""A client waits so long for an answer that never comes."""
SLOW_MS = 300


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controlled]:
    folder = tmp_path_factory.mktemp("up")
    conf = folder / "broker.conf"
    conf.write_text("flushDiskType=SYNC_FLUSH\n")
    with controlled(folder, "-c", str(conf)) as found:
        yield found


@pytest.fixture
def broker(running: Controlled) -> Iterator[Controlled]:
    yield running
    running.ask("DELETE", "/faults")
    running.ask("POST", "/disk", {"full": False, "slow_ms": 0})


@pytest.fixture
def client(broker: Controlled) -> Iterator[Client]:
    with Client(broker.broker) as connected:
        yield connected


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return "".join(each if each.isalnum() else "_" for each in request.node.name)


def test_drop(broker: Controlled, client: Client, topic: str) -> None:
    number = broker.fault("drop", SEND)
    lost = client.begin(Code.SEND_MESSAGE_V2, send_fields(topic), b"stored")
    assert client.send(topic, b"next").code == 0
    assert client.pull(topic) == [b"stored", b"next"]
    with pytest.raises(TimeoutError):
        unanswered(client, lost)
    (fault,) = broker.ask("GET", "/faults")["faults"]
    assert fault == {
        "id": number, "kind": "drop", "server": "broker", "code": SEND, "times_left": 0, "hits": 1,
    }  # fmt: skip


def test_duplicate(broker: Controlled, client: Client, topic: str) -> None:
    broker.fault("duplicate", SEND)
    broker.fault("duplicate", int(Code.GET_MAX_OFFSET))
    for request in (
        RemotingCommand(Code.SEND_MESSAGE_V2, send_fields(topic), b"once", opaque=7),
        RemotingCommand(Code.GET_MAX_OFFSET, {"topic": topic, "queueId": "0"}, opaque=8),
    ):
        client.socket.sendall(encode(request))
        first, second = read_frame(client), read_frame(client)
        assert first == second
        assert b'"code":0' in first
    assert client.pull(topic) == [b"once"]


def read_frame(client: Client) -> bytes:
    size = int.from_bytes(client.socket.recv(4, socket.MSG_WAITALL))
    return client.socket.recv(size, socket.MSG_WAITALL)


def test_answer(broker: Controlled, client: Client, topic: str) -> None:
    code = int(ResponseCode.NO_PERMISSION)
    broker.fault("answer", SEND, times=2, answer_code=code, remark="not today")
    answers = [client.send(topic) for _ in range(3)]
    assert [each.code for each in answers] == [code, code, 0]
    assert answers[0].remark == "not today"


def test_change(broker: Controlled, client: Client, topic: str) -> None:
    first = client.send(topic, b"first")
    broker.fault("change", SEND)
    broker.fault("change", int(Code.GET_MAX_OFFSET), answer_code=1, remark="who knows")
    late = client.send(topic, b"late")
    assert (late.code, late.remark) == (ResponseCode.FLUSH_SLAVE_TIMEOUT, REMARK)
    assert late.ext_fields.keys() == first.ext_fields.keys()
    offset = client.ask(Code.GET_MAX_OFFSET, {"topic": topic, "queueId": "0"})
    assert (offset.code, offset.remark, offset.ext_fields["offset"]) == (1, "who knows", "2")
    broker.fault("change", int(Code.PULL_MESSAGE), answer_code=ResponseCode.SYSTEM_ERROR)
    held = client.begin(Code.PULL_MESSAGE, pull_fields(topic, offset=2, wait_ms=15_000))
    assert client.send(topic, b"next").code == 0
    answer = client.end(held)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert b"next" in answer.body
    assert client.pull(topic) == [b"first", b"late", b"next"]


@pytest.mark.parametrize(("kind", "answers"), [("drop", 0), ("duplicate", 2), ("change", 1)])
def test_a_pull_that_waits_is_affected(
    broker: Controlled, client: Client, topic: str, kind: str, answers: int
) -> None:
    client.send(topic, b"first")
    broker.fault(kind, int(Code.PULL_MESSAGE))
    with Client(broker.broker) as consumer:
        consumer.begin(Code.PULL_MESSAGE, pull_fields(topic, offset=1, wait_ms=15_000))
        assert consumer.pull(topic) == [b"first"]  # the broker has it
        assert client.send(topic, b"next").code == 0
        frames = [read_frame(consumer) for _ in range(answers)]
        assert all(b"next" in each for each in frames)
        with pytest.raises(TimeoutError):
            unanswered(consumer, 0)
        assert client.pull(topic) == [b"first", b"next"]


def test_what_is_refused_stays_refused(broker: Controlled, client: Client, topic: str) -> None:
    number = broker.fault("change", SEND)
    broker.ask("POST", "/disk", {"full": True})
    assert client.send(topic).code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert broker.hits(number) == 1


def test_disconnect(broker: Controlled, client: Client, topic: str) -> None:
    broker.fault("disconnect", SEND)
    with pytest.raises(ConnectionError):
        client.send(topic)


def test_swallow(broker: Controlled, client: Client, topic: str) -> None:
    broker.fault("swallow", SEND)
    client.begin(Code.SEND_MESSAGE_V2, send_fields(topic), b"lost")
    assert client.send(topic, b"next").code == 0
    assert client.pull(topic) == [b"next"]


def test_delay(broker: Controlled, client: Client, topic: str) -> None:
    broker.fault("delay", SEND, delay_ms=50)
    late = client.begin(Code.SEND_MESSAGE_V2, send_fields(topic), b"late")
    assert client.send(topic, b"quick").code == 0
    assert client.end(late).code == 0
    assert client.pull(topic) == [b"quick", b"late"]


def test_a_delayed_request_is_processed_though_its_client_hangs_up(
    broker: Controlled, client: Client, topic: str
) -> None:
    client.send(topic, b"first")
    with Client(broker.broker) as consumer:
        held = pull_fields(topic, offset=1, wait_ms=15_000)
        opaque = consumer.begin(Code.PULL_MESSAGE, held)
        number = broker.fault("delay", SEND, delay_ms=100)
        with Client(broker.broker) as leaving:
            leaving.begin(Code.SEND_MESSAGE_V2, send_fields(topic), b"late")
            while not broker.hits(number):
                pass
        assert b"late" in consumer.end(opaque).body


def test_hang_until_it_is_deleted(broker: Controlled, client: Client, topic: str) -> None:
    number = broker.fault("hang", times=None)
    first = client.begin(Code.SEND_MESSAGE_V2, send_fields(topic), b"hung")
    with pytest.raises(TimeoutError):
        unanswered(client, first)
    broker.ask("DELETE", f"/faults/{number}")
    client.socket.settimeout(10)
    assert client.end(first).code == 0
    assert client.pull(topic) == [b"hung"]


def test_the_name_server_has_faults_too(broker: Controlled) -> None:
    broker.fault("answer", int(Code.GET_ROUTEINFO_BY_TOPIC), server="namesrv", remark="no route")
    with Client(broker.namesrv) as namesrv:
        assert namesrv.ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"}).remark == "no route"
        assert namesrv.route("TBW102") is not None


def test_used_up_faults_make_room(broker: Controlled, client: Client, topic: str) -> None:
    first = broker.fault("drop", 9_999)
    for _ in range(FAULTS_MAX - 1):
        broker.fault("drop", 9_998)
    with pytest.raises(Refused, match="delete some") as refused:
        broker.fault("drop", 9_998)
    assert refused.value.status == 409
    client.begin(9_999, {})
    client.send(topic)
    last = broker.fault("drop", 9_998)
    numbers = [each["id"] for each in broker.ask("GET", "/faults")["faults"]]
    assert (first in numbers, numbers[-1]) == (False, last)


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ({"kind": "burn"}, "Invalid enum value 'burn'"),
        ({}, "missing required field `kind`"),
        ({"kind": "drop", "times": 0}, ">= 1"),
        ({"kind": "drop", "code": -1}, ">= 0"),
        ({"kind": "drop", "cod": 310}, "unknown field `cod`"),
        ({"kind": "drop", "delay_ms": 5}, "delay_ms is for faults of kind delay, not drop"),
        (
            {"kind": "delay", "remark": "x"},
            "remark is for faults of kind answer or change, not delay",
        ),
        ({"kind": "delay", "delay_ms": 600_001}, "<= 600000"),
    ],
)
def test_a_wrong_fault_is_refused(broker: Controlled, fault: dict[str, object], text: str) -> None:
    with pytest.raises(Refused, match=text) as refused:
        broker.ask("POST", "/faults", fault)
    assert refused.value.status == 400
    assert broker.ask("GET", "/faults") == {"faults": []}


def test_a_fault_that_is_not_there(broker: Controlled) -> None:
    with pytest.raises(Refused, match="there is no fault 12345") as refused:
        broker.ask("DELETE", "/faults/12345")
    assert refused.value.status == 404


def test_a_full_disk(broker: Controlled, client: Client, topic: str) -> None:
    client.send(topic, b"before")
    state = broker.ask("POST", "/disk", {"full": True})
    assert state == {"full": True, "failing_fsync": False, "slow_ms": 0}
    assert client.send(topic).code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert client.pull(topic) == [b"before"]
    broker.ask("POST", "/disk", {"full": False})
    assert client.send(topic).code == 0


def test_a_slow_disk(broker: Controlled, client: Client, topic: str) -> None:
    client.send(topic)
    broker.ask("POST", "/disk", {"slow_ms": SLOW_MS})
    began_s = monotonic()
    assert client.send(topic).code == 0
    assert monotonic() - began_s >= SLOW_MS / 1000
    broker.ask("POST", "/disk", {"slow_ms": 60_000})
    opaque = client.begin(Code.SEND_MESSAGE_V2, send_fields(topic), b"waits")
    assert broker.ask("POST", "/disk", {"slow_ms": 0})["slow_ms"] == 0
    assert client.end(opaque).code == 0


def test_a_failed_fsync_ends_sends(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("flushDiskType=SYNC_FLUSH\n")
    with controlled(tmp_path, "-c", str(conf)) as broker, Client(broker.broker) as client:
        assert client.send("T").code == 0
        broker.ask("POST", "/disk", {"failing_fsync": True})
        assert client.send("T").code != 0
        assert client.send("T").code == ResponseCode.SERVICE_NOT_AVAILABLE
        broker.ask("POST", "/disk", {"failing_fsync": False})
        assert client.send("T").code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert broker.advance(0) > SystemClock().wall_ms() - 10_000


def test_a_disk_in_memory_is_never_slow(tmp_path: Path) -> None:
    with controlled(tmp_path, "--memory") as broker:
        with pytest.raises(Refused, match="in memory") as refused:
            broker.ask("POST", "/disk", {"slow_ms": 5})
        assert refused.value.status == 409


def unanswered(client: Client, opaque: int) -> None:
    """Raises TimeoutError where no answer comes."""
    client.socket.settimeout(SOON_S)
    client.end(opaque)
