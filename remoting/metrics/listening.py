"""The page of metrics and health of a server: its socket, and who answers."""

from __future__ import annotations

import logging
import socket
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from ...common.metrics_keys import MetricsExporterType, MetricsKeys
from ..refusals import Refusals
from ..server import open_listener
from ..tls_server import ServerTls
from ..transport import format_address

if TYPE_CHECKING:
    from .answers import Answer

logger = logging.getLogger(__name__)


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


async def serve_metrics(
    listener: socket.socket,
    answer: Callable[[str], Awaitable[Answer]],
    refusals: Refusals,
    tls: ServerTls | None,
) -> None:
    """Answer for metrics and health until cancelled; the listener stays open.

    Args:
      answer: the answer to GET of a path with its query.
      refusals: of the server; count the connections that are closed here.
      tls: encrypts the connections; None: they are plain.
    """
    from .http_server import HttpServer  # the start of a server need not wait for it

    secure = "s" if tls else ""
    address = format_address(listener.getsockname())
    logger.info(
        "metrics and health are at http%(secure)s://%(address)s/metrics",
        {"secure": secure, "address": address},
    )
    await HttpServer(answer, refusals=refusals, tls=tls).serve(listener)
