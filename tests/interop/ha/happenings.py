"""What happens to a master, its slave or the link between them while messages are sent."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from trocket.interop.wire import WireClient

from ...kit.waiting import wait_until
from .frames import Place
from .load import Load
from .pair import OURS, QUICK, Pair

GET_BROKER_HA_STATUS = 907
NOTICE_TIMEOUT_S = 60.0

DELAY_S, JITTER_S = 0.05, 0.02
SPLIT_BYTES, SPLIT_PAUSE_S = 4_096, 0.004
"""Of a slow link: 50 to 70 ms, and less than 1 MB/s."""
CUTS = (Place.BODY, Place.HEADER, Place.REPORT, Place.BODY, Place.HEADER)


@dataclass(frozen=True)
class Happening:
    """One of `HAPPENINGS`.

    Attributes:
      happen: called while the load goes on; it is over on return.
      relayed: whether the log goes through a relay.
      keys: of both brokers.
    """

    happen: Callable[[Pair, Load], None]
    relayed: bool = False
    keys: Mapping[str, object] = field(default_factory=dict)


def nothing(pair: Pair, load: Load) -> None:
    """The load goes on."""


def restart_master(pair: Pair, load: Load) -> None:
    """It is stopped in an orderly way, and started again."""
    load.wait_share(0.4)
    pair.master.stop_broker()
    pair.master.start_broker()


def kill_master(pair: Pair, load: Load) -> None:
    """Two times."""
    for share in (0.3, 0.6):
        load.wait_share(share)
        pair.kill(pair.master)
        pair.master.start_broker()


def restart_slave(pair: Pair, load: Load) -> None:
    """It is away for a while."""
    load.wait_share(0.2)
    pair.slave.stop_broker()
    load.wait_share(0.6)
    pair.slave.start_broker()


def kill_slave(pair: Pair, load: Load) -> None:
    """Once it is away for a while, once it is back at once."""
    load.wait_share(0.2)
    pair.kill(pair.slave)
    load.wait_share(0.4)
    pair.slave.start_broker()
    load.wait_share(0.8)
    pair.kill(pair.slave)
    pair.slave.start_broker()


def restarts_and_kills(pair: Pair, load: Load) -> None:
    """Both are killed; ours are restarted, too: Apache's take 13 s to end in an orderly way."""
    load.wait_share(0.2)
    if pair.roles.master == OURS:
        pair.master.stop_broker()
        pair.master.start_broker()
    load.wait_share(0.4)
    if pair.roles.slave == OURS:
        pair.slave.stop_broker()
        load.wait_share(0.5)
        pair.slave.start_broker()
    load.wait_share(0.6)
    pair.kill(pair.master)
    pair.master.start_broker()
    load.wait_share(0.7)
    pair.kill(pair.slave)
    load.wait_share(0.9)
    pair.slave.start_broker()


def slow_link(pair: Pair, load: Load) -> None:
    """From now on; the slave falls behind."""
    faults = pair.faults
    faults.delay_s, faults.jitter_s = DELAY_S, JITTER_S
    faults.split_bytes, faults.split_pause_s = SPLIT_BYTES, SPLIT_PAUSE_S


def cut_link(pair: Pair, load: Load) -> None:
    """Within a frame's body and header and within a report; the slave is behind after each."""
    load.allow(0.1)
    for number, place in enumerate(CUTS, 2):
        _cut_at(pair, place, load, number / 10)
    load.allow(1.0)


def _cut_at(pair: Pair, place: Place, load: Load, share: float) -> None:
    before, count = len(pair.frames.cuts), pair.frames.connection_count
    pair.frames.cut_at(place)
    load.allow(share)
    wait_until(
        lambda: len(pair.frames.cuts) > before and pair.frames.connection_count > count,
        timeout_s=NOTICE_TIMEOUT_S,
        what=lambda: f"the slave is back after a cut {place.value}: {pair.frames.cuts}",
    )


def half_open_link(pair: Pair, load: Load) -> None:
    """Nobody hears of the other, then the master not of the slave, then the slave not of it."""
    load.allow(0.1)
    for number, to_server in enumerate((None, True, False), 1):
        load.wait_share(number / 10)
        count = pair.frames.connection_count
        pair.faults.abandon(to_server=to_server)
        load.allow((number + 1) / 10)
        if not pair.roles.slave_hears_silence and to_server is not True:
            if to_server is None:
                wait_until(
                    lambda: not slave_count(pair),
                    timeout_s=NOTICE_TIMEOUT_S,
                    what="the master ends the connection of the silent slave",
                )
            # As the slave's machine would, when what it sends is not acknowledged for long.
            pair.faults.cut()
        wait_until(
            lambda count=count: pair.frames.connection_count > count,  # type: ignore[misc]
            timeout_s=NOTICE_TIMEOUT_S,
            what=f"the slave connects anew, abandoned was {to_server}",
        )
    load.allow(1.0)


def slave_count(pair: Pair) -> int:
    """The slaves that are connected to a master of ours or of Apache's 5.x."""
    with WireClient(pair.master.broker_address) as client:
        answer = client.call(GET_BROKER_HA_STATUS, {}).checked()
    return len(json.loads(answer.body)["haConnectionInfo"])


RESTARTS_AND_KILLS = "restarts and kills"
HAPPENINGS = {
    RESTARTS_AND_KILLS: Happening(restarts_and_kills),
    "nothing": Happening(nothing),
    "master restarted": Happening(restart_master),
    "master killed": Happening(kill_master),
    "slave restarted": Happening(restart_slave),
    "slave killed": Happening(kill_slave),
    "slow link": Happening(slow_link, relayed=True),
    "link cut": Happening(cut_link, relayed=True),
    "half-open link": Happening(half_open_link, relayed=True, keys=QUICK),
}
