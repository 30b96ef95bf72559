"""Requests of a broker to its clients that break the protocol: refused, and the client goes on."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import trio
import trio.testing

from tests.client.scripted_broker import URL, ScriptedBrokers, refusal, scripted
from trocket import (
    ClientError,
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
    SimpleConsumer,
    TransactionProducer,
)
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.hosts import host_bytes
from trocket.remoting.message_codec import encode_record
from trocket.remoting.request_codes import RequestCode
from trocket.remoting.response_codes import ResponseCode

DEADLINE_S = 60.0
RANDOM_COUNT = 200
SEED = 20261127
HOST = host_bytes("127.0.0.1", 1)
UNKNOWN_CODE = 29_999
TO_CLIENTS = (
    RequestCode.CHECK_TRANSACTION_STATE,
    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
    RequestCode.GET_CONSUMER_RUNNING_INFO,
    RequestCode.CONSUME_MESSAGE_DIRECTLY,
    RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
)
"""The requests that a broker sends to clients."""
NAMES = (
    "consumerGroup", "group", "topic", "brokerName", "bname", "msgId", "transactionId", "queueId",
    "tranStateTableOffset", "commitLogOffset", "offsetMsgId", "sysFlag", "bornTimestamp",
    "bornHost", "storeHost", "storeTimestamp", "properties", "producerGroup", "flag",
)  # fmt: skip
VALUES = (
    "", "x", "-1", "1", "8", "9" * 30, "1e3", " 1", "\x00", "g", "\u0661", "T", "\x01\x02", "null",
)  # fmt: skip
HALF = encode_record(
    "T", 0, 0, 0, b"half", b"PGROUP\x01g\x02UNIQ_KEY\x01k\x02", born_timestamp_ms=0,
    born_host=HOST, store_timestamp_ms=0, store_host=HOST,
)  # fmt: skip
"""A message that may be checked, consumed directly or be a reply."""
BODIES = (
    HALF, HALF[:-1], HALF.replace(b"half", b"HALF"),
    b"", b"\x00", b"{", b"null", b"[]", b'{"offsetTable":[]}', b'{"offsetTable":{"x":"y"}}',
    b'{"offsetTable":{{"topic":1}:2}}', b"\xff" * 200, b"\x00\x00\x00\x5a\xda\xa3\x20\xa7",
)  # fmt: skip


def check(message: object) -> str:
    return "commit"


async def handle(message: object) -> None:
    """What it is given does not matter."""


def producer(brokers: ScriptedBrokers) -> Producer:
    return Producer(URL, group="g", retry_times=0, dial=brokers.dial)


def transaction_producer(brokers: ScriptedBrokers) -> TransactionProducer:
    return TransactionProducer(URL, group="g", check=check, retry_times=0, dial=brokers.dial)


def push_consumer(brokers: ScriptedBrokers) -> PushConsumer:
    return PushConsumer(URL, group="g", subscriptions={"T": "*"}, dial=brokers.dial)


def pop_consumer(brokers: ScriptedBrokers) -> PushConsumer:
    return PushConsumer(URL, group="g", subscriptions={"T": "*"}, mode="pop", dial=brokers.dial)


def simple_consumer(brokers: ScriptedBrokers) -> SimpleConsumer:
    return SimpleConsumer(URL, group="g", subscriptions={"T": "*"}, dial=brokers.dial)


def pull_consumer(brokers: ScriptedBrokers) -> PullConsumer:
    return PullConsumer(URL, group="g", dial=brokers.dial)


async def work(client: object) -> None:
    """Have a client do something that connects it to a broker."""
    match client:
        case Producer():
            with suppress(ClientError):
                await client.send(Message("T", "m"))
        case PushConsumer():
            await client.run(handle)
        case SimpleConsumer():
            with suppress(ClientError):
                await client.receive()
        case PullConsumer():
            client.subscribe("T")
            await client.poll()


def malformed(code: RequestCode, rng: random.Random) -> RemotingCommand:
    """A request with any fields and any body."""
    fields = {name: rng.choice(VALUES) for name in rng.sample(NAMES, rng.randrange(len(NAMES)))}
    return RemotingCommand(code, fields, rng.choice(BODIES))


@pytest.mark.slow
@pytest.mark.parametrize(
    "made",
    [producer, transaction_producer, push_consumer, pop_consumer, simple_consumer, pull_consumer],
)
@pytest.mark.parametrize("code", TO_CLIENTS, ids=lambda code: code.name)
async def test_a_client_outlives_malformed_requests(
    autojump_clock: trio.testing.MockClock,
    made: Callable[[ScriptedBrokers], Any],
    code: RequestCode,
) -> None:
    rng = random.Random(f"{SEED} {code}")
    async with scripted() as brokers, made(brokers) as client, trio.open_nursery() as nursery:
        brokers.answer(RequestCode.SEND_MESSAGE_V2, refusal(ResponseCode.MESSAGE_ILLEGAL))
        nursery.start_soon(work, client)
        with trio.fail_after(DEADLINE_S):
            await brokers.reached("b")
        for number in range(RANDOM_COUNT):
            request = malformed(code, rng)
            request.opaque = number
            await brokers.push("b", request)
        await brokers.push("b", RemotingCommand(UNKNOWN_CODE, opaque=RANDOM_COUNT))
        await trio.testing.wait_all_tasks_blocked()
        answers = {answer.opaque: answer.code for answer in brokers.answers("b")}
        assert answers[RANDOM_COUNT] == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert set(range(RANDOM_COUNT)) <= set(answers), f"seed {SEED}"
        nursery.cancel_scope.cancel()
