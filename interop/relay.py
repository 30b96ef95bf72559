"""A TCP relay between clients and servers: it injects network faults and reports frames.

::

    faults = Faults(delay_s=0.05, jitter_s=0.02)
    with ClusterRelay(cluster.namesrv_address, faults=faults) as relay:
        client = connect(relay.namesrv_address)     # its brokers come through the relay too
        faults.cut()                                # closes every connection
        faults.delay_s = 0.0                        # from now on

Brokers register their own addresses with name servers, and clients connect to these. A
`ClusterRelay` therefore replaces each broker's address in the name server's answers with that of a
relay, which it opens on first use. `Relay` is for a single server.

Each runs in a separate thread. All methods are thread-safe; callbacks are called in the relay's
thread. A relay is for tests with a handful of connections, not for throughput.
"""

from __future__ import annotations

from types import TracebackType
from typing import Final, Self

from ..remoting.hosts import join_address
from ..remoting.opener import split_address
from ..testing.recording.frame_stream import SeenFrame, with_broker_addresses
from .ports import free_port
from .process import PeerError
from .relay_faults import Faults
from .relay_loop import OnFrame, RelayLoop, Rewritten

__all__ = ["ClusterRelay", "Faults", "OnFrame", "Relay"]

HOST: Final = "127.0.0.1"
VIP_OFFSET: Final = -2
"""A broker's VIP port is two below its port. Source: MixAll.brokerVIPChannel."""


class _RelayBase:
    """The loop and first port of a relay, listening from its creation until `close`."""

    def __init__(
        self,
        target: str,
        faults: Faults | None,
        on_frame: OnFrame | None,
        host: str,
        port: int,
        rewritten: Rewritten | None = None,
    ) -> None:
        split_address(target)
        port = port or free_port()
        self.faults = Faults() if faults is None else faults
        self._loop = RelayLoop(self.faults, on_frame)
        self._address = join_address(host, port)
        try:
            self._loop.listen(host, port, target, rewritten)
        except OSError:
            self._loop.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all ports and connections. Raises: PeerError: the relay's thread failed."""
        self._loop.close()


class Relay(_RelayBase):
    """A relay to one server; it serves from its creation until `close`.

    Args:
      target: HOST:PORT of the server; it need not run yet.
      faults: none by default; one object may serve several relays.
      on_frame: see `OnFrame`.
      host: the address to listen on.
      port: 0: a free one.
    Raises: ValueError: the target is not HOST:PORT. OSError: the port is in use.
    """

    def __init__(
        self,
        target: str,
        *,
        faults: Faults | None = None,
        on_frame: OnFrame | None = None,
        host: str = HOST,
        port: int = 0,
    ) -> None:
        super().__init__(target, faults, on_frame, host, port)

    @property
    def address(self) -> str:
        """HOST:PORT that clients connect to."""
        return self._address


class ClusterRelay(_RelayBase):
    """A relay to a name server and to all brokers in its routes.

    Not relayed: connections to a broker address from another source, such as the store host in a
    message id; traffic of brokers with their name servers and with each other.

    Args:
      namesrv_address: HOST:PORT of the real one.
      faults, on_frame, host: as with `Relay`, for name server and brokers.
      port: of the name server's relay; 0: a free one.
    Raises: ValueError: the address is not HOST:PORT. OSError: the port is in use.
    """

    def __init__(
        self,
        namesrv_address: str,
        *,
        faults: Faults | None = None,
        on_frame: OnFrame | None = None,
        host: str = HOST,
        port: int = 0,
    ) -> None:
        self._host = host
        self._brokers: dict[str, str] = {}
        super().__init__(namesrv_address, faults, on_frame, host, port, self._with_our_addresses)

    @property
    def namesrv_address(self) -> str:
        """HOST:PORT that clients use instead of the name server's."""
        return self._address

    def broker_address(self, real_address: str) -> str:
        """The address of a broker's relay, which is opened on first use.

        Args:
          real_address: HOST:PORT.
        Raises: ValueError: it is not HOST:PORT. PeerError: no port is free, or the relay is closed.
        """
        found: list[str] = []
        self._loop.call(lambda: found.append(self._relayed(real_address)))
        if not found:
            raise PeerError("the relay is closed")
        return found[0]

    def _with_our_addresses(self, frame: SeenFrame) -> bytes:
        return with_broker_addresses(frame, self._relayed_or_itself)

    def _relayed_or_itself(self, address: str) -> str:
        try:
            return self._relayed(address)
        except ValueError:
            return address

    def _relayed(self, real_address: str) -> str:
        relayed = self._brokers.get(real_address)
        if relayed is None:
            host, real_port = split_address(real_address)
            port = free_port(offsets=(0, VIP_OFFSET))
            self._loop.listen(self._host, port, real_address)
            if real_port + VIP_OFFSET > 0:
                vip = join_address(host, real_port + VIP_OFFSET)
                self._loop.listen(self._host, port + VIP_OFFSET, vip)
            relayed = self._brokers[real_address] = join_address(self._host, port)
        return relayed
