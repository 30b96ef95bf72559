"""Sends and batches: a broker with the C extension and one in pure Python give the same answers and
leave the same bytes on disk, whatever they are sent."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product
from random import Random
from typing import TypeAlias

import pytest
import trio
import trio.testing
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.kit import START_MS, embedded_broker
from trocket import native
from trocket.disk.memory_disk import Fault, MemoryDisk
from trocket.native import Extension
from trocket.remoting.codec import FrameDecoder, RemotingCommand, encode
from trocket.remoting.message import Message
from trocket.remoting.message_batch import encode_batch
from trocket.store import services
from trocket.store.config import BrokerRole, FlushDiskType

from ..trio_order import run_by
from .frames import batch_entry, odd_json_frame

pytestmark = pytest.mark.skipif(native.extension is None, reason=native.choice.description)

LETTERS = {
    "topic": "b", "queueId": "e", "sysFlag": "f", "bornTimestamp": "g", "flag": "h",
    "properties": "i", "reconsumeTimes": "j", "defaultTopic": "c", "defaultTopicQueueNums": "d",
    "batch": "m", "unitMode": "k", "maxReconsumeTimes": "l",
}  # fmt: skip
KEY = "UNIQ_KEY\x010123456789ABCDEF\x02"

STRANGE_PROPERTIES = [
    "UNIQ_KEY\x01\x02", "KEYS\1é\2", "TAGS\1Täg\2", "WAIT\1false\2", "DELAY\0012\2",
    "TRAN_MSG\1true\2", "MSG_REGION\1r\2", "CLUSTER\1c\2", "a\1#\2", "b\1\0\2",
    "REAL_TOPIC\1T\2", "x_y\1z\2", "\2", "\1", "DELAYED\1x\2", "TIMER_DELAY_SEC\0011\2",
    "x" * 300, "UNIQ_KEY\1shört\2", "XUNIQ_KEY\1a\2", "POP_CK\1a\2", "TAGS\1\2", "KEYS\1 \2",
    "p\1" + "x" * 32_650 + "\2",
]  # fmt: skip
PROPERTIES = st.lists(st.sampled_from([KEY, KEY[:-1], *STRANGE_PROPERTIES]), max_size=4).map(
    "".join
)

STRANGE_NUMBERS = ["", "0", "-1", "1024", "2147483648", "9" * 23, "x", "null", "1.0", "٣"]
usual_fields = st.fixed_dictionaries(
    {
        "topic": st.sampled_from(["T", "T", "T", "U"]),
        "queueId": st.integers(0, 3).map(str),
        "properties": st.sampled_from(
            [
                KEY,
                KEY[:-1],
                KEY + "TAGS\1TagNumber7\2",
                "KEYS\1k  k2 \2" + KEY[:-1],
                KEY + "KEYS\1k1 k2\2WAIT\1true\2TAGS\1A",
            ]
        ),
    }
)
STRANGE_VALUES = {
    "topic": [
        "",
        "new",
        "%RETRY%CG",
        "rmq_sys_x",
        "SCHEDULE_TOPIC_XXXX",
        "TBW102",
        "T" * 128,
        "té",
    ],
    "queueId": ["-1", "00", "01", "4", "1023", "1024", "99999", "x", "", "٣"],
    "sysFlag": ["1", "4", "8", "12", "16", "00", "", "-1"],
    "bornTimestamp": ["1", "", "17000000000000", "1700000000٣00"],
    "flag": ["1", "-1", "2147483648", ""],
    "reconsumeTimes": ["1", "", "-1", "99"],
    "batch": ["true", "TRUE", "false", "", "1"],
}
strange_fields = st.fixed_dictionaries(
    {"properties": PROPERTIES},
    optional={name: st.sampled_from(values) for name, values in STRANGE_VALUES.items()}
    | {"more": st.text(max_size=5)},
)
USUAL = {
    "a": "PG", "topic": "T", "defaultTopic": "TBW102", "defaultTopicQueueNums": "4", "queueId": "0",
    "sysFlag": "0", "bornTimestamp": str(START_MS), "flag": "0", "properties": KEY,
    "reconsumeTimes": "0",
}  # fmt: skip

bodies = st.binary(max_size=40) | st.integers(0, 3000).map(bytes)


@st.composite
def changed_fields(draw: st.DrawFn) -> dict[str, str]:
    """The fields of a send that differ from the usual ones in one place, or in many."""
    usual = draw(usual_fields)
    strange = draw(strange_fields)
    which = draw(st.sampled_from(["property", "property", "field", "many"]))
    if which == "property":
        own, more = usual["properties"], draw(st.sampled_from(STRANGE_PROPERTIES))
        together = [more + own, own + more, own + "\2" + more]
        return usual | {"properties": draw(st.sampled_from(together))}
    if which == "field":
        name = draw(st.sampled_from(sorted(strange)))
        return usual | {name: strange[name]}
    return strange


def send_of(
    fields: dict[str, str], body: bytes, opaque: int, code: int = 310, **more: int
) -> bytes:
    if code != 10:
        fields = {LETTERS.get(name, name): value for name, value in fields.items()}
    else:
        fields = {"producerGroup" if name == "a" else name: v for name, v in fields.items()}
    command = RemotingCommand(code, fields, body, opaque=opaque, serialize_type=1)
    for name, value in more.items():
        setattr(command, name, value)
    return encode(command)


opaques = st.integers(-(2**31), 2**31 - 1)
codes = st.sampled_from([310, 310, 10])
usual_sends = st.builds(
    send_of, usual_fields.map(lambda fields: USUAL | fields), bodies, opaques, codes
)


@st.composite
def strange_sends(draw: st.DrawFn) -> bytes:
    """A send that may differ in its fields, its flags or its header's form."""
    fields = USUAL | draw(changed_fields())
    for name in draw(st.sampled_from([[], [], [], *([name] for name in sorted(USUAL))])):
        del fields[name]
    flag, serialize_type = draw(st.sampled_from([(0, 1), (0, 1), (0, 1), (2, 1), (0, 0), (2, 0)]))
    return send_of(
        fields, draw(bodies), draw(opaques), draw(codes), flag=flag, serialize_type=serialize_type
    )


@st.composite
def batch_sends(draw: st.DrawFn) -> bytes:
    """A batch, of usual messages or not; its body may be damaged."""
    own = usual_fields.map(lambda fields: fields["properties"]) | st.sampled_from(["", "a\1b\2"])
    count = draw(st.integers(0, 5))
    entries = []
    for _ in range(count):
        properties = draw(own | own | own | PROPERTIES).encode()[:0xFFFF]
        body = draw(bodies)
        head = b"\0" * 12 + draw(st.sampled_from([b"\0\0\0\0", b"\xff\0\0\1"]))
        entry = head + len(body).to_bytes(4, "big") + body
        entries.append(entry + len(properties).to_bytes(2, "big") + properties)
    body = bytearray(b"".join(entries))
    if body and draw(st.integers(0, 4)) == 0:
        body[draw(st.integers(0, len(body) - 1))] = draw(st.integers(0, 255))
    fields = USUAL | {
        "topic": draw(st.sampled_from(["T", "T", "U", "new", "%RETRY%CG"])),
        "queueId": draw(st.sampled_from(["0", "1", "3", "4", "-1"])),
        "properties": draw(st.sampled_from(["", "", "WAIT\1true", "WAIT\1false\2", KEY])),
        "sysFlag": draw(st.sampled_from(["0", "0", "0", "1", "4"])),
        "batch": draw(st.sampled_from(["true", "true", "true", "false", ""])),
    }
    match draw(st.integers(0, 4)):
        case 0:
            del fields[draw(st.sampled_from(sorted(fields)))]
        case 1:
            name = draw(st.sampled_from([*sorted(fields), "maxReconsumeTimes", "unitMode"]))
            fields[name] = draw(st.sampled_from(STRANGE_NUMBERS))
        case _:
            pass
    flag, serialize_type = draw(st.sampled_from([(0, 1), (0, 0), (0, 0), (2, 1), (2, 0)]))
    return send_of(
        fields, bytes(body), draw(opaques), draw(st.sampled_from([320, 320, 310, 10])),
        flag=flag, serialize_type=serialize_type,
    )  # fmt: skip


several = st.lists(usual_sends, max_size=4).map(b"".join)
others = strange_sends() | strange_sends() | batch_sends() | st.lists(batch_sends()).map(b"".join)
bursts = st.lists(
    st.tuples(several, others, several).map(b"".join),
    max_size=8,
)


@dataclass
class Outcome:
    """What a broker answered, and what it left on its disk."""

    answers: list[bytes] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)


Burst: TypeAlias = bytes | Callable[[list[bytes]], bytes]
"""Bytes, or what makes them from the answers so far."""


TURN_S = 0.5
"""Between two turns of tasks that look for work: at their own intervals they would be half of the
work of a broker that waits in virtual time."""


def outcome(
    received: Sequence[Burst],
    extension: Extension | None,
    monkeypatch: pytest.MonkeyPatch,
    fault: Fault | None = None,
    **options,
) -> Outcome:
    """Send bursts to a new broker, one after the other, the third one on a faulty disk."""
    monkeypatch.setattr(os, "getpid", lambda: 77)
    for name in ("INDEX_IDLE_S", "PREPARE_INTERVAL_S"):
        monkeypatch.setattr(services, name, TURN_S)
    found = Outcome()
    disk = MemoryDisk()

    async def run() -> None:
        async with (
            embedded_broker(
                disk, native=extension, random=Random(5), auto_create_topic_enable=True, **options
            ) as broker,
            trio.open_nursery() as nursery,
        ):

            def connect() -> trio.abc.Stream:
                near, far = trio.testing.memory_stream_pair()
                assert broker.controller.server is not None
                nursery.start_soon(broker.controller.server.serve_stream, near)
                return far

            far = connect()
            for number, burst in enumerate(received):
                data = burst(found.answers) if callable(burst) else burst
                disk.fault = fault if number == 2 else None
                with trio.move_on_after(1):
                    try:
                        await far.send_all(data)
                    except trio.BrokenResourceError:  # closed after a malformed header
                        far = connect()
                        await far.send_all(data)
                await trio.testing.wait_all_tasks_blocked()
                await trio.sleep(3)  # virtual: registration, index, flush
                with trio.move_on_after(0.01):
                    found.answers.append(bytes(await far.receive_some()))
                disk.fault = None
            nursery.cancel_scope.cancel()

    # In one order of tasks: Hypothesis makes trio's one go on from run to run.
    run_by(1, run, trio.testing.MockClock(autojump_threshold=0))
    found.files = {
        path: bytes(data)
        for path, data in disk.contents.items()
        # It has the time of its last save, which a worker thread may delay.
        if "timercheck" not in path
    }
    return found


def setup_bursts() -> list[bytes]:
    """Bursts that create two topics, and then all their queues: a run has no first sends."""
    first = [send_of(USUAL | {"topic": topic}, b"first", 0) for topic in "TU"]
    queues = [
        send_of(USUAL | {"topic": topic, "queueId": str(queue_id)}, b"", queue_id)
        for topic in "TU"
        for queue_id in range(4)
    ]
    return [b"".join(first), b"".join(queues)]


@pytest.mark.slow
@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(received=bursts, cut=st.integers(0, 400))
def test_answers_and_files_are_equal(
    received: list[bytes], cut: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if received:
        received = [received[0][:cut], received[0][cut:], *received[1:]]
    received = setup_bursts() + [data for data in received if data]
    assert native.extension is not None
    pure = outcome(received, None, monkeypatch)
    ours = outcome(received, native.extension, monkeypatch)
    assert ours.answers == pure.answers
    assert ours.files.keys() == pure.files.keys()
    for path, data in ours.files.items():
        assert data == pure.files[path], path


def plain_sends(count: int, first: int = 0) -> bytes:
    return b"".join(
        send_of(
            USUAL
            | {
                "queueId": str(number % 4),
                "properties": f"UNIQ_KEY\1{number:032X}\2TAGS\1{number * 7919:08d} tag\2",
            },
            bytes([number % 256]) * (number % 300),
            number,
        )
        for number in range(first, first + count)
    )


class Counting:
    """The extension, with the sends of each of its runs."""

    def __init__(self) -> None:
        self.runs: list[int] = []

    def __getattr__(self, name: str) -> object:
        return getattr(native.extension, name)

    def pack_sends(self, *arguments: object) -> object:
        packed = native.extension.pack_sends(*arguments)  # type: ignore[union-attr, arg-type]
        self.runs.append(packed[1] if packed else 0)
        return packed


@pytest.mark.slow
def test_a_run_fills_files_and_queues_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    received = [*setup_bursts(), *(plain_sends(300, 300 * turn) for turn in range(5))]
    options = {"mapped_file_size_commit_log": 64 * 1024, "mapped_file_size_consume_queue": 400}
    assert native.extension is not None
    counting = Counting()
    pure = outcome(received, None, monkeypatch, **options)
    ours = outcome(received, counting, monkeypatch, **options)  # type: ignore[arg-type]
    assert ours == pure
    assert sum(counting.runs) > 300, "the rest came after the end of a log file in its burst"


def batch_of(count: int, opaque: int = 0, code: int = 320, serialize_type: int = 1) -> bytes:
    messages = [
        Message("T", b"snake_case" * (n % 9), properties={"UNIQ_KEY": f"{n:032X}", "KEYS": f"k{n}"})
        for n in range(count)
    ]
    fields = USUAL | {"queueId": str(opaque % 4), "properties": "WAIT\1true", "batch": "true"}
    return send_of(fields, encode_batch(messages), opaque, code, serialize_type=serialize_type)


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 500, 4_096, 4_097, 9_000])
def test_a_batch_of_many_messages_is_stored_alike(
    monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    received = [*setup_bursts(), batch_of(count), batch_of(count)]
    counting = Counting()
    pure = outcome(received, None, monkeypatch, mapped_file_size_commit_log=8 * 1024 * 1024)
    ours = outcome(
        received,
        counting,
        monkeypatch,
        mapped_file_size_commit_log=8 * 1024 * 1024,  # type: ignore[arg-type]
    )
    assert ours == pure
    assert counting.runs[-2:] == ([1, 1] if count <= 4_096 else [0, 0])


@pytest.mark.slow
def test_batches_are_in_runs_with_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    batches = [
        batch_of(count, 100 + number, code, serialize_type)
        for number, (count, code, serialize_type) in enumerate(
            product((1, 2, 40), (320, 310, 10), (0, 1))
        )
    ]
    burst = b"".join(batches) + plain_sends(5) + b"".join(batches[::-1])
    received = [*setup_bursts(), burst, burst]
    counting = Counting()
    pure = outcome(received, None, monkeypatch)
    assert outcome(received, counting, monkeypatch) == pure  # type: ignore[arg-type]
    assert counting.runs[-2:] == [2 * 18 + 5] * 2


@pytest.mark.slow
def test_batches_fill_files_and_queues_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    received = [*setup_bursts(), *(batch_of(20, n) + batch_of(30, n + 1) for n in range(30))]
    options = {"mapped_file_size_commit_log": 64 * 1024, "mapped_file_size_consume_queue": 400}
    counting = Counting()
    pure = outcome(received, None, monkeypatch, **options)
    ours = outcome(received, counting, monkeypatch, **options)  # type: ignore[arg-type]
    assert ours == pure
    assert sum(counting.runs) > 40, "the rest came at the end of a log file"


def full(operation: str, path: str) -> OSError | None:
    is_write = operation == "pwrite" and "commitlog" in path
    return OSError(errno.ENOSPC, "No space left on device") if is_write else None


def broken(operation: str, path: str) -> OSError | None:
    is_sync = operation == "sync" and "commitlog" in path
    return OSError(errno.EIO, "Input/output error") if is_sync else None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "options", "code"),
    [
        (full, {}, 14),
        (broken, {"flush_disk_type": FlushDiskType.SYNC_FLUSH}, 10),
        (None, {"flush_disk_type": FlushDiskType.SYNC_FLUSH}, 0),
        (None, {"broker_role": BrokerRole.SYNC_MASTER}, 11),
        (None, {"send_thread_pool_queue_capacity": 0}, 2),
        (None, {"enabled_append_prop_crc": True}, 0),
        (None, {"message_index_enable": False}, 0),
        (None, {"region_id": "a#b"}, 0),
    ],
    ids=["full disk", "failed fsync", "fsync", "no slave", "busy", "checksums", "no index", "#"],
)
def test_answers_of_a_run_in_trouble_are_equal(
    monkeypatch: pytest.MonkeyPatch, fault: Fault | None, options: dict[str, object], code: int
) -> None:
    in_json = encode(RemotingCommand(10, USUAL | {"producerGroup": "PG"}, b"x", opaque=-5))
    burst = (
        plain_sends(20, 100) + in_json + plain_sends(20, 200) + batch_of(3, 220) + batch_of(1, 221)
    )
    received = [*setup_bursts(), burst, plain_sends(20, 300)]
    assert native.extension is not None
    pure = outcome(received, None, monkeypatch, fault, **options)
    ours = outcome(received, native.extension, monkeypatch, fault, **options)
    assert ours == pure
    answers = FrameDecoder().receive_data(b"".join(ours.answers))
    expected = [*range(100, 120), -5, *range(200, 222)]
    assert [each.opaque for each in answers][10:53] == expected
    assert {each.code for each in answers[10:53]} == {code}


def assert_served_alike(received: Sequence[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare each answer and each file, after bursts to topics that exist."""
    assert native.extension is not None
    received = [*setup_bursts(), *received]
    pure = outcome(received, None, monkeypatch)
    ours = outcome(received, native.extension, monkeypatch)
    for data, our_answers, answers in zip(received, ours.answers, pure.answers, strict=True):
        assert our_answers == answers, data
    assert ours.files.keys() == pure.files.keys()
    for path, content in ours.files.items():
        assert content == pure.files[path], path


@pytest.mark.slow
def test_sends_with_one_difference_are_served_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    different = [{"properties": KEY + more} for more in STRANGE_PROPERTIES]
    different += [{"properties": more + KEY[:-1]} for more in STRANGE_PROPERTIES]
    different += [{name: value} for name, values in STRANGE_VALUES.items() for value in values]
    received = [
        send_of(USUAL, b"before", 1) + send_of(USUAL | fields, b"it", 2) + send_of(USUAL, b"", 3)
        for fields in different
    ]
    for name in USUAL:
        fields = {key: value for key, value in USUAL.items() if key != name}
        received.append(send_of(fields, b"it", 2, 10) + send_of(fields, b"it", 2))
    assert_served_alike(received, monkeypatch)


@pytest.mark.slow
def test_batches_with_one_difference_are_served_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = batch_entry(b"body", b"UNIQ_KEY\1K\2")
    usual = USUAL | {"properties": "WAIT\1true", "batch": "true"}
    different = [{name: text} for name in (*usual, "unitMode", "maxReconsumeTimes")
                 for text in STRANGE_NUMBERS]  # fmt: skip
    received = [
        send_of(USUAL, b"before", 1) + send_of(fields, entry, 2, code) + send_of(USUAL, b"", 3)
        for code in (320, 10)
        for fields in (
            *(usual | each for each in different),
            *({key: usual[key] for key in usual if key != name} for name in usual),
        )
    ]
    assert_served_alike(received, monkeypatch)


def json_sends(random: Random) -> bytes:
    """A send whose JSON header has an odd form, between usual ones."""
    code = random.choice([310, 310, 10])
    fields = USUAL | {"queueId": str(random.randrange(4))}
    if random.random() < 0.3:
        fields["properties"] = random.choice([KEY, ""]) + random.choice(STRANGE_PROPERTIES)
    names = LETTERS if code == 310 else {"a": "producerGroup"}
    fields = {names.get(name, name): value for name, value in fields.items()}
    flag, opaque = random.choice([0, 0, 2, 1, -1]), random.choice([1, -1, 2**31 - 1, -(2**31)])
    odd = odd_json_frame(random, code, fields, b"odd", opaque=opaque, flag=flag)
    usual = send_of(USUAL, b"usual", 5, serialize_type=0)
    return usual + odd + usual


@pytest.mark.slow
@settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(st.integers(0, 2**32))
@example(160130193)
def test_sends_with_odd_json_headers(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    random = Random(seed)
    received = [*setup_bursts(), *(json_sends(random) for _ in range(10))]
    assert native.extension is not None
    pure = outcome(received, None, monkeypatch)
    assert outcome(received, native.extension, monkeypatch) == pure


@pytest.mark.slow
def test_runs_begin_again_after_other_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    ask = encode(RemotingCommand(30, {"topic": "T", "queueId": "0"}, opaque=7, serialize_type=1))
    in_json = send_of(USUAL, b"", 8, serialize_type=0)
    oneway = send_of(USUAL, b"", 9, flag=2)
    burst = plain_sends(3) + ask + in_json + oneway + ask + ask + plain_sends(3) + ask
    received = [*setup_bursts(), burst, burst[:-1], burst[-1:] + burst]
    counting = Counting()
    pure = outcome(received, None, monkeypatch)
    ours = outcome(received, counting, monkeypatch)  # type: ignore[arg-type]
    assert ours == pure
    assert counting.runs[-9:] == [3, 2, 3] * 3
