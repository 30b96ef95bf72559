"""Transactions as blocks, in both loops."""

from __future__ import annotations

import anyio
import pytest

from trocket import (
    ClosedError,
    Message,
    MessageRefusedError,
    ReceivedMessage,
    ServerError,
    TransactionProducer,
    TransactionState,
)
from trocket.remoting.request_codes import RequestCode
from trocket.remoting.response_codes import ResponseCode
from trocket.testing import Broker

from .conftest import Play

DEADLINE_S = 20.0


def never(message: ReceivedMessage) -> TransactionState:
    raise AssertionError("the check must not be called")


def bodies(broker: Broker, topic: str) -> list[bytes]:
    """All bodies; the first as it was stored, those that a check commits sorted."""
    first, *others = [message.body for message in broker.messages(topic)] or [b""]
    return [first, *sorted(others)] if first else []


async def until_stored(broker: Broker, topic: str, expected: list[bytes]) -> None:
    """END_TRANSACTION is oneway: wait until the broker has processed it."""
    with anyio.fail_after(DEADLINE_S):
        while await anyio.to_thread.run_sync(bodies, broker, topic) != expected:
            await anyio.lowlevel.checkpoint()


def test_the_end_of_the_block_commits(play: Play, broker: Broker, topic: str, group: str) -> None:
    async def scenario() -> None:
        async with TransactionProducer(broker.url, group=group, check=never) as producer:
            begun = producer.transaction(Message(topic, "one"))
            with pytest.raises(ClosedError, match="not begun"):
                _ = begun.result
            async with begun as transaction:
                assert transaction.state is None
                assert transaction.result.message_id
                assert bodies(broker, topic) == []
            assert transaction.state is TransactionState.COMMIT
            await until_stored(broker, topic, [b"one"])
            with pytest.raises(ClosedError, match="begun already"):
                await transaction.__aenter__()

    play(scenario)


def test_a_rollback_drops_and_an_exception_or_a_cancellation_is_checked(
    play: Play, broker: Broker, topic: str, group: str
) -> None:
    asked: list[bytes] = []

    def check(message: ReceivedMessage) -> TransactionState:
        asked.append(message.body)
        return TransactionState.COMMIT

    async def scenario() -> None:
        asked.clear()
        async with TransactionProducer(broker.url, group=group, check=check) as producer:
            failed = producer.transaction(Message(topic, "failed"))
            with pytest.raises(ZeroDivisionError):
                async with failed:
                    raise ZeroDivisionError
            cancelled = producer.transaction(Message(topic, "cancelled"))
            with anyio.CancelScope() as scope:
                async with cancelled:
                    scope.cancel()
                    await anyio.sleep_forever()
            async with producer.transaction(Message(topic, "unwanted")) as unwanted:
                unwanted.rollback()
            dropped = producer.transaction(Message(topic, "dropped"))
            with pytest.raises(ZeroDivisionError):  # noqa: PT012 - the block's end is what is tried
                async with dropped:
                    dropped.rollback()
                    raise ZeroDivisionError
            states = [each.state for each in (failed, cancelled, unwanted, dropped)]
            assert states == [TransactionState.UNKNOWN] * 2 + [TransactionState.ROLLBACK] * 2
            # Its COMMIT is behind their outcomes on the same connection.
            async with producer.transaction(Message(topic, "last")):
                pass
            await until_stored(broker, topic, [b"last"])
            # The database may have committed in the blocks that raised: the check decides.
            await anyio.to_thread.run_sync(lambda: broker.advance(minutes=2))
            await until_stored(broker, topic, [b"last", b"cancelled", b"failed"])
            assert sorted(asked) == [b"cancelled", b"failed"]

    play(scenario)


def test_a_message_that_cannot_be_stored_well_does_not_enter_the_block(
    play: Play, broker: Broker, topic: str, group: str
) -> None:
    async def scenario() -> None:
        async with TransactionProducer(broker.url, group=group, check=never) as producer:
            with pytest.raises(MessageRefusedError, match="delayed"):
                async with producer.transaction(Message(topic, "late", delay_level=1)):
                    pytest.fail("entered")
            broker.faults.refuse(RequestCode.SEND_MESSAGE_V2, ResponseCode.MESSAGE_ILLEGAL, times=1)
            with pytest.raises(ServerError):
                async with producer.transaction(Message(topic, "refused")):
                    pytest.fail("entered")

    play(scenario)
