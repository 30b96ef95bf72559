"""What the machine says of itself, its control groups and limits included."""

from __future__ import annotations

import ipaddress
from pathlib import Path

import pytest

from trocket.common.machine import host_name, local_address, usable_memory


def test_the_local_address_is_an_ipv4_address_of_this_machine() -> None:
    address = ipaddress.IPv4Address(local_address())
    assert not address.is_unspecified
    assert not address.is_multicast


def test_the_host_name_can_be_a_brokers_name() -> None:
    assert "\n" not in host_name()


@pytest.mark.parametrize(
    ("line", "files"),
    [
        ("0::/system.slice/broker.service", {"system.slice/memory.max": "900000000\n"}),
        (
            "0::/a/b",
            {"a/b/memory.max": "max\n", "a/memory.max": "950000000", "memory.max": "900000000"},
        ),
        ("5:cpu,memory:/pod", {"memory/pod/memory.limit_in_bytes": "900000000\n"}),
    ],
)
def test_control_groups_count_with_all_above_them(
    tmp_path: Path, line: str, files: dict[str, str]
) -> None:
    own, mounted = tmp_path / "cgroup", tmp_path / "mounted"
    own.write_text(f"4:pids:/x\n{line}\n")
    for name, text in files.items():
        (mounted / name).parent.mkdir(parents=True, exist_ok=True)
        (mounted / name).write_text(text)
    assert usable_memory(own, mounted) == 900_000_000


@pytest.mark.parametrize("text", ["", "0::/../../etc", "nonsense", "0::/a\x00b"])
def test_nonsense_about_control_groups_is_passed_over(tmp_path: Path, text: str) -> None:
    (tmp_path / "cgroup").write_text(text)
    assert usable_memory(tmp_path / "cgroup", tmp_path) == usable_memory(tmp_path / "none")
