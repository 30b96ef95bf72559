"""Settings of a local Spark, and none of them if the user has configured Spark."""

from __future__ import annotations

import stat
import tempfile
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pyspark is of the extra `spark`")

from trocket.spark import local_settings as module
from trocket.spark.local_settings import COLLECTOR, FILES, SOCKETS, VARIABLES, local_settings


@pytest.fixture
def plain(tmp_path):
    """An environment without any configuration of Spark."""
    return {"SPARK_CONF_DIR": str(tmp_path)}


def test_both_are_set_and_the_sockets_are_the_users_alone(plain) -> None:
    found = local_settings(plain)
    folder = Path(found.pop(f"{SOCKETS}.dir"))
    assert found == {**COLLECTOR, f"{SOCKETS}.enabled": "true"}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert len(str(folder)) <= module.FOLDER_BYTES_MAX
    assert local_settings(plain)[f"{SOCKETS}.dir"] == str(folder)


def test_a_long_path_is_none_for_sockets(plain, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / ("x" * 60)))
    monkeypatch.setattr(module, "_socket_folder", module._socket_folder.__wrapped__)
    assert local_settings(plain) == COLLECTOR


@pytest.mark.parametrize("name", VARIABLES)
def test_variables_of_the_user_count(plain, name) -> None:
    assert local_settings({**plain, name: "x"}) == {}


@pytest.mark.parametrize("name", FILES)
def test_files_of_the_user_count(plain, tmp_path, name) -> None:
    (tmp_path / name).touch()
    assert local_settings(plain) == {}
    folder = tmp_path / "home" / "conf"
    folder.mkdir(parents=True)
    assert local_settings({"SPARK_HOME": str(folder.parent)}) != {}
    (folder / name).touch()
    assert local_settings({"SPARK_HOME": str(folder.parent)}) == {}
