"""Users and access control lists that a slave copies from its master."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
import trio

from trocket.auth.model import User
from trocket.remoting.bodies import UserInfo
from trocket.remoting.channel import Deferred
from trocket.remoting.request_codes import RequestCode as Code

from ...auth.signed import ALICE, INIT_USER, ROOT, allow, signed
from ...kit import Client
from ..group import Group, Node, group

ROUND_S = 10
INNER = User("inner", "secret-of-inner")
ON: dict[str, Any] = {
    "authentication_enabled": True,
    "authorization_enabled": True,
    "init_authentication_user": INIT_USER,
    "inner_client_authentication_credentials": json.dumps(
        {"accessKey": INNER.username, "secretKey": INNER.password}
    ),
}


async def ask(client: Client, code: Code, body: object = None, user: User = ROOT, **fields: str):
    data = b"" if body is None else json.dumps(body).encode()
    opaque = await client.send(signed(code, fields, data, user=user))
    return await client.answer(opaque)


async def create(client: Client, user: User) -> int:
    body = {"username": user.username, "password": user.password}
    return (await ask(client, Code.AUTH_CREATE_USER, body, username=user.username)).code


def accounts(node: Node):
    return node.running.parts.access.users.accounts


def names(node: Node) -> list[str]:
    return sorted(accounts(node).users)


async def one_round() -> None:
    await trio.sleep(ROUND_S + 0.1)


async def pair(made: Group, **of_slave: Any) -> tuple[Node, Node, Client]:
    master = await made.master(**ON)
    slave = await made.slave(**(ON | of_slave))
    await trio.sleep(0.1)
    return master, slave, await master.connect()


async def test_users_and_policies_are_copied_used_and_saved_for_the_owner_only(autojump_clock):
    async with group() as made:
        master, slave, client = await pair(made)
        assert await create(client, ALICE) == 0
        allow(accounts(master), ["Cluster:* Get"])
        await one_round()
        assert accounts(slave).users == accounts(master).users
        assert accounts(slave).acls == accounts(master).acls
        reader = await slave.connect()
        answer = await ask(reader, Code.AUTH_LIST_USER, user=ALICE)
        assert answer.code == 0
        assert b"secret" not in answer.body
        await trio.sleep(6)
        assert b"secret-of-alice" in bytes(slave.disk.contents["/store/config/auth.json"])


async def test_what_is_gone_at_the_master_goes_at_the_slave(autojump_clock):
    async with group() as made:
        _, slave, client = await pair(made)
        await create(client, ALICE)
        await one_round()
        assert names(slave) == ["alice", "inner", "root"]
        assert (await ask(client, Code.AUTH_DELETE_USER, username="alice")).code == 0
        await one_round()
        assert names(slave) == ["inner", "root"]


async def test_unchanged_accounts_are_not_sent_again(autojump_clock):
    async with group() as made:
        master, slave, client = await pair(made)
        bodies = []
        processors = master.running.server.processors
        serve = processors[Code.AUTH_LIST_USER]

        def watch(request, channel):
            answer = serve(request, channel)
            assert not isinstance(answer, Deferred)
            bodies.append(answer.body)
            return answer

        processors[Code.AUTH_LIST_USER] = watch
        await one_round()
        await one_round()
        assert bodies == [b"", b""]
        await create(client, ALICE)
        await one_round()
        assert len(bodies[2]) > 100
        # A change at the slave, as mqadmin makes it on every broker of a cluster.
        local = await slave.connect()
        assert await create(local, ALICE) == 0  # it was copied already
        assert await create(local, User("bob", "secret-of-bob")) == 0
        assert names(slave) == ["alice", "bob", "inner", "root"]
        await one_round()
        assert names(slave) == ["alice", "inner", "root"]  # the master does not have it


async def test_an_account_that_is_no_super_user_copies_nothing(autojump_clock, caplog):
    async with group() as made:
        _, slave, client = await pair(made)
        body = {"username": "inner", "userType": "Normal"}
        assert (await ask(client, Code.AUTH_UPDATE_USER, body, username="inner")).code == 0
        policy = {"entries": [{"resource": "*", "actions": ["All"], "decision": "Allow"}]}
        body = {"subject": "User:inner", "policies": [policy]}
        assert (await ask(client, Code.AUTH_CREATE_ACL, body, subject="User:inner")).code == 0
        await create(client, ALICE)
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                await one_round()
        logged = [each.message for each in caplog.records if "accounts could not" in each.message]
        assert len(logged) == 1
        assert "a super user of the master" in logged[0]
        assert "alice" not in names(slave)
        assert "secret" not in caplog.text


async def test_from_a_master_without_accounts_a_slave_keeps_its_own(autojump_clock, caplog):
    async with group() as made:
        await made.master()
        slave = await made.slave(**ON)
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                await one_round()
        assert names(slave) == ["inner", "root"]
        said = [each for each in caplog.records if "has no users" in each.message]
        assert len(said) == 1


async def test_a_slave_without_accounts_asks_for_none(autojump_clock):
    async with group() as made:
        master = await made.master()
        asked = []
        processors = master.running.server.processors
        processors[Code.AUTH_LIST_USER] = lambda request, channel: asked.append(request)
        await made.slave()
        await one_round()
        assert asked == []


async def test_a_master_of_apaches_is_copied_without_a_version(autojump_clock):
    async with group() as made:
        master, slave, _ = await pair(made)
        processors = master.running.server.processors
        users = [
            UserInfo(username=each.username, password=each.password, user_type="Super")
            for each in (ROOT, INNER)
        ]
        users.append(UserInfo(username="carl", password="x", user_type="Normal"))
        body = b"[" + b",".join(user.to_body() for user in users) + b"]"
        processors[Code.AUTH_LIST_USER] = lambda request, channel: request.answer(body=body)
        processors[Code.AUTH_LIST_ACL] = lambda request, channel: request.answer()
        await one_round()
        assert names(slave) == ["carl", "inner", "root"]


@pytest.mark.parametrize("body", [b"[]", b"{}", b'[{"username":"x"}]', b"[1]", b"geheim"])
async def test_an_answer_without_users_removes_none(body, autojump_clock, caplog):
    async with group() as made:
        master, slave, _ = await pair(made)
        processors = master.running.server.processors
        processors[Code.AUTH_LIST_USER] = lambda request, channel: request.answer(body=body)
        await one_round()
        assert names(slave) == ["inner", "root"]
        assert "accounts could not be copied" in caplog.text
        assert "geheim" not in caplog.text
