"""The pages of groups: lag over the last hour, groups that never committed, unknown delays."""

from __future__ import annotations

from typing import Any

import pytest

from trocket.blocking import PullConsumer
from trocket.client import MessageQueue
from trocket.console.lags import COUNT_MAX, GROUPS_MAX, STEP_MS, Lags
from trocket.operations.group_view import GroupQueue, GroupView
from trocket.operations.sampling import GroupRow, Sample
from trocket.testing import Broker

from .running import Browser, logged_in, running_console

QUEUE = GroupQueue("orders", "broker-a", 0, 1, 0, 8, 7, None, "", idles=False)


def row(group: str, lag: int) -> GroupRow:
    return GroupRow(group, ("T",), None, lag, None, 0)


def sample(at_ms: int, **lags: int) -> Sample:
    return Sample(at_ms, (), (), tuple(row(group, lag) for group, lag in lags.items()))


def known(lags: Lags, group: str) -> list[tuple[int, int | None]]:
    return [(each.timestamp_ms, each.lag) for each in lags.of(group)]


def test_lags_are_kept_at_steps() -> None:
    lags = Lags()
    assert known(lags, "a") == []
    lags.take(sample(0, a=0, b=7))
    lags.take(sample(STEP_MS - 1, a=9, b=9))
    lags.take(sample(STEP_MS, a=3, b=8))
    assert known(lags, "a") == [(0, 0), (STEP_MS, 3)]
    assert known(lags, "b") == [(0, 7), (STEP_MS, 8)]
    assert known(lags, "never") == [(0, 0), (STEP_MS, 0)]
    # A broker that does not answer: its groups are missing.
    lags.take(sample(2 * STEP_MS, a=3))
    assert known(lags, "b")[-1] == (2 * STEP_MS, None)
    # A clock that was set back.
    lags.take(sample(0, a=5))
    assert known(lags, "a")[-1] == (0, 5)


def test_lags_are_forgotten_after_an_hour() -> None:
    lags = Lags()
    lags.take(sample(0, a=1))
    for number in range(1, COUNT_MAX + 1):
        lags.take(sample(number * STEP_MS, a=0))
    assert len(known(lags, "a")) == COUNT_MAX
    assert {lag for _, lag in known(lags, "a")} == {0}


def test_of_too_many_groups_those_with_the_most_messages_are_kept() -> None:
    lags = Lags()
    groups = {f"g{number}": number + 1 for number in range(GROUPS_MAX + 5)}
    lags.take(sample(0, **groups))
    assert known(lags, "g4") == [(0, 0)]
    assert known(lags, "g5") == [(0, 6)]


@pytest.fixture
def committed(stocked: Broker) -> Broker:
    """A group that is in two of the 40 messages behind the begin, and one that never committed."""
    with PullConsumer(stocked.url, group="slow") as consumer:
        consumer.commit({MessageQueue("orders", "broker-a", 0): 1})
    stocked.create_group("new")
    return stocked


def test_a_group_shows_its_lag_over_the_last_hour(committed: Broker) -> None:
    with running_console(committed.url) as (console, browser):
        logged_in(console, browser)
        page = browser.get("group.json", group="slow").tree
        assert page["lag"] > 0
        assert page["lags"][-1]["lag"] == page["lag"]
        assert len(page["lags"]) >= 2
        shown = browser.get("group", group="slow").text
        assert "Messages waiting for this group, last hour; now" in shown
        assert 'class="l-in" d="M' in shown


def test_a_group_that_never_committed_is_listed_and_says_so(
    committed: Broker, browser: Browser
) -> None:
    """Question 29 of operators: the delay is -1."""
    rows = {each["group"]: each for each in browser.get("groups.json").tree["groups"]}
    assert (rows["new"]["hasOffsets"], rows["new"]["lag"]) == (False, 0)
    assert rows["slow"]["hasOffsets"]
    assert "never committed" in browser.get("groups").text
    shown = browser.get("group", group="new").text
    assert "It has not committed an offset in any queue" in shown
    assert "where other consoles show" in shown
    assert "It has not committed" not in browser.get("group", group="slow").text


def test_a_delay_that_is_not_known_is_explained(
    committed: Broker, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def view(*_: Any) -> GroupView:
        return GroupView("slow", "", "", 0.0, 7, None, 0, 0, (), (QUEUE,), (), 0, ())

    monkeypatch.setattr("trocket.console.pages.groups.group_view", view)
    shown = browser.get("group", group="slow").text
    assert "7 messages wait. How long the oldest one waits is not known" in shown
