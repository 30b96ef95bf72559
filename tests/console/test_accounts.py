"""Log-in with accounts of the cluster, whose access control decides topic by topic."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anyio
import pytest

from trocket.cli.main import main
from trocket.client import Admin, Message, PolicyEntryInfo, Producer
from trocket.common.topic_names import TOOLS_GROUP
from trocket.console.console import Console
from trocket.console.sessions import TRIES_MAX
from trocket.remoting.signature import Credentials
from trocket.testing import Broker

from ..kit.waiting import wait_until
from .running import Browser, running_console

SECURED: dict[str, Any] = {
    "authenticationEnabled": True,
    "authorizationEnabled": True,
    "initAuthenticationUser": '{"username":"root","password":"rootpassword"}',
    "innerClientAuthenticationCredentials": '{"accessKey":"inner","secretKey":"innerpassword"}',
}
ROOT = Credentials("root", "rootpassword")
READER = Credentials("reader", "reader-secret")


def may(resource: str, *actions: str) -> PolicyEntryInfo:
    return PolicyEntryInfo(resource=resource, actions=list(actions), decision="Allow")


@pytest.fixture(scope="module")
def secured() -> Iterator[Broker]:
    """A broker with two topics, and an account that may read one."""

    async def prepare() -> None:
        async with Admin(broker.url, credentials=ROOT) as admin, Producer(admin.client) as producer:
            await admin.create_user(READER.access_key, READER.secret_key)
            # Pages read messages with the group that brokers have for tools.
            rights = [may("Topic:orders", "Sub", "Get"), may(f"Group:{TOOLS_GROUP}", "Sub")]
            await admin.set_acl("reader", rights)
            for topic in ("orders", "salaries"):
                await producer.send(Message(topic, f"a message of {topic}", keys=topic))

    with Broker(config=SECURED) as broker:
        broker.create_topic("orders", queues=1)
        broker.create_topic("salaries", queues=1)
        anyio.run(prepare)
        yield broker


@pytest.fixture
def served(secured: Broker) -> Iterator[tuple[Console, Browser]]:
    with running_console(secured.url, cluster_accounts=True) as running:
        yield running


def logged_in(port: int, account: Credentials) -> Browser:
    browser = Browser(port)
    answer = browser.post("login", name=account.access_key, password=account.secret_key)
    assert answer.status == 303, answer.text
    return browser


def accounts(console: Console) -> int:
    assert console.accounts is not None
    return len(console.accounts)


def test_each_person_sees_what_the_account_may_see(served: tuple[Console, Browser]) -> None:
    console, browser = served
    assert console.logins.token == ""
    root = logged_in(browser.port, ROOT)
    page = root.get("topics")
    assert "salaries" in page.text
    assert "root: as the cluster allows" in page.text
    reader = logged_in(browser.port, READER)
    assert "a message of orders" in reader.get("messages", topic="orders").text
    for name in ("overview", "topics", "groups", "brokers", "clients", "feed", "audit"):
        assert "salaries" not in reader.get(name).text, name
        assert "salaries" not in reader.get(f"{name}.json").text, name
    for name in ("overview", "topics", "groups", "brokers", "feed"):
        assert "has no permission to access" in reader.get(name).text, name
    refused = reader.get("messages", topic="salaries")
    assert "a message of salaries" not in refused.text
    assert "permission" in refused.text


def test_a_change_is_refused_in_words_where_the_account_may_not_make_it(
    secured: Broker, served: tuple[Console, Browser]
) -> None:
    _, browser = served
    reader = logged_in(browser.port, READER)
    answer = reader.post("send", topic="salaries", body="x")
    assert answer.status == 403
    assert "The cluster does not allow this" in answer.text
    assert len(secured.messages("salaries")) == 1
    root = logged_in(browser.port, ROOT)
    assert root.post("send", topic="salaries", body="x").status == 303
    assert "salaries" in root.get("audit").text
    assert "root" not in reader.get("audit.json").text


@pytest.mark.parametrize(
    ("name", "secret"),
    [("reader", "wrong"), ("nobody", "reader-secret"), ("reader", ""), ("", "x"), ("a\x00b", "é")],
)
def test_a_wrong_secret_is_refused_and_leaves_nothing_open(
    served: tuple[Console, Browser], name: str, secret: str
) -> None:
    console, browser = served
    answer = browser.post("login", name=name, password=secret)
    assert answer.status == 403
    assert "That is wrong." in answer.text
    assert browser.get("topics").status == 303
    assert accounts(console) == 0


def test_tries_are_limited(served: tuple[Console, Browser]) -> None:
    _, browser = served
    for _ in range(TRIES_MAX):
        assert browser.post("login", name="reader", password="guess").status == 403
    answer = browser.post("login", name="reader", password=READER.secret_key)
    assert answer.status == 429


def test_log_out_closes_the_client(secured: Broker, served: tuple[Console, Browser]) -> None:
    console, browser = served
    reader = logged_in(browser.port, READER)
    other = logged_in(browser.port, READER)
    assert accounts(console) == 2
    kept = dict(reader.cookies)
    assert reader.post("logout").status == 303
    wait_until(lambda: accounts(console) == 1, "the end of the client")
    reader.cookies = kept
    assert reader.get("topics").status == 303
    assert other.get("messages", topic="orders").status == 200


def test_only_so_many_are_logged_in_and_the_oldest_makes_room(
    secured: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trocket.console.login.ACCOUNTS_MAX", 2)
    with running_console(secured.url, cluster_accounts=True) as (console, browser):
        people = [logged_in(browser.port, READER) for _ in range(3)]
        wait_until(lambda: accounts(console) == 2, "two clients")
        assert [each.get("topics").status for each in people] == [303, 200, 200]


def test_a_cluster_that_takes_any_secret_lets_no_one_in(stocked: Broker) -> None:
    with running_console(stocked.url, cluster_accounts=True) as (console, browser):
        answer = browser.post("login", name="any", password="thing")
        assert answer.status == 403
        assert "take any secret" in answer.text
        assert accounts(console) == 0


def test_a_cluster_that_does_not_answer_is_said() -> None:
    with Broker() as broker, running_console(broker.url, cluster_accounts=True) as (_, browser):
        broker.close()
        answer = browser.post("login", name="any", password="thing")
        assert answer.status == 502


@pytest.mark.parametrize("more", [["--passwords", "file"], ["--trust-header", "X-User"]])
def test_the_ways_to_log_in_exclude_each_other(
    capsys: pytest.CaptureFixture[str], more: list[str]
) -> None:
    proxy = ["--trust-proxy", "127.0.0.1"] if more[0] == "--trust-header" else []
    assert main(["console", "--cluster-accounts", *more, *proxy]) == 2
    assert "--cluster-accounts" in capsys.readouterr().err
