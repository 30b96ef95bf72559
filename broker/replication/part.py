"""Replication: the broker's role in its group, as the master of slaves or as a slave."""

from __future__ import annotations

from ...common.steps import Steps
from ...remoting.metrics.families import Samples
from ...store.ha.slave import HaSlave
from ..access.part import Access
from ..cluster.part import Cluster
from ..delivering.part import Delivering
from ..part import Foundation, Part, Processors, Serving
from ..tables.part import Tables
from . import metrics
from .master_search import MasterSearch
from .replica_status import ReplicationProcessor
from .replication import MasterSide, SlaveSide
from .slave_offsets import SlaveOffsets
from .slave_synchronize import SlaveSynchronize


class Replication(Part):
    """The role of a broker in its group; another role is another broker (`broker/failover/`).

    Attributes:
      side: a master's or a slave's.
    """

    def __init__(
        self,
        foundation: Foundation,
        tables: Tables,
        access: Access,
        cluster: Cluster,
        delivering: Delivering,
    ) -> None:
        self._store, self._clock = foundation.store, foundation.seams.clock
        member = foundation.seams.member
        self._tables, self._timers = tables, delivering.used_timers
        self.side = (
            _slave_side(foundation, tables, access, delivering)
            if foundation.store.is_slave
            else MasterSide(foundation.store, member)
        )
        foundation.new_messages.subscribe(self.side.arrived)
        if member is None:
            cluster.masters.subscribe(self.side.on_master)

    def processors(self, serving: Serving) -> Processors:
        """See `Part`."""
        return ReplicationProcessor(
            offsets=self._tables.offsets,
            delay_offsets=self._tables.delay_offsets,
            request_modes=self._tables.request_modes,
            timers=self._timers,
            status=self.side.status,
            clock=self._clock,
        ).processors

    def collect(self, samples: Samples) -> Steps[None]:
        """See `Part`."""
        metrics.collect(self._store, self.side.state(), samples)
        yield from ()


def _slave_side(
    foundation: Foundation, tables: Tables, access: Access, delivering: Delivering
) -> SlaveSide:
    store, seams = foundation.store, foundation.seams
    member = seams.member
    ha = HaSlave(store, connect=seams.ha_connect, member=member)
    synchronize = SlaveSynchronize(
        foundation.config,
        store,
        seams.client,
        ha,
        topics=tables.topics,
        mappings=tables.mappings,
        groups=tables.groups,
        offsets=SlaveOffsets(tables.offsets, store.queue_store.end_of),
        delay_offsets=tables.delay_offsets,
        timers=delivering.timers,
        request_modes=tables.request_modes,
        accounts=access.users.copied_accounts,
    )
    found = None
    if member is not None and member.master_address:
        found = MasterSearch(seams.client, member.master_address)
    own_address = store.config.ha_master_address
    return SlaveSide(ha, synchronize, own_address=own_address, clock=seams.clock, search=found)
