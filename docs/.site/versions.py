"""The list of the site's versions: `make docs VERSION=0.2` runs it after the build.

In a folder with one site for each version, such as `0.1/` and `0.2/`, it writes `versions.json`,
from which the theme makes the list at the top of each page, and an `index.html` that leads to the
newest one. Both are as mike writes them; mike itself publishes by commits to a branch.

    python docs/.site/versions.py FOLDER
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Final

VERSION: Final = re.compile(r"\d+\.\d+")
"""Versions differ in what the pages say by their first two numbers."""

NEWEST: Final = "latest"
"""The newest version's second name, by which the theme knows that the others are older."""

INDEX: Final = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta http-equiv="refresh" content="0; url={0}/">
<title>trocket {0}</title>
<a href="{0}/">trocket {0}</a>
</html>
"""


def versions(folder: Path) -> list[str]:
    """The versions of which a folder has the site, the newest first."""
    names = (path.parent.name for path in folder.glob("*/index.html"))
    found = [name for name in names if VERSION.fullmatch(name)]
    return sorted(found, key=lambda name: [int(each) for each in name.split(".")], reverse=True)


def write(folder: Path) -> None:
    """Write the list and the start page.

    Raises:
      SystemExit: the folder has no version.
    """
    found = versions(folder)
    if not found:
        raise SystemExit(f"{folder} has no site of a version such as 0.2")
    listed = [
        {"version": each, "title": each, "aliases": [NEWEST] if each == found[0] else []}
        for each in found
    ]
    (folder / "versions.json").write_text(json.dumps(listed, indent=2) + "\n", encoding="utf-8")
    (folder / "index.html").write_text(INDEX.format(found[0]), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
