"""A broker whose store is opened in a role of controller mode: what it serves, and its tables."""

from __future__ import annotations

import pytest
import trio

from trocket.broker.controller import BrokerController
from trocket.broker.part import AtCut, StoreTerms
from trocket.broker.settings.config import BrokerConfig
from trocket.common.clock import ManualClock
from trocket.common.topic_names import SCHEDULE_TOPIC
from trocket.disk.memory_disk import MemoryDisk
from trocket.native import extension
from trocket.remoting.bodies import SubscriptionGroupConfig
from trocket.remoting.message_codec import decode_messages
from trocket.store.config import BrokerRole, MessageStoreConfig
from trocket.store.ha.copier import LogCopier
from trocket.store.message_store import MessageStore
from trocket.store.writing.in_sync_acks import ConfirmedCopy, InSyncAcks

from ..kit import broker_and_client, pull_fields, put_record, send_fields
from ..kit.clock import TrioClock
from .pop.consumer import pop_fields
from .transactions.test_end_transaction import COMMIT, END, end_fields

SEND, PULL, POP, PULL_NOT_FOUND = 310, 11, 200050, 19
ME, OTHER = 1, 2
MASTER = {"broker_role": BrokerRole.SYNC_MASTER}
HALF = "UNIQ_KEY\1AB\2TRAN_MSG\1true\2PGROUP\1PG\2"

CUT = {
    "consumerOffset.json": AtCut.ENDS,
    "delayOffset.json": AtCut.ENDS,
    "consumerOrderInfo.json": AtCut.ENDS,
    "topics.json": AtCut.RESTORED,
    "subscriptionGroup.json": AtCut.KEPT,
    "messageRequestMode.json": AtCut.KEPT,
    "topicQueueMapping.json": AtCut.KEPT,
    "consumerFilter.json": AtCut.KEPT,
    "auth.json": AtCut.KEPT,
}
"""What each table does; a new one is added here, with a test below if it refers to the log."""


def acks(*members: int, **changes: object) -> InSyncAcks:
    config = MessageStoreConfig()
    for name, value in changes.items():
        setattr(config, name, value)
    return InSyncAcks(config, TrioClock(), ME, frozenset({ME, *members}))


def terms(*members: int, **more: int) -> StoreTerms:
    return StoreTerms(acks(*members), **more)


def bodies(answer):
    return [message.body for message in decode_messages(answer.body)]


def test_each_table_says_what_becomes_of_it_at_a_cut():
    broker = BrokerController(
        BrokerConfig(), MessageStoreConfig(), clock=ManualClock(), disk=MemoryDisk(), listeners=[]
    )
    saved = {saved.file.name: saved.at_cut for part in broker.parts.all for saved in part.saved}
    assert saved == CUT


@pytest.mark.parametrize("native", [extension, None], ids=["as built", "pure"])
async def test_a_set_that_is_too_small_refuses_sends_as_rocketmq_does(autojump_clock, native):
    state = acks(min_in_sync_replicas=2)
    options = {"native": native, "terms": StoreTerms(state), **MASTER}
    async with broker_and_client(**options) as (broker, client):
        for _ in range(3):
            answer = await client.ask(SEND, send_fields(), b"x")
            assert (answer.code, answer.remark) == (1, "in-sync replicas not enough")
        assert broker.controller.store.max_physical_offset == 0
        # The broker's own messages are stored.
        put_record(broker, "T", "", b"own")
        state.report(OTHER, broker.controller.store.max_physical_offset)
        state.accept(frozenset({ME, OTHER}), 1)
        with trio.move_on_after(1):
            await client.ask(SEND, send_fields(), b"x")
        state.report(OTHER, broker.controller.store.max_physical_offset)
        assert broker.controller.store.max_offset("T", 0) == 2


async def test_a_held_pull_is_answered_when_its_message_is_confirmed(autojump_clock):
    state = acks(OTHER)
    async with broker_and_client(terms=StoreTerms(state), **MASTER) as (broker, client):
        store = broker.controller.store
        with trio.move_on_after(1):
            await client.ask(SEND, send_fields(), b"x")
        other = await broker.connect()
        async with trio.open_nursery() as nursery:
            answers = []

            async def pull():
                fields = pull_fields(sysFlag=6, suspendTimeoutMillis=10_000)
                answers.append(await other.ask(PULL, fields))

            nursery.start_soon(pull)
            await trio.sleep(1)
            assert answers == []
            state.report(OTHER, store.max_physical_offset)
            await trio.sleep(1)
            assert bodies(answers[0]) == [b"x"]


async def test_a_consumer_between_the_visible_and_the_real_end_waits_and_keeps_its_offset(
    autojump_clock,
):
    disk = MemoryDisk()
    async with broker_and_client(disk, terms=terms(), **MASTER) as (broker, client):
        for _ in range(3):
            assert (await client.ask(SEND, send_fields(), b"x")).code == 0
        broker.controller.offsets.commit_offset("G", "T", 0, 3)
    state = acks(OTHER)
    again = StoreTerms(state, confirmed=0)
    async with broker_and_client(disk, terms=again, **MASTER) as (broker, client):
        assert broker.controller.offsets.query_offset("G", "T", 0) == 3
        answer = await client.ask(PULL, pull_fields(sysFlag=4, queueOffset=2))
        assert answer.code == PULL_NOT_FOUND
        state.report(OTHER, broker.controller.store.max_physical_offset)
        answer = await client.ask(PULL, pull_fields(sysFlag=4, queueOffset=2))
        assert bodies(answer) == [b"x"]


async def test_offsets_beyond_a_cut_go_back_to_the_end(autojump_clock):
    """F10, L15: later messages would be skipped."""
    disk = MemoryDisk()
    delayed = {"i": "UNIQ_KEY\1AB\2DELAY\0011\2"}
    async with broker_and_client(disk, terms=terms(), **MASTER) as (broker, client):
        store = broker.controller.store
        await client.ask(SEND, send_fields(), b"kept")
        cut_at = store.max_physical_offset
        for _ in range(3):
            await client.ask(SEND, send_fields(), b"cut")
            await client.ask(SEND, send_fields(**delayed), b"late")
        broker.controller.offsets.commit_offset("G", "T", 0, 4)
        await trio.sleep(5)  # the delayed ones are delivered
        controller = broker.controller
        assert controller.parts.tables.delay_offsets.offset_table == {1: 3}
    async with broker_and_client(disk, terms=terms(cut_at=cut_at), **MASTER) as (broker, client):
        controller = broker.controller
        assert controller.store.max_offset("T", 0) == 1
        assert controller.offsets.query_offset("G", "T", 0) == 1
        assert controller.parts.tables.delay_offsets.offset_table == {1: 0}
        await client.ask(SEND, send_fields(**delayed), b"new")
        await trio.sleep(5)
        assert controller.store.max_offset("T", 0) == 2
        assert controller.store.max_offset(SCHEDULE_TOPIC, 0) == 1


@pytest.mark.parametrize("delay", ["DELAY\0011", "TIMER_DELAY_MS\0011000"], ids=["level", "timer"])
@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "stopped"])
async def test_a_delivery_that_may_be_cut_is_not_saved_as_done(autojump_clock, delay, is_killed):
    """F10: a master without followers becomes master again, with its files, without its tail."""
    disk, state = MemoryDisk(), acks()
    delayed = send_fields(i=f"UNIQ_KEY\1AB\2{delay}\2")
    async with broker_and_client(disk, terms=StoreTerms(state), **MASTER) as (broker, client):
        store = broker.controller.store
        assert (await client.ask(SEND, delayed, b"late")).code == 0
        cut_at = store.max_physical_offset
        state.accept(frozenset({ME, OTHER}), 1)
        await trio.sleep(60)  # it is delivered, and its progress may be saved
        assert store.max_physical_offset > cut_at
        left = disk.copy()
        if is_killed:
            left.process_death()
            state.report(OTHER, store.max_physical_offset)
            await trio.sleep(60)
    async with broker_and_client(
        left if is_killed else disk, terms=terms(cut_at=cut_at), **MASTER
    ) as (broker, client):
        await trio.sleep(5)
        assert broker.controller.store.max_offset("T", 0) == 1
    if is_killed:  # with its tail it is not delivered again
        async with broker_and_client(disk, terms=terms(), **MASTER) as (broker, client):
            await trio.sleep(5)
            assert broker.controller.store.max_offset("T", 0) == 1


async def test_a_popped_message_whose_check_point_is_cut_is_popped_again(autojump_clock):
    disk, state = MemoryDisk(), acks()
    async with broker_and_client(disk, terms=StoreTerms(state), **MASTER) as (broker, client):
        store = broker.controller.store
        broker.controller.groups.update([SubscriptionGroupConfig(group_name="G")])
        assert (await client.ask(SEND, send_fields(), b"popped")).code == 0
        cut_at = store.max_physical_offset
        state.accept(frozenset({ME, OTHER}), 1)
        assert bodies(await client.ask(POP, pop_fields(invisibleTime=40_000))) == [b"popped"]
        await trio.sleep(30)  # the check point is stored, and offsets may be saved
        assert store.max_physical_offset > cut_at
        left = disk.copy()
    left.process_death()
    for each in (left, disk):
        async with broker_and_client(each, terms=terms(cut_at=cut_at), **MASTER) as (_, client):
            await trio.sleep(60)
            assert bodies(await client.ask(POP, pop_fields())) == [b"popped"]


async def test_delayed_messages_that_are_hidden_are_not_delivered_twice(autojump_clock):
    """F12."""
    disk = MemoryDisk()
    delayed = {"i": "UNIQ_KEY\1AB\2DELAY\0011\2"}
    async with broker_and_client(disk, terms=terms(), **MASTER) as (broker, client):
        await client.ask(SEND, send_fields(**delayed), b"late")
        await trio.sleep(5)
        assert broker.controller.store.max_offset("T", 0) == 1
    state = acks(OTHER)
    hidden = StoreTerms(state, confirmed=0)
    async with broker_and_client(disk, terms=hidden, **MASTER) as (broker, client):
        assert broker.controller.parts.tables.delay_offsets.offset_table == {1: 1}
        await trio.sleep(5)
        state.report(OTHER, broker.controller.store.max_physical_offset)
        await trio.sleep(5)
        assert broker.controller.store.max_offset("T", 0) == 1


async def test_half_messages_that_are_hidden_are_open_transactions_all_the_same(autojump_clock):
    disk = MemoryDisk()
    async with broker_and_client(disk, terms=terms(), **MASTER) as (broker, client):
        half = await client.ask(SEND, send_fields(i=HALF, f=4), b"half")
        assert half.code == 0
    state = acks(OTHER)
    hidden = StoreTerms(state, confirmed=0)
    async with broker_and_client(disk, terms=hidden, **MASTER) as (broker, client):
        assert len(broker.controller.transactions.open) == 1
        store = broker.controller.store
        state.report(OTHER, store.max_physical_offset)
        with trio.move_on_after(1):
            await client.ask(END, end_fields(half.ext_fields, COMMIT))
        state.report(OTHER, store.max_physical_offset)
        assert store.max_offset("T", 0) == 1


def test_topics_of_a_new_master_are_rebuilt_from_its_log():
    """F9: a slave copies messages before it copies the topics."""
    source = MessageStore(
        MessageStoreConfig(mapped_file_size_commit_log=65536),
        clock=ManualClock(),
        disk=MemoryDisk(),
    )
    source.load()
    for queue_id in (0, 5):
        refusal, _, _ = source.put_message(
            "Young", queue_id, b"x", b"", born_timestamp_ms=1, born_host=bytes(8),
            store_host=bytes(8), tags_code=0,
        )  # fmt: skip
        assert refusal is None
    source.commit()
    log = bytes(source.log.view(0)[: source.max_physical_offset])
    disk = MemoryDisk()
    slave = _loaded(disk, BrokerRole.SLAVE, StoreTerms(ConfirmedCopy()))
    LogCopier(slave.store, is_ours=True).take(log)
    assert "Young" not in slave.topics.topic_config_table
    slave.store.close()
    master = _loaded(disk, BrokerRole.SYNC_MASTER, terms(OTHER, confirmed=0))
    topic = master.topics.topic_config_table["Young"]
    assert (topic.read_queue_nums, topic.write_queue_nums) == (6, 6)


def _loaded(disk: MemoryDisk, role: BrokerRole, opened: StoreTerms) -> BrokerController:
    broker = BrokerController(
        BrokerConfig(),
        MessageStoreConfig(broker_role=role, mapped_file_size_commit_log=65536),
        clock=ManualClock(),
        disk=disk,
        listeners=[],
        terms=opened,
    )
    broker.load()
    return broker
