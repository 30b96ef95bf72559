"""client/grpc/translator.py: pops, what becomes of messages, and the commands of servers."""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from typing import Any

import pytest

from trocket.grpc_protocol.enums import Code, DigestType, Encoding
from trocket.remoting.bodies import (
    ConsumeType,
    ProducerData,
)
from trocket.remoting.codec import RemotingCommand, encode
from trocket.remoting.headers.base import encode_header
from trocket.remoting.message_codec import decode_record
from trocket.remoting.pop_requests import (
    Settled,
    ack_header,
    batch_ack_body,
    change_header,
    read_change,
    read_pop,
)
from trocket.remoting.receipt import TopicForm
from trocket.remoting.request_codes import RequestCode
from trocket.remoting.response_codes import ResponseCode

from .translated import (
    GROUP,
    NOW_MS,
    OK,
    PLACE,
    SUBSCRIPTION,
    TOPIC,
    World,
    heartbeat,
)


@pytest.fixture
def world() -> World:
    return World()


# ---- pops --------------------------------------------------------------------------------


def test_a_pop_waits_at_the_server_beyond_its_poll(world: World):
    world.announce()
    request, call = world.pop(poll_ms=15_000)
    assert call.timeout_s == 25
    assert request.message_queue.id == -1
    assert request.message_queue.broker.name == "b"
    assert request.long_polling_timeout.ToMilliseconds() == 15_000
    assert request.invisible_duration.ToMilliseconds() == 60_000
    assert not request.auto_renew
    assert len(request.attempt_id) == 36
    make = world.profile.messages.ReceiveMessageResponse
    nothing = make(status={"code": Code.MESSAGE_NOT_FOUND, "message": "no new message"})
    world.server.answer(call, nothing.SerializeToString())
    assert world.answered().code == ResponseCode.POLLING_TIMEOUT


def test_a_short_pop_is_given_up_at_its_time(world: World):
    world.announce()
    _, call = world.pop(poll_ms=500)
    assert call.timeout_s == 15  # servers refuse less than their shortest wait
    assert world.pass_time(1.4) == []
    (event,) = world.pass_time(0.2)
    assert event.answer.code == ResponseCode.POLLING_TIMEOUT
    assert world.cancelled == ["ReceiveMessage"]


def test_a_cancelled_request_resets_its_call(world: World):
    world.announce()
    world.pop()
    world.translator.forget(2)
    assert world.take() == []
    assert world.cancelled == ["ReceiveMessage"]


def test_a_message_is_settled_by_the_servers_handle_whatever_it_looks_like(world: World):
    world.announce()
    (popped,) = read_pop(world.receive(world.message()), PLACE, SUBSCRIPTION).messages
    assert popped.ext.body == b"body"
    assert (popped.ext.queue_id, popped.ext.queue_offset) == (1, 7)
    assert (popped.ext.born_host_text, popped.ext.store_host_text) == (
        "192.0.2.9:1234",
        "0.0.0.0:0",
    )
    receipt = popped.receipt
    header = change_header(receipt, TOPIC, GROUP, 30_000)
    code = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
    world.ask(RemotingCommand(code, encode_header(header)))
    request, call = world.asked("ChangeInvisibleDuration")
    assert (request.receipt_handle, request.message_id) == ("opaque handle", "ID")
    world.answer(call, status=OK, receipt_handle="another handle")
    receipt = read_change(world.answered(), receipt)
    world.ask(
        RemotingCommand(RequestCode.ACK_MESSAGE, encode_header(ack_header(receipt, TOPIC, GROUP)))
    )
    request, call = world.asked("AckMessage")
    assert [each.receipt_handle for each in request.entries] == ["another handle"]
    entry = {"receipt_handle": "another handle", "status": OK}
    world.answer(call, status=OK, entries=[entry])
    assert world.answered().code == ResponseCode.SUCCESS
    assert len(world.profile.deliveries) == 0
    world.ask(
        RemotingCommand(RequestCode.ACK_MESSAGE, encode_header(ack_header(receipt, TOPIC, GROUP)))
    )
    assert world.answered().code == ResponseCode.NO_MESSAGE


def test_a_batch_of_acks_passes_over_what_has_expired(world: World):
    world.announce()
    given = [
        world.message(queue_offset=number, receipt_handle=f"handle {number}") for number in range(3)
    ]
    found = read_pop(world.receive(*given), PLACE, SUBSCRIPTION).messages
    settled = [Settled(TOPIC, each.receipt) for each in found]
    body = batch_ack_body("b", GROUP, settled)
    world.ask(RemotingCommand(RequestCode.BATCH_ACK_MESSAGE, body=body))
    request, call = world.asked("AckMessage")
    assert [each.receipt_handle for each in request.entries] == ["handle 0", "handle 1", "handle 2"]
    expired = {"code": Code.INVALID_RECEIPT_HANDLE}
    entries = [
        {"receipt_handle": "handle 0", "status": OK},
        {"receipt_handle": "handle 1", "status": expired},
        {"receipt_handle": "handle 2", "status": OK},
    ]
    world.answer(call, status={"code": Code.MULTIPLE_RESULTS}, entries=entries)
    assert world.answered().code == ResponseCode.SUCCESS


def test_a_handle_of_the_proxy_says_where_the_message_is(world: World):
    world.announce()
    handle = f"5 {NOW_MS} 60000 3 1 b 1 7 4096"
    message = world.message(receipt_handle=handle, store_host="192.0.2.7:10911")
    (popped,) = read_pop(world.receive(message), PLACE, SUBSCRIPTION).messages
    assert popped.receipt.form is TopicForm.RETRY_V1
    assert popped.ext.offset_message_id == "C000020700002A9F0000000000001000"


def md5(body: bytes) -> dict[str, Any]:
    return {"type": DigestType.MD5, "checksum": hashlib.md5(body).hexdigest().upper()}


GZIPPED = gzip.compress(b"plain", mtime=0)  # all workers collect the same tests
CRC32: dict[str, Any] = {"type": DigestType.CRC32, "checksum": f"{zlib.crc32(b'plain'):X}"}
SHA1: dict[str, Any] = {"type": DigestType.SHA1, "checksum": hashlib.sha1(b"plain").hexdigest()}


@pytest.mark.parametrize(
    ("body", "encoding", "digest"),
    [
        (b"plain", Encoding.IDENTITY, md5(b"plain")),
        (b"plain", Encoding.IDENTITY, CRC32),
        (b"plain", Encoding.IDENTITY, SHA1),
        (GZIPPED, Encoding.GZIP, md5(GZIPPED)),
        (zlib.compress(b"plain"), Encoding.GZIP, {}),
        (b"plain", Encoding.GZIP, {}),
    ],
)  # fmt: skip
def test_bodies_are_checked_and_decompressed(
    world: World, body: bytes, encoding: Encoding, digest: dict[str, Any]
):
    world.announce()
    message = world.message(body, body_encoding=encoding, body_digest=digest)
    (popped,) = read_pop(world.receive(message), PLACE, SUBSCRIPTION).messages
    assert popped.ext.body == b"plain"


@pytest.mark.parametrize(
    ("body", "encoding", "digest"),
    [
        (b"wrong", Encoding.IDENTITY, md5(b"plain")),
        (b"wrong", Encoding.IDENTITY, {"type": DigestType.CRC32, "checksum": "no number"}),
        (GZIPPED[:-4], Encoding.GZIP, {}),
        (b"\x1f\x8b no gzip", Encoding.GZIP, {}),
        (b"\x78 no zlib", Encoding.GZIP, {}),
    ],
)
def test_a_damaged_body_is_left_out_and_the_others_are_delivered(
    world: World, caplog: Any, body: bytes, encoding: Encoding, digest: dict[str, Any]
):
    world.announce()
    damaged = world.message(body, body_encoding=encoding, body_digest=digest, queue_offset=1)
    answer = world.receive(damaged, world.message(b"good"))
    (popped,) = read_pop(answer, PLACE, SUBSCRIPTION).messages
    assert popped.ext.body == b"good"
    assert "is left out, and delivered again" in caplog.text
    assert world.receive(damaged).code == ResponseCode.POLLING_TIMEOUT


def test_a_fifo_group_is_pushed_one_message_at_a_time(world: World):
    world.announce(ConsumeType.CONSUME_PASSIVELY, subscription={"fifo": True})
    request, _ = world.pop()
    assert request.batch_size == 1


@pytest.mark.parametrize(
    ("policy", "delays_s"),
    [
        ({"customized_backoff": {"next": [{"seconds": 1}, {"seconds": 5}]}}, [1, 5, 5]),
        (
            {
                "exponential_backoff": {
                    "initial": {"seconds": 2}, "max": {"seconds": 5}, "multiplier": 2,
                }
            },
            [2, 4, 5],
        ),
    ],
)  # fmt: skip
def test_the_server_says_when_messages_are_delivered_again(
    world: World, policy: dict[str, Any], delays_s: list[float]
):
    assert world.profile.retry_policy(GROUP) is None
    world.announce(subscription={}, backoff_policy={"max_attempts": 9} | policy)
    found = world.profile.retry_policy(GROUP)
    assert found is not None
    assert found.attempts_max == 9
    assert [found.delay_s(number) for number in range(3)] == delays_s


# ---- commands of the server --------------------------------------------------------------


def test_a_check_becomes_a_brokers_request_and_its_answer_an_end(world: World):
    world.ask(heartbeat(producers=[ProducerData(group_name="PG")]))
    _, telemetry = world.asked("Telemetry")
    order = {"message": world.message(b"half"), "transaction_id": "TX"}
    world.answer(telemetry, recover_orphaned_transaction_command=order)
    (check,) = world.take()
    assert check.code == RequestCode.CHECK_TRANSACTION_STATE
    assert check.is_oneway
    assert check.ext_fields["transactionId"] == "TX"
    record = decode_record(check.body)
    assert (record.body, record.find(b"PGROUP")) == (b"half", "PG")
    fields = {
        "producerGroup": "PG", "tranStateTableOffset": "0", "commitLogOffset": "0",
        "commitOrRollback": "8", "fromTransactionCheck": "true", "msgId": "ID",
        "transactionId": "TX", "topic": TOPIC,
    }  # fmt: skip
    command = RemotingCommand(RequestCode.END_TRANSACTION, fields, opaque=77, flag=2)
    world.translator.outgoing(encode(command))
    world.exchange()
    request, call = world.asked("EndTransaction")
    assert (request.transaction_id, request.message_id) == ("TX", "ID")
    assert (request.resolution, request.source) == (1, 2)
    world.answer(call, status=OK)
    assert world.take() == []


def test_a_test_delivery_is_reported_and_stacks_are_printed(world: World):
    telemetry = world.announce(ConsumeType.CONSUME_PASSIVELY)
    order = {"nonce": "n1", "message": world.message(b"try it")}
    for result, code in (("CR_SUCCESS", Code.OK), ("CR_LATER", Code.FAILED_TO_CONSUME_MESSAGE)):
        world.answer(telemetry, verify_message_command=order)
        (request,) = world.take()
        assert request.code == RequestCode.CONSUME_MESSAGE_DIRECTLY
        assert decode_record(request.body).body == b"try it"
        body = json.dumps({"consumeResult": result}).encode()
        world.translator.outgoing(encode(request.answer(body=body)))
        world.exchange()
        report, _ = world.asked("Telemetry")
        assert (report.verify_message_result.nonce, report.status.code) == ("n1", code)
    world.answer(telemetry, print_thread_stack_trace_command={"nonce": "n2"})
    report, _ = world.asked("Telemetry")
    assert report.thread_stack_trace.nonce == "n2"
    assert "test_translated_pops.py" in report.thread_stack_trace.thread_stack_trace


def test_a_server_that_asks_for_another_connection_is_left(world: World):
    telemetry = world.announce()
    _, call = world.pop()
    assert not world.translator.is_leaving
    world.answer(telemetry, reconnect_endpoints_command={"nonce": "n"})
    assert world.translator.is_leaving
    assert not world.translator.is_idle
    world.server.answer(call)  # those under way go on
    world.take()
    assert world.translator.is_idle
