"""A set of brokers as a controller keeps it: members, master, in-sync set.

A set has the brokers of one name. Each has a permanent id, 1, 2, 3 …, which is not the broker id of
its role: that is 0 while it is the master.

Source: ReplicasInfoManager, BrokerReplicaInfo and SyncStateInfo of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

FIRST_ID: Final = 1
EPOCH_MAX: Final = 2**31 - 1
"""Epochs are 32-bit numbers on the wire."""


class Replica(msgspec.Struct, frozen=True, rename="camel"):
    """A broker of a set.

    Attributes:
      address: `host:port` where clients reach it; "": it has not registered yet.
      check_code: of the broker that the id was given to; it may ask for the id again with this.
    """

    address: str = ""
    check_code: str = ""


class BrokerSet(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A set of brokers, as it is kept; each change makes another one.

    Attributes:
      replicas: by permanent id.
      in_sync: ids of those that have every confirmed message: only these are elected.
      in_sync_epoch: higher by one at each change of `in_sync`.
      master_id: None: there is no master.
      master_epoch: higher by one at each election; 0: there was none yet.
    """

    cluster_name: str
    broker_name: str
    replicas: Mapping[int, Replica]
    in_sync: frozenset[int] = frozenset()
    in_sync_epoch: int = 0
    master_id: int | None = None
    master_epoch: int = 0

    @property
    def next_id(self) -> int:
        """The id of the next broker that joins."""
        return max(self.replicas, default=FIRST_ID - 1) + 1

    @property
    def master_address(self) -> str:
        """Of the master; "": there is none."""
        return "" if self.master_id is None else self.replicas[self.master_id].address

    def with_in_sync(self, ids: frozenset[int]) -> BrokerSet:
        """The set after a change of `in_sync`."""
        return msgspec.structs.replace(self, in_sync=ids, in_sync_epoch=self.in_sync_epoch + 1)

    def with_master(self, broker_id: int) -> BrokerSet:
        """The set after an election: no one but the master is known to have all it will confirm."""
        elected = msgspec.structs.replace(
            self, master_id=broker_id, master_epoch=self.master_epoch + 1
        )
        return elected.with_in_sync(frozenset({broker_id}))

    def without_master(self) -> BrokerSet:
        """The set after an election that found none; only members of `in_sync` may follow."""
        return msgspec.structs.replace(self, master_id=None)

    def with_replica(self, broker_id: int, replica: Replica) -> BrokerSet:
        """The set with a broker that joined, or has another address."""
        return msgspec.structs.replace(self, replicas={**self.replicas, broker_id: replica})

    def without_replicas(self, ids: frozenset[int]) -> BrokerSet:
        """The set without some brokers, of which none is the master."""
        left = {each: replica for each, replica in self.replicas.items() if each not in ids}
        changed = msgspec.structs.replace(self, replicas=left)
        return changed.with_in_sync(self.in_sync - ids) if self.in_sync & ids else changed
