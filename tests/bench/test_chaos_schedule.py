"""The faults of a chaos run are those of its seed, and each kind has its turn."""

from __future__ import annotations

from itertools import islice

import pytest

from trocket.bench.chaos_faults import ACTS
from trocket.bench.chaos_report import KILLS
from trocket.bench.chaos_schedule import KINDS, PAUSE_S, Planned, schedule

CLIENTS = ["java", "go"]


def first(count: int, seed: int = 1, **options: bool) -> list[Planned]:
    return list(islice(schedule(seed, CLIENTS, **options), count))


def test_a_seed_has_one_schedule() -> None:
    assert first(100, seed=7) == first(100, seed=7)
    assert first(100, seed=7) != first(100, seed=8)


def test_a_run_begins_with_a_failover_and_has_each_kind_before_any_comes_again() -> None:
    planned = first(2 * len(KINDS))
    assert planned[0].kind == "kill-master"
    for half in (planned[: len(KINDS)], planned[len(KINDS) :]):
        assert sorted(fault.kind for fault in half) == sorted(KINDS)


def test_lengths_and_pauses_are_within_their_spans() -> None:
    for fault in first(300):
        low_s, high_s = KINDS[fault.kind].for_s
        assert low_s <= fault.for_s <= high_s
        assert PAUSE_S[0] <= fault.after_s <= PAUSE_S[1]


def test_faults_of_clients_name_one_that_can_have_them() -> None:
    targets = {fault.kind: set[str]() for fault in first(2000) if KINDS[fault.kind].roles}
    for fault in first(2000):
        if fault.kind in targets:
            targets[fault.kind].add(fault.target)
    assert targets["kill-producer"] == {"send-java", "send-go"}
    assert targets["join-group"] == {"take-java", "take-go"}


def test_without_apache_or_clients_their_faults_are_left_out() -> None:
    assert "apache-takes-over" not in {fault.kind for fault in first(100, with_apache=False)}
    alone = {fault.kind for fault in islice(schedule(1, []), 100)}
    assert alone == {name for name, kind in KINDS.items() if not kind.roles}


def test_a_kind_that_is_unknown_is_named() -> None:
    with pytest.raises(ValueError, match="'kill-all' is none of kill-master, "):
        schedule(1, CLIENTS, ["kill-master", "kill-all"])


def test_a_schedule_without_faults_is_refused() -> None:
    with pytest.raises(ValueError, match="no kind of fault"):
        schedule(1, CLIENTS, ["apache-takes-over"], with_apache=False)


def test_each_kind_has_an_act_and_each_kill_is_counted() -> None:
    assert ACTS.keys() == KINDS.keys()
    assert KILLS.keys() <= KINDS.keys()
    assert {kind for kind in KINDS if kind.startswith("kill-")} <= KILLS.keys()
