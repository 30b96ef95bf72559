"""Class filters by `Admin`, with filter servers of ours and of Apache's kind."""

from __future__ import annotations

from collections.abc import Iterator

import anyio
import pytest

from tests.client.filter_server import FilterServer
from trocket import (
    Admin,
    BrokersError,
    ConfigurationError,
    ConsumeFromWhere,
    FilterClass,
    FilterClassInfo,
    Message,
    NotFoundError,
    Producer,
    PushConsumer,
    RouteNotFoundError,
    ServerError,
    blocking,
)
from trocket.remoting.request_codes import RequestCode
from trocket.testing import Broker

from .conftest import Do, until

CLASS = FilterClass("org.shop.KeepFifth", "…")


@pytest.fixture
def shared_broker() -> Iterator[Broker]:
    """Of the test's own: filter servers of another test would be in its routes."""
    with Broker() as broker:
        yield broker


async def routed(admin: Admin, topic: str, *servers: FilterServer) -> None:
    """Wait until the name server tells these filter servers, and no others."""
    wanted = {server.address for server in servers}

    async def is_so() -> bool:
        route = await admin.client.route(topic, is_fresh=True)
        return {each for found in route.filter_server_table.values() for each in found} == wanted

    await until(is_so)


def test_a_class_that_is_put_serves_a_consumer_that_uploads_none(do: Do, broker: Broker) -> None:
    async def verb(admin: Admin) -> None:
        await admin.create_topic("T", 1)
        with FilterServer(broker) as server:
            await routed(admin, "T", server)
            assert await admin.put_filter_class("g", "T", CLASS) == (server.address,)
            async with Producer(admin.client) as producer:
                for number in range(6):
                    await producer.send(Message("T", str(number)))
            async with PushConsumer(
                admin.client,
                group="g",
                subscriptions={"T": FilterClass("org.shop.KeepFifth")},
                consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            ) as consumer:
                found = []
                for _ in range(2):
                    message = await consumer.receive()
                    message.ack()
                    found.append(message.text)
            assert found == ["0", "5"]
            assert len(server.uploads) == 1

    do(verb)


def test_what_filter_servers_have(do: Do, broker: Broker) -> None:
    async def verb(admin: Admin) -> None:
        for topic in ("T", "U"):
            await admin.create_topic(topic, 1)
        with FilterServer(broker) as one, FilterServer(broker) as two:
            await routed(admin, "T", one, two)
            await admin.put_filter_class("g", "T", CLASS)
            await admin.put_filter_class("g", "U", CLASS)
            two.classes.pop(("U", "g"))
            info = FilterClassInfo(one.address, "T", "g", CLASS.class_name, 3, "java", "ready", "")
            found = await admin.filter_classes()
            assert len(found) == 3
            assert info in found
            assert found == sorted(found, key=lambda each: (each.server, each.topic))
            assert {each.server for each in await admin.filter_classes("T")} == {
                one.address,
                two.address,
            }
            assert [each.server for each in await admin.filter_classes("U")] == [one.address]

    do(verb)


def test_names_are_those_of_the_namespace(broker: Broker) -> None:
    async def main() -> None:
        with anyio.fail_after(20):
            async with Admin(broker.url, namespace="shop") as admin, Admin(broker.url) as bare:
                await admin.create_topic("T", 1)
                await bare.create_topic("T", 1)
                with FilterServer(broker) as server:
                    await routed(admin, "shop%T", server)
                    await admin.put_filter_class("g", "T", CLASS)
                    await bare.put_filter_class("g", "T", CLASS)
                    assert set(server.classes) == {("shop%T", "shop%g"), ("T", "g")}
                    (info,) = await admin.filter_classes()
                    assert (info.topic, info.group) == ("T", "g")
                    topics = [each.topic for each in await bare.filter_classes()]
                    assert sorted(topics) == ["T", "shop%T"]
                    await admin.remove_filter_class("g", "T")
                    assert list(server.classes) == [("T", "g")]

    anyio.run(main, backend="trio")


def test_failures_are_reported_with_the_other_answers(do_once: Do, broker: Broker) -> None:
    async def verb(admin: Admin) -> None:
        await admin.create_topic("T", 1)
        with FilterServer(broker) as one, FilterServer(broker) as two:
            await routed(admin, "T", one, two)
            one.refusal = "; expected"
            with pytest.raises(BrokersError, match="1 of 2 filter servers failed") as caught:
                await admin.put_filter_class("g", "T", CLASS)
            assert caught.value.partial == (two.address,)
            (failure,) = caught.value.failures
            assert (failure.broker_name, "; expected" in str(failure.error)) == (one.address, True)
            with pytest.raises(BrokersError, match="there is no such class") as caught:
                await admin.remove_filter_class("g", "T")
            assert caught.value.partial == (two.address,)

    do_once(verb)


def test_one_that_lists_nothing_is_an_error(do_once: Do, broker: Broker) -> None:
    """Apache's do not know the request."""

    async def verb(admin: Admin) -> None:
        await admin.create_topic("T", 1)
        with FilterServer(broker, without=(RequestCode.LIST_MESSAGE_FILTER_CLASSES,)) as server:
            await routed(admin, "T", server)
            with pytest.raises(ServerError, match="REQUEST_CODE_NOT_SUPPORTED"):
                await admin.filter_classes()

    do_once(verb)


def test_what_is_missing_or_wrong(do_once: Do, broker: Broker) -> None:
    async def verb(admin: Admin) -> None:
        await admin.create_topic("T", 1)
        for call in (
            lambda: admin.filter_classes(),
            lambda: admin.filter_classes("T"),
            lambda: admin.put_filter_class("g", "T", CLASS),
            lambda: admin.remove_filter_class("g", "T"),
        ):
            with pytest.raises(NotFoundError, match="has a filter server; see filterServerNums"):
                await call()
        with pytest.raises(RouteNotFoundError):
            await admin.put_filter_class("g", "Nosuch", CLASS)
        with pytest.raises(ConfigurationError, match="without a source"):
            await admin.put_filter_class("g", "T", FilterClass("Named"))
        with pytest.raises(ConfigurationError, match="has 65537 bytes"):
            await admin.put_filter_class("g", "T", FilterClass("A", "x" * 65_537))
        with pytest.raises(ConfigurationError, match="illegal character"):
            await admin.put_filter_class("g h", "T", CLASS)

    do_once(verb)


def test_threads_have_it_too(broker: Broker) -> None:
    broker.create_topic("T", queues=1)
    with blocking.Admin(broker.url) as admin, FilterServer(broker) as server:
        broker.create_topic("T", queues=1)  # the name server knows the filter server then
        assert admin.put_filter_class("g", "T", CLASS) == (server.address,)
        assert [each.group for each in admin.filter_classes("T")] == ["g"]
        assert admin.remove_filter_class("g", "T") == (server.address,)
        assert admin.filter_classes() == []
