"""The frames in the bytes that pass between a client and a server, as whoever looks on sees them.

Nothing is judged and nothing raises: what is no frame is given as the bytes it is. Pure. Also here:
putting other broker addresses into a name server's answers, with all other bytes kept.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from ..remoting import fastjson
from ..remoting.codec import FRAME, FRAME_SIZE_MAX, RemotingCommand, SerializeType, decode_frame
from ..remoting.errors import RemoteProtocolError
from ..remoting.request_codes import RequestCode, code_of_short
from ..remoting.schema import derive_struct

REQUESTS_WAITING_MAX: Final = 4096
"""Requests of one direction whose answers are awaited; the oldest is forgotten first."""

_START: Final = derive_struct(FRAME)
_LENGTH: Final = derive_struct(FRAME, until="length")
_HEADER_SIZE_MASK: Final = 0xFFFFFF


@dataclass(frozen=True, slots=True)
class SeenFrame:
    """A frame as its sender sent it, or bytes that are none.

    Attributes:
      data: with the length word.
      offset: of its first byte, from the start of its direction of the connection.
      to_server: which direction.
      is_frame: false: no frame begins here, or the connection ended within it.
      request_code: of a request, or of the one that an answer belongs to; None: not known.
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


class FrameCutter:
    """Cuts one direction of a connection into frames, whichever way its bytes come.

    A length that no frame can have ends it: all bytes from there on are no frames.
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
        """Where the frame begins that is not complete, and its size; None: not known (yet)."""
        if self._is_lost or len(self._partial) < _LENGTH.size:
            return self._offset, None
        (length,) = _LENGTH.unpack_from(self._partial)
        return self._offset, length + _LENGTH.size

    def receive_data(self, data: bytes) -> list[tuple[int, bytes, bool]]:
        """Take bytes; what is complete by now, as (offset, bytes, whether it is a frame)."""
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
        """Bytes to be given next; None: more have to come."""
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
        """Nothing more comes: the bytes of the frame that was not complete."""
        rest, self._partial = bytes(self._partial), bytearray()
        offset, self._offset = self._offset, self._offset + len(rest)
        return [(offset, rest, False)] if rest else []


class Conversation:
    """Both directions of one connection: knows to which request an answer belongs.

    Args:
      seen: says what all its frames have in common: connection, client, server.
    """

    def __init__(self, seen: SeenFrame | None = None) -> None:
        self._seen = seen if seen is not None else SeenFrame(b"", 0, True)
        self._cutters = {True: FrameCutter(), False: FrameCutter()}
        self._waiting: dict[bool, OrderedDict[int, int]] = {
            True: OrderedDict(),
            False: OrderedDict(),
        }

    def cutter(self, to_server: bool) -> FrameCutter:
        """The cutter of one direction."""
        return self._cutters[to_server]

    def receive_data(self, to_server: bool, data: bytes, at_ms: int = 0) -> list[SeenFrame]:
        """Take bytes of one direction; the frames that are complete by now."""
        found = self._cutters[to_server].receive_data(data)
        return [self._looked_at(to_server, at_ms, *each) for each in found]

    def receive_eof(self, to_server: bool, at_ms: int = 0) -> list[SeenFrame]:
        """One direction has ended; the bytes of a frame that was not complete."""
        found = self._cutters[to_server].receive_eof()
        return [self._looked_at(to_server, at_ms, *each) for each in found]

    def _looked_at(
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
            # Asked in the other direction.
            return self._waiting[not to_server].pop(command.opaque, None)
        code = request_code_of(command)
        if not command.is_oneway:
            waiting = self._waiting[to_server]
            waiting[command.opaque] = code
            if len(waiting) > REQUESTS_WAITING_MAX:
                waiting.popitem(last=False)
        return code


def request_code_of(request: RemotingCommand) -> int:
    """A request's code; the binary header has its low 16 bits only."""
    if request.serialize_type == SerializeType.ROCKETMQ:
        return code_of_short(request.code)
    return request.code


# ---- addresses in a name server's answers --------------------------------------------------------


def broker_addresses(request_code: int | None, body: bytes) -> list[str]:
    """The broker addresses in an answer to 105 or 106, each once; none in anything else."""
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
    """A frame's bytes with other broker addresses in it, if it is an answer to 105 or 106.

    The addresses are replaced as texts, in quotes; all else, header included, stays as it is but
    for the frame's length.

    Args:
      new_address: called once with each address in the frame, HOST:PORT.
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
    # At once: a new address may be one that stands further on.
    pattern = b"|".join(re.escape(text) for text in texts)
    body = re.sub(pattern, lambda found: texts[found.group()], body)
    length = body_at - _LENGTH.size + len(body)
    return _LENGTH.pack(length) + frame.data[_LENGTH.size : body_at] + body
