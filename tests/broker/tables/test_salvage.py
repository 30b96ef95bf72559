"""Damaged tables: entries that are whole are used, each other one is named."""

from __future__ import annotations

import logging

import pytest

from trocket.broker.settings.config import BrokerConfig
from trocket.broker.tables.consumer_offset_manager import ConsumerOffsetManager
from trocket.broker.tables.delay_offset_manager import DelayOffsetManager
from trocket.broker.tables.salvage import salvage
from trocket.broker.tables.topic_config_manager import TopicConfigManager
from trocket.common.clock import ManualClock

OFFSETS = ("offsetTable", "pullOffsetTable")


def saved(name, text):
    pass


def offsets_of(text):
    table = ConsumerOffsetManager(clock=ManualClock(), save=saved)
    salvage("consumerOffset.json", text, OFFSETS, table.decode)
    return table.offset_table


@pytest.mark.parametrize("word", ["xx", "1e9999", "NaN", '"x"', "null", "1.5", "true", "[]", "12x"])
def test_one_bad_number_costs_only_its_queue(word, caplog):
    text = b'{"offsetTable":{"T@g":{0:5,1:%b},"U@h":{1:24}}}' % word.encode()
    assert offsets_of(text) == {"T@g": {0: 5}, "U@h": {1: 24}}
    assert "consumerOffset.json: T@g: 1 is not a whole number; it is left out" in caplog.text


def test_a_group_without_a_number_that_can_be_read_costs_only_itself(caplog):
    assert offsets_of(b'{"offsetTable":{"T@g":7,"U@h":{1:24}}}') == {"U@h": {1: 24}}
    assert "T@g: " in caplog.text


def test_a_bad_version_costs_no_offset():
    text = b'{"dataVersion":"x","offsetTable":{"U@h":{1:24}}}'
    assert offsets_of(text) == {"U@h": {1: 24}}


@pytest.mark.parametrize("text", [b"", b"[]", b"null", b"{}", b'{"offsetTable":{"T@g":{0:x}}}'])
def test_a_text_with_nothing_whole_is_refused(text):
    with pytest.raises(ValueError, match=r"\w"):
        offsets_of(text)


def test_a_level_without_a_number_costs_only_that_level():
    table = DelayOffsetManager(clock=ManualClock(), save=saved, version_step=0)
    salvage("delayOffset.json", b'{"offsetTable":{1:x,2:9}}', ("offsetTable",), table.decode)
    assert table.offset_table == {2: 9}


def test_a_topic_that_is_no_topic_costs_only_itself():
    table = TopicConfigManager(BrokerConfig(), clock=ManualClock(), save=saved)
    text = b'{"topicConfigTable":{"T":{"topicName":"T","perm":[]},"U":{"topicName":"U"}}}'
    salvage("topics.json", text, ("topicConfigTable",), table.decode)
    assert table.select("U") is not None
    assert table.select("T") is None


def test_many_bad_entries_are_counted_after_the_first_twenty(caplog):
    caplog.set_level(logging.ERROR)
    bad = b",".join(b'"T%d@g":{0:x}' % number for number in range(30))
    assert offsets_of(b'{"offsetTable":{"U@h":{1:24},%b}}' % bad) == {"U@h": {1: 24}}
    assert "10 more entries are left out" in caplog.text
