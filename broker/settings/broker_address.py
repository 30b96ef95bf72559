"""BrokerAddress: the addresses that a broker listens on, and those that it advertises.

Java counterpart: BrokerController.getBrokerAddr, getHAServerAddr, getStoreHost of 5.3.3.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Final

from ...common.machine import local_address
from ...remoting.errors import LocalProtocolError
from ...remoting.hosts import host_bytes, host_of, join_address
from ...remoting.transport import format_address
from ...store.config import MessageStoreConfig
from .config import BrokerConfig
from .listening import ha_port

_ANYWHERE: Final = ("0.0.0.0", "::")


class BrokerAddress:
    """The addresses of one broker, known once it listens, because it may take any free port.

    Attributes:
      listened: `ip:port` of each listener, the main port first; empty before, and for a broker
        without listeners.
      broker_addr: `host:port` for clients; "" before it listens.
      store_host: the address in records and message ids, as `host_bytes` packs it; zeros before it
        listens.
    """

    def __init__(self, config: BrokerConfig, store_config: MessageStoreConfig) -> None:
        self.listened: tuple[str, ...] = ()
        self.broker_addr = ""
        self.store_host = bytes(8)
        self._config = config
        self._store_config = store_config

    def listens(self, listeners: Sequence[socket.socket]) -> None:
        """Record the sockets that the broker listens on."""
        self.listened = tuple(format_address(sock.getsockname()) for sock in listeners)
        port = self._config.listen_port
        if self.listened:
            port = int(self.listened[0].rpartition(":")[2])
        self.broker_addr = self._config.address(port)
        self.store_host = self._store_host(port)

    def port(self) -> int:
        """The port for clients; it must listen."""
        return int(self.broker_addr.rpartition(":")[2])

    def ha_server_addr(self) -> str:
        """`host:port` for slaves; it must listen."""
        host = self._config.broker_ip2 or self._config.broker_ip1
        return join_address(host, ha_port(self._store_config, self.port()))

    def _store_host(self, port: int) -> bytes:
        try:
            return host_bytes(self._config.broker_ip1.strip("[]"), port)
        except LocalProtocolError:
            # The advertised address is a name, but records need an IP: take the one we listen on.
            listened = host_of(self.listened[0])
            host = local_address() if listened in _ANYWHERE else listened
            return host_bytes(host, port)
