"""Workers of multiprocessing, as processes of a program that has open clients."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from trocket.testing import Broker

PROGRAM = Path(__file__).with_name("workers.py")
TIMEOUT_S = 120
WORKERS = 3
FORKED = ["blocking: forked", "client: forked"]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_worker_sends_by_clients_of_its_own(method: str, broker: Broker, topic: str) -> None:
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"no {method} here")
    done = subprocess.run(
        # Python 3.12 and later warn of forks in processes with threads.
        [sys.executable, "-W", "ignore", str(PROGRAM), method, broker.url, topic],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    refusal, *reports = done.stdout.splitlines()
    assert "cannot be pickled" in refusal
    expected = ["SEND_OK", *(FORKED if method == "fork" else [])]
    assert reports == sorted(expected * WORKERS)
    sent = Counter(message.text for message in broker.messages(topic))
    assert sent == {
        "async parent": 2,
        "blocking parent": 2,
        **{f"async {each}": 1 for each in range(WORKERS)},
        **{f"blocking {each}": 1 for each in range(WORKERS)},
    }
