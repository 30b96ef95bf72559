"""Every fault, as a client on a socket meets it."""

from __future__ import annotations

import pytest

from trocket.remoting.bodies import HeartbeatData, ProducerData
from trocket.testing import Broker

from ..kit import topic_fields
from .blocking_client import Client, Code, ResponseCode, pull_fields, send_fields

SOON_S = 0.05
"""A client waits so long for an answer that never comes."""


@pytest.fixture
def broker(broker: Broker):
    yield broker
    broker.faults.clear()
    broker.delete_topic("T")


@pytest.fixture
def client(broker: Broker):
    with Client(broker.broker_address) as connected:
        yield connected


def bodies(broker: Broker) -> list[bytes]:
    return [message.body for message in broker.messages("T")]


def test_refuse(broker: Broker, client: Client) -> None:
    fault = broker.faults.refuse(
        Code.SEND_MESSAGE_V2, ResponseCode.SYSTEM_BUSY, "too much", times=2
    )
    answers = [client.send("T", b"%d" % number) for number in range(3)]
    assert [answer.code for answer in answers] == [ResponseCode.SYSTEM_BUSY] * 2 + [0]
    assert answers[0].remark == "too much"
    assert bodies(broker) == [b"2"]
    assert (fault.hits, fault.left) == (2, 0)


def test_refuse_every_request_until_cleared(broker: Broker, client: Client) -> None:
    fault = broker.faults.refuse(times=None)
    assert client.send("T").code == ResponseCode.SYSTEM_BUSY
    assert client.ask(Code.GET_MAX_OFFSET, {"topic": "T", "queueId": 0}).code != 0
    broker.faults.clear()
    assert client.send("T").code == 0
    assert fault.hits == 2


def test_drop_of_a_send_stores_it_and_says_nothing(broker: Broker, client: Client) -> None:
    broker.faults.drop(Code.SEND_MESSAGE_V2)
    lost = client.begin(Code.SEND_MESSAGE_V2, send_fields("T"), b"stored")
    assert client.send("T", b"next").code == 0
    assert bodies(broker) == [b"stored", b"next"]
    with pytest.raises(TimeoutError):
        unanswered(client, lost)


@pytest.mark.slow
def test_drop_of_a_pull(broker: Broker, client: Client) -> None:
    client.send("T", b"there")
    broker.faults.drop(Code.PULL_MESSAGE)
    lost = client.begin(Code.PULL_MESSAGE, pull_fields("T"))
    assert client.pull("T") == [b"there"]
    with pytest.raises(TimeoutError):
        unanswered(client, lost)


def test_drop_of_a_heartbeat_registers_the_client(broker: Broker, client: Client) -> None:
    heartbeat = HeartbeatData(
        client_id="p", producer_data_set=[ProducerData(group_name="Silent")]
    ).to_body()
    broker.faults.drop(Code.HEART_BEAT)
    client.begin(Code.HEART_BEAT, {}, heartbeat)
    found = client.ask(Code.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "Silent"})
    assert b'"p"' in found.body


def test_drop_of_a_topic_creation_creates_it(broker: Broker, client: Client) -> None:
    broker.faults.drop(Code.UPDATE_AND_CREATE_TOPIC)
    fields = topic_fields("T", 2)
    lost = client.begin(Code.UPDATE_AND_CREATE_TOPIC, fields)
    assert client.ask(Code.GET_TOPIC_CONFIG, {"topic": "T"}).code == 0
    with pytest.raises(TimeoutError):
        unanswered(client, lost)


def test_swallow_neither_stores_nor_answers(broker: Broker, client: Client) -> None:
    broker.faults.swallow(Code.SEND_MESSAGE_V2)
    lost = client.begin(Code.SEND_MESSAGE_V2, send_fields("T"), b"swallowed")
    assert client.send("T", b"next").code == 0
    assert bodies(broker) == [b"next"]
    with pytest.raises(TimeoutError):
        unanswered(client, lost)


def test_delay_answers_later_than_what_comes_after(broker: Broker, client: Client) -> None:
    broker.faults.delay(Code.SEND_MESSAGE_V2, seconds=SOON_S)
    late = client.begin(Code.SEND_MESSAGE_V2, send_fields("T"), b"late")
    assert client.send("T", b"quick").code == 0
    assert client.end(late).code == 0
    assert bodies(broker) == [b"quick", b"late"]


@pytest.mark.parametrize("code", [Code.GET_MAX_OFFSET, Code.PULL_MESSAGE])
def test_delay_of_other_answers(broker: Broker, client: Client, code: Code) -> None:
    client.send("T", b"there")
    broker.faults.delay(code, seconds=0.001)
    assert client.ask(code, pull_fields("T")).code == 0


def test_delay_of_what_is_awaited(broker: Broker, client: Client) -> None:
    broker.faults.delay(Code.DELETE_TOPIC_IN_BROKER, seconds=0.001)
    assert client.ask(Code.DELETE_TOPIC_IN_BROKER, {"topic": "T"}).code == 0
    broker.faults.delay(Code.DELETE_TOPIC_IN_BROKER, seconds=0.001)
    assert client.ask(Code.DELETE_TOPIC_IN_BROKER, {"topic": " "}).code != 0


def test_disconnect(broker: Broker, client: Client) -> None:
    broker.faults.disconnect(Code.SEND_MESSAGE_V2)
    with pytest.raises(ConnectionError):
        client.send("T", b"lost")
    with Client(broker.broker_address) as again:
        assert again.send("T", b"stored").code == 0
    assert bodies(broker) == [b"stored"]


def test_a_code_that_the_broker_does_not_know(broker: Broker, client: Client) -> None:
    broker.faults.refuse(9_999, ResponseCode.NO_PERMISSION, "never")
    assert client.ask(9_999, {}).code == ResponseCode.NO_PERMISSION
    assert client.ask(9_999, {}).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    broker.faults.clear()
    assert client.ask(9_999, {}).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


def test_the_name_server_has_faults_of_its_own(broker: Broker) -> None:
    broker.faults.refuse(Code.GET_ROUTEINFO_BY_TOPIC, remark="no route", namesrv=True)
    with Client(broker.namesrv_address) as namesrv:
        answer = namesrv.ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"})
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_BUSY, "no route")
        assert namesrv.route("TBW102") is not None
        broker.faults.disconnect(namesrv=True)
        with pytest.raises(ConnectionError):
            namesrv.route("TBW102")


def test_faults_do_not_count_for_what_the_test_asks_itself(broker: Broker) -> None:
    fault = broker.faults.refuse(times=None)
    broker.create_topic("T")
    assert fault.hits == 0


def test_the_oldest_fault_counts_first(broker: Broker, client: Client) -> None:
    broker.faults.refuse(Code.SEND_MESSAGE_V2, remark="first")
    broker.faults.refuse(Code.SEND_MESSAGE_V2, remark="second")
    remarks = [client.send("T").remark for _ in range(3)]
    assert remarks == ["first", "second", None]


def test_a_number_of_times_must_be_one(broker: Broker) -> None:
    with pytest.raises(ValueError, match="times=0"):
        broker.faults.drop(times=0)


def test_disk_full_and_ok(broker: Broker, client: Client) -> None:
    client.send("T", b"before")
    broker.faults.disk_full()
    answer = client.send("T", b"refused")
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "100 % full" in (answer.remark or "")
    assert client.pull("T") == [b"before"]
    broker.faults.disk_ok()
    assert client.send("T", b"after").code == 0
    assert bodies(broker) == [b"before", b"after"]


def test_faults_stay_over_a_restart() -> None:
    with Broker() as broker:
        broker.faults.refuse(Code.SEND_MESSAGE_V2, remark="still")
        broker.faults.disk_full()
        broker.restart()
        with Client(broker.broker_address) as client:
            assert client.send("T").remark == "still"
            broker.faults.clear()
            assert client.send("T").code == 0


@pytest.mark.parametrize("in_folder", [False, True])
def test_a_failed_fsync_ends_sends_until_a_restart(in_folder: bool, tmp_path) -> None:
    config = {"flushDiskType": "SYNC_FLUSH"}
    with Broker(config=config, folder=tmp_path if in_folder else None) as broker:
        with Client(broker.broker_address) as client:
            assert client.send("T", b"before").code == 0
            broker.faults.fail_fsync()
            assert client.send("T", b"doubtful").code != 0
            answer = client.send("T", b"refused")
            assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        broker.faults.clear()
        broker.restart()
        with Client(broker.broker_address) as client:
            assert client.send("T", b"after").code == 0
        stored = bodies(broker)
        assert (stored[0], stored[-1]) == (b"before", b"after")
        assert b"refused" not in stored


def unanswered(client: Client, opaque: int) -> None:
    """Raises TimeoutError where no answer comes."""
    client.socket.settimeout(SOON_S)
    client.end(opaque)
