"""Fast encoding of SEND_MESSAGE_V2 (310) and SEND_BATCH_MESSAGE (320) requests.

The sends of a producer to one queue differ only in the time, the properties and the body. So all
other fields are kept as encoded bytes for each queue, and a message costs one `struct` call and one
join. A test compares the frames with those of `codec.encode` and `SendMessageRequestHeaderV2`.

The properties are the last field: a reader that remembers the positions of the fields in the last
header of the same size finds the others at the same positions.

Fields without a value are left out. Apache reads an empty value of a binary header as null and
verifies the signature with the text "null", so such a request would be refused.

Java counterpart: SendMessageRequestHeaderV2, MQClientAPIImpl.sendMessage of RocketMQ 5.3.3. Pure.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, TypeAlias

import msgspec

from ..common.topic_names import AUTO_CREATE_TOPIC
from ..native import extension
from .codec import (
    CURRENT_VERSION,
    FRAME,
    FRAME_SIZE_MAX,
    NO_EXT_FIELDS,
    ONEWAY_FLAG,
    ROCKETMQ_HEADER,
    encode_ext_fields,
)
from .errors import LocalProtocolError
from .headers.message import SEND_MESSAGE_V2_LETTERS
from .language_codes import LanguageCode
from .message_codec import PROPERTIES_SIZE_MAX
from .request_codes import RequestCode
from .schema import I32, Layout
from .signature import (
    ACCESS_KEY,
    SECURITY_TOKEN,
    SIGNATURE,
    SIGNATURE_SIZE,
    Credentials,
    signature_of,
    sort_names,
)

DEFAULT_TOPIC_QUEUE_NUMS: Final = 4
"""Queues of a topic that a send creates. Source: DefaultMQProducer.defaultTopicQueueNums."""

CONSTANTS_SIZE_MAX: Final = 16_384
"""Largest size of the fields that are the same in each message; they usually have 1,000 bytes."""

PREFIXES_COUNT_MAX: Final = 1024
"""Number of queues (and flags) whose encoded fields are kept, with about 300 bytes each."""

_PACK_START = Layout(**FRAME.fields, **ROCKETMQ_HEADER.fields, fields_size=I32).struct().pack
_HEADER_SIZE: Final = ROCKETMQ_HEADER.struct().size + 4
_BINARY_MARK: Final = 1 << 24
_SEND: Final = int(RequestCode.SEND_MESSAGE_V2)
_SEND_BATCH: Final = int(RequestCode.SEND_BATCH_MESSAGE)


@lru_cache(maxsize=64)
def _starts(language: int, version: int) -> dict[tuple[bool, bool], bytes]:
    """All before the fields, by is_batch and oneway, for the C extension."""
    return {
        (is_batch, oneway): _PACK_START(
            0, 0, code, language, version, 0, ONEWAY_FLAG if oneway else 0, 0, 0
        )
        for is_batch, code in ((False, _SEND), (True, _SEND_BATCH))
        for oneway in (False, True)
    }


_send_frame = None if extension is None else extension.send_frame

_LETTERS: Final = {name: letter for letter, name in SEND_MESSAGE_V2_LETTERS.items()}
_BORN: Final = _LETTERS["born_timestamp"]
_PROPERTIES: Final = _LETTERS["properties"]


def _field_starts(name: str, sizes: range) -> tuple[bytes, ...]:
    """The bytes before a value, for each size of the value: the field's name and the size."""
    values = [encode_ext_fields({name: "x" * size}) for size in sizes]
    return tuple(value[: len(value) - size] for value, size in zip(values, sizes, strict=True))


_BORN_SIZE_MAX: Final = 20  # "-9223372036854775808"
_BORN_STARTS: Final = _field_starts(_BORN, range(_BORN_SIZE_MAX + 1))
_PROPERTIES_STARTS: Final = (b"", *_field_starts(_PROPERTIES, range(1, 512)))
_PROPERTIES_STARTS_COUNT: Final = len(_PROPERTIES_STARTS)
_PROPERTIES_NAME: Final = _PROPERTIES_STARTS[1][:-4]
_PACK_SIZE = Layout(size=I32).struct().pack
_BORN_START_SIZE: Final = len(_BORN_STARTS[0])
_SIGNATURE_START: Final = _field_starts(SIGNATURE, range(SIGNATURE_SIZE, SIGNATURE_SIZE + 1))[0]

_Key: TypeAlias = tuple[int, str | None, int, int, bool, int, int | None]
# The encoded fields; and the values to sign before, between and after time and properties.
_Prepared: TypeAlias = tuple[bytes, tuple[bytes, bytes, bytes]]


class SendPayload(msgspec.Struct, gc=False):
    """A message or a batch as it is sent, independent of the queue.

    Attributes:
      properties: encoded properties, at most `PROPERTIES_SIZE_MAX` bytes; b"": not sent.
      body: body as it will be stored: compressed according to `sys_flag`, or an encoded batch.
      sys_flag: int32; see `remoting.sys_flag`.
      born_timestamp_ms: time of sending, in milliseconds since 1970, int64.
      flag: int32 of the user.
      is_batch: send it as SEND_BATCH_MESSAGE.
      reconsume_times: number of times that it was consumed, int32.
      max_reconsume_times: number of times that it may be consumed, int32; None: the group's.
    """

    properties: bytes
    body: bytes
    sys_flag: int
    born_timestamp_ms: int
    flag: int = 0
    is_batch: bool = False
    reconsume_times: int = 0
    max_reconsume_times: int | None = None


class SendTemplate:
    """Encodes one producer's sends to one topic. Not thread-safe.

    An unsigned message of 100 bytes costs 1.4 µs, compared to 13 µs with a header object; a signed
    one costs 5 µs (measured on one 2020s server core, the calls included).

    Args:
      topic: name of the topic, with namespace.
      producer_group: name of the producer's group, with namespace.
      default_topic: topic whose settings are used if the send creates the topic.
      default_topic_queue_nums: number of queues of a created topic, int32.
      unit_mode: the producer belongs to a unit.
      ext: further fields for each message; they must not be among the header's own.
      credentials: sign each request; None: requests are not signed.
      language, version: of the client, as LanguageCode and `mq_version` have it.

    Raises: LocalProtocolError: a field is given twice, a number is out of range, or the constant
      fields are longer than `CONSTANTS_SIZE_MAX`.
    """

    __slots__ = (
        "_constants",
        "_fixed",
        "_language",
        "_prepared",
        "_secret_key",
        "_starts",
        "_version",
        "producer_group",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        producer_group: str,
        default_topic: str = AUTO_CREATE_TOPIC,
        default_topic_queue_nums: int = DEFAULT_TOPIC_QUEUE_NUMS,
        *,
        unit_mode: bool = False,
        ext: Mapping[str, str] = NO_EXT_FIELDS,
        credentials: Credentials | None = None,
        language: int = LanguageCode.PYTHON,
        version: int = CURRENT_VERSION,
    ) -> None:
        self.topic: str = topic
        self._language, self._version = int(language), version
        self._starts = _starts(self._language, version)
        self.producer_group: str = producer_group
        taken = [name for name in ext if name in SEND_MESSAGE_V2_LETTERS or name == SIGNATURE]
        if taken:
            raise LocalProtocolError(f"the field {taken[0]!r} belongs to the header of a send")
        fields = {
            "producer_group": producer_group,
            "topic": topic,
            "default_topic": default_topic,
            "default_topic_queue_nums": _int32(
                "default_topic_queue_nums", default_topic_queue_nums
            ),
            "unit_mode": _bool(unit_mode),
        }
        self._constants = {_LETTERS[name]: value for name, value in fields.items()} | dict(ext)
        self._secret_key = None
        if credentials is not None:
            self._secret_key = credentials.secret_key
            self._constants[ACCESS_KEY] = credentials.access_key
            if credentials.security_token:
                self._constants[SECURITY_TOKEN] = credentials.security_token
        self._fixed = _encode_fields(self._constants)
        if len(self._fixed) > CONSTANTS_SIZE_MAX:
            raise LocalProtocolError(
                f"the constant fields have {len(self._fixed)} bytes, at most {CONSTANTS_SIZE_MAX}"
                " are allowed"
            )
        self._prepared: dict[_Key, _Prepared] = {}

    def encode(
        self,
        payload: SendPayload,
        queue_id: int,
        broker_name: str | None,
        opaque: int,
        *,
        oneway: bool = False,
    ) -> bytes:
        """Encode one request.

        Args:
          queue_id: number of the queue, int32; negative: the broker chooses one.
          broker_name: broker name of the queue; None: not sent (brokers before 4.9 ignore it).
          opaque: int32 that the answer will have.
          oneway: tell the broker not to answer.
        Raises: LocalProtocolError: a number is out of range, or a field or the frame is too long.
        """
        key = (
            queue_id,
            broker_name,
            payload.sys_flag,
            payload.flag,
            payload.is_batch,
            payload.reconsume_times,
            payload.max_reconsume_times,
        )
        try:  # all that the key fixes is encoded once
            prefix, signed = self._prepared[key]
        except KeyError:
            prefix, signed = self._prepare(key)
        if _send_frame is not None and self._secret_key is None:
            frame = _send_frame(
                self._starts[payload.is_batch, oneway],
                prefix,
                payload.born_timestamp_ms,
                opaque,
                payload.properties,
                payload.body,
            )
            if frame is not None:
                return frame
        return self._frame(payload, prefix, signed, opaque, oneway)

    def _frame(
        self,
        payload: SendPayload,
        prefix: bytes,
        signed: tuple[bytes, bytes, bytes],
        opaque: int,
        oneway: bool,
    ) -> bytes:
        properties, body = payload.properties, payload.body
        born = b"%d" % payload.born_timestamp_ms
        born_size = len(born)
        properties_size = len(properties)
        # The starts of fields with usual sizes are encoded already; only others are checked.
        if born_size > 18 or properties_size >= _PROPERTIES_STARTS_COUNT:
            _check_unusual(payload.born_timestamp_ms, properties_size)
        if properties_size >= _PROPERTIES_STARTS_COUNT:
            properties_start = _PROPERTIES_NAME + _PACK_SIZE(properties_size)
        else:
            properties_start = _PROPERTIES_STARTS[properties_size]
        fields_size = (
            len(prefix) + _BORN_START_SIZE + born_size + len(properties_start) + properties_size
        )
        signature = b""
        if self._secret_key is not None:
            signature = _signature_field(signed, born, payload, self._secret_key)
            fields_size += len(signature)
        header_size = _HEADER_SIZE + fields_size
        length = 4 + header_size + len(body)
        if length > FRAME_SIZE_MAX:
            raise _too_long(length)
        try:
            start = _PACK_START(
                length,
                _BINARY_MARK | header_size,
                _SEND_BATCH if payload.is_batch else _SEND,
                self._language,
                self._version,
                opaque,
                ONEWAY_FLAG if oneway else 0,
                0,
                fields_size,
            )
        except struct.error as error:
            raise LocalProtocolError(f"opaque {opaque} is no int32") from error
        born_start = _BORN_STARTS[born_size]
        return b"".join(
            (start, prefix, signature, born_start, born, properties_start, properties, body)
        )

    def _prepare(self, key: _Key) -> _Prepared:
        """Encode the fields other than time and properties, and keep them for the next message."""
        queue_id, broker_name, sys_flag, flag, batch, reconsume_times, max_reconsume_times = key
        values = {
            "queue_id": _int32("queue_id", queue_id),
            "sys_flag": _int32("sys_flag", sys_flag),
            "flag": _int32("flag", flag),
            "reconsume_times": _int32("reconsume_times", reconsume_times),
            "batch": _bool(batch),
        }
        if max_reconsume_times is not None:
            values["max_reconsume_times"] = _int32("max_reconsume_times", max_reconsume_times)
        if broker_name is not None:
            values["broker_name"] = broker_name
        fields = {_LETTERS[name]: value for name, value in values.items()}
        prefix = self._fixed + _encode_fields(fields)
        if len(prefix) > 2 * CONSTANTS_SIZE_MAX:
            raise LocalProtocolError(f"a broker name of {len(broker_name or '')} characters")
        made = prefix, _signed_parts(self._constants | fields)
        if len(self._prepared) >= PREFIXES_COUNT_MAX:
            self._prepared.clear()
        self._prepared[key] = made
        return made


def _encode_fields(fields: Mapping[str, str]) -> bytes:
    return encode_ext_fields({name: value for name, value in fields.items() if value})


def _signed_parts(fields: Mapping[str, str]) -> tuple[bytes, bytes, bytes]:
    """The values of these fields that are signed before, between and after time and properties."""
    names = sort_names([*fields, _BORN, _PROPERTIES])
    born_at, properties_at = names.index(_BORN), names.index(_PROPERTIES)

    def joined(part: list[str]) -> bytes:
        return "".join([fields[name] for name in part]).encode("utf-8", "replace")

    return (
        joined(names[:born_at]),
        joined(names[born_at + 1 : properties_at]),
        joined(names[properties_at + 1 :]),
    )


def _signature_field(
    signed: tuple[bytes, bytes, bytes], born: bytes, payload: SendPayload, secret_key: str
) -> bytes:
    before, between, after = signed
    content = b"".join((before, born, between, payload.properties, after, payload.body))
    return _SIGNATURE_START + signature_of(content, secret_key)


def _too_long(length: int) -> LocalProtocolError:
    return LocalProtocolError(
        f"the request has {length} bytes, at most {FRAME_SIZE_MAX} are allowed: send less"
    )


def _check_unusual(born_timestamp_ms: int, properties_size: int) -> None:
    if not -(1 << 63) <= born_timestamp_ms < 1 << 63:
        raise LocalProtocolError(f"born_timestamp_ms {born_timestamp_ms} is no int64")
    if properties_size > PROPERTIES_SIZE_MAX:
        raise LocalProtocolError(
            f"properties of {properties_size} bytes, at most {PROPERTIES_SIZE_MAX} are allowed"
        )


def _int32(name: str, value: int) -> str:
    if not -(1 << 31) <= value < 1 << 31:
        raise LocalProtocolError(f"{name} {value} is no int32")
    return str(int(value))


def _bool(value: bool) -> str:
    return "true" if value else "false"
