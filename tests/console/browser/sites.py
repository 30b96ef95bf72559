"""A console of a cluster, ours or Apache's, with something to see on every page."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from anyio.from_thread import start_blocking_portal

from tests.kit.lives import until
from tests.kit.waiting import wait_until
from trocket.blocking import PushConsumer
from trocket.client import (
    Admin,
    Message,
    Producer,
    ReceivedMessage,
    TransactionProducer,
    TransactionState,
)
from trocket.console.clock import Clock
from trocket.console.login import COOKIE
from trocket.operations.transactions import transactions
from trocket.remoting.headers import ConsumerSendMsgBackRequestHeader
from trocket.remoting.request_codes import RequestCode

from ..running import logged_in, running_console
from ..test_pages import QUERIES
from .windows import Site

CONFIG = {
    "recallMessageEnable": True,
    "transactionTimeOut": 1_000,
    "transactionCheckInterval": 1_000,
    "transactionCheckMax": 1,
}
"""Keys of broker.conf without which a page has nothing to show, or not soon; 4.x ignores the first.
"""
LETTERS = TIMERS = GIVEN_UP = 3
"""One for the pages, and one for each test that takes one away."""

DEADLINE_S = 60.0


async def _fill(url: str, *, has_timers: bool) -> None:
    async with Admin(url) as admin, Producer(admin.client) as producer:
        await admin.create_topic("orders", 4)
        attributes = {"message.type": "DELAY"} if has_timers else {}
        await admin.create_topic("later", 1, attributes=attributes)
        for group in ("billing", "audit"):
            await admin.create_group(group)
        sent = [
            await producer.send(
                Message("orders", b'{"id": %d}' % number, tags="refund", keys=str(number))
            )
            for number in range(40)
        ]
        address = (await admin.cluster()).brokers[0].address
        assert address is not None
        for each in sent[:LETTERS]:
            stored = await admin.message(each.offset_message_id)
            header = ConsumerSendMsgBackRequestHeader(
                offset=stored.physical_offset, group="billing", delay_level=-1,
                origin_topic="orders",
            )  # fmt: skip
            await admin.client.request(address, RequestCode.CONSUMER_SEND_MSG_BACK, header)
        await producer.send(Message("later", "level", delay_level=18))
        for number in range(TIMERS if has_timers else 0):
            await producer.send(Message("later", str(number), delay_s=86_400))
        await admin.reset_offset("audit", "orders", to="begin")
        await _leave_transactions(admin)


def _undecided(message: ReceivedMessage) -> TransactionState:
    return TransactionState.UNKNOWN


async def _leave_transactions(admin: Admin) -> None:
    """Send half messages that are given up, and one whose transaction is open at the end."""
    async with TransactionProducer(admin.client, group="shop", check=_undecided) as producer:
        for number in range(GIVEN_UP):
            await _leave_open(producer, f"given-up-{number}")

        async def are_given_up() -> bool:
            return len((await transactions(admin)).given_up) == GIVEN_UP

        await until(are_given_up, deadline_s=DEADLINE_S)
        await _leave_open(producer, "open")


async def _leave_open(producer: TransactionProducer, key: str) -> None:
    """Send a half message whose transaction nothing ends."""
    with contextlib.suppress(LookupError):
        async with producer.transaction(Message("orders", "x", keys=key)):
            raise LookupError


@contextmanager
def open_site(url: str, *, has_timers: bool = True, clock: Clock | None = None) -> Iterator[Site]:
    """A console of a cluster whose group has two members that disagree, and was reset.

    Args:
      url: of a cluster with one broker.
      has_timers: messages can be delayed by seconds, and recalled: not before 5.0.
      clock: of a broker in this process.
    """
    # Playwright has an event loop in this thread.
    with start_blocking_portal() as portal:
        portal.call(partial(_fill, url, has_timers=has_timers))
    with (
        running_console(url, clock=clock) as (console, browser),
        PushConsumer(url, group="billing", subscriptions={"orders": "refund"}),
        PushConsumer(url, group="billing", subscriptions={"orders": "paid"}),
    ):
        logged_in(console, browser)
        reset = {"group": "audit", "topic": "orders", "to": "begin"}
        assert browser.post("reset", **reset).status == 303

        def members() -> list[dict[str, str]]:
            found: list[dict[str, str]] = browser.get("group.json", group="billing").tree["members"]
            return found

        def letters() -> list[object]:
            found: list[object] = browser.get("dead_letters.json", group="billing").tree["letters"]
            return found

        def delayed() -> list[dict[str, str]]:
            found: list[dict[str, str]] = browser.get("delayed.json", topic="later").tree[
                "messages"
            ]
            return found

        def given_up() -> str:
            rows = browser.get("transactions.json").tree["givenUp"]
            return str(rows[-1]["half"]["place"])

        wait_until(lambda: len(members()) == 2, "two members")
        wait_until(lambda: browser.get("overview.json").tree["findings"], "findings")
        wait_until(lambda: len(letters()) == LETTERS, "dead letters")
        wait_until(lambda: len(delayed()) == 1 + (TIMERS if has_timers else 0), "delayed messages")
        found = browser.get("messages.json", topic="orders").tree["messages"]
        yield Site(
            f"http://127.0.0.1:{browser.port}",
            url,
            console.logins.token,
            browser.cookies[COOKIE],
            {
                **QUERIES,
                "broker": {"name": browser.get("brokers.json").tree["registered"][0]["name"]},
                "member": {"group": "billing", "client": members()[0]["clientId"]},
                "message": {"topic": "orders", "id": found[0]["messageId"]},
                "send": {"topic": "orders"},
                "resend": {"group": "billing", "all": "1"},
                "recall": {"topic": "later", "place": delayed()[-1]["place"]},
                "resume_check": {"place": given_up()},
                "create_topic": {"topic": "new-orders"},
                "create_group": {"group": "new-billing"},
                "change_topic": {"topic": "orders"},
                "delete_topic": {"topic": "orders"},
                "change_group": {"group": "billing"},
                "delete_group": {"group": "billing"},
                "reset": reset,
                "undo": {"number": "1"},
            },
        )
