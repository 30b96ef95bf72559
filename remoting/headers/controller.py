"""Headers of the controller's requests (1001 to 1013) and of their answers.

Source: RocketMQ 5.5.0 remoting/protocol/header/controller and NotifyBrokerRoleChangedRequestHeader;
which fields are sent is recorded from 5.5.0. A broker set is all brokers with one broker name. Its
epochs are counted from 0; a controller id is a broker's number in its set, from 1 on.
"""

from __future__ import annotations

from .base import Header, Int32, Int64
from .fields import Epoch, ReplicaId, ReplicaIdOrNone, TimeMs


class BrokerSet(Header, frozen=True, kw_only=True):
    """Base of the headers that name one broker set.

    Attributes:
      cluster_name: the set's cluster.
      broker_name: name that the brokers of the set share.
    """

    cluster_name: str
    broker_name: str


class ReplicaMaster(Header, frozen=True, kw_only=True):
    """Base of the answers with a set's master; the fields are None without one.

    Attributes:
      master_broker_id: its controller id.
      master_address: its "host:port".
      master_epoch: number of elections of the set so far.
    """

    master_broker_id: Int64 | None = None
    master_address: str | None = None
    master_epoch: Int32 | None = None


class AlterSyncStateSetRequestHeader(Header, frozen=True, kw_only=True):
    """Request of CONTROLLER_ALTER_SYNC_STATE_SET (1001); the body is a SyncStateSet.

    Attributes:
      broker_name: the set.
      master_broker_id: controller id of the master, which sends the request.
      master_epoch: the epoch in which it became master.
      invoke_time: when it was sent, ms since 1970.
    """

    broker_name: str
    master_broker_id: ReplicaId
    master_epoch: Epoch
    invoke_time: TimeMs | None = None


class AlterSyncStateSetResponseHeader(Header, frozen=True, kw_only=True):
    """Answer to 1001; a success also has a SyncStateSet. The epoch is 0 in a refusal."""

    new_sync_state_set_epoch: Int32 | None = None


class ElectMasterRequestHeader(BrokerSet, frozen=True, kw_only=True):
    """Request of CONTROLLER_ELECT_MASTER (1002), from a broker or `mqadmin electMaster`.

    Attributes:
      broker_id: controller id of a broker that asks or is designated; -1: none.
      designate_elect: only this broker may be elected.
      invoke_time: when it was sent, ms since 1970.
    """

    broker_id: ReplicaIdOrNone
    designate_elect: bool = False
    invoke_time: TimeMs | None = None


class ElectMasterResponseHeader(ReplicaMaster, frozen=True, kw_only=True):
    """Answer to 1002, also with MASTER_STILL_EXIST (2011); the body is an ElectMasterResponseBody.

    Attributes:
      sync_state_set_epoch: number of changes of the set of in-sync brokers.
    """

    sync_state_set_epoch: Int32 | None = None


class RegisterBrokerToControllerRequestHeader(BrokerSet, frozen=True, kw_only=True):
    """Request of CONTROLLER_REGISTER_BROKER (1003).

    Attributes:
      broker_id: the broker's controller id.
      broker_address: its "host:port".
      invoke_time: when it was sent, ms since 1970.
    """

    broker_id: ReplicaId
    broker_address: str
    invoke_time: TimeMs | None = None


class RegisterBrokerToControllerResponseHeader(ReplicaMaster, frozen=True, kw_only=True):
    """Answer to 1003, with the master only if it is alive; the body is a SyncStateSet.

    Attributes:
      cluster_name, broker_name: as in the request.
      sync_state_set_epoch: as in ElectMasterResponseHeader.
    """

    cluster_name: str | None = None
    broker_name: str | None = None
    sync_state_set_epoch: Int32 | None = None


class GetReplicaInfoRequestHeader(Header, frozen=True, kw_only=True):
    """Request of CONTROLLER_GET_REPLICA_INFO (1004)."""

    broker_name: str


class GetReplicaInfoResponseHeader(ReplicaMaster, frozen=True, kw_only=True):
    """Answer to 1004; the body is a SyncStateSet."""


class GetMetaDataResponseHeader(Header, frozen=True, kw_only=True):
    """Answer to CONTROLLER_GET_METADATA_INFO (1005), whose request has no fields.

    Attributes:
      group: name of the group of controllers.
      controller_leader_id, controller_leader_address: the leader's name and "host:port".
      is_leader: whether the controller that answers is the leader.
      peers: "id:host:port;" of each controller.
    """

    group: str | None = None
    controller_leader_id: str | None = None
    controller_leader_address: str | None = None
    is_leader: bool | None = None
    peers: str | None = None


class NotifyBrokerRoleChangedRequestHeader(Header, frozen=True, kw_only=True):
    """NOTIFY_BROKER_ROLE_CHANGED (1008), from the controller to the set, oneway.

    The body is a SyncStateSet.

    Attributes:
      master_address, master_broker_id: the new master; None: there is none.
      master_epoch, sync_state_set_epoch: the set's epochs.
    """

    master_address: str | None = None
    master_broker_id: ReplicaId | None = None
    master_epoch: Epoch
    sync_state_set_epoch: Epoch


class CleanBrokerDataRequestHeader(Header, frozen=True, kw_only=True):
    """Request of CLEAN_BROKER_DATA (1011); Java's CleanControllerBrokerDataRequestHeader.

    Attributes:
      cluster_name, broker_name: the set.
      broker_controller_ids_to_clean: controller ids, divided by ";"; None: the whole set.
      is_clean_living_broker: also brokers that are alive.
      invoke_time: when it was sent, ms since 1970.
    """

    cluster_name: str | None = None
    broker_name: str
    broker_controller_ids_to_clean: str | None = None
    is_clean_living_broker: bool = False
    invoke_time: TimeMs | None = None


class GetNextBrokerIdRequestHeader(BrokerSet, frozen=True, kw_only=True):
    """Request of CONTROLLER_GET_NEXT_BROKER_ID (1012)."""


class GetNextBrokerIdResponseHeader(Header, frozen=True, kw_only=True):
    """Answer to 1012: the least controller id that no broker of the set has had."""

    cluster_name: str | None = None
    broker_name: str | None = None
    next_broker_id: Int64 | None = None


class ApplyBrokerIdRequestHeader(BrokerSet, frozen=True, kw_only=True):
    """Request of CONTROLLER_APPLY_BROKER_ID (1013).

    Attributes:
      applied_broker_id: the controller id that the broker wants.
      register_check_code: "host:port;ms" by which a repeated request is recognized.
    """

    applied_broker_id: ReplicaId
    register_check_code: str


class ApplyBrokerIdResponseHeader(Header, frozen=True, kw_only=True):
    """Answer to 1013."""

    cluster_name: str | None = None
    broker_name: str | None = None
