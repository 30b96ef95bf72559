"""Runs of pulls: the pulls of known series at the beginning of a burst, taken by the C extension.

It holds the pulls of consumers that have kept up, and makes commands of the others.
`PullMessageProcessor` serves those, and is the specification of what is held.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol

from ...native import Extension
from ...native.objects import HeldPullLike, HeldQueueLike, PullLike
from ...native.queue_state import QueueState
from ...remoting.channel import Channel
from ...remoting.codec import RemotingCommand
from ...remoting.errors import RequestRefused
from ...remoting.pull_fields import PullFields
from ...remoting.pull_sys_flag import SUBSCRIPTION
from ...remoting.pull_templates import PullTemplate, template_of
from ...remoting.request_codes import RequestCode
from ..settings.config import BrokerConfig
from ..tables.consumer_offset_manager import ConsumerOffsetManager
from ..waiting.pull import Key, Pull, PullTerms
from ..waiting.pull_request_hold import CHANNEL_QUEUE_PULLS_MAX, HeldPull, PullRequestHoldService
from .pull_checks import CheckedPulls, PullChecks

PULL_CODES: Final = (int(RequestCode.PULL_MESSAGE), int(RequestCode.LITE_PULL_MESSAGE))
_BINARY_STARTS: Final = frozenset(b"\1" + code.to_bytes(2, "big") for code in PULL_CODES)
_JSON_STARTS: Final = tuple(b'{"code":%d,' % code for code in PULL_CODES)

TEMPLATES_MAX: Final = 8
"""Templates of one connection. A consumer has one for each topic and group, and one for the retries
of each group; others are parsed."""

TEMPLATES_SIZE_MAX: Final = 16 * 1024 * 1024
"""Bytes of the templates of all connections, enough for some 4,000; they are dropped, and learned
again, when there are more."""

SINGLES_MIN: Final = 100
"""Pulls that came one by one, after which a template is made of the next: making one costs as much
as parsing ten."""

_TEMPLATE_SIZE: Final = 3_000
"""Bytes of the objects of a template, besides the text, which is there twice."""

FAILURES_MAX: Final = 8
"""Pulls of a connection from which no template could be made, after which it is not tried again:
trying costs more than serving a pull."""

_CLASSES: Final[tuple[type, type, type[PullLike], type[HeldPullLike]]] = (
    RemotingCommand,
    PullFields,
    Pull,
    HeldPull,
)


class HasMaster(Protocol):
    """The part of the broker's role in its group that pulls need; see `replication/`."""

    @property
    def has_master(self) -> bool:
        """Whether the broker is a slave that follows its master now."""


class Holding(NamedTuple):
    """What pulls of one series need to be held, in the order that the extension expects.

    Attributes:
      queues: the store's, by topic and queue id.
      held_queues: those of held pulls.
      channel, terms, topic, deadline_s: of the pulls.
      pull_offsets, commit_offsets: the tables to record offsets in; None: the pulls commit none.
      queue_count: of the topic, for reading.
      queue_pulls_max, count_max: how many may be held of one queue, and in this call.
    """

    queues: Mapping[Key, QueueState]
    held_queues: Mapping[Key, HeldQueueLike]
    channel: Channel
    terms: PullTerms
    topic: str
    deadline_s: float
    pull_offsets: dict[int, int]
    commit_offsets: dict[int, int] | None
    queue_count: int
    queue_pulls_max: int
    count_max: int


class _Known:
    """The templates of one connection, the last used one first."""

    __slots__ = ("failures", "singles", "templates")

    def __init__(self) -> None:
        self.templates: list[PullTemplate] = []
        self.failures = 0
        self.singles = 0  # pulls that came one by one since the last template


class PullRunProcessor:
    """Takes runs of pulls.

    Args:
      native: the C extension.
      config: the broker's.
      queues: the store's.
      checks, offsets, hold_service, replication: as `PullMessageProcessor` uses them.
      count_misses: counts pulls that find nothing; see `BrokerStatsManager`.
      now_s: the clock for deadlines of held pulls.
    """

    def __init__(
        self,
        native: Extension,
        config: BrokerConfig,
        queues: Mapping[Key, QueueState],
        *,
        checks: PullChecks,
        offsets: ConsumerOffsetManager,
        hold_service: PullRequestHoldService,
        replication: HasMaster,
        count_misses: Callable[[int], None],
        now_s: Callable[[], float],
    ) -> None:
        self._count_misses = count_misses
        self._take_pulls = native.take_pulls
        self._queues = queues
        self._checks = checks
        self._offsets = offsets
        self._hold_service = hold_service
        self._replication = replication
        self._now_s = now_s
        self._config = config
        self.settings_changed()
        self._known: dict[Channel, _Known] = {}
        self._size = 0

    def settings_changed(self) -> None:
        """Use longPollingEnable and litePullMessageEnable as they are now."""
        config = self._config
        self._holds = config.long_polling_enable
        self._codes = PULL_CODES if config.lite_pull_message_enable else PULL_CODES[:1]

    def take(
        self,
        data: bytes,
        position: int,
        frame_size_max: int,
        channel: Channel,
        commands: list[RemotingCommand],
    ) -> int:
        """Take the pulls at a position of received bytes.

        Args:
          data: received bytes; a frame begins at the position, or they end there.
          commands: pulls that are not held are appended.

        Returns: the position after the pulls.
        """
        while data[position + 4 : position + 5] + data[
            position + 8 : position + 10
        ] in _BINARY_STARTS or data.startswith(_JSON_STARTS, position + 8):
            known = self._known.get(channel)
            end = position
            if known is not None:
                end = self._take(known, data, position, frame_size_max, channel, commands)
            if end == position and not self._learn(data, position, frame_size_max, channel):
                break
            position = end
        return position

    def _take(
        self,
        known: _Known,
        data: bytes,
        position: int,
        frame_size_max: int,
        channel: Channel,
        commands: list[RemotingCommand],
    ) -> int:
        """Take the pulls of the first template that fits."""
        frame = b""
        # The first template fits nearly always. The others are looked at only if their pieces are
        # in the frame: that is less work than to ask the extension for each.
        for index, template in enumerate(known.templates):
            if index:
                frame = frame or _frame_at(data, position)
                if not template.may_fit(frame):
                    continue  # of another topic, as clients of many topics have
            # A pull must not be held before those that are commands already: they are served later.
            holding = None if commands else self._holding(template, channel)
            held: list[HeldPull] = []
            try:
                end = self._take_pulls(
                    _CLASSES, template, holding, data, position, frame_size_max, commands, held
                )
            except Exception:
                self._hold_service.counts.failed += 1
                raise
            finally:  # what was held before an error is in the queues, and must be counted
                if held:
                    self._hold_service.count_held(channel, len(held), held[0].deadline_s)
                    self._count_misses(len(held))
                    if holding is not None and holding.commit_offsets is not None:
                        self._offsets.count_commits(len(held))
                    self._offsets.file.is_dirty = True
            if end != position:
                if index:
                    known.templates.insert(0, known.templates.pop(index))
                return end
        return position

    def _holding(self, template: PullTemplate, channel: Channel) -> Holding | None:
        """What further pulls of a series need to be held; None: Python serves them all."""
        pulls = template.series.derived
        # Python serves a series first: what it derived then is what the extension goes by.
        if (
            not isinstance(pulls, CheckedPulls)
            or not pulls.suspends
            or not self._checks.is_current(pulls)
            or template.command[0] not in self._codes
            or (pulls.commits and not pulls.may_commit)
            or not self._holds
            or self._replication.has_master
            or pulls.terms.offset_key in self._offsets.reset_offset_table
        ):
            return None
        if not pulls.is_unfiltered:
            # A subscription in the pull itself may take long to compile.
            if pulls.header.sys_flag & SUBSCRIPTION:
                return None
            try:
                if self._checks.selector(pulls, 0, channel) is not None:
                    return None
            except RequestRefused:
                return None
        terms, offsets = pulls.terms, self._offsets
        pull_offsets = offsets.pull_offset_table.get(terms.offset_key)
        commit_offsets = offsets.offset_table.get(terms.offset_key) if pulls.commits else None
        # The first pull of a group makes its tables, in Python.
        if pull_offsets is None or (pulls.commits and commit_offsets is None):
            return None
        return Holding(
            self._queues,
            self._hold_service.queues,
            channel,
            terms,
            terms.topic,
            self._now_s() + pulls.hold_s,
            pull_offsets,
            commit_offsets,
            pulls.topic.read_queue_nums,
            CHANNEL_QUEUE_PULLS_MAX,
            self._hold_service.room(channel),
        )

    def _learn(self, data: bytes, position: int, frame_size_max: int, channel: Channel) -> bool:
        """Make a template of the pull at a position, if another frame follows it.

        A connection that sends its pulls one by one gains little, and there may be thousands.
        """
        known = self._known.get(channel)
        if known is None:
            known = self._known[channel] = _Known()
            self._size += _TEMPLATE_SIZE
        if known.failures >= FAILURES_MAX:
            return False
        size = 4 + int.from_bytes(data[position : position + 4], "big")
        if position + size > len(data) or size - 4 > frame_size_max:
            return False
        if position + size == len(data):
            known.singles += 1
            if known.singles < SINGLES_MIN:
                return False
        known.singles = 0
        template = template_of(data[position : position + size])
        if template is None:
            known.failures += 1
            return False
        if len(known.templates) == TEMPLATES_MAX:
            # Counted as a failure, or a connection with more series would learn for ever.
            known.templates.pop()
            known.failures += 1
        known.templates.insert(0, template)
        self._size += _TEMPLATE_SIZE + 2 * template.size
        if self._size > TEMPLATES_SIZE_MAX:
            self._known = {channel: known}
            self._size = len(known.templates) * (_TEMPLATE_SIZE + 2 * template.size)
        return True


def _frame_at(data: bytes, position: int) -> bytes:
    return data[position : position + 4 + int.from_bytes(data[position : position + 4], "big")]
