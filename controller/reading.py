"""Answers to requests that change nothing: 1004, 1006 and 1012. Pure.

Source: ReplicasInfoManager of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections.abc import Collection

from ..remoting.bodies.controller import BrokerReplicasInfo, ReplicaIdentity, ReplicasInfo
from ..remoting.headers import controller as headers
from ..remoting.response_codes import ResponseCode
from . import rules
from .broker_set import BrokerSet
from .state_machine import Reply, in_sync_body


def replica_info(before: BrokerSet | None) -> Reply:
    """CONTROLLER_GET_REPLICA_INFO 1004: the master and the in-sync set."""
    if before is None:
        code = ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST
        return Reply(code, "Broker metadata is not existed")
    header = headers.GetReplicaInfoResponseHeader(
        master_broker_id=before.master_id,
        master_address=before.master_address or None,
        master_epoch=before.master_epoch,
    )
    return Reply(header=header, body=in_sync_body(before))


def next_broker_id(header: headers.GetNextBrokerIdRequestHeader, before: BrokerSet | None) -> Reply:
    """CONTROLLER_GET_NEXT_BROKER_ID 1012; two brokers may get the same, and one is refused then."""
    answer = headers.GetNextBrokerIdResponseHeader(
        cluster_name=header.cluster_name,
        broker_name=header.broker_name,
        next_broker_id=rules.next_broker_id(before),
    )
    return Reply(header=answer)


def sync_state_data(sets: Collection[tuple[BrokerSet, Collection[int]]]) -> Reply:
    """CONTROLLER_GET_SYNC_STATE_DATA 1006.

    Args:
      sets: each with the ids of its living members.
    """
    table = {each.broker_name: _replicas_info(each, alive) for each, alive in sets}
    return Reply(body=BrokerReplicasInfo(replicas_info_table=table).to_body())


def _replicas_info(each: BrokerSet, alive: Collection[int]) -> ReplicasInfo:
    def identities(ids: Collection[int]) -> list[ReplicaIdentity]:
        return [
            ReplicaIdentity(
                broker_name=each.broker_name,
                broker_id=broker_id,
                broker_address=each.replicas[broker_id].address,
                alive=broker_id in alive,
            )
            for broker_id in sorted(ids)
        ]

    return ReplicasInfo(
        master_broker_id=each.master_id,
        master_address=each.master_address or None,
        master_epoch=each.master_epoch,
        sync_state_set_epoch=each.in_sync_epoch,
        in_sync_replicas=identities(each.in_sync),
        not_in_sync_replicas=identities(each.replicas.keys() - each.in_sync),
    )
