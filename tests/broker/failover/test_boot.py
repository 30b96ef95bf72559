"""The note of the machine's boot, by which a power cut is known."""

from __future__ import annotations

import pytest

from trocket.broker.failover.boot import UNKNOWN, BootNote, boot_id
from trocket.disk.memory_disk import MemoryDisk

ROOT = "/store"


def run(disk: MemoryDisk, boot: str, *, ends_well: bool) -> bool:
    """One run of a broker; returns whether it may have lost messages before."""
    note = BootNote(disk, ROOT, lambda: boot)
    found = note.may_have_lost_messages()
    note.write()
    disk.open(f"{ROOT}/abort", create=True).close()
    if ends_well:
        disk.unlink(f"{ROOT}/abort")
    return found


@pytest.mark.parametrize(
    ("ends_well", "boots", "may_have_lost"),
    [
        (True, ("a", "b"), False),
        (False, ("a", "a"), False),  # killed: the machine has what was written
        (False, ("a", "b"), True),
        (False, (UNKNOWN, UNKNOWN), True),
        (False, (UNKNOWN, "b"), True),
    ],
)
def test_only_a_boot_between_two_runs_may_lose_messages(
    ends_well: bool, boots: tuple[str, str], may_have_lost: bool
) -> None:
    disk = MemoryDisk()
    assert not run(disk, boots[0], ends_well=ends_well)
    assert run(disk, boots[1], ends_well=True) == may_have_lost


def test_a_folder_of_another_program_that_was_killed_may_have_lost_messages() -> None:
    disk = MemoryDisk()
    disk.make_folder(ROOT)
    disk.open(f"{ROOT}/abort", create=True).close()
    assert run(disk, "a", ends_well=True)


def test_this_machine_says_its_boot_or_that_it_is_unknown() -> None:
    assert boot_id() == boot_id()
