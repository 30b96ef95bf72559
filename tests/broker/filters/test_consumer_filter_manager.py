"""The filters of groups: compiled once, logged once when wrong, kept when their group leaves."""

from __future__ import annotations

import json
import logging

import pytest

from trocket.broker.filters import consumer_filter_manager
from trocket.broker.filters.consumer_filter_manager import (
    HEARTBEAT_CHARACTERS_MAX,
    ConsumerFilterManager,
    compile_filter,
    warm_up,
)
from trocket.broker.filters.subscription import Subscription
from trocket.common.clock import ManualClock
from trocket.common.sql92.expression import EXPRESSION_LENGTH_MAX, Expression
from trocket.common.steps import at_once
from trocket.disk.errors import StoreIOError
from trocket.remoting.bodies import SubscriptionData

MUCH = HEARTBEAT_CHARACTERS_MAX


def sql(text: str, version: int = 1, kind: str = "SQL92") -> Subscription:
    return Subscription.from_data(
        SubscriptionData(topic="T", sub_string=text, sub_version=version, expression_type=kind)
    )


def changed_text(filters: ConsumerFilterManager) -> bytes | None:
    """The file's text if it is to be saved; it counts as saved then."""
    filters.clean()
    if not filters.file.is_dirty:
        return None
    text = at_once(filters.file.begin_save())
    filters.file.end_save(None)
    return text


def manager(**options) -> ConsumerFilterManager:
    return ConsumerFilterManager(
        **{"clock": ManualClock(), "save": lambda name, text: None} | options
    )


@pytest.fixture
def compiled(monkeypatch):
    """The texts that were compiled, in their order."""
    texts = []
    real = consumer_filter_manager.compile_filter

    def counting(expression_type, text):
        texts.append(text)
        return real(expression_type, text)

    monkeypatch.setattr(consumer_filter_manager, "compile_filter", counting)
    return texts


def test_an_expression_is_compiled_or_the_place_of_its_error_returned():
    found = compile_filter("SQL92", "price > 10")
    assert isinstance(found, Expression)
    assert compile_filter("SQL92", "price > 10") is found
    assert compile_filter("SQL92", "price >") == "line 1, column 8: the expression ends too early"
    assert "ends too early" in compile_filter("SQL92", "")
    assert "'GROOVY' is not an expression type" in compile_filter("GROOVY", "price > 10")
    assert "32768 characters" in compile_filter("SQL92", "x" * (EXPRESSION_LENGTH_MAX + 1))


def test_a_wrong_expression_that_is_repeated_is_not_compiled_again(monkeypatch):
    wrong = compile_filter("SQL92", "a b c d")
    monkeypatch.setattr(consumer_filter_manager, "compile_expression", None)
    assert compile_filter("SQL92", "a b c d") == wrong


def test_the_first_expression_of_a_client_finds_the_parser_made():
    warm_up()
    from trocket.common.sql92 import parser

    assert parser._lark.cache_info().currsize == 1


def test_filters_follow_the_subscriptions_of_their_group(compiled):
    filters = manager()
    filters.register(
        "g", {"T": sql("a = 1"), "U": sql("b = 1"), "V": sql("x||y", kind="TAG")}, MUCH
    )
    assert filters.find("T", "g").expression.text == "a = 1"
    assert filters.find("U", "g").client_version == 1
    assert filters.find("V", "g") is None
    assert filters.find("T", "h") is None
    filters.register("h", {"T": sql("c = 1")}, MUCH)
    filters.register("g", {"T": sql("a = 2", 2), "U": sql("b = 1", 2)}, MUCH)
    assert filters.find("T", "g").text == "a = 2"
    assert filters.find("U", "g").client_version == 2, "an unchanged text is of the new version"
    filters.register("g", {"T": sql("a = 2", 2), "U": sql("x||y", 3, kind="TAG")}, MUCH)
    assert filters.find("U", "g") is None
    filters.unregister("g")
    filters.unregister("never there")
    assert filters.find("T", "g") is None
    assert filters.find("T", "h") is not None
    filters.register("h", {}, MUCH)
    assert filters.find("T", "h") is None
    filters.register("g", {"T": sql("a = 2", 2), "U": sql("b = 1", 4)}, MUCH)
    assert filters.find("T", "g").text == "a = 2"
    assert filters.find("U", "g").client_version == 4
    assert compiled == ["a = 1", "b = 1", "c = 1", "a = 2"], "dead ones live again as they are"
    assert filters.characters == len("a = 2") + len("b = 1") + len("c = 1")


def test_a_wrong_expression_is_logged_once_and_replaces_a_right_one(compiled, caplog):
    filters = manager()
    filters.register("g", {"T": sql("a = 1")}, MUCH)
    with caplog.at_level(logging.ERROR):
        for version in (2, 2, 3):
            filters.register("g", {"T": sql("a = ", version)}, MUCH)
    assert filters.find("T", "g") is None
    assert compiled == ["a = 1", "a = "]
    (record,) = caplog.records
    assert record.getMessage() == (
        "group g gets no messages of T, because its expression 'a = ' is refused: "
        "line 1, column 5: the expression ends too early"
    )
    filters.register("g", {"T": sql("a = 3", 4)}, MUCH)
    assert filters.find("T", "g").text == "a = 3"
    assert filters.characters == 5


def test_one_heartbeat_compiles_a_bounded_part_and_the_next_ones_the_rest(caplog):
    filters = manager()
    texts = {f"T{n}": sql(f"a{n} = 1") for n in range(4)}
    assert filters.register("g", texts, 13) == 12
    assert [filters.find(topic, "g") is not None for topic in texts] == [True, True, False, False]
    assert "2 wait for the next one, the one for T2 first" in caplog.text
    changed = texts | {"T0": sql("b = 12", 2)}
    assert filters.register("g", changed, 6) == 6
    assert filters.find("T0", "g").text == "b = 12"
    assert filters.find("T3", "g") is None
    assert filters.register("g", changed | {"T1": sql("a1 = 1", 9)}, 0) == 0
    assert filters.find("T1", "g").client_version == 9
    assert filters.register("g", changed, MUCH) == 12
    assert all(filters.find(topic, "g") for topic in texts)
    assert filters.register("g", changed, 0) == 0


def test_a_filter_that_waits_keeps_the_version_of_the_old_one():
    filters = manager()
    filters.register("g", {"T": sql("a = 1", 1)}, MUCH)
    filters.register("g", {"T": sql("a = 2", 2)}, 0)
    assert filters.find("T", "g").client_version == 1


def test_an_expression_that_is_too_long_costs_nothing_and_holds_up_no_other(caplog):
    filters = manager()
    long = sql("a = 1 OR " * 10_000 + "a = 1")
    assert filters.register("g", {"T": long, "U": sql("b = 1")}, 5) == 5
    assert filters.find("T", "g") is None
    assert filters.find("U", "g") is not None
    assert "the limit is 32767" in caplog.text


def test_all_expressions_together_have_an_end_and_dead_ones_give_way(caplog):
    filters = manager(characters_max=11)
    filters.register("g", {"T": sql("a = 1"), "U": sql("b = 1"), "V": sql("c = 1")}, MUCH)
    assert [filters.find(topic, "g") is None for topic in "TUV"] == [False, False, True]
    assert "expressions already have" in caplog.text
    filters.register("g", {"T": sql("a = 1"), "U": sql("b = 1")}, MUCH)
    filters.unregister("g")
    assert filters.characters == 10
    filters.register("h", {"V": sql("c = 1")}, MUCH)
    assert filters.find("V", "h") is not None
    assert filters.characters == 5
    assert list(filters.topics) == ["V"]


DAY_MS = 24 * 3600 * 1000


def data_of(filters: ConsumerFilterManager, topic: str = "T", group: str = "g"):
    return filters.topics[topic][group]


def test_a_filter_is_born_with_its_text_and_outlives_its_group():
    clock = ManualClock()
    filters = manager(clock=clock)
    filters.register("g", {"T": sql("a = 1")}, MUCH)
    born_ms = clock.now_ms
    clock.advance(10)
    filters.register("g", {"T": sql("a = 1", 2)}, MUCH)
    assert data_of(filters).born_ms == born_ms
    filters.unregister("g")
    filters.unregister("g")
    assert (data_of(filters).born_ms, data_of(filters).dead_ms) == (born_ms, clock.now_ms)
    clock.advance(10)
    filters.register("g", {"T": sql("a = 1", 1)}, MUCH)
    assert (data_of(filters).born_ms, data_of(filters).dead_ms) == (born_ms, 0)
    filters.register("g", {"T": sql("a = 2", 1)}, MUCH)
    assert data_of(filters).born_ms == clock.now_ms


def test_no_filter_is_born_before_the_newest_message():
    clock = ManualClock()
    newest_ms = clock.now_ms + 7
    filters = manager(clock=clock, newest_ms=lambda: newest_ms)
    filters.register("g", {"T": sql("a = 1")}, MUCH)
    assert data_of(filters).born_ms == newest_ms
    newest_ms += 5
    filters.unregister("g")
    filters.register("h", {"T": sql("a = 1")}, MUCH)
    newest_ms += 5
    filters.reset_birth_times()
    assert [data.born_ms for data in filters.topics["T"].values()] == [newest_ms, newest_ms]
    assert [data.dead_ms for data in filters.topics["T"].values()] == [newest_ms, 0]


def test_a_dead_filter_is_forgotten_after_its_time():
    clock = ManualClock()
    filters = manager(clock=clock, kept_dead_ms=DAY_MS)
    filters.register("g", {"T": sql("a = 1")}, MUCH)
    filters.register("h", {"T": sql("a = 1")}, MUCH)
    filters.unregister("g")
    clock.advance(DAY_MS - 1)
    filters.clean()
    assert list(filters.topics["T"]) == ["g", "h"]
    clock.advance(1)
    assert b'"g"' not in changed_text(filters)
    assert list(filters.topics["T"]) == ["h"]
    filters.unregister("h")
    clock.advance(DAY_MS)
    filters.clean()
    assert (filters.topics, filters.characters) == ({}, 0)


def test_of_too_many_dead_filters_the_older_half_goes(monkeypatch):
    monkeypatch.setattr(consumer_filter_manager, "DEAD_COUNT_MAX", 4)
    clock = ManualClock()
    filters = manager(clock=clock)
    for number in range(5):
        clock.advance(1)
        filters.register(f"g{number}", {"T": sql("a = 1")}, MUCH)
        filters.unregister(f"g{number}")
    assert list(filters.topics["T"]) == ["g3", "g4"]


def test_the_file_holds_all_but_wrong_filters_and_what_it_gives_back_is_dead():
    clock = ManualClock()
    filters = manager(clock=clock)
    filters.register("g", {"T": sql("a = 1"), "U": sql("a > > 1")}, MUCH)
    filters.register("h", {"T": sql("b = 1")}, MUCH)
    filters.unregister("h")
    text = changed_text(filters)
    assert changed_text(filters) is None
    assert b"a > > 1" not in text
    clock.advance(100_000)
    again = manager(clock=clock)
    assert again.decode(text) == 2
    assert changed_text(again) is None
    assert [data.dead_ms for data in again.topics["T"].values()] == [
        clock.now_ms - 30_000,
        clock.now_ms - 100_000,
    ]
    assert data_of(again).born_ms == data_of(filters).born_ms
    assert again.find("T", "g") is None
    again.register("g", {"T": sql("a = 1")}, MUCH)
    assert again.find("T", "g").born_ms == data_of(filters).born_ms


def test_it_is_saved_when_something_changed_and_again_when_that_failed():
    saved = []
    filters = manager(save=lambda name, text: saved.append((name, text)))
    assert not filters.file.persist_changed()
    filters.register("g", {"T": sql("a = 1")}, MUCH)
    filters.register("g", {"T": sql("a = 1")}, MUCH)
    assert filters.file.persist_changed()
    assert not filters.file.persist_changed()
    filters.register("g", {"T": sql("a = 1")}, MUCH)
    assert not filters.file.persist_changed(), "a heartbeat without news"
    filters.file.changed()
    assert filters.file.persist_changed()
    assert [name for name, _ in saved] == ["consumerFilter.json"] * 2

    def full(name, text):
        raise StoreIOError(name, "no space")

    failing = manager(save=full)
    failing.register("g", {"T": sql("a = 1")}, MUCH)
    for _ in range(2):
        with pytest.raises(StoreIOError):
            failing.file.persist_changed()


def stored(**changes) -> bytes:
    """A file with one filter as Apache writes it, with changes."""
    data = {
        "bloomFilterData": {"bitNum": 112, "bitPos": [79, 21, 21]},
        "bornTime": 5,
        "clientVersion": 7,
        "consumerGroup": "group",
        "dead": True,
        "deadTime": 9,
        "expression": "a = 1",
        "expressionType": "SQL92",
        "topic": "topic",
    } | changes
    table = {"topic": {"groupFilterData": {"group": data}, "topic": "topic"}}
    return json.dumps({"filterDataByTopic": table}).encode()


@pytest.mark.parametrize(
    "changes",
    [
        {"bloomFilterData": {"bitNum": 120, "bitPos": [79, 21, 21]}},
        {"bloomFilterData": {"bitNum": 112, "bitPos": [79, 21]}},
        {"bloomFilterData": {"bitNum": 112, "bitPos": [79, 21, 22]}},
        {"bloomFilterData": None},
        {"expression": "a > > 1"},
        {"expression": None},
        {"expressionType": "GROOVY"},
        {"expression": "a = 1000000000"},
    ],
    ids=str,
)
def test_what_is_not_ours_any_more_is_left_out(changes):
    filters = manager(characters_max=10)
    assert filters.decode(stored()) == 1
    assert data_of(filters, "topic", "group").client_version == 7
    assert filters.decode(stored(**changes)) == 0
    assert b'"filterDataByTopic":{}' in changed_text(filters)
    assert filters.characters == 0


@pytest.mark.parametrize(
    "text",
    [
        b"", b"[]", b'{"filterDataByTopic":3}', stored(bornTime="x"), stored(topic=None),
        stored(bloomFilterData={"bitNum": 112, "bitPos": "x"}),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_read_changes_nothing(text):
    filters = manager()
    filters.decode(stored())
    with pytest.raises(ValueError, match=r"^not a table of consumer filters: "):
        filters.decode(text)
    assert list(filters.topics) == ["topic"]


def test_an_empty_topic_or_filter_in_the_file_is_none():
    filters = manager()
    text = b'{"filterDataByTopic":{"T":null,"U":{"groupFilterData":{"g":null}}}}'
    assert filters.decode(text) == 0
