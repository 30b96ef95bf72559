"""The rules of a controller: who is elected, and which in-sync sets are accepted."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from trocket.controller.broker_set import EPOCH_MAX, BrokerSet, Replica
from trocket.controller.rules import (
    Outcome,
    Standing,
    alter_in_sync,
    apply_broker_id,
    clean,
    elect,
    needs_master,
    next_broker_id,
    register,
)
from trocket.remoting.bodies.controller import REPLICA_ID_MAX
from trocket.remoting.response_codes import ResponseCode as Code

REPLICAS = {number: Replica(f"10.0.0.{number}:10911", f"code {number}") for number in (1, 2, 3)}
SET = BrokerSet(
    cluster_name="C",
    broker_name="broker-a",
    replicas=REPLICAS,
    in_sync=frozenset({1, 2}),
    in_sync_epoch=4,
    master_id=1,
    master_epoch=2,
)
NEW = msgspec.structs.replace(
    SET, in_sync=frozenset(), in_sync_epoch=0, master_id=None, master_epoch=0
)
ALL = {number: Standing(2, 100) for number in REPLICAS}


def alive(**standings: Standing) -> dict[int, Standing]:
    return {int(name[1:]): standing for name, standing in standings.items()}


# The in-sync set


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"before": None}, Code.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED),
        ({"wanted": frozenset({1, 2})}, Code.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED),
        ({"master_id": 2}, Code.CONTROLLER_INVALID_MASTER),
        ({"master_epoch": 1}, Code.CONTROLLER_FENCED_MASTER_EPOCH),
        ({"master_epoch": 3}, Code.CONTROLLER_FENCED_MASTER_EPOCH),
        ({"known_epoch": 3}, Code.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH),
        ({"wanted": frozenset({1, 9})}, Code.CONTROLLER_INVALID_REPLICAS),
        ({"alive": {1, 2}}, Code.CONTROLLER_BROKER_NOT_ALIVE),
        ({"wanted": frozenset({2, 3})}, Code.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED),
        ({"wanted": frozenset()}, Code.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED),
        # The order of the reasons is Apache's: brokers read the code.
        ({"master_id": 2, "master_epoch": 1}, Code.CONTROLLER_INVALID_MASTER),
        ({"master_epoch": 1, "known_epoch": 9}, Code.CONTROLLER_FENCED_MASTER_EPOCH),
        ({"known_epoch": 9, "wanted": frozenset({9})}, Code.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH),
        ({"wanted": frozenset({1, 9}), "alive": set()}, Code.CONTROLLER_INVALID_REPLICAS),
    ],
)
def test_an_in_sync_set_is_refused_for_one_reason(changed: dict[str, object], code: Code) -> None:
    given = {
        "before": SET,
        "master_id": 1,
        "master_epoch": 2,
        "wanted": frozenset({1, 2, 3}),
        "known_epoch": 4,
        "alive": {1, 2, 3},
        **changed,
    }
    before = given.pop("before")
    outcome = alter_in_sync(before, **given)  # type: ignore[arg-type]
    assert (outcome.code, outcome.after) == (code, before)
    assert outcome.remark


@pytest.mark.parametrize("wanted", [{1}, {1, 3}, {1, 2, 3}])
def test_a_master_replaces_the_in_sync_set(wanted: set[int]) -> None:
    outcome = alter_in_sync(
        SET,
        master_id=1,
        master_epoch=2,
        wanted=frozenset(wanted),
        known_epoch=4,
        alive={1, 2, 3},
    )
    assert outcome == Outcome(
        msgspec.structs.replace(SET, in_sync=frozenset(wanted), in_sync_epoch=5)
    )


# Elections


def test_the_first_to_ask_is_the_first_master() -> None:
    after = elect(NEW, alive={}, asking_id=2).after
    assert after == msgspec.structs.replace(
        NEW, in_sync=frozenset({2}), in_sync_epoch=1, master_id=2, master_epoch=1
    )
    outcome = elect(NEW, alive=ALL)
    assert (outcome.code, outcome.after) == (Code.CONTROLLER_MASTER_NOT_AVAILABLE, NEW)
    assert not needs_master(NEW, {1, 2})


@pytest.mark.parametrize(
    ("standings", "elected"),
    [
        (alive(_1=Standing(), _2=Standing(9, 9)), 1),  # the master stays
        (alive(_2=Standing(2, 100), _3=Standing(9, 900)), 2),  # 3 lacks confirmed messages
        (alive(_3=Standing(9, 900)), None),
        ({}, None),
    ],
)
def test_only_a_living_member_of_the_in_sync_set_is_elected(
    standings: dict[int, Standing], elected: int | None
) -> None:
    outcome = elect(SET, alive=standings)
    if elected == 1:
        assert outcome == Outcome(SET, Code.CONTROLLER_MASTER_STILL_EXIST, outcome.remark)
    elif elected is None:
        assert outcome.code is Code.CONTROLLER_MASTER_NOT_AVAILABLE
        assert outcome.after == msgspec.structs.replace(SET, master_id=None)
        assert needs_master(SET, standings)
    else:
        assert outcome == Outcome(
            msgspec.structs.replace(
                SET, master_id=2, master_epoch=3, in_sync=frozenset({2}), in_sync_epoch=5
            )
        )


FAR = 2**40


@pytest.mark.parametrize(
    ("first", "second", "elected"),
    [
        (Standing(3, 0), Standing(2, FAR), 2),  # the later epoch
        (Standing(2, 1), Standing(2, 1 + FAR), 3),  # the longer log, by more than 32 bits
        (Standing(2, 5, 1), Standing(2, 5, 0), 3),  # the smaller priority
        (Standing(2, 5), Standing(2, 5), 2),  # equals: the smaller id
        (Standing(-1, 0), Standing(2, 5), 3),
    ],
)
def test_the_one_that_is_farthest_is_elected(
    first: Standing, second: Standing, elected: int
) -> None:
    known = msgspec.structs.replace(SET, in_sync=frozenset({1, 2, 3}))
    for standings in ({2: first, 3: second}, {3: second, 2: first}):
        after = elect(known, alive=standings).after
        assert after is not None
        assert after.master_id == elected


def test_an_administrator_designates_a_member_or_none() -> None:
    after = elect(SET, alive=ALL, designated_id=2).after
    assert after is not None
    assert (after.master_id, after.master_epoch) == (2, 3)
    for other in (3, 9):  # not in sync; not a member
        refused = elect(SET, alive=ALL, designated_id=other)
        assert (refused.code, refused.after) == (Code.CONTROLLER_ELECT_MASTER_FAILED, SET)
    asked = elect(SET, alive=ALL, asking_id=3, designated_id=3)
    assert (asked.code, asked.after) == (Code.CONTROLLER_ELECT_MASTER_FAILED, SET)
    unclean = elect(SET, alive=ALL, designated_id=3, is_unclean=True).after
    assert unclean is not None
    assert (unclean.master_id, unclean.in_sync) == (3, frozenset({3}))


def test_an_unclean_election_is_only_for_a_set_that_has_no_other() -> None:
    after = elect(SET, alive={2: Standing(), 3: Standing(9, 9)}, is_unclean=True).after
    assert after is not None
    assert after.master_id == 2
    after = elect(SET, alive={3: Standing(9, 9)}, is_unclean=True).after
    assert after is not None
    assert after.master_id == 3


def test_who_is_not_registered_elects_none() -> None:
    for before, ids in ((None, {}), (SET, {"asking_id": 9}), (NEW, {"designated_id": 9})):
        outcome = elect(before, alive=ALL, **ids)
        assert outcome.code is Code.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
        assert outcome.after is before


def test_epochs_do_not_leave_their_range() -> None:
    last = msgspec.structs.replace(SET, master_epoch=EPOCH_MAX)
    outcome = elect(last, alive={2: Standing()}, asking_id=2)
    assert (outcome.code, outcome.after) == (Code.CONTROLLER_ELECT_MASTER_FAILED, last)


# Members


def applied(before: BrokerSet | None, broker_id: int, code: str) -> Outcome:
    return apply_broker_id(
        before, cluster_name="C", broker_name="broker-a", broker_id=broker_id, check_code=code
    )


def test_ids_are_given_once_and_again_to_the_same_broker() -> None:
    assert next_broker_id(None) == 1
    assert applied(None, 2, "a").code is Code.CONTROLLER_BROKER_ID_INVALID
    first = applied(None, 1, "a").after
    assert first is not None
    assert next_broker_id(first) == 2
    assert applied(first, 1, "a").after is first
    taken = applied(first, 1, "b")
    assert (taken.code, taken.after) == (Code.CONTROLLER_BROKER_ID_INVALID, first)
    second = applied(first, 2, "b").after
    assert second is not None
    assert (second.replicas.keys(), next_broker_id(second)) == ({1, 2}, 3)
    for broker_id in (0, -1, REPLICA_ID_MAX + 1):
        assert applied(second, broker_id, "c").code is Code.CONTROLLER_BROKER_ID_INVALID


def test_an_address_is_a_value_and_no_identity() -> None:
    moved = register(SET, broker_id=1, address="10.9.9.9:1").after
    assert moved is not None
    assert (moved.master_address, moved.replicas[1].check_code) == ("10.9.9.9:1", "code 1")
    assert register(moved, broker_id=1, address="10.9.9.9:1").after is moved
    for before, broker_id in ((None, 1), (SET, 4)):
        outcome = register(before, broker_id=broker_id, address="x:1")
        assert outcome.code is Code.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
        assert outcome.after is before


@pytest.mark.parametrize(
    ("ids", "living", "with_living", "left"),
    [
        ({3}, {1, 2}, False, {1, 2}),
        ({3}, {1, 2, 3}, False, None),  # alive
        ({3}, {1, 2, 3}, True, {1, 2}),
        ({9}, set(), True, None),  # unknown
        (set(), set(), False, None),  # there is a master
        (set(), {1, 2, 3}, True, set()),
        ({1, 2, 3}, set(), False, set()),
        ({1}, set(), False, {2, 3}),
    ],
)
def test_members_are_forgotten(
    ids: set[int], living: set[int], with_living: bool, left: set[int] | None
) -> None:
    outcome = clean(SET, ids=frozenset(ids), alive=living, with_living=with_living)
    if left is None:
        assert outcome.code is Code.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
        assert outcome.after is SET
    elif not left:
        assert outcome == Outcome(None)
    else:
        assert outcome.after is not None
        assert outcome.after.replicas.keys() == left
        assert outcome.after.in_sync == SET.in_sync & left
        assert outcome.after.master_id == (1 if 1 in left else None)


IDS = st.integers(1, 4)


class AnyRequests(RuleBasedStateMachine):
    """Requests in any order keep what confirmed messages depend on."""

    def __init__(self) -> None:
        super().__init__()
        self.known: BrokerSet | None = None
        self.masters: dict[int, int] = {}  # by epoch

    def take(self, outcome: Outcome) -> None:
        before, self.known = self.known, outcome.after
        after = self.known
        if after is None:
            self.masters = {}
            return
        if before is not None:
            assert after.master_epoch >= before.master_epoch
            assert after.in_sync_epoch >= before.in_sync_epoch
            if after.in_sync != before.in_sync:
                assert after.in_sync_epoch > before.in_sync_epoch
            if after.master_epoch > before.master_epoch > 0:
                assert after.master_id in before.in_sync
        if outcome.code is not Code.SUCCESS and after is not before:
            assert after.master_id is None

    @rule(broker_id=IDS, code=st.sampled_from("ab"))
    def apply(self, broker_id: int, code: str) -> None:
        self.take(applied(self.known, broker_id, code))

    @rule(living=st.dictionaries(IDS, st.builds(Standing, st.integers(-1, 3), st.integers(0, 9))),
          asking=st.none() | IDS, designated=st.none() | IDS)  # fmt: skip
    def elect(
        self, living: dict[int, Standing], asking: int | None, designated: int | None
    ) -> None:
        outcome = elect(self.known, alive=living, asking_id=asking, designated_id=designated)
        self.take(outcome)

    @rule(wanted=st.frozensets(IDS), living=st.frozensets(IDS), is_late=st.booleans())
    def alter(self, wanted: frozenset[int], living: frozenset[int], is_late: bool) -> None:
        known = self.known
        if known is None or known.master_id is None:
            return
        self.take(
            alter_in_sync(
                known,
                master_id=known.master_id,
                master_epoch=known.master_epoch - is_late,
                wanted=wanted,
                known_epoch=known.in_sync_epoch,
                alive=living,
            )
        )

    @rule(ids=st.frozensets(IDS), living=st.frozensets(IDS), with_living=st.booleans())
    def clean(self, ids: frozenset[int], living: frozenset[int], with_living: bool) -> None:
        self.take(clean(self.known, ids=ids, alive=living, with_living=with_living))

    @invariant()
    def an_epoch_has_one_master_which_is_in_sync(self) -> None:
        known = self.known
        if known is None:
            return
        assert known.in_sync <= known.replicas.keys()
        if known.master_id is not None:
            assert known.master_id in known.in_sync
            assert self.masters.setdefault(known.master_epoch, known.master_id) == known.master_id


AnyRequests.TestCase.settings = settings(max_examples=200, stateful_step_count=30, deadline=None)
test_requests_in_any_order = AnyRequests.TestCase
