"""Makes a fault happen to a cluster, in the middle of what clients do."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Protocol, runtime_checkable

from ..peer import Cluster
from ..process import PeerError
from ..relay import ClusterRelay, Faults
from ..wire import wait_for_route
from .faults import Fault

AWAY_S = 8.0
"""How long a name server is away: clients ask it every second, brokers every 10 s."""
BACK_TIMEOUT_S = 60.0
"""How long until a name server that came back may know the broker; it registers every 10 s."""
DELAY_S = 0.02
SPLIT_BYTES = 50
CUTS = 8
CUT_EVERY_S = 1.0
ROUTE_TOPIC = "TBW102"
"""Every broker that creates topics by itself has it."""


@runtime_checkable
class NamesrvApart(Protocol):
    """A cluster whose name server can be away while its broker stays."""

    def stop_namesrv(self) -> None:
        """Stop the name server in an orderly way."""

    def start_namesrv(self) -> None:
        """Start it again and wait until it is ready. Raises: PeerError."""


class Happening:
    """One fault of one cluster. Use it as a context manager.

    Args:
      fault: one of `faults.ALL_FAULTS`.
      cluster: has been started.
    """

    def __init__(self, fault: str, cluster: Cluster) -> None:
        self.fault = Fault(fault)
        self._cluster = cluster
        self._relay: ClusterRelay | None = None
        # Nobody sets it: waiting for it is a pause.
        self._never = threading.Event()
        if self.fault is Fault.SLOW_NETWORK:
            slow = Faults(delay_s=DELAY_S, jitter_s=DELAY_S)
            self._relay = ClusterRelay(cluster.namesrv_address, faults=slow)

    def __enter__(self) -> Happening:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._relay is not None:
            self._relay.close()

    @property
    def namesrv_address(self) -> str:
        """Where clients go."""
        relay = self._relay
        return self._cluster.namesrv_address if relay is None else relay.namesrv_address

    def happen(self) -> None:
        """Let it happen; it is over on return. Raises: PeerError: the cluster did not come back."""
        match self.fault:
            case Fault.RESTART:
                self._cluster.stop_broker()
                self._cluster.start_broker()
            case Fault.KILL:
                self._cluster.kill_broker()
                self._cluster.start_broker()
            case Fault.NAMESRV_GONE:
                self._without_namesrv()
            case Fault.SLOW_NETWORK:
                self._cut_connections()

    def _without_namesrv(self) -> None:
        cluster = self._cluster
        if not isinstance(cluster, NamesrvApart):
            raise PeerError(f"the name server of {cluster.label} cannot be stopped alone")
        cluster.stop_namesrv()
        self._never.wait(AWAY_S)
        cluster.start_namesrv()
        wait_for_route(cluster.namesrv_address, ROUTE_TOPIC, timeout_s=BACK_TIMEOUT_S)

    def _cut_connections(self) -> None:
        """By turns all connections, and one in the middle of a frame of either direction."""
        relay = self._relay
        assert relay is not None  # made with this fault
        relay.faults.split_bytes = SPLIT_BYTES
        for number in range(CUTS):
            if number % 2:
                relay.faults.cut_next(SPLIT_BYTES, to_server=number % 4 == 1)
            else:
                relay.faults.cut()
            self._never.wait(CUT_EVERY_S)
        relay.faults.split_bytes = 0
