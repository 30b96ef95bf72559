"""AnswerTemplate: answers of the hot request codes, built from prepared bytes.

Java counterpart: none; RocketMQ uses RemotingCommand.encodeHeader with a typed header.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from ..native import Extension, extension
from .codec import (
    CURRENT_VERSION,
    FRAME,
    NO_EXT_FIELDS,
    RESPONSE_FLAG,
    ROCKETMQ_HEADER,
    RemotingCommand,
    encode_ext_fields,
    encode_head,
    frame_start,
)
from .language_codes import LanguageCode
from .schema import I16, I32, Layout, bytes_of

_INT16 = Layout(size=I16).struct()
_INT32 = Layout(size=I32).struct()
_BINARY_MARK = 1 << 24
_HEADER_SIZE = ROCKETMQ_HEADER.struct().size + _INT32.size
_PYTHON = int(LanguageCode.PYTHON)
_MARK = "<a value that differs>"
_VALUE_SIZES = tuple(_INT32.pack(size) for size in range(256))


class AnswerTemplate:
    """Prepared bytes of an answer with a few variable fields that need no escaping.

    The answers to sends and pulls have a few short fields; building a RemotingCommand and encoding
    it costs ten times as much as filling in prepared bytes. `encode` is for exactly three fields,
    because the unrolled code costs half of the loop of `encode_all`. A test compares the bytes with
    those of `codec.encode`.

    Args:
      names: wire names of the variable fields, ASCII, in their order.
      constants: fields with constant values, which follow the others.
      code: response code.
      remark: the answer's remark, ASCII; None: none.
      native: the C extension, which fills in binary answers; None: pure Python.

    Attributes:
      binary_parts: what all binary answers share: all up to the fields, with zeros for their sizes
        and the opaque; the names; the constants.
      json_parts: the pieces of all JSON headers: before each value, before the opaque, after it.
    """

    __slots__ = (
        "_binary_end",
        "_binary_names",
        "_binary_size",
        "_fill_binary",
        "_json_end",
        "_json_start",
        "_pack_binary",
        "_remark",
        "binary_parts",
        "code",
        "json_parts",
    )

    def __init__(
        self,
        names: tuple[str, ...],
        *,
        constants: Mapping[str, str] = NO_EXT_FIELDS,
        code: int = 0,
        remark: str | None = None,
        native: Extension | None = extension,
    ) -> None:
        self.code = code
        filled = dict.fromkeys(names, _MARK) | dict(constants)
        # The slow encoder makes one answer with marks, which is taken apart. So both ways give the
        # same bytes, whatever the encoder does.
        sample = RemotingCommand(code, filled, flag=RESPONSE_FLAG, remark=remark)
        start, end = encode_head(sample, 0)[8:].split(b'"opaque":0,')
        start += b'"opaque":'
        self._json_end = b"," + end
        self.json_parts: tuple[bytes, ...] = (*start.split(_MARK.encode()), self._json_end)
        # `%` with bytes fills the marks in one step; a percent sign of the sample must survive it.
        self._json_start = start.replace(b"%", b"%%").replace(_MARK.encode(), b"%b")
        raw_names = [_INT16.pack(len(name)) + name.encode("ascii") for name in names]
        self._binary_names = tuple(raw_names)
        self._binary_end = encode_ext_fields(constants)
        value_sizes = len(names) * _INT32.size
        self._binary_size = sum(map(len, raw_names)) + value_sizes + len(self._binary_end)
        self._remark = b"" if remark is None else remark.encode("ascii")
        self._pack_binary = (
            Layout(
                **FRAME.fields,
                **ROCKETMQ_HEADER.fields,
                remark=bytes_of(len(self._remark)),
                fields_size=I32,
            )
            .struct()
            .pack
        )
        head = self._pack_binary(
            0, 0, code, _PYTHON, CURRENT_VERSION, 0, RESPONSE_FLAG, len(self._remark),
            self._remark, 0,
        )  # fmt: skip
        self.binary_parts: tuple[bytes, ...] = (head, *self._binary_names, self._binary_end)
        self._fill_binary = (
            None if native is None else partial(native.fill_answer, self.binary_parts)
        )

    def encode(
        self,
        opaque: int,
        serialize_type: int,
        first: bytes,
        second: bytes,
        third: bytes,
        body_size: int = 0,
    ) -> bytes:
        """The frame without its body.

        Args:
          first, second, third: the values; ASCII, at most 255 bytes, no character that JSON
            escapes.
          body_size: bytes of the body that is sent right after.
        """
        if serialize_type == 1:
            fill = self._fill_binary
            if fill is not None:
                return fill(opaque, first, second, third, body_size)
            n1, n2, n3 = len(first), len(second), len(third)
            size = self._binary_size + n1 + n2 + n3
            remark = self._remark
            remark_size = len(remark)
            header_size = _HEADER_SIZE + remark_size + size
            name1, name2, name3 = self._binary_names
            start = self._pack_binary(
                header_size + body_size + 4,
                _BINARY_MARK | header_size,
                self.code,
                _PYTHON,
                CURRENT_VERSION,
                opaque,
                RESPONSE_FLAG,
                remark_size,
                remark,
                size,
            )
            # A join is faster than the "%" of bytes; it saves a quarter of the whole call.
            return b"".join(
                (
                    start,
                    name1,
                    _VALUE_SIZES[n1],
                    first,
                    name2,
                    _VALUE_SIZES[n2],
                    second,
                    name3,
                    _VALUE_SIZES[n3],
                    third,
                    self._binary_end,
                )
            )
        header = b"%b%d%b" % (self._json_start % (first, second, third), opaque, self._json_end)
        return frame_start(len(header), body_size, 0) + header

    def encode_all(
        self, opaque: int, serialize_type: int, values: tuple[bytes, ...], body_size: int = 0
    ) -> bytes:
        """`encode` for any number of fields.

        Args:
          values: as many as there are names; each as in `encode`.
        """
        if serialize_type != 1:
            header = b"%b%d%b" % (self._json_start % values, opaque, self._json_end)
            return frame_start(len(header), body_size, 0) + header
        pieces: list[bytes] = []
        size = self._binary_size
        for name, value in zip(self._binary_names, values, strict=True):
            value_size = len(value)
            size += value_size
            pieces += (name, _VALUE_SIZES[value_size], value)
        return self._binary_start(opaque, size, body_size) + b"".join(pieces) + self._binary_end

    def _binary_start(self, opaque: int, fields_size: int, body_size: int) -> bytes:
        """The frame up to its fields."""
        remark = self._remark
        header_size = _HEADER_SIZE + len(remark) + fields_size
        return self._pack_binary(
            header_size + body_size + 4,
            _BINARY_MARK | header_size,
            self.code,
            _PYTHON,
            CURRENT_VERSION,
            opaque,
            RESPONSE_FLAG,
            len(remark),
            remark,
            fields_size,
        )
