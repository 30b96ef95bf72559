"""Any damage at all: a check never fails, and a repair keeps every message that is whole."""

from __future__ import annotations

import random

import pytest

from trocket.store.offline.findings import Severity
from trocket.store.offline.mend import carry_out, plan_for
from trocket.store.offline.plan import HolePolicy

from ..support import ROOT
from .support import CONF, found, records, stopped_store
from .test_repair import COPY, by_place

SEEDS = 40
ALL = {
    **CONF,
    "mapped_file_size_commit_log": "65536",
    "max_hash_slot_num": "20",
    "max_index_num": "50",
}
UNSEEN = {"log.time", "log.field", "config.bad_spare"}
"""What a repair leaves: damaged store times, and a .bak that the next save replaces."""


def spoil(disk, chance: random.Random) -> None:
    """Damage one file somehow."""
    names = sorted(path for path in disk.contents if not path.endswith("/lock"))
    logs = [path for path in names if "/commitlog/" in path]
    path = chance.choice(logs) if chance.random() < 0.6 else chance.choice(names)
    data = disk.contents[path]
    if not data:
        return
    at = chance.randrange(len(data))
    count = min(chance.choice([1, 20, 512, 4096, 20_000]), len(data) - at)
    kind = chance.choice(["bit", "bit", "ones", "zeros", "random", "cut", "remove"])
    if kind == "bit":
        data[at] ^= 1 << chance.randrange(8)
    elif kind == "remove":
        disk.unlink(path)
    elif kind == "cut":
        del data[at:]
    else:
        makers = {"ones": lambda: b"\xff" * count, "zeros": lambda: bytes(count)}
        data[at : at + count] = makers.get(kind, lambda: chance.randbytes(count))()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS))
def test_whatever_is_damaged_every_whole_message_is_kept_and_every_offset_answered(seed):
    chance = random.Random(seed)
    disk = stopped_store()
    expected = by_place(stopped_store())
    for _ in range(chance.choice([1, 1, 2, 4])):
        spoil(disk, chance)
    # What is whole, believing nothing but each record by itself.
    whole = {(r.topic, r.queue_id, r.queue_offset): r for r in records(disk) if not r.sys_flag & 4}
    report, plan = plan_for(disk, ROOT, holes=HolePolicy.SKIP, conf=ALL)
    if plan.problems:
        return  # said, and not begun
    after = carry_out(disk, disk, report, plan, into=COPY, conf=ALL)
    assert {kind for kind, _ in found(after)} <= UNSEEN
    assert after.findings.counts[Severity.LOSS] == 0
    pulled = by_place(disk, COPY)
    for place, record in whole.items():
        if place in expected and record == expected[place]:
            assert pulled[place] == record
    lost = expected.keys() - pulled.keys()
    assert not lost or not report.is_clean
