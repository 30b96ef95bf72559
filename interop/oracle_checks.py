"""Checks that compare results of our code with those of Apache's classes.

Each check takes an `Oracle` and a value, and returns the difference as text; "" if there is none.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from ..broker.filters.bloom import BloomFilter
from ..client.core.allocation import (
    AllocateMachineRoomNearby,
    AllocateMessageQueueAveragely,
    AllocateMessageQueueAveragelyByCircle,
    AllocateMessageQueueByConfig,
    AllocateMessageQueueByMachineRoom,
    AllocateMessageQueueConsistentHash,
    AllocateMessageQueueStrategy,
)
from ..common.java_hash import java_hash_code, tags_code
from ..common.message_properties import (
    properties_from_bytes,
    properties_from_string,
    properties_to_bytes,
    properties_to_string,
)
from ..common.sql92.expression import FilterEvaluationError, FilterSyntaxError, compile_expression
from ..remoting.bodies import MessageQueue
from ..remoting.codec import RemotingCommand, SerializeType, decode_frame, encode
from ..remoting.hosts import host_bytes, host_parts
from ..remoting.language_codes import LanguageCode
from ..remoting.message import Message
from ..remoting.message_batch import encode_batch, iter_batch
from ..remoting.message_codec import decode_record, encode_record
from ..remoting.message_id import (
    OffsetId,
    UniqueIdGenerator,
    decode_offset_id,
    decode_unique_id,
    encode_offset_id,
    unique_id_time_ms,
)
from ..remoting.signature import Credentials, sign
from .oracle import Oracle
from .process import PeerError

STORED_TAIL: Final = "\x02"
"""The separator after each property; Apache's 4.9 omits it after the last one."""

UNIQUE_ID_AGE_MS: Final = 60_000
"""The age of the unique ids decoded here, which also bounds how long the decoding may take."""

SQL_NEW_WORDS: Final = re.compile(r"(?i)contains|startswith|endswith")
"""Keywords that Apache's 4.x does not have."""

SHOWN_CHARS_MAX: Final = 600


def difference(what: str, ours: object, theirs: object) -> str:
    """One line for two values that should be equal; "" if they are.

    Of two mappings with the same keys it shows only the differing members.
    """
    if ours == theirs:
        return ""
    if isinstance(ours, dict) and isinstance(theirs, dict) and ours.keys() == theirs.keys():
        names = [name for name in ours if ours[name] != theirs[name]]
        ours, theirs = ({name: each[name] for name in names} for each in (ours, theirs))
    return f"{what}: ours {repr(ours)[:SHOWN_CHARS_MAX]}, Apache's {repr(theirs)[:SHOWN_CHARS_MAX]}"


def _first(*differences: str) -> str:
    return next((each for each in differences if each), "")


def _is_old(oracle: Oracle) -> bool:
    return oracle.version.startswith("4.")


# ---- frames --------------------------------------------------------------------------------------


def check_frame(oracle: Oracle, command: RemotingCommand) -> str:
    """Each side decodes the other's frame; binary headers have the same bytes, too."""
    ours = encode(command)
    name = SerializeType(command.serialize_type).name
    theirs = bytes.fromhex(
        oracle.ask(
            "frame_encode",
            code=command.code,
            flag=command.flag,
            opaque=command.opaque,
            version=command.version,
            language=LanguageCode(command.language).name,
            serialize=name,
            remark=command.remark,
            ext=dict(command.ext_fields) or None,
            body=command.body.hex(),
        )
    )
    read = oracle.ask("frame_decode", hex=ours.hex())
    found = {
        "code": command.code,
        "flag": command.flag,
        "opaque": command.opaque,
        "version": command.version,
        "language": LanguageCode(command.language).name,
        # A binary header cannot tell null from an empty string; Apache reads both as null.
        "remark": command.remark or None,
        "serialize": name,
        "ext": {name: value or None for name, value in command.ext_fields.items()},
        "body": command.body.hex(),
    }
    read["remark"] = read["remark"] or None
    read["ext"] = {name: value or None for name, value in (read["ext"] or {}).items()}
    read["body"] = read["body"] or ""
    back = decode_frame(theirs)
    return _first(
        difference("Apache reads our frame", found, read),
        difference("we read Apache's frame", _comparable(command), _comparable(back)),
        difference("bytes", ours, theirs) if name == "ROCKETMQ" else "",
    )


def _comparable(command: RemotingCommand) -> tuple[object, ...]:
    return (
        command.code,
        command.flag,
        command.opaque,
        command.version,
        command.language,
        command.remark or None,
        dict(command.ext_fields),
        command.body,
    )


# ---- records, batches, properties ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Record:
    """The fields of a record; hosts as (IP address, port). No compression bit in `sys_flag`."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    body: bytes
    properties: Mapping[str, str]
    born_timestamp_ms: int
    born_host: tuple[str, int]
    store_timestamp_ms: int
    store_host: tuple[str, int]
    flag: int
    sys_flag: int
    reconsume_times: int
    prepared_offset: int


def check_record(oracle: Oracle, record: Record) -> str:
    """Both sides encode the same bytes and decode the same fields."""
    hosts = [host_bytes(*record.born_host), host_bytes(*record.store_host)]
    properties = properties_to_bytes(record.properties)
    if _is_old(oracle):
        properties = properties.removesuffix(STORED_TAIL.encode())
    ours = encode_record(
        record.topic,
        record.queue_id,
        record.queue_offset,
        record.physical_offset,
        record.body,
        properties,
        born_timestamp_ms=record.born_timestamp_ms,
        born_host=hosts[0],
        store_timestamp_ms=record.store_timestamp_ms,
        store_host=hosts[1],
        flag=record.flag,
        sys_flag=record.sys_flag,
        reconsume_times=record.reconsume_times,
        prepared_transaction_offset=record.prepared_offset,
    )
    # Our encoder sets the IPv6 bits of sysFlag by itself; Apache's takes them as given.
    v6_bits = sum(bit for host, bit in zip(hosts, (0x10, 0x20), strict=True) if len(host) == 20)
    asked = {
        "topic": record.topic,
        "queue_id": record.queue_id,
        "flag": record.flag,
        "queue_offset": record.queue_offset,
        "physical_offset": record.physical_offset,
        "sys_flag": record.sys_flag | v6_bits,
        "born_timestamp": record.born_timestamp_ms,
        "born_ip": record.born_host[0],
        "born_port": record.born_host[1],
        "store_timestamp": record.store_timestamp_ms,
        "store_ip": record.store_host[0],
        "store_port": record.store_host[1],
        "reconsume_times": record.reconsume_times,
        "prepared_offset": record.prepared_offset,
        "body": record.body.hex(),
        "properties": dict(record.properties),
    }
    theirs = bytes.fromhex(oracle.ask("record_encode", **asked))
    return _first(difference("bytes", ours, theirs), _read_records(oracle, ours))


def _read_records(oracle: Oracle, record: bytes) -> str:
    """Both sides decode two adjacent records."""
    found = oracle.ask("records_decode", hex=(record * 2).hex())
    if len(found) != 2 or found[0] != found[1]:
        return difference("records read", 2, found)
    message = decode_record(record)
    born, store = host_parts(message.born_host), host_parts(message.store_host)
    ours = {
        "topic": message.topic,
        "queue_id": message.queue_id,
        "flag": message.flag,
        "queue_offset": message.queue_offset,
        "physical_offset": message.physical_offset,
        "sys_flag": message.sys_flag,
        "born_timestamp": message.born_timestamp_ms,
        "born_ip": born[0],
        "born_port": born[1],
        "store_timestamp": message.store_timestamp_ms,
        "store_ip": store[0],
        "store_port": store[1],
        "reconsume_times": message.reconsume_times,
        "prepared_offset": message.prepared_transaction_offset,
        "body": message.body.hex(),
        "body_crc": message.body_crc,
        "size": message.store_size,
        "properties": message.properties,
        # The producer's unique key, if there is one.
        "message_id": message.unique_key or message.offset_message_id,
    }
    theirs = found[0]
    for name in ("born_ip", "store_ip"):
        theirs[name] = _plain_ip(theirs[name])
    theirs["body"] = theirs["body"] or ""
    theirs["properties"] = theirs["properties"] or {}
    return difference("what is read", ours, theirs)


def _plain_ip(text: str) -> str:
    """The shortest form of an address; Java writes all groups of an IPv6 address."""
    return str(ipaddress.ip_address(text))


def check_batch(oracle: Oracle, messages: Sequence[Message]) -> str:
    """Each side decodes the other's batch; the bytes are equal, except 4.9's last separator."""
    ours = encode_batch(messages)
    asked = [
        {"body": each.body.hex(), "flag": each.flag, "properties": each.properties}
        for each in messages
    ]
    theirs = bytes.fromhex(oracle.ask("batch_encode", messages=asked))
    read = oracle.ask("batch_decode", hex=ours.hex())
    back = [
        {"body": body.hex(), "flag": flag, "properties": properties_from_bytes(properties)}
        for flag, body, properties in iter_batch(theirs)
    ]
    for each in read:
        each["body"] = each["body"] or ""
        each["properties"] = each["properties"] or {}
    return _first(
        "" if _is_old(oracle) else difference("bytes", ours, theirs),
        difference("Apache reads our batch", asked, read),
        difference("we read Apache's batch", asked, back),
    )


def check_properties(oracle: Oracle, properties: Mapping[str, str]) -> str:
    theirs = oracle.ask("properties_to_string", properties=dict(properties))
    ours = properties_to_string(properties)
    return difference("text", ours.removesuffix(STORED_TAIL) if _is_old(oracle) else ours, theirs)


def check_properties_text(oracle: Oracle, text: str) -> str:
    theirs = oracle.ask("string_to_properties", text=text)
    return difference("properties", properties_from_string(text), theirs)


# ---- filters -------------------------------------------------------------------------------------

SqlVerdict = tuple[str, str]
"""The evaluator's result, and whether the broker takes it for a match."""

SQL_REFUSED: SqlVerdict = ("refused", "refused")


def our_sql_verdict(expression: str, properties: dict[str, str]) -> SqlVerdict:
    """The verdict of our filter; parsed and stored properties must give the same."""
    try:
        compiled = compile_expression(expression)
    except FilterSyntaxError:
        return SQL_REFUSED
    try:
        value = compiled.evaluate(properties)
        result = {True: "true", False: "false", None: "null"}[value]
    except FilterEvaluationError:
        result = "error"
    matched = compiled.matches(properties)
    stored = {name: value for name, value in properties.items() if value}
    if stored == properties and compiled.matches(properties_to_bytes(stored)) != matched:
        return result, "the stored properties give something else than the parsed ones"
    return result, str(matched).lower()


def sql_verdicts(oracle: Oracle, pairs: Sequence[tuple[str, dict[str, str]]]) -> list[SqlVerdict]:
    """The verdicts of Apache's classes for pairs of an expression and properties."""
    answers = oracle.ask_all(
        (op, {"expr": expression, "props": properties})
        for expression, properties in pairs
        for op in ("sql", "sql_broker")
    )
    found = []
    for plain, broker in zip(answers[::2], answers[1::2], strict=True):
        result: str = plain.value
        if result == "compile-error: MQFilterException":
            refused = "refused" if "MQFilterException" in broker.error else "?"
            found.append(("refused", refused))
        else:
            result = "error" if result.startswith("eval-error") else result
            found.append((result, str(broker.value).lower()))
    return found


def check_sql(oracle: Oracle, pair: tuple[str, dict[str, str]]) -> str:
    """Both refuse an expression, or give the same result.

    Expressions with keywords that the version does not have are passed over.
    """
    if _is_old(oracle) and SQL_NEW_WORDS.search(pair[0]):
        return ""
    (theirs,) = sql_verdicts(oracle, [pair])
    return difference(f"{pair[0]!r} of {pair[1]!r}", our_sql_verdict(*pair), theirs)


def check_bloom(oracle: Oracle, case: tuple[int, int, str]) -> str:
    """Size of a filter by error rate (percent) and expected count; a string's positions in it."""
    error_rate, count, text = case
    theirs = oracle.ask("bloom", error_rate=error_rate, count=count, text=text)
    made = BloomFilter.create(error_rate, count)
    ours = {
        "positions": list(made.generate(text)),
        "bit_count": made.bit_count,
        "k": made.hash_count,
        "m": made.bit_count,
    }
    return difference(f"error rate {error_rate}, count {count}, {text!r}", ours, theirs)


# ---- strings and ids -----------------------------------------------------------------------------


def check_hash_codes(oracle: Oracle, text: str) -> str:
    """A string's hash code, and its code as a tag."""
    return _first(
        difference("hash code", java_hash_code(text), oracle.ask("hash_code", text=text)),
        difference("tags code", tags_code(text), oracle.ask("tags_code", text=text)),
    )


def check_offset_id(oracle: Oracle, place: tuple[str, int, int]) -> str:
    """The id of a store host and a physical offset, encoded and decoded."""
    ip, port, offset = place
    ours = encode_offset_id(host_bytes(ip, port), offset)
    theirs = oracle.ask("offset_id_encode", ip=ip, port=port, offset=offset)
    read_ip, read_port, read_offset = oracle.ask("offset_id_decode", text=ours)
    read = OffsetId(_plain_ip(read_ip), read_port, read_offset)
    return _first(
        difference("id", ours, theirs), difference("what is read", decode_offset_id(ours), read)
    )


class UniqueIdSource(NamedTuple):
    """The input of a unique id.

    Attributes:
      ip: 4 or 16 bytes.
      loader_hash: the hash code of Java's class loader.
      now_ms: ms since 1970.
    """

    ip: bytes
    pid: int
    loader_hash: int
    now_ms: int


def check_unique_id(oracle: Oracle, source: UniqueIdSource) -> str:
    """The fields decoded from an id of ours and from one of Apache's."""
    now_ms = source.now_ms
    read_at_ms = now_ms + UNIQUE_ID_AGE_MS
    generator = UniqueIdGenerator(source.ip, source.pid, source.loader_hash)
    # An id of the current millisecond is taken for one of last month by both sides.
    ours = generator.next_id(now_ms - UNIQUE_ID_AGE_MS)
    theirs = oracle.ask("unique_id_encode")
    is_theirs_recent = abs(unique_id_time_ms(theirs, read_at_ms) - now_ms) < UNIQUE_ID_AGE_MS
    return _first(
        difference(ours, _our_reading(ours, read_at_ms), _their_reading(oracle, ours)),
        difference(
            theirs,
            {**_our_reading(theirs, read_at_ms), "time": None},
            {**_their_reading(oracle, theirs), "time": None},
        ),
        "" if is_theirs_recent else f"{theirs}: we do not decode its time as {now_ms}",
    )


def _our_reading(unique_id: str, now_ms: int) -> dict[str, object]:
    read = decode_unique_id(unique_id)
    return {"ip": read.ip, "pid": read.pid, "time": unique_id_time_ms(unique_id, now_ms)}


def _their_reading(oracle: Oracle, unique_id: str) -> dict[str, object]:
    read: dict[str, Any] = oracle.ask("unique_id_decode", text=unique_id)
    return {**read, "ip": _plain_ip(read["ip"])}


# ---- queues and signatures -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AllocationCase:
    """The input of a queue allocation among the members of a group.

    Attributes:
      strategy: RocketMQ's name; "MACHINE_ROOM_NEARBY-AVG": inside rooms by AVG.
      rooms: for MACHINE_ROOM.
      configured: for CONFIG.
      nodes: for CONSISTENT_HASH, the virtual nodes of a member.
    """

    strategy: str
    client_id: str
    queues: tuple[MessageQueue, ...]
    client_ids: tuple[str, ...]
    rooms: frozenset[str] = frozenset()
    configured: tuple[MessageQueue, ...] = ()
    nodes: int = 10


class _RoomsInNames:
    """The room is the part before the first "@", as in Oracle.java."""

    def broker_deploy_in(self, queue: MessageQueue) -> str:
        return queue.broker_name.partition("@")[0]

    def consumer_deploy_in(self, client_id: str) -> str:
        return client_id.partition("@")[0]


def _strategy(name: str, case: AllocationCase) -> AllocateMessageQueueStrategy:
    if name.startswith("MACHINE_ROOM_NEARBY-"):
        inner = _strategy(name.partition("-")[2], case)
        return AllocateMachineRoomNearby(inner, _RoomsInNames())
    made: dict[str, Callable[[], AllocateMessageQueueStrategy]] = {
        "AVG": AllocateMessageQueueAveragely,
        "AVG_BY_CIRCLE": AllocateMessageQueueAveragelyByCircle,
        "CONSISTENT_HASH": lambda: AllocateMessageQueueConsistentHash(case.nodes),
        "CONFIG": lambda: AllocateMessageQueueByConfig(case.configured),
        "MACHINE_ROOM": lambda: AllocateMessageQueueByMachineRoom(case.rooms),
    }
    return made[name]()


def check_allocation(oracle: Oracle, case: AllocationCase) -> str:
    """Both sides allocate the same queues in the same order, or both refuse."""
    try:
        strategy = _strategy(case.strategy, case)
        queues = strategy.allocate("g", case.client_id, case.queues, case.client_ids)
        ours: Any = _triples(queues)
    except ValueError:
        ours = "refused"
    name, _, inner = case.strategy.partition("-")
    fields = {
        "strategy": name,
        "inner": inner,
        "group": "g",
        "client_id": case.client_id,
        "queues": _triples(case.queues),
        "client_ids": list(case.client_ids),
        "rooms": sorted(case.rooms),
        "configured": _triples(case.configured),
        "nodes": case.nodes,
    }
    (answer,) = oracle.ask_all([("allocate", fields)])
    if answer.error and not answer.error.startswith("IllegalArgumentException"):
        raise PeerError(f"{case}: {answer.error}")
    return difference(repr(case), ours, "refused" if answer.error else answer.value)


def _triples(queues: Sequence[MessageQueue]) -> list[list[object]]:
    return [[queue.topic, queue.broker_name, queue.queue_id] for queue in queues]


def check_signature(oracle: Oracle, signed: tuple[Credentials, Mapping[str, str], bytes]) -> str:
    """Both sides add the same fields to a signed request."""
    credentials, fields, body = signed
    ours = dict(fields)
    sign(ours, body, credentials.access_key, credentials.secret_key, credentials.security_token)
    theirs = oracle.ask(
        "sign",
        access_key=credentials.access_key,
        secret_key=credentials.secret_key,
        security_token=credentials.security_token,
        ext=dict(fields),
        body=body.hex(),
    )
    return difference("fields", ours, theirs)
