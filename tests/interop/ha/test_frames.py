"""The places at which a replication connection is cut are found however its bytes come."""

from __future__ import annotations

import pytest

from trocket.interop.relay import Faults
from trocket.testing.recording.frame_stream import SeenFrame

from .frames import HEADER, HaFrames, Place

BODY = bytes(100)
FRAME = HEADER.pack(4_096, len(BODY)) + BODY
SIGN_OF_LIFE = HEADER.pack(4_196, 0)
ASKED = HEADER.pack(7, -3)
STREAM = SIGN_OF_LIFE + ASKED + FRAME + FRAME + SIGN_OF_LIFE


def cut_position(place: Place, piece_size: int) -> int:
    """At which byte of the stream it is cut when it comes in pieces of this size; -1: nowhere."""
    faults = Faults()
    frames = HaFrames(faults)
    frames.cut_at(place)
    for begin in range(0, len(STREAM), piece_size):
        data = STREAM[begin : begin + piece_size]
        frames(SeenFrame(data, begin, False, is_frame=False, connection=1))
        cut = faults.take_cut(False)
        if cut is not None:
            assert frames.cuts == [place]
            return begin + cut
    return -1


@pytest.mark.parametrize("piece_size", [12, 24, 50, 1_000])
def test_a_header_is_cut_in_its_middle(piece_size: int) -> None:
    assert cut_position(Place.HEADER, piece_size) == HEADER.size // 2


@pytest.mark.parametrize("piece_size", [12, 24, 50, 1_000])
def test_a_body_is_cut_in_its_middle(piece_size: int) -> None:
    begins = [2 * HEADER.size, 2 * HEADER.size + len(FRAME)]
    middles = [begin + HEADER.size + len(BODY) // 2 for begin in begins]
    assert cut_position(Place.BODY, piece_size) in middles


def test_a_report_is_cut_in_its_middle() -> None:
    faults = Faults()
    frames = HaFrames(faults)
    frames.cut_at(Place.REPORT)
    frames(SeenFrame(FRAME, 0, False, is_frame=False, connection=1))
    assert faults.take_cut(True) is None
    frames(SeenFrame(bytes(8), 0, True, is_frame=False, connection=2))
    assert faults.take_cut(True) == 4
    assert frames.connection_count == 2
