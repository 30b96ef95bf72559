"""Searches by id and by key, on a broker."""

from __future__ import annotations

import zlib

import anyio
import pytest

from trocket.client import Admin, Message, Producer
from trocket.client.messages.message import ReceivedMessage, with_content
from trocket.operations.message_search.by_id import IdPage, search_by_id
from trocket.operations.message_search.by_key import search_by_key
from trocket.operations.message_search.criteria import Criteria
from trocket.operations.message_search.problems import Problem, SearchError
from trocket.operations.message_search.search import Limits, search
from trocket.remoting.body_compression import CompressionType
from trocket.remoting.headers import SendMessageRequestHeader
from trocket.remoting.hosts import host_bytes
from trocket.remoting.message_id import decode_offset_id, encode_offset_id
from trocket.remoting.request_codes import RequestCode
from trocket.testing import Broker

from .conftest import Do, send_all, until


def hidden(message: ReceivedMessage) -> ReceivedMessage:
    return with_content(message, body=b"***", properties={}, sys_flag=0)


async def indexed(admin: Admin, message_id: str) -> IdPage:
    """What is found for an id, once the index has it."""
    while True:
        try:
            return await search_by_id(admin, message_id)
        except SearchError as error:
            if error.problem is not Problem.UNKNOWN_ID:
                raise
        await anyio.sleep(0.01)


def test_both_ids_find_a_message_without_its_topic(do: Do, topic: str) -> None:
    async def verb(admin: Admin) -> None:
        async with Producer(admin.client) as producer:
            sent = await producer.send(Message(topic, b"found me"))
        page = await search_by_id(admin, f" {sent.offset_message_id.lower()}\n")
        assert [each.body for each in page.found] == [b"found me"]
        page = await indexed(admin, sent.message_id)
        assert [each.body for each in page.found] == [b"found me"]
        assert page.found[0].topic == topic
        assert (page.next_topic, page.failures) == ("", ())
        for message_id in (sent.offset_message_id, sent.message_id):
            page = await search_by_id(admin, message_id, mask=hidden)
            assert [each.body for each in page.found] == [b"***"]

    do(verb)


def test_ids_of_no_message_say_why(broker: Broker, do_once: Do, topic: str) -> None:
    async def problem(admin: Admin, text: str) -> SearchError:
        with pytest.raises(SearchError) as caught:
            await search_by_id(admin, text)
        return caught.value

    async def verb(admin: Admin) -> None:
        async with Producer(admin.client) as producer:
            sent = await producer.send(Message(topic, b"x"))
        host, _, port = broker.broker_address.rpartition(":")
        store_host = host_bytes(host, int(port))
        offset = decode_offset_id(sent.offset_message_id).physical_offset
        foreign = await problem(admin, encode_offset_id(host_bytes("10.0.0.9", 10911), 0))
        assert foreign.problem is Problem.OTHER_CLUSTER
        assert foreign.data == {"address": "10.0.0.9:10911"}
        beyond = await problem(admin, encode_offset_id(store_host, offset + (1 << 40)))
        assert beyond.problem is Problem.BEYOND_LOG
        assert beyond.data["broker"] == "broker-a"
        within = await problem(admin, encode_offset_id(store_host, offset + 4))
        assert within.problem is Problem.NO_MESSAGE_THERE
        unknown = await problem(admin, admin.client.next_unique_id())
        assert unknown.problem is Problem.UNKNOWN_ID
        assert int(unknown.data["topics"]) >= 1
        cut_off = await problem(admin, sent.message_id[:-1])
        assert cut_off.problem is Problem.CUT_OFF

    do_once(verb)


def test_a_deleted_message_is_said_to_be_deleted(do_once: Do, topic: str, broker: Broker) -> None:
    async def verb(admin: Admin) -> None:
        async with Producer(admin.client) as producer:
            sent = await producer.send(Message(topic, b"x"))
        broker.faults.refuse(
            RequestCode.VIEW_MESSAGE_BY_ID, 1, "can not find message by the offset, 1", times=None
        )
        with pytest.raises(SearchError) as caught:
            await search_by_id(admin, sent.offset_message_id)
        assert caught.value.problem is Problem.NO_MESSAGE_THERE
        broker.faults.refuse(RequestCode.GET_BROKER_RUNTIME_INFO, times=None)
        with pytest.raises(SearchError) as caught:
            await search_by_id(admin, sent.offset_message_id)
        assert caught.value.problem is Problem.NO_MESSAGE_THERE

    do_once(verb)


def test_a_search_in_many_topics_is_late_and_goes_on(
    broker: Broker, do_once: Do, topic: str
) -> None:
    async def verb(admin: Admin) -> None:
        broker.faults.swallow(RequestCode.QUERY_MESSAGE, times=None)
        message_id = admin.client.next_unique_id()
        page = await search_by_id(admin, message_id, limits=Limits(broker_s=0.1))
        assert page.found == ()
        assert [each.broker_name for each in page.failures] == ["broker-a"]
        page = await search_by_id(admin, message_id, limits=Limits(step_s=0.05, broker_s=5))
        assert page.next_topic
        assert page.searched == 0
        broker.faults.clear()
        with pytest.raises(SearchError):
            await search_by_id(admin, message_id, next_topic=page.next_topic)
        with pytest.raises(SearchError):
            await search_by_id(admin, message_id, next_topic="<no topic>")

    do_once(verb)


def test_a_body_that_cannot_be_decompressed_is_found_as_it_is(
    broker: Broker, do_once: Do, topic: str
) -> None:
    async def verb(admin: Admin) -> None:
        flag = CompressionType.ZLIB.sys_flag
        key = admin.client.next_unique_id()
        for body in (b"no zlib", zlib.compress(b"fine")):
            header = SendMessageRequestHeader(
                producer_group="hostile",
                topic=topic,
                default_topic="TBW102",
                default_topic_queue_nums=4,
                queue_id=0,
                sys_flag=flag,
                born_timestamp=0,
                flag=0,
                properties=f"UNIQ_KEY\x01{key}\x02KEYS\x01{key}k\x02",
            )
            code = RequestCode.SEND_MESSAGE
            await admin.client.request(broker.broker_address, code, header, body)

        async def both_indexed() -> bool:
            return len((await indexed(admin, key)).found) == 2

        await until(both_indexed)
        found = [(each.body, each.sys_flag & 1) for each in (await indexed(admin, key)).found]
        assert found == [(b"no zlib", 1), (b"fine", 0)]
        page = await search_by_key(admin, Criteria(topic=topic, key=f"{key}k"))
        assert [each.body for each in page.found] == [b"fine", b"no zlib"]
        by_place = await search_by_id(admin, page.found[1].offset_message_id)
        assert by_place.found[0].body == b"no zlib"

    do_once(verb)


def test_a_key_is_found_by_the_index_with_other_criteria(do: Do, topic: str) -> None:
    async def verb(admin: Admin) -> None:
        await send_all(
            admin,
            [
                Message(topic, b"%d" % each, keys=["k1", f"n{each}"], tags=("a", "b")[each % 2])
                for each in range(10)
            ],
        )
        criteria = Criteria(topic=topic, key="k1", is_newest_first=False)

        async def all_indexed() -> bool:
            return len((await search_by_key(admin, criteria)).found) == 10

        await until(all_indexed)
        page = await search_by_key(admin, criteria)
        assert [int(each.body) for each in page.found] == list(range(10))
        assert (page.scanned, page.full, page.failures) == (10, (), ())
        page = await search_by_key(admin, Criteria(topic=topic, key="k1", tag="b", text="7"))
        assert [int(each.body) for each in page.found] == [7]
        assert page.scanned == 10
        page = await search_by_key(admin, Criteria(topic=topic, key="k1", queue_id=0))
        assert {each.queue_id for each in page.found} == {0}
        # What a mask hides is not found.
        assert (await search_by_key(admin, criteria, mask=hidden)).found == ()
        for wanted, problem in [
            (Criteria(topic="Nowhere", key="k"), Problem.NO_TOPIC),
            (Criteria(topic=topic), Problem.EMPTY),
            (Criteria(topic=topic, key="a b"), Problem.BAD_KEY),
            (Criteria(topic=topic, key="k", sql="a >"), Problem.BAD_SQL),
        ]:
            with pytest.raises(SearchError) as caught:
                await search_by_key(admin, wanted)
            assert caught.value.problem is problem

    do(verb)


def test_a_full_answer_of_the_index_says_so(broker: Broker, do_once: Do, topic: str) -> None:
    async def verb(admin: Admin) -> None:
        await send_all(admin, [Message(topic, b"x", keys="many") for _ in range(70)])
        criteria = Criteria(topic=topic, key="many")

        async def is_full() -> bool:
            return bool((await search_by_key(admin, criteria)).full)

        await until(is_full)
        page = await search_by_key(admin, criteria)
        assert (len(page.found), page.full) == (64, ("broker-a",))
        broker.faults.swallow(RequestCode.QUERY_MESSAGE, times=None)
        page = await search_by_key(admin, criteria, limits=Limits(broker_s=0.1))
        assert [each.broker_name for each in page.failures] == ["broker-a"]

    do_once(verb)


@pytest.mark.slow  # a broker deletes a file in ten seconds at most
def test_what_was_deleted_is_said_to_be_deleted() -> None:
    async def verb(admin: Admin, broker: Broker) -> None:
        broker.create_topic("Old", queues=1)
        body = bytes(range(256)) * 1000
        async with Producer(admin.client, compress_over=1 << 30) as producer:
            sent = [await producer.send(Message("Old", body)) for _ in range(20)]
        broker.advance(hours=24 * 5)

        async def is_deleted() -> bool:
            await admin.delete_expired_commit_log("broker-a")
            info = await admin.broker_runtime_info("broker-a")
            return int(info["commitLogMinOffset"]) > 0

        await until(is_deleted)
        with pytest.raises(SearchError) as caught:
            await search_by_id(admin, sent[0].offset_message_id)
        assert caught.value.problem is Problem.DELETED
        assert caught.value.data["broker"] == "broker-a"
        queue = {"topic": "Old", "broker_name": "broker-a", "queue_id": 0}

        async def queue_begins_later() -> bool:
            await admin.clean_expired_consume_queues("broker-a")
            return (await admin.offsets("Old"))[0].begin > 0

        await until(queue_begins_later)
        with pytest.raises(SearchError) as caught:
            await search(admin, Criteria(**queue, offset=0))
        assert caught.value.problem is Problem.OFFSET_BELOW
        begin = caught.value.data["begin"]
        page = await search(admin, Criteria(**queue, is_newest_first=False))
        assert page.failures == ()
        assert page.found[0].queue_offset == begin

    async def main() -> None:
        with anyio.fail_after(20):
            async with (
                Broker(config={"mappedFileSizeCommitLog": 1 << 20}) as broker,
                Admin(broker.url) as admin,
            ):
                await verb(admin, broker)

    anyio.run(main, backend="trio")
