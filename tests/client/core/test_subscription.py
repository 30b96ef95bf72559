"""client/core/subscription.py against Apache's FilterAPI, and what the broker makes of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trocket.client.core.subscription import (
    SUB_ALL,
    FilterClass,
    Sql,
    Tag,
    build_subscription,
    check_filter_class,
    filter_class_crc,
)
from trocket.common.java_hash import tags_code
from trocket.remoting.bodies import SubscriptionData

from .apache_tables import table

TAGS = st.text("AaBb |*", min_size=1, max_size=4)


@pytest.mark.parametrize("row", table("subscriptions"), ids=lambda row: repr(row["expression"]))
def test_an_expression_gives_what_apache_makes_of_it(row):
    expression = row["expression"]
    selector = Tag(expression) if row["type"] == "TAG" else Sql(expression)
    if row["data"] is None:
        with pytest.raises(ValueError, match=r"is empty|names no tag"):
            build_subscription("T", selector)
        return
    data = build_subscription("T", selector, sub_version=9)
    assert data == SubscriptionData(
        topic="T",
        sub_string=row["data"]["subString"],
        tags_set=set(row["data"]["tagsSet"]),
        code_set=set(row["data"]["codeSet"]),
        sub_version=9,
        expression_type=row["data"]["expressionType"],
    )
    if row["type"] == "TAG":
        assert build_subscription("T", expression, sub_version=9) == data


def test_without_a_selector_everything_is_wanted():
    everything = SubscriptionData(topic="T", sub_string="*")
    assert build_subscription("T") == everything
    assert build_subscription("T", SUB_ALL) == everything
    assert build_subscription("T", Tag()) == everything


@pytest.mark.parametrize("expression", [" || ", "  ", "\t||\n||"])
def test_only_bars_and_blanks_are_refused(expression):
    with pytest.raises(ValueError, match="for topic T names no tag: write"):
        build_subscription("T", expression)


@pytest.mark.parametrize("expression", ["", " \n"])
def test_an_empty_condition_is_refused(expression):
    with pytest.raises(ValueError, match="SQL expression for topic T is empty: write"):
        build_subscription("T", Sql(expression))


@given(tags=st.lists(TAGS, min_size=1, max_size=4), tag=st.none() | TAGS)
def test_a_message_is_taken_when_its_tag_is_one_of_those_asked_for(tags, tag):
    expression = " || ".join(tags)
    wanted = {each.strip() for each in expression.split("||")} - {""}
    if not wanted:
        return
    data = build_subscription("T", expression)
    expected = expression == "*" or tag in wanted
    assert data.selects(tag) is expected
    if expected and expression != "*":
        assert tags_code(tag) in data.code_set  # the broker delivers it


def test_two_tags_of_one_hash_code_are_distinguished():
    data = build_subscription("T", "Aa")
    assert data.code_set == {tags_code("BB")}
    assert data.selects("Aa")
    assert not data.selects("BB")
    assert not data.selects(None)


@pytest.mark.parametrize("tag", [None, "", "A"])
def test_what_the_broker_filtered_otherwise_is_taken(tag):
    assert build_subscription("T", Sql("a > 1")).selects(tag)
    assert build_subscription("T").selects(tag)
    by_class = build_subscription("T", "Other")
    by_class.class_filter_mode = True
    assert by_class.selects(tag)


def test_a_class_is_subscribed_to_by_its_name():
    """As recorded from the Java client 4.9.7: no tags, no codes, the source not in it."""
    data = build_subscription("T", FilterClass("org.shop.KeepFifth", "…"), sub_version=9)
    assert data == SubscriptionData(
        topic="T", sub_string="org.shop.KeepFifth", sub_version=9, class_filter_mode=True
    )
    assert b"filterClassSource" not in data.to_body()


@pytest.mark.parametrize("name", ["A", "a.B", "_a.$B9$C", "x" * 255])
def test_names_of_classes(name):
    check_filter_class(FilterClass(name))


@pytest.mark.parametrize(
    "name", ["", ".", "A.", ".A", "a..B", "9A", "a/B", "../A", "a b", "A;", "A\n", "é", "x" * 256]
)
def test_what_is_no_name_of_a_class(name):
    with pytest.raises(ValueError, match="is not the full name of a class"):
        check_filter_class(FilterClass(name))


def test_the_crc_is_java_s_without_its_sign():
    assert filter_class_crc(b"") == 0
    # CRC32 0xCBF43926 of the usual nine digits.
    assert filter_class_crc(b"123456789") == 0xCBF43926 & 0x7FFFFFFF
