"""The simulated disks let table and log fail together: a table that alone fails was never met.

Random runs in which only the tables' saves fail, and two brokers that break the promise again.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable

import pytest
import trio
import trio.testing

from trocket.broker.tables.table_loading import TableLoader
from trocket.broker.tables.topic_config_manager import TopicConfigManager
from trocket.disk.state_files import StateFiles
from trocket.store.queues.deleted_topics import DeletedTopics

from .table_saves import Broken, Play

RUNS = int(os.environ.get("TROCKET_TABLE_RUNS", "3"))
FIRST_SEED = int(os.environ.get("TROCKET_TABLE_SEED", random.randrange(1_000_000)))
MUTANT_SEEDS = range(60)


def play(seed: int) -> str:
    """What is found to be broken; "": nothing is."""
    clock = trio.testing.MockClock(autojump_threshold=0)
    problem = ""
    try:
        trio.run(Play(seed).run, 4, 30, clock=clock)
    except* Broken as broken:
        problem = str(_first(broken))
    return problem


def _first(error: BaseException) -> BaseException:
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


def put_saves_off(patch: pytest.MonkeyPatch) -> None:
    """As on a real disk, but in the event loop: the run is the same each time."""
    patch.setattr(StateFiles, "may_put_off", property(lambda self: True))


def without_restoring(patch: pytest.MonkeyPatch) -> None:
    """What was answered must be in the tables, and not only made again from the queues."""
    patch.setattr(TableLoader, "_restore_topics", lambda self, store: None)


@pytest.mark.slow
@pytest.mark.parametrize("is_put_off", [False, True])
@pytest.mark.parametrize("restores", [False, True])
def test_tables_that_cannot_be_saved_lose_nothing_that_was_answered(
    is_put_off: bool, restores: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_put_off:
        put_saves_off(monkeypatch)
    if not restores:
        without_restoring(monkeypatch)
    for seed in range(FIRST_SEED, FIRST_SEED + RUNS):
        print(f"TROCKET_TABLE_SEED={seed} TROCKET_TABLE_RUNS=1")
        assert play(seed) == ""


def new_topics_count_at_once(patch: pytest.MonkeyPatch) -> None:
    """A new topic takes messages before it is saved."""
    stage = TopicConfigManager._stage

    def broken(self: TopicConfigManager, topics: list) -> None:
        new = [each for each in topics if each.topic_name not in self.topic_config_table]
        if new:
            self._put(new)
        stage(self, [each for each in topics if each not in new])

    patch.setattr(TopicConfigManager, "_stage", broken)


def deletions_are_not_noted(patch: pytest.MonkeyPatch) -> None:
    """Recovery builds the queues of a deleted topic again, and nothing says that it was deleted."""
    patch.setattr(DeletedTopics, "add", lambda self, topics, log_end: None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mutant", "restores", "promise"),
    [(new_topics_count_at_once, False, "lost"), (deletions_are_not_noted, True, "was deleted")],
)
def test_a_broker_that_breaks_the_promise_is_found_out(
    mutant: Callable[[pytest.MonkeyPatch], None],
    restores: bool,
    promise: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put_saves_off(monkeypatch)
    if not restores:
        without_restoring(monkeypatch)
    mutant(monkeypatch)
    assert any(promise in play(seed) for seed in MUTANT_SEEDS)
