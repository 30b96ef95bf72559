"""Names that become folders."""

from __future__ import annotations

import pytest

from trocket.store.topic_path import topic_path


@pytest.mark.parametrize(
    "topic", ["T", "%RETRY%group", "TopicTest-1_a", "%LMQ%a", "é" * 127, "a" * 255]
)
def test_a_topic_stays_what_it_is(topic):
    assert topic_path(topic) == topic


@pytest.mark.parametrize(
    "topic",
    ["", ".", "..", "../x", "a/b", "/etc", "a\\b", "a\0", "a\n", "a" * 256, "é" * 128, "\ud800"],
)
def test_what_could_leave_the_folder_is_no_topic(topic):
    assert topic_path(topic) is None
