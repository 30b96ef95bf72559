"""Runs that once failed, made short: each of their images must keep every promise for ever."""

from __future__ import annotations

import pytest

from .engine import check_run
from .runs import record_run

PLAIN = {"padding": 0, "key": "", "tag": "TagA", "v6": False, "nul": False}


def put(topic: str, queue_id: int, size: int = 60) -> tuple:
    return ("put_with", topic, queue_id, size, PLAIN)


SAVED = {
    # The folder of a topic was there after a kill, but not on the device; the checkpoint vouched
    # for queues in it, and after a power cut before the checkpoint was written nothing reported it.
    "queues in a folder that no fsync knew of": (
        "truncate",
        "M0",
        7,
        [
            put("Other", 1, 900), put("T", 0, 10), ("commit",), ("queues", 1), ("crash", "all"),
            put("T", 0), ("commit",), ("checkpoint",),
        ],
    ),
    # An index file that had been removed came back after a power cut, the newer ones did not.
    "index files whose names were not on the device": (
        "index",
        "M1",
        3,
        [
            *[put("T", 0) for _ in range(14)], ("commit",), ("flush",), ("index",),
            ("crash", "all"),
            *[put("T", 0) for _ in range(3)], ("commit",), ("flush",), ("index",), ("checkpoint",),
            ("crash", "all"),
            put("T", 0), ("commit",), ("flush",), ("index",), ("checkpoint",), ("crash", "all"),
        ],
    ),
    # A crash undid the deletion of a topic, and messages were put behind the older ones.
    "a deletion that was undone": (
        "delete_topic",
        "M1",
        4,
        [put("T", 0), ("delete", "T"), ("crash", "all"), put("T", 0), ("commit",)],
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", SAVED)
def test_a_run_that_once_failed_keeps_every_promise(name: str) -> None:
    workload, mode, seed, steps = SAVED[name]
    run = record_run(workload, mode, seed, steps)
    assert run.problem == ""
    report = check_run(run, depth2=True)
    assert report.count > 100
    assert [failure.text() for failure in report.failures] == []
