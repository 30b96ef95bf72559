"""Changes of a server's configuration: saved before they are used, one at a time."""

from __future__ import annotations

import errno
import logging
import stat
from dataclasses import dataclass

import pytest
import trio

from trocket.common.config import setting
from trocket.common.live_config import LiveConfig
from trocket.disk.config_changes import ConfigChanges
from trocket.disk.memory_disk import MemoryDisk
from trocket.disk.os_disk import OsDisk
from trocket.disk.position import START
from trocket.remoting.errors import RequestRefused
from trocket.remoting.response_codes import ResponseCode

PEER = "192.0.2.7:50000"
PATH = "/etc/broker.conf"


@dataclass
class Config:
    ratio: int = setting(75, minimum=1, maximum=100, live=True)
    pause: int = setting(1, live=True)
    folder_path: str = setting("/data", guarded="is a path of files")
    threads: int = 4


def changes(config: Config, disk: MemoryDisk, path: str = PATH) -> ConfigChanges:
    live = LiveConfig((config,), dict, server="the server")
    return ConfigChanges(live, disk, path)


def text(disk: MemoryDisk, path: str = PATH) -> bytes:
    file = disk.open(path)
    return file.pread(file.size(), START)


async def test_a_part_that_fails_to_follow_a_change_does_not_keep_the_others_from_it(caplog):
    live = LiveConfig((Config(),), dict, server="the server")
    followed: list[str] = []

    def fail() -> None:
        raise ZeroDivisionError

    live.subscribe(fail, "ratio")
    live.subscribe(lambda: followed.append("next"), "ratio")
    await ConfigChanges(live, MemoryDisk(), PATH).change(b"ratio=50", PEER)
    assert followed == ["next"]
    assert "the use of a changed setting failed" in caplog.text


async def test_a_change_is_saved_with_the_old_file_beside_it():
    config, disk = Config(), MemoryDisk()
    service = changes(config, disk)
    assert await service.change(b"ratio=50", PEER) == {"ratio": "50"}
    assert await service.change(b"ratio = 60\npause=2", PEER) == {"ratio": "60", "pause": "2"}
    assert config == Config(ratio=60, pause=2)
    assert text(disk) == b"ratio=60\npause=2\n"
    assert text(disk, f"{PATH}.bak") == b"ratio=50\n"


@pytest.mark.parametrize(
    ("body", "code", "remark"),
    [
        (
            b"ratio=50\nfolderPath=/x",
            ResponseCode.NO_PERMISSION,
            "Can not update config in black list. folderPath: it is a path of files",
        ),
        (b"threads=5", ResponseCode.NO_PERMISSION, "threads: it is read at the start only"),
        (b"ratio=0", ResponseCode.SYSTEM_ERROR, "ratio must be a plain whole number"),
        (b"ratios=1", ResponseCode.SYSTEM_ERROR, "unknown key 'ratios'"),
        (b"\xff\xfe", ResponseCode.SYSTEM_ERROR, "the settings are not UTF-8"),
    ],
)
async def test_what_is_refused_changes_neither_memory_nor_file(caplog, body, code, remark):
    config, disk = Config(), MemoryDisk()
    with pytest.raises(RequestRefused) as refused:
        await changes(config, disk).change(body, PEER)
    assert refused.value.code == code
    assert refused.value.remark.startswith(remark)
    assert config == Config()
    assert not disk.exists(PATH)
    assert f"a change of settings by {PEER} is refused" in caplog.text


@pytest.mark.parametrize("operation", ["open", "pwrite", "sync", "rename"])
async def test_a_file_that_cannot_be_written_changes_nothing(operation):
    config, disk = Config(), MemoryDisk()
    service = changes(config, disk)
    await service.change(b"ratio=50", PEER)

    def fault(called: str, path: str) -> OSError | None:
        is_meant = called == operation and path.startswith(PATH)
        return OSError(errno.ENOSPC, "No space left on device") if is_meant else None

    disk.fault = fault
    with pytest.raises(RequestRefused) as refused:
        await service.change(b"ratio=60", PEER)
    assert refused.value.code == ResponseCode.SYSTEM_ERROR
    assert refused.value.remark.startswith("nothing is changed, because it cannot be saved: ")
    assert config == Config(ratio=50)
    disk.fault = None
    assert text(disk) == b"ratio=50\n"
    await service.change(b"ratio=60", PEER)
    assert config == Config(ratio=60)


async def test_without_a_file_a_change_is_in_memory_only_and_the_log_says_so(caplog):
    caplog.set_level(logging.INFO)
    config, disk = Config(), MemoryDisk()
    await changes(config, disk, path="").change(b"ratio=50", PEER)
    assert config == Config(ratio=50)
    assert f"{PEER} set ratio=50 for the server" in caplog.text
    assert "lost at its end: no file" in caplog.text


async def test_changes_at_the_same_moment_are_made_one_after_the_other(tmp_path):
    config = Config()
    path = tmp_path / "broker.conf"
    service = changes(config, OsDisk(), str(path))
    async with trio.open_nursery() as nursery:
        for number in range(1, 21):
            nursery.start_soon(service.change, f"ratio={number}\npause={number}".encode(), PEER)
    last = config.ratio
    assert config == Config(ratio=last, pause=last)
    assert path.read_text() == f"ratio={last}\npause={last}\n"


async def test_a_request_that_is_cancelled_while_it_is_saved_is_in_effect_once_it_is_saved(
    tmp_path,
):
    config = Config()
    path = tmp_path / "broker.conf"
    service = changes(config, OsDisk(), str(path))
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(service.change, b"ratio=50", PEER)
            await trio.lowlevel.checkpoint()
            scope.cancel()
    assert path.exists() == (config.ratio == 50)


@pytest.mark.parametrize("mode", [0o600, 0o644])
async def test_a_file_that_others_may_not_read_stays_so_with_its_bak(tmp_path, mode):
    path = tmp_path / "broker.conf"
    path.write_text("initAuthenticationUser={...}\n")
    path.chmod(mode)
    await changes(Config(), OsDisk(), str(path)).change(b"ratio=50", PEER)
    assert path.read_text() == "initAuthenticationUser={...}\nratio=50\n"
    modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in tmp_path.iterdir()}
    assert modes == {"broker.conf": mode, "broker.conf.bak": mode}


async def test_an_empty_change_writes_nothing():
    config, disk = Config(), MemoryDisk()
    assert await changes(config, disk).change(b"# nothing", PEER) == {}
    assert not disk.exists(PATH)
