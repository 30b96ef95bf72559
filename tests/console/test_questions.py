"""Questions that operators asked in public, as pages answer them (docs/operators_questions.md)."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from trocket.blocking import Admin as BlockingAdmin
from trocket.blocking import Producer, PushConsumer
from trocket.client import Admin, Message, PushedMessage, QueueOffsets
from trocket.console.console import Console
from trocket.testing import Broker

from ..kit.waiting import wait_until
from .page_lives import words_of
from .running import Browser, logged_in, running_console

pytestmark = pytest.mark.slow

GROUP = "billing"


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        running.create_topic("orders", queues=2)
        running.create_group(GROUP)
        yield running


@pytest.fixture
def begun(broker: Broker) -> Broker:
    """A broker that has offsets of the group."""
    send(broker, b"first")
    with BlockingAdmin(broker.url) as admin:
        admin.reset_offset(GROUP, "orders", to="end")
    return broker


@pytest.fixture
def opened(broker: Broker) -> Iterator[tuple[Console, Browser]]:
    with running_console(broker.url) as (console, browser):
        yield console, logged_in(console, browser)


@pytest.fixture
def browser(opened: tuple[Console, Browser]) -> Browser:
    return opened[1]


def send(broker: Broker, *bodies: bytes, **options: Any) -> list[str]:
    """The ids that the broker gave."""
    with Producer(broker.url, group="shop") as producer:
        return [
            producer.send(Message("orders", body, **options)).offset_message_id for body in bodies
        ]


def group(browser: Browser) -> dict[str, Any]:
    found: dict[str, Any] = browser.get("group.json", group=GROUP).tree
    return found


def test_members_that_want_different_things_are_marked(broker: Broker, browser: Browser) -> None:
    with (
        PushConsumer(broker.url, group=GROUP, subscriptions={"orders": "paid"}),
        PushConsumer(broker.url, group=GROUP, subscriptions={"orders": "refund || paid"}),
    ):
        wait_until(lambda: len(group(browser)["members"]) == 2, "two members")
        page = group(browser)
        assert page["differ"] == ["orders"]
        wanted = {each["expression"] for member in page["members"] for each in member["wants"]}
        assert wanted == {"paid", "refund || paid"}
        words = words_of(browser.get("group", group=GROUP).text)
        assert "The members subscribe to different things of orders" in words
        assert "orders: refund || paid ■" in words


def test_a_queue_that_no_member_has_is_marked(begun: Broker, browser: Browser) -> None:
    with PushConsumer(begun.url, group=GROUP, subscriptions={"orders": "*"}) as consumer:
        wait_until(lambda: len(consumer.queues) >= 2, "queues")
        # It learns of more queues later.
        begun.create_topic("orders", queues=4)
        send(begun, *(b"%d" % number for number in range(8)))
        wait_until(
            lambda: group(browser)["unowned"] == 2, lambda: str(group(browser)), timeout_s=20
        )
        shown = browser.get("group", group=GROUP).text
        assert words_of(shown).count("■ no member") == 2


def test_a_queue_that_is_not_consumed_has_its_owner_and_its_lag(
    begun: Broker, browser: Browser
) -> None:
    with PushConsumer(begun.url, group=GROUP, subscriptions={"orders": "*"}) as consumer:
        wait_until(lambda: len(consumer.queues) >= 2, "queues")
        send(begun, *(b"%d" % number for number in range(6)))
        consumer.receive(timeout_s=10.0)  # and it is never acknowledged

        def idle() -> list[dict[str, Any]]:
            return [each for each in group(browser)["queues"] if each["idles"]]

        wait_until(idle, lambda: str(group(browser)))
        (first, *_) = idle()
        assert first["owner"] == consumer.client.client_id
        assert first["lag"] == first["end"] - first["committed"] > 0
        assert "pulls, does not commit" in browser.get("group", group=GROUP).text


def test_a_group_that_waits_for_nothing_has_no_delay(begun: Broker, browser: Browser) -> None:
    page = group(browser)
    assert (page["lag"], [each["lag"] for each in page["queues"]]) == (0, [0, 0])
    assert page["delayS"] is None or page["delayS"] >= 0
    assert " -1 " not in words_of(browser.get("group", group=GROUP).text)


def test_retries_and_dead_letters_are_counted(begun: Broker, browser: Browser) -> None:
    def counts() -> tuple[int, int]:
        page = group(browser)
        return page["retries"], page["deadLetters"]

    with PushConsumer(begun.url, group=GROUP, subscriptions={"orders": "*"}) as consumer:

        def receive() -> PushedMessage:
            message = consumer.receive(timeout_s=20.0)
            assert message is not None
            return message

        send(begun, b"given up", b"retried", b"retried")
        for _ in range(3):
            message = receive()
            message.retry(-1 if message.body == b"given up" else 1)
        begun.advance(seconds=2)
        receive().ack()  # the other one is taken, and its handler does not end
        receive()
        wait_until(lambda: counts() == (1, 1), lambda: str(group(browser)))
        words = words_of(browser.get("group", group=GROUP).text)
        assert "1 wait for another try." in words
        assert "1 are dead letters." in words
        table = browser.get("dead_letters.csv", group=GROUP).text
        assert len(table.splitlines()) == 2


def test_a_body_in_gzip_is_read(broker: Broker, browser: Browser) -> None:
    (place,) = send(broker, gzip.compress(b'{"total": 12.5}'))
    words = words_of(browser.get("message", id=place).text)
    assert '"total": 12.5' in words
    assert "gzip" in words


def test_a_message_of_last_week_is_found_by_its_id(broker: Broker, browser: Browser) -> None:
    (place,) = send(broker, b"old", keys="k-old")
    (old,) = broker.messages("orders")
    broker.advance(hours=7 * 24)
    for query in ({"id": place}, {"id": str(old.unique_key), "topic": "orders"}):
        wait_until(
            lambda query=query: browser.get("message.json", **query).tree["life"]["message"],
            "the index",
        )
        assert "old" in words_of(browser.get("message", **query).text)
    found = browser.get("messages.json", topic="orders", key="k-old").tree
    assert len(found["messages"]) == 1


def test_a_message_that_is_not_in_its_queue_says_so(
    broker: Broker, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place,) = send(broker, b"x")
    offsets = Admin.topic_offsets

    async def stuck(self: Admin, address: str, topic: str) -> list[QueueOffsets]:
        """Queues that end before the message."""
        import msgspec

        found = await offsets(self, address, topic)
        return [msgspec.structs.replace(each, end=each.begin) for each in found]

    monkeypatch.setattr(Admin, "topic_offsets", stuck)
    page = browser.get("message", id=place)
    assert "in the commit log and not in its queue" in words_of(page.text)


def test_a_message_whose_file_was_deleted_says_so() -> None:
    config = {"mappedFileSizeCommitLog": 64 << 10, "cleanResourceInterval": 100}
    with Broker(config=config) as broker:
        broker.create_topic("orders", queues=1)
        body = Random(1).randbytes(50_000)  # which compression does not make smaller
        place, *_ = send(broker, *[body] * 4)
        broker.restart()  # only what is safely in the queues may be deleted
        with BlockingAdmin(broker.url) as admin:
            admin.update_broker_config("broker-a", {"fileReservedTime": "0"})
            admin.delete_expired_commit_log()
        with running_console(broker.url) as (console, browser):
            logged_in(console, browser)

            def verdict() -> str:
                found = browser.get("message.json", id=place).tree["life"]["verdict"]["key"]
                return str(found)

            wait_until(lambda: verdict() == "DELETED", verdict)
            assert "deleted" in words_of(browser.get("message", id=place).text)
            shown = words_of(browser.get("broker", name="broker-a").text)
            assert "The oldest message was stored" in shown
            assert "fileReservedTime 0" in shown


def test_the_first_page_says_why_a_broker_refuses_sends() -> None:
    with (
        Broker(config={"brokerPermission": 4}) as broker,
        running_console(broker.url) as (console, browser),
    ):
        logged_in(console, browser)

        def findings() -> list[dict[str, str]]:
            found = browser.get("overview.json").tree["findings"] or []
            return [each for each in found if "refuses all sends" in each["text"]]

        wait_until(findings, "findings")
        shown = browser.get("overview").text
        assert "refuses all sends" in shown
        assert 'href="/brokers"' in shown
