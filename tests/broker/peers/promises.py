"""What a broker promises for each kind of peer, while it misbehaves in each phase of the broker.

The table is read by `test_promises.py`, which tries every cell: 5 peers, 5 behaviours, 5 phases.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Final


class Peer(enum.Enum):
    """What the broker talks to. Beside MASTER and HA_LINK the broker under test is a slave."""

    NAME_SERVER = "name server"
    MASTER = "master"
    SLAVE = "slave"
    FILTER_SERVER = "filter server"
    HA_LINK = "HA link"


class Behaviour(enum.Enum):
    """What the peer does."""

    HANG = "hangs"
    """No connection is made, as with a machine that is switched off; nothing comes on those there
    were. A filter server takes no input, and SIGTERM does not end it."""
    REFUSE = "refuses"
    """Its connections end and new ones are refused. A filter server cannot be started."""
    SILENT = "accepts and never answers"
    """As a process under SIGSTOP."""
    LATE = "answers after 30 s"
    GARBAGE = "answers garbage"


class Phase(enum.Enum):
    """What the broker does when the peer begins to misbehave, or before."""

    LOAD = "load"
    """It starts on the disk of a killed broker."""
    START = "start"
    """It starts after a stop in good order."""
    SERVE = "serve"
    ROLE_CHANGE = "role change"
    """It starts in the other role: what was the master is a slave, or the reverse."""
    STOP = "stop"


@dataclass(frozen=True)
class Promise:
    """Limits of one cell, in seconds of virtual time.

    Attributes:
      says: the promise in words.
      serves_s: from the start until a client is served.
      starts_s: from the start until it is complete, as its registration is tried first.
      answers_s: until a send is answered.
      makes_s: until the first request that makes a topic or a group is answered.
      stops_s: until the broker has stopped.
      recovers_s: from the end of the misbehaviour until the peer has what it missed.
      send_codes: answers of a send that are allowed.
    """

    says: str
    serves_s: float = 0.01
    starts_s: float = 0.01
    answers_s: float = 0.01
    makes_s: float = 0.01
    stops_s: float = 0.01
    recovers_s: float = 60
    send_codes: frozenset[int] = frozenset({0})


CLIENT_TIMEOUT_S: Final = 3.0
"""How long Apache's clients wait for an answer, by default."""
REGISTER_S: Final = 24.01
"""registerBrokerTimeoutMills, which a start waits for the first answer of a name server."""
GOODBYE_S: Final = 5.01
SLAVE_TIMEOUT_S: Final = 3.01
"""slaveTimeout, after which a SYNC_MASTER answers FLUSH_SLAVE_TIMEOUT."""
SLAVE_NOT_AVAILABLE, FLUSH_SLAVE_TIMEOUT = 11, 12

NAME_SERVER: Final = Promise(
    "clients are served at once; only the route is late, and a new topic or group is answered "
    "before a client gives up",
    starts_s=REGISTER_S,
    makes_s=CLIENT_TIMEOUT_S,
    stops_s=GOODBYE_S,
)
FOLLOWS: Final = Promise(
    "what the slave has is served, and offsets are kept; later the log is followed again"
)
FOLLOWED: Final = Promise(
    "a send is answered within slaveTimeout and is stored; all else does not wait",
    answers_s=SLAVE_TIMEOUT_S,
    makes_s=SLAVE_TIMEOUT_S,
    send_codes=frozenset({0, SLAVE_NOT_AVAILABLE, FLUSH_SLAVE_TIMEOUT}),
)
FILTERS_BACK_S: Final = 130.0
"""One that has not registered for 60 s is restarted at the next of the looks, 30 s apart."""

FILTERS: Final = Promise(
    "nothing waits; it is started again when it does not register", recovers_s=FILTERS_BACK_S
)

PROMISES: Final[dict[Peer, Promise]] = {
    Peer.NAME_SERVER: NAME_SERVER,
    Peer.MASTER: FOLLOWS,
    Peer.SLAVE: FOLLOWED,
    Peer.FILTER_SERVER: FILTERS,
    Peer.HA_LINK: FOLLOWS,
}

EXCEPTIONS: Final[dict[tuple[Peer, Behaviour, Phase], Promise]] = {
    (Peer.FILTER_SERVER, Behaviour.HANG, phase): replace(
        FILTERS, says="nothing waits; a stop kills it after the grace period", stops_s=10.01
    )
    for phase in Phase
} | {
    (Peer.FILTER_SERVER, Behaviour.GARBAGE, Phase.STOP): replace(
        FILTERS, says="nothing waits; a stop reads the log that is left for a second", stops_s=1.01
    )
}
"""Cells that promise another thing than their peer's row."""

Cell = tuple[Peer, Behaviour, Phase]


def cells() -> Iterator[tuple[Cell, Promise]]:
    """Every cell and what it promises."""
    for cell in product(Peer, Behaviour, Phase):
        yield cell, EXCEPTIONS.get(cell, PROMISES[cell[0]])
