"""The connection of one slave, on the master's side.

Java counterpart: ha/DefaultHAConnection.java of 5.3.3. Reports are validated: one beyond the bytes
that were sent, or one lower than the last, ends the connection (L13).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING

import trio

from ...disk.errors import StoreError
from .flow import FlowMeter
from .link import Link, LinkEnded, Piece
from .member import SetMember
from .send_terms import DefaultSendTerms, MemberSendTerms, SendTerms

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

CONFIRM_DELAY_S = 0.005
"""Between a rise of the confirm offset and the empty frame that carries it to a slave: under load a
frame with messages comes first, and a frame for each message would cost a third of its time."""

NOT_YET = -1


class LogSender:
    """Sends the log to one slave. Owned by the task that runs it.

    Args:
      stream: connected.
      address: the slave's, for logs.
      on_identity: called when the slave has sent its identity.
      member: the master's place in its set; None: the default mode.

    Attributes:
      ack_offset: physical offset up to which the slave has the log; `NOT_YET`: unknown.
      send_offset: physical offset of the next byte to send.
      identity: recognizes the slave at its next connection, in controller mode its controller id;
        None: unknown, as for Apache's slaves in the default mode.
      is_async_learner: it never joins the in-sync set.
      distance: how far the slave is behind in time.
      acked_s: trio time of the last acknowledgement.
    """

    def __init__(
        self,
        store: MessageStore,
        stream: trio.abc.Stream,
        address: str,
        on_identity: Callable[[LogSender], None],
        member: SetMember | None = None,
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
        self._is_member = member is not None
        self._terms: SendTerms
        if member is None:
            self._terms = DefaultSendTerms(store, self.link, self._recognize)
        else:
            self._terms = MemberSendTerms(store, self.link, member, self._recognize)
        self._rest: Sequence[Piece] = ()  # of what `_send_at_once` began
        self._resting: trio.Event | None = None  # set to wake `_send_log`
        self._news = trio.Event()

    async def run(self) -> None:
        """Serve the slave until its connection ends."""
        try:
            await self.link.run(self._serve)
        finally:
            self.forget()

    def forget(self) -> None:
        """Let the slave's acknowledgements on this connection count no longer."""
        if self.ack_offset != NOT_YET:
            self.ack_offset = NOT_YET
            self._store.durability.slaves.forget(self._key)

    @property
    def is_async_learner(self) -> bool:
        return self._terms.is_async_learner

    @property
    def _key(self) -> Hashable:
        """The key of the slave's acknowledgements."""
        return self.identity if self._is_member else self

    async def _serve(self) -> None:
        terms = self._terms
        requested = await terms.agree()
        self.send_offset = requested or self._first_offset()
        logger.info(
            "slave %(slave)s has the log up to %(requested)d and is sent it from "
            "%(send_offset)d on",
            {"slave": self.address, "requested": requested, "send_offset": self.send_offset},
        )
        self._note_ack(requested)
        listeners = self._store.activity.listeners
        own = [self._send_at_once]
        tasks = [self._send_log, self._read_reports]
        if self._is_member:
            own.append(self._note_news)
            tasks.append(self._send_news)
        listeners.extend(own)
        try:
            await self.link.side_by_side(*tasks)
        finally:
            for listener in own:
                listeners.remove(listener)

    # ---- received from the slave ---------------------------------------------------------

    def _recognize(self, identity: int) -> None:
        self.identity = identity
        self._on_identity(self)

    async def _read_reports(self) -> None:
        next_word = self._terms.next_word
        while True:
            word = await next_word()
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
        if self.link.reason:
            return  # a newer connection of the same slave has replaced this one
        self.ack_offset = offset
        self.acked_s = trio.current_time()
        self.distance.acknowledged(offset, self._store.max_physical_offset, self.acked_s)
        self._store.durability.slaves.report(self._key, offset)

    # ---- sent to the slave ---------------------------------------------------------------

    def _first_offset(self) -> int:
        """Physical offset at which the log of an empty slave begins."""
        log, end = self._store.log, self._store.durability.sendable_offset
        return end - end % log.file_size if self._terms.from_last_file else log.min_offset

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
                is_due = trio.current_time() >= link.last_write_s + interval_s
                if (is_due or self._has_only_news) and not self._rest:
                    header, _ = self._terms.frame(self.send_offset, 0)
                    await link.send([header])

    # In controller mode a slave shows messages once it knows that they are confirmed.

    @property
    def _has_only_news(self) -> bool:
        """Whether an empty frame is worth sending, as none with messages follows."""
        has_sent_all = self.send_offset >= self._store.durability.sendable_offset
        return has_sent_all and self._terms.has_news

    def _note_news(self) -> None:
        if self._terms.has_news:
            self._news.set()

    async def _send_news(self) -> None:
        """Have `_send_log` send an empty frame after a rise of the confirm offset."""
        self._note_news()
        while True:
            await self._news.wait()
            await trio.sleep(CONFIRM_DELAY_S)
            if not self._terms.has_news:
                self._news = trio.Event()
            elif self._resting is not None:
                self._resting.set()

    def _next_pieces(self, size: int) -> list[Piece]:
        """Frames for the next bytes; the slave may report them from now on.

        Raises:
          LinkEnded: their file was deleted.
          StoreIOError: their file could not be mapped.
        """
        log, offset, frame = self._store.log, self.send_offset, self._terms.frame
        batch_max = self._store.config.ha_transfer_batch_size
        end = offset + size
        pieces: list[Piece] = []
        while offset < end and len(pieces) < 2 * FRAMES_PER_SEND:
            # A frame ends with its log file, as in Apache's protocol: the slave's files have the
            # same ends.
            body_size = min(batch_max, end - offset, log.file_size - offset % log.file_size)
            header, body_size = frame(offset, body_size)
            body = log.read(offset, body_size)
            if body is None:
                if pieces:
                    break
                # Retention was faster than this slave.
                raise LinkEnded(f"the file with offset {offset} was deleted meanwhile")
            pieces += (header, body)
            offset += body_size
        self.link.flow.add(offset - self.send_offset)
        log.served(offset - self.send_offset)
        self.send_offset = offset
        return pieces
