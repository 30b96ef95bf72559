"""The connections of gRPC clients: limits, hostile peers, both engines, a port for everything."""

from __future__ import annotations

import random
from typing import Any

import pytest
import trio
import trio.testing

from trocket.grpc_protocol.engine import PREFACE
from trocket.grpc_protocol.engine_h2 import H2Engine
from trocket.grpc_protocol.engine_ngh2 import Ngh2Engine
from trocket.grpc_server import server as grpc_server
from trocket.grpc_server.connection import CLIENTS_MAX, GrpcConnection
from trocket.remoting.bodies import TopicConfig

from ..kit import Broker, embedded_broker
from .caller import message, receive_fields
from .wire import as_client, parsed, wired

T = {"name": "T"}


@pytest.fixture(params=[Ngh2Engine, H2Engine], ids=["ngh2", "h2"], autouse=True)
def _engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_server, "new_engine", request.param)


def with_topic(broker: Broker) -> Broker:
    broker.controller.topics.update([TopicConfig(topic_name="T")])
    return broker


async def test_a_call_is_answered(autojump_clock: trio.testing.MockClock) -> None:
    async with embedded_broker() as broker, wired(with_topic(broker)) as wire:
        answer = await wire.call("SendMessage", messages=[message("T")])
        (sent,) = parsed("SendMessage", answer)
        assert (answer.status, sent.status.code) == ("0", 20000)


async def test_the_calls_of_a_turn_are_one_commit_and_one_send(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with embedded_broker() as broker, wired(with_topic(broker)) as wire:
        await wire.call("QueryRoute", topic=T)
        answers = [
            wire.begin("SendMessage", messages=[message("T", b"%d" % number)])
            for number in range(50)
        ]
        before = broker.controller.store.max_physical_offset
        await wire.flush()
        offsets = [parsed("SendMessage", each)[0].entries[0].offset for each in answers]
        assert offsets == sorted(offsets)
        assert broker.controller.store.max_physical_offset > before


async def test_a_peer_that_makes_no_call_is_closed(autojump_clock: trio.testing.MockClock) -> None:
    async with embedded_broker() as broker, wired(broker) as wire:
        with trio.fail_after(15):
            while not wire.has_ended:
                await trio.sleep(0.5)
                await wire.send(b"\0\0\0\4\1\0\0\0\0")  # an acknowledgement of settings


async def test_an_idle_connection_is_closed(autojump_clock: trio.testing.MockClock) -> None:
    async with embedded_broker() as broker, wired(with_topic(broker)) as wire:
        await wire.call("QueryRoute", topic=T)
        await trio.sleep(119)
        assert not wire.has_ended
        await trio.sleep(6)
        assert wire.has_ended


async def test_a_peer_that_takes_no_answers_is_closed(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with embedded_broker() as broker, wired(with_topic(broker), window=0) as wire:
        assert broker.controller.server is not None
        for _ in range(50):
            wire.begin("QueryRoute", topic=T)
        await wire.flush()
        assert broker.controller.server.memory.used > 1_000
        await trio.sleep(130)
        assert wire.has_ended
        assert broker.controller.server.memory.used == 0


async def test_many_receives_of_a_peer_with_a_window_of_nothing(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """What they hold stays in the budget, and a cancelled one takes no message."""
    async with (
        embedded_broker() as broker,
        wired(with_topic(broker), window=0, address="192.0.2.1:1") as stranger,
        wired(broker) as honest,
    ):
        assert broker.controller.server is not None
        receives = [
            stranger.begin("ReceiveMessage", **receive_fields("T", f"G{number}"))
            for number in range(1_000)
        ]
        await stranger.flush()
        assert not any(each.has_ended for each in receives)
        answer = await honest.call("SendMessage", messages=[message("T")])
        assert parsed("SendMessage", answer)[0].status.code == 20000
        await stranger.stream.aclose()
        await trio.testing.wait_all_tasks_blocked()
        await trio.sleep(2)
        assert broker.controller.server.memory.used == 0


async def test_clients_of_one_connection_are_limited(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with embedded_broker() as broker, wired(with_topic(broker)) as wire:
        last: Any = None
        for number in range(CLIENTS_MAX + 1):
            headers = as_client("QueryRoute", f"client{number}")
            last = await wire.call("QueryRoute", headers=headers, topic=T)
        assert parsed("QueryRoute", last)[0].status.code == 42900
        headers = as_client("QueryRoute", "client0")
        again = await wire.call("QueryRoute", headers=headers, topic=T)
        assert parsed("QueryRoute", again)[0].status.code == 20000


async def test_random_bytes_cost_their_own_connection(
    autojump_clock: trio.testing.MockClock,
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    source = random.Random(seed)
    async with embedded_broker() as broker, wired(with_topic(broker)) as honest:
        for _ in range(50):
            async with wired(broker, address="192.0.2.1:1") as stranger:
                for _ in range(5):
                    await stranger.send(source.randbytes(source.choice((1, 9, 50, 5_000))))
        answer = await honest.call("QueryRoute", topic=T)
        assert parsed("QueryRoute", answer)[0].status.code == 20000


async def test_random_messages_are_answered(autojump_clock: trio.testing.MockClock) -> None:
    """A request that is no message, or one with fields of anything."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    source = random.Random(seed)
    async with embedded_broker() as broker, wired(with_topic(broker)) as wire:
        for _ in range(30):
            for path in [*grpc_server.methods_of(grpc_server.Messages())]:
                if path.endswith("ReceiveMessage") or "rocketmq" not in path:
                    continue  # some wait
                data = source.randbytes(source.choice((0, 1, 5, 30)))
                stream = wire.client.call(path, data)
                await wire.flush()
                assert wire.client.answers[stream].has_ended, (path, data)
        assert not wire.has_ended


async def test_remoting_and_grpc_are_served_beside_each_other(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with embedded_broker() as broker, wired(with_topic(broker)) as wire:
        client = await broker.connect()
        for number in range(3):
            await wire.call("SendMessage", messages=[message("T", b"%d" % number)])
            answer = await client.ask(
                310, {"a": "P", "b": "T", "c": "TBW102", "d": "4", "e": "0", "f": "0",
                      "g": "1700000000000", "h": "0", "i": "", "j": "0"}, b"remoting",
            )  # fmt: skip
            assert answer.code == 0


def test_the_preface_begins_as_the_server_expects() -> None:
    assert PREFACE.startswith(b"P")


async def test_a_method_that_is_not_served(autojump_clock: trio.testing.MockClock) -> None:
    async with embedded_broker() as broker, wired(broker) as wire:
        for name in ("SyncLiteSubscription", "PullMessage", "UpdateOffset", "GetOffset"):
            assert (await wire.call(name)).status == "12"


async def test_a_client_that_calls_no_more_is_forgotten_alone(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with embedded_broker() as broker, wired(with_topic(broker)) as wire:
        assert broker.controller.server is not None
        (connection,) = broker.controller.server.served
        for name in ("one", "two"):
            await wire.call("QueryRoute", headers=as_client("QueryRoute", name), topic=T)
        for _ in range(30):
            await trio.sleep(10)
            await wire.call("QueryRoute", headers=as_client("QueryRoute", "one"), topic=T)
        assert isinstance(connection, GrpcConnection)
        assert [each.id for each in connection.clients.values()] == ["one"]


async def test_receives_that_are_cancelled_leave_nothing(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with embedded_broker() as broker, wired(with_topic(broker)) as wire:
        assert broker.controller.server is not None
        (connection,) = broker.controller.server.served
        assert isinstance(connection, GrpcConnection)
        for _ in range(100):
            wire.begin("ReceiveMessage", **receive_fields("T", "G"))
            await wire.flush()
            (client,) = connection.clients.values()
            assert client.links.unanswered == 1
            wire.client.connection.reset_stream(max(wire.client.answers), 8)
            await wire.flush()
            assert client.links.unanswered == 0
        assert broker.controller.parts.pop.services.hold.pops.count == 0
        await wire.call("QueryRoute", topic=T)  # not too many resets
        assert not wire.has_ended
