"""What a program gets while servers hang, refuse connections or lose them, in virtual time.

The table has a promise for each operation: what it does, and within which time, whatever the fault
is. The exceptions of a fault follow it.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, NamedTuple

import pytest
import trio
import trio.testing

from trocket import BrokersError, ClientError

from .outages import BROKERS, OPERATIONS, WAIT_S, Outage, healthy, two_brokers

FAULTS: Final = ("hanging", "down", "lost")
"""As the attributes of ScriptedBrokers."""

AWAY: Final = {
    "one broker": ("a",),
    "all brokers": BROKERS,
    "one name server": ("ns1",),
    "all name servers": ("ns1", "ns2"),
}


class Outcome(Enum):
    DONE = auto()
    """It does what it is for, by the servers that answer."""
    FAILED = auto()
    """A ClientError that names the address of each server that was tried."""
    PART = auto()
    """A BrokersError that names the silent ones, and has what the others know."""
    NOTHING = auto()
    """It returns without a message, and without an error: it goes on trying."""


DONE, FAILED, PART, NOTHING = Outcome


class Promise(NamedTuple):
    outcome: Outcome
    within_s: float


SEND_S: Final = 10.0
"""send_timeout_s: the time limit of all tries of a send; also for the first routes of consumers."""
TRY_S: Final = 3.0
"""timeout_s: the time limit of one try, or of one request; that of connecting is the same."""
HEDGE_S: Final = 0.5
"""Until the next server is asked, too."""
SOON_S: Final = 5.0
CLOSE_S: Final = 5.0
"""close_timeout_s."""
SETTLE_S: Final = 10.0
"""How long an acknowledgement is sent again; its last try may begin at the end of that."""
POP_S: Final = 10.0
"""How long the answer to a pop may take after the time that the broker may wait."""

ALL_GO_ON: Final = dict.fromkeys(OPERATIONS, Promise(DONE, 2 * HEDGE_S + 0.1))
"""One name server away: each question goes to the next one, at the latest after HEDGE_S. It has as
long again when the other one does not know a topic, such as the retry topic of a new group."""
OPEN_S: Final = 1.0
"""How long opening waits for the first heartbeats."""

PROMISES: Final[dict[str, dict[str, Promise]]] = {
    "one broker": {
        # A send is tried at the other broker; one that goes nowhere is noticed after TRY_S.
        "send": Promise(DONE, TRY_S + 1),
        "send oneway": Promise(DONE, 1.0),
        "batch": Promise(DONE, TRY_S + 1),
        "transaction": Promise(DONE, TRY_S + 1),
        # The messages of the other broker come soon; those of this one when it is back.
        "consume by pull": Promise(DONE, SOON_S),
        "consume by pop": Promise(DONE, SOON_S),
        "consume in order": Promise(DONE, SOON_S),
        "receive": Promise(DONE, SOON_S),
        "poll": Promise(DONE, SOON_S),
        "subscribe and poll": Promise(DONE, SOON_S),
        # The offsets of the other broker are committed; those of this one at the next round.
        "commit": Promise(DONE, TRY_S),
        "close": Promise(DONE, CLOSE_S),
        "close a producer": Promise(DONE, TRY_S),
        "close a pull consumer": Promise(DONE, TRY_S + 1),
        "acknowledge": Promise(FAILED, SETTLE_S + TRY_S),
        "administer": Promise(PART, TRY_S),
    },
    "all brokers": {
        "send": Promise(FAILED, SEND_S),
        "send oneway": Promise(FAILED, SEND_S),
        "batch": Promise(FAILED, SEND_S),
        "transaction": Promise(FAILED, SEND_S),
        "consume by pull": Promise(NOTHING, WAIT_S + 2 * OPEN_S),
        "consume by pop": Promise(NOTHING, WAIT_S + 2 * OPEN_S),
        "consume in order": Promise(NOTHING, WAIT_S + 2 * OPEN_S),
        "receive": Promise(FAILED, WAIT_S + POP_S),
        "poll": Promise(NOTHING, WAIT_S),
        "subscribe and poll": Promise(NOTHING, WAIT_S),
        "commit": Promise(DONE, TRY_S),
        "close": Promise(DONE, CLOSE_S),
        "close a producer": Promise(DONE, TRY_S),
        "close a pull consumer": Promise(DONE, TRY_S + 1),
        "acknowledge": Promise(FAILED, SETTLE_S + TRY_S),
        "administer": Promise(PART, TRY_S),
    },
    "one name server": ALL_GO_ON,
    "all name servers": {
        "send": Promise(FAILED, SEND_S),
        "send oneway": Promise(FAILED, SEND_S),
        "batch": Promise(FAILED, SEND_S),
        "transaction": Promise(FAILED, SEND_S),
        "consume by pull": Promise(FAILED, SEND_S),
        "consume by pop": Promise(FAILED, SEND_S),
        "consume in order": Promise(FAILED, SEND_S),
        "receive": Promise(FAILED, WAIT_S),
        "poll": Promise(FAILED, SEND_S),
        "subscribe and poll": Promise(NOTHING, WAIT_S),
        # What is known already needs no name server.
        "commit": Promise(DONE, 0.1),
        "close": Promise(DONE, 0.1),
        "close a producer": Promise(DONE, 0.1),
        "close a pull consumer": Promise(DONE, 0.1),
        "acknowledge": Promise(DONE, 0.1),
        "administer": Promise(FAILED, TRY_S),
    },
}

EXCEPTIONS: Final[dict[tuple[str, str, str], Promise]] = {
    # Nothing is awaited of a broker that has taken the bytes: a oneway message may be lost.
    ("all brokers", "hanging", "send oneway"): Promise(DONE, 0.1),
    ("all brokers", "lost", "send oneway"): Promise(DONE, 0.1),
}

CELLS: Final = [
    (away, fault, operation) for away in AWAY for fault in FAULTS for operation in OPERATIONS
]


def test_every_cell_has_a_promise() -> None:
    assert set(PROMISES) == set(AWAY)
    assert all(set(promised) == set(OPERATIONS) for promised in PROMISES.values())
    assert set(EXCEPTIONS) <= set(CELLS)


@pytest.mark.slow
@pytest.mark.parametrize(("away", "fault", "operation"), CELLS)
async def test_an_outage_costs_what_is_promised(
    autojump_clock: trio.testing.MockClock, away: str, fault: str, operation: str
) -> None:
    promise = EXCEPTIONS.get((away, fault, operation)) or PROMISES[away][operation]
    async with two_brokers() as brokers:
        outage = Outage(brokers, AWAY[away], fault)
        error: ClientError | None = None
        result: object = None
        with trio.fail_after(200):
            try:
                result = await OPERATIONS[operation](brokers, outage)
            except ClientError as raised:
                error = raised
        outcome = (
            (PART if isinstance(error, BrokersError) else FAILED)
            if error is not None
            else (NOTHING if result in (None, []) and promise.outcome is NOTHING else DONE)
        )
        text = str(error)
        assert outcome is promise.outcome, text
        assert outage.elapsed_s <= promise.within_s + 1e-6
        if outcome in (FAILED, PART) and operation != "acknowledge":
            for name in AWAY[away]:
                assert brokers.address_of(name) in text
        if outcome is PART:
            assert isinstance(error, BrokersError)
            assert bool(error.partial) == bool(healthy(brokers))
