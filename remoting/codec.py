"""RemotingCommand and its encoding: one frame of RocketMQ's remoting protocol.

A frame, big-endian::

    int32 length              of all that follows
    int32 mark                high 8 bits: SerializeType; low 24: size of the header, bytes
    header                    JSON text, or the ROCKETMQ binary form
    body                      the rest

The binary header is `ROCKETMQ_HEADER` below; the JSON one an object with the members `code`,
`extFields`, `flag`, `language`, `opaque`, `remark`, `serializeTypeCurrentRPC`, `version`.

Pure: bytes in, commands out. This is on the hot path, so there is no object per field, and the
layout of binary headers is cached (`header_layouts.py`). Where the C extension is built, it decodes
the usual frames, and the code here the rest.

Source: RocketMQ 5.3.3 remoting/protocol/RemotingCommand.java, RocketMQSerializable.java,
remoting/netty/NettyDecoder.java; frames recorded from 4.9.7 and 5.5.0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from functools import partial
from types import MappingProxyType

import msgspec

from ..native import Extension, extension
from .errors import FrameTooLargeError, LocalProtocolError, RemoteProtocolError
from .header_layouts import HeaderLayouts
from .json_header import LANGUAGES, OTHER, JsonHeader, decode_loose, decode_plain
from .language_codes import LanguageCode
from .pull_fields import PullSeriesCache
from .request_codes import RequestCode
from .schema import I16, I32, U8, Layout

FRAME_SIZE_MAX = 16 * 1024 * 1024
"""Bytes of one frame after its length word. RocketMQ: com.rocketmq.remoting.frameMaxLength."""

HEADER_SIZE_MAX = 64 * 1024 + 32_767 * 6
"""Bytes of one header. The wire allows 2**24; a send's header carries at most 32,767 bytes of
properties, which JSON may escape sixfold, so no header of RocketMQ is longer than this."""

PIECE_SIZE = 64 * 1024
"""Bytes of a piece of an incomplete frame. A single growing block would be copied repeatedly, take
an eighth more than is counted, and fragment the heap; a received piece of this size is kept
without a copy."""

EXT_FIELDS_MAX = 256
"""Fields of one header, in either form. RocketMQ's largest typed header has 20; tracing and ACL add
a few."""

CURRENT_VERSION = 513
"""MQVersion ordinal V5_5_0: the version in our frames. Clients read it from the heartbeat's answer,
and use SQL filters only if it is at least that of 4.1.0."""

RESPONSE_FLAG = 1
ONEWAY_FLAG = 2

NO_EXT_FIELDS: Mapping[str, str] = MappingProxyType({})
"""The `ext_fields` of a header without any, as opposed to an empty `extFields` object."""


class SerializeType(IntEnum):
    """The serialization of a header. Source: RocketMQ SerializeType.java."""

    JSON = 0
    ROCKETMQ = 1


class RemotingCommand(msgspec.Struct, gc=False):
    """One request or response.

    Attributes:
      code: request code, or response code in a response. The binary header carries only its low
        16 bits.
      ext_fields: the header's fields by wire name; NO_EXT_FIELDS if there are none.
      body: bytes after the header; empty if there are none.
      remark: free text, mostly the reason of a refusal.
      opaque: int32 that a response shares with its request.
      flag: bit 0 response, bit 1 oneway.
      language: LanguageCode of the sender.
      version: MQVersion ordinal of the sender.
      serialize_type: SerializeType of the header; a response takes its request's.
    """

    code: int
    ext_fields: Mapping[str, str] = NO_EXT_FIELDS
    body: bytes = b""
    remark: str | None = None
    opaque: int = 0
    flag: int = 0
    language: int = 3
    version: int = CURRENT_VERSION
    serialize_type: int = 0

    @property
    def is_response(self) -> bool:
        """Whether this answers a request."""
        return bool(self.flag & RESPONSE_FLAG)

    @property
    def is_oneway(self) -> bool:
        """Whether it is not to be answered."""
        return bool(self.flag & ONEWAY_FLAG)

    def answer(
        self,
        code: int = 0,
        remark: str | None = None,
        ext_fields: Mapping[str, str] = NO_EXT_FIELDS,
        body: bytes = b"",
    ) -> RemotingCommand:
        """The response to this request, with its opaque and its serialization."""
        return RemotingCommand(
            code,
            ext_fields,
            body,
            remark,
            self.opaque,
            RESPONSE_FLAG,
            serialize_type=self.serialize_type,
        )


FRAME = Layout(length=I32, mark=I32)
_FRAME_START = FRAME.struct()

ROCKETMQ_HEADER = Layout(
    code=I16,
    language=U8,
    version=I16,
    opaque=I32,
    flag=I32,
    remark_size=I32,
    # then: remark, int32 size of the fields, fields of int16 size, name, int32 size, value
)
_HEADER = ROCKETMQ_HEADER.struct()
_HEADER_SIZE = _HEADER.size
_PLAIN_HEADER = Layout(**ROCKETMQ_HEADER.fields, fields_size=I32).struct()
_PLAIN_SIZE = _PLAIN_HEADER.size
_unpack_plain = _PLAIN_HEADER.unpack_from
_int_of = int.from_bytes
_INT16 = Layout(size=I16).struct()
_INT32 = Layout(size=I32).struct()
_unpack_start = _FRAME_START.unpack_from
_pack_start = _FRAME_START.pack
_unpack_int32 = _INT32.unpack_from

_LANGUAGE_NAMES = {int(language): language.name for language in LanguageCode}

_layouts = HeaderLayouts()
_layout_of = _layouts.by_size.get
_pulls = PullSeriesCache()
_pull_fields = _pulls.find
_PULL_MESSAGE = int(RequestCode.PULL_MESSAGE)
_encode_json = msgspec.json.Encoder().encode


DecodeUsual = Callable[[bytes, int, int, bool, list[RemotingCommand]], int]
"""Decodes usual frames of received bytes: (data, position of the first frame, frame_size_max,
leaves_sends, the list to append the commands to). Returns the position of the first frame that it
leaves to `FrameDecoder`; with leaves_sends, `~position` of a plain send."""


def usual_frames(native: Extension | None) -> DecodeUsual | None:
    """The C extension's `decode_frames`; None without the extension."""
    if native is None:
        return None
    return partial(
        native.decode_frames,
        RemotingCommand,
        NO_EXT_FIELDS,
        LANGUAGES,
        HEADER_SIZE_MAX,
        EXT_FIELDS_MAX,
    )


_decode_usual = usual_frames(extension)


class FrameDecoder:
    """Decodes the bytes of one connection, in pieces of any size, into commands.

    It never raises because of received bytes: `error` is set, the commands before the fault are
    still returned, and nothing after it is read. The owner then closes the connection.

    `receive_data` decodes everything. An owner that serves plain sends itself, before they are
    decoded, takes the steps of it one by one: `joined`, `decode`, `decode_one`; see `BurstReader`.

    Args:
      frame_size_max: bytes of the largest accepted frame, without its length word.

    Attributes:
      error: the first fault; None if there was none.
      partial_size: received bytes of an incomplete frame; at most frame_size_max + 4.
    """

    __slots__ = ("_needed", "_pieces", "error", "frame_size_max", "partial_size")

    def __init__(self, *, frame_size_max: int = FRAME_SIZE_MAX) -> None:
        self.frame_size_max = frame_size_max
        self.error: RemoteProtocolError | None = None
        self.partial_size = 0
        self._pieces: list[bytes | bytearray] = []
        self._needed = 0

    def receive_data(self, data: bytes) -> list[RemotingCommand]:
        """Process received bytes; return the completed commands, in order."""
        commands: list[RemotingCommand] = []
        self.decode(self.joined(data), 0, commands)
        return commands

    def joined(self, data: bytes) -> bytes:
        """Received bytes after those of the incomplete frame before them.

        Returns: empty: that frame is still incomplete, or there was a fault; all are kept, or
          ignored.
        """
        if self.error is not None:
            return b""
        if self._pieces:
            self._append(data)
            if self.partial_size < self._needed:
                return b""
            data = b"".join(self._pieces)
            self.clear()
        return data

    def decode(
        self,
        data: bytes,
        position: int,
        commands: list[RemotingCommand],
        *,
        leaves_runs: bool = False,
    ) -> int:
        """Decode frames, and keep an incomplete one at the end.

        Args:
          data: as `joined` returned it.
          position: of the first frame.
          commands: the commands are appended.
          leaves_runs: stop at a whole request that may begin a run, as the C extension finds out.

        Returns: the position of that request; the size of `data`: there is none, or a fault.
        """
        decode_usual, frame_size_max = _decode_usual, self.frame_size_max
        size = len(data)
        left_size = -1
        try:
            while size - position >= 8:
                # The extension is not asked again for each frame of a burst that it leaves: those
                # have headers of one size, of which the low byte is compared here.
                if decode_usual is not None and data[position + 7] != left_size:
                    position = decode_usual(data, position, frame_size_max, leaves_runs, commands)
                    if position < 0:
                        return ~position
                    if size - position < 8:
                        break
                    left_size = data[position + 7]
                end = self._decode_next(data, position, commands)
                if end == position:
                    break
                position = end
            self._keep(data, position)
        except RemoteProtocolError as error:
            self._fail(error)
        return size

    def decode_one(self, data: bytes, position: int, commands: list[RemotingCommand]) -> int:
        """Decode the request at which `decode` stopped, as any other frame.

        Returns: the position after it; the size of `data`: after a fault, too.
        """
        try:
            return self._decode_next(data, position, commands)
        except RemoteProtocolError as error:
            self._fail(error)
            return len(data)

    def _decode_next(self, data: bytes, position: int, commands: list[RemotingCommand]) -> int:
        """Decode one frame, of which at least 8 bytes are there.

        Returns: the position after it; its own: it is incomplete.
        Raises: RemoteProtocolError: the peer's fault, even before the frame is complete.
        """
        length, mark = _unpack_start(data, position)
        header_size = mark & 0xFFFFFF
        # Checked before the frame is complete, so that a peer cannot make us keep bytes of a frame
        # that is refused anyway. A negative length fails the first condition.
        if header_size > length - 4 or length > self.frame_size_max:
            self._refuse_start(length, header_size, position)
        if header_size > HEADER_SIZE_MAX:
            reason = f"header of {header_size} bytes, the limit is {HEADER_SIZE_MAX}"
            raise RemoteProtocolError(reason, position)
        end: int = position + 4 + length
        if end > len(data):
            return position
        start = position + 8
        serialize_type = mark >> 24
        if serialize_type == 1:
            command = _decode_rocketmq(data, start, start + header_size, end)
        elif serialize_type == 0:
            body = data[start + header_size : end]
            command = _decode_json(data[start : start + header_size], start, body)
        else:
            reason = f"header serialization {serialize_type} is neither JSON (0) nor ROCKETMQ (1)"
            raise RemoteProtocolError(reason, position + 4)
        commands.append(command)
        return end

    def _fail(self, error: RemoteProtocolError) -> None:
        # Without the traceback, whose frames would keep `data` alive until a full collection.
        self.error = RemoteProtocolError(error.reason, error.position)

    def clear(self) -> None:
        """Free the bytes of an incomplete frame."""
        self._pieces = []
        self.partial_size = 0

    def _append(self, data: bytes) -> None:
        """Keep bytes of an incomplete frame: large ones without a copy, small ones joined."""
        pieces = self._pieces
        if len(data) >= PIECE_SIZE:
            pieces.append(data)
        elif pieces and isinstance(pieces[-1], bytearray) and len(pieces[-1]) < PIECE_SIZE:
            pieces[-1] += data
        else:
            pieces.append(bytearray(data))
        self.partial_size += len(data)

    def _keep(self, data: bytes, position: int) -> None:
        """Keep an incomplete frame, and compute the bytes needed to complete it."""
        left = len(data) - position
        if left == 0:
            return
        self._needed = 4
        if left >= 4:
            (length,) = _unpack_int32(data, position)
            if not 4 <= length <= self.frame_size_max:
                self._refuse_start(length, 0, position)
            self._needed = length + 4 if left >= 8 else 8
        self._append(data[position:])

    def _refuse_start(self, length: int, header_size: int, position: int) -> None:
        if not 4 <= length <= self.frame_size_max:
            start = length.to_bytes(4, "big", signed=True)
            reason = (
                f"frame length {length} is not in 4..{self.frame_size_max}; "
                f"it starts with {start!r}{_guess_protocol(start)}"
            )
        else:
            reason = f"header length {header_size} is larger than its frame's {length - 4} bytes"
        raise RemoteProtocolError(reason, position)


def _guess_protocol(start: bytes) -> str:
    """The protocol that a peer probably speaks, for the error text, from its first four bytes."""
    if start[:2] == b"\x16\x03":
        return ", which is a TLS handshake: this port speaks plain remoting"
    if start in (b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI", b"DELE", b"PRI "):
        return ", which is HTTP: this port speaks RocketMQ remoting"
    if start == b"PROX":
        return ", which is the PROXY protocol: it is not enabled"
    return ""


def decode_frame(frame: bytes) -> RemotingCommand:
    """Decode exactly one whole frame, length word included.

    Raises: RemoteProtocolError: the bytes are not one whole frame.
    """
    decoder = FrameDecoder()
    commands = decoder.receive_data(frame)
    if decoder.error is not None:
        raise decoder.error
    if len(commands) != 1 or decoder.partial_size:
        raise RemoteProtocolError(f"{len(frame)} bytes are not exactly one frame", 0)
    return commands[0]


def _decode_json(text: bytes, start: int, body: bytes) -> RemotingCommand:
    try:
        header = decode_plain(text)
    except RecursionError as error:
        raise RemoteProtocolError("JSON header: nested too deeply", start) from error
    except (msgspec.DecodeError, UnicodeDecodeError):
        header = decode_loose(text, start)
    fields = header.extFields
    remark = header.remark
    if fields is None or fields is msgspec.UNSET:
        ext_fields = NO_EXT_FIELDS
    elif len(fields) > EXT_FIELDS_MAX:
        raise _too_many_fields(start)
    else:
        ext_fields = fields
    return RemotingCommand(
        header.code,
        ext_fields,
        body,
        None if remark is msgspec.UNSET else remark,
        header.opaque,
        header.flag,
        LANGUAGES.get(header.language, OTHER),
        header.version,
        0,
    )


def _too_many_fields(start: int) -> RemoteProtocolError:
    return RemoteProtocolError(f"more than {EXT_FIELDS_MAX} extFields", start)


def _decode_rocketmq(data: bytes, start: int, header_end: int, end: int) -> RemotingCommand:
    if header_end - start < _PLAIN_SIZE:
        raise RemoteProtocolError(
            f"binary header of {header_end - start} bytes is cut short", start
        )
    code, language, version, opaque, flag, remark_size, fields_size = _unpack_plain(data, start)
    position = start + _PLAIN_SIZE
    remark = None
    if remark_size:
        remark, position, fields_size = _decode_remark(data, start, header_end, remark_size)
    if fields_size == 0:
        fields = NO_EXT_FIELDS
    elif fields_size < 0 or position + fields_size > header_end:
        reason = f"extFields length {fields_size} passes the header's end"
        raise RemoteProtocolError(reason, position - 4)
    elif (
        code == _PULL_MESSAGE
        and (known := _pull_fields(data, position, position + fields_size)) is not None
    ):
        fields = known
    else:
        block = data[position : position + fields_size]
        layout = _layout_of(fields_size)
        if (
            layout is not None
            and _int_of(block, "little") & layout.mask == layout.frame
            and block.isascii()
        ):
            text = block.decode("ascii")
            fields = {name: text[place] for name, place in layout.places}
        else:
            fields = _decode_fields(block, position)
        if code == _PULL_MESSAGE:
            _pulls.remember(data, position, position + fields_size, fields)
    return RemotingCommand(
        code, fields, data[header_end:end], remark, opaque, flag, language, version, 1
    )


def _decode_remark(data: bytes, start: int, header_end: int, size: int) -> tuple[str, int, int]:
    """The remark of a header, and the position and size of the fields after it."""
    position = start + _HEADER_SIZE
    if size < 0 or position + size + 4 > header_end:
        raise RemoteProtocolError(f"remark length {size} passes the header's end", position - 4)
    remark = data[position : position + size].decode("utf-8", "replace")
    (fields_size,) = _unpack_int32(data, position + size)
    return remark, position + size + 4, fields_size


def _decode_fields(block: bytes, start: int) -> dict[str, str]:
    """Decode the fields of a binary header one by one, and cache their layout.

    Raises: RemoteProtocolError: a length is past the end, or there are too many fields.
    """
    fields: dict[str, str] = {}
    places: list[tuple[str, slice]] = []
    position = 0
    size = len(block)
    while position < size:
        name_end = position + 2 + (block[position] << 8 | block[min(position + 1, size - 1)])
        if name_end + 4 > size:
            raise RemoteProtocolError("a field's name passes the extFields' end", start + position)
        name = block[position + 2 : name_end].decode("utf-8", "replace")
        (value_size,) = _unpack_int32(block, name_end)
        begin = name_end + 4
        position = begin + value_size
        if value_size < 0 or position > size:
            reason = f"value length {value_size} of field {name!r} passes the extFields' end"
            raise RemoteProtocolError(reason, start + name_end)
        fields[name] = block[begin:position].decode("utf-8", "replace")
        places.append((name, slice(begin, position)))
        if len(places) > EXT_FIELDS_MAX:
            raise _too_many_fields(start)
    _layouts.remember(block, places)
    return fields


def encode(command: RemotingCommand) -> bytes:
    """Encode a command as a whole frame.

    Raises: LocalProtocolError: a field does not fit the protocol. FrameTooLargeError: the frame is
      larger than FRAME_SIZE_MAX, so its receiver would close the connection.
    """
    return encode_head(command, len(command.body)) + command.body


def encode_head(command: RemotingCommand, body_size: int) -> bytes:
    """Encode the frame without its body, which has `body_size` bytes and is sent after it.

    Raises: LocalProtocolError, FrameTooLargeError: as `encode`.
    """
    if command.serialize_type == 1:
        header = _encode_rocketmq(command)
    elif command.serialize_type == 0:
        header = _encode_json_header(command)
    else:
        raise LocalProtocolError(f"no header serialization {command.serialize_type}")
    size = len(header)
    if size + body_size + 4 > FRAME_SIZE_MAX:
        raise FrameTooLargeError(size + body_size + 4, FRAME_SIZE_MAX)
    return frame_start(size, body_size, command.serialize_type) + header


def frame_start(header_size: int, body_size: int, serialize_type: int) -> bytes:
    """The first eight bytes of a frame."""
    return _pack_start(4 + header_size + body_size, serialize_type << 24 | header_size)


def _encode_json_header(command: RemotingCommand) -> bytes:
    fields = command.ext_fields
    remark = command.remark
    header = JsonHeader(
        command.code,
        msgspec.UNSET if fields is NO_EXT_FIELDS else dict(fields),
        command.flag,
        _LANGUAGE_NAMES.get(command.language, "OTHER"),
        command.opaque,
        msgspec.UNSET if remark is None else remark,
        "JSON",
        command.version,
    )
    return _encode_json(header)


def _encode_rocketmq(command: RemotingCommand) -> bytes:
    remark = b"" if command.remark is None else command.remark.encode("utf-8", "replace")
    fields = encode_ext_fields(command.ext_fields)
    # Only 16 bits of the code survive: RocketMQSerializable.rocketMQProtocolEncode writes a short.
    code = (command.code & 0xFFFF ^ 0x8000) - 0x8000
    fixed = _HEADER.pack(
        code, command.language, command.version, command.opaque, command.flag, len(remark)
    )
    return b"".join((fixed, remark, _INT32.pack(len(fields)), fields))


def encode_ext_fields(fields: Mapping[str, str]) -> bytes:
    """The fields of a binary header, without the size before them.

    Raises: LocalProtocolError: a name is longer than 32,767 bytes.
    """
    parts: list[bytes] = []
    for name, value in fields.items():
        raw_name = name.encode("utf-8", "replace")
        raw = value.encode("utf-8", "replace")
        if len(raw_name) > 0x7FFF:
            raise LocalProtocolError(f"the field name {name[:40]!r}… is longer than 32,767 bytes")
        parts += (_INT16.pack(len(raw_name)), raw_name, _INT32.pack(len(raw)), raw)
    return b"".join(parts)
