"""Traced memory: a test's own, and no other thread's."""

from __future__ import annotations

import threading

from .traced_memory import traced_memory


def test_only_the_memory_of_the_test_is_counted() -> None:
    others: list[bytes] = []
    started, stopped = threading.Event(), threading.Event()

    def allocate() -> None:
        while not stopped.is_set():
            others.append(bytes(10_000))
            started.set()
            stopped.wait(0.000_01)

    thread = threading.Thread(target=allocate)
    thread.start()
    started.wait()
    try:
        with traced_memory() as size:
            before = size()
            kept = [bytes(10) for _ in range(100_000)]
            assert 4_000_000 < size() - before < 6_000_000
            kept.clear()
            assert size() - before < 100_000
    finally:
        stopped.set()
        thread.join()
    assert others
