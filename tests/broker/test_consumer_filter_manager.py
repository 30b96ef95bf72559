"""The filters of connected groups: compiled once, told once when wrong, gone with their group."""

from __future__ import annotations

import logging

import pytest

from trocket.broker import consumer_filter_manager
from trocket.broker.consumer_filter_manager import (
    HEARTBEAT_CHARACTERS_MAX,
    ConsumerFilterManager,
    compile_filter,
    warm_up,
)
from trocket.broker.filter.sql92 import EXPRESSION_LENGTH_MAX, Expression
from trocket.broker.subscription import Subscription
from trocket.remoting.bodies import SubscriptionData

MUCH = HEARTBEAT_CHARACTERS_MAX


def sql(text: str, version: int = 1, kind: str = "SQL92") -> Subscription:
    return Subscription.from_data(
        SubscriptionData(topic="T", sub_string=text, sub_version=version, expression_type=kind)
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


def test_an_expression_is_compiled_or_the_place_of_its_error_told():
    found = compile_filter("SQL92", "price > 10")
    assert isinstance(found, Expression)
    assert compile_filter("SQL92", "price > 10") is found
    assert compile_filter("SQL92", "price >") == "line 1, column 8: the expression ends too early"
    assert "ends too early" in compile_filter("SQL92", "")
    assert "'GROOVY' is no type" in compile_filter("GROOVY", "price > 10")
    assert "32768 characters" in compile_filter("SQL92", "x" * (EXPRESSION_LENGTH_MAX + 1))


def test_a_wrong_expression_that_is_repeated_is_not_compiled_again(monkeypatch):
    wrong = compile_filter("SQL92", "a b c d")
    monkeypatch.setattr(consumer_filter_manager, "compile_expression", None)
    assert compile_filter("SQL92", "a b c d") == wrong


def test_the_first_expression_of_a_client_finds_the_parser_made():
    warm_up()
    from trocket.broker.filter import parser

    assert parser._lark.cache_info().currsize == 1


def test_filters_follow_the_subscriptions_of_their_group(compiled):
    filters = ConsumerFilterManager()
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
    assert compiled == ["a = 1", "b = 1", "c = 1", "a = 2"]
    assert filters.characters == len("a = 2") + len("c = 1")
    filters.unregister("g")
    filters.unregister("never there")
    assert filters.find("T", "g") is None
    assert filters.find("T", "h") is not None
    filters.register("h", {}, MUCH)
    assert filters.characters == 0


def test_a_wrong_expression_is_told_once_and_takes_the_place_of_a_right_one(compiled, caplog):
    filters = ConsumerFilterManager()
    filters.register("g", {"T": sql("a = 1")}, MUCH)
    with caplog.at_level(logging.ERROR):
        for version in (2, 2, 3):
            filters.register("g", {"T": sql("a = ", version)}, MUCH)
    assert filters.find("T", "g") is None
    assert compiled == ["a = 1", "a = "]
    (record,) = caplog.records
    assert record.getMessage() == (
        "group g gets nothing of T: its expression 'a = ' is refused: "
        "line 1, column 5: the expression ends too early"
    )
    filters.register("g", {"T": sql("a = 3", 4)}, MUCH)
    assert filters.find("T", "g").text == "a = 3"
    assert filters.characters == 5


def test_one_heartbeat_compiles_a_bounded_part_and_the_next_ones_the_rest(caplog):
    filters = ConsumerFilterManager()
    texts = {f"T{n}": sql(f"a{n} = 1") for n in range(4)}
    assert filters.register("g", texts, 13) == 12
    assert [filters.find(topic, "g") is not None for topic in texts] == [True, True, False, False]
    assert "2 wait for the next one, that for T2 first" in caplog.text
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
    filters = ConsumerFilterManager()
    filters.register("g", {"T": sql("a = 1", 1)}, MUCH)
    filters.register("g", {"T": sql("a = 2", 2)}, 0)
    assert filters.find("T", "g").client_version == 1


def test_an_expression_that_is_too_long_costs_nothing_and_holds_up_no_other(caplog):
    filters = ConsumerFilterManager()
    long = sql("a = 1 OR " * 10_000 + "a = 1")
    assert filters.register("g", {"T": long, "U": sql("b = 1")}, 5) == 5
    assert filters.find("T", "g") is None
    assert filters.find("U", "g") is not None
    assert "at most 32767 are taken" in caplog.text


def test_all_expressions_together_have_an_end(caplog):
    filters = ConsumerFilterManager(characters_max=11)
    filters.register("g", {"T": sql("a = 1"), "U": sql("b = 1"), "V": sql("c = 1")}, MUCH)
    assert [filters.find(topic, "g") is None for topic in "TUV"] == [False, False, True]
    assert "characters already" in caplog.text
    filters.unregister("g")
    filters.register("h", {"V": sql("c = 1")}, MUCH)
    assert filters.find("V", "h") is not None
