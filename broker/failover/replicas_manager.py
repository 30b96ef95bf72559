"""ReplicasManager: keeps a broker's place in its set, by what the controllers say.

It joins the set, sends heartbeats, asks for the set's state, asks for elections, and, on a master,
asks for changes of the in-sync set. What the broker then does is in `roles.py`; `set_broker.py`
does it.

Source: ReplicasManager of RocketMQ 5.5.0.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

import trio

from ...common.clock import Clock
from ...common.supervision import FailureLog, Supervisor, contained
from ...remoting.errors import RemotingError, RequestRefused
from ...remoting.headers import BrokerHeartbeatRequestHeader
from ...remoting.response_codes import ResponseCode
from ..settings.config import BrokerConfig
from .controllers import Controllers
from .identity import Application, IdentityFiles
from .in_sync_duty import InSyncDuty
from .lease import LEASE_SHARE, Lease
from .roles import ACTIONS, Action, Event, Place, Role, SetView, event_of, place_after
from .set_api import InSync, RefusedError, SetApi

logger = logging.getLogger(__name__)

RETRY_S: Final = 1.0
"""Before the first steps are tried again that a broker cannot do without: it has no role yet."""

ELECT_AGAIN_S: Final = 1.0
"""Between two requests for an election."""

IN_SYNC_LOOK_S: Final = 0.25
"""Between two looks at the in-sync set, so that a slave that has caught up joins it soon; RocketMQ
looks every checkSyncStateSetPeriod, 5 s, which is the limit here."""

HELD_LOOK_S: Final = 0.01
"""The same while confirmations wait for a slave that is about to join."""

SILENT_TIMEOUTS: Final = 2
"""Time-outs for which a master that may lack messages sends no heartbeats: one to be missed, and
another one for the election."""


class LogState(NamedTuple):
    """What a heartbeat says of the log.

    Attributes:
      epoch: the last one; -1: none.
      max_offset, confirm_offset: physical offsets.
    """

    epoch: int = -1
    max_offset: int = 0
    confirm_offset: int = 0


class ReplicasManager:
    """The broker's side of its set.

    Args:
      config: the broker's.
      address: the `host:port` that it advertises.
      log_state: returns what the next heartbeat says.
      on_place: called with each new place: the broker is to be opened again in that role.
      on_lease: called when the lease holds again after it had ended.
      first_epoch: the last one of the epoch file; 0: none.
      may_have_lost: the last messages may be missing, after a power cut or with a disk that failed:
        another member of the in-sync set is to be the master, if there is one.

    Attributes:
      controller_id: the permanent id; None: the broker has none yet.
      place: the broker's.
      view: the newest of the set; None: no controller has answered yet.
      duty: the in-sync set; None: the broker is no master.
      lease: see `Lease`.
    """

    def __init__(
        self,
        config: BrokerConfig,
        controllers: Controllers,
        files: IdentityFiles,
        *,
        address: str,
        clock: Clock,
        log_state: Callable[[], LogState],
        on_place: Callable[[Place, SetView], None],
        on_lease: Callable[[], None],
        first_epoch: int = 0,
        may_have_lost: bool = False,
    ) -> None:
        self.controller_id = files.controller_id()
        self.place = Place(Role.WAITING, first_epoch)
        self.view: SetView | None = None
        self.duty: InSyncDuty | None = None
        self.lease = Lease(clock, config.controller_heart_beat_timeout_mills / 1000 * LEASE_SHARE)
        self._config = config
        self._controllers = controllers
        self._files = files
        self._address = address
        self._clock = clock
        self._log_state = log_state
        self._on_place = on_place
        self._on_lease = on_lease
        self._api = SetApi(controllers, config.broker_cluster_name, config.broker_name, clock)
        self._may_have_lost = may_have_lost
        self._silent_until_s = 0.0
        self._asked = trio.Event()
        self._beating: set[str] = set()
        self._elect_again_s = 0.0
        self._warned = ""
        self._failures = FailureLog(logger)

    async def run(self) -> None:
        """Join the set, and keep the broker's place, until cancelled."""
        async with trio.open_nursery() as nursery:
            services = Supervisor(nursery, logger)
            leader_s = self._config.sync_controller_metadata_period / 1000
            services.every("the search for the controller", leader_s, self._controllers.find_leader)
            own_id = await self._join()
            services.start_soon("the heartbeats to controllers", self._beat, own_id, nursery)
            await self._register(own_id)
            services.start_soon("the look at the in-sync set", self._keep_in_sync, own_id)
            services.start_soon("the question for the set", self._follow, own_id)

    def ask_again(self) -> None:
        """Ask the controller for the state of the set now."""
        self._asked.set()

    # ---- joining the set -----------------------------------------------------------------

    async def _join(self) -> int:
        """The permanent id, which a new broker applies for until a controller gives it one."""
        while self.controller_id is None:
            with self._tolerated("the broker has no permanent id yet"):
                self.controller_id = await self._apply()
                logger.info(
                    "this broker is number %(id)d of its set from now on",
                    {"id": self.controller_id},
                )
                break
            await trio.sleep(RETRY_S)
        return self.controller_id

    async def _apply(self) -> int:
        application = self._files.application()
        if application is None:
            code = f"{self._address};{self._clock.wall_ms()}"
            application = Application(await self._api.next_id(), code)
            self._files.note_application(application)
        try:
            await self._api.apply(application)
        except RefusedError as error:
            # Another broker was faster: the next attempt asks for another id.
            if error.code == ResponseCode.CONTROLLER_BROKER_ID_INVALID:
                self._files.forget_application()
            raise
        self._files.settle(application.controller_id)
        return application.controller_id

    async def _register(self, own_id: int) -> None:
        """Register until the controller has taken it; without a master, ask for an election."""
        while True:
            with self._tolerated("the broker has no role yet"):
                sent_s = self._clock.elapsed_s()
                view = await self._api.register(own_id, self._address)
                # Without a heartbeat the controller would not regard this broker as alive.
                await self._beat_once(own_id)
                if view is None:
                    sent_s = self._clock.elapsed_s()
                    view = await self._api.elect(own_id)
                self._consider(view, own_id, sent_s)
                return
            await trio.sleep(RETRY_S)

    def step_back(self) -> None:
        """Wait for a role as after a start; the store has failed, and may lack messages.

        A broker that waits already goes on with its silence, in which another one is elected.
        """
        if self.place.role is Role.WAITING:
            return
        was_master = self.place.role is Role.MASTER
        self.place = Place(Role.WAITING, self.place.epoch)
        self.duty = None
        self._may_have_lost, self._silent_until_s = was_master, 0.0
        self.ask_again()

    # ---- heartbeats ----------------------------------------------------------------------

    async def _beat(self, own_id: int, nursery: trio.Nursery) -> None:
        """Send heartbeats at intervals; one controller that hangs delays none to another."""
        interval_s = self._config.broker_heartbeat_interval / 1000
        while True:
            if self._clock.elapsed_s() >= self._silent_until_s:
                for address in sorted(self._controllers.addresses - self._beating):
                    nursery.start_soon(self._beat_to, own_id, address)
            await trio.sleep(interval_s)

    async def _beat_once(self, own_id: int) -> None:
        if self._clock.elapsed_s() < self._silent_until_s:
            return
        async with trio.open_nursery() as nursery:
            for address in sorted(self._controllers.addresses - self._beating):
                nursery.start_soon(self._beat_to, own_id, address)

    async def _beat_to(self, own_id: int, address: str) -> None:
        log, config = self._log_state(), self._config
        header = BrokerHeartbeatRequestHeader(
            cluster_name=config.broker_cluster_name,
            broker_addr=self._address,
            broker_name=config.broker_name,
            broker_id=own_id,
            epoch=log.epoch,
            max_offset=log.max_offset,
            confirm_offset=log.confirm_offset,
            heartbeat_timeout_mills=config.controller_heart_beat_timeout_mills,
            election_priority=config.broker_election_priority,
        )
        self._beating.add(address)
        meaning = "The next heartbeat follows"
        try:
            with contained(self._failures, "a heartbeat to a controller", meaning):
                sent_s = self._clock.elapsed_s()
                timeout_s = config.send_heartbeat_timeout_millis / 1000
                if await self._controllers.beat(address, header, timeout_s):
                    self.lease.heard(sent_s)
                    if self.place.role is Role.MASTER and not self.lease.holds:
                        self.ask_again()
        finally:
            self._beating.discard(address)

    # ---- the set -------------------------------------------------------------------------

    async def _follow(self, own_id: int) -> None:
        """Ask for the set at intervals, and when something suggests that it has changed."""
        period_s = self._config.sync_broker_metadata_period / 1000
        while True:
            with trio.move_on_after(period_s):
                await self._asked.wait()
            self._asked = trio.Event()
            with self._tolerated("the set is asked for again"):
                await self._ask(own_id)

    async def _ask(self, own_id: int) -> None:
        sent_s = self._clock.elapsed_s()
        try:
            view: SetView | None = await self._api.replica_info()
        except RefusedError as error:
            if not error.is_not_known:
                raise
            view = await self._api.register(own_id, self._address)
        if view is not None:
            await self._act(view, own_id, sent_s)

    async def _act(self, view: SetView, own_id: int, sent_s: float) -> None:
        if self._consider(view, own_id, sent_s) is Action.ASK_FOR_ELECTION:
            now_s = self._clock.elapsed_s()
            if now_s < self._elect_again_s:
                return
            self._elect_again_s = now_s + ELECT_AGAIN_S
            await self._beat_once(own_id)
            sent_s = self._clock.elapsed_s()
            self._consider(await self._api.elect(own_id), own_id, sent_s)

    def _consider(self, view: SetView, own_id: int, sent_s: float) -> Action:
        """Do what the table of roles says; returns the action."""
        if self._yields(view, own_id):
            return Action.IGNORE
        event = event_of(view, self.place, own_id)
        action = ACTIONS[self.place.role, event]
        if event is Event.OLDER:
            self._warn_of_old(view)
            return action
        self.view = view
        if view.master_id == own_id:
            held = self.lease.holds
            self.lease.named(sent_s)
            if not held and self.lease.holds:
                self._on_lease()
        if action is Action.TAKE_SET and self.duty is not None:
            self.duty.accepted(view.in_sync, view.in_sync_epoch)
        elif action in (Action.BECOME_MASTER, Action.BECOME_SLAVE):
            self.place = place_after(action, view, self.place)
            self.duty = None
            self._on_place(self.place, view)
        return action

    def _yields(self, view: SetView, own_id: int) -> bool:
        """Whether the broker is still the master, and lets another member be elected.

        It may lack messages that the others have confirmed with it. It sends no heartbeats, so that
        the controller elects another one; if no other is alive, it goes on.
        """
        if not self._may_have_lost:
            return False
        place, now_s = self.place, self._clock.elapsed_s()
        is_still_master = (view.master_id, view.master_epoch) == (own_id, place.epoch)
        if not is_still_master or not view.in_sync - {own_id}:
            self._may_have_lost = False
            self._silent_until_s = 0.0
            return False
        if not self._silent_until_s:
            timeout_s = self._config.controller_heart_beat_timeout_mills / 1000
            self._silent_until_s = now_s + SILENT_TIMEOUTS * timeout_s
            logger.warning(
                "this broker was the master when its machine lost its power or its disk failed. It "
                "may lack messages that the other brokers in sync have, so it sends no heartbeats "
                "for %(silent_s)g s, and one of them is elected",
                {"silent_s": SILENT_TIMEOUTS * timeout_s},
            )
        if now_s >= self._silent_until_s:
            self._may_have_lost = False
        return self._may_have_lost

    def _warn_of_old(self, view: SetView) -> None:
        self._warn_once(
            f"the controller {self._controllers.leader} knows epoch {view.master_epoch} of the "
            f"set, and this broker has followed epoch {self.place.epoch}: its answer is ignored. "
            "If that lasts, the controller's state is older than the brokers': restore it, or see "
            "the runbook of failover"
        )

    async def _keep_in_sync(self, own_id: int) -> None:
        """On a master, ask the controller for the in-sync set that should be."""
        period_s = min(IN_SYNC_LOOK_S, self._config.check_sync_state_set_period / 1000)
        while True:
            duty = self.duty
            await trio.sleep(HELD_LOOK_S if duty is not None and duty.is_holding else period_s)
            duty = self.duty
            wanted = None if duty is None else duty.wanted()
            if duty is not None and wanted is not None:
                with self._tolerated("the in-sync set stays as it is until then"):
                    await self._alter(duty, wanted, own_id)

    async def _alter(self, duty: InSyncDuty, wanted: frozenset[int], own_id: int) -> None:
        duty.asked(wanted)
        asked = InSync(wanted, duty.epoch)
        try:
            found = await self._api.alter(own_id, duty.master_epoch, asked)
        except RefusedError as error:
            if error.code == ResponseCode.SYSTEM_ERROR:
                duty.unanswered(wanted)  # the controller may have stored it, and not know it
            else:
                duty.refused()
            self.ask_again()  # this broker may have been deposed, or the set has changed
            await trio.sleep(RETRY_S)
            raise
        except RemotingError:
            duty.unanswered(wanted)
            self.ask_again()
            raise
        duty.accepted(found.members, found.epoch)
        logger.info(
            "in sync are now %(members)s", {"members": ", ".join(map(str, sorted(found.members)))}
        )

    # ---- problems ------------------------------------------------------------------------

    @contextmanager
    def _tolerated(self, meaning: str) -> Iterator[None]:
        """Log a failure of a request; the caller tries again."""
        try:
            with contained(self._failures, "the work with controllers", meaning):
                try:
                    yield
                except (RemotingError, RequestRefused) as error:
                    self._warn_once(f"{error}; {meaning}")
                else:
                    self._warned = ""
        except ValueError as error:
            self._warn_once(f"{error}; {meaning}")

    def _warn_once(self, text: str) -> None:
        """Log a problem unless it is the same as before."""
        if text != self._warned:
            self._warned = text
            logger.warning("%(problem)s", {"problem": text})
