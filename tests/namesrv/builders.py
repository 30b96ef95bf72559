"""Short ways to the values that the tests of the name server need."""

from __future__ import annotations

from collections.abc import Iterable

from trocket.namesrv.registration import BrokerAddrInfo, BrokerRegistration
from trocket.remoting.bodies import DataVersion, TopicConfig

CLUSTER = "C"


def version(counter: int = 1, *, state: int = 0) -> DataVersion:
    return DataVersion(counter=counter, timestamp=1_700_000_000_000, state_version=state)


def topic(name: str, *, queues: int = 4, perm: int = 6, sys_flag: int = 0) -> TopicConfig:
    return TopicConfig(
        topic_name=name,
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=perm,
        topic_sys_flag=sys_flag,
    )


def address(name: str, broker_id: int = 0) -> str:
    return f"{name}-{broker_id}:10911"


def addr_info(name: str, broker_id: int = 0, cluster: str = CLUSTER) -> BrokerAddrInfo:
    return BrokerAddrInfo(cluster, address(name, broker_id))


def registration(
    name: str,
    broker_id: int = 0,
    topics: Iterable[str | TopicConfig] = ("TBW102", "T"),
    *,
    counter: int = 1,
    state: int = 0,
    acting: bool | None = False,
    **more: object,
) -> BrokerRegistration:
    values: dict[str, object] = {
        "cluster_name": CLUSTER,
        "broker_addr": address(name, broker_id),
        "broker_name": name,
        "broker_id": broker_id,
        "data_version": version(counter, state=state),
        "topics": [topic(t) if isinstance(t, str) else t for t in topics],
        "ha_server_addr": f"{name}-{broker_id}:10912",
        "enable_acting_master": acting,
    }
    return BrokerRegistration(**{**values, **more})  # type: ignore[arg-type]
