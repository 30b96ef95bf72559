"""The trio loop in a relay's thread: its ports and connections.

Each direction of a connection has a task that receives and one that sends, with a bounded channel
between them: so a delay adds latency and leaves the throughput as it is.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Final

import trio

from ..common.clock import SystemClock
from ..remoting.opener import split_address
from ..testing.recording.frame_stream import Conversation, SeenFrame
from .process import PeerError
from .relay_faults import Faults

CHUNK_SIZE: Final = 64 << 10
"""Bytes read at once."""
CHUNKS_WAITING_MAX: Final = 256
"""Chunks of one direction in transit; beyond, the sender waits: TCP's backpressure."""
CONNECT_TIMEOUT_S: Final = 5.0
CLOSE_TIMEOUT_S: Final = 10.0
ALIVE_CHECK_S: Final = 0.2
"""How often a thread that waits for the loop checks that it still runs."""
BACKLOG: Final = 128

OnFrame = Callable[[SeenFrame], None]
"""Called in the relay's thread with each frame, as its sender sent it, before it is forwarded; must
not raise. It may call the methods of `Faults`."""

Rewritten = Callable[[SeenFrame], bytes]
"""Maps a frame of the server to the bytes that are forwarded instead."""


class RelayLoop:
    """A trio loop in a thread, with any number of listening ports; each relay has one."""

    def __init__(self, faults: Faults, on_frame: OnFrame | None) -> None:
        self.faults = faults
        self.on_frame = on_frame
        self.clock = SystemClock()
        self._connections: set[_Connection] = set()
        self._connection_count = 0
        self._listeners: list[_Listener] = []
        self._changed = trio.Event()
        self._error: BaseException | None = None
        self._is_ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="relay", daemon=True)
        self._thread.start()
        self._is_ready.wait()
        faults.add_listener(self)

    # ---- from any thread -----------------------------------------------------------------

    def call(self, do: Callable[[], None]) -> None:
        """Call a function in the loop and wait for it; do nothing if the loop has ended.

        Raises: whatever `do` raised.
        """
        if threading.current_thread() is self._thread:
            do()
            return
        done = threading.Event()
        errors: list[Exception] = []

        def run() -> None:
            try:
                do()
            except Exception as error:  # noqa: BLE001 - raised again in the calling thread
                errors.append(error)
            done.set()

        with contextlib.suppress(trio.RunFinishedError):
            self._token.run_sync_soon(run)
            while not done.wait(ALIVE_CHECK_S) and self._thread.is_alive():
                pass
        if errors:
            raise errors[0]

    def listen(self, host: str, port: int, target: str, rewritten: Rewritten | None = None) -> None:
        """Open a port whose connections go to `target`. Raises: OSError: the port is in use."""

        def do() -> None:
            listener = _Listener(self, host, port, target, rewritten)
            self._listeners.append(listener)
            self.nursery.start_soon(listener.serve)

        self.call(do)

    def wake(self) -> None:
        """Wake the tasks that wait for a change of the faults."""

        def do() -> None:
            self._changed.set()
            self._changed = trio.Event()

        self.call(do)

    def apply_refusal(self) -> None:
        """Close or open the ports."""

        def do() -> None:
            for listener in self._listeners:
                listener.apply_refusal()
            self.wake()

        self.call(do)

    def cut(self) -> None:
        """Close all connections."""

        def do() -> None:
            for connection in list(self._connections):
                connection.cut()

        self.call(do)

    def abandon(self, to_server: bool | None) -> None:
        """Forward nothing more on the present connections, in one direction or (None) both."""

        def do() -> None:
            for connection in self._connections:
                connection.abandon(to_server)

        self.call(do)

    def close(self) -> None:
        """End the thread. Raises: PeerError: an error had ended the loop before."""
        self.faults.remove_listener(self)
        self.call(lambda: self.nursery.cancel_scope.cancel())
        self._thread.join(CLOSE_TIMEOUT_S)
        if self._error is not None:
            raise PeerError(f"the relay failed: {self._error!r}") from self._error

    # ---- in the loop ---------------------------------------------------------------------

    def _run(self) -> None:
        try:
            trio.run(self._main)
        except Exception as error:  # noqa: BLE001 - a thread's top; raised again by close
            self._error = error
        finally:
            self._is_ready.set()

    async def _main(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        try:
            async with trio.open_nursery() as self.nursery:
                self._is_ready.set()
                await trio.sleep_forever()
        finally:
            for listener in self._listeners:
                listener.close()

    async def wait_changed(self) -> None:
        """Wait for the next `wake`."""
        await self._changed.wait()

    async def relay(
        self, client: trio.SocketStream, target: str, rewritten: Rewritten | None
    ) -> None:
        """Serve one connection until it ends."""
        host, port = split_address(target)
        self._connection_count += 1
        number = self._connection_count
        async with client:
            try:
                peer = client.socket.getpeername()
                with trio.fail_after(CONNECT_TIMEOUT_S):
                    server = await trio.open_tcp_stream(host, port)
            except (OSError, trio.TooSlowError):
                return  # the client finds its connection closed
            seen = SeenFrame(
                b"", 0, True, connection=number, client=f"{peer[0]}:{peer[1]}", server=target
            )
            connection = _Connection(self, client, server, Conversation(seen), rewritten)
            self._connections.add(connection)
            try:
                async with server:
                    await self._run_connection(connection)
            finally:
                self._connections.discard(connection)

    async def _run_connection(self, connection: _Connection) -> None:
        try:
            await connection.run()
        except Exception as error:  # noqa: BLE001 - a task's top; raised again by close
            # Saved here: closing the streams may replace it by a cancellation.
            self._error = error
            self.nursery.cancel_scope.cancel()


class _Listener:
    """A port and the server that its connections go to."""

    def __init__(
        self, loop: RelayLoop, host: str, port: int, target: str, rewritten: Rewritten | None
    ) -> None:
        self._loop = loop
        self._address = host, port
        self._target = target
        self._rewritten = rewritten
        self._socket = self._bound()
        self._is_listening = False
        self.apply_refusal()

    def _bound(self) -> trio.socket.SocketType:
        """The port, bound but not listening, so that connections are refused."""
        family = socket.AF_INET6 if ":" in self._address[0] else socket.AF_INET
        plain = socket.socket(family, socket.SOCK_STREAM)
        try:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            plain.bind(self._address)
        except OSError:
            plain.close()
            raise
        return trio.socket.from_stdlib_socket(plain)

    def apply_refusal(self) -> None:
        """Refuse or accept connections as the faults say; the port stays bound."""
        refusing = self._loop.faults.is_refusing
        if refusing and self._is_listening:
            self._socket.close()
            self._socket = self._bound()
        elif not refusing and not self._is_listening:
            self._socket.listen(BACKLOG)
        self._is_listening = not refusing

    def close(self) -> None:
        self._socket.close()

    async def serve(self) -> None:
        """Accept connections until the loop ends."""
        while True:
            while not self._is_listening:
                await self._loop.wait_changed()
            # Closed by `apply_refusal`, or reset by the client before it was accepted.
            with contextlib.suppress(trio.ClosedResourceError, ConnectionError):
                accepted, _ = await self._socket.accept()
                self._loop.nursery.start_soon(
                    self._loop.relay, trio.SocketStream(accepted), self._target, self._rewritten
                )


class _Connection:
    """A client's connection and the matching one to the server."""

    def __init__(
        self,
        loop: RelayLoop,
        client: trio.SocketStream,
        server: trio.SocketStream,
        conversation: Conversation,
        rewritten: Rewritten | None,
    ) -> None:
        self._loop = loop
        self._faults = loop.faults
        self._conversation = conversation
        self._scope = trio.CancelScope()
        self._directions = {
            True: _Direction(client, server, None),
            False: _Direction(server, client, rewritten),
        }

    async def run(self) -> None:
        """Forward until both sides have ended or the connection is cut."""
        with self._scope:
            async with trio.open_nursery() as nursery:
                for to_server in (True, False):
                    put, take = trio.open_memory_channel[tuple[float, bytes]](CHUNKS_WAITING_MAX)
                    nursery.start_soon(self._receive, to_server, put)
                    nursery.start_soon(self._send, to_server, take)

    def cut(self) -> None:
        """Close both sides now."""
        if not self._scope.cancel_called:
            self._faults.cut_count += 1
            self._scope.cancel()
            for direction in self._directions.values():
                direction.sink.socket.close()

    def abandon(self, to_server: bool | None) -> None:
        """Forward nothing more in one direction or (None) both; the connection stays open."""
        for is_to_server, direction in self._directions.items():
            direction.is_abandoned |= to_server in (None, is_to_server)

    async def _receive(
        self, to_server: bool, put: trio.MemorySendChannel[tuple[float, bytes]]
    ) -> None:
        direction = self._directions[to_server]
        due_s = 0.0
        with put:
            while data := await direction.receive():
                # Jitter must not reorder chunks.
                due_s = max(due_s, trio.current_time() + self._faults.next_delay_s())
                for piece in self._inspect(to_server, data):
                    await put.send((due_s, piece))
            rest = self._conversation.receive_eof(to_server, self._loop.clock.wall_ms())
            self._report(rest)
            if direction.rewritten is not None:
                for frame in rest:
                    await put.send((due_s, frame.data))

    def _inspect(self, to_server: bool, data: bytes) -> list[bytes]:
        """Report the frames in received data, plan a cut, and return the bytes to forward."""
        direction = self._directions[to_server]
        begin = self._conversation.splitter(to_server).position
        frames = self._conversation.receive_data(to_server, data, self._loop.clock.wall_ms())
        self._report(frames)
        if direction.rewritten is not None:
            pieces = [direction.rewritten(frame) for frame in frames]
            for frame, piece in zip(frames, pieces, strict=True):
                if frame.is_frame:
                    self._plan_cut(to_server, direction.planned_size, len(piece))
                direction.planned_size += len(piece)
            return pieces
        starts = [(frame.offset, len(frame.data) if frame.is_frame else None) for frame in frames]
        last, last_size = self._conversation.splitter(to_server).unfinished
        if last_size is not None:
            starts.append((last, last_size))
        for offset, size in starts:
            if offset >= begin:
                self._plan_cut(to_server, offset, size)
        return [data]

    def _report(self, frames: list[SeenFrame]) -> None:
        if self._loop.on_frame is not None:
            for frame in frames:
                self._loop.on_frame(frame)

    def _plan_cut(self, to_server: bool, offset: int, size: int | None) -> None:
        """Apply a wanted cut to the frame at `offset` of the forwarded bytes.

        Args:
          size: None: these bytes are not a frame.
        """
        direction = self._directions[to_server]
        byte_count = self._faults.take_cut(to_server) if direction.cut_at is None else None
        if byte_count is not None:
            direction.cut_at = offset + (byte_count if size is None else min(byte_count, size - 1))

    async def _send(
        self, to_server: bool, take: trio.MemoryReceiveChannel[tuple[float, bytes]]
    ) -> None:
        direction = self._directions[to_server]
        try:
            async for due_s, data in take:
                await trio.sleep_until(due_s)
                await self._forward(direction, data)
            await self._wait_released(direction)
            if direction.is_broken:
                await direction.sink.aclose()
            else:
                await direction.sink.send_eof()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            # The receiver is gone: end the sender's connection, too.
            self._scope.cancel()

    async def _forward(self, direction: _Direction, data: bytes) -> None:
        left = len(data) if direction.cut_at is None else direction.cut_at - direction.passed_size
        rest = memoryview(data)[:left]
        while rest:
            await self._wait_released(direction)
            size = self._faults.split_bytes or len(rest)
            await direction.sink.send_all(rest[:size])
            direction.passed_size += len(rest[:size])
            rest = rest[size:]
            if rest and self._faults.split_pause_s:
                await trio.sleep(self._faults.split_pause_s)
        if left < len(data):
            self.cut()

    async def _wait_released(self, direction: _Direction) -> None:
        while self._faults.is_held or direction.is_abandoned:
            await self._loop.wait_changed()


class _Direction:
    """One direction of a connection.

    Attributes:
      cut_at: bytes to forward before the connection is cut; None: no limit.
      passed_size: bytes forwarded so far.
      planned_size: bytes to forward, of rewritten frames.
      is_broken: the source did not end gracefully.
      is_abandoned: nothing more is forwarded.
    """

    def __init__(
        self, source: trio.SocketStream, sink: trio.SocketStream, rewritten: Rewritten | None
    ) -> None:
        self.source = source
        self.sink = sink
        self.rewritten = rewritten
        self.cut_at: int | None = None
        self.passed_size = 0
        self.planned_size = 0
        self.is_broken = False
        self.is_abandoned = False

    async def receive(self) -> bytes:
        """The next bytes; empty: the source has ended."""
        try:
            return await self.source.receive_some(CHUNK_SIZE)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self.is_broken = True
            return b""
