"""Levels of the log by part."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from trocket.common.config import ConfigError
from trocket.common.log_levels import LogLevel, apply_levels, parse_levels


@pytest.fixture(autouse=True)
def _reset() -> Iterator[None]:
    yield
    apply_levels(LogLevel.DEFAULT, {})


def test_a_part_that_moved_is_found_by_its_former_name():
    text = "broker.processors:DEBUG,broker.processors.pull_message:ERROR,store.clock:INFO"
    assert parse_levels(text) == {
        "broker": "DEBUG",
        "broker.pulling.pull_message": "ERROR",
        "common.clock": "INFO",
    }


def test_levels_by_part_are_read():
    text = "broker.sending:DEBUG, trocket.store : WARNING,"
    assert parse_levels(text) == {"broker.sending": "DEBUG", "store": "WARNING"}
    assert parse_levels("") == {}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("broker", "'broker' is not part:LEVEL"),
        ("broker:LOUD", "'broker:LOUD' is not part:LEVEL"),
        ("broker:DEFAULT", "is not part:LEVEL"),
        ("brokers:DEBUG", "there is no part 'brokers'"),
        ("..:DEBUG", "there is no part '..'"),
        ("broker:DEBUG,broker:INFO", "broker is there twice"),
    ],
)
def test_wrong_levels_are_refused_by_name(text, reason):
    with pytest.raises(ConfigError) as refused:
        parse_levels(text)
    assert reason in refused.value.reason


def enabled(part: str, level: int) -> bool:
    return logging.getLogger(f"trocket.{part}").isEnabledFor(level)


def test_a_part_and_what_is_below_it_get_a_level_and_lose_it_again():
    apply_levels(LogLevel.ERROR, {"store": "DEBUG"})
    assert enabled("store.retention_service", logging.DEBUG)
    assert not enabled("broker.controller", logging.WARNING)
    apply_levels(LogLevel.INFO, {"broker": "WARNING"})
    assert not enabled("store.retention_service", logging.DEBUG)
    assert enabled("store.retention_service", logging.INFO)
    assert not enabled("broker.controller", logging.INFO)
    apply_levels(LogLevel.DEFAULT, {})
    usual = logging.getLogger().getEffectiveLevel()
    assert logging.getLogger("trocket.broker.controller").getEffectiveLevel() == usual
