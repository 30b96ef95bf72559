"""Bodies of the controller's requests and answers, and of a broker's epochs (1007).

Source: RocketMQ 5.5.0 SyncStateSet, ElectMasterResponseBody, BrokerReplicasInfo, EpochEntryCache.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ...common.java_integers import INT32_MAX, INT64_MAX
from .base import Body, Int32, Int64
from .fields import Epoch, ReplicaId
from .route import BrokerMemberGroup

REPLICA_ID_MAX: Final = INT32_MAX
"""Of a member of a set: slaves send their permanent id as the 32-bit broker id of their role."""


class SyncStateSet(Body):
    """The in-sync brokers of a set: request and answer 1001, 1008, answers 1003 and 1004.

    Attributes:
      sync_state_set: controller ids.
      sync_state_set_epoch: number of changes so far; in a request, before the wanted one.
    """

    sync_state_set: set[ReplicaId] = msgspec.field(default_factory=set)
    sync_state_set_epoch: Epoch = 0


class ElectMasterResponseBody(Body):
    """Answer to CONTROLLER_ELECT_MASTER (1002).

    Integer keys are quoted: mqadmin 5.5.0 cannot read the bare ones that Apache's controller sends.

    Attributes:
      broker_member_group: the set, addresses by controller id; None: the master stays.
      sync_state_set: controller ids of the in-sync brokers.
      cluster, broker_name, broker_addrs: the group once more; Apache's controller leaves them out,
        but mqadmin reads the whole body as a BrokerMemberGroup.
    """

    broker_member_group: BrokerMemberGroup | None = None
    sync_state_set: set[Int64] = msgspec.field(default_factory=set)
    cluster: str | None = None
    broker_name: str | None = None
    broker_addrs: dict[Int64, str] | None = None


class ReplicaIdentity(Body):
    """One broker of a set.

    Attributes:
      broker_name: the set.
      broker_id: its controller id.
      broker_address: its "host:port".
      alive: whether its heartbeats arrive.
    """

    broker_name: str = ""
    broker_id: Int64 = 0
    broker_address: str = ""
    alive: bool = False


class ReplicasInfo(Body):
    """A set as its controller knows it.

    Attributes:
      master_broker_id, master_address: its master; None: none.
      master_epoch, sync_state_set_epoch: its epochs.
      in_sync_replicas, not_in_sync_replicas: its brokers.
    """

    master_broker_id: Int64 | None = None
    master_address: str | None = None
    master_epoch: Int32 = 0
    sync_state_set_epoch: Int32 = 0
    in_sync_replicas: list[ReplicaIdentity] = msgspec.field(default_factory=list)
    not_in_sync_replicas: list[ReplicaIdentity] = msgspec.field(default_factory=list)


class BrokerReplicasInfo(Body):
    """Answer to CONTROLLER_GET_SYNC_STATE_DATA (1006), whose request is a list of broker names.

    Attributes:
      replicas_info_table: sets by broker name.
    """

    replicas_info_table: dict[str, ReplicasInfo] = msgspec.field(default_factory=dict)


OPEN_END: Final = INT64_MAX
"""The end of the last epoch, which goes on. Source: EpochEntry."""


class EpochEntry(Body):
    """The part of a log that was written under one master.

    Attributes:
      epoch: the master's epoch.
      start_offset, end_offset: physical offsets; `OPEN_END`: it has not ended.
    """

    epoch: Int32 = 0
    start_offset: Int64 = 0
    end_offset: Int64 = 0


class EpochEntryCache(Body):
    """Answer to GET_BROKER_EPOCH_CACHE (1007).

    Attributes:
      cluster_name, broker_name: the broker's set.
      broker_id: 0: it is the master, else its controller id.
      epoch_list: in the order of the log.
      max_offset: physical offset of the log's end.
    """

    cluster_name: str = ""
    broker_name: str = ""
    broker_id: Int64 = 0
    epoch_list: list[EpochEntry] = msgspec.field(default_factory=list)
    max_offset: Int64 = 0
