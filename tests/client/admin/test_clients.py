"""Connected clients, and the running info of consumers."""

from __future__ import annotations

import anyio
import pytest

from trocket.client import Admin, Message, NotFoundError, Producer, PushConsumer

from .conftest import Do, is_there, send, until


def test_clients_of_a_group_are_listed_and_asked(do: Do) -> None:
    async def verb(admin: Admin) -> None:
        await admin.create_topic("T", 1)
        assert (await admin.clients("g")).clients == ()
        (sent,) = await send(admin, "T", "handled")
        message = await admin.message(sent.offset_message_id)
        handled = []
        subscriptions = {"T": "A || B"}
        async with (
            PushConsumer(admin.client, group="g", subscriptions=subscriptions) as consumer,
            anyio.create_task_group() as group,
        ):
            group.start_soon(consumer.run, lambda message: handled.append(message.text))
            found = await admin.clients("g")
            (client,) = found.clients
            assert client.client_id == admin.client.client_id
            assert (client.language, client.brokers) == ("PYTHON", ("broker-a",))
            assert {s.topic: s.expression for s in found.subscriptions} == {
                "T": "A || B",
                "%RETRY%g": "*",
            }
            assert (found.consume_type, found.message_model) == ("CONSUME_PASSIVELY", "CLUSTERING")
            await until(lambda: is_there(consumer))
            info = await admin.running_info("g", client.client_id)
            assert {queue.topic for queue in info.queues} >= {"T"}
            assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
            assert [s.topic for s in info.subscriptions] == ["%RETRY%g", "T"]
            consumed = await admin.consume_directly("g", client.client_id, message)
            assert (consumed.result, handled) == ("CR_SUCCESS", ["handled"])
            with pytest.raises(NotFoundError, match="nobody"):
                await admin.running_info("g", "nobody")
            group.cancel_scope.cancel()

    do(verb)


def test_producers_of_a_group_are_listed(do_once: Do) -> None:
    async def verb(admin: Admin) -> None:
        await admin.create_topic("T", 1)
        assert await admin.producers("p") == ()
        async with Producer(admin.client, group="p") as producer:
            await producer.send(Message("T", "x"))

            async def found() -> object:
                return await admin.producers("p")

            await until(found)
            (client,) = await admin.producers("p", "T")
            assert client.client_id == admin.client.client_id

    do_once(verb)


@pytest.mark.slow
def test_each_member_says_what_it_wants_itself(do_once: Do) -> None:
    async def verb(admin: Admin) -> None:
        await admin.create_topic("T", 2)
        url = f"rocketmq://{';'.join(admin.client.url.name_servers)}"
        async with (
            PushConsumer(url, group="g", subscriptions={"T": "A"}) as first,
            PushConsumer(url, group="g", subscriptions={"T": "*"}) as second,
        ):

            async def shared() -> bool:
                return await is_there(first) and await is_there(second)

            await until(shared)
            found = await admin.members("g")
        assert found.silent == ()
        assert {
            info.client_id: [s.expression for s in info.subscriptions if s.topic == "T"]
            for info in found.infos
        } == {first.client.client_id: ["A"], second.client.client_id: ["*"]}
        assert [each.expression for each in found.group.subscriptions if each.topic == "T"] == ["*"]
        owned = [q.queue_id for info in found.infos for q in info.queues if q.topic == "T"]
        assert sorted(owned) == [0, 1]

    do_once(verb)
