"""Metrics of a broker in a set: its epoch, the in-sync set, and what is not confirmed. Pure."""

from __future__ import annotations

from typing import Final

from ...remoting.metrics.families import Kind, Metric, Samples
from ...remoting.metrics.server_metrics import trocket_metric
from ...store.ha.member import SetMember
from ...store.message_store import MessageStore
from ...store.writing.in_sync_acks import InSyncAcks


def _metric(name: str, text: str, *labels: str) -> Metric:
    return trocket_metric(name, Kind.GAUGE, text, *labels)


EPOCH: Final = _metric(
    "set_epoch",
    "In controller mode: the epoch of the master that this broker is, or follows; 0: it knows "
    "none. The role is master, slave or waiting.",
    "role",
)
IN_SYNC: Final = _metric(
    "set_in_sync_brokers",
    "On a master in controller mode: members of the in-sync set, itself included.",
)
UNCONFIRMED: Final = _metric(
    "set_unconfirmed_bytes",
    "In controller mode: bytes at the end of the log that are not confirmed, and not visible.",
)
LEASE: Final = _metric(
    "set_lease",
    "On a master in controller mode: 1: its controller has answered lately; 0: it has not.",
)


def collect(
    store: MessageStore, member: SetMember, role: str, *, has_lease: bool, samples: Samples
) -> None:
    """Collect the metrics.

    Args:
      role: the label of `EPOCH`.
      has_lease: the value of `LEASE`.
    """
    samples.add(EPOCH, member.epoch, role)
    samples.add(UNCONFIRMED, store.max_physical_offset - store.durability.confirm_offset)
    samples.declare(IN_SYNC, LEASE)
    if isinstance(member.in_sync, InSyncAcks):
        samples.add(IN_SYNC, len(member.in_sync.accepted))
        samples.add(LEASE, int(has_lease))
