"""The interface of a store that controllers keep their sets of brokers in.

A store needs four things: to read all sets, to replace one by compare-and-swap, a lease by which
one of several controllers leads, and a way to wait for a change of the leader. Consensus is the
store's. etcd has all four; so have ZooKeeper (versions of nodes, ephemeral nodes, watches) and
Kubernetes (resourceVersion, Lease objects, watches), which can be added beside `etcd_store.py`
without a change elsewhere. One controller alone needs no more than a file (`file_store.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Protocol

import msgspec
import trio

from ..remoting.bodies.controller import REPLICA_ID_MAX
from .broker_set import EPOCH_MAX, FIRST_ID, BrokerSet

VERSION: Final = 1
"""Of the stored form. A store with another one is refused: an older program would drop what it does
not know, and with it perhaps the reason why a broker must not be elected."""

NO_REVISION: Final = 0
"""The revision of a set that is not stored."""


class StateError(Exception):
    """The store cannot do what was wanted; the text is for an operator."""


class UnavailableError(StateError):
    """The store did not answer in time, or has no quorum. A swap may have happened all the same."""


class ConflictError(StateError):
    """Another revision of the set is stored: it must be read again."""


class LeaseLostError(StateError):
    """Another controller leads, or may lead; nothing was written."""


class UnreadableError(StateError):
    """What is stored is damaged, or of another version."""


class Candidate(NamedTuple):
    """A controller that leads or may lead.

    Attributes:
      name: of the controller in its group, such as "n0".
      address: its "host:port"; "": it has announced none.
    """

    name: str
    address: str


class Lease(NamedTuple):
    """The leadership of one controller.

    Attributes:
      term: higher with each leader; a write of an older term is refused by the store.
      until_s: monotonic time at which the store may give it to another controller; it is computed
        from the moment at which the request was sent. Infinite: never.
      token: the store's name for it.
    """

    term: int
    until_s: float
    token: str = ""


class Stored(NamedTuple):
    """A set and its revision.

    Attributes:
      revision: higher at each change of the set; NO_REVISION: there is no set.
    """

    broker_set: BrokerSet | None = None
    revision: int = NO_REVISION


NOTHING: Final = Stored()
"""A set that is not stored."""


class StateStore(Protocol):
    """The state of a group of controllers.

    All methods have time limits of their own and raise UnavailableError when those have passed.
    They are called by one controller, after `run` has reported its start.
    """

    @property
    def renewal_s(self) -> float:
        """Seconds between two renewals of a lease; infinite: it needs none."""

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Hold the store's files or connections until cancelled.

        Raises: StateError or StoreError before the start: it cannot be used.
        """

    async def acquire(self, candidate: Candidate) -> Lease | None:
        """Lead, if no one does; None: another controller leads."""

    async def renew(self, lease: Lease) -> Lease:
        """Lead on, for a full time from now.

        Raises: LeaseLostError: the lease has ended.
        """

    async def release(self, lease: Lease) -> None:
        """End the lease, so that another controller need not wait for its end."""

    async def leader(self) -> Candidate | None:
        """The controller that leads; None: none does."""

    async def wait_for_change(self) -> None:
        """Wait until the leader may be another one; it may return without a change."""

    async def read(self) -> dict[str, Stored]:
        """All sets by broker name, as they are after every write that has ended.

        Raises: UnreadableError.
        """

    async def read_set(self, name: str) -> Stored:
        """One set; NOTHING: there is none.

        Raises: UnreadableError.
        """

    async def swap(self, lease: Lease, name: str, revision: int, after: BrokerSet | None) -> int:
        """Replace a set in one durable step.

        Args:
          lease: it must still be the latest one.
          name: the broker name.
          revision: of the set that is replaced.
          after: None: it is removed.
        Returns: the new revision; NO_REVISION after a removal.
        Raises:
          ConflictError: another revision is stored; nothing was written.
          LeaseLostError: another lease is the latest one; nothing was written.
          UnavailableError: it is not known whether it was written.
        """


class StoredSet(BrokerSet, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A set as JSON; an unknown member is refused."""


def to_tree(broker_set: BrokerSet) -> Any:
    """A set as plain JSON values, in a fixed order."""
    tree = msgspec.to_builtins(broker_set, str_keys=True)
    tree["inSync"] = sorted(broker_set.in_sync)
    return tree


def from_tree(tree: object) -> BrokerSet:
    """The set of plain JSON values.

    Raises: UnreadableError: it is no set that this program can have written.
    """
    try:
        stored = msgspec.convert(tree, StoredSet, str_keys=True, strict=True)
    except (msgspec.ValidationError, RecursionError) as error:
        raise UnreadableError(f"not a set of brokers: {error}") from error
    found = BrokerSet(**{each: getattr(stored, each) for each in stored.__struct_fields__})
    if why := _why_impossible(found):
        raise UnreadableError(f"the set {found.broker_name!r} is impossible: {why}")
    return found


def check_version(tree: Mapping[str, object], where: str) -> None:
    """Check the version of the stored form.

    Raises: UnreadableError: it is another one.
    """
    version = tree.get("version")
    if version != VERSION or isinstance(version, bool):
        raise UnreadableError(
            f"{where} has the version {version!r}, this program knows {VERSION}: use the trocket "
            "that wrote it, or a newer one"
        )


def _why_impossible(each: BrokerSet) -> str:
    ids = each.replicas.keys()
    for known, why in (
        (bool(each.broker_name), "it has no name"),
        (bool(ids), "it has no members"),
        (all(FIRST_ID <= one <= REPLICA_ID_MAX for one in ids), "an id is out of range"),
        (each.in_sync <= ids, "an in-sync broker is no member"),
        (each.master_id is None or each.master_id in each.in_sync, "the master is not in sync"),
        (0 <= each.master_epoch <= EPOCH_MAX, "the master's epoch is out of range"),
        (0 <= each.in_sync_epoch <= EPOCH_MAX, "the in-sync set's epoch is out of range"),
    ):
        if not known:
            return why
    return ""
