"""Names of queues and exchanges as names of topics and groups."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trocket.client.core.topics import check_consumer_group, check_topic
from trocket.integrations.kombu.names import (
    NAME_LENGTH_MAX,
    exchange_topic,
    queue_name,
    routing_tag,
)


def test_names_that_rocketmq_allows_stay() -> None:
    assert queue_name("celery") == "celery"
    assert queue_name("high_priority-2") == "high_priority-2"


def test_other_characters_are_escaped() -> None:
    assert queue_name("celery@host.pidbox") == "celery_x40host_x2Epidbox"
    assert queue_name("é") == "_xC3_xA9"
    assert routing_tag("") == "-"


def test_a_prefix_begins_the_names() -> None:
    assert queue_name("celery", "shop-") == "shop-celery"
    assert exchange_topic("celeryev", "shop-") == "shop-kombu-exchange-celeryev"


TEXTS = st.text(st.sampled_from("ax_.@2E5Fé-"), min_size=1, max_size=8)


@given(TEXTS, TEXTS)
def test_names_are_valid_and_two_queues_have_two(one: str, other: str) -> None:
    check_topic(queue_name(one))
    check_consumer_group(queue_name(one))
    check_topic(exchange_topic(one))
    assert len(queue_name(one * 99)) <= NAME_LENGTH_MAX
    assert (queue_name(one) == queue_name(other)) == (one == other)
    assert queue_name(one + "_x2E") != queue_name(one + ".")
