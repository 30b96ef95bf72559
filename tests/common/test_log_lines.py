"""Log lines that repeat are counted; the lines of other events are written."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from trocket.common.log_lines import (
    EVENTS_MAX,
    INTERVAL_S,
    LINES_MAX,
    JsonFormatter,
    LimitedHandler,
    TextFormatter,
)


class Log:
    """A logger with the handler, a clock, and what was written."""

    def __init__(self, form: logging.Formatter) -> None:
        self.now_s = 0.0
        self.stream = io.StringIO()
        self.handler = LimitedHandler(self.stream, now_s=lambda: self.now_s)
        self.handler.setFormatter(form)
        self.logger = logging.Logger("test")
        self.logger.addHandler(self.handler)

    def refuse(self, count: int, first: int = 0) -> None:
        for number in range(first, first + count):
            self.logger.warning("refused %(number)d", {"number": number})

    @property
    def lines(self) -> list[str]:
        return self.stream.getvalue().splitlines()


@pytest.fixture
def log() -> Iterator[Log]:
    made = Log(TextFormatter("%(levelname)s %(message)s"))
    yield made
    made.handler.close()


def test_the_first_lines_of_an_interval_are_written(log: Log):
    log.refuse(LINES_MAX)
    log.now_s = INTERVAL_S
    log.refuse(LINES_MAX)
    assert len(log.lines) == 2 * LINES_MAX


def test_an_event_may_have_its_own_limit(log: Log):
    for number in range(100):
        log.logger.warning("line %(number)d", {"number": number}, extra={"lines_max": 70})
    log.refuse(100)
    assert len([line for line in log.lines if "line" in line]) == 70
    assert len(log.lines) == 70 + LINES_MAX


def test_the_last_line_that_was_left_out_has_the_count_when_the_interval_is_over(log: Log):
    log.refuse(LINES_MAX + 5_000)
    assert len(log.lines) == LINES_MAX
    log.now_s = INTERVAL_S
    log.logger.info("another event")
    assert log.lines[LINES_MAX:] == [
        f"WARNING refused {LINES_MAX + 4_999} (4,999 more of these were left out)",
        "INFO another event",
    ]
    log.refuse(1)
    assert log.lines[-1] == "WARNING refused 0"


def test_one_line_that_was_left_out_is_written_as_it_is(log: Log):
    log.refuse(LINES_MAX + 1)
    log.handler.close()
    assert log.lines[-1] == f"WARNING refused {LINES_MAX}"


def test_other_events_and_levels_are_not_left_out(log: Log):
    log.refuse(LINES_MAX + 1)
    log.logger.error("refused %(number)d", {"number": -1})
    log.logger.warning("accepted %(number)d", {"number": -2})
    assert log.lines[-2:] == ["ERROR refused -1", "WARNING accepted -2"]


def test_the_worst_lines_are_always_written(log: Log):
    for _ in range(LINES_MAX + 5):
        log.logger.critical("the store is read-only")
    assert len(log.lines) == LINES_MAX + 5


def test_no_number_of_events_takes_more_memory(log: Log):
    log.refuse(LINES_MAX + 2)
    for number in range(EVENTS_MAX):
        log.logger.warning(f"event {number}")  # noqa: G004 - an event of its own
    # The oldest was forgotten for the newest, with its count.
    assert "(1 more of these were left out)" in log.lines[-2]


def test_a_traceback_stays_behind_its_line(log: Log):
    for _ in range(LINES_MAX + 3):
        try:
            raise ZeroDivisionError
        except ZeroDivisionError:
            log.logger.exception("it failed")
    log.handler.close()
    index = log.lines.index("ERROR it failed (2 more of these were left out)")
    assert log.lines[index + 1] == "Traceback (most recent call last):"


def test_json_lines_have_the_count_as_a_member():
    log = Log(JsonFormatter())
    log.refuse(LINES_MAX + 10)
    log.handler.close()
    first, *_, last = map(json.loads, log.lines)
    assert (first["event"], first["number"]) == ("refused {number}", 0)
    assert "left_out" not in first
    assert (last["number"], last["left_out"]) == (LINES_MAX + 9, 9)
