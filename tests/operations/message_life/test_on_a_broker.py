"""The life of messages on a broker of our own: each outcome, made by real clients."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import Any, Final, TypeVar

import anyio
import msgspec
import pytest

from tests.kit import lives
from tests.kit.lives import CASES, CONFIG, Case, play, soon_traced, until
from trocket.client import (
    Admin,
    Message,
    Producer,
    PushConsumer,
    QueueOffsets,
    SendResult,
    SimpleConsumer,
)
from trocket.operations.message_life import (
    GapReason,
    Life,
    LifeFacts,
    LookUp,
    LookUpResult,
    OutcomeKind,
    Source,
    StageKind,
    StageState,
    VerdictKey,
    collect_life,
    life_of,
)
from trocket.remoting.hosts import host_bytes
from trocket.remoting.message_id import decode_offset_id, encode_offset_id
from trocket.remoting.request_codes import RequestCode
from trocket.remoting.response_codes import ResponseCode
from trocket.testing import Broker

DEADLINE_S: Final = 30.0
T = TypeVar("T")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(config=CONFIG) as broker:
        yield broker


@pytest.fixture(autouse=True)
def _traces_are_sent_soon() -> Iterator[None]:
    with soon_traced():
        yield


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_each_outcome_is_made_by_real_clients(broker: Broker, case: Case) -> None:
    anyio.run(play, broker.url, case, f"T{uuid.uuid4().hex[:8]}", backend="trio")


def run(broker: Broker, scenario: Callable[[Admin], Awaitable[T]], **options: Any) -> T:
    """What a scenario with an administrator gives."""

    async def main() -> T:
        with anyio.fail_after(DEADLINE_S):
            async with Admin(broker.url, **options) as admin:
                return await scenario(admin)

    return anyio.run(main, backend="trio")


async def sent(admin: Admin, topic: str, body: str | bytes = "x") -> SendResult:
    """A message in a new topic with one queue."""
    await admin.create_topic(topic, 1)
    async with Producer(admin.client) as producer:
        return await producer.send(Message(topic, body))


def new_name() -> str:
    return f"T{uuid.uuid4().hex[:8]}"


def place_id(address: str, offset: int) -> str:
    """A broker's id."""
    ip, _, port = address.rpartition(":")
    return encode_offset_id(host_bytes(ip, int(port)), offset)


@pytest.mark.parametrize("message_id", ["", "  ", "two words", "a\tb"])
def test_what_is_no_id_is_not_looked_for(broker: Broker, message_id: str) -> None:
    facts = run(broker, lambda admin: collect_life(admin, message_id))
    assert facts.look_up.result is LookUpResult.NO_ID


@pytest.mark.parametrize("message_id", ["7F00000124A551B6", "nosuch", "<script>", "\u202e", "\x00"])
def test_an_id_that_no_message_has_is_not_found(broker: Broker, message_id: str) -> None:
    facts = run(broker, lambda admin: collect_life(admin, message_id))
    assert facts.look_up.result is LookUpResult.NOT_FOUND
    assert facts.message is None


def test_a_broker_that_name_servers_do_not_know_is_not_asked(broker: Broker) -> None:
    found = place_id("203.0.113.9:10911", 5)
    facts = run(broker, lambda admin: collect_life(admin, found))
    assert facts.look_up.result is LookUpResult.FOREIGN_BROKER
    assert (facts.look_up.address, facts.look_up.offset) == ("203.0.113.9:10911", 5)


def test_an_id_behind_the_end_of_the_log_is_said_to_be_there(broker: Broker) -> None:
    run(broker, lambda admin: sent(admin, new_name()))
    found = place_id(broker.broker_address, 1 << 40)
    look_up = run(broker, lambda admin: collect_life(admin, found)).look_up
    assert look_up.result is LookUpResult.BEYOND_LOG
    assert look_up.log_end is not None
    assert look_up.log_end < 1 << 40


def test_a_place_between_messages_has_none(broker: Broker) -> None:
    result = run(broker, lambda admin: sent(admin, new_name()))
    place = decode_offset_id(result.offset_message_id)
    found = place_id(broker.broker_address, place.physical_offset + 7)
    facts = run(broker, lambda admin: collect_life(admin, found))
    assert facts.look_up.result is LookUpResult.NOT_FOUND


def test_a_topic_that_is_not_there_is_named(broker: Broker) -> None:
    facts = run(broker, lambda admin: collect_life(admin, "A1B2", "NoSuch"))
    assert facts.look_up == LookUp("A1B2", LookUpResult.NO_TOPIC, "NoSuch")


def test_an_id_of_a_deleted_message_says_so() -> None:
    config = {
        "mappedFileSizeCommitLog": 64 << 10,
        "cleanResourceInterval": 100,
    }
    with Broker(config=config) as broker:

        async def scenario(admin: Admin) -> LookUp:
            body = Random(1).randbytes(50_000)  # which compression does not make smaller
            first = await sent(admin, "T", body)
            for _ in range(3):
                await sent(admin, "T", body)
            # Only what is safely in the queues may be deleted.
            await anyio.to_thread.run_sync(broker.restart)
            await admin.update_broker_config("broker-a", {"fileReservedTime": "0"})
            await admin.delete_expired_commit_log()

            async def deleted() -> LookUp | None:
                found = (await collect_life(admin, first.offset_message_id)).look_up
                return found if found.result is LookUpResult.DELETED else None

            return await until(deleted)

        look_up = run(broker, scenario)
    assert look_up.log_begin is not None
    assert look_up.offset is not None
    assert look_up.offset < look_up.log_begin


def test_a_damaged_body_is_found_by_its_crc(tmp_path: Path) -> None:
    with Broker(folder=tmp_path / "store") as broker:

        async def scenario(admin: Admin) -> Life:
            result = await sent(admin, "T", "the body of it")
            log = min((tmp_path / "store").rglob("commitlog/*"))
            with log.open("r+b") as file:
                at = file.read().index(b"the body of it")
                file.seek(at)
                file.write(b"T")
            return life_of(await collect_life(admin, result.offset_message_id))

        life = run(broker, scenario)
    assert life.verdict.key is VerdictKey.DAMAGED
    assert life.stages[1].is_intact is False


class StuckDispatch(Admin):
    """An administrator of a broker whose queues end before the message."""

    async def topic_offsets(self, broker: str, topic: str) -> list[QueueOffsets]:  # type: ignore[override]
        found = await super().topic_offsets(broker, topic)
        return [msgspec.structs.replace(each, end=each.begin) for each in found]


def test_a_message_that_is_in_the_log_and_not_in_its_queue(broker: Broker) -> None:
    async def main() -> Life:
        async with StuckDispatch(broker.url) as admin:
            result = await sent(admin, new_name())
            return life_of(await collect_life(admin, result.offset_message_id))

    life = anyio.run(main, backend="trio")
    assert life.verdict.key is VerdictKey.NOT_IN_QUEUE
    (queue,) = [each for each in life.stages if each.kind is StageKind.QUEUE]
    assert (queue.state, queue.known_from) == (StageState.NOT_YET, (Source.QUEUE_RANGE,))


def test_what_a_broker_does_not_answer_is_a_gap(broker: Broker) -> None:
    """The message is found; questions that hang take no longer than the deadline."""

    async def scenario(admin: Admin) -> tuple[Life, float]:
        result = await sent(admin, new_name())
        broker.faults.swallow(RequestCode.GET_BROKER_CONFIG, times=None)
        broker.faults.refuse(RequestCode.GET_BROKER_CONSUME_STATS, times=None)
        begin = anyio.current_time()
        facts = await collect_life(admin, result.offset_message_id, deadline_s=1.0)
        return life_of(facts), anyio.current_time() - begin

    try:
        life, spent_s = run(broker, scenario, timeout_s=30.0)
    finally:
        broker.faults.clear()
    assert spent_s < 2.0
    assert life.message is not None
    gaps = {each.what: each.reason for each in life.gaps}
    assert gaps["settings"] is GapReason.SILENT
    assert gaps["offsets"] is GapReason.REFUSED
    assert life.stages[-1].state is StageState.UNKNOWN


def test_a_broker_that_hangs_leaves_a_verdict(broker: Broker) -> None:
    async def scenario(admin: Admin) -> LifeFacts:
        result = await sent(admin, new_name())
        broker.faults.swallow(times=None)
        return await collect_life(admin, result.offset_message_id, deadline_s=0.5)

    try:
        facts = run(broker, scenario, timeout_s=30.0)
    finally:
        broker.faults.clear()
    assert facts.look_up.result is LookUpResult.SILENT


def test_a_life_takes_few_requests() -> None:
    """Three groups with two members each, one of them popping: a console's page has 40."""
    with Broker(config=CONFIG) as broker:

        async def scenario(admin: Admin) -> tuple[int, int]:
            await admin.create_topic("T", 4)
            async with AsyncExitStack() as stack:
                for index in range(6):
                    member = PushConsumer(
                        broker.url,
                        group=f"g{index % 3}",
                        subscriptions={"T": "*"},
                        persist_offsets_s=0.1,
                    )
                    await stack.enter_async_context(member)
                popper = SimpleConsumer(broker.url, group="g2", subscriptions={"T": "*"})
                await stack.enter_async_context(popper)
                result = await sent(admin, "T")
                await collect_life(admin, result.message_id, "T")  # connections and routes
                counts = broker.faults.delay(None, 0.0, times=None)
                names = broker.faults.delay(None, 0.0, times=None, namesrv=True)
                await collect_life(admin, result.message_id, "T")
                return counts.hits, names.hits

        at_broker, at_name_server = run(broker, scenario)
    assert at_broker <= 40, at_broker
    assert at_name_server <= 40


def test_groups_beyond_the_limit_are_known_by_their_offsets(broker: Broker) -> None:
    async def scenario(admin: Admin) -> tuple[Life, str]:
        topic = new_name()
        result = await sent(admin, topic)
        for index in range(3):
            await admin.create_group(f"{topic}-{index}")
            await admin.reset_offset(f"{topic}-{index}", topic, to="end")
        facts = await collect_life(
            admin, result.offset_message_id, groups=[f"{topic}-1"], groups_max=1
        )
        return life_of(facts), topic

    life, topic = run(broker, scenario)
    assert life.other_groups == (f"{topic}-0", f"{topic}-2")
    assert {each.group: each.kind for each in life.outcomes} == {
        f"{topic}-{index}": OutcomeKind.CONSUMED_OR_FILTERED for index in range(3)
    }


@pytest.mark.parametrize(
    "case",
    [lives.retrying, lives.dead_letter, lives.passed_over, lives.in_flight_by_pop, lives.delayed],
    ids=lambda case: case.__name__,
)
def test_names_are_without_the_namespace_of_the_client(broker: Broker, case: Case) -> None:
    anyio.run(play, f"{broker.url}?namespace=shop", case, new_name(), backend="trio")


def test_a_popped_message_that_was_not_acknowledged_is_retried() -> None:
    """It is visible again, as a copy in the retry topic; popped again, the copy is in flight."""
    with Broker(config=CONFIG) as broker:

        async def scenario(admin: Admin) -> None:
            await admin.create_topic("T", 1)
            place = lives.Place(admin, broker.url, "T", "g", "broker-a", lives.Asked())
            options = {"group": "g", "subscriptions": {"T": "*"}}
            async with SimpleConsumer(broker.url, **options) as consumer:
                result = await place.send()

                async def popped() -> object:
                    return await consumer.receive(invisible_s=20.0, wait_s=1.0)

                await until(popped)
                await place.outcome(result.message_id, OutcomeKind.IN_FLIGHT)
                await anyio.to_thread.run_sync(lambda: broker.advance(minutes=2))
                found = await place.outcome(result.message_id, OutcomeKind.RETRYING)
                assert found.known_from == (Source.RETRY_TOPIC,)
                assert found.deliveries == 1
                (message,) = await until(popped)
                found = await place.outcome(result.message_id, OutcomeKind.IN_FLIGHT)
                assert (found.known_from, found.deliveries) == ((Source.POPS,), 2)
                await consumer.ack(message)
                found = await place.outcome(result.message_id, OutcomeKind.CONSUMED_OR_FILTERED)
                assert found.known_from == (Source.RETRY_TOPIC,)

        run(broker, scenario)


def test_a_client_that_may_not_read_the_topic_gets_the_reason(broker: Broker) -> None:
    async def scenario(admin: Admin) -> LookUp:
        topic = new_name()
        await sent(admin, topic)
        broker.faults.refuse(
            RequestCode.QUERY_MESSAGE, ResponseCode.NO_PERMISSION, "not yours", times=None
        )
        return (await collect_life(admin, "A1B2", topic)).look_up

    try:
        look_up = run(broker, scenario)
    finally:
        broker.faults.clear()
    assert look_up.result is LookUpResult.REFUSED
    assert "not yours" in look_up.text


def test_members_beyond_the_limit_count_as_silent(broker: Broker) -> None:
    """Without them it is not known whether all of the group would have passed it over."""

    async def scenario(admin: Admin) -> Life:
        topic = new_name()
        result = await sent(admin, topic)
        async with AsyncExitStack() as stack:
            for _ in range(2):
                member = PushConsumer(broker.url, group=topic, subscriptions={topic: "*"})
                await stack.enter_async_context(member)

            async def has_both() -> bool:
                return len((await admin.clients(topic)).clients) == 2

            await until(has_both)
            facts = await collect_life(admin, result.offset_message_id, members_max=1)
        (group,) = facts.groups
        assert [each.is_silent for each in group.members].count(True) == 1
        return life_of(facts)

    life = run(broker, scenario)
    assert [(each.what, each.reason) for each in life.gaps] == [("members", GapReason.LIMITED)]


def test_copies_are_unknown_where_the_topics_are(broker: Broker) -> None:
    async def scenario(admin: Admin) -> LifeFacts:
        result = await sent(admin, new_name())
        code = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
        broker.faults.refuse(code, times=None, namesrv=True)
        return await collect_life(admin, result.offset_message_id, groups=["g"])

    try:
        facts = run(broker, scenario)
    finally:
        broker.faults.clear()
    assert [(each.what, each.reason) for each in facts.gaps] == [("topics", GapReason.REFUSED)]
    assert [(each.group, each.copies, each.pops) for each in facts.groups] == [("g", None, None)]


def test_it_works_under_asyncio(broker: Broker) -> None:
    anyio.run(play, broker.url, lives.stages_of_a_message, new_name(), backend="asyncio")
