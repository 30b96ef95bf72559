"""Pulls and wakes: a broker with the C extension and one in pure Python give the same answers and
leave the same bytes on disk, whatever they are asked for."""

from __future__ import annotations

import json
import os
from random import Random
from typing import Any, Final

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit import pull_fields, send_fields
from trocket import native
from trocket.broker.pulling.pull_runs import PullRunProcessor
from trocket.broker.waiting.pull import Pull
from trocket.broker.waiting.pull_request_hold import HeldPull
from trocket.remoting.codec import FrameDecoder, RemotingCommand, encode
from trocket.remoting.pull_fields import PullFields
from trocket.remoting.pull_templates import Numbers, template_of

from ..kit import broker_and_client
from .frames import frame
from .test_sends import USUAL, outcome, send_of, setup_bursts

pytestmark = pytest.mark.skipif(native.extension is None, reason=native.choice.description)

RUNS: Final = int(os.environ.get("TROCKET_NATIVE_RUNS", "1"))
SEED: Final = int(os.environ.get("TROCKET_NATIVE_SEED", "1"))
CLASSES: Final = (RemotingCommand, PullFields, Pull, HeldPull)
FIELDS: Final = {
    "consumerGroup": "CG", "topic": "T", "queueId": "1", "queueOffset": "12",
    "maxMsgNums": "32", "sysFlag": "7", "commitOffset": "12", "suspendTimeoutMillis": "600000",
    "subscription": "*", "subVersion": "0", "expressionType": "TAG", "maxMsgBytes": "2147483647",
    "bname": "broker-a",
}  # fmt: skip
JAVA_JSON: Final = (
    b'{"code":11,"extFields":{"queueId":"1","maxMsgNums":"32","sysFlag":"7","suspendTimeoutMillis":'
    b'"15000","commitOffset":"0","topic":"T","queueOffset":"0","expressionType":"TAG",'
    b'"subVersion":"1700000000000","consumerGroup":"CG"},"flag":0,"language":"JAVA","opaque":9,'
    b'"serializeTypeCurrentRPC":"JSON","version":501}'
)
"""As RocketMQ's Java client writes a pull."""


def pull(fields: dict[str, str], opaque: int, code: int = 11, serialize_type: int = 1) -> bytes:
    return frame(code, fields, opaque=opaque, serialize_type=serialize_type)


def in_json(header: bytes) -> bytes:
    return (4 + len(header)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header


def taken(template: Any, data: bytes, position: int = 0) -> tuple[int, list[RemotingCommand]]:
    """The commands that the extension makes of frames."""
    assert native.extension is not None
    commands: list[RemotingCommand] = []
    end = native.extension.take_pulls(
        CLASSES, template, None, data, position, 1 << 20, commands, []
    )
    return end, commands


def decoded(data: bytes) -> list[RemotingCommand]:
    return FrameDecoder(frame_size_max=1 << 20).receive_data(data)


USUAL_PULLS: Final = [
    pull(FIELDS, 7), pull(FIELDS, -7), pull(FIELDS, 7, 361), pull(FIELDS, 7, serialize_type=0),
    pull(dict(reversed(FIELDS.items())), 7), in_json(JAVA_JSON),
]  # fmt: skip
UNUSUAL_PULLS: Final = [
    pull({**FIELDS, "queueId": "01"}, 7),
    pull({**FIELDS, "queueOffset": "-1"}, 7),
    pull({name: value for name, value in FIELDS.items() if name != "commitOffset"}, 7),
    pull({**FIELDS, "subscription": "x" * 3000}, 7),
    frame(11, FIELDS, b"a body", opaque=7, serialize_type=1),
    frame(11, FIELDS, opaque=7, flag=2, serialize_type=1),
    frame(11, FIELDS, opaque=7, serialize_type=1, remark=b"why"),
    in_json(JAVA_JSON.replace(b'"queueId":"1"', b'"queueId":1')),
    in_json(JAVA_JSON.replace(b'"queueId":"1"', b'"queueId":"1","queueId":"2"')),
    in_json(JAVA_JSON.replace(b'"queueId":"1"', b'"queueId":"1","queueId" :"2"')),
    in_json(JAVA_JSON.replace(b'"opaque":9', b'"opaque":-9')),
    in_json(JAVA_JSON.replace(b"{", b'{"other":{"queueId":"1"},', 1)),
    in_json(JAVA_JSON[:-1]), in_json(b""), in_json(b"[]"), b"\0" * 8, b"",
]  # fmt: skip


@pytest.mark.parametrize("data", USUAL_PULLS)
def test_a_template_makes_the_commands_of_the_decoder(data: bytes) -> None:
    template = template_of(data)
    assert template is not None
    frames = [
        template.frame(Numbers(opaque, queue_id, offset, committed))
        for opaque in (0, 1, 10**9 - 1)
        for queue_id in (0, 10, 10**9 - 1)
        for offset, committed in ((0, 0), (12, 9), (10**18 - 1, 10**18 - 1))
    ]
    whole = b"".join([data, *frames]) if b'"opaque":-' not in data else b"".join(frames)
    end, commands = taken(template, whole + data[:20])
    assert end == len(whole)
    assert commands == decoded(whole)
    assert all(each.body == b"" for each in commands)


@pytest.mark.parametrize("data", USUAL_PULLS)
def test_a_template_may_fit_pulls_with_other_numbers_and_none_of_another_topic(data: bytes) -> None:
    template = template_of(data)
    assert template is not None
    assert template.may_fit(template.frame(Numbers(12, 345, 6789, 10**17)))
    topic = template.series.fields["topic"].encode()
    assert not template.may_fit(data.replace(topic, b"Y" * len(topic)))


@pytest.mark.parametrize("data", UNUSUAL_PULLS)
def test_no_template_is_made_of_an_unusual_pull(data: bytes) -> None:
    assert template_of(data) is None


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(
    data=st.sampled_from(USUAL_PULLS),
    changes=st.lists(st.tuples(st.integers(0, 500), st.integers(0, 255)), max_size=3),
    cut=st.integers(0, 600),
)
def test_changed_frames_are_decoded_alike_or_left(
    data: bytes, changes: list[tuple[int, int]], cut: int
) -> None:
    template = template_of(data)
    assert template is not None
    changed = bytearray(data)
    for at, byte in changes:
        changed[at % len(changed)] = byte
    received = (data + bytes(changed) + data)[: len(data) + cut]
    end, commands = taken(template, received)
    assert commands == decoded(received)[: len(commands)]
    assert end == sum(4 + int.from_bytes(data[:4], "big") for _ in commands)


@given(number=st.text(alphabet="0123456789-+ ", max_size=21), which=st.sampled_from("qfcOo"))
def test_other_numbers_are_left_to_the_decoder(number: str, which: str) -> None:
    name = {"q": "queueId", "f": "queueOffset", "c": "commitOffset"}.get(which)
    if name is not None:
        received = pull({**FIELDS, name: number}, 7)
        template = template_of(USUAL_PULLS[0])
    else:
        received = in_json(JAVA_JSON.replace(b'"opaque":9', b'"opaque":' + number.encode()))
        template = template_of(in_json(JAVA_JSON))
    assert template is not None
    end, commands = taken(template, received)
    assert commands in ([], decoded(received))
    if commands and name is not None:
        assert commands[0].ext_fields[name] == number
    assert end == (len(received) if commands else 0)


# ---- brokers -------------------------------------------------------------------------------


def heartbeat(version: int = 0) -> bytes:
    subscriptions = [
        {
            "topic": topic, "subString": "*", "subVersion": version, "expressionType": "TAG",
            "classFilterMode": False, "codeSet": [], "tagsSet": [],
        }
        for topic in "TU"
    ]  # fmt: skip
    consumers = [
        {
            "groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "subscriptionDataSet": subscriptions,
            "unitMode": False,
        }
        for group in ("CG", "CG2")
    ]  # fmt: skip
    body = json.dumps({"clientID": "c", "producerDataSet": [], "consumerDataSet": consumers})
    return encode(RemotingCommand(34, {}, body.encode(), serialize_type=1))


class Consumers:
    """Bursts of sends, and of pulls that mostly follow the ends of the queues."""

    def __init__(self, seed: int, *, is_strange: bool = True) -> None:
        self._random = Random(seed)
        self._is_strange = is_strange
        # `setup_bursts` sends one message to the first queue of each topic, and one to each queue.
        self._ends = {
            (topic, queue_id): 1 + (queue_id == 0) for topic in "TU" for queue_id in range(4)
        }
        self._opaque = 0
        self._serialize_type = self._random.choice((0, 1, 1))
        self._sys_flag = self._random.choice((3, 3, 7, 2, 6))

    def _sends(self) -> bytes:
        frames = []
        for _ in range(self._random.choice((1, 3, 10))):
            key = self._random.choice(list(self._ends))
            self._ends[key] += 1
            fields = USUAL | {"topic": key[0], "queueId": str(key[1])}
            if self._random.random() < 0.1:
                fields["properties"] += "TAGS\1TagA\2"
            self._opaque += 1
            body = self._random.randbytes(self._random.choice((0, 10, 300, 5000, 40_000)))
            frames.append(send_of(fields, body, self._opaque))
        return b"".join(frames)

    def _pull(self, **changes: str) -> bytes:
        random = self._random
        topic, queue_id = random.choice(list(self._ends))
        offset = committed = self._ends[topic, queue_id]
        if self._is_strange:
            offset += random.choice((0, 0, 0, 0, 0, 1, -1))
            committed = offset + random.choice((0, 0, 0, 0, -1, 1))
            if random.random() < 0.03:
                offset = random.choice((0, 10**6))
        fields = FIELDS | {
            "topic": topic, "queueId": str(queue_id), "queueOffset": str(offset),
            "sysFlag": str(self._sys_flag), "commitOffset": str(committed),
        }  # fmt: skip
        if self._is_strange and random.random() < 0.05:
            fields |= random.choice(STRANGE_PULLS)
        self._opaque += 1
        code = 361 if self._is_strange and random.random() < 0.05 else 11
        return pull(fields, self._opaque, code, self._serialize_type)

    def burst(self) -> bytes:
        """Some bytes, as they come together."""
        kind = self._random.random()
        if kind < 0.4:
            return self._sends()
        pulls = b"".join(self._pull() for _ in range(self._random.choice((1, 2, 8, 30))))
        if kind < 0.5:
            return pulls + self._sends()
        return self._sends() + pulls if kind < 0.6 else pulls


STRANGE_PULLS: Final = [
    {"queueId": "4"}, {"queueId": "-1"}, {"consumerGroup": "CG2"}, {"consumerGroup": ""},
    {"maxMsgNums": "1"}, {"maxMsgNums": "0"}, {"maxMsgBytes": "100"}, {"maxMsgBytes": "0"},
    {"subscription": "TagA", "sysFlag": "7"}, {"subVersion": "9"}, {"sysFlag": "4"},
    {"suspendTimeoutMillis": "0"}, {"topic": "missing"},
    {"expressionType": "SQL92", "subscription": "a > 1", "sysFlag": "7"}, {"sysFlag": "x"},
]  # fmt: skip


class Counting:
    """The extension, with what it did counted."""

    def __init__(self) -> None:
        self.held = self.woken = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(native.extension, name)

    def take_pulls(self, *arguments: Any) -> int:
        assert native.extension is not None
        end = native.extension.take_pulls(*arguments)
        self.held += len(arguments[-1])
        return end

    def wake_pulls(self, *arguments: Any) -> Any:
        assert native.extension is not None
        woken = native.extension.wake_pulls(*arguments)
        self.woken += sum(count for _, _, count in woken[0])
        return woken


OPTIONS: Final[list[dict[str, Any]]] = [
    {}, {}, {},
    {"mapped_file_size_commit_log": 64 * 1024, "mapped_file_size_consume_queue": 400},
    {"long_polling_enable": False}, {"slave_read_enable": True},
    {"lite_pull_message_enable": False}, {"max_transfer_count_on_message_in_memory": 2},
    {"max_transfer_bytes_on_message_in_memory": 600},
]  # fmt: skip


def play(seed: int, monkeypatch: pytest.MonkeyPatch, *, is_strange: bool = True) -> Counting:
    """Play one seed with both, and compare."""
    consumers, options = Consumers(seed, is_strange=is_strange), OPTIONS[seed % len(OPTIONS)]
    received = [*setup_bursts(), heartbeat(), *(consumers.burst() for _ in range(40))]
    counting = Counting()
    ours = outcome(received, counting, monkeypatch, **options)
    pure = outcome(received, None, monkeypatch, **options)
    for number, (one, other) in enumerate(zip(ours.answers, pure.answers, strict=True)):
        assert one == other, f"seed {seed}, answers {number}"
    assert ours.files.keys() == pure.files.keys()
    for path, data in ours.files.items():
        assert data == pure.files[path], f"seed {seed}, {path}"
    return counting


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEED, SEED + 9 * RUNS))
def test_consumers_are_served_alike(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    play(seed, monkeypatch)


@pytest.mark.slow
def test_pulls_are_held_and_woken_by_the_extension(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = [play(seed, monkeypatch, is_strange=False) for seed in (18, 27, 36)]
    print([(each.held, each.woken) for each in counts])
    assert sum(each.held for each in counts) > 100
    assert sum(each.woken for each in counts) > 10


def test_pulls_of_strange_clients_are_tried_a_few_times_only() -> None:
    assert native.extension is not None
    nothing: Any = None
    processor = PullRunProcessor(
        native.extension,
        type("Config", (), {"long_polling_enable": True, "lite_pull_message_enable": True}),  # type: ignore[arg-type]
        {},
        checks=nothing,
        offsets=nothing,
        hold_service=nothing,
        replication=nothing,
        count_misses=nothing,
        now_s=lambda: 0.0,
    )
    data = UNUSUAL_PULLS[0] * 2
    for _ in range(100):
        assert processor.take(data, 0, 1 << 20, nothing, []) == 0


class FailingWakes:
    """The extension, whose answers to held pulls fail."""

    def __getattr__(self, name: str) -> Any:
        return getattr(native.extension, name)

    def wake_pulls(self, rules: Any, keys: list[Any], log_end: int) -> Any:
        return [], keys, 0, [], RuntimeError("out of order"), 1


async def test_a_failure_of_the_extension_is_logged_and_held_pulls_are_answered(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    extension: Any = FailingWakes()
    async with broker_and_client(native=extension) as (broker, client):
        assert (await client.ask(310, send_fields(), b"first")).code == 0
        answers = []

        async def pull() -> None:
            consumer = await broker.connect()
            fields = pull_fields(queueOffset=1)
            answers.append(await consumer.ask(11, fields))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(pull)
            await trio.testing.wait_all_tasks_blocked()
            assert (await client.ask(310, send_fields(), b"second")).code == 0
    assert b"second" in answers[0].body
    assert "answering held pulls in the C extension failed" in caplog.text
    assert "Nothing is lost" in caplog.text
