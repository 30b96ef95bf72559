"""The ways in which a search cannot be done, each with its data and without a sentence.

A console has its sentences in several languages, and a command in another form.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Problem(StrEnum):
    """Why a search cannot be done. The data of each are named in its docstring."""

    NO_TOPIC = "no_topic"
    """topic: no name server knows it."""
    NO_QUEUE = "no_queue"
    """topic, queue: the topic has no such broker or queue."""
    NEEDS_QUEUE = "needs_queue"
    """An offset means something only with a broker and a queue."""
    TOO_MANY_QUEUES = "too_many_queues"
    """count, limit: choose a broker or a queue."""
    NOT_A_NUMBER = "not_a_number"
    """field, text: what should be a number of at most 20 digits."""
    OFFSET_NEGATIVE = "offset_negative"
    """offset."""
    OFFSET_BELOW = "offset_below"
    """offset, begin: the queue's messages before `begin` are deleted."""
    OFFSET_ABOVE = "offset_above"
    """offset, end: the queue has no message from `end` on yet."""
    TIME_OUT_OF_RANGE = "time_out_of_range"
    """time_ms, limit: a time before 1970 or after the year 9999."""
    TIMES_REVERSED = "times_reversed"
    """begin_ms, end_ms: the begin is after the end."""
    TIME_IN_FUTURE = "time_in_future"
    """begin_ms, now_ms: nothing is stored that late."""
    BAD_SQL = "bad_sql"
    """reason, line, column."""
    TOO_LONG = "too_long"
    """field, length, limit: of a criterion, in characters."""
    BAD_KEY = "bad_key"
    """key: a key has no blanks in it."""
    BAD_CURSOR = "bad_cursor"
    """reason: it is cut off or changed, or it is of another search."""

    EMPTY = "empty"
    """Nothing was given."""
    HAS_SPACES = "has_spaces"
    """joined: the id without them."""
    CUT_OFF = "cut_off"
    """length: hex digits, fewer than any id has, or between the lengths of two kinds."""
    NOT_AN_ID = "not_an_id"
    """text."""
    OTHER_CLUSTER = "other_cluster"
    """address: the id names this broker, which is not of the cluster."""
    DELETED = "deleted"
    """broker, offset, begin: its commit log begins later than the id's offset."""
    BEYOND_LOG = "beyond_log"
    """broker, offset, end: its commit log ends before the id's offset."""
    NO_MESSAGE_THERE = "no_message_there"
    """broker, offset: no message begins at this place of its commit log."""
    UNKNOWN_ID = "unknown_id"
    """topics: their number; all were searched by the index, and no message has the id."""


class SearchError(Exception):
    """A search cannot be done.

    Args:
      problem: why.
      data: its data.
    """

    def __init__(self, problem: Problem, **data: str | int) -> None:
        super().__init__(f"{problem}: {data}")
        self.problem = problem
        self.data: Mapping[str, str | int] = data
