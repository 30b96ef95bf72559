"""TopicQueueMappingManager: the queue mappings of the broker's static topics.

A mapping takes effect once `topicQueueMapping.json` is saved, so that a killed broker knows the
logic offsets that it gave to clients.

Java counterpart: broker/topic/TopicQueueMappingManager.java of 5.5.0. Pure, but for the `save` it
is given. A mapping is never changed in place, always replaced.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, NoReturn

import msgspec

from ...common.clock import Clock
from ...common.notifier import Notifier
from ...common.steps import Steps, at_once
from ...common.supervision import FailureLog
from ...disk.errors import StoreIOError
from ...disk.json_config import parse
from ...disk.state_file import Save, StateFile
from ...remoting.bodies import (
    DataVersion,
    LogicQueueMappingItem,
    TopicQueueMappingDetail,
    TopicQueueMappingSerializeWrapper,
    fault_of_items,
    shared_queue,
)
from ...remoting.errors import RemoteProtocolError, RequestRefused
from ...remoting.response_codes import ResponseCode
from .config_text import QUEUE_MAPPINGS, WrittenBodies, next_version, pretty, written
from .table_numbers import correct_version

logger = logging.getLogger(__name__)

STATIC_TOPICS_MAX: Final = 10_000
"""Static topics of one broker. RocketMQ has no bound; each change writes the whole table."""


class TopicQueueMappingManager:
    """The table of mappings. Not thread-safe: used from the broker's one trio run.

    Args:
      broker_name: of the broker; a mapping of another one is refused.
      clock: gives the data version's time.
      save_later: schedules a write, see `StateFile`.

    Attributes:
      topic_queue_mapping_table: mapping by topic, always the same dict; only this class changes it.
      data_version: increases with every change.
      changes: notified of the topics whose mapping has changed, come or gone.
    """

    def __init__(
        self,
        broker_name: str,
        *,
        clock: Clock,
        save: Save,
        save_later: Callable[[StateFile], None] | None = None,
    ) -> None:
        self._broker_name = broker_name
        self._clock = clock
        self.file = StateFile(
            QUEUE_MAPPINGS,
            "queue mappings",
            save,
            self._text_to_save,
            save_later,
            on_saved=self._on_saved,
        )
        self._texts = WrittenBodies()
        self._staged: dict[str, TopicQueueMappingDetail] = {}
        self._saving: dict[str, TopicQueueMappingDetail] = {}
        self.changes = Notifier[Collection[str]](
            FailureLog(logger), "using new queue mappings", "Requests may be served by the old ones"
        )
        self.topic_queue_mapping_table: dict[str, TopicQueueMappingDetail] = {}
        self.data_version = DataVersion(timestamp=clock.wall_ms(), counter=0)

    def items(
        self, topic: str, queue_id: int, *, refusal: str
    ) -> tuple[TopicQueueMappingDetail, Sequence[LogicQueueMappingItem]]:
        """The mapping of a static topic, and the items of a logic queue that this broker leads.

        Args:
          topic: in the table.
          queue_id: of the logic queue.
          refusal: the remark, with the places {topic}, {queue_id} and {broker}.
        Raises: RequestRefused: NOT_LEADER_FOR_QUEUE; clients then ask for the route again.
        """
        detail = self.topic_queue_mapping_table[topic]
        if not detail.leads(queue_id):
            remark = refusal.format(topic=topic, queue_id=queue_id, broker=detail.bname)
            raise RequestRefused(ResponseCode.NOT_LEADER_FOR_QUEUE, remark)
        return detail, detail.hosted_queues[queue_id]

    def check(self, new: TopicQueueMappingDetail, *, queue_count: int, force: bool = False) -> None:
        """Refuse a mapping that contradicts itself or the present one.

        Args:
          new: from a request.
          queue_count: physical queues that the topic will have.
          force: replace the present mapping, whatever it is.
        Raises: RequestRefused: SYSTEM_ERROR, as RocketMQ answers its exceptions, in its words where
          it makes the same check.
        Source: TopicQueueMappingManager.updateTopicQueueMapping.
        """
        if new.bname != self._broker_name:
            _refuse(
                f"the mapping is of broker {new.bname!r}, and this is broker {self._broker_name!r}"
            )
        for queue_id, items in new.hosted_queues.items():
            fault = fault_of_items(items)
            if fault is not None:
                _refuse(fault)
            _check_queue(new, queue_id, items, queue_count)
        shared = shared_queue(new.topic, new.hosted_queues.items())
        if shared is not None:
            _refuse(shared)
        old = self._present(new.topic)
        if old is None:
            if len(self.topic_queue_mapping_table) + len(self._staged) >= STATIC_TOPICS_MAX:
                _refuse(f"no more than {STATIC_TOPICS_MAX} static topics are allowed on a broker")
        elif not force:
            _check_successor(old, new)

    def update(self, new: TopicQueueMappingDetail, *, force: bool = False) -> None:
        """Stage a mapping, which takes effect once it is saved.

        Logic queues of the present mapping that the new one lacks are kept.

        Args:
          new: let pass by `check`, or by the cleaning.
          force: as `check`.
        Raises: RequestRefused: it does not follow the present one.
        """
        old = self._present(new.topic)
        if old is not None:
            if not force:
                _check_successor(old, new)
            hosted = {**old.hosted_queues, **new.hosted_queues}
            new = msgspec.structs.replace(new, hosted_queues=hosted)
        self._stage(new)

    def replace(self, old: TopicQueueMappingDetail, new: TopicQueueMappingDetail) -> bool:
        """Stage a mapping of the cleaning, without the queues that it lacks.

        Args:
          old: the mapping that was cleaned.
        Returns: whether it still was the present one; otherwise nothing is changed.
        """
        if self._present(new.topic) is not old:
            return False
        self._stage(new)
        return True

    def _stage(self, new: TopicQueueMappingDetail) -> None:
        logger.info(
            "update the queue mapping of topic %(topic)s: %(mapping)s",
            {"topic": new.topic, "mapping": new},
        )
        self._staged[new.topic] = new
        self.file.changed()

    def delete(self, topics: Collection[str]) -> None:
        """Delete the mappings of topics that have one."""
        deleted = [name for name in topics if self._present(name) is not None]
        if deleted:
            logger.info("delete the queue mappings of topics: %(topics)s", {"topics": deleted})
            for name in deleted:
                self.topic_queue_mapping_table.pop(name, None)
                self._staged.pop(name, None)
            self._changed(deleted)
            self.file.changed()

    def _present(self, topic: str) -> TopicQueueMappingDetail | None:
        return self._staged.get(topic) or self.topic_queue_mapping_table.get(topic)

    def _changed(self, topics: Collection[str]) -> None:
        self.data_version = next_version(self.data_version, self._clock.wall_ms())
        self.changes.notify(topics)

    def _text_to_save(self) -> Steps[bytes]:
        self._saving = dict(self._staged)
        version = self.data_version
        if self._staged:
            version = next_version(version, self._clock.wall_ms())
        return self._text_of(version, {**self.topic_queue_mapping_table, **self._staged})

    def _on_saved(self, error: StoreIOError | None) -> None:
        saving, self._saving = self._saving, {}
        if error is not None:
            return
        staged = self._staged
        saved = {name: detail for name, detail in saving.items() if staged.get(name) is detail}
        if saved:
            self.topic_queue_mapping_table.update(saved)
            for name in saved:
                del staged[name]
            self._changed(saved)

    def encode(self) -> bytes:
        """The text of `topicQueueMapping.json`."""
        return at_once(self._text_to_save())

    def _text_of(
        self, version: DataVersion, table: Mapping[str, TopicQueueMappingDetail]
    ) -> Steps[bytes]:
        text = yield from self._texts.write(table)
        return pretty({"dataVersion": written(version, depth=1), "topicQueueMappingInfoMap": text})

    def decode(self, text: bytes) -> int:
        """Replace the table by `topicQueueMapping.json`.

        Args:
          text: the file's text, as RocketMQ 5.x or this class wrote it.
        Returns: the number of mappings.
        Raises: ValueError: the text is not a table of mappings, or the items of a queue contradict
          each other; nothing is changed then.
        """
        try:
            wrapper = msgspec.convert(parse(text), TopicQueueMappingSerializeWrapper, strict=False)
        except msgspec.ValidationError as error:
            raise ValueError(f"not a table of queue mappings: {error}") from error
        table = wrapper.topic_queue_mapping_info_map
        for name, detail in table.items():
            for queue_id, items in detail.hosted_queues.items():
                fault = fault_of_items(items)
                if fault is not None:
                    raise ValueError(f"topic {name}, logic queue {queue_id}: {fault}")
            if detail.bname != self._broker_name:
                logger.error(
                    "the queue mapping of static topic %(topic)s is of broker %(other_broker)s, "
                    "and this broker is named %(broker)s: other brokers and clients cannot "
                    "find its queues. Restore brokerName, or map the topic again (`mqadmin "
                    "updateStaticTopic`)",
                    {
                        "topic": name,
                        "other_broker": detail.bname,
                        "broker": self._broker_name,
                    },
                )
        self.topic_queue_mapping_table.clear()
        self.topic_queue_mapping_table.update(table)
        self.data_version = correct_version(QUEUE_MAPPINGS, wrapper.data_version, self.data_version)
        return len(table)

    def take_over(self, master: Mapping[str, Any] | None, version: DataVersion | None) -> None:
        """On a slave: replace the table by its master's, and schedule a save.

        Args:
          master: topicQueueMappingDetailMap of the master's answer to 21; None: it is of 4.x.
        Raises: ValueError: it is not a table of mappings.
        Source: SlaveSynchronize.syncTopicConfig.
        """
        if master is None or version is None:
            return
        try:
            table = {name: TopicQueueMappingDetail.from_tree(tree) for name, tree in master.items()}
        except RemoteProtocolError as error:
            raise ValueError(str(error)) from error
        own = self.topic_queue_mapping_table
        if version == self.data_version and table == own:
            return
        changed = {name for name in own.keys() | table.keys() if own.get(name) != table.get(name)}
        own.clear()
        own.update(table)
        self.data_version = version
        if changed:
            logger.info(
                "queue mappings copied from the master: %(topics)s", {"topics": sorted(changed)}
            )
            self.changes.notify(changed)
        self.file.changed()


def _refuse(reason: str) -> NoReturn:
    raise RequestRefused(ResponseCode.SYSTEM_ERROR, reason)


def _check_queue(
    new: TopicQueueMappingDetail,
    queue_id: int,
    items: Sequence[LogicQueueMappingItem],
    queue_count: int,
) -> None:
    """Raises: RequestRefused: a queue id is out of range. RocketMQ checks it in its tool only."""
    if not 0 <= queue_id < new.total_queues:
        _refuse(f"the logic queue {queue_id} is not one of {new.total_queues}, as totalQueues says")
    if not items:
        _refuse(f"The new item list is null or empty: logic queue {queue_id}")
    for item in items:
        if item.bname == new.bname and item.queue_id >= queue_count:
            _refuse(
                f"The physical queue id is overflow the write queues: logic queue {queue_id} has "
                f"the physical queue {item.queue_id}, and the topic {queue_count} queues"
            )


def _check_successor(old: TopicQueueMappingDetail, new: TopicQueueMappingDetail) -> None:
    """Refuse a mapping that does not follow the present one.

    Raises: RequestRefused: SYSTEM_ERROR.
    Source: TopicQueueMappingManager.updateTopicQueueMapping.
    """
    if new.epoch < old.epoch:
        _refuse(f"Can't accept data with small epoch {new.epoch} < {old.epoch}")
    if new.scope != old.scope:
        _refuse(f"Can't accept data with unmatched scope {new.scope} != {old.scope}")
    if new.total_queues < old.total_queues:
        _refuse(
            f"Cannot decrease the queue num for static topic {new.total_queues} < "
            f"{old.total_queues}"
        )
    is_same_epoch = new.epoch == old.epoch
    for queue_id, old_items in old.hosted_queues.items():
        new_items = new.hosted_queues.get(queue_id)
        if new_items is not None:
            _check_items(old_items, new_items, is_same_epoch=is_same_epoch)
        elif is_same_epoch:
            _refuse("Cannot accept equal epoch with null data")


def _check_items(
    old_items: Sequence[LogicQueueMappingItem],
    new_items: Sequence[LogicQueueMappingItem],
    *,
    is_same_epoch: bool,
) -> None:
    """Refuse items that change what clients may have seen.

    Source: TopicQueueMappingUtils.makeSureLogicQueueMappingItemImmutable, which uses assertions
    that are off by default.
    """
    if not old_items:
        return
    if not new_items:
        _refuse("The new item list is null or empty")
    known = {item.gen: item for item in old_items}
    for item in new_items:
        before = known.get(item.gen)
        if before is None:
            continue
        if (before.bname, before.queue_id, before.start_offset) != (
            item.bname,
            item.queue_id,
            item.start_offset,
        ):
            _refuse(f"the item {item.gen} must not change from {before} to {item}")
        if before.is_decided and before.logic_offset != item.logic_offset:
            _refuse(
                f"the logic offset of item {item.gen} must not change from {before.logic_offset} "
                f"to {item.logic_offset}"
            )
    if is_same_epoch:
        old, new = old_items[-1], new_items[-1]
        if (old.gen, old.bname, old.queue_id, old.start_offset) != (
            new.gen,
            new.bname,
            new.queue_id,
            new.start_offset,
        ):
            _refuse("The new leader is different but epoch equal")
