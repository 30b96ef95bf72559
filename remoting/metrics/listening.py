"""The socket for metrics and health."""

from __future__ import annotations

import socket

from ...common.metrics_keys import MetricsExporterType, MetricsKeys
from ..server import open_listener


def open_metrics_listener(config: MetricsKeys) -> socket.socket | None:
    """The socket that answers for metrics and health; None: they are switched off.

    Raises: OSError: as `open_listener`.
    """
    if config.metrics_exporter_type is not MetricsExporterType.PROM:
        return None
    host = config.metrics_prom_exporter_host or config.bind_address
    try:
        return open_listener(host, config.metrics_prom_exporter_port)
    except OSError as error:
        text = f"metrics (metricsPromExporterPort): {error.strerror}"
        raise OSError(error.errno, text) from error
