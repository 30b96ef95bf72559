"""The master's side of replication: accepts slaves and sends them the log.

Java counterpart: ha/DefaultHAService.java of 5.3.3. A connection has two tasks; sends that wait for
acknowledgements have none (writing/durability.py).

Use::

    master = HaMaster(store)
    await nursery.start(master.serve, [open_ha_listener(config)])
"""

from __future__ import annotations

import ipaddress
import logging
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import trio

from ...common.networks import Network, is_in, parse_networks
from ...common.supervision import FailureLog, Supervisor, contained
from ...remoting.acceptor import Acceptor, open_listener
from ...remoting.hosts import join_address
from ..config import BrokerRole, MessageStoreConfig
from .member import SetMember
from .sender import NOT_YET, LogSender
from .tls import TlsError, ha_tls

if TYPE_CHECKING:
    from ..message_store import MessageStore

logger = logging.getLogger(__name__)

CONNECTIONS_MAX = 64
"""Slaves served at once; a group usually has up to three. Apache has no limit."""


class SlaveState(NamedTuple):
    """The state of a connected slave, for GET_BROKER_HA_STATUS.

    Attributes:
      address: `host:port`.
      ack_offset: physical offset up to which it has the log.
      behind: bytes of the log that it does not have.
      is_in_sync: whether it counts as available (haMaxGapNotInSync).
      per_second: bytes sent in the last whole second.
      send_offset: physical offset of the next byte to send.
      behind_s: seconds since it had the whole log; 0: it has it now.
      ack_age_s: seconds since its last acknowledgement.
      controller_id: its permanent number in the set; None: the default mode.
      is_async_learner: it never joins the in-sync set.
    """

    address: str
    ack_offset: int
    behind: int
    is_in_sync: bool
    per_second: int
    send_offset: int
    behind_s: float
    ack_age_s: float
    controller_id: int | None = None
    is_async_learner: bool = False


class MasterState(NamedTuple):
    """A master's view of its slaves.

    Attributes:
      log_end: physical offset of the end of its log.
      slaves: those that are connected and have reported their offset.
    """

    log_end: int
    slaves: list[SlaveState]


class HaMaster:
    """Sends a store's log to slaves. Owned by the store's task.

    Args:
      store: loaded, and not a slave's: slaves have no slaves.
      member: its place in its set, in controller mode; None: the default mode.

    Raises:
      ValueError: haAllowedSlaves is not a list of addresses and networks.
      ConfigError: a file for TLS cannot be used.
    """

    def __init__(self, store: MessageStore, member: SetMember | None = None) -> None:
        assert store.config.broker_role is not BrokerRole.SLAVE, "slaves have no slaves"
        self._store = store
        self._member = member
        self._allowed = parse_allowed(store.config.ha_allowed_slaves)
        self._tls = ha_tls(store.config)
        self._handshake_count = 0
        self._senders: dict[LogSender, None] = {}
        self._logged = ("", "")  # host and reason of the last warning
        self._failures = FailureLog(logger)

    async def serve(
        self,
        listeners: Sequence[socket.socket] = (),
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Accept slaves, and expire sends that wait for them, until cancelled.

        Args:
          listeners: from `open_ha_listener`; closed at the end.
        """
        async with trio.open_nursery() as nursery:
            services = Supervisor(nursery, logger)
            services.start_soon("the time limit of slaves", self._store.durability.slaves.expire)

            def take(sock: socket.socket, _: object) -> None:
                stream = trio.SocketStream(trio.socket.from_stdlib_socket(sock))
                nursery.start_soon(self._serve_accepted, stream)

            for listener in listeners:
                services.start_soon("the acceptance of slaves", Acceptor(listener, take).run)
            task_status.started()

    async def serve_stream(self, stream: trio.abc.Stream, address: str) -> None:
        """Serve one slave until its connection ends; `serve` runs meanwhile.

        Args:
          stream: connected, such as one end of a memory stream pair.
          address: the slave's, for logs.
        """
        if self._tls is not None:
            self._handshake_count += 1
            try:
                stream = await self._tls.wrap(stream)
            except TlsError as error:
                self._warn_once(address, "is refused", str(error))
                return
            finally:
                self._handshake_count -= 1
        sender = LogSender(self._store, stream, address, self._end_older, self._member)
        self._senders[sender] = None
        try:
            await sender.run()
        finally:
            del self._senders[sender]
            # A slave that cannot follow connects again every few seconds.
            self._warn_once(address, "is disconnected", sender.link.reason or "this broker stops")

    def state(self) -> MasterState:
        """The current state of the slaves."""
        end, slaves = self._store.max_physical_offset, self._store.durability.slaves
        now_s = trio.current_time()
        return MasterState(
            end,
            [
                SlaveState(
                    address=sender.address,
                    ack_offset=sender.ack_offset,
                    behind=end - sender.ack_offset,
                    is_in_sync=slaves.is_in_sync(sender.ack_offset, end),
                    per_second=sender.link.flow.per_second,
                    send_offset=sender.send_offset,
                    behind_s=sender.distance.seconds(sender.ack_offset, end, now_s),
                    ack_age_s=now_s - sender.acked_s,
                    controller_id=sender.identity if self._member is not None else None,
                    is_async_learner=sender.is_async_learner,
                )
                for sender in self._senders
                if sender.ack_offset != NOT_YET
            ],
        )

    async def _serve_accepted(self, stream: trio.SocketStream) -> None:
        meaning = "That connection is closed; the slave connects anew"
        with contained(self._failures, "serving a slave", meaning):
            try:
                await self._accept(stream)
            finally:
                await trio.aclose_forcefully(stream)

    async def _accept(self, stream: trio.SocketStream) -> None:
        try:
            host, port = stream.socket.getpeername()[:2]
        except OSError:  # gone already
            await trio.aclose_forcefully(stream)
            return
        refusal = ""
        if not is_allowed(host, self._allowed):
            refusal = "haAllowedSlaves does not name it"
        elif len(self._senders) + self._handshake_count >= CONNECTIONS_MAX:
            refusal = f"{CONNECTIONS_MAX} slaves are connected"
        if refusal:
            self._warn_once(join_address(host, port), "is refused", refusal)
            await trio.aclose_forcefully(stream)
            return
        await self.serve_stream(stream, join_address(host, port))

    def _warn_once(self, address: str, what: str, reason: str) -> None:
        """Log why a slave is not served; repeated attempts are logged at level DEBUG."""
        host = address.rpartition(":")[0]
        level = logging.DEBUG if self._logged == (host, reason) else logging.WARNING
        self._logged = (host, reason)
        logger.log(
            level,
            "slave %(slave)s %(what)s: %(reason)s",
            {"slave": address, "what": what, "reason": reason},
        )

    def _end_older(self, newest: LogSender) -> None:
        """End the earlier connection of the same slave, which must not count twice."""
        for sender in list(self._senders):
            if sender is not newest and sender.identity == newest.identity:
                sender.forget()
                sender.link.end("the same slave has connected anew")


def open_ha_listener(config: MessageStoreConfig, port: int | None = None) -> socket.socket:
    """A listening socket for slaves.

    Args:
      port: None: haListenPort.

    Raises:
      OSError: the address is in use or not local; the message names it.
    """
    address = config.ha_listen_address
    is_open = not config.ha_allowed_slaves and not config.ha_tls_enable
    if is_open and not _is_loopback(address):
        logger.warning(
            "any host that can connect to %(address)s can copy every message: set haAllowedSlaves "
            "to your slaves' addresses, or haTlsEnable",
            {"address": address},
        )
    return open_listener(address, config.ha_listen_port if port is None else port)


def parse_allowed(text: str) -> tuple[Network, ...]:
    """The addresses and networks of haAllowedSlaves; empty: all are allowed.

    Raises:
      ValueError: a part is neither.
    """
    return parse_networks(text)


def is_allowed(host: str, allowed: tuple[Network, ...]) -> bool:
    """Whether a slave may come from an address."""
    return not allowed or is_in(host, allowed)


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"
