"""Changes in the console on Apache's brokers, 5.5.0 and 4.9.7."""

from __future__ import annotations

import re
from collections.abc import Iterator

import anyio
import pytest

from tests.console.running import Browser, logged_in, running_console
from tests.kit.waiting import wait_until
from trocket.client import Admin, Message, Producer
from trocket.interop.apache import ApacheCluster
from trocket.remoting.headers import ConsumerSendMsgBackRequestHeader
from trocket.remoting.request_codes import RequestCode

from .conftest import QUICK_BROKER

pytestmark = [pytest.mark.interop, pytest.mark.slow]

DEADLINE_S = 60.0
KEYS = {
    **QUICK_BROKER,
    "recallMessageEnable": True,
}


@pytest.fixture(scope="module")
def broker_keys() -> dict[str, object]:
    return KEYS


@pytest.fixture(scope="module")
def is_5(version: str) -> bool:
    """Whether the broker has attributes and timer messages."""
    return version == "5.5.0"


@pytest.fixture(scope="module")
def browser(cluster: ApacheCluster) -> Iterator[Browser]:
    with running_console(cluster.namesrv_address) as (console, browser):
        yield logged_in(console, browser)


def change(browser: Browser, name: str, **fields: str) -> dict[str, object]:
    """Make a change after its preview; gives its line of the audit log."""
    preview = browser.get(name, **fields)
    assert preview.status == 200, preview.text
    done = browser.post(name, **fields)
    assert done.status == 303, done.text
    return browser.get("audit.json").tree["changes"][0]


def create_topic(browser: Browser, topic: str, **fields: str) -> dict[str, object]:
    return change(browser, "create_topic", topic=topic, queues="1", **fields)


def test_a_topic_is_created_changed_and_deleted(is_5: bool, browser: Browser) -> None:
    attributes = "cleanup.policy=DELETE message.type=FIFO" if is_5 else ""
    line = create_topic(browser, "T1", attributes=attributes)
    (made,) = line["after"].values()  # type: ignore[attr-defined]
    assert (made["queues"], made["perm"]) == (1, "RW")
    # The policy cannot be changed, so it must not be asked for once more.
    kept = "cleanup.policy=DELETE" if is_5 else ""
    line = change(browser, "change_topic", topic="T1", queues="2", readQueues="3", attributes=kept)
    (made,) = line["after"].values()  # type: ignore[attr-defined]
    assert (made["queues"], made["readQueues"]) == (2, 3)
    expected = {"cleanup.policy": "DELETE"} if is_5 else {}
    assert made["attributes"] == expected
    change(browser, "delete_topic", topic="T1", confirm="T1")
    assert browser.get("topic", topic="T1").status == 502


def test_a_group_is_created_changed_and_deleted(is_5: bool, browser: Browser) -> None:
    attributes = "priority.factor=5" if is_5 else ""
    fields = {"retryMaxTimes": "3", "attributes": attributes}
    line = change(browser, "create_group", group="g1", **fields)
    (made,) = line["after"].values()  # type: ignore[attr-defined]
    assert made["retryMaxTimes"] == 3
    line = change(browser, "change_group", group="g1", consumeEnable="false")
    (made,) = line["after"].values()  # type: ignore[attr-defined]
    assert (made["retryMaxTimes"], made["consumeEnable"]) == (3, False)
    assert made["attributes"] == ({"priority.factor": "5"} if is_5 else {})
    if is_5:
        line = change(browser, "change_group", group="g1", consumeEnable="true", attributes="")
        (made,) = line["after"].values()  # type: ignore[attr-defined]
        assert (made["consumeEnable"], made["attributes"]) == (True, {})
    change(browser, "delete_group", group="g1", confirm="g1", withTopics="1")
    assert "g1" not in [each["group"] for each in browser.get("groups.json").tree["groups"]]


def test_dead_letters_are_sent_again(cluster: ApacheCluster, browser: Browser) -> None:
    create_topic(browser, "T2")
    change(browser, "create_group", group="g2", retryMaxTimes="3")

    async def give_up() -> None:
        async with Admin(cluster.namesrv_address) as admin, Producer(admin.client) as producer:
            sent = await producer.send(Message("T2", "x", tags="paid"))
            stored = await admin.message(sent.offset_message_id)
            header = ConsumerSendMsgBackRequestHeader(
                offset=stored.physical_offset, group="g2", delay_level=-1, origin_topic="T2"
            )
            address = (await admin.cluster()).brokers[0].address
            await admin.client.request(address, RequestCode.CONSUMER_SEND_MSG_BACK, header)

    anyio.run(give_up)

    def boxes() -> list[str]:
        return re.findall(r'name="(letter\.[^"]+)"', browser.get("dead_letters", group="g2").text)

    wait_until(boxes, timeout_s=DEADLINE_S)
    (letter,) = browser.get("dead_letters.json", group="g2").tree["letters"]
    assert (letter["topic"], letter["tag"], letter["why"]) == ("T2", "paid", "early")
    line = change(browser, "resend", group="g2", **{boxes()[0]: "1"})
    assert list(line["after"]) == [letter["place"]]  # type: ignore[call-overload]
    queues = browser.get("topic.json", topic="T2").tree["queues"]
    assert sum(each["end"] for each in queues) == 2


def test_delayed_messages_are_listed_and_recalled(
    cluster: ApacheCluster, is_5: bool, browser: Browser
) -> None:
    create_topic(browser, "T3", attributes="message.type=DELAY" if is_5 else "")

    async def send() -> None:
        async with Admin(cluster.namesrv_address) as admin, Producer(admin.client) as producer:
            await producer.send(Message("T3", "level", delay_level=16))
            if is_5:
                await producer.send(Message("T3", "timer", delay_s=86_400))

    anyio.run(send)
    count = 2 if is_5 else 1

    def listed() -> list[dict[str, object]]:
        return browser.get("delayed.json", topic="T3").tree["messages"]

    wait_until(lambda: len(listed()) == count, timeout_s=DEADLINE_S)
    assert listed()[0]["recallHandle"] == ""
    if is_5:
        change(browser, "recall", topic="T3", place=str(listed()[1]["place"]))
        wait_until(lambda: listed()[1]["isRecalled"], timeout_s=DEADLINE_S)
