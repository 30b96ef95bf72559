"""The rules by which a controller answers: a set of brokers and a request to the set after it.

All of them are pure: what is alive, and how far, is given. The set is not changed but made anew, so
that the caller can compare it with what is stored and replace that in one step.

Source: ReplicasInfoManager and DefaultElectPolicy of RocketMQ 5.5.0. Differences: candidates that
are equal are ordered by their ids, and offsets are compared whole, not by a 32-bit difference.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from ..remoting.bodies.controller import REPLICA_ID_MAX
from ..remoting.response_codes import ResponseCode
from .broker_set import EPOCH_MAX, FIRST_ID, BrokerSet, Replica


class Outcome(msgspec.Struct, frozen=True):
    """The answer to a request.

    Attributes:
      after: the set as it is now; None: there is none. What did not change is the same object.
      code: SUCCESS, or why not.
      remark: the reason in words.
    """

    after: BrokerSet | None
    code: ResponseCode = ResponseCode.SUCCESS
    remark: str = ""


class Standing(msgspec.Struct, frozen=True):
    """What a living member said of itself by its last heartbeat.

    Attributes:
      epoch: the last one of its log; -1: it has none.
      max_offset: the end of its log.
      priority: the smaller one is preferred.
    """

    epoch: int = -1
    max_offset: int = 0
    priority: int = 2**31 - 1


Alive = Mapping[int, Standing]
"""The living members of a set, by id."""


# The members of the in-sync set


def alter_in_sync(
    before: BrokerSet | None,
    *,
    master_id: int,
    master_epoch: int,
    wanted: frozenset[int],
    known_epoch: int,
    alive: Collection[int],
) -> Outcome:
    """A master replaces the in-sync set.

    Args:
      master_id, master_epoch: the sender, and the election that made it the master.
      wanted: ids of the new set.
      known_epoch: of the set that it replaces.
      alive: ids of the living members.
    """
    refusal = _refusal_of_set(before, master_id, master_epoch, wanted, known_epoch, alive)
    if refusal is not None or before is None:
        return Outcome(before, *(refusal or ()))
    return Outcome(before.with_in_sync(wanted))


def _refusal_of_set(
    before: BrokerSet | None,
    master_id: int,
    master_epoch: int,
    wanted: frozenset[int],
    known_epoch: int,
    alive: Collection[int],
) -> tuple[ResponseCode, str] | None:
    failed = ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED
    if before is None:
        return failed, "the broker set is not known"
    if wanted == before.in_sync:
        return failed, "the in-sync set is the same as before"
    if master_id != before.master_id:
        said = f"the master is {before.master_id}, not {master_id}"
        return ResponseCode.CONTROLLER_INVALID_MASTER, said
    if master_epoch != before.master_epoch:
        said = f"the master's epoch is {before.master_epoch}, not {master_epoch}"
        return ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH, said
    if known_epoch != before.in_sync_epoch:
        said = f"the in-sync set's epoch is {before.in_sync_epoch}, not {known_epoch}"
        return ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH, said
    if unknown := wanted - before.replicas.keys():
        said = f"the set has no {_listed(unknown)}"
        return ResponseCode.CONTROLLER_INVALID_REPLICAS, said
    if dead := wanted - set(alive):
        return ResponseCode.CONTROLLER_BROKER_NOT_ALIVE, f"not alive: {_listed(dead)}"
    if master_id not in wanted:
        return failed, "the master is not in the in-sync set"
    return None


# Elections


def elect(
    before: BrokerSet | None,
    *,
    alive: Alive,
    asking_id: int | None = None,
    designated_id: int | None = None,
    is_unclean: bool = False,
) -> Outcome:
    """Elect a master; the present one stays if it is alive, and no other one is designated.

    Args:
      alive: the living members, and how far they are.
      asking_id: the broker that asks; None: the controller or an administrator does.
      designated_id: only this one may be elected; None: any.
      is_unclean: if no member of the in-sync set is alive, another one may be elected, which loses
        confirmed messages.
    Returns: CONTROLLER_MASTER_STILL_EXIST: the master stays, which is no failure.
    """
    if before is None or not _is_member(before, asking_id, designated_id):
        code = ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
        return Outcome(before, code, "the broker is not registered")
    elected = _elected(before, alive, asking_id, designated_id, is_unclean)
    if elected is None:
        return _nobody(before, asking_id if designated_id is None else designated_id)
    if elected == before.master_id:
        return Outcome(before, ResponseCode.CONTROLLER_MASTER_STILL_EXIST, "the master stays")
    if before.master_epoch >= EPOCH_MAX or before.in_sync_epoch >= EPOCH_MAX:
        code = ResponseCode.CONTROLLER_ELECT_MASTER_FAILED
        return Outcome(before, code, "the epochs of the set are used up")
    return Outcome(before.with_master(elected))


def _is_member(before: BrokerSet, asking_id: int | None, designated_id: int | None) -> bool:
    """Whether a broker that asks is one of the set; of one that is designated, RocketMQ asks it in
    the first election only, and finds later that it is not alive."""
    unknown = {asking_id, designated_id} - {None} - before.replicas.keys()
    return not unknown or (designated_id is not None and before.master_epoch > 0)


def _elected(
    before: BrokerSet,
    alive: Alive,
    asking_id: int | None,
    designated_id: int | None,
    is_unclean: bool,
) -> int | None:
    if before.master_epoch == 0:  # nothing was ever confirmed, so anyone will do
        return asking_id if designated_id is None else designated_id
    found = _best(before, alive, before.in_sync, designated_id)
    if found is None and is_unclean:
        found = _best(before, alive, before.replicas.keys(), designated_id)
    return found


def _best(
    before: BrokerSet, alive: Alive, among: Collection[int], designated_id: int | None
) -> int | None:
    candidates = {each: alive[each] for each in among if each in alive}
    if designated_id is not None:
        return designated_id if designated_id in candidates else None
    if before.master_id in candidates:
        return before.master_id

    def rank(each: int) -> tuple[int, int, int, int]:
        of = candidates[each]
        return of.epoch, of.max_offset, -of.priority, -each

    return max(candidates, key=rank, default=None)


def _nobody(before: BrokerSet, asking_id: int | None) -> Outcome:
    if asking_id is not None:
        code = ResponseCode.CONTROLLER_ELECT_MASTER_FAILED
        return Outcome(before, code, "Failed to elect a new master")
    after = before if before.master_id is None else before.without_master()
    code = ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE
    return Outcome(after, code, "no member that may be elected is alive")


def needs_master(known: BrokerSet, alive: Collection[int]) -> bool:
    """Whether a set has had a master and has none that is alive."""
    return known.master_epoch > 0 and known.master_id not in alive


# Members


def next_broker_id(known: BrokerSet | None) -> int:
    """The id that a broker may apply for."""
    return FIRST_ID if known is None else known.next_id


def apply_broker_id(
    before: BrokerSet | None,
    *,
    cluster_name: str,
    broker_name: str,
    broker_id: int,
    check_code: str,
) -> Outcome:
    """Give an id to a broker; the same broker may ask again, as the answer may have been lost."""
    invalid = ResponseCode.CONTROLLER_BROKER_ID_INVALID
    if not FIRST_ID <= broker_id <= REPLICA_ID_MAX:
        return Outcome(before, invalid, f"an id is {FIRST_ID} to {REPLICA_ID_MAX}, not {broker_id}")
    replica = Replica(check_code=check_code)
    if before is None:
        if broker_id != FIRST_ID:
            return Outcome(None, invalid, f"the first broker of a set has the id {FIRST_ID}")
        made = BrokerSet(
            cluster_name=cluster_name, broker_name=broker_name, replicas={broker_id: replica}
        )
        return Outcome(made)
    known = before.replicas.get(broker_id)
    if known is None:
        return Outcome(before.with_replica(broker_id, replica))
    if known.check_code == check_code:
        return Outcome(before)
    return Outcome(before, invalid, f"another broker has the id {broker_id}")


def register(before: BrokerSet | None, *, broker_id: int, address: str) -> Outcome:
    """A broker with an id says where it is."""
    if before is None or broker_id not in before.replicas:
        code = ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
        return Outcome(before, code, f"no broker of the set has the id {broker_id}")
    known = before.replicas[broker_id]
    if known.address == address:
        return Outcome(before)
    moved = msgspec.structs.replace(known, address=address)
    return Outcome(before.with_replica(broker_id, moved))


def clean(
    before: BrokerSet | None,
    *,
    ids: frozenset[int],
    alive: Collection[int],
    with_living: bool = False,
) -> Outcome:
    """Forget members, or the whole set.

    Args:
      ids: of the members; empty: all of the set.
      alive: ids of the living members.
      with_living: members that are alive, and the master, too.
    """
    invalid = ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
    if before is None:
        return Outcome(None, invalid, "the broker set is not known")
    if unknown := ids - before.replicas.keys():
        return Outcome(before, invalid, f"the set has no {_listed(unknown)}")
    if not with_living:
        if not ids and before.master_id is not None:
            remark = f"Broker {before.broker_name} is still alive, clean up failure"
            return Outcome(before, invalid, remark)
        if living := ids & set(alive):
            remark = f"Broker [{before.broker_name},  {_listed(living)}] is still alive"
            return Outcome(before, invalid, f"{remark}, clean up failure")
    if not ids or ids == before.replicas.keys():
        return Outcome(None)
    left = before.without_master() if before.master_id in ids else before
    return Outcome(left.without_replicas(ids))


def _listed(ids: Collection[int]) -> str:
    return ", ".join(str(each) for each in sorted(ids))
