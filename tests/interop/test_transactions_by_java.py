"""The official Java clients: transactions that end at once, after checks, or never.

What is expected below was seen with Apache's broker 5.5.0: run this with TROCKET_INTEROP_PEER.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from trocket.interop.java_program import run_java
from trocket.interop.peer import Cluster

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("java")]

TIMEOUT_S = 120.0
KEYS = {"transactionTimeOut": 8000, "transactionCheckInterval": 3000}
"""Apache 5.5.0 notes ends three seconds later: with a shorter time it asks about what has ended."""

EXPECTED = [
    "sent commits SEND_OK COMMIT_MESSAGE true",
    "sent rolls-back SEND_OK ROLLBACK_MESSAGE true",
    "sent asks SEND_OK UNKNOW true",
    "sent asks-rolls-back SEND_OK UNKNOW true",
    "sent fails SEND_OK UNKNOW true",
    "checked asks 1 key-asks Transactions",
    "checked asks 2 key-asks Transactions",
    "checked asks-rolls-back 1 key-asks-rolls-back Transactions",
    "checked fails 1 key-fails Transactions",
    "received commits",
    "received asks",
]


@pytest.mark.parametrize("version", ["5.5.0", pytest.param("4.9.7", marks=pytest.mark.matrix)])
def test_transactions_end_as_with_apache(
    make_cluster_with: Callable[[Mapping[str, object]], Cluster], tmp_path: Path, version: str
) -> None:
    cluster = make_cluster_with(KEYS)
    cluster.start()
    lines = run_java(
        version,
        "Transactions",
        cluster.namesrv_address,
        folder=tmp_path / "client",
        timeout_s=TIMEOUT_S,
        is_done=lambda _, lines: set(EXPECTED) <= set(lines),
    )
    words = {line.split()[0] for line in EXPECTED}
    seen = [line for line in lines if line.partition(" ")[0] in words]
    assert Counter(seen) == Counter(EXPECTED)
