"""Subscriptions as a pull needs them."""

from __future__ import annotations

import pytest

from trocket.broker.filters.subscription import Subscription, is_tag_type
from trocket.remoting.bodies import SubscriptionData

from ..harness import subscription


@pytest.mark.parametrize("expression_type", ["TAG", "SQL92", None])
def test_in_class_filter_mode_nothing_else_counts(expression_type: str | None):
    data = subscription("T", "a||bb")
    data.class_filter_mode, data.expression_type = True, expression_type
    found = Subscription.from_data(data)
    assert (found.tags_codes, found.needs_expression) == (None, False)
    seen = found.to_data()
    assert (seen.class_filter_mode, seen.sub_string, seen.tags_set) == (True, "a||bb", set())
    data.class_filter_mode = False
    assert Subscription.from_data(data).needs_expression == (expression_type == "SQL92")


@pytest.mark.parametrize(
    ("expression", "tags_codes"), [("*", None), ("a", frozenset({1})), ("a||bb", frozenset({1, 2}))]
)
def test_a_star_wants_all_and_tags_want_their_codes(expression, tags_codes):
    assert Subscription.from_data(subscription("T", expression)).tags_codes == tags_codes


@pytest.mark.parametrize(
    ("expression_type", "answer"), [("TAG", True), ("", True), (None, True), ("SQL92", False)]
)
def test_only_tags_are_served(expression_type, answer):
    assert is_tag_type(expression_type) is answer
    data = SubscriptionData(topic="T", sub_string="x", expression_type=expression_type or "")
    assert Subscription.from_data(data).is_tag_type is answer
