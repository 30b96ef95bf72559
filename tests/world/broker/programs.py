"""Programs of the simulation, as data: a program is a few facts and a list of steps."""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import strategies as st

from . import pop_programs as pops
from .transactions import Decision


class Send(NamedTuple):
    """A producer sends plain messages, how: together, one by one, oneway, as a batch."""

    producer: int
    queue: int
    tags: list[str]
    how: str


class SendLater(NamedTuple):
    """A producer sends a message with a delay level."""

    producer: int
    queue: int
    tag: str
    level: int


class SendTimer(NamedTuple):
    """A producer sends a message that says by this property when it is due."""

    producer: int
    queue: int
    tag: str
    name: str
    delay_ms: int


class Recall(NamedTuple):
    """A producer takes one of its timer messages back."""

    producer: int
    which: int


class Prepare(NamedTuple):
    """A producer sends a half message, and maybe says at once what becomes of it."""

    producer: int
    queue: int
    tag: str
    decision: Decision
    level: int
    says: str


class End(NamedTuple):
    """A producer says what becomes of one of its transactions, maybe once more."""

    producer: int
    which: int
    at_once: bool


class AnswerChecks(NamedTuple):
    """A producer answers the checks that came."""

    producer: int
    knows: bool


class Poll(NamedTuple):
    """A consumer pulls the queues that are its own; it may be held."""

    consumer: int
    hold_s: int
    count_max: int


class Consume(NamedTuple):
    """A consumer consumes what came, or sends it back, and notes how far it is."""

    consumer: int
    failing: int
    level: int


class Leave(NamedTuple):
    """A consumer says goodbye, or just loses its connection."""

    consumer: int
    politely: bool


class Unlock(NamedTuple):
    """A consumer gives a lock back, which it may not have."""

    queue: int
    consumer: int


class HangUp(NamedTuple):
    """A producer loses its connection."""

    producer: int


class Wait(NamedTuple):
    """Time passes."""

    milliseconds: int


class SetClock(NamedTuple):
    """The broker's wall clock is set forward, or back, while it runs."""

    by_ms: int


class Restart(NamedTuple):
    """A clean stop and a start; the wall clock is set meanwhile."""

    clock_by_ms: int = 0


class Die(NamedTuple):
    """The broker is killed before its n-th write from now, or loses power."""

    writes: int
    kept_writes: int | None


class Program(NamedTuple):
    """One run.

    Attributes:
      sync: SYNC_FLUSH.
      check_max: transactionCheckMax.
      seed: of what the broker leaves to chance.
      merges: enablePopBufferMerge.
      retry_v2: enableRetryTopicV2.
    """

    sync: bool
    check_max: int
    seed: int
    steps: list[Any]
    merges: bool = True
    retry_v2: bool = False


DAY_MS = 24 * 3_600_000
YEAR_MS = 365 * DAY_MS

_producer = st.integers(0, 1)
_queue = st.integers(0, 1)
_consumer = st.integers(0, 5)
_tag = st.sampled_from(["a", "b", "Aa", "BB", ""])  # Aa and BB have the same hash code
_level = st.sampled_from([1, 1, 2, 3, 4, 5, 14, 18, 25])
_decision = st.sampled_from(Decision)
_milliseconds = st.sampled_from(
    [1, 100, 999, 1_000, 4_999, 5_000, 6_000, 10_000, 11_000, 15_500, 30_000, 61_000, 600_000,
     7_200_000]
)  # fmt: skip

_send = st.builds(
    Send, _producer, _queue, st.lists(_tag, min_size=1, max_size=3),
    st.sampled_from(["together", "one by one", "oneway", "batch"]),
)  # fmt: skip
_send_later = st.builds(SendLater, _producer, _queue, _tag, _level)
_send_timer = st.builds(
    SendTimer,
    _producer,
    _queue,
    _tag,
    st.sampled_from(["TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"]),
    st.sampled_from([1_000, 1_000, 2_000, 11_000, 61_000, 7_200_000]),
)
_recall = st.builds(Recall, _producer, st.integers(0, 2))
_prepare = st.builds(
    Prepare, _producer, _queue, _tag, _decision, st.sampled_from([0, 0, 0, 1, 3]),
    st.sampled_from(["nothing", "nothing", "decision", "unknown"]),
)  # fmt: skip
_end = st.builds(End, _producer, st.integers(0, 3), st.booleans())
_answer_checks = st.builds(AnswerChecks, _producer, st.booleans())
_poll = st.builds(Poll, _consumer, st.sampled_from([0, 15]), st.sampled_from([1, 3, 32]))
_consume = st.builds(Consume, _consumer, st.integers(0, 2), st.sampled_from([0, 0, 1, 3, -1]))
_leave = st.builds(Leave, _consumer, st.booleans())
_unlock = st.builds(Unlock, _queue, _consumer)
_hang_up = st.builds(HangUp, _producer)
_wait = st.builds(Wait, _milliseconds)
_pop_wait = st.builds(Wait, pops.pop_wait_ms)
_restart = st.just(Restart())
_jump_ms = st.sampled_from(
    [sign * size for size in (1, 900, 3_000, 61_000, 3_600_000, 7_300_000, 100 * DAY_MS)
     for sign in (-1, -1, 1)]
)  # fmt: skip
_years_ms = st.sampled_from([-3_600_000, -20 * YEAR_MS, 20 * YEAR_MS])
_set_clock = st.builds(SetClock, _jump_ms)
_set_years = st.builds(SetClock, _years_ms)
_restart_later = st.builds(Restart, _jump_ms)
_kept_writes = st.sampled_from([None, 0, 0, 1, 3, 10])
_die = st.builds(Die, st.sampled_from([0, 0, 3, 8]), _kept_writes)
# The age of what a power cut may take is reckoned by the store timestamps, and so by the clock.
_kill = st.builds(Die, st.sampled_from([0, 0, 3, 8]), st.none())
_die_soon = st.builds(Die, st.integers(0, 6), _kept_writes)

PROFILES: dict[str, list[st.SearchStrategy[Any]]] = {
    "everything": [
        _send, _send, _send_later, _send_timer, _recall, _prepare, _end, _answer_checks, _poll,
        _poll, _consume, _consume, _leave, _unlock, _hang_up, _wait, _wait, _restart, _die,
    ],
    "plain": [_send, _send, _poll, _poll, _consume, _wait, _restart, _leave],
    "delay": [
        _send_later, _send_later, _send_timer, _send_timer, _recall, _wait, _wait, _wait, _restart,
    ],
    "delay by clocks that jump": [
        _send_later, _send_later, _send_later, _send_timer, _recall, _wait, _wait, _wait,
        _set_clock, _set_clock, _restart, _restart_later,
    ],
    "delay by clocks that jump by years": [
        _send_later, _send_later, _wait, _wait, _set_years, _restart,
    ],
    "everything by clocks that jump": [
        _send, _send_later, _send_timer, _recall, _prepare, _prepare, _end, _answer_checks, _poll,
        _poll, _consume, _consume, _wait, _wait, _set_clock, _set_clock, _restart_later, _kill,
    ],
    "transactions": [
        _prepare, _prepare, _end, _answer_checks, _wait, _wait, _hang_up, _restart,
    ],
    "retries": [_send, _poll, _poll, _consume, _consume, _wait, _restart],
    "pop": [
        _send, _send, pops.pop, pops.pop, pops.pop, pops.ack, pops.ack, pops.change,
        pops.leave_pops, _pop_wait, _pop_wait, _restart,
    ],
    "pop in order": [
        _send, _send, pops.pop_in_order, pops.pop_in_order, pops.pop_in_order, pops.ack_in_order,
        pops.ack_in_order, pops.change_in_order, pops.leave_pops, _pop_wait, _restart,
    ],
    "pop with others": [
        _send, _send_later, _send_timer, _prepare, _end, pops.pop, pops.pop, pops.ack,
        pops.pop_in_order, pops.ack_in_order, _pop_wait, _restart, _die,
    ],
    "locks": [_send, _poll, _poll, _consume, _consume, _unlock, _leave, _wait, _restart],
}  # fmt: skip
"""Steps by what a run is about: few kinds of steps together go deeper than many."""


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Any program of 10 to 40 steps."""
    profile = draw(st.sampled_from(list(PROFILES)))
    step = st.one_of(PROFILES[profile])
    # Nothing, to which every step shrinks; and a step that the broker may not live through.
    dies = _kill if "jump" in profile else _die_soon
    some = st.one_of(st.just(()), *[st.tuples(step)] * 8, st.tuples(dies, step))
    steps = [each for few in draw(st.lists(some, min_size=10, max_size=40)) for each in few]
    if profile == "locks":
        steps = [_in_order(step) for step in steps]
    elif profile == "retries":
        steps = [_first_group(step) for step in steps]
    return Program(
        draw(st.booleans()), draw(st.sampled_from([2, 15])), draw(st.integers(0, 99)), steps,
        merges=draw(st.booleans()), retry_v2=draw(st.booleans()),
    )  # fmt: skip


def _in_order(step: Any) -> Any:
    """The same with a member of the last group."""
    return step._replace(consumer=4 + step.consumer % 2) if hasattr(step, "consumer") else step


def _first_group(step: Any) -> Any:
    return step._replace(consumer=step.consumer % 2) if hasattr(step, "consumer") else step
