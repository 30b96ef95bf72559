"""The table of queue mappings: changes that meet while one of them is being saved."""

from __future__ import annotations

from trocket.broker.tables.topic_queue_mapping_manager import TopicQueueMappingManager
from trocket.common.clock import ManualClock
from trocket.disk.state_file import StateFile
from trocket.remoting.bodies import LogicQueueMappingItem, TopicQueueMappingDetail


def mapping(*items: LogicQueueMappingItem, epoch: int) -> TopicQueueMappingDetail:
    return TopicQueueMappingDetail(
        topic="T", total_queues=1, bname="b", epoch=epoch, hosted_queues={0: list(items)}
    )


def test_a_mapping_that_changed_while_it_was_cleaned_is_not_replaced() -> None:
    put_off: list[StateFile] = []
    mappings = TopicQueueMappingManager(
        "b", clock=ManualClock(), save=lambda name, text: None, save_later=put_off.append
    )
    first = LogicQueueMappingItem(bname="a")
    second = LogicQueueMappingItem(gen=1, bname="b", logic_offset=10_000)
    third = LogicQueueMappingItem(gen=2, bname="c", logic_offset=20_000)
    mappings.update(mapping(first, second, epoch=1))
    put_off[-1].persist()
    known = mappings.topic_queue_mapping_table["T"]
    moved = mapping(first, second, third, epoch=2)
    mappings.update(moved)
    assert not mappings.replace(known, mapping(second, epoch=1))
    put_off[-1].persist()
    present = mappings.topic_queue_mapping_table["T"]
    assert present == moved
    assert mappings.replace(present, mapping(second, third, epoch=2))
