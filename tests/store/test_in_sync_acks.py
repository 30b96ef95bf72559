"""Sends of controller mode: confirmed by every member that may be elected, and by no fewer."""

from __future__ import annotations

import pytest
import trio
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from trocket.common.clock import ManualClock
from trocket.store.config import MessageStoreConfig
from trocket.store.status import PutMessageStatus
from trocket.store.writing.in_sync_acks import ConfirmedCopy, InSyncAcks

from .support import TrioClock

OK = PutMessageStatus.PUT_OK
TIMEOUT = PutMessageStatus.FLUSH_SLAVE_TIMEOUT
NOT_ENOUGH = PutMessageStatus.IN_SYNC_REPLICAS_NOT_ENOUGH
ME = 1


class Lease:
    """A lease that a test gives and takes."""

    def __init__(self) -> None:
        self.holds = True

    def __call__(self) -> bool:
        return self.holds


def acks(*members, lease=None, clock=None, **changes):
    config = MessageStoreConfig()
    for name, value in changes.items():
        setattr(config, name, value)
    return InSyncAcks(
        config,
        clock or ManualClock(),
        ME,
        frozenset({ME, *members}),
        may_confirm=lease or Lease(),
    )


def sent(state, physical_offset):
    outcomes = []
    state.wait(physical_offset, outcomes.append)
    return outcomes


def test_a_lone_master_confirms_what_it_has():
    state = acks()
    confirmed = []
    state.on_confirmed = confirmed.append
    waiting = sent(state, 0)
    state.reach(100)
    assert (waiting, confirmed, state.confirm_offset) == ([OK], [100], 100)
    assert sent(state, 99) == [OK]
    assert sent(state, 100) == []


def test_every_member_of_the_set_is_waited_for():
    state = acks(2, 3)
    state.reach(100)
    first, last = sent(state, 0), sent(state, 99)
    state.report(2, 100)
    assert (first, state.confirm_offset) == ([], 0)
    state.report(3, 50)
    assert (first, last, state.confirm_offset) == ([OK], [], 50)
    state.report(3, 100)
    assert (last, state.confirm_offset) == ([OK], 100)


def test_what_a_slave_has_and_its_master_has_not_synced_is_not_confirmed():
    state = acks(2)
    state.reach(10)
    state.report(2, 100)
    assert state.confirm_offset == 10


def test_a_member_that_is_away_stays_in_the_set_until_the_controller_says_so():
    """F2: 5.5.0 takes it out at once, and confirms alone."""
    state = acks(2)
    state.report(2, 0)
    state.forget(2)
    state.reach(100)
    waiting = sent(state, 0)
    state.count_too(frozenset({ME}))
    assert waiting == []
    state.accept(frozenset({ME}), 1)
    assert waiting == [OK]


def test_a_member_that_is_requested_counts_before_the_controller_has_answered():
    """F1: the answer may be lost, and the member elected."""
    state = acks()
    state.report(2, 0)
    state.count_too(frozenset({ME, 2}))
    state.reach(100)
    waiting = sent(state, 0)
    assert waiting == []
    state.report(2, 100)
    assert waiting == [OK]


def test_a_refused_change_ends():
    state = acks()
    state.report(2, 0)
    state.count_too(frozenset({ME, 2}))
    state.reach(100)
    waiting = sent(state, 0)
    state.count_too(frozenset())
    assert (waiting, state.requested) == ([OK], frozenset())


def test_an_answer_with_the_set_that_is_known_ends_no_change():
    """A request that is late may still be accepted, for the set has its number."""
    state = acks()
    state.report(2, 0)
    state.count_too(frozenset({ME, 2}))
    state.accept(frozenset({ME}), 0)
    state.reach(100)
    assert sent(state, 0) == []
    state.accept(frozenset({ME, 3}), 1)
    assert (state.accepted, state.requested) == ({ME, 3}, frozenset())
    state.accept(frozenset({ME}), 0)
    assert state.accepted == {ME, 3}


def test_a_slave_that_is_nearly_there_is_waited_for():
    """Under a steady load it would never have all that is confirmed."""
    state = acks()
    state.reach(100)
    state.report(2, 90)
    state.count_too(frozenset({2}))
    state.reach(200)
    assert state.confirm_offset == 100
    state.report(2, 100)
    state.count_too(frozenset())
    assert state.confirm_offset == 200


def test_a_deposed_master_answers_nothing_that_it_cannot_confirm():
    state = acks(2)
    state.report(2, 50)
    state.reach(100)
    confirmed, waiting = sent(state, 49), sent(state, 60)
    state.depose()
    state.report(2, 100)
    assert (confirmed, waiting, sent(state, 70), state.confirm_offset) == ([OK], [], [], 50)


def test_impossible_sets_are_refused():
    state = acks(2)
    with pytest.raises(ValueError, match="lacks its master"):
        state.accept(frozenset({2}), 1)
    with pytest.raises(ValueError, match="lacks its master"):
        InSyncAcks(MessageStoreConfig(), ManualClock(), ME, frozenset({2}))


def test_nothing_is_confirmed_without_the_lease():
    """F3."""
    lease = Lease()
    state = acks(lease=lease)
    lease.holds = False
    state.reach(100)
    waiting = sent(state, 0)
    assert (waiting, state.confirm_offset) == ([], 0)
    lease.holds = True
    state.confirm()
    assert (waiting, state.confirm_offset) == ([OK], 100)


async def test_a_send_without_the_lease_ends_in_time(autojump_clock):
    lease = Lease()
    state = acks(lease=lease, clock=TrioClock())
    lease.holds = False
    state.reach(100)
    waiting = sent(state, 0)
    with trio.move_on_after(3.1):
        await state.expire()
    assert waiting == [TIMEOUT]


def test_waiting_sends_can_be_failed():
    state = acks(2)
    waiting = sent(state, 0)
    state.fail(PutMessageStatus.FLUSH_DISK_TIMEOUT)
    assert waiting == [PutMessageStatus.FLUSH_DISK_TIMEOUT]


@pytest.mark.parametrize(("replicas", "acked"), [(1, 100), (2, 70), (3, 40)])
def test_without_all_ack_as_many_members_as_configured_are_waited_for(replicas, acked):
    state = acks(2, 3, all_ack_in_sync_state_set=False, in_sync_replicas=replicas)
    state.report(2, 40)
    state.report(3, 70)
    state.report(9, 1000)  # no member
    state.reach(100)
    assert (state.acked_offset, state.confirm_offset) == (acked, 100)


@pytest.mark.parametrize(
    ("members", "changes", "is_refused"),
    [
        ((), {}, False),
        ((), {"min_in_sync_replicas": 2}, True),
        ((2,), {"min_in_sync_replicas": 2}, False),
        ((), {"in_sync_replicas": 2}, False),
        ((), {"in_sync_replicas": 2, "all_ack_in_sync_state_set": False}, True),
        ((2,), {"in_sync_replicas": 2, "all_ack_in_sync_state_set": False}, False),
    ],
)
def test_a_set_that_is_too_small_takes_no_sends_of_clients(members, changes, is_refused):
    refusal = acks(*members, **changes).refusal()
    assert (refusal is not None and refusal.status is NOT_ENOUGH) == is_refused


def test_a_requested_member_does_not_make_the_set_large_enough():
    state = acks(min_in_sync_replicas=2)
    state.report(2, 0)
    state.count_too(frozenset({ME, 2}))
    assert state.refusal() is not None
    state.accept(frozenset({ME, 2}), 1)
    assert state.refusal() is None


def test_a_slave_shows_what_its_master_has_confirmed_and_what_it_has():
    copy, seen = ConfirmedCopy(), []
    copy.on_confirmed = seen.append
    copy.start_at(10)
    copy.reach(100)
    assert copy.confirm_offset == 10
    copy.confirmed(50)
    copy.confirmed(20)  # of a new master, which knows less for now
    copy.confirmed(200)
    copy.reach(150)
    assert seen == [50, 100, 150]


members = st.frozensets(st.sampled_from([2, 3, 4]))


class Confirming(RuleBasedStateMachine):
    """A master, its controller and its members, whatever comes in whatever order."""

    @initialize(others=members)
    def begin(self, others):
        """The controller has a set, and the master was elected."""
        self.lease = Lease()
        self.state = acks(*others, lease=self.lease)
        self.accepted = frozenset({ME, *others})
        self.requested = frozenset()
        self.epoch, self.own_end, self.next_send = 0, 0, 0
        self.has = dict.fromkeys((2, 3, 4), 0)
        self.confirmed = 0

    def electable_have(self, offset):
        """Whether every member that may be elected has the log up to an offset."""
        others = (self.accepted | self.requested) - {ME}
        return all(self.has[each] >= offset for each in others) and self.own_end >= offset

    @rule(size=st.integers(1, 50))
    def send(self, size):
        """A send arrives; its answer is checked when it is given."""
        start, end = self.next_send, self.next_send + size
        self.next_send = end

        def answer(status):
            assert status is OK
            assert self.lease.holds
            # The record begins before the offset that all have; commits are reported whole.
            assert self.electable_have(start + 1)

        self.state.wait(start, answer)

    @rule()
    def synced(self):
        """The master has the log on its device."""
        self.own_end = self.next_send
        self.state.reach(self.own_end)

    @rule(member=st.sampled_from([2, 3, 4]), share=st.floats(0, 1))
    def report(self, member, share):
        """A slave reports more, or the same again."""
        offset = self.has[member] + int((self.next_send - self.has[member]) * share)
        self.has[member] = offset
        self.state.report(member, offset)

    @rule(member=st.sampled_from([2, 3, 4]))
    def leave(self, member):
        """A connection ends."""
        self.state.forget(member)

    @precondition(lambda self: not self.requested)
    @rule(others=members)
    def request(self, others):
        """The master asks for a set with members that may join."""
        known = {
            each for each in others if each in self.accepted or self.has[each] >= self.confirmed
        }
        self.requested = frozenset({ME, *known})
        self.state.count_too(self.requested)

    @rule(others=members)
    def hold(self, others):
        """The master waits for slaves that are nearly there."""
        self.state.count_too(self.requested | others)

    @rule(is_accepted=st.booleans())
    def answer_request(self, is_accepted):
        """The controller answers, or another of its answers tells of the set."""
        if is_accepted and self.requested:
            self.accepted, self.requested = self.requested, frozenset()
            self.epoch += 1
        self.state.accept(self.accepted, self.epoch)

    @precondition(lambda self: self.requested)
    @rule()
    def refuse(self):
        """The controller has refused."""
        self.requested = frozenset()
        self.state.count_too(frozenset())

    @rule(holds=st.booleans())
    def renew(self, holds):
        """The lease ends, or is renewed."""
        self.lease.holds = holds
        self.state.confirm()

    @invariant()
    def what_is_confirmed_stays(self):
        """The confirm offset never falls, and all that may be elected have what it covers."""
        confirmed = self.state.confirm_offset
        assert confirmed >= self.confirmed
        assert self.electable_have(confirmed)
        self.confirmed = confirmed


TestConfirming = Confirming.TestCase
TestConfirming.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
