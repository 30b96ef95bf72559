"""A queue that is not what the log says is built again from the log.

Apache's broker logs "[BUG]logic queue order maybe wrong" and appends the unit all the same; a queue
folder that is missing or cut short begins anew, and its messages are skipped. Here such a queue is
built again from its beginning.
"""

from __future__ import annotations

import pytest

from trocket.disk.memory_disk import MemoryDisk
from trocket.store.queues.queue_ends import REBUILD, QueueEnds, write_queue_ends
from trocket.store.retention_service import Retention
from trocket.store.services import checkpoint_now

from ..damaged import assert_whole, closed
from ..support import ROOT, bodies, open_store, send


def damage_folder(disk):
    disk.remove_folder(f"{ROOT}/consumequeue/T/1")


def damage_topic(disk):
    disk.remove_folder(f"{ROOT}/consumequeue/T")


def damage_middle(disk):
    del disk.contents[f"{ROOT}/consumequeue/T/1/{400:020d}"]


def damage_first(disk):
    del disk.contents[f"{ROOT}/consumequeue/T/1/{0:020d}"]


def damage_last(disk):
    del disk.contents[f"{ROOT}/consumequeue/T/1/{800:020d}"]


def damage_first_size(disk):
    del disk.contents[f"{ROOT}/consumequeue/T/1/{0:020d}"][123:]


def damage_last_size(disk):
    disk.contents[f"{ROOT}/consumequeue/T/1/{800:020d}"] += bytes(3)


def damage_emptied(disk):
    disk.contents[f"{ROOT}/consumequeue/T/1/{800:020d}"].clear()


def damage_zeroed(disk):
    disk.contents[f"{ROOT}/consumequeue/T/1/{800:020d}"][:] = bytes(400)


def damage_last_unit(disk):
    disk.contents[f"{ROOT}/consumequeue/T/1/{800:020d}"][9 * 20 + 7] ^= 1


def damage_end(disk):
    disk.contents[f"{ROOT}/consumequeue/T/1/{800:020d}"][5 * 20 : 10 * 20] = bytes(100)


def damage_beyond(disk):
    disk.contents[f"{ROOT}/consumequeue/T/1/{800:020d}"][10 * 20 : 11 * 20] = b"\1" * 20


def damage_swapped(disk):
    zero, one = (f"{ROOT}/consumequeue/T/{n}/{800:020d}" for n in (0, 1))
    disk.contents[zero], disk.contents[one] = disk.contents[one], disk.contents[zero]


@pytest.mark.parametrize(
    "damage",
    [
        damage_folder,
        damage_topic,
        damage_middle,
        damage_first,
        damage_last,
        damage_first_size,
        damage_last_size,
        damage_emptied,
        damage_zeroed,
        damage_last_unit,
        damage_end,
        damage_beyond,
        damage_swapped,
    ],
)
@pytest.mark.parametrize("exit_", ["clean", "killed", "killed behind the checkpoint"])
def test_a_damaged_queue_is_built_again_from_the_log(damage, exit_):
    disk = closed(100)
    count = 100
    if exit_ != "clean":
        store = open_store(disk)
        if "behind" in exit_:
            for number in range(100, 104):
                send(store, b"%d" % number, queue_id=number % 2)
            count = 104
        disk.process_death()
    damage(disk)
    store = open_store(disk)
    assert not store.read_only
    for queue_id in (0, 1):
        expected = [b"%d" % number for number in range(queue_id, count, 2)]
        assert bodies(store, queue_id=queue_id) == expected
    assert_whole(store)
    assert send(store, b"next", queue_id=1) == count // 2
    store.close()
    again = open_store(disk)
    assert_whole(again)
    assert bodies(again, queue_id=1)[-1] == b"next"


@pytest.mark.parametrize("clean", [True, False])
async def test_a_missing_queue_whose_messages_are_all_deleted_goes_on_where_it_ended(clean):
    """Its consumers' offsets stand there; at 0 they would be beyond the end."""
    any_hour = {"delete_when": ";".join(map(str, range(24)))}
    store = open_store(disk := MemoryDisk(), **any_hour)
    for number in range(6):
        send(store, b"%d" % number, topic="Old")
    while store.max_physical_offset < 3 * store.log.file_size:
        send(store, bytes(3000))
    await checkpoint_now(store)
    store.clock.advance(100 * 3_600_000)
    send(store, b"new")
    Retention(store).clean()
    assert (store.min_offset("Old", 0), store.max_offset("Old", 0)) == (6, 6)
    if clean:
        store.close()
    disk.process_death()
    disk.remove_folder(f"{ROOT}/consumequeue/Old")
    for _ in range(2):
        store = open_store(disk, clock=store.clock)
        assert (store.min_offset("Old", 0), store.max_offset("Old", 0)) == (6, 6)
        disk.process_death()
    store = open_store(disk, clock=store.clock)
    assert send(store, b"next", topic="Old") == 6
    assert bodies(store, topic="Old") == [b"next"]
    assert_whole(store)


def test_a_queue_that_was_being_built_again_is_built_again():
    """As a crash leaves it: announced, its folder gone and filled in part."""
    disk = closed(100)
    store = open_store(disk)
    disk.process_death()
    ends = {("T", 0): 50, ("T", 1): REBUILD}
    dispatched = store.checkpoints.current.dispatched_offset
    write_queue_ends(disk, ROOT, QueueEnds(dispatched, 400, ends))
    for base in (400, 800):
        del disk.contents[f"{ROOT}/consumequeue/T/1/{base:020d}"]
    again = open_store(disk)
    assert len(bodies(again, queue_id=1)) == 50
    assert_whole(again)


def test_a_queue_of_a_store_of_apaches_that_was_being_built_again_is_built_again():
    disk = closed(100)
    del disk.contents[f"{ROOT}/checkpoint"]
    disk.contents[f"{ROOT}/abort"] = bytearray()
    write_queue_ends(disk, ROOT, QueueEnds(-1, 400, {("T", 1): REBUILD}))
    for base in (400, 800):
        del disk.contents[f"{ROOT}/consumequeue/T/1/{base:020d}"]
    again = open_store(disk)
    assert len(bodies(again, queue_id=1)) == 50
    assert_whole(again)


def test_a_missing_queue_after_apaches_clean_exit_is_found_when_the_log_goes_on_with_it():
    disk = closed(10)
    del disk.contents[f"{ROOT}/checkpoint"]
    disk.remove_folder(f"{ROOT}/consumequeue/T/1")
    store = open_store(disk)
    # The last record is of queue 1, and no queue reaches it: it is dispatched, as message 4.
    assert bodies(store, queue_id=1) == [b"%d" % number for number in range(1, 10, 2)]
