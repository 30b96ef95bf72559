"""Runtime information of a broker: a table of strings, the answer to GET_BROKER_RUNTIME_INFO (28).

Programs parse the strings (mqadmin, the Dashboard, the exporter), so their forms are part of the
protocol. There are no thread pools here: the sizes of their queues are 0, and their capacities
RocketMQ's defaults.

Java counterpart: getBrokerRuntimeInfo and prepareRuntimeInfo of AdminBrokerProcessor.java,
getRuntimeInfo of DefaultMessageStore.java and StoreStatsService.java of 5.5.0; `brokerVersion` and
`getTransferedTps` are those of 4.9.7, which the exporter reads. Pure.
Not done: the longest time of a get, and the rate of timer deliveries; they are 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from ...common.java_integers import INT32_MAX
from ...common.steps import Steps
from ...common.topic_names import SCHEDULE_TOPIC, TIMER_TOPIC
from ...disk.errors import StoreError, StoreIOError
from ...native.path_counts import TROUBLE_KEY, PathCounts
from ...remoting.bodies import KVTable
from ...remoting.channel import Answer, Channel, Processor, answer_of
from ...remoting.codec import RemotingCommand
from ...remoting.errors import RemoteProtocolError, RequestRefused
from ...remoting.message_codec import decode_record
from ...remoting.mq_version import CURRENT_VERSION, version_name
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import ResponseCode
from ...store.message_store import MessageStore
from ...store.offsets import PhysicalOffset
from ..delivering.timer_message_service import TimerMessageService
from ..settings.config import BrokerConfig
from ..stats.broker_stats_manager import BrokerStatsManager
from ..tables.delay_offset_manager import DelayOffsetManager

POOLS: Final = MappingProxyType(
    {"pull": 100_000, "litePull": 100_000, "query": 20_000, "ack": 100_000}
)
"""Thread pools by the prefix of their names, with the capacities of their queues.
Source: BrokerConfig."""
END_TRANSACTION_CAPACITY: Final = 100_000
"""Source: BrokerConfig.endTransactionPoolQueueCapacity."""

_DAY_S: Final = 86_400


class RuntimeInfo:
    """Describes the running broker.

    Args:
      store: already loaded.
      delay_offsets: the progress of delayed messages.
      timers: None if there are none (timerWheelEnable=false).
      is_active: whether the broker delivers delayed messages and checks transactions.
      paths: the counts of the fast paths, which are shown where something is wrong.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        stats: BrokerStatsManager,
        *,
        delay_offsets: DelayOffsetManager,
        timers: TimerMessageService | None,
        is_active: Callable[[], bool],
        paths: Callable[[], Mapping[str, PathCounts]],
    ) -> None:
        self._config = config
        self._store = store
        self._stats = stats
        self._delay_offsets = delay_offsets
        self._timers = timers
        self._is_active = is_active
        self._paths = paths

    def table(self) -> Steps[dict[str, str]]:
        """Steps that return the strings by their keys.

        Raises: StoreError: a file cannot be read.
        """
        yield from self._stats.collect()
        return {
            "brokerActive": _bool(self._is_active()),
            "brokerVersion": str(CURRENT_VERSION),
            "brokerVersionDesc": version_name(CURRENT_VERSION),
            "startAcceptSendRequestTimeStamp": "0",
            **self._counters(),
            **self._of_store(),
            **self._delayed(),
            **self._timed(),
            **self._pools(),
            **self._troubled_paths(),
        }

    def _counters(self) -> dict[str, str]:
        stats, totals, history = self._stats, self._stats.totals, self._stats.history
        now_ms = self._store.clock.wall_ms()
        puts = totals.put_messages
        got = _rates(history.rates("got_messages"))
        return {
            "bootTimestamp": str(stats.started_ms),
            "runtime": _runtime(max(now_ms - stats.started_ms, 0) // 1000),
            "putMessageEntireTimeMax": str(stats.put_times.longest_ms),
            "putMessageTimesTotal": str(puts),
            # Figures of Java's threads and locks that do not exist here are constants: programs
            # read them.
            "putMessageFailedTimes": "0",
            "putMessageSizeTotal": str(totals.put_size),
            "putMessageDistributeTime": stats.put_times.text(),
            "putMessageAverageSize": str(totals.put_size / max(puts, 1)),
            "putLatency99": f"{stats.put_times.percentile_ms(0.99):.2f}",
            "putLatency999": f"{stats.put_times.percentile_ms(0.999):.2f}",
            "dispatchMaxBuffer": "0",
            "getMessageEntireTimeMax": "0",
            "putTps": _rates(history.rates("put_messages")),
            "getFoundTps": _rates(history.rates("gets_found")),
            "getMissTps": _rates(history.rates("gets_missed")),
            "getTotalTps": _rates(history.rates("gets")),
            "getTransferredTps": got,
            "getTransferedTps": got,
            "msgPutTotalYesterdayMorning": str(history.yesterday.put_messages),
            "msgPutTotalTodayMorning": str(history.today.put_messages),
            "msgPutTotalTodayNow": str(puts),
            "msgGetTotalYesterdayMorning": str(history.yesterday.got_messages),
            "msgGetTotalTodayMorning": str(history.today.got_messages),
            "msgGetTotalTodayNow": str(totals.got_messages),
        }

    def _of_store(self) -> dict[str, str]:
        store = self._store
        root, log = store.config.store_path_root_dir, store.config.commit_log_folder
        end = store.max_physical_offset
        log_ratio = self._used_ratio(log)
        table = {
            f"commitLogDiskRatio_{log}": log_ratio,
            "commitLogDiskRatio": log_ratio,
            "consumeQueueDiskRatio": self._used_ratio(root),
            "commitLogMinOffset": str(store.min_physical_offset),
            "commitLogMaxOffset": str(end),
            "dispatchBehindBytes": str(end - store.dispatched_offset),
            "pageCacheLockTimeMills": "0",
            "earliestMessageTimeStamp": str(self._earliest_ms()),
            "remainTransientStoreBufferNumbs": str(INT32_MAX),
            "remainHowManyDataToFlush": _bytes(max(end - store.flusher.flushed_offset, 0)),
        }
        try:
            space = store.disk.space(root)
        except StoreIOError:
            return table
        total, free = _bytes(space.used + space.free), _bytes(space.free)
        table["commitLogDirCapacity"] = f"Total : {total}, Free : {free}."
        return table

    def _used_ratio(self, folder: str) -> str:
        """The used part of a partition, 0 to 1; -1: it is unknown."""
        try:
            space = self._store.disk.space(folder)
        except StoreIOError:
            return "-1"
        return str(space.used / max(space.used + space.free, 1))

    def _earliest_ms(self) -> int:
        """When the oldest message was stored; -1 if there is none, or it cannot be read."""
        try:
            record = self._store.message_at(PhysicalOffset(self._store.min_physical_offset))
            return -1 if record is None else decode_record(record).store_timestamp_ms
        except (StoreError, RemoteProtocolError):
            return -1

    def _delayed(self) -> dict[str, str]:
        """The progress of each delay level: the next message to deliver, and the next to come."""
        return {
            f"scheduleMessageOffset_{level}": (
                f"{offset},{self._store.max_offset(SCHEDULE_TOPIC, level - 1)}"
            )
            for level, offset in self._delay_offsets.offset_table.items()
        }

    def _timed(self) -> dict[str, str]:
        behind_s = behind = 0
        if self._timers is not None:
            progress = self._timers.progress()
            behind_s = max(self._store.clock.wall_ms() - progress.read_time_ms, 0) // 1000
            behind = max(self._store.max_offset(TIMER_TOPIC, 0) - progress.read_offset, 0)
        return {
            "timerReadBehind": str(behind_s),
            "timerOffsetBehind": str(behind),
            "timerCongestNum": "0",
            "timerEnqueueTps": str(self._stats.tps_topic_put_nums(TIMER_TOPIC)),
            "timerDequeueTps": "0.0",
        }

    def _troubled_paths(self) -> dict[str, str]:
        paths = self._paths().items()
        return {f"{TROUBLE_KEY}{name}": each.text() for name, each in paths if each.is_troubled}

    def _pools(self) -> dict[str, str]:
        table = {
            "EndTransactionQueueSize": "0",
            "EndTransactionThreadPoolQueueCapacity": str(END_TRANSACTION_CAPACITY),
        }
        capacities = {"send": self._config.send_thread_pool_queue_capacity, **POOLS}
        for name, capacity in capacities.items():
            table[f"{name}ThreadPoolQueueSize"] = "0"
            table[f"{name}ThreadPoolQueueCapacity"] = str(capacity)
            table[f"{name}ThreadPoolQueueHeadWaitTimeMills"] = "0"
        return table


def _bool(value: bool) -> str:
    return "true" if value else "false"


def _rates(rates: tuple[float, ...]) -> str:
    return " ".join(map(str, rates))


def _runtime(seconds: int) -> str:
    """Source: StoreStatsService.getFormatRuntime, whose numbers have separators of thousands."""
    days, rest = divmod(seconds, _DAY_S)
    hours, rest = divmod(rest, 3600)
    minutes, left = divmod(rest, 60)
    return f"[ {days:,} days, {hours} hours, {minutes} minutes, {left} seconds ]"


def _bytes(count: int) -> str:
    """A number of bytes in a readable unit. Source: MixAll.humanReadableByteCount."""
    if count < 1024:
        return f"{count} B"
    size = float(count)
    for unit in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        size /= 1024
        if size < 1024:
            return f"{size:.1f} {unit}"
    return f"{size / 1024:.1f} EiB"


class RuntimeInfoProcessor:
    """Answers with the broker's runtime information.

    Args:
      info: the table.
    """

    def __init__(self, info: RuntimeInfo) -> None:
        self._info = info
        self.processors: dict[RequestCode, Processor] = {
            RequestCode.GET_BROKER_RUNTIME_INFO: self._runtime_info,
        }

    def _runtime_info(self, request: RemotingCommand, _: Channel) -> Answer:
        return answer_of(self._answer(request))

    def _answer(self, request: RemotingCommand) -> Steps[RemotingCommand]:
        try:
            table = yield from self._info.table()
        except StoreError as error:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, str(error)) from error
        return request.answer(body=KVTable(table=table).to_body())
