"""Half messages: open transactions, who can answer their checks, and those that were given up.

A half message waits in RMQ_SYS_TRANS_HALF_TOPIC of its broker until its producer ends the
transaction. A round of checks writes each that is still open again, with one check more, and asks
a producer of its group; after transactionCheckMax checks it goes to TRANS_CHECK_MAX_TIME_TOPIC.
Records of RMQ_SYS_TRANS_OP_HALF_TOPIC list the offsets of half messages that have ended. The
offsets of CID_RMQ_SYS_TRANS say before which record of both nothing is open.

Source: TransactionalMessageServiceImpl of RocketMQ 5.5.0. Brokers of 4.x refuse to read the op
topic, so what ended since the last round is not known of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import anyio
import msgspec

from ..client import RouteNotFoundError
from ..client.admin.asking import ask_all
from ..client.admin.looking import PULL_COUNT, look
from ..client.messages.message import ReceivedMessage
from ..client.pulling.offsets import offset_at_master
from ..common import message_properties as names
from ..common.texts import one_line
from ..common.topic_names import (
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
    TRANSACTION_GROUP,
)
from ..remoting.bodies import MessageQueue
from ..remoting.hosts import host_of
from .asking import asked_at_once
from .message_search.criteria import Mask, unmasked
from .whole_numbers import whole_number

if TYPE_CHECKING:
    from ..client import Admin, ProducerInfo
    from ..remoting.message import MessageExt

READ_MAX: Final = 256
"""Records of each of the three topics that are read of a broker, the newest: eight pulls, so that
opening a page costs a broker less than 40 requests."""
DEADLINE_S: Final = 5.0
"""How long all brokers together may take."""
TIME_OUT_MS: Final = 6_000
CHECK_MAX: Final = 15
CHECK_INTERVAL_MS: Final = 60_000
"""For brokers that do not tell their settings. RocketMQ: transactionTimeOut, transactionCheckMax,
transactionCheckInterval of 4.9.7; the interval is 30 s in 5.x."""

SETTING_DIGITS_MAX: Final = 15
PROPERTY_DIGITS_MAX: Final = 9
"""Digits of a number in a broker's settings, and in a property of a message."""


class Answerer(Enum):
    """Who can answer the next check of a half message."""

    CONNECTED = "a producer of its group is connected to its broker"
    ELSEWHERE = "a producer of its group is connected to other brokers only"
    OTHER_GROUP = "none is; its sender's machine is connected with producers of other groups"
    NOT_CONNECTED = "none is"
    UNKNOWN = "its broker does not tell its producers"


class HalfMessage(msgspec.Struct, frozen=True, rename="camel"):
    """A half message.

    Attributes:
      place: `broker:queue:offset` in the topic where it lies.
      message_id: that of its producer.
      topic: where it is delivered if it is committed.
      tag, keys: as its producer set them.
      producer_group: whose members are asked.
      sender: `ip:port` that it was sent from.
      born_ms, stored_ms: ms since 1970; each check stores it again.
      checks: how many there were.
      next_check_ms: about when the next one is; None: there is none.
      answerer: the name of an Answerer.
      clients: ids of the producers that can answer.
      other_groups: of OTHER_GROUP, sorted.
      is_open_again: it was given up, and its transaction is checked again.
    """

    place: str
    message_id: str
    topic: str
    tag: str
    keys: tuple[str, ...]
    producer_group: str
    sender: str
    born_ms: int
    stored_ms: int
    checks: int
    next_check_ms: int | None
    answerer: str
    clients: tuple[str, ...] = ()
    other_groups: tuple[str, ...] = ()
    is_open_again: bool = False


class OnBroker(msgspec.Struct, frozen=True, rename="camel"):
    """The transactions of one broker.

    Attributes:
      records: that its half topic holds: half messages, and their copies of each check.
      open: half messages that are open, as far as they were read.
      given_up: records in TRANS_CHECK_MAX_TIME_TOPIC.
      check_max, check_interval_ms, time_out_ms: its settings.
      knows_ends: its records of ended transactions could be read; if not, half messages that ended
        since its last round of checks are counted as open.
      left_out: records that were too many to be read.
    """

    broker_name: str
    records: int
    open: int
    given_up: int
    check_max: int
    check_interval_ms: int
    time_out_ms: int
    knows_ends: bool
    left_out: int


class Transactions(msgspec.Struct, frozen=True, rename="camel"):
    """Open and given-up transactions, the oldest first.

    Attributes:
      is_late: the deadline passed before everything was read.
      error: what did not answer; "": everything did.
    """

    open: tuple[HalfMessage, ...]
    given_up: tuple[HalfMessage, ...]
    brokers: tuple[OnBroker, ...]
    is_late: bool
    error: str


class _Settings(NamedTuple):
    time_out_ms: int
    check_max: int
    check_interval_ms: int


class _Span(NamedTuple):
    """What was read of a topic: the newest records."""

    records: list[MessageExt]
    begin: int
    end: int
    left_out: int


_PRODUCERS: Final = "producers"
"""What is asked of all brokers beside their records."""
_NOTHING: Final = _Span([], 0, 0, 0)


class _Broker:
    """What was read of one broker."""

    def __init__(self, admin: Admin, name: str) -> None:
        self.name = name
        self._admin = admin
        self.settings = _Settings(TIME_OUT_MS, CHECK_MAX, CHECK_INTERVAL_MS)
        self.halves = self.given_up = _NOTHING
        self.ended: frozenset[int] = frozenset()
        self.knows_ends = True
        self.ends_known_from_ms = 0
        self.is_read = False

    async def read(self) -> None:
        """Read the newest records. Raises: ClientError."""
        self.settings = settings_of(await self._admin.broker_config(self.name))
        self.halves = await self._span(TRANS_HALF_TOPIC, is_committed=True)
        await self._read_ends()
        self.given_up = await self._span(TRANS_CHECK_MAX_TIME_TOPIC)
        self.is_read = True

    async def _read_ends(self) -> None:
        """Read which half messages have ended."""
        if not self.halves.records:
            return
        ops = await self._span(TRANS_OP_HALF_TOPIC, is_committed=True)
        self.knows_ends = ops is not _NOTHING
        self.ended = frozenset(ended_offsets(ops.records))
        if ops.left_out and ops.records:
            self.ends_known_from_ms = ops.records[0].store_timestamp_ms

    async def _span(self, topic: str, *, is_committed: bool = False) -> _Span:
        """The newest records of a topic; _NOTHING: the broker says that there is no such topic.

        Args:
          is_committed: what is before the offset of CID_RMQ_SYS_TRANS is passed over.
        """
        queue = MessageQueue(topic, self.name, 0)
        try:
            ends = [
                each
                for each in await self._admin.topic_offsets(self.name, topic)
                if each.queue_id == 0
            ]
        except RouteNotFoundError:
            return _NOTHING
        if not ends:
            return _NOTHING
        begin, end = ends[0].begin, ends[0].end
        offset = begin
        if is_committed:
            committed = await offset_at_master(self._admin.client, queue, TRANSACTION_GROUP)
            offset = max(begin, committed or 0)
        left_out = max(end - READ_MAX - offset, 0)
        return _Span(await self._records(queue, offset + left_out, end), begin, end, left_out)

    async def _records(self, queue: MessageQueue, offset: int, end: int) -> list[MessageExt]:
        found: list[MessageExt] = []
        while offset < end:
            result = await look(self._admin.client, queue, offset, PULL_COUNT, inflate=False)
            found += result.messages
            if result.next_begin_offset <= offset:
                break  # a queue that a broker cannot read on
            offset = result.next_begin_offset
        return found

    def open_ones(self, make: Callable[..., HalfMessage]) -> list[HalfMessage]:
        """The half messages that are open: of each the newest copy."""
        now_ms = self._admin.client.wall_ms()
        newest = {_identity(each): each for each in self.halves.records}
        queue = MessageQueue(TRANS_HALF_TOPIC, self.name, 0)
        return [
            make(each, queue, next_ms=self._next_ms(each, now_ms))
            for each in newest.values()
            if each.queue_offset not in self.ended
            and each.store_timestamp_ms >= self.ends_known_from_ms
        ]

    def _next_ms(self, half: MessageExt, now_ms: int) -> int:
        due_ms = half.store_timestamp_ms + wait_ms(half, self.settings)
        return next_check_ms(due_ms, self.settings.check_interval_ms, now_ms)

    def given_up_ones(
        self, make: Callable[..., HalfMessage], open_ones: Iterable[HalfMessage]
    ) -> Iterator[HalfMessage]:
        """Those that were given up."""
        again = {each.message_id for each in open_ones}
        queue = MessageQueue(TRANS_CHECK_MAX_TIME_TOPIC, self.name, 0)
        for each in self.given_up.records:
            half = make(each, queue)
            is_open = half.message_id in again
            yield msgspec.structs.replace(half, is_open_again=is_open)

    def summary(self, open_count: int) -> OnBroker:
        """The numbers of this broker."""
        unknown = sum(
            each.store_timestamp_ms < self.ends_known_from_ms for each in self.halves.records
        )
        return OnBroker(
            broker_name=self.name,
            records=self.halves.end - self.halves.begin,
            open=open_count,
            given_up=self.given_up.end - self.given_up.begin,
            check_max=self.settings.check_max,
            check_interval_ms=self.settings.check_interval_ms,
            time_out_ms=self.settings.time_out_ms,
            knows_ends=self.knows_ends,
            left_out=self.halves.left_out + self.given_up.left_out + unknown,
        )


def settings_of(config: Mapping[str, str]) -> _Settings:
    """When and how often a broker checks; what it does not tell is RocketMQ's."""

    def number(key: str, default: int) -> int:
        found = whole_number(config.get(key, ""), SETTING_DIGITS_MAX)
        return default if found is None else found

    return _Settings(
        number("transactionTimeOut", TIME_OUT_MS),
        number("transactionCheckMax", CHECK_MAX),
        max(number("transactionCheckInterval", CHECK_INTERVAL_MS), 1),
    )


def ended_offsets(ops: Iterable[MessageExt]) -> Iterator[int]:
    """The offsets in op records: "7", or "7,8,", which brokers of 5.x write; others are skipped."""
    for op in ops:
        for part in op.body.split(b","):
            if part.isdigit() and len(part) < 20:
                yield int(part)


def _identity(half: MessageExt) -> str:
    """What the copies of a half message share."""
    return half.unique_key or f"{half.born_host_text} {half.queue_offset}"


class _Producers:
    """The connected producers of a cluster.

    Args:
      found: of the brokers that answered.
      silent: whether some broker did not answer.
    """

    def __init__(self, found: Iterable[ProducerInfo], *, silent: bool) -> None:
        self._silent = silent
        self._of_group: dict[str, list[ProducerInfo]] = {}
        self._of_machine: dict[str, set[str]] = {}
        for each in found:
            self._of_group.setdefault(each.group, []).append(each)
            self._of_machine.setdefault(host_of(each.address), set()).add(each.group)

    def answerer(
        self, group: str, broker_name: str, machine: str
    ) -> tuple[Answerer, tuple[str, ...], tuple[str, ...]]:
        """Who can answer a check, ids of those, and other groups of the sender's machine."""
        members = self._of_group.get(group, ())
        here = sorted({each.client_id for each in members if each.broker_name == broker_name})
        if here:
            return Answerer.CONNECTED, tuple(here), ()
        if self._silent:
            return Answerer.UNKNOWN, (), ()
        if members:
            return Answerer.ELSEWHERE, tuple(sorted({each.client_id for each in members})), ()
        others = self._of_machine.get(machine, set()) - {group}
        if others:
            return Answerer.OTHER_GROUP, (), tuple(sorted(others))
        return Answerer.NOT_CONNECTED, (), ()


async def transactions(admin: Admin, *, mask: Mask = unmasked) -> Transactions:
    """Open and given-up transactions of all brokers.

    Args:
      mask: takes away what may not be seen.

    Raises: ConnectError: no name server answers.
    """
    view = await admin.cluster()
    brokers = {each.name: _Broker(admin, each.name) for each in view.brokers}
    errors = dict.fromkeys((*brokers, _PRODUCERS), "it did not answer in time")
    found: list[ProducerInfo] = []

    async def ask_producers() -> None:
        nonlocal found
        ((found, errors[_PRODUCERS]),) = await asked_at_once(admin.all_producers)

    calls: dict[str, Callable[[], Awaitable[None]]] = {
        name: each.read for name, each in brokers.items()
    }
    calls[_PRODUCERS] = ask_producers
    with anyio.move_on_after(DEADLINE_S) as scope:
        failed = (await ask_all(calls)).errors
        errors.update(dict.fromkeys(brokers, ""))
        errors.update({name: one_line(error) for name, error in failed.items()})
    producers = _Producers(found, silent=bool(errors[_PRODUCERS]))
    make = partial(_half_message, admin, producers=producers, mask=mask)
    read = [each for each in brokers.values() if each.is_read]
    open_of = {each.name: each.open_ones(make) for each in read}
    given_up = [half for each in read for half in each.given_up_ones(make, open_of[each.name])]
    return Transactions(
        tuple(sorted((half for each in open_of.values() for half in each), key=_age)),
        tuple(sorted(given_up, key=_age)),
        tuple(each.summary(len(open_of[each.name])) for each in read),
        scope.cancelled_caught,
        "; ".join(f"{name}: {text}" for name, text in sorted(errors.items()) if text),
    )


def _age(half: HalfMessage) -> tuple[int, str]:
    return half.born_ms, half.place


def _half_message(
    admin: Admin,
    ext: MessageExt,
    queue: MessageQueue,
    *,
    next_ms: int | None = None,
    producers: _Producers,
    mask: Mask,
) -> HalfMessage:
    client = admin.client
    topic = client.without_namespace(ext.properties.get(names.PROPERTY_REAL_TOPIC, ""))
    group = client.without_namespace(ext.properties.get(names.PROPERTY_PRODUCER_GROUP, ""))
    seen = mask(ReceivedMessage(ext, queue, topic))
    sender = ext.born_host_text
    answerer, clients, others = producers.answerer(group, queue.broker_name, host_of(sender))
    return HalfMessage(
        place=f"{queue.broker_name}:{queue.queue_id}:{ext.queue_offset}",
        message_id=seen.message_id,
        topic=topic,
        tag=seen.tags or "",
        keys=seen.keys,
        producer_group=group,
        sender=sender,
        born_ms=ext.born_timestamp_ms,
        stored_ms=ext.store_timestamp_ms,
        checks=check_count(ext),
        next_check_ms=next_ms,
        answerer=answerer.name,
        clients=clients,
        other_groups=others,
    )


def check_count(half: MessageExt) -> int:
    """How often a transaction was checked."""
    text = half.properties.get(names.PROPERTY_TRANSACTION_CHECK_TIMES, "")
    return whole_number(text, PROPERTY_DIGITS_MAX) or 0


def wait_ms(half: MessageExt, settings: _Settings) -> int:
    """How long after it was stored a half message is checked, in ms."""
    if check_count(half):
        return settings.check_interval_ms
    own = half.properties.get(names.PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS, "")
    own_s = whole_number(own, PROPERTY_DIGITS_MAX)
    return settings.time_out_ms if own_s is None else own_s * 1000


def next_check_ms(due_ms: int, interval_ms: int, now_ms: int) -> int:
    """About when a check is; one that was due before is put off by intervals. ms since 1970."""
    rounds = -(-max(now_ms - due_ms, 0) // interval_ms)
    return due_ms + rounds * interval_ms


async def given_up_at(admin: Admin, broker_name: str, offset: int) -> ReceivedMessage | None:
    """The given-up half message at an offset of a broker; None: there is none.

    Raises: ServerError; ConnectError.
    """
    queue = MessageQueue(TRANS_CHECK_MAX_TIME_TOPIC, broker_name, 0)
    try:
        result = await look(admin.client, queue, offset, 1, inflate=False)
    except RouteNotFoundError:
        return None
    for each in result.messages:
        if each.queue_offset == offset:
            return ReceivedMessage(each, queue, TRANS_CHECK_MAX_TIME_TOPIC)
    return None
