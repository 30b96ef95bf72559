"""Every request code of the servers, sent by nobody, by liars, and with and without rights."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import product
from typing import NamedTuple

import pytest
import trio
import trio.testing

from trocket.auth.access_control import AccessControl
from trocket.auth.accounts import Accounts
from trocket.auth.gate import guarded as gate
from trocket.auth.model import User
from trocket.auth.need_tables import (
    NEEDS_OF_BROKER,
    NEEDS_OF_CONTROLLER,
    NEEDS_OF_FILTERSRV,
    NEEDS_OF_NAMESRV,
)
from trocket.auth.needs import Places
from trocket.auth.rules import Rules
from trocket.cli.protocol_table import served_codes
from trocket.common.clock import ManualClock
from trocket.controller.config import ControllerConfig
from trocket.controller.server import ControllerServer
from trocket.disk.memory_disk import MemoryDisk
from trocket.namesrv.config import NamesrvConfig
from trocket.namesrv.controller import NamesrvController
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.request_codes import RequestCode
from trocket.remoting.response_codes import ResponseCode
from trocket.remoting.server import RemotingServer

from ..kit import embedded_broker, put_record
from ..kit.client import Client
from .expected_rights import BROKER, CONTROLLER, NAMESRV, Row
from .signed import ALICE, INIT_USER, ROOT, allow, signed

SERVERS = {
    "broker": (BROKER, NEEDS_OF_BROKER),
    "name server": (NAMESRV, NEEDS_OF_NAMESRV),
    "controller": (CONTROLLER, NEEDS_OF_CONTROLLER),
}
MARKER = {
    "broker": RequestCode.GET_BROKER_RUNTIME_INFO,
    "name server": RequestCode.GET_KV_CONFIG,
    "controller": RequestCode.GET_CONTROLLER_CONFIG,
}
"""A request that is answered at once, by server."""


class Guarded(NamedTuple):
    """A running server with accounts."""

    server: RemotingServer
    accounts: Accounts
    marker: int


@asynccontextmanager
async def guarded(name: str) -> AsyncIterator[Guarded]:
    """A server whose only user is ROOT."""
    keys = {
        "authentication_enabled": True,
        "authorization_enabled": True,
        "init_authentication_user": INIT_USER,
    }
    if name == "broker":
        async with embedded_broker(**keys) as broker:
            put_record(broker, "STORED", "", b"body")
            controller = broker.controller
            assert controller.server is not None
            yield Guarded(controller.server, controller.parts.access.users.accounts, MARKER[name])
        return
    started: NamesrvController | ControllerServer
    if name == "controller":
        config = ControllerConfig(controller_store_path="/c", config_store_path="/c/c.conf", **keys)
        started = ControllerServer(config, clock=ManualClock(), disk=MemoryDisk(), listeners=[])
    else:
        started = NamesrvController(
            NamesrvConfig(kv_config_path="/n/kv.json", config_store_path="/n/n.conf", **keys),
            clock=ManualClock(),
            disk=MemoryDisk(),
            listeners=[],
        )
    async with trio.open_nursery() as nursery:
        await nursery.start(started.run)
        yield Guarded(started.server, started.access.accounts, MARKER[name])
        nursery.cancel_scope.cancel()


NO = "no matched policies."
NO_MESSAGE = (
    "can not find message by the offset, 0",
    "look message by offset failed, 0",
    "there is no message at 0",
    "Find prepared transaction message failed",
)
"""Answers to those who may not know of a message, and where there is none."""


async def refusal(guarded: Guarded, request: RemotingCommand) -> str | None:
    """Why access control refuses a request; None: it is served, whatever comes of it.

    A refusal comes at once: before the answer to a second request, which is served.
    """
    async with trio.open_nursery() as nursery:
        near, far = trio.testing.memory_stream_pair()
        nursery.start_soon(guarded.server.serve_stream, near)
        client = Client(far)
        opaque = await client.send(request)
        marker = await client.send(signed(guarded.marker, {"namespace": "n", "key": "k"}))
        await client.answer(marker)
        answer = client.taken(opaque)
        nursery.cancel_scope.cancel()
    remark = "" if answer is None else answer.remark or ""
    if remark in NO_MESSAGE:
        return remark
    if answer is None or answer.code != ResponseCode.NO_PERMISSION:
        return None
    is_ours = remark.startswith(("User:", "check signature", "username cannot", "parse auth"))
    return remark if is_ours else None


def alternatives(row: Row) -> list[list[str]]:
    """Each set of rights that is enough."""
    each = [
        [f"{right.rpartition(' ')[0]} {action}" for action in right.rpartition(" ")[2].split("|")]
        for right in row.rights
    ]
    return [list(chosen) for chosen in product(*each)]


@pytest.mark.parametrize("server", SERVERS)
def test_every_served_code_has_a_need_and_a_row(server) -> None:
    rows, needs = SERVERS[server]
    served = served_codes()[server]
    assert served <= needs.keys(), "declare what the new code needs in auth/need_tables.py"
    # Codes of accounts themselves have tests of their own.
    own = {code for code in served if 50 <= code <= 54 or 3001 <= code <= 3010}
    assert served - own == rows.keys(), (
        "add a row for the new code to tests/auth/expected_rights.py"
    )


def test_every_code_of_the_filter_server_has_a_need() -> None:
    assert served_codes()["filter server"] == NEEDS_OF_FILTERSRV.keys()


@pytest.mark.slow
@pytest.mark.parametrize("server", SERVERS)
async def test_nobody_and_liars_are_refused_whatever_they_send(server) -> None:
    rows, _ = SERVERS[server]
    async with guarded(server) as there:
        for code, row in rows.items():
            for user, text in (
                (None, "username cannot be null."),
                (User("nobody", "secret-of-root"), "User:nobody is not found."),
                (User("root", "wrong"), "check signature failed."),
            ):
                request = signed(code, row.fields, row.body, user=user)
                assert await refusal(there, request) == text, RequestCode(code).name


@pytest.mark.slow
@pytest.mark.parametrize("server", SERVERS)
async def test_each_right_is_needed_and_all_are_enough(server) -> None:
    rows, _ = SERVERS[server]
    async with guarded(server) as there:
        for code, row in rows.items():
            what = RequestCode(code).name
            request = signed(code, row.fields, row.body, user=ALICE)
            allow(there.accounts, ["Topic:other Pub", "Group:other Sub", "Namespace:* All"])
            assert await refusal(there, request) is not None, what
            for rights in alternatives(row):
                for missing in rights:
                    resource = missing.rpartition(" ")[0]
                    allow(there.accounts, [each for each in rights if each != missing])
                    expected = (
                        f"User:alice has no permission to access {resource} from 127.0.0.1, {NO}",
                        *(NO_MESSAGE if resource == "Topic:STORED" else ()),
                    )
                    assert await refusal(there, request) in expected, (what, missing)
                allow(there.accounts, rights)
                allowed = (None, NO_MESSAGE[-1])  # the stored message is no half message
                assert await refusal(there, request) in allowed, (what, rights)


@pytest.mark.slow
@pytest.mark.parametrize("server", SERVERS)
async def test_a_super_user_may_do_everything(server) -> None:
    rows, _ = SERVERS[server]
    async with guarded(server) as there:
        for code, row in rows.items():
            request = signed(code, row.fields, row.body)
            assert await refusal(there, request) in (None, NO_MESSAGE[-1]), RequestCode(code).name


async def test_a_code_that_is_not_declared_is_for_super_users_only() -> None:
    async with guarded("broker") as there:
        processors = there.server.processors
        # As if a new code had come without its declaration.
        control = AccessControl(there.accounts, {}, Rules(authorizes=True), Places("c"))
        new = gate({9999: lambda request, channel: request.answer()}, control.check)
        processors.update(new)
        allow(there.accounts, ["* All"])
        assert await refusal(there, signed(9999, user=ALICE)) == (
            "User:alice has no permission to access request code 9999 from 127.0.0.1, "
            "no matched policies."
        )
        assert await refusal(there, signed(9999, user=ROOT)) is None
