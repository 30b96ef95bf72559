"""The fenced blocks of the README and of the pages under docs/, with their remarks.

A ```python block is a complete program, unless a comment stands directly above it:

    <!-- not run: REASON -->     it must still compile, and what it imports of trocket must exist
    <!-- pytest OPTIONS -->      a module of tests
    <!-- goes on -->             it continues the program or module before it
    <!-- spark -->              a program that runs in the Spark session of tests/spark
    <!-- until SIGTERM -->       a program that exits with status 0 after SIGTERM
    <!-- until killed -->        one that goes on for ever, and may log; it is killed when it has
                                 printed what the page says

Only the commands of a ```sh block are checked, unless `<!-- run -->` stands directly above it.

If the next block is ```text, it is what the program prints, with … for anything.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

FENCE = re.compile(r" *```(.*)")
COMMENT = re.compile(r"<!-- (.+) -->")


@dataclass
class Block:
    """A fenced block.

    Attributes:
      line: number of its first fence.
      language: what stands behind the fence: "python".
      text: what is in it.
      remark: the comment directly above it, or "".
      output: what it prints: the next block, if that is a `text`; else None.
    """

    line: int
    language: str
    text: str
    remark: str
    output: str | None = None


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[Block]:
    """The blocks of a page, from top to bottom."""
    found: list[Block] = []
    above = ""
    inside: Block | None = None
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        fence = FENCE.fullmatch(line)
        if inside is not None:
            if fence is not None and not fence[1]:
                if inside.language == "text" and found and found[-1].output is None:
                    found[-1].output = inside.text
                found.append(inside)
                inside = None
            else:
                inside.text += line + "\n"
        elif fence is not None:
            remark = COMMENT.fullmatch(above)
            inside = Block(number, fence[1].strip(), "", remark[1] if remark else "")
        above = line.strip()
    assert inside is None, f"{name(page)}:{inside and inside.line}: a fence without end"
    return found


def pattern(output: str) -> re.Pattern[str]:
    """What is written of an output: … is anything in a line, a line of … alone any lines."""
    parts = []
    for line in output.splitlines():
        if line.strip() == "…":
            parts.append(r"(?:.*\n)*?")
        else:
            parts.append(".*?".join(map(re.escape, line.rstrip().split("…"))) + r" *\n")
    return re.compile("".join(parts))
