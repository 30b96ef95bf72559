"""The slave's side of replication: follows its master's log.

Java counterpart: ha/DefaultHAClient.java of 5.3.3. The master may be Apache's; with a trocket
master the slave also compares the logs and identifies itself.

Use::

    slave = HaSlave(store)
    nursery.start_soon(slave.run)
    slave.set_master("192.0.2.7:10912")     # from the name servers' answer, or haMasterAddress
"""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import trio

from ...common.supervision import FailureLog, contained
from ...remoting.opener import CONNECT_TIMEOUT_S, split_address
from ..config import BrokerRole
from .copier import LogCopier
from .flow import FlowMeter
from .follow_terms import Agreed, AnyFrame, DefaultFollowTerms, FollowTerms, MemberFollowTerms
from .link import RECEIVE_SIZE, Link, LinkEnded, Piece
from .member import SetMember
from .tls import TlsError, ha_tls

if TYPE_CHECKING:
    from ..message_store import MessageStore

logger = logging.getLogger(__name__)

RECONNECT_S = 5.0
"""Between two connections. Source: DefaultHAClient.closeMasterAndWait."""

RECONNECT_FIRST_S = 0.1
"""The same in controller mode after a connection that worked; it doubles up to `RECONNECT_S`. A set
waits for its slaves, and a slave's log is cut between two connections."""

BACKLOG_SIZE = RECEIVE_SIZE // 2
"""Bytes received at once that show that the master sends faster than this slave takes them."""

INDEX_REST_S = 0.05
"""Pause of the index after `BACKLOG_SIZE` bytes: its entries take a third of a slave's time, and
until the log is copied its messages are on one machine only. Queries by key at the slave miss them
meanwhile; Apache's slaves build their index after the log, too."""

Connect = Callable[[str], Awaitable[trio.abc.Stream]]


async def connect_tcp(address: str) -> trio.abc.Stream:
    """Connect to `host:port`.

    Raises:
      OSError: the connection was refused, or not accepted within 3 s.
      ValueError: the address is invalid.
    """
    host, port = split_address(address)
    with trio.move_on_after(CONNECT_TIMEOUT_S):
        return await trio.open_tcp_stream(host, port)
    raise TimeoutError(f"no connection within {CONNECT_TIMEOUT_S:g} s")


class FollowerState(NamedTuple):
    """The state of a slave, for GET_BROKER_HA_STATUS.

    Attributes:
      master_address: `host:port`; "": unknown.
      is_connected: whether the master's log is being followed.
      log_end: physical offset of the end of the slave's log.
      last_read_s, last_write_s: seconds since the last receive from, or send to, the master; -1:
        not connected.
      per_second: bytes of the log received in the last whole second.
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
      member: its place in its set, in controller mode; None: the default mode.

    Raises:
      ConfigError: a file for TLS cannot be used.
    """

    def __init__(
        self,
        store: MessageStore,
        *,
        connect: Connect = connect_tcp,
        member: SetMember | None = None,
    ) -> None:
        assert store.config.broker_role is BrokerRole.SLAVE, "a master follows no other broker"
        self._store = store
        self._connect = connect
        self._tls = ha_tls(store.config)
        self._member = member
        self._address = store.config.ha_master_address
        if member is not None and member.master_ha_address:
            self._address = member.master_ha_address
        self._address_changed = trio.Event()
        self._attempt = trio.CancelScope()
        self._follower: LogFollower | None = None
        self._following = trio.Event()
        self._problem = ""
        self._attempts = 0  # since a connection that worked
        self._failures = FailureLog(logger)
        self._identity = random.SystemRandom().getrandbits(63)

    def set_master(self, address: str) -> None:
        """Follow the master at `host:port` from now on; "": none."""
        if address != self._address:
            self._address = address
            self._address_changed.set()
            self._attempt.cancel()

    def state(self) -> FollowerState:
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
        """Whether the master's log is followed: no difference between the logs was found."""
        return self._following.is_set()

    async def wait_following(self) -> None:
        """Wait until the master's log is being followed."""
        while not self._following.is_set():
            await self._following.wait()

    async def run(self) -> None:
        """Follow until cancelled; reconnect after a pause."""
        while True:
            self._address_changed = trio.Event()
            if not self._address:
                await self._address_changed.wait()
                continue
            with trio.CancelScope() as self._attempt:
                meaning = f"The log is not copied until the next connection, in {RECONNECT_S:g} s"
                with contained(self._failures, "following the master", meaning):
                    await self._follow(self._address)
                await trio.sleep(self._pause_s())

    def _pause_s(self) -> float:
        """Seconds until the next connection."""
        if self._member is None:
            return RECONNECT_S
        self._attempts += 1
        return min(RECONNECT_FIRST_S * float(1 << min(self._attempts - 1, 30)), RECONNECT_S)

    async def _follow(self, address: str) -> None:
        reason = self._store.trouble
        if reason:
            self._warn_once(address, reason)
            return
        try:
            stream = await self._connect(address)
            if self._tls is not None:
                stream = await self._tls.wrap(stream)
        except (OSError, ValueError, TlsError) as error:
            self._warn_once(address, f"no connection: {error}")
            return
        follower = self._follower = LogFollower(self._store, stream, self._identity, self._member)
        follower.on_following = self._following.set
        follower.on_taken = self._clear_problem
        try:
            await follower.link.run(follower.follow)
        finally:
            self._follower = None
            # A new event for the next connection: `set` cannot be taken back.
            if self._following.is_set():
                self._following = trio.Event()
        reason = follower.link.reason
        if self._tls is not None and not follower.link.has_read:
            reason += (
                ", before it sent anything: if it does not trust this broker's certificate, its "
                "log says so"
            )
        self._warn_once(address, reason)

    def _clear_problem(self) -> None:
        self._attempts = 0
        logger.info("the master's log at %(master)s is followed", {"master": self._address})
        self._problem = ""

    def _warn_once(self, address: str, problem: str) -> None:
        """Log a problem unless it is the same as before."""
        if problem != self._problem:
            self._problem = problem
            logger.warning(
                "the master's log at %(master)s is not followed: %(problem)s",
                {"master": address, "problem": problem},
            )


class LogFollower:
    """One connection to a master.

    Args:
      store: of a slave.
      stream: connected.
      identity: by which the master recognizes this slave in the default mode.
      member: the slave's place in its set; None: the default mode.

    Attributes:
      on_following: called once the master has accepted this slave.
      on_taken: called once its first frames are verified.
    """

    def __init__(
        self,
        store: MessageStore,
        stream: trio.abc.Stream,
        identity: int,
        member: SetMember | None = None,
    ) -> None:
        config = store.config
        self.link = Link(stream, silence_s=config.ha_housekeeping_interval / 1000, flow=FlowMeter())
        self.on_following: Callable[[], None] = _ignore
        self.on_taken: Callable[[], None] = _ignore
        self._store = store
        self._acks_after_flush = store.writer.sync_flush and config.slave_ack_after_flush
        self._terms: FollowTerms
        if member is None:
            self._terms = DefaultFollowTerms(store, self.link, identity)
        else:
            self._terms = MemberFollowTerms(store, self.link, member)
        self._agreed = Agreed(0)
        self._reported = 0
        self._rest: Sequence[Piece] = ()  # of what `_report_at_once` began
        self._resting: trio.Event | None = None  # set to wake `_report`
        self._copier: LogCopier | None = None

    async def follow(self) -> None:
        """Follow the master's log until the connection ends."""
        store = self._store
        if self._acks_after_flush:
            # The first report is an acknowledgement like any other.
            await store.flusher.flush_in_thread(threaded=store.disk.threaded)
        self._agreed = await self._terms.agree()
        self._reported = self._agreed.requested
        self.on_following()
        await self.link.side_by_side(self._copy, self._report)

    # ---- the transfer --------------------------------------------------------------------

    async def _copy(self) -> None:
        terms = self._terms
        is_proved = False
        while True:
            for run in await terms.runs():
                if self._take(run) >= BACKLOG_SIZE:
                    self._store.index.rest(INDEX_REST_S)
                if run and not is_proved:
                    is_proved = True
                    self.on_taken()
            self._report_at_once()

    def _take(self, frames: Sequence[AnyFrame]) -> int:
        """Append the bodies of the frames; returns their size.

        Raises:
          LinkEnded: they do not follow the end of the log.
          CopyError, StoreIOError: they cannot be appended.
        """
        bodies = []
        requested = self._agreed.requested
        copier, arrived = self._copier, 0
        for frame in frames:
            if copier is None and frame.body:
                copier = self._begin(frame.offset)
            expected = copier.received_offset + arrived if copier is not None else requested
            # An empty frame keeps the connection alive; its offset means nothing to an empty log.
            if frame.offset != expected and (frame.body or expected):
                raise LinkEnded(
                    f"the master sent offset {frame.offset}, this log continues at {expected}"
                )
            bodies.append(frame.body)
            arrived += len(frame.body)
        if arrived and copier is not None:
            self.link.flow.add(arrived)
            copier.take(*bodies)
        return arrived

    def _begin(self, offset: int) -> LogCopier:
        own_from = self._agreed.own_from
        is_ours = own_from is not None and own_from <= offset
        self._copier = LogCopier(self._store, is_ours=is_ours)
        if self._agreed.requested == 0:
            self._copier.begin_at(offset)
        return self._copier

    def _report_at_once(self) -> None:
        """Acknowledge what was just appended, if the connection is idle.

        Raises: LinkEnded: the connection is broken, or the store has become read-only.
        """
        reportable, resting = self._reportable, self._resting
        if reportable <= self._reported or resting is None or resting.is_set():
            return
        if self._store.read_only:
            raise LinkEnded(self._store.trouble)
        # On a SYNC_MASTER sends wait for this; `_report` would run in the next turn of the event
        # loop.
        self._reported = reportable
        self._rest = self.link.send_nowait([self._terms.report(reportable)])
        if self._rest:
            resting.set()

    async def _report(self) -> None:
        """Acknowledge after each fsync under SYNC_FLUSH, after a pause of the connection, and
        whenever `_report_at_once` could not."""
        link, store = self.link, self._store
        interval_s = store.config.ha_send_heartbeat_interval / 1000
        listeners = store.activity.listeners
        listeners.append(self._wake)
        try:
            while True:
                if self._rest:
                    rest, self._rest = self._rest, ()
                    await link.send(rest)
                if self._reportable <= self._reported:
                    self._resting = trio.Event()
                    # The master closes a connection from which it hears nothing, so silence ends
                    # with a report.
                    with trio.move_on_at(link.last_write_s + interval_s):
                        await self._resting.wait()
                    self._resting = None
                if store.read_only:
                    raise LinkEnded(store.trouble)
                is_silent = trio.current_time() >= link.last_write_s + interval_s
                if not self._rest and (is_silent or self._reportable > self._reported):
                    self._reported = max(self._reportable, self._reported)
                    await link.send([self._terms.report(self._reported)])
        finally:
            listeners.remove(self._wake)

    def _wake(self) -> None:
        """Let `_report` acknowledge an fsync."""
        if self._acks_after_flush and self._resting is not None:
            self._resting.set()

    @property
    def _reportable(self) -> int:
        """Physical offset up to which this slave acknowledges the log."""
        store = self._store
        return store.flusher.flushed_offset if self._acks_after_flush else store.max_physical_offset


def _ignore() -> None:
    pass
