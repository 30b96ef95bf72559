"""The terms of one slave's connection on the master's side, for each mode.

The terms are what the two agree on before the transfer, and how frames and reports are coded. The
transfer itself (sender.py) is the same in both modes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeAlias

from ...common.java_integers import INT64_MAX
from .epoch_wire import (
    EpochWord,
    EpochWordDecoder,
    Handshake,
    encode_answer,
    encode_epoch_header,
    encode_epoch_list,
)
from .link import Link, LinkEnded
from .log_check import CHECKED_SIZE, QUESTIONS_MAX, checksum
from .member import SetMember
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

OnIdentity = Callable[[int], None]
"""Called with the number by which the master recognizes a slave."""

AnyWord: TypeAlias = Word | EpochWord


class SendTerms(Protocol):
    """What `LogSender` needs of a mode."""

    @property
    def from_last_file(self) -> bool:
        """Whether an empty slave is sent the newest file only."""

    @property
    def is_async_learner(self) -> bool:
        """Whether the slave never joins the in-sync set."""

    @property
    def has_news(self) -> bool:
        """Whether an empty frame would say something that no frame has said yet."""

    async def agree(self) -> int:
        """Agree on the begin of the transfer; returns the end of the slave's log.

        Raises:
          LinkEnded: the log cannot be sent from there on.
        """

    async def next_word(self) -> AnyWord:
        """The slave's next message; in the transfer, anything but a report is an error.

        Raises:
          LinkEnded, RemoteProtocolError: there is none.
        """

    def frame(self, offset: int, size: int) -> tuple[bytes, int]:
        """The header of the next frame, and the number of its bytes, at most `size`.

        Raises:
          LinkEnded: no frame can begin at this physical offset.
        """


class Words:
    """The messages of a slave, in order."""

    def __init__(self, link: Link, decoder: WordDecoder | EpochWordDecoder) -> None:
        self._link = link
        self._decoder = decoder
        self._words: deque[AnyWord] = deque()

    async def next_word(self) -> AnyWord:
        """See `SendTerms`."""
        while not self._words:
            self._words.extend(self._decoder.feed(await self._link.receive()))
        return self._words.popleft()


class DefaultSendTerms:
    """Terms of the default mode: the slave reports first, and may then compare logs."""

    is_async_learner = False
    has_news = False

    def __init__(self, store: MessageStore, link: Link, on_identity: OnIdentity) -> None:
        self.next_word = Words(link, WordDecoder()).next_word
        self._store = store
        self._link = link
        self._on_identity = on_identity
        self._checksums = Checksums(store)

    @staticmethod
    def frame(offset: int, size: int) -> tuple[bytes, int]:
        """See `SendTerms`."""
        return encode_header(offset, size), size

    @property
    def from_last_file(self) -> bool:
        """See `SendTerms`."""
        return self._store.config.sync_from_last_file

    async def agree(self) -> int:
        """See `SendTerms`."""
        word = await self.next_word()
        can_ask = isinstance(word, Hello)
        if can_ask:
            word = await self.next_word()
        if not isinstance(word, int):
            raise LinkEnded("it asked a question before its first report")
        reason, limit = refusal(self._store, word)
        if reason:
            if can_ask:
                await self._link.send([encode_header(limit, REFUSED)])
            raise LinkEnded(reason)
        if can_ask:
            await self._answer_questions(word)
        return word

    async def _answer_questions(self, requested: int) -> None:
        """Answer questions until the slave reports again, which begins the transfer."""
        await self._link.send(
            [encode_header(min(self._store.checkpoints.own_from, INT64_MAX), READY)]
        )
        while True:
            match await self.next_word():
                case Question() as question:
                    value = await self._checksums.of(question)
                    await self._link.send([encode_header(value, CHECKSUM)])
                case Identity(number):
                    self._on_identity(number)
                case word:
                    if word != requested:
                        raise LinkEnded(
                            f"it reported {word} after {requested}, before it was sent anything"
                        )
                    return


class MemberSendTerms:
    """Terms of controller mode: the slave names itself and reads this log's epochs, then reports.

    Frames end with their epoch. The list of epochs is searched by offset for each frame, as it may
    change meanwhile (F8).
    """

    def __init__(
        self, store: MessageStore, link: Link, member: SetMember, on_identity: OnIdentity
    ) -> None:
        self.next_word = Words(link, EpochWordDecoder()).next_word
        self.handshake = Handshake(0)
        self._store = store
        self._link = link
        self._member = member
        self._on_identity = on_identity
        self._checksums = Checksums(store)
        self._confirm_sent = -1

    @property
    def from_last_file(self) -> bool:
        """See `SendTerms`."""
        return self.handshake.sync_from_last_file

    @property
    def is_async_learner(self) -> bool:
        """See `SendTerms`."""
        return self.handshake.is_async_learner

    @property
    def has_news(self) -> bool:
        """Whether the confirm offset has risen since the last frame."""
        return self._store.durability.confirm_offset > self._confirm_sent

    def frame(self, offset: int, size: int) -> tuple[bytes, int]:
        """See `SendTerms`."""
        epochs = self._member.epochs.epochs
        index = epochs.index_at(offset)
        if index < 0:
            raise LinkEnded(
                f"the epochs of this log begin after offset {offset}, where the slave's log ends; "
                f"{self._member.epochs.path} is not that of this log"
            )
        number, start = epochs[index]
        size = min(size, epochs.end_of(index, INT64_MAX) - offset)
        self._confirm_sent = confirmed = self._store.durability.confirm_offset
        return encode_epoch_header(offset, size, number, start, confirmed), size

    async def agree(self) -> int:
        """See `SendTerms`."""
        store, member = self._store, self._member
        handshake = await self.next_word()
        if not isinstance(handshake, Handshake):
            raise LinkEnded("it did not begin with a handshake")
        self.handshake = handshake
        number = handshake.controller_id
        if number == member.controller_id:
            raise LinkEnded(
                f"it has this broker's own controller id, {number}: one of the two has a copy of "
                "the other's brokerIdentity file"
            )
        if number < 1:
            raise LinkEnded(f"its controller id is {number}, and they begin at 1")
        self._on_identity(number)
        answer = encode_epoch_list(store.durability.sendable_offset, member.epochs.epochs)
        if handshake.can_ask:
            own_from = min(store.checkpoints.own_from, INT64_MAX)
            answer = encode_answer(own_from, READY, member.epoch) + answer
        await self._link.send([answer])
        requested = await self._first_report()
        reason, limit = refusal(store, requested)
        if reason:
            if handshake.can_ask:
                await self._link.send([encode_answer(limit, REFUSED)])
            raise LinkEnded(reason)
        return requested

    async def _first_report(self) -> int:
        while True:
            match await self.next_word():
                case Question() as question:
                    value = await self._checksums.of(question)
                    await self._link.send([encode_answer(value, CHECKSUM)])
                case int() as offset:
                    return offset


class Checksums:
    """The checksums that one slave asks for. Each has the master read its log, so their number is
    limited."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._count = 0

    async def of(self, question: Question) -> int:
        """The checksum of a range, or `NO_CHECKSUM`.

        Raises:
          LinkEnded: it was one question too many.
        """
        self._count += 1
        if self._count > QUESTIONS_MAX:
            raise LinkEnded(f"it asked for more than {QUESTIONS_MAX} checksums")
        start, end = question
        if (
            not 0 <= start <= end <= self._store.durability.sendable_offset
            or end - start > CHECKED_SIZE
        ):
            return NO_CHECKSUM
        found = await checksum(self._store.log, start, end)
        return NO_CHECKSUM if found is None else found


def refusal(store: MessageStore, requested: int) -> tuple[str, int]:
    """Why the log cannot be sent from an offset on, and the limit that the offset violates.

    ("", 0): it can be sent.
    """
    log, end = store.log, store.durability.sendable_offset
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
