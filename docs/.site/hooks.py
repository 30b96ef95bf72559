"""Hooks of `mkdocs build`: the package for the API's pages, diagrams, and wide tables.

The repository's root is the import package, with the virtual environment and the tests in it.
Searching all of it takes a minute; a folder with links to the documented parts, a second.
"""

from __future__ import annotations

import os
import re
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from mkdocs.plugins import event_priority

ROOT = Path(__file__).resolve().parents[2]
PARTS = (
    "__init__.py",
    "blocking",
    "broker",
    "client",
    "disk",
    "namesrv",
    "pytest_plugin.py",
    "remoting",
    "store",
    "testing",
)
"""The parts that the API's pages show or refer to."""
DIAGRAM = re.compile(r"```mermaid\nstateDiagram-v2\n(.*?)```", re.DOTALL)
TRANSITION = re.compile(r" *(\S+) --> (\S+?)(?:: (.*))?")
FILE_FENCE = re.compile(r"^```(?:hex|text) (.+)$", re.MULTILINE)
CELL = re.compile(r"<td>(.*?)</td>", re.DOTALL)
TAG = re.compile(r"<[^>]+>")
LONG_CELL = 40
"""Characters above which a cell of a table gets a minimum width, to avoid one word per line."""
WIDE_PAGES = (
    "compatibility.md",
    "protocol.md",
    "quirks.md",
    "reference/client_comparison.md",
    "which_broker.md",
)
"""Pages whose tables need the space of the table of contents."""

VERSION_SWITCH = "TROCKET_DOCS_VERSION"
"""The environment variable with the version whose site is built beside those of others."""

_folders: list[tempfile.TemporaryDirectory[str]] = []


@event_priority(100)  # before mkdocstrings reads its paths
def on_config(config: Any) -> Any:
    """Point mkdocstrings to a folder of links."""
    folder = tempfile.TemporaryDirectory(prefix="trocket-docs-")
    _folders.append(folder)
    package = Path(folder.name) / "trocket"
    package.mkdir()
    for part in PARTS:
        (package / part).symlink_to(ROOT / part)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    version = os.environ.get(VERSION_SWITCH)
    if version:
        config.extra["version"] = {"provider": "mike"}  # whose list versions.py writes
    if project["urls"]:  # empty until the project has an address
        config.repo_url = project["urls"]["Source"]
        site = project["urls"]["Documentation"].rstrip("/")
        config.site_url = f"{site}/{version}/" if version else f"{site}/"
    python = config.plugins["mkdocstrings"].config.handlers["python"]
    python["paths"] = [folder.name]
    return config


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Give the examples of files titles, and show state diagrams as tables.

    Mermaid would be loaded from elsewhere.
    """
    markdown = FILE_FENCE.sub(r'```text title="\1"', markdown)
    if page.file.src_uri in WIDE_PAGES:
        page.meta["hide"] = ["toc"]
    return DIAGRAM.sub(as_table, markdown)


def as_table(diagram: re.Match[str]) -> str:
    """The transitions of a state diagram, one per row."""
    rows = ["| state | event | next state |", "|---|---|---|"]
    for line in diagram[1].splitlines():
        if transition := TRANSITION.fullmatch(line):
            state, following, event = transition.groups()
            rows.append(f"| {state.replace('[*]', '(start)')} | {event or ''} | {following} |")
    return "\n".join(rows)


def on_page_content(html: str, **_: Any) -> str:
    """Mark the cells of tables that hold sentences."""
    return CELL.sub(marked, html)


def marked(cell: re.Match[str]) -> str:
    """A cell, with the class `long` if its text is long."""
    return f'<td class="long">{cell[1]}</td>' if len(TAG.sub("", cell[1])) > LONG_CELL else cell[0]


def on_shutdown() -> None:
    """Remove the folders."""
    while _folders:
        _folders.pop().cleanup()
