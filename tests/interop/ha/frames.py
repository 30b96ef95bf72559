"""The frames on the connection between a master and its slave, as a relay sees their bytes."""

from __future__ import annotations

import struct
from enum import Enum

from trocket.interop.relay import Faults
from trocket.testing.recording.frame_stream import SeenFrame

HEADER = struct.Struct(">qi")
REPORT_SIZE = 8


class Place(Enum):
    """Where a connection is cut."""

    HEADER = "within a frame's header"
    BODY = "within a frame's body"
    REPORT = "within a report"


class HaFrames:
    """Follows both directions of every connection; called by the relay with all that comes.

    Attributes:
      connection_count: connections over which something has come so far.
      cuts: places at which it has cut.
    """

    def __init__(self, faults: Faults) -> None:
        self.connection_count = 0
        self.cuts: list[Place] = []
        self._faults = faults
        self._wanted: Place | None = None
        self._ahead: dict[int, int] = {}
        self._partial: dict[int, bytes] = {}

    def cut_at(self, place: Place) -> None:
        """Cut the connection the next time that such a place passes."""
        self._wanted = place

    def __call__(self, seen: SeenFrame) -> None:
        self.connection_count = max(self.connection_count, seen.connection)
        if not seen.to_server:
            self._from_master(seen.connection, seen.data)
        elif self._wanted is Place.REPORT and len(seen.data) >= REPORT_SIZE:
            # Reports are all that is said in this direction, of 8 bytes or of 16 and 24.
            self._cut(REPORT_SIZE // 2, to_server=True)

    def _from_master(self, connection: int, data: bytes) -> None:
        """Find the headers in what came: `ahead` bytes of a body come first."""
        ahead = self._ahead.get(connection, 0)
        before = self._partial.get(connection, b"")
        stream = before + data
        at = ahead
        while at + HEADER.size <= len(stream):
            size = max(HEADER.unpack_from(stream, at)[1], 0)
            if at >= len(before):
                if self._wanted is Place.HEADER:
                    self._cut(at - len(before) + HEADER.size // 2, to_server=False)
                elif self._wanted is Place.BODY and size > 1:
                    self._cut(at - len(before) + HEADER.size + size // 2, to_server=False)
            at += HEADER.size + size
        self._partial[connection] = stream[at:]
        self._ahead[connection] = max(at - len(stream), 0)

    def _cut(self, byte_count: int, *, to_server: bool) -> None:
        assert self._wanted is not None
        self.cuts.append(self._wanted)
        self._wanted = None
        self._faults.cut_next(byte_count, to_server=to_server)
