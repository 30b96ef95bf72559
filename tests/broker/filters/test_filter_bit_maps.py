"""Bit maps of messages: equal to Apache's, left out where slow, and no match is skipped."""

from __future__ import annotations

import tarfile

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from trocket.broker.filters.bloom import BloomFilter
from trocket.broker.filters.consumer_filter_manager import (
    HEARTBEAT_CHARACTERS_MAX,
    ConsumerFilterManager,
)
from trocket.broker.filters.filter_bit_maps import (
    BORN_MARGIN_MS,
    REST_FACTOR,
    SLOW_S,
    FilterBitMaps,
)
from trocket.broker.filters.subscription import Subscription
from trocket.common.clock import ManualClock
from trocket.common.message_properties import properties_to_bytes
from trocket.common.sql92.expression import Expression, compile_expression
from trocket.common.steps import at_once
from trocket.disk.memory_disk import MemoryDisk
from trocket.remoting.bodies import SubscriptionData
from trocket.remoting.message_codec import decode_messages
from trocket.store.config import MessageStoreConfig
from trocket.store.message_store import MessageStore
from trocket.store.queues.consume_queue_ext import ExtendedConsumeQueue, ExtUnit
from trocket.store.reading.record_filter import RecordFilter

from ...store.support import open_store, put, small_config

MUCH = HEARTBEAT_CHARACTERS_MAX
BLOOM = BloomFilter.create()


def nowhere(name: str, text: bytes) -> None:
    """Nothing is saved."""


def wanted(topic: str, text: str, version: int = 1) -> dict[str, Subscription]:
    data = SubscriptionData(
        topic=topic, sub_string=text, sub_version=version, expression_type="SQL92"
    )
    return {topic: Subscription.from_data(data)}


class Maps:
    """Filters and their bit maps, at a time that stands still."""

    def __init__(self, **texts: str) -> None:
        self.clock = ManualClock()
        self.filters = ConsumerFilterManager(clock=self.clock, save=nowhere)
        self.maps = FilterBitMaps(self.filters, monotonic_s=self.clock.monotonic_s)
        for group, text in texts.items():
            self.filters.register(group, wanted("T", text), MUCH)

    def hit(self, properties: bytes) -> list[str]:
        """The groups whose bits a message has."""
        bits = self.maps.bit_map_of("T", properties)
        assert bits is not None
        return [
            group
            for group in self.filters.topics["T"]
            if BLOOM.is_hit(BLOOM.generate(f"{group}#T"), bits)
        ]


def test_a_message_has_the_bits_of_the_groups_that_it_matches():
    maps = Maps(g1="a > 10", g2="a BETWEEN 5 AND 20", g3="a IS NULL")
    assert maps.hit(b"a\x0112\x02") == ["g1", "g2"]
    assert maps.hit(b"a\x016\x02") == ["g2"]
    assert maps.hit(b"b\x016\x02") == ["g3"]
    maps.filters.unregister("g3")
    assert maps.hit(b"") == ["g3"], "a group that left may come back"


def test_unknown_and_errors_give_no_bits_as_they_give_no_message():
    maps = Maps(g="a > 10")
    assert maps.maps.bit_map_of("T", b"a\x01x\x02") == bytes(14)
    assert maps.maps.bit_map_of("T", b"") == bytes(14)


def test_a_topic_without_filters_has_no_bit_maps():
    maps = Maps(g="a > > 10")
    assert maps.maps.bit_map_of("T", b"a\x0112\x02") is None
    assert maps.maps.bit_map_of("U", b"a\x0112\x02") is None


def test_after_a_message_that_took_long_there_are_none_for_a_while(caplog):
    maps = Maps(g="a > 10")
    times_s = [100.0, 100.0 + 2 * SLOW_S]
    maps.maps = FilterBitMaps(maps.filters, monotonic_s=lambda: times_s.pop(0))
    assert maps.hit(b"a\x0112\x02") == ["g"]
    assert "for 1 groups took 40 ms" in caplog.text
    end_s = 100.0 + 2 * SLOW_S * REST_FACTOR
    times_s += [end_s - 0.01]
    assert maps.maps.bit_map_of("T", b"a\x0112\x02") is None
    times_s += [end_s + 0.01, end_s + 0.02]
    assert maps.hit(b"a\x0112\x02") == ["g"]


def test_a_bug_in_an_evaluation_costs_the_bit_map_and_not_the_message(monkeypatch, caplog):
    maps = Maps(g="a > 10")

    def broken(self, properties):
        raise ZeroDivisionError

    monkeypatch.setattr(Expression, "matches", broken)
    assert maps.maps.bit_map_of("T", b"a\x0112\x02") is None
    assert "the filters of T could not be evaluated" in caplog.text


def test_only_a_unit_that_says_so_for_sure_hides_a_message():
    maps = Maps(g="a > 10")
    data = maps.filters.find("T", "g")
    can_skip = maps.maps.skip_test("T", "g", data.expression)
    late = data.born_ms + BORN_MARGIN_MS + 1
    bits = BLOOM.new_bits()
    BLOOM.hash_to(data.positions, bits)
    assert can_skip(ExtUnit(0, late, bytes(14)))
    assert not can_skip(ExtUnit(0, late, bytes(bits)))
    assert not can_skip(ExtUnit(0, late, None))
    assert not can_skip(ExtUnit(0, late, bytes(13))), "another expectConsumerNumUseFilter"
    assert not can_skip(ExtUnit(0, late - 1, bytes(14))), "from about when the group came"


def test_what_the_group_is_not_registered_with_hides_nothing():
    maps = Maps(g="a > 10")
    expression = maps.filters.find("T", "g").expression
    assert maps.maps.skip_test("T", "g", compile_expression("a > 11")) is None
    assert maps.maps.skip_test("T", "h", expression) is None
    assert maps.maps.skip_test("U", "g", expression) is None
    maps.filters.register("g", wanted("T", "a > 11", 2), MUCH)
    assert maps.maps.skip_test("T", "g", expression) is None, "a pull that was held meanwhile"


# Apache's stores


@pytest.mark.parametrize("name", ["4.9.7-ext", "5.5.0-ext"])
def test_messages_get_the_bit_maps_that_apache_gave_them(golden, tmp_path, name):
    with tarfile.open(golden / "store" / f"{name}.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    root = tmp_path / name
    made = Maps()
    assert made.filters.decode((root / "config" / "consumerFilter.json").read_bytes()) == 2
    store = MessageStore(
        MessageStoreConfig(
            store_path_root_dir=str(root),
            mapped_file_size_commit_log=1 << 20,
            mapped_file_size_consume_queue=2000,
            mapped_file_size_consume_queue_ext=8192,
            max_hash_slot_num=1000,
            max_index_num=4000,
        )
    )
    store.load()
    theirs, ours = [], []
    for queue_id in (0, 1):
        queue = store.queue_store.queues["TopicSql", queue_id]
        assert isinstance(queue, ExtendedConsumeQueue)
        for offset in range(queue.max_offset):
            physical_offset, size, code = queue.unit_at(offset)
            (message,) = decode_messages(store.log.read(physical_offset, size))
            theirs.append(queue.ext.unit_at(code).bit_map)
            ours.append(made.maps.bit_map_of("TopicSql", message.properties_bytes))
    store.close()
    assert ours == theirs
    assert len(theirs) == 30
    assert len(set(theirs)) == 4, "for none, each, and both of the groups"


# Nothing is ever lost by it

EXPRESSIONS = ["a > 1", "a <= 1", "b = 'x'", "b IS NULL OR a = 0", "a > 'x'"]
GROUPS = ["g", "h", "i"]
MESSAGES = st.fixed_dictionaries({}, optional={"a": st.sampled_from("0123x"), "b": st.just("x")})
STEPS_MS = st.sampled_from([-5_000, -1, 0, 1, 10, 20_000, 100_000])


class NothingIsHidden(RuleBasedStateMachine):
    """Groups, messages, restarts and clocks in any order; each pull gets what it gets without."""

    @initialize()
    def begin(self) -> None:
        self.disk = MemoryDisk()
        self.clock = ManualClock()
        self.saved = b'{"filterDataByTopic":{}}'
        self.wanted: dict[str, str] = {}
        self.version = 0
        self.open()

    def open(self, *, killed: bool = False) -> None:
        self.store = MessageStore(
            small_config(
                enable_consume_queue_ext=True,
                mapped_file_size_consume_queue_ext=512,
                verify_old_records=False,
                mapped_file_size_consume_queue=20_000,
            ),
            clock=self.clock,
            disk=self.disk,
            memory_bytes=1 << 30,
        )
        self.filters = ConsumerFilterManager(
            clock=self.clock,
            save=nowhere,
            newest_ms=lambda: self.store.store_time_ms,
            kept_dead_ms=50_000,
            characters_max=20,
        )
        self.maps = FilterBitMaps(self.filters, monotonic_s=self.clock.elapsed_s)
        self.store.queue_store.bitmap_of = self.maps.bit_map_of
        self.filters.decode(self.saved)
        self.store.load()
        if killed:
            self.filters.reset_birth_times()
        self.wanted.clear()

    @rule(group=st.sampled_from(GROUPS), text=st.sampled_from(EXPRESSIONS), back=st.booleans())
    def register(self, group: str, text: str, back: bool) -> None:
        self.version += -1 if back else 1
        self.filters.register(group, wanted("T", text, self.version), MUCH)
        self.wanted[group] = text

    @rule(group=st.sampled_from(GROUPS))
    def leave(self, group: str) -> None:
        self.filters.unregister(group)
        self.wanted.pop(group, None)

    @rule(messages=st.lists(MESSAGES, min_size=1, max_size=5))
    def send(self, messages: list[dict[str, str]]) -> None:
        self.store.begin_burst()
        for properties in messages:
            assert put(self.store, properties=properties_to_bytes(properties))[0] is None
        self.store.commit()

    @rule(step_ms=STEPS_MS)
    def wait(self, step_ms: int) -> None:
        self.clock.jump(step_ms)

    @rule()
    def save(self) -> None:
        self.filters.clean()
        if self.filters.file.is_dirty:
            self.saved = at_once(self.filters.file.begin_save())
            self.filters.file.end_save(None)

    @rule()
    def checkpoint(self) -> None:
        store = self.store
        store.flusher.flush()
        store.queue_store.write()
        store.checkpoints.sync_queues(store.queue_store.take_unsynced())
        target, index = store.dispatched_offset, store.checkpoints.index_state()
        store.checkpoints.write(target, store.store_time_ms, index, store.checkpoints.queue_ends())

    @rule()
    def stop_and_start(self) -> None:
        self.save()
        self.store.close()
        self.open()

    @rule()
    def kill_and_start(self) -> None:
        self.disk.process_death()
        self.open(killed=True)

    @invariant()
    def every_pull_gets_what_it_gets_without(self) -> None:
        for group in self.wanted:
            data = self.filters.find("T", group)
            if data is None:  # there was no room for it
                continue
            can_skip = self.maps.skip_test("T", group, data.expression)
            matches = data.expression.matches
            assert self.pulled(RecordFilter(matches, lambda: False, can_skip)) == self.pulled(
                RecordFilter(matches, lambda: False)
            )

    def pulled(self, record_filter: RecordFilter) -> list[tuple[int, str]]:
        result = self.store.get_message("T", 0, 0, 32, record_filter=record_filter)
        return [
            (message.queue_offset, message.properties_bytes)
            for buffer in result.buffers
            for message in decode_messages(buffer)
        ]


class NothingIsHiddenFromTheFirstMillisecond(NothingIsHidden):
    """The same without the margin that is for brokers of another make."""

    def open(self, *, killed: bool = False) -> None:
        super().open(killed=killed)
        real = self.maps.skip_test

        def without_margin(topic, group, expression):
            can_skip = real(topic, group, expression)
            return can_skip and (
                lambda unit: can_skip(
                    unit._replace(store_timestamp_ms=unit.store_timestamp_ms + BORN_MARGIN_MS)
                )
            )

        self.maps.skip_test = without_margin


TestNothingIsHidden = NothingIsHidden.TestCase
TestNothingIsHiddenFromTheFirstMillisecond = NothingIsHiddenFromTheFirstMillisecond.TestCase
TestNothingIsHidden.settings = settings(max_examples=30, stateful_step_count=25)
TestNothingIsHiddenFromTheFirstMillisecond.settings = TestNothingIsHidden.settings


def test_a_filter_that_a_killed_broker_had_not_saved_hides_nothing_from_the_one_before():
    machine = NothingIsHiddenFromTheFirstMillisecond()
    machine.begin()
    machine.register("g", "a > 1", back=False)
    machine.save()
    machine.wait(20_000)
    machine.register("g", "a <= 1", back=False)
    machine.wait(10)
    machine.send([{"a": "3"}])
    machine.checkpoint()
    machine.kill_and_start()
    machine.register("g", "a > 1", back=True)
    machine.every_pull_gets_what_it_gets_without()


def test_a_clock_that_goes_back_hides_nothing_from_a_group_that_comes_then():
    machine = NothingIsHiddenFromTheFirstMillisecond()
    machine.begin()
    machine.register("g", "a > 1", back=False)
    machine.wait(20_000)
    machine.send([{"a": "0"}])
    machine.wait(-5_000)
    machine.register("h", "a <= 1", back=False)
    machine.every_pull_gets_what_it_gets_without()


def test_hidden_messages_are_not_read():
    """What the state machine compares does differ in the work."""
    maps = Maps(g="a > 1")
    seen = []
    store = open_store(clock=maps.clock, enable_consume_queue_ext=True)
    store.queue_store.bitmap_of = maps.maps.bit_map_of
    maps.clock.advance(BORN_MARGIN_MS + 1)
    store.begin_burst()
    for number in range(4):
        put(store, properties=b"a\x01%d\x02" % number)
    store.commit()
    expression = maps.filters.find("T", "g").expression

    def matches(properties: bytes) -> bool:
        seen.append(properties)
        return expression.matches(properties)

    can_skip = maps.maps.skip_test("T", "g", expression)
    result = store.get_message("T", 0, 0, 32, record_filter=RecordFilter(matches, bool, can_skip))
    assert (result.count, result.next_begin_offset) == (2, 4)
    assert seen == [b"a\x012\x02", b"a\x013\x02"]
