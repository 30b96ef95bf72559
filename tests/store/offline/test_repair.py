"""Each kind of damage is repaired: on a copy, in place, and what is lost is lost at its offset."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

from trocket.disk.errors import StoreIOError, StoreLockedError
from trocket.disk.os_disk import OsDisk
from trocket.remoting.message_codec import decode_messages
from trocket.store.offline.findings import Severity
from trocket.store.offline.fsck import check_store
from trocket.store.offline.json_files import consumer_offsets, delay_offsets, read_json
from trocket.store.offline.mend import carry_out, plan_for
from trocket.store.offline.plan import HolePolicy, Rebuild
from trocket.store.offline.read_only import ReadOnlyDisk
from trocket.store.offline.repair import RepairError
from trocket.store.queues.queue_ends import FILE_NAME as QUEUE_ENDS
from trocket.store.status import GetMessageStatus

from ..support import ROOT, put
from ..test_golden_stores import NAMES, unpack
from .support import (
    CONF,
    COUNT,
    FILE_SIZE,
    LOG,
    abort,
    check,
    expire,
    flip,
    found,
    killed_store,
    open_again,
    poke,
    poke_unit,
    records,
    repair,
    stopped_store,
)
from .test_fsck import record_of
from .test_fsck_of_parts import DAMAGES

COPY = "/copy"
SKIP, CUT, ASK = HolePolicy.SKIP, HolePolicy.CUT, HolePolicy.ASK
CANNOT = {"config.lost", "config.content"}
PER_QUEUE = COUNT // 3


def by_place(disk, root=ROOT):
    """Every message that can be pulled: (topic, queue id, queue offset) to its record."""
    store = open_again(disk, root)
    pulled = {}
    for (topic, queue_id), queue in store.queue_store.queues.items():
        offset = queue.min_offset
        while offset < queue.max_offset:
            result = store.get_message(topic, queue_id, offset, 32)
            assert result.status is GetMessageStatus.FOUND
            for buffer in result.buffers:
                for message in decode_messages(buffer, check_crc=True):
                    assert message.queue_offset == offset
                    pulled[topic, queue_id, offset] = message
                    offset += 1
    store.close()
    return pulled


def contents(disk, root=ROOT):
    return {
        path: bytes(data) for path, data in disk.contents.items() if path.startswith(root + "/")
    }


@pytest.mark.parametrize(
    ("damage", "kind"),
    [row[:2] for row in DAMAGES if row[1] not in CANNOT and row[0].__name__ != "spoil_spare"],
    ids=[
        row[0].__name__ for row in DAMAGES
        if row[1] not in CANNOT and row[0].__name__ != "spoil_spare"
    ],
)  # fmt: skip
def test_each_damage_is_repaired_on_a_copy_and_the_messages_are_the_same(damage, kind):
    disk = stopped_store()
    expected = by_place(stopped_store())
    damage(disk)
    before = contents(disk)
    _, plan, after = repair(disk, into=COPY)
    assert plan.problems == []
    assert plan.steps or kind.startswith("checkpoint")
    assert found(after, Severity.INFO) == set(), kind
    assert {**contents(disk), f"{ROOT}/lock": b""} == {**before, f"{ROOT}/lock": b""}
    assert by_place(disk, COPY) == expected


def test_a_good_store_needs_nothing():
    report, plan = plan_for(stopped_store(), ROOT)
    assert (plan.steps, plan.problems) == ([], [])
    assert report.is_clean


@pytest.mark.parametrize("damage", [row[0] for row in DAMAGES if row[1] in CANNOT])
def test_what_cannot_be_repaired_is_said_and_nothing_is_done(damage):
    disk = stopped_store()
    damage(disk)
    before = contents(disk)
    report, plan = plan_for(disk, ROOT)
    assert plan.problems
    with pytest.raises(RepairError):
        carry_out(disk, disk, report, plan)
    assert contents(disk) == before


def test_a_killed_store_is_closed_cleanly_with_all_its_messages():
    disk = killed_store()
    wanted = {
        (record.topic, record.queue_id, record.queue_offset)
        for record in records(disk) if not record.sys_flag & 4
    }  # fmt: skip
    assert not [path for path in disk.contents if "/consumequeue/" in path]  # all in memory
    _, _, after = repair(disk, into=COPY)
    assert found(after) == set()
    assert after.is_clean_exit
    assert set(by_place(disk, COPY)) == wanted


def test_queue_files_of_an_unknown_size_are_not_built():
    disk = killed_store()
    disk.unlink(f"{ROOT}/{QUEUE_ENDS}")
    _, plan = plan_for(disk, ROOT)
    assert any("mappedFileSizeConsumeQueue" in problem for problem in plan.problems)


def test_a_torn_tail_is_zeroed_and_never_comes_back():
    disk = killed_store()
    end = check(disk).log_end
    poke(disk, end, b"\x00\x00\x01\x16\xda\xa3\x20\xa7 and no more")
    _, plan, after = repair(disk, into=COPY, conf=CONF)
    assert plan.steps[0].kind == "log.zero"
    assert found(after) == set()
    base = end - end % FILE_SIZE
    assert not any(disk.contents[f"{COPY}/commitlog/{base:020d}"][end - base :])


# ---- holes -------------------------------------------------------------------------------------


def test_a_hole_is_not_changed_without_a_choice():
    disk = stopped_store()
    flip(disk, record_of(disk).physical_offset + 4)
    report, plan = plan_for(disk, ROOT)
    assert any("--skip" in problem and "--cut" in problem for problem in plan.problems)
    with pytest.raises(RepairError, match="--skip"):
        carry_out(disk, disk, report, plan)


def test_skipping_a_hole_loses_its_message_only_and_at_its_very_offset():
    disk = stopped_store()
    expected = by_place(stopped_store())
    lost = record_of(disk)
    flip(disk, lost.physical_offset + 95)
    before, plan, after = repair(disk, holes=SKIP, into=COPY)
    assert "1 of T queue 0" in plan.steps[0].what
    assert found(after) == set()
    assert before.losses.total == {("T", 0): 1}
    pulled = by_place(disk, COPY)
    placeholder = pulled.pop(("T", 0, 20))
    assert placeholder.properties == {"TROCKET_LOST": "1"}
    assert placeholder.body == b""
    assert placeholder.physical_offset == lost.physical_offset
    assert placeholder.store_timestamp_ms <= lost.store_timestamp_ms
    del expected["T", 0, 20]
    assert pulled == expected


def damage_many(disk, start, end):
    """Overwrite all records that begin in a stretch; the places of those that are in a queue."""
    lost = set()
    for record in records(disk):
        if start <= record.physical_offset < end:
            poke(disk, record.physical_offset, b"\xff" * record.store_size)
            if not record.sys_flag & 4:
                lost.add((record.topic, record.queue_id, record.queue_offset))
    return lost


@pytest.mark.parametrize("units", ["units stay", "units are gone"])
@pytest.mark.parametrize(
    ("start", "end"),
    [
        pytest.param(0, 3000, id="at the log's start"),
        pytest.param(20_000, 30_000, id="within a file"),
        pytest.param(60_000, 70_000, id="over a file's end"),
        pytest.param(FILE_SIZE, 2 * FILE_SIZE, id="a whole file"),
    ],
)
def test_skipping_puts_a_placeholder_for_each_lost_message_and_keeps_all_others(start, end, units):
    disk = stopped_store()
    expected = by_place(stopped_store())
    lost = damage_many(disk, start, end)
    assert len(lost) > 5
    if units == "units are gone":
        for path in [path for path in disk.contents if "/consumequeue/" in path]:
            disk.unlink(path)
    before, _, after = repair(disk, holes=SKIP, into=COPY)
    assert sum(before.losses.total.values()) == len(lost)
    assert found(after) == set()
    pulled = by_place(disk, COPY)
    assert pulled.keys() == expected.keys()
    for place, message in pulled.items():
        if place in lost:
            assert message.body == b""
        else:
            assert message == expected[place]


def test_a_missing_file_is_made_again_with_placeholders():
    disk = stopped_store()
    expected = by_place(stopped_store())
    disk.unlink(f"{LOG}/{FILE_SIZE:020d}")
    _, _, after = repair(disk, holes=SKIP, into=COPY)
    assert found(after) == set()
    pulled = by_place(disk, COPY)
    assert pulled.keys() == expected.keys()
    lost = [
        place for place, message in pulled.items() if message.body == b"" != expected[place].body
    ]
    assert len(lost) > 20


@pytest.mark.slow
def test_missing_files_at_either_end_are_filled_and_no_offset_is_given_out_twice():
    expected = by_place(stopped_store())
    for base in (0, 2 * FILE_SIZE):
        disk = stopped_store()
        disk.unlink(f"{LOG}/{base:020d}")
        assert plan_for(disk, ROOT)[1].problems
        before, _, after = repair(disk, holes=SKIP, into=COPY)
        assert found(after) == set()
        assert after.log_end == check(stopped_store()).log_end
        pulled = by_place(disk, COPY)
        assert pulled.keys() == expected.keys()
        differing = [place for place, message in pulled.items() if message != expected[place]]
        assert len(differing) == sum(before.losses.total.values()) > 20


def test_a_synced_end_that_is_gone_may_be_given_up():
    disk = stopped_store()
    last = records(disk)[-1]
    poke(disk, last.physical_offset, bytes(last.store_size))
    _, plan, after = repair(disk, holes=CUT, into=COPY)
    assert "0 good messages" in plan.steps[0].what
    assert found(after) == set()
    assert after.log_end == last.physical_offset


def test_several_holes_are_skipped_in_one_go():
    disk = stopped_store()
    expected = by_place(stopped_store())
    victims = [record_of(disk, "T", queue_id, 30 + queue_id) for queue_id in range(3)]
    for victim in victims:
        flip(disk, victim.physical_offset + 4)
    before, _, after = repair(disk, holes=SKIP, into=COPY)
    assert len(before.holes) == 3
    assert found(after) == set()
    pulled = by_place(disk, COPY)
    assert pulled.keys() == expected.keys()
    assert {place for place, message in pulled.items() if message != expected[place]} == {
        ("T", queue_id, 30 + queue_id) for queue_id in range(3)
    }


def test_cutting_at_a_hole_says_what_is_given_up_and_no_consumer_passes_over_new_messages():
    disk = stopped_store()
    expected = by_place(stopped_store())
    victim = record_of(disk, "T", 0, 40)
    flip(disk, victim.physical_offset + 4)
    poke(disk, victim.physical_offset, b"\xff\xff\xff\xff")
    before, plan, after = repair(disk, holes=CUT, into=COPY)
    kept = {p: m for p, m in expected.items() if m.physical_offset < victim.physical_offset}
    good = sum(1 for r in records(stopped_store()) if r.physical_offset > victim.physical_offset)
    step = next(step for step in plan.steps if step.kind == "log.cut")
    assert f"{good} good messages" in step.what
    assert "and 1 that are lost already (1 of T queue 0)" in step.what
    assert before.losses.total == {("T", 0): 1}
    assert found(after) == set()
    assert after.log_end == victim.physical_offset
    assert by_place(disk, COPY) == kept
    tree = read_json(disk, f"{COPY}/config/consumerOffset.json").tree
    ends = dict.fromkeys((("T", 0), ("T", 1), ("U", 1)), 0)
    for topic, queue_id, offset in kept:
        ends[topic, queue_id] = offset + 1
    assert consumer_offsets(tree) == {
        ("T", "g", 0): 5, ("T", "g", 1): ends["T", 1], ("U", "g", 1): ends["U", 1],
    }  # fmt: skip
    levels = delay_offsets(read_json(disk, f"{COPY}/config/delayOffset.json").tree)
    assert levels[2] < 9


def test_offsets_of_a_queue_that_is_cut_away_whole_begin_at_0():
    disk = stopped_store()
    text = b'{"offsetTable":{"T@g":{0:1,2:5}}}'
    disk.contents[f"{ROOT}/config/consumerOffset.json"][:] = text
    poke(disk, record_of(disk, "T", 2, 0).physical_offset, b"\xff" * 8)
    _, _, after = repair(disk, holes=CUT, into=COPY)
    assert found(after) == set()
    tree = read_json(disk, f"{COPY}/config/consumerOffset.json").tree
    assert consumer_offsets(tree) == {("T", "g", 0): 1, ("T", "g", 2): 0}


def test_queues_are_built_from_where_the_log_begins():
    disk = stopped_store()
    expire(disk)
    expected = by_place(disk)
    first = min(offset for topic, queue_id, offset in expected if (topic, queue_id) == ("T", 0))
    assert first % 20
    _, _, after = repair(disk, rebuild=Rebuild.ALL, into=COPY)
    assert found(after) == set()
    assert by_place(disk, COPY) == expected


def test_a_head_that_the_queues_contradict_is_written_back():
    disk = stopped_store()
    expected = by_place(stopped_store())
    flip(disk, record_of(disk).physical_offset + 20)
    _, plan, after = repair(disk, into=COPY)
    assert [step.kind for step in plan.steps] == ["log.head", "store.close"]
    assert found(after) == set()
    assert by_place(disk, COPY) == expected


def test_a_file_cut_short_gets_its_size_back():
    disk = stopped_store()
    del disk.contents[f"{LOG}/{0:020d}"][50_000:]
    _, plan, after = repair(disk, holes=SKIP, into=COPY)
    assert "log.size" in {step.kind for step in plan.steps}
    assert found(after) == set()
    assert len(disk.contents[f"{COPY}/commitlog/{0:020d}"]) == FILE_SIZE


def test_messages_go_on_behind_the_last_offset_after_a_repair():
    disk = stopped_store()
    last = record_of(disk, "T", 0, PER_QUEUE - 1)
    flip(disk, last.physical_offset + 4)
    repair(disk, holes=SKIP, into=COPY)
    store = open_again(disk, COPY)
    store.begin_burst()
    refusal, _, queue_offset = put(store, b"new", topic="T", queue_id=0)
    assert (refusal, queue_offset) == (None, PER_QUEUE)
    store.close()


def test_a_queue_whose_messages_were_all_removed_keeps_its_end():
    disk = stopped_store()
    # As retention leaves it: the first file is gone, and U has no message behind it.
    for record in records(disk):
        if record.topic == "U" and record.physical_offset >= FILE_SIZE:
            poke(disk, record.physical_offset + 88 + len(record.body) + 1, b"V")
    expire(disk)
    first = min(r.queue_offset for r in records(disk) if r.topic == "V")
    for offset in range(first, 25):
        poke_unit(disk, "U", 1, offset, (0, 0, 0))
    report, plan = plan_for(disk, ROOT, rebuild=Rebuild.ALL)
    assert report.max_offsets["U", 1] == first
    carry_out(disk, disk, report, plan, into=COPY)
    store = open_again(disk, COPY)
    assert store.max_offset("U", 1) == first
    store.close()


# ---- where it is done --------------------------------------------------------------------------


def test_in_place_what_is_replaced_is_kept_beside_the_store():
    disk = stopped_store()
    flip(disk, record_of(disk).physical_offset + 4)
    abort(disk)
    before = contents(disk)
    said = []
    _, _, after = repair(disk, holes=SKIP, say=said.append)
    assert found(after) == set()
    assert said
    backup = contents(disk, f"{ROOT}.before-repair")
    assert f"{ROOT}.before-repair/commitlog/{0:020d}" in backup
    now = contents(disk)
    for path, data in before.items():
        if path.endswith(("/lock", "/abort")) or now.get(path) == data:
            continue
        assert backup[path.replace(ROOT, f"{ROOT}.before-repair", 1)] == data, path


def test_in_place_without_a_backup_nothing_is_kept():
    disk = stopped_store()
    flip(disk, record_of(disk).physical_offset + 4)
    _, _, after = repair(disk, holes=SKIP, keep_backup=False)
    assert found(after) == set()
    assert contents(disk, f"{ROOT}.before-repair") == {}


def test_a_backup_of_an_earlier_repair_is_not_overwritten():
    disk = stopped_store()
    flip(disk, record_of(disk).physical_offset + 4)
    disk.contents[f"{ROOT}.before-repair/x"] = bytearray(b"old")
    report, plan = plan_for(disk, ROOT, holes=SKIP)
    before = contents(disk)
    with pytest.raises(RepairError, match="earlier repair"):
        carry_out(disk, disk, report, plan)
    assert contents(disk) == before


@pytest.mark.parametrize(
    ("into", "words"), [("/data/inside", "inside"), ("/taken", "exists")], ids=["inside", "taken"]
)
def test_a_copy_goes_to_a_new_folder_outside(into, words):
    disk = stopped_store()
    disk.contents["/taken/x"] = bytearray()
    report, plan = plan_for(disk, ROOT)
    with pytest.raises(RepairError, match=words):
        carry_out(disk, disk, report, plan, into=into)


def test_without_room_for_a_copy_nothing_is_begun():
    disk = stopped_store()
    report, plan = plan_for(disk, ROOT)
    disk.capacity = sum(map(len, disk.contents.values())) + 1000
    with pytest.raises(StoreIOError, match="are needed"):
        carry_out(disk, disk, report, plan, into=COPY)
    assert contents(disk, COPY) == {}


def test_a_store_that_changed_since_the_check_is_left_alone():
    disk = stopped_store()
    flip(disk, record_of(disk).physical_offset + 4)
    report, plan = plan_for(disk, ROOT, holes=SKIP)
    poke(disk, report.log_end, b"new bytes")
    with pytest.raises(RepairError, match="has changed"):
        carry_out(disk, disk, report, plan)


def test_a_store_that_a_broker_has_open_is_left_alone():
    disk = stopped_store()
    report, plan = plan_for(disk, ROOT, rebuild=Rebuild.ALL)
    store = open_again(disk)
    with pytest.raises(StoreLockedError):
        carry_out(disk, disk, report, plan)
    store.close()


def test_rebuilding_all_makes_the_same_queues_and_index():
    disk = stopped_store()
    _, _, after = repair(disk, rebuild=Rebuild.ALL, into=COPY)
    assert found(after) == set()
    queues = {p[len(ROOT) :]: d for p, d in contents(disk).items() if "/consumequeue/" in p}
    built = {p[len(COPY) :]: d for p, d in contents(disk, COPY).items() if "/consumequeue/" in p}
    assert built == queues
    assert after.counts["indexEntries"] == COUNT * 4


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMES if not name.endswith("ext")])
def test_queues_of_apaches_stores_are_built_again_byte_for_byte(name, golden, tmp_path):
    root = unpack(golden, name, tmp_path).store_path_root_dir
    copied = f"{root}-copy"
    report, plan = plan_for(ReadOnlyDisk(), root, rebuild=Rebuild.ALL)
    after = carry_out(ReadOnlyDisk(), OsDisk(), report, plan, into=copied)
    assert found(after, Severity.INFO) == set()
    compared = 0
    for folder in ("consumequeue", "batchconsumequeue"):
        for path in (Path(root) / folder).rglob("*"):
            if path.is_file() and any(data := path.read_bytes()):
                built = Path(copied) / path.relative_to(root)
                assert built.read_bytes() == data, built
                compared += 1
    assert compared > 10


@pytest.mark.slow
@pytest.mark.parametrize("operation", ["pwrite", "sync", "unlink", "rename", "resize"])
def test_a_repair_that_fails_half_way_leaves_a_store_that_is_repaired_by_the_next(operation):
    expected = by_place(stopped_store()).keys()
    for number in range(1, 400, 23):
        disk = stopped_store()
        flip(disk, record_of(disk).physical_offset + 4)
        report, plan = plan_for(disk, ROOT, holes=SKIP)
        calls = 0

        def fault(name, path, number=number):
            nonlocal calls
            calls += name == operation
            return OSError(5, "") if name == operation and calls == number else None

        disk.fault = fault
        try:
            carry_out(disk, disk, report, plan, keep_backup=False)
        except (RepairError, StoreIOError):
            pass
        else:
            if calls < number:
                break
        disk.fault = None
        disk.process_death()
        started = open_again(copy.deepcopy(disk))
        ends = {key: started.max_offset(*key) for key in report.max_offsets}
        assert started.read_only or ends == report.max_offsets
        again = check_store(disk, ROOT, remember=True)
        _, _, after = repair(disk, holes=SKIP, keep_backup=False)
        assert found(after) == set(), (number, found(again))
        assert by_place(disk).keys() == expected
    else:
        pytest.fail("there are more calls than were tried")
