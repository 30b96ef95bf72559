"""What `mkdocs build` does besides: shows the API's pages the package, and nothing else.

The repository's root is the import package, with the virtual environment and the tests in it.
Searched as it stands, that takes a minute; a folder with links to what is documented, a second.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from mkdocs.plugins import event_priority

ROOT = Path(__file__).resolve().parents[2]
PARTS = (
    "__init__.py",
    "blocking",
    "broker",
    "client",
    "namesrv",
    "pytest_plugin.py",
    "remoting",
    "store",
    "testing",
)
"""What the API's pages show, and what that refers to."""

_folders: list[tempfile.TemporaryDirectory[str]] = []


@event_priority(100)  # before mkdocstrings reads where to look
def on_config(config: Any) -> Any:
    """Have mkdocstrings look into a folder of links."""
    folder = tempfile.TemporaryDirectory(prefix="trocket-docs-")
    _folders.append(folder)
    package = Path(folder.name) / "trocket"
    package.mkdir()
    for part in PARTS:
        (package / part).symlink_to(ROOT / part)
    python = config.plugins["mkdocstrings"].config.handlers["python"]
    python["paths"] = [folder.name]
    return config


def on_shutdown() -> None:
    """Away with the folders."""
    while _folders:
        _folders.pop().cleanup()
