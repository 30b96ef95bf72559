"""Open and given-up transactions in the console, and the checking again of one."""

from __future__ import annotations

from collections.abc import Iterator

import anyio
import pytest

from trocket.client import Message, Producer, ReceivedMessage, TransactionProducer, TransactionState
from trocket.testing import Broker

from .running import Browser, logged_in, running_console

CHECK_MAX = 1


@pytest.fixture
def broker() -> Iterator[Broker]:
    config = {"transactionCheckMax": CHECK_MAX, "transactionCheckInterval": 60_000}
    with Broker(config=config) as running:
        running.create_topic("orders", queues=1)
        running.create_topic("other", queues=1)
        yield running


@pytest.fixture
def browser(broker: Broker) -> Iterator[Browser]:
    with running_console(broker.url) as (console, browser):
        yield logged_in(console, browser)


def leave_open(broker: Broker, *messages: Message, advance_s: float = 0.0) -> None:
    """Send half messages that nothing ends, and let their checks go by without an outcome."""

    def undecided(message: ReceivedMessage) -> TransactionState:
        return TransactionState.UNKNOWN

    async def run() -> None:
        async with TransactionProducer(broker.url, group="shop", check=undecided) as producer:
            for message in messages:
                with pytest.raises(ZeroDivisionError):
                    async with producer.transaction(message):
                        raise ZeroDivisionError
            for _ in range(CHECK_MAX + 1):
                if advance_s:
                    await anyio.to_thread.run_sync(lambda: broker.advance(seconds=advance_s))

    anyio.run(run)


def test_an_open_transaction_says_why_no_check_is_called(broker: Broker, browser: Browser) -> None:
    """Questions 26 and 27 of operators: the check is never called, the half topic fills up."""
    leave_open(
        broker,
        Message("orders", "x", tags="b\u202e", keys="k"),
        Message("other", "y"),
    )
    page = browser.get("transactions.json", topic="orders").tree
    (half,) = page["open"]
    assert (half["topic"], half["tag"], half["keys"]) == ("orders", "b\u202e", ["k"])
    assert (half["producerGroup"], half["checks"]) == ("shop", 0)
    assert half["nextCheckMs"] > half["bornMs"]
    assert (half["answerer"], page["givenUp"], page["error"]) == ("NOT_CONNECTED", [], "")
    (here,) = page["brokers"]
    assert (here["records"], here["open"], here["knowsEnds"]) == (2, 2, True)
    shown = browser.get("transactions", topic="orders").text
    assert "no producer of the group is connected, so no check is called" in shown
    assert "Each check writes a half message again, so the topic grows" in shown
    assert '<mark class="replaced">&lt;U+202E&gt;</mark>' in shown
    assert len(browser.get("transactions.json").tree["open"]) == 2
    for name, query in (("topic", {"topic": "orders"}), ("topics", {}), ("broker", BROKER)):
        assert 'href="/transactions' in browser.get(name, **query).text
    assert "Its transaction has not ended" in browser.get("message", id=half["messageId"]).text


BROKER = {"name": "broker-a"}


def test_a_producer_of_another_group_is_named(broker: Broker, browser: Browser) -> None:
    leave_open(broker, Message("orders", "x"))

    async def look() -> str:
        async with Producer(broker.url, group="store") as producer:
            await producer.send(Message("orders", "now"))
            return await anyio.to_thread.run_sync(lambda: browser.get("transactions").text)

    shown = anyio.run(look)
    assert "does the group&#39;s name differ?" in shown
    assert "<code>store</code>" in shown


def test_a_given_up_transaction_is_checked_again(broker: Broker, browser: Browser) -> None:
    leave_open(broker, Message("orders", "x"), advance_s=61)
    page = browser.get("transactions.json").tree
    assert page["open"] == []
    (row,) = page["givenUp"]
    half = row["half"]
    assert (half["checks"], half["nextCheckMs"]) == (CHECK_MAX, None)
    place = half["place"]
    assert (
        f'href="/resume_check?place={place.replace(":", "%3A")}"'
        in browser.get("transactions").text
    )
    shown = browser.get("resume_check", place=place).text
    assert half["messageId"] in shown
    assert "start one first" in shown
    done = browser.post("resume_check", place=place)
    assert done.status == 303, done.text
    shown = browser.request("GET", done.headers["location"]).text
    assert "is checked again; it is change 1" in shown
    page = browser.get("transactions.json").tree
    assert [each["messageId"] for each in page["open"]] == [half["messageId"]]
    assert page["givenUp"][0]["half"]["isOpenAgain"]
    assert page["givenUp"][0]["resumed"] == [1]
    (change,) = browser.get("audit.json").tree["changes"]
    assert (change["what"], change["of"]["id"]) == ("resume_check", half["messageId"])
    assert change["before"]["checks"] == CHECK_MAX
    # Once more would deliver the message twice.
    again = browser.post("resume_check", place=place)
    assert again.status == 409
    assert "is checked again already" in again.text
    assert len(browser.get("audit.json").tree["changes"]) == 1


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"place": "broker-a:0:99"}, 409),
        ({"place": "broker-x:0:0"}, 409),
        ({"place": "\u202e"}, 409),
        ({}, 400),
    ],
)
def test_what_was_not_given_up_is_not_checked_again(
    browser: Browser, fields: dict[str, str], status: int
) -> None:
    for answer in (browser.get("resume_check", **fields), browser.post("resume_check", **fields)):
        assert answer.status == status
    assert browser.get("audit.json").tree["changes"] == []
