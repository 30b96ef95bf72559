"""The slave's side of replication: follows its master's log.

Java counterpart: ha/DefaultHAClient.java of 5.3.3. The master may be Apache's; what ours can do
beyond that (compare the logs, be known again) is done where it is not.

Use::

    slave = HaSlave(store)
    nursery.start_soon(slave.run)
    slave.set_master("192.0.2.7:10912")     # from the name servers' answer, or haMasterAddress
"""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple

import trio

from ...common.supervision import FailureLog, contained
from ...remoting.client import CONNECT_TIMEOUT_S, split_address
from ..config import BrokerRole
from .copier import LogCopier
from .flow import FlowMeter
from .link import RECEIVE_SIZE, Link, LinkEnded
from .log_check import checksum, parting_offset
from .tls import TlsError, ha_tls
from .wire import (
    CHECKSUM,
    NO_CHECKSUM,
    READY,
    REFUSED,
    Frame,
    FrameDecoder,
    Hello,
    Identity,
    Question,
    encode_report,
    encode_words,
)

if TYPE_CHECKING:
    from ..message_store import MessageStore

logger = logging.getLogger(__name__)

RECONNECT_S = 5.0
"""Between two connections. Source: DefaultHAClient.closeMasterAndWait."""

MUCH = RECEIVE_SIZE // 2
"""Bytes that came at once: the master sends faster than we take it."""

INDEX_REST_S = 0.05
"""How long the index waits after `MUCH` came: its entries take a third of a slave's time, and until
the log is here its messages are on one machine only. Look-ups by key at the slave miss them so
long; Apache's slaves make their index after the log, too."""

Connect = Callable[[str], Awaitable[trio.abc.Stream]]


async def connect_tcp(address: str) -> trio.abc.Stream:
    """Connect to `host:port`.

    Raises:
      OSError: nobody listens there, or not within 3 s.
      ValueError: it is no address.
    """
    host, port = split_address(address)
    with trio.move_on_after(CONNECT_TIMEOUT_S):
        return await trio.open_tcp_stream(host, port)
    raise TimeoutError(f"no connection within {CONNECT_TIMEOUT_S:g} s")


class FollowerState(NamedTuple):
    """Where a slave is; GET_BROKER_HA_STATUS tells these.

    Attributes:
      master_address: `host:port`; "": not known.
      is_connected: whether its log is being followed.
      log_end: physical offset at which our log ends.
      last_read_s, last_write_s: seconds since something came from the master, or went there; -1:
        not connected.
      per_second: bytes of the log that came in the last whole second.
      problem: why the log is not followed, or was not last time; "": nothing is wrong.
    """

    master_address: str
    is_connected: bool
    log_end: int
    last_read_s: float
    last_write_s: float
    per_second: int
    problem: str


class HaSlave:
    """Follows a master. Owned by the store's task.

    Args:
      store: of a slave, loaded.
      connect: opens a connection; raises OSError or ValueError.

    Raises:
      ConfigError: a file for TLS cannot be used.
    """

    def __init__(self, store: MessageStore, *, connect: Connect = connect_tcp) -> None:
        assert store.config.broker_role is BrokerRole.SLAVE, "masters follow nobody"
        self._store = store
        self._connect = connect
        self._tls = ha_tls(store.config)
        self._address = store.config.ha_master_address
        self._address_changed = trio.Event()
        self._attempt = trio.CancelScope()
        self._follower: LogFollower | None = None
        self._following = trio.Event()
        self._problem = ""
        self._failures = FailureLog(logger)
        self._identity = random.SystemRandom().getrandbits(63)

    def set_master(self, address: str) -> None:
        """Follow the master at `host:port` from now on; "": none."""
        if address != self._address:
            self._address = address
            self._address_changed.set()
            self._attempt.cancel()

    def state(self) -> FollowerState:
        """Where the slave is now."""
        follower, now_s = self._follower, trio.current_time()
        return FollowerState(
            self._address,
            self.is_following,
            self._store.max_physical_offset,
            now_s - follower.link.last_read_s if follower is not None else -1.0,
            now_s - follower.link.last_write_s if follower is not None else -1.0,
            follower.link.flow.per_second if follower is not None else 0,
            self._problem,
        )

    @property
    def is_following(self) -> bool:
        """Whether the master's log is followed: ours is the same, as far as that can be told."""
        return self._following.is_set()

    async def wait_following(self) -> None:
        """Wait until the master's log is being followed."""
        while not self._following.is_set():
            await self._following.wait()

    async def run(self) -> None:
        """Follow until cancelled: connect, and 5 s after each end connect again."""
        while True:
            self._address_changed = trio.Event()
            if not self._address:
                await self._address_changed.wait()
                continue
            with trio.CancelScope() as self._attempt:
                meaning = f"The log is not copied until the next connection, in {RECONNECT_S:g} s"
                with contained(self._failures, "following the master", meaning):
                    await self._follow(self._address)
                await trio.sleep(RECONNECT_S)

    async def _follow(self, address: str) -> None:
        reason = self._store.trouble
        if reason:
            self._say(address, reason)
            return
        try:
            stream = await self._connect(address)
            if self._tls is not None:
                stream = await self._tls.wrap(stream)
        except (OSError, ValueError, TlsError) as error:
            self._say(address, f"no connection: {error}")
            return
        follower = self._follower = LogFollower(self._store, stream, self._identity)
        follower.on_following = self._following.set
        follower.on_taken = self._nothing_wrong
        try:
            await follower.link.run(follower.follow)
        finally:
            self._follower = None
            if self._following.is_set():
                self._following = trio.Event()
        reason = follower.link.reason
        if self._tls is not None and not follower.link.has_read:
            reason += (
                ", before it said anything: if it does not trust our certificate, it logs that"
            )
        self._say(address, reason)

    def _nothing_wrong(self) -> None:
        logger.info("the master's log at %s is followed", self._address)
        self._problem = ""

    def _say(self, address: str, problem: str) -> None:
        """Log it, once until something else is the case."""
        if problem != self._problem:
            self._problem = problem
            logger.warning("the master's log at %s is not followed: %s", address, problem)


class LogFollower:
    """One connection to a master.

    Args:
      store: of a slave.
      stream: connected.
      identity: by what the master knows us again.

    Attributes:
      link: the connection.
      on_following: called once the master sends its log, or will.
      on_taken: called once what it sends has proved right.
    """

    def __init__(self, store: MessageStore, stream: trio.abc.Stream, identity: int) -> None:
        config = store.config
        self.link = Link(stream, silence_s=config.ha_housekeeping_interval / 1000, flow=FlowMeter())
        self.on_following: Callable[[], None] = _nobody
        self.on_taken: Callable[[], None] = _nobody
        self._store = store
        self._identity = identity
        self._acks_after_flush = store.writer.sync_flush and config.slave_ack_after_flush
        self._decoder = FrameDecoder(with_answers=config.ha_log_check_enable)
        self._frames: list[Frame] = []
        self._requested = 0
        self._own_from: int | None = None
        self._copier: LogCopier | None = None

    async def follow(self) -> None:
        """Follow the master's log until the connection ends."""
        store = self._store
        if self._acks_after_flush:
            # The first report is an acknowledgement like any other.
            await store.flusher.flush_in_thread(threaded=store.disk.threaded)
        await self._agree()
        self.on_following()
        await self.link.side_by_side(self._copy, self._report)

    # ---- before the transfer -------------------------------------------------------------

    async def _agree(self) -> None:
        """Say where our log ends; if the master is one of ours, compare what we both have.

        Raises:
          LinkEnded: the logs differ, or the master cannot send what follows.
        """
        self._requested = end = self._store.max_physical_offset
        if not self._store.config.ha_log_check_enable:
            await self.link.send([encode_report(end)])
            return
        await self.link.send([encode_words(Hello(), end)])
        frame = await self._next_frame()
        if frame.kind == REFUSED:
            side = "begins" if frame.offset > end else "ends"
            raise LinkEnded(
                f"our log ends at {end}, the master's {side} at {frame.offset}; its log file says "
                "what can be done"
            )
        if frame.kind != READY:
            self._frames.insert(0, frame)  # Apache's: it has begun
            return
        self._own_from = frame.offset
        parts_at = await parting_offset(self._is_same, self._store.min_physical_offset, end)
        if parts_at is not None:
            raise LinkEnded(
                f"our log is not the master's from offset {parts_at} on, and ends at {end}. If "
                "what we have from there on is to be kept, make this broker the master; else stop "
                "it, empty its store, and start it again"
            )
        await self.link.send([encode_words(Identity(self._identity), end)])

    async def _is_same(self, start: int, end: int) -> bool:
        await self.link.send([encode_words(Question(start, end))])
        theirs = await self._next_frame()
        if theirs.kind != CHECKSUM:
            raise LinkEnded("the master does not answer what it was asked")
        ours = await checksum(self._store.log, start, end)
        return ours is None or theirs.offset in (NO_CHECKSUM, ours)

    async def _next_frame(self) -> Frame:
        while not self._frames:
            self._frames = self._decoder.feed(await self.link.receive())
        return self._frames.pop(0)

    # ---- the transfer --------------------------------------------------------------------

    async def _copy(self) -> None:
        frames, self._frames = self._frames, []
        is_proved = False
        while True:
            self._take(frames)
            if frames and not is_proved:
                is_proved = True
                self.on_taken()
            data = await self.link.receive()
            if len(data) >= MUCH:
                self._store.index.rest(INDEX_REST_S)
            frames = self._decoder.feed(data)

    def _take(self, frames: list[Frame]) -> None:
        """Append what the frames bring.

        Raises:
          LinkEnded: it does not follow where our log ends.
          CopyError, StoreIOError: it cannot be appended.
        """
        bodies = []
        copier, arrived = self._copier, 0
        for frame in frames:
            if frame.kind:
                raise LinkEnded("the master answers what it was not asked")
            if copier is None and frame.body:
                copier = self._begin(frame.offset)
            expected = copier.received_offset + arrived if copier is not None else self._requested
            if frame.offset != expected and (frame.body or expected):
                raise LinkEnded(
                    f"the master sends what begins at {frame.offset}, we need what follows "
                    f"{expected}"
                )
            bodies.append(frame.body)
            arrived += len(frame.body)
        if arrived and copier is not None:
            self.link.flow.add(arrived)
            copier.take(*bodies)

    def _begin(self, offset: int) -> LogCopier:
        is_ours = self._own_from is not None and self._own_from <= offset
        self._copier = LogCopier(self._store, is_ours=is_ours)
        if self._requested == 0:
            self._copier.begin_at(offset)
        return self._copier

    async def _report(self) -> None:
        link, store = self.link, self._store
        interval_s = store.config.ha_send_heartbeat_interval / 1000
        reported = self._requested
        while True:
            is_silent = False
            if self._reportable <= reported:
                with trio.move_on_at(link.last_write_s + interval_s) as scope:
                    await store.activity.wait_for_more()
                is_silent = scope.cancelled_caught
            if store.read_only:
                raise LinkEnded(store.trouble)
            if is_silent or self._reportable > reported:
                reported = max(self._reportable, reported)
                await link.send([encode_report(reported)])

    @property
    def _reportable(self) -> int:
        """Physical offset up to which the master may count on us."""
        store = self._store
        return store.flusher.flushed_offset if self._acks_after_flush else store.max_physical_offset


def _nobody() -> None:
    """Nobody wants to know."""
