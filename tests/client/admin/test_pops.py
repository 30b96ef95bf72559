"""Which messages are popped and not acknowledged, and how groups get messages."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from trocket.client import (
    Admin,
    ConfigurationError,
    GroupPops,
    InvisibleMessage,
    NotFoundError,
    RequestModeInfo,
    RouteNotFoundError,
)
from trocket.remoting.headers import AckMessageRequestHeader, PopMessageRequestHeader
from trocket.remoting.request_codes import RequestCode
from trocket.testing import Broker

from .conftest import Do, send, until

SHORT_S = 15.0
"""Stored at once, see `shared_broker`; longer than a test takes."""


@pytest.fixture(scope="module")
def shared_broker() -> Iterator[Broker]:
    """What is in memory stays there, however slow the machine is."""
    config = {"popCkStayBufferTime": 600_000, "popCkStayBufferTimeOut": 20_000}
    with Broker(config=config) as broker:
        yield broker


async def address_of(admin: Admin) -> str:
    (broker,) = (await admin.cluster()).brokers
    assert broker.address is not None
    return broker.address


async def pop(admin: Admin, topic: str, count: int, seconds: float = 60.0) -> dict[str, str]:
    """Pop messages; the fields of the answer."""
    header = PopMessageRequestHeader(
        consumer_group="g", topic=topic, queue_id=-1, max_msg_nums=count,
        invisible_time=int(seconds * 1000), poll_time=0, born_time=0, init_mode=0,
    )  # fmt: skip
    answer = await admin.client.request(await address_of(admin), RequestCode.POP_MESSAGE, header)
    return dict(answer.ext_fields)


async def ack(admin: Admin, message: InvisibleMessage) -> None:
    header = AckMessageRequestHeader(
        consumer_group="g", topic=message.topic, queue_id=message.queue_id,
        extra_info=message.receipt, offset=message.offset,
    )  # fmt: skip
    await admin.client.request(await address_of(admin), RequestCode.ACK_MESSAGE, header)


def offsets(pops: GroupPops) -> list[int]:
    return [message.offset for message in pops.messages]


async def prepare(admin: Admin, *bodies: str) -> str:
    """A topic with messages: a new one, as records outlive their topics."""
    topic = f"T{uuid.uuid4().hex}"
    await admin.create_topic(topic, 1)
    await admin.create_group("g")
    await send(admin, topic, *bodies)
    return topic


def test_popped_messages_are_shown_with_the_time_when_they_come_back(do: Do) -> None:
    async def verb(admin: Admin) -> None:
        topic = await prepare(admin, *"abcde")
        first = await pop(admin, topic, 3)
        pops = await admin.popped("g", topic)
        assert [(each.topic, each.queue_id, each.offset) for each in pops.messages] == [
            (topic, 0, 0), (topic, 0, 1), (topic, 0, 2),
        ]  # fmt: skip
        popped_ms = int(first["popTime"])
        assert {(each.popped_ms, each.visible_ms) for each in pops.messages} == {
            (popped_ms, popped_ms + 60_000)
        }
        assert not any(each.is_stored for each in pops.messages)
        (queue,) = pops.queues
        assert (queue.topic, queue.committed, queue.popped, queue.end) == (topic, 0, 3, 5)
        assert (queue.waiting, queue.invisible, pops.waiting) == (2, 3, 2)
        assert (pops.group, pops.without_memory, pops.left_out) == ("g", (), 0)
        assert pops.without_pops == ()
        mine = [each for each in (await admin.popped("g")).messages if each.topic == topic]
        assert len(mine) == 3
        assert offsets(await admin.popped("other")) == []

    do(verb)


def test_a_receipt_that_is_shown_acknowledges_its_message(do_once: Do) -> None:
    async def verb(admin: Admin) -> None:
        topic = await prepare(admin, *"abc")
        await pop(admin, topic, 3)
        middle = (await admin.popped("g", topic)).messages[1]
        await ack(admin, middle)
        assert offsets(await admin.popped("g", topic)) == [0, 2]
        assert middle.is_stored is False

    do_once(verb)


@pytest.mark.slow
def test_stored_pops_are_read_from_the_records(do_once: Do, broker: Broker) -> None:
    """A time shorter than popCkStayBufferTimeOut is stored at once."""

    async def verb(admin: Admin) -> None:
        topic = await prepare(admin, *"abc")
        await pop(admin, topic, 2, seconds=SHORT_S)
        pops = await admin.popped("g", topic)
        assert offsets(pops) == [0, 1]
        assert all(each.is_stored for each in pops.messages)
        await ack(admin, pops.messages[0])
        assert offsets(await admin.popped("g", topic)) == [1]
        # Read from now on, there is none.
        later = await admin.popped("g", topic, since_ms=admin.client.wall_ms() + 3_600_000)
        assert offsets(later) == []

        async def is_back() -> Any:
            pops = await moved.popped("g")
            topics = {queue.topic: queue for queue in pops.queues}
            retry = topics.get(f"%RETRY%g_{topic}")
            return retry is not None and retry.waiting == 1 and not pops.messages

        broker.advance(seconds=SHORT_S)
        # What is invisible is reckoned by the client's clock, which goes with the broker's here.
        async with Admin(broker.url, wall_ms=lambda: broker.now_ms) as moved:
            await until(is_back)
            await pop(admin, topic, 2)  # the retried message, and the third
            pops = await moved.popped("g", topic)
            assert {(each.topic, each.offset) for each in pops.messages} == {
                (topic, 2), (f"%RETRY%g_{topic}", 0),
            }  # fmt: skip

    do_once(verb)


def test_a_topic_that_is_not_there_has_no_pops(do_once: Do) -> None:
    async def verb(admin: Admin) -> None:
        with pytest.raises(RouteNotFoundError):
            await admin.popped("g", "none")
        with pytest.raises(ConfigurationError):
            await admin.popped("a b")

    do_once(verb)


def test_the_number_of_records_is_limited(do_once: Do, monkeypatch) -> None:
    monkeypatch.setattr("trocket.client.admin.pops.RECORDS_MAX", 1)
    monkeypatch.setattr("trocket.client.admin.pops.PULL_COUNT", 1)

    async def verb(admin: Admin) -> None:
        topic = await prepare(admin, *"abc")
        for _ in range(3):
            await pop(admin, topic, 1, seconds=SHORT_S)
        pops = await admin.popped("g", topic)
        assert pops.left_out >= 2

    do_once(verb)


def test_modes_are_set_and_shown(do: Do) -> None:
    async def verb(admin: Admin) -> None:
        topic = await prepare(admin)
        assert await admin.request_modes() == ()
        await admin.set_request_mode(topic, "g", "pop", share=2)
        (mode,) = await admin.request_modes()
        assert mode == RequestModeInfo(topic, "g", "POP", 2, ("broker-a",))
        await admin.set_request_mode(topic, "g", "PULL", cluster="DefaultCluster")
        (mode,) = await admin.request_modes()
        assert (mode.mode, mode.share) == ("PULL", 0)

    do(verb)


def test_a_mode_that_cannot_be_is_refused(do_once: Do) -> None:
    async def verb(admin: Admin) -> None:
        topic = await prepare(admin)
        with pytest.raises(ConfigurationError, match="PULL, POP"):
            await admin.set_request_mode(topic, "g", "push")
        with pytest.raises(RouteNotFoundError):
            await admin.set_request_mode("none", "g", "pop")
        with pytest.raises(NotFoundError, match="cluster other"):
            await admin.set_request_mode(topic, "g", "pop", cluster="other")

    do_once(verb)


def test_the_pops_of_several_groups_are_read_at_once(do: Do) -> None:
    async def verb(admin: Admin) -> None:
        topic = await prepare(admin, *"abc")
        await admin.create_group("idle")
        await pop(admin, topic, 2, SHORT_S)
        await pop(admin, topic, 1, SHORT_S)  # a second record, whatever other tests popped
        found = await admin.popped_by(["g", "idle"], topic, "broker-a")
        assert {group: offsets(pops) for group, pops in found.items()} == {
            "g": [0, 1, 2],
            "idle": [],
        }
        alone = await admin.popped("g", topic, since_ms=found["g"].since_ms)
        assert found["g"].messages == alone.messages
        few = await admin.popped_by(["g"], topic, "broker-a", records_max=1)
        assert few["g"].left_out > 0
        with pytest.raises(NotFoundError, match="nosuch"):
            await admin.popped_by(["g"], topic, "nosuch")

    do(verb)
