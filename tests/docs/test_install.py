"""What the documents say about installing trocket, and the metadata of its distributions."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, name

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
ABOUT_THE_PROJECT = (
    "CHANGELOG.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "README.md", "SECURITY.md",
    "docs/releasing.md", "mkdocs.yml", "testkits/java/README.md",
)  # fmt: skip
"""Documents whose addresses a reader takes for the project's."""
DOCUMENTS = [*PAGES, ROOT / "interop" / "image" / "Dockerfile"]


def installs(page: Path) -> Iterator[str]:
    """What `pip install` of trocket names in a document."""
    text = page.read_text(encoding="utf-8")
    yield from re.findall(r"pip install (?:-\S+ )*['\"]?(trocket\b[^ '\"`]*|\.[^ '\"`]*)", text)


@pytest.mark.parametrize("page", DOCUMENTS, ids=name)
def test_no_document_installs_trocket_from_an_index_that_does_not_have_it(page: Path) -> None:
    assert [each for each in installs(page) if each.startswith("trocket")] == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_extra_that_a_document_installs_exists(page: Path) -> None:
    for each in installs(page):
        extras = re.findall(r"[a-z]+", each)
        assert set(extras) <= PROJECT["optional-dependencies"].keys(), each


def test_the_readme_says_how_to_make_a_wheel() -> None:
    assert "pip wheel --no-deps -w dist ." in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_metadata_is_complete_and_its_addresses_agree() -> None:
    assert PROJECT["authors"]
    urls = PROJECT["urls"]
    # All are filled in, or none is.
    assert urls.keys() in (set(), {"Source", "Documentation", "Issues", "Changelog"})
    assert all(re.match(r"https://(?![\w.-]*\bexample\b)", each) for each in urls.values())


ADDRESS = re.compile(r"https?://[\w.-]*\bexample\b|@[\w.-]*\bexample\.(?:org|com|net)\b")


@pytest.mark.parametrize("page", ABOUT_THE_PROJECT)
def test_no_document_has_an_address_of_the_project_that_is_none(page: str) -> None:
    assert ADDRESS.findall((ROOT / page).read_text(encoding="utf-8")) == []


def test_the_tools_of_the_site_are_pinned() -> None:
    assert all("==" in each for each in PROJECT["optional-dependencies"]["docs"])
