"""Log-in to the console with accounts of both generations of access control."""

from __future__ import annotations

from collections.abc import Iterator

import anyio
import pytest

from tests.console.running import Browser, running_console
from tests.kit.waiting import wait_until
from trocket.client import Admin, Credentials, Message, Producer
from trocket.common.topic_names import TOOLS_GROUP
from trocket.interop.accounts import (
    SUPER,
    Account,
    Accounts,
    Generation,
    Grant,
    open_with_accounts,
    start_with_accounts,
)
from trocket.interop.peer import Cluster
from trocket.interop.wire import Keys

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("java")]

READER = Account(
    Keys("the-reader", "secret-of-the-reader"),
    (Grant("Topic:orders", ("Sub", "Get")), Grant(f"Group:{TOOLS_GROUP}", ("Sub",))),
)
DEADLINE_S = 90.0


PEERS = [
    ("apache-4.9.7", Generation.ACL_1),
    ("apache-5.5.0", Generation.ACL_2),
    ("trocket", Generation.ACL_1),
    ("trocket", Generation.ACL_2),
]


@pytest.fixture(scope="module", params=PEERS, ids=" ".join)
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """A broker with two topics, and an account that may read one."""
    peer, generation = request.param
    accounts = Accounts(generation, (READER,))
    folder = tmp_path_factory.mktemp("cluster")
    opened = open_with_accounts(peer, folder, accounts, {})

    async def prepare() -> None:
        url, credentials = opened.namesrv_address, Credentials(*_pair(SUPER.keys))
        with anyio.fail_after(DEADLINE_S):
            async with Admin(url, credentials=credentials) as admin:
                # 5.5.0 says that it is up before the name server knows it.
                while not (await admin.cluster()).brokers:  # noqa: ASYNC110 - only Apache knows
                    await anyio.sleep(0.1)
                async with Producer(admin.client) as producer:
                    for topic in ("orders", "salaries"):
                        await admin.create_topic(topic, queues=1)
                        await producer.send(Message(topic, f"a message of {topic}"))

    try:
        start_with_accounts(opened, accounts)
        anyio.run(prepare)
        yield opened
    finally:
        opened.close()


def _pair(keys: Keys) -> tuple[str, str]:
    return keys.access_key, keys.secret_key


def log_in(port: int, name: str, secret: str) -> tuple[Browser, int]:
    browser = Browser(port)
    return browser, browser.post("login", name=name, password=secret).status


def test_an_account_sees_its_topic_and_no_other(cluster: Cluster) -> None:
    with running_console(cluster.namesrv_address, cluster_accounts=True) as (console, browser):
        for name, secret in (
            (READER.keys.access_key, "another-secret"),
            ("unknown-key", READER.keys.secret_key),
        ):
            assert log_in(browser.port, name, secret)[1] == 403
        reader, status = log_in(browser.port, *_pair(READER.keys))
        assert status == 303
        found = reader.get("messages", topic="orders")
        assert "a message of orders" in found.text
        refused = reader.get("messages", topic="salaries")
        assert "a message of salaries" not in refused.text
        assert "refused" in refused.text
        answer = reader.post("send", topic="salaries", body="x")
        assert answer.status == 403
        assert "The cluster does not allow this" in answer.text
        boss, status = log_in(browser.port, *_pair(SUPER.keys))
        assert status == 303
        assert "a message of salaries" in boss.get("messages", topic="salaries").text
        for each in (reader, boss):
            assert each.post("logout").status == 303
        accounts = console.accounts
        assert accounts is not None
        wait_until(lambda: len(accounts) == 0, "the end of the clients")
