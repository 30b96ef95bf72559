"""Our servers as processes of the harness."""

from __future__ import annotations

import sys
from pathlib import Path

from trocket.interop.trocket_peer import TrocketCluster

PRINT_ENVIRONMENT = "import os; print('ready', os.environ['TROCKET_PURE'])"


def test_a_broker_of_ours_has_the_further_variables(tmp_path: Path) -> None:
    command = (sys.executable, "-c", PRINT_ENVIRONMENT)
    cluster = TrocketCluster(tmp_path, command=command, environment={"TROCKET_PURE": "1"})
    try:
        cluster.start()
        assert (tmp_path / "up.out").read_text() == "ready 1\n"
    finally:
        cluster.close()
