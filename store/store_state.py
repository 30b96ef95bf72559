"""The states of a store, and the table of their transitions. Pure.

A state decides what the store accepts, and gives the reason where it accepts nothing. Only
`LogWriter.enter` changes a store's state.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple


class StoreState(Enum):
    """The state of one store."""

    CLOSED = "closed"
    OPEN = "open"
    FULL = "full"
    SLAVE = "slave"
    SLAVE_FULL = "slave, full"
    FAILED = "failed"
    LOCK_LOST = "lock lost"
    HOLE = "hole"
    UNWRITABLE = "unwritable"


class StoreEvent(Enum):
    """An event that may change a store's state."""

    LOADED = "loaded"
    LOADED_AS_SLAVE = "loaded as a slave"
    HOLE_FOUND = "load found a hole in the log"
    CANNOT_WRITE = "load could not write, to a full or read-only disk"
    DISK_FULL = "the disk is full"
    DISK_HAS_ROOM = "the disk has room"
    WRITE_FAILED = "a write or an fsync failed"
    LOCK_TAKEN = "another process has the lock"
    CLOSED = "closed"


class StateFacts(NamedTuple):
    """The meaning of a state.

    Attributes:
      takes_puts: messages can be put.
      is_trouble: the open store accepts neither puts nor the copy of a master's log.
      is_read_only: the state lasts until the store is opened again; no checkpoint is written.
      remark: why no put is taken; `{}` stands for the reason that came with the event.
    """

    takes_puts: bool
    is_trouble: bool
    is_read_only: bool
    remark: str


_UNTIL_RESTART: Final = "the store is read-only until restart: {}"

FACTS: Final[Mapping[StoreState, StateFacts]] = MappingProxyType(
    {
        StoreState.CLOSED: StateFacts(False, False, False, "the store is not open"),
        StoreState.OPEN: StateFacts(True, False, False, ""),
        StoreState.FULL: StateFacts(False, True, False, "{}"),
        StoreState.SLAVE: StateFacts(
            False, False, False, "this broker is a slave: messages are put to its master"
        ),
        StoreState.SLAVE_FULL: StateFacts(False, True, False, "{}"),
        StoreState.FAILED: StateFacts(False, True, True, _UNTIL_RESTART),
        StoreState.LOCK_LOST: StateFacts(False, True, True, _UNTIL_RESTART),
        StoreState.HOLE: StateFacts(False, True, True, "{}"),
        StoreState.UNWRITABLE: StateFacts(False, True, True, _UNTIL_RESTART),
    }
)

MENDED_BY_OPENING: Final = frozenset({StoreState.FAILED, StoreState.UNWRITABLE})
"""States that end by opening the store again, once the disk has room or works."""

_S, _E = StoreState, StoreEvent
_ENDS = {
    _E.WRITE_FAILED: _S.FAILED,
    _E.LOCK_TAKEN: _S.LOCK_LOST,
    _E.CLOSED: _S.CLOSED,
}

TRANSITIONS: Final[Mapping[StoreState, Mapping[StoreEvent, StoreState]]] = MappingProxyType(
    {
        _S.CLOSED: {
            _E.LOADED: _S.OPEN,
            _E.LOADED_AS_SLAVE: _S.SLAVE,
            _E.HOLE_FOUND: _S.HOLE,
            _E.CANNOT_WRITE: _S.UNWRITABLE,
        },
        _S.OPEN: {_E.DISK_FULL: _S.FULL, **_ENDS},
        # Full again: the state is the same, the reason is the newer one.
        _S.FULL: {_E.DISK_FULL: _S.FULL, _E.DISK_HAS_ROOM: _S.OPEN, **_ENDS},
        _S.SLAVE: {_E.DISK_FULL: _S.SLAVE_FULL, **_ENDS},
        _S.SLAVE_FULL: {_E.DISK_FULL: _S.SLAVE_FULL, _E.DISK_HAS_ROOM: _S.SLAVE, **_ENDS},
        # Read-only: the first failure is the one to report, and only a restart ends it.
        _S.FAILED: {_E.CLOSED: _S.CLOSED},
        _S.LOCK_LOST: {_E.CLOSED: _S.CLOSED},
        _S.HOLE: {_E.CLOSED: _S.CLOSED},
        _S.UNWRITABLE: {_E.CLOSED: _S.CLOSED},
    }
)
"""State and event -> the next state. An event that a state does not list changes nothing."""


class StoreMode:
    """The current state of one store, and the reason.

    Attributes:
      state: a state of the table.
      remark: why no put is taken; "": puts are taken.
    """

    __slots__ = ("remark", "state")

    def __init__(self) -> None:
        self.state = StoreState.CLOSED
        self.remark = FACTS[StoreState.CLOSED].remark

    def apply(self, event: StoreEvent, reason: str = "") -> bool:
        """Make the transition of an event.

        Args:
          reason: what happened and what to do about it, for the remark of the next state.

        Returns: whether the state changed.
        """
        state = TRANSITIONS[self.state].get(event)
        if state is None:
            return False
        is_new = state is not self.state
        self.state = state
        self.remark = FACTS[state].remark.format(reason)
        return is_new

    @property
    def takes_puts(self) -> bool:
        """See `StateFacts`."""
        return FACTS[self.state].takes_puts

    @property
    def trouble(self) -> str:
        """Why the open store accepts nothing; "": it takes puts, or as a slave its master's log."""
        return self.remark if FACTS[self.state].is_trouble else ""

    @property
    def is_read_only(self) -> bool:
        """See `StateFacts`."""
        return FACTS[self.state].is_read_only
