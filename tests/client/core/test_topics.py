"""client/core/topics.py against Apache's Validators."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trocket.client.core import topics
from trocket.client.core.topics import (
    GROUP_LENGTH_MAX,
    MESSAGE_SIZE_MAX,
    PROPERTIES_SIZE_MAX,
    check_body,
    check_consumer_group,
    check_group,
    check_producer_group,
    check_properties_size,
    check_send_topic,
    check_topic,
    dlq_topic,
    is_dlq_topic,
    is_retry_topic,
)
from trocket.common.topic_names import (
    TOPIC_LENGTH_MAX,
    is_system_group,
    is_system_topic,
    retry_topic,
)

from .apache_tables import table

CHECKS = {"topic": check_topic, "group": check_group, "send": check_send_topic}


def passes(check, *arguments, **options) -> bool:
    try:
        check(*arguments, **options)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("row", table("names"), ids=str)
def test_a_name_passes_where_it_passes_with_apache(row):
    for what, check in CHECKS.items():
        if what in row:
            assert passes(check, row["name"]) is row[what], what
    if "user" in row:
        assert is_system_topic(row["name"]) is not row["user"]


@given(name=st.text(max_size=6) | st.text("ab%|_-9. é", max_size=6))
def test_names_are_those_of_the_regular_expression(name):
    expected = re.fullmatch(r"[%|a-zA-Z0-9_-]+", name) is not None
    assert passes(check_topic, name) is expected
    assert passes(check_group, name) is expected


@pytest.mark.parametrize(
    ("check", "size"), [(check_topic, TOPIC_LENGTH_MAX), (check_group, GROUP_LENGTH_MAX)]
)
def test_a_name_has_a_greatest_length(check, size):
    assert size in (127, 255)
    check("x" * size)
    with pytest.raises(ValueError, match=f"has {size + 1} characters, at most {size} are allowed"):
        check("x" * (size + 1))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "the topic's name is blank: give it a name"),
        ("\t ", "the topic's name is blank"),
        ("a.b", "the topic 'a.b' has an illegal character '.' at position 1: allowed are letters"),
        (".", "character '.' at position 0"),
        ("x" * 99 + "é", f"the topic '{'x' * 60}…' has an illegal character 'é' at position 99"),
    ],
)
def test_a_refusal_says_what_and_where(name, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        check_topic(name)


@pytest.mark.parametrize("name", sorted(topics.NOT_ALLOWED_SEND_TOPICS))
def test_only_a_broker_writes_to_its_own_topics(name):
    check_topic(name)
    with pytest.raises(ValueError, match=f"the topic {name} is reserved for RocketMQ"):
        check_send_topic(name)


def test_placeholders_are_no_groups():
    check_producer_group("DEFAULT_CONSUMER")
    check_consumer_group("DEFAULT_PRODUCER")
    for check, name in (
        (check_producer_group, "DEFAULT_PRODUCER"),
        (check_consumer_group, "DEFAULT_CONSUMER"),
    ):
        with pytest.raises(ValueError, match=f"the group {name} is a placeholder of RocketMQ"):
            check(name)
        with pytest.raises(ValueError, match="the group's name is blank"):
            check("")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (None, "the message for topic T has no body"),
        (b"", "the message for topic T has an empty body"),
        (bytes(11), "a body of 11 bytes, at most 10 are allowed: send less"),
    ],
)
def test_a_message_that_no_broker_takes_is_refused(body, words):
    with pytest.raises(ValueError, match=words):
        check_body("T", body, 10)


def test_a_message_that_brokers_take_passes():
    check_body("T", bytes(10), 10)
    check_body("T", bytes(MESSAGE_SIZE_MAX), MESSAGE_SIZE_MAX)
    assert MESSAGE_SIZE_MAX == 4 * 1024 * 1024
    with pytest.raises(ValueError, match="at most 4194304 are allowed"):
        check_body("T", bytes(MESSAGE_SIZE_MAX + 1), MESSAGE_SIZE_MAX)


def test_properties_must_fit_a_record():
    check_properties_size(PROPERTIES_SIZE_MAX)
    with pytest.raises(ValueError, match="32768 bytes, at most 32767 are allowed"):
        check_properties_size(PROPERTIES_SIZE_MAX + 1)


def test_groups_have_topics_of_their_own():
    assert (retry_topic("g"), dlq_topic("g")) == ("%RETRY%g", "%DLQ%g")
    assert is_retry_topic("%RETRY%g")
    assert not is_retry_topic("%DLQ%g")
    assert is_dlq_topic("%DLQ%g")
    assert not is_dlq_topic("g")
    assert is_system_group("CID_RMQ_SYS_TRANS")
    assert not is_system_group("g")
