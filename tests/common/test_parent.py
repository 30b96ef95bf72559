"""The end of the process that started this one, with and without descriptors of processes."""

from __future__ import annotations

import os
import select
import subprocess
import sys

import pytest

TIMEOUT_S = 30.0
"""For processes to start and end; only broken ones take so long."""

CHILD = """
import os, sys, trio
if sys.argv[1] == "polling":
    del os.pidfd_open
from trocket.common import parent
print(os.getpid(), flush=True)
trio.run(parent.wait_for_its_end)
"""
RUNNER = "import subprocess, sys; subprocess.run([sys.executable, '-c', *sys.argv[1:]])"


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="it needs Linux to watch the child")
@pytest.mark.parametrize("way", ["descriptor", "polling"])
def test_a_process_notices_that_the_one_that_started_it_was_killed(way: str) -> None:
    runner = subprocess.Popen(
        [sys.executable, "-c", RUNNER, CHILD, way], stdout=subprocess.PIPE, text=True
    )
    assert runner.stdout is not None
    child = os.pidfd_open(int(runner.stdout.readline()))
    assert select.select([child], [], [], 0)[0] == []
    runner.kill()
    runner.wait()
    assert select.select([child], [], [], TIMEOUT_S)[0] == [child]
    os.close(child)
    runner.stdout.close()
