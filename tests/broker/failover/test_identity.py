"""The files with a broker's permanent id."""

from __future__ import annotations

import pytest

from trocket.broker.failover.identity import Application, IdentityFiles
from trocket.common.config import ConfigError
from trocket.disk.json_config import read_bytes
from trocket.disk.memory_disk import MemoryDisk
from trocket.disk.position import START

PATH = "/store/brokerIdentity"


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


def files(
    disk: MemoryDisk, cluster: str = "DefaultCluster", name: str = "broker-a"
) -> IdentityFiles:
    return IdentityFiles(disk, PATH, cluster, name)


def write(disk: MemoryDisk, path: str, text: bytes) -> None:
    disk.make_folder("/store")
    file = disk.open(path, create=True)
    file.pwrite(text, START)
    file.close()


def test_a_new_broker_has_no_id(disk: MemoryDisk) -> None:
    assert files(disk).controller_id() is None
    assert files(disk).application() is None


def test_the_files_have_apaches_form(disk: MemoryDisk) -> None:
    files(disk).note_application(Application(2, "10.0.0.1:10911;1700000000000"))
    assert read_bytes(disk, f"{PATH}-temp") == (
        b"DefaultCluster#broker-a#2#10.0.0.1:10911;1700000000000"
    )
    assert files(disk).application() == Application(2, "10.0.0.1:10911;1700000000000")
    files(disk).settle(2)
    assert read_bytes(disk, PATH) == b"DefaultCluster#broker-a#2"
    assert (files(disk).controller_id(), files(disk).application()) == (2, None)


def test_a_refused_application_is_forgotten(disk: MemoryDisk) -> None:
    files(disk).note_application(Application(2, "code"))
    files(disk).forget_application()
    assert files(disk).application() is None


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"#",
        b"DefaultCluster#broker-a",
        b"DefaultCluster#broker-a#",
        b"\xff\xfe#b#1",
        b"DefaultCluster#broker-a#0",
        b"DefaultCluster#broker-a#-1",
        b"DefaultCluster#broker-a#2147483648",
        b"DefaultCluster#broker-a#1#2",
        "DefaultCluster#broker-a#²".encode(),
        b"DefaultCluster#broker-a#" + b"9" * 5000,
    ],
)
def test_a_damaged_file_is_an_error_that_says_what_to_do(disk: MemoryDisk, text: bytes) -> None:
    write(disk, PATH, text)
    with pytest.raises(ConfigError, match=r"brokerIdentity: it is damaged.*trocket controller"):
        files(disk).controller_id()


def test_a_damaged_application_counts_as_none(disk: MemoryDisk) -> None:
    write(disk, f"{PATH}-temp", b"DefaultCluster#broker-a#x#code")
    assert files(disk).application() is None


def test_the_folder_of_another_set_is_named_with_both(disk: MemoryDisk) -> None:
    files(disk).settle(3)
    with pytest.raises(
        ConfigError, match=r"broker broker-a of cluster DefaultCluster.*broker-b of"
    ):
        files(disk, name="broker-b").controller_id()
    with pytest.raises(ConfigError, match="cluster Other"):
        files(disk, cluster="Other").controller_id()
