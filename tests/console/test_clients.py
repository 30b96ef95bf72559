"""The page of connected clients, and the search for one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kit.waiting import wait_until
from trocket.blocking import Producer, PushConsumer
from trocket.client import Message
from trocket.operations.clients import GROUPS_MAX, likely_first
from trocket.operations.sampling import GroupRow
from trocket.testing import Broker

from .running import Browser, logged_in, running_console


def row(group: str, lag: int = 0, *, has_offsets: bool = True) -> GroupRow:
    return GroupRow(group, (), None, lag, 0.0, 0, has_offsets=has_offsets)


def test_groups_that_are_likely_to_have_members_come_first() -> None:
    rows = [row("a", has_offsets=False), row("b"), row("d", lag=1), row("c", lag=1), row("z")]
    assert likely_first(rows) == ["c", "d", "b", "z", "a"]
    assert likely_first(rows, {"z"})[0] == "z"


@pytest.fixture(scope="module")
def peopled(stocked: Broker) -> Iterator[Browser]:
    """A producer, a member, and more groups than are asked for at one time."""
    for number in range(GROUPS_MAX + 5):
        stocked.create_group(f"idle-{number:02}")
    with (
        PushConsumer(stocked.url, group="billing", subscriptions={"orders": "*"}),
        Producer(stocked.url, group="shop") as producer,
        running_console(stocked.url) as (console, browser),
    ):
        producer.send(Message("orders", b"x"))
        logged_in(console, browser)
        wait_until(lambda: browser.get("clients.json").tree["consumers"], "a member")
        yield browser


def test_members_of_groups_are_shown_beside_producers(peopled: Browser) -> None:
    page = peopled.get("clients.json").tree
    (member,) = page["consumers"]
    assert (member["group"], member["brokers"]) == ("billing", ["broker-a"])
    assert "shop" in {each["group"] for each in page["producers"]}
    assert (page["first"], page["asked"], page["next"]) == (0, GROUPS_MAX, GROUPS_MAX)
    assert page["groups"] > GROUPS_MAX
    shown = peopled.get("clients").text
    assert f"Of groups 1 to {GROUPS_MAX} of {page['groups']}" in shown
    assert 'href="/member?group=billing&amp;client=' in shown
    rest = peopled.get("clients.json", **{"from": page["next"]}).tree
    assert (rest["consumers"], rest["next"]) == ([], None)
    assert rest["asked"] == page["groups"] - GROUPS_MAX
    assert peopled.get("clients.json", **{"from": 10**9}).tree["asked"] == 0
    assert peopled.get("clients.json", **{"from": "-1"}).status == 400


def test_clients_are_filtered_by_a_part_of_their_ids(peopled: Browser) -> None:
    (member,) = peopled.get("clients.json").tree["consumers"]
    client = member["clientId"]
    page = peopled.get("clients.json", client=client[3:].upper()).tree
    assert client in {each["clientId"] for each in page["consumers"]}
    page = peopled.get("clients.json", client="no\u202esuch").tree
    assert (page["consumers"], page["producers"]) == ([], [])


def test_the_search_box_finds_a_client(peopled: Browser) -> None:
    (member,) = peopled.get("clients.json").tree["consumers"]
    answer = peopled.get("search", q=f" {member['clientId']} ")
    assert answer.status == 303
    shown = peopled.request("GET", answer.headers["location"]).text
    assert f"<code>{member['clientId']}</code>" in shown
    producer = next(
        each for each in peopled.get("clients.json").tree["producers"] if each["group"] == "shop"
    )
    assert peopled.get("search", q=producer["clientId"]).status == 303
    part = peopled.get("search", q=member["clientId"][:-4])
    assert part.status == 200
    assert 'href="/clients?client=' in part.text
