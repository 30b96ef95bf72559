"""What a slave copies from its master besides the log: topics, groups, and how far all have come.

Topics and groups are taken over at once. Offsets of consumers, delay levels, timers and
transactions say what lies behind: what was delivered, ended or sent back lies in the log before its
end at that moment. So a table of them is taken over only when the log here has come to where the
master's was after the answer; else a slave that becomes master would take for delivered what it has
never got. Behind the log by an hour, the slave has the offsets of an hour ago. And only while its
log is followed: of a master that refuses it, or that it has not compared logs with yet, the same
offset may be another message's.

Both begin as soon as the master is known, and go on every `slaveSyncInterval`. When the log brings
messages of a topic that is not known here, topics are asked for at once. (Apache's slave does not
serve such a topic before its next round, for up to 60 s.)

Java counterpart: broker/slave/SlaveSynchronize.java of 5.3.3; it takes over whatever it is told.
Not done: modes of message requests (402), which are pop's.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection

import trio

from ..common.supervision import FailureLog
from ..remoting.client import RemotingClient
from ..remoting.errors import RemotingError, RequestRefused
from ..store.errors import StoreError
from ..store.ha.slave import HaSlave
from ..store.message_store import MessageStore
from .config import BrokerConfig
from .delay_offset_manager import DelayOffsetManager
from .master_api import MasterApi
from .slave_offsets import SlaveOffsets
from .subscription_group_manager import SubscriptionGroupManager
from .timer_message_service import TimerMessageService
from .topic_config_manager import TopicConfigManager

logger = logging.getLogger(__name__)


class SlaveSynchronize:
    """Copies from one master at a time. Owned by the task that runs it.

    The tables are saved by those who save them on a master, too.

    Args:
      config: the broker's.
      store: of a slave, loaded.
      client: running.
      ha: follows the same master's log.
      topics, groups, offsets, delay_offsets, timers: of the slave.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        client: RemotingClient,
        ha: HaSlave,
        *,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        offsets: SlaveOffsets,
        delay_offsets: DelayOffsetManager,
        timers: TimerMessageService,
    ) -> None:
        self._config = config
        self._store = store
        self._client = client
        self._ha = ha
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._delay_offsets = delay_offsets
        self._timers = timers
        self._master = ""
        self._unknown: set[str] = set()
        self._wanted = trio.Event()
        self._changed = trio.Event()
        self._copying = trio.CancelScope()
        self._failures = FailureLog(logger)

    def set_master(self, address: str) -> None:
        """Copy from the master at `host:port` from now on; "": there is none."""
        if address != self._master:
            logger.info("the master is %s", address or "gone")
            self._master = address
            self._changed.set()
            self._copying.cancel()

    def arrived(self, queues: Collection[tuple[str, int]]) -> None:
        """Take note of new messages; called with all queues that have some."""
        for topic, _ in queues:
            if topic not in self._topics.topic_config_table and topic not in self._unknown:
                self._unknown.add(topic)  # asked for once: its master may have deleted it since
                self._wanted.set()

    async def run(self) -> None:
        """Copy until cancelled."""
        while True:
            self._changed = trio.Event()
            if not self._master:
                await self._changed.wait()
                continue
            master = MasterApi(self._client, self._master)
            with trio.CancelScope() as self._copying:
                async with trio.open_nursery() as nursery:
                    for what, copy, wanted in (
                        ("topics and groups", self._settings, self._settings_wanted),
                        ("offsets", self._progress, trio.sleep_forever),
                    ):
                        nursery.start_soon(self._rounds, what, copy, wanted, master)

    async def _rounds(
        self,
        what: str,
        copy: Callable[[MasterApi], Awaitable[None]],
        wanted: Callable[[], Awaitable[None]],
        master: MasterApi,
    ) -> None:
        """Copy at once, and again when it is wanted or time."""
        failing = ""
        while True:
            try:
                await copy(master)
                failing = ""
            except (RemotingError, RequestRefused, StoreError, ValueError) as error:
                if str(error) != failing:
                    logger.warning("the master's %s are copied later: %s", what, error)
                failing = str(error)
            except Exception as error:  # noqa: BLE001 - our bug: the next round tries again
                meaning = "They are copied later"
                self._failures.note(f"copying the master's {what}", meaning, error)
            with trio.move_on_after(self._config.slave_sync_interval / 1000):
                await wanted()

    async def _settings_wanted(self) -> None:
        await self._wanted.wait()

    async def _settings(self, master: MasterApi) -> None:
        self._wanted = trio.Event()
        master_topics = await master.topics()
        before = set(self._topics.topic_config_table)
        if self._topics.take_over(master_topics):
            self._unknown.clear()
            # Of queues that stay here the broker must not make the topic again as a master.
            gone = before - self._topics.topic_config_table.keys()
            self._store.deleted_topics.add(gone, self._store.max_physical_offset)
        self._groups.take_over(await master.groups())

    async def _progress(self, master: MasterApi) -> None:
        await self._ha.wait_following()
        offsets = await master.consumer_offsets()
        delay_offsets = await master.delay_offsets()
        timers = None
        if self._store.config.timer_wheel_enable:
            timers = await master.timer_checkpoint()
        end = await master.log_end()
        while self._store.dispatched_offset < end:
            await self._store.activity.wait_for_more()
        if not self._ha.is_following:
            return  # whoever answered may not be who comes next
        self._offsets.take_over(offsets)
        self._delay_offsets.take_over(delay_offsets)
        if timers is not None:
            await self._timers.take_over(timers)
