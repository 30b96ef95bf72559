"""Targets of the extension's fuzzer: each makes one case by chance, and compares C with Python."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Final

from trocket.broker.sending.send_batch import batch_ids
from trocket.broker.waiting.pull import Pull
from trocket.broker.waiting.pull_request_hold import HeldPull
from trocket.common.message_properties import pure_find_property
from trocket.disk.memory_disk import MemoryDisk
from trocket.native import Extension
from trocket.remoting import codec, message_codec, send_template
from trocket.remoting.answer_template import AnswerTemplate
from trocket.remoting.codec import NO_EXT_FIELDS, FrameDecoder, RemotingCommand
from trocket.remoting.errors import LocalProtocolError, RemoteProtocolError
from trocket.remoting.message_codec import encode_record
from trocket.remoting.pull_fields import PullFields
from trocket.remoting.pull_templates import Numbers, template_of
from trocket.remoting.send_template import SendPayload, SendTemplate
from trocket.store.format import UNIT
from trocket.store.index.index_backlog import IndexItem
from trocket.store.index.index_entries import entries_of_items
from trocket.store.index.index_file import PACKED_ENTRY, IndexFile

from ..native.frames import JSON, ROCKETMQ, frame, odd_json_frame, whole
from ..native.grpc_twins import ack_request, check_ack, check_received, check_send, send_request
from ..native.player import PEERS, play
from ..native.test_json_header import check, fields_of
from ..native.traffic import KINDS, Traffic
from ..store.support import HOST, HOST_V6
from .material import FRAME_SIZE_MAX, NAMES, Material, mutated, properties
from .put_targets import batches, deliveries, plain_batches, puts, sends, transactions


def frames(random: Random, material: Material, extension: Extension) -> None:
    """A connection's bytes in pieces."""
    data = mutated(random, material.frames(random))
    cuts = sorted(random.randrange(len(data) + 1) for _ in range(random.choice((0, 0, 1, 3))))
    pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    ours, pure = _decoded(pieces, extension), _decoded(pieces, None)
    assert ours == pure, (pieces, ours, pure)


def _decoded(pieces: list[bytes], extension: Extension | None) -> tuple[object, ...]:
    kept = codec._decode_usual
    codec._decode_usual = codec.usual_frames(extension)
    try:
        decoder = FrameDecoder(frame_size_max=FRAME_SIZE_MAX)
        commands: list[RemotingCommand] = []
        for piece in pieces:
            commands += decoder.receive_data(piece)
    finally:
        codec._decode_usual = kept
    fields = [
        (command.ext_fields is NO_EXT_FIELDS, list(command.ext_fields.items()))
        for command in commands
    ]
    error = decoder.error and (decoder.error.reason, decoder.error.position)
    return commands, fields, error, decoder.partial_size


def json_headers(random: Random, material: Material, extension: Extension) -> None:
    """A send with a JSON header, in an odd form or damaged; `check` compares."""
    code, flag = random.choice((310, 10)), random.choice((0, 0, 2, 1))
    data = odd_json_frame(random, code, fields_of(random, code), b"x", opaque=-1, flag=flag)
    check(data)
    check(whole(mutated(random, data[8:]), b"", JSON))


def find_property(random: Random, material: Material, extension: Extension) -> None:
    """One property of any bytes."""
    raw, name = properties(random), random.choice(NAMES)
    ours, pure = extension.find_property(raw, name), pure_find_property(raw, name)
    assert ours == pure, (raw, name, ours, pure)


def records(random: Random, material: Material, extension: Extension) -> None:
    """The records of a pull's answer."""
    made = [
        encode_record(
            random.choice(("T", "Topic", "t" * 127, "t" * 128, "é")),
            random.choice((0, 1, -1, 2**31 - 1)),
            random.choice((0, 1, -1, 2**31 - 1)),
            random.choice((0, 1, -1, 2**31 - 1)),
            random.randbytes(random.choice((0, 1, 100))),
            properties(random)[:0x7FFF],
            born_timestamp_ms=random.choice((0, -1, 2**63 - 1)),
            born_host=HOST if random.random() < 0.9 else HOST_V6,
            store_timestamp_ms=random.choice((0, -1, 2**63 - 1)),
            store_host=HOST if random.random() < 0.9 else HOST_V6,
            sys_flag=random.choice((0, 0, 0, 1, 8, 2**31 - 1)),
        )
        for _ in range(random.choice((0, 1, 3)))
    ]
    data = mutated(random, b"".join(made))
    ours, pure = _messages(data, extension), _messages(data, None)
    assert ours == pure, (data, ours, pure)


def _messages(data: bytes, extension: Extension | None) -> object:
    kept = message_codec._decode_plain
    message_codec._decode_plain = message_codec.plain_records(extension)
    try:
        return message_codec.decode_messages(data)
    except RemoteProtocolError as error:
        return error.reason, error.position
    finally:
        message_codec._decode_plain = kept


def send_frames(random: Random, material: Material, extension: Extension) -> None:
    """A producer's send."""
    payload = SendPayload(
        properties(random),
        random.randbytes(random.choice((0, 1, 200))),
        0,
        random.choice((0, 1, 9, 10, 10**18 - 1, 10**18, -1, 2**63 - 1, 2**63)),
        is_batch=random.random() < 0.3,
    )
    opaque = random.choice((0, 1, -1, 2**31 - 1, 2**31, -(2**31)))
    ours, pure = (_send_frame(payload, opaque, each) for each in (extension, None))
    assert ours == pure, (payload, opaque, ours, pure)


def _send_frame(payload: SendPayload, opaque: int, extension: Extension | None) -> object:
    kept = send_template._send_frame
    send_template._send_frame = None if extension is None else extension.send_frame
    try:
        return SendTemplate("Topic", "Group").encode(payload, 1, "broker", opaque)
    except LocalProtocolError as error:
        return str(error)
    finally:
        send_template._send_frame = kept


def grpc_sends(random: Random, material: Material, extension: Extension) -> None:
    """A gRPC client's send, usual or damaged."""
    data = send_request(random)
    check_send(data if random.random() < 0.5 else mutated(random, data), extension)


def grpc_receives(random: Random, material: Material, extension: Extension) -> None:
    """A message for a gRPC client, and an acknowledgement, usual or damaged."""
    check_received(random, extension)
    data = ack_request(random)
    check_ack(data if random.random() < 0.5 else mutated(random, data), extension)


def index(random: Random, material: Material, extension: Extension) -> None:
    """Entries of items, and files that take them."""
    items: list[IndexItem] = [
        (
            random.choice((0, 1, 2**32 - 1, random.getrandbits(32))),
            properties(random) + random.choice((b"", b"\2UNIQ_KEY\1%X" % random.getrandbits(128))),
            random.choice((0, 1, 2**40, 2**63 - 1)),
            random.choice((0, 1, 1_000, 10**12, 10**12 + 999, 2**62)),
        )
        for _ in range(random.choice((0, 1, 5, 60)))
    ]  # fmt: skip
    packed, done = extension.index_entries(items)
    pure = entries_of_items(items[:done])
    assert list(PACKED_ENTRY.iter_unpack(packed)) == pure, items
    begun_ms = random.choice((0, 10**12))
    slot_count, count_max = random.choice((1, 2, 20)), random.choice((2, 5, 50))
    files = [
        IndexFile(MemoryDisk(), "/1", slot_count=slot_count, index_count_max=count_max)
        for _ in "12"
    ]
    for file in files:
        file.create(end_physical_offset=0, end_timestamp_ms=begun_ms)
    first, taken, count = 0, 0, len(pure)
    while first < count and not files[0].is_full():
        piece = random.randint(first + 1, count)
        taken = files[0].put_packed(extension, packed[: piece * PACKED_ENTRY.size], first)
        assert taken == files[1].put_many(pure[first:piece])
        first += taken
    states = [_state(file) for file in files]
    assert states[0] == states[1], (items, states)


def _state(file: IndexFile) -> object:
    file.write_entries()
    disk = file._disk
    assert isinstance(disk, MemoryDisk)
    return (
        dict(disk.contents), list(file._slots or ()), file.index_count, file.hash_slot_count,
        file.begin_timestamp_ms, file.end_timestamp_ms, file.begin_physical_offset,
        file.end_physical_offset,
    )  # fmt: skip


def answers(random: Random, material: Material, extension: Extension) -> None:
    """An answer's frame, and the ids of a batch."""
    names = ("msgId", random.choice(("queueId", "q" * 200)), "queueOffset")
    constants = random.choice(({}, {"MSG_REGION": "R", "TRACE_ON": "true"}, {"x": "y" * 500}))
    code, remark = random.choice((0, 11, -1)), random.choice((None, "", "no", "r" * 300))
    opaque = random.choice((0, 1, -1, 2**31 - 1, -(2**31)))
    values = [b"v" * random.choice((0, 1, 32, 60)) for _ in range(3)]
    size = random.choice((0, 1, 1 << 24))
    ours, pure = (
        AnswerTemplate(names, constants=constants, code=code, remark=remark, native=native).encode(
            opaque, 1, values[0], values[1], values[2], body_size=size
        )
        for native in (extension, None)
    )
    assert ours == pure, (names, constants, code, remark, opaque, values, size)
    prefix = random.choice((b"", b"7F00000100002A9F", b"A" * 40))
    offsets = [random.choice((0, 1, 2**63 - 1)) for _ in range(random.choice((0, 1, 2, 100)))]
    assert extension.batch_ids(prefix, offsets) == batch_ids(prefix, offsets), (prefix, offsets)


PULL_FIELDS: Final = {
    "consumerGroup": "CG", "topic": "T", "queueId": "1", "queueOffset": "12", "sysFlag": "3",
    "maxMsgNums": "32", "commitOffset": "12", "subVersion": "0", "suspendTimeoutMillis": "1",
}  # fmt: skip


def pulls(random: Random, material: Material, extension: Extension) -> None:
    """Pulls of a template, changed, as commands."""
    names = random.sample(list(PULL_FIELDS), len(PULL_FIELDS))
    fields = {name: PULL_FIELDS[name] for name in names}
    kind, code = random.choice((JSON, ROCKETMQ)), random.choice((11, 361))
    template = template_of(frame(code, fields, opaque=7, serialize_type=kind))
    assert template is not None
    made = [
        template.frame(
            Numbers(
                random.choice((0, 7, 10**9 - 1)), random.choice((0, 1, 10**9 - 1)),
                random.choice((0, 12, 10**18 - 1)), random.choice((0, 12, 10**18 - 1)),
            )
        )
        for _ in range(random.randrange(4))
    ]  # fmt: skip
    data = mutated(random, b"".join(made))
    ours: list[RemotingCommand] = []
    classes = (RemotingCommand, PullFields, Pull, HeldPull)
    end = extension.take_pulls(classes, template, None, data, 0, FRAME_SIZE_MAX, ours, [])
    pure = FrameDecoder(frame_size_max=FRAME_SIZE_MAX).receive_data(data[:end])
    assert ours == pure, (data, ours, pure)


def joins(random: Random, material: Material, extension: Extension) -> None:
    """Records of one file, joined or left."""
    data = random.randbytes(random.choice((0, 100, 9000)))
    base = random.choice((0, 10_000))
    units = [
        (
            max(base + random.choice((0, 1, 50, 99, 100, 9000, -1, 2**62)), 0),
            random.choice((0, 1, 50, 100, 3000, -1, 2**31 - 1)),
            0,
        )
        for _ in range(random.randrange(5))
    ]
    near_from, log_end = random.choice((0, base, base + 50)), random.choice((0, base + len(data)))
    size_max = random.choice((0, 100, 10_000))
    packed = b"".join(UNIT.pack(*unit) for unit in units)
    ours = extension.join_records(packed, memoryview(data), base, near_from, log_end, size_max)
    if ours is not None:
        places = [(offset - base, offset - base + size) for offset, size, _ in units]
        assert all(0 <= start < end <= len(data) for start, end in places), units
        assert ours == b"".join(data[start:end] for start, end in places), units
        assert len(ours) <= size_max
        assert all(near_from <= offset <= log_end - size for offset, size, _ in units)


def broker(random: Random, material: Material, extension: Extension) -> None:
    """A short life of a broker, with all its answers and files."""
    kind, seed, turns = random.choice(KINDS), random.getrandbits(32), random.choice((2, 8, 20))
    ours, pure = (
        play(f"{kind} {seed}", seed, Traffic(seed, kind, PEERS), turns, native)
        for native in (extension, None)
    )
    assert ours == pure, (kind, seed, turns)


ODD: Final[tuple[object, ...]] = (
    None, True, 0, 1, -1, 2**31, 2**63, 2**64, -(2**63), 1.5, "", "text", b"", b"x", b"\0" * 64,
    bytearray(b"x"), memoryview(b"x"), [], [1], (), (1,), {}, {"a": "b"}, object(), object, int,
    RemotingCommand, RemotingCommand(1), NO_EXT_FIELDS, 10**30,
)  # fmt: skip


def arguments(random: Random, material: Material, extension: Extension) -> None:
    """Arguments of any types and numbers: an exception or a result, never a crash."""
    names = [name for name in dir(extension) if callable(getattr(extension, name))]
    function = getattr(extension, random.choice([name for name in names if name[0] != "_"]))
    given = [random.choice(ODD) for _ in range(random.randrange(17))]
    with suppress(TypeError, ValueError, OverflowError, AttributeError):
        function(*given)


Target = Callable[[Random, Material, Extension], None]
TARGETS: Final[tuple[tuple[Target, int], ...]] = (
    (frames, 100), (json_headers, 100), (find_property, 200), (records, 100), (send_frames, 100),
    (grpc_sends, 200), (grpc_receives, 100),
    (batches, 50), (plain_batches, 50), (sends, 50), (puts, 50), (transactions, 50),
    (deliveries, 50), (index, 50), (answers, 50), (pulls, 100), (joins, 100), (arguments, 200),
    (broker, 1),
)  # fmt: skip
"""Each target, and its cases in a round, which take about the same time for all."""
