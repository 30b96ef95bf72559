"""Saves and copies of large tables of accounts: in steps, and only what changed is encoded."""

from __future__ import annotations

import json

import pytest
import trio

from trocket.auth import accounts as module
from trocket.auth.accounts import ACCOUNTS_FILE, Accounts
from trocket.auth.conversion import acl_info, user_info
from trocket.auth.model import Acl, Action, Policy, PolicyEntry, PolicyType, Resource, User
from trocket.common.steps import Steps, at_once, in_steps
from trocket.disk.os_disk import OsDisk
from trocket.disk.state_files import StateFiles
from trocket.disk.until_saved import until_saved
from trocket.remoting.bodies import (
    AccountsInfo,
    AclInfo,
    UserInfo,
    acls_one_by_one,
    users_in_steps,
)
from trocket.remoting.errors import RemoteProtocolError

MANY = 2_000


def acl_for(user: User, *resources: str) -> Acl:
    entries = []
    for text in resources:
        resource = Resource.parse(text)
        assert resource is not None
        entries.append(PolicyEntry(resource, (Action.PUB,)))
    return Acl(user.subject, (Policy(PolicyType.CUSTOM, tuple(entries)),))


def fill(table: Accounts, count: int = MANY) -> None:
    with table.file.saving_once():
        for number in range(count):
            user = User(f"u{number:05}", f"secret-of-{number}")
            table.create_user(user)
            table.put_acl(acl_for(user, f"Topic:t{number}*", f"Topic:x{number}"))


def info_of(table: Accounts) -> AccountsInfo:
    return AccountsInfo.from_body(table.snapshot())


def copy(master: Accounts, slave: Accounts) -> Steps[bool]:
    info = info_of(master)
    return slave.replace(info.users, info.acls)


def count_steps(steps: Steps[object]) -> int:
    count = 1
    while True:
        try:
            next(steps)
        except StopIteration:
            return count
        count += 1


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """The names of the users and subjects that were encoded."""
    names: list[str | None] = []

    def user(value: User) -> UserInfo:
        names.append(value.username)
        return user_info(value)

    def acl(value: Acl) -> AclInfo:
        names.append(value.subject)
        return acl_info(value)

    monkeypatch.setattr(module, "user_info", user)
    monkeypatch.setattr(module, "acl_info", acl)
    return names


def test_a_save_encodes_what_changed(encoded: list[str | None]) -> None:
    texts: list[bytes] = []
    table = Accounts(lambda name, text: texts.append(text))
    fill(table, 20)
    assert len(encoded) == 40
    encoded.clear()
    table.update_user("u00007", password="another")
    table.put_acl(acl_for(table.users["u00008"], "Topic:more"))
    table.delete_user("u00009")
    assert encoded == ["u00007", "User:u00008"]
    saved = json.loads(texts[-1])
    names = [f"u{number:05}" for number in range(20) if number != 9]
    assert [user["username"] for user in saved["users"]] == names
    assert saved["users"][7]["password"] == "another"
    again = Accounts()
    again.decode(texts[-1])
    assert (again.users, again.acls) == (table.users, table.acls)
    # The name of a deleted user may be another's.
    table.create_user(User("u00009", "new"))
    assert json.loads(texts[-1])["users"][9] == {
        "username": "u00009",
        "password": "new",
        "userType": "Normal",
        "userStatus": "enable",
    }


@pytest.mark.slow
async def test_a_change_during_a_save_is_answered_after_the_next_one(tmp_path) -> None:
    files = StateFiles(OsDisk(), str(tmp_path), secret=(ACCOUNTS_FILE,))
    table = Accounts(files.save, files.later)
    fill(table)
    begun = table.file.begin_save()
    next(begun)
    table.delete_user("u00000")
    table.create_user(User("one-more", "secret"))
    text = at_once(begun)
    before = AccountsInfo.from_body(text)
    # The text is that of one moment: no list without its user.
    assert len(before.users) == len(before.acls) == MANY
    table.file.end_save(None)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(files.run, (table.file,))
        await until_saved(table.file)
        nursery.cancel_scope.cancel()
    again = Accounts()
    StateFiles(OsDisk(), str(tmp_path)).load(ACCOUNTS_FILE, again.decode)
    assert (again.users, again.acls) == (table.users, table.acls)


def test_a_save_of_many_accounts_has_steps() -> None:
    table = Accounts(lambda name, text: None)
    with table.file.saving_once():
        for number in range(MANY):
            table.create_user(User(f"u{number}", "secret"))
        assert count_steps(table.file.begin_save()) > 10


@pytest.mark.slow
async def test_requests_see_nothing_of_a_copy_or_all_of_it() -> None:
    master, slave = Accounts(), Accounts()
    fill(master)
    slave.ensure_super("inner", "secret-of-inner")
    slave.create_user(User("gone", "secret"))
    seen = []
    steps = copy(master, slave)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            is_changed = end.value
            break
        seen.append(len(slave.users))
    assert is_changed
    assert len(seen) > 5
    assert set(seen) == {2}
    assert set(slave.users) == {"inner", *master.users}
    assert slave.acls == master.acls


async def test_a_copy_keeps_the_values_that_are_the_same(encoded: list[str | None]) -> None:
    master = Accounts(lambda name, text: None)
    slave = Accounts(lambda name, text: None)
    for table in (master, slave):
        fill(table, 20)
    encoded.clear()
    old = dict(slave.users)
    master.update_user("u00003", password="another")
    steps = copy(master, slave)
    encoded.clear()
    version = slave.version
    assert await in_steps(steps)
    assert slave.version == version + 1
    changed = [name for name, user in slave.users.items() if user is not old[name]]
    assert changed == encoded == ["u00003"]
    assert not await in_steps(copy(master, slave))
    assert slave.version == version + 1


@pytest.mark.slow
async def test_a_change_between_the_steps_of_a_copy_does_not_stay() -> None:
    master, slave = Accounts(), Accounts()
    for table in (master, slave):
        fill(table)
    steps = copy(master, slave)
    next(steps)
    slave.update_user("u00001", password="another")
    slave.delete_user("u00002")
    slave.create_user(User("one-more", "secret"))
    assert at_once(steps)
    assert (slave.users, slave.acls) == (master.users, master.acls)


@pytest.mark.slow
def test_answers_are_read_in_steps() -> None:
    table = Accounts()
    fill(table)
    info = info_of(table)
    users = b"[" + b",".join(user.to_body() for user in info.users) + b"]"
    acls = b"[" + b",".join(acl.to_body() for acl in info.acls) + b"]"
    assert count_steps(users_in_steps(users)) > 2
    assert at_once(users_in_steps(users)) == info.users
    assert list(acls_one_by_one(acls)) == info.acls
    assert at_once(users_in_steps(b"")) == []


@pytest.mark.parametrize("last", [b"1]", b'{"username":[]}]', b'{"username":"a"}', b"null]"])
def test_a_damaged_long_answer_is_refused(last: bytes) -> None:
    users = b'[{"username":"a","password":"secret"}' + b',{"username":"a"}' * 5_000 + b"," + last
    with pytest.raises(RemoteProtocolError) as caught:
        at_once(users_in_steps(users))
    assert "secret" not in str(caught.value)
