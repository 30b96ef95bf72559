"""Recordings of embedded brokers: in memory and on ports, and what is left out."""

from __future__ import annotations

import json

import pytest
import trio

from trocket.interop.relay import Relay
from trocket.remoting.codec import RemotingCommand, encode
from trocket.testing import Broker, EmbeddedBrokerError, MemoryBroker, RequestCode
from trocket.testing.recording.frame_lines import frame_object
from trocket.testing.recording.frame_stream import SeenFrame
from trocket.testing.recording.replay import RecordingError, Replayed
from trocket.testing.recording.tape import BYTES_MAX, FRAMES_MAX, Tape

from .blocking_client import Client, send_fields

SEND = int(RequestCode.SEND_MESSAGE_V2)
HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
REQUEST = encode(RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO, {"a": "b"}))


def tape() -> Tape:
    return Tape(lambda: 1)


def lines(recording: str) -> list[dict[str, object]]:
    return [json.loads(each) for each in recording.splitlines()]


async def test_a_broker_in_memory_records_and_replays(autojump_clock) -> None:
    async with MemoryBroker() as broker:
        stream = await broker.open_stream("127.0.0.1", 10911)
        await broker.record()
        fields = {name: str(value) for name, value in send_fields("Orders").items()}
        await stream.send_all(encode(RemotingCommand(SEND, fields, b"bread")))
        assert await stream.receive_some(1 << 16)
        await broker.advance(hours=1)
        recording = await broker.stop_recording()
        assert [each["at_ms"] for each in lines(recording)] == [broker.now_ms - 3_600_000] * 2
        assert await broker.replay(recording) == [Replayed(SEND, 0, 0)]
        assert [each.text for each in await broker.messages("Orders")] == ["bread", "bread"]
        with pytest.raises(EmbeddedBrokerError, match="nothing is recorded"):
            await broker.stop_recording()


def test_a_broker_on_ports_does_so_over_a_crash() -> None:
    with Broker() as broker:
        broker.record()
        for _ in range(2):
            with Client(broker.broker_address) as client:
                assert client.send("Orders", b"bread").code == 0
            broker.crash(power_loss=False)
        recording = broker.stop_recording()
        assert broker.replay(recording) == [Replayed(SEND, 0, 0)] * 2
        assert len(broker.messages("Orders")) == 4
        with pytest.raises(RecordingError, match="line 1"):
            broker.replay("no recording")


async def test_a_closed_connection_ends_no_replay(autojump_clock) -> None:
    async with MemoryBroker() as broker:
        stream = await broker.open_stream("127.0.0.1", 10911)
        await broker.record()
        for _ in range(2):  # with the same opaque
            await stream.send_all(encode(RemotingCommand(28, {})))
            assert await stream.receive_some(1 << 16)
        recording = await broker.stop_recording()
        fault = broker.faults.disconnect(28)
        assert await broker.replay(recording) == [Replayed(28, 0, None), Replayed(28, 0, 0)]
        assert fault.hits == 1


async def test_an_answer_that_does_not_come_ends_a_replay_in_time(autojump_clock) -> None:
    async with MemoryBroker() as broker:
        stream = await broker.open_stream("127.0.0.1", 10911)
        await broker.record()
        await stream.send_all(encode(RemotingCommand(28, {})))
        assert await stream.receive_some(1 << 16)
        recording = await broker.stop_recording()
        broker.faults.swallow(28)
        began_s = trio.current_time()
        assert await broker.replay(recording) == [Replayed(28, 0, None)]
        assert 0 < trio.current_time() - began_s < 60


def test_what_interop_records_is_replayed_too() -> None:
    seen: list[SeenFrame] = []
    with Broker() as broker:
        relay = Relay(broker.broker_address, on_frame=seen.append)
        with relay, Client(relay.address) as client:
            assert client.send("Orders", b"bread").code == 0
        recording = "".join(json.dumps(frame_object(each)) + "\n" for each in seen)
        assert broker.replay(recording) == [Replayed(SEND, 0, 0)]
        assert len(broker.messages("Orders")) == 2


def test_a_recording_begins_with_a_whole_frame() -> None:
    recorder = tape()
    tap = recorder.tap("1.1.1.1:1", "2.2.2.2:2")
    tap.take(True, REQUEST[:5])
    recorder.start()
    tap.take(True, REQUEST[5:] + REQUEST)
    assert len(lines(recorder.stop())) == 2


@pytest.mark.parametrize("first", [HTTP2, b"\x16\x03\x01" + bytes(200)])
def test_other_protocols_are_left_out(first: bytes) -> None:
    recorder = tape()
    recorder.start()
    tap = recorder.tap("1.1.1.1:1", "2.2.2.2:2")
    tap.take(True, first)
    tap.take(True, REQUEST)
    assert recorder.stop() == ""


def test_what_the_broker_asks_its_name_server_is_left_out() -> None:
    registration = encode(RemotingCommand(RequestCode.REGISTER_BROKER, {}))
    recorder = tape()
    early = recorder.tap("1.1.1.1:1", "2.2.2.2:2")
    early.take(True, registration)
    recorder.start()
    early.take(True, REQUEST)
    recorder.tap("1.1.1.1:2", "2.2.2.2:2").take(True, registration + REQUEST)
    assert recorder.stop() == ""
    recorder.start()
    recorder.tap("1.1.1.1:3", "2.2.2.2:2").take(True, REQUEST + registration + REQUEST)
    assert len(lines(recorder.stop())) == 1


@pytest.mark.parametrize(
    ("count", "size"), [(FRAMES_MAX + 1, 0), (BYTES_MAX // 1_000_000 + 1, 1_000_000)]
)
def test_too_much_is_no_recording(count: int, size: int) -> None:
    recorder = tape()
    recorder.start()
    tap = recorder.tap("1.1.1.1:1", "2.2.2.2:2")
    frame = encode(RemotingCommand(SEND, {}, bytes(size)))
    for _ in range(count):
        tap.take(True, frame)
    with pytest.raises(EmbeddedBrokerError, match="too much for a recording"):
        recorder.stop()
    recorder.start()
    assert recorder.stop() == ""
