"""Our SQL92 filter and Bloom filter against Apache's own classes of 5.5.0."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from trocket.broker.filters.bloom import BloomFilter
from trocket.interop.oracle import Oracle
from trocket.interop.oracle_checks import SQL_REFUSED
from trocket.interop.sql92_expressions import Expressions

from ..common.sql92.sql92_cases import REFUSED, cases
from .sql92_expressions import VERSION, evaluated

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("java")]

SEED = int(os.environ.get("TROCKET_FILTER_SEED", "20250101"))
RANDOM_EXPRESSIONS = 750


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oracle]:
    folder: Path = tmp_path_factory.mktemp("filter")
    with Oracle(VERSION, folder) as made:
        yield made


def test_apache_gives_what_our_table_says(oracle: Oracle) -> None:
    table = list(cases())
    assert len(table) > 450
    found = evaluated(oracle, [(expression, properties) for expression, properties, _ in table])
    for (pair, ours, theirs), (*_, result) in zip(found, table, strict=True):
        assert ours == theirs == (result, str(result == "true").lower()), pair


def test_apache_refuses_what_our_table_says(oracle: Oracle) -> None:
    for pair, ours, theirs in evaluated(oracle, [(expression, {}) for expression in REFUSED]):
        assert ours == theirs == SQL_REFUSED, pair


def test_random_expressions_give_the_same(oracle: Oracle) -> None:
    print(f"seed {SEED}: python -m tests.interop.sql92_expressions --seed {SEED}")
    pairs = Expressions(SEED).pairs(RANDOM_EXPRESSIONS)
    counts: Counter[str] = Counter()
    for pair, ours, theirs in evaluated(oracle, pairs):
        assert ours == theirs, pair
        counts[ours[0]] += 1
    assert counts.total() == 3000
    assert all(counts[each] > 150 for each in ("true", "false", "null", "error", "refused")), counts


def test_each_character_is_a_digit_to_both_or_to_none(oracle: Oracle) -> None:
    """Whole numbers may have digits of any script, doubles only ASCII's."""
    characters = [chr(code) for code in range(3, 0x1000)] + [
        chr(code) for code in (0xFF11, 0x1D7D9)
    ]
    whole = [("a >= 0", {"a": character}) for character in characters]
    double = [("a > -1.5", {"a": f"{character}1"}) for character in characters]
    for pair, ours, theirs in evaluated(oracle, whole + double):
        assert ours == theirs, pair


def test_bloom_filters_have_apaches_size_and_positions(oracle: Oracle) -> None:
    counts = (1, 2, 7, 8, 31, 32, 33, 100, 1000)
    asked = [(rate, count, f"g{rate}#{'t' * count}") for rate in range(1, 100) for count in counts]
    answers = oracle.ask_all(
        ("bloom", {"error_rate": rate, "count": count, "text": text}) for rate, count, text in asked
    )
    for (rate, count, text), answer in zip(asked, answers, strict=True):
        made = BloomFilter.create(rate, count)
        expected = answer.value
        assert (made.hash_count, made.bit_count) == (expected["k"], expected["m"]), (rate, count)
        positions = list(made.generate(text))
        assert (positions, made.bit_count) == (expected["positions"], expected["bit_count"])
