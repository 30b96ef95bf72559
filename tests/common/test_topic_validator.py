"""Which names are allowed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trocket.common.topic_names import is_system_group, is_system_topic, retry_topic
from trocket.common.topic_validator import refuse_group, refuse_topic
from trocket.store.topic_path import topic_path


@pytest.mark.parametrize(
    "topic", ["T", "a-b_c", "%RETRY%g", "%DLQ%g", "x|y%z", "0", "T" * 127, "%RETRY%" + "g" * 248]
)
def test_a_good_topic_is_not_refused(topic):
    assert refuse_topic(topic) is None


@pytest.mark.parametrize(
    ("topic", "remark"),
    [
        (None, "The specified topic is blank."),
        ("", "The specified topic is blank."),
        (" \t", "The specified topic is blank."),
        (
            "../x",
            (
                "The specified topic: ../x, contains illegal characters, "
                "allowing only ^[%|a-zA-Z0-9_-]+$"
            ),
        ),
        (
            "T\n",
            (
                "The specified topic: T\n, contains illegal characters, "
                "allowing only ^[%|a-zA-Z0-9_-]+$"
            ),
        ),
        (
            "ü",
            "The specified topic: ü, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$",
        ),
        (
            "T" * 128,
            f"The specified topic: {'T' * 128}, is longer than topic max length: 127",
        ),
        (
            "%DLQ%" + "g" * 251,
            (
                f"The specified topic is DLQ or Retry topic: %DLQ%{'g' * 251}, "
                "and it's longer than topic max length: 255"
            ),
        ),
    ],
)
def test_a_bad_topic_is_refused_in_rocketmqs_words(topic, remark):
    assert refuse_topic(topic) == remark


@pytest.mark.parametrize(
    ("group", "remark"),
    [
        ("", "The specified group is blank."),
        (
            "g/h",
            (
                "The specified group: g/h, contains illegal characters, "
                "allowing only ^[%|a-zA-Z0-9_-]+$"
            ),
        ),
        (
            "g" * 121,
            f"The specified group: {'g' * 121}, is longer than group max length: 120",
        ),
    ],
)
def test_a_bad_group_is_refused_in_rocketmqs_words(group, remark):
    assert refuse_group(group) == remark


def test_the_longest_group_has_a_retry_topic_that_is_allowed():
    group = "g" * 120
    assert refuse_group(group) is None
    assert refuse_topic(retry_topic(group)) is None


@pytest.mark.slow
@given(st.text(max_size=300))
def test_every_topic_that_is_let_pass_is_a_name_of_a_folder(topic):
    if refuse_topic(topic) is None:
        assert topic_path(topic) == topic


def test_system_names_are_known_by_name_by_prefix_and_by_broker():
    assert is_system_topic("TBW102")
    assert is_system_topic("rmq_sys_anything")
    assert is_system_topic("broker-a", {"broker-a"})
    assert not is_system_topic("broker-a")
    assert is_system_group("CID_RMQ_SYS_TRANS")
    assert not is_system_group("g")
