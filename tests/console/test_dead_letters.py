"""Dead letters of a group in the console: the list, its export, and sending them again."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator

import anyio
import pytest

from trocket.blocking import Admin as BlockingAdmin
from trocket.client import Admin, Message, Producer
from trocket.console.console import Console
from trocket.operations.dead_letters import LETTERS_MAX
from trocket.remoting.headers import ConsumerSendMsgBackRequestHeader
from trocket.remoting.request_codes import RequestCode
from trocket.testing import Broker

from ..kit.waiting import wait_until
from .running import Browser, logged_in, running_console

GROUP = "billing"


def give_up(broker: Broker, messages: list[Message], tries: int = 0) -> None:
    """Send messages, and give each up, as a consumer does that gives it back for the last time."""

    async def run() -> None:
        async with Admin(broker.url) as admin, Producer(admin.client) as producer:
            for message in messages:
                await producer.send(message)
            address = (await admin.cluster()).brokers[0].address
            for each in broker.messages(messages[0].topic)[-len(messages) :]:
                header = ConsumerSendMsgBackRequestHeader(
                    offset=each.physical_offset,
                    group=GROUP,
                    delay_level=-1 if not tries else 0,
                    max_reconsume_times=0 if tries else None,
                )
                await admin.client.request(address, RequestCode.CONSUMER_SEND_MSG_BACK, header)

    with BlockingAdmin(broker.url) as admin:
        before = len(admin.dead_letters(GROUP, count=1000))
        anyio.run(run)
        # The name server learns of the dead-letter topic a moment after it is created.
        wait_until(lambda: len(admin.dead_letters(GROUP, count=1000)) == before + len(messages))


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        running.create_topic("orders", queues=1)
        running.create_group(GROUP)
        yield running


@pytest.fixture
def given_up(broker: Broker) -> Broker:
    """A group with two dead letters."""
    give_up(broker, [
        Message("orders", "one", tags="paid\u202e", keys=["k-1", "<script>"]),
        Message("orders", "two", tags="=cmd()"),
    ])  # fmt: skip
    return broker


@pytest.fixture
def opened(given_up: Broker) -> Iterator[tuple[Console, Browser]]:
    with running_console(given_up.url) as (console, browser):
        yield console, logged_in(console, browser)


def bodies(broker: Broker) -> list[str]:
    return [each.text for each in broker.messages("orders")]


def test_the_list_says_what_each_was_and_why(opened: tuple[Console, Browser]) -> None:
    _, browser = opened
    page = browser.get("dead_letters.json", group=GROUP).tree
    first, second = page["letters"]
    assert first["place"] == "broker-a:0:0"
    assert (first["topic"], first["keys"], first["tries"]) == ("orders", "k-1 <script>", 1)
    assert (first["tag"], second["tag"]) == ("paid\u202e", "=cmd()")
    assert (first["why"], first["size"], first["resent"]) == ("early", 3, [])
    assert (page["next"], page["error"]) == ("", "")
    shown = browser.get("dead_letters", group=GROUP).text
    assert 'paid<mark class="replaced">&lt;U+202E&gt;</mark>' in shown
    assert "&lt;script&gt;" in shown
    assert "<script>" not in shown
    assert "given up before all retries were used up" in shown
    strange = browser.get("dead_letters", group="a\u202eb").text
    assert '<h1>Dead letters of a<mark class="replaced">&lt;U+202E&gt;</mark>b</h1>' in strange
    assert f"/message?id={first['messageId']}&amp;topic=orders" in shown
    rows = list(csv.DictReader(io.StringIO(browser.get("dead_letters.csv", group=GROUP).text)))
    assert [row["tag"] for row in rows] == ["paid\u202e", "'=cmd()"]
    assert f'href="/dead_letters?group={GROUP}"' in browser.get("group", group=GROUP).text


def test_a_message_without_retries_left_says_so(broker: Broker) -> None:
    broker.create_group(GROUP, retry_max_times=0)
    give_up(broker, [Message("orders", "x")], tries=1)
    with running_console(broker.url) as (console, browser):
        logged_in(console, browser)
        (letter,) = browser.get("dead_letters.json", group=GROUP).tree["letters"]
        assert letter["why"] == "tries"


def test_those_chosen_are_sent_again(given_up: Broker, opened: tuple[Console, Browser]) -> None:
    _, browser = opened
    listed = browser.get("dead_letters", group=GROUP).text
    boxes = re.findall(r'name="(letter\.[^"]+)"', listed)
    assert boxes == ["letter.broker-a:0:0", "letter.broker-a:0:1"]
    fields = {"group": GROUP, boxes[1]: "1"}
    preview = browser.get("resend", **fields)
    assert "1 go to orders" in preview.text
    assert re.findall(r'name="(letter\.[^"]+)"', preview.text) == [boxes[1]]
    assert bodies(given_up) == ["one", "two"], "a preview sends nothing"
    done = browser.post("resend", **fields)
    assert done.status == 303, done.text
    assert bodies(given_up) == ["one", "two", "two"]
    shown = browser.request("GET", done.headers["location"]).text
    assert "1 dead letters were sent again; it is change 1" in shown
    assert "sent again by change 1" in shown
    (change,) = browser.get("audit.json").tree["changes"]
    assert (change["what"], change["of"], change["person"]) == ("resend", {"group": GROUP}, "token")
    dead = browser.get("dead_letters.json", group=GROUP).tree["letters"][1]
    assert change["before"] == {"broker-a:0:1": dead["messageId"]}
    assert change["after"] == {"broker-a:0:1": given_up.messages("orders")[2].unique_key}


def test_all_of_a_page_are_sent_again(given_up: Broker, opened: tuple[Console, Browser]) -> None:
    _, browser = opened
    preview = browser.get("resend", group=GROUP, all="1")
    chosen = re.findall(r'name="(letter\.[^"]+)"', preview.text)
    assert len(chosen) == 2
    assert browser.post("resend", group=GROUP, **dict.fromkeys(chosen, "1")).status == 303
    assert bodies(given_up) == ["one", "two", "one", "two"]


@pytest.mark.parametrize(
    ("fields", "status", "words"),
    [
        ({}, 400, "Choose at least one"),
        ({"letter.broker-a:0:7": "1"}, 409, "not there any more"),
        ({"letter.broker-b:0:0": "1"}, 409, "broker-b:0:0"),
        ({"letter.broker-a:0": "1"}, 400, "no place of a message"),
        ({"letter.broker-a:0:-1": "1"}, 400, "no place of a message"),
        ({"letter.broker-a:0:" + "9" * 30: "1"}, 400, "no place of a message"),
        ({f"letter.broker-a:0:{n}": "1" for n in range(LETTERS_MAX + 1)}, 400, "At most 64"),
    ],
)
def test_a_wrong_choice_is_refused_in_words(
    given_up: Broker,
    opened: tuple[Console, Browser],
    fields: dict[str, str],
    status: int,
    words: str,
) -> None:
    _, browser = opened
    for answer in (
        browser.get("resend", group=GROUP, **fields),
        browser.post("resend", group=GROUP, **fields),
    ):
        assert answer.status == status
        assert words in answer.text
    assert bodies(given_up) == ["one", "two"]
    assert browser.get("audit.json").tree["changes"] == []


def test_a_list_goes_on_where_it_ended(broker: Broker) -> None:
    give_up(broker, [Message("orders", f"{n}") for n in range(LETTERS_MAX + 3)])
    with running_console(broker.url) as (console, browser):
        logged_in(console, browser)
        first = browser.get("dead_letters.json", group=GROUP).tree
        assert len(first["letters"]) == LETTERS_MAX
        second = browser.get("dead_letters.json", group=GROUP, **{"from": first["next"]}).tree
        assert [each["place"] for each in second["letters"]] == [
            f"broker-a:0:{LETTERS_MAX + n}" for n in range(3)
        ]
        assert second["next"] == ""
        # What the second page shows is what its button sends.
        preview = browser.get("resend", group=GROUP, all="1", **{"from": first["next"]}).text
        assert "3 go to orders" in preview
        later = browser.get("dead_letters.json", group=GROUP, since="2999-01-01").tree
        assert later["letters"] == []
        assert browser.get("dead_letters", group=GROUP, since="soon").status == 400
        assert browser.get("dead_letters", group=GROUP, **{"from": "x"}).status == 400


def test_a_failed_sending_again_is_in_the_audit_log(
    given_up: Broker, opened: tuple[Console, Browser]
) -> None:
    _, browser = opened
    fields = {"group": GROUP, "letter.broker-a:0:0": "1", "letter.broker-a:0:1": "1"}
    given_up.create_topic("orders", queues=1, perm=4)  # it may not be written
    assert browser.post("resend", **fields).status == 502
    (change,) = browser.get("audit.json").tree["changes"]
    assert change["after"] == {}
    assert len(change["before"]) == 2
    assert change["error"]


def test_a_broker_that_does_not_answer_is_named(
    given_up: Broker, opened: tuple[Console, Browser]
) -> None:
    _, browser = opened
    given_up.faults.refuse(RequestCode.PULL_MESSAGE)
    shown = browser.get("dead_letters", group=GROUP)
    assert shown.status == 200
    assert "Not all brokers answered" in shown.text
    assert "There is no dead letter" not in shown.text


def test_a_list_of_several_queues_has_each_letter_once(broker: Broker) -> None:
    broker.create_topic(f"%DLQ%{GROUP}", queues=3)
    count = LETTERS_MAX + 3
    give_up(broker, [Message("orders", f"{n}") for n in range(count)])
    with running_console(broker.url) as (console, browser):
        logged_in(console, browser)
        first = browser.get("dead_letters.json", group=GROUP).tree
        second = browser.get("dead_letters.json", group=GROUP, **{"from": first["next"]}).tree
        letters = [*first["letters"], *second["letters"]]
        assert len(first["letters"]) == LETTERS_MAX
        assert len({each["place"].rpartition(":")[0] for each in letters}) > 1
        assert len({each["place"] for each in letters}) == len(letters) == count
        assert [each["diedMs"] for each in letters] == sorted(each["diedMs"] for each in letters)


def test_masked_values_are_hidden_and_sent_again_as_they_are(given_up: Broker) -> None:
    masks = ("orders:properties.KEYS",)
    with running_console(given_up.url, masks=masks) as (console, browser):
        logged_in(console, browser)
        fields = {"group": GROUP, "letter.broker-a:0:0": "1"}
        for answer in (
            browser.get("dead_letters", group=GROUP),
            browser.get("dead_letters.csv", group=GROUP),
            browser.get("resend", **fields),
        ):
            assert "***" in answer.text
            assert "k-1" not in answer.text
        assert browser.post("resend", **fields).status == 303
        assert "k-1" not in browser.get("audit.json").text
    assert given_up.messages("orders")[2].keys == "k-1 <script>"
