"""Apache's own DefaultMessageStore opens what our repair made of a damaged store.

Placeholders stand at the lost offsets, filler is passed over, all other messages are where they
were; also when Apache recovers the store from its beginning, record by record.
"""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from trocket.disk.os_disk import OsDisk
from trocket.remoting.message import MessageExt
from trocket.store.offline.layout import read_layout
from trocket.store.offline.log_walk import LogWalk
from trocket.store.offline.mend import carry_out, plan_for
from trocket.store.offline.plan import HolePolicy
from trocket.store.offline.read_only import ReadOnlyDisk

from .test_store_opened_by_apache import (
    MESSAGES_PER_QUEUE,
    QUEUES,
    SIZES,
    Oracle,
    Place,
    oracle_source,  # noqa: F401 - a fixture
    write_store,
)

pytestmark = [pytest.mark.interop, pytest.mark.slow]

FILE_SIZE = SIZES["mappedFileSizeCommitLog"]


def records_of(root: Path) -> list[MessageExt]:
    files = read_layout(ReadOnlyDisk(), str(root)).commit_log(ReadOnlyDisk())
    try:
        return list(LogWalk(files).messages())
    finally:
        files.close()


def damage(root: Path) -> set[Place]:
    """A record here and there, all around a file's end, and a whole file; what is lost by that."""
    records = records_of(root)
    spoilt = [
        record
        for number, record in enumerate(records)
        if number in (7, 8, 500) or 0 <= record.physical_offset - FILE_SIZE + 3000 < 6000
    ]
    missing = 2 * FILE_SIZE
    for record in spoilt:
        base = record.physical_offset - record.physical_offset % FILE_SIZE
        with (root / "commitlog" / f"{base:020d}").open("r+b") as file:
            file.seek(record.physical_offset - base)
            file.write(b"\xff" * record.store_size)
    (root / "commitlog" / f"{missing:020d}").unlink()
    spoilt += [r for r in records if missing <= r.physical_offset < missing + FILE_SIZE]
    return {(record.topic, record.queue_id, record.queue_offset) for record in spoilt}


@pytest.mark.usefixtures("java")
@pytest.mark.parametrize("version", ["5.5.0", pytest.param("4.9.7", marks=pytest.mark.matrix)])
def test_apache_reads_a_repaired_store_and_every_loss_at_its_offset(
    version: str,
    tmp_path: Path,
    oracle_source: Path,  # noqa: F811
) -> None:
    expected = write_store(tmp_path / "stopped", tmp_path / "killed")
    lost = damage(tmp_path / "stopped")
    assert len(lost) > 100
    report, plan = plan_for(ReadOnlyDisk(), str(tmp_path / "stopped"), holes=HolePolicy.SKIP)
    assert sum(report.losses.total.values()) == len(lost)
    repaired = tmp_path / "repaired"
    after = carry_out(ReadOnlyDisk(), OsDisk(), report, plan, into=str(repaired))
    assert after.is_clean
    recovered = tmp_path / "recovered"
    shutil.copytree(repaired, recovered)
    (recovered / "abort").touch()
    shutil.rmtree(recovered / "consumequeue")
    (recovered / "checkpoint").unlink()  # so that the log is read from its beginning
    apache = Oracle(version, oracle_source, tmp_path / version)
    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(lambda store: apache.ask("dump", store), (repaired, recovered)))
    for lines in both:
        messages = {
            (line["topic"], line["queueId"], line["queueOffset"]): line
            for line in lines
            if line["kind"] == "message"
        }
        assert [line for line in lines if line["kind"] == "hole"] == []
        assert messages.keys() == expected.keys()
        for place, line in messages.items():
            if place in lost:
                assert line["props"] == {"TROCKET_LOST": "1"}, json.dumps(line)
            else:
                assert line["rawSha1"] == expected[place]
        ends = {line["queueId"]: line["maxOffset"] for line in lines if line["kind"] == "queue"}
        assert ends == dict.fromkeys(range(QUEUES), MESSAGES_PER_QUEUE)
