"""Our SQL92 filter and Bloom filter against Apache's own classes of 5.5.0."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from trocket.broker.filter.bloom import BloomFilter

from ..broker.filter.sql92_cases import REFUSED, cases
from .sql92_expressions import REFUSED as REFUSED_BY_BOTH
from .sql92_expressions import Expressions, FilterOracle, judged

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("java")]

SEED = int(os.environ.get("TROCKET_FILTER_SEED", "20250101"))
RANDOM_EXPRESSIONS = 750


@pytest.fixture(scope="module")
def oracle(golden: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FilterOracle]:
    """Apache's classes; their program's source is beside the recordings."""
    source = golden.parent / "oracle" / "Oracle.java"
    if not source.is_file():
        message = f"the oracle's source is missing: {source}; set TROCKET_SHARED"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    with FilterOracle(source, tmp_path_factory.mktemp("filter")) as made:
        yield made


def test_apache_gives_what_our_table_says(oracle: FilterOracle) -> None:
    table = list(cases())
    assert len(table) > 450
    found = judged(oracle, [(expression, properties) for expression, properties, _ in table])
    for (pair, ours, theirs), (*_, result) in zip(found, table, strict=True):
        assert ours == theirs == (result, str(result == "true").lower()), pair


def test_apache_refuses_what_our_table_says(oracle: FilterOracle) -> None:
    for pair, ours, theirs in judged(oracle, [(expression, {}) for expression in REFUSED]):
        assert ours == theirs == REFUSED_BY_BOTH, pair


def test_random_expressions_give_the_same(oracle: FilterOracle) -> None:
    print(f"seed {SEED}: python -m tests.interop.sql92_expressions --seed {SEED}")
    pairs = Expressions(SEED).pairs(RANDOM_EXPRESSIONS)
    counts: Counter[str] = Counter()
    for pair, ours, theirs in judged(oracle, pairs):
        assert ours == theirs, pair
        counts[ours[0]] += 1
    assert counts.total() == 3000
    assert all(counts[each] > 150 for each in ("true", "false", "null", "error", "refused")), counts


def test_each_character_is_a_digit_to_both_or_to_none(oracle: FilterOracle) -> None:
    """Whole numbers may have digits of any script, doubles only ASCII's."""
    characters = [chr(code) for code in range(3, 0x1000)] + [
        chr(code) for code in (0xFF11, 0x1D7D9)
    ]
    whole = [("a >= 0", {"a": character}) for character in characters]
    double = [("a > -1.5", {"a": f"{character}1"}) for character in characters]
    for pair, ours, theirs in judged(oracle, whole + double):
        assert ours == theirs, pair


def test_bloom_filters_have_apaches_size_and_positions(oracle: FilterOracle) -> None:
    counts = (1, 2, 7, 8, 31, 32, 33, 100, 1000)
    questions = [
        {"op": "bloom", "group": f"g{rate}", "topic": "t" * n, "maxErrorRate": rate, "n": n}
        for rate in range(1, 100)
        for n in counts
    ]
    for question, answer in zip(questions, oracle.ask(questions), strict=True):
        made = BloomFilter.create(question["maxErrorRate"], question["n"])
        positions = made.generate(f"{question['group']}#{question['topic']}")
        expected = answer["ok"]
        assert (made.hash_count, made.bit_count) == (expected["k"], expected["m"]), question
        assert (list(positions), made.bit_count) == (expected["bitPos"], expected["bitNum"])
