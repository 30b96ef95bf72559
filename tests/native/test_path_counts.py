"""What the C extension takes, leaves and fails at is counted, and shown to operators."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from trocket import native
from trocket.broker.pulling.fast_paths import fast_paths
from trocket.native.path_counts import TROUBLE_KEY
from trocket.remoting.bodies import KVTable
from trocket.remoting.request_codes import RequestCode

from ..broker.metrics.test_service import Page, read, service
from ..kit import Broker, embedded_broker, pull_fields, send_fields
from ..kit.client import Client
from .frames import batch_entry

pytestmark = pytest.mark.skipif(native.extension is None, reason=native.choice.description)

SEND, PULL = int(RequestCode.SEND_MESSAGE_V2), int(RequestCode.PULL_MESSAGE)
PROPERTIES = b"UNIQ_KEY\x010123456789ABCDEF\x02"
LATER = {"i": "UNIQ_KEY\x010123456789ABCDEF\x02DELAY\x011\x02"}
NOT_ASCII = {"i": "UNIQ_KEY\x010123456789ABCDEF\x02TAGS\x01\u00e9\x02"}


class Failing:
    """The extension, one of whose functions fails as after a rename in Python."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name != self._name:
            return getattr(native.extension, name)

        def fail(*_: object) -> None:
            raise AttributeError(f"no attribute for {name}")

        return fail


async def send(client: Client, **fields: object) -> None:
    answer = await client.ask(SEND, send_fields(**fields), b"x")
    assert answer.code == 0, answer.remark


async def pull_at_end(broker: Broker, nursery: trio.Nursery, offset: int) -> None:
    """Pull from the end of the queue: the pull waits."""
    consumer = await broker.connect()

    async def pull() -> None:
        assert (await consumer.ask(PULL, pull_fields(queueOffset=offset))).code == 0

    nursery.start_soon(pull)
    await trio.testing.wait_all_tasks_blocked()


def counts(broker: Broker) -> dict[str, tuple[int, int, int]]:
    parts = broker.controller.parts
    paths = fast_paths(parts.store, parts.pulling.processor, parts.transactions.service.counts)
    return {name: (each.taken, each.left, each.failed) for name, each in paths.items()}


async def told(client: Client) -> dict[str, str]:
    """What the runtime information says about fast paths."""
    answer = await client.ask(RequestCode.GET_BROKER_RUNTIME_INFO, {})
    table = KVTable.from_body(answer.body).table
    return {key: text for key, text in table.items() if key.startswith(TROUBLE_KEY)}


async def page_of(broker: Broker) -> Page:
    return await read(service(broker))


async def test_what_is_taken_and_left_is_counted(autojump_clock: object) -> None:
    async with embedded_broker() as broker, trio.open_nursery() as nursery:
        client = await broker.connect()
        await send(client)  # creates the topic
        before = counts(broker)["sends"]
        await send(client)
        await send(client)
        await send(client, **NOT_ASCII)
        taken, left, failed = counts(broker)["sends"]
        assert (taken - before[0], left - before[1], failed) == (2, 1, 0)
        batch = batch_entry(b"1", PROPERTIES) + batch_entry(b"2", PROPERTIES)
        answer = await client.ask(RequestCode.SEND_BATCH_MESSAGE, send_fields(m="true"), batch)
        assert answer.code == 0, answer.remark
        assert counts(broker)["batches"] == (1, 0, 0)
        await pull_at_end(broker, nursery, 6)
        await send(client, **LATER)
        await trio.sleep(2)  # it is delivered, and wakes the pull
        await trio.testing.wait_all_tasks_blocked()
        found = counts(broker)
        assert sum(found["deliveries"]) == 1
        assert found["holds"] == (0, 1, 0)
        assert found["wakes"] == (1, 0, 0)
        page = await page_of(broker)
        assert await told(client) == {}
    assert page.value("trocket_fast_path_total", path="wakes", by="native") == 1
    assert page.value("trocket_fast_path_total", path="sends", by="python") == left
    assert page.value("trocket_fast_path_failures_total", path="sends") == 0


class Renamed(Failing):
    """The extension, where a class of Python has lost the attribute `topic_sys_flag`."""

    def wake_pulls(self, rules: Any, keys: list[Any], log_end: int) -> Any:
        assert native.extension is not None
        topics = dict.fromkeys(rules.topics, object())
        return native.extension.wake_pulls(rules._replace(topics=topics), keys, log_end)


async def test_a_failed_wake_is_told_and_python_answers(
    autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    extension: Any = Renamed("")
    async with embedded_broker(native=extension) as broker, trio.open_nursery() as nursery:
        client = await broker.connect()
        await send(client)
        await pull_at_end(broker, nursery, 1)
        await send(client)
        await trio.testing.wait_all_tasks_blocked()
        assert counts(broker)["wakes"] == (0, 1, 1)
        assert await told(client) == {f"{TROUBLE_KEY}wakes": "taken 0, left 1, failed 1"}
    assert "topic_sys_flag" in caplog.text


async def test_a_failed_send_is_told(
    autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    failing: Any = Failing("pack_sends")
    async with embedded_broker(native=failing) as broker:
        client = await broker.connect()
        with pytest.raises(trio.EndOfChannel):
            await client.ask(SEND, send_fields(), b"x")
        assert counts(broker)["sends"] == (0, 0, 1)
        other = await broker.connect()
        assert await told(other) == {f"{TROUBLE_KEY}sends": "taken 0, left 0, failed 1"}
        page = await page_of(broker)
    assert page.value("trocket_fast_path_failures_total", path="sends") == 1
    assert "no attribute for pack_sends" in caplog.text
