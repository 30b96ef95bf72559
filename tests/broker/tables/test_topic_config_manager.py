"""The table of topics."""

from __future__ import annotations

import msgspec
import pytest

from trocket.broker.settings.config import BrokerConfig
from trocket.broker.tables.config_text import TOPICS
from trocket.broker.tables.topic_config_manager import TopicConfigManager
from trocket.common.clock import ManualClock
from trocket.disk.errors import StoreIOError
from trocket.remoting.bodies import TopicConfig
from trocket.remoting.errors import RequestRefused
from trocket.remoting.number_fields import QUEUE_COUNT_MAX
from trocket.remoting.response_codes import ResponseCode


class Table(TopicConfigManager):
    """A table that records its saves and notifications."""

    def __init__(self, **config):
        self.files = []
        self.is_full = False
        self.changes = []
        super().__init__(
            BrokerConfig(**{"broker_cluster_name": "C", "broker_name": "broker-a", **config}),
            clock=ManualClock(5_000),
            save=self._save,
            on_change=self.changes.append,
        )

    def _save(self, name, text):
        if self.is_full:
            raise StoreIOError("/x", "no space left")
        self.files.append((name, text))

    def first_send(self, topic, queue_count=4, default_topic="TBW102"):
        return self.create_topic_in_send_message(topic, default_topic, "192.0.2.2:1", queue_count)


def shapes(topics):
    return {t.topic_name: (t.read_queue_nums, t.write_queue_nums, t.perm) for t in topics}


def test_a_new_broker_has_the_topics_that_clients_and_tools_rely_on():
    table = Table()
    assert shapes(table.topic_config_table.values()) == {
        "SELF_TEST_TOPIC": (1, 1, 6),
        "TBW102": (8, 8, 7),
        "BenchmarkTest": (1024, 1024, 6),
        "C": (16, 16, 7),
        "broker-a": (1, 1, 7),
        "OFFSET_MOVED_EVENT": (1, 1, 6),
        "SCHEDULE_TOPIC_XXXX": (18, 18, 6),
        "C_REPLY_TOPIC": (1, 1, 6),
        "RMQ_SYS_TRANS_HALF_TOPIC": (1, 1, 6),
        "RMQ_SYS_TRANS_OP_HALF_TOPIC": (1, 1, 6),
        "TRANS_CHECK_MAX_TIME_TOPIC": (1, 1, 6),
        "rmq_sys_REVIVE_LOG_C": (8, 8, 6),
        "rmq_sys_wheel_timer": (1, 1, 6),
    }
    assert all(table.is_system_topic(topic) for topic in table.topic_config_table)
    assert (table.data_version.counter, table.files) == (0, [])


def test_the_configuration_decides_on_some_of_them():
    table = Table(
        auto_create_topic_enable=False,
        cluster_topic_enable=False,
        broker_topic_enable=False,
        trace_topic_enable=True,
        msg_trace_topic_name="Traces",
    )
    found = shapes(table.topic_config_table.values())
    assert "TBW102" not in found
    assert (found["C"], found["broker-a"], found["Traces"]) == ((16, 16, 1), (1, 1, 1), (1, 1, 6))


@pytest.mark.parametrize(("asked", "made"), [(1, 1), (4, 4), (8, 8), (100, 8), (2**31 - 1, 8)])
def test_a_first_send_makes_a_topic_with_at_most_the_patterns_queues(asked, made):
    topic = Table(default_topic_queue_nums=8).first_send("T", asked)
    assert shapes([topic]) == {"T": (made, made, 6)}


def test_a_second_send_finds_the_topic_of_the_first():
    table = Table()
    topic = table.first_send("T", 2)
    assert table.first_send("T", 7) is topic
    assert table.topic_config_table["T"] is topic
    assert len(table.files) == len(table.changes) == table.data_version.counter == 1


@pytest.mark.parametrize("pattern", ["NoSuchTopic", "SELF_TEST_TOPIC"])
def test_nothing_is_made_after_a_pattern_that_is_missing_or_not_inherited(pattern):
    table = Table()
    assert table.first_send("T", default_topic=pattern) is None
    assert (table.select("T"), table.files) == (None, [])


def test_nothing_is_made_where_automatic_creation_is_off_even_if_the_file_has_the_pattern():
    saved = Table()
    saved.file.persist()
    table = Table(auto_create_topic_enable=False)
    table.decode(saved.files[0][1])
    assert "TBW102" in table.topic_config_table
    assert table.first_send("T") is None


def test_a_retry_topic_is_made_once_and_its_order_flag_follows():
    table = Table()
    first = table.create_topic_in_send_message_back("%RETRY%g", queue_count=2, sys_flag=2)
    assert (first.read_queue_nums, first.perm, first.order, first.topic_sys_flag) == (
        2,
        6,
        False,
        2,
    )
    assert table.create_topic_in_send_message_back("%RETRY%g", queue_count=9) is first
    ordered = table.create_topic_in_send_message_back("%RETRY%g", queue_count=9, order=True)
    assert (ordered.order, ordered.read_queue_nums, first.order) == (True, 2, False)
    assert table.is_order_topic("%RETRY%g")
    assert not table.is_order_topic("NoSuchTopic")
    assert table.data_version.counter == 2


def test_the_number_of_topics_is_bounded(caplog):
    table = Table(topics_max=len(Table().topic_config_table) + 1)
    assert table.first_send("T1") is not None
    assert table.first_send("T2") is None
    assert "T2 is not created" in caplog.text
    assert "which is the limit topicsMax" in caplog.text
    assert table.create_topic_in_send_message_back("%RETRY%g", queue_count=1) is None
    with pytest.raises(RequestRefused, match="no more than"):
        table.update([TopicConfig(topic_name="T3")])
    table.update([TopicConfig(topic_name="T1", perm=4)])
    assert table.select("T1").perm == 4


def test_an_update_of_several_topics_is_one_change():
    table = Table()
    table.update([TopicConfig(topic_name="A"), TopicConfig(topic_name="B")])
    assert table.data_version.counter == 1
    assert [[t.topic_name for t in changes] for changes in table.changes] == [["A", "B"]]


def test_an_update_with_one_topic_that_is_not_allowed_changes_nothing():
    table = Table()
    with pytest.raises(RequestRefused):
        table.update([TopicConfig(topic_name="A"), TopicConfig(topic_name="B", perm=8)])
    assert (table.select("A"), table.files, table.changes) == (None, [], [])


@pytest.mark.parametrize(
    "numbers",
    [
        {"read_queue_nums": -1},
        {"read_queue_nums": 0},
        {"write_queue_nums": QUEUE_COUNT_MAX + 1},
        {"perm": -1},
        {"perm": 8},
    ],
)
def test_numbers_that_make_no_sense_are_refused(numbers):
    with pytest.raises(RequestRefused) as refused:
        Table().update([TopicConfig(topic_name="T", **numbers)])
    assert refused.value.code == ResponseCode.INVALID_PARAMETER


def test_attributes_of_an_update_are_changes():
    table = Table()
    table.update([TopicConfig(topic_name="T", attributes={"+message.type": "FIFO"})])
    assert table.select("T").attributes == {"message.type": "FIFO"}
    table.update([TopicConfig(topic_name="T", perm=4)])
    assert (table.select("T").attributes, table.select("T").perm) == ({"message.type": "FIFO"}, 4)


def test_order_topics_of_a_name_server_are_marked_and_never_unmarked():
    table = Table()
    table.update([TopicConfig(topic_name="A"), TopicConfig(topic_name="B", order=True)])
    assert [t.topic_name for t in table.update_order_topics(["A", "B", "Elsewhere"])] == ["A"]
    assert table.update_order_topics([]) == []
    assert table.is_order_topic("A")
    assert table.is_order_topic("B")
    assert table.data_version.counter == 2


def test_deleting_tells_what_was_there():
    table = Table()
    table.first_send("T")
    assert table.delete(["T", "NoSuchTopic"]) == ["T"]
    assert table.delete(["T"]) == []
    assert (table.select("T"), table.data_version.counter) == (None, 2)


def test_what_is_saved_comes_back():
    saved = Table()
    saved.first_send("T")
    saved.update([TopicConfig(topic_name="A", order=True, attributes={"+message.type": "DELAY"})])
    name, text = saved.files[-1]
    assert name == TOPICS
    table = Table()
    hot = table.topic_config_table
    assert table.decode(text) == len(saved.topic_config_table)
    assert table.topic_config_table is hot
    assert hot == saved.topic_config_table
    assert table.data_version == saved.data_version
    assert table.encode() == text


def test_a_changed_topic_is_written_anew():
    table = Table()
    table.first_send("T")
    table.update([TopicConfig(topic_name="T", read_queue_nums=3)])
    again = Table()
    again.decode(table.files[-1][1])
    assert again.select("T").read_queue_nums == 3
    table.delete(["T"])
    again.decode(table.files[-1][1])
    assert again.select("T") is None


def test_a_name_in_the_file_that_is_not_allowed_is_left_out():
    table = Table()
    text = b'{"topicConfigTable":{"../x":{"topicName":"../x"},"T":{"topicName":"../y"}}}'
    assert table.decode(text) == 2
    assert table.select("../x") is None
    assert table.select("T").topic_name == "T"


def test_a_topic_of_the_file_that_is_longer_than_new_ones_may_be_is_kept():
    table = Table()
    longest, too_long = "T" * 255, "T" * 256
    members = ",".join(f'"{name}":{{"topicName":"{name}"}}' for name in (longest, too_long))
    table.decode(f'{{"topicConfigTable":{{{members}}}}}'.encode())
    assert table.select(longest) is not None
    assert table.select(too_long) is None


@pytest.mark.parametrize(
    "text", [b"", b"[]", b'{"topicConfigTable":[]}', b'{"topicConfigTable":{"T":{"perm":"x"}}}']
)
def test_a_file_that_is_no_table_is_refused_and_changes_nothing(text):
    table = Table()
    before = table.encode()
    with pytest.raises(ValueError):  # noqa: PT011 - the text tells, and differs
        table.decode(text)
    assert table.encode() == before


def test_changes_inside_saving_once_are_saved_together():
    table = Table()
    with table.file.saving_once():
        assert table.stage_topic("A", queue_count=1)
        assert table.stage_topic("B", queue_count=1)
        assert table.files == []
        assert set(table.unsaved) == {"A", "B"}
        assert table.select("A") is None
    assert len(table.files) == 1
    assert not table.unsaved
    assert table.select("A") is not None
    with table.file.saving_once():
        pass
    assert len(table.files) == 1


def test_a_topic_of_a_first_send_is_refused_until_it_is_saved(caplog):
    table = Table()
    table.is_full = True
    for _ in range(2):
        with pytest.raises(RequestRefused, match=r"topic\[A\] is new, .*no space left") as refused:
            table.first_send("A")
        assert refused.value.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert caplog.text.count("could not be saved") == 1
    assert (table.changes, table.select("A")) == ([], None)
    table.is_full = False
    table.file.save_again()
    assert b'"A":{' in table.files[-1][1]
    assert table.first_send("A") is table.select("A")
    assert len(table.changes) == 1


def test_a_change_of_a_topic_counts_only_when_it_is_saved():
    """Or a killed broker does not know the queue any more that a message was put into."""
    table = Table()
    table.first_send("A")
    before = table.select("A")
    table.is_full = True
    wider = msgspec.structs.replace(before, read_queue_nums=16, write_queue_nums=16)
    table.update([wider])
    assert table.select("A") is before
    table.is_full = False
    table.file.save_again()
    assert table.select("A") == wider


def test_a_topic_that_is_deleted_before_it_was_saved_does_not_come():
    table = Table()
    table.is_full = True
    table.update([TopicConfig(topic_name="A")])
    assert table.delete(["A"]) == ["A"]
    table.is_full = False
    table.file.save_again()
    assert table.select("A") is None
    assert b'"A":{' not in table.files[-1][1]


async def test_an_administrator_hears_that_a_change_could_not_be_saved():
    table = Table()
    table.is_full = True
    table.update([TopicConfig(topic_name="A")])
    with pytest.raises(StoreIOError):
        await table.file.saved()
    table.delete(["A"])
    with pytest.raises(StoreIOError):
        await table.file.saved()
    assert table.changes == [[]]
