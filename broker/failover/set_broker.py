"""SetBroker: a broker of a set that a controller leads; it changes its role while it runs.

A change of role opens the broker again, in the same process: the store and all tables are closed as
at a stop, and loaded as at a start, in the new role. So a table cannot be forgotten at a change,
and a log that has to be cut is cut by the recovery of that opening. What stays are the listening
sockets, the connections to the controllers, and the settings. A reopening takes some tens of
milliseconds; clients whose connections end ask the name servers for the new master.

Java counterpart: BrokerController and ReplicasManager of 5.5.0, where all objects live on.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

import trio

from ...auth.config import read_access
from ...common.clock import Clock
from ...common.config import ConfigError
from ...common.outputs import leaves
from ...common.supervision import Supervisor
from ...disk.errors import StoreError
from ...disk.os_disk import Disk
from ...remoting.bodies import DataVersion
from ...remoting.client import RemotingClient
from ...remoting.metrics.listening import open_metrics_listener
from ...remoting.tls_settings import Tls, new_tls
from ...store.config import BrokerRole, FlushDiskType, MessageStoreConfig
from ...store.ha.epochs import EpochFile
from ...store.ha.member import SetMember
from ...store.store_state import MENDED_BY_OPENING
from ...store.writing.in_sync_acks import ConfirmedCopy, InSyncAcks
from ..controller import BrokerController
from ..part import StoreTerms
from ..replication.replication import MasterSide
from ..settings.broker_address import BrokerAddress
from ..settings.config import MASTER_ID, BrokerConfig
from ..settings.config_checks import SLAVE_MEMORY_RATIO_LESS
from ..settings.listening import listeners_of
from .boot import BootNote
from .controllers import Controllers
from .identity import IdentityFiles
from .in_sync_duty import InSyncDuty
from .part import Membership
from .refusing import refuse_connections
from .replicas_manager import LogState, ReplicasManager
from .roles import Follower, Place, Role, SetView
from .slow_close import watch_close

logger = logging.getLogger(__name__)

MS_PER_S: Final = 1000

REOPEN_AFTER_S: Final = 5.0
"""Between an opening and a look whether the store has failed, and between two openings that fail:
on a disk that stays full the broker is opened again at this interval."""

FAILURES_TO_OPEN: Final = (OSError, StoreError, ConfigError)
"""What may keep a broker from being opened, see `BrokerController.run`."""


class SetBroker:
    """One broker in controller mode.

    Lifecycle: as `BrokerController`.

    Args:
      config: the broker's keys; brokerId is set to that of each role.
      store_config: the store's; brokerRole is set to each role.
      clock, disk: time and files.
      config_path, tls: as of `BrokerController`.
      client: calls the controllers; None: one that connects by TCP.
      make: makes the broker of one role; tests replace it.

    Raises:
      ConfigError: the files of identity cannot be used.
      StoreError: the file of epochs cannot be used.

    Attributes:
      manager: keeps the broker's place in its set.
      broker: the broker of the present role; None: it is being opened.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store_config: MessageStoreConfig,
        *,
        clock: Clock,
        disk: Disk,
        config_path: str = "",
        tls: Tls | None = None,
        listeners: Sequence[socket.socket] | None = None,
        client: RemotingClient | None = None,
        make: Callable[..., BrokerController] = BrokerController,
    ) -> None:
        self.config = config
        self.broker: BrokerController | None = None
        self._store_config = store_config
        self._memory_ratio = store_config.access_message_in_memory_max_ratio
        self._clock = clock
        self._disk = disk
        self._config_path = config_path
        self._tls = tls or new_tls()
        self._make = make
        self._listeners = list(listeners_of(config) if listeners is None else listeners)
        address = BrokerAddress(config, store_config)
        address.listens(self._listeners)
        self.broker_addr = address.broker_addr
        self.listen_addresses = address.listened
        # All brokers of this process advertise the port that the first one has taken.
        config.listen_port = address.port()
        self._metrics_listener = open_metrics_listener(config)
        self._epochs = EpochFile(disk, store_config.epoch_file)
        self._epochs.load()
        self._client = client or RemotingClient(
            tls=self._tls.client, credentials=read_access(config).own
        )
        self._boot = BootNote(disk, store_config.store_path_root_dir)
        files = IdentityFiles(
            disk, store_config.identity_file, config.broker_cluster_name, config.broker_name
        )
        self.manager = ReplicasManager(
            config,
            Controllers(self._client, config.controller_addresses),
            files,
            address=self.broker_addr,
            clock=clock,
            log_state=self._log_state,
            on_place=self._place_changed,
            on_lease=self._lease_renewed,
            may_have_lost=self._may_have_lost(),
            first_epoch=max(self._epochs.epochs.last_number, 0),
        )
        self._changed = trio.Event()
        self._cut_at: int | None = None
        self._confirmed: int | None = None
        self._last_state = LogState()
        self._loaded = trio.Event()
        self._serving = trio.Event()

    def _may_have_lost(self) -> bool:
        """Whether the last messages may be missing after a power cut."""
        is_async = self._store_config.flush_disk_type is FlushDiskType.ASYNC_FLUSH
        return is_async and self._boot.may_have_lost_messages()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled, in one role after another.

        It reports "started" once the broker has been opened for the first time; it waits for no
        controller. From then on an opening that fails is tried again.

        Raises: OSError, StoreError, ConfigError: as `BrokerController.run`, before "started".
        """
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(self._client.run)
                services = Supervisor(nursery, logger)
                services.start_soon("the work with controllers", self._work_with_controllers)
                nursery.start_soon(self._report_start, task_status)
                while True:
                    if not await self._serve_role():
                        await self._refuse_for_a_while()
        finally:
            for listener in (*self._listeners, self._metrics_listener):
                if listener is not None:
                    listener.close()

    async def _work_with_controllers(self) -> None:
        # A heartbeat says how far the log is, and an election needs that.
        await self._loaded.wait()
        await self.manager.run()

    async def _report_start(self, task_status: trio.TaskStatus[None]) -> None:
        await self._serving.wait()
        task_status.started()

    async def _serve_role(self) -> bool:
        """Be the broker of the present place, until there is another one.

        Returns: whether it could be opened. What keeps it from that may pass: the disk whose
        failure ended its last role is still full, or a port is not free yet. If the program
        ended, its set would lack it until an operator starts it.
        Raises: OSError, StoreError, ConfigError: it could not be, and has never served before.
        """
        self._changed = trio.Event()
        place = self.manager.place
        member = self._member(place)
        self._settle_role(place)
        cause: BaseException | None = None
        try:
            broker = self._made(place, member)
            began_s = self._clock.monotonic_s()
            async with trio.open_nursery() as closing:
                cause = await self._serve_until_changed(broker, member, place, began_s, closing)
                closing.cancel_scope.cancel()
        except FAILURES_TO_OPEN as error:  # it could not even be made
            cause = error
        if cause is None:
            return True
        if not self._serving.is_set():
            raise cause
        logger.error(
            "this broker cannot be opened as %(role)s: it is tried again in %(pause_s)g s, and its "
            "clients are refused until then. Remove the cause: %(cause)s",
            {
                "role": place.role.name,
                "pause_s": REOPEN_AFTER_S,
                "cause": "; ".join(str(error) for error in leaves(cause)),
            },
        )
        self.manager.step_back()
        return False

    def _made(self, place: Place, member: SetMember) -> BrokerController:
        """The broker of a role. Raises: OSError: a listener could not be copied."""
        return self._make(
            self.config,
            self._store_config,
            clock=self._clock,
            disk=self._disk,
            listeners=[listener.dup() for listener in self._listeners],
            metrics_listener=None
            if self._metrics_listener is None
            else self._metrics_listener.dup(),
            config_path=self._config_path,
            tls=self._tls,
            member=member,
            terms=StoreTerms(member.in_sync, self._cut_at, self._confirmed),
            on_loaded=partial(self._opened, place, member),
            more_parts=[
                partial(
                    Membership,
                    member=member,
                    role=place.role,
                    has_lease=lambda: self.manager.lease.holds,
                    ask_again=self.manager.ask_again,
                )
            ],
        )

    async def _refuse_for_a_while(self) -> None:
        listeners = [*self._listeners]
        if self._metrics_listener is not None:
            listeners.append(self._metrics_listener)
        with trio.move_on_after(REOPEN_AFTER_S):
            await refuse_connections(listeners)

    async def _serve_until_changed(
        self,
        broker: BrokerController,
        member: SetMember,
        place: Place,
        began_s: float,
        closing: trio.Nursery,
    ) -> BaseException | None:
        """Serve until the place has changed. Returns: what kept it from opening; None: nothing."""
        cause: BaseException | None = None
        async with trio.open_nursery() as nursery:

            async def serve() -> None:
                nonlocal cause
                try:
                    await nursery.start(broker.run)
                except* FAILURES_TO_OPEN as errors:
                    cause = errors
                if cause is not None:
                    self._changed.set()
                    return
                logger.info(
                    "this broker is %(role)s in epoch %(epoch)d; the change took %(took_s).3f s",
                    {
                        "role": place.role.name,
                        "epoch": place.epoch,
                        "took_s": self._clock.monotonic_s() - began_s,
                    },
                )
                # The first role may have ended before it came as far as this.
                self._serving.set()
                await self._watch_store(broker)

            nursery.start_soon(serve)
            try:
                await self._changed.wait()
                # The name servers hear of the new role, not of an end.
                broker.says_goodbye = False
                if isinstance(member.in_sync, InSyncAcks):
                    member.in_sync.depose()
            finally:
                self._last_state = self._log_state()
                self._confirmed = self._last_state.confirm_offset
                self.broker = None
                self.manager.duty = None
                closing.start_soon(watch_close, nursery)
                nursery.cancel_scope.cancel()
        return cause

    async def _watch_store(self, broker: BrokerController) -> None:
        """Open the broker again whose store has become read-only until then.

        Its set is not to wait for an operator. A master lets another member be elected, which has
        all confirmed messages and a disk that works; the store may have lost what it has not
        synced. Where no other member is in sync, it goes on as the master.
        """
        mode = broker.store.writer.mode
        while mode.state not in MENDED_BY_OPENING:  # noqa: ASYNC110 - it has no event
            await trio.sleep(REOPEN_AFTER_S)
        if self._changed.is_set():
            return
        logger.error(
            "the store of this broker has failed: it is opened again, and another broker in sync "
            "is elected if this one is the master. Free some space or replace the disk; the cause: "
            "%(cause)s",
            {"cause": mode.trouble},
        )
        self.manager.step_back()
        self._changed.set()

    def _settle_role(self, place: Place) -> None:
        """Set the keys of the role; the other keys stay as they are, changes at run time too."""
        is_master = place.role is Role.MASTER
        own_id = self.manager.controller_id
        self.config.broker_id = MASTER_ID if is_master else own_id or 1
        self._store_config.broker_role = BrokerRole.SYNC_MASTER if is_master else BrokerRole.SLAVE
        less = 0 if is_master else SLAVE_MEMORY_RATIO_LESS
        self._store_config.access_message_in_memory_max_ratio = max(self._memory_ratio - less, 0)

    def _member(self, place: Place) -> SetMember:
        own_id = self.manager.controller_id or 0
        view = self.manager.view
        in_sync: InSyncAcks | ConfirmedCopy = ConfirmedCopy()
        if place.role is Role.MASTER and view is not None:
            in_sync = InSyncAcks(
                self._store_config,
                self._clock,
                own_id,
                view.in_sync | {own_id},
                set_epoch=view.in_sync_epoch,
                may_confirm=self._may_confirm,
            )
        return SetMember(
            controller_id=own_id,
            epoch=place.epoch,
            epochs=self._epochs,
            in_sync=in_sync,
            on_cut=self._cut,
            master_address="" if place.role is Role.MASTER else place.master_address,
        )

    def _opened(self, place: Place, member: SetMember, broker: BrokerController) -> None:
        """Begin the epoch of a master; the log is loaded, and nothing is served yet.

        Raises: StoreError: the file of epochs could not be written.
        """
        store, epochs = broker.store, self._epochs.epochs
        end = store.max_physical_offset
        if self._cut_at is not None:
            epochs = epochs.cut(self._cut_at)
            self._cut_at = None
        epochs = epochs.cut(end + 1).drop_before(store.min_physical_offset)
        # A master that was restarted goes on in its epoch.
        if place.role is Role.MASTER and place.epoch != epochs.last_number:
            epochs = epochs.append(place.epoch, end if epochs else store.min_physical_offset)
        # On the device before the first byte of the epoch is in the log.
        self._epochs.save(epochs)
        if isinstance(member.in_sync, InSyncAcks):
            self.manager.duty = InSyncDuty(
                member.in_sync,
                partial(_followers, broker),
                own_id=member.controller_id,
                master_epoch=place.epoch,
                epoch_start=epochs[-1].start,
                behind_max_s=self._store_config.ha_max_time_slave_not_catchup / MS_PER_S,
                now_s=self._clock.monotonic_s,
            )
            # A name server ignores a master with a lower state version than the one it knows.
            version = broker.topics.data_version
            broker.topics.data_version = DataVersion(
                timestamp=version.timestamp, counter=version.counter, state_version=place.epoch
            )
        if place.role is not Role.WAITING:
            # Only now: a broker that is killed before has to doubt its messages again.
            self._boot.write()
        self.broker = broker
        self._loaded.set()

    # ---- called by the manager, and by replication ---------------------------------------

    def _log_state(self) -> LogState:
        broker = self.broker
        if broker is None:
            return self._last_state
        store = broker.store
        return LogState(
            self._epochs.epochs.last_number,
            store.max_physical_offset,
            store.durability.confirm_offset,
        )

    def _place_changed(self, place: Place, view: SetView | None) -> None:
        logger.info(
            "in epoch %(epoch)d the master is number %(master)s at %(address)s, and this broker "
            "becomes %(role)s",
            {
                "epoch": place.epoch,
                "master": place.master_id,
                "address": place.master_address or "no address",
                "role": place.role.name,
            },
        )
        self._cut_at = None
        self._changed.set()

    def _lease_renewed(self) -> None:
        broker = self.broker
        member = None if broker is None else broker.member
        if member is not None and isinstance(member.in_sync, InSyncAcks):
            member.in_sync.confirm()

    def _may_confirm(self) -> bool:
        """Whether a master may confirm messages; where all of the in-sync set confirm each, no
        clock is needed for that."""
        return self._store_config.all_ack_in_sync_state_set or self.manager.lease.holds

    def _cut(self, physical_offset: int) -> None:
        """Open the broker again with its log cut there, where it leaves its master's."""
        if self._changed.is_set():  # another master may have another log
            return
        confirmed = self._log_state().confirm_offset
        if physical_offset < confirmed and self._store_config.all_ack_in_sync_state_set:
            logger.error(
                "the log is cut at %(offset)d, though messages up to %(confirmed)d were confirmed: "
                "the master has lost them, in a power cut under ASYNC_FLUSH for instance, or was "
                "elected without them (enableElectUncleanMaster)",
                {"offset": physical_offset, "confirmed": confirmed},
            )
        else:
            logger.warning(
                "the log is cut at %(offset)d: the bytes after it were never confirmed, and the "
                "master has others there",
                {"offset": physical_offset},
            )
        self._cut_at = physical_offset
        self._changed.set()


def _followers(broker: BrokerController) -> Mapping[int, Follower]:
    """The connected slaves, by their permanent ids."""
    side = broker.replication
    if not isinstance(side, MasterSide):
        return {}
    return {
        slave.controller_id: Follower(
            slave.ack_offset, slave.behind_s, may_join=not slave.is_async_learner
        )
        for slave in side.state().slaves
        if slave.controller_id is not None
    }
