"""Steps of consumers that pop, as data; `programs.py` has the others."""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import strategies as st


class Pop(NamedTuple):
    """A consumer pops, from one queue or all (-1), and may be held; `lost`: without its answer."""

    member: int
    queue: int
    count_max: int
    invisible_ms: int
    poll_s: int
    lost: bool


class Ack(NamedTuple):
    """A consumer acknowledges messages that it popped, one by one or in one request; 0: all."""

    member: int
    which: int
    count: int  # type: ignore[assignment]
    in_batch: bool


class Change(NamedTuple):
    """A consumer gives a message that it popped another invisible time."""

    member: int
    which: int
    invisible_ms: int
    suspend: bool


class PopInOrder(NamedTuple):
    """A consumer pops in order; `again`: with the attempt id of its pop before."""

    member: int
    queue: int
    count_max: int
    invisible_ms: int
    poll_s: int
    again: bool
    lost: bool


class AckInOrder(NamedTuple):
    """A consumer acknowledges the first messages that it has of a queue; 0: all."""

    member: int
    queue: int
    count: int  # type: ignore[assignment]


class ChangeInOrder(NamedTuple):
    """A consumer gives a message of a queue another invisible time."""

    member: int
    queue: int
    which: int
    invisible_ms: int


class LeavePops(NamedTuple):
    """A consumer that pops, and that of the same number in order, lose their connections."""

    member: int


IN_PARALLEL = (Pop, Ack, Change)
IN_ORDER = (PopInOrder, AckInOrder, ChangeInOrder)
POP_STEPS = (*IN_PARALLEL, *IN_ORDER, LeavePops)

_member = st.integers(0, 3)  # two of each group
_either = st.integers(0, 1)
_queue = st.sampled_from([-1, -1, 0, 1])
_count_max = st.sampled_from([1, 2, 32, 32])
_invisible_ms = st.sampled_from([1_000, 4_000, 5_000, 9_000, 15_000, 15_000, 30_000, 60_000,
                                 600_000])  # fmt: skip
_poll_s = st.sampled_from([0, 0, 15])
_seldom = st.sampled_from([False, False, False, True])

pop: st.SearchStrategy[Any] = st.builds(
    Pop, _member, _queue, _count_max, _invisible_ms, _poll_s, _seldom
)
ack: st.SearchStrategy[Any] = st.builds(
    Ack, _member, st.integers(0, 3), st.sampled_from([0, 1, 1, 2]), st.booleans()
)
change: st.SearchStrategy[Any] = st.builds(
    Change, _member, st.integers(0, 3), _invisible_ms, _seldom
)
pop_in_order: st.SearchStrategy[Any] = st.builds(
    PopInOrder, _either, _queue, _count_max, _invisible_ms, _poll_s, _seldom, _seldom
)
ack_in_order: st.SearchStrategy[Any] = st.builds(
    AckInOrder, _either, _either, st.sampled_from([0, 0, 1, 2])
)
change_in_order: st.SearchStrategy[Any] = st.builds(
    ChangeInOrder, _either, _either, st.integers(0, 3), _invisible_ms
)
leave_pops: st.SearchStrategy[Any] = st.builds(LeavePops, _member)
pop_wait_ms = st.sampled_from([1, 1_000, 3_000, 5_000, 8_000, 11_000, 15_000, 25_000, 61_000])
