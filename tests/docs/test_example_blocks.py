"""The code that a page shows of a program in examples/ is what its file has."""

from __future__ import annotations

from textwrap import dedent

import pytest

from tests.docs.pages import PAGES, ROOT, Block, blocks, name

SHOWN = [
    pytest.param(block, id=f"{name(page)}:{block.line}")
    for page in PAGES
    for block in blocks(page)
    if block.remark.startswith("examples/")
]


def test_pages_show_code_of_the_examples() -> None:
    assert len(SHOWN) > 3


@pytest.mark.parametrize("block", SHOWN)
def test_a_block_is_in_the_file_that_it_names(block: Block) -> None:
    lines = (ROOT / block.remark).read_text(encoding="utf-8").splitlines()
    shown = block.text.splitlines()
    parts = (lines[start : start + len(shown)] for start in range(len(lines)))
    wanted = dedent(block.text)
    assert any(dedent("\n".join(part) + "\n") == wanted for part in parts), block.remark
