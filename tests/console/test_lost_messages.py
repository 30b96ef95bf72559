"""The example of the tutorial loses half of its messages, and the console says which and why."""

from __future__ import annotations

from ..kit.waiting import wait_until
from .lost_messages import example, passed_over
from .running import Browser, logged_in, running_console

REPEATED = "Messages that are consumed again: 40"


def reset(browser: Browser) -> str:
    return browser.get("reset", group="billing", topic="orders", to="begin").text


def test_the_console_shows_what_the_tutorial_says() -> None:
    with example() as namesrv, running_console(namesrv) as (console, browser):
        logged_in(console, browser)
        shown = browser.get("message", topic="orders", id=passed_over(browser)[0]).text
        assert "the member that holds its queue does not want it" in shown
        assert "created || paid" in shown
        group = browser.get("group", group="billing").text
        assert "differs" in group
        wait_until(lambda: REPEATED in reset(browser), "the offsets of the member that consumes")
