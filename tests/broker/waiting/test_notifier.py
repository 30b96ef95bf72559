"""Callbacks that are notified of an event."""

from __future__ import annotations

import logging

import pytest

from trocket.common.notifier import Notifier
from trocket.common.supervision import FailureLog


def test_a_subscriber_that_fails_is_logged_and_the_others_are_called(
    caplog: pytest.LogCaptureFixture,
) -> None:
    heard: list[str] = []

    def fail(value: str) -> None:
        raise RuntimeError("bug")

    failures = FailureLog(logging.getLogger("test"))
    notifier = Notifier[str](failures, "notifying", "Some hear of it late")
    notifier.notify("before anything subscribed")
    notifier.subscribe(fail, heard.append)
    notifier.subscribe(heard.append)
    notifier.notify("event")
    assert heard == ["event", "event"]
    assert "notifying failed" in caplog.text
    assert "Some hear of it late" in caplog.text
