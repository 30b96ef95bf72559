"""The options of the source, those that depend on each other above all."""

from __future__ import annotations

import dataclasses

import pytest

from trocket.spark.errors import OptionError
from trocket.spark.options import key_of
from trocket.spark.queue_offsets import EARLIEST, LATEST
from trocket.spark.sink_options import sink_options
from trocket.spark.source_options import (
    DEFAULT_GROUP,
    OF_KAFKA,
    SourceOptions,
    source_options,
)


def read(**given):
    return source_options({"nameServer": "a:9876", **given})


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "needs one of topic, topics, topicPattern, assign"),
        ({"topic": "T", "assign": "{}"}, "needs one of .*, not topic and assign"),
        ({"topicPattern": "("}, "topicPattern is not a regular expression"),
        ({"assign": "[1]"}, "assign must be JSON"),
        ({"topic": "T", "tags": "a", "filterSql": "b > 1"}, "give tags or filterSql"),
        ({"topic": "T", "accessKey": "a"}, "accessKey and secretKey go together"),
        ({"topic": "T", "startingOffsets": "first"}, "startingOffsets must be earliest"),
        ({"topic": "T", "startingOffsetsByTimestampStrategy": "x"}, "must be error or latest"),
        ({"topic": "T", "startingOffsets": "group"}, "need a consumerGroup"),
        ({"topic": "T", "commitOffsets": "true"}, "need a consumerGroup"),
        ({"topic": "T", "nameServer": ""}, "nameServer is empty"),
        ({"topic": "T", "startingOffsetsByTimestamp": "0"}, "startingOffsetsByTimestamp must be"),
        ({"topic": "T", "endingOffsetsByTimestamp": "x"}, r'must be JSON such as {"T":{"broker-a"'),
        (
            {"topic": "T", "startingOffsetsByTimestamp": '{"T":{"b":{"0":-1}}}'},
            "-1 is not a time in ms since 1970 .topic T, broker b, queue 0.",
        ),
        ({"topic": "T", "maxOffsetPerTrigger": "5"}, "did you mean maxOffsetsPerTrigger"),
        (
            {"topic": "T", "kafka.bootstrap.servers": "a:9092"},
            "no option 'kafka.bootstrap.servers'; here it is nameServer$",
        ),
        ({"subscribePattern": "T.*"}, "no option 'subscribePattern'; here it is topicPattern$"),
        ({"topic": "T", "includeHeaders": "true"}, "no option 'includeHeaders'$"),
        ({"topic": "T", "zzz": "5"}, "no option 'zzz'$"),
    ],
)
def test_options_that_cannot_be_right(given, text) -> None:
    with pytest.raises(OptionError, match=text):
        read(**given)


def test_each_name_of_kafka_stands_for_an_option() -> None:
    given = {"topic": "T"}
    for name, own in OF_KAFKA.items():
        with pytest.raises(OptionError, match=f"'{name}'; here it is {own}$"):
            read(**given, **{name: "1"})
        with pytest.raises(OptionError, match=f"'{name}'; here it is {own}$"):
            sink_options({"nameServer": "a:1", name: "1"})
        assert own in {key_of(field.name) for field in dataclasses.fields(SourceOptions)}


def test_topics_are_named_in_several_ways() -> None:
    assert read(topic="T").topic_names == ("T",)
    assert read(topics="T, U").topic_names == ("T", "U")
    assert read(topicPattern="T.*").topic_names == ()
    assert read(assign='{"T":{"b":[0]},"U":{"b":[1]}}').topic_names == ("T", "U")


def test_where_to_begin_and_end() -> None:
    assert read(topic="T").start("earliest").everywhere == EARLIEST
    assert read(topic="T", startingOffsets="latest").start("earliest").everywhere == LATEST
    assert read(topic="T").end.everywhere == LATEST


def test_offsets_are_committed_for_a_group_that_was_named() -> None:
    assert read(topic="T").consumer_group == DEFAULT_GROUP
    assert not read(topic="T").is_committing
    assert read(topic="T", consumerGroup="g").is_committing
    assert not read(topic="T", consumerGroup="g", commitOffsets="false").is_committing


def test_a_connection_is_identified_by_its_options_and_shows_no_secret() -> None:
    one = read(topic="T", accessKey="key", secretKey="swordfish")
    other = read(topic="U", accessKey="key", secretKey="swordfish", tags="x")
    assert one.connection == other.connection
    assert hash(one.connection) == hash(other.connection)
    assert read(topic="T").connection != one.connection
    assert "swordfish" not in repr(one) + repr(one.connection)
