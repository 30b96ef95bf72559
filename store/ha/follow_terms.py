"""The terms of a connection to a master on the slave's side, for each mode.

The terms are what the two agree on before the transfer, and how frames and reports are coded. The
transfer itself (slave.py) is the same in both modes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from ...common.java_integers import INT64_MAX
from .epoch_wire import (
    EpochFrame,
    EpochFrameDecoder,
    EpochList,
    Handshake,
    encode_epoch_report,
    encode_handshake,
    encode_question,
)
from .epochs import Epoch, EpochError, Epochs, consistent_point
from .link import Link, LinkEnded
from .log_check import checksum, first_difference
from .member import SetMember
from .wire import (
    CHECKSUM,
    NO_CHECKSUM,
    READY,
    REFUSED,
    Frame,
    FrameDecoder,
    Hello,
    Identity,
    Question,
    encode_report,
    encode_words,
)

if TYPE_CHECKING:
    from ..message_store import MessageStore

AnyFrame: TypeAlias = Frame | EpochFrame


class Agreed(NamedTuple):
    """The begin of a transfer.

    Attributes:
      requested: physical offset of the end of the slave's log.
      own_from: all records of the master's log from this offset on were written by trocket; None:
        unknown.
    """

    requested: int
    own_from: int | None = None


class FollowTerms(Protocol):
    """What `LogFollower` needs of a mode."""

    async def agree(self) -> Agreed:
        """Agree on the begin of the transfer.

        Raises:
          LinkEnded: the logs differ, or the master cannot send the log from there on.
        """

    async def runs(self) -> Iterable[Sequence[AnyFrame]]:
        """The next frames in runs, each of which can be appended once the one before it is.

        Raises, also while it is iterated:
          LinkEnded, RemoteProtocolError: there are none, or they cannot be appended.
          StoreIOError: they cannot be appended.
        """

    def report(self, offset: int) -> bytes:
        """A report: the slave has the log up to this physical offset."""


class DefaultFollowTerms:
    """Terms of the default mode: report the end of the log, and compare it if the master can."""

    def __init__(self, store: MessageStore, link: Link, identity: int) -> None:
        self.report = encode_report
        self._store = store
        self._link = link
        self._identity = identity
        self._decoder = FrameDecoder(with_answers=store.config.ha_log_check_enable)
        self._frames: list[Frame] = []

    async def agree(self) -> Agreed:
        """See `FollowTerms`."""
        store, end = self._store, self._store.max_physical_offset
        if not store.config.ha_log_check_enable:
            await self._link.send([encode_report(end)])
            return Agreed(end)
        await self._link.send([encode_words(Hello(), end)])
        frame = await self._next_frame()
        if frame.kind == REFUSED:
            raise LinkEnded(why_refused(frame.offset, end))
        if frame.kind != READY:
            self._frames.insert(0, frame)  # Apache's master begins the transfer at once
            return Agreed(end)
        difference = await first_difference(self._is_same, store.min_physical_offset, end)
        if difference is not None:
            raise LinkEnded(
                f"this log differs from the master's from offset {difference} on, and ends at "
                f"{end}. To keep its messages from there on, make this broker the master; "
                "otherwise stop it, empty its store, and start it again"
            )
        await self._link.send([encode_words(Identity(self._identity), end)])
        return Agreed(end, frame.offset)

    async def _is_same(self, start: int, end: int) -> bool:
        await self._link.send([encode_words(Question(start, end))])
        return await is_same(self._store, start, end, await self._next_frame())

    async def _next_frame(self) -> Frame:
        while not self._frames:
            self._frames = self._decoder.feed(await self._link.receive())
        return self._frames.pop(0)

    async def runs(self) -> Iterable[Sequence[Frame]]:
        """See `FollowTerms`."""
        frames, self._frames = self._frames, []
        if not frames:
            frames = self._decoder.feed(await self._link.receive())
        for frame in frames:
            if frame.kind:
                raise LinkEnded("the master sent an answer without a question")
        return (frames,)


class MemberFollowTerms:
    """Terms of controller mode: the newest common epoch, and the bytes, decide where to begin.

    The epochs of the master's log are known from its list, and from its frames later on. Each is
    saved before the first byte of it is appended.
    """

    def __init__(self, store: MessageStore, link: Link, member: SetMember) -> None:
        self.report = encode_epoch_report
        self._store = store
        self._link = link
        self._member = member
        self._decoder = EpochFrameDecoder(with_answers=store.config.ha_log_check_enable)
        self._messages: list[EpochFrame | EpochList] = []
        self._theirs = Epochs()
        self._label: tuple[int, int] | None = None  # epoch and start in the last frames
        self._run_end = INT64_MAX  # where the epoch of the last bytes ends
        self._has_begun = False

    # ---- before the transfer -------------------------------------------------------------

    async def agree(self) -> Agreed:
        """See `FollowTerms`; a log that must be cut is one of the reasons."""
        store, member = self._store, self._member
        config, end = store.config, store.max_physical_offset
        handshake = Handshake(
            member.controller_id,
            sync_from_last_file=config.sync_from_last_file and end == 0,
            is_async_learner=config.async_learner,
            can_ask=config.ha_log_check_enable,
        )
        await self._link.send([encode_handshake(handshake)])
        message = await self._next_message()
        own_from = None
        if isinstance(message, EpochFrame) and message.kind == READY:
            own_from = message.offset
            if message.epoch < member.epoch:
                raise LinkEnded(
                    f"it is the master of epoch {message.epoch}, and the set is in epoch "
                    f"{member.epoch}"
                )
            message = await self._next_message()
        if not isinstance(message, EpochList):
            raise LinkEnded("the master did not answer the handshake with its epochs")
        self._theirs = message.epochs
        point = self._point(message.log_end, can_compare=own_from is not None)
        if own_from is not None:
            point = await self._same_until(point)
        if point < end:
            member.on_cut(point)
            raise LinkEnded(f"this log is the same as the master's up to {point}, and is cut there")
        member.epochs.save(self._recorded(member.epochs.epochs.cut(point), point))
        await self._link.send([encode_epoch_report(end)])
        return Agreed(end, own_from)

    def _point(self, their_end: int, *, can_compare: bool) -> int:
        """Physical offset up to which the logs are the same, by their epochs."""
        own, end = self._member.epochs.epochs, self._store.max_physical_offset
        if end == 0:
            return 0
        theirs, begin = self._theirs, self._store.min_physical_offset
        point = consistent_point(own, end, theirs, their_end)
        if point is not None and point >= begin:
            return point
        # A log from the time before the set had a controller has no epochs.
        if not own and can_compare and their_end > begin:
            return min(end, their_end)
        # The first master was replaced before it had confirmed anything.
        are_new = bool(own and theirs) and own[0].start == theirs[0].start == begin
        if are_new and self._kept_until <= begin:
            return begin
        raise LinkEnded(
            f"this log has nothing in common with the master's (epochs here: {_in_words(own)}; "
            f"there: {_in_words(theirs)}): it is of another set, or was away for longer than the "
            "master keeps messages. To keep its messages, copy its store; then stop it, empty its "
            "store, and start it again"
        )

    @property
    def _kept_until(self) -> int:
        """Physical offset below which this log is not cut by itself. Without all-ack a deposed
        master may have confirmed what no other has, and that is lost."""
        store = self._store
        return store.durability.confirm_offset if store.config.all_ack_in_sync_state_set else 0

    async def _same_until(self, point: int) -> int:
        """Physical offset up to which the logs have the same bytes; at most `point`."""
        store = self._store
        difference = await first_difference(self._is_same, store.min_physical_offset, point)
        if difference is None:
            return point
        confirmed = self._kept_until
        if difference < confirmed:
            raise LinkEnded(
                f"this log differs from the master's from offset {difference} on, and is confirmed "
                f"up to {confirmed}: it is of another set, or one of the two is damaged (check "
                "both with `trocket store fsck`). To keep its messages, copy its store; then stop "
                "it, empty its store, and start it again"
            )
        return difference

    async def _is_same(self, start: int, end: int) -> bool:
        await self._link.send([encode_question(Question(start, end))])
        message = await self._next_message()
        if isinstance(message, EpochList):
            raise LinkEnded("the master sent its epochs twice")
        return await is_same(self._store, start, end, message)

    async def _next_message(self) -> EpochFrame | EpochList:
        while not self._messages:
            self._messages = self._decoder.feed(await self._link.receive())
        return self._messages.pop(0)

    # ---- the transfer --------------------------------------------------------------------

    async def runs(self) -> Iterable[Sequence[EpochFrame]]:
        """See `FollowTerms`; a run has bytes of one epoch."""
        messages, self._messages = self._messages, []
        if not messages:
            messages = self._decoder.feed(await self._link.receive())
        return self._by_epoch(messages)

    def _by_epoch(
        self, messages: Iterable[EpochFrame | EpochList]
    ) -> Iterator[Sequence[EpochFrame]]:
        run: list[EpochFrame] = []
        for frame in messages:
            if isinstance(frame, EpochList):
                raise LinkEnded("the master sent its epochs twice")
            if frame.kind or frame.offset >= self._run_end or frame[3:5] != self._label:
                if run:
                    yield run
                    run = []
                self._enter(frame)
            if frame.offset + len(frame.body) > self._run_end:
                raise LinkEnded(
                    f"the master sent bytes beyond offset {self._run_end}, where their epoch ends"
                )
            run.append(frame)
        if run:
            yield run
            if self._theirs.last_number > self._member.epochs.epochs.last_number:
                self._record(self._store.max_physical_offset)
            self._store.durability.confirmed(run[-1].confirm_offset)

    def _enter(self, frame: EpochFrame) -> None:
        """Check the epoch of a frame, and record it before its bytes.

        Raises:
          LinkEnded: it cannot follow.
          StoreIOError: it could not be saved.
        """
        if frame.kind:
            if frame.kind == REFUSED:
                raise LinkEnded(why_refused(frame.offset, self._store.max_physical_offset))
            raise LinkEnded("the master sent an answer without a question")
        number, start = frame.epoch, frame.epoch_start
        offset = max(frame.offset, 0)
        theirs = self._theirs
        if number > theirs.last_number:
            if theirs and start < offset:
                raise LinkEnded(
                    f"the master sent epoch {number} for offset {offset}, after it had sent bytes "
                    f"from its start at {start} on as those of epoch {theirs.last_number}"
                )
            try:
                theirs = self._theirs = theirs.append(number, start)
            except EpochError as error:
                raise LinkEnded(f"the master sent {error}") from error
        index = theirs.index_at(offset)
        named = Epoch(number, start)
        present = theirs[index] if index >= 0 else None
        # Apache's master names the next epoch in the last frame of the one before, and an older one
        # in heartbeats.
        is_next = start > offset and named in tuple(theirs)
        if frame.body and named != present and not is_next:
            raise LinkEnded(
                f"the master sent epoch {number} from offset {start} on for offset {offset}; its "
                f"epochs are {_in_words(theirs)}"
            )
        self._label = (number, start)
        self._run_end = theirs.end_of(index, INT64_MAX) if theirs else INT64_MAX
        if frame.body:
            self._record(offset)
            self._has_begun = True

    def _record(self, offset: int) -> None:
        """Save the epochs that begin up to a physical offset, before the byte there is appended."""
        own = self._member.epochs
        known = self._recorded(own.epochs, offset)
        if known == own.epochs:
            return
        end = self._store.max_physical_offset
        if not (end or self._has_begun):
            known = known.drop_before(offset)
        elif end < known[-1].start:
            raise LinkEnded(
                f"epoch {known.last_number} of the master begins at {known[-1].start}, inside of "
                f"the record at {end}"
            )
        own.save(known)

    def _recorded(self, own: Epochs, offset: int) -> Epochs:
        """The epochs of the own log, and those of the master's up to a physical offset."""
        for entry in self._theirs:
            if entry.number > own.last_number and entry.start <= offset:
                own = own.append(*entry)
        return own


async def is_same(store: MessageStore, start: int, end: int, answer: AnyFrame) -> bool:
    """Whether a master's answer is the checksum of the own log; so it is where one log lacks bytes.

    Raises:
      LinkEnded: it is no answer to a question.
    """
    if answer.kind != CHECKSUM:
        raise LinkEnded("the master did not answer the question")
    own = await checksum(store.log, start, end)
    return own is None or answer.offset in (NO_CHECKSUM, own)


def why_refused(limit: int, end: int) -> str:
    """Why a master refused the log's end.

    Args:
      limit: the begin or the end of the master's log.
    """
    side = "begins" if limit > end else "ends"
    return (
        f"this log ends at {end}, the master's {side} at {limit}; the master's log file says what "
        "to do"
    )


def _in_words(epochs: Epochs) -> str:
    newest = ", ".join(f"{entry.number} from {entry.start} on" for entry in epochs.newest(5))
    return newest or "none"
