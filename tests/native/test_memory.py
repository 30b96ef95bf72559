"""The extension's functions keep no memory: each is called 20,000 times, right and wrong."""

from __future__ import annotations

import gc
import sys
from array import array
from collections.abc import Callable
from inspect import isbuiltin
from random import Random
from typing import Final

import pytest

from trocket import native
from trocket.broker.sending.transaction_runs import EndFrame, HalfFrame
from trocket.broker.waiting.pull import Pull
from trocket.broker.waiting.pull_request_hold import HeldPull
from trocket.native.queue_state import QueueState
from trocket.remoting.answer_template import AnswerTemplate
from trocket.remoting.codec import EXT_FIELDS_MAX, HEADER_SIZE_MAX, NO_EXT_FIELDS, RemotingCommand
from trocket.remoting.json_header import LANGUAGES
from trocket.remoting.message import MessageExt
from trocket.remoting.message_codec import encode_record
from trocket.remoting.pull_fields import PullFields
from trocket.remoting.pull_templates import template_of
from trocket.remoting.record_schema import MAGIC_V1
from trocket.store.format import UNIT, UNIT_SIZE

from ..traced_memory import traced_memory
from .frames import batch_entry, binary_fields, binary_header, frame, whole
from .grpc_twins import RULES, ack_request, check_ack, check_received, send_request

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(native.extension is None, reason=native.choice.description),
]

CALLS: Final = 20_000
LONG: Final = (
    "wrong", "pack_sends", "pack_deliveries", "join_records", "take_pulls", "wake_pulls",
    "grpc_send", "grpc_message", "grpc_ack",
)  # fmt: skip
"""Functions that take so long that a tenth of the calls must do."""
BYTES_MAX: Final = 10_000
HOST: Final = bytes(8)
LAST: Final = (1 << 63) - 2
"""The queue offset after which a queue takes one more unit: a run of several is undone."""
PROPERTIES: Final = b"UNIQ_KEY\x010123456789ABCDEF\x02KEYS\x01a b\x02"
SEND: Final = {
    "a": "PG", "b": "T", "e": "0", "f": "0", "g": "1700000000000", "h": "0",
    "i": PROPERTIES.decode(), "j": "0",
}  # fmt: skip

BATCH: Final = SEND | {"c": "TBW102", "d": "4", "m": "true"}
DELAYED: Final = SEND | {"i": SEND["i"] + "DELAY\0011\2"}


def decode(data: bytes, has_runs: bool = False) -> None:
    assert native.extension is not None
    native.extension.decode_frames(
        RemotingCommand,
        NO_EXT_FIELDS,
        LANGUAGES,
        HEADER_SIZE_MAX,
        EXT_FIELDS_MAX,
        data,
        0,
        1 << 20,
        has_runs,
        [],
    )


def pack_batch(body: bytes) -> object:
    assert native.extension is not None
    return native.extension.pack_batch(
        body, b"A\x01b\x02", 0, 0, 0, 1 << 20, b"\x01T", 1, 0, 1, HOST, 1, HOST, 0
    )


class Topic:
    """The part of a topic's configuration that a run asks for."""

    write_queue_nums = 4


TOPIC_FIELD: Final = b"\x01T"


def new_queue(next_offset: int = 0) -> QueueState:
    queue = QueueState(TOPIC_FIELD, 1, MAGIC_V1, UNIT_SIZE)
    queue.next_offset = queue.committed_offset = next_offset
    return queue


TEMPLATE: Final = AnswerTemplate(("msgId", "queueId", "queueOffset"))
PARTS: Final = TEMPLATE.binary_parts
JSON_PARTS: Final = TEMPLATE.json_parts
GIVEN: Final = (HOST, PROPERTIES, RemotingCommand, NO_EXT_FIELDS, Topic, TOPIC_FIELD, None, 1)
_bodies = [
    batch_entry(b"body", PROPERTIES),
    batch_entry(b"body", PROPERTIES) + batch_entry(b"body", b"KEYS\x01\xff"),
    batch_entry(b"", b"", claimed=-1),
]
_frames = [
    frame(310, SEND, b"body")
    + frame(310, SEND, flag=2)
    + frame(310, SEND, serialize_type=0)
    + frame(310, DELAYED, b"later")
    + frame(320, BATCH, batch_entry(b"1", PROPERTIES) * 20)
    + frame(320, BATCH, batch_entry(b"2", PROPERTIES), serialize_type=0),
    whole(binary_header(310, binary_fields([(b"a", b"b"), (b"\xff", b"\xff" * 70)])), b"x") * 2,
    whole(binary_header(310, binary_fields([(b"a", b"b")])[:-1] + b"\xff"), b""),
    whole(binary_header(310, binary_fields([(b"%d" % n, b"x") for n in range(40)])), b""),
    frame(310, {}, b"body"),
    frame(310, SEND, b"body", serialize_type=0),
    frame(310, SEND | {"f": "4", "a": "\x07"}, b"body", serialize_type=0),
]
ASK: Final = frame(30, {"topic": "T"})


_record = encode_record(
    "T", 1, 1 << 40, 1 << 40, b"body", PROPERTIES, born_timestamp_ms=1 << 40, born_host=HOST,
    store_timestamp_ms=1 << 40, store_host=bytes(range(8)),
)  # fmt: skip


def decode_records(message_class: type) -> None:
    """Records, of which the last is cut off; or a class that refuses them."""
    assert native.extension is not None
    native.extension.decode_records(message_class, _record * 3 + _record[:-1], 0, [])


def pack_sends(queue: QueueState, next_offset: int = 1 << 20) -> None:
    """A run of plain sends and batches, one that ends within a batch, and one of other bytes."""
    assert native.extension is not None
    queue.tail.clear()
    queue.next_offset = queue.committed_offset = next_offset
    rules = (
        {"T": Topic}, {"O"}, {("T", 0): queue, ("SCHEDULE_TOPIC_XXXX", 0): queue}, b"A\x01b\x02",
        HOST, b"0" * 16, PARTS, JSON_PARTS, 1 << 20, (1000,),
    )  # fmt: skip
    damaged = frame(320, BATCH, batch_entry(b"1", PROPERTIES) * 20 + b"x")
    for data, is_run in (
        (_frames[0], True), (_frames[0] + damaged, True), (damaged, False), (_frames[1], False)
    ):  # fmt: skip
        packed = native.extension.pack_sends(
            rules, HEADER_SIZE_MAX, b"--" + data, 2, 1 << 20, HOST, 1, 1, 0, 1 << 20, []
        )
        assert (packed is not None) == is_run


def pack_put(queue: QueueState, next_offset: int = 1 << 20, *, is_packed: bool = True) -> None:
    """A message that is packed, or one without room; when it cannot be, nothing is touched."""
    assert native.extension is not None
    queue.tail.clear()
    queue.next_offset = queue.committed_offset = next_offset
    touched: list[object] = []
    try:
        packed = native.extension.pack_put(
            queue, 0, b"body", PROPERTIES, 0, 0, 1 << 40, HOST, 1 << 40, HOST, 0, 1 << 40, 1 << 40,
            (1 << 40) + 1000 if is_packed else 1 << 40, 1 << 40, touched,
        )  # fmt: skip
    except ValueError:
        assert (touched, bytes(queue.tail)) == ([], b"")
        raise
    assert ((packed is not None), len(touched), len(queue.tail)) == (
        (True, 1, UNIT_SIZE) if is_packed else (False, 0, 0)
    )


HALF: Final = SEND | {"f": "4"}
END: Final = {
    "producerGroup": "PG", "commitLogOffset": "7", "tranStateTableOffset": "1",
    "commitOrRollback": "8", "transactionId": "é",
}  # fmt: skip
_transactions = [
    frame(310, HALF, b"body", serialize_type=kind) + frame(37, END, flag=2, serialize_type=kind)
    for kind in (0, 1)
]


def take_transactions(
    half_class: type = HalfFrame, data: bytes = _transactions[0] + _transactions[1] + _frames[0]
) -> list[object]:
    """Two half messages and two ends, and a plain send that is left; or a class that refuses."""
    assert native.extension is not None
    taken: list[object] = []
    native.extension.take_transactions(
        half_class, EndFrame, b"A\x01b\x02", HEADER_SIZE_MAX, data, 0, 1 << 20, taken
    )
    assert len(taken) == 4
    return taken


_due = encode_record(
    "SCHEDULE_TOPIC_XXXX", 0, 0, 0, b"body", PROPERTIES + b"REAL_TOPIC\x01T\x02REAL_QID\x010\x02",
    born_timestamp_ms=1 << 40, born_host=HOST, store_timestamp_ms=1 << 40, store_host=HOST,
)  # fmt: skip


def pack_deliveries(queue: QueueState, next_offset: int = 1 << 20) -> None:
    """A run of three messages before one without a place, and one for a topic that is unknown."""
    assert native.extension is not None
    queue.tail.clear()
    queue.next_offset = queue.committed_offset = next_offset
    for topics, is_run in (({"T"}, True), ({"U"}, False)):
        packed = native.extension.pack_deliveries(
            {("T", 0): queue}, topics, 1 << 20, _due * 3 + _record, 0, 1, 0, 1 << 20, []
        )
        assert (packed is not None) == is_run


class Object:
    """Anything with attributes."""

    def __init__(self, **attributes: object) -> None:
        self.__dict__.update(attributes)


TERMS: Final = Object(topic="T", group="G", offset_key="T@G", count_max=32, size_max=1 << 20)
CHANNEL: Final = Object(closed=False)
STORED: Final = new_queue()
STORED.tail += UNIT.pack(0, 100, 0) + UNIT.pack(100, 50, 0)
STORED.max_offset = 2
APART: Final = UNIT.pack(100, 50, 0) + UNIT.pack(0, 100, 0)
VIEW: Final = memoryview(bytes(1000))
PULL: Final = {
    "consumerGroup": "CG", "topic": "T", "queueId": "0", "queueOffset": "2", "sysFlag": "3",
    "commitOffset": "2",
}  # fmt: skip
_pulls = [frame(11, PULL, serialize_type=kind) for kind in (0, 1)]
_templates = [template_of(each) for each in _pulls]


def wake(size_max: int) -> None:
    """A pull that is woken, in both serializations, or is not if its records are too large."""
    assert native.extension is not None
    held_queue = Object(tagged={}, of_channels=None)
    for kind in (0, 1):
        pull = Object(
            selector=None, channel=CHANNEL, terms=TERMS, opaque=-5, serialize_type=kind,
            queue_offset=0,
        )  # fmt: skip
        held_queue.__dict__["others"] = {Object(pull=pull, queue=held_queue): None}
        rules = (
            {("T", 0): held_queue}, {("T", 0): STORED}, {"T": Object(topic_sys_flag=0)}, {},
            {0: VIEW}, PARTS, JSON_PARTS, 1000, 1 << 20, size_max, 32, 500,
        )  # fmt: skip
        keys = [("T", 0), ("U", 1)]
        answers, rest, size, gets, error, errors = native.extension.wake_pulls(rules, keys, 150)
        assert (error, errors) == (None, 0)
        assert gets == ([("T@G", 2, 150)] if size_max > 150 else [])
        assert (len(answers), len(rest), size) == ((1, 0, 150) if size_max > 150 else (0, 2, 0))


class Frozen(Object):
    """A held pull that cannot be taken out of its queue."""

    def __hash__(self) -> int:
        if vars(self).get("queue", self) is None:
            raise RuntimeError("frozen")
        return 1


def wake_frozen() -> None:
    """A pull whose queue fails: it stays in its queue, and Python gets the queue and the error."""
    assert native.extension is not None
    pull = Object(
        selector=None, channel=CHANNEL, terms=TERMS, opaque=-5, serialize_type=0, queue_offset=0
    )
    held_queue = Object(tagged={}, of_channels=None)
    held = Frozen(pull=pull, queue=held_queue)
    held_queue.__dict__["others"] = {held: None}
    rules = (
        {("T", 0): held_queue}, {("T", 0): STORED}, {"T": Object(topic_sys_flag=0)}, {},
        {0: VIEW}, PARTS, JSON_PARTS, 1000, 1 << 20, 1 << 20, 32, 500,
    )  # fmt: skip
    woken = native.extension.wake_pulls(rules, [("T", 0), ("U", 1)], 150)
    answers, rest, size, gets, error, errors = woken
    assert (answers, rest, size, gets) == ([], [("T", 0), ("U", 1)], 0, [])
    assert isinstance(error, RuntimeError)
    assert errors == 1
    assert held.queue is held_queue  # type: ignore[attr-defined]
    STORED.tail.append(0)
    STORED.tail.pop()


def ends_at(offset: int) -> QueueState:
    queue = new_queue()
    queue.max_offset = offset
    return queue


def take(offset: int) -> None:
    """Pulls that are held, or become commands."""
    assert native.extension is not None
    for data, template in zip(_pulls, _templates, strict=True):
        assert template is not None
        held_queues = {("T", 0): Object(tagged={}, of_channels=None, others={})}
        holding = (
            {("T", 0): ends_at(offset)}, held_queues, CHANNEL, TERMS, "T", 1.5, {}, {}, 4, 100, 2,
        )  # fmt: skip
        commands: list[object] = []
        held: list[object] = []
        end = native.extension.take_pulls(
            (RemotingCommand, PullFields, Pull, HeldPull), template, holding, data * 3 + b"x", 0,
            1 << 20, commands, held,
        )  # fmt: skip
        assert end == 3 * len(data)
        assert (len(held), len(commands)) == ((2, 1) if offset == 2 else (0, 3))


class Refused(Frozen):
    """A held pull that no dict takes."""

    def __init__(self, pull: object, deadline_s: float, queue: object) -> None:
        super().__init__(pull=pull, deadline_s=deadline_s, queue=None)


def take_refused() -> None:
    """A pull that cannot be put into its queue: the list of held pulls is as before."""
    assert native.extension is not None
    held_queue = Object(tagged={}, of_channels=None, others={})
    holding = (
        {("T", 0): STORED}, {("T", 0): held_queue}, CHANNEL, TERMS, "T", 1.5, {}, {},
        4, 100, 2,
    )  # fmt: skip
    held: list[object] = []
    with pytest.raises(RuntimeError, match="frozen"):
        native.extension.take_pulls(
            (RemotingCommand, PullFields, Pull, Refused), _templates[0] or (), holding, _pulls[0],
            0, 1 << 20, [], held,
        )  # fmt: skip
    assert not held


def functions() -> dict[str, Callable[[], object]]:
    extension = native.extension
    if extension is None:
        return {}
    items = [(1, PROPERTIES, 5, 6), (2, b"KEYS\x01\xff", 5, 6)]
    slots, packed = memoryview(array("i", [0] * 8)), extension.index_entries(items)[0]
    queue = new_queue()
    sends = [send_request(Random(seed)) for seed in range(20)]
    acks = [ack_request(Random(seed)) for seed in range(20)]
    return {
        "decode_frames": lambda: [decode(data) for data in _frames],
        "decode_records": lambda: decode_records(MessageExt),
        "decode_records, refused": lambda: _raises(lambda: decode_records(Topic)),
        "send_frame": lambda: [
            extension.send_frame(bytes(29), b"prefix", born_ms, 7, PROPERTIES, b"body")
            for born_ms in (1 << 40, 1 << 70)
        ],
        "decode_frames, runs": lambda: [
            decode(data, True) for data in (*_frames, ASK + _frames[5])
        ],
        "find_property": lambda: [extension.find_property(PROPERTIES, n) for n in (b"KEYS", b"B")],
        "pack_batch": lambda: [pack_batch(body) for body in _bodies],
        "index_entries": lambda: extension.index_entries(items),
        "index_put": lambda: extension.index_put(slots, 8, 1, 10, 0, packed, 0),
        "fill_answer": lambda: extension.fill_answer(PARTS, 1, b"id", b"2", b"3", 0),
        "batch_ids": lambda: extension.batch_ids(b"0" * 16, [1, 2**62]),
        "pack_sends": lambda: pack_sends(queue),
        "is_plain_batch": lambda: [extension.is_plain_batch(body) for body in _bodies],
        "pack_put": lambda: [pack_put(queue, is_packed=each) for each in (True, False)],
        "pack_put, undone": lambda: _raises(lambda: pack_put(queue, (1 << 63) - 1)),
        "take_transactions": take_transactions,
        "take_transactions, refused": lambda: _raises(lambda: take_transactions(Topic)),
        "pack_deliveries": lambda: pack_deliveries(queue),
        "pack_deliveries, undone": lambda: _raises(lambda: pack_deliveries(queue, LAST)),
        "pack_sends, undone": lambda: _raises(lambda: pack_sends(queue, LAST)),
        "take_pulls, held": lambda: take(2),
        "take_pulls, decoded": lambda: take(3),
        "take_pulls, refused": take_refused,
        "join_records": lambda: [
            extension.join_records(APART, VIEW, 0, 0, 1000, size) for size in (149, 150)
        ],
        "queues": lambda: [ends_at(3), _raises(lambda: STORED.__init__(TOPIC_FIELD, 1, 1, 1))],  # type: ignore[misc]
        "wake_pulls": lambda: wake(1 << 20),
        "wake_pulls, left": lambda: wake(100),
        "wake_pulls, failed": wake_frozen,
        "grpc_send": lambda: [extension.grpc_send(request, RULES.send_limits) for request in sends],
        "grpc_sent": lambda: extension.grpc_sent(b"status", "id", 1 << 40),
        "grpc_message": lambda: [check_received(Random(seed), extension) for seed in range(20)],
        "grpc_ack": lambda: [check_ack(request, extension) for request in acks],
        "wrong arguments": lambda: [_raises(getattr(extension, name)) for name in NAMES],
        "wrong types": lambda: [
            _raises(lambda n=name: getattr(extension, n)(*WRONG[n])) for name in WRONG
        ],
    }


NAMES: Final = (
    "decode_frames", "find_property", "index_entries", "index_put", "pack_batch", "fill_answer",
    "batch_ids", "pack_sends", "pack_deliveries", "decode_records", "send_frame", "join_records",
    "take_pulls", "wake_pulls", "is_plain_batch", "pack_put", "take_transactions", "grpc_send",
    "grpc_sent", "grpc_message", "grpc_ack", "grpc_acked",
)  # fmt: skip
WRONG: Final[dict[str, tuple[object, ...]]] = {
    "index_put": (b"readonly", 1, 1, 2, 0, b"", 0),
    "fill_answer": (PARTS, 1 << 40, b"", b"", b"", 0),
    "batch_ids": (b"", [1, -1]),
    "find_property": ("text", b""),
    "decode_records": (MessageExt, b"", 0, ()),
    "join_records": (b"", VIEW, -1, 0, 0, 0),
    "take_pulls": ((), (), None, b"", 0, 0, [], []),
    "wake_pulls": (({},) * 12, [], 0),
    "pack_deliveries": ({}, (), 1, b"", 0, 1, 0, 1, []),
    "is_plain_batch": ("text",),
    "pack_put": (Topic, 0, b"", b"", 0, 0, 0, HOST, 0, HOST, 0, 0, 0, 0, 0, []),
    "take_transactions": (HalfFrame, EndFrame, b"", 1, b"", 0, 1, ()),
    "pack_sends": ((1,) * 10, 1, b"", 0, 1, HOST, 1, 1, 0, 1, []),
}


def _raises(call: Callable[[], object]) -> None:
    try:
        call()
    except (TypeError, ValueError, BufferError):
        return
    raise AssertionError("no exception")


def test_every_function_is_here() -> None:
    assert native.extension is not None
    found = {name for name, each in vars(native.extension).items() if isbuiltin(each)}
    assert found == set(NAMES)


def references() -> list[int]:
    """References to the objects that calls share: a lost one keeps no memory by itself."""
    shared = (TERMS, CHANNEL, STORED, VIEW, Pull, HeldPull, PullFields)
    parts = (PARTS, *PARTS, JSON_PARTS, *JSON_PARTS)
    return [sys.getrefcount(each) for each in (*GIVEN, *parts, *shared)]


@pytest.fixture(scope="module")
def frozen() -> None:
    """What the process has by now is left out of each collection: it is most of a test's time."""
    gc.collect()
    gc.freeze()


@pytest.mark.usefixtures("frozen")
@pytest.mark.parametrize("name", list(functions()))
def test_no_memory_is_kept(name: str) -> None:
    call = functions()[name]
    _repeat(call, 1000)
    calls = CALLS // 10 if name.startswith(LONG) else CALLS
    assert_steady(call, calls // 4, lambda: [sys.getallocatedblocks()], calls // 16)
    assert_steady(call, calls // 4, references, 20)
    # Blocks of more than 512 bytes are not counted above.
    with traced_memory() as memory:
        _repeat(call, 100)
        assert_steady(call, 1000, lambda: [memory()], BYTES_MAX)


def assert_steady(
    call: Callable[[], object], calls: int, measure: Callable[[], list[int]], change_max: int
) -> None:
    """Fail if a measure grows, or shrinks, each of four times that the calls are made.

    What a call keeps is kept each time. What other threads of the test process, or caches of the
    interpreter, come to hold in between is not.
    """
    changes: list[list[int]] = []
    for _ in range(4):
        before = measure()
        _repeat(call, calls)
        changes.append([now - then for now, then in zip(measure(), before, strict=True)])
        of_each = list(zip(*changes, strict=True))
        if all(min(each) <= change_max and max(each) >= -change_max for each in of_each):
            return
    raise AssertionError(f"{changes} in {calls} calls each")


def _repeat(call: Callable[[], object], count: int) -> None:
    for _ in range(count):
        call()
    gc.collect()
