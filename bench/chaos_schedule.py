"""The faults of a chaos run: which, of whom, when, and for how long; by a seed. Pure.

Kinds come in shuffled rounds: each comes once before any comes twice, so that a short run has many
kinds and a long run has all of them equally often.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

MASTER: Final = "master"
SLAVE: Final = "slave"
BOTH: Final = "both"
CONTROLLER: Final = "controller"
NAMESRV: Final = "namesrv"
CLIENT: Final = "client"
"""A client, which the schedule chooses; of the fault it is `send-java`, `take-go` and so on."""

PAUSE_S: Final = (8.0, 20.0)
"""From the end of one fault, with the set whole, to the next: clients that ask for routes every 5 s
go on in between. Those that ask every 30 s (Go, C++) meet several faults at once."""


@dataclass(frozen=True)
class Kind:
    """A kind of fault.

    Attributes:
      target: a word above.
      for_s: the span of its length, seconds.
      takes_back: whether committed offsets may go back by it: a broker that ends takes those back
        that it had not saved.
      roles: of the clients that it can be of.
    """

    target: str
    for_s: tuple[float, float]
    takes_back: bool = False
    roles: tuple[str, ...] = ()


KINDS: Final[dict[str, Kind]] = {
    "kill-master": Kind(MASTER, (1.0, 4.0), takes_back=True),
    "stop-master": Kind(MASTER, (1.0, 4.0), takes_back=True),
    "freeze-master": Kind(MASTER, (1.0, 8.0), takes_back=True),
    "kill-slave": Kind(SLAVE, (1.0, 3.0), takes_back=True),
    "lose-slave": Kind(SLAVE, (10.0, 25.0), takes_back=True),
    "freeze-slave": Kind(SLAVE, (1.0, 8.0), takes_back=True),
    "kill-both": Kind(BOTH, (0.5, 2.0), takes_back=True),
    "full-disk": Kind(MASTER, (2.0, 8.0), takes_back=True),
    "full-disk-of-slave": Kind(SLAVE, (2.0, 8.0), takes_back=True),
    "clock-forward": Kind(MASTER, (5.0, 15.0)),
    "clock-back": Kind(MASTER, (5.0, 15.0)),
    "apache-takes-over": Kind(SLAVE, (8.0, 20.0), takes_back=True),
    "kill-controller": Kind(CONTROLLER, (1.0, 6.0)),
    "freeze-controller": Kind(CONTROLLER, (1.0, 6.0)),
    "hang-namesrv": Kind(NAMESRV, (5.0, 20.0)),
    "kill-namesrv": Kind(NAMESRV, (1.0, 10.0)),
    "kill-producer": Kind(CLIENT, (0.5, 3.0), roles=("send",)),
    "freeze-producer": Kind(CLIENT, (1.0, 10.0), roles=("send",)),
    "kill-consumer": Kind(CLIENT, (0.5, 3.0), roles=("take",)),
    "freeze-consumer": Kind(CLIENT, (1.0, 20.0), roles=("take",)),
    "join-group": Kind(CLIENT, (15.0, 30.0), roles=("take",)),
}
"""By name. A frozen master is deposed after 2 s (QUICK_BROKER), a disk that is full after 2 s, too:
the spans have shorter ones and longer ones. A frozen consumer stays a member of its group and keeps
its queues' locks: brokers take a member away after 120 s, a lock after 60 s."""

FIRST: Final = ("kill-master",)
"""Of each run, so that a run of a minute has a failover."""


@dataclass(frozen=True)
class Planned:
    """A fault to come.

    Attributes:
      target: a word above, or a client: `send-java`.
      after_s: from the end of the fault before, with the set whole again.
      for_s: its length.
    """

    kind: str
    target: str
    after_s: float
    for_s: float


def schedule(
    seed: int, clients: Sequence[str], kinds: Iterable[str] = KINDS, *, with_apache: bool = True
) -> Iterator[Planned]:
    """Faults without end; the same ones for the same arguments.

    Args:
      clients: names such as `java`, of those that send and take.
      kinds: keys of KINDS.
      with_apache: False: none in which Apache's broker takes over.

    Raises: ValueError: a kind is unknown, or none is left.
    """
    chosen = list(kinds)
    for kind in chosen:
        if kind not in KINDS:
            raise ValueError(f"{kind!r} is none of {', '.join(KINDS)}")
    if not with_apache:
        chosen = [kind for kind in chosen if kind != "apache-takes-over"]
    if not clients:
        chosen = [kind for kind in chosen if KINDS[kind].target != CLIENT]
    if not chosen:
        raise ValueError("no kind of fault is left to play")
    return _faults(random.Random(seed), clients, chosen)


def _faults(chance: random.Random, clients: Sequence[str], kinds: list[str]) -> Iterator[Planned]:
    is_first = True
    while True:
        bag = [*kinds]
        chance.shuffle(bag)
        if is_first:
            bag.sort(key=lambda kind: kind not in FIRST)  # stable: the others stay shuffled
            is_first = False
        for name in bag:
            kind = KINDS[name]
            target = kind.target
            if target == CLIENT:
                target = f"{chance.choice(kind.roles)}-{chance.choice(clients)}"
            yield Planned(name, target, chance.uniform(*PAUSE_S), chance.uniform(*kind.for_s))
