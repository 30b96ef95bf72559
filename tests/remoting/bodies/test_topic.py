"""Settings of topics, as JSON and as a line."""

from __future__ import annotations

import pytest

from trocket.remoting.bodies import (
    PERM_INHERIT,
    PERM_PRIORITY,
    PERM_READ,
    PERM_WRITE,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicFilterType,
    TopicList,
)
from trocket.remoting.errors import RemoteProtocolError


def test_a_topic_has_javas_defaults() -> None:
    topic = TopicConfig("t")
    assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (16, 16, 6)
    assert (topic.topic_sys_flag, topic.order, topic.attributes) == (0, False, {})
    assert topic.topic_filter_type == "SINGLE_TAG"


def test_the_bits_of_perm_are_rocketmqs() -> None:
    assert (PERM_PRIORITY, PERM_READ, PERM_WRITE, PERM_INHERIT) == (8, 4, 2, 1)


@pytest.mark.parametrize(
    "line",
    ["gA 2 3 6 SINGLE_TAG {}", 'gFIFO 8 8 4 MULTI_TAG {"message.type":"FIFO"}'],
)
def test_a_5_x_line_comes_back_as_it_was(line: str) -> None:
    assert TopicConfig.from_text(line).to_text() == line


def test_a_4_x_line_comes_back_as_it_was() -> None:
    topic = TopicConfig.from_text("gA 2 3 6 MULTI_TAG")
    assert topic == TopicConfig("gA", 2, 3, 6, TopicFilterType.MULTI_TAG)
    assert topic.to_text(with_attributes=False) == "gA 2 3 6 MULTI_TAG"


def test_attributes_with_blanks_survive_a_line() -> None:
    topic = TopicConfig("t", attributes={"a b": "c d"})
    assert TopicConfig.from_text(topic.to_text()) == topic


@pytest.mark.parametrize(
    "line",
    [
        "",
        "t 1 2 6",
        "t one 2 6 SINGLE_TAG",
        "t 1 2 6 NO_SUCH_TYPE",
        "t 99999999999 2 6 SINGLE_TAG",
        "t 1 2 6 SINGLE_TAG {",
        "t 1 2 6 SINGLE_TAG []",
    ],
)
def test_a_broken_line_is_refused(line: str) -> None:
    with pytest.raises(RemoteProtocolError):
        TopicConfig.from_text(line)


def test_a_table_without_mappings_is_written_as_4_x_and_config_files_have_it() -> None:
    wrapper = TopicConfigSerializeWrapper({"t": TopicConfig("t", 1, 1)})
    assert wrapper.to_body() == (
        b'{"topicConfigTable":{"t":{"topicName":"t","readQueueNums":1,"writeQueueNums":1,"perm":6,'
        b'"topicFilterType":"SINGLE_TAG","topicSysFlag":0,"order":false,"attributes":{}}},'
        b'"dataVersion":{"timestamp":0,"counter":0,"stateVersion":0}}'
    )


def test_tables_of_static_topics_pass_through_with_bare_and_quoted_keys() -> None:
    wrapper = TopicConfigSerializeWrapper.from_body(
        b'{"topicQueueMappingDetailMap":{"t":{"hostedQueues":{0:[{"gen":0}]}}}}'
    )
    assert b'"hostedQueues":{"0":[{"gen":0}]}' in wrapper.to_body()
    assert b'"hostedQueues":{0:[{"gen":0}]}' in wrapper.to_body(quote_int_keys=False)


def test_what_passes_through_is_refused_when_it_is_nested_too_deep() -> None:
    deep = b"[" * 40 + b"]" * 40
    for name in (b"topicQueueMappingInfoMap", b"topicQueueMappingDetailMap"):
        with pytest.raises(RemoteProtocolError, match="nested deeper than 32"):
            TopicConfigSerializeWrapper.from_body(b'{"' + name + b'":{"t":' + deep + b"}}")


def test_a_list_names_a_broker_only_when_there_is_one() -> None:
    assert TopicList(["a", "b"]).to_body() == b'{"topicList":["a","b"]}'
    assert TopicList([], "h:1").to_body() == b'{"topicList":[],"brokerAddr":"h:1"}'
