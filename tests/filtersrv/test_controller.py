"""A filter server beside a broker: registration, pulls, and what goes wrong between them."""

from __future__ import annotations

import json

import pytest
import trio
import trio.testing

from trocket.filtersrv.config import FiltersrvConfig
from trocket.filtersrv.controller import FiltersrvController, UnknownToBrokerError
from trocket.filtersrv.filters import ExpressionFilter, FilterError
from trocket.remoting.message_codec import decode_messages

from ..kit import embedded_broker, heartbeat, pull_fields, send_fields, subscribed
from .embedded import filter_server

SEND, PULL, REGISTER, LIST, REMOVE = 310, 11, 302, 30302, 30303
SUSPEND, CLASS_FILTER = 2, 8
CONFIGURED = {"a.Even": ExpressionFilter("even = 'true'")}
CLASS = {"topic": "T", "consumerGroup": "CG", "className": "a.Even", "classCRC": 0}


def pull(offset=0, **more):
    fields = pull_fields(queueOffset=offset, sysFlag=SUSPEND | CLASS_FILTER)
    del fields["subscription"]
    return fields | more


async def send(client, count):
    for number in range(count):
        text = f"even\x01{'true' if number % 2 == 0 else 'false'}\x02"
        answer = await client.ask(SEND, send_fields(i=text), b"%d" % number)
        assert answer.code == 0


async def test_a_consumer_gets_what_its_filter_lets_pass(autojump_clock):
    async with embedded_broker() as broker, filter_server(broker, CONFIGURED) as server:
        await send(await broker.connect(), 5)
        consumer = await server.connect()
        refusal = await consumer.ask(PULL, pull())
        assert (refusal.code, refusal.remark) == (1, "Find Filter class failed, not registered")
        assert (await consumer.ask(REGISTER, CLASS)).code == 0
        answer = await consumer.ask(PULL, pull())
        assert answer.code == 0
        assert answer.ext_fields == {
            "suggestWhichBrokerId": "0", "nextBeginOffset": "5", "minOffset": "0", "maxOffset": "5",
        }  # fmt: skip
        found = decode_messages(answer.body)
        assert [message.body for message in found] == [b"0", b"2", b"4"]
        added = {"even": "true", "MIN_OFFSET": "0", "MAX_OFFSET": "5"}
        assert found[0].properties.items() >= added.items()


async def test_where_nothing_matches_the_consumer_goes_on_at_once(autojump_clock):
    async with embedded_broker() as broker, filter_server(broker, CONFIGURED) as server:
        await send(await broker.connect(), 2)
        consumer = await server.connect()
        await consumer.ask(REGISTER, CLASS)
        answer = await consumer.ask(PULL, pull(1))
        assert (answer.code, answer.body) == (20, b"")
        assert answer.ext_fields["nextBeginOffset"] == "2"


async def test_a_pull_that_finds_nothing_is_held_until_a_message_comes_or_its_time_is_over(
    autojump_clock,
):
    async with embedded_broker() as broker, filter_server(broker, CONFIGURED) as server:
        producer, consumer = await broker.connect(), await server.connect()
        await send(producer, 1)
        await consumer.ask(REGISTER, CLASS)
        start_s = trio.current_time()
        answer = await consumer.ask(PULL, pull(1))
        assert answer.code == 19
        assert 15 <= trio.current_time() - start_s < 21
        opaque = await consumer.send(_command(PULL, pull(1)))
        await trio.sleep(1)
        await send(producer, 1)
        answer = await consumer.answer(opaque)
        assert [message.body for message in decode_messages(answer.body)] == [b"0"]


async def test_an_illegal_offset_is_reported(autojump_clock):
    async with embedded_broker() as broker, filter_server(broker, CONFIGURED) as server:
        await send(await broker.connect(), 1)
        consumer = await server.connect()
        await consumer.ask(REGISTER, CLASS)
        answer = await consumer.ask(PULL, pull(100))
        assert (answer.code, answer.ext_fields["nextBeginOffset"]) == (21, "1")


async def test_a_refusal_of_the_broker_is_passed_to_the_consumer(autojump_clock):
    async with embedded_broker() as broker, filter_server(broker, CONFIGURED) as server:
        consumer = await server.connect()
        await consumer.ask(REGISTER, CLASS | {"topic": "Nowhere"})
        answer = await consumer.ask(PULL, pull(topic="Nowhere"))
        assert answer.code == 1
        assert answer.remark.startswith("Pull Callback Exception, CODE: 17  DESC: ")


async def test_a_class_replaced_while_a_pull_is_held_decides_about_it(autojump_clock):
    classes = CONFIGURED | {"a.Odd": ExpressionFilter("even = 'false'")}
    async with embedded_broker() as broker, filter_server(broker, classes) as server:
        producer, consumer = await broker.connect(), await server.connect()
        await send(producer, 1)
        await consumer.ask(REGISTER, CLASS)
        opaque = await consumer.send(_command(PULL, pull(1)))
        await trio.sleep(1)
        await consumer.ask(REGISTER, CLASS | {"className": "a.Odd"})
        await send(producer, 1)
        assert (await consumer.answer(opaque)).code == 20


class Broken:
    is_disabled = False

    async def match(self, messages, group):
        raise FilterError(f"no {group}")

    async def aclose(self):
        pass


async def test_a_filter_that_fails_lets_nothing_pass_and_the_offset_stays(autojump_clock):
    async with embedded_broker() as broker, filter_server(broker, {"a.Even": Broken()}) as server:
        await send(await broker.connect(), 1)
        consumer = await server.connect()
        await consumer.ask(REGISTER, CLASS)
        answer = await consumer.ask(PULL, pull())
        assert (answer.code, answer.body, answer.ext_fields) == (1, b"", {})
        assert answer.remark == ("do Message Filter Exception, ConsumerGroup: CG Topic: T no CG")


async def test_classes_are_listed_and_removed(autojump_clock):
    async with embedded_broker() as broker, filter_server(broker, CONFIGURED) as server:
        consumer = await server.connect()
        await consumer.ask(REGISTER, CLASS)
        listed = json.loads((await consumer.ask(LIST, {})).body)
        assert listed == {
            "classes": [
                {
                    "topic": "T", "consumerGroup": "CG", "className": "a.Even", "classCrc": 0,
                    "language": "configured", "state": "ready", "error": "",
                }
            ]
        }  # fmt: skip
        which = {"topic": "T", "consumerGroup": "CG"}
        assert (await consumer.ask(REMOVE, which)).code == 0
        refusal = await consumer.ask(REMOVE, which)
        assert (refusal.code, refusal.remark) == (1, "group CG has no filter class for T")


async def test_the_class_of_a_client_that_uploads_none_is_known_from_its_heartbeat(autojump_clock):
    beat = heartbeat("CG", subscribed("T", "a.Even", classFilterMode=True))
    async with embedded_broker() as broker, filter_server(broker, CONFIGURED) as server:
        client = await broker.connect()
        await send(client, 3)
        assert (await client.ask(34, {}, beat)).code == 0
        answer = await (await server.connect()).ask(PULL, pull())
        assert [message.body for message in decode_messages(answer.body)] == [b"0", b"2"]


async def test_it_registers_every_ten_seconds_and_soon_after_its_connection_broke(autojump_clock):
    async with embedded_broker() as broker, filter_server(broker) as server:
        manager = broker.controller.filter_servers
        assert list(manager.addresses) == ["127.0.0.1:40747"]
        await trio.sleep(100)
        assert len(server.to_broker) == 1
        assert list(manager.addresses) == ["127.0.0.1:40747"]
        await server.to_broker[0].aclose()
        await trio.testing.wait_all_tasks_blocked()
        assert list(manager.addresses) == []
        await trio.sleep(5)
        assert list(manager.addresses) == ["127.0.0.1:40747"]


async def test_a_broker_that_knows_no_filter_servers_ends_it(autojump_clock):
    async with embedded_broker() as broker:
        assert broker.controller.server is not None
        del broker.controller.server.processors[301]
        with pytest.raises(BaseExceptionGroup) as failed:
            async with filter_server(broker):
                pytest.fail("it started")
        assert failed.group_contains(UnknownToBrokerError, match="does not support filter servers")


async def test_a_broker_that_is_not_there_yet_is_tried_again(autojump_clock):
    refused = 0

    async def open_stream(host, port):
        nonlocal refused
        refused += 1
        raise OSError("refused")

    config = FiltersrvConfig(connect_which_broker="h:1", filter_server_ip="h")
    controller = FiltersrvController(config, {}, open_stream=open_stream, listeners=[])
    async with trio.open_nursery() as nursery:
        await nursery.start(controller.run)
        await trio.sleep(10)
        assert refused >= 5
        nursery.cancel_scope.cancel()


def _command(code, fields):
    from trocket.remoting.codec import RemotingCommand

    return RemotingCommand(code, {name: str(value) for name, value in fields.items()})
