"""A broker's tables and processors without sockets, threads or files."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import trio

from trocket.broker.admin.group_admin import GroupAdminProcessor
from trocket.broker.admin.queue_offset import QueueOffsetProcessor
from trocket.broker.admin.topic_admin import TopicAdminProcessor
from trocket.broker.clients.client_channel_info import ClientChannelInfo
from trocket.broker.clients.client_manage import ClientManageProcessor
from trocket.broker.clients.consumer_manage import ConsumerManageProcessor
from trocket.broker.clients.consumer_manager import ConsumerManager
from trocket.broker.clients.lock import LockProcessor
from trocket.broker.clients.producer_manager import ProducerManager
from trocket.broker.clients.rebalance_lock_manager import RebalanceLockManager
from trocket.broker.filters.consumer_filter_manager import ConsumerFilterManager
from trocket.broker.settings.config import BrokerConfig
from trocket.broker.tables.consumer_offset_manager import ConsumerOffsetManager
from trocket.broker.tables.subscription_group_manager import SubscriptionGroupManager
from trocket.broker.tables.topic_config_manager import TopicConfigManager
from trocket.broker.tables.topic_queue_mapping_manager import TopicQueueMappingManager
from trocket.broker.waiting.pull import Pull, PullTerms
from trocket.broker.waiting.pull_request_hold import HeldPull
from trocket.common.clock import ManualClock
from trocket.common.histogram import Histogram
from trocket.disk.errors import StoreIOError
from trocket.remoting.bodies import (
    ConsumerData,
    HeartbeatData,
    MessageModel,
    ProducerData,
    SubscriptionData,
)
from trocket.remoting.channel import Channel, Deferred
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.errors import RemotingTimeoutError, RequestRefused
from trocket.remoting.memory_budget import MemoryBudget
from trocket.remoting.request_codes import RequestCode
from trocket.store.reading.message_reader import GetMessageResult
from trocket.store.status import BoundaryType, GetMessageStatus


class FakeChannel:
    """A connection that records its notifications."""

    def __init__(self, remote_address: str = "192.0.2.2:40000") -> None:
        self.remote_address = remote_address
        self.closed = False
        self.close_reason = ""
        self.memory = MemoryBudget()
        self.attributes: dict[str, object] = {}
        self.sent: list[RemotingCommand] = []

    def send_oneway(self, command: RemotingCommand) -> None:
        self.sent.append(command)

    async def call(self, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        self.sent.append(command)
        raise RemotingTimeoutError(self.remote_address, command.code, timeout_s)

    def close(self, reason: str = "") -> None:
        self.closed = True
        self.close_reason = reason

    @property
    def notified(self) -> list[str]:
        """The groups of the NOTIFY_CONSUMER_IDS_CHANGED that came, in their order."""
        return [
            command.ext_fields["consumerGroup"]
            for command in self.sent
            if command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
        ]


def held_pull(
    channel: FakeChannel | Channel | None = None,
    queue_id: int = 0,
    *,
    group: str = "CG",
    tags_codes: Iterable[int] | None = None,
    deadline_s: float = 15.0,
) -> HeldPull:
    """A pull of queue `queue_id` of topic T, from its begin."""
    codes = None if tags_codes is None else frozenset(tags_codes)
    pull = Pull(
        channel or FakeChannel(),  # type: ignore[arg-type]
        opaque=1,
        serialize_type=0,
        terms=PullTerms(group, "T", f"T@{group}", count_max=32, size_max=1000),
        queue_id=queue_id,
        queue_offset=0,
        selector=codes,
    )
    return HeldPull(pull, deadline_s)


@dataclass
class FakeStore:
    """Queues as (first offset, next offset) by topic and queue id; every message is one second."""

    queues: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    in_memory: bool = True
    deleted: list[str] = field(default_factory=list)
    is_slave: bool = False

    def max_offset(self, topic: str, queue_id: int) -> int:
        return self.queues.get((topic, queue_id), (0, 0))[1]

    def min_offset(self, topic: str, queue_id: int) -> int:
        return self.queues.get((topic, queue_id), (0, 0))[0]

    def offset_by_time(
        self,
        topic: str,
        queue_id: int,
        timestamp_ms: int,
        boundary: BoundaryType = BoundaryType.LOWER,
    ) -> int:
        low, high = self.queues.get((topic, queue_id), (0, 0))
        offset = min(max(timestamp_ms // 1000, low), high)
        return offset if boundary is BoundaryType.LOWER else offset + 1

    def earliest_store_time(self, topic: str, queue_id: int) -> int:
        low, high = self.queues.get((topic, queue_id), (0, 0))
        return low * 1000 if low < high else -1

    def get_message(
        self, topic: str, queue_id: int, queue_offset: int, count_max: int
    ) -> GetMessageResult:
        low, high = self.queues.get((topic, queue_id), (0, 0))
        found = low <= queue_offset < high
        return GetMessageResult(
            GetMessageStatus.FOUND if found else GetMessageStatus.NO_MESSAGE_IN_QUEUE,
            queue_offset + found,
            low,
            high,
            [memoryview(b"record")] if found else [],
            6 * found,
            int(found),
            not self.in_memory,
        )

    def delete_topics(self, topics: Iterable[str]) -> int:
        names = list(topics)
        self.deleted += names
        return len(names)


class BrokerTables:
    """Everything wired together as the controller does it.

    Args:
      config: the broker's configuration.
    """

    def __init__(self, config: BrokerConfig | None = None) -> None:
        self.config = config or BrokerConfig(broker_cluster_name="C", broker_name="broker-a")
        self.clock = ManualClock()
        self.files: dict[str, bytes] = {}
        self.saves = 0
        self.is_full = False
        self.store = FakeStore()
        self.registrations: list[int] = []
        self.topics = TopicConfigManager(self.config, clock=self.clock, save=self._save)
        self.mappings = TopicQueueMappingManager(
            self.config.broker_name, clock=self.clock, save=self._save
        )
        self.groups = SubscriptionGroupManager(self.config, clock=self.clock, save=self._save)
        self.offsets = ConsumerOffsetManager(clock=self.clock, save=self._save)
        self.filters = ConsumerFilterManager(clock=self.clock, save=self._save)
        self.consumers = ConsumerManager(on_group_gone=self.filters.unregister)
        self.producers = ProducerManager()
        self.locks = RebalanceLockManager()
        tables: dict[str, Any] = {
            "topics": self.topics, "groups": self.groups, "offsets": self.offsets,
        }  # fmt: skip
        services: list[Any] = [
            ClientManageProcessor(
                self.config,
                consumers=self.consumers,
                producers=self.producers,
                groups=self.groups,
                topics=self.topics,
                clock=self.clock,
                register_topics=self._register,
                filters=self.filters if self.config.enable_property_filter else None,
            ),
            ConsumerManageProcessor(consumers=self.consumers, store=self.store, **tables),
            QueueOffsetProcessor(self.store, batch_topics=()),
            LockProcessor(self.locks, clock=self.clock),
            TopicAdminProcessor(
                topics=self.topics,
                mappings=self.mappings,
                offsets=self.offsets,
                store=self.store,
                register_topics=self._register,
                on_deleted=lambda topic: None,
                times_ms=Histogram(),
                config=self.config,
            ),
            GroupAdminProcessor(
                groups=self.groups,
                offsets=self.offsets,
                on_deleted=lambda group: None,
                times_ms=Histogram(),
            ),
        ]
        self.processors: dict[RequestCode, Callable[..., object]] = {}
        for service in services:
            assert not self.processors.keys() & service.processors.keys()
            self.processors.update(service.processors)

    def _save(self, name: str, text: bytes) -> None:
        if self.is_full:
            raise StoreIOError(name, "no space left")
        self.saves += 1
        self.files[name] = text

    async def _register(self, topics: Iterable[str] = ()) -> None:
        self.registrations.append(self.topics.data_version.counter)

    def handle(
        self, request: RemotingCommand, channel: FakeChannel | None = None
    ) -> RemotingCommand:
        """Serve a request as the server does, refusals and deferred answers included."""
        try:
            answer = self.processors[RequestCode(request.code)](request, channel or FakeChannel())
            if isinstance(answer, Deferred):
                answer = trio.run(answer.run)
        except RequestRefused as refusal:
            return request.answer(refusal.code, refusal.remark)
        assert isinstance(answer, RemotingCommand)
        return answer

    def ask(
        self,
        code: RequestCode,
        ext_fields: dict[str, str] | None = None,
        body: bytes = b"",
        channel: FakeChannel | None = None,
    ) -> RemotingCommand:
        """Make a request and serve it."""
        return self.handle(RemotingCommand(code, ext_fields or {}, body), channel)

    def create_topic(self, topic: str, queue_count: int = 4, **more: str) -> RemotingCommand:
        """An administrator's UPDATE_AND_CREATE_TOPIC."""
        fields = {
            "topic": topic,
            "defaultTopic": "TBW102",
            "readQueueNums": str(queue_count),
            "writeQueueNums": str(queue_count),
            "perm": "6",
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": "false",
        }
        return self.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, fields | more)

    def heartbeat(self, channel: FakeChannel, data: HeartbeatData | None = None) -> RemotingCommand:
        """A client's HEART_BEAT; without `data` that of a consumer of group `g` and topic `T`."""
        data = data or heartbeat("c1", consumer("g", subscription("T")))
        return self.ask(RequestCode.HEART_BEAT, body=data.to_body(), channel=channel)


def subscription(topic: str, expression: str = "*", version: int = 1) -> SubscriptionData:
    """A subscription by tags; each tag's code is its length."""
    tags = set() if expression == "*" else {tag.strip() for tag in expression.split("||")}
    return SubscriptionData(
        topic=topic,
        sub_string=expression,
        tags_set=tags,
        code_set={len(tag) for tag in tags},
        sub_version=version,
    )


def consumer(
    group: str,
    *subscriptions: SubscriptionData,
    message_model: MessageModel = MessageModel.CLUSTERING,
) -> ConsumerData:
    """One group of a heartbeat."""
    return ConsumerData(
        group_name=group, message_model=message_model, subscription_data_set=list(subscriptions)
    )


def heartbeat(
    client_id: str,
    *consumers: ConsumerData,
    producers: Iterable[str] = (),
    fingerprint: int = 0,
    is_without_sub: bool = False,
) -> HeartbeatData:
    """A client's heartbeat."""
    return HeartbeatData(
        client_id=client_id,
        consumer_data_set=list(consumers),
        producer_data_set=[ProducerData(group_name=group) for group in producers],
        heartbeat_fingerprint=fingerprint,
        is_without_sub=is_without_sub,
    )


def client(
    channel: FakeChannel,
    client_id: str = "c1",
    *,
    last_update_s: float = 0.0,
    user: str | None = None,
) -> ClientChannelInfo:
    """A client as a heartbeat shows it."""
    return ClientChannelInfo(
        channel, client_id, language=0, version=513, last_update_s=last_update_s, user=user
    )
