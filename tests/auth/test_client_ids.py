"""Client ids: one that a user registered gives no other user its replies."""

from __future__ import annotations

import json

import pytest
import trio

from trocket.auth.model import User, UserStatus, UserType
from trocket.remoting.bodies import ConsumerData, HeartbeatData, ProducerData
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.request_codes import RequestCode as Code

from ..kit import embedded_broker, send_fields
from ..kit.client import Client
from .signed import INIT_USER, signed

ALICE = User("alice-of-tests", "secret-of-alice", UserType.SUPER)
BOB = User("bob-of-tests", "secret-of-bob", UserType.SUPER)
PLAIN = """
accounts:
- {accessKey: alice-of-tests, secretKey: secret-of-alice, admin: true}
- {accessKey: bob-of-tests, secretKey: secret-of-bob, admin: true}
"""


async def beat(
    client: Client, user: User | None, client_id: str, group: str = ""
) -> RemotingCommand:
    data = HeartbeatData(
        client_id=client_id,
        producer_data_set=[ProducerData(group_name="CLIENT_INNER_PRODUCER")],
        consumer_data_set=[ConsumerData(group_name=group)] if group else [],
    )
    body = data.to_body()
    return await client.ask(
        Code.HEART_BEAT, signed(Code.HEART_BEAT, {}, body, user=user).ext_fields, body
    )


async def reply(client: Client, client_id: str) -> RemotingCommand:
    properties = f"CORRELATION_ID\1c1\2REPLY_TO_CLIENT\1{client_id}\2"
    fields = send_fields("DefaultCluster_REPLY_TOPIC", i=properties)
    code = Code.SEND_REPLY_MESSAGE_V2
    return await client.ask(code, signed(code, fields, b"pong", user=BOB).ext_fields, b"pong")


async def serve(client: Client, name: str, seen: list[tuple[str, bytes]]) -> None:
    while True:
        command = await client.asked()
        if command.code == Code.PUSH_REPLY_MESSAGE_TO_CLIENT:
            seen.append((name, command.body))
            await client.reply(command.answer(0, None))


async def two_users(broker, seen: list[tuple[str, bytes]]) -> None:
    """Alice registers an id, and then bob tries it."""
    async with trio.open_nursery() as nursery:
        alice, bob, sender = [await broker.connect() for _ in range(3)]
        assert (await beat(alice, ALICE, "asker@1")).code == 0
        answer = await beat(bob, BOB, "asker@1", "bobs-group")
        assert answer.code == 0
        # He is served, too: old clients in containers have equal ids.
        clients = broker.controller.parts.clients
        assert len(clients.producers.group_table["CLIENT_INNER_PRODUCER"]) == 2
        assert (
            broker.controller.parts.clients.consumers.get_consumer_group_info("bobs-group")
            is not None
        )
        nursery.start_soon(serve, alice, "alice", seen)
        nursery.start_soon(serve, bob, "bob", seen)
        assert (await reply(sender, "asker@1")).code == 0
        # Alice comes back before the broker knows that her old connection is dead.
        again = await broker.connect()
        assert (await beat(again, ALICE, "asker@1")).code == 0
        nursery.start_soon(serve, again, "again", seen)
        assert (await reply(sender, "asker@1")).code == 0
        nursery.cancel_scope.cancel()


async def test_replies_go_to_the_user_that_had_the_id_first(autojump_clock):
    seen: list[tuple[str, bytes]] = []
    async with embedded_broker(
        authentication_enabled=True,
        authorization_enabled=True,
        init_authentication_user=INIT_USER,
    ) as broker:
        table = broker.controller.parts.access.users.accounts
        table.create_user(ALICE)
        table.create_user(BOB)
        await two_users(broker, seen)
    assert seen == [("alice", b"pong"), ("again", b"pong")]


async def test_so_they_do_with_accounts_of_acl_1_0(autojump_clock, tmp_path):
    (tmp_path / "plain_acl.yml").write_text(PLAIN)
    seen: list[tuple[str, bytes]] = []
    async with embedded_broker(acl_enable=True, acl_config_path=str(tmp_path)) as broker:
        await two_users(broker, seen)
    assert seen == [("alice", b"pong"), ("again", b"pong")]


@pytest.mark.parametrize("user", [None, BOB])
async def test_without_accounts_the_last_connection_gets_them(user, autojump_clock):
    seen: list[tuple[str, bytes]] = []
    async with embedded_broker() as broker, trio.open_nursery() as nursery:
        one, other = await broker.connect(), await broker.connect()
        assert (await beat(one, ALICE, "asker@1")).code == 0
        assert (await beat(other, user, "asker@1")).code == 0
        nursery.start_soon(serve, other, "other", seen)
        assert (await reply(await broker.connect(), "asker@1")).code == 0
        nursery.cancel_scope.cancel()
    assert seen == [("other", b"pong")]


async def test_an_account_without_rights_takes_no_id_and_no_transaction_from_a_producer(
    autojump_clock,
):
    seen: list[tuple[str, bytes]] = []
    async with (
        embedded_broker(
            authentication_enabled=True,
            authorization_enabled=True,
            init_authentication_user=INIT_USER,
        ) as broker,
        trio.open_nursery() as nursery,
    ):
        table = broker.controller.parts.access.users.accounts
        stranger = User("stranger", "secret-of-stranger")
        for user in (ALICE, BOB, stranger):
            table.create_user(user)
        thief, alice, sender = [await broker.connect() for _ in range(3)]
        assert (await beat(thief, stranger, "asker@1")).code == 0
        assert (await beat(alice, ALICE, "asker@1")).code == 0
        nursery.start_soon(serve, thief, "thief", seen)
        nursery.start_soon(serve, alice, "alice", seen)
        assert (await reply(sender, "asker@1")).code == 0
        assert seen == [("alice", b"pong")]
        channels = broker.controller.parts.clients.producers.group_table["CLIENT_INNER_PRODUCER"]
        assert len(channels) == 2
        # She is disabled, so nothing goes to her connection any more.
        table.update_user(ALICE.username, user_status=UserStatus.DISABLE)
        await reply(sender, "asker@1")
        assert seen == [("alice", b"pong")]
        nursery.cancel_scope.cancel()


async def test_a_lock_belongs_to_the_user_and_the_id(autojump_clock):
    queue = {"topic": "T", "brokerName": "b", "queueId": 0}
    body = json.dumps({"clientId": "c@1", "consumerGroup": "G", "mqSet": [queue]}).encode()
    async with embedded_broker(
        authentication_enabled=True, init_authentication_user=INIT_USER
    ) as broker:
        table = broker.controller.parts.access.users.accounts
        for user in (ALICE, BOB):
            table.create_user(user)
        client = await broker.connect()

        async def locked(user: User) -> int:
            request = signed(Code.LOCK_BATCH_MQ, {}, body, user=user)
            answer = await client.answer(await client.send(request))
            assert answer.code == 0, answer.remark
            return len(json.loads(answer.body)["lockOKMQSet"])

        assert await locked(ALICE) == 1
        assert await locked(BOB) == 0
        unlock = signed(Code.UNLOCK_BATCH_MQ, {}, body, user=BOB)
        assert (await client.answer(await client.send(unlock))).code == 0
        assert await locked(BOB) == 0
        assert await locked(ALICE) == 1
