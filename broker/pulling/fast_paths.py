"""The fast paths of a broker: what the C extension does, and how much of it it did."""

from __future__ import annotations

from collections.abc import Mapping

from ...native.path_counts import PathCounts
from ...store.message_store import MessageStore
from .pull_message import PullMessageProcessor


def fast_paths(
    store: MessageStore, pulls: PullMessageProcessor, transactions: PathCounts
) -> Mapping[str, PathCounts]:
    """The counts by the name of the path; empty: the broker runs in pure Python.

    sends: plain sends. batches: each counts once. deliveries: delayed messages that are due.
    transactions: half messages and their ends. holds: pulls that wait for a message. wakes: pulls
    that a message ends, alone in their queues.
    """
    found: dict[str, PathCounts] = {}
    if store.runs is not None:
        runs = store.runs
        found |= {"sends": runs.sends, "batches": runs.batches, "deliveries": runs.deliveries}
        found["transactions"] = transactions
    if pulls.runs is not None and pulls.wakes is not None:
        found |= {"holds": pulls.hold_service.counts, "wakes": pulls.wakes.counts}
    return found
