"""Accounts change under load, with real processes: no send of an account that stays valid fails.

A producer sends all the time, while users and rules around it are created, changed and deleted. Its
own account is rotated as docs/access_control.md describes: a second user with the same rights, then
the clients, then the first user goes. A slave follows.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from trocket import AccessDeniedError, Credentials, Message, SendError
from trocket.blocking import Producer
from trocket.interop.accounts import (
    SUPER,
    Account,
    Grant,
    acl_2_keys,
    create_accounts,
    policies_of,
)
from trocket.interop.process import PeerError
from trocket.interop.trocket_peer import TrocketBroker, TrocketPair
from trocket.interop.wire import Answer, Keys, WireClient, wait_for_route
from trocket.remoting import fastjson
from trocket.remoting.request_codes import RequestCode as Code

pytestmark = pytest.mark.slow

TOPIC = "rotated"
TIMEOUT_S = 60.0
ROUNDS = 15
PUBLISH = (Grant(f"Topic:{TOPIC}", ("Pub", "Get")),)
FIRST = Account(Keys("publisher-one", "the-secret-of-one"), PUBLISH)
SECOND = Account(Keys("publisher-two", "the-secret-of-two"), PUBLISH)


class Load:
    """A producer in a thread: it sends until it is stopped, and reopens to change its account."""

    def __init__(self, namesrv: str, keys: Keys) -> None:
        self._namesrv = namesrv
        self._changed = threading.Condition()
        self._wanted = keys
        self._used: Keys | None = None
        self._is_over = False
        self.confirmed: list[str] = []
        self.failures: list[Exception] = []
        self._thread = threading.Thread(target=self._run, name="load")
        self._thread.start()

    def switch(self, keys: Keys) -> None:
        """Change the account, and wait until a send with the new one is confirmed."""
        with self._changed:
            self._wanted = keys
            self._wait(lambda: self._used == keys)

    def go_on(self, count: int) -> None:
        """Wait until so many more sends are confirmed."""
        with self._changed:
            until = len(self.confirmed) + count
            self._wait(lambda: len(self.confirmed) >= until)

    def _wait(self, ready) -> None:
        assert self._changed.wait_for(lambda: ready() or self.failures, TIMEOUT_S)
        assert not self.failures

    def stop(self) -> None:
        with self._changed:
            self._is_over = True
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._is_over:
                keys = self._wanted
                credentials = Credentials(keys.access_key, keys.secret_key)
                options = {"retry_times": 0, "credentials": credentials}
                with Producer(self._namesrv, group="load", **options) as producer:
                    while not self._is_over and keys is self._wanted:
                        body = str(len(self.confirmed))
                        producer.send(Message(TOPIC, body))
                        with self._changed:
                            self.confirmed.append(body)
                            self._used = keys
                            self._changed.notify_all()
        except Exception as error:  # noqa: BLE001 - the end of a thread; the test looks at it
            with self._changed:
                self.failures.append(error)
                self._changed.notify_all()


@pytest.fixture
def master(tmp_path: Path) -> Iterator[TrocketPair]:
    keys = {**acl_2_keys(SUPER.keys), "mappedFileSizeCommitLog": 16 << 20}
    pair = TrocketPair(tmp_path / "master", broker_keys=keys)
    try:
        pair.start()
        yield pair
        pair.stop_broker()
    finally:
        pair.close()


@pytest.fixture
def wire(master: TrocketPair) -> Iterator[WireClient]:
    with WireClient(master.broker_address, keys=SUPER.keys) as wire:
        wire.create_topic(TOPIC, queue_count=2)
        create_accounts(wire, [FIRST])
        wait_for_route(master.namesrv_address, TOPIC, timeout_s=TIMEOUT_S)
        yield wire


@pytest.fixture
def slave(master: TrocketPair, wire: WireClient, tmp_path: Path) -> Iterator[TrocketBroker]:
    keys = {**acl_2_keys(SUPER.keys), "mappedFileSizeCommitLog": 16 << 20}
    keys |= {"brokerRole": "SLAVE", "brokerId": 1, "namesrvAddr": master.namesrv_address}
    folder = tmp_path / "slave"
    broker = TrocketBroker(folder, store=folder / "store", broker_keys=keys)
    try:
        broker.start()
        await_code(broker, FIRST, 0)
        yield broker
        broker.stop_broker()
    finally:
        broker.close()


@pytest.fixture
def load(master: TrocketPair, wire: WireClient) -> Iterator[Load]:
    load = Load(master.namesrv_address, FIRST.keys)
    yield load
    load.stop()


def test_no_send_fails_while_accounts_change_and_one_is_rotated(master, slave, wire, load):
    load.go_on(20)
    for number in range(ROUNDS):
        churn(wire, number)
        change_unused_rights(wire, FIRST)
        load.go_on(10)
    create_accounts(wire, [SECOND])
    load.switch(SECOND.keys)
    delete(wire, FIRST)
    for number in range(ROUNDS):
        churn(wire, number)
        load.go_on(10)
    load.stop()
    assert load.failures == []
    assert stored(wire) >= len(load.confirmed) > 300
    assert refused(master, FIRST) == 16
    await_code(slave, SECOND, 0)
    await_code(slave, FIRST, 16)


def test_an_account_whose_password_changes_is_refused_until_the_client_has_it(master, wire, load):
    """Why a second user is used: between the update and the switch sends are refused."""
    load.go_on(5)
    body = {"username": FIRST.keys.access_key, "password": "another-secret"}
    ask(wire, Code.AUTH_UPDATE_USER, {"username": FIRST.keys.access_key}, body)
    with pytest.raises(AssertionError):
        load.go_on(100_000)
    (failure,) = load.failures
    assert isinstance(failure, SendError)
    assert isinstance(failure.attempts[0].error, AccessDeniedError)
    changed = replace(FIRST, keys=Keys(FIRST.keys.access_key, "another-secret"))
    again = Load(master.namesrv_address, changed.keys)
    try:
        again.go_on(20)
    finally:
        again.stop()


def churn(wire: WireClient, number: int) -> None:
    """Create, change and delete a user with rights for the same topic."""
    other = Account(Keys(f"other-{number}", "the-secret-of-other"), PUBLISH)
    create_accounts(wire, [other])
    change_unused_rights(wire, other)
    name = other.keys.access_key
    ask(wire, Code.AUTH_UPDATE_USER, {"username": name}, {"username": name, "password": "a-new-1"})
    delete(wire, other)


def change_unused_rights(wire: WireClient, account: Account) -> None:
    """Add a rule for another topic to an account."""
    subject = f"User:{account.keys.access_key}"
    more = replace(account, grants=(Grant("Topic:another", ("Pub",)),))
    body = {"subject": subject, "policies": policies_of(more)}
    ask(wire, Code.AUTH_UPDATE_ACL, {"subject": subject}, body)


def delete(wire: WireClient, account: Account) -> None:
    name = account.keys.access_key
    ask(wire, Code.AUTH_DELETE_ACL, {"subject": f"User:{name}"})
    ask(wire, Code.AUTH_DELETE_USER, {"username": name})


def ask(wire: WireClient, code: Code, fields: dict[str, str], body: object = None) -> Answer:
    return wire.call(code, fields, b"" if body is None else fastjson.dumps(body)).checked()


def stored(wire: WireClient) -> int:
    """Messages in the topic."""
    return sum(wire.max_offset(TOPIC, queue) for queue in range(2))


def refused(broker: TrocketBroker, account: Account) -> int:
    """The code that a request of an account gets."""
    with WireClient(broker.broker_address, keys=account.keys) as wire:
        return wire.call(Code.GET_MAX_OFFSET, {"topic": TOPIC, "queueId": 0}).code


def await_code(broker: TrocketBroker, account: Account, code: int) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    never = threading.Event()
    while (got := refused(broker, account)) != code:
        if time.monotonic() > deadline_s:
            raise PeerError(f"{account.keys.access_key} is answered {got} instead of {code}")
        never.wait(0.1)
