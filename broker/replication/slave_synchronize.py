"""SlaveSynchronize: copies a master's topics, groups, offsets and accounts to a slave.

Tables are copied only while the slave follows the master's log. A master whose log this slave
refuses may have lost its disk: its tables are empty then, and this slave would forget the topics
and groups of the log that it has. And an offset of another log may refer to another message.

Topics and groups are copied at once. Offsets of consumers, delay levels, timers and transactions
refer to messages in the log before its end at that moment. So a table of them is copied only when
the log here has reached the end that the master's log had after the answer, and in controller mode
has it confirmed. Otherwise a slave that becomes master would regard messages as delivered that it
never received; if its log lags an hour, so do its offsets.

Copying starts when the master is known, and repeats every `slaveSyncInterval`. When the log brings
messages of an unknown topic, topics are requested at once. (Apache's slave serves such a topic only
after its next round, up to 60 s later.)

Users and access control lists are copied if this broker has accounts and signs its requests, see
`auth/accounts_copy.py`. A user that the master no longer has is removed here.

Java counterpart: broker/slave/SlaveSynchronize.java of 5.3.3, which copies without these checks.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import Final

import trio

from ...auth.accounts import Accounts
from ...auth.accounts_copy import AccountsCopy
from ...common.supervision import FailureLog
from ...disk.errors import StoreError
from ...remoting.client import RemotingClient
from ...remoting.codec import RemotingCommand
from ...remoting.errors import RemotingError, RequestRefused
from ...store.ha.slave import HaSlave
from ...store.message_store import MessageStore
from ..delivering.timer_message_service import TimerMessageService
from ..settings.config import BrokerConfig
from ..tables.delay_offset_manager import DelayOffsetManager
from ..tables.request_modes import MessageRequestModeManager
from ..tables.subscription_group_manager import SubscriptionGroupManager
from ..tables.topic_config_manager import TopicConfigManager
from ..tables.topic_queue_mapping_manager import TopicQueueMappingManager
from .master_api import MasterApi
from .slave_offsets import SlaveOffsets

logger = logging.getLogger(__name__)

CONFIRMED_POLL_S: Final = 0.1
"""Between two looks at what is confirmed, while copied offsets wait for it."""


class SlaveSynchronize:
    """Copies from one master at a time. Owned by the task that runs it.

    The tables are saved by the same services as on a master.

    Args:
      store: of a slave, loaded.
      client: running.
      ha: follows the same master's log.
      topics, mappings, groups, offsets, delay_offsets, timers, request_modes: of the slave.
      accounts: of the slave; None: it has none, or does not sign its requests.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        client: RemotingClient,
        ha: HaSlave,
        *,
        topics: TopicConfigManager,
        mappings: TopicQueueMappingManager,
        groups: SubscriptionGroupManager,
        offsets: SlaveOffsets,
        delay_offsets: DelayOffsetManager,
        timers: TimerMessageService,
        request_modes: MessageRequestModeManager,
        accounts: Accounts | None,
    ) -> None:
        self._config = config
        self._store = store
        self._client = client
        self._ha = ha
        self._topics = topics
        self._mappings = mappings
        self._groups = groups
        self._offsets = offsets
        self._delay_offsets = delay_offsets
        self._timers = timers
        self._request_modes = request_modes
        self._accounts = None if accounts is None else AccountsCopy(accounts, "the master")
        self._says_no_accounts = True
        self._master = ""
        self._unknown: set[str] = set()
        self._wanted = trio.Event()
        self._changed = trio.Event()
        self._copying = trio.CancelScope()
        self._failures = FailureLog(logger)

    def set_master(self, address: str) -> None:
        """Copy from the master at `host:port` from now on; "" if there is none."""
        if address != self._master:
            if address:
                logger.info(
                    "the master is %(master)s: topics, groups and offsets are copied",
                    {"master": address},
                )
            else:
                logger.info("no master is known: topics, groups and offsets are not copied")
            self._master = address
            self._changed.set()
            self._copying.cancel()

    def arrived(self, queues: Collection[tuple[str, int]]) -> None:
        """Process new messages; called with all queues that have some."""
        for topic, _ in queues:
            if topic not in self._topics.topic_config_table and topic not in self._unknown:
                self._unknown.add(topic)  # requested once: the master may have deleted it since
                self._wanted.set()

    async def run(self) -> None:
        """Copy until cancelled."""
        while True:
            self._changed = trio.Event()
            if not self._master:
                await self._changed.wait()
                continue
            master = MasterApi(self._client, self._master)
            # Cancelled when the master changes, so that nothing of the old one is copied any more.
            with trio.CancelScope() as self._copying:
                async with trio.open_nursery() as nursery:
                    for what, copy, wanted in (
                        ("topics and groups", self._copy_settings, self._settings_wanted),
                        ("offsets", self._copy_offsets, trio.sleep_forever),
                    ):
                        nursery.start_soon(self._repeat, what, copy, wanted, master)
                    if self._accounts is not None:
                        copy_accounts = partial(self._copy_accounts, self._accounts)
                        wanted = trio.sleep_forever
                        nursery.start_soon(self._repeat, "accounts", copy_accounts, wanted, master)

    async def _repeat(
        self,
        what: str,
        copy: Callable[[MasterApi], Awaitable[None]],
        wanted: Callable[[], Awaitable[None]],
        master: MasterApi,
    ) -> None:
        """Copy while the log is followed: now, when `wanted` returns, and at each interval."""
        failing = ""
        while True:
            # A master that this slave may not follow must not replace its tables.
            await self._ha.wait_following()
            try:
                await copy(master)
                failing = ""
            except (RemotingError, RequestRefused, StoreError, ValueError) as error:
                if str(error) != failing:
                    logger.warning(
                        "the master's %(what)s could not be copied, trying again: %(error)s",
                        {"what": what, "error": error},
                    )
                failing = str(error)
            except Exception as error:  # noqa: BLE001 - our bug: the next round tries again
                meaning = "They are copied later"
                self._failures.note(f"copying the master's {what}", meaning, error)
            with trio.move_on_after(self._config.slave_sync_interval / 1000):
                await wanted()

    async def _settings_wanted(self) -> None:
        await self._wanted.wait()

    async def _copy_settings(self, master: MasterApi) -> None:
        self._wanted = trio.Event()
        master_topics, groups = await master.topics(), await master.groups()
        modes = await master.request_modes()
        if not self._ha.is_following:
            return
        before = set(self._topics.topic_config_table)
        if self._topics.take_over(master_topics):
            self._unknown.clear()
            # Their queues stay in the store; as a master the broker must not recreate the topics.
            gone = before - self._topics.topic_config_table.keys()
            self._store.deleted_topics.add(gone, self._store.max_physical_offset)
        self._mappings.take_over(
            master_topics.topic_queue_mapping_detail_map, master_topics.mapping_data_version
        )
        self._groups.take_over(groups)
        if modes is not None:
            self._request_modes.take_over(modes)

    async def _copy_accounts(self, copy: AccountsCopy, master: MasterApi) -> None:
        async def ask(request: RemotingCommand) -> RemotingCommand:
            answer = await master.ask(request)
            if not self._ha.is_following:
                raise RemotingError("the master's log is not followed any more")
            return answer

        has_accounts = await copy.update(ask)
        if not has_accounts and self._says_no_accounts:
            logger.warning(
                "the master has no users and access control lists, so this slave keeps its "
                "own: switch authenticationEnabled on there, too"
            )
        self._says_no_accounts = has_accounts

    async def _copy_offsets(self, master: MasterApi) -> None:
        offsets = await master.consumer_offsets()
        delay_offsets = await master.delay_offsets()
        timers = None
        if self._store.config.timer_wheel_enable:
            timers = await master.timer_checkpoint()
        end = await master.log_end()
        durability = self._store.durability
        while durability.sendable_offset < end:
            await self._store.activity.wait_for_more()
        # What is not confirmed may be cut here, and what it was progress of is done again.
        while not durability.is_confirmed(end):  # noqa: ASYNC110 - it has no event
            await trio.sleep(CONFIRMED_POLL_S)
        if not self._ha.is_following:
            return  # the answers may be from a broker that is no longer the master
        self._offsets.take_over(offsets)
        self._delay_offsets.take_over(delay_offsets)
        if timers is not None:
            await self._timers.take_over(timers)
