"""The broker in a thread: lifecycle, topics, messages, restarts; plain, asyncio and trio."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import anyio
import pytest
import trio

from trocket.common.config import ConfigError
from trocket.disk.errors import StoreError
from trocket.store.config import FlushDiskType
from trocket.testing import Broker, EmbeddedBrokerError

from .blocking_client import Client, Code, pull_fields


def test_a_message_goes_through_and_the_route_is_known() -> None:
    with Broker() as broker:
        broker.create_topic("T", queues=3)
        with Client(broker.namesrv_address) as namesrv, Client(broker.broker_address) as client:
            route = namesrv.route("T")
            assert route is not None
            assert [queue.write_queue_nums for queue in route.queue_datas] == [3]
            assert [each.broker_addrs for each in route.broker_datas] == [
                {0: broker.broker_address}
            ]
            assert client.send("T", b"hello", KEYS="k").code == 0
            assert client.pull("T") == [b"hello"]
        assert broker.url == f"rocketmq://{broker.namesrv_address}"


def test_topics_are_made_by_the_first_send_with_four_queues() -> None:
    with Broker() as broker, Client(broker.broker_address) as client:
        assert client.send("New").code == 0
        with Client(broker.namesrv_address) as namesrv:
            route = namesrv.wait_for_route("New")
        assert [queue.write_queue_nums for queue in route.queue_datas] == [4]


def test_messages_are_read_from_the_store_in_the_order_of_storing() -> None:
    with Broker() as broker, Client(broker.broker_address) as client:
        broker.create_topic("T", queues=2)
        for number in range(70):
            client.send("T", b"%d" % number, queue_id=number % 2, TAGS=f"t{number}")
        messages = broker.messages("T")
        assert [message.body for message in messages] == [b"%d" % n for n in range(70)]
        assert messages[69].tags == "t69"
        assert broker.messages("Other") == []


def test_lag_counts_what_a_group_has_not_consumed() -> None:
    with Broker() as broker, Client(broker.broker_address) as client:
        broker.create_topic("T", queues=2)
        for number in range(10):
            client.send("T", queue_id=number % 2)
        assert broker.lag("G", "T") == 10
        broker.create_group("G")
        offset = {"consumerGroup": "G", "topic": "T", "queueId": 1, "commitOffset": 3}
        assert client.ask(Code.UPDATE_CONSUMER_OFFSET, offset).code == 0
        assert broker.lag("G", "T") == 7
        assert broker.lag("G", "Other") == 0


def test_a_deleted_topic_is_gone_everywhere() -> None:
    with Broker() as broker, Client(broker.broker_address) as client:
        broker.create_topic("T")
        client.send("T")
        broker.delete_topic("T")
        assert broker.messages("T") == []
        with Client(broker.namesrv_address) as namesrv:
            assert namesrv.route("T") is None
        broker.delete_topic("T")


def test_topics_and_groups_take_settings() -> None:
    with Broker(config={"autoCreateSubscriptionGroup": False}) as broker:
        broker.create_topic("T", queues=1, perm=4, message_type="FIFO")
        broker.create_group("G", retry_max_times=3)
        with Client(broker.broker_address) as client:
            assert b"FIFO" in client.ask(Code.GET_TOPIC_CONFIG, {"topic": "T"}).body
            group = client.ask(Code.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "G"})
            assert b'"retryMaxTimes":3' in group.body
        with Client(broker.namesrv_address) as namesrv:
            route = namesrv.route("T")
            assert route is not None
            assert (route.queue_datas[0].perm, route.queue_datas[0].read_queue_nums) == (4, 1)


def test_what_the_broker_refuses_is_said_in_its_words() -> None:
    with Broker() as broker:
        with pytest.raises(EmbeddedBrokerError, match="illegal characters"):
            broker.create_topic("no blanks")
        with pytest.raises(EmbeddedBrokerError, match="conflict with system topic"):
            broker.create_topic("TBW102")
        with pytest.raises(TypeError, match="no_such"):
            broker.create_group("G", no_such=1)


def test_two_brokers_at_once_know_nothing_of_each_other() -> None:
    with Broker() as one, Broker() as other:
        assert one.url != other.url
        one.create_topic("T")
        with Client(one.broker_address) as client:
            client.send("T", b"1")
        assert other.messages("T") == []
        with Client(other.namesrv_address) as namesrv:
            assert namesrv.route("T") is None


@pytest.mark.slow
def test_brokers_in_several_threads_do_not_mix_what_they_read() -> None:
    def talk(broker: Broker, mark: bytes) -> None:
        with Client(broker.broker_address) as client:
            for _ in range(100):
                assert client.send("T", mark * 2_000).code == 0

    with Broker() as one, Broker() as other, ThreadPoolExecutor(4) as threads:
        pairs = [(one, b"a"), (other, b"b"), (one, b"a"), (other, b"b")]
        for each in [threads.submit(talk, *pair) for pair in pairs]:
            each.result()
        assert {message.body for message in one.messages("T")} == {b"a" * 2_000}
        assert {message.body for message in other.messages("T")} == {b"b" * 2_000}


# ---- restarts and crashes ------------------------------------------------------------------


def test_a_restart_keeps_messages_topics_time_and_ports() -> None:
    with Broker() as broker:
        broker.create_topic("T", queues=5)
        addresses = broker.namesrv_address, broker.broker_address
        with Client(broker.broker_address) as client:
            client.send("T", b"kept")
            broker.advance(hours=5)
            now_ms = broker.now_ms
            broker.restart()
            with pytest.raises(ConnectionError):
                client.receive()
        assert (broker.namesrv_address, broker.broker_address) == addresses
        assert broker.now_ms >= now_ms
        with Client(broker.broker_address) as client, Client(broker.namesrv_address) as namesrv:
            assert client.pull("T") == [b"kept"]
            route = namesrv.route("T")
            assert route is not None
            assert route.queue_datas[0].write_queue_nums == 5


def test_a_crash_loses_only_what_was_not_synced() -> None:
    hours = 3_600_000
    config = {"flushIntervalCommitLog": hours, "flushConsumeQueueThoroughInterval": hours}
    with Broker(config=config) as broker:
        with Client(broker.broker_address) as client:
            client.send("T", b"before")
        broker.restart()  # a clean stop syncs
        with Client(broker.broker_address) as client:
            client.send("T", b"unsynced")
            assert client.pull("T") == [b"before", b"unsynced"]
        broker.crash()
        assert [message.body for message in broker.messages("T")] == [b"before"]
        with Client(broker.broker_address) as client:
            client.send("T", b"after")
            assert client.pull("T") == [b"before", b"after"]


def test_under_sync_flush_a_power_cut_loses_nothing() -> None:
    with Broker(config={"flushDiskType": FlushDiskType.SYNC_FLUSH}) as broker:
        with Client(broker.broker_address) as client:
            for number in range(20):
                assert client.send("T", b"%d" % number).code == 0
        broker.crash(power_loss=True)
        assert [message.body for message in broker.messages("T")] == [b"%d" % n for n in range(20)]


def test_a_kill_loses_nothing_that_was_written() -> None:
    with Broker() as broker:
        with Client(broker.broker_address) as client:
            client.send("T", b"written")
        broker.crash(power_loss=False)
        assert [message.body for message in broker.messages("T")] == [b"written"]


@pytest.mark.slow
def test_a_folder_keeps_messages_over_brokers_and_kills(tmp_path: Path) -> None:
    with Broker(folder=tmp_path) as broker:
        with Client(broker.broker_address) as client:
            client.send("T", b"1")
        broker.crash()
        with Client(broker.broker_address) as client:
            client.send("T", b"2")
        with pytest.raises(EmbeddedBrokerError, match="power_loss=True needs a broker in memory"):
            broker.crash(power_loss=True)
    with Broker(folder=tmp_path) as broker:
        assert [message.body for message in broker.messages("T")] == [b"1", b"2"]
    assert (tmp_path / "store" / "commitlog").is_dir()
    assert not (tmp_path / "store" / "abort").exists()


def test_the_ports_of_a_stopped_broker_stay_reserved() -> None:
    with Broker() as broker:
        address = broker.broker_address
        seen: list[OSError] = []

        def look() -> None:
            with pytest.raises(ConnectionError) as refused:
                Client(address)
            seen.append(refused.value)
            host, _, port = address.rpartition(":")
            with socket.socket() as taker, pytest.raises(OSError, match="in use"):
                taker.bind((host, int(port)))

        servers = broker._running()

        async def down_and_up() -> None:
            await servers.stop()
            await trio.to_thread.run_sync(look)
            assert broker._nursery is not None
            await servers.start(broker._nursery)

        broker._call(down_and_up)
        assert seen
        with Client(address) as client:
            assert client.send("T").code == 0


# ---- asyncio and trio ----------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_async_with_does_not_hold_up_the_loop(backend: str) -> None:
    async def main() -> None:
        ticks = 0
        async with anyio.create_task_group() as tasks:

            async def tick() -> None:
                nonlocal ticks
                while True:
                    ticks += 1
                    await anyio.lowlevel.checkpoint()

            tasks.start_soon(tick)
            async with Broker() as broker:
                assert ticks > 2
                broker.create_topic("T")
                async with await anyio.connect_tcp(*address(broker)) as stream:
                    await stream.send(b"\0\0\0\0")
                broker.advance(hours=1)
                assert broker.messages("T") == []
            tasks.cancel_scope.cancel()

    anyio.run(main, backend=backend)


def address(broker: Broker) -> tuple[str, int]:
    host, _, port = broker.broker_address.rpartition(":")
    return host, int(port)


def test_it_can_be_started_and_closed_without_with() -> None:
    broker = Broker()
    broker.start()
    broker.create_topic("T")
    broker.close()
    broker.close()


def test_a_failure_in_the_block_comes_out_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError), Broker():
        _ = 1 / 0


def test_no_thread_is_left() -> None:
    before = set(threading.enumerate())
    with Broker():
        assert set(threading.enumerate()) - before
    assert set(threading.enumerate()) == before


# ---- mistakes ------------------------------------------------------------------------------


def test_starting_twice() -> None:
    with Broker() as broker, pytest.raises(EmbeddedBrokerError, match="running already"):
        broker.start()


def test_use_before_and_after() -> None:
    broker = Broker()
    with pytest.raises(EmbeddedBrokerError, match=r"not running: use it as `with Broker\(\)"):
        _ = broker.url
    with broker:
        pass
    with pytest.raises(EmbeddedBrokerError, match="the broker is closed"):
        broker.create_topic("T")
    with pytest.raises(EmbeddedBrokerError, match="the broker is closed"):
        _ = broker.faults
    with pytest.raises(EmbeddedBrokerError, match=r"create another Broker\(\)"):
        broker.start()
    assert "closed" in repr(broker)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"brokerClusterNme": "C"}, "brokerClusterName"),
        ({"flushDiskType": "SOMETIMES"}, "flushDiskType"),
        ({"storePathRootDir": "/x"}, "folder="),
        ({"listenPort": 1}, "broker_port="),
        ({"defaultTopicQueueNums": "many"}, "defaultTopicQueueNums"),
    ],
)
def test_a_bad_configuration_is_refused_when_the_broker_is_created(
    config: dict[str, object], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        Broker(config=config)


def test_the_configuration_is_rocketmqs() -> None:
    config = {"brokerClusterName": "C", "defaultTopicQueueNums": 2, "brokerName": "b7"}
    with Broker(config=config, namesrv_config={"enableTopicList": False}) as broker:
        with Client(broker.broker_address) as client:
            client.send("New")
        with Client(broker.namesrv_address) as namesrv:
            route = namesrv.wait_for_route("New")
    assert route.queue_datas[0].write_queue_nums == 2
    assert (route.broker_datas[0].cluster, route.broker_datas[0].broker_name) == ("C", "b7")


def test_large_messages_fit_when_they_are_allowed() -> None:
    with (
        Broker(config={"maxMessageSize": 8 << 20}) as broker,
        Client(broker.broker_address) as client,
    ):
        assert client.send("T", bytes(7 << 20)).code == 0


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    broker = Broker(folder=tmp_path / "file" / "data")
    with pytest.raises(StoreError, match=r"a part of the path is a file.*file/data"):
        broker.start()


def test_a_folder_that_is_in_use_is_refused(tmp_path: Path) -> None:
    with Broker(folder=tmp_path) as broker:
        again = Broker(folder=tmp_path)
        again._loop = None
        with pytest.raises(StoreError):
            broker._call(in_the_same_process, broker)


async def in_the_same_process(broker: Broker) -> None:
    """The machine's lock is one per process; the disk itself knows its own locks."""
    broker._running().disk.lock(f"{broker._root}/store/lock")


def test_a_port_that_is_taken_is_named() -> None:
    with Broker() as broker:
        taken = int(broker.namesrv_address.rpartition(":")[2])
        with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{taken}"):
            Broker(namesrv_port=taken).start()


def test_calls_from_its_own_thread_are_refused() -> None:
    with Broker() as broker:

        async def inside() -> None:
            broker.messages("T")

        with pytest.raises(EmbeddedBrokerError, match="wait for itself"):
            broker._call(inside)


def test_held_pulls_are_answered_by_what_comes() -> None:
    with Broker() as broker, Client(broker.broker_address) as consumer:
        broker.create_topic("T", queues=1)
        opaque = consumer.begin(Code.PULL_MESSAGE, pull_fields("T", wait_ms=15_000))
        with Client(broker.broker_address) as producer:
            producer.send("T", b"now")
        assert consumer.end(opaque).code == 0


def test_a_loop_that_fails_says_so_at_each_call_and_at_the_end() -> None:
    async def fail(*, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        raise ZeroDivisionError("on purpose")

    broker = Broker()
    broker.start()

    async def begin() -> None:
        assert broker._nursery is not None
        await broker._nursery.start(fail)
        await trio.sleep_forever()

    with pytest.raises(EmbeddedBrokerError, match="the broker's loop has ended"):
        broker._call(begin)
    with pytest.raises(EmbeddedBrokerError, match="on purpose"):
        broker.messages("T")
    with pytest.raises(ZeroDivisionError):
        broker.close()


def test_ports_that_were_asked_for_are_used() -> None:
    with Broker() as first:
        ports = [int(first.namesrv_address.split(":")[1]), int(first.broker_address.split(":")[1])]
        with pytest.raises(OSError, match=f"{ports[1]}"):
            Broker(broker_port=ports[1]).start()
    with Broker(namesrv_port=ports[0], broker_port=ports[1]) as again:
        assert again.namesrv_address == f"127.0.0.1:{ports[0]}"
        assert again.broker_address == f"127.0.0.1:{ports[1]}"


def test_where_ports_cannot_be_held_a_broker_still_restarts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("trocket.testing.ports._LISTENS_BESIDE", False)
    with Broker() as broker:
        address = broker.broker_address
        broker.restart()
        assert broker.broker_address == address


async def test_calls_from_a_trio_loop() -> None:
    async with Broker() as broker:
        broker.create_topic("T")
        assert broker.messages("T") == []
