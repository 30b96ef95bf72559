"""Large tables of topics at Apache's name servers, and those of Apache's brokers at ours."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trio.testing

from trocket.broker.controller import BrokerController
from trocket.broker.settings.config import BrokerConfig
from trocket.common.clock import SystemClock
from trocket.disk.memory_disk import MemoryDisk
from trocket.interop.apache import ApacheCluster
from trocket.namesrv.config import NamesrvConfig
from trocket.namesrv.controller import NamesrvController
from trocket.remoting.bodies import TopicList, TopicRouteData
from trocket.remoting.client import RemotingClient
from trocket.remoting.codec import RemotingCommand
from trocket.store.config import MessageStoreConfig

pytestmark = [pytest.mark.interop, pytest.mark.slow]

CREATE_TOPIC, CREATE_TOPICS, DELETE_TOPIC = 17, 18, 215
ROUTE, TOPIC_LIST = 105, 206
DEADLINE_S = 240.0
TOPIC_COUNT = 50_000
SPLIT_COUNT = 6_000
PER_REQUEST = 2_000
ASKED_AT_ONCE = 64


def topic_name(number: int) -> str:
    return f"orders-of-a-customer-{number:0>80}"


class Admin:
    """Asks a broker and a name server."""

    def __init__(self, client: RemotingClient, namesrv: str) -> None:
        self._client = client
        self._namesrv = namesrv

    async def create(self, broker: str, names: Iterable[str], queues: int) -> None:
        counts = {"readQueueNums": queues, "writeQueueNums": queues}
        topics = [{"topicName": name, **counts} for name in names]
        for begin in range(0, len(topics), PER_REQUEST):
            body = json.dumps({"topicConfigList": topics[begin : begin + PER_REQUEST]}).encode()
            answer = await self._client.call(broker, RemotingCommand(CREATE_TOPICS, {}, body), 60)
            assert answer.code == 0, answer.remark

    async def topics(self) -> set[str]:
        answer = await self._client.call(self._namesrv, RemotingCommand(TOPIC_LIST, {}), 60)
        assert answer.code == 0, answer.remark
        return set(TopicList.from_body(answer.body).topic_list)

    async def queue_counts(self, names: list[str]) -> set[tuple[str, int]]:
        """Address of the master and number of queues, of all these topics' routes."""
        found: set[tuple[str, int]] = set()
        limiter = trio.CapacityLimiter(ASKED_AT_ONCE)

        async def ask(name: str) -> None:
            async with limiter:
                command = RemotingCommand(ROUTE, {"topic": name})
                answer = await self._client.call(self._namesrv, command, 60)
                assert answer.code == 0, answer.remark
                route = TopicRouteData.from_body(answer.body)
                [queues], [data] = route.queue_datas, route.broker_datas
                found.add((data.broker_addrs[0], queues.write_queue_nums))

        async with trio.open_nursery() as nursery:
            for name in names:
                nursery.start_soon(ask, name)
        return found

    async def until(self, holds: Callable[[set[str]], bool]) -> None:
        while not holds(await self.topics()):
            await trio.testing.wait_all_tasks_blocked(0.05)

    async def until_counts(self, names: list[str], wanted: set[tuple[str, int]]) -> None:
        while await self.queue_counts(names) != wanted:
            await trio.testing.wait_all_tasks_blocked(0.05)


@asynccontextmanager
async def our_broker(
    disk: MemoryDisk, namesrv: str, **options: object
) -> AsyncIterator[BrokerController]:
    config = BrokerConfig(
        broker_name="b", broker_ip1="127.0.0.1", broker_ip2="127.0.0.1",
        bind_address="127.0.0.1", listen_port=0, namesrv_addr=namesrv, **options,
    )  # fmt: skip
    store = MessageStoreConfig(
        store_path_root_dir="/store", mapped_file_size_commit_log=65_536,
        max_hash_slot_num=100, max_index_num=400,
    )  # fmt: skip
    broker = BrokerController(config, store, clock=SystemClock(), disk=disk)
    async with trio.open_nursery() as nursery:
        await nursery.start(broker.run)
        yield broker
        nursery.cancel_scope.cancel()


async def play(namesrv: str, count: int, **options: object) -> None:
    """Make topics, start the broker anew, and give them another number of queues."""
    disk = MemoryDisk()
    names = [topic_name(number) for number in range(count)]
    with trio.fail_after(DEADLINE_S):
        async with trio.open_nursery() as nursery:
            client = RemotingClient()
            await nursery.start(client.run)
            admin = Admin(client, namesrv)
            async with our_broker(disk, namesrv, **options) as broker:
                await admin.create(broker.broker_addr, names, 4)
                await admin.until(set(names).issubset)
                assert await admin.queue_counts(names) == {(broker.broker_addr, 4)}
            await admin.until(set(names).isdisjoint)
            async with our_broker(disk, namesrv, **options) as broker:
                await admin.until(set(names).issubset)
                await admin.create(broker.broker_addr, names, 2)
                await admin.until_counts(names, {(broker.broker_addr, 2)})
                await admin.create(broker.broker_addr, ["New"], 3)
                assert await admin.queue_counts(["New"]) == {(broker.broker_addr, 3)}
                assert set(names) <= await admin.topics()
            nursery.cancel_scope.cancel()


@pytest.mark.matrix
def test_50000_topics_have_routes_at_apaches_name_server(tmp_path: Path, java: None) -> None:
    """One frame of all of them would be larger than it takes."""
    cluster = ApacheCluster("5.5.0", tmp_path)
    try:
        cluster.start_namesrv()
        trio.run(play, cluster.namesrv_address, TOPIC_COUNT)
    finally:
        cluster.close()


@pytest.mark.parametrize(
    ("version", "options"),
    [
        pytest.param("5.5.0", {}, id="5.5.0 in parts"),
        pytest.param("5.5.0", {"compressed_register": True}, id="5.5.0 compressed"),
        pytest.param("4.9.7", {}, id="4.9.7 in parts", marks=pytest.mark.matrix),
        pytest.param(
            "4.9.7", {"compressed_register": True}, id="4.9.7 compressed", marks=pytest.mark.matrix
        ),
    ],
)
def test_a_split_table_is_taken_whole_by_apaches_name_server(
    tmp_path: Path, java: None, version: str, options: dict[str, object]
) -> None:
    cluster = ApacheCluster(version, tmp_path)
    try:
        cluster.start_namesrv()

        async def run() -> None:
            await play(cluster.namesrv_address, SPLIT_COUNT, **options)

        trio.run(run)
    finally:
        cluster.close()


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("version", "keys"),
    [
        ("5.5.0", {"enableSplitRegistration": True, "splitRegistrationSize": 5}),
        ("5.5.0", {"enableSingleTopicRegister": True}),
        ("5.5.0", {"compressedRegister": True}),
        ("4.9.7", {"compressedRegister": True}),
    ],
    ids=["5.5.0 in parts", "5.5.0 single topics", "5.5.0 compressed", "4.9.7 compressed"],
)
def test_our_name_server_takes_what_apaches_broker_registers(
    tmp_path: Path, java: None, version: str, keys: dict[str, object]
) -> None:
    """Those that it has from its start, one that is new, and one with another number of queues."""

    async def run() -> None:
        config = NamesrvConfig(
            bind_address="127.0.0.1", listen_port=0, kv_config_path="/kv", config_store_path="/c"
        )
        namesrv = NamesrvController(config, clock=SystemClock(), disk=MemoryDisk())
        async with trio.open_nursery() as nursery:
            await nursery.start(namesrv.run)
            [address] = namesrv.listen_addresses
            client = RemotingClient()
            await nursery.start(client.run)
            admin = Admin(client, address)
            cluster = ApacheCluster(version, tmp_path, broker_keys={**keys, "namesrvAddr": address})
            try:
                await trio.to_thread.run_sync(cluster.start_broker)
                with trio.fail_after(DEADLINE_S):
                    await admin.until({"TBW102", "SELF_TEST_TOPIC", "BenchmarkTest"}.issubset)
                    for queues in (3, 5):
                        fields = {
                            "topic": "New", "defaultTopic": "TBW102", "order": "false",
                            "readQueueNums": str(queues), "writeQueueNums": str(queues),
                            "perm": "6", "topicFilterType": "SINGLE_TAG",
                        }  # fmt: skip
                        command = RemotingCommand(CREATE_TOPIC, fields)
                        answer = await client.call(cluster.broker_address, command, 30)
                        assert answer.code == 0, answer.remark
                        wanted = {(cluster.broker_address, queues)}
                        assert await admin.queue_counts(["New"]) == wanted
            finally:
                cluster.close()
            nursery.cancel_scope.cancel()

    trio.run(run)
