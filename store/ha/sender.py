"""The connection of one slave, on the master's side.

Java counterpart: ha/DefaultHAConnection.java of 5.3.3. Reports are validated: one beyond the bytes
that were sent, or one lower than the last, ends the connection (L13).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import trio

from ...common.java_integers import INT64_MAX
from ...disk.errors import StoreError
from .flow import FlowMeter
from .link import Link, LinkEnded, Piece
from .log_check import CHECKED_SIZE, QUESTIONS_MAX, checksum
from .wire import (
    CHECKSUM,
    NO_CHECKSUM,
    READY,
    REFUSED,
    Hello,
    Identity,
    Question,
    Word,
    WordDecoder,
    encode_header,
)

if TYPE_CHECKING:
    from ..message_store import MessageStore


# Distance: how many seconds a slave is behind its master. Pure: the time is an argument.


class Distance:
    """Derives a slave's distance in time from its acknowledgements.

    An acknowledgement of what was the log's end at some moment proves that the slave had the whole
    log of that moment. One moment is kept in mind at a time, so the result is never too small, and
    too large by at most the time between two acknowledgements (haSendHeartbeatInterval, 5 s).

    Args:
      now_s: when the slave connected; before its first proof, the distance counts from then on.
    """

    def __init__(self, now_s: float) -> None:
        self._proved_s = now_s
        self._end = 0
        self._end_s = now_s

    def acknowledged(self, offset: int, end: int, now_s: float) -> None:
        """Take an acknowledgement.

        Args:
          offset: physical offset up to which the slave has the log.
          end: physical offset of the log's end now.
        """
        if offset >= end:
            self._proved_s = now_s
        elif offset >= self._end:
            self._proved_s = self._end_s
        else:
            return
        self._end, self._end_s = end, now_s

    def seconds(self, offset: int, end: int, now_s: float) -> float:
        """The distance now; 0: the slave has the whole log."""
        return max(now_s - self._proved_s, 0.0) if offset < end else 0.0


logger = logging.getLogger(__name__)

FRAMES_PER_SEND = 16
"""Frames given to the system in one call, 512 KiB: more would only wait there."""

NOT_YET = -1


class LogSender:
    """Sends the log to one slave. Owned by the task that runs it.

    Args:
      stream: connected.
      address: the slave's, for logs.
      on_identity: called when the slave has sent its identity.

    Attributes:
      ack_offset: physical offset up to which the slave has the log; `NOT_YET`: unknown.
      send_offset: physical offset of the next byte to send.
      identity: recognizes the slave at its next connection; None: unknown, as for Apache's slaves.
      distance: how far the slave is behind in time.
      acked_s: trio time of the last acknowledgement.
    """

    def __init__(
        self,
        store: MessageStore,
        stream: trio.abc.Stream,
        address: str,
        on_identity: Callable[[LogSender], None],
    ) -> None:
        config = store.config
        limit = config.max_ha_transfer_byte_in_second if config.ha_flow_control_enable else None
        self.address = address
        self.ack_offset = NOT_YET
        self.send_offset = NOT_YET
        self.identity: int | None = None
        self.distance = Distance(trio.current_time())
        self.acked_s = trio.current_time()
        self.link = Link(
            stream, silence_s=config.ha_housekeeping_interval / 1000, flow=FlowMeter(limit)
        )
        self._store = store
        self._on_identity = on_identity
        self._decoder = WordDecoder()
        self._words: deque[Word] = deque()
        self._rest: Sequence[Piece] = ()  # of what `_send_at_once` began
        self._resting: trio.Event | None = None  # set to wake `_send_log`

    async def run(self) -> None:
        """Serve the slave until its connection ends."""
        try:
            await self.link.run(self._serve)
        finally:
            self._store.durability.slaves.forget(self)

    async def _serve(self) -> None:
        requested = await self._agree()
        self.send_offset = requested or self._first_offset()
        logger.info(
            "slave %(slave)s has the log up to %(requested)d and is sent it from "
            "%(send_offset)d on",
            {"slave": self.address, "requested": requested, "send_offset": self.send_offset},
        )
        self._note_ack(requested)
        listeners = self._store.activity.listeners
        listeners.append(self._send_at_once)
        try:
            await self.link.side_by_side(self._send_log, self._read_reports)
        finally:
            listeners.remove(self._send_at_once)

    # ---- received from the slave ---------------------------------------------------------

    async def _next_word(self) -> Word:
        while not self._words:
            self._words.extend(self._decoder.feed(await self.link.receive()))
        return self._words.popleft()

    async def _agree(self) -> int:
        """Receive the end of the slave's log, and answer its comparison with this log.

        Raises:
          LinkEnded: the log cannot be sent from there on.
        """
        word = await self._next_word()
        can_ask = isinstance(word, Hello)
        if can_ask:
            word = await self._next_word()
        if not isinstance(word, int):
            raise LinkEnded("it asked a question before its first report")
        refusal, limit = self._refusal(word)
        if refusal:
            if can_ask:
                await self.link.send([encode_header(limit, REFUSED)])
            raise LinkEnded(refusal)
        if can_ask:
            await self._answer_questions(word)
        return word

    def _refusal(self, requested: int) -> tuple[str, int]:
        """Why the log cannot be sent from an offset on, and the limit that the offset violates.

        ("", 0): it can be sent.
        """
        log, end = self._store.log, self._store.durability.sendable_offset
        if requested > end:
            return (
                f"its log ends at {requested}, this one at {end}: it has followed another master, "
                "or this one has lost messages in a power cut. To keep its additional messages, "
                "make it the master; otherwise stop it, empty its store, and start it again"
            ), end
        if 0 < requested < log.min_offset:
            return (
                f"its log ends at {requested}, this one begins at {log.min_offset}: the messages "
                "in between have expired. Stop it, empty its store (or copy this one there), and "
                "start it again"
            ), log.min_offset
        if 0 < requested < end and requested - requested % log.file_size not in log.files:
            return f"this log has no file with offset {requested}; check it with fsck", end
        return "", 0

    async def _answer_questions(self, requested: int) -> None:
        """Answer questions until the slave reports again, which begins the transfer."""
        await self.link.send(
            [encode_header(min(self._store.checkpoints.own_from, INT64_MAX), READY)]
        )
        questions = 0
        while True:
            match await self._next_word():
                case Question(start, end):
                    # Each question has the master read its log, so their number is limited.
                    questions += 1
                    if questions > QUESTIONS_MAX:
                        raise LinkEnded(f"it asked for more than {QUESTIONS_MAX} checksums")
                    await self.link.send(
                        [encode_header(await self._checksum(start, end), CHECKSUM)]
                    )
                case Identity(number):
                    self.identity = number
                    self._on_identity(self)
                case word:
                    if word != requested:
                        raise LinkEnded(
                            f"it reported {word} after {requested}, before it was sent anything"
                        )
                    return

    async def _checksum(self, start: int, end: int) -> int:
        if (
            not 0 <= start <= end <= self._store.durability.sendable_offset
            or end - start > CHECKED_SIZE
        ):
            return NO_CHECKSUM
        found = await checksum(self._store.log, start, end)
        return NO_CHECKSUM if found is None else found

    async def _read_reports(self) -> None:
        while True:
            word = await self._next_word()
            if not isinstance(word, int):
                raise LinkEnded("it asked a question during the transfer")
            if word < self.ack_offset:
                raise LinkEnded(f"it reported {word} after {self.ack_offset}: no log gets shorter")
            if word > self.send_offset:
                raise LinkEnded(
                    f"it reported {word}, but was sent the log up to {self.send_offset} only"
                )
            self._note_ack(word)

    def _note_ack(self, offset: int) -> None:
        self.ack_offset = offset
        self.acked_s = trio.current_time()
        self.distance.acknowledged(offset, self._store.max_physical_offset, self.acked_s)
        self._store.durability.slaves.report(self, offset)

    # ---- sent to the slave ---------------------------------------------------------------

    def _first_offset(self) -> int:
        """Physical offset at which the log of an empty slave begins."""
        log, end = self._store.log, self._store.durability.sendable_offset
        return (
            end - end % log.file_size if self._store.config.sync_from_last_file else log.min_offset
        )

    def _send_at_once(self) -> None:
        """Send what a commit has added, within the commit, if the connection is idle."""
        resting = self._resting
        if resting is None or resting.is_set():
            return  # `_send_log` is running, or about to
        # On an ASYNC_MASTER the answers of the sends come first. On a SYNC_MASTER they wait for the
        # slave, and `_send_log` would run in the next turn of the event loop only.
        if not self._store.durability.waits_for_slaves:
            resting.set()
            return
        try:
            room = self.link.flow.room(self._store.durability.sendable_offset - self.send_offset)
            if room > 0:
                self._rest = self.link.send_nowait(self._next_pieces(room))
        except (LinkEnded, StoreError) as error:
            self.link.end(str(error))
        if self._rest or self.send_offset < self._store.durability.sendable_offset:
            resting.set()

    async def _send_log(self) -> None:
        link, store = self.link, self._store
        interval_s = store.config.ha_send_heartbeat_interval / 1000
        while True:
            if self._rest:
                rest, self._rest = self._rest, ()
                await link.send(rest)
            waiting = store.durability.sendable_offset - self.send_offset
            room = link.flow.room(waiting)
            if room > 0:
                pieces = self._next_pieces(room)
                await link.send(pieces)
            elif waiting > 0:
                await link.flow.wait_for_room()
            else:
                self._resting = trio.Event()
                with trio.move_on_at(link.last_write_s + interval_s):
                    await self._resting.wait()
                self._resting = None
                # Otherwise it was woken, or `_send_at_once` has sent meanwhile.
                if trio.current_time() >= link.last_write_s + interval_s and not self._rest:
                    await link.send([encode_header(self.send_offset, 0)])

    def _next_pieces(self, size: int) -> list[Piece]:
        """Frames for the next bytes; the slave may report them from now on.

        Raises:
          LinkEnded: their file was deleted.
          StoreIOError: their file could not be mapped.
        """
        log, offset = self._store.log, self.send_offset
        batch_max = self._store.config.ha_transfer_batch_size
        end = offset + size
        pieces: list[Piece] = []
        while offset < end and len(pieces) < 2 * FRAMES_PER_SEND:
            # A frame ends with its log file, as in Apache's protocol: the slave's files have the
            # same ends.
            body_size = min(batch_max, end - offset, log.file_size - offset % log.file_size)
            body = log.read(offset, body_size)
            if body is None:
                if pieces:
                    break
                # Retention was faster than this slave.
                raise LinkEnded(f"the file with offset {offset} was deleted meanwhile")
            pieces += (encode_header(offset, body_size), body)
            offset += body_size
        self.link.flow.add(offset - self.send_offset)
        log.served(offset - self.send_offset)
        self.send_offset = offset
        return pieces
