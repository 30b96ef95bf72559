"""What a check finds of controller mode's files: an unfinished cut, damaged epochs."""

from __future__ import annotations

import pytest

from trocket.disk.errors import StoreIOError
from trocket.disk.json_config import write_copy
from trocket.disk.memory_disk import MemoryDisk
from trocket.store.ha.epochs import Epochs, encode_epochs
from trocket.store.message_store import MessageStore
from trocket.store.offline.findings import Severity
from trocket.store.offline.mend import plan_for
from trocket.store.recovery.log_cut import FILE_NAME, LogCut, write_cut

from ..support import ROOT, small_config
from .support import check, found, kinds, open_again, records, stopped_store

ERROR, WARNING = Severity.ERROR, Severity.WARNING
EPOCHS = f"{ROOT}/epochFileCheckpoint"


def interrupted(after: int) -> tuple[MemoryDisk, int]:
    """A store whose cut in the middle was interrupted after some changes of files; where."""
    disk = stopped_store()
    cut_at = records(disk)[150].physical_offset
    changes = 0

    def dies(name: str, path: str) -> Exception | None:
        nonlocal changes
        changes += name in ("pwrite", "unlink", "rename")
        return OSError("the power is off") if changes > after else None

    disk.fault = dies
    store = MessageStore(small_config(), disk=disk, memory_bytes=1 << 30)
    with pytest.raises(StoreIOError):
        store.load(cut_at)
    disk.fault = None
    disk.process_death()
    return disk, cut_at


def test_an_unfinished_cut_is_named_and_no_loss_wherever_it_was_interrupted() -> None:
    seen = set()
    for after in range(3, 40):
        try:
            disk, cut_at = interrupted(after)
        except pytest.fail.Exception:
            break
        has_plan = disk.exists(f"{ROOT}/{FILE_NAME}")
        seen.add(has_plan)
        report = check(disk)
        assert (("store.cut", ERROR) in found(report)) is has_plan
        assert not report.losses.is_complete or not report.holes
        if has_plan:
            _, plan = plan_for(disk, ROOT)
            assert "was being cut" in " ".join(plan.problems)
            open_again(disk).close()
            report = check(disk)
            assert report.log_end == cut_at
            # Offsets of groups are corrected by a broker, which has the tables.
            assert {kind for kind in kinds(report) if not kind.startswith("config.")} == set()
    assert seen == {True, False}


def test_a_damaged_cut_is_an_error_that_no_repair_passes_over() -> None:
    disk = stopped_store()
    write_cut(disk, ROOT, LogCut(0, 100))
    write_copy(disk, f"{ROOT}/{FILE_NAME}", b"00000000\n0 100", private=False)
    assert ("store.cut", ERROR) in found(check(disk))
    _, plan = plan_for(disk, ROOT)
    assert "Remove it" in " ".join(plan.problems)


GOOD = encode_epochs(Epochs([(1, 0), (3, 500)]))


@pytest.mark.parametrize(
    ("main", "spare", "expected"),
    [
        (GOOD, None, set()),
        (GOOD, b"torn", set()),
        (b"torn", GOOD, {("epochs.bad", WARNING)}),
        (GOOD.replace(b"500", b"501"), None, {("epochs.bad", ERROR)}),
        (b"", b"torn", {("epochs.bad", ERROR)}),
        (None, b"torn", {("epochs.bad", ERROR)}),
        (encode_epochs(Epochs([(1, 0), (3, 1 << 40)])), None, {("epochs.beyond", WARNING)}),
    ],
)
def test_epochs_are_checked(
    main: bytes | None, spare: bytes | None, expected: set[tuple[str, Severity]]
) -> None:
    disk = stopped_store()
    for path, text in ((EPOCHS, main), (f"{EPOCHS}.bak", spare)):
        if text is not None:
            write_copy(disk, path, text, private=False)
    assert found(check(disk)) == expected
