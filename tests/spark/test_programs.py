"""The programs of the documents that need Spark, in the session of these tests."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, Block, blocks, name, pattern

MARKED = [
    (page, block)
    for page in PAGES
    for block in blocks(page)
    if block.language == "python" and block.remark == "spark"
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "block"), MARKED, ids=[f"{name(page)}:{block.line}" for page, block in MARKED]
)
def test_a_program_prints_what_the_page_says(
    page: Path, block: Block, spark, tmp_path, capsys, monkeypatch
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    program = tmp_path / "program.py"
    program.write_text(block.text, encoding="utf-8")
    runpy.run_path(str(program), run_name="__main__")
    printed = capsys.readouterr().out
    assert block.output is not None
    assert pattern(block.output).fullmatch(printed), printed


def test_there_are_some() -> None:
    assert {name(page) for page, _ in MARKED} == {"README.md", "docs/spark.md"}
