"""Targets of the extension's fuzzer: each makes one case by chance, and compares C with Python."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from random import Random
from typing import Any, Final

from trocket.broker.messages.inner_message import DelayLevels, InnerMessage, InnerPuts
from trocket.broker.sending.send_batch import batch_ids
from trocket.broker.sending.send_numbers import LETTER_NAMES, WORD_NAMES, SendNames, is_batch
from trocket.broker.sending.transaction_runs import EndFrame, HalfFrame
from trocket.broker.waiting.pull import Pull
from trocket.broker.waiting.pull_request_hold import HeldPull
from trocket.client.core import send_header
from trocket.client.core.send_header import SendPayload, SendTemplate
from trocket.common.message_properties import pure_find_property
from trocket.disk.memory_disk import MemoryDisk
from trocket.native import Extension
from trocket.native.path_counts import PathCounts
from trocket.remoting import codec, message_codec
from trocket.remoting.answer_template import AnswerTemplate
from trocket.remoting.codec import NO_EXT_FIELDS, FrameDecoder, RemotingCommand
from trocket.remoting.errors import LocalProtocolError, RemoteProtocolError
from trocket.remoting.message_codec import decode_record, encode_record
from trocket.remoting.pull_fields import PullFields
from trocket.remoting.pull_templates import Numbers, template_of
from trocket.store.format import UNIT
from trocket.store.index.index_backlog import IndexItem, IndexRun
from trocket.store.index.index_entries import entries_of_items
from trocket.store.index.index_file import PACKED_ENTRY, IndexFile
from trocket.store.message_store import MessageStore
from trocket.store.writing.message_appender import MessageAppender
from trocket.store.writing.run_appender import RunAppender

from ..native.frames import JSON, ROCKETMQ, batch_entry, frame, odd_json_frame, whole
from ..native.player import PEERS, play
from ..native.test_json_header import check, fields_of
from ..native.traffic import KINDS, Traffic
from ..store.support import HOST, HOST_V6, open_store, put

SIZES: Final = (
    0, 1, 2, 20, 21, 22, 36, 37, 40, 41, 64, 65, 255, 256, 0x7FFF, 0x8000, 0xFFFF, 0x10000,
    1 << 24, 2**31 - 1, 2**31, 2**32 - 1,
)  # fmt: skip
FRAME_SIZE_MAX: Final = 1 << 16


STORE_USES: Final = 200
"""Cases that one pair of stores serves; its files are in memory."""


class Material:
    """Frames to change: recorded ones, and a supply of generated ones; and stores to put into.

    Args:
      recorded: may be empty.
    """

    def __init__(self, recorded: list[bytes]) -> None:
        self._recorded = [frame for frame in recorded if frame[4] == 1] or recorded
        self._stores: list[MessageStore] = []
        self._uses = 0

    def stores(self) -> list[MessageStore]:
        """Two stores that have the same content."""
        if self._uses % STORE_USES == 0:
            self._stores = [open_store(), open_store()]
        self._uses += 1
        return self._stores

    def frames(self, random: Random) -> bytes:
        """Some frames one after the other."""
        if self._recorded and random.random() < 0.5:
            return b"".join(random.choices(self._recorded, k=random.randint(1, 3)))
        traffic = Traffic(random.getrandbits(32), random.choice(KINDS), 1)
        return b"".join(traffic.request() for _ in range(random.randint(1, 4)))


def mutated(random: Random, data: bytes) -> bytes:
    """Bytes with some changes; often none."""
    made = bytearray(data)
    for _ in range(random.choice((0, 1, 1, 2, 3, 10))):
        at = random.randrange(len(made) + 1)
        match random.randrange(7):
            case 0 if at < len(made):
                made[at] ^= 1 << random.randrange(8)
            case 1 if at < len(made):
                made[at] = random.choice((0, 1, 2, 0x7F, 0x80, 0xC3, 0xFF))
            case 2:
                del made[at : at + random.choice((1, 2, 4, 20))]
            case 3:
                made[at:at] = random.randbytes(random.choice((1, 2, 4, 50)))
            case 4:
                made[at : at + 4] = struct.pack(">I", random.choice(SIZES))
            case 5:
                made[at : at + 2] = struct.pack(">H", random.choice(SIZES) & 0xFFFF)
            case _:
                copied = random.randrange(len(made) + 1)
                made[at:at] = made[copied : copied + random.randrange(60)]
    if random.random() < 0.2:
        del made[random.randrange(len(made) + 1) :]
    return bytes(made)


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


NAMES: Final = (b"TAGS", b"KEYS", b"UNIQ_KEY", b"DELAY", b"A", b"AB", b"\xff")


def properties(random: Random) -> bytes:
    """Encoded properties, mostly right."""
    pieces = (*NAMES, b"\1", b"\1", b"\2", b"\2", b"value", b"", b"\0", b"k1 k2", "é".encode())
    return mutated(random, b"".join(random.choices(pieces, k=random.randrange(14))))


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
    kept = send_header._send_frame
    send_header._send_frame = None if extension is None else extension.send_frame
    try:
        return SendTemplate("Topic", "Group").encode(payload, 1, "broker", opaque)
    except LocalProtocolError as error:
        return str(error)
    finally:
        send_header._send_frame = kept


def batch(random: Random) -> bytes:
    """The body of a batch, mostly right."""
    size = random.choice((0, 0, 1, 7, 8, 9, 100, 3000))
    is_plain = random.random() < 0.6  # one odd message makes all of it the business of Python
    entries: list[bytes] = []
    for number in range(random.choice((0, 1, 2, 3, 20))):
        raw = b"UNIQ_KEY\1%032X\2" % random.getrandbits(128)
        match 9 if is_plain else random.randrange(8):
            case 0:
                raw += b"TAGS\1" + random.choice((b"a", "é".encode(), b"\xff", b"t" * 50))
            case 1:
                raw += b"KEYS\1" + random.choice((b"a b", b" ", "é k".encode(), b"k" * 99))
            case 2:
                raw = properties(random)[:0x7FFF]
            case 3:
                raw = b"long\1" + b"p" * random.choice((0x7FF0, 0x7F00, 0x7FD0))
            case 9 if random.random() < 0.3:
                raw += random.choice((b"TAGS\1TagA", b"KEYS\1a b\2"))
        body = random.randbytes(size if random.random() < 0.9 else number)
        entries.append(batch_entry(body, raw[:0x7FFF], random.choice((0, 0, 1, -1, 2**31 - 1))))
    body = b"".join(entries)
    return mutated(random, body) if random.random() < 0.3 else body


def batches(random: Random, material: Material, extension: Extension) -> None:
    """A batch put into two stores, and all that it adds to their bursts."""
    added = random.choice((b"", b"A\1b\2", b"A\1b", b"KEYS\1x", b"MSG_REGION\1R\2CLUSTER\1C\2"))
    arguments = (random.choice("TU"), random.randrange(3), batch(random), added)
    options: dict[str, Any] = {
        "born_timestamp_ms": random.choice((0, 1, -1, 2**63 - 1, 1_700_000_000_000)),
        "born_host": HOST if random.random() < 0.95 else HOST_V6, "store_host": HOST,
        "sys_flag": random.choice((0, 0, 1, 8, 32, 2**31 - 1)),
        "reconsume_times": random.choice((0, 0, 1, 2**31 - 1)),
    }  # fmt: skip
    outcomes: list[object] = []
    for store, native in zip(material.stores(), (extension, None), strict=True):
        appender = MessageAppender(store.config, store.queue_store, store.writer, native)
        store.begin_burst()
        result = appender.put_batch(*arguments, **options)
        outcomes.append((result, _added_to(store)))
        store.on_visible(store.commit())
    assert outcomes[0] == outcomes[1], (arguments, options, outcomes)


def plain_batches(random: Random, material: Material, extension: Extension) -> None:
    """Whether a batch needs no rule."""
    body = batch(random) + random.choice((b"", b"_", b"DELAY", b"UNIQ_KEY\1", b"UNIQ_KEY", b"DELA"))
    is_plain = b"DELAY" not in body and body.count(b"_") == body.count(b"UNIQ_KEY\1")
    assert extension.is_plain_batch(body) == is_plain, body


def puts(random: Random, material: Material, extension: Extension) -> None:
    """Messages put one by one into two stores, and all that they add to their bursts."""
    made: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
    for _ in range(random.choice((1, 2, 5))):
        arguments = (
            random.choice("TU"), random.randrange(3),
            random.randbytes(random.choice((0, 1, 7, 8, 9, 100, 3000, 30_000))),
            properties(random)[: random.choice((0x7FFF, 0x8000, 100))],
        )  # fmt: skip
        options: dict[str, Any] = {
            "born_timestamp_ms": random.choice((0, 1, -1, 2**63 - 1, 2**63, 1_700_000_000_000)),
            "born_host": HOST if random.random() < 0.9 else HOST_V6,
            "store_host": HOST if random.random() < 0.9 else HOST_V6,
            "tags_code": random.choice((0, 1, -1, 2**63 - 1, -(2**63))),
            "flag": random.choice((0, 0, 1, -1, 2**31 - 1, 2**31)),
            "sys_flag": random.choice((0, 0, 1, 4, 8, 12, 48, 2**31 - 1, 1 << 31)),
            "reconsume_times": random.choice((0, 0, 1, 2**31 - 1)),
            "prepared_transaction_offset": random.choice((0, 0, 7, 2**63 - 1)),
        }
        made.append((arguments, options))
    outcomes: list[object] = []
    for store, native in zip(material.stores(), (extension, None), strict=True):
        appender = MessageAppender(store.config, store.queue_store, store.writer, native)
        store.begin_burst()
        results: list[object] = []
        for arguments, options in made:
            try:
                results.append(appender.put_message(*arguments, **options))
            except struct.error:
                results.append("a number does not fit")
        outcomes.append((results, _added_to(store)))
        store.on_visible(store.commit())
    assert outcomes[0] == outcomes[1], (made, outcomes)


def transactions(random: Random, material: Material, extension: Extension) -> None:
    """Half messages and ends, taken out of their frames; Python decodes the same bytes."""
    traffic = Traffic(random.getrandbits(32), random.choice(KINDS), 1)
    pieces: list[bytes] = []
    for number in range(random.randint(1, 4)):
        kind, more = random.randrange(2), "TAGS\1a" if random.random() < 0.5 else ""
        half = {
            "b": "T", "e": "0", "f": "4", "g": "1700000000000", "h": "0", "j": "0", "m": "false",
            "i": f"TRAN_MSG\1true\2UNIQ_KEY\1{number:032X}\2PGROUP\1PG\2{more}",
        }  # fmt: skip
        end = {"producerGroup": "PG", "commitLogOffset": "7", "tranStateTableOffset": "3",
               "commitOrRollback": "8", "transactionId": "K"}  # fmt: skip
        pieces += random.choice((
            [frame(310, half, b"body", opaque=number, serialize_type=kind)],
            [frame(37, end, opaque=number, flag=2, serialize_type=kind)],
            [traffic.request()],
        ))  # fmt: skip
    data = mutated(random, b"".join(pieces))
    added = random.choice((b"", b"A\1b\2", b"MSG_REGION\1R\2CLUSTER\1C\2"))
    taken: list[HalfFrame | EndFrame] = []
    extension.take_transactions(
        HalfFrame, EndFrame, added, codec.HEADER_SIZE_MAX, data, 0, FRAME_SIZE_MAX, taken
    )
    position = 0
    for each in taken:
        command = codec.decode_frame(data[position : each.end])
        position = each.end
        fields = command.ext_fields
        if isinstance(each, EndFrame):
            assert (command.code, command.flag) == (37, 2), data
            assert (
                str(each.half_offset), str(each.queue_offset), str(each.outcome), each.group,
                each.transaction_id,
            ) == (
                fields["commitLogOffset"], fields["tranStateTableOffset"],
                fields["commitOrRollback"], fields["producerGroup"],
                fields.get("transactionId", ""),
            ), data  # fmt: skip
            continue
        names = WORD_NAMES if command.code == 10 else LETTER_NAMES
        numbers = read_numbers_of(fields, names)
        own = fields[names.properties].encode()
        joined = own + (b"\2" if added and own[-1] != 2 else b"") + added
        key_at = own.index(b"UNIQ_KEY\1") + len(b"UNIQ_KEY\1")
        key = own[key_at:].split(b"\2")[0]
        assert (command.flag, is_batch(fields, names)) == (0, False), data
        assert each == HalfFrame(
            position, command.opaque, command.serialize_type, fields[names.topic],
            numbers[0], numbers[1], numbers[2], joined,
            joined[:key_at] + joined[key_at + len(key) :], key, command.body,
        ), data  # fmt: skip


def read_numbers_of(fields: Mapping[str, str], names: SendNames) -> tuple[int, int, int]:
    """Queue, born time and sysFlag of a send whose other numbers are 0."""
    assert (fields[names.flag], fields.get(names.reconsume_times) or "0") == ("0", "0")
    return (
        int(fields[names.queue_id]),
        int(fields[names.born_timestamp]),
        int(fields[names.sys_flag]),
    )


def _added_to(store: MessageStore) -> object:
    """The burst, and the queues that it touched."""
    burst = store.writer.burst
    records = [(at, b"".join(pieces)) for at, pieces in burst.segments]
    queues = [(queue.key, bytes(queue.tail), queue.next_offset) for queue in burst.touched]
    entries: list[tuple[int, int, int]] = []
    for item in burst.index_items:
        if isinstance(item, IndexRun):
            entries += PACKED_ENTRY.iter_unpack(item.entries)
        else:
            entries += entries_of_items([item])
    return records, b"".join(burst.pending), burst.append_offset, queues, entries


def deliveries(random: Random, material: Material, extension: Extension) -> None:
    """Due messages stored again in one of two stores, and each of them in the other."""
    made: list[bytes] = []
    for _ in range(random.choice((1, 2, 5))):
        is_odd = random.random() < 0.2
        raw = b"UNIQ_KEY\1%032X\2" % random.getrandbits(128)
        raw += properties(random)[:1000] if is_odd else b"TAGS\1TagA\2KEYS\1a b\2"
        raw += b"DELAY\0011\2REAL_TOPIC\1%s\2REAL_QID\1%s\2" % (
            random.choice((b"T", b"U", b"", b"V", "é".encode()) if is_odd else (b"T",)),
            random.choice((b"3", b"01", b"", b"99999999999", b"1x") if is_odd else (b"0", b"2")),
        )  # fmt: skip
        made.append(
            encode_record(
                "SCHEDULE_TOPIC_XXXX", 0, 7, 7, random.randbytes(random.choice((0, 9, 100))), raw,
                born_timestamp_ms=random.choice((0, -1, 2**63 - 1)), born_host=HOST,
                store_timestamp_ms=1, store_host=HOST,
                flag=random.choice((0, 1, -1)),
                sys_flag=random.choice((0, 1, 8, 0x100)) if is_odd else 0,
                reconsume_times=random.choice((0, 3, -1)),
            )
        )  # fmt: skip
    data = b"".join(made)
    if random.random() < 0.5:
        data = mutated(random, data)
    ours, pure = material.stores()
    for store in (ours, pure):  # a run has no first messages of a queue
        store.begin_burst()
        for queue_id in range(3):
            if store.max_offset("T", queue_id) == 0:
                put(store, queue_id=queue_id)
        store.on_visible(store.commit())
        store.begin_burst()
    runs = RunAppender(extension, ours.config, ours.queue_store, ours.writer, batches=PathCounts())
    run = runs.deliver(data, 0, {"T", "U"})
    position, puts = 0, InnerPuts(pure, DelayLevels("1s"))
    for _ in range(run.message_count if run else 0):
        message = decode_record(data, position)
        again = InnerMessage.of(message)
        again.topic, again.queue_id = puts.kinds.real_place(message)
        assert puts.put(again)[0] is None
        position += message.store_size
    assert position == (run.size if run else 0), data
    outcomes = [_added_to(store) for store in (ours, pure)]
    for store in (ours, pure):
        store.on_visible(store.commit())
    assert outcomes[0] == outcomes[1], (data, outcomes)


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
    (batches, 50), (plain_batches, 50), (puts, 50), (transactions, 50), (deliveries, 50),
    (index, 50), (answers, 50), (pulls, 100), (joins, 100), (arguments, 200), (broker, 1),
)  # fmt: skip
"""Each target, and its cases in a round, which take about the same time for all."""
