"""The sockets that a broker listens on, and the limits of their connections.

Java counterpart: the two servers of BrokerController.java; MixAll.brokerVIPChannel.
"""

from __future__ import annotations

import logging
import socket

from ...remoting.server import open_listener
from ...store.config import BrokerRole, MessageStoreConfig
from ...store.ha.master import open_ha_listener
from .config import HA_PORT_STEP, BrokerConfig

logger = logging.getLogger(__name__)

VIP_PORT_STEP = 2
"""Clients with vipChannelEnabled connect to listenPort - 2. Source: MixAll.brokerVIPChannel."""

FREE_PORT_TRIES = 1_000
"""Attempts to find free ports: one, the VIP port two below, and the slaves' port one above. Beside
19,000 connections of this machine, which take two thirds of the ports, 50 were too few; a thousand
take 0.03 s."""


def listeners_of(config: BrokerConfig) -> list[socket.socket]:
    """The listeners of the port, the VIP port and, if it is set, the port of gRPC clients.

    All serve all clients; that of RocketMQ's proxy, 8081, is the one that gRPC clients expect.

    Raises: OSError: as `open_listener`.
    """
    listeners = listen(config.bind_address, config.listen_port)
    if config.grpc_server_port:
        try:
            listeners.append(open_listener(config.bind_address, config.grpc_server_port))
        except OSError:
            for listener in listeners:
                listener.close()
            raise
    return listeners


def listen(host: str, port: int) -> list[socket.socket]:
    """The listeners of the port and the VIP port; for port 0 a free pair.

    The port above a free pair is free as well, so that a master's HA port does not collide with
    brokers that are started at the same time with port 0.

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


def listen_for_slaves(
    store_config: MessageStoreConfig, port: int, *, expected: bool = True
) -> list[socket.socket]:
    """A master's listener for its slaves; empty for a slave.

    An ASYNC_MASTER without haListenPort in its file runs without the listener if the port is in
    use, because brokers without slaves may share a machine, and always if no slave is expected.

    Args:
      port: the port that the broker listens on.
      expected: slaves may connect although nothing in the file mentions them.
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
        logger.warning(
            "no slave can connect to this master: %(error)s. If it has slaves, set haListenPort "
            "to a free port",
            {"error": error},
        )
        return []


def ha_port(store_config: MessageStoreConfig, port: int) -> int:
    """The port advertised to slaves.

    Args:
      port: the port that the broker listens on.
    """
    return store_config.ha_listen_port or port + HA_PORT_STEP
