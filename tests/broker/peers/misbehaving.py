"""A group of brokers whose peers misbehave: what goes between them passes through relays."""

from __future__ import annotations

import signal
from random import Random

import trio
import trio.testing

from trocket.namesrv.controller import NamesrvController

from ...kit import Client
from ..group import FIRST_PORT, HOST, NAMESRV_PORT, Group
from .promises import Behaviour, Peer

LATE_S = 30
REGISTER_FILTER_SERVER = 301
REGISTER_PERIOD_S = 10
GARBAGE_SIZE = 64


class Peers(Group):
    """Brokers of one name, and what each kind of peer does.

    Attributes:
      behaviours: by kind of peer; those that are not in it behave well.
    """

    def __init__(self, nursery: trio.Nursery, namesrv: NamesrvController) -> None:
        super().__init__(nursery, namesrv)
        self.namesrv = namesrv
        self.behaviours: dict[Peer, Behaviour] = {}
        self.subject_port = 0
        self.open_process = self._open_process
        self._changed = trio.Event()
        self._relays: list[tuple[Peer, list[trio.abc.Stream]]] = []
        self._random = Random(1)
        self._children: list[FilterServer] = []

    def misbehave(self, peer: Peer, behaviour: Behaviour) -> None:
        """Let a peer misbehave from now on; a master does so on its HA link, too."""
        kinds = {peer, Peer.HA_LINK} if peer is Peer.MASTER else {peer}
        for kind in kinds:
            self.behaviours[kind] = behaviour
        for kind, ends in self._relays:
            if kind in kinds and behaviour is Behaviour.REFUSE:
                for end in ends:
                    self.nursery.start_soon(trio.aclose_forcefully, end)
        if peer is Peer.FILTER_SERVER:
            for child in self._children:
                child.is_stubborn = behaviour is Behaviour.HANG
        self._wake()

    def behave(self) -> None:
        """Let all peers behave well; what was held passes."""
        self.behaviours.clear()
        for child in self._children:
            child.is_stubborn = False
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def open_stream(self, host: str, port: int) -> trio.abc.Stream:
        if port == NAMESRV_PORT:
            peer = Peer.NAME_SERVER
        elif FIRST_PORT - 2 <= port <= FIRST_PORT and self.subject_port != FIRST_PORT:
            peer = Peer.MASTER
        else:
            return await super().open_stream(host, port)
        await self._reach(peer)
        return self._relay(peer, await super().open_stream(host, port))

    async def connect_ha(self, address: str) -> trio.abc.Stream:
        is_subject = int(address.rpartition(":")[2]) == self.subject_port + 1
        peer = Peer.SLAVE if is_subject else Peer.HA_LINK
        await self._reach(peer)
        return self._relay(peer, await super().connect_ha(address))

    async def _reach(self, peer: Peer) -> None:
        while self.behaviours.get(peer) is Behaviour.HANG:
            await self._changed.wait()
        if self.behaviours.get(peer) is Behaviour.REFUSE:
            await trio.lowlevel.checkpoint()
            raise ConnectionRefusedError("refused")

    def _relay(self, peer: Peer, server_end: trio.abc.Stream) -> trio.abc.Stream:
        client_end, outer = trio.testing.memory_stream_pair()
        self._relays.append((peer, [outer, server_end]))
        # Garbage goes to the broker under test: a slave is the client of its connection.
        subject = server_end if peer is Peer.SLAVE else outer
        self.nursery.start_soon(self._pump, peer, outer, server_end, subject)
        self.nursery.start_soon(self._pump, peer, server_end, outer, subject)
        return client_end

    async def _pump(
        self,
        peer: Peer,
        source: trio.abc.Stream,
        target: trio.abc.Stream,
        subject: trio.abc.Stream,
    ) -> None:
        try:
            while data := bytes(await source.receive_some(1 << 20)):
                while self.behaviours.get(peer) in (Behaviour.HANG, Behaviour.SILENT):
                    await self._changed.wait()
                behaviour = self.behaviours.get(peer)
                if behaviour is Behaviour.LATE:
                    with trio.move_on_after(LATE_S):
                        await self._until_good(peer)
                if behaviour is Behaviour.GARBAGE:
                    await subject.send_all(self._random.randbytes(GARBAGE_SIZE))
                else:
                    await target.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError, trio.BusyResourceError):
            pass
        finally:
            await trio.aclose_forcefully(source)
            await trio.aclose_forcefully(target)

    async def _until_good(self, peer: Peer) -> None:
        while peer in self.behaviours:
            await self._changed.wait()

    async def _open_process(self) -> FilterServer:
        await trio.lowlevel.checkpoint()
        behaviour = self.behaviours.get(Peer.FILTER_SERVER)
        if behaviour is Behaviour.REFUSE:
            raise OSError("no memory for another process")
        child = FilterServer(len(self._children) + 1, is_stubborn=behaviour is Behaviour.HANG)
        self._children.append(child)
        self.nursery.start_soon(self._play, child, behaviour)
        return child

    async def _play(self, child: FilterServer, behaviour: Behaviour | None) -> None:
        if behaviour in (Behaviour.HANG, Behaviour.SILENT):
            return
        await child.input.receive_some(1 << 16)  # its keys; the end of the input would stop it
        try:
            client = Client(await self.open_stream(HOST, self.subject_port))
            while child.returncode is None:
                await self._register(child, client)
                with trio.move_on_after(REGISTER_PERIOD_S):
                    await self._changed.wait()
            await client.stream.aclose()
        except (OSError, trio.EndOfChannel, trio.BrokenResourceError, trio.ClosedResourceError):
            child.kill()

    async def _register(self, child: FilterServer, client: Client) -> None:
        """Register as it behaves now; one that hangs does nothing."""
        behaviour = self.behaviours.get(Peer.FILTER_SERVER)
        if behaviour in (Behaviour.HANG, Behaviour.SILENT):
            return
        if behaviour is Behaviour.REFUSE:
            raise ConnectionResetError("its connections end")
        if behaviour is Behaviour.LATE:
            with trio.move_on_after(LATE_S):
                await self._until_good(Peer.FILTER_SERVER)
        address = f"h:{child.pid}"
        if behaviour is Behaviour.GARBAGE:
            await child.output.send_all(self._random.randbytes(1 << 16))
            address = "\0garbage"
        await client.ask(REGISTER_FILTER_SERVER, {"filterServerAddr": address})


class FilterServer:
    """A process in memory.

    Args:
      is_stubborn: it reads no input, and SIGTERM does not end it.
    """

    def __init__(self, pid: int, *, is_stubborn: bool) -> None:
        make = (
            trio.testing.lockstep_stream_one_way_pair
            if is_stubborn
            else trio.testing.memory_stream_one_way_pair
        )
        self.pid = pid
        self.stdin, self.input = make()
        self.output, self.stderr = trio.testing.memory_stream_one_way_pair()
        self.returncode: int | None = None
        self.is_stubborn = is_stubborn
        self._ended = trio.Event()

    async def wait(self) -> int:
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode

    def terminate(self) -> None:
        if not self.is_stubborn:
            self._end(-signal.SIGTERM)

    def kill(self) -> None:
        self._end(-signal.SIGKILL)

    def _end(self, status: int) -> None:
        if self.returncode is None:
            self.returncode = status
            self.output.close()
            self._ended.set()
