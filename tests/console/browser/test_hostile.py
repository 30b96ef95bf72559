"""Strings that a broker took from clients as they are, on the pages in Chromium."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from urllib.parse import urlencode

import anyio
import pytest
from anyio.from_thread import start_blocking_portal
from playwright.sync_api import Browser as Chromium
from playwright.sync_api import expect

from tests.kit.waiting import wait_until
from trocket.client import Admin
from trocket.client.core.trace_records import PubRecord, TracedType, encode_record
from trocket.common.message_properties import properties_to_string
from trocket.console.login import COOKIE
from trocket.remoting.bodies.heartbeat import (
    ConsumerData,
    HeartbeatData,
    ProducerData,
    SubscriptionData,
)
from trocket.remoting.headers import ConsumerSendMsgBackRequestHeader, SendMessageRequestHeader
from trocket.remoting.request_codes import RequestCode
from trocket.testing import Broker

from ..running import logged_in, running_console
from .windows import NARROW, Site, window

pytestmark = pytest.mark.slow

SCRIPT = "<script>alert(1)</script>"
STRINGS = {
    "script": SCRIPT,
    "link": "javascript:alert(1)",
    "attribute": "\"'><img src=x onerror=alert(1)>",
    "turned": "gpj\u202eexe",
    "nul": "a\0b",
    "no UTF-8": "a\ufffdb",
    "long": "x" * 30_000,
}
"""A property has 32,767 bytes at most; a body has the mebibyte."""
ID = "7F0000010A3C18B4AAC21B7D5C5D{:04X}"
GROUP = "billing"
TOPIC = "orders"


async def _send(
    admin: Admin, address: str, topic: str, body: bytes, properties: dict[str, str]
) -> None:
    header = SendMessageRequestHeader(
        producer_group=SCRIPT, topic=topic, default_topic="TBW102", default_topic_queue_nums=4,
        queue_id=0, sys_flag=0, born_timestamp=1, flag=0,
        properties=properties_to_string(properties),
    )  # fmt: skip
    await admin.client.request(address, RequestCode.SEND_MESSAGE, header, body)


async def _fill(broker: Broker) -> None:
    async with Admin(broker.url) as admin:
        (found,) = (await admin.cluster()).brokers
        assert found.address is not None
        for number, text in enumerate(STRINGS.values()):
            message_id = ID.format(number)
            properties = {"UNIQ_KEY": message_id, "TAGS": text, "KEYS": text}
            if len(text) < 100:
                properties |= {f"p{text}": text, "REAL": text}
            else:
                properties = {"UNIQ_KEY": message_id, "TAGS": text}
            body = b"x" * (1 << 20) if text is STRINGS["long"] else text.encode()
            await _send(admin, found.address, TOPIC, body, properties)
            record = PubRecord(
                time_ms=1, region=text[:99], group=text[:99], topic=TOPIC, message_id=message_id,
                tags=text[:99], keys=text[:99], store_host=text[:99], body_length=1, cost_ms=1,
                kind=TracedType.NORMAL, offset_message_id="", is_success=True,
            )  # fmt: skip
            raw = encode_record(record).encode()
            await _send(admin, found.address, "RMQ_SYS_TRACE_TOPIC", raw, {"KEYS": message_id})
        for each in broker.messages(TOPIC):
            header = ConsumerSendMsgBackRequestHeader(
                offset=each.physical_offset, group=GROUP, delay_level=-1
            )
            await admin.client.request(found.address, RequestCode.CONSUMER_SEND_MSG_BACK, header)


async def _beat(broker: Broker, text: str) -> None:
    """Be a member and a producer with such names until it is cancelled."""
    async with Admin(broker.url) as admin:
        (found,) = (await admin.cluster()).brokers
        assert found.address is not None
        beat = HeartbeatData(
            client_id=f"client{text}"[:1_000],
            producer_data_set=[ProducerData(group_name=f"makers{text}"[:200])],
            consumer_data_set=[
                ConsumerData(
                    group_name=GROUP,
                    subscription_data_set=[
                        SubscriptionData(topic=TOPIC, sub_string=text, tags_set={text})
                    ],
                )
            ],
        )
        await admin.client.request(found.address, RequestCode.HEART_BEAT, None, beat.to_body())
        await anyio.sleep_forever()


@pytest.fixture(scope="module")
def site(shown: Chromium) -> Iterator[Site]:
    """A console of a broker whose clients have such names, and sent such messages."""
    with ExitStack() as stack:
        broker = stack.enter_context(Broker(config={"traceTopicEnable": True}))
        broker.create_topic(TOPIC, queues=1)
        broker.create_group(GROUP)
        portal = stack.enter_context(start_blocking_portal("trio"))
        portal.call(_fill, broker)
        for text in STRINGS.values():
            stack.callback(portal.start_task_soon(_beat, broker, text).cancel)
        console, browser = stack.enter_context(running_console(broker.url))
        logged_in(console, browser)

        def members() -> list[object]:
            found: list[object] = browser.get("group.json", group=GROUP).tree["members"]
            return found

        wait_until(lambda: len(members()) == len(STRINGS), "members")
        letters = browser.get("dead_letters.json", group=GROUP).tree["letters"]
        assert len(letters) == len(STRINGS)
        yield Site(
            f"http://127.0.0.1:{browser.port}", broker.url, console.logins.token,
            browser.cookies[COOKIE], {},
        )  # fmt: skip


PAGES = {
    "messages": {"topic": TOPIC},
    "group": {"group": GROUP},
    "clients": {},
    "dead_letters": {"group": GROUP},
    "resend": {"group": GROUP, "all": "1"},
    "topic": {"topic": TOPIC},
    "overview": {},
}
MARKS = {"turned": "gpj<U+202E>exe", "nul": "a␀b"}


def seen(kind: str) -> str:
    return MARKS.get(kind, STRINGS[kind][:190])


@pytest.mark.parametrize("name", PAGES)
def test_what_clients_wrote_is_shown_as_text(shown: Chromium, site: Site, name: str) -> None:
    with window(shown, site, viewport=NARROW) as opened:
        dialogs: list[str] = []
        opened.page.on("dialog", lambda dialog: dialogs.append(dialog.message))
        answer = opened.page.goto(f"/{name}?{urlencode(PAGES[name])}", wait_until="load")
        assert answer is not None
        assert answer.status == 200
        text = opened.page.locator("main").text_content() or ""
        if name not in ("topic", "overview"):
            for kind in STRINGS:
                assert seen(kind) in text, kind
        assert not opened.is_too_wide
        assert (opened.faults, dialogs) == ([], [])


@pytest.mark.parametrize("number", range(len(STRINGS)), ids=STRINGS)
def test_a_message_is_shown_as_text(shown: Chromium, site: Site, number: int) -> None:
    kind = list(STRINGS)[number]
    with window(shown, site, viewport=NARROW) as opened:
        for view in ("", "text", "hex", "json"):
            query = {"id": ID.format(number), "topic": TOPIC} | ({"as": view} if view else {})
            answer = opened.page.goto(f"/message?{urlencode(query)}", wait_until="load")
            assert answer is not None
            assert answer.status == 200
            text = opened.page.locator("main").text_content() or ""
            assert seen(kind) in text
            assert GROUP in text
            assert not opened.is_too_wide, view
        opened.page.click("main .tools a:has-text('Send')")
        expect(opened.page.locator("textarea[name=body]")).to_be_visible()
        assert not opened.is_too_wide
        assert opened.faults == []
