"""Where `trocket up` keeps its data, and where it refuses to."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from trocket.cli.up.config import default_home, refuse_source_folder
from trocket.common.config import ConfigError
from trocket.disk.errors import StoreIOError
from trocket.disk.memory_disk import MemoryDisk

from ..store.support import open_store, small_config
from .conftest import Command


@pytest.mark.parametrize(
    ("environment", "below"),
    [
        ({}, ".local/share/trocket"),
        ({"XDG_DATA_HOME": ""}, ".local/share/trocket"),
        ({"XDG_DATA_HOME": "relative"}, ".local/share/trocket"),
    ],
)
def test_data_is_in_the_users_data_folder(
    tmp_path: Path, environment: dict[str, str], below: str
) -> None:
    assert default_home(environment, tmp_path) == tmp_path / below


def test_the_users_data_folder_may_be_elsewhere(tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert default_home({"XDG_DATA_HOME": str(data)}, tmp_path) == data / "trocket"


def test_a_folder_of_an_earlier_version_is_used_on(tmp_path: Path) -> None:
    (tmp_path / "trocket" / "store" / "commitlog").mkdir(parents=True)
    assert default_home({}, tmp_path) == tmp_path / "trocket"


def test_data_in_a_checkout_is_not_used_and_the_log_says_what_to_move(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """`make run` in a clone at ~/trocket wrote it there."""
    (tmp_path / "trocket" / "store" / "commitlog").mkdir(parents=True)
    (tmp_path / "trocket" / "pyproject.toml").touch()
    assert default_home({}, tmp_path) == tmp_path / ".local/share/trocket"
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "move commitlog" in record.getMessage()


@pytest.mark.parametrize("name", ["pyproject.toml", "__init__.py"])
@pytest.mark.parametrize("folder", ["home", "home/store"])
def test_a_folder_of_source_code_is_refused_by_name(tmp_path: Path, folder: str, name: str) -> None:
    home = tmp_path / "home"
    (home / "store").mkdir(parents=True)
    (tmp_path / folder / name).touch()
    with pytest.raises(ConfigError, match=f"{folder} is a folder of source code .{name}"):
        refuse_source_folder(home, home / "store")


def test_a_store_is_not_made_in_a_folder_of_a_package() -> None:
    disk = MemoryDisk()
    root = small_config().store_path_root_dir
    disk.open(f"{root}/__init__.py", create=True).close()
    with pytest.raises(StoreIOError, match="folder of source code"):
        open_store(disk)
    assert not disk.exists(f"{root}/commitlog")


@pytest.mark.slow
def test_up_refuses_a_checkout(tmp_path: Path, start: Callable[..., Command]) -> None:
    (tmp_path / "pyproject.toml").touch()
    command = start("up", "--home", str(tmp_path), "--namesrv-port", "0", "--broker-port", "0")
    status, _, errors = command.end()
    assert (status, "folder of source code" in errors) == (2, True)
    assert not (tmp_path / "store").exists()
