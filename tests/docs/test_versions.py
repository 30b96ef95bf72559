"""The site by versions: the list from which pages offer the others, and where a visit begins."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

SCRIPT = runpy.run_path(str(ROOT / "docs" / ".site" / "versions.py"))


def site(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).mkdir()
        (folder / name / "index.html").touch()


def test_the_list_has_the_newest_version_first_and_nothing_but_versions(tmp_path: Path) -> None:
    site(tmp_path, "0.9", "0.10", "assets", "0.2")
    (tmp_path / "0.11").mkdir()  # whose build failed
    SCRIPT["write"](tmp_path)
    listed = json.loads((tmp_path / "versions.json").read_text(encoding="utf-8"))
    assert listed == [
        {"version": "0.10", "title": "0.10", "aliases": ["latest"]},
        {"version": "0.9", "title": "0.9", "aliases": []},
        {"version": "0.2", "title": "0.2", "aliases": []},
    ]


def test_a_folder_without_a_version_is_an_error(tmp_path: Path) -> None:
    site(tmp_path, "0.2.0", "v0.2")
    with pytest.raises(SystemExit, match=r"has no site of a version such as 0\.2"):
        SCRIPT["write"](tmp_path)
    assert not (tmp_path / "versions.json").exists()


def test_a_visit_begins_at_the_newest_version(tmp_path: Path) -> None:
    site(tmp_path, "0.1")
    SCRIPT["write"](tmp_path)
    assert 'url=0.1/"' in (tmp_path / "index.html").read_text(encoding="utf-8")
    site(tmp_path, "0.2")
    SCRIPT["write"](tmp_path)
    assert 'url=0.2/"' in (tmp_path / "index.html").read_text(encoding="utf-8")
