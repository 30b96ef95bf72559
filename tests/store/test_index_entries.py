"""The entries of many messages are those of each: the fast loop knows what the last message had."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from trocket.store.index.index_backlog import IndexItem
from trocket.store.index.index_entries import entries_of, entries_of_items

HEADS = st.sampled_from(["", "TAGS\1a\2", "KEYS\1k1 k2\2", "x\1UNIQ_KEY\2", "TAGS\1\2"])
KEYS = st.sampled_from(
    ["0123456789", "0123456788", "0123450000", "012345\1\2\1A", "01234567é", "short"]
)
TAILS = st.sampled_from(
    ["", "\2", "\2TAGS\1b\2", "\2TAGS\1b\2TAGS\1\2", "\2KEYS\1k\2", "\2UNIQ_KEY\1other678\2"]
)
items = st.lists(
    st.tuples(
        st.sampled_from([7, 7, 7, 2**32 - 1]),
        st.builds(
            lambda head, key, tail: f"{head}UNIQ_KEY\1{key}{tail}".encode(), HEADS, KEYS, TAILS
        ),
        st.integers(0, 99),
        st.integers(0, 99),
    ),
    max_size=12,
)


@given(items)
@example(
    [(7, b"UNIQ_KEY\x0101234567\2TAGS\1a", 1, 1), (7, b"UNIQ_KEY\x010123\2567\2TAGS\1a", 2, 1)]
)
@example([(7, b"UNIQ_KEY\x0101234567\2", 1, 1), (7, b"UNIQ_KEY\x010123\xff567\2", 2, 1)])
def test_the_entries_of_many_are_those_of_each(found: list[IndexItem]) -> None:
    expected = [entry for item in found for entry in entries_of(*item)]
    assert entries_of_items(found) == expected
