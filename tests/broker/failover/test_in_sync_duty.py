"""The in-sync set as its master keeps it: what counts while a change is under way."""

from __future__ import annotations

from trocket.broker.failover.in_sync_duty import HOLD_AGAIN_S, HOLD_S, InSyncDuty
from trocket.broker.failover.roles import Follower
from trocket.common.clock import ManualClock
from trocket.store.config import MessageStoreConfig
from trocket.store.writing.in_sync_acks import InSyncAcks


class Master:
    """Number 1 of its set, whose slave is number 2.

    Attributes:
      now_s: the time.
    """

    def __init__(self, *accepted: int) -> None:
        self.now_s = 100.0
        self.followers: dict[int, Follower] = {}
        self.acks = InSyncAcks(
            MessageStoreConfig(), ManualClock(), 1, frozenset({1, *accepted}), set_epoch=5
        )
        self.acks.reach(100)
        self.duty = InSyncDuty(
            self.acks,
            lambda: self.followers,
            own_id=1,
            master_epoch=3,
            epoch_start=0,
            behind_max_s=15.0,
            now_s=lambda: self.now_s,
        )

    def follows(self, offset: int, behind_s: float = 0.0, *, may_join: bool = True) -> None:
        """The slave has acknowledged an offset."""
        self.acks.report(2, offset)
        self.followers[2] = Follower(offset, behind_s, may_join)


def test_a_slave_that_has_all_is_asked_for_and_counts_at_once() -> None:
    master = Master()
    master.follows(100)
    wanted = master.duty.wanted()
    assert wanted == {1, 2}
    master.duty.asked(wanted)
    master.acks.reach(200)
    assert master.acks.confirm_offset == 100
    master.duty.accepted(wanted, 6)
    assert (master.acks.accepted, master.duty.wanted(), master.duty.epoch) == ({1, 2}, None, 6)


def test_what_was_refused_counts_no_longer() -> None:
    master = Master()
    master.follows(100)
    master.duty.asked(frozenset({1, 2}))
    master.acks.reach(200)
    master.duty.refused()
    assert master.acks.confirm_offset == 200


def test_what_was_not_answered_counts_until_the_set_has_changed() -> None:
    """F1: a refusal of a later request says nothing of an earlier one."""
    master = Master()
    master.follows(100)
    master.duty.asked(frozenset({1, 2}))
    master.duty.unanswered(frozenset({1, 2}))
    master.duty.asked(frozenset({1}))
    master.duty.refused()
    assert master.acks.required == {2}
    master.duty.accepted(frozenset({1}), 5)  # the set that is known already
    assert master.acks.required == {2}
    master.duty.accepted(frozenset({1}), 6)
    assert master.acks.required == frozenset()


def test_a_slave_that_is_nearly_there_is_waited_for_and_then_asked_for() -> None:
    master = Master()
    master.follows(90, 0.1)
    assert (master.duty.wanted(), master.duty.is_holding) == (None, True)
    master.acks.reach(200)
    assert master.acks.confirm_offset == 100
    master.follows(100, 0.1)
    assert (master.duty.wanted(), master.duty.is_holding) == ({1, 2}, False)


def test_a_slave_that_does_not_come_is_not_waited_for_again_soon() -> None:
    master = Master()
    master.follows(90, 0.1)
    master.duty.wanted()
    master.acks.reach(200)
    master.now_s += HOLD_S
    assert (master.duty.wanted(), master.acks.confirm_offset) == (None, 200)
    master.acks.reach(300)
    assert (master.duty.wanted(), master.acks.confirm_offset) == (None, 300)
    master.now_s += HOLD_AGAIN_S
    master.duty.wanted()
    assert master.duty.is_holding


def test_neither_a_late_slave_nor_a_learner_is_waited_for() -> None:
    for behind_s, may_join in ((5.0, True), (0.1, False)):
        master = Master()
        master.follows(90, behind_s, may_join=may_join)
        master.duty.wanted()
        assert not master.duty.is_holding


def test_a_lost_member_counts_until_the_controller_has_accepted_the_smaller_set() -> None:
    """F2: otherwise a master that cannot reach its controller confirms alone."""
    master = Master(2)
    wanted = master.duty.wanted()
    assert wanted == {1}
    master.duty.asked(wanted)
    assert (master.acks.required, master.acks.confirm_offset) == ({2}, 0)
    master.duty.accepted(wanted, 6)
    assert master.acks.confirm_offset == 100
