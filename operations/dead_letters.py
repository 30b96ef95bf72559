"""Dead letters of a group: reading and choosing them, and sending them to their topics again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from ..client import MessageRefusedError, Producer, RouteNotFoundError
from ..client.admin.asking import ask_all, queues_of
from ..client.admin.looking import PULL_COUNT, first_offset_at, look
from ..client.core.topics import dlq_topic
from ..client.messages.message import ReceivedMessage
from ..client.pulling.offsets import max_offset
from ..client.sending.packer import revive
from .message_search.criteria import Mask, unmasked

if TYPE_CHECKING:
    from ..client import Admin, Client
    from ..remoting.bodies import MessageQueue
    from ..remoting.message import MessageExt

LETTERS_MAX: Final = 64
"""Dead letters of one page: a person reads no more, and a URL has room for the places of all."""


class Place(NamedTuple):
    """Where a dead letter is in the dead-letter topic of its group."""

    broker_name: str
    queue_id: int
    offset: int

    def __str__(self) -> str:
        return f"{self.broker_name}:{self.queue_id}:{self.offset}"


class DeadLetter(msgspec.Struct, frozen=True, rename="camel"):
    """A message that a group gave up.

    Attributes:
      place: as `broker:queue:offset`.
      message_id: that of its producer.
      offset_message_id: that of the broker.
      topic: where it is sent again; "": it does not name its topic.
      tag, keys: as its producer set them.
      died_ms: when it was stored as a dead letter, ms since 1970.
      tries: how often it was delivered.
      size: bytes of the body.
    """

    place: str
    message_id: str
    offset_message_id: str
    topic: str
    tag: str
    keys: tuple[str, ...]
    died_ms: int
    tries: int
    size: int


class LetterPage(msgspec.Struct, frozen=True, rename="camel"):
    """Some dead letters, the first ones from a place on.

    Attributes:
      letters: in the order in which they were stored.
      next: where each queue goes on, as `broker:queue` to offset; empty: these were the last.
      error: what did not answer; "": everything did.
    """

    letters: tuple[DeadLetter, ...]
    next: dict[str, int]
    error: str


class Resent(msgspec.Struct, frozen=True, rename="camel"):
    """A dead letter that was sent again.

    Attributes:
      dead_letter_id: the message id of the dead letter, which stays where it is.
      message_id: that of the new message.
    """

    dead_letter_id: str
    message_id: str


# Reading


async def letter_page(
    admin: Admin,
    group: str,
    *,
    begin_ms: int = 0,
    begin: Mapping[str, int] | None = None,
    count: int = LETTERS_MAX,
    mask: Mask = unmasked,
) -> LetterPage:
    """The first dead letters from a time or a place on.

    Args:
      begin_ms: of queues that `begin` does not name: stored then or later, ms since 1970.
      begin: `next` of an earlier page.
      mask: takes away what may not be seen.

    Raises: ConnectError: no name server answers.
    """
    client = admin.client
    starts = begin or {}

    async def read(queue: MessageQueue) -> _Read:
        offset = starts.get(_key(queue))
        if offset is None:
            offset = await first_offset_at(client, queue, begin_ms)
        end = await max_offset(client, queue)
        found: list[ReceivedMessage] = []
        while offset < end and len(found) < count:
            result = await look(client, queue, offset, PULL_COUNT)
            found += [_received(admin, queue, each) for each in result.messages]
            if result.next_begin_offset <= offset:
                break  # a queue that a broker cannot read on
            offset = result.next_begin_offset
        return _Read(found, offset, end)

    queues = await _queues(admin, group)
    calls: dict[MessageQueue, Callable[[], Awaitable[_Read]]] = {
        queue: partial(read, queue) for queue in queues
    }
    answers = await ask_all(calls)
    merged = sorted((each for read in answers.values.values() for each in read.found), key=_order)
    goes_on = {_key(queue): read.offset for queue, read in answers.values.items()}
    for each in merged[count:]:
        goes_on[_key(each.queue)] = min(goes_on[_key(each.queue)], each.queue_offset)
    has_more = any(goes_on[_key(queue)] < read.end for queue, read in answers.values.items())
    return LetterPage(
        tuple(dead_letter(admin.client, mask(each)) for each in merged[:count]),
        goes_on if has_more else {},
        "; ".join(f"{queue.broker_name}: {error}" for queue, error in answers.errors.items()),
    )


class _Read(NamedTuple):
    """Messages of a queue, the offset after them, and the queue's end."""

    found: list[ReceivedMessage]
    offset: int
    end: int


async def letters_at(
    admin: Admin, group: str, places: Collection[Place]
) -> tuple[list[ReceivedMessage], list[Place]]:
    """The dead letters at some places, in the order of storing, and the places that have none.

    Raises: BrokersError; ServerError; ConnectError: not all could be read.
    """
    by_key = {_key(queue): queue for queue in await _queues(admin, group)}
    wanted: dict[MessageQueue, list[int]] = {}
    gone: list[Place] = []
    for key, chosen_there in groupby(sorted(places), key=lambda each: f"{each[0]}:{each[1]}"):
        if key in by_key:
            wanted[by_key[key]] = [each.offset for each in chosen_there]
        else:
            gone += chosen_there

    calls: dict[MessageQueue, Callable[[], Awaitable[list[ReceivedMessage]]]] = {
        queue: partial(_at, admin, queue, offsets) for queue, offsets in wanted.items()
    }
    answers = await ask_all(calls)
    found = sorted((each for some in answers.values.values() for each in some), key=_order)
    answers.check(f"the dead letters of group {group}", found)
    there = {Place(each.queue.broker_name, each.queue_id, each.queue_offset) for each in found}
    gone += [
        Place(queue.broker_name, queue.queue_id, offset)
        for queue, offsets in wanted.items()
        for offset in offsets
        if (queue.broker_name, queue.queue_id, offset) not in there
    ]
    return found, gone


async def _at(admin: Admin, queue: MessageQueue, offsets: Sequence[int]) -> list[ReceivedMessage]:
    found: dict[int, ReceivedMessage] = {}
    for offset in offsets:
        if offset in found:
            continue
        # Those that were chosen are often neighbours: one pull has several.
        result = await look(admin.client, queue, offset, PULL_COUNT)
        found |= {each.queue_offset: _received(admin, queue, each) for each in result.messages}
    return [found[offset] for offset in offsets if offset in found]


def dead_letter(client: Client, message: ReceivedMessage) -> DeadLetter:
    """What a person reads of a dead letter."""
    try:
        topic = revive(message, client.without_namespace)[0].topic
    except MessageRefusedError:
        topic = ""
    return DeadLetter(
        place=str(Place(message.queue.broker_name, message.queue_id, message.queue_offset)),
        message_id=message.message_id,
        offset_message_id=message.offset_message_id,
        topic=topic,
        tag=message.tags or "",
        keys=tuple(message.keys),
        died_ms=message.store_timestamp_ms,
        tries=message.reconsume_times,
        size=len(message.body),
    )


async def _queues(admin: Admin, group: str) -> list[MessageQueue]:
    """The queues of a group's dead-letter topic; none: it never gave up a message."""
    topic = dlq_topic(admin.client.with_namespace(group))
    try:
        return queues_of(topic, await admin.client.route(topic, is_fresh=True))
    except RouteNotFoundError:
        return []


def _received(admin: Admin, queue: MessageQueue, ext: MessageExt) -> ReceivedMessage:
    return ReceivedMessage(ext, queue, admin.client.without_namespace(ext.topic))


def _key(queue: MessageQueue) -> str:
    return f"{queue.broker_name}:{queue.queue_id}"


def _order(message: ReceivedMessage) -> tuple[int, str, int, int]:
    at = message.queue
    return message.store_timestamp_ms, at.broker_name, at.queue_id, message.queue_offset


# Sending again


def chosen(letters: Iterable[ReceivedMessage], ids: Collection[str]) -> list[ReceivedMessage]:
    """The dead letters of some ids, of their producers or of the broker; all if none is given."""
    wanted = set(ids)
    return [
        each for each in letters if not wanted or {each.message_id, each.offset_message_id} & wanted
    ]


async def resend(
    client: Client, letters: Iterable[ReceivedMessage], on_sent: Callable[[Resent], None]
) -> None:
    """Send dead letters to their topics again, one after another, as `Producer.resend` does.

    Args:
      client: open.
      on_sent: is given each one when its broker has stored it: those before an error are sent.

    Raises: MessageRefusedError: one is no dead letter. SendError; ConnectError.
    """
    async with Producer(client) as producer:
        for letter in letters:
            result = await producer.resend(letter)
            on_sent(Resent(letter.message_id, result.message_id))
