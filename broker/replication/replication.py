"""MasterSide and SlaveSide: the two replication roles of a broker.

`store/ha/` replicates the log, `slave_synchronize.py` the tables. A broker has one role as long as
it runs: an operator changes brokerRole and brokerId, and restarts it (docs/operations.md), or a
controller gives the role, and `broker/failover/` opens the broker again in another one.

Java counterpart: the HA half of BrokerController.java, DefaultHAService.getRuntimeInfo of 5.3.3.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Collection, Sequence

import trio

from ...common.clock import Clock
from ...common.supervision import Supervisor
from ...remoting.bodies import HAClientRuntimeInfo, HAConnectionRuntimeInfo, HARuntimeInfo
from ...store.ha.master import HaMaster, MasterState
from ...store.ha.member import SetMember
from ...store.ha.slave import FollowerState, HaSlave
from ...store.message_store import MessageStore
from ..cluster.registration_answer import Master
from .master_search import MasterSearch
from .slave_synchronize import SlaveSynchronize

logger = logging.getLogger(__name__)


class MasterSide:
    """Sends the log to slaves.

    Args:
      store: loaded when `run` is called.
      member: the broker's place in a set that a controller leads; None: it is in none.

    Attributes:
      ha: serves the slaves' connections.
      has_master: always False.
    """

    has_master = False

    def __init__(self, store: MessageStore, member: SetMember | None = None) -> None:
        self.ha = HaMaster(store, member=member)

    async def run(
        self,
        listeners: Sequence[socket.socket],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve slaves until cancelled.

        Args:
          listeners: the sockets that slaves connect to; closed at the end.
        """
        await self.ha.serve(listeners, task_status=task_status)

    def on_master(self, master: Master | None) -> None:
        """Do nothing: a master follows no other broker."""

    def arrived(self, queues: Collection[tuple[str, int]]) -> None:
        """Do nothing: a master's topics are known before their messages arrive."""

    def state(self) -> MasterState:
        """The slaves as this master knows them."""
        return self.ha.state()

    def status(self) -> HARuntimeInfo:
        """The answer to GET_BROKER_HA_STATUS."""
        return _of_master(self.ha.state())


class SlaveSide:
    """Follows a master.

    Args:
      ha: copies the log.
      synchronize: copies the tables.
      own_address: haMasterAddress, which overrides the name servers' answers; "": it is not set.
      clock: for the times in `status`.
      search: asks the master that a controller has named for its HA port; None: the name servers
        name the master.
    """

    def __init__(
        self,
        ha: HaSlave,
        synchronize: SlaveSynchronize,
        *,
        own_address: str,
        clock: Clock,
        search: MasterSearch | None = None,
    ) -> None:
        self._ha = ha
        self._synchronize = synchronize
        self._own_address = own_address
        self._clock = clock
        self._search = search

    async def run(
        self,
        listeners: Sequence[socket.socket],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Follow the master until cancelled.

        Args:
          listeners: empty, because slaves have no slaves.
        """
        async with trio.open_nursery() as nursery:
            services = Supervisor(nursery, logger)
            services.start_soon("the copying of the master's log", self._ha.run)
            services.start_soon("the copying of the master's tables", self._synchronize.run)
            if self._search is not None:
                services.start_soon("the search for the master", self._search.run, self.on_master)
            task_status.started()

    def on_master(self, master: Master | None) -> None:
        """Follow the master that the name servers name.

        A master that they have dropped may return before it is registered again, so its log is
        still followed when it answers.
        """
        self._synchronize.set_master("" if master is None else master.broker_addr)
        if master is not None and master.ha_server_addr and not self._own_address:
            self._ha.set_master(master.ha_server_addr)

    def arrived(self, queues: Collection[tuple[str, int]]) -> None:
        """Process new messages; called with all queues that have some."""
        self._synchronize.arrived(queues)

    @property
    def has_master(self) -> bool:
        """Whether it follows a master now."""
        return self._ha.state().is_connected

    def state(self) -> FollowerState:
        """The connection to the master."""
        return self._ha.state()

    def status(self) -> HARuntimeInfo:
        """The answer to GET_BROKER_HA_STATUS."""
        return _of_slave(self._ha.state(), self._clock.wall_ms())


def _of_master(state: MasterState) -> HARuntimeInfo:
    return HARuntimeInfo(
        master=True,
        master_commit_log_max_offset=state.log_end,
        in_sync_slave_nums=sum(slave.is_in_sync for slave in state.slaves),
        ha_connection_info=[
            HAConnectionRuntimeInfo(
                addr=slave.address,
                slave_ack_offset=slave.ack_offset,
                diff=slave.behind,
                in_sync=slave.is_in_sync,
                transferred_byte_in_second=slave.per_second,
                transfer_from_where=slave.send_offset,
            )
            for slave in state.slaves
        ],
    )


def _of_slave(state: FollowerState, now_ms: int) -> HARuntimeInfo:
    def moment_ms(seconds_ago: float) -> int:
        return 0 if seconds_ago < 0 else now_ms - int(seconds_ago * 1000)

    return HARuntimeInfo(
        ha_client_runtime_info=HAClientRuntimeInfo(
            master_addr=state.master_address or None,
            transferred_byte_in_second=state.per_second,
            max_offset=state.log_end,
            last_read_timestamp=moment_ms(state.last_read_s),
            last_write_timestamp=moment_ms(state.last_write_s),
        )
    )
