"""A send that failed after its message was appended left the turn without a commit.

A send to rmq_sys_wheel_timer without TIMER_OUT_MS ended in a KeyError after its message was
appended: it was answered with an error, and what the turn had appended waited for another turn.
"""

from __future__ import annotations

import pytest
import trio

from trocket.remoting.codec import RemotingCommand, encode
from trocket.store.config import FlushDiskType

from ..kit import Client, bodies, broker_and_client, embedded_broker, send_fields

SEND, PULL = 310, 11
TIMED = "UNIQ_KEY\1A\2TIMER_DELAY_SEC\0011\2"
HALF = "UNIQ_KEY\1A\2TRAN_MSG\1true\2PGROUP\1PG\2"
UNUSUAL_HALF = HALF + "CHECK_IMMUNITY_TIME_IN_SECONDS\0016\2"
ID = "broker.sending.send_message.encode_offset_id"
FRAME = "broker.puts.send_turn.encode"
STEPS = [
    pytest.param(ID, TIMED, id="timer"),
    pytest.param(ID, UNUSUAL_HALF, id="half"),
    pytest.param(FRAME, TIMED, id="timer's frame"),
    pytest.param(FRAME, UNUSUAL_HALF, id="half's frame"),
    pytest.param("broker.puts.send_turn.SendTurn.half_answer", HALF, id="usual half's frame"),
]
"""What is left to do for a send when its message is appended, and a send that does it."""


def fail_at(monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Have a step behind the append fail."""

    def fails(*_: object) -> None:
        raise RuntimeError("after the message was appended")

    monkeypatch.setattr(f"trocket.{step}", fails)


def request(opaque: int, body: bytes, **fields: object) -> bytes:
    texts = {name: str(value) for name, value in send_fields(**fields).items()}
    return encode(RemotingCommand(SEND, texts, body, opaque=opaque))


def sys_flag(properties: str) -> int:
    """That of a send with these properties: official clients set the bit of half messages."""
    return 4 if properties == HALF else 0


async def read(client: Client, opaques: set[int]) -> dict[int, RemotingCommand]:
    """The answers to some requests."""
    with trio.fail_after(10):
        return {opaque: await client.answer(opaque) for opaque in sorted(opaques)}


async def test_a_send_to_the_timer_topic_without_a_time_is_refused_and_not_stored(autojump_clock):
    async with broker_and_client() as (broker, client):
        for properties in ("UNIQ_KEY\1A\2", "UNIQ_KEY\1A\2TIMER_DELAY_SEC\0015\2"):
            fields = send_fields("rmq_sys_wheel_timer", i=properties)
            assert (await client.ask(SEND, fields, b"x")).code == 16
        assert broker.controller.store.max_physical_offset == 0


@pytest.mark.slow
@pytest.mark.parametrize("flush", list(FlushDiskType))
@pytest.mark.parametrize(("step", "properties"), STEPS)
async def test_what_a_failing_send_appended_is_committed_at_the_end_of_its_turn(
    step, properties, flush, autojump_clock, monkeypatch
):
    async with broker_and_client(flush_disk_type=flush) as (broker, client):
        await client.ask(SEND, send_fields(), b"first")
        end = broker.controller.store.max_physical_offset
        fail_at(monkeypatch, step)
        answer = await client.ask(SEND, send_fields(i=properties, f=sys_flag(properties)), b"alone")
        assert (answer.code, answer.remark) == (1, "RuntimeError: after the message was appended")
        await trio.sleep(1)
        assert broker.controller.store.max_physical_offset > end
        assert broker.controller.store.dispatched_offset > end
        if properties == TIMED:
            await trio.sleep(2)
            assert await bodies(await broker.connect()) == [b"first", b"alone"]
        else:
            assert len(broker.controller.transactions.open) == 1


@pytest.mark.parametrize("flush", list(FlushDiskType))
@pytest.mark.parametrize(("step", "properties"), STEPS)
async def test_a_failing_send_leaves_the_answers_of_its_turn_as_they_are(
    step, properties, flush, autojump_clock, monkeypatch
):
    async with embedded_broker(flush_disk_type=flush) as broker:
        client, other = await broker.connect(), await broker.connect()
        fail_at(monkeypatch, step)
        await client.stream.send_all(
            request(1, b"one")
            + request(2, b"two", i=properties, f=sys_flag(properties))
            + request(3, b"three")
            + request(4, b"four", i=properties, f=sys_flag(properties))
        )
        await other.stream.send_all(request(5, b"five"))
        answers = await read(client, {1, 2, 3, 4}) | await read(other, {5})
        assert sorted(await bodies(await broker.connect())) == [b"five", b"one", b"three"]
    assert {opaque: answer.code for opaque, answer in answers.items()} == {
        1: 0, 2: 1, 3: 0, 4: 1, 5: 0,
    }  # fmt: skip
    offsets = [int(answers[opaque].ext_fields["queueOffset"]) for opaque in (1, 3, 5)]
    assert sorted(offsets) == [0, 1, 2]
