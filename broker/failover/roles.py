"""The role of a broker in its set, as a table: what it does with what a controller says.

A view of the set is compared with the place that the broker has, which gives one of five events.
The table has an action for each role and event. Pure.

Two masters of one set cannot both confirm messages: an epoch has one master, a broker takes only
higher epochs than its own, and a master confirms only what all of the in-sync set have, whose
members follow the newest master. docs/ha.md has the argument.

Source: ReplicasManager of RocketMQ 5.5.0, changeBrokerRole and syncBrokerEpoch.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final, NamedTuple


class Role(enum.Enum):
    """What a broker of a set does. WAITING: it knows no master; it serves what it has."""

    WAITING = enum.auto()
    MASTER = enum.auto()
    SLAVE = enum.auto()


class SetView(NamedTuple):
    """A set as a controller has described it.

    Attributes:
      master_id: permanent id of the master; None: there is none.
      master_address: its `host:port`; "": unknown.
      master_epoch: the number of elections so far.
      in_sync: ids of the in-sync set.
      in_sync_epoch: the number of its changes so far.
    """

    master_id: int | None
    master_address: str
    master_epoch: int
    in_sync: frozenset[int]
    in_sync_epoch: int


class Place(NamedTuple):
    """The place of a broker in its set.

    Attributes:
      epoch: of the master that it is, or follows; in role WAITING that of the last one, 0: none.
      master_id, master_address: as in `SetView`.
    """

    role: Role
    epoch: int
    master_id: int | None = None
    master_address: str = ""


class Event(enum.Enum):
    """How a view compares with the place of this broker.

    ELECTED: this broker is the master of a newer epoch. FOLLOWS: another one is, or has another
    address now. SAME: nothing has changed but perhaps the in-sync set. MASTERLESS: the set has no
    master. OLDER: the view is older than what this broker knows.
    """

    ELECTED = enum.auto()
    FOLLOWS = enum.auto()
    SAME = enum.auto()
    MASTERLESS = enum.auto()
    OLDER = enum.auto()


class Action(enum.Enum):
    """What the broker does. The first two open it again, in another role."""

    BECOME_MASTER = enum.auto()
    BECOME_SLAVE = enum.auto()
    TAKE_SET = enum.auto()
    ASK_FOR_ELECTION = enum.auto()
    IGNORE = enum.auto()


ACTIONS: Final[Mapping[tuple[Role, Event], Action]] = {
    (Role.WAITING, Event.ELECTED): Action.BECOME_MASTER,
    (Role.WAITING, Event.FOLLOWS): Action.BECOME_SLAVE,
    (Role.WAITING, Event.SAME): Action.IGNORE,
    (Role.WAITING, Event.MASTERLESS): Action.ASK_FOR_ELECTION,
    (Role.WAITING, Event.OLDER): Action.IGNORE,
    # Elected again without having been deposed: a new epoch begins.
    (Role.MASTER, Event.ELECTED): Action.BECOME_MASTER,
    (Role.MASTER, Event.FOLLOWS): Action.BECOME_SLAVE,
    (Role.MASTER, Event.SAME): Action.TAKE_SET,
    # It goes on meanwhile: only a member of the in-sync set can be elected, and it confirms nothing
    # that these do not have.
    (Role.MASTER, Event.MASTERLESS): Action.ASK_FOR_ELECTION,
    (Role.MASTER, Event.OLDER): Action.IGNORE,
    (Role.SLAVE, Event.ELECTED): Action.BECOME_MASTER,
    (Role.SLAVE, Event.FOLLOWS): Action.BECOME_SLAVE,
    (Role.SLAVE, Event.SAME): Action.IGNORE,
    (Role.SLAVE, Event.MASTERLESS): Action.ASK_FOR_ELECTION,
    (Role.SLAVE, Event.OLDER): Action.IGNORE,
}


def event_of(view: SetView, place: Place, own_id: int) -> Event:
    """Compare a view with the place of the broker that has an id."""
    if view.master_epoch < place.epoch:
        return Event.OLDER
    if view.master_id is None:
        return Event.MASTERLESS
    is_newer = view.master_epoch > place.epoch or place.role is Role.WAITING
    if view.master_id == own_id:
        # The same epoch has one master, so a slave of it cannot be that master.
        if not is_newer and place.role is not Role.MASTER:
            return Event.OLDER
        return Event.ELECTED if is_newer else Event.SAME
    has_moved = (view.master_id, view.master_address) != (place.master_id, place.master_address)
    return Event.FOLLOWS if is_newer or has_moved else Event.SAME


def place_after(action: Action, view: SetView, before: Place) -> Place:
    """The place of the broker after an action."""
    roles = {Action.BECOME_MASTER: Role.MASTER, Action.BECOME_SLAVE: Role.SLAVE}
    role = roles.get(action)
    if role is None:
        return before
    return Place(role, view.master_epoch, view.master_id, view.master_address)


# The in-sync set, as the master sees it


class Follower(NamedTuple):
    """A slave as its master knows it.

    Attributes:
      ack_offset: physical offset up to which it has the log.
      behind_s: seconds since it had the whole log; 0: it has it.
      may_join: it may become a member of the in-sync set: it is no learner.
    """

    ack_offset: int
    behind_s: float
    may_join: bool = True


def wanted_in_sync(
    accepted: frozenset[int],
    followers: Mapping[int, Follower],
    *,
    own_id: int,
    confirm_offset: int,
    epoch_start: int,
    behind_max_s: float,
) -> frozenset[int]:
    """The in-sync set that a master asks its controller for.

    Args:
      accepted: the present one.
      followers: the connected slaves, by permanent id.
      confirm_offset: physical offset up to which messages are confirmed.
      epoch_start: physical offset at which the master's epoch begins.
      behind_max_s: a member that has been behind for longer leaves (haMaxTimeSlaveNotCatchup).
    """
    connected = accepted & followers.keys()
    stay = {each for each in connected if followers[each].behind_s <= behind_max_s}
    join_from = max(confirm_offset, epoch_start)
    join = {
        each
        for each, known in followers.items()
        if known.may_join and known.ack_offset >= join_from
    }
    return frozenset(stay | join | {own_id})
