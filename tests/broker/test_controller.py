"""A broker and its name servers, over TCP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from trocket.broker.controller import BrokerController
from trocket.broker.settings.config import BrokerConfig
from trocket.common.clock import SystemClock
from trocket.disk.memory_disk import MemoryDisk
from trocket.namesrv.config import NamesrvConfig
from trocket.namesrv.controller import NamesrvController
from trocket.remoting.bodies import TopicRouteData
from trocket.remoting.channel import Channel
from trocket.remoting.client import RemotingClient
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.response_codes import ResponseCode
from trocket.remoting.server import RemotingServer, open_listener
from trocket.store.config import BrokerRole, MessageStoreConfig

from ..kit import pull_fields, send_fields, topic_fields

DEADLINE_S = 20.0
ROUTE, CREATE_TOPIC, SEND, REGISTER, UNREGISTER, PULL = 105, 17, 310, 103, 104, 11
FILTER_SERVER = 301


class Cluster:
    """Name servers, and a broker that can be started and stopped."""

    def __init__(self, nursery: trio.Nursery, namesrvs: list[NamesrvController]) -> None:
        self.client = RemotingClient()
        self.namesrvs = [namesrv.listen_addresses[0] for namesrv in namesrvs]
        self._nursery = nursery

    async def start_broker(
        self, role: BrokerRole = BrokerRole.ASYNC_MASTER, **options: object
    ) -> tuple[BrokerController, trio.CancelScope]:
        config = BrokerConfig(
            broker_name="b", broker_ip1="127.0.0.1", broker_ip2="127.0.0.1",
            bind_address="127.0.0.1", listen_port=0, namesrv_addr=";".join(self.namesrvs),
            **options,
        )  # fmt: skip
        store = MessageStoreConfig(
            store_path_root_dir="/store", mapped_file_size_commit_log=65_536,
            max_hash_slot_num=100, max_index_num=400, broker_role=role,
        )  # fmt: skip
        broker = BrokerController(config, store, clock=SystemClock(), disk=MemoryDisk())
        scope = trio.CancelScope()

        async def run(*, task_status: trio.TaskStatus[None]) -> None:
            with scope:
                await broker.run(task_status=task_status)

        await self._nursery.start(run)
        return broker, scope

    async def route(self, namesrv: str, topic: str) -> TopicRouteData | None:
        answer = await self.client.call(namesrv, RemotingCommand(ROUTE, {"topic": topic}), 5)
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        return TopicRouteData.from_body(answer.body)

    async def until_filter_servers(self, wanted: dict[str, list[str]]) -> None:
        """Wait until each name server tells these in the route of a topic."""
        for namesrv in self.namesrvs:
            while True:
                route = await self.route(namesrv, "TBW102")
                if route is not None and route.filter_server_table == wanted:
                    break
                await trio.testing.wait_all_tasks_blocked(0.001)

    async def addresses(self, topic: str) -> list[str | None]:
        """What each name server tells of the topic's master."""
        routes = [await self.route(namesrv, topic) for namesrv in self.namesrvs]
        return [route and route.broker_datas[0].broker_addrs[0] for route in routes]


@asynccontextmanager
async def cluster(namesrv_count: int) -> AsyncIterator[Cluster]:
    with trio.fail_after(DEADLINE_S):
        async with trio.open_nursery() as nursery:
            namesrvs = []
            for number in range(namesrv_count):
                config = NamesrvConfig(
                    bind_address="127.0.0.1",
                    listen_port=0,
                    kv_config_path=f"/n{number}/kv.json",
                    config_store_path=f"/n{number}/c",
                )
                namesrv = NamesrvController(config, clock=SystemClock(), disk=MemoryDisk())
                await nursery.start(namesrv.run)
                namesrvs.append(namesrv)
            made = Cluster(nursery, namesrvs)
            await nursery.start(made.client.run)
            yield made
            nursery.cancel_scope.cancel()


async def test_a_broker_is_known_to_every_name_server_when_it_has_started() -> None:
    async with cluster(2) as made:
        broker, _ = await made.start_broker()
        assert await made.addresses("TBW102") == [broker.broker_addr] * 2
        assert broker.broker_addr == broker.listen_addresses[0]


async def test_a_broker_that_stops_says_goodbye_to_every_name_server() -> None:
    async with cluster(2) as made:
        _, scope = await made.start_broker()
        scope.cancel()
        while await made.addresses("TBW102") != [None, None]:
            await trio.testing.wait_all_tasks_blocked(0.001)


async def test_the_goodbye_is_a_request_of_its_own() -> None:
    seen: list[int] = []

    def answer(request: RemotingCommand, channel: Channel) -> RemotingCommand:
        seen.append(request.code)
        return request.answer()

    listener = open_listener("127.0.0.1", 0)
    server = RemotingServer({REGISTER: answer, UNREGISTER: answer})
    async with cluster(0) as made, trio.open_nursery() as nursery:
        await nursery.start(server.serve, [listener])
        made.namesrvs.append(f"127.0.0.1:{listener.getsockname()[1]}")
        _, scope = await made.start_broker()
        scope.cancel()
        while UNREGISTER not in seen:
            await trio.testing.wait_all_tasks_blocked(0.001)
        nursery.cancel_scope.cancel()
    assert seen == [REGISTER, UNREGISTER]


async def test_a_name_server_that_is_not_there_delays_nothing_and_is_named_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with cluster(1) as made:
        made.namesrvs.append("127.0.0.1:1")
        broker, _ = await made.start_broker()
        await broker.registrar.register_all()
        made.namesrvs.pop()
        assert await made.addresses("TBW102") == [broker.broker_addr]
    assert sum("127.0.0.1:1:" in record.getMessage() for record in caplog.records) == 1


async def test_a_created_topic_has_a_route_when_it_is_answered() -> None:
    async with cluster(2) as made:
        broker, _ = await made.start_broker()
        fields = {name: str(value) for name, value in topic_fields("New", 3).items()}
        answer = await made.client.call(
            broker.broker_addr, RemotingCommand(CREATE_TOPIC, fields), 5
        )
        assert answer.code == ResponseCode.SUCCESS
        assert await made.addresses("New") == [broker.broker_addr] * 2


@pytest.mark.parametrize("force", [True, False])
async def test_a_topic_made_by_a_first_send_has_a_route_when_it_is_answered(force: bool) -> None:
    async with cluster(2) as made:
        broker, _ = await made.start_broker(force_register=force)
        fields = {name: str(value) for name, value in send_fields("Sent").items()}
        answer = await made.client.call(broker.broker_addr, RemotingCommand(SEND, fields, b"x"), 5)
        assert answer.code == ResponseCode.SUCCESS
        assert await made.addresses("Sent") == [broker.broker_addr] * 2
        route = await made.route(made.namesrvs[0], "Sent")
        assert route is not None
        assert route.queue_datas[0].write_queue_nums == 4


@pytest.mark.parametrize("force", [True, False])
async def test_a_filter_server_is_in_every_route_soon_and_gone_soon(force: bool) -> None:
    async with cluster(2) as made:
        broker, _ = await made.start_broker(force_register=force)
        async with trio.open_nursery() as nursery:
            filter_server = RemotingClient()
            await nursery.start(filter_server.run)
            command = RemotingCommand(FILTER_SERVER, {"filterServerAddr": "127.0.0.1:40747"})
            answer = await filter_server.call(broker.broker_addr, command, 5)
            assert answer.code == ResponseCode.SUCCESS
            await made.until_filter_servers({broker.broker_addr: ["127.0.0.1:40747"]})
            nursery.cancel_scope.cancel()
        await made.until_filter_servers({})


async def test_topics_that_a_name_server_calls_ordered_are_marked() -> None:
    async with cluster(1) as made:
        kv = {"namespace": "ORDER_TOPIC_CONFIG", "key": "Ordered", "value": "b:4"}
        await made.client.call(made.namesrvs[0], RemotingCommand(100, kv), 5)
        broker, _ = await made.start_broker()
        fields = {name: str(value) for name, value in send_fields("Ordered").items()}
        await made.client.call(broker.broker_addr, RemotingCommand(SEND, fields, b"x"), 5)
        await broker.registrar.register_all()
        assert broker.topics.is_order_topic("Ordered")


@pytest.mark.slow
async def test_a_slave_follows_its_master_over_tcp() -> None:
    async with cluster(1) as made:
        master, scope = await made.start_broker(BrokerRole.SYNC_MASTER)
        slave, _ = await made.start_broker(BrokerRole.SLAVE, broker_id=1, slave_read_enable=True)
        while not master.replication.status().in_sync_slave_nums:
            await trio.testing.wait_all_tasks_blocked(0.001)
        fields = {name: str(value) for name, value in send_fields().items()}
        for number in range(200):  # some of which roll a file
            command = RemotingCommand(SEND, fields, b"%d" % number + bytes(1000))
            assert (await made.client.call(master.broker_addr, command, 5)).code == 0
        assert slave.store.max_physical_offset == master.store.max_physical_offset > 3 * 65_536
        scope.cancel()
        while "T" not in slave.topics.topic_config_table or slave.replication.has_master:
            await trio.testing.wait_all_tasks_blocked(0.001)
        fields = {name: str(value) for name, value in pull_fields(queueOffset=199).items()}
        answer = await made.client.call(slave.broker_addr, RemotingCommand(PULL, fields), 5)
        assert (answer.code, answer.body.count(b"199" + bytes(1000))) == (0, 1)
