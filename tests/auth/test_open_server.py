"""Servers without accounts: dangerous requests are for peers of their own machine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from trocket.auth.dangerous import (
    ACCOUNTS,
    BROKER,
    CONTROLLER,
    FILTER_SERVER,
    NAME_SERVER,
    Danger,
)
from trocket.auth.open_ports import is_loopback, open_warning
from trocket.auth.open_server import is_local, open_processors
from trocket.cli.protocol_table import served_codes
from trocket.common.clock import ManualClock
from trocket.controller.config import ControllerConfig
from trocket.controller.server import ControllerServer
from trocket.disk.memory_disk import MemoryDisk
from trocket.filtersrv.config import FiltersrvConfig
from trocket.filtersrv.controller import FiltersrvController
from trocket.namesrv.config import NamesrvConfig
from trocket.namesrv.controller import NamesrvController
from trocket.remoting.channel import Channel
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.request_codes import RequestCode
from trocket.remoting.response_codes import ResponseCode
from trocket.remoting.server import RemotingServer
from trocket.remoting.transport import StreamTransport
from trocket.remoting.turn import Turn

from ..kit import embedded_broker
from ..kit.client import Client

SERVERS = (BROKER, NAME_SERVER, CONTROLLER, FILTER_SERVER)
HERE = ("127.0.0.1:50000", "127.0.0.1:10911")
ELSEWHERE = ("192.0.2.7:50000", "192.0.2.1:10911")


@asynccontextmanager
async def running(
    danger: Danger, *, allows: bool = False, **keys: Any
) -> AsyncIterator[RemotingServer]:
    """A server of a kind, without accounts."""
    if danger is BROKER:
        async with embedded_broker(allow_remote_administration=allows, **keys) as broker:
            assert broker.controller.server is not None
            yield broker.controller.server
    elif danger is NAME_SERVER:
        config = NamesrvConfig(allow_remote_administration=allows, **keys)
        yield NamesrvController(config, clock=ManualClock(), disk=MemoryDisk()).server
    elif danger is CONTROLLER:
        controller = ControllerConfig(
            controller_store_path="/c",
            config_store_path="/c/c.conf",
            allow_remote_administration=allows,
            **keys,
        )
        yield ControllerServer(controller, clock=ManualClock(), disk=MemoryDisk()).server
    else:
        yield FiltersrvController(FiltersrvConfig(allow_remote_administration=allows), {}).server


@asynccontextmanager
async def client(server: RemotingServer, addresses: tuple[str, str]) -> AsyncIterator[Client]:
    """A client with the address of its end and of the server's."""
    near, far = trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve_stream, near, *addresses)
        await trio.testing.wait_all_tasks_blocked()
        yield Client(far)
        nursery.cancel_scope.cancel()


def channel(remote: str, local: str) -> Channel:
    stream, _ = trio.testing.memory_stream_pair()
    return Channel(StreamTransport(stream, remote, local), Turn())


@pytest.mark.parametrize("danger", SERVERS, ids=lambda danger: danger.server)
def test_each_served_code_is_dangerous_or_harmless(danger: Danger) -> None:
    tables = (danger.dangerous.keys(), danger.own.keys(), danger.harmless)
    unknown = served_codes()[danger.server] - frozenset().union(*tables)
    assert not unknown, "put them into a table of auth/dangerous.py"
    assert sum(map(len, tables)) == len(frozenset().union(*tables)), "a code is in two tables"


def test_the_page_lists_the_dangerous_requests() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "security.md").read_text("utf-8")
    section = page.partition("## A server without accounts\n")[2].partition("\n## ")[0]
    rows = {line for line in section.splitlines() if line.startswith("| ")}
    assert rows - {"| server | request | code | what it does |"} == {
        f"| {danger.server} | {code.name} | {code.value} | {what} |"
        for danger in SERVERS
        for code, what in (*danger.dangerous.items(), *danger.own.items())
    }


@pytest.mark.parametrize("danger", SERVERS, ids=lambda danger: danger.server)
async def test_dangerous_requests_are_refused_to_other_machines_only(
    danger: Danger, autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(danger) as server:
        for code in sorted(danger.dangerous.keys() & set(map(RequestCode, server.codes))):
            caplog.clear()
            async with client(server, ELSEWHERE) as stranger:
                answer = await stranger.ask(code, {})
            assert answer.code == ResponseCode.NO_PERMISSION
            assert answer.remark.startswith(f"{code.name} ({code.value}) {danger.dangerous[code]}")
            assert "not to 192.0.2.7" in answer.remark
            assert "set allowRemoteAdministration=true" in answer.remark
            (line,) = [line for line in caplog.messages if "outcome=refused" in line]
            assert line.startswith(f"refused: {code.name} user=- address=192.0.2.7:50000")
            for addresses in (HERE, ("192.0.2.1:50000", "192.0.2.1:10911")):
                async with client(server, addresses) as neighbour:
                    answer = await neighbour.ask(code, {})
                assert "its own machine" not in (answer.remark or ""), code


@pytest.mark.parametrize("danger", SERVERS, ids=lambda danger: danger.server)
async def test_harmless_requests_are_served_to_all(danger: Danger, autojump_clock: object) -> None:
    async with running(danger) as server:
        for code in sorted(danger.harmless & server.codes):
            async with client(server, ELSEWHERE) as stranger:
                opaque = await stranger.send(RemotingCommand(code, {}, b""))
                with trio.move_on_after(60):
                    answer = await stranger.answer(opaque)
                    assert "its own machine" not in (answer.remark or ""), code


@pytest.mark.parametrize("addresses", [HERE, ELSEWHERE])
async def test_requests_about_accounts_are_refused_to_all(
    addresses: tuple[str, str], autojump_clock: object
) -> None:
    async with running(BROKER) as server, client(server, addresses) as peer:
        for code in sorted(ACCOUNTS):
            answer = await peer.ask(code, {"username": "u", "accessKey": "a", "subject": "User:u"})
            assert answer.code != ResponseCode.SUCCESS, code


@pytest.mark.parametrize("danger", SERVERS, ids=lambda danger: danger.server)
async def test_the_key_opens_them_to_all(danger: Danger, autojump_clock: object) -> None:
    async with running(danger, allows=True) as server:
        for code in sorted(danger.dangerous.keys() & server.codes):
            async with client(server, ELSEWHERE) as stranger:
                answer = await stranger.ask(code, {})
            assert "its own machine" not in (answer.remark or ""), code


@pytest.mark.parametrize("danger", [BROKER, NAME_SERVER], ids=lambda danger: danger.server)
async def test_with_accounts_rights_decide(danger: Danger, autojump_clock: object) -> None:
    async with running(danger, authentication_enabled=True) as server:
        for code in sorted(danger.dangerous.keys() & server.codes):
            async with client(server, ELSEWHERE) as stranger:
                answer = await stranger.ask(code, {})
            assert answer.code != 0
            assert "its own machine" not in (answer.remark or ""), code


async def test_sends_are_not_wrapped(autojump_clock: object) -> None:
    # Else the C extension's runs would be off: Connection serves them only for its own processors.
    def serve(request: RemotingCommand, _: Channel) -> RemotingCommand:
        return request.answer()

    table = {int(code): serve for code in RequestCode}
    opened = open_processors(table, BROKER, allows_remote=False)
    wrapped = {code for code, process in opened.items() if process is not serve}
    assert wrapped == set(BROKER.dangerous)
    assert open_processors(table, BROKER, allows_remote=True) == table


def registration(address: str) -> dict[str, object]:
    return {
        "brokerName": "a",
        "brokerAddr": address,
        "clusterName": "c",
        "brokerId": 0,
        "haServerAddr": "",
    }


async def test_a_broker_elsewhere_may_unregister_itself_and_others_may_not(
    autojump_clock: object,
) -> None:
    register, unregister = RequestCode.REGISTER_BROKER, RequestCode.UNREGISTER_BROKER
    broker = registration("10.0.0.1:10911")  # not the address that it connects from
    async with running(NAME_SERVER) as server, client(server, ELSEWHERE) as first:
        async with client(server, ("192.0.2.8:50000", ELSEWHERE[1])) as other:
            assert (await first.ask(register, broker)).code == 0
            answer = await other.ask(unregister, broker)
            assert answer.code == ResponseCode.NO_PERMISSION
            assert "removes a broker that another machine registered" in answer.remark
            # Nothing would be removed.
            assert (await other.ask(unregister, registration("10.0.0.2:1"))).code == 0
        assert "10.0.0.1" in str((await first.ask(106, {})).body)
        assert (await first.ask(unregister, broker)).code == 0
        assert "10.0.0.1" not in str((await first.ask(106, {})).body)


@pytest.mark.parametrize("addresses", [("192.0.2.7:50001", ELSEWHERE[1]), HERE])
async def test_a_broker_is_unregistered_from_its_machine_and_from_the_name_servers(
    addresses: tuple[str, str], autojump_clock: object
) -> None:
    broker = registration("10.0.0.1:10911")
    async with running(NAME_SERVER) as server, client(server, ELSEWHERE) as first:
        assert (await first.ask(RequestCode.REGISTER_BROKER, broker)).code == 0
        async with client(server, addresses) as second:
            assert (await second.ask(RequestCode.UNREGISTER_BROKER, broker)).code == 0
            assert "10.0.0.1" not in str((await second.ask(106, {})).body)


@pytest.mark.parametrize("danger", [BROKER, NAME_SERVER], ids=lambda danger: danger.server)
@pytest.mark.parametrize("addresses", [HERE, ELSEWHERE])
async def test_no_request_sets_the_key(
    danger: Danger, addresses: tuple[str, str], autojump_clock: object
) -> None:
    code = 25 if danger is BROKER else 318
    allows = addresses is ELSEWHERE
    async with running(danger, allows=allows) as server, client(server, addresses) as peer:
        answer = await peer.ask(code, {}, b"allowRemoteAdministration=true")
    assert answer.code != 0
    assert "allowRemoteAdministration" in answer.remark


@pytest.mark.parametrize(
    ("remote", "local", "expected"),
    [
        ("127.0.0.1:1", "127.0.0.1:2", True),
        ("127.9.9.9:1", "127.0.0.1:2", True),
        ("[::1]:1", "[::1]:2", True),
        ("[::ffff:127.0.0.1]:1", "[::ffff:127.0.0.1]:2", True),
        ("192.0.2.7:1", "192.0.2.7:2", True),
        ("[::ffff:192.0.2.7]:1", "192.0.2.7:2", True),
        ("[2001:db8::1]:1", "[2001:db8::1]:2", True),
        ("192.0.2.8:1", "192.0.2.7:2", False),
        ("192.0.2.7:1", "127.0.0.1:2", False),
        ("[2001:db8::2]:1", "[2001:db8::1]:2", False),
    ],
)
def test_peers_of_this_machine(remote: str, local: str, expected: bool) -> None:
    assert is_local(channel(remote, local)) is expected


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.0.0.2", True),
        ("localhost", True),
        ("::1", True),
        ("[::1]", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.0.2.7", False),
        ("", False),
        ("example.org", False),
    ],
)
def test_listeners_that_only_this_machine_reaches(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected
    for danger in SERVERS:
        assert (open_warning(danger, host, allows_remote=False) is None) is expected


def test_the_line_at_the_start_says_what_is_open_and_which_keys_close_it() -> None:
    closed = open_warning(BROKER, "0.0.0.0", allows_remote=False)
    opened = open_warning(BROKER, "0.0.0.0", allows_remote=True)
    assert closed is not None
    assert opened is not None
    assert "anyone who reaches it may read and send messages" in closed
    assert "served to this machine only (allowRemoteAdministration=false)" in closed
    assert "and everything else too (allowRemoteAdministration=true)" in opened
    for key in ("bindAddress=127.0.0.1", "authenticationEnabled=true"):
        assert key in closed
        assert key in opened
