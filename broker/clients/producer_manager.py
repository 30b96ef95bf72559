"""ProducerManager: the connected producers by group.

A producer is registered from its first heartbeat until it unregisters (35), its connection closes,
or no heartbeat comes for CHANNEL_EXPIRED_S.

The broker pushes replies to a client id, which each client chooses. So with accounts the replies to
an id go to the user that registered it first, as long as that connection is open and the user may
send anything. Another user with that id is registered as any other, and gets no replies. (In
RocketMQ the last connection that registers an id gets its replies.)

Java counterpart: broker/client/ProducerManager.java of 5.3.3. Pure.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from ...common.steps import Steps
from .client_channel_info import (
    CHANNEL_EXPIRED_S,
    CLIENT_SIZE,
    GROUPS_PER_CHANNEL_MAX,
    LEAVING_LINES_MAX,
    ClientChannel,
    ClientChannelInfo,
    silent_clients,
)

logger = logging.getLogger(__name__)


class ProducerManager:
    """The table of producers. Not thread-safe: used from the broker's one trio run.

    Args:
      expired_s: seconds without a heartbeat after which `scan_inactive` drops a client.

    Attributes:
      expired_s: as above; it may change.
      may_send: whether the user of a connection may send to any topic; without accounts all may.
    """

    def __init__(self, *, expired_s: float = CHANNEL_EXPIRED_S) -> None:
        self.expired_s = expired_s
        self.may_send: Callable[[ClientChannel], bool] = lambda channel: True
        self._groups: dict[str, dict[ClientChannel, ClientChannelInfo]] = {}
        self._groups_of: dict[ClientChannel, set[str]] = {}
        self._holders: dict[str, ClientChannelInfo] = {}
        self._ids_of: dict[ClientChannel, set[str]] = {}

    @property
    def group_table(self) -> Mapping[str, Mapping[ClientChannel, ClientChannelInfo]]:
        """Client by channel by group; read-only."""
        return self._groups

    def register(self, group: str, client: ClientChannelInfo) -> bool:
        """Record a heartbeat.

        Args:
          group: a producer group; any string, as in RocketMQ.
          client: the client at the time of this heartbeat.
        Returns: whether the client is new in the group.
        """
        clients = self._groups.setdefault(group, {})
        known = clients.get(client.channel)
        if known is not None:
            known.last_update_s = client.last_update_s
            self._claim_id(client, is_new=False)
            return False
        groups = self._groups_of.setdefault(client.channel, set())
        if len(groups) >= GROUPS_PER_CHANNEL_MAX:
            # `setdefault` may have made it just now.
            if not clients:
                del self._groups[group]
            logger.warning(
                "%(client)s: producer group %(group)s is not registered, the connection already "
                "has %(limit)d groups",
                {"client": client, "group": group, "limit": len(groups)},
            )
            return False
        clients[client.channel] = client
        groups.add(group)
        self._claim_id(client, is_new=True)
        logger.info(
            "new producer connected, group: %(group)s %(client)s",
            {"group": group, "client": client},
        )
        return True

    def _claim_id(self, client: ClientChannelInfo, *, is_new: bool) -> None:
        """Send the replies to a client's id to it, if they may; of two connections of a user,
        to the new one."""
        holder = self._holders.get(client.client_id)
        if holder is not None and holder.channel is client.channel:
            holder.user = client.user
        elif (
            holder is None or is_new or holder.user != client.user or holder.channel.closed
        ) and self.may_have_id(client):
            self._holders[client.client_id] = client
            self._ids_of.setdefault(client.channel, set()).add(client.client_id)

    def unregister(self, group: str, channel: ClientChannel) -> bool:
        """Remove one client from one group.

        Returns: whether it was registered.
        """
        client = self._remove(group, channel)
        if client is not None:
            logger.info(
                "producer left, group: %(group)s %(client)s", {"group": group, "client": client}
            )
        return client is not None

    def _remove(self, group: str, channel: ClientChannel) -> ClientChannelInfo | None:
        """Remove one client from one group. Returns: the client; None: it was not registered."""
        clients = self._groups.get(group)
        client = clients.pop(channel, None) if clients is not None else None
        if clients is None or client is None:
            return None
        if not clients:
            del self._groups[group]
        groups = self._groups_of[channel]
        groups.discard(group)
        if not groups:
            del self._groups_of[channel]
            for client_id in self._ids_of.pop(channel, ()):
                holder = self._holders.get(client_id)
                if holder is not None and holder.channel is channel:
                    del self._holders[client_id]
        return client

    def channel_closed(self, channel: ClientChannel) -> bool:
        """Remove every client of a closed connection.

        Returns: whether there was one.
        """
        groups = list(self._groups_of.get(channel, ()))
        for number, group in enumerate(groups):
            client = self._remove(group, channel)
            if number < LEAVING_LINES_MAX:
                logger.info(
                    "producer left, group: %(group)s %(client)s", {"group": group, "client": client}
                )
        if len(groups) > LEAVING_LINES_MAX:
            address, count = channel.remote_address, len(groups)
            logger.info(
                "%(address)s closed: its producers left %(groups)d groups in all",
                {"address": address, "groups": count},
            )
        return bool(groups)

    def scan_inactive(self, now_s: float) -> Steps[list[ClientChannel]]:
        """Steps that remove the clients whose heartbeats have expired, and close their connections.

        Args:
          now_s: monotonic seconds.
        Returns: steps that return the connections that were closed.
        """
        closed: list[ClientChannel] = []
        for client in silent_clients(self._groups.values(), now_s - self.expired_s):
            if client is None:
                yield
                continue
            logger.warning(
                "producer %(client)s sent no heartbeat for %(expired_s)g s",
                {"client": client, "expired_s": self.expired_s},
            )
            self.channel_closed(client.channel)
            client.channel.close(f"no heartbeat of a producer for {self.expired_s:g} s")
            closed.append(client.channel)
        return closed

    def size_of(self, channel: ClientChannel) -> int:
        """Approximate size of a connection's producers, whose names are bounded, in bytes."""
        return CLIENT_SIZE * len(self._groups_of.get(channel, ()))

    def find_channel(self, client_id: str) -> ClientChannel | None:
        """The connection of a client's last registration; None: it is not connected, or its user
        may send nothing any more."""
        holder = self._holders.get(client_id)
        return None if holder is None or not self.may_send(holder.channel) else holder.channel

    def may_have_id(self, client: ClientChannelInfo) -> bool:
        """Whether a client may get the replies to its id: no open connection of another user that
        may send has it."""
        if not self.may_send(client.channel):
            return False
        holder = self._holders.get(client.client_id)
        return (
            holder is None
            or not self.may_send(holder.channel)
            or holder.channel is client.channel
            or holder.user == client.user
            or holder.channel.closed
        )
