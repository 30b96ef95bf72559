"""Metrics of replication: a master's view of its slaves, and a slave's of its master. Pure.

A slave does not know how far its master's log goes, because no frame says it; its distance is the
master's to measure, or the difference of both brokers' `COMMIT_LOG_END`.
"""

from __future__ import annotations

from typing import Final

from ...remoting.metrics.families import Kind, Metric, Samples
from ...remoting.metrics.server_metrics import trocket_metric
from ...store.config import BrokerRole
from ...store.ha.master import MasterState
from ...store.ha.slave import FollowerState
from ..assembly import BrokerParts


def _metric(name: str, text: str, *labels: str) -> Metric:
    return trocket_metric(name, Kind.GAUGE, text, *labels)


COMMIT_LOG_END: Final = _metric(
    "commit_log_end_bytes", "Physical offset of the end of the commit log.", "role"
)
SLAVES: Final = _metric("ha_slaves", "On a master: slaves that are connected.")
IN_SYNC: Final = _metric(
    "ha_slaves_in_sync",
    "On a master: connected slaves that are behind by less than haMaxGapNotInSync.",
)
WANTED: Final = _metric(
    "ha_slaves_wanted",
    "On a master: slaves that a send waits for; 0 on an ASYNC_MASTER, which waits for none.",
)
BEHIND_BYTES: Final = _metric(
    "ha_slave_behind_bytes", "On a master: bytes of its log that a slave does not have.", "slave"
)
BEHIND_S: Final = _metric(
    "ha_slave_behind_seconds",
    "On a master: time since a slave had its whole log, or since it connected; 0: it has it now.",
    "slave",
)
ACK_AGE: Final = _metric(
    "ha_slave_ack_age_seconds", "On a master: time since a slave's last acknowledgement.", "slave"
)
SENT: Final = _metric(
    "ha_slave_sent_bytes_per_second",
    "On a master: bytes that a slave was sent in the last whole second.",
    "slave",
)
FOLLOWING: Final = _metric("ha_following", "On a slave: whether it follows a master: 1 or 0.")
MASTER_AGE: Final = _metric(
    "ha_master_last_read_age_seconds",
    "On a slave: time since the master sent something; without a sample while not connected.",
)
RECEIVED: Final = _metric(
    "ha_received_bytes_per_second",
    "On a slave: bytes of the log that it received in the last whole second.",
)


def collect(parts: BrokerParts, samples: Samples) -> None:
    state = parts.replication.state()
    if isinstance(state, MasterState):
        _of_master(parts, state, samples)
    else:
        _of_slave(state, samples)


def _of_master(parts: BrokerParts, state: MasterState, samples: Samples) -> None:
    store = parts.store
    is_sync = store.config.broker_role is BrokerRole.SYNC_MASTER
    samples.add(COMMIT_LOG_END, state.log_end, "master")
    samples.add(SLAVES, len(state.slaves))
    samples.add(IN_SYNC, sum(slave.is_in_sync for slave in state.slaves))
    samples.add(WANTED, store.durability.slaves.needed if is_sync else 0)
    samples.declare(BEHIND_BYTES, BEHIND_S, ACK_AGE, SENT)
    for slave in state.slaves:
        samples.add(BEHIND_BYTES, slave.behind, slave.address)
        samples.add(BEHIND_S, slave.behind_s, slave.address)
        samples.add(ACK_AGE, slave.ack_age_s, slave.address)
        samples.add(SENT, slave.per_second, slave.address)


def _of_slave(state: FollowerState, samples: Samples) -> None:
    samples.add(COMMIT_LOG_END, state.log_end, "slave")
    samples.add(FOLLOWING, int(state.is_connected))
    samples.declare(MASTER_AGE)
    if state.last_read_s >= 0:
        samples.add(MASTER_AGE, state.last_read_s)
    samples.add(RECEIVED, state.per_second)
