"""Part: what a subsystem of the broker gives to the whole, and the foundation that it stands on.

A wing of `broker/` has one part, in its `part.py`. `assembly.py` makes the parts, each from those
that it needs; the rest is the same for all of them: requests by their codes, files that are saved,
start and end, deleted topics and groups, metrics. So a new subsystem is a folder with a part, and a
line in `assembly.py`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import ClassVar, Final, NamedTuple

from ..common.child import OpenProcess
from ..common.clock import Clock, WallTimeMs
from ..common.live_config import LiveConfig
from ..common.notifier import Notifier
from ..common.steps import Steps
from ..common.supervision import Supervisor
from ..disk.os_disk import Disk
from ..disk.state_file import StateFile
from ..disk.state_files import StateFiles
from ..native import Extension
from ..remoting.channel import Channel, Processor
from ..remoting.client import RemotingClient
from ..remoting.metrics.families import Samples
from ..remoting.refusals import Refusals
from ..remoting.request_codes import RequestCode
from ..remoting.tls_settings import Tls
from ..remoting.turn import Turn
from ..store.ha.member import SetMember
from ..store.ha.slave import Connect
from ..store.message_store import MessageStore
from ..store.writing.in_sync_acks import ConfirmedCopy, InSyncAcks
from .messages.inner_message import DelayLevels, InnerPuts
from .puts.added_properties import AddedProperties
from .puts.send_turn import SendTurn
from .puts.turn_puts import TurnPuts
from .settings.broker_address import BrokerAddress
from .settings.config import BrokerConfig

Processors = Mapping[RequestCode, Processor] | Mapping[int, Processor]
"""Processors by request code."""

NewMessages = Notifier[Collection[tuple[str, int]]]
"""Notifies of queues (topic and queue id) that have new readable messages."""


class StoreTerms(NamedTuple):
    """The terms on which a broker of controller mode opens its store, see `MessageStore.load`.

    Attributes:
      in_sync: `InSyncAcks` of a master, `ConfirmedCopy` of a slave; None: not in controller mode.
      cut_at, confirmed: physical offsets; None: the log is not cut; the checkpoint says it.
    """

    in_sync: InSyncAcks | ConfirmedCopy | None = None
    cut_at: int | None = None
    confirmed: int | None = None


USUAL_TERMS: Final = StoreTerms()
"""Those of a broker that is not in controller mode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seams:
    """A broker's dependencies on its environment; tests replace them.

    Attributes:
      clock, disk: time and files.
      turn: the server's; other servers of the process may share it.
      random: picks queues for producers that leave the choice to the broker.
      client: calls the name servers, and a slave's master; shares the turn.
      open_process: starts a filter server; None: as a child process.
      ha_connect: connects a slave to its master's haListenPort.
      native: the C extension; None: pure Python.
      config_path: the file of the configuration; "" if there is none.
      tls: of the broker's listeners.
      clients_ms: the time of day of clients, ms since 1970; None: `clock`'s. A test that advances
        `clock` does not advance its clients.
      member: the place in a set that a controller leads; None: the broker is in none.
      terms: see `StoreTerms`.
    """

    clock: Clock
    disk: Disk
    turn: Turn
    random: Random
    client: RemotingClient
    open_process: OpenProcess | None
    ha_connect: Connect
    native: Extension | None
    config_path: str
    tls: Tls
    clients_ms: Callable[[], WallTimeMs] | None
    member: SetMember | None = None
    terms: StoreTerms = USUAL_TERMS


@dataclass(frozen=True, slots=True, kw_only=True)
class Foundation:
    """What every part of a broker may use.

    Attributes:
      live: changes `config` and the store's while the broker runs; a part that derives something
        from a key subscribes to it.
      address: known once the broker listens.
      store: empty until it is loaded.
      files: those of the folder `config/`, where tables are saved.
      puts: appends messages of any kind to the store.
      levels: the delay levels.
      new_messages: notified of every message that can be read.
      closed_channels: notified of every connection that is closed.
      refusals: what the limits refuse, of the connections and of the tables.
    """

    config: BrokerConfig
    live: LiveConfig
    seams: Seams
    address: BrokerAddress
    store: MessageStore
    files: StateFiles
    puts: InnerPuts
    levels: DelayLevels
    new_messages: NewMessages
    closed_channels: Notifier[Channel]
    refusals: Refusals


class Serving(NamedTuple):
    """What processors share that store messages; made once the broker's address is known.

    Attributes:
      turn: its `end_turn` must be called at the end of each turn of the server.
      puts: appends messages within the turn.
      added: the properties that the broker adds to each message.
    """

    turn: SendTurn
    puts: TurnPuts
    added: AddedProperties


class LogFirst(enum.Enum):
    """Whether the log is on the device before a table that refers to it is saved.

    In controller mode such a table is saved only when that part of the log is confirmed, too.

    NO: the table does not refer to the log. TRIED: it is saved after a failed fsync, too. REQUIRED:
    it is not saved then.
    """

    NO = enum.auto()
    TRIED = enum.auto()
    REQUIRED = enum.auto()


class AtCut(enum.Enum):
    """What becomes of a table where the log is cut when the broker is opened, see
    store/recovery/log_cut.py.

    A role change opens the broker anew, so that is what its tables do at any start: a power cut may
    shorten the log, too.

    KEPT: it says nothing of messages. ENDS: `load` sets its offsets back to the real ends of their
    queues, hidden messages included. RESTORED: `load` adds what the messages of the log need.
    """

    KEPT = enum.auto()
    ENDS = enum.auto()
    RESTORED = enum.auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedFile:
    """When a table's file is saved.

    Attributes:
      file: the table's.
      at_cut: see `AtCut`.
      interval_s: gives the seconds between two looks at whether it changed; None: a change is saved
        at once.
      log_first: see `LogFirst`.
      before_save: called before each look, for instance to drop old entries.
      at_end: it is saved at a clean stop even if it did not change.
    """

    file: StateFile
    at_cut: AtCut
    interval_s: Callable[[], float] | None = None
    log_first: LogFirst = LogFirst.NO
    before_save: Callable[[], None] = lambda: None
    at_end: bool = False


class Part:
    """A subsystem of the broker. What a part does not need, it inherits: nothing happens.

    The calls come in this order: `load_tables`, `load`, `processors`, `start`; then any of the
    events; at a clean stop `close` and `note_progress`, after which `saved` is saved. In each, the
    parts follow each other as `BrokerParts.all` has them.

    Attributes:
      name: of its records of progress, for the log.
      saved: its tables' files.
    """

    name: ClassVar[str] = ""
    saved: Sequence[SavedFile] = ()

    def load_tables(self) -> None:
        """Read the files that the store's start needs; the store is not loaded.

        Raises:
          StoreError: one is damaged or cannot be read.
          ConfigError: a file of the configuration cannot be used.
        """

    def load(self, *, was_killed: bool) -> None:
        """Read the other files, and compare them with the store, which is loaded.

        Args:
          was_killed: the broker's last run did not end by itself.
        Raises: StoreError: one is damaged or cannot be read.
        """

    def processors(self, serving: Serving) -> Processors:
        """The processors of its requests; the broker's address is known.

        Args:
          serving: appends messages, and answers when they are written.
        """
        none: dict[int, Processor] = {}
        return none

    async def start(self, services: Supervisor) -> None:
        """Start its services; returns without waiting for another machine."""

    def collect(self, samples: Samples) -> Steps[None]:
        """Steps that collect its metrics."""
        yield from ()

    def topic_deleted(self, topic: str) -> None:
        """Forget a deleted topic."""

    def group_deleted(self, group: str) -> None:
        """Forget a deleted group."""

    def wall_clock_set(self) -> None:
        """Do now what is due, after a test moved the wall clock."""

    def owes(self) -> bool:
        """Whether something is due by the wall clock, and not done yet; for such tests."""
        return False

    def close(self) -> None:
        """Append to the log what is in memory only; the store is still open.

        Raises: StoreError: it could not be stored.
        """

    def note_progress(self) -> None:
        """Record what is done, so that the next start need not do it again; the log is on the
        device.

        Raises: StoreError: it could not be recorded.
        """
