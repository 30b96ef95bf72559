"""The table of offsets."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from trocket.broker.tables.config_text import CONSUMER_OFFSETS
from trocket.broker.tables.consumer_offset_manager import VERSION_STEP, ConsumerOffsetManager
from trocket.common.clock import ManualClock
from trocket.disk.errors import StoreIOError


class Table(ConsumerOffsetManager):
    """A table that remembers what it saved."""

    def __init__(self):
        self.files = []
        self.is_full = False
        super().__init__(clock=ManualClock(5_000), save=self._save)

    def _save(self, name, text):
        if self.is_full:
            raise StoreIOError("/x", "no space")
        self.files.append((name, text))


def test_what_is_committed_is_found_and_nothing_else():
    table = Table()
    table.commit_offset("g", "T", 0, 7)
    assert table.query_offset("g", "T", 0) == 7
    assert table.query_offset("g", "T", 1) == -1
    assert table.query_offset("g", "U", 0) == -1
    assert table.query_offset("h", "T", 0) == -1
    assert table.offset_table == {"T@g": {0: 7}}


@pytest.mark.parametrize(
    ("known", "offset", "end", "is_slave", "noted"),
    [
        (-1, 9, 9, False, 9),
        (5, 2, 9, False, 2),  # a reset
        (5, 10, 9, False, 5),
        (12, 12, 9, False, 12),  # the log has a hole, and its queues may end too early
        (-1, 10, 9, True, 9),
        (5, 10**15, 9, True, 9),
        (12, 13, 9, True, 12),
        (5, 7, 9, True, 7),
    ],
)
def test_an_offset_past_the_end_is_not_noted_as_it_is(known, offset, end, is_slave, noted):
    table = Table()
    if known >= 0:
        table.commit_offset("g", "T", 0, known)
    taken = table.commit_within("g", "T", 0, offset, end, is_slave=is_slave)
    assert table.query_offset("g", "T", 0) == noted
    assert taken is (is_slave or offset <= end)


def test_an_offset_may_go_back_and_the_log_says_so(caplog):
    table = Table()
    table.commit_offset("g", "T", 0, 7)
    assert not caplog.records
    table.commit_offset("g", "T", 0, 3)
    assert table.query_offset("g", "T", 0) == 3
    assert "T@g queue 0 goes back from 7 to 3" in caplog.text


def test_pull_offsets_stand_apart():
    table = Table()
    table.commit_offset("g", "T", 0, 7)
    table.commit_pull_by_key("T@g", 0, 9)
    assert table.pull_offset_table == {"T@g": {0: 9}}
    assert table.query_offset("g", "T", 0) == 7


def test_the_data_version_moves_every_500_commits():
    table = Table()
    for offset in range(VERSION_STEP - 1):
        table.commit_offset("g", "T", 0, offset)
    assert table.data_version.counter == 0
    table.commit_offset("g", "T", 0, VERSION_STEP)
    assert table.data_version.counter == 1


def test_groups_and_topics_are_found_from_each_other():
    table = Table()
    for group, topic in (("g", "T"), ("g", "U"), ("h", "T")):
        table.commit_offset(group, topic, 0, 1)
    assert table.which_topic_by_consumer("g") == {"T", "U"}
    assert table.which_group_by_topic("T") == {"g", "h"}


def test_cleaning_takes_exactly_the_topic_or_the_group():
    table = Table()
    for group, topic in (("g", "T"), ("gg", "T"), ("g", "TT"), ("g", "%RETRY%g")):
        table.commit_offset(group, topic, 0, 1)
        table.commit_pull_by_key(f"{topic}@{group}", 0, 1)
    table.clean_offset_by_topic("T")
    assert set(table.offset_table) == set(table.pull_offset_table) == {"TT@g", "%RETRY%g@g"}
    table.remove_offset("g")
    assert table.offset_table == table.pull_offset_table == {}


def test_offsets_beyond_their_queues_are_corrected_and_saved():
    table = Table()
    for topic, queue_id, offset in (("T", 0, 5), ("T", 1, 7), ("gone", 0, 3)):
        table.commit_offset("g", topic, queue_id, offset)
    table.file.persist_changed()
    ends = {("T", 0): 5, ("T", 1): 6}
    table.correct(lambda topic, queue_id: ends.get((topic, queue_id), 0))
    assert table.offset_table == {"T@g": {0: 5, 1: 6}, "gone@g": {0: 0}}
    assert table.file.persist_changed()
    table.correct(lambda topic, queue_id: 10)
    assert not table.file.persist_changed()


def test_only_changes_are_saved():
    table = Table()
    assert not table.file.persist_changed()
    table.commit_offset("g", "T", 0, 1)
    assert table.file.persist_changed()
    assert not table.file.persist_changed()
    assert [name for name, _ in table.files] == [CONSUMER_OFFSETS]
    table.commit_pull_by_key("T@g", 0, 1)
    assert table.file.persist_changed()
    table.remove_offset("g")
    assert table.file.persist_changed()


def test_what_could_not_be_saved_is_saved_next_time():
    table = Table()
    table.is_full = True
    table.commit_offset("g", "T", 0, 1)
    with pytest.raises(StoreIOError):
        table.file.persist_changed()
    table.is_full = False
    assert table.file.persist_changed()


def test_the_file_of_4_9_is_read():
    table = Table()
    assert table.decode(b'{\n\t"offsetTable":{\n\t\t"T@g":{0:15,1:16\n\t\t}\n\t}\n}') == 1
    assert table.offset_table == {"T@g": {0: 15, 1: 16}}


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b'{"offsetTable":3}',
        b'{"offsetTable":{"T@g":{"x":1}}}',
        b'{"offsetTable":{"T@g":{"0":null}}}',
        b'{"dataVersion":{"counter":"x"}}',
    ],
)
def test_a_file_that_is_no_table_is_refused_and_changes_nothing(text):
    table = Table()
    table.commit_offset("g", "T", 0, 1)
    with pytest.raises(ValueError, match=r"offsets|unexpected|holds|JSON|ends"):
        table.decode(text)
    assert table.query_offset("g", "T", 0) == 1


names = st.sampled_from(["g", "gg", "T", "%RETRY%g"])
queue_ids = st.integers(0, 2)


class OffsetMachine(RuleBasedStateMachine):
    """The table against a dict, through saves and restarts."""

    def __init__(self):
        super().__init__()
        self.table = Table()
        self.model = {}
        self.saved = {}

    @rule(group=names, topic=names, queue_id=queue_ids, offset=st.integers(0, 2**63 - 1))
    def commit(self, group, topic, queue_id, offset):
        self.table.commit_offset(group, topic, queue_id, offset)
        self.model[group, topic, queue_id] = offset

    @rule(topic=names)
    def clean_topic(self, topic):
        self.table.clean_offset_by_topic(topic)
        self.model = {key: offset for key, offset in self.model.items() if key[1] != topic}

    @rule(group=names)
    def remove_group(self, group):
        self.table.remove_offset(group)
        self.model = {key: offset for key, offset in self.model.items() if key[0] != group}

    @rule()
    def save(self):
        changed = self.model != self.saved
        assert self.table.file.persist_changed() or not changed
        self.saved = dict(self.model)

    @rule()
    def restart(self):
        table = Table()
        if self.table.files:
            table.files = self.table.files
            table.decode(table.files[-1][1])
        self.table = table
        self.model = dict(self.saved)

    @invariant()
    def every_offset_is_the_models(self):
        for group in ("g", "gg", "T", "%RETRY%g"):
            for topic in ("g", "gg", "T", "%RETRY%g"):
                for queue_id in range(3):
                    found = self.table.query_offset(group, topic, queue_id)
                    assert found == self.model.get((group, topic, queue_id), -1)


TestOffsets = OffsetMachine.TestCase
TestOffsets.settings = settings(max_examples=30, stateful_step_count=20, deadline=None)
TestOffsets = pytest.mark.slow(TestOffsets)
