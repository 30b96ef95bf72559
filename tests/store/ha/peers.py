"""The other side of a connection, byte by byte as a test wants it."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio
import trio.testing

from trocket.disk.memory_disk import MemoryDisk
from trocket.disk.os_disk import Disk
from trocket.store.config import BrokerRole
from trocket.store.ha.epoch_wire import (
    EpochFrame,
    EpochList,
    EpochWord,
    EpochWordDecoder,
    Handshake,
    encode_answer,
    encode_epoch_header,
    encode_epoch_list,
    encode_epoch_report,
    encode_handshake,
    encode_question,
)
from trocket.store.ha.epochs import EpochFile, Epochs
from trocket.store.ha.master import HaMaster
from trocket.store.ha.member import SetMember
from trocket.store.ha.slave import HaSlave
from trocket.store.ha.wire import Question, encode_header, encode_report
from trocket.store.message_store import MessageStore
from trocket.store.services import run_services
from trocket.store.writing.in_sync_acks import ConfirmedCopy

from ...kit import TrioClock
from ..support import ROOT, open_store


class HaPeer:
    """One end of a connection in memory."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self._buffer = b""

    async def report(self, offset: int) -> None:
        """Say as a slave what is there."""
        await self.stream.send_all(encode_report(offset))

    async def frame(self, offset: int, body: bytes = b"") -> None:
        """Send as a master."""
        await self.stream.send_all(encode_header(offset, len(body)) + body)

    async def answer(self, offset: int, kind: int) -> None:
        """Answer as a master of ours."""
        await self.stream.send_all(encode_header(offset, kind))

    async def words(self, *numbers: int) -> None:
        """Say numbers as a slave."""
        await self.stream.send_all(struct.pack(f">{len(numbers)}q", *numbers))

    async def next_frame(self) -> tuple[int, int, bytes]:
        """(offset, size, body) of what a master sends next; within 60 s."""
        offset, size = struct.unpack(">qi", await self._take(12))
        return offset, size, await self._take(max(size, 0))

    async def next_word(self) -> int:
        """What a slave says next; within 60 s."""
        (number,) = struct.unpack(">q", await self._take(8))
        return int(number)

    async def is_closed(self) -> bool:
        """Whether the other side closes the connection within 60 s, and has said why by then."""
        with trio.move_on_after(60):
            try:
                while await self.stream.receive_some(65536):
                    pass
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                pass
            await trio.testing.wait_all_tasks_blocked()
            return True
        return False

    async def _take(self, size: int) -> bytes:
        with trio.fail_after(60):
            while len(self._buffer) < size:
                data = await self.stream.receive_some(65536)
                assert data, "the other side has closed"
                self._buffer += data
        taken, self._buffer = self._buffer[:size], self._buffer[size:]
        return taken


class EpochPeer(HaPeer):
    """One end of a connection of controller mode."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        super().__init__(stream)
        self._decoder = EpochWordDecoder()
        self._words: list[EpochWord] = []

    async def send(self, data: bytes) -> None:
        """Send any bytes."""
        await self.stream.send_all(data)

    # As a slave:

    async def handshake(self, number: int, **flags: bool) -> None:
        """Begin as this member."""
        await self.send(encode_handshake(Handshake(number, **flags)))

    async def report(self, offset: int) -> None:
        """Say what is there."""
        await self.send(encode_epoch_report(offset))

    async def ask(self, start: int, end: int) -> None:
        """Ask for a checksum."""
        await self.send(encode_question(Question(start, end)))

    async def next_list(self) -> EpochList:
        """The master's epochs; within 60 s."""
        state, size, end, last = struct.unpack(">iiqi", await self._take(20))
        assert state == 1
        epochs = Epochs(struct.iter_unpack(">iq", await self._take(size)))
        assert epochs.last_number == last
        return EpochList(end, epochs)

    async def next_answer(self) -> tuple[int, int, int]:
        """(kind, value, epoch) of an answer; within 60 s."""
        kind, size, value, epoch = struct.unpack(">iiqi", await self._take(20))
        assert size == 0
        return kind, value, epoch

    async def next_epoch_frame(self) -> EpochFrame:
        """What a master sends next; within 60 s."""
        state, size, offset, epoch, start, confirmed = struct.unpack(
            ">iiqiqq", await self._take(36)
        )
        assert state == 2
        return EpochFrame(offset, 0, await self._take(size), epoch, start, confirmed)

    # As a master:

    async def next_message(self) -> EpochWord:
        """What a slave says next; within 60 s."""
        with trio.fail_after(60):
            while not self._words:
                data = await self.stream.receive_some(65536)
                assert data, "the other side has closed"
                self._words += self._decoder.feed(data)
        return self._words.pop(0)

    async def epochs(self, log_end: int, *entries: tuple[int, int]) -> None:
        """Answer a handshake."""
        await self.send(encode_epoch_list(log_end, Epochs(entries)))

    async def epoch_frame(
        self, offset: int, body: bytes = b"", *, epoch: int = 1, start: int = 0, confirmed: int = 0
    ) -> None:
        """Send a part of the log."""
        await self.send(encode_epoch_header(offset, len(body), epoch, start, confirmed) + body)

    async def epoch_answer(self, value: int, kind: int, epoch: int = 0) -> None:
        """Answer as a master of ours."""
        await self.send(encode_answer(value, kind, epoch))


def member(
    number: int, *entries: tuple[int, int], disk: Disk | None = None, **more: Any
) -> SetMember:
    """A member of a set, whose log has these epochs."""
    file = EpochFile(disk or MemoryDisk(), f"{ROOT}/epochFileCheckpoint")
    file.save(Epochs(entries))
    epoch = entries[-1][0] if entries else 0
    return SetMember(number, more.pop("epoch", epoch), file, **more)


class MasterUnderTest:
    """A running master."""

    def __init__(
        self, nursery: trio.Nursery, member: SetMember | None = None, **changes: Any
    ) -> None:
        self.store = open_store(clock=TrioClock(), **changes)
        self.ha = HaMaster(self.store, member)
        self._nursery = nursery

    def connect(self, address: str = "192.0.2.7:1", *, is_slow: bool = False) -> HaPeer:
        """A new slave's connection; a slow one takes nothing that is not asked for."""
        make = trio.testing.lockstep_stream_pair if is_slow else trio.testing.memory_stream_pair
        near, far = make()
        self._nursery.start_soon(self.ha.serve_stream, far, address)
        return HaPeer(near)

    def connect_member(self, address: str = "192.0.2.7:1") -> EpochPeer:
        """A new connection of controller mode."""
        near, far = trio.testing.memory_stream_pair()
        self._nursery.start_soon(self.ha.serve_stream, far, address)
        return EpochPeer(near)


@asynccontextmanager
async def master_under_test(
    member: SetMember | None = None, **changes: Any
) -> AsyncIterator[MasterUnderTest]:
    """A running master."""
    async with trio.open_nursery() as nursery:
        master = MasterUnderTest(nursery, member, **changes)
        await nursery.start(run_services, master.store)
        await nursery.start(master.ha.serve)
        yield master
        nursery.cancel_scope.cancel()


class SlaveUnderTest:
    """A running slave.

    Attributes:
      connects: when it connected, and to which address.
    """

    def __init__(self, store: MessageStore, address: str, member: SetMember | None = None) -> None:
        self.store = store
        self.ha = HaSlave(store, connect=self._connect, member=member)
        self.ha.set_master(address)
        self.connects: list[tuple[float, str]] = []
        self._send, self._receive = trio.open_memory_channel[EpochPeer](100)

    async def _connect(self, address: str) -> trio.abc.Stream:
        self.connects.append((trio.current_time(), address))
        near, far = trio.testing.memory_stream_pair()
        await self._send.send(EpochPeer(near))
        return far

    async def next_connection(self) -> EpochPeer:
        """The master's end of the next connection; within 60 s."""
        with trio.fail_after(60):
            return await self._receive.receive()


@asynccontextmanager
async def slave_under_test(
    disk: Disk | None = None, member: SetMember | None = None, **changes: Any
) -> AsyncIterator[SlaveUnderTest]:
    """A running slave; its log may have something already."""
    async with trio.open_nursery() as nursery:
        in_sync = ConfirmedCopy() if member is not None else None
        store = open_store(
            disk, clock=TrioClock(), broker_role=BrokerRole.SLAVE, in_sync=in_sync, **changes
        )
        slave = SlaveUnderTest(store, "192.0.2.1:10912", member)
        await nursery.start(run_services, store)
        nursery.start_soon(slave.ha.run)
        yield slave
        nursery.cancel_scope.cancel()
