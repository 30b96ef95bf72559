"""Targets of the fuzzer that put messages: into a store by C, and into another by Python."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from random import Random
from typing import Any, Final

from trocket.broker.messages.inner_message import DelayLevels, InnerMessage, InnerPuts
from trocket.broker.sending.send_batch import batch_ids
from trocket.broker.sending.send_numbers import LETTER_NAMES, WORD_NAMES, SendNames, is_batch
from trocket.broker.sending.transaction_runs import EndFrame, HalfFrame
from trocket.common.java_hash import tags_code
from trocket.common.message_properties import pure_find_property
from trocket.native import Extension
from trocket.native.path_counts import PathCounts
from trocket.remoting import codec
from trocket.remoting.answer_template import AnswerTemplate
from trocket.remoting.bodies import TopicConfig
from trocket.remoting.codec import FrameDecoder, RemotingCommand
from trocket.remoting.message_codec import decode_record, encode_record
from trocket.store.index.index_backlog import IndexRun
from trocket.store.index.index_entries import entries_of_items
from trocket.store.index.index_file import PACKED_ENTRY
from trocket.store.message_store import MessageStore
from trocket.store.writing.message_appender import MessageAppender
from trocket.store.writing.run_appender import RunAppender

from ..native.frames import JSON, ROCKETMQ, batch_entry, frame
from ..native.traffic import KINDS, Traffic
from ..store.support import HOST, HOST_V6, put
from .material import FRAME_SIZE_MAX, Material, mutated, properties


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
        joined = _joined(own, added)
        key_at = own.index(b"UNIQ_KEY\1") + len(b"UNIQ_KEY\1")
        key = own[key_at:].split(b"\2")[0]
        assert (command.flag, is_batch(fields, names)) == (0, False), data
        assert each == HalfFrame(
            position, command.opaque, command.serialize_type, fields[names.topic],
            numbers[0], numbers[1], numbers[2], joined,
            joined[:key_at] + joined[key_at + len(key) :], key, command.body,
        ), data  # fmt: skip


def _joined(own: bytes, added: bytes) -> bytes:
    """A message's properties, which are not empty, with the broker's after them."""
    return own + (b"\2" if added and own[-1] != 2 else b"") + added


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


def _stores_with_queues(material: Material) -> tuple[MessageStore, MessageStore]:
    """Two stores with three queues, in a burst: a run has no first messages of a queue."""
    ours, pure = material.stores()
    for store in (ours, pure):
        store.begin_burst()
        for queue_id in range(3):
            if store.max_offset("T", queue_id) == 0:
                put(store, queue_id=queue_id)
        store.on_visible(store.commit())
        store.begin_burst()
    return ours, pure


def sends(random: Random, material: Material, extension: Extension) -> None:
    """Plain sends and batches put into one of two stores as a run, and one by one in the other."""
    pieces: list[bytes] = []
    for number in range(random.choice((1, 2, 5))):
        key = f"UNIQ_KEY\1{random.getrandbits(128):032X}\2"
        fields = {
            "a": "PG", "b": "T", "c": "TBW102", "d": "4", "e": random.choice("0129"), "f": "0",
            "g": "1700000000000", "h": "0",
            "i": key + random.choice(("", "TAGS\1a", "KEYS\1k l\2", "WAIT\1true")), "j": "0",
        }  # fmt: skip
        body = random.randbytes(random.choice((0, 1, 100)))
        code = random.choice((310, 310, 320))
        if code == 320:
            body = batch(random)
            fields |= {"m": "true", "i": random.choice(("", "WAIT\1true", "WAIT\1false", key))}
        kind, flag = random.choice((JSON, ROCKETMQ)), random.choice((0, 0, 2))
        pieces.append(frame(code, fields, body, opaque=number, flag=flag, serialize_type=kind))
    data = b"".join(pieces) if random.random() < 0.5 else mutated(random, b"".join(pieces))
    added = random.choice((b"", b"A\1b\2", b"MSG_REGION\1R\2CLUSTER\1C\2"))
    ours, pure = _stores_with_queues(material)
    runs = RunAppender(extension, ours.config, ours.queue_store, ours.writer, batches=PathCounts())
    template = AnswerTemplate(("msgId", "queueId", "queueOffset"), constants={})
    rules = runs.rules(
        {"T": TopicConfig(topic_name="T", write_queue_nums=3)}, set(), added=added,
        store_host=HOST, id_prefix=_PREFIX, answer_parts=template.binary_parts,
        json_answer_parts=template.json_parts,
    )  # fmt: skip
    run = runs.append(rules, data, 0, FRAME_SIZE_MAX, HOST)
    position, expected = 0, []
    for _ in range(run.send_count if run else 0):
        size = 4 + int.from_bytes(data[position : position + 4], "big")
        command = codec.decode_frame(data[position : position + size])
        position += size
        answer = _put_alone(pure, command, added)
        if not command.is_oneway:
            expected.append((command.opaque, answer))
    assert position == (run.size if run else 0), data
    found = FrameDecoder().receive_data(run.answers) if run else []
    fields_of_answers = [(each.opaque, dict(each.ext_fields)) for each in found]
    assert fields_of_answers == expected, (data, fields_of_answers, expected)
    outcomes = [_added_to(store) for store in (ours, pure)]
    for store in (ours, pure):
        store.on_visible(store.commit())
    assert outcomes[0] == outcomes[1], (data, outcomes)


_PREFIX: Final = HOST.hex().upper().encode()


def _put_alone(store: MessageStore, command: RemotingCommand, added: bytes) -> dict[str, str]:
    """Put a plain send or a batch by Python; returns the fields of its answer."""
    names = WORD_NAMES if command.code == 10 else LETTER_NAMES
    fields = command.ext_fields
    queue_id, born_ms, sys_flag = read_numbers_of(fields, names)
    appender = MessageAppender(store.config, store.queue_store, store.writer, None)
    options: dict[str, Any] = {
        "born_timestamp_ms": born_ms, "born_host": HOST, "store_host": HOST, "sys_flag": sys_flag
    }  # fmt: skip
    if is_batch(fields, names):
        refusal, offsets, first = appender.put_batch("T", queue_id, command.body, added, **options)
    else:
        own = fields[names.properties].encode()
        joined = _joined(own, added)
        tags = pure_find_property(own, b"TAGS")
        code = 0 if tags is None else tags_code(tags.decode())
        refusal, offset, first = appender.put_message(
            "T", queue_id, command.body, joined, tags_code=code, **options
        )
        offsets = [offset]
    assert refusal is None, (command, refusal)
    return {
        "msgId": batch_ids(_PREFIX, offsets), "queueId": str(queue_id), "queueOffset": str(first)
    }  # fmt: skip


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
    ours, pure = _stores_with_queues(material)
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
