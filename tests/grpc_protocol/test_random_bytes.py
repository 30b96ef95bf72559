"""Random changes of what a client sends: the session never raises, and holds a limited size."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from trocket.grpc_protocol.engine import Engine
from trocket.grpc_protocol.session import Asked, GrpcSession

from .client import SEND, TELEMETRY, Client, headers_of
from .test_session import ENGINES

SIZE_MAX = 100_000


def sent(random: Random) -> bytes:
    """The bytes of a client's first calls."""
    client = Client(window=random.choice((None, 0, 1_000)))
    for _ in range(random.randint(1, 6)):
        path = random.choice((SEND, TELEMETRY, "/no/Method"))
        messages = [
            random.randbytes(random.choice((0, 3, 5_000))) for _ in range(random.choice((0, 1, 2)))
        ]
        more = [("grpc-timeout", random.choice(("1S", "0n", "x")))] if random.random() < 0.3 else []
        stream = client.call(
            path, *messages, ends=random.random() < 0.7, headers=headers_of(path, *more)
        )
        if random.random() < 0.2:
            client.connection.reset_stream(stream)
        if random.random() < 0.2:
            client.connection.ping(b"12345678")
    return client.output()


def changed(random: Random, data: bytes) -> bytes:
    made = bytearray(data)
    for _ in range(random.choice((0, 1, 2, 5))):
        at = random.randrange(24, len(made))  # the preface stays
        match random.randrange(4):
            case 0:
                made[at] ^= 1 << random.randrange(8)
            case 1:
                made[at] = random.choice((0, 1, 0x7F, 0xFF))
            case 2:
                del made[at : at + random.choice((1, 4, 9, 30))]
            case _:
                copied = random.randrange(24, len(made))
                made[at:at] = made[copied : copied + random.randrange(60)]
        if len(made) < 30:
            break
    return bytes(made)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seed", range(40))
def test_a_session_takes_any_bytes(engine: Callable[[], Engine], seed: int) -> None:
    for number in range(10):
        random = Random(seed * 1_000 + number)
        session = GrpcSession(
            engine(), {SEND, TELEMETRY}, streams={TELEMETRY}, message_size_max=SIZE_MAX
        )
        data = changed(random, sent(random))
        while data:
            size = random.choice((1, 9, 100, 10_000))
            events = session.receive(data[:size])
            data = data[size:]
            for event in events:
                if not isinstance(event, Asked):
                    continue
                match random.randrange(4):
                    case 0:
                        session.answer(event.call, random.randbytes(random.choice((0, 10, 30_000))))
                    case 1:
                        session.send(event.call, b"part")
                    case 2:
                        session.finish(event.call)
                    case _:
                        pass
            session.output()
            assert session.held_size <= len(session.calls) * (SIZE_MAX + 5) + 6 * 30_005
            if session.broken is not None:
                assert not session.calls
