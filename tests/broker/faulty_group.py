"""A group of brokers whose peers misbehave: they hang, refuse, answer late, or answer garbage."""

from __future__ import annotations

from enum import Enum
from typing import Any

import trio
import trio.testing

from trocket.namesrv.controller import NamesrvController

from .group import NAMESRV_PORT, Group

LATE_S = 30.0
GARBAGE = bytes([0, 0, 0, 24]) + bytes(range(200, 224))
RECEIVE_SIZE = 65_536


class Behaviour(Enum):
    """What a peer does from now on, on new connections and on those that are open."""

    HANGS = "takes no connection, and reads nothing, as a stopped process behind a full backlog"
    REFUSES = "its process is gone: connections end, and new ones are refused"
    SILENT = "takes connections and requests, and never answers, as a stopped process"
    LATE = "answers after 30 s"
    GARBAGE = "answers bytes that are no frame"


class Peer(Enum):
    """Which peer misbehaves."""

    NAME_SERVER = "name server"
    MASTER = "master, its requests"
    HA_LINK = "master, its log"
    SLAVE = "slave"


class FaultyGroup(Group):
    """A group in which one peer of the broker under test may misbehave.

    Attributes:
      master_port: of the broker that is the peer, if the one under test is its slave.
    """

    def __init__(self, nursery: trio.Nursery, namesrv: NamesrvController) -> None:
        super().__init__(nursery, namesrv)
        self.master_port = 0
        self.tested_ports: set[int] = set()
        self._behaviours: dict[Peer, Behaviour] = {}
        self._pipes: list[tuple[Peer, trio.abc.Stream]] = []

    async def misbehave(self, peer: Peer, behaviour: Behaviour) -> None:
        """Let a peer misbehave from now on."""
        self._behaviours[peer] = behaviour
        if behaviour is Behaviour.REFUSES:
            for owner, stream in self._pipes:
                if owner is peer:
                    await stream.aclose()

    async def open_stream(self, host: str, port: int) -> trio.abc.Stream:
        """See `Group`; the test itself is never behind a misbehaving peer."""
        peer = None
        if port == NAMESRV_PORT:
            peer = Peer.NAME_SERVER
        elif self.master_port and port in (self.master_port, self.master_port - 2):
            peer = Peer.MASTER
        if peer is None:
            return await super().open_stream(host, port)
        await self._before(peer)
        return self._between(await super().open_stream(host, port), peer)

    async def connect_ha(self, address: str) -> trio.abc.Stream:
        """See `Group`: from the broker under test to its master, or from its slave to it."""
        peer = Peer.HA_LINK if self.master_port else Peer.SLAVE
        await self._before(peer)
        return self._between(await super().connect_ha(address), peer)

    async def _before(self, peer: Peer) -> None:
        behaviour = self._behaviours.get(peer)
        if behaviour is Behaviour.HANGS:
            await trio.sleep_forever()
        if behaviour is Behaviour.REFUSES:
            await trio.lowlevel.checkpoint()
            raise ConnectionRefusedError("refused")

    def _between(self, there: trio.abc.Stream, peer: Peer) -> trio.abc.Stream:
        here, inner = trio.testing.memory_stream_pair()
        # Of a connection that the slave opens, the slave's own end is the one that misbehaves.
        is_answer = peer is not Peer.SLAVE
        self.nursery.start_soon(self._pass_on, there, inner, peer, is_answer)
        self.nursery.start_soon(self._pass_on, inner, there, peer, not is_answer)
        self._pipes += [(peer, inner), (peer, there)]
        return here

    async def _pass_on(self, source: Any, target: Any, peer: Peer, is_of_peer: bool) -> None:
        try:
            while data := await source.receive_some(RECEIVE_SIZE):
                behaviour = self._behaviours.get(peer)
                if behaviour in (Behaviour.HANGS, Behaviour.SILENT):
                    continue
                if behaviour is Behaviour.LATE and is_of_peer:
                    await trio.sleep(LATE_S)
                if behaviour is Behaviour.GARBAGE and is_of_peer:
                    data = GARBAGE
                await target.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        for stream in (source, target):
            await stream.aclose()
