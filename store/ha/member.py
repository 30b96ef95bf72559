"""A broker's place in its set, in controller mode."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..writing.in_sync_acks import ConfirmedCopy, InSyncAcks
from .epochs import EpochFile

OnCut = Callable[[int], None]


def _ignore(_: int) -> None:
    pass


@dataclass
class SetMember:
    """One member of a set. Without one, `HaMaster` and `HaSlave` are in the default mode.

    Attributes:
      controller_id: its permanent number in the set, from 1 on.
      epoch: of the present master, as far as this broker knows.
      epochs: of its log. A master has one at least.
      on_cut: called on a slave with the physical offset up to which its log is the same as the
        master's, which is below its end; possibly inside of a record. The connection then ends. The
        owner opens the store again, cut there, and cuts the epochs. Called again at each further
        connection until then.
      in_sync: given to its store: `InSyncAcks` of a master, `ConfirmedCopy` of a slave.
      master_address: on a slave, its master's `host:port` for requests; "": there is none.
      master_ha_address: `host:port` to follow on a slave; "": not known yet.
    """

    controller_id: int
    epoch: int
    epochs: EpochFile
    on_cut: OnCut = _ignore
    in_sync: InSyncAcks | ConfirmedCopy | None = None
    master_address: str = ""
    master_ha_address: str = ""
