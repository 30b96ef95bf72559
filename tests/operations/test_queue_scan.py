"""The scan of one queue, whatever a broker answers to a pull."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from trocket.client.core.queue_requests import PullStatus
from trocket.client.errors import ClientError
from trocket.client.pulling.pulls import PullResult
from trocket.operations.message_search import queue_scan
from trocket.operations.message_search.criteria import unmasked
from trocket.operations.message_search.queue_scan import QueueScan, Room
from trocket.remoting.bodies import MessageQueue
from trocket.remoting.message_codec import decode_record, encode_record

HOST = bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F])
QUEUE = MessageQueue("T", "broker-a", 0)
PULLS_MAX = 400


class Names:
    """The part of a client that a scan needs."""

    def without_namespace(self, name: str) -> str:
        return name


def message(offset: int) -> Any:
    return decode_record(
        encode_record(
            "T",
            0,
            offset,
            offset * 1000,
            b"x",
            b"",
            born_timestamp_ms=0,
            born_host=HOST,
            store_timestamp_ms=offset,
            store_host=HOST,
        )
    )


class Answers:
    """Pulls of a queue.

    Args:
      offsets: of its messages.
      counts: the most messages of each answer, in turn.
    """

    def __init__(self, offsets: list[int], begin: int, end: int, counts: list[int]) -> None:
        self._offsets = offsets
        self._begin = begin
        self._end = end
        self._counts = counts
        self.pulls = 0

    async def look(
        self, client: object, queue: object, offset: int, count: int, **_: object
    ) -> PullResult:
        self.pulls += 1
        assert self.pulls < PULLS_MAX
        assert count > 0
        if offset < self._begin:
            return self._result(PullStatus.OFFSET_ILLEGAL, [], self._begin)
        if offset >= self._end:
            return self._result(PullStatus.NO_NEW_MESSAGE, [], self._end)
        count = min(count, self._counts[self.pulls % len(self._counts)])
        found = [each for each in self._offsets if each >= offset][:count]
        if not found:
            return self._result(PullStatus.NO_MATCHED_MESSAGE, [], self._end)
        return self._result(PullStatus.FOUND, found, found[-1] + 1)

    def _result(self, status: PullStatus, offsets: list[int], following: int) -> PullResult:
        found = [message(each) for each in offsets]
        return PullResult(status, found, following, self._begin, self._end, 0)


async def scanned(scan: QueueScan) -> list[int]:
    """The offsets that a scan passes, in order; its place says at each time what is left."""
    found = []
    while True:
        await scan.fill(1.0)
        if not scan.entries:
            return found
        entry = await scan.pop(1.0)
        assert entry.message is not None
        assert entry.message.queue_offset == entry.offset
        found.append(entry.offset)


@given(
    st.sets(st.integers(5, 90)),
    st.integers(0, 100),
    st.integers(0, 100),
    st.lists(st.integers(1, 40), min_size=1, max_size=4),
    st.booleans(),
    st.sampled_from([0, 500, 1 << 20]),
)
def test_every_message_is_passed_once_and_in_order(
    offsets: set[int],
    at: int,
    until: int,
    counts: list[int],
    is_newest_first: bool,
    room: int,
) -> None:
    begin, end = (min(offsets), max(offsets) + 1) if offsets else (7, 7)
    answers = Answers(sorted(offsets), begin, end, counts)
    low, high = sorted((at, until))
    scan = QueueScan(
        Names(),  # type: ignore[arg-type]
        QUEUE,
        high if is_newest_first else low,
        low if is_newest_first else high,
        is_newest_first=is_newest_first,
        mask=unmasked,
        matches=lambda _: True,
        room=Room(room),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(queue_scan, "look", answers.look)
        found = trio.run(scanned, scan)
    expected = sorted(each for each in offsets if low <= each < high)
    assert found == (expected[::-1] if is_newest_first else expected)
    assert scan.left == 0


def test_a_scan_that_fails_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = Answers(list(range(100)), 0, 100, [40])

    def scan_from(place: tuple[int, int]) -> QueueScan:
        return QueueScan(
            Names(),  # type: ignore[arg-type]
            QUEUE,
            *place,
            is_newest_first=True,
            mask=unmasked,
            matches=lambda each: each.queue_offset % 2 == 0,
            room=Room(),
        )

    async def fail(*_: object, **__: object) -> PullResult:
        raise ClientError("away")

    async def main() -> list[int]:
        found: list[int] = []
        place = (100, 0)
        look: Callable[..., Any]
        for look in (answers.look, fail, answers.look):
            monkeypatch.setattr(queue_scan, "look", look)
            scan = scan_from(place)
            try:
                for _ in range(30):
                    await scan.fill(1.0)
                    entry = await scan.pop(1.0)
                    assert entry.is_match == (entry.offset % 2 == 0)
                    found.append(entry.offset)
            except ClientError:
                assert look is fail
            place = scan.place
        return found

    assert trio.run(main) == list(range(99, 39, -1))


def test_a_scan_back_holds_no_more_than_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker's answer is full after four messages: of megabytes, perhaps."""
    answers = Answers(list(range(100)), 0, 100, [4])
    monkeypatch.setattr(queue_scan, "look", answers.look)
    scan = QueueScan(
        Names(),  # type: ignore[arg-type]
        QUEUE,
        100,
        0,
        is_newest_first=True,
        mask=unmasked,
        matches=lambda _: True,
        room=Room(),
    )

    async def main() -> list[int]:
        await scan.fill(1.0)
        return [entry.offset for entry in scan.entries]

    assert trio.run(main) == [99, 98, 97, 96]
