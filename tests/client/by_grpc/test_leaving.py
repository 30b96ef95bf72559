"""A connection by gRPC on a stream in memory: GOAWAY, and bytes that no server would send."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
import trio
import trio.testing

from trocket.client.connection.connection import Connection
from trocket.client.connection.transport import StreamTransport
from trocket.client.errors import ClientError, ConnectError
from trocket.client.grpc.client_profile import PATH, Profile
from trocket.client.grpc.translator import Translator
from trocket.grpc_protocol.engine_ngh2 import Ngh2Engine
from trocket.grpc_protocol.session import Asked, GrpcSession
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.response_codes import ResponseCode
from trocket.remoting.session import State
from trocket.testing.memory_stream import MemoryStream

from .translated import ADDRESS, NOTHING, NOW_MS, OK, World, send_command

SEED = 20_261_128
GOAWAY = bytes.fromhex("0000080700000000000000000100000000")
"""As Netty's: the first call was taken, later ones are not."""


async def test_calls_under_way_end_after_a_goaway_and_then_the_connection(autojump_clock: Any):
    near, far = trio.testing.memory_stream_pair()
    profile = Profile("me@1", "", None, lambda: NOW_MS)
    translator: Translator[Any] = Translator(profile, ADDRESS, trio.current_time, is_secure=False)
    connection = Connection(
        StreamTransport(MemoryStream(near)), ADDRESS, lambda *_: None, translator=translator
    )
    server = GrpcSession(Ngh2Engine(), {PATH + "SendMessage"})
    answers: list[RemotingCommand | ClientError] = []

    async def send(opaque: int) -> None:
        command = send_command(NOTHING)
        command.opaque = opaque
        try:
            answers.append(await connection.call(command, 30.0))
        except ClientError as error:
            answers.append(error)

    async def asked() -> Asked:
        while True:
            for event in server.receive(await far.receive_some()):
                if isinstance(event, Asked):
                    return event
            await far.send_all(server.output()[0])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(connection.run)
        nursery.start_soon(send, 1)
        first = await asked()
        nursery.start_soon(send, 2)
        await asked()
        await far.send_all(server.output()[0] + GOAWAY)
        await trio.testing.wait_all_tasks_blocked()
        # The second call was not taken: it fails so that it is tried again elsewhere.
        (refused,) = answers
        assert isinstance(refused, ConnectError)
        assert "takes no more calls" in str(refused)
        assert connection.closed  # for new requests
        entry = {"status": OK, "message_id": "ID"}
        answer = profile.messages.SendMessageResponse(status=OK, entries=[entry])
        server.answer(first.call, answer.SerializeToString())
        await far.send_all(server.output()[0])
        await trio.testing.wait_all_tasks_blocked()
        assert isinstance(answers[1], RemotingCommand)
        assert answers[1].code == ResponseCode.SUCCESS
    # `run` has returned, as nothing is left to be answered.
    assert connection.close_reason in (
        "the server asked for another connection",
        "the peer closed the connection",
    )


@pytest.mark.parametrize("round_", range(10))
def test_no_bytes_of_a_server_raise(round_: int):
    random = Random(SEED + round_)
    recorded = World()
    taken: list[bytes] = []
    receive = recorded.translator.receive_data

    def record(data: bytes) -> Any:
        taken.append(data)
        return receive(data)

    recorded.translator.receive_data = record  # type: ignore[method-assign]
    recorded.announce()
    recorded.receive(recorded.message(b"one"), recorded.message(b"two", queue_offset=8))
    bytes_of_server = b"".join(taken)
    for _ in range(20):
        world = World()
        for command in (send_command(NOTHING), send_command(NOTHING)):
            world.ask(command)
        damaged = bytearray(bytes_of_server)
        for _ in range(random.randint(1, 8)):
            damaged[random.randrange(len(damaged))] = random.randrange(256)
        start = random.randrange(len(damaged))
        for part in (bytes(damaged[:start]), bytes(damaged[start:])):
            world.translator.receive_data(part)
            world.translator.output()
            world.translator.events()
        world.now_s += 60
        world.translator.expire(world.now_s)
        world.translator.output()
        if world.translator.state is not State.CLOSED:
            world.translator.close("the test is over")
