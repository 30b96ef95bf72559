"""What a broker process promises while another process misbehaves, in seconds of real time.

The table is read by `test_processes.py`, which tries every cell. The limits leave room for a busy
machine and are well below what a wait for the peer would take; `promises.py` has the exact limits,
in virtual time.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final


class Kind(enum.Enum):
    """The peer of the broker under test, which is a master unless its peer is one."""

    NAME_SERVER = "name server"
    MASTER = "master"
    SLAVE = "slave"
    SLAVE_OF_SYNC_MASTER = "slave of a SYNC_MASTER"
    FILTER_SERVER = "filter server"


class Way(enum.Enum):
    """What the peer does."""

    STOPPED = "is under SIGSTOP"
    REFUSE = "refuses"
    """It was killed, and nothing listens at its address. Others still know the address."""
    SILENT = "accepts and never answers"
    GARBAGE = "answers garbage"


class Phase(enum.Enum):
    """What the broker does, in the order in which one broker does it."""

    SERVE = "serve"
    """The peer behaved well, and begins to misbehave."""
    STOP = "stop"
    START = "start"
    """It starts beside the peer, and serves."""
    RETURN = "return"
    """The peer behaves well again."""
    ROLE_CHANGE = "role change"
    """The peer misbehaves again; what was its slave is started as a master."""


@dataclass(frozen=True)
class Promise:
    """Limits of a kind of peer, in seconds.

    Attributes:
      says: the promise in words.
      serves_s: from the start of the process until a client is connected.
      answers_s: until a send is answered.
      makes_s: until the request that makes a topic is answered.
      stops_s: from SIGTERM until the process has ended, with exit status 0.
      returns_s: from the end of the misbehaviour until the peer has what it missed.
      send_codes: answers of a send that are allowed.
    """

    says: str
    serves_s: float = 10.0
    answers_s: float = 2.5
    makes_s: float = 2.5
    stops_s: float = 4.0
    returns_s: float = 30.0
    send_codes: frozenset[int] = frozenset({0})


READS_S: Final = 2.5
"""For an answer that needs no peer. Apache's clients give up after 3 s."""
SLAVE_NOT_AVAILABLE, FLUSH_SLAVE_TIMEOUT = 11, 12

PROMISES: Final[dict[Kind, Promise]] = {
    Kind.NAME_SERVER: Promise(
        "clients are served at once; a new topic is answered within 3 s, a stop takes up to 5 s "
        "more; the route is there within 30 s after the name server",
        makes_s=4.0,
        stops_s=7.5,
    ),
    Kind.MASTER: Promise(
        "what the slave has is served, and offsets are taken; it is stopped, and promoted, without "
        "the master; later the log is followed again",
    ),
    Kind.SLAVE: Promise("nothing waits for the slave, which later gets what it missed"),
    Kind.SLAVE_OF_SYNC_MASTER: Promise(
        "a send is stored and is answered within slaveTimeout, 3 s; nothing else waits",
        answers_s=5.5,
        makes_s=5.5,
        send_codes=frozenset({0, SLAVE_NOT_AVAILABLE, FLUSH_SLAVE_TIMEOUT}),
    ),
    Kind.FILTER_SERVER: Promise(
        "nothing waits, and a consumer gets the messages of its other topics; a filter server that "
        "ignores SIGTERM is killed 3 s after it; later messages are filtered again",
        stops_s=7.0,
        returns_s=60.0,
    ),
}

Cell = tuple[Kind, Way, Phase]


def cells() -> Iterator[Cell]:
    """Every cell; a role is changed where the peer is the master that hangs."""
    for kind in Kind:
        for way in Way:
            for phase in Phase:
                if phase is not Phase.ROLE_CHANGE or kind is Kind.MASTER:
                    yield kind, way, phase
