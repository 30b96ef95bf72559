"""A reset of offsets: its preview, the change, the audit log, and its undo."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from trocket.blocking import Producer
from trocket.client import Message
from trocket.testing import Broker

from .running import logged_in, running_console


def offsets(url: str) -> dict[str, int]:
    """Where the group is, by queue."""
    import anyio

    from trocket.client import Admin

    async def ask() -> dict[str, int]:
        async with Admin(url) as admin:
            lag = await admin.lag("ledger", "payments")
            return {f"{q.broker_name}:{q.queue_id}": q.committed for q in lag.queues}  # type: ignore[misc]

    return anyio.run(ask)


@pytest.fixture
def read(broker: Broker) -> Broker:
    """A topic of which a group has read a part."""
    broker.create_topic("payments", queues=2)
    broker.create_group("ledger")
    with Producer(broker.url, group="shop") as producer:
        for number in range(20):
            producer.send(Message("payments", b"%d" % number, tags="a"))
    import anyio

    from trocket.client import Admin

    async def move() -> None:
        async with Admin(broker.url) as admin:
            await admin.reset_offset("ledger", "payments", to="end")

    anyio.run(move)
    return broker


def test_a_reset_and_its_undo_leave_the_offsets_as_they_were(read: Broker, tmp_path: Path) -> None:
    before = offsets(read.url)
    log = tmp_path / "audit.log"
    with running_console(read.url, audit_log=log) as (console, browser):
        logged_in(console, browser)
        fields = {"group": "ledger", "topic": "payments", "to": "begin"}
        preview = browser.get("reset", **fields)
        total = sum(before.values())
        assert f"consumed again: {total}" in preview.text
        assert len(re.findall(r"<code>[0-9A-F]{32}</code>", preview.text)) == 2, "first messages"
        assert offsets(read.url) == before, "a preview changes nothing"
        done = browser.post("reset", **fields)
        assert done.status == 303
        assert set(offsets(read.url).values()) == {0}
        shown = browser.request("GET", done.headers["location"])
        assert "The offsets in payments were reset" in shown.text
        preview = browser.get("undo", number=1)
        assert f"skipped: {total}" in preview.text
        assert browser.post("undo", number="1").status == 303
        assert offsets(read.url) == before
        assert "undid" in browser.get("audit").text
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["what"] for line in lines] == ["reset", "undo"]
    assert lines[0]["before"] == lines[1]["after"] == before
    assert [line["person"] for line in lines] == ["token", "token"]
    with running_console(read.url, audit_log=log) as (console, browser):
        logged_in(console, browser)
        assert [each["number"] for each in browser.get("audit.json").tree["changes"]] == [2, 1]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"to": "offset", "queue": "broker-a:1", "offset": "3"}, {"broker-a:1": 3}),
        ({"to": "time", "at": "2000-01-01T00:00:00"}, {"broker-a:0": 0, "broker-a:1": 0}),
        ({"to": "time", "at": "0"}, {"broker-a:0": 0, "broker-a:1": 0}),
    ],
)
def test_a_reset_goes_to_a_time_or_to_an_offset_of_one_queue(
    read: Broker, fields: dict[str, str], expected: dict[str, int]
) -> None:
    before = offsets(read.url)
    with running_console(read.url) as (console, browser):
        logged_in(console, browser)
        done = browser.post("reset", group="ledger", topic="payments", **fields)
        assert done.status == 303, done.text
        assert offsets(read.url) == {**before, **expected}


def test_a_failed_reset_is_in_the_audit_log(read: Broker) -> None:
    with running_console(read.url) as (console, browser):
        logged_in(console, browser)
        assert browser.post("reset", group="ledger", topic="missing", to="end").status == 502
        (change,) = browser.get("audit.json").tree["changes"]
        assert "missing" in change["error"]
