"""A filter server of a broker with accounts: it copies them, and signs its pulls."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

import pytest
import trio

from trocket.auth.model import User, UserStatus
from trocket.broker.filter_servers.filter_server_keeper import child_properties
from trocket.broker.settings.config import BrokerConfig
from trocket.common.config import ConfigError, parse_properties
from trocket.filtersrv.config import REGISTER_INTERVAL_S, read_filtersrv_config
from trocket.filtersrv.filters import ExpressionFilter
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.message_codec import decode_messages
from trocket.remoting.request_codes import RequestCode as Code

from ..auth.signed import ALICE, INIT_USER, ROOT, allow, signed
from ..kit import Client, embedded_broker, pull_fields, send_fields
from .embedded import filter_server

INNER = json.dumps({"accessKey": "inner", "secretKey": "secret-of-inner"})
ON: dict[str, Any] = {
    "authentication_enabled": True,
    "authorization_enabled": True,
    "inner_client_authentication_credentials": INNER,
}
BROKER = ON | {"init_authentication_user": INIT_USER}
FILTERS = {"a.Even": ExpressionFilter("even = 'true'")}
CLASS = {"topic": "T", "consumerGroup": "CG", "className": "a.Even", "classCRC": 0}
RIGHTS = ("Topic:T Sub", "Group:CG Sub")
UPLOAD, LIST = Code.REGISTER_MESSAGE_FILTER_CLASS, Code.LIST_MESSAGE_FILTER_CLASSES
REMOVE = Code.REMOVE_MESSAGE_FILTER_CLASS


def pull() -> dict[str, Any]:
    fields = pull_fields(sysFlag=8)
    del fields["subscription"]
    return fields


async def ask(
    client: Client, code: Code, fields: Mapping[str, object], user: User | None, body: bytes = b""
) -> RemotingCommand:
    return await client.ask(code, signed(code, fields, body, user=user).ext_fields, body)


async def one_round() -> None:
    await trio.sleep(REGISTER_INTERVAL_S + 1)


async def test_consumers_need_their_rights_at_the_filter_server(autojump_clock):
    async with embedded_broker(**BROKER) as broker:
        accounts = broker.controller.parts.access.users.accounts
        accounts.create_user(ALICE)
        accounts.create_user(User("bob", "secret-of-bob"))
        allow(accounts, RIGHTS)
        client = await broker.connect()
        fields = send_fields(i="even\x01true\x02")
        assert (await ask(client, Code.SEND_MESSAGE_V2, fields, ROOT, b"0")).code == 0
        async with filter_server(broker, FILTERS, **ON) as server:
            consumer = await server.connect()
            for code, wanted in ((UPLOAD, CLASS), (Code.PULL_MESSAGE, pull())):
                for user in (None, User("alice", "wrong"), User("bob", "secret-of-bob")):
                    assert (await ask(consumer, code, wanted, user)).code == 16
                assert (await ask(consumer, code, wanted, ALICE)).code == 0
            answer = await ask(consumer, Code.PULL_MESSAGE, pull(), ALICE)
            assert [each.body for each in decode_messages(answer.body)] == [b"0"]
            other = {**pull(), "consumerGroup": "other"}
            assert (await ask(consumer, Code.PULL_MESSAGE, other, ALICE)).code == 16
            fields = {"topic": "T", "consumerGroup": "CG"}
            assert (await ask(consumer, LIST, {}, ALICE)).code == 16
            assert (await ask(consumer, REMOVE, fields, ALICE)).code == 16
            assert (await ask(consumer, REMOVE, fields, ROOT)).code == 0


async def test_copies_without_a_change_are_no_lines_of_the_audit_log(autojump_clock, caplog):
    async with embedded_broker(**BROKER) as broker:
        accounts = broker.controller.parts.access.users.accounts
        with caplog.at_level(logging.INFO, "trocket.auth.audit"):
            async with filter_server(broker, FILTERS, **ON):
                for _ in range(5):
                    await one_round()
                accounts.create_user(ALICE)
                for _ in range(5):
                    await one_round()
    lines = [each.message for each in caplog.records if "AUTH_LIST_USER" in each.message]
    assert len(lines) == 2


async def test_a_change_at_the_broker_is_followed(autojump_clock):
    async with embedded_broker(**BROKER) as broker:
        accounts = broker.controller.parts.access.users.accounts
        async with filter_server(broker, FILTERS, **ON) as server:
            consumer = await server.connect()
            assert (await ask(consumer, UPLOAD, CLASS, ALICE)).code == 16
            accounts.create_user(ALICE)
            allow(accounts, RIGHTS)
            await one_round()
            assert (await ask(consumer, UPLOAD, CLASS, ALICE)).code == 0
            accounts.update_user("alice", user_status=UserStatus.DISABLE)
            await one_round()
            assert (await ask(consumer, UPLOAD, CLASS, ALICE)).code == 16


@pytest.mark.parametrize(
    ("of_broker", "why"),
    [
        ({}, "it has no accounts"),
        (BROKER | {"inner_client_authentication_credentials": ""}, "User:inner is not found."),
    ],
)
async def test_without_the_accounts_it_serves_nothing_and_is_not_registered(
    of_broker, why, autojump_clock, caplog
):
    async with embedded_broker(**of_broker) as broker:
        with caplog.at_level(logging.WARNING):
            async with filter_server(broker, FILTERS, **ON) as server:
                await one_round()
                consumer = await server.connect()
                assert (await ask(consumer, UPLOAD, CLASS, ROOT)).code == 16
                assert broker.controller.parts.filter_servers.registered.addresses == ()
    assert why in caplog.text
    assert "secret" not in caplog.text


def test_a_child_gets_the_account_through_its_pipe_and_no_other_secret() -> None:
    config = BrokerConfig(broker_ip1="192.0.2.7", filter_server_nums=1, **BROKER)
    text = child_properties(config, 10911)
    assert "root" not in text
    read, _ = read_filtersrv_config(parse_properties(text))
    assert read.has_accounts
    assert read.authorization_enabled
    assert read.inner_client_authentication_credentials == INNER
    assert "secret" not in repr(read)
    without = BrokerConfig(broker_ip1="192.0.2.7", inner_client_authentication_credentials=INNER)
    assert "secret" not in child_properties(without, 10911)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("authenticationEnabled=true", "needs innerClientAuthenticationCredentials"),
        (f"innerClientAuthenticationCredentials={INNER}", "needs authenticationEnabled=true"),
        ("authorizationEnabled=true", "needs authenticationEnabled=true"),
    ],
)
def test_keys_that_would_leave_it_open_are_refused(line: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        read_filtersrv_config(parse_properties(f"connectWhichBroker=h:1\n{line}"))
