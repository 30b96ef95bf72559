"""A flood of wrongly signed requests: each is refused, and honest clients are served meanwhile."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from trocket.auth.model import User
from trocket.remoting.codec import encode
from trocket.remoting.response_codes import ResponseCode

from ..auth.signed import INIT_USER, ROOT, signed
from ..kit import embedded_broker, send_fields
from ..kit.client import Client

SEND = 310
COUNT = 2_000
FORGERS = {
    "a wrong key": User(ROOT.username, "wrong"),
    "an unknown user": User("nobody", "x"),
    "nobody": None,
}


def forged(user: User | None, body: bytes, count: int) -> bytes:
    """Sends that a stranger signed, with opaques from 1 on."""
    frames = []
    for opaque in range(1, count + 1):
        request = signed(SEND, send_fields(), body, user=user)
        request.opaque = opaque
        frames.append(encode(request))
    return b"".join(frames)


async def refusals(stranger: Client, data: bytes, count: int) -> set[int]:
    """Send forged requests; the codes of all answers."""
    codes = set()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stranger.write, data)
        for opaque in range(1, count + 1):
            codes.add((await stranger.answer(opaque)).code)
    return codes


@pytest.mark.slow
@pytest.mark.parametrize("forger", FORGERS)
async def test_wrongly_signed_requests_are_refused_and_right_ones_served(
    autojump_clock: trio.testing.MockClock, forger: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with embedded_broker(
        authentication_enabled=True,
        authorization_enabled=True,
        init_authentication_user=INIT_USER,
    ) as broker:
        stranger = await broker.connect(address="198.51.100.7:1")
        honest = await broker.connect(address="192.0.2.2:1")
        await honest.ask(SEND, signed(SEND, send_fields(), b"x").ext_fields, b"x")
        data = forged(FORGERS[forger], b"forged", COUNT)
        codes: set[int] = set()

        async def flood() -> None:
            codes.update(await refusals(stranger, data, COUNT))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(flood)
            for _ in range(20):
                answer = await honest.ask(SEND, signed(SEND, send_fields(), b"x").ext_fields, b"x")
                assert answer.code == ResponseCode.SUCCESS
        assert codes == {ResponseCode.NO_PERMISSION}
        assert broker.controller.store.max_offset("T", 0) == 21
    assert ROOT.password not in caplog.text


@pytest.mark.slow
async def test_large_forged_bodies_do_not_stay_in_memory(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with embedded_broker(
        authentication_enabled=True, init_authentication_user=INIT_USER
    ) as broker:
        stranger = await broker.connect(address="198.51.100.7:1")
        data = forged(FORGERS["a wrong key"], bytes(1 << 20), 20)
        assert await refusals(stranger, data, 20) == {ResponseCode.NO_PERMISSION}
        assert broker.controller.server is not None
        assert broker.controller.server.memory.used == 0
