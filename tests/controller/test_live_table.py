"""The table of heartbeats: who is alive, until when, and by which connection."""

from __future__ import annotations

import pytest

from trocket.controller.broker_set import BrokerSet, Replica
from trocket.controller.live_table import TIMEOUT_S, TIMEOUT_S_MIN, Heartbeat, LiveTable, Member
from trocket.controller.rules import Standing

SET = BrokerSet(cluster_name="C", broker_name="a", replicas={1: Replica("h:1"), 2: Replica("h:2")})
ONE, TWO = Member("C", "a", 1), Member("C", "a", 2)


def alive(table: LiveTable, now_s: float) -> set[int]:
    return set(table.alive(SET, now_s))


def test_a_member_is_alive_for_the_time_that_it_states() -> None:
    table = LiveTable()
    table.beat(ONE, Heartbeat(timeout_s=2), 100)
    table.beat(TWO, Heartbeat(), 100)
    assert table.next_expiry_s() == 102
    assert alive(table, 101.9) == {1, 2}
    assert alive(table, 102) == {2}
    assert table.expire(102) == {ONE}
    assert table.last(ONE) is None
    assert table.next_expiry_s() == 100 + TIMEOUT_S
    assert table.expire(100 + TIMEOUT_S) == {TWO}
    assert table.next_expiry_s() is None
    assert len(table) == 0


@pytest.mark.parametrize("timeout_s", [-(2.0**60), -1, 0, 0.01])
def test_a_time_out_has_a_least_value(timeout_s: float) -> None:
    table = LiveTable()
    assert table.beat(ONE, Heartbeat(timeout_s=timeout_s), 100) == 100 + TIMEOUT_S_MIN


def test_the_last_heartbeat_counts_also_if_it_has_less() -> None:
    table = LiveTable()
    table.beat(ONE, Heartbeat(Standing(5, 1_000)), 100)
    table.beat(ONE, Heartbeat(Standing(4, 10)), 101)
    assert table.alive(SET, 102) == {1: Standing(4, 10)}


def test_only_the_connection_of_the_last_heartbeat_has_the_member() -> None:
    table = LiveTable()
    old, new = object(), object()
    table.beat(ONE, Heartbeat(connection=old), 100)
    table.beat(TWO, Heartbeat(connection=old), 100)
    assert table.members_of(old) == {ONE, TWO}
    table.beat(ONE, Heartbeat(connection=new), 101)
    assert (table.members_of(old), table.members_of(new)) == ({TWO}, {ONE})
    table.forget(TWO)
    assert table.members_of(old) == frozenset()


def test_members_that_were_not_heard_get_one_time_out() -> None:
    table = LiveTable()
    table.beat(ONE, Heartbeat(timeout_s=30), 95)
    table.expect([SET], 100)
    assert table.next_expiry_s() == 100 + TIMEOUT_S
    assert alive(table, 109) == {1, 2}
    assert alive(table, 111) == {1}


def test_time_in_which_this_process_stood_still_does_not_count() -> None:
    table = LiveTable()
    table.beat(ONE, Heartbeat(timeout_s=2), 100)
    table.allow(60)
    assert alive(table, 161) == {1}
    assert alive(table, 162) == set()


def test_many_short_pauses_add_at_most_one_time_out() -> None:
    table = LiveTable()
    table.beat(ONE, Heartbeat(timeout_s=2), 100)
    for _ in range(100):
        table.allow(0.6)
    assert table.next_expiry_s() == pytest.approx(104)
    table.allow(60)  # one that is longer counts whole
    assert table.next_expiry_s() == pytest.approx(162)
    table.beat(ONE, Heartbeat(timeout_s=2), 160)
    assert table.next_expiry_s() == 162


def test_heartbeats_of_another_cluster_are_not_of_the_set() -> None:
    table = LiveTable()
    table.beat(Member("D", "a", 1), Heartbeat(), 100)
    assert alive(table, 101) == set()
    assert table.alive(None, 101) == {}


def test_members_that_a_set_does_not_have_any_more_are_forgotten() -> None:
    table = LiveTable()
    for member in (ONE, TWO, Member("D", "a", 1), Member("C", "b", 1)):
        table.beat(member, Heartbeat(), 100)
    table.keep(SET.without_replicas(frozenset({2})), "a")
    assert table.expire(1_000) == {ONE, Member("C", "b", 1)}
    table.beat(ONE, Heartbeat(), 100)
    table.keep(None, "a")
    assert len(table) == 0
