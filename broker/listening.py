"""The sockets that a broker listens on, and the limits of their connections.

Java counterpart: the two servers of BrokerController.java; MixAll.brokerVIPChannel.
"""

from __future__ import annotations

import logging
import socket

from ..remoting.connection import ConnectionLimits
from ..remoting.server import open_listener
from ..store.config import BrokerRole, MessageStoreConfig
from ..store.ha.master import open_ha_listener
from .config import HA_PORT_STEP, BrokerConfig

logger = logging.getLogger(__name__)

VIP_PORT_STEP = 2
"""Clients with vipChannelEnabled connect to listenPort - 2. Source: MixAll.brokerVIPChannel."""

FREE_PORT_TRIES = 50
"""How often free ports (one, the VIP port two below, slaves' one above) are looked for."""


def connection_limits(config: BrokerConfig) -> ConnectionLimits:
    """What a broker's connections may do, as its file says."""
    return ConnectionLimits(
        idle_s=config.server_channel_max_idle_time_seconds, memory_max=config.remoting_bytes_max
    )


def listen(host: str, port: int) -> list[socket.socket]:
    """The port's and the VIP port's listeners; for port 0 a free pair.

    The port above such a pair is free, too: that of a master's slaves is among brokers that were
    started together with port 0.

    Raises: OSError: as `open_listener`.
    """
    if port:
        first = open_listener(host, port)
        try:
            return [first, open_listener(host, port - VIP_PORT_STEP)]
        except OSError:
            first.close()
            raise
    for _ in range(FREE_PORT_TRIES):
        first = open_listener(host, 0)
        taken = first.getsockname()[1]
        try:
            open_listener(host, taken + HA_PORT_STEP).close()
            return [first, open_listener(host, taken - VIP_PORT_STEP)]
        except (OSError, OverflowError):
            first.close()
    raise OSError(f"no two free ports with one between them on {host or 'any address'}")


def ha_port(store_config: MessageStoreConfig, port: int) -> int:
    """Where slaves connect, as they are told.

    Args:
      port: that the broker listens on.
    """
    return store_config.ha_listen_port or port + HA_PORT_STEP


def listen_for_slaves(
    store_config: MessageStoreConfig, port: int, *, expected: bool = True
) -> list[socket.socket]:
    """The listener of a master for its slaves; none of a slave.

    An ASYNC_MASTER whose file does not say haListenPort does without it where the port is taken,
    because brokers that have no slaves run beside one another, and always if none are expected.

    Args:
      port: that the broker listens on.
      expected: slaves may come although nothing in the file speaks of them.
    Raises: OSError: as `open_listener`.
    """
    role = store_config.broker_role
    may_do_without = role is BrokerRole.ASYNC_MASTER and not store_config.ha_listen_port
    if role is BrokerRole.SLAVE or (may_do_without and not expected):
        return []
    try:
        return [open_ha_listener(store_config, ha_port(store_config, port))]
    except OSError as error:
        if not may_do_without:
            raise
        logger.warning("no slave can connect, set haListenPort: %s", error)
        return []
