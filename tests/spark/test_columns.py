"""A user's schema is a choice of columns, in the user's order."""

from __future__ import annotations

import pytest

from trocket.spark.columns import MESSAGE, TABLES, ddl, pick
from trocket.spark.errors import OptionError


def test_a_schema_picks_columns_in_its_order() -> None:
    wanted = [("body", "binary"), ("queueOffset", "bigint")]
    assert pick(wanted, MESSAGE, "rocketmq") == ["body", "queueOffset"]


def test_an_unknown_column_names_the_nearest() -> None:
    with pytest.raises(OptionError, match=r"column 'queueOfset'.*did you mean queueOffset"):
        pick([("queueOfset", "bigint")], MESSAGE, "rocketmq")


def test_another_type_is_refused_with_the_right_one() -> None:
    with pytest.raises(OptionError, match="has body string, but in rocketmq it is body binary"):
        pick([("body", "string")], MESSAGE, "rocketmq")


def test_ddl_names_each_column_with_its_type() -> None:
    assert ddl(TABLES["delayoffsets"]) == ("`brokerName` string, `delayLevel` int, `offset` bigint")
