"""The injection of one fault into a cluster while clients use it."""

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
"""How long a name server is down: clients ask it every second, brokers every 10 s."""
BACK_TIMEOUT_S = 60.0
"""How long a restarted name server may lack the broker, which registers every 10 s."""
DELAY_S = 0.02
SPLIT_BYTES = 50
CUTS = 8
CUT_EVERY_S = 1.0
ROUTE_TOPIC = "TBW102"
"""Every broker with autoCreateTopicEnable has it."""


@runtime_checkable
class SeparateNamesrv(Protocol):
    """A cluster whose name server can be stopped while its broker runs."""

    def stop_namesrv(self) -> None:
        """Stop the name server gracefully."""

    def start_namesrv(self) -> None:
        """Start it again and wait until it is ready. Raises: PeerError."""


class FaultInjector:
    """Injects one fault into one cluster. Use it as a context manager.

    Args:
      fault: one of `faults.ALL_FAULTS`.
      cluster: a started one.
    """

    def __init__(self, fault: str, cluster: Cluster) -> None:
        self.fault = Fault(fault)
        self._cluster = cluster
        self._relay: ClusterRelay | None = None
        self._never = threading.Event()  # is never set: waiting for it is a pause
        if self.fault is Fault.SLOW_NETWORK:
            slow = Faults(delay_s=DELAY_S, jitter_s=DELAY_S)
            self._relay = ClusterRelay(cluster.namesrv_address, faults=slow)

    def __enter__(self) -> FaultInjector:
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
        """HOST:PORT that clients must use: the relay's, if the fault needs one."""
        relay = self._relay
        return self._cluster.namesrv_address if relay is None else relay.namesrv_address

    def inject(self) -> None:
        """Inject the fault and wait until it is over.

        Raises: PeerError: the cluster did not recover.
        """
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
        if not isinstance(cluster, SeparateNamesrv):
            raise PeerError(f"the name server of {cluster.label} cannot be stopped alone")
        cluster.stop_namesrv()
        self._never.wait(AWAY_S)
        cluster.start_namesrv()
        wait_for_route(cluster.namesrv_address, ROUTE_TOPIC, timeout_s=BACK_TIMEOUT_S)

    def _cut_connections(self) -> None:
        """Cut by turns all connections, and one within a frame of either direction."""
        relay = self._relay
        assert relay is not None  # created for this fault
        relay.faults.split_bytes = SPLIT_BYTES
        for number in range(CUTS):
            if number % 2:
                relay.faults.cut_next(SPLIT_BYTES, to_server=number % 4 == 1)
            else:
                relay.faults.cut()
            self._never.wait(CUT_EVERY_S)
        relay.faults.split_bytes = 0
