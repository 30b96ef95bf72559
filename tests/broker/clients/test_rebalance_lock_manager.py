"""Locks of queues."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from trocket.broker.clients.rebalance_lock_manager import LOCK_EXPIRED_S, RebalanceLockManager
from trocket.common.steps import STEP_ITEMS, at_once
from trocket.remoting.bodies import MessageQueue

Q = [MessageQueue("T", "broker-a", queue_id) for queue_id in range(4)]


def test_a_locked_queue_is_its_holders_alone():
    locks = RebalanceLockManager()
    assert locks.try_lock_batch("g", Q[:2], "c1", now_s=0) == Q[:2]
    assert locks.try_lock_batch("g", Q[:3], "c2", now_s=1) == [Q[2]]
    assert locks.try_lock_batch("g", Q[:3], "c1", now_s=2) == Q[:2]


def test_groups_do_not_know_each_others_locks():
    locks = RebalanceLockManager()
    locks.try_lock_batch("g", Q, "c1", now_s=0)
    assert locks.try_lock_batch("h", Q, "c2", now_s=0) == Q


def test_a_lock_that_is_not_renewed_for_60_s_is_anybodys():
    locks = RebalanceLockManager()
    locks.try_lock_batch("g", Q[:2], "c1", now_s=0)
    locks.try_lock_batch("g", Q[:1], "c1", now_s=50)
    assert locks.try_lock_batch("g", Q[:2], "c2", now_s=LOCK_EXPIRED_S) == []
    assert locks.try_lock_batch("g", Q[:2], "c2", now_s=LOCK_EXPIRED_S + 0.1) == [Q[1]]
    assert locks.try_lock_batch("g", Q[:2], "c2", now_s=50 + LOCK_EXPIRED_S + 0.1) == Q[:2]


def test_a_queue_asked_for_twice_is_held_once():
    locks = RebalanceLockManager()
    assert locks.try_lock_batch("g", [Q[0], Q[0]], "c1", now_s=0) == [Q[0]]
    assert len(locks) == 1


def test_only_the_holder_unlocks():
    locks = RebalanceLockManager()
    locks.try_lock_batch("g", Q[:2], "c1", now_s=0)
    locks.unlock_batch("g", Q, "c2")
    locks.unlock_batch("nobody", Q, "c1")
    assert len(locks) == 2
    locks.unlock_batch("g", Q, "c1")
    assert len(locks) == 0
    assert locks.try_lock_batch("g", Q, "c2", now_s=0) == Q


def test_a_group_without_locks_is_all_expired():
    locks = RebalanceLockManager()
    assert locks.is_all_expired("g", now_s=0)
    locks.try_lock_batch("g", Q[:1], "c1", now_s=0)
    assert not locks.is_all_expired("g", now_s=LOCK_EXPIRED_S)
    assert locks.is_all_expired("g", now_s=LOCK_EXPIRED_S + 1)


def test_the_number_of_locks_is_bounded_and_expired_ones_make_room():
    locks = RebalanceLockManager(locks_max=2)
    assert locks.try_lock_batch("g", Q, "c1", now_s=0) == Q[:2]
    assert locks.try_lock_batch("h", Q[:1], "c1", now_s=LOCK_EXPIRED_S) == []
    assert locks.try_lock_batch("h", Q[:1], "c1", now_s=LOCK_EXPIRED_S + 1) == Q[:1]
    assert len(locks) == 1


def test_the_removal_of_many_locks_pauses_and_spares_those_that_change_meanwhile():
    locks = RebalanceLockManager()
    many = [MessageQueue("T", "broker-a", queue_id) for queue_id in range(2 * STEP_ITEMS)]
    locks.try_lock_batch("g", many, "c1", now_s=0)
    steps = locks.remove_expired(now_s=LOCK_EXPIRED_S + 1)
    next(steps)
    assert len(locks) == STEP_ITEMS
    locks.try_lock_batch("g", many[-1:], "c1", now_s=LOCK_EXPIRED_S + 1)  # renewed
    locks.unlock_batch("g", many[-2:-1], "c1")
    assert at_once(steps) == 2 * STEP_ITEMS - 2
    assert len(locks) == 1
    assert locks.try_lock_batch("g", many, "c2", now_s=LOCK_EXPIRED_S + 1) == many[:-1]


def test_an_empty_wish_leaves_nothing_behind():
    locks = RebalanceLockManager()
    assert locks.try_lock_batch("g", [], "c1", now_s=0) == []
    assert locks._groups == {}


clients = st.sampled_from(["c1", "c2", "c3"])
groups = st.sampled_from(["g", "h"])
queues = st.lists(st.sampled_from(Q), max_size=4)


class LockMachine(RuleBasedStateMachine):
    """The locks against (holder, time of renewal) by group and queue."""

    def __init__(self):
        super().__init__()
        self.locks = RebalanceLockManager()
        self.now_s = 0.0
        self.model = {}

    @rule(group=groups, client_id=clients, wanted=queues)
    def lock(self, group, client_id, wanted):
        expected = []
        for queue in dict.fromkeys(wanted):
            holder, renewed_s = self.model.get((group, queue), (client_id, self.now_s))
            if holder == client_id or self.now_s - renewed_s > LOCK_EXPIRED_S:
                self.model[group, queue] = (client_id, self.now_s)
                expected.append(queue)
        got = self.locks.try_lock_batch(group, wanted, client_id, now_s=self.now_s)
        assert got == expected

    @rule(group=groups, client_id=clients, wanted=queues)
    def unlock(self, group, client_id, wanted):
        for queue in wanted:
            if self.model.get((group, queue), ("", 0))[0] == client_id:
                del self.model[group, queue]
        self.locks.unlock_batch(group, wanted, client_id)

    @rule(seconds=st.sampled_from([1, 20, 59, 60, 61]))
    def wait(self, seconds):
        self.now_s += seconds

    @rule()
    def sweep(self):
        before = len(self.model)
        self.model = {
            key: lock for key, lock in self.model.items() if self.now_s - lock[1] <= LOCK_EXPIRED_S
        }
        assert at_once(self.locks.remove_expired(now_s=self.now_s)) == before - len(self.model)

    @invariant()
    def there_are_as_many_locks_as_in_the_model(self):
        assert len(self.locks) == len(self.model)
        assert len(self.locks) == sum(map(len, self.locks._groups.values()))


TestLocks = LockMachine.TestCase
TestLocks.settings = settings(max_examples=50, stateful_step_count=25, deadline=None)
TestLocks = pytest.mark.slow(TestLocks)
