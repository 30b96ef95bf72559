"""The faults of a chaos run: what each does to the processes, and how all is whole again."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, TypeAlias

from trocket.bench.chaos_broker import CLOCK_IS_OFF, DISK_IS_FULL
from trocket.bench.chaos_clients import Crowd
from trocket.bench.chaos_schedule import Planned
from trocket.interop.controller_mode import APACHE, OURS, ControlledSet, Member
from trocket.interop.peer import LocalCluster
from trocket.interop.process import PeerError

WHOLE_S: Final = 120.0
"""At most, until all members are in sync after a fault."""
CLOCK_STEP_MS: Final = 3_600_000
"""An hour, as of a wrong daylight saving time."""

_pause = threading.Event()


class Stage:
    """What faults happen to.

    Attributes:
      notes: what could not be played, and why.
    """

    def __init__(self, brokers: ControlledSet, crowd: Crowd) -> None:
        self.brokers = brokers
        self.crowd = crowd
        self.notes: list[str] = []
        self._next_namesrv = 0

    def play(self, fault: Planned) -> None:
        """Have a fault happen, wait for its length, and undo it. Raises: PeerError."""
        ACTS[fault.kind](self, fault)

    def wait_whole(self) -> None:
        """Wait until all brokers are in sync. Raises PeerError."""
        self.brokers.wait_in_sync(len(self.brokers.members), timeout_s=WHOLE_S)

    def one_namesrv(self) -> LocalCluster:
        """Each name server in turn."""
        self._next_namesrv += 1
        return self.brokers.namesrvs[self._next_namesrv % len(self.brokers.namesrvs)]


Act: TypeAlias = Callable[[Stage, Planned], None]
Find: TypeAlias = Callable[[ControlledSet], Member]


def _hold(fault: Planned) -> None:
    _pause.wait(fault.for_s)


# ---- brokers -----------------------------------------------------------------------------


def _of_member(find: Find, end: str) -> Act:
    """Stop, kill or freeze a broker, and have it go on later."""

    def act(stage: Stage, fault: Planned) -> None:
        member = find(stage.brokers)
        getattr(member, end)()
        _hold(fault)
        if end == "freeze":
            member.thaw()
        else:
            member.start()

    return act


def _slave(brokers: ControlledSet) -> Member:
    return brokers.slaves()[0]


def _kill_both(stage: Stage, fault: Planned) -> None:
    for member in stage.brokers.members:
        member.kill()
    _hold(fault)
    for member in stage.brokers.members:
        member.start()


def _with_file(find: Find, name: str, text: str) -> Act:
    """Have a file in a broker's folder for a while (see chaos_broker.py)."""

    def act(stage: Stage, fault: Planned) -> None:
        path = find(stage.brokers).folder / name
        path.write_text(text)
        _hold(fault)
        path.unlink()

    return act


def _step_clock(step_ms: int) -> Act:
    """Step the master's clock, and back: two steps, one in each direction."""

    def act(stage: Stage, fault: Planned) -> None:
        path = stage.brokers.master().folder / CLOCK_IS_OFF
        path.write_text(str(step_ms))
        _hold(fault)
        path.write_text("0")

    return act


def _apache_takes_over(stage: Stage, fault: Planned) -> None:
    """The slave is Apache's on the same files, then the master, then trocket's slave again."""
    brokers = stage.brokers
    slave = _slave(brokers)
    slave.stop()
    slave.become(APACHE)
    try:
        slave.start()
        stage.wait_whole()
        master = brokers.master()
        master.kill()
        brokers.wait_other_master(master)
        _hold(fault)
        master.start()
        stage.wait_whole()
        _hold(fault)
    finally:
        slave.stop()
        slave.become(OURS)
        for member in brokers.members:
            member.start()


# ---- the others --------------------------------------------------------------------------


def _kill_controller(stage: Stage, fault: Planned) -> None:
    controller = stage.brokers.controllers[0]
    controller.kill()
    _hold(fault)
    controller.start()


def _freeze_controller(stage: Stage, fault: Planned) -> None:
    controller = stage.brokers.controllers[0]
    controller.freeze()
    _hold(fault)
    controller.thaw()


def _hang_namesrv(stage: Stage, fault: Planned) -> None:
    pid = stage.one_namesrv().pids[0]
    os.kill(pid, signal.SIGSTOP)
    _hold(fault)
    os.kill(pid, signal.SIGCONT)


def _kill_namesrv(stage: Stage, fault: Planned) -> None:
    namesrv = stage.one_namesrv()
    namesrv.close()
    _hold(fault)
    namesrv.start_namesrv()


def _kill_client(stage: Stage, fault: Planned) -> None:
    client = stage.crowd.members[fault.target]
    client.kill()
    _hold(fault)
    client.start()


def _freeze_client(stage: Stage, fault: Planned) -> None:
    client = stage.crowd.members[fault.target]
    client.freeze()
    _hold(fault)
    client.thaw()


def _join_group(stage: Stage, fault: Planned) -> None:
    more = stage.crowd.join(fault.target.partition("-")[2])
    try:
        _hold(fault)
        if not more.stop():
            raise PeerError(f"{more.name} did not end as asked")
    finally:
        more.kill()


ACTS: Final[Mapping[str, Act]] = {
    "kill-master": _of_member(ControlledSet.master, "kill"),
    "stop-master": _of_member(ControlledSet.master, "stop"),
    "freeze-master": _of_member(ControlledSet.master, "freeze"),
    "kill-slave": _of_member(_slave, "kill"),
    "lose-slave": _of_member(_slave, "kill"),
    "freeze-slave": _of_member(_slave, "freeze"),
    "kill-both": _kill_both,
    "full-disk": _with_file(ControlledSet.master, DISK_IS_FULL, ""),
    "full-disk-of-slave": _with_file(_slave, DISK_IS_FULL, ""),
    "clock-forward": _step_clock(CLOCK_STEP_MS),
    "clock-back": _step_clock(-CLOCK_STEP_MS),
    "apache-takes-over": _apache_takes_over,
    "kill-controller": _kill_controller,
    "freeze-controller": _freeze_controller,
    "hang-namesrv": _hang_namesrv,
    "kill-namesrv": _kill_namesrv,
    "kill-producer": _kill_client,
    "freeze-producer": _freeze_client,
    "kill-consumer": _kill_client,
    "freeze-consumer": _freeze_client,
    "join-group": _join_group,
}
"""By the names of chaos_schedule.KINDS."""


@contextmanager
def ending(crowd: Crowd) -> Iterator[Crowd]:
    """All clients end with the block."""
    try:
        yield crowd
    finally:
        crowd.kill()
