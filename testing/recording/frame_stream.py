"""Frames in the bytes observed between a client and a server. Pure.

Nothing is validated and nothing raises: bytes that are not a frame are passed on as they are. Also
here: the replacement of broker addresses in a name server's answers.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from ...remoting import fastjson
from ...remoting.codec import FRAME, FRAME_SIZE_MAX, RemotingCommand, SerializeType, decode_frame
from ...remoting.errors import RemoteProtocolError
from ...remoting.request_codes import RequestCode, code_of_short

REQUESTS_WAITING_MAX: Final = 4096
"""Pending requests remembered for one direction; beyond it the oldest is dropped."""

_START: Final = FRAME.struct()
_LENGTH: Final = FRAME.struct(until="length")
_HEADER_SIZE_MASK: Final = 0xFFFFFF


@dataclass(frozen=True, slots=True)
class SeenFrame:
    """A frame as its sender sent it, or bytes that are not a frame.

    Attributes:
      data: with the length word.
      offset: of its first byte in its direction of the connection.
      to_server: the direction.
      is_frame: false: no frame begins here, or the connection ended within it.
      request_code: of the request, or of the request that an answer belongs to; None: unknown.
      connection: a number, 1 for the first one.
      client, server: HOST:PORT of both ends.
      at_ms: when it was complete, ms since 1970.
    """

    data: bytes
    offset: int
    to_server: bool
    is_frame: bool = True
    request_code: int | None = None
    connection: int = 0
    client: str = ""
    server: str = ""
    at_ms: int = 0


class FrameSplitter:
    """Splits one direction of a connection into frames, however its bytes arrive.

    After an impossible length the direction is out of sync: no later bytes are taken for frames.
    """

    def __init__(self) -> None:
        self._partial = bytearray()
        self._offset = 0
        self._is_lost = False

    @property
    def position(self) -> int:
        """Bytes taken so far."""
        return self._offset + len(self._partial)

    @property
    def unfinished(self) -> tuple[int, int | None]:
        """Offset of the incomplete frame, and its size; None: not known yet."""
        if self._is_lost or len(self._partial) < _LENGTH.size:
            return self._offset, None
        (length,) = _LENGTH.unpack_from(self._partial)
        return self._offset, length + _LENGTH.size

    def receive_data(self, data: bytes) -> list[tuple[int, bytes, bool]]:
        """Add bytes and return what is complete, as (offset, bytes, is it a frame)."""
        self._partial += data
        found: list[tuple[int, bytes, bool]] = []
        while self._partial:
            size = self._size_of_first()
            if size is None:
                break
            found.append((self._offset, bytes(self._partial[:size]), not self._is_lost))
            del self._partial[:size]
            self._offset += size
        return found

    def _size_of_first(self) -> int | None:
        """Size of the next piece to return; None: more bytes are needed."""
        there = len(self._partial)
        if not self._is_lost:
            if there < _LENGTH.size:
                return None
            (length,) = _LENGTH.unpack_from(self._partial)
            self._is_lost = not 4 <= length <= FRAME_SIZE_MAX
            if not self._is_lost and there >= _START.size:
                _, mark = _START.unpack_from(self._partial)
                self._is_lost = mark & _HEADER_SIZE_MASK > length - 4
            if not self._is_lost:
                return length + _LENGTH.size if there >= length + _LENGTH.size else None
        return there

    def receive_eof(self) -> list[tuple[int, bytes, bool]]:
        """End the direction and return the bytes of an incomplete frame."""
        rest, self._partial = bytes(self._partial), bytearray()
        offset, self._offset = self._offset, self._offset + len(rest)
        return [(offset, rest, False)] if rest else []


class Conversation:
    """Both directions of one connection; matches answers with their requests.

    Args:
      seen: a template with what all its frames share: connection, client, server.
    """

    def __init__(self, seen: SeenFrame | None = None) -> None:
        self._seen = seen if seen is not None else SeenFrame(b"", 0, True)
        self._splitters = {True: FrameSplitter(), False: FrameSplitter()}
        self._waiting: dict[bool, OrderedDict[int, int]] = {
            True: OrderedDict(),
            False: OrderedDict(),
        }

    def splitter(self, to_server: bool) -> FrameSplitter:
        return self._splitters[to_server]

    def receive_data(self, to_server: bool, data: bytes, at_ms: int = 0) -> list[SeenFrame]:
        """Add bytes of one direction and return the frames that are complete."""
        found = self._splitters[to_server].receive_data(data)
        return [self._seen_frame(to_server, at_ms, *each) for each in found]

    def receive_eof(self, to_server: bool, at_ms: int = 0) -> list[SeenFrame]:
        """End one direction and return the bytes of an incomplete frame."""
        found = self._splitters[to_server].receive_eof()
        return [self._seen_frame(to_server, at_ms, *each) for each in found]

    def _seen_frame(
        self, to_server: bool, at_ms: int, offset: int, data: bytes, is_frame: bool
    ) -> SeenFrame:
        code = self._request_code(to_server, data) if is_frame else None
        return replace(
            self._seen,
            data=data,
            offset=offset,
            to_server=to_server,
            is_frame=is_frame,
            request_code=code,
            at_ms=at_ms,
        )

    def _request_code(self, to_server: bool, data: bytes) -> int | None:
        try:
            command = decode_frame(data)
        except RemoteProtocolError:
            return None
        if command.is_response:
            # The request went in the other direction.
            return self._waiting[not to_server].pop(command.opaque, None)
        code = request_code_of(command)
        if not command.is_oneway:
            waiting = self._waiting[to_server]
            waiting[command.opaque] = code
            if len(waiting) > REQUESTS_WAITING_MAX:
                waiting.popitem(last=False)
        return code


def request_code_of(request: RemotingCommand) -> int:
    """A request's code; a binary header has only its low 16 bits."""
    if request.serialize_type == SerializeType.ROCKETMQ:
        return code_of_short(request.code)
    return request.code


# ---- addresses in a name server's answers --------------------------------------------------------


def broker_addresses(request_code: int | None, body: bytes) -> list[str]:
    """The distinct broker addresses in an answer to 105 or 106; other frames have none."""
    if request_code not in (
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        RequestCode.GET_BROKER_CLUSTER_INFO,
    ):
        return []
    try:
        tree = fastjson.loads(body)
    except RemoteProtocolError:
        return []
    found: dict[str, None] = {}
    for broker in _brokers(tree):
        addresses = broker.get("brokerAddrs")
        if isinstance(addresses, dict):
            found.update((each, None) for each in addresses.values() if isinstance(each, str))
    return list(found)


def _brokers(tree: object) -> list[dict[object, object]]:
    if not isinstance(tree, dict):
        return []
    by_name = tree.get("brokerAddrTable")
    listed = tree.get("brokerDatas")
    all_of_them = [
        *(by_name.values() if isinstance(by_name, dict) else ()),
        *(listed if isinstance(listed, list) else ()),
    ]
    return [each for each in all_of_them if isinstance(each, dict)]


def with_broker_addresses(frame: SeenFrame, new_address: Callable[[str], str]) -> bytes:
    """A frame's bytes with its broker addresses replaced, if it is an answer to 105 or 106.

    Addresses are replaced as quoted strings; all other bytes stay as they are, except the length.

    Args:
      new_address: maps an address of the frame, HOST:PORT, to its replacement.
    """
    if not frame.is_frame or frame.to_server:
        return frame.data
    start = _START.unpack_from(frame.data)
    body_at = _START.size + (start[1] & _HEADER_SIZE_MASK)
    body = frame.data[body_at:]
    texts = {
        f'"{address}"'.encode(): f'"{new_address(address)}"'.encode()
        for address in broker_addresses(frame.request_code, body)
    }
    if not texts:
        return frame.data
    # In one pass: a new address may equal one that is still to be replaced.
    pattern = b"|".join(re.escape(text) for text in texts)
    body = re.sub(pattern, lambda found: texts[found.group()], body)
    length = body_at - _LENGTH.size + len(body)
    return _LENGTH.pack(length) + frame.data[_LENGTH.size : body_at] + body
