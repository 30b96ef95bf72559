"""The table of roles, and the in-sync set that a master asks for."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trocket.broker.failover.roles import (
    ACTIONS,
    Action,
    Event,
    Follower,
    Place,
    Role,
    SetView,
    event_of,
    place_after,
    wanted_in_sync,
)

OWN, OTHER = 1, 2
HERE, THERE = "10.0.0.1:10911", "10.0.0.2:10911"


def view(epoch: int, master: int | None, address: str = "") -> SetView:
    where = {OWN: HERE, OTHER: THERE, None: ""}[master]
    return SetView(master, address or where, epoch, frozenset({master or OWN}), epoch)


WAITING = Place(Role.WAITING, 4)
MASTER = Place(Role.MASTER, 4, OWN, HERE)
SLAVE = Place(Role.SLAVE, 4, OTHER, THERE)


def test_each_role_has_an_action_for_each_event() -> None:
    assert set(ACTIONS) == set(itertools.product(Role, Event))


@pytest.mark.parametrize(
    ("place", "seen", "event", "action"),
    [
        (WAITING, view(4, OWN), Event.ELECTED, Action.BECOME_MASTER),
        (WAITING, view(4, OTHER), Event.FOLLOWS, Action.BECOME_SLAVE),
        (WAITING, view(5, None), Event.MASTERLESS, Action.ASK_FOR_ELECTION),
        (WAITING, view(3, OWN), Event.OLDER, Action.IGNORE),
        (MASTER, view(4, OWN), Event.SAME, Action.TAKE_SET),
        (MASTER, view(5, OWN), Event.ELECTED, Action.BECOME_MASTER),
        (MASTER, view(5, OTHER), Event.FOLLOWS, Action.BECOME_SLAVE),
        (MASTER, view(3, OTHER), Event.OLDER, Action.IGNORE),
        (MASTER, view(4, None), Event.MASTERLESS, Action.ASK_FOR_ELECTION),
        (SLAVE, view(4, OTHER), Event.SAME, Action.IGNORE),
        (SLAVE, view(4, OTHER, "10.0.0.9:10911"), Event.FOLLOWS, Action.BECOME_SLAVE),
        (SLAVE, view(5, OWN), Event.ELECTED, Action.BECOME_MASTER),
        (SLAVE, view(4, OWN), Event.OLDER, Action.IGNORE),
        (SLAVE, view(3, OWN), Event.OLDER, Action.IGNORE),
    ],
)
def test_a_view_is_compared_with_the_place(
    place: Place, seen: SetView, event: Event, action: Action
) -> None:
    assert event_of(seen, place, OWN) is event
    assert ACTIONS[place.role, event] is action


@given(
    st.lists(
        st.tuples(st.integers(0, 6), st.sampled_from([OWN, OTHER, None])), min_size=1, max_size=20
    )
)
def test_epochs_never_fall_and_no_epoch_is_mastered_by_a_slave_of_it(
    seen: list[tuple[int, int | None]],
) -> None:
    place = Place(Role.WAITING, 0)
    for epoch, master in seen:
        action = ACTIONS[place.role, event_of(view(epoch, master), place, OWN)]
        after = place_after(action, view(epoch, master), place)
        assert after.epoch >= place.epoch
        if after.epoch == place.epoch and place.role is Role.SLAVE:
            assert after.role is Role.SLAVE
        place = after


def wanted(accepted: set[int], followers: dict[int, Follower]) -> frozenset[int]:
    return wanted_in_sync(
        frozenset(accepted),
        followers,
        own_id=1,
        confirm_offset=100,
        epoch_start=40,
        behind_max_s=15.0,
    )


@pytest.mark.parametrize(
    ("accepted", "followers", "expected"),
    [
        ({1}, {}, {1}),
        ({1}, {2: Follower(100, 0.0)}, {1, 2}),
        ({1}, {2: Follower(99, 0.0)}, {1}),  # it lacks a confirmed byte
        ({1}, {2: Follower(100, 0.0, may_join=False)}, {1}),
        ({1, 2}, {2: Follower(50, 15.0)}, {1, 2}),  # late, and not for too long
        ({1, 2}, {2: Follower(50, 15.1)}, {1}),
        ({1, 2}, {}, {1}),  # its connection has ended
        ({1, 2, 3}, {3: Follower(100, 0.0)}, {1, 3}),
    ],
)
def test_the_in_sync_set_is_who_has_all_that_is_confirmed(
    accepted: set[int], followers: dict[int, Follower], expected: set[int]
) -> None:
    assert wanted(accepted, followers) == expected


def test_a_slave_joins_only_within_the_epoch_of_its_master() -> None:
    found = wanted_in_sync(
        frozenset({1}),
        {2: Follower(40, 0.0), 3: Follower(39, 0.0)},
        own_id=1,
        confirm_offset=0,
        epoch_start=40,
        behind_max_s=15.0,
    )
    assert found == {1, 2}
