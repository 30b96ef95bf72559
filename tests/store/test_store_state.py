"""The states of a store: every event in every state."""

from __future__ import annotations

import logging
from itertools import product

import pytest

from trocket.store.config import BrokerRole
from trocket.store.status import PutMessageStatus, PutRefusal
from trocket.store.store_state import (
    FACTS,
    TRANSITIONS,
    StoreEvent,
    StoreMode,
    StoreState,
)

from .support import open_store, put, send

S, E = StoreState, StoreEvent

READ_ONLY = {S.FAILED, S.LOCK_LOST, S.HOLE, S.UNWRITABLE}
OPEN = set(S) - {S.CLOSED}

EXPECTED = {
    **{(state, event): state for state, event in product(S, E)},
    (S.CLOSED, E.LOADED): S.OPEN,
    (S.CLOSED, E.LOADED_AS_SLAVE): S.SLAVE,
    (S.CLOSED, E.HOLE_FOUND): S.HOLE,
    (S.CLOSED, E.CANNOT_WRITE): S.UNWRITABLE,
    (S.OPEN, E.DISK_FULL): S.FULL,
    (S.FULL, E.DISK_HAS_ROOM): S.OPEN,
    (S.SLAVE, E.DISK_FULL): S.SLAVE_FULL,
    (S.SLAVE_FULL, E.DISK_HAS_ROOM): S.SLAVE,
    **{(state, E.WRITE_FAILED): S.FAILED for state in OPEN - READ_ONLY},
    **{(state, E.LOCK_TAKEN): S.LOCK_LOST for state in OPEN - READ_ONLY},
    **{(state, E.CLOSED): S.CLOSED for state in OPEN},
}
"""Written out by another rule than the table: what is not named here changes nothing."""


def mode_in(state):
    """A mode that was led to a state by its shortest way."""
    ways = {
        S.CLOSED: [],
        S.OPEN: [E.LOADED],
        S.FULL: [E.LOADED, E.DISK_FULL],
        S.SLAVE: [E.LOADED_AS_SLAVE],
        S.SLAVE_FULL: [E.LOADED_AS_SLAVE, E.DISK_FULL],
        S.FAILED: [E.LOADED, E.WRITE_FAILED],
        S.LOCK_LOST: [E.LOADED, E.LOCK_TAKEN],
        S.HOLE: [E.HOLE_FOUND],
        S.UNWRITABLE: [E.CANNOT_WRITE],
    }
    mode = StoreMode()
    for event in ways[state]:
        mode.apply(event, "first")
    assert mode.state is state
    return mode


def test_every_state_has_its_facts_and_its_row():
    assert set(FACTS) == set(TRANSITIONS) == set(S)


@pytest.mark.parametrize(("state", "event"), list(product(S, E)), ids=lambda each: each.name)
def test_each_event_in_each_state_leads_to_one_state(state, event):
    mode = mode_in(state)
    expected = EXPECTED[state, event]
    assert mode.apply(event, "second") is (expected is not state)
    assert mode.state is expected


@pytest.mark.parametrize("state", list(S), ids=lambda state: state.name)
def test_a_store_says_why_it_takes_no_put(state):
    mode = mode_in(state)
    assert bool(mode.remark) is not mode.takes_puts
    assert mode.takes_puts is (state is S.OPEN)
    assert bool(mode.trouble) is (state not in (S.CLOSED, S.OPEN, S.SLAVE))
    assert mode.is_read_only is (state in READ_ONLY)
    if mode.trouble:
        assert "first" in mode.remark


@pytest.mark.parametrize("state", sorted(READ_ONLY, key=str), ids=lambda state: state.name)
def test_the_first_failure_is_the_one_that_is_reported(state):
    mode = mode_in(state)
    for event in set(E) - {E.CLOSED}:
        mode.apply(event, "second")
    assert "first" in mode.remark


@pytest.mark.parametrize("state", [S.FULL, S.SLAVE_FULL], ids=lambda state: state.name)
def test_the_newest_reason_of_a_full_disk_is_the_one_that_is_reported(state):
    mode = mode_in(state)
    assert not mode.apply(E.DISK_FULL, "second")
    assert mode.remark == "second"


@pytest.mark.parametrize("role", [BrokerRole.ASYNC_MASTER, BrokerRole.SLAVE])
def test_a_store_takes_puts_again_when_the_disk_has_room_and_it_is_no_slave(role, caplog):
    store = open_store(broker_role=role)
    store.writer.enter(E.DISK_FULL, "95 % full: make room")
    refusal = PutRefusal(PutMessageStatus.SERVICE_NOT_AVAILABLE, "95 % full: make room")
    assert put(store) == (refusal, -1, -1)
    assert store.trouble == refusal.remark
    with caplog.at_level(logging.WARNING):
        store.writer.enter(E.DISK_HAS_ROOM)
    assert caplog.messages[-1:] == ["sends are accepted again"]
    assert store.trouble == ""
    if role is BrokerRole.SLAVE:
        assert "slave" in put(store)[0].remark
    else:
        assert send(store) == 0
