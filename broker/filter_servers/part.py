"""FilterServers: the filter servers that the broker starts, and those that register with it."""

from __future__ import annotations

from typing import Final

from ...common.supervision import Supervisor
from ..cluster.part import Cluster
from ..part import Foundation, Part, Processors, Serving
from .filter_server import FilterServerProcessor
from .filter_server_keeper import FilterServerKeeper, open_filter_server
from .filter_server_manager import FilterServerManager

SCAN_INTERVAL_S: Final = 10.0
"""Between two scans for filter servers without heartbeats. RocketMQ: ClientHousekeepingService."""


class FilterServers(Part):
    """The filter servers of a broker.

    Attributes:
      registered: those that have registered.
      keeper: starts and restarts as many as the configuration says.
    """

    def __init__(self, foundation: Foundation, cluster: Cluster) -> None:
        seams = foundation.seams
        self._config, self._clock = foundation.config, seams.clock
        self._registrar = cluster.registrar
        self.registered = FilterServerManager(on_change=self._changed)
        self.keeper = FilterServerKeeper(
            foundation.config,
            foundation.address.port,
            self.registered,
            open_process=seams.open_process or open_filter_server,
            tls=seams.tls.config,
        )
        foundation.closed_channels.subscribe(self.registered.channel_closed)

    def processors(self, serving: Serving) -> Processors:
        """See `Part`."""
        return FilterServerProcessor(self._config, self.registered, clock=self._clock).processors

    async def start(self, services: Supervisor) -> None:
        """See `Part`."""
        services.start_soon("the supervision of filter servers", self.keeper.run)
        services.every("the scan for expired filter servers", SCAN_INTERVAL_S, self._scan)

    def _changed(self) -> None:
        self._registrar.changed()
        self.keeper.wake()

    def _scan(self) -> None:
        for channel in self.registered.scan_inactive(self._clock.monotonic_s()):
            channel.close("no heartbeat from its filter server")
