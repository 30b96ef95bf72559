"""broker/clients/compensated_consumers.py: groups that pop without heartbeats."""

from __future__ import annotations

from trocket.broker.clients import compensated_consumers
from trocket.broker.clients.compensated_consumers import CompensatedConsumers
from trocket.broker.clients.consumer_manager import ConsumerManager
from trocket.broker.filters.subscription import tags_codes_of

from ..harness import FakeChannel, client, consumer, subscription

NOW_MS = 1_700_000_000_000


def table(*notes: tuple[str, str]) -> CompensatedConsumers:
    made = CompensatedConsumers()
    for number, (group, topic) in enumerate(notes):
        made.note(group, topic, "*", "TAG", NOW_MS + number)
    return made


def test_a_pop_makes_a_subscription_of_its_time() -> None:
    made = CompensatedConsumers()
    made.note("g", "T", "a || b", "TAG", NOW_MS)
    made.note("g", "%RETRY%g_T", None, None, NOW_MS)
    found = made.find("g", "T")
    assert found is not None
    assert (found.topic, found.sub_string, found.expression_type) == ("T", "a || b", "TAG")
    assert (found.sub_version, found.tags_codes) == (NOW_MS, tags_codes_of("a || b"))
    retry = made.find("g", "%RETRY%g_T")
    assert retry is not None
    assert (retry.sub_string, retry.tags_codes) == ("*", None)
    assert (made.find("g", "other"), made.find("other", "T")) == (None, None)
    made.note("g", "T", "price > 1", "SQL92", NOW_MS + 1)
    found = made.find("g", "T")
    assert found is not None
    assert (found.needs_expression, found.code_set, found.sub_version) == (
        True, frozenset(), NOW_MS + 1,
    )  # fmt: skip
    assert len(made) == 2


def test_what_is_popped_again_is_kept_and_the_rest_expires() -> None:
    made = table(("g", "T"), ("g", "U"), ("h", "T"))
    made.note("g", "U", "*", "TAG", NOW_MS + 100)
    made.expire(NOW_MS + 50)
    assert {group: set(topics) for group, topics in made.groups.items()} == {"g": {"U"}}


def test_entries_end_with_their_topic_and_group() -> None:
    made = table(("g", "T"), ("g", "U"), ("h", "T"), ("h", "V"))
    made.topic_deleted("T")
    made.group_deleted("h")
    made.group_deleted("nobody")
    assert {group: set(topics) for group, topics in made.groups.items()} == {"g": {"U"}}
    assert set(made.topics_of("nobody")) == set()


def test_the_table_is_limited_in_entries_and_characters(monkeypatch) -> None:
    monkeypatch.setattr(compensated_consumers, "ENTRIES_MAX", 3)
    monkeypatch.setattr(compensated_consumers, "CHARACTERS_MAX", 100)
    made = table(*[("g", f"T{number}") for number in range(5)])
    assert set(made.topics_of("g")) == {"T2", "T3", "T4"}
    made.note("g", "T4", "x" * 99, "TAG", NOW_MS)
    assert set(made.topics_of("g")) == {"T3", "T4"}
    made.note("g", "T5", "y" * 101, "TAG", NOW_MS)
    assert len(made) == 0


def test_a_heartbeat_counts_more_than_a_pop() -> None:
    manager = ConsumerManager()
    manager.compensated.note("g", "T", "popped", "TAG", NOW_MS)
    manager.compensated.note("g", "U", "popped", "TAG", NOW_MS)
    found = manager.find_subscription_data("g", "T")
    assert found is not None
    assert found.sub_string == "popped"
    assert manager.get_consumer_group_info("g") is None
    manager.register(consumer("g", subscription("T", "beats")), client(FakeChannel()))
    found, other = (
        manager.find_subscription_data("g", "T"),
        manager.find_subscription_data("g", "U"),
    )
    assert found is not None
    assert other is not None
    assert (found.sub_string, other.sub_string) == ("beats", "popped")
